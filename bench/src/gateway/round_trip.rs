//! Round trips: FIX client, gateway, exchange, and back; beside the same bytes through a bare forwarder to an echo and back.
//!
//! In order: one client sends a request when it has the answer to the last. Out of order: requests of many clients come at random times
//! at a stated rate, new orders and cancels of any order that works, and a time begins when its request was due. The kinds take turns.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender as Channel, channel};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::os::fd::AsRawFd as _;
use tapeworks_lab::plot::{self, Times};
use tapeworks_random::Random;

use super::echo::{Echo, Hop};
use super::fix::{Heard, Receiver, Request, Sender, connect, heard, log_on};
use super::threads::time_of;
use super::{Market, SYMBOLS, Setting};
use crate::Options;

/// Round trips of one kind in one turn; and as many before them, of which none counts, in tenths.
const IN_TURN: u64 = 2_000;

/// Clients that trade out of order, their requests a second, and the seconds of a turn.
const CLIENTS: usize = 10;
const RATE: u64 = 2_000;
const SECONDS: u64 = 2;

/// Orders that work at a time out of order: above it every request is a cancel.
const MOST_WORKING: usize = 200;

/// What is measured.
#[derive(Clone, Copy)]
enum Kind {
    Echo(Hop),
    Gateway { wait: &'static str, sync: &'static str },
}

/// A kind, its name, and its times in nanoseconds.
struct Measured {
    name: &'static str,
    kind: Kind,
    times: Vec<u64>,
    /// Processor time of the thread in the middle, and of the one at the end, in nanoseconds.
    cost: [u64; 2],
    trips: u64,
}

impl Measured {
    /// Measures round trips of clients, with the threads that are there.
    fn add(&mut self, measure: impl FnOnce(&mut Vec<u64>) -> u64) {
        let threads = match self.kind {
            Kind::Echo(_) => ["forwarder", "echo"],
            Kind::Gateway { .. } => ["gateway", "exchange"],
        };
        let before = threads.map(time_of);
        self.trips += measure(&mut self.times);
        for ((cost, before), thread) in self.cost.iter_mut().zip(before).zip(threads) {
            *cost += time_of(thread) - before;
        }
    }
}

const fn gateway(wait: &'static str, sync: &'static str) -> Kind {
    Kind::Gateway { wait, sync }
}

fn kinds(all: &[(&'static str, Kind)]) -> Vec<Measured> {
    all.iter()
        .map(|(name, kind)| Measured { name, kind: *kind, times: Vec::new(), cost: [0; 2], trips: 0 })
        .collect()
}

pub fn run(options: &Options) {
    if std::env::var("GW_ONLY").is_ok() {
        let mut all = kinds(&[
            ("echo", Kind::Echo(Hop::Blocking)),
            ("echo poll 50ms", Kind::Echo(Hop::Polling)),
            ("echo poll none", Kind::Echo(Hop::PollingNone)),
            ("gw", gateway("sleep", "100ms")),
        ]);
        if std::env::var("GW_ONLY").unwrap() == "2" {
            in_order(&mut all[3]);
            return;
        }
        for _ in 0..options.rounds {
            for one in &mut all {
                in_order(one);
            }
        }
        show("x", &mut all, &[0, 0, 0, 0]);
        return;
    }
    let mut all = kinds(&[
        ("bare echo through one hop", Kind::Echo(Hop::Blocking)),
        ("gateway, sleep, sync 100ms", gateway("sleep", "100ms")),
        ("gateway, sleep, sync never", gateway("sleep", "never")),
        ("gateway, sleep, sync always", gateway("sleep", "always")),
        ("bare echo, the hop spins", Kind::Echo(Hop::Spinning)),
        ("gateway, spin, sync 100ms", gateway("spin", "100ms")),
    ]);
    for _ in 0..options.rounds {
        for one in &mut all {
            in_order(one);
        }
    }
    show("in order: one request at a time, answers awaited", &mut all, &[0, 0, 0, 0, 4, 4]);
    draw(&options.folder, "gateway-in-order.svg", "Round trips in order", &all);

    let mut all = kinds(&[
        ("bare echo through one hop", Kind::Echo(Hop::Polling)),
        ("gateway, sleep, sync 100ms", gateway("sleep", "100ms")),
        ("gateway, spin, sync 100ms", gateway("spin", "100ms")),
    ]);
    for round in 0..options.rounds {
        for one in &mut all {
            out_of_order(one, round as u64);
        }
    }
    let title = format!(
        "out of order: {RATE} requests a second of {CLIENTS} clients at random, from when each was due"
    );
    show(&title, &mut all, &[0, 0, 0]);
    draw(&options.folder, "gateway-out-of-order.svg", "Round trips out of order", &all);
}

/// The requests of one client in order: an order, its cancel.
fn pair(number: u64) -> Request {
    let symbol = SYMBOLS[(number / 2) as usize % SYMBOLS.len()];
    let is_buy = (number / 8).is_multiple_of(2);
    // Far from each other: nothing trades.
    let price_cents = if is_buy { 9_000 } else { 11_000 };
    if number.is_multiple_of(2) {
        Request::New { number, symbol, is_buy, price_cents }
    } else {
        Request::Cancel { number, original: number - 1, symbol, is_buy }
    }
}

fn in_order(measured: &mut Measured) {
    match measured.kind {
        Kind::Echo(hop) => {
            let echo = Echo::start(hop, 1);
            let mut client = connect(echo.address, 0);
            measured.add(|times| time_in_order(&mut client, times));
        }
        Kind::Gateway { wait, sync } => {
            let market = Market::start(Setting { wait, sync, ..Setting::new(1) });
            let mut client = log_on(market.gateway.address(), 0, 3_600);
            measured.add(|times| time_in_order(&mut client, times));
        }
    }
}

fn time_in_order((sender, receiver): &mut (Sender, Receiver), times: &mut Vec<u64>) -> u64 {
    let total = IN_TURN + IN_TURN / 10;
    for number in 0..total {
        let began = Instant::now();
        sender.request(pair(number));
        receiver.answer(number);
        if number >= IN_TURN / 10 {
            times.push(began.elapsed().as_nanos() as u64);
        }
    }
    total
}

fn out_of_order(measured: &mut Measured, round: u64) {
    match measured.kind {
        Kind::Echo(hop) => {
            let echo = Echo::start(hop, CLIENTS);
            let mut clients: Vec<_> = (0..CLIENTS).map(|index| connect(echo.address, index)).collect();
            measured.add(|times| time_out_of_order(&mut clients, round, times));
        }
        Kind::Gateway { wait, sync } => {
            let market = Market::start(Setting { wait, sync, ..Setting::new(CLIENTS) });
            let address = market.gateway.address();
            let mut clients: Vec<_> = (0..CLIENTS).map(|index| log_on(address, index, 3_600)).collect();
            measured.add(|times| time_out_of_order(&mut clients, round, times));
        }
    }
}

/// An order that works: its client, and the order.
type Working = (usize, Request);

/// One thread sends, another receives: neither waits for the other.
fn time_out_of_order(clients: &mut [(Sender, Receiver)], round: u64, times: &mut Vec<u64>) -> u64 {
    let total = RATE * SECONDS;
    // By the number of a request: when it was due, and when its answer came, from the beginning.
    let due: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
    let began = Instant::now();
    let (mut senders, receivers): (Vec<_>, Vec<_>) =
        clients.iter_mut().map(|(sender, receiver)| (sender, receiver)).unzip();
    let (accepted, working) = channel::<u64>();
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(receivers, total, &due, began, &accepted));
        // The same times and choices for each kind.
        let mut random = Random::new(0x7A9E ^ round);
        let (mut requests, mut can_cancel) = (Vec::new(), VecDeque::<Working>::new());
        let mut due_ns = 0;
        for number in 0..total {
            while let Ok(accepted) = working.try_recv() {
                let (client, request): Working = requests[accepted as usize];
                if matches!(request, Request::New { .. }) {
                    can_cancel.push_back((client, request));
                }
            }
            // Times between requests are exponential: any number of them is under way.
            let uniform = f64::from(random.below(1 << 24) + 1) / f64::from(1 << 24);
            due_ns += (-uniform.ln() * 1e9 / RATE as f64) as u64;
            let cancels = can_cancel.len() > MOST_WORKING || (!can_cancel.is_empty() && random.below(2) == 0);
            let (client, request) = if cancels {
                let at = random.below(can_cancel.len() as u32) as usize;
                let Some((client, Request::New { number: original, symbol, is_buy, .. })) =
                    can_cancel.swap_remove_back(at)
                else {
                    unreachable!("only new orders are there")
                };
                (client, Request::Cancel { number, original, symbol, is_buy })
            } else {
                let symbol = SYMBOLS[random.below(SYMBOLS.len() as u32) as usize];
                let is_buy = random.below(2) == 0;
                let away = i64::from(random.below(500));
                let price_cents = if is_buy { 9_000 - away } else { 11_000 + away };
                let client = random.below(CLIENTS as u32) as usize;
                (client, Request::New { number, symbol, is_buy, price_cents })
            };
            requests.push((client, request));
            due[number as usize].store(due_ns, Ordering::Release);
            let wait = Duration::from_nanos(due_ns).saturating_sub(began.elapsed());
            if !wait.is_zero() {
                std::thread::sleep(wait);
            }
            senders[client].request(request);
        }
        let mut all = receiving.join().expect("no thread has panicked");
        // A tenth warms everything up.
        times.extend(all.drain(all.len() / 10..));
    });
    total
}

fn receive(
    mut receivers: Vec<&mut Receiver>,
    total: u64,
    due: &[AtomicU64],
    began: Instant,
    accepted: &Channel<u64>,
) -> Vec<u64> {
    let (mut poll, mut events) = (Poll::new().expect("the kernel polls"), Events::with_capacity(64));
    for (index, receiver) in receivers.iter().enumerate() {
        // The sender's side is the same socket: it may block, and this side reads only what is there.
        let descriptor = receiver.stream.as_raw_fd();
        let mut source = SourceFd(&descriptor);
        poll.registry().register(&mut source, Token(index), Interest::READABLE).expect("the kernel polls");
    }
    let mut times = Vec::with_capacity(total as usize);
    while (times.len() as u64) < total {
        poll.poll(&mut events, Some(Duration::from_secs(10))).expect("the kernel polls");
        assert!(!events.is_empty(), "{} of {total} answers came", times.len());
        let now_ns = began.elapsed().as_nanos() as u64;
        for event in &events {
            let receiver = &mut receivers[event.token().0];
            receiver.read();
            while let Some(message) = receiver.next() {
                if let Heard::Report(number, ..) = heard(message) {
                    times.push(now_ns.saturating_sub(due[number as usize].load(Ordering::Acquire)));
                    // The sender may have sent everything.
                    let _unheard = accepted.send(number);
                }
            }
        }
    }
    times
}

fn at(sorted: &[u64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize] as f64 / 1e3
}

/// The table. `floors`: for each kind the one that it is compared with.
fn show(title: &str, all: &mut [Measured], floors: &[usize]) {
    println!("{title}; {} round trips each", all[0].times.len());
    println!(
        "  {:<30} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>12} {:>14} {:>16}",
        "us",
        "p50",
        "MAD",
        "p90",
        "p99",
        "p99.9",
        "longest",
        "p50 to echo",
        "above 10x p50",
        "processor time"
    );
    all.iter_mut().for_each(|one| one.times.sort_unstable());
    let medians: Vec<f64> = all.iter().map(|one| at(&one.times, 0.5)).collect();
    for ((one, floor), median) in all.iter().zip(floors).zip(&medians) {
        let mut away: Vec<u64> = one.times.iter().map(|time| time.abs_diff((median * 1e3) as u64)).collect();
        away.sort_unstable();
        let far = one.times.iter().filter(|time| **time as f64 / 1e3 > 10.0 * median).count();
        println!(
            "  {:<30} {median:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>9.1} {:>11.2}x {:>12.3} % {:>7.1} + {:>5.1}",
            one.name,
            at(&away, 0.5),
            at(&one.times, 0.9),
            at(&one.times, 0.99),
            at(&one.times, 0.999),
            at(&one.times, 1.0),
            median / medians[*floor],
            far as f64 * 100.0 / one.times.len() as f64,
            one.cost[0] as f64 / 1e3 / one.trips as f64,
            one.cost[1] as f64 / 1e3 / one.trips as f64,
        );
    }
    println!();
}

fn draw(folder: &Path, name: &str, title: &str, all: &[Measured]) {
    let kinds: Vec<Times<'_>> =
        all.iter().map(|one| Times { name: one.name, sorted_ns: &one.times }).collect();
    let path = folder.join(name);
    match std::fs::write(&path, plot::histogram(title, &kinds)) {
        Ok(()) => println!("  {}\n", path.display()),
        Err(error) => println!("  {}: {error}\n", path.display()),
    }
}
