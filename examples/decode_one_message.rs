//! One packet of a capture, down to the fields of its messages: `packet` and `wire` alone, no books.
//!
//! `cargo run -p tapeworks-examples --bin decode_one_message [CAPTURE]`

use std::error::Error;
use std::path::PathBuf;

use tapeworks_capture::{CaptureReader, net};
use tapeworks_wire::nasdaq::itch50::Message;
use tapeworks_wire::nasdaq::moldudp64::DownstreamPacket;

const CAPTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/captures/nasdaq-itch50/OrderReplaceMessage.pcap");

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from(CAPTURE), PathBuf::from);
    let mut reader = CaptureReader::open(&path)?;
    let packet = reader.next_packet()?.ok_or("the capture has no packet")?;

    // Headers are read in place: the payload is a slice of the mapped file.
    let datagram = net::parse(packet.link_type, packet.bytes)?;
    println!("packet {} of {} bytes to {}", packet.number, packet.bytes.len(), datagram.destination);

    // The transport says where each message begins, and its number on the channel.
    let downstream = DownstreamPacket::decode(datagram.payload)?;
    println!("session {}, first message {}", downstream.session(), downstream.sequence_number());

    for block in downstream.blocks() {
        // Tag and length are checked once, here; the accessors behind it cannot fail.
        match Message::decode(block?)? {
            Message::OrderReplace(replace) => println!(
                "order {} becomes {}: {} shares at {}",
                replace.original_order_reference_number(),
                replace.new_order_reference_number(),
                replace.shares(),
                replace.price(),
            ),
            // Every message can show itself: `Debug` lists the fields by the document's names.
            other => println!("{}: {other:?}", other.name()),
        }
    }
    Ok(())
}
