tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    message Depth = 'D', 2.. bytes {
        level_count @ 1: u8,
        levels      @ 2: group<Level, level_count>,
    }
}

fn main() {}
