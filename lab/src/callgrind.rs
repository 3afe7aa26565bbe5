//! Counts instructions with valgrind's callgrind where the processor's counters are unavailable.
//!
//! The program runs itself twice for each variant, with different numbers of calls. The difference is the variant's work alone, without the
//! preparation of its inputs. Callgrind counts one thread's instructions, the same number in each run, but no cycles.

use std::io;
use std::process::Command;

use crate::counters::Events;
use crate::measure::Selection;
use crate::results::Run;

/// How often a variant is called in the two runs.
const TIMES: [u64; 2] = [1, 3];

/// Why nothing was counted.
#[derive(Debug, thiserror::Error)]
pub enum CallgrindError {
    /// Valgrind cannot be started.
    #[error("valgrind cannot be started: {0}")]
    Start(io::Error),
    /// The program failed under callgrind.
    #[error("the program failed under callgrind: {0}")]
    Failed(String),
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

/// Counts the instructions of all timed variants of a run and stores them in it. `program` returns the command that runs one
/// variant of a technique alone.
///
/// # Errors
/// Valgrind cannot be started, or the program fails under it.
pub fn count(
    run: &mut Run,
    program: &dyn Fn(&str, Selection) -> Command,
    on_variant: &mut dyn FnMut(&str),
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), CallgrindError> {
    for technique in &mut run.techniques {
        for (experiment, found) in technique.experiments.iter_mut().enumerate() {
            for (point, found) in found.points.iter_mut().enumerate() {
                let items = found.items.max(1) as f64;
                for (variant, measured) in found.variants.iter_mut().enumerate() {
                    // A variant that reports single operations does not have a fixed amount of work.
                    if measured.tail.is_some() {
                        continue;
                    }
                    if is_stopped() {
                        return Err(CallgrindError::Stopped);
                    }
                    on_variant(&format!("{}: {}", technique.title, measured.name));
                    let mut counted = [0u64; TIMES.len()];
                    for (times, count) in TIMES.into_iter().zip(&mut counted) {
                        let selection = Selection { experiment, point, variant, times };
                        *count = instructions(&program(&technique.name, selection))?;
                    }
                    let [first, second] = counted;
                    let work = second.saturating_sub(first) as f64 / (TIMES[1] - TIMES[0]) as f64;
                    measured.events = Some(Events {
                        instructions: Some(work / items),
                        by_callgrind: true,
                        ..Events::default()
                    });
                }
            }
        }
    }
    Ok(())
}

/// Returns the instructions that a command executes.
fn instructions(command: &Command) -> Result<u64, CallgrindError> {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(command.get_program())
        .args(command.get_args());
    let output = valgrind.output().map_err(CallgrindError::Start)?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(CallgrindError::Failed(format!("{}: {last}", output.status)));
    }
    collected(&text).ok_or_else(|| CallgrindError::Failed("callgrind printed no count".into()))
}

/// Parses the number after `Collected :`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.split(':').nth(1)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        let text = "==1== Events    : Ir\n==1== Collected : 1234567\n==1== \n";
        assert_eq!(collected(text), Some(1_234_567));
        assert_eq!(collected("nothing"), None);
    }
}
