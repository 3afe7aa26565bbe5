tapeworks_fix_wire::fix! {
    fix "x" { title: "X", versions: "4.4" }
    group Party { party_id: 448 text, subs: 802 group<Sub> }
    group Sub { sub_id: 523 text, parties: 453 group<Party> }
}

fn main() {}
