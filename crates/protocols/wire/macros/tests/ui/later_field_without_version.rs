tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message Quote = 'Q', 5..=9 bytes {
        shares @ 1: u32,
        price  @ 5: price<u32, 4>,
    }
}

fn main() {}
