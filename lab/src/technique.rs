//! The description of a technique.

use crate::measure::{Ended, Lab};

/// One entry of the catalogue.
#[derive(Debug)]
pub struct Technique {
    /// Its number in the catalogue.
    pub number: u8,
    /// Its name on the command line and in its page's address: `loop-unrolling`.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The question that its experiments answer, in one sentence.
    pub question: &'static str,
    /// Published figures from others.
    pub published: &'static [Published],
    /// Where the product uses it: paths in the repository, and the purpose.
    pub used: &'static [Use],
    /// The functions whose assembly differs.
    pub assembly: &'static [Assembly],
    /// Runs its experiments.
    pub run: fn(&mut Lab<'_>) -> Result<(), Ended>,
}

/// A published figure.
#[derive(Debug)]
pub struct Published {
    /// The source: `thesis, section 4.2`.
    pub source: &'static str,
    /// The published result.
    pub figure: &'static str,
}

/// A place in the product.
#[derive(Debug)]
pub struct Use {
    /// The path in the repository.
    pub path: &'static str,
    /// The purpose.
    pub what: &'static str,
}

/// A function whose assembly is shown.
#[derive(Clone, Copy, Debug)]
pub struct Assembly {
    /// The variant's name.
    pub variant: &'static str,
    /// The function's path, such as `tapeworks_lab::catalogue::loop_unrolling::rolled`. It is never inlined, and not generic, because the symbol
    /// of a generic function does not name its parameters. `PATH -> TEXT` is the function that the function at PATH calls and whose name contains
    /// TEXT, followed from call to call.
    pub symbol: &'static str,
    /// Mnemonics, or their prefixes, that make the difference: `prefetch`, `cmov`.
    pub marks: &'static [&'static str],
}
