tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    group Level = 4 bytes { size @ 0: u32 }
    message Depth = 'D', 3.. bytes {
        level_count @ 1: ascii<2>,
        levels      @ 3: group<Level, level_count>,
    }
}

fn main() {}
