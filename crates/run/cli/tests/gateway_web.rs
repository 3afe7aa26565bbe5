//! A running gateway, watched and commanded: by `tapeworks gateway sessions`, `orders`, `halt` and `resume`, and by its page. What the
//! kill switch does is seen by a FIX client.

#![allow(clippy::unwrap_used, missing_docs)]
#![cfg(feature = "web")]

#[cfg(feature = "tls")]
mod authority;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::process::Process;
use support::trader::{PATIENCE, Trader};
use support::{Folder, assert_one_error, free_port, run, stderr, stdout};

const TOKEN: &str = "a token for the test";

fn exchange_config(folder: &Folder, [real_time, recovery]: [SocketAddr; 2]) -> String {
    let config = format!(
        r#"
[[orders]]
name = "Exchange"
real_time = "{real_time}"
recovery = "{recovery}"
throttle_per_second = 0
[[orders.user]]
name = "TW01"
password = "password"
cancels_on_disconnect = false
[[orders.symbol]]
name = "AAPL"
id = 1
"#
    );
    folder.write("orders.toml", config.as_bytes())
}

fn gateway_config(
    folder: &Folder,
    [real_time, recovery, listen, page]: [SocketAddr; 4],
    web: &str,
) -> String {
    let config = format!(
        r#"
listen = "{listen}"
[store]
folder = "{}"
segment_mb = 1
[venue]
protocol = "millennium"
real_time = "{real_time}"
recovery = "{recovery}"
user = "TW01"
password = "password"
throttle_per_second = 0
first_reconnect = "50ms"
longest_reconnect = "200ms"
[[instrument]]
symbol = "AAPL"
id = 1
[[client]]
name = "alpha"
comp_id = "ALPHA"
[[client]]
name = "beta"
comp_id = "BETA"
[web]
address = "{page}"
{web}"#,
        folder.path("gateway-store"),
    );
    folder.write("gateway.toml", config.as_bytes())
}

/// Runs `tapeworks gateway VERB ...` for the page.
fn gateway(verb: &str, page: SocketAddr, more: &[&str]) -> Output {
    let page = page.to_string();
    run(&[&["gateway", verb, &page, "--token", TOKEN], more].concat())
}

fn done(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

fn wait_until_ready(page: SocketAddr) {
    let began = Instant::now();
    while gateway("sessions", page, &[]).status.code() != Some(0) {
        assert!(began.elapsed() < PATIENCE, "not ready");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends a request as it stands, and returns the answer.
fn request(page: SocketAddr, line: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(page).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap()
}

#[test]
fn the_kill_switch_reaches_a_running_gateway_and_its_clients() {
    let folder = Folder::new("gateway-web");
    let [real_time, recovery, listen, page] = [60, 61, 62, 63].map(free_port);
    let exchange = exchange_config(&folder, [real_time, recovery]);
    let config =
        gateway_config(&folder, [real_time, recovery, listen, page], &format!("token = \"{TOKEN}\"\n"));
    let _exchange = Process::start(&["exchange", "serve", &exchange], &["forgets them at its end"]);
    let ours =
        Process::start(&["gateway", &config, "--log", "json"], &["\"message\":\"FIX clients are served"]);
    wait_until_ready(page);
    let (mut alpha, mut beta) = (Trader::connect(listen, "ALPHA"), Trader::connect(listen, "BETA"));
    alpha.send("new AAPL buy 100 @100");
    assert_eq!(alpha.report().0, "0");

    // Orders and sessions, as a table and as JSON.
    let orders: Value = serde_json::from_str(&done(gateway("orders", page, &["--json"]))).unwrap();
    assert_eq!((&orders["total"], &orders["orders"][0]["client"]), (&1.into(), &"alpha".into()), "{orders}");
    assert!(done(gateway("orders", page, &[])).contains("100.00"));
    // The status is a tenth of a second old at most.
    std::thread::sleep(Duration::from_millis(300));
    let sessions: Value = serde_json::from_str(&done(gateway("sessions", page, &["--json"]))).unwrap();
    let client = &sessions["clients"][0];
    assert_eq!((&client["next_incoming"], &client["next_outgoing"]), (&3.into(), &3.into()), "{client}");
    assert!(done(gateway("sessions", page, &[])).contains("logged on"));
    let socket = format!("{}.control", folder.path("gateway-store"));
    for place in [&config, &socket] {
        let sessions = run(&["gateway", "sessions", place]);
        assert!(done(sessions).contains("logged on"), "{place} has no token");
    }
    assert_one_error(
        &run(&["gateway", "sessions", &folder.path("none.toml")]),
        2,
        "is not an address with a port",
    );

    // One client.
    assert!(done(gateway("halt", page, &["--client", "alpha"])).ends_with("alpha is halted\n"));
    alpha.send("new AAPL buy 100 @99");
    assert_eq!(alpha.report().0, "8");
    beta.send("new AAPL buy 100 @98");
    assert_eq!(beta.report().0, "0");
    done(gateway("resume", page, &["--client", "alpha"]));
    alpha.send("new AAPL buy 100 @97");
    assert_eq!(alpha.report().0, "0");

    // All, and the open orders are cancelled.
    assert!(done(gateway("halt", page, &["--cancel"])).contains("all clients are halted"));
    assert_eq!((alpha.report().0, alpha.report().0, beta.report().0), ("4".into(), "4".into(), "4".into()));
    beta.send("new AAPL buy 100 @98");
    assert_eq!(beta.report().0, "8");
    let halted = gateway("sessions", page, &[]);
    assert_one_error(&halted, 3, "the kill switch is on");

    // What was answered survives kill -9.
    drop(ours);
    let _ours = Process::start(&["gateway", &config], &["FIX clients are served"]);
    assert!(stderr(&gateway("sessions", page, &[])).contains("the kill switch is on"));
    done(gateway("resume", page, &[]));
    wait_until_ready(page);

    // Whom the page refuses.
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_one_error(&gateway("halt", page, &["--client", "nobody"]), 1, "404: there is no client 'nobody'");
    assert_one_error(&run(&["gateway", "halt", &page.to_string()]), 1, "wants a token");
    assert_eq!(code(&request(page, "POST /halt", "")), "401");
    let foreign = format!("{bearer}Origin: http://evil.example\r\n");
    assert_eq!(code(&request(page, "POST /halt", &foreign)), "403");
    assert_eq!(code(&request(page, "GET /halt", &bearer)), "405");
    assert_eq!(code(&request(page, "POST /halt?clint=alpha", &bearer)), "400");
    assert_eq!(code(&request(page, "POST /halt?cancel=maybe", &bearer)), "400");
    assert_eq!(code(&request(page, "GET /orders.json?most=10001", &bearer)), "400");
    let sessions: Value = serde_json::from_str(&done(gateway("sessions", page, &["--json"]))).unwrap();
    assert_eq!(sessions["is_halted"], false, "a refused request halts nothing");

    // The page, its files, and the paths of a monitor.
    for (path, content) in [
        ("/", "<title>Tapeworks gateway</title>"),
        ("/gateway.js", "kill switch"),
        ("/ready", "\"is_ready\": true"),
        ("/metrics", "tapeworks_gateway_client_next_outgoing{client=\"alpha\"}"),
        ("/status.json", "\"has_login\": true"),
    ] {
        let answer = request(page, &format!("GET {path}"), &bearer);
        assert!(code(&answer) == "200" && answer.contains(content), "{path}: {answer}");
    }
    assert_eq!(
        code(&request(page, "GET /index.html", &bearer)),
        "404",
        "the plant's page is not the gateway's"
    );
    assert_eq!(code(&request(page, "GET /health", "")), "200");
}

#[test]
fn a_gateway_without_its_venue_is_not_ready_and_says_why() {
    let folder = Folder::new("gateway-web-alone");
    let addresses = [64, 65, 66, 67].map(free_port);
    let config = gateway_config(&folder, addresses, "");
    let _ours = Process::start(&["gateway", &config], &["FIX clients are served"]);
    let page = addresses[3];
    std::thread::sleep(Duration::from_millis(300));
    let answer = request(page, "GET /ready", "");
    assert_eq!(code(&answer), "503", "{answer}");
    assert!(answer.contains("the venue's session is not logged on"), "{answer}");
    // Without a token only the names of this machine are answered.
    let mut stream = TcpStream::connect(page).unwrap();
    write!(stream, "POST /halt HTTP/1.1\r\nHost: evil.example:{}\r\nConnection: close\r\n\r\n", page.port())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(code(&answer), "421", "{answer}");
    // The port is taken.
    assert_one_error(&run(&["gateway", &config]), 1, "for the web page");
}

#[test]
fn a_page_that_others_can_reach_needs_a_long_token() {
    let folder = Folder::new("gateway-web-token");
    let mut addresses = [68, 69, 70, 71].map(free_port);
    addresses[3].set_ip([0, 0, 0, 0].into());
    for (web, text) in [
        ("", "needs a 'token'"),
        ("token = \"\"\n", "16 characters"),
        ("token = \"short\"\n", "16 characters, not 5"),
        ("token_file = \"none\"\n", "none: No such file"),
        ("token_env = \"TAPEWORKS_NO_SUCH\"\n", "no variable 'TAPEWORKS_NO_SUCH'"),
        ("token_env = \"A\"\ntoken_file = \"b\"\n", "one of 'token', 'token_env' and 'token_file' is enough"),
    ] {
        let config = gateway_config(&folder, addresses, web);
        assert_one_error(&run(&["gateway", "check", &config]), 78, text);
    }
}

/// With a page by TLS: who trusts its authority sees the gateway by its configuration or its address, and nobody else does.
#[cfg(feature = "tls")]
#[test]
fn the_commands_reach_a_page_by_tls_with_its_authority_alone() {
    use authority::Authority;

    let folder = Folder::new("gateway-web-tls");
    let [ours, theirs] = ["ours", "theirs"].map(|name| Authority::new(folder.path("").as_ref(), name));
    ours.sign("page");
    folder.write("token", TOKEN.as_bytes());
    let [real_time, recovery, listen, page] = [73, 74, 75, 76].map(free_port);
    let web = "token_file = \"token\"\ncertificate = \"ours/page.pem\"\nprivate_key = \"ours/page.key\"\n";
    let config = gateway_config(&folder, [real_time, recovery, listen, page], web);
    // Without a control socket the configuration names the page.
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("control = \"\"\n{text}")).unwrap();
    let logged = format!("the page is on https://{page}/");
    let _gateway = Process::start(&["gateway", &config, "--log", "json"], &[&logged]);
    let sessions = |place: &str, more: &[&str]| run(&[&["gateway", "sessions", place], more].concat());
    let trusting = |authority: &Authority| authority.path("authority.pem").display().to_string();
    let ours = trusting(&ours);
    // The venue is not there, which the exit code says.
    let shown = sessions(&config, &["--tls-authorities", &ours]);
    assert_eq!((shown.status.code(), stdout(&shown).contains("alpha")), (Some(3), true));
    let page = page.to_string();
    let shown = sessions(&page, &["--tls-authorities", &ours, "--token", TOKEN]);
    assert!(stdout(&shown).contains("alpha"));
    assert_one_error(&sessions(&config, &[]), 2, "--tls-authorities");
    assert_one_error(&sessions(&page, &["--token", TOKEN]), 1, &page);
    let stranger = sessions(&config, &["--tls-authorities", &trusting(&theirs)]);
    assert_one_error(&stranger, 1, "certificate");
    let wrong = sessions(&page, &["--tls-authorities", &ours, "--token", "another"]);
    assert_one_error(&wrong, 1, "wants a token");
    let top = run(&["top", &page, "--once", "--tls-authorities", &trusting(&theirs), "--token", TOKEN]);
    assert_one_error(&top, 1, "certificate");
}

#[test]
fn a_command_for_a_gateway_that_is_not_there_is_one_error() {
    let nowhere = free_port(72).to_string();
    for verb in ["halt", "resume", "sessions", "orders"] {
        assert_one_error(&run(&["gateway", verb, &nowhere]), 1, &nowhere);
    }
}
