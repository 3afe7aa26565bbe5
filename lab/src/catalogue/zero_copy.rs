//! Reading a message in place, compared with parsing all of it first.
//!
//! The product's accessors ([`tapeworks_wire::nasdaq::itch50`]) load a field on demand. The eager parser turns each message into an owned
//! struct with strings, as many parsers do, and pays for every field in advance. Both check the message's length.

use std::hint::black_box;

use tapeworks_wire::nasdaq::itch50::{AddOrderFields, BuySellIndicator, Message};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceMidnight};

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// Length of an add order in bytes.
const LENGTH: usize = 36;

/// An add order, parsed eagerly.
// ANCHOR: baseline
#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    stock_locate: u16,
    timestamp_ns: u64,
    reference: u64,
    side: String,
    shares: u32,
    stock: String,
    price: f64,
}

/// Parses every field; `None` when it is not an add order of the right length, or its texts are not ASCII.
#[inline(never)]
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Owned> {
    if bytes.len() != LENGTH || *bytes.first()? != b'A' {
        return None;
    }
    let number = |from: usize, to: usize| {
        Some(bytes.get(from..to)?.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let text = |from: usize, to: usize| {
        let text = std::str::from_utf8(bytes.get(from..to)?).ok().filter(|text| text.is_ascii())?;
        Some(text.trim_end_matches(' ').to_owned())
    };
    Some(Owned {
        stock_locate: number(1, 3)? as u16,
        timestamp_ns: number(5, 11)?,
        reference: number(11, 19)?,
        side: text(19, 20)?,
        shares: number(20, 24)? as u32,
        stock: text(24, 32)?,
        price: number(32, 36)? as f64 / 10_000.0,
    })
}
// ANCHOR_END: baseline

/// The fields that a consumer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the message is about a followed instrument; nearly always it is not.
    Filter,
    /// The fields that a book needs: reference, side, shares, price.
    Book,
    /// Every field.
    All,
}

fn text_sum(text: &[u8]) -> u64 {
    text.iter().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// Parses each message, then reads the fields.
#[inline(never)]
#[must_use]
pub fn eagerly(messages: &[u8], question: Question) -> u64 {
    let mut sum = 0u64;
    for message in messages.chunks_exact(LENGTH) {
        let Some(order) = parse(message) else { continue };
        let units = || (order.price * 10_000.0).round() as u64;
        let book = || {
            let is_buy = order.side == "B";
            order.reference ^ u64::from(order.shares) << 32 ^ units() ^ u64::from(is_buy) << 63
        };
        sum = sum.wrapping_add(match question {
            Question::Filter if order.stock_locate != FOLLOWED => 0,
            Question::Filter | Question::Book => book(),
            Question::All => {
                let text = text_sum(order.stock.as_bytes());
                book() ^ text ^ order.timestamp_ns ^ u64::from(order.stock_locate)
            }
        });
    }
    sum
}

/// Reads the fields from the product's view of each message.
// ANCHOR: variant
#[inline(never)]
#[must_use]
pub fn in_place(messages: &[u8], question: Question) -> u64 {
    let mut sum = 0u64;
    for message in messages.chunks_exact(LENGTH) {
        let Ok(Message::AddOrder(order)) = Message::decode(message) else { continue };
        let book = || {
            let is_buy = order.buy_sell_indicator() == BuySellIndicator::Buy;
            order.order_reference_number()
                ^ u64::from(order.shares()) << 32
                ^ u64::from(order.price().0)
                ^ u64::from(is_buy) << 63
        };
        sum = sum.wrapping_add(match question {
            Question::Filter if order.stock_locate() != FOLLOWED => 0,
            Question::Filter | Question::Book => book(),
            Question::All => {
                let text = text_sum(order.stock().trimmed());
                book() ^ text ^ order.timestamp().0 ^ u64::from(order.stock_locate())
            }
        });
    }
    sum
}
// ANCHOR_END: variant

/// The instrument that the filter looks for, one of 8,192.
const FOLLOWED: u16 = 77;

fn random_orders(random: &mut Random, count: usize) -> Vec<u8> {
    let mut messages = Vec::new();
    for _ in 0..count {
        let locate = random.below(8_192) as u16;
        let length = 1 + random.below(8) as usize;
        let letters: Vec<u8> = (0..length).map(|_| b'A' + random.below(26) as u8).collect();
        let fields = AddOrderFields {
            stock_locate: locate,
            tracking_number: 0,
            timestamp: NanosecondsSinceMidnight(random.below(86_400_000_000_000)),
            order_reference_number: random.number(),
            buy_sell_indicator: if random.below(2) == 0 {
                BuySellIndicator::Buy
            } else {
                BuySellIndicator::Sell
            },
            shares: random.below(10_000) as u32,
            stock: Ascii::padded(&letters).unwrap_or(Ascii([b' '; 8])),
            price: Decimal(random.below(10_000_000) as u32),
        };
        messages.extend_from_slice(&fields.encode());
    }
    messages
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let count = lab.either(8_192, 512);
    let messages = random_orders(&mut lab.random(), count);
    let messages = messages.as_slice();
    lab.experiment("add orders of Nasdaq's ITCH", "message");
    lab.along("what is asked", Scale::Names);
    let questions = [
        (Question::Filter, "one of 8,192 instruments"),
        (Question::Book, "what a book needs"),
        (Question::All, "every field"),
    ];
    for (place, (question, name)) in questions.into_iter().enumerate() {
        lab.point(
            place as f64,
            name,
            Variants::of(count as u64)
                .add("eager parser", || eagerly(black_box(messages), question))
                .add("accessors", || in_place(black_box(messages), question)),
        )?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 18,
    name: "zero-copy",
    title: "Zero-copy accessors",
    question: "What does it save to read fields where they lie, instead of parsing all of them first?",
    published: &[],
    used: &[
        Use { path: "crates/protocols/wire/src/lib.rs", what: "every protocol has such accessors" },
        Use {
            path: "crates/protocols/wire/macros/src",
            what: "`protocol!` writes them from the declaration",
        },
    ],
    assembly: &[
        Assembly {
            variant: "eager parser",
            symbol: "tapeworks_lab::catalogue::zero_copy::parse",
            marks: &["call"],
        },
        Assembly {
            variant: "accessors",
            symbol: "tapeworks_lab::catalogue::zero_copy::in_place",
            marks: &["bswap", "movbe"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_wire::nasdaq::itch50::AddOrder;

    use super::*;

    proptest! {
        #[test]
        fn both_give_the_same_answers(seed in any::<u64>(), count in 0usize..40) {
            let messages = random_orders(&mut Random::new(seed), count);
            prop_assert_eq!(messages.len(), count * LENGTH);
            for question in [Question::Filter, Question::Book, Question::All] {
                prop_assert_eq!(eagerly(&messages, question), in_place(&messages, question));
            }
        }

        #[test]
        fn both_take_and_refuse_the_same_lengths_and_types(mut bytes in prop::collection::vec(0u8..0x80, 0..40), is_add in any::<bool>()) {
            if let Some(first) = bytes.first_mut().filter(|_| is_add) {
                *first = b'A';
            }
            let view = matches!(Message::decode(&bytes), Ok(Message::AddOrder(_)));
            prop_assert_eq!(parse(&bytes).is_some(), view);
        }
    }

    #[test]
    fn the_fields_of_a_known_message() {
        let messages = random_orders(&mut Random::new(1), 1);
        let owned = parse(&messages).unwrap();
        let view = AddOrder::decode(&messages).unwrap();
        assert_eq!(owned.reference, view.order_reference_number());
        assert_eq!(Some(owned.stock.as_str()), view.stock().as_str());
        assert_eq!(owned.price, view.price().to_f64());
        assert_eq!((owned.stock_locate, owned.shares), (view.stock_locate(), view.shares()));
        assert_eq!(owned.timestamp_ns, view.timestamp().0);
    }

    #[test]
    fn the_filter_finds_what_it_follows() {
        let mut messages = random_orders(&mut Random::new(2), 3);
        messages[1..3].copy_from_slice(&FOLLOWED.to_be_bytes());
        assert_ne!(in_place(&messages, Question::Filter), 0);
        assert_eq!(in_place(&messages, Question::Filter), eagerly(&messages, Question::Filter));
    }
}
