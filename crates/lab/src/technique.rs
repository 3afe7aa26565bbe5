//! What a technique says of itself.

use crate::measure::{Ended, Lab};

/// One entry of the catalogue.
#[derive(Debug)]
pub struct Technique {
    /// Its number in the catalogue.
    pub number: u8,
    /// Its name on the command line and of its page: `loop-unrolling`.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The question that its experiments answer, in one sentence.
    pub question: &'static str,
    /// What others have published.
    pub published: &'static [Published],
    /// Where the product uses it: paths in the repository, with what for.
    pub used: &'static [Use],
    /// The functions whose assembly differs.
    pub assembly: &'static [Assembly],
    /// Runs its experiments.
    pub run: fn(&mut Lab<'_>) -> Result<(), Ended>,
}

/// A published figure.
#[derive(Debug)]
pub struct Published {
    /// Who: `thesis, section 4.2`.
    pub source: &'static str,
    /// What they found.
    pub figure: &'static str,
}

/// A place in the product.
#[derive(Debug)]
pub struct Use {
    /// The path in the repository.
    pub path: &'static str,
    /// What for.
    pub what: &'static str,
}

/// A function whose assembly is shown.
#[derive(Clone, Copy, Debug)]
pub struct Assembly {
    /// The variant's name.
    pub variant: &'static str,
    /// The function's path, as `tapeworks_lab::catalogue::loop_unrolling::rolled`. It is never inlined, and not generic: the symbol of a generic
    /// function does not name its parameters. `PATH -> TEXT` is the function with TEXT in its name that the one at PATH calls, and so on along its
    /// calls.
    pub symbol: &'static str,
    /// Mnemonics, or beginnings of them, that make the difference: `prefetch`, `cmov`.
    pub marks: &'static [&'static str],
}
