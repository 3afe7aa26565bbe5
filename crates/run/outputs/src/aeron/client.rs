//! The client of the media driver, and its errors.
//!
//! By default the library's error handler ends the process when the driver dies. Here each connection has a handler that stores the
//! error, and the connection is then given up.

use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusteron_client::{
    Aeron, AeronCError, AeronContext, AeronExclusivePublication, AeronFragmentClosureAssembler,
    AeronSubscription, Handlers,
};

use super::message::MESSAGE_BYTES;
use crate::text::one_line;

/// Maximum number of characters shown of an error.
const MOST_CHARACTERS: usize = 300;

/// The pause between two checks of a pending request to the driver.
const LOOK: Duration = Duration::from_millis(1);

/// How long the client's own thread sleeps when it has nothing to do, in ns.
const IDLE_NS: u64 = 16_000_000;

/// An error of the media driver.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AeronTrouble {
    /// There is no driver.
    #[error("no media driver of Aeron in {directory}: {reason}")]
    NoDriver {
        /// Its folder.
        directory: String,
        /// The library's error.
        reason: String,
    },
    /// The driver has disappeared.
    #[error("the media driver in {directory} is gone: {reason}")]
    Gone {
        /// Its folder.
        directory: String,
        /// The library's error.
        reason: String,
    },
    /// The driver refuses a channel or a stream.
    #[error("stream {stream} of {channel}: {reason}")]
    Stream {
        /// The channel.
        channel: String,
        /// The stream.
        stream: i32,
        /// Its error.
        reason: String,
    },
    /// A text contains a NUL byte.
    #[error("'{text}' cannot be given to Aeron: it has a zero character")]
    Text {
        /// The text.
        text: String,
    },
}

impl AeronTrouble {
    /// Creates the error of a stream, in one line.
    pub(super) fn stream(channel: &str, stream: i32, reason: &str) -> Self {
        Self::Stream { channel: channel.to_owned(), stream, reason: one_line(reason, MOST_CHARACTERS) }
    }
}

/// A connection to a media driver.
pub(super) struct Client {
    aeron: Aeron,
    directory: String,
    /// The last error of the library's own thread.
    error: Arc<Mutex<Option<String>>>,
    patience: Duration,
}

fn c_text(text: &str) -> Result<CString, AeronTrouble> {
    CString::new(text).map_err(|_| AeronTrouble::Text { text: text.replace('\0', "?") })
}

impl Client {
    /// Connects to the driver of a folder, or of the default one, waiting for at most `patience`.
    pub(super) fn connect(directory: Option<&str>, patience: Duration) -> Result<Self, AeronTrouble> {
        let mut shown = directory.unwrap_or("its default folder").to_owned();
        let no = |directory: &str, reason: &dyn std::fmt::Display| AeronTrouble::NoDriver {
            directory: directory.to_owned(),
            reason: one_line(&reason.to_string(), MOST_CHARACTERS),
        };
        let context = AeronContext::new().map_err(|error| no(&shown, &error))?;
        if let Some(directory) = directory {
            context.set_dir(&c_text(directory)?).map_err(|error| no(&shown, &error))?;
        } else {
            shown = context.get_dir().to_owned();
        }
        let timeout = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).max(1);
        context.set_driver_timeout_ms(timeout).map_err(|error| no(&shown, &error))?;
        context.set_idle_sleep_duration_ns(IDLE_NS).map_err(|error| no(&shown, &error))?;
        let error = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&error);
        let handler = move |code: i32, text: &str| {
            let text = one_line(&format!("{text} ({code})"), MOST_CHARACTERS);
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        };
        context.set_error_handler(Some(handler)).map_err(|error| no(&shown, &error))?;
        let aeron = Aeron::new(&context).map_err(|error| no(&shown, &error))?;
        aeron.start().map_err(|error| no(&shown, &error))?;
        Ok(Self { aeron, directory: shown, error, patience })
    }

    /// Checks that the driver is alive, as far as the library knows.
    pub(super) fn check(&self) -> Result<(), AeronTrouble> {
        if !self.aeron.is_closed() {
            return Ok(());
        }
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = error.unwrap_or_else(|| "the library has closed the connection".to_owned());
        Err(AeronTrouble::Gone { directory: self.directory.clone(), reason })
    }

    /// Waits for something that the driver creates.
    fn wait<T>(
        &self,
        channel: &str,
        stream: i32,
        mut look: impl FnMut() -> Result<Option<T>, AeronCError>,
    ) -> Result<T, AeronTrouble> {
        let refused = |reason: &str| AeronTrouble::stream(channel, stream, reason);
        let began = Instant::now();
        loop {
            self.check()?;
            if let Some(made) = look().map_err(|error| refused(&error.to_string()))? {
                return Ok(made);
            }
            if began.elapsed() > self.patience {
                let waited = self.patience.as_secs_f64();
                return Err(refused(&format!("no answer of the driver within {waited:.1} s")));
            }
            sleep(LOOK);
        }
    }

    /// Creates an exclusive publication. Its messages are not fragmented, because readers reassemble none.
    pub(super) fn publication(
        &self,
        channel: &str,
        stream: i32,
    ) -> Result<AeronExclusivePublication, AeronTrouble> {
        let text = c_text(channel)?;
        let refused = |error: AeronCError| AeronTrouble::stream(channel, stream, &error.to_string());
        let adding = self.aeron.async_add_exclusive_publication(&text, stream).map_err(refused)?;
        let publication = self.wait(channel, stream, || adding.poll())?;
        let most = publication.get_constants().map_err(refused)?.max_payload_length();
        if most < MESSAGE_BYTES {
            let reason = format!(
                "its messages have {most} bytes, and {MESSAGE_BYTES} are needed: the MTU is too small"
            );
            return Err(AeronTrouble::stream(channel, stream, &reason));
        }
        Ok(publication)
    }

    /// Creates a subscription.
    pub(super) fn subscription(&self, channel: &str, stream: i32) -> Result<AeronSubscription, AeronTrouble> {
        let text = c_text(channel)?;
        let refused = |error: AeronCError| AeronTrouble::stream(channel, stream, &error.to_string());
        let (available, gone) = (Handlers::NONE, Handlers::NONE);
        let adding = self.aeron.async_add_subscription(&text, stream, available, gone).map_err(refused)?;
        self.wait(channel, stream, || adding.poll())
    }
}

/// Creates an assembler for messages that Aeron has fragmented.
pub(super) fn assembler() -> Option<AeronFragmentClosureAssembler> {
    AeronFragmentClosureAssembler::new().ok()
}
