//! Identifiers of issues: ISIN and CUSIP, and London's symbols, which contain an ISIN.
//!
//! An ISIN (ISO 6166) is a country code, nine letters or digits, and a Luhn check digit. In ISINs of the United States
//! and Canada, the nine characters are a CUSIP, which has its own check digit with another formula. Nothing here knows
//! whether an issue or a country exists.
//!
//! Cost: not meant for the hot path, but nothing allocates.

use std::fmt;
use std::str::FromStr;

/// Why text is not an ISIN or CUSIP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentifierError {
    /// Wrong length or characters.
    Form,
    /// Wrong check digit.
    CheckDigit {
        /// The correct digit.
        expected: char,
    },
}

impl fmt::Display for IdentifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("length or characters are wrong"),
            Self::CheckDigit { expected } => write!(f, "the check digit is wrong: {expected} would be right"),
        }
    }
}

impl std::error::Error for IdentifierError {}

/// Returns the value of a letter or digit; A is 10.
const fn value(character: u8) -> u32 {
    match character {
        b'0'..=b'9' => (character - b'0') as u32,
        b'A'..=b'Z' => (character - b'A') as u32 + 10,
        _ => 0,
    }
}

/// Returns the digit that completes a sum to a multiple of ten.
const fn complement(sum: u32) -> u8 {
    b'0' + ((10 - sum % 10) % 10) as u8
}

/// Returns whether a character may occur in an identifier.
const fn is_of_number(character: u8) -> bool {
    character.is_ascii_digit() || character.is_ascii_uppercase()
}

/// Checks the last character of an identifier against its check digit.
fn check(number: &[u8], expected: u8) -> Result<(), IdentifierError> {
    match number.last() {
        Some(last) if *last == expected => Ok(()),
        _ => Err(IdentifierError::CheckDigit { expected: char::from(expected) }),
    }
}

/// An ISIN with a valid check digit.
/// ```
/// use tapeworks_market::identifiers::{Cusip, Isin};
///
/// let isin: Isin = "US0378331005".parse()?;
/// assert_eq!(isin.cusip(), Some("037833100".parse()?));
/// assert_eq!("037833100".parse::<Cusip>()?.isin(), Some(isin));
/// # Ok::<(), tapeworks_market::identifiers::IdentifierError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Isin([u8; 12]);

impl Isin {
    /// Computes the ISIN of a country's number. Returns `None` for characters that an ISIN cannot contain.
    #[must_use]
    pub fn of_number(country: [u8; 2], number: [u8; 9]) -> Option<Self> {
        let mut isin = [b'0'; 12];
        isin[..2].copy_from_slice(&country);
        isin[2..11].copy_from_slice(&number);
        isin[11] = Self::check_digit(&isin);
        Self::is_formed(&isin).then_some(Self(isin))
    }

    fn is_formed(isin: &[u8; 12]) -> bool {
        let [country @ .., _, _, _, _, _, _, _, _, _, last] = isin;
        isin.iter().all(|character| is_of_number(*character))
            && country.iter().all(u8::is_ascii_uppercase)
            && last.is_ascii_digit()
    }

    /// Computes the check digit of the first eleven characters.
    ///
    /// A letter counts as two digits; from the right, every other digit is doubled.
    fn check_digit(isin: &[u8; 12]) -> u8 {
        let [number @ .., _] = isin;
        let (mut sum, mut is_doubled) = (0, true);
        let mut count = |digit: u32| {
            let counted = if is_doubled { digit * 2 } else { digit };
            sum += counted / 10 + counted % 10;
            is_doubled = !is_doubled;
        };
        for character in number.iter().rev() {
            let value = value(*character);
            count(value % 10);
            if value >= 10 {
                count(value / 10);
            }
        }
        complement(sum)
    }

    /// Returns the ISIN as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns the ISIN as bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 12] {
        self.0
    }

    /// Returns the two-letter country code, or the prefix of an international ISIN such as `XS`.
    #[must_use]
    pub fn country(&self) -> &str {
        self.as_str().get(..2).unwrap_or_default()
    }

    /// Returns the CUSIP within an ISIN of the United States or Canada.
    ///
    /// Returns `None` for another country, or if the nine characters are not a CUSIP.
    #[must_use]
    pub fn cusip(&self) -> Option<Cusip> {
        let number = self.as_str().get(2..11)?;
        matches!(self.country(), "US" | "CA").then(|| number.parse().ok()).flatten()
    }

    /// Parses a symbol of London's books into ISIN and currency: `GB00BH4HKS39.GBX`. Returns `None` for another format.
    ///
    /// # Errors
    /// The check digit of the ISIN is wrong.
    #[must_use]
    pub fn with_currency(symbol: &str) -> Option<Result<(Self, &str), IdentifierError>> {
        let (isin, currency) = symbol.split_once('.')?;
        let is_currency = currency.len() == 3 && currency.bytes().all(|letter| letter.is_ascii_uppercase());
        match isin.parse() {
            Err(IdentifierError::Form) => None,
            _ if !is_currency => None,
            parsed => Some(parsed.map(|isin| (isin, currency))),
        }
    }
}

impl FromStr for Isin {
    type Err = IdentifierError;

    fn from_str(text: &str) -> Result<Self, IdentifierError> {
        let isin: [u8; 12] = text.as_bytes().try_into().map_err(|_| IdentifierError::Form)?;
        if !Self::is_formed(&isin) {
            return Err(IdentifierError::Form);
        }
        check(&isin, Self::check_digit(&isin)).map(|()| Self(isin))
    }
}

impl fmt::Display for Isin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Isin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isin({self})")
    }
}

/// A CUSIP of letters and digits with a valid check digit. CUSIPs with `*`, `@` or `#` do not occur in ISINs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cusip([u8; 9]);

impl Cusip {
    /// Computes the CUSIP of an issuer and issue. Returns `None` for characters other than capital letters and digits.
    #[must_use]
    pub fn of_number(number: [u8; 8]) -> Option<Self> {
        let mut cusip = [b'0'; 9];
        cusip[..8].copy_from_slice(&number);
        cusip[8] = Self::check_digit(&cusip);
        number.iter().all(|character| is_of_number(*character)).then_some(Self(cusip))
    }

    /// Computes the check digit of the first eight characters: every second value is doubled, and the digits of all are
    /// added.
    fn check_digit(cusip: &[u8; 9]) -> u8 {
        let [number @ .., _] = cusip;
        complement(
            number
                .iter()
                .zip([1, 2].into_iter().cycle())
                .map(|(character, weight)| {
                    let counted = value(*character) * weight;
                    counted / 10 + counted % 10
                })
                .sum(),
        )
    }

    /// Returns the CUSIP as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns the United States ISIN that contains this CUSIP. Never `None`: every CUSIP has one.
    #[must_use]
    pub fn isin(&self) -> Option<Isin> {
        Isin::of_number(*b"US", self.0)
    }
}

impl FromStr for Cusip {
    type Err = IdentifierError;

    fn from_str(text: &str) -> Result<Self, IdentifierError> {
        let cusip: [u8; 9] = text.as_bytes().try_into().map_err(|_| IdentifierError::Form)?;
        let is_formed = cusip.iter().all(|character| is_of_number(*character))
            && cusip.last().is_some_and(u8::is_ascii_digit);
        if !is_formed {
            return Err(IdentifierError::Form);
        }
        check(&cusip, Self::check_digit(&cusip)).map(|()| Self(cusip))
    }
}

impl fmt::Display for Cusip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Cusip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cusip({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// ISINs in use and the CUSIPs that they contain.
    const KNOWN: [(&str, Option<&str>); 11] = [
        ("US0378331005", Some("037833100")),
        ("US5949181045", Some("594918104")),
        ("US38259P5089", Some("38259P508")),
        ("US0846707026", Some("084670702")),
        ("CA7800871021", Some("780087102")),
        ("GB00BH4HKS39", None),
        ("GB0002634946", None),
        ("GB00BP6MXD84", None),
        ("GB0007980591", None),
        ("DE0007164600", None),
        ("AU0000XVGZA3", None),
    ];

    #[test]
    fn an_isin_in_use_is_one_and_has_its_cusip() {
        for (text, cusip) in KNOWN {
            let isin: Isin = text.parse().unwrap();
            assert_eq!((isin.to_string().as_str(), isin.country()), (text, &text[..2]));
            assert_eq!(isin.cusip().map(|one| one.to_string()).as_deref(), cusip, "{text}");
        }
    }

    #[test]
    fn a_cusip_gives_the_isin_of_the_united_states() {
        for (isin, cusip) in KNOWN.into_iter().filter(|(isin, _)| isin.starts_with("US")) {
            let parsed: Cusip = cusip.unwrap().parse().unwrap();
            assert_eq!(parsed.isin().unwrap().as_str(), isin);
        }
    }

    #[test]
    fn a_wrong_check_digit_is_reported_with_the_right_one() {
        for (text, cusip) in KNOWN {
            for wrong in (b'0'..=b'9').filter(|digit| Some(digit) != text.as_bytes().last()) {
                let expected = text.chars().last().unwrap();
                let changed = format!("{}{}", &text[..11], char::from(wrong));
                assert_eq!(changed.parse::<Isin>(), Err(IdentifierError::CheckDigit { expected }));
                let Some(cusip) = cusip else { continue };
                let expected = cusip.chars().last().unwrap();
                if char::from(wrong) != expected {
                    let changed = format!("{}{}", &cusip[..8], char::from(wrong));
                    assert_eq!(changed.parse::<Cusip>(), Err(IdentifierError::CheckDigit { expected }));
                }
            }
        }
        let error = "US0378331006".parse::<Isin>().unwrap_err();
        assert_eq!(error.to_string(), "the check digit is wrong: 5 would be right");
    }

    #[test]
    fn text_of_another_form_is_none() {
        for text in [
            "",
            "US037833100",
            "US03783310055",
            "us0378331005",
            "U10378331005",
            "US037833100X",
            "US03783-1005",
        ] {
            assert_eq!(text.parse::<Isin>(), Err(IdentifierError::Form), "{text}");
        }
        for text in ["", "03783310", "0378331005", "03783310X", "38259p508", "03783*100"] {
            assert_eq!(text.parse::<Cusip>(), Err(IdentifierError::Form), "{text}");
        }
        assert_eq!(Isin::of_number(*b"U1", *b"037833100"), None);
        assert_eq!(Isin::of_number(*b"US", *b"03783-100"), None);
        assert_eq!(Cusip::of_number(*b"03783*10"), None);
    }

    #[test]
    fn a_symbol_of_london_is_an_isin_and_a_currency() {
        let isin: Isin = "GB00BH4HKS39".parse().unwrap();
        assert_eq!(Isin::with_currency("GB00BH4HKS39.GBX"), Some(Ok((isin, "GBX"))));
        let wrong = IdentifierError::CheckDigit { expected: '9' };
        assert_eq!(Isin::with_currency("GB00BH4HKS38.GBX"), Some(Err(wrong)));
        for other in ["GB00BH4HKS39", "GB00BH4HKS39.GB", "GB00BH4HKS39.gbx", "BRK.B", "BRK.GBX"] {
            assert_eq!(Isin::with_currency(other), None, "{other}");
        }
    }

    #[test]
    fn an_isin_of_the_united_states_without_a_cusips_check_digit_has_no_cusip() {
        let isin = Isin::of_number(*b"US", *b"037833101").unwrap();
        assert_eq!(isin.cusip(), None);
    }

    proptest! {
        #[test]
        fn any_cusip_survives_the_way_to_an_isin_and_back(number in "[0-9A-Z]{8}") {
            let cusip = Cusip::of_number(number.as_bytes().try_into().unwrap()).unwrap();
            prop_assert_eq!(cusip.as_str().parse(), Ok(cusip));
            let isin = cusip.isin().unwrap();
            prop_assert_eq!(isin.as_str().parse(), Ok(isin));
            prop_assert_eq!(isin.cusip(), Some(cusip));
        }

        #[test]
        fn any_isin_with_a_cusip_survives_the_way_to_it_and_back(number in "[0-9A-Z]{8}") {
            let cusip = Cusip::of_number(number.as_bytes().try_into().unwrap()).unwrap();
            let isin: Isin = Isin::of_number(*b"US", cusip.as_str().as_bytes().try_into().unwrap()).unwrap();
            prop_assert_eq!(isin.cusip().and_then(|cusip| cusip.isin()), Some(isin));
        }

        #[test]
        fn any_isin_survives_the_way_into_a_symbol_and_back(
            country in "[A-Z]{2}", number in "[0-9A-Z]{9}", currency in "[A-Z]{3}",
        ) {
            let isin = Isin::of_number(
                country.as_bytes().try_into().unwrap(),
                number.as_bytes().try_into().unwrap(),
            ).unwrap();
            let symbol = format!("{isin}.{currency}");
            prop_assert_eq!(Isin::with_currency(&symbol), Some(Ok((isin, currency.as_str()))));
        }

        /// Luhn's formula finds every wrong digit.
        #[test]
        fn any_wrong_digit_of_an_isin_is_found(number in "[0-9A-Z]{9}", place in 2..11_usize, digit in b'0'..=b'9') {
            let isin = Isin::of_number(*b"GB", number.as_bytes().try_into().unwrap()).unwrap();
            let mut changed = isin.to_bytes();
            prop_assume!(changed[place].is_ascii_digit() && changed[place] != digit);
            changed[place] = digit;
            let changed = std::str::from_utf8(&changed).unwrap();
            let is_found = matches!(changed.parse::<Isin>(), Err(IdentifierError::CheckDigit { .. }));
            prop_assert!(is_found, "{}", changed);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,16}") {
            let _ = text.parse::<Isin>();
            let _ = text.parse::<Cusip>();
            let _ = Isin::with_currency(&text);
        }
    }
}
