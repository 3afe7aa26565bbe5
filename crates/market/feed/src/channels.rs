//! The channels of a capture: which one a datagram belongs to, and when a channel restarts.
//!
//! A channel is identified by its session, its port if the header does not name the channel, and its run: how many times the
//! venue has restarted the numbers of this session. Replay and analysis place datagrams through the [router](crate::router), so
//! they agree on every restart. A restart creates another channel, which inherits nothing from the old one.
//!
//! Cost: a datagram that continues its channel never gets here. Any other costs a hash map lookup and a judgement by the
//! channel's [`Run`].

use std::collections::HashMap;
use std::net::SocketAddr;

use tapeworks_capture::net::{Datagram, Transport};
use tapeworks_session::{Header, SessionId};
use tapeworks_time::Nanos;

use crate::captured::{ChannelIdentity, Packet};
use crate::table::Application;
use tapeworks_follow::run::{Evidence, Run, Verdict};
use tapeworks_follow::sequence::{Arrival, Refusal, SequenceTracker};

/// The sequencing state of a channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub struct Sequenced {
    identity: ChannelIdentity,
    application: Application,
    /// Its sequence numbers.
    pub tracker: SequenceTracker,
    /// Distinguishes copies from a restart. A live channel's [arbiter](tapeworks_follow::arbitration) has its own.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub run: Run,
    /// Suspects that are not yet confirmed or refused.
    #[cfg_attr(feature = "serde", serde(skip))]
    held: Vec<HeldPacket>,
    /// Whether another run or session has replaced this channel.
    #[cfg_attr(feature = "serde", serde(skip))]
    is_replaced: bool,
}

impl Sequenced {
    /// Creates a channel before its first packet.
    #[must_use]
    pub fn new(identity: ChannelIdentity, application: Application) -> Self {
        Self {
            identity,
            application,
            tracker: SequenceTracker::default(),
            run: Run::default(),
            held: Vec::new(),
            is_replaced: false,
        }
    }

    /// Returns the channel's identity.
    #[must_use]
    pub const fn identity(&self) -> &ChannelIdentity {
        &self.identity
    }

    /// Returns the channel's feed.
    #[must_use]
    pub const fn application(&self) -> Application {
        self.application
    }

    /// Returns whether another run or session has replaced this channel.
    #[must_use]
    pub const fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Returns whether this channel carries a session on a port.
    #[inline]
    #[must_use]
    pub fn carries(&self, session: &SessionId, port: u16) -> bool {
        !self.is_replaced
            && matches!(&self.identity, ChannelIdentity::Datagrams { session: own, port: of, .. }
                if own == session && (*of == port || session.transport().names_channel()))
    }

    /// Changes the feed. The new feed must have the same transport.
    pub const fn rename(&mut self, application: Application) {
        self.application = application;
    }

    /// Returns whether a packet is next in sequence and there is nothing to judge.
    #[inline]
    #[must_use]
    pub fn is_next(&self, header: &Header) -> bool {
        self.tracker.next() == Some(header.first) && header.count > 0 && !self.run.has_suspects()
    }
}

/// A copy of a packet that waits for others to confirm it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldPacket {
    /// Index of the file among the inputs.
    pub file: u16,
    /// Number of the packet in the file, from 1.
    pub number: u64,
    /// Offset of its payload in the file, in bytes.
    pub offset: u64,
    /// When it was received.
    pub received: Nanos,
    source: SocketAddr,
    destination: SocketAddr,
    vlan: Option<u16>,
    payload: Vec<u8>,
}

impl HeldPacket {
    fn copy_of(packet: &Packet<'_>) -> Self {
        let Datagram { source, destination, vlan, payload, .. } = packet.datagram;
        Self {
            file: packet.file,
            number: packet.number,
            offset: packet.offset,
            received: packet.received,
            source,
            destination,
            vlan,
            payload: payload.to_vec(),
        }
    }

    /// Returns the packet as it was captured.
    #[must_use]
    pub fn packet(&self) -> Packet<'_> {
        Packet {
            file: self.file,
            number: self.number,
            offset: self.offset,
            received: self.received,
            datagram: Datagram {
                source: self.source,
                destination: self.destination,
                vlan: self.vlan,
                transport: Transport::Udp,
                payload: &self.payload,
                payload_offset: 0,
                truncated: false,
            },
        }
    }
}

/// The outcome of placing a datagram that does not simply continue its channel.
#[derive(Debug)]
pub enum Step {
    /// It belongs to this channel. The channel's sequence determines which messages are new.
    OfChannel(usize),
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
}

/// A datagram to place.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a, 'p> {
    /// The datagram.
    pub packet: &'a Packet<'p>,
    /// Its header.
    pub header: Header,
    /// Its feed.
    pub application: Application,
    /// The channel of the last packet to its destination, or its venue's channel, if there is one.
    pub channel: Option<usize>,
}

impl Arriving<'_, '_> {
    fn identity(&self) -> ChannelIdentity {
        ChannelIdentity::of_datagram(self.header.session, self.packet.datagram.destination.port())
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            header: self.header,
            payload: self.packet.datagram.payload,
            received: self.packet.received,
            dialect: self.application.dialect(),
        }
    }

    /// Returns whether the datagram's messages match its header, so that it may restart a channel.
    fn is_sound(&self) -> bool {
        !self.packet.datagram.truncated && self.application.transport().is_sound(self.packet.datagram.payload)
    }
}

/// All channels, each with its owner's data.
#[derive(Debug)]
pub struct Channels<C> {
    all: Vec<C>,
    /// The current run of each session.
    by_session: HashMap<ChannelIdentity, usize>,
    /// Suspects refused since the owner last took them, with their channels.
    refused: Vec<(usize, HeldPacket, Refusal)>,
}

impl<C> Default for Channels<C> {
    fn default() -> Self {
        Self { all: Vec::new(), by_session: HashMap::new(), refused: Vec::new() }
    }
}

impl<C> std::ops::Deref for Channels<C> {
    type Target = [C];

    #[inline]
    fn deref(&self) -> &[C] {
        &self.all
    }
}

impl<C> std::ops::DerefMut for Channels<C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [C] {
        &mut self.all
    }
}

impl<C: AsRef<Sequenced> + AsMut<Sequenced>> Channels<C> {
    /// Returns the current channel of a session.
    #[must_use]
    pub fn current(&self, identity: &ChannelIdentity) -> Option<usize> {
        self.by_session.get(&identity.of_run(0)).copied()
    }

    /// Adds a channel as the current one of its session. Returns its index.
    pub fn add(&mut self, channel: C) -> usize {
        let index = self.all.len();
        self.by_session.insert(channel.as_ref().identity.of_run(0), index);
        self.all.push(channel);
        index
    }

    /// Takes the suspects that were refused since the last call, each with its channel and the reason.
    pub fn take_refused(&mut self) -> Vec<(usize, HeldPacket, Refusal)> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the channel that a session replaces: the last one to the same destination, or the one that the header names.
    fn predecessor(&self, arriving: &Arriving<'_, '_>) -> Option<usize> {
        let session = &arriving.header.session;
        let has_place = |channel: &C| {
            let channel = channel.as_ref();
            let is_same = matches!(&channel.identity, ChannelIdentity::Datagrams { session: other, .. }
                if other.is_of_channel_of(session));
            is_same && !channel.is_replaced
        };
        if session.transport().names_channel() {
            return self.all.iter().rposition(has_place);
        }
        let index = arriving.channel?;
        self.all.get(index).is_some_and(has_place).then_some(index)
    }

    /// Places a datagram that is not the next one of its destination's channel. `make` creates a channel.
    #[cold]
    #[inline(never)]
    pub fn place(
        &mut self,
        arriving: &Arriving<'_, '_>,
        make: impl FnOnce(ChannelIdentity, Option<&C>) -> C,
    ) -> Step {
        let identity = arriving.identity();
        let count = arriving.header.count;
        if let Some(index) = self.current(&identity) {
            let channel = self.all[index].as_mut();
            if channel.is_replaced {
                // A late packet of a session that another has replaced: the books now follow the other session.
                let (first, next) = (arriving.header.first, channel.tracker.next());
                let is_new = next.is_some_and(|next| first.saturating_add(count) > next)
                    || channel.tracker.is_missing(first, count);
                let arrival = match is_new {
                    true => channel.tracker.refuse(count, Refusal::OtherSession),
                    false => channel.tracker.repeat(count),
                };
                return Step::Skipped(index, arrival);
            }
            return self.judge(index, arriving, make);
        }
        let Some(index) = self.predecessor(arriving) else {
            return Step::OfChannel(self.add(make(identity, None)));
        };
        let channel = self.all[index].as_mut();
        let verdict = if arriving.is_sound() {
            channel.run.judge_session(&arriving.evidence())
        } else {
            Verdict::Differs
        };
        self.act(index, verdict, Refusal::OtherSession, arriving, |old| make(identity, Some(old)))
    }

    /// Judges a datagram of the session that a channel carries.
    fn judge(
        &mut self,
        index: usize,
        arriving: &Arriving<'_, '_>,
        make: impl FnOnce(ChannelIdentity, Option<&C>) -> C,
    ) -> Step {
        let Header { first, count, is_end_of_session, .. } = arriving.header;
        let channel = self.all[index].as_mut();
        let next = channel.tracker.next();
        let is_late =
            channel.tracker.is_missing(first, count) && channel.run.may_be_late(&arriving.evidence());
        if is_late {
            channel.run.note_late(&arriving.evidence());
        }
        let verdict = match next {
            _ if is_late => Verdict::OfRun,
            // With two lines every second packet is a copy; its messages are not walked.
            Some(next)
                if first.saturating_add(count) <= next
                    && !channel.run.is_next_day(arriving.packet.received)
                    && channel.run.is_copy(
                        arriving.application.transport(),
                        first,
                        arriving.packet.datagram.payload,
                    ) =>
            {
                Verdict::OfRun
            }
            // The tracker judges implausibly distant numbers, and a damaged packet restarts nothing.
            Some(next) if !channel.tracker.is_unconfirmed() || next <= first.saturating_add(count) => {
                if first != next && arriving.is_sound() {
                    channel.run.judge(&arriving.evidence(), next)
                } else {
                    Verdict::OfRun
                }
            }
            _ => Verdict::OfRun,
        };
        if verdict == Verdict::OfRun && count == 0 {
            channel.run.note_heartbeat(arriving.packet.received, is_end_of_session);
        }
        let refusal = Refusal::Contradicts(next.unwrap_or_default());
        self.act(index, verdict, refusal, arriving, |old| make(old.as_ref().identity.next_run(), Some(old)))
    }

    fn act(
        &mut self,
        index: usize,
        verdict: Verdict,
        refusal: Refusal,
        arriving: &Arriving<'_, '_>,
        make: impl FnOnce(&C) -> C,
    ) -> Step {
        let (count, end) = (arriving.header.count, arriving.header.end());
        let channel = self.all[index].as_mut();
        match verdict {
            Verdict::OfRun => {
                if channel.tracker.next().is_some_and(|next| end > next) {
                    self.refuse_held(index);
                }
                Step::OfChannel(index)
            }
            Verdict::Past | Verdict::CopyOfSuspect => Step::Skipped(index, channel.tracker.repeat(count)),
            Verdict::Differs => Step::Skipped(index, channel.tracker.refuse(count, refusal)),
            Verdict::Undecided => {
                let arrival = channel.tracker.refuse(count, refusal);
                self.refuse_held(index);
                Step::Skipped(index, arrival)
            }
            Verdict::Suspect { continues } => {
                if !continues {
                    self.drop_held(index);
                }
                self.all[index].as_mut().held.push(HeldPacket::copy_of(arriving.packet));
                Step::Held
            }
            Verdict::Restart => {
                let held = self.end_of(index, arriving);
                let mut channel = make(&self.all[index]);
                let old = self.all[index].as_ref();
                if old.identity.of_run(0) == channel.as_ref().identity.of_run(0) {
                    channel.as_mut().run = old.run.next_run(old.tracker.next().unwrap_or_default());
                    // Within a day the venue numbers from 1 again, so anything the capture lacks from there is missing.
                    if !old.run.is_next_day(arriving.packet.received) {
                        channel.as_mut().tracker.restart(1);
                    }
                }
                let to = self.add(channel);
                Step::Restarted { from: index, to, held }
            }
        }
    }

    /// Ends a channel. Returns the suspects that the datagram confirms; any others are refused.
    fn end_of(&mut self, index: usize, arriving: &Arriving<'_, '_>) -> Vec<HeldPacket> {
        let session = arriving.header.session;
        let transport = arriving.application.transport();
        let channel = self.all[index].as_mut();
        channel.is_replaced = true;
        channel.run.refuse_suspects();
        let held = std::mem::take(&mut channel.held);
        let confirmed = |held: &HeldPacket| {
            transport
                .header(&held.payload)
                .is_ok_and(|header| header.session == session && header.end() <= arriving.header.first)
        };
        let (confirmed, others): (Vec<_>, Vec<_>) = held.into_iter().partition(confirmed);
        self.refuse(index, others);
        confirmed
    }

    /// Refuses a channel's suspects, because a packet of the current run arrived.
    fn refuse_held(&mut self, index: usize) {
        self.all[index].as_mut().run.refuse_suspects();
        self.drop_held(index);
    }

    fn drop_held(&mut self, index: usize) {
        let held = std::mem::take(&mut self.all[index].as_mut().held);
        self.refuse(index, held);
    }

    /// Refuses held packets. Each has its own reason: it belongs to another session, or it contradicts this one.
    fn refuse(&mut self, index: usize, packets: Vec<HeldPacket>) {
        let channel = self.all[index].as_mut();
        let transport = channel.application.transport();
        for held in packets {
            let header = transport.header(&held.payload).ok();
            let is_of_other_session = matches!(
                (&channel.identity, header),
                (ChannelIdentity::Datagrams { session, .. }, Some(header)) if header.session != *session
            );
            if let Some(header) = header.filter(|header| {
                !is_of_other_session && channel.run.repeats(transport, header.first, &held.payload)
            }) {
                channel.tracker.repeat(header.count);
                continue;
            }
            let refusal = match is_of_other_session {
                true => Refusal::OtherSession,
                false => Refusal::Contradicts(channel.tracker.next().unwrap_or_default()),
            };
            channel.tracker.refuse(header.map_or(0, |header| header.count), refusal);
            self.refused.push((index, held, refusal));
        }
    }

    /// Ends the input. Returns the suspects of another session that nothing contradicted; processed again, they begin that
    /// session. Other suspects are refused.
    pub fn finish(&mut self) -> Vec<(Application, HeldPacket)> {
        let mut begins = Vec::new();
        for index in 0..self.all.len() {
            let channel = self.all[index].as_mut();
            let is_new = matches!(&channel.identity, ChannelIdentity::Datagrams { session, .. }
                if channel.run.awaits_session(session));
            if is_new {
                channel.run.end();
                let application = channel.application;
                begins.extend(std::mem::take(&mut channel.held).into_iter().map(|held| (application, held)));
            } else {
                self.refuse_held(index);
            }
        }
        begins
    }
}
