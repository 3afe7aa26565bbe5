//! The market-data line of a venue that takes orders: after every message of a client a receiver's book is the engine's, and one that joins
//! by an image, or at a new session, has the same.
#![allow(clippy::expect_used, clippy::unwrap_used)]

#[allow(dead_code)]
mod traders;

use std::collections::BTreeMap;

use tapeworks_generator::VenueKind;
use tapeworks_generator::itch_line::{ItchLine, ItchLineOptions, Listed};
use tapeworks_generator::live::{LivePacket, LiveVenue, Outlet};
use tapeworks_matching::{MatchingEngine, OrderSide, SymbolIndex};
use tapeworks_random::Random;
use tapeworks_session::{Made, SessionId};
use tapeworks_wire::millennium::native::{NewOrderFields, Side, Tif};
use tapeworks_wire::nasdaq::itch50::{BuySellIndicator, Message};
use tapeworks_wire::nasdaq::ouch50::inbound;
use tapeworks_wire::nasdaq::soupbintcp::{self, Packets};
use traders::{E8, World, bytes, cancel, enter, name, options, order, replace};

/// A receiver: symbol, is a buy, price in 1e-4 and shares by reference.
#[derive(Default, Debug, PartialEq, Eq, Clone)]
struct Receiver {
    orders: BTreeMap<u64, (u16, bool, u32, u32)>,
    next: u64,
    hidden: u64,
    ended: u64,
}

impl Receiver {
    fn message(&mut self, message: &[u8]) {
        let mut take = |reference: u64, shares: u32| {
            let order = self.orders.get_mut(&reference).expect("a known order");
            order.3 = order.3.checked_sub(shares).expect("no more than there is");
            if order.3 == 0 {
                self.orders.remove(&reference);
            }
        };
        match Message::decode(message).unwrap() {
            Message::AddOrder(add) => {
                let is_buy = add.buy_sell_indicator() == BuySellIndicator::Buy;
                let order = (add.stock_locate(), is_buy, add.price().0, add.shares());
                assert!(self.orders.insert(add.order_reference_number(), order).is_none());
            }
            Message::OrderExecuted(executed) => {
                take(executed.order_reference_number(), executed.executed_shares());
            }
            Message::OrderCancel(cancel) => take(cancel.order_reference_number(), cancel.cancelled_shares()),
            Message::OrderDelete(delete) => {
                self.orders.remove(&delete.order_reference_number()).expect("a known order");
            }
            Message::OrderReplace(replace) => {
                let old = self.orders.remove(&replace.original_order_reference_number()).unwrap();
                let order = (old.0, old.1, replace.price().0, replace.shares());
                assert!(self.orders.insert(replace.new_order_reference_number(), order).is_none());
            }
            Message::Trade(_) => self.hidden += 1,
            _ => {}
        }
    }

    fn check(&self, engine: &MatchingEngine) {
        let mut all = BTreeMap::new();
        for symbol in 0..2 {
            for side in [OrderSide::Buy, OrderSide::Sell] {
                for (reference, price_e8, shares) in engine.displayed(SymbolIndex(symbol), side) {
                    let price = u32::try_from(price_e8 / 10_000).unwrap();
                    all.insert(reference, (symbol as u16 + 1, side == OrderSide::Buy, price, shares));
                }
            }
        }
        assert_eq!(self.orders, all);
    }
}

impl Outlet for Receiver {
    fn session(&mut self, _: usize, _: SessionId) {
        *self = Self { next: 1, hidden: self.hidden, ended: self.ended, ..Self::default() };
    }

    fn made(&mut self, _: usize, _: &Made<'_>) {}

    fn packet(&mut self, packet: &LivePacket<'_>) {
        let header = VenueKind::Nasdaq.transport().header(packet.payload).unwrap();
        self.ended += u64::from(header.is_end_of_session);
        assert_eq!(header.first, self.next);
        self.next += u64::from(packet.messages);
        VenueKind::Nasdaq.transport().each_message(packet.payload, |_, message| self.message(message));
    }
}

fn line() -> ItchLine {
    let venue = LiveVenue::new(VenueKind::Nasdaq);
    let listed = |symbol| Listed { symbol: name(symbol), tick_e8: E8 / 100, round_lot: 100 };
    ItchLine::new(&ItchLineOptions {
        venue,
        place: 0,
        seed: 1,
        heartbeat_ns: 1_000_000_000,
        symbols: vec![listed("AAPL"), listed("MSFT")],
    })
}

/// One random message of one of the clients.
fn act(world: &mut World, random: &mut Random, number: u32) {
    let side = if random.below(2) == 0 { Side::Buy } else { Side::Sell };
    let user = random.below(2) as usize;
    let (instrument, quantity) = (11 + 11 * random.below(2) as i32, 10 + random.below(90) as i32);
    let price_e8 = i64::from(100 + random.below(6)) * E8 / 10;
    let earlier = format!("N{}", random.below(number + 1));
    let plain = order(&format!("N{number}"), instrument, side, quantity, price_e8);
    match random.below(8) {
        0 => drop(world.native(user, &cancel(&format!("C{number}"), &earlier, name(""), side))),
        1 => drop(world.native(user, &replace(&format!("N{number}"), &earlier, quantity, price_e8))),
        2 => drop(world.native(user, &NewOrderFields { display_qty: 0, ..plain }.encode())),
        3 => drop(world.native(user, &NewOrderFields { display_qty: 5, ..plain }.encode())),
        4 => drop(world.native(user, &NewOrderFields { tif: Tif::ImmediateOrCancel, ..plain }.encode())),
        5 => {
            let side = if side == Side::Buy { inbound::Side::Buy } else { inbound::Side::Sell };
            let price = u64::try_from(price_e8 / 10_000).unwrap();
            drop(world.ouch(&bytes(&enter(number, side, quantity as u32, price))));
        }
        _ => drop(world.native(user, &plain.encode())),
    }
}

#[test]
fn a_receivers_book_is_the_engines_after_every_message() {
    for seed in 1..=5 {
        println!("seed {seed}");
        let (mut world, mut random) = (World::new(&options()), Random::new(seed));
        let (mut line, mut receiver) = (line(), Receiver::default());
        line.begin_session(world.exchange.engine(), 0, world.now_ns, &mut receiver);
        for number in 1..400 {
            act(&mut world, &mut random, number);
            while let Some(event) = world.exchange.next_market() {
                line.publish(&event, &mut receiver);
            }
            line.flush(world.now_ns, &mut receiver);
            receiver.check(world.exchange.engine());
        }
        assert!(receiver.hidden > 0 && world.exchange.counters().trades > 50);
        // An image.
        let image = line.image(world.exchange.engine(), world.now_ns);
        assert_eq!(image.next, receiver.next);
        let mut joined = Receiver::default();
        for packet in Packets::new(image.packets()) {
            if let soupbintcp::Message::SequencedData(data) =
                soupbintcp::Message::decode(packet.unwrap()).unwrap()
                && data.message()[0] != b'G'
            {
                joined.message(data.message());
            }
        }
        assert_eq!(joined.orders, receiver.orders);
        // A new session, also at the same moment.
        let before = line.report().sessions[0].session;
        line.end_session(world.now_ns, &mut receiver);
        assert_eq!((receiver.ended, line.due_ns()), (1, u64::MAX));
        line.begin_session(world.exchange.engine(), 0, world.now_ns, &mut receiver);
        receiver.check(world.exchange.engine());
        let report = line.report();
        assert_ne!(report.sessions[1].session, before);
        assert_eq!(report.messages, report.lines[0].messages);
        assert_eq!(line.not_published(), 0);
    }
}
