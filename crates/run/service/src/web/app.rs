//! State shared by all requests of the plant's pages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tapeworks_runtime::now;
use tokio::sync::{Semaphore, watch};

use super::Server;
use super::describe::{Activity, Look, Tick};
use crate::report::Handles;

/// State shared by all requests.
#[derive(Debug)]
pub(super) struct App {
    pub(super) server: Arc<Server>,
    pub(super) handles: Handles,
    pub(super) viewers: Arc<Semaphore>,
    /// Permits for clients of the stream.
    pub(super) streams: Arc<Semaphore>,
    pub(super) ticks: watch::Sender<Arc<Tick>>,
}

impl App {
    /// Takes a snapshot of the whole state.
    pub(super) fn look(&self) -> Look {
        let handles = &self.handles;
        let streamed = handles.stream.as_ref().map(|hub| hub.counters.all()).unwrap_or_default();
        Look {
            now: now(),
            has_replayed: handles.has_replayed.load(Ordering::Acquire),
            report: handles.report(),
            web: [self.server.counters.all(), streamed].concat(),
            viewers: self.ticks.receiver_count(),
            files: Arc::clone(&self.server.files),
            has_login: self.server.access.has_token(),
        }
    }

    /// Builds the next update of all pages.
    pub(super) fn tick(&self, activity: &mut Activity) -> Tick {
        Tick::new(self.look(), self.handles.watch.view(), activity)
    }
}
