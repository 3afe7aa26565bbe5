tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", endian: big, length: exact }
    group Level = 4.. bytes {
        size @ 0: u32,
        text @ 4: rest,
    }
}

fn main() {}
