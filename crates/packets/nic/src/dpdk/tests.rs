//! Frames from DPDK's virtual devices: a veth pair through `net_af_packet`, a capture through `net_pcap`.
//!
//! The environment starts once for all tests of a process, without huge pages.

#![allow(clippy::unwrap_used)]
use std::path::Path;
use std::time::{Duration, Instant};

use tapeworks_capture::pool::Pool;
use tapeworks_capture::{CaptureReader, Writer, WriterOptions};

use super::DpdkOptions;
use super::receiver::DpdkReceiver;
use crate::tests::{all_taken, by_sevens, bytes, fitting_and_too_long, frames, send, with_veth};
use crate::udp::now_ns;
use crate::{Received, Sender};

fn options(device: &str) -> DpdkOptions {
    let arguments = ["--no-huge", "-m", "128"].map(str::to_owned).to_vec();
    DpdkOptions { arguments, buffers: 4_096, ..DpdkOptions::new(device) }
}

/// Returns the options for one end of a veth pair. Each test uses a separate device name.
fn veth(name: &str) -> DpdkOptions {
    options(&format!("net_af_packet_{name},iface=out,framecnt=4096,blocksz=65536"))
}

fn receive(receiver: &mut DpdkReceiver, pool: &mut Pool, wanted: usize) -> Vec<Received> {
    by_sevens(wanted, |all| {
        let is_ready = receiver.is_ready();
        (is_ready, receiver.receive(pool, 7, 5, |received| all.push(received)).unwrap())
    })
}

#[test]
fn frames_come_as_they_were_sent_and_again_when_the_device_is_opened_anew() {
    with_veth(|| {
        for _ in 0..2 {
            let mut receiver = DpdkReceiver::open(&veth("sent")).unwrap();
            let (mut sender, _) = Sender::interface("in").unwrap();
            let sent = frames(3_000);
            let mut pool = Pool::new(3_000, 2_048);
            let before_ns = now_ns();
            assert!(all_taken(&send(&mut sender, &sent)));
            let all = receive(&mut receiver, &mut pool, sent.len());
            assert!(all.iter().map(bytes).eq(sent.iter().map(Vec::as_slice)), "{}", all.len());
            let Received::Packet(packet) = &all[0] else { panic!("{all:?}") };
            let description = packet.description();
            assert!((before_ns..=now_ns()).contains(&description.timestamp_ns));
            assert_eq!((description.entered_ns, description.original_length as usize), (5, sent[0].len()));
            assert_eq!(receiver.drops().unwrap(), 0);
            assert!(receiver.check().is_ok());
        }
    });
}

#[test]
fn long_frames_are_reported_and_without_a_buffer_they_wait() {
    with_veth(|| {
        let mut receiver = DpdkReceiver::open(&veth("long")).unwrap();
        let (mut sender, _) = Sender::interface("in").unwrap();
        let sent = frames(100);
        assert!(all_taken(&send(&mut sender, &sent)));
        let counts =
            fitting_and_too_long(&sent, 50, |pool, each| receiver.receive(pool, 64, 0, each).unwrap());
        assert_eq!(counts, (51, 49));
    });
}

#[test]
fn a_capture_comes_as_our_reader_reads_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata");
    let mut count = 0;
    for (number, name) in ["iex-deep", "nyse-pillar-integrated", "cta-cqs"].into_iter().enumerate() {
        for (at, file) in std::fs::read_dir(folder.join(name)).unwrap().enumerate() {
            let file = file.unwrap().path();
            let device = format!("net_pcap_{number}_{at},rx_pcap={}", file.display());
            let mut receiver = DpdkReceiver::open(&options(&device)).unwrap();
            let mut reader = CaptureReader::open(&file).unwrap();
            let mut pool = Pool::new(1_024, 9_216);
            let mut expected = Vec::new();
            while let Some(packet) = reader.next_packet().unwrap() {
                expected.push(packet.bytes.to_vec());
            }
            let all = receive(&mut receiver, &mut pool, expected.len());
            assert!(all.iter().map(bytes).eq(expected.iter().map(Vec::as_slice)), "{}", file.display());
            assert!(!receiver.is_ready());
            count += expected.len();
        }
    }
    assert!(count > 10, "{count}");
}

#[test]
fn a_frame_of_several_buffers_comes_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.pcap");
    let long: Vec<u8> = (0..7_000u32).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut writer = Writer::new(std::fs::File::create(&file).unwrap(), WriterOptions::default()).unwrap();
    writer.write_packet(1, &long).unwrap();
    writer.write_packet(2, &long[..60]).unwrap();
    writer.finish().unwrap();
    let device = format!("net_pcap_long,rx_pcap={}", file.display());
    let mut receiver = DpdkReceiver::open(&options(&device)).unwrap();
    let mut pool = Pool::new(8, 9_216);
    let all = receive(&mut receiver, &mut pool, 2);
    assert_eq!((bytes(&all[0]), bytes(&all[1])), (&long[..], &long[..60]));
}

#[test]
fn a_device_that_cannot_be_opened_is_an_error_that_says_why() {
    with_veth(|| {
        let error = |options: &DpdkOptions| DpdkReceiver::open(options).unwrap_err().to_string();
        let found = error(&options("net_af_packet_none,iface=nowhere0"));
        assert!(
            found.starts_with("interface net_af_packet_none,iface=nowhere0: cannot find it: "),
            "{found}"
        );
        assert!(found.contains("nowhere0: "), "DPDK's own words: {found}");
        let found = error(&options("net_never_made0"));
        assert!(found.contains("cannot find it: "), "{found}");
        let found = error(&DpdkOptions { buffers: 0, ..veth("no_buffers") });
        assert!(found.contains("cannot make its buffers: none, or too many"), "{found}");
        let open = DpdkReceiver::open(&veth("twice")).unwrap();
        let found = error(&veth("twice"));
        assert!(found.contains("cannot open it twice: "), "{found}");
        let found = error(&DpdkOptions { arguments: vec!["-m".to_owned()], ..veth("other") });
        assert!(found.contains("it runs with the arguments [\"--no-huge\", "), "{found}");
        drop(open);
        assert!(DpdkReceiver::open(&veth("twice")).is_ok());
    });
}

#[test]
fn frames_that_the_device_had_no_room_for_are_counted() {
    with_veth(|| {
        // `net_af_packet` of DPDK 22.11 does not count its drops; `net_pcap` reports the kernel's.
        let mut receiver = DpdkReceiver::open(&options("net_pcap_small,rx_iface=out")).unwrap();
        let (mut sender, _) = Sender::interface("in").unwrap();
        let (sent, mut count) = (frames(3_000), 0);
        while receiver.drops().unwrap() == 0 {
            assert!(all_taken(&send(&mut sender, &sent)));
            count += sent.len() as u64;
            assert!(count < 1_000_000, "the kernel's buffer is never full");
        }
        let mut pool = Pool::new(64, 2_048);
        let (mut seen, began) = (0, Instant::now());
        while receiver.drops().unwrap() + seen < count && began.elapsed() < Duration::from_secs(20) {
            seen += receiver.receive(&mut pool, 64, 0, drop).unwrap() as u64;
        }
        assert_eq!(receiver.drops().unwrap() + seen, count);
        assert!(seen > 0);
    });
}
