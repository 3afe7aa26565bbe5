//! Exchanges that accept orders, live: each has a thread, the native gateway's two ports, a port per OUCH user, a journal of the
//! day, and a market-data line.
//!
//! [`tapeworks_matching::orders`] has the gateways and the matching engine; this module adds the sockets, the threads, and the store.

mod durable;
mod host;
mod report;
mod shared;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::Interest;
use tapeworks_generator::itch_line::{ItchLine, ItchLineOptions, Listed};
use tapeworks_matching::orders::{Gate, LedgerEntry};
use tapeworks_order_session::native::Channel;
use tapeworks_runtime::refusals::{OnRefusal, Refusals};
use tapeworks_runtime::world::{
    Listener as _, Poll as _, Source as _, System, ThreadHandle as _, Wake as _, World,
};
use tapeworks_time::Nanos;
use tapeworks_time::clock;

use self::durable::DurableExchange;
use self::host::{Host, Publication, WAKER};
use self::shared::Shared;
use crate::config::{Config, Venue};
use crate::error::VenuesError;
use crate::order_config::{OrderVenue, PublicationSetting};
use crate::report::Counters as ServerCounters;
use crate::servers::Servers;
use crate::wires::{Wire, Wires, listen};

pub use self::durable::Recovered;
pub use self::report::{OrderReport, ledger_json};
pub use self::shared::Counters as ConnectionCounters;

/// The addresses of an exchange, with the ports that the kernel chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderAddresses {
    /// The exchange's name.
    pub name: String,
    /// The native real-time channel.
    pub real_time: SocketAddr,
    /// The native recovery channel.
    pub recovery: SocketAddr,
    /// The address of each OUCH user's session, with the user's name.
    pub ouch: Vec<(String, SocketAddr)>,
    /// The destinations of line A and, if it exists, line B.
    pub lines: Vec<std::net::SocketAddrV4>,
    /// The address for retransmission requests.
    pub retransmission: Option<SocketAddr>,
    /// The address for snapshots.
    pub snapshot: Option<SocketAddr>,
    /// The state restored from the store, if there is a store.
    pub recovered: Option<Recovered>,
}

/// A running exchange.
#[derive(Debug)]
struct Exchange<W: World> {
    shared: Arc<Shared>,
    addresses: OrderAddresses,
    servers: Option<Arc<ServerCounters>>,
    waker: Arc<W::Waker>,
    servers_waker: Option<Arc<W::Waker>>,
    thread: Option<W::Handle<Result<(), VenuesError>>>,
    serving: Option<W::Handle<std::io::Result<()>>>,
}

/// The exchanges of a configuration. If dropped without [`OrderVenues::stop`], they end too.
#[derive(Debug)]
pub struct OrderVenues<W: World = System> {
    exchanges: Vec<Exchange<W>>,
    addresses: Vec<OrderAddresses>,
}

impl OrderVenues {
    /// Restores stored state, opens the sockets, and starts the exchanges of the configuration.
    ///
    /// On return they are listening. Refused and ended connections are reported to `on_refusal`.
    ///
    /// # Errors
    /// The exchange and address of a socket that cannot be opened, or a store that cannot be used.
    pub fn start(config: &Config, on_refusal: Option<OnRefusal>) -> Result<Self, VenuesError> {
        Self::start_in(config, on_refusal)
    }
}

impl<W: World> OrderVenues<W> {
    /// Like [`OrderVenues::start`], in any world.
    ///
    /// # Errors
    /// [`VenuesError`].
    pub fn start_in(config: &Config, on_refusal: Option<OnRefusal>) -> Result<Self, VenuesError> {
        let mut exchanges = Vec::new();
        for (place, venue) in config.orders.iter().enumerate() {
            exchanges.push(start::<W>(config, place, venue, on_refusal.clone())?);
        }
        let addresses = exchanges.iter().map(|exchange| exchange.addresses.clone()).collect();
        Ok(Self { exchanges, addresses })
    }

    /// Returns the addresses of the exchanges, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[OrderAddresses] {
        &self.addresses
    }

    /// Returns whether an exchange has ended, which happens only when it fails; [`OrderVenues::stop`] returns the error.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let has_ended = |thread: &W::Handle<_>| thread.is_finished();
        self.exchanges.iter().any(|exchange| exchange.thread.as_ref().is_some_and(has_ended))
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn report(&self) -> Vec<OrderReport> {
        let report = |exchange: &Exchange<W>| {
            let name = exchange.addresses.name.clone();
            OrderReport::new(name, exchange.shared.progress(), exchange.servers.as_deref())
        };
        self.exchanges.iter().map(report).collect()
    }

    /// Returns the ledgers of the exchanges, in the order of the configuration. They have entries if the options enable it, and
    /// outlive [`OrderVenues::stop`].
    #[must_use]
    pub fn ledgers(&self) -> Vec<Ledger> {
        self.exchanges.iter().map(|exchange| Ledger(Arc::clone(&exchange.shared))).collect()
    }

    /// Ends the day of every exchange now. The next day starts after the configured pause.
    pub fn end_day(&self) {
        for exchange in &self.exchanges {
            exchange.shared.end_day.store(true, Ordering::Release);
            // If this fails, the end waits until the next event is due.
            let _ = exchange.waker.wake();
        }
    }

    /// Ends the exchanges. Their stores keep the orders.
    ///
    /// # Errors
    /// The failure of an exchange.
    pub fn stop(mut self) -> Result<Vec<OrderReport>, VenuesError> {
        let mut ended = Ok(());
        for exchange in &mut self.exchanges {
            ended = ended.and(exchange.end());
        }
        let report = self.report();
        ended.map(|()| report)
    }
}

/// The true events of an exchange's orders, whatever faults make its users believe.
#[derive(Debug)]
pub struct Ledger(Arc<Shared>);

impl Ledger {
    /// Takes the entries since the last call. After an exchange is restored from its store, the entries of the whole day are
    /// returned again.
    #[must_use]
    pub fn take(&self) -> Vec<LedgerEntry> {
        self.0.take_ledger()
    }
}

impl<W: World> Drop for Exchange<W> {
    fn drop(&mut self) {
        // Nobody is left to receive the report.
        let _ = self.end();
    }
}

impl<W: World> Exchange<W> {
    fn end(&mut self) -> Result<(), VenuesError> {
        self.shared.stop.store(true, Ordering::Release);
        // If this fails, the end waits until the next event is due.
        let _ = self.waker.wake();
        let ended = self.thread.take().map(|thread| thread.join());
        self.shared.stop_servers.store(true, Ordering::Release);
        if let Some(waker) = &self.servers_waker {
            let _ = waker.wake();
        }
        let served = self.serving.take().map(|thread| thread.join());
        match (ended, served) {
            (Some(Err(_)), _) | (_, Some(Err(_))) => Err(VenuesError::Panicked),
            (Some(Ok(Err(error))), _) => Err(error),
            (_, Some(Ok(Err(cause)))) => Err(VenuesError::Servers(cause)),
            _ => Ok(()),
        }
    }
}

/// Binds the ports of an exchange, restores its day, and starts its threads.
fn start<W: World>(
    config: &Config,
    place: usize,
    venue: &OrderVenue,
    on_refusal: Option<OnRefusal>,
) -> Result<Exchange<W>, VenuesError> {
    let poll = W::Poll::new(256).map_err(VenuesError::Thread)?;
    let waker = Arc::new(poll.waker(WAKER).map_err(VenuesError::Thread)?);
    let mut listeners = Vec::new();
    let mut bind = |gate, what, address| {
        let failed = |cause| VenuesError::Listen { venue: venue.name.clone(), what, address, cause };
        let mut listener = W::Listener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let token = mio::Token(1 + listeners.len());
        listener.register(&poll, token, Interest::READABLE).map_err(VenuesError::Thread)?;
        listeners.push((gate, listener));
        Ok::<_, VenuesError>(bound)
    };
    let real_time = bind(Gate::Native(Channel::RealTime), "the real-time channel", venue.real_time)?;
    let recovery = bind(Gate::Native(Channel::Recovery), "the recovery channel", venue.recovery)?;
    let mut ouch = Vec::new();
    for (user, (address, named)) in venue.ouch.iter().zip(&venue.options.ouch_users).enumerate() {
        let bound = bind(Gate::Ouch { user }, "OUCH", *address)?;
        ouch.push((named.credentials.user.clone(), bound));
    }
    let (start, start_utc_ns) = (W::instant(), W::time_of_day().0);
    let midnight = clock::midnight_before(Nanos(start_utc_ns)).ok_or(VenuesError::Clock)?;
    let opened = DurableExchange::open(&venue.options, venue.store.as_ref(), midnight.0, start_utc_ns);
    let (exchange, recovered) =
        opened.map_err(|cause| VenuesError::Store { exchange: venue.name.clone(), cause })?;
    // If the clock was set back, time continues from the last input.
    let start_utc_ns = start_utc_ns.max(exchange.now_ns());
    let mut addresses = OrderAddresses {
        name: venue.name.clone(),
        real_time,
        recovery,
        ouch,
        lines: Vec::new(),
        retransmission: None,
        snapshot: None,
        recovered: venue.store.as_ref().map(|_| recovered),
    };
    let shared = Arc::new(Shared::default());
    let mut published = None;
    if let Some(setting) = &venue.publication {
        let made = publish::<W>(config, place, venue, setting, Arc::clone(&waker))?;
        addresses.lines.clone_from(&setting.lines);
        (addresses.retransmission, addresses.snapshot) = (made.retransmission, made.snapshot);
        published = Some(made);
    }
    let (publication, servers) =
        published.map_or((None, None), |made| (Some(made.publication), Some(made.servers)));
    let counters = servers.as_ref().map(|(_, counters)| Arc::clone(counters));
    let servers_waker = servers.as_ref().map(|(servers, _)| servers.waker());
    let serving = match servers {
        Some((servers, _)) => {
            let stop = Arc::clone(&shared);
            let serving = W::spawn("exchange servers", move || servers.run(&stop.stop_servers));
            Some(serving.map_err(VenuesError::Thread)?)
        }
        None => None,
    };
    let mut running = Exchange {
        shared: Arc::clone(&shared),
        addresses,
        servers: counters,
        waker,
        servers_waker,
        thread: None,
        serving,
    };
    let host = Host::<W> {
        name: venue.name.clone(),
        poll,
        listeners,
        exchange,
        publication,
        most_connections: venue.most_connections,
        refusals: Refusals::new("order client", on_refusal),
        shared,
        day_ends: venue.day_ends.clone(),
        day_pause_ns: venue.day_pause_ns,
        start,
        start_utc_ns,
    };
    let thread = W::spawn("exchange", move || host.run());
    running.thread = Some(thread.map_err(VenuesError::Thread)?);
    Ok(running)
}

/// A market-data line with its servers, before its threads run.
struct Published<W: World> {
    publication: Publication<W>,
    servers: (Servers<W>, Arc<ServerCounters>),
    retransmission: Option<SocketAddr>,
    snapshot: Option<SocketAddr>,
}

fn publish<W: World>(
    config: &Config,
    place: usize,
    venue: &OrderVenue,
    setting: &PublicationSetting,
    waker: Arc<W::Waker>,
) -> Result<Published<W>, VenuesError> {
    let market = Venue {
        live: setting.live.clone(),
        retransmission: setting.retransmission,
        snapshot: setting.snapshot,
        ..Venue::new(&venue.name, setting.live.kind, setting.lines.clone())
    };
    let (listening, reachable, store) = listen::<W>(&market, config)?;
    let lines: Result<Vec<_>, _> = setting
        .lines
        .iter()
        .map(|line| Wire::open(&venue.name, *line, config.hops, config.interface))
        .collect();
    let counters = Arc::clone(&listening.counters);
    let (request, requests) = W::channel();
    let (reply, replies) = W::channel();
    let servers =
        Servers::new(vec![listening], config.credentials.clone(), config.seed, request, Some(waker), replies)
            .map_err(VenuesError::Thread)?;
    let listed = venue.options.instruments.iter().zip(&venue.round_lots);
    let line = ItchLine::new(&ItchLineOptions {
        venue: setting.live.clone(),
        place,
        seed: config.seed,
        heartbeat_ns: config.heartbeat_ns,
        symbols: listed
            .map(|(instrument, round_lot)| Listed {
                symbol: instrument.symbol,
                tick_e8: instrument.tick_e8,
                round_lot: *round_lot,
            })
            .collect(),
    });
    let publication = Publication {
        line,
        wires: Wires::new(vec![lines?], vec![store]),
        requests,
        reply,
        servers: servers.waker(),
    };
    Ok(Published {
        publication,
        servers: (servers, counters),
        retransmission: reachable.retransmission,
        snapshot: reachable.snapshot,
    })
}
