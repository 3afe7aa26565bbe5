//! Datagrams at a fixed rate, by every way that this build and machine support: the delay of each datagram, how many are lost, and the
//! receiving thread's share of the processor.
//!
//! The sender writes frames into one end of a veth pair. A frame's time starts when it is due, so the time spent waiting for a late
//! predecessor counts.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use tapeworks_capture::net::build::FrameBuilder;
use tapeworks_capture::pool::Pool;
use tapeworks_nic::{FrameReceiver, Received, Sender, UdpOptions, UdpReceiver};
#[cfg(feature = "io-uring")]
use tapeworks_nic::{UringReceiver, UringSocket};

use super::{BUFFER_BYTES, BUFFERS, BURST, BYTES, OURS, PAYLOAD, Pair, frame_options, ip, missing};
use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::threads::together;

/// The group and the port of the frames, and the addresses of both ends.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 77, 1, 1), 26_477);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const NEAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 5_000);

/// Frames per second.
const RATES: [u64; 3] = [10_000, 100_000, 400_000];

/// How long frames are sent.
const SENT_FOR: Duration = Duration::from_millis(100);

/// The receiver ends when it has all frames, or after this much silence following the last frame.
const QUIET: Duration = Duration::from_millis(50);

/// A way to receive datagrams.
trait Way {
    /// Receives what is available, and passes each packet on.
    fn take(&mut self, pool: &mut Pool, each: &mut dyn FnMut(&[u8])) -> io::Result<usize>;

    /// Returns the descriptor to sleep on; `None` if this way always polls.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn packet(received: Received, each: &mut dyn FnMut(&[u8])) {
    if let Received::Packet(packet) = received {
        each(packet.bytes());
    }
}

impl Way for UdpSocket {
    fn take(&mut self, _pool: &mut Pool, each: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let mut buffer = [0; BUFFER_BYTES];
        match self.recv(&mut buffer) {
            Ok(length) => each(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        }
        Ok(1)
    }
}

impl Way for UdpReceiver {
    fn take(&mut self, pool: &mut Pool, each: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        self.receive(pool, BURST as usize, 0, |received| packet(received, each))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

#[cfg(feature = "io-uring")]
impl Way for UringReceiver {
    fn take(&mut self, pool: &mut Pool, each: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        self.receive(pool, BURST as usize, 0, |received| packet(received, each))
    }
}

impl Way for FrameReceiver {
    fn take(&mut self, pool: &mut Pool, each: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        self.receive(pool, BURST as usize, 0, |received| packet(received, each)).map_err(io::Error::other)
    }
}

/// Returns when one of our datagrams was due, in ns from the beginning; the value ends the packet.
fn due_ns(packet: &[u8]) -> Option<u64> {
    let (head, rest) = packet.last_chunk::<BYTES>()?.split_first_chunk::<8>()?;
    let mark = rest.first_chunk::<8>()?;
    (*mark == OURS.to_le_bytes()).then(|| u64::from_le_bytes(*head))
}

/// Returns this thread's processor time.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The receiving thread's results.
struct Found {
    late_ns: Vec<u64>,
    used: Duration,
    took: Duration,
}

/// When the frames begin, and whether the receiver is open and all frames are sent.
struct Course {
    began: Instant,
    is_open: AtomicBool,
    is_sent: AtomicBool,
}

/// Receives until all frames have arrived or none arrive any more. A failed receive ends it; missing frames count as lost.
fn receive(way: &mut dyn Way, count: u64, sleeps: bool, course: &Course) -> Found {
    let mut pool = Pool::new(BUFFERS, BUFFER_BYTES);
    let mut late_ns = Vec::with_capacity(count as usize);
    let (started, used_before, mut last) = (Instant::now(), used(), Instant::now());
    while (late_ns.len() as u64) < count {
        let taken = way.take(&mut pool, &mut |packet| {
            if let Some(due_ns) = due_ns(packet) {
                late_ns.push((course.began.elapsed().as_nanos() as u64).saturating_sub(due_ns));
            }
        });
        match taken {
            Ok(0) if course.is_sent.load(Ordering::Acquire) && last.elapsed() > QUIET => break,
            Ok(0) if sleeps => {
                let limit = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
                if let Some(descriptor) = way.descriptor() {
                    let _looks_again_at_worst =
                        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit));
                }
            }
            Ok(0) => {}
            Ok(_) => last = Instant::now(),
            Err(_) => break,
        }
    }
    Found { late_ns, used: used().saturating_sub(used_before), took: started.elapsed() }
}

/// Sends each frame when it is due, in bursts when it is late.
fn send(sender: &mut Sender, count: u64, rate: u64, began: Instant) {
    let mut builder = FrameBuilder::to_group([2, 0, 0, 0, 0, 1], NEAR, GROUP);
    let start_ns = began.elapsed().as_nanos() as u64;
    for number in 0..count {
        let due_ns = start_ns + number * 1_000_000_000 / rate;
        while (began.elapsed().as_nanos() as u64) < due_ns {
            std::hint::spin_loop();
        }
        let mut frame = [0; BUFFER_BYTES];
        let length = builder.udp(&super::datagram(due_ns), &mut frame).unwrap_or(0);
        // Frames that are not accepted count as lost.
        sender.send([frame.get(..length).unwrap_or_default()], |_| {});
    }
}

/// Measures frames at one rate by one way.
fn measure(
    reporter: &mut Reporter,
    cores: [usize; 2],
    (near, rate, sleeps): (&str, u64, bool),
    open: &Open,
) -> io::Result<u64> {
    let count = (rate as f64 * SENT_FOR.as_secs_f64()) as u64;
    let (mut sender, _) = Sender::interface(near).map_err(io::Error::other)?;
    let course =
        Course { began: Instant::now(), is_open: AtomicBool::new(false), is_sent: AtomicBool::new(false) };
    let done = together(
        cores,
        || {
            // Opened on the thread that reads, because an io_uring receiver must stay on its thread.
            let way = open();
            course.is_open.store(true, Ordering::Release);
            Ok::<_, io::Error>(receive(&mut *way?, count, sleeps, &course))
        },
        || {
            while !course.is_open.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            send(&mut sender, count, rate, course.began);
            course.is_sent.store(true, Ordering::Release);
        },
    );
    let found = done.one?;
    let lost = count.saturating_sub(found.late_ns.len() as u64);
    found.late_ns.iter().for_each(|ns| reporter.operation_ns(*ns));
    reporter.other("lost, %", lost as f64 * 100.0 / count as f64);
    let share = found.used.as_secs_f64() / found.took.as_secs_f64();
    reporter.other("processor of the receiving thread, %", 100.0 * share);
    Ok(count)
}

/// Opens a way.
type Open = dyn Fn() -> io::Result<Box<dyn Way>> + Sync;

fn options() -> UdpOptions {
    UdpOptions {
        listen: SocketAddr::V4(GROUP),
        interface: Some(FAR),
        receive_buffer_bytes: Some(4 << 20),
        with_headers: false,
        busy_poll_us: 0,
    }
}

fn socket() -> io::Result<Box<dyn Way>> {
    let socket = UdpSocket::bind((*GROUP.ip(), GROUP.port()))?;
    socket.join_multicast_v4(GROUP.ip(), &FAR)?;
    socket.set_nonblocking(true)?;
    Ok(Box::new(socket))
}

fn batches() -> io::Result<Box<dyn Way>> {
    Ok(Box::new(UdpReceiver::open(options(), PAYLOAD)?))
}

#[cfg(feature = "io-uring")]
fn uring() -> io::Result<Box<dyn Way>> {
    Ok(Box::new(UringSocket::open(options(), PAYLOAD)?.receiver()?))
}

/// A name, whether it sleeps until packets arrive, and how to open it.
type Opens = (&'static str, bool, Box<Open>);

fn ways(far: &str) -> Vec<Opens> {
    let mut all: Vec<Opens> = vec![
        ("socket, a call for each", false, Box::new(socket)),
        ("recvmmsg", false, Box::new(batches)),
        ("recvmmsg, sleeps", true, Box::new(batches)),
    ];
    #[cfg(feature = "io-uring")]
    all.push(("io_uring", false, Box::new(uring)));
    for (name, options) in frame_options(far) {
        let open = move || {
            let receiver = FrameReceiver::open(&options).map_err(io::Error::other)?;
            io::Result::Ok(Box::new(receiver) as Box<dyn Way>)
        };
        all.push((name, false, Box::new(open)));
    }
    all
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let cores = lab.two_cores()?;
    let pair = Pair::new()?;
    ip(&["addr", "add", &format!("{FAR}/24"), "dev", &pair.far])?;
    lab.experiment("datagrams at a rate over a veth pair, from when each was due to the program", "datagram");
    for rate in lab.either(RATES.as_slice(), &RATES[..1]) {
        let mut variants = Variants::of(1).answers_differ();
        for (name, sleeps, open) in ways(&pair.far) {
            // Open once to check whether it is possible.
            match open() {
                Ok(_) => {}
                Err(error) if name == "socket, a call for each" => {
                    return Err(missing("no group on a veth pair")(error));
                }
                Err(error) => {
                    variants = variants.skip(format!("{name}: {error}"));
                    continue;
                }
            }
            let near = pair.near.clone();
            variants = variants.add_reported(name, move |reporter| {
                measure(reporter, cores, (&near, *rate, sleeps), &*open).unwrap_or(u64::MAX)
            });
        }
        lab.point(*rate as f64, &format!("{rate} a second"), variants)?;
    }
    Ok(())
}
