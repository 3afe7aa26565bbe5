//! Packets through stages: the packets, their outcomes, and the stages of a packet processor.
//!
//! A packet is a handle to a buffer of a [`Pool`](tapeworks_capture::pool::Pool). A stage takes each packet of its batch and
//! puts out exactly one [`Routed`] for it: to a port, consumed, or dropped for a [`Reason`]. So every packet that goes in comes
//! out, by construction, and the runner counts it.
//!
//! | module | stages |
//! | --- | --- |
//! | [`reader`] | capture files, UDP sockets, network interfaces |
//! | [`filter`] | a [`Predicate`](filter::Predicate) over headers; ports `pass` and `reject` |
//! | [`expression`] | predicates as text: `udp and dst net 224.0.0.0/4` |
//! | [`rewriter`] | Ethernet and IP addresses, ports, VLAN tags, with checksums |
//! | [`writer`] | capture files, UDP sockets, network interfaces, the dropper |
//!
//! They are [`Stage`]s like those of the books, so they compose without a runner too: see
//! [`Chain`](tapeworks_stage::Chain). Behind `dyn` they are [`PacketStage`]s.

pub mod expression;
pub mod filter;
pub mod reader;
pub mod rewriter;
pub mod writer;

use std::cell::Cell;
use std::fmt;

use tapeworks_capture::LinkType;
use tapeworks_capture::pool::Packet;

use tapeworks_stage::{Sink, Stage};

/// A packet in a batch. The stage takes it out, because a batch is lent and a packet is owned: its only
/// holder may rewrite it without a copy.
#[derive(Default)]
pub struct Passing(Cell<Option<Packet>>);

impl Passing {
    /// Holds `packet` until a stage takes it.
    #[inline]
    pub const fn new(packet: Packet) -> Self {
        Self(Cell::new(Some(packet)))
    }

    /// The packet, once.
    #[inline]
    pub fn take(&self) -> Option<Packet> {
        self.0.take()
    }
}

impl fmt::Debug for Passing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Passing")
    }
}

/// The outcome of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// It goes out of the port with this number.
    Port(u8),
    /// The stage has finished its task: written, sent, counted.
    Consumed,
    /// It ends here.
    Dropped(Reason),
}

/// A packet that a stage has done with.
#[derive(Debug)]
pub struct Routed {
    /// The packet.
    pub packet: Packet,
    /// Where it goes.
    pub to: To,
}

/// Why a packet was dropped. Each has a counter in each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// A filter rejected it, and nothing is connected to the filter's `reject` port.
    Rejected,
    /// It is longer than a packet buffer, or than the socket or interface permits.
    TooLong,
    /// Every packet buffer was in use.
    NoBuffer,
    /// There is no room for one more VLAN tag.
    NoHeadroom,
    /// It has another link type than the file or interface it would be written to.
    LinkType,
    /// It is no UDP packet, or not whole: there is no payload to send.
    NoPayload,
    /// The write or the send failed; the first failure ends the run.
    Failed,
    /// The kernel dropped it because the socket's buffer or ring was full.
    KernelDropped,
    /// It is incomplete: a cut frame is not sent.
    Cut,
    /// The socket or the interface's queue was full.
    QueueFull,
    /// The kernel would not send it: it is shorter than its headers, or a firewall forbids it.
    Refused,
    /// Its time is after 2106, the last that a pcap file can hold.
    TimeRange,
    /// The stage put it to an output that it does not have: a defect of the stage, which ends the run.
    NoPort,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Rejected,
        Self::TooLong,
        Self::NoBuffer,
        Self::NoHeadroom,
        Self::LinkType,
        Self::NoPayload,
        Self::Failed,
        Self::KernelDropped,
        Self::Cut,
        Self::QueueFull,
        Self::Refused,
        Self::TimeRange,
        Self::NoPort,
    ];

    /// A short name for tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::TooLong => "too_long",
            Self::NoBuffer => "no_buffer",
            Self::NoHeadroom => "no_headroom",
            Self::LinkType => "link_type",
            Self::NoPayload => "no_payload",
            Self::Failed => "failed",
            Self::KernelDropped => "kernel_dropped",
            Self::Cut => "cut",
            Self::QueueFull => "queue_full",
            Self::Refused => "refused",
            Self::TimeRange => "time_range",
            Self::NoPort => "no_port",
        }
    }
}

/// A remark of a stage on packets that it passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Note {
    /// A packet that others hold too was copied before it was rewritten.
    Copied,
    /// The capture kept less than the packet had.
    Cut,
    /// Ethernet addresses were to be rewritten; the packet has none.
    NoMac,
    /// A VLAN identifier was to be set or a tag to be popped; the packet has no tag.
    NoTag,
    /// IP addresses were to be rewritten; the packet has none of that version.
    NoAddress,
    /// Ports were to be rewritten; the packet is neither TCP nor UDP, or cut before them.
    NoPort,
    /// Ports were to be rewritten; the packet is a later fragment, which has none.
    Fragment,
    /// The kernel had left its checksum to the network card; the reader completed it.
    ChecksumCompleted,
    /// The ring that the kernel fills was full; packets dropped meanwhile are counted as [`Reason::KernelDropped`].
    RingFull,
    /// It was in the ring when the reader ended. It is in no other count.
    LeftBehind,
}

impl Note {
    /// Every note, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Copied,
        Self::Cut,
        Self::NoMac,
        Self::NoTag,
        Self::NoAddress,
        Self::NoPort,
        Self::Fragment,
        Self::ChecksumCompleted,
        Self::RingFull,
        Self::LeftBehind,
    ];

    /// A short name for tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copied => "copied",
            Self::Cut => "cut",
            Self::NoMac => "no_mac",
            Self::NoTag => "no_tag",
            Self::NoAddress => "no_address",
            Self::NoPort => "no_port",
            Self::Fragment => "fragment",
            Self::ChecksumCompleted => "checksum_completed",
            Self::RingFull => "ring_full",
            Self::LeftBehind => "left_behind",
        }
    }
}

/// Counts of notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes([u64; Note::ALL.len()]);

impl Notes {
    /// Counts one more.
    #[inline]
    pub fn count(&mut self, note: Note) {
        self.0[note as usize] += 1;
    }

    /// Sets a count that is kept elsewhere.
    pub fn set(&mut self, note: Note, count: u64) {
        self.0[note as usize] = count;
    }

    /// How often.
    pub fn of(&self, note: Note) -> u64 {
        self.0[note as usize]
    }
}

/// Why a stage cannot begin or continue: one line that names the file, address or interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct StageError {
    /// The line.
    pub text: String,
    /// An input is damaged or cut: the packets before are good, and the run continues without it. Otherwise the run ends.
    pub is_damage: bool,
}

impl StageError {
    /// Something that ends the run.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_damage: false }
    }

    /// An input that ends before its time.
    pub fn damaged(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_damage: true }
    }
}

/// The error for AF_XDP in a build without the feature `af-xdp`.
pub const LACKS_AF_XDP: &str =
    "this build has no AF_XDP: build it with the feature af-xdp (cargo build --release --features af-xdp)";

/// The error for DPDK in a build without the feature `dpdk`.
pub const LACKS_DPDK: &str =
    "this build has no DPDK: build it with the feature dpdk (cargo build --release --features dpdk)";

/// The link type of a payload that has lost its headers (LINKTYPE_USER0: of private meaning).
pub const PAYLOAD: LinkType = LinkType(147);

/// The sink of a stage behind `dyn`; allocated once.
#[derive(Debug, Default)]
pub struct Outbox {
    pub(crate) items: Vec<Routed>,
    /// Packets that never became one: by reason.
    pub(crate) unread: [u64; Reason::ALL.len()],
}

impl Outbox {
    /// An empty outbox with room for `capacity` packets.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { items: Vec::with_capacity(capacity), unread: [0; Reason::ALL.len()] }
    }

    /// Takes out its packets.
    pub fn drain(&mut self) -> impl Iterator<Item = Routed> {
        self.items.drain(..)
    }

    /// Packets that a reader found, or that the kernel counted, and that did not go into buffers.
    pub fn drop_unread(&mut self, reason: Reason, count: u64) {
        self.unread[reason as usize] += count;
    }

    /// Packets that were not taken into buffers, by reason.
    pub fn unread(&self, reason: Reason) -> u64 {
        self.unread[reason as usize]
    }
}

impl Sink<Routed> for Outbox {
    #[inline]
    fn put(&mut self, item: Routed) {
        self.items.push(item);
    }
}

/// A stage as a graph holds it: chosen by a file, run behind `dyn`.
pub trait PacketStage: Stage<Passing, Outbox> + Send {
    /// How many outputs it has: it puts packets to [`To::Port`] 0 and up, below this. A writer has none.
    fn ports(&self) -> usize;

    /// Its remarks so far.
    fn notes(&self) -> Notes {
        Notes::default()
    }

    /// Why it cannot continue, once; from then on it drops packets as [`Reason::Failed`].
    fn take_failure(&mut self) -> Option<StageError> {
        None
    }

    /// The last packet has come: writes the buffers and gives files their names.
    ///
    /// # Errors
    /// What could not be finished.
    fn finish(&mut self) -> Result<(), StageError> {
        Ok(())
    }
}

/// The result of polling a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    /// There were packets.
    Some,
    /// There are none now; perhaps later.
    None,
    /// There will be none any more.
    Ended,
}

/// Where packets come from.
pub trait Reader: Send {
    /// Puts out up to `most` packets that are there now, to port 0. `now_ns` is the time that they enter at.
    ///
    /// # Errors
    /// Why there will be no more; what came before has been put out.
    fn poll(&mut self, most: usize, now_ns: u64, outbox: &mut Outbox) -> Result<Polled, StageError>;

    /// It will not be polled any more: counts of drops not yet reported go into the outbox.
    fn finish(&mut self, _outbox: &mut Outbox) {}

    /// Whether there may be packets to poll: cheap, for a thread that waits.
    fn is_ready(&mut self, _now_ns: u64) -> bool {
        true
    }

    /// What it noticed so far.
    fn notes(&self) -> Notes {
        Notes::default()
    }
}
