//! `tapeworks flow` as a user runs it: configurations, captures in, captures out, counts.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::net::UdpSocket;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
#[cfg(unix)]
use support::interrupt_once;
use support::{Folder, assert_one_error, command, packets, root, run, stderr, stdout};
use tapeworks_capture::net;

const MARKET: &str = "testdata/captures/nasdaq-itch50/Multiple.Packets.pcap";

/// A reader of `file`, a rewriter, and a writer to `out`, joined by edges of this kind.
fn line(file: &str, more: &str, out: &str, edge: &str) -> String {
    format!(
        "[[stage]]\nname = \"in\"\ntype = \"capture_reader\"\nfile = \"{file}\"\n{more}\n\
         [[stage]]\nname = \"to\"\ntype = \"rewriter\"\ndestination = \"10.9.8.7\"\n\
         [[stage]]\nname = \"out\"\ntype = \"capture_writer\"\nfile = \"{out}\"\n\
         [[edge]]\nfrom = \"in\"\nto = \"to\"\n{edge}\n[[edge]]\nfrom = \"to\"\nto = \"out\"\n{edge}\n"
    )
}

/// The counts of a stage in a JSON report.
fn stage<'r>(report: &'r Value, name: &str) -> &'r Value {
    report["stages"].as_array().unwrap().iter().find(|stage| stage["name"] == name).unwrap()
}

fn report(output: &std::process::Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("{}{}", stdout(output), stderr(output)))
}

fn examples() -> Vec<String> {
    let folder = root().join("examples/flow");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| format!("examples/flow/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn every_example_is_sound_and_is_drawn_the_same_each_time() {
    let files = examples();
    assert_eq!(files.len(), 5, "{files:?}");
    for file in files {
        let checked = run(&["flow", "check", &file]);
        assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
        assert!(stdout(&checked).contains("sound"), "{}", stdout(&checked));
        for (format, begins) in [("svg", "<svg "), ("mermaid", "flowchart LR\n")] {
            let drawn = stdout(&run(&["flow", "graph", &file, "--format", format]));
            assert!(drawn.starts_with(begins), "{drawn}");
            assert_eq!(drawn, stdout(&run(&["flow", "graph", &file, "--format", format])));
        }
    }
}

#[test]
fn the_thesis_sends_tcp_to_one_address_and_udp_to_another_into_one_file() {
    let folder = Folder::new("flow-thesis");
    let out = folder.path("thesis.pcap");
    let text = std::fs::read_to_string(root().join("examples/flow/thesis.toml")).unwrap();
    let config = folder.write("thesis.toml", text.replace("thesis.pcap", &out).as_bytes());
    let output = run(&["flow", "run", &config]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let link = tapeworks_capture::LinkType::ETHERNET;
    let mut seen: Vec<String> = packets(&out)
        .iter()
        .map(|(_, bytes)| {
            let datagram = net::parse(link, bytes).unwrap();
            let kind = if matches!(datagram.transport, net::Transport::Udp) { "udp" } else { "tcp" };
            format!("{kind} {}", datagram.destination)
        })
        .collect();
    seen.sort();
    assert_eq!(seen, ["tcp 10.1.0.1:9001", "udp 239.1.1.1:26477", "udp 239.1.1.1:26477"]);
    assert_eq!(folder.files(), ["thesis.pcap", "thesis.toml"], "nothing partial is left");
}

#[test]
fn the_three_shapes_run_and_lose_nothing() {
    let folder = Folder::new("flow-shapes");
    for (name, read, written) in
        [("pipeline", 200, 200), ("one-to-many", 200, 600), ("many-to-one", 400, 200)]
    {
        let text = std::fs::read_to_string(root().join(format!("examples/flow/{name}.toml"))).unwrap();
        let config = folder.write("shape.toml", text.replace("10_000", "100").as_bytes());
        let output = run(&["flow", "run", "--json", &config]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report = report(&output);
        let taken: u64 = report["stages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|stage| stage["type"] == "capture reader")
            .map(|stage| stage["in"].as_u64().unwrap())
            .sum();
        assert_eq!((taken, stage(&report, "end")["consumed"].as_u64()), (read, Some(written)), "{name}");
    }
}

#[test]
fn every_kind_of_edge_and_way_to_wait_gives_the_same_file() {
    let folder = Folder::new("flow-kinds");
    let mut files = Vec::new();
    for edge in [
        "kind = \"inline\"",
        "kind = \"spsc\"\ncapacity = 3\nwait = \"yielding\"",
        "kind = \"spsc\"\nwait = \"park\"",
        "kind = \"disruptor\"\ncapacity = 8\nwait = \"busy_spin\"",
        "kind = \"queue\"\ncapacity = 2",
    ] {
        let out = folder.path(&format!("{}.pcap", files.len()));
        let config = folder.write("flow.toml", line(MARKET, "repeat = 50", &out, edge).as_bytes());
        let output = run(&["flow", "run", &config]);
        assert_eq!(output.status.code(), Some(0), "{edge}: {}", stderr(&output));
        assert_eq!(packets(&out).len(), 100);
        files.push(std::fs::read(out).unwrap());
    }
    assert!(files.iter().all(|file| *file == files[0]));
}

#[test]
fn a_pcapng_ending_gives_pcapng_with_the_same_packets() {
    let folder = Folder::new("flow-pcapng");
    let mut all = Vec::new();
    for name in ["out.pcap", "out.pcapng"] {
        let out = folder.path(name);
        let config = folder.write("flow.toml", line(MARKET, "", &out, "").as_bytes());
        assert_eq!(run(&["flow", "run", &config]).status.code(), Some(0));
        all.push(packets(&out));
    }
    assert_eq!(std::fs::read(folder.path("out.pcapng")).unwrap()[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert_eq!(all[0].len(), 2);
    assert_eq!(all[0], all[1]);
}

#[test]
fn check_and_run_report_every_configuration_error_and_write_nothing() {
    let folder = Folder::new("flow-bad");
    let out = folder.path("out.pcap");
    let text = line("nowhere.pcap", "speed = \"fast\"", &out, "capacity = 0\nkind = \"ring\"");
    let config = folder.write("flow.toml", text.as_bytes());
    for command in ["check", "run", "graph"] {
        let output = run(&["flow", command, &config]);
        assert_eq!(output.status.code(), Some(78));
        let found: Vec<String> =
            stderr(&output).lines().map(|line| line.replace(&config, "flow.toml")).collect();
        let expected = [
            "tapeworks: flow.toml:4:8: nowhere.pcap: no such file; paths count from the current directory",
            "tapeworks: flow.toml:5:9: 'speed' must be a number from 0.000001 to 1000000000, not a string",
            "tapeworks: flow.toml:17:12: 'capacity' must be a whole number from 1 to 1048576",
            "tapeworks: flow.toml:18:8: 'ring' for 'kind' is not known; there are inline, spsc, disruptor, queue",
            "tapeworks: flow.toml:22:12: 'capacity' must be a whole number from 1 to 1048576",
            "tapeworks: flow.toml:23:8: 'ring' for 'kind' is not known; there are inline, spsc, disruptor, queue",
        ];
        assert_eq!(found, expected);
    }
    assert!(!Path::new(&out).exists());
    assert_one_error(&run(&["flow", "check", "nowhere.toml"]), 78, "nowhere.toml: no such file");
}

#[test]
fn a_cut_capture_goes_through_up_to_there() {
    let folder = Folder::new("flow-cut");
    let bytes = std::fs::read(root().join(MARKET)).unwrap();
    let cut = folder.write("cut.pcap", &bytes[..bytes.len() - 100]);
    let out = folder.path("out.pcap");
    let config = folder.write("flow.toml", line(&cut, "", &out, "kind = \"spsc\"").as_bytes());
    let output = run(&["flow", "run", "--json", &config]);
    assert_one_error(&output, 3, "cut.pcap: packet 2 at offset");
    assert_eq!(packets(&out).len(), 1);
    let report = report(&output);
    assert_eq!((&stage(&report, "in")["in"], &stage(&report, "out")["consumed"]), (&1.into(), &1.into()));
    let noise = folder.write("noise.pcap", b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
    let config = folder.write("flow.toml", line(&noise, "", &folder.path("none.pcap"), "").as_bytes());
    assert_one_error(&run(&["flow", "run", &config]), 1, "47 45 54 20");
    for (name, content, expected) in
        [("empty.pcap", &[][..], "is empty"), ("short.pcap", &bytes[..10], "the file header needs 24 bytes")]
    {
        let file = folder.write(name, content);
        let config = folder.write("flow.toml", line(&file, "", &folder.path("none.pcap"), "").as_bytes());
        assert_one_error(&run(&["flow", "run", &config]), 1, expected);
    }
    assert!(!folder.files().iter().any(|file| file.starts_with("none")), "{:?}", folder.files());
}

#[test]
fn a_file_that_exists_is_replaced_only_if_the_configuration_says_so() {
    let folder = Folder::new("flow-exists");
    let out = folder.write("out.pcap", b"mine");
    let config = folder.write("flow.toml", line(MARKET, "", &out, "").as_bytes());
    let expected = "flow.toml:13:8: ";
    for command in ["check", "run"] {
        let output = run(&["flow", command, &config]);
        assert_one_error(&output, 78, expected);
        assert_one_error(&output, 78, "out.pcap: the file exists; overwrite = true replaces it");
    }
    assert_eq!(run(&["flow", "graph", &config]).status.code(), Some(0), "it is only drawn");
    assert_eq!(std::fs::read(&out).unwrap(), b"mine");
    let nowhere = line(MARKET, "", &folder.path("nowhere/out.pcap"), "");
    let config = folder.write("flow.toml", nowhere.as_bytes());
    assert_one_error(&run(&["flow", "check", &config]), 78, "nowhere/out.pcap: there is no folder ");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_run_and_the_counts_are_right() {
    let folder = Folder::new("flow-full");
    for edge in ["", "kind = \"spsc\"\ncapacity = 16", "kind = \"queue\"\ncapacity = 16"] {
        let config = folder.write("flow.toml", line(MARKET, "repeat = 1000", "/dev/full", edge).as_bytes());
        let output = run(&["flow", "run", "--json", &config]);
        assert_one_error(&output, 1, "out: /dev/full: cannot write: No space left on device");
        let report = report(&output);
        let (first, last) = (stage(&report, "in"), stage(&report, "out"));
        assert_eq!(last["consumed"], 0);
        assert_eq!(first["ports"]["out"], last["in"]);
        assert_eq!(last["dropped"]["failed"], last["in"]);
        assert!(report["failures"][0]["problem"].as_str().unwrap().contains("No space left"));
    }
}

/// A limit on the length of files stands for the disk: the kernel takes a part of a batch, then nothing more.
#[cfg(target_os = "linux")]
#[test]
fn packets_captured_before_the_disk_was_full_are_kept_and_counted() {
    let folder = Folder::new("flow-limit");
    for (ending, edge) in [("pcap", ""), ("pcapng", "kind = \"spsc\"\ncapacity = 16")] {
        let out = folder.path(&format!("out.{ending}"));
        let config = folder.write("flow.toml", line(MARKET, "repeat = 5000", &out, edge).as_bytes());
        let output = std::process::Command::new("bash")
            .args(["-c", "trap '' XFSZ; ulimit -f 50; exec \"$@\"", "bash"])
            .args([env!("CARGO_BIN_EXE_tapeworks"), "flow", "run", "--json", &config])
            .current_dir(root())
            .output()
            .unwrap();
        assert_one_error(&output, 1, &format!("the packets written before are in {out}.partial"));
        assert!(!Path::new(&out).exists());
        let report = report(&output);
        let last = stage(&report, "out");
        let kept = folder.path(&format!("kept.{ending}"));
        std::fs::rename(format!("{out}.partial"), &kept).unwrap();
        let written = packets(&kept).len() as u64;
        assert!(written > 0);
        assert_eq!(last["consumed"], written);
        let (taken, failed) = (last["in"].as_u64().unwrap(), last["dropped"]["failed"].as_u64().unwrap());
        assert_eq!(taken, written + failed);
    }
}

#[test]
fn udp_payloads_are_sent_as_they_are() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let folder = Folder::new("flow-udp");
    let text = format!(
        "[[stage]]\nname = \"in\"\ntype = \"capture_reader\"\nfile = \"{MARKET}\"\n\
         [[stage]]\nname = \"out\"\ntype = \"udp_writer\"\nto = \"{}\"\n[[edge]]\nfrom = \"in\"\nto = \"out\"\n",
        socket.local_addr().unwrap()
    );
    let config = folder.write("flow.toml", text.as_bytes());
    let output = run(&["flow", "run", "--json", &config]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stage(&report(&output), "out")["consumed"], 2);
    for (_, packet) in packets(MARKET) {
        let sent = net::parse(tapeworks_capture::LinkType::ETHERNET, &packet).unwrap();
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], sent.payload);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn datagrams_become_packets_of_a_capture() {
    let folder = Folder::new("flow-udp-in");
    let out = folder.path("out.pcap");
    // A port that was free a moment ago.
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        "[[stage]]\nname = \"in\"\ntype = \"udp_reader\"\nlisten = \"{address}\"\ncount = 10\n\
         [[stage]]\nname = \"it\"\ntype = \"filter\"\nmatch = {{ destination_port = {} }}\n\
         [[stage]]\nname = \"out\"\ntype = \"capture_writer\"\nfile = \"{out}\"\n\
         [[edge]]\nfrom = \"in\"\nto = \"it\"\nkind = \"spsc\"\n[[edge]]\nfrom = \"it\"\nto = \"out\"\n",
        address.port()
    );
    let config = folder.write("flow.toml", text.as_bytes());
    let child = command(&["flow", "run", "--json", &config])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let partial = format!("{out}.partial");
    for _ in 0..600 {
        if Path::new(&partial).exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    (0..10u8).for_each(|number| assert_eq!(sender.send_to(&[number; 30], address).unwrap(), 30));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let payloads: Vec<u8> = packets(&out)
        .iter()
        .map(|(_, bytes)| net::parse(tapeworks_capture::LinkType::ETHERNET, bytes).unwrap().payload[0])
        .collect();
    assert_eq!(payloads, (0..10).collect::<Vec<u8>>());
    assert_eq!(stage(&report(&output), "it")["ports"]["pass"], 10);
}

#[test]
fn payloads_without_headers_do_not_fit_into_a_filter() {
    let folder = Folder::new("flow-bare");
    let text = "[[stage]]\nname = \"in\"\ntype = \"udp_reader\"\nlisten = \"127.0.0.1:5000\"\nheaders = false\n\
                [[stage]]\nname = \"it\"\ntype = \"filter\"\nexpression = \"udp\"\n\
                [[stage]]\nname = \"end\"\ntype = \"dropper\"\n\
                [[edge]]\nfrom = \"in\"\nto = \"it\"\n[[edge]]\nfrom = \"it\"\nto = \"end\"\n";
    let config = folder.write("flow.toml", text.as_bytes());
    let expected = "flow.toml:14:8: 'in' gives payloads without headers, but 'it' takes packets with headers";
    assert_one_error(&run(&["flow", "check", &config]), 78, expected);
}

/// A reader, so many rewriters one behind the other, and a dropper.
fn rewriters(count: usize, edge: &str) -> String {
    use std::fmt::Write as _;

    let mut text =
        format!("[[stage]]\nname = \"0\"\ntype = \"capture_reader\"\nfile = \"{MARKET}\"\nrepeat = 200\n");
    for number in 1..=count {
        let _infallible = write!(
            text,
            "[[stage]]\nname = \"{number}\"\ntype = \"rewriter\"\ndestination = \"10.9.8.7\"\n\
             [[edge]]\nfrom = \"{}\"\nto = \"{number}\"\n{edge}\n",
            number - 1
        );
    }
    text + &format!(
        "[[stage]]\nname = \"end\"\ntype = \"dropper\"\n[[edge]]\nfrom = \"{count}\"\nto = \"end\"\n"
    )
}

#[test]
fn check_names_the_memory_which_does_not_grow_with_the_square_of_the_stages() {
    let folder = Folder::new("flow-memory");
    for (count, edge, expected) in [
        (
            150,
            "",
            "152 stages, 151 edges, 1 thread; 914.9 kB of memory, with 278 packet buffers of up to 2048 bytes",
        ),
        (
            500,
            "",
            "502 stages, 501 edges, 1 thread; 2.3 MB of memory, with 628 packet buffers of up to 2048 bytes",
        ),
        (
            20_000,
            "",
            "20,002 stages, 20,001 edges, 1 thread; 77.1 MB of memory, with 20,128 packet buffers of up to 2048 bytes",
        ),
        (
            50,
            "kind = \"spsc\"",
            "52 stages, 51 edges, 51 threads; 126.3 MB of memory, with 54,578 packet buffers of up to 2048 bytes",
        ),
    ] {
        let config = folder.write("flow.toml", rewriters(count, edge).as_bytes());
        let checked = run(&["flow", "check", &config]);
        assert_eq!(stdout(&checked), format!("{config}: sound: {expected}\n"), "{}", stderr(&checked));
        if count <= 500 {
            let ran = report(&run(&["flow", "run", "--json", &config]));
            assert_eq!(stage(&ran, "end")["consumed"], 400, "{count} {edge}");
        }
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_drains_and_leaves_a_whole_file() {
    let folder = Folder::new("flow-interrupt");
    let out = folder.path("out.pcap");
    // At a hundred millionth of its speed the second packet never comes.
    let config = folder.write(
        "flow.toml",
        line(MARKET, "speed = 1e-6\nrepeat = 1000000", &out, "kind = \"spsc\"").as_bytes(),
    );
    let child = command(&["flow", "run", "--json", &config])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let partial = format!("{out}.partial");
    // It is under way once the first packet is written, behind the header of 24 bytes.
    let output = interrupt_once(child, || std::fs::metadata(&partial).is_ok_and(|file| file.len() > 24));
    assert_one_error(&output, 130, "stopped");
    let report = report(&output);
    let written = stage(&report, "out")["consumed"].as_u64().unwrap();
    assert_eq!(packets(&out).len() as u64, written);
    assert!(written >= 1);
    assert!(!Path::new(&partial).exists());
}
