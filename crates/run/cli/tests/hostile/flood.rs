//! Clients that flood the plant with snapshot requests delay only themselves.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use tapeworks_runtime::keys::Key;

use super::*;

const ATTACKERS: usize = 9;
/// A snapshot of everything is requested and given up, as often as the limit of lines of a session allows.
const REQUESTS: &str =
    "schema=mbo|symbols=ALL_SYMBOLS|snapshot=1\nunsubscribe|schema=mbo|symbols=ALL_SYMBOLS\n";
const REPEATS: usize = 4_990;

/// Logs on and starts a session of trades; `None` if the plant refuses.
fn log_on(clients: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect(clients).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    let mut line = || {
        let mut line = String::new();
        lines.read_line(&mut line).ok().map(|_| line)
    };
    let _version = line()?;
    let challenge = line()?.trim_end().strip_prefix("cram=")?.to_owned();
    let answer = hex::encode(Key::new("", KEY).ok()?.answer(&challenge));
    writeln!(&stream, "auth={answer}-00000|dataset=TAPEWORKS.DEMO").ok()?;
    let is_admitted = line()?.starts_with("success=1");
    writeln!(&stream, "schema=trades|symbols=ALL_SYMBOLS\nstart_session").ok()?;
    is_admitted.then_some(stream)
}

/// Floods the plant, session after session, and reads nothing. Returns how many sessions the plant took.
fn flood(clients: SocketAddr, is_over: &AtomicBool) -> usize {
    let (text, mut sessions) = (REQUESTS.repeat(REPEATS), 0);
    while !is_over.load(Ordering::Relaxed) {
        let Some(stream) = log_on(clients) else { continue };
        sessions += 1;
        let _limit = stream.set_write_timeout(Some(Duration::from_millis(500)));
        // The plant closes the connection at its limit.
        let _cut = (&stream).write_all(text.as_bytes());
        std::thread::sleep(Duration::from_millis(100));
    }
    sessions
}

/// How many records of all symbols a client gets in two seconds, and the 99th percentile of their delay in ns.
fn delay(clients: SocketAddr, what: &str) -> (u64, u64) {
    let address = clients.to_string();
    let arguments =
        ["subscribe", &address, "--key", KEY, "--schema", "mbo", "--quiet", "--json", "--seconds", "2"];
    let output = run(&arguments);
    is_sound(&output, &stderr(&output), &[0], what);
    let text = stderr(&output);
    let json = &text[text.find('{').unwrap_or_else(|| panic!("{what}: {text}"))..];
    let figures: serde_json::Value = serde_json::from_str(json).unwrap();
    (figures["records"].as_u64().unwrap(), figures["delay_ns"]["p99"].as_u64().unwrap())
}

#[test]
fn a_flood_of_snapshots_delays_no_market_data_and_no_other_client() {
    let mut rounds = Rounds::new(10, 1);
    let folder = Folder::new("hostile-flood");
    let [web, clients, port] = [570, 571, 572].map(free_port);
    // The ring and the socket buffer hold a few seconds of messages, so if a client stalls ingest, packets are dropped.
    let plant = format!(
        "ring_events = 1_024\n[web]\nlisten = \"{web}\"\n[clients]\nlisten = \"{clients}\"\n\
         dataset = [{{ name = \"TAPEWORKS.DEMO\" }}]\nkey = [{{ name = \"demo\", key = \"{KEY}\" }}]\n"
    );
    let [venue, plant] = nasdaq(&folder, 100, port, &plant);
    let running = Running::start(&["plant", &plant]);
    support::wait_for(|| status(web).is_some());
    let serving = Running::start(&["exchange", "serve", &venue]);
    let next = || status(web).and_then(|status| status["venues"][0]["next"].as_u64()).unwrap_or_default();
    support::wait_for(|| next() > 2_000);
    while rounds.next() {
        let what = format!("seed {}", rounds.seed);
        let (calm_records, calm_ns) = delay(clients, &what);
        let before = next();
        let floods: Vec<_> =
            (0..ATTACKERS).map(|_| Attack::start(move |is_over| flood(clients, is_over))).collect();
        std::thread::sleep(Duration::from_millis(500));
        let (records, attacked_ns) = delay(clients, &what);
        let sessions: usize = floods.into_iter().map(Attack::stop).sum();
        println!(
            "a client's p99 is {:.1} ms, and {:.1} ms beside {ATTACKERS} that flood the plant: {:.1}x; {sessions} sessions",
            calm_ns as f64 / 1e6,
            attacked_ns as f64 / 1e6,
            attacked_ns as f64 / calm_ns.max(1) as f64
        );
        assert!(
            sessions >= ATTACKERS && calm_records > 0 && records > 0,
            "{what}: {records} of {calm_records}"
        );
        assert!(next() > before, "{what}: ingest stands still");
        let status = status(web).unwrap();
        let lines = status["venues"][0]["lines"].as_array().unwrap();
        let drops: u64 = lines.iter().map(|line| line["kernel_drops"].as_u64().unwrap()).sum();
        assert_eq!((drops, status["venues"][0]["missing"].as_u64()), (0, Some(0)), "{what}: {status}");
        // A client that comes after the attackers is served.
        support::wait_for(|| log_on(clients).is_some());
        assert!(log_on(clients).is_some(), "{what}");
    }
    [running, serving].into_iter().for_each(Running::stop);
}
