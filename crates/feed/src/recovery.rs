//! The requests to a venue's retransmission server that fill one sequence gap.
//!
//! A server answers a request with one packet: as many of the requested messages as fit, from the first on. So a [`Recovery`]
//! cuts the gap into pieces and requests several of them at once. It requests the rest of a piece as soon as an answer
//! has brought a part, and again when no answer comes in time. The number of pieces bounds what is on its way: 32
//! answers of 1,500 bytes fit the smallest receive buffer that Linux gives.
//!
//! A gap is given up when a request timed out `attempts` times and nothing new came from any request meanwhile. The server may
//! have forgotten the beginning of a long gap: before giving up, the recovery requests the remaining pieces from the end
//! backwards. Then the missing messages are one range.
//!
//! Requests time out by the clock ([`Arbiter::advance`](crate::arbitration::Arbiter::advance)) and not by the times of packets: packets that
//! have waited in a socket come with old times and faster than time passes, and the answer may be behind them.
//!
//! It keeps numbers only. It may request a message that a line has brought meanwhile: the answer is then a duplicate. It never
//! skips a missing message.
//!
//! # Cost
//! Per packet one compare when it lies behind the gap, otherwise a walk of at most as many pieces as requests may be in flight.

use std::ops::Range;

use tapeworks_market::Nanos;

/// How retransmissions are requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetransmissionOptions {
    /// Time-outs in a row of one request, with nothing new from any other, before a gap is given up.
    pub attempts: u32,
    /// How long to wait for an answer, in ns.
    pub timeout_ns: u64,
    /// The most time for one gap, in ns, even if answers still come.
    pub limit_ns: u64,
    /// The longest gap that is requested, in messages; a longer one is given up at once.
    pub limit_messages: u64,
    /// Messages of one request, at most 65,534.
    pub messages_per_request: u16,
    /// Requests that wait for an answer at the same time.
    pub requests_in_flight: u16,
}

impl Default for RetransmissionOptions {
    /// For a restart: 10,000,000 messages are 100 s of outage at 100,000 a second.
    fn default() -> Self {
        Self {
            attempts: 10,
            timeout_ns: 10_000_000,
            limit_ns: 60_000_000_000,
            limit_messages: 10_000_000,
            messages_per_request: 1_000,
            requests_in_flight: 32,
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
}

/// The messages of one request.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug)]
struct Piece {
    missing: Range<u64>,
    /// Requests for it since something new came.
    attempt: u32,
    /// When the last request times out.
    due: Nanos,
    /// The clock has ticked since the request: `due` is not the time of a packet that had waited.
    is_timed: bool,
    /// The request must be sent.
    is_owed: bool,
}

/// The consequence of a time-out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimedOut {
    /// Requests are repeated.
    Repeated(u64),
    /// The server does not have the messages.
    Exhausted,
}

/// A sequence gap that is being filled: see the [module](self).
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct Recovery {
    began: Nanos,
    first: u64,
    /// The first number behind the gap.
    end: u64,
    /// The requested pieces.
    pieces: Vec<Piece>,
    /// What is not requested yet.
    unrequested: Range<u64>,
    /// Pieces are cut from the end of `unrequested`: requests for its beginning failed.
    is_backward: bool,
    /// Messages that came.
    recovered: u64,
    /// The same at the time when the whole gap had last been divided into pieces.
    recovered_before: u64,
    /// Requests sent.
    requests: u64,
}

impl Recovery {
    /// Requests the first pieces of `missing`.
    pub(crate) fn new(
        missing: Range<u64>,
        options: &RetransmissionOptions,
        now: Nanos,
        is_tick: bool,
    ) -> Self {
        let mut recovery = Self {
            began: now,
            first: missing.start,
            end: missing.end,
            pieces: Vec::new(),
            unrequested: missing,
            is_backward: false,
            recovered: 0,
            recovered_before: 0,
            requests: 0,
        };
        recovery.fill(options, now, is_tick);
        recovery
    }

    /// When it began.
    pub(crate) const fn began(&self) -> Nanos {
        self.began
    }

    /// The first number that was missing when it began.
    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// The first number behind the gap.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Messages that came since it began.
    pub(crate) const fn recovered(&self) -> u64 {
        self.recovered
    }

    /// Requests sent.
    pub(crate) const fn requests(&self) -> u64 {
        self.requests
    }

    /// When a request times out or the gap's time is over.
    pub(crate) fn deadline(&self, options: &RetransmissionOptions) -> Nanos {
        let limit = Nanos(self.began.0.saturating_add(options.limit_ns));
        self.pieces.iter().map(|piece| piece.due).fold(limit, Nanos::min)
    }

    /// Whether the gap's time is over.
    pub(crate) fn is_over_time(&self, options: &RetransmissionOptions, now: Nanos) -> bool {
        now.since(self.began) >= options.limit_ns
    }

    /// The messages of the next request to send.
    pub(crate) fn take_request(&mut self) -> Option<Range<u64>> {
        let owed = self.pieces.iter_mut().find(|piece| piece.is_owed)?;
        owed.is_owed = false;
        self.requests += 1;
        Some(owed.missing.clone())
    }

    /// Whether a message of `numbers` is requested.
    pub(crate) fn requests_any_of(&self, numbers: &Range<u64>) -> bool {
        let overlaps = |piece: &Piece| numbers.start < piece.missing.end && piece.missing.start < numbers.end;
        numbers.start < self.end && self.pieces.iter().any(overlaps)
    }

    /// An answer brought `numbers`: the next request follows at once. Returns how many of them were missing.
    pub(crate) fn answered(
        &mut self,
        numbers: &Range<u64>,
        options: &RetransmissionOptions,
        now: Nanos,
    ) -> u64 {
        let brought = self.remove(numbers, Some(options.due(now)));
        self.recovered += brought;
        brought
    }

    /// A line brought `numbers`.
    pub(crate) fn brought_by_line(&mut self, numbers: &Range<u64>) {
        if numbers.start < self.end {
            self.remove(numbers, None);
        }
    }

    /// Takes `numbers` from the ends of the pieces. With `again_due` the rest of a piece is requested at once.
    fn remove(&mut self, numbers: &Range<u64>, again_due: Option<Nanos>) -> u64 {
        let mut removed = 0;
        for piece in &mut self.pieces {
            let Range { start, end } = piece.missing;
            if numbers.start <= start {
                piece.missing.start = numbers.end.clamp(start, end);
            } else if numbers.end >= end {
                piece.missing.end = numbers.start.clamp(start, end);
            }
            let of_piece = end - start - (piece.missing.end - piece.missing.start);
            removed += of_piece;
            if let (Some(due), true) = (again_due, of_piece > 0) {
                (piece.due, piece.is_timed, piece.is_owed) = (due, false, true);
            }
        }
        if removed > 0 {
            self.pieces.retain(|piece| !piece.missing.is_empty());
            if again_due.is_some() {
                // The server answers.
                self.pieces.iter_mut().for_each(|piece| piece.attempt = 1);
            }
        }
        removed
    }

    /// Requests further pieces of the missing messages `next..behind`. `false`: all were requested and none came.
    pub(crate) fn go_on(
        &mut self,
        next: u64,
        behind: u64,
        options: &RetransmissionOptions,
        now: Nanos,
    ) -> bool {
        self.remove(&(0..next), None);
        self.unrequested.start = self.unrequested.start.max(next).min(self.unrequested.end);
        self.fill(options, now, false);
        if self.pieces.is_empty() {
            if self.recovered == self.recovered_before {
                return false;
            }
            // Some requests failed while others were answered: requests the rest once more.
            self.recovered_before = self.recovered;
            self.is_backward = false;
            self.unrequested = next..behind.min(self.end);
            self.fill(options, now, false);
        }
        !self.pieces.is_empty()
    }

    fn fill(&mut self, options: &RetransmissionOptions, now: Nanos, is_timed: bool) {
        let most = usize::from(options.requests_in_flight.max(1));
        while self.pieces.len() < most && !self.unrequested.is_empty() {
            let Range { start, end } = self.unrequested;
            let count = options.piece_messages().min(end - start);
            let missing = if self.is_backward { end - count..end } else { start..start + count };
            self.unrequested = if self.is_backward { start..missing.start } else { missing.end..end };
            self.pieces.push(Piece { missing, attempt: 1, due: options.due(now), is_timed, is_owed: true });
        }
    }

    /// The clock has ticked: repeats the requests whose time is over.
    pub(crate) fn time_out(&mut self, options: &RetransmissionOptions, now: Nanos) -> TimedOut {
        let mut repeated = 0;
        for piece in self.pieces.iter_mut().filter(|piece| piece.due <= now) {
            if !piece.is_timed {
                // A packet that had waited caused the request, which was sent later than the packet's time.
                (piece.due, piece.is_timed) = (options.due(now), true);
                continue;
            }
            if piece.attempt >= options.attempts {
                if self.is_backward || self.unrequested.is_empty() {
                    return TimedOut::Exhausted;
                }
                // The server has no more of the beginning: the recovery continues from the end.
                self.pieces.clear();
                self.is_backward = true;
                self.fill(options, now, true);
                return TimedOut::Repeated(0);
            }
            piece.attempt += 1;
            (piece.due, piece.is_owed) = (options.due(now), true);
            repeated += 1;
        }
        TimedOut::Repeated(repeated)
    }

    /// The clock shows so many ns more than it would have.
    pub(crate) fn clock_was_set(&mut self, ahead_ns: i64) {
        self.began = self.began.set_by(ahead_ns);
        self.pieces.iter_mut().for_each(|piece| piece.due = piece.due.set_by(ahead_ns));
    }

    /// Whether a restored state is valid.
    #[cfg(feature = "serde")]
    pub(crate) fn is_sound(&self) -> bool {
        let is_within = |range: &Range<u64>| range.start <= range.end && range.end <= self.end;
        self.pieces.len() <= usize::from(u16::MAX)
            && is_within(&self.unrequested)
            && self.pieces.iter().all(|piece| {
                is_within(&piece.missing)
                    && piece.missing.end - piece.missing.start <= u64::from(u16::MAX - 1)
                    && !piece.missing.is_empty()
            })
    }
}
