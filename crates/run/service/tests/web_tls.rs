//! The page by TLS: who speaks it, who shows a certificate, and files that are replaced while it runs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![cfg(all(feature = "tls", feature = "web"))]

mod authority;
#[path = "session/served.rs"]
mod served;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use authority::Authority;
use serde_json::Value;
use tapeworks_runtime::transport::{Connector, TlsFiles};
use tapeworks_service::web::{self, Web};
use tokio_tungstenite::tungstenite;

const PATIENCE: Duration = Duration::from_secs(20);

const TOKEN: &str = "a token that is long enough";

/// The page of a plant that shows a certificate, and asks for one of `clients`.
fn serve(of: &Authority, name: &str, clients: Option<&Authority>) -> Web {
    let files = TlsFiles {
        certificate: of.path(&format!("{name}.pem")),
        private_key: of.path(&format!("{name}.key")),
        client_authorities: clients.map(|authority| authority.path("authority.pem")),
    };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listening = web::bind(address, Some(TOKEN.into()), files.acceptor().unwrap()).unwrap();
    web::plant::start(listening, served::handles(), None).unwrap()
}

/// Sends a request, and returns the whole answer.
fn ask(connector: &Connector, address: SocketAddr, request: &str) -> std::io::Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = connector.over(stream)?;
    let head = format!("Host: {address}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n");
    stream.write_all(request.replace("HEAD", &head).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn get(connector: &Connector, address: SocketAddr, path: &str) -> std::io::Result<String> {
    ask(connector, address, &format!("GET {path} HTTP/1.1\r\nHEAD\r\n"))
}

fn status(connector: &Connector, address: SocketAddr) -> Value {
    let answer = get(connector, address, "/status.json").unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Asks again until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_page_with_a_certificate_speaks_tls_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    authority.sign("page");
    let web = serve(&authority, "page", None);
    let (address, by_tls) = (web.address(), authority.connector(None));
    assert_eq!(web.url(), format!("https://{address}/"));
    assert!(get(&by_tls, address, "/health").unwrap().starts_with("HTTP/1.1 200"));
    let without = get(&Connector::Plain, address, "/health");
    assert!(!without.as_ref().is_ok_and(|answer| answer.contains("HTTP/")), "{without:?}");
    // A client that trusts another authority does not go on.
    let stranger = Authority::new(folder.path(), "theirs");
    assert!(get(&stranger.connector(None), address, "/health").is_err());
    let status = status(&by_tls, address);
    assert_eq!(status["web"]["tls_refused"], 2, "{status}");
    assert_eq!(status["files"]["web.certificate"]["failed_reloads"], 0);
    let metrics = get(&by_tls, address, "/metrics").unwrap();
    assert!(metrics.contains("\ntapeworks_files_reloads_total{files=\"web.certificate\"} 0\n"), "{metrics}");

    let form = format!("token={}", TOKEN.replace(' ', "+"));
    let login = format!(
        "POST /login HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{form}",
        form.len()
    );
    let answer = ask(&by_tls, address, &login).unwrap();
    assert!(answer.contains("SameSite=Strict; Secure\r\n"), "{answer}");

    // What a browser opens beside the page.
    let mut request =
        tungstenite::client::IntoClientRequest::into_client_request(format!("wss://{address}/live")).unwrap();
    request.headers_mut().insert("Authorization", format!("Bearer {TOKEN}").parse().unwrap());
    let stream = by_tls.over(TcpStream::connect(address).unwrap()).unwrap();
    let (mut socket, _) = tungstenite::client(request, stream).unwrap();
    let first = socket.read().unwrap();
    let first: Value = serde_json::from_str(first.to_text().unwrap()).unwrap();
    assert!(first.is_object(), "{first}");
}

#[test]
fn a_page_that_asks_for_certificates_answers_those_who_show_one() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(folder.path(), "ours"), Authority::new(folder.path(), "theirs"));
    ours.sign("page");
    ours.sign("probe");
    theirs.sign("probe");
    let web = serve(&ours, "page", Some(&ours));
    let address = web.address();
    let known = ours.connector(Some((&ours, "probe")));
    assert!(get(&known, address, "/health").unwrap().starts_with("HTTP/1.1 200"));
    for (who, connector) in
        [("none", ours.connector(None)), ("another authority's", ours.connector(Some((&theirs, "probe"))))]
    {
        assert!(get(&connector, address, "/health").is_err(), "{who}");
    }
    assert_eq!(status(&known, address)["web"]["tls_refused"], 2);
}

#[test]
fn a_renewed_certificate_is_shown_without_a_restart_and_a_broken_file_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(folder.path(), "old"), Authority::new(folder.path(), "new"));
    old.sign("page");
    new.sign("page");
    let web = serve(&old, "page", None);
    let (address, by_old, by_new) = (web.address(), old.connector(None), new.connector(None));
    assert!(get(&by_new, address, "/health").is_err());
    // The certificate comes first, and is not of the key that is there.
    std::fs::copy(new.path("page.pem"), old.path("page.pem")).unwrap();
    until("the new certificate without its key is refused", || {
        status(&by_old, address)["files"]["web.certificate"]["failed_reloads"].as_u64() > Some(0)
    });
    let problem = status(&by_old, address)["files"]["web.certificate"]["problem"].clone();
    assert!(problem.as_str().unwrap().contains("page.pem"), "{problem}");
    std::fs::copy(new.path("page.key"), old.path("page.key")).unwrap();
    until("the new certificate is shown", || get(&by_new, address, "/health").is_ok());
    assert!(get(&by_old, address, "/health").is_err());
    let status = status(&by_new, address);
    assert_eq!(status["files"]["web.certificate"]["problem"], Value::Null, "{status}");
    assert!(
        status["files"]["web.certificate"]["reloads"].as_u64()
            > status["files"]["web.certificate"]["failed_reloads"].as_u64()
    );
}
