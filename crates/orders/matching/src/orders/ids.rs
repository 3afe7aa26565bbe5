//! Base-62 identifiers: 12 characters for a 64-bit number, like Millennium's order and execution IDs.

use tapeworks_wire::Ascii;

/// The digits by value.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Encodes a number with leading zeros. A 64-bit number has at most 11 digits.
pub(super) fn base_62(mut number: u64) -> Ascii<12> {
    let mut text = [b'0'; 12];
    for place in text.iter_mut().rev() {
        *place = DIGITS.get((number % 62) as usize).copied().unwrap_or(b'0');
        number /= 62;
    }
    Ascii(text)
}

/// Decodes a number; returns `None` if the text is not base 62. See [`base_62`].
pub(super) fn from_base_62(text: &Ascii<12>) -> Option<u64> {
    text.0.iter().try_fold(0u64, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'A'..=b'Z' => byte - b'A' + 10,
            b'a'..=b'z' => byte - b'a' + 36,
            _ => return None,
        };
        number.checked_mul(62)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_and_read_back() {
        for number in [0, 1, 61, 62, 1 << 32, u64::MAX] {
            assert_eq!(from_base_62(&base_62(number)), Some(number));
        }
        assert_eq!((base_62(62).0, base_62(61).0), (*b"000000000010", *b"00000000000z"));
        for text in [b"            ", b"zzzzzzzzzzzz", b"00000000000-"] {
            assert_eq!(from_base_62(&Ascii(*text)), None);
        }
    }
}
