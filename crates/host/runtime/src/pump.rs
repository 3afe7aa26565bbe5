//! Moves bytes between a non-blocking TCP connection and a session that has no socket.
//!
//! One [`Poll`](crate::world::Poll) watches the sockets of a thread and reports readiness once; a [`Pump`] remembers it until the
//! socket is drained. Each turn moves a bounded number of bytes, so that one client does not delay the others. Cost: one read, as
//! many writes as the session has output for, and no system call for a socket that is not ready. A read that leaves room in the
//! buffer has drained the socket (epoll(7)), so no extra read is needed. After the other side closes, reads continue to the end.

use std::io::{ErrorKind, Read as _, Write as _};

use crate::transport::Transport;
use crate::world::{Ready, System, World};

/// The most bytes written to a connection per turn.
const MOST_BYTES_IN_TURN: usize = 256 << 10;

/// The most reads per turn from a connection that is over. A client that sends more is disconnected.
const MOST_READS: usize = 64;

/// How long the other side may take to close a connection that is over, in nanoseconds.
const CLOSING_NS: u64 = 2_000_000_000;

/// One side of a session without a socket. Bytes and the time are passed in; bytes come out.
pub trait ByteSession {
    /// Processes bytes from the other side.
    fn receive(&mut self, bytes: &[u8], now_ns: u64);

    /// Prepares the next output, in a session that creates output on demand.
    fn fill(&mut self, _now_ns: u64) {}

    /// Returns the next bytes to send; empty if there are none now.
    fn output(&self) -> &[u8];

    /// Records that `bytes` bytes of the output were sent.
    fn sent(&mut self, bytes: usize, now_ns: u64);

    /// Records that the connection was closed.
    fn closed(&mut self);

    /// Returns whether all reading and sending is finished.
    fn is_over(&self) -> bool;
}

/// A connection and its socket's readiness.
#[derive(Debug)]
pub struct Pump<W: World = System> {
    transport: Transport<W::Stream>,
    is_readable: bool,
    is_writable: bool,
    /// The poll has reported the end, which it does only once.
    is_ending: bool,
    /// How long the other side may still take to close, once all bytes are sent and the sending side is shut down. Closing a
    /// connection with unread bytes would discard bytes that the other side has not read yet.
    closing_until_ns: Option<u64>,
    /// The reason why the connection ended, unless it was closed properly.
    failure: Option<std::io::Error>,
}

impl<W: World> Pump<W> {
    /// Creates a pump for a connection that is assumed to be readable and writable.
    pub const fn new(stream: W::Stream) -> Self {
        Self::over(Transport::Plain(stream))
    }

    /// Like [`Pump::new`], for a connection with or without TLS.
    pub const fn over(transport: Transport<W::Stream>) -> Self {
        Self {
            transport,
            is_readable: true,
            is_writable: true,
            is_ending: false,
            closing_until_ns: None,
            failure: None,
        }
    }

    /// Returns the connection.
    pub const fn transport(&self) -> &Transport<W::Stream> {
        &self.transport
    }

    /// Returns why the connection ended, unless it was closed properly.
    pub const fn failure(&self) -> Option<&std::io::Error> {
        self.failure.as_ref()
    }

    /// Returns the socket.
    pub const fn stream(&mut self) -> &mut W::Stream {
        self.transport.stream()
    }

    /// Records the socket's readiness as reported by the poll.
    pub const fn note(&mut self, ready: Ready) {
        self.is_readable |= ready.is_readable;
        self.is_writable |= ready.is_writable;
        self.is_ending |= ready.is_closed;
    }

    /// Reads from the socket into the session, then writes the session's output.
    pub fn turn(&mut self, session: &mut impl ByteSession, buffer: &mut [u8], now_ns: u64) {
        self.read(session, buffer, now_ns);
        self.write(session, now_ns);
    }

    /// Reads once from the socket into the session. Returns the number of bytes read.
    pub fn read(&mut self, session: &mut impl ByteSession, buffer: &mut [u8], now_ns: u64) -> usize {
        if self.is_readable && !session.is_over() {
            match self.transport.read(buffer) {
                Ok(0) => session.closed(),
                Ok(length) => {
                    let is_whole = length < buffer.len() && self.transport.reads_the_socket();
                    self.is_readable = !is_whole || self.is_ending;
                    session.receive(buffer.get(..length).unwrap_or_default(), now_ns);
                    return length;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error);
                    session.closed();
                }
            }
        }
        0
    }

    /// Writes the session's output.
    pub fn write(&mut self, session: &mut impl ByteSession, now_ns: u64) {
        let mut left = MOST_BYTES_IN_TURN;
        session.fill(now_ns);
        while self.is_writable && left > 0 && !session.is_over() {
            let output = session.output();
            let part = output.get(..left).unwrap_or(output);
            if part.is_empty() {
                break;
            }
            match self.transport.write(part) {
                Ok(0) => session.closed(),
                Ok(length) => {
                    left = left.saturating_sub(length);
                    session.sent(length, now_ns);
                    session.fill(now_ns);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error);
                    session.closed();
                }
            }
        }
        if self.is_writable && !self.transport.is_settled() && !session.is_over() {
            match self.transport.settle() {
                // The rest waits until the socket takes more.
                Ok(()) => self.is_writable = self.transport.is_settled(),
                Err(error) => {
                    self.failure = Some(error);
                    session.closed();
                }
            }
        }
    }

    /// Returns whether there is work that the poll will not report again. `output` is the session's.
    pub fn has_work(&self, output: &[u8]) -> bool {
        self.has_to_read() || self.has_to_write(output)
    }

    /// Returns whether there may be bytes to read that the poll will not report again.
    pub const fn has_to_read(&self) -> bool {
        self.closing_until_ns.is_none() && self.is_readable
    }

    /// Returns whether the socket can take more of the session's output.
    pub fn has_to_write(&self, output: &[u8]) -> bool {
        let has_output = || !output.is_empty() || !self.transport.is_settled();
        self.closing_until_ns.is_none() && self.is_writable && has_output()
    }

    /// Shuts down the sending side after all bytes were sent, so that the other side can close. Returns `false` on failure.
    pub fn finish(&mut self, now_ns: u64) -> bool {
        let is_shut = self.transport.finish().is_ok();
        self.closing_until_ns = is_shut.then(|| now_ns.saturating_add(CLOSING_NS));
        is_shut
    }

    /// Returns whether [`Pump::finish`] has shut down the sending side.
    pub const fn is_finished(&self) -> bool {
        self.closing_until_ns.is_some()
    }

    /// Discards further bytes after [`Pump::finish`]. Returns `false` once the connection can be closed: the other side closed,
    /// sent too much, or ran out of time.
    pub fn drain(&mut self, buffer: &mut [u8], now_ns: u64) -> bool {
        if self.closing_until_ns.is_none_or(|until_ns| now_ns >= until_ns) {
            return false;
        }
        for _ in 0..MOST_READS {
            match self.transport.read(buffer) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream as Blocking};

    use mio::net::TcpStream;

    use super::*;

    /// Echoes its input, and is over after `left` bytes.
    #[derive(Default)]
    struct Echo {
        output: Vec<u8>,
        left: usize,
        is_closed: bool,
    }

    impl ByteSession for Echo {
        fn receive(&mut self, bytes: &[u8], _now_ns: u64) {
            self.output.extend_from_slice(bytes);
        }

        fn output(&self) -> &[u8] {
            &self.output
        }

        fn sent(&mut self, bytes: usize, _now_ns: u64) {
            self.output.drain(..bytes);
            self.left = self.left.saturating_sub(bytes);
        }

        fn closed(&mut self) {
            self.is_closed = true;
        }

        fn is_over(&self) -> bool {
            self.is_closed || self.left == 0
        }
    }

    /// Returns a pump and the other side of its connection.
    fn connected() -> (Pump, Blocking) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let other = Blocking::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        (Pump::new(TcpStream::from_std(stream)), other)
    }

    #[test]
    fn bytes_go_both_ways_until_the_session_is_over_and_the_other_side_has_closed() {
        let (mut pump, mut other) = connected();
        let (mut echo, mut buffer) = (Echo { left: 300_000, ..Echo::default() }, vec![0; 4_096]);
        let sending = std::thread::spawn(move || {
            let mut copy = other.try_clone().unwrap();
            let writing = std::thread::spawn(move || copy.write_all(&[7; 300_000]).unwrap());
            let mut all = Vec::new();
            other.read_to_end(&mut all).unwrap();
            writing.join().unwrap();
            all
        });
        while !echo.is_over() {
            // There is no poll, so try both on every turn.
            (pump.is_readable, pump.is_writable) = (true, true);
            pump.turn(&mut echo, &mut buffer, 0);
        }
        assert!(!echo.is_closed && pump.finish(5) && pump.is_finished());
        assert!(!pump.has_work(echo.output()));
        assert_eq!(sending.join().unwrap(), vec![7; 300_000]);
        assert!(!pump.drain(&mut buffer, 6), "the other side has closed");
    }

    #[test]
    fn a_socket_that_has_nothing_is_not_read_again_until_the_poll_reports_it() {
        let (mut pump, _other) = connected();
        let (mut echo, mut buffer) = (Echo { left: 1, ..Echo::default() }, vec![0; 64]);
        assert!(pump.has_work(echo.output()));
        pump.turn(&mut echo, &mut buffer, 0);
        assert!(!pump.has_work(echo.output()) && !pump.is_readable && !echo.is_closed);
    }

    #[test]
    fn a_read_that_leaves_room_is_the_last_until_the_poll_reports_more_or_the_end() {
        let (mut pump, mut other) = connected();
        let (mut echo, mut buffer) = (Echo { left: 100, ..Echo::default() }, vec![0; 64]);
        other.write_all(&[7; 64 + 6]).unwrap();
        pump.turn(&mut echo, &mut buffer, 0);
        assert!(pump.is_readable, "a full buffer says nothing");
        pump.turn(&mut echo, &mut buffer, 0);
        assert!(!pump.is_readable && echo.left == 30);
        other.write_all(&[8; 5]).unwrap();
        other.shutdown(std::net::Shutdown::Write).unwrap();
        pump.note(Ready { token: mio::Token(0), is_readable: true, is_writable: true, is_closed: true });
        pump.turn(&mut echo, &mut buffer, 0);
        assert!(pump.is_readable && echo.left == 25 && !echo.is_closed);
        pump.turn(&mut echo, &mut buffer, 0);
        assert!(echo.is_closed);
    }

    #[test]
    fn a_connection_that_is_over_is_closed_when_the_other_side_has_had_its_time() {
        let (mut pump, _other) = connected();
        let mut buffer = vec![0; 64];
        assert!(pump.finish(1) && pump.drain(&mut buffer, 2));
        assert!(!pump.drain(&mut buffer, 1 + CLOSING_NS));
    }
}
