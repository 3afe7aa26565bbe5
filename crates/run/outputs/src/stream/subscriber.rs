//! A client of the stream: its subscription, its queue, and its missed records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::ws::Message;
use fixedbitset::FixedBitSet;
use tapeworks_market::{InstrumentId, Symbol};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::messages::{Kind, Lagged, Record};
use super::request::Request;
use super::{Encoded, Newcomer, StreamCounters};

pub(super) struct Subscriber {
    request: Request,
    /// The instruments it subscribed to, unless it wants all.
    wanted: FixedBitSet,
    queue: mpsc::Sender<Message>,
    counters: Arc<StreamCounters>,
    /// Set when it requests the full current state.
    wants_current: Option<Arc<AtomicBool>>,
    /// Instruments whose NBBO must still be sent, and whether that is because it is new (otherwise because the client is slow).
    waiting: BTreeMap<InstrumentId, bool>,
    /// Whether its queue was full, and records have been waiting since.
    is_lagging: bool,
    missed: Lagged,
    is_gone: bool,
}

impl Subscriber {
    pub(super) fn new(newcomer: Newcomer) -> Self {
        let Newcomer { request, queue, counters, wants_current } = newcomer;
        Self {
            request,
            wanted: FixedBitSet::new(),
            queue,
            counters,
            wants_current,
            waiting: BTreeMap::new(),
            is_lagging: false,
            missed: Lagged::default(),
            is_gone: false,
        }
    }

    pub(super) const fn wants_nbbo(&self) -> bool {
        self.request.nbbo
    }

    pub(super) const fn wants_trades(&self) -> bool {
        self.request.trades
    }

    /// Returns whether records wait for room in its queue.
    pub(super) fn is_owed(&self) -> bool {
        self.is_lagging || !self.waiting.is_empty()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone || self.queue.is_closed()
    }

    /// Notes the symbol of an instrument.
    pub(super) fn name(&mut self, instrument: InstrumentId, symbol: Symbol) {
        if self.request.symbols.as_ref().is_some_and(|symbols| symbols.contains(&symbol)) {
            self.wanted.grow_and_insert(instrument.index());
        }
    }

    fn wants(&self, instrument: InstrumentId) -> bool {
        self.request.symbols.is_none() || self.wanted.contains(instrument.index())
    }

    /// Returns whether it requests the full current state, and clears the request.
    pub(super) fn takes_request(&self) -> bool {
        self.wants_current.as_ref().is_some_and(|wants| wants.swap(false, Ordering::AcqRel))
    }

    /// Marks the current NBBO of an instrument to be sent.
    pub(super) fn show(&mut self, instrument: InstrumentId) {
        if self.request.nbbo && self.wants(instrument) {
            self.waiting.insert(instrument, true);
        }
    }

    pub(super) fn fall_behind(&mut self) {
        if !self.is_lagging {
            self.is_lagging = true;
            self.counters.stream_lagged.add();
        }
    }

    /// Queues a record. Returns `false` if there is no room.
    fn send(&mut self, message: Message) -> bool {
        match self.queue.try_send(message) {
            Ok(()) => {
                self.counters.stream_records.add();
                true
            }
            Err(TrySendError::Full(_)) => {
                self.fall_behind();
                false
            }
            Err(TrySendError::Closed(_)) => {
                self.is_gone = true;
                true
            }
        }
    }

    /// Queues a record if the client wants it; `instrument` is `None` for gaps.
    pub(super) fn offer(&mut self, instrument: Option<InstrumentId>, encoded: &mut Encoded<'_>) {
        let encoding = self.request.encoding;
        match (&encoded.record.kind, instrument) {
            (Some(Kind::Nbbo(_)), Some(instrument)) if self.request.nbbo && self.wants(instrument) => {
                match self.waiting.get(&instrument) {
                    // The first one has not been sent yet.
                    Some(true) => {}
                    Some(false) => {
                        self.missed.conflated += 1;
                        self.counters.stream_conflated.add();
                    }
                    None => {
                        if self.is_lagging || !self.send(encoded.get(encoding)) {
                            self.waiting.insert(instrument, false);
                        }
                    }
                }
            }
            (Some(Kind::Trade(_)), Some(instrument))
                if self.request.trades
                    && self.wants(instrument)
                    && (self.is_lagging || !self.send(encoded.get(encoding))) =>
            {
                self.missed.dropped_trades += 1;
                self.counters.stream_dropped_trades.add();
            }
            (Some(Kind::Gap(_)), _) if self.is_lagging || !self.send(encoded.get(encoding)) => {
                self.missed.dropped_gaps += 1;
                self.counters.stream_dropped_gaps.add();
            }
            _ => {}
        }
    }

    /// Sends the waiting records, once half of the queue is free again: first the counts of missed records, then each instrument's
    /// last NBBO, which `last` makes. `next` is the number of the next event.
    pub(super) fn catch_up(&mut self, next: u64, last: impl Fn(InstrumentId, bool) -> Record) {
        if !self.is_owed() {
            return;
        }
        if self.is_lagging && self.queue.capacity() < self.queue.max_capacity() / 2 {
            return;
        }
        let encoding = self.request.encoding;
        if self.missed != Lagged::default() {
            let record = Record { event: next, kind: Some(Kind::Lagged(self.missed)) };
            if !self.send(Encoded::new(&record).get(encoding)) {
                return;
            }
            self.missed = Lagged::default();
        }
        while let Some((&instrument, &is_shown)) = self.waiting.first_key_value() {
            let record = last(instrument, is_shown);
            if !self.send(Encoded::new(&record).get(encoding)) {
                return;
            }
            self.waiting.remove(&instrument);
        }
        self.is_lagging = false;
    }
}
