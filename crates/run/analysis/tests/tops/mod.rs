//! The simplest bars of a capture of IEX: the trade reports and executions in the packets, and maps.
//!
//! It knows nothing of events, books or hours. A trade's own flags say what it counts for: a cross (bit 3) sets all prices, a trade of
//! extended hours (bit 6) or an odd lot (bit 5) none, and any other one all. Every trade has volume, unless a break names it.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;

use tapeworks_analysis::bars;
use tapeworks_analysis::replay::{self, Options};
use tapeworks_capture::CaptureReader;
use tapeworks_capture::net;
use tapeworks_market::sale_conditions::SaleRules;

/// Open, high, low and close in 1e-4, volume and trades, by the start of the interval and symbol.
pub(crate) type PlainBars = BTreeMap<(u64, String), ([Option<i64>; 4], u64, u64)>;

struct Trade {
    start: u64,
    symbol: String,
    number: u64,
    flags: u8,
    size: u64,
    price: i64,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Calls `take` with each message of an IEX-TP payload, and its place there.
pub(crate) fn for_each_message(segment: &[u8], mut take: impl FnMut(usize, &[u8])) {
    let mut at = 40;
    for _ in 0..u16::from_le_bytes([segment[14], segment[15]]) {
        let length = usize::from(u16::from_le_bytes([segment[at], segment[at + 1]]));
        take(at + 2, &segment[at + 2..at + 2 + length]);
        at += 2 + length;
    }
}

/// The bars of a capture, counted from its trade reports. Each message is in it once.
pub(crate) fn plain_bars(path: &Path, interval_ns: u64) -> PlainBars {
    let mut reader = CaptureReader::open(path).unwrap();
    let (mut trades, mut broken) = (Vec::new(), HashSet::new());
    while let Ok(Some(packet)) = reader.next_packet() {
        let start = packet.timestamp_ns / interval_ns * interval_ns;
        let datagram = net::parse(packet.link_type, packet.bytes).unwrap();
        for_each_message(datagram.payload, |_, message| {
            // An execution of DEEP+ has the order before its size.
            let terms = if message[0] == b'L' { 26 } else { 18 };
            if matches!(message[0], b'T' | b'L' | b'B') {
                let symbol = std::str::from_utf8(&message[10..18]).unwrap().trim_end().to_owned();
                let number = u64_at(message, terms + 12);
                if message[0] == b'B' {
                    broken.insert((symbol, number));
                    return;
                }
                let size = u64::from(u32::from_le_bytes(message[terms..terms + 4].try_into().unwrap()));
                let price = u64_at(message, terms + 4).cast_signed();
                trades.push(Trade { start, symbol, number, flags: message[1], size, price });
            }
        });
    }
    let mut bars = PlainBars::new();
    for trade in &trades {
        if broken.contains(&(trade.symbol.clone(), trade.number)) {
            continue;
        }
        let (prices, volume, count) = bars.entry((trade.start, trade.symbol.clone())).or_default();
        (*volume, *count) = (*volume + trade.size, *count + 1);
        let [is_cross, is_extended, is_odd] = [3, 6, 5].map(|bit| trade.flags & (1 << bit) != 0);
        if is_cross || !is_extended && !is_odd {
            let price = Some(trade.price);
            let [open, high, low, _] = *prices;
            *prices = [open.or(price), high.max(price), low.min(price).or(price), price];
        }
    }
    bars
}

/// The bars that a replay makes of it.
pub(crate) fn bars_of(path: &Path, interval_ns: u64) -> PlainBars {
    let options = Options {
        inputs: vec![path.to_owned()],
        bars: Some(bars::Options { interval_ns, by_venue: false, rules: SaleRules::default() }),
        ..Options::default()
    };
    let summary = replay::replay(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    let bars = summary.bars.as_ref().unwrap().bars();
    bars.iter()
        .map(|bar| {
            let symbol = summary.symbols[bar.instrument.index()].to_string();
            let prices = [bar.open, bar.high, bar.low, bar.close];
            let prices = prices.map(|price| price.map(|price| price.e9() / 100_000));
            ((bar.start.0, symbol), (prices, bar.volume, bar.trades))
        })
        .collect()
}
