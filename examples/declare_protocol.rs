//! A protocol of one's own: declared once, it has views, encoders, and everything that is derived from its schema.
//!
//! `cargo run -p tapeworks-examples --bin declare_protocol`

use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch, schema};

tapeworks_wire::protocol! {
    /// Quotes of a made-up venue.
    protocol "toy-quotes-1.1" {
        title: "Toy quotes",
        version: "1.1",
        endian: little,
        tag: ascii<1> @ 0,
        length: exact,
    }

    enum Side: ascii<1> { Buy = 'B', Sell = 'S' }

    /// The best price of one side. Version 1.1 appended the number of orders.
    message Quote = 'Q', 30..=34 bytes {
        side    @ 1 : Side,
        time    @ 2 : nanoseconds_since_epoch<u64>,
        symbol  @ 10: ascii<8>,
        price   @ 18: price<u64, 4>,
        shares  @ 26: u32,
        orders  @ 30 since "1.1": u32,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fields = QuoteFields {
        side: Side::Sell,
        time: NanosecondsSinceEpoch(1_763_130_600_000_000_000),
        symbol: Ascii::new("TAPE").ok_or("at most eight characters")?,
        price: Decimal(1_234_500),
        shares: 300,
        orders: Some(2),
    };
    let mut buffer = [0; 64];
    let length = fields.encode_into(&mut buffer)?;

    // A reader of version 1.1 takes both lengths; what version 1.0 did not send is `None`.
    for bytes in [&buffer[..length], &buffer[..30]] {
        let Message::Quote(quote) = Message::decode(bytes)?;
        let (symbol, price) = (quote.symbol(), quote.price());
        println!(
            "{} bytes: {symbol} {} at {price}, orders {:?}",
            bytes.len(),
            quote.shares(),
            quote.orders()
        );
    }

    // The reference page, the JSON dump and the Wireshark dissector are all made of the same schema.
    let mut json = String::new();
    SCHEMA.decode(&buffer[..length]).write_json(&mut json);
    println!("{json}\n\n{}", schema::markdown(&SCHEMA));
    Ok(())
}
