//! Passing messages to the kernel: one call each, one call for many, or no call.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use tapeworks_nic::{MAX_BATCH, Sender, Sent};

use crate::measure::{Ended, Lab, Reporter, Variants};
use crate::results::Scale;
use crate::technique::{Assembly, Published, Technique, Use};

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 64;

type Message = [u8; MESSAGE_BYTES];

/// The cheapest system call: the kernel returns a number that it already has.
#[inline(never)]
#[must_use]
pub fn call_kernel() -> u64 {
    rustix::process::getppid().map_or(0, |id| id.as_raw_nonzero().get().unsigned_abs().into())
}

/// A function that returns a number that it already has.
#[inline(never)]
#[must_use]
pub fn call_function(number: u64) -> u64 {
    black_box(number)
}

/// Writes with one call per message. Returns how many bytes were accepted.
// ANCHOR: baseline
#[inline(never)]
pub fn one_by_one(to: &mut File, messages: &[Message]) -> u64 {
    messages.iter().map(|message| to.write(message).unwrap_or(0) as u64).sum()
}
// ANCHOR_END: baseline

/// Writes with one call per `batch` messages, which are collected first.
// ANCHOR: variant
#[inline(never)]
pub fn in_batches(to: &mut File, collected: &mut Vec<u8>, messages: &[Message], batch: usize) -> u64 {
    let mut taken = 0;
    for part in messages.chunks(batch.max(1)) {
        collected.clear();
        part.iter().for_each(|message| collected.extend_from_slice(message));
        taken += to.write(collected).unwrap_or(0) as u64;
    }
    taken
}
// ANCHOR_END: variant

/// Writes without calls, into memory that another thread or process reads.
// ANCHOR: none
#[inline(never)]
pub fn no_call(memory: &mut [Message], messages: &[Message]) -> u64 {
    let mut taken = 0;
    for (place, message) in memory.iter_mut().zip(messages) {
        *black_box(&mut *place) = *message;
        taken += message.len() as u64;
    }
    taken
}
// ANCHOR_END: none

/// A socket on this machine that receives datagrams, and one connected to it.
struct Sockets {
    receiver: UdpSocket,
    sender: UdpSocket,
    batches: Sender,
}

impl Sockets {
    fn open() -> std::io::Result<Self> {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        receiver.set_read_timeout(Some(Duration::from_secs(1)))?;
        let to: SocketAddr = receiver.local_addr()?;
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        sender.connect(to)?;
        Ok(Self { receiver, sender, batches: Sender::udp(to, None)? })
    }

    /// Receives the sent datagrams, so that the next burst finds room. Returns the sum of the received values.
    fn drain(&self, datagrams: usize) -> u64 {
        let mut buffer = [0; 2 * MESSAGE_BYTES];
        let mut answer = 0;
        for _ in 0..datagrams {
            let Ok(length) = self.receiver.recv(&mut buffer) else { return answer };
            answer += length as u64 + buffer.first().copied().map_or(0, u64::from);
        }
        answer
    }
}

/// Sends with one system call per datagram.
#[inline(never)]
pub fn send_one_by_one(socket: &UdpSocket, messages: &[Message]) -> u64 {
    messages.iter().map(|message| u64::from(socket.send(message).is_ok())).sum()
}

/// Sends with the product's sender: one call for many datagrams.
#[inline(never)]
pub fn send_in_batches(sender: &mut Sender, messages: &[Message]) -> u64 {
    let mut taken = 0;
    sender.send(messages.iter().map(<[u8; MESSAGE_BYTES]>::as_slice), |sent| {
        taken += u64::from(matches!(sent, Sent::Taken));
    });
    taken
}

/// Sends bursts, and drains after each. Only the sending is timed.
fn bursts(
    reporter: &mut Reporter,
    sockets: &mut Sockets,
    messages: &[Message],
    bursts: u64,
    mut send: impl FnMut(&mut Sockets, &[Message]) -> u64,
) -> u64 {
    let (mut took, mut answer) = (Duration::ZERO, 0u64);
    for _ in 0..bursts {
        let began = Instant::now();
        let taken = send(sockets, messages);
        took += began.elapsed();
        answer = answer.wrapping_add(taken).wrapping_add(sockets.drain(messages.len()));
    }
    reporter.figure(took.as_nanos() as f64 / (bursts * messages.len() as u64).max(1) as f64);
    answer
}

fn messages(count: usize) -> Vec<Message> {
    (0..count).map(|number| [number as u8; MESSAGE_BYTES]).collect()
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    const CALLS: u64 = 100;
    lab.experiment("a call that does nothing", "call");
    let parent = call_kernel();
    lab.point(
        0.0,
        "",
        Variants::of(CALLS)
            .add("system call", || (0..CALLS).map(|_| call_kernel()).fold(0, u64::wrapping_add))
            .add("function call", || (0..CALLS).map(|_| call_function(parent)).fold(0, u64::wrapping_add)),
    )?;
    files(lab)?;
    datagrams(lab)
}

fn files(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let open = || {
        File::options()
            .write(true)
            .open("/dev/null")
            .map_err(|error| Ended::Skipped(format!("/dev/null cannot be written: {error}")))
    };
    let (mut single, mut batched) = (open()?, open()?);
    let messages = messages(256);
    let mut memory = vec![[0; MESSAGE_BYTES]; messages.len()];
    let mut collected = Vec::with_capacity(messages.len() * MESSAGE_BYTES);
    lab.experiment("messages of 64 bytes written to a file that takes them and keeps nothing", "message");
    lab.along("messages in a batch", Scale::Logarithmic);
    for batch in lab.either(vec![1usize, 2, 4, 16, 64, 256], vec![1, 16, 256]) {
        lab.point(
            batch as f64,
            &format!("batches of {batch}"),
            Variants::of(messages.len() as u64)
                .add("a call for each", || one_by_one(&mut single, black_box(&messages)))
                .add("a call for a batch", || {
                    in_batches(&mut batched, &mut collected, black_box(&messages), batch)
                })
                .add("no call: into memory", || no_call(&mut memory, black_box(&messages))),
        )?;
    }
    Ok(())
}

fn datagrams(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let open = || Sockets::open().map_err(|error| Ended::Skipped(format!("no UDP sockets: {error}")));
    let (mut single, mut batched) = (open()?, open()?);
    let messages = messages(MAX_BATCH);
    let count = lab.either(50, 3);
    lab.experiment("datagrams of 64 bytes sent to a socket of this machine", "datagram");
    lab.point(
        0.0,
        "",
        Variants::of(count * messages.len() as u64)
            .add_reported("a call for each", |reporter| {
                bursts(reporter, &mut single, &messages, count, |sockets, messages| {
                    send_one_by_one(&sockets.sender, messages)
                })
            })
            .add_reported("a call for 64", |reporter| {
                bursts(reporter, &mut batched, &messages, count, |sockets, messages| {
                    send_in_batches(&mut sockets.batches, messages)
                })
            }),
    )
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 28,
    name: "system-calls",
    title: "System calls",
    question: "What does a call of the kernel cost, and what does a message cost when one call carries many?",
    published: &[Published {
        source: "blog.i0.pm, The cost of a syscall, measured (2019 and 2021)",
        figure: "some 300 ns for getpid on a Skylake with the mitigations of 2018, near 100 ns before; some 500 ns on a Ryzen 3900X",
    }],
    used: &[
        Use { path: "crates/packets/nic/src/sender.rs", what: "sends up to 64 packets by one call" },
        Use { path: "crates/packets/nic/src/udp.rs", what: "receives up to 64 datagrams by one call" },
        Use {
            path: "crates/base/ring/src/broadcast.rs",
            what: "passes events to other processes without a call",
        },
    ],
    assembly: &[
        Assembly {
            variant: "system call",
            symbol: "tapeworks_lab::catalogue::system_calls::call_kernel",
            marks: &["syscall", "call"],
        },
        Assembly {
            variant: "function call",
            symbol: "tapeworks_lab::catalogue::system_calls::call_function",
            marks: &["mov", "ret"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn all_ways_hand_over_the_same_bytes(count in 0usize..100, batch in 0usize..40) {
            let messages = messages(count);
            let bytes = messages.concat();
            let (one, two) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
            let mut memory = vec![[0xff; MESSAGE_BYTES]; count];
            prop_assert_eq!(one_by_one(&mut one.reopen().unwrap(), &messages), bytes.len() as u64);
            let taken = in_batches(&mut two.reopen().unwrap(), &mut Vec::new(), &messages, batch);
            prop_assert_eq!(taken, bytes.len() as u64);
            prop_assert_eq!(no_call(&mut memory, &messages), bytes.len() as u64);
            for mut file in [one, two] {
                let mut found = Vec::new();
                file.read_to_end(&mut found).unwrap();
                prop_assert_eq!(&found, &bytes);
            }
            prop_assert_eq!(memory.concat(), bytes);
        }
    }

    #[test]
    fn both_ways_to_send_bring_every_datagram() {
        let mut sockets = Sockets::open().unwrap();
        for count in [0, 1, 63, 64] {
            let messages = messages(count);
            let came = messages.iter().map(|message| 64 + u64::from(message[0])).sum::<u64>();
            assert_eq!(send_one_by_one(&sockets.sender, &messages), count as u64);
            assert_eq!(sockets.drain(count), came);
            assert_eq!(send_in_batches(&mut sockets.batches, &messages), count as u64);
            assert_eq!(sockets.drain(count), came);
        }
    }

    #[test]
    fn the_kernel_knows_the_parent() {
        assert_eq!(call_kernel(), u64::from(std::os::unix::process::parent_id()));
        assert_eq!(call_function(7), 7);
    }
}
