//! A FIX order through a session and the translator to native bytes: the path of an order without sockets and files.

use std::sync::Arc;

use tapeworks_fix_wire::Writer;
use tapeworks_fix_wire::order_entry::{HeaderFields, LogonFields, SCHEMA};
use tapeworks_order_session::fix::{
    Application, Dictionary, Link, MemoryStore, Received, Role, Session, Settings, Store, Verdict,
};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{Millennium, ReferenceError, Translator};

use crate::translation::{ORDERS, TIME, Written, new_order, translator};

/// Passes messages to the translator, as the gateway does.
struct Trader {
    translator: Translator<Millennium>,
    out: Written,
}

impl Application for Trader {
    fn message(&mut self, received: &Received<'_>, _: &mut Link, _: &mut dyn Store, now_ns: u64) -> Verdict {
        self.translator.client_message(ClientIndex(0), &received.message, now_ns, &mut self.out);
        Verdict::Taken
    }
}

fn logon() -> Vec<u8> {
    let mut buffer = [0; 256];
    let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"A");
    HeaderFields::new(b"CLIENT01", b"TAPEWORKS", 1, TIME).write(&mut writer);
    LogonFields::new(0, 30).write(&mut writer);
    writer.finish().map(|message| message.to_vec()).unwrap_or_default()
}

/// Runs `counted` over the second half of the orders. Returns the messages in it.
pub(crate) fn run(counted: fn(&mut dyn FnMut())) -> Result<u64, ReferenceError> {
    let Some(out) = Written::new() else { return Ok(0) };
    let mut trader = Trader { translator: translator()?, out };
    let dictionary = Arc::new(Dictionary::from_schema(&SCHEMA));
    let settings = Settings::new(Role::Acceptor, "FIX.4.4", "TAPEWORKS", "CLIENT01");
    let mut session = Session::new(settings, dictionary, TIME.0);
    let mut store = MemoryStore::new(64 << 20, TIME.0);
    session.receive(&logon(), &mut store, &mut trader, TIME.0);
    let order = |number| new_order(&format!("ORD-0-{number:08X}"), number, 2 + number as u64, TIME.0);
    let orders: Vec<Vec<u8>> = (0..2 * ORDERS).map(order).collect();
    let (warm_up, rest) = orders.split_at(ORDERS);
    let mut receive = |orders: &[Vec<u8>]| {
        for message in orders {
            session.receive(message, &mut store, &mut trader, TIME.0);
        }
    };
    receive(warm_up);
    counted(&mut || receive(rest));
    let requests = trader.translator.counters().requests;
    Ok(u64::from(requests == 2 * ORDERS as u64) * ORDERS as u64)
}
