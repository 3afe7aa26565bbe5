//! The ITCH crates of the registry, made to read the same fields as ours.

use std::ops::ControlFlow;

use itch5::messages as m;
use itch5::{MessageHandler, Parser};

/// Adds up the fields.
struct Sum(u64);

impl Sum {
    #[inline]
    fn add(&mut self, values: [u64; 6]) -> ControlFlow<()> {
        values.into_iter().for_each(|value| self.0 = self.0.wrapping_add(value));
        ControlFlow::Continue(())
    }
}

fn side(side: m::BuySellIndicator) -> u64 {
    match side {
        m::BuySellIndicator::Buy => u64::from(b'B'),
        _ => u64::from(b'S'),
    }
}

impl MessageHandler for Sum {
    fn on_add_order_no_mpid_attribution(&mut self, m: &m::AddOrderNoMPIDAttribution) -> ControlFlow<()> {
        self.add([
            m.stock_locate().into(),
            m.timestamp().to_u64(),
            m.order_reference_number(),
            side(m.buy_sell_indicator()),
            m.shares().into(),
            m.price().into_u32().into(),
        ])
    }

    fn on_add_order_with_mpid_attribution(&mut self, m: &m::AddOrderWithMPIDAttribution) -> ControlFlow<()> {
        self.add([
            m.stock_locate().into(),
            m.timestamp().to_u64(),
            m.order_reference_number(),
            side(m.buy_sell_indicator()),
            m.shares().into(),
            m.price().into_u32().into(),
        ])
    }

    fn on_order_executed(&mut self, m: &m::OrderExecuted) -> ControlFlow<()> {
        self.add([
            m.stock_locate().into(),
            m.timestamp().to_u64(),
            m.order_reference_number(),
            m.executed_shares().into(),
            m.match_number(),
            0,
        ])
    }

    fn on_order_executed_with_price(&mut self, m: &m::OrderExecutedWithPrice) -> ControlFlow<()> {
        self.add([
            m.stock_locate().into(),
            m.timestamp().to_u64(),
            m.order_reference_number(),
            m.executed_shares().into(),
            m.match_number(),
            m.execution_price().into_u32().into(),
        ])
    }

    fn on_order_cancel(&mut self, m: &m::OrderCancel) -> ControlFlow<()> {
        self.add([
            m.stock_locate().into(),
            m.timestamp().to_u64(),
            m.order_reference_number(),
            m.cancelled_shares().into(),
            0,
            0,
        ])
    }

    fn on_order_delete(&mut self, m: &m::OrderDelete) -> ControlFlow<()> {
        self.add([m.stock_locate().into(), m.timestamp().to_u64(), m.order_reference_number(), 0, 0, 0])
    }

    fn on_order_replace(&mut self, m: &m::OrderReplace) -> ControlFlow<()> {
        self.add([
            m.stock_locate().into(),
            m.timestamp().to_u64(),
            m.original_order_reference_number(),
            m.new_order_reference_number(),
            m.shares().into(),
            m.price().into_u32().into(),
        ])
    }
}

/// `itch5`: casts each message and calls a visitor.
#[inline(never)]
pub fn itch5(bytes: &[u8]) -> u64 {
    let mut sum = Sum(0);
    Parser::new(bytes).parse_stream(&mut sum).expect("the file is sound");
    sum.0
}

/// `itchy`: parses each message with combinators into an owned enum.
pub fn itchy(bytes: &[u8]) -> u64 {
    use itchy::{Body, Side};
    let mut sum = Sum(0);
    for message in itchy::MessageStream::from_reader(bytes) {
        let Ok(message) = message else { continue };
        let (locate, time) = (message.stock_locate.into(), message.timestamp);
        let _ = match message.body {
            Body::AddOrder(m) => {
                let side = if m.side == Side::Buy { b'B' } else { b'S' };
                sum.add([locate, time, m.reference, side.into(), m.shares.into(), m.price.raw().into()])
            }
            Body::OrderExecuted { reference, executed, match_number } => {
                sum.add([locate, time, reference, executed.into(), match_number, 0])
            }
            Body::OrderExecutedWithPrice { reference, executed, match_number, price, .. } => {
                sum.add([locate, time, reference, executed.into(), match_number, price.raw().into()])
            }
            Body::OrderCancelled { reference, cancelled } => {
                sum.add([locate, time, reference, cancelled.into(), 0, 0])
            }
            Body::DeleteOrder { reference } => sum.add([locate, time, reference, 0, 0, 0]),
            Body::ReplaceOrder(m) => sum.add([
                locate,
                time,
                m.old_reference,
                m.new_reference,
                m.shares.into(),
                m.price.raw().into(),
            ]),
            _ => ControlFlow::Continue(()),
        };
    }
    sum.0
}
