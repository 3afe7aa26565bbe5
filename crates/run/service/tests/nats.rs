//! The output to NATS, over loopback: a real `nats-server` gets a generated market, is away, stopped, forbidding, without JetStream.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "nats")]

#[cfg(feature = "tls")]
mod authority;
mod session;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, Subscriber};
use axum::extract::ws::Message;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use prost::Message as _;
use serde_json::{Value, json};
use tapeworks_market::event::Gap;
use tapeworks_market::{BookOptions, Event, EventKind, Flags, InstrumentId, Publisher};
use tapeworks_outputs::begin::Begin;
use tapeworks_outputs::stream::messages::{Kind, Record};
use tapeworks_outputs::stream::{self, Encoding, Request, Streaming};
use tapeworks_ring::disruptor::{Builder, Producer};
use tapeworks_ring::wait::Yielding;
use tapeworks_runtime::secrets::Secret;
use tapeworks_service::nats::publisher::{self, Nats, WINDOW};
use tapeworks_service::nats::{NatsEncoding, NatsLogin, NatsSetting, NatsStatus, token_of};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether there is a server to test with.
fn is_there() -> bool {
    let is_there =
        Command::new("nats-server").arg("--version").output().is_ok_and(|run| run.status.success());
    if !is_there {
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        assert!(!is_ci, "nats-server is not installed (Debian: nats-server)");
        eprintln!(
            "SKIPPED: nats-server is not installed (Debian: nats-server): nothing takes what is published"
        );
    }
    is_there
}

/// A real server on this machine.
struct Server {
    folder: TempDir,
    port: u16,
    process: Option<Child>,
}

const JETSTREAM: &str = "jetstream { store_dir: \"STORE\" }";

impl Server {
    /// A server that is configured so besides its port, and does not run yet.
    fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let more = more.replace("STORE", folder.path().join("store").to_str().unwrap());
        let text = format!("listen: \"127.0.0.1:{port}\"\nserver_name: one\n{more}\n");
        std::fs::write(folder.path().join("server.conf"), text).unwrap();
        Self { folder, port, process: None }
    }

    fn started(more: &str) -> Self {
        let mut server = Self::new(more);
        server.start();
        server
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn start(&mut self) {
        let log = self.path().join("log");
        let run = Command::new("nats-server")
            .arg("-c")
            .arg(self.path().join("server.conf"))
            .arg("-l")
            .arg(&log)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(run.unwrap());
        let shown = || std::fs::read_to_string(&log).unwrap_or_default();
        until("the server greets", shown, || {
            let mut greeting = [0; 5];
            let stream = TcpStream::connect(("127.0.0.1", self.port));
            stream.and_then(|mut stream| stream.read_exact(&mut greeting)).is_ok() && greeting == *b"INFO "
        });
    }

    /// As `kill -9` does it.
    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn signal(&self, signal: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    fn setting(&self) -> NatsSetting {
        NatsSetting {
            prefix: "t.md".to_owned(),
            longest_pause: Duration::from_millis(200),
            ..NatsSetting::new(vec![("127.0.0.1".to_owned(), self.port)])
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // One that has ended is what is wanted.
            let _killed = process.kill();
            let _ended = process.wait();
        }
    }
}

fn until(what: &str, shown: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: {}", shown());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The status when it is so.
fn when(nats: &Nats, what: &str, is_so: impl Fn(&NatsStatus) -> bool) -> NatsStatus {
    until(what, || format!("{:?}", nats.status()), || is_so(&nats.status()));
    nats.status()
}

/// The stream of a plant, and the ring that its engine would fill.
struct Plant {
    producer: Producer<Event, Yielding>,
    streaming: Streaming,
}

impl Plant {
    /// Events before the one with this number are of the past.
    fn new(live_from: usize) -> Self {
        Self::with_ring(1 << 16, live_from)
    }

    fn with_ring(slots: usize, live_from: usize) -> Self {
        let blank = Event::new(EventKind::Other, Publisher::default(), InstrumentId::default());
        let mut ring = Builder::new(slots, || blank, Yielding::default);
        let reader = ring.consumer("stream", &[]);
        let (producer, mut ends) = ring.single_producer();
        let begin = Begin { live_from: Arc::new(AtomicU64::new(live_from as u64)), ..Begin::default() };
        let streaming = stream::start(ends.take(reader).unwrap(), &BookOptions::default(), begin).unwrap();
        Self { producer, streaming }
    }

    fn publish(&mut self, events: &[Event]) {
        for part in events.chunks(256) {
            self.producer.publish_batch(part.len(), |at, slot| *slot = part[at]).unwrap();
        }
    }

    fn nats(&self, setting: NatsSetting) -> Nats {
        publisher::start(setting, self.streaming.hub()).unwrap()
    }

    /// What a client of the stream gets, as JSON.
    fn client(&self) -> Receiver<Message> {
        self.streaming.hub().join(Request { trades: true, ..Request::default() })
    }

    /// Ends the events, and waits for the last records.
    fn end(self) {
        drop(self.producer);
        self.streaming.join().unwrap();
    }
}

/// All that waits for a client of the stream.
fn texts(client: &mut Receiver<Message>) -> Vec<String> {
    let text = |message| match message {
        Message::Text(text) => text.to_string(),
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| client.try_recv().ok()).map(text).collect()
}

/// The NBBO of a record, its symbol first. That it is of a snapshot is left out.
fn nbbo_of(text: &str) -> Option<(String, Value)> {
    let mut record: Value = serde_json::from_str(text).unwrap();
    let nbbo = record.get_mut("nbbo")?;
    let flags = nbbo["flags"].as_u64().unwrap() & !u64::from(Flags::SNAPSHOT.0);
    nbbo["flags"] = flags.into();
    Some((nbbo["symbol"].as_str().unwrap().to_owned(), record))
}

/// The last NBBO of each symbol.
fn last(texts: &[String]) -> BTreeMap<String, Value> {
    texts.iter().filter_map(|text| nbbo_of(text)).collect()
}

fn is_snapshot(text: &str) -> bool {
    let record: Value = serde_json::from_str(text).unwrap();
    record["nbbo"]["flags"].as_u64().is_some_and(|flags| flags & u64::from(Flags::SNAPSHOT.0) != 0)
}

/// The subject that a record has.
fn subject_of(text: &str) -> String {
    let record: Value = serde_json::from_str(text).unwrap();
    let symbol = |kind: &str| token_of(record[kind]["symbol"].as_str().unwrap());
    match record.as_object().unwrap().keys().nth(1).unwrap().as_str() {
        "nbbo" => format!("t.md.nbbo.{}", symbol("nbbo")),
        "trade" => format!("t.md.trade.{}", symbol("trade")),
        other => format!("t.md.{other}"),
    }
}

/// A program that reads from the server.
struct Reader {
    runtime: tokio::runtime::Handle,
    client: Client,
}

impl Reader {
    fn new(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        // It reads whatever the test does, and is there until the process ends.
        std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        let options = ConnectOptions::new();
        let client = handle.block_on(options.connect(format!("127.0.0.1:{}", server.port))).unwrap();
        Self { runtime: handle, client }
    }

    fn subscribe(&self, subject: &str) -> Subscriber {
        self.runtime.block_on(async {
            let subscriber = self.client.subscribe(subject.to_owned()).await.unwrap();
            // The server has it when it answers.
            let _no_such_thing = self.client.request("t.nothing", "".into()).await;
            subscriber
        })
    }

    fn take(&self, subscriber: &mut Subscriber, count: u64) -> Vec<async_nats::Message> {
        self.runtime.block_on(async {
            let mut all = Vec::new();
            for _ in 0..count {
                let next = tokio::time::timeout(PATIENCE, subscriber.next()).await;
                all.push(next.unwrap_or_else(|_| panic!("{} of {count} came", all.len())).unwrap());
            }
            all
        })
    }

    fn request(&self, subject: &str, body: &Value) -> Value {
        let answer = self.client.request(subject.to_owned(), body.to_string().into());
        serde_json::from_slice(&self.runtime.block_on(answer).unwrap().payload).unwrap()
    }

    /// The NBBO that JetStream keeps of a symbol.
    fn kept(&self, symbol: &str) -> Option<Value> {
        let subject = format!("t.md.nbbo.{}", token_of(symbol));
        let answer = self.request("$JS.API.STREAM.MSG.GET.TAPEWORKS", &json!({ "last_by_subj": subject }));
        let bytes = STANDARD.decode(answer["message"]["data"].as_str()?).unwrap();
        nbbo_of(&String::from_utf8(bytes).unwrap()).map(|(_, record)| record)
    }

    /// How many NBBOs JetStream keeps.
    fn count(&self) -> u64 {
        let info = self.request("$JS.API.STREAM.INFO.TAPEWORKS", &json!({}));
        info["state"]["messages"].as_u64().unwrap_or_default()
    }

    /// Waits until JetStream keeps the last NBBO of each symbol that the client of the stream has got.
    fn until_kept(&self, client: &mut Receiver<Message>, streamed: &mut Vec<String>) {
        let mut found = Vec::new();
        let began = Instant::now();
        loop {
            streamed.extend(texts(client));
            let wanted = last(streamed);
            let differs = |(symbol, record): &(&String, &Value)| self.kept(symbol).as_ref() != Some(*record);
            found.clear();
            found.extend(wanted.iter().filter(differs).map(|(symbol, _)| symbol.clone()));
            if found.is_empty() && !wanted.is_empty() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{found:?} differ of {}", wanted.len());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Events of a market, which ends with a sequence gap.
fn market(messages: u64, symbols: u32, seed: u64) -> Vec<Event> {
    let mut events = session::events(&session::scenario(messages, symbols, seed));
    let mut gap = *events.last().unwrap();
    gap.channel_sequence += 3;
    events.push(gap.with_gap(Gap { first: 17, count: 3 }));
    events
}

#[test]
fn publisher_sends_what_the_stream_sends_and_jetstream_keeps_the_last_of_each_symbol() {
    if !is_there() {
        return;
    }
    let events = market(9_000, 12, 7);
    let begin = events.len() / 2;
    let server = Server::started(JETSTREAM);
    let reader = Reader::new(&server);
    let mut all = reader.subscribe("t.md.>");
    let mut plant = Plant::new(begin);
    let (mut client, nats) = (plant.client(), plant.nats(server.setting()));
    when(&nats, "a connection", |status| status.is_connected && status.is_storing);
    plant.publish(&events[..begin]);
    let status = when(&nats, "the current NBBOs", |status| status.records > 0 && status.in_flight == 0);
    assert_eq!((status.connects, status.failures, status.store_failures), (1, 0, 0));
    until("the client has its own", String::new, || !client.is_empty());
    plant.publish(&events[begin..]);
    plant.end();
    let handle = nats.handle();
    nats.join().unwrap();
    let status = handle.status();
    assert!(!status.is_connected && status.error.is_none(), "{status:?}");
    assert_eq!((status.waiting, status.in_flight, status.unconfirmed, status.lost), (0, 0, 0, 0));
    assert_eq!((status.conflated, status.dropped_trades, status.dropped_gaps), (0, 0, 0));

    let messages = reader.take(&mut all, status.records);
    let nbbos = messages.iter().filter(|message| message.subject.starts_with("t.md.nbbo.")).count();
    assert_eq!(status.stored, nbbos as u64);
    let published: Vec<_> =
        messages.iter().map(|message| String::from_utf8(message.payload.to_vec()).unwrap()).collect();
    for (message, text) in messages.iter().zip(&published) {
        assert_eq!(message.subject.as_str(), subject_of(text));
    }
    let streamed = texts(&mut client);
    let changes = |texts: &[String]| -> Vec<String> {
        texts.iter().filter(|text| !is_snapshot(text)).cloned().collect()
    };
    let (published_changes, streamed_changes) = (changes(&published), changes(&streamed));
    assert!(streamed_changes.len() > 400 && streamed_changes.iter().any(|text| text.contains("\"trade\"")));
    assert!(streamed_changes.last().unwrap().contains("\"gap\""));
    assert_eq!(published_changes, streamed_changes);
    // The stream shows no symbol without quotes, and JetStream is to have no old value of one.
    assert_eq!(last(&streamed).len(), 12);
    assert_eq!(last(&published), last(&streamed));
    let kept = last(&streamed).into_keys().map(|symbol| reader.kept(&symbol).map(|record| (symbol, record)));
    assert_eq!(kept.collect::<Option<BTreeMap<_, _>>>().unwrap(), last(&published));
    assert_eq!(reader.count(), 12);
}

#[test]
fn publisher_sends_all_current_values_again_after_each_outage_of_the_server() {
    if !is_there() {
        return;
    }
    let events = market(9_000, 12, 11);
    let [first, amid, away, behind] = [8, 12, 15, 18].map(|part| events.len() * part / 24);
    let mut server = Server::started(JETSTREAM);
    let mut plant = Plant::new(0);
    let (mut client, nats) = (plant.client(), plant.nats(server.setting()));
    plant.publish(&events[..first]);
    when(&nats, "the first records", |status| status.stored > 0);
    plant.publish(&events[first..amid]);
    server.kill();
    plant.publish(&events[amid..away]);
    let status = when(&nats, "the outage", |status| !status.is_connected && status.failures > 1);
    let error = status.error.unwrap();
    assert!(error.contains(&format!("127.0.0.1:{}: ", server.port)), "{error}");
    server.start();
    plant.publish(&events[away..behind]);
    let status = when(&nats, "the second connection", |status| status.is_storing && status.connects == 2);
    assert_eq!(status.error, None);
    let mut streamed = Vec::new();
    Reader::new(&server).until_kept(&mut client, &mut streamed);

    // Nothing is left of JetStream's stream, and no NBBO changes behind the outage.
    server.kill();
    std::fs::remove_dir_all(server.path().join("store")).unwrap();
    plant.publish(&events[behind..]);
    when(&nats, "the second outage", |status| !status.is_connected);
    server.start();
    when(&nats, "the third connection", |status| status.is_storing && status.connects == 3);
    Reader::new(&server).until_kept(&mut client, &mut streamed);
    plant.end();
    let handle = nats.handle();
    nats.join().unwrap();
    let status = handle.status();
    assert_eq!((status.lost, status.conflated, status.dropped_trades), (0, 0, 0), "{status:?}");
}

#[test]
fn publisher_starts_without_a_server_and_connects_when_there_is_one() {
    if !is_there() {
        return;
    }
    let events = market(3_000, 5, 2);
    let mut server = Server::new(JETSTREAM);
    let mut plant = Plant::new(0);
    let (mut client, nats) = (plant.client(), plant.nats(server.setting()));
    let status = when(&nats, "a failure", |status| status.failures > 2);
    let error = status.error.unwrap();
    assert!(error.contains(&server.port.to_string()) && error.contains("refused"), "{error}");
    assert_eq!((status.is_connected, status.connects), (false, 0));
    plant.publish(&events);
    server.start();
    when(&nats, "the first records", |status| status.stored > 0);
    Reader::new(&server).until_kept(&mut client, &mut Vec::new());
    drop(nats);

    // At the end of a plant, what no server takes is counted, and not waited for longer than the setting says.
    let server = Server::new("");
    let mut plant = Plant::new(0);
    let nats = plant.nats(NatsSetting { linger: Duration::from_millis(50), ..server.setting() });
    let mut parts = events.chunks(events.len() / 100);
    until(
        "records wait",
        || format!("{:?}", nats.status()),
        || {
            plant.publish(parts.next().unwrap_or_default());
            nats.status().waiting > 0
        },
    );
    plant.end();
    let handle = nats.handle();
    nats.join().unwrap();
    let status = handle.status();
    assert!(status.lost > 0 && status.waiting == 0, "{status:?}");
}

#[test]
fn publisher_says_which_login_the_server_refuses_and_takes_a_replaced_token() {
    if !is_there() {
        return;
    }
    let server = Server::started("authorization { token: \"right\" }");
    let plant = Plant::new(0);
    let path = server.path().join("token");
    std::fs::write(&path, "wrong\n").unwrap();
    let of_file = Secret::of_file(&path, |_| Ok(())).unwrap();
    let user = NatsLogin::User { name: "me".to_owned(), password: "guess".into() };
    for (login, named) in [
        (None, "requires a login"),
        (Some(NatsLogin::Token("guess".into())), "refuses the token of [nats]"),
        (Some(user), "refuses the user 'me' with the password"),
        (Some(NatsLogin::Token(of_file.clone())), "refuses the token"),
    ] {
        let nats = plant.nats(NatsSetting { login, ..server.setting() });
        let status = when(&nats, "a failure", |status| status.error.is_some());
        let error = status.error.unwrap();
        assert!(
            error.starts_with(&format!("127.0.0.1:{}: ", server.port)) && error.contains(named),
            "{error}"
        );
        assert!(!error.contains("guess") && !error.contains("wrong"), "{error}");
        assert!(!status.is_connected);
    }
    let nats = plant.nats(NatsSetting { login: Some(NatsLogin::Token(of_file)), ..server.setting() });
    when(&nats, "a failure", |status| status.failures > 0);
    std::fs::write(&path, "right\n").unwrap();
    when(&nats, "a connection", |status| status.is_connected);
}

#[test]
fn publisher_counts_what_the_server_forbids_and_goes_on_where_jetstream_is_not() {
    if !is_there() {
        return;
    }
    let events = market(3_000, 5, 3);
    let server = Server::started(
        "authorization { users = [ { user: \"me\", password: \"guess\", permissions: { \
         publish: [\"_INBOX.>\", \"$JS.API.>\"], subscribe: \"_INBOX.>\" } } ] }",
    );
    let mut plant = Plant::new(0);
    let login = Some(NatsLogin::User { name: "me".to_owned(), password: "guess".into() });
    let nats = plant.nats(NatsSetting { login, ..server.setting() });
    let status = when(&nats, "no JetStream", |status| status.is_connected && status.store_failures > 1);
    assert!(!status.is_storing && status.error.as_ref().unwrap().contains("stream TAPEWORKS"), "{status:?}");
    plant.publish(&events);
    when(&nats, "an error of the server", |status| status.refused > 0);

    let server = Server::started("");
    let reader = Reader::new(&server);
    let mut all = reader.subscribe("t.md.>");
    let mut plant = Plant::new(0);
    let nats = plant.nats(server.setting());
    let status = when(&nats, "no JetStream", |status| status.is_connected && status.store_failures > 1);
    assert!(status.error.unwrap().contains("no JetStream"));
    plant.publish(&events);
    plant.end();
    let handle = nats.handle();
    nats.join().unwrap();
    let status = handle.status();
    assert!(status.records > 100 && status.stored == 0, "{status:?}");
    assert_eq!(reader.take(&mut all, status.records).len() as u64, status.records);
}

#[test]
fn publisher_goes_on_while_jetstream_does_not_answer() {
    if !is_there() {
        return;
    }
    let events = market(3_000, 5, 3);
    let server = Server::started("");
    let reader = Reader::new(&server);
    // A JetStream that takes requests and answers none.
    let _silent = reader.subscribe("$JS.API.>");
    let mut plant = Plant::new(0);
    let nats = plant.nats(NatsSetting { timeout: Duration::from_secs(3_600), ..server.setting() });
    when(&nats, "a connection", |status| status.is_connected);
    plant.publish(&events);
    let status = when(&nats, "records", |status| status.records > 100 && status.in_flight == 0);
    assert_eq!((status.store_failures, status.is_storing, status.failures), (0, false, 0), "{status:?}");
}

#[test]
fn publisher_says_that_the_operators_stream_does_not_take_the_nbbo() {
    if !is_there() {
        return;
    }
    let server = Server::started(JETSTREAM);
    let reader = Reader::new(&server);
    let config = json!({ "name": "TAPEWORKS", "subjects": ["other.>", "t.md.trade.*"], "storage": "memory" });
    let created = reader.request("$JS.API.STREAM.CREATE.TAPEWORKS", &config);
    assert!(created.get("error").is_none(), "{created}");
    let mut plant = Plant::new(0);
    let nats = plant.nats(server.setting());
    plant.publish(&market(3_000, 5, 3));
    let status = when(&nats, "an error", |status| status.store_failures > 1 && status.records > 100);
    let error = status.error.unwrap();
    assert!(error.contains("it takes other.>, t.md.trade.*, not t.md.nbbo.*"), "{error}");
    assert!(!status.is_storing && status.stored == 0);
}

#[test]
fn publisher_creates_a_deleted_stream_again_and_leaves_one_of_the_operator_as_it_is() {
    if !is_there() {
        return;
    }
    let events = market(6_000, 12, 13);
    let half = events.len() / 2;
    let server = Server::started(JETSTREAM);
    let reader = Reader::new(&server);
    let config = json!({
        "name": "TAPEWORKS", "subjects": ["t.md.nbbo.>"], "max_msgs_per_subject": 1, "storage": "memory",
    });
    let created = reader.request("$JS.API.STREAM.CREATE.TAPEWORKS", &config);
    assert!(created.get("error").is_none(), "{created}");
    let storage = || reader.request("$JS.API.STREAM.INFO.TAPEWORKS", &json!({}))["config"]["storage"].clone();
    let mut plant = Plant::new(0);
    let (mut client, nats) = (plant.client(), plant.nats(server.setting()));
    plant.publish(&events[..half]);
    when(&nats, "the first records", |status| status.stored > 0);
    let mut streamed = Vec::new();
    reader.until_kept(&mut client, &mut streamed);
    assert_eq!(storage(), "memory");
    let deleted = reader.request("$JS.API.STREAM.DELETE.TAPEWORKS", &json!({}));
    assert_eq!(deleted["success"], true);
    plant.publish(&events[half..]);
    let status = when(&nats, "another stream", |status| status.store_failures > 0 && status.is_storing);
    assert_eq!((status.connects, status.failures), (1, 0));
    reader.until_kept(&mut client, &mut streamed);
    assert_eq!(storage(), "file");
}

#[test]
fn publisher_of_a_server_that_stands_still_holds_bounded_records_and_counts_the_others() {
    if !is_there() {
        return;
    }
    let events = session::events(&session::scenario(150_000, 25, 3));
    let server = Server::started("");
    let reader = Reader::new(&server);
    let mut all = reader.subscribe("t.md.>");
    // The stream's thread does not fall behind in it, which would be another reason to conflate.
    let begin = 5_000;
    let mut plant = Plant::with_ring(1 << 19, begin);
    let setting = NatsSetting {
        queue_records: 64,
        stream: None,
        encoding: NatsEncoding::Protobuf,
        timeout: PATIENCE,
        ..server.setting()
    };
    let nats = plant.nats(setting);
    let mut whole = plant
        .streaming
        .hub()
        .subscribe(Request { encoding: Encoding::Protobuf, trades: true, ..Request::default() }, 1 << 20);
    whole.request_current();
    plant.publish(&events[..begin]);
    when(&nats, "the current NBBOs", |status| status.records > 0 && status.in_flight == 0);
    until("the client has its own", String::new, || !whole.records.is_empty());
    server.signal("-STOP");
    plant.publish(&events[begin..]);
    let slow = when(&nats, "a full queue", |status| status.conflated > 0 && status.dropped_trades > 0);
    assert!(slow.waiting <= 64 && slow.in_flight <= WINDOW, "{slow:?}");
    assert!(slow.is_connected);
    server.signal("-CONT");
    plant.end();
    let handle = nats.handle();
    nats.join().unwrap();
    let status = handle.status();
    assert_eq!((status.failures, status.lost, status.unconfirmed), (0, 0, 0), "{status:?}");

    let count = |records: &[Record]| {
        let is_change =
            |kind: &Kind| matches!(kind, Kind::Nbbo(nbbo) if nbbo.flags & u32::from(Flags::SNAPSHOT.0) == 0);
        let kinds = || records.iter().filter_map(|record| record.kind.as_ref());
        let trades = kinds().filter(|kind| matches!(kind, Kind::Trade(_))).count() as u64;
        (kinds().filter(|kind| is_change(kind)).count() as u64, trades)
    };
    let last = |records: &[Record]| -> BTreeMap<String, (u64, Option<i64>, Option<i64>)> {
        let values = records.iter().filter_map(|record| match &record.kind {
            Some(Kind::Nbbo(nbbo)) => {
                Some((nbbo.symbol.clone(), (record.event, nbbo.bid_price, nbbo.ask_price)))
            }
            _ => None,
        });
        values.collect()
    };
    let got: Vec<Record> = reader
        .take(&mut all, status.records)
        .into_iter()
        .map(|message| Record::decode(message.payload).unwrap())
        .collect();
    assert_eq!(whole.counters.stream_lagged.get(), 0);
    let wanted: Vec<Record> = std::iter::from_fn(|| whole.records.try_recv().ok())
        .map(|message| Record::decode(message.into_data()).unwrap())
        .collect();
    let ((changes, trades), (all_changes, all_trades)) = (count(&got), count(&wanted));
    assert!(all_changes + all_trades > WINDOW + 1_000 && all_trades > 1_000, "{all_changes} {all_trades}");
    assert_eq!(changes + status.conflated, all_changes);
    assert_eq!(trades + status.dropped_trades, all_trades);
    assert_eq!(last(&got), last(&wanted), "the last of each symbol is what there is");
    let missed = got.iter().filter_map(|record| match &record.kind {
        Some(Kind::Lagged(lagged)) => Some(lagged.conflated),
        _ => None,
    });
    assert_eq!(missed.sum::<u64>(), status.conflated, "the programs that read know it");
}

#[test]
fn publisher_gives_up_a_server_that_confirms_nothing_in_time() {
    if !is_there() {
        return;
    }
    let events = market(3_000, 5, 5);
    let server = Server::started(JETSTREAM);
    let mut plant = Plant::new(0);
    let nats = plant.nats(NatsSetting { timeout: Duration::from_millis(400), ..server.setting() });
    when(&nats, "a connection", |status| status.is_storing);
    server.signal("-STOP");
    plant.publish(&events);
    when(&nats, "the end of the connection", |status| {
        let error = status.error.as_deref().unwrap_or_default();
        status.unconfirmed > 0 && error.contains("confirms nothing for 400ms")
    });
    server.signal("-CONT");
    when(&nats, "another connection", |status| status.is_storing && status.connects >= 2);
}

#[test]
fn the_configuration_of_the_example_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nats.toml");
    let config = tapeworks_service::config::Config::load(&path).unwrap();
    assert_eq!(config.nats, Some(NatsSetting::new(vec![("127.0.0.1".to_owned(), 4_222)])));
}

#[cfg(feature = "tls")]
#[test]
fn publisher_speaks_tls_with_a_server_whose_authority_it_trusts_only() {
    use authority::Authority;
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| Authority::new(folder.path(), name));
    ours.sign("server");
    let [certificate, key] = ["server.pem", "server.key"].map(|name| ours.path(name).display().to_string());
    let server = Server::started(&format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}"));
    let plant = Plant::new(0);
    let trusting = |path| NatsSetting { authorities: Some(path), ..server.setting() };
    let nats = plant.nats(trusting(theirs.path("authority.pem")));
    let status = when(&nats, "a failure", |status| status.failures > 0);
    let error = status.error.unwrap();
    assert!(error.contains("certificate"), "{error}");
    let nats = plant.nats(trusting(ours.path("authority.pem")));
    when(&nats, "a connection", |status| status.is_connected);
    let none = folder.path().join("none.pem");
    std::fs::write(&none, "").unwrap();
    let error = publisher::start(trusting(none), plant.streaming.hub()).unwrap_err().to_string();
    assert!(error.contains("none.pem: holds no certificate"), "{error}");
}
