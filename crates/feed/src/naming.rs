//! How messages name their instrument, for tools that read them by the schema alone.

use tapeworks_market::{Symbol, symbology};

/// The fields of the declaration by which messages name their instrument.
#[derive(Clone, Copy, Debug)]
pub struct Naming {
    /// The field with the symbol.
    pub symbol: &'static str,
    /// The field with the symbol's suffix.
    pub suffix: Option<&'static str>,
    /// A space stands between a symbol and its suffix, in the field of the symbol.
    pub has_spaces: bool,
    /// The field with the venue's number of the instrument.
    pub number: Option<&'static str>,
    /// The number 0 stands for no instrument.
    pub zero_is_none: bool,
    /// The message that defines a number.
    pub directory: Option<&'static str>,
}

impl Naming {
    /// The symbol of a root and a suffix of the CMS convention, as the normaliser spells it: in the integrated one ([`symbology`]).
    #[must_use]
    pub fn symbol_of(&self, root: &[u8], suffix: Option<&[u8]>) -> Option<Symbol> {
        let [mut root, mut suffix] = [root, suffix.unwrap_or_default()].map(trimmed);
        if let (true, Some(space)) = (self.has_spaces, root.iter().position(|byte| *byte == b' ')) {
            (root, suffix) = root.split_at(space);
            suffix = suffix.trim_ascii();
        }
        symbology::of_cms(root, suffix)
    }
}

/// Without the padding at the end.
fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b' ' | 0)).map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default()
}
