//! Frames between the two ends of a veth pair, each test in a separate network namespace; and over `lo`.
use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{EthernetFrame, Ipv4Packet, UdpPacket, UdpRepr};
use tapeworks_capture::LinkType;
use tapeworks_capture::net::build::FrameBuilder;
use tapeworks_capture::net::rewrite::push_tag;
use tapeworks_capture::pool::Pool;

use super::udp::now_ns;
use super::*;

/// Runs `test` on a thread in a new network namespace with a veth pair, `in` and `out`, for this test only. Without permission
/// the test prints that it is skipped; any other failure fails the test.
pub(super) fn with_veth(test: impl FnOnce() + Send) {
    let run = || {
        // SAFETY: the call takes no pointers; the namespace belongs to this thread alone and ends with it.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let why = std::io::Error::last_os_error();
            assert_eq!(why.kind(), std::io::ErrorKind::PermissionDenied, "no network namespace: {why}");
            eprintln!("SKIPPED: no network namespace ({why}): frames of a veth pair are not tested");
            return;
        }
        // Only our frames: if the file does not exist, neither does IPv6.
        let _absent_at_worst = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        for arguments in ["link set lo up", "link add in type veth peer name out"] {
            ip(arguments).unwrap();
        }
        raise(["in", "out"]);
        test();
    };
    thread::scope(|scope| {
        if let Err(panic) = scope.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `ip` and returns what it printed; if it fails, the status and the reason that it gave.
fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| error.to_string())?;
    let [printed, reason] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if output.status.success() {
        Ok(printed)
    } else {
        Err(format!("ip {arguments}: {}: {reason}", output.status))
    }
}

/// Sets both interfaces up and waits until they carry frames. The kernel activates their queues some time after `ip` returns, and
/// drops without a trace what is sent before.
fn raise(interfaces: [&str; 2]) {
    let began = Instant::now();
    loop {
        let set = interfaces.map(|interface| ip(&format!("link set {interface} up")));
        let shown = interfaces.map(|interface| ip(&format!("link show {interface}")));
        let is_active = |shown: &Result<String, String>| {
            shown.as_ref().is_ok_and(|shown| shown.contains(" state UP ") && !shown.contains(" qdisc noop "))
        };
        if shown.iter().all(is_active) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{set:?} {shown:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Numbered frames of a few lengths.
pub(super) fn frames(count: usize) -> Vec<Vec<u8>> {
    let ends = ("10.0.0.1:5000".parse().unwrap(), "233.54.12.111:26477".parse().unwrap());
    let mut builder = FrameBuilder::to_group([2, 0, 0, 0, 0, 1], ends.0, ends.1);
    (0..count)
        .map(|number| {
            let mut frame = vec![0; 2048];
            let payload = vec![number as u8; number % 1400 + 18];
            let length = builder.udp(&payload, &mut frame).unwrap();
            frame.truncate(length);
            frame
        })
        .collect()
}

pub(super) fn send(sender: &mut Sender, frames: &[Vec<u8>]) -> Vec<Sent> {
    let mut sent = Vec::new();
    sender.send(frames.iter().map(Vec::as_slice), |became| sent.push(became));
    assert_eq!(sent.len(), frames.len());
    sent
}

pub(super) fn all_taken(sent: &[Sent]) -> bool {
    sent.iter().all(|sent| matches!(sent, Sent::Taken))
}

/// Receives until `wanted` packets have arrived or a few seconds have passed.
fn receive(receiver: &mut PacketReceiver, pool: &mut Pool, wanted: usize) -> Vec<Received> {
    let began = Instant::now();
    let mut all = Vec::new();
    while all.len() < wanted && began.elapsed() < Duration::from_secs(20) {
        let is_ready = receiver.is_ready();
        let got = receiver.receive(pool, 7, 5, |received| all.push(received)).unwrap();
        assert!(got <= 7 && (got > 0 || !is_ready), "{got}");
        if got == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    all
}

/// Receives up to seven at a time until `wanted` packets have arrived or a few seconds have passed. `turn` returns whether some
/// were available, and how many it received.
#[cfg(any(feature = "af-xdp", feature = "dpdk"))]
pub(super) fn by_sevens(
    wanted: usize,
    mut turn: impl FnMut(&mut Vec<Received>) -> (bool, usize),
) -> Vec<Received> {
    let (began, mut all) = (Instant::now(), Vec::new());
    while all.len() < wanted && began.elapsed() < Duration::from_secs(20) {
        let (is_ready, got) = turn(&mut all);
        assert!(got <= 7 && (got > 0 || !is_ready), "{got}");
    }
    all
}

pub(super) fn bytes(received: &Received) -> &[u8] {
    match received {
        Received::Packet(packet) => packet.bytes(),
        Received::TooLong => panic!("too long"),
    }
}

#[test]
fn frames_come_as_they_were_sent_with_the_time_of_the_kernel() {
    with_veth(|| {
        let mut receiver = PacketReceiver::open(&PacketOptions::new("out")).unwrap();
        assert_eq!(receiver.link_type(), LinkType::ETHERNET);
        let (mut sender, link_type) = Sender::interface("in").unwrap();
        assert_eq!(link_type, LinkType::ETHERNET);
        let sent = frames(3000);
        let mut pool = Pool::new(3001, 2048);
        let before_ns = now_ns();
        assert!(all_taken(&send(&mut sender, &sent)));
        let after_ns = now_ns();
        let all = receive(&mut receiver, &mut pool, sent.len());
        assert!(all.iter().map(bytes).eq(sent.iter().map(Vec::as_slice)));
        let mut last_ns = before_ns;
        for received in &all {
            let Received::Packet(packet) = received else { panic!("{received:?}") };
            let description = packet.description();
            assert!(
                (last_ns..=after_ns + 1_000_000_000).contains(&description.timestamp_ns),
                "{description:?}"
            );
            assert_eq!(
                (description.entered_ns, description.original_length as usize),
                (5, packet.bytes().len())
            );
            last_ns = description.timestamp_ns;
        }
        assert_eq!(receiver.statistics().unwrap(), PacketStatistics { packets: 3000, drops: 0, freezes: 0 });
        assert_eq!(receiver.statistics().unwrap().packets, 3000, "counts since the opening");
        // The sending end sees its own frames only if that is requested.
        let mut sends = PacketReceiver::open(&PacketOptions::new("in")).unwrap();
        let all = PacketOptions { outgoing: true, ..PacketOptions::new("in") };
        let mut sends_too = PacketReceiver::open(&all).unwrap();
        send(&mut sender, &sent[..1]);
        assert_eq!(bytes(&receive(&mut sends_too, &mut pool, 1)[0]), sent[0]);
        assert_eq!(sends.statistics().unwrap().packets, 0);
    });
}

#[test]
fn tags_that_the_kernel_took_off_are_put_back() {
    with_veth(|| {
        let mut receiver = PacketReceiver::open(&PacketOptions::new("out")).unwrap();
        let (mut sender, _) = Sender::interface("in").unwrap();
        let tagged = |frame: &[u8], vlan, ethertype: u16| {
            let mut tagged = [&[0; 4], frame].concat();
            assert!(push_tag(&mut tagged, vlan));
            tagged[12..14].copy_from_slice(&ethertype.to_be_bytes());
            tagged
        };
        let plain = frames(1).remove(0);
        let once = tagged(&plain, 100, 0x8100);
        let twice = tagged(&once, 200, 0x88a8);
        let mut with_priority = tagged(&plain, 5, 0x8100);
        with_priority[14] |= 0xe0;
        let sent = [plain, once, twice, with_priority];
        assert!(all_taken(&send(&mut sender, &sent)));
        let mut pool = Pool::new(8, 2048);
        let all = receive(&mut receiver, &mut pool, sent.len());
        for (received, sent) in all.iter().zip(&sent) {
            assert_eq!(bytes(received), sent);
            let Received::Packet(packet) = received else { panic!("{received:?}") };
            assert_eq!(packet.description().original_length as usize, sent.len());
        }
        let tags: Vec<u8> = all
            .iter()
            .map(|received| match received {
                Received::Packet(packet) => packet.layout().tags,
                Received::TooLong => panic!("too long"),
            })
            .collect();
        assert_eq!(tags, [0, 1, 2, 1]);
    });
}

#[test]
fn frames_without_room_in_the_ring_are_counted_and_later_ones_received() {
    with_veth(|| {
        let small = PacketOptions { block_bytes: 4096, blocks: 2, ..PacketOptions::new("out") };
        let mut receiver = PacketReceiver::open(&small).unwrap();
        let (mut sender, _) = Sender::interface("in").unwrap();
        let mut pool = Pool::new(64, 2048);
        let mut seen = 0;
        for round in 1..=3 {
            assert!(all_taken(&send(&mut sender, &frames(500))));
            thread::sleep(Duration::from_millis(20));
            let mut got = 1;
            while got > 0 {
                got = receiver.receive(&mut pool, 64, 0, drop).unwrap();
                seen += got as u64;
            }
            let counted = receiver.statistics().unwrap();
            assert_eq!(
                (counted.packets, counted.packets - counted.drops),
                (500 * round, seen),
                "{counted:?}"
            );
            assert!(counted.drops > 400 * round && counted.freezes >= round, "{counted:?}");
        }
    });
}

/// Receives `sent`, each frame longer than the one before, with three buffers as long as frame `longest`; polls once while all
/// of them are held. Returns how many were received and how many were reported as too long.
pub(super) fn fitting_and_too_long(
    sent: &[Vec<u8>],
    longest: usize,
    mut receive: impl FnMut(&mut Pool, &mut dyn FnMut(Received)) -> usize,
) -> (usize, usize) {
    let mut pool = Pool::new(3, sent[longest].len());
    let (mut fitting, mut too_long, mut held) = (0, 0, Vec::new());
    while fitting + too_long < sent.len() {
        let taken = receive(&mut pool, &mut |received| match received {
            Received::Packet(packet) => {
                assert_eq!(packet.bytes(), sent[fitting]);
                fitting += 1;
                held.push(packet);
            }
            Received::TooLong => too_long += 1,
        });
        if held.len() == 3 {
            assert_eq!(receive(&mut pool, &mut |_| unreachable!("every buffer is held")), 0);
        }
        if taken == 0 || held.len() == 3 {
            held.clear();
        }
    }
    (fitting, too_long)
}

#[test]
fn without_a_buffer_frames_wait_in_the_ring_and_long_ones_are_reported() {
    with_veth(|| {
        let mut receiver = PacketReceiver::open(&PacketOptions::new("out")).unwrap();
        let (mut sender, _) = Sender::interface("in").unwrap();
        let sent = frames(1000);
        assert!(all_taken(&send(&mut sender, &sent)));
        let counts =
            fitting_and_too_long(&sent, 500, |pool, each| receiver.receive(pool, 64, 0, each).unwrap());
        assert_eq!(counts, (501, 499));
    });
}

#[test]
fn frames_that_an_interface_refuses_are_reported_by_reason() {
    with_veth(|| {
        let (mut sender, _) = Sender::interface("in").unwrap();
        let fine = frames(1).remove(0);
        let sent = send(&mut sender, &[fine.clone(), vec![0; 5], vec![0; 9000], fine.clone()]);
        assert!(
            matches!(sent[..], [Sent::Taken, Sent::Refused, Sent::TooLong, Sent::Taken]),
            "the others go on: {sent:?}"
        );
        assert!(Command::new("ip").args(["link", "set", "in", "down"]).status().unwrap().success());
        let mut sent = send(&mut sender, std::slice::from_ref(&fine));
        let Some(Sent::Failed(error)) = sent.pop() else { panic!("{sent:?}") };
        assert_eq!(sender.describe(error), "interface in is down");
        assert!(Command::new("ip").args(["link", "del", "in"]).status().unwrap().success());
        let mut sent = send(&mut sender, &[fine.clone(), fine]);
        let Some(Sent::Failed(error)) = sent.pop() else { panic!("{sent:?}") };
        assert_eq!(sender.describe(error), "interface in is gone");
    });
}

#[test]
fn a_vanished_interface_is_reported_behind_the_frames_that_came_before() {
    with_veth(|| {
        for (arguments, expected) in [
            (["link", "set", "out", "down"], "interface out is down"),
            (["link", "del", "dev", "out"], "interface out is gone"),
        ] {
            assert!(Command::new("ip").args(["link", "set", "out", "up"]).status().unwrap().success());
            let mut receiver = PacketReceiver::open(&PacketOptions::new("out")).unwrap();
            let (mut sender, _) = Sender::interface("in").unwrap();
            assert!(receiver.check().is_ok());
            assert!(all_taken(&send(&mut sender, &frames(2))));
            assert!(Command::new("ip").args(arguments).status().unwrap().success());
            assert_eq!(receiver.check().unwrap_err().to_string(), expected);
            let mut pool = Pool::new(8, 2048);
            assert_eq!(receive(&mut receiver, &mut pool, 2).len(), 2);
            if expected.ends_with("down") {
                let error = PacketReceiver::open(&PacketOptions::new("out")).unwrap_err();
                assert_eq!(error.to_string(), expected, "nor can it be opened");
            }
        }
    });
}

#[test]
fn the_checksums_of_this_machines_packets_are_completed() {
    with_veth(|| {
        let mut receiver = PacketReceiver::open(&PacketOptions::new("lo")).unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        for length in 0..50 {
            from.send_to(&vec![0xa5; length], to.local_addr().unwrap()).unwrap();
        }
        let mut pool = Pool::new(64, 2048);
        let all = receive(&mut receiver, &mut pool, 50);
        assert_eq!(all.len(), 50, "each once, though it leaves by the interface and comes by it");
        for (length, received) in all.iter().enumerate() {
            let ipv4 =
                Ipv4Packet::new_checked(EthernetFrame::new_checked(bytes(received)).unwrap().payload())
                    .unwrap();
            let (source, destination) = (ipv4.src_addr().into(), ipv4.dst_addr().into());
            let udp = UdpPacket::new_checked(ipv4.payload()).unwrap();
            UdpRepr::parse(&udp, &source, &destination, &ChecksumCapabilities::default()).unwrap();
            assert_eq!(udp.payload(), vec![0xa5; length]);
        }
        assert_eq!(receiver.completed_checksums(), 50);
    });
}

#[test]
fn a_missing_or_forbidden_interface_is_an_error() {
    assert!(names().contains(&"lo".to_owned()) && exists("lo"));
    let open_error = |name: &str| PacketReceiver::open(&PacketOptions::new(name)).unwrap_err().to_string();
    let missing = open_error("nowhere0");
    assert!(missing.starts_with("there is no interface 'nowhere0'; there are lo"), "{missing}");
    for name in ["", "a\0b", "a-name-that-is-too-long"] {
        assert!(!exists(name) && open_error(name).starts_with("there is no interface"), "{name:?}");
    }
    let errors = thread::spawn(move || {
        let nobody = 65534;
        // SAFETY: takes no pointers. The call by its number changes this thread alone, which ends here; where it is not
        // permitted, the thread has no capability to lose.
        unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
        [open_error("lo"), Sender::interface("lo").unwrap_err().to_string()]
    });
    for error in errors.join().unwrap() {
        assert_eq!(
            error,
            "interface lo: not permitted to open a raw socket: it needs the capability CAP_NET_RAW (run as root, or give it \
             to the program by setcap)"
        );
    }
}

#[test]
fn a_ring_of_an_impossible_size_is_an_error() {
    with_veth(|| {
        for (block_bytes, blocks) in [(0, 1), (1000, 4), (4096, 0), (4096, usize::MAX), (usize::MAX, 2)] {
            let options = PacketOptions { block_bytes, blocks, ..PacketOptions::new("lo") };
            let error = PacketReceiver::open(&options).unwrap_err().to_string();
            assert!(error.starts_with("interface lo: cannot ") && error.contains(" its ring: "), "{error}");
        }
    });
}

#[test]
fn payloads_are_sent_in_batches_and_those_too_long_for_udp_are_reported() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut sender = Sender::udp(receiver.local_addr().unwrap(), None).unwrap();
    let mut payloads: Vec<Vec<u8>> = (0..MAX_BATCH as u8 + 20).map(|number| vec![number; 20]).collect();
    payloads[10] = vec![0; 70_000];
    let sent = send(&mut sender, &payloads);
    for (index, sent) in sent.iter().enumerate() {
        assert!(
            if index == 10 { matches!(sent, Sent::TooLong) } else { matches!(sent, Sent::Taken) },
            "{sent:?}"
        );
    }
    let mut buffer = [0; 100];
    for payload in payloads.iter().filter(|payload| payload.len() == 20) {
        let length = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], payload);
    }
    let mut nowhere = Sender::udp("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let Some(Sent::Failed(error)) = send(&mut nowhere, &payloads[..1]).pop() else {
        panic!("sent to port 0")
    };
    assert!(nowhere.describe(error).starts_with("cannot send to 127.0.0.1:0: "));
}

#[cfg(feature = "af-xdp")]
mod xdp {
    use super::*;

    fn receive(receiver: &mut XdpReceiver, pool: &mut Pool, wanted: usize) -> Vec<Received> {
        by_sevens(wanted, |all| {
            let is_ready = receiver.is_ready();
            (is_ready, receiver.receive(pool, 7, 5, |received| all.push(received)).unwrap())
        })
    }

    #[test]
    fn frames_come_in_every_mode() {
        with_veth(|| {
            for mode in XdpMode::ALL {
                let options = XdpOptions { mode, ..XdpOptions::new("out") };
                let mut receiver = XdpReceiver::open(&options).unwrap();
                assert_eq!(receiver.link_type(), LinkType::ETHERNET);
                let (mut sender, _) = Sender::interface("in").unwrap();
                let sent = frames(3000);
                let mut pool = Pool::new(3000, 2048);
                let before_ns = now_ns();
                assert!(all_taken(&send(&mut sender, &sent)));
                let all = receive(&mut receiver, &mut pool, sent.len());
                assert!(all.iter().map(bytes).eq(sent.iter().map(Vec::as_slice)), "{mode:?}");
                let Received::Packet(packet) = &all[0] else { panic!("{all:?}") };
                let description = packet.description();
                assert!((before_ns..=now_ns()).contains(&description.timestamp_ns));
                assert_eq!(
                    (description.entered_ns, description.original_length as usize),
                    (5, sent[0].len())
                );
                assert_eq!(receiver.drops().unwrap(), 0);
            }
        });
    }

    #[test]
    fn frames_without_a_free_chunk_are_counted_and_later_ones_received() {
        with_veth(|| {
            for mode in [XdpMode::Skb, XdpMode::Native] {
                let options = XdpOptions { mode, frames: 64, ..XdpOptions::new("out") };
                let mut receiver = XdpReceiver::open(&options).unwrap();
                let (mut sender, _) = Sender::interface("in").unwrap();
                let mut pool = Pool::new(100, 500);
                let mut seen = 0;
                for round in 1..=3 {
                    assert!(all_taken(&send(&mut sender, &frames(500))));
                    // The kernel may deliver them later; on a busy machine, much later.
                    let began = Instant::now();
                    while receiver.drops().unwrap() < 436 * round && began.elapsed() < Duration::from_secs(10)
                    {
                        thread::sleep(Duration::from_millis(1));
                    }
                    let mut got = 1;
                    while got > 0 {
                        got = receiver.receive(&mut pool, 64, 0, drop).unwrap();
                        seen += got as u64;
                    }
                    assert_eq!(receiver.drops().unwrap() + seen, 500 * round, "{mode:?}");
                    assert_eq!(seen, 64 * round, "{mode:?}");
                }
            }
        });
    }

    #[test]
    fn long_frames_are_reported_and_without_a_buffer_they_wait() {
        with_veth(|| {
            let mut receiver = XdpReceiver::open(&XdpOptions::new("out")).unwrap();
            let (mut sender, _) = Sender::interface("in").unwrap();
            let sent = frames(100);
            assert!(all_taken(&send(&mut sender, &sent)));
            let counts =
                fitting_and_too_long(&sent, 50, |pool, each| receiver.receive(pool, 64, 0, each).unwrap());
            assert_eq!(counts, (51, 49));
        });
    }

    #[test]
    fn a_queue_that_cannot_be_opened_and_an_interface_that_vanishes_are_errors() {
        with_veth(|| {
            let open_error = |options: &XdpOptions| XdpReceiver::open(options).unwrap_err().to_string();
            assert!(open_error(&XdpOptions::new("nowhere0")).starts_with("there is no interface 'nowhere0'"));
            for (options, problem) in [
                (
                    XdpOptions { queue: 9, ..XdpOptions::new("out") },
                    "out: cannot open an AF_XDP socket on this queue: ",
                ),
                (XdpOptions { frames: 100, ..XdpOptions::new("out") }, "out: cannot have so many frames: "),
                (XdpOptions { frames: 0, ..XdpOptions::new("out") }, "out: cannot have so many frames: "),
                (
                    XdpOptions { frames: MAX_XDP_FRAMES * 2, ..XdpOptions::new("out") },
                    "out: cannot have so many frames: ",
                ),
                (
                    XdpOptions { mode: XdpMode::Native, ..XdpOptions::new("lo") },
                    "lo: cannot open an AF_XDP socket on this ",
                ),
            ] {
                let error = open_error(&options);
                assert!(error.starts_with(&format!("interface {problem}")), "{error}");
            }
            let receiver = XdpReceiver::open(&XdpOptions::new("out")).unwrap();
            assert!(receiver.check().is_ok());
            assert!(open_error(&XdpOptions::new("out")).contains("busy"), "the queue has a socket");
            assert!(Command::new("ip").args(["link", "set", "out", "down"]).status().unwrap().success());
            assert_eq!(receiver.check().unwrap_err().to_string(), "interface out is down");
            assert!(Command::new("ip").args(["link", "del", "out"]).status().unwrap().success());
            assert_eq!(receiver.check().unwrap_err().to_string(), "interface out is gone");
        });
    }
}
