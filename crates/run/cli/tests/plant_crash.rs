//! A plant that is killed at any moment: it goes on from its checkpoints, the journal is whole, and a client that resumes has every
//! record once.
//!
//! `TAPEWORKS_KILLS=100` kills as often; the default is 3. `TAPEWORKS_SEED` gives the seed of the moments, of the topology and of whether there
//! are checkpoints; it is printed. The plant mends its journal itself: nothing else touches it between a kill and the next start.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dbn::MboMsg;
use dbn::decode::{DbnDecoder, DecodeRecordRef as _};
use tapeworks_generator::VenueKind;
use tapeworks_journal::{Damage, segment_starts, verify};
use tapeworks_outputs::subscriber::{Records as _, Subscriber, SubscriberOptions};
use tapeworks_venues::{Config, Venue, Venues};

mod support;

use support::free_port;

const KEY: &str = "db-TapeworksDemoKey0000000000000";

/// A running plant; killed when it is dropped.
struct Plant(Child);

impl Plant {
    /// Starts it and waits until clients can connect.
    fn start(config: &Path, clients: SocketAddr) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tapeworks"))
            .arg("plant")
            .arg(config)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let wanted = format!("clients are served on {clients}");
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "the plant ended: {said}");
            said.push_str(&line);
            if line.contains(&wanted) {
                break;
            }
        }
        // A pipe that is not read blocks its writer.
        std::thread::spawn(move || log.lines().for_each(drop));
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A record with all fields that distinguish it from others.
type Seen = (u64, u16, u32, u64, i8, u32, u64, u8);

fn seen(record: &MboMsg) -> Seen {
    (
        record.ts_recv,
        record.hd.publisher_id,
        record.sequence,
        record.order_id,
        record.action,
        record.size,
        record.hd.ts_event,
        record.flags.raw(),
    )
}

fn subscribe(address: SocketAddr, schema: &str, start: Option<u64>) -> Subscriber {
    Subscriber::connect(&SubscriberOptions {
        address,
        key: KEY.to_owned(),
        dataset: "TAPEWORKS.DEMO".to_owned(),
        schemas: vec![schema.to_owned()],
        symbols: Vec::new(),
        snapshot: false,
        start,
        slow_reader: None,
        ts_out: false,
        timeout: Some(Duration::from_millis(200)),
        patience: Duration::from_secs(60),
    })
    .unwrap()
}

/// Records until the connection breaks, there are so many, it is enough, or two minutes are over.
fn read(subscriber: &mut Subscriber, most: usize, count: &AtomicUsize, is_enough: &AtomicBool) -> Vec<Seen> {
    let mut records = Vec::new();
    let began = Instant::now();
    while records.len() < most
        && began.elapsed() < Duration::from_secs(120)
        && !is_enough.load(Ordering::Acquire)
    {
        match subscriber.next_record() {
            Ok(Some(record)) => {
                if let Some(error) = record.get::<dbn::ErrorMsg>() {
                    println!("the plant says: {}", error.err().unwrap());
                }
                if let Some(record) = record.get::<MboMsg>() {
                    records.push(seen(record));
                    count.store(records.len(), Ordering::Release);
                }
            }
            Ok(None) => break,
            Err(error) if error.is_timeout() => {}
            // Killed in the middle of a record.
            Err(error) => {
                println!("after {} records: {error}", records.len());
                break;
            }
        }
    }
    records
}

/// Records of the NBBO until the connection breaks or it is enough.
fn read_nbbo(subscriber: &mut Subscriber, is_enough: &AtomicBool, records: &mut Vec<Vec<u8>>) {
    while !is_enough.load(Ordering::Acquire) {
        match subscriber.next_record() {
            Ok(Some(record)) if record.has::<dbn::Cmbp1Msg>() => records.push(record.as_ref().to_vec()),
            Ok(Some(_)) => {}
            Err(error) if error.is_timeout() => {}
            Ok(None) | Err(_) => return,
        }
    }
}

#[test]
fn a_killed_plant_loses_and_repeats_nothing_for_a_client_that_resumes() {
    let kills: u32 = std::env::var("TAPEWORKS_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let folder = tempfile::tempdir().unwrap();
    let seed = std::env::var("TAPEWORKS_SEED").ok().map(|text| text.parse().unwrap());
    let mut random = seed.unwrap_or(u64::from(std::process::id()));
    println!("TAPEWORKS_SEED={random}");
    let topology = if random.is_multiple_of(2) { "pipeline" } else { "inline" };
    let has_checkpoints = !random.is_multiple_of(3);
    let checkpoints = if has_checkpoints { "checkpoint_every = \"200ms\"\n" } else { "" };
    let port = 12_000 + (std::process::id() % 10_000) as u16;
    let mut text = String::new();
    let mut venues = Vec::new();
    for (number, (name, kind, protocol, publisher)) in [
        ("Nasdaq", "nasdaq", "itch", "XNAS.ITCH"),
        ("BX", "bx", "itch", "XBOS.ITCH"),
        ("IEX", "iex-deep", "deep", "IEXG.DEEP"),
        ("IEX DEEP+", "iex-deep-plus", "deep+", "IEXG.DEEPPLUS"),
        ("MEMX", "memx", "memoir", "MEMX.MEMOIR"),
        ("BZX", "bzx", "pitch", "BATS.PITCH"),
        ("Arca", "arca", "integrated", "ARCX.PILLAR"),
        ("LSE", "lse", "mitch", "XLON.MITCH"),
        ("UTP", "uqdf", "uqdf", "EQUS.SIP"),
    ]
    .into_iter()
    .enumerate()
    {
        let group = |line| SocketAddrV4::new(Ipv4Addr::new(239, 196, number as u8, line), port);
        let mut venue = Venue::new(name, VenueKind::by_key(kind).unwrap(), vec![group(1), group(2)]);
        venue.live.faults.iter_mut().for_each(|faults| faults.lost_per_million = 5_000);
        venue.retransmission = Some(free_port(2 * number as u32));
        venue.snapshot = Some(free_port(2 * number as u32 + 1));
        text.push_str(&format!(
            "[[venue]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\npublisher = \"{publisher}\"\nlines = [\"{}\", \"{}\"]\nretransmission = \"{}\"\nsnapshot = \"{}\"\n",
            group(1), group(2), venue.retransmission.unwrap(), venue.snapshot.unwrap(),
        ));
        venues.push(venue);
    }
    let clients = free_port(50);
    let config = folder.path().join("plant.toml");
    let text = format!(
        "interface = \"127.0.0.1\"\ntopology = \"{topology}\"\nwarm = true\n[journal]\nfolder = \"journal\"\nsegment_mb = 4\n{checkpoints}[clients]\nlisten = \"{clients}\"\ndataset = [{{ name = \"TAPEWORKS.DEMO\" }}]\nkey = [{{ name = \"demo\", key = \"{KEY}\" }}]\n{text}"
    );
    std::fs::write(&config, text).unwrap();
    let mut plant = Plant::start(&config, clients);
    let mut serving = Config::new(venues);
    serving.rate = 10_000;
    serving.symbols = 30;
    serving.wait = tapeworks_venues::Wait::Rest;
    let venues = Venues::start(serving).unwrap();

    let mut collected: Vec<Seen> = Vec::new();
    let mut nbbo: Vec<Vec<u8>> = Vec::new();
    for kill in 0..=kills {
        let mut subscriber = subscribe(clients, "mbo", Some(collected.last().map_or(0, |last| last.0)));
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let alive = Duration::from_millis(200 + (random >> 33) % 600);
        // Resumed from the time of the last record: what is of that time and was seen comes again.
        let again = match collected.last() {
            Some(last) => collected.iter().rev().take_while(|record| record.0 == last.0).count(),
            None => 0,
        };
        // Killed by a thread, so that the client is reading when it happens; and only when it has got on.
        let (count, is_enough) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut of_nbbo = subscribe(clients, "cmbp-1", None);
        let (mut records, next) = std::thread::scope(|scope| {
            scope.spawn(|| read_nbbo(&mut of_nbbo, &is_enough, &mut nbbo));
            let killer = scope.spawn(|| {
                let began = Instant::now();
                while count.load(Ordering::Acquire) <= again && began.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                std::thread::sleep(alive);
                if kill < kills {
                    plant.kill();
                    None
                } else {
                    is_enough.store(true, Ordering::Release);
                    Some(plant)
                }
            });
            let records = read(&mut subscriber, usize::MAX, &count, &is_enough);
            (records, killer.join().unwrap())
        });
        let before = &collected[collected.len() - again..];
        assert_eq!(records.get(..again), Some(before), "kill {kill}: what was seen is no longer there");
        records.drain(..again);
        collected.append(&mut records);
        if let Some(last_plant) = next {
            plant = last_plant;
            break;
        }
        // A kill leaves a torn record at the very end at most, and the plant cuts it off when it starts.
        let journal = folder.path().join("journal");
        let left = verify(&journal, || true).unwrap().damage;
        let last = segment_starts(&journal).unwrap().pop().map(|first| format!("{first:020}.journal"));
        let is_last =
            |damage: &Damage| damage.path.file_name().map(|name| name.to_string_lossy().into_owned()) == last;
        assert!(left.len() <= 1 && left.iter().all(is_last), "kill {kill}: {left:?}");
        plant = Plant::start(&config, clients);
        // It writes on: what is half written at a look is whole at another.
        let began = Instant::now();
        loop {
            let damage = verify(&journal, || true).unwrap().damage;
            if damage.is_empty() {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "kill {kill}: {damage:?}, left was {left:?}");
        }
    }
    venues.stop().unwrap();
    // The whole day as the journal has it: what the client collected is a piece of it, without hole or double.
    let mut subscriber = subscribe(clients, "mbo", Some(0));
    let whole = read(&mut subscriber, collected.len(), &AtomicUsize::new(0), &AtomicBool::new(false));
    plant.kill();
    assert!(collected.len() > 300 * kills as usize, "{} records over {kills} kills", collected.len());
    let differs = collected.iter().zip(&whole).position(|(one, other)| one != other);
    assert_eq!(
        differs.map(|at| (at, collected[at], whole[at])),
        None,
        "of {} and {}",
        collected.len(),
        whole.len()
    );
    assert!(whole.len() >= collected.len());
    // The files of the journal have every record that a client got in any of the plant's lives, byte for byte.
    let days = folder.path().join("days");
    let exported = Command::new(env!("CARGO_BIN_EXE_tapeworks"))
        .args([
            "journal",
            "export",
            config.to_str().unwrap(),
            "--schema",
            "cmbp-1",
            "--format",
            "dbn",
            "--out",
        ])
        .arg(&days)
        .output()
        .unwrap();
    assert!(matches!(exported.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&exported.stderr));
    let mut in_files = HashSet::new();
    for day in std::fs::read_dir(&days).unwrap().map(|entry| entry.unwrap().path()) {
        let mut decoder = DbnDecoder::from_file(day.join("nbbo/cmbp-1.dbn")).unwrap();
        while let Some(record) = decoder.decode_record_ref().unwrap() {
            in_files.insert(record.as_ref().to_vec());
        }
    }
    assert!(nbbo.len() > 300, "{} records of the NBBO", nbbo.len());
    let differs: Vec<_> = nbbo.iter().filter(|record| !in_files.contains(*record)).collect();
    let first = differs.first().map(|record| {
        let like = in_files.iter().filter(|other| other[8..56] == record[8..56]).collect::<Vec<_>>();
        format!("{record:?} is not among {like:?}")
    });
    assert_eq!(first, None, "{} of {} records", differs.len(), nbbo.len());
    let files = std::fs::read_dir(folder.path().join("journal")).unwrap().filter_map(Result::ok);
    let checkpoints = files.filter(|file| file.path().extension().is_some_and(|ending| ending == "snapshot"));
    assert!(!has_checkpoints || checkpoints.count() >= 2);
}
