tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    group Level = 4 bytes { size @ 0: u32 }
    message Depth = 'D', 6.. bytes {
        level_count @ 1: u8,
        levels      @ 2: group<Level, level_count>,
        shares      @ 2: u32,
    }
}

fn main() {}
