//! The log of what runs until it is stopped, on standard error.

use clap::ValueEnum;

use crate::terminal;

/// The form of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// Sets up the log.
pub(crate) fn start(format: LogFormat) {
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false);
    // A second one in one process is not needed.
    let _already_set = match format {
        LogFormat::Text => builder.with_ansi(terminal::is_coloured_stderr()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
