//! Deliberately wrong answers of a retransmission server: a receiver must cope with every server.

use tapeworks_random::Random;
use tapeworks_session::{Refusal, Request, SessionId, Store, Transport as _, TransportKind, for_transport};
use tapeworks_wire::framing::{Blocks, LengthPrefix};

use crate::faults;

/// The faults of a retransmission server, each per million answers. An answer has at most one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct AnswerFaults {
    /// The answer is sent late.
    pub late_per_million: u32,
    /// Maximum delay of a late answer, in nanoseconds.
    pub late_ns: u64,
    /// The answer has fewer messages than requested.
    pub partial_per_million: u32,
    /// The answer has more messages than requested.
    pub more_per_million: u32,
    /// The answer has other messages of the session than requested.
    pub other_range_per_million: u32,
    /// The answer's header names another session.
    pub other_session_per_million: u32,
    /// Random bytes of the same lengths replace the messages, after a sound header.
    pub garbage_per_million: u32,
    /// Messages of unknown types and the same lengths replace the messages, after a sound header.
    #[serde(default)]
    pub unreadable_per_million: u32,
    /// The answer is sent 64 times.
    #[serde(default)]
    pub repeated_per_million: u32,
}

/// How often a repeated answer is sent.
const REPEATS: usize = 64;

/// The fault of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Late,
    Partial,
    More,
    OtherRange,
    OtherSession,
    Garbage,
    Unreadable,
    Repeated,
}

/// Returns how often an answer with this fault is sent.
pub(crate) fn times(wrong: Option<Wrong>) -> usize {
    if wrong == Some(Wrong::Repeated) { REPEATS } else { 1 }
}

impl AnswerFaults {
    const fn chances(&self) -> [(u32, Wrong); 8] {
        [
            (self.late_per_million, Wrong::Late),
            (self.partial_per_million, Wrong::Partial),
            (self.more_per_million, Wrong::More),
            (self.other_range_per_million, Wrong::OtherRange),
            (self.other_session_per_million, Wrong::OtherSession),
            (self.garbage_per_million, Wrong::Garbage),
            (self.unreadable_per_million, Wrong::Unreadable),
            (self.repeated_per_million, Wrong::Repeated),
        ]
    }

    /// Returns the number of wrong answers per million.
    pub(crate) fn sum(&self) -> u64 {
        faults::sum(&self.chances())
    }

    /// Draws the fault of the next answer.
    pub(crate) fn draw(&self, random: &mut Random) -> Option<Wrong> {
        faults::draw(&self.chances(), random)
    }
}

/// Returns another session of the same channel.
pub(crate) const fn other(session: SessionId) -> SessionId {
    match session {
        SessionId::MoldUdp64(mut name) => {
            // This turns one digit into another.
            name[9] ^= 1;
            SessionId::MoldUdp64(name)
        }
        SessionId::IexTp { protocol, channel, session } => {
            SessionId::IexTp { protocol, channel, session: session.wrapping_add(1) }
        }
        SessionId::Memoir(session) => SessionId::Memoir(session.wrapping_add(1)),
        // The header names no session.
        SessionId::CboeUnit(_) | SessionId::MitchUnit(_) | SessionId::CtaBlock(_) | SessionId::Pillar => {
            session
        }
    }
}

/// Writes the answer to a request into `answer`, like [`Store::answer`], with the given fault.
pub(crate) fn answer(
    store: &Store,
    request: &[u8],
    wrong: Option<Wrong>,
    now_ns: u64,
    random: &mut Random,
    answer: &mut Vec<u8>,
) -> Result<u16, Refusal> {
    let Some(wrong) = wrong else { return store.answer(request, now_ns, answer) };
    let (asked, named) = changed(store, store.read_request(request)?, wrong, random);
    let messages = store.answer_as(&asked, named, now_ns, answer)?;
    spoil(store.transport(), wrong, answer, random);
    Ok(messages)
}

/// Returns the packets that answer a TCP request completely, each with its number of messages, with the given fault.
pub(crate) fn answer_in_parts(
    store: &Store,
    request: Request,
    wrong: Option<Wrong>,
    now_ns: u64,
    random: &mut Random,
) -> Result<Vec<(Vec<u8>, u16)>, Refusal> {
    let (mut asked, named) = match wrong {
        Some(wrong) => changed(store, request, wrong, random),
        None => (request, request.session),
    };
    let mut parts = Vec::new();
    while asked.count > 0 {
        let mut packet = Vec::new();
        match store.answer_as(&asked, named, now_ns, &mut packet) {
            Ok(0) => break,
            Ok(messages) => {
                asked.first = asked.first.saturating_add(u64::from(messages));
                asked.count = asked.count.saturating_sub(messages);
                if let Some(wrong) = wrong {
                    spoil(store.transport(), wrong, &mut packet, random);
                }
                parts.push((packet, messages));
            }
            Err(refusal) if parts.is_empty() => return Err(refusal),
            // The remaining messages have not been sent yet.
            Err(_) => break,
        }
    }
    let is_only = parts.len() == 1;
    parts.iter_mut().for_each(|(packet, _)| store.transport().mark_answer(packet, is_only));
    Ok(parts)
}

/// Returns the request to answer instead of this one, and the session that the answer names.
fn changed(store: &Store, mut asked: Request, wrong: Wrong, random: &mut Random) -> (Request, SessionId) {
    let named = if wrong == Wrong::OtherSession { other(asked.session) } else { asked.session };
    match wrong {
        Wrong::Partial => asked.count = 1 + random.below(u32::from(asked.count).saturating_sub(1)) as u16,
        Wrong::More => asked.count = asked.count.saturating_add(1 + random.below(200) as u16),
        Wrong::OtherRange => asked.first = other_first(store, &asked, random),
        Wrong::Late | Wrong::OtherSession | Wrong::Garbage | Wrong::Unreadable | Wrong::Repeated => {}
    }
    (asked, named)
}

/// Returns the start of another range, near the requested one.
fn other_first(store: &Store, asked: &Request, random: &mut Random) -> u64 {
    let away = 1 + u64::from(random.below(200));
    let behind = asked.first.saturating_add(away);
    if random.below(2) == 0 && behind < store.kept().end {
        behind
    } else {
        asked.first.saturating_sub(away).max(1)
    }
}

/// Returns the number of bytes of a message that are its length.
const fn length_inside<Prefix: LengthPrefix>(_prefix: Prefix) -> usize {
    if Prefix::IS_PART { Prefix::BYTES } else { 0 }
}

/// Overwrites the messages of a packet with random bytes, or with a byte that is no type of any protocol. Header and lengths stay
/// unchanged.
fn spoil(transport: TransportKind, wrong: Wrong, packet: &mut [u8], random: &mut Random) {
    let is_random = match wrong {
        Wrong::Garbage => true,
        Wrong::Unreadable => false,
        _ => return,
    };
    let messages = packet.get_mut(transport.header_bytes()..).unwrap_or_default();
    let mut places = Vec::new();
    for_transport!(transport, T => {
        let mut walk = Blocks::new(messages, T::prefix());
        // A length that counts itself is part of its message.
        let kept = length_inside(T::prefix());
        while let Some(Ok(message)) = walk.next() {
            places.push(walk.offset() - message.len() + kept..walk.offset());
        }
    });
    for place in places {
        for byte in messages.get_mut(place).unwrap_or_default() {
            *byte = if is_random { random.bits() as u8 } else { 0xff };
        }
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_session::Made;
    use tapeworks_session::requests::RequestProtocol;
    use tapeworks_wire::framing::write_block;

    use super::*;

    fn store(transport: TransportKind) -> Store {
        let mut store = Store::new(transport, 1 << 20);
        store.begin_session(transport.session(7));
        for first in 1..=500 {
            let mut blocks = [0; 64];
            let written = for_transport!(transport, T => {
                write_block(T::prefix(), &mut blocks, &[first as u8; 20])
            });
            let blocks = &blocks[..written.unwrap()];
            store.keep(&Made { first, count: 1, stream_offset: 0, blocks });
        }
        store
    }

    #[test]
    fn a_wrong_answer_has_sound_framing() {
        for transport in TransportKind::ALL {
            let (store, mut random, mut bytes) = (store(transport), Random::new(1), Vec::new());
            let request = Request { session: transport.session(7), first: 300, count: 10 };
            let mut wrong = |wrong| {
                let asked = request.encode();
                let messages = answer(&store, &asked, wrong, 0, &mut random, &mut bytes).unwrap();
                assert!(transport.is_sound(&bytes), "{wrong:?}");
                let header = transport.header(&bytes).unwrap();
                assert_eq!(header.count, u64::from(messages));
                (header, bytes.clone())
            };
            let (right, sound) = wrong(None);
            assert_eq!((right.first, right.count), (300, 10));
            for fault in [Wrong::Late, Wrong::Repeated] {
                assert_eq!(wrong(Some(fault)), (right, sound.clone()));
            }
            assert!((1..10).contains(&wrong(Some(Wrong::Partial)).0.count));
            assert!(wrong(Some(Wrong::More)).0.count > 10);
            assert_ne!(wrong(Some(Wrong::OtherRange)).0.first, 300);
            let (other, _) = wrong(Some(Wrong::OtherSession));
            let (one, two) = (transport.session(1), transport.session(2));
            let has_sessions = one != two && one.is_of_channel_of(&two);
            assert_eq!(other.session != right.session, has_sessions);
            assert!(other.session.is_of_channel_of(&right.session));
            for fault in [Wrong::Garbage, Wrong::Unreadable] {
                let (header, bytes) = wrong(Some(fault));
                assert_eq!((header, bytes.len()), (right, sound.len()));
                assert_ne!(bytes, sound, "{fault:?}");
            }
        }
    }

    #[test]
    fn an_answer_in_parts_has_all_that_is_requested_in_sound_packets() {
        for transport in [RequestProtocol::Grp, RequestProtocol::Pillar].map(RequestProtocol::transport) {
            let (store, mut random) = (store(transport), Random::new(1));
            let request = |first, count| Request { session: transport.session(7), first, count };
            let mut parts = |request, wrong| answer_in_parts(&store, request, wrong, 0, &mut random);
            let all = parts(request(101, 300), None).unwrap();
            assert!(all.len() > 3);
            let mut next = 101;
            for (packet, messages) in &all {
                let header = transport.header(packet).unwrap();
                assert!(transport.is_sound(packet) && packet.len() <= 1_400);
                assert_eq!((header.first, header.count), (next, u64::from(*messages)));
                next += header.count;
            }
            assert_eq!(next, 401);
            let is_pillar = RequestProtocol::of(transport) == Some(RequestProtocol::Pillar);
            assert!(!is_pillar || all.iter().all(|(packet, _)| packet[2] == 15));
            let one = parts(request(101, 3), None).unwrap();
            assert!(one.len() == 1 && (!is_pillar || one[0].0[2] == 13));
            // Messages that were not yet sent are not in the answer.
            let last: u16 =
                parts(request(499, 10), None).unwrap().iter().map(|(_, messages)| *messages).sum();
            assert_eq!(last, 2);
            assert_eq!(parts(request(501, 10), None), Err(Refusal::NotSent));
            for wrong in [Wrong::Partial, Wrong::More, Wrong::OtherRange, Wrong::Garbage] {
                let wrongly = parts(request(101, 200), Some(wrong)).unwrap();
                assert!(wrongly.iter().all(|(packet, _)| transport.is_sound(packet)), "{wrong:?}");
                assert_ne!(wrongly, parts(request(101, 200), None).unwrap(), "{wrong:?}");
            }
        }
    }

    #[test]
    fn each_fault_is_drawn_as_often_as_configured() {
        let faults = AnswerFaults {
            late_per_million: 100_000,
            partial_per_million: 200_000,
            garbage_per_million: 300_000,
            ..AnswerFaults::default()
        };
        let mut random = Random::new(7);
        let drawn: Vec<_> = (0..10_000).map(|_| faults.draw(&mut random)).collect();
        let count = |wrong| drawn.iter().filter(|one| **one == wrong).count();
        let all = [Some(Wrong::Late), Some(Wrong::Partial), Some(Wrong::Garbage), None].map(count);
        for (count, expected) in all.into_iter().zip([1_000, 2_000, 3_000, 4_000]) {
            assert!(count.abs_diff(expected) < 200, "{all:?}");
        }
        assert_eq!(all.iter().sum::<usize>(), drawn.len());
        assert_eq!(AnswerFaults::default().draw(&mut random), None);
    }
}
