//! Real captures that the repository may not hold, in the folder that `TAPEWORKS_REAL_DATA` names. `cargo xtask test real-data` runs
//! these tests; without the folder they say that they are skipped.
//!
//! The figures were counted by other programs than ours. The captures are IEX's published DEEP sample and a TOPS file (from
//! timpalpant/go-iex), and NYSE's example of the Imbalances feed (from Open-Markets-Initiative/Data).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod tops;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tapeworks_analysis::replay::{Advanced, Options, Walk};
use tapeworks_analysis::{input, stats};
use tapeworks_capture::CaptureReader;
use tapeworks_capture::net;
use tapeworks_feed::{Application, Feed, FeedOptions, Packet};
use tapeworks_market::event::StatusAction;
use tapeworks_market::{Event, EventKind, Publisher, Side, Symbol};
use tapeworks_stage::Stage;
use tapeworks_time::Nanos;

/// A file of the folder; `None` without the folder.
fn real(name: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("TAPEWORKS_REAL_DATA") else {
        eprintln!("SKIPPED: TAPEWORKS_REAL_DATA does not name a folder with {name}");
        return None;
    };
    let path = PathBuf::from(folder).join(name);
    assert!(path.is_file(), "{} is missing", path.display());
    Some(path)
}

/// Messages by name, and how many were repeated or missing.
fn count(path: &PathBuf, application: Option<Application>) -> (BTreeMap<&'static str, u64>, u64) {
    let read_as = application.map(tapeworks_analysis::sessions::ReadAs::Feed);
    let mut inputs = input::open_all(&[path], application).unwrap();
    let stats = stats::count(&mut inputs, read_as, &mut |_| ControlFlow::Continue(()));
    let kinds = stats.kinds.iter().map(|((_, name), kind)| (*name, kind.messages)).collect();
    let repeated = stats.channels.iter().map(|(_, channel)| channel.repeated + channel.missing).sum();
    (kinds, repeated)
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Price levels of a side, by price in 1e-4.
type Levels = BTreeMap<i64, u32>;

/// The simplest DEEP book there is: a map from price to size for each symbol and side. A session that numbers from 1 again empties it.
#[derive(Default)]
struct PlainBooks {
    levels: HashMap<([u8; 8], u8), Levels>,
    next: u64,
    runs: u32,
    messages: u64,
    trades: u64,
}

impl PlainBooks {
    /// Takes an Ethernet frame. Returns the symbols whose levels it changed.
    fn frame(&mut self, frame: &[u8]) -> BTreeSet<[u8; 8]> {
        let udp = 14 + 4 * usize::from(frame[14] & 15);
        let segment = &frame[udp + 8..];
        let (count, offset, first) = (u16_at(segment, 14), u64_at(segment, 16), u64_at(segment, 24));
        if offset == 0 && first < self.next || self.runs == 0 {
            self.levels.clear();
            self.runs += 1;
            self.next = 1;
        }
        let mut changed = BTreeSet::new();
        let mut at = 40;
        for _ in 0..count {
            let length = u16_at(segment, at);
            let message = &segment[at + 2..at + 2 + length];
            at += 2 + length;
            self.messages += 1;
            self.trades += u64::from(message[0] == b'T');
            if let side @ (b'8' | b'5') = message[0] {
                let symbol: [u8; 8] = message[10..18].try_into().unwrap();
                let size = u32::from_le_bytes(message[18..22].try_into().unwrap());
                let price = u64_at(message, 22).cast_signed();
                let levels = self.levels.entry((symbol, side)).or_default();
                if size == 0 {
                    levels.remove(&price)
                } else {
                    levels.insert(price, size)
                };
                changed.insert(symbol);
            }
        }
        self.next = self.next.max(first + count as u64);
        changed
    }

    /// The levels of a side, the best first.
    fn side(&self, symbol: [u8; 8], side: Side) -> Vec<(i64, u32)> {
        let key = if side == Side::Bid { b'8' } else { b'5' };
        let levels =
            self.levels.get(&(symbol, key)).into_iter().flatten().map(|(price, size)| (*price, *size));
        let mut levels: Vec<_> = levels.collect();
        if side == Side::Bid {
            levels.reverse();
        }
        levels
    }
}

#[test]
fn every_book_of_the_deep_sample_is_that_of_a_plain_book_through_its_twelve_runs() {
    let Some(path) = real("iex-deep10-sample/DEEP10.pcap.gz") else { return };
    let mut reader = CaptureReader::open(&path).unwrap();
    let mut walk = Walk::open(Options { inputs: vec![path], ..Options::default() }).unwrap();
    let (mut plain, mut compared) = (PlainBooks::default(), 0u64);
    // The sample ends inside a packet.
    while let Ok(Some(packet)) = reader.next_packet() {
        let changed = plain.frame(packet.bytes);
        assert_eq!(walk.advance(Nanos(u64::MAX), 1), Advanced::Most);
        for symbol in changed {
            let text = std::str::from_utf8(&symbol).unwrap().trim_end();
            let instrument = walk.instruments().find(Symbol::parse(text).unwrap()).unwrap();
            let book = walk.books().feed(Publisher::IEXG_DEEP).unwrap().book(instrument);
            for side in [Side::Bid, Side::Ask] {
                let levels: Vec<(i64, u32)> =
                    book.levels(side).map(|level| (level.price.e9() / 100_000, level.size)).collect();
                assert_eq!(levels, plain.side(symbol, side), "packet {}: {text} {side:?}", packet.number);
                compared += 1;
            }
        }
    }
    eprintln!(
        "DEEP sample: {} runs, {} messages, {} trades, {compared} book sides compared",
        plain.runs, plain.messages, plain.trades
    );
    assert_eq!((plain.runs, plain.messages, plain.trades), (12, 391_999, 83_343));
    assert_eq!(walk.messages(), 391_999);
    assert_eq!(compared, 53_852);
}

#[test]
fn the_deep_sample_has_its_messages_and_trades() {
    let Some(path) = real("iex-deep10-sample/DEEP10.pcap.gz") else { return };
    let (kinds, repeated_or_missing) = count(&path, None);
    assert_eq!(
        (kinds.values().sum::<u64>(), kinds["TradeReport"], repeated_or_missing),
        (391_999, 83_343, 0)
    );
}

#[test]
fn the_tops_file_has_its_messages_trades_and_shares() {
    let Some(path) = real("iex-tops16-whole/TOPS16.pcapng.gz") else { return };
    let (kinds, repeated_or_missing) = count(&path, None);
    assert_eq!((kinds.values().sum::<u64>(), kinds["TradeReport"], repeated_or_missing), (57_674, 6_390, 0));
    let (mut feed, mut trades, mut shares) = (Feed::new(FeedOptions::default()), 0, 0);
    let mut reader = CaptureReader::open(&path).unwrap();
    while let Some(packet) = reader.next_packet().unwrap() {
        let datagram = net::parse(packet.link_type, packet.bytes).unwrap();
        let received = Nanos(packet.timestamp_ns);
        let packet = Packet { file: 0, number: packet.number, offset: packet.offset, received, datagram };
        feed.process(&[packet], &mut |event: Event| {
            if event.kind == EventKind::Trade {
                (trades, shares) = (trades + 1, shares + u64::from(event.size));
            }
        });
    }
    eprintln!("TOPS file: {} messages, {trades} trades of {shares} shares", feed.messages());
    assert_eq!((feed.messages(), trades, shares, feed.problems().total), (57_674, 6_390, 1_427_907, 0));
}

#[test]
fn every_bar_of_the_tops_file_is_that_of_its_trade_reports() {
    let Some(path) = real("iex-tops16-whole/TOPS16.pcapng.gz") else { return };
    let minute = 60 * Nanos::SECOND;
    let plain = tops::plain_bars(&path, minute);
    let priced = plain.values().filter(|(prices, ..)| prices[0].is_some()).count();
    let volume: u64 = plain.values().map(|(_, volume, _)| volume).sum();
    eprintln!("TOPS file: {} bars, {priced} with prices, {volume} shares", plain.len());
    let bars = tops::bars_of(&path, minute);
    let wrong = plain.iter().filter(|(key, bar)| bars.get(key) != Some(bar)).count();
    assert_eq!((wrong, bars.len()), (0, plain.len()));
    assert_eq!((plain.len(), priced, volume), (137, 89, 1_419_337));
}

/// The events of a NYSE capture.
fn nyse_events(path: &Path) -> Vec<Event> {
    let (application, publisher) = (Some(Application::NyseIntegrated25), Some(Publisher::XNYS_PILLAR));
    let mut feed = Feed::new(FeedOptions { application, publisher, ..FeedOptions::default() });
    let mut reader = CaptureReader::open(path).unwrap();
    let mut events = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let datagram = net::parse(packet.link_type, packet.bytes).unwrap();
        let received = Nanos(packet.timestamp_ns);
        let packet = Packet { file: 0, number: packet.number, offset: packet.offset, received, datagram };
        feed.process(&[packet], &mut |event: Event| events.push(event));
    }
    assert_eq!(feed.problems().total, 0);
    events
}

#[test]
fn every_imbalance_of_the_nyse_file_has_the_quantities_of_its_bytes() {
    let Some(path) = real("nyse-imbalances-xdp21/Nyse.ImbalancesFeed.v2.1.f.Example.pcap") else { return };
    let mut expected = Vec::new();
    let mut reader = CaptureReader::open(&path).unwrap();
    while let Some(packet) = reader.next_packet().unwrap() {
        let datagram = net::parse(packet.link_type, packet.bytes).unwrap();
        let mut at = 16;
        for _ in 0..datagram.payload[3] {
            let length = u16_at(datagram.payload, at);
            let message = &datagram.payload[at..at + length];
            at += length;
            if message[2] == 105 {
                let quantity = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap());
                let side = match message[39] {
                    b'B' => Side::Bid,
                    b'S' => Side::Ask,
                    _ => Side::None,
                };
                expected.push((quantity(24), quantity(28), Some(quantity(32)), message[38], side));
            }
        }
    }
    let events = nyse_events(&path);
    let imbalances = events.windows(2).filter_map(|pair| pair[0].imbalance(&pair[1]));
    let found: Vec<_> = imbalances
        .map(|one| (one.paired, one.imbalance, one.market_imbalance, one.auction_type, one.side))
        .collect();
    let statuses = events.iter().filter_map(Event::status);
    let read = statuses.filter(|status| status.is_trading.is_some()).count();
    eprintln!("NYSE file: {} imbalances, {read} statuses", found.len());
    assert_eq!((found.len(), found == expected), (10_695, true));
    // All but three price indications.
    assert_eq!(read, 899);
}

#[test]
fn messages_of_xdp_2_1_are_read_without_the_fields_that_came_later() {
    let one = |name: &str| {
        let path = real(&format!("nyse-integrated-xdp21/{name}.pcap"))?;
        nyse_events(&path).into_iter().find(|event| event.kind != EventKind::SymbolMapping)
    };
    let Some(execution) = one("OrderExecutionMessage") else { return };
    // A number where later revisions have sale conditions, and no side where they have one.
    assert_eq!((execution.order_id, execution.size, execution.detail), (2_522_503, 100, 0));
    let replace = one("ReplaceOrderMessage").unwrap();
    assert_eq!((replace.order_id, replace.aux, replace.size), (2_581_418, 2_581_507, 100));
    let status = one("SecurityStatusMessage").unwrap().status().unwrap();
    assert_eq!((status.action, status.is_trading), (StatusAction::PreOpen, Some(false)));
}

#[test]
fn the_nyse_file_has_its_messages_by_type() {
    let Some(path) = real("nyse-imbalances-xdp21/Nyse.ImbalancesFeed.v2.1.f.Example.pcap") else { return };
    let (kinds, repeated_or_missing) = count(&path, Some(Application::NyseIntegrated25));
    let expected = [
        ("Imbalance", 10_695),
        ("SecurityStatus", 902),
        ("SequenceNumberReset", 1),
        ("SymbolIndexMapping", 221),
    ];
    assert_eq!((kinds, repeated_or_missing), (BTreeMap::from(expected), 0));
}
