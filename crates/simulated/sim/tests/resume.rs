//! A client's replay that joins the present, at each place where it may: each record once, in order, as a later replay gives it.
//!
//! The history is small, and a client begins its replay when each number of events is published, while the others come one by one. The
//! moment of the join also depends on times and on the scheduling of threads; those are drawn, by seed, under several kinds of
//! schedules. The tests assert that the join happened at each place that there is.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use dbn::{MboMsg, SymbolMappingMsg, SystemMsg};
use tapeworks_capture::LinkType;
use tapeworks_capture::net;
use tapeworks_engine::EngineOptions;
use tapeworks_engine::checkpoint::Checkpoint;
use tapeworks_engine::history::MemoryHistory;
use tapeworks_feed::Application;
use tapeworks_feed::live::{Input, LiveChannelOptions};
use tapeworks_generator::{Packets, Scenario, Unit, VenueConfig, VenueKind};
use tapeworks_market::{BookOptions, Capacity, Event, EventKind, Line, Publisher};
use tapeworks_outputs::begin::Begin;
use tapeworks_outputs::clients::distributor::{Dataset, Options};
use tapeworks_outputs::clients::server::{self, ServerOptions};
use tapeworks_outputs::subscriber::{Records as _, SubscribeError, Subscriber, SubscriberOptions};
use tapeworks_ring::disruptor::Builder;
use tapeworks_ring::wait::Yielding;
use tapeworks_runtime::keys::{Key, Keys};
use tapeworks_runtime::waiting::WakeUp;
use tapeworks_runtime::world::World;
use tapeworks_sim::{
    RunOptions, Schedule, Simulated, TcpFaults, add_host, has_ended, panic_of, run, set_tcp, start,
};
use tapeworks_time::Nanos;

type W = Simulated;

/// The events of a case. Among them are two new instruments.
const EVENTS: usize = 20;

const KEY: &str = "db-0123456789abcdef0123456789abc";
const DATASET: &str = "ALL";
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 900;

fn books() -> BookOptions {
    let capacity = Capacity { instruments: 8, orders: 64, levels: 64 };
    BookOptions { feeds: vec![(Publisher::XNAS_ITCH, capacity)], capacity, ..BookOptions::default() }
}

/// The first events of a venue's day.
fn events() -> &'static [Event] {
    static FIRST: OnceLock<Vec<Event>> = OnceLock::new();
    FIRST.get_or_init(|| {
        let venues = vec![VenueConfig { kind: VenueKind::Nasdaq, share: 1, unit: Unit::WHOLE }];
        let scenario = Scenario { venues, seed: 5, ..Scenario::full_session(60, 2) };
        let channel = LiveChannelOptions {
            name: "nasdaq".to_owned(),
            application: Application::TotalViewItch50,
            publisher: Publisher::XNAS_ITCH,
            arbiter: Default::default(),
            snapshot: None,
        };
        let options = EngineOptions { channels: vec![channel], books: books(), ..EngineOptions::default() };
        let (mut state, mut events) = (Checkpoint::new(&options), Vec::new());
        let mut packets = Packets::new(&scenario).unwrap();
        while let Some(packet) = packets.next_packet() {
            let datagram = net::parse(LinkType::ETHERNET, packet.frame).unwrap();
            let (received, payload) = (Nanos(packet.timestamp_ns), datagram.payload);
            state.input(&Input::Packet { channel: 0, line: Line::A, received, payload }, &mut events);
        }
        // What makes no record here would only be between those that do.
        let has_record = |event: &Event| {
            !matches!(
                event.kind,
                EventKind::Other
                    | EventKind::Definition
                    | EventKind::Status
                    | EventKind::Imbalance
                    | EventKind::ImbalancePrices
            )
        };
        events.retain(has_record);
        events.truncate(EVENTS);
        events
    })
}

/// A client's behaviour.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Between two records.
    pace: Duration,
    /// It leaves after so many records, and another comes.
    leaves_after: Option<usize>,
}

/// A case.
#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    schedule: Schedule,
    /// Events that are published before the client comes.
    before: usize,
    /// Between two later ones.
    gap: Duration,
    /// From the last one until the ring is closed.
    closes_after: Duration,
    /// The event with whose time the replay begins; `None`: the present, without a replay.
    start: Option<usize>,
    reading: Reading,
    tcp: TcpFaults,
    /// The ring wakes the server. Otherwise the server looks from time to time.
    wakes: bool,
    /// The history has an event later than the ring by so long.
    history_lags: Duration,
}

impl Case {
    fn new(seed: u64, schedule: Schedule, before: usize, gap: Duration) -> Self {
        Self {
            seed,
            schedule,
            before,
            gap,
            closes_after: Duration::from_millis(150),
            start: Some(0),
            reading: Reading { pace: Duration::ZERO, leaves_after: None },
            tcp: TcpFaults::default(),
            wakes: true,
            history_lags: Duration::ZERO,
        }
    }
}

/// What a client has read.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Session {
    /// Records of the market.
    records: Vec<Vec<u8>>,
    /// The numbers of instruments, in the order in which they were named.
    named: Vec<u32>,
    /// Records before the replay was finished.
    finished_at: Option<usize>,
    /// Why it got nothing.
    refused: Option<String>,
    /// The server has ended the session.
    is_ended: bool,
}

impl Session {
    fn read(&mut self, subscriber: &mut Subscriber<W>, reading: Reading) {
        loop {
            if reading.leaves_after.is_some_and(|most| self.records.len() >= most) {
                return;
            }
            match subscriber.next_record() {
                Ok(Some(record)) => {
                    if let Some(mapping) = record.get::<SymbolMappingMsg>() {
                        self.named.push(mapping.hd.instrument_id);
                    } else if let Some(message) = record.get::<SystemMsg>() {
                        let is_finish = message.msg().unwrap().contains("Finished");
                        assert!(!is_finish || self.finished_at.is_none(), "it finishes once");
                        self.finished_at = self.finished_at.or(is_finish.then_some(self.records.len()));
                    } else {
                        let of = record.get::<MboMsg>().expect("nothing else was wanted").hd.instrument_id;
                        assert!(of == 0 || self.named.contains(&of), "{of} has a name");
                        self.records.push(record.as_ref().to_vec());
                        W::sleep(reading.pace);
                    }
                }
                Ok(None) => {
                    self.is_ended = true;
                    return;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn subscribe(start: Option<usize>) -> Result<Subscriber<W>, SubscribeError> {
    Subscriber::<W>::connect_in(&SubscriberOptions {
        address: SocketAddr::from((SERVER, PORT)),
        key: KEY.to_owned(),
        dataset: DATASET.to_owned(),
        schemas: vec!["mbo".to_owned()],
        symbols: Vec::new(),
        snapshot: false,
        start: start.map(|event| events()[event].ts_recv.0),
        slow_reader: None,
        ts_out: false,
        timeout: Some(Duration::from_secs(10)),
        patience: Duration::from_secs(10),
    })
}

/// A client that reads to the end of its session.
fn client(start: Option<usize>, reading: Reading) -> Session {
    let mut session = Session::default();
    match subscribe(start) {
        Ok(mut subscriber) => session.read(&mut subscriber, reading),
        Err(error) => session.refused = Some(error.to_string()),
    }
    session
}

/// What the threads of a case share.
#[derive(Default)]
struct Stage {
    /// The server listens, and has the events before the client.
    is_ready: AtomicBool,
    /// All events are published, and the client may have all of them.
    is_quiet: AtomicBool,
    sessions: Mutex<Vec<Session>>,
}

impl Stage {
    fn wait(flag: &AtomicBool) {
        while !flag.load(Ordering::Acquire) {
            W::sleep(Duration::from_micros(10));
        }
    }

    fn add(&self, session: Session) {
        self.sessions.lock().unwrap().push(session);
    }
}

/// The server, and the ring and the history that an engine would fill.
fn serve(case: Case, stage: &Stage) {
    let history = MemoryHistory::default();
    let options = Options {
        keys: Keys::new(vec![Key::new("sim", KEY).unwrap()]),
        datasets: vec![Dataset { name: DATASET.to_owned(), publishers: Vec::new() }],
        books: books(),
        // A client that has left makes room for the next.
        max_replays: 1,
        history: Some(Arc::new(history.clone())),
        ..Options::default()
    };
    let wake_up = case.wakes.then(|| Arc::new(WakeUp::<W>::default()));
    let begin = Begin { wake_up: wake_up.clone(), ..Begin::default() };
    let blank = Event::new(EventKind::Other, Default::default(), Default::default());
    // No event waits for room.
    let mut ring = Builder::new(EVENTS.next_power_of_two(), || blank, Yielding::default);
    let clients = ring.consumer("clients", &[]);
    let (mut producer, mut ends) = ring.single_producer();
    let address = SocketAddr::from((SERVER, PORT));
    let options = ServerOptions::<W> { begin, ..ServerOptions::new_in(address, options) };
    let listener = server::bind_in::<W>(address).unwrap();
    let server = server::start_on(listener, options, ends.take(clients).unwrap()).unwrap();
    let wake = || wake_up.iter().for_each(|wake_up| wake_up.wake());
    let mut publish = |event: &Event| {
        if case.history_lags.is_zero() {
            history.append(&[*event]);
        }
        producer.publish(|slot| *slot = *event).unwrap();
        wake();
        if !case.history_lags.is_zero() {
            W::sleep(case.history_lags);
            history.append(&[*event]);
        }
    };
    let (before, after) = events().split_at(case.before);
    before.iter().for_each(&mut publish);
    stage.is_ready.store(true, Ordering::Release);
    for event in after {
        W::sleep(case.gap);
        publish(event);
    }
    W::sleep(case.closes_after / 2);
    stage.is_quiet.store(true, Ordering::Release);
    W::sleep(case.closes_after / 2);
    drop(producer);
    wake();
    server.join().unwrap();
}

/// Plays a case. Returns the sessions: that of the client, and that of one which comes later, if there is time.
fn play(case: Case) -> Vec<Session> {
    assert_eq!(events().len(), EVENTS);
    let stage = Arc::new(Stage::default());
    let panics = Arc::new(Mutex::new(Vec::new()));
    let options = RunOptions {
        seed: case.seed,
        epoch_ns: 1_763_150_400_000_000_000,
        schedule: case.schedule,
        keeps_trace: false,
    };
    let ended = {
        let (stage, panics) = (Arc::clone(&stage), Arc::clone(&panics));
        run(&options, move || {
            let (server, other) = (add_host("server", SERVER), add_host("client", [10, 0, 0, 3].into()));
            set_tcp(case.tcp);
            let its = Arc::clone(&stage);
            let server = start(server, "server", move || serve(case, &its));
            let its = Arc::clone(&stage);
            let first = start(other, "client", move || {
                Stage::wait(&its.is_ready);
                its.add(client(case.start, case.reading));
                if case.reading.leaves_after.is_some() {
                    its.add(client(case.start, Reading { leaves_after: None, ..case.reading }));
                }
            });
            let its = Arc::clone(&stage);
            let is_short = case.closes_after < Duration::from_millis(100);
            let second = start(other, "later client", move || {
                Stage::wait(&its.is_quiet);
                if !is_short && case.start.is_some() {
                    let session = client(case.start, Reading { pace: Duration::ZERO, leaves_after: None });
                    its.add(session);
                }
            });
            let all = [server, first, second];
            while !all.iter().all(|process| has_ended(*process)) {
                W::sleep(Duration::from_millis(1));
            }
            panics.lock().unwrap().extend(all.iter().filter_map(|process| panic_of(*process)));
        })
    };
    let panics = std::mem::take(&mut *panics.lock().unwrap());
    assert!(panics.is_empty() && !ended.is_stuck, "{panics:?}: {case:?}");
    std::mem::take(&mut *stage.sessions.lock().unwrap())
}

/// The records of all events, as a client gets them that was there before the first, and has no replay.
fn live() -> &'static Session {
    static LIVE: OnceLock<Session> = OnceLock::new();
    LIVE.get_or_init(|| {
        let case = Case { start: None, ..Case::new(1, Schedule::default(), 0, Duration::from_millis(50)) };
        let session = play(case).remove(0);
        assert!(session.records.len() >= 6 && session.named.len() == 2 && session.is_ended, "{session:?}");
        assert_eq!((session.finished_at, &session.refused), (None, &None));
        session
    })
}

/// The same, from the time of an event on.
fn expected(start: usize) -> Vec<Vec<u8>> {
    let time = events()[start].ts_recv.0;
    let at = std::mem::offset_of!(MboMsg, ts_recv);
    let is_wanted = |record: &&Vec<u8>| u64::from_le_bytes(record[at..at + 8].try_into().unwrap()) >= time;
    live().records.iter().filter(is_wanted).cloned().collect()
}

/// A session has each record once, in order.
fn check(session: &Session, case: &Case) {
    let what = || format!("{session:?}: {case:?}");
    assert!(session.is_ended && session.refused.is_none(), "{}", what());
    assert!(session.records == expected(case.start.unwrap()), "{}", what());
    assert_eq!(session.named, live().named, "{}", what());
    assert!(session.finished_at.is_some(), "{}", what());
}

/// Threads that run at once, that are late, and that often lose their cores.
const SCHEDULES: [Schedule; 3] = [
    Schedule { preempted_per_million: 0, away_ns: 0, wake_ns: 1_000, spin_ns: 20_000 },
    Schedule { preempted_per_million: 1_000, away_ns: 200_000, wake_ns: 200_000, spin_ns: 50_000 },
    Schedule { preempted_per_million: 100_000, away_ns: 500_000, wake_ns: 20_000, spin_ns: 50_000 },
];

/// The numbers of records behind which a replay can join: not between two of one event.
fn places() -> BTreeSet<usize> {
    let records = &live().records;
    let at = std::mem::offset_of!(MboMsg, sequence);
    let sequence = |record: &Vec<u8>| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
    let is_one = |place: usize| sequence(&records[place - 1]) == sequence(&records[place]);
    (0..=records.len()).filter(|place| *place == 0 || *place == records.len() || !is_one(*place)).collect()
}

#[test]
fn a_replay_joins_at_each_event_while_others_come() {
    const GAPS: [u64; 7] = [0, 60, 250, 400, 600, 850, 1_100];
    let (mut cases, mut joined) = (0, BTreeSet::new());
    for before in 0..=EVENTS {
        for gap in GAPS {
            for (at, schedule) in SCHEDULES.into_iter().enumerate() {
                // Of an event that is published: a later start would be in the future.
                let start = [0, 0, before / 2][at];
                let case = Case {
                    wakes: (cases + before as u64).is_multiple_of(2),
                    start: Some(start),
                    ..Case::new(cases, schedule, before, Duration::from_micros(gap))
                };
                let sessions = play(case);
                assert_eq!(sessions.len(), 2, "{case:?}");
                sessions.iter().for_each(|session| check(session, &case));
                if start == 0 {
                    joined.extend(sessions[0].finished_at);
                }
                cases += 1;
            }
        }
    }
    println!("joins: {cases} cases, joined at {} of {} places", joined.len(), places().len());
    assert_eq!(cases, (EVENTS as u64 + 1) * GAPS.len() as u64 * 3);
    assert_eq!(joined, places());
}

#[test]
fn a_replay_begins_at_each_event_when_each_number_of_them_is_published() {
    let mut cases = 0;
    for before in 1..=EVENTS {
        for start in 0..before {
            let schedule = SCHEDULES[(before + start) % SCHEDULES.len()];
            let gap = Duration::from_micros([0, 250, 900][start % 3]);
            let case = Case { start: Some(start), ..Case::new(cases, schedule, before, gap) };
            let sessions = play(case);
            assert_eq!(sessions.len(), 2, "{case:?}");
            sessions.iter().for_each(|session| check(session, &case));
            cases += 1;
        }
    }
    println!("starts: {cases} cases");
    assert_eq!(cases, (EVENTS * (EVENTS + 1) / 2) as u64);
}

#[test]
fn a_history_that_is_behind_the_ring_leaves_out_nothing() {
    let mut cases = 0;
    for before in 0..=EVENTS {
        for (lag, schedule) in [30, 400, 2_500].into_iter().zip(SCHEDULES) {
            let history_lags = Duration::from_micros(lag);
            let case =
                Case { history_lags, ..Case::new(cases, schedule, before, Duration::from_micros(200)) };
            let sessions = play(case);
            assert_eq!(sessions.len(), 2, "{case:?}");
            sessions.iter().for_each(|session| check(session, &case));
            cases += 1;
        }
    }
    println!("late histories: {cases} cases");
    assert_eq!(cases, (EVENTS as u64 + 1) * 3);
}

#[test]
fn a_slow_reader_gets_each_record_once() {
    let mut cases = 0;
    for before in 0..=EVENTS {
        for (window, schedule) in [64, 300, 1_000].into_iter().zip(SCHEDULES) {
            let tcp = TcpFaults { window, piece: 17, ..TcpFaults::default() };
            let reading = Reading { pace: Duration::from_micros(700), leaves_after: None };
            let case =
                Case { tcp, reading, ..Case::new(cases, schedule, before, Duration::from_micros(250)) };
            let sessions = play(case);
            assert_eq!(sessions.len(), 2, "{case:?}");
            sessions.iter().for_each(|session| check(session, &case));
            cases += 1;
        }
    }
    println!("slow readers: {cases} cases");
    assert_eq!(cases, (EVENTS as u64 + 1) * 3);
}

#[test]
fn a_client_that_leaves_in_its_replay_makes_room_for_the_next() {
    let (mut cases, records) = (0, live().records.len());
    for leaves_after in 0..=records {
        for (before, schedule) in [EVENTS / 2, EVENTS, 0].into_iter().zip(SCHEDULES) {
            let tcp = TcpFaults { window: 200, ..TcpFaults::default() };
            let reading = Reading { pace: Duration::from_micros(100), leaves_after: Some(leaves_after) };
            let case =
                Case { tcp, reading, ..Case::new(cases, schedule, before, Duration::from_micros(400)) };
            let sessions = play(case);
            // Two of the first client, and the later one; the one that left came first.
            assert_eq!(sessions.len(), 3, "{case:?}");
            let (left, others) = sessions.split_first().unwrap();
            assert!(!left.is_ended && left.records[..] == expected(0)[..leaves_after], "{left:?}: {case:?}");
            others.iter().for_each(|session| check(session, &case));
            cases += 1;
        }
    }
    println!("clients that leave: {cases} cases");
    assert_eq!(cases, (records as u64 + 1) * 3);
}

#[test]
fn a_replay_that_ends_while_the_ring_closes_is_complete() {
    const MOMENTS: u64 = 40;
    let (mut cases, mut served, mut refused) = (0, 0, 0);
    for moment in 0..MOMENTS {
        for (before, schedule) in [EVENTS, EVENTS / 2, EVENTS].into_iter().zip(SCHEDULES) {
            // From the client's first packet until after its replay.
            let closes_after = Duration::from_micros(moment * 100);
            let case = Case { closes_after, ..Case::new(cases, schedule, before, Duration::ZERO) };
            let sessions = play(case);
            assert_eq!(sessions.len(), 1, "{case:?}");
            match &sessions[0].refused {
                // A client to whom the server has answered gets all.
                None => {
                    check(&sessions[0], &case);
                    served += 1;
                }
                Some(_) => refused += 1,
            }
            cases += 1;
        }
    }
    println!("closing rings: {cases} cases, {served} served, {refused} too late");
    assert_eq!(cases, MOMENTS * 3);
    assert!(served > 10 && refused > 10, "{served}, {refused}");
}
