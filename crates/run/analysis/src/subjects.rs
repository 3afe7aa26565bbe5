//! Finds a message's symbol and time through the schema alone.
//!
//! A message names its symbol in a text field, or by the venue's number for the day (Nasdaq's stock locate), which an earlier
//! message of the channel has mapped to a symbol.
//!
//! Cost: a few string comparisons per message; meant for tools, not for the engine.

use std::collections::{HashMap, HashSet};

use tapeworks_feed::{ChannelIdentity, FEEDS};
use tapeworks_market::Symbol;
use tapeworks_time::Nanos;
use tapeworks_wire::schema::{Decoded, Kind};

use crate::analyser::Message;

/// The symbols of every channel, by the venue's numbers.
#[derive(Debug, Default)]
pub struct Subjects {
    by_number: HashMap<(ChannelIdentity, u64), Symbol>,
}

impl Subjects {
    /// Returns the symbol that `message` is about; `None` if there is none, or the channel has not named it.
    pub fn symbol(&mut self, message: &Message<'_>) -> Option<Symbol> {
        let structure = message.decoded.structure?;
        let bytes = message.decoded.bytes;
        let naming = FEEDS.iter().find(|feed| feed.schema.name == message.schema.name)?.naming;
        let number = naming.number.and_then(|name| structure.unsigned_field(name, bytes));
        let number = number.filter(|number| *number != 0 || !naming.zero_is_none);
        let text = |name| {
            let field = structure.field(name)?;
            bytes.get(field.offset..field.offset + field.length)
        };
        let named = text(naming.symbol).and_then(|root| naming.symbol_of(root, naming.suffix.and_then(text)));
        match (named, number) {
            (Some(symbol), Some(number)) => {
                let known = self.by_number.entry((message.channel, number)).or_insert(symbol);
                if naming.directory == Some(structure.name) {
                    *known = symbol;
                }
                Some(symbol)
            }
            (Some(symbol), None) => Some(symbol),
            (None, Some(number)) => self.by_number.get(&(message.channel, number)).copied(),
            (None, None) => None,
        }
    }
}

/// Whether a symbol is wanted. Without a set, every message is wanted.
pub fn is_wanted(wanted: Option<&HashSet<Symbol>>, symbol: Option<Symbol>) -> bool {
    wanted.is_none_or(|wanted| symbol.is_some_and(|symbol| wanted.contains(&symbol)))
}

/// Returns the time in the message itself: since midnight at the venue, or since 1970.
pub fn own_time(decoded: &Decoded<'_>) -> Option<Nanos> {
    let structure = decoded.structure?;
    let field = structure
        .fields
        .iter()
        .find(|field| matches!(field.kind, Kind::NanosecondsSinceMidnight | Kind::NanosecondsSinceEpoch))?;
    structure.unsigned_field(field.name, decoded.bytes).map(Nanos)
}
