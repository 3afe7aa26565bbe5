//! Orders and execution reports for benches: seeded, each with other ids, prices and times, and with a field that comes or not.

#![allow(clippy::expect_used, reason = "the buffers of its users hold every message")]

use tapeworks_fix_wire::order_entry::{
    ExecType, ExecutionReportFields, HandlInst, NewOrderSingleFields, OrdStatus, OrdType, OrderCapacity,
    Side, TimeInForce,
};
use tapeworks_fix_wire::{LastSecond, PreparedFields, Writer};
use tapeworks_wire::schema::SplitMix64;
use tapeworks_wire::{Decimal, NanosecondsSinceEpoch};

const START_NS: u64 = 1_795_426_200_000_000_000;
const UNIT: i64 = 100_000_000;

/// The symbols of the messages.
pub(crate) const SYMBOLS: [&str; 6] = ["AAPL", "MSFT", "VOD.L", "BARC.L", "GOOGL", "A"];

/// The values of one message of each type.
pub(crate) struct Values {
    client: String,
    order: String,
    account: String,
    exec: String,
    symbol: &'static str,
    sequence: u64,
    time_ns: u64,
    price_e8: i64,
    quantity: i64,
    done: i64,
    is_buy: bool,
    has_capacity: bool,
}

impl Values {
    pub(crate) fn random(random: &mut SplitMix64, sequence: u64) -> Self {
        let quantity = 1 + random.below(5_000) as i64;
        Self {
            client: format!("ORD-{}-{:08X}", random.below(1_000), random.below(1 << 32)),
            order: format!("{:012}", random.below(1_000_000_000_000)),
            account: format!("ACCT{}", random.below(100_000)),
            exec: format!("E{:014}", random.below(100_000_000_000_000)),
            symbol: SYMBOLS[random.below(6) as usize],
            sequence,
            time_ns: START_NS + random.below(8 * 3_600) * 1_000_000_000 + random.below(1_000) * 1_000_000,
            price_e8: (1 + random.below(50_000) as i64) * UNIT / 100,
            quantity,
            done: random.below(quantity as u64 + 1) as i64,
            is_buy: random.below(2) == 0,
            has_capacity: random.below(4) != 0,
        }
    }

    /// The sending time, in UTC nanoseconds.
    #[allow(dead_code, reason = "only some benches need it")]
    pub(crate) const fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn side(&self) -> Side {
        if self.is_buy { Side::Buy } else { Side::Sell }
    }
}

/// Writes messages as a session does: what it knows of their headers is prepared, and the text of the last second stays.
pub(crate) struct Sender {
    buffer: [u8; 1_024],
    comp_ids: PreparedFields,
    second: LastSecond,
}

impl Sender {
    pub(crate) fn new() -> Self {
        let comp_ids = |writer: &mut Writer<'_>| _ = writer.text(49, b"CLIENT01").text(56, b"TAPEWORKS");
        Self {
            buffer: [0; 1_024],
            comp_ids: PreparedFields::new(comp_ids).expect("they are short"),
            second: LastSecond::NONE,
        }
    }

    #[inline(always)]
    fn write(&mut self, message_type: &[u8], values: &Values, body: impl FnOnce(&mut Writer<'_>)) -> &[u8] {
        let mut writer = Writer::begin(&mut self.buffer, b"FIX.4.4", message_type);
        writer.set_second(self.second);
        writer.prepared(&self.comp_ids).number(34, values.sequence).timestamp(52, values.time_ns);
        body(&mut writer);
        self.second = writer.second();
        writer.finish().expect("the buffer is large enough")
    }

    pub(crate) fn order(&mut self, values: &Values) -> &[u8] {
        let transact_time = NanosecondsSinceEpoch(values.time_ns);
        let fields = NewOrderSingleFields {
            account: Some(values.account.as_bytes()),
            handl_inst: Some(HandlInst::AutomatedPrivate),
            symbol: Some(values.symbol.as_bytes()),
            order_qty: Some(Decimal(values.quantity * UNIT)),
            price: Some(Decimal(values.price_e8)),
            time_in_force: Some(TimeInForce::Day),
            order_capacity: values.has_capacity.then_some(OrderCapacity::Agency),
            ..NewOrderSingleFields::new(
                values.client.as_bytes(),
                values.side(),
                transact_time,
                OrdType::Limit,
            )
        };
        self.write(b"D", values, |writer| fields.write(writer))
    }

    pub(crate) fn report(&mut self, values: &Values) -> &[u8] {
        let is_done = values.done == values.quantity;
        let fields = ExecutionReportFields {
            cl_ord_id: Some(values.client.as_bytes()),
            account: Some(values.account.as_bytes()),
            symbol: Some(values.symbol.as_bytes()),
            order_qty: Some(Decimal(values.quantity * UNIT)),
            ord_type: Some(OrdType::Limit),
            price: Some(Decimal(values.price_e8)),
            time_in_force: Some(TimeInForce::Day),
            last_qty: Some(Decimal(values.done * UNIT)),
            last_px: Some(Decimal(values.price_e8)),
            transact_time: Some(NanosecondsSinceEpoch(values.time_ns)),
            order_capacity: values.has_capacity.then_some(OrderCapacity::Agency),
            ..ExecutionReportFields::new(
                values.order.as_bytes(),
                values.exec.as_bytes(),
                ExecType::Trade,
                if is_done { OrdStatus::Filled } else { OrdStatus::PartiallyFilled },
                values.side(),
                Decimal((values.quantity - values.done) * UNIT),
                Decimal(values.done * UNIT),
                Decimal(values.price_e8),
            )
        };
        self.write(b"8", values, |writer| fields.write(writer))
    }
}
