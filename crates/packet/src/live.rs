//! Live UDP sockets: many datagrams with one call of the kernel, straight into packet buffers.
//!
//! [`UdpReceiver`] listens at an address or joins a multicast group and takes up to [`MAX_BATCH`] datagrams with one
//! `recvmmsg`. A datagram has lost its headers; for IPv4 an Ethernet, an IPv4 and a UDP header can be put before it
//! again, so that filters and captures see a packet.
//!
//! Cost: a system call for a batch, some 1 us and 0.2 us for each datagram; the kernel copies the payload into the buffer. New headers
//! sum the payload once, for the checksum.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use crate::capture::LinkType;
use crate::net::build::FrameBuilder;
use crate::pool::{Blank, Description, Packet, Pool};

/// The most datagrams that one call takes.
pub const MAX_BATCH: usize = 64;

/// Bytes of the headers that are put before an IPv4 payload.
const HEADERS_BYTES: usize = 42;

/// The Ethernet address of packets whose own is not known: local, and nobody's.
const UNKNOWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// How a [`UdpReceiver`] listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpOptions {
    /// The address and port to listen at; a multicast group is joined.
    pub listen: SocketAddr,
    /// The address of the interface to join an IPv4 group on; the kernel's choice unless given.
    pub interface: Option<Ipv4Addr>,
    /// Bytes of the kernel's buffer; its default unless given. It may grant less.
    pub receive_buffer_bytes: Option<usize>,
    /// Puts Ethernet, IPv4 and UDP headers before each payload. IPv4 only.
    pub with_headers: bool,
}

/// What became of a datagram.
#[derive(Debug)]
pub enum Received {
    /// It is in a buffer.
    Packet(Packet),
    /// It was longer than a buffer, and is gone.
    TooLong,
}

/// A socket that datagrams come from. It never blocks.
#[derive(Debug)]
pub struct UdpReceiver {
    socket: UdpSocket,
    options: UdpOptions,
    payload_link: LinkType,
    blanks: Vec<Blank>,
    /// Of each datagram of the last call: its length, its sender, whether it was cut.
    arrived: Vec<(usize, Option<SocketAddr>, bool)>,
}

impl UdpReceiver {
    /// Opens the socket. Payloads without headers get the link type `payload_link`.
    ///
    /// # Errors
    /// What the operating system says; [`io::ErrorKind::InvalidInput`] for headers over IPv6.
    pub fn open(options: UdpOptions, payload_link: LinkType) -> io::Result<Self> {
        if options.with_headers && options.listen.is_ipv6() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "headers can be given to IPv4 only"));
        }
        let socket = Socket::new(Domain::for_address(options.listen), Type::DGRAM, Some(Protocol::UDP))?;
        let group = options.listen.ip();
        if group.is_multicast() {
            // Several programs may listen to one group.
            socket.set_reuse_address(true)?;
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind(&options.listen.into())?;
        match group {
            IpAddr::V4(group) if group.is_multicast() => {
                socket.join_multicast_v4(&group, &options.interface.unwrap_or(Ipv4Addr::UNSPECIFIED))?;
            }
            IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, 0)?,
            _ => {}
        }
        socket.set_nonblocking(true)?;
        let socket: UdpSocket = socket.into();
        // The port may have been the kernel's choice.
        let options = UdpOptions { listen: socket.local_addr()?, ..options };
        Ok(Self {
            socket,
            options,
            payload_link,
            blanks: Vec::with_capacity(MAX_BATCH),
            arrived: Vec::with_capacity(MAX_BATCH),
        })
    }

    /// Where it listens: with the port that the kernel chose, if it was asked to. New headers have it as destination.
    pub fn local_address(&self) -> SocketAddr {
        self.options.listen
    }

    /// Datagrams that the kernel dropped because its buffer was full (`SO_MEMINFO`), since the opening.
    pub fn kernel_drops(&self) -> u64 {
        /// Index in what the kernel tells (`linux/sock_diag.h`).
        const SK_MEMINFO_DROPS: usize = 8;
        let mut memory = [0u32; 9];
        let mut length = size_of_val(&memory) as libc::socklen_t;
        // SAFETY: the descriptor is open as long as `self`; the kernel writes at most `length` bytes into the array.
        let told = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                memory.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if told == 0 { u64::from(memory[SK_MEMINFO_DROPS]) } else { 0 }
    }

    /// Takes up to `most` datagrams that are there now and hands each to `each`. Returns how many there were. Without a
    /// free buffer none is taken: it stays with the kernel.
    ///
    /// # Errors
    /// What the operating system says; not that there is none.
    pub fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        mut each: impl FnMut(Received),
    ) -> io::Result<usize> {
        let wanted = most.min(MAX_BATCH);
        while self.blanks.len() < wanted {
            let Ok(blank) = pool.blank() else { break };
            self.blanks.push(blank);
        }
        if self.blanks.is_empty() {
            return Ok(0);
        }
        self.call(wanted)?;
        // Until the year 2554.
        let timestamp_ns =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let count = self.arrived.len();
        for ((length, sender, is_cut), mut blank) in self.arrived.drain(..).zip(self.blanks.drain(..count)) {
            if is_cut {
                each(Received::TooLong);
                continue;
            }
            let (length, link_type) = match (self.options.with_headers, self.options.listen, sender) {
                (true, SocketAddr::V4(to), Some(SocketAddr::V4(from))) => {
                    (put_headers(from, to, length, blank.room_mut()), LinkType::ETHERNET)
                }
                _ => (length, self.payload_link),
            };
            let description =
                Description { timestamp_ns, entered_ns, original_length: length as u32, link_type };
            each(Received::Packet(blank.fill(length, description)));
        }
        Ok(count)
    }

    /// One `recvmmsg` into the blanks.
    fn call(&mut self, wanted: usize) -> io::Result<()> {
        let before = if self.options.with_headers { HEADERS_BYTES } else { 0 };
        let count = self.blanks.len().min(wanted);
        let mut senders = [const { MaybeUninit::<libc::sockaddr_storage>::zeroed() }; MAX_BATCH];
        let mut rooms = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_BATCH];
        // SAFETY: zero is a valid value of every field: no address, no buffer, no control message.
        let mut messages: [libc::mmsghdr; MAX_BATCH] = unsafe { std::mem::zeroed() };
        for index in 0..count {
            let room = self.blanks[index].room_mut();
            let room = room.get_mut(before..).unwrap_or_default();
            rooms[index] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let header = &mut messages[index].msg_hdr;
            header.msg_name = senders[index].as_mut_ptr().cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut rooms[index];
            header.msg_iovlen = 1;
        }
        // SAFETY: each of the first `count` headers points to a sender and to one room, which live until the call is over
        // and are used by nobody else; the kernel writes no more than the lengths that they state.
        let got = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let Ok(got) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            };
        };
        for (message, sender) in messages.iter().zip(senders).take(got) {
            let mut storage = SockAddrStorage::zeroed();
            // SAFETY: the storage has the size of a `sockaddr_storage`, of which it is a wrapper, and `sender` is one
            // that is initialised: zeroed, and written by the kernel since.
            unsafe { *storage.view_as::<libc::sockaddr_storage>() = sender.assume_init() };
            // SAFETY: the kernel wrote an address of this length into the storage.
            let address = unsafe { SockAddr::new(storage, message.msg_hdr.msg_namelen) }.as_socket();
            let is_cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            self.arrived.push((message.msg_len as usize, address, is_cut));
        }
        Ok(())
    }
}

/// Puts headers before a payload of `length` bytes that lies behind their room; returns the packet's length.
fn put_headers(from: SocketAddrV4, to: SocketAddrV4, length: usize, room: &mut [u8]) -> usize {
    let mut builder = if to.ip().is_multicast() {
        FrameBuilder::to_group(UNKNOWN_MAC, from, to)
    } else {
        FrameBuilder::new(UNKNOWN_MAC, UNKNOWN_MAC, from, to)
    };
    // A datagram that has come fits IPv4, and was received behind the headers' room.
    builder.udp_in_place(length, room).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::net;

    const PAYLOAD: LinkType = LinkType(147);

    fn options(listen: &str, with_headers: bool) -> UdpOptions {
        UdpOptions {
            listen: listen.parse().unwrap(),
            interface: None,
            receive_buffer_bytes: None,
            with_headers,
        }
    }

    /// Receives until there are `wanted`, or some seconds are over.
    fn receive(receiver: &mut UdpReceiver, pool: &mut Pool, wanted: usize) -> Vec<Received> {
        let began = Instant::now();
        let mut all = Vec::new();
        while all.len() < wanted && began.elapsed() < Duration::from_secs(20) {
            receiver.receive(pool, 8, 7, |received| all.push(received)).unwrap();
        }
        all
    }

    #[test]
    fn datagrams_come_as_packets_with_sound_headers() {
        let mut receiver = UdpReceiver::open(options("127.0.0.1:0", true), PAYLOAD).unwrap();
        let to = receiver.local_address();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut pool = Pool::new(64, 256);
        for number in 0..20u8 {
            sender.send_to(&vec![number; usize::from(number)], to).unwrap();
        }
        let all = receive(&mut receiver, &mut pool, 20);
        assert_eq!(all.len(), 20);
        for (number, received) in all.iter().enumerate() {
            let Received::Packet(packet) = received else { panic!("{received:?}") };
            let datagram = net::parse(LinkType::ETHERNET, packet.bytes()).unwrap();
            assert_eq!(datagram.payload, vec![number as u8; number]);
            assert_eq!((datagram.source, datagram.destination), (sender.local_addr().unwrap(), to));
            assert_eq!(packet.description().entered_ns, 7);
        }
        assert_eq!(receiver.kernel_drops(), 0);
    }

    #[test]
    fn a_datagram_longer_than_a_buffer_is_told_and_payloads_may_stay_bare() {
        let mut receiver = UdpReceiver::open(options("[::1]:0", false), PAYLOAD)
            .or_else(|_| UdpReceiver::open(options("127.0.0.1:0", false), PAYLOAD))
            .unwrap();
        let to = receiver.local_address();
        let sender = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).unwrap();
        let mut pool = Pool::new(4, 100);
        sender.send_to(&[1; 101], to).unwrap();
        sender.send_to(&[2; 100], to).unwrap();
        let all = receive(&mut receiver, &mut pool, 2);
        assert!(matches!(all[0], Received::TooLong), "{all:?}");
        let Received::Packet(packet) = &all[1] else { panic!("{all:?}") };
        assert_eq!((packet.bytes(), packet.description().link_type), (&[2; 100][..], PAYLOAD));
    }

    #[test]
    fn what_the_kernel_could_not_keep_is_counted() {
        let mut few = options("127.0.0.1:0", true);
        few.receive_buffer_bytes = Some(1);
        let receiver = UdpReceiver::open(few, PAYLOAD).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..200 {
            sender.send_to(&[0; 1000], receiver.local_address()).unwrap();
        }
        assert!(receiver.kernel_drops() > 0);
    }

    #[test]
    fn what_cannot_be_listened_to_is_an_error() {
        assert!(UdpReceiver::open(options("[::1]:0", true), PAYLOAD).is_err());
        assert!(UdpReceiver::open(options("192.0.2.1:0", true), PAYLOAD).is_err(), "not an address of ours");
    }
}
