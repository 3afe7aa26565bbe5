//! The sections `[aeron]` and `[source.aeron]` of a plant's configuration.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tapeworks_market::{Publisher, Shard};
use tapeworks_outputs::aeron::{AeronSetting, AeronSourceSetting};
use tapeworks_plant::RelayOptions;
use tapeworks_runtime::config::{Reading, Section};
use tapeworks_runtime::secrets::{Secret, check_token};
use tapeworks_runtime::transport::ClientTlsFiles;

use crate::tls;

/// The accepted range for the timeout of a driver or a reader.
const SILENCE: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

/// Maximum number of characters in a token, which is part of a request line.
const LONGEST_TOKEN: usize = 512;

/// Returns whether the text looks like an Aeron channel. Aeron itself checks the rest.
fn is_channel(text: &str) -> bool {
    let is_one = text == "aeron:ipc" || text.starts_with("aeron:ipc?") || text.starts_with("aeron:udp?");
    is_one && text.len() <= 1_024 && text.chars().all(|letter| matches!(letter, '!'..='~'))
}

fn read_channel(reading: &mut Reading<'_>, section: &mut Section<'_>) -> Option<String> {
    if !section.has("channel") {
        section.missing(reading, "channel");
    }
    let what = "a channel of Aeron: aeron:ipc, or aeron:udp?endpoint=HOST:PORT";
    section.parsed(reading, "channel", what, |text| is_channel(text).then(|| text.to_owned()))
}

/// Reads the driver's folder as text, which Aeron's client requires. A relative path starts in the folder of the file.
fn read_directory(reading: &mut Reading<'_>, section: &mut Section<'_>, beside: &Path) -> Option<String> {
    let directory = section.text(reading, "directory").map(|(path, _)| beside.join(path));
    directory.map(|path| path.to_string_lossy().into_owned())
}

/// Reads the token of replays, which is part of a line whose fields are separated by bars.
fn read_token(
    reading: &mut Reading<'_>,
    section: &mut Section<'_>,
    beside: &Path,
    is_local: bool,
) -> Option<Secret> {
    Secret::read(reading, section, Secret::TOKEN, beside, move |text| {
        let is_right = text.len() <= LONGEST_TOKEN && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        check_token(text, is_local)?;
        if is_right && !text.contains('|') {
            Ok(())
        } else {
            Err(format!(
                "a token of replays is printable ASCII without |, {LONGEST_TOKEN} characters at most"
            ))
        }
    })
}

/// Reads `[source.aeron]`: another plant's events, which replace venues' lines.
pub(crate) fn read_source(
    reading: &mut Reading<'_>,
    top: &mut Section<'_>,
    beside: &Path,
    publisher: fn(&str) -> Option<Publisher>,
) -> Option<(AeronSourceSetting, RelayOptions)> {
    let mut source = top.table(reading, "source")?;
    let section = source.table(reading, "aeron");
    source.refuse_the_rest(reading);
    let Some(mut section) = section else {
        source.missing(reading, "aeron");
        return None;
    };
    if cfg!(not(feature = "aeron")) {
        top.wrong_at(reading, "source", "this program was built without the feature 'aeron'");
    }
    let channel = read_channel(reading, &mut section);
    let mut setting = AeronSourceSetting {
        directory: read_directory(reading, &mut section, beside),
        channel: channel.clone().unwrap_or_default(),
        stream: 1_000,
        from: ([127, 0, 0, 1], 0).into(),
        token: None,
        tls: ClientTlsFiles::read(reading, &mut section, beside),
        driver_timeout: Duration::from_secs(5),
    };
    tls::check(reading, &section, "authorities", setting.tls.is_some());
    let stream = section.integer(reading, "stream", 1..=1_000_000_000);
    setting.stream = stream.map_or(setting.stream, |(stream, _)| stream as i32);
    let what = "the address of the other plant's replay server, such as 127.0.0.1:13050";
    let is_one = |from: &SocketAddr| from.port() != 0 && !from.ip().is_unspecified();
    let from = section.parsed(reading, "from", what, |text| text.parse().ok().filter(is_one));
    if !section.has("from") {
        section.missing(reading, "from");
    }
    setting.from = from.unwrap_or(setting.from);
    setting.token = read_token(reading, &mut section, beside, setting.from.ip().is_loopback());
    let timeout = section.time(reading, "driver_timeout", SILENCE);
    setting.driver_timeout = timeout.unwrap_or(setting.driver_timeout);
    let shards = section.integer(reading, "shards", 1..=1_024);
    let of = shards.map_or(1, |(shards, _)| shards as u16);
    let number = section.integer(reading, "shard", 0..=1_023).map_or(0, |(shard, _)| shard as u16);
    if number >= of {
        section.wrong_at(reading, "shard", &format!("'shard' must be less than 'shards', which is {of}"));
    }
    if !section.has("feeds") {
        section.missing(reading, "feeds");
    }
    let feeds = section.each(reading, "feeds", "a feed such as XNAS.ITCH, or its number", publisher);
    section.refuse_the_rest(reading);
    let relay = RelayOptions {
        name: format!("plant {}", setting.from),
        shard: Shard { number, of },
        feeds: feeds.unwrap_or_default(),
    };
    channel.and(from).map(|_| (setting, relay))
}

/// Reads the section `[aeron]`. Relative paths start in the folder `beside`.
pub(crate) fn read(
    reading: &mut Reading<'_>,
    top: &mut Section<'_>,
    beside: &Path,
    has_journal: bool,
) -> Option<AeronSetting> {
    let mut section = top.table(reading, "aeron")?;
    if cfg!(not(feature = "aeron")) {
        top.wrong_at(reading, "aeron", "this program was built without the feature 'aeron'");
    }
    let channel = read_channel(reading, &mut section);
    let mut setting = AeronSetting::new(channel.clone().unwrap_or_default());
    setting.directory = read_directory(reading, &mut section, beside);
    let stream = section.integer(reading, "stream", 1..=1_000_000_000);
    setting.stream = stream.map_or(setting.stream, |(stream, _)| stream as i32);
    setting.events = section.boolean(reading, "events").unwrap_or(setting.events);
    let streams = section.integer(reading, "nbbo_streams", 0..=1_024);
    setting.nbbo_streams = streams.map_or(setting.nbbo_streams, |(streams, _)| streams as u16);
    if !setting.events && setting.nbbo_streams == 0 {
        section.wrong_at(reading, "events", "neither events nor the NBBO would be published");
    }
    let queue = section.integer(reading, "queue_mb", 1..=65_536);
    setting.queue_bytes = queue.map_or(setting.queue_bytes, |(megabytes, _): (usize, _)| megabytes << 20);
    let longest = Duration::from_micros(1)..=Duration::from_secs(10);
    let pressure = section.time(reading, "back_pressure", longest);
    setting.back_pressure = pressure.unwrap_or(setting.back_pressure);
    let timeout = section.time(reading, "driver_timeout", SILENCE);
    setting.driver_timeout = timeout.unwrap_or(setting.driver_timeout);
    let every =
        section.time(reading, "symbols_every", Duration::from_millis(100)..=Duration::from_secs(3_600));
    setting.symbols_every = every.unwrap_or(setting.symbols_every);
    let what = "an address with a port such as 127.0.0.1:13050";
    setting.replay = section.parsed(reading, "replay", what, |text| text.parse().ok());
    let is_local = setting.replay.is_none_or(|replay| replay.ip().is_loopback());
    if setting.replay.is_some() {
        if !has_journal {
            section.wrong_at(reading, "replay", "replays come from the journal, and there is no [journal]");
        }
        if !is_local && !Secret::is_in(&section, Secret::TOKEN) {
            section.wrong_at(reading, "replay", "an address beyond this machine needs a 'token'");
        }
    }
    setting.token = read_token(reading, &mut section, beside, is_local);
    setting.tls = tls::read(reading, &mut section, beside);
    if setting.tls.is_some() && setting.replay.is_none() {
        section.wrong_at(reading, "certificate", "TLS is of the replay server, and there is no 'replay'");
    }
    let most = section.integer(reading, "max_replays", 1..=256);
    setting.max_replays = most.map_or(setting.max_replays, |(most, _)| most);
    section.refuse_the_rest(reading);
    channel.map(|_| setting)
}

#[cfg(test)]
#[cfg(feature = "aeron")]
mod tests {
    #[cfg(feature = "tls")]
    use tapeworks_runtime::transport::TlsFiles;

    use super::*;
    use crate::config::Config;

    const PLANT: &str = "interface = \"127.0.0.1\"\n[[venue]]\nname = \"N\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\n\
        lines = [\"239.1.1.1:30001\"]\n[journal]\nfolder = \"journal\"\n";

    #[test]
    fn the_settings_of_aeron_are_read() {
        let text = r#"
            [aeron]
            channel = "aeron:udp?endpoint=239.1.2.3:40456|interface=127.0.0.1"
            directory = "/dev/shm/driver"
            stream = 77
            events = false
            nbbo_streams = 4
            queue_mb = 8
            back_pressure = "5ms"
            driver_timeout = "2s"
            symbols_every = "3s"
            replay = "127.0.0.1:13050"
            token = "a-long-token-of-many-letters"
            max_replays = 2
        "#;
        let aeron = Config::parse("p.toml", &(PLANT.to_owned() + text)).unwrap().aeron.unwrap();
        assert!(!format!("{aeron:?}").contains("a-long-token"));
        let expected = AeronSetting {
            directory: Some("/dev/shm/driver".to_owned()),
            stream: 77,
            events: false,
            nbbo_streams: 4,
            queue_bytes: 8 << 20,
            back_pressure: Duration::from_millis(5),
            driver_timeout: Duration::from_secs(2),
            symbols_every: Duration::from_secs(3),
            replay: Some(([127, 0, 0, 1], 13_050).into()),
            token: Some("a-long-token-of-many-letters".into()),
            max_replays: 2,
            ..AeronSetting::new("aeron:udp?endpoint=239.1.2.3:40456|interface=127.0.0.1".to_owned())
        };
        assert_eq!(aeron, expected);
        assert_eq!((aeron.nbbo_stream(3), aeron.event_stream(2)), (81, 84));
        let least = Config::parse("p.toml", &format!("{PLANT}[aeron]\nchannel = \"aeron:ipc\"\n"));
        assert_eq!(least.unwrap().aeron, Some(AeronSetting::new("aeron:ipc".to_owned())));
    }

    const DOWNSTREAM: &str = "[source.aeron]\nchannel = \"aeron:ipc\"\nfrom = \"127.0.0.1:13050\"\nfeeds = [\"XNAS.ITCH\", \"XBOS.ITCH\"]\n";

    #[test]
    fn a_plant_downstream_needs_no_venue() {
        let config = Config::parse("p.toml", DOWNSTREAM).unwrap();
        let least = AeronSourceSetting {
            directory: None,
            channel: "aeron:ipc".to_owned(),
            stream: 1_000,
            from: ([127, 0, 0, 1], 13_050).into(),
            token: None,
            tls: None,
            driver_timeout: Duration::from_secs(5),
        };
        assert_eq!(config.source, Some(least.clone()));
        let shard = config.plant.relay.as_ref().unwrap().shard;
        assert_eq!((shard.number, shard.of, config.plant.venues.len()), (0, 1, 0));
        assert_eq!(config.books().feeds.iter().map(|(feed, _)| feed.0).collect::<Vec<_>>(), [2, 3]);
        let more = "directory = \"driver\"\nstream = 7\nshard = 3\nshards = 4\ndriver_timeout = \"2s\"\ntoken = \"a-long-token-of-many-letters\"\n";
        let config = Config::parse("d/p.toml", &format!("{DOWNSTREAM}{more}")).unwrap();
        let all = AeronSourceSetting {
            directory: Some("d/driver".to_owned()),
            stream: 7,
            token: Some("a-long-token-of-many-letters".into()),
            driver_timeout: Duration::from_secs(2),
            ..least
        };
        assert_eq!(config.source, Some(all));
        assert_eq!(config.plant.relay.unwrap().shard, Shard { number: 3, of: 4 });
    }

    #[test]
    fn wrong_settings_of_a_source_are_named_with_their_place() {
        let venue = "[[venue]]\nname = \"N\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\nlines = [\"239.1.1.1:30001\"]\n";
        let help = "[nbbo]\nself_help = [{ venue = \"XBOS\", from = \"2025-11-14T10:00-05:00\" }]\n";
        let pair = "[journal]\nfolder = \"j\"\n[pair]\nlisten = \"127.0.0.1:1\"\npeer = \"127.0.0.1:2\"\nrole = \"standby\"\n";
        let wrong = [
            ("[source]\n".to_owned(), "p.toml:1:1: source lacks the key 'aeron'"),
            (DOWNSTREAM.replace("from", "at"), "p.toml:3:1: the key 'at' is not known"),
            (format!("{DOWNSTREAM}certificate = \"c.pem\"\n"), "lacks the key 'private_key'"),
            (
                format!("{DOWNSTREAM}certificate = \"c.pem\"\nprivate_key = \"k.pem\"\n"),
                "lacks the key 'authorities'",
            ),
            (
                DOWNSTREAM.replace("127.0.0.1:13050", "0.0.0.0:13050"),
                "p.toml:3:8: 'from' must be the address",
            ),
            (format!("{DOWNSTREAM}token = \"a\\nb\"\n"), "p.toml:5:9: a token of replays is printable ASCII"),
            (format!("{DOWNSTREAM}token = \"{}\"\n", "x".repeat(513)), "512 characters at most"),
            (DOWNSTREAM.replace("aeron:ipc", "ipc"), "p.toml:2:11: 'channel' must be a channel of Aeron"),
            (
                format!("{DOWNSTREAM}shard = 2\nshards = 2\n"),
                "p.toml:5:9: 'shard' must be less than 'shards', which is 2",
            ),
            (format!("{DOWNSTREAM}{venue}"), "'venue' does not go with [source]"),
            (format!("{DOWNSTREAM}{help}"), "'self_help' does not go with [source]"),
            (format!("{DOWNSTREAM}{pair}"), "'pair' does not go with [source]"),
            (format!("symbols = [\"A\"]\n{DOWNSTREAM}"), "p.toml:1:11: 'symbols' does not go with [source]"),
        ];
        for (text, expected) in wrong {
            let found = Config::parse("p.toml", &text).unwrap_err();
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert!(found.iter().any(|found| found.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn the_files_of_tls_are_beside_the_configuration() {
        let text = "[aeron]\nchannel = \"aeron:ipc\"\nreplay = \"127.0.0.1:13050\"\ncertificate = \"c.pem\"\n\
            private_key = \"k.pem\"\nclient_authorities = \"a.pem\"\n";
        let aeron = Config::parse("d/p.toml", &(PLANT.to_owned() + text)).unwrap().aeron.unwrap();
        let files = TlsFiles {
            certificate: "d/c.pem".into(),
            private_key: "d/k.pem".into(),
            client_authorities: Some("d/a.pem".into()),
        };
        assert_eq!(aeron.tls, Some(files));
        let without = text.replace("replay = \"127.0.0.1:13050\"\n", "");
        let found = Config::parse("d/p.toml", &(PLANT.to_owned() + &without)).unwrap_err();
        assert!(found[0].to_string().contains("there is no 'replay'"), "{found:?}");
        let more = "authorities = \"a.pem\"\ncertificate = \"c.pem\"\nprivate_key = \"k.pem\"\n";
        let source = Config::parse("d/p.toml", &format!("{DOWNSTREAM}{more}")).unwrap().source.unwrap();
        let identity = Some(("d/c.pem".into(), "d/k.pem".into()));
        assert_eq!(source.tls, Some(ClientTlsFiles { authorities: "d/a.pem".into(), identity }));
    }

    #[test]
    fn wrong_settings_of_aeron_are_named() {
        let wrong = "[aeron]\nchannel = \"udp://a\"\nevents = false\nnbbo_streams = 0\nqueue = 1\nreplay = \"0.0.0.0:7\"\n";
        let found =
            Config::parse("p.toml", &(PLANT.replace("[journal]\nfolder = \"journal\"\n", "") + wrong))
                .unwrap_err();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expect =
            ["'channel'", "neither events nor", "the key 'queue'", "no [journal]", "needs a 'token'"];
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for expected in expect {
            assert!(found.iter().any(|found| found.contains(expected)), "{expected}: {found:?}");
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "aeron"))]
mod tests {
    use crate::config::Config;

    #[test]
    fn the_settings_of_aeron_need_the_feature() {
        let found = Config::parse("p.toml", "[aeron]\nchannel = \"aeron:ipc\"\n").unwrap_err();
        assert!(
            found.iter().any(|found| found.to_string().contains("without the feature 'aeron'")),
            "{found:?}"
        );
    }
}
