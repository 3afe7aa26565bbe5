//! Maps symbols to instruments, and filters the wanted ones.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::select_unpredictable;

use tapeworks_market::{Event, EventKind, InstrumentId, Instruments, Publisher, Symbol};

#[cfg(feature = "serde")]
use crate::state::{Reader, StateError, Writer, ensure};

/// Hashes with one multiplication: the keys are symbols of an exchange's directory, not chosen by an attacker, and a million
/// messages a second are looked up. (A hostile capture can make this slow, not wrong.)
#[derive(Default)]
pub(crate) struct SymbolHasher(u64);

impl Hasher for SymbolHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        // The table uses the highest and the lowest bits; the fold mixes the product's best bits into both.
        let product = u128::from(self.0 ^ value) * u128::from(GOLDEN);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// Numbers symbols, and knows which are wanted.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    instruments: Instruments,
    by_word: HashMap<u64, InstrumentId, BuildHasherDefault<SymbolHasher>>,
    wanted: Option<HashSet<Symbol>>,
    unreadable: u64,
}

/// Eight-byte symbols with their wanted instruments. Most are found without a branch, for messages where no predictor can predict
/// whether they name a symbol. A symbol that is not found may be known all the same.
///
/// A bucket holds two symbols in half a cache line. There are at least twice as many buckets as symbols, so that at most about
/// three symbols in a hundred find no room.
pub(crate) struct QuickSymbols {
    buckets: Vec<[QuickSymbol; 2]>,
    /// 64 minus the number of bits in a bucket index.
    shift: u32,
    count: usize,
}

impl Default for QuickSymbols {
    fn default() -> Self {
        Self { buckets: Vec::new(), shift: 63, count: 0 }
    }
}

/// A symbol's bytes as a little-endian number, and its instrument.
type QuickSymbol = (u64, InstrumentId);

/// A free slot.
const FREE: QuickSymbol = (0, NOT_FOUND);

/// The entry that a message without a symbol finds, in the first bucket.
const NO_SYMBOL: QuickSymbol = (0, InstrumentId::UNKNOWN);

/// Initial number of buckets.
const FIRST_BUCKETS: usize = 64;

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Omits the symbols: which ones it holds depends on their order of arrival, and does not affect any result.
impl fmt::Debug for QuickSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuickSymbols")
    }
}

impl QuickSymbols {
    /// Returns the instrument of a symbol, or [`NOT_FOUND`]; [`InstrumentId::UNKNOWN`] for 0.
    #[inline(always)]
    pub(crate) fn get(&self, word: u64) -> InstrumentId {
        let Some([one, other]) = self.buckets.get(self.place(word)) else { return NOT_FOUND };
        let found = select_unpredictable(other.0 == word, other.1, NOT_FOUND);
        select_unpredictable(one.0 == word, one.1, found)
    }

    #[inline(always)]
    fn place(&self, word: u64) -> usize {
        // The highest bits of the product are distributed best.
        (word.wrapping_mul(GOLDEN) >> (self.shift & 63)) as usize
    }

    /// Adds a symbol that was not found, if it is wanted and there is room.
    #[cold]
    #[inline(never)]
    pub(crate) fn add(&mut self, word: u64, instrument: InstrumentId) {
        if 2 * self.count >= self.buckets.len() {
            let room = FIRST_BUCKETS.max(2 * self.buckets.len());
            let before = std::mem::replace(&mut self.buckets, vec![[FREE; 2]; room]);
            self.buckets[0][0] = NO_SYMBOL;
            self.shift = 64 - room.trailing_zeros();
            self.count = 0;
            before.into_iter().flatten().for_each(|(word, instrument)| self.put(word, instrument));
        }
        self.put(word, instrument);
    }

    fn put(&mut self, word: u64, instrument: InstrumentId) {
        let place = self.place(word);
        let Some(bucket) = self.buckets.get_mut(place) else { return };
        if word != 0
            && instrument < UNWANTED
            && let Some(free) = bucket.iter_mut().find(|symbol| **symbol == FREE)
        {
            *free = (word, instrument);
            self.count += 1;
        }
    }
}

/// Table value that marks the absence of an instrument.
pub(crate) const NOT_FOUND: InstrumentId = UNWANTED;

/// The number of an instrument that the user does not want.
pub(crate) const UNWANTED: InstrumentId = InstrumentId(u32::MAX - 2);

impl SymbolTable {
    pub(crate) fn new(wanted: Option<HashSet<Symbol>>) -> Self {
        Self { wanted, ..Self::default() }
    }

    pub(crate) const fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    /// Returns the number of unreadable venue symbols: not ASCII, or blank.
    pub(crate) const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Appends the symbols, in an order that depends only on them.
    #[cfg(feature = "serde")]
    pub(crate) fn save(&self, writer: &mut Writer) -> Result<(), StateError> {
        let symbols: Vec<[u8; Symbol::MOST]> =
            self.instruments.symbols().iter().map(|symbol| *symbol.as_bytes()).collect();
        writer.put(&symbols)?;
        let mut words: Vec<(u64, InstrumentId)> =
            self.by_word.iter().map(|(word, id)| (*word, *id)).collect();
        words.sort_unstable();
        writer.put(&words)
    }

    /// Restores a saved table.
    #[cfg(feature = "serde")]
    pub(crate) fn restore(
        wanted: Option<HashSet<Symbol>>,
        reader: &mut Reader<'_>,
    ) -> Result<Self, StateError> {
        let symbols: Vec<[u8; Symbol::MOST]> = reader.take()?;
        let words: Vec<(u64, InstrumentId)> = reader.take()?;
        let mut instruments = Instruments::with_capacity(symbols.len());
        for symbol in &symbols {
            let symbol =
                Symbol::from_bytes(symbol).map_err(|_| StateError::Inconsistent { what: "a symbol" })?;
            instruments.intern(symbol);
        }
        ensure(instruments.len() == symbols.len(), "a symbol is there twice")?;
        let unreadable = words.iter().filter(|(_, id)| *id == InstrumentId::UNKNOWN).count() as u64;
        let mut table = Self { instruments, by_word: words.iter().copied().collect(), wanted, unreadable };
        ensure(table.by_word.len() == words.len(), "a venue's symbol is there twice")?;
        ensure(words.iter().all(|(_, id)| table.is_known(*id)), "a symbol's instrument is not known")?;
        table.by_word.shrink_to_fit();
        Ok(table)
    }

    /// Returns whether a table may hold this number: a known instrument, none, or an unwanted one.
    #[cfg(feature = "serde")]
    pub(crate) fn is_known(&self, instrument: InstrumentId) -> bool {
        instrument.index() < self.instruments.len() || matches!(instrument, UNWANTED | InstrumentId::UNKNOWN)
    }

    /// Returns the instrument of an eight-byte symbol of `publisher`. A new mapping is passed to `announce`.
    #[inline]
    pub(crate) fn resolve(
        &mut self,
        symbol: [u8; 8],
        publisher: Publisher,
        announce: impl FnOnce(Event),
    ) -> InstrumentId {
        let word = u64::from_le_bytes(symbol);
        match self.by_word.get(&word) {
            Some(instrument) => *instrument,
            None => self.admit(word, publisher, announce),
        }
    }

    /// Returns the instrument of a symbol of any length. `None` means an invalid symbol, which has no instrument.
    #[cold]
    pub(crate) fn resolve_symbol(
        &mut self,
        symbol: Option<Symbol>,
        publisher: Publisher,
        announce: impl FnOnce(Event),
    ) -> InstrumentId {
        let Some(symbol) = symbol else {
            self.unreadable += 1;
            return InstrumentId::UNKNOWN;
        };
        // A symbol of eight letters or fewer is also in the table of eight-byte words.
        let mut word = [b' '; 8];
        match word.get_mut(..symbol.as_str().len()) {
            Some(room) => {
                room.copy_from_slice(symbol.as_str().as_bytes());
                self.resolve(word, publisher, announce)
            }
            None => self.intern(symbol, publisher, announce),
        }
    }

    /// Numbers a symbol that another plant has announced, wanted or not.
    pub(crate) fn learn(&mut self, symbol: Symbol) {
        self.instruments.intern(symbol);
    }

    /// Returns the number of a symbol, announcing it if it is new.
    fn intern(&mut self, symbol: Symbol, publisher: Publisher, announce: impl FnOnce(Event)) -> InstrumentId {
        if self.wanted.as_ref().is_some_and(|wanted| !wanted.contains(&symbol)) {
            return UNWANTED;
        }
        let known = self.instruments.len();
        let instrument = self.instruments.intern(symbol);
        if self.instruments.len() > known {
            announce(Event::new(EventKind::SymbolMapping, publisher, instrument).with_symbol(symbol));
        }
        instrument
    }

    #[cold]
    #[inline(never)]
    fn admit(&mut self, word: u64, publisher: Publisher, announce: impl FnOnce(Event)) -> InstrumentId {
        let Ok(symbol) = Symbol::from_bytes(&word.to_le_bytes()) else {
            // It has no instrument and no book, so it is never confused with another symbol.
            self.unreadable += 1;
            self.by_word.insert(word, InstrumentId::UNKNOWN);
            return InstrumentId::UNKNOWN;
        };
        let instrument = self.intern(symbol, publisher, announce);
        self.by_word.insert(word, instrument);
        instrument
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_symbol_is_the_one_that_was_added_or_not_found() {
        let mut quick = QuickSymbols::default();
        assert_eq!((quick.get(0), quick.get(7)), (NOT_FOUND, NOT_FOUND));
        let word = |text: &str| u64::from_le_bytes(*text.as_bytes().first_chunk().unwrap());
        let words: Vec<u64> = (0..5_000u32).map(|number| word(&format!("{number:<8}"))).collect();
        for (number, word) in words.iter().enumerate() {
            quick.add(*word, InstrumentId(number as u32));
            assert_eq!(quick.get(0), InstrumentId::UNKNOWN, "of no symbol");
        }
        quick.add(word("UNWANTED"), UNWANTED);
        quick.add(word("UNKNOWN "), InstrumentId::UNKNOWN);
        assert_eq!((quick.get(word("UNWANTED")), quick.get(word("UNKNOWN "))), (NOT_FOUND, NOT_FOUND));
        let rest = words.iter().enumerate().filter(|(number, word)| {
            let found = quick.get(**word);
            assert!(found == InstrumentId(*number as u32) || found == NOT_FOUND);
            found == NOT_FOUND
        });
        assert!(rest.count() < words.len() / 20);
    }
}
