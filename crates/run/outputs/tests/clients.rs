//! The live server over real sockets, under a small client of our own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod session;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dbn::decode::{DbnDecoder, DbnMetadata, DecodeRecordRef};
use dbn::{Compression, ErrorMsg, MboMsg, Record, RecordRef, SymbolMappingMsg, SystemMsg};
use session::{DATASET, KEY, Plant, events, scenario};
use tapeworks_engine::history::{History, HistoryError, HistoryReader, MemoryHistory, Read as Piece};
use tapeworks_market::Event;
use tapeworks_outputs::clients::control::{Reason, SlowReader};
use tapeworks_outputs::clients::distributor::{Dataset, Distributor, Options};
use tapeworks_outputs::clients::server::{self, ServerError, ServerOptions};
use tapeworks_runtime::keys::Key;
use tapeworks_runtime::raise_descriptor_limit;
use tapeworks_store::Schema;
use tapeworks_time::Nanos;

/// A connection whose key is shown.
struct Client {
    stream: BufReader<TcpStream>,
    writer: TcpStream,
    is_compressed: bool,
}

/// What a session brought.
#[derive(Default)]
struct Received {
    /// Records of data, as bytes.
    records: Vec<Vec<u8>>,
    symbols: BTreeMap<u32, String>,
    system: Vec<String>,
    errors: Vec<String>,
    has_ts_out: bool,
}

impl Received {
    /// Takes a record; returns what it says, if it is a message.
    fn take(&mut self, record: RecordRef<'_>) -> Option<String> {
        if let Some(mapping) = record.get::<SymbolMappingMsg>() {
            let symbol = mapping.stype_out_symbol().unwrap().to_owned();
            let number = mapping.hd.instrument_id;
            assert_eq!(self.symbols.insert(number, symbol), None, "a symbol comes once");
        } else if let Some(message) = record.get::<SystemMsg>() {
            self.system.push(message.msg().unwrap().to_owned());
            return self.system.last().cloned();
        } else if let Some(message) = record.get::<ErrorMsg>() {
            self.errors.push(message.err().unwrap().to_owned());
            return self.errors.last().cloned();
        } else {
            let number = record.instrument_id() as u32;
            assert!(number == 0 || self.symbols.contains_key(&number), "{number} has no symbol yet");
            self.records.push(record.as_ref().to_vec());
        }
        None
    }
}

impl Client {
    fn connect(address: SocketAddr, more: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // A line is written in pieces, and none waits for an acknowledgement.
        stream.set_nodelay(true).unwrap();
        let mut stream = BufReader::new(stream);
        assert!(line(&mut stream).starts_with("lsg_version="));
        let challenge = line(&mut stream).trim_end().strip_prefix("cram=").unwrap().to_owned();
        let answer = hex::encode(Key::new("", KEY).unwrap().answer(&challenge));
        writeln!(stream.get_mut(), "auth={answer}-00000|dataset={DATASET}{more}").unwrap();
        let reply = line(&mut stream);
        assert!(reply.starts_with("success=1|session_id="), "{reply}");
        let writer = stream.get_ref().try_clone().unwrap();
        Self { stream, writer, is_compressed: more.contains("zstd") }
    }

    fn say(&mut self, line: &str) -> &mut Self {
        writeln!(self.writer, "{line}").unwrap();
        self
    }

    /// Begins the stream, and reads until a message says `until`; or to its end.
    fn start(mut self, until: &str) -> Stream {
        self.say("start_session");
        let compression = if self.is_compressed { Compression::Zstd } else { Compression::None };
        let reader: Box<dyn Read + Send> = match compression {
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(self.stream).unwrap()),
            Compression::None => Box::new(self.stream),
        };
        let decoder = DbnDecoder::new(reader).unwrap();
        assert_eq!(decoder.metadata().dataset, DATASET);
        let received = Received { has_ts_out: decoder.metadata().ts_out, ..Received::default() };
        let mut stream = Stream { decoder, received, writer: self.writer };
        stream.read(until);
        stream
    }

    /// As [`Client::start`] after this subscription.
    fn subscribe(mut self, line: &str) -> Stream {
        self.say(line);
        self.start("succeeded")
    }
}

struct Stream {
    writer: TcpStream,
    decoder: DbnDecoder<Box<dyn Read + Send>>,
    received: Received,
}

impl Stream {
    /// Says a line, and reads until a message says `until`.
    fn say(&mut self, line: &str, until: &str) {
        writeln!(self.writer, "{line}").unwrap();
        assert!(self.read(until), "the end came before '{until}'");
    }

    /// Reads until a message says `until`. Returns whether one did before the end.
    fn read(&mut self, until: &str) -> bool {
        while let Some(record) = self.decoder.decode_record_ref().unwrap() {
            if self.received.take(record).is_some_and(|message| message.contains(until)) {
                return true;
            }
        }
        false
    }

    /// Reads to the end in a thread of its own.
    fn rest(mut self) -> std::thread::JoinHandle<Received> {
        std::thread::spawn(move || {
            self.read("no message says this");
            self.received
        })
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

/// What a file of `schema` holds, as bytes of records.
fn expected(events: &[Event], schema: Schema) -> Vec<Vec<u8>> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("tapeworks-clients-{}-{count}.dbn", std::process::id());
    let path = std::env::temp_dir().join(name);
    session::write(events, schema, &path);
    let mut decoder = DbnDecoder::from_file(&path).unwrap();
    let mut records = Vec::new();
    while let Some(record) = decoder.decode_record_ref().unwrap() {
        records.push(record.as_ref().to_vec());
    }
    std::fs::remove_file(path).unwrap();
    records
}

fn number_of(record: &[u8]) -> u32 {
    u32::from_le_bytes(record[4..8].try_into().unwrap())
}

fn u64_at(record: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(record[offset..offset + 8].try_into().unwrap())
}

/// The time of receipt.
fn received_at(record: &[u8]) -> u64 {
    let offset = match record[1] {
        0xA0 => std::mem::offset_of!(MboMsg, ts_recv),
        0xB1 => std::mem::offset_of!(dbn::Cmbp1Msg, ts_recv),
        _ => std::mem::offset_of!(dbn::Mbp1Msg, ts_recv),
    };
    u64_at(record, offset)
}

fn same(what: &str, received: &[Vec<u8>], expected: &[Vec<u8>]) {
    let differs = received.iter().zip(expected).position(|(one, other)| one != other);
    assert_eq!(differs, None, "{what}: the first record that differs");
    assert_eq!(received.len(), expected.len(), "{what}: records");
}

/// A client has received the records of a schema that these events give from this time on.
fn same_from(time: Nanos, schema: Schema, received: &Received, events: &[Event]) {
    let whole: Vec<_> =
        expected(events, schema).into_iter().filter(|one| received_at(one) >= time.0).collect();
    let kind = dbn::RType::from(schema.as_str().parse::<dbn::Schema>().unwrap()) as u8;
    let records: Vec<_> = received.records.iter().filter(|one| one[1] == kind).cloned().collect();
    same(schema.as_str(), &records, &whole);
}

#[test]
fn every_schema_sends_the_records_of_a_file_alone_and_beside_others() {
    let events = events(&scenario(6_000, 12, 3));
    let mut plant = Plant::start();
    let address = plant.server.address();
    let subscription = |schema| format!("schema={schema}|symbols=ALL_SYMBOLS");
    let alone = Schema::ALL.map(|schema| {
        // One of them compressed.
        let more = if schema == Schema::Mbp10 { "|compression=zstd" } else { "" };
        (schema, Client::connect(address, more).subscribe(&subscription(schema)).rest())
    });
    let mut many = Client::connect(address, "");
    for schema in Schema::ALL {
        many.say(&subscription(schema));
    }
    let many = many.start("ohlcv-1d data succeeded").rest();
    // The same symbol twice, by its name, which is not known yet, and by the number that it will have.
    let symbols: Vec<_> = events.iter().filter_map(Event::symbol).collect();
    let mut twice = Client::connect(address, "");
    twice
        .say(&format!("schema=mbo|symbols={}", symbols[4]))
        .say("schema=mbo|stype_in=instrument_id|symbols=5");
    twice.say(&format!("schema=trades|symbols={}|id=3", symbols[5]));
    let twice = twice.start("request 3").rest();
    plant.publish(&events);
    plant.end();
    let many = many.join().unwrap();
    let mut total = 0;
    for (schema, client) in alone {
        let received = client.join().unwrap();
        assert_eq!((received.symbols.len(), &received.errors), (12, &vec![]), "{schema}");
        let mut expected = expected(&events, schema);
        if schema.as_str().contains("bbo-1") || schema.as_str().starts_with("ohlcv") {
            // The end of a file ends its last interval; a live interval ends when the next event shows that it is over.
            assert!(expected.len() - received.records.len() <= 36, "{schema}");
            expected.truncate(received.records.len());
        }
        // Only SIPs have statistics.
        assert_eq!(expected.is_empty(), schema == Schema::Statistics, "{schema}");
        same(schema.as_str(), &received.records, &expected);
        total += expected.len();
    }
    assert_eq!(many.records.len(), total);
    // Records of all schemas come in the order of their events: times of receipt never go back.
    let times: Vec<u64> = many
        .records
        .iter()
        .filter(|record| matches!(record[1], 0xA0 | 0x00..=0x02))
        .map(|one| received_at(one))
        .collect();
    assert!(times.is_sorted());
    let of = |schema, number| {
        expected(&events, schema).into_iter().filter(move |one| number_of(one) == number).collect::<Vec<_>>()
    };
    let twice = twice.join().unwrap().records;
    let (trades, orders): (Vec<_>, Vec<_>) = twice.into_iter().partition(|one| one[1] == 0x00);
    same("subscribed to twice", &orders, &of(Schema::Mbo, 5));
    same("beside it", &trades, &of(Schema::Trades, 6));
    let of_mbo: Vec<_> = many.records.iter().filter(|record| record[1] == 0xA0).cloned().collect();
    same("mbo beside others", &of_mbo, &expected(&events, Schema::Mbo));
}

#[test]
fn a_list_adds_its_symbols_and_those_that_appear_later() {
    let events = events(&scenario(5_000, 12, 5));
    let mut plant = Plant::start();
    let address = plant.server.address();
    let symbols: Vec<String> =
        events.iter().filter_map(|event| event.symbol().map(|symbol| symbol.as_str().to_owned())).collect();
    let list = format!("schema=mbo|symbols={},{}|id=7", symbols[2], symbols[9]);
    let pending = Client::connect(address, "").subscribe(&list);
    // By number, one of them far beyond any that there will be.
    let numbers = "schema=mbo|stype_in=instrument_id|symbols=3,10,16777215";
    let numbered = Client::connect(address, "").subscribe(numbers);
    assert!(numbered.received.errors[0].contains("16777215"), "{:?}", numbered.received.errors);
    assert_eq!(pending.received.errors.len(), 1, "nothing is known yet");
    assert!(pending.received.errors[0].contains(&symbols[9]), "{:?}", pending.received.errors);
    assert!(pending.received.symbols.is_empty());
    plant.publish(&events[..1000]);
    let by_number = Client::connect(address, "");
    let by_number = by_number.subscribe("schema=mbo|stype_in=instrument_id|symbols=3,10");
    assert_eq!(by_number.received.symbols.get(&10), Some(&symbols[9]));
    // One more symbol for a session that runs, then the first no more.
    let mut changing = Client::connect(address, "").subscribe(&format!("schema=mbo|symbols={}", symbols[2]));
    plant.publish(&events[1000..2000]);
    plant.reach(2000);
    changing.say(&format!("schema=mbo|symbols={}|id=5", symbols[9]), "request 5");
    plant.publish(&events[2000..3000]);
    plant.reach(3000);
    changing.say(&format!("unsubscribe|schema=mbo|symbols={}", symbols[2]), "Unsubscribed from mbo");
    plant.publish(&events[3000..]);
    let (pending, by_number, changing) = (pending.rest(), by_number.rest(), changing.rest());
    let numbered = numbered.rest();
    plant.end();
    let (pending, by_number, changing) =
        (pending.join().unwrap(), by_number.join().unwrap(), changing.join().unwrap());
    let of = |events: &[Event], numbers: &[u32]| -> Vec<Vec<u8>> {
        expected(events, Schema::Mbo).into_iter().filter(|one| numbers.contains(&number_of(one))).collect()
    };
    same("symbols that appeared", &pending.records, &of(&events, &[3, 10]));
    same("numbers that appeared", &numbered.join().unwrap().records, &of(&events, &[3, 10]));
    assert_eq!(pending.symbols.len(), 2);
    let skip = of(&events[..1000], &[3, 10]).len();
    same("by number", &by_number.records, &of(&events, &[3, 10])[skip..]);
    let at = |count: usize, numbers: &[u32]| of(&events[..count], numbers).len();
    let mut changes = of(&events[..2000], &[3])[at(1000, &[3])..].to_vec();
    changes.extend_from_slice(&of(&events[..3000], &[3, 10])[at(2000, &[3, 10])..]);
    changes.extend_from_slice(&of(&events, &[10])[at(3000, &[10])..]);
    same("changed twice", &changing.records, &changes);
}

#[test]
fn a_snapshot_and_the_records_after_it_are_complete() {
    let events = events(&scenario(8_000, 10, 8));
    let mut plant = Plant::start();
    let address = plant.server.address();
    plant.publish(&events[..4000]);
    plant.reach(4000);
    let snapshot = |schema| {
        let line = format!("schema={schema}|symbols=ALL_SYMBOLS|snapshot=1");
        Client::connect(address, "").subscribe(&line)
    };
    let clients = [Schema::Mbo, Schema::Mbp1, Schema::Mbp10, Schema::Cmbp1, Schema::Bbo1S, Schema::Cbbo1S]
        .map(|schema| {
            let mut client = snapshot(schema);
            // What comes after the acknowledgement is the snapshot; what was unknown of the schema is not there.
            client.say("schema=status|symbols=ALL_SYMBOLS|id=9", "request 9");
            (schema, std::mem::take(&mut client.received.records), client.rest())
        });
    plant.publish(&events[4000..]);
    plant.end();
    for (schema, first, client) in clients {
        let rest = client.join().unwrap().records;
        let flags: Vec<u8> = first.iter().map(|one| flags_of(one)).collect();
        assert!(!flags.is_empty() && flags.iter().all(|flags| flags & dbn::flags::SNAPSHOT != 0), "{schema}");
        let (before, whole) = (expected(&events[..4000], schema), expected(&events, schema));
        let rest: Vec<_> = rest.into_iter().filter(|one| one[1] == first[0][1]).collect();
        match schema {
            Schema::Mbo => {
                same("after the snapshot", &rest, &whole[before.len()..]);
                assert_eq!(orders(&first), orders(&before));
                let (mut both, all) = (first.clone(), orders(&whole));
                both.extend(rest);
                assert_eq!(orders(&both), all);
                assert!(!all.is_empty());
            }
            Schema::Bbo1S | Schema::Cbbo1S => assert!(first.len() >= 10, "{schema}"),
            _ => {
                same("after the snapshot", &rest, &whole[before.len()..]);
                // The levels of the last record of each instrument of each feed: what a snapshot has.
                let publisher = |one: &[u8]| {
                    if schema == Schema::Cmbp1 { 0 } else { u16::from(one[2]) | u16::from(one[3]) << 8 }
                };
                let key = |one: &Vec<u8>| (publisher(one), number_of(one));
                let last: BTreeMap<_, _> = before.iter().map(|one| (key(one), &one[48..])).collect();
                for one in &first {
                    assert_eq!(Some(&&one[48..]), last.get(&key(one)), "{schema}");
                }
                assert!(first.len() >= 10, "{schema}");
            }
        }
    }
}

fn flags_of(record: &[u8]) -> u8 {
    match record[1] {
        0xA0 => record[std::mem::offset_of!(MboMsg, flags)],
        0xC0..=0xC4 => record[std::mem::offset_of!(dbn::BboMsg, flags)],
        0xB1 => record[std::mem::offset_of!(dbn::Cmbp1Msg, flags)],
        _ => record[std::mem::offset_of!(dbn::Mbp1Msg, flags)],
    }
}

/// By side and price the orders and their shares, in the order of their arrival.
type Book = BTreeMap<(u8, i64), Vec<(u64, u32)>>;

/// The orders that rest after these records, by feed and instrument, in the order of their arrival at each price.
fn orders(records: &[Vec<u8>]) -> BTreeMap<(u16, u32), Book> {
    let mut books: BTreeMap<(u16, u32), Book> = BTreeMap::new();
    for record in records {
        let publisher = u16::from_le_bytes([record[2], record[3]]);
        let book = books.entry((publisher, number_of(record))).or_default();
        let id = u64_at(record, std::mem::offset_of!(MboMsg, order_id));
        let price = u64_at(record, std::mem::offset_of!(MboMsg, price)) as i64;
        let size = std::mem::offset_of!(MboMsg, size);
        let size = u32::from_le_bytes(record[size..size + 4].try_into().unwrap());
        let level = (record[std::mem::offset_of!(MboMsg, side)], price);
        match record[std::mem::offset_of!(MboMsg, action)] {
            b'R' => book.clear(),
            b'A' => book.entry(level).or_default().push((id, size)),
            b'C' => {
                let queue = book.get_mut(&level).unwrap();
                let place = queue.iter().position(|(other, _)| *other == id).unwrap();
                queue[place].1 -= size;
                if queue[place].1 == 0 {
                    queue.remove(place);
                }
                if queue.is_empty() {
                    book.remove(&level);
                }
            }
            _ => {}
        }
    }
    books.retain(|_, book| !book.is_empty());
    books
}

#[test]
fn a_server_that_starts_in_mid_day_knows_the_events_before() {
    let events = events(&scenario(6_000, 6, 7));
    let (before, rest) = events.split_at(3_000);
    let mut plant = Plant::after(before);
    plant.reach(3_000);
    let address = plant.server.address();
    let snapshot = Client::connect(address, "").subscribe("schema=mbo|symbols=ALL_SYMBOLS|snapshot=1").rest();
    let replay = Client::connect(address, "").subscribe("schema=cmbp-1|symbols=ALL_SYMBOLS|start=0").rest();
    plant.publish(rest);
    plant.end();
    let whole = expected(&events, Schema::Mbo);
    assert_eq!(orders(&snapshot.join().unwrap().records), orders(&whole));
    same("from the beginning", &replay.join().unwrap().records, &expected(&events, Schema::Cmbp1));
}

/// Events from before a restart are not sent as if they happened now, and a client that has seen all of them is not refused for a
/// start in the future.
#[test]
fn a_client_that_resumes_during_a_journal_replay_waits_for_the_present() {
    let events = events(&scenario(6_000, 6, 13));
    let (journal, rest) = events.split_at(4_000);
    for seen in [3_000, 3_999] {
        let mut plant = Plant::replaying(journal);
        plant.replay(&journal[..1_000]);
        plant.reach(1_000);
        let (address, time) = (plant.server.address(), events[seen].ts_recv);
        let client = std::thread::spawn(move || {
            let mut client = Client::connect(address, "");
            for schema in ["mbo", "cmbp-1"] {
                client.say(&format!("schema={schema}|symbols=ALL_SYMBOLS|start={}", time.0));
            }
            client.start("succeeded").rest().join().unwrap()
        });
        std::thread::sleep(Duration::from_millis(20));
        plant.replay(&journal[1_000..]);
        plant.reach(4_000);
        std::thread::sleep(Duration::from_millis(20));
        let counters = plant.server.stats().counters;
        assert_eq!((counters.accepted, client.is_finished()), (0, false), "no client is served yet");
        plant.live_from(4_000);
        while plant.server.stats().counters.accepted == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        plant.publish(rest);
        plant.reach(events.len() as u64);
        plant.end();
        let received = client.join().unwrap();
        assert!(received.errors.is_empty(), "{:?}", received.errors);
        for schema in [Schema::Mbo, Schema::Cmbp1] {
            same_from(time, schema, &received, &events);
        }
    }
}

#[test]
fn a_history_may_lag_behind_the_ring() {
    let events = events(&scenario(4_000, 6, 11));
    let late = MemoryHistory::default();
    let history = late.clone();
    let mut plant = Plant::with(|options| options.history = Some(Arc::new(history)));
    let (most, rest) = events.split_at(events.len() - 500);
    plant.publish(most);
    plant.reach(most.len() as u64);
    late.append(&events[..1000]);
    let client =
        Client::connect(plant.server.address(), "").subscribe("schema=mbo|symbols=ALL_SYMBOLS|start=0");
    // The replay has requested to join by then, or does so now: it waits for the events in between.
    plant.publish(rest);
    std::thread::sleep(Duration::from_millis(50));
    late.append(&events[1000..]);
    let client = client.rest();
    plant.end();
    let received = client.join().unwrap();
    same("late", &received.records, &expected(&events, Schema::Mbo));
    assert!(received.errors.is_empty(), "{:?}", received.errors);
}

/// A history whose disk fails after its events are read.
struct Failing {
    events: Vec<Event>,
    is_read: bool,
}

impl History for Failing {
    fn open(&self, _from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
        Ok(Box::new(Self { events: self.events.clone(), is_read: false }))
    }
}

impl HistoryReader for Failing {
    fn read(&mut self) -> Result<Piece<'_>, HistoryError> {
        if std::mem::replace(&mut self.is_read, true) {
            return Err(HistoryError::unreadable("the disk is gone"));
        }
        Ok(Piece::Events(&self.events))
    }
}

#[test]
fn a_failed_replay_is_reported_and_others_go_on() {
    let events = events(&scenario(60_000, 6, 11));
    let history = Failing { events: events[..5_000].to_vec(), is_read: false };
    let mut plant = Plant::with(|options| {
        options.history = Some(Arc::new(history));
    });
    let address = plant.server.address();
    let other = Client::connect(address, "").subscribe("schema=trades|symbols=ALL_SYMBOLS").rest();
    plant.publish(&events[..50_000]);
    plant.reach(50_000);
    let replay = |schema| {
        let client = Client::connect(address, "");
        client.subscribe(&format!("schema={schema}|symbols=ALL_SYMBOLS|start=0")).rest()
    };
    let received = replay(Schema::Mbo).join().unwrap();
    assert!(received.errors[0].contains("the disk is gone"), "{:?}", received.errors);
    plant.publish(&events[50_000..]);
    plant.reach(events.len() as u64);
    assert_eq!(plant.server.stats().counters.replays_failed, 1);
    plant.end();
    same("the other", &other.join().unwrap().records, &expected(&events, Schema::Trades));
}

#[test]
fn impossible_replays_are_refused() {
    let mut plant = Plant::with(|options| options.history = None);
    let events = events(&scenario(500, 2, 1));
    plant.publish(&events);
    let received = |plant: &Plant, line: &str| {
        let mut client = Client::connect(plant.server.address(), "");
        client.say(line);
        client.start("no message says this").received.errors
    };
    let errors = received(&plant, "schema=mbo|symbols=ALL_SYMBOLS|start=0");
    assert!(errors[0].contains("no history"), "{errors:?}");
    let mut plant = Plant::start();
    plant.publish(&events);
    plant.reach(events.len() as u64);
    let errors = received(&plant, "schema=mbo|symbols=ALL_SYMBOLS|start=9000000000000000000");
    assert!(errors[0].contains("later than the newest"), "{errors:?}");
    let busy = Plant::with(|options| options.max_replays = 0);
    let errors = received(&busy, "schema=mbo|symbols=ALL_SYMBOLS|start=0");
    assert!(errors[0].contains("as many as may be"), "{errors:?}");
    let errors = received(&plant, "schema=mbo|symbols=A|start=0\nschema=mbo|symbols=B|start=1");
    assert!(errors[0].contains("one start="), "{errors:?}");
}

#[test]
fn one_stalled_client_of_many_delays_no_other() {
    let events = events(&scenario(60_000, 20, 2));
    let mut plant = Plant::with(|options| options.queue_bytes = 1 << 20);
    let address = plant.server.address();
    let line = "schema=mbo|symbols=ALL_SYMBOLS";
    // They read no more from here on. What the system itself buffers is a few megabytes each.
    let stalled = Client::connect(address, "").subscribe(line);
    let skipping = Client::connect(address, "|slow_reader_behavior=skip").subscribe(line);
    // 200 more: some take all trades, the others those of one symbol each.
    let readers: Vec<_> = (0..200u32)
        .map(|place| {
            let wanted = if place % 4 == 0 { None } else { Some(place % 20 + 1) };
            let list = wanted.map_or("raw_symbol|symbols=ALL_SYMBOLS".to_owned(), |number| {
                format!("instrument_id|symbols={number}")
            });
            let line = format!("schema=trades|stype_in={list}");
            (wanted, Client::connect(address, "").subscribe(&line).rest())
        })
        .collect();
    let whole = Client::connect(address, "").subscribe(line).rest();
    // Four times the day, so that every buffer is full; the numbers of orders are the same, so most are refused by the
    // books after the first.
    let mut rounds = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while plant.server.stats().counters.ended_slow == 0 || plant.server.stats().counters.skipped == 0 {
        for part in events.chunks(2000) {
            plant.publish(part);
            std::thread::sleep(Duration::from_millis(2));
        }
        rounds += 1;
        assert!(Instant::now() < deadline, "no client was too slow: {:?}", plant.server.stats());
    }
    let stats = plant.server.stats();
    assert_eq!(stats.counters.ended_slow, 1, "{stats:?}");
    // The client that skips gets the number when it reads again.
    let skipping = skipping.rest();
    let stalled = stalled.rest();
    let repeated: Vec<Event> = (0..rounds).flat_map(|_| events.iter().copied()).collect();
    plant.end();
    let trades = expected(&repeated, Schema::Trades);
    for (wanted, reader) in readers {
        let of_it = |one: &&Vec<u8>| wanted.is_none_or(|number| number == number_of(one));
        let expected: Vec<_> = trades.iter().filter(of_it).cloned().collect();
        same(&format!("trades of {wanted:?}"), &reader.join().unwrap().records, &expected);
    }
    let all = expected(&repeated, Schema::Mbo);
    same("the quick one's orders", &whole.join().unwrap().records, &all);
    let received = skipping.join().unwrap();
    let skipped: u64 = received
        .errors
        .iter()
        .map(|error| error.split(' ').find_map(|word| word.parse::<u64>().ok()).unwrap())
        .sum();
    assert!(skipped > 0);
    assert_eq!(received.records.len() as u64 + skipped, all.len() as u64, "{:?}", received.errors);
    let received = stalled.join().unwrap();
    assert!(received.system.iter().any(|message| message.contains("slow reader")), "{:?}", received.system);
    assert!(received.errors.last().is_some_and(|error| error.contains("too slow")), "{:?}", received.errors);
    assert!(received.records.len() < all.len());
    same("what the stalled one got", &received.records, &all[..received.records.len()]);
}

/// It got 24 stray bytes and the end of the connection, as both warning and reason waited behind what it had not read.
#[test]
fn a_slow_client_reads_whole_records_then_why_its_session_ended_even_much_later() {
    let events = events(&scenario(60_000, 20, 2));
    let (mut distributor, address) = bare(|options| options.queue_bytes = 1 << 20);
    let (wall, second) = (Nanos(1), |count: u64| Nanos(count * Nanos::SECOND));
    let stalled = ["", "|compression=zstd"].map(|more| {
        let line = "schema=mbo|symbols=ALL_SYMBOLS";
        let client = std::thread::spawn(move || Client::connect(address, more).subscribe(line));
        serve_until(&mut distributor, (wall, second(1)), |_| client.is_finished());
        client.join().unwrap()
    });
    let mut published = Vec::new();
    while distributor.counters().ended_slow < 2 {
        for part in events.chunks(2000) {
            distributor.events(published.len() as u64, part, wall).unwrap();
            distributor.serve(wall, second(1), Duration::ZERO).unwrap();
            published.extend_from_slice(part);
        }
        assert!(published.len() < 50 * events.len(), "no client was too slow: {:?}", distributor.counters());
    }
    let evicted = distributor.evicted();
    assert!(
        evicted.len() == 2 && evicted.iter().all(|one| one.reason.contains("is too slow")),
        "{evicted:?}"
    );
    // Longer than others have to read why.
    let late = second(8);
    distributor.serve(wall, late, Duration::ZERO).unwrap();
    let all = expected(&published, Schema::Mbo);
    for (place, stalled) in stalled.into_iter().enumerate() {
        let reader = stalled.rest();
        serve_until(&mut distributor, (wall, late), |_| reader.is_finished());
        let received = reader.join().unwrap();
        same("what the stalled one got", &received.records, &all[..received.records.len()]);
        assert!(!received.records.is_empty() && received.records.len() < all.len());
        assert!(
            received.errors.last().is_some_and(|error| error.contains("too slow")),
            "{place} {:?}",
            received.errors
        );
        // In a compressed stream the warning waits with the rest.
        let is_warned = received.system.iter().any(|message| message.contains("slow reader"));
        assert!(is_warned || place == 1, "{:?}", received.system);
    }
}

#[test]
fn a_snapshot_larger_than_the_queue_marks_no_client_slow() {
    let events = events(&scenario(30_000, 20, 2));
    let (most, rest) = events.split_at(events.len() - 300);
    let mut plant = Plant::with(|options| options.queue_bytes = 1 << 15);
    plant.publish(most);
    plant.reach(most.len() as u64);
    let line = "schema=mbo|symbols=ALL_SYMBOLS|snapshot=1";
    // It reads no further than the acknowledgement, which comes before the snapshot.
    let client = Client::connect(plant.server.address(), "").subscribe(line);
    plant.publish(rest);
    plant.reach(events.len() as u64);
    let client = client.rest();
    plant.end();
    let received = client.join().unwrap();
    let said = ["Subscription request for mbo data succeeded", "Finished mbo snapshot"];
    assert_eq!((&received.errors, &received.system[..]), (&vec![], &said.map(str::to_owned)[..]));
    let snapshot =
        received.records.iter().take_while(|one| flags_of(one) & dbn::flags::SNAPSHOT != 0).count();
    assert!(snapshot * 56 > 1 << 15, "{snapshot} records are no large snapshot");
    let before = expected(most, Schema::Mbo).len();
    same("after it", &received.records[snapshot..], &expected(&events, Schema::Mbo)[before..]);
}

#[test]
fn a_conflated_client_has_the_last_quote_of_every_instrument() {
    let events = events(&scenario(40_000, 20, 4));
    let mut plant = Plant::with(|options| options.queue_bytes = 1 << 18);
    let line = "schema=cmbp-1|symbols=ALL_SYMBOLS";
    let client = Client::connect(plant.server.address(), "|slow_reader_behavior=conflate").subscribe(line);
    let mut published = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while plant.server.stats().counters.conflated < 1000 {
        for part in events.chunks(4000) {
            plant.publish(part);
            std::thread::sleep(Duration::from_millis(2));
        }
        published.extend_from_slice(&events);
        assert!(Instant::now() < deadline, "nothing was conflated: {:?}", plant.server.stats());
    }
    let client = client.rest();
    // What is published is conflated by then, or queued: nothing more is conflated.
    plant.reach(published.len() as u64);
    let conflated = plant.server.stats().counters.conflated;
    plant.end();
    let received = client.join().unwrap();
    let all = expected(&published, Schema::Cmbp1);
    assert_eq!(received.records.len() as u64 + conflated, all.len() as u64);
    let last = |records: &[Vec<u8>]| -> BTreeMap<u32, Vec<u8>> {
        records.iter().map(|one| (number_of(one), one.clone())).collect()
    };
    assert_eq!(last(&received.records), last(&all));
    assert!(received.errors.is_empty(), "{:?}", received.errors);
}

#[test]
fn times_of_sending_are_in_every_record_that_asks_for_them() {
    let events = events(&scenario(2_000, 4, 6));
    let mut plant = Plant::start();
    let address = plant.server.address();
    let plain = Client::connect(address, "").subscribe("schema=mbp-1|symbols=ALL_SYMBOLS").rest();
    let whole = Client::connect(address, "|ts_out=1").subscribe("schema=mbp-1|symbols=ALL_SYMBOLS").rest();
    let mut both = Client::connect(address, "|ts_out=1|compression=zstd");
    both.say("schema=trades|symbols=ALL_SYMBOLS|start=0");
    let both = both.subscribe("schema=mbp-1|symbols=ALL_SYMBOLS").rest();
    plant.publish(&events);
    plant.end();
    let plain = plain.join().unwrap();
    assert!(!plain.has_ts_out);
    for received in [whole, both].map(|client| client.join().unwrap()) {
        assert!(received.has_ts_out);
        let quotes: Vec<_> = received.records.iter().filter(|one| one[1] == 0x01).collect();
        assert_eq!(quotes.len(), plain.records.len());
        for (one, other) in quotes.iter().zip(&plain.records) {
            assert_eq!(usize::from(one[0]) * 4, other.len() + 8);
            assert_eq!(one[1..other.len()], other[1..]);
            let sent = u64::from_le_bytes(one[other.len()..].try_into().unwrap());
            assert!(sent > 1_700_000_000_000_000_000, "{sent} is no time of today");
        }
    }
}

#[test]
fn clients_without_a_key_are_refused_counted_and_reported_once_and_others_do_not_notice() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&received);
    let mut plant = Plant::with(|options| {
        options.on_refusal = Some(Arc::new(move |refused| log.lock().unwrap().push(refused.clone())));
        options.limits.authentication_ns = 300_000_000;
        options.max_unauthenticated = 64;
    });
    let address = plant.server.address();
    let events = events(&scenario(3_000, 4, 6));
    let good = Client::connect(address, "").subscribe("schema=mbo|symbols=ALL_SYMBOLS").rest();
    // More connections that say nothing than may be: the oldest make room.
    assert!(raise_descriptor_limit() > 2_100, "1,000 connections have two ends in this process");
    let idle: Vec<_> = (0..1_000).map(|_| TcpStream::connect(address).unwrap()).collect();
    let ends = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.write_all(bytes);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        String::from_utf8(reply).unwrap()
    };
    plant.publish(&events[..1000]);
    for (bytes, why) in [
        (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "is no authentication request"),
        (&[0xFF; 100_000][..], "longer than 65536 bytes"),
        (b"\xff\xfe\n", "is no authentication request"),
        (b"auth=00-00000|dataset=TAPEWORKS.DEMO\n", "authentication failed"),
        (b"auth=", "no authentication within"),
    ] {
        let reply = ends(bytes);
        assert!(reply.contains("success=0|error=") && reply.contains(why), "{why}: {reply}");
    }
    // Admitted clients get errors in DBN.
    let mut admitted = Client::connect(address, "");
    admitted.say("schema=mbo|symbols=ALL_SYMBOLS|stype_in=parent");
    let received_errors = admitted.start("no message says this").received.errors;
    assert!(
        received_errors[0].contains("stype_in=parent: expected raw_symbol or instrument_id"),
        "{received_errors:?}"
    );
    drop(idle);
    plant.publish(&events[1000..]);
    plant.reach(events.len() as u64);
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut counters = plant.server.stats().counters;
    while counters.accepted != counters.closed + 1 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        counters = plant.server.stats().counters;
    }
    plant.end();
    same("the good one", &good.join().unwrap().records, &expected(&events, Schema::Mbo));
    assert!(counters.refused(Reason::Garbage) >= 3, "{counters:?}");
    assert_eq!((counters.refused(Reason::Limit), counters.refused(Reason::Authentication)), (1, 1));
    assert!(counters.evicted >= 900 && counters.refused(Reason::Late) >= 1, "{counters:?}");
    assert_eq!(counters.accepted, counters.closed + 1, "only the good one is left: {counters:?}");
    let received = received.lock().unwrap();
    assert_eq!(received.len(), 1, "all came from one address within a minute");
}

#[test]
fn keys_have_datasets_and_a_number_of_connections() {
    let events = events(&scenario(4_000, 6, 9));
    let mut plant = Plant::with(|options| {
        let mut key = Key::new("one", KEY).unwrap();
        (key.max_connections, key.datasets) = (1, vec![DATASET.to_owned()]);
        options.keys = tapeworks_runtime::keys::Keys::new(vec![key]);
        // A dataset of one feed: Nasdaq's alone.
        options.datasets = vec![
            Dataset { name: DATASET.to_owned(), publishers: vec![2] },
            Dataset { name: "OTHER".to_owned(), publishers: Vec::new() },
        ];
    });
    let address = plant.server.address();
    let refused = |dataset: &str| {
        let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
        line(&mut stream);
        let challenge = line(&mut stream).trim_end().strip_prefix("cram=").unwrap().to_owned();
        let answer = hex::encode(Key::new("", KEY).unwrap().answer(&challenge));
        writeln!(stream.get_mut(), "auth={answer}-00000|dataset={dataset}").unwrap();
        line(&mut stream)
    };
    assert!(refused("OTHER").contains("not entitled to dataset 'OTHER'"));
    assert!(refused("NONE").contains("unknown dataset 'NONE'"));
    let client = Client::connect(address, "").subscribe("schema=mbp-1|symbols=ALL_SYMBOLS");
    assert!(refused(DATASET).contains("more than 1 connections"));
    plant.publish(&events);
    let client = client.rest();
    plant.end();
    let of_nasdaq: Vec<_> =
        expected(&events, Schema::Mbp1).into_iter().filter(|one| one[2..4] == [2, 0]).collect();
    same("one feed", &client.join().unwrap().records, &of_nasdaq);
}

#[test]
fn silence_is_filled_with_heartbeats() {
    let plant = Plant::start();
    let line = "schema=mbo|symbols=ALL_SYMBOLS";
    let mut client = Client::connect(plant.server.address(), "|heartbeat_interval_s=1").subscribe(line);
    assert!(client.read("Heartbeat"));
    let mut stats = plant.server.stats();
    while stats.counters.heartbeats == 0 {
        std::thread::sleep(Duration::from_millis(5));
        stats = plant.server.stats();
    }
    assert_eq!((stats.clients.len(), stats.clients[0].slow_reader), (1, SlowReader::Warn));
    assert_eq!((&stats.clients[0].key[..], &stats.clients[0].schemas[..]), ("demo", &[Schema::Mbo][..]));
}

/// A distributor without a thread, and where it listens.
fn bare(change: impl FnOnce(&mut Options)) -> (Distributor, SocketAddr) {
    let (mut options, _) = session::options();
    change(&mut options);
    let mut distributor = Distributor::new(options).unwrap();
    let listener = server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    distributor.listen(listener).unwrap();
    (distributor, address)
}

/// Serves until something holds, or is late.
fn serve_until(
    distributor: &mut Distributor,
    (wall, steady): (Nanos, Nanos),
    mut holds: impl FnMut(&Distributor) -> bool,
) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds(distributor) {
        assert!(Instant::now() < deadline, "{:?}", distributor.counters());
        distributor.serve(wall, steady, Duration::from_millis(1)).unwrap();
    }
}

/// A wall clock that was set back stopped all time-outs until it was there again.
#[test]
fn time_outs_go_on_when_the_wall_clock_is_set_back() {
    let (mut distributor, address) = bare(|_| {});
    let second = |count: u64| Nanos(count * Nanos::SECOND);
    let stranger = TcpStream::connect(address).unwrap();
    serve_until(&mut distributor, (second(1_000), second(1)), |one| one.counters().accepted == 1);
    let client = std::thread::spawn(move || {
        let line = "schema=mbo|symbols=ALL_SYMBOLS";
        Client::connect(address, "|heartbeat_interval_s=5").subscribe(line)
    });
    serve_until(&mut distributor, (second(1_000), second(2)), |_| client.is_finished());
    let mut client = client.join().unwrap();
    distributor.serve(second(400), second(11), Duration::ZERO).unwrap();
    assert_eq!((distributor.counters().heartbeats, distributor.counters().refused(Reason::Late)), (1, 0));
    assert!(client.read("Heartbeat"));
    distributor.serve(second(400), second(12), Duration::ZERO).unwrap();
    assert_eq!(distributor.counters().refused(Reason::Late), 1);
    // And is gone when it had time to read why.
    distributor.serve(second(400), second(17), Duration::ZERO).unwrap();
    assert_eq!((distributor.counters().closed, distributor.clients().len()), (1, 1));
    drop(stranger);
}

/// A thread that sleeps between turns slept though a client took more at once: 25 MB a second at most.
#[test]
fn no_thread_sleeps_while_a_client_takes_more_than_one_turn_writes() {
    let events = events(&scenario(60_000, 20, 2));
    let (mut distributor, address) = bare(|_| {});
    let (now, long) = (Nanos(1), Duration::from_secs(20));
    let client =
        std::thread::spawn(move || Client::connect(address, "").subscribe("schema=mbo|symbols=ALL_SYMBOLS"));
    serve_until(&mut distributor, (now, now), |_| client.is_finished());
    let client = client.join().unwrap().rest();
    serve_until(&mut distributor, (now, now), |one| one.patience(long) == long);
    distributor.events(0, &events, now).unwrap();
    let mut turns_with_more = 0;
    while distributor.queued_bytes() > 0 {
        let before = distributor.counters().bytes;
        distributor.serve(now, now, Duration::from_millis(1)).unwrap();
        let is_full = distributor.counters().bytes - before >= 1 << 18;
        if is_full && distributor.queued_bytes() > 0 {
            assert_eq!(distributor.patience(long), Duration::ZERO);
            turns_with_more += 1;
        }
    }
    assert!(turns_with_more > 0);
    assert_eq!(distributor.patience(long), long, "all is written");
    distributor.hang_up();
    same("all", &client.join().unwrap().records, &expected(&events, Schema::Mbo));
}

/// Four clients that had requested a replay and did not read kept all others from theirs, for ever.
#[test]
fn a_client_that_does_not_read_its_replay_makes_room_for_others() {
    let events = events(&scenario(60_000, 20, 2));
    let mut plant = Plant::with(|options| {
        (options.max_replays, options.replay_stall) = (1, Duration::from_millis(300));
    });
    plant.publish(&events);
    plant.reach(events.len() as u64);
    let address = plant.server.address();
    // More than the system itself buffers for a connection.
    let stalled = Client::connect(address, "").subscribe("schema=mbp-10|symbols=ALL_SYMBOLS|start=0");
    let deadline = Instant::now() + Duration::from_secs(30);
    while plant.server.stats().counters.ended_slow == 0 {
        assert!(Instant::now() < deadline, "{:?}", plant.server.stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    // It has some seconds to read why.
    let stalled = stalled.rest();
    let mut next = Client::connect(address, "").subscribe("schema=mbo|symbols=ALL_SYMBOLS|start=0");
    assert!(next.read("Finished mbo replay"), "{:?}", next.received.errors);
    same("the next", &next.received.records, &expected(&events, Schema::Mbo));
    let received = stalled.join().unwrap();
    assert!(received.errors[0].contains("took nothing of its replay"), "{:?}", received.errors);
    assert_eq!(plant.server.stats().counters.ended_slow, 1);
    plant.end();
}

#[test]
fn a_gap_is_sent_and_marks_the_records_behind_it() {
    let mut lossy = scenario(4_000, 4, 3);
    lossy.faults[0].lost_per_million = 10_000;
    let events = events(&lossy);
    let gaps = events.iter().filter(|event| event.gap().is_some()).count();
    assert!(gaps > 0);
    let mut plant = Plant::start();
    let client =
        Client::connect(plant.server.address(), "").subscribe("schema=mbp-1|symbols=ALL_SYMBOLS").rest();
    plant.publish(&events);
    let mut replay =
        Client::connect(plant.server.address(), "").subscribe("schema=mbp-1|symbols=ALL_SYMBOLS|start=0");
    assert!(replay.read("Finished mbp-1 replay"));
    let replay = replay.rest();
    plant.end();
    for client in [client, replay] {
        let received = client.join().unwrap();
        same("with gaps", &received.records, &expected(&events, Schema::Mbp1));
        let messages = received.system.iter().filter(|message| message.starts_with("gap: ")).count();
        assert_eq!(messages, gaps, "{:?}", received.system);
        assert!(received.records.iter().any(|one| flags_of(one) & dbn::flags::MAYBE_BAD_BOOK != 0));
    }
}

#[test]
fn a_port_in_use_is_named() {
    let plant = Plant::start();
    let address = plant.server.address();
    let blank = Event::new(tapeworks_market::EventKind::Other, Default::default(), Default::default());
    let mut ring =
        tapeworks_ring::disruptor::Builder::new(8, || blank, tapeworks_ring::wait::Yielding::default);
    let id = ring.consumer("clients", &[]);
    let (_producer, mut ends) = ring.single_producer();
    let options = ServerOptions::new(address, session::options().0);
    let error = server::start(options, ends.take(id).unwrap()).unwrap_err();
    assert!(matches!(error, ServerError::Bind { .. }));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[cfg(feature = "tls")]
mod tls {
    use std::path::{Path, PathBuf};

    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
    use tapeworks_runtime::tls::TlsError;
    use tapeworks_runtime::transport::{Acceptor, TlsFiles};

    use super::*;

    fn files(certificate: &Path, key: &Path) -> TlsFiles {
        TlsFiles { certificate: certificate.into(), private_key: key.into(), client_authorities: None }
    }

    /// A certificate for `localhost`, signed by itself, and its key, in files that go when the test ends.
    struct Certificate {
        folder: PathBuf,
        der: CertificateDer<'static>,
    }

    impl Certificate {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("tapeworks-tls-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            std::fs::write(folder.join("certificate.pem"), made.cert.pem()).unwrap();
            std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
            Self { folder, der: made.cert.der().clone() }
        }

        fn acceptor(&self) -> Acceptor {
            Acceptor::tls(&files(&self.folder.join("certificate.pem"), &self.folder.join("key.pem"))).unwrap()
        }
    }

    impl Drop for Certificate {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    /// They left no trace: neither a client with another authority, nor one that speaks no TLS, nor one that leaves.
    #[test]
    fn handshakes_that_fail_are_counted_and_logged() {
        let certificate = Certificate::new("refused");
        let acceptor = certificate.acceptor();
        let log = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&log);
        let plant = Plant::with(|options| {
            options.acceptor = acceptor;
            options.on_refusal =
                Some(Arc::new(move |refused| to.lock().unwrap().push(refused.reason.clone())));
        });
        let address = plant.server.address();
        let counts = |count| {
            let deadline = Instant::now() + Duration::from_secs(30);
            while plant.server.stats().counters.refused(Reason::Tls) != count {
                assert!(Instant::now() < deadline, "{:?}", plant.server.stats().counters);
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        // It trusts nobody, and says so with an alert.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let session =
            ClientConnection::new(Arc::new(client), ServerName::try_from("localhost").unwrap()).unwrap();
        let mut stream = rustls::StreamOwned::new(session, TcpStream::connect(address).unwrap());
        stream.read_exact(&mut [0]).unwrap_err();
        counts(1);
        let mut plain = TcpStream::connect(address).unwrap();
        plain.write_all(b"auth=0123|dataset=TAPEWORKS.DEMO\n").unwrap();
        counts(2);
        drop(TcpStream::connect(address).unwrap());
        counts(3);
        let logged = log.lock().unwrap();
        assert!(
            matches!(&logged[..], [one] if one.starts_with("no TLS: ") && one.contains("UnknownCA")),
            "{logged:?}"
        );
    }

    /// It waited for a greeting, and the connection ended without a word.
    #[test]
    fn a_client_without_tls_gets_an_error_that_names_tls() {
        let certificate = Certificate::new("plain");
        let acceptor = certificate.acceptor();
        let plant = Plant::with(|options| {
            (options.acceptor, options.limits.authentication_ns) = (acceptor, 300_000_000);
        });
        for said in ["", "auth=0123|dataset=TAPEWORKS.DEMO\n"] {
            let mut stream = TcpStream::connect(plant.server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.write_all(said.as_bytes()).unwrap();
            let mut received = Vec::new();
            // After what it has said it may be a reset.
            let _ended = stream.read_to_end(&mut received);
            let received = String::from_utf8_lossy(&received);
            assert!(received.contains("error=this port speaks TLS"), "{said:?}: {received:?}");
        }
        plant.end();
    }

    #[test]
    fn a_session_over_tls_brings_the_same_records() {
        let certificate = Certificate::new("session");
        let acceptor = certificate.acceptor();
        let mut plant = Plant::with(|options| options.acceptor = acceptor);
        let address = plant.server.address();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let session =
            ClientConnection::new(Arc::new(client), ServerName::try_from("localhost").unwrap()).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut stream = BufReader::new(StreamOwned::new(session, stream));
        let read_line = |stream: &mut BufReader<StreamOwned<ClientConnection, TcpStream>>| {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            line
        };
        read_line(&mut stream);
        let challenge = read_line(&mut stream).trim_end().strip_prefix("cram=").unwrap().to_owned();
        let answer = hex::encode(Key::new("", KEY).unwrap().answer(&challenge));
        writeln!(stream.get_mut(), "auth={answer}-00000|dataset={DATASET}").unwrap();
        assert!(read_line(&mut stream).starts_with("success=1"));
        writeln!(stream.get_mut(), "schema=mbp-10|symbols=ALL_SYMBOLS\nstart_session").unwrap();
        // A client without TLS does not disturb the others.
        let mut plain = TcpStream::connect(address).unwrap();
        plain.write_all(b"auth=0-00000|dataset=X\n").unwrap();
        let events = events(&scenario(4_000, 6, 3));
        let mut decoder = DbnDecoder::new(stream).unwrap();
        let mut received = Received::default();
        while received.system.is_empty() {
            received.take(decoder.decode_record_ref().unwrap().unwrap());
        }
        let reader = std::thread::spawn(move || {
            // The server closes without saying so in TLS: what was read up to there counts.
            while let Ok(Some(record)) = decoder.decode_record_ref() {
                received.take(record);
            }
            received
        });
        plant.publish(&events);
        plant.end();
        same("over TLS", &reader.join().unwrap().records, &expected(&events, Schema::Mbp10));
    }

    #[test]
    fn files_without_a_certificate_or_key_are_named() {
        let (one, other) = (Certificate::new("one"), Certificate::new("other"));
        let (certificate, key) = (one.folder.join("certificate.pem"), one.folder.join("key.pem"));
        let missing = one.folder.join("missing.pem");
        for (error, names) in [
            (Acceptor::tls(&files(&missing, &key)).unwrap_err(), "missing.pem: no certificate can be read"),
            (Acceptor::tls(&files(&key, &key)).unwrap_err(), "key.pem: holds no certificate"),
            (
                Acceptor::tls(&files(&certificate, &certificate)).unwrap_err(),
                "certificate.pem: no private key can be read",
            ),
        ] {
            assert!(error.to_string().contains(names), "{error}");
        }
        let error = Acceptor::tls(&files(&certificate, &other.folder.join("key.pem"))).unwrap_err();
        assert!(matches!(error, TlsError::Unusable { .. }), "{error}");
    }
}

/// A connection that has shown its key at a distributor without a thread.
fn connected(distributor: &mut Distributor, address: SocketAddr) -> Client {
    let client = std::thread::spawn(move || Client::connect(address, ""));
    serve_until(distributor, (Nanos(1), Nanos(1)), |_| client.is_finished());
    client.join().unwrap()
}

/// Begins the stream of a client of such a distributor.
fn started(distributor: &mut Distributor, client: Client, line: &'static str) -> Stream {
    let client = std::thread::spawn(move || client.subscribe(line));
    serve_until(distributor, (Nanos(1), Nanos(1)), |_| client.is_finished());
    client.join().unwrap()
}

/// Subscriptions with snapshots of everything, each ended again.
fn flood(count: usize) -> String {
    let one = "schema=mbo|symbols=ALL_SYMBOLS|snapshot=1\nunsubscribe|schema=mbo|symbols=ALL_SYMBOLS\n";
    one.repeat(count)
}

/// Small tables, so that the records of a snapshot are most of its work, and a small budget.
fn small(options: &mut Options) {
    options.books.capacity = tapeworks_market::Capacity { instruments: 64, orders: 1 << 14, levels: 1 << 10 };
    options.turn_work = 1_000;
}

/// Once, 4,990 snapshot requests delayed another client by eleven seconds, and three connections that sent such requests stalled the rest.
#[test]
fn a_flood_of_snapshots_is_bounded_work_in_each_turn_and_delays_no_other_client() {
    let events = events(&scenario(30_000, 20, 2));
    let (before, after) = events.split_at(20_000);
    let (mut distributor, address) = bare(small);
    let now = Nanos(1);
    distributor.events(0, before, now).unwrap();
    let attackers: Vec<_> = (0..9)
        .map(|_| {
            let client = connected(&mut distributor, address);
            started(&mut distributor, client, "schema=trades|symbols=ALL_SYMBOLS")
        })
        .collect();
    let quiet = connected(&mut distributor, address);
    let quiet = started(&mut distributor, quiet, "schema=mbo|symbols=ALL_SYMBOLS");
    for attacker in &attackers {
        (&attacker.writer).write_all(flood(400).as_bytes()).unwrap();
    }
    serve_until(&mut distributor, (now, now), |one| {
        one.clients().iter().filter(|one| one.requests > 300).count() == 9
    });
    let reader = quiet.rest();
    let mut taken = before.len() as u64;
    for part in after.chunks(500) {
        let work = distributor.counters().request_work;
        distributor.events(taken, part, now).unwrap();
        distributor.serve(now, now, Duration::ZERO).unwrap();
        taken += part.len() as u64;
        let of_turn = distributor.counters().request_work - work;
        // The last step of a turn may exceed the budget: it reads the tables twice, and makes a part of about a thousand orders.
        assert!((1..20_000).contains(&of_turn), "{of_turn} units in a turn");
    }
    // The attackers' requests still wait, each about as many as the others'.
    let waiting: Vec<_> =
        distributor.clients().iter().map(|one| one.requests).filter(|one| *one > 0).collect();
    assert_eq!(waiting.len(), 9);
    assert!(waiting.iter().max().unwrap() - waiting.iter().min().unwrap() < 60, "{waiting:?}");
    // Another logs on, and gets its snapshot meanwhile, although nine are in front of it.
    let next = connected(&mut distributor, address);
    let mut next = started(&mut distributor, next, "schema=mbp-1|symbols=ALL_SYMBOLS|snapshot=1");
    let next = std::thread::spawn(move || {
        next.say("schema=status|symbols=ALL_SYMBOLS|id=9", "request 9");
        next
    });
    serve_until(&mut distributor, (now, now), |_| next.is_finished());
    assert!(!next.join().unwrap().received.records.is_empty());
    assert!(distributor.clients().iter().filter(|one| one.requests > 100).count() == 9, "they wait still");
    // The attackers read nothing: little waits for them, and their requests leave with them.
    assert!(distributor.queued_bytes() < 9 * (10 << 20), "{} bytes", distributor.queued_bytes());
    drop(attackers);
    serve_until(&mut distributor, (now, now), |one| one.clients().iter().all(|one| one.requests == 0));
    serve_until(&mut distributor, (now, now), Distributor::is_idle);
    distributor.hang_up();
    same(
        "the quiet one",
        &reader.join().unwrap().records,
        &expected(&events, Schema::Mbo)[expected(before, Schema::Mbo).len()..],
    );
}

#[test]
fn a_client_with_too_many_waiting_snapshots_is_disconnected_with_the_reason() {
    let events = events(&scenario(20_000, 20, 2));
    let refused = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&refused);
    let (mut distributor, address) = bare(|options| {
        small(options);
        options.limits.snapshots = 50;
        options.on_refusal = Some(Arc::new(move |one| log.lock().unwrap().push(one.reason.clone())));
    });
    let now = Nanos(1);
    distributor.events(0, &events, now).unwrap();
    let mut before_start = connected(&mut distributor, address);
    before_start.writer.write_all(flood(60).as_bytes()).unwrap();
    let before_start = std::thread::spawn(move || before_start.start("no message says this"));
    serve_until(&mut distributor, (now, now), |_| before_start.is_finished());
    let client = connected(&mut distributor, address);
    let client = started(&mut distributor, client, "schema=trades|symbols=ALL_SYMBOLS");
    (&client.writer).write_all(flood(500).as_bytes()).unwrap();
    let client = client.rest();
    serve_until(&mut distributor, (now, now), |_| client.is_finished());
    for received in [before_start.join().unwrap().received, client.join().unwrap()] {
        assert_eq!(received.errors, ["more than 50 snapshots wait for this client"]);
    }
    assert_eq!(distributor.counters().refused(Reason::Limit), 2);
    assert_eq!(*refused.lock().unwrap(), ["more than 50 snapshots wait for this client"], "once a minute");
    serve_until(&mut distributor, (now, now), |one| one.clients().is_empty());
}

/// The parts of a snapshot show their instruments at different events, and each part's records continue from its event.
#[test]
fn a_snapshot_in_many_parts_between_events_loses_and_repeats_nothing() {
    let events = events(&scenario(30_000, 20, 8));
    let (before, after) = events.split_at(15_000);
    let (mut distributor, address) = bare(|options| {
        small(options);
        options.turn_work = 1;
    });
    let now = Nanos(1);
    distributor.events(0, before, now).unwrap();
    let clients: Vec<_> = [Schema::Mbo, Schema::Mbp10, Schema::Cmbp1, Schema::Bbo1S]
        .into_iter()
        .map(|schema| {
            let client = connected(&mut distributor, address);
            let client = started(&mut distributor, client, "schema=status|symbols=ALL_SYMBOLS");
            let line = format!("schema={schema}|symbols=ALL_SYMBOLS|snapshot=1\n");
            (&client.writer).write_all(line.as_bytes()).unwrap();
            (schema, client.rest())
        })
        .collect();
    serve_until(&mut distributor, (now, now), |one| {
        one.clients().iter().filter(|one| one.requests > 0).count() == 4
    });
    let mut taken = before.len() as u64;
    let mut turns_with_requests = 0;
    for part in after.chunks(100) {
        distributor.events(taken, part, now).unwrap();
        distributor.serve(now, now, Duration::ZERO).unwrap();
        taken += part.len() as u64;
        turns_with_requests += usize::from(distributor.clients().iter().any(|one| one.requests > 0));
    }
    assert!(turns_with_requests > 20, "the snapshots came in {turns_with_requests} turns");
    assert_eq!(distributor.counters().snapshots, 4);
    serve_until(&mut distributor, (now, now), Distributor::is_idle);
    distributor.finish();
    distributor.hang_up();
    for (schema, client) in clients {
        let records = client.join().unwrap().records;
        let all: Vec<Vec<u8>> = expected(&events, schema);
        let kind = dbn::RType::from(schema.as_str().parse::<dbn::Schema>().unwrap()) as u8;
        for number in 1..=20 {
            let of_number = |one: &&Vec<u8>| one[1] == kind && number_of(one) == number;
            let received: Vec<_> = records.iter().filter(of_number).cloned().collect();
            let is_of_snapshot = |one: &&Vec<u8>| flags_of(one) & dbn::flags::SNAPSHOT != 0;
            let count = received.iter().take_while(is_of_snapshot).count();
            assert!(!received[count..].iter().any(|one| is_of_snapshot(&one)), "{schema}: two snapshots");
            let rest: Vec<_> = all.iter().filter(of_number).cloned().collect();
            let live = &received[count..];
            assert!(live.len() <= rest.len());
            // An interval of the files ends with the last event of the day.
            let end = if schema == Schema::Bbo1S {
                rest.iter().rposition(|one| live.last() == Some(one)).map_or(0, |at| at + 1)
            } else {
                rest.len()
            };
            same(&format!("{schema} of {number}"), live, &rest[end - live.len()..end]);
            if schema == Schema::Mbo {
                assert_eq!(orders(&received), orders(&rest), "{number}");
            }
        }
    }
}
