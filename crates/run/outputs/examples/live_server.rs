//! A server for other people's clients: a generated session, published on command.
//!
//! `live_server FOLDER MESSAGES SYMBOLS` writes the session as a DBN file of each schema into the folder, listens on a port
//! that the system chooses, prints it, and obeys lines on its standard input: `publish N` publishes so many events more (all
//! that are left without a number), `end` ends. `cargo xtask test live` runs it under the official clients.
#![allow(clippy::unwrap_used, reason = "what goes wrong ends the program, which its caller sees")]

#[path = "../tests/session/mod.rs"]
mod session;

use std::path::PathBuf;
use std::time::Duration;

use tapeworks_store::Schema;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let mut number = |otherwise| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (messages, symbols) = (number(20_000), number(20));
    let events = session::events(&session::scenario(messages, symbols as u32, 1));
    for schema in Schema::ALL {
        session::write(&events, schema, &folder.join(format!("{schema}.dbn")));
    }
    let mut plant = session::Plant::start();
    println!("port {}", plant.server.address().port());
    println!("events {}", events.len());
    let mut published = 0;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        if word != "publish" {
            break;
        }
        let count: usize = rest.parse().unwrap_or(events.len());
        let until = events.len().min(published + count);
        // Paced, so that the clients get several turns.
        for part in events[published..until].chunks(1000) {
            plant.publish(part);
            std::thread::sleep(Duration::from_millis(1));
        }
        published = until;
        // What is announced as published has reached the clients' queues.
        plant.reach(published as u64);
        println!("published {published} {}", events[published - 1].ts_recv.0);
    }
    plant.end();
}
