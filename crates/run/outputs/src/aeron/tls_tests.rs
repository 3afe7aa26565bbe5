//! Replays by TLS: who gets them, what others read, and files that are replaced while both run.

#[path = "../../tests/authority/mod.rs"]
pub(super) mod authority;

use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use authority::Authority;
use tapeworks_engine::history::MemoryHistory;
use tapeworks_runtime::transport::{Acceptor, Connector, TlsFiles};

use super::fetch::{FetchError, fetch_by};
use super::message;
use super::replay::tests::{event, served_by};
use super::replay::{Refusal, Replays, Timed, Wanted, read_request};
use super::sender::Queue;

const TOKEN: &str = "right";

/// More than the buffers of a connection hold.
const EVENTS: u64 = 50_000;

/// How a server accepts that shows a certificate, and asks for one of `clients`.
pub(super) fn acceptor(of: &Authority, clients: Option<&Authority>) -> Acceptor {
    let files = TlsFiles {
        certificate: of.path("plant.pem"),
        private_key: of.path("plant.key"),
        client_authorities: clients.map(|authority| authority.path("authority.pem")),
    };
    files.acceptor().unwrap()
}

fn served(acceptor: Acceptor) -> (Replays, Arc<Queue>) {
    let history = MemoryHistory::default();
    history.append(&(0..EVENTS).map(event).collect::<Vec<_>>());
    served_by(acceptor, history, TOKEN)
}

/// The numbers of all events.
fn fetch(replays: &Replays, connector: Connector) -> Result<Vec<u64>, FetchError> {
    let (mut numbers, wanted) = (Vec::new(), Wanted { shard: None, after: None, start: 0 });
    fetch_by(connector, replays.address(), TOKEN, &wanted, |header, rest| {
        message::events(header, rest, |number, _| numbers.push(number))
    })?;
    Ok(numbers)
}

fn assert_all(fetched: Result<Vec<u64>, FetchError>) {
    assert!(fetched.unwrap().into_iter().eq(0..EVENTS));
}

/// Waits until the server has counted so many handshakes that failed, and so many refusals.
fn counted(queue: &Queue, tls_refused: u64, refused: u64) {
    let began = Instant::now();
    loop {
        let status = queue.status();
        if (status.tls_refused, status.refused_replays) == (tls_refused, refused) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{status:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The text of an error of TLS.
fn no_tls(fetched: Result<Vec<u64>, FetchError>) -> String {
    let error = fetched.unwrap_err();
    assert!(matches!(error, FetchError::Tls { .. }) && !error.is_passing(), "{error}");
    error.to_string()
}

/// An authority that has signed a certificate of a plant and one of a reader.
pub(super) fn authority(folder: &Path, name: &str) -> Authority {
    let authority = Authority::new(folder, name);
    authority.sign("plant");
    authority.sign("reader");
    authority
}

#[test]
fn a_reader_gets_a_replay_by_tls_of_a_server_that_it_trusts_and_of_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (authority(folder.path(), "ours"), authority(folder.path(), "theirs"));
    let (replays, queue) = served(acceptor(&ours, None));
    assert_all(fetch(&replays, ours.connector(None)));
    let refused = no_tls(fetch(&replays, theirs.connector(None)));
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    counted(&queue, 1, 1);
    assert_eq!(queue.status().replays, 1);
}

#[test]
fn a_reader_without_tls_reads_that_the_server_speaks_it_and_one_with_tls_that_it_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let ours = authority(folder.path(), "ours");
    let (replays, queue) = served(acceptor(&ours, None));
    let refused = fetch(&replays, Connector::Plain).unwrap_err();
    let text = refused.to_string();
    assert!(text.ends_with("this replay server speaks TLS, and nothing else"), "{text}");
    assert!(matches!(refused, FetchError::Refused { .. }), "{text}");
    counted(&queue, 1, 1);
    let (replays, queue) = served(Acceptor::Plain);
    let refused = no_tls(fetch(&replays, ours.connector(None)));
    assert!(refused.ends_with("the other side does not speak TLS"), "{refused}");
    counted(&queue, 0, 1);
}

#[test]
fn a_server_that_asks_for_certificates_serves_readers_with_one_of_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (authority(folder.path(), "ours"), authority(folder.path(), "theirs"));
    let (replays, queue) = served(acceptor(&ours, Some(&ours)));
    for stranger in [ours.connector(None), ours.connector(Some((&theirs, "reader")))] {
        let refused = no_tls(fetch(&replays, stranger));
        assert!(refused.contains("alert"), "{refused}");
    }
    counted(&queue, 2, 2);
    assert_all(fetch(&replays, ours.connector(Some((&ours, "reader")))));
}

#[test]
fn a_renewed_certificate_is_shown_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (authority(folder.path(), "old"), authority(folder.path(), "new"));
    let (replays, _queue) = served(acceptor(&old, None));
    let by_new = new.connector(None);
    no_tls(fetch(&replays, by_new.clone()));
    for file in ["plant.key", "plant.pem"] {
        std::fs::copy(new.path(file), old.path(file)).unwrap();
    }
    let began = Instant::now();
    // Files are looked at once a second.
    let mut fetched = fetch(&replays, by_new.clone());
    while fetched.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "{fetched:?}");
        thread::sleep(Duration::from_millis(50));
        fetched = fetch(&replays, by_new.clone());
    }
    assert_all(fetched);
}

#[test]
fn peers_that_stand_still_in_the_handshake_leave_replays_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let ours = authority(folder.path(), "ours");
    let (replays, queue) = served(acceptor(&ours, None));
    let connect = || TcpStream::connect(replays.address()).unwrap();
    let mut still: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
    for stream in still.iter_mut().skip(4) {
        // The begin of a record of a handshake.
        stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).unwrap();
    }
    assert_all(fetch(&replays, ours.connector(None)));
    assert_eq!(queue.status().tls_refused, 0, "they still have time");
    drop(still);
    counted(&queue, 8, 8);
}

#[test]
fn a_peer_that_sends_its_handshake_byte_by_byte_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let ours = authority(folder.path(), "ours");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let dripping = thread::spawn(move || {
        // A record of 16 KB, which TLS waits for.
        let mut bytes = [0x16, 3, 1, 0x40, 0].into_iter().chain(std::iter::repeat(1));
        while peer.write_all(&[bytes.next().unwrap()]).is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let stream = Timed::new(stream, Duration::from_millis(200), Duration::from_secs(1)).unwrap();
    let mut stream = acceptor(&ours, None).accept(stream, b"").unwrap();
    let given_up = read_request(&mut stream).unwrap_err();
    let Refusal::NoTls(error) = &given_up else { panic!("{given_up}") };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{given_up}");
    drop(stream);
    dripping.join().unwrap();
}
