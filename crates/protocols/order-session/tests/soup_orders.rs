//! Both ends of a SoupBinTCP session for orders against each other, over a wire that cuts bytes and breaks.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tapeworks_order_session::soupbintcp::{
    SoupAcceptor, SoupEnd, SoupEvent, SoupInitiator, SoupInitiatorEnd, SoupInitiatorSettings, SoupPlace,
    SoupSendError,
};
use tapeworks_session::Credentials;
use tapeworks_wire::nasdaq::soupbintcp::RejectReasonCode;

const SECOND_NS: u64 = 1_000_000_000;
const SESSION: &[u8; 10] = b"ORDERS0001";

fn credentials() -> Credentials {
    Credentials { user: "USER".to_owned(), password: "secret".to_owned() }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    LoggedIn(u64, bool),
    Message(u64, Vec<u8>),
    Missing(u64, u64),
    Ended(SoupInitiatorEnd),
}

struct World {
    client: SoupInitiator,
    server: SoupAcceptor,
    line: Option<u64>,
    now_ns: u64,
    seen: Vec<Seen>,
    orders: Vec<Vec<u8>>,
}

fn note(seen: &mut Vec<Seen>, event: SoupEvent<'_>) {
    seen.push(match event {
        SoupEvent::LoggedIn { place, is_new_session } => Seen::LoggedIn(place.next, is_new_session),
        SoupEvent::Message { number, message } => Seen::Message(number, message.to_vec()),
        SoupEvent::Missing { first, count } => Seen::Missing(first, count),
        SoupEvent::Ended(end) => Seen::Ended(end),
        other => panic!("{other:?}"),
    });
}

impl World {
    fn new(place: SoupPlace) -> Self {
        Self {
            client: SoupInitiator::new(SoupInitiatorSettings::new(credentials()), place).unwrap(),
            server: SoupAcceptor::new(credentials(), *SESSION, 1 << 20),
            line: None,
            now_ns: SECOND_NS,
            seen: Vec::new(),
            orders: Vec::new(),
        }
    }

    fn open(&mut self) {
        if self.client.wants(self.now_ns) {
            self.line = Some(self.server.open(self.now_ns));
            self.client.connected(self.now_ns);
        }
    }

    fn carry(&mut self, most: usize) -> bool {
        let Some(line) = self.line else { return false };
        let (seen, orders) = (&mut self.seen, &mut self.orders);
        let up = self.client.output()[..self.client.output().len().min(most)].to_vec();
        self.client.sent(up.len(), self.now_ns, |event| note(seen, event));
        if !up.is_empty() {
            self.server.receive(line, &up, self.now_ns, |order| orders.push(order.to_vec()));
        }
        let down = self.server.output(line)[..self.server.output(line).len().min(most)].to_vec();
        self.server.sent(line, down.len(), self.now_ns);
        if !down.is_empty() {
            self.client.receive(&down, self.now_ns, |event| note(seen, event));
        }
        if self.client.over().is_some() || self.server.over(line).is_some() {
            self.cut();
        }
        !up.is_empty() || !down.is_empty()
    }

    fn cut(&mut self) {
        let Some(line) = self.line.take() else { return };
        let seen = &mut self.seen;
        self.server.closed(line);
        self.client.closed(self.now_ns, |event| note(seen, event));
    }

    fn tick(&mut self) {
        let seen = &mut self.seen;
        self.client.tick(self.now_ns, |event| note(seen, event));
        self.server.tick(self.now_ns);
        if self.line.is_some_and(|line| self.client.over().is_some() || self.server.over(line).is_some()) {
            self.cut();
        }
    }

    fn settle(&mut self) {
        loop {
            self.tick();
            self.open();
            if !self.carry(usize::MAX) {
                return;
            }
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now_ns += SECOND_NS;
            self.settle();
        }
    }

    fn send(&mut self, number: u64) {
        self.server.send(&number.to_be_bytes(), self.now_ns);
    }

    /// Each message of the session, once and in order.
    fn numbers(&self) -> Vec<u64> {
        let messages = self.seen.iter().filter_map(|seen| match seen {
            Seen::Message(number, message) => {
                assert_eq!(message[..], number.to_be_bytes());
                Some(*number)
            }
            _ => None,
        });
        messages.collect()
    }
}

#[test]
fn orders_go_in_and_their_answers_come_out_from_the_first() {
    let mut world = World::new(SoupPlace::default());
    world.send(1);
    assert_eq!(world.client.send(b"order", world.now_ns), Err(SoupSendError::NotLoggedIn));
    world.settle();
    world.client.send(b"order", world.now_ns).unwrap();
    assert_eq!(world.client.send(&[0; 254], world.now_ns), Err(SoupSendError::Length { length: 254 }));
    world.settle();
    world.send(2);
    world.settle();
    assert_eq!((world.numbers(), world.orders.clone()), (vec![1, 2], vec![b"order".to_vec()]));
    assert_eq!(world.client.place(), SoupPlace { session: *SESSION, next: 3 });
    assert_eq!((world.client.counters().sent, world.client.counters().refused), (1, 2));
}

#[test]
fn a_client_goes_on_where_it_was_and_names_what_is_not_kept() {
    let mut world = World::new(SoupPlace { session: *SESSION, next: 4 });
    (1..=5).for_each(|number| world.send(number));
    world.settle();
    assert_eq!(world.numbers(), [4, 5]);

    let mut world = World::new(SoupPlace::default());
    world.server = SoupAcceptor::new(credentials(), *SESSION, 2_000);
    (1..=500).for_each(|number| world.send(number));
    world.settle();
    let first = world.numbers()[0];
    assert!(first > 1);
    assert!(world.seen.contains(&Seen::Missing(1, first - 1)));
    assert_eq!(world.numbers(), (first..=500).collect::<Vec<_>>());
    assert_eq!(world.client.counters().missing, first - 1);
}

#[test]
fn another_session_is_taken_from_its_start_after_the_old_one_is_rejected() {
    let mut world = World::new(SoupPlace { session: *b"YESTERDAY ", next: 77 });
    (1..=3).for_each(|number| world.send(number));
    world.settle();
    let rejected = SoupInitiatorEnd::Rejected(RejectReasonCode::SessionNotAvailable);
    assert_eq!(world.seen, [Seen::Ended(rejected)]);
    world.pass(2);
    assert_eq!(world.seen[1], Seen::LoggedIn(1, true));
    assert_eq!(world.numbers(), [1, 2, 3]);
}

#[test]
fn both_sides_send_heartbeats_and_notice_a_dead_other() {
    let mut world = World::new(SoupPlace::default());
    world.pass(60);
    assert!(world.client.is_logged_in() && world.server.is_logged_in());
    for _ in 0..15 {
        world.now_ns += SECOND_NS;
        let seen = &mut world.seen;
        world.client.tick(world.now_ns, |event| note(seen, event));
        world.server.tick(world.now_ns);
    }
    assert_eq!(world.seen.last(), Some(&Seen::Ended(SoupInitiatorEnd::TimedOut)));
    assert_eq!(world.server.over(world.line.unwrap()), Some(SoupEnd::TimedOut));
    assert!(!world.server.is_logged_in());
}

#[test]
fn a_second_login_takes_the_place_of_the_first_and_a_wrong_one_does_not() {
    let mut world = World::new(SoupPlace::default());
    world.settle();
    let first = world.line.unwrap();
    let wrong = Credentials { password: "wrong".to_owned(), ..credentials() };
    for (credentials, displaced) in [(wrong, None), (credentials(), Some(SoupEnd::Displaced))] {
        let mut second =
            SoupInitiator::new(SoupInitiatorSettings::new(credentials), SoupPlace::default()).unwrap();
        let line = world.server.open(world.now_ns);
        second.connected(world.now_ns);
        world.server.receive(line, second.output(), world.now_ns, |_| panic!("no order"));
        assert_eq!(world.server.over(first), displaced);
    }
    assert_eq!((world.server.displaced(), world.server.is_logged_in()), (1, true));
}

#[test]
fn a_logout_and_the_end_of_the_session_end_the_connection() {
    let mut world = World::new(SoupPlace::default());
    world.settle();
    world.client.logout(world.now_ns);
    world.settle();
    assert_eq!(world.seen.last(), Some(&Seen::Ended(SoupInitiatorEnd::LoggedOut)));
    world.pass(3);
    assert!(!world.client.wants(world.now_ns) && !world.server.is_logged_in());
    world.client.resume();
    world.settle();
    world.send(1);
    world.server.end_session(world.now_ns);
    world.settle();
    assert_eq!(world.seen.last(), Some(&Seen::Ended(SoupInitiatorEnd::EndOfSession)));
    assert_eq!(world.numbers(), [1]);
}

#[test]
fn credentials_that_do_not_fit_are_refused_at_the_start() {
    for (user, password) in [("TOOLONG", "x"), ("x", "01234567890"), ("\n", "x")] {
        let credentials = Credentials { user: user.to_owned(), password: password.to_owned() };
        assert!(SoupInitiator::new(SoupInitiatorSettings::new(credentials), SoupPlace::default()).is_err());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send,
    Order,
    Carry(usize),
    Cut,
    Disconnect,
    Pass(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Send),
        3 => Just(Step::Order),
        8 => (1usize..120).prop_map(Step::Carry),
        1 => Just(Step::Cut),
        1 => Just(Step::Disconnect),
        2 => (1u64..2_000).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn each_message_comes_once_and_in_order_through_cuts_breaks_and_restarts(
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(SoupPlace::default());
        let (mut sent, mut orders) = (0u64, 0u64);
        for step in steps {
            match step {
                Step::Send => {
                    sent += 1;
                    world.send(sent);
                }
                Step::Order => {
                    if world.client.send(&orders.to_be_bytes(), world.now_ns).is_ok() {
                        orders += 1;
                    }
                }
                Step::Carry(most) => {
                    world.open();
                    world.carry(most);
                }
                Step::Cut => world.cut(),
                Step::Disconnect => world.server.disconnect(),
                Step::Pass(milliseconds) => {
                    world.now_ns += milliseconds * 1_000_000;
                    world.tick();
                }
                Step::Restart => {
                    let place = world.client.place();
                    world.cut();
                    world.client =
                        SoupInitiator::new(SoupInitiatorSettings::new(credentials()), place).unwrap();
                }
            }
        }
        world.pass(90);
        prop_assert_eq!(world.numbers(), (1..=sent).collect::<Vec<_>>());
        // Orders may be lost with a connection, but come once and in order.
        let came: Vec<u64> =
            world.orders.iter().map(|order| u64::from_be_bytes(order[..].try_into().unwrap())).collect();
        prop_assert!(came.is_sorted_by(|one, other| one < other));
    }

    #[test]
    fn hostile_bytes_end_a_connection_and_nothing_else(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        is_logged_in in any::<bool>(),
    ) {
        let mut world = World::new(SoupPlace::default());
        if is_logged_in {
            world.settle();
        } else {
            world.open();
        }
        for chunk in &chunks {
            if let Some(line) = world.line {
                world.server.receive(line, chunk, world.now_ns, |_| {});
            }
            world.client.receive(chunk, world.now_ns, |_| {});
        }
        world.cut();
        world.pass(90);
        prop_assert!(world.client.is_logged_in());
    }
}
