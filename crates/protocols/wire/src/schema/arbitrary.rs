//! Random messages from the schema, which the protocol's decoder must accept. They are used to test every protocol.

use super::{Endian, Field, Kind, Schema, Structure};

/// The SplitMix64 generator (Steele, Lea, Flood 2014): small, seeded, identical on every machine. Not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates a generator. The same seed always produces the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound` (0 if `bound` is 0). The bias is below `bound / 2^64`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }
}

/// The most entries of a group, the most blocks, and the most bytes of an open end.
const MOST_ENTRIES: u64 = 5;
const MOST_BLOCK_BYTES: u64 = 40;

fn put(out: &mut [u8], number: u64, endian: Endian) {
    let bytes = number.to_le_bytes();
    let length = out.len();
    for (index, place) in out.iter_mut().enumerate() {
        let from = match endian {
            Endian::Little => index,
            Endian::Big => length - 1 - index,
        };
        *place = bytes.get(from).copied().unwrap_or(0);
    }
}

fn fill(out: &mut [u8], field: &Field, random: &mut SplitMix64) {
    for place in out.iter_mut() {
        *place = random.next_u64() as u8;
    }
    match field.kind {
        Kind::Ascii => {
            let used = random.below(out.len() as u64 + 1) as usize;
            for (index, place) in out.iter_mut().enumerate() {
                *place = if index < used { b'A' + random.below(26) as u8 } else { b' ' };
            }
        }
        Kind::AsciiNumber => {
            let start = random.below(out.len() as u64) as usize;
            for (index, place) in out.iter_mut().enumerate() {
                *place = if index < start { b' ' } else { b'0' + random.below(10) as u8 };
            }
        }
        // One in four stays random, because unlisted values must survive a round trip.
        Kind::Enum(schema) if random.below(4) > 0 => {
            let choice = random.below(schema.values.len() as u64) as usize;
            if let Some(value) = schema.values.get(choice) {
                put(out, value.raw, if schema.text { Endian::Big } else { field.endian });
            }
        }
        _ => {
            if let Some(absent) = field.absent
                && random.below(3) == 0
            {
                put(out, absent as u64, field.endian);
            }
        }
    }
}

/// Appends random bytes that form a valid `structure` of `schema`: its tag and constant, one of its lengths, matching counts, and
/// enum values both listed and unlisted.
pub fn arbitrary(schema: &Schema, structure: &Structure, random: &mut SplitMix64, out: &mut Vec<u8>) {
    let start = out.len();
    let mut length = structure.minimum_length;
    for field in structure.fields.iter().filter(|field| field.since.is_some()) {
        if random.below(2) == 0 {
            break;
        }
        length = field.offset + field.length;
    }
    out.resize(start + length, 0);
    let Some(message) = out.get_mut(start..) else { return };
    for field in structure.fields {
        if let Some(place) = message.get_mut(field.offset..field.offset + field.length) {
            fill(place, field, random);
        }
    }
    if let (Some(tag), Some(number)) = (schema.tag, structure.tag)
        && let Some(place) = message.get_mut(tag.offset..tag.offset + tag.length)
    {
        put(place, number, if tag.text { Endian::Big } else { schema.endian });
    }
    if let (Some(constant), Some(_)) = (schema.constant, structure.tag)
        && let Some(place) = message.get_mut(constant.offset)
    {
        *place = constant.value;
    }
    let Some(tail) = structure.fields.last() else { return };
    let entries = random.below(MOST_ENTRIES + 1);
    let count = match tail.kind {
        Kind::Group { entry, count } => {
            for _ in 0..entries {
                let at = out.len();
                out.resize(at + entry.minimum_length, 0);
                for field in entry.fields {
                    let place = at + field.offset;
                    if let Some(place) = out.get_mut(place..place + field.length) {
                        fill(place, field, random);
                    }
                }
            }
            count
        }
        Kind::Blocks { length_bytes, is_inclusive, count } => {
            for _ in 0..entries {
                let bytes = random.below(MOST_BLOCK_BYTES);
                let at = out.len();
                out.resize(at + length_bytes, 0);
                if let Some(place) = out.get_mut(at..) {
                    let counted = if is_inclusive { length_bytes as u64 } else { 0 };
                    put(place, bytes + counted, tail.endian);
                }
                out.extend((0..bytes).map(|_| random.next_u64() as u8));
            }
            count
        }
        Kind::Rest => {
            let bytes = random.below(MOST_BLOCK_BYTES);
            out.extend((0..bytes).map(|_| random.next_u64() as u8));
            return;
        }
        _ => return,
    };
    if let Some(field) = structure.fields.iter().find(|field| field.name == count)
        && let Some(place) = out.get_mut(start + field.offset..start + field.offset + field.length)
    {
        put(place, entries, field.endian);
    }
}
