tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message Quote = 'Q', 5 bytes {
        type @ 1: u32,
    }
}

fn main() {}
