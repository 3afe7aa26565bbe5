//! The stream for other people's clients: half of a generated session, and the rest once they are there.
//!
//! `stream_server MESSAGES SYMBOLS CLIENTS` publishes half of the session, listens on a port that the system chooses and
//! prints it, waits until so many clients have the present state, publishes the rest, and ends with its standard input.
//! `cargo xtask test java` runs it under the Java client.
#![allow(clippy::unwrap_used, reason = "what goes wrong ends the program, which its caller sees")]

#[path = "../tests/session/served.rs"]
mod served;
#[path = "../tests/session/mod.rs"]
mod session;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use served::Served;
use tapeworks_market::Event;

/// Clients that have come.
fn clients(address: SocketAddr) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /status.json HTTP/1.1\r\nConnection: close\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    status["web"]["stream_clients"].as_u64().unwrap()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (messages, symbols, wanted) = (number(20_000), number(20), number(1));
    let events = session::events(&session::scenario(messages, symbols as u32, 1));
    let mut served = Served::new(events.len() / 2);
    let address = served.web.address();
    let (before, after) = events.split_at(events.len() / 2);
    let mut publish = |events: &[Event]| {
        // Paced, so that no client falls behind.
        for part in events.chunks(100) {
            served.publish(part);
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    publish(before);
    println!("port {}", address.port());
    while clients(address) < wanted {
        std::thread::sleep(Duration::from_millis(20));
    }
    // They are counted before they join, which takes the thread of the stream a sleep.
    std::thread::sleep(Duration::from_millis(500));
    publish(after);
    // The end of its input ends it.
    let _ended = std::io::stdin().read_to_end(&mut Vec::new());
}
