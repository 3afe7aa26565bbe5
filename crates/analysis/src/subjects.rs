//! What a message is about: its symbol and its time, found through the schema alone.
//!
//! A message names its symbol in a text field, or by the venue's number of the day (Nasdaq's stock locate), which an
//! earlier message of the channel has given a name.
//!
//! Cost: a few string compares per message; made for tools, not for the engine.

use std::collections::{HashMap, HashSet};

use tapeworks_feed::ChannelIdentity;
use tapeworks_market::{Nanos, Symbol};
use tapeworks_wire::schema::{Decoded, Kind};

use crate::analyser::Message;

/// Fields that hold a symbol.
const SYMBOL_FIELDS: [&str; 2] = ["stock", "symbol"];

/// The field that holds the venue's number of a symbol.
const LOCATE_FIELD: &str = "stock_locate";

/// The message that defines what a number stands for; before it the first that names a symbol does.
const DIRECTORY: &str = "StockDirectory";

/// The symbols of every channel by the venue's numbers.
#[derive(Debug, Default)]
pub struct Subjects {
    by_locate: HashMap<(ChannelIdentity, u64), Symbol>,
}

impl Subjects {
    /// The symbol that `message` is about; `None` if it is about none, or about one that the channel has not named.
    pub fn symbol(&mut self, message: &Message<'_>) -> Option<Symbol> {
        let structure = message.decoded.structure?;
        let bytes = message.decoded.bytes;
        let locate = structure.unsigned_field(LOCATE_FIELD, bytes).filter(|locate| *locate != 0);
        let field = SYMBOL_FIELDS.iter().find_map(|name| structure.field(name));
        let text = field.and_then(|field| bytes.get(field.offset..field.offset + field.length));
        let named = text.and_then(|text| Symbol::from_bytes(text).ok());
        match (named, locate) {
            (Some(symbol), Some(locate)) => {
                let known = self.by_locate.entry((message.channel, locate)).or_insert(symbol);
                if structure.name == DIRECTORY {
                    *known = symbol;
                }
                Some(symbol)
            }
            (Some(symbol), None) => Some(symbol),
            (None, Some(locate)) => self.by_locate.get(&(message.channel, locate)).copied(),
            (None, None) => None,
        }
    }
}

/// Whether a message is about one of the symbols wanted. A set of none wants all.
pub fn is_wanted(wanted: Option<&HashSet<Symbol>>, symbol: Option<Symbol>) -> bool {
    wanted.is_none_or(|wanted| symbol.is_some_and(|symbol| wanted.contains(&symbol)))
}

/// The time that the message itself tells: since midnight at the venue, or since 1970.
pub fn own_time(decoded: &Decoded<'_>) -> Option<Nanos> {
    let structure = decoded.structure?;
    let field = structure
        .fields
        .iter()
        .find(|field| matches!(field.kind, Kind::NanosecondsSinceMidnight | Kind::NanosecondsSinceEpoch))?;
    structure.unsigned_field(field.name, decoded.bytes).map(Nanos)
}
