use tapeworks_dispatch::machine;

machine! {
    machine Door { context: Hand, dispatch: table }
    states { Closed, Open }
    events { Push, Pull }
    rows {
        Closed + Pull [is_unlocked] => open -> Open;
        Closed + Push => _;
        Open + _ => close -> Closed;
    }
}

struct Hand;

impl Hand {
    fn open(&mut self) {}
    fn close(&mut self) {}
}

fn main() {}
