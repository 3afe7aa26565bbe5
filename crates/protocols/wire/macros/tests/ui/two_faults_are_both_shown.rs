tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    flags Conditions: u8 { OddLot = 9 }
    message Quote = 'Q', 5 bytes {
        shares @ 2: u32,
    }
}

fn main() {}
