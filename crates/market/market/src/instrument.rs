//! Instruments: one number per symbol, the same on every venue.
//!
//! A venue's own number (Nasdaq's stock locate) is valid for one day at one venue. Books are joined across venues by
//! symbol, so [`Instruments`] numbers the symbols in the order in which they first appear: densely, so that a number is
//! usable as an index, and identically in every run over the same input.

use std::collections::HashMap;
use std::fmt;

use tapeworks_ring::hash::fnv1a;

/// The number of an instrument: dense from 0, valid within one run.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct InstrumentId(pub u32);

impl InstrumentId {
    /// No instrument: an unused table entry.
    pub const UNKNOWN: Self = Self(u32::MAX - 1);

    /// All instruments of a venue: for a gap, a session event, or a clear of all books.
    pub const ALL: Self = Self(u32::MAX);

    /// Returns the number as a table index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Why bytes are not a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotASymbol {
    /// Empty, or begins with a space.
    Blank,
    /// More characters than [`Symbol::MOST`].
    TooLong {
        /// Number of characters.
        length: usize,
    },
    /// A byte that is neither visible ASCII nor a space.
    Byte {
        /// The byte.
        byte: u8,
        /// Its index.
        at: usize,
    },
}

impl fmt::Display for NotASymbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("a symbol begins with a letter or digit, and this one with nothing"),
            Self::TooLong { length } => {
                write!(f, "a symbol has at most {} letters, and this one {length}", Symbol::MOST)
            }
            Self::Byte { byte, at } => {
                write!(f, "a symbol is of ASCII letters, and byte {at} of this one is {byte:#04x}")
            }
        }
    }
}

impl std::error::Error for NotASymbol {}

/// A symbol: up to 21 ASCII characters, padded with trailing spaces.
///
/// An option's symbol in OCC form (root in six characters, date, `C` or `P`, strike price) has 21 characters and may
/// contain spaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol([u8; Self::MOST]);

impl Symbol {
    /// Maximum length of a symbol in characters.
    pub const MOST: usize = 21;

    /// The format that [`Symbol::parse`] accepts, for error messages.
    pub const FORM: &str = "1 to 21 visible ASCII characters, with spaces only between them";

    /// Creates a symbol from the bytes of a message, which may be padded with trailing spaces or zeros.
    ///
    /// Different symbols never become equal.
    ///
    /// # Errors
    /// [`NotASymbol`] if nothing is left after removing the padding, if more than [`Symbol::MOST`] bytes are left, if
    /// one of them is neither visible ASCII nor a space, or if the first one is a space.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotASymbol> {
        let length = bytes.iter().rposition(|byte| !matches!(byte, b' ' | 0)).map_or(0, |last| last + 1);
        let letters = bytes.get(..length).unwrap_or_default();
        let is_letter = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        let mut padded = [b' '; Self::MOST];
        let place = padded.get_mut(..length).ok_or(NotASymbol::TooLong { length })?;
        if letters.first().is_none_or(|first| *first == b' ') {
            return Err(NotASymbol::Blank);
        }
        if let Some(at) = letters.iter().position(|byte| !is_letter(byte)) {
            return Err(NotASymbol::Byte { byte: letters.get(at).copied().unwrap_or_default(), at });
        }
        place.copy_from_slice(letters);
        Ok(Self(padded))
    }

    /// Parses typed text in the format [`Symbol::FORM`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_bytes(text.as_bytes()).ok().filter(|symbol| symbol.as_str() == text)
    }

    /// Returns the text without padding.
    pub fn as_str(&self) -> &str {
        // Only visible ASCII and spaces are stored.
        std::str::from_utf8(&self.0).unwrap_or_default().trim_end()
    }

    /// Returns the padded bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::MOST] {
        &self.0
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The table of symbols seen.
#[derive(Debug, Default)]
pub struct Instruments {
    by_symbol: HashMap<Symbol, InstrumentId>,
    symbols: Vec<Symbol>,
    shard: Option<Shard>,
}

/// A subset of all symbols: those whose 64-bit FNV-1a hash modulo `of` equals `number`.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// The shard's number, from 0.
    pub number: u16,
    /// The number of shards.
    pub of: u16,
}

impl Shard {
    /// Returns the number of the shard, out of `shards`, that a symbol belongs to. Other programs may compute it too.
    pub fn of_symbol(symbol: Symbol, shards: u16) -> u16 {
        // Less than `shards`, so the cast is lossless.
        (fnv1a(symbol.as_str().as_bytes()) % u64::from(shards.max(1))) as u16
    }

    /// Returns whether a symbol belongs to this shard.
    pub fn has(self, symbol: Symbol) -> bool {
        Self::of_symbol(symbol, self.of) == self.number
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.number, self.of)
    }
}

impl Instruments {
    /// Creates an empty table with room for `capacity` symbols.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            by_symbol: HashMap::with_capacity(capacity),
            symbols: Vec::with_capacity(capacity),
            shard: None,
        }
    }

    /// Creates an empty table for a plant that receives events of this shard only, but the numbers of all symbols.
    pub fn of_shard(shard: Option<Shard>) -> Self {
        Self { shard, ..Self::default() }
    }

    /// Returns whether events of `id` can occur here. Cost: one hash if the table is sharded.
    pub fn is_ours(&self, id: InstrumentId) -> bool {
        self.shard.is_none_or(|shard| self.symbol(id).is_none_or(|symbol| shard.has(symbol)))
    }

    /// Returns the number of `symbol`, assigning the next one if the symbol is new.
    pub fn intern(&mut self, symbol: Symbol) -> InstrumentId {
        if let Some(id) = self.by_symbol.get(&symbol) {
            return *id;
        }
        // There could be more than 2^32 different symbols, but memory runs out long before.
        let id = InstrumentId(self.symbols.len() as u32);
        self.by_symbol.insert(symbol, id);
        self.symbols.push(symbol);
        id
    }

    /// Returns the number of `symbol`, if it has been seen.
    pub fn find(&self, symbol: Symbol) -> Option<InstrumentId> {
        self.by_symbol.get(&symbol).copied()
    }

    /// Returns the symbol of `id`.
    pub fn symbol(&self, id: InstrumentId) -> Option<Symbol> {
        self.symbols.get(id.index()).copied()
    }

    /// Returns all symbols, ordered by number.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Returns how many symbols have been seen.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Returns whether no symbol has been seen.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_symbol_has_the_same_number_however_it_is_padded() {
        let mut instruments = Instruments::default();
        let first = instruments.intern(Symbol::from_bytes(b"META    ").unwrap());
        assert_eq!(instruments.intern(Symbol::from_bytes(b"META").unwrap()), first);
        assert_eq!(instruments.intern(Symbol::from_bytes(b"META\0\0").unwrap()), first);
        assert_ne!(instruments.intern(Symbol::from_bytes(b"ZVZZT").unwrap()), first);
        assert_eq!(instruments.symbol(first).unwrap().as_str(), "META");
        assert_eq!(instruments.len(), 2);
    }

    #[test]
    fn bytes_are_a_symbol_whole_or_not_at_all() {
        let not = |bytes: &[u8]| Symbol::from_bytes(bytes).unwrap_err();
        assert_eq!(not(b"        "), NotASymbol::Blank);
        assert_eq!(not(b""), NotASymbol::Blank);
        assert_eq!(not(b" A"), NotASymbol::Blank);
        assert_eq!(not(b"A\xC4B     "), NotASymbol::Byte { byte: 0xC4, at: 1 });
        assert_eq!(not(b"A\0B"), NotASymbol::Byte { byte: 0, at: 1 });
        assert_eq!(not(b"ABCDEFGHIJKLMNOPQRSTUV"), NotASymbol::TooLong { length: 22 });
        assert_eq!(Symbol::from_bytes(b"A B ").unwrap().as_str(), "A B");
        assert_ne!(Symbol::from_bytes(b"A B"), Symbol::from_bytes(b"A"));
    }

    #[test]
    fn a_typed_symbol_is_taken_whole_or_refused() {
        for text in
            ["A", "BRK.B", "A B", "ABCDEFGHIJKLMNOPQRSTU", "SPX   260117C05000000", "BRK.B 260117P00300500"]
        {
            assert_eq!(Symbol::parse(text).unwrap().as_str(), text);
        }
        for text in ["", " ", " A", "A ", "A\0", "ABCDEFGHIJKLMNOPQRSTUV", "AÉ", "A\n", "\u{fffd}"] {
            assert_eq!(Symbol::parse(text), None, "{text:?}");
        }
    }
}
