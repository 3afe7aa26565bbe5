//! `tapeworks flow` on network interfaces: a veth pair in a network namespace of the test's own, and `lo`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::namespace::{Namespace, is_ci};
use support::{
    Folder, assert_one_error, command, interrupt_once, packets, root, run, signal, stderr, stdout, wait_for,
};

const MARKET: &str = "testdata/captures/nasdaq-itch50/Multiple.Packets.pcap";

/// What flows do in it.
trait Flows {
    fn flow(&self, config: &str) -> Command;
    fn send(&self, folder: &Folder, repeat: u64, to: &str) -> Value;
}

impl Flows for Namespace {
    fn flow(&self, config: &str) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_tapeworks"));
        command.args(["flow", "run", "--json", config]);
        command
    }

    /// Sends the two packets of the market's capture `repeat` times.
    fn send(&self, folder: &Folder, repeat: u64, to: &str) -> Value {
        let text = format!(
            "[[stage]]\nname = \"from\"\ntype = \"capture_reader\"\nfile = \"{MARKET}\"\nrepeat = {repeat}\n\
             [[stage]]\nname = \"to\"\n{to}\n[[edge]]\nfrom = \"from\"\nto = \"to\"\n"
        );
        let output = self.flow(&folder.write("send.toml", text.as_bytes())).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        report(&output)
    }
}

const TO_INTERFACE: &str = "type = \"packet_writer\"\ninterface = \"in\"";

fn report(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("{}{}", stdout(output), stderr(output)))
}

fn stage<'r>(report: &'r Value, name: &str) -> &'r Value {
    report["stages"].as_array().unwrap().iter().find(|stage| stage["name"] == name).unwrap()
}

fn bytes(path: &str) -> Vec<Vec<u8>> {
    packets(path).into_iter().map(|(_, bytes)| bytes).collect()
}

/// What the market's capture sends, so many times.
fn market(repeat: usize) -> Vec<Vec<u8>> {
    vec![bytes(MARKET); repeat].concat()
}

/// A flow from a reader of this description into a capture, under way.
fn listening(mut command: Command, out: &str) -> Child {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Readers are opened before the file is begun.
    wait_for(|| Path::new(&format!("{out}.partial")).exists());
    child
}

fn into_capture(folder: &Folder, reader: &str, out: &str) -> String {
    let text = format!(
        "[flow]\npacket_bytes = 9000\n[[stage]]\nname = \"line\"\n{reader}\n\
         [[stage]]\nname = \"file\"\ntype = \"capture_writer\"\nfile = \"{out}\"\n\
         [[edge]]\nfrom = \"line\"\nto = \"file\"\n"
    );
    folder.write("listen.toml", text.as_bytes())
}

#[test]
fn frames_go_out_of_one_interface_and_come_by_the_other() {
    let Some(namespace) = Namespace::new("pair") else { return };
    let folder = Folder::new("flow-pair");
    let out = folder.path("out.pcapng");
    let reader = "type = \"packet_reader\"\ninterface = \"out\"\ncount = 200";
    let child = listening(namespace.flow(&into_capture(&folder, reader, &out)), &out);
    let sent = namespace.send(&folder, 100, TO_INTERFACE);
    assert_eq!(stage(&sent, "to")["consumed"], 200);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(bytes(&out), market(100));
    let times: Vec<u64> = packets(&out).iter().map(|(timestamp_ns, _)| *timestamp_ns).collect();
    assert!(times.is_sorted());
    let report = report(&output);
    let line = stage(&report, "line");
    assert_eq!((&line["in"], &line["ports"]["out"]), (&200.into(), &200.into()));
    assert_eq!((&line["dropped"], &line["notes"]), (&serde_json::json!({}), &serde_json::json!({})));
}

#[test]
fn tshark_captures_the_frames_that_are_sent() {
    let Some(namespace) = Namespace::new("tshark") else { return };
    if !Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success()) {
        assert!(!is_ci(), "tshark is not installed");
        eprintln!("SKIPPED: tshark is not installed: no other program checks the frames");
        return;
    }
    // The long packet fills 1,500 bytes and one tag already.
    namespace.ip("link set in mtu 1600");
    namespace.ip("link set out mtu 1600");
    let folder = Folder::new("flow-tshark");
    let seen = folder.path("seen.pcapng");
    let tagged = format!(
        "[[stage]]\nname = \"from\"\ntype = \"capture_reader\"\nfile = \"{MARKET}\"\nrepeat = 10\n\
         [[stage]]\nname = \"tag\"\ntype = \"rewriter\"\npush_vlan = 7\n\
         [[stage]]\nname = \"to\"\n{TO_INTERFACE}\n\
         [[edge]]\nfrom = \"from\"\nto = \"tag\"\n[[edge]]\nfrom = \"tag\"\nto = \"to\"\n"
    );
    let config = folder.write("tagged.toml", tagged.as_bytes());
    let mut tshark = namespace.command("tshark");
    let tshark = tshark.args(["-q", "-n", "-i", "out", "-c", "30", "-a", "duration:20", "-w", &seen]);
    let child = tshark.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // It writes the file's header when it has begun.
    wait_for(|| std::fs::metadata(&seen).is_ok_and(|file| file.len() > 0));
    std::thread::sleep(Duration::from_millis(200));
    namespace.send(&folder, 5, TO_INTERFACE);
    let output = namespace.flow(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(child.wait_with_output().unwrap().status.success());
    let frames = bytes(&seen);
    assert_eq!(frames.len(), 30);
    assert_eq!(frames[..10], market(5));
    for (frame, sent) in frames[10..].iter().zip(market(10)) {
        assert_eq!(
            (&frame[..12], &frame[12..16], &frame[16..]),
            (&sent[..12], &[0x81, 0, 0, 7][..], &sent[12..])
        );
    }
}

#[test]
fn kernel_drops_are_in_the_report_and_all_counts_add_up() {
    let Some(namespace) = Namespace::new("drops") else { return };
    namespace.ip("address add 10.77.0.1/24 dev in");
    let folder = Folder::new("flow-drops");
    for (name, reader, to) in [
        (
            "ring.pcap",
            "type = \"packet_reader\"\ninterface = \"out\"\nblock_bytes = 4096\nblocks = 2",
            TO_INTERFACE,
        ),
        (
            "socket.pcap",
            "type = \"udp_reader\"\nlisten = \"127.0.0.1:7777\"\nreceive_buffer = 4096",
            "type = \"udp_writer\"\nto = \"127.0.0.1:7777\"",
        ),
    ] {
        let out = folder.path(name);
        let child = listening(namespace.flow(&into_capture(&folder, reader, &out)), &out);
        signal(&child, "-STOP");
        namespace.send(&folder, 500, to);
        signal(&child, "-CONT");
        // What was kept is written, behind the file's header of 24 bytes.
        let is_written = || std::fs::metadata(format!("{out}.partial")).is_ok_and(|file| file.len() > 24);
        wait_for(is_written);
        std::thread::sleep(Duration::from_millis(300));
        let output = interrupt_once(child, || true);
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        let report = report(&output);
        let line = stage(&report, "line");
        let dropped = line["dropped"]["kernel_dropped"].as_u64().unwrap();
        let written = packets(&out).len() as u64;
        assert!(dropped > 900 && written > 0, "{name}: {line}");
        assert_eq!((line["in"].as_u64(), dropped + written), (Some(1000), 1000), "{name}: {line}");
    }
}

#[test]
fn an_interface_that_goes_ends_the_flow_and_the_file_is_whole() {
    let Some(namespace) = Namespace::new("gone") else { return };
    let folder = Folder::new("flow-gone");
    let out = folder.path("out.pcap");
    let reader = "type = \"packet_reader\"\ninterface = \"out\"";
    let child = listening(namespace.flow(&into_capture(&folder, reader, &out)), &out);
    namespace.send(&folder, 5, TO_INTERFACE);
    namespace.ip("link del out");
    let output = child.wait_with_output().unwrap();
    assert_one_error(&output, 1, "line: interface out is gone");
    assert_eq!(bytes(&out), market(5));
}

#[test]
fn frames_that_do_not_fit_are_counted_and_the_others_go() {
    let Some(namespace) = Namespace::new("mtu") else { return };
    let folder = Folder::new("flow-mtu");
    let sizes: Vec<usize> = market(1).iter().map(Vec::len).collect();
    let most = *sizes.iter().min().unwrap();
    assert!(sizes.iter().any(|size| *size > most + 18), "{sizes:?}");
    namespace.ip(&format!("link set in mtu {most}"));
    let sent = namespace.send(&folder, 3, TO_INTERFACE);
    let to = stage(&sent, "to");
    assert_eq!((&to["consumed"], &to["dropped"]["too_long"]), (&3.into(), &3.into()), "{to}");
}

#[test]
fn a_missing_interface_is_reported_with_its_place_in_the_file() {
    let folder = Folder::new("flow-nowhere");
    for kind in ["packet_reader", "packet_writer"] {
        let text = format!("[[stage]]\nname = \"it\"\ntype = \"{kind}\"\ninterface = \"nowhere0\"\n");
        let config = folder.write("flow.toml", text.as_bytes());
        let output = run(&["flow", "check", &config]);
        assert_eq!(output.status.code(), Some(78));
        assert!(
            stderr(&output).contains("flow.toml:4:13: an interface 'nowhere0' is not known; there are"),
            "{output:?}"
        );
    }
}

#[test]
fn the_example_captures_the_datagrams_to_its_port() {
    let folder = Folder::new("flow-interface");
    let out = folder.path("interface.pcapng");
    let text = std::fs::read_to_string(root().join("examples/flow/interface.toml")).unwrap();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = receiver.local_addr().unwrap().port();
    let text = text.replace("interface.pcapng", &out).replace("dst port 26477", &format!("dst port {port}"));
    let config = folder.write("interface.toml", text.as_bytes());
    let mut command = command(&["flow", "run", &config]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let partial = format!("{out}.partial");
    wait_for(|| Path::new(&partial).exists() || child.try_wait().unwrap().is_some());
    if child.try_wait().unwrap().is_some() {
        let output = child.wait_with_output().unwrap();
        assert!(stderr(&output).contains("CAP_NET_RAW"), "{}", stderr(&output));
        eprintln!("SKIPPED: raw sockets are not permitted");
        return;
    }
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..20u8 {
        sender.send_to(&[number; 10], receiver.local_addr().unwrap()).unwrap();
    }
    let output = interrupt_once(child, || std::fs::metadata(&partial).is_ok_and(|file| file.len() > 20 * 52));
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let payloads: Vec<u8> = bytes(&out).iter().map(|frame| frame[42]).collect();
    assert_eq!(payloads, (0..20).collect::<Vec<u8>>());
}

#[cfg(feature = "af-xdp")]
#[test]
fn frames_come_by_xdp_in_every_mode() {
    let Some(namespace) = Namespace::new("xdp") else { return };
    let folder = Folder::new("flow-xdp");
    for mode in ["skb", "native", "auto"] {
        let out = folder.path(&format!("{mode}.pcap"));
        let reader = format!("type = \"xdp_reader\"\ninterface = \"out\"\nmode = \"{mode}\"\ncount = 200");
        let child = listening(namespace.flow(&into_capture(&folder, &reader, &out)), &out);
        namespace.send(&folder, 100, TO_INTERFACE);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""), "{mode}");
        assert_eq!(bytes(&out), market(100), "{mode}");
        assert_eq!(stage(&report(&output), "line")["in"], 200);
    }
    let out = folder.path("gone.pcap");
    let reader = "type = \"xdp_reader\"\ninterface = \"out\"\nframes = 64";
    let child = listening(namespace.flow(&into_capture(&folder, reader, &out)), &out);
    signal(&child, "-STOP");
    namespace.send(&folder, 50, TO_INTERFACE);
    namespace.ip("link del out");
    signal(&child, "-CONT");
    let output = child.wait_with_output().unwrap();
    assert_one_error(&output, 1, "line: interface out is gone");
    let report = report(&output);
    let line = stage(&report, "line");
    assert_eq!(
        (&line["dropped"]["kernel_dropped"], &line["ports"]["out"]),
        (&36.into(), &64.into()),
        "{line}"
    );
    assert_eq!(bytes(&out), market(50)[..64]);
}

#[cfg(feature = "dpdk")]
#[test]
fn frames_come_by_dpdk() {
    let Some(namespace) = Namespace::new("dpdk") else { return };
    let folder = Folder::new("flow-dpdk");
    let out = folder.path("dpdk.pcap");
    let device = |device: &str, more: &str| {
        format!(
            "type = \"dpdk_reader\"\ndevice = \"{device}\"\narguments = [\"--no-huge\", \"-m\", \"256\"]\n{more}"
        )
    };
    let reader = device("net_af_packet0,iface=out", "device_buffers = 4096\ncount = 200");
    let child = listening(namespace.flow(&into_capture(&folder, &reader, &out)), &out);
    namespace.send(&folder, 100, TO_INTERFACE);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    assert_eq!(bytes(&out), market(100));
    assert_eq!(stage(&report(&output), "line")["in"], 200);
    let reader = device("net_af_packet0,iface=nowhere", "");
    let output = namespace.flow(&into_capture(&folder, &reader, &folder.path("none.pcap"))).output().unwrap();
    assert_one_error(&output, 1, "line: interface net_af_packet0,iface=nowhere: cannot find it");
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn a_build_without_dpdk_says_so_where_it_is_named() {
    let folder = Folder::new("flow-no-dpdk");
    let text = "[[stage]]\nname = \"in\"\ntype = \"dpdk_reader\"\ndevice = \"net_null0\"\n\
                [[stage]]\nname = \"end\"\ntype = \"dropper\"\n[[edge]]\nfrom = \"in\"\nto = \"end\"\n";
    let config = folder.write("flow.toml", text.as_bytes());
    let expected = "flow.toml:3:8: this build has no DPDK: build it with the feature dpdk";
    assert_one_error(&run(&["flow", "check", &config]), 78, expected);
}

#[cfg(not(feature = "af-xdp"))]
#[test]
fn a_build_without_xdp_says_so_where_it_is_named() {
    let folder = Folder::new("flow-no-xdp");
    let text = "[[stage]]\nname = \"in\"\ntype = \"xdp_reader\"\ninterface = \"lo\"\n\
                [[stage]]\nname = \"end\"\ntype = \"dropper\"\n[[edge]]\nfrom = \"in\"\nto = \"end\"\n";
    let config = folder.write("flow.toml", text.as_bytes());
    let expected = "flow.toml:3:8: this build has no AF_XDP: build it with the feature af-xdp";
    assert_one_error(&run(&["flow", "check", &config]), 78, expected);
}
