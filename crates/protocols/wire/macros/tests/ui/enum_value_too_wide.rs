tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    enum Side: ascii<1> { Buy = "BUY" }
}

fn main() {}
