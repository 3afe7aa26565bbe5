use tapeworks_dispatch::machine;

machine! {
    machine Door { context: Hand, dispatch: table }
    states { Closed, Open }
    events { Push, Pull }
    rows {
        Closed + Pull => pull -> Open;
        Open + Push => close -> Closed;
        _ + _ => _;
    }
}

struct Hand;

impl Hand {
    fn open(&mut self) {}
    fn close(&mut self) {}
}

fn main() {}
