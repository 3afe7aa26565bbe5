tapeworks_fix_wire::fix! {
    fix "x" { title: "X", versions: "4.4" }
    message Order = "D" { side: 54 Side, parties: 453 group<Party> }
}

fn main() {}
