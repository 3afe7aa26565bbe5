//! ITCH stock locates: the instrument that each number stands for.
//!
//! The stock directory defines a locate for the day. Before that, as in a capture that starts mid-day, the first symbol that a
//! message names is presumed, and the messages that follow vote on it: those that name it vote for it; those that name another
//! symbol, or give the symbol to another locate, vote against it. At [`CONFIRMED`] votes it is confirmed; with no votes left, the
//! last message's symbol is presumed instead. A message that names a symbol other than its locate's, or a symbol that has another
//! locate, is a contradiction: apart from its vote it changes nothing. Only a directory message overrides a confirmed inferred
//! symbol. The book of a wrongly inferred symbol is emptied and stale, because its orders belong to the other symbol, and the
//! deletions will name the other.
//!
//! Cost: a message about an order loads only from the table of instruments. Presumed locates are not in that table, and take the
//! path of unknown ones. A message with a symbol compares eight bytes.

use std::collections::BTreeSet;
use std::fmt;

use tapeworks_market::{InstrumentId, Symbol};
use tapeworks_planted::planted;
use tapeworks_wire::Ascii;

use crate::symbols::UNWANTED;

/// A message that contradicts the symbol of its venue's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Contradiction {
    /// The number stands for another symbol.
    OtherSymbol {
        /// The number.
        locate: u16,
        /// The symbol it stands for.
        known: Ascii<8>,
        /// The symbol in the message.
        named: Ascii<8>,
    },
    /// The symbol has another number.
    OtherLocate {
        /// The symbol.
        symbol: Ascii<8>,
        /// Its number.
        known: u16,
        /// The number in the message.
        named: u16,
    },
    /// The table has no room for the number.
    NoRoom {
        /// The number.
        number: u32,
    },
    /// The symbol has another 32-bit number.
    OtherNumber {
        /// The symbol.
        symbol: Symbol,
        /// Its number.
        known: u32,
        /// The number in the message.
        named: u32,
    },
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom { number } => write!(f, "there is no room for instrument number {number}"),
            Self::OtherNumber { symbol, known, named } => {
                write!(f, "'{symbol}' has instrument number {known}, and the message gives it {named}")
            }
            Self::OtherSymbol { locate, known, named } => {
                let (known, named) = (known.to_string(), named.to_string());
                write!(
                    f,
                    "stock locate {locate} is '{}', and the message names '{}'",
                    known.trim_end(),
                    named.trim_end()
                )
            }
            Self::OtherLocate { symbol, known, named } => {
                let symbol = symbol.to_string();
                write!(
                    f,
                    "'{}' has stock locate {known}, and the message gives it {named}",
                    symbol.trim_end()
                )
            }
        }
    }
}

/// Initial votes of a presumed symbol: one wrong message does not remove it.
const FIRST_VOTES: u8 = 2;

/// Number of votes at which a symbol is confirmed.
const CONFIRMED: u8 = 4;

/// The origin of a definition.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Source {
    #[default]
    Nobody,
    /// Messages, or a directory from before the venue restarted. Messages still vote, and the instrument is not among the
    /// confirmed ones.
    Presumed {
        instrument: InstrumentId,
        votes: u8,
    },
    /// Messages that agreed often enough.
    Message,
    Directory,
}

/// A contradiction, and the instrument whose book it makes stale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) contradiction: Contradiction,
    pub(crate) instrument: InstrumentId,
    /// If the instrument was wrongly inferred: the instrument of the message that corrects it. The book then has wrong orders.
    pub(crate) corrected: Option<InstrumentId>,
}

/// A definition by a directory message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defined {
    pub(crate) instrument: InstrumentId,
    /// The wrongly inferred symbol that it corrects.
    pub(crate) corrected: Option<Refused>,
}

/// The instruments of a channel by stock locate. The tables grow with the greatest locate seen, so a channel without messages
/// costs nothing.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug, Default)]
pub(crate) struct Locates {
    /// The confirmed instruments, by locate.
    instruments: Vec<InstrumentId>,
    /// The symbol of each locate, and the origin of its definition.
    names: Vec<([u8; 8], Source)>,
    /// The locate of each instrument.
    by_instrument: Vec<Option<u16>>,
    /// Locates of order messages that came before any definition. Their books will lack those orders.
    unnamed: BTreeSet<u16>,
    /// The instrument of such a locate that has just been named.
    #[cfg_attr(feature = "serde", serde(skip))]
    named_late: Option<InstrumentId>,
}

impl Locates {
    /// Returns whether every instrument is one of `symbols`.
    #[cfg(feature = "serde")]
    pub(crate) fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
        self.instruments.len() == self.names.len()
            && self.by_instrument.len() <= symbols.instruments().len()
            && self.instruments.iter().all(|instrument| symbols.is_known(*instrument))
            && self.names.iter().all(|(_, source)| match source {
                Source::Presumed { instrument, .. } => symbols.is_known(*instrument),
                _ => true,
            })
    }

    /// Returns the confirmed instrument of a locate; [`InstrumentId::UNKNOWN`] if it is unknown or only presumed.
    #[inline]
    pub(crate) fn confirmed(&self, locate: u16) -> InstrumentId {
        self.instruments.get(usize::from(locate)).copied().unwrap_or(InstrumentId::UNKNOWN)
    }

    /// Returns the confirmed or presumed instrument of a locate, or [`InstrumentId::UNKNOWN`].
    pub(crate) fn get(&self, locate: u16) -> InstrumentId {
        match self.name(locate) {
            (_, Source::Presumed { instrument, .. }) => instrument,
            _ => self.confirmed(locate),
        }
    }

    /// Clears the table, because a new day has new numbers.
    pub(crate) fn clear(&mut self) {
        self.instruments.fill(InstrumentId::UNKNOWN);
        self.names.fill(Default::default());
        self.by_instrument.clear();
        self.unnamed.clear();
    }

    /// Records a locate of an order message that nothing has named yet.
    pub(crate) fn note_unnamed(&mut self, locate: u16) {
        self.unnamed.insert(locate);
    }

    /// Forgets the unnamed locates, because the books were rebuilt and lack no order.
    pub(crate) fn forget_unnamed(&mut self) {
        self.unnamed.clear();
    }

    /// Takes the instrument that was just named, if order messages referred to it before.
    pub(crate) const fn take_named_late(&mut self) -> Option<InstrumentId> {
        self.named_late.take()
    }

    fn name(&self, locate: u16) -> ([u8; 8], Source) {
        self.names.get(usize::from(locate)).copied().unwrap_or_default()
    }

    /// Checks that a message may name `stock` for `locate`. Defines nothing.
    #[inline]
    pub(crate) fn check(&self, locate: u16, stock: [u8; 8]) -> Result<InstrumentId, Refused> {
        let instrument = self.get(locate);
        let (known, source) = self.name(locate);
        if source == Source::Nobody || known == stock || planted!("locate-renamed-by-any-message") {
            return Ok(instrument);
        }
        let contradiction = Contradiction::OtherSymbol { locate, known: Ascii(known), named: Ascii(stock) };
        Err(Refused { contradiction, instrument, corrected: None })
    }

    /// Returns the locate, other than `locate`, that stands for `instrument`, and the origin of its definition.
    fn other(&self, instrument: InstrumentId, locate: u16) -> Option<(u16, Source)> {
        let other = self.by_instrument.get(instrument.index()).copied()??;
        let (_, source) = self.name(other);
        (other != locate && source != Source::Nobody).then_some((other, source))
    }

    /// Returns the instrument of a message that names its symbol. The first such messages define the locate. `resolve` returns
    /// the symbol's instrument.
    #[inline]
    pub(crate) fn infer(
        &mut self,
        locate: u16,
        stock: [u8; 8],
        resolve: impl FnOnce() -> InstrumentId,
    ) -> Result<InstrumentId, Refused> {
        match self.confirmed(locate) {
            InstrumentId::UNKNOWN => self.vote(locate, stock, resolve),
            _ => self.check(locate, stock),
        }
    }

    #[cold]
    #[inline(never)]
    fn vote(
        &mut self,
        locate: u16,
        stock: [u8; 8],
        resolve: impl FnOnce() -> InstrumentId,
    ) -> Result<InstrumentId, Refused> {
        if self.get(locate) == InstrumentId::UNKNOWN {
            return self.presume(locate, stock, resolve());
        }
        match self.check(locate, stock) {
            Ok(instrument) => {
                self.confirm(locate);
                Ok(instrument)
            }
            Err(refused) if self.is_outvoted(locate) => {
                self.unset(locate);
                // If the symbol has another locate, this one has no symbol.
                let corrected = self.presume(locate, stock, resolve()).unwrap_or(InstrumentId::UNKNOWN);
                Err(Refused { corrected: Some(corrected), ..refused })
            }
            Err(refused) => Err(refused),
        }
    }

    /// Presumes the symbol of the first message that names one for a locate.
    fn presume(
        &mut self,
        locate: u16,
        stock: [u8; 8],
        instrument: InstrumentId,
    ) -> Result<InstrumentId, Refused> {
        if instrument == InstrumentId::UNKNOWN {
            // The lookup counts an unreadable symbol; it defines nothing.
            return Ok(instrument);
        }
        let mut refused = None;
        if let Some((known, _)) = self.other(instrument, locate) {
            let contradiction = Contradiction::OtherLocate { symbol: Ascii(stock), known, named: locate };
            let contradicts = Refused { contradiction, instrument, corrected: None };
            if !self.is_outvoted(known) {
                return Err(contradicts);
            }
            self.unset(known);
            refused = Some(Refused { corrected: Some(instrument), ..contradicts });
        }
        self.set(locate, stock, instrument, Source::Presumed { instrument, votes: FIRST_VOTES });
        refused.map_or(Ok(instrument), Err)
    }

    /// Adds a vote for the presumed symbol of a locate.
    fn confirm(&mut self, locate: u16) {
        let at = usize::from(locate);
        let (Some((_, source)), Some(confirmed)) = (self.names.get_mut(at), self.instruments.get_mut(at))
        else {
            return;
        };
        if let Source::Presumed { instrument, votes } = source {
            *votes = votes.saturating_add(1);
            if *votes >= CONFIRMED {
                *confirmed = *instrument;
                *source = Source::Message;
            }
        }
    }

    /// Adds a vote against the presumed symbol of a locate. Returns whether no vote is left. A confirmed symbol has no votes.
    fn is_outvoted(&mut self, locate: u16) -> bool {
        let Some((_, Source::Presumed { votes, .. })) = self.names.get_mut(usize::from(locate)) else {
            return false;
        };
        *votes = votes.saturating_sub(1);
        *votes == 0
    }

    /// Defines a locate by a directory message, unless another directory message has.
    #[cold]
    #[inline(never)]
    pub(crate) fn define(
        &mut self,
        locate: u16,
        stock: [u8; 8],
        resolve: impl FnOnce() -> InstrumentId,
    ) -> Result<Defined, Refused> {
        let (known, source) = self.name(locate);
        if source == Source::Directory {
            return self.check(locate, stock).map(|instrument| Defined { instrument, corrected: None });
        }
        let instrument = resolve();
        let mut corrected = None;
        if let Some((other, source)) = self.other(instrument, locate) {
            let contradiction =
                Contradiction::OtherLocate { symbol: Ascii(stock), known: other, named: locate };
            let refused = Refused { contradiction, instrument, corrected: None };
            if source == Source::Directory {
                return Err(refused);
            }
            self.unset(other);
            corrected = Some(Refused { corrected: Some(instrument), ..refused });
        }
        if source != Source::Nobody && known != stock {
            let contradiction =
                Contradiction::OtherSymbol { locate, known: Ascii(known), named: Ascii(stock) };
            let inferred = self.get(locate);
            corrected = Some(Refused { contradiction, instrument: inferred, corrected: Some(instrument) });
            self.unset(locate);
        }
        self.set(locate, stock, instrument, Source::Directory);
        Ok(Defined { instrument, corrected })
    }

    fn unset(&mut self, locate: u16) {
        let instrument = self.get(locate);
        if let Some(place) = self.instruments.get_mut(usize::from(locate)) {
            *place = InstrumentId::UNKNOWN;
        }
        if let Some(name) = self.names.get_mut(usize::from(locate)) {
            *name = Default::default();
        }
        if let Some(place) = self.by_instrument.get_mut(instrument.index()) {
            *place = None;
        }
    }

    fn set(&mut self, locate: u16, stock: [u8; 8], instrument: InstrumentId, source: Source) {
        let at = usize::from(locate);
        if self.instruments.len() <= at {
            let length = (at + 1).next_power_of_two();
            self.instruments.resize(length, InstrumentId::UNKNOWN);
            self.names.resize(length, Default::default());
        }
        let is_confirmed = !matches!(source, Source::Presumed { .. });
        self.instruments[at] = if is_confirmed { instrument } else { InstrumentId::UNKNOWN };
        self.names[at] = (stock, source);
        let was_unnamed = self.unnamed.remove(&locate);
        if instrument < UNWANTED {
            self.named_late = was_unnamed.then_some(instrument);
            let place = instrument.index();
            if self.by_instrument.len() <= place {
                self.by_instrument.resize(place + 1, None);
            }
            self.by_instrument[place] = Some(locate);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const FIRST: [u8; 8] = *b"FIRST   ";

    fn infer(locates: &mut Locates, locate: u16, stock: [u8; 8]) -> Result<InstrumentId, Refused> {
        locates.infer(locate, stock, || InstrumentId(if stock == FIRST { 0 } else { 1 }))
    }

    #[cfg(feature = "serde")]
    #[test]
    fn votes_are_kept_in_a_checkpoint() {
        let mut locates = Locates::default();
        for _ in 0..2 {
            infer(&mut locates, 1, FIRST).unwrap();
        }
        let mut writer = crate::state::Writer::default();
        writer.put(&locates).unwrap();
        let mut reader = crate::state::Reader { bytes: &writer.bytes };
        let mut restored: Locates = reader.take().unwrap();
        assert_eq!((restored.confirmed(1), restored.get(1)), (InstrumentId::UNKNOWN, InstrumentId(0)));
        infer(&mut restored, 1, FIRST).unwrap();
        assert_eq!(restored.confirmed(1), InstrumentId(0));
    }
}
