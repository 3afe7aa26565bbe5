//! Keeps the code that sends to a client in the caches.
//!
//! After a pause, the code that sends the first record, in Tapeworks and in the kernel, has left the caches: books, records, the
//! client's queue, the socket. A [`ClientWarmer`] has a private [`Distributor`] with two private connections, and sends them
//! records in idle time: one takes all of a schema, the other the records of one symbol. It shares code with the live distributor,
//! but no data.
//!
//! Cost: about 20 us per turn, at most once every 500 us, and four sockets. `cargo xtask bench plant --part warm` measures the
//! gain.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the caches are those of the machine, in every world"
)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tapeworks_market::{Capacity, Event, EventKind, InstrumentId, Price, Publisher, Side, Symbol};
use tapeworks_time::Nanos;

use super::distributor::{Dataset, Distributor, Options};
use tapeworks_market::BookOptions;
use tapeworks_runtime::keys::{Key, Keys};
use tapeworks_runtime::now;
use tapeworks_runtime::rhythm::Rhythm;

/// The key of the private connections. No other program can connect, because the listener is closed once they are established.
const SECRET: &str = "db-OfTheConnectionsThatAreNobody";

const DATASET: &str = "WARM";

const SYMBOL: &str = "WARM";

const PUBLISHER: Publisher = Publisher::XNAS_ITCH;

/// Time limit for establishing a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// The subscriptions of the two connections.
const REQUESTS: [&str; 2] =
    ["schema=mbo|stype_in=raw_symbol|symbols=ALL_SYMBOLS", "schema=cmbp-1|stype_in=raw_symbol|symbols=WARM"];

/// Sends records to private clients.
#[derive(Debug)]
pub struct ClientWarmer {
    distributor: Distributor,
    clients: Vec<TcpStream>,
    buffer: Vec<u8>,
    /// The number of the next event.
    next: u64,
    began: Instant,
    rhythm: Rhythm,
}

impl ClientWarmer {
    /// Creates a warmer with its connections, over the loopback interface.
    ///
    /// # Errors
    /// If there are no sockets for them, or an exchange takes more than two seconds.
    pub fn new() -> io::Result<Self> {
        let key = Key::new("warm", SECRET).map_err(io::Error::other)?;
        let capacity = Capacity { instruments: 4, orders: 64, levels: 64 };
        let options = Options {
            keys: Keys::new(vec![key.clone()]),
            datasets: vec![Dataset { name: DATASET.to_owned(), publishers: Vec::new() }],
            books: BookOptions { feeds: vec![(PUBLISHER, capacity)], capacity, ..BookOptions::default() },
            ..Options::default()
        };
        let distributor = Distributor::new(options).map_err(io::Error::other)?;
        let (clients, buffer) = (Vec::new(), vec![0; 1 << 14]);
        let mut warmer =
            Self { distributor, clients, buffer, next: 0, began: Instant::now(), rhythm: Rhythm::default() };
        let symbol = Symbol::from_bytes(SYMBOL.as_bytes()).map_err(io::Error::other)?;
        warmer.event(Event::new(EventKind::SymbolMapping, PUBLISHER, InstrumentId(0)).with_symbol(symbol))?;
        for request in REQUESTS {
            let client = warmer.connect(&key, request)?;
            warmer.clients.push(client);
        }
        Ok(warmer)
    }

    /// Establishes a connection and begins its session.
    fn connect(&mut self, key: &Key, request: &str) -> io::Result<TcpStream> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        let (stream, address) = loop {
            // Connections of other programs are closed.
            let (stream, peer) = listener.accept()?;
            if peer == client.local_addr()? {
                break (stream, peer);
            }
        };
        stream.set_nonblocking(true)?;
        self.distributor.accept(mio::net::TcpStream::from_std(stream), address)?;
        client.set_nonblocking(true)?;
        let greeting = self.read_until(&mut client, |text| text.matches('\n').count() == 2)?;
        let (_, challenge) = greeting.trim_end().rsplit_once('=').ok_or(ErrorKind::InvalidData)?;
        let lines = format!(
            "auth={}-{}|dataset={DATASET}|encoding=dbn|ts_out=0\n{request}|is_last=1\nstart_session\n",
            hex::encode(key.answer(challenge)),
            key.bucket()
        );
        client.write_all(lines.as_bytes())?;
        // The head of the stream.
        self.read_until(&mut client, |text| text.contains("DBN"))?;
        Ok(client)
    }

    /// Reads from a connection until `is_enough` accepts the text.
    fn read_until(&mut self, client: &mut TcpStream, is_enough: impl Fn(&str) -> bool) -> io::Result<String> {
        let (began, mut heard) = (Instant::now(), String::new());
        while !is_enough(&heard) {
            if began.elapsed() > PATIENCE {
                return Err(ErrorKind::TimedOut.into());
            }
            self.serve(Duration::from_millis(1))?;
            match client.read(&mut self.buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    heard.push_str(&String::from_utf8_lossy(self.buffer.get(..read).unwrap_or_default()))
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(heard)
    }

    fn serve(&mut self, wait: Duration) -> io::Result<()> {
        let steady = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.distributor.serve(now(), Nanos(steady), wait)
    }

    fn event(&mut self, event: Event) -> io::Result<()> {
        self.distributor.events(self.next, &[event], now()).map_err(io::Error::other)?;
        self.next += 1;
        Ok(())
    }

    /// Sends a record, if the last one was sent long enough ago.
    ///
    /// # Errors
    /// As [`ClientWarmer::publish`].
    pub fn turn(&mut self) -> io::Result<()> {
        if self.rhythm.is_due() {
            self.publish()?;
            self.drain()?;
        }
        Ok(())
    }

    /// Sends a record to both connections: alternately an added and a deleted order.
    ///
    /// # Errors
    /// The operating system's error of a socket.
    pub fn publish(&mut self) -> io::Result<()> {
        let kind = if self.next % 2 == 1 { EventKind::Add } else { EventKind::Delete };
        let mut event = Event::new(kind, PUBLISHER, InstrumentId(0));
        (event.ts_event, event.channel_sequence) = (now(), self.next);
        event.ts_recv = event.ts_event;
        (event.order_id, event.side, event.size) = (1, Side::Bid, 100);
        event.price = Price::from_e9(10 * Price::ONE);
        self.event(event)?;
        self.serve(Duration::ZERO)
    }

    /// Reads from the connections. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`ClientWarmer::publish`].
    pub fn drain(&mut self) -> io::Result<usize> {
        let mut bytes = 0;
        for client in &mut self.clients {
            loop {
                match client.read(&mut self.buffer) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(read) => bytes += read,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_sends_a_record_to_both_connections() {
        let mut warmer = ClientWarmer::new().unwrap();
        warmer.drain().unwrap();
        for turn in 1..=10 {
            warmer.publish().unwrap();
            assert_eq!(warmer.distributor.counters().records, 2 * turn);
            // 56 bytes of mbo, 80 of cmbp-1.
            let (began, mut bytes) = (Instant::now(), 0);
            while bytes < 56 + 80 && began.elapsed() < PATIENCE {
                bytes += warmer.drain().unwrap();
            }
            assert_eq!(bytes, 56 + 80);
        }
        assert_eq!(warmer.distributor.clients().len(), 2);
    }
}
