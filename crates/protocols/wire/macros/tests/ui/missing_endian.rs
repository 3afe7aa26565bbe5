tapeworks_wire::protocol! {
    protocol "x" { title: "X", version: "1", length: exact }
}

fn main() {}
