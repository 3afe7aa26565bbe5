//! The venues' servers: retransmission by UDP and snapshots by TCP, all on one thread that sleeps while there are no requests.
//!
//! No client can hold up the others: each turn takes some datagrams or some bytes of each, an idle connection is closed in time, and
//! where there are too many connections the oldest without a login is closed.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::{Interest, Token};
use tapeworks_exchange::random::Random;
use tapeworks_runtime::pump::{ByteSession, Pump};
use tapeworks_runtime::world::{
    Listener as _, Poll as _, Receive as _, SendTo as _, Source as _, UdpServer, Wake as _, World,
};
use tapeworks_session::glimpse::{Image, SnapshotEnd, SnapshotServer};
use tapeworks_session::{Credentials, Store};

use crate::answers::{self, AnswerFaults, Wrong};
use crate::report::{Counters, add};

/// Connections of all venues at once.
const MOST_CONNECTIONS: usize = 512;
/// Datagrams or connections that a socket gives in one turn.
const MOST_IN_TURN: usize = 64;
/// How often the time limits of connections are checked.
const TICK: Duration = Duration::from_millis(100);

/// Late answers that wait, of all venues. More are lost.
const MOST_LATE: usize = 4_096;

const WAKER: Token = Token(0);

/// A request of a connection for an image, to the thread that has the market.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageRequest {
    pub(crate) connection: usize,
    pub(crate) venue: usize,
}

/// Its answer.
#[derive(Debug)]
pub(crate) struct ImageReply {
    pub(crate) connection: usize,
    pub(crate) image: Arc<Image>,
}

/// An answer that is sent late, on purpose.
#[derive(Debug)]
struct Late {
    venue: usize,
    client: SocketAddr,
    messages: u16,
    answer: Vec<u8>,
}

/// One venue's servers, listening.
#[derive(Debug)]
pub(crate) struct Listening<W: World> {
    pub(crate) retransmission: Option<(W::UdpServer, Arc<Mutex<Store>>)>,
    pub(crate) lost_per_million: u32,
    pub(crate) faults: AnswerFaults,
    pub(crate) snapshot: Option<W::Listener>,
    pub(crate) counters: Arc<Counters>,
}

#[derive(Debug)]
struct Connection<W: World> {
    venue: usize,
    pump: Pump<W>,
    server: SnapshotServer,
    /// Its image was requested.
    is_requested: bool,
}

/// A client of a snapshot server.
struct Served<'s>(&'s mut SnapshotServer);

impl ByteSession for Served<'_> {
    fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        self.0.receive(bytes, now_ns);
    }

    fn output(&self) -> &[u8] {
        self.0.output()
    }

    fn sent(&mut self, bytes: usize, now_ns: u64) {
        self.0.sent(bytes, now_ns);
    }

    fn closed(&mut self) {
        self.0.closed();
    }

    fn is_over(&self) -> bool {
        self.0.over().is_some()
    }
}

/// Sends an answer of so many messages to a client.
fn send(socket: &impl UdpServer, answer: &[u8], (client, messages): (SocketAddr, u16), counters: &Counters) {
    match socket.send_to(answer, client) {
        Ok(_) => {
            add(&counters.answers, 1);
            add(&counters.answered_messages, u64::from(messages));
        }
        Err(_) => add(&counters.refused_by_kernel, 1),
    }
}

/// The thread's state.
pub(crate) struct Servers<W: World> {
    poll: W::Poll,
    waker: Arc<W::Waker>,
    venues: Vec<Listening<W>>,
    connections: BTreeMap<usize, Connection<W>>,
    next_connection: usize,
    credentials: Option<Credentials>,
    requests: W::Sender<ImageRequest>,
    /// Wakes the thread that takes the requests, where it waits for something else.
    market: Option<Arc<W::Waker>>,
    replies: W::Receiver<ImageReply>,
    random: Random,
    began: Instant,
    /// Sockets that have more than a turn allows.
    again: Vec<Token>,
    /// Listeners that could not accept: there were no more descriptors, or the client had gone.
    at_tick: Vec<Token>,
    answer: Vec<u8>,
    /// By the time at which they are sent, in nanoseconds since `began`, and a number.
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
            if let Some(listener) = &mut venue.snapshot {
                listener.register(&servers.poll, Token(2 + 2 * index), Interest::READABLE)?;
            }
        }
        Ok(servers)
    }

    /// Wakes the thread: after an image was sent to it, and to stop it.
    pub(crate) fn waker(&self) -> Arc<W::Waker> {
        Arc::clone(&self.waker)
    }

    /// Serves until `stop`.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut reported = Vec::with_capacity(256);
        let mut ticked = W::instant();
        while !stop.load(Ordering::Acquire) {
            let timeout = if self.again.is_empty() { self.send_late() } else { Duration::ZERO };
            self.poll.wait(&mut reported, Some(timeout))?;
            let mut ready = std::mem::take(&mut self.again);
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
                if let Some(client) = self.connections.get_mut(&connection) {
                    client.server.give(image, now_ns);
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
                        client.server.tick(now_ns);
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
        } else if of_venue.is_multiple_of(2) {
            self.answer_requests(of_venue / 2, token);
        } else {
            self.accept(of_venue / 2, token);
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
                        send(socket, &self.answer, (client, messages), counters);
                    } else if self.late.len() < MOST_LATE {
                        let most = u32::try_from(faults.late_ns).unwrap_or(u32::MAX);
                        let due_ns = now_ns.saturating_add(u64::from(self.random.below(most)));
                        let answer = self.answer.clone();
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

    /// Sends the late answers that are due. Returns how long to wait for the next, at most a tick.
    fn send_late(&mut self) -> Duration {
        let now_ns = self.now_ns();
        while let Some(first) = self.late.first_entry() {
            let (due_ns, _) = *first.key();
            if due_ns > now_ns {
                return TICK.min(Duration::from_nanos(due_ns - now_ns));
            }
            let late = first.remove();
            let venue = self.venues.get(late.venue);
            if let Some(Listening { retransmission: Some((socket, _)), counters, .. }) = venue {
                send(socket, &late.answer, (late.client, late.messages), counters);
            }
        }
        TICK
    }

    fn accept(&mut self, venue: usize, token: Token) {
        for _ in 0..MOST_IN_TURN {
            let Some(listener) = self.venues.get(venue).and_then(|venue| venue.snapshot.as_ref()) else {
                return;
            };
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.at_tick.push(token);
                    return;
                }
            };
            let counters = Arc::clone(&self.venues[venue].counters);
            add(&counters.connections, 1);
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
            let server = SnapshotServer::new(self.credentials.clone(), self.now_ns());
            let pump = Pump::new(stream);
            self.connections.insert(number, Connection { venue, pump, server, is_requested: false });
        }
        self.again.push(token);
    }

    /// Closes the oldest connection that has not logged in.
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
        client.pump.turn(&mut Served(&mut client.server), &mut self.buffer, now_ns);
        if client.server.wants_image() && !client.is_requested {
            client.is_requested = true;
            let request = ImageRequest { connection: number, venue: client.venue };
            if self.requests.send(request).is_err() {
                client.server.closed();
            } else if let Some(market) = &self.market {
                // A waker that fails leaves the request to the market's next turn.
                let _ = market.wake();
            }
        }
        let Some(end) = client.server.over() else {
            if client.pump.has_work(client.server.output()) {
                self.again.push(Token(number));
            }
            return;
        };
        let counters = &self.venues[client.venue].counters;
        counters.end(end);
        if end == SnapshotEnd::Served {
            add(&counters.snapshot_messages, client.server.image_messages());
        }
        let has_all = matches!(end, SnapshotEnd::Served | SnapshotEnd::Rejected);
        if has_all && client.pump.finish(now_ns) {
            self.again.push(Token(number));
        } else {
            self.close(number);
        }
    }

    fn close(&mut self, number: usize) {
        if let Some(mut client) = self.connections.remove(&number) {
            // It goes with the connection in any case.
            let _ = client.pump.stream().deregister(&self.poll);
        }
    }
}
