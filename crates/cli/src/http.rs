//! Requests to the page of a running plant or gateway, or to a gateway's control socket.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use tapeworks_packet::stop;
use tapeworks_runtime::transport::Connector;

use crate::interrupt;

/// The longest answer that is read, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends a request with the token, and returns the body of the answer. An error is one line.
pub(crate) fn request(
    connector: &Connector,
    method: &str,
    address: SocketAddr,
    target: &str,
    token: Option<&str>,
) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).map_err(failed)?;
    stream.set_read_timeout(Some(stop::LOOK)).map_err(failed)?;
    let mut head = format!("{method} {target} HTTP/1.0\r\nHost: {address}\r\n");
    if let Some(token) = token {
        if token.chars().any(char::is_control) {
            return Err("a token has no control characters".to_owned());
        }
        let _infallible = write!(head, "Authorization: Bearer {token}\r\n");
    }
    let stream = connector.over(stream).map_err(failed)?;
    ask(stream, &address.to_string(), head)
}

/// Sends a request to a control socket, as [`request`] does to a page.
pub(crate) fn request_of_socket(method: &str, socket: &Path, target: &str) -> Result<String, String> {
    let place = socket.display().to_string();
    let connect = || {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(stop::LOOK))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    let stream = connect().map_err(|error: std::io::Error| format!("{place}: {error}"))?;
    ask(stream, &place, format!("{method} {target} HTTP/1.0\r\nHost: localhost\r\n"))
}

/// Sends the request with this head over a connection to `place`, and returns the body of the answer.
fn ask(mut stream: impl Read + Write, place: &str, head: String) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{place}: {error}");
    let began = Instant::now();
    // With TLS both sides agree first, which takes what the server sends.
    patiently(place, began, || stream.flush())?;
    // A command has no body.
    let request = head + "Content-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    let mut stream = stream.take(MOST_BYTES);
    // The bytes read so far stay when a read times out.
    patiently(place, began, || stream.read_to_end(&mut answer))?;
    let answer = String::from_utf8_lossy(&answer);
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

/// Does again what a socket's time limit has ended, until there is no more patience or the user stops.
fn patiently<T>(
    place: &str,
    began: Instant,
    mut act: impl FnMut() -> std::io::Result<T>,
) -> Result<T, String> {
    loop {
        match act() {
            Ok(done) => return Ok(done),
            Err(_) if interrupt::is_requested() => return Err(format!("{place}: stopped")),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if began.elapsed() >= PATIENCE {
                    return Err(format!("{place}: no whole answer within {} s", PATIENCE.as_secs()));
                }
            }
            Err(error) => return Err(format!("{place}: {error}")),
        }
    }
}

/// A text as a part of a query: everything but letters, digits and `-._~` as `%XX` (RFC 3986, section 2.1).
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
    #[test]
    fn a_query_has_no_letters_with_a_meaning() {
        assert_eq!(super::escaped("a b&c=d/\u{e9}"), "a%20b%26c%3Dd%2F%C3%A9");
    }
}
