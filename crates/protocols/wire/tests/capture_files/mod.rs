//! Reads the captures in `tests/testdata`: just enough of pcap, Ethernet and IPv4.

use std::path::{Path, PathBuf};

/// The files in a folder of the captures, by name.
pub(crate) fn captures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The payloads, UDP or TCP, of a little-endian pcap file of Ethernet (with VLAN tags) and IPv4: all that the captures are.
pub(crate) fn payloads(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap();
    let mut at = 24;
    let mut found = Vec::new();
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        let packet = &bytes[at + 16..at + 16 + length];
        let mut ip = 14;
        while packet[ip - 2..ip] == [0x81, 0] {
            ip += 4;
        }
        assert_eq!(packet[ip - 2..ip], [8, 0], "not IPv4");
        let after = ip + usize::from(packet[ip] & 15) * 4;
        let ip_length = usize::from(u16::from_be_bytes([packet[ip + 2], packet[ip + 3]]));
        let header = match packet[ip + 9] {
            6 => usize::from(packet[after + 12] >> 4) * 4,
            17 => 8,
            other => panic!("IP protocol {other}"),
        };
        found.push(packet[after + header..ip + ip_length].to_vec());
        at += 16 + length;
    }
    found
}
