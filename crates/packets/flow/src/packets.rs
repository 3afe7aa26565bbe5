//! Packets, their outcomes, and the stages of a packet processor.
//!
//! A packet is a handle to a buffer of a [`Pool`](tapeworks_capture::pool::Pool). A stage takes each packet of its batch and puts
//! out exactly one [`Routed`] for it: sent to a port, consumed, or dropped for a [`Reason`]. Every packet is therefore accounted
//! for by construction, and the runner counts them.
//!
//! | module | stages |
//! | --- | --- |
//! | [`reader`] | capture files, UDP sockets, network interfaces |
//! | [`filter`] | a [`Predicate`](filter::Predicate) over headers; ports `pass` and `reject` |
//! | [`expression`] | predicates as text: `udp and dst net 224.0.0.0/4` |
//! | [`rewriter`] | Ethernet and IP addresses, ports, VLAN tags, with checksums |
//! | [`writer`] | capture files, UDP sockets, network interfaces, the dropper |
//!
//! They are [`Stage`]s like those of the books, so they also compose without a runner: see [`Chain`](tapeworks_stage::Chain).
//! Behind `dyn` they are [`PacketStage`]s.

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

/// A packet in a batch. A stage takes the packet out, because a batch is lent but a packet is owned: its only holder may rewrite
/// it without copying.
#[derive(Default)]
pub struct Passing(Cell<Option<Packet>>);

impl Passing {
    /// Holds `packet` until a stage takes it.
    #[inline]
    pub const fn new(packet: Packet) -> Self {
        Self(Cell::new(Some(packet)))
    }

    /// Takes the packet out, once.
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
    /// Leaves by the port with this number.
    Port(u8),
    /// The stage has finished with it: written, sent, or counted.
    Consumed,
    /// Ends here.
    Dropped(Reason),
}

/// A packet that a stage has finished with.
#[derive(Debug)]
pub struct Routed {
    /// The packet.
    pub packet: Packet,
    /// The packet's outcome.
    pub to: To,
}

/// The reason why a packet was dropped. Each stage counts each reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// A filter rejected it, and the filter's `reject` port is not connected.
    Rejected,
    /// It is longer than a packet buffer, or than the socket or interface allows.
    TooLong,
    /// All packet buffers were in use.
    NoBuffer,
    /// There is no room for another VLAN tag.
    NoHeadroom,
    /// Its link type differs from that of the output file or interface.
    LinkType,
    /// It is not a UDP packet, or is truncated, so there is no payload to send.
    NoPayload,
    /// The write or the send failed; the first failure ends the run.
    Failed,
    /// The kernel dropped it because the socket's buffer or ring was full.
    KernelDropped,
    /// It is truncated; truncated frames are not sent.
    Cut,
    /// The socket or the interface's queue was full.
    QueueFull,
    /// The kernel refused to send it: it is shorter than its headers, or a firewall forbids it.
    Refused,
    /// Its time is after 2106, beyond the range of a pcap file.
    TimeRange,
    /// The stage sent it to a nonexistent output: a bug in the stage, which ends the run.
    NoPort,
}

impl Reason {
    /// All reasons, in numeric order.
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

    /// Returns a short name for tables and JSON.
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

/// A remark by a stage about packets that it passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Note {
    /// A shared packet was copied before it was rewritten.
    Copied,
    /// The capture truncated the packet.
    Cut,
    /// Ethernet addresses were to be rewritten, but the packet has none.
    NoMac,
    /// A VLAN identifier was to be set or a tag to be popped, but the packet has no tag.
    NoTag,
    /// IP addresses were to be rewritten, but the packet has none of that version.
    NoAddress,
    /// Ports were to be rewritten, but the packet is neither TCP nor UDP, or is truncated before them.
    NoPort,
    /// Ports were to be rewritten, but the packet is a later fragment without ports.
    Fragment,
    /// The kernel had left its checksum to the network card, so the reader completed it.
    ChecksumCompleted,
    /// The kernel's ring was full. Packets dropped meanwhile are counted as [`Reason::KernelDropped`].
    RingFull,
    /// It was still in the ring when the reader ended. No other counter includes it.
    LeftBehind,
}

impl Note {
    /// All notes, in numeric order.
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

    /// Returns a short name for tables and JSON.
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
    /// Counts one note.
    #[inline]
    pub fn count(&mut self, note: Note) {
        self.0[note as usize] += 1;
    }

    /// Sets a count that is kept elsewhere.
    pub fn set(&mut self, note: Note, count: u64) {
        self.0[note as usize] = count;
    }

    /// Returns how often a note occurred.
    pub fn of(&self, note: Note) -> u64 {
        self.0[note as usize]
    }
}

/// The reason why a stage cannot start or continue, in one line that names the file, address or interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct StageError {
    /// The line.
    pub text: String,
    /// Whether an input is damaged or truncated. Packets before the damage are good, and the run continues without it. Other
    /// errors end the run.
    pub is_damage: bool,
}

impl StageError {
    /// Creates an error that ends the run.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_damage: false }
    }

    /// Creates an error for an input that ended early.
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

/// The link type of a payload without headers (LINKTYPE_USER0, reserved for private use).
pub const PAYLOAD: LinkType = LinkType(147);

/// The sink of a stage behind `dyn`, allocated once.
#[derive(Debug, Default)]
pub struct Outbox {
    pub(crate) items: Vec<Routed>,
    /// Packets that never reached a buffer, by reason.
    pub(crate) unread: [u64; Reason::ALL.len()],
}

impl Outbox {
    /// Creates an empty outbox with room for `capacity` packets.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { items: Vec::with_capacity(capacity), unread: [0; Reason::ALL.len()] }
    }

    /// Removes and returns its packets.
    pub fn drain(&mut self) -> impl Iterator<Item = Routed> {
        self.items.drain(..)
    }

    /// Counts packets that a reader found, or that the kernel counted, but that did not reach a buffer.
    pub fn drop_unread(&mut self, reason: Reason, count: u64) {
        self.unread[reason as usize] += count;
    }

    /// Returns the number of packets that did not reach a buffer for `reason`.
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

/// A stage in a graph: chosen by a file, run behind `dyn`.
pub trait PacketStage: Stage<Passing, Outbox> + Send {
    /// Returns the number of outputs. The stage sends packets to [`To::Port`] 0 and up, below this number. A writer has none.
    fn ports(&self) -> usize;

    /// Returns the stage's notes so far.
    fn notes(&self) -> Notes {
        Notes::default()
    }

    /// Returns, once, why the stage cannot continue. From then on it drops packets as [`Reason::Failed`].
    fn take_failure(&mut self) -> Option<StageError> {
        None
    }

    /// Finishes after the last packet: flushes buffers and gives files their final names.
    ///
    /// # Errors
    /// If something could not be finished.
    fn finish(&mut self) -> Result<(), StageError> {
        Ok(())
    }
}

/// The result of polling a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    /// There were packets.
    Some,
    /// There are none now, but there may be later.
    None,
    /// There will be no more.
    Ended,
}

/// A source of packets.
pub trait Reader: Send {
    /// Puts up to `most` available packets out to port 0. `now_ns` is their time of entry.
    ///
    /// # Errors
    /// Why there will be no more packets. Packets read before the error have been put out.
    fn poll(&mut self, most: usize, now_ns: u64, outbox: &mut Outbox) -> Result<Polled, StageError>;

    /// Reports remaining drop counts to the outbox after the last poll.
    fn finish(&mut self, _outbox: &mut Outbox) {}

    /// Returns whether there may be packets to poll. Cheap, for use by a waiting thread.
    fn is_ready(&mut self, _now_ns: u64) -> bool {
        true
    }

    /// Returns the reader's notes so far.
    fn notes(&self) -> Notes {
        Notes::default()
    }
}
