//! Live venues: each message has a due time, and is sent then.
//!
//! [`Live`] has no clock: the caller passes the time since the start, and it delivers the packets that are due. Message `n` is
//! due at `n / rate` after the start, with bursts on top. Late messages are sent as fast as possible, and their due times never
//! move. A message's own timestamp is its due time, so a receiver measures latency from then.
//!
//! A venue can start a new session during the day ([`LiveVenue::restart_after`]), or restart the numbers of its session
//! ([`LiveVenue::resets`]). In both cases it numbers from 1 and first sends the state for a receiver without history: the phases
//! of the day so far, beginning with the start of messages, which empties books; the directory; the states; and every resting
//! order as an addition. A venue that does not announce its restarts ([`LiveVenue::announces`]) omits the start of messages. A
//! venue can fall silent ([`LiveVenue::silences`]): its messages wait and are sent afterwards, timestamped when they are sent. At
//! night ([`LiveOptions::nights`]) all venues close, and the next trading day begins like a restart.
//!
//! Cost: as for the [`Generator`] and [`Packets`](crate::Packets), without the network headers. Additional memory: 136 bytes for
//! each message that waits during a silence or after a restart.

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

/// Maximum number of messages that one call of [`Live::advance`] makes.
const MOST_AT_ONCE: usize = 4_096;

/// Highest rate, in messages per second: one per nanosecond.
pub const MOST_A_SECOND: u64 = SECOND_NS;

/// Maximum number of waiting messages; beyond it the whole market waits.
const MOST_WAITING: usize = 1 << 20;

/// A period of high rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveBurst {
    /// Its start, in nanoseconds since the simulation's start.
    pub at_ns: u64,
    /// Its length in nanoseconds.
    pub length_ns: u64,
    /// Messages per second over all venues, in addition to the usual rate.
    pub messages_per_second: u64,
}

/// A period during which a venue sends nothing, not even heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// It begins after this many messages of the venue.
    pub after: u64,
    /// How long it lasts, in nanoseconds.
    pub length_ns: u64,
}

/// A night between two trading days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Night {
    /// When it begins, in nanoseconds since the start, not counting earlier nights.
    pub at_ns: u64,
    /// How long it lasts, in nanoseconds.
    pub length_ns: u64,
}

/// A live venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveVenue {
    /// The market; several venues may simulate the same market.
    pub kind: VenueKind,
    /// Its share of all activity, relative to the sum over the venues.
    pub share: u32,
    /// The symbols that it trades.
    pub unit: Unit,
    /// Whether it has a line B.
    pub line_b: bool,
    /// Faults of lines A and B.
    pub faults: [LineFaults; 2],
    /// Maximum delay of line B after line A, in nanoseconds.
    pub skew_ns: u64,
    /// Message counts, ascending, over all sessions of this venue, after which its session ends and a new one starts. The restart
    /// may happen some messages later, at the end of an event.
    pub restart_after: Vec<u64>,
    /// When it sends nothing, ascending.
    pub silences: Vec<Silence>,
    /// When it loses its sequence numbers, ascending, like a feed process that restarts after a crash: it is silent, then numbers
    /// from 1 in the same session and first sends its state, as after a restart.
    pub resets: Vec<Silence>,
    /// Whether a message announces that the numbers restart within the same session. If not, only the numbers show it. IEX-TP
    /// always announces it, through its stream offset.
    pub announces: bool,
    /// Whether the next trading day continues the same session. Protocols without sessions always do.
    pub keeps_session: bool,
    /// Nonsense messages per million of its own messages: unknown types, truncated messages, random bytes, a second symbol for a
    /// locate, and executions or cancels that exceed the order. They must not harm receivers.
    pub nonsense_per_million: u32,
}

impl LiveVenue {
    /// Creates a venue with all symbols, no line B and no faults, that announces its restarts.
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
    /// The same seed and times produce the same bytes.
    pub seed: u64,
    /// The start, in nanoseconds since 1970-01-01 00:00 UTC. Session names contain its second.
    pub start_utc_ns: u64,
    /// The midnight in New York before the start, in the same unit: the origin of ITCH times.
    pub midnight_ns: u64,
    /// Symbols, 1 to 65,535. Each trades at every venue.
    pub symbols: u32,
    /// How activity is distributed over the symbols.
    pub popularity: Popularity,
    /// Number of orders at which a side of a book stops growing: see [`Scenario::most_orders`].
    pub most_orders: u32,
    /// Total messages of all venues for a whole trading day, however long that takes. `None` means an open market that never ends.
    pub messages: Option<u64>,
    /// Messages per second over all venues, at most [`MOST_A_SECOND`].
    pub rate: u64,
    /// Bursts on top of `rate`.
    pub bursts: Vec<LiveBurst>,
    /// The nights, ascending. `rate` and `bursts` do not count them: a night postpones everything after it by its length.
    pub nights: Vec<Night>,
    /// A venue that is silent for this long sends a heartbeat, in nanoseconds; 0 disables heartbeats.
    pub heartbeat_ns: u64,
    /// How long ends of session are repeated, in nanoseconds.
    pub linger_ns: u64,
    /// The venues, at most [`MAX_MARKETS`](crate::MAX_MARKETS).
    pub venues: Vec<LiveVenue>,
}

/// A packet to send on a line now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivePacket<'a> {
    /// Index of the venue.
    pub venue: usize,
    /// 0 for line A, 1 for line B.
    pub line: usize,
    /// Its purpose.
    pub content: Content,
    /// Number of messages in it.
    pub messages: u16,
    /// The UDP payload.
    pub payload: &'a [u8],
}

/// Receives the packets of [`Live`].
pub trait Outlet {
    /// Called when a session of a venue begins.
    fn session(&mut self, venue: usize, session: SessionId);
    /// Called when a packet is made, before it is sent and regardless of line faults.
    fn made(&mut self, venue: usize, made: &Made<'_>);
    /// Called when a packet is sent on a line.
    fn packet(&mut self, packet: &LivePacket<'_>);
}

/// Counters of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineReport {
    /// Packets with messages that were sent, including duplicates.
    pub packets: u64,
    /// Number of messages in them.
    pub messages: u64,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Ends of session sent.
    pub ends_of_session: u64,
    /// The injected faults.
    pub injected: Injected,
}

impl LineReport {
    /// Counts a sent packet.
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
    /// Its number: the second of the start, or one more than the previous session's number.
    pub number: u32,
    /// Messages in it so far.
    pub messages: u64,
}

/// Counters of one venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveVenueReport {
    /// The market.
    pub kind: VenueKind,
    /// Messages in all sessions.
    pub messages: u64,
    /// Packets that contained them, each counted once regardless of line faults.
    pub packets: u64,
    /// Its sessions; the current one is last.
    pub sessions: Vec<SessionReport>,
    /// Line A and, if it exists, line B.
    pub lines: Vec<LineReport>,
    /// Messages that arrived on no line.
    pub lost_messages: u64,
    /// Silences that began.
    pub silences: u64,
    /// Times that it lost its sequence numbers.
    pub resets: u64,
    /// Nonsense messages.
    pub nonsense: NonsenseCounts,
}

/// The counters so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveReport {
    /// Messages of all venues.
    pub messages: u64,
    /// The longest time between a message's due time and its creation, in nanoseconds.
    pub worst_late_ns: u64,
    /// The venues, in the order of the options.
    pub venues: Vec<LiveVenueReport>,
}

/// The due times of messages.
#[derive(Debug)]
struct Pace {
    rate: u64,
    made: u64,
    /// The bursts by time, each with its messages so far; bursts before `first` are over.
    bursts: Vec<(LiveBurst, u64)>,
    first: usize,
}

impl Pace {
    fn new(rate: u64, bursts: &[LiveBurst]) -> Self {
        let mut bursts: Vec<_> = bursts.iter().map(|burst| (*burst, 0)).collect();
        bursts.sort_by_key(|(burst, _)| burst.at_ns);
        Self { rate: rate.max(1), made: 0, bursts, first: 0 }
    }

    /// Returns `number / rate` in nanoseconds; a rate is at most [`MOST_A_SECOND`].
    fn time_of(number: u64, rate: u64) -> u64 {
        let rate = rate.clamp(1, MOST_A_SECOND);
        // Whole seconds are computed separately so that nothing overflows: a 128-bit division costs as much as a message.
        (number / rate).saturating_mul(SECOND_NS).saturating_add(number % rate * SECOND_NS / rate)
    }

    /// Returns when the next message is due, and the burst that it belongs to.
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

    /// Moves past the message that [`Pace::next`] returned.
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

/// The next step, with its time in nanoseconds since the start.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// A message is due; `of_pace` is what [`Pace`] returned for it.
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

/// A message waiting to be sent.
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
    /// In nanoseconds since the start; `u64::MAX` means none.
    heartbeat_due_ns: u64,
    silent_until_ns: u64,
    held: VecDeque<Held>,
    /// The second of its last message, if the protocol sends seconds separately.
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
    /// Total length of the nights so far, in nanoseconds.
    slept_ns: u64,
    /// All venues are closed until the first of `nights` ends.
    is_night: bool,
    heartbeat_ns: u64,
    linger_ns: u64,
    /// Number of waiting messages, over all venues.
    held: usize,
    /// Waiting messages get every second turn.
    is_turn_of_held: bool,
    next_held: usize,
    /// The generator has no more messages.
    is_exhausted: bool,
    /// When all sessions ended, if they have.
    ended_ns: Option<u64>,
    messages: u64,
    worst_late_ns: u64,
}

/// Returns the session of a venue. A MoldUDP64 session is two capital letters for the venue and eight digits of `number`, so that
/// every venue has its own. IEX and MEMX have only the number: venues of one kind with the same number have the same session.
pub(crate) fn session_of(kind: VenueKind, venue: usize, number: u32, unit: Unit) -> SessionId {
    let mut name = digits(number);
    // There are fewer than 26 * 26 venues.
    name.0[0] = b'A' + (venue / 26) as u8;
    name.0[1] = b'A' + (venue % 26) as u8;
    kind.session(name.0, number, unit)
}

impl Live {
    /// Creates the venues before their first message.
    ///
    /// # Errors
    /// The scenario violates a rule ([`Scenario::check_market`]).
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
            // The market's own clock runs at the speed of the real one.
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

    /// Returns when [`Live::advance`] next has work, in nanoseconds since the start, or `None` after the end.
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

    /// Sends the messages and packets due `now_ns` after the start.
    ///
    /// A call makes at most a few thousand messages, so a second call for the same time may be needed. `now_ns` must not go back.
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

    /// Ends all sessions now and delivers all waiting packets.
    pub fn finish(&mut self, now_ns: u64, outlet: &mut impl Outlet) {
        self.begin(outlet);
        self.end(now_ns, outlet);
        self.deliver(u64::MAX, outlet);
    }

    /// Returns the next step.
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

    /// Ends the trading day: sends the waiting messages and ends the sessions.
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

    /// Starts the next trading day, on which each venue numbers from 1.
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

    /// Sends a message that is due: the market's next message, or a waiting one.
    fn turn(&mut self, due_ns: u64, now_ns: u64, outlet: &mut impl Outlet) {
        if self.held > 0 {
            self.is_turn_of_held = !self.is_turn_of_held;
            if (self.is_turn_of_held || self.is_exhausted) && self.send_held(due_ns, now_ns, outlet) {
                return;
            }
            // No waiting message could be sent, or it is not their turn. Up to a limit, due messages wait too.
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

    /// Sends the first waiting message of the next venue that is not silent. Returns whether there was one.
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

    /// Adds a message to its venue's packet.
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
        // The generator's seconds are dropped; seconds follow live time here.
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

    /// Adds a message's bytes to its venue's packet, after sending the packet if it has no room.
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

    /// Restarts the numbers of a venue's session after a silence, as if its feed process had crashed.
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

    /// Ends a venue's session and starts the next one, which first sends the venue's state.
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

    /// Restarts numbering at 1, beginning with the messages of the venue's state.
    fn begin_anew(&mut self, index: usize, session: SessionId, outlet: &mut impl Outlet) {
        let venue = &mut self.venues[index];
        venue.second = None;
        let is_announced = venue.announces || session != venue.stream.session();
        venue.stream = Stream::new(session, 0);
        venue.sessions.push(SessionReport { session, number: venue.session_number, messages: 0 });
        let held = &mut venue.held;
        self.generator.first_messages(index, is_announced, |message| {
            let mut bytes = [0; MAX_MESSAGE_BYTES];
            // No message is longer than the buffer.
            if let Some(room) = bytes.get_mut(..message.len()) {
                room.copy_from_slice(message);
                held.push_back(Held { bytes, length: message.len() });
            }
        });
        self.held += held.len();
        outlet.session(index, session);
    }

    /// Ends a session. Only transports that mark the end send a packet: MoldUDP64 does, IEX-TP does not.
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

    /// Sends the open packet, or a packet without messages, on the venue's lines.
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

    /// Delivers the packets that are due.
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

    /// Returns the current state of a venue for a receiver without history.
    ///
    /// The messages carry the time `now_ns` after the start, and the end of the snapshot ([`Image::finish`]) is not included.
    /// Returns `None` if there is no such venue.
    #[must_use]
    pub fn image(&self, venue: usize, now_ns: u64) -> Option<Image> {
        let state = self.venues.get(venue)?;
        let utc_ns = self.start_utc_ns.saturating_add(now_ns);
        let kind = state.kind;
        // Messages that are made but not yet sent have already changed the books. Nonsense that will be sent among them uses
        // numbers too, and the generator's seconds will not be sent.
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

    /// Returns the number of messages of all venues so far.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns the counters so far.
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
