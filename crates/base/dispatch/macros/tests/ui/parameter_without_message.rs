use tapeworks_dispatch::machine;

machine! {
    machine Door { context: Hand, dispatch: table }
    states { Closed, Open }
    events { Push = 'P' (force: u32), Pull }
    rows {
        Closed + Pull => open -> Open;
        Open + Push => close -> Closed;
        _ + _ => _;
    }
}

struct Hand;

impl Hand {
    fn open(&mut self) {}
    fn close(&mut self, _force: u32) {}
}

fn main() {}
