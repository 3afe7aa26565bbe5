//! Nonsense messages: unknown types, truncated messages, and random bytes; a second directory message with another symbol for the
//! same locate; executions and cancels that exceed the order.
//!
//! A venue sends them in addition to its own messages, under the same sequence numbers. They do not affect its books.

use tapeworks_session::{Transport, for_transport};
use tapeworks_wire::framing::LengthPrefix;

use crate::dialect::Dialect as _;
use crate::dialects::for_dialect;
use crate::generator::MAX_MESSAGE_BYTES;
use crate::scenario::VenueKind;
use tapeworks_random::Random;

/// A type that exists in no protocol.
const UNKNOWN_TYPE: u8 = 0xFE;

/// Maximum length of a message of random bytes.
const LONGEST_RANDOM: u32 = 80;

/// ITCH: offset of the symbol in a directory message, and the message's length.
const SYMBOL: std::ops::Range<usize> = 11..19;
const DIRECTORY_BYTES: usize = 39;
/// ITCH: length of the common fields plus the order number, and the offset of the shares, which follow the side.
const ORDER_BYTES: usize = 19;
const SHARES: std::ops::Range<usize> = 20..24;

/// Counts of nonsense messages sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NonsenseCounts {
    /// Messages of all kinds.
    pub messages: u64,
    /// Directory messages with another symbol for the same locate.
    pub renamed: u64,
    /// Executions and cancels that exceed the order.
    pub too_much: u64,
}

/// A nonsense message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonsense {
    pub(crate) bytes: [u8; MAX_MESSAGE_BYTES],
    pub(crate) length: usize,
}

impl Nonsense {
    fn new(of: &[u8]) -> Self {
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        let length = of.len().min(bytes.len());
        bytes.iter_mut().zip(of).for_each(|(to, from)| *to = *from);
        Self { bytes, length }
    }
}

/// Makes nonsense messages, at a rate per million messages of one venue.
#[derive(Debug, Clone)]
pub(crate) struct NonsenseMaker {
    kind: VenueKind,
    per_million: u32,
    random: Random,
    /// The last directory message and the last added order.
    directory: Option<[u8; DIRECTORY_BYTES]>,
    addition: Option<[u8; SHARES.end]>,
    made: NonsenseCounts,
}

impl NonsenseMaker {
    pub(crate) fn new(kind: VenueKind, per_million: u32, seed: u64) -> Self {
        let random = Random::new(seed);
        let made = NonsenseCounts::default();
        Self { kind, per_million, random, directory: None, addition: None, made }
    }

    pub(crate) const fn made(&self) -> NonsenseCounts {
        self.made
    }

    /// Observes a message that the venue sends. Returns the nonsense message to send after it, if any.
    #[inline]
    pub(crate) fn follow(&mut self, message: &[u8]) -> Option<Nonsense> {
        if self.per_million == 0 {
            return None;
        }
        self.note(message);
        self.random.chance(self.per_million).then(|| self.make(message))
    }

    /// Returns how many nonsense messages will follow these messages, which the venue sends next.
    pub(crate) fn count_behind<'m>(&self, messages: impl Iterator<Item = &'m [u8]>) -> u64 {
        if self.per_million == 0 {
            return 0;
        }
        let mut ahead = self.clone();
        messages.filter(|message| ahead.follow(message).is_some()).count() as u64
    }

    fn note(&mut self, message: &[u8]) {
        if !self.kind.is_in_files() {
            return;
        }
        match message.first() {
            Some(b'R') => self.directory = message.first_chunk().copied(),
            Some(b'A' | b'F') => self.addition = message.first_chunk().copied(),
            _ => {}
        }
    }

    fn make(&mut self, message: &[u8]) -> Nonsense {
        self.made.messages += 1;
        match self.random.below(8) {
            0 => self.cut(message),
            1 => self.random_bytes(),
            2 | 3 => self.renamed().unwrap_or_else(|| self.unknown(message)),
            4 | 5 => self.unknown(message),
            _ => self.too_much().unwrap_or_else(|| self.unknown(message)),
        }
    }

    /// Truncates the message.
    fn cut(&mut self, message: &[u8]) -> Nonsense {
        let kept = 1 + self.random.below((message.len() as u32).saturating_sub(1)) as usize;
        Nonsense::new(message.get(..kept.max(self.shortest())).unwrap_or_default())
    }

    fn random_bytes(&mut self) -> Nonsense {
        let length = 1 + self.random.below(LONGEST_RANDOM) as usize;
        let bytes = std::array::from_fn(|_| self.random.bits() as u8);
        Nonsense { bytes, length: length.max(self.shortest()) }
    }

    /// Returns the minimum length: a length field that counts itself cannot be smaller.
    fn shortest(&self) -> usize {
        for_transport!(self.kind.transport(), T => <<T as Transport>::Prefix as LengthPrefix>::OWN_BYTES)
    }

    fn unknown(&self, message: &[u8]) -> Nonsense {
        let mut nonsense = Nonsense::new(message);
        let place = for_dialect!(self.kind, D => D::TYPE_OFFSET);
        if let Some(kind) = nonsense.bytes.get_mut(place) {
            *kind = UNKNOWN_TYPE;
        }
        nonsense
    }

    /// Repeats the last directory message with another symbol.
    fn renamed(&mut self) -> Option<Nonsense> {
        let mut message = self.directory?;
        let symbol = message.get_mut(SYMBOL)?;
        let letter = b'A' + self.random.below(26) as u8;
        symbol.copy_from_slice(&[b'Z', b'Z', b'Z', letter, b' ', b' ', b' ', b' ']);
        self.made.renamed += 1;
        Some(Nonsense::new(&message))
    }

    /// Executes or cancels the last added order for more than its size.
    fn too_much(&mut self) -> Option<Nonsense> {
        let addition = self.addition?;
        let shares = u32::from_be_bytes(*addition.get(SHARES)?.first_chunk()?);
        let more = shares.saturating_add(1 + self.random.below(100)).to_be_bytes();
        let (kind, rest) = if self.random.below(2) == 0 { (b'E', 8) } else { (b'X', 0) };
        let mut nonsense = Nonsense::new(addition.get(..ORDER_BYTES)?);
        *nonsense.bytes.first_mut()? = kind;
        nonsense.bytes.get_mut(ORDER_BYTES..ORDER_BYTES + 4)?.copy_from_slice(&more);
        nonsense.length = ORDER_BYTES + 4 + rest;
        self.made.too_much += 1;
        Some(nonsense)
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_wire::nasdaq::itch50::Message;

    use super::*;

    fn addition(shares: u32) -> Vec<u8> {
        let mut message = vec![0; 36];
        (message[0], message[2], message[18], message[19]) = (b'A', 7, 5, b'B');
        message[SHARES].copy_from_slice(&shares.to_be_bytes());
        message[24..32].copy_from_slice(b"AAA     ");
        message
    }

    #[test]
    fn every_kind_of_nonsense_is_made() {
        let mut maker = NonsenseMaker::new(VenueKind::Bx, 1_000_000, 3);
        let mut directory = [0; DIRECTORY_BYTES];
        (directory[0], directory[2]) = (b'R', 7);
        directory[SYMBOL].copy_from_slice(b"AAA     ");
        maker.follow(&directory);
        let (mut renamed, mut too_much, mut unread) = (0, 0, 0);
        for _ in 0..1_000 {
            let made = maker.follow(&addition(100)).unwrap();
            match Message::decode(&made.bytes[..made.length]) {
                Ok(Message::StockDirectory(directory)) => {
                    assert_eq!(directory.stock_locate(), 7);
                    renamed += u32::from(directory.stock().0 != *b"AAA     ");
                }
                Ok(Message::OrderExecuted(executed)) => {
                    assert_eq!((executed.stock_locate(), executed.order_reference_number()), (7, 5));
                    too_much += u32::from(executed.executed_shares() > 100);
                }
                Ok(Message::OrderCancel(cancel)) => too_much += u32::from(cancel.cancelled_shares() > 100),
                Ok(_) => {}
                Err(_) => unread += 1,
            }
        }
        for count in [renamed, too_much, unread] {
            assert!((150..700).contains(&count), "{renamed} {too_much} {unread}");
        }
        let made = maker.made();
        assert_eq!((made.renamed, made.too_much), (renamed.into(), too_much.into()));
    }

    #[test]
    fn without_a_rate_there_is_none() {
        let mut maker = NonsenseMaker::new(VenueKind::Memx, 0, 3);
        assert!((0..1_000).all(|_| maker.follow(&addition(1)).is_none()));
    }
}
