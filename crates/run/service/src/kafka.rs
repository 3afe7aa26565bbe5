//! The section `[kafka]` of a plant's configuration.

use std::path::Path;
use std::time::Duration;

use tapeworks_market::Symbol;
use tapeworks_outputs::kafka::{KafkaCompression, KafkaLogin, KafkaMechanism, KafkaSetting};
use tapeworks_runtime::config::{Reading, Section, host_and_port};
use tapeworks_runtime::secrets::{Secret, check_secret};
use tapeworks_store::Schema;

/// The accepted range for the time between commits. A transaction costs some messages between brokers.
const FLUSH_EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(30);

/// Returns whether Kafka accepts the text as the name of a topic: letters, digits, `.`, `-` and `_`. The length is not checked.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text != "."
        && text != ".."
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_'))
}

/// Reads the section `[kafka]`. Relative paths start in the folder `beside`. The output reads the journal, so it requires one.
pub(crate) fn read(
    reading: &mut Reading<'_>,
    top: &mut Section<'_>,
    beside: &Path,
    has_journal: bool,
) -> Option<KafkaSetting> {
    let mut section = top.table(reading, "kafka")?;
    if cfg!(not(feature = "kafka")) {
        top.wrong_at(reading, "kafka", "this program was built without the feature 'kafka'");
    } else if !has_journal {
        top.wrong_at(reading, "kafka", "records go to Kafka from the journal, and there is no [journal]");
    }
    let what = "a broker's name or address with its port such as 127.0.0.1:9092";
    let brokers = section.each(reading, "brokers", what, host_and_port);
    if !section.has("brokers") {
        section.missing(reading, "brokers");
    }
    let mut setting = KafkaSetting::new(brokers.clone().unwrap_or_default());
    let what = "at most 200 letters, digits, '.', '-' and '_'";
    let id = section
        .parsed(reading, "id", what, |text| (is_name(text) && text.len() <= 200).then(|| text.to_owned()));
    setting.id = id.unwrap_or(setting.id);
    let what = "letters, digits, '.', '-', '_' and {schema} for the schema's name, at most 200";
    let topic = section.parsed(reading, "topic", what, |text| {
        (is_name(&text.replace("{schema}", "x")) && text.len() <= 200).then(|| text.to_owned())
    });
    setting.topic = topic.unwrap_or(setting.topic);
    let what = "a schema such as \"trades\" or \"cmbp-1\"";
    let schemas: Option<Vec<Schema>> = section.each(reading, "schemas", what, |text| text.parse().ok());
    // A duplicate would be sent twice.
    let mut once = Vec::new();
    for schema in schemas.unwrap_or(setting.schemas) {
        if !once.contains(&schema) {
            once.push(schema);
        }
    }
    setting.schemas = once;
    let position_topic = setting.position_topic();
    if setting.schemas.iter().any(|schema| setting.topic_of(*schema) == position_topic) {
        section.wrong_at(
            reading,
            "topic",
            "it is the topic of the position, which is that of the 'id' with .position",
        );
    }
    let what = "a symbol such as \"AAPL\"";
    let symbol = |text: &str| Symbol::parse(text).map(|symbol| symbol.to_string());
    setting.symbols = section.each(reading, "symbols", what, symbol).unwrap_or_default();
    setting.create_topics = section.boolean(reading, "create_topics").unwrap_or(setting.create_topics);
    let count = |found: Option<(usize, _)>| found.and_then(|(count, _)| u16::try_from(count).ok());
    setting.partitions = count(section.integer(reading, "partitions", 1..=10_000));
    setting.replicas = count(section.integer(reading, "replicas", 1..=100));
    for key in ["partitions", "replicas"] {
        if !setting.create_topics && section.has(key) {
            section.wrong_at(reading, key, "no topic is created, as 'create_topics' says");
        }
    }
    setting.login = section.table(reading, "login").and_then(|mut login| {
        let user = login.required_text(reading, "user").map(|(user, _)| user);
        let mechanisms = KafkaMechanism::ALL;
        let mechanism = login.choice(reading, "mechanism", &mechanisms, |mechanism| mechanism.as_str());
        if !Secret::is_in(&login, Secret::PASSWORD) {
            login.missing(reading, "password");
        }
        let password = Secret::read(reading, &mut login, Secret::PASSWORD, beside, check_secret);
        let mechanism = mechanism.unwrap_or(KafkaMechanism::Plain);
        login.refuse_the_rest(reading);
        Some(KafkaLogin { mechanism, user: user?, password: password? })
    });
    let compression =
        section.choice(reading, "compression", &KafkaCompression::ALL, |compression| compression.as_str());
    setting.compression = compression.unwrap_or_default();
    let every = section.time(reading, "flush_every", FLUSH_EVERY);
    setting.flush_every = every.unwrap_or(setting.flush_every);
    let records = section.integer(reading, "batch_records", 1..=1_000_000);
    setting.batch_records = records.map_or(setting.batch_records, |(records, _)| records);
    let batch = section.integer(reading, "batch_kb", 1..=100_000);
    setting.batch_bytes = batch.map_or(setting.batch_bytes, |(kilobytes, _): (usize, _)| kilobytes * 1_000);
    let queue = section.integer(reading, "queue_mb", 1..=2_000);
    setting.queue_bytes = queue.map_or(setting.queue_bytes, |(megabytes, _): (usize, _)| megabytes << 20);
    section.refuse_the_rest(reading);
    brokers.map(|_| setting)
}

#[cfg(test)]
#[cfg(feature = "kafka")]
mod tests {
    use super::*;
    use crate::config::Config;

    const PLANT: &str = "interface = \"127.0.0.1\"\n[[venue]]\nname = \"N\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\n\
        lines = [\"239.1.1.1:30001\"]\n[journal]\nfolder = \"journal\"\n";

    fn problems(text: &str) -> Vec<String> {
        let found = Config::parse("p.toml", text).unwrap_err();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_settings_of_kafka_are_read() {
        let text = r#"
            [kafka]
            brokers = ["kafka.example.net:9092", "[::1]:9093"]
            id = "ny-1"
            topic = "md.{schema}"
            schemas = ["mbo", "trades", "mbo"]
            symbols = ["BRK.B", "AAPL"]
            partitions = 6
            replicas = 3
            compression = "gzip"
            flush_every = "20ms"
            batch_records = 10
            batch_kb = 100
            queue_mb = 8
            [kafka.login]
            user = "me"
            password = "secret"
            mechanism = "PLAIN"
        "#;
        let kafka = Config::parse("p.toml", &(PLANT.to_owned() + text)).unwrap().kafka.unwrap();
        assert!(!format!("{kafka:?}").contains("secret"));
        let (user, password) = ("me".to_owned(), "secret".into());
        let brokers = vec![("kafka.example.net".to_owned(), 9_092), ("[::1]".to_owned(), 9_093)];
        let expected = KafkaSetting {
            id: "ny-1".to_owned(),
            topic: "md.{schema}".to_owned(),
            schemas: vec![Schema::Mbo, Schema::Trades],
            symbols: vec!["BRK.B".to_owned(), "AAPL".to_owned()],
            partitions: Some(6),
            replicas: Some(3),
            login: Some(KafkaLogin { mechanism: KafkaMechanism::Plain, user, password }),
            compression: KafkaCompression::Gzip,
            flush_every: Duration::from_millis(20),
            batch_records: 10,
            batch_bytes: 100_000,
            queue_bytes: 8 << 20,
            ..KafkaSetting::new(brokers)
        };
        assert_eq!(kafka, expected);
        assert_eq!(
            (kafka.topic_of(Schema::Mbo), kafka.position_topic()),
            ("md.mbo".into(), "ny-1.position".into())
        );
        let least = Config::parse("p.toml", &format!("{PLANT}[kafka]\nbrokers = \"127.0.0.1:9092\"\n"));
        let least = least.unwrap().kafka.unwrap();
        assert_eq!(least, KafkaSetting::new(vec![("127.0.0.1".to_owned(), 9_092)]));
    }

    #[test]
    fn wrong_settings_of_kafka_are_named() {
        let wrong = "[kafka]\nbrokers = \"http://a\"\nid = \"a b\"\ntopic = \"{symbol}\"\nschemas = \"mbp-2\"\ncreate_topics = false\n\
            partitions = 3\ncompression = \"zip\"\nflush_every = \"1ms\"\nqueue = 1\nlogin = { user = \"me\" }\n";
        let found = problems(&(PLANT.to_owned() + wrong));
        let expect = [
            "'brokers'",
            "'id'",
            "'topic'",
            "'schemas'",
            "'create_topics'",
            "'compression'",
            "'flush_every'",
            "the key 'queue'",
            "lacks the key 'password'",
        ];
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for expected in expect {
            assert!(found.iter().any(|found| found.contains(expected)), "{expected}: {found:?}");
        }
        let own = "[kafka]\nbrokers = \"a:1\"\nid = \"x\"\ntopic = \"x.position\"\n";
        let found = problems(&(PLANT.to_owned() + own));
        assert!(found.len() == 1 && found[0].contains("the topic of the position"), "{found:?}");
        let found = problems(&format!("{}[kafka]\n", PLANT.split("[journal]").next().unwrap()));
        assert_eq!(found.len(), 2, "{found:?}");
        for expected in ["no [journal]", "lacks the key 'brokers'"] {
            assert!(found.iter().any(|found| found.contains(expected)), "{expected}: {found:?}");
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "kafka"))]
mod tests {
    use crate::config::Config;

    #[test]
    fn the_settings_of_kafka_need_the_feature() {
        let found = Config::parse("p.toml", "[kafka]\nbrokers = \"127.0.0.1:9092\"\n").unwrap_err();
        assert!(
            found.iter().any(|found| found.to_string().contains("without the feature 'kafka'")),
            "{found:?}"
        );
    }
}
