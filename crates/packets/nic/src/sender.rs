//! Sends packets onto the network, many per system call.
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tapeworks_capture::LinkType;

use super::interface::{self, InterfaceError, RawSocket};
use super::messages::Outgoing;

/// How long to wait for a full socket before giving up on a packet.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The outcome of sending a packet.
#[derive(Debug)]
pub enum Sent {
    /// The kernel accepted it.
    Taken,
    /// It is longer than the interface or UDP permits.
    TooLong,
    /// The socket or the interface's queue was full.
    QueueFull,
    /// The kernel or its firewall refuses this packet: it is shorter than its headers, or a rule forbids it.
    Refused,
    /// Nothing can be sent any more: the interface no longer exists, or there is no route to the address.
    Failed(io::Error),
}

/// Sends UDP payloads to an address, or whole frames to an interface. When the socket is full, it waits for at most half a
/// second.
///
/// Cost: one system call for up to [`MAX_BATCH`](super::MAX_BATCH) packets; the kernel copies them.
#[derive(Debug)]
pub struct Sender {
    socket: Socket,
    to: Option<SockAddr>,
    /// The kernel knows the destination and does not look up the route for each packet.
    is_connected: bool,
    /// For an interface: its name and index.
    interface: Option<(String, u32)>,
    outgoing: Outgoing,
}

impl Sender {
    /// Creates a sender of UDP payloads to `to`, from a port that the kernel chooses. `hops` limits how far IPv4 multicast travels
    /// (the kernel's default is 1).
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn udp(to: SocketAddr, hops: Option<u32>) -> io::Result<Self> {
        let any: SocketAddr = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&any.into())?;
        if let (Some(hops), true, true) = (hops, to.is_ipv4(), to.ip().is_multicast()) {
            socket.set_multicast_ttl_v4(hops)?;
        }
        socket.set_write_timeout(Some(LONGEST_WAIT))?;
        let to = Some(to.into());
        Ok(Self { socket, to, is_connected: false, interface: None, outgoing: Outgoing::new() })
    }

    /// Like [`Sender::udp`], but sends to a multicast group through the interface with the address `interface`; programs on this
    /// machine receive it too. With 0 `hops` the packets stay on the machine.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn udp_out_of(to: SocketAddrV4, hops: u32, interface: Ipv4Addr) -> io::Result<Self> {
        let mut sender = Self::udp(to.into(), Some(hops))?;
        // A connected socket reports an error if no program listens at an address; a multicast group reports none.
        if to.ip().is_multicast() {
            sender.socket.set_multicast_if_v4(&interface)?;
            sender.socket.set_multicast_loop_v4(true)?;
            sender.socket.connect(&SocketAddr::from(to).into())?;
            sender.is_connected = true;
        }
        Ok(sender)
    }

    /// Creates a sender of whole frames to the interface `name`; also returns the link type that the frames must have.
    ///
    /// # Errors
    /// [`InterfaceError`]; it needs the capability `CAP_NET_RAW`.
    pub fn interface(name: &str) -> Result<(Self, LinkType), InterfaceError> {
        let raw = RawSocket::open(name)?;
        let link_type = raw.bind(0)?;
        raw.socket
            .set_write_timeout(Some(LONGEST_WAIT))
            .map_err(|cause| raw.failed("set how long to wait", cause))?;
        let RawSocket { socket, name, index } = raw;
        let interface = Some((name, index));
        Ok((Self { socket, to: None, is_connected: true, interface, outgoing: Outgoing::new() }, link_type))
    }

    /// Sends each packet and reports the result of each, in order.
    pub fn send<'b>(&mut self, packets: impl IntoIterator<Item = &'b [u8]>, mut each: impl FnMut(Sent)) {
        let is_frames = self.interface.is_some();
        let to = self.to.as_ref().filter(|_| !self.is_connected);
        self.outgoing.send(&self.socket, to, packets, |sent| {
            each(match sent {
                Ok(()) => Sent::Taken,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMSGSIZE) => Sent::TooLong,
                    Some(libc::ENOBUFS | libc::EAGAIN) => Sent::QueueFull,
                    // A firewall rejected it.
                    Some(libc::EPERM) => Sent::Refused,
                    // The frame is shorter than its headers.
                    Some(libc::EINVAL) if is_frames => Sent::Refused,
                    _ => Sent::Failed(error),
                },
            });
        });
    }

    /// Describes an error that ends sending, in one line.
    pub fn describe(&self, error: io::Error) -> String {
        match (&self.interface, &self.to) {
            (Some((name, index)), _) => interface::failed(name, *index, "send", error).to_string(),
            (None, to) => {
                let to = to.as_ref().and_then(SockAddr::as_socket);
                to.map_or_else(|| error.to_string(), |to| format!("cannot send to {to}: {error}"))
            }
        }
    }
}
