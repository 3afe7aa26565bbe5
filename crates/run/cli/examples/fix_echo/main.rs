//! A FIX acceptor for conformance suites: it echoes every valid application message.
//!
//! `cargo run --example fix_echo -- --port 5001 --dictionary-dir DIR`. The acceptor is `ISLD` and accepts FIX 4.2, 4.4 and 5.0 SP2 on
//! one port: one session each for the peers `TW` and `TW42`, `TW44`, `TW50SP2`. DIR has QuickFIX-style dictionaries: `FIX42.xml`,
//! `FIX44.xml`, `FIXT11.xml` and `FIX50SP2.xml`. A message with PossResend whose ClOrdID was seen before is ignored, and execution
//! reports are rejected as unsupported. Numbers restart at 1 after a Logout or a disconnect, and at a Logon only if its ResetSeqNumFlag
//! says so; with `--keep-numbers` they continue.

mod acceptor;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;

use acceptor::{Acceptor, Dictionaries};

/// A FIX acceptor that echoes every valid application message.
#[derive(Parser)]
struct Arguments {
    /// The TCP port.
    #[arg(long)]
    port: u16,
    /// The folder of the dictionaries.
    #[arg(long)]
    dictionary_dir: PathBuf,
    /// Both numbers continue after a Logout and a disconnect.
    #[arg(long)]
    keep_numbers: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let dictionaries = Dictionaries::read(&arguments.dictionary_dir)?;
    let acceptor = Arc::new(Acceptor::new(&dictionaries, arguments.keep_numbers));
    let listener = TcpListener::bind(("127.0.0.1", arguments.port))?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, acceptor) = (stream?, acceptor.clone());
        std::thread::spawn(move || match acceptor.serve(stream) {
            Ok((peer, end)) => eprintln!("{peer:?} ended: {end:?}"),
            Err(error) => eprintln!("closed: {error}"),
        });
    }
    Ok(())
}
