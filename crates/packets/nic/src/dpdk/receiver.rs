//! The receive queue of a DPDK device.
//!
//! DPDK's environment starts once, with the first device that a process opens, and stays until the process ends. By default it
//! would pin the calling thread to a core and write to standard error; both are prevented here. Its own threads sleep.
//!
//! Cost: polling the card's ring is a function call, not a system call; each frame is copied once. Nothing wakes a thread that
//! waits for a device, so the device must be polled. A frame's time is the clock's when it was taken from the ring.
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::ptr;
use std::sync::Mutex;

use tapeworks_capture::LinkType;
use tapeworks_capture::pool::{Description, Pool};
use tapeworks_ring::cpu::allowed_cores;

use super::super::interface::InterfaceError;
use super::super::udp::now_ns;
use super::super::{MAX_BATCH, Received};
use super::{DpdkOptions, MAX_DPDK_BUFFERS};

/// Maximum bytes of DPDK's log shown in an error.
const LOG_BYTES: usize = 256;

/// A frame that belongs to us until it is returned. The layout matches the shim's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Frame {
    held: *mut c_void,
    bytes: *const u8,
    length: u32,
}

impl Frame {
    const NONE: Self = Self { held: ptr::null_mut(), bytes: ptr::null(), length: 0 };
}

// `dpdk/shim.c`.
unsafe extern "C" {
    fn tapeworks_dpdk_lines(to: *mut c_char, room: usize);
    fn tapeworks_dpdk_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn tapeworks_dpdk_open(
        device: *const c_char,
        buffers: u32,
        descriptors: u16,
        promiscuous: c_int,
        port: *mut u16,
        pool: *mut *mut c_void,
        doing: *mut *const c_char,
    ) -> c_int;
    fn tapeworks_dpdk_close(port: u16, pool: *mut c_void);
    fn tapeworks_dpdk_take(port: u16, frames: *mut Frame, most: u16) -> u16;
    fn tapeworks_dpdk_copy(frame: *const Frame, to: *mut u8, room: u32) -> c_int;
    fn tapeworks_dpdk_give_back(frames: *mut Frame, count: u16);
    fn tapeworks_dpdk_counts(port: u16, came: *mut u64, dropped: *mut u64) -> c_int;
    fn tapeworks_dpdk_is_gone(port: u16) -> c_int;
}

/// DPDK's environment.
enum Environment {
    /// Not started yet.
    Idle,
    /// Running with these arguments.
    Runs(Vec<String>),
    /// Failed to start; it cannot be retried.
    Failed(c_int, String),
}

/// This process's environment. The lock ensures that devices are opened and closed one at a time.
static ENVIRONMENT: Mutex<Environment> = Mutex::new(Environment::Idle);

/// Returns what DPDK has logged since the last call.
fn logged() -> String {
    let mut line = [0; LOG_BYTES];
    // SAFETY: the shim writes at most `LOG_BYTES` bytes, and ends them with zero.
    let line = unsafe {
        tapeworks_dpdk_lines(line.as_mut_ptr(), LOG_BYTES);
        CStr::from_ptr(line.as_ptr())
    };
    line.to_string_lossy().into_owned()
}

/// Converts a negated errno into an error.
fn cause(result: c_int, line: &str) -> io::Error {
    let error = io::Error::from_raw_os_error(-result);
    if line.is_empty() { error } else { io::Error::new(error.kind(), format!("{error}: DPDK says: {line}")) }
}

/// Starts DPDK's environment, or verifies that it already runs with the same arguments.
fn start(environment: &mut Environment, wanted: &DpdkOptions) -> Result<(), io::Error> {
    match environment {
        Environment::Runs(arguments) if *arguments == wanted.arguments => return Ok(()),
        Environment::Runs(arguments) => {
            let problem = format!("it runs with the arguments {arguments:?} already");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        Environment::Failed(result, line) => return Err(cause(*result, line)),
        Environment::Idle => {}
    }
    // Nothing is shared with other processes, and only one core takes part: the first one that this thread may use.
    let core = allowed_cores().ok().and_then(|cores| cores.first().copied()).unwrap_or(0);
    // Without huge pages DPDK refuses `--in-memory`.
    let alone = if wanted.arguments.iter().any(|argument| argument == "--no-huge") {
        "--no-shconf"
    } else {
        "--in-memory"
    };
    let own = ["tapeworks", alone, "--no-telemetry", "--log-level=warning", "-l"].map(str::to_owned);
    let mut all: Vec<String> = own.into_iter().chain([core.to_string()]).collect();
    let is_card =
        |device: &str| device.trim_start_matches("pci:").starts_with(|first: char| first.is_ascii_digit());
    if is_card(&wanted.device) {
        // Probe only this card: other cards stay with their owners.
        let card = wanted.device.trim_start_matches("pci:").to_owned();
        all.extend(["-a".to_owned(), card]);
    } else {
        all.push("--no-pci".to_owned());
    }
    all.extend(wanted.arguments.iter().cloned());
    // DPDK keeps some of the arguments, and its option parser reorders them: they are never freed.
    let mut pointers = Vec::with_capacity(all.len() + 1);
    for argument in all {
        let text =
            CString::new(argument).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        pointers.push(text.into_raw());
    }
    pointers.push(ptr::null_mut());
    let pointers = pointers.leak();
    let count = (pointers.len() - 1) as c_int;
    // SAFETY: `count` NUL-terminated strings that are never freed, then null, as `main` gets them. The lock lets one thread in, once.
    let result = unsafe { tapeworks_dpdk_start(count, pointers.as_mut_ptr()) };
    let line = logged();
    if result == 0 {
        *environment = Environment::Runs(wanted.arguments.clone());
        return Ok(());
    }
    let failed = cause(result, &line);
    *environment = Environment::Failed(result, line);
    Err(failed)
}

/// Receives the frames of a DPDK device. It never blocks.
#[derive(Debug)]
pub struct DpdkReceiver {
    name: String,
    port: u16,
    memory: *mut c_void,
    /// Frames taken from the ring and not delivered yet: from `next` to `end`.
    frames: [Frame; MAX_BATCH],
    next: usize,
    end: usize,
    /// Never becomes ready; it exists so that callers that wait on descriptors have one.
    never: UnixDatagram,
}

// SAFETY: the port and its memory belong to this receiver alone, which one thread at a time uses; DPDK binds neither to a thread.
unsafe impl Send for DpdkReceiver {}

impl AsFd for DpdkReceiver {
    /// Returns a descriptor that is never ready: see [`Self::is_ready`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }
}

impl Drop for DpdkReceiver {
    fn drop(&mut self) {
        self.give_back(self.end);
        let _one_at_a_time = ENVIRONMENT.lock();
        // SAFETY: both belong to this receiver, which holds no frame any more.
        unsafe { tapeworks_dpdk_close(self.port, self.memory) };
    }
}

impl DpdkReceiver {
    /// Starts DPDK's environment if this is the first device, then opens and starts the device.
    ///
    /// # Errors
    /// [`InterfaceError::Io`], with what DPDK logged.
    pub fn open(wanted: &DpdkOptions) -> Result<Self, InterfaceError> {
        let name = wanted.device.clone();
        let failed = |doing, cause| InterfaceError::Io { name: wanted.device.clone(), doing, cause };
        let invalid = |problem: &str| io::Error::new(io::ErrorKind::InvalidInput, problem.to_owned());
        if wanted.buffers == 0 || wanted.buffers > MAX_DPDK_BUFFERS {
            return Err(failed("make its buffers", invalid("none, or too many")));
        }
        let device = CString::new(name.as_str()).map_err(|error| failed("name it", error.into()))?;
        let never = UnixDatagram::unbound().map_err(|cause| failed("open a socket to wait by", cause))?;
        // A panic while holding the lock leaves no state that a later open depends on.
        let mut environment = ENVIRONMENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        start(&mut environment, wanted).map_err(|cause| failed("start DPDK for it", cause))?;
        let (mut port, mut memory, mut doing) = (0, ptr::null_mut(), ptr::null());
        // SAFETY: a NUL-terminated string; the shim writes the three results.
        let result = unsafe {
            tapeworks_dpdk_open(
                device.as_ptr(),
                wanted.buffers,
                wanted.descriptors,
                c_int::from(wanted.promiscuous),
                &raw mut port,
                &raw mut memory,
                &raw mut doing,
            )
        };
        let line = logged();
        drop(environment);
        if result != 0 {
            // SAFETY: the shim returns one of its own string literals.
            let doing: &'static CStr = unsafe { CStr::from_ptr(doing) };
            return Err(failed(doing.to_str().unwrap_or("open it"), cause(result, &line)));
        }
        Ok(Self { name, port, memory, frames: [Frame::NONE; MAX_BATCH], next: 0, end: 0, never })
    }

    /// Returns the link type of its frames.
    pub fn link_type(&self) -> LinkType {
        LinkType::ETHERNET
    }

    /// Whether frames are available. If none is left, it polls the card's ring.
    pub fn is_ready(&mut self) -> bool {
        if self.next == self.end {
            self.take();
        }
        self.next < self.end
    }

    /// Checks that the device still exists.
    ///
    /// # Errors
    /// [`InterfaceError::Gone`].
    pub fn check(&self) -> Result<(), InterfaceError> {
        // SAFETY: the port is open.
        match unsafe { tapeworks_dpdk_is_gone(self.port) } {
            0 => Ok(()),
            _ => Err(InterfaceError::Gone { name: self.name.clone() }),
        }
    }

    /// Returns how many frames the device dropped: its ring was full, no buffer was free, or the frame was damaged.
    ///
    /// # Errors
    /// Errors of DPDK.
    pub fn drops(&self) -> Result<u64, InterfaceError> {
        let (mut came, mut dropped) = (0, 0);
        // SAFETY: the port is open; the shim writes the two results.
        match unsafe { tapeworks_dpdk_counts(self.port, &raw mut came, &raw mut dropped) } {
            0 => Ok(dropped),
            result => Err(InterfaceError::Io {
                name: self.name.clone(),
                doing: "read its counts",
                cause: cause(result, ""),
            }),
        }
    }

    /// Takes the available frames from the card's ring. No earlier frame may be left.
    fn take(&mut self) {
        // SAFETY: the port is open, and the array has `MAX_BATCH` entries.
        let count = unsafe { tapeworks_dpdk_take(self.port, self.frames.as_mut_ptr(), MAX_BATCH as u16) };
        (self.next, self.end) = (0, usize::from(count).min(MAX_BATCH));
    }

    /// Returns the frames from `next` to `end` to the device's pool.
    fn give_back(&mut self, end: usize) {
        if let Some(frames) = self.frames.get_mut(self.next..end) {
            // SAFETY: the frames were taken, and are returned once: `next` moves past them.
            unsafe { tapeworks_dpdk_give_back(frames.as_mut_ptr(), frames.len() as u16) };
            self.next = end;
        }
    }

    /// Takes up to `most` available frames, passes each to `each`, and returns their number. Without a free buffer it takes none:
    /// the frames stay in the device's memory.
    ///
    /// # Errors
    /// None at present.
    pub fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        mut each: impl FnMut(Received),
    ) -> Result<usize, InterfaceError> {
        if !self.is_ready() {
            return Ok(0);
        }
        let timestamp_ns = now_ns();
        let (first, end) = (self.next, self.end.min(self.next.saturating_add(most)));
        let mut at = first;
        while let Some(frame) = self.frames.get(at).filter(|_| at < end) {
            let Ok(mut blank) = pool.blank() else { break };
            let length = frame.length as usize;
            if length > pool.packet_bytes() {
                each(Received::TooLong);
                at += 1;
                continue;
            }
            // The room is as long as the pool's packets, and `length` is not longer.
            let Some(room) = blank.room_mut().get_mut(..length) else { break };
            if frame.bytes.is_null() {
                // SAFETY: the frame is ours, and the room is as long as the frame.
                let copied = unsafe { tapeworks_dpdk_copy(frame, room.as_mut_ptr(), frame.length) };
                if copied == 0 {
                    each(Received::TooLong);
                    at += 1;
                    continue;
                }
            } else {
                // SAFETY: the frame is ours until it is returned, and its bytes are contiguous.
                room.copy_from_slice(unsafe { std::slice::from_raw_parts(frame.bytes, length) });
            }
            let description = Description {
                timestamp_ns,
                entered_ns,
                original_length: frame.length,
                link_type: LinkType::ETHERNET,
            };
            each(Received::Packet(blank.fill(length, description)));
            at += 1;
        }
        self.give_back(at);
        Ok(at - first)
    }
}
