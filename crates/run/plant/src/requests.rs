//! Clients for the venues' TCP request servers: Cboe's Gap Request Proxy, NYSE's request server, MITCH's replay channel, MEMX's gap
//! fill.
//!
//! One thread serves the connections of all channels. It takes requests from ingest and passes them to the channel's [`Requester`].
//! Answers reach ingest as datagrams or, if they come over the connection, through this thread. A refusal is counted, and the gap
//! is handled as if the server did not answer. A lost connection is reopened after pauses that double.
//!
//! Cost: a request costs ingest one item in a channel and one wake-up. The thread sleeps until a request or bytes arrive, or a
//! heartbeat is due.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::{Interest, Token};
use tapeworks_runtime::pump::{ByteSession, Pump};
use tapeworks_runtime::world::{
    Poll as _, Receive as _, SendTo as _, Source as _, Stream as _, TrySend as _, Wake as _, World,
};
use tapeworks_session::Request;
use tapeworks_session::requests::{DayTime, Requester};

use crate::error::PlantError;
use crate::options::{PlantOptions, RetransmissionServer, VenueOptions};
use crate::status::RequesterStatus;

/// Maximum sleep, which bounds how late the thread notices that the plant stops.
const LOOK: Duration = Duration::from_millis(100);

/// How long the thread sleeps when ingest has no room for answers.
const REST: Duration = Duration::from_millis(1);

/// Connect timeout, in ns.
const CONNECT_NS: u64 = 3_000_000_000;

/// Answer packets that may wait for ingest.
const ANSWERS: usize = 1_024;

/// Maximum bytes per read.
const READ_BYTES: usize = 16 << 10;

const WAKER: Token = Token(0);

/// The connections' statuses for ingest, by channel number.
type Statuses = Arc<Mutex<Vec<Option<RequesterStatus>>>>;

/// Ingest's handle on the thread.
#[derive(Debug)]
pub(super) struct Outbox<W: World> {
    wanted: W::Sender<(u16, Request)>,
    waker: Arc<W::Waker>,
    /// Whether each channel requests over TCP.
    serves: Vec<bool>,
    answers: W::Receiver<(u16, Vec<u8>)>,
    /// The servers of the channels whose answers come over the connection.
    answering: Vec<Option<SocketAddr>>,
    statuses: Statuses,
}

impl<W: World> Outbox<W> {
    /// Returns whether a channel requests over TCP.
    pub(super) fn serves(&self, channel: u16) -> bool {
        self.serves.get(usize::from(channel)).copied().unwrap_or_default()
    }

    /// Sends a request to the thread. Returns `false` if the thread has ended.
    pub(super) fn send(&self, channel: u16, request: Request) -> bool {
        // Without a wake-up the thread checks within a tenth of a second.
        self.wanted.send((channel, request)).is_ok() && self.waker.wake().is_ok()
    }

    /// Returns whether answers may come over a connection.
    pub(super) fn brings_answers(&self) -> bool {
        self.answering.iter().any(Option::is_some)
    }

    /// Returns the server that answers a channel over the connection.
    pub(super) fn answering(&self, channel: usize) -> Option<SocketAddr> {
        self.answering.get(channel).copied().flatten()
    }

    /// Takes the next answer packet that came over a connection, and its channel.
    pub(super) fn take_answer(&self) -> Option<(u16, Vec<u8>)> {
        self.answers.try_recv().ok()
    }

    /// Returns the status of a channel's connection.
    pub(super) fn status(&self, channel: usize) -> Option<RequesterStatus> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).get(channel).copied().flatten()
    }
}

/// The state of a channel's connection.
enum Connection<W: World> {
    None,
    /// Connecting since this time, in ns.
    Connecting(Pump<W>, u64),
    Made(Pump<W>),
}

struct Channel<W: World> {
    number: u16,
    address: SocketAddr,
    requester: Requester,
    connection: Connection<W>,
    /// An answer that ingest had no room for.
    answer: Option<Vec<u8>>,
}

/// Adapts a requester to a socket.
struct Served<'r>(&'r mut Requester);

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

impl<W: World> Channel<W> {
    fn pump(&mut self) -> Option<&mut Pump<W>> {
        match &mut self.connection {
            Connection::None => None,
            Connection::Connecting(pump, _) | Connection::Made(pump) => Some(pump),
        }
    }

    /// Returns when the channel next has something to do.
    fn deadline_ns(&self) -> u64 {
        match &self.connection {
            Connection::Connecting(_, since_ns) => since_ns.saturating_add(CONNECT_NS),
            Connection::None | Connection::Made(_) => self.requester.deadline_ns(),
        }
    }

    fn disconnect(&mut self, poll: &W::Poll, now_ns: u64) {
        if let Some(pump) = self.pump() {
            // Closing the connection deregisters it in any case.
            let _ = pump.stream().deregister(poll);
        }
        self.connection = Connection::None;
        self.requester.disconnected(now_ns);
    }

    fn connect(&mut self, poll: &W::Poll, token: Token, now_ns: u64) {
        let connected = W::Stream::connect(self.address).and_then(|mut stream| {
            stream.register(poll, token, Interest::READABLE | Interest::WRITABLE)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => self.connection = Connection::Connecting(Pump::new(stream), now_ns),
            Err(_) => self.requester.disconnected(now_ns),
        }
    }

    /// Passes answers to ingest as long as it has room. The requester bounds how many wait.
    fn hand_on(&mut self, answers: &W::SyncSender<(u16, Vec<u8>)>) {
        while let Some(answer) = self.answer.take().or_else(|| self.requester.take_answer()) {
            match answers.try_send((self.number, answer)) {
                Ok(()) => {}
                Err(TrySendError::Full((_, back))) => {
                    self.answer = Some(back);
                    return;
                }
                // Ingest has ended.
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }

    /// Does what is due and moves bytes. Returns whether work is left that the poll will not report.
    fn turn(&mut self, poll: &W::Poll, token: Token, buffer: &mut [u8], now_ns: u64) -> bool {
        if matches!(self.connection, Connection::None) && self.requester.wants(now_ns) {
            self.connect(poll, token, now_ns);
        }
        if let Connection::Connecting(pump, since_ns) = &mut self.connection {
            let is_late = now_ns.saturating_sub(*since_ns) >= CONNECT_NS;
            match pump.stream().is_connected() {
                Ok(true) => {
                    // Without this option, a request may wait for the acknowledgement of the previous one.
                    let _is_set = pump.stream().set_nodelay(true);
                    self.requester.connected(now_ns);
                    if let Connection::Connecting(pump, _) =
                        std::mem::replace(&mut self.connection, Connection::None)
                    {
                        self.connection = Connection::Made(pump);
                    }
                }
                Ok(false) if !is_late => {}
                Ok(false) | Err(_) => self.disconnect(poll, now_ns),
            }
        }
        let Connection::Made(pump) = &mut self.connection else { return false };
        self.requester.tick(now_ns);
        pump.turn(&mut Served(&mut self.requester), buffer, now_ns);
        if self.requester.over().is_some() {
            self.disconnect(poll, now_ns);
            return false;
        }
        pump.has_work(self.requester.output())
    }
}

/// The thread's state.
pub(super) struct Requesters<W: World> {
    poll: W::Poll,
    wanted: W::Receiver<(u16, Request)>,
    channels: Vec<Channel<W>>,
    answers: W::SyncSender<(u16, Vec<u8>)>,
    statuses: Statuses,
    began: Instant,
}

/// Ingest's end and the thread's end.
type BothEnds<W> = (Outbox<W>, Requesters<W>);

/// Prepares connections for the channels that request over TCP; returns `None` if no channel does.
///
/// # Errors
/// [`PlantError::Wait`].
pub(super) fn open<W: World>(options: &PlantOptions) -> Result<Option<BothEnds<W>>, PlantError> {
    let channel = |(number, venue): (usize, &VenueOptions)| {
        let Some(RetransmissionServer::Tcp { address, login, .. }) = venue.retransmission else {
            return None;
        };
        Some(Channel::<W> {
            number: number as u16,
            address,
            requester: Requester::new(login),
            connection: Connection::None,
            answer: None,
        })
    };
    let channels: Vec<_> = options.venues.iter().enumerate().filter_map(channel).collect();
    if channels.is_empty() {
        return Ok(None);
    }
    let waiting = |source| PlantError::Wait { source };
    let poll = W::Poll::new(64).map_err(waiting)?;
    let waker = Arc::new(poll.waker(WAKER).map_err(waiting)?);
    let (wanted, wanted_out) = W::channel();
    let serves = options
        .venues
        .iter()
        .map(|venue| venue.retransmission.is_some_and(|server| server.is_by_tcp()))
        .collect();
    let statuses = Statuses::new(Mutex::new(vec![None; options.venues.len()]));
    let by_connection = |venue: &VenueOptions| match venue.retransmission {
        Some(RetransmissionServer::Tcp { address, group: None, .. }) => Some(address),
        _ => None,
    };
    let answering = options.venues.iter().map(by_connection).collect();
    let (answers_in, answers) = W::sync_channel(ANSWERS);
    let outbox = Outbox { wanted, waker, serves, answers, answering, statuses: Arc::clone(&statuses) };
    let requesters =
        Requesters { poll, wanted: wanted_out, channels, answers: answers_in, statuses, began: W::instant() };
    requesters.report();
    Ok(Some((outbox, requesters)))
}

impl<W: World> Requesters<W> {
    fn now_ns(&self) -> u64 {
        W::since(self.began).as_nanos() as u64
    }

    /// Runs until `stop` is set.
    pub(super) fn run(mut self, stop: &AtomicBool) {
        let (mut reported, mut buffer) = (Vec::with_capacity(64), vec![0; READ_BYTES]);
        let (mut has_more, mut is_full) = (false, false);
        while !stop.load(Ordering::Acquire) {
            let due_ns = self.channels.iter().map(Channel::deadline_ns).min().unwrap_or(u64::MAX);
            let rest = Duration::from_nanos(due_ns.saturating_sub(self.now_ns())).min(LOOK);
            let longest = match (has_more, is_full) {
                (true, _) => Duration::ZERO,
                (false, true) => rest.min(REST),
                (false, false) => rest,
            };
            if self.poll.wait(&mut reported, Some(longest)).is_err() {
                reported.clear();
                W::sleep(LOOK);
            }
            for one in &reported {
                let place = one.token.0.checked_sub(1);
                if let Some(pump) = place.and_then(|place| self.channels.get_mut(place)?.pump()) {
                    pump.note(*one);
                }
            }
            let now_ns = self.now_ns();
            let day_time = DayTime::new(W::time_of_day().0, now_ns);
            while let Ok((number, request)) = self.wanted.try_recv() {
                let channel = self.channels.iter_mut().find(|channel| channel.number == number);
                if let Some(channel) = channel {
                    channel.requester.set_day_time(day_time);
                    channel.requester.request(&request, now_ns);
                }
            }
            (has_more, is_full) = (false, false);
            for (place, channel) in self.channels.iter_mut().enumerate() {
                channel.requester.set_day_time(day_time);
                has_more |= channel.turn(&self.poll, Token(1 + place), &mut buffer, now_ns);
                channel.hand_on(&self.answers);
                is_full |= channel.answer.is_some();
            }
            self.report();
        }
    }

    fn report(&self) {
        let mut statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        for channel in &self.channels {
            if let Some(status) = statuses.get_mut(usize::from(channel.number)) {
                let requester = &channel.requester;
                *status =
                    Some(RequesterStatus { is_ready: requester.is_ready(), counters: *requester.counters() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use tapeworks_runtime::world::System;
    use tapeworks_session::SessionId;
    use tapeworks_session::requests::{LoginFields, RequestLogin, RequestProtocol, RequestStatus};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Returns the options of a plant with one channel, which requests from this server.
    fn options(address: SocketAddr) -> PlantOptions {
        let mut options = crate::tests::plant();
        options.venues.truncate(1);
        let group = Some((Ipv4Addr::LOCALHOST, 0).into());
        let login = RequestLogin::new(
            RequestProtocol::Grp,
            &LoginFields { sub_id: "0001", user: "FIRM", password: "secret", ..Default::default() },
        )
        .unwrap();
        options.venues[0].retransmission = Some(RetransmissionServer::Tcp { address, group, login });
        options
    }

    /// Accepts the next connection and its login.
    fn accept(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut login = [0; 30];
        stream.read_exact(&mut login).unwrap();
        assert_eq!(login[8..10], [22, 1]);
        stream.write_all(b"\x0b\0\x01\0\0\0\0\0\x03\x02A").unwrap();
        stream
    }

    /// Returns the next block other than a heartbeat.
    fn request(stream: &mut TcpStream) -> [u8; 17] {
        loop {
            let mut block = [0; 17];
            stream.read_exact(&mut block[..8]).unwrap();
            if block[0] == 17 {
                stream.read_exact(&mut block[8..]).unwrap();
                return block;
            }
        }
    }

    fn wait_until(outbox: &Outbox<System>, is_so: impl Fn(&RequesterStatus) -> bool) {
        let began = Instant::now();
        while !outbox.status(0).is_some_and(|status| is_so(&status)) {
            assert!(began.elapsed() < PATIENCE, "{:?}", outbox.status(0));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_connection_that_is_gone_is_made_again_and_requests_go_on() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (outbox, requesters) = open::<System>(&options(address)).unwrap().unwrap();
        assert!(outbox.serves(0) && !outbox.serves(1));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || requesters.run(&stopped));
        let wanted = |first| Request { session: SessionId::CboeUnit(2), first, count: 3 };

        let mut first = accept(&listener);
        wait_until(&outbox, |status| status.is_ready);
        assert!(outbox.send(0, wanted(0x0102)));
        assert_eq!(request(&mut first)[8..], [9, 3, 2, 2, 1, 0, 0, 3, 0]);
        first.write_all(b"\x12\0\x01\0\0\0\0\0\x0a\x04\x02\x02\x01\0\0\x03\0A").unwrap();
        wait_until(&outbox, |status| status.counters.of(RequestStatus::Accepted) == 1);
        drop(first);

        let mut second = accept(&listener);
        wait_until(&outbox, |status| status.is_ready && status.counters.connections == 2);
        assert!(outbox.send(0, wanted(7)));
        assert_eq!(request(&mut second)[8..], [9, 3, 2, 7, 0, 0, 0, 3, 0]);
        assert_eq!(outbox.status(0).unwrap().counters.ends, 1);

        stop.store(true, Ordering::Release);
        thread.join().unwrap();
        assert!(!outbox.send(0, wanted(9)), "the thread is gone");
    }

    #[test]
    fn a_plant_without_such_servers_has_no_such_thread() {
        assert!(open::<System>(&crate::tests::plant()).unwrap().is_none());
    }
}
