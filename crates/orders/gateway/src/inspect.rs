//! Inspects the store of a stopped gateway: its contents, its integrity, and a replay of its output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tapeworks_disk::Disk;
use tapeworks_fix_wire::{Fields, Writer, field, message_type};
use tapeworks_journal::{JournalOptions, JournalReader, LOST, verify_in};
use tapeworks_order_session::fix::Store as _;
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{ExchangeToClientState, FixVersion, Outputs, Reply, Report};

use crate::core::Client;
use crate::entry::{Entries, Entry, Kind, Turn, entries};
use crate::hole::{self, Cut};
use crate::ledger::{Ledger, SyncPolicy};
use crate::restore::{Parts, Repeater, RestoreError, open_whole};
use crate::venue::VenueSession;

/// A client in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoredClient {
    /// The client's name.
    pub name: String,
    /// The sequence number of the next message from the client.
    pub next_incoming: u64,
    /// The sequence number of the next message to the client.
    pub next_outgoing: u64,
    /// Number of requests.
    pub requests: u64,
    /// Number of messages to the client.
    pub messages: u64,
    /// Number of times that its sequence numbers were reset to 1.
    pub resets: u64,
    /// Whether its kill switch is on.
    pub is_halted: bool,
}

/// The contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Records in the journal.
    pub records: u64,
    /// Number of entries by the name of their kind.
    pub entries: BTreeMap<&'static str, u64>,
    /// The time of the first entry, in UTC nanoseconds.
    pub first_ns: u64,
    /// The time of the last entry, in UTC nanoseconds.
    pub last_ns: u64,
    /// The clients, by name.
    pub clients: Vec<StoredClient>,
    /// Whether the kill switch for all clients is on.
    pub is_halted: bool,
    /// Damaged or missing records.
    pub damaged: u64,
    /// Descriptions of damaged, torn and missing parts. A record torn at the end had sent nothing.
    pub damage: Vec<String>,
    /// Records that are no part of a turn, and turns with bytes that are no entry.
    pub unreadable: u64,
    /// The part that a start cuts off: damage after the last sync, as a power loss leaves it.
    pub cut: Option<Cut>,
}

impl Inspection {
    /// Returns whether no record is damaged or unreadable.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.damaged == 0 && self.unreadable == 0
    }
}

/// Reads an entire store. Passes every entry to `each`, with the number of its record and the client's name.
///
/// # Errors
/// A folder or file cannot be read.
pub fn inspect<D: Disk>(
    folder: &Path,
    mut each: impl FnMut(u64, &str, &Entry<'_>),
) -> Result<Inspection, RestoreError> {
    let mut found = Inspection::default();
    let mut clients = BTreeMap::<String, StoredClient>::new();
    let mut names: Vec<String> = Vec::new();
    let mut reader = JournalReader::<D>::open_in(folder)?;
    let mut turn = Turn::default();
    let mut first_hole = None;
    while let Some(record) = reader.next()? {
        if record.kind == LOST {
            if record.line == tapeworks_journal::NUMBERED {
                first_hole = first_hole.or(Some(record.number + 1 - record.extra.min(record.number + 1)));
                found.damaged += record.extra;
            }
            continue;
        }
        found.records += 1;
        let Some(is_whole) = turn.take(&record) else {
            found.unreadable += 1;
            continue;
        };
        if !is_whole {
            continue;
        }
        for entry in entries(&turn.bytes) {
            let Ok((_, entry)) = entry else {
                found.unreadable += 1;
                break;
            };
            *found.entries.entry(entry.kind.name()).or_default() += 1;
            if found.first_ns == 0 {
                found.first_ns = entry.time_ns;
            }
            found.last_ns = found.last_ns.max(entry.time_ns);
            match entry.kind {
                Kind::Start => {
                    names = String::from_utf8_lossy(entry.bytes).lines().map(str::to_owned).collect();
                    for name in &names {
                        let new = StoredClient { next_incoming: 1, next_outgoing: 1, ..Default::default() };
                        clients.entry(name.clone()).or_insert(StoredClient { name: name.clone(), ..new });
                    }
                }
                Kind::Halt => found.is_halted = entry.number == 1,
                _ => {}
            }
            let name = names.get(usize::from(entry.client)).map_or("", String::as_str);
            if let Some(client) = clients.get_mut(name) {
                note(client, &entry);
            }
            each(record.number, name, &entry);
        }
    }
    if let Some(from) = first_hole {
        let mut reader = JournalReader::<D>::from_number_in(folder, from)?;
        let lost = reader.next()?.map_or(0, |record| record.extra);
        found.cut = hole::unsynced(folder, &mut reader, (from, lost))?;
    }
    let verified = verify_in::<D>(folder, || true)?;
    found.damaged += verified.missing;
    found.damage = verified.damage.iter().map(ToString::to_string).collect();
    found.clients = clients.into_values().collect();
    Ok(found)
}

/// Updates a client by one of its entries.
fn note(client: &mut StoredClient, entry: &Entry<'_>) {
    match entry.kind {
        Kind::Request => client.requests += 1,
        Kind::ToClient => {
            client.messages += 1;
            client.next_outgoing = entry.number + 1;
        }
        Kind::NextIncoming => client.next_incoming = entry.number,
        Kind::NextOutgoing => client.next_outgoing = entry.number,
        Kind::Reset => {
            client.resets += 1;
            (client.next_incoming, client.next_outgoing) = (1, 1);
        }
        Kind::HaltClient => client.is_halted = entry.number == 1,
        _ => {}
    }
}

/// A message that the replay did not reproduce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The number of the record.
    pub record: u64,
    /// The client; empty: the venue.
    pub client: String,
    /// The message in the store, or the one that the replay produced.
    pub text: String,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Messages to the venue whose bytes are identical.
    pub to_venue: u64,
    /// Messages to clients whose fields after the header are identical.
    pub to_clients: u64,
    /// Messages that differ.
    pub differences: Vec<Difference>,
    /// Orders that are open at the end.
    pub open_orders: u64,
}

/// Maximum number of differences listed.
const MOST_DIFFERENCES: usize = 100;

/// Collects the output that the replay of one turn produces.
#[derive(Default)]
struct Collected {
    to_venue: Vec<Vec<u8>>,
    to_clients: Vec<(u16, Vec<u8>)>,
    /// The FIX versions of the clients.
    versions: Vec<FixVersion>,
}

impl Outputs for Collected {
    fn to_venue(&mut self, message: &[u8]) {
        self.to_venue.push(message.to_vec());
    }

    fn to_client(&mut self, client: ClientIndex, reply: &Reply<'_>) {
        let mut buffer = vec![0; 64 << 10];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", reply.message_type());
        let version = self.versions.get(usize::from(client.0)).copied().unwrap_or_default();
        reply.write_as(version, &mut writer);
        if let Ok(message) = writer.finish() {
            self.to_clients.push((client.0, body(message)));
        }
    }

    fn unmatched(&mut self, _report: &Report) {}
}

/// Returns MsgType and the fields after the header, as text.
fn body(message: &[u8]) -> Vec<u8> {
    let mut body = message_type(message).to_vec();
    for field in Fields::new(message).map_while(Result::ok) {
        if !matches!(field.tag, 8 | 9 | 10 | 34 | 35 | 43 | 49 | 50 | 52 | 56 | 57 | 97 | 122) {
            body.push(b'|');
            body.extend_from_slice(field.tag.to_string().as_bytes());
            body.push(b'=');
            body.extend_from_slice(field.value);
        }
    }
    body
}

/// Compares a replay with the output in the store.
struct Comparison {
    replayed: Replayed,
    /// The output of the current turn in the store: to the venue, and to clients.
    to_venue: Vec<Vec<u8>>,
    to_clients: Vec<(u16, Vec<u8>)>,
    names: Vec<String>,
}

impl Comparison {
    fn differ(&mut self, record: u64, client: Option<u16>, text: String) {
        if self.replayed.differences.len() < MOST_DIFFERENCES {
            let client = client.and_then(|client| self.names.get(usize::from(client)).cloned());
            self.replayed.differences.push(Difference { record, client: client.unwrap_or_default(), text });
        }
    }

    /// Compares the output of a complete turn.
    fn compare(&mut self, record: u64, now: &mut Collected) {
        let stored = std::mem::take(&mut self.to_venue);
        let made = std::mem::take(&mut now.to_venue);
        for place in 0..stored.len().max(made.len()) {
            let text = |bytes: Option<&Vec<u8>>| bytes.map_or("nothing".to_owned(), hex::encode);
            if stored.get(place) == made.get(place) {
                self.replayed.to_venue += 1;
            } else {
                let text = format!("sent {}, now {}", text(stored.get(place)), text(made.get(place)));
                self.differ(record, None, text);
            }
        }
        // The store also holds the session's own messages, and rejects of messages that led to no request.
        let mut stored = std::mem::take(&mut self.to_clients);
        for (client, made) in std::mem::take(&mut now.to_clients) {
            match stored.iter().position(|one| *one == (client, made.clone())) {
                Some(place) => {
                    stored.swap_remove(place);
                    self.replayed.to_clients += 1;
                }
                None => {
                    let text = format!("not sent then: {}", String::from_utf8_lossy(&made));
                    self.differ(record, Some(client), text);
                }
            }
        }
    }
}

/// Replays the input of a store, and compares the resulting output with the stored output.
///
/// # Errors
/// A gateway could not continue from the store.
pub fn replay<S: VenueSession, D: Disk>(folder: &Path, parts: Parts<S>) -> Result<Replayed, RestoreError> {
    let names = parts.clients.iter().map(|client| client.name.clone()).collect();
    let versions = parts.clients.iter().map(|client| client.translate.version).collect();
    let (mut repeater, _venue) = Repeater::<S, D>::new(folder, parts, 0);
    let mut comparison =
        Comparison { replayed: Replayed::default(), to_venue: Vec::new(), to_clients: Vec::new(), names };
    let mut places: Vec<u16> = Vec::new();
    let now_names = comparison.names.clone();
    let mut out = Collected { versions, ..Collected::default() };
    repeater.run(&mut out, |number, entry, out| match entry {
        Some(entry) => match entry.kind {
            Kind::Start => {
                let place = |name: &str| {
                    now_names.iter().position(|one| one == name).map_or(u16::MAX, |it| it as u16)
                };
                places = String::from_utf8_lossy(entry.bytes).lines().map(place).collect();
            }
            Kind::ToVenue => comparison.to_venue.push(entry.bytes.to_vec()),
            Kind::ToClient => {
                let client = places.get(usize::from(entry.client)).copied().unwrap_or(u16::MAX);
                comparison.to_clients.push((client, body(entry.bytes)));
            }
            _ => {}
        },
        None => comparison.compare(number, out),
    })?;
    let orders = repeater.translator.orders();
    let open = orders.filter(|(_, state)| *state != ExchangeToClientState::Ended).count();
    comparison.replayed.open_orders = open as u64;
    Ok(comparison.replayed)
}

/// Resets the sequence numbers of a client to 1. Returns `false` if there is no such client. The gateway must not be running.
/// Messages that the client has not received are lost.
///
/// # Errors
/// Another process has the store open, or the store is damaged.
pub fn reset_client<S: VenueSession, D: Disk>(
    folder: &Path,
    parts: Parts<S>,
    name: &str,
    now_ns: u64,
) -> Result<bool, RestoreError> {
    let (mut ledger, _) = open_whole::<D>(folder, JournalOptions::default(), SyncPolicy::Always)?;
    let (mut repeater, _venue) = Repeater::<S, D>::new(folder, parts, now_ns);
    repeater.run(&mut Collected::default(), |_, _, out| *out = Collected::default())?;
    if let Some(cut) = &repeater.restored.cut {
        ledger.cut_from(cut.from)?;
    }
    let names: Vec<&str> = repeater.clients.iter().map(|client| client.settings.name.as_str()).collect();
    let Some(index) = names.iter().position(|one| *one == name) else { return Ok(false) };
    let (mut turn, text) = (Entries::default(), names.join("\n"));
    let start = Entry { kind: Kind::Start, client: 0, number: 0, time_ns: now_ns, bytes: text.as_bytes() };
    turn.push(start);
    let Some(client) = repeater.clients.get_mut(index) else { return Ok(false) };
    reset(client, &mut turn, now_ns);
    ledger.write(&turn, now_ns)?;
    ledger.end()?;
    Ok(true)
}

fn reset<D: Disk>(client: &mut Client<D>, turn: &mut Entries, now_ns: u64) {
    client.store.set_time(now_ns);
    // Nothing is written yet, so the reset cannot fail.
    let _reset = client.store.reset(now_ns);
    client.store.collect(turn);
    client.store.written(&[]);
}

/// Moves an entire store aside, so that the gateway starts without one. The gateway must not be running. Returns the new path.
///
/// # Errors
/// Another process has the store open, or it cannot be renamed.
pub fn set_aside<D: Disk>(folder: &Path, now_ns: u64) -> Result<PathBuf, RestoreError> {
    // A running gateway holds the lock of its store.
    let (ledger, _) = Ledger::<D>::open(folder, JournalOptions::default(), SyncPolicy::Never)?;
    let mut name = folder.as_os_str().to_owned();
    name.push(format!(".{}", now_ns / 1_000_000_000));
    let aside = PathBuf::from(name);
    D::rename(folder, &aside).map_err(|source| tapeworks_journal::JournalError::Io {
        path: folder.to_owned(),
        what: "cannot be renamed",
        source,
    })?;
    drop(ledger);
    Ok(aside)
}

/// Formats a FIX message with `|` between its fields, for people.
#[must_use]
pub fn readable(message: &[u8]) -> String {
    String::from_utf8_lossy(message).replace('\x01', "|")
}

/// Describes an entry's bytes in one line.
#[must_use]
pub fn describe(entry: &Entry<'_>) -> String {
    match entry.kind {
        Kind::Request | Kind::ToClient => readable(entry.bytes),
        Kind::Start | Kind::Session => String::from_utf8_lossy(entry.bytes).replace('\n', " "),
        Kind::ToVenue | Kind::Unsent | Kind::Report => {
            let id = field(entry.bytes, 11)
                .map_or_else(String::new, |id| String::from_utf8_lossy(id).into_owned());
            format!("{}{id}", hex::encode(entry.bytes))
        }
        _ => entry.number.to_string(),
    }
}
