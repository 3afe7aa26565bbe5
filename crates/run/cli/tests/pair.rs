//! Two plants as a pair, as processes: killed, stopped and cut off under load. A client that knows both gets each record once, in order,
//! and byte for byte as a replay of the survivor's journal has it.
//!
//! `TAPEWORKS_KILLS=100` kills as often; the default is 5. `TAPEWORKS_SEED` gives the seed of the moments; it is printed.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dbn::decode::{DbnDecoder, DecodeRecordRef as _};
use tapeworks_journal::{JournalReader, verify};
use tapeworks_outputs::resume::{Failover, WhenRefused};
use tapeworks_outputs::subscriber::{Records as _, SubscriberOptions};
use tapeworks_runtime::world::System;
use tapeworks_store::is_market;

mod support;

use support::{Folder, command, free_port, signal};

const KEY: &str = "db-TapeworksDemoKey0000000000000";

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running program with its log; killed when it is dropped.
struct Program {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut child = command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                to.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Self { child, log }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log has this text so many times.
    #[track_caller]
    fn says(&self, text: &str, times: usize) {
        let began = Instant::now();
        while self.log().matches(text).count() < times {
            assert!(began.elapsed() < PATIENCE, "'{text}' is not said {times} times:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
        if std::thread::panicking() {
            println!("--- a program's log:\n{}", self.log());
        }
    }
}

/// The two plants and the venues of a test.
struct Pair {
    folder: Folder,
    venues: String,
    plants: [String; 2],
    clients: [SocketAddr; 2],
    links: [SocketAddr; 2],
}

/// The ports of each test are its own.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Pair {
    fn new(name: &str, rate: u32, more: &str) -> Self {
        Self::of(name, rate, more, true)
    }

    /// Without faults no line loses anything, and no server has it again.
    fn of(name: &str, rate: u32, more: &str, has_faults: bool) -> Self {
        let base = 40 * NEXT.fetch_add(1, Ordering::Relaxed) as u32;
        let folder = Folder::new(name);
        let port = 12_000 + (std::process::id() % 10_000) as u16;
        let mut serving =
            format!("seed = 7\nsymbols = 20\nrate = {rate}\ninterface = \"127.0.0.1\"\nwait = \"rest\"\n");
        let mut listening = String::new();
        for (number, (name, kind, protocol, publisher)) in
            [("Nasdaq", "nasdaq", "itch", "XNAS.ITCH"), ("IEX", "iex-deep", "deep", "IEXG.DEEP")]
                .into_iter()
                .enumerate()
        {
            let group = |line| format!("239.197.{}.{line}:{port}", base + number as u32);
            let servers = [0, 1].map(|at| free_port(base + 2 * number as u32 + at));
            let lines =
                format!("[[venue]]\nname = \"{name}\"\nlines = [\"{}\", \"{}\"]\n", group(1), group(2));
            let sources = format!("retransmission = \"{}\"\nsnapshot = \"{}\"\n", servers[0], servers[1]);
            let faults = "faults = { a = { lost_per_million = 3_000 }, b = { lost_per_million = 3_000 }, skew = \"50us\" }\n";
            let (sources, faults) = if has_faults { (sources.as_str(), faults) } else { ("", "") };
            serving += &format!("{lines}{sources}kind = \"{kind}\"\nshare = 50\n{faults}");
            listening += &format!("{lines}{sources}protocol = \"{protocol}\"\npublisher = \"{publisher}\"\n");
        }
        let clients = [free_port(base + 10), free_port(base + 11)];
        let links = [free_port(base + 12), free_port(base + 13)];
        let plants = [0, 1].map(|at| {
            let role = if at == 0 { "primary" } else { "standby" };
            let text = format!(
                "interface = \"127.0.0.1\"\n[pair]\nlisten = \"{}\"\npeer = \"{}\"\nrole = \"{role}\"\ntakeover_after = \"700ms\"\n{more}\
                 [journal]\nfolder = \"journal-{at}\"\nsegment_mb = 1\ncheckpoint_every = \"300ms\"\n\
                 [clients]\nlisten = \"{}\"\ndataset = [{{ name = \"TAPEWORKS.DEMO\" }}]\nkey = [{{ name = \"demo\", key = \"{KEY}\" }}]\n{listening}",
                links[at], links[1 - at], clients[at],
            );
            folder.write(&format!("plant-{at}.toml"), text.as_bytes())
        });
        let venues = folder.write("venues.toml", serving.as_bytes());
        Self { folder, venues, plants, clients, links }
    }

    fn plant(&self, at: usize) -> Program {
        Program::start(&["plant", &self.plants[at]])
    }

    /// Starts venues and both plants, and waits until the second is in step with the first.
    fn start(&self) -> (Program, [Option<Program>; 2]) {
        let primary = self.plant(0);
        primary.says("clients are served on", 1);
        let standby = self.plant(1);
        primary.says("in step", 1);
        let venues = Program::start(&["exchange", "serve", &self.venues]);
        (venues, [Some(primary), Some(standby)])
    }

    fn journal(&self, at: usize) -> PathBuf {
        self.folder.path(&format!("journal-{at}")).into()
    }

    /// A client that knows both plants.
    fn client(&self, schema: &str, first: usize) -> Failover<System> {
        let options = SubscriberOptions {
            address: self.clients[first],
            key: KEY.to_owned(),
            dataset: "TAPEWORKS.DEMO".to_owned(),
            schemas: vec![schema.to_owned()],
            symbols: Vec::new(),
            snapshot: false,
            start: Some(0),
            slow_reader: None,
            ts_out: false,
            timeout: Some(Duration::from_millis(200)),
            patience: Duration::from_secs(20),
        };
        let addresses = [self.clients[first], self.clients[1 - first]];
        let say: fn(&str) = |news| println!("client: {news}");
        Failover::connect_in(&options, &addresses, WhenRefused::Stop, say).unwrap()
    }

    /// The records of a journal, byte for byte.
    fn records(&self, at: usize) -> Vec<Vec<u8>> {
        records(&self.journal(at))
    }
}

fn records(folder: &Path) -> Vec<Vec<u8>> {
    let mut reader = JournalReader::open(folder).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        all.push(bytes);
    }
    all
}

/// A client in a thread: all market records of a schema, as bytes.
struct Collector {
    thread: std::thread::JoinHandle<(Vec<Vec<u8>>, u64)>,
    count: Arc<AtomicUsize>,
    /// Messages that say that something is missing.
    gaps: Arc<AtomicUsize>,
    is_enough: Arc<AtomicBool>,
}

impl Collector {
    fn start(mut client: Failover<System>) -> Self {
        let (count, is_enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let gaps = Arc::new(AtomicUsize::new(0));
        let missed = Arc::clone(&gaps);
        let (counted, enough) = (Arc::clone(&count), Arc::clone(&is_enough));
        let thread = std::thread::spawn(move || {
            let mut all = Vec::new();
            while !enough.load(Ordering::Acquire) {
                match client.next_record() {
                    Ok(Some(record)) if is_market(&record) => {
                        all.push(record.as_ref().to_vec());
                        counted.store(all.len(), Ordering::Release);
                    }
                    Ok(Some(record)) => {
                        let said = record.get::<dbn::SystemMsg>().and_then(|system| system.msg().ok());
                        if said.is_some_and(|said| said.contains("missing")) {
                            missed.fetch_add(1, Ordering::Release);
                        }
                    }
                    Ok(None) => {}
                    Err(error) if error.is_timeout() => {}
                    Err(error) => panic!("the client: {error}"),
                }
            }
            (all, client.resumed())
        });
        Self { thread, count, gaps, is_enough }
    }

    /// Waits until so many more records came.
    #[track_caller]
    fn gets(&self, more: usize) {
        let (began, wanted) = (Instant::now(), self.count.load(Ordering::Acquire) + more);
        while self.count.load(Ordering::Acquire) < wanted {
            assert!(began.elapsed() < PATIENCE, "{} of {wanted} records", self.count.load(Ordering::Acquire));
            assert!(!self.thread.is_finished(), "the client has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until nothing came for a while, and returns all and how often the session went on.
    fn end(self) -> (Vec<Vec<u8>>, u64) {
        let mut before = usize::MAX;
        loop {
            let now = self.count.load(Ordering::Acquire);
            if now == before {
                break;
            }
            before = now;
            std::thread::sleep(Duration::from_secs(2));
        }
        self.is_enough.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

#[track_caller]
fn assert_same(one: &[Vec<u8>], other: &[Vec<u8>], what: &str) {
    let differs = one.iter().zip(other).position(|(one, other)| one != other);
    assert_eq!(
        differs.map(|at| (at, &one[at], &other[at])),
        None,
        "{what}: of {} and {}",
        one.len(),
        other.len()
    );
}

/// The journal's records of the NBBO, as an export has them.
fn exported(pair: &Pair, at: usize) -> Vec<Vec<u8>> {
    let days = pair.folder.path(&format!("days-{at}"));
    let config = &pair.plants[at];
    let done =
        support::run(&["journal", "export", config, "--schema", "cmbp-1", "--format", "dbn", "--out", &days]);
    assert!(matches!(done.status.code(), Some(0 | 3)), "{}", support::stderr(&done));
    let mut all = Vec::new();
    for day in std::fs::read_dir(&days).unwrap().map(|entry| entry.unwrap().path()) {
        let mut decoder = DbnDecoder::from_file(day.join("nbbo/cmbp-1.dbn")).unwrap();
        while let Some(record) = decoder.decode_record_ref().unwrap() {
            all.push(record.as_ref().to_vec());
        }
    }
    all
}

#[test]
fn a_client_of_a_pair_gets_each_record_once_however_often_the_primary_is_killed() {
    let kills: usize = std::env::var("TAPEWORKS_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let seed = std::env::var("TAPEWORKS_SEED").ok().map(|text| text.parse().unwrap());
    let mut random = seed.unwrap_or(u64::from(std::process::id()));
    println!("TAPEWORKS_SEED={random}");
    let pair = Pair::new("pair-killed", 3_000, "");
    let (venues, mut plants) = pair.start();
    let of_orders = Collector::start(pair.client("mbo", 0));
    let of_nbbo = Collector::start(pair.client("cmbp-1", 1));
    let mut primary = 0;
    for kill in 0..kills {
        of_orders.gets(300);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis((random >> 33) % 700));
        println!("kill {kill}: plant {primary}");
        plants[primary].take().unwrap().kill();
        let survivor = plants[1 - primary].as_ref().unwrap();
        survivor.says("took over", 1);
        of_orders.gets(100);
        let again = pair.plant(primary);
        again.says("clients are served on", 1);
        survivor.says("in step", 1);
        plants[primary] = Some(again);
        primary = 1 - primary;
    }
    of_orders.gets(300);
    drop(venues);
    let (orders, resumed) = of_orders.end();
    let (nbbo, resumed_nbbo) = of_nbbo.end();
    println!(
        "{} orders, {} of the NBBO, gone on {resumed} and {resumed_nbbo} times",
        orders.len(),
        nbbo.len()
    );
    assert!(resumed + resumed_nbbo >= kills as u64);
    // A client that comes now, of the plant that follows: a replay of its journal.
    let late = Collector::start(pair.client("mbo", 1 - primary));
    late.gets(orders.len());
    let (whole, _) = late.end();
    assert_same(&orders, &whole, "orders");
    plants.into_iter().flatten().for_each(Program::kill);
    for at in [0, 1] {
        assert_eq!(verify(&pair.journal(at), || true).unwrap().damage, [], "plant {at}");
    }
    let of_plants = [0, 1].map(|at| pair.records(at));
    assert_same(&of_plants[0], &of_plants[1], "journals");
    assert!(of_plants[1 - primary].len() <= of_plants[primary].len(), "the standby has no record of its own");
    assert!(of_plants[0].len() > 1_000);
    for at in [0, 1] {
        let exported = exported(&pair, at);
        assert!(nbbo.len() > 300 && exported.len() >= nbbo.len(), "{} of {}", exported.len(), nbbo.len());
        assert_same(&nbbo, &exported, "NBBO");
    }
}

#[test]
fn a_takeover_takes_from_the_own_lines_what_the_primary_had_not_taken() {
    let pair = Pair::of("pair-takeover", 3_000, "", false);
    let (venues, [Some(primary), Some(standby)]) = pair.start() else { unreachable!() };
    let client = Collector::start(pair.client("mbo", 0));
    client.gets(2_000);
    primary.kill();
    standby.says("took over", 1);
    standby.says("packets that had waited", 1);
    client.gets(1_000);
    drop(venues);
    let gaps = Arc::clone(&client.gaps);
    let (records, resumed) = client.end();
    assert_eq!(resumed, 1);
    standby.kill();
    assert_eq!(gaps.load(Ordering::Acquire), 0, "messages are missing");
    // Nothing is missing: neither line lost anything, and no server could have it again.
    let days = pair.folder.path("days");
    let config = &pair.plants[1];
    let done =
        support::run(&["journal", "export", config, "--schema", "mbo", "--format", "dbn", "--out", &days]);
    assert_eq!(done.status.code(), Some(0), "{}", support::stderr(&done));
    assert!(records.len() > 3_000);
}

#[test]
fn a_standby_that_was_away_catches_up_and_one_that_went_its_own_way_moves_its_journal_aside() {
    let pair = Pair::new("pair-away", 2_000, "");
    let (venues, [Some(primary), Some(standby)]) = pair.start() else { unreachable!() };
    let client = Collector::start(pair.client("mbo", 0));
    client.gets(500);
    // Away, and back: it takes what it lacks, and its journal goes on.
    standby.kill();
    primary.says("the standby is gone", 1);
    client.gets(500);
    let standby = pair.plant(1);
    primary.says("in step", 2);
    assert!(!pair.journal(1).join("aside-1").exists(), "it was a beginning of the primary's");
    // Both went on alone: the standby, while the primary stood still, is the primary of a later epoch. The other has records of its own.
    standby.kill();
    client.gets(500);
    primary.kill();
    let other = Program::start(&["plant", &pair.plants[1], "--primary"]);
    other.says("this plant is the primary of its pair", 1);
    let came_after = Collector::start(pair.client("mbo", 1));
    came_after.gets(500);
    let first = pair.plant(0);
    first.says("is not a beginning of this one", 1);
    other.says("in step", 1);
    came_after.gets(200);
    drop(venues);
    let (records, _) = came_after.end();
    drop(client);
    assert!(!records.is_empty());
    other.kill();
    first.kill();
    let aside = pair.journal(0).join("aside-1");
    let kept = verify(&aside, || true).unwrap();
    assert!(kept.damage.is_empty() && kept.records > 500, "{kept:?}");
    let of_plants = [0, 1].map(|at| pair.records(at));
    assert_same(&of_plants[0], &of_plants[1], "journals");
    assert!(of_plants[0].len() > 500);
}

#[test]
fn a_primary_goes_on_alone_without_a_standby_that_answers_and_steps_down_when_it_was_away_itself() {
    let pair = Pair::new("pair-stopped", 2_000, "standby_timeout = \"300ms\"\n");
    let (venues, [Some(primary), Some(standby)]) = pair.start() else { unreachable!() };
    let client = Collector::start(pair.client("mbo", 0));
    client.gets(300);
    signal(&standby.child, "-STOP");
    primary.says("goes on alone", 1);
    client.gets(300);
    signal(&standby.child, "-CONT");
    primary.says("in step", 2);
    assert_eq!(standby.log().matches("took over").count(), 0, "the primary was there all the time");
    client.gets(300);
    // The primary stands still for longer than the standby waits: there is another one when it wakes.
    signal(&primary.child, "-STOP");
    standby.says("took over", 1);
    // Its sockets are still open: the client learns only from them.
    signal(&primary.child, "-CONT");
    primary.says("steps down", 1);
    primary.says("this plant is the standby of its pair, epoch 1", 1);
    standby.says("in step", 1);
    client.gets(300);
    drop(venues);
    let (records, resumed) = client.end();
    assert!(resumed >= 1);
    let whole = Collector::start(pair.client("mbo", 1));
    whole.gets(records.len());
    let (whole, _) = whole.end();
    assert_same(&records, &whole, "orders");
    standby.kill();
    primary.kill();
    let of_plants = [0, 1].map(|at| pair.records(at));
    assert_same(&of_plants[0], &of_plants[1], "journals");
}

/// What the plant at `address` answers to these bytes, until it closes.
fn answer(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A connection that is closed with unread bytes is reset.
    let _reset = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn a_plant_refuses_strangers_a_second_standby_and_a_plant_with_other_lines() {
    let pair = Pair::new("pair-refuses", 500, "");
    let (venues, [Some(primary), Some(standby)]) = pair.start() else { unreachable!() };
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4_096], b"\x05\0\0\0\x01TWPA", &[0; 64]] {
        let said = answer(pair.links[0], bytes);
        assert!(said.len() > 5 && said[4] == 3, "a refusal: {said:?}");
    }
    // One that says nothing, and more than there is room for.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(pair.links[0]).unwrap()).collect();
    primary.says("too many connections", 1);
    drop(silent);
    // A third plant, which would be the standby of the same primary.
    let text = std::fs::read_to_string(&pair.plants[1]).unwrap();
    let port = |number: u32| free_port(900 + number).to_string();
    let third = text
        .replace(&pair.links[1].to_string(), &port(0))
        .replace(&pair.clients[1].to_string(), &port(1))
        .replace("journal-1", "journal-2");
    let third_path = pair.folder.write("plant-2.toml", third.as_bytes());
    let waits = Program::start(&["plant", &third_path]);
    waits.says("another standby follows already", 1);
    waits.kill();
    // Plants with other lines, and with other venues.
    let wrong = [
        (third.replacen("239.197.", "239.198.", 1), "its lines are not those of this plant"),
        (third.replacen("name = \"IEX\"", "name = \"IEXG\"", 1), "its version, venues, symbols or rules"),
        (
            third.replace(&format!("peer = \"{}\"", pair.links[0]), &format!("peer = \"{}\"", port(0))),
            "'peer' is",
        ),
    ];
    for (text, why) in wrong {
        let path = pair.folder.write("wrong.toml", text.as_bytes());
        let ended = support::run(&["plant", &path]);
        let said = support::stderr(&ended);
        assert!(ended.status.code() != Some(0) && said.contains(why), "{why}: {:?} {said}", ended.status);
    }
    // All the while the two went on.
    assert_eq!(standby.log().matches("took over").count(), 0);
    assert_eq!(primary.log().matches("the standby is gone").count(), 0, "{}", primary.log());
    drop(venues);
    // A plant that stops in good order says so, and the standby need not wait.
    signal(&primary.child, "-INT");
    standby.says("took over", 1);
}

/// Certificates of an authority, in files of the pair's folder.
#[cfg(feature = "tls")]
fn sign(folder: &Folder, authority: &str) -> String {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let of_authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    folder.write(&format!("{authority}-authority.pem"), of_authority.pem().as_bytes());
    folder.write(&format!("{authority}.pem"), own.pem().as_bytes());
    folder.write(&format!("{authority}.key"), key.serialize_pem().as_bytes());
    format!(
        "certificate = \"{authority}.pem\"\nprivate_key = \"{authority}.key\"\nclient_authorities = \"{authority}-authority.pem\"\n"
    )
}

#[cfg(feature = "tls")]
#[test]
fn a_pair_with_certificates_believes_only_those_of_its_authority() {
    let folder = Folder::new("pair-authorities");
    let certified = sign(&folder, "pair").replace("= \"", &format!("= \"{}", folder.path("")));
    let pair = Pair::new("pair-tls", 2_000, &certified);
    let (venues, [Some(primary), Some(standby)]) = pair.start() else { unreachable!() };
    let client = Collector::start(pair.client("mbo", 0));
    client.gets(500);
    // A plain connection gets a reason, and so does a standby with a certificate of another authority, and one with none.
    let said = answer(pair.links[0], b"\x4f\0\0\0\x01TWPAIR1\0");
    assert!(String::from_utf8_lossy(&said).contains("speak TLS"), "{said:?}");
    standby.kill();
    primary.says("the standby is gone", 1);
    let good = std::fs::read_to_string(&pair.plants[1]).unwrap();
    let strange = sign(&folder, "strange").replace("= \"", &format!("= \"{}", folder.path("")));
    for (certificates, why) in [(strange.as_str(), "by TLS: "), ("", "speak TLS")] {
        let text = good.replace(&certified, certificates);
        assert_ne!(text, good);
        std::fs::write(&pair.plants[1], text).unwrap();
        let stranger = pair.plant(1);
        stranger.says("this standby waits for the primary", 1);
        stranger.says(why, 1);
        stranger.kill();
    }
    primary.says("closed before it said who it is (", 1);
    assert_eq!(primary.log().matches("in step").count(), 1, "no stranger follows: {}", primary.log());
    assert_eq!(primary.log().matches("steps down").count(), 0, "{}", primary.log());
    // Files that were replaced by those of another authority are followed: at both, and the two are a pair again.
    for end in ["-authority.pem", ".pem", ".key"] {
        std::fs::copy(folder.path(&format!("strange{end}")), folder.path(&format!("pair{end}"))).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1_100));
    std::fs::write(&pair.plants[1], good).unwrap();
    let standby = pair.plant(1);
    primary.says("in step", 2);
    client.gets(300);
    primary.kill();
    standby.says("took over", 1);
    client.gets(300);
    drop(venues);
    let (records, resumed) = client.end();
    assert_eq!(resumed, 1);
    let whole = Collector::start(pair.client("mbo", 1));
    whole.gets(records.len());
    assert_same(&records, &whole.end().0, "orders");
}

/// A small file system in memory, which is unmounted on drop.
struct Small(PathBuf);

impl Small {
    /// `None`, and a word about it, where that is not permitted.
    fn mount(at: PathBuf, options: &str) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let small = Self(at);
        if small.remount(options) {
            return Some(small);
        }
        eprintln!("SKIPPED: no file system can be mounted: a full disk is not tested");
        None
    }

    fn remount(&self, options: &str) -> bool {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(&self.0)
            .output();
        mounted.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _left_behind_at_worst = std::process::Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_standby_with_a_full_disk_begins_again_until_there_is_room() {
    let pair = Pair::new("pair-full", 5_000, "");
    let Some(small) = Small::mount(pair.journal(1), "size=3m") else { return };
    let (venues, [Some(primary), Some(mut standby)]) = pair.start() else { unreachable!() };
    let client = Collector::start(pair.client("mbo", 0));
    standby.says("the primary cannot be followed", 3);
    assert!(standby.child.try_wait().unwrap().is_none(), "it runs");
    assert_eq!(standby.log().matches("took over").count(), 0);
    client.gets(300);
    // Nor does it take over while it cannot follow.
    assert!(small.remount("remount,size=512m"));
    let in_step = primary.log().matches("in step").count();
    primary.says("in step", in_step + 1);
    client.gets(300);
    drop(venues);
    let (records, resumed) = client.end();
    assert!(records.len() > 600 && resumed == 0);
    primary.kill();
    standby.says("took over", 1);
    standby.kill();
    let of_plants = [0, 1].map(|at| pair.records(at));
    assert_same(&of_plants[0], &of_plants[1][..of_plants[0].len()], "journals");
}
