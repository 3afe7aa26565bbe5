//! Quote conditions: which quotes of a SIP's participants are eligible for the national best bid and offer.
//!
//! The feed specifications list the conditions but not which ones are eligible. This table follows public copies of the
//! plans: UTP's of 2005 marks `A`, `B`, `H`, `O` and `R`. Not verified: UTP's `Y` (one-sided quotes), eligible here
//! because its later name is that of automated quotes; `4`, eligible at neither SIP; and all of CTA's, whose slow
//! quotes are eligible here although they are not protected. Unknown conditions are eligible.

/// A SIP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sip {
    /// Tape C.
    Utp,
    /// Tapes A and B.
    Cta,
}

/// Returns whether a participant's quote with this condition is eligible for the national best.
/// ```
/// use tapeworks_market::quote_conditions::{Sip, counts};
/// assert!(counts(Sip::Utp, b'R') && !counts(Sip::Utp, b'N'));
/// assert!(counts(Sip::Cta, b' ') && !counts(Sip::Cta, b'C'));
/// ```
#[must_use]
#[inline]
pub const fn counts(sip: Sip, condition: u8) -> bool {
    match sip {
        // Fast trading, order imbalance, closed, non-firm, manual and non-firm, order influx, no open or no resume,
        // intraday auction.
        Sip::Utp => !matches!(condition, b'F' | b'I' | b'L' | b'N' | b'U' | b'X' | b'Z' | b'4'),
        // Closing, closed market maker, non-firm, intraday auction.
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
