//! Orders and execution reports for benches: seeded, each with other ids, prices and times, and with a field that comes or not.

#![allow(clippy::expect_used, reason = "the buffers of its users hold every message")]

use tapeworks_wire::fix::Writer;
use tapeworks_wire::fix::order_entry::{
    ExecType, ExecutionReportFields, HandlInst, HeaderFields, NewOrderSingleFields, OrdStatus, OrdType,
    OrderCapacity, Side, TimeInForce,
};
use tapeworks_wire::schema::SplitMix64;
use tapeworks_wire::{Decimal, NanosecondsSinceEpoch};

const START_NS: u64 = 1_795_426_200_000_000_000;
const UNIT: i64 = 100_000_000;

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
        let symbols = ["AAPL", "MSFT", "VOD.L", "BARC.L", "GOOGL", "A"];
        let quantity = 1 + random.below(5_000) as i64;
        Self {
            client: format!("ORD-{}-{:08X}", random.below(1_000), random.below(1 << 32)),
            order: format!("{:012}", random.below(1_000_000_000_000)),
            account: format!("ACCT{}", random.below(100_000)),
            exec: format!("E{:014}", random.below(100_000_000_000_000)),
            symbol: symbols[random.below(6) as usize],
            sequence,
            time_ns: START_NS + random.below(8 * 3_600) * 1_000_000_000 + random.below(1_000) * 1_000_000,
            price_e8: (1 + random.below(50_000) as i64) * UNIT / 100,
            quantity,
            done: random.below(quantity as u64 + 1) as i64,
            is_buy: random.below(2) == 0,
            has_capacity: random.below(4) != 0,
        }
    }

    fn header(&self) -> HeaderFields<'_> {
        HeaderFields::new(b"CLIENT01", b"TAPEWORKS", self.sequence, NanosecondsSinceEpoch(self.time_ns))
    }

    fn side(&self) -> Side {
        if self.is_buy { Side::Buy } else { Side::Sell }
    }

    pub(crate) fn write_order<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        let mut writer = Writer::begin(buffer, b"FIX.4.4", b"D");
        self.header().write(&mut writer);
        let transact_time = NanosecondsSinceEpoch(self.time_ns);
        NewOrderSingleFields {
            account: Some(self.account.as_bytes()),
            handl_inst: Some(HandlInst::AutomatedPrivate),
            symbol: Some(self.symbol.as_bytes()),
            order_qty: Some(Decimal(self.quantity * UNIT)),
            price: Some(Decimal(self.price_e8)),
            time_in_force: Some(TimeInForce::Day),
            order_capacity: self.has_capacity.then_some(OrderCapacity::Agency),
            ..NewOrderSingleFields::new(self.client.as_bytes(), self.side(), transact_time, OrdType::Limit)
        }
        .write(&mut writer);
        writer.finish().expect("the buffer is large enough")
    }

    pub(crate) fn write_report<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        let mut writer = Writer::begin(buffer, b"FIX.4.4", b"8");
        self.header().write(&mut writer);
        let is_done = self.done == self.quantity;
        ExecutionReportFields {
            cl_ord_id: Some(self.client.as_bytes()),
            account: Some(self.account.as_bytes()),
            symbol: Some(self.symbol.as_bytes()),
            order_qty: Some(Decimal(self.quantity * UNIT)),
            ord_type: Some(OrdType::Limit),
            price: Some(Decimal(self.price_e8)),
            time_in_force: Some(TimeInForce::Day),
            last_qty: Some(Decimal(self.done * UNIT)),
            last_px: Some(Decimal(self.price_e8)),
            transact_time: Some(NanosecondsSinceEpoch(self.time_ns)),
            order_capacity: self.has_capacity.then_some(OrderCapacity::Agency),
            ..ExecutionReportFields::new(
                self.order.as_bytes(),
                self.exec.as_bytes(),
                ExecType::Trade,
                if is_done { OrdStatus::Filled } else { OrdStatus::PartiallyFilled },
                self.side(),
                Decimal((self.quantity - self.done) * UNIT),
                Decimal(self.done * UNIT),
                Decimal(self.price_e8),
            )
        }
        .write(&mut writer);
        writer.finish().expect("the buffer is large enough")
    }
}
