//! A start: the state of a former run from its journal.
//!
//! Stores get their numbers and messages back, and the translator's inputs are repeated. Cost: under a microsecond a message.

use std::path::{Path, PathBuf};

use tapeworks_disk::Disk;
use tapeworks_journal::{JournalError, JournalOptions, JournalReader, LOST, Place};
use tapeworks_planted::planted;
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{Outputs, Reference, Reply, Report, Translator};
use tapeworks_wire::fix::field;
use thiserror::Error;

use crate::core::{Client, Core};
use crate::entry::{Entry, Kind, Turn, Written, entries, of_report_number};
use crate::hole::{self, Cut};
use crate::ledger::{Ledger, SyncPolicy};
use crate::settings::ClientSettings;
use crate::store::SessionStore;
use crate::venue::VenueSession;

/// The store cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The journal cannot be opened or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Records are damaged.
    #[error("{}: damaged before record {number}, though it was synced: {records} record{}; orders may be missing", folder.display(), if *records == 1 { "" } else { "s" })]
    Damaged {
        /// The journal's folder.
        folder: PathBuf,
        /// The first sound record behind them.
        number: u64,
        /// How many.
        records: u64,
    },
    /// Records at the end are gone, though the disk has had them: a file was cut.
    #[error("{}: cut off before record {number}, though the disk has had {records} more record{}; orders may be missing", folder.display(), if *records == 1 { "" } else { "s" })]
    CutOff {
        /// The journal's folder.
        folder: PathBuf,
        /// The first missing record.
        number: u64,
        /// How many.
        records: u64,
    },
    /// A record has other bytes than entries.
    #[error("{}: record {number} has no entry at byte {offset}", folder.display())]
    NoEntry {
        /// The journal's folder.
        folder: PathBuf,
        /// The record.
        number: u64,
        /// Where in its payload.
        offset: usize,
    },
    /// A client of the store is not in the configuration.
    #[error("{}: the store has messages of the client '{name}', which the configuration does not have", folder.display())]
    Client {
        /// The journal's folder.
        folder: PathBuf,
        /// Its name.
        name: String,
    },
    /// A request is not made again: an instrument is gone, or the venue's settings are others.
    #[error(
        "{}: record {number}: a request of the client '{name}' is not valid any more with this configuration",
        folder.display()
    )]
    Request {
        /// The journal's folder.
        folder: PathBuf,
        /// The record.
        number: u64,
        /// The client.
        name: String,
    },
    /// A request has another name at the venue than it was sent with: its reports, and the order at the venue, would not be found.
    #[error(
        "{}: record {number}: what was sent to the venue has other names with this configuration: its 'protocol' or 'naming' was another",
        folder.display()
    )]
    Venue {
        /// The journal's folder.
        folder: PathBuf,
        /// The record.
        number: u64,
    },
    /// A request was sent for another instrument of the venue: a cancel of an order that works would go to the wrong one.
    #[error(
        "{}: record {number}: a request that was sent to the venue is of another instrument with this configuration: the 'id', 'symbol' or 'security_id' of an instrument was another",
        folder.display()
    )]
    Instrument {
        /// The journal's folder.
        folder: PathBuf,
        /// The record.
        number: u64,
    },
}

/// What a start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Records of the journal.
    pub records: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Reports of the venue.
    pub reports: u64,
    /// Messages to clients.
    pub messages: u64,
    /// Bytes of a torn record at the end, cut off: nothing of it had been sent.
    pub torn_bytes: u64,
    /// The starts of former runs.
    pub starts: u64,
    /// What was cut off behind the last sync: the machine had lost power.
    pub cut: Option<Cut>,
}

/// What a gateway is made of.
#[derive(Debug)]
pub struct Parts<S: VenueSession> {
    /// The clients.
    pub clients: Vec<ClientSettings>,
    /// Instruments and parties.
    pub reference: Reference,
    /// Room for orders.
    pub capacity: tapeworks_translate::Settings,
    /// The venue's mapping table.
    pub table: S::Table,
    /// The session with the venue.
    pub venue: S,
}

/// What is known of the reports of an App ID that has none.
const NO_REPORT: (u64, u64) = (u64::MAX, 0);

/// Puts nothing out: it was put out in the former run.
struct Nowhere;

impl Outputs for Nowhere {
    fn to_venue(&mut self, _message: &[u8]) {}
    fn to_client(&mut self, _client: ClientIndex, _reply: &Reply<'_>) {}
    fn unmatched(&mut self, _report: &Report) {}
}

/// Messages to the venue that a repetition makes, in order.
#[derive(Default)]
struct Made {
    bytes: Vec<u8>,
    /// Where each ends, and which of them are taken.
    ends: Vec<usize>,
    taken: usize,
}

impl Made {
    fn push(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len());
    }

    fn take(&mut self) -> Option<&[u8]> {
        let end = *self.ends.get(self.taken)?;
        let start = self.taken.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        self.taken += 1;
        self.bytes.get(start.unwrap_or(0)..end)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = 0;
    }
}

/// Keeps what goes to the venue besides.
struct Keeping<'a, O> {
    out: &'a mut O,
    made: &'a mut Made,
}

impl<O: Outputs> Outputs for Keeping<'_, O> {
    fn to_venue(&mut self, message: &[u8]) {
        self.made.push(message);
        self.out.to_venue(message);
    }

    fn to_client(&mut self, client: ClientIndex, reply: &Reply<'_>) {
        self.out.to_client(client, reply);
    }

    fn unmatched(&mut self, report: &Report) {
        self.out.unmatched(report);
    }
}

/// Repeats the entries of a journal.
pub(crate) struct Repeater<S: VenueSession, D: Disk> {
    folder: PathBuf,
    pub(crate) clients: Vec<Client<D>>,
    pub(crate) translator: Translator<S::Table>,
    /// The place of each client of the current start among ours, and its name.
    names: Vec<(Option<usize>, String)>,
    is_halted: bool,
    /// The last report of each App ID, and the newest time of its reports; `u64::MAX`: none.
    last_reports: Vec<(u64, u64)>,
    /// The name of the venue's session; empty: none.
    session: Vec<u8>,
    /// Of the record that is repeated.
    made: Made,
    pub(crate) restored: Restored,
}

impl<S: VenueSession, D: Disk> Repeater<S, D> {
    pub(crate) fn new(folder: &Path, parts: Parts<S>, now_ns: u64) -> (Self, S) {
        let Parts { clients, reference, capacity, table, venue } = parts;
        let of_translator: Vec<_> = clients.iter().map(|client| client.translate.clone()).collect();
        let mut translator = Translator::new(table, reference, &of_translator, &capacity);
        translator.begin_replay();
        let client = |(index, settings)| {
            Client::new(settings, SessionStore::new(folder, index as u16, now_ns), now_ns)
        };
        let repeater = Self {
            folder: folder.to_owned(),
            clients: clients.into_iter().enumerate().map(client).collect(),
            translator,
            names: Vec::new(),
            is_halted: false,
            last_reports: vec![NO_REPORT; 256],
            session: Vec::new(),
            made: Made::default(),
            restored: Restored::default(),
        };
        (repeater, venue)
    }

    fn client(&self, index: u16) -> Result<usize, RestoreError> {
        let (place, name) = self.names.get(usize::from(index)).cloned().unwrap_or_default();
        place.ok_or_else(|| RestoreError::Client { folder: self.folder.clone(), name })
    }

    /// Repeats one entry of the record `number`, whose bytes lie at `place`.
    pub(crate) fn repeat(
        &mut self,
        number: u64,
        entry: &Entry<'_>,
        place: Place,
        out: &mut impl Outputs,
    ) -> Result<(), RestoreError> {
        let Entry { kind, time_ns, bytes, .. } = *entry;
        let is_on = entry.number == 1;
        let place_of_client = match kind {
            Kind::Request | Kind::CancelOrders => self.client(entry.client)?,
            _ => 0,
        };
        let out = &mut Keeping { out, made: &mut self.made };
        match kind {
            Kind::Start => {
                let place_of =
                    |name: &str| self.clients.iter().position(|client| client.settings.name == name);
                let text = String::from_utf8_lossy(bytes);
                self.names = text.lines().map(|name| (place_of(name), name.to_owned())).collect();
                self.restored.starts += 1;
            }
            Kind::Request => {
                let index = place_of_client;
                if !self.translator.replay_request(ClientIndex(index as u16), bytes, time_ns, out) {
                    let name = self.clients.get(index).map(|client| client.settings.name.clone());
                    let (folder, name) = (self.folder.clone(), name.unwrap_or_default());
                    return Err(RestoreError::Request { folder, number, name });
                }
                self.restored.requests += 1;
            }
            // A former version kept nothing of some that it had not sent.
            Kind::ToVenue => {
                let kept = self.translator.requested(bytes);
                loop {
                    let Some(made) = self.made.take() else {
                        return Err(RestoreError::Venue { folder: self.folder.clone(), number });
                    };
                    let Some((made, kept)) = self.translator.requested(made).zip(kept) else { continue };
                    if made.is_same(&kept) {
                        if !made.is_of_same_instrument(&kept) {
                            return Err(RestoreError::Instrument { folder: self.folder.clone(), number });
                        }
                        break;
                    }
                }
            }
            Kind::Report => {
                let (app_id, report) = of_report_number(entry.number);
                if let Some((last, newest_ns)) =
                    self.last_reports.get_mut(usize::from(app_id)).filter(|_| report > 0)
                {
                    *last = report;
                    *newest_ns = (*newest_ns).max(S::report_time_ns(bytes));
                }
                self.translator.venue_report(bytes, out);
                self.restored.reports += 1;
            }
            Kind::Missing => {
                let (app_id, first) = of_report_number(entry.number);
                let count = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                if let Some((last, _)) = self.last_reports.get_mut(usize::from(app_id)) {
                    *last = first.saturating_add(count).saturating_sub(1);
                }
            }
            Kind::Unsent if planted!("unsent-not-restored") => {}
            Kind::Unsent => _ = self.translator.venue_unsent(bytes, time_ns, out),
            Kind::Again => self.translator.send_again(out),
            Kind::Settled => self.translator.settle(time_ns, out),
            Kind::CancelOrders => {
                self.translator.cancel_orders(ClientIndex(place_of_client as u16), time_ns, out);
            }
            Kind::Halt => {
                self.is_halted = is_on;
                if !is_on {
                    self.translator.end_halts_of_doubts();
                }
            }
            Kind::HaltClient => {
                // A client that is gone has no switch.
                if let Ok(index) = self.client(entry.client)
                    && let Some(client) = self.clients.get_mut(index)
                {
                    client.is_halted = is_on;
                }
            }
            Kind::NewDay => {
                let app_id = entry.number as u8;
                self.translator.new_day(app_id);
                if let Some(last) = self.last_reports.get_mut(usize::from(app_id)) {
                    *last = NO_REPORT;
                }
            }
            Kind::Session => bytes.clone_into(&mut self.session),
            // A number that was raised is a u32.
            Kind::NextName => _ = self.translator.venue_next_name(entry.number as u32),
            Kind::Midnight => self.translator.set_midnight(entry.number),
            Kind::ToClient => {
                if let Some(id) = field(bytes, 17) {
                    self.translator.has_used(id);
                }
                let index = self.client(entry.client)?;
                if let Some(client) = self.clients.get_mut(index) {
                    client.store.restore_time(time_ns);
                    client.store.restore_message(entry.number, place, bytes.len());
                }
                self.restored.messages += 1;
            }
            Kind::NextIncoming | Kind::NextOutgoing | Kind::Reset => {
                let index = self.client(entry.client)?;
                let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
                client.store.restore_time(time_ns);
                match kind {
                    Kind::NextIncoming => client.store.restore_next_incoming(entry.number),
                    Kind::NextOutgoing => client.store.restore_next_outgoing(entry.number),
                    _ => {
                        let created_ns = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                        client.store.restore_reset(created_ns);
                    }
                }
            }
        }
        Ok(())
    }

    /// Repeats a whole journal, up to a hole that a power loss explains: the rest is [`Restored::cut`]. `each` gets every entry, with the
    /// number of its record, after it was repeated.
    pub(crate) fn run<O: Outputs>(
        &mut self,
        out: &mut O,
        mut each: impl FnMut(u64, Option<&Entry<'_>>, &mut O),
    ) -> Result<(), RestoreError> {
        let mut reader = JournalReader::<D>::open_in(&self.folder)?;
        let mut turn = Turn::default();
        loop {
            let Some(record) = reader.next()? else { return Ok(()) };
            let (number, kind, extra) = (record.number, record.kind, record.extra);
            if kind == LOST {
                // Turns that could not be written were not sent, and were written later.
                if record.line == tapeworks_journal::NUMBERED {
                    // Its number is that of the last lost one.
                    let from = (number + 1).saturating_sub(extra);
                    self.restored.cut = hole::unsynced(&self.folder, &mut reader, (from, extra))?;
                    let folder = self.folder.clone();
                    let damaged = RestoreError::Damaged { folder, number: number + 1, records: extra };
                    return if self.restored.cut.is_some() { Ok(()) } else { Err(damaged) };
                }
                continue;
            }
            let Some(is_whole) = turn.take(&record) else {
                let folder = self.folder.clone();
                return Err(RestoreError::NoEntry { folder, number, offset: 0 });
            };
            turn.ends_at(reader.place().unwrap_or_default());
            self.restored.records += 1;
            if !is_whole {
                continue;
            }
            for entry in entries(&turn.bytes) {
                let (offset, entry) = entry.map_err(|offset| {
                    let folder = self.folder.clone();
                    RestoreError::NoEntry { folder, number, offset }
                })?;
                self.repeat(number, &entry, Written::place_of(&turn.parts, offset), out)?;
                each(number, Some(&entry), out);
            }
            self.made.clear();
            each(number, None, out);
        }
    }

    fn finish(mut self, mut venue: S) -> Core<S, D> {
        self.translator.end_replay();
        if self.is_halted {
            self.translator.halt();
        }
        for (client, index) in self.clients.iter().zip(0..=u16::MAX) {
            self.translator.set_client_halted(ClientIndex(index), client.is_halted);
        }
        if !self.session.is_empty() {
            venue.restore_session(&self.session);
        }
        for ((last, newest_ns), app_id) in self.last_reports.iter().zip(0..=u8::MAX) {
            if *last != u64::MAX {
                venue.restore(app_id, *last, *newest_ns);
            }
        }
        Core::assemble(self.clients, self.translator, venue, self.is_halted)
    }
}

/// Opens a store whose end is there. Returns the torn bytes at its end, too.
pub(crate) fn open_whole<D: Disk>(
    folder: &Path,
    options: JournalOptions,
    sync: SyncPolicy,
) -> Result<(Ledger<D>, u64), RestoreError> {
    let (ledger, opened) = Ledger::open(folder, options, sync)?;
    if opened.missing > 0 {
        let folder = folder.to_owned();
        return Err(RestoreError::CutOff { folder, number: opened.next, records: opened.missing });
    }
    Ok((ledger, opened.torn_bytes))
}

/// A gateway that can be started.
#[derive(Debug)]
pub struct Opened<S: VenueSession, D: Disk> {
    /// Its state.
    pub core: Core<S, D>,
    /// Its journal.
    pub ledger: Ledger<D>,
    /// What the start found.
    pub restored: Restored,
}

/// Opens a gateway's store in `folder`, and restores what a former run left. What a power loss has left behind a hole, and no sync had
/// covered, is cut off; a copy stays beside it.
///
/// # Errors
/// Another process has it, it is damaged, or it does not fit the configuration.
pub fn open<S: VenueSession, D: Disk>(
    folder: &Path,
    options: JournalOptions,
    sync: SyncPolicy,
    parts: Parts<S>,
    now_ns: u64,
) -> Result<Opened<S, D>, RestoreError> {
    let (mut ledger, torn_bytes) = open_whole(folder, options, sync)?;
    let (mut repeater, venue) = Repeater::<S, D>::new(folder, parts, now_ns);
    repeater.run(&mut Nowhere, |_, _, _: &mut Nowhere| {})?;
    let mut restored = Restored { torn_bytes, ..std::mem::take(&mut repeater.restored) };
    if let Some(cut) = &mut restored.cut {
        cut.set_aside = ledger.cut_from(cut.from)?;
    }
    let mut core = repeater.finish(venue);
    core.start(now_ns);
    Ok(Opened { core, ledger, restored })
}
