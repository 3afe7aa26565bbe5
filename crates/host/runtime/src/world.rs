//! System services for the hosts (plant, outputs, venues).
//!
//! A [`World`] provides clocks, threads, channels, sockets, and files through [`Disk`]. It is a type parameter with static
//! functions, so a call costs no more than the system's own. Programs use [`System`]. In the simulator's world, threads take
//! turns on one system thread, time passes when all of them wait, and a seed determines the failures of network and disk. The
//! code that ships is therefore the code that is simulated.
//!
//! Times of a monotonic clock are [`Instant`]s in every world. Subtract or compare only those of the same world.

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
    /// Returns the time of day, which may be set forward or back.
    fn time_of_day() -> Nanos;

    /// Returns the time of a clock that cannot be set.
    fn instant() -> Instant;

    /// Returns the time since `earlier` by the clock that cannot be set.
    #[inline]
    fn since(earlier: Instant) -> Duration {
        Self::instant().saturating_duration_since(earlier)
    }

    /// A handle for waking a thread.
    type Thread: Unpark;

    /// A thread that returns a `T`.
    type Handle<T: Send + 'static>: ThreadHandle<T>;

    /// Starts a thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    fn spawn<T: Send + 'static>(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self::Handle<T>>;

    /// Returns a handle to the calling thread.
    fn current() -> Self::Thread;

    /// Sleeps until the thread is unparked, for at most `longest`. May return early.
    fn park(longest: Duration);

    /// Sleeps for `time`.
    fn sleep(time: Duration);

    /// Lets other threads run.
    fn yield_now();

    /// Pauses briefly between two looks at something that another core changes.
    fn pause();

    /// Waits as `strategy` does.
    fn wait_until(strategy: &impl WaitStrategy, is_ready: impl FnMut() -> bool);

    /// Pins the calling thread to a core.
    ///
    /// # Errors
    /// [`CpuError`].
    fn pin(core: usize) -> Result<(), CpuError>;

    /// Lowers the priority of the calling thread.
    ///
    /// # Errors
    /// [`CpuError`].
    fn step_back() -> Result<(), CpuError>;

    /// Fills a buffer with unpredictable random bytes.
    ///
    /// # Errors
    /// If the system has none.
    fn random(bytes: &mut [u8]) -> io::Result<()>;

    /// The sending end of an unbounded channel.
    type Sender<T: Send + 'static>: SendTo<T>;

    /// The sending end of a bounded channel.
    type SyncSender<T: Send + 'static>: TrySend<T>;

    /// The receiving end of a channel.
    type Receiver<T: Send + 'static>: Receive<T>;

    /// Creates an unbounded channel.
    fn channel<T: Send + 'static>() -> (Self::Sender<T>, Self::Receiver<T>);

    /// Creates a channel of at most `bound` items.
    fn sync_channel<T: Send + 'static>(bound: usize) -> (Self::SyncSender<T>, Self::Receiver<T>);

    /// Waits for several sockets.
    type Poll: Poll<Waker = Self::Waker>;

    /// Wakes a thread that waits for sockets.
    type Waker: Wake;

    /// Receives the datagrams of a line.
    type DatagramReceiver: DatagramReceiver + Source<Self::Poll>;

    /// Sends datagrams to one address.
    type DatagramSender: DatagramSender;

    /// Receives datagrams and answers them.
    type UdpServer: UdpServer + Source<Self::Poll>;

    /// Accepts TCP connections.
    type Listener: Listener<Self::Stream> + Source<Self::Poll>;

    /// A non-blocking TCP connection.
    type Stream: Stream + Source<Self::Poll>;

    /// A blocking TCP connection of a client.
    type BlockingStream: BlockingStream;

    /// Receives the frames of a network interface.
    type FrameSource: FrameSource + Source<Self::Poll>;

    /// Keeps a multicast group joined until it is dropped.
    type Membership: std::fmt::Debug + Send;

    /// Joins a group without receiving its datagrams. Does nothing if the address is not a multicast group.
    ///
    /// # Errors
    /// The system's error.
    fn join_group(group: IpAddr, interface: Option<Ipv4Addr>) -> io::Result<Self::Membership>;
}
