//! Length-prefixed messages, as carried by MoldUDP64, IEX-TP, SoupBinTCP and raw daily files.
//!
//! [`Blocks`] walks `length, bytes, length, bytes, ..` without copying. Cost per message: one load of the length, on
//! the cache line before the message.

use core::fmt;
use core::marker::PhantomData;

use crate::error::EncodeError;
use crate::schema::Endian;

/// An incomplete block. The blocks before it are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// The bytes end inside a block.
    Cut {
        /// Start of the block's length prefix, in bytes from the start of the blocks.
        offset: usize,
        /// Bytes that the block needs, including its prefix (the prefix alone if that is truncated).
        needed: usize,
        /// Bytes left.
        got: usize,
    },
    /// The count announces more blocks than the bytes hold.
    Missing {
        /// Start of the missing block, in bytes from the start of the blocks.
        offset: usize,
        /// The number of missing blocks.
        blocks: u64,
    },
}

impl fmt::Display for FramingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Cut { offset, needed, got } => {
                write!(formatter, "the block at offset {offset} needs {needed} bytes, {got} left")
            }
            Self::Missing { offset, blocks } => {
                write!(formatter, "{blocks} promised blocks are missing at offset {offset}")
            }
        }
    }
}

impl core::error::Error for FramingError {}

/// A length prefix: its width, its byte order, and whether it includes itself.
pub trait LengthPrefix: Copy {
    /// Length of the prefix in bytes.
    const BYTES: usize;
    /// Whether the prefix is the start of the block.
    const IS_PART: bool = false;
    /// Bytes of the prefix that belong to the block: the length of the shortest block.
    const OWN_BYTES: usize = if Self::IS_PART { Self::BYTES } else { 0 };

    /// Splits `bytes` into the length of the first block and the bytes that start with the block. `None` if the prefix is incomplete
    /// or invalid.
    fn split(bytes: &[u8]) -> Option<(usize, &[u8])>;

    /// Writes the prefix of a block of `length` bytes to the start of `target`; `None` if it does not fit.
    fn write(length: usize, target: &mut [u8]) -> Option<()>;
}

/// Two bytes, big-endian: Nasdaq, MEMX.
#[derive(Clone, Copy, Debug)]
pub struct BigEndian;

/// Two bytes, little-endian: IEX.
#[derive(Clone, Copy, Debug)]
pub struct LittleEndian;

/// One byte.
#[derive(Clone, Copy, Debug)]
pub struct OneByte;

/// A length that includes itself and is the start of its block. `CountsItself<OneByte>` is Cboe's PITCH,
/// `CountsItself<LittleEndian>` is NYSE's Pillar.
#[derive(Clone, Copy, Debug)]
pub struct CountsItself<Prefix>(PhantomData<Prefix>);

impl<Prefix> CountsItself<Prefix> {
    /// Creates the prefix, as a value.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<Prefix> Default for CountsItself<Prefix> {
    fn default() -> Self {
        Self::new()
    }
}

impl LengthPrefix for BigEndian {
    const BYTES: usize = 2;

    #[inline(always)]
    fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
        let (prefix, after) = bytes.split_first_chunk::<2>()?;
        Some((usize::from(u16::from_be_bytes(*prefix)), after))
    }

    #[inline]
    fn write(length: usize, target: &mut [u8]) -> Option<()> {
        *target.first_chunk_mut::<2>()? = u16::try_from(length).ok()?.to_be_bytes();
        Some(())
    }
}

impl LengthPrefix for LittleEndian {
    const BYTES: usize = 2;

    #[inline(always)]
    fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
        let (prefix, after) = bytes.split_first_chunk::<2>()?;
        Some((usize::from(u16::from_le_bytes(*prefix)), after))
    }

    #[inline]
    fn write(length: usize, target: &mut [u8]) -> Option<()> {
        *target.first_chunk_mut::<2>()? = u16::try_from(length).ok()?.to_le_bytes();
        Some(())
    }
}

impl LengthPrefix for OneByte {
    const BYTES: usize = 1;

    #[inline(always)]
    fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
        let (length, after) = bytes.split_first()?;
        Some((usize::from(*length), after))
    }

    #[inline]
    fn write(length: usize, target: &mut [u8]) -> Option<()> {
        *target.first_mut()? = u8::try_from(length).ok()?;
        Some(())
    }
}

impl<Prefix: LengthPrefix> LengthPrefix for CountsItself<Prefix> {
    const BYTES: usize = Prefix::BYTES;
    const IS_PART: bool = true;

    /// Returns `None` for a length too small to include itself, which ends the iteration.
    #[inline(always)]
    fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
        let (length, _) = Prefix::split(bytes)?;
        if length < Prefix::BYTES { None } else { Some((length, bytes)) }
    }

    #[inline]
    fn write(length: usize, target: &mut [u8]) -> Option<()> {
        Prefix::write(length, target)
    }
}

/// Iterates over length-prefixed blocks. Ends after a truncated block.
#[derive(Clone, Debug)]
pub struct Blocks<'a, Prefix> {
    /// The bytes not consumed yet.
    rest: &'a [u8],
    /// The original number of bytes.
    total: usize,
    /// The number of blocks still announced; without a count, more than there can be.
    remaining: u64,
    is_counted: bool,
    prefix: PhantomData<Prefix>,
}

impl<'a, Prefix: LengthPrefix> Blocks<'a, Prefix> {
    /// Iterates over as many blocks as `bytes` hold.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8], _prefix: Prefix) -> Self {
        Self { rest: bytes, total: bytes.len(), remaining: u64::MAX, is_counted: false, prefix: PhantomData }
    }

    /// Iterates over exactly `count` blocks; the bytes after them are [`trailing`](Self::trailing).
    #[inline]
    #[must_use]
    pub const fn counted(bytes: &'a [u8], count: u64, _prefix: Prefix) -> Self {
        Self { rest: bytes, total: bytes.len(), remaining: count, is_counted: true, prefix: PhantomData }
    }

    /// Iterates over exactly `count` blocks after the header of a packet. `packet` and `header` are the lengths of the packet and its header
    /// in bytes, according to the packet. Bytes past the packet's length are ignored.
    #[inline]
    #[must_use]
    pub fn of_packet(bytes: &'a [u8], (packet, header): (usize, usize), count: u64, prefix: Prefix) -> Self {
        let length = packet.saturating_sub(header);
        Self::counted(bytes.get(..length).unwrap_or(bytes), count, prefix)
    }

    /// Returns the offset of the next block's prefix, in bytes from the start of the blocks: after the iteration, the bytes used.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.total - self.rest.len()
    }

    /// Returns the bytes not consumed yet: after the iteration, the bytes after the last announced block.
    #[must_use]
    pub const fn trailing(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the final error if no whole block is left; `None` at the regular end.
    ///
    /// Takes no reference to the iterator, so that a loop can keep it in registers.
    #[cold]
    #[inline(never)]
    const fn end(offset: usize, got: usize, promised: Option<u64>, needed: usize) -> Option<FramingError> {
        match (got, promised) {
            (0, None) => None,
            (0, Some(blocks)) => Some(FramingError::Missing { offset, blocks }),
            _ => Some(FramingError::Cut { offset, needed, got }),
        }
    }

    #[inline(always)]
    fn fail(&mut self, needed: usize) -> Option<Result<&'a [u8], FramingError>> {
        let promised = if self.is_counted { Some(self.remaining) } else { None };
        self.remaining = 0;
        Self::end(self.offset(), self.rest.len(), promised, needed).map(Err)
    }
}

impl<'a, Prefix: LengthPrefix> Iterator for Blocks<'a, Prefix> {
    type Item = Result<&'a [u8], FramingError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining == 0 {
            return None;
        }
        let Some((length, after)) = Prefix::split(self.rest) else { return self.fail(Prefix::BYTES) };
        let Some((block, rest)) = after.split_at_checked(length) else {
            return self.fail(self.rest.len() - after.len() + length);
        };
        self.rest = rest;
        self.remaining -= 1;
        Some(Ok(block))
    }
}

/// Checks that `bytes` are exactly `declared` whole blocks with length prefixes of `prefix` bytes, which may include themselves. No bytes
/// are valid with any count: a header may be written before its messages, and requests and ends of session have none. For the
/// code generated by `protocol!`; `names` are the names of the blocks field and its count.
/// # Errors
/// A block is cut, or there are more or fewer.
#[doc(hidden)]
pub fn check_blocks(
    bytes: &[u8],
    (prefix, is_inclusive): (usize, bool),
    endian: Endian,
    declared: u64,
    names: [&'static str; 2],
) -> Result<(), EncodeError> {
    let (mut rest, mut entries) = (bytes, 0);
    while !rest.is_empty() {
        let cut = EncodeError::CutBlock { field: names[0], offset: bytes.len() - rest.len() };
        let (length, after) = rest.split_at_checked(prefix).ok_or(cut)?;
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let length = match endian {
            Endian::Big => length.iter().fold(0, add),
            Endian::Little => length.iter().rev().fold(0, add),
        };
        let counted = if is_inclusive { prefix as u64 } else { 0 };
        let length = length.checked_sub(counted).and_then(|length| usize::try_from(length).ok());
        rest = length.and_then(|length| after.get(length..)).ok_or(cut)?;
        entries += 1;
    }
    if entries > 0 && entries as u64 != declared {
        return Err(EncodeError::CountMismatch { field: names[1], declared, entries });
    }
    Ok(())
}

/// Writes `message` with a two-byte big-endian length prefix to the start of `target` and returns the number of bytes written;
/// `None` if it does not fit, or the message is longer than 65,535 bytes.
#[must_use]
pub fn write_block_big_endian(target: &mut [u8], message: &[u8]) -> Option<usize> {
    write_block(BigEndian, target, message)
}

/// Writes `message` with a two-byte little-endian length prefix to the start of `target` and returns the number of bytes
/// written; `None` if it does not fit, or the message is longer than 65,535 bytes.
#[must_use]
pub fn write_block_little_endian(target: &mut [u8], message: &[u8]) -> Option<usize> {
    write_block(LittleEndian, target, message)
}

/// Writes `message` with its length prefix to the start of `target` and returns the number of bytes written; `None` if it does not
/// fit, or exceeds the maximum length. A length that includes itself is already part of the message.
#[must_use]
pub fn write_block<Prefix: LengthPrefix>(
    _prefix: Prefix,
    target: &mut [u8],
    message: &[u8],
) -> Option<usize> {
    let prefix = Prefix::BYTES - Prefix::OWN_BYTES;
    let place = target.get_mut(..prefix + message.len())?;
    place.get_mut(prefix..)?.copy_from_slice(message);
    Prefix::write(message.len(), place)?;
    Some(place.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_yielded_in_order() {
        let bytes = [0, 2, b'a', b'b', 0, 0, 0, 1, b'c'];
        let mut blocks = Blocks::new(&bytes, BigEndian);
        assert_eq!(blocks.next(), Some(Ok(&b"ab"[..])));
        assert_eq!(blocks.next(), Some(Ok(&b""[..])));
        assert_eq!(blocks.next(), Some(Ok(&b"c"[..])));
        assert_eq!(blocks.next(), None);
        assert_eq!(blocks.offset(), 9);
    }

    #[test]
    fn a_cut_block_is_reported_once_after_the_good_ones() {
        let bytes = [1, 0, b'a', 5, 0, b'b'];
        let mut blocks = Blocks::new(&bytes, LittleEndian);
        assert_eq!(blocks.next(), Some(Ok(&b"a"[..])));
        assert_eq!(blocks.next(), Some(Err(FramingError::Cut { offset: 3, needed: 7, got: 3 })));
        assert_eq!(blocks.next(), None);
        let mut prefix_cut = Blocks::new(&bytes[..4], LittleEndian).skip(1);
        assert_eq!(prefix_cut.next(), Some(Err(FramingError::Cut { offset: 3, needed: 2, got: 1 })));
    }

    #[test]
    fn the_count_of_blocks_is_enforced() {
        let bytes = [0, 1, b'a', 0, 1, b'b'];
        let mut one = Blocks::counted(&bytes, 1, BigEndian);
        assert_eq!(one.by_ref().count(), 1);
        assert_eq!(one.trailing(), &bytes[3..]);
        let mut three = Blocks::counted(&bytes, 3, BigEndian).skip(2);
        assert_eq!(three.next(), Some(Err(FramingError::Missing { offset: 6, blocks: 1 })));
        assert_eq!(three.next(), None);
    }

    #[test]
    fn a_length_of_one_byte_or_one_that_counts_itself_is_walked() {
        let blocks: Vec<_> = Blocks::new(&[1, b'a', 2, b'b', b'c'], OneByte).map(Result::unwrap).collect();
        assert_eq!(blocks, [&b"a"[..], b"bc"]);
        let pitch = Blocks::new(&[2, b'a', 3, b'b', b'c'], CountsItself::<OneByte>(PhantomData));
        assert_eq!(pitch.map(Result::unwrap).collect::<Vec<_>>(), [&[2, b'a'][..], &[3, b'b', b'c']]);
        let mut pillar = Blocks::new(&[3, 0, b'a', 9, 0], CountsItself::<LittleEndian>(PhantomData));
        assert_eq!(pillar.next(), Some(Ok(&[3, 0, b'a'][..])));
        assert_eq!(pillar.next(), Some(Err(FramingError::Cut { offset: 3, needed: 9, got: 2 })));
        // A block that cannot hold its own length ends the iteration.
        let mut empty = Blocks::new(&[0, 0, 0], CountsItself::<OneByte>(PhantomData));
        assert!(matches!(empty.next(), Some(Err(FramingError::Cut { offset: 0, .. }))));
        assert_eq!(empty.next(), None);
    }

    #[test]
    fn a_written_block_is_read_back() {
        let mut target = [0; 8];
        assert_eq!(write_block_big_endian(&mut target, b"abc"), Some(5));
        assert_eq!(Blocks::counted(&target, 1, BigEndian).next(), Some(Ok(&b"abc"[..])));
        assert_eq!(write_block_little_endian(&mut target, b"abcdefg"), None);
    }
}
