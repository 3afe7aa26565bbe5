//! The symbols of a batch's instruments, numbered here or by a server.

use std::collections::HashMap;

use tapeworks_market::{Instruments, Symbol};

/// The symbols of the instruments in a batch, by their numbers in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Symbols<'a> {
    /// Our numbers: the position in the list plus one.
    Listed(&'a [Symbol]),
    /// A server's numbers, from its symbol mappings.
    Received(&'a HashMap<u32, String>),
}

impl<'a> Symbols<'a> {
    /// Returns the symbol of an instrument, if it has one.
    pub(crate) fn of(self, number: u32) -> Option<&'a str> {
        let symbol = match self {
            Self::Listed(symbols) => {
                symbols.get(number.checked_sub(1)? as usize).map(|symbol| symbol.as_str())
            }
            Self::Received(symbols) => symbols.get(&number).map(String::as_str),
        };
        symbol.filter(|symbol| !symbol.is_empty())
    }
}

/// How many symbols the batches so far can name.
#[derive(Default, Debug)]
pub(crate) struct Named(usize);

impl Named {
    /// Returns the symbols that the next batch can name and earlier ones cannot.
    pub(crate) fn more(&mut self, instruments: &Instruments) -> Vec<Symbol> {
        let more = instruments.symbols().get(self.0..).unwrap_or_default().to_vec();
        self.0 += more.len();
        more
    }
}
