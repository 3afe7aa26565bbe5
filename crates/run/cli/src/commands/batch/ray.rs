//! The Ray executor, which uses the Python package: a Python process passes each task to Ray, and reports when the task has ended.
//!
//! The process exchanges JSON messages, one per line, defined in `tapeworks._ray.main`. It stops when its standard input is
//! closed, so it also stops if this program is killed.

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

/// Interval at which requests to stop are checked.
const LOOK: Duration = Duration::from_millis(50);

/// The environment variable with the path of a Python that has the package.
const PYTHON: &str = "TAPEWORKS_PYTHON";

/// Starts the executor. If the package is not installed, reports that in a message instead of a traceback.
const START: &str = "\
import json, sys
try:
    from tapeworks._ray import main
except ImportError as error:
    print(json.dumps({'failed': f'its Python package is not there ({error})'}))
    sys.exit(1)
sys.exit(main())
";

/// A message of the process.
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

/// The Python process.
struct Process {
    child: Child,
    /// Closing the input ends the process.
    input: Option<ChildStdin>,
    said: Receiver<String>,
    /// Whether the process has identified itself as the executor. It does not start anything before.
    is_ready: bool,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        if !self.is_ready {
            // An unknown program may never end by itself. Killing a process that has ended fails, which is harmless.
            let _it_has_ended = self.child.kill();
        }
        // The process stops the Ray that it started.
        let _how = self.child.wait();
    }
}

/// Settings of the executor.
pub(super) struct Options {
    /// A Python that has the package, instead of the one in the environment.
    pub(super) python: Option<PathBuf>,
    /// The cluster to join.
    pub(super) address: Option<String>,
    /// Maximum number of concurrent tasks.
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
    /// The process that was started; taken when it is used.
    process: Mutex<Option<Process>>,
}

impl Ray {
    /// Starts Python, and checks that Ray and this version of the package are installed.
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

    /// Returns the next message, or `None` if there is none yet.
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
                // The process stops the running tasks, and reports when it is done.
                process.input = None;
            }
        }
        Ok(())
    }
}
