//! Suffix conventions of US markets for issues other than ordinary shares: preferred shares, classes, warrants, rights,
//! units.
//!
//! Three conventions are in use ("Ticker Symbol Convention", nasdaqtrader.com). For `XYZ`'s preferred shares of class
//! A, when issued:
//!
//! | convention | used by | spelling |
//! | --- | --- | --- |
//! | [`Convention::Cqs`] | the tapes of CTA | `XYZpAw` |
//! | [`Convention::Cms`] | NYSE, MEMX | `XYZ PRAWI` |
//! | [`Convention::Integrated`] | Nasdaq, IEX, Cboe, and events and records here | `XYZ-A#` |
//!
//! A suffix names an issue, then optionally *convertible*, then optionally a state. Each convention has its own words
//! for these, and not everything that one can spell has a spelling in another: `U` means units in two of them, so a
//! class U can be spelled only in the third.

use std::fmt;

use crate::Symbol;

/// A convention for spelling suffixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Convention {
    /// Consolidated Quotation System: `XYZpA`, `XYZ.WS`, `XYZr`. A slash is read as a point.
    Cqs,
    /// Common Message Switch, with a space after the root: `XYZ PRA`, `XYZ WS`, `XYZ RT`.
    Cms,
    /// Nasdaq's integrated platform: `XYZ-A`, `XYZ+`, `XYZ^`.
    Integrated,
}

/// The kind of issue that a symbol names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Issue {
    /// Shares without a class.
    Ordinary,
    /// Shares of a class.
    Class(u8),
    /// Preferred shares, with or without a class.
    Preferred(Option<u8>),
    /// Warrants, with or without a class.
    Warrants(Option<u8>),
    Rights,
    Units,
    /// Listed on the Emerging Company Marketplace.
    EmergingCompany,
    PartialPaid,
    /// A test symbol.
    Test,
}

/// The current state of the shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Called,
    WhenDistributed,
    WhenIssued,
}

/// The meaning of a suffix, independent of the convention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Suffix {
    issue: Issue,
    is_convertible: bool,
    state: Option<State>,
}

/// The words of a convention.
struct Words {
    preferred: &'static str,
    class: &'static str,
    warrants: &'static str,
    /// Separates warrants from their class.
    warrants_class: &'static str,
    rights: &'static str,
    units: &'static str,
    emerging_company: &'static str,
    partial_paid: &'static str,
    test: &'static str,
    convertible: &'static str,
    called: &'static str,
    when_distributed: &'static str,
    when_issued: &'static str,
}

const CQS: Words = Words {
    preferred: "p",
    class: ".",
    warrants: ".WS",
    warrants_class: ".",
    rights: "r",
    units: ".U",
    emerging_company: ".EC",
    partial_paid: ".PP",
    test: ".TEST",
    convertible: ".CV",
    called: ".CL",
    when_distributed: ".WD",
    when_issued: "w",
};

const CMS: Words = Words {
    preferred: "PR",
    class: "",
    warrants: "WS",
    warrants_class: "",
    rights: "RT",
    units: "U",
    emerging_company: "EC",
    partial_paid: "PP",
    test: "TEST",
    convertible: "CV",
    called: "CL",
    when_distributed: "WD",
    when_issued: "WI",
};

const INTEGRATED: Words = Words {
    preferred: "-",
    class: ".",
    warrants: "+",
    warrants_class: "",
    rights: "^",
    units: "=",
    emerging_company: "!",
    partial_paid: "@",
    test: "~",
    convertible: "%",
    called: "*",
    when_distributed: "$",
    when_issued: "#",
};

impl Convention {
    const fn words(self) -> &'static Words {
        match self {
            Self::Cqs => &CQS,
            Self::Cms => &CMS,
            Self::Integrated => &INTEGRATED,
        }
    }

    /// Splits a symbol of this convention into root and suffix. A root consists of capital letters and digits.
    fn split(self, symbol: &str) -> Option<(&str, &str)> {
        let is_of_root = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit();
        let end = symbol.find(|letter| !is_of_root(letter)).unwrap_or(symbol.len());
        let (root, suffix) = symbol.split_at(end);
        let suffix = match self {
            Self::Cms if !suffix.is_empty() => {
                suffix.strip_prefix(' ').filter(|suffix| !suffix.is_empty())?
            }
            _ => suffix,
        };
        (!root.is_empty()).then_some((root, suffix))
    }
}

/// Returns the class at the start of a text and the rest of the text.
fn class(text: &str) -> Option<(u8, &str)> {
    let (first, rest) = text.as_bytes().split_first()?;
    first.is_ascii_uppercase().then_some((*first, text.get(text.len() - rest.len()..)?))
}

impl Suffix {
    /// Parses a suffix. Returns `None` if this convention has no such suffix.
    fn read(suffix: &str, words: &Words) -> Option<Self> {
        // Try words before letters: `U` is units, and `CL` is not a class.
        let alone = [
            ("", Issue::Ordinary),
            (words.rights, Issue::Rights),
            (words.units, Issue::Units),
            (words.emerging_company, Issue::EmergingCompany),
            (words.partial_paid, Issue::PartialPaid),
            (words.test, Issue::Test),
            (words.preferred, Issue::Preferred(None)),
            (words.warrants, Issue::Warrants(None)),
        ];
        let of_word = alone.into_iter().find_map(|(word, issue)| {
            let rest = suffix.strip_prefix(word)?;
            Self::of(issue, rest, words)
        });
        of_word.or_else(|| {
            let warrants = suffix.strip_prefix(words.warrants);
            let with_class = [
                (
                    suffix.strip_prefix(words.preferred),
                    (|letter| Issue::Preferred(Some(letter))) as fn(u8) -> Issue,
                ),
                (warrants.and_then(|rest| rest.strip_prefix(words.warrants_class)), |letter| {
                    Issue::Warrants(Some(letter))
                }),
                (suffix.strip_prefix(words.class), Issue::Class),
            ];
            with_class.into_iter().find_map(|(rest, issue)| {
                let (letter, rest) = class(rest?)?;
                Self::of(issue(letter), rest, words)
            })
        })
    }

    /// Combines an issue with the words after it, if they make up all of the rest.
    fn of(issue: Issue, rest: &str, words: &Words) -> Option<Self> {
        let (is_convertible, rest) = match rest.strip_prefix(words.convertible) {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let state = if rest.is_empty() {
            None
        } else {
            let states = [
                (words.called, State::Called),
                (words.when_distributed, State::WhenDistributed),
                (words.when_issued, State::WhenIssued),
            ];
            Some(states.into_iter().find(|(word, _)| *word == rest)?.1)
        };
        Some(Self { issue, is_convertible, state })
    }

    /// Formats a suffix. Returns `None` if this convention would read it as a different one.
    fn write(self, words: &Words) -> Option<String> {
        let mut text = String::new();
        let (word, class) = match self.issue {
            Issue::Ordinary => ("", None),
            Issue::Class(letter) => (words.class, Some(letter)),
            Issue::Preferred(letter) => (words.preferred, letter),
            Issue::Warrants(letter) => (words.warrants, letter),
            Issue::Rights => (words.rights, None),
            Issue::Units => (words.units, None),
            Issue::EmergingCompany => (words.emerging_company, None),
            Issue::PartialPaid => (words.partial_paid, None),
            Issue::Test => (words.test, None),
        };
        text.push_str(word);
        if let Some(letter) = class {
            if matches!(self.issue, Issue::Warrants(_)) {
                text.push_str(words.warrants_class);
            }
            text.push(char::from(letter));
        }
        if self.is_convertible {
            text.push_str(words.convertible);
        }
        text.push_str(match self.state {
            None => "",
            Some(State::Called) => words.called,
            Some(State::WhenDistributed) => words.when_distributed,
            Some(State::WhenIssued) => words.when_issued,
        });
        (Self::read(&text, words) == Some(self)).then_some(text)
    }
}

/// The suffix in words: "preferred A, when issued".
impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.issue {
            Issue::Ordinary => f.write_str("ordinary")?,
            Issue::Class(letter) => write!(f, "class {}", char::from(letter))?,
            Issue::Preferred(None) => f.write_str("preferred")?,
            Issue::Preferred(Some(letter)) => write!(f, "preferred {}", char::from(letter))?,
            Issue::Warrants(None) => f.write_str("warrants")?,
            Issue::Warrants(Some(letter)) => write!(f, "warrants {}", char::from(letter))?,
            Issue::Rights => f.write_str("rights")?,
            Issue::Units => f.write_str("units")?,
            Issue::EmergingCompany => f.write_str("emerging company")?,
            Issue::PartialPaid => f.write_str("partial paid")?,
            Issue::Test => f.write_str("test")?,
        }
        if self.is_convertible {
            f.write_str(", convertible")?;
        }
        f.write_str(match self.state {
            None => "",
            Some(State::Called) => ", called",
            Some(State::WhenDistributed) => ", when distributed",
            Some(State::WhenIssued) => ", when issued",
        })
    }
}

/// Converts a symbol from one convention to another.
///
/// Returns `None` if `symbol` is invalid in the first or has no spelling in the second.
/// ```
/// use tapeworks_market::symbology::{Convention, convert};
///
/// let converted = convert("BAC PRL", Convention::Cms, Convention::Integrated);
/// assert_eq!(converted.as_deref(), Some("BAC-L"));
/// assert_eq!(convert("BAC-L", Convention::Integrated, Convention::Cqs).as_deref(), Some("BACpL"));
/// assert_eq!(convert("BAC-?", Convention::Integrated, Convention::Cqs), None);
/// ```
#[must_use]
pub fn convert(symbol: &str, from: Convention, to: Convention) -> Option<String> {
    let (root, suffix) = read(symbol, from)?;
    let suffix = suffix.write(to.words())?;
    let space = if to == Convention::Cms && !suffix.is_empty() { " " } else { "" };
    Some([&root, space, &suffix].concat())
}

/// Describes a symbol of this convention in words: "warrants A". Returns `None` for an invalid symbol.
#[must_use]
pub fn describe(symbol: &str, convention: Convention) -> Option<String> {
    read(symbol, convention).map(|(_, suffix)| suffix.to_string())
}

/// Parses a symbol of this convention into root and suffix.
fn read(symbol: &str, convention: Convention) -> Option<(String, Suffix)> {
    let with_points = (convention == Convention::Cqs).then(|| symbol.replace('/', "."));
    let (root, suffix) = convention.split(with_points.as_deref().unwrap_or(symbol))?;
    Some((root.to_owned(), Suffix::read(suffix, convention.words())?))
}

/// Returns the symbol that events use, in the integrated convention, for a root and a suffix in the CMS convention.
///
/// A suffix unknown to CMS follows the root after a point.
#[must_use]
pub fn of_cms(root: &[u8], suffix: &[u8]) -> Option<Symbol> {
    let text = std::str::from_utf8(suffix).ok();
    let known =
        text.and_then(|suffix| Suffix::read(suffix, &CMS)).and_then(|suffix| suffix.write(&INTEGRATED));
    match known {
        Some(suffix) => Symbol::from_bytes(&[root, suffix.as_bytes()].concat()).ok(),
        None => behind_point(root, suffix),
    }
}

/// Returns the symbol that events use, in the integrated convention, for a symbol in the CQS convention.
///
/// A symbol unknown to CQS stays unchanged.
#[must_use]
pub fn of_cqs(symbol: &[u8]) -> Option<Symbol> {
    let text = std::str::from_utf8(symbol).ok();
    match text.and_then(|text| convert(text, Convention::Cqs, Convention::Integrated)) {
        Some(known) => Symbol::from_bytes(known.as_bytes()).ok(),
        None => Symbol::from_bytes(symbol).ok(),
    }
}

/// Returns the symbol of a root and a suffix of no convention, separated by a point.
#[must_use]
pub fn behind_point(root: &[u8], suffix: &[u8]) -> Option<Symbol> {
    if suffix.is_empty() {
        return Symbol::from_bytes(root).ok();
    }
    Symbol::from_bytes(&[root, b".", suffix].concat()).ok()
}

/// Splits a symbol as events use it into root and suffix in the CMS convention: the inverse of [`of_cms`].
#[must_use]
pub fn to_cms(symbol: &str) -> (String, String) {
    let known = convert(symbol, Convention::Integrated, Convention::Cms);
    let parts = known.as_deref().map(|cms| cms.split_once(' ').unwrap_or((cms, "")));
    let (root, suffix) = parts.or_else(|| symbol.split_once('.')).unwrap_or((symbol, ""));
    (root.to_owned(), suffix.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Convention::{Cms, Cqs, Integrated};
    use proptest::prelude::*;

    /// The rows of Nasdaq's table: CQS, CMS, integrated.
    const TABLE: [[&str; 3]; 29] = [
        ["p", "PR", "-"],
        ["pA", "PRA", "-A"],
        ["pB", "PRB", "-B"],
        [".A", "A", ".A"],
        [".B", "B", ".B"],
        ["p.WD", "PRWD", "-$"],
        [".WD", "WD", "$"],
        [".WS", "WS", "+"],
        [".WS.A", "WSA", "+A"],
        [".WS.B", "WSB", "+B"],
        [".CL", "CL", "*"],
        [".A.CL", "ACL", ".A*"],
        ["p.CL", "PRCL", "-*"],
        ["pA.CL", "PRACL", "-A*"],
        ["pAw", "PRAWI", "-A#"],
        [".EC", "EC", "!"],
        [".PP", "PP", "@"],
        [".CV", "CV", "%"],
        [".CV.CL", "CVCL", "%*"],
        [".A.CV", "ACV", ".A%"],
        ["pA.CV", "PRACV", "-A%"],
        ["pA.WD", "PRAWD", "-A$"],
        ["r", "RT", "^"],
        [".U", "U", "="],
        ["w", "WI", "#"],
        ["rw", "RTWI", "^#"],
        ["pw", "PRWI", "-#"],
        [".Aw", "AWI", ".A#"],
        [".WSw", "WSWI", "+#"],
    ];

    fn all() -> impl Iterator<Item = Suffix> {
        let classes = || (b'A'..=b'Z').map(Some).chain([None]);
        let issues = [
            Issue::Ordinary,
            Issue::Rights,
            Issue::Units,
            Issue::EmergingCompany,
            Issue::PartialPaid,
            Issue::Test,
        ]
        .into_iter()
        .chain((b'A'..=b'Z').map(Issue::Class))
        .chain(classes().map(Issue::Preferred))
        .chain(classes().map(Issue::Warrants));
        issues.flat_map(|issue| {
            let states = [None, Some(State::Called), Some(State::WhenDistributed), Some(State::WhenIssued)];
            let of_state =
                move |state| [false, true].map(|is_convertible| Suffix { issue, is_convertible, state });
            states.into_iter().flat_map(of_state)
        })
    }

    #[test]
    fn nasdaqs_table_converts_both_ways() {
        for [cqs, cms, integrated] in TABLE {
            let spelled = [
                (Cqs, format!("XYZ{cqs}")),
                (Cms, format!("XYZ {cms}")),
                (Integrated, format!("XYZ{integrated}")),
            ];
            for (from, symbol) in &spelled {
                for (to, expected) in &spelled {
                    assert_eq!(convert(symbol, *from, *to).as_ref(), Some(expected), "{symbol} of {from:?}");
                }
            }
        }
        assert_eq!(convert("XYZ/WS/A", Cqs, Integrated).as_deref(), Some("XYZ+A"));
        assert_eq!(convert("XYZ.TEST", Cqs, Integrated).as_deref(), Some("XYZ~"));
    }

    #[test]
    fn no_two_suffixes_have_one_spelling() {
        for convention in [Cqs, Cms, Integrated] {
            let mut spelled = std::collections::HashMap::new();
            let mut without = Vec::new();
            for suffix in all() {
                match suffix.write(convention.words()) {
                    Some(text) => assert_eq!(spelled.insert(text, suffix), None, "{suffix:?}"),
                    None => without.push(suffix.issue),
                }
            }
            // Class U would be spelled like units.
            let is_class_u = |issue: &Issue| *issue == Issue::Class(b'U');
            assert!(without.iter().all(is_class_u), "{convention:?}: {without:?}");
            assert_eq!(without.is_empty(), convention == Integrated);
        }
    }

    #[test]
    fn symbols_without_a_known_suffix_have_no_other_spelling() {
        for (symbol, convention) in [
            ("XYZ PRAB", Cms),
            ("XYZ ", Cms),
            ("XYZ.B", Cms),
            ("XYZ-a", Integrated),
            ("XYZpAx", Cqs),
            ("", Cqs),
            ("-A", Integrated),
        ] {
            assert_eq!(convert(symbol, convention, Integrated), None, "{symbol}");
        }
    }

    #[test]
    fn an_unknown_suffix_stands_behind_a_point() {
        let spelled = |root: &[u8], suffix: &[u8]| of_cms(root, suffix).unwrap().to_string();
        assert_eq!(spelled(b"BRK", b"B"), "BRK.B");
        assert_eq!(spelled(b"ABCDEF", b"PRAWI"), "ABCDEF-A#");
        assert_eq!(spelled(b"A", b""), "A");
        assert_eq!(spelled(b"XYZ", b"QQQ"), "XYZ.QQQ");
        assert_eq!(to_cms("XYZ.QQQ"), ("XYZ".into(), "QQQ".into()));
        assert_eq!(to_cms("XYZ-A"), ("XYZ".into(), "PRA".into()));
        assert_eq!(of_cms(b"A", b"\xff"), None);
    }

    proptest! {
        #[test]
        fn a_root_with_any_suffix_survives_the_way_there_and_back(root in "[A-Z]{1,6}", index in 0..2_000_usize) {
            let suffixes: Vec<_> = all().collect();
            let suffix = suffixes[index % suffixes.len()];
            for (from, to) in [(Cqs, Cms), (Cms, Integrated), (Integrated, Cqs)] {
                let Some(text) = suffix.write(from.words()) else { continue };
                let space = if from == Cms && !text.is_empty() { " " } else { "" };
                let symbol = format!("{root}{space}{text}");
                if let Some(there) = convert(&symbol, from, to) {
                    prop_assert_eq!(convert(&there, to, from), Some(symbol));
                }
            }
        }

        #[test]
        fn any_text_is_read_without_a_panic(symbol in "\\PC{0,12}") {
            for from in [Cqs, Cms, Integrated] {
                let _ = convert(&symbol, from, Cqs);
                let _ = describe(&symbol, from);
            }
        }
    }
}
