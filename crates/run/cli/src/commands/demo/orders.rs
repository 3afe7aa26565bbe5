//! The order part of the demo: FIX clients trade through the gateway at the simulated exchange, and the plant's book contains
//! their orders.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use dbn::{MboMsg, SymbolMappingMsg};
use hdrhistogram::Histogram;
use tapeworks_fix_wire::field;
use tapeworks_gateway::client::FixClient;
use tapeworks_gateway::config::Config as GatewayConfig;
use tapeworks_gateway::order_line::{Message, OrderBook, OrderLine};
use tapeworks_gateway::status::{Orders as OpenOrders, Status};
use tapeworks_gateway::{Command, Gateway};
use tapeworks_order_session::fix::{Role, Settings};
use tapeworks_outputs::subscriber::{DEMO_KEY, Records as _, Subscriber, SubscriberOptions};
use tapeworks_random::Random;
use tapeworks_runtime::world::System;
use tapeworks_service::config::Config as PlantConfig;
use tapeworks_service::service::Service;
use tapeworks_store::is_snapshot;
use tapeworks_venues::Config as VenuesConfig;
use tapeworks_venues::orders::OrderVenues;

use super::live::{Groups, address, config_errors};
use crate::commands::fix::load::{self, Figures, drive, percentiles};
use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, counted, thousands};
use crate::terminal::complain;
use crate::{interrupt, output, terminal};

/// The configurations in `examples/`, embedded in the program.
const EXCHANGE: &str = include_str!("../../../embedded/orders.toml");
const GATEWAY: &str = include_str!("../../../embedded/gateway.toml");
const PLANT: &str = include_str!("../../../embedded/orders_plant.toml");

/// Number of FIX clients.
const CLIENTS: u32 = 10;

/// Requests per second of each client.
const RATE: u64 = 200;

/// Time limit for a start, and for the plant to receive the last message.
const PATIENCE: Duration = Duration::from_secs(5);

/// The instruments that clients trade: symbol, reference price and tick in 1e-4, and a round lot.
const MARKET: [(&str, u32, u32, u32); 3] =
    [("AAPL", 1_900_000, 100, 100), ("MSFT", 4_100_000, 100, 100), ("VOD", 7_500, 5, 1)];

/// Prices are within this many ticks of the reference.
const TICKS: u32 = 20;

/// Maximum number of resting orders per client; beyond it the client cancels the oldest.
const MOST_RESTING: usize = 8;

/// A client that bids and offers around reference prices, and cancels orders that do not trade.
struct Trader {
    book: OrderBook,
    random: Random,
    /// ClOrdIDs of its working orders, oldest first.
    working: VecDeque<String>,
    fills: u64,
}

impl Trader {
    fn new(number: u32) -> Self {
        let (book, random) = (OrderBook::new(&format!("T{number}-")), Random::new(u64::from(number)));
        Self { book, random, working: VecDeque::new(), fills: 0 }
    }
}

impl load::Orders for Trader {
    fn next(&mut self, now_ns: u64) -> std::result::Result<Message, String> {
        if self.working.len() > MOST_RESTING
            && let Some(oldest) = self.working.pop_front()
        {
            return self.book.message(&OrderLine::Cancel(oldest), now_ns);
        }
        let (symbol, reference, tick, lot) = MARKET
            .get(self.random.below(MARKET.len() as u32) as usize)
            .copied()
            .unwrap_or(("AAPL", 1_900_000, 100, 100));
        let is_buy = self.random.below(2) == 0;
        let away = tick * self.random.below(TICKS);
        // Some orders cross, because buyers are above sellers.
        let middle = if is_buy { reference + 4 * tick } else { reference - 4 * tick };
        let price = if is_buy { middle - away } else { middle + away };
        let order = OrderLine::New {
            symbol: symbol.to_owned(),
            side: if is_buy { '1' } else { '2' },
            quantity: (lot * (1 + self.random.below(5))).to_string(),
            price: Some(format!("{}.{:04}", price / 10_000, price % 10_000)),
            time_in_force: '0',
            id: None,
        };
        self.book.message(&order, now_ns)
    }

    fn take(&mut self, message: &[u8]) {
        let id = |tag| field(message, tag).map(|id| String::from_utf8_lossy(id).into_owned());
        self.fills += u64::from(field(message, 150) == Some(b"F"));
        match (field(message, 150), field(message, 39)) {
            (Some(b"0"), _) => self.working.extend(id(11)),
            (_, Some(b"2")) => {
                let filled = id(11);
                self.working.retain(|id| Some(id) != filled.as_ref());
            }
            _ => {}
        }
    }
}

/// The exchange, the gateway in front of it, and a plant that receives its market data.
struct Running {
    exchange: OrderVenues,
    gateway: Gateway,
    plant: Service,
}

impl Running {
    fn start(out: &Path) -> Result<Self> {
        let mut exchange = VenuesConfig::parse("examples/exchange/orders.toml", EXCHANGE)
            .map_err(|errors| config_errors(&errors))?;
        // Each demo has its own ports.
        let groups = Groups::choose()?;
        let lines = [0, 1].map(|line| groups.get(line));
        for venue in &mut exchange.orders {
            (venue.real_time, venue.recovery) = (address(0), address(0));
            venue.ouch.fill(address(0));
            if let Some(publication) = &mut venue.publication {
                publication.lines = lines.to_vec();
                (publication.retransmission, publication.snapshot) = (Some(address(0)), Some(address(0)));
            }
        }
        let exchange = OrderVenues::start(&exchange, None)?;
        let Some(venue) = exchange.addresses().first() else {
            return Err(Failure::Failed("examples/exchange/orders.toml has no exchange".to_owned()));
        };

        let mut plant = PlantConfig::parse("examples/gateway/plant.toml", PLANT)
            .map_err(|errors| config_errors(&errors))?;
        plant.plant.shared_memory = None;
        plant.web = None;
        if let Some(clients) = &mut plant.clients {
            clients.address = address(0);
        }
        for one in &mut plant.plant.venues {
            one.lines = lines.map(std::net::SocketAddr::V4).to_vec();
            one.retransmission = venue.retransmission.map(Into::into);
            one.snapshot = venue.snapshot.map(Into::into);
        }
        let plant = Service::start(&plant, None)?;

        let mut gateway = GatewayConfig::parse("examples/gateway/loopback.toml", GATEWAY, out)
            .map_err(|errors| config_errors(&errors))?;
        gateway.host.listen = address(0);
        gateway.host.venue = vec![venue.real_time, venue.recovery];
        gateway.store = out.join("gateway-store");
        gateway.web = None;
        super::remove(&gateway.store)?;
        let mut clients = gateway.clients.into_iter();
        let Some(first) = clients.next() else {
            return Err(Failure::Failed("examples/gateway/loopback.toml has no client".to_owned()));
        };
        let client = |number| {
            let mut client = first.clone();
            client.name = format!("trader {number}");
            client.session.target_comp_id = comp_id(number);
            client
        };
        gateway.clients = (1..=CLIENTS).map(client).collect();
        let (gateway, _) = gateway.start(Box::new(|_| ()), None)?;
        Ok(Self { exchange, gateway, plant })
    }

    /// Returns the working orders of all clients.
    fn open_orders(&self) -> Option<OpenOrders> {
        let (done, answer) = channel();
        self.gateway.command(Command::Orders { all: false, most: 10_000, done });
        answer.recv_timeout(PATIENCE).ok()
    }

    fn stop(self) -> Result<()> {
        self.gateway.stop()?;
        self.plant.stop()?;
        self.exchange.stop()?;
        Ok(())
    }
}

fn comp_id(number: u32) -> String {
    format!("TRADER{number}")
}

/// Waits until the gateway accepts orders. Returns whether it does.
fn wait_for_venue(gateway: &Gateway) -> bool {
    let began = Instant::now();
    while !gateway.status().takes_orders && !interrupt::is_requested() {
        if began.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

pub(super) fn run(out: &Path, time: Duration) -> Result {
    let running = Running::start(out)?;
    if !wait_for_venue(&running.gateway) {
        return Err(Failure::Failed("the gateway has no session with the exchange".to_owned()));
    }
    let began = Instant::now();
    let to = running.gateway.address();
    let trade = |number| -> Result<(Figures, u64)> {
        let settings = Settings::new(Role::Initiator, "FIX.4.4", &comp_id(number), "TAPEWORKS");
        let mut client = FixClient::<System>::connect(to, settings, None, PATIENCE)?;
        let mut trader = Trader::new(number);
        // Spread the clients' requests evenly, instead of sending ten simultaneously.
        std::thread::sleep(Duration::from_secs(1) * number / (RATE as u32 * CLIENTS));
        let figures = drive(&mut client, RATE, time, &mut trader)?;
        client.log_out(Duration::from_secs(2));
        Ok((figures, trader.fills))
    };
    let results: Vec<Result<(Figures, u64)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=CLIENTS).map(|number| scope.spawn(move || trade(number))).collect();
        let panicked = || Err(Failure::Failed("a FIX client's thread has panicked".to_owned()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let (mut all, mut fills) = (Total::new()?, 0);
    for result in results {
        let (figures, filled) = result?;
        all.add(&figures);
        fills += filled;
    }
    if interrupt::is_requested() {
        return Ok(Ending::Interrupted);
    }
    output::print(&format!(
        "{} of {CLIENTS} FIX clients in {:.1} s, {} rejected, {}; {}\n\n",
        counted(all.sent, "request", "requests"),
        began.elapsed().as_secs_f64(),
        thousands(all.rejected),
        counted(fills, "fill", "fills"),
        match all.unanswered {
            0 => "every request was answered".to_owned(),
            count => format!("{} without an answer", thousands(count)),
        },
    ))?;
    let (table, is_same) = books(&running)?;
    output::print(&table)?;
    if !is_same {
        complain("the plant's book has not the orders that the gateway has");
    }
    let status = running.gateway.status();
    running.stop()?;
    output::print(&round_trips(&all.times, &status))?;
    let is_good = is_same && all.unanswered == 0;
    Ok(if is_good { Ending::Complete } else { Ending::WithProblems })
}

/// The totals over all clients.
struct Total {
    sent: u64,
    rejected: u64,
    unanswered: u64,
    times: Histogram<u64>,
}

impl Total {
    fn new() -> Result<Self> {
        Ok(Self { sent: 0, rejected: 0, unanswered: 0, times: load::histogram()? })
    }

    fn add(&mut self, figures: &Figures) {
        self.sent += figures.sent;
        self.rejected += figures.rejected;
        self.unanswered += figures.unanswered;
        // Both histograms have the same bounds.
        let _infallible = self.times.add(&figures.times);
    }
}

/// The orders on one side of a symbol: their number, total quantity, and best price in 1e-8.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Side {
    orders: u64,
    quantity: u64,
    best_e8: Option<i64>,
}

/// The sides of books, by symbol and whether it is the sell side.
type Sides = BTreeMap<(String, bool), Side>;

fn count(sides: &mut Sides, symbol: String, is_sell: bool, quantity: u64, price_e8: i64) {
    let side = sides.entry((symbol, is_sell)).or_default();
    side.orders += 1;
    side.quantity += quantity;
    let best = if is_sell { i64::min } else { i64::max };
    side.best_e8 = Some(side.best_e8.map_or(price_e8, |known| best(known, price_e8)));
}

/// Compares the gateway's orders with those in the plant's book. Returns the text, and whether they are equal.
fn books(running: &Running) -> Result<(String, bool)> {
    let began = Instant::now();
    let (mut ours, mut seen) = (Sides::new(), Sides::new());
    // The last messages may still be on their way to the plant.
    while ours.is_empty() || ours != seen {
        if began.elapsed() > PATIENCE || interrupt::is_requested() {
            break;
        }
        ours.clear();
        for order in running.open_orders().unwrap_or_default().orders {
            count(&mut ours, order.symbol, order.side != "Buy", u64::from(order.leaves), order.price_e8);
        }
        seen = plants_orders(&running.plant)?;
    }
    let mut table = Table::new(&[
        ("symbol", Align::Left),
        ("side", Align::Left),
        ("orders at the gateway", Align::Right),
        ("quantity", Align::Right),
        ("best", Align::Right),
        ("orders in the plant's book", Align::Right),
        ("quantity", Align::Right),
        ("best", Align::Right),
    ]);
    let mut keys: Vec<&(String, bool)> = ours.keys().chain(seen.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let cells = |sides: &Sides| {
            let side = sides.get(key).copied().unwrap_or_default();
            let best = side.best_e8.map_or_else(String::new, |price| format!("{:.4}", price as f64 / 1e8));
            [thousands(side.orders), thousands(side.quantity), best]
        };
        let ([orders, quantity, best], [seen_orders, seen_quantity, seen_best]) =
            (cells(&ours), cells(&seen));
        let (symbol, is_sell) = key;
        let side = if *is_sell { "sell" } else { "buy" };
        table.row([
            symbol.clone(),
            side.to_owned(),
            orders,
            quantity,
            best,
            seen_orders,
            seen_quantity,
            seen_best,
        ]);
    }
    Ok((table.render(terminal::width(), terminal::paint()), ours == seen))
}

/// Returns the orders in the plant's book, as a client receives them.
fn plants_orders(plant: &Service) -> Result<Sides> {
    let mut sides = Sides::new();
    let Some(address) = plant.clients_address() else { return Ok(sides) };
    let connected = Subscriber::connect(&SubscriberOptions {
        address,
        key: DEMO_KEY.to_owned(),
        dataset: "TAPEWORKS.DEMO".to_owned(),
        schemas: vec!["mbo".to_owned()],
        symbols: Vec::new(),
        snapshot: true,
        start: None,
        slow_reader: None,
        ts_out: false,
        timeout: Some(Duration::from_millis(100)),
        patience: PATIENCE,
    });
    let mut subscriber = match connected {
        Err(error) if error.is_stopped() => return Ok(sides),
        connected => connected?,
    };
    let mut symbols = BTreeMap::new();
    loop {
        match subscriber.next_record() {
            Ok(Some(record)) => {
                if let Some(mapping) = record.get::<SymbolMappingMsg>() {
                    let symbol = mapping.stype_out_symbol().unwrap_or_default().to_owned();
                    symbols.insert(mapping.hd.instrument_id, symbol);
                } else if is_snapshot(&record)
                    && let Some(order) = record.get::<MboMsg>()
                    && order.action as u8 == b'A'
                {
                    let symbol = symbols.get(&order.hd.instrument_id).cloned().unwrap_or_default();
                    count(
                        &mut sides,
                        symbol,
                        order.side as u8 == b'A',
                        u64::from(order.size),
                        order.price / 10,
                    );
                }
            }
            // No more records for a while, because trading is over.
            Err(error) if error.is_timeout() => return Ok(sides),
            Ok(None) => return Ok(sides),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Length of the longest bar, in characters.
const BAR: u64 = 40;

/// Formats the round trips as a histogram.
fn round_trips(times: &Histogram<u64>, status: &Status) -> String {
    let trip = &status.round_trip;
    let mut text = format!(
        "\nfrom when a request was due at its client to the first report of it, us: {}\nof that between the gateway's sockets, us: 50 % {} 99.9 % {}\n\n",
        percentiles(times),
        thousands(trip.p50_ns / 1_000),
        thousands(trip.p99_9_ns / 1_000),
    );
    let counts: Vec<(u64, u64)> = (0..40)
        .map(|power| 1_000u64 << power)
        .map(|from| (from, times.count_between(if from == 1_000 { 0 } else { from }, 2 * from - 1)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(1);
    let mut table = Table::new(&[("us", Align::Right), ("requests", Align::Right), ("", Align::Left)]);
    for (from, count) in counts {
        table.row([
            format!("{} to {}", thousands(from / 1_000), thousands(from / 500)),
            thousands(count),
            "#".repeat((count * BAR).div_ceil(most) as usize),
        ]);
    }
    text += &table.render(terminal::width(), terminal::paint());
    text
}
