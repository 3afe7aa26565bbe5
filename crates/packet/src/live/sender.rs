//! Packets onto the network: many with one call of the kernel.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::interface::{self, InterfaceError, RawSocket};
use super::messages::Outgoing;
use crate::capture::LinkType;

/// How long to wait for a full socket before refusing a packet.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The outcome of sending a packet.
#[derive(Debug)]
pub enum Sent {
    /// The kernel has taken it.
    Taken,
    /// It is longer than the interface or UDP permits.
    TooLong,
    /// The socket or the interface's queue was full.
    QueueFull,
    /// The kernel or its firewall will not send this packet: it is shorter than its headers, or a rule forbids it.
    Refused,
    /// No packet can be sent any more: the interface is gone, or there is no route to the address.
    Failed(io::Error),
}

/// Sends UDP payloads to an address, or whole frames out of an interface. Waits while the socket is full, half a second
/// at most.
///
/// Cost: a call of the kernel for up to [`MAX_BATCH`](super::MAX_BATCH) packets; the kernel copies them.
#[derive(Debug)]
pub struct Sender {
    socket: Socket,
    to: Option<SockAddr>,
    /// The kernel has the destination, and does not look up the route each time.
    is_connected: bool,
    /// Of an interface: its name and number.
    interface: Option<(String, u32)>,
    outgoing: Outgoing,
}

impl Sender {
    /// Sends UDP payloads from a port that the kernel chooses to `to`; `hops` is how far multicast over IPv4 goes (the
    /// kernel's default is 1).
    ///
    /// # Errors
    /// What the operating system says.
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

    /// As [`Sender::udp`]; a multicast group is sent to out of the interface with the address `interface`, and programs
    /// on this machine receive it too. `hops` may be 0: then it stays on the machine.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn udp_out_of(to: SocketAddrV4, hops: u32, interface: Ipv4Addr) -> io::Result<Self> {
        let mut sender = Self::udp(to.into(), Some(hops))?;
        // A connected socket gets an error when no program listens at an address; a group gives no such error.
        if to.ip().is_multicast() {
            sender.socket.set_multicast_if_v4(&interface)?;
            sender.socket.set_multicast_loop_v4(true)?;
            sender.socket.connect(&SocketAddr::from(to).into())?;
            sender.is_connected = true;
        }
        Ok(sender)
    }

    /// Sends whole frames out of the interface `name`; also returns the link type that they must have.
    ///
    /// # Errors
    /// [`InterfaceError`]; the capability needed is `CAP_NET_RAW`.
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

    /// Sends each packet and reports the result of each, in their order.
    pub fn send<'b>(&mut self, packets: impl IntoIterator<Item = &'b [u8]>, mut each: impl FnMut(Sent)) {
        let is_frames = self.interface.is_some();
        let to = self.to.as_ref().filter(|_| !self.is_connected);
        self.outgoing.send(&self.socket, to, packets, |sent| {
            each(match sent {
                Ok(()) => Sent::Taken,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMSGSIZE) => Sent::TooLong,
                    Some(libc::ENOBUFS | libc::EAGAIN) => Sent::QueueFull,
                    // A firewall's answer.
                    Some(libc::EPERM) => Sent::Refused,
                    // A frame that is shorter than its headers.
                    Some(libc::EINVAL) if is_frames => Sent::Refused,
                    _ => Sent::Failed(error),
                },
            });
        });
    }

    /// Describes an error that ends the sending, in one line.
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
