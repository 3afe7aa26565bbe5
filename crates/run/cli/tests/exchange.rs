//! `tapeworks exchange serve` and `check` as a user runs them.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use support::{Folder, assert_one_error, command, root, run, stderr, stdout};
use tapeworks_wire::nasdaq::moldudp64::DownstreamPacket;

/// A venue whose line A goes to `socket`.
fn venue(socket: &UdpSocket, more: &str) -> String {
    let line = socket.local_addr().unwrap();
    format!("[[venue]]\nname = \"BX\"\nkind = \"bx\"\nlines = \"{line}\"\n{more}\n")
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Takes packets, as they come, until `ends` sessions have ended: the messages in them.
fn receive(socket: UdpSocket, ends: u64) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let (mut messages, mut ended, mut buffer) = (0, 0, [0; 2_048]);
        while ended < ends {
            let length = socket.recv(&mut buffer).unwrap();
            let packet = DownstreamPacket::decode(&buffer[..length]).unwrap();
            messages += u64::from(packet.count());
            ended += u64::from(packet.is_end_of_session());
        }
        messages
    })
}

#[test]
fn every_example_is_sound() {
    let folder = root().join("examples/exchange");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let output = run(&["exchange", "check", entry.unwrap().path().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains("sound"), "{}", stdout(&output));
        count += 1;
    }
    assert_eq!(count, 5);
}

#[test]
fn a_wrong_configuration_is_reported_with_its_places_and_nothing_is_served() {
    let folder = Folder::new("exchange-wrong");
    let config = folder.write("v.toml", b"rate = 0\n[[venue]]\nname = \"a\"\nkind = \"bx\"\nlinse = 1\n");
    for word in ["check", "serve"] {
        let output = run(&["exchange", word, &config]);
        assert_eq!(output.status.code(), Some(78));
        let errors = stderr(&output);
        assert!(errors.contains("v.toml:1:8: 'rate' must be") && errors.contains("v.toml:5:1:"), "{errors}");
        assert!(errors.contains("did you mean 'lines'?"), "{errors}");
    }
    assert_one_error(&run(&["exchange", "check", &folder.path("none.toml")]), 78, "no such file");
}

#[cfg(unix)]
#[test]
fn an_exchange_that_takes_orders_serves_until_ctrl_c() {
    let folder = Folder::new("exchange-orders");
    let example = std::fs::read_to_string(root().join("examples/exchange/orders.toml")).unwrap();
    let ports = [60, 61, 62].map(support::free_port);
    let [real_time, recovery, ouch] = ports.map(|port| port.to_string());
    let line = socket().local_addr().unwrap().to_string();
    let text = example
        .replace("127.0.0.1:7001", &real_time)
        .replace("127.0.0.1:7002", &recovery)
        .replace("127.0.0.1:7003", &ouch)
        .replace(r#"["239.192.9.1:30091", "239.192.9.2:30091"]"#, &format!("[\"{line}\"]"))
        .replace("127.0.0.1:31091", "127.0.0.1:0")
        .replace("127.0.0.1:32091", "127.0.0.1:0");
    let config = folder.write("orders.toml", text.as_bytes());
    let mut child = command(&["exchange", "serve", &config, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("no store") {
        assert!(log.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert!(
        said.contains(&format!("real-time {real_time}, recovery {recovery}; OUCH of TW01 {ouch}")),
        "{said}"
    );
    let _clients = ports.map(|port| TcpStream::connect(port).unwrap());
    let output = support::interrupt_once(child, || true);
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let exchange = &report["exchanges"][0];
    assert_eq!((&exchange["name"], &exchange["orders"]["trades"]), (&"Exchange".into(), &0.into()));
    assert!(exchange["line"]["messages"].as_u64().unwrap() > 10);
}

#[test]
fn generated_days_and_restarts_are_read_whole() {
    let folder = Folder::new("exchange-days");
    for announced in [&[][..], &["--unannounced"]] {
        let path = folder.path("days.pcap");
        let days =
            ["exchange", "generate", "--days", "2", "--restarts", "1", "--line-b", "--late-copies", "5000"];
        let of = [
            "--venues",
            "nasdaq,bzx",
            "--messages",
            "8000",
            "--symbols",
            "5",
            "--json",
            "-f",
            "--out",
            &path,
        ];
        let made = run(&[&days[..], &of, announced].concat());
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        let made: Value = serde_json::from_str(&stdout(&made)).unwrap();
        let copies = |line: &Value| line["late_copies"].as_u64().unwrap();
        let lines =
            made["venues"].as_array().unwrap().iter().flat_map(|venue| venue["lines"].as_array().unwrap());
        assert!(lines.map(copies).sum::<u64>() > 10, "{made}");
        let read = run(&["stats", "--json", &path]);
        assert_eq!(read.status.code(), Some(0), "{}", stderr(&read));
        let read: Value = serde_json::from_str(&stdout(&read)).unwrap();
        let channels = read["channels"].as_array().unwrap();
        let messages: u64 = channels.iter().map(|channel| channel["messages"].as_u64().unwrap()).sum();
        assert_eq!((channels.len(), Some(messages)), (8, made["messages"].as_u64()));
    }
    let raw = folder.path("days.itch");
    let refused = run(&["exchange", "generate", "--days", "2", "--venues", "nasdaq", "--out", &raw]);
    assert_one_error(&refused, 2, "a raw ITCH file holds one day without restarts; the scenario has 2 runs");
}

#[test]
fn a_run_reports_its_injected_faults_in_the_file_too() {
    let folder = Folder::new("exchange-serve");
    let (sink, injected) = (socket(), folder.path("injected.json"));
    let faults = "faults = { a = { lost_per_million = 100_000 } }\nrestart_after = 700";
    let text = format!(
        "symbols = 3\nmessages = 1_500\nrate = 30_000\nwait = \"rest\"\nlinger = \"0s\"\ninjected = \"{injected}\"\n{}",
        venue(&sink, faults)
    );
    let config = folder.write("v.toml", text.as_bytes());
    let receiver = receive(sink, 2);
    let output = run(&["exchange", "serve", &config, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&injected).unwrap()).unwrap();
    assert_eq!(report, written);
    let venue = &report["venues"][0];
    let line = &venue["lines"][0];
    let dropped = line["dropped_messages"].as_u64().unwrap();
    assert!(dropped > 0);
    assert_eq!(venue["messages"].as_u64().unwrap(), line["sent_messages"].as_u64().unwrap() + dropped);
    assert_eq!(venue["lost_messages"].as_u64(), Some(dropped), "there is no line B");
    assert_eq!(venue["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(receiver.join().unwrap(), line["sent_messages"], "what was sent until both sessions ended");
    // The same for people.
    let output = run(&["exchange", "serve", &config]);
    let text = stdout(&output);
    assert!(text.contains("messages on no line") && text.contains("BX"), "{text}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_is_the_end_of_a_market_without_end() {
    let folder = Folder::new("exchange-interrupt");
    let (sink, injected) = (socket(), folder.path("injected.json"));
    let text = format!(
        "symbols = 3\nrate = 1_000\nwait = \"rest\"\ninjected = \"{injected}\"\n{}",
        venue(&sink, "")
    );
    let config = folder.write("v.toml", text.as_bytes());
    let child = command(&["exchange", "serve", &config, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    sink.recv(&mut [0; 2_048]).unwrap();
    let receiver = receive(sink, 1);
    let output = support::interrupt_once(child, || true);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    // Less those of the first packet.
    assert!(report["messages"].as_u64().unwrap() > receiver.join().unwrap());
    assert_eq!(folder.files(), ["injected.json", "v.toml"]);
}

#[test]
fn a_snapshot_that_was_kept_is_dumped_with_its_end() {
    let folder = Folder::new("exchange-snapshot");
    let sink = socket();
    let text =
        format!("symbols = 2\nrate = 2_000\nwait = \"rest\"\n{}", venue(&sink, "snapshot = \"127.0.0.1:0\""));
    let config = folder.write("v.toml", text.as_bytes());
    let mut child = command(&["exchange", "serve", &config])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut errors).unwrap();
    let port = errors.trim_end().rsplit(' ').next().unwrap().to_owned();
    // By then the directory is published.
    (0..50).for_each(|_| assert!(sink.recv(&mut [0; 2_048]).is_ok()));
    let mut client = TcpStream::connect(port).unwrap();
    client.write_all(b"\x00\x2fLuser  password                      1          ").unwrap();
    let mut snapshot = Vec::new();
    client.read_to_end(&mut snapshot).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let file = folder.write("snapshot.soup", &snapshot);
    let output = run(&["dump", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = stdout(&output);
    for part in ["Login Accepted", "Stock Directory", "Add Order", "End Of Snapshot", "End Of Session"] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
}

#[test]
fn a_port_in_use_is_reported_in_one_line() {
    let folder = Folder::new("exchange-port");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let snapshot = format!("snapshot = \"{}\"", taken.local_addr().unwrap());
    let config = folder.write("v.toml", venue(&socket(), &snapshot).as_bytes());
    let output = run(&["exchange", "serve", &config]);
    assert_one_error(&output, 1, &format!("venue 'BX': cannot listen at {}", taken.local_addr().unwrap()));
}
