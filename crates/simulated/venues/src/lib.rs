//! Simulated venues that run live: multicast lines at a given rate, retransmission, and snapshots.
//!
//! [`tapeworks_generator`] makes the messages; this crate adds the sockets, two threads, and the configuration. One thread makes
//! the messages and sends them when they are due, the other serves clients. They share a store of sent messages per venue, locked
//! once per packet. Exchanges that accept orders have a thread each: [`orders`].
//!
//! A time is the wall clock at the start plus the monotonic time since. A message's timestamp is its due time, so a receiver
//! measures latency from the intended time.
//!
//! ```no_run
//! use tapeworks_venues::{Config, Venue, Venues};
//! use tapeworks_generator::VenueKind;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lines = vec!["239.192.1.1:30001".parse()?, "239.192.1.2:30002".parse()?];
//! let mut nasdaq = Venue::new("Nasdaq", VenueKind::Nasdaq, lines);
//! nasdaq.snapshot = Some("127.0.0.1:0".parse()?);
//! let venues = Venues::start(Config::new(vec![nasdaq]))?;
//! println!("snapshots at {:?}", venues.addresses()[0].snapshot);
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! println!("{}", venues.stop()?.to_json());
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod answers;
mod config;
mod error;
mod faults;
mod images;
mod order_config;
pub mod orders;
mod reading;
mod report;
mod servers;
mod wires;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapeworks_capture::new_file::NewFile;
use tapeworks_generator::live::{Live, LiveOptions, LiveReport};
use tapeworks_runtime::world::{Receive as _, SendTo as _, System, ThreadHandle as _, Wake as _, World};
use tapeworks_time::Nanos;
use tapeworks_time::clock;

use crate::images::Spoiler;
use crate::report::Counters;
use crate::servers::{ImageReply, ImageRequest, Servers};
use crate::wires::{Wire, Wires, listen};

pub use self::answers::AnswerFaults;
pub use self::config::{Config, Venue, Wait};
pub use self::error::{StoreError, VenuesError};
pub use self::images::SnapshotFaults;
pub use self::order_config::{OrderVenue, PublicationSetting, StoreSetting};
pub use self::wires::Addresses;
pub use crate::report::{Report, RetransmissionReport, SnapshotReport, VenueReport};

/// The thread sleeps if the next message is due later than this.
const SLEEP_FROM: Duration = Duration::from_micros(200);
/// A sleep may last this much longer than requested.
const OVERSLEEP: Duration = Duration::from_micros(100);
/// Shortest sleep of [`Wait::Park`].
const SHORT_SLEEP: Duration = Duration::from_millis(1);
/// Longest wait, which bounds the delay of a stop. A snapshot request ends a wait.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// How often the report is updated.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// The state that the threads share with the handle.
#[derive(Debug)]
struct Shared {
    /// Asks the market to end.
    stop: AtomicBool,
    /// Asks the servers to end.
    stop_servers: AtomicBool,
    is_finished: AtomicBool,
    progress: Mutex<Progress>,
}

/// The progress of the market.
#[derive(Debug, Clone)]
struct Progress {
    live: LiveReport,
    elapsed_ns: u64,
    /// Packets that the kernel refused, by venue and line.
    refused: Vec<Vec<u64>>,
}

/// Running venues. If dropped without [`Venues::stop`], they end too, but no report is written.
#[derive(Debug)]
pub struct Venues<W: World = System> {
    shared: Arc<Shared>,
    names: Vec<String>,
    addresses: Vec<Addresses>,
    counters: Vec<Arc<Counters>>,
    injected: Option<PathBuf>,
    start_utc_ns: u64,
    pacing: Option<W::Handle<()>>,
    serving: Option<W::Handle<std::io::Result<()>>>,
    waker: Arc<W::Waker>,
}

impl Venues {
    /// Opens the sockets and starts the venues. On return the servers are listening and the first messages are being sent.
    ///
    /// # Errors
    /// The venue and address of a socket that cannot be opened, or a market that is invalid.
    pub fn start(config: Config) -> Result<Self, VenuesError> {
        Self::start_in(config)
    }
}

impl<W: World> Venues<W> {
    /// Like [`Venues::start`], in any world.
    ///
    /// # Errors
    /// [`VenuesError`].
    pub fn start_in(config: Config) -> Result<Self, VenuesError> {
        let mut wires = Vec::new();
        let mut listening = Vec::new();
        let mut addresses = Vec::new();
        let mut stores = Vec::new();
        for venue in &config.venues {
            let (servers, reachable, store) = listen::<W>(venue, &config)?;
            listening.push(servers);
            addresses.push(reachable);
            stores.push(store);
            let lines: Result<Vec<_>, _> = venue
                .lines
                .iter()
                .map(|line| Wire::open(&venue.name, *line, config.hops, config.interface))
                .collect();
            wires.push(lines?);
        }
        let counters: Vec<_> = listening.iter().map(|venue| Arc::clone(&venue.counters)).collect();
        let (request, requests) = W::channel();
        let (reply, replies) = W::channel();
        let servers =
            Servers::new(listening, config.credentials.clone(), config.seed, request, None, replies)
                .map_err(VenuesError::Thread)?;
        let waker = servers.waker();

        let start = W::instant();
        let start_utc_ns = W::time_of_day().0;
        let midnight = clock::midnight_before(Nanos(start_utc_ns)).ok_or(VenuesError::Clock)?;
        let live = Live::new(&LiveOptions {
            seed: config.seed,
            start_utc_ns,
            midnight_ns: midnight.0,
            symbols: config.symbols,
            popularity: config.popularity,
            most_orders: config.most_orders,
            messages: config.messages,
            rate: config.rate,
            bursts: config.bursts.clone(),
            nights: config.nights.clone(),
            heartbeat_ns: config.heartbeat_ns,
            linger_ns: config.linger_ns,
            venues: config.venues.iter().map(|venue| venue.live.clone()).collect(),
        })?;
        let wires = Wires::new(wires, stores);
        let progress = Progress { live: live.report(), elapsed_ns: 0, refused: wires.refused() };
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            stop_servers: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
            progress: Mutex::new(progress),
        });
        let mut venues = Self {
            shared: Arc::clone(&shared),
            names: config.venues.iter().map(|venue| venue.name.clone()).collect(),
            addresses,
            counters,
            injected: config.injected,
            start_utc_ns,
            pacing: None,
            serving: None,
            waker: Arc::clone(&waker),
        };
        let stop = Arc::clone(&shared);
        let serving = W::spawn("venue servers", move || servers.run(&stop.stop_servers));
        venues.serving = Some(serving.map_err(VenuesError::Thread)?);
        let spoilers = config.venues.iter().zip(&venues.counters).zip(config.seed..);
        let spoilers = spoilers
            .map(|((venue, counters), seed)| {
                (Spoiler::new(venue.snapshot_faults, seed), Arc::clone(counters))
            })
            .collect();
        let market = Market::<W> {
            live,
            wires,
            wait: config.wait,
            start,
            requests,
            reply,
            waker,
            shared,
            last_message_ns: 0,
            spoilers,
            next_image: start,
            published: start,
        };
        let pacing = W::spawn("venues", move || market.run());
        venues.pacing = Some(pacing.map_err(VenuesError::Thread)?);
        Ok(venues)
    }

    /// Returns the addresses of the venues, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[Addresses] {
        &self.addresses
    }

    /// Returns whether all messages were sent and the ends of session repeated. The servers continue until [`Venues::stop`].
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.is_finished.load(Ordering::Acquire)
    }

    /// Returns the counters so far; those of the lines may be up to a tenth of a second old.
    #[must_use]
    pub fn report(&self) -> Report {
        let progress = self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let live = progress.live.venues.into_iter().zip(progress.refused);
        let venues = live.zip(self.names.iter().zip(&self.counters));
        Report {
            start_utc_ns: self.start_utc_ns,
            elapsed_ns: progress.elapsed_ns,
            messages: progress.live.messages,
            worst_late_ns: progress.live.worst_late_ns,
            venues: venues
                .map(|((live, refused_by_kernel), (name, counters))| VenueReport {
                    name: name.clone(),
                    live,
                    refused_by_kernel,
                    retransmission: counters.retransmission(),
                    snapshot: counters.snapshot(),
                })
                .collect(),
        }
    }

    /// Ends the sessions, the servers, and the threads, and writes the report if the configuration names a file for it.
    ///
    /// # Errors
    /// The failure of a thread, or a file that cannot be written.
    pub fn stop(mut self) -> Result<Report, VenuesError> {
        let ended = self.end();
        let report = self.report();
        if let Some(path) = &self.injected {
            // Replaces the report of an earlier run.
            let file = NewFile::create(path, true)?;
            let written = file.handle().and_then(|mut handle| writeln!(handle, "{:#}", report.to_json()));
            written.map_err(|cause| VenuesError::Write { path: path.clone(), cause })?;
            file.finish()?;
        }
        ended.map(|()| report)
    }

    fn end(&mut self) -> Result<(), VenuesError> {
        self.shared.stop.store(true, Ordering::Release);
        let paced = self.pacing.take().map(|thread| thread.join());
        self.shared.stop_servers.store(true, Ordering::Release);
        // If this fails, the thread notices within a tenth of a second.
        let _ = self.waker.wake();
        match (paced, self.serving.take().map(|thread| thread.join())) {
            (Some(Err(_)), _) | (_, Some(Err(_))) => Err(VenuesError::Panicked),
            (_, Some(Ok(Err(cause)))) => Err(VenuesError::Servers(cause)),
            _ => Ok(()),
        }
    }
}

impl<W: World> Drop for Venues<W> {
    fn drop(&mut self) {
        // Nobody is left to receive the report.
        let _ = self.end();
    }
}

/// The thread that makes the messages.
struct Market<W: World> {
    live: Live,
    wires: Wires<W>,
    wait: Wait,
    start: Instant,
    requests: W::Receiver<ImageRequest>,
    reply: W::Sender<ImageReply>,
    waker: Arc<W::Waker>,
    shared: Arc<Shared>,
    last_message_ns: u64,
    /// By venue: the faults of its snapshot server, and its counters.
    spoilers: Vec<(Spoiler, Arc<Counters>)>,
    /// The earliest time for the next image.
    next_image: Instant,
    /// When the report was last updated.
    published: Instant,
}

impl<W: World> Market<W> {
    fn now_ns(&self) -> u64 {
        W::since(self.start).as_nanos() as u64
    }

    fn run(mut self) {
        let mut waiting = Vec::new();
        let mut messages = 0;
        while !self.shared.stop.load(Ordering::Acquire) {
            self.serve_images(&mut waiting);
            let Some(due_ns) = self.live.next_due_ns() else {
                if !self.shared.is_finished.load(Ordering::Relaxed) {
                    self.publish_progress();
                    self.shared.is_finished.store(true, Ordering::Release);
                }
                waiting.extend(self.wait_for_request(LONGEST_WAIT, &waiting));
                continue;
            };
            let now_ns = self.now_ns();
            if due_ns > now_ns {
                waiting.extend(self.rest(due_ns - now_ns, &waiting));
                continue;
            }
            self.live.advance(now_ns, &mut self.wires);
            self.wires.send();
            if self.live.messages() > messages {
                messages = self.live.messages();
                self.last_message_ns = now_ns;
            }
            if W::since(self.published) >= REPORT_INTERVAL {
                self.publish_progress();
            }
        }
        let now_ns = self.now_ns();
        self.live.finish(now_ns, &mut self.wires);
        self.wires.send();
        self.publish_progress();
        self.shared.is_finished.store(true, Ordering::Release);
    }

    /// Waits for this long, because no message is due. Returns a request for an image that arrives during the wait.
    fn rest(&self, nanoseconds: u64, waiting: &[ImageRequest]) -> Option<ImageRequest> {
        let left = Duration::from_nanos(nanoseconds);
        match self.wait {
            Wait::Park | Wait::Rest | Wait::Sleep if left > SHORT_SLEEP => {
                return self.wait_for_request((left - OVERSLEEP).min(LONGEST_WAIT), waiting);
            }
            // Messages that come due during the sleep are sent together.
            Wait::Park => W::sleep(SHORT_SLEEP),
            Wait::Rest => W::sleep(left.max(SLEEP_FROM)),
            Wait::Sleep if left > SLEEP_FROM => W::sleep(left - OVERSLEEP),
            Wait::Sleep | Wait::Spin => W::pause(),
        }
        None
    }

    /// Waits for a request for an image, but not for long while other requests are waiting.
    fn wait_for_request(&self, longest: Duration, waiting: &[ImageRequest]) -> Option<ImageRequest> {
        let longest = if waiting.is_empty() { longest } else { longest.min(SHORT_SLEEP) };
        match self.requests.recv_timeout(longest) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                W::sleep(longest);
                None
            }
        }
    }

    /// Answers all waiting requests for an image of one venue with a single image. Images use at most a fifth of the thread's
    /// time, however many are requested.
    fn serve_images(&mut self, waiting: &mut Vec<ImageRequest>) {
        waiting.extend(std::iter::from_fn(|| self.requests.try_recv().ok()));
        let Some(first) = waiting.first() else { return };
        let began = W::instant();
        if began < self.next_image {
            return;
        }
        let venue = first.venue;
        let image = self.live.image(venue, self.now_ns()).and_then(|image| {
            let (spoiler, counters) = self.spoilers.get_mut(venue)?;
            let mut image = spoiler.spoil(image, counters)?;
            image.finish();
            Some(Arc::new(image))
        });
        waiting.retain(|request| {
            if request.venue != venue {
                return true;
            }
            if let Some(image) = &image {
                let reply = ImageReply { connection: request.connection, image: Arc::clone(image) };
                // The server may have ended.
                let _ = self.reply.send(reply);
            }
            false
        });
        self.next_image = began + 5 * W::since(began);
        // If this fails, the thread notices within a tenth of a second.
        let _ = self.waker.wake();
    }

    fn publish_progress(&mut self) {
        self.published = W::instant();
        let progress = Progress {
            live: self.live.report(),
            elapsed_ns: self.last_message_ns,
            refused: self.wires.refused(),
        };
        *self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

/// The README's examples, compiled as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
