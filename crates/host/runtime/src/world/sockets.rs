//! Sockets of a world.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4};
use std::time::Duration;

use mio::{Interest, Token};
use tapeworks_capture::LinkType;
use tapeworks_capture::pool::Pool;
use tapeworks_nic::{FrameOptions, InterfaceError, Received, Sent, UdpOptions};

/// A socket that became ready. It is reported once, and may have more until an operation would block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The token that the socket was registered with.
    pub token: Token,
    /// It may have bytes, datagrams or connections, or the other side has closed.
    pub is_readable: bool,
    /// It may have room to write.
    pub is_writable: bool,
    /// The other side has closed, or the connection failed. Once received bytes are read, the next read reports it.
    pub is_closed: bool,
}

/// Waits for several sockets.
pub trait Poll: Debug + Send + Sized + 'static {
    /// Wakes a thread from the wait.
    type Waker: Wake;

    /// Creates a poll that reports up to `most` sockets per wait.
    ///
    /// # Errors
    /// The system's error.
    fn new(most: usize) -> io::Result<Self>;

    /// Waits until a socket is ready or the poll is woken, for at most `longest`, or indefinitely if `None`. May return early.
    /// Fills `ready` with the sockets that became ready.
    ///
    /// # Errors
    /// The system's error.
    fn wait(&mut self, ready: &mut Vec<Ready>, longest: Option<Duration>) -> io::Result<()>;

    /// Returns the waker of this poll, which is reported with `token`. A poll has at most one waker.
    ///
    /// # Errors
    /// The system's error.
    fn waker(&self, token: Token) -> io::Result<Self::Waker>;
}

/// Wakes a thread that polls sockets.
pub trait Wake: Debug + Send + Sync + 'static {
    /// Wakes the thread, or ends its next wait immediately.
    ///
    /// # Errors
    /// The system's error.
    fn wake(&self) -> io::Result<()>;
}

/// A socket that a poll can wait for.
pub trait Source<P> {
    /// Registers this socket with the poll, which reports it with `token`.
    ///
    /// # Errors
    /// The system's error.
    fn register(&mut self, poll: &P, token: Token, interest: Interest) -> io::Result<()>;

    /// Removes this socket from the poll.
    ///
    /// # Errors
    /// The system's error.
    fn deregister(&mut self, poll: &P) -> io::Result<()>;
}

/// Receives the datagrams of a line: see [`UdpReceiver`](tapeworks_nic::UdpReceiver).
pub trait DatagramReceiver: Debug + Send + Sized + 'static {
    /// Opens the socket. Payloads get the link type `link_type`.
    ///
    /// # Errors
    /// The system's error.
    fn open(options: UdpOptions, link_type: LinkType) -> io::Result<Self>;

    /// Returns the address it listens on.
    fn local_address(&self) -> SocketAddr;

    /// Returns the size of the kernel's receive buffer in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn receive_buffer_bytes(&self) -> io::Result<usize>;

    /// Sends a datagram from this socket.
    ///
    /// # Errors
    /// The system's error.
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()>;

    /// Returns the number of datagrams dropped so far because the buffer was full.
    fn query_drops(&mut self) -> u64;

    /// Receives up to `most` available datagrams. Returns how many there were.
    ///
    /// # Errors
    /// The system's error. Having no datagram is not an error.
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
    /// Opens a socket that sends to `to`. Multicast leaves by `interface` and travels up to `hops` hops.
    ///
    /// # Errors
    /// The system's error.
    fn open(to: SocketAddrV4, hops: u32, interface: std::net::Ipv4Addr) -> io::Result<Self>;

    /// Sends the packets and reports the result of each, in order.
    fn send<'b>(&mut self, packets: impl IntoIterator<Item = &'b [u8]>, each: impl FnMut(Sent));

    /// Describes an error of [`Sent::Failed`] in one line.
    fn describe(&self, error: io::Error) -> String;
}

/// A non-blocking socket that receives datagrams and answers them.
pub trait UdpServer: Debug + Send + Sized + 'static {
    /// Binds an address.
    ///
    /// # Errors
    /// The system's error.
    fn bind(address: SocketAddr) -> io::Result<Self>;

    /// Returns the address it listens on.
    ///
    /// # Errors
    /// The system's error.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Receives a datagram, truncated to the buffer's length.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::WouldBlock`] if there is none.
    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;

    /// Sends a datagram.
    ///
    /// # Errors
    /// The system's error.
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize>;
}

/// Accepts TCP connections without blocking.
pub trait Listener<S>: Debug + Send + Sized + 'static {
    /// Binds an address.
    ///
    /// # Errors
    /// The system's error.
    fn bind(address: SocketAddr) -> io::Result<Self>;

    /// Returns the address it listens on.
    ///
    /// # Errors
    /// The system's error.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Accepts a connection.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::WouldBlock`] if there is none.
    fn accept(&self) -> io::Result<(S, SocketAddr)>;
}

/// A non-blocking TCP connection.
pub trait Stream: Read + Write + Debug + Send + Sized + 'static {
    /// Starts connecting. A poll reports the socket as writable once it is connected or the attempt failed.
    ///
    /// # Errors
    /// The system's error.
    fn connect(address: SocketAddr) -> io::Result<Self>;

    /// Returns whether the connection is established.
    ///
    /// # Errors
    /// If the attempt failed.
    fn is_connected(&self) -> io::Result<bool>;

    /// Shuts down one or both directions.
    ///
    /// # Errors
    /// The system's error.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;

    /// Sets whether small writes are sent immediately.
    ///
    /// # Errors
    /// The system's error.
    fn set_nodelay(&self, is_on: bool) -> io::Result<()>;
}

/// A TCP connection of a client whose operations block up to a time limit.
pub trait BlockingStream: Read + Write + Debug + Send + Sized + 'static {
    /// Connects to `address`.
    ///
    /// # Errors
    /// The system's error, or a timeout after `longest`.
    fn connect(address: SocketAddr, longest: Duration) -> io::Result<Self>;

    /// Sets whether small writes are sent immediately.
    ///
    /// # Errors
    /// The system's error.
    fn set_nodelay(&self, is_on: bool) -> io::Result<()>;

    /// Sets the time limits of a read and of a write.
    ///
    /// # Errors
    /// If a limit is 0.
    fn set_time_limits(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()>;
}

/// Receives the frames of an interface: see [`FrameReceiver`](tapeworks_nic::FrameReceiver).
pub trait FrameSource: Debug + Send + Sized + 'static {
    /// Opens the interface.
    ///
    /// # Errors
    /// [`InterfaceError`].
    fn open(options: &FrameOptions) -> Result<Self, InterfaceError>;

    /// Receives up to `most` available frames. Returns how many there were.
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

    /// Returns whether frames wait in the ring.
    fn is_ready(&mut self) -> bool;

    /// Returns whether a poll never reports it, so that it must be checked repeatedly.
    fn is_polled(&self) -> bool {
        false
    }

    /// Returns the number of frames dropped so far.
    ///
    /// # Errors
    /// [`InterfaceError`].
    fn drops(&mut self) -> Result<u64, InterfaceError>;
}
