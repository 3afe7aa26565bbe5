//! Short texts assembled without allocation: reasons of rejects, ExecIDs.

use tapeworks_fix_wire::write_unsigned;

/// Maximum length in bytes.
const MOST_BYTES: usize = 96;

/// A text of at most 96 bytes. Anything beyond is cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    bytes: [u8; MOST_BYTES],
    length: usize,
}

impl Text {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; MOST_BYTES], length: 0 }
    }

    /// Appends text.
    #[inline]
    pub(crate) fn push(mut self, text: &[u8]) -> Self {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let length = room.len().min(text.len());
        if let (Some(to), Some(from)) = (room.get_mut(..length), text.get(..length)) {
            to.copy_from_slice(from);
        }
        self.length += length;
        self
    }

    /// Appends a number.
    #[inline]
    pub(crate) fn push_number(self, number: u64) -> Self {
        let mut digits = [0; 32];
        let length = write_unsigned(&mut digits, number).unwrap_or(0);
        self.push(digits.get(..length).unwrap_or_default())
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_put_together_and_cut_at_its_end() {
        let text = Text::new().push(b"tag ").push_number(40).push(b" is wrong");
        assert_eq!(text.as_bytes(), b"tag 40 is wrong");
        let long = Text::new().push(&[b'x'; 90]).push(b"123456789");
        assert_eq!((long.as_bytes().len(), long.as_bytes().last()), (96, Some(&b'6')));
        assert_eq!(long.push_number(7).as_bytes().len(), 96);
    }
}
