//! Real packets: every message of the captures decodes, and some are compared value by value.

#![allow(clippy::unwrap_used)]

mod capture_files;

use std::collections::BTreeMap;

use capture_files::{captures, payloads};
use tapeworks_wire::Decimal;
use tapeworks_wire::cboe::{futures, pitch, unit};
use tapeworks_wire::cta::{block, cqs191};
use tapeworks_wire::iex::{deep10, tops16, tp};
use tapeworks_wire::nasdaq::{itch50, moldudp64, ouch50, soupbintcp};
use tapeworks_wire::national::{NationalBest, NationalSide};
use tapeworks_wire::nyse::{integrated, packet};
use tapeworks_wire::utp::uqdf15;

fn count(counts: &mut BTreeMap<&'static str, usize>, name: &'static str) {
    *counts.entry(name).or_default() += 1;
}

fn nasdaq_counts(folder: &str) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for payload in captures(folder).iter().flat_map(|file| payloads(file)) {
        let packet = moldudp64::DownstreamPacket::decode(&payload).unwrap();
        let mut blocks = packet.blocks();
        for block in blocks.by_ref() {
            let message = itch50::Message::decode(block.unwrap()).unwrap();
            let mut again = [0; 64];
            let length = message.encode_into(&mut again).unwrap();
            assert_eq!(&again[..length], message.as_bytes());
            count(&mut counts, message.name());
        }
        assert!(blocks.trailing().is_empty());
    }
    counts
}

#[test]
fn every_message_of_the_nasdaq_captures_decodes() {
    let expected = [
        ("AddOrder", 37),
        ("AddOrderWithMpid", 2),
        ("MarketParticipantPosition", 1),
        ("OrderDelete", 2),
        ("OrderReplace", 1),
        ("StockTradingAction", 1),
    ];
    assert_eq!(nasdaq_counts("nasdaq-itch50"), BTreeMap::from(expected));
    assert_eq!(nasdaq_counts("nasdaq-bx-itch50"), BTreeMap::from([("AddOrder", 1), ("OrderDelete", 1)]));
}

#[test]
fn every_message_of_the_iex_captures_decodes() {
    let mut counts = BTreeMap::new();
    for folder in ["iex-tops15", "iex-tops16", "iex-deep"] {
        for payload in captures(folder).iter().flat_map(|file| payloads(file)) {
            let segment = tp::Segment::decode(&payload).unwrap();
            assert_eq!(payload.len(), 40 + usize::from(segment.payload_length()));
            let mut blocks = segment.blocks();
            for block in blocks.by_ref() {
                let block = block.unwrap();
                let (name, length) = match segment.message_protocol_id() {
                    tp::MessageProtocolId::Tops => {
                        let message = tops16::Message::decode(block).unwrap();
                        (message.name(), message.as_bytes().len())
                    }
                    tp::MessageProtocolId::Deep => {
                        let message = deep10::Message::decode(block).unwrap();
                        (message.name(), message.as_bytes().len())
                    }
                    other => panic!("{other:?}"),
                };
                assert_eq!(length, block.len(), "{name} has bytes that are not declared");
                count(&mut counts, name);
            }
            assert!(blocks.trailing().is_empty());
        }
    }
    assert_eq!(counts.get("QuoteUpdate"), Some(&IEX_QUOTES));
    assert_eq!(counts.get("PriceLevelBuyUpdate"), Some(&1));
    assert_eq!(counts.get("PriceLevelSellUpdate"), Some(&1));
    assert_eq!(counts.get("SecurityDirectory"), Some(&2));
}

const IEX_QUOTES: usize = 15;

/// The names of the messages in a folder of Cboe's packets, with how often each comes.
fn cboes(folder: &str, name_of: impl Fn(&[u8]) -> &'static str) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for payload in captures(folder).iter().flat_map(|file| payloads(file)) {
        let packet = unit::SequencedUnit::decode(&payload).unwrap();
        assert_eq!(usize::from(packet.length()), payload.len());
        let mut blocks = packet.blocks();
        blocks.by_ref().for_each(|block| count(&mut counts, name_of(block.unwrap())));
        assert!(blocks.trailing().is_empty());
    }
    counts
}

#[test]
fn cboes_packets_of_options_decode_where_they_share_messages_with_equities() {
    let counts = cboes("cboe-pitch-options", |block| pitch::Message::decode(block).unwrap().name());
    let expected = [("AddOrderLong", 1), ("DeleteOrder", 1), ("ModifyOrderLong", 1), ("Time", 3)];
    assert_eq!(counts, BTreeMap::from(expected));
}

#[test]
fn every_message_of_cboes_futures_decodes_to_its_last_byte() {
    let counts = cboes("cboe-pitch-futures", |block| {
        let message = futures::Message::decode(block).unwrap();
        assert_eq!(message.as_bytes().len(), block.len(), "{message:?}");
        message.name()
    });
    let expected = [
        ("AddOrderShort", 1),
        ("DeleteOrder", 1),
        ("FuturesInstrumentDefinition", 1),
        ("ModifyOrderShort", 2),
        ("Time", 1),
        ("TradingStatus", 16),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

#[test]
fn every_message_of_nyses_packets_decodes() {
    let mut counts = BTreeMap::new();
    for payload in captures("nyse-pillar-integrated").iter().flat_map(|file| payloads(file)) {
        let packet = packet::PillarPacket::decode(&payload).unwrap();
        assert_eq!(usize::from(packet.length()), payload.len());
        assert!(packet.delivery_flag().is_of_channel());
        let mut blocks = packet.blocks();
        for block in blocks.by_ref() {
            let block = block.unwrap();
            let message = integrated::Message::decode(block).unwrap();
            assert_eq!(message.as_bytes().len(), block.len(), "{message:?}");
            count(&mut counts, message.name());
        }
        assert!(blocks.trailing().is_empty());
    }
    let names = [
        "AddOrder",
        "DeleteOrder",
        "Imbalance",
        "OrderExecution",
        "SecurityStatus",
        "SourceTimeReference",
        "StockSummary",
    ];
    assert_eq!(counts, names.map(|name| (name, 1)).into());
}

#[test]
fn a_real_order_of_nyse_has_the_values_that_its_bytes_show() {
    let files = captures("nyse-pillar-integrated");
    let file = files.iter().find(|file| file.ends_with("AddOrderMessage.pcap")).unwrap();
    let payload = payloads(file).remove(0);
    let packet = packet::PillarPacket::decode(&payload).unwrap();
    assert_eq!((packet.sequence(), packet.send_time().0), (53_173, 1_645_642_927));
    let block = packet.blocks().next().unwrap().unwrap();
    let integrated::Message::AddOrder(order) = integrated::Message::decode(block).unwrap() else {
        panic!("not an add")
    };
    assert_eq!((order.symbol_index(), order.order_id()), (4_966, 0x1_0100_0000_a6e9));
    assert_eq!((order.side(), order.volume(), order.price()), (integrated::Side::Buy, 1_200, 10_010_000));
}

#[test]
fn a_real_order_of_cboe_has_the_values_that_other_tools_show() {
    let files = captures("cboe-pitch-options");
    let file = files.iter().find(|file| file.ends_with("AddOrderLongMessage.pcap")).unwrap();
    let payload = payloads(file).remove(0);
    let packet = unit::SequencedUnit::decode(&payload).unwrap();
    assert_eq!((packet.unit(), packet.sequence()), (1, 37));
    let block = packet.blocks().nth(1).unwrap().unwrap();
    let pitch::Message::AddOrderLong(order) = pitch::Message::decode(block).unwrap() else {
        panic!("not an add")
    };
    assert_eq!(
        (order.side(), order.quantity(), order.symbol().as_str()),
        (pitch::Side::Buy, 1_000, Some("A"))
    );
    assert_eq!(order.price().to_string(), "0.0029");
    assert_eq!(order.time_offset().0, 355_192_000);
}

#[test]
fn a_real_add_order_has_the_values_that_other_tools_show() {
    let files = captures("nasdaq-itch50");
    let file = files.iter().find(|file| file.ends_with("AddOrderNoMpidAttributionMessage.pcap")).unwrap();
    let payload = payloads(file).remove(0);
    let packet = moldudp64::DownstreamPacket::decode(&payload).unwrap();
    assert_eq!(packet.session().as_str(), Some("000010059B"));
    assert_eq!(packet.sequence_number(), 14_757_721);
    let block = packet.blocks().next().unwrap().unwrap();
    let itch50::Message::AddOrder(order) = itch50::Message::decode(block).unwrap() else {
        panic!("not an add")
    };
    assert_eq!(order.timestamp().to_string(), "09:29:59.999894278");
    assert_eq!(order.stock().as_str(), Some("IVOO"));
    assert_eq!(order.buy_sell_indicator(), itch50::BuySellIndicator::Buy);
    assert_eq!((order.shares(), order.price().to_string().as_str()), (1_600, "87.3900"));
}

#[test]
fn every_message_of_the_ouch_captures_decodes() {
    let mut counts = BTreeMap::new();
    for payload in captures("nasdaq-ouch50").iter().flat_map(|file| payloads(file)) {
        for packet in soupbintcp::Packets::new(&payload) {
            let packet = soupbintcp::Message::decode(packet.unwrap()).unwrap();
            let (name, bytes, appendage) = match packet {
                soupbintcp::Message::SequencedData(data) => {
                    let message = ouch50::outbound::Message::decode(data.message()).unwrap();
                    let appendage = match message {
                        ouch50::outbound::Message::OrderAccepted(accepted) => accepted.appendage(),
                        _ => &[],
                    };
                    (message.name(), data.message(), appendage)
                }
                soupbintcp::Message::UnsequencedData(data) => {
                    let message = ouch50::inbound::Message::decode(data.message()).unwrap();
                    let appendage = match message {
                        ouch50::inbound::Message::EnterOrder(order) => order.appendage(),
                        _ => &[],
                    };
                    (message.name(), data.message(), appendage)
                }
                other => (other.name(), other.as_bytes(), &[][..]),
            };
            assert!(
                ouch50::appendage::OptionalFields::new(appendage).all(|field| field.is_ok()),
                "{bytes:?}"
            );
            count(&mut counts, name);
        }
    }
    let expected = [
        ("CancelOrder", 1),
        ("Canceled", 1),
        ("ClientHeartbeat", 1),
        ("EnterOrder", 1),
        ("OrderAccepted", 1),
        ("ServerHeartbeat", 1),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

/// The first message of a capture's only packet.
fn uqdf_message(name: &str) -> Vec<u8> {
    let files = captures("utp-uqdf");
    let payload = payloads(files.iter().find(|file| file.ends_with(name)).unwrap()).remove(0);
    let packet = moldudp64::DownstreamPacket::decode(&payload).unwrap();
    assert_eq!((packet.session().as_str(), packet.count()), (Some("000007527Q"), 1));
    let mut blocks = packet.blocks();
    let message = blocks.next().unwrap().unwrap().to_vec();
    assert!(blocks.trailing().is_empty());
    assert!(itch50::Message::decode(&message).is_err(), "it is no message of ITCH");
    message
}

#[test]
fn a_real_quote_of_utp_has_the_values_that_its_bytes_show() {
    let message = uqdf_message("QuoteShortFormMessage.pcap");
    let uqdf15::Message::QuoteShortForm(quote) = uqdf15::Message::decode(&message).unwrap() else {
        panic!("not a short quote")
    };
    assert_eq!(quote.as_bytes(), message);
    assert_eq!(quote.market_center_originator_id(), uqdf15::MarketCenter::Edgx);
    assert_eq!(quote.sip_timestamp().to_string(), "2016-09-15T17:26:57.922876842Z");
    assert_eq!(quote.participant_timestamp().to_string(), "2016-09-15T17:26:57.922684000Z");
    assert_eq!(quote.symbol().as_str(), Some("AKAM"));
    let prices = [quote.bid_price_short(), quote.ask_price_short()].map(|price| price.to_string());
    assert_eq!(prices, ["51.23", "51.24"]);
    assert_eq!((quote.bid_size_short(), quote.ask_size_short()), (1, 1));
    assert_eq!(quote.national(), Ok([NationalSide::Unchanged; 2]));
}

#[test]
fn real_price_bands_of_utp_have_the_values_that_their_bytes_show() {
    let message = uqdf_message("LimitUpLimitDownPriceBandMessage.pcap");
    let uqdf15::Message::LimitUpLimitDownPriceBand(band) = uqdf15::Message::decode(&message).unwrap() else {
        panic!("no price bands")
    };
    assert_eq!(band.as_bytes()[..], message);
    assert_eq!(band.market_center_originator_id(), uqdf15::MarketCenter::MarketIndependent);
    assert_eq!(band.symbol().as_str(), Some("ANDA"));
    let prices = [band.limit_down_price(), band.limit_up_price()].map(|price| price.to_string());
    assert_eq!(prices, ["8.870000", "10.840000"]);
}

#[test]
fn a_real_quote_of_cta_has_the_values_that_its_bytes_show() {
    let payload = payloads(&captures("cta-cqs")[0]).remove(0);
    let header = block::BlockHeader::decode(&payload).unwrap();
    assert_eq!(usize::from(header.block_size()), payload.len());
    assert_eq!((header.version(), header.data_feed_indicator().0), (0, [block::CQS]));
    assert_eq!((header.block_sequence_number(), header.messages_in_block()), (19_878_165, 1));
    assert_eq!(header.block_checksum(), block::checksum(&payload), "it is the sum of the other bytes");
    let mut blocks = header.blocks();
    let message = blocks.next().unwrap().unwrap();
    assert_eq!(blocks.trailing(), [0], "the block has an even length");
    let cqs191::Message::LongQuote(quote) = cqs191::Message::decode(message).unwrap() else {
        panic!("not a long quote")
    };
    assert_eq!(quote.as_bytes(), message);
    assert_eq!(quote.participant_id(), cqs191::Participant::CboeEdgx);
    assert_eq!(quote.security_symbol().as_str(), Some("STOR"));
    assert_eq!(
        quote.primary_listing_market_participant_id(),
        cqs191::PrimaryListingMarketParticipantId::Nyse
    );
    let prices = [quote.bid_price_lower_limit_price_band(), quote.offer_price_upper_limit_price_band()];
    assert_eq!(prices.map(|price| price.to_string()), ["29.450000", "29.470000"]);
    assert_eq!((quote.bid_size_long(), quote.offer_size_long()), (1, 1));
    let best = |price, size| {
        NationalSide::Appended(NationalBest { center: b'Z', price: Decimal(price), size, condition: b'R' })
    };
    assert_eq!(quote.national(), Ok([best(29_460_000, 3), best(29_470_000, 2)]));
}
