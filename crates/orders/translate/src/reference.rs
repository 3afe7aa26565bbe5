//! The reference table: maps FIX symbols and SecurityIDs to the venue's instruments, and PartyIDs to short codes.
//!
//! Cost: one hash of the SecurityID or Symbol per lookup. Nothing allocates after [`Reference::new`].

use tapeworks_wire::Ascii;
use thiserror::Error;

use crate::ids::InstrumentIndex;
use crate::index::{Hash, Index};

/// A traded instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instrument {
    /// Symbol (55).
    pub symbol: Ascii<20>,
    /// SecurityID (48); blank: the venue's number in decimal.
    pub security_id: Ascii<20>,
    /// The venue's number of the instrument: the Instrument ID of native messages.
    pub venue_id: i32,
    /// The tick size in 1e-8: prices must be multiples of it; 0: not checked here.
    pub tick_e8: i64,
    /// Whether it trades at prices of 0 and below, as spreads do. If not, orders with such prices are refused.
    pub has_negative_prices: bool,
    /// The partition (App ID) that processes its orders.
    pub partition: u8,
    /// The venue's segment.
    pub segment: Ascii<4>,
}

/// A contradiction in a reference table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// Two instruments have the same symbol or SecurityID.
    #[error("instrument {venue_id} has a symbol or SecurityID that another has")]
    InstrumentTwice {
        /// The second instrument's number at the venue.
        venue_id: i32,
    },
    /// An instrument has a negative tick.
    #[error("instrument {venue_id} has a negative tick")]
    Tick {
        /// The instrument's number at the venue.
        venue_id: i32,
    },
    /// Two parties have the same id.
    #[error("party {party} is there twice")]
    PartyTwice {
        /// The PartyID.
        party: Ascii<20>,
    },
}

/// Instruments and parties.
#[derive(Clone, Debug)]
pub struct Reference {
    instruments: Vec<Instrument>,
    /// The SecurityID of each instrument.
    security_ids: Vec<Ascii<20>>,
    parties: Vec<(Ascii<20>, u32)>,
    by_symbol: Index,
    by_security_id: Index,
    by_party: Index,
}

impl Reference {
    /// Creates a table of instruments, and of PartyIDs (448) with their short codes.
    ///
    /// # Errors
    /// An instrument or a party occurs twice, or a tick is negative.
    pub fn new(instruments: &[Instrument], parties: &[(Ascii<20>, u32)]) -> Result<Self, ReferenceError> {
        let mut reference = Self {
            instruments: Vec::with_capacity(instruments.len()),
            security_ids: Vec::with_capacity(instruments.len()),
            parties: Vec::with_capacity(parties.len()),
            by_symbol: Index::new(instruments.len()),
            by_security_id: Index::new(instruments.len()),
            by_party: Index::new(parties.len()),
        };
        for (place, instrument) in (0..).zip(instruments) {
            let venue_id = instrument.venue_id;
            if instrument.tick_e8 < 0 {
                return Err(ReferenceError::Tick { venue_id });
            }
            let security_id = if instrument.security_id.is_blank() {
                Ascii::new(&venue_id.to_string()).unwrap_or_default()
            } else {
                plain(&instrument.security_id)
            };
            let symbol = plain(&instrument.symbol);
            let is_known =
                reference.by_symbol(&symbol).is_some() || reference.by_security_id(&security_id).is_some();
            let has_room = reference.by_symbol.insert_new(Hash::new(0, &symbol), place)
                && reference.by_security_id.insert_new(Hash::new(0, &security_id), place);
            if is_known || !has_room {
                return Err(ReferenceError::InstrumentTwice { venue_id });
            }
            reference.instruments.push(Instrument { symbol, ..*instrument });
            reference.security_ids.push(security_id);
        }
        for (place, (party, code)) in (0..).zip(parties) {
            let id = plain(party);
            if reference.by_party(&id).is_some() || !reference.by_party.insert_new(Hash::new(0, &id), place) {
                return Err(ReferenceError::PartyTwice { party: *party });
            }
            reference.parties.push((id, *code));
        }
        Ok(reference)
    }

    /// Returns the number of instruments.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.instruments.len()
    }

    /// Returns whether there is no instrument.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.instruments.is_empty()
    }

    /// Returns an instrument by its index.
    #[inline]
    #[must_use]
    pub fn instrument(&self, index: InstrumentIndex) -> Option<&Instrument> {
        self.instruments.get(index.0 as usize)
    }

    /// Returns whether any instrument belongs to this segment.
    #[must_use]
    pub(crate) fn has_segment(&self, segment: &Ascii<4>) -> bool {
        self.instruments.iter().any(|instrument| instrument.segment.trimmed() == segment.trimmed())
    }

    /// Finds the instrument that a message names. If both fields are present, they must name the same instrument.
    #[inline]
    #[must_use]
    pub fn find(&self, symbol: Option<&[u8]>, security_id: Option<&[u8]>) -> Option<InstrumentIndex> {
        let by_security_id = security_id.map(|text| self.by_security_id(&Ascii::padded(text)?));
        let by_symbol = symbol.map(|text| self.by_symbol(&Ascii::padded(text)?));
        match (by_security_id, by_symbol) {
            (Some(one), Some(other)) if one != other => None,
            (Some(place), _) | (None, Some(place)) => place.map(InstrumentIndex),
            (None, None) => None,
        }
    }

    /// Returns the short code of a PartyID: from the table, or the PartyID itself if it is a number.
    #[inline]
    #[must_use]
    pub fn short_code(&self, party: &[u8]) -> Option<u32> {
        match Ascii::padded(party).and_then(|id| self.by_party(&id)) {
            Some(place) => self.parties.get(place as usize).map(|(_, code)| *code),
            None => tapeworks_fix_wire::read_unsigned(party).ok().and_then(|code| u32::try_from(code).ok()),
        }
    }

    #[inline]
    fn by_symbol(&self, symbol: &Ascii<20>) -> Option<u32> {
        let is_it =
            |place: u32| self.instruments.get(place as usize).is_some_and(|one| one.symbol == *symbol);
        self.by_symbol.get(Hash::new(0, symbol), is_it)
    }

    #[inline]
    fn by_security_id(&self, id: &Ascii<20>) -> Option<u32> {
        self.by_security_id.get(Hash::new(0, id), |place| self.security_ids.get(place as usize) == Some(id))
    }

    #[inline]
    fn by_party(&self, id: &Ascii<20>) -> Option<u32> {
        let is_it = |place: u32| self.parties.get(place as usize).is_some_and(|(party, _)| party == id);
        self.by_party.get(Hash::new(0, id), is_it)
    }
}

/// Normalizes the padding to spaces.
fn plain(text: &Ascii<20>) -> Ascii<20> {
    Ascii::padded(text.trimmed()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instrument(symbol: &str, security_id: &str, venue_id: i32) -> Instrument {
        Instrument {
            symbol: Ascii::new(symbol).unwrap(),
            security_id: Ascii::new(security_id).unwrap(),
            venue_id,
            tick_e8: 1,
            has_negative_prices: false,
            partition: 1,
            segment: Ascii::default(),
        }
    }

    #[test]
    fn instruments_are_found_by_symbol_by_security_id_and_by_both() {
        let parties = [(Ascii::new("DESK").unwrap(), 77)];
        let reference =
            Reference::new(&[instrument("A", "", 5), instrument("B", "GB1", 6)], &parties).unwrap();
        let found = |symbol: Option<&str>, id: Option<&str>| {
            reference.find(symbol.map(str::as_bytes), id.map(str::as_bytes)).map(|index| index.0)
        };
        assert_eq!(
            (found(Some("A"), None), found(None, Some("5")), found(None, Some("GB1"))),
            (Some(0), Some(0), Some(1))
        );
        assert_eq!((found(Some("B"), Some("GB1")), found(Some("A"), Some("GB1"))), (Some(1), None));
        assert_eq!(
            (found(None, None), found(Some("C"), None), found(Some("A"), Some("9"))),
            (None, None, None)
        );
        assert_eq!((reference.short_code(b"DESK"), reference.short_code(b"12")), (Some(77), Some(12)));
        assert_eq!((reference.short_code(b"DESC"), reference.short_code(b"99999999999")), (None, None));
    }

    #[test]
    fn a_table_that_contradicts_itself_is_refused() {
        let twice = Reference::new(&[instrument("A", "", 5), instrument("A", "", 6)], &[]);
        assert_eq!(twice.err(), Some(ReferenceError::InstrumentTwice { venue_id: 6 }));
        let party = Ascii::new("P").unwrap();
        let twice = Reference::new(&[], &[(party, 1), (party, 2)]);
        assert_eq!(twice.err(), Some(ReferenceError::PartyTwice { party }));
        let negative = Instrument { tick_e8: -1, ..instrument("A", "", 5) };
        assert_eq!(Reference::new(&[negative], &[]).err(), Some(ReferenceError::Tick { venue_id: 5 }));
    }
}
