//! The records of the stream, as `clients/proto/tapeworks.proto` declares them, and their JSON.
//!
//! The JSON is protobuf's own mapping with the names of the fields as declared: whole numbers of 64 bits are strings, enums
//! are names. Fields are always there, except the prices of a side without quotes.

use std::fmt::Write;

use tapeworks_market::Side as MarketSide;
use tapeworks_market::nbbo::MarketState as State;

/// One message of the stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Record {
    /// The number of the event in the plant that it comes from.
    #[prost(uint64, tag = "1")]
    pub event: u64,
    /// Its contents.
    #[prost(oneof = "Kind", tags = "2, 3, 4, 5")]
    pub kind: Option<Kind>,
}

/// The contents of a record.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// A synthetic NBBO.
    #[prost(message, tag = "2")]
    Nbbo(Nbbo),
    /// A trade.
    #[prost(message, tag = "3")]
    Trade(Trade),
    /// Messages are missing.
    #[prost(message, tag = "4")]
    Gap(Gap),
    /// The client missed something.
    #[prost(message, tag = "5")]
    Lagged(Lagged),
}

/// How bid and offer stand to each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum MarketState {
    /// No bid, no ask, or neither.
    OneSided = 0,
    /// The bid is below the ask.
    Normal = 1,
    /// The bid equals the ask.
    Locked = 2,
    /// The bid is above the ask.
    Crossed = 3,
}

impl From<State> for MarketState {
    fn from(state: State) -> Self {
        match state {
            State::OneSided => Self::OneSided,
            State::Normal => Self::Normal,
            State::Locked => Self::Locked,
            State::Crossed => Self::Crossed,
        }
    }
}

impl MarketState {
    const fn name(self) -> &'static str {
        match self {
            Self::OneSided => "MARKET_STATE_ONE_SIDED",
            Self::Normal => "MARKET_STATE_NORMAL",
            Self::Locked => "MARKET_STATE_LOCKED",
            Self::Crossed => "MARKET_STATE_CROSSED",
        }
    }
}

/// The side of a trade's aggressor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Side {
    /// Not known.
    None = 0,
    /// It bought.
    Bid = 1,
    /// It sold.
    Ask = 2,
}

impl From<MarketSide> for Side {
    fn from(side: MarketSide) -> Self {
        match side {
            MarketSide::None => Self::None,
            MarketSide::Bid => Self::Bid,
            MarketSide::Ask => Self::Ask,
        }
    }
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "SIDE_NONE",
            Self::Bid => "SIDE_BID",
            Self::Ask => "SIDE_ASK",
        }
    }
}

/// The synthetic NBBO of an instrument. Prices in 1e-9, times in ns since the epoch.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Nbbo {
    /// The instrument.
    #[prost(string, tag = "1")]
    pub symbol: String,
    /// The venue's time of its change.
    #[prost(sint64, tag = "2")]
    pub ts_event: i64,
    /// When the packet of its change was received.
    #[prost(sint64, tag = "3")]
    pub ts_recv: i64,
    /// The best bid.
    #[prost(sint64, optional, tag = "4")]
    pub bid_price: Option<i64>,
    /// The best offer.
    #[prost(sint64, optional, tag = "5")]
    pub ask_price: Option<i64>,
    /// Shares at the best bid, over all venues.
    #[prost(uint32, tag = "6")]
    pub bid_size: u32,
    /// Shares at the best offer, over all venues.
    #[prost(uint32, tag = "7")]
    pub ask_size: u32,
    /// The feed of the first venue at the best bid.
    #[prost(uint32, tag = "8")]
    pub bid_publisher: u32,
    /// The feed of the first venue at the best offer.
    #[prost(uint32, tag = "9")]
    pub ask_publisher: u32,
    /// DBN's flags.
    #[prost(uint32, tag = "10")]
    pub flags: u32,
    /// How bid and offer stand to each other.
    #[prost(enumeration = "MarketState", tag = "11")]
    pub state: i32,
}

/// A trade. The price in 1e-9, times in ns since the epoch.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Trade {
    /// The instrument.
    #[prost(string, tag = "1")]
    pub symbol: String,
    /// The venue's time.
    #[prost(sint64, tag = "2")]
    pub ts_event: i64,
    /// When its packet was received.
    #[prost(sint64, tag = "3")]
    pub ts_recv: i64,
    /// The price.
    #[prost(sint64, tag = "4")]
    pub price: i64,
    /// Shares.
    #[prost(uint32, tag = "5")]
    pub size: u32,
    /// The feed.
    #[prost(uint32, tag = "6")]
    pub publisher: u32,
    /// The side of the aggressor.
    #[prost(enumeration = "Side", tag = "7")]
    pub side: i32,
    /// DBN's flags.
    #[prost(uint32, tag = "8")]
    pub flags: u32,
}

/// Messages of a channel that never came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Gap {
    /// The feed.
    #[prost(uint32, tag = "1")]
    pub publisher: u32,
    /// The channel of the feed.
    #[prost(uint32, tag = "2")]
    pub channel: u32,
    /// The sequence number of the first.
    #[prost(uint64, tag = "3")]
    pub first: u64,
    /// How many.
    #[prost(uint64, tag = "4")]
    pub count: u64,
    /// When the venue sent the message that revealed it, in ns since the epoch.
    #[prost(sint64, tag = "5")]
    pub ts_event: i64,
    /// When that was received, in ns since the epoch.
    #[prost(sint64, tag = "6")]
    pub ts_recv: i64,
}

/// The records that a client missed since the last such record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Lagged {
    /// Changes of an NBBO that gave way to later ones of the same instrument.
    #[prost(uint64, tag = "1")]
    pub conflated: u64,
    /// Trades that were not sent.
    #[prost(uint64, tag = "2")]
    pub dropped_trades: u64,
    /// Gaps that were not sent.
    #[prost(uint64, tag = "3")]
    pub dropped_gaps: u64,
}

/// A symbol as JSON.
fn quoted(symbol: &str) -> serde_json::Value {
    serde_json::Value::from(symbol)
}

impl Record {
    /// The record as JSON, on one line.
    pub fn to_json(&self) -> String {
        let mut text = String::with_capacity(320);
        // Writing to a string does not fail.
        let _written = self.write_json(&mut text);
        text
    }

    fn write_json(&self, to: &mut String) -> std::fmt::Result {
        write!(to, "{{\"event\":\"{}\"", self.event)?;
        match &self.kind {
            None => {}
            Some(Kind::Nbbo(nbbo)) => {
                write!(to, ",\"nbbo\":{{\"symbol\":{}", quoted(&nbbo.symbol))?;
                write!(to, ",\"ts_event\":\"{}\",\"ts_recv\":\"{}\"", nbbo.ts_event, nbbo.ts_recv)?;
                for (name, price) in [("bid", nbbo.bid_price), ("ask", nbbo.ask_price)] {
                    if let Some(price) = price {
                        write!(to, ",\"{name}_price\":\"{price}\"")?;
                    }
                }
                write!(to, ",\"bid_size\":{},\"ask_size\":{}", nbbo.bid_size, nbbo.ask_size)?;
                write!(to, ",\"bid_publisher\":{}", nbbo.bid_publisher)?;
                write!(to, ",\"ask_publisher\":{}", nbbo.ask_publisher)?;
                write!(to, ",\"flags\":{},\"state\":\"{}\"}}", nbbo.flags, nbbo.state().name())?;
            }
            Some(Kind::Trade(trade)) => {
                write!(to, ",\"trade\":{{\"symbol\":{}", quoted(&trade.symbol))?;
                write!(to, ",\"ts_event\":\"{}\",\"ts_recv\":\"{}\"", trade.ts_event, trade.ts_recv)?;
                write!(to, ",\"price\":\"{}\",\"size\":{}", trade.price, trade.size)?;
                write!(to, ",\"publisher\":{},\"side\":\"{}\"", trade.publisher, trade.side().name())?;
                write!(to, ",\"flags\":{}}}", trade.flags)?;
            }
            Some(Kind::Gap(gap)) => {
                write!(to, ",\"gap\":{{\"publisher\":{},\"channel\":{}", gap.publisher, gap.channel)?;
                write!(to, ",\"first\":\"{}\",\"count\":\"{}\"", gap.first, gap.count)?;
                write!(to, ",\"ts_event\":\"{}\",\"ts_recv\":\"{}\"}}", gap.ts_event, gap.ts_recv)?;
            }
            Some(Kind::Lagged(lagged)) => {
                write!(to, ",\"lagged\":{{\"conflated\":\"{}\"", lagged.conflated)?;
                write!(to, ",\"dropped_trades\":\"{}\"", lagged.dropped_trades)?;
                write!(to, ",\"dropped_gaps\":\"{}\"}}", lagged.dropped_gaps)?;
            }
        }
        to.push('}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use prost::Message;
    use serde_json::{Value, json};

    use super::*;

    /// A field: its type, its number, whether it may be absent.
    type Fields = BTreeMap<String, (String, u32, bool)>;

    /// The messages of the declaration, with the fields of oneofs as fields of their own, and the values of enums.
    fn declared() -> BTreeMap<String, Fields> {
        let text = include_str!("../../tests/tapeworks.proto");
        let (mut all, mut current) = (BTreeMap::<String, Fields>::new(), None);
        for line in text.lines().map(|line| line.split("//").next().unwrap().trim()) {
            let words: Vec<_> = line.trim_end_matches(';').split_whitespace().collect();
            match words.as_slice() {
                ["message" | "enum", name, "{"] => current = Some((*name).to_owned()),
                ["optional", kind, name, "=", number] => {
                    let field = ((*kind).to_owned(), number.parse().unwrap(), true);
                    all.entry(current.clone().unwrap()).or_default().insert((*name).to_owned(), field);
                }
                [kind, name, "=", number] if current.is_some() => {
                    let field = ((*kind).to_owned(), number.parse().unwrap(), false);
                    all.entry(current.clone().unwrap()).or_default().insert((*name).to_owned(), field);
                }
                [name, "=", number] if current.is_some() => {
                    let field = ("value".to_owned(), number.parse().unwrap(), false);
                    all.entry(current.clone().unwrap()).or_default().insert((*name).to_owned(), field);
                }
                _ => {}
            }
        }
        all
    }

    fn snake(name: &str) -> String {
        let mut snake = String::new();
        for (place, letter) in name.chars().enumerate() {
            if letter.is_uppercase() && place > 0 {
                snake.push('_');
            }
            snake.extend(letter.to_lowercase());
        }
        snake
    }

    /// The same of the types above, from their attributes.
    fn written() -> BTreeMap<String, Fields> {
        let text = include_str!("messages.rs").split("#[cfg(test)]").next().unwrap();
        let mut all = BTreeMap::<String, Fields>::new();
        let (mut current, mut attribute, mut is_enumeration) = (String::new(), None, false);
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("#[prost(").and_then(|rest| rest.strip_suffix(")]")) {
                attribute = Some(rest.to_owned());
            } else if let Some(rest) =
                line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "))
            {
                current = rest.trim_end_matches(" {").to_owned();
                if current == "Kind" {
                    current = "Record".to_owned();
                    is_enumeration = false;
                } else {
                    is_enumeration = line.starts_with("pub enum");
                }
            } else if line.starts_with('}') {
                is_enumeration = false;
            } else if let Some(attribute) = attribute.take() {
                let name = line.trim_start_matches("pub ").split([':', '(']).next().unwrap();
                let name = snake(name);
                if attribute.starts_with("oneof") {
                    continue;
                }
                let tag = attribute.split("tag = \"").nth(1).unwrap().trim_end_matches('"').parse().unwrap();
                let kind = attribute.split([',', ' ']).next().unwrap();
                let kind = match kind {
                    "message" => line.split(['(', ')']).nth(1).unwrap().to_owned(),
                    "enumeration" => attribute.split('"').nth(1).unwrap().to_owned(),
                    kind => kind.to_owned(),
                };
                let field = (kind, tag, attribute.contains("optional"));
                all.entry(current.clone()).or_default().insert(name, field);
            } else if is_enumeration && let Some((name, number)) = line.split_once(" = ") {
                let name = format!("{}_{}", snake(&current), snake(name)).to_uppercase();
                let field = ("value".to_owned(), number.trim_end_matches(',').parse().unwrap(), false);
                all.entry(current.clone()).or_default().insert(name, field);
            }
        }
        all
    }

    #[test]
    fn the_types_are_those_of_the_declaration() {
        let declared = declared();
        assert_eq!(declared.len(), 7, "{declared:?}");
        assert_eq!(declared["Nbbo"]["bid_price"], ("sint64".to_owned(), 4, true));
        assert_eq!(declared, written());
        for state in (0..4).map(|number| MarketState::try_from(number).unwrap()) {
            assert_eq!(declared["MarketState"][state.name()].1, state as u32);
        }
        for side in (0..3).map(|number| Side::try_from(number).unwrap()) {
            assert_eq!(declared["Side"][side.name()].1, side as u32);
        }
    }

    #[test]
    fn signed_numbers_are_in_zigzag() {
        // The table of protobuf's document on its encoding: 0, -1, 1, -2, 2147483647, -2147483648; and the ends of i64.
        let known: [(i64, &[u8]); 7] = [
            (-1, &[0x01]),
            (1, &[0x02]),
            (-2, &[0x03]),
            (0x7fff_ffff, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (-0x8000_0000, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            (i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ];
        for (number, bytes) in known {
            let trade = Trade { price: number, ..Trade::default() };
            assert_eq!(trade.encode_to_vec(), [&[0x20], bytes].concat(), "{number}");
        }
        assert_eq!(Trade::default().encode_to_vec(), [0; 0]);
        // An absent price is not a price of zero.
        let free = Nbbo { bid_price: Some(0), ..Nbbo::default() };
        assert_eq!(free.encode_to_vec(), [0x20, 0x00]);
    }

    fn whole(text: &Value) -> i64 {
        text.as_str().unwrap().parse().unwrap()
    }

    fn named(count: i32, name: impl Fn(i32) -> &'static str, value: &Value) -> i32 {
        (0..count).find(|at| name(*at) == value).unwrap()
    }

    /// The message as a reader of the mapping decodes it.
    fn from_json(text: &str) -> Record {
        let value: Value = serde_json::from_str(text).unwrap();
        let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let long = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
        let kind = if let Some(nbbo) = value.get("nbbo") {
            Some(Kind::Nbbo(Nbbo {
                symbol: nbbo["symbol"].as_str().unwrap().to_owned(),
                ts_event: whole(&nbbo["ts_event"]),
                ts_recv: whole(&nbbo["ts_recv"]),
                bid_price: nbbo.get("bid_price").map(whole),
                ask_price: nbbo.get("ask_price").map(whole),
                bid_size: number(&nbbo["bid_size"]),
                ask_size: number(&nbbo["ask_size"]),
                bid_publisher: number(&nbbo["bid_publisher"]),
                ask_publisher: number(&nbbo["ask_publisher"]),
                flags: number(&nbbo["flags"]),
                state: named(4, |at| MarketState::try_from(at).unwrap().name(), &nbbo["state"]),
            }))
        } else if let Some(trade) = value.get("trade") {
            Some(Kind::Trade(Trade {
                symbol: trade["symbol"].as_str().unwrap().to_owned(),
                ts_event: whole(&trade["ts_event"]),
                ts_recv: whole(&trade["ts_recv"]),
                price: whole(&trade["price"]),
                size: number(&trade["size"]),
                publisher: number(&trade["publisher"]),
                side: named(3, |at| Side::try_from(at).unwrap().name(), &trade["side"]),
                flags: number(&trade["flags"]),
            }))
        } else if let Some(gap) = value.get("gap") {
            Some(Kind::Gap(Gap {
                publisher: number(&gap["publisher"]),
                channel: number(&gap["channel"]),
                first: long(&gap["first"]),
                count: long(&gap["count"]),
                ts_event: whole(&gap["ts_event"]),
                ts_recv: whole(&gap["ts_recv"]),
            }))
        } else {
            value.get("lagged").map(|lagged| {
                Kind::Lagged(Lagged {
                    conflated: long(&lagged["conflated"]),
                    dropped_trades: long(&lagged["dropped_trades"]),
                    dropped_gaps: long(&lagged["dropped_gaps"]),
                })
            })
        };
        Record { event: long(&value["event"]), kind }
    }

    #[test]
    fn json_has_the_names_of_the_declaration() {
        let trade = Trade { symbol: "A\"B".to_owned(), price: -1, side: 2, ..Trade::default() };
        let record = Record { event: u64::MAX, kind: Some(Kind::Trade(trade)) };
        let value: Value = serde_json::from_str(&record.to_json()).unwrap();
        let expected = json!({
            "event": "18446744073709551615",
            "trade": {
                "symbol": "A\"B", "ts_event": "0", "ts_recv": "0", "price": "-1", "size": 0, "publisher": 0,
                "side": "SIDE_ASK", "flags": 0,
            },
        });
        assert_eq!(value, expected);
    }

    fn kinds() -> impl Strategy<Value = Option<Kind>> {
        let nbbo = (".{0,16}", any::<[i64; 2]>(), any::<[Option<i64>; 2]>(), any::<[u32; 5]>(), 0..4i32);
        let nbbo = nbbo.prop_map(|(symbol, times, prices, numbers, state)| {
            Kind::Nbbo(Nbbo {
                symbol,
                ts_event: times[0],
                ts_recv: times[1],
                bid_price: prices[0],
                ask_price: prices[1],
                bid_size: numbers[0],
                ask_size: numbers[1],
                bid_publisher: numbers[2],
                ask_publisher: numbers[3],
                flags: numbers[4],
                state,
            })
        });
        let trade = (".{0,16}", any::<[i64; 3]>(), any::<[u32; 3]>(), 0..3i32);
        let trade = trade.prop_map(|(symbol, longs, numbers, side)| {
            Kind::Trade(Trade {
                symbol,
                ts_event: longs[0],
                ts_recv: longs[1],
                price: longs[2],
                size: numbers[0],
                publisher: numbers[1],
                side,
                flags: numbers[2],
            })
        });
        let gap = (any::<[u32; 2]>(), any::<[u64; 2]>(), any::<[i64; 2]>());
        let gap = gap.prop_map(|(numbers, [first, count], [ts_event, ts_recv])| {
            Kind::Gap(Gap { publisher: numbers[0], channel: numbers[1], first, count, ts_event, ts_recv })
        });
        let lagged = any::<[u64; 3]>().prop_map(|[conflated, dropped_trades, dropped_gaps]| {
            Kind::Lagged(Lagged { conflated, dropped_trades, dropped_gaps })
        });
        prop_oneof![nbbo, trade, gap, lagged].prop_map(Some)
    }

    proptest! {
        #[test]
        fn both_encodings_have_the_same_content(event in any::<u64>(), kind in kinds()) {
            let record = Record { event, kind };
            prop_assert_eq!(&from_json(&record.to_json()), &record);
            prop_assert_eq!(&Record::decode(record.encode_to_vec().as_slice()).unwrap(), &record);
        }
    }
}
