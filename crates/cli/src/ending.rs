//! How the program ends: exit codes and the one line that says why.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | failed: an input cannot be opened, an output cannot be written |
//! | 2 | the command line is wrong |
//! | 3 | done, but something was missing or unreadable in the input (gaps, cut files, unknown messages) |
//! | 78 | a configuration file is wrong (`EX_CONFIG` of `sysexits.h`) |
//! | 130 | stopped by Ctrl-C |

use std::fmt;
use std::io;

use tapeworks_plant::input::InputError;
use tapeworks_plant::replay::ReplayError;

/// The codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong usage; 3 done, but the input has gaps or parts that could not be read; 78 a \
configuration file is wrong; 130 stopped by Ctrl-C.";

/// How a command that did not fail has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Complete,
    /// Done, but the input has gaps or parts that could not be read.
    WithProblems,
    Interrupted,
}

impl Ending {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::WithProblems => 3,
            Self::Interrupted => 130,
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for what cannot be.
    Usage(String),
    /// Something else, in one line.
    Failed(String),
    /// A configuration file is wrong: a line for each error.
    Config(Vec<String>),
    /// Whoever read the output has gone: nothing to tell, nothing wrong.
    ClosedPipe,
}

impl Failure {
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
            Self::Config(_) => 78,
            Self::ClosedPipe => 0,
        }
    }

    /// Writing to standard output failed.
    pub(crate) fn from_stdout(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Failed(format!("cannot write to standard output: {error}")),
        }
    }

    /// Writing to a file failed.
    pub(crate) fn from_file(path: &std::path::Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: cannot write: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => f.write_str(text),
            Self::Config(lines) => f.write_str(&lines.join("\n")),
            Self::ClosedPipe => Ok(()),
        }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        use tapeworks_store::StoreError;
        match error {
            ReplayError::Store(
                error @ (StoreError::UnknownEnding { .. } | StoreError::UnknownSchema { .. }),
            ) => Self::Usage(error.to_string()),
            ReplayError::Store(error @ StoreError::Exists { .. }) => {
                Self::Failed(format!("{error}; --force replaces it"))
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

/// What a command gives.
pub(crate) type Result<T = Ending> = std::result::Result<T, Failure>;
