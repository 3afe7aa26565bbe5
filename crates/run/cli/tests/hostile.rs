//! The program as a hostile world meets it: damaged files and configurations, signals at any moment, two of everything at once,
//! outages of the plant, captures of several days behind tunnels, recovery servers that lie, clients that flood the plant, a plant that
//! hangs while orders are checked against its prices, a venue whose reports lie, and stores that are removed or cut.
//!
//! Everything comes from one seed, which is printed: `TAPEWORKS_SEED` gives it. `TAPEWORKS_HOSTILE_SECONDS` says for how long each part
//! goes on; without it each does a few rounds. `cargo xtask hostile` runs it for ten minutes.
//!
//! What must hold: the program never panics, never dies of a signal that the test did not send, ends in time, ends with a code that means
//! something, and leaves no file that is not whole.

#![allow(clippy::unwrap_used, missing_docs)]
#![cfg(unix)]

#[path = "collar/mod.rs"]
mod collar;
#[path = "hostile/days.rs"]
mod days;
#[path = "hostile/flood.rs"]
mod flood;
#[path = "hostile/orders.rs"]
mod orders;
#[path = "hostile/recovery.rs"]
mod recovery;
#[path = "hostile/stores.rs"]
mod stores;
mod support;
#[path = "hostile/venue.rs"]
mod venue;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use support::{Folder, captures, command, free_port, packets, root, run, signal, stderr, stdout};
use tapeworks_capture::net;
use tapeworks_capture::{LinkType, Writer, WriterOptions};
use tapeworks_journal::{JournalOptions, JournalWriter, Record};
use tapeworks_random::Random;

/// How long one run of the program may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key of the plants' clients.
const KEY: &str = "db-TapeworksDemoKey0000000000000";

/// Rounds of a part, and its random numbers.
struct Rounds {
    random: Random,
    until: Option<Instant>,
    left: u32,
    seed: u64,
}

impl Rounds {
    /// `few` rounds, or as many as there is time for; each part has a stream of numbers of its own.
    fn new(part: u64, few: u32) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let seed = number("TAPEWORKS_SEED").unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        });
        println!("TAPEWORKS_SEED={seed}");
        let until =
            number("TAPEWORKS_HOSTILE_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Self { random: Random::new(seed ^ part << 56), until, left: few, seed }
    }

    fn next(&mut self) -> bool {
        match self.until {
            Some(until) => Instant::now() < until,
            None => {
                let goes_on = self.left > 0;
                self.left = self.left.saturating_sub(1);
                goes_on
            }
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.below(u32::try_from(limit.max(1)).unwrap()) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Damages bytes: some overwritten, cut off, repeated, or swapped for what numbers dislike.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let (at, length) = (self.below(bytes.len()), 1 + self.below(64));
            let end = (at + length).min(bytes.len());
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at..end].fill(0),
                2 => bytes[at..end].fill(0xff),
                3 => bytes.truncate(at),
                4 => {
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => {
                    let random: Vec<u8> = (at..end).map(|_| self.random.bits() as u8).collect();
                    bytes[at..end].copy_from_slice(&random);
                }
            }
        }
    }

    /// A capture of the same packets with damage where sessions, sequence numbers, counts, times and lengths stand: at the beginnings of
    /// some payloads. Some receive times are far away.
    fn damage_packets(&mut self, mut packets: Vec<(u64, Vec<u8>)>) -> Vec<u8> {
        for _ in 0..=self.below(8) {
            let place = self.below(packets.len());
            let (time, bytes) = &mut packets[place];
            if self.below(6) == 0 {
                *time = *self.one_of(&[0, 1, 999_999_999, (1 << 32) * 1_000_000_000 - 1]);
                continue;
            }
            let Ok(datagram) = net::parse(LinkType::ETHERNET, bytes) else { continue };
            let payload = datagram.payload_offset..datagram.payload_offset + datagram.payload.len();
            // With its checksum the damaged datagram is discarded; without, its messages are read.
            if self.below(2) == 0 {
                without_checksum(bytes);
            }
            let part = &mut bytes[payload];
            let at = self.below(part.len().min(48));
            let end = part.len().min(at + self.one_of(&[1, 2, 4, 8, 16]));
            match self.below(4) {
                0 if !part.is_empty() => part[at] ^= 1 << self.below(8),
                1 => part[at..end].fill(0),
                2 => part[at..end].fill(0xff),
                _ => part[at..end].fill_with(|| self.random.bits() as u8),
            }
        }
        let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
        for (time, bytes) in &packets {
            writer.write_packet(*time, bytes).unwrap();
        }
        writer.finish().unwrap()
    }
}

/// Writes 0, for none, into the UDP checksum of a frame over IPv4, if it is UDP.
fn without_checksum(frame: &mut [u8]) {
    if let Ok(datagram) = net::parse(LinkType::ETHERNET, frame)
        && datagram.transport == net::Transport::Udp
    {
        let checksum = datagram.payload_offset - 2..datagram.payload_offset;
        frame[checksum].fill(0);
    }
}

/// A thread that attacks the program until this is dropped: also when the test fails, which would otherwise wait for it forever.
struct Attack<T> {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Attack<T> {
    /// Runs `attack`, which looks at the flag again and again, and ends when it is set.
    fn start(attack: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        Self { is_over, thread: Some(std::thread::spawn(move || attack(&ends))) }
    }

    /// Ends it, and returns what it has done.
    fn stop(mut self) -> T {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl<T> Drop for Attack<T> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // A test that fails says so itself.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Ends with the test.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        Self(command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    #[track_caller]
    fn stop(mut self) {
        signal(&self.0, "-INT");
        let until = Instant::now() + PATIENCE;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// Waits for the program; one that does not end in time is a failure.
#[track_caller]
fn ended(mut child: Child, what: &str) -> Output {
    let until = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            let _killed = child.kill();
            panic!("{what}: it did not end in {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn start(arguments: &[&str]) -> Child {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs it to its end without a pipe that could fill up.
fn run_quietly(arguments: &[&str], folder: &Folder) -> (Output, String) {
    let errors = folder.path("stderr");
    let child =
        command(arguments).stdout(Stdio::null()).stderr(fs::File::create(&errors).unwrap()).spawn().unwrap();
    let output = ended(child, &arguments.join(" "));
    (output, String::from_utf8_lossy(&fs::read(errors).unwrap()).into_owned())
}

/// The program ended as it may: no panic, no signal, one of the codes that mean something.
#[track_caller]
fn is_sound(output: &Output, errors: &str, codes: &[i32], what: &str) {
    assert!(!errors.contains("panicked at"), "{what}: {errors}");
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| codes.contains(&code)),
        "{what}: it ended with {code:?} (signal {:?}): {errors}",
        output.status.signal()
    );
}

#[test]
fn damaged_captures_are_reported_and_never_break_a_command() {
    let mut rounds = Rounds::new(1, 23);
    let folder = Folder::new("hostile-captures");
    let captures: Vec<String> = captures().into_iter().filter(|path| !path.ends_with(".md")).collect();
    let market = folder.path("market.pcap");
    let arguments = ["exchange", "generate", "--scenario", "us", "--messages", "3000", "--out", &market];
    assert!(run(&arguments).status.success());
    let (damaged, out) = (folder.path("damaged.pcap"), folder.path("out"));
    while rounds.next() {
        // What has one packet alone shows little of what comes behind a damaged one.
        let is_of_market = rounds.below(2) == 0;
        let capture = if is_of_market { market.clone() } else { rounds.one_of(&captures).clone() };
        let of_packets = rounds.below(2) == 0;
        let mut bytes = if of_packets {
            rounds.damage_packets(packets(&capture))
        } else {
            fs::read(root().join(&capture)).unwrap()
        };
        if !of_packets || rounds.below(2) == 0 {
            rounds.damage(&mut bytes);
        }
        fs::write(&damaged, &bytes).unwrap();
        let csv = format!("{out}.csv");
        let parquet = format!("{out}.parquet");
        let commands: [&[&str]; 8] = [
            &["dump", &damaged],
            &["stats", &damaged],
            &["replay", &damaged, "--force", "--schema", "mbo", "--out", &csv],
            &["replay", &damaged, "--force", "--schema", "cmbp-1", "--out", &parquet],
            &["replay", &damaged, "--force", "--schema", "ohlcv-1s", "--out", &csv],
            &["compare", "sip", &damaged],
            &["symbols", &damaged],
            &["study", &damaged],
        ];
        let arguments = *rounds.one_of(&commands);
        let (output, errors) = run_quietly(arguments, &folder);
        let what = format!("seed {}: {} of {capture}", rounds.seed, arguments.join(" "));
        is_sound(&output, &errors, &[0, 1, 2, 3], &what);
        assert!(!folder.files().iter().any(|name| name.contains(".partial")), "{what}: {:?}", folder.files());
    }
}

/// Each of two sessions misses nearly all that 64 bits can number: together more than that.
#[test]
fn sessions_that_miss_more_than_can_be_counted_are_never_clean() {
    let folder = Folder::new("hostile-numbers");
    let (_, first) =
        packets("testdata/captures/nasdaq-itch50/AddOrderNoMpidAttributionMessage.pcap").swap_remove(0);
    // Behind Ethernet with the tag of a VLAN, IPv4 and UDP: ten bytes of the session, eight of the number.
    let (session, number) = (46..56, 56..64);
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
    // The second session follows after a silence.
    for (name, time) in [(*b"SESSION001", 1_700_000_000), (*b"SESSION002", 1_700_000_010)] {
        // The first packet so far ahead is skipped. The next one shows that the sequence goes on there.
        for at in [1, u64::MAX - 200, u64::MAX - 100] {
            let mut bytes = first.clone();
            bytes[session.clone()].copy_from_slice(&name);
            bytes[number.clone()].copy_from_slice(&at.to_be_bytes());
            writer.write_packet(time * 1_000_000_000, &bytes).unwrap();
        }
    }
    let path = folder.write("far.pcap", &writer.finish().unwrap());
    let csv = folder.path("far.csv");
    for arguments in [
        &["stats", &path][..],
        &["study", &path],
        &["replay", &path],
        &["replay", &path, "--schema", "mbo", "--out", &csv],
    ] {
        let output = run(arguments);
        let text = stdout(&output) + &stderr(&output);
        is_sound(&output, &text, &[3], &arguments.join(" "));
        assert!(text.contains("18,446,744,073,709,551,615 messages missing"), "{text}");
    }
}

/// In packets without checksums, one damaged number or count costs the messages of its packet, or none, and replay and stats say the same of it; also where a second line has it.
#[test]
fn one_damaged_header_costs_one_packet() {
    let folder = Folder::new("hostile-header");
    let packets = packets("testdata/captures/simulated/iex-deep-plus.pcap");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = run(arguments);
        is_sound(&output, &stderr(&output), &[0, 3], &arguments.join(" "));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let counted = |of: &serde_json::Value| {
        let sum = |key: &str| {
            let channels = of["channels"].as_array().unwrap();
            channels.iter().map(|channel| channel[key].as_u64().unwrap()).sum::<u64>()
        };
        ["messages", "repeated_messages", "missing_messages", "implausible_packets"].map(sum)
    };
    let whole = counted(&json(&["stats", "--json", "testdata/captures/simulated/iex-deep-plus.pcap"]));
    assert_eq!(whole[1..], [0; 3]);
    let offset = |bytes: &[u8]| net::parse(LinkType::ETHERNET, bytes).unwrap().payload_offset;
    let count_of = |bytes: &[u8]| u16::from_le_bytes([bytes[offset(bytes) + 14], bytes[offset(bytes) + 15]]);
    let busy: Vec<usize> = (1..packets.len() - 1).filter(|place| count_of(&packets[*place].1) > 0).collect();
    // IEX-TP: the number's highest byte but one, or the count's high byte.
    let damages = [(busy[busy.len() / 2], 30, true), (busy[busy.len() / 3], 15, false)];
    for ((place, at, costs), is_copied) in damages.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let mut damaged = packets.clone();
        let (copied, what) =
            (packets[place].clone(), format!("packet {place}, byte {at}, copied: {is_copied}"));
        let bytes = &mut damaged[place].1;
        let (lost, at) = (u64::from(count_of(bytes)), offset(bytes) + at);
        bytes[at] ^= 0x40;
        without_checksum(bytes);
        if is_copied {
            // A copy comes first, so the damaged packet is one that came before, but for its number.
            damaged.insert(place, copied);
        }
        let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
        for (time, bytes) in &damaged {
            writer.write_packet(*time, bytes).unwrap();
        }
        let path = folder.write("damaged.pcap", &writer.finish().unwrap());
        let (stats, replay) = (json(&["stats", "--json", &path]), json(&["replay", "--json", &path]));
        let (lost, repeated) = match (costs, is_copied) {
            (true, false) => (lost, 0),
            (false, true) => (0, lost),
            _ => (0, 0),
        };
        assert_eq!(counted(&stats), [whole[0] - lost, repeated, lost, u64::from(costs)], "{stats}");
        assert_eq!(counted(&stats), counted(&replay), "{replay}");
        let codes = [["stats"], ["replay"]].map(|command| run(&[command[0], &path]).status.code());
        assert_eq!(codes, [Some(3); 2], "{what}");
        assert_eq!(replay["channels"][0]["late_messages"], 0, "{replay}");
    }
}

/// A flipped bit in a message costs its datagram's messages, unless a copy brings them; every command says so with the place.
#[test]
fn a_flipped_bit_in_a_message_is_found_by_its_checksum() {
    let mut rounds = Rounds::new(11, 6);
    let folder = Folder::new("hostile-flipped-bit");
    let capture = "testdata/captures/simulated/iex-deep-plus.pcap";
    let packets = packets(capture);
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = run(arguments);
        is_sound(&output, &stderr(&output), &[0, 3], &arguments.join(" "));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let counted = |of: &serde_json::Value| {
        let channels = of["channels"].as_array().unwrap();
        let sum = |key: &str| channels.iter().map(|channel| channel[key].as_u64().unwrap()).sum::<u64>();
        ["messages", "missing_messages"].map(sum)
    };
    let [messages, _] = counted(&json(&["stats", "--json", capture]));
    while rounds.next() {
        // The first eight make the flow trusted; what the last one carried is not missed.
        let place = 9 + rounds.below(packets.len() - 10);
        let mut damaged = packets.clone();
        let bytes = &mut damaged[place].1;
        let datagram = net::parse(LinkType::ETHERNET, bytes).unwrap();
        let (start, length) = (datagram.payload_offset, datagram.payload.len());
        let carried = u64::from(u16::from_le_bytes([bytes[start + 14], bytes[start + 15]]));
        bytes[start + rounds.below(length)] ^= 1 << rounds.below(8);
        let is_copied = rounds.below(2) == 0;
        if is_copied {
            damaged.insert(place + 1, packets[place].clone());
        }
        let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
        for (time, bytes) in &damaged {
            writer.write_packet(*time, bytes).unwrap();
        }
        let path = folder.write("flipped.pcap", &writer.finish().unwrap());
        let what = format!("seed {}: packet {}, copied: {is_copied}", rounds.seed, place + 1);
        let lost = if is_copied { 0 } else { carried };
        let (stats, replay) = (json(&["stats", "--json", &path]), json(&["replay", "--json", &path]));
        for (counts, problem) in [
            (counted(&stats), &stats["first_problems"][0]),
            (counted(&replay), &replay["problems"]["first"][0]),
        ] {
            assert_eq!(counts, [messages - lost, lost], "{what}");
            assert_eq!(problem["packet"], place as u64 + 1, "{what}: {problem}");
            let text = problem["problem"].as_str().unwrap();
            assert!(text.contains("states checksum") && text.ends_with("it is discarded"), "{what}: {text}");
        }
        assert_eq!(replay["problems"]["bad_checksums"], 1, "{what}");
        for command in ["stats", "replay", "dump", "study", "symbols", "bars"] {
            let code = run(&[command, &path]).status.code();
            assert_eq!(code, Some(3), "{what}: {command}");
        }
    }
}

#[test]
fn damaged_configurations_are_reported_with_their_place_and_nothing_starts() {
    let mut rounds = Rounds::new(2, 29);
    let folder = Folder::new("hostile-configurations");
    let kinds: [(&[&str], &str); 4] = [
        (&["validate"], "examples/plant"),
        (&["exchange", "check"], "examples/exchange"),
        (&["flow", "check"], "examples/flow"),
        (&["gateway", "check"], "examples/gateway"),
    ];
    let words = [
        "-1",
        "0",
        "99999999999999999999",
        "1e400",
        "nan",
        "\"\"",
        "[]",
        "{}",
        "true",
        "\"\\u0000\"",
        "\"x\"",
        "18446744073709551616",
        "-0.5",
        "[[1]]",
        "2026-01-01",
    ];
    while rounds.next() {
        let (arguments, examples) = *rounds.one_of(&kinds);
        let mut files: Vec<_> =
            fs::read_dir(root().join(examples)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
        files.sort();
        let mut text = fs::read_to_string(rounds.one_of(&files)).unwrap();
        if rounds.below(3) == 0 {
            let mut bytes = text.into_bytes();
            rounds.damage(&mut bytes);
            text = String::from_utf8_lossy(&bytes).into_owned();
        } else {
            // A value that the key does not expect, or a line more or less.
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for _ in 0..=rounds.below(3) {
                let at = rounds.below(lines.len());
                match rounds.below(4) {
                    0 => drop(lines.remove(at)),
                    1 => lines.insert(at, lines[at].clone()),
                    _ => {
                        if let Some((key, _)) = lines[at].clone().split_once('=') {
                            lines[at] = format!("{key}= {}", rounds.one_of(&words));
                        }
                    }
                }
            }
            text = lines.join("\n");
        }
        let path = folder.path("hostile.toml");
        fs::write(&path, &text).unwrap();
        let (output, errors) = run_quietly(&[arguments, &[path.as_str()]].concat(), &folder);
        let what = format!("seed {}: {} of\n{text}\n", rounds.seed, arguments.join(" "));
        is_sound(&output, &errors, &[0, 78], &what);
        if output.status.code() == Some(78) {
            let named = errors.lines().filter(|line| line.contains("hostile.toml")).count();
            assert!(named > 0, "{what}: no line names the file: {errors}");
        }
    }
}

#[test]
fn a_damaged_journal_is_checked_and_repaired_and_no_sound_record_is_lost() {
    let mut rounds = Rounds::new(3, 7);
    while rounds.next() {
        let folder = Folder::new("hostile-journal");
        let journal = folder.path("journal");
        let options = JournalOptions { segment_bytes: 1 << 16, keep_bytes: None };
        let (mut writer, _) = JournalWriter::open(journal.as_ref(), options).unwrap();
        for number in 0..2_000u64 {
            let payload = vec![number as u8; rounds.below(200)];
            let record = Record { time: number, kind: 1, payload: &payload, ..Record::default() };
            writer.append(&record).unwrap();
        }
        drop(writer);
        let mut segments: Vec<_> =
            fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path()).collect();
        segments.retain(|path| path.extension().is_some_and(|ending| ending == "journal"));
        segments.sort();
        for _ in 0..=rounds.below(3) {
            let path = rounds.one_of(&segments).clone();
            if rounds.below(8) == 0 {
                let _gone_already = fs::remove_file(path);
            } else if let Ok(mut bytes) = fs::read(&path) {
                rounds.damage(&mut bytes);
                fs::write(&path, bytes).unwrap();
            }
        }
        let what = format!("seed {}", rounds.seed);
        let sound = || {
            let verified = run(&["journal", "verify", &journal, "--json"]);
            is_sound(&verified, &stderr(&verified), &[0, 3], &what);
            let report: serde_json::Value = serde_json::from_str(&stdout(&verified)).unwrap();
            let lost = report["lost"].as_u64().unwrap();
            (report["records"].as_u64().unwrap(), lost, report["damage"].as_array().unwrap().len())
        };
        let (before, _, _) = sound();
        // A child that another part of this test forks holds the writer's lock until it runs its program.
        let repaired = (0..100)
            .map(|_| run(&["journal", "repair", &journal]))
            .find(|repaired| !stderr(repaired).contains("another process writes this journal"))
            .unwrap();
        is_sound(&repaired, &stderr(&repaired), &[0, 3], &what);
        let (after, _, damage) = sound();
        // Repair adds records that say what is lost, and takes none away.
        assert!(
            after >= before,
            "{what}: {before} sound records before, {after} behind: {}",
            stdout(&repaired)
        );
        let left = stdout(&repaired).contains("left as they are");
        assert!(damage == 0 || left, "{what}: {}", stdout(&repaired));
    }
}

#[test]
fn a_signal_at_any_moment_leaves_whole_files() {
    let mut rounds = Rounds::new(4, 4);
    let folder = Folder::new("hostile-signals");
    let session = folder.path("session.pcap");
    let made = run(&["exchange", "generate", "--messages", "60000", "--symbols", "50", "--out", &session]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    while rounds.next() {
        let out = folder.path("out");
        let _fresh = fs::remove_dir_all(&out);
        fs::create_dir_all(&out).unwrap();
        let ending = *rounds.one_of(&["csv", "dbn", "dbn.zst", "parquet", "json.zst"]);
        let file = format!("{out}/q.{ending}");
        let generated = format!("{out}/g.pcap.zst");
        let commands: [&[&str]; 3] = [
            &["replay", &session, "--schema", "mbo", "--out", &file],
            &["replay", &session, "--schema", "cmbp-1", "--out", &file],
            &["exchange", "generate", "--messages", "200000", "--out", &generated],
        ];
        let arguments = *rounds.one_of(&commands);
        let what = format!("seed {}: {}", rounds.seed, arguments.join(" "));
        let child = start(arguments);
        std::thread::sleep(Duration::from_micros(rounds.random.bits() % 1_500_000));
        let (name, again) = (*rounds.one_of(&["-INT", "-TERM", "-KILL"]), rounds.below(2) == 0);
        // It may have ended by itself; coreutils' `timeout` sends its signal twice.
        let gone = |child: &Child| !Path::new(&format!("/proc/{}/stat", child.id())).exists();
        if !gone(&child) {
            signal(&child, name);
            if again && !gone(&child) {
                signal(&child, name);
            }
        }
        let output = ended(child, &what);
        let errors = stderr(&output);
        assert!(!errors.contains("panicked at"), "{what}: {errors}");
        // A signal that came before the program listens ends it as it ends any; but then there is no file.
        let is_killed = output.status.signal().is_some();
        let has_ended = output.status.code().is_some_and(|code| [0, 3, 130].contains(&code));
        assert!(is_killed || has_ended, "{what} after {name}: {:?} {errors}", output.status);
        for name in fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()) {
            let name = name.to_str().unwrap().to_owned();
            if name.contains(".partial") {
                assert!(is_killed, "{what}: {name} is left");
                continue;
            }
            let bytes = fs::metadata(format!("{out}/{name}")).unwrap().len();
            assert!(bytes > 0, "{what}: {name} is empty");
            if name.ends_with(".pcap.zst") {
                let read = run(&["stats", &format!("{out}/{name}")]);
                is_sound(&read, &stderr(&read), &[0, 3], &what);
            }
        }
    }
}

#[test]
fn two_runs_at_once_with_one_output_give_one_whole_file() {
    let mut rounds = Rounds::new(5, 3);
    let folder = Folder::new("hostile-two");
    let session = folder.path("session.pcap");
    let made = run(&["exchange", "generate", "--messages", "20000", "--symbols", "20", "--out", &session]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let list = run(&["replay", &session, "--force", "--symbols", "TWAA", "--out", &folder.path("a.csv")]);
    is_sound(&list, &stderr(&list), &[0, 3], "the first alone");
    let expected = fs::read(folder.path("a.csv")).unwrap();
    while rounds.next() {
        let out = folder.path("both.csv");
        let _fresh = fs::remove_file(&out);
        let runs: Vec<Child> = (0..2 + rounds.below(3))
            .map(|_| {
                let child = start(&["replay", &session, "--force", "--symbols", "TWAA", "--out", &out]);
                std::thread::sleep(Duration::from_micros(rounds.random.bits() % 20_000));
                child
            })
            .collect();
        let mut done = 0;
        for child in runs {
            let output = ended(child, "one of several");
            let errors = stderr(&output);
            is_sound(&output, &errors, &[0, 1, 3], "one of several");
            match output.status.code() {
                Some(1) => assert!(errors.contains("another run writes it"), "{errors}"),
                _ => done += 1,
            }
        }
        assert!(done > 0, "seed {}: no run made the file", rounds.seed);
        assert!(fs::read(&out).unwrap() == expected, "seed {}: the file is another", rounds.seed);
    }
}

/// The configurations of a simulated Nasdaq with one line and of its plant, which has `plant` besides.
fn nasdaq(folder: &Folder, symbols: u32, port: SocketAddr, plant: &str) -> [String; 2] {
    let group = format!("239.200.{}.1:{}", std::process::id() % 250, port.port());
    let venue = format!(
        r#"
symbols = {symbols}
rate = 500
interface = "127.0.0.1"
wait = "rest"
[[venue]]
name = "Nasdaq"
kind = "nasdaq"
lines = ["{group}"]
"#
    );
    let plant = format!(
        r#"
interface = "127.0.0.1"
{plant}
[[venue]]
name = "Nasdaq"
protocol = "itch"
publisher = "XNAS.ITCH"
lines = ["{group}"]
"#
    );
    [("venue.toml", venue), ("plant.toml", plant)].map(|(name, text)| folder.write(name, text.as_bytes()))
}

/// The page's status.
fn status(web: SocketAddr) -> Option<serde_json::Value> {
    serde_json::from_str(get(web, "/status.json")?.split_once("\r\n\r\n")?.1).ok()
}

/// The head and the body of a page.
fn get(web: SocketAddr, path: &str) -> Option<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(web).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\nHost: {web}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn after_outages_of_the_plant_nothing_is_missing_that_the_venue_has() {
    let mut rounds = Rounds::new(6, 1);
    let folder = Folder::new("hostile-outages");
    let at = |number: u32| free_port(400 + number);
    let (retransmission, snapshot, web, port) = (at(0), at(1), at(2), at(3).port());
    let group = |line: u8| format!("239.198.{}.{line}:{port}", std::process::id() % 250);
    let venue = folder.write(
        "venue.toml",
        format!(
            "symbols = 50\nrate = 5_000\ninterface = \"127.0.0.1\"\nwait = \"rest\"\n[[venue]]\nname = \"Nasdaq\"\nkind = \"nasdaq\"\nlines = [\"{}\", \"{}\"]\nretransmission = \"{retransmission}\"\nsnapshot = \"{snapshot}\"\nfaults = {{ a = {{ lost_per_million = 2_000, reordered_per_million = 500 }}, b = {{ lost_per_million = 2_000 }} }}\n",
            group(1), group(2)
        )
        .as_bytes(),
    );
    // A machine that tests elsewhere too may take the server's core for longer than the 0.1 s of a request's ten attempts.
    let plant = folder.write(
        "plant.toml",
        format!(
            "interface = \"127.0.0.1\"\n[journal]\nfolder = \"journal\"\nsegment_mb = 8\ncheckpoint_every = \"1s\"\n[web]\nlisten = \"{web}\"\n[[venue]]\nname = \"Nasdaq\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\nlines = [\"{}\", \"{}\"]\nretransmission = \"{retransmission}\"\nsnapshot = \"{snapshot}\"\nrequests = {{ attempts = 1_000 }}\n",
            group(1), group(2)
        )
        .as_bytes(),
    );
    let quiet =
        |arguments: &[&str]| command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut serving = quiet(&["exchange", "serve", &venue]);
    let mut running = quiet(&["plant", &plant]);
    let of_venue = |field: &str| -> Option<u64> { status(web)?["venues"][0][field].as_u64() };
    let wait_until_it_follows = |beyond: u64| {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = status(web);
            let venue = status.as_ref().map(|status| &status["venues"][0]);
            if let Some(venue) = venue
                && venue["state"] == "live"
                && venue["next"].as_u64() > Some(beyond)
            {
                return venue["next"].as_u64().unwrap();
            }
            assert!(Instant::now() < until, "it does not follow the venue beyond {beyond}: {venue:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let mut next = wait_until_it_follows(1);
    let missing = of_venue("missing").unwrap();
    let longest = if rounds.until.is_some() { 30_000 } else { 2_000 };
    while rounds.next() {
        let outage = Duration::from_millis(500 + rounds.random.bits() % longest);
        if rounds.below(3) == 0 {
            // It stands still, and its sockets overflow or do not.
            signal(&running, "-STOP");
            std::thread::sleep(outage);
            signal(&running, "-CONT");
        } else {
            running.kill().unwrap();
            running.wait().unwrap();
            std::thread::sleep(outage);
            running = quiet(&["plant", &plant]);
        }
        next = wait_until_it_follows(next + 1_000);
        let now = of_venue("missing").unwrap();
        let page = status(web);
        let venue = page.as_ref().map(|page| &page["venues"][0]);
        assert_eq!(now, missing, "seed {}: after {} ms: {venue:?}", rounds.seed, outage.as_millis());
    }
    for child in [&mut running, &mut serving] {
        signal(child, "-INT");
        let until = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let verified = run(&["journal", "verify", &folder.path("journal")]);
    is_sound(&verified, &stderr(&verified), &[0], "the journal behind it all");
}

/// Waits until the log of a process has one of these texts, and reads on: a pipe that is not read blocks its writer.
#[track_caller]
fn said(child: &mut Child, text: &str) {
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut all = String::new();
    while !all.contains(text) {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended: {all}");
        all.push_str(&line);
    }
    std::thread::spawn(move || log.lines().for_each(drop));
}

fn orders_toml(folder: &Folder, addresses: &[SocketAddr]) -> String {
    let text = format!(
        "[[orders]]\nname = \"Exchange\"\nreal_time = \"{}\"\nrecovery = \"{}\"\npartitions = 1\nthrottle_per_second = 0\n\
         [[orders.user]]\nname = \"TW01\"\npassword = \"password\"\n[[orders.symbol]]\nname = \"AAPL\"\nid = 1\n",
        addresses[0], addresses[1]
    );
    folder.write("orders.toml", text.as_bytes())
}

fn gateway_toml(
    folder: &Folder,
    name: &str,
    addresses: &[SocketAddr],
    listen: SocketAddr,
    store: &str,
) -> String {
    let text = format!(
        "listen = \"{listen}\"\n[store]\nfolder = \"{store}\"\nsegment_mb = 1\n\
         [venue]\nprotocol = \"millennium\"\nreal_time = \"{}\"\nrecovery = \"{}\"\nuser = \"TW01\"\npassword = \"password\"\n\
         partitions = 1\nthrottle_per_second = 0\nfirst_reconnect = \"50ms\"\n[[instrument]]\nsymbol = \"AAPL\"\nid = 1\n\
         [[client]]\nname = \"alpha\"\ncomp_id = \"ALPHA\"\n",
        addresses[0], addresses[1]
    );
    folder.write(name, text.as_bytes())
}

#[test]
fn gateways_share_no_store_and_no_port_and_a_damaged_store_is_cut_or_refused() {
    let mut rounds = Rounds::new(7, 6);
    let folder = Folder::new("hostile-gateway");
    let addresses = [70, 71, 72, 73].map(free_port);
    let (store, other) = (folder.path("store"), folder.path("other"));
    let first = gateway_toml(&folder, "first.toml", &addresses, addresses[2], &store);
    let same_store = gateway_toml(&folder, "same-store.toml", &addresses, addresses[3], &store);
    let same_port = gateway_toml(&folder, "same-port.toml", &addresses, addresses[2], &other);
    let mut exchange = start(&["exchange", "serve", &orders_toml(&folder, &addresses)]);
    let mut gateway = start(&["gateway", &first]);
    said(&mut gateway, "orders pass");
    let listen = addresses[2].to_string();
    let load = ["fix", &listen, "--comp-id", "ALPHA", "--rate", "100", "--seconds", "1s"];
    let traded = run(&load);
    assert_eq!(traded.status.code(), Some(0), "{}{}", stdout(&traded), stderr(&traded));
    for (config, why) in [(&same_store, "another process"), (&same_port, "cannot listen")] {
        let refused = ended(start(&["gateway", config]), config);
        assert_eq!(refused.status.code(), Some(1), "{config}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(why), "{config}: {}", stderr(&refused));
    }
    // The first is not disturbed.
    let traded = run(&load);
    assert_eq!(traded.status.code(), Some(0), "{}{}", stdout(&traded), stderr(&traded));
    // A request that is not sent is no success either.
    let script = folder.write("script.txt", b"cancel NOPE\n");
    let scripted = run(&["fix", &listen, "--comp-id", "ALPHA", "--script", &script]);
    assert_eq!(scripted.status.code(), Some(3), "{}", stderr(&scripted));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    let sound = run(&["gateway", "store", "replay", &first]);
    assert_eq!(sound.status.code(), Some(0), "{}{}", stdout(&sound), stderr(&sound));
    let names: Vec<String> = fs::read_dir(&store)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".journal"))
        .collect();
    // A folder without a store is not a sound one.
    let empty = folder.path("empty");
    fs::create_dir_all(&empty).unwrap();
    let of_empty = gateway_toml(&folder, "empty.toml", &addresses, addresses[3], &empty);
    for (verb, what) in [("verify", &empty), ("inspect", &empty), ("replay", &of_empty)] {
        let refused = run(&["gateway", "store", verb, what]);
        assert_eq!(refused.status.code(), Some(1), "{verb}: {}", stdout(&refused));
        assert!(stderr(&refused).contains("there is no store"), "{verb}: {}", stderr(&refused));
    }
    for is_new in [true, false] {
        let begun = run(&["gateway", &of_empty, "--seconds", "100ms"]);
        assert_eq!(stderr(&begun).contains(" is new"), is_new, "{}", stderr(&begun));
    }
    let damaged = folder.path("damaged");
    let of_damaged = gateway_toml(&folder, "damaged.toml", &addresses, addresses[3], &damaged);
    while rounds.next() {
        let _fresh = fs::remove_dir_all(&damaged);
        fs::create_dir_all(&damaged).unwrap();
        let hit = rounds.one_of(&names).clone();
        for name in &names {
            let mut bytes = fs::read(format!("{store}/{name}")).unwrap();
            let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if *name == hit && rounds.below(3) == 0 {
                // A torn tail, as a machine leaves it that loses power.
                let at = written - rounds.below(written.min(2_000));
                bytes[at..].fill(0);
            } else if *name == hit {
                let reserved = bytes.split_off(written);
                rounds.damage(&mut bytes);
                bytes.extend(reserved);
            }
            fs::write(format!("{damaged}/{name}"), bytes).unwrap();
        }
        let commands: [&[&str]; 4] = [
            &["gateway", "store", "verify", &damaged],
            &["gateway", "store", "inspect", &damaged],
            &["gateway", "store", "replay", &of_damaged],
            &["gateway", &of_damaged, "--seconds", "300ms"],
        ];
        for arguments in commands {
            let (output, errors) = run_quietly(arguments, &folder);
            let what = format!("seed {}: {}", rounds.seed, arguments.join(" "));
            is_sound(&output, &errors, &[0, 1, 3], &what);
            let is_explained = output.status.code() != Some(1) || errors.contains(&damaged);
            assert!(is_explained, "{what}: {errors}");
        }
    }
    exchange.kill().unwrap();
    exchange.wait().unwrap();
}

#[test]
fn the_example_of_a_gateway_names_the_reject_codes_of_the_simulated_exchange() {
    use tapeworks_gateway::config::{Config, VenueConfig};
    use tapeworks_matching::orders::order_reject_code as code;
    let config = Config::load(&support::root().join("examples/gateway/loopback.toml")).unwrap();
    let VenueConfig::Millennium { table, .. } = config.venue else { panic!("native") };
    let named: Vec<i32> = table.reject_codes.iter().map(|reason| reason.code).collect();
    let orders = [
        code::UNKNOWN_INSTRUMENT,
        code::HALTED,
        code::PARTITION_HALTED,
        code::QUANTITY,
        code::PRICE,
        code::DISPLAY_QUANTITY,
        code::MINIMUM_QUANTITY,
        code::TIME_IN_FORCE,
        code::ORDER_TYPE,
        code::SIDE,
        code::DUPLICATE,
        code::UNKNOWN_ORDER,
        code::NO_ROOM,
        code::NOT_SUPPORTED,
        code::BY_FAULT,
    ];
    let throttled = tapeworks_order_session::native::reject_code::THROTTLED;
    assert_eq!(named, [&[throttled], &orders[..]].concat());
}
