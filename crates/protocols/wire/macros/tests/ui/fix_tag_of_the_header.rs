tapeworks_fix_wire::fix! {
    fix "x" { title: "X", versions: "4.4" }
    header { required sender_comp_id: 49 text }
    message Order = "D" { other: 49 text, length: 9 number }
}

fn main() {}
