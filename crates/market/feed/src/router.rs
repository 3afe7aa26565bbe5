//! Routes the datagrams of captures: which feed a destination carries, and which channel a datagram belongs to.
//!
//! Replay and analysis read captures through a [`Router`], so they agree on every datagram: the feed of a destination is
//! [recognised](crate::recognise) once, a session overrides the feed of its destination, and the [channels](crate::channels) decide
//! about restarts. The owner reads the messages.
//!
//! Cost of a datagram that continues its destination's channel: a compare of the address, and of the session and number.

use std::collections::HashMap;
use std::net::SocketAddr;

use tapeworks_market::{Line, Publisher};
use tapeworks_session::{Header, Transport};
use tapeworks_wire::framing::FramingError;

use crate::captured::{ChannelIdentity, Packet};
use crate::channels::{Arriving, Channels, HeldPacket, Sequenced, Step};
use crate::recognise::Shown;
use crate::table::{Application, VenueConflict};
use tapeworks_follow::sequence::Arrival;

/// A channel of a [`Router`].
pub trait RoutedChannel: AsRef<Sequenced> + AsMut<Sequenced> {
    /// The publisher that the channel was opened for.
    fn publisher(&self) -> Publisher;

    /// Returns whether any of its messages has been read.
    fn has_messages(&self) -> bool;

    /// Returns a destination's line, A for the first destination. Adds the destination if it is new.
    fn line_of(&mut self, destination: SocketAddr) -> Line;
}

/// A destination of packets.
#[derive(Debug)]
struct Destination {
    address: SocketAddr,
    shown: Shown,
    /// The channel of its last packet, and the line of that channel that it carries.
    channel: Option<(usize, Line)>,
    is_noted: bool,
}

/// The feed that a datagram is attributed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributed {
    /// The feed.
    pub application: Application,
    /// The destination's channel, if its earlier packets, all without messages, were attributed to another feed. The owner
    /// renames the channel.
    pub renamed: Option<usize>,
}

/// The route of a datagram that does not simply continue its destination's channel.
#[derive(Debug)]
pub enum Route {
    /// It belongs to this channel. The sequence of the channel determines which messages are new.
    Channel {
        /// The channel.
        index: usize,
        /// The line that it arrived on.
        line: Line,
        /// The feed to rename the channel to, if its earlier packets had no messages and were attributed to another feed.
        renamed: Option<Application>,
    },
    /// It belongs to this channel, and none of its messages is used.
    Skipped(usize, Arrival),
    /// It was copied, and waits for others to confirm a restart.
    Held,
    /// A channel restarts, or another session replaces it. The held packets come first, then the datagram.
    Restarted {
        /// The channel that ends.
        from: usize,
        /// The channel that begins.
        to: usize,
        /// The held packets.
        held: Vec<HeldPacket>,
    },
    /// No feed carries its session, or its group contradicts the venue that the user named.
    Unrecognised,
}

/// Routes datagrams to channels: see the [module](self).
#[derive(Debug)]
pub struct Router<C> {
    /// The feed and the venue that the user named.
    application: Option<Application>,
    publisher: Option<Publisher>,
    destinations: Vec<Destination>,
    by_address: HashMap<SocketAddr, usize>,
    last: usize,
    venue_conflict: Option<VenueConflict>,
    /// The channels.
    pub channels: Channels<C>,
}

impl<C: RoutedChannel> Router<C> {
    /// Creates an empty router. The user may name the feed, or the venue of feeds that several venues share.
    #[must_use]
    pub fn new(application: Option<Application>, publisher: Option<Publisher>) -> Self {
        Self {
            application,
            publisher,
            destinations: Vec::new(),
            by_address: HashMap::new(),
            last: 0,
            venue_conflict: None,
            channels: Channels::default(),
        }
    }

    /// Returns the first group that contradicts the venue that the user named. Its packets are not read.
    #[must_use]
    pub const fn venue_conflict(&self) -> Option<VenueConflict> {
        self.venue_conflict
    }

    /// Returns the destinations whose feed was [inferred](crate::recognise), in the order of their first packets.
    pub fn inferred(&self) -> impl Iterator<Item = (SocketAddr, Application)> + '_ {
        self.destinations.iter().filter_map(|one| Some((one.address, one.shown.inferred()?)))
    }

    /// Returns the index of a destination, adding it if it is new.
    #[inline]
    pub fn destination(&mut self, address: SocketAddr) -> usize {
        match self.destinations.get(self.last) {
            Some(last) if last.address == address => self.last,
            _ => self.other_destination(address),
        }
    }

    fn other_destination(&mut self, address: SocketAddr) -> usize {
        let destinations = &mut self.destinations;
        let shown = Shown::by_user(self.application);
        self.last = *self.by_address.entry(address).or_insert_with(|| {
            destinations.push(Destination { address, shown, channel: None, is_noted: false });
            destinations.len() - 1
        });
        self.last
    }

    /// Returns the feed of all packets to a destination, if it is certain.
    #[inline]
    #[must_use]
    pub fn known(&self, destination: usize) -> Option<Application> {
        self.destinations.get(destination)?.shown.certain()
    }

    /// Attributes a datagram to a feed, if its destination's feed is not [certain](Self::known).
    #[cold]
    #[inline(never)]
    pub fn attribute(&mut self, destination: usize, payload: &[u8]) -> Option<Attributed> {
        let destination = self.destinations.get_mut(destination)?;
        let before = destination.shown.application();
        let application = destination.shown.packet(payload, destination.address)?;
        let channel = destination.channel.map(|(index, _)| index);
        let is_other = before.is_some_and(|before| before != application);
        let renamed = channel.filter(|index| is_other && !self.channels[*index].has_messages());
        Some(Attributed { application, renamed })
    }

    /// Returns the publisher of a feed's packets to a destination.
    #[must_use]
    pub fn publisher(&self, application: Application, destination: SocketAddr) -> Publisher {
        application.spec().publisher(self.publisher, Some(destination))
    }

    /// Marks a destination's unrecognised packets as reported. Returns `true` the first time.
    pub fn report_once(&mut self, destination: usize) -> bool {
        let destination = self.destinations.get_mut(destination);
        destination.is_some_and(|destination| !std::mem::replace(&mut destination.is_noted, true))
    }

    /// Returns the channel and line of a datagram that is next in its destination's channel.
    #[inline]
    #[must_use]
    pub fn next(&self, destination: usize, header: &Header, port: u16) -> Option<(usize, Line)> {
        let (index, line) = self.destinations.get(destination)?.channel?;
        let channel = self.channels.get(index)?;
        let sequenced = channel.as_ref();
        // The first message decides the feed, so it takes the slow path.
        let is_next = channel.has_messages() && sequenced.carries(&header.session, port);
        (is_next && sequenced.is_next(header)).then_some((index, line))
    }

    /// Routes a datagram that is not the [next](Self::next) one. `make` creates a channel; its last argument is the channel being
    /// replaced.
    ///
    /// After a [restart](Route::Restarted) the owner reads the held packets, then calls [`Router::enter`].
    #[cold]
    #[inline(never)]
    pub fn route(
        &mut self,
        destination: usize,
        packet: &Packet<'_>,
        header: Header,
        application: Application,
        make: impl FnOnce(ChannelIdentity, Application, Publisher, Option<&C>) -> C,
    ) -> Route {
        let address = packet.datagram.destination;
        let Some(application) = Application::of_session(&header.session, application, self.application)
        else {
            return Route::Unrecognised;
        };
        if let Some(conflict) = application.spec().conflict(self.publisher, address) {
            // Merging two venues' books would be worse than reading nothing.
            self.venue_conflict.get_or_insert(conflict);
            return Route::Unrecognised;
        }
        let publisher = self.publisher(application, address);
        let channel = self.destinations.get(destination).and_then(|destination| destination.channel);
        let channel =
            channel.map(|(index, _)| index).or_else(|| self.channel_of_venue(application, publisher));
        let make = |identity, before: Option<&C>| make(identity, application, publisher, before);
        match self.channels.place(&Arriving { packet, header, application, channel }, make) {
            Step::OfChannel(index) => {
                let channel = &self.channels[index];
                // A MoldUDP64 heartbeat may belong to several feeds.
                let is_other = header.count > 0
                    && channel.as_ref().application() != application
                    && !channel.has_messages();
                let renamed = is_other.then_some(application);
                Route::Channel { index, line: self.enter(destination, index), renamed }
            }
            Step::Skipped(index, arrival) => Route::Skipped(index, arrival),
            Step::Held => Route::Held,
            Step::Restarted { from, to, held } => Route::Restarted { from, to, held },
        }
    }

    /// Assigns a channel to a destination, and returns the destination's line.
    pub fn enter(&mut self, destination: usize, index: usize) -> Line {
        let Some(destination) = self.destinations.get_mut(destination) else { return Line::A };
        let line = self.channels[index].line_of(destination.address);
        destination.channel = Some((index, line));
        line
    }

    /// Returns the channel of a venue that has one session at a time.
    fn channel_of_venue(&self, application: Application, publisher: Publisher) -> Option<usize> {
        if !application.spec().has_one_session {
            return None;
        }
        let is_it = |channel: &C| {
            let sequenced = channel.as_ref();
            sequenced.application() == application
                && channel.publisher() == publisher
                && !sequenced.is_replaced()
                && matches!(sequenced.identity(), ChannelIdentity::Datagrams { .. })
        };
        self.channels.iter().rposition(is_it)
    }
}

/// Counts the messages in a complete packet whose header claims more. Also returns the framing error.
#[cold]
#[inline(never)]
pub fn overcounted<T: Transport>(packet: &Packet<'_>) -> Option<(u64, FramingError)> {
    if packet.datagram.truncated { None } else { T::overcounted(packet.datagram.payload) }
}

impl Sequenced {
    /// Records the content of a new packet's first message, which later distinguishes a copy from a restart.
    #[inline]
    pub fn note<T: Transport>(
        &mut self,
        read: &tapeworks_session::Packet<'_, T::Prefix>,
        packet: &Packet<'_>,
    ) {
        let first = read.header.first;
        let is_new = self.tracker.next().is_none_or(|next| next <= first);
        let message = read.blocks.clone().next().and_then(Result::ok);
        if let (Some(message), true) = (message, is_new) {
            self.run.note(first, T::sent_ns(packet.datagram.payload), message, packet.received);
        }
    }

    /// Returns the corrected count of a copy whose header claims more messages than it holds, with the framing error.
    #[inline]
    #[must_use]
    pub fn count_of_copy<T: Transport>(
        &self,
        header: &Header,
        packet: &Packet<'_>,
    ) -> Option<(u64, FramingError)> {
        if self.tracker.overlaps(header.first, header.count) { overcounted::<T>(packet) } else { None }
    }
}
