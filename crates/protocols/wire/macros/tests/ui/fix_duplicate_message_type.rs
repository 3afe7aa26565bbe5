tapeworks_fix_wire::fix! {
    fix "x" { title: "X", versions: "4.4" }
    message Order = "D" { price: 44 decimal<8> }
    message Other = "D" { price: 44 decimal<8> }
}

fn main() {}
