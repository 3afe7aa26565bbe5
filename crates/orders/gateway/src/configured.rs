//! Starts a gateway, replays its store and resets a client, for the venue of a configuration.
//!
//! The order path is compiled once for each kind of venue. The kind is chosen here and nowhere else, so that the order path is compiled in
//! this crate and not in every program that uses it.

use tapeworks_runtime::refusals::OnRefusal;
use tapeworks_runtime::traces::{Sample, Traces};
use tapeworks_runtime::world::{System, World};
use tapeworks_time::Nanos;

use crate::config::{AnyParts, Config};
use crate::host::{Gateway, OnNotice, StartError};
use crate::inspect::{self, Replayed};
use crate::restore::{Opened, Parts, Restored, open};
use crate::venue::VenueSession;

/// Runs code with the parts of the configured venue, whatever its kind.
macro_rules! either {
    ($parts:expr, $of_venue:ident => $do:expr) => {
        match $parts.map_err(StartError::Configuration)? {
            AnyParts::Millennium($of_venue) => $do,
            AnyParts::Ouch($of_venue) => $do,
        }
    };
}

impl Config {
    /// Opens the store, restores the state of the previous run, and starts the gateway.
    ///
    /// # Errors
    /// The configuration was not parsed but built in code and is invalid, the store cannot be used, or [`Gateway::start`] fails.
    pub fn start(
        &self,
        on_notice: OnNotice,
        on_refusal: Option<OnRefusal>,
    ) -> Result<(Gateway, Restored), StartError> {
        self.start_in::<System>(on_notice, on_refusal)
    }

    /// Like [`Self::start`], with the clock, files, threads and sockets of `W`.
    ///
    /// # Errors
    /// The same as for [`Self::start`].
    pub fn start_in<W: World>(
        &self,
        on_notice: OnNotice,
        on_refusal: Option<OnRefusal>,
    ) -> Result<(Gateway<W>, Restored), StartError> {
        let now = W::time_of_day();
        either!(self.parts(now.0), parts => start(self, parts, now, on_notice, on_refusal))
    }

    /// Replays the store's input and compares the resulting output with the stored output.
    ///
    /// # Errors
    /// The configuration was built in code and is invalid, or a gateway could not continue from the store.
    pub fn replay_store(&self) -> Result<Replayed, StartError> {
        let parts = self.parts(System::time_of_day().0);
        Ok(either!(parts, parts => inspect::replay::<_, System>(&self.store, parts))?)
    }

    /// Resets both sequence numbers of a client to 1. Returns `false` if there is no such client. The gateway must not be running. Messages
    /// that the client has not received are lost.
    ///
    /// # Errors
    /// The configuration was built in code and is invalid, another process has the store open, or the store is damaged.
    pub fn reset_client(&self, name: &str) -> Result<bool, StartError> {
        let now_ns = System::time_of_day().0;
        let parts = self.parts(now_ns);
        Ok(either!(parts, parts => inspect::reset_client::<_, System>(&self.store, parts, name, now_ns))?)
    }
}

fn start<S: VenueSession + Send + 'static, W: World>(
    config: &Config,
    parts: Parts<S>,
    now: Nanos,
    on_notice: OnNotice,
    on_refusal: Option<OnRefusal>,
) -> Result<(Gateway<W>, Restored), StartError>
where
    S::Table: Send,
{
    let Opened { mut core, ledger, restored } =
        open::<S, W>(&config.store, config.journal, config.sync, parts, now.0)?;
    if let Some(prices) = config.shared_prices() {
        core.set_tops(Box::new(prices));
    }
    let restored_at = W::time_of_day();
    if let Some(operations) = config.host.traces.as_ref().and_then(Traces::operations) {
        operations.record(&start_sample(now, restored_at, &restored));
    }
    Ok((Gateway::start(config.host.clone(), core, ledger, on_notice, on_refusal)?, restored))
}

/// Returns the trace of a start, up to the end of reading the store.
fn start_sample(began: Nanos, restored_at: Nanos, restored: &Restored) -> Sample {
    let mut sample = Sample::new("start", began.0);
    sample.part("read the store", began.0, restored_at.0);
    sample.number("requests", restored.requests);
    sample.number("reports", restored.reports);
    sample.number("messages", restored.messages);
    sample.number("torn_bytes", restored.torn_bytes);
    sample
}
