//! Runs techniques on a pinned thread of their own, and collects what they find.

use std::thread;

use tapeworks_ring::cpu;

use crate::machine::Machine;
use crate::measure::{self, Ended, Lab, Peers, Selection, Settings};
use crate::results::{FORMAT, Run, TechniqueResult};
use crate::technique::Technique;

/// What a run is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'p> {
    /// How many techniques are done.
    pub done: usize,
    /// How many there are.
    pub of: usize,
    /// What is measured next.
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
    /// No thread could be kept on a core.
    #[error("the measuring thread cannot be kept on core {core}: {why}")]
    Pin {
        /// The core.
        core: usize,
        /// Why.
        why: String,
    },
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

/// Runs techniques one after the other, and `peers` with them. One that fails has the reason in its result, and the others go on.
///
/// # Errors
/// When the thread cannot be pinned, or the user stops the run.
///
/// # Panics
/// When a technique panics, as nothing of its results can be trusted.
pub fn run(
    techniques: &[&'static Technique],
    peers: &[Peers],
    settings: Settings,
    began: &str,
    on_progress: &mut (dyn FnMut(Progress<'_>) + Send),
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Run, RunError> {
    let machine = Machine::this();
    on_pinned_thread(|cores| {
        on_progress(Progress { done: 0, of: techniques.len(), what: "the noise of the machine" });
        let noise = measure::noise(settings, is_stopped).map_err(|_| RunError::Stopped)?;
        let mut results = Vec::new();
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
                Err(Ended::Stopped) => return Err(RunError::Stopped),
                Err(ended) => failed = Some(ended.to_string()),
            }
            results.push(TechniqueResult {
                name: technique.name.into(),
                title: technique.title.into(),
                experiments: experiments.into_iter().filter(|found| !found.points.is_empty()).collect(),
                skipped,
                failed,
            });
        }
        Ok(Run {
            format: FORMAT,
            program: format!("tapeworks-lab {}", env!("CARGO_PKG_VERSION")),
            began: began.into(),
            quick: settings.quick,
            rounds: settings.rounds,
            machine: machine.clone(),
            noise,
            techniques: results,
        })
    })
}

/// Runs one variant alone, for a program that counts its instructions.
///
/// # Errors
/// As [`run`].
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

/// Runs `work` on a new thread that is kept on the first core that the program may use; this thread stays free.
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
