tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message Option = 'O', 5 bytes {
        shares @ 1: u32,
    }
}

fn main() {}
