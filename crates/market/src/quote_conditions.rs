//! Which quotes of a SIP's participants count in the national best bid and offer, by their quote conditions.
//!
//! The definitions of the feeds list the conditions and do not say which count. The table is that of the plans as public copies have it: UTP's of 2005 marks `A`, `B`,
//! `H`, `O` and `R`. Not verified: `Y` of UTP, whose one side counts here, since its later name is that of automated quotes; `4`, which counts at neither; and all of CTA's, whose slow quotes
//! count, though they are not protected. A condition that is not known counts.

/// A SIP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sip {
    /// Tape C.
    Utp,
    /// Tapes A and B.
    Cta,
}

/// Whether the quote of a participant with this condition counts in the national best.
///
/// ```
/// use tapeworks_market::quote_conditions::{Sip, counts};
/// assert!(counts(Sip::Utp, b'R') && !counts(Sip::Utp, b'N'));
/// assert!(counts(Sip::Cta, b' ') && !counts(Sip::Cta, b'C'));
/// ```
#[must_use]
#[inline]
pub const fn counts(sip: Sip, condition: u8) -> bool {
    match sip {
        // Fast trading, order imbalance, closed, non-firm, manual and non-firm, order influx, no open or no resume, auction during the day.
        Sip::Utp => !matches!(condition, b'F' | b'I' | b'L' | b'N' | b'U' | b'X' | b'Z' | b'4'),
        // Closing, closed market maker, non-firm, auction during the day.
        Sip::Cta => !matches!(condition, b'C' | b'L' | b'N' | b'4'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firm_open_quotes_count_and_closed_or_non_firm_ones_do_not() {
        let counting = |sip, all: &[u8]| -> Vec<u8> {
            all.iter().copied().filter(|condition| counts(sip, *condition)).collect()
        };
        assert_eq!(counting(Sip::Utp, b"ABFHILNORUXYZ4?"), b"ABHORY?");
        assert_eq!(counting(Sip::Cta, b" ABCEFHLNORUW4?"), b" ABEFHORUW?");
    }
}
