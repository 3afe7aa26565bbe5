//! The venues' servers: retransmission by UDP or with requests over TCP, and snapshots by TCP, all on one thread that sleeps
//! while there are no requests.
//!
//! No client can hold up the others: each turn processes a limited number of datagrams or bytes per client, idle connections are
//! closed after a time limit, and when there are too many connections, the oldest one without a login is closed.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::{Interest, Token};
use tapeworks_nic::Sent;
use tapeworks_random::Random;
use tapeworks_runtime::pump::{ByteSession, Pump};
use tapeworks_runtime::world::{
    DatagramSender, Listener as _, Poll as _, Receive as _, SendTo as _, Source as _, UdpServer, Wake as _,
    World,
};
use tapeworks_session::requests::{
    DayTime, RequestProtocol, RequestServer, RequestServerEnd, RequestStatus, ServerLimits,
};
use tapeworks_session::snapshot::{Image, SnapshotEnd, SnapshotProtocol, SnapshotServer};
use tapeworks_session::{Credentials, Refusal, Request, Store};

use crate::answers::{self, AnswerFaults, Wrong};
use crate::report::{Counters, add};

/// Maximum number of simultaneous connections, over all venues.
const MOST_CONNECTIONS: usize = 512;
/// Maximum number of datagrams or connections processed per socket and turn.
const MOST_IN_TURN: usize = 64;
/// Number of a snapshot's packets sent to a group between two pauses, and the length of a pause.
const PACKETS_IN_PAUSE: usize = 8;
const PAUSE: Duration = Duration::from_millis(1);
/// How often the time limits of connections are checked.
const TICK: Duration = Duration::from_millis(100);

/// Maximum number of late answers waiting, over all venues. Further answers are lost.
const MOST_LATE: usize = 4_096;

const WAKER: Token = Token(0);

/// A connection's request for an image, sent to the thread that runs the market.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageRequest {
    pub(crate) connection: usize,
    pub(crate) venue: usize,
}

/// The answer to an `ImageRequest`.
#[derive(Debug)]
pub(crate) struct ImageReply {
    pub(crate) connection: usize,
    pub(crate) image: Arc<Image>,
}

/// An answer that is deliberately sent late.
#[derive(Debug)]
struct Late {
    venue: usize,
    /// The client that requested it; `None` if it goes to the venue's group.
    client: Option<SocketAddr>,
    messages: u16,
    answer: Vec<u8>,
}

/// A venue's server for requests over TCP.
#[derive(Debug)]
pub(crate) struct RequestsByTcp<W: World> {
    pub(crate) listener: W::Listener,
    /// Sends the answers to a group; `None` if they go over the connection.
    pub(crate) sender: Option<W::DatagramSender>,
    pub(crate) protocol: RequestProtocol,
    pub(crate) store: Arc<Mutex<Store>>,
}

/// A venue's server for snapshots.
#[derive(Debug)]
pub(crate) struct Snapshots<W: World> {
    pub(crate) listener: W::Listener,
    pub(crate) protocol: SnapshotProtocol,
    /// Sends snapshots that go to a group.
    pub(crate) group: Option<W::DatagramSender>,
}

/// The listening servers of one venue.
#[derive(Debug)]
pub(crate) struct Listening<W: World> {
    pub(crate) retransmission: Option<(W::UdpServer, Arc<Mutex<Store>>)>,
    pub(crate) requests: Option<RequestsByTcp<W>>,
    pub(crate) lost_per_million: u32,
    pub(crate) faults: AnswerFaults,
    pub(crate) snapshot: Option<Snapshots<W>>,
    pub(crate) counters: Arc<Counters>,
}

#[derive(Debug)]
struct Connection<W: World> {
    venue: usize,
    pump: Pump<W>,
    session: Session,
    /// Whether its image was requested, or it has logged in for requests.
    is_requested: bool,
    /// Whether its image is being made.
    awaits_image: bool,
}

/// The service of a TCP server.
#[derive(Debug, Clone, Copy)]
enum Served {
    Requests(RequestProtocol),
    Snapshots(SnapshotProtocol),
}

/// A client's session with a TCP server.
#[derive(Debug)]
enum Session {
    Snapshot(SnapshotServer),
    Requests(Box<RequestServer>),
}

impl Session {
    /// Sets the time of day, for packets that carry it.
    fn set_day_time(&mut self, day_time: DayTime) {
        match self {
            Self::Snapshot(server) => server.set_day_time(day_time),
            Self::Requests(server) => server.set_day_time(day_time),
        }
    }

    fn tick(&mut self, now_ns: u64) {
        match self {
            Self::Snapshot(server) => server.tick(now_ns),
            Self::Requests(server) => server.tick(now_ns),
        }
    }
}

impl ByteSession for Session {
    fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        match self {
            Self::Snapshot(server) => server.receive(bytes, now_ns),
            Self::Requests(server) => server.receive(bytes, now_ns),
        }
    }

    fn output(&self) -> &[u8] {
        match self {
            Self::Snapshot(server) => server.output(),
            Self::Requests(server) => server.output(),
        }
    }

    fn sent(&mut self, bytes: usize, now_ns: u64) {
        match self {
            Self::Snapshot(server) => server.sent(bytes, now_ns),
            Self::Requests(server) => server.sent(bytes, now_ns),
        }
    }

    fn closed(&mut self) {
        match self {
            Self::Snapshot(server) => server.closed(),
            Self::Requests(server) => server.closed(),
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Snapshot(server) => server.over().is_some(),
            Self::Requests(server) => server.over().is_some(),
        }
    }
}

/// Sends an answer containing `messages` messages to a venue's group.
fn send_to_group(sender: &mut impl DatagramSender, answer: &[u8], messages: u16, counters: &Counters) {
    sender.send([answer], |sent| match sent {
        Sent::Taken => {
            add(&counters.answers, 1);
            add(&counters.answered_messages, u64::from(messages));
        }
        _ => add(&counters.refused_by_kernel, 1),
    });
}

/// Sends an answer containing `messages` messages to a client.
fn send(socket: &impl UdpServer, answer: &[u8], (client, messages): (SocketAddr, u16), counters: &Counters) {
    match socket.send_to(answer, client) {
        Ok(_) => {
            add(&counters.answers, 1);
            add(&counters.answered_messages, u64::from(messages));
        }
        Err(_) => add(&counters.refused_by_kernel, 1),
    }
}

/// The state of the servers' thread.
pub(crate) struct Servers<W: World> {
    poll: W::Poll,
    waker: Arc<W::Waker>,
    venues: Vec<Listening<W>>,
    connections: BTreeMap<usize, Connection<W>>,
    next_connection: usize,
    credentials: Option<Credentials>,
    requests: W::Sender<ImageRequest>,
    /// Wakes the thread that receives the requests, if it waits for something else.
    market: Option<Arc<W::Waker>>,
    replies: W::Receiver<ImageReply>,
    random: Random,
    began: Instant,
    /// Sockets with more input than a turn allows.
    again: Vec<Token>,
    /// Connections with more packets for a group after a pause.
    paced: Vec<Token>,
    /// Listeners that could not accept: there were no descriptors left, or the client had disconnected.
    at_tick: Vec<Token>,
    answer: Vec<u8>,
    /// By send time, in nanoseconds since `began`, and a number.
    late: BTreeMap<(u64, u64), Late>,
    next_late: u64,
    buffer: Vec<u8>,
}

impl<W: World> Servers<W> {
    pub(crate) fn new(
        venues: Vec<Listening<W>>,
        credentials: Option<Credentials>,
        seed: u64,
        requests: W::Sender<ImageRequest>,
        market: Option<Arc<W::Waker>>,
        replies: W::Receiver<ImageReply>,
    ) -> io::Result<Self> {
        let poll = W::Poll::new(256)?;
        let waker = Arc::new(poll.waker(WAKER)?);
        let mut servers = Self {
            poll,
            waker,
            next_connection: 1 + 2 * venues.len(),
            venues,
            connections: BTreeMap::new(),
            credentials,
            requests,
            market,
            replies,
            random: Random::new(seed ^ 0x7265_7175_6573_7473),
            began: W::instant(),
            again: Vec::new(),
            paced: Vec::new(),
            at_tick: Vec::new(),
            answer: Vec::new(),
            late: BTreeMap::new(),
            next_late: 0,
            buffer: vec![0; 64 << 10],
        };
        for (index, venue) in servers.venues.iter_mut().enumerate() {
            if let Some((socket, _)) = &mut venue.retransmission {
                socket.register(&servers.poll, Token(1 + 2 * index), Interest::READABLE)?;
            }
            if let Some(requests) = &mut venue.requests {
                requests.listener.register(&servers.poll, Token(1 + 2 * index), Interest::READABLE)?;
            }
            if let Some(Snapshots { listener, .. }) = &mut venue.snapshot {
                listener.register(&servers.poll, Token(2 + 2 * index), Interest::READABLE)?;
            }
        }
        Ok(servers)
    }

    /// Returns the waker, used after an image was sent to the thread and to stop it.
    pub(crate) fn waker(&self) -> Arc<W::Waker> {
        Arc::clone(&self.waker)
    }

    /// Serves until `stop` is set.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut reported = Vec::with_capacity(256);
        let (mut ticked, mut paused) = (W::instant(), W::instant());
        while !stop.load(Ordering::Acquire) {
            let timeout = if self.again.is_empty() { self.send_late() } else { Duration::ZERO };
            let timeout = if self.paced.is_empty() { timeout } else { timeout.min(PAUSE) };
            self.poll.wait(&mut reported, Some(timeout))?;
            let mut ready = std::mem::take(&mut self.again);
            if !self.paced.is_empty() && W::since(paused) >= PAUSE {
                paused = W::instant();
                ready.append(&mut self.paced);
            }
            for one in &reported {
                if let Some(client) = self.connections.get_mut(&one.token.0) {
                    client.pump.note(*one);
                }
                ready.push(one.token);
            }
            ready.sort_unstable();
            ready.dedup();
            for token in ready {
                self.serve(token);
            }
            while let Ok(ImageReply { connection, image }) = self.replies.try_recv() {
                let now_ns = self.now_ns();
                let client = self.connections.get_mut(&connection);
                if let Some(Connection { session: Session::Snapshot(server), awaits_image, .. }) = client {
                    server.give(image, now_ns);
                    *awaits_image = false;
                }
                self.move_bytes(connection);
            }
            if W::since(ticked) >= TICK {
                ticked = W::instant();
                self.again.append(&mut self.at_tick);
                let now_ns = self.now_ns();
                let all: Vec<usize> = self.connections.keys().copied().collect();
                for connection in all {
                    if let Some(client) = self.connections.get_mut(&connection) {
                        client.session.tick(now_ns);
                    }
                    self.move_bytes(connection);
                }
            }
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        W::since(self.began).as_nanos() as u64
    }

    fn serve(&mut self, token: Token) {
        let Token(number) = token;
        if token == WAKER {
            return;
        }
        let of_venue = number - 1;
        if of_venue >= 2 * self.venues.len() {
            self.move_bytes(number);
        } else {
            let venue = of_venue / 2;
            let is_for_requests = of_venue.is_multiple_of(2);
            if is_for_requests && self.venues.get(venue).is_some_and(|venue| venue.requests.is_none()) {
                self.answer_requests(venue, token);
            } else {
                self.accept(venue, is_for_requests, token);
            }
        }
    }

    fn answer_requests(&mut self, venue: usize, token: Token) {
        let now_ns = self.now_ns();
        let Some(Listening {
            retransmission: Some((socket, store)), lost_per_million, faults, counters, ..
        }) = self.venues.get(venue)
        else {
            return;
        };
        for _ in 0..MOST_IN_TURN {
            let (length, client) = match socket.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The error of an earlier answer, such as a closed port.
                Err(_) => continue,
            };
            add(&counters.requests, 1);
            let request = self.buffer.get(..length).unwrap_or_default();
            let wrong = faults.draw(&mut self.random);
            let answered = answers::answer(
                &store.lock().unwrap_or_else(PoisonError::into_inner),
                request,
                wrong,
                W::time_of_day().0,
                &mut self.random,
                &mut self.answer,
            );
            match answered {
                Err(refusal) => counters.refuse(refusal),
                Ok(_) if self.random.chance(*lost_per_million) => add(&counters.lost, 1),
                Ok(messages) => {
                    add(&counters.wrong, u64::from(wrong.is_some()));
                    if wrong != Some(Wrong::Late) {
                        for _ in 0..answers::times(wrong) {
                            send(socket, &self.answer, (client, messages), counters);
                        }
                    } else if self.late.len() < MOST_LATE {
                        let most = u32::try_from(faults.late_ns).unwrap_or(u32::MAX);
                        let due_ns = now_ns.saturating_add(u64::from(self.random.below(most)));
                        let (client, answer) = (Some(client), self.answer.clone());
                        self.late.insert((due_ns, self.next_late), Late { venue, client, messages, answer });
                        self.next_late += 1;
                    } else {
                        add(&counters.lost, 1);
                    }
                }
            }
        }
        self.again.push(token);
    }

    /// Sends the late answers that are due. Returns how long to wait for the next one, at most a tick.
    fn send_late(&mut self) -> Duration {
        let now_ns = self.now_ns();
        while let Some(first) = self.late.first_entry() {
            let (due_ns, _) = *first.key();
            if due_ns > now_ns {
                return TICK.min(Duration::from_nanos(due_ns - now_ns));
            }
            let Late { venue, client, messages, answer } = first.remove();
            let Some(Listening { retransmission, requests, counters, .. }) = self.venues.get_mut(venue)
            else {
                continue;
            };
            match (client, retransmission, requests) {
                (Some(client), Some((socket, _)), _) => send(socket, &answer, (client, messages), counters),
                (None, _, Some(RequestsByTcp { sender: Some(sender), .. })) => {
                    send_to_group(sender, &answer, messages, counters);
                }
                _ => {}
            }
        }
        TICK
    }

    /// Answers the requests of a connection.
    fn answer_connection(&mut self, number: usize) {
        let of_connection = |connection: &mut Connection<W>| match &mut connection.session {
            Session::Requests(server) => {
                connection.is_requested |= server.is_ready();
                server.next_request().map(|request| (connection.venue, request))
            }
            Session::Snapshot(_) => None,
        };
        while let Some((venue, request)) = self.connections.get_mut(&number).and_then(of_connection) {
            let (status, packets) = self.answer_by_tcp(venue, request);
            let now_ns = self.now_ns();
            let connection = self.connections.get_mut(&number);
            if let Some(Connection { session: Session::Requests(server), .. }) = connection {
                server.answer_with(status, &packets, now_ns);
            }
        }
    }

    /// Sends the messages requested over TCP to the venue's group. Returns the status for the client, and the packets of messages
    /// to send over its connection instead.
    fn answer_by_tcp(&mut self, venue: usize, request: Request) -> (RequestStatus, Vec<Vec<u8>>) {
        let now_ns = self.now_ns();
        let Some(Listening { requests: Some(requests), lost_per_million, faults, counters, .. }) =
            self.venues.get_mut(venue)
        else {
            return (RequestStatus::Unavailable, Vec::new());
        };
        add(&counters.requests, 1);
        let wrong = faults.draw(&mut self.random);
        let store = requests.store.lock().unwrap_or_else(PoisonError::into_inner);
        let (time_ns, kept) = (W::time_of_day().0, store.kept());
        let mut answered = answers::answer_in_parts(&store, request, wrong, time_ns, &mut self.random);
        if answered == Err(Refusal::NotKept) {
            // NYSE's server reports the messages that it no longer has, and sends the rest.
            let end = request.first.saturating_add(u64::from(request.count));
            let gone = request.first..end.min(kept.start);
            if let Some(unavailable) = store.transport().write_unavailable(gone, time_ns) {
                counters.refuse(Refusal::NotKept);
                let rest = Request {
                    first: kept.start,
                    count: u16::try_from(end.saturating_sub(kept.start)).unwrap_or(u16::MAX),
                    ..request
                };
                let parts = answers::answer_in_parts(&store, rest, None, time_ns, &mut self.random);
                answered = Ok(parts.unwrap_or_default());
                answered.iter_mut().for_each(|parts| parts.insert(0, (unavailable.clone(), 0)));
            }
        }
        drop(store);
        let parts = match answered {
            Ok(parts) => parts,
            Err(refusal) => {
                counters.refuse(refusal);
                let status = match refusal {
                    Refusal::NotSent | Refusal::NotKept => RequestStatus::OutOfRange,
                    Refusal::UnknownSession => RequestStatus::InvalidChannel,
                    _ => RequestStatus::InvalidMessage,
                };
                return (status, Vec::new());
            }
        };
        add(&counters.wrong, u64::from(wrong.is_some()));
        let due_ns = (wrong == Some(Wrong::Late)).then(|| {
            let most = u32::try_from(faults.late_ns).unwrap_or(u32::MAX);
            now_ns.saturating_add(u64::from(self.random.below(most)))
        });
        let mut over_connection = Vec::new();
        let parts = std::iter::repeat_n(parts, answers::times(wrong)).flatten();
        for (answer, messages) in parts {
            match (due_ns, &mut requests.sender) {
                _ if self.random.chance(*lost_per_million) => add(&counters.lost, 1),
                // A connection preserves order, so an answer on it cannot be late by itself.
                (_, None) => {
                    add(&counters.answers, 1);
                    add(&counters.answered_messages, u64::from(messages));
                    over_connection.push(answer);
                }
                (None, Some(sender)) => send_to_group(sender, &answer, messages, counters),
                (Some(due_ns), _) if self.late.len() < MOST_LATE => {
                    self.late
                        .insert((due_ns, self.next_late), Late { venue, client: None, messages, answer });
                    self.next_late += 1;
                }
                (Some(_), _) => add(&counters.lost, 1),
            }
        }
        (RequestStatus::Accepted, over_connection)
    }

    fn accept(&mut self, venue: usize, is_for_requests: bool, token: Token) {
        for _ in 0..MOST_IN_TURN {
            let Some(Listening { requests, snapshot, .. }) = self.venues.get(venue) else { return };
            let listening = match is_for_requests {
                true => requests.as_ref().map(|one| (&one.listener, Served::Requests(one.protocol))),
                false => snapshot.as_ref().map(|one| (&one.listener, Served::Snapshots(one.protocol))),
            };
            let Some((listener, served)) = listening else { return };
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.at_tick.push(token);
                    return;
                }
            };
            let counters = Arc::clone(&self.venues[venue].counters);
            add(&counters.connections, u64::from(!is_for_requests));
            if self.connections.len() >= MOST_CONNECTIONS && !self.drop_a_stranger() {
                add(&counters.refused, 1);
                continue;
            }
            let number = self.next_connection;
            self.next_connection += 1;
            let registered =
                stream.register(&self.poll, Token(number), Interest::READABLE | Interest::WRITABLE);
            if registered.is_err() {
                add(&counters.refused, 1);
                continue;
            }
            let now_ns = self.now_ns();
            let session = match served {
                Served::Requests(protocol) => {
                    // The lines here lose more than real ones, so requests per minute and per day are unlimited.
                    let (per_minute, per_day) = (u32::MAX, u32::MAX);
                    let limits = ServerLimits { per_minute, per_day, ..ServerLimits::of(protocol) };
                    let mut server = RequestServer::new(protocol, None, limits, now_ns);
                    if let Some(requests) = self.venues.get(venue).and_then(|venue| venue.requests.as_ref()) {
                        let store = requests.store.lock().unwrap_or_else(PoisonError::into_inner);
                        store.session().into_iter().for_each(|session| server.set_session(session));
                    }
                    Session::Requests(Box::new(server))
                }
                Served::Snapshots(protocol) => {
                    Session::Snapshot(SnapshotServer::new(protocol, self.credentials.clone(), now_ns))
                }
            };
            let pump = Pump::new(stream);
            let connection = Connection { venue, pump, session, is_requested: false, awaits_image: false };
            self.connections.insert(number, connection);
        }
        self.again.push(token);
    }

    /// Closes the oldest connection that has not logged in. Returns whether there was one.
    fn drop_a_stranger(&mut self) -> bool {
        let oldest =
            self.connections.iter().find(|(_, client)| !client.is_requested).map(|(number, _)| *number);
        let Some(client) = oldest.and_then(|number| self.connections.remove(&number)) else { return false };
        add(&self.venues[client.venue].counters.refused, 1);
        true
    }

    /// Reads from a client's socket into its session, and writes the session's output.
    fn move_bytes(&mut self, number: usize) {
        let now_ns = self.now_ns();
        let Some(client) = self.connections.get_mut(&number) else { return };
        if client.pump.is_finished() {
            if !client.pump.drain(&mut self.buffer, now_ns) {
                self.close(number);
            }
            return;
        }
        client.session.set_day_time(DayTime::new(W::time_of_day().0, now_ns));
        client.pump.turn(&mut client.session, &mut self.buffer, now_ns);
        match &client.session {
            Session::Snapshot(_) => self.after_snapshot(number, now_ns),
            Session::Requests(_) => self.after_requests(number, now_ns),
        }
    }

    /// Continues with a requests client after moving its bytes.
    fn after_requests(&mut self, number: usize, now_ns: u64) {
        self.answer_connection(number);
        let Some(client) = self.connections.get_mut(&number) else { return };
        let Session::Requests(server) = &client.session else { return };
        match server.over() {
            None => {
                if client.pump.has_work(server.output()) {
                    self.again.push(Token(number));
                }
            }
            Some(RequestServerEnd::Refused) if client.pump.finish(now_ns) => self.again.push(Token(number)),
            Some(_) => self.close(number),
        }
    }

    /// Continues with a snapshot client after moving its bytes.
    fn after_snapshot(&mut self, number: usize, now_ns: u64) {
        self.send_to_snapshot_group(number);
        let Some(client) = self.connections.get_mut(&number) else { return };
        let Session::Snapshot(server) = &mut client.session else { return };
        if server.wants_image() && !client.awaits_image {
            (client.is_requested, client.awaits_image) = (true, true);
            let request = ImageRequest { connection: number, venue: client.venue };
            if self.requests.send(request).is_err() {
                server.closed();
            } else if let Some(market) = &self.market {
                // If this fails, the request waits for the market's next turn.
                let _ = market.wake();
            }
        }
        let Some(end) = server.over() else {
            if client.pump.has_work(server.output()) {
                self.again.push(Token(number));
            }
            return;
        };
        let counters = &self.venues[client.venue].counters;
        counters.end(end);
        add(&counters.snapshot_unanswered, server.unanswered());
        if end == SnapshotEnd::Served {
            add(&counters.snapshot_messages, server.image_messages());
        }
        let has_all = matches!(end, SnapshotEnd::Served | SnapshotEnd::Rejected);
        if has_all && client.pump.finish(now_ns) {
            self.again.push(Token(number));
        } else {
            self.close(number);
        }
    }

    /// Sends some packets of a snapshot to the venue's group, paced because receivers have no room for all of them together.
    fn send_to_snapshot_group(&mut self, number: usize) {
        let Some(Connection { venue, session: Session::Snapshot(server), .. }) =
            self.connections.get_mut(&number)
        else {
            return;
        };
        let Some(Listening {
            snapshot: Some(Snapshots { group: Some(group), .. }),
            lost_per_million,
            counters,
            ..
        }) = self.venues.get_mut(*venue)
        else {
            return;
        };
        for _ in 0..PACKETS_IN_PAUSE {
            let Some(packet) = server.next_datagram() else { return };
            if self.random.chance(*lost_per_million) {
                add(&counters.lost, 1);
                continue;
            }
            group.send([packet.as_slice()], |sent| {
                add(&counters.refused_by_kernel, u64::from(!matches!(sent, Sent::Taken)));
            });
        }
        if server.has_datagrams() {
            self.paced.push(Token(number));
        }
    }

    fn close(&mut self, number: usize) {
        if let Some(mut client) = self.connections.remove(&number) {
            // Closing the socket deregisters it in any case.
            let _ = client.pump.stream().deregister(&self.poll);
        }
    }
}
