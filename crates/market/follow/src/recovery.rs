//! The open sequence gaps of a channel, and the requests to the venue's retransmission server that fill them.
//!
//! A packet beyond all others opens a gap: the numbers before it that no packet has brought. [`OpenGaps`] holds the gaps in order
//! of their numbers, each with its missing messages. A gap waits for the lines until its reorder window is over. Then it is
//! requested, even if earlier gaps are still open: many consecutive small gaps await their answers together, and a lost answer
//! costs one timeout, not one per gap.
//!
//! A server answers a request with one packet: as many of the requested messages as fit, from the first on. So a gap is cut into
//! pieces, and several of them are requested simultaneously, starting with the first gap. The rest of a piece is requested as
//! soon as an answer has brought a part of it, and again if no answer comes in time. The number of pieces bounds the data in
//! flight, for all gaps together: 32 answers of 1,500 bytes fit the smallest receive buffer that Linux allocates. A piece lies
//! between two held packets. A line may bring messages from its middle; a repeated request includes those too. Covering two gaps
//! with one request would save nothing, because each answer is one packet, and would resend the messages between the gaps.
//!
//! Each gap has separate limits. It is given up when one of its requests has timed out `attempts` times and no request for the
//! gap has brought anything new meanwhile. The server may have discarded the beginning of a long gap, so before giving up, the
//! remaining pieces are requested from the end backwards. The messages that stay missing then form one range. A gap that is over
//! waits for the gaps before it: until then a line or a late answer may still fill it. The gaps after it carry on.
//!
//! A server may name the oldest message that it keeps ([`RetransmissionOptions::answers_name_oldest`]). Missing messages before
//! it are over immediately, and the requests continue with the rest of the gap.
//!
//! A server may answer a request with several packets, until it has sent all of its messages
//! ([`RetransmissionOptions::answers_in_parts`]). The rest of a piece is then not requested when a part arrives, but when no
//! further part arrives in time.
//!
//! Requests time out by the clock ([`Arbiter::advance`](crate::arbitration::Arbiter::advance)) and not by packet times: packets
//! queued in a socket arrive with old times, faster than time passes, and the answer may be queued after them.
//!
//! This module keeps numbers only, and never skips a missing message.
//!
//! # Cost
//! Each packet after a gap costs a binary search among the open gaps, and a walk of the pieces, which are at most as many as the
//! requests allowed in flight. A turn that has room for more requests, and may have something to request, walks the gaps up to
//! the one that it requests.

use std::collections::VecDeque;
use std::ops::Range;

use tapeworks_time::{ClockChange, Nanos};

use crate::ranges::{Ranges, overlap};

/// Maximum number of range sets kept for reuse.
const MOST_SPARE: usize = 64;

/// How retransmissions are requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetransmissionOptions {
    /// Consecutive timeouts of one request, with nothing new from any other request for the same gap, before the gap is given up.
    pub attempts: u32,
    /// How long to wait for an answer, in ns.
    pub timeout_ns: u64,
    /// Longest time to recover one gap, in ns from its first request, even if answers still arrive. It applies to each gap
    /// separately.
    pub limit_ns: u64,
    /// Longest gap to request, in messages; a longer one is given up immediately. It applies to each gap separately; together
    /// they are bounded by the bytes held after them.
    pub limit_messages: u64,
    /// Messages per request, at most 65,534.
    pub messages_per_request: u16,
    /// Maximum number of requests in flight, for all gaps together.
    pub requests_in_flight: u16,
    /// Whether an answer without messages names the oldest message that the server keeps, as a plant's multicast server does.
    /// Missing messages before it are given up immediately. Otherwise such an answer means nothing.
    pub answers_name_oldest: bool,
    /// Whether the server sends all messages of a request, in several packets, as the Cboe and NYSE servers that take requests
    /// over TCP do. Otherwise an answer is one packet, and the rest is requested again.
    pub answers_in_parts: bool,
}

impl Default for RetransmissionOptions {
    /// Sized for a restart: 10,000,000 messages are 100 s of outage at 100,000 a second.
    fn default() -> Self {
        Self {
            attempts: 10,
            timeout_ns: 10_000_000,
            limit_ns: 60_000_000_000,
            limit_messages: 10_000_000,
            messages_per_request: 1_000,
            requests_in_flight: 32,
            answers_name_oldest: false,
            answers_in_parts: false,
        }
    }
}

impl RetransmissionOptions {
    fn due(&self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_add(self.timeout_ns))
    }

    fn piece_messages(&self) -> u64 {
        u64::from(self.messages_per_request.clamp(1, u16::MAX - 1))
    }

    fn most_pieces(&self) -> usize {
        usize::from(self.requests_in_flight.max(1))
    }
}

/// Why a sequence gap was given up.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum GapReason {
    /// The reorder window ended, and there is no retransmission server.
    NoServer,
    /// As for `NoServer`, but at the beginning of a session: the channel was joined late.
    JoinedLate,
    /// Requests timed out [`RetransmissionOptions::attempts`] times in a row.
    Attempts,
    /// The recovery took longer than [`RetransmissionOptions::limit_ns`].
    TimeLimit,
    /// More messages are missing than [`RetransmissionOptions::limit_messages`].
    MessageLimit,
    /// More bytes were held after the gap than [`ArbiterOptions::held_bytes`](crate::arbitration::ArbiterOptions::held_bytes)
    /// allows, or too many gaps were open.
    HeldBytes,
    /// Another session began.
    SessionChange,
    /// The channel was joined late, and no snapshot came.
    NoSnapshot,
    /// The numbers jumped implausibly far ahead after the lines had brought nothing else for `silence_ns`.
    Jump,
    /// The server no longer keeps the messages ([`RetransmissionOptions::answers_name_oldest`], or an answer that they are
    /// unavailable).
    NotKept,
}

impl GapReason {
    /// Every reason, in order.
    pub const ALL: [Self; 10] = [
        Self::NoServer,
        Self::JoinedLate,
        Self::Attempts,
        Self::TimeLimit,
        Self::MessageLimit,
        Self::HeldBytes,
        Self::SessionChange,
        Self::NoSnapshot,
        Self::Jump,
        Self::NotKept,
    ];

    /// Returns the reason's name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoServer => "no_server",
            Self::JoinedLate => "joined_late",
            Self::Attempts => "attempts",
            Self::TimeLimit => "time_limit",
            Self::MessageLimit => "message_limit",
            Self::HeldBytes => "held_bytes",
            Self::SessionChange => "session_change",
            Self::NoSnapshot => "no_snapshot",
            Self::Jump => "jump",
            Self::NotKept => "not_kept",
        }
    }
}

/// A request in flight.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug)]
struct Piece {
    /// Its numbers, all within one gap: the first and the last are missing.
    numbers: Range<u64>,
    /// Number of requests sent for it since something new arrived.
    attempt: u32,
    /// When the last request times out.
    due: Nanos,
    /// Whether the clock has ticked since the request, so that `due` is not based on the time of a packet that had been queued.
    is_timed: bool,
    /// Whether the request still has to be sent.
    is_owed: bool,
}

impl Piece {
    const fn is_of(&self, gap: &Range<u64>) -> bool {
        gap.start <= self.numbers.start && self.numbers.start < gap.end
    }
}

/// The requests of a gap.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct Requested {
    /// When the gap was first requested.
    pub(crate) began: Nanos,
    /// From the first to the last number that was missing then.
    pub(crate) span: Range<u64>,
    /// Missing messages that answers brought.
    pub(crate) recovered: u64,
    /// Requests sent.
    pub(crate) requests: u64,
    /// Missing numbers within these bounds are not requested yet.
    unrequested: Range<u64>,
    /// Whether pieces are cut from the end of `unrequested`, because requests for its beginning failed.
    is_backward: bool,
    /// The value of `recovered` when the whole gap was last divided into pieces.
    recovered_before: u64,
}

/// An open sequence gap.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct OpenGap {
    /// The numbers that were missing when the gap was opened.
    numbers: Range<u64>,
    /// The numbers still missing: at least one.
    missing: Ranges,
    /// When the packet after the gap was received.
    since: Nanos,
    /// When a line last brought the first missing message.
    narrowed: Option<Nanos>,
    /// Its requests; `None` within the reorder window.
    requested: Option<Requested>,
    /// Why the gap will be given up, as soon as the gaps before it are filled or given up.
    over: Option<GapReason>,
}

impl OpenGap {
    /// Returns the numbers that are still missing.
    pub(crate) const fn missing(&self) -> &Ranges {
        &self.missing
    }

    /// Returns when a line last brought the first missing message.
    pub(crate) const fn narrowed(&self) -> Option<Nanos> {
        self.narrowed
    }

    /// Returns the gap's requests, once its reorder window is over.
    pub(crate) const fn requested(&self) -> Option<&Requested> {
        self.requested.as_ref()
    }

    /// Returns why the gap is to be given up.
    pub(crate) const fn over(&self) -> Option<GapReason> {
        self.over
    }

    const fn is_waiting(&self) -> bool {
        self.requested.is_none() && self.over.is_none()
    }

    fn window_end(&self, window_ns: u64) -> Nanos {
        Nanos(self.since.0.saturating_add(window_ns))
    }

    /// Requests the gap's unrequested messages, as long as there is room.
    fn request(
        &mut self,
        pieces: &mut Vec<Piece>,
        options: &RetransmissionOptions,
        now: Nanos,
        is_timed: bool,
    ) {
        let Some(requested) = &mut self.requested else { return };
        loop {
            while pieces.len() < options.most_pieces() {
                let Range { start, end } = requested.unrequested;
                let run = if requested.is_backward {
                    self.missing.last_in(&(start..end))
                } else {
                    self.missing.first_in(&(start..end))
                };
                let Some(run) = run else { break };
                let count = options.piece_messages().min(run.end - run.start);
                let numbers = if requested.is_backward {
                    requested.unrequested.end = run.end - count;
                    run.end - count..run.end
                } else {
                    requested.unrequested.start = run.start + count;
                    run.start..run.start + count
                };
                pieces.push(Piece { numbers, attempt: 1, due: options.due(now), is_timed, is_owed: true });
            }
            let is_done = requested.is_backward && self.missing.first_in(&requested.unrequested).is_none();
            if !is_done || pieces.iter().any(|piece| piece.is_of(&self.numbers)) {
                return;
            }
            if requested.recovered == requested.recovered_before {
                self.over = Some(GapReason::Attempts);
                return;
            }
            // Some requests failed while others were answered: request the rest once more.
            requested.restart(&self.missing);
        }
    }
}

impl Requested {
    fn new(missing: &Ranges, now: Nanos) -> Self {
        Self {
            began: now,
            span: missing.span(),
            recovered: 0,
            requests: 0,
            unrequested: missing.span(),
            is_backward: false,
            recovered_before: 0,
        }
    }

    /// Requests everything missing again.
    fn restart(&mut self, missing: &Ranges) {
        self.recovered_before = self.recovered;
        self.is_backward = false;
        self.unrequested = missing.span();
    }
}

/// The open sequence gaps of a channel: see the [module](self).
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug, Default)]
pub(crate) struct OpenGaps {
    /// Ordered by number. Gaps that are requested or over come first, then those waiting for their window.
    gaps: VecDeque<OpenGap>,
    /// The requests in flight.
    pieces: Vec<Piece>,
    /// Whether requested gaps may have missing numbers that are not requested yet.
    has_rest: bool,
    /// The memory of closed gaps.
    #[cfg_attr(feature = "serde", serde(skip))]
    spare: Vec<Ranges>,
}

impl OpenGaps {
    /// Returns whether no gap is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Returns the number of open gaps.
    pub(crate) fn len(&self) -> usize {
        self.gaps.len()
    }

    /// Returns the gap with the lowest numbers.
    pub(crate) fn first(&self) -> Option<&OpenGap> {
        self.gaps.front()
    }

    /// Forgets all gaps.
    pub(crate) fn clear(&mut self) {
        self.gaps.clear();
        self.pieces.clear();
        self.has_rest = false;
    }

    /// Opens a gap of the missing `numbers`. The packet after them was received at `since`.
    pub(crate) fn open(&mut self, numbers: Range<u64>, since: Nanos) {
        let spare = self.spare.pop().unwrap_or_default();
        self.gaps.push_back(OpenGap {
            missing: Ranges::of(numbers.clone(), spare),
            numbers,
            since,
            narrowed: None,
            requested: None,
            over: None,
        });
    }

    /// Removes the first gap to give it up.
    pub(crate) fn take_first(&mut self) -> Option<OpenGap> {
        let gap = self.gaps.pop_front()?;
        self.pieces.retain(|piece| !piece.is_of(&gap.numbers));
        Some(gap)
    }

    /// Returns a closed gap's memory for reuse.
    pub(crate) fn let_go(&mut self, gap: OpenGap) {
        if self.spare.len() < MOST_SPARE {
            self.spare.push(gap.missing);
        }
    }

    /// Returns since when the first requested messages have been missing. They may have waited for other requests first.
    pub(crate) fn requested_since(&self) -> Option<Nanos> {
        self.gaps.iter().find(|gap| gap.requested.is_some()).map(|gap| gap.since)
    }

    /// Returns the gap that contained a number when it was opened.
    fn gap_of(&mut self, number: u64) -> Option<&mut OpenGap> {
        let at = self.gaps.partition_point(|gap| gap.numbers.end <= number);
        self.gaps.get_mut(at).filter(|gap| gap.numbers.start <= number)
    }

    /// Returns when there is something to do next: a reorder window ends, a request times out, or a gap's time is over.
    pub(crate) fn deadline(&self, options: Option<&RetransmissionOptions>, window_ns: u64) -> Option<Nanos> {
        let first = self.gaps.front()?;
        if first.over.is_some() {
            // The gap is to be given up immediately.
            return Some(first.since);
        }
        let Some(options) = options else { return Some(first.window_end(window_ns)) };
        // The first gap was requested first.
        let limit = first.requested.as_ref();
        let limit = limit.map(|requested| Nanos(requested.began.0.saturating_add(options.limit_ns)));
        let has_room = self.pieces.len() < options.most_pieces();
        if has_room && self.has_rest {
            return Some(first.since);
        }
        let waiting = self.gaps.get(self.begun()).filter(|_| has_room);
        let waiting = waiting.map(|gap| gap.window_end(window_ns));
        self.pieces.iter().map(|piece| piece.due).chain(limit).chain(waiting).min()
    }

    /// Returns how many gaps are requested or over.
    fn begun(&self) -> usize {
        self.gaps.partition_point(|gap| !gap.is_waiting())
    }

    /// Returns the numbers of the next request to send.
    pub(crate) fn take_request(&mut self) -> Option<Range<u64>> {
        let owed = self.pieces.iter_mut().find(|piece| piece.is_owed)?;
        owed.is_owed = false;
        let numbers = owed.numbers.clone();
        if let Some(requested) = self.gap_of(numbers.start).and_then(|gap| gap.requested.as_mut()) {
            requested.requests += 1;
        }
        Some(numbers)
    }

    /// Returns whether any of `numbers` is in flight, or is missing and was requested earlier: its answer may be late.
    pub(crate) fn requests_any_of(&self, numbers: &Range<u64>) -> bool {
        if self.pieces.iter().any(|piece| !overlap(&piece.numbers, numbers).is_empty()) {
            return true;
        }
        let from = self.gaps.partition_point(|gap| gap.numbers.end <= numbers.start);
        let gaps = self.gaps.range(from..).take_while(|gap| gap.numbers.start < numbers.end);
        let mut requested =
            gaps.filter(|gap| gap.requested.is_some() || gap.over == Some(GapReason::NotKept));
        requested.any(|gap| gap.missing.first_in(numbers).is_some())
    }

    /// Removes the `numbers` that an answer brought; the next request may follow immediately. Returns how many of them were
    /// missing. `filled` is called for each gap that is now filled.
    pub(crate) fn answered(
        &mut self,
        numbers: &Range<u64>,
        options: &RetransmissionOptions,
        now: Nanos,
        filled: impl FnMut(&OpenGap),
    ) -> u64 {
        self.came(numbers, now, Some(options), filled)
    }

    /// Removes the `numbers` that a line brought. `filled` is called for each gap that is now filled.
    pub(crate) fn brought_by_line(&mut self, numbers: &Range<u64>, now: Nanos, filled: impl FnMut(&OpenGap)) {
        self.came(numbers, now, None, filled);
    }

    /// Removes the `numbers` that a packet brought. With `options` the packet was an answer.
    fn came(
        &mut self,
        numbers: &Range<u64>,
        now: Nanos,
        options: Option<&RetransmissionOptions>,
        mut filled: impl FnMut(&OpenGap),
    ) -> u64 {
        let mut brought = 0;
        let from = self.gaps.partition_point(|gap| gap.numbers.end <= numbers.start);
        // The filled gaps are adjacent, so they are removed together.
        let mut closed = from..from;
        let Self { gaps, pieces, has_rest, .. } = self;
        for (at, gap) in gaps.iter_mut().enumerate().skip(from) {
            if gap.numbers.start >= numbers.end {
                break;
            }
            let is_first = gap.missing.first().is_some_and(|first| numbers.contains(&first));
            let removed = gap.missing.remove(numbers.clone());
            if removed == 0 {
                continue;
            }
            brought += removed;
            if let (Some(_), Some(requested)) = (options, &mut gap.requested) {
                requested.recovered += removed;
                if gap.over == Some(GapReason::Attempts) {
                    // The answer was late.
                    gap.over = None;
                    requested.restart(&gap.missing);
                    *has_rest = true;
                }
            } else if at == 0 && is_first && options.is_none() {
                gap.narrowed = Some(now);
            }
            if gap.requested.is_some() {
                let before = pieces.len();
                pieces.retain_mut(|piece| {
                    if !piece.is_of(&gap.numbers) {
                        return true;
                    }
                    let is_touched = !overlap(&piece.numbers, numbers).is_empty();
                    let Some(left) = gap.missing.span_in(&piece.numbers) else { return false };
                    piece.numbers = left;
                    if let Some(options) = options {
                        // The server answers, so the count of attempts starts over.
                        piece.attempt = 1;
                        if is_touched {
                            (piece.due, piece.is_timed) = (options.due(now), false);
                            piece.is_owed |= !options.answers_in_parts;
                        }
                    }
                    true
                });
                *has_rest |= pieces.len() < before;
            }
            if gap.missing.is_empty() {
                filled(gap);
                closed = if closed.is_empty() { at..at + 1 } else { closed.start..at + 1 };
            }
        }
        let room = MOST_SPARE.saturating_sub(self.spare.len());
        let memory = self.gaps.drain(closed).map(|gap| gap.missing);
        // The rest is dropped with the iterator.
        self.spare.extend(memory.take(room));
        brought
    }

    /// Requests the gaps whose window is over, as long as there is room. Returns how many gaps are too long to request.
    /// `is_timed` means that `now` is the present and not a packet's time.
    pub(crate) fn request(
        &mut self,
        options: &RetransmissionOptions,
        window_ns: u64,
        now: Nanos,
        is_timed: bool,
    ) -> u64 {
        let mut too_long = 0;
        // Otherwise the earlier gaps have nothing left to request.
        let from = if self.has_rest { 0 } else { self.begun() };
        let Self { gaps, pieces, has_rest, .. } = self;
        for gap in gaps.iter_mut().skip(from) {
            if pieces.len() >= options.most_pieces() {
                break;
            }
            if gap.is_waiting() {
                if now < gap.window_end(window_ns) {
                    break;
                }
                if gap.missing.count() > options.limit_messages {
                    too_long += 1;
                    gap.over = Some(GapReason::MessageLimit);
                } else {
                    gap.requested = Some(Requested::new(&gap.missing, now));
                }
            }
            if gap.over.is_none() {
                gap.request(pieces, options, now, is_timed);
            }
        }
        *has_rest = pieces.len() >= options.most_pieces();
        too_long
    }

    /// Marks missing messages before `oldest` as over, in gaps whose window is over, because the server no longer keeps them.
    /// Returns `false` if that affects no gap.
    pub(crate) fn not_kept(
        &mut self,
        oldest: u64,
        options: &RetransmissionOptions,
        window_ns: u64,
        now: Nanos,
    ) -> bool {
        if self.pieces.is_empty() {
            // No request is in flight, so this answers none.
            return false;
        }
        let (mut at, mut is_any) = (0, false);
        self.has_rest = true;
        let Self { gaps, pieces, .. } = self;
        while let Some(gap) = gaps.get_mut(at) {
            let span = gap.missing.span();
            if span.start >= oldest || gap.is_waiting() && now < gap.window_end(window_ns) {
                break;
            }
            at += 1;
            if gap.over.is_some() {
                continue;
            }
            is_any = true;
            gap.over = Some(GapReason::NotKept);
            if span.end <= oldest {
                pieces.retain(|piece| !piece.is_of(&gap.numbers));
                continue;
            }
            let mut behind = OpenGap {
                numbers: oldest..gap.numbers.end,
                missing: gap.missing.split_off(oldest),
                since: gap.since,
                narrowed: None,
                requested: gap.requested.take(),
                over: None,
            };
            gap.numbers.end = oldest;
            let (low, OpenGap { numbers, missing, requested, .. }) = (gap.numbers.clone(), &mut behind);
            let is_backward = requested.as_ref().is_some_and(|requested| requested.is_backward);
            pieces.retain_mut(|piece| {
                if piece.is_of(&low) {
                    let Some(left) = missing.span_in(&piece.numbers) else { return false };
                    // The rest of the piece is requested immediately.
                    (piece.numbers, piece.attempt, piece.is_owed) = (left, 1, true);
                    (piece.due, piece.is_timed) = (options.due(now), false);
                }
                !is_backward || !piece.is_of(numbers)
            });
            if let Some(requested) = requested {
                requested.span.start = missing.span().start;
                requested.unrequested.start = requested.unrequested.start.max(oldest);
                if is_backward {
                    // Its beginning may be available after all.
                    requested.restart(missing);
                }
            }
            gaps.insert(at, behind);
        }
        is_any
    }

    /// Marks the first gap as over once its window ends, because there is no server.
    pub(crate) fn end_window(&mut self, window_ns: u64, now: Nanos) {
        if let Some(first) = self.gaps.front_mut().filter(|first| now >= first.window_end(window_ns)) {
            first.over = Some(GapReason::NoServer);
        }
    }

    /// Handles a clock tick: repeats the requests that timed out, and ends gaps that reached their limits. Returns the number of
    /// repeated requests.
    pub(crate) fn time_out(&mut self, options: &RetransmissionOptions, now: Nanos) -> u64 {
        let begun = self.begun();
        let Self { gaps, pieces, has_rest, .. } = self;
        for gap in gaps.iter_mut().take(begun).filter(|gap| gap.over.is_none()) {
            if gap.requested.as_ref().is_some_and(|requested| now.since(requested.began) >= options.limit_ns)
            {
                gap.over = Some(GapReason::TimeLimit);
                pieces.retain(|piece| !piece.is_of(&gap.numbers));
                *has_rest = true;
            }
        }
        let is_over = |piece: &Piece| piece.due <= now && piece.is_timed;
        while let Some(failed) =
            self.pieces.iter().find(|piece| is_over(piece) && piece.attempt >= options.attempts)
        {
            let start = failed.numbers.start;
            let Some(gap) = self.gap_of(start) else {
                self.pieces.retain(|piece| piece.numbers.start != start);
                continue;
            };
            let numbers = gap.numbers.clone();
            if let Some(requested) = &mut gap.requested
                && !requested.is_backward
                && gap.missing.first_in(&requested.unrequested).is_some()
            {
                // The server has nothing more of the beginning, so the recovery continues from the end.
                requested.is_backward = true;
            } else {
                gap.over = Some(GapReason::Attempts);
            }
            self.pieces.retain(|piece| !piece.is_of(&numbers));
            self.has_rest = true;
        }
        let mut repeated = 0;
        for piece in self.pieces.iter_mut().filter(|piece| piece.due <= now) {
            if piece.is_timed {
                piece.attempt += 1;
                piece.is_owed = true;
                repeated += 1;
            }
            // Otherwise a queued packet caused the request, which was sent later than the packet's time.
            (piece.due, piece.is_timed) = (options.due(now), true);
        }
        repeated
    }

    /// Marks the first gap as over for lack of answers, whatever is in flight.
    pub(crate) fn end_first(&mut self) {
        if let Some(first) = self.gaps.front_mut().filter(|first| first.requested.is_some()) {
            first.over = Some(GapReason::Attempts);
        }
    }

    /// See [`ClockChange::moved`].
    pub(crate) fn clock_was_set(&mut self, change: ClockChange) {
        let set = |time: &mut Nanos| *time = change.moved(*time);
        for gap in &mut self.gaps {
            set(&mut gap.since);
            gap.narrowed.iter_mut().for_each(set);
            gap.requested.iter_mut().for_each(|requested| set(&mut requested.began));
        }
        self.pieces.iter_mut().for_each(|piece| set(&mut piece.due));
    }

    /// Returns whether a restored state is valid. `missing` are the numbers absent between the held packets, in order.
    #[cfg(feature = "serde")]
    pub(crate) fn is_sound(&self, missing: impl Iterator<Item = Range<u64>>) -> bool {
        let are_gaps_sound = self.gaps.iter().all(|gap| {
            let span = gap.missing.span();
            gap.missing.is_ordered()
                && !gap.missing.is_empty()
                && gap.numbers.start <= span.start
                && span.end <= gap.numbers.end
        });
        let bounds = self.gaps.iter().map(|gap| &gap.numbers);
        let are_ordered = bounds.clone().zip(bounds.skip(1)).all(|(one, other)| one.end <= other.start);
        let is_waiting = self.gaps.iter().map(OpenGap::is_waiting);
        let are_pieces_sound = self.pieces.len() <= usize::from(u16::MAX)
            && self.pieces.iter().all(|piece| {
                let Range { start, end } = piece.numbers;
                start < end
                    && end - start <= u64::from(u16::MAX - 1)
                    && self.gaps.iter().any(|gap| piece.is_of(&gap.numbers) && end <= gap.numbers.end)
            });
        are_gaps_sound
            && are_ordered
            && is_waiting.is_sorted()
            && are_pieces_sound
            && joined(self.gaps.iter().flat_map(|gap| gap.missing.iter())).eq(joined(missing))
    }
}

/// Merges adjacent ranges of an ordered sequence.
#[cfg(feature = "serde")]
fn joined(ranges: impl Iterator<Item = Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    let mut ranges = ranges.peekable();
    std::iter::from_fn(move || {
        let mut whole = ranges.next()?;
        while let Some(next) = ranges.next_if(|next| next.start == whole.end) {
            whole.end = next.end;
        }
        Some(whole)
    })
}
