tapeworks_fix_wire::fix! {
    fix "x" { title: "X", versions: "4.4" }
    enum Side: char { Buy = '1', Sell = '1' }
}

fn main() {}
