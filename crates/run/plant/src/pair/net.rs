//! The sockets of a pair: connections from the other plant, and the one to it.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Interest, Token};
use tapeworks_runtime::pump::{ByteSession, Pump};
use tapeworks_runtime::transport::{Acceptor, Connector, TlsFiles, Transport};
use tapeworks_runtime::world::{Listener as _, Poll as _, Ready, Source as _, Stream as _, World};

use super::codec::{Frame, Hello, Parsed, Reason};
use super::{Alike, PairError, PairSetting};

/// Maximum number of incoming connections.
const MOST_INCOMING: usize = 8;

/// Time limit for connecting, and for a new peer to identify itself, in ns.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Time limit for sending a refusal, in ns.
const LEAVING_NS: u64 = 2_000_000_000;

/// Maximum bytes per read.
const READ_BYTES: usize = 256 << 10;

/// Reading pauses when this many received bytes have not been taken.
const MOST_UNTAKEN: usize = 4 << 20;

/// Longest pause before calling a peer again that refused the connection or failed TLS, in ns.
const MOST_REST_NS: u64 = 1_000_000_000;

/// The answer to a client that does not speak TLS although it must: a refusal frame.
const SPEAKS_TLS: &[u8] = b"\x32\0\0\0\x03\x07this plant's [pair] has a certificate: speak TLS";

const LISTENER: Token = Token(0);
pub(super) const WAKER: Token = Token(1);

/// Buffers of bytes from and to a connection.
#[derive(Debug, Default)]
struct Bytes {
    input: Vec<u8>,
    taken: usize,
    output: Vec<u8>,
    sent: usize,
    is_closed: bool,
}

impl ByteSession for Bytes {
    fn receive(&mut self, bytes: &[u8], _now_ns: u64) {
        if self.taken > 0 {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    fn output(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or_default()
    }

    fn sent(&mut self, bytes: usize, _now_ns: u64) {
        self.sent += bytes;
        if self.sent >= self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    fn closed(&mut self) {
        self.is_closed = true;
    }

    fn is_over(&self) -> bool {
        self.is_closed
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection<W: World> {
    pump: Pump<W>,
    bytes: Bytes,
    token: Token,
    is_made: bool,
    since_ns: u64,
    /// When the last bytes arrived, in ns.
    pub(super) heard_ns: u64,
}

impl<W: World> Connection<W> {
    fn new(transport: Transport<W::Stream>, token: Token, is_made: bool, now_ns: u64) -> Self {
        let (pump, bytes) = (Pump::over(transport), Bytes::default());
        Self { pump, bytes, token, is_made, since_ns: now_ns, heard_ns: now_ns }
    }

    /// Moves bytes. Returns `false` if the connection is closed; received frames can still be taken.
    fn turn(&mut self, buffer: &mut [u8], now_ns: u64) -> bool {
        if !self.is_made {
            match self.pump.stream().is_connected() {
                Ok(true) => {
                    // Without this option small frames wait for acknowledgements.
                    let _is_set = self.pump.stream().set_nodelay(true);
                    self.is_made = true;
                }
                Ok(false) => return now_ns.saturating_sub(self.since_ns) < PATIENCE_NS,
                Err(_) => return false,
            }
        }
        while self.untaken() < MOST_UNTAKEN && self.pump.has_to_read() && !self.bytes.is_closed {
            if self.pump.read(&mut self.bytes, buffer, now_ns) > 0 {
                self.heard_ns = now_ns;
            }
        }
        self.pump.write(&mut self.bytes, now_ns);
        !self.bytes.is_closed
    }

    fn untaken(&self) -> usize {
        self.bytes.input.len() - self.bytes.taken
    }

    /// Returns whether there is work that the poll does not report.
    fn has_work(&self) -> bool {
        self.is_made
            && (self.pump.has_to_write(self.bytes.output())
                || self.pump.has_to_read() && self.untaken() < MOST_UNTAKEN)
    }

    /// Returns why the connection closed, as far as the socket or TLS knows.
    fn failure(&self) -> Option<&std::io::Error> {
        self.pump.failure()
    }

    /// Returns how many bytes wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.bytes.output().len()
    }

    pub(super) fn send(&mut self, frame: &Frame<'_>) {
        frame.encode(&mut self.bytes.output);
    }

    /// Returns the next frame, and its length for [`Connection::take`].
    pub(super) fn frame(&self) -> Parsed<'_> {
        Frame::parse(self.bytes.input.get(self.bytes.taken..).unwrap_or_default())
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.bytes.taken += bytes;
    }
}

/// A connection that the other plant, or a stranger, opened.
#[derive(Debug)]
pub(super) struct Incoming<W: World> {
    pub(super) connection: Connection<W>,
    pub(super) address: SocketAddr,
    /// The peer's hello, once it has arrived and is acceptable.
    pub(super) hello: Option<Hello>,
    /// Set when the connection is to close: after everything is sent, and by this time in any case, in ns.
    leaving_ns: Option<u64>,
    /// The peer has closed the connection.
    is_gone: bool,
}

impl<W: World> Incoming<W> {
    pub(super) fn refuse(&mut self, reason: Reason, text: &str, now_ns: u64) {
        self.connection.send(&Frame::Refused { reason, text });
        self.leaves(now_ns);
    }

    pub(super) fn leaves(&mut self, now_ns: u64) {
        self.leaving_ns.get_or_insert(now_ns.saturating_add(LEAVING_NS));
    }

    pub(super) const fn is_leaving(&self) -> bool {
        self.leaving_ns.is_some()
    }
}

/// The sockets.
#[derive(Debug)]
pub(super) struct Net<W: World> {
    pub(super) poll: W::Poll,
    listener: W::Listener,
    peer: SocketAddr,
    acceptor: Acceptor,
    connector: Connector,
    alike: Alike,
    pub(super) incoming: Vec<Incoming<W>>,
    pub(super) outgoing: Option<Connection<W>>,
    next_token: usize,
    began: Instant,
    reported: Vec<Ready>,
    buffer: Vec<u8>,
    may_accept: bool,
    /// Pause after a refusal, short enough for several calls before the other plant's silence counts.
    rest_ns: u64,
    /// The other plant is not called before this time, in ns.
    rests_until_ns: u64,
    /// Connections that were refused.
    pub(super) refused: u64,
    /// Why the last one was refused.
    pub(super) reason: Option<String>,
}

impl<W: World> Net<W> {
    pub(super) fn open(setting: &PairSetting, alike: Alike) -> Result<Self, PairError> {
        let failed = |source| PairError::Listen { address: setting.listen, source };
        let tls = |problem| PairError::Tls { problem };
        let acceptor = setting.tls.as_ref().map(TlsFiles::acceptor).transpose().map_err(tls)?;
        let peer = setting.peer.ip().to_string();
        let connector = setting.tls.as_ref().map(|files| files.connector(&peer)).transpose().map_err(tls)?;
        let poll = W::Poll::new(64).map_err(failed)?;
        let mut listener = W::Listener::bind(setting.listen).map_err(failed)?;
        listener.register(&poll, LISTENER, Interest::READABLE).map_err(failed)?;
        Ok(Self {
            poll,
            listener,
            peer: setting.peer,
            acceptor: acceptor.unwrap_or_default(),
            connector: connector.unwrap_or_default(),
            alike,
            incoming: Vec::new(),
            outgoing: None,
            next_token: 2,
            began: W::instant(),
            reported: Vec::with_capacity(64),
            buffer: vec![0; READ_BYTES],
            may_accept: true,
            rest_ns: u64::try_from(setting.takeover_after.as_nanos() / 4)
                .unwrap_or(u64::MAX)
                .min(MOST_REST_NS),
            rests_until_ns: 0,
            refused: 0,
            reason: None,
        })
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(W::since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits for the sockets for at most `longest`, moves bytes, and answers peers that identify themselves. `me` describes this
    /// plant.
    pub(super) fn turn(&mut self, longest: Duration, me: &Hello) {
        let connections = self.incoming.iter().map(|one| &one.connection).chain(&self.outgoing);
        let has_work = connections.into_iter().any(Connection::has_work);
        let longest = if has_work { Duration::ZERO } else { longest };
        if self.poll.wait(&mut self.reported, Some(longest)).is_err() {
            self.reported.clear();
            W::sleep(longest.min(Duration::from_millis(100)));
        }
        for ready in std::mem::take(&mut self.reported) {
            self.may_accept |= ready.token == LISTENER;
            let connections = self.incoming.iter_mut().map(|one| &mut one.connection);
            for connection in connections.chain(&mut self.outgoing) {
                if connection.token == ready.token {
                    connection.pump.note(ready);
                }
            }
        }
        self.reported.reserve(64);
        self.accept();
        let now_ns = self.now_ns();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut incoming = std::mem::take(&mut self.incoming);
        for one in &mut incoming {
            one.is_gone |= !one.connection.turn(&mut buffer, now_ns);
            self.answer(one, me, now_ns);
        }
        for mut one in incoming {
            let has_left =
                one.leaving_ns.is_some_and(|until| one.connection.unsent() == 0 || now_ns >= until);
            if one.is_gone || has_left {
                // Bytes that the peer has not read yet stay with the kernel; the socket closes with the connection.
                let _ = one.connection.pump.stream().deregister(&self.poll);
            } else {
                self.incoming.push(one);
            }
        }
        if let Some(connection) = &mut self.outgoing
            && !connection.turn(&mut buffer, now_ns)
            && connection.untaken() == 0
        {
            if let Some(failure) = connection.failure()
                && failure.kind() == ErrorKind::InvalidData
            {
                self.reason = Some(format!("the connection to {} by TLS: {failure}", self.peer));
                self.rests_until_ns = now_ns.saturating_add(self.rest_ns);
            }
            self.hang_up();
        }
        self.buffer = buffer;
    }

    fn accept(&mut self) {
        while self.may_accept {
            match self.listener.accept() {
                Ok((mut stream, address)) => {
                    let token = Token(self.next_token);
                    self.make_room(address);
                    if self.incoming.len() >= MOST_INCOMING
                        || stream
                            .register(&self.poll, token, Interest::READABLE | Interest::WRITABLE)
                            .is_err()
                    {
                        self.refuse(format!("{}: too many connections", address.ip()));
                        continue;
                    }
                    let _is_set = stream.set_nodelay(true);
                    self.next_token += 1;
                    let transport = match self.acceptor.accept(stream, SPEAKS_TLS) {
                        Ok(transport) => transport,
                        Err(error) => {
                            self.refuse(format!("{address}: {error}"));
                            continue;
                        }
                    };
                    let connection = Connection::new(transport, token, true, self.now_ns());
                    let (hello, leaving_ns, is_gone) = (None, None, false);
                    self.incoming.push(Incoming { connection, address, hello, leaving_ns, is_gone });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.may_accept = false,
            }
        }
    }

    /// Makes room for the other plant's host among strangers, by closing the oldest connection that has not identified itself.
    fn make_room(&mut self, address: SocketAddr) {
        let peer = self.peer.ip();
        if self.incoming.len() < MOST_INCOMING || address.ip() != peer {
            return;
        }
        let is_stranger = |one: &Incoming<W>| one.hello.is_none() && one.address.ip() != peer;
        if let Some(at) = self.incoming.iter().position(is_stranger) {
            let mut gone = self.incoming.remove(at);
            let _ = gone.connection.pump.stream().deregister(&self.poll);
            self.refuse(format!("{}: too many connections", gone.address.ip()));
        }
    }

    fn refuse(&mut self, reason: String) {
        self.refused += 1;
        self.reason = Some(reason);
    }

    /// Identifies a new connection's peer, and welcomes or refuses it.
    fn answer(&mut self, one: &mut Incoming<W>, me: &Hello, now_ns: u64) {
        if one.hello.is_some() || one.is_leaving() {
            return;
        }
        let why = match one.connection.frame() {
            Parsed::Frame(Frame::Hello(hello), length) => {
                one.connection.take(length);
                if hello.instance == me.instance {
                    one.refuse(Reason::Itself, "'peer' is the plant's own address", now_ns);
                    return;
                }
                if let Some((reason, text)) = self.alike.refuse(&hello) {
                    self.refuse(format!("{}: {text}", one.address.ip()));
                    one.refuse(reason, text, now_ns);
                    return;
                }
                one.connection.send(&Frame::Welcome(*me));
                one.hello = Some(hello);
                if !hello.follows {
                    one.leaves(now_ns);
                }
                return;
            }
            Parsed::Cut if one.is_gone => {
                let failure = one.connection.failure().map(|failure| format!(" ({failure})"));
                let failure = failure.unwrap_or_default();
                self.refuse(format!("{}: closed before it said who it is{failure}", one.address.ip()));
                one.leaves(now_ns);
                return;
            }
            Parsed::Cut if now_ns.saturating_sub(one.connection.since_ns) < PATIENCE_NS => return,
            Parsed::Cut => "did not say who it is in time",
            Parsed::Frame(..) => "a frame before the hello",
            Parsed::Bad(why) => why,
        };
        self.refuse(format!("{}: {why}", one.address.ip()));
        one.refuse(Reason::Other, why, now_ns);
    }

    /// Refuses peers that want to follow this plant, which is not the primary.
    pub(super) fn refuse_followers(&mut self, text: &str) {
        let now_ns = self.now_ns();
        for one in &mut self.incoming {
            if one.hello.is_some_and(|hello| hello.follows) && !one.is_leaving() {
                one.refuse(Reason::NotPrimary, text, now_ns);
            }
        }
    }

    /// Connects to the other plant, if not connected, and sends `hello`.
    pub(super) fn call(&mut self, hello: &Hello) {
        if self.outgoing.is_some() || self.now_ns() < self.rests_until_ns {
            return;
        }
        let token = Token(self.next_token);
        self.next_token += 1;
        let connector = &self.connector;
        let connected = W::Stream::connect(self.peer).and_then(|mut stream| {
            stream.register(&self.poll, token, Interest::READABLE | Interest::WRITABLE)?;
            connector.connect(stream)
        });
        if let Ok(transport) = connected {
            let mut connection = Connection::new(transport, token, false, self.now_ns());
            connection.send(&Frame::Hello(*hello));
            self.outgoing = Some(connection);
        }
    }

    pub(super) fn hang_up(&mut self) {
        if let Some(mut connection) = self.outgoing.take() {
            let _ = connection.pump.stream().deregister(&self.poll);
        }
    }

    /// Hangs up like [`Net::hang_up`] after a refusal, and pauses before the next call.
    pub(super) fn hang_up_for_a_while(&mut self) {
        self.hang_up();
        self.rests_until_ns = self.now_ns().saturating_add(self.rest_ns);
    }

    /// Returns how long the call has been open, in ns.
    pub(super) fn unanswered_ns(&self) -> u64 {
        let now_ns = self.now_ns();
        self.outgoing.as_ref().map_or(0, |connection| now_ns.saturating_sub(connection.since_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plant_without_tls_can_read_why_it_is_refused() {
        let Parsed::Frame(Frame::Refused { reason, text }, length) = Frame::parse(SPEAKS_TLS) else {
            panic!("no refusal: {SPEAKS_TLS:?}")
        };
        assert_eq!((reason, length), (Reason::Other, SPEAKS_TLS.len()));
        assert!(text.contains("speak TLS"));
    }
}
