//! Distinguishes a restarted channel from late copies and from damage.
//!
//! When a venue restarts a channel, it numbers the messages from 1 again, on the next day or within a day, and often under the
//! same session. A packet with an old number is then one of four things, and [`Run::judge`] decides which:
//!
//! | the packet has | it is |
//! | --- | --- |
//! | the same content as its number had before | a copy |
//! | a time no later than the newest one delivered | a copy from further back, or damage if its number had other content |
//! | an announcement (ITCH `O`, NYSE Sequence Number Reset, IEX stream offset 0), a later trading day, or an end of session before it | a restart |
//! | none of these | a suspect: held until [`CONFIRMING`] packets in a row confirm it, and refused if they do not |
//!
//! A suspect counts as evidence only if its number had other content before or its time is later than anything delivered. If a
//! run of suspects offers neither, nothing can be decided: the packets are refused, and the caller reports them.
//!
//! Cost: each in-order packet writes 48 bytes. Only out-of-order packets are judged: a copy costs a binary search of the last
//! [`REMEMBERED`] packets and a comparison of 32 bytes.

use tapeworks_session::{Header, SessionId, TransportKind};
use tapeworks_time::{ClockChange, Nanos};
use tapeworks_wire::DecodeError;

use tapeworks_time::clock;

/// Packets whose content is remembered: line B may lag line A by this many.
pub const REMEMBERED: usize = 256;

/// Packets at the start of a run whose content is always remembered, because most restarts begin with their numbers.
const REMEMBERED_FIRST: usize = 8;

/// Late packets whose content is remembered, so that their copies on the other line are recognized.
const REMEMBERED_LATE: usize = 64;

/// Consecutive packets that must continue from an old number before it counts as a restart.
pub const CONFIRMING: usize = 3;

/// Maximum number of suspects held if some of them repeat known content, which decides nothing.
const MOST_SUSPECTS: usize = 64;

/// Shortest pause of a channel between two trading days, in ns. Within a day venues send heartbeats about once a second.
const DAY_PAUSE_NS: u64 = 30 * 60 * Nanos::SECOND;

/// Silence, in ns, after which another session that brings its first message replaces the current one. Without its first message
/// the other session has to be confirmed.
const SESSION_PAUSE_NS: u64 = 3 * Nanos::SECOND;

/// Number of words of a packet's first message that represent its content.
const HEAD_WORDS: usize = 4;

/// A delivered packet.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Delivered {
    /// The number of its first message.
    first: u64,
    /// Send time from the header in ns, or 0 if there is none.
    sent_ns: u64,
    /// The first 32 bytes of its first message, padded with zeros.
    head: [u64; HEAD_WORDS],
}

/// Returns the start of a message, padded with zeros.
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
    /// Returns the venue's time of the packet, from its header or its first message.
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

/// The remembered packets of a run, ordered by number.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Default, Debug)]
struct Memory {
    /// The first packets of the run.
    first: Vec<Delivered>,
    /// The last packets of the run: a ring.
    last: Vec<Delivered>,
    /// The slot of the ring to write next.
    next_slot: usize,
    /// The last packets that filled a gap after it was given up: another ring, unordered.
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

    /// Stores a packet while the ring is not yet full.
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

    /// Returns the packets of the ring, newest first.
    fn newest_first(&self) -> impl Iterator<Item = &Delivered> {
        let (newer, older) = self.last.split_at(self.next_slot.min(self.last.len()));
        newer.iter().rev().chain(older.iter().rev())
    }

    /// Returns the packet that began with this number.
    fn find(&self, first: u64) -> Option<&Delivered> {
        let (newer, older) = self.last.split_at(self.next_slot.min(self.last.len()));
        let part = if newer.first().is_some_and(|packet| packet.first <= first) { newer } else { older };
        let at = part.partition_point(|packet| packet.first < first);
        let found = part.get(at).filter(|packet| packet.first == first);
        found.or_else(|| self.first.iter().chain(&self.late).find(|packet| packet.first == first))
    }

    /// Returns whether a packet with this number and content was delivered.
    fn has(&self, packet: &Delivered) -> bool {
        self.find(packet.first).is_some_and(|known| known.head == packet.head)
    }

    /// Returns whether the newest packet's time is later than this one's, or equal.
    fn is_later(&self, packet: &Delivered, dialect: Dialect) -> bool {
        let times = packet.time(dialect).zip(self.newest_time(dialect));
        times.is_some_and(|(time, newest)| time <= newest)
    }

    /// Returns the time of the newest packet that has one.
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

/// A packet that did not arrive in order.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Its header.
    pub header: Header,
    /// The transport's header and the messages.
    pub payload: &'a [u8],
    /// When it was received.
    pub received: Nanos,
    /// How to read its channel.
    pub dialect: Dialect,
}

/// Reads the parts of a feed's messages on which following a channel depends.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// The transport.
    pub transport: TransportKind,
    /// The feed's number among all feeds. A saved channel is restored only for the same feed.
    pub feed: Option<u32>,
    /// Whether the feed carries a session; other sessions of the transport are counted and not followed.
    pub has_session: fn(&SessionId) -> bool,
    /// Checks that a message can be read.
    pub check: fn(&[u8]) -> Result<(), DecodeError>,
    /// The time of a message in ns, from any fixed origin; `None` if the message has none.
    pub time: fn(&[u8]) -> Option<u64>,
    /// Whether a message announces that the numbers restart.
    pub restarts: fn(&[u8]) -> bool,
}

impl From<TransportKind> for Dialect {
    /// Any session of a transport: its messages are not read.
    fn from(transport: TransportKind) -> Self {
        Self {
            transport,
            feed: None,
            has_session: |_| true,
            check: |_| Ok(()),
            time: |_| None,
            restarts: |_| false,
        }
    }
}

impl Dialect {
    /// Returns whether two channels have the same feed, or both any session of the same transport.
    #[cfg(feature = "serde")]
    pub(crate) fn is_same_feed(&self, other: &Self) -> bool {
        (self.transport, self.feed) == (other.transport, other.feed)
    }
}

/// A saved dialect is the transport and the feed's number. A restored one takes its functions from the channel that it replaces.
#[cfg(feature = "serde")]
impl serde::Serialize for Dialect {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.transport, self.feed).serialize(to)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Dialect {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (transport, feed) = <(TransportKind, Option<u32>)>::deserialize(from)?;
        Ok(Self { feed, ..Self::from(transport) })
    }
}

impl Evidence<'_> {
    /// Returns whether the packet's header or one of its messages announces that the numbers restart.
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
}

/// What an out-of-order packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A packet of the current run: in a gap, after one, or a copy.
    OfRun,
    /// A copy of a packet from before the restart.
    Past,
    /// A packet whose number had other content: damage.
    Differs,
    /// A suspect that others may confirm. The caller holds it, after the suspects that it `continues`; otherwise those are
    /// refused.
    Suspect {
        /// Whether it continues the suspects before it.
        continues: bool,
    },
    /// A copy of a suspect.
    CopyOfSuspect,
    /// Nothing distinguishes this packet and the suspects before it from copies. All of them are refused.
    Undecided,
    /// The first packet of another run, or the one that confirms the suspects before it.
    Restart,
}

/// Consecutive suspects.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug)]
struct Suspects {
    /// The session that they carry.
    session: SessionId,
    packets: Vec<Delivered>,
    /// The number that continues the sequence of suspects.
    next: u64,
    /// How many differ from the content that their numbers had, or are later than everything delivered.
    evident: usize,
    /// How many repeat content already delivered under their numbers. A packet with a damaged number may precede ordinary copies,
    /// so two evident packets are required if there are any repeats.
    repeated: usize,
}

/// The evidence that a suspect offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shows {
    /// Its number had other content, or its time is later than anything delivered.
    Evidence,
    /// Its number had the same content.
    Repetition,
    Nothing,
}

/// Returns whether a packet belongs to a later trading day than one received before: a pause separates them, and the date in New
/// York changed.
fn is_next_day(before: Nanos, received: Nanos) -> bool {
    before.0 > 0
        && received.since(before) >= DAY_PAUSE_NS
        && clock::date_at(received) > clock::date_at(before)
}

/// One numbering of a channel, from its first packet until the venue restarts the numbers.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Default, Debug)]
pub struct Run {
    memory: Memory,
    /// The memory of the previous run, whose late copies may still arrive.
    past: Option<Box<Memory>>,
    /// The number after the last message of the previous run. Its late heartbeats carry this number.
    past_next: u64,
    /// When the last packet of the previous run was received.
    past_received: Nanos,
    /// The venue's time of the packet that revealed this run. Used until a packet of this run is delivered.
    began: Option<u64>,
    /// The venue's time of the packet that revealed the next run.
    next_began: Option<u64>,
    /// When the run's last packet was received.
    received: Nanos,
    /// Whether the venue has announced the end of the session.
    has_ended: bool,
    suspects: Option<Suspects>,
    /// The number after the last copy that came from further back: a packet that continues it is a copy too.
    copied_to: u64,
}

impl Run {
    /// Returns whether suspects wait for confirmation.
    #[inline]
    pub const fn has_suspects(&self) -> bool {
        self.suspects.is_some()
    }

    /// Records a delivered packet: its first number and message, and the send time of its header.
    #[inline]
    pub fn note(&mut self, first: u64, sent_ns: Option<u64>, message: &[u8], received: Nanos) {
        let sent_ns = sent_ns.unwrap_or_default();
        self.memory.note(Delivered { first, sent_ns, head: head_of(message) });
        self.received = received;
    }

    /// Records a delivered packet from its bytes.
    #[inline]
    pub fn note_payload(&mut self, transport: TransportKind, first: u64, payload: &[u8], received: Nanos) {
        if let Some(message) = transport.first_message(payload) {
            self.note(first, transport.sent_ns(payload), message, received);
        }
    }

    /// Records a packet with messages of a gap that was given up.
    #[cold]
    pub fn note_late(&mut self, packet: &Evidence<'_>) {
        self.memory.note_late(packet.delivered());
    }

    /// Returns whether a packet is clearly a copy of a remembered one. While suspects wait, only [`Run::judge`] can decide.
    #[inline]
    pub fn is_copy(&self, transport: TransportKind, first: u64, payload: &[u8]) -> bool {
        !self.has_suspects() && self.repeats(transport, first, payload)
    }

    /// Returns whether a packet repeats the content that its number had. A suspect that does so and is never confirmed is a copy.
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

    /// Returns whether a packet with missing numbers may be bringing those messages late. If not, another run has begun with the
    /// same numbers.
    #[cold]
    pub fn may_be_late(&self, packet: &Evidence<'_>) -> bool {
        let seen = packet.delivered();
        let is_new = || !self.memory.is_later(&seen, packet.dialect) && seen.time(packet.dialect).is_some();
        !(self.is_next_day(packet.received) || packet.announces() && is_new())
    }

    /// Returns whether a packet is a late copy from this run, which another session has replaced: its number had the same
    /// content, or its time is no later than the newest one delivered.
    pub(crate) fn is_late_copy(&self, packet: &Evidence<'_>) -> bool {
        // Times of day recur.
        if self.is_next_day(packet.received) {
            return false;
        }
        let seen = packet.delivered();
        self.memory.has(&seen) || self.memory.is_later(&seen, packet.dialect)
    }

    /// Records a packet without messages.
    pub const fn note_heartbeat(&mut self, received: Nanos, is_end_of_session: bool) {
        self.received = received;
        self.has_ended |= is_end_of_session;
    }

    /// Refuses the suspects, because a packet of the current run arrived or the input ended.
    pub fn refuse_suspects(&mut self) {
        self.suspects = None;
    }

    /// Ends the session: the first packet of another session replaces it.
    pub fn end(&mut self) {
        self.has_ended = true;
        self.suspects = None;
    }

    /// Returns the run that follows this one. It keeps this run's memory to recognize late copies. `next` is the first number
    /// that this run has not reached.
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

    /// Forgets the run's packets: they are recorded again when they are delivered.
    pub(crate) fn forget_packets(&mut self) {
        self.memory = Memory::default();
    }

    /// Returns whether a restored state is valid.
    #[cfg(feature = "serde")]
    pub fn is_sound(&self) -> bool {
        self.memory.is_sound() && self.past.as_ref().is_none_or(|past| past.is_sound())
    }

    /// Returns whether a packet belongs to a later trading day than the last one: the channel paused, and the date in New York
    /// changed.
    pub fn is_next_day(&self, received: Nanos) -> bool {
        is_next_day(self.received, received)
    }

    /// Judges a packet that is not next in sequence; the run's next number is `next`. The packet must be sound.
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
        let is_new = packet.header.end() > next && !differs;
        if first >= next || is_new || dialect.transport.is_answer(packet.payload) {
            return Verdict::OfRun;
        }
        let is_later = match (seen.time(dialect), self.memory.newest_time(dialect)) {
            (Some(time), Some(newest)) => Some(time > newest),
            _ => None,
        };
        // Messages without a time may have the same content at the beginning of each run.
        let is_repeated = known.is_some() && !differs;
        if is_repeated && is_later != Some(false) && self.continues_suspects(packet) {
            return self.suspect(packet, seen, Shows::Repetition, false);
        }
        let is_copy = is_repeated || is_later == Some(false);
        if is_copy || !differs && is_later.is_none() && self.copied_to == first {
            self.copied_to = packet.header.end();
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

    /// Judges a heartbeat. One with an old number restarts a run only if its header announces it and its time is later.
    fn judge_heartbeat(&self, packet: &Evidence<'_>, next: u64) -> Verdict {
        let seen = packet.delivered();
        let newest = self.memory.newest_time(packet.dialect);
        let is_later = seen.sent_ns > 0 && newest.is_some_and(|newest| seen.sent_ns > newest);
        let restarts = || packet.dialect.transport.restarts(packet.payload);
        if packet.header.first < next && is_later && restarts() { Verdict::Restart } else { Verdict::OfRun }
    }

    /// Returns whether a packet is a copy from the previous run. On a later day no packet is, because times of day recur, and
    /// with them packets with the same content.
    fn is_past(&self, seen: &Delivered, packet: &Evidence<'_>) -> bool {
        let Some(past) = self.past.as_ref().filter(|_| !is_next_day(self.past_received, packet.received))
        else {
            return false;
        };
        let dialect = packet.dialect;
        // A sender whose clock was set back must not make a whole run look old.
        let is_older = || {
            past.is_later(seen, dialect)
                && self.memory.newest_time(dialect).or(self.began) > past.newest_time(dialect)
        };
        !self.memory.has(seen) && (past.has(seen) || is_older())
    }

    /// Judges a sound packet of another session on the same channel. A single packet may have a damaged session name, so it takes
    /// over only if the old session has ended, or if it carries message 1 after a pause. Otherwise [`CONFIRMING`] consecutive
    /// packets must confirm it; after a pause, their numbers may have gaps. A heartbeat confirms nothing.
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

    /// Adds a suspect: as the first, or after the suspects that it continues. `may_skip` allows gaps between them.
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
        suspects.next = packet.header.end();
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

    /// Returns whether the suspects belong to another session that nothing has contradicted.
    pub fn awaits_session(&self, session: &SessionId) -> bool {
        self.suspects.as_ref().is_some_and(|suspects| suspects.session != *session)
    }
}
