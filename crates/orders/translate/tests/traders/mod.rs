//! FIX clients, a translator, a native session, and the simulated exchange, joined in one thread.

use std::collections::BTreeMap;

use tapeworks_fix_wire::order_entry::{
    HeaderFields, MassQuoteFields, NewOrderSingleFields, OrdType, OrderCancelReplaceRequestFields,
    OrderCancelRequestFields, QuoteCancelFields, QuoteEntryFields, QuoteFields, QuoteSetFields, Side,
};
use tapeworks_fix_wire::{Writer, field};
use tapeworks_matching::orders::{
    Connection, Gate, Instrument as Traded, OrderExchange, OrderOptions, OuchUser,
};
use tapeworks_order_session::native::{
    Channel, Client, ClientSettings as NativeSettings, Event, ServerSettings, User,
};
use tapeworks_order_session::soupbintcp::{SoupEvent, SoupInitiator, SoupInitiatorSettings, SoupPlace};
use tapeworks_session::Credentials;
use tapeworks_translate::ids::{ClOrdId, ClientIndex};
use tapeworks_translate::{
    ClientSettings, Doubt, Execution, FixVersion, Instrument, Millennium, MillenniumSettings, Naming, Order,
    Ouch, OuchSettings, Outputs, Reference, Reply, Report, Settings, Translator, Venue,
};
use tapeworks_wire::millennium::variant::{LSE, Variant};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch};

pub(crate) const E8: i64 = 100_000_000;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// 2024-02-29, 09:00 UTC.
pub(crate) const START_NS: u64 = 1_709_197_200 * SECOND_NS;

/// Enough for every test.
pub(crate) const CAPACITY: Settings =
    Settings { most_orders: 1_024, most_requests: 4_096, most_fills: 1_024, halts_doubtful: false };

/// Midnight of that day in New York.
const MIDNIGHT_NS: u64 = START_NS - 4 * 3_600 * SECOND_NS;

/// No throttle: the tests send fast.
pub(crate) const VARIANT: Variant = Variant { partitions: 2, throttle_per_second: 0, ..LSE };

/// What a translator put out.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) to_venue: Vec<Vec<u8>>,
    /// FIX messages with a header, by client.
    pub(crate) to_clients: Vec<(ClientIndex, Vec<u8>)>,
    /// Drop copies of the last execution report, in each version.
    pub(crate) copies: Vec<Vec<u8>>,
    pub(crate) unmatched: Vec<Report>,
    pub(crate) doubts: Vec<Doubt>,
    pub(crate) repeated: u64,
    /// Of each message that cannot be read: whether it names a known order.
    pub(crate) unreadable: Vec<bool>,
}

impl Outputs for Kept {
    fn to_venue(&mut self, message: &[u8]) {
        self.to_venue.push(message.to_vec());
    }

    fn to_client(&mut self, client: ClientIndex, reply: &Reply<'_>) {
        let sequence = self.to_clients.len() as u64 + 1;
        let bytes = message(reply.message_type(), sequence, |writer| reply.write(writer));
        self.to_clients.push((client, bytes));
        if reply.is_execution() {
            let copy = |version| message(b"8", 9, |writer| reply.write_copy_as(version, b"B", writer));
            self.copies = [FixVersion::Fix42, FixVersion::Fix44, FixVersion::Fix50Sp2].map(copy).into();
        }
    }

    fn unmatched(&mut self, report: &Report) {
        self.unmatched.push(*report);
    }

    fn doubtful(&mut self, _: &Order, _: &Execution, doubt: Doubt) {
        self.doubts.push(doubt);
    }

    fn repeated(&mut self, _: &Execution) {
        self.repeated += 1;
    }

    fn unreadable(&mut self, _: &[u8], order: Option<&Order>) {
        self.unreadable.push(order.is_some());
    }
}

/// A FIX message with a header.
pub(crate) fn message(kind: &[u8], sequence: u64, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut buffer = [0; 2_048];
    let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", kind);
    HeaderFields::new(b"A", b"B", sequence, NanosecondsSinceEpoch(START_NS)).write(&mut writer);
    body(&mut writer);
    writer.finish().unwrap().to_vec()
}

/// A field of a message as text; empty if it is absent.
pub(crate) fn text(message: &[u8], tag: u32) -> String {
    field(message, tag).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

/// `tag=value` of these tags, of those that are there.
pub(crate) fn fields(message: &[u8], tags: &[u32]) -> String {
    let each =
        tags.iter().filter_map(|tag| field(message, *tag).map(|_| format!("{tag}={}", text(message, *tag))));
    each.collect::<Vec<_>>().join(" ")
}

pub(crate) fn time() -> NanosecondsSinceEpoch {
    NanosecondsSinceEpoch(START_NS)
}

/// A limit order for a whole number of AAPL, that a test changes.
pub(crate) fn limit<'a>(id: &'a str, side: Side, quantity: i64, price_e8: i64) -> NewOrderSingleFields<'a> {
    NewOrderSingleFields {
        symbol: Some(b"AAPL"),
        order_qty: Some(Decimal(quantity * E8)),
        price: Some(Decimal(price_e8)),
        ..NewOrderSingleFields::new(id.as_bytes(), side, time(), OrdType::Limit)
    }
}

pub(crate) fn new(fields: &NewOrderSingleFields<'_>) -> Vec<u8> {
    message(b"D", 2, |writer| fields.write(writer))
}

pub(crate) fn cancel(id: &str, original: &str, side: Side) -> Vec<u8> {
    let fields = OrderCancelRequestFields::new(original.as_bytes(), id.as_bytes(), side, time());
    message(b"F", 2, |writer| fields.write(writer))
}

pub(crate) fn replace(id: &str, original: &str, side: Side, quantity: i64, price_e8: i64) -> Vec<u8> {
    let fields = OrderCancelReplaceRequestFields {
        order_qty: Some(Decimal(quantity * E8)),
        price: Some(Decimal(price_e8)),
        ..OrderCancelReplaceRequestFields::new(
            original.as_bytes(),
            id.as_bytes(),
            side,
            time(),
            OrdType::Limit,
        )
    };
    message(b"G", 2, |writer| fields.write(writer))
}

/// A quote for AAPL: quantity and price of both sides.
pub(crate) fn quote(id: &str, bid: Option<(i64, i64)>, offer: Option<(i64, i64)>) -> Vec<u8> {
    let fields = QuoteFields {
        symbol: Some(b"AAPL"),
        bid_size: bid.map(|(quantity, _)| Decimal(quantity * E8)),
        bid_px: bid.map(|(_, price_e8)| Decimal(price_e8)),
        offer_size: offer.map(|(quantity, _)| Decimal(quantity * E8)),
        offer_px: offer.map(|(_, price_e8)| Decimal(price_e8)),
        ..QuoteFields::new(id.as_bytes())
    };
    message(b"S", 2, |writer| fields.write(writer))
}

pub(crate) fn quote_cancel(kind: i64, id: Option<&str>) -> Vec<u8> {
    let fields = QuoteCancelFields { quote_id: id.map(str::as_bytes), ..QuoteCancelFields::new(kind) };
    message(b"Z", 2, |writer| fields.write(writer))
}

/// A mass quote of one set: id, symbol and bid of each entry; offers are one above, and all sizes 10.
pub(crate) fn mass_quote<'a>(id: &str, entries: &[(&'a str, &'a str, i64)]) -> Vec<u8> {
    let entry = |(id, symbol, price_e8): &(&'a str, &'a str, i64)| QuoteEntryFields {
        symbol: Some(symbol.as_bytes()),
        bid_size: Some(Decimal(10 * E8)),
        bid_px: Some(Decimal(*price_e8)),
        offer_size: Some(Decimal(10 * E8)),
        offer_px: Some(Decimal(price_e8 + E8)),
        ..QuoteEntryFields::new(id.as_bytes())
    };
    let entries: Vec<QuoteEntryFields<'_>> = entries.iter().map(entry).collect();
    let sets = [QuoteSetFields { quote_entries: &entries, ..QuoteSetFields::new(b"1") }];
    let fields = MassQuoteFields { quote_sets: &sets, ..MassQuoteFields::new(id.as_bytes()) };
    message(b"i", 2, |writer| fields.write(writer))
}

pub(crate) fn reference() -> Reference {
    let instrument = |symbol: &str, venue_id, partition| Instrument {
        symbol: Ascii::new(symbol).unwrap(),
        security_id: Ascii::default(),
        venue_id,
        tick_e8: E8 / 100,
        has_negative_prices: false,
        partition,
        segment: Ascii::new(if partition == 1 { "SEG1" } else { "SEG2" }).unwrap(),
    };
    Reference::new(&[instrument("AAPL", 11, 1), instrument("MSFT", 22, 2)], &[]).unwrap()
}

/// A translator whose way to the venue is open.
pub(crate) fn open(
    settings: MillenniumSettings,
    clients: &[ClientSettings],
    capacity: &Settings,
) -> Translator<Millennium> {
    let settings = MillenniumSettings { variant: VARIANT, ..settings };
    let mut translator = Translator::new(Millennium::new(settings), reference(), clients, capacity);
    translator.venue_connected();
    translator.venue_recovered();
    translator
}

pub(crate) fn id(text: &str) -> ClOrdId {
    ClOrdId::new(text.as_bytes()).unwrap()
}

/// Everything joined.
pub(crate) struct World<V = Millennium> {
    pub(crate) exchange: OrderExchange,
    pub(crate) translator: Translator<V>,
    pub(crate) now_ns: u64,
    pub(crate) kept: Kept,
    session: Session,
    lines: BTreeMap<bool, Connection>,
}

/// The session with the venue.
enum Session {
    Native(Box<Client>),
    Ouch(Box<SoupInitiator>),
}

fn exchange_options() -> OrderOptions {
    let traded = |id: i32, symbol: &str, partition| Traded {
        id,
        symbol: Ascii::new(symbol).unwrap(),
        partition,
        tick_e8: E8 / 100,
        lowest_price_e8: 1,
        highest_price_e8: i64::MAX,
        most_quantity: 1_000_000,
    };
    let credentials = Credentials { user: "CAT".to_owned(), password: "secret".to_owned() };
    OrderOptions {
        instruments: vec![traded(11, "AAPL", 1), traded(22, "MSFT", 2)],
        native_users: vec![User { cancels_on_disconnect: false, ..User::new("ANN", "secret", &VARIANT) }],
        native: ServerSettings { variant: VARIANT, ..ServerSettings::default() },
        ouch_users: vec![OuchUser { credentials, cancels_on_disconnect: false }],
        ouch_store_bytes: 1 << 20,
        midnight_ns: MIDNIGHT_NS,
        most_orders: 1_024,
        ..OrderOptions::default()
    }
}

impl World<Ouch> {
    pub(crate) fn ouch(clients: &[ClientSettings]) -> Self {
        let credentials = Credentials { user: "CAT".to_owned(), password: "secret".to_owned() };
        let session = SoupInitiator::new(SoupInitiatorSettings::new(credentials), SoupPlace::default());
        let venue = Ouch::new(OuchSettings { midnight_ns: MIDNIGHT_NS, ..OuchSettings::default() });
        let mut translator = Translator::new(venue, reference(), clients, &CAPACITY);
        translator.venue_connected();
        translator.venue_recovered();
        let mut world = Self {
            exchange: OrderExchange::new(&exchange_options(), START_NS).unwrap(),
            translator,
            now_ns: START_NS,
            kept: Kept::default(),
            session: Session::Ouch(Box::new(session.unwrap())),
            lines: BTreeMap::new(),
        };
        world.settle();
        world
    }
}

impl World {
    pub(crate) fn new(clients: &[ClientSettings], naming: Naming) -> Self {
        let native = NativeSettings {
            variant: VARIANT,
            user: "ANN".to_owned(),
            password: "secret".to_owned(),
            ..NativeSettings::default()
        };
        let settings = MillenniumSettings { naming, ..MillenniumSettings::default() };
        let mut world = Self {
            exchange: OrderExchange::new(&exchange_options(), START_NS).unwrap(),
            translator: open(settings, clients, &CAPACITY),
            now_ns: START_NS,
            kept: Kept::default(),
            session: Session::Native(Box::new(Client::new(native).unwrap())),
            lines: BTreeMap::new(),
        };
        world.settle();
        world
    }
}

impl<V: Venue> World<V> {
    /// A message of a client goes to the translator. The venue gets its requests at the next [`Self::settle`].
    pub(crate) fn send(&mut self, client: u16, message: &[u8]) {
        self.translator.client_bytes(ClientIndex(client), message, self.now_ns, &mut self.kept);
    }

    /// The same, and everything settles. Returns the new messages to all clients.
    pub(crate) fn take(&mut self, client: u16, message: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let before = self.kept.to_clients.len();
        self.send(client, message);
        self.settle();
        self.kept.to_clients[before..].iter().map(|(client, bytes)| (client.0, bytes.clone())).collect()
    }

    /// Lets everything go its way until nothing moves.
    pub(crate) fn settle(&mut self) {
        loop {
            let has_moved = match self.session {
                Session::Native(_) => self.carry_native(),
                Session::Ouch(_) => self.carry_ouch(),
            };
            self.exchange.tick(self.now_ns);
            let requests = std::mem::take(&mut self.kept.to_venue);
            for request in &requests {
                match &mut self.session {
                    Session::Native(session) => drop(session.send(request, self.now_ns).unwrap()),
                    Session::Ouch(session) => session.send(request, self.now_ns).unwrap(),
                }
            }
            if !has_moved && requests.is_empty() {
                return;
            }
        }
    }

    /// Moves bytes both ways. Returns whether any moved.
    fn carry_native(&mut self) -> bool {
        let (translator, kept, now_ns) = (&mut self.translator, &mut self.kept, self.now_ns);
        let Session::Native(session) = &mut self.session else { return false };
        let mut event = |event: Event<'_>| match event {
            Event::Report { message, .. } => translator.venue_report(message, kept),
            Event::Rejected(reject) => panic!("{reject:?}"),
            _ => {}
        };
        let mut has_moved = false;
        for channel in Channel::ALL {
            let key = channel == Channel::Recovery;
            if session.wants(channel, now_ns) {
                self.lines.insert(key, self.exchange.open(Gate::Native(channel), now_ns).unwrap());
                session.connected(channel, now_ns);
            }
            let Some(line) = self.lines.get(&key).copied() else { continue };
            let up = session.output(channel).to_vec();
            session.sent(channel, up.len(), now_ns, &mut event);
            self.exchange.receive(line, &up, now_ns);
            let down = self.exchange.output(line).to_vec();
            self.exchange.sent(line, down.len(), now_ns);
            session.receive(channel, &down, now_ns, &mut event);
            has_moved |= !up.is_empty() || !down.is_empty();
        }
        session.tick(now_ns, &mut event);
        has_moved
    }

    fn carry_ouch(&mut self) -> bool {
        let (translator, kept, now_ns) = (&mut self.translator, &mut self.kept, self.now_ns);
        let Session::Ouch(session) = &mut self.session else { return false };
        let mut event = |event: SoupEvent<'_>| match event {
            // The start of the day is no report.
            SoupEvent::Message { message, .. } if message.first() != Some(&b'S') => {
                translator.venue_report(message, kept);
            }
            _ => {}
        };
        if session.wants(now_ns) {
            self.lines.insert(false, self.exchange.open(Gate::Ouch { user: 0 }, now_ns).unwrap());
            session.connected(now_ns);
        }
        let Some(line) = self.lines.get(&false).copied() else { return false };
        let up = session.output().to_vec();
        session.sent(up.len(), now_ns, &mut event);
        self.exchange.receive(line, &up, now_ns);
        let down = self.exchange.output(line).to_vec();
        self.exchange.sent(line, down.len(), now_ns);
        session.receive(&down, now_ns, &mut event);
        session.tick(now_ns, &mut event);
        !up.is_empty() || !down.is_empty()
    }
}
