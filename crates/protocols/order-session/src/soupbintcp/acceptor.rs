//! The server's end of a user's SoupBinTCP order session: unsequenced messages in, sequenced messages out.
//!
//! The session's messages are numbered and kept ([`Sequence`]), so that a reconnecting client receives those that it
//! missed. If the user logs in again, the later connection replaces the earlier one. The caller owns the sockets; each
//! has one [`SoupClient`] here.
//!
//! Cost: a sequenced message is copied twice, into its packet and into the store.

use tapeworks_session::login::Credentials;
use tapeworks_session::sequence::Sequence;
use tapeworks_session::soupbintcp::{SoupClient, SoupEnd};

/// One user's session.
#[derive(Debug)]
pub struct SoupAcceptor {
    credentials: Credentials,
    sequence: Sequence,
    store_bytes: usize,
    /// The open connections, including the logged-in one.
    connections: Vec<(u64, SoupClient)>,
    next_connection: u64,
    /// The logged-in connection.
    active: Option<u64>,
    /// Withholds sequenced messages from the logged-in connection: an injected fault.
    is_withheld: bool,
    displaced: u64,
}

impl SoupAcceptor {
    /// Creates a session with this name before its first message. It keeps `store_bytes` of messages.
    #[must_use]
    pub fn new(credentials: Credentials, session: [u8; 10], store_bytes: usize) -> Self {
        Self {
            credentials,
            sequence: Sequence::new(session, store_bytes),
            store_bytes,
            connections: Vec::new(),
            next_connection: 0,
            active: None,
            is_withheld: false,
            displaced: 0,
        }
    }

    /// Returns whether a client is logged in.
    #[must_use]
    pub const fn is_logged_in(&self) -> bool {
        self.active.is_some()
    }

    /// Returns whether this connection is logged in.
    #[must_use]
    pub fn is_admitted(&self, connection: u64) -> bool {
        self.active == Some(connection)
    }

    /// Returns the number of connections that ended because the user logged in again.
    #[must_use]
    pub const fn displaced(&self) -> u64 {
        self.displaced
    }

    /// Returns the number of the next message.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.sequence.kept().end
    }

    /// Returns the number of messages left out because they were too long for a packet.
    #[must_use]
    pub const fn too_long(&self) -> u64 {
        self.sequence.too_long()
    }

    /// Registers a new connection and returns its number, which is never reused.
    pub fn open(&mut self, now_ns: u64) -> u64 {
        let connection = self.next_connection;
        self.next_connection += 1;
        self.connections.push((connection, SoupClient::new(Some(self.credentials.clone()), now_ns)));
        connection
    }

    fn place(&self, connection: u64) -> Option<usize> {
        self.connections.iter().position(|(number, _)| *number == connection)
    }

    /// Processes bytes of a connection and passes each unsequenced message to `each`.
    pub fn receive(&mut self, connection: u64, bytes: &[u8], now_ns: u64, mut each: impl FnMut(&[u8])) {
        let Some(place) = self.place(connection) else { return };
        let Self { connections, sequence, .. } = self;
        let Some((_, client)) = connections.get_mut(place) else { return };
        client.receive_with(bytes, sequence, now_ns, &mut each);
        let is_new = client.is_admitted() && self.active != Some(connection);
        self.is_withheld &= !is_new;
        if is_new
            && let Some(before) = self.active.replace(connection)
            && let Some(place) = self.place(before)
            && let Some((_, client)) = self.connections.get_mut(place)
        {
            client.displace();
            self.displaced += 1;
        }
        self.notice(connection);
    }

    /// Forgets the logged-in connection once it has ended.
    fn notice(&mut self, connection: u64) {
        if self.active == Some(connection) && self.over(connection).is_some() {
            self.active = None;
        }
    }

    /// Sends a sequenced message, now or when the client logs in.
    pub fn send(&mut self, message: &[u8], now_ns: u64) {
        self.sequence.put(message);
        self.sequence.flush();
        self.sequence.clear_ready();
        if let Some(active) = self.active {
            self.fill(active, now_ns);
            self.notice(active);
        }
    }

    /// Ends the session: clients receive the remaining messages and the end.
    pub fn end_session(&mut self, now_ns: u64) {
        self.sequence.end();
        self.sequence.clear_ready();
        self.is_withheld = false;
        if let Some(active) = self.active {
            self.fill(active, now_ns);
        }
    }

    /// Starts the next session, numbered from 1. Connections of the previous session end.
    pub fn new_day(&mut self, session: [u8; 10]) {
        self.sequence = Sequence::new(session, self.store_bytes);
        self.connections.iter_mut().for_each(|(_, client)| client.closed());
        self.active = None;
    }

    /// Injects a fault: withholds sequenced messages from the logged-in connection until it ends. The next login receives them.
    pub const fn withhold(&mut self) {
        self.is_withheld = self.active.is_some();
    }

    /// Returns whether [`SoupAcceptor::withhold`] applies to the logged-in connection.
    #[must_use]
    pub const fn is_withheld(&self) -> bool {
        self.is_withheld && self.active.is_some()
    }

    fn fill(&mut self, connection: u64, now_ns: u64) {
        if self.is_withheld && self.active == Some(connection) {
            return;
        }
        let Some(place) = self.place(connection) else { return };
        if let Some((_, client)) = self.connections.get_mut(place) {
            client.fill(&self.sequence, now_ns);
        }
    }

    /// Returns the bytes to send next on a connection; empty if there are none.
    #[must_use]
    pub fn output(&self, connection: u64) -> &[u8] {
        self.place(connection)
            .and_then(|place| self.connections.get(place))
            .filter(|(_, client)| client.over().is_none())
            .map_or(&[], |(_, client)| client.output())
    }

    /// Records that this many bytes of [`SoupAcceptor::output`] were sent.
    pub fn sent(&mut self, connection: u64, bytes: usize, now_ns: u64) {
        let Some(place) = self.place(connection) else { return };
        if let Some((_, client)) = self.connections.get_mut(place) {
            client.sent(bytes, now_ns);
        }
        self.fill(connection, now_ns);
        self.notice(connection);
    }

    /// Runs the timers: sends heartbeats, and ends connections whose clients are silent, too slow, or do not log in.
    pub fn tick(&mut self, now_ns: u64) {
        for (_, client) in &mut self.connections {
            client.tick(now_ns);
        }
        if let Some(active) = self.active {
            self.fill(active, now_ns);
            self.notice(active);
        }
    }

    /// Injects a fault: ends the logged-in connection immediately.
    pub fn disconnect(&mut self) {
        if let Some(active) = self.active
            && let Some(place) = self.place(active)
            && let Some((_, client)) = self.connections.get_mut(place)
        {
            client.closed();
            self.active = None;
        }
    }

    /// Returns how a connection ended, if it has. The caller closes it and calls [`SoupAcceptor::closed`].
    #[must_use]
    pub fn over(&self, connection: u64) -> Option<SoupEnd> {
        self.place(connection)
            .and_then(|place| self.connections.get(place))
            .and_then(|(_, client)| client.over())
    }

    /// Records that a connection is closed, after [`SoupAcceptor::over`] or because the client closed it.
    pub fn closed(&mut self, connection: u64) {
        if let Some(place) = self.place(connection) {
            self.connections.remove(place);
        }
        if self.active == Some(connection) {
            self.active = None;
        }
    }
}
