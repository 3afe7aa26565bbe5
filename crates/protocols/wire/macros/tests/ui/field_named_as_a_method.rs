tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message Quote = 'Q', 9 bytes {
        as_bytes  @ 1: u32,
        to_fields @ 5: u32,
    }
}

fn main() {}
