//! Distinguishes a restarted channel from late copies and from damage.
//!
//! A venue restarts a channel: it numbers the messages from 1 again, on the next day or within a day, and often under the same
//! session. A packet with an old number is then one of four things, and [`Run::judge`] decides which:
//!
//! | what the packet shows | it is |
//! | --- | --- |
//! | the content that its number already had | a copy |
//! | a time no later than the newest one delivered | a copy from further back, or damage if its number had other content |
//! | an announcement (ITCH's `O`, NYSE's Sequence Number Reset, IEX's stream offset 0 and the like), a later trading day, or an end of session before it | a restart |
//! | none of these | a suspect: it is held until [`CONFIRMING`] packets in a row continue from it, and refused if they do not |
//!
//! A suspect counts as evidence only if its number had other content before or its time is later than anything delivered. Where a run
//! of suspects offers neither, nothing can be decided: the packets are refused, and the caller reports them.
//!
//! Cost: 48 bytes are written for each packet in order. Only packets out of order are judged: a copy costs a binary search of the last
//! [`REMEMBERED`] packets and a comparison of 32 bytes.

use tapeworks_session::{Header, SessionId, TransportKind};
use tapeworks_time::{ClockChange, Nanos};

use crate::clock;
use crate::table::Application;

/// Packets whose content is remembered: line B may lag line A by this many.
pub const REMEMBERED: usize = 256;

/// Packets at the beginning of a run whose content is always remembered, because most restarts begin with their numbers.
const REMEMBERED_FIRST: usize = 8;

/// Late packets whose content is remembered, so that their copies on the other line are known.
const REMEMBERED_LATE: usize = 64;

/// Packets in a row that must continue from an old number before it counts as a restart.
pub const CONFIRMING: usize = 3;

/// The most that are held where some of them repeat known content, which decides nothing.
const MOST_SUSPECTS: usize = 64;

/// A channel pauses for at least this long between two trading days, in ns. Venues send heartbeats about once a second within a day.
const DAY_PAUSE_NS: u64 = 30 * 60 * Nanos::SECOND;

/// Another session that brings its first message replaces one that has sent nothing for this long, in ns. If its first message is missing,
/// it has to be confirmed.
const SESSION_PAUSE_NS: u64 = 3 * Nanos::SECOND;

/// Words of the first message of a packet that stand for its content.
const HEAD_WORDS: usize = 4;

/// A packet that was delivered.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Delivered {
    /// The number of its first message.
    first: u64,
    /// When it was sent, in ns, as its header says; else 0.
    sent_ns: u64,
    /// The first 32 bytes of its first message, padded with zeros.
    head: [u64; HEAD_WORDS],
}

/// The start of a message, padded with zeros.
#[inline]
fn head_of(message: &[u8]) -> [u64; HEAD_WORDS] {
    let mut padded = [0; HEAD_WORDS * 8];
    let bytes = match message.first_chunk() {
        Some(whole) => whole,
        None => {
            padded[..message.len()].copy_from_slice(message);
            &padded
        }
    };
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

impl Delivered {
    /// The venue's time of the packet, from its header or its first message.
    fn time(&self, dialect: Dialect) -> Option<u64> {
        if self.sent_ns > 0 {
            return Some(self.sent_ns);
        }
        let mut bytes = [0; HEAD_WORDS * 8];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.head) {
            *place = word.to_le_bytes();
        }
        (dialect.time)(&bytes)
    }
}

/// The packets of a run that are remembered, in order of their numbers.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Default, Debug)]
struct Memory {
    /// The first packets of the run.
    first: Vec<Delivered>,
    /// The last ones: a ring.
    last: Vec<Delivered>,
    /// The slot of the ring that is written next.
    next_slot: usize,
    /// The last packets that filled a gap after it was given up: another ring, in no order.
    late: Vec<Delivered>,
    next_late: usize,
}

impl Memory {
    #[inline]
    fn note(&mut self, packet: Delivered) {
        match self.last.get_mut(self.next_slot) {
            Some(slot) => *slot = packet,
            None => self.grow(packet),
        }
        self.next_slot = (self.next_slot + 1) % REMEMBERED;
    }

    /// Notes one of the first packets of the run, for which there is room.
    #[cold]
    fn grow(&mut self, packet: Delivered) {
        if self.last.is_empty() {
            self.first.reserve_exact(REMEMBERED_FIRST);
            self.last.reserve_exact(REMEMBERED);
        }
        if self.first.len() < REMEMBERED_FIRST {
            self.first.push(packet);
        }
        self.last.push(packet);
    }

    #[cold]
    fn note_late(&mut self, packet: Delivered) {
        match self.late.get_mut(self.next_late) {
            Some(slot) => *slot = packet,
            None => self.late.push(packet),
        }
        self.next_late = (self.next_late + 1) % REMEMBERED_LATE;
    }

    /// The remembered packets, the newest first.
    fn newest_first(&self) -> impl Iterator<Item = &Delivered> {
        let (newer, older) = self.last.split_at(self.next_slot.min(self.last.len()));
        newer.iter().rev().chain(older.iter().rev())
    }

    /// The packet that began with this number.
    fn find(&self, first: u64) -> Option<&Delivered> {
        let (newer, older) = self.last.split_at(self.next_slot.min(self.last.len()));
        let part = if newer.first().is_some_and(|packet| packet.first <= first) { newer } else { older };
        let at = part.partition_point(|packet| packet.first < first);
        let found = part.get(at).filter(|packet| packet.first == first);
        found.or_else(|| self.first.iter().chain(&self.late).find(|packet| packet.first == first))
    }

    /// Whether a packet with this number and content was delivered.
    fn has(&self, packet: &Delivered) -> bool {
        self.find(packet.first).is_some_and(|known| known.head == packet.head)
    }

    /// Whether the newest packet has a later time than this one, or the same.
    fn is_later(&self, packet: &Delivered, dialect: Dialect) -> bool {
        let times = packet.time(dialect).zip(self.newest_time(dialect));
        times.is_some_and(|(time, newest)| time <= newest)
    }

    /// The time of the newest packet that has one.
    fn newest_time(&self, dialect: Dialect) -> Option<u64> {
        self.newest_first().find_map(|packet| packet.time(dialect))
    }

    #[cfg(feature = "serde")]
    fn is_sound(&self) -> bool {
        self.first.len() <= REMEMBERED_FIRST
            && self.last.len() <= REMEMBERED
            && self.next_slot < REMEMBERED
            && (self.last.len() == REMEMBERED || self.last.len() == self.next_slot)
            && self.late.len() <= REMEMBERED_LATE
            && self.next_late < REMEMBERED_LATE
    }
}

/// A packet that did not come in order.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Its header.
    pub header: Header,
    /// Its header and messages.
    pub payload: &'a [u8],
    /// When it was received.
    pub received: Nanos,
    /// How its channel is read.
    pub dialect: Dialect,
}

/// How the packets of a channel show times and restarts.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    transport: TransportKind,
    time: fn(&[u8]) -> Option<u64>,
    restarts: fn(&[u8]) -> bool,
}

impl Dialect {
    /// That of a feed; without one, messages have no times and announce nothing.
    #[must_use]
    pub fn of(transport: TransportKind, feed: Option<Application>) -> Self {
        let spec = feed.map(Application::spec);
        Self {
            transport,
            time: spec.map_or(|_| None, |spec| spec.time),
            restarts: spec.map_or(|_| false, |spec| spec.restarts),
        }
    }
}

impl Evidence<'_> {
    /// Whether a message of the packet, or its header, says that the numbers start over.
    fn announces(&self) -> bool {
        let Dialect { transport, restarts, .. } = self.dialect;
        let mut announces = transport.restarts(self.payload);
        transport.each_message(self.payload, |_, message| announces |= restarts(message));
        announces
    }

    fn delivered(&self) -> Delivered {
        let transport = self.dialect.transport;
        Delivered {
            first: self.header.first,
            sent_ns: transport.sent_ns(self.payload).unwrap_or_default(),
            head: transport.first_message(self.payload).map_or([0; HEAD_WORDS], head_of),
        }
    }

    const fn end(&self) -> u64 {
        self.header.first.saturating_add(self.header.count)
    }
}

/// What a packet out of order is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A packet of the run: in a gap, after one, or a copy.
    OfRun,
    /// A copy of a packet from before the restart.
    Past,
    /// A packet whose number had other content: damage.
    Differs,
    /// A suspect that others may confirm. The caller holds it, after those that it `continues`; else they are refused.
    Suspect {
        /// Whether it continues the suspects before it.
        continues: bool,
    },
    /// A copy of a suspect.
    CopyOfSuspect,
    /// Nothing distinguishes this packet, and the suspects before it, from copies. All of them are refused.
    Undecided,
    /// The first packet of another run, or the one that confirms the suspects before it.
    Restart,
}

/// Suspects in a row.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug)]
struct Suspects {
    /// The session that they carry.
    session: SessionId,
    packets: Vec<Delivered>,
    /// The number that continues them.
    next: u64,
    /// How many differ from what their numbers carried, or are later than everything delivered.
    evident: usize,
    /// How many repeat content already delivered under their numbers. A packet with a damaged number may precede ordinary copies, so two
    /// evident packets are required if there are any repeats.
    repeated: usize,
}

/// What a suspect shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shows {
    /// Its number had other content, or its time is later than anything delivered.
    Evidence,
    /// Its number had the same content.
    Repetition,
    Nothing,
}

/// Whether a packet is of a later trading day than one received before: a pause lies between them, and the date in New York changed.
fn is_next_day(before: Nanos, received: Nanos) -> bool {
    before.0 > 0
        && received.since(before) >= DAY_PAUSE_NS
        && clock::date_at(received) > clock::date_at(before)
}

/// One numbering of a channel, from its first packet until the venue starts over.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Default, Debug)]
pub struct Run {
    memory: Memory,
    /// What is remembered of the run before, whose late copies may still come.
    past: Option<Box<Memory>>,
    /// The number after the last message of the run before, which its late heartbeats name.
    past_next: u64,
    /// When the last packet of the run before was received.
    past_received: Nanos,
    /// The venue's time of the packet that showed that this run had begun, for as long as no packet of it is delivered.
    began: Option<u64>,
    /// The same of the next run.
    next_began: Option<u64>,
    /// When its last packet was received.
    received: Nanos,
    /// The venue has said the end of the session.
    has_ended: bool,
    suspects: Option<Suspects>,
    /// The number after the last copy that came from further back: the packet that continues it is a copy too.
    copied_to: u64,
}

impl Run {
    /// Whether suspects wait for confirmation.
    #[inline]
    pub const fn has_suspects(&self) -> bool {
        self.suspects.is_some()
    }

    /// Notes a packet that is delivered: its first number and message, and the send time of its header.
    #[inline]
    pub fn note(&mut self, first: u64, sent_ns: Option<u64>, message: &[u8], received: Nanos) {
        let sent_ns = sent_ns.unwrap_or_default();
        self.memory.note(Delivered { first, sent_ns, head: head_of(message) });
        self.received = received;
    }

    /// Notes a packet that is delivered, from its bytes.
    #[inline]
    pub fn note_payload(&mut self, transport: TransportKind, first: u64, payload: &[u8], received: Nanos) {
        if let Some(message) = transport.first_message(payload) {
            self.note(first, transport.sent_ns(payload), message, received);
        }
    }

    /// Notes a packet with messages of a gap that was given up.
    #[cold]
    pub fn note_late(&mut self, packet: &Evidence<'_>) {
        self.memory.note_late(packet.delivered());
    }

    /// Whether a packet is plainly a copy of one that is remembered. While suspects wait, only [`Run::judge`] can tell.
    #[inline]
    pub fn is_copy(&self, transport: TransportKind, first: u64, payload: &[u8]) -> bool {
        !self.has_suspects() && self.repeats(transport, first, payload)
    }

    /// Whether a packet repeats the content that its number had. If it is a suspect that nothing confirms, it is a copy.
    #[inline]
    pub fn repeats(&self, transport: TransportKind, first: u64, payload: &[u8]) -> bool {
        let message = transport.first_message(payload);
        message.is_some_and(|message| {
            self.memory.find(first).is_some_and(|known| known.head == head_of(message))
        })
    }

    /// See [`ClockChange::moved`].
    pub(crate) fn clock_was_set(&mut self, change: ClockChange) {
        self.received = change.moved(self.received);
        self.past_received = change.moved(self.past_received);
    }

    /// Whether a packet with missing numbers may bring these messages late. If not, another run has begun with the same numbers.
    #[cold]
    pub fn may_be_late(&self, packet: &Evidence<'_>) -> bool {
        let seen = packet.delivered();
        let is_new = || !self.memory.is_later(&seen, packet.dialect) && seen.time(packet.dialect).is_some();
        !(self.is_next_day(packet.received) || packet.announces() && is_new())
    }

    /// Whether a packet of this run, which another session has replaced, is a late copy: its number had the same content, or its time is no
    /// later than the newest one delivered.
    pub(crate) fn is_late_copy(&self, packet: &Evidence<'_>) -> bool {
        // Times of day come again.
        if self.is_next_day(packet.received) {
            return false;
        }
        let seen = packet.delivered();
        self.memory.has(&seen) || self.memory.is_later(&seen, packet.dialect)
    }

    /// Notes a packet without messages.
    pub const fn note_heartbeat(&mut self, received: Nanos, is_end_of_session: bool) {
        self.received = received;
        self.has_ended |= is_end_of_session;
    }

    /// The suspects are refused: a packet of the run came, or the input ended.
    pub fn refuse_suspects(&mut self) {
        self.suspects = None;
    }

    /// The session has ended: another replaces it with its first packet.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
        self.suspects = None;
    }

    /// Another run begins. The memory of this one is kept for its late copies.
    /// `next` is the number that it has not reached.
    #[must_use]
    pub fn next_run(&self, next: u64) -> Self {
        Self {
            past: Some(Box::new(self.memory.clone())),
            past_next: next,
            past_received: self.received,
            began: self.next_began,
            ..Self::default()
        }
    }

    /// Forgets its packets: they are noted again when they are delivered.
    pub(crate) fn forget_packets(&mut self) {
        self.memory = Memory::default();
    }

    /// Whether a restored state is valid.
    #[cfg(feature = "serde")]
    pub(crate) fn is_sound(&self) -> bool {
        self.memory.is_sound() && self.past.as_ref().is_none_or(|past| past.is_sound())
    }

    /// Whether a packet is of a later trading day than the last one: the channel paused, and the date in New York changed.
    pub(crate) fn is_next_day(&self, received: Nanos) -> bool {
        is_next_day(self.received, received)
    }

    /// Judges a packet that is not the next one of the run, whose next number is `next`. The packet must be sound.
    pub fn judge(&mut self, packet: &Evidence<'_>, next: u64) -> Verdict {
        let verdict = self.verdict(packet, next);
        if verdict == Verdict::Restart {
            self.next_began = packet.delivered().time(packet.dialect);
        }
        verdict
    }

    fn verdict(&mut self, packet: &Evidence<'_>, next: u64) -> Verdict {
        let Header { first, count, .. } = packet.header;
        if first != next && first > 0 && self.is_next_day(packet.received) {
            return Verdict::Restart;
        }
        if count == 0 {
            if first > next && first == self.past_next {
                return Verdict::Past;
            }
            return self.judge_heartbeat(packet, next);
        }
        let (seen, dialect) = (packet.delivered(), packet.dialect);
        if self.is_past(&seen, packet) {
            return Verdict::Past;
        }
        let known = self.memory.find(first);
        let differs = known.is_some_and(|known| known.head != seen.head);
        let is_new = packet.end() > next && !differs;
        if first >= next || is_new || dialect.transport.is_answer(packet.payload) {
            return Verdict::OfRun;
        }
        let is_later = match (seen.time(dialect), self.memory.newest_time(dialect)) {
            (Some(time), Some(newest)) => Some(time > newest),
            _ => None,
        };
        // Messages without a time may say the same at the beginning of each run.
        let is_repeated = known.is_some() && !differs;
        if is_repeated && is_later != Some(false) && self.continues_suspects(packet) {
            return self.suspect(packet, seen, Shows::Repetition, false);
        }
        let is_copy = is_repeated || is_later == Some(false);
        if is_copy || !differs && is_later.is_none() && self.copied_to == first {
            self.copied_to = packet.end();
            return if differs { Verdict::Differs } else { Verdict::OfRun };
        }
        if self.has_ended || packet.announces() {
            return Verdict::Restart;
        }
        let is_evident = differs || is_later == Some(true);
        self.suspect(packet, seen, if is_evident { Shows::Evidence } else { Shows::Nothing }, false)
    }

    fn continues_suspects(&self, packet: &Evidence<'_>) -> bool {
        let Header { session, first, .. } = packet.header;
        self.suspects.as_ref().is_some_and(|suspects| suspects.session == session && suspects.next == first)
    }

    /// A heartbeat with an old number restarts a run only if its header says so and it is later.
    fn judge_heartbeat(&self, packet: &Evidence<'_>, next: u64) -> Verdict {
        let seen = packet.delivered();
        let newest = self.memory.newest_time(packet.dialect);
        let is_later = seen.sent_ns > 0 && newest.is_some_and(|newest| seen.sent_ns > newest);
        let restarts = || packet.dialect.transport.restarts(packet.payload);
        if packet.header.first < next && is_later && restarts() { Verdict::Restart } else { Verdict::OfRun }
    }

    /// Whether a packet is a copy of one of the run before. On a later day nothing is: times of day come again, and with them packets that
    /// have the same content.
    fn is_past(&self, seen: &Delivered, packet: &Evidence<'_>) -> bool {
        let Some(past) = self.past.as_ref().filter(|_| !is_next_day(self.past_received, packet.received))
        else {
            return false;
        };
        let dialect = packet.dialect;
        // A sender whose clock was set back must not make a whole run old.
        let is_older = || {
            past.is_later(seen, dialect)
                && self.memory.newest_time(dialect).or(self.began) > past.newest_time(dialect)
        };
        !self.memory.has(seen) && (past.has(seen) || is_older())
    }

    /// Judges a sound packet of another session on the same channel. A single packet may have a damaged session name, so it takes the
    /// channel over only if the old session has ended, or if it carries message 1 after a pause. Otherwise [`CONFIRMING`] consecutive
    /// packets must confirm it; after a pause, their numbers may have gaps. Heartbeats carry nothing, and confirm nothing.
    pub fn judge_session(&mut self, packet: &Evidence<'_>) -> Verdict {
        if packet.header.count == 0 && !self.has_ended {
            return Verdict::Past;
        }
        let has_paused = packet.received.since(self.received) >= SESSION_PAUSE_NS;
        if self.has_ended || has_paused && packet.header.first <= 1 {
            return Verdict::Restart;
        }
        self.suspect(packet, packet.delivered(), Shows::Evidence, has_paused)
    }

    /// Takes a suspect: alone, or as the one that continues the suspects before it. `may_skip` allows gaps between them.
    fn suspect(&mut self, packet: &Evidence<'_>, seen: Delivered, shows: Shows, may_skip: bool) -> Verdict {
        let (session, first) = (packet.header.session, packet.header.first);
        let same = self.suspects.as_ref().is_some_and(|suspects| suspects.session == session);
        if same && self.suspects.as_ref().is_some_and(|suspects| suspects.packets.contains(&seen)) {
            return Verdict::CopyOfSuspect;
        }
        let follows = |next| next == first || may_skip && next < first;
        let before = self.suspects.take().filter(|before| same && follows(before.next));
        let continues = before.is_some();
        let mut suspects =
            before.unwrap_or(Suspects { session, packets: Vec::new(), next: first, evident: 0, repeated: 0 });
        suspects.packets.push(seen);
        suspects.next = packet.end();
        suspects.evident += usize::from(shows == Shows::Evidence);
        suspects.repeated += usize::from(shows == Shows::Repetition);
        let (count, evident, repeated) = (suspects.packets.len(), suspects.evident, suspects.repeated);
        if count >= CONFIRMING && evident > usize::from(repeated > 0) {
            return Verdict::Restart;
        }
        if count < CONFIRMING || repeated > 0 && count < MOST_SUSPECTS {
            self.suspects = Some(suspects);
            return Verdict::Suspect { continues };
        }
        Verdict::Undecided
    }

    /// Whether the suspects are of another session, which nothing has contradicted.
    pub fn awaits_session(&self, session: &SessionId) -> bool {
        self.suspects.as_ref().is_some_and(|suspects| suspects.session != *session)
    }
}
