//! The path of an order for benches: a client's FIX session and a translator, joined as in the gateway, without sockets and files.

#![allow(clippy::expect_used, reason = "a bench whose instruments are wrong has no figures")]
#![allow(dead_code, reason = "no user needs all of it")]

use std::sync::Arc;

use tapeworks_fix_wire::Writer;
use tapeworks_fix_wire::order_entry::{HeaderFields, LogonFields, SCHEMA};
use tapeworks_order_session::fix::{
    self, Application, Dictionary, Link, MemoryStore, Received, Store, Verdict,
};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{
    ClientSettings, Instrument, Millennium, MillenniumSettings, Outputs, Reference, RiskLimits, Settings,
    TopOfBook, Translator,
};
use tapeworks_wire::{Ascii, NanosecondsSinceEpoch};

/// Creates a translator with one client, which is connected to its venue and accepts every order for these symbols.
pub(crate) fn translator(symbols: &[&str], most_orders: usize) -> Translator<Millennium> {
    let instrument = |(symbol, venue_id): (&&str, _)| Instrument {
        symbol: Ascii::new(symbol).expect("a symbol is short"),
        security_id: Ascii::default(),
        venue_id,
        tick_e8: 1,
        has_negative_prices: false,
        partition: 1,
        segment: Ascii::default(),
    };
    let instruments: Vec<Instrument> = symbols.iter().zip(11..).map(instrument).collect();
    let reference = Reference::new(&instruments, &[]).expect("no instrument occurs twice");
    let limits = RiskLimits { most_quantity: 100_000, most_notional: 1_000_000_000, ..RiskLimits::default() };
    let client = ClientSettings { limits, ..ClientSettings::default() };
    let settings = Settings { most_orders, most_requests: 2 * most_orders, ..Settings::default() };
    let venue = Millennium::new(MillenniumSettings::default());
    let mut translator = Translator::new(venue, reference, &[client], &settings);
    // The notional of a sell counts at the bid.
    let top = TopOfBook { bid_e8: Some(100_000_000), offer_e8: Some(200_000_000) };
    translator.set_tops(Box::new(vec![top; instruments.len()]));
    translator.venue_connected();
    translator.venue_recovered();
    translator
}

/// Passes the messages of a session to the translator.
struct Trader<O> {
    translator: Translator<Millennium>,
    out: O,
}

impl<O: Outputs> Application for Trader<O> {
    fn message(&mut self, received: &Received<'_>, _: &mut Link, _: &mut dyn Store, now_ns: u64) -> Verdict {
        self.translator.client_message(ClientIndex(0), &received.message, now_ns, &mut self.out);
        Verdict::Taken
    }
}

/// A session from CLIENT01 to TAPEWORKS, and the translator of its messages.
pub(crate) struct OrderPath<O> {
    session: fix::Session,
    store: MemoryStore,
    trader: Trader<O>,
}

impl<O: Outputs> OrderPath<O> {
    /// Logs the client on. Its next message has the number 2.
    pub(crate) fn new(translator: Translator<Millennium>, out: O, now_ns: u64) -> Self {
        let dictionary = Arc::new(Dictionary::from_schema(&SCHEMA));
        let settings = fix::Settings::new(fix::Role::Acceptor, "FIX.4.4", "TAPEWORKS", "CLIENT01");
        let mut path = Self {
            session: fix::Session::new(settings, dictionary, now_ns),
            store: MemoryStore::new(1 << 20, now_ns),
            trader: Trader { translator, out },
        };
        let mut buffer = [0; 256];
        let mut logon = Writer::begin(&mut buffer, b"FIX.4.4", b"A");
        HeaderFields::new(b"CLIENT01", b"TAPEWORKS", 1, NanosecondsSinceEpoch(now_ns)).write(&mut logon);
        LogonFields::new(0, 30).write(&mut logon);
        path.receive(logon.finish().expect("a Logon is short"), now_ns);
        path
    }

    /// Processes bytes from the client, received at `now_ns` (UTC).
    pub(crate) fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        self.session.receive(bytes, &mut self.store, &mut self.trader, now_ns);
    }

    /// Returns the number of requests sent to the venue.
    pub(crate) fn requests(&self) -> u64 {
        self.trader.translator.counters().requests
    }
}
