//! Makes one sequence of lines A and B and of retransmissions.
//!
//! An [`Arbiter`] follows one channel. It takes the first copy of each message, from either line. Behind a sequence gap it
//! holds the packets that come, in order. Between them there may be further gaps. For each it
//!
//! 1. waits a reorder window: the other line, or a packet that was overtaken, may fill the gap;
//! 2. requests the missing messages, several requests at a time for all gaps together, as long as answers bring missing messages,
//!    within limits in messages and time for each gap ([`RetransmissionOptions`]);
//! 3. gives the gap up: it hands on the packets that it holds, the consumer sees the numbers jump, and the channel requests a
//!    snapshot if it has a server.
//!
//! An answer may come late, twice, out of order, or in part. The arbiter counts an answer without a missing message, of another
//! session, or with fewer messages than it says; such an answer changes nothing.
//!
//! It has no clock and no socket: times come with the packets and with [`Arbiter::advance`], and the caller sends the requests. Same
//! input, same output.
//!
//! # Damage
//! A packet that does not continue the sequence is followed only if it is sound: its messages are what its header says, to the last
//! byte. Any other is counted and changes nothing: no session begins or ends by it, no number is reset, nothing waits for what it
//! claims. A packet in order is not looked at twice: the consumer reads its messages anyway, and reports those that it cannot read
//! ([`Arbiter::cannot_read`]). They are missing then, as if they had not been sent.
//!
//! A sound packet of another session does not end the session that is followed: [`ArbiterOptions::silence_ns`].
//!
//! # Cost
//! A packet in order costs the header's line and some ten compares (of its session, its place in the channel and on its line).
//! Only packets behind a sequence gap are copied, into reused buffers.

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
use tapeworks_session::{Header, Request, SessionId, Transport, TransportKind};
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;

use crate::ranges::Ranges;
use crate::recovery::OpenGaps;
use crate::run::{Dialect, Evidence, Run, Verdict};
use crate::sequence::MOST_AHEAD;
use crate::table::Application;
use line::LineFollower;
use retry::Retry;
use session::{Past, Successor};

pub use crate::recovery::{GapReason, RetransmissionOptions};
pub use counters::{ArbiterCounters, LineCounters, RecoveryReport, Usefulness};

/// Most buffers of packets that are kept for reuse.
const MOST_SPARE: usize = 1024;

/// Most sequence gaps of a channel that are open at the same time. Beyond it the first is given up, as beyond
/// [`ArbiterOptions::held_bytes`].
const MOST_GAPS: usize = 1 << 16;

/// Lines of a channel: A, B, and retransmissions ([`Line::Recovery`]).
pub const LINES: usize = 3;

/// Where a channel begins at its first packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Join {
    /// With the session's first message: messages before the first packet are a sequence gap like any other.
    #[default]
    Beginning,
    /// With a snapshot, unless the session has just begun.
    Snapshot,
    /// With the first packet; no earlier message is missing. Later sessions begin with their first message.
    FirstHeard,
}

/// How a channel is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArbiterOptions {
    /// How long a sequence gap may be filled by the other line or by a packet that was overtaken, in ns.
    pub reorder_window_ns: u64,
    /// Retransmission requests; `None` where there is no server for them.
    pub retransmission: Option<RetransmissionOptions>,
    /// Bytes of payload held behind a sequence gap or while joining, at most. Beyond it the arbiter gives the sequence gap up. It must
    /// hold the packets that come while a sequence gap is filled.
    pub held_bytes: usize,
    /// A line, or the channel, that brings nothing for so long is silent, in ns; venues send heartbeats about once a
    /// second. Another session follows when the one before has said its end, or has brought nothing for so long: half of it, if the
    /// other is there from its first message on.
    pub silence_ns: u64,
    /// Where a channel that is joined in mid-session begins.
    pub join: Join,
    /// A publisher that numbers from 1 again takes another session name, as a plant's own does: an old number is a late copy on every
    /// day. Venues restart under the same name.
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
    /// A packet that continues the sequence, or a heartbeat. Its first messages may have been handed on already, and messages
    /// before it may have been given up.
    Packet {
        /// The line that brought it first.
        line: Line,
        /// When.
        received: Nanos,
        /// The transport's header and the messages.
        payload: &'a [u8],
        /// What the header says.
        header: Header,
    },
    /// A packet with messages that were given up before.
    Late {
        /// The transport's header and the messages.
        payload: &'a [u8],
        /// What the header says.
        header: Header,
        /// The numbers of those messages. The others came before, or come in their order: the packet is handed on for those next.
        numbers: &'a [Range<u64>],
    },
    /// The messages are given up: the next packet lies behind them.
    Gap {
        /// Their numbers.
        missing: (u64, u64),
        /// When they were given up.
        now: Nanos,
    },
    /// A session begins, with the message numbered so.
    Session {
        /// The session.
        session: SessionId,
        /// The first number.
        first: u64,
        /// When.
        now: Nanos,
    },
    /// A session was joined in its middle: it gives no events before a snapshot.
    Joining {
        /// When.
        now: Nanos,
    },
    /// No packet came for too long: the books may be stale.
    Silent {
        /// When.
        now: Nanos,
    },
    /// Packets come again, and none was missed.
    Heard {
        /// When.
        now: Nanos,
    },
}

/// A packet that waits.
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
    /// The first number behind it.
    const fn end(&self) -> u64 {
        self.header.first.saturating_add(self.header.count)
    }
}

/// Makes one sequence of a channel's lines: see the [module](self).
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub struct Arbiter {
    transport: TransportKind,
    /// The feed whose sessions are followed; `None`: every session of the transport.
    application: Option<Application>,
    #[cfg_attr(feature = "serde", serde(skip))]
    options: ArbiterOptions,
    session: Option<SessionId>,
    /// The number of the next message; `None` before the first packet and while joining.
    next: Option<u64>,
    is_joining: bool,
    /// The session said where it ends.
    end: Option<u64>,
    lines: [LineFollower; LINES],
    /// Packets behind a sequence gap, by number; while joining, all.
    held: VecDeque<Held>,
    held_bytes: usize,
    /// The first number behind all held packets, while there are any.
    reach: u64,
    /// The sequence gaps before and between the held packets.
    gaps: OpenGaps,
    given_up: Ranges,
    retry: Retry,
    /// Numbers given up that are no longer remembered.
    forgotten: u64,
    /// Sessions that may follow.
    successors: Vec<Successor>,
    /// Distinguishes copies from a restart.
    run: Run,
    /// Packets that may begin a restart: see [`Run`].
    suspects: Vec<Held>,
    /// The sessions that were followed before, the last one last.
    past: Vec<Past>,
    /// When the session was joined: right before its first packet.
    began: Nanos,
    /// When the sequence last went on by a message.
    advanced: Nanos,
    /// When a heartbeat last confirmed where it is.
    confirmed: Nanos,
    /// When a message that had been given up last came.
    came_late: Nanos,
    /// When a line last brought a packet of the session that was not an old one; `None` if the silence since then is known.
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
    /// A channel of a feed before its first packet. Sessions of other feeds are counted and not followed.
    pub fn of_feed(application: Application, options: ArbiterOptions) -> Self {
        Self { application: Some(application), ..Self::new(application.transport(), options) }
    }

    /// A channel of any session of a transport before its first packet.
    pub fn new(transport: TransportKind, options: ArbiterOptions) -> Self {
        Self {
            transport,
            application: None,
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

    /// A restored arbiter with the options of `other`. `None` when it is of another transport or feed.
    #[cfg(feature = "serde")]
    pub(crate) fn with_options_of(mut self, other: &Self) -> Option<Self> {
        self.options = other.options;
        if !self.is_complete() && planted!("given-up-not-saved") {
            self.forget_missing();
        }
        (self.transport == other.transport && self.application == other.application).then_some(self)
    }

    /// Whether a restored state is valid.
    #[cfg(feature = "serde")]
    pub(crate) fn is_sound(&self) -> bool {
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

    /// Whether the open gaps are what the held packets leave out.
    #[cfg(feature = "serde")]
    fn are_gaps_sound(&self) -> bool {
        let Some(next) = self.next else { return self.gaps.is_sound(std::iter::empty()) };
        let mut reach = next;
        let mut missing = Vec::new();
        for held in &self.held {
            missing.extend(Some(reach..held.header.first).filter(|missing| !missing.is_empty()));
            reach = reach.max(held.end());
        }
        (self.held.is_empty() || self.reach == reach) && self.gaps.is_sound(missing.into_iter())
    }

    /// The session; `None` before the first packet.
    pub const fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// The number of the next message; `None` before the first packet and while it waits for a snapshot to begin from.
    pub const fn next(&self) -> Option<u64> {
        self.next
    }

    /// The channel's counters.
    pub const fn counters(&self) -> &ArbiterCounters {
        &self.counters
    }

    /// The counters of lines A and B and of the retransmissions.
    pub fn lines(&self) -> [LineCounters; LINES] {
        [self.lines[0].counters, self.lines[1].counters, self.lines[2].counters]
    }

    /// Whether a line is silent: it brought packets once, and none for a while.
    pub fn is_line_silent(&self, line: Line) -> bool {
        self.lines[place(line)].is_silent
    }

    /// Whether the whole channel is silent.
    pub const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Whether it waits for a snapshot to begin from.
    pub const fn is_joining(&self) -> bool {
        self.is_joining
    }

    /// Whether something is missing and it waits for it or requests it.
    pub fn is_recovering(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Since when the first messages that are requested have been missing; `None` if none are requested.
    pub fn recovering_since(&self) -> Option<Nanos> {
        self.gaps.requested_since()
    }

    /// The number behind the last packet that is held; `None`: none is.
    pub(crate) fn held_to(&self) -> Option<u64> {
        self.held.back().map(Held::end)
    }

    /// The payloads of the held packets, in the order of their numbers.
    pub(crate) fn held_payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.held.iter().map(|held| held.payload.as_slice())
    }

    /// The number after the last message that a line delivered or a heartbeat announced; `None`: nothing came.
    pub(crate) fn heard_to(&self) -> Option<u64> {
        self.held_to().max(self.next)
    }

    /// Packets held behind a sequence gap, while joining, or of sessions that may follow.
    pub fn held_packets(&self) -> usize {
        self.held.len()
            + self.suspects.len()
            + self.successors.iter().map(|successor| successor.packets.len()).sum::<usize>()
    }

    /// Whether packets of another session wait.
    #[inline]
    pub const fn has_successor(&self) -> bool {
        !self.successors.is_empty()
    }

    /// The last requested gap that was filled or given up, of those that had a thousand messages or took a second.
    pub const fn last_recovery(&self) -> Option<&RecoveryReport> {
        self.last_recovery.as_ref()
    }

    /// The next request to send, if there is one. There may be several: take them until there is none.
    pub fn take_request(&mut self) -> Option<Request> {
        let session = self.session?;
        let wanted = self.gaps.take_request().or_else(|| self.retry.take())?;
        self.counters.requests += 1;
        let count = (wanted.end - wanted.start).min(u64::from(u16::MAX - 1)) as u16;
        Some(Request { session, first: wanted.start, count })
    }

    /// Whether a snapshot is wanted, since the last call: the channel was joined in mid-session, or messages were given up.
    pub const fn take_snapshot_request(&mut self) -> bool {
        std::mem::replace(&mut self.wants_snapshot, false)
    }

    /// The earliest time at which [`Arbiter::advance`] has something to do.
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

    /// Takes a packet of a line; retransmissions come as [`Line::Recovery`].
    ///
    /// # Errors
    /// A payload shorter than the transport's header; it is counted and changes nothing. A packet that does not continue the sequence
    /// and whose messages are not what its header says is counted in the same way, and no error.
    pub fn packet(
        &mut self,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Result<(), DecodeError> {
        let header = match self.transport.header(payload) {
            Ok(header) => header,
            Err(error) => {
                if line == Line::Recovery && self.is_unavailable(received, payload, deliver) {
                    return Ok(());
                }
                self.lines[place(line)].counters.malformed += 1;
                return Err(error);
            }
        };
        if line == Line::Recovery {
            self.answer(&header, received, payload, deliver);
            return Ok(());
        }
        if self.session != Some(header.session)
            && !self.other_session(&header, line, received, payload, deliver)
        {
            return Ok(());
        }
        self.of_session(&header, line, received, payload, deliver);
        Ok(())
    }

    /// The consumer could not read the last `unread` messages of the packet that [`Arbiter::packet`] or [`Arbiter::next_packet`] has just handed on: they are
    /// missing. Only a packet of line A or B that came in order can have such messages.
    #[cold]
    pub fn cannot_read(&mut self, line: Line, unread: u64) {
        let Some(next) = self.next else { return };
        let first = next.saturating_sub(unread);
        self.next = Some(first);
        self.counters.messages = self.counters.messages.saturating_sub(unread);
        self.lines[place(line)].cannot_read(first, next);
    }

    /// When the sequence last went on, or a heartbeat confirmed where it is.
    const fn stood(&self) -> Nanos {
        if self.advanced.0 > self.confirmed.0 { self.advanced } else { self.confirmed }
    }

    /// Whether a packet is a copy of one that was delivered. Of two lines every second packet is one, and is not walked.
    #[inline]
    fn is_known(&self, header: &Header, received: Nanos, payload: &[u8]) -> bool {
        let end = header.first.saturating_add(header.count);
        self.next.is_some_and(|next| header.first < next && end <= next)
            && !header.is_end_of_session
            && !self.is_silent
            && self.given_up.end_by(header.first)
            && !self.run.is_next_day(received)
            && self.run.is_copy(self.transport, header.first, payload)
    }

    /// Whether the messages of a packet are what its header says.
    #[cold]
    #[inline(never)]
    fn is_whole(&self, payload: &[u8]) -> bool {
        self.transport.is_sound(payload)
    }

    /// Whether a packet has a message of an unknown type, or one that cannot be decoded.
    #[cold]
    fn has_unreadable(&self, payload: &[u8]) -> bool {
        let Some(application) = self.application else { return false };
        let mut is_any = false;
        self.transport.each_message(payload, |_, message| {
            is_any |= (application.spec().check)(message).is_err();
        });
        is_any
    }

    /// Whether an answer to a request brings missing messages. [`Arbiter::packet`] would change nothing but counters for any other answer, so
    /// a caller may discard those: a server that repeats itself, or sends messages that were never requested, then costs no memory and no
    /// room in a journal.
    #[cold]
    pub fn usefulness_of_answer(&self, payload: &[u8]) -> Usefulness {
        match self.transport.header(payload) {
            Ok(header) => self.usefulness(&header, payload),
            Err(_) if self.transport.unavailable(payload).is_none() => Usefulness::Malformed,
            Err(_) if self.gaps.is_empty() && self.retry.due().is_none() => Usefulness::Unneeded,
            Err(_) => Usefulness::Needed,
        }
    }

    fn usefulness(&self, header: &Header, payload: &[u8]) -> Usefulness {
        // Unreadable messages stay missing: counted as recovered, they would leave wrong books without a flag.
        let is_readable = || !self.has_unreadable(payload) || planted!("unreadable-answer-recovered");
        if !self.transport.is_sound(payload) || !is_readable() {
            return Usefulness::Malformed;
        }
        if self.session != Some(header.session) {
            return Usefulness::OtherSession;
        }
        let numbers = header.first..header.first.saturating_add(header.count);
        let is_needed = match self.next {
            None => false,
            // Some servers answer that they no longer have the messages with a packet without any.
            Some(_) if numbers.is_empty() => !header.is_end_of_session && !self.gaps.is_empty(),
            Some(next) if numbers.end <= next => {
                self.given_up.within(&numbers).next().is_some() || self.retry.awaits(&numbers)
            }
            Some(_) => self.gaps.requests_any_of(&numbers),
        };
        if is_needed { Usefulness::Needed } else { Usefulness::Unneeded }
    }

    /// An answer to a request, if it is one. Its messages were requested, or were given up before, or are duplicates.
    #[cold]
    #[inline(never)]
    fn answer(
        &mut self,
        header: &Header,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        let now = received;
        let usefulness = self.usefulness(header, payload);
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
        let numbers = header.first..header.first.saturating_add(header.count);
        if numbers.end <= next {
            self.take(header, Line::Recovery, received, payload, deliver);
            return;
        }
        self.brought_by_answer(&numbers, now);
        if header.first <= next {
            self.take(header, Line::Recovery, received, payload, deliver);
        } else {
            self.hold(header, Line::Recovery, received, payload, deliver);
        }
        self.go_on(now, deliver);
    }

    /// An answer that the server does not have messages any more. `false`: it is none.
    #[cold]
    #[inline(never)]
    fn is_unavailable(&mut self, now: Nanos, payload: &[u8], deliver: &mut impl FnMut(Delivery<'_>)) -> bool {
        let Some(numbers) = self.transport.unavailable(payload) else { return false };
        self.retry.remove(&numbers, now);
        let is_any = self.not_available(&numbers, now, deliver);
        let counters = &mut self.lines[place(Line::Recovery)].counters;
        counters.packets += 1;
        counters.unrequested += u64::from(!is_any);
        true
    }

    /// Accepts a packet of line A or B if it is next in sequence and nothing is pending. Otherwise returns `false` and changes nothing; pass
    /// the packet to [`Arbiter::packet`].
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
        debug_assert_eq!(T::KIND, self.transport);
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

    /// Whether a packet of the session is the next one, with nothing in the way.
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
        self.next = Some(header.first.saturating_add(count));
        self.advanced = received;
        self.counters.messages += count;
    }

    /// A packet of the session.
    fn of_session(
        &mut self,
        header: &Header,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        if self.is_in_order(header) {
            self.advance_past(header, line, received);
            self.run.note_payload(self.transport, header.first, payload, received);
            deliver(Delivery::Packet { line, received, payload, header: *header });
            return;
        }
        self.not_in_order(header, line, received, payload, deliver);
    }

    /// A packet that is not the next one, or that something is in the way of: its framing and its number are checked first.
    #[cold]
    #[inline(never)]
    fn not_in_order(
        &mut self,
        header: &Header,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        if !self.is_known(header, received, payload) {
            if !self.is_whole(payload) && !planted!("unsound-behind-a-gap") {
                self.lines[place(line)].counters.malformed += 1;
                return;
            }
            if !self.is_of_run(header, line, received, payload, deliver) {
                return;
            }
            if self.next.is_some_and(|next| header.first > next.saturating_add(MOST_AHEAD)) {
                self.implausible(header, line, received, deliver);
                return;
            }
        }
        self.lines[place(line)].see(header, received);
        // An old packet is no sign of life: copies of a session come for a while after another has replaced it.
        let end = header.first.saturating_add(header.count);
        let reach = self.next.map(|next| if self.held.is_empty() { next } else { next.max(self.reach) });
        // Some heartbeats are numbered 0.
        let is_current = |reach| end > reach || header.count == 0 && (end == reach || header.first == 0);
        if reach.is_none_or(is_current) {
            self.last = Some(received);
        }
        self.out_of_order(header, line, received, payload, deliver);
    }

    /// Whether a sound packet that is not the next one belongs to the run that is followed. The first packets of another run are held
    /// until they are confirmed; then it begins with them.
    fn is_of_run(
        &mut self,
        header: &Header,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> bool {
        let end = header.first.saturating_add(header.count);
        // While joining, the packets held are all that is known of the run.
        let reached = self.next.or_else(|| self.held_to());
        let may_restart = |next: &u64| *next != header.first && !self.options.restarts_rename;
        let Some(next) = reached.filter(may_restart) else {
            self.refuse_suspects();
            return true;
        };
        let old = header.first..end.min(next);
        let dialect = Dialect::of(self.transport, self.application);
        let evidence = Evidence { header: *header, payload, received, dialect };
        let is_missing = !old.is_empty()
            && (self.given_up.within(&old).next().is_some() || self.is_joining && self.is_between_held(&old));
        if is_missing && self.run.may_be_late(&evidence) {
            self.run.note_late(&evidence);
            return true;
        }
        match self.run.judge(&evidence, next) {
            Verdict::OfRun => {
                if end > next {
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
                let held = self.copy_of(header, line, received, payload);
                self.suspects.push(held);
                false
            }
            Verdict::Restart => {
                self.restart(header, line, received, payload, deliver);
                false
            }
        }
    }

    /// Whether the first of these numbers lies in a gap between two packets held while joining.
    fn is_between_held(&self, numbers: &Range<u64>) -> bool {
        let at = self.held.partition_point(|held| held.header.first <= numbers.start);
        let before = at.checked_sub(1).and_then(|before| self.held.get(before));
        before.is_some_and(|before| before.end() <= numbers.start)
    }

    /// The venue has started the numbers over: follows them from 1, beginning with the suspects and this packet.
    #[cold]
    fn restart(
        &mut self,
        header: &Header,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        self.counters.sequence_resets += 1;
        let suspects = std::mem::take(&mut self.suspects);
        self.deliver_the_rest(received, deliver);
        let run = self.run.next_run(self.next.unwrap_or_default());
        // Whatever was wanted was to join the run that has ended.
        self.wants_snapshot = false;
        self.begin(header.session, 1, received, deliver);
        self.run = run;
        for held in suspects {
            self.held_bytes -= held.payload.len();
            if held.header.first.saturating_add(held.header.count) <= header.first {
                self.of_session(&held.header, held.line, held.received, &held.payload, deliver);
            }
            self.let_go(held.payload);
        }
        self.of_session(header, line, received, payload, deliver);
    }

    /// Nothing confirms the packets that may have begun a restart.
    fn refuse_suspects(&mut self) {
        self.run.refuse_suspects();
        self.drop_suspects();
    }

    fn drop_suspects(&mut self) {
        for held in std::mem::take(&mut self.suspects) {
            if self.run.repeats(self.transport, held.header.first, &held.payload) {
                self.lines[place(held.line)].counters.duplicate += held.header.count;
                self.drop_held(held);
            } else {
                self.drop_stray([held]);
            }
        }
    }

    fn out_of_order(
        &mut self,
        header: &Header,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        if header.is_end_of_session {
            self.counters.ends_of_session += u64::from(self.end.is_none());
            self.end = Some(header.first);
        }
        let Some(next) = self.next else {
            self.hold(header, line, received, payload, deliver);
            return;
        };
        let is_gap_open = !self.gaps.is_empty();
        if is_gap_open {
            self.brought_by_line(&(header.first..header.first.saturating_add(header.count)), received);
        }
        if header.first > next {
            self.hold(header, line, received, payload, deliver);
        } else {
            if !is_gap_open {
                self.heard(received, deliver);
            }
            self.take(header, line, received, payload, deliver);
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
        // The lines bring nothing else for a while: the number is right, and the sequence goes on from it.
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
        // No packet of the session came before.
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

    /// No message is missing: the silence is over if a line brought one. The answer of a server does not end it.
    fn heard(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        if self.last.is_some() && std::mem::replace(&mut self.is_silent, false) {
            deliver(Delivery::Heard { now });
        }
    }

    /// Takes a packet whose first message is the next one or one before it.
    fn take(
        &mut self,
        header: &Header,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        let next = self.next.unwrap_or(header.first);
        let end = header.first.saturating_add(header.count);
        let old = header.first..end.min(next);
        let counters = &mut self.lines[place(line)].counters;
        if old.start < old.end {
            // Mostly none, and then no memory is taken.
            let numbers: Vec<_> = self.given_up.within(&old).collect();
            let (late, forgotten) = self.given_up.remove_within_limit(old.clone());
            self.forgotten = self.forgotten.saturating_add(forgotten);
            self.retry.remove(&old, received);
            counters.late += late;
            counters.duplicate += old.end - old.start - late;
            self.counters.late += late;
            if late > 0 {
                self.came_late = received;
                deliver(Delivery::Late { payload, header: *header, numbers: &numbers });
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
                self.run.note_payload(self.transport, header.first, payload, received);
            }
            deliver(Delivery::Packet { line, received, payload, header: *header });
        }
    }

    /// Keeps a packet that lies behind a sequence gap, or that comes while joining.
    fn hold(
        &mut self,
        header: &Header,
        line: Line,
        received: Nanos,
        payload: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        let end = header.first.saturating_add(header.count);
        // Most packets belong behind the last.
        let at = self.held.partition_point(|held| held.header.first <= header.first);
        let is_known = self
            .held
            .iter()
            .take(at)
            .rev()
            .take(64)
            .any(|held| held.header.first <= header.first && held.end() >= end);
        if is_known {
            self.lines[place(line)].counters.duplicate += header.count;
            return;
        }
        if !self.is_joining {
            self.open_gap(header.first, received);
            self.reach = if self.held.is_empty() { end } else { self.reach.max(end) };
        } else if self.held_to().is_none_or(|reach| reach <= header.first) {
            self.run.note_payload(self.transport, header.first, payload, received);
        }
        let held = self.copy_of(header, line, received, payload);
        self.held.insert(at, held);
        if self.held_bytes > self.options.held_bytes || self.gaps.len() > MOST_GAPS {
            self.counters.overflows += 1;
            if self.is_joining {
                // The snapshot takes too long: what was held first would be needed most.
                self.join_without_snapshot(received, deliver);
            } else {
                self.give_up(GapReason::HeldBytes, received, deliver);
                // The next one may be over already, and requests are free for others.
                self.work_on_gaps(received, false, deliver);
            }
        } else if self.gap_deadline().is_some_and(|deadline| received >= deadline) {
            self.advance_to_packet(received, deliver);
        }
    }

    /// A copy of a packet, in a reused buffer if there is one.
    fn copy_of(&mut self, header: &Header, line: Line, received: Nanos, payload: &[u8]) -> Held {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(payload);
        self.held_bytes += payload.len();
        Held { header: *header, line, received, payload: copy }
    }

    /// A kept packet is finished: its buffer is free for reuse.
    fn let_go(&mut self, payload: Vec<u8>) {
        if self.spare.len() < MOST_SPARE {
            self.spare.push(payload);
        }
    }

    fn drop_held(&mut self, held: Held) {
        self.held_bytes -= held.payload.len();
        self.let_go(held.payload);
    }

    /// Hands on what is held, as far as there is no gap before it.
    fn release(&mut self, deliver: &mut impl FnMut(Delivery<'_>)) {
        while let Some(next) = self.next
            && let Some(held) = self.held.pop_front_if(|held| held.header.first <= next)
        {
            self.held_bytes -= held.payload.len();
            self.take(&held.header, held.line, held.received, &held.payload, deliver);
            self.let_go(held.payload);
        }
    }

    /// Time has come to `now`: ends reorder windows, times requests out, and finds silent lines.
    pub fn advance(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        self.pass(now, true, deliver);
    }

    /// A packet that is to come was received at `now`: as [`Arbiter::advance`], but no request times out.
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

    /// The numbers given up and not come since.
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.given_up.iter()
    }

    /// Whether all given-up messages came late. The sequence must have gone on since: a venue that numbers anew sends such numbers too, and
    /// others than the next.
    pub fn is_complete(&self) -> bool {
        self.given_up.is_empty() && self.forgotten == 0 && self.came_late < self.stood()
    }

    /// Forgets the given-up messages: a snapshot replaces them.
    pub fn forget_missing(&mut self) {
        self.given_up.clear();
        self.retry.clear();
        self.forgotten = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_with_a_wrong_byte_count_is_not_sound() {
        let mut arbiter = Arbiter::new(TransportKind::MoldUdp64, ArbiterOptions::default());
        let session = SessionId::MoldUdp64(*b"0123456789");
        let header = Header { session, first: 9, count: 1, is_end_of_session: false };
        let held = arbiter.copy_of(&header, Line::A, Nanos(1), &[1, 2, 3]);
        arbiter.held.push_back(held);
        assert!(arbiter.is_sound());
        for wrong in [2, 4] {
            // Otherwise removing the held packets would go below zero, or leave bytes over.
            arbiter.held_bytes = wrong;
            assert!(!arbiter.is_sound());
        }
    }
}
