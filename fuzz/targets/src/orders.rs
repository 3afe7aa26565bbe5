//! Order entry: any bytes at either end of a session, whole sessions whose wire the input cuts and breaks, and an exchange.

use std::collections::BTreeMap;

use tapeworks_matching::orders::{Gate, Instrument, MarketEvent, OrderExchange, OrderOptions, OuchUser};
use tapeworks_matching::{BookChange, OrderSide, SymbolIndex};
use tapeworks_order_session::native::{
    Channel, Client, ClientSettings, ConnectionId, Event, Input, Server, ServerSettings, User, UserId,
};
use tapeworks_order_session::soupbintcp::{
    SoupAcceptor, SoupEvent, SoupInitiator, SoupInitiatorSettings, SoupPlace,
};
use tapeworks_session::Credentials;
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::{ExecutionReport, message_length};
use tapeworks_wire::millennium::variant::{LSE, Variant};

use crate::take::Take;

const SECOND_NS: u64 = 1_000_000_000;

/// A native session: what the input says is carried, cut, sent or broken on either channel.
/// Reports are handed on in order and once, whatever else comes.
pub fn native_session(bytes: &[u8]) {
    let mut take = Take(bytes);
    let variant = Variant { partitions: 1, ..LSE };
    let settings = ClientSettings {
        variant,
        user: "U".to_owned(),
        password: "P".to_owned(),
        ..ClientSettings::default()
    };
    let mut client = Client::new(settings).expect("names that fit");
    let users = vec![User::new("U", "P", &variant)];
    let mut server = Server::new(ServerSettings { variant, ..ServerSettings::default() }, users);
    let mut now_ns = SECOND_NS;
    let mut lines: [Option<ConnectionId>; 2] = [None; 2];
    // A venue may send App IDs beyond the variant's partitions: what holds for a report holds for theirs.
    let mut last = [0u32; 1 + u8::MAX as usize];
    let mut check = |event: Event<'_>| match event {
        Event::Report { app_id, number, .. } => {
            let last = &mut last[usize::from(app_id)];
            assert_eq!(number, *last + 1, "once and in order");
            *last = number;
        }
        Event::Missing { app_id, first, count } => {
            let last = &mut last[usize::from(app_id)];
            assert_eq!(first, *last + 1);
            *last += count;
        }
        Event::BeganAnew { app_id } => last[usize::from(app_id)] = 0,
        _ => {}
    };
    let mut is_on = false;
    let mut count = |input: Input<'_>| match input {
        Input::LoggedOn { .. } => is_on = true,
        Input::Gone { .. } => {
            assert!(is_on, "a user goes once");
            is_on = false;
        }
        _ => assert!(is_on, "orders come from logged-on users"),
    };
    while !take.is_empty() {
        let (act, length) = (take.u8(), usize::from(take.u8()));
        for (place, channel) in Channel::ALL.into_iter().enumerate() {
            if client.wants(channel, now_ns) {
                lines[place] = Some(server.open(channel, now_ns));
                client.connected(channel, now_ns);
            }
        }
        let place = usize::from(act & 1);
        let channel = Channel::ALL[place];
        match (act >> 1 & 7, lines[place]) {
            (0..=2, Some(id)) => {
                let up = client.output(channel);
                let up = up[..up.len().min(1 + length)].to_vec();
                client.sent(channel, up.len(), now_ns, &mut check);
                server.receive(id, &up, now_ns, &mut count);
                let down = server.output(id);
                let down = down[..down.len().min(1 + length)].to_vec();
                server.sent(id, down.len(), now_ns);
                client.receive(channel, &down, now_ns, &mut check);
            }
            (3, _) => {
                let mut report = [0; ExecutionReport::LENGTH];
                report[0] = 2;
                report[1..3].copy_from_slice(&message_length(ExecutionReport::LENGTH).to_le_bytes());
                report[3] = b'8';
                server.report(UserId(0), 1, &mut report, now_ns, &mut count);
            }
            (4, Some(id)) => server.receive(id, take.bytes(length), now_ns, &mut count),
            (5, _) => client.receive(channel, take.bytes(length), now_ns, &mut check),
            (6, _) => {
                now_ns += length as u64 * SECOND_NS / 16;
                client.tick(now_ns, &mut check);
                server.tick(now_ns, &mut count);
            }
            (_, Some(id)) => {
                server.closed(id, &mut count);
                client.closed(channel, now_ns, &mut check);
                lines[place] = None;
            }
            _ => {}
        }
        for (place, channel) in Channel::ALL.into_iter().enumerate() {
            if let Some(id) = lines[place]
                && (client.over(channel).is_some() || server.over(id).is_some())
            {
                server.closed(id, &mut count);
                client.closed(channel, now_ns, &mut check);
                lines[place] = None;
            }
        }
    }
}

/// A SoupBinTCP session for orders: chunks for either end, cuts and breaks. Its messages come in order and once.
pub fn soup_session(bytes: &[u8]) {
    let mut take = Take(bytes);
    let credentials = Credentials { user: "U".to_owned(), password: "P".to_owned() };
    let mut client =
        SoupInitiator::new(SoupInitiatorSettings::new(credentials.clone()), SoupPlace::default())
            .expect("names that fit");
    let mut server = SoupAcceptor::new(credentials, *b"FUZZ      ", 1 << 16);
    let (mut now_ns, mut line, mut last) = (SECOND_NS, None, 0u64);
    let mut check = |event: SoupEvent<'_>| match event {
        SoupEvent::LoggedIn { place, is_new_session: true } => last = place.next - 1,
        SoupEvent::Message { number, .. } => {
            assert_eq!(number, last + 1, "once and in order");
            last = number;
        }
        SoupEvent::Missing { first, count } => last = first + (count - 1),
        _ => {}
    };
    while !take.is_empty() {
        let (act, length) = (take.u8(), usize::from(take.u8()));
        if client.wants(now_ns) {
            line = Some(server.open(now_ns));
            client.connected(now_ns);
        }
        match (act & 7, line) {
            (0..=2, Some(id)) => {
                let up = client.output();
                let up = up[..up.len().min(1 + length)].to_vec();
                client.sent(up.len(), now_ns, &mut check);
                server.receive(id, &up, now_ns, |order| assert!(order.len() < 256));
                let down = server.output(id);
                let down = down[..down.len().min(1 + length)].to_vec();
                server.sent(id, down.len(), now_ns);
                client.receive(&down, now_ns, &mut check);
            }
            (3, _) => server.send(&[act; 8], now_ns),
            (4, Some(id)) => server.receive(id, take.bytes(length), now_ns, |_| {}),
            (5, _) => client.receive(take.bytes(length), now_ns, &mut check),
            (6, _) => {
                now_ns += length as u64 * SECOND_NS / 16;
                client.tick(now_ns, &mut check);
                server.tick(now_ns);
            }
            (_, Some(id)) => {
                server.closed(id);
                client.closed(now_ns, &mut check);
                line = None;
            }
            _ => {}
        }
        if let Some(id) = line
            && (client.over().is_some() || server.over(id).is_some())
        {
            server.closed(id);
            client.closed(now_ns, &mut check);
            line = None;
        }
    }
}

/// A simulated exchange that takes orders: any bytes on any of its connections, before and after logon. Market data makes the
/// book that the engine shows.
pub fn order_exchange(bytes: &[u8]) {
    let variant = Variant { partitions: 1, throttle_per_second: 0, ..LSE };
    let credentials = Credentials { user: "U".to_owned(), password: "P".to_owned() };
    let options = OrderOptions {
        instruments: vec![Instrument {
            id: 1,
            symbol: Ascii(*b"AAPL    "),
            partition: 1,
            tick_e8: 10_000,
            lowest_price_e8: 1,
            highest_price_e8: i64::MAX,
            most_quantity: 1_000,
        }],
        native_users: vec![User::new("U", "P", &variant)],
        native: ServerSettings { variant, ..ServerSettings::default() },
        ouch_users: vec![OuchUser { credentials: credentials.clone(), cancels_on_disconnect: true }],
        ouch_store_bytes: 1 << 16,
        most_orders: 8,
        publishes_market: true,
        ..OrderOptions::default()
    };
    let mut now_ns = SECOND_NS;
    let mut exchange = OrderExchange::new(&options, now_ns).expect("sound options");
    let gates = [Gate::Native(Channel::RealTime), Gate::Native(Channel::Recovery), Gate::Ouch { user: 0 }];
    let mut lines: Vec<_> = gates.iter().filter_map(|gate| exchange.open(*gate, now_ns)).collect();
    assert!(exchange.open(Gate::Ouch { user: 1 }, now_ns).is_none());
    let mut take = Take(bytes);
    if take.u8() & 1 == 0 {
        let settings = ClientSettings {
            variant,
            user: "U".to_owned(),
            password: "P".to_owned(),
            ..ClientSettings::default()
        };
        let mut native = Client::new(settings).expect("names that fit");
        native.connected(Channel::RealTime, now_ns);
        exchange.receive(lines[0], native.output(Channel::RealTime), now_ns);
        native.connected(Channel::Recovery, now_ns);
        exchange.receive(lines[1], native.output(Channel::Recovery), now_ns);
        let settings = SoupInitiatorSettings::new(credentials);
        let mut ouch = SoupInitiator::new(settings, SoupPlace::default()).expect("names that fit");
        ouch.connected(now_ns);
        exchange.receive(lines[2], ouch.output(), now_ns);
    }
    while !take.is_empty() {
        let (act, length) = (take.u8(), usize::from(take.u8()));
        let place = usize::from(act) % lines.len();
        match act >> 5 {
            0..=5 => exchange.receive(lines[place], take.bytes(length), now_ns),
            6 => {
                now_ns += length as u64 * SECOND_NS / 16;
                exchange.tick(now_ns);
            }
            _ => {
                let waiting = exchange.output(lines[place]).len();
                exchange.sent(lines[place], waiting, now_ns);
            }
        }
        for (line, gate) in lines.iter_mut().zip(gates) {
            if exchange.over(*line) {
                exchange.closed(*line, now_ns);
                *line = exchange.open(gate, now_ns).expect("a gate that is there");
            }
        }
        assert!(exchange.engine().orders() <= 8);
    }
    let mut book: BTreeMap<u64, u32> = BTreeMap::new();
    while let Some(event) = exchange.next_market() {
        let MarketEvent::Book { change, .. } = event else { continue };
        match change {
            BookChange::Add { reference, quantity, .. } => assert_eq!(book.insert(reference, quantity), None),
            BookChange::Execute { reference, quantity, .. }
            | BookChange::Reduce { reference, by: quantity } => {
                let left = book.get_mut(&reference).expect("an order of the book");
                *left = left.checked_sub(quantity).expect("no more than rests");
                if *left == 0 {
                    book.remove(&reference);
                }
            }
            BookChange::Delete { reference } => assert!(book.remove(&reference).is_some()),
            BookChange::Replace { old, new, quantity, .. } => {
                assert!(book.remove(&old).is_some());
                book.insert(new, quantity);
            }
            BookChange::HiddenTrade { .. } => {}
        }
    }
    let sides = [OrderSide::Buy, OrderSide::Sell];
    let displayed = sides.into_iter().flat_map(|side| exchange.engine().displayed(SymbolIndex(0), side));
    let displayed: BTreeMap<u64, u32> =
        displayed.map(|(reference, _, quantity)| (reference, quantity)).collect();
    assert_eq!(book, displayed);
}
