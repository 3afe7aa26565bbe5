//! The options of a plant.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tapeworks_disk::Disk;
use tapeworks_engine::{EngineOptions, JournalHistory};
use tapeworks_feed::Application;
use tapeworks_feed::live::{LiveChannelOptions, SnapshotOptions};
use tapeworks_follow::arbitration::{ArbiterOptions, RetransmissionOptions};
use tapeworks_market::nbbo::{NbboRules, SelfHelp};
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{BookOptions, Capacity, Publisher, Symbol};
use tapeworks_ring::wait::Wait;
use tapeworks_runtime::traces::Traces;
use tapeworks_runtime::world::{System, World};
use tapeworks_session::requests::RequestLogin;
use tapeworks_session::snapshot::SnapshotLogin;

use crate::journal::JournalSetting;
use crate::pair::{self, Alike, PairError, PairSetting};
use crate::relay::RelayOptions;

/// Default number of orders of a feed to reserve room for.
pub const ORDERS: usize = 1 << 16;

/// A venue's retransmission server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetransmissionServer {
    /// Requests and answers are datagrams.
    Udp(SocketAddr),
    /// Requests go over TCP: Cboe's Gap Request Proxy, NYSE's request server, MITCH's replay channel, MEMX's gap fill.
    Tcp {
        /// The server.
        address: SocketAddr,
        /// Where the answers arrive: a multicast group or an address of this machine. `None`: over the connection, as the login's
        /// protocol defines.
        group: Option<SocketAddr>,
        /// The credentials for requests.
        login: RequestLogin,
    },
}

impl RetransmissionServer {
    /// Returns whether requests go over TCP. Such a server sends all messages of a request, in several packets.
    pub const fn is_by_tcp(&self) -> bool {
        matches!(self, Self::Tcp { .. })
    }
}

impl From<SocketAddr> for RetransmissionServer {
    fn from(address: SocketAddr) -> Self {
        Self::Udp(address)
    }
}

/// A venue's snapshot server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotServer {
    /// Snapshots come over the connection: GLIMPSE, and the venue-specific servers of Cboe, London and MEMX.
    Tcp(SocketAddr),
    /// Requests go over TCP, and the snapshots come to a separate address: NYSE's refreshes.
    Group {
        /// The request server.
        address: SocketAddr,
        /// Where the snapshots arrive: a multicast group or an address of this machine.
        group: SocketAddr,
        /// The credentials for requests.
        login: RequestLogin,
    },
}

impl From<SocketAddr> for SnapshotServer {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// A channel of a venue: its lines and servers.
#[derive(Clone, Debug)]
pub struct VenueOptions {
    /// Its display name.
    pub name: String,
    /// Its protocol.
    pub application: Application,
    /// The feed.
    pub publisher: Publisher,
    /// Line A, and line B if there is one: multicast groups or addresses of this machine.
    pub lines: Vec<SocketAddr>,
    /// The retransmission server.
    pub retransmission: Option<RetransmissionServer>,
    /// The snapshot server.
    pub snapshot: Option<SnapshotServer>,
    /// The login for a snapshot server that answers over the connection.
    pub login: SnapshotLogin,
    /// How the lines are arbitrated. Missing messages are requested if there is a `retransmission` server.
    pub arbiter: ArbiterOptions,
    /// How snapshots are requested, if there is a server.
    pub snapshots: SnapshotOptions,
    /// Number of resting orders that the books reserve room for at the start.
    pub orders: usize,
}

/// How work is divided among threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Topology {
    /// Ingest also maintains the books and the NBBO: one core from the datagram to the shared memory.
    #[default]
    Inline,
    /// Books and NBBO run on a separate thread, which reads the ring.
    Pipeline,
}

/// Where datagrams come from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Source {
    /// A UDP socket for each line: `recvmmsg`, with kernel receive times.
    #[default]
    Sockets,
    /// The frames of a network interface, through AF_PACKET (TPACKET_V3); needs `CAP_NET_RAW`.
    Packet {
        /// The interface's name.
        device: String,
    },
    /// The frames of one queue of a network interface, through AF_XDP: none of them reaches the kernel's network stack.
    #[cfg(feature = "af-xdp")]
    Xdp(tapeworks_nic::XdpOptions),
    /// The frames of a device, through DPDK: the kernel does not see them.
    #[cfg(feature = "dpdk")]
    Dpdk(tapeworks_nic::DpdkOptions),
}

impl Source {
    /// Returns the interface whose frames are received; `None` for sockets.
    pub(crate) fn device(&self) -> Option<&str> {
        match self {
            Self::Sockets => None,
            Self::Packet { device } => Some(device),
            #[cfg(feature = "af-xdp")]
            Self::Xdp(options) => Some(&options.interface),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(options) => Some(&options.device),
        }
    }

    /// Returns whether the kernel drives the interface, so that groups are joined through the kernel.
    pub(crate) const fn is_of_the_kernel(&self) -> bool {
        #[cfg(feature = "dpdk")]
        if let Self::Dpdk(_) = self {
            return false;
        }
        true
    }

    /// Returns whether the frames bypass all sockets.
    pub(crate) const fn is_ahead_of_the_kernel(&self) -> bool {
        !matches!(self, Self::Sockets | Self::Packet { .. })
    }
}

/// How datagrams are received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveOptions {
    /// The source of the datagrams.
    pub source: Source,
    /// The address of the interface on which multicast groups are joined; `None` leaves the choice to the kernel.
    pub interface: Option<Ipv4Addr>,
    /// Bytes to request from the kernel for each socket's buffer, or for the AF_PACKET ring; `None` keeps the default.
    pub buffer_bytes: Option<usize>,
    /// `SO_BUSY_POLL`, in us.
    pub busy_poll_us: u32,
    /// The longest datagram, in bytes.
    pub datagram_bytes: usize,
    /// Number of packet buffers. Each input that waits for the journal occupies one.
    pub buffers: usize,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self {
            source: Source::default(),
            interface: None,
            buffer_bytes: Some(16 << 20),
            busy_poll_us: 0,
            datagram_bytes: 2_048,
            buffers: 32_768,
        }
    }
}

/// The options of a plant.
#[derive(Clone, Debug)]
pub struct PlantOptions {
    /// The channels.
    pub venues: Vec<VenueOptions>,
    /// How datagrams are received.
    pub receive: ReceiveOptions,
    /// How work is divided among threads.
    pub topology: Topology,
    /// How ingest waits for packets, and how the ring's consumers wait for events.
    pub wait: Wait,
    /// The cores of ingest and of the market stages; `None` leaves a thread unpinned.
    pub cores: [Option<usize>; 2],
    /// Number of events in the ring.
    pub ring_events: usize,
    /// The rules of the NBBO.
    pub rules: NbboRules,
    /// When venues are under self-help, and so excluded from the NBBO.
    pub self_help: Vec<SelfHelp>,
    /// The unit of the sizes in the SIPs' quotes.
    pub sip_sizes: SipSizes,
    /// The only symbols to publish; `None` publishes all.
    pub symbols: Option<HashSet<Symbol>>,
    /// The journal.
    pub journal: Option<JournalSetting>,
    /// The other plant of a pair. Requires a journal.
    pub pair: Option<PairSetting>,
    /// The plant whose events are taken instead of lines. Excludes venues and a pair.
    pub relay: Option<RelayOptions>,
    /// The shared-memory file for local clients.
    pub shared_memory: Option<PathBuf>,
    /// Whether to keep rarely used paths warm.
    pub warm: bool,
    /// Minimum number of orders per feed to reserve room for, in the plant's books and in those of each output and replay.
    pub least_orders: usize,
    /// Destination of trace samples of packets and rare operations.
    pub traces: Option<Traces>,
}

impl Default for PlantOptions {
    fn default() -> Self {
        Self {
            venues: Vec::new(),
            receive: ReceiveOptions::default(),
            topology: Topology::default(),
            wait: Wait::Park,
            cores: [None; 2],
            ring_events: 1 << 20,
            rules: NbboRules::default(),
            self_help: Vec::new(),
            sip_sizes: SipSizes::default(),
            symbols: None,
            journal: None,
            pair: None,
            relay: None,
            shared_memory: None,
            warm: false,
            least_orders: ORDERS,
            traces: None,
        }
    }
}

impl PlantOptions {
    /// Returns the options of the plant's books, for any consumer that makes records.
    pub fn books(&self) -> BookOptions {
        let mut feeds: Vec<(Publisher, Capacity)> = Vec::new();
        for VenueOptions { publisher, .. } in &self.venues {
            if !feeds.iter().any(|(known, _)| known == publisher) {
                feeds.push((*publisher, self.capacity_of(*publisher)));
            }
        }
        if let Some(relay) = &self.relay {
            feeds.extend(relay.feeds.iter().map(|feed| (*feed, self.capacity_of(*feed))));
        }
        let shard = self.relay.as_ref().map(|relay| relay.shard).filter(|shard| shard.of > 1);
        let capacity = Capacity::for_orders(self.least_orders);
        BookOptions { feeds, capacity, rules: self.rules.clone(), shard }
    }

    /// Returns the initial table sizes of a feed.
    pub(crate) fn capacity_of(&self, publisher: Publisher) -> Capacity {
        let of_feed = self.venues.iter().filter(|venue| venue.publisher == publisher);
        let orders: usize = of_feed.map(|venue| venue.orders).sum();
        Capacity::for_orders(orders.max(self.least_orders))
    }

    /// Returns the options of the plant's engine. An engine with these options makes the same events from the plant's journal.
    pub fn engine(&self) -> EngineOptions {
        let channels = self
            .venues
            .iter()
            .map(|venue| LiveChannelOptions {
                name: venue.name.clone(),
                application: venue.application,
                publisher: venue.publisher,
                arbiter: ArbiterOptions {
                    retransmission: venue.retransmission.map(|server| RetransmissionOptions {
                        answers_in_parts: server.is_by_tcp(),
                        ..venue.arbiter.retransmission.unwrap_or_default()
                    }),
                    ..venue.arbiter
                },
                snapshot: venue.snapshot.map(|_| venue.snapshots),
            })
            .collect();
        EngineOptions {
            channels,
            symbols: self.symbols.clone(),
            self_help: self.self_help.clone(),
            sip_sizes: self.sip_sizes,
            books: self.books(),
            keeps_last_trades: self.journal.is_some(),
        }
    }

    /// Returns the settings that must be the same in both plants of a pair.
    pub(crate) fn alike(&self) -> Alike {
        let lines = |venue| {
            let VenueOptions { name, lines, .. }: &VenueOptions = venue;
            (name.as_str(), lines.as_slice())
        };
        Alike::of(&self.engine(), self.venues.iter().map(lines))
    }

    /// Agrees with the other plant of a pair which of the two is the primary; the plant then starts in its role. Waits for the
    /// other plant if it must, until `is_stopped` returns true. `say` receives progress messages. Does nothing without a pair.
    ///
    /// # Errors
    /// [`PairError`]: a port in use, a journal that cannot be used, or a peer with a different configuration.
    pub fn agree(&mut self, say: impl FnMut(&str), is_stopped: impl Fn() -> bool) -> Result<(), PairError> {
        self.agree_in::<System>(say, is_stopped)
    }

    /// Agrees like [`PlantOptions::agree`], in any world.
    ///
    /// # Errors
    /// As [`PlantOptions::agree`].
    pub fn agree_in<W: World>(
        &mut self,
        say: impl FnMut(&str),
        is_stopped: impl Fn() -> bool,
    ) -> Result<(), PairError> {
        let Some(setting) = &self.pair else { return Ok(()) };
        let journal = self.journal.as_ref().ok_or(PairError::NoJournal)?;
        let journal = (journal.folder.as_path(), journal.options);
        let agreed = pair::agree::<W>(setting, journal, self.alike(), say, is_stopped)?;
        if let Some(pair) = &mut self.pair {
            (pair.agreed, pair.moved_aside) = (Some(agreed.role), agreed.moved_aside);
            if agreed.role == pair::Role::Primary {
                pair.stepped_down = None;
            }
        }
        Ok(())
    }

    /// Returns the events in the plant's journal; `None` if it keeps none.
    pub fn history(&self) -> Option<JournalHistory> {
        self.history_in()
    }

    /// Returns the history like [`PlantOptions::history`], on any disk.
    pub fn history_in<D: Disk>(&self) -> Option<JournalHistory<D>> {
        Some(JournalHistory::new_in(self.engine(), &self.journal.as_ref()?.folder))
    }
}
