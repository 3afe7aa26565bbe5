//! Rows into a server that is ours: every record is there once, whatever the server does meanwhile.

#![cfg(feature = "questdb")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "tls")]
mod authority;
mod session;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dbn::decode::dbn::Decoder;
use dbn::{BboMsg, Cmbp1Msg, MboMsg, TradeMsg, UNDEF_PRICE};
use tapeworks_engine::history::{History, HistoryError, HistoryReader, MemoryHistory};
use tapeworks_market::BookOptions;
use tapeworks_market::{Event, EventKind, InstrumentId, Instruments};
use tapeworks_outputs::begin::Begin;
use tapeworks_outputs::questdb::{self, QuestDb};
use tapeworks_outputs::questdb::{QuestDbLogin, QuestDbSetting, QuestDbStatus};
use tapeworks_ring::disruptor::{Builder, Producer};
use tapeworks_ring::wait::Yielding;
use tapeworks_store::Schema;
use tapeworks_time::Nanos;

const SCHEMAS: [Schema; 4] = [Schema::Mbo, Schema::Trades, Schema::Cmbp1, Schema::Bbo1S];

/// What the server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mood {
    /// It takes rows.
    Well,
    /// It takes no rows of trades.
    Picky,
    /// It takes nothing and runs nothing.
    Broken,
    /// It takes the rows, and does not say so.
    Silent,
}

/// The columns of a row, as text.
type Row = BTreeMap<String, String>;
/// Rows by table and by what DEDUP UPSERT KEYS name.
type Tables = BTreeMap<String, BTreeMap<(i64, u64, u32), Row>>;

#[derive(Debug)]
struct Shared {
    mood: Mutex<Mood>,
    authorization: Option<String>,
    tables: Mutex<Tables>,
    /// Rows, however often.
    rows: AtomicU64,
    stop: AtomicBool,
}

/// An HTTP server with the part of QuestDB that the tests use.
struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves at an address until it is stopped.
    fn listen(address: SocketAddr, shared: &Arc<Shared>) -> (SocketAddr, JoinHandle<()>) {
        let began = Instant::now();
        let listener = loop {
            match TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(error) => assert!(began.elapsed() < Duration::from_secs(10), "{error}"),
            }
        };
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        shared.stop.store(false, Ordering::Release);
        let shared = Arc::clone(shared);
        let thread = std::thread::spawn(move || {
            let mut connections: Vec<JoinHandle<()>> = Vec::new();
            while !shared.stop.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let shared = Arc::clone(&shared);
                        connections.push(std::thread::spawn(move || serve(stream, &shared)));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
            drop(listener);
            connections.into_iter().for_each(|connection| connection.join().unwrap());
        });
        (address, thread)
    }

    fn new() -> Self {
        Self::with(None)
    }

    fn with(authorization: Option<&str>) -> Self {
        let shared = Shared {
            mood: Mutex::new(Mood::Well),
            authorization: authorization.map(str::to_owned),
            tables: Mutex::default(),
            rows: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        };
        let shared = Arc::new(shared);
        let (address, thread) = Self::listen(SocketAddr::from(([127, 0, 0, 1], 0)), &shared);
        Self { address, shared, thread: Some(thread) }
    }

    fn mood(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    /// Closes all connections. What it has stays.
    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    fn start_again(&mut self) {
        self.thread = Some(Self::listen(self.address, &self.shared).1);
    }

    fn tables(&self) -> Tables {
        self.shared.tables.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One connection: requests until it or the server ends.
fn serve(stream: TcpStream, shared: &Shared) {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = Vec::new();
    let (mut first, mut length, mut authorization) = (String::new(), 0, None);
    while !shared.stop.load(Ordering::Acquire) {
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {}
            Err(_) => continue,
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        line.clear();
        if first.is_empty() {
            first = text;
            continue;
        }
        if let Some((name, value)) = text.split_once(": ") {
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "authorization" => authorization = Some(value.to_owned()),
                _ => {}
            }
            continue;
        }
        let mut body = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match reader.read(&mut body[filled..]) {
                Ok(0) => return,
                Ok(read) => filled += read,
                Err(_) if shared.stop.load(Ordering::Acquire) => return,
                Err(_) => {}
            }
        }
        let Some((status, received)) = answer(shared, &first, &body, authorization.as_deref()) else {
            return;
        };
        let received = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{received}",
            received.len()
        );
        if (&stream).write_all(received.as_bytes()).is_err() {
            return;
        }
        (first, length, authorization) = (String::new(), 0, None);
    }
}

/// The status and what is said; `None` to say nothing.
fn answer(
    shared: &Shared,
    first: &str,
    body: &[u8],
    authorization: Option<&str>,
) -> Option<(&'static str, &'static str)> {
    if shared.authorization.as_deref() != authorization {
        return Some(("401 Unauthorized", ""));
    }
    let mood = *shared.mood.lock().unwrap();
    if mood == Mood::Broken {
        return Some(("500 Internal Server Error", "{\"message\":\"broken\"}"));
    }
    if first.starts_with("GET /exec?query=") {
        return Some(("200 OK", "{\"ddl\":\"OK\"}"));
    }
    assert!(first.starts_with("POST /write"), "{first}");
    let rows = read_rows(body);
    if mood == Mood::Picky && rows[0].0 == "tapeworks_trades" {
        return Some((
            "400 Bad Request",
            "{\"code\":\"invalid\",\"message\":\"no such column\",\"line\":1,\"errorId\":\"1\"}",
        ));
    }
    let mut tables = shared.tables.lock().unwrap();
    assert!(rows.iter().all(|(table, ..)| *table == rows[0].0), "a request is of one table");
    for (table, time, row) in rows {
        let key = (
            time,
            row["event"].trim_end_matches('i').parse().unwrap(),
            row["part"].trim_end_matches('i').parse().unwrap(),
        );
        tables.entry(table).or_default().insert(key, row);
        shared.rows.fetch_add(1, Ordering::Relaxed);
    }
    (mood == Mood::Well || mood == Mood::Picky).then_some(("204 No Content", ""))
}

/// Rows of the line protocol's second version: table, time, and the columns as text, doubles among them.
fn read_rows(mut rest: &[u8]) -> Vec<(String, i64, Row)> {
    /// Up to a letter that ends a word; the letter.
    fn word(rest: &mut &[u8]) -> (String, u8) {
        let mut text = Vec::new();
        while let [letter, more @ ..] = *rest {
            *rest = more;
            match (letter, more) {
                (b'\\', [escaped, more @ ..]) => {
                    text.push(*escaped);
                    *rest = more;
                }
                (b',' | b' ' | b'=' | b'\n', _) => return (String::from_utf8(text).unwrap(), *letter),
                _ => text.push(*letter),
            }
        }
        panic!("a line without an end");
    }
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let (table, mut end) = word(&mut rest);
        let mut row = Row::new();
        while end == b',' {
            let (name, _) = word(&mut rest);
            let (value, after) = word(&mut rest);
            assert!(row.insert(name, value).is_none());
            end = after;
        }
        loop {
            let (name, _) = word(&mut rest);
            let value = if rest[0] == b'=' {
                assert_eq!(rest[1], 16, "a double");
                let value = f64::from_le_bytes(rest[2..10].try_into().unwrap());
                (end, rest) = (rest[10], &rest[11..]);
                value.to_string()
            } else {
                let (value, after) = word(&mut rest);
                end = after;
                value
            };
            assert!(row.insert(name, value).is_none());
            if end != b',' {
                break;
            }
        }
        let (time, end) = word(&mut rest);
        assert_eq!(end, b'\n');
        rows.push((table, time.trim_end_matches('n').parse().unwrap(), row));
    }
    rows
}

/// What sends, and the ring that an engine would fill.
struct Plant {
    questdb: QuestDb,
    producer: Producer<Event, Yielding>,
    live_from: Arc<AtomicU64>,
}

impl Plant {
    /// A plant that was started after so many events of the history.
    fn start(setting: QuestDbSetting, history: Option<&MemoryHistory>, first_event: u64) -> Self {
        let blank = Event::new(EventKind::Other, Default::default(), Default::default());
        let mut ring = Builder::new(1 << 14, || blank, Yielding::default);
        let reader = ring.consumer("questdb", &[]);
        let (producer, mut ends) = ring.single_producer();
        let live_from = Arc::new(AtomicU64::new(u64::MAX));
        let begin = Begin {
            first_event,
            history: history.map(|history| Arc::new(history.clone()) as Arc<dyn History>),
            live_from: Arc::clone(&live_from),
            ..Begin::default()
        };
        let consumer = ends.take(reader).unwrap();
        let books = BookOptions::default();
        let questdb = questdb::start(setting, &books, consumer, begin).unwrap();
        Self { questdb, producer, live_from }
    }

    fn go_live(&self, from: u64) {
        self.live_from.store(from, Ordering::Release);
    }

    fn publish(&mut self, events: &[Event]) {
        for part in events.chunks(256) {
            self.producer.publish_batch(part.len(), |at, slot| *slot = part[at]).unwrap();
        }
    }

    /// Waits until `is_so`.
    fn until(&self, is_so: impl Fn(&QuestDbStatus) -> bool) -> QuestDbStatus {
        let began = Instant::now();
        loop {
            let status = self.questdb.status();
            if is_so(&status) {
                return status;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{status:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(self) -> QuestDbStatus {
        drop(self.producer);
        let received = self.questdb.status_handle();
        let status = self.questdb.join().unwrap();
        assert_eq!(*received.lock().unwrap(), status, "the last is published");
        status
    }
}

fn setting(server: &Server) -> QuestDbSetting {
    QuestDbSetting {
        schemas: SCHEMAS.to_vec(),
        flush_every: Duration::from_millis(5),
        longest_pause: Duration::from_millis(200),
        timeout: Duration::from_secs(2),
        linger: Duration::from_secs(30),
        ..QuestDbSetting::new("127.0.0.1", server.address.port())
    }
}

fn events() -> Vec<Event> {
    session::events(&session::scenario(4_000, 12, 5))
}

/// Of a table: time, symbol, price, size and, where there is one, the best bid of each row, in the order of their events.
type Values = Vec<(u64, String, Option<f64>, u32, Option<f64>)>;

fn decimal(price: i64) -> Option<f64> {
    (price != UNDEF_PRICE).then(|| format!("{}e-9", price).parse().unwrap())
}

/// What files of the schemas hold, made by the writers of files.
fn expected(events: &[Event], name: &str) -> BTreeMap<String, Values> {
    let mut symbols = Instruments::default();
    events.iter().filter_map(Event::symbol).for_each(|symbol| {
        symbols.intern(symbol);
    });
    let mut expected = BTreeMap::new();
    for schema in SCHEMAS {
        let path = std::env::temp_dir()
            .join(format!("tapeworks-questdb-{name}-{}-{schema}.dbn", std::process::id()));
        session::write(events, schema, &path);
        let mut decoder = Decoder::from_file(&path).unwrap();
        let mut values = Values::new();
        let mut last = BTreeMap::new();
        events.iter().for_each(|event| {
            last.insert(event.publisher.0, event.ts_recv.0);
        });
        while let Some(record) = decoder.decode_ref().unwrap() {
            let instrument = InstrumentId(record.header().instrument_id.wrapping_sub(1));
            let symbol = symbols.symbol(instrument).map(|symbol| symbol.to_string()).unwrap_or_default();
            values.push(if let Some(row) = record.get::<MboMsg>() {
                (row.ts_recv, symbol, decimal(row.price), row.size, None)
            } else if let Some(row) = record.get::<TradeMsg>() {
                (row.ts_recv, symbol, decimal(row.price), row.size, None)
            } else if let Some(row) = record.get::<BboMsg>() {
                // A file ends the intervals that are open at its end; the plant sends one when it is over.
                if row.ts_recv > last[&row.hd.publisher_id] {
                    continue;
                }
                (row.ts_recv, symbol, decimal(row.price), row.size, decimal(row.levels[0].bid_px))
            } else {
                let row = record.get::<Cmbp1Msg>().unwrap();
                (row.ts_recv, symbol, decimal(row.price), row.size, decimal(row.levels[0].bid_px))
            });
        }
        std::fs::remove_file(path).unwrap();
        expected.insert(format!("tapeworks_{}", schema.as_str().replace('-', "_")), values);
    }
    assert!(expected.values().all(|values| values.len() > 100));
    expected
}

fn values(tables: &Tables) -> BTreeMap<String, Values> {
    let number = |row: &Row, name: &str| row.get(name).map(|text| text.parse().unwrap());
    let of = |rows: &BTreeMap<(i64, u64, u32), Row>| {
        let mut rows: Vec<_> = rows.iter().collect();
        rows.sort_by_key(|((_, event, part), _)| (*event, *part));
        rows.into_iter()
            .map(|((time, ..), row)| {
                let size = row["size"].trim_end_matches('i').parse().unwrap();
                let symbol = row.get("symbol").cloned().unwrap_or_default();
                (*time as u64, symbol, number(row, "price"), size, number(row, "bid_px_00"))
            })
            .collect()
    };
    tables.iter().map(|(table, rows)| (table.clone(), of(rows))).collect()
}

fn count(values: &BTreeMap<String, Values>) -> u64 {
    values.values().map(|values| values.len() as u64).sum()
}

/// Compares, and names the first difference.
fn assert_same(received: &BTreeMap<String, Values>, expected: &BTreeMap<String, Values>) {
    assert_eq!(received.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (table, values) in expected {
        let place = values.iter().zip(&received[table]).position(|(one, other)| one != other);
        if let Some(place) = place {
            panic!("{table}, row {place}: {:?}, expected {:?}", received[table][place], values[place]);
        }
        assert_eq!(received[table].len(), values.len(), "{table}");
    }
}

#[test]
fn every_record_is_a_row_with_its_values() {
    let (events, server) = (events(), Server::new());
    let mut plant = Plant::start(setting(&server), None, 0);
    plant.go_live(0);
    plant.publish(&events);
    let status = plant.end();
    let expected = expected(&events, "all");
    assert_same(&values(&server.tables()), &expected);
    assert_eq!(
        (status.rows, server.shared.rows.load(Ordering::Relaxed)),
        (count(&expected), count(&expected))
    );
    assert_eq!((status.overflowed, status.refused, status.lost, status.failures), (0, 0, 0, 0));
    assert_eq!((status.waiting, status.error), (0, None));
}

#[test]
fn a_server_that_is_away_is_awaited_and_gets_the_missed_rows_when_it_is_back() {
    let (events, mut server) = (events(), Server::new());
    server.stop();
    let mut plant = Plant::start(setting(&server), None, 0);
    plant.go_live(0);
    let parts: Vec<_> = events.chunks(events.len() / 4 + 1).collect();
    plant.publish(parts[0]);
    let status = plant.until(|status| status.failures > 1 && status.waiting > 0);
    assert!(!status.is_connected && status.error.is_some() && status.rows == 0, "{status:?}");
    server.start_again();
    plant.until(|status| status.is_connected && status.rows > 0 && status.waiting == 0);
    server.stop();
    plant.publish(parts[1]);
    plant.until(|status| !status.is_connected && status.waiting > 0);
    server.start_again();
    // It says nothing about rows it has: they are sent once more, and are there once.
    plant.until(|status| status.is_connected && status.waiting == 0);
    server.mood(Mood::Silent);
    plant.publish(parts[2]);
    plant.until(|status| !status.is_connected);
    server.mood(Mood::Broken);
    let failures = plant.questdb.status().failures;
    plant.until(|status| status.failures > failures + 2);
    server.mood(Mood::Well);
    plant.publish(parts[3]);
    let status = plant.end();
    let expected = expected(&events, "back");
    assert_same(&values(&server.tables()), &expected);
    assert!(server.shared.rows.load(Ordering::Relaxed) > count(&expected), "some were sent more than once");
    assert_eq!((status.rows, status.lost, status.refused), (count(&expected), 0, 0));
    assert!(status.reconnects >= 2, "{status:?}");
}

#[test]
fn rows_that_a_server_refuses_are_counted_and_do_not_hold_up_the_others() {
    let (events, server) = (events(), Server::new());
    server.mood(Mood::Picky);
    let mut setting = setting(&server);
    // One request, so one refusal after some tries.
    setting.flush_every = Duration::from_secs(600);
    let mut plant = Plant::start(setting, None, 0);
    plant.go_live(0);
    plant.publish(&events);
    let status = plant.end();
    let mut expected = expected(&events, "refused");
    let refused = expected.remove("tapeworks_trades").unwrap().len() as u64;
    assert_same(&values(&server.tables()), &expected);
    assert_eq!((status.refused, status.rows, status.lost), (refused, count(&expected), 0));
    assert!(status.error.unwrap().contains("no such column"));
}

#[test]
fn without_a_journal_rows_without_room_are_lost_and_counted() {
    let (events, mut server) = (events(), Server::new());
    server.stop();
    let mut setting = setting(&server);
    (setting.queue_bytes, setting.linger) = (200 << 10, Duration::from_millis(100));
    let mut plant = Plant::start(setting, None, 0);
    plant.go_live(0);
    plant.publish(&events);
    let total = count(&expected(&events, "full"));
    plant.until(|status| status.overflowed + status.waiting == total);
    let status = plant.end();
    assert!(status.overflowed > 0 && status.overflowed < total, "{status:?}");
    assert_eq!((status.rows, status.lost, status.waiting), (0, total, 0));
}

#[test]
fn rows_without_room_come_from_the_journal_when_the_server_is_back() {
    let (events, mut server) = (events(), Server::new());
    let history = MemoryHistory::default();
    let mut setting = setting(&server);
    setting.queue_bytes = 200 << 10;
    let mut plant = Plant::start(setting, Some(&history), 0);
    plant.go_live(0);
    let publish = |plant: &mut Plant, part: &[Event]| {
        history.append(part);
        plant.publish(part);
    };
    let (first, rest) = events.split_at(events.len() / 4);
    publish(&mut plant, first);
    plant.until(|status| status.rows > 0 && status.waiting == 0);
    server.stop();
    publish(&mut plant, rest);
    // The thread of the server counts the rows, the reader of the ring says later where they begin.
    let status =
        plant.until(|status| status.overflowed > 0 && status.ring_lag == 0 && status.to_send_again.is_some());
    assert_eq!(status.lost, 0, "{status:?}");
    server.start_again();
    let expected = expected(&events, "again");
    plant.until(|status| {
        status.sent_again > 0
            && status.to_send_again.is_none()
            && status.sending_again.is_none()
            && status.waiting == 0
    });
    let status = plant.end();
    assert_same(&values(&server.tables()), &expected);
    assert!(status.rows_again >= status.overflowed && status.lost == 0, "{status:?}");
}

#[test]
fn after_a_restart_the_day_is_whole_and_no_row_is_there_twice() {
    let (events, server) = (events(), Server::new());
    let (before, after) = events.split_at(events.len() / 2);
    let history = MemoryHistory::default();
    // The first plant is killed: some of what it had was never sent.
    let mut first = Plant::start(setting(&server), None, 0);
    first.go_live(0);
    first.publish(&before[..before.len() / 2]);
    first.until(|status| status.rows > 0 && status.waiting == 0);
    drop(first.questdb);
    history.append(before);
    // The second begins in the ring with the last part of what is in the journal.
    let in_ring = before.len() - 100;
    let mut second = Plant::start(setting(&server), Some(&history), in_ring as u64);
    second.publish(&before[in_ring..]);
    second.go_live(before.len() as u64);
    history.append(after);
    second.publish(after);
    let status = second.until(|status| status.sent_again == 1);
    assert!(status.rows_again > 0, "{status:?}");
    let status = second.end();
    assert_eq!((status.lost, status.refused, status.to_send_again), (0, 0, None));
    assert_same(&values(&server.tables()), &expected(&events, "restart"));
}

#[test]
fn an_unreadable_journal_is_reported() {
    struct Gone;
    impl History for Gone {
        fn open(&self, _from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
            Err(HistoryError::unreadable("the first records were removed"))
        }
    }
    let (events, server) = (events(), Server::new());
    let blank = Event::new(EventKind::Other, Default::default(), Default::default());
    let mut ring = Builder::new(1 << 14, || blank, Yielding::default);
    let reader = ring.consumer("questdb", &[]);
    let (mut producer, mut ends) = ring.single_producer();
    let live_from = Arc::new(AtomicU64::new(7));
    let begin = Begin { history: Some(Arc::new(Gone)), live_from, ..Begin::default() };
    let questdb =
        questdb::start(setting(&server), &BookOptions::default(), ends.take(reader).unwrap(), begin).unwrap();
    producer.publish_batch(1_000, |at, slot| *slot = events[at]).unwrap();
    let began = Instant::now();
    while questdb.status().unreadable == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", questdb.status());
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(producer);
    let status = questdb.join().unwrap();
    assert_eq!(status.unreadable, 7);
    assert!(status.error.unwrap().contains("removed") && status.rows > 0);
}

#[test]
fn a_user_without_the_right_to_write_gets_an_error_and_one_with_it_writes() {
    let events = events();
    let logins = [
        (QuestDbLogin::User { name: "me".to_owned(), password: "secret".to_owned() }, "Basic bWU6c2VjcmV0"),
        (QuestDbLogin::Token("abc".to_owned()), "Bearer abc"),
    ];
    for (login, authorization) in logins {
        let server = Server::with(Some(authorization));
        let mut wrong = setting(&server);
        wrong.linger = Duration::from_millis(50);
        let mut plant = Plant::start(wrong.clone(), None, 0);
        plant.go_live(0);
        plant.publish(&events[..1_000]);
        plant.until(|status| status.failures > 0 && status.waiting > 0);
        let status = plant.end();
        assert!(status.error.unwrap().contains("401") && status.rows == 0 && status.lost > 0);
        let mut plant = Plant::start(QuestDbSetting { login: Some(login), ..wrong }, None, 0);
        plant.go_live(0);
        plant.publish(&events[..1_000]);
        plant.until(|status| status.rows > 0 && status.waiting == 0);
        assert_eq!(plant.end().failures, 0);
    }
}

#[cfg(feature = "tls")]
mod tls {
    use std::io::ErrorKind;

    use tapeworks_runtime::transport::TlsFiles;

    use super::authority::Authority;
    use super::*;

    /// Takes connections by TLS, and passes on to a server what they say.
    fn in_front_of(server: SocketAddr, authority: &Authority) -> SocketAddr {
        let files = TlsFiles {
            certificate: authority.path("database.pem"),
            private_key: authority.path("database.key"),
            client_authorities: None,
        };
        let tapeworks_runtime::transport::Acceptor::Tls(tls) = files.acceptor().unwrap() else {
            panic!("no TLS")
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let session = rustls::ServerConnection::new(tls.get()).unwrap();
                std::thread::spawn(move || pass_on(rustls::StreamOwned::new(session, stream), server));
            }
        });
        address
    }

    /// Both ways, until one side ends.
    fn pass_on(mut from: rustls::StreamOwned<rustls::ServerConnection, TcpStream>, server: SocketAddr) {
        let Ok(mut to) = TcpStream::connect(server) else { return };
        for stream in [&from.sock, &to] {
            stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        }
        let mut bytes = [0; 1 << 14];
        let copied = |from: &mut dyn Read, to: &mut dyn Write, bytes: &mut [u8]| match from.read(bytes) {
            Ok(0) => false,
            Ok(count) => to.write_all(&bytes[..count]).is_ok() && to.flush().is_ok(),
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        while copied(&mut from, &mut to, &mut bytes) && copied(&mut to, &mut from, &mut bytes) {}
    }

    #[test]
    fn rows_reach_a_server_by_tls_if_one_of_the_authorities_has_signed_its_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| Authority::new(folder.path(), name));
        ours.sign("database");
        let (events, server) = (events(), Server::new());
        let address = in_front_of(server.address, &ours);
        let trusting = |authority: &Authority| QuestDbSetting {
            port: address.port(),
            authorities: Some(authority.path("authority.pem")),
            ..setting(&server)
        };
        let mut plant = Plant::start(QuestDbSetting { linger: Duration::ZERO, ..trusting(&theirs) }, None, 0);
        plant.go_live(0);
        plant.publish(&events[..1_000]);
        plant.until(|status| status.failures > 1 && status.waiting > 0);
        let status = plant.end();
        assert_eq!((status.rows, server.tables().len()), (0, 0), "{status:?}");
        assert!(status.error.is_some());

        let mut plant = Plant::start(trusting(&ours), None, 0);
        plant.go_live(0);
        plant.publish(&events);
        let status = plant.end();
        let expected = expected(&events, "tls");
        assert_same(&values(&server.tables()), &expected);
        assert_eq!((status.rows, status.lost, status.refused), (count(&expected), 0, 0));
    }

    #[test]
    fn a_file_without_an_authority_is_an_error_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authorities.pem");
        std::fs::write(&path, "nothing").unwrap();
        let mut ring = Builder::new(8, || events()[0], Yielding::default);
        let reader = ring.consumer("questdb", &[]);
        let (_producer, mut ends) = ring.single_producer();
        let setting = QuestDbSetting { authorities: Some(path), ..QuestDbSetting::new("127.0.0.1", 1) };
        let consumer = ends.take(reader).unwrap();
        let error = questdb::start(setting, &BookOptions::default(), consumer, Begin::default()).unwrap_err();
        assert!(error.to_string().contains("authorities.pem"), "{error}");
    }
}
