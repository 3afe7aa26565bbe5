//! The log of long-running commands, on standard error.

use clap::ValueEnum;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::terminal;

/// The form of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// The NATS library, which logs each attempt. The plant itself reports an unreachable server once.
const UNHEARD: &str = "async_nats";

/// Starts the log.
pub(crate) fn start(format: LogFormat) {
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false);
    let heard = filter_fn(|about| !about.target().starts_with(UNHEARD));
    // The process needs only one log.
    let _already_set = match format {
        LogFormat::Text => builder.with_ansi(terminal::is_coloured_stderr()).finish().with(heard).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().with(heard).try_init(),
    };
}
