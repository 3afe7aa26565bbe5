//! What the hosts (plant, outputs, venues) ask of the system: clocks, threads, channels, sockets, and by [`Disk`] files.
//!
//! A [`World`] is a type parameter with static functions, so a call costs what the system's own costs. Programs use [`System`]. The
//! simulator has another one, in which threads take turns on one thread of the system, time passes when all of them wait, and
//! the network and the disk fail as a seed says: so the code that ships is the code that is simulated.
//!
//! Times of a monotonic clock are [`Instant`]s in every world: subtract them, and compare them only with others of the same world.

mod sockets;
mod system;
mod threads;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use tapeworks_disk::Disk;
pub use tapeworks_disk::System;
use tapeworks_ring::cpu::CpuError;
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_time::Nanos;

pub use sockets::{
    BlockingStream, DatagramReceiver, DatagramSender, FrameSource, Listener, Poll, Ready, Source, Stream,
    UdpServer, Wake,
};
pub use system::SystemPoll;
pub use threads::{Receive, SendTo, ThreadHandle, TrySend, Unpark};

/// Clocks, threads, channels, sockets and files.
pub trait World: Disk {
    /// The time of day: it may be set, forth and back.
    fn time_of_day() -> Nanos;

    /// The time of a clock that cannot be set.
    fn instant() -> Instant;

    /// The time since `earlier`, by the clock that cannot be set.
    #[inline]
    fn since(earlier: Instant) -> Duration {
        Self::instant().saturating_duration_since(earlier)
    }

    /// A handle on a thread, for waking it.
    type Thread: Unpark;

    /// A thread that returns a `T`.
    type Handle<T: Send + 'static>: ThreadHandle<T>;

    /// Starts a thread.
    ///
    /// # Errors
    /// When there is no thread.
    fn spawn<T: Send + 'static>(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self::Handle<T>>;

    /// The calling thread.
    fn current() -> Self::Thread;

    /// Sleeps until the thread is unparked, `longest` at most. It may end earlier.
    fn park(longest: Duration);

    /// Sleeps.
    fn sleep(time: Duration);

    /// Lets other threads run.
    fn yield_now();

    /// A moment's pause between two looks at something that another core changes.
    fn pause();

    /// Waits as `strategy` does.
    fn wait_until(strategy: &impl WaitStrategy, is_ready: impl FnMut() -> bool);

    /// Keeps the calling thread on a core.
    ///
    /// # Errors
    /// [`CpuError`].
    fn pin(core: usize) -> Result<(), CpuError>;

    /// Lowers the priority of the calling thread.
    ///
    /// # Errors
    /// [`CpuError`].
    fn step_back() -> Result<(), CpuError>;

    /// Fills a buffer with random bytes that nobody can guess.
    ///
    /// # Errors
    /// When the system has none.
    fn random(bytes: &mut [u8]) -> io::Result<()>;

    /// The sending end of a channel with any number of items.
    type Sender<T: Send + 'static>: SendTo<T>;

    /// The sending end of a channel with a bound.
    type SyncSender<T: Send + 'static>: TrySend<T>;

    /// The receiving end of a channel.
    type Receiver<T: Send + 'static>: Receive<T>;

    /// A channel with any number of items.
    fn channel<T: Send + 'static>() -> (Self::Sender<T>, Self::Receiver<T>);

    /// A channel with at most `bound` items.
    fn sync_channel<T: Send + 'static>(bound: usize) -> (Self::SyncSender<T>, Self::Receiver<T>);

    /// Waits for several sockets at once.
    type Poll: Poll<Waker = Self::Waker>;

    /// Wakes a thread from that wait.
    type Waker: Wake;

    /// Receives the datagrams of a line.
    type DatagramReceiver: DatagramReceiver + Source<Self::Poll>;

    /// Sends datagrams to one address.
    type DatagramSender: DatagramSender;

    /// Answers datagrams.
    type UdpServer: UdpServer + Source<Self::Poll>;

    /// Accepts TCP connections.
    type Listener: Listener<Self::Stream> + Source<Self::Poll>;

    /// A TCP connection that never blocks.
    type Stream: Stream + Source<Self::Poll>;

    /// A TCP connection of a client that waits.
    type BlockingStream: BlockingStream;

    /// Receives the frames of a network interface.
    type FrameSource: FrameSource + Source<Self::Poll>;

    /// Keeps a multicast group joined until it is dropped.
    type Membership: std::fmt::Debug + Send;

    /// Joins a group without receiving its datagrams; does nothing if the address is no group.
    ///
    /// # Errors
    /// What the system says.
    fn join_group(group: IpAddr, interface: Option<Ipv4Addr>) -> io::Result<Self::Membership>;
}
