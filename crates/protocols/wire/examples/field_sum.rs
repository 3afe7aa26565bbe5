//! Decodes the messages of a framed file and adds up the orders' shares: what the hot path of a feed looks like.
//! `cargo run --release -p tapeworks-wire --example field_sum -- FILE`

use tapeworks_wire::framing::{BigEndian, Blocks};
use tapeworks_wire::nasdaq::itch50::Message;

/// Kept out of line so that its machine code can be looked at.
#[inline(never)]
fn add_order(bytes: &[u8]) -> u64 {
    match Message::decode(bytes) {
        Ok(Message::AddOrder(order)) => {
            order.timestamp().0
                ^ order.order_reference_number()
                ^ u64::from(order.shares())
                ^ order.stock().to_u64()
                ^ order.price().e9().cast_unsigned()
                ^ u64::from(order.stock_locate())
        }
        _ => 0,
    }
}

fn main() -> std::io::Result<()> {
    let file = std::env::args().nth(1).unwrap_or_default();
    let bytes = if file.is_empty() { Vec::new() } else { std::fs::read(file)? };
    let sum = Blocks::new(&bytes, BigEndian).flatten().fold(0, |sum, message| sum ^ add_order(message));
    println!("{sum:#x}");
    Ok(())
}
