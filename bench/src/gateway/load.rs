//! Many orders a second over 20 sessions: how many a gateway takes, what an order costs each thread, and that none is lost.
//!
//! Orders come in pairs, a buy and a sell of two sessions at one price, so each is accepted and filled whole: two reports an order, and
//! no book grows. An order is sent when it is due, and what is late is caught up, not left out.

use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::fix::{Heard, Receiver, Request, Sender, heard, log_on, text};
use super::threads::time_of;
use super::{Market, SYMBOLS, Setting};
use crate::Options;

const SESSIONS: usize = 20;

/// The rates that are tried, in orders a second, for a few seconds each.
const RATES: [u64; 6] = [5_000, 10_000, 20_000, 30_000, 40_000, 50_000];
const TRY_SECONDS: u64 = 5;

/// A rate is held if all orders are filled, and the last answer comes so soon after the last order was due.
const BEHIND: Duration = Duration::from_millis(200);

/// The long run, at the highest rate: whether that is held for a minute.
const SECONDS: u64 = 60;

/// Orders are sent so often: those that are due in between go together, as they do where a client has many.
const STEP: Duration = Duration::from_micros(500);

/// What became of an order, as bits: what the client was sent about it.
const ACCEPTED: u8 = 1;
const FILLED: u8 = 2;
/// Refused by the gateway: no venue was there to take it.
const REFUSED: u8 = 4;
/// Rejected or cancelled: how an order ends that was on its way, or worked, when the session with the venue ended.
const SETTLED: u8 = 8;
/// Whatever comes after one of these is a report too many.
const ENDED: u8 = FILLED | REFUSED | SETTLED;

/// The lines of the log that a run shows at most.
const MOST_LINES: usize = 20;

/// How one run went.
struct Load {
    /// From when an order was due to its acceptance.
    times: Histogram<u64>,
    /// How long after the last order was due everything was answered.
    behind: Duration,
    /// Orders that were sent; fewer than were due where a client's session ended.
    sent: u64,
    accepted: u64,
    filled: u64,
    /// Orders that the gateway did not take, because it had lost the venue.
    refused: u64,
    /// Orders that were rejected or cancelled, because the venue was lost with them.
    settled: u64,
    /// Orders that work at the end, as gateway and client know: those whose counterpart was refused.
    working: u64,
    /// Orders without an end that do not work.
    lost: u64,
    /// Reports of an order behind its last, or twice.
    doubles: u64,
    /// The first of these, or of other messages that no client should get.
    strange: Vec<String>,
    /// Processor time an order, in us: gateway, its disk thread, exchange, clients.
    cost: [f64; 4],
    /// What the gateway and the exchange have to say of the run.
    log: Vec<String>,
    /// The longest turn of the gateway's thread.
    longest_turn: Duration,
}

impl Load {
    fn new() -> Self {
        Self {
            times: Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are valid"),
            behind: Duration::ZERO,
            sent: 0,
            accepted: 0,
            filled: 0,
            refused: 0,
            settled: 0,
            working: 0,
            lost: 0,
            doubles: 0,
            strange: Vec::new(),
            cost: [0.0; 4],
            log: Vec::new(),
            longest_turn: Duration::ZERO,
        }
    }

    /// Whether every order was accepted and filled.
    const fn is_whole(&self) -> bool {
        self.filled == self.sent && self.is_sound()
    }

    /// Whether every order has its end, once.
    const fn is_sound(&self) -> bool {
        self.lost == 0 && self.doubles == 0
    }

    fn note(&mut self, line: String) {
        if self.strange.len() < MOST_LINES {
            self.strange.push(line);
        }
    }

    /// One report of an order, of which `seen` came before.
    fn count(&mut self, seen: &mut u8, kind: u8, last: u64, late_ns: u64) -> bool {
        let bit = match (kind, last) {
            (b'0', _) => ACCEPTED,
            (b'F', 100) => FILLED,
            (b'8' | b'4', _) => SETTLED,
            (b'j', _) => REFUSED,
            _ => 0,
        };
        let is_in_order = match bit {
            FILLED => *seen == ACCEPTED,
            ACCEPTED | REFUSED => *seen == 0,
            SETTLED => *seen & ENDED == 0,
            _ => false,
        };
        if !is_in_order {
            self.doubles += 1;
            return false;
        }
        *seen |= bit;
        match bit {
            ACCEPTED => {
                self.accepted += 1;
                self.times.saturating_record(late_ns);
            }
            FILLED => self.filled += 1,
            SETTLED => self.settled += 1,
            _ => self.refused += 1,
        }
        true
    }

    const fn ended(&self) -> u64 {
        self.filled + self.refused + self.settled
    }
}

const THREADS: [&str; 4] = ["gateway", "gateway-disk", "exchange", "load"];

/// Returns whether every order has its end, once: a gateway that cannot hold a rate refuses, and loses and doubles nothing.
/// `is_short`: only the long run.
pub fn run(options: &Options, is_short: bool) -> bool {
    println!(
        "load: {SESSIONS} FIX sessions, each order accepted and filled; gateway, exchange and clients on {} processors",
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    println!(
        "  {:>10} {:>8} {:>9} {:>9} {:>9} {:>9} {:>6}  us of a processor an order: gateway, its disk thread, exchange, clients",
        "orders/s", "seconds", "p50 us", "p99 us", "p99.9 us", "behind ms", "lost"
    );
    let mut is_sound = true;
    for rate in if is_short { &[][..] } else { &RATES } {
        let load = drive(*rate, TRY_SECONDS);
        show(*rate, TRY_SECONDS, &load);
        is_sound &= load.is_sound();
    }
    if options.rounds > 1 {
        let rate = RATES[RATES.len() - 1];
        let load = drive(rate, SECONDS);
        show(rate, SECONDS, &load);
        is_sound &= load.is_sound();
        let [gateway, disk, exchange, clients] = load.cost;
        println!(
            "  {rate} a second are {:.0} % of a processor for the gateway, {:.0} % for the exchange, {:.0} % for the clients\n",
            (gateway + disk) * rate as f64 / 1e4,
            exchange * rate as f64 / 1e4,
            clients * rate as f64 / 1e4
        );
    }
    is_sound
}

fn show(rate: u64, seconds: u64, load: &Load) {
    let us = |part| load.times.value_at_quantile(part) as f64 / 1e3;
    println!(
        "  {rate:>10} {seconds:>8} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>6}  {:.2}, {:.2}, {:.2}, {:.2}",
        us(0.5),
        us(0.99),
        us(0.999),
        load.behind.as_secs_f64() * 1e3,
        load.lost,
        load.cost[0],
        load.cost[1],
        load.cost[2],
        load.cost[3],
    );
    let is_held = load.is_whole() && load.behind <= BEHIND;
    if is_held && load.log.is_empty() {
        return;
    }
    if load.is_whole() && !is_held {
        println!(
            "  {:>19} fell behind: every order was filled, the last answer {:?} after its order was due",
            "", load.behind
        );
    }
    println!(
        "  {:>19} of {} orders {} were filled, {} refused at once, {} settled after the venue was lost, {} work; reports too many: {}",
        "", load.sent, load.filled, load.refused, load.settled, load.working, load.doubles
    );
    println!("  {:>19} longest turn of the gateway: {:.0} ms", "", load.longest_turn.as_secs_f64() * 1e3);
    let more = load.log.len().saturating_sub(MOST_LINES);
    for line in load.log.iter().take(MOST_LINES).chain(&load.strange) {
        println!("  {:>19} {line}", "");
    }
    if more > 0 {
        println!("  {:>19} and {more} more lines of the log", "");
    }
    if !load.is_sound() {
        println!(
            "  {:>19} FAILED: {} orders have no end, {} reports came too many",
            "", load.lost, load.doubles
        );
    }
}

fn order(number: u64) -> (usize, Request) {
    let pair = number / 2;
    // A buyer and a seller of two sessions.
    let client = ((pair * 2 + number % 2) % SESSIONS as u64) as usize;
    let symbol = SYMBOLS[(pair % SYMBOLS.len() as u64) as usize];
    (client, Request::New { number, symbol, is_buy: number.is_multiple_of(2), price_cents: 10_000 })
}

fn drive(rate: u64, seconds: u64) -> Load {
    let market = Market::start(Setting { orders: 1 << 18, ..Setting::new(SESSIONS) });
    let address = market.gateway.address();
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..SESSIONS).map(|index| log_on(address, index, 3_600)).unzip();
    let total = rate * seconds;
    let before = THREADS.map(time_of);
    let began = Instant::now();
    let (done, unsent) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut load = std::thread::scope(|scope| {
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let (done, unsent) = (&done, &unsent);
        let sending = named("load").spawn_scoped(scope, move || send(senders, rate, total, began, unsent));
        let receiving =
            named("load").spawn_scoped(scope, move || receive(receivers, rate, total, began, done, unsent));
        // Their times are gone when they have ended.
        while done.load(Ordering::Acquire) == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let after = THREADS.map(time_of);
        done.store(2, Ordering::Release);
        // The sockets stay open until the log is read.
        let _senders = sending.expect("a thread").join().expect("no thread has panicked");
        let (mut load, _receivers) = receiving.expect("a thread").join().expect("no thread has panicked");
        for ((cost, after), before) in load.cost.iter_mut().zip(after).zip(before) {
            *cost = after.saturating_sub(before) as f64 / 1e3 / total as f64;
        }
        // What works is not lost, if the gateway knows it too.
        load.working = load.working.min(market.gateway.status().open_orders);
        load.lost -= load.working;
        load.log = market.log.since(began);
        load.log.retain(|line| !line.ends_with("is logged on"));
        load.longest_turn = Duration::from_nanos(market.gateway.status().turn.longest_ns);
        load
    });
    load.behind = load.behind.saturating_sub(Duration::from_nanos(due_ns(rate, total - 1)));
    load
}

const fn due_ns(rate: u64, number: u64) -> u64 {
    number * 1_000_000_000 / rate
}

/// Sends the orders. `unsent` counts those of clients whose sessions ended.
fn send(mut senders: Vec<Sender>, rate: u64, total: u64, began: Instant, unsent: &AtomicU64) -> Vec<Sender> {
    let mut number = 0;
    while number < total {
        let now_ns = began.elapsed().as_nanos() as u64;
        while number < total && due_ns(rate, number) <= now_ns {
            let (client, request) = order(number);
            if senders[client].try_request(request).is_err() {
                unsent.fetch_add(1, Ordering::Release);
            }
            number += 1;
        }
        std::thread::sleep(STEP);
    }
    senders
}

fn receive(
    mut receivers: Vec<Receiver>,
    rate: u64,
    total: u64,
    began: Instant,
    done: &AtomicU64,
    unsent: &AtomicU64,
) -> (Load, Vec<Receiver>) {
    let (mut poll, mut events) = (Poll::new().expect("the kernel polls"), Events::with_capacity(64));
    for (index, receiver) in receivers.iter().enumerate() {
        let descriptor = receiver.stream.as_raw_fd();
        let mut source = SourceFd(&descriptor);
        poll.registry().register(&mut source, Token(index), Interest::READABLE).expect("the kernel polls");
    }
    let mut load = Load::new();
    let mut seen = vec![0u8; total as usize];
    while load.ended() + unsent.load(Ordering::Acquire) < total {
        poll.poll(&mut events, Some(Duration::from_secs(10))).expect("the kernel polls");
        if events.is_empty() {
            break;
        }
        for event in &events {
            let client = event.token().0;
            hear(&mut receivers[client], client, rate, began, &mut seen, &mut load);
        }
        load.behind = began.elapsed();
    }
    load.sent = total - unsent.load(Ordering::Acquire);
    load.lost = load.sent.saturating_sub(load.ended());
    load.working = seen.iter().filter(|seen| **seen == ACCEPTED).count() as u64;
    done.store(1, Ordering::Release);
    while done.load(Ordering::Acquire) == 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    (load, receivers)
}

/// Counts all that a client was sent.
fn hear(receiver: &mut Receiver, client: usize, rate: u64, began: Instant, seen: &mut [u8], load: &mut Load) {
    loop {
        // Readiness is reported once; what comes behind a read with room left is reported again.
        let is_more = match receiver.try_read() {
            Ok(is_more) => is_more,
            Err(error) => return load.note(format!("client {client}: {error}")),
        };
        let now_ns = began.elapsed().as_nanos() as u64;
        while let Some(message) = receiver.next() {
            let (number, kind, last) = match heard(message) {
                Heard::Report(number, kind, last) => (number, kind, last),
                Heard::Refused(number) => (number, b'j', 0),
                Heard::Ended => {
                    load.note(format!("client {client}: {}", text(message)));
                    continue;
                }
                Heard::TestRequest | Heard::Session => continue,
            };
            let late_ns = now_ns.saturating_sub(due_ns(rate, number));
            if !load.count(&mut seen[number as usize], kind, last, late_ns) {
                load.note(format!("too many: {}", text(message)));
            }
        }
        if !is_more {
            return;
        }
    }
}
