//! What a venue really sent on one channel: its sessions, one after the other.
//!
//! A venue that restarts numbers its messages from 1, under a new name or the old one. A message is therefore identified by
//! its session, as an index in the channel's sessions, and its number. Each session has a separate engine and books; nothing
//! carries over from the previous session.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};

use rustc_hash::{FxHashMap, FxHasher};
use tapeworks_engine::{Engine, EngineOptions, MarketStage};
use tapeworks_feed::live::Input;
use tapeworks_market::{Event, EventKind, InstrumentId, Line, Symbol};
use tapeworks_session::{SessionId, TransportKind};
use tapeworks_time::Nanos;

use super::log::Log;
use super::{Essence, Names, Sums, is_of_message};

/// The truth about one channel.
pub(super) struct Truth {
    options: EngineOptions,
    transport: Option<TransportKind>,
    /// In the order in which they began; the last one is current.
    pub(super) sessions: Vec<SessionTruth>,
    /// The session of each packet, by the packet's hash, and the number after its last message.
    packets: FxHashMap<u64, (usize, u64)>,
    /// Whether answers are compared with what was sent.
    pub(super) keeps_messages: bool,
    /// Whether the second of a time may be wrong after missing messages.
    pub(super) guesses_seconds: bool,
}

fn hash_of(payload: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    payload.hash(&mut hasher);
    hasher.finish()
}

impl Truth {
    pub(super) fn new(options: EngineOptions) -> Self {
        let transport = options.channels.first().map(|channel| channel.application.transport());
        Self {
            options,
            transport,
            sessions: Vec::new(),
            packets: FxHashMap::default(),
            keeps_messages: false,
            guesses_seconds: false,
        }
    }

    /// Takes a packet as the venue sends it on line A, where numbers decrease only when a session begins.
    pub(super) fn packet(&mut self, now: Nanos, received: Nanos, payload: &[u8]) {
        let Some(header) = self.transport.and_then(|transport| transport.header(payload).ok()) else {
            return;
        };
        let running =
            self.sessions.last().filter(|last| last.name == header.session && header.first >= last.next);
        if running.is_none() {
            self.sessions.push(SessionTruth::new(header.session, now, &self.options));
        }
        let end = header.end();
        self.packets.insert(hash_of(payload), (self.sessions.len().saturating_sub(1), end));
        if let Some(session) = self.sessions.last_mut() {
            (session.next, session.last) = (end, now);
            if let Some(transport) = self.transport.filter(|_| self.keeps_messages) {
                let messages = &mut session.messages;
                transport.each_message(payload, |number, message| {
                    messages.insert(number, hash_of(message));
                });
            }
            session.packet(received, payload);
        }
    }

    /// Takes a packet that the plant takes from a line, as sent or damaged.
    pub(super) fn takes(&mut self, now: Nanos, payload: &[u8]) {
        let Some((session, end)) = self.packets.get(&hash_of(payload)) else { return };
        let Some(session) = self.sessions.get_mut(*session) else { return };
        if session.heard.last().is_none_or(|(_, before)| before < end) {
            session.heard.push((now, *end));
        }
    }

    /// Takes an answer of a retransmission server, and compares it with what was sent.
    pub(super) fn answers(&mut self, payload: &[u8]) {
        let Some(transport) = self.transport else { return };
        let Ok(header) = transport.header(payload) else { return };
        // The server answers for the last of several sessions with one name. If the plant has not noticed that session's start,
        // because its numbers continued beyond those that the plant knew, it requested the answers for the previous session.
        let mut begins_beyond = u64::MAX;
        for session in self.sessions.iter_mut().rev().filter(|session| session.name == header.session) {
            if session.heard(Nanos(u64::MAX)) > begins_beyond {
                break;
            }
            begins_beyond = session.heard.first().map_or(begins_beyond, |(_, end)| *end);
            let SessionTruth { messages, spoiled, .. } = session;
            transport.each_message(payload, |number, message| {
                if messages.get(&number).is_some_and(|hash| *hash != hash_of(message)) {
                    spoiled.insert(number);
                }
            });
        }
    }

    /// Forgets what an earlier run of the plant has taken.
    pub(super) fn plant_starts(&mut self) {
        self.sessions.iter_mut().for_each(|session| session.heard.clear());
    }

    /// Returns how many messages were sent, over all sessions.
    pub(super) fn sent(&self) -> u64 {
        self.sessions.iter().map(SessionTruth::sent).sum()
    }

    /// Returns a later session with the same name that has this event.
    pub(super) fn session_like(&self, session: usize, is: &Essence) -> Option<usize> {
        let name = self.sessions.get(session)?.name;
        let rest = self.sessions.iter().enumerate().skip(session + 1);
        rest.filter(|(_, later)| later.name == name).find(|(_, later)| later.has(is)).map(|(at, _)| at)
    }

    /// Returns the sessions after this one that also have this event.
    pub(super) fn later_with(&self, session: usize, is: &Essence) -> Vec<usize> {
        let later = self.sessions.iter().enumerate().skip(session + 1);
        later.filter(|(_, later)| later.has(is)).map(|(at, _)| at).collect()
    }

    /// Returns what was sent, and counts what is wrong with it.
    pub(super) fn sums(&mut self) -> Sums {
        let mut sums = Sums { sessions: self.sessions.len() as u64, ..Sums::default() };
        for session in &mut self.sessions {
            session.advance(u64::MAX);
            let feed = session.engine.feed().feed();
            sums.sent += session.next - 1;
            sums.unreadable += session.unreadable.len() as u64;
            sums.problems += feed.problems().total + feed.unreadable_symbols();
            let books = || session.market.books().feeds().iter();
            sums.rejected += books().map(|books| books.counters().rejected()).sum::<u64>();
            sums.contradicted_books = books().map(|books| books.contradicted_count() as u64).sum();
        }
        sums
    }

    /// Returns whether the last session restarted under the same name and is too short for a plant to notice. A plant needs
    /// one silence, and another one if the numbers are not the first ones; this allows three.
    pub(super) fn is_last_too_short(&self) -> bool {
        let [.., before, last] = self.sessions.as_slice() else { return false };
        let silence_ns = self.options.channels.first().map_or(0, |channel| channel.arbiter.silence_ns);
        before.name == last.name && last.last.since(last.began) < 3 * silence_ns
    }

    /// Returns the first session, starting at `from`, that has this event, or in which an answer delivered garbage for its message.
    pub(super) fn session_of(&self, from: usize, is: &Essence) -> Option<usize> {
        let first = |may_be: fn(&SessionTruth, &Essence) -> bool| {
            let mut sessions = self.sessions.iter().enumerate().skip(from);
            sessions.find(|(_, session)| may_be(session, is)).map(|(at, _)| at)
        };
        first(SessionTruth::has)
            .or_else(|| first(|session, is| session.spoiled.range(..=is.sequence).next().is_some()))
    }
}

/// A session of a channel.
pub(super) struct SessionTruth {
    pub(super) name: SessionId,
    /// Times at which its first and last packet were sent.
    began: Nanos,
    last: Nanos,
    /// Number of the next message.
    next: u64,
    engine: Engine,
    pub(super) market: MarketStage,
    names: Names,
    /// Events not yet applied to the books, in order.
    pending: VecDeque<Event>,
    /// The books include the messages up to this one.
    pub(super) at: u64,
    /// All events of messages, in order.
    pub(super) all: Log<Essence>,
    events: Vec<Event>,
    /// The symbols of `all`.
    named: Names,
    /// Hash of each message, if messages are kept.
    messages: FxHashMap<u64, u64>,
    /// Messages that an answer delivered with other contents.
    pub(super) spoiled: BTreeSet<u64>,
    /// Unreadable messages of a known type, which a plant reports as missing.
    pub(super) unreadable: BTreeSet<u64>,
    /// Orders with their symbol and open size, counted without the shipped books.
    orders: FxHashMap<u64, (Symbol, u32)>,
    /// First message that executes or cancels more than an order of the symbol has.
    pub(super) overfilled: FxHashMap<Symbol, u64>,
    /// Messages that contradict the venue's names, in ascending order.
    pub(super) contradicted: Vec<u64>,
    /// What the running plant knows to have been sent: from each time on, the messages before the number.
    heard: Vec<(Nanos, u64)>,
}

impl SessionTruth {
    fn new(name: SessionId, now: Nanos, options: &EngineOptions) -> Self {
        Self {
            name,
            began: now,
            last: now,
            next: 1,
            engine: Engine::new(options),
            market: MarketStage::new(options, ()),
            names: Names::default(),
            pending: VecDeque::new(),
            at: 0,
            all: Log::default(),
            events: Vec::new(),
            named: Names::default(),
            messages: FxHashMap::default(),
            spoiled: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            orders: FxHashMap::default(),
            overfilled: FxHashMap::default(),
            contradicted: Vec::new(),
            heard: Vec::new(),
        }
    }

    /// Returns the number of the message after the last one that the running plant knew of at this time.
    pub(super) fn heard(&self, until: Nanos) -> u64 {
        let known = self.heard.iter().rev().find(|(at, _)| *at <= until);
        known.map_or(0, |(_, end)| *end)
    }

    fn packet(&mut self, received: Nanos, payload: &[u8]) {
        let input = Input::Packet { channel: 0, line: Line::A, received, payload };
        self.engine.input(&input, &mut self.events);
        while self.engine.take_request().is_some() {}
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.named.note(&event);
            self.count_order(&event);
            match event.gap() {
                Some(gap) if event.instrument == InstrumentId::ALL && gap.count > 0 => {
                    self.unreadable.extend(gap.first..gap.first + gap.count);
                }
                _ => {}
            }
            if event.kind == EventKind::Gap && event.is_contradiction() {
                self.contradicted.push(event.channel_sequence);
            }
            if is_of_message(&event) {
                self.all.push(self.named.essence(&event));
            }
            self.pending.push_back(event);
        }
        self.events = events;
    }

    /// Tracks the open size of an order.
    fn count_order(&mut self, event: &Event) {
        match event.kind {
            EventKind::Add => {
                if let Some(symbol) = self.named.0.get(&event.instrument) {
                    self.orders.insert(event.order_id, (*symbol, event.size));
                }
            }
            EventKind::Execute | EventKind::Cancel => {
                let Some((symbol, left)) = self.orders.get_mut(&event.order_id) else { return };
                if event.size > *left {
                    self.overfilled.entry(*symbol).or_insert(event.channel_sequence);
                }
                *left = left.saturating_sub(event.size);
                if *left == 0 {
                    self.orders.remove(&event.order_id);
                }
            }
            EventKind::Delete => {
                self.orders.remove(&event.order_id);
            }
            EventKind::Replace => {
                if let Some((symbol, _)) = self.orders.remove(&event.order_id) {
                    self.orders.insert(event.aux, (symbol, event.size));
                }
            }
            _ => {}
        }
    }

    /// Advances the books to message `sequence`.
    pub(super) fn advance(&mut self, sequence: u64) {
        while let Some(event) = self.pending.front() {
            if event.channel_sequence > sequence {
                break;
            }
            self.names.note(event);
            self.market.apply(std::slice::from_ref(event));
            self.pending.pop_front();
        }
        self.at = self.at.max(sequence);
    }

    /// Returns the position after the events of the messages before `sequence`.
    pub(super) fn place_of(&self, sequence: u64) -> usize {
        self.all.partition_point(|essence| essence.sequence < sequence)
    }

    pub(super) fn has(&self, is: &Essence) -> bool {
        let rest = self.all.iter_from(self.place_of(is.sequence));
        rest.take_while(|one| one.sequence == is.sequence).any(|one| one.is_shown_as(is, false))
    }

    /// Returns the number of the next message.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn sent(&self) -> u64 {
        self.all.last().map_or(0, |essence| essence.sequence)
    }
}
