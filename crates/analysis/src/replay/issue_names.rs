//! The names of issues, which no event has room for: read from the messages by the schema alone, beside the feed.
//!
//! Cost: of a packet of a feed without names a compare of its destination, of one of no known feed the check of every feed, of another one that of the analyser at every
//! message.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tapeworks_feed::{Application, FEEDS, Naming, Packet};
use tapeworks_market::{Publisher, Symbol};
use tapeworks_packet::net::Transport;

use super::Options;
use crate::analyser::{Analyser, Item, Message, Noticing, Place, Visitor};
use crate::sessions::ReadAs;

/// Reads names from what a replay takes.
pub(super) struct IssueNames {
    analyser: Analyser,
    found: Found,
}

/// What was read so far.
struct Found {
    /// The publisher that the user sets.
    named: Option<Publisher>,
    /// That of the last packet.
    of_packet: Option<Publisher>,
    /// The last name of each symbol and publisher.
    names: BTreeMap<(Symbol, Publisher), Box<str>>,
}

/// Whether a feed sends names.
fn has_names(application: Application) -> bool {
    application.spec().naming.issue_name.is_some()
}

impl IssueNames {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            analyser: Analyser::new(options.application.map(ReadAs::Feed)),
            found: Found { named: options.publisher, of_packet: None, names: BTreeMap::new() },
        }
    }

    /// Takes a packet. A cut one is read as far as it goes. What comes by TCP, or in a file without packets, is of a feed without names.
    pub(super) fn packet(&mut self, packet: &Packet<'_>) {
        if !matches!(packet.datagram.transport, Transport::Udp) {
            return;
        }
        let attributed = self.analyser.attribute(&packet.datagram);
        if let Some(attributed) = attributed.filter(|(_, application)| has_names(*application)) {
            let place = Place {
                file: packet.file.into(),
                number: packet.number,
                offset: packet.offset,
                time: Some(packet.received),
            };
            let mut found = Noticing::known(&mut self.found);
            let _never_ends =
                self.analyser.attributed(&place, attributed, &packet.datagram, None, &mut found);
        }
    }

    /// The names by symbol and feed.
    pub(super) fn finish(self) -> impl Iterator<Item = ((Symbol, Publisher), Box<str>)> {
        self.found.names.into_iter()
    }
}

impl Visitor for Found {
    fn visit(&mut self, _: &Place, item: Item<'_>) -> ControlFlow<()> {
        match item {
            Item::Header(header) => self.of_packet = header.publisher,
            Item::Message(message) => {
                self.learn(&message);
            }
            Item::Fix(_) | Item::Trouble(..) => {}
        }
        ControlFlow::Continue(())
    }
}

impl Found {
    /// Takes the name of a message of the directory.
    fn learn(&mut self, message: &Message<'_>) -> Option<()> {
        let structure = message.decoded.structure?;
        let feed = FEEDS.iter().find(|feed| feed.schema.name == message.schema.name)?;
        let Naming { directory, issue_name, symbol, suffix, .. } = feed.naming;
        if directory != Some(structure.name) {
            return None;
        }
        let text = |name| {
            let field = structure.field(name)?;
            message.decoded.bytes.get(field.offset..field.offset + field.length)
        };
        let name = std::str::from_utf8(text(issue_name?)?).ok()?.trim_matches([' ', '\0']);
        let symbol = feed.naming.symbol_of(text(symbol)?, suffix.and_then(text))?;
        let of_packet = self.of_packet.filter(|publisher| feed.has(*publisher));
        let publisher = feed.publisher(self.named.or(of_packet), None);
        if !name.is_empty() && !name.contains(char::is_control) {
            self.names.insert((symbol, publisher), name.into());
        }
        Some(())
    }
}
