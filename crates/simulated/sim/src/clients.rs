//! The clients of a market: what they request, how they read, and what they have at the end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dbn::{ErrorMsg, RecordRef, SymbolMappingMsg, SystemMsg};
use tapeworks_generator::symbol_name;
use tapeworks_outputs::subscriber::{Records as _, Subscriber, SubscriberOptions};
use tapeworks_runtime::world::World as _;

use crate::coverage::notes;
use crate::kernel::{Simulated, below, note, now_ns};
use crate::plan::{CLIENTS_PORT, ClientPlan, PLANT_HOST, SECOND};
use crate::recorder::ClientEnds;
use crate::session::{Session, Taken};
use crate::shared::{Shared, locked};
use crate::states::{States, book_of};

/// The API key of all clients.
pub(crate) const KEY: &str = "db-0123456789abcdef0123456789abc";

/// The dataset of all feeds.
pub(crate) const DATASET: &str = "ALL";

/// When a client stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// Together with all other clients.
    WithAll,
    /// After this many replays.
    Behind(usize),
}

impl Session {
    /// Takes a market record. A resumed session starts by repeating the records with the last timestamp.
    fn take(&mut self, record: RecordRef<'_>, shared: &Shared) {
        let taken = Taken::new(record);
        if self.repeated > 0 {
            let known = self.records.get(self.records.len() - self.repeated).copied();
            self.repeated -= 1;
            if known != Some(taken) {
                let (number, at) = (self.number, self.records.len() - self.repeated - 1);
                shared.violation(format!(
                    "client {number} resumes, and gets {taken:?} for its record {at}, which was {known:?}"
                ));
                self.repeated = 0;
            }
            return;
        }
        let time = dbn::Record::raw_index_ts(&record);
        self.last = if self.last.0 == time { (time, self.last.1 + 1) } else { (time, 1) };
        self.records.push(taken);
    }

    /// Takes a session message. Returns `false` for a market record.
    fn notes(&mut self, record: RecordRef<'_>) -> bool {
        if let Some(mapping) = record.get::<SymbolMappingMsg>() {
            let symbol = mapping.stype_out_symbol().unwrap_or_default().to_owned();
            self.symbols.insert(mapping.hd.instrument_id, symbol);
        } else if let Some(error) = record.get::<ErrorMsg>() {
            let text = error.err().unwrap_or_default();
            note(|| format!("client {} gets the error: {text}", self.number));
            let earliest = text.split_once("start=").and_then(|(_, rest)| rest.split(' ').next());
            self.earliest = earliest.and_then(|number| number.parse().ok());
            self.is_put_off |= text.contains("replays are under way");
            let count = text.strip_prefix("slow reader: ").and_then(|rest| rest.split(' ').next());
            if let Some(count) = count.and_then(|count| count.parse().ok()) {
                self.skipped.push((self.records.len(), count));
            }
        } else if let Some(message) = record.get::<SystemMsg>() {
            let text = message.msg().unwrap_or_default();
            self.replays += usize::from(text.starts_with("Finished ") && !text.ends_with(" snapshot"));
            if text.starts_with("gap: ") {
                self.gaps.insert(self.records.len());
            }
        } else {
            return false;
        }
        true
    }

    /// Reads until the session ends or the client stops.
    fn read(&mut self, subscriber: &mut Subscriber<Simulated>, stop: Stop, shared: &Shared) -> ClientEnds {
        let (mut count, mut is_last) = (0u64, false);
        let pause_every = if self.client.pause_every == 0 { 1_000 } else { self.client.pause_every };
        loop {
            match subscriber.next_record() {
                Ok(None) => return ClientEnds::Cut,
                Ok(Some(record)) => {
                    if self.notes(record) {
                        continue;
                    }
                    let is_flagged = self.states.as_mut().is_some_and(|states| states.apply(record));
                    // A venue's snapshot has the flag too.
                    if is_flagged && self.client.has_snapshot && self.records.is_empty() {
                        let Taken { rtype, publisher, instrument, levels, .. } = Taken::new(record);
                        let book = book_of(rtype, publisher, instrument);
                        self.snapshot.extend(levels.map(|levels| (book, levels)));
                        continue;
                    }
                    self.take(record, shared);
                    shared.record(|recorder| recorder.reads(self.number));
                    count += 1;
                    if count == self.client.leaves_after {
                        return ClientEnds::Left;
                    }
                    let is_slow = self.client.pause_ns > 0 && !shared.stop_clients.load(Ordering::Acquire);
                    if is_slow && count.is_multiple_of(pause_every) {
                        Simulated::sleep(Duration::from_nanos(self.client.pause_ns));
                    }
                }
                Err(error) if error.is_timeout() => {
                    // Read once more after the stop, for records in flight.
                    let is_over = match stop {
                        Stop::WithAll => shared.stop_clients.load(Ordering::Acquire),
                        Stop::Behind(replays) => self.replays >= replays,
                    };
                    if std::mem::replace(&mut is_last, is_over) {
                        return ClientEnds::Stopped;
                    }
                }
                Err(_) => return ClientEnds::Cut,
            }
        }
    }
}

/// Returns the options of a client that reads from the beginning, if the plant keeps a history.
fn options_of(client: &ClientPlan, has_history: bool) -> SubscriberOptions {
    SubscriberOptions {
        address: (PLANT_HOST, CLIENTS_PORT).into(),
        key: KEY.to_owned(),
        dataset: DATASET.to_owned(),
        schemas: client.schema_names(),
        symbols: (0..client.symbols).map(symbol_name).collect(),
        snapshot: client.has_snapshot,
        start: (has_history && !client.is_live).then_some(1),
        slow_reader: client.slow_reader.clone(),
        ts_out: false,
        timeout: Some(Duration::from_millis(500)),
        patience: Duration::from_secs(2),
    }
}

/// Runs a client: it connects repeatedly, each time from the beginning or from its last position, and keeps what it reads.
pub(crate) fn client(number: usize, plan: &ClientPlan, has_history: bool, shared: &Shared) {
    let mut options = options_of(plan, has_history);
    // Records that the journal lost are in no replay, and after the clock was set back the last record is not the latest.
    let resumes = plan.resumes && has_history && shared.plan.has_true_clock() && shared.plan.keeps_the_past();
    let mut joined: Option<Session> = None;
    // Each session is a replay. A client whose sessions keep ending reconnects less and less often.
    let mut again = Duration::from_millis(100);
    while !shared.stop_clients.load(Ordering::Acquire) {
        if plan.is_absurd {
            // Before the first event, in a thousand years, of nothing, of too much, in a schema that does not exist.
            options.start = [Some(0), Some(1), Some(u64::MAX), None][below(4) as usize];
            let symbols =
                [vec![], vec!["NOSUCH".to_owned()], vec!["A".repeat(300)], vec!["X".to_owned(); 3_000]];
            options.symbols = symbols[below(4) as usize].clone();
            options.schemas = vec![["mbo", "no-such-schema", "", "trades|x=y"][below(4) as usize].to_owned()];
        }
        if resumes {
            let starts = shared.starts.load(Ordering::Relaxed);
            joined = joined.filter(|joined| joined.began == starts || shared.plan.keeps_all());
            options.start = Some(joined.as_ref().map_or(1, |joined| joined.last.0.max(1)));
        }
        match Subscriber::<Simulated>::connect_in(&options) {
            Err(error) => {
                note(|| format!("client {number} is not served: {error}"));
                shared.reaches(notes::NOT_SERVED);
                shared.record(|recorder| recorder.refuses(number, now_ns(), error.to_string()));
                Simulated::sleep(Duration::from_millis(300));
            }
            Ok(mut subscriber) => {
                let began = shared.starts.load(Ordering::Relaxed);
                let mut session = joined.take().unwrap_or_else(|| Session::new(number, plan, began));
                if resumes {
                    // The plant restarted meanwhile: events that it lost may be replaced by others.
                    if session.began != began && !shared.plan.keeps_all() {
                        continue;
                    }
                    (session.began, session.repeated) = (began, session.last.1);
                    if !session.records.is_empty() {
                        shared.reaches(notes::RESUMED);
                    }
                }
                shared.record(|recorder| recorder.connects(number, now_ns(), began));
                let end = session.read(&mut subscriber, Stop::WithAll, shared);
                shared.record(|recorder| recorder.disconnects(number, now_ns(), end));
                session.is_whole = end == ClientEnds::Stopped && session.repeated == 0;
                note(|| format!("client {number} has read {} records", session.records.len()));
                match end {
                    ClientEnds::Left => shared.reaches(notes::LEFT),
                    ClientEnds::Cut if !shared.stop_clients.load(Ordering::Acquire) => {
                        shared.reaches(notes::CUT)
                    }
                    ClientEnds::Cut | ClientEnds::Stopped => {}
                }
                if !session.skipped.is_empty() {
                    shared.reaches(notes::SKIPPED);
                }
                let earliest = session.earliest.take();
                match () {
                    () if resumes => joined = Some(session),
                    // Without a journal, each session begins at the plant's current event.
                    () if has_history && !plan.is_absurd => locked(&shared.sessions).push(session),
                    () => {}
                }
                if let Some(earliest) = earliest {
                    // The server no longer has the requested start.
                    options.start = Some(earliest);
                    Simulated::sleep(Duration::from_millis(1));
                    continue;
                }
                Simulated::sleep(again);
                again = (2 * again).min(Duration::from_secs(5));
            }
        }
    }
    locked(&shared.sessions).extend(joined);
}

/// Reads all records of these schemas from the beginning, after all faults have ended.
pub(crate) fn read_all_again(schemas: &[String], shared: &Shared) -> Option<Session> {
    let plan = ClientPlan { schemas: schemas.to_vec(), ..ClientPlan::default() };
    let options = SubscriberOptions { patience: Duration::from_secs(10), ..options_of(&plan, true) };
    let until_ns = now_ns() + 60 * SECOND;
    let mut why = String::new();
    while now_ns() < until_ns {
        let began = shared.starts.load(Ordering::Relaxed);
        match Subscriber::<Simulated>::connect_in(&options) {
            Ok(mut subscriber) => {
                let mut session = Session::new(usize::MAX, &plan, began);
                session.states = Some(States::default());
                if session.read(&mut subscriber, Stop::Behind(schemas.len()), shared) == ClientEnds::Stopped {
                    session.is_whole = true;
                    note(|| format!("all records again: {}", session.records.len()));
                    return Some(session);
                }
                why = "its session was ended".to_owned();
            }
            Err(error) => why = error.to_string(),
        }
        Simulated::sleep(Duration::from_secs(1));
    }
    note(|| format!("a client that reads all again is not served: {why}"));
    None
}
