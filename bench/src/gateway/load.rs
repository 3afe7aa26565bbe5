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

use super::fix::{Heard, Receiver, Request, Sender, heard, log_on};
use super::threads::time_of;
use super::{Market, SYMBOLS, Setting};
use crate::Options;

const SESSIONS: usize = 20;

/// The rates that are tried, in orders a second, for a few seconds each.
const RATES: [u64; 6] = [5_000, 10_000, 20_000, 30_000, 40_000, 50_000];
const TRY_SECONDS: u64 = 5;

/// A rate is held if its last answer comes so soon after the last order was due.
const BEHIND: Duration = Duration::from_millis(200);

/// The long run.
const SECONDS: u64 = 60;

/// Orders are sent so often: those that are due in between go together, as they do where a client has many.
const STEP: Duration = Duration::from_micros(500);

/// How one run went.
struct Load {
    /// From when an order was due to its acceptance.
    times: Histogram<u64>,
    /// How long after the last order was due everything was answered.
    behind: Duration,
    accepted: u64,
    filled: u64,
    /// Orders that the gateway did not take, because it had lost the venue: at more than the machine does.
    refused: u64,
    /// Reports that came twice, or of other kinds.
    others: u64,
    /// Processor time an order, in us: gateway, its disk thread, exchange, clients.
    cost: [f64; 4],
}

const THREADS: [&str; 4] = ["gateway", "gateway-disk", "exchange", "load"];

pub fn run(options: &Options) {
    println!(
        "load: {SESSIONS} FIX sessions, each order accepted and filled; gateway, exchange and clients on {} processors",
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    println!(
        "  {:>10} {:>8} {:>9} {:>9} {:>9} {:>9} {:>6}  us of a processor an order: gateway, its disk thread, exchange, clients",
        "orders/s", "seconds", "p50 us", "p99 us", "p99.9 us", "behind ms", "lost"
    );
    let mut best = None;
    for rate in RATES {
        let load = drive(rate, TRY_SECONDS);
        show(rate, TRY_SECONDS, &load);
        if load.behind <= BEHIND && load.refused == 0 {
            best = Some(rate);
        } else {
            break;
        }
    }
    let (Some(rate), true) = (best, options.rounds > 1) else { return };
    let load = drive(rate, SECONDS);
    show(rate, SECONDS, &load);
    let [gateway, disk, exchange, clients] = load.cost;
    println!(
        "  50,000 a second would take {:.0} % of a processor for the gateway, {:.0} % for the exchange, {:.0} % for the clients\n",
        (gateway + disk) * 5.0,
        exchange * 5.0,
        clients * 5.0
    );
}

fn show(rate: u64, seconds: u64, load: &Load) {
    let us = |part| load.times.value_at_quantile(part) as f64 / 1e3;
    let orders = rate * seconds;
    let lost = if load.refused > 0 { 0 } else { orders - load.accepted + (orders - load.filled) };
    println!(
        "  {rate:>10} {seconds:>8} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {lost:>6}  {:.2}, {:.2}, {:.2}, {:.2}",
        us(0.5),
        us(0.99),
        us(0.999),
        load.behind.as_secs_f64() * 1e3,
        load.cost[0],
        load.cost[1],
        load.cost[2],
        load.cost[3],
    );
    if load.refused > 0 {
        println!("  {:>19} {} orders were refused: the session with the venue had ended", "", load.refused);
    }
    assert_eq!((lost, load.others), (0, 0), "reports are missing, or came twice");
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
    let done = AtomicU64::new(0);
    let mut load = std::thread::scope(|scope| {
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let done = &done;
        let sending = named("load").spawn_scoped(scope, move || send(senders, rate, total, began));
        let receiving =
            named("load").spawn_scoped(scope, move || receive(receivers, rate, total, began, done));
        // Their times are gone when they have ended.
        while done.load(Ordering::Acquire) == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let after = THREADS.map(time_of);
        done.store(2, Ordering::Release);
        sending.expect("a thread").join().expect("no thread has panicked");
        let mut load = receiving.expect("a thread").join().expect("no thread has panicked");
        for ((cost, after), before) in load.cost.iter_mut().zip(after).zip(before) {
            *cost = after.saturating_sub(before) as f64 / 1e3 / total as f64;
        }
        load
    });
    load.behind = load.behind.saturating_sub(Duration::from_nanos(due_ns(rate, total - 1)));
    load
}

const fn due_ns(rate: u64, number: u64) -> u64 {
    number * 1_000_000_000 / rate
}

fn send(mut senders: Vec<Sender>, rate: u64, total: u64, began: Instant) {
    let mut number = 0;
    while number < total {
        let now_ns = began.elapsed().as_nanos() as u64;
        while number < total && due_ns(rate, number) <= now_ns {
            let (client, request) = order(number);
            senders[client].request(request);
            number += 1;
        }
        std::thread::sleep(STEP);
    }
    // The receiver reads to the end; a session that closed before would be missed.
    std::mem::forget(senders);
}

fn receive(mut receivers: Vec<Receiver>, rate: u64, total: u64, began: Instant, done: &AtomicU64) -> Load {
    let (mut poll, mut events) = (Poll::new().expect("the kernel polls"), Events::with_capacity(64));
    for (index, receiver) in receivers.iter().enumerate() {
        let descriptor = receiver.stream.as_raw_fd();
        let mut source = SourceFd(&descriptor);
        poll.registry().register(&mut source, Token(index), Interest::READABLE).expect("the kernel polls");
    }
    let times = Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are valid");
    let mut load =
        Load { times, behind: Duration::ZERO, accepted: 0, filled: 0, refused: 0, others: 0, cost: [0.0; 4] };
    let mut seen = vec![0u8; total as usize];
    while load.filled + load.accepted + 2 * load.refused < 2 * total {
        poll.poll(&mut events, Some(Duration::from_secs(10))).expect("the kernel polls");
        if events.is_empty() {
            break;
        }
        for event in &events {
            let receiver = &mut receivers[event.token().0];
            // Readiness is reported once; what comes meanwhile is reported again.
            receiver.read();
            let now_ns = began.elapsed().as_nanos() as u64;
            while let Some(message) = receiver.next() {
                let (number, kind, last) = match heard(message) {
                    Heard::Report(number, kind, last) => (number, kind, last),
                    heard => {
                        load.refused += u64::from(heard == Heard::Refused);
                        continue;
                    }
                };
                let seen = &mut seen[number as usize];
                match (kind, last, *seen) {
                    (b'0', _, 0) => {
                        *seen = 1;
                        load.accepted += 1;
                        load.times.saturating_record(now_ns.saturating_sub(due_ns(rate, number)));
                    }
                    (b'F', 100, 1) => {
                        *seen = 2;
                        load.filled += 1;
                    }
                    _ => load.others += 1,
                }
            }
        }
    }
    load.behind = began.elapsed();
    done.store(1, Ordering::Release);
    while done.load(Ordering::Acquire) == 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    load
}
