//! The ids that go between the two sides. Each is text of at most 20 characters, and none can be taken for another.

use tapeworks_wire::Ascii;

/// A FIX client, by its place in the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientIndex(pub u16);

/// An instrument, by its place in the reference table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstrumentIndex(pub u32);

/// Partitions (App IDs) of a venue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partitions([u64; 4]);

impl Partitions {
    /// Whether this one is among them.
    #[inline]
    #[must_use]
    pub const fn has(&self, app_id: u8) -> bool {
        self.0[(app_id >> 6) as usize] >> (app_id & 63) & 1 != 0
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|app_id| self.has(*app_id))
    }
}

impl FromIterator<u8> for Partitions {
    fn from_iter<T: IntoIterator<Item = u8>>(app_ids: T) -> Self {
        let mut all = Self::default();
        for app_id in app_ids {
            all.0[usize::from(app_id >> 6)] |= 1 << (app_id & 63);
        }
        all
    }
}

/// ClOrdID (11) of a request of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClOrdId(pub Ascii<20>);

/// The name of a request at the venue, which its reports carry: the Client Order ID of native messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VenueName(pub Ascii<20>);

/// The venue's id of an order; blank: not known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VenueOrderId(pub Ascii<20>);

/// The venue's id of an execution; blank: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExecutionId(pub Ascii<32>);

impl VenueName {
    /// A number as ten digits.
    #[must_use]
    pub fn numbered(number: u32) -> Self {
        let mut bytes = [b' '; 20];
        let mut rest = number;
        for place in bytes.iter_mut().take(10).rev() {
            // A remainder of 10 is one digit.
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Self(Ascii(bytes))
    }

    /// The number that the name is; `None`: it is none.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let number = tapeworks_wire::fix::read_unsigned(self.0.trimmed()).ok()?;
        u32::try_from(number).ok()
    }
}

impl ClOrdId {
    /// The id of this text; `None` if it is empty, longer than 20 characters, not printable ASCII, or ends with a space.
    #[inline]
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        let ends_well = text.last().is_some_and(|last| *last != b' ');
        let id: Ascii<20> = Ascii::padded(text).filter(|_| ends_well)?;
        // All of them at once: the padding is printable too.
        let is_printable = id.0.iter().fold(true, |all, byte| all & (b' '..=b'~').contains(byte));
        is_printable.then_some(Self(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_1_to_20_printable_characters_and_no_space_at_its_end() {
        let id = ClOrdId::new(b"A 1").map(|id| id.0.trimmed().to_vec());
        assert_eq!(id.as_deref(), Some(&b"A 1"[..]));
        assert!(ClOrdId::new(&[b'X'; 20]).is_some());
        for text in [&b""[..], b"A ", b"A\x01", b"\xC3\x84", &[b'X'; 21]] {
            assert_eq!(ClOrdId::new(text), None, "{text:?}");
        }
    }
}
