//! FIX clients by TLS: certificates of clients, and who is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![cfg(feature = "tls")]

mod authority;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use authority::Authority;
use tapeworks_gateway::client::{ClientError, FixClient};
use tapeworks_gateway::config::{AnyParts, Config};
use tapeworks_gateway::{Gateway, open};
use tapeworks_order_session::fix::{Role, Settings};
use tapeworks_runtime::transport::Connector;
use tapeworks_runtime::world::System;

const PATIENCE: Duration = Duration::from_secs(20);

fn start(folder: &Path, tls: &str, of_client: &str) -> Gateway {
    let text = format!(
        r#"
listen = "127.0.0.1:0"
[store]
folder = "{}/store"
[venue]
protocol = "millennium"
real_time = "127.0.0.1:1"
recovery = "127.0.0.1:1"
user = "TW01"
password = "password"
[[instrument]]
symbol = "AAPL"
id = 1
[[client]]
name = "alpha"
comp_id = "ALPHA"
{of_client}
{tls}
"#,
        folder.display()
    );
    let config =
        Config::parse("gateway.toml", &text, folder).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let AnyParts::Millennium(parts) = config.parts(0).unwrap() else { panic!("native") };
    let opened = open::<_, System>(&config.store, config.journal, config.sync, parts, 0).unwrap();
    Gateway::start(config.host, opened.core, opened.ledger, Box::new(|_| ()), None).unwrap()
}

fn log_on(gateway: &Gateway, connector: Connector) -> Result<FixClient<System>, ClientError> {
    let settings = Settings::new(Role::Initiator, "FIX.4.4", "ALPHA", "TAPEWORKS");
    FixClient::connect_by(connector, gateway.address(), settings, None, PATIENCE)
}

#[test]
fn a_client_is_let_in_by_its_own_certificate_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (Authority::new(folder.path(), "ours"), Authority::new(folder.path(), "others"));
    ours.sign("gateway");
    let alpha = ours.sign("alpha");
    ours.sign("beta");
    others.sign("alpha");
    let tls = format!(
        "[tls]\ncertificate = \"ours/gateway.pem\"\nprivate_key = \"ours/gateway.key\"\n\
         client_authorities = \"{}\"",
        ours.path("authority.pem").display()
    );
    let gateway = start(folder.path(), &tls, &format!("certificate_sha256 = \"{alpha}\""));
    for (case, connector) in [
        ("without TLS", Connector::Plain),
        ("without a certificate", ours.connector(None)),
        ("with that of another authority", ours.connector(Some((&others, "alpha")))),
        ("with that of another client", ours.connector(Some((&ours, "beta")))),
        ("to a gateway that it does not trust", others.connector(Some((&ours, "alpha")))),
    ] {
        assert!(log_on(&gateway, connector).is_err(), "{case}");
    }
    let mut client = log_on(&gateway, ours.connector(Some((&ours, "alpha")))).unwrap();
    // Messages that are longer than a record of TLS, both ways.
    let text = "x".repeat(40_000);
    client.send("1", &[(112, text.clone())]).unwrap();
    let number = client.numbers().0;
    let began = std::time::Instant::now();
    while client.numbers().0 == number {
        client.turn(Duration::from_millis(20)).unwrap();
        assert!(began.elapsed() < PATIENCE, "no heartbeat answers the test request");
    }
    client.log_out(PATIENCE);
    while gateway.status().clients[0].next_incoming != 4 {
        assert!(began.elapsed() < PATIENCE, "a logon, a test request, a logout: {:?}", gateway.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    gateway.stop().unwrap();
}

#[test]
fn garbage_and_silence_before_the_handshake_disturb_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new(folder.path(), "ours");
    ours.sign("gateway");
    let tls = "[tls]\ncertificate = \"ours/gateway.pem\"\nprivate_key = \"ours/gateway.key\"";
    let gateway = start(folder.path(), tls, "");
    let _silent = TcpStream::connect(gateway.address()).unwrap();
    for garbage in [&b"8=FIX.4.4\x019=5\x01"[..], &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3], &[0; 70_000]] {
        let mut stream = TcpStream::connect(gateway.address()).unwrap();
        // It may be closed meanwhile.
        let _sent = stream.write_all(garbage);
        let _sent = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _closed = stream.read_to_end(&mut Vec::new());
    }
    let began = std::time::Instant::now();
    while gateway.status().refused_connections < 3 {
        assert!(began.elapsed() < PATIENCE, "failed handshakes are not counted: {:?}", gateway.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Without `client_authorities` a certificate is not needed.
    let mut client = log_on(&gateway, ours.connector(None)).unwrap();
    client.log_out(PATIENCE);
    gateway.stop().unwrap();
}
