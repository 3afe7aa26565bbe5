//! Captures of several days, behind tunnels, with copies of packets after a silence: nothing is missing, and nothing counts twice.

use super::*;

const DATES: [&str; 3] = ["2025-11-12", "2025-11-13", "2025-11-14"];
const KINDS: [&str; 9] =
    ["nasdaq", "iex-deep", "iex-deep-plus", "iex-tops", "memx", "bzx", "nyse", "lse", "cqs"];

const ETHERNET_BYTES: usize = 14;

/// An IPv4 header without options, before a payload.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    header[2..4].copy_from_slice(&length.to_be_bytes());
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    [&header[..], payload].concat()
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind.to_be_bytes(), payload].concat()
}

/// A frame as a mirror port, a router or an overlay network delivers it.
fn tunnelled(frame: &[u8], number: usize) -> Vec<u8> {
    let packet = &frame[ETHERNET_BYTES..];
    match number {
        // A label of MPLS with the bottom of the stack.
        1 => ethernet(0x8847, &[&[0, 0, 0x11, 64][..], packet].concat()),
        // GRE with the frame, and with the packet.
        2 => ethernet(0x0800, &ipv4(47, &[&[0, 0, 0x65, 0x58][..], frame].concat())),
        3 => ethernet(0x0800, &ipv4(47, &[&[0, 0, 0x08, 0x00][..], packet].concat())),
        // ERSPAN II: a sequence number, then eight bytes.
        4 => {
            let header = [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1][..], &[0x10, 0, 0, 0, 0, 0, 0, 0]].concat();
            ethernet(0x0800, &ipv4(47, &[&header[..], frame].concat()))
        }
        // VXLAN: UDP to port 4789 without a checksum, then eight bytes.
        5 => {
            let length = (16 + frame.len()) as u16;
            let udp = [&[0xc0, 0, 0x12, 0xb5][..], &length.to_be_bytes(), &[0, 0]].concat();
            let inner = [&udp[..], &[8, 0, 0, 0, 0, 0, 1, 0], frame].concat();
            ethernet(0x0800, &ipv4(17, &inner))
        }
        // IP in IP.
        6 => ethernet(0x0800, &ipv4(4, packet)),
        _ => frame.to_vec(),
    }
}

fn messages_of(path: &str, what: &str) -> (u64, u64) {
    let output = run(&["stats", "--json", path]);
    is_sound(&output, &stderr(&output), &[0], what);
    let stats: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let sum = |key: &str| {
        stats["channels"].as_array().unwrap().iter().map(|channel| channel[key].as_u64().unwrap()).sum()
    };
    assert_eq!(sum("missing_messages"), 0, "{what}: {stats}");
    (sum("messages"), sum("repeated_messages"))
}

#[test]
fn days_tunnels_and_late_copies_neither_lose_nor_repeat_a_message() {
    let mut rounds = Rounds::new(8, 5);
    let folder = Folder::new("hostile-days");
    while rounds.next() {
        let kind = *rounds.one_of(&KINDS);
        let days = 1 + rounds.below(DATES.len());
        let (mut all, mut expected, mut copies) = (Vec::new(), 0, 0);
        let what = format!("seed {}: {days} days of {kind}", rounds.seed);
        for date in DATES.iter().take(days) {
            let day = folder.path("day.pcap");
            let seed = rounds.random.bits() % 1_000_000;
            let count = 500 + rounds.below(3_000);
            let (seed, count) = (seed.to_string(), count.to_string());
            let arguments = ["exchange", "generate", "--venues", kind, "--date", date, "--seed", &seed];
            let generated =
                run(&[&arguments[..], &["--messages", &count, "--force", "--out", &day]].concat());
            is_sound(&generated, &stderr(&generated), &[0], &what);
            let (of_day, repeated) = messages_of(&day, &what);
            assert_eq!(repeated, 0, "{what}");
            expected += of_day;
            let mut of_day = packets(&day);
            // Line B delivers some of the last packets again, long after the others.
            let last = of_day.last().unwrap().0;
            for number in 0..rounds.below(4) {
                let recent = of_day.len().saturating_sub(20).max(1);
                let place = recent + rounds.below(of_day.len() - recent);
                let (_, bytes) = of_day[place].clone();
                of_day.push((last + (60 + number as u64) * 1_000_000_000, bytes));
                copies += 1;
            }
            let tunnel = rounds.below(7);
            all.extend(of_day.into_iter().map(|(time, bytes)| (time, tunnelled(&bytes, tunnel))));
        }
        let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
        for (time, bytes) in &all {
            writer.write_packet(*time, bytes).unwrap();
        }
        let path = folder.write("days.pcap", &writer.finish().unwrap());
        let (messages, repeated) = messages_of(&path, &what);
        assert_eq!(messages, expected, "{what}, with {copies} copies: {repeated} messages repeated");
        let csv = folder.path("days.csv");
        let replayed = run(&["replay", &path, "--force", "--schema", "trades", "--out", &csv]);
        is_sound(&replayed, &stderr(&replayed), &[0], &what);
    }
}
