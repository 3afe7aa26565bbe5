//! Handles clients' requests (subscriptions, snapshots and their ends) with a bounded amount of work per turn.
//!
//! A request waits in its client's [`Agenda`]. In each turn [`Distributor::answer_requests`] takes one step for every client with
//! requests, then another one for each, until the turn's [budget](super::Options::turn_work) is spent; the next turn continues with
//! the next client. A step is one request, or one part of a snapshot: a client has one snapshot in progress, and its later requests
//! wait for the end of that snapshot. However much clients request, other clients' records and events therefore wait for at most
//! one turn's work.
//!
//! A snapshot is split by instrument. Each part shows its instruments' state between two events, and the client gets their records
//! from the next event on. A message follows the last part. No part is made while the client's queue is more than half full, so a
//! snapshot is made as fast as its client reads it, and needs no memory beyond the queue.

use std::collections::VecDeque;

use fixedbitset::FixedBitSet;
use tapeworks_engine::replica::Replica;
use tapeworks_market::{InstrumentId, Instruments};
use tapeworks_planted::planted;
use tapeworks_runtime::world::World;
use tapeworks_store::Schema;
use tapeworks_store::live::{self, ErrorCode, Part, SystemCode, work_of};
use tapeworks_time::Nanos;

use super::super::control::{Refusal, Subscription, Wanted};
use super::Distributor;
use super::agenda::{Making, Step};
use super::client::{Client, Clocks};
use super::interest::Chosen;

/// The minimum work counted for a step.
const LEAST_WORK: usize = 16;

/// A client with fewer queued bytes than this gets the next part of its snapshot even if other clients' snapshots fill the total,
/// so that no client that reads waits for one that does not.
const SMALL_QUEUE: usize = 1 << 16;

/// Returns the known and chosen instruments with numbers from `start` up to but excluding `end`.
fn bits_of(chosen: &Chosen, start: u32, end: u32, known: &Instruments) -> FixedBitSet {
    let mut bits = FixedBitSet::with_capacity(known.len().min(end as usize));
    chosen.between(start, end, known.len()).for_each(|instrument| bits.insert(instrument.index()));
    bits
}

/// Sends the symbols of instruments. Returns the work done.
fn name<W: World>(client: &mut Client<W>, bits: &FixedBitSet, replica: &Replica, by_number: bool) -> usize {
    let instruments = replica.market.instruments();
    let before = client.queued();
    for index in bits.ones() {
        let instrument = InstrumentId(u32::try_from(index).unwrap_or(u32::MAX));
        if let Some(symbol) = instruments.symbol(instrument) {
            client.name(replica.market.now, instrument, symbol, by_number);
        }
    }
    bits.count_ones(..) / 8 + work_of(client.queued().saturating_sub(before))
}

fn report_unknown<W: World>(client: &mut Client<W>, schema: Schema, unknown: &[String], now: Nanos) {
    let count = unknown.len();
    let names: Vec<_> = unknown.iter().take(10).map(String::as_str).collect();
    let more = if count > names.len() { ", ..." } else { "" };
    let what = match count {
        1 => format!("1 symbol of the {schema} subscription is unknown so far, and is sent when it appears"),
        _ => format!(
            "{count} symbols of the {schema} subscription are unknown so far, and are sent when they appear"
        ),
    };
    let text = format!("{what}: {}{more}", names.join(", "));
    client.notify(|bytes| live::error(now, ErrorCode::SymbolResolutionFailed, &text, bytes));
}

impl<W: World> Distributor<W> {
    /// Takes steps of the clients' requests, round-robin, until the turn's budget is spent; at least one step.
    pub(super) fn answer_requests(&mut self) {
        let snapshot_bytes = self.queued_snapshot_bytes();
        self.snapshot_bytes = snapshot_bytes;
        let clients = self.clients.len();
        let may_step = |place: &usize| {
            let client = self.clients.get(*place).and_then(Option::as_ref);
            client.is_some_and(|client| self.may_step(client, snapshot_bytes))
        };
        let mut waiting: VecDeque<usize> =
            (0..clients).map(|at| (self.next_step + at) % clients).filter(may_step).collect();
        let mut work = 0;
        while let Some(place) = waiting.pop_front() {
            if work >= self.options.turn_work {
                self.next_step = place;
                break;
            }
            let of_step = match self.step(place) {
                Ok(of_step) => of_step,
                Err(refusal) => {
                    self.refuse(place, refusal);
                    LEAST_WORK
                }
            };
            work += of_step.max(LEAST_WORK);
            let snapshot_bytes = self.snapshot_bytes;
            let client = self.clients.get(place).and_then(Option::as_ref);
            if client.is_some_and(|client| self.may_step(client, snapshot_bytes)) {
                waiting.push_back(place);
            }
        }
        self.counters.request_work += work as u64;
    }

    /// Returns whether a client has a request that can be answered now.
    pub(super) fn may_step(&self, client: &Client<W>, snapshot_bytes: usize) -> bool {
        let queued = client.queued();
        let has_room = queued < self.options.queue_bytes / 2
            && (queued < SMALL_QUEUE || snapshot_bytes < self.options.snapshot_bytes);
        !client.agenda.is_empty() && (has_room || !client.agenda.needs_room())
    }

    /// Returns whether any client has a request that can be answered now.
    pub(super) fn has_steps(&self) -> bool {
        let snapshot_bytes = self.queued_snapshot_bytes();
        self.clients.iter().flatten().any(|client| self.may_step(client, snapshot_bytes))
    }

    /// Returns the bytes of snapshots queued for all clients together; 0, without counting, if no client has a request.
    fn queued_snapshot_bytes(&self) -> usize {
        let mut clients = self.clients.iter().flatten();
        if clients.all(|client| client.agenda.is_empty()) {
            return 0;
        }
        self.clients.iter().flatten().map(Client::snapshot_bytes).sum()
    }

    /// Takes one step of a client's requests. Returns the work done.
    fn step(&mut self, place: usize) -> Result<usize, Refusal> {
        let Some(client) = self.client(place) else { return Ok(0) };
        if let Some(making) = client.agenda.making.take() {
            return Ok(self.make_part(place, making) + self.watching_work(place));
        }
        match client.agenda.pop() {
            Some(Step::Subscribe(subscription)) => {
                self.check(place, &subscription)?;
                let mut work = self.apply(place, &subscription);
                let making = self.client(place).and_then(|client| client.agenda.making.take());
                if let Some(making) = making {
                    work += self.make_part(place, making);
                } else {
                    self.watch(place);
                }
                Ok(work + self.watching_work(place))
            }
            Some(Step::Unsubscribe(subscription)) => {
                let work = self.watching_work(place);
                self.unsubscribe(place, &subscription);
                Ok(work)
            }
            Some(Step::Replay) => self.begin_replay(place).map(|()| 0),
            None => Ok(0),
        }
    }

    /// Returns the work of entering a client into the tables of subscribers.
    fn watching_work(&self, place: usize) -> usize {
        let client = self.clients.get(place).and_then(Option::as_ref);
        client.map_or(0, |client| {
            client.subscribed.interests().map(|(_, interest)| interest.count()).sum::<usize>() / 2
        })
    }

    /// Accepts a subscription, which waits for the start of the stream or for its turn.
    pub(super) fn subscribe(&mut self, place: usize, subscription: Subscription) -> Result<(), Refusal> {
        self.check(place, &subscription)?;
        let limit = self.options.limits.snapshots;
        let Some(client) = self.client(place) else { return Ok(()) };
        if client.is_started() {
            client.agenda.push(Step::Subscribe(subscription), limit)
        } else {
            client.subscribed.keep(subscription);
            Ok(())
        }
    }

    /// Accepts the end of a subscription, like [`Distributor::subscribe`].
    pub(super) fn end_subscription(
        &mut self,
        place: usize,
        subscription: Subscription,
    ) -> Result<(), Refusal> {
        let limit = self.options.limits.snapshots;
        let Some(client) = self.client(place) else { return Ok(()) };
        if client.is_started() {
            return client.agenda.push(Step::Unsubscribe(subscription), limit);
        }
        self.unsubscribe(place, &subscription);
        Ok(())
    }

    /// Begins the stream; the subscriptions so far wait for their turn.
    pub(super) fn start(&mut self, place: usize) -> Result<(), Refusal> {
        let (now, limit) = (self.now, self.options.limits.snapshots);
        let Some(client) = self.client(place) else { return Ok(()) };
        if client.begin(now).is_err() {
            self.close(place);
            return Ok(());
        }
        for subscription in client.subscribed.take_waiting() {
            client.agenda.push(Step::Subscribe(subscription), limit)?;
        }
        client.agenda.push(Step::Replay, limit)
    }

    /// Checks whether a subscription can be served.
    fn check(&mut self, place: usize, subscription: &Subscription) -> Result<(), Refusal> {
        let refuse = |reason: String| Err(Refusal::Subscription { reason });
        let newest = self.replica.market.now;
        if let Some(start) = subscription.start {
            if self.options.history.is_none() {
                return refuse("this server keeps no history: start= cannot be served".to_owned());
            }
            if start > newest && newest > Nanos(0) {
                return refuse(format!("start={} is later than the newest event, {}", start.0, newest.0));
            }
        }
        let Some(client) = self.client(place) else { return Ok(()) };
        let schema = subscription.schema;
        if schema.is_consolidated() && client.is_of_some_feeds() {
            return refuse(format!("the dataset is of some feeds only, and {schema} is across all"));
        }
        client.subscribed.check_start(subscription)
    }

    /// Makes a subscription effective: sends symbol mappings and the acknowledgement, and prepares the parts of its snapshot, if it
    /// has one. Returns the work done.
    fn apply(&mut self, place: usize, subscription: &Subscription) -> usize {
        let schema = subscription.schema;
        let next = self.replica.market.next;
        let most = self.options.turn_work;
        let Self { clients, replica, now: Clocks { wall: now, .. }, .. } = self;
        let Some(client) = clients.get_mut(place).and_then(Option::as_mut) else { return 0 };
        let known = replica.market.instruments();
        let holds = replica.held(schema).is_some();
        let interest = client.subscribed.interest(schema);
        if !holds {
            interest.merge();
        }
        let (chosen, unknown) = interest.resolve(subscription, known);
        let by_number = matches!(subscription.wanted, Wanted::Instruments(_));
        let mut work = known.len() / 64;
        if subscription.start.is_some() {
            client.subscribed.resumes_at(known.len());
        }
        let interest = client.subscribed.interest(schema);
        if subscription.has_snapshot {
            // The symbols that no instrument has yet need a list.
            interest.take(&FixedBitSet::new(), false, next);
        } else {
            let from = if subscription.start.is_some() { u64::MAX } else { next };
            let bits = bits_of(&chosen, 0, u32::MAX, known);
            interest.take(chosen.listed(), chosen.is_all(), from);
            work += name(client, &bits, replica, by_number);
        }
        if !unknown.is_empty() {
            report_unknown(client, schema, &unknown, *now);
        }
        if subscription.is_last {
            let id = subscription.id.map_or_else(String::new, |id| format!(" {id}"));
            let text = format!("Subscription request{id} for {schema} data succeeded");
            client.notify(|bytes| live::system(*now, SystemCode::SubscriptionAcknowledged, &text, bytes));
        }
        if subscription.has_snapshot {
            let division = replica.divide(schema, &|instrument| chosen.contains(instrument), most);
            let (ends, reading) = (division.ends.into(), division.reading);
            let is_last = subscription.is_last;
            client.agenda.making =
                Some(Making { schema, chosen, by_number, ends, next: 0, reading, is_last });
            work += reading;
        }
        work
    }

    /// Makes the next part of a snapshot. Its instruments' records follow from the next event on. Returns the work done.
    fn make_part(&mut self, place: usize, mut making: Making) -> usize {
        let is_late = planted!("snapshot-one-event-late");
        let from = self.replica.market.next + u64::from(is_late);
        let Self { clients, replica, counters, now: Clocks { wall: now, .. }, .. } = self;
        let Some(client) = clients.get_mut(place).and_then(Option::as_mut) else { return 0 };
        let end = making.ends.pop_front().unwrap_or(u32::MAX);
        let is_last = making.ends.is_empty();
        let Making { schema, chosen, by_number, reading, .. } = &making;
        let bits = bits_of(chosen, making.next, end, replica.market.instruments());
        let named = name(client, &bits, replica, *by_number);
        let is_wanted = |instrument| chosen.contains(instrument);
        let batch = replica.snapshot(*schema, &Part::new(making.next..end, &is_wanted));
        let holds = replica.held(*schema).is_some();
        let interest = client.subscribed.interest(*schema);
        interest.take(&bits, is_last && chosen.is_all(), from);
        if !holds && !is_late {
            interest.merge();
        }
        client.put_snapshot(&batch, *now, counters);
        let work = reading + named + work_of(batch.bytes().len());
        self.snapshot_bytes += batch.bytes().len();
        making.next = end;
        if is_last {
            counters.snapshots += 1;
            if making.is_last {
                let text = live::finished_snapshot(making.schema);
                client.notify(|bytes| live::system(*now, SystemCode::Other, &text, bytes));
            }
        } else {
            client.agenda.making = Some(making);
        }
        self.watch(place);
        work
    }

    fn unsubscribe(&mut self, place: usize, subscription: &Subscription) {
        let now = self.now.wall;
        self.unwatch(place);
        let Self { clients, replica, .. } = self;
        let Some(client) = clients.get_mut(place).and_then(Option::as_mut) else { return };
        client.subscribed.unsubscribe(subscription, replica.market.instruments());
        if client.is_started() && subscription.is_last {
            let text = format!("Unsubscribed from {} data", subscription.schema);
            client.notify(|bytes| live::system(now, SystemCode::UnsubscribeAcknowledged, &text, bytes));
        }
        self.watch(place);
    }

    /// Joins lists of instruments that were kept apart for records of earlier events, once no such record is left. A client with a
    /// single list can share bytes with others.
    pub(super) fn join_lists(&mut self) {
        for place in 0..self.clients.len() {
            let Self { clients, replica, .. } = self;
            let Some(client) = clients.get_mut(place).and_then(Option::as_mut) else { continue };
            let is_joined = client.subscribed.join_lists(|schema| replica.held(schema).is_some());
            if is_joined {
                self.watch(place);
            }
        }
    }
}
