//! Retransmission and snapshot servers that lie, stall or never end, of every protocol: no book is wrong without a flag.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;

/// A venue: its name, the kind of the simulated venue, the plant's protocol and publisher.
const VENUES: [(&str, &str, &str, &str); 7] = [
    ("Nasdaq", "nasdaq", "itch", "XNAS.ITCH"),
    ("DEEP", "iex-deep", "deep", "IEXG.DEEP"),
    ("TOPS", "iex-tops", "tops", "IEXG.TOPS"),
    ("EDGX", "edgx", "pitch", "EDGX.PITCH"),
    ("Arca", "arca", "integrated", "ARCX.PILLAR"),
    ("London", "lse", "mitch", "XLON.MITCH"),
    ("MEMX", "memx", "memoir", "MEMX.MEMOIR"),
];

const SYMBOLS: usize = 40;

/// The addresses of one market.
struct Market {
    /// The second byte of its groups.
    network: u32,
    port: u16,
    retransmission: Vec<SocketAddr>,
    snapshot: Vec<SocketAddr>,
}

impl Market {
    fn new() -> Self {
        let address = |number: usize| free_port(500 + number as u32);
        Self {
            network: 199,
            port: address(40).port(),
            retransmission: (0..VENUES.len()).map(address).collect(),
            snapshot: (20..20 + VENUES.len()).map(address).collect(),
        }
    }

    /// A group of a venue: line A or B, or the answers to requests or for snapshots.
    fn group(&self, venue: usize, which: u8) -> String {
        let host = 8 * venue + usize::from(which);
        format!("\"239.{}.{}.{host}:{}\"", self.network, std::process::id() % 250, self.port)
    }

    /// A server that is reached over TCP, and answers to a group where `to_group` says so.
    fn by_tcp(&self, venue: usize, address: SocketAddr, to_group: Option<u8>, login: &str) -> String {
        let group = to_group.map(|which| format!(", group = {}", self.group(venue, which)));
        format!("{{ tcp = \"{address}\"{}{login} }}", group.unwrap_or_default())
    }

    /// The keys of the servers, with the logins where `is_client`.
    fn servers(&self, venue: usize, is_client: bool) -> String {
        let (retransmission, snapshot) = (self.retransmission[venue], self.snapshot[venue]);
        let login = |login: &'static str| if is_client { login } else { "" };
        let user = login(", user = \"FIRM\", password = \"secret\"");
        let source = login(", source = \"FIRM1\", product = 1, channel = 2");
        let sub_id = login(", sub_id = \"0001\", user = \"FIRM\", password = \"secret\"");
        let (retransmission, snapshot) = match VENUES[venue].2 {
            "pitch" => (self.by_tcp(venue, retransmission, Some(3), sub_id), format!("\"{snapshot}\"")),
            "integrated" => (
                self.by_tcp(venue, retransmission, Some(3), source),
                self.by_tcp(venue, snapshot, Some(4), source),
            ),
            "mitch" | "memoir" => (self.by_tcp(venue, retransmission, None, user), format!("\"{snapshot}\"")),
            _ => (format!("\"{retransmission}\""), format!("\"{snapshot}\"")),
        };
        format!("retransmission = {retransmission}\nsnapshot = {snapshot}\n")
    }

    fn venues_toml(&self, seed: u64, messages: u32) -> String {
        let mut text = format!(
            "seed = {}\nsymbols = {SYMBOLS}\nrate = 6_000\nmessages = {messages}\nlinger = \"300s\"\n\
             interface = \"127.0.0.1\"\nwait = \"rest\"\n",
            seed % 1_000_000
        );
        for (venue, (name, kind, ..)) in VENUES.iter().enumerate() {
            let (a, b, servers) = (self.group(venue, 1), self.group(venue, 2), self.servers(venue, false));
            writeln!(
                text,
                "[[venue]]\nname = \"{name}\"\nkind = \"{kind}\"\nlines = [{a}, {b}]\n{servers}\
                 faults = {{ a = {{ lost_per_million = 30_000 }} }}\n\
                 retransmission_faults = {{ late_per_million = 50_000, late = \"30ms\", partial_per_million = 100_000, \
                 more_per_million = 50_000, other_range_per_million = 50_000, other_session_per_million = 50_000, \
                 unreadable_per_million = 150_000, repeated_per_million = 50_000 }}\n\
                 snapshot_faults = {{ ahead_per_million = 200_000, other_session_per_million = 200_000, \
                 unreadable_per_million = 200_000, silent_per_million = 100_000, endless_per_million = 100_000 }}"
            )
            .unwrap();
        }
        text
    }

    /// A plant that follows line `line`, with the servers if `recovers`.
    fn plant_toml(
        &self,
        folder: &str,
        line: u8,
        web: SocketAddr,
        clients: SocketAddr,
        recovers: bool,
    ) -> String {
        let mut text = format!(
            "interface = \"127.0.0.1\"\n[journal]\nfolder = \"{folder}\"\n[web]\nlisten = \"{web}\"\n[clients]\nlisten = \"{clients}\"\n\
             dataset = [{{ name = \"TAPEWORKS.DEMO\" }}]\nkey = [{{ name = \"demo\", key = \"{KEY}\" }}]\n"
        );
        for (venue, (name, _, protocol, publisher)) in VENUES.iter().enumerate() {
            let group = self.group(venue, line);
            writeln!(
                text,
                "[[venue]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\npublisher = \"{publisher}\"\nlines = [{group}]"
            )
            .unwrap();
            if recovers {
                let servers = self.servers(venue, true);
                let pace = "requests = { timeout = \"20ms\", attempts = 3 }\nsnapshots = { attempts = 3, timeout = \"2s\" }";
                writeln!(text, "{servers}{pace}").unwrap();
            }
        }
        text
    }
}

/// The books of a plant, by publisher and symbol: whether they may be bad, and their levels.
fn books(clients: SocketAddr, what: &str) -> BTreeMap<(u64, String), (bool, serde_json::Value)> {
    let address = clients.to_string();
    let arguments =
        ["subscribe", &address, "--key", KEY, "--schema", "mbp-10", "--snapshot", "--seconds", "3"];
    let output = run(&arguments);
    is_sound(&output, &stderr(&output), &[0], what);
    let records = stdout(&output);
    let records = records.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    records
        .map(|record| {
            let symbol = record["symbol"].as_str().unwrap().to_owned();
            let may_be_bad = record["flags"].as_u64().unwrap() & 4 != 0;
            ((record["hd"]["publisher_id"].as_u64().unwrap(), symbol), (may_be_bad, record["levels"].clone()))
        })
        .collect()
}

/// The next number of each venue.
fn reached(web: SocketAddr) -> Option<Vec<u64>> {
    status(web)?["venues"].as_array()?.iter().map(|venue| venue["next"].as_u64()).collect()
}

fn sum(status: &serde_json::Value, of: impl Fn(&serde_json::Value) -> &serde_json::Value) -> u64 {
    status["venues"].as_array().unwrap().iter().map(|venue| of(venue).as_u64().unwrap()).sum()
}

#[test]
fn lying_recovery_servers_leave_no_wrong_book_without_a_flag() {
    let mut rounds = Rounds::new(9, 1);
    while rounds.next() {
        let what = format!("seed {}", rounds.seed);
        let folder = Folder::new("hostile-recovery");
        let market = Market::new();
        let [web, lied_web, clients, lied_clients] = [560, 561, 562, 563].map(free_port);
        let write = |name: &str, text: String| folder.write(name, text.as_bytes());
        let venues = write("venues.toml", market.venues_toml(rounds.random.bits(), 40_000));
        let sound = write("sound.toml", market.plant_toml("sound", 2, web, clients, false));
        let lied = write("lied.toml", market.plant_toml("lied", 1, lied_web, lied_clients, true));
        // The sound plant is there from the first message on, and line B loses nothing.
        let sound = Running::start(&["plant", &sound]);
        support::wait_for(|| status(web).is_some());
        let serving = Running::start(&["exchange", "serve", &venues]);
        support::wait_for(|| reached(web).is_some_and(|next| next.iter().sum::<u64>() > 3_000));
        let lied = Running::start(&["plant", &lied]);
        support::wait_for(|| reached(web).is_some_and(|next| next.iter().sum::<u64>() > 40_000));
        support::wait_for(|| reached(lied_web) == reached(web));
        // Some books heal until then.
        std::thread::sleep(Duration::from_secs(2));
        let (expected, found) = (books(clients, &what), books(lied_clients, &what));
        assert_eq!(expected.len(), SYMBOLS * VENUES.len(), "{what}");
        assert!(expected.values().all(|(may_be_bad, _)| !may_be_bad), "{what}: the sound plant's books");
        let mut good = 0;
        for (book, (may_be_bad, levels)) in &found {
            if !may_be_bad {
                good += 1;
                assert_eq!(Some(levels), expected.get(book).map(|(_, levels)| levels), "{what}: {book:?}");
            }
        }
        let status = status(lied_web).unwrap();
        let [applied, failed] =
            ["applied", "failed"].map(|key| sum(&status, |venue| &venue["snapshots"][key]));
        let missing = sum(&status, |venue| &venue["missing"]);
        println!(
            "{good} of {} books are good; snapshots: {applied} applied, {failed} failed",
            expected.len()
        );
        assert!(applied > 0 && failed > 0 && missing > 0 && good > 0, "{what}: {status}");
        [lied, serving, sound].into_iter().for_each(Running::stop);
        let verified = run(&["journal", "verify", &folder.path("lied")]);
        is_sound(&verified, &stderr(&verified), &[0], &what);
    }
}
