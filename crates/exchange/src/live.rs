//! Live venues: each message is due at a time, and is sent then.
//!
//! [`Live`] has no clock: the caller passes the time since the start, and it hands out the packets of that moment. Message
//! `n` is due at `n / rate` after the start, bursts on top; late messages are caught up with, never shifted. A message's own
//! timestamp is the time at which it was due, so a receiver measures from then.
//!
//! A venue can begin a new session in the middle of the day ([`LiveVenue::restart_after`]), or start the numbers of its session over
//! ([`LiveVenue::resets`]). Either way it numbers from 1 and first sends the state for a receiver without history: the phases of the day
//! so far, beginning with the start of messages, which empties books; the directory; the states; and every resting order as an addition.
//! A venue that does not announce its restarts ([`LiveVenue::announces`]) leaves out the start of messages. A venue can fall silent
//! ([`LiveVenue::silences`]): its messages wait and are sent afterwards, with the times at which they are sent. At night
//! ([`LiveOptions::nights`]) all venues close, and the next trading day begins like a restart.
//!
//! Cost: that of the [`Generator`] and of [`Packets`](crate::Packets), without the network headers. Memory besides: 88 bytes
//! for each message that waits during a silence or after a restart.

use std::collections::VecDeque;

use tapeworks_session::snapshot::Image;
use tapeworks_session::transport::digits;
use tapeworks_session::{Content, Made, SessionId, Stream};

use crate::dialect::Dialect as _;
use crate::dialects::for_dialect;
use crate::generator::{Generator, MAX_MESSAGE_BYTES};
use crate::lines::{LineOptions, Lines, Outgoing};
pub use crate::nonsense::NonsenseCounts;
use crate::nonsense::NonsenseMaker;
use crate::report::{Injected, VenueReport};
use crate::scenario::{
    HOUR_NS, LineFaults, Popularity, SECOND_NS, Scenario, ScenarioError, Unit, VenueConfig, VenueKind,
};

/// The most messages that one call of [`Live::advance`] makes.
const MOST_AT_ONCE: usize = 4_096;

/// The highest rate, in messages a second: one a nanosecond.
pub const MOST_A_SECOND: u64 = SECOND_NS;

/// Messages of one venue that may wait; at more the whole market waits.
const MOST_WAITING: usize = 1 << 20;

/// A time of high rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveBurst {
    /// Its beginning, in nanoseconds since the start.
    pub at_ns: u64,
    /// Its length in nanoseconds.
    pub length_ns: u64,
    /// Messages a second over all venues, besides the usual ones.
    pub messages_per_second: u64,
}

/// A venue sends nothing for a while, not even heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// It begins after so many messages of the venue.
    pub after: u64,
    /// How long it lasts, in nanoseconds.
    pub length_ns: u64,
}

/// The time between two trading days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Night {
    /// When it begins, in nanoseconds since the start, without the nights before it.
    pub at_ns: u64,
    /// How long it lasts, in nanoseconds.
    pub length_ns: u64,
}

/// One venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveVenue {
    /// The market; several venues may have the same.
    pub kind: VenueKind,
    /// Its part of all activity, relative to the sum over the venues.
    pub share: u32,
    /// Which of the symbols it has.
    pub unit: Unit,
    /// Whether there is a line B.
    pub line_b: bool,
    /// Faults of lines A and B.
    pub faults: [LineFaults; 2],
    /// How much later (up to) a packet comes on line B, in nanoseconds.
    pub skew_ns: u64,
    /// After so many messages of this venue, all its sessions together, its session ends and a new one begins; ascending. It may
    /// be some messages later, at the end of an event.
    pub restart_after: Vec<u64>,
    /// When it sends nothing; ascending.
    pub silences: Vec<Silence>,
    /// The times, ascending, when it loses its numbers, like a venue's feed process that restarts after a crash: it is silent, then
    /// numbers from 1 in the same session and first sends its state, as after a restart.
    pub resets: Vec<Silence>,
    /// Whether a message says that the numbers start over, where they do so in the same session. If not, only the numbers show it. IEX-TP
    /// always says so, by its stream offset.
    pub announces: bool,
    /// Whether the next trading day has the session of this one. Protocols without sessions always do.
    pub keeps_session: bool,
    /// Messages that make no sense, besides its own, for a million of those: of unknown types, cut, of random bytes, a locate's second
    /// symbol, more executed or cancelled than an order has. Receivers must not take harm.
    pub nonsense_per_million: u32,
}

impl LiveVenue {
    /// A venue with all symbols, without a line B and without faults, that announces its restarts.
    #[must_use]
    pub fn new(kind: VenueKind) -> Self {
        Self {
            kind,
            share: 1,
            unit: Unit::WHOLE,
            line_b: false,
            faults: [LineFaults::default(); 2],
            skew_ns: 0,
            restart_after: Vec::new(),
            silences: Vec::new(),
            resets: Vec::new(),
            announces: true,
            keeps_session: false,
            nonsense_per_million: 0,
        }
    }
}

/// The options of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOptions {
    /// Same seed and times, same bytes.
    pub seed: u64,
    /// The start, in nanoseconds since 1970-01-01 00:00 UTC. Sessions are named by its second.
    pub start_utc_ns: u64,
    /// Midnight in New York before it, likewise: the origin of ITCH's times.
    pub midnight_ns: u64,
    /// Symbols, each traded at every venue: 1 to 65,535.
    pub symbols: u32,
    /// How activity is spread over the symbols.
    pub popularity: Popularity,
    /// Orders at which a side of a book only loses some: [`Scenario::most_orders`].
    pub most_orders: u32,
    /// Messages of all venues together for a whole trading day, however long that takes. `None`: an open market without end.
    pub messages: Option<u64>,
    /// Messages a second over all venues, at most [`MOST_A_SECOND`].
    pub rate: u64,
    /// Bursts on top.
    pub bursts: Vec<LiveBurst>,
    /// The nights, ascending. `rate` and `bursts` do not count them: everything due after a night is postponed by its length.
    pub nights: Vec<Night>,
    /// A venue that is silent for this long sends a heartbeat, in nanoseconds; 0: none.
    pub heartbeat_ns: u64,
    /// How long the ends of the sessions are repeated, in nanoseconds.
    pub linger_ns: u64,
    /// The venues, at most [`MAX_MARKETS`](crate::MAX_MARKETS).
    pub venues: Vec<LiveVenue>,
}

/// A packet that goes on a line now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivePacket<'a> {
    /// Index into the venues.
    pub venue: usize,
    /// 0: line A; 1: line B.
    pub line: usize,
    /// Its purpose.
    pub content: Content,
    /// Messages in it.
    pub messages: u16,
    /// The UDP payload.
    pub payload: &'a [u8],
}

/// The receiver of the packets of [`Live`].
pub trait Outlet {
    /// A session of a venue begins.
    fn session(&mut self, venue: usize, session: SessionId);
    /// A packet was made, whatever its lines do to it; comes before its packets go.
    fn made(&mut self, venue: usize, made: &Made<'_>);
    /// A packet goes on a line.
    fn packet(&mut self, packet: &LivePacket<'_>);
}

/// Counters of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineReport {
    /// Packets with messages that went, repeated ones included.
    pub packets: u64,
    /// Messages in them.
    pub messages: u64,
    /// Heartbeats that went.
    pub heartbeats: u64,
    /// Ends of session that went.
    pub ends_of_session: u64,
    /// The injected faults.
    pub injected: Injected,
}

impl LineReport {
    /// Counts a packet that went.
    pub(crate) fn count(&mut self, content: Content, messages: u16) {
        match content {
            Content::Messages => {
                self.packets += 1;
                self.messages += u64::from(messages);
            }
            Content::Heartbeat => self.heartbeats += 1,
            Content::EndOfSession => self.ends_of_session += 1,
        }
    }
}

/// A session of a venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionReport {
    /// Its name.
    pub session: SessionId,
    /// Its number: the second of its start, or one more than that of the session before.
    pub number: u32,
    /// Messages in it so far.
    pub messages: u64,
}

/// Counters of one venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveVenueReport {
    /// The market.
    pub kind: VenueKind,
    /// Messages of all sessions.
    pub messages: u64,
    /// Packets that they were in, each counted once whatever its lines did.
    pub packets: u64,
    /// Its sessions, the running one last.
    pub sessions: Vec<SessionReport>,
    /// Line A and, if there is one, line B.
    pub lines: Vec<LineReport>,
    /// Messages that no line carried.
    pub lost_messages: u64,
    /// Silences begun.
    pub silences: u64,
    /// Times that it forgot its numbers.
    pub resets: u64,
    /// Messages that make no sense.
    pub nonsense: NonsenseCounts,
}

/// The counters so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveReport {
    /// Messages of all venues.
    pub messages: u64,
    /// The most that a message was made after it was due, in nanoseconds.
    pub worst_late_ns: u64,
    /// Each venue, in the order of the options.
    pub venues: Vec<LiveVenueReport>,
}

/// When messages are due.
#[derive(Debug)]
struct Pace {
    rate: u64,
    made: u64,
    /// In order of time; those before `first` are over.
    bursts: Vec<(LiveBurst, u64)>,
    first: usize,
}

impl Pace {
    fn new(rate: u64, bursts: &[LiveBurst]) -> Self {
        let mut bursts: Vec<_> = bursts.iter().map(|burst| (*burst, 0)).collect();
        bursts.sort_by_key(|(burst, _)| burst.at_ns);
        Self { rate: rate.max(1), made: 0, bursts, first: 0 }
    }

    /// `number / rate`, in nanoseconds; a rate is at most [`MOST_A_SECOND`].
    fn time_of(number: u64, rate: u64) -> u64 {
        let rate = rate.clamp(1, MOST_A_SECOND);
        // Whole seconds apart, so that nothing overflows: a division of 128 bits costs as much as a message.
        (number / rate).saturating_mul(SECOND_NS).saturating_add(number % rate * SECOND_NS / rate)
    }

    /// The due time of the next message, and the burst it belongs to.
    fn next(&self) -> (u64, Option<usize>) {
        let mut next = (Self::time_of(self.made, self.rate), None);
        for (index, (burst, made)) in self.bursts.iter().enumerate().skip(self.first) {
            if burst.at_ns > next.0 {
                break;
            }
            let offset = Self::time_of(*made, burst.messages_per_second);
            if offset < burst.length_ns && burst.at_ns + offset < next.0 {
                next = (burst.at_ns + offset, Some(index));
            }
        }
        next
    }

    /// Goes past the message that [`Pace::next`] answered.
    fn advance(&mut self, (due_ns, burst): (u64, Option<usize>)) {
        match burst {
            None => self.made += 1,
            Some(index) => self.bursts[index].1 += 1,
        }
        while self
            .bursts
            .get(self.first)
            .is_some_and(|(burst, _)| burst.at_ns.saturating_add(burst.length_ns) < due_ns)
        {
            self.first += 1;
        }
    }
}

/// What is due next, and when, in nanoseconds since the start.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// A message, and how [`Pace`] knows it.
    Message { due_ns: u64, of_pace: (u64, Option<usize>) },
    /// A night begins.
    Evening(u64),
    /// A night ends.
    Morning(u64),
}

impl Next {
    const fn at_ns(self) -> u64 {
        match self {
            Self::Message { due_ns, .. } => due_ns,
            Self::Evening(at_ns) | Self::Morning(at_ns) => at_ns,
        }
    }
}

/// A message that waits for its turn.
#[derive(Debug, Clone, Copy)]
struct Held {
    bytes: [u8; MAX_MESSAGE_BYTES],
    length: usize,
}

#[derive(Debug)]
struct Venue {
    kind: VenueKind,
    unit: Unit,
    session_number: u32,
    stream: Stream,
    /// When the first message of the open packet was due, in nanoseconds since the epoch.
    opened_utc_ns: u64,
    /// In nanoseconds since the start; `u64::MAX`: none.
    heartbeat_due_ns: u64,
    silent_until_ns: u64,
    held: VecDeque<Held>,
    /// Of its last message, where the protocol splits times.
    second: Option<u64>,
    restarts: VecDeque<u64>,
    silences: VecDeque<Silence>,
    resets: VecDeque<Silence>,
    announces: bool,
    keeps_session: bool,
    nonsense: NonsenseMaker,
    messages: u64,
    packets: u64,
    silences_begun: u64,
    resets_begun: u64,
    sessions: Vec<SessionReport>,
    lines: Vec<LineReport>,
    report: VenueReport,
}

/// Simulated venues, live. See the [module](self).
#[derive(Debug)]
pub struct Live {
    generator: Generator,
    pace: Pace,
    lines: Lines,
    venues: Vec<Venue>,
    start_utc_ns: u64,
    midnight_ns: u64,
    nights: VecDeque<Night>,
    /// The nights so far, in nanoseconds.
    slept_ns: u64,
    /// All venues are closed until the first of `nights` is over.
    is_night: bool,
    heartbeat_ns: u64,
    linger_ns: u64,
    /// Messages that wait, of all venues.
    held: usize,
    /// Every second turn is for waiting messages.
    is_turn_of_held: bool,
    next_held: usize,
    /// The generator has no more.
    is_exhausted: bool,
    /// When all sessions ended.
    ended_ns: Option<u64>,
    messages: u64,
    worst_late_ns: u64,
}

/// The session of a venue. With MoldUDP64 it is two capital letters for the venue and eight digits of `number`, so every venue
/// has its own. IEX and MEMX have only the number: venues of one kind that have the same number have the same session.
pub(crate) fn session_of(kind: VenueKind, venue: usize, number: u32, unit: Unit) -> SessionId {
    let mut name = digits(number);
    // Fewer than 26 * 26 venues.
    name.0[0] = b'A' + (venue / 26) as u8;
    name.0[1] = b'A' + (venue % 26) as u8;
    kind.session(name.0, number, unit)
}

impl Live {
    /// Venues before their first message.
    ///
    /// # Errors
    /// A scenario that breaks a rule ([`Scenario::check_market`]).
    pub fn new(options: &LiveOptions) -> Result<Self, ScenarioError> {
        let of = |venue: &LiveVenue| VenueConfig { kind: venue.kind, share: venue.share, unit: venue.unit };
        let venues: Vec<_> = options.venues.iter().map(of).collect();
        let base = match options.messages {
            Some(messages) => Scenario {
                venues,
                micro_bursts: 0,
                halts: 3,
                ..Scenario::full_session(messages, options.symbols)
            },
            // The market's own clock goes as fast as the real one.
            None => Scenario::endless(venues, options.symbols, SECOND_NS / options.rate.clamp(1, SECOND_NS)),
        };
        let scenario = Scenario {
            seed: options.seed,
            midnight_ns: options.midnight_ns,
            popularity: options.popularity,
            most_orders: options.most_orders,
            heartbeat_ns: options.heartbeat_ns,
            ..base
        };
        let generator = Generator::new(&scenario)?;
        let number = (options.start_utc_ns / SECOND_NS) as u32;
        let venue = |(index, venue): (usize, &LiveVenue)| {
            let session = session_of(venue.kind, index, number, venue.unit);
            Venue {
                kind: venue.kind,
                unit: venue.unit,
                session_number: number,
                stream: Stream::new(session, 0),
                opened_utc_ns: 0,
                heartbeat_due_ns: if options.heartbeat_ns > 0 { options.heartbeat_ns } else { u64::MAX },
                silent_until_ns: 0,
                held: VecDeque::new(),
                second: None,
                restarts: venue.restart_after.iter().copied().collect(),
                silences: venue.silences.iter().copied().collect(),
                resets: venue.resets.iter().copied().collect(),
                announces: venue.announces,
                keeps_session: venue.keeps_session,
                nonsense: NonsenseMaker::new(
                    venue.kind,
                    venue.nonsense_per_million,
                    options.seed ^ 0x6E6F_6E73_656E_7365 ^ index as u64,
                ),
                messages: 0,
                packets: 0,
                silences_begun: 0,
                resets_begun: 0,
                sessions: Vec::new(),
                lines: vec![LineReport::default(); if venue.line_b { 2 } else { 1 }],
                report: VenueReport::new(venue.kind),
            }
        };
        let line_options = options.venues.iter().map(|venue| LineOptions {
            lines: if venue.line_b { 2 } else { 1 },
            faults: venue.faults,
            skew_ns: venue.skew_ns,
        });
        Ok(Self {
            generator,
            pace: Pace::new(options.rate, &options.bursts),
            lines: Lines::new(options.seed, line_options),
            venues: options.venues.iter().enumerate().map(venue).collect(),
            start_utc_ns: options.start_utc_ns,
            midnight_ns: options.midnight_ns,
            nights: options.nights.iter().copied().collect(),
            slept_ns: 0,
            is_night: false,
            heartbeat_ns: options.heartbeat_ns,
            linger_ns: options.linger_ns,
            held: 0,
            is_turn_of_held: false,
            next_held: 0,
            is_exhausted: false,
            ended_ns: None,
            messages: 0,
            worst_late_ns: 0,
        })
    }

    /// When [`Live::advance`] has something to do next, in nanoseconds since the start; `None` when all is over.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        let waiting_ns = self.lines.due_ns();
        let heartbeat_ns = self.venues.iter().map(|venue| venue.heartbeat_due_ns).min();
        match self.ended_ns {
            None => {
                let due_ns = heartbeat_ns.unwrap_or(u64::MAX).min(waiting_ns.unwrap_or(u64::MAX));
                Some(self.next_step().at_ns().min(due_ns))
            }
            Some(ended_ns) => {
                let over_ns = ended_ns.saturating_add(self.linger_ns);
                let repeat_ns = heartbeat_ns.filter(|due_ns| *due_ns <= over_ns);
                waiting_ns.into_iter().chain(repeat_ns).min()
            }
        }
    }

    /// Sends the messages and packets due `now_ns` after the start: at most some thousand messages at once, so that a second
    /// call for the same time may be needed. `now_ns` must not go back.
    pub fn advance(&mut self, now_ns: u64, outlet: &mut impl Outlet) {
        if self.ended_ns.is_none() {
            self.begin(outlet);
            for _ in 0..MOST_AT_ONCE {
                let next = self.next_step();
                let due_ns = next.at_ns();
                if due_ns > now_ns || self.ended_ns.is_some() {
                    break;
                }
                match next {
                    Next::Message { of_pace, .. } => {
                        self.pace.advance(of_pace);
                        self.worst_late_ns = self.worst_late_ns.max(now_ns - due_ns);
                        self.turn(due_ns, now_ns, outlet);
                    }
                    Next::Evening(_) => self.close_for_the_night(due_ns, now_ns, outlet),
                    Next::Morning(_) => self.open_next_day(now_ns, outlet),
                }
            }
            for venue in 0..self.venues.len() {
                self.flush(venue, now_ns, outlet);
            }
        }
        for venue in 0..self.venues.len() {
            if self.venues[venue].heartbeat_due_ns <= now_ns {
                let content = match self.ended_ns {
                    Some(_) if self.venues[venue].kind.transport().marks_end() => Content::EndOfSession,
                    _ => Content::Heartbeat,
                };
                self.send(venue, now_ns, content);
            }
        }
        self.deliver(now_ns, outlet);
    }

    /// Ends all sessions now, and hands out whatever waits.
    pub fn finish(&mut self, now_ns: u64, outlet: &mut impl Outlet) {
        self.begin(outlet);
        self.end(now_ns, outlet);
        self.deliver(u64::MAX, outlet);
    }

    /// What is due next.
    fn next_step(&self) -> Next {
        let of_pace = self.pace.next();
        let due_ns = of_pace.0.saturating_add(self.slept_ns);
        match self.nights.front() {
            Some(night) if self.is_night => {
                Next::Morning(night.at_ns.saturating_add(night.length_ns).saturating_add(self.slept_ns))
            }
            Some(night) if night.at_ns <= of_pace.0 => {
                Next::Evening(night.at_ns.saturating_add(self.slept_ns))
            }
            _ => Next::Message { due_ns, of_pace },
        }
    }

    /// The trading day ends: what waits is sent, and the sessions end.
    fn close_for_the_night(&mut self, due_ns: u64, now_ns: u64, outlet: &mut impl Outlet) {
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        while (0..self.venues.len()).any(|venue| self.generator.pending(venue) > 0)
            && let Some(generated) = self.generator.next_message(&mut bytes)
        {
            self.venues[generated.venue].held.push_back(Held { bytes, length: generated.length });
            self.held += 1;
        }
        for index in 0..self.venues.len() {
            while let Some(message) = self.venues[index].held.pop_front() {
                self.held -= 1;
                self.send_message(index, message, due_ns, now_ns, outlet);
            }
            self.flush(index, now_ns, outlet);
            self.end_session(index, now_ns);
            self.venues[index].heartbeat_due_ns = u64::MAX;
        }
        self.is_night = true;
    }

    /// The next trading day begins: each venue numbers from 1.
    fn open_next_day(&mut self, now_ns: u64, outlet: &mut impl Outlet) {
        let night = self.nights.pop_front();
        self.slept_ns = self.slept_ns.saturating_add(night.map_or(0, |night| night.length_ns));
        self.is_night = false;
        let now_utc_ns = self.start_utc_ns.saturating_add(now_ns);
        while now_utc_ns >= self.midnight_ns.saturating_add(24 * HOUR_NS) {
            self.midnight_ns += 24 * HOUR_NS;
        }
        for index in 0..self.venues.len() {
            let venue = &mut self.venues[index];
            venue.silent_until_ns = 0;
            if self.heartbeat_ns > 0 {
                venue.heartbeat_due_ns = now_ns.saturating_add(self.heartbeat_ns);
            }
            let session = match venue.keeps_session {
                true => venue.stream.session(),
                false => self.next_session(index),
            };
            self.begin_anew(index, session, outlet);
        }
    }

    /// Reports the sessions' names before their first packets.
    fn begin(&mut self, outlet: &mut impl Outlet) {
        for (index, venue) in self.venues.iter_mut().enumerate() {
            if venue.sessions.is_empty() {
                venue.sessions.push(SessionReport {
                    session: venue.stream.session(),
                    number: venue.session_number,
                    messages: 0,
                });
                outlet.session(index, venue.stream.session());
            }
        }
    }

    /// A message is due: the next one of the market, or one that waits.
    fn turn(&mut self, due_ns: u64, now_ns: u64, outlet: &mut impl Outlet) {
        if self.held > 0 {
            self.is_turn_of_held = !self.is_turn_of_held;
            if (self.is_turn_of_held || self.is_exhausted) && self.send_held(due_ns, now_ns, outlet) {
                return;
            }
            // All of them are silent: due messages wait too, up to a limit.
            if self.held >= MOST_WAITING || self.is_exhausted {
                return;
            }
        }
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        let Some(generated) = self.generator.next_message(&mut bytes) else {
            self.is_exhausted = true;
            if self.held == 0 {
                self.end(now_ns, outlet);
            }
            return;
        };
        let message = Held { bytes, length: generated.length };
        let venue = &mut self.venues[generated.venue];
        if venue.held.is_empty() && venue.silent_until_ns <= due_ns {
            self.send_message(generated.venue, message, due_ns, now_ns, outlet);
            return;
        }
        venue.held.push_back(message);
        self.held += 1;
        self.send_held(due_ns, now_ns, outlet);
    }

    /// Sends the first message that waits at the next venue that is not silent.
    fn send_held(&mut self, due_ns: u64, now_ns: u64, outlet: &mut impl Outlet) -> bool {
        let count = self.venues.len();
        for offset in 0..count {
            let index = (self.next_held + offset) % count;
            let venue = &mut self.venues[index];
            if venue.silent_until_ns <= due_ns
                && let Some(message) = venue.held.pop_front()
            {
                self.held -= 1;
                self.next_held = index + 1;
                self.send_message(index, message, due_ns, now_ns, outlet);
                return true;
            }
        }
        false
    }

    /// Puts a message into its venue's packet.
    fn send_message(
        &mut self,
        index: usize,
        mut message: Held,
        due_ns: u64,
        now_ns: u64,
        outlet: &mut impl Outlet,
    ) {
        let due_utc_ns = self.start_utc_ns.saturating_add(due_ns);
        let venue = &mut self.venues[index];
        let kind = venue.kind;
        let Some(bytes) = message.bytes.get_mut(..message.length) else { return };
        // Seconds begin when they do here.
        if for_dialect!(kind, D => D::is_full_second(bytes)) {
            return;
        }
        for_dialect!(kind, D => {
            if let Some(second) = D::second_of(due_utc_ns, self.midnight_ns)
                && venue.second.replace(second) != Some(second)
            {
                self.put(index, D::full_second(second).as_ref(), due_utc_ns, now_ns, outlet);
            }
        });
        let venue = &mut self.venues[index];
        for_dialect!(kind, D => D::restamp(bytes, due_utc_ns, self.midnight_ns));
        let nonsense = venue.nonsense.follow(bytes);
        self.put(index, bytes, due_utc_ns, now_ns, outlet);
        if let Some(mut nonsense) = nonsense
            && let Some(bytes) = nonsense.bytes.get_mut(..nonsense.length)
        {
            for_dialect!(kind, D => D::restamp(bytes, due_utc_ns, self.midnight_ns));
            self.put(index, bytes, due_utc_ns, now_ns, outlet);
        }
        let venue = &mut self.venues[index];
        if venue.silences.front().is_some_and(|silence| venue.messages >= silence.after) {
            if let Some(silence) = venue.silences.pop_front() {
                venue.silent_until_ns = due_ns.saturating_add(silence.length_ns);
                venue.silences_begun += 1;
            }
            self.flush(index, now_ns, outlet);
            let venue = &mut self.venues[index];
            if self.heartbeat_ns > 0 {
                venue.heartbeat_due_ns = venue.silent_until_ns;
            }
        }
        let venue = &self.venues[index];
        let is_due = venue.restarts.front().is_some_and(|after| venue.messages >= *after);
        let resets = venue.resets.front().is_some_and(|reset| venue.messages >= reset.after);
        if (is_due || resets) && venue.held.is_empty() && self.generator.pending(index) == 0 {
            if is_due {
                self.restart(index, now_ns, outlet);
            } else {
                self.reset(index, due_ns, now_ns, outlet);
            }
        }
    }

    /// Puts the bytes of a message into its venue's packet, and sends that first if there is no room.
    fn put(&mut self, index: usize, bytes: &[u8], due_utc_ns: u64, now_ns: u64, outlet: &mut impl Outlet) {
        if !self.venues[index].stream.has_room(bytes) {
            self.flush(index, now_ns, outlet);
        }
        let venue = &mut self.venues[index];
        if venue.stream.messages() == 0 {
            venue.opened_utc_ns = due_utc_ns;
        }
        venue.stream.put(bytes);
        venue.messages += 1;
        self.messages += 1;
        if let Some(session) = venue.sessions.last_mut() {
            session.messages += 1;
        }
    }

    /// A venue forgets its numbers.
    fn reset(&mut self, index: usize, due_ns: u64, now_ns: u64, outlet: &mut impl Outlet) {
        self.flush(index, now_ns, outlet);
        self.lines.release(index);
        let venue = &mut self.venues[index];
        venue.resets_begun += 1;
        if let Some(reset) = venue.resets.pop_front() {
            venue.silent_until_ns = due_ns.saturating_add(reset.length_ns);
        }
        if self.heartbeat_ns > 0 {
            venue.heartbeat_due_ns = venue.silent_until_ns;
        }
        let session = venue.stream.session();
        self.begin_anew(index, session, outlet);
    }

    /// Ends a venue's session and begins the next one, which first sends the venue's state.
    fn restart(&mut self, index: usize, now_ns: u64, outlet: &mut impl Outlet) {
        self.flush(index, now_ns, outlet);
        self.end_session(index, now_ns);
        self.venues[index].restarts.pop_front();
        let session = self.next_session(index);
        self.begin_anew(index, session, outlet);
    }

    fn next_session(&mut self, index: usize) -> SessionId {
        let venue = &mut self.venues[index];
        venue.session_number = venue.session_number.wrapping_add(1);
        session_of(venue.kind, index, venue.session_number, venue.unit)
    }

    /// Numbers from 1 on, beginning with the messages of the venue's state.
    fn begin_anew(&mut self, index: usize, session: SessionId, outlet: &mut impl Outlet) {
        let venue = &mut self.venues[index];
        venue.second = None;
        let is_announced = venue.announces || session != venue.stream.session();
        venue.stream = Stream::new(session, 0);
        venue.sessions.push(SessionReport { session, number: venue.session_number, messages: 0 });
        let held = &mut venue.held;
        self.generator.first_messages(index, is_announced, |message| {
            let mut bytes = [0; MAX_MESSAGE_BYTES];
            // No message is longer.
            if let Some(room) = bytes.get_mut(..message.len()) {
                room.copy_from_slice(message);
                held.push_back(Held { bytes, length: message.len() });
            }
        });
        self.held += held.len();
        outlet.session(index, session);
    }

    /// MoldUDP64 marks the end of a session, IEX-TP does not.
    fn end_session(&mut self, index: usize, now_ns: u64) {
        self.lines.release(index);
        if self.venues[index].kind.transport().marks_end() {
            self.send(index, now_ns, Content::EndOfSession);
        }
    }

    fn end(&mut self, now_ns: u64, outlet: &mut impl Outlet) {
        if self.ended_ns.is_some() {
            return;
        }
        for venue in 0..self.venues.len() {
            self.flush(venue, now_ns, outlet);
            self.end_session(venue, now_ns);
        }
        self.ended_ns = Some(now_ns);
    }

    fn flush(&mut self, index: usize, now_ns: u64, outlet: &mut impl Outlet) {
        let stream = &self.venues[index].stream;
        if stream.messages() == 0 {
            return;
        }
        let made = Made {
            first: stream.next_sequence(),
            count: stream.messages(),
            stream_offset: stream.stream_offset(),
            blocks: stream.blocks(),
        };
        outlet.made(index, &made);
        self.send(index, now_ns, Content::Messages);
        let venue = &mut self.venues[index];
        venue.packets += 1;
        venue.stream.begin_next();
    }

    /// Puts the open packet, or one without messages, on the venue's lines.
    fn send(&mut self, index: usize, now_ns: u64, content: Content) {
        let venue = &mut self.venues[index];
        let send_time_ns = match content {
            Content::Messages => venue.opened_utc_ns,
            _ => self.start_utc_ns.saturating_add(now_ns),
        };
        venue.stream.close(send_time_ns, content);
        if self.heartbeat_ns > 0 {
            venue.heartbeat_due_ns = now_ns.saturating_add(self.heartbeat_ns);
        }
        let payload = venue.stream.payload();
        let outgoing = Outgoing { venue: index, now_ns, content, messages: venue.stream.messages() };
        self.lines.send(outgoing, &mut venue.report, |_, copy| {
            copy.extend_from_slice(payload);
            true
        });
    }

    /// Hands out the due packets.
    fn deliver(&mut self, until_ns: u64, outlet: &mut impl Outlet) {
        while let Some(packet) = self.lines.take(until_ns) {
            let (venue, line, messages) = (packet.venue, packet.line, packet.messages);
            if let Some(report) = self.venues.get_mut(venue).and_then(|venue| venue.lines.get_mut(line)) {
                report.count(packet.content, messages);
            }
            outlet.packet(&LivePacket {
                venue,
                line,
                content: packet.content,
                messages,
                payload: &packet.frame,
            });
            self.lines.reuse(packet.frame);
        }
    }

    /// The current state of a venue for a receiver without history, with `now_ns` after the start as the messages' time, and without the
    /// end of the snapshot ([`Image::finish`]). `None`: there is no such venue.
    #[must_use]
    pub fn image(&self, venue: usize, now_ns: u64) -> Option<Image> {
        let state = self.venues.get(venue)?;
        let utc_ns = self.start_utc_ns.saturating_add(now_ns);
        let kind = state.kind;
        // Messages that are made but not sent yet have changed the books already. Nonsense that will be sent among them takes numbers too, and the
        // generator's seconds will not be sent.
        let to_send = || {
            let held = state.held.iter().filter_map(|held| held.bytes.get(..held.length));
            let made = held.chain(self.generator.pending_messages(venue));
            made.filter(|message| !for_dialect!(kind, D => D::is_full_second(message)))
        };
        let (unsent, nonsense) = (to_send().count() as u64, state.nonsense.count_behind(to_send()));
        let next = state.stream.next_sequence() + u64::from(state.stream.messages()) + unsent + nonsense;
        let mut image = Image::new(state.stream.session(), next);
        image.time_ns = utc_ns;
        self.generator.image(venue, |message| {
            image.put(message, |bytes| for_dialect!(kind, D => D::restamp(bytes, utc_ns, self.midnight_ns)));
        });
        Some(image)
    }

    /// Messages of all venues so far.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// The counters so far.
    #[must_use]
    pub fn report(&self) -> LiveReport {
        let venue = |venue: &Venue| LiveVenueReport {
            kind: venue.kind,
            messages: venue.messages,
            packets: venue.packets,
            sessions: venue.sessions.clone(),
            lines: venue
                .lines
                .iter()
                .zip(venue.report.injected)
                .map(|(line, injected)| LineReport { injected, ..*line })
                .collect(),
            lost_messages: venue.report.lost_messages,
            silences: venue.silences_begun,
            resets: venue.resets_begun,
            nonsense: venue.nonsense.made(),
        };
        LiveReport {
            messages: self.messages,
            worst_late_ns: self.worst_late_ns,
            venues: self.venues.iter().map(venue).collect(),
        }
    }
}
