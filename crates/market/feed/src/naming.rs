//! How messages name their instrument, for tools that read messages by schema alone.

use tapeworks_market::{Symbol, symbology};

/// How a symbol's suffix is spelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suffixes {
    /// Unchanged: after a point, if it has a separate field.
    AsTheyStand,
    /// In the CMS convention ([`symbology`]), in a separate field.
    Cms,
    /// In the CMS convention, after a space in the symbol field.
    CmsBehindSpace,
    /// In the CQS convention, in the symbol field.
    Cqs,
}

/// The schema fields by which messages name their instrument.
#[derive(Clone, Copy, Debug)]
pub struct Naming {
    /// The field with the symbol.
    pub symbol: &'static str,
    /// The field with the symbol's suffix.
    pub suffix: Option<&'static str>,
    /// How the suffix is spelled.
    pub suffixes: Suffixes,
    /// The field with the venue's number of the instrument.
    pub number: Option<&'static str>,
    /// Whether the number 0 means no instrument.
    pub zero_is_none: bool,
    /// The message that defines a number.
    pub directory: Option<&'static str>,
    /// The directory message's field with the name of the issue, "COMPANY COMMON STOCK".
    pub issue_name: Option<&'static str>,
}

impl Naming {
    /// Returns the symbol of a root and a suffix in the normaliser's spelling: a CMS suffix is converted to the integrated
    /// convention.
    #[must_use]
    pub fn symbol_of(&self, root: &[u8], suffix: Option<&[u8]>) -> Option<Symbol> {
        let [mut root, mut suffix] = [root, suffix.unwrap_or_default()].map(trimmed);
        if self.suffixes == Suffixes::CmsBehindSpace
            && let Some(space) = root.iter().position(|byte| *byte == b' ')
        {
            (root, suffix) = root.split_at(space);
            suffix = suffix.trim_ascii();
        }
        match self.suffixes {
            Suffixes::Cqs => symbology::of_cqs(root),
            Suffixes::AsTheyStand => symbology::behind_point(root, suffix),
            Suffixes::Cms | Suffixes::CmsBehindSpace => symbology::of_cms(root, suffix),
        }
    }
}

/// Returns the text without trailing padding.
fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b' ' | 0)).map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::Application;

    #[test]
    fn a_suffix_is_translated_only_where_it_is_one_of_cms() {
        let spelled = |feed: Application, root: &[u8], suffix: Option<&[u8]>| {
            feed.spec().naming.symbol_of(root, suffix).unwrap().to_string()
        };
        assert_eq!(spelled(Application::MemoirDepth13, b"XYZ\0\0\0", Some(b"TWD\0\0\0")), "XYZ.T$");
        assert_eq!(spelled(Application::NyseIntegrated25, b"XYZ TWD    ", None), "XYZ.T$");
        // Taiwan's dollar, Kuwait's dinar and Samoa's tala are currencies, and would be suffixes.
        for currency in ["TWD", "KWD", "WST"] {
            let symbol = spelled(Application::LseMitch119, b"GB00BP6MXD84", Some(currency.as_bytes()));
            assert_eq!(symbol, format!("GB00BP6MXD84.{currency}"));
        }
        assert_eq!(spelled(Application::CboePitch241, b"XYZ-A   ", None), "XYZ-A");
        assert_eq!(spelled(Application::CtaCqs191, b"XYZpA      ", None), "XYZ-A");
        assert_eq!(spelled(Application::CtaCqs191, b"BRK.A      ", None), "BRK.A");
        assert_eq!(spelled(Application::UtpUqdf15, b"ABCDW      ", None), "ABCDW");
    }
}
