//! A plant that was away for some seconds: how long it takes until it has everything again.

use std::time::{Duration, Instant};

use tapeworks_follow::arbitration::RetransmissionOptions;
use tapeworks_plant::JournalSetting;
use tapeworks_service::service::Service;
use tapeworks_venues::{Venues, Wait};

use super::{Folder, free_address, line, plant, venue};

/// Messages a second, all of one venue.
const RATE: u64 = 100_000;

/// Seconds without the plant.
const OUTAGES: [u64; 3] = [1, 10, 30];

/// How long the plant listens before it is stopped.
const BEFORE: Duration = Duration::from_secs(2);

/// When a recovery is hopeless.
const LONGEST: Duration = Duration::from_secs(60);

pub fn run() {
    println!("outage: {RATE} messages a second; the plant, with a journal, is stopped and started again");
    println!(
        "  {:>8} {:>12} {:>10} {:>14} {:>12} {:>12} {:>10}",
        "outage s", "recovered", "requests", "recovery s", "caught up s", "messages/s", "missing"
    );
    for seconds in OUTAGES {
        outage(seconds);
    }
    println!();
}

fn outage(seconds: u64) {
    let line = line();
    let folder = Folder::on_disk();
    let server = free_address();
    let mut config = plant(line);
    config.plant.journal = Some(JournalSetting::new(folder.0.join("journal")));
    for venue in &mut config.plant.venues {
        venue.retransmission = Some(server.into());
        venue.arbiter.retransmission = Some(RetransmissionOptions::default());
    }
    let mut sending = venue(line, RATE, RATE * 3_600);
    sending.wait = Wait::Sleep;
    for venue in &mut sending.venues {
        venue.retransmission = Some(server);
    }
    let before = Service::start(&config, None).expect("the plant starts");
    let venues = Venues::start(sending).expect("the venue starts");
    std::thread::sleep(BEFORE);
    before.stop().expect("the plant ends well");
    std::thread::sleep(Duration::from_secs(seconds));

    let started = Instant::now();
    let service = Service::start(&config, None).expect("the plant starts again");
    let status = loop {
        std::thread::sleep(Duration::from_millis(20));
        let status = service.status();
        let is_there = status
            .channels
            .iter()
            .all(|channel| !channel.is_recovering && channel.counters.long_recoveries > 0);
        if (is_there && !status.channels.is_empty()) || started.elapsed() > LONGEST {
            break status;
        }
    };
    // The status is up to 200 ms old.
    let caught_up = started.elapsed().as_secs_f64();
    let channel = status.channels.first().expect("there is a venue");
    let missing = channel.counters.missing;
    match channel.last_recovery {
        Some(last) => {
            let took = last.duration_ns() as f64 / 1e9;
            println!(
                "  {seconds:>8} {:>12} {:>10} {took:>14.2} {caught_up:>12.2} {:>12.0} {missing:>10}",
                last.recovered,
                last.requests,
                last.recovered as f64 / took,
            );
        }
        None => println!("  {seconds:>8} NOT RECOVERED within {} s", LONGEST.as_secs()),
    }
    service.stop().expect("the plant ends well");
    venues.stop().expect("the venue ends");
}
