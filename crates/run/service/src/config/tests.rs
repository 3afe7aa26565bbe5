//! Valid configurations, and the errors of invalid ones.

use tapeworks_store::Schema;
use tapeworks_time::Nanos;

use super::*;

const WHOLE: &str = r#"
    topology = "pipeline"
    wait = "busy_spin"
    warm = true
    interface = "10.0.0.1"
    symbols = ["AAPL", "MSFT"]
    shared_memory = "/dev/shm/tapeworks"
    ring_events = 65_536
    cores = { ingest = 2, market = 3 }
    receive = { buffer_mb = 8, busy_poll = "50us", datagram_bytes = 9_000, buffers = 4_096, from = "packet", device = "eth0" }
    nbbo = { stale_books = "exclude", odd_lots = true, ignore_price_bands = true, sip_sizes = "shares", round_lot_prices = "prices.csv", self_help = [{ venue = "XBOS", from = "2025-11-14T10:00[America/New_York]", until = "2025-11-14T15:10:00Z" }] }
    journal = { folder = "journal", segment_mb = 64, keep_gb = 10, sync = "250ms", when_failing = "stop" }
    web = { listen = "0.0.0.0:8080", token = "a-secret-of-some-length", stream = true }
    roll = { folder = "days", schemas = ["mbo", "cmbp-1"], format = "parquet" }
    [multicast]
    group = "239.192.100.1:34000"
    hops = 3
    retransmission = "127.0.0.1:34001"
    soupbintcp = "127.0.0.1:34002"
    login = { user = "me", password = "secret" }
    schemas = ["trades", "cmbp-1"]
    symbols_every = "5s"
    store_mb = 8
    max_connections = 3
    [clients]
    listen = "127.0.0.1:13000"
    queue_mb = 4
    idle_sleep = "20us"
    dataset = [{ name = "TAPEWORKS.DEMO" }, { name = "XNAS.ITCH", publishers = ["XNAS.ITCH", 3] }]
    key = [{ name = "me", key = "db-TapeworksDemoKey0000000000000", datasets = ["XNAS.ITCH"], max_connections = 3 }]
    [[venue]]
    name = "Nasdaq"
    protocol = "itch"
    publisher = "XNAS.ITCH"
    lines = ["239.192.1.1:30001", "239.192.1.2:30001"]
    retransmission = "127.0.0.1:31001"
    snapshot = "127.0.0.1:32001"
    reorder_window = "250us"
    silence = "2.5s"
    held_mb = 8
    orders = 2_000_000
    requests = { attempts = 5, timeout = "2ms", limit = "100ms", limit_messages = 7_000, messages = 500, in_flight = 9 }
    snapshots = { attempts = 2, timeout = "30s", contradicted_every = "60s", user = "me", password = "secret" }
    [[venue]]
    name = "IEX"
    protocol = "deep"
    lines = "239.192.4.1:30004"
"#;

fn problems(text: &str) -> Vec<String> {
    let errors = Config::parse("p.toml", text).expect_err("it is wrong");
    errors.iter().map(ToString::to_string).collect()
}

fn login(protocol: RequestProtocol) -> Option<RequestLogin> {
    let fields = LoginFields {
        sub_id: "0001",
        user: "FIRM",
        password: "secret",
        source: "FIRM1",
        product: 159,
        channel: 7,
    };
    RequestLogin::new(protocol, &fields)
}

#[test]
fn a_pair_needs_two_addresses_a_role_and_a_journal() {
    let whole = "[journal]\nfolder = \"j\"\n[pair]\nlisten = \"127.0.0.1:1\"\npeer = \"127.0.0.1:2\"\nrole = \"standby\"\n";
    let text = |pair: &str| {
        format!(
            "{pair}[[venue]]\nname = \"a\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\nlines = \"239.1.1.1:5\"\n"
        )
    };
    let pair = Config::parse("p.toml", &text(whole)).unwrap().plant.pair.unwrap();
    let two = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(pair, PairSetting::new(two[0], two[1], false));
    for (from, to, expected) in [
        ("role = \"standby\"\n", "", "pair lacks the key 'role'"),
        ("standby", "king", "primary"),
        ("127.0.0.1:2", "127.0.0.1:1", "and not this one"),
        ("[journal]\nfolder = \"j\"\n", "", "a pair needs a [journal]"),
        ("peer", "takeover_after = \"1ms\"\npeer", "takeover_after"),
        ("peer", "takover = 1\npeer", "takover"),
        ("127.0.0.1:2", "192.0.2.1:2", "a pair over a network needs 'certificate'"),
        ("127.0.0.1:1", "0.0.0.0:1", "a pair over a network needs 'certificate'"),
    ] {
        let found = problems(&text(&whole.replacen(from, to, 1)));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}\n{expected}");
    }
}

#[test]
#[cfg(feature = "tls")]
fn a_pair_with_tls_has_authorities_for_both_directions() {
    let venue =
        "[[venue]]\nname = \"a\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\nlines = \"239.1.1.1:5\"\n";
    let whole = format!(
        "[journal]\nfolder = \"j\"\n[pair]\nlisten = \"0.0.0.0:1\"\npeer = \"192.0.2.1:2\"\nrole = \"standby\"\n\
         certificate = \"c.pem\"\nprivate_key = \"k.pem\"\nclient_authorities = \"a.pem\"\n{venue}"
    );
    let pair = Config::parse("d/p.toml", &whole).unwrap().plant.pair.unwrap();
    assert_eq!(pair.tls.unwrap().client_authorities, Some(Path::new("d/a.pem").to_owned()));
    for (gone, expected) in [
        ("client_authorities = \"a.pem\"\n", "lacks the key 'client_authorities'"),
        ("private_key = \"k.pem\"\n", "lacks the key 'private_key'"),
    ] {
        let found = problems(&whole.replace(gone, ""));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn a_time_of_self_help_that_is_wrong_is_refused() {
    for (one, problem) in [
        ("from = \"2025-11-14T10:00-05:00\"", "lacks the key 'venue'"),
        ("venue = \"XBOS\"", "lacks the key 'from'"),
        ("venue = \"BX\", from = \"2025-11-14T10:00-05:00\"", "'venue' must be a venue: XNAS, XBOS"),
        ("venue = \"XBOS\", from = \"ten\"", "'from' must be nanoseconds since 1970"),
        ("venue = \"XBOS\", from = \"2025-11-14T10:00\"", "ISO 8601 with a zone"),
        ("venue = \"XBOS\", from = \"5\", until = \"5\"", "'until' must be later than 'from'"),
        ("venue = \"XBOS\", from = \"5\", to = \"6\"", "to"),
    ] {
        let problems = problems(&format!("nbbo = {{ self_help = [{{ {one} }}] }}"));
        assert!(problems.iter().any(|one| one.contains(problem)), "{one}: {problems:?}");
    }
}

#[test]
fn everything_that_a_file_can_say_is_read() {
    let config = Config::parse("p.toml", WHOLE).unwrap();
    let plant = &config.plant;
    assert_eq!((plant.topology, plant.wait, plant.warm), (Topology::Pipeline, Wait::BusySpin, true));
    assert_eq!((plant.cores, plant.ring_events), ([Some(2), Some(3)], 65_536));
    assert_eq!(plant.receive.buffer_bytes, Some(8 << 20));
    assert_eq!(plant.receive.source, Source::Packet { device: "eth0".to_owned() });
    assert_eq!((plant.receive.busy_poll_us, plant.receive.datagram_bytes), (50, 9_000));
    let rules = NbboRules {
        stale_books: StaleBooks::Exclude,
        odd_lots_count: true,
        ignores_price_bands: true,
        ..NbboRules::default()
    };
    assert_eq!(plant.rules, rules);
    assert_eq!(config.round_lot_prices.as_deref(), Some(Path::new("prices.csv")));
    let (from, until) = (Nanos(1_763_132_400_000_000_000), Some(Nanos(1_763_133_000_000_000_000)));
    assert_eq!(plant.sip_sizes, SipSizes::Shares);
    assert_eq!(plant.self_help, [SelfHelp { venue: Publisher::XBOS_ITCH, from, until }]);
    let journal = plant.journal.as_ref().unwrap();
    assert_eq!(journal.options, JournalOptions { segment_bytes: 64 << 20, keep_bytes: Some(10_000_000_000) });
    assert_eq!(journal.sync, SyncPolicy::Every(Duration::from_millis(250)));
    assert_eq!((journal.when_failing, journal.queue), (WhenFailing::Stop, 2_048));
    let [nasdaq, iex] = &plant.venues[..] else { panic!("{:?}", plant.venues) };
    assert_eq!((nasdaq.publisher, nasdaq.lines.len()), (Publisher::XNAS_ITCH, 2));
    assert_eq!((nasdaq.arbiter.reorder_window_ns, nasdaq.arbiter.silence_ns), (250_000, 2_500_000_000));
    assert_eq!(nasdaq.orders, 2_000_000);
    let again = nasdaq.arbiter.retransmission.unwrap();
    let expected = RetransmissionOptions {
        attempts: 5,
        timeout_ns: 2_000_000,
        limit_ns: 100_000_000,
        limit_messages: 7_000,
        messages_per_request: 500,
        requests_in_flight: 9,
        answers_name_oldest: false,
        answers_in_parts: false,
    };
    assert_eq!(again, expected);
    let login = SnapshotLogin { user: "me".to_owned(), password: "secret".to_owned(), ..Default::default() };
    assert_eq!(nasdaq.login, login);
    assert_eq!((iex.publisher, iex.retransmission), (Publisher::IEXG_DEEP, None));
    assert_eq!(iex.arbiter.retransmission, None);
    let clients = config.clients.as_ref().unwrap();
    assert_eq!((clients.queue_bytes, clients.idle_sleep), (4 << 20, Duration::from_micros(20)));
    assert_eq!(clients.datasets[1].publishers, [2, 3]);
    assert_eq!(clients.keys.get(0).unwrap().max_connections, 3);
    let web = config.web.as_ref().unwrap();
    let token = web.token.as_ref().map(Secret::get);
    assert_eq!((token.as_deref(), web.stream), (Some("a-secret-of-some-length"), true));
    let feeds: Vec<_> = config.books().feeds.iter().map(|(publisher, _)| *publisher).collect();
    assert_eq!(feeds, [Publisher::XNAS_ITCH, Publisher::IEXG_DEEP]);
    let login = Credentials { user: "me".to_owned(), password: "secret".to_owned() };
    let multicast = MulticastSetting {
        interface: Ipv4Addr::new(10, 0, 0, 1),
        hops: 3,
        retransmission: Some(SocketAddr::from(([127, 0, 0, 1], 34_001))),
        soupbintcp: Some(SocketAddr::from(([127, 0, 0, 1], 34_002))),
        login: Some(login),
        schemas: vec![Schema::Trades, Schema::Cmbp1],
        mappings_every: Duration::from_secs(5),
        store_bytes: 8 << 20,
        max_connections: 3,
        ..MulticastSetting::new(SocketAddrV4::new(Ipv4Addr::new(239, 192, 100, 1), 34_000))
    };
    assert_eq!(config.multicast, Some(multicast));
    let roll = RollSetting {
        folder: PathBuf::from("days"),
        schemas: vec![Schema::Mbo, Schema::Cmbp1],
        ending: "parquet".to_owned(),
    };
    assert_eq!(config.roll, Some(roll));
}

const QUESTDB: &str = r#"
    [questdb]
    address = "questdb.example.net:9000"
    login = { user = "me", password = "secret" }
    schemas = ["trades", "mbo", "trades"]
    table_prefix = "day_"
    queue_mb = 8
    flush_every = "50ms"
    send_again = false
"#;

#[test]
#[cfg(feature = "questdb")]
fn the_settings_of_questdb_are_read() {
    let questdb = Config::parse("p.toml", &(WHOLE.to_owned() + QUESTDB)).unwrap().questdb.unwrap();
    let login = QuestDbLogin::User { name: "me".to_owned(), password: "secret".to_owned() };
    let expected = QuestDbSetting {
        login: Some(login),
        schemas: vec![Schema::Trades, Schema::Mbo],
        table_prefix: "day_".to_owned(),
        queue_bytes: 8 << 20,
        flush_every: Duration::from_millis(50),
        send_again: false,
        ..QuestDbSetting::new("questdb.example.net", 9_000)
    };
    assert!(!format!("{questdb:?}").contains("secret"));
    assert_eq!(questdb, expected);
    let least = WHOLE.to_owned() + "[questdb]\naddress = \"[::1]:9000\"\ntoken = \"t\"\n";
    let least = Config::parse("p.toml", &least).unwrap().questdb.unwrap();
    let token = Some(QuestDbLogin::Token("t".to_owned()));
    assert_eq!(least, QuestDbSetting { login: token, ..QuestDbSetting::new("[::1]", 9_000) });
    let wrong = "[questdb]\naddress = \"http://a:9000\"\ntable_prefix = \"a'b\"\nflush_every = \"0s\"\n\
        token = \"t\"\nlogin = { user = \"me\" }\nqueue = 1\n";
    let found = problems(&(WHOLE.to_owned() + wrong));
    let expect = [
        "'address'",
        "'table_prefix'",
        "'flush_every'",
        "there is a 'login' already",
        "lacks the key 'password'",
        "the key 'queue'",
    ];
    assert_eq!(found.len(), expect.len(), "{found:?}");
    assert!(expect.iter().all(|expected| found.iter().any(|found| found.contains(expected))), "{found:?}");
    let found = problems(&(WHOLE.to_owned() + "[questdb]\n"));
    assert!(found.len() == 1 && found[0].contains("lacks the key 'address'"), "{found:?}");
}

const NATS: &str = r#"
    [nats]
    servers = ["nats://nats.example.net:4222", "[::1]:4223"]
    prefix = "md.us"
    encoding = "protobuf"
    schemas = ["trades", "nbbo"]
    stream = "LAST"
    queue_records = 100
    login = { user = "me", password = "secret" }
"#;

#[test]
#[cfg(feature = "nats")]
fn the_settings_of_nats_are_read() {
    use crate::nats::{NatsEncoding, NatsLogin};
    let nats = Config::parse("p.toml", &(WHOLE.to_owned() + NATS)).unwrap().nats.unwrap();
    assert!(!format!("{nats:?}").contains("secret"));
    let servers = vec![("nats.example.net".to_owned(), 4_222), ("[::1]".to_owned(), 4_223)];
    let expected = NatsSetting {
        prefix: "md.us".to_owned(),
        encoding: NatsEncoding::Protobuf,
        stream: Some("LAST".to_owned()),
        queue_records: 100,
        login: Some(NatsLogin::User { name: "me".to_owned(), password: "secret".into() }),
        ..NatsSetting::new(servers)
    };
    assert_eq!(nats, expected);
    let only = |more: &str| {
        let text = format!("{WHOLE}[nats]\nservers = \"127.0.0.1:4222\"\n{more}");
        Config::parse("p.toml", &text).unwrap().nats.unwrap()
    };
    let least = NatsSetting::new(vec![("127.0.0.1".to_owned(), 4_222)]);
    let token = NatsSetting { login: Some(NatsLogin::Token("t".into())), ..least.clone() };
    assert_eq!(only("token = \"t\"\n"), token);
    let trades = NatsSetting { nbbo: false, stream: None, ..least.clone() };
    assert_eq!(only("schemas = \"trades\"\n"), trades, "there is no NBBO to keep");
    assert_eq!(only("jetstream = false\n"), NatsSetting { stream: None, ..least });
    let wrong = "[nats]\nservers = \"tls://me:secret@a:4222\"\nprefix = \"a b\"\nschemas = \"mbo\"\n\
        stream = \"A.B\"\ntoken = \"t\"\nlogin = { user = \"me\" }\nencoding = \"xml\"\nqueue = 1\n";
    let found = problems(&(WHOLE.to_owned() + wrong));
    let expect = [
        "'servers'",
        "'prefix'",
        "'schemas'",
        "'stream'",
        "there is a token already",
        "lacks the key 'password'",
        "'xml' for 'encoding'",
        "the key 'queue'",
    ];
    assert_eq!(found.len(), expect.len(), "{found:?}");
    assert!(expect.iter().all(|expected| found.iter().any(|found| found.contains(expected))), "{found:?}");
    for (wrong, problem) in [
        ("", "lacks the key 'servers'"),
        ("servers = \"a:1\"\njetstream = false\nstream = \"A\"\n", "needs 'jetstream'"),
        ("servers = \"a:1\"\njetstream = true\nschemas = \"trades\"\n", "not among the 'schemas'"),
    ] {
        let found = problems(&format!("{WHOLE}[nats]\n{wrong}"));
        assert!(found.len() == 1 && found[0].contains(problem), "{found:?}");
    }
}

#[test]
#[cfg(not(feature = "nats"))]
fn the_settings_of_nats_need_the_feature() {
    let found = problems(&(WHOLE.to_owned() + NATS));
    assert!(found.len() == 1 && found[0].contains("without the feature 'nats'"), "{found:?}");
}

#[test]
#[cfg(not(feature = "questdb"))]
fn the_settings_of_questdb_need_the_feature() {
    let found = problems(&(WHOLE.to_owned() + QUESTDB));
    assert!(found.len() == 1 && found[0].contains("without the feature 'questdb'"), "{found:?}");
}

#[test]
fn a_venue_of_cboe_or_nyse_may_request_over_tcp() {
    let text = r#"
        [[venue]]
        name = "EDGX"
        protocol = "pitch"
        publisher = "EDGX.PITCH"
        lines = ["239.192.1.1:30001"]
        retransmission = { tcp = "192.0.2.1:31001", group = "239.192.1.2:30002", sub_id = "0001", user = "FIRM", password = "secret" }
        [[venue]]
        name = "Arca"
        protocol = "integrated"
        publisher = "ARCX.PILLAR"
        lines = ["239.192.2.1:30001"]
        retransmission = { tcp = "192.0.2.2:31001", group = "239.192.2.2:30002", source = "FIRM1", product = 159, channel = 7 }
    "#;
    let config = Config::parse("p.toml", text).unwrap();
    let server = |ip: [u8; 4], group: [u8; 4], login: Option<RequestLogin>| RetransmissionServer::Tcp {
        address: (ip, 31_001).into(),
        group: Some((group, 30_002).into()),
        login: login.unwrap(),
    };
    let servers: Vec<_> = config.plant.venues.iter().map(|venue| venue.retransmission.unwrap()).collect();
    let [of_cboe, of_nyse] = [RequestProtocol::Grp, RequestProtocol::Pillar].map(login);
    let wanted = [
        server([192, 0, 2, 1], [239, 192, 1, 2], of_cboe),
        server([192, 0, 2, 2], [239, 192, 2, 2], of_nyse),
    ];
    assert_eq!(servers, wanted);
    let engine = config.plant.engine();
    assert!(engine.channels.iter().all(|channel| channel.arbiter.retransmission.unwrap().answers_in_parts));
}

#[test]
fn london_and_memx_answer_requests_over_the_connection() {
    let text = r#"
        [[venue]]
        name = "London"
        protocol = "mitch"
        publisher = "XLON.MITCH"
        lines = ["239.192.1.1:30001"]
        retransmission = { tcp = "192.0.2.1:31001", user = "FIRM", password = "secret" }
        [[venue]]
        name = "MEMX"
        protocol = "memoir"
        publisher = "MEMX.MEMOIR"
        lines = ["239.192.2.1:30001"]
        retransmission = { tcp = "192.0.2.2:31001", user = "FIRM", password = "secret" }
    "#;
    let config = Config::parse("p.toml", text).unwrap();
    let servers: Vec<_> = config.plant.venues.iter().map(|venue| venue.retransmission.unwrap()).collect();
    let server = |ip: [u8; 4], login: Option<RequestLogin>| RetransmissionServer::Tcp {
        address: (ip, 31_001).into(),
        group: None,
        login: login.unwrap(),
    };
    let [london, memx] = [RequestProtocol::Mitch, RequestProtocol::Memx].map(login);
    assert_eq!(servers, [server([192, 0, 2, 1], london), server([192, 0, 2, 2], memx)]);
    let with_group = text.replace("user = \"FIRM\"", "group = \"239.1.1.1:5\", user = \"FIRM\"");
    assert_eq!(Config::parse("p.toml", &with_group).unwrap_err().len(), 2);
}

#[test]
fn a_login_for_snapshots_of_memx_is_as_long_as_one_for_requests() {
    let (user, password) = ("SIXTEENCHARACTER", "a password of thirty-two letters");
    let text = format!(
        r#"
        [[venue]]
        name = "MEMX"
        protocol = "memoir"
        publisher = "MEMX.MEMOIR"
        lines = ["239.192.2.1:30001"]
        retransmission = {{ tcp = "192.0.2.2:31001", user = "{user}", password = "{password}" }}
        snapshot = "192.0.2.3:31001"
        snapshots = {{ user = "{user}", password = "{password}" }}
    "#
    );
    let login = Config::parse("p.toml", &text).unwrap().plant.venues[0].login.clone();
    assert_eq!((login.user.as_str(), login.password.as_str()), (user, password));
    let too_long = text.replace(user, "SEVENTEENLETTERSX");
    assert_eq!(Config::parse("p.toml", &too_long).unwrap_err().len(), 2);
}

#[test]
fn a_venue_of_nyse_may_have_refreshes_and_no_other_one() {
    let text = r#"
        [[venue]]
        name = "Arca"
        protocol = "integrated"
        publisher = "ARCX.PILLAR"
        lines = ["239.192.2.1:30001"]
        snapshot = { tcp = "192.0.2.2:31001", group = "239.192.2.3:30003", source = "FIRM1", product = 159, channel = 7 }
        [[venue]]
        name = "NYSE"
        protocol = "integrated"
        publisher = "XNYS.PILLAR"
        lines = ["239.192.3.1:30001"]
        snapshot = "192.0.2.2:32001"
    "#;
    let config = Config::parse("p.toml", text).unwrap();
    let servers: Vec<_> = config.plant.venues.iter().map(|venue| venue.snapshot.unwrap()).collect();
    let group = SnapshotServer::Group {
        address: ([192, 0, 2, 2], 31_001).into(),
        group: ([239, 192, 2, 3], 30_003).into(),
        login: login(RequestProtocol::Pillar).unwrap(),
    };
    assert_eq!(servers, [group, SnapshotServer::Tcp(([192, 0, 2, 2], 32_001).into())]);
    let wrong = |from: &str, to: &str| {
        Config::parse("p.toml", &text.replace(from, to)).unwrap_err().remove(0).problem
    };
    assert!(wrong("group = ", "gruop = ").contains("lacks the key 'group'"));
    assert!(wrong("\"239.192.2.3:30003\"", "\"239.192.2.1:30001\"").contains("Arca"));
    let of_cboe = text.replace("integrated", "pitch").replace("ARCX.PILLAR", "EDGX.PITCH");
    let of_cboe = of_cboe.replace("XNYS.PILLAR", "EDGA.PITCH");
    let problem = Config::parse("p.toml", &of_cboe).unwrap_err().remove(0).problem;
    assert!(problem.contains("only feeds of NYSE"), "{problem}");
}

#[test]
fn times_have_a_unit_and_the_error_of_an_old_spelling_names_the_new_one() {
    let faults_of = |lines: &str| -> Vec<String> {
        let text = WHOLE.replace("reorder_window = \"250us\"", lines);
        Config::parse("p.toml", &text).unwrap_err().iter().map(|fault| fault.problem.clone()).collect()
    };
    assert_eq!(
        faults_of("reorder_window_us = 250\nsilence_s = 1.5"),
        [
            "'reorder_window_us' is 'reorder_window' now: reorder_window = \"250us\"",
            "'silence_s' is 'silence' now: silence = \"1.5s\"",
        ]
    );
    let wanted = "'reorder_window' must be a time with its unit from 0ns to 10s, such as \"250ms\"";
    assert_eq!(faults_of("reorder_window = \"11s\""), [wanted]);
    assert_eq!(faults_of("reorder_window = \"250\""), [wanted]);
    assert!(faults_of("reorder_window = 250")[0].contains("must be a string"));
    let outdated = WHOLE.replace("sync = \"250ms\"", "snapshot_every = \"60s\"");
    let faults = Config::parse("p.toml", &outdated).unwrap_err();
    assert_eq!(faults[0].problem, "'snapshot_every' is 'checkpoint_every' now");
    assert_eq!(faults.len(), 1);
}

#[test]
fn every_feed_of_the_table_can_be_a_venue_and_one_with_one_publisher_names_none() {
    for feed in tapeworks_feed::FEEDS {
        let of = |publisher: &str| {
            let name = feed.name;
            let lines = "lines = [\"239.1.1.1:30001\"]";
            format!("[[venue]]\nname = \"a\"\nprotocol = \"{name}\"\n{publisher}\n{lines}\n")
        };
        let parsed = Config::parse("p.toml", &of(""));
        let Some(only) = feed.only_publisher() else {
            assert!(parsed.is_err(), "{} has several publishers", feed.name);
            let dataset = feed.publisher(None, None).feed().unwrap().dataset;
            let named = format!("publisher = \"{dataset}\"");
            assert!(Config::parse("p.toml", &of(&named)).is_ok(), "{}", feed.name);
            continue;
        };
        let venue = &parsed.unwrap().plant.venues[0];
        assert_eq!((venue.application, venue.publisher), (feed.application, only));
        // Channels shared by all publishers belong to the first, whichever is named.
        for one in feed.publishers.iter().filter(|_| feed.channels_are_shared) {
            let named = format!("publisher = \"{}\"", one.publisher.0);
            let venue = &Config::parse("p.toml", &of(&named)).unwrap().plant.venues[0];
            assert_eq!(venue.publisher, only, "{}", one.publisher.0);
        }
    }
}

#[test]
fn a_publisher_that_does_not_publish_the_feed_is_a_fault() {
    let text = "[[venue]]\nname = \"a\"\nprotocol = \"memoir\"\npublisher = \"XNAS.ITCH\"\nlines = [\"239.1.1.1:30001\"]\n";
    let faults = Config::parse("p.toml", text).unwrap_err();
    assert_eq!(faults[0].place, Some((4, 13)));
    assert!(faults[0].problem.starts_with("'memoir' is not published by XNAS.ITCH, but by "), "{faults:?}");
}

#[test]
fn each_error_is_reported_with_its_line_and_column() {
    let text = "wait = \"spin\"\n[[venue]]\nname = \"a\"\nprotocol = \"itsch\"\nlines = [\"239.1.1.1\"]\nretransmision = 1\n[web]\nlisten = \"0.0.0.0:80\"\n";
    let found = problems(text);
    let expect = [
        "p.toml:1:8: 'spin' for 'wait'",
        "p.toml:2:1: venue lacks the key 'publisher'",
        "p.toml:4:12: 'itsch' for 'protocol'",
        "p.toml:5:10: 'lines'",
        "p.toml:6:1: the key 'retransmision'",
        "p.toml:8:10: an address beyond this machine",
    ];
    for (found, expected) in found.iter().zip(expect) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expect.len(), "{found:?}");
    assert_eq!(problems("").len(), 1);
    let nothing = problems(&WHOLE.replace("group = \"239.192.100.1:34000\"", "schemas_ = 1"));
    assert!(nothing.iter().any(|found| found.contains("multicast lacks the key 'group'")), "{nothing:?}");
    let every = WHOLE.replace("sync = \"250ms\"", "checkpoint_every = \"60s\"");
    let journal = Config::parse("p.toml", &every).unwrap().plant.journal.unwrap();
    assert_eq!(journal.checkpoint_every, Some(Duration::from_secs(60)));
    let wrong = problems(&WHOLE.replace("folder = \"days\"", "folder = \"journal/\""));
    assert!(wrong.len() == 1 && wrong[0].contains("the roll needs one of its own"), "{wrong:?}");
    let wrong = problems(&WHOLE.replace("format = \"parquet\"", "format = \"xlsx\""));
    assert!(wrong.len() == 1 && wrong[0].contains("'format'"), "{wrong:?}");
    // Settings that would fail at startup, or always be wrong.
    let venue = |name: &str, line: &str| {
        format!("[[venue]]\nname = \"{name}\"\nprotocol = \"deep\"\nlines = [\"{line}\"]\n")
    };
    let clients = "[clients]\nlisten = \"0.0.0.0:8080\"\nkey = [{ name = \"k\", key = \"db-TapeworksDemoKey0000000000000\" }]\ndataset = [{ name = \"D\" }]\n";
    for (text, expected) in [
        (
            venue("a", "239.1.1.1:5000") + &venue("b", "239.1.1.1:5000"),
            "p.toml:8:9: a line of venue 'a' has the address 239.1.1.1:5000 already",
        ),
        (venue("a", "192.0.2.1:5000"), "p.toml:4:10: 'lines'"),
        (
            venue("a", "239.1.1.1:5000") + clients + "[web]\nlisten = \"127.0.0.1:8080\"\n",
            "p.toml:10:10: [clients] has the address 127.0.0.1:8080 already",
        ),
        (
            venue("a", "239.1.1.1:5000") + "[multicast]\ngroup = \"239.1.1.1:5000\"\n",
            "p.toml:6:9: a line of venue 'a' is received at 239.1.1.1:5000",
        ),
        (
            venue("a", "239.1.1.1:5000") + "[web]\nlisten = \"0.0.0.0:80\"\ntoken = \"x\"\n",
            "p.toml:7:9: a token that others than this machine can guess at needs 16 characters, not 1",
        ),
    ] {
        let found = problems(&text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}\n{expected}");
    }
    let of_cboe = |server: &str| {
        "[[venue]]\nname = \"a\"\nprotocol = \"pitch\"\npublisher = \"EDGX.PITCH\"\nlines = [\"239.1.1.1:5000\"]\nretransmission = "
            .to_owned()
            + server
            + "\n"
    };
    for (text, expected) in [
        (of_cboe("{ tcp = \"192.0.2.1:5000\" }"), "p.toml:6:18: retransmission lacks the key 'group'"),
        (
            of_cboe("{ tcp = \"192.0.2.1:5000\", group = \"239.1.1.1:5000\" }"),
            "p.toml:6:52: a line of venue 'a' has the address 239.1.1.1:5000 already",
        ),
        (
            of_cboe("{ tcp = \"192.0.2.1:5000\", group = \"192.0.2.2:5000\" }"),
            "p.toml:6:52: 'group' must be a multicast group",
        ),
        (
            of_cboe("{ tcp = \"192.0.2.1:5000\", group = \"239.1.1.2:5000\", user = \"FIRMA\" }"),
            "p.toml:6:77: 'user' must have at most 4 letters or digits",
        ),
        (
            of_cboe("{ tcp = \"192.0.2.1:5000\", group = \"239.1.1.2:5000\", source = \"FIRM\" }"),
            "p.toml:6:70: the key 'source' is not known",
        ),
        (
            venue("a", "239.1.1.1:5000")
                + "retransmission = { tcp = \"192.0.2.1:5000\", group = \"239.1.1.2:5000\" }\n",
            "p.toml:5:18: only feeds of Cboe, NYSE, London and MEMX request over TCP: give an address",
        ),
    ] {
        let found = problems(&text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}\n{expected}");
    }
    for sound in ["127.0.0.1:5000", "0.0.0.0:5000", "[ff02::1]:5000"] {
        assert!(Config::parse("p.toml", &venue("a", sound)).is_ok(), "{sound}");
    }
    let short = WHOLE.replace("db-TapeworksDemoKey0000000000000", "db-short");
    assert!(problems(&short)[0].contains("a key has 32"), "{:?}", problems(&short));
    assert!(!problems(&short)[0].contains("db-short"), "secrets are not shown");
}
