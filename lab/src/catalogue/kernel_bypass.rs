//! Ways to receive packets: one system call each, one call for many, or memory shared with the kernel.
//!
//! The receivers are the product's. Ways that need missing privileges are skipped, with the reason, as are ways missing from this build.

mod rates;

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tapeworks_capture::LinkType;
use tapeworks_capture::net::build::FrameBuilder;
use tapeworks_capture::pool::Pool;
use tapeworks_nic::{
    FrameOptions, FrameReceiver, InterfaceError, PacketOptions, Received, Sender, UdpOptions, UdpReceiver,
};
#[cfg(feature = "io-uring")]
use tapeworks_nic::{UringReceiver, UringSocket};

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::technique::{Assembly, Published, Technique, Use};
use crate::threads::{Patience, together};

/// Datagrams sent before any is received.
const BURST: u64 = 32;

/// Bytes per datagram. The first eight are its number, the next eight mark it as ours.
const BYTES: usize = 64;

/// The mark of our datagrams.
const OURS: u64 = 0x7461_7065_776f_726b;

/// How long to wait for expected packets.
const PATIENCE: Duration = Duration::from_secs(5);

/// The link type of bare payloads.
const PAYLOAD: LinkType = LinkType(147);

/// The number of buffers in a pool, and the bytes of each.
const BUFFERS: usize = 1_024;
const BUFFER_BYTES: usize = 2_048;

fn datagram(number: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    if let Some(head) = bytes.first_chunk_mut::<8>() {
        *head = number.to_le_bytes();
    }
    if let Some(mark) = bytes.get_mut(8..16) {
        mark.copy_from_slice(&OURS.to_le_bytes());
    }
    bytes
}

/// Returns the number of one of our datagrams, which is at the end of the packet.
fn number_of(packet: &[u8]) -> Option<u64> {
    let (head, rest) = packet.last_chunk::<BYTES>()?.split_first_chunk::<8>()?;
    let mark = rest.first_chunk::<8>()?;
    (*mark == OURS.to_le_bytes()).then(|| u64::from_le_bytes(*head))
}

/// The received datagrams: how many are ours, and a number that depends on each and on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    count: u64,
    answer: u64,
}

impl Came {
    #[inline]
    fn add(&mut self, packet: &[u8]) {
        if let Some(number) = number_of(packet) {
            self.count += 1;
            self.answer = self.answer.rotate_left(1) ^ number;
        }
    }

    #[inline]
    fn take(&mut self, received: Received) {
        if let Received::Packet(packet) = received {
            self.add(packet.bytes());
        }
    }
}

/// Receives until this many more of our datagrams arrive, or the patience runs out.
#[inline(always)]
fn until_come(
    wanted: u64,
    came: &mut Came,
    mut receive: impl FnMut(&mut Came) -> io::Result<usize>,
) -> io::Result<()> {
    let (began, until) = (Instant::now(), came.count + wanted);
    while came.count < until && began.elapsed() < PATIENCE {
        receive(came)?;
    }
    Ok(())
}

/// Receives with one system call per datagram.
// ANCHOR: baseline
#[inline(never)]
pub fn by_socket(socket: &UdpSocket, wanted: u64, came: &mut Came) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    for _ in 0..wanted {
        let length = socket.recv(&mut buffer)?;
        came.add(buffer.get(..length).unwrap_or_default());
    }
    Ok(())
}
// ANCHOR_END: baseline

/// Receives with one system call for many datagrams.
// ANCHOR: batches
#[inline(never)]
pub fn by_batches(
    receiver: &mut UdpReceiver,
    pool: &mut Pool,
    wanted: u64,
    came: &mut Came,
) -> io::Result<()> {
    until_come(wanted, came, |came| receiver.receive(pool, BURST as usize, 0, |received| came.take(received)))
}
// ANCHOR_END: batches

/// Receives without system calls: frames from a ring shared with the kernel.
// ANCHOR: ring
#[inline(never)]
pub fn by_ring(
    receiver: &mut FrameReceiver,
    pool: &mut Pool,
    wanted: u64,
    came: &mut Came,
) -> io::Result<()> {
    until_come(wanted, came, |came| {
        let took = receiver.receive(pool, BURST as usize, 0, |received| came.take(received));
        took.map_err(io::Error::other)
    })
}
// ANCHOR_END: ring

/// Receives all available datagrams with one system call; a single request stays active.
// ANCHOR: uring
#[cfg(feature = "io-uring")]
#[inline(never)]
pub fn by_uring(
    receiver: &mut UringReceiver,
    pool: &mut Pool,
    wanted: u64,
    came: &mut Came,
) -> io::Result<()> {
    until_come(wanted, came, |came| receiver.receive(pool, BURST as usize, 0, |received| came.take(received)))
}
// ANCHOR_END: uring

/// Opens a socket that sends to another socket on this machine.
fn sender_to(to: SocketAddr) -> io::Result<UdpSocket> {
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    sender.connect(to)?;
    Ok(sender)
}

fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn options(busy_poll_us: u32) -> UdpOptions {
    UdpOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        interface: None,
        receive_buffer_bytes: None,
        with_headers: false,
        busy_poll_us,
    }
}

fn receiver(busy_poll_us: u32) -> io::Result<UdpReceiver> {
    UdpReceiver::open(options(busy_poll_us), PAYLOAD)
}

#[cfg(feature = "io-uring")]
fn uring_socket() -> io::Result<UringSocket> {
    UringSocket::open(options(0), PAYLOAD)
}

/// Sends datagrams with these numbers. Datagrams that cannot be sent are missing from the answer.
fn send(sender: &UdpSocket, numbers: Range<u64>) {
    for number in numbers {
        let _missing_at_worst = sender.send(&datagram(number));
    }
}

/// Waits until the kernel delivers frames. If there are few, it does so a millisecond after the first.
fn until_ready(receiver: &mut FrameReceiver) {
    let (began, mut patience) = (Instant::now(), Patience::new());
    while !receiver.is_ready() && began.elapsed() < PATIENCE {
        patience.pause();
    }
}

/// Sends bursts and receives each after it was sent. Only the receiving is timed.
fn bursts(
    reporter: &mut Reporter,
    count: u64,
    mut send: impl FnMut(Range<u64>),
    mut receive: impl FnMut(u64, &mut Came) -> io::Result<()>,
) -> u64 {
    let (mut came, mut took) = (Came::default(), Duration::ZERO);
    for burst in 0..count {
        send(burst * BURST..(burst + 1) * BURST);
        let began = Instant::now();
        let received = receive(BURST, &mut came);
        took += began.elapsed();
        if received.is_err() {
            break;
        }
    }
    reporter.figure(took.as_nanos() as f64 / (count * BURST) as f64);
    let lost = (count * BURST).saturating_sub(came.count);
    reporter.other("lost, %", lost as f64 * 100.0 / (count * BURST) as f64);
    came.answer
}

/// Converts an error into "skipped" because a system feature is missing.
fn missing(what: &'static str) -> impl Fn(io::Error) -> Ended {
    move |error| Ended::Skipped(format!("{what}: {error}"))
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    receiving(lab)?;
    if !cfg!(feature = "io-uring") {
        lab.skip("io_uring: this program was built without the feature `io-uring`");
    }
    for (name, feature, is_there) in
        [("AF_XDP", "af-xdp", cfg!(feature = "af-xdp")), ("DPDK", "dpdk", cfg!(feature = "dpdk"))]
    {
        if !is_there {
            lab.skip(format!(
                "{name} on a veth pair: this program was built without the feature `{feature}`"
            ));
        }
    }
    for part in [veth, rates::run] {
        match part(lab) {
            Err(Ended::Skipped(why)) => lab.skip(why),
            other => other?,
        }
    }
    round_trips(lab)
}

fn receiving(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let count = lab.either(100, 3);
    let no_socket = missing("no UDP socket");
    let plain = socket().map_err(&no_socket)?;
    let polled = socket().map_err(&no_socket)?;
    polled.set_nonblocking(true).map_err(&no_socket)?;
    let (mut batched, mut busy) = (receiver(0).map_err(&no_socket)?, receiver(50).map_err(&no_socket)?);
    let [plain_from, polled_from, batched_from, busy_from] = [
        plain.local_addr().and_then(sender_to).map_err(&no_socket)?,
        polled.local_addr().and_then(sender_to).map_err(&no_socket)?,
        sender_to(batched.local_address()).map_err(&no_socket)?,
        sender_to(busy.local_address()).map_err(&no_socket)?,
    ];
    let (mut first, mut second, mut third) = (
        Pool::new(BUFFERS, BUFFER_BYTES),
        Pool::new(BUFFERS, BUFFER_BYTES),
        Pool::new(BUFFERS, BUFFER_BYTES),
    );
    // Frames of `lo` reach both the ring and a socket, which receives them so that they are not refused.
    let sink = socket().map_err(&no_socket)?;
    let ring_from = sink.local_addr().and_then(sender_to).map_err(&no_socket)?;
    let mut ring = match FrameReceiver::open(&FrameOptions::Packet(PacketOptions::new("lo"))) {
        Ok(ring) => Some(ring),
        Err(error) => {
            lab.skip(format!("TPACKET_V3: {error}"));
            None
        }
    };
    #[cfg(feature = "io-uring")]
    let mut uring = match uring_socket().and_then(UringSocket::receiver) {
        Ok(receiver) => Some((sender_to(receiver.local_address()).map_err(&no_socket)?, receiver)),
        Err(error) => {
            lab.skip(format!("io_uring: the kernel refuses it: {error}"));
            None
        }
    };
    #[cfg(feature = "io-uring")]
    let mut fourth = Pool::new(BUFFERS, BUFFER_BYTES);
    lab.experiment("datagrams of 64 bytes received, each burst sent before", "datagram");
    // The kernel drops datagrams when its buffer is full; their number is shown.
    let mut variants = Variants::of(count * BURST)
        .answers_differ()
        .add_reported("socket, a call for each", |reporter| {
            bursts(
                reporter,
                count,
                |numbers| send(&plain_from, numbers),
                |wanted, came| by_socket(&plain, wanted, came),
            )
        })
        .add_reported("socket that never blocks", |reporter| {
            bursts(
                reporter,
                count,
                |numbers| send(&polled_from, numbers),
                |wanted, came| by_socket(&polled, wanted, came),
            )
        })
        .add_reported("recvmmsg", |reporter| {
            bursts(
                reporter,
                count,
                |numbers| send(&batched_from, numbers),
                |wanted, came| by_batches(&mut batched, &mut first, wanted, came),
            )
        })
        .add_reported("recvmmsg and SO_BUSY_POLL", |reporter| {
            bursts(
                reporter,
                count,
                |numbers| send(&busy_from, numbers),
                |wanted, came| by_batches(&mut busy, &mut second, wanted, came),
            )
        });
    #[cfg(feature = "io-uring")]
    if let Some((uring_from, uring)) = &mut uring {
        variants = variants.add_reported("io_uring", |reporter| {
            bursts(
                reporter,
                count,
                |numbers| send(uring_from, numbers),
                |wanted, came| by_uring(uring, &mut fourth, wanted, came),
            )
        });
    }
    if let Some(ring) = &mut ring {
        variants = variants.add_reported("TPACKET_V3", |reporter| {
            let ring = RefCell::new(&mut *ring);
            let mut drained = Came::default();
            bursts(
                reporter,
                count,
                |numbers| {
                    send(&ring_from, numbers);
                    let _refused_at_worst = by_socket(&sink, BURST, &mut drained);
                    until_ready(&mut ring.borrow_mut());
                },
                |wanted, came| by_ring(&mut ring.borrow_mut(), &mut third, wanted, came),
            )
        });
    }
    lab.point(0.0, "", variants)
}

/// One side of a round trip.
trait End {
    /// Returns the number of the next datagram; `None` if none has arrived.
    fn next(&mut self) -> io::Result<Option<u64>>;
    fn send(&mut self, number: u64, to: SocketAddr) -> io::Result<()>;
}

/// Opens one side of a round trip on that side's thread.
trait Opens: Send {
    type End: End;
    fn address(&self) -> io::Result<SocketAddr>;
    fn end(self) -> io::Result<Self::End>;
}

impl End for UdpSocket {
    fn next(&mut self) -> io::Result<Option<u64>> {
        let mut buffer = [0; BUFFER_BYTES];
        match self.recv(&mut buffer) {
            Ok(length) => Ok(buffer.get(..length).and_then(number_of)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, number: u64, to: SocketAddr) -> io::Result<()> {
        self.send_to(&datagram(number), to).map(|_| ())
    }
}

impl Opens for UdpSocket {
    type End = Self;

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn end(self) -> io::Result<Self> {
        Ok(self)
    }
}

/// The product's receiver and its buffers.
struct Batches(UdpReceiver, Pool);

impl End for Batches {
    fn next(&mut self) -> io::Result<Option<u64>> {
        let mut number = None;
        self.0.receive(&mut self.1, 1, 0, |received| {
            if let Received::Packet(packet) = received {
                number = number_of(packet.bytes());
            }
        })?;
        Ok(number)
    }

    fn send(&mut self, number: u64, to: SocketAddr) -> io::Result<()> {
        self.0.send_to(&datagram(number), to)
    }
}

impl Opens for Batches {
    type End = Self;

    fn address(&self) -> io::Result<SocketAddr> {
        Ok(self.0.local_address())
    }

    fn end(self) -> io::Result<Self> {
        Ok(self)
    }
}

/// The product's io_uring receiver and its buffers.
#[cfg(feature = "io-uring")]
struct Uring(UringReceiver, Pool);

#[cfg(feature = "io-uring")]
impl End for Uring {
    fn next(&mut self) -> io::Result<Option<u64>> {
        let mut number = None;
        self.0.receive(&mut self.1, 1, 0, |received| {
            if let Received::Packet(packet) = received {
                number = number_of(packet.bytes());
            }
        })?;
        Ok(number)
    }

    fn send(&mut self, number: u64, to: SocketAddr) -> io::Result<()> {
        self.0.send_to(&datagram(number), to)
    }
}

#[cfg(feature = "io-uring")]
impl Opens for UringSocket {
    type End = Uring;

    fn address(&self) -> io::Result<SocketAddr> {
        Ok(self.local_address())
    }

    fn end(self) -> io::Result<Uring> {
        Ok(Uring(self.receiver()?, Pool::new(128, BUFFER_BYTES)))
    }
}

/// Waits for the next number until the patience runs out.
fn awaited(end: &mut impl End) -> io::Result<u64> {
    let began = Instant::now();
    loop {
        if let Some(number) = end.next()? {
            return Ok(number);
        }
        if began.elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Sends a number there and back this many times, and times each trip. The answer depends on the numbers that return.
fn trips(
    reporter: &mut Reporter,
    cores: [usize; 2],
    count: u64,
    [near, far]: [impl Opens; 2],
) -> io::Result<u64> {
    let (to_near, to_far) = (near.address()?, far.address()?);
    let found = together(
        cores,
        move || {
            let mut near = near.end()?;
            let (mut times, mut answer) = (Vec::with_capacity(count as usize), 0u64);
            for number in 0..count {
                let began = Instant::now();
                near.send(number, to_far)?;
                let home = awaited(&mut near)?;
                times.push(began.elapsed().as_nanos() as u64);
                answer = answer.rotate_left(1) ^ home;
            }
            io::Result::Ok((times, answer))
        },
        move || {
            let mut far = far.end()?;
            for _ in 0..count {
                let number = awaited(&mut far)?;
                far.send(number + 1, to_near)?;
            }
            io::Result::Ok(())
        },
    );
    found.two?;
    let (times, answer) = found.one?;
    times.iter().for_each(|ns| reporter.operation_ns(*ns));
    Ok(answer)
}

fn round_trips(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let cores = lab.two_cores()?;
    let count = lab.either(1_000, 50);
    let spinning = || {
        let socket = socket()?;
        socket.set_nonblocking(true)?;
        io::Result::Ok(socket)
    };
    let batches = || io::Result::Ok(Batches(receiver(0)?, Pool::new(64, BUFFER_BYTES)));
    // An error changes the answer, which the harness reports.
    let or_none = |answer: io::Result<u64>| answer.unwrap_or(u64::MAX);
    lab.experiment("one datagram there and back between two threads", "round trip");
    let variants = Variants::of(count)
        .add_reported("socket that blocks", |reporter| {
            let ends = socket().and_then(|near| Ok([near, socket()?]));
            or_none(ends.and_then(|ends| trips(reporter, cores, count, ends)))
        })
        .add_reported("socket that never blocks, busy", |reporter| {
            let ends = spinning().and_then(|near| Ok([near, spinning()?]));
            or_none(ends.and_then(|ends| trips(reporter, cores, count, ends)))
        })
        .add_reported("recvmmsg, busy", |reporter| {
            let ends = batches().and_then(|near| Ok([near, batches()?]));
            or_none(ends.and_then(|ends| trips(reporter, cores, count, ends)))
        });
    // An earlier experiment has checked and reported whether the kernel supports it.
    #[cfg(feature = "io-uring")]
    let variants = if uring_socket().and_then(UringSocket::receiver).is_ok() {
        variants.add_reported("io_uring, busy", |reporter| {
            let ends = uring_socket().and_then(|near| Ok([near, uring_socket()?]));
            or_none(ends.and_then(|ends| trips(reporter, cores, count, ends)))
        })
    } else {
        variants
    };
    lab.point(0.0, "", variants)
}

/// Two interfaces that are the ends of one cable. Dropping the pair removes them.
#[derive(Debug)]
struct Pair {
    near: String,
    far: String,
}

fn ip(words: &[&str]) -> Result<(), Ended> {
    let output = Command::new("ip")
        .args(words)
        .output()
        .map_err(|error| Ended::Skipped(format!("a veth pair: `ip` cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Ended::Skipped(format!("a veth pair: `ip {}`: {why}", words.join(" "))))
}

impl Pair {
    fn new() -> Result<Self, Ended> {
        static PAIRS: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), PAIRS.fetch_add(1, Ordering::Relaxed));
        let pair = Self { near: format!("t{process}a{number}"), far: format!("t{process}b{number}") };
        ip(&["link", "add", &pair.near, "type", "veth", "peer", "name", &pair.far])?;
        ip(&["link", "set", &pair.near, "up"])?;
        ip(&["link", "set", &pair.far, "up"])?;
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _gone_already = ip(&["link", "del", &self.near]);
    }
}

/// Returns the ways to read an interface that this build supports.
fn frame_options(interface: &str) -> Vec<(&'static str, FrameOptions)> {
    vec![
        ("TPACKET_V3", FrameOptions::Packet(PacketOptions::new(interface))),
        #[cfg(feature = "af-xdp")]
        ("AF_XDP", FrameOptions::Xdp(tapeworks_nic::XdpOptions::new(interface))),
        #[cfg(feature = "dpdk")]
        ("DPDK, net_af_packet", dpdk(interface)),
    ]
}

/// Opens an interface of the kernel as a virtual DPDK device, without huge pages.
#[cfg(feature = "dpdk")]
fn dpdk(interface: &str) -> FrameOptions {
    let device = format!("net_af_packet0,iface={interface},framecnt=4096,blocksz=65536");
    FrameOptions::Dpdk(tapeworks_nic::DpdkOptions {
        arguments: ["--no-huge", "-m", "128"].map(str::to_owned).to_vec(),
        buffers: 8_192,
        ..tapeworks_nic::DpdkOptions::new(device)
    })
}

/// Measures frames from one end of a veth pair to the other, by each way.
fn veth(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let pair = Pair::new()?;
    let refused = |error: InterfaceError| Ended::Skipped(format!("a veth pair: {error}"));
    let count = lab.either(50, 2);
    lab.experiment("frames of a veth pair received, each burst sent before", "frame");
    let mut variants = Variants::of(count * BURST).answers_differ();
    for (name, options) in frame_options(&pair.far) {
        // Open once to check whether it is possible, then again for each round: only one way at a time receives the frames.
        drop(FrameReceiver::open(&options).map_err(refused)?);
        let (mut sender, _) = Sender::interface(&pair.near).map_err(refused)?;
        let mut builder = FrameBuilder::to_group(
            [2, 0, 0, 0, 0, 1],
            SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 5_000),
            SocketAddrV4::new(Ipv4Addr::new(233, 54, 12, 111), 26_477),
        );
        let mut pool = Pool::new(BUFFERS, BUFFER_BYTES);
        variants = variants.add_reported(name, move |reporter| {
            let Ok(receiver) = FrameReceiver::open(&options) else { return u64::MAX };
            let receiver = RefCell::new(receiver);
            bursts(
                reporter,
                count,
                |numbers| {
                    for number in numbers {
                        let mut frame = [0; BUFFER_BYTES];
                        let length = builder.udp(&datagram(number), &mut frame).unwrap_or(0);
                        // Frames that are not accepted are missing from the answer.
                        sender.send([frame.get(..length).unwrap_or_default()], |_| {});
                    }
                    until_ready(&mut receiver.borrow_mut());
                },
                |wanted, came| by_ring(&mut receiver.borrow_mut(), &mut pool, wanted, came),
            )
        });
    }
    lab.point(0.0, "", variants)
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 8,
    name: "kernel-bypass",
    title: "Kernel bypass",
    question: "What does each way cost by which packets come past the kernel, or through it?",
    published: &[Published {
        source: "Understanding Delays in AF_XDP-based Applications, arXiv:2402.10513, abstract",
        figure: "round trips by AF_XDP of 6.5 us at best, and settings that lose all of it",
    }],
    used: &[
        Use { path: "crates/packets/nic/src/udp.rs", what: "receives by recvmmsg" },
        Use { path: "crates/packets/nic/src/ring.rs", what: "receives out of a TPACKET_V3 ring" },
        Use { path: "crates/packets/nic/src/xdp.rs", what: "receives by AF_XDP" },
        Use { path: "crates/packets/nic/src/dpdk.rs", what: "receives by DPDK" },
        Use { path: "crates/packets/nic/src/uring.rs", what: "receives by io_uring" },
    ],
    assembly: &[
        Assembly {
            variant: "socket, a call for each",
            symbol: "tapeworks_lab::catalogue::kernel_bypass::by_socket",
            marks: &["call", "syscall"],
        },
        Assembly {
            variant: "TPACKET_V3",
            symbol: "tapeworks_lab::catalogue::kernel_bypass::by_ring",
            marks: &["call", "syscall"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Settings;

    #[test]
    fn a_datagram_has_its_number_at_the_end_of_any_packet() {
        for number in [0, 1, u64::MAX] {
            let bytes = datagram(number);
            assert_eq!(number_of(&bytes), Some(number));
            assert_eq!(number_of(&[&[9; 42], bytes.as_slice()].concat()), Some(number));
        }
        assert_eq!((number_of(&[]), number_of(&[0; BYTES]), number_of(&[0; BYTES - 1])), (None, None, None));
    }

    #[test]
    fn every_way_receives_what_was_sent() {
        let mut expected = Came::default();
        (0..BURST).for_each(|number| expected.add(&datagram(number)));
        let sent_to = |to: SocketAddr| send(&sender_to(to).unwrap(), 0..BURST);
        let plain = socket().unwrap();
        sent_to(plain.local_addr().unwrap());
        let mut came = Came::default();
        by_socket(&plain, BURST, &mut came).unwrap();
        assert_eq!(came, expected);

        let (mut batched, mut pool) = (receiver(0).unwrap(), Pool::new(BUFFERS, BUFFER_BYTES));
        sent_to(batched.local_address());
        let mut came = Came::default();
        by_batches(&mut batched, &mut pool, BURST, &mut came).unwrap();
        assert_eq!(came, expected);

        #[cfg(feature = "io-uring")]
        match uring_socket().and_then(UringSocket::receiver) {
            Ok(mut receiver) => {
                sent_to(receiver.local_address());
                let mut came = Came::default();
                by_uring(&mut receiver, &mut pool, BURST, &mut came).unwrap();
                assert_eq!(came, expected);
            }
            Err(error) => eprintln!("SKIPPED: the kernel refuses io_uring: {error}"),
        }

        let mut ring = match FrameReceiver::open(&FrameOptions::Packet(PacketOptions::new("lo"))) {
            Ok(ring) => ring,
            Err(error) => {
                eprintln!("SKIPPED: frames of `lo` are not received: {error}");
                return;
            }
        };
        let sink = socket().unwrap();
        sent_to(sink.local_addr().unwrap());
        let mut came = Came::default();
        by_ring(&mut ring, &mut pool, BURST, &mut came).unwrap();
        assert_eq!(came, expected);
    }

    #[test]
    fn frames_of_a_veth_pair_come_by_every_way_of_this_build() {
        let mut quiet = |_: &str| {};
        let mut lab = Lab::new(Settings { rounds: 2, ..Settings::QUICK }, &[], 0.0, &mut quiet, &|| false);
        match veth(&mut lab) {
            Ok(()) => {
                let (experiments, _) = lab.into_results();
                let found = &experiments[0].points[0].variants;
                assert_eq!(found.len(), frame_options("any").len());
            }
            Err(Ended::Skipped(why)) => eprintln!("SKIPPED: {why}"),
            Err(ended) => panic!("{ended}"),
        }
    }

    #[test]
    fn datagrams_at_a_rate_come_by_every_way_of_this_build() {
        let mut quiet = |_: &str| {};
        let cores: Vec<usize> = (0..std::thread::available_parallelism().map_or(1, usize::from)).collect();
        let mut lab = Lab::new(Settings { rounds: 2, ..Settings::QUICK }, &cores, 0.0, &mut quiet, &|| false);
        match rates::run(&mut lab) {
            Ok(()) => {
                let (experiments, skipped) = lab.into_results();
                let found = &experiments[0].points[0].variants;
                let ways = 3 + usize::from(cfg!(feature = "io-uring")) + frame_options("any").len();
                assert_eq!(found.len() + skipped.len(), ways, "{skipped:?}");
                assert!(found.len() > 2, "{skipped:?}");
                for way in found {
                    let came = way.tail.as_ref().map_or(0, |tail| tail.count);
                    assert!(came > 0, "{}: {:?}", way.name, way.others);
                }
            }
            Err(Ended::Skipped(why)) => eprintln!("SKIPPED: {why}"),
            Err(ended) => panic!("{ended}"),
        }
    }
}
