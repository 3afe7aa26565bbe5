//! Stages that read from and write to the network.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use tapeworks_flow::packets::{LACKS_AF_XDP, LACKS_DPDK};
use tapeworks_nic::{DpdkOptions, MAX_XDP_FRAMES, PacketOptions, UdpOptions, XdpMode, XdpOptions};

use super::Spec;
use crate::dpdk::read_dpdk;
use tapeworks_runtime::config::{Reading, Section};

/// Maximum size of a packet reader's ring, in bytes.
const MAX_RING_BYTES: usize = 1 << 30;

/// The page size in bytes. A block of a ring consists of whole pages.
const PAGE_BYTES: usize = 4096;

pub(super) fn read_udp_reader(reading: &mut Reading<'_>, stage: &mut Section<'_>) -> (Spec, String) {
    let listen =
        stage.parsed(reading, "listen", "an address with a port such as 233.54.12.111:26477", |text| {
            text.parse::<SocketAddr>().ok()
        });
    if listen.is_none() && !stage.has("listen") {
        stage.missing(reading, "listen");
    }
    let interface =
        stage.parsed(reading, "interface", "the IPv4 address of an interface", |text| text.parse().ok());
    let receive_buffer_bytes =
        stage.integer(reading, "receive_buffer", 1024..=1 << 30).map(|(bytes, _)| bytes);
    let count = read_count(reading, stage);
    let headers = stage.boolean(reading, "headers");
    let listen = listen.unwrap_or_else(|| ([0, 0, 0, 0], 0).into());
    if interface.is_some() && !(listen.is_ipv4() && listen.ip().is_multicast()) {
        stage.wrong_at(reading, "interface", "an interface is chosen for IPv4 groups only");
    }
    let with_headers = headers.unwrap_or(true);
    let options = UdpOptions { listen, interface, receive_buffer_bytes, with_headers, busy_poll_us: 0 };
    (Spec::UdpReader { options, count }, format!("at {listen}"))
}

/// Reads the number of packets after which a reader ends.
fn read_count(reading: &mut Reading<'_>, stage: &mut Section<'_>) -> Option<u64> {
    stage.integer(reading, "count", 1..=usize::MAX).map(|(count, _)| count as u64)
}

/// Reads the name of an interface, which must exist.
fn read_interface(reading: &mut Reading<'_>, stage: &mut Section<'_>) -> String {
    let Some((name, span)) = stage.required_text(reading, "interface") else { return String::new() };
    if !tapeworks_nic::exists(&name) {
        reading.unknown(span, &format!("an interface '{name}'"), &name, &tapeworks_nic::names());
    }
    name
}

pub(super) fn read_packet_reader(reading: &mut Reading<'_>, stage: &mut Section<'_>) -> (Spec, String) {
    let defaults = PacketOptions::new(read_interface(reading, stage));
    let block_bytes = stage.integer(reading, "block_bytes", PAGE_BYTES..=64 << 20).map_or(
        defaults.block_bytes,
        |(bytes, span)| {
            if !bytes.is_multiple_of(PAGE_BYTES) {
                reading.wrong(span, format!("'block_bytes' must be a multiple of {PAGE_BYTES}"));
            }
            bytes
        },
    );
    let blocks = stage.integer(reading, "blocks", 2..=1 << 16).map_or(defaults.blocks, |(blocks, _)| blocks);
    if blocks.saturating_mul(block_bytes) > MAX_RING_BYTES {
        let problem = format!(
            "the ring would take more than {} MiB: use fewer or smaller blocks",
            MAX_RING_BYTES >> 20
        );
        let key = if stage.has("blocks") { "blocks" } else { "block_bytes" };
        stage.wrong_at(reading, key, &problem);
    }
    let block_timeout =
        stage.time(reading, "block_timeout", Duration::from_millis(1)..=Duration::from_secs(10));
    if block_timeout.is_some_and(|time| time.subsec_nanos() % 1_000_000 != 0) {
        stage.wrong_at(reading, "block_timeout", "'block_timeout' must be whole milliseconds");
    }
    let block_timeout_ms = block_timeout.map_or(defaults.block_timeout_ms, |time| time.as_millis() as u32);
    let promiscuous = stage.boolean(reading, "promiscuous").unwrap_or(defaults.promiscuous);
    let outgoing = stage.boolean(reading, "outgoing").unwrap_or(defaults.outgoing);
    let count = read_count(reading, stage);
    let label = format!("from {}", defaults.interface);
    let options = PacketOptions { block_bytes, blocks, block_timeout_ms, promiscuous, outgoing, ..defaults };
    (Spec::PacketReader { options, count }, label)
}

/// Reads an AF_XDP reader. `kind` is the position of its type in the file.
pub(super) fn read_xdp_reader(
    reading: &mut Reading<'_>,
    stage: &mut Section<'_>,
    kind: Range<usize>,
) -> (Spec, String) {
    if !cfg!(feature = "af-xdp") {
        reading.wrong(kind, LACKS_AF_XDP.to_owned());
    }
    let defaults = XdpOptions::new(read_interface(reading, stage));
    let queue = stage.integer(reading, "queue", 0..=4095).map_or(defaults.queue, |(queue, _)| queue as u32);
    let mode = stage.choice(reading, "mode", &XdpMode::ALL, XdpMode::name).unwrap_or(defaults.mode);
    let frames = stage.integer(reading, "frames", 64..=MAX_XDP_FRAMES as usize).map_or(
        defaults.frames,
        |(frames, span)| {
            if !frames.is_power_of_two() {
                reading.wrong(span, "'frames' must be a power of two".to_owned());
            }
            frames as u32
        },
    );
    let count = read_count(reading, stage);
    let label = format!("from {} queue {queue}", defaults.interface);
    (Spec::XdpReader { options: XdpOptions { queue, mode, frames, ..defaults }, count }, label)
}

/// Reads a DPDK reader. `kind` is the position of its type in the file.
pub(super) fn read_dpdk_reader(
    reading: &mut Reading<'_>,
    stage: &mut Section<'_>,
    kind: Range<usize>,
) -> (Spec, String) {
    if !cfg!(feature = "dpdk") {
        reading.wrong(kind, LACKS_DPDK.to_owned());
    }
    let device = stage.required_text(reading, "device").map_or_else(String::new, |(device, _)| device);
    let mut options = DpdkOptions::new(device);
    read_dpdk(reading, stage, &mut options);
    options.promiscuous = stage.boolean(reading, "promiscuous").unwrap_or(options.promiscuous);
    let count = read_count(reading, stage);
    let label = format!("from {}", options.device);
    (Spec::DpdkReader { options, count }, label)
}

pub(super) fn read_packet_writer(reading: &mut Reading<'_>, stage: &mut Section<'_>) -> (Spec, String) {
    let interface = read_interface(reading, stage);
    let label = format!("to {interface}");
    (Spec::PacketWriter { interface }, label)
}

pub(super) fn read_udp_writer(reading: &mut Reading<'_>, stage: &mut Section<'_>) -> (Spec, String) {
    let hops = stage.integer(reading, "hops", 1..=255).map(|(hops, _)| hops as u32);
    let to = stage.parsed(reading, "to", "an address with a port such as 239.1.1.1:5000", |text| {
        text.parse::<SocketAddr>().ok().filter(|to| to.port() != 0)
    });
    if to.is_none() && !stage.has("to") {
        stage.missing(reading, "to");
    }
    let label = to.map_or_else(String::new, |to| format!("to {to}"));
    (Spec::UdpWriter { to: to.unwrap_or_else(|| ([0, 0, 0, 0], 0).into()), hops }, label)
}
