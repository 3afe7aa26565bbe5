//! After start-up a client's end of an order session takes no memory: orders out, reports in, heartbeats, a full throttle.

#![allow(clippy::unwrap_used)]

use tapeworks_order_session::native::{
    Channel, Client, ClientSettings, Event, Sent, Server, ServerSettings, User, UserId,
};
use tapeworks_order_session::soupbintcp::{
    SoupAcceptor, SoupEvent, SoupInitiator, SoupInitiatorSettings, SoupPlace,
};
use tapeworks_ring::counting::{CountingAllocator, allocations};
use tapeworks_session::Credentials;
use tapeworks_wire::millennium::native::{ExecutionReport, NewOrder, message_length};
use tapeworks_wire::millennium::variant::{LSE, Variant};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const SECOND_NS: u64 = 1_000_000_000;

fn message<const N: usize>(tag: u8) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[0] = 2;
    bytes[1..3].copy_from_slice(&message_length(N).to_le_bytes());
    bytes[3] = tag;
    bytes
}

#[test]
fn a_native_client_takes_no_memory_once_it_is_logged_on() {
    let variant = Variant { partitions: 1, throttle_per_second: 10, ..LSE };
    let settings = ClientSettings {
        variant,
        user: "U".to_owned(),
        password: "P".to_owned(),
        ..ClientSettings::default()
    };
    let mut client = Client::new(settings).unwrap();
    let user = User { throttle_per_second: 0, ..User::new("U", "P", &variant) };
    let mut server = Server::new(ServerSettings { variant, ..ServerSettings::default() }, vec![user]);
    let mut now_ns = SECOND_NS;
    let lines = Channel::ALL.map(|channel| server.open(channel, now_ns));
    let mut reports = 0u32;
    let mut each = |event: Event<'_>| reports += u32::from(matches!(event, Event::Report { .. }));
    let order: [u8; NewOrder::LENGTH] = message(NewOrder::TAG);
    let mut taken = 0;
    let mut queued = 0;
    for turn in 0..2_000u32 {
        now_ns += SECOND_NS / 20;
        for (channel, line) in Channel::ALL.into_iter().zip(lines) {
            if client.wants(channel, now_ns) {
                client.connected(channel, now_ns);
            }
            server.receive(line, client.output(channel), now_ns, |_| {});
            let sent = client.output(channel).len();
            client.sent(channel, sent, now_ns, &mut each);
        }
        let mut report: [u8; ExecutionReport::LENGTH] = message(ExecutionReport::TAG);
        server.report(UserId(0), 1, &mut report, now_ns, |_| {});
        server.tick(now_ns, |_| {});
        // The first turns are start-up: logon, recovery, the longest pieces.
        let before = allocations();
        for (channel, line) in Channel::ALL.into_iter().zip(lines) {
            // In two pieces, cut in another place each time.
            let output = server.output(line);
            let (first, second) = output.split_at(turn as usize % (output.len() + 1));
            client.receive(channel, first, now_ns, &mut each);
            client.receive(channel, second, now_ns, &mut each);
        }
        client.tick(now_ns, &mut each);
        if turn >= 10 {
            queued += u32::from(matches!(client.send(&order, now_ns), Ok(Sent::Queued { .. })));
        }
        if turn >= 200 {
            taken += allocations() - before;
        }
        for line in lines {
            let sent = server.output(line).len();
            server.sent(line, sent, now_ns);
        }
    }
    assert_eq!(taken, 0);
    assert!(reports >= 1_990 && queued > 900, "{reports} reports, {queued} queued");
}

#[test]
fn a_soup_client_takes_no_memory_once_it_is_logged_in() {
    let credentials = Credentials { user: "U".to_owned(), password: "P".to_owned() };
    let settings = SoupInitiatorSettings::new(credentials.clone());
    let mut client = SoupInitiator::new(settings, SoupPlace::default()).unwrap();
    let mut server = SoupAcceptor::new(credentials, *b"SESSION   ", 1 << 20);
    let mut now_ns = SECOND_NS;
    let line = server.open(now_ns);
    client.connected(now_ns);
    let mut messages = 0u32;
    let mut each = |event: SoupEvent<'_>| messages += u32::from(matches!(event, SoupEvent::Message { .. }));
    let mut taken = 0;
    for turn in 0..2_000usize {
        now_ns += SECOND_NS / 20;
        server.receive(line, client.output(), now_ns, |_| {});
        let sent = client.output().len();
        client.sent(sent, now_ns, &mut each);
        server.send(&[b'E'; 36], now_ns);
        let before = allocations();
        let output = server.output(line);
        let (first, second) = output.split_at(turn % (output.len() + 1));
        client.receive(first, now_ns, &mut each);
        client.receive(second, now_ns, &mut each);
        client.tick(now_ns, &mut each);
        let _not_at_first = client.send(&[b'O'; 47], now_ns);
        if turn >= 200 {
            taken += allocations() - before;
        }
        let sent = server.output(line).len();
        server.sent(line, sent, now_ns);
    }
    assert_eq!((taken, messages), (0, 2_000));
}
