//! Many messages per system call: `recvmmsg` and `sendmmsg`, and their headers.
//!
//! The headers are allocated once. Their pointers are set before each call and are meaningless after it.
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::ptr;

use socket2::{SockAddr, SockAddrStorage};
use tapeworks_capture::pool::Blank;

use super::MAX_BATCH;

/// Bytes for a datagram's control messages: its time (32) and the drops before it (24).
const CONTROL_BYTES: usize = 64;

/// Aligned like control messages.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// The arguments and results of `recvmmsg`.
pub(super) struct Incoming {
    headers: Box<[libc::mmsghdr]>,
    rooms: Box<[libc::iovec]>,
    senders: Box<[libc::sockaddr_storage]>,
    control: Box<[Control]>,
}

// SAFETY: the pointers in it are used only inside `receive`, which sets them again on each call.
unsafe impl Send for Incoming {}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Incoming")
    }
}

/// A received datagram's length and control messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrived {
    /// Payload length in bytes.
    pub(super) length: usize,
    /// Whether it was longer than its room.
    pub(super) is_cut: bool,
    /// When the kernel received it, in ns since 1970.
    pub(super) timestamp_ns: Option<u64>,
    /// Number of datagrams that the kernel dropped before it since the socket was opened; the counter wraps. `None` while it is zero.
    pub(super) drops: Option<u32>,
}

/// Creates headers without content.
fn empty_headers() -> Box<[libc::mmsghdr]> {
    // SAFETY: zero is a valid value of every field: no address, no buffer, no control message.
    let empty: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    vec![empty; MAX_BATCH].into()
}

fn empty_rooms() -> Box<[libc::iovec]> {
    vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MAX_BATCH].into()
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self {
            headers: empty_headers(),
            rooms: empty_rooms(),
            // SAFETY: zero is a valid value of every field: no address.
            senders: vec![unsafe { MaybeUninit::zeroed().assume_init() }; MAX_BATCH].into(),
            control: vec![Control([0; CONTROL_BYTES]); MAX_BATCH].into(),
        }
    }

    /// Calls `recvmmsg` once on a non-blocking socket, into the blanks, each at offset `before`. Returns the number of datagrams
    /// received; [`Incoming::arrived`] describes each.
    pub(super) fn receive(
        &mut self,
        socket: &impl AsRawFd,
        blanks: &mut [Blank],
        before: usize,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (index, blank) in blanks.iter_mut().take(MAX_BATCH).enumerate() {
            let room = blank.room_mut().get_mut(before..).unwrap_or_default();
            self.rooms[index] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_name = ptr::from_mut(&mut self.senders[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut self.rooms[index];
            header.msg_iovlen = 1;
            header.msg_control = self.control[index].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
            header.msg_flags = 0;
            count = index + 1;
        }
        // SAFETY: each of the first `count` headers points to a sender, a room and a control buffer, which live until the
        // call is over and are not used elsewhere; the kernel writes no more than the lengths that they state.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(got) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        };
        Ok(got)
    }

    /// Parses the control messages of datagram `index` of the last call, which must be below the number returned.
    #[inline]
    pub(super) fn arrived(&self, index: usize) -> Arrived {
        let message = &self.headers[index];
        let header = &message.msg_hdr;
        let (mut timestamp_ns, mut drops) = (None, None);
        let control = &self.control[index].0;
        let mut at = 0;
        // Each control message is its header, which states the length of both, then the data; the next one is aligned like the
        // header's first field.
        while let Some((head, data)) = control_message(control, at, header.msg_controllen) {
            match (head.cmsg_level, head.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    if let Some((seconds, rest)) = data.split_first_chunk::<8>()
                        && let Some(nanoseconds) = rest.first_chunk::<8>()
                    {
                        let (seconds, nanoseconds) =
                            (i64::from_ne_bytes(*seconds), i64::from_ne_bytes(*nanoseconds));
                        timestamp_ns = u64::try_from(seconds)
                            .ok()
                            .and_then(|seconds| seconds.checked_mul(1_000_000_000))
                            .and_then(|whole| whole.checked_add(u64::try_from(nanoseconds).ok()?));
                    }
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    drops = data.first_chunk().map(|count| u32::from_ne_bytes(*count));
                }
                _ => {}
            }
            at += head.cmsg_len.next_multiple_of(size_of::<usize>());
        }
        Arrived {
            length: message.msg_len as usize,
            is_cut: header.msg_flags & libc::MSG_TRUNC != 0,
            timestamp_ns,
            drops,
        }
    }

    /// Returns the sender of datagram `index` of the last call.
    #[inline]
    pub(super) fn sender(&self, index: usize) -> Option<SocketAddr> {
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: the storage wraps a `sockaddr_storage`.
        unsafe { *storage.view_as::<libc::sockaddr_storage>() = self.senders[index] };
        // SAFETY: the kernel wrote an address of this length, at most the storage's.
        unsafe { SockAddr::new(storage, self.headers[index].msg_hdr.msg_namelen) }.as_socket()
    }
}

/// Returns the header and data of the control message at `at`, if it is complete within the first `length` bytes.
#[inline]
fn control_message(control: &[u8], at: usize, length: usize) -> Option<(libc::cmsghdr, &[u8])> {
    let rest = control.get(..length)?.get(at..)?;
    if rest.len() < size_of::<libc::cmsghdr>() {
        return None;
    }
    // SAFETY: `rest` has this many bytes, and any bytes are valid integers.
    let header = unsafe { rest.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
    // The header's size is a multiple of the alignment, so the data follows immediately.
    Some((header, rest.get(size_of::<libc::cmsghdr>()..header.cmsg_len)?))
}

/// The arguments of `sendmmsg`.
pub(super) struct Outgoing {
    headers: Box<[libc::mmsghdr]>,
    parts: Box<[libc::iovec]>,
}

// SAFETY: the pointers in it are used only inside `send`, which sets them again on each call.
unsafe impl Send for Outgoing {}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Outgoing")
    }
}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self { headers: empty_headers(), parts: empty_rooms() }
    }

    /// Sends each message, up to [`MAX_BATCH`] per call, to an address or to where the socket is bound, and reports the result of
    /// each, in order.
    pub(super) fn send<'b>(
        &mut self,
        socket: &impl AsRawFd,
        to: Option<&SockAddr>,
        messages: impl IntoIterator<Item = &'b [u8]>,
        mut each: impl FnMut(io::Result<()>),
    ) {
        let mut messages = messages.into_iter();
        loop {
            let mut count = 0;
            for message in messages.by_ref().take(MAX_BATCH) {
                // The kernel only reads the bytes that it sends.
                let base = message.as_ptr().cast_mut().cast();
                self.parts[count] = libc::iovec { iov_base: base, iov_len: message.len() };
                let header = &mut self.headers[count].msg_hdr;
                header.msg_name = to.map_or(ptr::null_mut(), |to| to.as_ptr().cast_mut().cast());
                header.msg_namelen = to.map_or(0, SockAddr::len);
                header.msg_iov = &raw mut self.parts[count];
                header.msg_iovlen = 1;
                count += 1;
            }
            if count == 0 {
                return;
            }
            let mut done = 0;
            while done < count {
                // SAFETY: the headers from `done` to `count` point to an address or none and to one message each, which
                // live at least as long as `'b` and the borrow of `to`; the kernel only reads them.
                let sent = unsafe {
                    libc::sendmmsg(
                        socket.as_raw_fd(),
                        self.headers.as_mut_ptr().add(done),
                        (count - done) as libc::c_uint,
                        0,
                    )
                };
                match usize::try_from(sent) {
                    Ok(sent @ 1..) => {
                        (0..sent).for_each(|_| each(Ok(())));
                        done += sent;
                    }
                    _ => {
                        // The first unsent message is the one that was refused.
                        let error = io::Error::last_os_error();
                        if error.kind() != io::ErrorKind::Interrupted {
                            each(Err(error));
                            done += 1;
                        }
                    }
                }
            }
        }
    }
}
