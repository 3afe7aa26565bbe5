//! UDP datagrams through io_uring: requests and completions in memory shared with the kernel.
//!
//! One request serves many datagrams (*multishot*, Linux 6.0). The kernel takes a buffer for each from a ring of *provided
//! buffers* (5.19), which are blanks of a packet pool. If the kernel lacks either, each datagram takes a separate request, one
//! after the other.
//!
//! The kernel does its work when the receiving thread enters it ([`UringReceiver::receive`] with no completion at hand), not
//! when a datagram arrives (`IORING_SETUP_DEFER_TASKRUN`, 6.1), so the thread is not interrupted. Such a ring belongs to one
//! thread. Therefore opening returns a [`UringSocket`], which may move between threads; a [`UringReceiver`] may not.
//!
//! Cost: one system call for all available datagrams, like `recvmmsg`, but with no headers to fill and no request for the kernel to
//! read. A packet's time is the clock's, and the kernel's drops are not counted.
use std::io;
use std::marker::PhantomData;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};
use memmap2::MmapMut;
use tapeworks_capture::LinkType;
use tapeworks_capture::pool::{Blank, Description, Pool};

use super::udp::{self, UdpOptions};
use super::{MAX_BATCH, Received};

/// Number of buffers that the kernel holds. A power of two.
const BUFFERS: u16 = MAX_BATCH as u16;

/// Number of the only group of provided buffers.
const GROUP: u16 = 0;

/// User data of the receiving request's completions.
const RECEIVE: u64 = 1;
/// User data of the cancellation's completion.
const CANCEL: u64 = 2;

/// Makes the kernel deliver completions (`IORING_ENTER_GETEVENTS`, `linux/io_uring.h`).
const GET_EVENTS: u32 = 1;

/// How a [`UringReceiver`] requests datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UringMode {
    /// One request for all datagrams, with provided buffers.
    Multishot,
    /// One request per datagram. Only one is in flight, because several could overtake each other.
    Single,
}

/// A socket for io_uring that any thread may turn into a receiver.
#[derive(Debug)]
pub struct UringSocket {
    socket: UdpSocket,
    address: SocketAddr,
    payload_link: LinkType,
}

impl UringSocket {
    /// Opens the socket. Payloads get the link type `payload_link`.
    ///
    /// # Errors
    /// Errors of the operating system; [`io::ErrorKind::InvalidInput`] for [`UdpOptions::with_headers`], because io_uring does not
    /// report a datagram's sender.
    pub fn open(options: UdpOptions, payload_link: LinkType) -> io::Result<Self> {
        if options.with_headers {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "io_uring receives no headers"));
        }
        // A blocking socket: on a non-blocking one, a request would end immediately.
        let socket = udp::open_socket(&options)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, payload_link })
    }

    /// Returns the address it listens on, including a port that the kernel chose.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Turns the socket into a receiver for this thread.
    ///
    /// # Errors
    /// Errors of the operating system: `ENOSYS` if the kernel has no io_uring, `EPERM` if it is forbidden
    /// (`kernel.io_uring_disabled`, seccomp).
    pub fn receiver(self) -> io::Result<UringReceiver> {
        self.receiver_of(UringMode::Multishot)
    }

    /// Like [`UringSocket::receiver`], with a given mode. It falls back to [`UringMode::Single`] if the kernel lacks multishot.
    ///
    /// # Errors
    /// As [`UringSocket::receiver`].
    pub fn receiver_of(self, mode: UringMode) -> io::Result<UringReceiver> {
        let ring = ring()?;
        let buffers = match mode {
            UringMode::Multishot => Provided::register(&ring)?,
            UringMode::Single => None,
        };
        let mut blanks = Vec::new();
        let places = if buffers.is_some() { BUFFERS } else { 1 };
        blanks.resize_with(usize::from(places), || None);
        Ok(UringReceiver {
            ring,
            buffers,
            blanks,
            missing: (0..places).rev().collect(),
            is_requested: false,
            socket: self.socket,
            address: self.address,
            payload_link: self.payload_link,
            of_this_thread: PhantomData,
        })
    }
}

/// Creates the submission and completion rings.
fn ring() -> io::Result<IoUring> {
    let completions = 4 * u32::from(BUFFERS);
    let mut builder = IoUring::builder();
    builder.setup_cqsize(completions).setup_single_issuer().setup_defer_taskrun();
    match builder.build(u32::from(BUFFERS)) {
        // Linux before 6.1.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(completions).build(u32::from(BUFFERS))
        }
        built => built,
    }
}

/// The ring of provided buffers: the program writes at its tail, the kernel reads at its head.
struct Provided {
    memory: MmapMut,
    tail: u16,
}

impl Provided {
    /// Registers an empty ring; `None` if the kernel does not support one.
    fn register(ring: &IoUring) -> io::Result<Option<Self>> {
        // Whole pages, as the kernel requires, and all zero, which is a valid value of every field.
        let mut memory = MmapMut::map_anon(usize::from(BUFFERS) * size_of::<BufRingEntry>())?;
        let address = memory.as_mut_ptr() as u64;
        // SAFETY: the memory has room for this many entries, and outlives the ring: `UringReceiver` drops the ring first, or leaks both.
        let registered = unsafe { ring.submitter().register_buf_ring_with_flags(address, BUFFERS, GROUP, 0) };
        match registered {
            Ok(()) => Ok(Some(Self { memory, tail: 0 })),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a buffer at the tail. The kernel sees it after [`Provided::publish`].
    fn add(&mut self, id: u16, blank: &mut Blank) {
        let room = blank.room_mut();
        let index = usize::from(self.tail % BUFFERS);
        let entries = self.memory.as_mut_ptr().cast::<BufRingEntry>();
        // SAFETY: the index is below `BUFFERS`, and the mapping is page-aligned. The kernel reads no entry past the tail, and writes none.
        let entry = unsafe { &mut *entries.add(index) };
        entry.set_addr(room.as_mut_ptr() as u64);
        entry.set_len(u32::try_from(room.len()).unwrap_or(u32::MAX));
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes the buffers before the tail to the kernel.
    fn publish(&mut self) {
        let first = self.memory.as_ptr().cast::<BufRingEntry>();
        // SAFETY: `first` is the ring's first entry, so this is the ring's tail: aligned, alive, and read by the kernel atomically.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(first).cast_mut()) };
        // Release: the kernel sees the entries before the tail.
        tail.store(self.tail, Ordering::Release);
    }
}

/// Receives datagrams from a socket through io_uring.
pub struct UringReceiver {
    // Dropped before the memory that the kernel uses.
    ring: IoUring,
    buffers: Option<Provided>,
    /// The kernel may write into a blank here until the completion that names its index.
    blanks: Vec<Option<Blank>>,
    /// Indexes without a blank.
    missing: Vec<u16>,
    /// Whether the kernel has an unfinished request.
    is_requested: bool,
    socket: UdpSocket,
    address: SocketAddr,
    payload_link: LinkType,
    /// The ring belongs to the thread that created it.
    of_this_thread: PhantomData<*const ()>,
}

impl std::fmt::Debug for UringReceiver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("UringReceiver")
            .field("address", &self.address)
            .field("mode", &self.mode())
            .finish_non_exhaustive()
    }
}

impl UringReceiver {
    /// Returns the address it listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how it requests datagrams. Only the first request shows that a kernel lacks multishot.
    pub fn mode(&self) -> UringMode {
        if self.buffers.is_some() { UringMode::Multishot } else { UringMode::Single }
    }

    /// Sends a datagram from this socket, so that the answer arrives here.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.socket.send_to(bytes, to).map(|_| ())
    }

    /// Takes up to `most` available datagrams, passes each to `each`, and returns their number. The kernel holds up to 64 blanks of
    /// the pool; without a free one the datagrams stay in the kernel.
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
        let (mut count, mut is_asked, mut clock_ns) = (0, false, None);
        self.offer(pool)?;
        while count < most.min(MAX_BATCH) {
            let Some(completion) = self.ring.completion().next() else {
                if is_asked {
                    break;
                }
                is_asked = true;
                self.offer(pool)?;
                self.enter()?;
                continue;
            };
            let Some((blank, length)) = self.completed(&completion, pool)? else {
                // The request ended without a datagram: a new one may find some.
                is_asked &= self.is_requested;
                continue;
            };
            // In single mode, one request yields one datagram: submit the next request.
            is_asked &= self.is_requested;
            count += 1;
            if length > pool.packet_bytes() {
                each(Received::TooLong);
                continue;
            }
            let timestamp_ns = *clock_ns.get_or_insert_with(udp::now_ns);
            let (original_length, link_type) = (length as u32, self.payload_link);
            let description = Description { timestamp_ns, entered_ns, original_length, link_type };
            each(Received::Packet(blank.fill(length, description)));
        }
        Ok(count)
    }

    /// Gives the kernel blanks from the pool, and a request if it has none. Nothing is submitted yet.
    fn offer(&mut self, pool: &mut Pool) -> io::Result<()> {
        let has_new = !self.missing.is_empty();
        while let Some(place) = self.missing.pop() {
            let Ok(mut blank) = pool.blank() else {
                self.missing.push(place);
                break;
            };
            if let Some(buffers) = &mut self.buffers {
                buffers.add(place, &mut blank);
            }
            if let Some(kept) = self.blanks.get_mut(usize::from(place)) {
                *kept = Some(blank);
            }
        }
        if let Some(buffers) = &mut self.buffers
            && has_new
        {
            buffers.publish();
        }
        if self.is_requested || self.missing.len() == self.blanks.len() {
            return Ok(());
        }
        let socket = Fd(self.socket.as_raw_fd());
        // `MSG_TRUNC`: the result is the datagram's length, even if its buffer is shorter.
        let request = match (&self.buffers, self.blanks.first_mut()) {
            (Some(_), _) => opcode::RecvMulti::new(socket, GROUP).flags(libc::MSG_TRUNC).build(),
            (None, Some(Some(blank))) => {
                let room = blank.room_mut();
                let length = u32::try_from(room.len()).unwrap_or(u32::MAX);
                opcode::Recv::new(socket, room.as_mut_ptr(), length).flags(libc::MSG_TRUNC).build()
            }
            (None, _) => return Ok(()),
        };
        self.push(&request.user_data(RECEIVE))?;
        self.is_requested = true;
        Ok(())
    }

    /// Puts a request into the ring.
    fn push(&mut self, request: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the socket is open as long as the ring is. A buffer that the request names, or takes from those provided, is a blank in
        // `blanks`; it stays there untouched until the completion that names it, and `drop` waits for the end of the request or leaks them.
        unsafe { self.ring.submission().push(request) }.map_err(io::Error::other)
    }

    /// Submits the queued requests and lets the kernel complete what it can. It does not wait.
    fn enter(&mut self) -> io::Result<()> {
        let requests = self.ring.submission().len() as u32;
        // SAFETY: there is no argument; for the requests see `push`.
        let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(requests, 0, GET_EVENTS, None) };
        match entered {
            Ok(_) => Ok(()),
            // A signal arrived, or the kernel is temporarily short of memory: retry on the next call.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the datagram of a completion, in a blank, with its length; `None` if it brought none.
    fn completed(
        &mut self,
        completion: &cqueue::Entry,
        pool: &mut Pool,
    ) -> io::Result<Option<(Blank, usize)>> {
        self.is_requested &= cqueue::more(completion.flags());
        match completion.result() {
            length @ 0.. => {
                let place = match self.mode() {
                    UringMode::Multishot => cqueue::buffer_select(completion.flags()),
                    UringMode::Single => Some(0),
                };
                let kept = place.and_then(|place| Some((place, self.blanks.get_mut(usize::from(place))?)));
                let Some((place, kept)) = kept else {
                    // The kernel takes no buffer for an empty datagram. Without a free blank it is dropped, but it has no bytes to lose.
                    return Ok(pool.blank().ok().map(|blank| (blank, length as usize)));
                };
                self.missing.push(place);
                Ok(kept.take().map(|blank| (blank, length as usize)))
            }
            error => match -error {
                // All buffers were in use, or the request ended in an expected way.
                libc::ENOBUFS | libc::EAGAIN | libc::EINTR | libc::ECANCELED => Ok(None),
                // Linux 5.19 has provided buffers but no multishot.
                libc::EINVAL if self.buffers.is_some() && !self.is_requested => {
                    self.ring.submitter().unregister_buf_ring(GROUP)?;
                    // The kernel no longer knows the buffers.
                    self.buffers = None;
                    self.blanks.truncate(1);
                    self.missing.retain(|place| usize::from(*place) < self.blanks.len());
                    Ok(None)
                }
                error => Err(io::Error::from_raw_os_error(error)),
            },
        }
    }

    /// Cancels the kernel's request, if there is one. Returns whether none is left.
    fn cancel(&mut self) -> bool {
        let request = opcode::AsyncCancel::new(RECEIVE).build().user_data(CANCEL);
        if self.is_requested && self.push(&request).is_err() {
            return false;
        }
        let mut is_answered = false;
        // A cancellation is answered immediately; the completions before it may fill the ring several times.
        for _ in 0..1_000 {
            if !self.is_requested {
                return true;
            }
            if self.ring.submit_and_wait(usize::from(!is_answered)).is_err() && self.enter().is_err() {
                return false;
            }
            for completion in self.ring.completion() {
                match completion.user_data() {
                    CANCEL => is_answered = true,
                    _ => self.is_requested &= cqueue::more(completion.flags()),
                }
            }
        }
        !self.is_requested
    }
}

impl Drop for UringReceiver {
    fn drop(&mut self) {
        if !self.cancel() {
            // The kernel may still write into the buffers: leak them rather than reuse them.
            std::mem::forget(std::mem::take(&mut self.blanks));
            std::mem::forget(self.buffers.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const PAYLOAD: LinkType = LinkType(147);
    const MODES: [UringMode; 2] = [UringMode::Multishot, UringMode::Single];

    fn options() -> UdpOptions {
        UdpOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            interface: None,
            receive_buffer_bytes: None,
            with_headers: false,
            busy_poll_us: 0,
        }
    }

    /// Returns a receiver and a socket that sends to it; `None` if the kernel refuses io_uring.
    fn receiver(mode: UringMode) -> Option<(UringReceiver, UdpSocket)> {
        let socket = UringSocket::open(options(), PAYLOAD).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(socket.local_address()).unwrap();
        match socket.receiver_of(mode) {
            Ok(receiver) => Some((receiver, sender)),
            Err(error) => {
                eprintln!("SKIPPED: the kernel refuses io_uring: {error}");
                None
            }
        }
    }

    /// Receives until `wanted` packets have arrived or a few seconds have passed.
    fn receive(receiver: &mut UringReceiver, pool: &mut Pool, most: usize, wanted: usize) -> Vec<Received> {
        let began = Instant::now();
        let mut all = Vec::new();
        while all.len() < wanted && began.elapsed() < Duration::from_secs(20) {
            let before = all.len();
            let count = receiver.receive(pool, most, 7, |received| all.push(received)).unwrap();
            assert!(count <= most && all.len() - before == count);
        }
        all
    }

    #[test]
    fn datagrams_come_whole_and_in_order() {
        for mode in MODES {
            let Some((mut receiver, sender)) = receiver(mode) else { return };
            let mut pool = Pool::new(256, 512);
            let mut number = 0u32;
            // More datagrams than the kernel has buffers, of many lengths, including empty ones.
            for burst in 0..8 {
                for _ in 0..50 {
                    let length = (number as usize * 37) % 300;
                    let mut bytes = vec![number as u8; length];
                    bytes.iter_mut().zip(number.to_le_bytes()).for_each(|(place, byte)| *place = byte);
                    sender.send(&bytes).unwrap();
                    number += 1;
                }
                let all = receive(&mut receiver, &mut pool, [64, 7, 1][burst % 3], 50);
                assert_eq!(all.len(), 50, "{mode:?}");
                for (at, received) in (number - 50..).zip(&all) {
                    let Received::Packet(packet) = received else { panic!("{received:?}") };
                    assert_eq!(packet.bytes().len(), (at as usize * 37) % 300, "{mode:?}, datagram {at}");
                    assert!(packet.bytes().iter().zip(at.to_le_bytes()).all(|(found, byte)| *found == byte));
                    let description = packet.description();
                    assert_eq!((description.entered_ns, description.link_type), (7, PAYLOAD));
                }
            }
            assert_eq!(receive(&mut receiver, &mut pool, 8, 0).len(), 0);
            assert_eq!(receiver.receive(&mut pool, 8, 0, |_| panic!("nothing was sent")).unwrap(), 0);
            drop(receiver);
            assert_eq!(pool.in_use(), 0, "{mode:?}: the kernel has given its blanks back");
        }
    }

    #[test]
    fn a_datagram_longer_than_a_buffer_is_reported_and_the_next_is_whole() {
        for mode in MODES {
            let Some((mut receiver, sender)) = receiver(mode) else { return };
            let mut pool = Pool::new(80, 100);
            sender.send(&[1; 101]).unwrap();
            sender.send(&[2; 100]).unwrap();
            let all = receive(&mut receiver, &mut pool, 8, 2);
            assert!(matches!(all[0], Received::TooLong), "{mode:?}: {all:?}");
            let Received::Packet(packet) = &all[1] else { panic!("{all:?}") };
            assert_eq!(packet.bytes(), [2; 100]);
        }
    }

    #[test]
    fn without_a_free_buffer_datagrams_wait_in_the_kernel() {
        for mode in MODES {
            let Some((mut receiver, sender)) = receiver(mode) else { return };
            let mut pool = Pool::new(4, 100);
            for number in 0..10u8 {
                sender.send(&[number; 10]).unwrap();
            }
            let mut numbers = Vec::new();
            for _ in 0..4 {
                // Held until the end of the iteration, so the pool is empty.
                let held = receive(&mut receiver, &mut pool, 64, if numbers.len() == 8 { 2 } else { 4 });
                assert_eq!(receiver.receive(&mut pool, 64, 0, |_| panic!("no buffer is free")).unwrap(), 0);
                for received in &held {
                    let Received::Packet(packet) = received else { panic!("{received:?}") };
                    numbers.push(packet.bytes()[0]);
                }
                if numbers.len() == 10 {
                    break;
                }
            }
            assert_eq!(numbers, (0..10).collect::<Vec<u8>>(), "{mode:?}");
        }
    }

    #[test]
    fn a_receiver_that_goes_while_datagrams_come_gives_all_blanks_back() {
        for mode in MODES {
            let mut pool = Pool::new(128, 100);
            for taken in [0, 1, 20] {
                let Some((mut receiver, sender)) = receiver(mode) else { return };
                receiver.receive(&mut pool, 1, 0, |_| panic!("nothing was sent")).unwrap();
                for _ in 0..40 {
                    sender.send(&[5; 50]).unwrap();
                }
                assert_eq!(receive(&mut receiver, &mut pool, 1, taken).len(), taken);
                drop(receiver);
                assert_eq!(pool.in_use(), 0, "{mode:?}");
            }
        }
    }

    #[test]
    fn headers_are_refused() {
        let with_headers = UdpOptions { with_headers: true, ..options() };
        let error = UringSocket::open(with_headers, PAYLOAD).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
