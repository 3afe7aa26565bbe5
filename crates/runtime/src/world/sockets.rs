//! Sockets of a world.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4};
use std::time::Duration;

use mio::{Interest, Token};
use tapeworks_capture::LinkType;
use tapeworks_capture::pool::Pool;
use tapeworks_nic::{FrameOptions, InterfaceError, Received, Sent, UdpOptions};

/// A socket that became ready. It is reported once: until an operation on it would block it may have more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The number that it was registered with.
    pub token: Token,
    /// It may have bytes, datagrams or connections, or the other side has closed.
    pub is_readable: bool,
    /// It may have room.
    pub is_writable: bool,
    /// The other side has closed, or the connection failed: the next read after what has come says so.
    pub is_closed: bool,
}

/// Waits for several sockets at once.
pub trait Poll: Debug + Send + Sized + 'static {
    /// Wakes a thread from the wait.
    type Waker: Wake;

    /// A poll that reports up to `most` sockets at once.
    ///
    /// # Errors
    /// What the system says.
    fn new(most: usize) -> io::Result<Self>;

    /// Waits until a socket is ready or the poll is woken, `longest` at most; without `longest` for ever. It may end earlier. Fills
    /// `ready` with the sockets that became ready.
    ///
    /// # Errors
    /// What the system says.
    fn wait(&mut self, ready: &mut Vec<Ready>, longest: Option<Duration>) -> io::Result<()>;

    /// What wakes this poll; it is reported with `token`. There can be one.
    ///
    /// # Errors
    /// What the system says.
    fn waker(&self, token: Token) -> io::Result<Self::Waker>;
}

/// Wakes a thread that polls sockets.
pub trait Wake: Debug + Send + Sync + 'static {
    /// Wakes it, or ends its next wait at once.
    ///
    /// # Errors
    /// What the system says.
    fn wake(&self) -> io::Result<()>;
}

/// A socket that a poll can wait for.
pub trait Source<P> {
    /// The poll reports this socket with `token`.
    ///
    /// # Errors
    /// What the system says.
    fn register(&mut self, poll: &P, token: Token, interest: Interest) -> io::Result<()>;

    /// The poll reports it no more.
    ///
    /// # Errors
    /// What the system says.
    fn deregister(&mut self, poll: &P) -> io::Result<()>;
}

/// Receives the datagrams of a line: see [`UdpReceiver`](tapeworks_nic::UdpReceiver).
pub trait DatagramReceiver: Debug + Send + Sized + 'static {
    /// Opens the socket. Payloads get the link type `link_type`.
    ///
    /// # Errors
    /// What the system says.
    fn open(options: UdpOptions, link_type: LinkType) -> io::Result<Self>;

    /// Where it listens.
    fn local_address(&self) -> SocketAddr;

    /// The size of the kernel's buffer in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn receive_buffer_bytes(&self) -> io::Result<usize>;

    /// Sends a datagram from this socket.
    ///
    /// # Errors
    /// What the system says.
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()>;

    /// Datagrams that were dropped up to now because the buffer was full.
    fn query_drops(&mut self) -> u64;

    /// Takes up to `most` datagrams that are there now. Returns how many there were.
    ///
    /// # Errors
    /// What the system says; not that there is none.
    fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        each: impl FnMut(Received),
    ) -> io::Result<usize>;
}

/// Sends datagrams to one address: see [`Sender`](tapeworks_nic::Sender).
pub trait DatagramSender: Debug + Send + Sized + 'static {
    /// Sends to `to`; a group is sent to out of `interface`, `hops` far.
    ///
    /// # Errors
    /// What the system says.
    fn open(to: SocketAddrV4, hops: u32, interface: std::net::Ipv4Addr) -> io::Result<Self>;

    /// Sends each packet and reports the result of each, in their order.
    fn send<'b>(&mut self, packets: impl IntoIterator<Item = &'b [u8]>, each: impl FnMut(Sent));

    /// An error of [`Sent::Failed`] in one line.
    fn describe(&self, error: io::Error) -> String;
}

/// Answers datagrams; never blocks.
pub trait UdpServer: Debug + Send + Sized + 'static {
    /// Binds an address.
    ///
    /// # Errors
    /// What the system says.
    fn bind(address: SocketAddr) -> io::Result<Self>;

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Takes a datagram. One that is longer than the buffer is cut.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::WouldBlock`] when there is none.
    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;

    /// Sends a datagram.
    ///
    /// # Errors
    /// What the system says.
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize>;
}

/// Accepts TCP connections; never blocks.
pub trait Listener<S>: Debug + Send + Sized + 'static {
    /// Binds an address.
    ///
    /// # Errors
    /// What the system says.
    fn bind(address: SocketAddr) -> io::Result<Self>;

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// A new connection.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::WouldBlock`] when there is none.
    fn accept(&self) -> io::Result<(S, SocketAddr)>;
}

/// A TCP connection that never blocks.
pub trait Stream: Read + Write + Debug + Send + Sized + 'static {
    /// Begins to connect. A poll reports the socket as writable when it is connected, or when that failed.
    ///
    /// # Errors
    /// What the system says.
    fn connect(address: SocketAddr) -> io::Result<Self>;

    /// Whether the connection is made by now.
    ///
    /// # Errors
    /// It could not be made.
    fn is_connected(&self) -> io::Result<bool>;

    /// Shuts one side or both.
    ///
    /// # Errors
    /// What the system says.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;

    /// Sends small pieces at once.
    ///
    /// # Errors
    /// What the system says.
    fn set_nodelay(&self, is_on: bool) -> io::Result<()>;
}

/// A TCP connection of a client that waits for each operation, up to its time limit.
pub trait BlockingStream: Read + Write + Debug + Send + Sized + 'static {
    /// Connects.
    ///
    /// # Errors
    /// What the system says; that `longest` is over.
    fn connect(address: SocketAddr, longest: Duration) -> io::Result<Self>;

    /// Sends small pieces at once.
    ///
    /// # Errors
    /// What the system says.
    fn set_nodelay(&self, is_on: bool) -> io::Result<()>;

    /// The time limits of a read and of a write.
    ///
    /// # Errors
    /// A time of 0.
    fn set_time_limits(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()>;
}

/// Receives the frames of an interface: see [`FrameReceiver`](tapeworks_nic::FrameReceiver).
pub trait FrameSource: Debug + Send + Sized + 'static {
    /// Opens the interface.
    ///
    /// # Errors
    /// [`InterfaceError`].
    fn open(options: &FrameOptions) -> Result<Self, InterfaceError>;

    /// Takes up to `most` frames that are there now. Returns how many there were.
    ///
    /// # Errors
    /// [`InterfaceError`].
    fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        each: impl FnMut(Received),
    ) -> Result<usize, InterfaceError>;

    /// Whether frames wait in the ring.
    fn is_ready(&mut self) -> bool;

    /// Whether a poll never reports it: it must be looked at again and again.
    fn is_polled(&self) -> bool {
        false
    }

    /// Frames that were dropped up to now.
    ///
    /// # Errors
    /// [`InterfaceError`].
    fn drops(&mut self) -> Result<u64, InterfaceError>;
}
