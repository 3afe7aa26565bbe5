//! How the program ends: exit codes and the one-line error.

use std::fmt;
use std::io;

use tapeworks_analysis::input::InputError;
use tapeworks_analysis::replay::ReplayError;
use tapeworks_capture::new_file::{self, NewFileError};
use tapeworks_capture::{CaptureError, stop};
use tapeworks_feed::{VenueConflict, shared_publishers};
use tapeworks_market::Publisher;
use tapeworks_store::StoreError;

/// Each exit code and its meaning.
pub(crate) const EXIT_CODES: [(u8, &str); 6] = [
    (0, "done"),
    (1, "failed: an input cannot be opened, or an output cannot be written"),
    (2, "wrong usage"),
    (3, "done, but the input has gaps or parts that could not be read"),
    // EX_CONFIG in sysexits.h.
    (78, "invalid configuration file"),
    (130, "stopped by Ctrl-C"),
];

/// Returns the exit codes as a sentence for `--help`.
pub(crate) fn exit_codes() -> String {
    format!("Exit codes: {}.", EXIT_CODES.map(|(code, meaning)| format!("{code} {meaning}")).join("; "))
}

/// How a command ended that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Complete,
    /// Done, but the input has gaps or parts that could not be read.
    WithProblems,
    Interrupted,
    /// The reason has already been printed.
    Failed,
}

impl Ending {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::WithProblems => 3,
            Self::Interrupted => 130,
            Self::Failed => 1,
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// Any other failure, in one line.
    Failed(String),
    /// A configuration file is invalid; one line per error.
    Config(Vec<String>),
    /// The user stopped the command while it waited for the other end of a pipe.
    Stopped,
    /// The reader of the output closed it, which is not an error and prints no message.
    ClosedPipe,
}

impl Failure {
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
            Self::Config(_) => 78,
            Self::Stopped => Ending::Interrupted.code(),
            Self::ClosedPipe => 0,
        }
    }

    /// Converts an error of writing to standard output.
    pub(crate) fn from_stdout(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ if stop::is_stopped(error) => Self::Stopped,
            _ => Self::Failed(format!("cannot write to standard output: {error}")),
        }
    }

    /// Converts an error of writing to a file.
    pub(crate) fn from_file(path: &std::path::Path, error: &io::Error) -> Self {
        if new_file::is_stdout(path) {
            return Self::from_stdout(error);
        }
        if stop::is_stopped(error) {
            return Self::Stopped;
        }
        Self::Failed(format!("{}: cannot write: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => f.write_str(text),
            Self::Config(lines) => f.write_str(&lines.join("\n")),
            Self::Stopped => f.write_str("stopped"),
            Self::ClosedPipe => Ok(()),
        }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Capture(CaptureError::Stopped { .. }) => Self::Stopped,
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<NewFileError> for Failure {
    fn from(error: NewFileError) -> Self {
        match error {
            NewFileError::Exists { .. } => Self::Failed(format!("{error}; --force replaces it")),
            NewFileError::Create { source, .. } if stop::is_stopped(&source) => Self::Stopped,
            NewFileError::Write { path, source } => Self::from_file(&path, &source),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::File(error) => error.into(),
            StoreError::Write { path, source, .. }
                if new_file::is_stdout(&path) || stop::is_stopped(&source) =>
            {
                Self::from_stdout(&source)
            }
            StoreError::UnknownEnding { .. }
            | StoreError::UnknownSchema { .. }
            | StoreError::NoFormat { .. }
            | StoreError::NeedsSchema { .. }
            | StoreError::Terminal { .. } => Self::Usage(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Store(error) => error.into(),
            ReplayError::Input(error) => error.into(),
            ReplayError::Venue(VenueConflict { destination, known, named }) => Self::Usage(format!(
                "--venue {}: {destination} is a group of {}; leave out --venue, or read that group's packets apart",
                venue_name(named),
                known.venue_name()
            )),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Returns the name of a venue on the command line.
fn venue_name(publisher: Publisher) -> String {
    let known = shared_publishers().find(|one| one.publisher == publisher);
    let name = known.and_then(|one| one.names.first());
    name.map_or_else(|| publisher.venue_name(), |name| (*name).to_owned())
}

/// The result of a command.
pub(crate) type Result<T = Ending> = std::result::Result<T, Failure>;
