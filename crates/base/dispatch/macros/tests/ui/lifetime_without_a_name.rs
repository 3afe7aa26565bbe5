use tapeworks_dispatch::machine;

machine! {
    machine Door<'a> { context: Hand, dispatch: table }
    states { Closed, Open }
    events { Push, Pull (note: Option<&'_ str>) }
    rows {
        Closed + Pull => open -> Open;
        Open + Push => close -> Closed;
        _ + _ => _;
    }
}

struct Hand;

impl Hand {
    fn open(&mut self, _note: &str) {}
    fn close(&mut self) {}
}

fn main() {}
