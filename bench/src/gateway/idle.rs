//! What a gateway takes while nobody trades: without sessions, and with a thousand that are logged on.

use std::time::{Duration, Instant};

use super::fix::log_on;
use super::threads::{resident, time_of};
use super::{Market, Setting};

const SESSIONS: usize = 1_000;

/// HeartBtInt: each side says so often that it is there.
const HEARTBEAT_S: u64 = 30;

/// How long is looked.
const LOOK: Duration = Duration::from_secs(20);

pub fn run() {
    println!("idle: processor time of the gateway's thread over {} s", LOOK.as_secs());
    println!("  {:<48} {:>12} {:>14}", "", "ms a second", "KiB a session");
    let market = Market::start(Setting::new(1));
    show("no session", 0, 0, || ());
    drop(market);

    let market = Market::start(Setting::new(SESSIONS));
    let address = market.gateway.address();
    let before = resident();
    let mut sessions: Vec<_> =
        (0..SESSIONS).map(|index| log_on(address, index, HEARTBEAT_S).0).collect();
    let memory = resident().saturating_sub(before);
    let (mut next, began) = (0, Instant::now());
    let every = Duration::from_secs(HEARTBEAT_S) / SESSIONS as u32;
    show(&format!("{SESSIONS} sessions, a heartbeat each {HEARTBEAT_S} s both ways"), SESSIONS, memory, || {
        while every * (next as u32) < began.elapsed() {
            sessions[next % SESSIONS].heartbeat();
            next += 1;
        }
    });
    let status = market.gateway.status();
    let are_on = status.clients.iter().filter(|client| client.is_logged_on).count();
    assert_eq!(are_on, SESSIONS, "sessions ended");
    println!();
}

fn show(name: &str, sessions: usize, memory: u64, mut each: impl FnMut()) {
    let (began, before) = (Instant::now(), time_of("gateway"));
    while began.elapsed() < LOOK {
        each();
        std::thread::sleep(Duration::from_millis(10));
    }
    let milliseconds = (time_of("gateway") - before) as f64 / 1e6 / began.elapsed().as_secs_f64();
    let each = if sessions > 0 { format!("{:.0}", memory as f64 / 1024.0 / sessions as f64) } else { String::new() };
    println!("  {name:<48} {milliseconds:>12.2} {each:>14}");
}
