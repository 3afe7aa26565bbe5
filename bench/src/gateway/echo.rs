//! The floor: the same bytes to a forwarder, to an echo, and back, without a protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

/// How the forwarder waits for bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// In the read of a socket: for one client with one message at a time.
    Blocking,
    /// As `Blocking`, but it looks again and again.
    Spinning,
    /// For the sockets of many clients at once.
    Polling,
    PollingNone,
}

/// A forwarder and an echo behind it. Dropping ends both.
pub struct Echo {
    pub address: SocketAddr,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

impl Echo {
    pub fn start(hop: Hop, clients: usize) -> Self {
        let (behind, echo_address) = listen();
        let (front, address) = listen();
        let is_over = Arc::new(AtomicBool::new(false));
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let echo = named("echo").spawn(move || {
            let (mut stream, _) = behind.accept().expect("the forwarder comes");
            stream.set_nodelay(true).expect("a socket has this option");
            let mut buffer = vec![0; 64 << 10];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
        });
        let has_ended = Arc::clone(&is_over);
        let forwarder = named("forwarder").spawn(move || {
            let up = TcpStream::connect(echo_address).expect("it listens");
            up.set_nodelay(true).expect("a socket has this option");
            match hop {
                Hop::Blocking => forward(&front, up, |stream, buffer| stream.read(buffer)),
                Hop::Spinning => forward(&front, up, |stream, buffer| look(stream, buffer, &has_ended)),
                Hop::Polling => forward_many(&front, up, clients, &has_ended, Some(Duration::from_millis(50))), Hop::PollingNone => forward_many(&front, up, clients, &has_ended, None),
            }
        });
        let threads = [echo, forwarder].map(|thread| thread.expect("there are threads")).into();
        Self { address, is_over, threads }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.join().expect("no thread has panicked");
        }
    }
}

/// Reads as soon as there is something.
fn look(stream: &mut TcpStream, buffer: &mut [u8], is_over: &AtomicBool) -> std::io::Result<usize> {
    stream.set_nonblocking(true)?;
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && !is_over.load(Ordering::Acquire) => {
                std::hint::spin_loop();
            }
            read => return read,
        }
    }
}

/// One message there, one back.
fn forward(
    front: &TcpListener,
    mut up: TcpStream,
    read: impl Fn(&mut TcpStream, &mut [u8]) -> std::io::Result<usize>,
) {
    let (mut client, _) = front.accept().expect("the client comes");
    client.set_nodelay(true).expect("a socket has this option");
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = read(&mut client, &mut buffer) {
        if up.write_all(&buffer[..length]).is_err() {
            return;
        }
        // The echo sends what it got in one piece: messages are short.
        let Ok(length @ 1..) = read(&mut up, &mut buffer) else { return };
        if client.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Many clients over one connection: each piece has its length and its client before it.
fn forward_many(front: &TcpListener, up: TcpStream, clients: usize, is_over: &AtomicBool, to: Option<Duration>) {
    let accept = |_| {
        let (stream, _) = front.accept().expect("the clients come");
        stream.set_nodelay(true).expect("a socket has this option");
        stream.set_nonblocking(true).expect("a socket has this option");
        mio::net::TcpStream::from_std(stream)
    };
    let mut streams: Vec<_> = (0..clients).map(accept).collect();
    up.set_nonblocking(true).expect("a socket has this option");
    let mut up = mio::net::TcpStream::from_std(up);
    let (mut poll, mut events) = (Poll::new().expect("the kernel polls"), Events::with_capacity(256));
    for (index, stream) in streams.iter_mut().enumerate() {
        poll.registry().register(stream, Token(index), Interest::READABLE).expect("the kernel polls");
    }
    poll.registry().register(&mut up, Token(clients), Interest::READABLE).expect("the kernel polls");
    let (mut buffer, mut forth, mut back) = (vec![0; 64 << 10], Vec::new(), Vec::new());
    while !is_over.load(Ordering::Acquire) {
        poll.poll(&mut events, to).expect("the kernel polls");
        for event in &events {
            let index = event.token().0;
            let stream = if index == clients { &mut up } else { &mut streams[index] };
            // A read that leaves room has emptied the socket.
            while let Ok(length) = stream.read(&mut buffer) {
                if length == 0 { return; }
                if index == clients {
                    back.extend_from_slice(&buffer[..length]);
                } else {
                    forth.extend_from_slice(&(length as u32).to_le_bytes());
                    forth.extend_from_slice(&(index as u32).to_le_bytes());
                    forth.extend_from_slice(&buffer[..length]);
                }
                if length < buffer.len() {
                    break;
                }
            }
        }
        write(&mut up, &forth);
        forth.clear();
        let mut used = 0;
        while let Some(head) = back.get(used..used + 8) {
            let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (length, index) = (number(0) as usize, number(4) as usize);
            let Some(piece) = back.get(used + 8..used + 8 + length) else { break };
            write(&mut streams[index], piece);
            used += 8 + length;
        }
        back.drain(..used);
    }
}

/// Writes everything; what is in flight is far smaller than a socket's buffer.
fn write(stream: &mut mio::net::TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            // The client has ended.
            Err(_) => return,
        }
    }
}
