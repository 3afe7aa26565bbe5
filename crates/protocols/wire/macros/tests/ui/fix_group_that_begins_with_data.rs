tapeworks_fix_wire::fix! {
    fix "x" { title: "X", versions: "4.4" }
    group Leg { text: 619 data<618> }
}

fn main() {}
