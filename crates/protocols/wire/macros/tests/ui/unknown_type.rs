tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message Quote = 'Q', 5 bytes {
        shares @ 1: Shares,
    }
}

fn main() {}
