//! Sessions that resume at the same server or at the other one of a pair, with each record once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dbn::{Metadata, Record as _, RecordBuf, RecordRef};
use tapeworks_capture::stop;
use tapeworks_runtime::world::{System, World};
use tapeworks_store::live::schema_of_finished_snapshot;
use tapeworks_store::{Schema, is_market, is_snapshot};
use tapeworks_time::Nanos;
use tapeworks_time::clock::iso;

use crate::subscriber::{Records, SubscribeError, Subscriber, SubscriberOptions, refusal};

/// How far before its last record a session resumes, in ns, if the times of all records since then are kept.
const WINDOW_NS: u64 = 10_000_000_000;
/// Record times kept per record type.
const KEPT: usize = 1 << 16;

/// Decides which records of a resumed session are repeats.
///
/// A live server replays the records whose time is `start=` or later, in their order of arrival. Times may step back, because records
/// that waited behind a gap follow the records that filled it. A session therefore resumes some seconds before its last record, and
/// drops as many records as it has already received since then. A record later than every record received before is never dropped:
/// it shows that the replay has passed the point where the previous session ended.
///
/// Record types are tracked separately because the time of an interval's record is the beginning of the interval.
#[derive(Default, Debug)]
pub struct Resume {
    /// The receive time of the first record, in ns.
    first: Option<u64>,
    /// By record type.
    places: HashMap<u8, Place>,
    /// Whether the connection began with a requested snapshot.
    has_snapshot: bool,
    /// The record types whose requested snapshot is complete.
    finished: HashSet<u8>,
    /// Servers that have refused since the last record of the market.
    refusals: usize,
    /// Whether every server has refused a replay, so the session continues with the present.
    skips_replay: bool,
}

/// What [`Resume::take`] decides about a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The record arrived before.
    Repeat,
    /// The record is new.
    New,
    /// The record is new, and the server did not replay the records before it.
    AfterHole(Hole),
}

/// A span of receive times whose records of one type may be missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// The time of the last record before the hole, in ns since the epoch.
    pub from: u64,
    /// The time of the first record after the hole, in ns since the epoch.
    pub to: u64,
    /// The type of the records.
    pub rtype: u8,
}

impl std::fmt::Display for Hole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, to, rtype } = self;
        write!(f, "records of type {rtype} may be missing from {} to {}", iso(Nanos(*from)), iso(Nanos(*to)))
    }
}

/// The records of one type.
#[derive(Default, Debug)]
struct Place {
    /// The first and the latest receive time, in ns.
    first: u64,
    last: u64,
    /// The times of the last records.
    times: VecDeque<u64>,
    /// The latest time that is no longer kept, or that the requested snapshot includes.
    gone: u64,
    /// Where the session resumed, and how many records from there on are still to be dropped.
    from: u64,
    left: usize,
    /// Whether the server has not yet repeated any record since the session resumed.
    is_unconfirmed: bool,
    /// Whether a record outside the requested snapshot has arrived.
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

    /// Returns whether anything has arrived, even if only a snapshot.
    fn has_begun(&self) -> bool {
        !self.times.is_empty() || self.gone > 0
    }

    /// Chooses where to resume: after the first time, because records of that time may precede the session.
    fn begin(&mut self) {
        if self.times.is_empty() {
            (self.from, self.left) = (self.gone.saturating_add(1), 0);
            return;
        }
        let oldest = self.first.max(self.gone).saturating_add(1);
        self.from = self.last.saturating_sub(WINDOW_NS).max(oldest).min(self.last);
        self.left = self.times.iter().filter(|time| **time >= self.from).count();
        self.is_unconfirmed = true;
    }

    /// Returns whether a replayed record is a repeat.
    fn repeats(&mut self, received: u64) -> bool {
        if received > self.last {
            self.left = 0;
        }
        if self.left == 0 {
            return false;
        }
        if received >= self.from {
            self.left -= 1;
            self.is_unconfirmed = false;
        }
        true
    }
}

impl Resume {
    /// Creates the state of a session that has begun, with or without a snapshot of the present.
    pub fn new(has_snapshot: bool) -> Self {
        Self { has_snapshot, ..Self::default() }
    }

    /// Notes that a connection begins, with or without a snapshot of the present.
    pub fn connected(&mut self, has_snapshot: bool) {
        self.has_snapshot = has_snapshot;
        self.finished.clear();
        self.places.values_mut().for_each(|place| place.is_past_snapshot = false);
    }

    /// Notes a record that arrived, unless it is a repeat. A record of the session, not of the market, is always new.
    pub fn take(&mut self, record: &RecordRef<'_>) -> Taken {
        if let Some(schema) = schema_of_finished_snapshot(record) {
            self.finish_snapshot(schema);
        }
        if !is_market(record) {
            return Taken::New;
        }
        (self.refusals, self.skips_replay) = (0, false);
        self.takes(record.header().rtype, record.raw_index_ts(), is_snapshot(record))
    }

    fn takes(&mut self, rtype: u8, received: u64, is_flagged: bool) -> Taken {
        if received == u64::MAX {
            return Taken::New;
        }
        let place = self.places.entry(rtype).or_default();
        // A venue's own snapshot is flagged too: it belongs to the stream, and a replay repeats it.
        if self.has_snapshot && is_flagged && !place.is_past_snapshot {
            place.gone = place.gone.max(received);
            return Taken::New;
        }
        place.is_past_snapshot = true;
        if place.repeats(received) {
            return Taken::Repeat;
        }
        self.first.get_or_insert(received);
        let is_hole = std::mem::take(&mut place.is_unconfirmed);
        let hole = Hole { from: place.last, to: received, rtype };
        if is_hole {
            // A later replay may contain the missing records, so counting starts again after the hole.
            place.times.clear();
        }
        place.note(received);
        if is_hole { Taken::AfterHole(hole) } else { Taken::New }
    }

    /// Notes that the requested snapshot of a schema is complete. Until then records of some instruments were left out, but a
    /// replay includes them, so counting starts again.
    fn finish_snapshot(&mut self, schema: Schema) {
        if !self.has_snapshot {
            return;
        }
        self.finished.insert(schema.rtype());
        let Some(place) = self.places.get_mut(&schema.rtype()) else { return };
        place.gone = place.gone.max(place.last);
        place.last = place.gone;
        place.times.clear();
        if self.places.values().all(|place| place.times.is_empty()) {
            self.first = None;
        }
    }

    /// Counts a server that refused the subscription. Returns whether to give up: all `servers` have refused, and the session may not
    /// continue without a replay, or has nothing to continue from.
    pub fn refuse(&mut self, schemas: &[Schema], servers: usize, when_refused: WhenRefused) -> bool {
        self.refusals += 1;
        if self.refusals < servers {
            return false;
        }
        let may_skip = when_refused == WhenRefused::Continue && !self.skips_replay;
        let skips = may_skip && self.begin(schemas).is_some();
        if skips {
            (self.skips_replay, self.refusals) = (true, 0);
        }
        !skips
    }

    /// Sets the options of the next attempt: a replay from where the session was lost, or from now on if all servers refused one. They
    /// stay unchanged if the session has to be requested from its beginning.
    pub fn prepare(&mut self, schemas: &[Schema], options: &mut SubscriberOptions) {
        let Some(start) = self.begin(schemas) else { return };
        (options.start, options.snapshot) = (Some(start), false);
        if self.skips_replay {
            options.start = None;
            self.continue_from_now();
        }
    }

    /// Continues without a replay: nothing is repeated, and the first record of each type follows a hole.
    fn continue_from_now(&mut self) {
        self.places.values_mut().filter(|place| place.last > 0).for_each(|place| {
            (place.left, place.is_unconfirmed) = (0, true);
        });
    }

    /// Returns where to resume for records of these schemas. `None` if nothing has arrived, or if the requested snapshot is
    /// incomplete and must be requested again; the first record of each type that arrived beside it then follows a hole.
    fn begin(&mut self, schemas: &[Schema]) -> Option<u64> {
        if self.has_snapshot && !schemas.iter().all(|schema| self.finished.contains(&schema.rtype())) {
            self.continue_from_now();
            return None;
        }
        let of_snapshots = self.places.values().map(|place| place.gone).filter(|gone| *gone > 0).min();
        let first = self.first.or(of_snapshots)?;
        self.places.values_mut().filter(|place| place.has_begun()).for_each(Place::begin);
        // For a schema without a record so far, the interval of other schemas' first record counts.
        let start = |schema: &Schema| match self.places.get(&schema.rtype()) {
            Some(place) if place.has_begun() => place.from,
            _ => first.saturating_sub(schema.interval_ns().unwrap_or(0)),
        };
        schemas.iter().map(start).min()
    }
}

/// How long to keep reconnecting while no server accepts the session.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time limit of each attempt to resume, after which the next server is tried.
pub const TRY: Duration = Duration::from_secs(2);

/// The pause after the first attempt without a record; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Connects to the first of these servers that accepts, starting with index `first` and wrapping around. Returns its index.
/// `options.address` is ignored.
///
/// # Errors
/// The error of each server, in the order of the attempts. A request to stop ends the attempts.
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

/// What to do when every server refuses to replay the records since the session was lost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WhenRefused {
    /// Fail with the server's reason.
    #[default]
    Stop,
    /// Continue with the present, and report the hole.
    Continue,
}

/// A subscription to one of several servers with the same records, such as the two plants of a pair.
///
/// When the connection is lost, it resumes at the next server: it requests a replay from some seconds before its last record and drops
/// the records that arrived before. A hole in the replay is reported as a [`dbn::SystemMsg`] before the record that follows it.
/// Attempts that end without a record are followed by pauses that double. A refusal is final once every server has refused.
pub struct Failover<W: World = System> {
    options: SubscriberOptions,
    schemas: Vec<Schema>,
    addresses: Vec<SocketAddr>,
    when_refused: WhenRefused,
    metadata: Metadata,
    /// The index of the session's server.
    at: usize,
    session: Option<Subscriber<W>>,
    resume: Resume,
    record: RecordBuf,
    /// The record that follows a hole, while `record` reports the hole.
    after_hole: Option<RecordBuf>,
    trouble: Trouble,
    /// How many times it has resumed.
    resumed: u64,
    holes: u64,
    /// Receives a line about each lost server and each hole.
    say: fn(&str),
}

/// Attempts since the last market record.
#[derive(Default)]
struct Trouble {
    attempts: u32,
    /// When the last attempt ended.
    failed_at: Option<Instant>,
    /// When the last session was lost; `None` while there is one.
    lost_at: Option<Instant>,
    /// Why it was lost.
    reason: String,
}

impl Trouble {
    /// Returns the pause between the last attempt and the next.
    fn pause(&self) -> Duration {
        match self.attempts.checked_sub(1) {
            Some(before) => PAUSE.saturating_mul(1 << before.min(10)).min(LONGEST_PAUSE),
            None => Duration::ZERO,
        }
    }
}

impl<W: World> std::fmt::Debug for Failover<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Failover({:?}, {:?})", self.addresses, self.session)
    }
}

impl<W: World> Failover<W> {
    /// Connects to the first of these servers that accepts the session; `options.address` is ignored. `say` receives a line about each
    /// lost server and each hole.
    ///
    /// # Errors
    /// [`SubscribeError`] of the last server if none accepts.
    pub fn connect_in(
        options: &SubscriberOptions,
        addresses: &[SocketAddr],
        when_refused: WhenRefused,
        say: fn(&str),
    ) -> Result<Self, SubscribeError> {
        let connected = connect_to_one_in::<W>(options, addresses, 0);
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
            when_refused,
            metadata: session.metadata().clone(),
            at,
            session: Some(session),
            resume: Resume::new(options.snapshot),
            record: RecordBuf::from(dbn::SystemMsg::default()),
            after_hole: None,
            trouble: Trouble::default(),
            resumed: 0,
            holes: 0,
            say,
        })
    }

    /// Returns the metadata of the first session.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the address of the session's server.
    fn address(&self) -> SocketAddr {
        self.addresses.get(self.at).copied().unwrap_or(self.options.address)
    }

    /// Returns how many times the session has resumed.
    pub const fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns how many holes were reported.
    pub const fn holes(&self) -> u64 {
        self.holes
    }

    /// Gives up the session, and notes why.
    #[cold]
    fn lose(&mut self, reason: String) {
        let now = W::instant();
        self.session = None;
        self.trouble.reason = reason;
        (self.trouble.failed_at, self.trouble.lost_at) = (Some(now), Some(now));
    }

    /// Handles a server's refusal of the subscription.
    #[cold]
    fn refuse(&mut self, said: String) -> Result<(), SubscribeError> {
        let address = self.address();
        if self.resume.refuse(&self.schemas, self.addresses.len(), self.when_refused) {
            return Err(SubscribeError::Refused { address, said });
        }
        self.lose(format!("{address}: {said}"));
        Ok(())
    }

    /// Waits for the next attempt, or makes it. Returns an error when it is time to give up, and after each wait if the caller
    /// limits the time of a read.
    #[cold]
    fn go_on(&mut self) -> Result<(), SubscribeError> {
        let address = self.address();
        let interrupted = |source| SubscribeError::Connection { address, source };
        let since = self.trouble.failed_at.map_or(Duration::MAX, |failed: Instant| W::since(failed));
        let wait = self.trouble.pause().saturating_sub(since);
        if stop::is_requested() {
            return Err(interrupted(stop::stopped()));
        }
        if !wait.is_zero() {
            W::sleep(wait.min(stop::LOOK));
            let is_limited = self.options.timeout.is_some();
            return if is_limited { Err(interrupted(std::io::ErrorKind::TimedOut.into())) } else { Ok(()) };
        }
        let mut options = self.options.clone();
        self.resume.prepare(&self.schemas, &mut options);
        options.patience = options.patience.min(TRY);
        self.trouble.attempts += 1;
        match connect_to_one_in(&options, &self.addresses, self.at + 1) {
            Ok((at, session)) => {
                self.resume.connected(options.snapshot);
                (self.at, self.session) = (at, Some(session));
                self.trouble.lost_at = None;
                self.resumed += 1;
                (self.say)(&format!("{}; resumes at {}", self.trouble.reason, self.address()));
            }
            Err(failed) => {
                self.trouble.failed_at = Some(W::instant());
                let is_over = |error: &SubscribeError| {
                    error.is_stopped() || self.trouble.lost_at.is_some_and(|lost| W::since(lost) > PATIENCE)
                };
                if let Some(failed) = failed.into_iter().next_back().filter(is_over) {
                    return Err(failed);
                }
            }
        }
        Ok(())
    }

    /// Reads until `record` holds the next record. Returns `false` if the caller must try again.
    fn take(&mut self) -> Result<bool, SubscribeError> {
        if let Some(record) = self.after_hole.take() {
            self.record = record;
            return Ok(true);
        }
        let address = self.address();
        let Some(session) = &mut self.session else { return self.go_on().map(|()| false) };
        let over = match session.next_record() {
            Ok(Some(record)) => {
                if let Some(said) = refusal(&record) {
                    return self.refuse(said).map(|()| false);
                }
                if is_market(&record) {
                    self.trouble = Trouble::default();
                }
                let taken = self.resume.take(&record);
                if taken == Taken::Repeat {
                    return Ok(false);
                }
                match RecordBuf::try_from(record) {
                    Ok(record) => self.record = record,
                    Err(source) => return Err(SubscribeError::Decode { address, source }),
                }
                if let Taken::AfterHole(hole) = taken {
                    self.report(hole);
                }
                return Ok(true);
            }
            Ok(None) => format!("{address}: the server has ended the session"),
            Err(error) if error.is_timeout() || error.is_stopped() => return Err(error),
            Err(error) => error.to_string(),
        };
        self.lose(over);
        Ok(false)
    }

    /// Puts a message about a hole before the record that follows the hole.
    #[cold]
    fn report(&mut self, hole: Hole) {
        self.holes += 1;
        let text = hole.to_string();
        match dbn::SystemMsg::new(hole.to, None, &text) {
            Ok(message) => {
                let message = RecordBuf::from(message);
                self.after_hole = Some(std::mem::replace(&mut self.record, message));
            }
            Err(_) => (self.say)(&text),
        }
    }
}

impl<W: World> Records for Failover<W> {
    fn has_more(&self) -> bool {
        self.after_hole.is_some() || self.session.as_ref().is_some_and(Records::has_more)
    }

    fn next_record(&mut self) -> Result<Option<RecordRef<'_>>, SubscribeError> {
        while !self.take()? {}
        Ok(Some(self.record.as_rec_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBO: u8 = dbn::rtype::MBO;
    const SECOND: u64 = 1_000_000_000;

    /// A session that received one record a second, from 100 s to 109 s, and resumes.
    fn resumed() -> Resume {
        let mut resume = Resume::new(false);
        for second in 100..110 {
            assert_eq!(resume.takes(MBO, second * SECOND, false), Taken::New);
        }
        assert!(resume.begin(&[Schema::Mbo]).is_some_and(|start| start <= 101 * SECOND));
        resume.connected(false);
        resume
    }

    #[test]
    fn a_complete_replay_repeats_each_record_once() {
        let mut resume = resumed();
        for second in 101..110 {
            assert_eq!(resume.takes(MBO, second * SECOND, false), Taken::Repeat, "{second}");
        }
        // A late record that waited for a gap to be filled.
        assert_eq!(resume.takes(MBO, 108 * SECOND, false), Taken::New);
        assert_eq!(resume.takes(MBO, 110 * SECOND, false), Taken::New);
    }

    #[test]
    fn a_record_later_than_the_last_is_new_when_the_replay_is_shorter() {
        let mut resume = resumed();
        for second in 107..110 {
            assert_eq!(resume.takes(MBO, second * SECOND, false), Taken::Repeat, "{second}");
        }
        for second in 110..130 {
            assert_eq!(resume.takes(MBO, second * SECOND, false), Taken::New, "{second}");
        }
    }

    #[test]
    fn a_replay_that_begins_after_the_last_record_reports_a_hole() {
        let mut resume = resumed();
        let hole = Hole { from: 109 * SECOND, to: 114 * SECOND, rtype: MBO };
        assert_eq!(resume.takes(MBO, 114 * SECOND, false), Taken::AfterHole(hole));
        assert_eq!(resume.takes(MBO, 114 * SECOND, false), Taken::New);
        assert_eq!(resume.takes(MBO, 115 * SECOND, false), Taken::New);
        // Resuming again does not reach back before the hole.
        assert_eq!(resume.begin(&[Schema::Mbo]), Some(114 * SECOND + 1));
        assert_eq!(resume.takes(MBO, 115 * SECOND, false), Taken::Repeat);
        assert_eq!(resume.takes(MBO, 116 * SECOND, false), Taken::New);
    }

    /// The replay includes records of instruments whose part of the snapshot came later than these records.
    #[test]
    fn records_before_the_end_of_a_snapshot_in_parts_are_not_counted() {
        let mut resume = Resume::new(true);
        for (second, is_flagged) in [(100, true), (101, false), (102, true), (102, false)] {
            assert_eq!(resume.takes(MBO, second * SECOND, is_flagged), Taken::New);
        }
        resume.finish_snapshot(Schema::Mbo);
        assert_eq!(resume.begin(&[Schema::Mbo]), Some(102 * SECOND + 1), "the snapshot has the rest");
        for second in 103..106 {
            assert_eq!(resume.takes(MBO, second * SECOND, false), Taken::New);
        }
        assert_eq!(resume.begin(&[Schema::Mbo]), Some(103 * SECOND + 1));
        resume.connected(false);
        for second in 104..106 {
            assert_eq!(resume.takes(MBO, second * SECOND, false), Taken::Repeat);
        }
        assert_eq!(resume.takes(MBO, 105 * SECOND, false), Taken::New);
    }

    #[test]
    fn a_session_lost_during_a_snapshot_requests_it_again_and_reports_a_hole() {
        const TRADES: u8 = dbn::rtype::MBP_0;
        let mut resume = Resume::new(true);
        let schemas = [Schema::Trades, Schema::Mbo];
        resume.finish_snapshot(Schema::Trades);
        assert_eq!(resume.takes(TRADES, 99 * SECOND, false), Taken::New);
        for (second, is_flagged) in [(100, true), (101, false), (102, true)] {
            assert_eq!(resume.takes(MBO, second * SECOND, is_flagged), Taken::New);
        }
        assert_eq!((resume.begin(&schemas), resume.begin(&schemas)), (None, None));
        resume.connected(true);
        assert_eq!(resume.takes(MBO, 110 * SECOND, true), Taken::New, "the snapshot");
        resume.finish_snapshot(Schema::Mbo);
        assert!(matches!(resume.takes(TRADES, 111 * SECOND, false), Taken::AfterHole(_)));
        assert!(matches!(resume.takes(MBO, 111 * SECOND, false), Taken::AfterHole(_)));
        assert_eq!(resume.begin(&schemas), None, "the snapshot of trades is not complete");
    }

    /// A replay does not repeat records that the snapshot includes.
    #[test]
    fn a_schema_without_a_record_behind_its_snapshot_resumes_there() {
        let mut resume = Resume::new(true);
        let schemas = [Schema::Trades, Schema::Mbo];
        assert_eq!(resume.takes(dbn::rtype::MBP_0, 100 * SECOND, false), Taken::New);
        assert_eq!(resume.takes(MBO, 110 * SECOND, true), Taken::New);
        schemas.iter().for_each(|schema| resume.finish_snapshot(*schema));
        assert_eq!(resume.begin(&[Schema::Mbo]), Some(110 * SECOND + 1));
        resume.connected(false);
        assert_eq!(resume.takes(MBO, 111 * SECOND, false), Taken::New);
        let mut quiet = Resume::new(true);
        assert_eq!(quiet.takes(MBO, 110 * SECOND, true), Taken::New);
        quiet.finish_snapshot(Schema::Mbo);
        quiet.continue_from_now();
        let hole = Hole { from: 110 * SECOND, to: 120 * SECOND, rtype: MBO };
        assert_eq!(quiet.takes(MBO, 120 * SECOND, false), Taken::AfterHole(hole));
    }

    #[test]
    fn a_session_without_a_replay_reports_a_hole_and_drops_nothing() {
        let mut resume = resumed();
        resume.continue_from_now();
        assert!(matches!(resume.takes(MBO, 109 * SECOND, false), Taken::AfterHole(_)));
        assert_eq!(resume.takes(MBO, 110 * SECOND, false), Taken::New);
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let pause = |attempts| Trouble { attempts, ..Trouble::default() }.pause().as_millis();
        assert_eq!([0, 1, 2, 3, 6, 60].map(pause), [0, 100, 200, 400, 2_000, 2_000]);
    }
}
