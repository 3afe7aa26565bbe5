//! An event as 64 bytes for other programs and for journals: the fields in order and size, little-endian.
//!
//! This is not the memory layout of an [`Event`]: an absent price is encoded as DBN's undefined price. Cost: one cache
//! line read and one written.

use tapeworks_time::Nanos;

use super::{Event, EventKind, Flags, FlagsAndLine, Line, Side};
use crate::instrument::InstrumentId;
use crate::price::{Price, price_e9};
use crate::venue::Publisher;

impl Event {
    /// Length of an encoded event in bytes.
    pub const BYTES: usize = 64;

    /// Encodes the event.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let longs = [
            self.ts_event.0,
            self.ts_recv.0,
            self.order_id,
            price_e9(self.price) as u64,
            self.channel_sequence,
            self.aux,
        ];
        for (place, long) in bytes.chunks_exact_mut(8).zip(longs) {
            place.copy_from_slice(&long.to_le_bytes());
        }
        bytes[48..52].copy_from_slice(&self.instrument.0.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.size.to_le_bytes());
        bytes[56..58].copy_from_slice(&self.publisher.0.to_le_bytes());
        let flags = self.flags_and_line.flags().0 | self.flags_and_line.line() as u8;
        bytes[58..62].copy_from_slice(&[self.kind as u8, self.side as u8, flags, self.detail]);
        bytes[62..].copy_from_slice(&self.channel.to_le_bytes());
        bytes
    }

    /// Decodes an event. Returns `None` if its kind or side is unknown.
    ///
    /// The lowest possible price, which no venue uses, decodes as no price.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let long =
            |place: usize| bytes.get(8 * place..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
        let word = |at: usize| bytes.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
        let half = |at: usize| bytes.get(at..)?.first_chunk::<2>().map(|bytes| u16::from_le_bytes(*bytes));
        let [.., kind, side, flags, detail, _, _] = *bytes;
        let side = [Side::Ask, Side::Bid, Side::None].into_iter().find(|one| *one as u8 == side)?;
        Some(Self {
            ts_event: Nanos(long(0)?),
            ts_recv: Nanos(long(1)?),
            order_id: long(2)?,
            price: Price::from_e9(long(3)? as i64).filter(|price| price.e9() != i64::MIN),
            channel_sequence: long(4)?,
            aux: long(5)?,
            instrument: InstrumentId(word(48)?),
            size: word(52)?,
            publisher: Publisher(half(56)?),
            kind: EventKind::from_number(kind)?,
            side,
            flags_and_line: FlagsAndLine::new(Flags(flags), Line::from_bits(flags)),
            detail,
            channel: half(62)?,
        })
    }
}
