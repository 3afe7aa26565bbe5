//! FIX clients that trade at random and keep track of their orders: for tests, in any world.

mod ledger;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tapeworks_fix_wire::{field, message_type, read_unsigned};
use tapeworks_order_session::fix::{Role, Settings};
use tapeworks_runtime::world::World;

use crate::client::FixClient;
use crate::order_line::{OrderBook, OrderLine};

pub use self::ledger::{Happened, Ledger};

/// The CompIDs of the clients.
pub const NAMES: [&str; 3] = ["A", "B", "C"];

fn text(message: &[u8], tag: u32) -> String {
    field(message, tag).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

fn number(message: &[u8], tag: u32) -> u64 {
    field(message, tag).and_then(|value| read_unsigned(value).ok()).unwrap_or(0)
}

/// An Execution Report as its client received it.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// ExecType (150).
    pub kind: String,
    /// OrderID (37).
    pub order_id: String,
    /// TrdMatchID (880); 0: none.
    pub match_id: u64,
    /// LastQty (32) and LastPx (31).
    pub last: (u64, String),
    /// LeavesQty (151).
    pub leaves: u64,
    /// CumQty (14).
    pub cumulative: u64,
    /// Whether Text (58) says that the report is in doubt.
    pub is_in_doubt: bool,
}

/// A client and its view of its orders.
pub struct Trader<W: World> {
    /// Its CompID.
    pub name: &'static str,
    /// Its session, from the first connection on.
    pub client: Option<FixClient<W>>,
    book: OrderBook,
    /// ClOrdIDs of the new orders that it sent.
    pub sent: BTreeSet<String>,
    /// ExecIDs that it received.
    pub executions: BTreeSet<String>,
    /// Execution reports that it received.
    pub reports: Vec<Received>,
    /// The filled quantity by OrderID (37).
    filled: BTreeMap<String, u64>,
    /// ClOrdIDs of requests that were executed or rejected.
    decided: BTreeSet<String>,
    /// ClOrdIDs of rejected requests.
    refused: BTreeSet<String>,
    /// LeavesQty and CumQty by OrderID (37).
    orders: BTreeMap<String, (u64, u64)>,
    /// ClOrdIDs of new orders that appeared in any message.
    pub answered: BTreeSet<String>,
    /// Errors in the messages that it received.
    pub faults: Vec<String>,
    /// Whether its Logons reset both sequence numbers to 1.
    begins_anew: bool,
}

impl<W: World> Trader<W> {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            client: None,
            book: OrderBook::new(&format!("{name}-")),
            sent: BTreeSet::new(),
            executions: BTreeSet::new(),
            reports: Vec::new(),
            filled: BTreeMap::new(),
            decided: BTreeSet::new(),
            refused: BTreeSet::new(),
            orders: BTreeMap::new(),
            answered: BTreeSet::new(),
            faults: Vec::new(),
            begins_anew: false,
        }
    }

    /// Connects, or reconnects. Returns whether the client is logged on.
    fn connect(&mut self, address: SocketAddr) -> bool {
        let longest = Duration::from_millis(200);
        match &mut self.client {
            Some(client) if client.is_logged_on() => true,
            Some(client) => client.connect_again(longest).is_ok(),
            None => {
                // FIX 5.0 SP2, whose reports contain the trade's number (880).
                let settings = Settings::new(Role::Initiator, "FIXT.1.1", self.name, "TAPEWORKS");
                // The gateway's clock may be wrong.
                let resets_on_logon = self.begins_anew;
                let settings = Settings { tolerance_ns: None, resets_on_logon, ..settings };
                self.client = FixClient::connect(address, settings, None, longest).ok();
                self.client.is_some()
            }
        }
    }

    fn send(&mut self, line: &str) {
        let Some(client) = self.client.as_mut().filter(|client| client.is_logged_on()) else { return };
        let Some(Ok(line)) = OrderLine::parse(line) else {
            return self.faults.push(format!("{}: no order line: {line}", self.name));
        };
        // An error means a cancel of an order that was never sent.
        let Ok((kind, fields)) = self.book.message(&line, client.now_ns()) else { return };
        if client.send(kind, &fields).is_ok() && kind == "D" {
            self.sent.insert(fields[0].1.clone());
        }
    }

    fn turn(&mut self, longest: Duration) {
        let Some(client) = &mut self.client else { return };
        let _ended = client.turn(longest);
        let messages: Vec<_> = std::iter::from_fn(|| client.next_message()).collect();
        for message in messages {
            self.answered.insert(text(&message, 11));
            self.answered.insert(text(&message, 379));
            if message_type(&message) == b"9" {
                self.refused.insert(text(&message, 11));
                self.decide(text(&message, 11));
            }
            if message_type(&message) != b"8" {
                continue;
            }
            let id = text(&message, 17);
            if !self.executions.insert(id.clone()) {
                self.faults.push(format!("{}: ExecID {id} came twice", self.name));
            }
            let (kind, client_id, order_id) = (text(&message, 150), text(&message, 11), text(&message, 37));
            // A cancel or replace report with two ClOrdIDs answers the request in ClOrdID (11).
            let is_decision = match kind.as_str() {
                "0" | "8" => true,
                "4" | "5" => field(&message, 41).is_some(),
                _ => false,
            };
            if kind == "8" {
                self.refused.insert(client_id.clone());
            }
            let leaves = number(&message, 151);
            let received = Received {
                kind: kind.clone(),
                order_id: order_id.clone(),
                match_id: number(&message, 880),
                last: (number(&message, 32), text(&message, 31)),
                leaves,
                cumulative: number(&message, 14),
                is_in_doubt: text(&message, 58).starts_with("In doubt"),
            };
            self.reports.push(received);
            // A rejected request has no order: apart from status reports, no later report has its ClOrdID.
            if !matches!(kind.as_str(), "8" | "I") && self.refused.contains(&client_id) {
                self.faults
                    .push(format!("{}: {client_id} was rejected, and is reported as {kind}", self.name));
            }
            if is_decision {
                self.decide(client_id);
            }
            if kind == "F" {
                let filled = self.filled.entry(order_id.clone()).or_default();
                *filled += number(&message, 32);
                if *filled != number(&message, 14) {
                    let cumulative = number(&message, 14);
                    let text = format!(
                        "{}: order {order_id} has CumQty {cumulative} after fills of {filled}",
                        self.name
                    );
                    self.faults.push(text);
                }
            }
            if order_id != "NONE" {
                self.orders.insert(order_id, (leaves, number(&message, 14)));
            }
        }
    }

    /// Notes that a request was executed or rejected.
    fn decide(&mut self, client_id: String) {
        if !self.decided.insert(client_id.clone()) {
            self.faults.push(format!("{}: {client_id} is decided twice", self.name));
        }
    }

    /// Returns the number of open orders in the client's view.
    pub fn open(&self) -> usize {
        self.orders.values().filter(|(leaves, _)| *leaves > 0).count()
    }

    /// Returns whether any report was in doubt.
    pub fn has_doubts(&self) -> bool {
        self.reports.iter().any(|report| report.is_in_doubt)
    }
}

/// All clients. `random` returns a number below its argument.
pub struct Market<W: World, R> {
    /// The random number generator that all clients share.
    pub random: R,
    /// The clients, one for each of [`NAMES`].
    pub traders: Vec<Trader<W>>,
    made: u64,
}

impl<W: World, R: FnMut(u32) -> u32> Market<W, R> {
    /// Creates clients that have not connected yet.
    pub fn new(random: R) -> Self {
        Self { random, traders: NAMES.map(Trader::new).into(), made: 0 }
    }

    /// Connects the clients that are disconnected. Returns whether all are logged on.
    pub fn connect(&mut self, address: SocketAddr) -> bool {
        self.traders.iter_mut().map(|trader| usize::from(trader.connect(address))).sum::<usize>()
            == NAMES.len()
    }

    /// Lets a random client send an order, a cancel, or a replace.
    pub fn act(&mut self) {
        let mut below = |bound| (self.random)(bound);
        let index = below(NAMES.len() as u32) as usize;
        let (symbol, side) = (["AAPL", "MSFT"][below(2) as usize], ["buy", "sell"][below(2) as usize]);
        let (quantity, price) = (1 + below(90), 100 + below(5));
        self.made += 1;
        let (choice, earlier) = (below(6), 1 + u64::from(below(self.made as u32)));
        let trader = &mut self.traders[index];
        let earlier = format!("{}-o{earlier}", trader.name);
        let line = match choice {
            0 => format!("cancel {earlier}"),
            1 => format!("replace {earlier} {quantity} @{price}"),
            _ => format!("new {symbol} {side} {quantity} @{price} id={}-o{}", trader.name, self.made),
        };
        trader.send(&line);
    }

    /// Sends, from the first client, one order per partition that cannot match, and one for an instrument that the exchange does
    /// not have. The exchange numbers that reject in its own series, as it does rejects of a halted partition.
    pub fn probe(&mut self) {
        for symbol in ["AAPL", "MSFT", "GONE"] {
            self.made += 1;
            let trader = &mut self.traders[0];
            let line = format!("new {symbol} buy 1 @1 id={}-o{}", trader.name, self.made);
            trader.send(&line);
        }
    }

    /// Resets the clients after the gateway has lost a part of its store. As after a call with its operators, they reset both
    /// sequence numbers to 1, and expect no answer to orders that nothing has answered yet.
    pub fn begin_anew(&mut self) {
        for trader in &mut self.traders {
            (trader.client, trader.begins_anew) = (None, true);
            let Trader { sent, answered, .. } = trader;
            sent.retain(|id| answered.contains(id));
        }
    }

    /// Lets each client read its messages, waiting for at most `longest`.
    pub fn turn(&mut self, longest: Duration) {
        self.traders.iter_mut().for_each(|trader| trader.turn(longest));
    }

    /// Waits until all clients are logged on, every order has an answer, and nothing arrives for a second.
    ///
    /// # Errors
    /// This does not happen within `patience`; the text says what is missing.
    pub fn settle(&mut self, address: SocketAddr, patience: Duration) -> Result<(), String> {
        let began = W::instant();
        let mut last = (0, W::instant());
        let mut probed = W::instant();
        loop {
            let are_back = self.connect(address);
            self.turn(Duration::from_millis(5));
            let count: usize = self.traders.iter().map(|trader| trader.executions.len()).sum();
            if count != last.0 || !are_back {
                last = (count, W::instant());
            }
            let mut open = self.traders.iter().flat_map(|trader| trader.sent.difference(&trader.answered));
            let example = open.next();
            if example.is_none() && W::since(last.1) > Duration::from_secs(1) {
                return Ok(());
            }
            if W::since(began) > patience {
                return Err(format!("all back: {are_back}; an order without an answer: {example:?}"));
            }
            // A report that an exchange left out shows only by the number of the next report.
            if example.is_some() && W::since(probed) > Duration::from_secs(1) {
                probed = W::instant();
                self.probe();
            }
        }
    }

    /// Returns each trade's quantities, as its buyer and its seller see them.
    fn trades(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut sides: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for report in self.traders.iter().flat_map(|trader| &trader.reports) {
            if report.kind == "F" {
                sides.entry(report.match_id).or_default().push(report.last.0);
            }
        }
        sides
    }

    /// Returns the number of trades that the clients know.
    pub fn trade_count(&self) -> usize {
        self.trades().len()
    }

    /// Returns what is wrong in the clients' view: each trade must be reported once to its buyer and once to its seller. If a venue
    /// invents trades, only a [`Ledger`] shows which are real.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.traders.iter().flat_map(|trader| trader.faults.clone()).collect();
        let is_whole = |quantities: &[u64]| matches!(quantities, [one, other] if one == other);
        if self.traders.iter().any(Trader::has_doubts) {
            return faults;
        }
        let trades = self.trades();
        let wrong = trades.iter().filter(|(_, quantities)| !is_whole(quantities));
        faults.extend(wrong.map(|(number, quantities)| format!("trade {number} is reported {quantities:?}")));
        faults
    }
}
