//! The walk over captured packets: from a datagram or TCP segment to the messages of a channel.
//!
//! All captured packets take this path: it recognises the feed, finds the channel, checks sequence numbers, holds packets that may start a
//! restart, and reassembles TCP streams. Every reader of captured packets implements [`WalkSink`]: the [`Feed`](crate::Feed) turns messages
//! into events, an analyser shows them.
//!
//! Cost of an in-order datagram: parsing its header, and comparing its address and sequence number.

pub mod streams;

use std::net::SocketAddr;

use tapeworks_capture::net;
use tapeworks_market::event::Gap;
use tapeworks_market::{Line, Publisher};
use tapeworks_session::{Header, Transport, for_transport};
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::FramingError;

use crate::captured::{ChannelIdentity, Packet};
use crate::channels::{Channels, HeldPacket};
use crate::recognise;
use crate::router::{Attributed, Route, RoutedChannel, Router, overcounted};
use crate::table::{Application, VenueConflict};
use streams::{Part, ReadStreams, Stream, Streams};
use tapeworks_follow::sequence::Arrival;

/// A packet of a channel, at its position in the sequence.
#[derive(Clone, Debug)]
pub struct Delivery<'a, 'p, Prefix> {
    /// The packet.
    pub packet: &'a Packet<'p>,
    /// The line that it arrived on.
    pub line: Line,
    /// Its header and messages.
    pub read: &'a tapeworks_session::Packet<'p, Prefix>,
    /// Number of messages: the header's count, or the actual number for a copy with a damaged count.
    pub count: u64,
    /// Result of the sequence check. `None` for a packet with messages that is next in sequence.
    pub arrival: Option<Arrival>,
}

/// A new channel.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Its identity.
    pub identity: ChannelIdentity,
    /// Its feed.
    pub application: Application,
    /// Its publisher.
    pub publisher: Publisher,
    /// When its first packet was received.
    pub received: Nanos,
    /// Its index among the channels.
    pub number: usize,
}

/// Receiver of a walk's packets and stream parts.
pub trait WalkSink {
    /// The sink's state per channel.
    type Channel: RoutedChannel;
    /// The sink's state per direction of a TCP connection.
    type Direction: Default;

    /// Returns whether the sink reads packets of a feed. Packets of other feeds are ignored.
    fn wants(&self, _application: Application) -> bool {
        true
    }

    /// Creates a channel. `before` is the one that it replaces.
    fn open(&mut self, opening: &Opening, before: Option<&Self::Channel>) -> Self::Channel;

    /// Renames a channel without messages, which turns out to belong to another feed with the same transport.
    fn rename(
        &mut self,
        channel: &mut Self::Channel,
        application: Application,
        publisher: Publisher,
        received: Nanos,
    );

    /// Processes a packet of a channel. Returns the number of trailing messages that could not be read.
    fn deliver<T: Transport>(
        &mut self,
        channel: &mut Self::Channel,
        delivery: Delivery<'_, '_, T::Prefix>,
    ) -> u64;

    /// Processes a packet whose messages are all ignored: [refused](Arrival::is_refused), or a copy.
    fn skip<T: Transport>(
        &mut self,
        channel: &mut Self::Channel,
        packet: &Packet<'_>,
        read: &tapeworks_session::Packet<'_, T::Prefix>,
        arrival: Arrival,
    );

    /// Reports that the last messages of a delivered packet are lost. The packet's first message has the number `first`.
    fn lose(
        &mut self,
        _channel: &mut Self::Channel,
        _packet: &Packet<'_>,
        _line: Line,
        _first: u64,
        _gap: Gap,
    ) {
    }

    /// Called when a channel replaces another. The new channel's packets follow.
    fn restart(&mut self, _channels: &mut Channels<Self::Channel>, _from: usize, _to: usize, _now: Nanos) {}

    /// Processes a datagram of no feed. `is_first` marks the first one to its destination that may have carried messages.
    fn unrecognised(&mut self, packet: &Packet<'_>, is_heartbeat: bool, is_first: bool);

    /// Processes a datagram whose transport header cannot be read.
    fn bad_header(&mut self, packet: &Packet<'_>, error: DecodeError);

    /// Reports a duplicate packet whose header counts more messages than it contains.
    fn miscounted(&mut self, _packet: &Packet<'_>, _error: FramingError) {}

    /// Processes a part of a TCP stream.
    fn stream(
        &mut self,
        channels: &mut Channels<Self::Channel>,
        stream: &mut Stream<'_, Self::Direction>,
        part: Part<'_>,
    );
}

/// A walk: see the [module](self).
#[derive(Debug)]
pub struct Walk<C, D> {
    router: Router<C>,
    streams: Streams<D>,
}

impl<C: RoutedChannel, D: Default> Walk<C, D> {
    /// Creates an empty walk. The user can set the feed, the venue (for feeds that venues share), and the protocol of streams.
    #[must_use]
    pub fn new(
        application: Option<Application>,
        publisher: Option<Publisher>,
        read_streams: ReadStreams,
    ) -> Self {
        Self { router: Router::new(application, publisher), streams: Streams::new(read_streams) }
    }

    /// Returns the channels seen so far.
    #[inline]
    #[must_use]
    pub const fn channels(&self) -> &Channels<C> {
        &self.router.channels
    }

    /// Returns the channels seen so far.
    #[inline]
    pub const fn channels_mut(&mut self) -> &mut Channels<C> {
        &mut self.router.channels
    }

    /// Returns the first group that contradicts the venue that the user named. Its packets are not read.
    #[must_use]
    pub const fn venue_conflict(&self) -> Option<VenueConflict> {
        self.router.venue_conflict()
    }

    /// Returns the destinations whose feed was [inferred](recognise), in the order of their first packets.
    pub fn inferred(&self) -> impl Iterator<Item = (SocketAddr, Application)> + '_ {
        self.router.inferred()
    }

    /// Processes one packet, in capture order.
    #[inline]
    pub fn packet<K>(&mut self, packet: &Packet<'_>, sink: &mut K)
    where
        K: WalkSink<Channel = C, Direction = D>,
    {
        if !matches!(packet.datagram.transport, net::Transport::Udp) {
            return self.segment(packet, sink);
        }
        let at = self.router.destination(packet.datagram.destination);
        let application = match self.router.known(at) {
            Some(application) => application,
            None => match self.recognise(at, packet, sink) {
                Some(application) => application,
                None => return,
            },
        };
        if !sink.wants(application) {
            return;
        }
        for_transport!(application.transport(), T => self.datagram::<T, K>(at, application, packet, sink));
    }

    /// Ends the input: reads the packets and bytes that are still waiting.
    pub fn finish<K>(&mut self, sink: &mut K)
    where
        K: WalkSink<Channel = C, Direction = D>,
    {
        for (application, held) in self.router.channels.finish() {
            self.held(application, &held, sink);
        }
        self.refused(sink);
        let Self { router, streams } = self;
        streams.finish(&mut |stream, part| sink.stream(&mut router.channels, stream, part));
    }

    /// Processes a segment of a TCP connection.
    #[cold]
    #[inline(never)]
    fn segment<K>(&mut self, packet: &Packet<'_>, sink: &mut K)
    where
        K: WalkSink<Channel = C, Direction = D>,
    {
        let Self { router, streams } = self;
        streams.push(packet, &mut |stream, part| sink.stream(&mut router.channels, stream, part));
    }

    #[cold]
    fn recognise<K>(&mut self, at: usize, packet: &Packet<'_>, sink: &mut K) -> Option<Application>
    where
        K: WalkSink<Channel = C, Direction = D>,
    {
        let Some(Attributed { application, renamed }) = self.router.attribute(at, packet.datagram.payload)
        else {
            self.unrecognised(at, packet, sink);
            return None;
        };
        if let Some(index) = renamed {
            self.rename(index, application, packet, sink);
        }
        Some(application)
    }

    fn unrecognised<K: WalkSink>(&mut self, at: usize, packet: &Packet<'_>, sink: &mut K) {
        // A heartbeat carries nothing that could be lost; the first packet with messages decides.
        let is_heartbeat = recognise::is_heartbeat(packet.datagram.payload);
        let is_first = !is_heartbeat && self.router.report_once(at);
        sink.unrecognised(packet, is_heartbeat, is_first);
    }

    fn rename<K>(&mut self, index: usize, application: Application, packet: &Packet<'_>, sink: &mut K)
    where
        K: WalkSink<Channel = C>,
    {
        let publisher = self.router.publisher(application, packet.datagram.destination);
        sink.rename(&mut self.router.channels[index], application, publisher, packet.received);
    }

    /// Processes a datagram of a transport.
    #[inline]
    fn datagram<T: Transport, K>(
        &mut self,
        at: usize,
        application: Application,
        packet: &Packet<'_>,
        sink: &mut K,
    ) where
        K: WalkSink<Channel = C, Direction = D>,
    {
        let read = match T::packet(packet.datagram.payload) {
            Ok(read) => read,
            Err(error) => return sink.bad_header(packet, error),
        };
        let port = packet.datagram.destination.port();
        let mut count = read.header.count;
        let (index, line) = match self.router.next(at, &read.header, port) {
            Some(found) => found,
            None => match self.place::<T, K>(at, application, packet, &read, sink) {
                Some((index, line, held)) => {
                    count = held;
                    (index, line)
                }
                None => return,
            },
        };
        let first = read.header.first;
        let channel = &mut self.router.channels[index];
        let sequenced = channel.as_mut();
        sequenced.note::<T>(&read, packet);
        let arrival = sequenced.tracker.judge(first, count);
        let unread = sink.deliver::<T>(channel, Delivery { packet, line, read: &read, count, arrival });
        if unread > 0 {
            if overcounted::<T>(packet).is_some() {
                // Either the count is damaged, or the messages are missing. The next packet shows which.
                channel.as_mut().tracker.cannot_read(unread);
            } else {
                let gap = Gap { first: first.saturating_add(count).saturating_sub(unread), count: unread };
                channel.as_mut().tracker.lose(gap);
                sink.lose(channel, packet, line, first, gap);
            }
        }
    }

    /// Finds the channel, line and message count of a packet that is not next in sequence; `None` if it is held, skipped or unrecognised. Reads
    /// the held packets that it confirms first.
    #[cold]
    #[inline(never)]
    fn place<T: Transport, K>(
        &mut self,
        at: usize,
        application: Application,
        packet: &Packet<'_>,
        read: &tapeworks_session::Packet<'_, T::Prefix>,
        sink: &mut K,
    ) -> Option<(usize, Line, u64)>
    where
        K: WalkSink<Channel = C, Direction = D>,
    {
        let number = self.router.channels.len();
        let make = |identity, application, publisher, before: Option<&C>| {
            sink.open(
                &Opening { identity, application, publisher, received: packet.received, number },
                before,
            )
        };
        let route = self.router.route(at, packet, read.header, application, make);
        self.refused(sink);
        let (index, line) = match route {
            Route::Channel { index, line, renamed } => {
                if let Some(application) = renamed {
                    self.rename(index, application, packet, sink);
                }
                (index, line)
            }
            Route::Held => return None,
            Route::Unrecognised => {
                self.unrecognised(at, packet, sink);
                return None;
            }
            Route::Skipped(index, arrival) => {
                sink.skip::<T>(&mut self.router.channels[index], packet, read, arrival);
                return None;
            }
            Route::Restarted { from, to, held } => {
                sink.restart(&mut self.router.channels, from, to, packet.received);
                let application = self.router.channels[to].as_ref().application();
                for held in held {
                    self.held(application, &held, sink);
                }
                (to, self.router.enter(at, to))
            }
        };
        // A copy with a damaged count has no more messages than it holds.
        let Header { first, count, .. } = read.header;
        let sequenced = self.router.channels[index].as_ref();
        let Some((held, error)) = sequenced.count_of_copy::<T>(&read.header, packet) else {
            return Some((index, line, count));
        };
        // If the copy has new messages, reading them reports this error.
        if !sequenced.tracker.overlaps(first, held) {
            sink.miscounted(packet, error);
        }
        Some((index, line, held))
    }

    /// Reads a held packet.
    fn held<K>(&mut self, application: Application, held: &HeldPacket, sink: &mut K)
    where
        K: WalkSink<Channel = C, Direction = D>,
    {
        let packet = held.packet();
        let at = self.router.destination(packet.datagram.destination);
        for_transport!(application.transport(), T => self.datagram::<T, K>(at, application, &packet, sink));
    }

    /// Passes refused held packets to the sink.
    fn refused<K>(&mut self, sink: &mut K)
    where
        K: WalkSink<Channel = C>,
    {
        for (index, held, refusal) in self.router.channels.take_refused() {
            let packet = held.packet();
            let channel = &mut self.router.channels[index];
            for_transport!(channel.as_ref().application().transport(), T => {
                if let Ok(read) = T::packet(packet.datagram.payload) {
                    let arrival = Arrival::refused(read.header.count, refusal);
                    sink.skip::<T>(channel, &packet, &read, arrival);
                }
            });
        }
    }
}
