//! A FIX client with one session on one connection, for a console, a script, or a load generator.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Interest, Token};
use tapeworks_fix_wire::field;
use tapeworks_fix_wire::order_entry::SCHEMA;
use tapeworks_order_session::fix::{
    Application, Dictionary, End, Link, MemoryStore, Received, SendError, Session, Settings, Store, Verdict,
};
use tapeworks_runtime::pump::{ByteSession, Pump};
use tapeworks_runtime::transport::Connector;
use tapeworks_runtime::world::{Poll as _, Ready, Source as _, Stream as _, System, World};
use thiserror::Error;

use crate::clock::Clock;

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

/// Bytes of sent messages kept for resend requests.
const KEPT_BYTES: usize = 16 << 20;

/// Why a session did not start, or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection could not be made.
    #[error("{address}: {source}")]
    Connect {
        /// The peer's address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// The Logon was not answered in time.
    #[error("{address}: no answer to the Logon")]
    NoLogon {
        /// The peer's address.
        address: SocketAddr,
    },
    /// The Logon was refused, or the peer closed the connection before it answered.
    #[error("{address}: not logged on: {reason}")]
    Refused {
        /// The peer's address.
        address: SocketAddr,
        /// The Text (58) of the peer's Logout; without one, how the session ended.
        reason: String,
    },
    /// The session ended.
    #[error("the session ended: {0}")]
    Ended(End),
    /// The message could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Waiting for sockets failed.
    #[error("cannot wait for the connection: {0}")]
    Wait(io::Error),
}

/// Received messages that the caller has not taken yet.
#[derive(Debug, Default)]
struct Inbox {
    messages: VecDeque<Vec<u8>>,
}

impl Application for Inbox {
    fn message(&mut self, received: &Received<'_>, _: &mut Link, _: &mut dyn Store, _: u64) -> Verdict {
        self.messages.push_back(received.message.bytes().to_vec());
        Verdict::Taken
    }

    fn admin(&mut self, received: &Received<'_>) {
        // A Reject or Logout says why something was refused.
        if matches!(received.message_type, b"3" | b"5") {
            self.messages.push_back(received.message.bytes().to_vec());
        }
    }
}

/// A FIX client with one session.
#[derive(Debug)]
pub struct FixClient<W: World = System> {
    address: SocketAddr,
    connector: Connector,
    poll: W::Poll,
    pump: Pump<W>,
    ready: Vec<Ready>,
    buffer: Vec<u8>,
    session: Session,
    settings: Settings,
    dictionary: Arc<Dictionary>,
    store: MemoryStore,
    inbox: Inbox,
    clock: Clock<W>,
    ticked: Instant,
}

struct Io<'a> {
    session: &'a mut Session,
    store: &'a mut MemoryStore,
    inbox: &'a mut Inbox,
    utc_ns: u64,
}

impl ByteSession for Io<'_> {
    fn receive(&mut self, bytes: &[u8], _now_ns: u64) {
        self.session.receive(bytes, self.store, self.inbox, self.utc_ns);
    }

    fn fill(&mut self, _now_ns: u64) {
        self.session.resend(self.store, self.inbox, self.utc_ns);
    }

    fn output(&self) -> &[u8] {
        self.session.output()
    }

    fn sent(&mut self, bytes: usize, _now_ns: u64) {
        self.session.sent(bytes);
    }

    fn closed(&mut self) {
        self.session.closed(self.store, self.utc_ns);
    }

    fn is_over(&self) -> bool {
        self.session.over().is_some()
    }
}

/// Starts connecting.
fn dial<W: World>(
    poll: &W::Poll,
    address: SocketAddr,
    connector: &Connector,
) -> Result<Pump<W>, ClientError> {
    let failed = |source| ClientError::Connect { address, source };
    let mut stream = W::Stream::connect(address).map_err(failed)?;
    stream.register(poll, Token(0), Interest::READABLE | Interest::WRITABLE).map_err(failed)?;
    Ok(Pump::over(connector.connect(stream).map_err(failed)?))
}

impl<W: World> FixClient<W> {
    /// Connects, and logs on within `patience`. `numbers` are the next incoming and outgoing sequence numbers, as a previous run
    /// left them.
    ///
    /// # Errors
    /// The connection cannot be made, or the Logon is not accepted.
    pub fn connect(
        address: SocketAddr,
        settings: Settings,
        numbers: Option<(u64, u64)>,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        Self::connect_by(Connector::Plain, address, settings, numbers, patience)
    }

    /// Like [`FixClient::connect`], in plain text or with TLS.
    ///
    /// # Errors
    /// As [`FixClient::connect`].
    pub fn connect_by(
        connector: Connector,
        address: SocketAddr,
        settings: Settings,
        numbers: Option<(u64, u64)>,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let clock = Clock::<W>::new();
        let now_ns = clock.now().utc_ns;
        let mut store = MemoryStore::new(KEPT_BYTES, now_ns);
        if let Some((incoming, outgoing)) = numbers {
            // A store in memory accepts any number.
            let _set = store.set_next_incoming(incoming);
            let _set = store.set_next_outgoing(outgoing);
        }
        let poll = W::Poll::new(4).map_err(ClientError::Wait)?;
        let dictionary = Arc::new(Dictionary::from_schema(&SCHEMA));
        let mut client = Self {
            address,
            pump: dial::<W>(&poll, address, &connector)?,
            connector,
            poll,
            ready: Vec::with_capacity(4),
            buffer: vec![0; READ_BYTES],
            session: Session::new(settings.clone(), Arc::clone(&dictionary), now_ns),
            settings,
            dictionary,
            store,
            inbox: Inbox::default(),
            clock,
            ticked: W::instant(),
        };
        client.log_on(patience)?;
        Ok(client)
    }

    /// Reconnects after the session ended. Keeps the sequence numbers and the stored messages.
    ///
    /// # Errors
    /// As [`FixClient::connect`].
    pub fn connect_again(&mut self, patience: Duration) -> Result<(), ClientError> {
        let now_ns = self.clock.now().utc_ns;
        self.pump = dial::<W>(&self.poll, self.address, &self.connector)?;
        self.session = Session::new(self.settings.clone(), Arc::clone(&self.dictionary), now_ns);
        self.log_on(patience)
    }

    fn log_on(&mut self, patience: Duration) -> Result<(), ClientError> {
        let address = self.address;
        let failed = |source| ClientError::Connect { address, source };
        let began = W::instant();
        while !self.pump.stream().is_connected().map_err(failed)? {
            self.poll.wait(&mut self.ready, Some(Duration::from_millis(50))).map_err(ClientError::Wait)?;
            if W::since(began) > patience {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
        }
        // Small messages are sent without delay. Where that cannot be set, they go out later.
        let _is_set = self.pump.stream().set_nodelay(true);
        self.tick();
        while !self.session.is_logged_on() {
            match self.turn(Duration::from_millis(50)) {
                Ok(()) if self.session.over().is_none() => {}
                Ok(()) => return Err(ClientError::Refused { address, reason: self.refusal() }),
                Err(ClientError::Ended(End::Closed)) => {
                    let reason = "the peer closed the connection without a reason: it may not know the CompIDs, \
                                  or have a session with them already";
                    return Err(ClientError::Refused { address, reason: reason.to_owned() });
                }
                Err(error) => return Err(error),
            }
            if W::since(began) > patience {
                return Err(ClientError::NoLogon { address });
            }
        }
        Ok(())
    }

    /// Returns why the peer ended the session before it was logged on.
    fn refusal(&self) -> String {
        let text = self.inbox.messages.iter().find_map(|message| field(message, 58));
        text.map_or_else(
            || self.session.over().map(ToString::to_string).unwrap_or_default(),
            |text| String::from_utf8_lossy(text).into_owned(),
        )
    }

    /// Returns the address of the peer.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    fn tick(&mut self) {
        if let Some(ahead_ns) = self.clock.follow() {
            self.session.clock_was_set(ahead_ns);
        }
        self.ticked = W::instant();
        let now_ns = self.clock.now().utc_ns;
        self.session.tick(&mut self.store, &mut self.inbox, now_ns);
    }

    /// Moves bytes in both directions. Waits for some, for at most `longest`.
    ///
    /// # Errors
    /// The session ended, and every message was taken.
    pub fn turn(&mut self, longest: Duration) -> Result<(), ClientError> {
        let longest = if self.pump.has_work(self.session.output()) { Duration::ZERO } else { longest };
        self.poll.wait(&mut self.ready, Some(longest)).map_err(ClientError::Wait)?;
        for ready in &self.ready {
            self.pump.note(*ready);
        }
        if W::since(self.ticked) >= Duration::from_millis(100) {
            self.tick();
        }
        self.push();
        match self.session.over() {
            Some(end) if self.inbox.messages.is_empty() => Err(ClientError::Ended(end.clone())),
            _ => Ok(()),
        }
    }

    fn push(&mut self) {
        let now = self.clock.now();
        let (session, store, inbox) = (&mut self.session, &mut self.store, &mut self.inbox);
        let mut io = Io { session, store, inbox, utc_ns: now.utc_ns };
        self.pump.turn(&mut io, &mut self.buffer, now.steady_ns);
    }

    /// Sends a message, given its type and the fields after the header. Returns its sequence number.
    ///
    /// # Errors
    /// The session is not logged on, or a value cannot be encoded.
    pub fn send(&mut self, message_type: &str, fields: &[(u32, String)]) -> Result<u64, ClientError> {
        let now_ns = self.clock.now().utc_ns;
        let body = |writer: &mut tapeworks_fix_wire::Writer<'_>| {
            for (tag, value) in fields {
                writer.copied(*tag, value.as_bytes());
            }
        };
        let number = self.session.link().send(&mut self.store, now_ns, message_type.as_bytes(), &[], body)?;
        self.push();
        Ok(number)
    }

    /// Returns the next message: an application message, or a Reject or Logout of the session.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        self.inbox.messages.pop_front()
    }

    /// Returns the time of day, in UTC nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.clock.now().utc_ns
    }

    /// Returns the next incoming and outgoing sequence numbers.
    #[must_use]
    pub fn numbers(&self) -> (u64, u64) {
        (self.store.next_incoming(), self.store.next_outgoing())
    }

    /// Returns whether the session is logged on.
    #[must_use]
    pub fn is_logged_on(&self) -> bool {
        self.session.is_logged_on()
    }

    /// Logs out and waits for the answer, for at most `longest`.
    pub fn log_out(&mut self, longest: Duration) {
        let now_ns = self.clock.now().utc_ns;
        self.session.log_out(&mut self.store, "", now_ns);
        let began = W::instant();
        while self.session.over().is_none() && W::since(began) < longest {
            if self.turn(Duration::from_millis(50)).is_err() {
                return;
            }
        }
    }
}
