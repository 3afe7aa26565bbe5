use tapeworks_dispatch::machine;

machine! {
    machine Door { context: Hand, dispatch: table }
    states { Closed, Open }
    events { Push, Pull }
    rows {
        Closed + Pull => open -> Open;
        Closed + Push => _;
        Open + _ => close -> Closed;
        _ + Push => _;
    }
}

struct Hand;

impl Hand {
    fn open(&mut self) {}
    fn close(&mut self) {}
}

fn main() {}
