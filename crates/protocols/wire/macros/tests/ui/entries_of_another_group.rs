tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, tag: ascii<1> @ 0, length: exact }
    group Level = 4 bytes { shares @ 0: u32 }
    group Quote = 2 bytes { size @ 0: u16 }
    message Depth = 'D', 2.. bytes {
        level_count @ 1: u8,
        levels      @ 2: group<Level, level_count>,
    }
    message Add = 'A', 3 bytes { shares @ 1: u16 }
}

fn main() {
    let fields = DepthFields { level_count: 0, levels: Default::default() };
    let _ = fields.encode_with(&[QuoteFields { size: 1 }], &mut [0; 64]);
}
