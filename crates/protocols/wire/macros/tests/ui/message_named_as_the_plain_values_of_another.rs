tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message A = 'A', 5 bytes {
        shares @ 1: u32,
    }
    message AFields = 'B', 5 bytes {
        shares @ 1: u32,
    }
}

fn main() {}
