//! Compares what plants send to the multicast group with what receivers and clients have.
//!
//! Packets are seen before the network touches them, so they form the sequence that a receiver must have.

use std::collections::BTreeSet;

use tapeworks_outputs::multicast::receiver::ReceiverCounters;

use crate::coverage::notes;
use crate::plan::{MulticastPlan, Plan, What};
use crate::session::{Session, Taken, closed};
use crate::sessions::{Compared, rtype_of};
use crate::states::hash_of;

/// One session of the group.
#[derive(Debug)]
struct SentSession {
    name: Vec<u8>,
    /// The start of the plant that sends the session.
    began: u64,
    messages: Vec<Taken>,
}

/// Everything that plants have sent to the group.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    sessions: Vec<SentSession>,
}

/// What a receiver has received.
#[derive(Debug)]
pub(crate) struct Reception {
    pub(crate) number: u32,
    /// The last message sent when clients stopped.
    pub(crate) last: u64,
    pub(crate) records: Vec<u64>,
    pub(crate) counters: ReceiverCounters,
}

/// Reads a whole DBN record.
fn taken(message: &[u8]) -> Option<Taken> {
    let header = message.first_chunk::<8>()?;
    let [_, rtype, publisher @ .., i0, i1, i2, i3] = *header;
    Some(Taken {
        hash: hash_of(message),
        closed: closed(rtype, message),
        instrument: u32::from_le_bytes([i0, i1, i2, i3]),
        publisher: u16::from_le_bytes(publisher),
        rtype,
        levels: None,
    })
}

impl SentSession {
    /// Returns whether every message of the session can be requested.
    fn is_kept(&self, plan: &MulticastPlan) -> bool {
        /// Length of the longest record.
        const MOST_BYTES: usize = 520;
        self.messages.len() * MOST_BYTES < plan.store_bytes
    }
}

impl Sent {
    /// Returns the number of the last message of the last session.
    pub(crate) fn last(&self) -> u64 {
        self.sessions.last().map_or(0, |session| session.messages.len() as u64)
    }

    /// Takes a packet as it is sent. Returns what is wrong with it, if anything.
    pub(crate) fn sends(&mut self, began: u64, packet: &[u8]) -> Option<String> {
        let (name, rest) = packet.split_at_checked(10)?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let (count, mut rest) = rest.split_first_chunk::<2>()?;
        let (first, count) = (u64::from_be_bytes(*first), u16::from_be_bytes(*count));
        if self.sessions.last().is_none_or(|session| session.name != name || session.began != began) {
            self.sessions.push(SentSession { name: name.to_vec(), began, messages: Vec::new() });
        }
        let session = self.sessions.last_mut()?;
        let next = session.messages.len() as u64 + 1;
        if first != next {
            return Some(format!("the multicast sends message {first} as the next, which is {next}"));
        }
        // A heartbeat, or the end of the session.
        if count == u16::MAX {
            return None;
        }
        for _ in 0..count {
            let (length, behind) = rest.split_first_chunk::<2>()?;
            let (message, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            session.messages.extend(taken(message));
            rest = behind;
        }
        None
    }
}

/// Compares what receivers have with what was sent, and what was sent with what clients read.
pub(crate) fn compare(plan: &Plan, sent: &Sent, receptions: &[Reception]) -> Compared {
    let mut compared = Compared::default();
    let Some(multicast) = &plan.multicast else { return compared };
    for reception in receptions {
        let ReceiverCounters { missing, recovered, .. } = reception.counters;
        if missing > 0 {
            compared.reached.insert(notes::GIVEN_UP);
        }
        if recovered > 0 {
            compared.reached.insert(notes::RECOVERED);
        }
        let checked = match &sent.sessions[..] {
            [] => Ok(()),
            [session] => reception.check_one(session, multicast, plan),
            sessions => reception.check_several(sessions),
        };
        if let Err(why) = checked {
            compared.violations.push(format!("receiver {}: {why}", reception.number));
        }
    }
    compared
}

/// Compares, for each schema, what the group received with what a client reads, up to the end. `has_damage`: the disk has
/// lost some of the journal.
pub(crate) fn compare_with_clients(
    plan: &MulticastPlan,
    has_damage: bool,
    sent: &Sent,
    again: &[Session],
    last: u64,
) -> Result<(), String> {
    let Some(session) = sent.sessions.last().filter(|session| session.began == last) else { return Ok(()) };
    for all in again.iter().filter(|all| all.began == last) {
        for schema in all.client.schemas.iter().filter(|schema| plan.schemas.contains(schema)) {
            let rtype = rtype_of(schema);
            let of_kind = |taken: &&Taken| taken.rtype == rtype;
            let sent: Vec<&Taken> = session.messages.iter().filter(of_kind).collect();
            let read: Vec<&Taken> = all.records.iter().filter(of_kind).collect();
            // The first group of a book may have begun before the session. The rows wait for its end for a limited time from
            // its beginning, so only one of the two sides may have seen it end.
            let mut seen = BTreeSet::new();
            let is_first: Vec<bool> =
                sent.iter().map(|one| seen.insert((one.publisher, one.instrument))).collect();
            let is_equal = |(read, (sent, is_first)): (&&Taken, (&&Taken, &bool))| {
                read.hash == sent.hash || (*is_first && read.closed == sent.closed)
            };
            // A replay over damage lacks changes of the books and reports them as gaps. Its quotes match the plant's again once they have
            // changed. The replay may continue from a checkpoint that the plant took after its start, and then lacks all earlier records.
            let passes_damage = has_damage && !all.gaps.is_empty();
            let compared = if passes_damage { sent.len().min(1) } else { sent.len() };
            let is_end = (passes_damage || sent.len() <= read.len())
                && read.iter().rev().zip(sent.iter().zip(&is_first).rev()).take(compared).all(is_equal);
            if !is_end {
                let (sent, read) = (sent.len(), read.len());
                return Err(format!(
                    "the multicast has sent {sent} records of {schema}, and they are not the last of the {read} that a client reads"
                ));
            }
        }
    }
    Ok(())
}

impl Reception {
    /// Checks a receiver when the plant has sent one session.
    fn check_one(&self, session: &SentSession, multicast: &MulticastPlan, plan: &Plan) -> Result<(), String> {
        let ReceiverCounters { first, next, missing, not_records, messages, .. } = self.counters;
        if next <= self.last {
            return Err(format!("its next message is {next}, and {} were sent", self.last));
        }
        if first != 1 && (multicast.from_beginning || first == 0) {
            return Err(format!("it begins with message {first}"));
        }
        let from = usize::try_from(first - 1).unwrap_or(usize::MAX);
        let mut rest = session.messages.get(from..).unwrap_or_default().iter();
        if let Some(at) = self.records.iter().position(|hash| !rest.any(|one| one.hash == *hash)) {
            return Err(format!(
                "its record {at} is not among those that were sent, or comes again or too late"
            ));
        }
        let count = self.records.len() as u64;
        if count + missing != next - first || count != messages || not_records > 0 {
            return Err(format!(
                "it has {count} records of the messages from {first} to {next}, and says that {missing} are missing"
            ));
        }
        let is_answered = multicast.has_retransmission
            && session.is_kept(multicast)
            && !plan.faults.iter().any(|fault| matches!(fault.what, What::Group { of_requests: true, .. }));
        if is_answered && missing > 0 {
            return Err(format!("it has given up {missing} messages, and each request is answered"));
        }
        Ok(())
    }

    /// Checks a receiver when plants have sent several sessions, one after the other. All but the last may lack their end.
    fn check_several(&self, sessions: &[SentSession]) -> Result<(), String> {
        let (mut of, mut place) = (0, 0);
        for (at, hash) in self.records.iter().enumerate() {
            loop {
                let Some(session) = sessions.get(of) else {
                    return Err(format!(
                        "its record {at} is not among those that were sent, or comes again or too late"
                    ));
                };
                let rest = session.messages.get(place..).unwrap_or_default();
                if let Some(further) = rest.iter().position(|one| one.hash == *hash) {
                    place += further + 1;
                    break;
                }
                (of, place) = (of + 1, 0);
            }
        }
        let Some(last) = sessions.last() else { return Ok(()) };
        let (name, sent) = (String::from_utf8_lossy(&last.name), self.last);
        let ReceiverCounters { session, next, .. } = &self.counters;
        if *session != name || *next <= sent {
            return Err(format!("its next message is {next} of {session}, and {sent} of {name} were sent"));
        }
        Ok(())
    }
}
