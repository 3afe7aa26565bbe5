//! The live part of the demo: simulated venues on loopback multicast, the plant, and a client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tapeworks_outputs::clients::server::ServerError;
use tapeworks_outputs::subscriber::{DEMO_KEY, Subscriber, SubscriberOptions};
use tapeworks_plant::Status;
use tapeworks_service::config::Config as PlantConfig;
use tapeworks_service::service::{Service, ServiceError};
use tapeworks_venues::{Config as VenuesConfig, Report, Venues, Wait};

use crate::commands::plant;
use crate::commands::subscribe::{self, Figures};
use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, number, thousands};
use crate::terminal::complain;
use crate::{interrupt, output, terminal};

/// The configurations in `examples/`, embedded in the program.
const VENUES: &str = include_str!("../../../embedded/venues.toml");
const PLANT: &str = include_str!("../../../embedded/plant.toml");

/// The number of orders at which a side of a book only shrinks: enough for ten levels.
const MOST_ORDERS: u32 = 100;

/// The size of each simulated venue's retransmission store, in bytes. The store of the plant's multicast is twice as large.
const STORE_BYTES: usize = 16 << 20;

/// The user's options.
pub(super) struct Choice {
    pub(super) port: u16,
    pub(super) web_port: u16,
    pub(super) rate: u64,
    /// `None` runs until Ctrl-C.
    pub(super) seconds: Option<Duration>,
}

pub(super) fn config_errors(errors: &[tapeworks_runtime::config::ConfigError]) -> Failure {
    Failure::Config(errors.iter().map(ToString::to_string).collect())
}

/// Returns a loopback address. Port 0 lets the system choose a port.
pub(super) fn address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Multicast groups that other demos on this machine do not use: 16 groups of the organization-local range (RFC 2365), chosen
/// by the process id, on a free port.
pub(super) struct Groups {
    first: u32,
    port: u16,
}

/// The upper half of 239.192.0.0/14; `examples/` uses the lower half.
const FIRST_GROUP: u32 = u32::from_be_bytes([239, 194, 0, 0]);

impl Groups {
    pub(super) fn choose() -> Result<Self> {
        let free = UdpSocket::bind(address(0)).and_then(|socket| socket.local_addr());
        let port = free.map_err(|error| Failure::Failed(format!("no free UDP port: {error}")))?.port();
        Ok(Self { first: FIRST_GROUP + (std::process::id() % (1 << 13)) * 16, port })
    }

    /// Returns one of the 16 groups.
    pub(super) const fn get(&self, number: u32) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from_bits(self.first + number % 16), self.port)
    }
}

/// Adds advice to the error of an address in use.
fn advice(error: ServiceError) -> Failure {
    let flag = match &error {
        ServiceError::Clients(ServerError::Bind { .. }) => " (another port: --port; 0 for any)",
        #[cfg(feature = "web")]
        ServiceError::Web(tapeworks_service::web::WebError::Bind { .. }) => {
            " (another port: --web-port; 0 for any)"
        }
        _ => "",
    };
    Failure::Failed(format!("{error}{flag}"))
}

/// Limits the resources of a demo, however long it runs: orders, retransmission stores and the journal.
fn bound(venues: &mut VenuesConfig, plant: &mut PlantConfig, journal: PathBuf) {
    // With the default number, books grow for hours. With this number they reach their final size within minutes.
    venues.most_orders = MOST_ORDERS;
    // At the default size the stores would grow for ten minutes, to a gigabyte.
    venues.store_bytes = STORE_BYTES;
    if let Some(multicast) = &mut plant.multicast {
        multicast.store_bytes = 2 * STORE_BYTES;
    }
    // Keep the example's limit of the journal, and its checkpoints, from which replays start once old segments are removed.
    if let Some(setting) = &mut plant.plant.journal {
        setting.folder = journal;
    }
    // A demo has no days worth keeping.
    plant.roll = None;
}

pub(super) fn run(out: &Path, choice: &Choice) -> Result {
    let mut venues = VenuesConfig::parse("examples/exchange/loopback.toml", VENUES)
        .map_err(|errors| config_errors(&errors))?;
    venues.rate = choice.rate;
    // A demo that serves until Ctrl-C shares the machine with other programs.
    venues.wait = if choice.seconds.is_none() { Wait::Park } else { Wait::Rest };
    venues.injected = Some(out.join("injected.json"));
    // Each demo has its own multicast groups, so that several demos can run.
    let groups = Groups::choose()?;
    let lines = |venue: usize| [0, 1].map(|line| groups.get(2 * venue as u32 + line));
    for (number, venue) in venues.venues.iter_mut().enumerate() {
        venue.lines = lines(number).to_vec();
        venue.retransmission = Some(address(0));
        venue.snapshot = Some(address(0));
    }
    let mut plant =
        PlantConfig::parse("examples/plant/loopback.toml", PLANT).map_err(|errors| config_errors(&errors))?;
    let journal = out.join("journal");
    super::remove(&journal)?;
    bound(&mut venues, &mut plant, journal);
    plant.plant.shared_memory = Some(out.join("shared-memory"));
    if let Some(clients) = &mut plant.clients {
        clients.address = address(choice.port);
    }
    if let Some(web) = &mut plant.web {
        web.address = address(choice.web_port);
    }
    if let Some(multicast) = &mut plant.multicast {
        multicast.group = groups.get(2 * venues.venues.len() as u32);
        multicast.retransmission = Some(address(0));
        multicast.soupbintcp = Some(address(0));
    }
    let venues = Venues::start(venues)?;
    for (number, (venue, addresses)) in plant.plant.venues.iter_mut().zip(venues.addresses()).enumerate() {
        venue.lines = lines(number).map(SocketAddr::V4).to_vec();
        venue.retransmission = addresses.retransmission.map(Into::into);
        venue.snapshot = addresses.snapshot.map(Into::into);
    }
    let (log, refusals) = channel();
    let on_refusal = Arc::new(move |refused: &tapeworks_runtime::refusals::Refused| {
        // The log may have ended already.
        let _unheard = log.send(refused.clone());
    });
    let service = Service::start(&plant, Some(on_refusal)).map_err(advice)?;
    let mut text = String::new();
    if let Some(clients) = service.clients_address() {
        text.push_str(&format!(
            "clients   {clients}  databento.Live(key=\"{DEMO_KEY}\", gateway=\"127.0.0.1\", port={}), dataset TAPEWORKS.DEMO\n",
            clients.port()
        ));
        text.push_str(&format!(
            "          tapeworks subscribe {clients} --schema cmbp-1 --snapshot --limit 20\n"
        ));
    }
    if let Some(url) = service.web_url() {
        text.push_str(&format!("page      {url}\n"));
    }
    if let (Some(multicast), [Some(retransmission), _]) = (&plant.multicast, service.multicast_addresses()) {
        let group = multicast.group;
        text.push_str(&format!(
            "multicast tapeworks subscribe --multicast {group} --retransmission {retransmission} --limit 20\n"
        ));
    }
    text.push_str(&format!("memory    tapeworks tap {} --limit 20\n\n", out.join("shared-memory").display()));
    output::print(&text)?;
    let Some(seconds) = choice.seconds else {
        complain("serving until Ctrl-C");
        plant::watch(&service, &refusals, Default::default(), |_| interrupt::is_requested());
        let has_failed = service.has_ended();
        finish(venues, service, None)?;
        return Ok(if has_failed { Ending::WithProblems } else { Ending::Complete });
    };
    let figures = listen(&service, seconds)?;
    if interrupt::is_requested() {
        return Ok(Ending::Interrupted);
    }
    finish(venues, service, figures.as_ref())?;
    Ok(Ending::Complete)
}

/// Subscribes to the NBBO for a given time.
fn listen(service: &Service, time: Duration) -> Result<Option<Figures>> {
    let Some(address) = service.clients_address() else { return Ok(None) };
    let connected = Subscriber::connect(&SubscriberOptions {
        address,
        key: DEMO_KEY.to_owned(),
        dataset: "TAPEWORKS.DEMO".to_owned(),
        schemas: vec!["cmbp-1".to_owned()],
        symbols: Vec::new(),
        snapshot: false,
        start: None,
        slow_reader: None,
        ts_out: false,
        timeout: Some(Duration::from_millis(100)),
        patience: Duration::from_secs(5),
    });
    let mut subscriber = match connected {
        // The user stopped the demo before the client connected.
        Err(error) if error.is_stopped() => return Ok(None),
        connected => connected?,
    };
    let until = Instant::now() + time;
    subscribe::receive(&mut subscriber, None, Some(until), 0, |_| Ok(()), || Ok(()), |_| {}).map(Some)
}

/// Stops the venues, then the plant once it has received all messages, and shows the reports of both.
fn finish(venues: Venues, service: Service, figures: Option<&Figures>) -> Result<()> {
    let began = Instant::now();
    let before = venues.report();
    let handles = service.handles();
    let report = venues.stop()?;
    let status = || handles.plant.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    let is_done = |status: &Status| {
        status.engine.messages >= before.messages
            && status.channels.iter().all(|channel| !channel.is_recovering)
    };
    while !is_done(&status()) && began.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(50));
    }
    service.stop()?;
    let status = handles.report();
    output::print(&plant::show(&status))?;
    output::print(&compare(&report, &status.plant))?;
    if let Some(figures) = figures {
        output::print(&format!("\na client of cmbp-1, the synthetic NBBO: {}\n", figures.text()))?;
    }
    Ok(())
}

/// Compares the losses that the venues injected with the plant's counts.
fn compare(report: &Report, status: &Status) -> String {
    let mut table = Table::new(&[
        ("line", Align::Left),
        ("messages left out by the venue", Align::Right),
        ("missed by the plant", Align::Right),
        ("sent twice", Align::Right),
        ("seen twice", Align::Right),
    ]);
    for (venue, channel) in report.venues.iter().zip(&status.channels) {
        for ((sent, line), name) in venue.live.lines.iter().zip(&channel.lines).zip(["A", "B"]) {
            table.row([
                format!("{} {name}", channel.name),
                thousands(sent.injected.dropped_messages),
                thousands(line.counters.lost),
                thousands(sent.injected.duplicated_messages),
                thousands(line.counters.repeated),
            ]);
        }
    }
    format!(
        "\nFaults that the venues injected, and what the plant counted (it joined late, by snapshots; {} messages a second):\n{}",
        number(report.rate()),
        table.render(terminal::width(), terminal::paint())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without limits, the demo wrote 630 GB a day and ended with 9.6 million orders.
    #[test]
    fn a_demonstration_takes_bounded_room_however_long_it_runs() {
        let mut venues = VenuesConfig::parse("venues.toml", VENUES).unwrap();
        let mut plant = PlantConfig::parse("plant.toml", PLANT).unwrap();
        bound(&mut venues, &mut plant, "here/journal".into());
        let sides = 2 * u64::from(venues.symbols) * venues.venues.len() as u64;
        assert!(sides * u64::from(venues.most_orders) < 1_000_000);
        // Each venue keeps the stores of two sessions.
        let stores = 2 * venues.store_bytes * venues.venues.len() + plant.multicast.unwrap().store_bytes;
        assert!(stores <= 256 << 20);
        let journal = plant.plant.journal.unwrap();
        assert_eq!(journal.folder, Path::new("here/journal"));
        assert!(journal.options.keep_bytes.is_some_and(|bytes| bytes <= 4 << 30));
        assert!(journal.checkpoint_every.is_some() && plant.roll.is_none());
    }
}
