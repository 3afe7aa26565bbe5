//! The real captures, and what can be done to them, through the feed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tapeworks_capture::CaptureReader;
use tapeworks_capture::net::{self, Datagram, Transport};
use tapeworks_feed::{
    Application, FEEDS, Feed, FeedOptions, FileFormat, Frame, Packet, ProblemKind, recognise,
};
use tapeworks_follow::sequence::Refusal;
use tapeworks_market::event::{Gap, Session, StatusAction};
use tapeworks_market::luld::Standing;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{
    BookStage, Event, EventKind, Flags, Line, NbboStage, NbboUpdate, Price, Publisher, Side,
};
use tapeworks_stage::{Stage, Through};
use tapeworks_time::Nanos;
use tapeworks_wire::nasdaq::{itch50, moldudp64};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceMidnight};

fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata").join(name)
}

/// All events of a capture.
fn events_of(name: &str) -> (Vec<Event>, Feed) {
    events_with(FeedOptions::default(), name)
}

fn events_with(options: FeedOptions, name: &str) -> (Vec<Event>, Feed) {
    let mut feed = Feed::new(options);
    let mut events = Vec::new();
    let mut reader = CaptureReader::open(&capture(name)).unwrap();
    while let Some(packet) = reader.next_packet().unwrap() {
        let datagram = net::parse(packet.link_type, packet.bytes).unwrap();
        let packet = Packet {
            file: 0,
            number: packet.number,
            offset: packet.offset + datagram.payload_offset as u64,
            received: Nanos(packet.timestamp_ns),
            datagram,
        };
        feed.process(&[packet], &mut |event| events.push(event));
    }
    (events, feed)
}

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

#[test]
fn a_real_nasdaq_packet_becomes_orders_of_one_instrument() {
    let (events, feed) = events_of("nasdaq-itch50/Multiple.Packets.pcap");
    assert_eq!(
        feed.problems().total,
        1,
        "the second packet does not follow the first: {:?}",
        feed.problems().kept()
    );
    assert_eq!(feed.channels().len(), 1);
    let channel = &feed.channels()[0];
    assert_eq!(channel.publisher(), Publisher::XNAS_ITCH);
    assert_eq!(channel.identity().to_string(), "MoldUDP64 session 000010059B port 26477");
    let add = events.iter().find(|event| event.kind == EventKind::Add).unwrap();
    assert_eq!(feed.instruments().symbol(add.instrument).unwrap().as_str(), "META");
    assert_eq!((add.side, add.size, add.price.unwrap().to_string().as_str()), (Side::Bid, 1, "80.52"));
    // The exchange's clock and the capture's agree to within a millisecond.
    for event in events.iter().filter(|event| event.kind == EventKind::Add) {
        assert!(event.ts_recv.since(event.ts_event) < 1_000_000, "{event:?}");
    }
}

/// Requests for missed messages and for snapshots, which a replay takes nothing from.
#[test]
fn sessions_of_recovery_are_passed_over_and_are_no_problem() {
    for name in ["cboe-grp", "cboe-spin", "mitch-replay", "mitch-snapshot", "memx-gap-fill", "memx-snapshot"]
    {
        let (events, mut feed) = events_of(&format!("../sessions/{name}.pcap"));
        let mut more = Vec::new();
        feed.finish(&mut |event| more.push(event));
        assert_eq!((events.len(), more.len(), feed.problems().total), (0, 0, 0), "{name}");
        let counters = feed.counters();
        assert!(counters.session_bytes > 100 && counters.skipped_stream_bytes == 0, "{name}: {counters:?}");
        assert_eq!(feed.counters().unrecognised_packets, 0, "{name}");
    }
}

#[test]
fn the_multicast_group_distinguishes_bx_from_nasdaq() {
    let (events, _) = events_of("nasdaq-bx-itch50/AddOrderNoMpidAttributionMessage.pcap");
    assert_eq!(kinds(&events), [EventKind::SymbolMapping, EventKind::Add]);
    assert!(events.iter().all(|event| event.publisher == Publisher::XBOS_ITCH));
}

#[test]
fn a_trading_action_becomes_a_status() {
    let (events, _) = events_of("nasdaq-itch50/StockTradingActionMessage.pcap");
    let status = events.iter().find_map(Event::status).unwrap();
    assert_eq!((status.action, status.is_trading), (StatusAction::Trading, Some(true)));
}

#[test]
fn a_quote_becomes_two_sides_and_the_second_is_marked_last() {
    for name in ["iex-tops15/QuoteUpdateMessage.pcap", "iex-tops16/QuoteUpdateMessage.pcap"] {
        let (events, feed) = events_of(name);
        assert_eq!(feed.problems().total, 0);
        let quotes: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Quote).collect();
        assert_eq!(quotes.iter().map(|quote| quote.side).collect::<Vec<_>>(), [Side::Bid, Side::Ask]);
        assert!(!quotes[0].flags().contains(Flags::LAST) && quotes[1].flags().contains(Flags::LAST));
    }
}

#[test]
fn iexs_directory_packet_defines_and_quotes_its_symbols() {
    let (events, feed) = events_of("iex-tops15/SecurityDirectoryMessage.pcap");
    assert_eq!(feed.problems().total, 0);
    let (instrument, definition) =
        events.iter().find_map(|event| Some((event.instrument, event.definition()?))).unwrap();
    assert_eq!(definition.round_lot, 100);
    let mapping = events.iter().find(|event| event.instrument == instrument).unwrap();
    assert_eq!(mapping.symbol().unwrap().as_str(), "ZEXIT");
    assert!(events.iter().filter(|event| event.kind == EventKind::Quote).count() > 10);
}

#[test]
fn deep_levels_keep_their_side_and_event_flag() {
    for (name, side) in [
        ("iex-deep/PriceLevelBuyUpdateMessage.pcap", Side::Bid),
        ("iex-deep/PriceLevelSellUpdateMessage.pcap", Side::Ask),
    ] {
        let (events, _) = events_of(name);
        let level = events.iter().find(|event| event.kind == EventKind::Level).unwrap();
        assert_eq!((level.side, level.publisher), (side, Publisher::IEXG_DEEP));
        assert!(level.flags().contains(Flags::MARKET_BY_PRICE) && level.price.is_some());
    }
}

#[test]
fn memxs_packets_are_orders_states_and_phases() {
    let (events, feed) = events_of("memx-memoir-depth/OrderAddedMessage.pcap");
    assert_eq!(feed.problems().total, 0);
    assert_eq!(feed.channels()[0].identity().to_string(), "MEMOIR session 5553453164e486c8 port 19780");
    let added = events[0];
    assert_eq!((added.kind, added.publisher), (EventKind::Add, Publisher::MEMX_MEMOIR));
    assert_eq!((added.order_id, added.size, added.side), (20_881_514, 900, Side::Ask));
    assert_eq!(added.price.unwrap().e9(), 104_760_000_000);
    // 15.6 us from the venue's time to the capture's.
    assert_eq!((added.channel_sequence, added.ts_recv.since(added.ts_event)), (1_371_819, 25_629));
    let one = |name: &str| events_of(&format!("memx-memoir-depth/{name}.pcap")).0[0];
    let reduced = one("OrderReducedMessage");
    assert_eq!((reduced.kind, reduced.order_id, reduced.size), (EventKind::Cancel, 68_842_061, 200));
    assert_eq!(one("OrderDeletedMessage").kind, EventKind::Delete);
    let status = one("SecurityTradingStatusMessage").status().unwrap();
    assert_eq!((status.action, status.is_trading, status.reason), (StatusAction::Pause, Some(false), 10));
    let restricted = one("RegShowRestrictionMessage").status().unwrap();
    assert_eq!(restricted.is_short_sell_restricted, Some(true));
    let session = one("TradingSessionStatusMessage").session();
    assert_eq!(session, Some(Session::StartOfMarketHours));
    let (events, feed) = events_of("memx-memoir-depth/Heartbeat.pcap");
    assert_eq!((events.len(), feed.channels()[0].counters().heartbeats), (0, 1));
    assert_eq!(feed.problems().total, 0);
}

#[test]
fn a_quote_of_utp_is_of_the_participant_and_nothing_of_itch() {
    let (events, feed) = events_of("utp-uqdf/QuoteShortFormMessage.pcap");
    assert_eq!(feed.problems().total, 0);
    assert_eq!(feed.channels()[0].application(), Application::UtpUqdf15);
    let quotes: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Quote).collect();
    let shown = |event: &&Event| (event.publisher, event.side, event.price.unwrap().e9(), event.size);
    let expected = [
        (Publisher::SIP_EDGX, Side::Bid, 51_230_000_000, 100),
        (Publisher::SIP_EDGX, Side::Ask, 51_240_000_000, 100),
    ];
    assert_eq!(quotes.iter().map(shown).collect::<Vec<_>>(), expected);
    assert_eq!(
        (quotes[0].channel_sequence, quotes[0].ts_event),
        (19_819_341, Nanos(1_473_960_417_922_684_000))
    );
    let (events, feed) = events_of("utp-uqdf/LimitUpLimitDownPriceBandMessage.pcap");
    assert_eq!((feed.problems().total, events.len()), (0, 2));
    assert_eq!((events[1].kind, events[1].publisher), (EventKind::PriceBands, Publisher::SIP_UTP));
    let bands = events[1].price_bands().unwrap();
    let shown = [bands.lower, bands.upper].map(|price| price.unwrap().to_string());
    assert_eq!((shown.each_ref().map(String::as_str), bands.indicator), (["8.87", "10.84"], b'C'));
}

#[test]
fn the_bands_of_a_real_message_keep_a_bid_above_and_an_offer_below_them_out_of_the_nbbo() {
    let (mut events, _) = events_of("utp-uqdf/LimitUpLimitDownPriceBandMessage.pcap");
    let instrument = events[1].instrument;
    let quote = |publisher, side, cents: i64| {
        let mut event = Event::new(EventKind::Quote, publisher, instrument);
        (event.side, event.size, event.price) = (side, 300, Price::from_e9(cents * 10_000_000));
        event
    };
    // The bands are 8.87 and 10.84.
    let (iex, nasdaq) = (Publisher::IEXG_TOPS, Publisher::XNAS_ITCH);
    let quotes = [
        (iex, Side::Bid, 1_085),
        (nasdaq, Side::Bid, 1_000),
        (iex, Side::Ask, 886),
        (nasdaq, Side::Ask, 1_100),
    ];
    events.splice(0..0, quotes.map(|(publisher, side, cents)| quote(publisher, side, cents)));
    for (ignores_price_bands, expected) in [(false, [1_000, 1_100]), (true, [1_085, 886])] {
        let rules = NbboRules { ignores_price_bands, ..NbboRules::default() };
        let mut market = Through::new(BookStage::new([]), NbboStage::new(rules, [], 1));
        market.process(&events, &mut |_: NbboUpdate<'_>| {});
        let nbbo = *market.second.nbbo(instrument);
        let cents = [nbbo.bid, nbbo.ask].map(|side| side.price.unwrap().e9() / 10_000_000);
        assert_eq!(cents, expected);
        assert_eq!(market.second.luld(instrument).sip, Publisher::SIP_UTP);
        // The offer of 11.00 is above the upper band: it counts, and is not executable.
        let standing = market.second.standing(instrument);
        assert_eq!(standing.contains(Standing::ASK_ABOVE), !ignores_price_bands);
    }
}

#[test]
fn a_quote_of_cta_has_the_national_best_of_another_participant() {
    let (events, feed) = events_of("cta-cqs/LongQuoteMessage.pcap");
    assert_eq!(feed.problems().total, 0);
    assert_eq!(feed.channels()[0].identity().to_string(), "CTA feed Q port 61009");
    let quotes: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Quote).collect();
    let shown = |event: &&Event| (event.publisher, event.side, event.price.unwrap().e9(), event.size);
    let expected = [
        (Publisher::SIP_EDGX, Side::Bid, 29_450_000_000, 100),
        (Publisher::SIP_EDGX, Side::Ask, 29_470_000_000, 100),
        (Publisher::SIP_CTA, Side::Bid, 29_460_000_000, 300),
        (Publisher::SIP_CTA, Side::Ask, 29_470_000_000, 200),
    ];
    assert_eq!(quotes.iter().map(shown).collect::<Vec<_>>(), expected);
    assert!(quotes[2..].iter().all(|quote| quote.aux == u64::from(Publisher::SIP_BATS.0)));
    assert_eq!(quotes[0].channel_sequence, 19_878_165);
}

/// The payloads of a folder's captures.
fn payloads(folder: &str) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for entry in std::fs::read_dir(capture(folder)).unwrap() {
        let mut reader = CaptureReader::open(&entry.unwrap().path()).unwrap();
        while let Some(packet) = reader.next_packet().unwrap() {
            payloads.push(net::parse(packet.link_type, packet.bytes).unwrap().payload.to_vec());
        }
    }
    payloads
}

/// The folders of captures of UDP, with their protocol.
const FOLDERS: [(&str, Application); 11] = [
    ("nasdaq-itch50", Application::TotalViewItch50),
    ("nasdaq-bx-itch50", Application::TotalViewItch50),
    ("iex-tops15", Application::IexTops16),
    ("iex-tops16", Application::IexTops16),
    ("iex-deep", Application::IexDeep10),
    ("memx-memoir-depth", Application::MemoirDepth13),
    ("utp-uqdf", Application::UtpUqdf15),
    ("cta-cqs", Application::CtaCqs191),
    ("cboe-pitch-futures", Application::CboeFutures11),
    ("cboe-pitch-options", Application::CboePitch241),
    ("nyse-pillar-integrated", Application::NyseIntegrated25),
];

#[test]
fn no_capture_is_certainly_of_another_protocol_in_any_group_at_any_port() {
    let groups = FEEDS.iter().flat_map(|feed| feed.publishers).flat_map(|one| one.groups);
    let groups: Vec<Ipv4Addr> = groups.copied().chain([Ipv4Addr::new(224, 0, 62, 2)]).collect();
    let mut found = 0;
    for (folder, own) in FOLDERS {
        for payload in payloads(folder) {
            for group in &groups {
                for port in [26_477, 30_001, 10_378, 1] {
                    let recognised = recognise::udp_payload(&payload, SocketAddr::from((*group, port)));
                    if let Some(recognised) = recognised.filter(|recognised| recognised.is_certain) {
                        // The markets of Cboe share messages, and the group says whose they are.
                        let is_sibling =
                            own.spec().needs_group && recognised.application.transport() == own.transport();
                        assert!(recognised.application == own || is_sibling, "{folder} in {group}");
                        found += 1;
                    }
                }
            }
        }
    }
    assert!(found > 1_000, "{found}");
}

#[test]
fn a_protocol_is_inferred_where_no_other_fits_what_was_sent() {
    let destination = "224.0.62.2:30501".parse().unwrap();
    // The headers of PITCH and MITCH are alike: an empty packet is of either, and nothing of it is lost.
    let heartbeat = [8, 0, 0, 1, 1, 0, 0, 0];
    for (folder, own) in FOLDERS.into_iter().filter(|(_, own)| own.spec().needs_group) {
        for payload in payloads(folder) {
            let mut feed = Feed::new(FeedOptions::default());
            assert!(send(&mut feed, "224.0.62.2:30501", &heartbeat).is_empty());
            send(&mut feed, "224.0.62.2:30501", &payload);
            let is_heartbeat = payload.len() == 8;
            let inferred: Vec<_> = feed.inferred().collect();
            assert!(inferred.iter().all(|found| *found == (destination, own)), "{folder}: {inferred:?}");
            // Some messages of Cboe's equities and futures are the same.
            let possible = recognise::possible(&payload);
            if inferred.is_empty() && !is_heartbeat {
                assert_eq!(possible, ["pitch", "cfe"], "{folder}: {payload:x?}");
            }
            let expected = if inferred.is_empty() { (0, u64::from(!is_heartbeat)) } else { (1, 0) };
            assert_eq!((feed.messages().min(1), feed.problems().total), expected, "{folder}");
        }
    }
}

#[test]
fn messages_that_two_feeds_share_wait_for_one_that_decides() {
    let (line_a, line_b) = ("224.0.62.2:30501", "224.0.62.3:30501");
    let deletion = [22, 0, 1, 1, 1, 0, 0, 0, 14, 0x29, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    // Equities have another byte there, for flags.
    let change_of_futures =
        [26, 0, 1, 1, 2, 0, 0, 0, 18, 0x28, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 9, 0];
    let mut feed = Feed::new(FeedOptions::default());
    for line in [line_a, line_b] {
        assert!(send(&mut feed, line, &deletion).is_empty());
    }
    assert_eq!((feed.inferred().count(), feed.messages(), feed.counters().unrecognised_packets), (0, 0, 2));
    for line in [line_a, line_b] {
        send(&mut feed, line, &change_of_futures);
    }
    let inferred: Vec<_> = feed.inferred().map(|(_, application)| application).collect();
    assert_eq!(inferred, [Application::CboeFutures11; 2]);
    let channels: Vec<_> = feed.channels().iter().map(|channel| channel.application()).collect();
    assert_eq!((channels, feed.messages()), (vec![Application::CboeFutures11], 1));
}

#[test]
fn a_destination_that_sent_what_no_feed_has_is_not_inferred_from_a_later_packet() {
    let pitch = payloads("cboe-pitch-options").into_iter().find(|payload| payload.len() > 8).unwrap();
    let mut feed = Feed::new(FeedOptions::default());
    for payload in [&b"GET / HTTP/1.1"[..], &pitch, &pitch] {
        assert!(send(&mut feed, "224.0.62.2:30501", payload).is_empty());
    }
    assert_eq!((feed.inferred().count(), feed.counters().unrecognised_packets), (0, 3));
}

#[test]
fn a_value_that_no_enumeration_lists_is_no_evidence() {
    // A time, and an addition whose side is neither B nor S.
    let mut pitch = payloads("cboe-pitch-options").into_iter().find(|payload| payload.len() == 48).unwrap();
    assert_eq!(pitch[28], b'B');
    pitch[28] = b'r';
    let mut feed = Feed::new(FeedOptions::default());
    assert!(send(&mut feed, "224.0.62.2:30501", &pitch).is_empty());
    assert_eq!((feed.inferred().count(), feed.problems().total), (0, 1));
}

#[test]
fn an_imbalance_without_the_newer_fields_says_the_same() {
    let arca = FeedOptions {
        application: Some(Application::NyseIntegrated25),
        publisher: Some(Publisher::ARCX_PILLAR),
        ..FeedOptions::default()
    };
    let mut reader = CaptureReader::open(&capture("nyse-pillar-integrated/ImbalanceMessage.pcap")).unwrap();
    let packet = reader.next_packet().unwrap().unwrap();
    let payload = net::parse(packet.link_type, packet.bytes).unwrap().payload.to_vec();
    // One message of 73 bytes behind the header.
    assert_eq!((payload[16], payload[3]), (73, 1));
    let mut older = payload[..16 + 67].to_vec();
    (older[0], older[16]) = (payload[0] - 6, 67);
    let [newer, older] = [&payload, &older].map(|payload| {
        let mut feed = Feed::new(arca.clone());
        let events = send(&mut feed, "224.0.62.2:30501", payload);
        assert_eq!((feed.problems().total, feed.messages()), (0, 1), "{:?}", feed.problems().kept());
        events
    });
    assert!(!newer.is_empty() && newer == older, "{newer:?} {older:?}");
}

/// The headers of PITCH and MITCH are alike: an empty packet is of either.
#[test]
fn a_heartbeat_in_a_group_makes_no_messages_of_another_protocol_those_of_the_group() {
    let group = "239.192.130.1:30101";
    let heartbeat = [8, 0, 0, 1, 1, 0, 0, 0];
    // A deletion of MITCH: length, D, nanoseconds, order, and the rest.
    let mut mitch = vec![27, 0, 1, 1, 1, 0, 0, 0, 19, b'D'];
    mitch.resize(27, 0);
    let mut pitch = vec![22, 0, 1, 1, 1, 0, 0, 0, 14, 0x29];
    pitch.resize(22, 0);
    let mut feed = Feed::new(FeedOptions::default());
    assert!(send(&mut feed, group, &heartbeat).is_empty() && send(&mut feed, group, &mitch).is_empty());
    assert_eq!(feed.counters().unrecognised_packets, 1);
    let problem = feed.problems().kept()[0].kind.to_string();
    assert_eq!(problem, "what is sent to 239.192.130.1:30101 may be mitch: name the protocol");
    // A message that no feed has is one of the group's that is not known, and not missing.
    let mut unknown = pitch.clone();
    (unknown[9], unknown[4]) = (0xBB, 1);
    assert!(send(&mut feed, group, &unknown).is_empty());
    assert_eq!((feed.counters().unrecognised_packets, feed.problems().unknown_messages), (1, 1));
    pitch[4] = 2;
    // A message says it.
    let events = send(&mut feed, group, &pitch);
    assert!(events.iter().any(|event| event.kind == EventKind::Delete), "{events:?}");
    assert_eq!((feed.channels().len(), feed.channels()[0].publisher()), (1, Publisher::BATS_PITCH));
}

#[test]
fn the_times_of_cboes_options_and_futures_count_in_chicago() {
    for (folder, application, publisher) in [
        ("cboe-pitch-options", Application::CboePitch241, Publisher::XCBO_PITCH),
        ("cboe-pitch-futures", Application::CboeFutures11, Publisher::XCBF_PITCH),
    ] {
        for entry in std::fs::read_dir(capture(folder)).unwrap() {
            let path = entry.unwrap().path();
            let options = FeedOptions {
                application: Some(application),
                publisher: Some(publisher),
                ..FeedOptions::default()
            };
            let (events, _) = events_with(options, path.to_str().unwrap());
            for event in events.iter().filter(|event| event.kind != EventKind::SymbolMapping) {
                let after = event.ts_recv.0.abs_diff(event.ts_event.0);
                assert!(after < Nanos::SECOND, "{path:?}: {event:?}");
            }
        }
    }
}

/// A packet of MoldUDP64 with one UTP quote.
fn utp_quote() -> Vec<u8> {
    let mut reader = CaptureReader::open(&capture("utp-uqdf/QuoteShortFormMessage.pcap")).unwrap();
    let packet = reader.next_packet().unwrap().unwrap();
    net::parse(packet.link_type, packet.bytes).unwrap().payload.to_vec()
}

/// The heartbeat of MoldUDP64 with the session and number of `packet`.
fn mold_heartbeat(packet: &[u8]) -> Vec<u8> {
    [&packet[..18], &[0, 0]].concat()
}

/// MoldUDP64 carries two feeds, and a heartbeat does not identify which.
#[test]
fn a_heartbeat_of_utp_before_its_first_message_is_of_its_channel() {
    let payload = utp_quote();
    let heartbeat = mold_heartbeat(&payload);
    let (a, b) = ("233.46.176.16:55630", "233.46.177.16:55630");
    let mut feed = Feed::new(FeedOptions::default());
    assert!(send(&mut feed, a, &heartbeat).is_empty() && send(&mut feed, b, &heartbeat).is_empty());
    assert_eq!(send(&mut feed, a, &payload).len(), 3);
    assert_eq!(feed.channels().len(), 1);
    let channel = &feed.channels()[0];
    assert_eq!((channel.application(), channel.publisher()), (Application::UtpUqdf15, Publisher::SIP_UTP));
    assert_eq!((channel.counters().heartbeats, channel.counters().messages), (2, 1));
    // Its repetition on line B, behind a heartbeat there.
    assert!(send(&mut feed, b, &heartbeat).is_empty() && send(&mut feed, b, &payload).is_empty());
    assert_eq!(feed.channels()[0].lines().len(), 2);
    // The missing message before the one that follows is one of every publisher.
    let mut later = payload.clone();
    later[17] = later[17].wrapping_add(2);
    let events = send(&mut feed, a, &later);
    let gaps = events.iter().filter(|event| event.kind == EventKind::Gap).count();
    assert_eq!((gaps, feed.problems().total), (22, 1));
}

#[test]
fn the_first_message_of_line_b_names_the_feed_of_heartbeats_on_line_a() {
    let payload = utp_quote();
    let heartbeat = mold_heartbeat(&payload);
    let (a, b) = ("233.46.176.16:55630", "233.46.177.16:55630");
    let mut feed = Feed::new(FeedOptions::default());
    assert!(send(&mut feed, a, &heartbeat).is_empty());
    assert_eq!(send(&mut feed, b, &payload).len(), 3);
    let [channel] = feed.channels() else { panic!("{:?}", feed.channels()) };
    assert_eq!((channel.application(), channel.publisher()), (Application::UtpUqdf15, Publisher::SIP_UTP));
    assert_eq!((channel.counters().messages, channel.lines().len()), (1, 2));
}

/// Line A is certain to be UTP by messages of an earlier session.
#[test]
fn a_heartbeat_on_line_b_does_not_change_the_feed_of_a_new_session() {
    let payload = utp_quote();
    let (a, b) = ("239.1.1.1:30001", "239.1.1.2:30001");
    for lines in [[a, b, b], [b, a, b], [b, b, a]] {
        let mut feed = Feed::new(FeedOptions::default());
        assert_eq!(send(&mut feed, a, &payload).len(), 3);
        let mut next_session = payload.clone();
        next_session[9] = next_session[9].wrapping_add(1);
        next_session[10..18].copy_from_slice(&1_u64.to_be_bytes());
        let heartbeat = mold_heartbeat(&next_session);
        for line in lines {
            send(&mut feed, line, &heartbeat);
        }
        for number in 1_u64..=4 {
            next_session[10..18].copy_from_slice(&number.to_be_bytes());
            send(&mut feed, a, &next_session);
        }
        let channel = feed.channels().last().unwrap();
        assert_eq!(channel.application(), Application::UtpUqdf15, "{lines:?}");
        assert_eq!((feed.messages(), feed.problems().total), (5, 0), "{lines:?}");
    }
}

#[test]
fn every_capture_goes_through_and_counts_its_messages() {
    for folder in [
        "nasdaq-itch50",
        "nasdaq-bx-itch50",
        "iex-tops15",
        "iex-tops16",
        "iex-deep",
        "memx-memoir-depth",
        "utp-uqdf",
        "cta-cqs",
    ] {
        for entry in std::fs::read_dir(capture(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "pcap") {
                continue;
            }
            let (events, feed) = events_of(path.to_str().unwrap());
            let problems = feed.problems();
            assert_eq!(
                problems.unknown_messages + problems.bad_messages + problems.bad_framing,
                0,
                "{path:?}"
            );
            let channel = &feed.channels()[0].counters();
            assert!(channel.messages > 0 || channel.heartbeats > 0, "{path:?}");
            assert!(events.len() as u64 >= channel.messages);
        }
    }
}

/// A MoldUDP64 packet of deletions, numbered from `first`.
fn mold(session: &[u8; 10], first: u64, count: u64) -> Vec<u8> {
    let mut messages = Vec::new();
    for number in first..first + count {
        let delete = itch50::OrderDeleteFields {
            stock_locate: 1,
            tracking_number: 0,
            timestamp: NanosecondsSinceMidnight(number),
            order_reference_number: number,
        };
        messages.extend_from_slice(&19u16.to_be_bytes());
        messages.extend_from_slice(&delete.encode());
    }
    let fields = moldudp64::DownstreamPacketFields {
        session: Ascii(*session),
        sequence_number: first,
        message_count: count as u16,
        messages: &messages,
    };
    let mut bytes = vec![0; 20 + messages.len()];
    fields.encode_into(&mut bytes).unwrap();
    bytes
}

fn datagram<'a>(destination: &str, payload: &'a [u8]) -> Datagram<'a> {
    let address: SocketAddr = destination.parse().unwrap();
    Datagram {
        source: address,
        destination: address,
        vlan: None,
        transport: Transport::Udp,
        payload,
        payload_offset: 42,
        truncated: false,
    }
}

fn send(feed: &mut Feed, destination: &str, payload: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let packet = Packet {
        file: 0,
        number: 1,
        offset: 100,
        received: Nanos(1_763_130_600_000_000_000),
        datagram: datagram(destination, payload),
    };
    feed.process(&[packet], &mut |event| events.push(event));
    events
}

const LINE_A: &str = "233.54.12.111:26477";
const LINE_B: &str = "233.49.196.111:26477";
const SESSION: &[u8; 10] = b"000000001A";

#[test]
fn messages_on_both_lines_are_taken_once() {
    let mut feed = Feed::new(FeedOptions::default());
    assert_eq!(send(&mut feed, LINE_A, &mold(SESSION, 1, 3)).len(), 3);
    assert_eq!(send(&mut feed, LINE_B, &mold(SESSION, 1, 3)).len(), 0);
    let from_b = send(&mut feed, LINE_B, &mold(SESSION, 4, 1));
    assert_eq!(from_b[0].line(), Line::B);
    assert_eq!(send(&mut feed, LINE_A, &mold(SESSION, 3, 3)).len(), 1, "the first two came before");
    let channel = &feed.channels()[0];
    assert_eq!(feed.channels().len(), 1);
    assert_eq!(channel.counters().duplicate_packets, [0, 1]);
    assert_eq!(channel.sequence().duplicate_messages, 3 + 2);
}

#[test]
fn a_gap_comes_before_the_messages_behind_it() {
    let mut feed = Feed::new(FeedOptions::default());
    send(&mut feed, LINE_A, &mold(SESSION, 1, 3));
    let events = send(&mut feed, LINE_A, &mold(SESSION, 7, 1));
    assert_eq!(events[0].gap(), Some(Gap { first: 4, count: 3 }));
    assert_eq!(events[1].channel_sequence, 7);
    assert_eq!(feed.problems().kept()[0].kind.to_string(), "messages 4 to 6 of the channel are missing");
}

#[test]
fn a_damaged_number_far_ahead_does_not_make_late_what_follows() {
    let mut feed = Feed::new(FeedOptions::default());
    send(&mut feed, LINE_A, &mold(SESSION, 1, 3));
    // One bit is flipped.
    let flipped = 4 | 1 << 40;
    assert!(send(&mut feed, LINE_A, &mold(SESSION, flipped, 2)).is_empty());
    let events = send(&mut feed, LINE_A, &mold(SESSION, 6, 1));
    assert_eq!(kinds(&events), [EventKind::Gap, EventKind::Delete]);
    assert_eq!(events[0].gap(), Some(Gap { first: 4, count: 2 }));
    assert_eq!(kinds(&send(&mut feed, LINE_A, &mold(SESSION, 7, 1))), [EventKind::Delete]);
    let sequence = *feed.channels()[0].sequence();
    assert_eq!((sequence.implausible_packets, sequence.gaps), (1, 1));
    assert_eq!((sequence.missing_messages, sequence.late_messages), (2, 0));
    let problem = feed.problems().kept()[0].kind.to_string();
    assert_eq!(
        problem,
        "message 1099511627780 is implausibly far from 4, the next of the channel: the packet is skipped"
    );
    // One whose count is damaged too is confirmed as any other.
    let mut far = mold(SESSION, 8 | 1 << 45, 2);
    far[18] = 0x40;
    assert!(send(&mut feed, LINE_A, &far).is_empty());
    let events = send(&mut feed, LINE_A, &mold(SESSION, 10 | 1 << 45, 1));
    assert_eq!(kinds(&events), [EventKind::Gap, EventKind::Delete]);
    let next = 11 | 1 << 45;
    assert!(send(&mut feed, LINE_A, &mold(SESSION, next | 1 << 50, 2)).is_empty());
    assert_eq!(kinds(&send(&mut feed, LINE_B, &mold(SESSION, next, 2))), [EventKind::Delete; 2]);
}

#[test]
fn a_damaged_count_does_not_make_late_what_follows() {
    let mut feed = Feed::new(FeedOptions::default());
    let mut bytes = mold(SESSION, 1, 3);
    bytes[18..20].copy_from_slice(&40_000u16.to_be_bytes());
    assert_eq!(kinds(&send(&mut feed, LINE_A, &bytes)), [EventKind::Delete; 3]);
    assert_eq!((feed.problems().bad_framing, feed.problems().total), (1, 1));
    assert_eq!(kinds(&send(&mut feed, LINE_A, &mold(SESSION, 4, 2))), [EventKind::Delete; 2]);
    // A copy with such a count brings nothing, and leaves the sequence where it is.
    assert!(send(&mut feed, LINE_B, &bytes).is_empty());
    let sequence = *feed.channels()[0].sequence();
    assert_eq!((sequence.duplicate_messages, sequence.missing_messages), (3, 0));
    assert_eq!((feed.problems().bad_framing, feed.problems().total), (2, 2));
    bytes[18..20].copy_from_slice(&6u16.to_be_bytes());
    // The count was right, and the venue has sent the rest elsewhere.
    bytes[10..18].copy_from_slice(&6u64.to_be_bytes());
    assert_eq!(kinds(&send(&mut feed, LINE_A, &bytes)), [EventKind::Delete; 3]);
    let events = send(&mut feed, LINE_A, &mold(SESSION, 12, 1));
    assert_eq!(kinds(&events), [EventKind::Gap, EventKind::Delete]);
    assert_eq!(events[0].gap(), Some(Gap { first: 9, count: 3 }));
    assert_eq!(feed.channels()[0].sequence().missing_messages, 3);
}

/// A packet of a session, received at a time in seconds.
fn send_at(feed: &mut Feed, line: &str, bytes: &[u8], seconds: u64) -> Vec<EventKind> {
    let mut events = Vec::new();
    let received = Nanos(seconds * Nanos::SECOND);
    let packet = Packet { file: 0, number: 1, offset: 100, received, datagram: datagram(line, bytes) };
    feed.process(&[packet], &mut |event| events.push(event));
    kinds(&events)
}

#[test]
fn another_session_takes_the_place_of_one_that_is_silent() {
    let mut feed = Feed::new(FeedOptions::default());
    send_at(&mut feed, LINE_A, &mold(SESSION, 900, 1), 100);
    let other = b"000000002A";
    assert_eq!(send_at(&mut feed, LINE_A, &mold(other, 1, 1), 103), [EventKind::Clear, EventKind::Delete]);
    assert_eq!(feed.channels().len(), 2);
    // A late copy of the old session is a repeat. What it had not sent yet is read no more, and is reported.
    assert_eq!(send_at(&mut feed, LINE_B, &mold(SESSION, 900, 1), 103), []);
    assert_eq!(feed.problems().total, 0);
    assert_eq!(send_at(&mut feed, LINE_B, &mold(SESSION, 901, 3), 103), []);
    assert_eq!(send_at(&mut feed, LINE_B, &mold(other, 1, 2), 103), [EventKind::Delete]);
    assert_eq!((feed.channels().len(), feed.problems().total), (2, 1));
    let ProblemKind::Refused { first: 901, refusal: Refusal::OtherSession } = feed.problems().kept()[0].kind
    else {
        panic!("{:?}", feed.problems().kept());
    };
}

#[test]
fn heartbeats_of_another_session_take_no_channel_over() {
    let mut feed = Feed::new(FeedOptions::default());
    let other = b"TEST000000";
    send_at(&mut feed, LINE_A, &mold(SESSION, 900, 1), 100);
    for seconds in 110..120 {
        assert_eq!(send_at(&mut feed, LINE_A, &mold(other, 1, 0), seconds), []);
    }
    assert_eq!(send_at(&mut feed, LINE_A, &mold(SESSION, 901, 1), 120), [EventKind::Delete]);
    assert_eq!((feed.channels().len(), feed.problems().total), (1, 0));
}

#[test]
fn another_session_takes_over_with_its_third_packet_in_a_row_and_a_single_packet_of_one_is_reported() {
    let mut feed = Feed::new(FeedOptions::default());
    let other = b"000000002A";
    send_at(&mut feed, LINE_A, &mold(SESSION, 900, 1), 100);
    assert_eq!(send_at(&mut feed, LINE_A, &mold(other, 1, 1), 100), []);
    assert_eq!(send_at(&mut feed, LINE_A, &mold(SESSION, 901, 1), 100), [EventKind::Delete]);
    assert_eq!((feed.channels().len(), feed.problems().total), (1, 1), "the venue's session goes on");
    for first in [1, 2] {
        assert_eq!(send_at(&mut feed, LINE_B, &mold(other, first, 1), 100), []);
    }
    let events = send_at(&mut feed, LINE_B, &mold(other, 3, 1), 100);
    assert_eq!(events, [EventKind::Clear, EventKind::Delete, EventKind::Delete, EventKind::Delete]);
    assert_eq!((feed.channels().len(), feed.problems().total), (2, 1));
}

#[test]
fn two_sessions_of_one_venue_do_not_share_its_books() {
    let mut feed = Feed::new(FeedOptions::default());
    let (other, elsewhere) = (b"000000002A", "233.54.12.112:26478");
    for first in 1..50 {
        assert_eq!(send_at(&mut feed, LINE_A, &mold(SESSION, first, 1), 100), [EventKind::Delete]);
        assert_eq!(send_at(&mut feed, elsewhere, &mold(other, first, 1), 100), []);
    }
    assert_eq!(feed.channels().len(), 1);
    assert_eq!(feed.problems().total, 48, "the last one still waits");
}

#[test]
fn the_last_packets_of_a_capture_may_begin_a_session() {
    let mut feed = Feed::new(FeedOptions::default());
    send_at(&mut feed, LINE_A, &mold(SESSION, 900, 1), 100);
    send_at(&mut feed, LINE_A, &mold(b"000000002A", 1, 1), 100);
    let mut events = Vec::new();
    feed.finish(&mut |event: Event| events.push(event.kind));
    assert_eq!((events, feed.problems().total), (vec![EventKind::Clear, EventKind::Delete], 0));
}

#[test]
fn a_cut_packet_gives_its_whole_messages_and_a_gap_for_the_rest() {
    let mut feed = Feed::new(FeedOptions::default());
    let bytes = mold(SESSION, 1, 4);
    let mut packet = datagram(LINE_A, &bytes[..20 + 21 + 21 + 5]);
    packet.truncated = true;
    let mut events = Vec::new();
    let packet = Packet { file: 3, number: 9, offset: 500, received: Nanos(0), datagram: packet };
    feed.process(&[packet], &mut |event| events.push(event));
    assert_eq!(kinds(&events), [EventKind::Delete, EventKind::Delete, EventKind::Gap]);
    assert_eq!(events[2].gap(), Some(Gap { first: 3, count: 2 }));
    assert_eq!(feed.problems().cut_packets, 1);
    assert_eq!((feed.problems().kept()[0].file, feed.problems().kept()[0].packet), (3, 9));
}

#[test]
fn an_unknown_message_is_passed_over_and_a_bad_one_makes_a_gap() {
    let mut feed = Feed::new(FeedOptions::default());
    let mut bytes = mold(SESSION, 1, 3);
    bytes[20 + 21 + 2] = b'z';
    let events = send(&mut feed, LINE_A, &bytes);
    assert_eq!(kinds(&events), [EventKind::Delete, EventKind::Delete]);
    let problem = &feed.problems().kept()[0];
    assert_eq!(problem.offset, 100 + 20 + 21 + 2);
    assert_eq!(problem.kind.to_string(), "unknown message type 'z' (0x7a)");
    let mut bytes = mold(SESSION, 4, 3);
    bytes[20 + 21 + 2] = b'A';
    let events = send(&mut feed, LINE_A, &bytes);
    assert_eq!(kinds(&events), [EventKind::Delete, EventKind::Gap, EventKind::Delete]);
    assert_eq!(feed.problems().kept()[1].kind.to_string(), "AddOrder needs 36 bytes, 19 left");
}

#[test]
fn an_unknown_protocol_is_reported_once_and_counted_each_time() {
    let mut feed = Feed::new(FeedOptions::default());
    for _ in 0..3 {
        assert!(send(&mut feed, "239.1.1.1:5000", b"GET / HTTP/1.1").is_empty());
    }
    assert_eq!(feed.counters().unrecognised_packets, 3);
    assert_eq!(feed.problems().kept().len(), 1);
    let destination = "239.1.1.1:5000".parse().unwrap();
    let expected = ProblemKind::UnknownProtocol { destination, possible: Vec::new() };
    assert_eq!(feed.problems().kept()[0].kind, expected);
}

fn add(locate: u16, stock: &[u8; 8], reference: u64) -> [u8; 36] {
    itch50::AddOrderFields {
        stock_locate: locate,
        tracking_number: 0,
        timestamp: NanosecondsSinceMidnight(34_200_000_000_000),
        order_reference_number: reference,
        buy_sell_indicator: itch50::BuySellIndicator::Buy,
        shares: 100,
        stock: Ascii(*stock),
        price: Decimal(100_000),
    }
    .encode()
}

/// The times of orders that were added and deleted at this time of day and receive time.
fn times_of(feed: &mut Feed, number: u64, since_midnight: u64, received: u64) -> Vec<u64> {
    let mut added = add(7, b"AAPL    ", number);
    added[5..11].copy_from_slice(&since_midnight.to_be_bytes()[2..]);
    let mut deleted = added[..19].to_vec();
    deleted[0] = b'D';
    let mut payload = [&SESSION[..], &number.to_be_bytes(), &[0, 2]].concat();
    for message in [&added[..], &deleted] {
        payload.extend((message.len() as u16).to_be_bytes());
        payload.extend(message);
    }
    let packet = Packet {
        file: 0,
        number: 1,
        offset: 0,
        received: Nanos(received),
        datagram: datagram(LINE_A, &payload),
    };
    let mut events = Vec::new();
    feed.process(&[packet], &mut |event| events.push(event));
    let orders = events.iter().filter(|event| event.order_id == number);
    orders.map(|event| event.ts_event.0).collect()
}

#[test]
fn a_session_of_itch_that_crosses_midnight_has_the_day_nearest_to_each_receive_time() {
    const SECOND: u64 = 1_000_000_000;
    let evening = 86_390 * SECOND;
    // Midnight in New York, in winter, and on the days of 23 and 25 hours.
    for midnight in [1_763_096_400, 1_741_496_400 + 23 * 3_600, 1_762_056_000 + 25 * 3_600] {
        let midnight = midnight * SECOND;
        let mut feed = Feed::new(FeedOptions::default());
        let shown = [
            // Ten seconds before midnight; at midnight; after it; late, of the day before; and of the new day again.
            (evening, midnight - 10 * SECOND, midnight - 10 * SECOND),
            (0, midnight + 5_000, midnight),
            (SECOND, midnight + SECOND - 1, midnight + SECOND),
            (evening, midnight + SECOND, midnight - 10 * SECOND),
            (2 * SECOND, midnight + 2 * SECOND, midnight + 2 * SECOND),
        ];
        for (number, (since_midnight, received, expected)) in (1..).step_by(2).zip(shown) {
            let times = times_of(&mut feed, number, since_midnight, received);
            // The day of 23 or 25 hours ends with another time of day.
            if since_midnight < evening || midnight == 1_763_096_400 * SECOND {
                assert_eq!(times, [expected; 2], "{number}");
            }
        }
    }
}

fn frames(feed: &mut Feed, format: FileFormat, messages: &[&[u8]]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut stage = feed.file(0, format, None);
    for bytes in messages {
        stage.process(&[Frame { file: 0, offset: 0, bytes }], &mut |event| events.push(event));
    }
    events
}

#[test]
fn a_file_numbers_its_messages_and_takes_its_day_from_the_options() {
    let midnight = tapeworks_time::clock::midnight_before(Nanos(1_763_130_600_000_000_000));
    let mut feed = Feed::new(FeedOptions { midnight, ..FeedOptions::default() });
    let events =
        frames(&mut feed, FileFormat::LengthPrefixed, &[&add(7, b"AAPL    ", 1), &add(8, b"MSFT    ", 2)]);
    let adds: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Add).collect();
    // 9:30 in New York is 14:30 UTC in November.
    assert_eq!(adds[0].ts_event, Nanos(1_763_130_600_000_000_000));
    assert_eq!((adds[0].ts_recv, adds[1].channel_sequence), (adds[0].ts_event, 2));
}

#[test]
fn an_instrument_that_is_named_after_messages_about_its_orders_is_stale() {
    let mut deletion = [0; 19];
    (deletion[0], deletion[2]) = (b'D', 7);
    let mut feed = Feed::new(FeedOptions::default());
    let format = FileFormat::LengthPrefixed;
    let messages: [&[u8]; 4] =
        [&deletion, &add(8, b"ONE     ", 1), &add(7, b"TWO     ", 2), &add(7, b"TWO     ", 3)];
    let events = frames(&mut feed, format, &messages);
    let doubts: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Gap).collect();
    assert_eq!(doubts.len(), 1, "{events:?}");
    assert!(doubts[0].is_contradiction());
    let two = events.iter().find(|event| event.order_id == 2 && event.kind == EventKind::Add).unwrap();
    assert_eq!(doubts[0].instrument, two.instrument);
}

#[test]
fn a_halted_quote_of_an_unreadable_symbol_has_no_place_in_a_table() {
    let mut reader = CaptureReader::open(&capture("iex-tops16/QuoteUpdateMessage.pcap")).unwrap();
    let packet = reader.next_packet().unwrap().unwrap();
    let mut bytes = packet.bytes.to_vec();
    let symbol = bytes.windows(8).position(|bytes| bytes == b"ATSG    ").unwrap();
    bytes[symbol..symbol + 8].fill(b' ');
    // Before the symbol stand the time and, before that, the flags.
    bytes[symbol - 9] |= 0x80;
    let datagram = net::parse(packet.link_type, &bytes).unwrap();
    let packet = Packet { file: 0, number: 1, offset: 0, received: Nanos(packet.timestamp_ns), datagram };
    let (mut feed, mut events) = (Feed::new(FeedOptions::default()), Vec::new());
    feed.process(&[packet], &mut |event| events.push(event));
    assert_eq!(feed.unreadable_symbols(), 1);
    let quotes: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Quote).collect();
    assert!(
        quotes.len() == 2 && quotes[0].instrument == tapeworks_market::InstrumentId::UNKNOWN,
        "{events:?}"
    );
    assert!(events.iter().all(|event| event.kind != EventKind::Status), "{events:?}");
}

#[test]
fn symbols_that_are_not_ascii_are_of_no_instrument_and_not_of_each_others() {
    let mut feed = Feed::new(FeedOptions::default());
    let messages: [&[u8]; 4] = [
        &add(1, b"A\xC4B     ", 1),
        &add(2, b"A\xD6B     ", 2),
        &add(3, b"A B     ", 3),
        &add(2, b"A\xD6B     ", 4),
    ];
    let events = frames(&mut feed, FileFormat::LengthPrefixed, &messages);
    let adds: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Add).collect();
    let of: Vec<_> = adds.iter().map(|event| event.instrument).collect();
    let unknown = tapeworks_market::InstrumentId::UNKNOWN;
    assert_eq!(of, [unknown, unknown, tapeworks_market::InstrumentId(0), unknown]);
    assert_eq!(feed.unreadable_symbols(), 2);
    assert_eq!(feed.instruments().len(), 1);
}

#[test]
fn soup_packets_of_a_file_carry_messages_numbered_from_the_login() {
    let mut feed = Feed::new(FeedOptions::default());
    let mut data = vec![b'S'];
    data.extend_from_slice(&add(7, b"AAPL    ", 1));
    let events =
        frames(&mut feed, FileFormat::SoupBinTcp, &[b"ASESSION1                  1234", b"H", &data, b"Z"]);
    let event = events.iter().find(|event| event.kind == EventKind::Add).unwrap();
    assert_eq!(event.channel_sequence, 1234);
    let counters = feed.channels()[0].counters();
    assert_eq!((counters.heartbeats, counters.ends_of_session), (1, 1));
}

#[test]
fn only_wanted_symbols_come_out_and_the_rest_is_not_even_an_unknown_order() {
    let symbols = [tapeworks_market::Symbol::from_bytes(b"MSFT").unwrap()].into_iter().collect();
    let mut feed = Feed::new(FeedOptions { symbols: Some(symbols), ..FeedOptions::default() });
    let delete = itch50::OrderDeleteFields {
        stock_locate: 7,
        tracking_number: 0,
        timestamp: NanosecondsSinceMidnight(1),
        order_reference_number: 1,
    };
    let messages: [&[u8]; 3] = [&add(7, b"AAPL    ", 1), &add(8, b"MSFT    ", 2), &delete.encode()];
    let events = frames(&mut feed, FileFormat::LengthPrefixed, &messages);
    assert_eq!(kinds(&events), [EventKind::SymbolMapping, EventKind::Add]);
    assert_eq!(feed.instruments().len(), 1);
}

#[test]
fn a_stream_of_segments_is_put_together() {
    let mut stream = Vec::new();
    for reference in 1..=3 {
        stream.extend_from_slice(&37u16.to_be_bytes());
        stream.push(b'S');
        stream.extend_from_slice(&add(7, b"AAPL    ", reference));
    }
    let mut feed = Feed::new(FeedOptions::default());
    let mut events = Vec::new();
    let mut sequence = 1000u32;
    for piece in [&stream[..50], &stream[50..60], &stream[60..]] {
        let mut datagram = datagram("10.0.0.1:9000", piece);
        datagram.transport =
            Transport::Tcp(net::TcpHeader { sequence, acknowledgment: 0, flags: net::TcpFlags::default() });
        sequence += piece.len() as u32;
        let packet =
            Packet { file: 0, number: 1, offset: 0, received: Nanos(1_763_130_600_000_000_000), datagram };
        feed.process(&[packet], &mut |event| events.push(event));
    }
    let orders: Vec<_> =
        events.iter().filter(|event| event.kind == EventKind::Add).map(|event| event.order_id).collect();
    assert_eq!(orders, [1, 2, 3]);
}

#[test]
fn applications_can_be_set_instead_of_recognised() {
    let options = FeedOptions { application: Some(Application::TotalViewItch50), ..FeedOptions::default() };
    let mut feed = Feed::new(options);
    // A packet whose first message is of an unknown type would not be recognised.
    let mut bytes = mold(SESSION, 1, 2);
    bytes[22] = b'z';
    assert_eq!(kinds(&send(&mut feed, LINE_A, &bytes)), [EventKind::Delete]);
}

proptest! {
    #[test]
    fn no_bytes_do_harm(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20), choice in 0usize..4) {
        let application = [None, Some(Application::TotalViewItch50), Some(Application::IexTops16), Some(Application::IexDeep10)][choice];
        let mut feed = Feed::new(FeedOptions { application, ..FeedOptions::default() });
        for payload in &payloads {
            send(&mut feed, LINE_A, payload);
        }
        prop_assert_eq!(feed.counters().packets, payloads.len() as u64);
    }

    #[test]
    fn a_damaged_packet_loses_no_message_uncounted(at in 0usize..150, value in any::<u8>()) {
        let mut feed = Feed::new(FeedOptions { application: Some(Application::TotalViewItch50), ..FeedOptions::default() });
        let mut bytes = mold(SESSION, 1, 5);
        let at = at % bytes.len();
        bytes[at] = value;
        let events = send(&mut feed, LINE_A, &bytes);
        let channel = &feed.channels()[0];
        let delivered = events.iter().filter(|event| event.kind == EventKind::Delete).count() as u64;
        // Whatever the count says: each message came out, was reported missing, or was of an unknown type.
        let gaps: u64 = events.iter().filter_map(Event::gap).map(|gap| gap.count).sum();
        prop_assert_eq!(gaps, channel.sequence().missing_messages);
        prop_assert!(delivered <= 5);
    }
}

fn soup(message: &[u8]) -> Vec<u8> {
    let mut packet = (message.len() as u16 + 1).to_be_bytes().to_vec();
    packet.push(b'S');
    packet.extend_from_slice(message);
    packet
}

/// Sends pieces of one TCP stream, each at its place, and ends the input.
fn stream(feed: &mut Feed, pieces: &[(u32, &[u8])]) -> Vec<Event> {
    let mut events = Vec::new();
    for (at, piece) in pieces {
        let mut datagram = datagram("10.0.0.1:9000", piece);
        let (sequence, acknowledgment) = (1000 + at, 0);
        datagram.transport =
            Transport::Tcp(net::TcpHeader { sequence, acknowledgment, flags: Default::default() });
        let packet =
            Packet { file: 0, number: 1, offset: 0, received: Nanos(1_763_130_600_000_000_000), datagram };
        feed.process(&[packet], &mut |event| events.push(event));
    }
    feed.finish(&mut |event| events.push(event));
    events
}

/// The numbers of a stream go on from its login. Orders in the stream take numbers too. The login's may be damaged.
#[test]
fn a_stream_whose_login_has_the_last_number_is_read_to_its_end() {
    let login = [&[0, 31, b'A'][..], format!("SESSION1  {:>20}", u64::MAX).as_bytes()].concat();
    let mut order_deleted = vec![0, 19, b'S', b'C'];
    order_deleted.resize(21, 0);
    let first = [login, soup(&add(7, b"AAPL    ", 1))].concat();
    let rest = [order_deleted, soup(&add(7, b"AAPL    ", 2))].concat();
    let mut feed = Feed::new(FeedOptions::default());
    let events = stream(&mut feed, &[(0, &first), (first.len() as u32, &rest)]);
    assert_eq!((added(&events), feed.counters().session_bytes), (vec![1, 2], 21));
}

fn added(events: &[Event]) -> Vec<u64> {
    events.iter().filter(|event| event.kind == EventKind::Add).map(|event| event.order_id).collect()
}

#[test]
fn a_first_packet_in_two_segments_is_waited_for() {
    let bytes = soup(&add(7, b"AAPL    ", 1));
    let mut feed = Feed::new(FeedOptions::default());
    assert_eq!(added(&stream(&mut feed, &[(0, &bytes[..10]), (10, &bytes[10..])])), [1]);
    assert_eq!(feed.problems().total, 0);
}

#[test]
fn messages_behind_a_gap_at_the_end_and_a_cut_last_packet_are_reported() {
    let bytes: Vec<u8> = (1..=4).flat_map(|reference| soup(&add(7, b"AAPL    ", reference))).collect();
    let length = bytes.len() / 4;
    let mut feed = Feed::new(FeedOptions::default());
    let events = stream(&mut feed, &[(0, &bytes[..length]), (2 * length as u32, &bytes[2 * length..])]);
    assert_eq!(added(&events), [1]);
    assert_eq!(events.iter().filter_map(Event::gap).count(), 1);
    assert_eq!(feed.problems().stream_holes, 1);
    let mut feed = Feed::new(FeedOptions::default());
    let events = stream(&mut feed, &[(0, &bytes[..length + 5])]);
    assert_eq!((added(&events), events.iter().filter_map(Event::gap).count()), (vec![1], 1));
    assert_eq!(feed.problems().bad_framing, 1);
}

#[test]
fn a_second_login_reports_skipped_messages_and_takes_none_twice() {
    let data = |reference| [b"S".as_slice(), &add(7, b"AAPL    ", reference)].concat();
    let login = |number: u64| format!("ASESSION1  {number:>20}").into_bytes();
    let mut feed = Feed::new(FeedOptions::default());
    let packets = [login(1), data(1), data(2), login(2), data(2), data(3), login(10), data(10)];
    let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let events = frames(&mut feed, FileFormat::SoupBinTcp, &packets);
    assert_eq!(added(&events), [1, 2, 3, 10]);
    assert_eq!(events.iter().find_map(Event::gap), Some(Gap { first: 4, count: 6 }));
    assert_eq!(feed.channels()[0].sequence().duplicate_messages, 1);
    assert_eq!(feed.problems().total, 1);
}

#[test]
fn a_gap_in_a_file_has_the_time_of_the_message_behind_it() {
    let midnight = Some(Nanos(1_763_096_400_000_000_000));
    let mut feed = Feed::new(FeedOptions { midnight, ..FeedOptions::default() });
    let cut = &add(7, b"AAPL    ", 2)[..30];
    let events = frames(&mut feed, FileFormat::LengthPrefixed, &[&add(7, b"AAPL    ", 1), cut]);
    let gap = events.iter().find(|event| event.kind == EventKind::Gap).unwrap();
    assert_eq!((gap.ts_recv, gap.ts_event), (Nanos(1_763_130_600_000_000_000), gap.ts_recv));
}
