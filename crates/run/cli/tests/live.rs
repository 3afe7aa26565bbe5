//! The live plant as a user runs it: venues, plant and every kind of client as programs of their own.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use dbn::MboMsg;
use dbn::decode::{DecodeRecordRef as _, dbn::Decoder};
use serde_json::Value;
use support::{Folder, command, free_port, interrupt_once, run, stderr, stdout};

const MESSAGES: u64 = 20_000;

/// Starts the program and waits until it has logged `wanted`; what it logs later is not kept.
fn start(mut command: Command, wanted: &str) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended: {said}");
        said.push_str(&line);
        if line.contains(wanted) {
            break;
        }
    }
    // A pipe that is not read blocks its writer.
    std::thread::spawn(move || log.lines().for_each(drop));
    child
}

fn spawn(arguments: &[&str]) -> Child {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn assert_done(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
}

/// An order's record without the instrument's number, which each server gives out by itself.
type Order = (u64, u64, u32, u64, u8, u8, i64, u32, u8);

/// The orders of a file, by publisher.
fn orders(path: &Path) -> BTreeMap<u16, Vec<Order>> {
    let mut decoder = Decoder::from_file(path).unwrap();
    let mut orders: BTreeMap<u16, Vec<Order>> = BTreeMap::new();
    while let Some(record) = decoder.decode_record_ref().unwrap() {
        let Some(order) = record.get::<MboMsg>() else { continue };
        orders.entry(order.hd.publisher_id).or_default().push((
            order.ts_recv,
            order.hd.ts_event,
            order.sequence,
            order.order_id,
            order.action as u8,
            order.side as u8,
            order.price,
            order.size,
            order.flags.raw(),
        ));
    }
    orders
}

#[test]
fn every_client_gets_the_records_of_the_journal_and_the_journal_becomes_files() {
    let folder = Folder::new("live");
    let at = |number| free_port(number);
    let (clients, web, retransmission) = (at(0), at(1), at(2));
    let port = at(3).port();
    let group = format!("239.197.{}.9:{}", std::process::id() % 250, at(4).port());
    let (mut venues, mut plants) = (String::new(), String::new());
    for (number, (name, kind, protocol, publisher)) in
        [("Nasdaq", "nasdaq", "itch", "XNAS.ITCH"), ("BX", "bx", "itch", "XBOS.ITCH")].into_iter().enumerate()
    {
        let number = number as u32;
        let lines = format!(
            "[\"239.197.{number}.{}:{port}\", \"239.197.{number}.{}:{port}\"]",
            1 + std::process::id() % 100,
            101 + std::process::id() % 100
        );
        let both = format!(
            "[[venue]]\nname = \"{name}\"\nlines = {lines}\nretransmission = \"{}\"\nsnapshot = \"{}\"\n",
            at(10 + number),
            at(20 + number)
        );
        venues.push_str(&format!(
            "{both}kind = \"{kind}\"\nfaults = {{ a = {{ lost_per_million = 5_000 }}, b = {{ lost_per_million = 5_000 }} }}\n"
        ));
        plants.push_str(&format!("{both}protocol = \"{protocol}\"\npublisher = \"{publisher}\"\n"));
    }
    let venues = folder.write(
        "venues.toml",
        format!("rate = 20_000\nmessages = {MESSAGES}\nsymbols = 20\nwait = \"rest\"\nheartbeat = \"50ms\"\nlinger = \"200ms\"\ninterface = \"127.0.0.1\"\n{venues}")
            .as_bytes(),
    );
    let shared = folder.path("shared");
    let config = folder.write(
        "plant.toml",
        format!(
            "interface = \"127.0.0.1\"\nshared_memory = \"{shared}\"\n\
             [journal]\nfolder = \"journal\"\nsegment_mb = 4\ncheckpoint_every = \"200ms\"\n\
             [roll]\nfolder = \"rolled\"\nschemas = [\"mbo\"]\n\
             [clients]\nlisten = \"{clients}\"\ndataset = [{{ name = \"TAPEWORKS.DEMO\" }}]\n\
             key = [{{ name = \"demo\", key = \"db-TapeworksDemoKey0000000000000\" }}]\n\
             [multicast]\ngroup = \"{group}\"\nhops = 0\nretransmission = \"{retransmission}\"\nschemas = [\"mbo\"]\n\
             [web]\nlisten = \"{web}\"\nstream = true\n{plants}"
        )
        .as_bytes(),
    );
    let sound = run(&["validate", &config]);
    assert_done(&sound);

    let plant = start(command(&["plant", &config]), &format!("clients are served on {clients}"));
    let (live, multicast) = (folder.path("live.dbn"), folder.path("multicast.dbn"));
    let [clients, web, retransmission] = [clients, web, retransmission].map(|address| address.to_string());
    let subscriber =
        spawn(&["subscribe", &clients, "--schema", "mbo", "--start", "0", "--out", &live, "--json"]);
    let group_client = spawn(&[
        "subscribe",
        "--multicast",
        &group,
        "--retransmission",
        &retransmission,
        "--out",
        &multicast,
        "--json",
    ]);
    let tap = spawn(&["tap", &shared, "--events", "--limit", "2000"]);
    let tap_of_some = spawn(&["tap", &shared, "--events", "--symbols", "NONE,VGSA", "--limit", "50"]);
    // The group's client says nothing when it has joined, and what comes before is lost to it.
    std::thread::sleep(Duration::from_millis(500));
    let served = run(&["exchange", "serve", &venues, "--json"]);
    assert_done(&served);
    let injected: Value = serde_json::from_str(&stdout(&served)).unwrap();

    let tapped = tap.wait_with_output().unwrap();
    assert_done(&tapped);
    assert_eq!(stdout(&tapped).lines().count(), 2_000);
    let of_some = tap_of_some.wait_with_output().unwrap();
    assert_done(&of_some);
    let symbols: Vec<_> =
        stdout(&of_some).lines().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!(symbols, vec!["VGSA"; 50]);
    let looked = run(&["top", &web, "--once"]);
    assert_done(&looked);
    let shown = [
        "Nasdaq",
        "BX",
        "  multicast ",
        " unsent 0;",
        "  checkpoints ",
        " s ago, ",
        "  daily roll nothing to do; ",
    ];
    assert!(shown.iter().all(|part| stdout(&looked).contains(part)), "{}", stdout(&looked));
    let ended = interrupt_once(plant, || true);
    assert_done(&ended);
    let subscribed = subscriber.wait_with_output().unwrap();
    let received = group_client.wait_with_output().unwrap();
    assert_done(&subscribed);
    assert_done(&received);

    let journal = folder.path("journal");
    assert_done(&run(&["journal", "verify", &journal]));
    let days = folder.path("days");
    assert_done(&run(&["journal", "export", &config, "--out", &days, "--schema", "mbo", "--format", "dbn"]));
    let [live, multicast] = [live, multicast].map(|path| orders(Path::new(&path)));
    let mut exported = BTreeMap::new();
    for day in std::fs::read_dir(&days).unwrap().map(|entry| entry.unwrap().path()) {
        for venue in std::fs::read_dir(day).unwrap().map(|entry| entry.unwrap().path()) {
            exported.append(&mut orders(&venue.join("mbo.dbn")));
        }
    }
    let all: usize = live.values().map(Vec::len).sum();
    assert!(all > MESSAGES as usize / 2 && live.len() == 2, "{all} orders");
    for (name, others) in [("files of the journal", &exported), ("multicast", &multicast)] {
        for (publisher, orders) in &live {
            let others = &others[publisher];
            let differs = orders.iter().zip(others).position(|(one, other)| one != other);
            let place = differs.unwrap_or(orders.len().min(others.len()));
            let around =
                |all: &[Order]| all.iter().skip(place.saturating_sub(1)).take(3).copied().collect::<Vec<_>>();
            assert_eq!(around(orders), around(others), "{name}, publisher {publisher}, order {place}");
            assert_eq!(orders.len(), others.len(), "{name}, publisher {publisher}");
        }
    }
    // Every message that the venues sent was had, whatever their lines lost.
    let lost: u64 = injected["venues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|venue| {
            venue["lines"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line["dropped_packets"].as_u64().unwrap())
                .sum::<u64>()
        })
        .sum();
    assert!(lost > 0, "{injected}");
    assert!(
        live.values().flatten().all(|order| order.8 & dbn::flags::MAYBE_BAD_BOOK == 0),
        "all could be recovered"
    );
}
