tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message Quote = 'Q', 9 bytes {
        shares @ 1: u32,
        shares @ 5: u32,
    }
}

fn main() {}
