//! Live venues without a network: what they make at which time, and what of it reaches whom.

#![allow(clippy::expect_used, clippy::unwrap_used)] // a failure here is a failed test

mod model;

use std::collections::{BTreeMap, BTreeSet};

use model::{DeepVenue, ItchVenue};
use tapeworks_generator::live::{
    Live, LiveBurst, LiveOptions, LivePacket, LiveReport, LiveVenue, Outlet, Silence,
};
use tapeworks_generator::{LineFaults, Popularity, USUAL_MOST_ORDERS, VenueKind};
use tapeworks_session::snapshot::Image;
use tapeworks_session::{Content, Made, Request, SessionId, Store};
use tapeworks_wire::nasdaq::itch50;
use tapeworks_wire::nasdaq::soupbintcp;
use tapeworks_wire::nyse::integrated::SymbolIndexMapping;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_763_130_600 * SECOND;
const MIDNIGHT: u64 = 1_763_096_400 * SECOND;

fn venue(kind: VenueKind) -> LiveVenue {
    LiveVenue { line_b: true, skew_ns: 50_000, ..LiveVenue::new(kind) }
}

fn options(messages: Option<u64>, venues: Vec<LiveVenue>) -> LiveOptions {
    LiveOptions {
        seed: 3,
        start_utc_ns: START,
        midnight_ns: MIDNIGHT,
        symbols: 20,
        popularity: Popularity::Zipf,
        most_orders: USUAL_MOST_ORDERS,
        messages,
        rate: 100_000,
        bursts: Vec::new(),
        nights: Vec::new(),
        heartbeat_ns: SECOND,
        linger_ns: 3 * SECOND,
        venues,
    }
}

/// By session and number, a message with its line's order of arrival.
type Line = Vec<(String, u64, Vec<u8>)>;

#[derive(Default)]
struct Collected {
    now_ns: u64,
    lines: BTreeMap<(usize, usize), Line>,
    /// When what went on which line.
    times: Vec<(u64, usize, usize, Content)>,
    stores: BTreeMap<usize, Store>,
    kinds: Vec<VenueKind>,
    sessions: Vec<(usize, SessionId)>,
}

impl Outlet for Collected {
    fn session(&mut self, venue: usize, session: SessionId) {
        self.sessions.push((venue, session));
        let transport = self.kinds[venue].transport();
        self.stores.entry(venue).or_insert_with(|| Store::new(transport, 64 << 20)).begin_session(session);
    }

    fn made(&mut self, venue: usize, made: &Made<'_>) {
        self.stores.get_mut(&venue).expect("a session before").keep(made);
    }

    fn packet(&mut self, packet: &LivePacket<'_>) {
        self.times.push((self.now_ns, packet.venue, packet.line, packet.content));
        let line = self.lines.entry((packet.venue, packet.line)).or_default();
        let (session, first, messages) = read(self.kinds[packet.venue], packet.payload);
        assert_eq!(messages.len(), usize::from(packet.messages));
        for (offset, message) in messages.into_iter().enumerate() {
            line.push((session.clone(), first + offset as u64, message));
        }
    }
}

/// Session, first number and messages of a packet.
fn read(kind: VenueKind, payload: &[u8]) -> (String, u64, Vec<Vec<u8>>) {
    let header = kind.transport().header(payload).unwrap();
    let mut messages = Vec::new();
    kind.transport().each_message(payload, |_, message| messages.push(message.to_vec()));
    assert_eq!(messages.len() as u64, header.count);
    (header.session.login_name().to_string(), header.first, messages)
}

/// Runs to the end, waking up every `step_ns`; `look` sees each moment.
fn run_with(
    options: &LiveOptions,
    step_ns: u64,
    mut look: impl FnMut(&Live, u64, &mut Collected),
) -> (Collected, LiveReport) {
    let mut live = Live::new(options).unwrap();
    let kinds = options.venues.iter().map(|venue| venue.kind).collect();
    let mut collected = Collected { kinds, ..Collected::default() };
    let mut now_ns = 0;
    while let Some(due_ns) = live.next_due_ns() {
        now_ns = now_ns.max(due_ns).next_multiple_of(step_ns);
        collected.now_ns = now_ns;
        live.advance(now_ns, &mut collected);
        look(&live, now_ns, &mut collected);
    }
    (collected, live.report())
}

fn run(options: &LiveOptions) -> (Collected, LiveReport) {
    run_with(options, 1_000, |_, _, _| {})
}

/// The venue's time of a message, in nanoseconds since the epoch.
fn time_of(kind: VenueKind, message: &[u8]) -> u64 {
    match kind {
        VenueKind::Memx => u64::from_be_bytes(message[6..14].try_into().unwrap()),
        kind if kind.is_in_files() => MIDNIGHT + itch50::timestamp(message).unwrap().nanoseconds(),
        _ => u64::from_le_bytes(message[2..10].try_into().unwrap()),
    }
}

#[test]
fn a_message_carries_its_due_time_and_is_sent_no_earlier() {
    let kinds = VenueKind::each(["nasdaq", "iex-deep", "memx"]);
    let options = LiveOptions {
        bursts: vec![LiveBurst {
            at_ns: SECOND / 10,
            length_ns: SECOND / 100,
            messages_per_second: 4_000_000,
        }],
        ..options(Some(100_000), kinds.map(venue).to_vec())
    };
    let (collected, report) = run_with(&options, 50_000, |_, _, _| {});
    assert!(report.worst_late_ns <= 50_000, "{report:?}");
    let mut times: Vec<u64> = Vec::new();
    for (index, kind) in kinds.into_iter().enumerate() {
        let line = &collected.lines[&(index, 0)];
        times.extend(line.iter().map(|(_, _, message)| time_of(kind, message) - START));
    }
    times.sort_unstable();
    // 10,000 before the burst, 40,000 in it and 1,000 beside them, the rest after it.
    assert_eq!(times[0], 0);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 10_000));
    let in_burst =
        times.iter().filter(|time| (SECOND / 10..SECOND / 10 + SECOND / 100).contains(*time)).count();
    assert_eq!(in_burst, 41_000);
    // Message n is due at n / rate: what the burst brought shifts nothing.
    assert_eq!(*times.last().unwrap(), (times.len() as u64 - 40_000 - 1) * 10_000);
}

#[test]
fn lines_carry_every_message_that_is_not_counted_as_dropped_and_the_store_has_all() {
    let faults = |lost| LineFaults {
        lost_per_million: lost,
        duplicated_per_million: 20_000,
        reordered_per_million: 20_000,
        ..LineFaults::default()
    };
    let kinds = VenueKind::each(["bx", "bx", "iex-deep", "memx"]);
    let venues = kinds.map(|kind| LiveVenue { faults: [faults(40_000), faults(60_000)], ..venue(kind) });
    let (collected, report) = run(&options(Some(60_000), venues.to_vec()));
    for (index, venue) in report.venues.iter().enumerate() {
        let mut everywhere: BTreeSet<u64> = (1..=venue.messages).collect();
        for (number, line) in venue.lines.iter().enumerate() {
            let seen = &collected.lines[&(index, number)];
            assert_eq!(line.messages, seen.len() as u64);
            let distinct: BTreeSet<u64> = seen.iter().map(|(_, number, _)| *number).collect();
            assert_eq!(venue.messages - distinct.len() as u64, line.injected.dropped_messages);
            assert_eq!(line.messages - distinct.len() as u64, line.injected.duplicated_messages);
            assert!(line.injected.dropped_packets > 10 && line.injected.reordered_packets > 10);
            everywhere.retain(|number| !distinct.contains(number));
        }
        assert_eq!(everywhere.len() as u64, venue.lost_messages);
        assert!(venue.lost_messages > 0);
        if !kinds[index].transport().marks_end() {
            continue;
        }
        // What no line carried is in the store, with the same bytes as the others have.
        let session = collected.sessions[index].1;
        let mut answer = Vec::new();
        for number in everywhere.iter().copied().chain([1, venue.messages]) {
            let request = Request { session, first: number, count: 1 };
            assert_eq!(collected.stores[&index].answer(&request.encode(), 0, &mut answer), Ok(1));
            let (_, first, messages) = read(kinds[index], &answer);
            assert_eq!(first, number);
            for (_, seen, message) in
                collected.lines.iter().filter(|(key, _)| key.0 == index).flat_map(|(_, l)| l)
            {
                assert!(*seen != number || *message == messages[0]);
            }
        }
    }
}

#[test]
fn a_restarted_venue_sends_its_directory_and_states_first() {
    let restarting = |kind| LiveVenue { restart_after: vec![6_000, 14_000], ..venue(kind) };
    let (collected, report) =
        run(&options(Some(50_000), vec![restarting(VenueKind::Psx), restarting(VenueKind::IexDeep)]));
    for (index, venue) in report.venues.iter().enumerate() {
        assert_eq!(venue.sessions.len(), 3);
        assert_eq!(venue.sessions.iter().map(|session| session.messages).sum::<u64>(), venue.messages);
        let names: BTreeSet<_> =
            venue.sessions.iter().map(|session| session.session.login_name().0).collect();
        assert_eq!(names.len(), 3);
        let line = &collected.lines[&(index, 0)];
        for (number, session) in venue.sessions.iter().enumerate() {
            let name = session.session.login_name();
            let of_session: Vec<_> =
                line.iter().filter(|(seen, ..)| Some(seen.as_str()) == name.as_str()).collect();
            assert!(of_session.iter().map(|(_, number, _)| *number).eq(1..=session.messages));
            // The oracle complains about every message that does not fit the messages of this session before it.
            if index == 0 {
                let mut oracle = if number == 0 { ItchVenue::default() } else { ItchVenue::joining_late() };
                of_session.iter().for_each(|(_, _, message)| oracle.apply(message));
                assert!(oracle.live_orders() > 20, "session {number}");
            } else {
                let mut oracle = DeepVenue::default();
                of_session.iter().for_each(|(_, _, message)| oracle.apply(message));
            }
        }
    }
    assert_eq!(report.venues[0].lines[0].ends_of_session, 2 + 4, "two restarts, and the end repeated");
    assert_eq!(report.venues[1].lines[0].ends_of_session, 0, "IEX-TP has none");
}

#[test]
fn a_silent_venue_sends_nothing_loses_nothing_and_the_others_go_on() {
    let silence = Silence { after: 2_000, length_ns: SECOND / 4 };
    let silent = LiveVenue { silences: vec![silence], skew_ns: 0, ..venue(VenueKind::Nasdaq) };
    let options = LiveOptions {
        heartbeat_ns: SECOND / 20,
        ..options(Some(60_000), vec![silent, venue(VenueKind::Bx)])
    };
    let (collected, report) = run(&options);
    let of_venue = |venue| {
        let mut times: Vec<u64> =
            collected.times.iter().filter(|time| time.1 == venue && time.2 == 0).map(|time| time.0).collect();
        times.dedup();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
    };
    assert_eq!(report.venues[0].silences, 1);
    assert!((SECOND / 4..SECOND / 4 + SECOND / 100).contains(&of_venue(0)), "{}", of_venue(0));
    assert!(of_venue(1) <= SECOND / 20);
    let line = &collected.lines[&(0, 0)];
    assert!(line.iter().map(|(_, number, _)| *number).eq(1..=report.venues[0].messages));
    let mut oracle = ItchVenue::default();
    line.iter().for_each(|(_, _, message)| oracle.apply(message));
}

#[test]
fn an_idle_venue_sends_heartbeats_and_the_end_is_repeated() {
    let idle = LiveVenue { share: 1, ..venue(VenueKind::Psx) };
    let busy = LiveVenue { share: 1_000_000, ..venue(VenueKind::Nasdaq) };
    let options = LiveOptions {
        heartbeat_ns: SECOND / 100,
        linger_ns: SECOND,
        ..options(Some(50_000), vec![idle, busy])
    };
    let (collected, report) = run(&options);
    assert!(report.venues[0].lines.iter().all(|line| line.heartbeats > 10), "{report:?}");
    assert!(report.venues[0].lines.iter().all(|line| line.ends_of_session == 101), "{report:?}");
    let last = collected.times.last().unwrap();
    assert_eq!(last.3, Content::EndOfSession);
}

#[test]
fn a_snapshot_in_mid_run_and_the_messages_after_it_give_the_books_of_the_whole_stream() {
    snapshots_join_the_stream(0);
}

/// Every second message makes no sense: those that are still to be sent have numbers too.
#[test]
fn a_snapshot_counts_the_nonsense_among_messages_that_wait() {
    snapshots_join_the_stream(1_000_000);
}

/// The messages of a snapshot, and its end.
fn messages_of(packets: &[u8]) -> Vec<Vec<u8>> {
    soupbintcp::Packets::new(packets)
        .map(|packet| packet.unwrap())
        .filter(|packet| packet[2] == b'S')
        .map(|packet| packet[3..].to_vec())
        .collect()
}

/// NYSE's time references come from the generator, and from the venue in their place: they are not numbered twice.
/// A snapshot of a venue, with its end.
fn image(live: &Live, venue: usize, now_ns: u64) -> Image {
    let mut image = live.image(venue, now_ns).unwrap();
    image.finish();
    image
}

#[test]
fn a_snapshot_has_the_symbols_of_the_messages_before_its_number_and_no_others() {
    let options = options(Some(20_000), vec![venue(VenueKind::Nyse)]);
    let mut images = Vec::new();
    let (collected, _) = run_with(&options, 1_000, |live, now_ns, _| {
        if images.len() < 200 {
            images.push(image(live, 0, now_ns));
        }
    });
    let symbols = |messages: &mut dyn Iterator<Item = &Vec<u8>>| -> BTreeSet<[u8; 4]> {
        let mappings = messages.filter(|message| message[2..4] == SymbolIndexMapping::TAG.to_le_bytes());
        mappings.map(|message| message[4..8].try_into().unwrap()).collect()
    };
    let mut counts = BTreeSet::new();
    for image in images {
        let before = collected.lines[&(0, 0)].iter().filter(|(_, number, _)| *number < image.next);
        let expected = symbols(&mut before.map(|(_, _, message)| message));
        assert_eq!(
            symbols(&mut messages_of(image.packets()).iter().filter(|message| message.len() > 8)),
            expected
        );
        counts.insert(expected.len());
    }
    assert!(counts.len() > 10, "{counts:?}");
}

fn snapshots_join_the_stream(nonsense_per_million: u32) {
    let silence = Silence { after: 30_000, length_ns: SECOND / 2 };
    let of_kind = |kind| LiveVenue { nonsense_per_million, ..venue(kind) };
    let options = options(
        Some(150_000),
        vec![
            LiveVenue { silences: vec![silence], ..of_kind(VenueKind::Nasdaq) },
            of_kind(VenueKind::IexDeep),
        ],
    );
    let makes_sense = |number: u64| nonsense_per_million == 0 || number % 2 == 1;
    let mut images = Vec::new();
    let (collected, report) = run_with(&options, 700_000, |live, now_ns, _| {
        // One of them while the venue is silent and much waits.
        if images.len() < 8 && now_ns > (images.len() as u64 + 1) * SECOND / 8 {
            images.push((image(live, 0, now_ns), image(live, 1, now_ns)));
        }
    });
    assert_eq!(images.len(), 8);
    let line = |venue| collected.lines[&(venue, 0)].iter().filter(|(_, number, _)| makes_sense(*number));
    let (mut itch, mut deep) = (ItchVenue::default(), DeepVenue::default());
    line(0).for_each(|(_, _, message)| itch.apply(message));
    line(1).for_each(|(_, _, message)| deep.apply(message));
    for (of_itch, of_deep) in images {
        for (image, venue) in [(&of_itch, 0), (&of_deep, 1)] {
            assert_eq!(image.session, report.venues[venue].sessions[0].session);
            assert!(image.next > 1 && image.next <= report.venues[venue].messages);
            let mut messages = messages_of(image.packets());
            let end = messages.pop().unwrap();
            assert_eq!(end, format!("G{:>20}", image.next).into_bytes());
            assert_eq!(messages.len() as u64, image.messages);
            let rest = line(venue).filter(|(_, number, _)| *number >= image.next);
            messages.extend(rest.map(|(_, _, message)| message.clone()));
            if venue == 0 {
                let mut joined = ItchVenue::joining_late();
                messages.iter().for_each(|message| joined.apply(message));
                assert_eq!(joined.books(), itch.books());
                assert_eq!(joined.executions_not_first_in_line, 0, "time priority is kept");
            } else {
                let mut joined = DeepVenue::default();
                messages.iter().for_each(|message| joined.apply(message));
                assert_eq!(joined.books(), deep.books());
            }
        }
    }
}

#[test]
fn a_market_without_end_goes_on_until_it_is_finished() {
    let options = options(None, vec![venue(VenueKind::Nasdaq), venue(VenueKind::IexTops)]);
    let mut live = Live::new(&options).unwrap();
    let kinds = options.venues.iter().map(|venue| venue.kind).collect();
    let mut collected = Collected { kinds, ..Collected::default() };
    for step in 1..=1_000 {
        live.advance(step * SECOND / 1_000, &mut collected);
    }
    assert!(live.report().messages.abs_diff(100_000) <= 1, "{}", live.report().messages);
    live.finish(SECOND, &mut collected);
    assert_eq!(collected.times.last().unwrap().3, Content::EndOfSession);
    let mut oracle = ItchVenue::default();
    collected.lines[&(0, 1)].iter().for_each(|(_, _, message)| oracle.apply(message));
}

#[test]
fn the_same_options_and_times_give_the_same_packets() {
    let faults = LineFaults {
        lost_per_million: 10_000,
        duplicated_per_million: 10_000,
        reordered_per_million: 10_000,
        ..LineFaults::default()
    };
    let venues = vec![LiveVenue { faults: [faults; 2], restart_after: vec![5_000], ..venue(VenueKind::Bx) }];
    let one = run(&options(Some(20_000), venues.clone())).0;
    let other = run(&options(Some(20_000), venues)).0;
    assert_eq!((one.lines, one.times), (other.lines, other.times));
}
