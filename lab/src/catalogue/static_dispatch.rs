//! Which function is called: known at compile time, found by a tag, or found by a pointer.

use std::hint::black_box;

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::technique::{Assembly, Published, Technique, Use};

/// Handles messages.
pub trait Handler {
    /// Handles a message and returns the new total.
    fn handle(&self, total: u64, message: u64) -> u64;
}

/// Adds quantities.
#[derive(Clone, Copy, Debug)]
pub struct Add(pub u64);
/// Subtracts quantities.
#[derive(Clone, Copy, Debug)]
pub struct Cancel(pub u64);
/// Changes the price.
#[derive(Clone, Copy, Debug)]
pub struct Replace(pub u64, pub u64);
/// Counts trades.
#[derive(Clone, Copy, Debug)]
pub struct Trade(pub u64);

impl Handler for Add {
    #[inline]
    fn handle(&self, total: u64, message: u64) -> u64 {
        total.wrapping_add(message ^ self.0)
    }
}

impl Handler for Cancel {
    #[inline]
    fn handle(&self, total: u64, message: u64) -> u64 {
        total.wrapping_sub(message | self.0)
    }
}

impl Handler for Replace {
    #[inline]
    fn handle(&self, total: u64, message: u64) -> u64 {
        (total ^ self.0).wrapping_add(message & self.1)
    }
}

impl Handler for Trade {
    #[inline]
    fn handle(&self, total: u64, message: u64) -> u64 {
        total.rotate_left(1) ^ message.wrapping_add(self.0)
    }
}

/// All handlers, distinguished by a tag.
#[derive(Clone, Copy, Debug)]
pub enum AnyHandler {
    /// See [`Add`].
    Add(Add),
    /// See [`Cancel`].
    Cancel(Cancel),
    /// See [`Replace`].
    Replace(Replace),
    /// See [`Trade`].
    Trade(Trade),
}

// ANCHOR: enum
impl Handler for AnyHandler {
    #[inline]
    fn handle(&self, total: u64, message: u64) -> u64 {
        match self {
            Self::Add(handler) => handler.handle(total, message),
            Self::Cancel(handler) => handler.handle(total, message),
            Self::Replace(handler) => handler.handle(total, message),
            Self::Trade(handler) => handler.handle(total, message),
        }
    }
}
// ANCHOR_END: enum

impl AnyHandler {
    fn boxed(self) -> Box<dyn Handler> {
        match self {
            Self::Add(handler) => Box::new(handler),
            Self::Cancel(handler) => Box::new(handler),
            Self::Replace(handler) => Box::new(handler),
            Self::Trade(handler) => Box::new(handler),
        }
    }
}

#[inline(always)]
fn all_by<H: Handler + ?Sized>(handler: &H, messages: &[u64]) -> u64 {
    messages.iter().fold(0, |total, message| handler.handle(total, *message))
}

/// Uses one handler for all messages. The compiler knows its type and inlines its code into the loop.
// ANCHOR: generic
#[inline(never)]
#[must_use]
pub fn one_static(handler: &Trade, messages: &[u64]) -> u64 {
    all_by(handler, messages)
}
// ANCHOR_END: generic

/// Uses one handler for all messages, found by a tag.
#[inline(never)]
#[must_use]
pub fn one_enum(handler: &AnyHandler, messages: &[u64]) -> u64 {
    all_by(handler, messages)
}

/// Uses one handler for all messages, found in a vtable that is part of the value's pointer.
// ANCHOR: dyn
#[inline(never)]
#[must_use]
pub fn one_dyn(handler: &dyn Handler, messages: &[u64]) -> u64 {
    all_by(handler, messages)
}
// ANCHOR_END: dyn

/// Uses a handler for each message, found by a tag.
// ANCHOR: variant
#[inline(never)]
#[must_use]
pub fn each_enum(handlers: &[AnyHandler], messages: &[u64]) -> u64 {
    handlers.iter().zip(messages).fold(0, |total, (handler, message)| handler.handle(total, *message))
}
// ANCHOR_END: variant

/// Uses a handler for each message, found in a vtable.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn each_dyn(handlers: &[Box<dyn Handler>], messages: &[u64]) -> u64 {
    handlers.iter().zip(messages).fold(0, |total, (handler, message)| handler.handle(total, *message))
}
// ANCHOR_END: baseline

/// A message of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An order to buy or sell.
    New {
        /// Whether the order buys.
        buys: bool,
        /// The number of shares.
        quantity: u32,
    },
    /// Cancels an order.
    Cancel {
        /// The order's number.
        order: u32,
    },
    /// A heartbeat without content.
    Heartbeat,
}

/// Matches each case with one pattern, including fields and conditions.
// ANCHOR: pattern
#[inline(never)]
#[must_use]
pub fn by_pattern(messages: &[Message]) -> u64 {
    messages.iter().fold(0u64, |total, message| match *message {
        Message::New { quantity: 0, .. } | Message::Heartbeat => total,
        Message::New { buys: true, quantity } => total.wrapping_add(u64::from(quantity)),
        Message::New { buys: false, quantity } => total.wrapping_sub(u64::from(quantity)),
        Message::Cancel { order } => total.rotate_left(1) ^ u64::from(order),
    })
}
// ANCHOR_END: pattern

/// Checks the same conditions one after another.
// ANCHOR: questions
#[inline(never)]
#[must_use]
pub fn by_questions(messages: &[Message]) -> u64 {
    let mut total = 0u64;
    for message in messages {
        if let Message::New { buys, quantity } = *message {
            if quantity != 0 {
                if buys {
                    total = total.wrapping_add(u64::from(quantity));
                } else {
                    total = total.wrapping_sub(u64::from(quantity));
                }
            }
        } else if let Message::Cancel { order } = *message {
            total = total.rotate_left(1) ^ u64::from(order);
        }
    }
    total
}
// ANCHOR_END: questions

/// The order in which the types arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    InTurn,
    AtRandom,
}

fn handlers(count: usize, order: Order, random: &mut Random) -> Vec<AnyHandler> {
    (0..count as u64)
        .map(|place| {
            let number = random.number();
            match (if order == Order::InTurn { place } else { number >> 60 }) % 4 {
                0 => AnyHandler::Add(Add(place)),
                1 => AnyHandler::Cancel(Cancel(place)),
                2 => AnyHandler::Replace(Replace(place, !place)),
                _ => AnyHandler::Trade(Trade(place)),
            }
        })
        .collect()
}

fn messages(count: usize, order: Order, random: &mut Random) -> Vec<Message> {
    (0..count as u64)
        .map(|place| {
            let number = random.number();
            match (if order == Order::InTurn { place } else { number >> 60 }) % 4 {
                0 | 1 => Message::New { buys: number & 1 == 0, quantity: (number >> 8) as u32 % 100 },
                2 => Message::Cancel { order: (number >> 8) as u32 },
                _ => Message::Heartbeat,
            }
        })
        .collect()
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let mut random = lab.random();
    // Enough messages that a predictor cannot memorize a random order.
    let count = lab.either(200_000, 50_000);
    let numbers: Vec<u64> = std::iter::repeat_with(|| random.number()).take(count).collect();
    let numbers = numbers.as_slice();

    lab.experiment("one handler for all messages", "message");
    let (known, tagged) = (Trade(7), AnyHandler::Trade(Trade(7)));
    let boxed = tagged.boxed();
    lab.point(
        0.0,
        "",
        Variants::of(count as u64)
            .add("dyn", || one_dyn(black_box(&*boxed), black_box(numbers)))
            .add("enum", || one_enum(black_box(&tagged), black_box(numbers)))
            .add("generic", || one_static(black_box(&known), black_box(numbers))),
    )?;

    lab.experiment("a handler for each message, of four types", "message");
    for (x, name, order) in [(0.0, "in turn", Order::InTurn), (1.0, "at random", Order::AtRandom)] {
        let tagged = handlers(count, order, &mut random);
        let boxed: Vec<Box<dyn Handler>> = tagged.iter().map(|handler| handler.boxed()).collect();
        lab.point(
            x,
            name,
            Variants::of(count as u64)
                .add("dyn", || each_dyn(black_box(&boxed), black_box(numbers)))
                .add("enum", || each_enum(black_box(&tagged), black_box(numbers))),
        )?;
    }

    lab.experiment("patterns against questions", "message");
    for (x, name, order) in [(0.0, "in turn", Order::InTurn), (1.0, "at random", Order::AtRandom)] {
        let messages = messages(count, order, &mut random);
        lab.point(
            x,
            name,
            Variants::of(count as u64)
                .add("if, one after the other", || by_questions(black_box(&messages)))
                .add("match", || by_pattern(black_box(&messages))),
        )?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 13,
    name: "static-dispatch",
    title: "Static against virtual dispatch, and pattern matching",
    question: "What does it cost to find out at run time which function to call?",
    published: &[Published {
        source: "Bilokon and Gunduz, arXiv:2309.04259, section 3",
        figure: "compile-time dispatch takes 26 % less time than a virtual call of a function that returns a constant",
    }],
    used: &[
        Use { path: "crates/base/stage/src/lib.rs", what: "passes the next stage as a type parameter" },
        Use {
            path: "crates/market/market/src/event.rs",
            what: "has one type for all events, with a kind to match",
        },
    ],
    assembly: &[
        Assembly {
            variant: "dyn",
            symbol: "tapeworks_lab::catalogue::static_dispatch::each_dyn",
            marks: &["call"],
        },
        Assembly {
            variant: "enum",
            symbol: "tapeworks_lab::catalogue::static_dispatch::each_enum",
            marks: &["jmp", "cmov", "j"],
        },
        Assembly {
            variant: "generic",
            symbol: "tapeworks_lab::catalogue::static_dispatch::one_static",
            marks: &["rol", "call"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_dispatch_calls_the_same_function(
            seed in any::<u64>(),
            numbers in prop::collection::vec(any::<u64>(), 0..60),
            at_random in any::<bool>(),
        ) {
            let order = if at_random { Order::AtRandom } else { Order::InTurn };
            let tagged = handlers(numbers.len(), order, &mut Random::new(seed));
            let boxed: Vec<Box<dyn Handler>> = tagged.iter().map(|handler| handler.boxed()).collect();
            prop_assert_eq!(each_enum(&tagged, &numbers), each_dyn(&boxed, &numbers));
            let known = Trade(seed);
            let expected = one_static(&known, &numbers);
            prop_assert_eq!(one_dyn(&known, &numbers), expected);
            prop_assert_eq!(one_enum(&AnyHandler::Trade(known), &numbers), expected);
            let messages = messages(numbers.len(), order, &mut Random::new(seed));
            prop_assert_eq!(by_pattern(&messages), by_questions(&messages));
        }
    }

    #[test]
    fn patterns_distinguish_every_case() {
        let new = |buys, quantity| Message::New { buys, quantity };
        let all =
            [new(true, 10), new(false, 3), new(true, 0), Message::Heartbeat, Message::Cancel { order: 1 }];
        assert_eq!((by_pattern(&all), by_questions(&all)), (7 << 1 ^ 1, 7 << 1 ^ 1));
        assert_eq!((by_pattern(&[]), by_questions(&[])), (0, 0));
    }
}
