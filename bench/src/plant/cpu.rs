//! The processor time of the plant's threads when few or no messages come.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tapeworks_outputs::multicast::server::MulticastSetting;
use tapeworks_outputs::subscriber::Records;
use tapeworks_plant::JournalSetting;
use tapeworks_service::config::WebSetting;
use tapeworks_service::service::Service;
use tapeworks_venues::{Config as Sending, Venues, Wait as Pace};

use super::{Folder, free_address, line, plant, subscribe, venue};

/// How long is looked, after a second in which everything begins.
const LOOK: Duration = Duration::from_secs(10);

/// Threads of a plant, as the system shows their names. All else in the process is the venue's, the clients' or the bench's.
const THREADS: [&str; 10] =
    ["ingest", "market", "journal", "disk", "state", "snapshots", "clients", "multicast", "stream", "web"];

pub fn run() {
    println!(
        "processor time of a plant that parks, with journal, clients' server, multicast and stream, in % of a core over {} s",
        LOOK.as_secs()
    );
    println!("  {:<44} {:>7}  by thread", "", "all");
    show("no messages", 0, 0);
    show("5,000 messages a second, nobody connected", 5_000, 0);
    show("5,000 messages a second, two clients (mbo)", 5_000, 2);
    show("100,000 messages a second, two clients (mbo)", 100_000, 2);
    println!();
}

/// Time on a processor so far, in ns, by thread.
fn times() -> BTreeMap<String, u64> {
    let mut times = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").expect("Linux has it").filter_map(Result::ok) {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let name = read("comm").trim().to_owned();
        let time = read("schedstat").split(' ').next().and_then(|time| time.parse::<u64>().ok());
        if THREADS.contains(&name.as_str()) {
            *times.entry(name).or_default() += time.unwrap_or_default();
        }
    }
    times
}

fn show(name: &str, rate: u64, clients: usize) {
    let (line, folder) = (line(), Folder::in_memory());
    let mut config = plant(line);
    config.plant.journal = Some(JournalSetting::new(folder.0.join("journal")));
    config.multicast = Some(MulticastSetting::new(super::line()));
    config.web = Some(WebSetting { address: free_address(), token: None, stream: true, tls: None });
    let service = Service::start(&config, None).expect("the plant starts");
    let is_over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..clients)
        .map(|_| {
            let mut client = subscribe(service.clients_address().expect("clients are served"), "mbo");
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                // A quiet moment is an error that passes.
                while !is_over.load(Ordering::Acquire) && !matches!(client.next_record(), Ok(None)) {}
            })
        })
        .collect();
    let sending = Sending { wait: Pace::Rest, messages: None, ..venue(line, rate.max(1), 0) };
    let venues = (rate > 0).then(|| Venues::start(sending).expect("the venue starts"));
    std::thread::sleep(Duration::from_secs(1));
    let (before, messages) = (times(), service.status().engine.messages);
    std::thread::sleep(LOOK);
    let (after, received) = (times(), service.status().engine.messages - messages);
    let percent = |nanoseconds: u64| nanoseconds as f64 / LOOK.as_nanos() as f64 * 100.0;
    let mut all = 0;
    let mut by_thread = Vec::new();
    for (thread, time) in &after {
        let time = time - before.get(thread).copied().unwrap_or_default().min(*time);
        all += time;
        by_thread.push((time, thread));
    }
    by_thread.sort();
    let shares: Vec<String> =
        by_thread.iter().rev().take(5).map(|(time, name)| format!("{name} {:.1}", percent(*time))).collect();
    let rate = received as f64 / LOOK.as_secs_f64();
    println!("  {name:<44} {:>6.1}%  {} ({rate:.0} messages a second)", percent(all), shares.join(", "));
    is_over.store(true, Ordering::Release);
    drop(venues.map(Venues::stop));
    let _ended = service.stop();
    readers.into_iter().for_each(|reader| drop(reader.join()));
}
