tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message Quote = 'Q', 8 bytes {
        shares @ 1: u32,
        price  @ 4: price<u32, 4>,
    }
}

fn main() {}
