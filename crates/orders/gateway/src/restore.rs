//! Restores the state of a previous run from its journal.
//!
//! A start restores the stores' sequence numbers and messages, and replays the translator's inputs. Cost: under a microsecond per
//! message.

use std::path::{Path, PathBuf};

use tapeworks_disk::Disk;
use tapeworks_fix_wire::field;
use tapeworks_journal::{JournalError, JournalOptions, JournalReader, LOST, Place};
use tapeworks_planted::planted;
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{Outputs, Reference, Reply, Report, Translator};
use thiserror::Error;

use crate::core::{Client, Core};
use crate::entry::{Entry, Kind, Turn, Written, entries, of_report_number};
use crate::hole::{self, Cut};
use crate::ledger::{Ledger, SyncPolicy};
use crate::settings::ClientSettings;
use crate::store::SessionStore;
use crate::venue::VenueSession;

/// Why the store cannot be used.
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
        /// The first intact record after the damage.
        number: u64,
        /// The number of damaged records.
        records: u64,
    },
    /// Records at the end are missing although they were on disk: a file was truncated.
    #[error("{}: cut off before record {number}, though the disk has had {records} more record{}; orders may be missing", folder.display(), if *records == 1 { "" } else { "s" })]
    CutOff {
        /// The journal's folder.
        folder: PathBuf,
        /// The first missing record.
        number: u64,
        /// The number of missing records.
        records: u64,
    },
    /// A record contains bytes that are no entry.
    #[error("{}: record {number} has no entry at byte {offset}", folder.display())]
    NoEntry {
        /// The journal's folder.
        folder: PathBuf,
        /// The number of the record.
        number: u64,
        /// The offset in its payload.
        offset: usize,
    },
    /// The store has a client that the configuration lacks.
    #[error("{}: the store has messages of the client '{name}', which the configuration does not have", folder.display())]
    Client {
        /// The journal's folder.
        folder: PathBuf,
        /// The client's name.
        name: String,
    },
    /// Replaying a request does not send it: an instrument was removed, or the venue's settings changed.
    #[error(
        "{}: record {number}: a request of the client '{name}' is not valid any more with this configuration",
        folder.display()
    )]
    Request {
        /// The journal's folder.
        folder: PathBuf,
        /// The number of the record.
        number: u64,
        /// The client's name.
        name: String,
    },
    /// A request would have another name at the venue than the one it was sent with, so its reports, and the order at the venue,
    /// would not be found.
    #[error(
        "{}: record {number}: what was sent to the venue has other names with this configuration: its 'protocol' or 'naming' was another",
        folder.display()
    )]
    Venue {
        /// The journal's folder.
        folder: PathBuf,
        /// The number of the record.
        number: u64,
    },
    /// A request was sent for another instrument of the venue, so a cancel of a working order would go to the wrong instrument.
    #[error(
        "{}: record {number}: a request that was sent to the venue is of another instrument with this configuration: the 'id', 'symbol' or 'security_id' of an instrument was another",
        folder.display()
    )]
    Instrument {
        /// The journal's folder.
        folder: PathBuf,
        /// The number of the record.
        number: u64,
    },
}

/// The result of restoring a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Records in the journal.
    pub records: u64,
    /// Requests from clients.
    pub requests: u64,
    /// Reports from the venue.
    pub reports: u64,
    /// Messages to clients.
    pub messages: u64,
    /// Bytes of a torn record at the end that were cut off. None of its output had been sent.
    pub torn_bytes: u64,
    /// Starts of previous runs.
    pub starts: u64,
    /// The part after the last sync that was cut off, because the machine had lost power.
    pub cut: Option<Cut>,
}

/// The parts from which a gateway is built.
#[derive(Debug)]
pub struct Parts<S: VenueSession> {
    /// The clients.
    pub clients: Vec<ClientSettings>,
    /// Instruments and parties.
    pub reference: Reference,
    /// Capacity for orders.
    pub capacity: tapeworks_translate::Settings,
    /// The venue's mapping table.
    pub table: S::Table,
    /// The session with the venue.
    pub venue: S,
}

/// The last report of an App ID that has none.
const NO_REPORT: (u64, u64) = (u64::MAX, 0);

/// Discards output, because the previous run has sent it already.
struct Nowhere;

impl Outputs for Nowhere {
    fn to_venue(&mut self, _message: &[u8]) {}
    fn to_client(&mut self, _client: ClientIndex, _reply: &Reply<'_>) {}
    fn unmatched(&mut self, _report: &Report) {}
}

/// Messages to the venue that the replay of a turn produces, in order.
#[derive(Default)]
struct Made {
    bytes: Vec<u8>,
    /// Where each message ends, and how many messages were taken.
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

/// Keeps a copy of the messages to the venue.
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

/// Replays the entries of a journal.
pub(crate) struct Repeater<S: VenueSession, D: Disk> {
    folder: PathBuf,
    pub(crate) clients: Vec<Client<D>>,
    pub(crate) translator: Translator<S::Table>,
    /// For each client of the current start: its index in this configuration, and its name.
    names: Vec<(Option<usize>, String)>,
    is_halted: bool,
    /// The last report of each App ID, and the newest time of its reports; `u64::MAX`: none.
    last_reports: Vec<(u64, u64)>,
    /// The name of the venue's session; empty: none.
    session: Vec<u8>,
    /// Messages to the venue that the current turn produced.
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

    /// Replays one entry of the record `number`, whose bytes are at `place`.
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
            // An earlier version did not store some of the messages that it had not sent.
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
                // A client that was removed has no switch.
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
            // The number was written as a u32.
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

    /// Replays an entire journal, up to a hole that a power loss explains: the rest becomes [`Restored::cut`]. Passes every entry
    /// to `each` after it was replayed, with the number of its record; `None` ends a turn.
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
                // A turn that could not be written was not sent, and was written later.
                if record.line == tapeworks_journal::NUMBERED {
                    // The record has the number of the last lost one.
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

/// Opens a store whose end is not missing. Also returns the number of torn bytes at its end.
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

/// A gateway that is ready to start.
#[derive(Debug)]
pub struct Opened<S: VenueSession, D: Disk> {
    /// The gateway's state.
    pub core: Core<S, D>,
    /// The gateway's journal.
    pub ledger: Ledger<D>,
    /// The result of restoring the store.
    pub restored: Restored,
}

/// Opens a gateway's store in `folder`, and restores the state of the previous run. Records after a hole that a power loss left,
/// and that no sync covered, are cut off; a copy is kept beside the store.
///
/// # Errors
/// Another process has the store open, it is damaged, or it does not fit the configuration.
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
