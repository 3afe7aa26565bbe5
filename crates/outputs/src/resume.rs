//! A session that goes on at the same server, or at another one of the same pair, with each record once.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dbn::{Metadata, Record as _, RecordBuf, RecordRef};
use tapeworks_packet::stop;
use tapeworks_runtime::world::{System, World};
use tapeworks_store::{Schema, is_snapshot};

use crate::subscriber::{Records, SubscribeError, Subscriber, SubscriberOptions};

/// How far back a session begins anew, in ns, if the times of all records since then are kept.
const WINDOW_NS: u64 = 10_000_000_000;
/// How many times of a record type are kept.
const KEPT: usize = 1 << 16;

/// What a session that is begun anew has to leave out: what has come already. Each record type has a place of its own, since the time
/// of an interval's record is the interval's beginning.
///
/// A live server replays, in the order in which they came, the records whose time is `start=` or later. Times may step back: what
/// waited behind a gap comes behind what filled it. So a session begins anew some seconds before its last time, and leaves out as
/// many records as it has had from there on.
#[derive(Default, Debug)]
pub struct Resume {
    /// The receive time of the first record, in ns.
    first: Option<u64>,
    /// By record type.
    places: HashMap<u8, Place>,
    /// Whether the connection began with a requested snapshot.
    has_snapshot: bool,
}

/// The records of one type.
#[derive(Default, Debug)]
struct Place {
    /// Of the first and the greatest receive time, in ns.
    first: u64,
    last: u64,
    /// The times of the last records.
    times: VecDeque<u64>,
    /// The greatest time that is kept no longer.
    gone: u64,
    /// Where the session was begun anew, and how many records from there on are still to be left out.
    from: u64,
    left: usize,
    /// Whether a record came that is none of the snapshot which was requested.
    is_past_snapshot: bool,
}

impl Place {
    fn note(&mut self, received: u64) {
        if self.times.is_empty() {
            self.first = received;
        }
        if self.times.len() == KEPT {
            self.gone = self.gone.max(self.times.pop_front().unwrap_or_default());
        }
        self.times.push_back(received);
        self.last = self.last.max(received);
    }

    /// Where to begin anew. What came at the first time may have begun before the session did.
    fn begin(&mut self) {
        let oldest = self.first.max(self.gone).saturating_add(1);
        self.from = self.last.saturating_sub(WINDOW_NS).max(oldest).min(self.last);
        self.left = self.times.iter().filter(|time| **time >= self.from).count();
    }
}

impl Resume {
    /// Of a session that has begun, with a snapshot of the present or without.
    pub fn new(has_snapshot: bool) -> Self {
        Self { has_snapshot, ..Self::default() }
    }

    /// A connection begins, with a snapshot of the present or without.
    pub fn connected(&mut self, has_snapshot: bool) {
        self.has_snapshot = has_snapshot;
        self.places.values_mut().for_each(|place| place.is_past_snapshot = false);
    }

    /// Takes note of a record. `false` when it has come already.
    pub fn takes(&mut self, rtype: u8, received: u64, is_flagged: bool) -> bool {
        if received == u64::MAX {
            return true;
        }
        let place = self.places.entry(rtype).or_default();
        // A venue's own snapshot is flagged too: it is of the stream, and a replay has it again.
        if self.has_snapshot && is_flagged && !place.is_past_snapshot {
            return true;
        }
        place.is_past_snapshot = true;
        if place.left > 0 {
            place.left -= usize::from(received >= place.from);
            return false;
        }
        self.first.get_or_insert(received);
        place.note(received);
        true
    }

    /// Where to begin anew for records of these schemas; `None` when nothing has come.
    pub fn begin(&mut self, schemas: &[Schema]) -> Option<u64> {
        let first = self.first?;
        self.places.values_mut().filter(|place| !place.times.is_empty()).for_each(Place::begin);
        // Of a schema without a record so far, the interval of the first record of others counts.
        let start = |schema: &Schema| match self.places.get(&schema.rtype()) {
            Some(place) if !place.times.is_empty() => place.from,
            _ => first.saturating_sub(schema.interval_ns().unwrap_or(0)),
        };
        schemas.iter().map(start).min()
    }
}

/// How long a lost session is tried again.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long each try to go on may take: the other server is the next.
pub const TRY: Duration = Duration::from_secs(2);

/// The pause after all servers were tried.
const PAUSE: Duration = Duration::from_millis(100);

/// Connects to the first of these servers that serves, beginning with that at the place `first`, and around. Returns its place.
/// `options.address` does not count.
///
/// # Errors
/// Each server's, in the order in which they were tried. A request to stop ends the tries.
pub fn connect_to_one_in<W: World>(
    options: &SubscriberOptions,
    addresses: &[SocketAddr],
    first: usize,
) -> Result<(usize, Subscriber<W>), Vec<SubscribeError>> {
    let mut failed = Vec::new();
    for (at, address) in addresses.iter().enumerate().cycle().skip(first).take(addresses.len()) {
        match Subscriber::connect_in(&SubscriberOptions { address: *address, ..options.clone() }) {
            Ok(session) => return Ok((at, session)),
            Err(error) => {
                let is_stopped = error.is_stopped();
                failed.push(error);
                if is_stopped {
                    break;
                }
            }
        }
    }
    Err(failed)
}

/// A subscription to one of several servers with the same records, such as the two plants of a pair. When the connection is lost it goes on
/// at the next server: with a replay from some seconds before its last record, of which it leaves out what has come already.
pub struct Failover<W: World = System> {
    options: SubscriberOptions,
    schemas: Vec<Schema>,
    addresses: Vec<SocketAddr>,
    /// The server of the session.
    at: usize,
    session: Subscriber<W>,
    resume: Resume,
    record: RecordBuf,
    /// Times that it went on.
    resumed: u64,
    /// Gets the news.
    say: fn(&str),
}

impl<W: World> std::fmt::Debug for Failover<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Failover({:?}, {:?})", self.addresses, self.session)
    }
}

impl<W: World> Failover<W> {
    /// Connects to the first of these servers that serves; `options.address` does not count. `say` gets the news of each server that is
    /// lost.
    ///
    /// # Errors
    /// [`SubscribeError`]: the last server's, when none serves.
    pub fn connect_in(
        options: &SubscriberOptions,
        addresses: &[SocketAddr],
        say: fn(&str),
    ) -> Result<Self, SubscribeError> {
        let connected = connect_to_one_in(options, addresses, 0);
        let (at, session) = connected.map_err(|failed| {
            failed.into_iter().next_back().unwrap_or_else(|| SubscribeError::Refused {
                address: options.address,
                said: "no server is named".to_owned(),
            })
        })?;
        let schemas = options.schemas.iter().filter_map(|schema| schema.parse().ok()).collect();
        Ok(Self {
            options: options.clone(),
            schemas,
            addresses: addresses.to_vec(),
            at,
            session,
            resume: Resume::new(options.snapshot),
            record: RecordBuf::from(dbn::SystemMsg::default()),
            resumed: 0,
            say,
        })
    }

    /// The head of the stream.
    pub fn metadata(&self) -> &Metadata {
        self.session.metadata()
    }

    /// The server of the session.
    fn address(&self) -> SocketAddr {
        self.addresses.get(self.at).copied().unwrap_or(self.options.address)
    }

    /// How often it went on.
    pub const fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Goes on at the next server that serves. `reason`: why the session is over.
    fn go_on(&mut self, reason: &str) -> Result<(), SubscribeError> {
        let mut options = self.options.clone();
        if let Some(last) = self.resume.begin(&self.schemas) {
            (options.start, options.snapshot) = (Some(last), false);
        }
        options.patience = options.patience.min(TRY);
        let began: Instant = W::instant();
        loop {
            match connect_to_one_in(&options, &self.addresses, self.at + 1) {
                Ok((at, session)) => {
                    self.resume.connected(options.snapshot);
                    (self.at, self.session) = (at, session);
                    self.resumed += 1;
                    (self.say)(&format!("{reason}; goes on at {}", self.address()));
                    return Ok(());
                }
                Err(failed) => {
                    let is_over = |error: &SubscribeError| error.is_stopped() || W::since(began) > PATIENCE;
                    if let Some(failed) = failed.into_iter().next_back().filter(is_over) {
                        return Err(failed);
                    }
                }
            }
            if stop::is_requested() {
                let (address, source) = (self.address(), stop::stopped());
                return Err(SubscribeError::Connection { address, source });
            }
            W::sleep(PAUSE);
        }
    }

    /// Whether the record that came is in its place now; otherwise there is another try.
    fn take(&mut self) -> Result<bool, SubscribeError> {
        let address = self.address();
        let over = match self.session.next_record() {
            Ok(Some(record)) => {
                let (kind, received) = (record.header().rtype, record.raw_index_ts());
                if !self.resume.takes(kind, received, is_snapshot(&record)) {
                    return Ok(false);
                }
                match RecordBuf::try_from(record) {
                    Ok(record) => {
                        self.record = record;
                        return Ok(true);
                    }
                    Err(source) => return Err(SubscribeError::Decode { address, source }),
                }
            }
            Ok(None) => format!("{address}: the server has ended the session"),
            Err(error) if error.is_timeout() || error.is_stopped() => return Err(error),
            Err(error) => error.to_string(),
        };
        self.go_on(&over).map(|()| false)
    }
}

impl<W: World> Records for Failover<W> {
    fn has_more(&self) -> bool {
        self.session.has_more()
    }

    fn next_record(&mut self) -> Result<Option<RecordRef<'_>>, SubscribeError> {
        while !self.take()? {}
        Ok(Some(self.record.as_rec_ref()))
    }
}
