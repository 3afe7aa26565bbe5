use tapeworks_dispatch::machine;

machine! {
    machine Door { context: Hand, dispatch: table }
    states { Closed, Open }
    events { Push = PUSH, Pull }
    rows {
        Closed + Pull => open -> Open;
        Open + Push => close -> Closed;
        _ + _ => _;
    }
}

const PUSH: u64 = 1;

struct Hand;

impl Hand {
    fn open(&mut self) {}
    fn close(&mut self) {}
}

fn main() {}
