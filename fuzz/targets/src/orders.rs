//! Order-entry sessions: any bytes at either end, and a whole session whose wire the input cuts and breaks.

use tapeworks_session::Credentials;
use tapeworks_session::native::{
    Channel, Client, ClientSettings, ConnectionId, Event, Input, Server, ServerSettings, User, UserId,
};
use tapeworks_session::soupbintcp::{
    SoupAcceptor, SoupEvent, SoupInitiator, SoupInitiatorSettings, SoupPlace,
};
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
    let mut last = [0u32; 2];
    let mut check = |event: Event<'_>| match event {
        Event::Report { app_id, number, .. } => {
            if let Some(last) = last.get_mut(usize::from(app_id)) {
                assert_eq!(number, *last + 1, "once and in order");
                *last = number;
            }
        }
        Event::Missing { app_id, first, count } => {
            let last = &mut last[usize::from(app_id)];
            assert_eq!(first, *last + 1);
            *last += count;
        }
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
