use tapeworks_dispatch::machine;

machine! {
    machine Door { context: Hand, dispatch: table }
    states { Closed, Open }
    events { Push, Pull }
    rows {
        Closed + Pull => open -> Open;
        Open + Push => close -> Closed;
    }
}

struct Hand;

impl Hand {
    fn open(&mut self) {}
    fn close(&mut self) {}
}

fn main() {}
