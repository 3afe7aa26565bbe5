//! The AF_XDP socket: memory shared with the kernel, a ring of received frames, and a ring of free frames.
//!
//! Opening attaches libxdp's program, which redirects the frames of one queue of the interface from the kernel's stack to the
//! socket; dropping detaches it. A killed process leaves it attached: `ip link set NAME xdp off` detaches it.
//!
//! Cost: no system call while frames arrive; one copy of the frame. The kernel reports neither a receive time nor the VLAN tag
//! that a card has removed: the time is that of the call that took the frame.
use std::error::Error;
use std::ffi::CString;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::Once;
use std::time::Duration;

use tapeworks_capture::LinkType;
use tapeworks_capture::pool::{Blank, Description, Pool};
use xsk_rs::config::{
    BindFlags, FrameSize, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig, XdpFlags,
};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, Socket, Umem};

use super::super::interface::{self, InterfaceError};
use super::super::udp::now_ns;
use super::super::{MAX_BATCH, Received};
use super::{XdpMode, XdpOptions};

/// Bytes per frame slot, of which 256 are reserved for the program, so a frame has up to 3,840.
const FRAME_BYTES: u32 = 4096;

/// Descriptors in the transmit rings, which are not used.
const UNUSED_RING: u32 = 64;

/// The kernel releases a queue some milliseconds after its socket was closed. This is how often opening is tried, and the pause
/// between attempts.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Capabilities needed for opening.
const CAPABILITY: &str = "CAP_NET_RAW (and CAP_NET_ADMIN and CAP_BPF)";

/// Receives the frames of one queue of a network interface. It never blocks.
#[derive(Debug)]
pub struct XdpReceiver {
    name: String,
    number: u32,
    came: RxQueue,
    free: FillQueue,
    /// Reads the interface's flags, which an AF_XDP socket cannot.
    asking: socket2::Socket,
    /// Belongs to the socket.
    _sent: CompQueue,
    memory: Umem,
    blanks: Vec<Blank>,
    frames: Vec<FrameDesc>,
}

/// Stops the libraries from writing to standard error; they still return their errors.
fn silence_the_libraries() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: each takes a function or none, and `ONCE` lets only one thread in.
        unsafe {
            libxdp_sys::libxdp_set_print(None);
            libbpf_sys::libbpf_set_print(None);
        }
    });
}

impl AsFd for XdpReceiver {
    /// Returns the descriptor to wait on: the kernel reports it readable when a frame has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the socket is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.came.fd().as_raw_fd()) }
    }
}

impl XdpReceiver {
    /// Opens the queue: from now on its frames arrive here, not in the kernel's stack.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn open(wanted: &XdpOptions) -> Result<Self, InterfaceError> {
        let name = wanted.interface.clone();
        let Some(number) = interface::index(&name) else { return Err(InterfaceError::Missing { name }) };
        let failed = |doing, cause: io::Error| match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                InterfaceError::Permission { name: wanted.interface.clone(), doing, capability: CAPABILITY }
            }
            _ => interface::failed(&wanted.interface, number, doing, cause),
        };
        let impossible = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        silence_the_libraries();
        let count = NonZeroU32::new(wanted.frames)
            .filter(|count| count.is_power_of_two() && count.get() <= super::MAX_XDP_FRAMES)
            .ok_or_else(|| failed("have so many frames", impossible("not a power of two, or too many")))?;
        let of = |ring: u32| {
            QueueSize::new(ring).map_err(|error| failed("make its rings", impossible(&error.to_string())))
        };
        let frame_size = FrameSize::new(FRAME_BYTES)
            .map_err(|error| failed("make its memory", impossible(&error.to_string())))?;
        let memory_config = UmemConfig::builder()
            .frame_size(frame_size)
            .fill_queue_size(of(count.get())?)
            .comp_queue_size(of(UNUSED_RING)?)
            .build()
            .map_err(|error| failed("make its memory", impossible(&error.to_string())))?;
        let (memory, mut frames) = Umem::new(memory_config, count, false)
            .map_err(|error| failed("make its memory", cause_of(&error)))?;
        let flags = match wanted.mode {
            XdpMode::Auto => XdpFlags::empty(),
            XdpMode::Skb => XdpFlags::XDP_FLAGS_SKB_MODE,
            XdpMode::Native => XdpFlags::XDP_FLAGS_DRV_MODE,
        };
        let socket_config = SocketConfig::builder()
            .rx_queue_size(of(count.get())?)
            .tx_queue_size(of(UNUSED_RING)?)
            .libxdp_flags(LibxdpFlags::empty())
            .xdp_flags(flags)
            .bind_flags(BindFlags::XDP_USE_NEED_WAKEUP)
            .build();
        let text = CString::new(name.as_str()).map_err(|error| failed("name it", error.into()))?;
        let opening = "open an AF_XDP socket on this queue";
        let mut tries = 0;
        let (_, came, queues) = loop {
            // SAFETY: the memory is not shared: this is its only socket.
            let opened =
                unsafe { Socket::new(socket_config, &memory, &Interface::new(text.clone()), wanted.queue) };
            tries += 1;
            match opened.map_err(|error| cause_of(&error)) {
                Ok(opened) => break opened,
                Err(cause) if cause.raw_os_error() == Some(libc::EBUSY) && tries < BUSY_TRIES => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(cause) => return Err(failed(opening, cause)),
            }
        };
        let Some((mut free, sent)) = queues else {
            return Err(failed(opening, impossible("it has one already")));
        };
        // SAFETY: the frames are this memory's, and are not used yet.
        unsafe { free.produce(&frames) };
        frames.truncate(MAX_BATCH);
        let blanks = Vec::with_capacity(MAX_BATCH);
        let asking = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::DGRAM, None)
            .map_err(|cause| failed("open a socket to ask by", cause))?;
        let receiver = Self { name, number, came, free, asking, _sent: sent, memory, blanks, frames };
        receiver.check()?;
        Ok(receiver)
    }

    /// Returns the link type of its frames.
    pub fn link_type(&self) -> LinkType {
        LinkType::ETHERNET
    }

    /// Whether frames are available: one load.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        self.came.nb_avail_exact() > 0
    }

    /// Checks that the interface still exists and is up.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn check(&self) -> Result<(), InterfaceError> {
        if interface::is_up(&self.asking, &self.name, self.number)? {
            Ok(())
        } else {
            Err(InterfaceError::Down { name: self.name.clone() })
        }
    }

    /// Returns how many frames the kernel dropped because no chunk of the shared memory was free or because they were longer than a
    /// chunk. This is a system call. A driver counts its own drops (`ethtool -S`).
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn drops(&self) -> Result<u64, InterfaceError> {
        let statistics = self.came.fd().xdp_statistics();
        let statistics = statistics
            .map_err(|cause| interface::failed(&self.name, self.number, "read its counts", cause))?;
        Ok(statistics.rx_dropped() + statistics.rx_ring_full())
    }

    /// Takes up to `most` available frames, passes each to `each`, and returns their number. Without a free buffer it takes none:
    /// the frames stay in the shared memory.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        mut each: impl FnMut(Received),
    ) -> Result<usize, InterfaceError> {
        let wanted = most.min(self.frames.len());
        while self.blanks.len() < wanted {
            let Ok(blank) = pool.blank() else { break };
            self.blanks.push(blank);
        }
        let wanted = wanted.min(self.blanks.len());
        // SAFETY: frames that arrive in this ring belong to this memory.
        let count = unsafe { self.came.consume(&mut self.frames[..wanted]) };
        if count == 0 {
            // A driver that found no free frame after the last call waits to be woken.
            return self.wake_driver().map(|()| 0);
        }
        let timestamp_ns = now_ns();
        for (frame, mut blank) in self.frames[..count].iter().zip(self.blanks.drain(..count)) {
            // SAFETY: the frame belongs to this memory, and is ours from its arrival until it is returned below.
            let data = unsafe { self.memory.data(frame) };
            let bytes = data.contents();
            let Some(room) = blank.room_mut().get_mut(..bytes.len()) else {
                each(Received::TooLong);
                continue;
            };
            room.copy_from_slice(bytes);
            let description = Description {
                timestamp_ns,
                entered_ns,
                original_length: bytes.len() as u32,
                link_type: LinkType::ETHERNET,
            };
            each(Received::Packet(blank.fill(bytes.len(), description)));
        }
        // The ring of free frames has an entry for every frame, so there is room for all.
        // SAFETY: the frames belong to this memory, came from the other ring, and are no longer used.
        unsafe { self.free.produce(&self.frames[..count]) };
        self.wake_driver().map(|()| count)
    }

    /// Wakes the driver if it is waiting for that.
    fn wake_driver(&mut self) -> Result<(), InterfaceError> {
        if self.free.needs_wakeup() {
            let woken = self.free.wakeup(self.came.fd_mut(), 0);
            woken.map_err(|cause| interface::failed(&self.name, self.number, "wake its driver", cause))?;
        }
        Ok(())
    }
}

/// Extracts the operating system's error from the library's.
fn cause_of(error: &(dyn Error + 'static)) -> io::Error {
    let said = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match said.and_then(io::Error::raw_os_error) {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error.to_string()),
    }
}
