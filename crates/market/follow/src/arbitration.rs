//! Merges lines A and B and retransmissions into one sequence.
//!
//! An [`Arbiter`] follows one channel. It delivers the first copy of each message, whichever line brings it. After a sequence gap
//! it holds the packets that follow, in order; there may be further gaps between them. For each gap it
//!
//! 1. waits for a reorder window: the other line, or an overtaken packet, may fill the gap;
//! 2. requests the missing messages for as long as answers bring any, with several requests in flight for all gaps together, and
//!    limits per gap in messages and time ([`RetransmissionOptions`]);
//! 3. gives the gap up: it delivers the held packets, the consumer sees the sequence numbers jump, and the channel requests a
//!    snapshot if it has a snapshot server.
//!
//! An answer may be late, duplicated, out of order, or partial. An answer that brings no missing message, belongs to another
//! session, or holds fewer messages than its header claims is counted and otherwise ignored.
//!
//! The arbiter has no clock and no socket: times come with the packets and with [`Arbiter::advance`], and the caller sends the
//! requests. The same input produces the same output.
//!
//! # Damage
//! A packet that does not continue the sequence is followed only if it is sound: its messages match its header, to the last byte.
//! Any other packet is counted and changes nothing: it starts or ends no session, resets no number, and opens no gap. An in-order
//! packet is not parsed twice: the consumer reads its messages anyway, and reports those that it cannot read
//! ([`Arbiter::cannot_read`]). They then count as missing, as if they had never been sent.
//!
//! A sound packet of another session does not end the current session: see [`ArbiterOptions::silence_ns`].
//!
//! # Cost
//! An in-order packet costs the header's cache line and about ten compares (session, place in the channel, place on the line).
//! Only packets after a sequence gap are copied, into reused buffers.

mod clock;
mod counters;
mod gap;
mod line;
mod retry;
mod session;

use std::collections::VecDeque;
use std::ops::Range;

use tapeworks_market::Line;
use tapeworks_planted::planted;
use tapeworks_session::{Header, Request, SessionId, Transport};
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;

use crate::ranges::Ranges;
use crate::recovery::OpenGaps;
use crate::run::{Dialect, Evidence, Run, Verdict};
use crate::sequence::MOST_AHEAD;
use line::LineFollower;
use retry::Retry;
use session::{Past, Successor};

pub use crate::recovery::{GapReason, RetransmissionOptions};
pub use counters::{ArbiterCounters, LineCounters, RecoveryReport, Usefulness};

/// Maximum number of packet buffers kept for reuse.
const MOST_SPARE: usize = 1024;

/// Maximum number of open sequence gaps per channel. When it is exceeded, the first gap is given up, as with
/// [`ArbiterOptions::held_bytes`].
const MOST_GAPS: usize = 1 << 16;

/// Lines of a channel: A, B, and retransmissions ([`Line::Recovery`]).
pub const LINES: usize = 3;

/// Where to begin when a channel's first packet arrives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Join {
    /// At the session's first message: messages before the first packet are a sequence gap like any other.
    #[default]
    Beginning,
    /// At a snapshot, unless the session has just begun.
    Snapshot,
    /// At the first packet; no earlier message counts as missing. Later sessions begin at their first message.
    FirstHeard,
}

/// How the arbiter follows a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArbiterOptions {
    /// Reorder window in ns: how long the other line or an overtaken packet may fill a gap before it is requested or given up.
    pub reorder_window_ns: u64,
    /// Retransmission requests; `None` if there is no retransmission server.
    pub retransmission: Option<RetransmissionOptions>,
    /// Maximum bytes of payload held after a sequence gap or while joining. When it is exceeded, the arbiter gives the gap up. It
    /// must have room for the packets that arrive while a gap is being filled.
    pub held_bytes: usize,
    /// Time without packets, in ns, after which a line or the channel is silent; venues send heartbeats about once a second.
    /// Another session takes over after the current one has announced its end, or after this much silence: half of it if the
    /// other session is present from its first message.
    pub silence_ns: u64,
    /// Where to begin in a channel joined mid-session.
    pub join: Join,
    /// Whether a publisher that restarts at number 1 also changes its session name, as a plant's own publisher does. An old
    /// number is then a late copy on any day. Venues restart under the same name.
    pub restarts_rename: bool,
}

impl Default for ArbiterOptions {
    fn default() -> Self {
        Self {
            reorder_window_ns: 500_000,
            retransmission: None,
            held_bytes: 256 << 20,
            silence_ns: 3_000_000_000,
            join: Join::Beginning,
            restarts_rename: false,
        }
    }
}

/// The arbiter's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery<'a> {
    /// A packet that continues the sequence, or a heartbeat. Its first messages may already have been delivered, and messages
    /// before it may have been given up.
    Packet {
        /// The line that brought it first.
        line: Line,
        /// When it was received.
        received: Nanos,
        /// The transport's header and the messages.
        payload: &'a [u8],
        /// The parsed header.
        header: Header,
    },
    /// A packet with messages that had been given up.
    Late {
        /// The transport's header and the messages.
        payload: &'a [u8],
        /// The parsed header.
        header: Header,
        /// The numbers of those messages. The packet's other messages came earlier, or are next in sequence; in that case the
        /// packet is delivered again for them.
        numbers: &'a [Range<u64>],
    },
    /// Messages were given up: the next packet is after them.
    Gap {
        /// The first missing number, and how many messages are missing.
        missing: (u64, u64),
        /// When they were given up.
        now: Nanos,
    },
    /// A session begins.
    Session {
        /// The session.
        session: SessionId,
        /// The number of its first message.
        first: u64,
        /// When it began.
        now: Nanos,
    },
    /// A session was joined midway: the channel emits no events before a snapshot.
    Joining {
        /// When it was joined.
        now: Nanos,
    },
    /// No packet came for too long: the books may be stale.
    Silent {
        /// When the silence was noticed.
        now: Nanos,
    },
    /// Packets arrive again, and none was missed.
    Heard {
        /// When the silence ended.
        now: Nanos,
    },
}

/// A packet of a line, with its header read.
#[derive(Clone, Copy, Debug)]
struct Incoming<'a> {
    header: Header,
    line: Line,
    received: Nanos,
    payload: &'a [u8],
}

/// A packet waiting for its turn.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
struct Held {
    header: Header,
    line: Line,
    received: Nanos,
    #[cfg_attr(feature = "serde", serde(with = "serde_bytes"))]
    payload: Vec<u8>,
}

impl Held {
    fn incoming(&self) -> Incoming<'_> {
        let Self { header, line, received, ref payload } = *self;
        Incoming { header, line, received, payload }
    }
}

/// Merges a channel's lines into one sequence: see the [module](self).
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub struct Arbiter {
    /// The feed whose sessions are followed.
    dialect: Dialect,
    #[cfg_attr(feature = "serde", serde(skip))]
    options: ArbiterOptions,
    session: Option<SessionId>,
    /// The number of the next message; `None` before the first packet and while joining.
    next: Option<u64>,
    is_joining: bool,
    /// Where the session ends, once it has announced that.
    end: Option<u64>,
    lines: [LineFollower; LINES],
    /// Packets after a sequence gap, by number; while joining, all packets.
    held: VecDeque<Held>,
    held_bytes: usize,
    /// The number after all held packets, if there are any.
    reach: u64,
    /// The sequence gaps before and between the held packets.
    gaps: OpenGaps,
    given_up: Ranges,
    retry: Retry,
    /// How many given-up numbers are no longer remembered.
    forgotten: u64,
    /// Sessions that may follow the current one.
    successors: Vec<Successor>,
    /// Distinguishes copies from a restart.
    run: Run,
    /// Packets that may begin a restart: see [`Run`].
    suspects: Vec<Held>,
    /// Sessions followed earlier, the most recent last.
    past: Vec<Past>,
    /// When the session was joined: just before its first packet.
    began: Nanos,
    /// When a message last advanced the sequence.
    advanced: Nanos,
    /// When a heartbeat last confirmed the position in the sequence.
    confirmed: Nanos,
    /// When a given-up message last arrived.
    came_late: Nanos,
    /// When a line last brought a current packet of the session; `None` once the silence since then has been noticed.
    last: Option<Nanos>,
    is_silent: bool,
    last_recovery: Option<RecoveryReport>,
    wants_snapshot: bool,
    #[cfg_attr(feature = "serde", serde(skip))]
    spare: Vec<Vec<u8>>,
    counters: ArbiterCounters,
}

const fn place(line: Line) -> usize {
    match line {
        Line::A => 0,
        Line::B => 1,
        Line::Recovery | Line::Snapshot => 2,
    }
}

impl Arbiter {
    /// Creates the arbiter of a feed's channel, or of any session of a transport, before its first packet.
    pub fn new(dialect: impl Into<Dialect>, options: ArbiterOptions) -> Self {
        Self {
            dialect: dialect.into(),
            options,
            session: None,
            next: None,
            is_joining: false,
            end: None,
            lines: Default::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            reach: 0,
            gaps: OpenGaps::default(),
            given_up: Ranges::default(),
            retry: Retry::default(),
            forgotten: 0,
            successors: Vec::new(),
            run: Run::default(),
            suspects: Vec::new(),
            past: Vec::new(),
            began: Nanos(0),
            advanced: Nanos(0),
            confirmed: Nanos(0),
            came_late: Nanos(0),
            last: None,
            is_silent: false,
            last_recovery: None,
            wants_snapshot: false,
            spare: Vec::new(),
            counters: ArbiterCounters::default(),
        }
    }

    /// Returns a restored arbiter with the options of `other`, or `None` if it belongs to another transport or feed.
    #[cfg(feature = "serde")]
    pub fn with_options_of(mut self, other: &Self) -> Option<Self> {
        self.options = other.options;
        if !self.is_complete() && planted!("given-up-not-saved") {
            self.forget_missing();
        }
        let is_same = self.dialect.is_same_feed(&other.dialect);
        self.dialect = other.dialect;
        is_same.then_some(self)
    }

    /// Returns whether a restored state is valid.
    #[cfg(feature = "serde")]
    pub fn is_sound(&self) -> bool {
        let waiting = self.successors.iter().flat_map(|successor| &successor.packets);
        let held: usize =
            self.held.iter().chain(waiting).chain(&self.suspects).map(|held| held.payload.len()).sum();
        self.held_bytes == held
            && self.successors.iter().all(Successor::is_sound)
            && self.given_up.is_sound()
            && self.run.is_sound()
            && self.past.iter().all(|past| past.run.is_sound())
            && self.retry.is_sound()
            && self.are_gaps_sound()
            && self.lines.iter().all(|line| line.gaps.is_sound())
    }

    /// Returns whether the open gaps match the numbers missing between the held packets.
    #[cfg(feature = "serde")]
    fn are_gaps_sound(&self) -> bool {
        let Some(next) = self.next else { return self.gaps.is_sound(std::iter::empty()) };
        let mut reach = next;
        let mut missing = Vec::new();
        for held in &self.held {
            missing.extend(Some(reach..held.header.first).filter(|missing| !missing.is_empty()));
            reach = reach.max(held.header.end());
        }
        (self.held.is_empty() || self.reach == reach) && self.gaps.is_sound(missing.into_iter())
    }

    /// Returns the session; `None` before the first packet.
    pub const fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns the number of the next message; `None` before the first packet and while waiting for a snapshot.
    pub const fn next(&self) -> Option<u64> {
        self.next
    }

    /// Returns the channel's counters.
    pub const fn counters(&self) -> &ArbiterCounters {
        &self.counters
    }

    /// Returns the counters of lines A and B and of the retransmissions.
    pub fn lines(&self) -> [LineCounters; LINES] {
        [self.lines[0].counters, self.lines[1].counters, self.lines[2].counters]
    }

    /// Returns whether a line is silent: it has brought packets, but none for a while.
    pub fn is_line_silent(&self, line: Line) -> bool {
        self.lines[place(line)].is_silent
    }

    /// Returns whether the whole channel is silent.
    pub const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Returns whether the channel waits for a snapshot to begin from.
    pub const fn is_joining(&self) -> bool {
        self.is_joining
    }

    /// Returns whether messages are missing that the channel still awaits or requests.
    pub fn is_recovering(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Returns since when the first requested messages have been missing; `None` if none are requested.
    pub fn recovering_since(&self) -> Option<Nanos> {
        self.gaps.requested_since()
    }

    /// Returns the number after the last held packet; `None` if none is held.
    pub fn held_to(&self) -> Option<u64> {
        self.held.back().map(|held| held.header.end())
    }

    /// Returns the payloads of the held packets, ordered by number.
    pub fn held_payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.held.iter().map(|held| held.payload.as_slice())
    }

    /// Returns the number after the last message that a line delivered or a heartbeat announced; `None` if nothing came.
    pub fn heard_to(&self) -> Option<u64> {
        self.held_to().max(self.next)
    }

    /// Returns how many packets are held: after a sequence gap, while joining, as suspects, or for sessions that may follow.
    pub fn held_packets(&self) -> usize {
        self.held.len()
            + self.suspects.len()
            + self.successors.iter().map(|successor| successor.packets.len()).sum::<usize>()
    }

    /// Returns whether packets of another session are waiting.
    #[inline]
    pub const fn has_successor(&self) -> bool {
        !self.successors.is_empty()
    }

    /// Returns the last long recovery: a requested gap, filled or given up, that spanned at least 1,000 messages or took at least
    /// a second.
    pub const fn last_recovery(&self) -> Option<&RecoveryReport> {
        self.last_recovery.as_ref()
    }

    /// Returns the next request to send. There may be several: call this until it returns `None`.
    pub fn take_request(&mut self) -> Option<Request> {
        let session = self.session?;
        let wanted = self.gaps.take_request().or_else(|| self.retry.take())?;
        self.counters.requests += 1;
        let count = (wanted.end - wanted.start).min(u64::from(u16::MAX - 1)) as u16;
        Some(Request { session, first: wanted.start, count })
    }

    /// Returns whether a snapshot has become necessary since the last call: the channel was joined mid-session, or messages were
    /// given up.
    pub const fn take_snapshot_request(&mut self) -> bool {
        std::mem::replace(&mut self.wants_snapshot, false)
    }

    /// Returns the earliest time at which [`Arbiter::advance`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        let gaps = self.gap_deadline();
        let successor =
            self.successors.iter().filter_map(|successor| self.successor_deadline(successor)).min();
        let successor = successor.filter(|_| self.gaps.is_empty());
        let outlived = self.successors.iter().filter_map(|successor| self.outlived_at(successor)).min();
        let silence = |last: Option<Nanos>, is_silent: bool| {
            last.filter(|_| !is_silent).map(|last| Nanos(last.0.saturating_add(self.options.silence_ns)))
        };
        let lines = self.lines[..2].iter().filter_map(|line| silence(line.last, line.is_silent)).min();
        [gaps, self.retry.due(), successor, outlived, lines, silence(self.last, self.is_silent)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Processes a packet of a line; retransmissions come as [`Line::Recovery`].
    ///
    /// # Errors
    /// Returns an error for a payload shorter than the transport's header; the packet is counted and changes nothing. A packet
    /// that does not continue the sequence and whose messages do not match its header is counted in the same way, but is not an
    /// error.
    pub fn packet(
        &mut self,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Result<(), DecodeError> {
        let header = match self.dialect.transport.header(payload) {
            Ok(header) => header,
            Err(error) => {
                if line == Line::Recovery && self.is_unavailable(received, payload, deliver) {
                    return Ok(());
                }
                self.lines[place(line)].counters.malformed += 1;
                return Err(error);
            }
        };
        let packet = Incoming { header, line, received, payload };
        if line == Line::Recovery {
            self.answer(&packet, deliver);
        } else if self.session == Some(header.session) || self.other_session(&packet, deliver) {
            self.of_session(&packet, deliver);
        }
        Ok(())
    }

    /// Marks the last `unread` messages of the packet just delivered by [`Arbiter::packet`] or [`Arbiter::next_packet`] as
    /// missing, because the consumer could not read them. Only an in-order packet of line A or B can have such messages.
    #[cold]
    pub fn cannot_read(&mut self, line: Line, unread: u64) {
        let Some(next) = self.next else { return };
        let first = next.saturating_sub(unread);
        self.next = Some(first);
        self.counters.messages = self.counters.messages.saturating_sub(unread);
        self.lines[place(line)].cannot_read(first, next);
    }

    /// Returns when the sequence last advanced, or a heartbeat last confirmed its position.
    const fn stood(&self) -> Nanos {
        if self.advanced.0 > self.confirmed.0 { self.advanced } else { self.confirmed }
    }

    /// Returns whether a packet is a copy of a delivered one. With two lines every second packet is a copy; its messages are not
    /// walked.
    #[inline]
    fn is_known(&self, packet: &Incoming<'_>) -> bool {
        let Incoming { header, received, payload, .. } = *packet;
        self.next.is_some_and(|next| header.first < next && header.end() <= next)
            && !header.is_end_of_session
            && !self.is_silent
            && self.given_up.end_by(header.first)
            && !self.run.is_next_day(received)
            && self.run.is_copy(self.dialect.transport, header.first, payload)
    }

    /// Returns whether a packet's messages match its header.
    #[cold]
    #[inline(never)]
    fn is_whole(&self, payload: &[u8]) -> bool {
        self.dialect.transport.is_sound(payload)
    }

    /// Returns whether a packet has a message of an unknown type, or one that cannot be decoded.
    #[cold]
    fn has_unreadable(&self, payload: &[u8]) -> bool {
        let mut is_any = false;
        self.dialect.transport.each_message(payload, |_, message| {
            is_any |= (self.dialect.check)(message).is_err();
        });
        is_any
    }

    /// Returns whether an answer to a request brings missing messages. Any other answer would only change counters in
    /// [`Arbiter::packet`], so the caller may discard it: a server that repeats itself, or sends messages that were never
    /// requested, then costs no memory and no room in a journal.
    #[cold]
    pub fn usefulness_of_answer(&self, payload: &[u8]) -> Usefulness {
        match self.dialect.transport.header(payload) {
            Ok(header) => self.usefulness(&header, payload),
            Err(_) if self.dialect.transport.unavailable(payload).is_none() => Usefulness::Malformed,
            Err(_) if self.gaps.is_empty() && self.retry.due().is_none() => Usefulness::Unneeded,
            Err(_) => Usefulness::Needed,
        }
    }

    fn usefulness(&self, header: &Header, payload: &[u8]) -> Usefulness {
        // Unreadable messages stay missing: if they counted as recovered, the books would be wrong without a flag.
        let is_readable = || !self.has_unreadable(payload) || planted!("unreadable-answer-recovered");
        if !self.dialect.transport.is_sound(payload) || !is_readable() {
            return Usefulness::Malformed;
        }
        if self.session != Some(header.session) {
            return Usefulness::OtherSession;
        }
        let numbers = header.numbers();
        let is_needed = match self.next {
            None => false,
            // Some servers send a packet without messages when they no longer have the requested ones.
            Some(_) if numbers.is_empty() => !header.is_end_of_session && !self.gaps.is_empty(),
            Some(next) if numbers.end <= next => {
                self.given_up.within(&numbers).next().is_some() || self.retry.awaits(&numbers)
            }
            Some(_) => self.gaps.requests_any_of(&numbers),
        };
        if is_needed { Usefulness::Needed } else { Usefulness::Unneeded }
    }

    /// Processes an answer: its messages were requested, had been given up, or are duplicates.
    #[cold]
    #[inline(never)]
    fn answer(&mut self, packet: &Incoming<'_>, deliver: &mut impl FnMut(Delivery<'_>)) {
        let Incoming { header, received: now, payload, .. } = *packet;
        let usefulness = self.usefulness(&header, payload);
        let counters = &mut self.lines[place(Line::Recovery)].counters;
        counters.count_discarded(usefulness);
        if usefulness == Usefulness::Malformed {
            return;
        }
        counters.packets += 1;
        counters.messages += header.count;
        if usefulness != Usefulness::Needed {
            return;
        }
        let Some(next) = self.next.filter(|_| header.count > 0) else {
            if !self.is_not_kept(header.first, now, deliver) {
                self.lines[place(Line::Recovery)].counters.unrequested += 1;
            }
            return;
        };
        let numbers = header.numbers();
        if numbers.end <= next {
            self.take(packet, deliver);
            return;
        }
        self.brought_by_answer(&numbers, now);
        if header.first <= next {
            self.take(packet, deliver);
        } else {
            self.hold(packet, deliver);
        }
        self.go_on(now, deliver);
    }

    /// Handles an answer that reports messages as no longer available. Returns `false` for any other payload.
    #[cold]
    #[inline(never)]
    fn is_unavailable(&mut self, now: Nanos, payload: &[u8], deliver: &mut impl FnMut(Delivery<'_>)) -> bool {
        let Some(numbers) = self.dialect.transport.unavailable(payload) else { return false };
        self.retry.remove(&numbers, now);
        let is_any = self.not_available(&numbers, now, deliver);
        let counters = &mut self.lines[place(Line::Recovery)].counters;
        counters.packets += 1;
        counters.unrequested += u64::from(!is_any);
        true
    }

    /// Accepts a packet of line A or B if it is next in sequence and nothing is pending. Otherwise returns `false` and changes
    /// nothing; pass the packet to [`Arbiter::packet`].
    ///
    /// The caller forwards the messages, which it has already parsed: there is no [`Delivery`].
    #[inline]
    pub fn next_packet<T: Transport>(
        &mut self,
        read: &tapeworks_session::Packet<'_, T::Prefix>,
        line: Line,
        received: Nanos,
        payload: &[u8],
    ) -> bool {
        debug_assert_eq!(T::KIND, self.dialect.transport);
        let is_next = line != Line::Recovery
            && self.session == Some(read.header.session)
            && self.is_in_order(&read.header);
        if is_next {
            self.advance_past(&read.header, line, received);
            if let Some(Ok(message)) = read.blocks.clone().next() {
                self.run.note(read.header.first, T::sent_ns(payload), message, received);
            }
        }
        is_next
    }

    /// Returns whether a packet of the session is next in sequence and nothing is pending.
    #[inline]
    fn is_in_order(&self, header: &Header) -> bool {
        self.next == Some(header.first)
            && header.count > 0
            && self.held.is_empty()
            && self.suspects.is_empty()
            && !self.is_silent
            && !header.is_end_of_session
    }

    /// Advances past an in-order packet.
    #[inline]
    fn advance_past(&mut self, header: &Header, line: Line, received: Nanos) {
        let count = header.count;
        let of_line = &mut self.lines[place(line)];
        of_line.see(header, received);
        of_line.counters.won += count;
        self.last = Some(received);
        self.next = Some(header.end());
        self.advanced = received;
        self.counters.messages += count;
    }

    /// Processes a packet of the current session.
    fn of_session(&mut self, packet: &Incoming<'_>, deliver: &mut impl FnMut(Delivery<'_>)) {
        let Incoming { header, line, received, payload } = *packet;
        if self.is_in_order(&header) {
            self.advance_past(&header, line, received);
            self.run.note_payload(self.dialect.transport, header.first, payload, received);
            deliver(Delivery::Packet { line, received, payload, header });
            return;
        }
        self.not_in_order(packet, deliver);
    }

    /// Processes a packet that is not next in sequence, or that arrives while something is pending: checks its framing and its
    /// number first.
    #[cold]
    #[inline(never)]
    fn not_in_order(&mut self, packet: &Incoming<'_>, deliver: &mut impl FnMut(Delivery<'_>)) {
        let Incoming { header, line, received, payload } = *packet;
        if !self.is_known(packet) {
            if !self.is_whole(payload) && !planted!("unsound-behind-a-gap") {
                self.lines[place(line)].counters.malformed += 1;
                return;
            }
            if !self.is_of_run(packet, deliver) {
                return;
            }
            if self.next.is_some_and(|next| header.first > next.saturating_add(MOST_AHEAD)) {
                self.implausible(&header, line, received, deliver);
                return;
            }
        }
        self.lines[place(line)].see(&header, received);
        // An old packet is no sign of life: copies of a session keep coming for a while after another has replaced it.
        let end = header.end();
        let reach = self.next.map(|next| if self.held.is_empty() { next } else { next.max(self.reach) });
        // Some heartbeats have the number 0.
        let is_current = |reach| end > reach || header.count == 0 && (end == reach || header.first == 0);
        if reach.is_none_or(is_current) {
            self.last = Some(received);
        }
        self.out_of_order(packet, deliver);
    }

    /// Returns whether a sound packet that is not next in sequence belongs to the current run. The first packets of another run
    /// are held until confirmed; the new run then begins with them.
    fn is_of_run(&mut self, packet: &Incoming<'_>, deliver: &mut impl FnMut(Delivery<'_>)) -> bool {
        let Incoming { header, line, received, payload } = *packet;
        // While joining, only the held packets show where the run is.
        let reached = self.next.or_else(|| self.held_to());
        let may_restart = |next: &u64| *next != header.first && !self.options.restarts_rename;
        let Some(next) = reached.filter(may_restart) else {
            self.refuse_suspects();
            return true;
        };
        let old = header.first..header.end().min(next);
        let evidence = Evidence { header, payload, received, dialect: self.dialect };
        let is_missing = !old.is_empty()
            && (self.given_up.within(&old).next().is_some() || self.is_joining && self.is_between_held(&old));
        if is_missing && self.run.may_be_late(&evidence) {
            self.run.note_late(&evidence);
            return true;
        }
        match self.run.judge(&evidence, next) {
            Verdict::OfRun => {
                if header.end() > next {
                    self.refuse_suspects();
                }
                if header.count == 0 {
                    self.run.note_heartbeat(received, header.is_end_of_session);
                }
                true
            }
            Verdict::Past | Verdict::CopyOfSuspect => {
                self.lines[place(line)].counters.duplicate += header.count;
                false
            }
            Verdict::Differs | Verdict::Undecided => {
                self.lines[place(line)].counters.implausible += 1;
                self.refuse_suspects();
                false
            }
            Verdict::Suspect { continues } => {
                if !continues {
                    self.drop_suspects();
                }
                let held = self.copy_of(packet);
                self.suspects.push(held);
                false
            }
            Verdict::Restart => {
                self.restart(packet, deliver);
                false
            }
        }
    }

    /// Returns whether the first of these numbers lies in a gap between two packets held while joining.
    fn is_between_held(&self, numbers: &Range<u64>) -> bool {
        let at = self.held.partition_point(|held| held.header.first <= numbers.start);
        let before = at.checked_sub(1).and_then(|before| self.held.get(before));
        before.is_some_and(|before| before.header.end() <= numbers.start)
    }

    /// Follows the numbers from 1, because the venue restarted them: begins with the suspects and this packet.
    #[cold]
    fn restart(&mut self, packet: &Incoming<'_>, deliver: &mut impl FnMut(Delivery<'_>)) {
        let Incoming { header, received, .. } = *packet;
        self.counters.sequence_resets += 1;
        let suspects = std::mem::take(&mut self.suspects);
        self.deliver_the_rest(received, deliver);
        let run = self.run.next_run(self.next.unwrap_or_default());
        // Any snapshot still wanted was for the run that has ended.
        self.wants_snapshot = false;
        self.begin(header.session, 1, received, deliver);
        self.run = run;
        for held in suspects {
            self.held_bytes -= held.payload.len();
            if held.header.end() <= header.first {
                self.of_session(&held.incoming(), deliver);
            }
            self.let_go(held.payload);
        }
        self.of_session(packet, deliver);
    }

    /// Refuses the packets that might have begun a restart, because nothing confirmed them.
    fn refuse_suspects(&mut self) {
        self.run.refuse_suspects();
        self.drop_suspects();
    }

    fn drop_suspects(&mut self) {
        for held in std::mem::take(&mut self.suspects) {
            if self.run.repeats(self.dialect.transport, held.header.first, &held.payload) {
                self.lines[place(held.line)].counters.duplicate += held.header.count;
                self.drop_held(held);
            } else {
                self.drop_stray([held]);
            }
        }
    }

    fn out_of_order(&mut self, packet: &Incoming<'_>, deliver: &mut impl FnMut(Delivery<'_>)) {
        let Incoming { header, received, .. } = *packet;
        if header.is_end_of_session {
            self.counters.ends_of_session += u64::from(self.end.is_none());
            self.end = Some(header.first);
        }
        let Some(next) = self.next else {
            self.hold(packet, deliver);
            return;
        };
        let is_gap_open = !self.gaps.is_empty();
        if is_gap_open {
            self.brought_by_line(&header.numbers(), received);
        }
        if header.first > next {
            self.hold(packet, deliver);
        } else {
            if !is_gap_open {
                self.heard(received, deliver);
            }
            self.take(packet, deliver);
            self.go_on(received, deliver);
        }
    }

    #[cold]
    #[inline(never)]
    fn implausible(
        &mut self,
        header: &Header,
        line: Line,
        received: Nanos,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        self.lines[place(line)].counters.implausible += 1;
        // The lines have brought nothing else for a while, so the number is right and the sequence continues from it.
        if received.since(self.stood()) > self.options.silence_ns {
            self.counters.sequence_resets += 1;
            self.deliver_the_rest(received, deliver);
            self.begin(header.session, 1, received, deliver);
            self.pass_over(header.first, GapReason::Jump, received, deliver);
        }
    }

    /// Gives up all messages before `first`.
    fn pass_over(
        &mut self,
        first: u64,
        reason: GapReason,
        now: Nanos,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        let Some(next) = self.next.filter(|next| *next < first) else { return };
        let count = first - next;
        self.counters.gaps += 1;
        // No earlier packet of the session has arrived.
        let is_late = next == 1 && reason == GapReason::NoServer;
        let reason = if is_late { GapReason::JoinedLate } else { reason };
        self.counters.gaps_by[reason as usize] += 1;
        self.counters.missing = self.counters.missing.saturating_add(count);
        self.forgotten = self.forgotten.saturating_add(self.given_up.insert(next..first).1);
        if matches!(reason, GapReason::Attempts | GapReason::TimeLimit) {
            self.retry.add(next..first, now);
        }
        self.wants_snapshot = true;
        self.next = Some(first);
        deliver(Delivery::Gap { missing: (next, count), now });
    }

    /// Ends the silence if a line ended it and no message is missing. An answer from a server does not end it.
    fn heard(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        if self.last.is_some() && std::mem::replace(&mut self.is_silent, false) {
            deliver(Delivery::Heard { now });
        }
    }

    /// Delivers a packet that starts at or before the next message.
    fn take(&mut self, packet: &Incoming<'_>, deliver: &mut impl FnMut(Delivery<'_>)) {
        let Incoming { header, line, received, payload } = *packet;
        let next = self.next.unwrap_or(header.first);
        let end = header.end();
        debug_assert!(header.first <= next, "a packet is delivered before what precedes it");
        let old = header.first..end.min(next);
        let counters = &mut self.lines[place(line)].counters;
        if old.start < old.end {
            // Usually empty, and then nothing is allocated.
            let numbers: Vec<_> = self.given_up.within(&old).collect();
            let (late, forgotten) = self.given_up.remove_within_limit(old.clone());
            self.forgotten = self.forgotten.saturating_add(forgotten);
            self.retry.remove(&old, received);
            counters.late += late;
            counters.duplicate += old.end - old.start - late;
            self.counters.late += late;
            if late > 0 {
                self.came_late = received;
                deliver(Delivery::Late { payload, header, numbers: &numbers });
            }
        }
        if end > next || header.count == 0 && header.first == next {
            counters.won += end - next;
            self.counters.messages += end - next;
            if line == Line::Recovery && planted!("recovered-counted-twice") {
                self.counters.messages += end - next;
            }
            self.next = Some(end);
            *if header.count > 0 { &mut self.advanced } else { &mut self.confirmed } = received;
            if header.first == next {
                self.run.note_payload(self.dialect.transport, header.first, payload, received);
            }
            deliver(Delivery::Packet { line, received, payload, header });
        }
    }

    /// Holds a packet that is after a sequence gap, or that arrives while joining.
    fn hold(&mut self, packet: &Incoming<'_>, deliver: &mut impl FnMut(Delivery<'_>)) {
        let Incoming { header, line, received, payload } = *packet;
        let end = header.end();
        // Most packets go to the back.
        let at = self.held.partition_point(|held| held.header.first <= header.first);
        let is_known = self
            .held
            .iter()
            .take(at)
            .rev()
            .take(64)
            .any(|held| held.header.first <= header.first && held.header.end() >= end);
        if is_known {
            self.lines[place(line)].counters.duplicate += header.count;
            return;
        }
        if !self.is_joining {
            self.open_gap(header.first, received);
            self.reach = if self.held.is_empty() { end } else { self.reach.max(end) };
        } else if self.held_to().is_none_or(|reach| reach <= header.first) {
            self.run.note_payload(self.dialect.transport, header.first, payload, received);
        }
        let held = self.copy_of(packet);
        self.held.insert(at, held);
        if self.held_bytes > self.options.held_bytes || self.gaps.len() > MOST_GAPS {
            self.counters.overflows += 1;
            if self.is_joining {
                // The snapshot takes too long. The packets held first would be needed most, so none is dropped.
                self.join_without_snapshot(received, deliver);
            } else {
                self.give_up(GapReason::HeldBytes, received, deliver);
                // The next gap may be over already, and there is room for other requests.
                self.work_on_gaps(received, false, deliver);
            }
        } else if self.gap_deadline().is_some_and(|deadline| received >= deadline) {
            self.advance_to_packet(received, deliver);
        }
    }

    /// Copies a packet, into a reused buffer if there is one.
    fn copy_of(&mut self, packet: &Incoming<'_>) -> Held {
        let Incoming { header, line, received, payload } = *packet;
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(payload);
        self.held_bytes += payload.len();
        Held { header, line, received, payload: copy }
    }

    /// Returns a finished packet's buffer for reuse.
    fn let_go(&mut self, payload: Vec<u8>) {
        if self.spare.len() < MOST_SPARE {
            self.spare.push(payload);
        }
    }

    fn drop_held(&mut self, held: Held) {
        self.held_bytes -= held.payload.len();
        self.let_go(held.payload);
    }

    /// Delivers the held packets up to the first gap.
    fn release(&mut self, deliver: &mut impl FnMut(Delivery<'_>)) {
        while let Some(next) = self.next
            && let Some(held) = self.held.pop_front_if(|held| held.header.first <= next)
        {
            self.held_bytes -= held.payload.len();
            self.take(&held.incoming(), deliver);
            self.let_go(held.payload);
        }
    }

    /// Advances time to `now`: ends reorder windows, times out requests, and detects silent lines.
    pub fn advance(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        self.pass(now, true, deliver);
    }

    /// Advances time to `now`, the receive time of an upcoming packet: like [`Arbiter::advance`], but no request times out.
    pub fn advance_to_packet(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        self.pass(now, false, deliver);
    }

    fn pass(&mut self, now: Nanos, is_tick: bool, deliver: &mut impl FnMut(Delivery<'_>)) {
        if !self.gaps.is_empty() {
            self.work_on_gaps(now, is_tick, deliver);
        }
        if let (true, Some(options)) = (is_tick, &self.options.retransmission) {
            self.retry.advance(now, options.messages_per_request);
        }
        if self.has_successor() {
            self.work_on_successors(now, deliver);
        }
        let silence_ns = self.options.silence_ns;
        let is_late = |last: Option<Nanos>| last.is_some_and(|last| now.since(last) >= silence_ns);
        for line in &mut self.lines[..2] {
            if !line.is_silent && is_late(line.last) {
                if planted!("dead-line-unnoticed") {
                    line.last = None;
                    continue;
                }
                line.is_silent = true;
                line.counters.silences += 1;
            }
        }
        if !self.is_silent && is_late(self.last) {
            // Silence after the end of a session is normal.
            if self.end.is_none() && self.next.is_some() {
                self.is_silent = true;
                self.counters.silences += 1;
                deliver(Delivery::Silent { now });
            }
            self.drop_those_gone();
            self.last = None;
        }
    }

    /// Returns the given-up numbers that have not arrived since.
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.given_up.iter()
    }

    /// Returns whether all given-up messages have arrived late. The sequence must have advanced since then, because a venue that
    /// restarts its numbers sends such numbers too, but not the next one.
    pub fn is_complete(&self) -> bool {
        self.given_up.is_empty() && self.forgotten == 0 && self.came_late < self.stood()
    }

    /// Forgets the given-up messages, because a snapshot replaces them.
    pub fn forget_missing(&mut self) {
        self.given_up.clear();
        self.retry.clear();
        self.forgotten = 0;
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_session::TransportKind;

    use super::*;

    #[test]
    fn a_state_with_a_wrong_byte_count_is_not_sound() {
        let mut arbiter = Arbiter::new(TransportKind::MoldUdp64, ArbiterOptions::default());
        let session = SessionId::MoldUdp64(*b"0123456789");
        let header = Header { session, first: 9, count: 1, is_end_of_session: false };
        let packet = Incoming { header, line: Line::A, received: Nanos(1), payload: &[1, 2, 3] };
        let held = arbiter.copy_of(&packet);
        arbiter.held.push_back(held);
        assert!(arbiter.is_sound());
        for wrong in [2, 4] {
            // Otherwise removing the held packets would underflow the count, or leave bytes over.
            arbiter.held_bytes = wrong;
            assert!(!arbiter.is_sound());
        }
    }
}
