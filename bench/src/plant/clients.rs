//! Many clients at once, one of them stalled; and whether memory stays constant.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tapeworks_generator::Popularity;
use tapeworks_outputs::subscriber::Records as _;
use tapeworks_plant::JournalSetting;
use tapeworks_runtime::keys::Key;
use tapeworks_service::service::Service;
use tapeworks_venues::Venues;

use super::{DATASET, Folder, KEY, heading, histogram, line, now_ns, plant, row, subscribe, venue};

const CLIENTS: usize = 200;
const RATE: u64 = 20_000;
const SECONDS: u64 = 10;

/// A connection that has subscribed to all trades and quotes and is then only read from, or not even that.
fn connect(address: SocketAddr) -> TcpStream {
    let key = Key::new("bench", KEY).expect("a key");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let mut greeting = Vec::new();
    let mut byte = [0];
    while greeting.iter().filter(|byte| **byte == b'\n').count() < 2 {
        stream.read_exact(&mut byte).expect("a greeting comes");
        greeting.push(byte[0]);
    }
    let greeting = String::from_utf8(greeting).expect("text");
    let (_, challenge) = greeting.trim_end().rsplit_once("cram=").expect("a challenge");
    let answer: String = key.answer(challenge).iter().map(|byte| format!("{byte:02x}")).collect();
    let request = format!(
        "auth={answer}-{}|dataset={DATASET}|encoding=dbn|ts_out=0|client=bench|slow_reader_behavior=skip\nschema=mbo|stype_in=raw_symbol|symbols=ALL_SYMBOLS|is_last=1\nstart_session\n",
        key.bucket()
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

/// The delays of one client among many.
fn probe(clients: usize, stalled: usize) -> (Histogram<u64>, String) {
    let line = line();
    let mut config = plant(line);
    if let Some(clients) = &mut config.clients {
        // Smaller than a run's records: a stalled client fills it, and the connection, within the run.
        clients.queue_bytes = 1 << 20;
    }
    let service = Service::start(&config, None).expect("the plant starts");
    let address = service.clients_address().expect("clients are served");
    let mut readers: Vec<TcpStream> = (0..clients).map(|_| connect(address)).collect();
    readers.iter().for_each(|reader| reader.set_nonblocking(true).expect("a socket has this option"));
    let mut subscriber = subscribe(address, "mbo");
    let venues = Venues::start(venue(line, RATE, RATE * SECONDS)).expect("the venue starts");
    let started = now_ns();
    let mut delays = histogram();
    let (is_over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (is_over, bytes) = (&is_over, &bytes);
        let reading = readers.split_off(stalled);
        scope.spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while !is_over.load(Ordering::Acquire) {
                for mut reader in &reading {
                    while let Ok(read @ 1..) = reader.read(&mut buffer) {
                        bytes.fetch_add(read as u64, Ordering::Relaxed);
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        loop {
            match subscriber.next_record() {
                Ok(Some(record)) => {
                    let (now, sent) = (now_ns(), record.header().ts_event);
                    if sent > started + 1_000_000_000 && record.has::<dbn::MboMsg>() {
                        delays.saturating_record(now.saturating_sub(sent));
                    }
                }
                Ok(None) => break,
                Err(error) if error.is_timeout() => {
                    if venues.is_finished() {
                        break;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        is_over.store(true, Ordering::Release);
    });
    let stats = service.clients().expect("clients are served");
    let skipped: u64 = stats.clients.iter().map(|client| client.skipped).sum();
    let note = format!(
        "{} MB to the others, {skipped} records skipped for the stalled",
        bytes.load(Ordering::Relaxed) >> 20
    );
    let _report = venues.stop();
    drop(readers);
    service.stop().expect("the plant ends well");
    (delays, note)
}

pub fn run() {
    heading(&format!(
        "clients: {RATE} messages a second, every client wants all orders; delays of one that reads"
    ));
    let (alone, note) = probe(0, 0);
    row("alone", &alone, None, &note);
    let floor = alone.value_at_quantile(0.5) as f64 / 1e3;
    let (many, note) = probe(CLIENTS - 1, 0);
    row(&format!("one of {CLIENTS}"), &many, Some(floor), &note);
    let (stalled, note) = probe(CLIENTS - 1, 1);
    row(&format!("one of {CLIENTS}, another stalled"), &stalled, Some(floor), &note);
    println!();
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// 200,000 messages a second for twenty minutes, from a market that keeps its size once its books are full: a plant's memory grows only
/// with the orders that rest in them. With a journal that keeps two gigabytes, and checkpoints. `SOAK_MINUTES`, `SOAK_RATE` (messages a
/// second) and `SOAK_CHECKPOINT_SECONDS` override these.
pub fn soak() {
    let setting =
        |name, otherwise| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (minutes, rate) = (setting("SOAK_MINUTES", 20), setting("SOAK_RATE", 200_000));
    let checkpoint_every = Duration::from_secs(setting("SOAK_CHECKPOINT_SECONDS", 120));
    let line = line();
    let folder = Folder::on_disk();
    let mut config = plant(line);
    let mut journal = JournalSetting::new(folder.0.join("journal"));
    journal.options.keep_bytes = Some(2 << 30);
    journal.checkpoint_every = Some(checkpoint_every);
    // A state of a million orders holds the lines up for some tens of milliseconds, and writing it takes a core from the others.
    config.plant.receive.buffer_bytes = Some(64 << 20);
    config.plant.journal = Some(journal);
    let service = Service::start(&config, None).expect("the plant starts");
    let mut subscriber = subscribe(service.clients_address().expect("clients are served"), "cmbp-1");
    let mut venue = venue(line, rate, rate * 60 * minutes);
    venue.popularity = Popularity::Uniform;
    venue.most_orders = 500;
    let venues = Venues::start(venue).expect("the venue starts");
    println!(
        "soak: {rate} messages a second for {minutes} minutes, a checkpoint each {} s",
        checkpoint_every.as_secs()
    );
    let is_over = AtomicBool::new(false);
    let (delays, began) = (Mutex::new(histogram()), now_ns());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                match subscriber.next_record() {
                    Ok(None) => return,
                    Ok(Some(record)) if record.has::<dbn::Cmbp1Msg>() => {
                        let (now, sent) = (now_ns(), record.header().ts_event);
                        if sent > began {
                            let mut delays = delays.lock().expect("nobody panicked");
                            delays.saturating_record(now.saturating_sub(sent));
                        }
                    }
                    _ => {}
                }
            }
        });
        let started = Instant::now();
        while !venues.is_finished() && started.elapsed() < Duration::from_secs(60 * minutes + 30) {
            std::thread::sleep(Duration::from_secs(60.min(6 * minutes)));
            let status = service.status();
            let [p50, .., p999, max] = status.delays.all;
            let of_client = std::mem::replace(&mut *delays.lock().expect("nobody panicked"), histogram());
            let client =
                [0.5, 0.99, 0.999, 1.0].map(|quantile| of_client.value_at_quantile(quantile) as f64 / 1e3);
            println!(
                "  {:>5} s: {:>6} MB resident, {:>9} orders in tables of {:>4} MB, {:>10} messages, {} missing, {} snapshots, the last pause {:.1} ms, delay to the ring p50 {:.1} us, p99.9 {:.1}, max {:.1}; this minute to the client p50, p99, p99.9, max {:.1?} us",
                started.elapsed().as_secs(),
                resident() >> 20,
                status.books.orders,
                status.books.bytes >> 20,
                status.engine.messages,
                status.channels.iter().map(|channel| channel.counters.missing).sum::<u64>(),
                status.checkpoints.taken,
                status.checkpoints.pause_ns as f64 / 1e6,
                p50 as f64 / 1e3,
                p999 as f64 / 1e3,
                max as f64 / 1e3,
                client
            );
        }
        is_over.store(true, Ordering::Release);
    });
    let _report = venues.stop();
    service.stop().expect("the plant ends well");
}
