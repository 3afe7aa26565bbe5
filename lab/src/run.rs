//! Runs techniques on a dedicated pinned thread, and collects their results.

use std::path::Path;
use std::thread;

use tapeworks_ring::cpu;

use crate::catalogue;
use crate::machine::Machine;
use crate::measure::{self, Ended, Lab, Peers, Selection, Settings};
use crate::results::{FORMAT, ResultsError, Run, TechniqueResult};
use crate::technique::Technique;

/// What a run is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'p> {
    /// The number of finished techniques.
    pub done: usize,
    /// The total number of techniques.
    pub of: usize,
    /// The next measurement.
    pub what: &'p str,
}

/// Why a run has no results.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// A technique failed: its results would be wrong.
    #[error("{technique}: {ended}")]
    Technique {
        /// Its name.
        technique: &'static str,
        /// Why.
        ended: Ended,
    },
    /// No thread could be pinned to a core.
    #[error("the measuring thread cannot be kept on core {core}: {why}")]
    Pin {
        /// The core.
        core: usize,
        /// Why.
        why: String,
    },
    /// The user stopped it.
    #[error("stopped")]
    Stopped {
        /// The techniques measured before, without the current one; `None` if there are none.
        finished: Option<Box<Run>>,
    },
}

/// Runs techniques one after another, including `peers`. A failed technique has the reason in its result, and the others continue.
///
/// # Errors
/// The thread cannot be pinned, or the user stops the run.
///
/// # Panics
/// Propagates a technique's panic, because its results cannot be trusted.
pub fn run(
    techniques: &[&'static Technique],
    peers: &[Peers],
    settings: Settings,
    began: &str,
    on_progress: &mut (dyn FnMut(Progress<'_>) + Send),
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Run, RunError> {
    let none = empty(settings, began);
    on_pinned_thread(|cores| {
        on_progress(Progress { done: 0, of: techniques.len(), what: "the noise of the machine" });
        let noise = measure::noise(settings, is_stopped).map_err(|_| RunError::Stopped { finished: None })?;
        let mut run = Run { noise, ..none.clone() };
        for (done, technique) in techniques.iter().enumerate() {
            let mut on_point = |point: &str| {
                on_progress(Progress {
                    done,
                    of: techniques.len(),
                    what: &format!("{}: {point}", technique.title),
                });
            };
            let mut lab = Lab::new(settings, cores, noise, &mut on_point, is_stopped);
            lab.add_peers(peers.iter().filter(|peers| peers.technique == technique.name).copied());
            let ended = (technique.run)(&mut lab);
            let (experiments, mut skipped) = lab.into_results();
            let mut failed = None;
            match ended {
                Ok(()) => {}
                Err(Ended::Skipped(why)) => skipped.push(why),
                Err(Ended::Stopped) => {
                    let finished = (!run.techniques.is_empty()).then(|| Box::new(run));
                    return Err(RunError::Stopped { finished });
                }
                Err(ended) => failed = Some(ended.to_string()),
            }
            run.techniques.push(TechniqueResult {
                name: technique.name.into(),
                title: technique.title.into(),
                experiments: experiments.into_iter().filter(|found| !found.points.is_empty()).collect(),
                skipped,
                failed,
            });
        }
        Ok(run)
    })
}

/// Returns a run on this machine without results.
fn empty(settings: Settings, began: &str) -> Run {
    Run {
        format: FORMAT,
        program: format!("tapeworks-lab {}", env!("CARGO_PKG_VERSION")),
        began: began.into(),
        quick: settings.quick,
        rounds: settings.rounds,
        machine: Machine::this(),
        noise: 0.0,
        techniques: Vec::new(),
    }
}

/// Reads the results of an earlier run, so that [`add_earlier`] can combine them with a run with these settings.
///
/// # Errors
/// Same as [`Run::read`], and [`ResultsError::Differs`].
pub fn read_earlier(path: &Path, settings: Settings) -> Result<Run, ResultsError> {
    let (earlier, now) = (Run::read(path)?, empty(settings, ""));
    let differences = [
        (earlier.program != now.program, "another version of the program measured them"),
        (!earlier.machine.is_same(&now.machine), "they are from another machine"),
        (earlier.quick != now.quick, "one run is quick, the other full"),
        (earlier.rounds != now.rounds, "the runs have different numbers of rounds"),
    ];
    match differences.into_iter().find(|(differs, _)| *differs) {
        Some((_, why)) => Err(ResultsError::Differs { path: path.to_owned(), why }),
        None => Ok(earlier),
    }
}

/// Adds the results of an earlier run. Techniques of `run` replace earlier ones.
pub fn add_earlier(run: &mut Run, earlier: Run) {
    // A comparison must not claim more than the noisier run can show.
    run.noise = run.noise.max(earlier.noise);
    let is_kept = |old: &TechniqueResult| run.techniques.iter().all(|new| new.name != old.name);
    let mut techniques: Vec<TechniqueResult> = earlier.techniques.into_iter().filter(is_kept).collect();
    techniques.append(&mut run.techniques);
    techniques.sort_by_key(|technique| catalogue::find(&technique.name).map(|found| found.number));
    run.techniques = techniques;
}

/// Runs one variant alone, for a program that counts its instructions.
///
/// # Errors
/// Same as [`run`].
pub fn run_alone(
    technique: &'static Technique,
    peers: &[Peers],
    settings: Settings,
    selection: Selection,
) -> Result<(), RunError> {
    on_pinned_thread(|cores| {
        let mut quiet = |_: &str| {};
        let mut lab = Lab::new(settings, cores, 0.0, &mut quiet, &|| false);
        lab.add_peers(peers.iter().filter(|peers| peers.technique == technique.name).copied());
        lab.run_alone(selection);
        match (technique.run)(&mut lab) {
            Ok(()) | Err(Ended::Skipped(_)) => Ok(()),
            Err(ended) => Err(RunError::Technique { technique: technique.name, ended }),
        }
    })
}

/// Runs `work` on a new thread, pinned to the first core available to the program. The calling thread is not pinned.
fn on_pinned_thread<T: Send>(
    work: impl FnOnce(&[usize]) -> Result<T, RunError> + Send,
) -> Result<T, RunError> {
    let cores = cpu::allowed_cores().unwrap_or_default();
    thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            if let Some(core) = cores.first() {
                cpu::pin(*core).map_err(|error| RunError::Pin { core: *core, why: error.to_string() })?;
            }
            work(&cores)
        });
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Variants, busy};
    use crate::results::ResultsError;

    const fn technique(name: &'static str, run: fn(&mut Lab<'_>) -> Result<(), Ended>) -> Technique {
        Technique {
            number: 0,
            name,
            title: name,
            question: "?",
            published: &[],
            used: &[],
            assembly: &[],
            run,
        }
    }

    static MEASURED: Technique = technique("measured", |lab| {
        lab.experiment("a test", "turn");
        lab.point(0.0, "", Variants::of(100).add("one", || busy(100)).add("the same", || busy(100)))
    });
    static STOPPED: Technique = technique("stopped", |_| Err(Ended::Stopped));

    fn ran(techniques: &[&'static Technique]) -> Result<Run, RunError> {
        let settings = Settings { rounds: 3, ..Settings::QUICK };
        run(techniques, &[], settings, "now", &mut |_| {}, &|| false)
    }

    #[test]
    fn a_stop_leaves_what_was_measured_before() {
        let Err(RunError::Stopped { finished: Some(run) }) = ran(&[&MEASURED, &STOPPED, &MEASURED]) else {
            panic!("not stopped");
        };
        let names: Vec<&str> = run.techniques.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["measured"]);
        assert!(matches!(ran(&[&STOPPED]), Err(RunError::Stopped { finished: None })));
    }

    #[test]
    fn results_with_control_characters_or_paths_for_names_are_refused_and_others_come_back() {
        let mut run = ran(&[&MEASURED]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        std::fs::write(&path, run.to_json()).unwrap();
        let again = Run::read(&path).unwrap();
        assert_eq!((again.machine, again.techniques[0].title.as_str()), (run.machine.clone(), "measured"));
        run.techniques[0].title = "clears\u{1b}[2Jthe screen".into();
        std::fs::write(&path, run.to_json()).unwrap();
        assert!(matches!(Run::read(&path), Err(ResultsError::Control { .. })));
        run.techniques[0].title.clear();
        run.techniques[0].name = "../elsewhere".into();
        std::fs::write(&path, run.to_json()).unwrap();
        assert!(matches!(Run::read(&path), Err(ResultsError::Name { name, .. }) if name == "../elsewhere"));
    }
}
