//! Valid messages and packets, made from the schemas.

use tapeworks_wire::framing::write_block_big_endian;
use tapeworks_wire::nasdaq;
use tapeworks_wire::schema::{Schema, SplitMix64, arbitrary};

/// One of each message.
pub(crate) fn messages(schema: &Schema, random: &mut SplitMix64) -> Vec<Vec<u8>> {
    schema
        .messages
        .iter()
        .map(|structure| {
            let mut bytes = Vec::new();
            arbitrary(schema, structure, random, &mut bytes);
            bytes
        })
        .collect()
}

/// Gives messages one stock and few order references, so that they are about the same things.
pub(crate) fn relate(itch: &mut [Vec<u8>], random: &mut SplitMix64) {
    for message in itch {
        message[1..3].copy_from_slice(&[0, 1]);
        if message.len() > 19 && b"AFECXDU".contains(&message[0]) {
            message[11..19].copy_from_slice(&random.below(2).to_be_bytes());
        }
    }
}

/// MoldUDP64 packets of a message each, with consecutive numbers.
pub(crate) fn mold_packets(itch: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let packet = |(number, message): (usize, &Vec<u8>)| {
        let mut block = [0; 128];
        let length = write_block_big_endian(&mut block, message).expect("a message fits a block");
        let header = [&b"SESSION001"[..], &(number as u64 + 1).to_be_bytes(), &1u16.to_be_bytes()].concat();
        [&header, &block[..length]].concat()
    };
    itch.iter().enumerate().map(packet).collect()
}

/// MoldUDP64 packets of ITCH messages about the same orders, the last of them behind a gap.
pub(crate) fn itch_packets() -> Vec<Vec<u8>> {
    let mut random = SplitMix64::new(0x1_7c4);
    let mut itch = messages(&nasdaq::itch50::SCHEMA, &mut random);
    itch.extend(messages(&nasdaq::itch50::SCHEMA, &mut random));
    relate(&mut itch, &mut random);
    let mut packets = mold_packets(&itch);
    packets.remove(packets.len() - 2);
    packets
}
