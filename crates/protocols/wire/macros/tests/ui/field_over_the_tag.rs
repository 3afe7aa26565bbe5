tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message Quote = 'Q', 4 bytes {
        shares @ 0: u32,
    }
}

fn main() {}
