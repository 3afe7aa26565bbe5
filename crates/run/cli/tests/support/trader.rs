//! A FIX client of a gateway.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tapeworks_fix_wire::field;
use tapeworks_gateway::client::FixClient;
use tapeworks_gateway::order_line::{OrderBook, OrderLine};
use tapeworks_order_session::fix::{Role, Settings};
use tapeworks_runtime::world::System;

/// How long an answer may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Trader {
    client: FixClient<System>,
    book: OrderBook,
}

impl Trader {
    /// Its orders are named by its CompID: `ALPHA-1`.
    pub(crate) fn connect(gateway: SocketAddr, comp_id: &str) -> Self {
        let settings = Settings::new(Role::Initiator, "FIX.4.4", comp_id, "TAPEWORKS");
        let client = FixClient::connect(gateway, settings, None, PATIENCE).unwrap();
        Self { client, book: OrderBook::new(&format!("{comp_id}-")) }
    }

    pub(crate) fn send(&mut self, line: &str) {
        let line = OrderLine::parse(line).unwrap().unwrap();
        let (kind, fields) = self.book.message(&line, self.client.now_ns()).unwrap();
        self.client.send(kind, &fields).unwrap();
    }

    /// ExecType (150) and Text (58) of the next report.
    pub(crate) fn report(&mut self) -> (String, String) {
        let began = Instant::now();
        loop {
            self.client.turn(Duration::from_millis(20)).unwrap();
            if let Some(message) = self.client.next_message() {
                let text =
                    |tag| String::from_utf8_lossy(field(&message, tag).unwrap_or_default()).into_owned();
                return (text(150), text(58));
            }
            assert!(began.elapsed() < PATIENCE, "no report");
        }
    }

    /// Sends an order; returns its first report.
    pub(crate) fn order(&mut self, line: &str) -> (String, String) {
        self.send(line);
        self.report()
    }

    /// Sends the order until its answer is the one that is waited for.
    #[track_caller]
    pub(crate) fn order_until(&mut self, line: &str, what: &str, is_it: impl Fn(&str, &str) -> bool) {
        let began = Instant::now();
        loop {
            let (kind, text) = self.order(line);
            if is_it(&kind, &text) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {kind} {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
