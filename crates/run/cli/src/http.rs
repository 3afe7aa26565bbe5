//! Requests to the page of a running plant or gateway, or to a gateway's control socket.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use tapeworks_capture::stop;
use tapeworks_runtime::transport::Connector;

use crate::interrupt;

/// Maximum number of bytes read from an answer.
const MOST_BYTES: u64 = 64 << 20;

/// Time limit of a request, including all attempts.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause before the second attempt. The pause doubles before each further attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of attempts.
const MOST_ATTEMPTS: u32 = 6;

/// Sends a request with the token, and returns the body of the answer. Errors are one line.
///
/// A server that runs out of connections may close this one to make room, so the request is repeated if the connection ends
/// without an answer. Repeating is safe, because all requests, including `halt` and `resume`, are idempotent.
pub(crate) fn request(
    connector: &Connector,
    method: &str,
    address: SocketAddr,
    target: &str,
    token: Option<&str>,
) -> Result<String, String> {
    let mut head = format!("{method} {target} HTTP/1.0\r\nHost: {address}\r\n");
    if let Some(token) = token {
        if token.chars().any(char::is_control) {
            return Err("a token has no control characters".to_owned());
        }
        let _infallible = write!(head, "Authorization: Bearer {token}\r\n");
    }
    let connect = || {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(stop::LOOK))?;
        connector.over(stream)
    };
    ask(connect, &address.to_string(), &head)
}

/// Sends a request to a control socket, like [`request`] does to a page.
pub(crate) fn request_of_socket(method: &str, socket: &Path, target: &str) -> Result<String, String> {
    let connect = || {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(stop::LOOK))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    let head = format!("{method} {target} HTTP/1.0\r\nHost: localhost\r\n");
    ask(connect, &socket.display().to_string(), &head)
}

/// Sends the request that starts with `head` to `place`, and returns the body of the answer.
fn ask<S: Read + Write>(
    connect: impl Fn() -> io::Result<S>,
    place: &str,
    head: &str,
) -> Result<String, String> {
    // Commands have no body.
    let request = format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n");
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut attempts = 1;
    loop {
        match connect().and_then(|stream| attempt(stream, &request, began)) {
            Ok(answer) => return body(place, &answer),
            Err(error) if attempts < MOST_ATTEMPTS && is_end(&error) && !interrupt::is_requested() => {
                std::thread::sleep(pause);
                pause *= 2;
                attempts += 1;
            }
            Err(error) => return Err(format!("{place}: {error}")),
        }
    }
}

/// Returns whether the peer, or a device in between, closed the connection.
fn is_end(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof)
}

/// Sends the request, and reads the whole answer.
fn attempt(mut stream: impl Read + Write, request: &str, began: Instant) -> io::Result<Vec<u8>> {
    // With TLS, `flush` performs the handshake, which reads from the server.
    patiently(began, || stream.flush())?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut stream = stream.take(MOST_BYTES);
    // Bytes already read are kept when a read times out.
    patiently(began, || stream.read_to_end(&mut answer))?;
    if answer.is_empty() {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection was closed without an answer"));
    }
    Ok(answer)
}

/// Returns the body of an answer, or an error if the request was refused.
fn body(place: &str, answer: &[u8]) -> Result<String, String> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("{place}: not a web server"))?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        Some("401" | "403") => Err(format!("{place}: the page wants a token: --token")),
        Some(code) => {
            let why = body.lines().next().unwrap_or_default().trim();
            let why: String = why.chars().filter(|letter| !letter.is_control()).take(200).collect();
            let is_text = head.to_ascii_lowercase().contains("content-type: text/plain");
            let why = if is_text && !why.is_empty() { format!(": {why}") } else { String::new() };
            Err(format!("{place}: answered with {code}{why}"))
        }
        None => Err(format!("{place}: not a web server")),
    }
}

/// Repeats an operation that hits the socket's timeout, until the time limit of the request is over or the user stops it.
fn patiently<T>(began: Instant, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match act() {
            Ok(done) => return Ok(done),
            Err(_) if interrupt::is_requested() => return Err(io::Error::other("stopped")),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if began.elapsed() >= PATIENCE {
                    let why = format!("no whole answer within {} s", PATIENCE.as_secs());
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Escapes a text for a query: everything except letters, digits and `-._~` becomes `%XX` (RFC 3986, section 2.1).
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A connection that returns this answer and ends with this error.
    struct Scripted(Cursor<&'static [u8]>, Option<ErrorKind>);

    impl Read for Scripted {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match (self.0.read(into)?, self.1) {
                (0, Some(kind)) => Err(kind.into()),
                (length, _) => Ok(length),
            }
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the result of a request over these connections, and the number of connections used.
    fn asked(script: &[(&'static [u8], Option<ErrorKind>)]) -> (Result<String, String>, usize) {
        let taken = std::cell::Cell::new(0);
        let connect = || {
            let (answer, end) = script[taken.get().min(script.len() - 1)];
            taken.set(taken.get() + 1);
            Ok(Scripted(Cursor::new(answer), end))
        };
        (ask(connect, "page", "GET / HTTP/1.0\r\n"), taken.get())
    }

    #[test]
    fn a_request_is_sent_again_when_its_connection_ends_without_an_answer() {
        const GOOD: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nyes";
        let reset = (&b""[..], Some(ErrorKind::ConnectionReset));
        assert_eq!(asked(&[reset, (b"", None), (GOOD, None)]), (Ok("yes".to_owned()), 3));
        assert_eq!(asked(&[(b"", Some(ErrorKind::PermissionDenied)), (GOOD, None)]).1, 1);
        // A refusal is not repeated.
        let refused = asked(&[(b"HTTP/1.0 409 Conflict\r\ncontent-type: text/plain\r\n\r\nno", None)]);
        assert_eq!(refused, (Err("page: answered with 409: no".to_owned()), 1));
        let (error, attempts) = asked(&[reset]);
        assert_eq!((error.unwrap_err().as_str(), attempts), ("page: connection reset", 6));
    }

    #[test]
    fn a_query_has_no_letters_with_a_meaning() {
        assert_eq!(escaped("a b&c=d/\u{e9}"), "a%20b%26c%3Dd%2F%C3%A9");
    }
}
