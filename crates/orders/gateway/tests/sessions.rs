//! Who may connect to a gateway, and what becomes of those who may not: the rules of the session around the connection.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tapeworks_fix_wire::{field, message_type};
use tapeworks_gateway::client::{ClientError, FixClient};
use tapeworks_gateway::config::{AnyParts, Config, VenueConfig};
use tapeworks_gateway::{Gateway, Notice, open};
use tapeworks_order_session::fix::{Role, Settings};
use tapeworks_runtime::refusals::OnRefusal;
use tapeworks_runtime::world::System;
use tapeworks_translate::{MillenniumSettings, Naming};
use tapeworks_wire::millennium::native::{Capacity, ClearingAccount, Logon, Message, PassiveOnlyOrder};

const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway without its venue, and what it noticed.
struct Door {
    gateway: Gateway,
    notices: Arc<Mutex<Vec<String>>>,
}

fn config(folder: &Path, clients: &str, more: &str) -> String {
    format!(
        r#"
listen = "127.0.0.1:0"
{more}
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
{clients}
"#,
        folder.display()
    )
}

fn start(folder: &Path, clients: &str, more: &str) -> Door {
    start_with(folder, &config(folder, clients, more))
}

fn start_with(folder: &Path, text: &str) -> Door {
    let config = Config::parse("gateway.toml", text, folder).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let AnyParts::Millennium(parts) = config.parts(0).unwrap() else { panic!("native") };
    let opened = open::<_, System>(&config.store, config.journal, config.sync, parts, 0).unwrap();
    let notices = Arc::new(Mutex::new(Vec::new()));
    let heard = notices.clone();
    let hear = move |notice: Notice| heard.lock().unwrap().push(notice.text);
    let gateway = Gateway::start(config.host, opened.core, opened.ledger, Box::new(hear), None).unwrap();
    Door { gateway, notices }
}

impl Door {
    fn log_on(&self, settings: Settings) -> Result<FixClient<System>, ClientError> {
        FixClient::connect(self.gateway.address(), settings, None, PATIENCE)
    }

    /// Waits until the gateway has noticed this.
    fn notices(&self, text: &str) {
        self.wait(text, || self.notices.lock().unwrap().iter().any(|notice| notice.contains(text)));
    }

    fn wait(&self, what: &str, until: impl Fn() -> bool) {
        let began = Instant::now();
        while !until() {
            assert!(began.elapsed() < PATIENCE, "{what}: {:?}", self.notices.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What a stranger gets that writes these bytes, until its connection is closed.
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.gateway.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // It may be reset: what was written is not read.
        let _closed = stream.read_to_end(&mut answer);
        answer
    }
}

fn client(version: &str, name: &str) -> Settings {
    Settings::new(Role::Initiator, version, name, "TAPEWORKS")
}

fn section(name: &str, more: &str) -> String {
    format!("[[client]]\nname = \"{name}\"\ncomp_id = \"{}\"\n{more}\n", name.to_uppercase())
}

#[test]
fn three_versions_share_a_port_and_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, version: &str| {
        format!("[[client]]\nname = \"{name}\"\ncomp_id = \"ALPHA\"\nbegin_string = \"{version}\"\n")
    };
    let versions = [("a", "FIX.4.2"), ("b", "FIX.4.4"), ("c", "FIXT.1.1")];
    let clients: String = versions.iter().map(|(name, version)| of(name, version)).collect();
    let door = start(folder.path(), &clients, "");
    let mut all: Vec<_> =
        versions.iter().map(|(_, version)| door.log_on(client(version, "ALPHA")).unwrap()).collect();
    door.wait("all are logged on", || door.gateway.status().clients.iter().all(|client| client.is_logged_on));
    all.iter_mut().for_each(|client| client.log_out(PATIENCE));
    door.gateway.stop().unwrap();
}

#[test]
fn a_second_connection_of_a_client_is_refused_and_the_first_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let door = start(folder.path(), &section("alpha", ""), "");
    let mut first = door.log_on(client("FIX.4.4", "ALPHA")).unwrap();
    assert!(door.log_on(client("FIX.4.4", "ALPHA")).is_err());
    first.send("1", &[(112, "still there".to_owned())]).unwrap();
    let incoming = first.numbers().0;
    let began = Instant::now();
    while first.numbers().0 == incoming {
        first.turn(Duration::from_millis(20)).unwrap();
        assert!(began.elapsed() < PATIENCE);
    }
    first.log_out(PATIENCE);
    door.gateway.stop().unwrap();
}

#[test]
fn a_venue_that_does_not_answer_a_connection_is_left_and_tried_again() {
    // Its queue of connections is full: the kernel drops what comes, and would try for two minutes.
    let venue = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = venue.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
    }
    let folder = tempfile::tempdir().unwrap();
    let text = config(folder.path(), &section("alpha", ""), "").replace(
        "real_time = \"127.0.0.1:1\"",
        &format!("real_time = \"{address}\"\nconnect_timeout = \"100ms\"\nfirst_reconnect = \"10ms\"\nlongest_reconnect = \"50ms\""),
    );
    let config = Config::parse("gateway.toml", &text, folder.path()).unwrap();
    let AnyParts::Millennium(parts) = config.parts(0).unwrap() else { panic!("native") };
    let opened = open::<_, System>(&config.store, config.journal, config.sync, parts, 0).unwrap();
    let refused = Arc::new(Mutex::new(Vec::new()));
    let heard = refused.clone();
    let hear: OnRefusal = Arc::new(move |refused| heard.lock().unwrap().push(refused.reason.clone()));
    let ignore = Box::new(|_: Notice| {});
    let gateway = Gateway::start(config.host, opened.core, opened.ledger, ignore, Some(hear)).unwrap();
    let began = Instant::now();
    while !refused.lock().unwrap().iter().any(|text| text.contains("timed out")) {
        assert!(began.elapsed() < PATIENCE, "{:?}", refused.lock().unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    // There is room again.
    for _ in &waiting {
        venue.accept().unwrap();
    }
    drop(waiting);
    let mut logon = [0; 4];
    loop {
        // One that was given up has none.
        let (mut stream, _) = venue.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        if stream.read_exact(&mut logon).is_ok() {
            break;
        }
    }
    assert_eq!(logon[3], b'A');
    gateway.stop().unwrap();
}

#[test]
fn strangers_get_no_answer_and_the_log_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let clients = section("alpha", "addresses = [\"192.0.2.1\"]") + &section("beta", "");
    let door = start(folder.path(), &clients, "");
    assert!(door.log_on(client("FIX.4.4", "ALPHA")).is_err(), "from another address");
    let refused = door.log_on(client("FIX.4.4", "GAMMA")).err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|error| error.contains("may not know the CompIDs")), "{refused:?}");
    assert!(door.log_on(client("FIX.4.2", "BETA")).is_err(), "another BeginString");
    let elsewhere = Settings::new(Role::Initiator, "FIX.4.4", "BETA", "ELSEWHERE");
    assert!(door.log_on(elsewhere).is_err(), "another TargetCompID");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[b'8'; 20_000], &[0; 9_000]] {
        assert_eq!(door.answer(bytes), b"", "{bytes:?}");
    }
    door.wait("refusals", || door.gateway.status().refused_connections >= 7);
    let mut beta = door.log_on(client("FIX.4.4", "BETA")).unwrap();
    beta.log_out(PATIENCE);
    door.gateway.stop().unwrap();
}

#[test]
fn a_wrong_password_is_refused_without_a_word_and_counts_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let door = start(folder.path(), &section("alpha", "user = \"me\"\npassword = \"secret\""), "");
    let with = |user: &str, password: &str| Settings {
        credentials: Some((user.to_owned(), password.to_owned())),
        ..client("FIX.4.4", "ALPHA")
    };
    for (user, password) in [("me", "secreT"), ("me", "secret1"), ("you", "secret"), ("", "")] {
        assert!(door.log_on(with(user, password)).is_err(), "{user} {password}");
    }
    assert!(door.log_on(client("FIX.4.4", "ALPHA")).is_err(), "none");
    assert_eq!(door.gateway.status().clients[0].next_incoming, 1);
    // The address must wait first, even with the right password.
    door.wait("the right password", || {
        door.log_on(with("me", "secret")).is_ok_and(|mut alpha| {
            alpha.log_out(PATIENCE);
            true
        })
    });
    door.gateway.stop().unwrap();
}

#[test]
fn passwords_cannot_be_guessed_at_the_rate_of_connections() {
    let folder = tempfile::tempdir().unwrap();
    let clients = ["alpha", "beta"].map(|name| section(name, "user = \"me\"\npassword = \"secret\""));
    let door = start(folder.path(), &clients.concat(), "");
    let with = |name: &str, password: &str| Settings {
        credentials: Some(("me".to_owned(), password.to_owned())),
        ..client("FIX.4.4", name)
    };
    let began = Instant::now();
    for guess in 0..300 {
        assert!(door.log_on(with("ALPHA", &guess.to_string())).is_err());
    }
    let notices = door.notices.lock().unwrap().clone();
    let heard = notices.iter().filter(|notice| notice.contains("not this user or password")).count();
    // A tenth of a second after the first, then twice as long each time.
    let most = (began.elapsed().as_millis() / 100 + 1).ilog2() + 1;
    assert!((1..=most as usize).contains(&heard), "{heard} of 300 were heard, and not {most}");
    let refused = || door.gateway.status().refused_connections >= 300 - u64::from(most);
    door.wait("the others are counted", refused);
    // The other client is not kept out from the same address.
    let mut beta = door.log_on(with("BETA", "secret")).unwrap();
    beta.log_out(PATIENCE);
    door.gateway.stop().unwrap();
}

/// Writes a file as a whole, with another length: a stamp of the clock's last tick does not hide it.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

#[test]
fn a_client_logs_on_with_the_password_that_its_file_has_now() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alpha.password");
    replace(&file, "secret\n");
    let door =
        start(folder.path(), &section("alpha", "user = \"me\"\npassword_file = \"alpha.password\""), "");
    let with = |password: &str| Settings {
        credentials: Some(("me".to_owned(), password.to_owned())),
        resets_on_logon: true,
        ..client("FIX.4.4", "ALPHA")
    };
    let mut before = door.log_on(with("secret")).unwrap();
    replace(&file, "another secret\n");
    // A session that runs goes on.
    before.log_out(PATIENCE);
    door.wait("the new password", || {
        door.log_on(with("another secret")).is_ok_and(|mut client| {
            client.log_out(PATIENCE);
            true
        })
    });
    assert!(door.log_on(with("secret")).is_err(), "the password of before");
    // A file that has none leaves the last one.
    replace(&file, "\n");
    std::thread::sleep(Duration::from_millis(1_100));
    let mut last = door.log_on(with("another secret")).unwrap();
    last.log_out(PATIENCE);
    door.gateway.stop().unwrap();
}

#[test]
fn a_gateway_logs_on_to_the_venue_with_the_password_that_its_file_has_now() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("venue.password");
    replace(&file, "of this week\n");
    let venue = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = config(folder.path(), &section("alpha", ""), "")
        .replacen("127.0.0.1:1", &venue.local_addr().unwrap().to_string(), 1)
        .replace(
            "password = \"password\"",
            "password_file = \"venue.password\"\nfirst_reconnect = \"50ms\"\nlongest_reconnect = \"50ms\"",
        );
    let door = start_with(folder.path(), &text);
    // Each connection's Logon, after which the venue goes away.
    let logon = || {
        let (mut stream, _) = venue.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = [0; Logon::LENGTH];
        stream.read_exact(&mut bytes).unwrap();
        let Ok(Message::Logon(logon)) = Message::decode(&bytes) else { panic!("{bytes:?}") };
        String::from_utf8_lossy(logon.password().trimmed()).into_owned()
    };
    assert_eq!(logon(), "of this week");
    replace(&file, "of the week after\n");
    let (began, mut last) = (Instant::now(), logon());
    while last == "of this week" && began.elapsed() < PATIENCE {
        last = logon();
    }
    assert_eq!(last, "of the week after");
    // One that does not fit into its field is not taken.
    replace(&file, "of a week that has far too many days\n");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1_300) {
        assert_eq!(logon(), "of the week after");
    }
    door.gateway.stop().unwrap();
}

#[test]
fn a_client_that_wants_no_heartbeats_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let door = start(folder.path(), &section("alpha", ""), "");
    let refused = door.log_on(Settings { heartbeat_s: 0, ..client("FIX.4.4", "ALPHA") }).unwrap_err();
    assert!(refused.to_string().contains("HeartBtInt is out of range"), "{refused}");
    door.gateway.stop().unwrap();
}

#[test]
fn a_client_over_its_rate_is_logged_out_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let door = start(folder.path(), &section("alpha", "messages_per_second = 5"), "");
    let mut alpha = door.log_on(client("FIX.4.4", "ALPHA")).unwrap();
    let began = Instant::now();
    let mut reason = None;
    while reason.is_none() && began.elapsed() < PATIENCE {
        for _ in 0..10 {
            let _ended = alpha.send("0", &[]);
        }
        let _ended = alpha.turn(Duration::from_millis(10));
        while let Some(message) = alpha.next_message() {
            if message_type(&message) == b"5" {
                reason = field(&message, 58).map(<[u8]>::to_vec);
            }
        }
    }
    assert_eq!(reason.as_deref(), Some(&b"too many messages in a second"[..]));
    door.notices("more messages than it may");
    door.gateway.stop().unwrap();
}

#[test]
fn connections_over_the_bound_are_refused_and_those_that_are_there_stay() {
    let folder = tempfile::tempdir().unwrap();
    let door = start(folder.path(), &section("alpha", ""), "most_connections = 8");
    let mut alpha = door.log_on(client("FIX.4.4", "ALPHA")).unwrap();
    let flood: Vec<_> = (0..200).filter_map(|_| TcpStream::connect(door.gateway.address()).ok()).collect();
    door.wait("refusals", || door.gateway.status().refused_connections >= 150);
    alpha.send("1", &[(112, "x".to_owned())]).unwrap();
    let incoming = alpha.numbers().0;
    let began = Instant::now();
    while alpha.numbers().0 == incoming {
        alpha.turn(Duration::from_millis(20)).unwrap();
        assert!(began.elapsed() < PATIENCE, "the client is served amid the flood");
    }
    for stream in flood {
        let _gone = stream.shutdown(Shutdown::Both);
    }
    alpha.log_out(PATIENCE);
    door.gateway.stop().unwrap();
}

#[test]
fn hours_are_of_a_day_or_of_a_week() {
    let folder = tempfile::tempdir().unwrap();
    let check = |hours: &str| {
        let text = config(folder.path(), &section("alpha", &format!("hours = {{ {hours} }}")), "");
        Config::parse("gateway.toml", &text, folder.path()).map(drop).map_err(|errors| errors[0].to_string())
    };
    let times = "time_zone = \"America/New_York\", start = \"17:00:00\", end = \"16:00:00\"";
    assert_eq!(check(times), Ok(()));
    assert_eq!(check(&format!("{times}, first_day = \"sunday\", last_day = \"friday\"")), Ok(()));
    for (days, expected) in [
        ("first_day = \"sunday\"", "'' is not a day of the week"),
        ("first_day = \"sunday\", last_day = \"frday\"", "'frday' is not a day of the week"),
    ] {
        let error = check(&format!("{times}, {days}")).unwrap_err();
        assert!(error.contains(expected) && error.contains("gateway.toml:"), "{error}");
    }
}

#[test]
fn a_store_stands_beside_its_configuration_wherever_the_gateway_is_started() {
    let text = |folder: &str| config(Path::new(folder), &section("alpha", ""), "");
    for (folder, expected) in [("state", "/etc/tapeworks/state/store"), ("/var", "/var/store")] {
        let config = Config::parse("gateway.toml", &text(folder), Path::new("/etc/tapeworks")).unwrap();
        assert_eq!(config.store, Path::new(expected));
    }
}

/// The first error of a configuration with these in the venue's section and behind its instrument.
fn problem(folder: &Path, of_venue: &str, of_instrument: &str) -> Result<Config, String> {
    let text = config(folder, &section("alpha", ""), "")
        .replace("user = \"TW01\"", &format!("user = \"TW01\"\n{of_venue}"))
        .replace("id = 1\n", &format!("id = 1\n{of_instrument}\n"));
    Config::parse("gateway.toml", &text, folder).map_err(|errors| errors[0].to_string())
}

#[test]
fn a_configuration_has_the_venues_settings_and_its_reject_codes() {
    let folder = tempfile::tempdir().unwrap();
    let settings = r#"
clearing_account = "client"
executing_trader = 7
passive_only = 1
short_sells = false
capacity = { agency = 1, principal = 3, riskless_principal = 2, otherwise = 3 }
reject = [{ code = 105, text = "Price", order_reason = 99 }, { code = 101, text = "Instrument", order_reason = 1, cancel_reason = 2 }]
"#;
    let VenueConfig::Millennium { table, .. } = problem(folder.path(), settings, "").unwrap().venue else {
        panic!("native")
    };
    let expected = MillenniumSettings {
        naming: Naming::Numbered,
        clearing_account: ClearingAccount::Client,
        executing_trader: 7,
        passive_only: PassiveOnlyOrder::NewBboOrJoin,
        sends_short_sells: false,
        agency: Capacity::MatchedPrincipal,
        principal: Capacity::AnyOther,
        riskless_principal: Capacity::DealingOnOwnAccount,
        other_capacity: Capacity::AnyOther,
        reject_codes: table.reject_codes.clone(),
        ..MillenniumSettings::default()
    };
    assert_eq!(table, expected);
    let reasons = table.reject_codes.iter();
    let reasons: Vec<_> =
        reasons.map(|it| (it.code, it.text.as_str(), it.order_reason, it.cancel_reason)).collect();
    assert_eq!(reasons, [(105, "Price", 99, 99), (101, "Instrument", 1, 2)]);

    for (wrong, expected) in [
        ("clearing_account = \"mine\"", "'mine'"),
        ("passive_only = 0", "from 1 to 255"),
        ("capacity = { agent = 1 }", "'agent' is not known"),
        ("reject = [{ code = 1 }]", "'text'"),
        ("reject = [{ text = \"x\" }]", "'code'"),
        ("reject = [{ code = 1, text = \"x\" }, { code = 1, text = \"y\" }]", "the code 1 already"),
        ("reject = [{ code = 1, text = \"\\u0001\" }]", "printable"),
    ] {
        let error = problem(folder.path(), wrong, "").unwrap_err();
        assert!(error.starts_with("gateway.toml:11:") && error.contains(expected), "{wrong}: {error}");
    }
}

#[test]
fn an_instrument_that_the_venue_or_another_instrument_contradicts_is_refused_where_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    for (of_instrument, expected) in [
        ("partition = 3", "gateway.toml:16:13: the venue has the partitions 1 to 2"),
        (
            "[[instrument]]\nsymbol = \"AAPL\"\nid = 2",
            "gateway.toml:17:10: another instrument has this symbol",
        ),
        (
            "[[instrument]]\nsymbol = \"MSFT\"\nid = 1",
            "gateway.toml:18:6: another instrument has this number",
        ),
        (
            "[[instrument]]\nsymbol = \"MSFT\"\nid = 2\nsecurity_id = \"1\"",
            "gateway.toml:19:15: another instrument has this SecurityID",
        ),
        (
            "[[party]]\nid = \"A\"\ncode = 1\n[[party]]\nid = \"A\"\ncode = 2",
            "gateway.toml:20:6: another party has this id",
        ),
    ] {
        let error = problem(folder.path(), "partitions = 2", of_instrument).unwrap_err();
        assert!(error.starts_with(expected), "{of_instrument}: {error}");
    }
    assert!(problem(folder.path(), "partitions = 2", "partition = 2").is_ok());
}

#[test]
fn a_store_needs_a_folder() {
    let text = config(Path::new("x"), &section("alpha", ""), "").replace("x/store", "");
    let errors = Config::parse("gateway.toml", &text, Path::new("x")).unwrap_err();
    assert_eq!(errors[0].to_string(), "gateway.toml:5:10: 'folder' must be a path");
}

#[test]
fn a_refused_logon_is_logged_with_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let logon = |version: &str, sender: &str| {
        let body = format!("35=A|49={sender}|56=TAPEWORKS|34=1|52=20240301-09:30:00|98=0|108=30|");
        let text = format!("8={version}|9={}|{body}", body.len()).replace('|', "\x01");
        let sum = text.bytes().fold(0_u8, u8::wrapping_add);
        format!("{text}10={sum:03}\x01")
    };
    let text = config(folder.path(), &section("alpha", ""), "");
    let parsed = Config::parse("gateway.toml", &text, folder.path()).unwrap();
    let AnyParts::Millennium(parts) = parsed.parts(0).unwrap() else { panic!("native") };
    let opened = open::<_, System>(&parsed.store, parsed.journal, parsed.sync, parts, 0).unwrap();
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    let refused = |first: &str| opened.core.admit(first.as_bytes(), address, None).unwrap_err().to_string();
    let unknown = "no client has BeginString 'FIX.4.4', SenderCompID 'BETA' and TargetCompID 'TAPEWORKS'";
    assert_eq!(refused(&logon("FIX.4.4", "BETA")), unknown);
    let version =
        "'FIX.4.1' is not among the versions of FIX that the gateway speaks: FIX.4.2, FIX.4.4, FIXT.1.1";
    assert_eq!(refused(&logon("FIX.4.1", "ALPHA")), version);
    drop(opened);
    let door = start_with(folder.path(), &text);
    assert_eq!(door.answer(logon("FIX.4.4", "ALPHA").as_bytes()), b"");
    door.notices("the Logon is refused: SendingTime is too far from now, tag 52 is '20240301-09:30:00'");
    door.gateway.stop().unwrap();
}

/// A gateway with an exchange, when it takes orders.
fn start_with_venue(folder: &Path, clients: &str) -> (Door, tapeworks_venues::orders::OrderVenues) {
    let text = "[[orders]]\nname = \"Exchange\"\nreal_time = \"127.0.0.1:0\"\nrecovery = \"127.0.0.1:0\"\npartitions = 1\n\
                throttle_per_second = 0\n[[orders.user]]\nname = \"TW01\"\npassword = \"password\"\n\
                [[orders.symbol]]\nname = \"AAPL\"\nid = 1\n";
    let parsed = tapeworks_venues::Config::parse("test", text).unwrap();
    let venues = tapeworks_venues::orders::OrderVenues::start(&parsed, None).unwrap();
    let mut text = config(folder, clients, "");
    for (name, address) in
        [("real_time", venues.addresses()[0].real_time), ("recovery", venues.addresses()[0].recovery)]
    {
        text = text.replace(&format!("{name} = \"127.0.0.1:1\""), &format!("{name} = \"{address}\""));
    }
    let door = start_with(folder, &text);
    door.wait("the venue takes orders", || door.gateway.status().takes_orders);
    (door, venues)
}

fn send_order(client: &mut FixClient<System>, (id, quantity): (&str, &str), more: &[(u32, &str)]) {
    let order = [
        (11, id),
        (1, "HOUSE"),
        (55, "AAPL"),
        (54, "1"),
        (60, "20240301-09:30:00"),
        (38, quantity),
        (40, "2"),
        (44, "5"),
    ];
    let fields: Vec<_> = more.iter().chain(&order).map(|(tag, text)| (*tag, (*text).to_owned())).collect();
    client.send("D", &fields).unwrap();
}

/// These fields of the client's next message.
fn next_of<const N: usize>(client: &mut FixClient<System>, tags: [u32; N]) -> [String; N] {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "no message with {tags:?}");
        client.turn(Duration::from_millis(20)).unwrap();
        if let Some(message) = client.next_message() {
            return tags.map(|tag| field(&message, tag).unwrap_or_default().escape_ascii().to_string());
        }
    }
}

#[test]
fn a_drop_copy_says_whose_orders_were_taken_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    let clients = [section("alpha", "most_quantity = 100"), section("copy", "drop_copy = true")].concat();
    let (door, _venues) = start_with_venue(folder.path(), &clients);
    let mut copy = door.log_on(client("FIX.4.4", "COPY")).unwrap();
    let mut alpha = door.log_on(client("FIX.4.4", "ALPHA")).unwrap();
    for (id, quantity, exec_type) in [("A1", "10", "0"), ("A2", "101", "8")] {
        send_order(&mut alpha, (id, quantity), &[(50, "ann")]);
        let tags = [35, 150, 11, 1, 57, 115, 116];
        assert_eq!(next_of(&mut alpha, tags), ["8", exec_type, id, "HOUSE", "ann", "", ""]);
        assert_eq!(next_of(&mut copy, tags), ["8", exec_type, id, "HOUSE", "", "ALPHA", "ann"]);
    }
    door.gateway.stop().unwrap();
}

#[test]
fn a_field_without_a_value_is_refused_or_counts_as_absent() {
    let folder = tempfile::tempdir().unwrap();
    let clients = [section("alpha", ""), section("beta", "validate_fields_have_values = false")].concat();
    let (door, _venues) = start_with_venue(folder.path(), &clients);
    let mut alpha = door.log_on(client("FIX.4.4", "ALPHA")).unwrap();
    // Text (58) has no counterpart at the venue.
    let empty = [(50, ""), (58, "")];
    send_order(&mut alpha, ("A1", "10"), &empty);
    assert_eq!(next_of(&mut alpha, [35, 371, 373]), ["3", "50", "4"]);
    let mut beta = door.log_on(client("FIX.4.4", "BETA")).unwrap();
    send_order(&mut beta, ("B1", "10"), &empty);
    assert_eq!(next_of(&mut beta, [35, 150, 11]), ["8", "0", "B1"]);
    // What is required is missing, and what has a value counts.
    send_order(&mut beta, ("", "10"), &[]);
    assert_eq!(next_of(&mut beta, [35, 371, 373]), ["3", "11", "1"]);
    send_order(&mut beta, ("B2", "10"), &[(58, "x")]);
    assert_eq!(next_of(&mut beta, [35, 372, 380]), ["j", "D", "0"]);
    door.gateway.stop().unwrap();
}
