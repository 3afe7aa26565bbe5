//! Network interfaces by name, raw sockets bound to them, and the errors of both.
use std::ffi::{CStr, CString};
use std::io;

use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};
use tapeworks_capture::LinkType;

/// Why an interface cannot be read or written: one line that names the interface.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// No interface has this name.
    #[error("there is no interface '{name}'; there are {}", names().join(", "))]
    Missing {
        /// The name.
        name: String,
    },
    /// The user lacks permission.
    #[error(
        "interface {name}: not permitted to {doing}: it needs the capability {capability} (run as root, or give it to the \
         program by setcap)"
    )]
    Permission {
        /// The interface's name.
        name: String,
        /// The operation that needs it.
        doing: &'static str,
        /// The capability, by its name in `capabilities(7)`.
        capability: &'static str,
    },
    /// The interface is down, or went down while packets were read or written.
    #[error("interface {name} is down")]
    Down {
        /// The interface's name.
        name: String,
    },
    /// The interface no longer exists.
    #[error("interface {name} is gone")]
    Gone {
        /// The interface's name.
        name: String,
    },
    /// Its frames are neither Ethernet nor bare IP packets.
    #[error(
        "interface {name}: its frames are of hardware type {hardware} (ARPHRD), which is not read or written here"
    )]
    Hardware {
        /// The interface's name.
        name: String,
        /// The type's number (`linux/if_arp.h`).
        hardware: u16,
    },
    /// Another error of the operating system.
    #[error("interface {name}: cannot {doing}: {cause}")]
    Io {
        /// The interface's name.
        name: String,
        /// The refused operation.
        doing: &'static str,
        /// The system's error.
        cause: io::Error,
    },
}

/// Returns the names of all interfaces, in the kernel's order.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: returns null, or an array that ends with a null entry and is ours until it is freed.
    let all = unsafe { libc::if_nameindex() };
    if all.is_null() {
        return names;
    }
    let mut at = all;
    // SAFETY: `at` walks the array and stops at its last entry; each name before that is a NUL-terminated string.
    unsafe {
        while !(*at).if_name.is_null() {
            names.push(CStr::from_ptr((*at).if_name).to_string_lossy().into_owned());
            at = at.add(1);
        }
        libc::if_freenameindex(all);
    }
    names
}

/// Whether an interface of this name exists.
pub fn exists(name: &str) -> bool {
    index(name).is_some()
}

/// Returns the index of the interface, which stays the same for as long as the interface exists.
pub(super) fn index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a NUL-terminated string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// Whether the interface `name`, which had index `number`, is up. `socket` may be any socket except one of AF_XDP.
///
/// # Errors
/// [`InterfaceError::Gone`], and other errors of the operating system.
#[cfg(feature = "af-xdp")]
pub(super) fn is_up(socket: &Socket, name: &str, number: u32) -> Result<bool, InterfaceError> {
    if index(name) != Some(number) {
        return Err(InterfaceError::Gone { name: name.to_owned() });
    }
    // SAFETY: zero is a valid value of every field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request holds a NUL-terminated name, because an interface has that name; the kernel writes the flags into it.
    let result =
        unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(socket), libc::SIOCGIFFLAGS, &raw mut request) };
    if result != 0 {
        return Err(failed(name, number, "read its flags", io::Error::last_os_error()));
    }
    // SAFETY: the kernel has written this field.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
}

/// A raw socket, and the interface that it is or will be bound to.
#[derive(Debug)]
pub(super) struct RawSocket {
    pub(super) socket: Socket,
    pub(super) name: String,
    pub(super) index: u32,
}

impl RawSocket {
    /// Opens a socket that receives no frames until it is bound.
    pub(super) fn open(name: &str) -> Result<Self, InterfaceError> {
        let Some(index) = index(name) else {
            return Err(InterfaceError::Missing { name: name.to_owned() });
        };
        let socket = Socket::new(Domain::from(libc::AF_PACKET), Type::from(libc::SOCK_RAW), None)
            .map_err(|cause| failed(name, index, "open a raw socket", cause))?;
        Ok(Self { socket, name: name.to_owned(), index })
    }

    /// Binds the socket, which from now on receives the frames of `protocol` (`ETH_P_ALL`: all; 0: none, send only). Returns
    /// the link type of the frames.
    pub(super) fn bind(&self, protocol: libc::c_int) -> Result<LinkType, InterfaceError> {
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: the storage is larger than a `sockaddr_ll`, aligned for every address, and zero is valid in each field.
        let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
        address.sll_family = libc::AF_PACKET as libc::sa_family_t;
        address.sll_protocol = (protocol as u16).to_be();
        address.sll_ifindex = self.index as libc::c_int;
        // SAFETY: the storage holds an address of this length.
        let address = unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) };
        self.socket.bind(&address).map_err(|cause| self.failed("bind to it", cause))?;
        self.check()?;
        let bound = self.socket.local_addr().map_err(|cause| self.failed("read its type", cause))?;
        // SAFETY: an address of AF_PACKET, in storage larger than a `sockaddr_ll`; any bytes are a valid one.
        let hardware = unsafe { &*bound.as_ptr().cast::<libc::sockaddr_ll>() }.sll_hatype;
        match hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(LinkType::ETHERNET),
            libc::ARPHRD_NONE => Ok(LinkType::RAW),
            hardware => Err(InterfaceError::Hardware { name: self.name.clone(), hardware }),
        }
    }

    /// Checks that the interface still exists and is up, as far as the socket knows.
    pub(super) fn check(&self) -> Result<(), InterfaceError> {
        match self.socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(cause)) | Err(cause) => Err(self.failed("go on", cause)),
        }
    }

    /// Returns what `cause` means for this interface.
    #[cold]
    pub(super) fn failed(&self, doing: &'static str, cause: io::Error) -> InterfaceError {
        failed(&self.name, self.index, doing, cause)
    }
}

/// Returns what `cause` means for the interface `name`, which had index `number`.
#[cold]
pub(super) fn failed(name: &str, number: u32, doing: &'static str, cause: io::Error) -> InterfaceError {
    let is_there = index(name) == Some(number);
    let name = name.to_owned();
    match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            InterfaceError::Permission { name, doing, capability: "CAP_NET_RAW" }
        }
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) if !is_there => InterfaceError::Gone { name },
        Some(libc::ENETDOWN) => InterfaceError::Down { name },
        _ => InterfaceError::Io { name, doing, cause },
    }
}
