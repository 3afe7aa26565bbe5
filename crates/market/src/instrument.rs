//! Instruments: a number for a symbol, the same on every venue.
//!
//! A venue's own number (Nasdaq's stock locate) is valid for one day at one venue. Books across venues are joined by
//! the symbol, so [`Instruments`] gives each symbol a number in the order in which it was first seen: dense, usable
//! as an index, the same in every run over the same input.

use std::collections::HashMap;
use std::fmt;

use tapeworks_ring::hash::fnv1a;

/// The number of an instrument: dense from 0, valid within one run.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct InstrumentId(pub u32);

impl InstrumentId {
    /// No instrument: an unused place in a table.
    pub const UNKNOWN: Self = Self(u32::MAX - 1);

    /// Every instrument of a venue: of a gap, a session event, the clearing of all books.
    pub const ALL: Self = Self(u32::MAX);

    /// As an index of a table.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Bytes that are no symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotASymbol {
    /// Nothing, or a space at the beginning.
    Blank,
    /// More letters than [`Symbol::MOST`].
    TooLong {
        /// How many.
        length: usize,
    },
    /// A byte that is neither visible ASCII nor a space.
    Byte {
        /// The byte.
        byte: u8,
        /// Where it is.
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

/// A symbol: up to 21 ASCII characters, padded with spaces at the end. An option's symbol in OCC's form (the root in six
/// characters, the date, `C` or `P`, the strike price) has 21, and may have spaces inside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol([u8; Self::MOST]);

impl Symbol {
    /// The most letters of a symbol.
    pub const MOST: usize = 21;

    /// The form that [`Symbol::parse`] takes, for error messages.
    pub const FORM: &str = "1 to 21 visible ASCII characters, with spaces only between them";

    /// From the bytes of a message, padded or not with spaces or zeros at the end. No two symbols become one.
    ///
    /// # Errors
    /// [`NotASymbol`] if nothing is left, if more than [`Symbol::MOST`] bytes are, if one is not visible ASCII or a space, or if it begins with
    /// a space.
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

    /// From typed text, if it has the form [`Symbol::FORM`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_bytes(text.as_bytes()).ok().filter(|symbol| symbol.as_str() == text)
    }

    /// The text without its padding.
    pub fn as_str(&self) -> &str {
        // Only ASCII graphics and spaces are stored.
        std::str::from_utf8(&self.0).unwrap_or_default().trim_end()
    }

    /// The padded bytes.
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

/// A part of all symbols: those whose FNV-1a (64 bits) is this number, modulo so many.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// The shard, from 0.
    pub number: u16,
    /// Of how many.
    pub of: u16,
}

impl Shard {
    /// The shard of a symbol among so many. Other programs may compute it too.
    pub fn of_symbol(symbol: Symbol, shards: u16) -> u16 {
        // Less than `shards`, which fits.
        (fnv1a(symbol.as_str().as_bytes()) % u64::from(shards.max(1))) as u16
    }

    /// Whether a symbol is of it.
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
    /// An empty table with room for `capacity` symbols.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            by_symbol: HashMap::with_capacity(capacity),
            symbols: Vec::with_capacity(capacity),
            shard: None,
        }
    }

    /// An empty table of a plant that has events of these symbols only, and the numbers of all.
    pub fn of_shard(shard: Option<Shard>) -> Self {
        Self { shard, ..Self::default() }
    }

    /// Whether events of `id` can come here. Cost: a hash where the table is of a shard.
    pub fn is_ours(&self, id: InstrumentId) -> bool {
        self.shard.is_none_or(|shard| self.symbol(id).is_none_or(|symbol| shard.has(symbol)))
    }

    /// The number of `symbol`, given now if it is new.
    pub fn intern(&mut self, symbol: Symbol) -> InstrumentId {
        if let Some(id) = self.by_symbol.get(&symbol) {
            return *id;
        }
        // The letters could name more than 2^32 symbols, but memory ends long before.
        let id = InstrumentId(self.symbols.len() as u32);
        self.by_symbol.insert(symbol, id);
        self.symbols.push(symbol);
        id
    }

    /// The number of `symbol`, if it was seen.
    pub fn find(&self, symbol: Symbol) -> Option<InstrumentId> {
        self.by_symbol.get(&symbol).copied()
    }

    /// The symbol of `id`.
    pub fn symbol(&self, id: InstrumentId) -> Option<Symbol> {
        self.symbols.get(id.index()).copied()
    }

    /// All symbols, by number.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// How many symbols were seen.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Whether no symbol was seen.
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
