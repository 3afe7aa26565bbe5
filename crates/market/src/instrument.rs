//! Instruments: a number for a symbol, the same on every venue.
//!
//! A venue's own number (Nasdaq's stock locate) is valid for one day at one venue. Books across venues are joined by
//! the symbol, so [`Instruments`] gives each symbol a number in the order in which it was first seen: dense, usable
//! as an index, the same in every run over the same input.

use std::collections::HashMap;
use std::fmt;

/// The number of an instrument: dense from 0, valid within one run.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct InstrumentId(pub u32);

impl InstrumentId {
    /// No instrument: a place in a table that nothing is known of yet.
    pub const UNKNOWN: Self = Self(u32::MAX - 1);

    /// Every instrument of a venue: of a gap, a session event, the clearing of all books.
    pub const ALL: Self = Self(u32::MAX);

    /// As an index of a table.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A symbol: up to 16 ASCII characters, padded with spaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol([u8; 16]);

impl Symbol {
    /// From the bytes of a message, padded or not with spaces or zeros; what is beyond 16 bytes is cut.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut padded = [b' '; 16];
        for (to, from) in padded.iter_mut().zip(bytes) {
            *to = if from.is_ascii_graphic() { *from } else { b' ' };
        }
        Self(padded)
    }

    /// From what a person wrote: 1 to 16 visible ASCII characters, or it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let is_one = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_one.then(|| Self::from_bytes(text.as_bytes()))
    }

    /// The text without its padding.
    pub fn as_str(&self) -> &str {
        // Only ASCII graphics and spaces are stored.
        std::str::from_utf8(&self.0).unwrap_or_default().trim_end()
    }

    /// The sixteen padded bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
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
}

impl Instruments {
    /// An empty table with room for `capacity` symbols.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { by_symbol: HashMap::with_capacity(capacity), symbols: Vec::with_capacity(capacity) }
    }

    /// The number of `symbol`, given now if it is new.
    pub fn intern(&mut self, symbol: Symbol) -> InstrumentId {
        if let Some(id) = self.by_symbol.get(&symbol) {
            return *id;
        }
        // Sixteen bytes of ASCII could name more than 2^32 symbols, but memory ends long before.
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
        let first = instruments.intern(Symbol::from_bytes(b"META    "));
        assert_eq!(instruments.intern(Symbol::from_bytes(b"META")), first);
        assert_eq!(instruments.intern(Symbol::from_bytes(b"META\0\0")), first);
        assert_ne!(instruments.intern(Symbol::from_bytes(b"ZVZZT")), first);
        assert_eq!(instruments.symbol(first).unwrap().as_str(), "META");
        assert_eq!(instruments.len(), 2);
    }

    #[test]
    fn what_a_person_writes_is_a_symbol_whole_or_not_at_all() {
        for text in ["A", "BRK.B", "ABCDEFGHIJKLMNOP"] {
            assert_eq!(Symbol::parse(text).unwrap().as_str(), text);
        }
        for text in ["", " ", "A B", "ABCDEFGHIJKLMNOPQ", "AÉ", "A\n", "\u{fffd}"] {
            assert_eq!(Symbol::parse(text), None, "{text:?}");
        }
    }
}
