//! Clients for the venues' snapshot servers: GLIMPSE, the servers of Cboe, London and MEMX, and NYSE's refreshes, which arrive on a
//! multicast group.
//!
//! Each snapshot is fetched by its own thread, which passes the messages to ingest only when the snapshot is complete, so that an
//! endless or torn one puts no message into the journal. Nothing here reads the messages; the end of a snapshot states where the
//! live sequence continues. A fetch ends with its attempt, whether or not the server answers: after a time limit, or when the
//! channel requests a newer snapshot.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, TrySendError};
use std::time::{Duration, Instant};

use tapeworks_capture::LinkType;
use tapeworks_capture::pool::Pool;
use tapeworks_feed::live::{Input, MOST_SNAPSHOT_BYTES, MOST_SNAPSHOT_MESSAGES, SnapshotFault};
use tapeworks_nic::{MAX_BATCH, Received, UdpOptions};
use tapeworks_session::SessionId;
use tapeworks_session::requests::DayTime;
use tapeworks_session::snapshot::{Fetched, SnapshotClient, SnapshotFailure, SnapshotLogin};

use crate::error::PlantFailure;
use crate::options::SnapshotServer;
use crate::queued::Bytes;
use tapeworks_planted::planted;
use tapeworks_runtime::world::{
    BlockingStream as _, DatagramReceiver as _, Receive as _, System, ThreadHandle as _, TrySend as _, World,
};

/// A venue's snapshot server, if it has one.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) server: Option<SnapshotServer>,
    pub(super) login: SnapshotLogin,
    /// The interface on which groups are joined.
    pub(super) interface: Option<Ipv4Addr>,
    /// The time limit of an attempt.
    pub(super) timeout: Duration,
}

/// A request for a snapshot.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) channel: u16,
    pub(super) session: SessionId,
    pub(super) attempt: u32,
}

/// Ingest's requests, and the way for answers back to it.
#[derive(Debug)]
pub(super) struct Requests<W: World = System> {
    pub(super) wanted: W::Receiver<Wanted>,
    pub(super) answers: W::SyncSender<Input<Bytes>>,
    /// By channel: packets of its group that belonged to none of the plant's snapshots.
    pub(super) ignored: Arc<[AtomicU64]>,
}

/// Maximum bytes of messages passed on at once.
const CHUNK_BYTES: usize = 256 << 10;
const CONNECT: Duration = Duration::from_secs(3);
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How often a waiting thread checks whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// How long the thread of a group's snapshot waits for bytes on the connection before it reads the group again.
const GROUP_LOOK: Duration = Duration::from_millis(1);

/// Receive buffer to request from the kernel for a group's socket, in bytes.
const GROUP_BUFFER_BYTES: usize = 16 << 20;

/// Maximum reads of a group before the thread checks its time and its connection.
const MOST_BATCHES: usize = 4;

/// The longest packet of a group, in bytes.
const GROUP_PACKET_BYTES: usize = 2_048;

/// How long a thread with an answer sleeps when ingest has no room.
const REST: Duration = Duration::from_millis(1);

/// Serves ingest's requests until ingest ends or the plant stops.
///
/// # Errors
/// A fetch that panicked.
pub(super) fn run<W: World>(
    servers: &[Server],
    requests: &Requests<W>,
    stop: &Arc<AtomicBool>,
) -> Result<(), PlantFailure> {
    let newest: Vec<_> = servers.iter().map(|_| Arc::new(AtomicU32::new(0))).collect();
    let mut fetches: Vec<W::Handle<()>> = Vec::new();
    loop {
        match requests.wanted.recv_timeout(LOOK) {
            Ok(wanted) => {
                let channel = usize::from(wanted.channel);
                let (Some(server), Some(newest)) = (servers.get(channel), newest.get(channel)) else {
                    continue;
                };
                newest.store(wanted.attempt, Ordering::Release);
                let attempt = Attempt::<W> {
                    wanted,
                    until: W::instant() + server.timeout,
                    newest: Arc::clone(newest),
                    answers: requests.answers.clone(),
                    stop: Arc::clone(stop),
                    ignored: Arc::clone(&requests.ignored),
                };
                let (attempt, server) = (Arc::new(attempt), server.clone());
                let its = Arc::clone(&attempt);
                fetches.retain(|fetch| !fetch.is_finished());
                match W::spawn("snapshot", move || its.run(&server)) {
                    Ok(fetch) => fetches.push(fetch),
                    Err(_) => attempt.fail(SnapshotFault::Abandoned),
                }
            }
            Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Acquire) => {}
            Err(_) => break,
        }
    }
    fetches.into_iter().try_for_each(|fetch| fetch.join().map_err(|_| PlantFailure::Panicked("snapshot")))
}

fn refused(fault: SnapshotFault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}

/// Returns the fault behind an error of a fetch: the protocol's, or else a broken connection.
fn fault_of(error: &io::Error) -> SnapshotFault {
    let inner = error.get_ref();
    if let Some(fault) = inner.and_then(|inner| inner.downcast_ref::<SnapshotFault>()) {
        return *fault;
    }
    match inner.and_then(|inner| inner.downcast_ref::<SnapshotFailure>()) {
        None => SnapshotFault::Unreachable,
        Some(SnapshotFailure::LoginRejected) => SnapshotFault::LoginRejected,
        Some(SnapshotFailure::OtherSession) => SnapshotFault::OtherSession,
        Some(SnapshotFailure::SpinRefused | SnapshotFailure::Refused | SnapshotFailure::RefreshRefused) => {
            SnapshotFault::Refused
        }
        Some(SnapshotFailure::Ended) => SnapshotFault::Ended,
        Some(SnapshotFailure::Torn) => SnapshotFault::Torn,
        Some(SnapshotFailure::RefreshIncomplete) => SnapshotFault::Incomplete,
        Some(_) => SnapshotFault::Malformed,
    }
}

/// The socket of a multicast group that receives snapshots.
struct Group<W: World> {
    receiver: W::DatagramReceiver,
    pool: Pool,
}

impl<W: World> Group<W> {
    fn join(group: SocketAddr, interface: Option<Ipv4Addr>) -> io::Result<Self> {
        let options = UdpOptions {
            listen: group,
            interface,
            receive_buffer_bytes: Some(GROUP_BUFFER_BYTES),
            with_headers: false,
            busy_poll_us: 0,
        };
        // Datagrams without headers: a link type reserved for private use.
        let receiver = W::DatagramReceiver::open(options, LinkType(147))?;
        Ok(Self { receiver, pool: Pool::new(2 * MAX_BATCH, GROUP_PACKET_BYTES) })
    }

    /// Passes received packets to the client, in a limited number of reads, so that a busy group cannot outlast the attempt's time.
    fn receive(&mut self, client: &mut SnapshotClient) -> io::Result<()> {
        for _ in 0..MOST_BATCHES {
            let count = self.receiver.receive(&mut self.pool, MAX_BATCH, 0, |received| match received {
                Received::Packet(packet) => client.receive_datagram(packet.bytes()),
                // No refresh packet is this long: the client ignores and counts it.
                Received::TooLong => client.receive_datagram(&[]),
            })?;
            if count == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// One attempt to fetch a snapshot.
struct Attempt<W: World> {
    wanted: Wanted,
    until: Instant,
    /// The number of the channel's newest attempt.
    newest: Arc<AtomicU32>,
    answers: W::SyncSender<Input<Bytes>>,
    stop: Arc<AtomicBool>,
    /// See [`Requests::ignored`].
    ignored: Arc<[AtomicU64]>,
}

impl<W: World> Attempt<W> {
    fn run(&self, server: &Server) {
        if let Err(error) = self.fetch(server) {
            self.fail(fault_of(&error));
        }
    }

    fn fail(&self, fault: SnapshotFault) {
        let (channel, attempt) = (self.wanted.channel, self.wanted.attempt);
        let failed = Input::SnapshotFailed { channel, attempt, fault, received: W::time_of_day() };
        // If ingest has ended or abandoned the attempt, it needs no answer.
        let _unheard = self.send(failed);
    }

    /// Returns the time left for this attempt.
    ///
    /// # Errors
    /// If nobody waits for this attempt any longer, or its time is up.
    fn time_left(&self) -> io::Result<Duration> {
        if self.stop.load(Ordering::Acquire) {
            return Err(refused(SnapshotFault::Abandoned));
        }
        if self.newest.load(Ordering::Acquire) != self.wanted.attempt {
            return Err(refused(SnapshotFault::Abandoned));
        }
        let left = self.until.saturating_duration_since(W::instant());
        if left.is_zero() {
            return Err(refused(SnapshotFault::TimedOut));
        }
        Ok(left)
    }

    /// Passes an answer to ingest, as long as ingest waits for this attempt.
    fn send(&self, answer: Input<Bytes>) -> io::Result<()> {
        let mut answer = answer;
        loop {
            match self.answers.try_send(answer) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(refused(SnapshotFault::Abandoned)),
                Err(TrySendError::Full(back)) => answer = back,
            }
            self.time_left()?;
            W::sleep(REST);
        }
    }

    /// Passes the messages of a complete snapshot to ingest.
    fn hand_on(&self, messages: &[u8]) -> io::Result<()> {
        let (channel, attempt) = (self.wanted.channel, self.wanted.attempt);
        messages.chunks(CHUNK_BYTES).try_for_each(|chunk| {
            let (received, messages) = (W::time_of_day(), chunk.to_vec());
            self.send(Input::Snapshot { channel, attempt, received, messages: Bytes::Owned(messages) })
        })
    }

    fn fetch(&self, server: &Server) -> io::Result<()> {
        let began = W::instant();
        let now_ns = || W::since(began).as_nanos() as u64;
        let (address, mut client, mut group) =
            match server.server.ok_or_else(|| refused(SnapshotFault::Unreachable))? {
                SnapshotServer::Tcp(address) => {
                    (address, SnapshotClient::new(&server.login, &self.wanted.session), None)
                }
                SnapshotServer::Group { address, group, login } => {
                    // Join before the first request, because the answer goes to those who listen at that time.
                    let group = Group::<W>::join(group, server.interface)?;
                    let client =
                        SnapshotClient::by_group(login, DayTime::new(W::time_of_day().0, 0), now_ns());
                    (address, client.ok_or_else(|| refused(SnapshotFault::LoginRejected))?, Some(group))
                }
            };
        let mut stream = W::BlockingStream::connect(address, CONNECT.min(self.time_left()?))?;
        stream.set_nodelay(true)?;
        let look = if group.is_some() { GROUP_LOOK } else { LOOK };
        stream.set_time_limits(Some(look), Some(CONNECT))?;
        let silence = Duration::from_nanos(client.protocol().silence_ns());
        // Kept here until the snapshot is complete, so that an endless one fills neither the journal nor ingest.
        let (mut messages, mut count) = (Vec::new(), 0);
        let mut buffer = vec![0; 64 << 10];
        let (mut heard, mut spoke) = (W::instant(), W::instant());
        loop {
            self.time_left()?;
            if let Some(group) = &mut group {
                let before = client.ignored();
                group.receive(&mut client)?;
                if let Some(ignored) = self.ignored.get(usize::from(self.wanted.channel)) {
                    ignored.fetch_add(client.ignored() - before, Ordering::Relaxed);
                }
                client.tick(now_ns());
            }
            let output = client.take_output();
            if !output.is_empty() {
                stream.write_all(&output)?;
            }
            if W::since(heard) > silence {
                return Err(refused(SnapshotFault::Silent));
            }
            if W::since(spoke) > HEARTBEAT {
                stream.write_all(client.heartbeat())?;
                spoke = W::instant();
            }
            match stream.read(&mut buffer) {
                Ok(0) => {
                    return Err(refused(SnapshotFault::Ended));
                }
                Ok(read) => {
                    heard = W::instant();
                    client.receive(buffer.get(..read).unwrap_or_default());
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
            let failed = |failure| io::Error::new(io::ErrorKind::InvalidData, failure);
            while let Some(fetched) = client.fetch().map_err(failed)? {
                match fetched {
                    Fetched::Message(message) => {
                        // A packet's length has two bytes, so a message's length fits in two as well.
                        messages.extend_from_slice(&(message.len() as u16).to_be_bytes());
                        messages.extend_from_slice(message);
                        count += 1;
                        if messages.len() > MOST_SNAPSHOT_BYTES || count > MOST_SNAPSHOT_MESSAGES {
                            return Err(refused(SnapshotFault::TooLarge));
                        }
                    }
                    Fetched::End { next } => {
                        let (channel, attempt) = (self.wanted.channel, self.wanted.attempt);
                        if !planted!("snapshot-without-its-end") {
                            self.hand_on(&messages)?;
                        }
                        let (received, bytes) = (W::time_of_day(), messages.len() as u64);
                        self.send(Input::SnapshotEnd { channel, attempt, received, next, bytes })?;
                        // It no longer matters whether the farewell arrives.
                        let _unheard = stream.write_all(client.farewell());
                        return Ok(());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::mpsc::{Sender, channel, sync_channel};

    use super::*;

    /// Accepts connections, reports each, and sends heartbeats until the peer closes.
    fn never_done(listener: &TcpListener, connections: usize, accepted: &Sender<()>) {
        std::thread::scope(|scope| {
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().unwrap();
                accepted.send(()).unwrap();
                scope.spawn(move || {
                    while stream.write_all(b"\0\x01H").is_ok() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                });
            }
        });
    }

    /// Regression: a server that accepted and never finished held a thread and a connection for each attempt.
    #[test]
    fn a_fetch_ends_with_its_attempt_whether_or_not_the_server_answers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let timeout = Duration::from_millis(300);
        let address = listener.local_addr().unwrap();
        let server = Server {
            server: Some(address.into()),
            login: SnapshotLogin::default(),
            interface: None,
            timeout,
        };
        let (accept, accepted) = channel();
        let venue = std::thread::spawn(move || never_done(&listener, 3, &accept));
        let (wants, wanted) = channel();
        let (answers, received) = sync_channel(4);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let all = std::thread::spawn(move || {
            run(&[server], &Requests::<System> { wanted, answers, ignored: Arc::new([]) }, &stopped)
        });
        let session = SessionId::MoldUdp64(*b"2511140000");
        let request = |attempt| {
            wants.send(Wanted { channel: 0, session, attempt }).unwrap();
            accepted.recv_timeout(Duration::from_secs(10)).unwrap();
        };
        let failed = |attempt| match received.recv_timeout(Duration::from_secs(10)).unwrap() {
            Input::SnapshotFailed { channel: 0, attempt: number, .. } => assert_eq!(number, attempt),
            other => panic!("{other:?}"),
        };
        request(1);
        failed(1);
        request(2);
        // A new request ends the previous attempt.
        request(3);
        failed(2);
        failed(3);
        // Every connection is closed: the venue's side has noticed.
        venue.join().unwrap();
        stop.store(true, Ordering::Release);
        drop(wants);
        all.join().unwrap().unwrap();
    }

    #[test]
    fn an_endless_snapshot_fails_at_the_limit_and_reaches_nobody() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = Server {
            server: Some(listener.local_addr().unwrap().into()),
            login: SnapshotLogin::default(),
            interface: None,
            timeout: Duration::from_secs(300),
        };
        let venue = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"\0\x1fA2511140000                   1").unwrap();
            // The longest messages of GLIMPSE, without an end.
            let message = [&[0xff, 0xff, b'S'][..], &[b'x'; 0xfffe]].concat();
            while stream.write_all(&message).is_ok() {}
        });
        let (answers, received) = sync_channel(1);
        let attempt = Attempt::<System> {
            wanted: Wanted { channel: 0, session: SessionId::MoldUdp64(*b"2511140000"), attempt: 7 },
            until: Instant::now() + server.timeout,
            newest: Arc::new(AtomicU32::new(7)),
            answers,
            stop: Arc::new(AtomicBool::new(false)),
            ignored: Arc::new([]),
        };
        attempt.run(&server);
        venue.join().unwrap();
        let answer = received.try_recv().unwrap();
        assert!(
            matches!(answer, Input::SnapshotFailed { attempt: 7, fault: SnapshotFault::TooLarge, .. }),
            "{answer:?}"
        );
        assert!(received.try_recv().is_err());
    }

    /// Ingest that has abandoned an attempt takes no more answers for it.
    #[test]
    fn a_fetch_ends_even_if_its_answers_are_not_taken() {
        let (answers, _received) = sync_channel(0);
        let (newest, stop) = (Arc::new(AtomicU32::new(7)), Arc::new(AtomicBool::new(false)));
        let session = SessionId::MoldUdp64(*b"2511140000");
        let wanted = Wanted { channel: 0, session, attempt: 7 };
        let until = Instant::now() + Duration::from_millis(20);
        let attempt = Attempt::<System> { wanted, until, newest, answers, stop, ignored: Arc::new([]) };
        let error = attempt.hand_on(&[0; 3]).unwrap_err();
        assert!(error.to_string().contains("in time"), "{error}");
    }

    /// Regression: a group that was busier than the thread kept an attempt from ever ending.
    #[test]
    fn a_busy_group_is_left_for_the_time_and_the_connection() {
        let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = receiver.local_addr().unwrap();
        drop(receiver);
        let mut group = Group::<System>::join(address, None).unwrap();
        let login = tapeworks_session::requests::RequestLogin::new(
            tapeworks_session::requests::RequestProtocol::Pillar,
            &tapeworks_session::requests::LoginFields {
                source: "FIRM",
                product: 1,
                channel: 2,
                ..Default::default()
            },
        )
        .unwrap();
        let mut client = SnapshotClient::by_group(login, DayTime::new(0, 0), 0).unwrap();
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let most = (MOST_BATCHES * MAX_BATCH) as u64;
        for _ in 0..most + 10 {
            sender.send_to(b"x", address).unwrap();
        }
        group.receive(&mut client).unwrap();
        assert_eq!(client.ignored(), most);
        group.receive(&mut client).unwrap();
        assert_eq!(client.ignored(), most + 10);
    }

    #[test]
    fn a_packet_of_the_group_that_is_of_no_snapshot_is_counted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let group = receiver.local_addr().unwrap();
        drop(receiver);
        let login = tapeworks_session::requests::RequestLogin::new(
            tapeworks_session::requests::RequestProtocol::Pillar,
            &tapeworks_session::requests::LoginFields {
                source: "FIRM",
                product: 1,
                channel: 2,
                ..Default::default()
            },
        )
        .unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server {
            server: Some(SnapshotServer::Group { address, group, login }),
            login: SnapshotLogin::default(),
            interface: None,
            timeout: Duration::from_secs(20),
        };
        let (answers, _received) = sync_channel(1);
        let ignored: Arc<[AtomicU64]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let stop = Arc::new(AtomicBool::new(false));
        let attempt = Attempt::<System> {
            wanted: Wanted { channel: 1, session: SessionId::Pillar, attempt: 7 },
            until: Instant::now() + server.timeout,
            newest: Arc::new(AtomicU32::new(7)),
            answers,
            stop: Arc::clone(&stop),
            ignored: Arc::clone(&ignored),
        };
        let fetch = std::thread::spawn(move || attempt.fetch(&server));
        // The group is joined before the connection is opened.
        let (_connection, _) = listener.accept().unwrap();
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // The last one is longer than any refresh packet.
        for packet in [&b"x"[..], &[0; 1_400], &[0; 4_000]] {
            sender.send_to(packet, group).unwrap();
        }
        let began = Instant::now();
        let counted = || [0, 1].map(|channel: usize| ignored[channel].load(Ordering::Relaxed));
        while counted() != [0, 3] && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(counted(), [0, 3]);
        stop.store(true, Ordering::Release);
        assert!(fetch.join().unwrap().is_err());
    }
}
