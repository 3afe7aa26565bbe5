//! `tapeworks plant` on the frames of an interface: a veth pair in a network namespace of the test's own.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::process::{Child, Output, Stdio};

use serde_json::Value;
use support::namespace::Namespace;
use support::{Folder, interrupt_once, run, signal, stderr, stdout, wait_for};

/// A plant in a namespace, and what it logs.
struct Plant {
    child: Child,
    log: String,
}

impl Plant {
    /// One that takes the frames of the device in this way.
    fn start(namespace: &Namespace, folder: &Folder, name: &str, device: &str, receive: &str) -> Self {
        let config = folder.write(
            &format!("{name}.toml"),
            format!(
                "interface = \"10.9.0.1\"\n[receive]\ndevice = \"{device}\"\n{receive}\n\
                 [[venue]]\nname = \"Nasdaq\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\n\
                 lines = [\"233.54.12.111:26477\", \"233.49.196.111:26477\"]\n"
            )
            .as_bytes(),
        );
        let log = folder.path(&format!("{name}.log"));
        let child = namespace
            .command(env!("CARGO_BIN_EXE_tapeworks"))
            .args(["plant", "--json", &config])
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let plant = Self { child, log };
        wait_for(|| plant.log().contains("listening to"));
        assert!(plant.log().contains("listening to"), "{}", plant.log());
        plant
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it, and returns its report.
    fn end(self) -> Value {
        let log = self.log.clone();
        let output = interrupt_once(self.child, || true);
        let text = stdout(&output);
        serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("{text}{}", std::fs::read_to_string(log).unwrap()))
    }
}

/// Sends a capture by the interface `in`, each packet as soon as the one before has left.
fn send(namespace: &Namespace, folder: &Folder, capture: &str) {
    let text = format!(
        "[[stage]]\nname = \"from\"\ntype = \"capture_reader\"\nfile = \"{capture}\"\n\
         [[stage]]\nname = \"to\"\ntype = \"packet_writer\"\ninterface = \"in\"\n\
         [[edge]]\nfrom = \"from\"\nto = \"to\"\n"
    );
    let flow = folder.write("send.toml", text.as_bytes());
    let output: Output = namespace
        .command(env!("CARGO_BIN_EXE_tapeworks"))
        .args(["flow", "run", "--json", &flow])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Nasdaq around the close on both lines, up to the session's end: the capture, and how many messages it has.
fn close(folder: &Folder, messages: u64) -> (String, u64) {
    let capture = folder.path(&format!("{messages}.pcap"));
    let messages = messages.to_string();
    let made = run(&[
        "exchange",
        "generate",
        "--scenario",
        "close",
        "--messages",
        &messages,
        "--symbols",
        "20",
        "--line-b",
        "--out",
        &capture,
    ]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let replay = run(&["replay", "--json", &capture]);
    let summary: Value = serde_json::from_str(&stdout(&replay)).unwrap();
    (capture, summary["messages"].as_u64().unwrap())
}

/// `all` has room for each frame of the first capture, `few` has no room for those of the second, where there is a way that counts
/// them.
fn takes_frames(test: &str, way: &str, device: &str, all: &str, few: Option<&str>) {
    let Some(namespace) = Namespace::new(test) else { return };
    namespace.ip("addr add 10.9.0.1/24 dev out");
    namespace.ip("route add 224.0.0.0/4 dev out");
    let folder = Folder::new(test);
    let (capture, messages) = close(&folder, 3_000);
    let plant = Plant::start(&namespace, &folder, way, device, all);
    send(&namespace, &folder, &capture);
    wait_for(|| plant.log().contains("the session ended"));
    let status = plant.end();
    let venue = &status["venues"][0];
    assert_eq!(status["messages"], messages, "{status:#}");
    let of = |line: usize, what: &str| venue["lines"][line][what].as_u64().unwrap();
    assert_eq!((of(0, "won") + of(1, "won"), of(0, "lost") + of(1, "lost")), (messages, 0), "{venue:#}");
    let interface = &status["interface"];
    assert_eq!(
        (&interface["device"], &interface["kernel_drops"]),
        (&device.into(), &0.into()),
        "{interface}"
    );
    let Some(few) = few else { return };
    // The kernel counts the frames that come while the plant stands still and the ring is full.
    let (capture, _) = close(&folder, 60_000);
    let plant = Plant::start(&namespace, &folder, way, device, few);
    signal(&plant.child, "-STOP");
    send(&namespace, &folder, &capture);
    signal(&plant.child, "-CONT");
    wait_for(|| plant.log().contains("the kernel dropped"));
    assert!(plant.log().contains("frames"), "{}", plant.log());
    assert!(plant.end()["interface"]["kernel_drops"].as_u64().unwrap() > 0);
}

#[test]
fn frames_come_by_a_packet_socket() {
    let ring = |megabytes| format!("from = \"packet\"\nbuffer_mb = {megabytes}");
    takes_frames("plant-packet", "packet", "out", &ring(16), Some(&ring(1)));
}

#[cfg(feature = "af-xdp")]
#[test]
fn frames_come_by_xdp() {
    let memory = |frames| format!("from = \"xdp\"\nqueue = 0\nframes = {frames}");
    takes_frames("plant-xdp", "xdp", "out", &memory(16_384), Some(&memory(1_024)));
}

#[cfg(feature = "dpdk")]
#[test]
fn frames_come_by_dpdk() {
    // DPDK 22.11 does not count what this virtual device drops.
    let receive = "from = \"dpdk\"\narguments = [\"--no-huge\", \"-m\", \"256\"]\ndevice_buffers = 8192";
    takes_frames("plant-dpdk", "dpdk", "net_af_packet0,iface=out,framecnt=8192", receive, None);
}
