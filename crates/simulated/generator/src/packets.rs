//! The venues' lines: messages in the packets of their transports (MoldUDP64, IEX-TP, and others), in UDP, IPv4 and Ethernet, to
//! the real multicast groups, with heartbeats and, optionally, a line B and line faults.
//!
//! Cost: a copy of each message and of each packet, and the checksum. Memory: one open packet per venue, and the delayed packets
//! (line B's skew, duplicates).

use tapeworks_capture::net::build::FrameBuilder;
use tapeworks_session::{Content, Stream};

use crate::generator::{Generated, Generator, MAX_MESSAGE_BYTES, Messages};
use crate::lines::{LineOptions, Lines, Outgoing, Waiting};
use crate::report::{Counter, Report};
use crate::scenario::{HOUR_NS, Scenario, ScenarioError, Unit, VenueKind};

/// Length of the Ethernet, IPv4 and UDP headers without a VLAN tag, in bytes.
const NETWORK_HEADERS_BYTES: usize = 42;
/// How long after the last message a session ends, in nanoseconds.
const END_AFTER_NS: u64 = 1_000_000;
/// The senders' Ethernet addresses: locally administered, one per line.
const SENDERS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xA], [2, 0, 0, 0, 0, 0xB]];

/// A packet on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it was sent, in nanoseconds since 1970-01-01 00:00 UTC; it never decreases.
    pub timestamp_ns: u64,
    /// Index of the venue in the scenario.
    pub venue: usize,
    /// 0 for line A, 1 for line B.
    pub line: usize,
    /// The whole Ethernet frame.
    pub frame: &'a [u8],
    /// The UDP payload within it.
    pub payload: &'a [u8],
}

/// A venue's open packet and its session.
#[derive(Debug, Clone)]
struct Sender {
    stream: Stream,
    builders: [FrameBuilder; 2],
    /// When the open packet must be sent; `u64::MAX` if there is none.
    deadline_ns: u64,
    /// When a heartbeat is due; `u64::MAX` if none is.
    heartbeat_ns: u64,
}

impl Sender {
    fn new(number: usize, kind: VenueKind, midnight_ns: u64) -> Self {
        let ([group_a, group_b], [source_a, source_b]) = (kind.groups(), kind.sources());
        let mut name = *b"TAPEWORKSA";
        name[9] += number as u8;
        let session = kind.session(name, (midnight_ns / (24 * HOUR_NS)) as u32, Unit::WHOLE);
        Self {
            stream: Stream::new(session, NETWORK_HEADERS_BYTES),
            builders: [
                FrameBuilder::to_group(SENDERS[0], source_a, group_a),
                FrameBuilder::to_group(SENDERS[1], source_b, group_b),
            ],
            deadline_ns: u64::MAX,
            heartbeat_ns: u64::MAX,
        }
    }

    fn due_ns(&self) -> u64 {
        self.deadline_ns.min(self.heartbeat_ns)
    }
}

/// A market as a stream of packets on its lines, in time order.
///
/// The same scenario produces the same bytes. The messages come from its own [`Generator`] or from one that runs elsewhere.
///
/// ```
/// use tapeworks_generator::{Packets, Scenario};
///
/// # fn main() -> Result<(), tapeworks_generator::ScenarioError> {
/// let mut packets = Packets::new(&Scenario::full_session(10_000, 20))?;
/// while let Some(packet) = packets.next_packet() {
///     assert!(packet.payload.len() >= 20, "a MoldUDP64 header at least");
/// }
/// assert_eq!(packets.report().messages, 10_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Packets<M = Generator> {
    messages: M,
    senders: Vec<Sender>,
    lines: Lines,
    hold_ns: u64,
    heartbeat_ns: u64,
    /// The next message, whose time has not come yet.
    held: Option<Generated>,
    message: [u8; MAX_MESSAGE_BYTES],
    /// When each venue's sender next has work. Stored contiguously, because every message checks all of them.
    dues_ns: Vec<u64>,
    /// The earliest of these times.
    due_ns: u64,
    ended: bool,
    /// No packet will be made for an earlier time.
    settled_ns: u64,
    scenario: Scenario,
    /// The run that the senders are in.
    run: u32,
    given: Waiting,
    counter: Counter,
}

impl Packets {
    /// Creates the lines of this scenario, before their first packet.
    ///
    /// # Errors
    /// The scenario violates a rule ([`Scenario::check`]).
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        // Checked before the rules of the market, which are wider.
        scenario.check()?;
        Self::of(scenario, Generator::new(scenario)?)
    }
}

impl<M: Messages> Packets<M> {
    /// Creates the lines of this scenario with its messages, before their first packet.
    ///
    /// # Errors
    /// The scenario violates a rule ([`Scenario::check`]).
    pub fn of(scenario: &Scenario, messages: M) -> Result<Self, ScenarioError> {
        scenario.check()?;
        let venues = scenario.venues.iter().enumerate();
        let line_options = LineOptions {
            lines: if scenario.line_b { 2 } else { 1 },
            faults: scenario.faults,
            skew_ns: scenario.line_b_skew_ns,
        };
        let mut packets = Self {
            messages,
            senders: venues
                .map(|(number, venue)| Sender::new(number, venue.kind, scenario.midnight_ns))
                .collect(),
            scenario: scenario.clone(),
            run: 0,
            lines: Lines::new(scenario.seed, scenario.venues.iter().map(|_| line_options)),
            hold_ns: scenario.packet_hold_ns,
            heartbeat_ns: scenario.heartbeat_ns,
            held: None,
            message: [0; MAX_MESSAGE_BYTES],
            dues_ns: vec![u64::MAX; scenario.venues.len()],
            due_ns: u64::MAX,
            ended: false,
            settled_ns: 0,
            given: Waiting::default(),
            counter: Counter::new(scenario),
        };
        packets.fetch();
        Ok(packets)
    }

    /// Returns the counters so far: messages as they enter packets, faults as they are injected.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.counter.report
    }

    /// Returns the next packet, or `None` after the end of the session.
    pub fn next_packet(&mut self) -> Option<Packet<'_>> {
        loop {
            let until_ns = if self.ended { u64::MAX } else { self.settled_ns };
            if let Some(packet) = self.lines.take(until_ns) {
                let used = std::mem::replace(&mut self.given, packet);
                self.lines.reuse(used.frame);
                break;
            }
            if self.ended {
                return None;
            }
            self.advance();
        }
        let Waiting { time_ns, venue, line, frame, .. } = &self.given;
        self.counter.report.packets += 1;
        let payload = frame.get(NETWORK_HEADERS_BYTES..).unwrap_or_default();
        Some(Packet { timestamp_ns: *time_ns, venue: *venue, line: *line, frame, payload })
    }

    fn fetch(&mut self) {
        self.held = self.messages.next_message(&mut self.message);
    }

    /// Runs the next due step: sends a packet or a heartbeat, or adds a message to its packet.
    fn advance(&mut self) {
        match self.held {
            Some(generated) if generated.timestamp_ns < self.due_ns && generated.run == self.run => {
                self.accept(generated);
            }
            Some(generated) if generated.run != self.run && self.has_no_open_packet() => {
                self.begin_run(generated.run);
            }
            None if self.has_no_open_packet() => self.end(),
            _ => self.do_what_is_due(),
        }
        // After the last message, only open packets remain to be sent.
        let due_ns = if self.held.is_none() {
            self.senders.iter().map(|sender| sender.deadline_ns).min()
        } else {
            self.dues_ns.iter().copied().min()
        };
        self.due_ns = due_ns.unwrap_or(u64::MAX);
    }

    /// Updates when a venue's sender next has work.
    #[inline]
    fn note_due(&mut self, venue: usize) {
        self.dues_ns[venue] = self.senders[venue].due_ns();
    }

    fn accept(&mut self, generated: Generated) {
        let now_ns = generated.timestamp_ns;
        self.settled_ns = now_ns;
        self.counter.count(&generated);
        let venue = generated.venue;
        if !self.senders[venue].stream.has_room(&self.message[..generated.length]) {
            self.flush(venue, now_ns);
        }
        let sender = &mut self.senders[venue];
        sender.stream.put(&self.message[..generated.length]);
        if sender.stream.messages() == 1 {
            sender.deadline_ns = now_ns + self.hold_ns;
            self.note_due(venue);
        }
        self.fetch();
    }

    fn do_what_is_due(&mut self) {
        let due_ns = self.due_ns;
        self.settled_ns = due_ns;
        for venue in 0..self.senders.len() {
            if self.dues_ns[venue] > due_ns {
                continue;
            }
            let sender = &self.senders[venue];
            if sender.stream.messages() > 0 {
                self.flush(venue, due_ns);
            } else {
                self.send(venue, due_ns, Content::Heartbeat);
            }
        }
    }

    fn has_no_open_packet(&self) -> bool {
        self.senders.iter().all(|sender| sender.deadline_ns == u64::MAX)
    }

    /// Ends every session: MoldUDP64 marks the end, IEX-TP falls silent.
    fn end(&mut self) {
        self.end_sessions(true);
        self.ended = true;
    }

    /// Ends the sessions after their last packets. The ends are marked unless the feeds failed.
    fn end_sessions(&mut self, are_marked: bool) {
        let end_ns = self.settled_ns.saturating_add(END_AFTER_NS);
        for venue in 0..self.senders.len() {
            self.lines.release(venue);
            if are_marked && self.senders[venue].stream.session().transport().marks_end() {
                self.send(venue, end_ns, Content::EndOfSession);
            }
        }
    }

    /// Starts the next trading day, or restarts the feeds after a failure: all number from 1. A feed is silent until its first
    /// message.
    #[cold]
    fn begin_run(&mut self, run: u32) {
        let midnight_ns = self.scenario.midnight_of_run(run.into());
        self.end_sessions(midnight_ns != self.scenario.midnight_of_run(self.run.into()));
        for venue in 0..self.senders.len() {
            self.senders[venue] = Sender::new(venue, self.scenario.venues[venue].kind, midnight_ns);
            self.note_due(venue);
        }
        self.run = run;
    }

    fn flush(&mut self, venue: usize, now_ns: u64) {
        self.send(venue, now_ns, Content::Messages);
        let sender = &mut self.senders[venue];
        sender.stream.begin_next();
        sender.deadline_ns = u64::MAX;
        self.note_due(venue);
    }

    /// Sends the venue's open packet, or a packet without messages, on its lines.
    fn send(&mut self, venue: usize, now_ns: u64, content: Content) {
        if self.heartbeat_ns > 0 {
            self.senders[venue].heartbeat_ns = now_ns + self.heartbeat_ns;
            self.note_due(venue);
        }
        let Sender { stream, builders, .. } = &mut self.senders[venue];
        let payload_bytes = stream.close(now_ns, content);
        let report = &mut self.counter.report;
        let (heartbeats, venue_report) = (&mut report.heartbeats, &mut report.venues[venue]);
        let outgoing = Outgoing { venue, now_ns, content, messages: stream.messages() };
        self.lines.send(outgoing, venue_report, |line, copy| {
            // A sender's buffer has room for every frame, so building one always succeeds.
            let built = builders[line].udp_in_place(payload_bytes, stream.frame_mut());
            debug_assert!(built.is_ok(), "{built:?}");
            let Some(bytes) = built.ok().and_then(|length| stream.frame_mut().get(..length)) else {
                return false;
            };
            copy.extend_from_slice(bytes);
            *heartbeats += u64::from(content == Content::Heartbeat);
            true
        });
    }
}
