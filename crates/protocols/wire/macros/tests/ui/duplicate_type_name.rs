tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    enum Quote: u8 { Bid = 1 }
    message Quote = 'Q', 5 bytes {
        shares @ 1: u32,
    }
}

fn main() {}
