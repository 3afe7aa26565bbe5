//! Ray as the executor, through the Python package: a process of Python gives each task to Ray, and says when it has ended.
//!
//! The process speaks JSON, a line for each message: `tapeworks._ray.main` has them. It stops when its standard input ends, so it does when
//! this program is killed too.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tapeworks_batch::{BatchError, Elsewhere, Executor, Folder, Step, Task};

/// The time between two looks at a request to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The variable with the Python that has the package.
const PYTHON: &str = "TAPEWORKS_PYTHON";

/// Starts the executor; where the package is not installed, says so in its own words instead of a traceback.
const START: &str = "\
import json, sys
try:
    from tapeworks._ray import main
except ImportError as error:
    print(json.dumps({'failed': f'its Python package is not there ({error})'}))
    sys.exit(1)
sys.exit(main())
";

/// What the process says.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Ready {
        ready: String,
    },
    Ended {
        ended: String,
        error: Option<String>,
        is_of_input: bool,
    },
    Done {
        #[serde(rename = "done")]
        _done: bool,
    },
    Failed {
        failed: String,
    },
}

/// The process.
struct Process {
    child: Child,
    /// What ends it when it is closed.
    input: Option<ChildStdin>,
    said: Receiver<String>,
    /// Whether it has turned out to be what it shall be. It has not begun anything before.
    is_ready: bool,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        if !self.is_ready {
            // Any program: it may never end. One that has ended cannot be killed.
            let _it_has_ended = self.child.kill();
        }
        // It ends the Ray that it has started.
        let _how = self.child.wait();
    }
}

/// How to start Ray.
pub(super) struct Options {
    /// The Python that has the package, instead of that of the environment.
    pub(super) python: Option<PathBuf>,
    /// The cluster to join.
    pub(super) address: Option<String>,
    /// Tasks at the same time.
    pub(super) jobs: Option<usize>,
    /// Where workers stage objects.
    pub(super) work: Option<PathBuf>,
}

/// Ray, on this host or on a cluster.
pub(super) struct Ray {
    python: PathBuf,
    address: Option<String>,
    jobs: Option<usize>,
    work: Option<PathBuf>,
    /// Taken when it is used.
    process: Mutex<Option<Process>>,
}

impl Ray {
    /// Starts Python, and sees to it that it has the package of this version and Ray.
    ///
    /// # Errors
    /// [`BatchError::Executor`].
    pub(super) fn start(options: Options) -> Result<Self, BatchError> {
        let Options { python, address, jobs, work } = options;
        let python = python.or_else(|| std::env::var_os(PYTHON).map(PathBuf::from));
        let python = python.unwrap_or_else(|| "python3".into());
        let executor = Self { python, address, jobs, work, process: Mutex::new(None) };
        let mut command = Command::new(&executor.python);
        command.args(["-c", START]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| executor.failed(&format!("does not start: {error}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(executor.failed("has no pipes"));
        };
        let (sender, said) = mpsc::channel();
        let read = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("batch-ray".to_owned()).spawn(read).map_err(BatchError::Thread)?;
        let mut process = Process { child, input: Some(input), said, is_ready: false };
        loop {
            match executor.next(&process)? {
                Some(Said::Ready { ready }) if ready == env!("CARGO_PKG_VERSION") => break,
                Some(Said::Ready { ready }) => {
                    let why =
                        format!("has the package in version {ready}; this is {}", env!("CARGO_PKG_VERSION"));
                    return Err(executor.failed(&why));
                }
                Some(_) => return Err(executor.failed("does not answer as the package does")),
                None if super::unless_stopped().is_break() => return Err(BatchError::Stopped),
                None => {}
            }
        }
        process.is_ready = true;
        *executor.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        Ok(executor)
    }

    fn failed(&self, why: &str) -> BatchError {
        BatchError::Executor { why: format!("{}: {why}", self.python.display()) }
    }

    /// What it says next; `None` if that takes its time.
    fn next(&self, process: &Process) -> Result<Option<Said>, BatchError> {
        match process.said.recv_timeout(LOOK) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(Said::Failed { failed }) => Err(self.failed(&failed)),
                Ok(said) => Ok(Some(said)),
                Err(_) => Err(self.failed(&format!("does not answer as the package does: {line}"))),
            },
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.failed("ended before the tasks had")),
        }
    }
}

impl Executor for Ray {
    fn execute(
        &self,
        tasks: &[&Task],
        folder: &Folder,
        watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> Result<(), BatchError> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut process) = process.filter(|_| !tasks.is_empty()) else { return Ok(()) };
        folder.share()?;
        let mut elsewhere = Elsewhere::new(tasks);
        let described = elsewhere.descriptions();
        let request = json!({ "tasks": described, "out": folder.root(), "jobs": self.jobs, "address": self.address, "work": self.work });
        let sent = process.input.as_mut().map_or(Ok(()), |input| writeln!(input, "{request}"));
        sent.map_err(|error| self.failed(&format!("takes no tasks: {error}")))?;
        loop {
            let watched = match self.next(&process)? {
                Some(Said::Ended { ended, error, is_of_input }) => {
                    elsewhere.ended(&ended, error, is_of_input, watch)
                }
                Some(Said::Done { .. }) => break,
                Some(_) => return Err(self.failed("does not answer as the package does")),
                None => elsewhere.show(watch),
            };
            if watched.is_break() {
                // It ends the tasks under way, and says that it is done.
                process.input = None;
            }
        }
        Ok(())
    }
}
