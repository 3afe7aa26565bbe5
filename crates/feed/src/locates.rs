//! ITCH's stock locates: which instrument each number stands for.
//!
//! The stock directory defines a locate for the day. Before it, as in a capture from mid-day, the first symbol that a message names is
//! presumed, and the messages that follow vote on it: those that name it for, those that name another against, and those that give it to
//! another locate too. At [`CONFIRMED`] votes it stands; with none left the last message's symbol is presumed instead. A message that names
//! another symbol than its locate stands for, or a symbol that has another locate, contradicts that: but for its vote it changes nothing.
//! Only a directory message overrides an inferred symbol that is confirmed. The book of a symbol that was wrongly inferred is emptied and
//! stale: its orders are those of the other symbol, and the deletions will name the other.
//!
//! Cost: a message about an order loads from the table of instruments and nothing else. What is presumed is not in that table, and takes
//! the path of the unknown. A message with a symbol compares eight bytes.

use std::collections::BTreeSet;
use std::fmt;

use tapeworks_market::{InstrumentId, Symbol};
use tapeworks_planted::planted;
use tapeworks_wire::Ascii;

use crate::symbols::UNWANTED;

/// A message that names another symbol than its venue's number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Contradiction {
    /// The number stands for another symbol.
    OtherSymbol {
        /// The number.
        locate: u16,
        /// What it stands for.
        known: Ascii<8>,
        /// What the message says.
        named: Ascii<8>,
    },
    /// The symbol has another number.
    OtherLocate {
        /// The symbol.
        symbol: Ascii<8>,
        /// Its number.
        known: u16,
        /// What the message says.
        named: u16,
    },
    /// The table has no room for the number.
    NoRoom {
        /// The number.
        number: u32,
    },
    /// The symbol has another number, of 32 bits.
    OtherNumber {
        /// The symbol.
        symbol: Symbol,
        /// Its number.
        known: u32,
        /// What the message says.
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

/// The votes of a symbol that is named for the first time: a single message that errs does not take it away.
const FIRST_VOTES: u8 = 2;

/// With so many votes a symbol is no longer presumed.
const CONFIRMED: u8 = 4;

/// The origin of a definition.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Source {
    #[default]
    Nobody,
    /// Messages, or a directory from before the venue began anew. Messages still vote, and the instrument is not among the confirmed ones.
    Presumed {
        instrument: InstrumentId,
        votes: u8,
    },
    /// Messages that agreed.
    Message,
    Directory,
}

/// A contradiction, and the instrument whose book it makes stale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) contradiction: Contradiction,
    pub(crate) instrument: InstrumentId,
    /// If the instrument was wrongly inferred: that of the message that corrects it. The book has wrong orders then.
    pub(crate) corrected: Option<InstrumentId>,
}

/// A definition by a directory message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defined {
    pub(crate) instrument: InstrumentId,
    /// The inferred symbol that it corrects.
    pub(crate) corrected: Option<Refused>,
}

/// The instruments of a channel by stock locate; as long as the greatest one seen needs, so that a channel without messages costs
/// nothing.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug, Default)]
pub(crate) struct Locates {
    /// The confirmed ones.
    instruments: Vec<InstrumentId>,
    /// The symbol of each, and the origin of its definition.
    names: Vec<([u8; 8], Source)>,
    /// By instrument: the locate that stands for it.
    by_instrument: Vec<Option<u16>>,
    /// Locates of order messages that came before any definition: their books will lack those orders.
    unnamed: BTreeSet<u16>,
    /// The instrument of one of them that has been named since.
    #[cfg_attr(feature = "serde", serde(skip))]
    named_late: Option<InstrumentId>,
}

impl Locates {
    /// Whether every instrument is one of `symbols`.
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

    /// The instrument of a locate; [`InstrumentId::UNKNOWN`] for a presumed one too.
    #[inline]
    pub(crate) fn confirmed(&self, locate: u16) -> InstrumentId {
        self.instruments.get(usize::from(locate)).copied().unwrap_or(InstrumentId::UNKNOWN)
    }

    /// The instrument of a locate, or [`InstrumentId::UNKNOWN`].
    pub(crate) fn get(&self, locate: u16) -> InstrumentId {
        match self.name(locate) {
            (_, Source::Presumed { instrument, .. }) => instrument,
            _ => self.confirmed(locate),
        }
    }

    /// A new day has new numbers of instruments.
    pub(crate) fn clear(&mut self) {
        self.instruments.fill(InstrumentId::UNKNOWN);
        self.names.fill(Default::default());
        self.by_instrument.clear();
        self.unnamed.clear();
    }

    /// An order message is about a locate that nothing has named.
    pub(crate) fn note_unnamed(&mut self, locate: u16) {
        self.unnamed.insert(locate);
    }

    /// The books were rebuilt: no order is missing.
    pub(crate) fn forget_unnamed(&mut self) {
        self.unnamed.clear();
    }

    /// The instrument that was named now, if order messages were about it before.
    pub(crate) const fn take_named_late(&mut self) -> Option<InstrumentId> {
        self.named_late.take()
    }

    fn name(&self, locate: u16) -> ([u8; 8], Source) {
        self.names.get(usize::from(locate)).copied().unwrap_or_default()
    }

    /// Whether a message may name `stock` for `locate`. It defines nothing.
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

    /// The locate, other than `locate`, that stands for `instrument`, and the origin of its definition.
    fn other(&self, instrument: InstrumentId, locate: u16) -> Option<(u16, Source)> {
        let other = self.by_instrument.get(instrument.index()).copied()??;
        let (_, source) = self.name(other);
        (other != locate && source != Source::Nobody).then_some((other, source))
    }

    /// The instrument of a message that names its symbol: the first ones define the locate. `resolve` gives the symbol's instrument.
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

    /// The first message that names a symbol for a locate.
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

    /// A message speaks for what a locate is presumed to stand for.
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

    /// A message speaks against what a locate is presumed to stand for; whether no vote is left. What is confirmed has no votes.
    fn is_outvoted(&mut self, locate: u16) -> bool {
        let Some((_, Source::Presumed { votes, .. })) = self.names.get_mut(usize::from(locate)) else {
            return false;
        };
        *votes = votes.saturating_sub(1);
        *votes == 0
    }

    /// A directory message: it defines the locate unless another has.
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
