//! Issue names, which no event has room for: read from the messages by schema alone, beside the feed.
//!
//! Cost per packet: one address comparison for feeds without names; every feed's check for unknown destinations; otherwise one type
//! lookup per message.

use std::collections::BTreeMap;

use tapeworks_capture::net;
use tapeworks_feed::channels::Channels;
use tapeworks_feed::walk::streams::{Part, ReadStreams, Stream};
use tapeworks_feed::walk::{Delivery, Opening, Walk, WalkSink};
use tapeworks_feed::{Application, FeedSpec, Naming, Packet};
use tapeworks_follow::sequence::unread;
use tapeworks_market::{Publisher, Symbol};
use tapeworks_session::Transport;
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;

use super::Options;
use crate::analyser::{Channel, publisher_of};

/// Reads issue names from the packets of a replay.
pub(super) struct IssueNames {
    walk: Walk<Channel, ()>,
    found: Found,
}

/// The names read so far.
struct Found {
    /// The publisher set by the user.
    named: Option<Publisher>,
    /// The last name of each symbol and publisher.
    names: BTreeMap<(Symbol, Publisher), Box<str>>,
}

impl IssueNames {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            walk: Walk::new(options.application, None, ReadStreams::Recognised(None)),
            found: Found { named: options.publisher, names: BTreeMap::new() },
        }
    }

    /// Takes a packet. Complete messages of a truncated packet are read. Feeds over TCP, and files without packets, have no names.
    pub(super) fn packet(&mut self, packet: &Packet<'_>) {
        if matches!(packet.datagram.transport, net::Transport::Udp) {
            self.walk.packet(packet, &mut self.found);
        }
    }

    /// Returns the names by symbol and feed.
    pub(super) fn finish(mut self) -> impl Iterator<Item = ((Symbol, Publisher), Box<str>)> {
        self.walk.finish(&mut self.found);
        self.found.names.into_iter()
    }
}

impl WalkSink for Found {
    type Channel = Channel;
    type Direction = ();

    fn wants(&self, application: Application) -> bool {
        application.spec().naming.issue_name.is_some()
    }

    fn open(&mut self, opening: &Opening, _before: Option<&Channel>) -> Channel {
        Channel::new(opening)
    }

    fn rename(
        &mut self,
        channel: &mut Channel,
        application: Application,
        publisher: Publisher,
        _received: Nanos,
    ) {
        channel.rename(application, publisher);
    }

    fn deliver<T: Transport>(&mut self, channel: &mut Channel, delivery: Delivery<'_, '_, T::Prefix>) -> u64 {
        let Delivery { packet, read, count, arrival, .. } = delivery;
        channel.takes(count);
        let application = channel.as_ref().application();
        let of_packet = publisher_of(application, packet.datagram.destination);
        for (block, whole) in read.blocks.clone().zip(0..) {
            match block {
                Ok(message) => {
                    self.learn(application.spec(), of_packet, message);
                }
                Err(_) => return unread(count, arrival.map_or(0, |arrival| arrival.skip), whole),
            }
        }
        0
    }

    fn skip<T: Transport>(
        &mut self,
        _channel: &mut Channel,
        _packet: &Packet<'_>,
        _read: &tapeworks_session::Packet<'_, T::Prefix>,
        _arrival: tapeworks_follow::sequence::Arrival,
    ) {
    }

    fn unrecognised(&mut self, _packet: &Packet<'_>, _is_heartbeat: bool, _is_first: bool) {}

    fn bad_header(&mut self, _packet: &Packet<'_>, _error: DecodeError) {}

    fn stream(&mut self, _channels: &mut Channels<Channel>, _stream: &mut Stream<'_, ()>, _part: Part<'_>) {}
}

impl Found {
    /// Reads the name from a directory message.
    fn learn(&mut self, feed: &FeedSpec, of_packet: Option<Publisher>, message: &[u8]) -> Option<()> {
        let structure = feed.schema.message(feed.schema.tag_of(message)?)?;
        let Naming { directory, issue_name, symbol, suffix, .. } = feed.naming;
        if directory != Some(structure.name) {
            return None;
        }
        let text = |name| {
            let field = structure.field(name)?;
            message.get(field.offset..field.offset + field.length)
        };
        let name = std::str::from_utf8(text(issue_name?)?).ok()?.trim_matches([' ', '\0']);
        let symbol = feed.naming.symbol_of(text(symbol)?, suffix.and_then(text))?;
        let of_packet = of_packet.filter(|publisher| feed.has(*publisher));
        let publisher = feed.publisher(self.named.or(of_packet), None);
        if !name.is_empty() && !name.contains(char::is_control) {
            self.names.insert((symbol, publisher), name.into());
        }
        Some(())
    }
}
