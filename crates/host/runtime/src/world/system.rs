//! The operating system as a world.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::mpsc::{
    self, Receiver, RecvError, RecvTimeoutError, SendError, Sender, SyncSender, TryRecvError, TrySendError,
};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::event::Source as _;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use tapeworks_capture::LinkType;
use tapeworks_capture::pool::Pool;
use tapeworks_disk::System;
use tapeworks_nic::{FrameOptions, FrameReceiver, InterfaceError, Received, Sent, UdpOptions, UdpReceiver};
use tapeworks_ring::cpu::{self, CpuError};
use tapeworks_ring::wait::WaitStrategy;
use tapeworks_time::Nanos;

use super::{
    BlockingStream, DatagramReceiver, DatagramSender, FrameSource, Listener, Poll, Ready, Receive, SendTo,
    Source, Stream, ThreadHandle, TrySend, UdpServer, Unpark, Wake, World,
};

impl World for System {
    #[inline]
    fn time_of_day() -> Nanos {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    #[inline]
    fn instant() -> Instant {
        Instant::now()
    }

    type Thread = Thread;
    type Handle<T: Send + 'static> = JoinHandle<T>;

    fn spawn<T: Send + 'static>(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work)
    }

    fn current() -> Thread {
        std::thread::current()
    }

    fn park(longest: Duration) {
        std::thread::park_timeout(longest);
    }

    fn sleep(time: Duration) {
        std::thread::sleep(time);
    }

    fn yield_now() {
        std::thread::yield_now();
    }

    #[inline]
    fn pause() {
        std::hint::spin_loop();
    }

    #[inline]
    fn wait_until(strategy: &impl WaitStrategy, is_ready: impl FnMut() -> bool) {
        strategy.wait_until(is_ready);
    }

    fn pin(core: usize) -> Result<(), CpuError> {
        cpu::pin(core)
    }

    fn step_back() -> Result<(), CpuError> {
        cpu::step_back()
    }

    fn random(bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::other)
    }

    type Sender<T: Send + 'static> = Sender<T>;
    type SyncSender<T: Send + 'static> = SyncSender<T>;
    type Receiver<T: Send + 'static> = Receiver<T>;

    fn channel<T: Send + 'static>() -> (Sender<T>, Receiver<T>) {
        mpsc::channel()
    }

    fn sync_channel<T: Send + 'static>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
        mpsc::sync_channel(bound)
    }

    type Poll = SystemPoll;
    type Waker = mio::Waker;
    type DatagramReceiver = UdpReceiver;
    type DatagramSender = tapeworks_nic::Sender;
    type UdpServer = mio::net::UdpSocket;
    type Listener = mio::net::TcpListener;
    type Stream = mio::net::TcpStream;
    type BlockingStream = TcpStream;
    type FrameSource = FrameReceiver;
    type Membership = UdpSocket;

    fn join_group(group: IpAddr, interface: Option<Ipv4Addr>) -> io::Result<UdpSocket> {
        let any: IpAddr = if group.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
        let socket = UdpSocket::bind((any, 0))?;
        match group {
            IpAddr::V4(group) if group.is_multicast() => {
                socket.join_multicast_v4(&group, &interface.unwrap_or(Ipv4Addr::UNSPECIFIED))?;
            }
            IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, 0)?,
            _ => {}
        }
        Ok(socket)
    }
}

impl Unpark for Thread {
    fn unpark(&self) {
        Self::unpark(self);
    }
}

impl<T: Send + 'static> ThreadHandle<T> for JoinHandle<T> {
    fn is_finished(&self) -> bool {
        Self::is_finished(self)
    }

    fn unpark(&self) {
        self.thread().unpark();
    }

    fn join(self) -> std::thread::Result<T> {
        Self::join(self)
    }
}

impl<T: Send + 'static> SendTo<T> for Sender<T> {
    fn send(&self, item: T) -> Result<(), SendError<T>> {
        Self::send(self, item)
    }
}

impl<T: Send + 'static> TrySend<T> for SyncSender<T> {
    fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        Self::try_send(self, item)
    }
}

impl<T: Send + 'static> Receive<T> for Receiver<T> {
    fn try_recv(&self) -> Result<T, TryRecvError> {
        Self::try_recv(self)
    }

    fn recv(&self) -> Result<T, RecvError> {
        Self::recv(self)
    }

    fn recv_timeout(&self, longest: Duration) -> Result<T, RecvTimeoutError> {
        Self::recv_timeout(self, longest)
    }
}

/// A `mio` poll and the buffer for its events.
#[derive(Debug)]
pub struct SystemPoll {
    poll: mio::Poll,
    events: mio::Events,
}

impl Poll for SystemPoll {
    type Waker = mio::Waker;

    fn new(most: usize) -> io::Result<Self> {
        Ok(Self { poll: mio::Poll::new()?, events: mio::Events::with_capacity(most) })
    }

    fn wait(&mut self, ready: &mut Vec<Ready>, longest: Option<Duration>) -> io::Result<()> {
        ready.clear();
        match self.poll.poll(&mut self.events, longest) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        ready.extend(self.events.iter().map(|event| Ready {
            token: event.token(),
            is_readable: event.is_readable() || event.is_read_closed(),
            is_writable: event.is_writable(),
            is_closed: event.is_read_closed() || event.is_error(),
        }));
        Ok(())
    }

    fn waker(&self, token: Token) -> io::Result<mio::Waker> {
        mio::Waker::new(self.poll.registry(), token)
    }
}

impl Wake for mio::Waker {
    fn wake(&self) -> io::Result<()> {
        Self::wake(self)
    }
}

/// Implements `Source` for sockets that mio supports.
macro_rules! sources {
    ($($socket:ty),*) => {$(
        impl Source<SystemPoll> for $socket {
            fn register(&mut self, poll: &SystemPoll, token: Token, interest: Interest) -> io::Result<()> {
                poll.poll.registry().register(self, token, interest)
            }

            fn deregister(&mut self, poll: &SystemPoll) -> io::Result<()> {
                poll.poll.registry().deregister(self)
            }
        }
    )*};
}

sources!(mio::net::UdpSocket, mio::net::TcpListener, mio::net::TcpStream);

/// Implements `Source` for sockets with a file descriptor.
macro_rules! descriptors {
    ($($socket:ty),*) => {$(
        impl Source<SystemPoll> for $socket {
            fn register(&mut self, poll: &SystemPoll, token: Token, interest: Interest) -> io::Result<()> {
                SourceFd(&self.as_fd().as_raw_fd()).register(poll.poll.registry(), token, interest)
            }

            fn deregister(&mut self, poll: &SystemPoll) -> io::Result<()> {
                SourceFd(&self.as_fd().as_raw_fd()).deregister(poll.poll.registry())
            }
        }
    )*};
}

descriptors!(UdpReceiver, FrameReceiver);

impl DatagramReceiver for UdpReceiver {
    fn open(options: UdpOptions, link_type: LinkType) -> io::Result<Self> {
        Self::open(options, link_type)
    }

    fn local_address(&self) -> SocketAddr {
        Self::local_address(self)
    }

    fn receive_buffer_bytes(&self) -> io::Result<usize> {
        Self::receive_buffer_bytes(self)
    }

    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        Self::send_to(self, bytes, to)
    }

    fn query_drops(&mut self) -> u64 {
        Self::query_drops(self)
    }

    #[inline]
    fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        each: impl FnMut(Received),
    ) -> io::Result<usize> {
        Self::receive(self, pool, most, entered_ns, each)
    }
}

impl DatagramSender for tapeworks_nic::Sender {
    fn open(to: SocketAddrV4, hops: u32, interface: Ipv4Addr) -> io::Result<Self> {
        Self::udp_out_of(to, hops, interface)
    }

    fn send<'b>(&mut self, packets: impl IntoIterator<Item = &'b [u8]>, each: impl FnMut(Sent)) {
        Self::send(self, packets, each);
    }

    fn describe(&self, error: io::Error) -> String {
        Self::describe(self, error)
    }
}

impl UdpServer for mio::net::UdpSocket {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind(address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }

    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        Self::recv_from(self, buffer)
    }

    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        Self::send_to(self, bytes, to)
    }
}

impl Listener<mio::net::TcpStream> for mio::net::TcpListener {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind(address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }

    fn accept(&self) -> io::Result<(mio::net::TcpStream, SocketAddr)> {
        Self::accept(self)
    }
}

impl Stream for mio::net::TcpStream {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::connect(address)
    }

    fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.take_error()? {
            return Err(error);
        }
        match self.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        Self::shutdown(self, how)
    }

    fn set_nodelay(&self, is_on: bool) -> io::Result<()> {
        Self::set_nodelay(self, is_on)
    }
}

impl BlockingStream for TcpStream {
    fn connect(address: SocketAddr, longest: Duration) -> io::Result<Self> {
        Self::connect_timeout(&address, longest)
    }

    fn set_nodelay(&self, is_on: bool) -> io::Result<()> {
        Self::set_nodelay(self, is_on)
    }

    fn set_time_limits(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(read)?;
        self.set_write_timeout(write)
    }
}

impl FrameSource for FrameReceiver {
    fn open(options: &FrameOptions) -> Result<Self, InterfaceError> {
        Self::open(options)
    }

    fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        each: impl FnMut(Received),
    ) -> Result<usize, InterfaceError> {
        Self::receive(self, pool, most, entered_ns, each)
    }

    fn is_ready(&mut self) -> bool {
        Self::is_ready(self)
    }

    fn is_polled(&self) -> bool {
        Self::is_polled(self)
    }

    fn drops(&mut self) -> Result<u64, InterfaceError> {
        Ok(self.counts()?.drops())
    }
}
