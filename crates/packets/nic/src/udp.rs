//! UDP sockets: many datagrams per system call, straight into packet buffers.
//!
//! [`UdpReceiver`] listens on an address or joins a multicast group and takes up to [`MAX_BATCH`] datagrams with one
//! `recvmmsg`. Each comes with the time at which the kernel received it (`SO_TIMESTAMPNS`) and the number of datagrams that the
//! kernel has dropped so far because the socket's buffer was full (`SO_RXQ_OVFL`). A datagram arrives without its headers;
//! Ethernet, IP and UDP headers can be put back before it so that filters and captures see a packet.
//!
//! Cost: one system call per batch, about 1 us plus 0.2 us per datagram; the kernel copies the payload into the buffer.
//! Adding headers sums the payload once, for the checksum.
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, Socket, Type};
use tapeworks_capture::LinkType;
use tapeworks_capture::net::build::{FrameBuilder, UDP_V6_HEADERS_BYTES, udp_v6_in_place};
use tapeworks_capture::pool::{Blank, Description, Pool};

use super::messages::Incoming;
use super::{MAX_BATCH, Received, options};

/// Bytes of headers put before an IPv4 payload.
const UDP_V4_HEADERS_BYTES: usize = 42;

/// Ethernet address for packets whose address is unknown: a locally administered one that no card has.
const UNKNOWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// Options of a [`UdpReceiver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpOptions {
    /// The address and port to listen on; a multicast group is joined.
    pub listen: SocketAddr,
    /// The address of the interface on which to join an IPv4 group; the kernel chooses if it is not given.
    pub interface: Option<Ipv4Addr>,
    /// Size of the kernel's buffer in bytes; its default if not given. The kernel may grant less.
    pub receive_buffer_bytes: Option<usize>,
    /// Adds Ethernet, IP and UDP headers before each payload.
    pub with_headers: bool,
    /// Time in us that the kernel polls the network card while the socket is empty (`SO_BUSY_POLL`); 0 disables polling.
    /// Ignored if the card or the kernel does not support it.
    pub busy_poll_us: u32,
}

/// A socket that receives datagrams. It never blocks.
#[derive(Debug)]
pub struct UdpReceiver {
    socket: UdpSocket,
    options: UdpOptions,
    payload_link: LinkType,
    blanks: Vec<Blank>,
    incoming: Incoming,
    drops: Drops,
}

/// Counts the datagrams that the kernel has dropped since the socket was opened.
#[derive(Debug, Clone, Copy, Default)]
struct Drops {
    /// The kernel's counter, which wraps.
    counter: u32,
    all: u64,
}

impl Drops {
    /// Accounts for the kernel's counter being at `counter`, now or a while ago.
    fn count(&mut self, counter: u32) {
        let more = counter.wrapping_sub(self.counter);
        if more < 1 << 31 {
            self.all += u64::from(more);
            self.counter = counter;
        }
    }
}

impl UdpReceiver {
    /// Opens the socket. Payloads without headers get the link type `payload_link`.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn open(options: UdpOptions, payload_link: LinkType) -> io::Result<Self> {
        let socket = open_socket(&options)?;
        socket.set_nonblocking(true)?;
        let on: libc::c_int = 1;
        options::set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
        options::set(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &on)?;
        // The kernel may have chosen the port.
        let options = UdpOptions { listen: socket.local_addr()?, ..options };
        Ok(Self {
            socket,
            options,
            payload_link,
            blanks: Vec::with_capacity(MAX_BATCH),
            incoming: Incoming::new(),
            drops: Drops::default(),
        })
    }

    /// Returns the address it listens on, including a port that the kernel chose. Added headers have it as their destination.
    pub fn local_address(&self) -> SocketAddr {
        self.options.listen
    }

    /// Returns the size of the kernel's buffer in bytes. It may be less than requested, and it includes the kernel's overhead: it
    /// is twice the granted size.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn receive_buffer_bytes(&self) -> io::Result<usize> {
        socket2::SockRef::from(&self.socket).recv_buffer_size()
    }

    /// Sends a datagram from this socket, so that the answer arrives here.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.socket.send_to(bytes, to).map(|_| ())
    }

    /// Returns how many datagrams the kernel dropped because its buffer was full, as of the last datagram received: each carries the counter.
    pub fn drops(&self) -> u64 {
        self.drops.all
    }

    /// Like [`UdpReceiver::drops`], but current: it queries the kernel (`SO_MEMINFO`).
    pub fn query_drops(&mut self) -> u64 {
        /// Index in the array that the kernel returns (`linux/sock_diag.h`).
        const SK_MEMINFO_DROPS: usize = 8;
        // SAFETY: an array of integers.
        let read = unsafe { options::get(&self.socket, libc::SOL_SOCKET, libc::SO_MEMINFO, [0u32; 9]) };
        if let Ok(memory) = read {
            self.drops.count(memory[SK_MEMINFO_DROPS]);
        }
        self.drops.all
    }

    /// Takes up to `most` available datagrams, passes each to `each`, and returns their number. Without a free buffer it takes
    /// none: the datagrams stay in the kernel.
    ///
    /// # Errors
    /// Errors of the operating system; having no datagram is not an error.
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
        let before = match (self.options.with_headers, self.options.listen) {
            (false, _) => 0,
            (true, SocketAddr::V4(_)) => UDP_V4_HEADERS_BYTES,
            (true, SocketAddr::V6(_)) => UDP_V6_HEADERS_BYTES,
        };
        let count = self.incoming.receive(&self.socket, &mut self.blanks, before)?;
        let mut clock_ns = None;
        for (index, mut blank) in self.blanks.drain(..count).enumerate() {
            let arrived = self.incoming.arrived(index);
            if let Some(counter) = arrived.drops {
                self.drops.count(counter);
            }
            if arrived.is_cut {
                each(Received::TooLong);
                continue;
            }
            let sender = if self.options.with_headers { self.incoming.sender(index) } else { None };
            let (length, link_type) = match (self.options.listen, sender) {
                (SocketAddr::V4(to), Some(SocketAddr::V4(from))) => {
                    (put_headers(from, to, arrived.length, blank.room_mut()), LinkType::ETHERNET)
                }
                (SocketAddr::V6(to), Some(SocketAddr::V6(from))) => {
                    let built = udp_v6_in_place(UNKNOWN_MAC, from, to, arrived.length, blank.room_mut());
                    // As for IPv4.
                    (built.unwrap_or(0), LinkType::ETHERNET)
                }
                _ => (arrived.length, self.payload_link),
            };
            let timestamp_ns = arrived.timestamp_ns.unwrap_or_else(|| *clock_ns.get_or_insert_with(now_ns));
            let description =
                Description { timestamp_ns, entered_ns, original_length: length as u32, link_type };
            each(Received::Packet(blank.fill(length, description)));
        }
        Ok(count)
    }
}

impl std::os::fd::AsFd for UdpReceiver {
    /// Returns the descriptor to wait on until there is something to receive.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens a blocking socket with these options.
pub(super) fn open_socket(options: &UdpOptions) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(options.listen), Type::DGRAM, Some(Protocol::UDP))?;
    let group = options.listen.ip();
    if group.is_multicast() {
        // Several programs may listen to the same group.
        socket.set_reuse_address(true)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        // Exceeding the system's limit (`net.core.rmem_max`) needs the capability `CAP_NET_ADMIN`.
        let wanted = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        if options::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &wanted).is_err() {
            socket.set_recv_buffer_size(bytes)?;
        }
    }
    socket.bind(&options.listen.into())?;
    match group {
        IpAddr::V4(group) if group.is_multicast() => {
            socket.join_multicast_v4(&group, &options.interface.unwrap_or(Ipv4Addr::UNSPECIFIED))?;
        }
        IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, 0)?,
        _ => {}
    }
    if options.busy_poll_us > 0 {
        let microseconds = libc::c_int::try_from(options.busy_poll_us).unwrap_or(libc::c_int::MAX);
        options::set(&socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &microseconds)?;
    }
    Ok(socket.into())
}

/// Returns the clock's time, for packets that come without the kernel's.
pub(super) fn now_ns() -> u64 {
    // Overflows in the year 2554.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Writes headers before a payload of `length` bytes that lies after their room; returns the packet's length.
fn put_headers(from: SocketAddrV4, to: SocketAddrV4, length: usize, room: &mut [u8]) -> usize {
    let mut builder = if to.ip().is_multicast() {
        FrameBuilder::to_group(UNKNOWN_MAC, from, to)
    } else {
        FrameBuilder::new(UNKNOWN_MAC, UNKNOWN_MAC, from, to)
    };
    // A received datagram fits IPv4, and was received after the headers' room.
    builder.udp_in_place(length, room).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use tapeworks_capture::net;

    const PAYLOAD: LinkType = LinkType(147);

    fn options(listen: &str, with_headers: bool) -> UdpOptions {
        UdpOptions {
            listen: listen.parse().unwrap(),
            interface: None,
            receive_buffer_bytes: None,
            with_headers,
            busy_poll_us: 0,
        }
    }

    /// Receives until `wanted` packets have arrived or a few seconds have passed.
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
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(sender) = UdpSocket::bind(address) else {
                assert!(address.starts_with('['), "IPv4 is there");
                eprintln!("SKIPPED: this machine has no IPv6");
                continue;
            };
            let mut receiver = UdpReceiver::open(options(address, true), PAYLOAD).unwrap();
            let to = receiver.local_address();
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
            assert_eq!((receiver.drops(), receiver.query_drops()), (0, 0));
        }
    }

    #[test]
    fn a_datagram_longer_than_a_buffer_is_reported_and_payloads_may_stay_bare() {
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
    fn datagrams_that_the_kernel_dropped_are_counted() {
        let mut few = options("127.0.0.1:0", true);
        few.receive_buffer_bytes = Some(1);
        let mut receiver = UdpReceiver::open(few, PAYLOAD).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut pool = Pool::new(512, 1100);
        for _ in 0..200 {
            sender.send_to(&[0; 1000], receiver.local_address()).unwrap();
        }
        let kept = receive(&mut receiver, &mut pool, 1).len() as u64;
        assert_eq!(receiver.drops(), 0, "what came was sent before the first drop");
        assert_eq!(receiver.query_drops(), 200 - kept);
        // The next datagram carries the number of drops before it.
        sender.send_to(&[0; 10], receiver.local_address()).unwrap();
        let mut fresh = UdpReceiver { drops: Drops::default(), ..receiver };
        assert_eq!(receive(&mut fresh, &mut pool, 1).len(), 1);
        assert_eq!(fresh.drops(), 200 - kept);
    }

    #[test]
    fn a_counter_that_wraps_counts_on() {
        let mut drops = Drops { counter: u32::MAX - 1, all: 10 };
        drops.count(3);
        assert_eq!((drops.counter, drops.all), (3, 15));
        drops.count(1);
        assert_eq!((drops.counter, drops.all), (3, 15), "an older count");
    }

    #[test]
    fn the_time_is_that_at_which_the_kernel_received_it() {
        let mut receiver = UdpReceiver::open(options("127.0.0.1:0", true), PAYLOAD).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        // The kernel timestamps packets only after the first request for timestamps, and takes a moment to start.
        let mut pool = Pool::new(4, 256);
        let before_ns = now_ns();
        for _ in 0..100 {
            sender.send_to(&[0; 10], receiver.local_address()).unwrap();
            let sent_ns = now_ns();
            std::thread::sleep(Duration::from_millis(20));
            let taken_ns = now_ns();
            let all = receive(&mut receiver, &mut pool, 1);
            let Received::Packet(packet) = &all[0] else { panic!("{all:?}") };
            let timestamp_ns = packet.description().timestamp_ns;
            assert!((before_ns..=now_ns()).contains(&timestamp_ns));
            if timestamp_ns < taken_ns {
                assert!(
                    timestamp_ns <= sent_ns + 10_000_000,
                    "{} ns after it was sent",
                    timestamp_ns - sent_ns
                );
                return;
            }
        }
        panic!("the times are those of the call that took the packets");
    }

    #[test]
    fn an_address_that_cannot_be_bound_is_an_error() {
        assert!(UdpReceiver::open(options("192.0.2.1:0", true), PAYLOAD).is_err(), "not an address of ours");
    }
}
