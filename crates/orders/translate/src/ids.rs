//! Ids shared by the two sides. Each has its own type, so that none can be mistaken for another.

use tapeworks_wire::Ascii;

/// A FIX client, by its index in the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientIndex(pub u16);

/// An instrument, by its index in the reference table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstrumentIndex(pub u32);

/// A set of a venue's partitions (App IDs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partitions([u64; 4]);

impl Partitions {
    /// Returns whether the set contains this partition.
    #[inline]
    #[must_use]
    pub const fn has(&self, app_id: u8) -> bool {
        self.0[(app_id >> 6) as usize] >> (app_id & 63) & 1 != 0
    }

    /// Iterates over the partitions in ascending order.
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

/// The ClOrdID (11) of a client's request, or the id of its quote: 1 to 64 printable ASCII characters. The default is blank: no id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClOrdId {
    text: Ascii<{ Self::LONGEST }>,
    length: u8,
}

/// The name of a request at the venue, which the venue's reports contain: the Client Order ID of native messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VenueName(pub Ascii<20>);

/// The venue's id of an order; blank: not known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VenueOrderId(pub Ascii<20>);

/// The venue's id of an execution; blank: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExecutionId(pub Ascii<32>);

impl VenueName {
    /// Creates a name of ten digits from a number.
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

    /// Returns the name as a number; `None`: it is not a number.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let number = tapeworks_fix_wire::read_unsigned(self.0.trimmed()).ok()?;
        u32::try_from(number).ok()
    }
}

impl ClOrdId {
    /// Maximum number of characters.
    pub const LONGEST: usize = 64;

    /// Maximum length of a [`VenueName`]. Most ids are no longer than that, and only these characters are read, hashed and
    /// compared.
    pub(crate) const SHORT: usize = 20;

    /// Creates an id from a text. Returns `None` if it is empty, longer than 64 characters, not printable ASCII, or ends with a
    /// space.
    #[inline]
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        let ends_well = text.last().is_some_and(|last| *last != b' ');
        let padded = Ascii::padded(text).filter(|_| ends_well)?;
        let id = Self { text: padded, length: text.len() as u8 };
        // Checks all bytes without a branch each; the padding is printable too.
        let are_printable =
            |bytes: &[u8]| bytes.iter().fold(true, |all, byte| all & (b' '..=b'~').contains(byte));
        let (short, rest) = id.parts();
        (are_printable(short) && (!id.is_long() || are_printable(rest))).then_some(id)
    }

    /// Returns the characters.
    #[inline]
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.text.0.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// Returns the characters, unless the id is blank.
    #[inline]
    pub(crate) fn present(&self) -> Option<&[u8]> {
        (self.length > 0).then(|| self.text())
    }

    /// Returns whether the id is too long for a name at the venue.
    #[inline]
    pub(crate) const fn is_long(&self) -> bool {
        self.length as usize > Self::SHORT
    }

    /// Splits the id into the characters that fit into a name at the venue and the rest, both padded.
    #[inline]
    pub(crate) fn parts(&self) -> (&[u8; Self::SHORT], &[u8]) {
        let short = self.text.0.first_chunk().unwrap_or(&[b' '; Self::SHORT]);
        (short, self.text.0.get(Self::SHORT..).unwrap_or_default())
    }

    /// Returns the id as a name at the venue, cut off at the length of a name.
    #[inline]
    pub(crate) fn as_name(&self) -> VenueName {
        VenueName(Ascii(*self.parts().0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_1_to_64_printable_characters_and_no_space_at_its_end() {
        let uuid = b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
        for text in [&b"A 1"[..], &[b'X'; 20], &[b'X'; 21], uuid, &[b'X'; 64]] {
            let id = ClOrdId::new(text).unwrap();
            assert_eq!((id.text(), id.is_long()), (text, text.len() > 20));
        }
        let long = |last: u8| [&[b'X'; 40][..], &[last]].concat();
        for text in [&b""[..], b"A ", b"A\x01", b"\xC3\x84", &long(b' '), &long(0x7F), &long(0), &[b'X'; 65]]
        {
            assert_eq!(ClOrdId::new(text), None, "{text:?}");
        }
    }
}
