//! Both ends of the native session against each other: each rule, and reports through a wire that cuts bytes and breaks.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use tapeworks_order_session::native::{
    Channel, Client, ClientSettings, ConnectionId, End, Event, Input, RecoverySettings, SendError, Sent,
    Server, ServerSettings, User, UserId, reject_code,
};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::{
    AppId, AppStatus, ExecutionReport, Logon, Message, MissedMessageAckType, MissedMessageRequestAck,
    MissedMessageRequestAckFields, OrderCancelRequest, OrderCancelRequestFields, START_OF_MESSAGE, Side,
    message_length,
};
use tapeworks_wire::millennium::variant::{LSE, Variant};

const SECOND_NS: u64 = 1_000_000_000;

const FEW: Variant = Variant { partitions: 2, throttle_per_second: 50, ..LSE };

/// What a client saw, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    LoggedOn(Channel),
    PasswordChanged,
    Report(u8, u32),
    Missing(u8, u32, u32),
    Rejected(i32),
    Status(u8, AppStatus),
    Unsent(Vec<u8>),
    Unanswered(u8),
    UnknownAppId(u8),
    Ended(Channel, End),
}

/// A client, a server, and a wire between them.
struct World {
    client: Client,
    server: Server,
    now_ns: u64,
    lines: [Option<ConnectionId>; 2],
    seen: Vec<Seen>,
    /// Messages that the exchange got, and what it was notified of.
    inputs: Vec<String>,
    /// Pieces from the client on the recovery channel that the venue takes and does not heed.
    unheeded: u32,
}

fn index(channel: Channel) -> usize {
    usize::from(channel == Channel::Recovery)
}

fn settings() -> ClientSettings {
    ClientSettings {
        variant: FEW,
        user: "USER".to_owned(),
        password: "secret".to_owned(),
        ..ClientSettings::default()
    }
}

fn note(seen: &mut Vec<Seen>, event: Event<'_>) {
    seen.push(match event {
        Event::LoggedOn { channel, .. } => Seen::LoggedOn(channel),
        Event::PasswordChanged => Seen::PasswordChanged,
        Event::Report { app_id, number, message } => {
            let Ok(Message::ExecutionReport(report)) = Message::decode(message) else { panic!("no report") };
            assert_eq!((report.app_id().raw(), report.sequence_no()), (app_id, number as i32));
            Seen::Report(app_id, number)
        }
        Event::Missing { app_id, first, count } => Seen::Missing(app_id, first, count),
        Event::CaughtUp { .. } => return,
        Event::Rejected(reject) => Seen::Rejected(reject.reject_code()),
        Event::SystemStatus { app_id, status } => Seen::Status(app_id, status),
        Event::Unsent(message) => Seen::Unsent(message.to_vec()),
        Event::Unanswered { app_id } => Seen::Unanswered(app_id),
        Event::UnknownAppId { app_id } => Seen::UnknownAppId(app_id),
        Event::Ended { channel, end } => Seen::Ended(channel, end),
        other => panic!("{other:?}"),
    });
}

fn input(inputs: &mut Vec<String>, found: Input<'_>) {
    inputs.push(match found {
        Input::LoggedOn { .. } => "on".to_owned(),
        Input::Message { message, .. } => message.name().to_owned(),
        Input::Gone { cancels_orders, end, .. } => format!("gone {cancels_orders} {end:?}"),
        other => panic!("{other:?}"),
    });
}

impl World {
    fn new(client: ClientSettings, server: ServerSettings, user: User) -> Self {
        Self {
            client: Client::new(client).unwrap(),
            server: Server::new(server, vec![user]),
            now_ns: SECOND_NS,
            lines: [None; 2],
            seen: Vec::new(),
            inputs: Vec::new(),
            unheeded: 0,
        }
    }

    fn plain() -> Self {
        let server = ServerSettings { variant: FEW, ..ServerSettings::default() };
        Self::new(settings(), server, User::new("USER", "secret", &FEW))
    }

    /// A report of partition 1 is lost, and the request for it.
    fn with_an_unheeded_request() -> Self {
        let mut world = Self::plain();
        world.settle();
        world.seen.clear();
        world.lost_report(1);
        world.report(1);
        world.unheeded = 1;
        world.settle();
        world
    }

    fn open(&mut self) {
        for channel in Channel::ALL {
            if self.client.wants(channel, self.now_ns) {
                self.lines[index(channel)] = Some(self.server.open(channel, self.now_ns));
                self.client.connected(channel, self.now_ns);
            }
        }
    }

    /// Moves up to `most` bytes each way on each line. Returns whether any moved.
    fn carry(&mut self, most: usize) -> bool {
        let mut has_moved = false;
        for channel in Channel::ALL {
            let Some(id) = self.lines[index(channel)] else { continue };
            let out = self.client.output(channel);
            let bytes = out[..out.len().min(most)].to_vec();
            let (inputs, seen) = (&mut self.inputs, &mut self.seen);
            self.client.sent(channel, bytes.len(), self.now_ns, |event| note(seen, event));
            if !bytes.is_empty() {
                if channel == Channel::Recovery && self.unheeded > 0 {
                    self.unheeded -= 1;
                } else {
                    self.server.receive(id, &bytes, self.now_ns, |found| input(inputs, found));
                }
                has_moved = true;
            }
            let out = self.server.output(id);
            let bytes = out[..out.len().min(most)].to_vec();
            self.server.sent(id, bytes.len(), self.now_ns);
            if !bytes.is_empty() {
                let seen = &mut self.seen;
                self.client.receive(channel, &bytes, self.now_ns, |event| note(seen, event));
                has_moved = true;
            }
        }
        self.reap();
        has_moved
    }

    fn reap(&mut self) {
        for channel in Channel::ALL {
            let Some(id) = self.lines[index(channel)] else { continue };
            let is_over = self.client.over(channel).is_some() || self.server.over(id).is_some();
            if is_over {
                self.cut(channel);
            }
        }
    }

    /// The line breaks: what was under way is lost.
    fn cut(&mut self, channel: Channel) {
        let Some(id) = self.lines[index(channel)].take() else { return };
        let (inputs, seen) = (&mut self.inputs, &mut self.seen);
        self.server.closed(id, |found| input(inputs, found));
        self.client.closed(channel, self.now_ns, |event| note(seen, event));
    }

    fn tick(&mut self) {
        let (inputs, seen) = (&mut self.inputs, &mut self.seen);
        self.client.tick(self.now_ns, |event| note(seen, event));
        self.server.tick(self.now_ns, |found| input(inputs, found));
        self.reap();
    }

    /// Lets everything go its way until nothing moves.
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

    fn report(&mut self, app_id: u8) {
        let inputs = &mut self.inputs;
        let mut report = report();
        self.server
            .report(UserId(0), app_id, &mut report, self.now_ns, |found| input(inputs, found))
            .unwrap();
    }

    /// A report is made, and lost on the real-time channel.
    fn lost_report(&mut self, app_id: u8) {
        self.report(app_id);
        let id = self.lines[index(Channel::RealTime)].unwrap();
        let bytes = self.server.output(id).len();
        self.server.sent(id, bytes, self.now_ns);
    }

    fn behind(&self) -> Vec<u8> {
        self.client.behind().collect()
    }

    fn reports(&self) -> BTreeMap<u8, Vec<u32>> {
        let mut all: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
        for seen in &self.seen {
            if let Seen::Report(app_id, number) = seen {
                all.entry(*app_id).or_default().push(*number);
            }
        }
        all
    }
}

fn report() -> [u8; ExecutionReport::LENGTH] {
    let mut bytes = [0; ExecutionReport::LENGTH];
    bytes[0] = 2;
    bytes[1..3].copy_from_slice(&message_length(ExecutionReport::LENGTH).to_le_bytes());
    bytes[3] = b'8';
    bytes
}

fn cancel(number: u32) -> [u8; OrderCancelRequest::LENGTH] {
    OrderCancelRequestFields {
        start_of_message: 2,
        message_length: message_length(OrderCancelRequest::LENGTH),
        client_order_id: Ascii::new(&format!("C{number}")).unwrap(),
        original_client_order_id: Ascii::default(),
        order_id: Ascii::default(),
        instrument_id: 1,
        reserved_1: [0],
        second_reserved_1: [0],
        side: Side::Buy,
        rfq_id: Ascii::default(),
    }
    .encode()
}

#[test]
fn a_client_logs_on_to_the_real_time_channel_and_then_to_the_recovery_channel() {
    let mut world = World::plain();
    assert!(!world.client.wants(Channel::Recovery, world.now_ns));
    world.settle();
    assert_eq!(world.seen, [Seen::LoggedOn(Channel::RealTime), Seen::LoggedOn(Channel::Recovery)]);
    assert!(world.client.is_logged_on() && world.client.is_caught_up());
    assert_eq!(world.inputs, ["on"]);
    assert_eq!(world.server.counters().requests, 3, "App IDs 0 to 2");
}

#[test]
fn a_request_without_an_answer_is_made_again_and_holds_up_no_other_partition() {
    let mut world = World::with_an_unheeded_request();
    assert_eq!((world.behind(), world.client.is_caught_up()), (vec![1], false));
    // The other partition goes on.
    world.report(2);
    world.settle();
    assert_eq!(world.seen, [Seen::Report(2, 1)]);
    world.pass(4);
    assert_eq!(world.seen.len(), 1, "it has five seconds");
    world.pass(3);
    assert_eq!(
        world.seen[1..],
        [
            Seen::Unanswered(1),
            Seen::Ended(Channel::Recovery, End::NoAnswer),
            Seen::LoggedOn(Channel::Recovery),
            Seen::Report(1, 1),
            Seen::Report(1, 2),
        ]
    );
    assert_eq!((world.behind(), world.client.is_caught_up()), (vec![], true));
    assert_eq!(world.client.counters().requests_unanswered, 1);
}

#[test]
fn a_partition_whose_reports_have_come_is_not_complete_because_the_venue_denies_it() {
    let mut world = World::with_an_unheeded_request();
    let denied = MissedMessageRequestAckFields {
        start_of_message: START_OF_MESSAGE,
        message_length: message_length(MissedMessageRequestAck::LENGTH),
        response_type: MissedMessageAckType::InvalidAppId,
    };
    let World { client, seen, now_ns, .. } = &mut world;
    client.receive(Channel::Recovery, &denied.encode(), *now_ns, |event| note(seen, event));
    assert_eq!((&world.seen[..], world.behind()), (&[Seen::UnknownAppId(1)][..], vec![1]));
    // It is asked again.
    world.pass(3);
    assert_eq!(world.seen[1..], [Seen::Report(1, 1), Seen::Report(1, 2)]);
    assert!(world.client.is_caught_up());
}

#[test]
fn a_request_without_an_answer_gives_way_to_those_of_other_partitions() {
    let mut world = World::plain();
    world.settle();
    world.seen.clear();
    [1, 2].into_iter().for_each(|app_id| world.lost_report(app_id));
    [1, 2].into_iter().for_each(|app_id| world.report(app_id));
    world.unheeded = 1;
    world.settle();
    assert_eq!(world.behind(), [1, 2]);
    world.pass(8);
    let reports = |app_id| [1, 2].map(|number| Seen::Report(app_id, number));
    let ends = [Seen::Unanswered(1), Seen::Ended(Channel::Recovery, End::NoAnswer)];
    let expected = [&ends[..], &[Seen::LoggedOn(Channel::Recovery)], &reports(2), &reports(1)].concat();
    assert_eq!(world.seen, expected);
    assert!(world.client.is_caught_up());
}

#[test]
fn orders_pass_once_the_venue_answers_though_the_first_requests_after_a_logon_were_lost() {
    let mut world = World::plain();
    world.settle();
    world.report(1);
    world.settle();
    for channel in Channel::ALL {
        world.cut(channel);
    }
    world.report(1);
    world.pass(2);
    assert!(world.client.is_caught_up());
    for channel in Channel::ALL {
        world.cut(channel);
    }
    world.report(1);
    world.now_ns += 2 * SECOND_NS;
    world.tick();
    world.open();
    // The logons go out, and the first request after them is lost.
    while world.client.counters().requests < 7 {
        assert!(world.carry(usize::MAX));
        world.open();
    }
    world.unheeded = 1;
    world.settle();
    assert!(!world.client.is_caught_up());
    world.pass(8);
    assert!(world.client.is_caught_up(), "{:?}", world.seen);
    assert_eq!(world.reports()[&1], [1, 2, 3]);
}

#[test]
fn wrong_passwords_and_second_logons_are_rejected_and_tried_again_later() {
    let wrong = ClientSettings { password: "wrong".to_owned(), ..settings() };
    let server = ServerSettings { variant: FEW, ..ServerSettings::default() };
    let mut world = World::new(wrong, server, User::new("USER", "secret", &FEW));
    world.settle();
    let end = Seen::Ended(Channel::RealTime, End::Rejected(reject_code::NOT_AUTHORISED));
    assert_eq!(world.seen, [end]);
    assert!(!world.client.wants(Channel::RealTime, world.now_ns));
    assert!(world.client.wants(Channel::RealTime, world.now_ns + SECOND_NS));

    let mut world = World::plain();
    world.settle();
    let mut second = Client::new(settings()).unwrap();
    let id = world.server.open(Channel::RealTime, world.now_ns);
    second.connected(Channel::RealTime, world.now_ns);
    world.server.receive(id, second.output(Channel::RealTime), world.now_ns, |_| panic!("no input"));
    let mut seen = Vec::new();
    second.receive(Channel::RealTime, world.server.output(id), world.now_ns, |event| note(&mut seen, event));
    assert_eq!(seen, [Seen::Ended(Channel::RealTime, End::Rejected(reject_code::ALREADY_LOGGED_ON))]);
    assert!(world.client.is_logged_on());
}

#[test]
fn a_second_logon_ends_the_first_where_the_venue_does_so() {
    let server = ServerSettings { variant: FEW, rejects_second_logon: false, ..ServerSettings::default() };
    let mut world = World::new(settings(), server, User::new("USER", "secret", &FEW));
    world.settle();
    let mut second = Client::new(settings()).unwrap();
    let id = world.server.open(Channel::RealTime, world.now_ns);
    second.connected(Channel::RealTime, world.now_ns);
    let inputs = &mut world.inputs;
    world.server.receive(id, second.output(Channel::RealTime), world.now_ns, |found| input(inputs, found));
    assert_eq!(world.inputs, ["on", "gone true Displaced", "on"]);
    assert!(world.server.is_logged_on(UserId(0), Channel::RealTime));
}

#[test]
fn an_expired_password_must_be_changed_and_the_new_one_counts_from_then_on() {
    let server = ServerSettings { variant: FEW, ..ServerSettings::default() };
    let user = User { must_change_password: true, ..User::new("USER", "secret", &FEW) };
    let mut world = World::new(settings(), server.clone(), user.clone());
    world.settle();
    assert_eq!(world.seen, [Seen::Ended(Channel::RealTime, End::Rejected(reject_code::PASSWORD_EXPIRED))]);
    let changing = ClientSettings { new_password: Some("better".to_owned()), ..settings() };
    let mut world = World::new(changing, server, user);
    world.settle();
    assert_eq!(world.seen[..2], [Seen::PasswordChanged, Seen::LoggedOn(Channel::RealTime)]);
    assert_eq!(world.seen[2], Seen::LoggedOn(Channel::Recovery), "with the new password");
    let id = world.server.open(Channel::RealTime, world.now_ns);
    let mut old = Client::new(settings()).unwrap();
    old.connected(Channel::RealTime, world.now_ns);
    world.server.receive(id, old.output(Channel::RealTime), world.now_ns, |_| {});
    assert_eq!(world.server.counters().logons_rejected, 1);
}

#[test]
fn a_client_takes_a_password_that_its_caller_did_not_have_before() {
    let user = User { must_change_password: true, ..User::new("USER", "secret", &FEW) };
    let changing = ClientSettings { new_password: Some("better".to_owned()), ..settings() };
    let mut world = World::new(changing, ServerSettings { variant: FEW, ..ServerSettings::default() }, user);
    world.settle();
    let shown = |client: &mut Client| {
        client.connected(Channel::RealTime, 0);
        let output = client.output(Channel::RealTime);
        let Ok(Message::Logon(logon)) = Message::decode(&output[output.len() - Logon::LENGTH..]) else {
            panic!("{output:?}")
        };
        String::from_utf8_lossy(logon.password().trimmed()).into_owned()
    };
    // The caller still has the one of before the change.
    world.client.set_password("secret").unwrap();
    assert_eq!(shown(&mut world.client), "better");
    world.client.set_password("of a year later").unwrap();
    assert_eq!(shown(&mut world.client), "of a year later");
    assert!(world.client.set_password(&"x".repeat(26)).is_err());
    assert_eq!(shown(&mut world.client), "of a year later");
}

#[test]
fn names_that_do_not_fit_are_refused_at_the_start() {
    let long = "x".repeat(26);
    assert!(Client::new(ClientSettings { user: long.clone(), ..settings() }).is_err());
    assert!(Client::new(ClientSettings { password: long.clone(), ..settings() }).is_err());
    assert!(Client::new(ClientSettings { new_password: Some(long), ..settings() }).is_err());
}

#[test]
fn anything_but_a_logon_first_is_rejected_and_the_connection_ends() {
    let mut world = World::plain();
    let id = world.server.open(Channel::RealTime, world.now_ns);
    world.server.receive(id, &cancel(1), world.now_ns, |_| panic!("no input"));
    let Ok(Message::Reject(reject)) = Message::decode(world.server.output(id)) else { panic!("no reject") };
    assert_eq!(reject.reject_code(), reject_code::NOT_LOGGED_ON);
    assert_eq!(reject.rejected_message_type(), Ascii(*b"F"));
    let waiting = world.server.output(id).len();
    world.server.sent(id, waiting, world.now_ns);
    assert_eq!(world.server.over(id), Some(End::Malformed));
}

#[test]
fn heartbeats_keep_a_silent_session_and_a_dead_side_is_noticed_after_five() {
    let mut world = World::plain();
    world.settle();
    world.pass(60);
    assert!(world.client.is_logged_on() && world.inputs == ["on"]);
    // Nothing is carried any more.
    for _ in 0..15 {
        world.now_ns += SECOND_NS;
        world.tick();
    }
    assert!(world.seen.contains(&Seen::Ended(Channel::RealTime, End::TimedOut)), "{:?}", world.seen);
    assert_eq!(world.inputs.last().unwrap(), "gone true TimedOut", "both ends notice it");

    let mut world = World::plain();
    world.settle();
    for _ in 0..15 {
        world.now_ns += SECOND_NS;
        let inputs = &mut world.inputs;
        world.server.tick(world.now_ns, |found| input(inputs, found));
    }
    assert_eq!(world.inputs, ["on", "gone true TimedOut"]);
}

#[test]
fn a_client_that_does_not_log_on_and_a_venue_that_does_not_answer_are_given_up() {
    let mut world = World::plain();
    let id = world.server.open(Channel::RealTime, world.now_ns);
    world.client.connected(Channel::RealTime, world.now_ns);
    world.now_ns += 10 * SECOND_NS;
    world.server.tick(world.now_ns, |_| panic!("no user"));
    assert_eq!(world.server.over(id), Some(End::NoLogon));
    let seen = &mut world.seen;
    world.client.tick(world.now_ns, |event| note(seen, event));
    assert_eq!(world.seen, [Seen::Ended(Channel::RealTime, End::NoLogon)]);
}

#[test]
fn a_logout_is_answered_and_nothing_is_opened_again_until_the_caller_resumes() {
    let mut world = World::plain();
    world.settle();
    world.client.logout("end of day", world.now_ns);
    assert_eq!(world.client.send(&cancel(1), world.now_ns), Err(SendError::NotLoggedOn));
    world.settle();
    world.pass(5);
    assert!(world.seen.contains(&Seen::Ended(Channel::RealTime, End::LoggedOut)));
    assert_eq!(
        (world.inputs.last().unwrap().as_str(), world.client.counters().breaks),
        ("gone true LoggedOut", 0)
    );
    assert_eq!(world.lines, [None, None]);
    world.client.resume();
    world.pass(5);
    assert!(world.client.is_logged_on());
}

#[test]
fn orders_over_the_rate_wait_in_a_queue_and_then_the_caller_is_refused() {
    let client = ClientSettings { queue_messages: 3, ..settings() };
    let server = ServerSettings { variant: FEW, ..ServerSettings::default() };
    let mut world = World::new(client, server, User::new("USER", "secret", &FEW));
    world.settle();
    for number in 0..50 {
        assert_eq!(world.client.send(&cancel(number), world.now_ns), Ok(Sent::Now));
    }
    for before in 0..3 {
        assert_eq!(world.client.send(&cancel(before as u32), world.now_ns), Ok(Sent::Queued { before }));
    }
    assert_eq!(world.client.send(&cancel(9), world.now_ns), Err(SendError::Throttled { waiting: 3 }));
    world.settle();
    assert_eq!(world.server.counters().messages, 50);
    assert_eq!(world.client.due_ns(), world.now_ns + SECOND_NS);
    world.pass(1);
    assert_eq!((world.server.counters().messages, world.client.queued()), (53, 0));
    assert_eq!(world.server.counters().throttled, 0);

    // What waits when the connection breaks is handed back.
    for number in 0..49 {
        world.client.send(&cancel(number), world.now_ns).unwrap();
    }
    world.cut(Channel::RealTime);
    assert!(world.seen.contains(&Seen::Unsent(cancel(47).to_vec())));
    assert_eq!(world.client.counters().unsent, 2);
}

#[test]
fn a_user_over_the_throttle_rate_is_rejected_and_disconnected() {
    for disconnects in [true, false] {
        let client = ClientSettings { variant: Variant { throttle_per_second: 0, ..FEW }, ..settings() };
        let server = ServerSettings {
            variant: FEW,
            disconnects_over_throttle: disconnects,
            ..ServerSettings::default()
        };
        let mut world = World::new(client, server, User::new("USER", "secret", &FEW));
        world.settle();
        for number in 0..51 {
            assert_eq!(world.client.send(&cancel(number), world.now_ns), Ok(Sent::Now));
        }
        world.carry(usize::MAX);
        world.carry(usize::MAX);
        assert!(world.seen.contains(&Seen::Rejected(reject_code::THROTTLED)));
        let is_gone = world.inputs.contains(&"gone true OverThrottle".to_owned());
        assert_eq!((is_gone, world.client.is_logged_on()), (disconnects, !disconnects));
        assert_eq!(world.server.counters().messages, 50);
    }
}

#[test]
fn reports_of_the_time_before_a_logon_are_recovered_in_order() {
    let mut world = World::plain();
    for _ in 0..1_250 {
        world.report(1);
        world.report(2);
    }
    world.settle();
    let expected: Vec<u32> = (1..=1_250).collect();
    assert_eq!(world.reports(), BTreeMap::from([(1, expected.clone()), (2, expected)]));
    assert!(world.server.counters().requests > 3, "1,000 reports a request");
    world.report(1);
    world.settle();
    assert_eq!(world.reports()[&1].last(), Some(&1_251));
    assert_eq!(world.client.last_numbers().collect::<Vec<_>>(), [(0, 0), (1, 1_251), (2, 1_250)]);
}

#[test]
fn a_restart_recovers_from_the_last_handled_number() {
    let mut world = World::plain();
    (0..10).for_each(|_| world.report(1));
    world.client.restore(1, 7, 0);
    world.settle();
    assert_eq!(world.reports(), BTreeMap::from([(1, vec![8, 9, 10])]));
}

#[test]
fn a_gap_of_the_live_reports_is_recovered() {
    let mut world = World::plain();
    world.settle();
    world.report(1);
    let mut lost = report();
    assert_eq!(world.server.report_unsent(UserId(0), 1, &mut lost), Some(2));
    world.report(1);
    world.settle();
    assert_eq!(world.reports(), BTreeMap::from([(1, vec![1, 2, 3])]));
    assert_eq!(world.client.counters().reports.gaps, 1);
}

#[test]
fn an_unavailable_recovery_service_is_asked_again_when_it_resumes() {
    let mut world = World::plain();
    world.server.set_status(1, AppStatus::RecoveryServiceNotAvailable, 0);
    (0..3).for_each(|_| world.report(1));
    world.settle();
    assert!(world.reports().is_empty() && !world.client.is_caught_up());
    world.pass(2);
    assert!(world.client.counters().requests_refused >= 2, "it is requested again, later each time");
    world.server.set_status(1, AppStatus::RecoveryServiceResumed, world.now_ns);
    world.settle();
    assert!(world.seen.contains(&Seen::Status(1, AppStatus::RecoveryServiceResumed)));
    assert_eq!(world.reports(), BTreeMap::from([(1, vec![1, 2, 3])]));
}

#[test]
fn reports_that_the_venue_keeps_no_more_are_named_as_missing() {
    let server = ServerSettings { variant: FEW, kept_reports: 5, ..ServerSettings::default() };
    let mut world = World::new(settings(), server, User::new("USER", "secret", &FEW));
    (0..12).for_each(|_| world.report(1));
    assert_eq!(world.server.counters().not_kept, 7);
    world.settle();
    assert!(world.seen.contains(&Seen::Missing(1, 1, 7)), "{:?}", world.seen);
    assert_eq!(world.reports(), BTreeMap::from([(1, (8..=12).collect())]));
    assert!(world.client.is_caught_up());
}

#[test]
fn requests_over_the_limit_and_for_unknown_app_ids_are_refused() {
    let client = ClientSettings { variant: Variant { partitions: 5, ..FEW }, ..settings() };
    let server = ServerSettings { variant: FEW, requests_per_day: 1, ..ServerSettings::default() };
    let mut world = World::new(client, server, User::new("USER", "secret", &FEW));
    world.settle();
    assert!(world.client.is_caught_up(), "there is nothing to recover of unknown App IDs");
    assert_eq!(world.server.counters().requests_refused, 3);
    world.report(1);
    world.cut(Channel::Recovery);
    world.report(1);
    world.cut(Channel::RealTime);
    world.pass(3);
    assert!(!world.client.is_caught_up() && world.client.counters().requests_refused > 3);
}

#[test]
fn a_client_that_reads_too_slowly_is_disconnected_and_recovers() {
    let server = ServerSettings { variant: FEW, output_bytes: 1_000, ..ServerSettings::default() };
    let mut world = World::new(settings(), server, User::new("USER", "secret", &FEW));
    world.settle();
    (0..20).for_each(|_| world.report(2));
    assert_eq!(world.server.counters().too_slow, 1);
    assert_eq!(world.inputs.last().unwrap(), "gone true TooSlow");
    world.pass(5);
    assert_eq!(world.reports(), BTreeMap::from([(2, (1..=20).collect())]));
}

#[test]
fn messages_on_the_wrong_channel_and_of_no_client_are_rejected() {
    let mut world = World::plain();
    world.settle();
    for (channel, message, code) in [
        (Channel::Recovery, &cancel(1)[..], reject_code::WRONG_CHANNEL),
        (Channel::RealTime, &[2, 6, 0, b'M', 1, 0, 0, 0, 0], reject_code::WRONG_CHANNEL),
        (Channel::RealTime, &report(), reject_code::MALFORMED),
        (Channel::RealTime, &[2, 1, 0, b'~'], reject_code::MALFORMED),
    ] {
        let id = world.lines[index(channel)].unwrap();
        world.server.receive(id, message, world.now_ns, |_| panic!("no input"));
        let Ok(Message::Reject(reject)) = Message::decode(world.server.output(id)) else { panic!() };
        assert_eq!(reject.reject_code(), code);
        world.settle();
    }
    assert!(world.client.is_logged_on());
    assert_eq!(world.server.counters().rejects, 4);
}

#[test]
fn cancel_on_disconnect_is_a_property_of_the_user() {
    let server = ServerSettings { variant: FEW, ..ServerSettings::default() };
    let user = User { cancels_on_disconnect: false, ..User::new("USER", "secret", &FEW) };
    let mut world = World::new(settings(), server, user);
    world.settle();
    world.cut(Channel::RealTime);
    assert_eq!(world.inputs, ["on", "gone false Closed"]);
    assert_eq!(AppId::from_raw(1), AppId::Partition1);
}

#[derive(Debug, Clone)]
enum Step {
    Report(u8),
    Unsent(u8),
    Carry(usize),
    Cut(bool),
    Drop(bool),
    Pass(u64),
    Unavailable(u8, bool),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1u8..=2).prop_map(Step::Report),
        1 => (1u8..=2).prop_map(Step::Unsent),
        8 => (1usize..400).prop_map(Step::Carry),
        1 => any::<bool>().prop_map(Step::Cut),
        1 => any::<bool>().prop_map(Step::Drop),
        2 => (1u64..4_000).prop_map(Step::Pass),
        1 => (1u8..=2, any::<bool>()).prop_map(|(app_id, is_out)| Step::Unavailable(app_id, is_out)),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn each_report_comes_once_and_in_order_through_cuts_breaks_and_restarts(
        steps in prop::collection::vec(step(), 1..150),
        held_reports in 1usize..8,
        reports_per_request in 1u32..6,
        output_bytes in 400usize..4_000,
    ) {
        let recovery = RecoverySettings { held_reports, ..RecoverySettings::default() };
        let client = ClientSettings { recovery, ..settings() };
        let server = ServerSettings {
            variant: FEW, reports_per_request, output_bytes, ..ServerSettings::default()
        };
        let mut world = World::new(client.clone(), server, User::new("USER", "secret", &FEW));
        let mut sent = BTreeMap::from([(1u8, 0u32), (2, 0)]);
        for step in steps {
            let channel = |is_recovery| if is_recovery { Channel::Recovery } else { Channel::RealTime };
            match step {
                Step::Report(app_id) => {
                    world.report(app_id);
                    *sent.get_mut(&app_id).unwrap() += 1;
                }
                Step::Unsent(app_id) => {
                    world.server.report_unsent(UserId(0), app_id, &mut report()).unwrap();
                    *sent.get_mut(&app_id).unwrap() += 1;
                }
                Step::Carry(most) => {
                    world.open();
                    world.carry(most);
                }
                Step::Cut(is_recovery) => world.cut(channel(is_recovery)),
                Step::Drop(is_recovery) => {
                    let inputs = &mut world.inputs;
                    world.server.disconnect(UserId(0), channel(is_recovery), |found| input(inputs, found));
                }
                Step::Pass(milliseconds) => {
                    world.now_ns += milliseconds * 1_000_000;
                    world.tick();
                }
                Step::Unavailable(app_id, is_out) => {
                    let status = if is_out {
                        AppStatus::RecoveryServiceNotAvailable
                    } else {
                        AppStatus::RecoveryServiceResumed
                    };
                    world.server.set_status(app_id, status, world.now_ns);
                }
                Step::Restart => {
                    let saved: Vec<_> = world.client.last_numbers().collect();
                    Channel::ALL.into_iter().for_each(|channel| world.cut(channel));
                    world.client = Client::new(client.clone()).unwrap();
                    saved.into_iter().for_each(|(app_id, last)| world.client.restore(app_id, last, 0));
                }
            }
        }
        for app_id in 1..=2 {
            world.server.set_status(app_id, AppStatus::RecoveryServiceResumed, world.now_ns);
        }
        world.pass(60);
        // A report that was not sent is noticed at the next one.
        for app_id in 1..=2 {
            world.report(app_id);
            *sent.get_mut(&app_id).unwrap() += 1;
        }
        world.pass(120);
        let expected: BTreeMap<u8, Vec<u32>> =
            sent.into_iter().filter(|(_, last)| *last > 0).map(|(app_id, last)| (app_id, (1..=last).collect())).collect();
        prop_assert_eq!(world.reports(), expected);
        prop_assert!(world.client.is_caught_up());
        prop_assert_eq!(world.client.counters().reports.missing, 0);
    }

    #[test]
    fn hostile_bytes_end_a_connection_and_nothing_else(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        is_logged_on in any::<bool>(),
    ) {
        let mut world = World::plain();
        if is_logged_on {
            world.settle();
        } else {
            world.open();
        }
        for chunk in &chunks {
            for channel in Channel::ALL {
                if let Some(id) = world.lines[index(channel)] {
                    world.server.receive(id, chunk, world.now_ns, |_| {});
                }
                world.client.receive(channel, chunk, world.now_ns, |_| {});
            }
            world.tick();
        }
        world.now_ns += 100 * SECOND_NS;
        world.tick();
        for channel in Channel::ALL {
            world.cut(channel);
        }
        world.pass(120);
        prop_assert!(world.client.is_logged_on());
    }
}

#[test]
fn settings_that_are_printed_for_debugging_show_no_password() {
    let settings = ClientSettings {
        user: "me".to_owned(),
        password: "secret".to_owned(),
        new_password: Some("secret too".to_owned()),
        ..Default::default()
    };
    let text = format!("{settings:?}");
    assert!(text.contains("me") && !text.contains("secret"), "{text}");
}
