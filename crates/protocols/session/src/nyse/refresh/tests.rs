//! Both ends of a refresh, with packet loss between them.

use std::sync::Arc;

use proptest::prelude::*;
use tapeworks_wire::nyse::integrated::{
    AddOrderFields, Exchange, HaltCondition, ListingMarket, Market, MarketState, RoundLot,
    SecurityStatusCode, SecurityStatusFields, SecurityType, ShortSaleRestriction, Side,
    SourceTimeReferenceFields, SymbolIndexMappingFields,
};

use tapeworks_wire::Nanoseconds;

use super::*;
use crate::dialect::requests::LoginFields;
use crate::login::Credentials;
use crate::protocols::RequestProtocol;
use crate::snapshot::{Fetched, SnapshotClient, SnapshotEnd, SnapshotProtocol, SnapshotServer};
use crate::transport::SessionId;

fn login() -> RequestLogin {
    RequestLogin::new(
        RequestProtocol::Pillar,
        &LoginFields { source: "FIRM", product: 1, channel: 2, ..Default::default() },
    )
    .unwrap()
}

fn mapping(symbol_index: u32) -> Vec<u8> {
    let fields = SymbolIndexMappingFields {
        length: SymbolIndexMapping::LENGTH as u16,
        symbol_index,
        symbol: Ascii(*b"AAPL\0\0\0\0\0\0\0"),
        reserved_1: 0,
        market_id: Market::ArcaEquities,
        system_id: 1,
        exchange_code: ListingMarket::NyseArca,
        price_scale_code: 4,
        security_type: SecurityType::CommonStock,
        lot_size: 100,
        previous_close_price: 0,
        previous_close_volume: 0,
        price_resolution: 0,
        round_lot: RoundLot::Yes,
        minimum_price_variation: 1,
        unit_of_trade: 1,
        reserved_2: 0,
    };
    fields.encode().to_vec()
}

fn status(symbol_index: u32) -> Vec<u8> {
    let fields = SecurityStatusFields {
        length: SecurityStatus::LENGTH as u16,
        source_time: SecondsSinceEpoch(9),
        source_time_ns: Nanoseconds(0),
        symbol_index,
        symbol_sequence: 0,
        security_status: SecurityStatusCode::Resume,
        halt_condition: HaltCondition::NotHalted,
        reserved_4: 0,
        price_1: 0,
        price_2: 0,
        short_sale_triggering_exchange: Exchange::Nyse,
        short_sale_triggering_volume: 0,
        time: 0,
        short_sale_restriction: ShortSaleRestriction::NotInEffect,
        market_state: MarketState::CoreSession,
        session_state: Ascii(*b" "),
    };
    fields.encode().to_vec()
}

fn add(symbol_index: u32, order_id: u64) -> Vec<u8> {
    let fields = AddOrderFields {
        length: AddOrder::LENGTH as u16,
        source_time_ns: Nanoseconds(5),
        symbol_index,
        symbol_sequence: 0,
        order_id,
        price: 10_000,
        volume: 100,
        side: Side::Buy,
        firm_id: Ascii([0; 5]),
        reserved_1: 0,
    };
    fields.encode().to_vec()
}

/// Builds an image with this many orders per symbol; `next` is the number of the next live message.
fn image(orders: &[u64], next: u64) -> Arc<Image> {
    let mut image = Image::new(SessionId::Pillar, next);
    let reference = SourceTimeReferenceFields {
        length: SourceTimeReference::LENGTH as u16,
        id: 1,
        symbol_sequence: 0,
        source_time: SecondsSinceEpoch(77),
    };
    image.put(&reference.encode(), |_| {});
    for (index, count) in (1..).zip(orders) {
        image.put(&mapping(index), |_| {});
        image.put(&status(index), |_| {});
        (0..*count).for_each(|number| image.put(&add(index, 1_000 * u64::from(index) + number), |_| {}));
    }
    image.finish();
    Arc::new(image)
}

/// Fetches a refresh of the image that `image` returns for each turn. `loses` decides whether a packet is lost.
fn fetched(
    client: &mut SnapshotClient,
    server: &mut SnapshotServer,
    mut image: impl FnMut(u64) -> Arc<Image>,
    mut loses: impl FnMut() -> bool,
) -> Result<(Vec<Vec<u8>>, u64), SnapshotFailure> {
    let mut messages = Vec::new();
    for turn in 0..2_000 {
        let now_ns = turn * 10_000_000;
        client.tick(now_ns);
        // The bytes arrive in two pieces.
        let output = client.take_output();
        let (first, second) = output.split_at(output.len() / 2);
        server.receive(first, now_ns);
        server.receive(second, now_ns);
        if server.wants_image() {
            server.give(image(turn), now_ns);
        }
        let output = server.output().to_vec();
        server.sent(output.len(), now_ns);
        client.receive(&output);
        while let Some(packet) = server.next_datagram() {
            assert!(packet.len() <= 1_432);
            if !loses() {
                client.receive_datagram(&packet);
            }
        }
        while let Some(step) = client.fetch()? {
            match step {
                Fetched::Message(message) => messages.push(message.to_vec()),
                Fetched::End { next } => return Ok((messages, next)),
            }
        }
    }
    panic!("it never ends: {client:?}");
}

fn both() -> (SnapshotClient, SnapshotServer) {
    let client = SnapshotClient::by_group(login(), DayTime::new(1_000 * SECOND_NS, 0), 0).unwrap();
    (client, SnapshotServer::new(SnapshotProtocol::Refresh, None, 0))
}

#[test]
fn a_client_gets_each_symbol_behind_its_header() {
    let (mut client, mut server) = both();
    let got = fetched(&mut client, &mut server, |_| image(&[0, 100, 2], 1_234), || false);
    let (messages, next) = got.unwrap();
    assert_eq!(next, 1_234);
    let headers = messages.iter().filter(|message| tag(message) == RefreshHeader::TAG);
    let last = headers.map(|header| RefreshHeader::decode(header).unwrap().last_sequence());
    assert!(last.eq([1_233; 3]));
    let of = |index: u32| {
        let of_index = messages.iter().filter(move |message| index_of(message) == Some(index));
        of_index.map(|message| tag(message)).collect::<Vec<_>>()
    };
    assert_eq!(of(1), [3, 34]);
    assert_eq!(of(3), [3, 34, 106, 106]);
    assert_eq!(of(2).len(), 102);
    let order = messages.iter().find(|message| tag(message) == AddOrderRefresh::TAG).unwrap();
    let order = AddOrderRefresh::decode(order).unwrap();
    assert_eq!((order.order_id(), order.source_time().0, order.source_time_ns().0), (2_000, 77, 5));
    server.closed();
    assert_eq!((server.over(), server.image_messages()), (Some(SnapshotEnd::Served), 111));
}

#[test]
fn a_symbol_that_is_refreshed_later_keeps_its_own_number() {
    let (mut client, mut server) = both();
    let mut packets = 0;
    // The directory has one packet, and so has each of three symbols. The second symbol's is lost once.
    let loses = || {
        packets += 1;
        packets == 3
    };
    let made = |turn: u64| image(&[1, 1, 1], 100 + turn);
    let (messages, next) = fetched(&mut client, &mut server, made, loses).unwrap();
    let headers = messages.iter().filter(|message| tag(message) == RefreshHeader::TAG);
    let last: Vec<u32> =
        headers.map(|header| RefreshHeader::decode(header).unwrap().last_sequence()).collect();
    assert!(last[0] == last[2] && last[1] > last[0], "{last:?}");
    assert!(next <= u64::from(last[0]) + 1, "messages behind the directory are applied too");
    assert_eq!(messages.len(), 12);
}

#[test]
fn a_stranger_is_refused_and_what_is_no_request_ends_the_connection() {
    let (mut client, _) = both();
    let known = Credentials { user: "OTHER".to_owned(), password: String::new() };
    let mut server = SnapshotServer::new(SnapshotProtocol::Refresh, Some(known), 0);
    let got = fetched(&mut client, &mut server, |_| image(&[1], 5), || false);
    assert_eq!(got, Err(SnapshotFailure::RefreshRefused));
    let (mut client, mut server) = both();
    client.receive(&[16, 0, 1, 0, 0, 0]);
    client.receive(&[0; 10]);
    assert_eq!(client.fetch(), Ok(None), "a heartbeat");
    let answered = client.take_output();
    assert_eq!(answered[answered.len() - 14..][..4], [14, 0, 12, 0]);
    server.receive(&answered, 0);
    assert_eq!(server.over(), None);
    server.receive(&packets::packet(&mapping(1), 1, 0), 0);
    assert_eq!(server.over(), Some(SnapshotEnd::Malformed));
    for (silent_ns, is_over) in [(9 * SECOND_NS, false), (11 * SECOND_NS, true)] {
        let (_, mut server) = both();
        server.tick(silent_ns);
        assert_eq!(server.over().is_some(), is_over);
    }
}

/// Returns the packets that answer another client's request.
fn answers_to(wanted: Wanted, image: Arc<Image>) -> Vec<Vec<u8>> {
    let (source_id, product_id, channel_id) = (Ascii([0; 10]), 0, 0);
    let request = match wanted {
        Wanted::Directory(symbol_index) => {
            let length = SymbolIndexMappingRequest::LENGTH as u16;
            let retransmit_method = 0;
            let fields = SymbolIndexMappingRequestFields {
                length,
                symbol_index,
                source_id,
                product_id,
                channel_id,
                retransmit_method,
            };
            fields.encode().to_vec()
        }
        Wanted::Book(symbol_index) => {
            let length = RefreshRequest::LENGTH as u16;
            let fields = RefreshRequestFields { length, symbol_index, source_id, product_id, channel_id };
            fields.encode().to_vec()
        }
    };
    let (_, mut server) = both();
    server.receive(&packets::packet(&request, 1, 0), 0);
    server.give(image, 0);
    std::iter::from_fn(|| server.next_datagram()).collect()
}

/// Moves the client's requests and their responses. Returns the packets to the group instead of delivering them.
fn answered(client: &mut SnapshotClient, server: &mut SnapshotServer, image: Arc<Image>) -> Vec<Vec<u8>> {
    server.receive(&client.take_output(), 0);
    server.give(image, 0);
    let output = server.output().to_vec();
    server.sent(output.len(), 0);
    client.receive(&output);
    std::iter::from_fn(|| server.next_datagram()).collect()
}

fn count_of(messages: &[Vec<u8>], wanted: u16) -> usize {
    messages.iter().filter(|message| tag(message) == wanted).count()
}

#[test]
fn packets_of_other_answers_are_counted_and_change_nothing() {
    let (mut client, mut server) = both();
    let mut strangers = vec![packets::packet(&mapping(1), 7, 0), vec![1, 2, 3]];
    // A book arrives before the directory.
    strangers.extend(answers_to(Wanted::Book(ALL), image(&[1], 3)));
    strangers.iter().for_each(|packet| client.receive_datagram(packet));
    assert_eq!(client.ignored(), strangers.len() as u64);
    let got = fetched(&mut client, &mut server, |_| image(&[1, 2], 50), || false).unwrap();
    assert_eq!((got.0.len(), got.1), (9, 50));
}

#[test]
fn the_directory_of_another_clients_request_is_as_good() {
    let (mut client, mut server) = both();
    let made = || image(&[1, 2], 50);
    for packet in answers_to(Wanted::Directory(ALL), made()) {
        client.receive_datagram(&packet);
    }
    assert_eq!(client.ignored(), 0);
    // The client's own answer is lost.
    assert_eq!(answered(&mut client, &mut server, made()).len(), 1);
    let books = answered(&mut client, &mut server, made());
    assert_eq!(books.len(), 2, "the refresh was requested");
    books.iter().for_each(|packet| client.receive_datagram(packet));
    let end = std::iter::from_fn(|| match client.fetch().unwrap().unwrap() {
        Fetched::Message(_) => Some(()),
        Fetched::End { .. } => None,
    });
    assert_eq!(end.count(), 9);
}

/// Regression: a one-index mapping for another client passed as the directory, so all other books were empty but accepted.
#[test]
fn a_mapping_of_one_index_is_not_the_directory() {
    let made = || image(&[3, 1, 2], 50);
    let mut bare = Image::new(SessionId::Pillar, 50);
    bare.put(&mapping(2), |_| {});
    bare.finish();
    let bare = Arc::new(bare);
    for stranger in
        [answers_to(Wanted::Directory(2), made()), answers_to(Wanted::Book(ALL), Arc::clone(&bare))]
    {
        let (mut client, mut server) = both();
        assert_eq!(stranger.len(), 1);
        client.receive_datagram(&stranger[0]);
        let (messages, next) = fetched(&mut client, &mut server, |_| made(), || false).unwrap();
        assert_eq!(
            (count_of(&messages, RefreshHeader::TAG), count_of(&messages, AddOrderRefresh::TAG)),
            (3, 6)
        );
        assert_eq!(next, 50);
        // Regression: after the directory it passed as the symbol's whole refresh, so that book was empty but accepted.
        let (mut client, mut server) = both();
        let directory = answered(&mut client, &mut server, made());
        directory.iter().chain(&stranger).for_each(|packet| client.receive_datagram(packet));
        assert_eq!(client.ignored(), 1);
        let (messages, _) = fetched(&mut client, &mut server, |_| made(), || false).unwrap();
        assert_eq!(count_of(&messages, AddOrderRefresh::TAG), 6);
    }
}

#[test]
fn a_directory_of_one_index_ends_where_a_refresh_has_another() {
    let made = || image(&[3, 1, 2], 50);
    let stranger = answers_to(Wanted::Directory(2), made());
    let (mut client, mut server) = both();
    // Both answers for the client are lost, and each time one for another client arrives.
    for _ in 0..2 {
        client.receive_datagram(&stranger[0]);
        answered(&mut client, &mut server, made());
    }
    client.receive_datagram(&stranger[0]);
    let books = answered(&mut client, &mut server, made());
    assert_eq!(books.len(), 3, "one index is the directory");
    // Only that symbol's refresh arrives: this is not the end yet.
    client.receive_datagram(&books[1]);
    assert_eq!(client.fetch(), Ok(None));
    client.receive_datagram(&books[2]);
    let (messages, _) = fetched(&mut client, &mut server, |_| made(), || false).unwrap();
    assert_eq!(count_of(&messages, AddOrderRefresh::TAG), 6);
}

#[test]
fn a_symbol_that_the_directory_lacks_is_awaited_when_a_refresh_names_it() {
    let (mut client, mut server) = both();
    let directory = answered(&mut client, &mut server, image(&[1, 1], 50));
    directory.iter().for_each(|packet| client.receive_datagram(packet));
    // A third symbol has been listed. Its first packet is lost.
    let books = answered(&mut client, &mut server, image(&[1, 1, 90], 60));
    assert!(books.len() > 4);
    for (number, packet) in books.iter().rev().enumerate() {
        let is_lost = number == books.len() - 3;
        if !is_lost {
            client.receive_datagram(packet);
        }
    }
    let (messages, next) = fetched(&mut client, &mut server, |_| image(&[1, 1, 90], 60), || false).unwrap();
    assert_eq!((count_of(&messages, AddOrderRefresh::TAG), next), (92, 50));
}

#[test]
fn a_channel_of_one_symbol_has_it_when_two_requests_got_the_same() {
    let (mut client, mut server) = both();
    let (messages, next) = fetched(&mut client, &mut server, |_| image(&[3], 50), || false).unwrap();
    assert_eq!((messages.len(), next), (6, 50));
    // Two directories and a book.
    server.closed();
    assert_eq!(server.image_messages(), 1 + 1 + 5);
}

/// Regression: one client had as many images built as it could send requests.
#[test]
fn a_server_answers_requests_that_repeat_each_other_once() {
    let requests = |wanted: &[u32]| {
        let (_, mut server) = both();
        for (number, symbol_index) in (1..).zip(wanted) {
            let fields = RefreshRequestFields {
                length: RefreshRequest::LENGTH as u16,
                symbol_index: *symbol_index,
                source_id: Ascii([0; 10]),
                product_id: 0,
                channel_id: 0,
            };
            server.receive(&packets::packet(&fields.encode(), number, 0), 0);
        }
        let responses = server.output().chunks(HEADER_BYTES + RequestResponse::LENGTH);
        let status = |packet: &[u8]| RequestResponse::decode(&packet[HEADER_BYTES..]).unwrap().status();
        let accepted = responses.filter(|packet| status(packet) == PillarStatus::Accepted).count();
        server.give(image(&[1; 200], 50), 0);
        (accepted, std::iter::from_fn(|| server.next_datagram()).count())
    };
    assert_eq!(requests(&[ALL; 64]), (64, 200));
    assert_eq!(requests(&[7, 8, 7, 7]), (4, 2));
    assert_eq!(requests(&[7, 8, ALL, 9]), (4, 200));
    let each: Vec<u32> = (1..=100).collect();
    assert_eq!(requests(&each), (64, 64));
}

/// Regression: the packets that a header can count were sent, and looked like the complete answer.
#[test]
fn a_server_gives_no_part_of_an_answer_that_is_too_long() {
    let mut longest = vec![0; BLOCK_BYTES];
    longest[..2].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
    let mut service = RefreshServer::default();
    service.answer(&vec![longest.as_slice(); 1 + usize::from(u16::MAX)], 5, 0);
    assert_eq!((service.next_datagram(), service.unanswered, service.messages), (None, 1, 0));
    service.answer(&[longest.as_slice(); 3], 5, 0);
    assert_eq!((service.datagrams.len(), service.unanswered, service.messages), (3, 1, 3));
}

proptest! {
    #[test]
    fn a_refresh_comes_whole_however_many_packets_are_lost(
        orders in prop::collection::vec(0_u64..90, 1..40),
        losses in prop::collection::vec(0_u8..4, 1..50),
    ) {
        let (mut client, mut server) = both();
        let mut at = 0;
        let loses = || {
            at += 1;
            // Eventually all packets arrive.
            at < 25 && losses[at % losses.len()] == 0
        };
        let (messages, next) = fetched(&mut client, &mut server, |turn| image(&orders, 10 + turn), loses).unwrap();
        prop_assert!(next >= 10);
        let count = |wanted: u16| messages.iter().filter(|message| tag(message) == wanted).count();
        prop_assert_eq!(count(RefreshHeader::TAG), orders.len());
        prop_assert_eq!(count(SymbolIndexMapping::TAG), orders.len());
        prop_assert_eq!(count(AddOrderRefresh::TAG) as u64, orders.iter().sum::<u64>());
        let all_known = messages.iter().all(|message| {
            tag(message) != RefreshHeader::TAG || u64::from(RefreshHeader::decode(message).unwrap().last_sequence()) + 1 >= next
        });
        prop_assert!(all_known);
    }

    #[test]
    fn hostile_bytes_and_packets_end_a_refresh_or_wait_for_more(
        chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..100)), 0..20),
        flag in 17_u8..=20,
    ) {
        let (mut client, mut server) = both();
        for (number, (is_packet, chunk)) in chunks.iter().enumerate() {
            let now_ns = number as u64 * SECOND_NS;
            client.tick(now_ns);
            if *is_packet {
                let mut packet = [packets::packet(&[], 1, now_ns), chunk.clone()].concat();
                (packet[0], packet[2], packet[3]) = (packet.len() as u8, flag, 1);
                client.receive_datagram(&packet);
            } else {
                client.receive(chunk);
                server.receive(chunk, now_ns);
            }
            while let Ok(Some(Fetched::Message(_))) = client.fetch() {}
            server.tick(now_ns);
        }
    }
}
