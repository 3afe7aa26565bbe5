//! A FIX order to native bytes, and its reports to FIX bytes: what `benches/translate.rs` of the translator times.

use tapeworks_fix_wire::order_entry::{
    HandlInst, HeaderFields, NewOrderSingleFields, OrdType, OrderCapacity, Side, TimeInForce,
};
use tapeworks_fix_wire::{LastSecond, Parsed, Parts, PreparedFields, Writer};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{
    ClientSettings, Instrument, Millennium, MillenniumSettings, Outputs, Reference, ReferenceError, Reply,
    Report, RiskLimits, Settings, TopOfBook, Translator,
};
use tapeworks_wire::millennium::native::{ExecType, ExecutionReport, message_length};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch};

/// Orders whose messages are counted, behind as many that warm up.
pub(crate) const ORDERS: usize = 4_096;
const E8: i64 = 100_000_000;
pub(crate) const TIME: NanosecondsSinceEpoch = NanosecondsSinceEpoch(1_709_197_200_000_000_000);
const SYMBOLS: [&str; 3] = ["AAPL", "MSFT", "VOD.L"];

/// Writes replies as a session does, and counts both ways.
pub(crate) struct Written {
    buffer: [u8; 1_024],
    messages: u64,
    bytes: usize,
    comp_ids: PreparedFields,
    second: LastSecond,
}

impl Written {
    pub(crate) fn new() -> Option<Self> {
        let comp_ids = PreparedFields::new(|writer| {
            writer.text(49, b"TAPEWORKS").text(56, b"CLIENT01");
        })?;
        Some(Self { buffer: [0; 1_024], messages: 0, bytes: 0, comp_ids, second: LastSecond::NONE })
    }
}

impl Outputs for Written {
    #[inline]
    fn to_venue(&mut self, message: &[u8]) {
        self.messages += 1;
        self.bytes += message.len();
    }

    #[inline]
    fn to_client(&mut self, _: ClientIndex, reply: &Reply<'_>) {
        self.messages += 1;
        let mut writer = Writer::begin(&mut self.buffer, b"FIX.4.4", reply.message_type());
        writer.set_second(self.second);
        writer.prepared(&self.comp_ids).number(34, self.messages).timestamp(52, TIME.0);
        reply.write(&mut writer);
        self.second = writer.second();
        self.bytes += writer.finish().map_or(0, |message| message.len());
    }

    fn unmatched(&mut self, _: &Report) {}
}

/// Creates a translator that is connected to its venue and accepts every order.
pub(crate) fn translator() -> Result<Translator<Millennium>, ReferenceError> {
    let instrument = |(symbol, venue_id)| Instrument {
        symbol: Ascii::new(symbol).unwrap_or_default(),
        security_id: Ascii::default(),
        venue_id,
        tick_e8: 1,
        has_negative_prices: false,
        partition: 1,
        segment: Ascii::default(),
    };
    let instruments: Vec<Instrument> = SYMBOLS.into_iter().zip(11..).map(instrument).collect();
    let limits = RiskLimits { most_quantity: 100_000, most_notional: 1_000_000_000, ..RiskLimits::default() };
    let client = ClientSettings { limits, ..ClientSettings::default() };
    let settings = Settings { most_orders: ORDERS * 2, ..Settings::default() };
    let venue = Millennium::new(MillenniumSettings::default());
    let mut translator = Translator::new(venue, Reference::new(&instruments, &[])?, &[client], &settings);
    // The notional of a sell counts at the bid.
    let top = TopOfBook { bid_e8: Some(100_000_000), offer_e8: Some(200_000_000) };
    translator.set_tops(Box::new(vec![top; instruments.len()]));
    translator.venue_connected();
    translator.venue_recovered();
    Ok(translator)
}

/// Runs `counted` over the orders (or their reports: accepted and filled). Returns the messages in it.
pub(crate) fn run(is_of_reports: bool, counted: fn(&mut dyn FnMut())) -> Result<u64, ReferenceError> {
    let mut translator = translator()?;
    let Some(mut out) = Written::new() else { return Ok(0) };
    for part in 0..2 {
        let names: Vec<String> = (0..ORDERS).map(|order| format!("ORD-{part}-{order:08X}")).collect();
        let orders: Vec<Vec<u8>> =
            names.iter().enumerate().map(|(order, name)| new_order(name, order, 2, time_of(order))).collect();
        let mut buffers: Vec<Parts> = names.iter().map(|_| Parts::default()).collect();
        let parsed: Vec<Parsed<'_>> =
            orders.iter().zip(&mut buffers).filter_map(|(order, buffer)| buffer.parse(order)).collect();
        let mut reports = Vec::new();
        for (kind, last, leaves) in [(ExecType::New, 0, 100), (ExecType::Trade, 100, 0)] {
            for (order, name) in names.iter().enumerate() {
                let number = part * 2 * ORDERS as i32 + reports.len() as i32 + 1;
                reports.push(execution(number, kind, name, price_e8(order), last, leaves));
            }
        }
        let mut send = || {
            for message in &parsed {
                translator.client_message(ClientIndex(0), message, TIME.0, &mut out);
            }
        };
        if part == 1 && !is_of_reports {
            counted(&mut send)
        } else {
            send()
        }
        let mut report = || {
            for message in &reports {
                translator.venue_report(message, &mut out);
            }
        };
        if part == 1 && is_of_reports { counted(&mut report) } else { report() }
    }
    // Each order went out, and each report came in: otherwise there is nothing to count.
    let is_whole = translator.counters().fills == 2 * ORDERS as u64 && out.bytes > 0;
    let per_order = if is_of_reports { 2 } else { 1 };
    Ok(u64::from(is_whole) * ORDERS as u64 * per_order)
}

/// The limit of an order, at which it is filled.
fn price_e8(order: usize) -> i64 {
    (1 + order as i64 * 7 % 50_000) * E8 / 100
}

/// When the order `number` was made.
fn time_of(number: usize) -> u64 {
    TIME.0 + number as u64 * 1_000_000
}

/// Writes a new order with this MsgSeqNum and TransactTime.
pub(crate) fn new_order(name: &str, number: usize, sequence: u64, time_ns: u64) -> Vec<u8> {
    let fields = NewOrderSingleFields {
        account: Some(b"ACCT1"),
        handl_inst: Some(HandlInst::AutomatedPrivate),
        symbol: Some(SYMBOLS[number % 3].as_bytes()),
        order_qty: Some(Decimal((100 + number as i64 % 900) * E8)),
        price: Some(Decimal(price_e8(number))),
        time_in_force: Some(TimeInForce::Day),
        order_capacity: Some(OrderCapacity::Agency),
        ..NewOrderSingleFields::new(
            name.as_bytes(),
            if number.is_multiple_of(2) { Side::Buy } else { Side::Sell },
            NanosecondsSinceEpoch(time_ns),
            OrdType::Limit,
        )
    };
    let mut buffer = [0; 1_024];
    let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
    HeaderFields::new(b"CLIENT01", b"TAPEWORKS", sequence, TIME).write(&mut writer);
    fields.write(&mut writer);
    writer.finish().map(|message| message.to_vec()).unwrap_or_default()
}

/// A native execution report of instrument 11, in the bytes of the document.
fn execution(
    number: i32,
    kind: ExecType,
    name: &str,
    price_e8: i64,
    last: i32,
    leaves: i32,
) -> [u8; ExecutionReport::LENGTH] {
    let mut bytes = [0; ExecutionReport::LENGTH];
    bytes[0] = 2;
    bytes[1..3].copy_from_slice(&message_length(ExecutionReport::LENGTH).to_le_bytes());
    (bytes[3], bytes[4]) = (b'8', 1);
    bytes[5..9].copy_from_slice(&number.to_le_bytes());
    bytes[9..21].copy_from_slice(format!("E{number:011}").as_bytes());
    bytes[21..41].copy_from_slice(&Ascii::<20>::new(name).unwrap_or_default().0);
    bytes[41..53].copy_from_slice(&format!("O{}           ", &name[4..]).as_bytes()[..12]);
    bytes[53] = kind.raw();
    bytes[71..79].copy_from_slice(&price_e8.to_le_bytes());
    bytes[79..83].copy_from_slice(&last.to_le_bytes());
    bytes[83..87].copy_from_slice(&leaves.to_le_bytes());
    bytes[118] = b'A';
    bytes[119..127].copy_from_slice(&(number as u64).to_le_bytes());
    bytes[127..131].copy_from_slice(&((TIME.0 / 1_000_000_000) as u32).to_le_bytes());
    bytes
}
