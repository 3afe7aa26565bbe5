//! The market-data line of a venue that accepts orders: its matching engine's events as TotalView-ITCH over MoldUDP64.
//!
//! [`ItchLine`] has no clock and no socket. The caller passes in each [`MarketEvent`], calls [`ItchLine::flush`] after the last
//! event of a turn and at [`ItchLine::due_ns`], and receives packets through an [`Outlet`], as with [`Live`](crate::live::Live).
//! A session begins with everything that a receiver without history needs: the phases of the day, the directory, and every
//! displayed order.
//!
//! Only the displayed book is published: adds, executions, reductions, deletions, replacements, and trades of hidden orders.
//! Partition halts are not published, because they belong to the gateway.
//!
//! Cost: a message is encoded into a buffer and copied into its packet, and each line gets a copy of the packet.

use tapeworks_session::snapshot::Image;
use tapeworks_session::{Content, Made, Stream};
use tapeworks_wire::Ascii;

use crate::book::{Order, Side};
use crate::dialect::Dialect as _;
use crate::instrument::Instrument;
use crate::lines::{LineOptions, Lines, Outgoing};
use crate::live::{LineReport, LivePacket, LiveVenue, LiveVenueReport, Outlet, SessionReport, session_of};
use crate::nasdaq::Itch;
use crate::nonsense::NonsenseCounts;
use crate::outbox::{Change, Outbox, Stamp, Standing};
use crate::report::VenueReport;
use crate::scenario::{MAX_MARKETS, Unit, VenueKind};
use tapeworks_matching::orders::MarketEvent;
use tapeworks_matching::{BookChange, MatchingEngine, OrderSide, SymbolIndex};

/// The engine's prices are in 1e-8, ITCH's in 1e-4.
const E8_PER_E4: i64 = 10_000;

/// The highest price of an ITCH order, in 1e-8: 200,000.0000.
pub const HIGHEST_PRICE_E8: i64 = 200_000 * 100_000_000;

/// The phases of a day that has begun: start of messages, of system hours, and of market hours.
const BEGUN: &[u8] = b"OSQ";

/// The phases at the end of a day: end of market hours, of system hours, and of messages.
const ENDED: &[u8] = b"MEC";

/// The directory entry of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// The symbol.
    pub symbol: Ascii<8>,
    /// Price increment, in 1e-8.
    pub tick_e8: i64,
    /// Shares of a round lot.
    pub round_lot: u32,
}

/// The options of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItchLineOptions {
    /// The market of the Nasdaq family that it resembles, and its line B, faults, and skew.
    pub venue: LiveVenue,
    /// The venue's index among the order venues of its process; session names contain it.
    pub place: usize,
    /// Seed of the faults.
    pub seed: u64,
    /// A line that is silent for this long sends a heartbeat, in nanoseconds; 0 disables heartbeats.
    pub heartbeat_ns: u64,
    /// The symbols, in the engine's order.
    pub symbols: Vec<Listed>,
}

/// A market-data line. See the [module](self).
#[derive(Debug)]
pub struct ItchLine {
    kind: VenueKind,
    place: usize,
    heartbeat_ns: u64,
    instruments: Vec<Instrument>,
    midnight_ns: u64,
    stream: Stream,
    lines: Lines,
    outbox: Outbox,
    /// When the first message of the open packet was made.
    opened_ns: u64,
    heartbeat_due_ns: u64,
    is_begun: bool,
    messages: u64,
    packets: u64,
    not_published: u64,
    sessions: Vec<SessionReport>,
    line_reports: Vec<LineReport>,
    report: VenueReport,
}

impl ItchLine {
    /// Creates a line before its first session.
    #[must_use]
    pub fn new(options: &ItchLineOptions) -> Self {
        let venue = &options.venue;
        let count = if venue.line_b { 2 } else { 1 };
        let line = LineOptions { lines: count, faults: venue.faults, skew_ns: venue.skew_ns };
        let instrument = |listed: &Listed| {
            let tick = u32::try_from(listed.tick_e8 / E8_PER_E4).unwrap_or(u32::MAX);
            Instrument::listed(listed.symbol, tick, listed.round_lot)
        };
        let place = MAX_MARKETS + options.place;
        Self {
            kind: venue.kind,
            place,
            heartbeat_ns: options.heartbeat_ns,
            instruments: options.symbols.iter().map(instrument).collect(),
            midnight_ns: 0,
            stream: Stream::new(session_of(venue.kind, place, 0, Unit::WHOLE), 0),
            lines: Lines::new(options.seed, std::iter::once(line)),
            outbox: Outbox::default(),
            opened_ns: 0,
            heartbeat_due_ns: u64::MAX,
            is_begun: false,
            messages: 0,
            packets: 0,
            not_published: 0,
            sessions: Vec::new(),
            line_reports: vec![LineReport::default(); count],
            report: VenueReport::new(venue.kind),
        }
    }

    /// Starts a session, named after the hundredth of a second in which it starts.
    ///
    /// Times are nanoseconds since 1970 UTC; `midnight_ns` is the midnight in New York from which ITCH counts.
    pub fn begin_session(
        &mut self,
        engine: &MatchingEngine,
        midnight_ns: u64,
        now_ns: u64,
        outlet: &mut impl Outlet,
    ) {
        let wanted = (now_ns / 10_000_000) as u32;
        let number = match self.sessions.last() {
            Some(before) if before.number == wanted => wanted.wrapping_add(1),
            _ => wanted,
        };
        let session = session_of(self.kind, self.place, number, Unit::WHOLE);
        self.stream = Stream::new(session, 0);
        self.sessions.push(SessionReport { session, number, messages: 0 });
        self.midnight_ns = midnight_ns;
        self.is_begun = true;
        outlet.session(0, session);
        let mut outbox = std::mem::take(&mut self.outbox);
        self.state(engine, now_ns, &mut outbox);
        self.outbox = outbox;
        self.put_all(now_ns, outlet);
        self.flush(now_ns, outlet);
    }

    /// Publishes an event. Between two sessions it is dropped, because the next session begins with the state.
    pub fn publish(&mut self, event: &MarketEvent, outlet: &mut impl Outlet) {
        if !self.is_begun {
            return;
        }
        // The change of the book publishes the trade.
        let MarketEvent::Book { time_ns, symbol, change } = *event else { return };
        let stamp = self.stamp(Some(symbol), time_ns);
        let Some(instrument) = self.instruments.get(symbol.0 as usize) else { return };
        match change_of(&change) {
            Some(change) => Itch::change(&mut self.outbox, &stamp, instrument, &change),
            None => self.not_published += 1,
        }
        self.put_all(time_ns, outlet);
    }

    /// Sends the open packet, a heartbeat if one is due, and the delayed packets that are due.
    pub fn flush(&mut self, now_ns: u64, outlet: &mut impl Outlet) {
        self.close_packet(now_ns, outlet);
        if self.heartbeat_due_ns <= now_ns {
            self.send(now_ns, Content::Heartbeat);
        }
        self.deliver(now_ns, outlet);
    }

    /// Ends the session: sends the closing phases, the end of session, and all delayed packets.
    pub fn end_session(&mut self, now_ns: u64, outlet: &mut impl Outlet) {
        if !std::mem::take(&mut self.is_begun) {
            return;
        }
        let stamp = self.stamp(None, now_ns);
        for code in ENDED {
            Itch::system_event(&mut self.outbox, self.kind, &stamp, *code);
        }
        self.put_all(now_ns, outlet);
        self.close_packet(now_ns, outlet);
        self.lines.release(0);
        self.send(now_ns, Content::EndOfSession);
        self.heartbeat_due_ns = u64::MAX;
        self.deliver(u64::MAX, outlet);
    }

    /// Returns when [`ItchLine::flush`] next has work; `u64::MAX` means never.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.heartbeat_due_ns.min(self.lines.due_ns().unwrap_or(u64::MAX))
    }

    /// Returns the state for a receiver that joins now.
    #[must_use]
    pub fn image(&self, engine: &MatchingEngine, now_ns: u64) -> Image {
        let next = self.stream.next_sequence() + u64::from(self.stream.messages());
        let mut image = Image::new(self.stream.session(), next);
        let mut outbox = Outbox::default();
        self.state(engine, now_ns, &mut outbox);
        outbox.drain(|message| image.put(message, |_| {}));
        image.finish();
        image
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn report(&self) -> LiveVenueReport {
        let lines = self.line_reports.iter().zip(self.report.injected);
        LiveVenueReport {
            kind: self.kind,
            messages: self.messages,
            packets: self.packets,
            sessions: self.sessions.clone(),
            lines: lines.map(|(line, injected)| LineReport { injected, ..*line }).collect(),
            lost_messages: self.report.lost_messages,
            silences: 0,
            resets: 0,
            nonsense: NonsenseCounts::default(),
        }
    }

    /// Returns how many changes of the book ITCH could not express because of their price. There are none if prices are at most
    /// [`HIGHEST_PRICE_E8`].
    #[must_use]
    pub const fn not_published(&self) -> u64 {
        self.not_published
    }

    fn stamp(&self, symbol: Option<SymbolIndex>, utc_ns: u64) -> Stamp {
        Stamp {
            venue: 0,
            time_ns: utc_ns.saturating_sub(self.midnight_ns),
            utc_ns,
            // There are at most 65,535 symbols; 0 means none.
            locate: symbol.map_or(0, |symbol| (symbol.0 + 1) as u16),
            tracking: 0,
        }
    }

    /// Writes the messages for a receiver without history.
    fn state(&self, engine: &MatchingEngine, now_ns: u64, outbox: &mut Outbox) {
        let of_market = self.stamp(None, now_ns);
        for code in BEGUN {
            Itch::system_event(outbox, self.kind, &of_market, *code);
        }
        for (index, instrument) in (0u32..).zip(&self.instruments) {
            let symbol = SymbolIndex(index);
            let stamp = self.stamp(Some(symbol), now_ns);
            Itch::directory(outbox, self.kind, &stamp, index, instrument, &Standing::at_start(index));
            for side in [OrderSide::Buy, OrderSide::Sell] {
                for (reference, price_e8, quantity) in engine.displayed(symbol, side) {
                    let add = BookChange::Add { reference, side, price_e8, quantity };
                    if let Some(change) = change_of(&add) {
                        Itch::change(outbox, &stamp, instrument, &change);
                    }
                }
            }
        }
    }

    /// Moves the messages of the outbox into packets.
    fn put_all(&mut self, now_ns: u64, outlet: &mut impl Outlet) {
        let mut outbox = std::mem::take(&mut self.outbox);
        outbox.drain(|message| {
            if !self.stream.has_room(message) {
                self.close_packet(now_ns, outlet);
            }
            if self.stream.messages() == 0 {
                self.opened_ns = now_ns;
            }
            self.stream.put(message);
            self.messages += 1;
            if let Some(session) = self.sessions.last_mut() {
                session.messages += 1;
            }
        });
        self.outbox = outbox;
    }

    fn close_packet(&mut self, now_ns: u64, outlet: &mut impl Outlet) {
        if self.stream.messages() == 0 {
            return;
        }
        outlet.made(
            0,
            &Made {
                first: self.stream.next_sequence(),
                count: self.stream.messages(),
                stream_offset: self.stream.stream_offset(),
                blocks: self.stream.blocks(),
            },
        );
        self.send(now_ns, Content::Messages);
        self.packets += 1;
        self.stream.begin_next();
    }

    fn send(&mut self, now_ns: u64, content: Content) {
        let send_time_ns = if content == Content::Messages { self.opened_ns } else { now_ns };
        self.stream.close(send_time_ns, content);
        if self.heartbeat_ns > 0 {
            self.heartbeat_due_ns = now_ns.saturating_add(self.heartbeat_ns);
        }
        let payload = self.stream.payload();
        let outgoing = Outgoing { venue: 0, now_ns, content, messages: self.stream.messages() };
        self.lines.send(outgoing, &mut self.report, |_, copy| {
            copy.extend_from_slice(payload);
            true
        });
    }

    fn deliver(&mut self, until_ns: u64, outlet: &mut impl Outlet) {
        while let Some(packet) = self.lines.take(until_ns) {
            if let Some(report) = self.line_reports.get_mut(packet.line) {
                report.count(packet.content, packet.messages);
            }
            outlet.packet(&LivePacket {
                venue: 0,
                line: packet.line,
                content: packet.content,
                messages: packet.messages,
                payload: &packet.frame,
            });
            self.lines.reuse(packet.frame);
        }
    }
}

/// Converts a change for the dialect, with only the fields that ITCH publishes. Returns `None` if ITCH cannot express its price.
fn change_of(change: &BookChange) -> Option<Change> {
    let of = |reference| Order { reference, price: 0, shares: 0 };
    // Only additions publish the side.
    let side = Side::Buy;
    Some(match *change {
        BookChange::Add { reference, side, price_e8, quantity } => Change::Add {
            side: match side {
                OrderSide::Buy => Side::Buy,
                OrderSide::Sell => Side::Sell,
            },
            order: Order { reference, price: price_e4(price_e8)?, shares: quantity },
            mpid: None,
        },
        BookChange::Execute { reference, quantity, match_number } => {
            Change::Execute { side, order: of(reference), shares: quantity, match_number }
        }
        BookChange::Reduce { reference, by } => Change::Cancel { side, order: of(reference), shares: by },
        BookChange::Delete { reference } => Change::Delete { side, order: of(reference) },
        BookChange::Replace { old, new, price_e8, quantity } => Change::Replace {
            side,
            old: of(old),
            new: Order { reference: new, price: price_e4(price_e8)?, shares: quantity },
        },
        BookChange::HiddenTrade { price_e8, quantity, match_number } => {
            Change::Hidden { price: price_e4(price_e8)?, shares: quantity, match_number }
        }
    })
}

fn price_e4(price_e8: i64) -> Option<u32> {
    u32::try_from(price_e8 / E8_PER_E4).ok()
}
