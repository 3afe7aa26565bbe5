//! The FIX messages of the bench's clients, as short as a client of an exchange writes them, and what comes back.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use tapeworks_fix_wire::{Framing, Writer, field, message_type, next_message, read_unsigned};
use tapeworks_runtime::world::{System, World as _};

use super::comp_id;

/// The longest message.
const LONGEST_BYTES: usize = 512;

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// What a client asks for. Each request has a number, which is its ClOrdID, and one answer.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    New { number: u64, symbol: &'static str, is_buy: bool, price_cents: i64 },
    Cancel { number: u64, original: u64, symbol: &'static str, is_buy: bool },
}

fn id(number: u64) -> [u8; 12] {
    let mut text = *b"T00000000000";
    let mut rest = number;
    for digit in text[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text
}

/// What a client was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A report on the request of this number: ExecType (150), LastQty (32).
    Report(u64, u8, u64),
    /// The gateway does not take the request of this number now.
    Refused(u64),
    /// The gateway asks whether the client is there.
    TestRequest,
    /// Another message of a session.
    Session,
    /// The session ends, or rejects a message.
    Ended,
}

/// A message as people read it.
pub fn text(message: &[u8]) -> String {
    String::from_utf8_lossy(message).replace('\u{1}', "|")
}

/// What one message says.
///
/// # Panics
/// It has none of the requests' numbers.
pub fn heard(message: &[u8]) -> Heard {
    let number = |tag| field(message, tag).and_then(|value| read_unsigned(value).ok()).unwrap_or(0);
    let id = |tag| {
        let id = field(message, tag).and_then(|id| read_unsigned(id.get(1..)?).ok());
        id.unwrap_or_else(|| panic!("no number of a request: {}", text(message)))
    };
    match message_type(message) {
        b"1" => Heard::TestRequest,
        b"0" | b"A" => Heard::Session,
        // BusinessRejectRefID
        b"j" => Heard::Refused(id(379)),
        b"3" | b"5" => Heard::Ended,
        _ => {
            let kind = field(message, 150).and_then(|kind| kind.first().copied()).unwrap_or(b'9');
            Heard::Report(id(11), kind, number(32))
        }
    }
}

/// The sending side of a session, or of an echo.
pub struct Sender {
    stream: TcpStream,
    name: String,
    next: u64,
    buffer: [u8; LONGEST_BYTES],
}

impl Sender {
    fn send(&mut self, kind: &[u8], body: impl FnOnce(&mut Writer<'_>, u64)) -> std::io::Result<()> {
        let now_ns = System::time_of_day().0;
        let mut writer = Writer::begin(&mut self.buffer, b"FIX.4.4", kind);
        writer
            .number(34, self.next)
            .text(49, self.name.as_bytes())
            .timestamp(52, now_ns)
            .text(56, b"TAPEWORKS");
        self.next += 1;
        body(&mut writer, now_ns);
        let message = writer.finish().expect("it fits");
        self.stream.write_all(message)
    }

    /// # Panics
    /// The other side has closed.
    pub fn request(&mut self, request: Request) {
        self.try_request(request).expect("the other side reads");
    }

    /// # Errors
    /// The other side has closed.
    pub fn try_request(&mut self, request: Request) -> std::io::Result<()> {
        let side = |is_buy| if is_buy { b"1" } else { b"2" };
        match request {
            Request::New { number, symbol, is_buy, price_cents } => self.send(b"D", |writer, now_ns| {
                writer
                    .text(11, &id(number))
                    .text(21, b"1")
                    .text(55, symbol.as_bytes())
                    .text(54, side(is_buy))
                    .timestamp(60, now_ns)
                    .number(38, 100)
                    .text(40, b"2")
                    .decimal::<2>(44, price_cents)
                    .text(59, b"0");
            }),
            Request::Cancel { number, original, symbol, is_buy } => self.send(b"F", |writer, now_ns| {
                writer
                    .text(41, &id(original))
                    .text(11, &id(number))
                    .text(55, symbol.as_bytes())
                    .text(54, side(is_buy))
                    .timestamp(60, now_ns)
                    .number(38, 100);
            }),
        }
    }

    pub fn heartbeat(&mut self) {
        self.send(b"0", |_, _| ()).expect("the other side reads");
    }
}

/// The receiving side.
pub struct Receiver {
    pub stream: TcpStream,
    input: Vec<u8>,
    used: usize,
}

impl Receiver {
    /// Reads once.
    ///
    /// # Panics
    /// The other side has closed.
    pub fn read(&mut self) {
        if let Err(error) = self.try_read() {
            panic!("{error}");
        }
    }

    /// Reads once. Returns whether there may be more.
    ///
    /// # Errors
    /// The other side has closed.
    pub fn try_read(&mut self) -> std::io::Result<bool> {
        self.input.drain(..self.used);
        self.used = 0;
        let filled = self.input.len();
        self.input.resize(filled + READ_BYTES, 0);
        let read = match self.stream.read(&mut self.input[filled..]) {
            Ok(0) => Err(std::io::Error::new(ErrorKind::UnexpectedEof, "the other side has closed")),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            read => read,
        };
        self.input.truncate(filled + read.as_ref().map_or(0, |read| *read));
        read.map(|read| read == READ_BYTES)
    }

    /// The next message that is there.
    pub fn next(&mut self) -> Option<&[u8]> {
        let rest = &self.input[self.used..];
        match next_message(rest, 64 << 10) {
            Framing::Message { length } => {
                self.used += length;
                Some(&rest[..length])
            }
            Framing::Incomplete => None,
            Framing::Garbled { .. } | Framing::WrongLength => panic!("{}", String::from_utf8_lossy(rest)),
        }
    }

    /// Waits for the answer to a request.
    pub fn answer(&mut self, number: u64) {
        loop {
            while let Some(message) = self.next() {
                match heard(message) {
                    Heard::Report(of, ..) if of == number => return,
                    Heard::Refused(_) => panic!("a request is refused"),
                    Heard::Ended => panic!("the session ended: {}", text(message)),
                    _ => {}
                }
            }
            self.read();
        }
    }
}

/// A connection of the bench's client `index`; nothing is sent on it yet.
pub fn connect(address: SocketAddr, index: usize) -> (Sender, Receiver) {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket has this option");
    let copy = stream.try_clone().expect("there are descriptors");
    let sender = Sender { stream, name: comp_id(index), next: 1, buffer: [0; LONGEST_BYTES] };
    (sender, Receiver { stream: copy, input: Vec::new(), used: 0 })
}

/// A session that is logged on, with both numbers from 1 on.
pub fn log_on(address: SocketAddr, index: usize, heartbeat_s: u64) -> (Sender, Receiver) {
    let (mut sender, mut receiver) = connect(address, index);
    let sent = sender.send(b"A", |writer, _| {
        writer.number(98, 0).number(108, heartbeat_s).flag(141, true);
    });
    sent.expect("the other side reads");
    while receiver.next().is_none() {
        receiver.read();
    }
    // A thousand of them are to take little.
    receiver.input = Vec::new();
    receiver.used = 0;
    (sender, receiver)
}
