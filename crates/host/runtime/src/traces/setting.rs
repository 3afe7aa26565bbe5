//! The `[otel]` section of a configuration: where to send traces, and what to sample.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Sampling;
use crate::config::{Reading, Section, host_and_port};
use crate::secrets::{Secret, check_secret};

/// The path at which a collector accepts traces by OTLP over HTTP.
const PATH: &str = "/v1/traces";

/// The longest sensible interval between two exports, and the longest response timeout.
const LONGEST: Duration = Duration::from_secs(600);

/// The shortest export interval and timeout.
const SHORTEST: Duration = Duration::from_millis(1);

/// What a process samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sampled {
    /// A plant: packets.
    Packets,
    /// A gateway: orders.
    Orders,
}

/// Settings of the trace export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceSetting {
    /// The URL that spans are posted to.
    pub url: String,
    /// A PEM file of certificate authorities, one of which must have signed the collector's certificate. For an https URL.
    pub authorities: Option<PathBuf>,
    /// The collector's token.
    pub token: Option<Secret>,
    /// The header that carries the bare token. `None`: `Authorization`, as a bearer token.
    pub token_header: Option<String>,
    /// The name of the process at the collector.
    pub service_name: String,
    /// Which packets or orders are sampled.
    pub sampling: Sampling,
    /// Whether to export rare operations.
    pub operations: bool,
    /// Samples that may wait for the exporter.
    pub queue_samples: usize,
    /// The interval between exports.
    pub export_every: Duration,
    /// How long to wait for the collector's response.
    pub timeout: Duration,
    /// The longest pause between two attempts.
    pub longest_pause: Duration,
    /// How long to keep exporting waiting samples when the process exits.
    pub linger: Duration,
}

impl TraceSetting {
    /// Returns the default settings for a collector at `url`.
    pub fn new(url: String, sampled: Sampled) -> Self {
        let (service_name, every) = match sampled {
            Sampled::Packets => ("tapeworks-plant", 100_000),
            Sampled::Orders => ("tapeworks-gateway", 1_000),
        };
        Self {
            url,
            authorities: None,
            token: None,
            token_header: None,
            service_name: service_name.to_owned(),
            sampling: Sampling { every, slower_than: None },
            operations: true,
            queue_samples: 1_024,
            export_every: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            longest_pause: Duration::from_secs(30),
            linger: Duration::from_secs(2),
        }
    }
}

/// Returns the URL to post spans to, given a collector's URL.
fn url_of(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = host_and_port(authority)?;
    let is_plain = |text: &str| text.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
    // Logs would show a user and a password.
    if host.contains('@') || !is_plain(text) || path.contains(['?', '#']) {
        return None;
    }
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix(PATH).unwrap_or(path);
    Some(format!("{scheme}://{host}:{port}{path}{PATH}"))
}

/// Headers that the request sets itself.
const OWN_HEADERS: [&str; 9] = [
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "transfer-encoding",
    "user-agent",
];

/// Returns whether a text can be the name of a token's header.
fn is_header(text: &str) -> bool {
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_name && !OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(text))
}

/// Reads the `[otel]` section of a configuration whose paths are relative to `beside`.
pub fn read(
    reading: &mut Reading<'_>,
    top: &mut Section<'_>,
    beside: &Path,
    sampled: Sampled,
) -> Option<TraceSetting> {
    let mut section = top.table(reading, "otel")?;
    if cfg!(not(feature = "otel")) {
        top.wrong_at(reading, "otel", "this program was built without the feature 'otel'");
    }
    let what = "a collector's URL with a port such as http://127.0.0.1:4318";
    let url = section.parsed(reading, "endpoint", what, url_of);
    if !section.has("endpoint") {
        section.missing(reading, "endpoint");
    }
    let mut setting = TraceSetting::new(url.clone().unwrap_or_default(), sampled);
    setting.authorities = section.text(reading, "authorities").map(|(path, _)| beside.join(path));
    match (&url, &setting.authorities) {
        (Some(url), None) if url.starts_with("https:") => {
            section.wrong_at(
                reading,
                "endpoint",
                "an https URL needs 'authorities', one of which has signed the collector's certificate",
            );
        }
        (Some(url), Some(_)) if url.starts_with("http:") => {
            section.wrong_at(reading, "authorities", "authorities are for an https URL");
        }
        _ => {}
    }
    setting.token = Secret::read(reading, &mut section, Secret::TOKEN, beside, |text| {
        check_secret(text)?;
        let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if is_printable { Ok(()) } else { Err("a token is printable ASCII".to_owned()) }
    });
    let header = section.parsed(
        reading,
        "token_header",
        "the name of a header for a token: letters, digits and hyphens",
        |text| is_header(text).then(|| text.to_owned()),
    );
    if header.is_some() && !Secret::is_in(&section, Secret::TOKEN) {
        section.wrong_at(reading, "token_header", "there is no token to put into the header");
    }
    setting.token_header = header;
    let name = section.parsed(reading, "service_name", "a name of 1 to 128 characters", |text| {
        (1..=128).contains(&text.chars().count()).then(|| text.to_owned())
    });
    setting.service_name = name.unwrap_or(setting.service_name);
    let (every, slower) = match sampled {
        Sampled::Packets => ("packets_every", "packets_slower_than"),
        Sampled::Orders => ("orders_every", "orders_slower_than"),
    };
    let every = section.integer(reading, every, 0..=1_000_000_000_000);
    setting.sampling.every = every.map_or(setting.sampling.every, |(every, _): (usize, _)| every as u64);
    setting.sampling.slower_than =
        section.time(reading, slower, Duration::from_micros(1)..=Duration::from_secs(60));
    setting.operations = section.boolean(reading, "operations").unwrap_or(true);
    let queue = section.integer(reading, "queue_samples", 16..=1 << 20);
    setting.queue_samples = queue.map_or(setting.queue_samples, |(samples, _)| samples);
    let mut time = |key, usual| section.time(reading, key, SHORTEST..=LONGEST).unwrap_or(usual);
    setting.export_every = time("export_every", setting.export_every);
    setting.timeout = time("timeout", setting.timeout);
    setting.longest_pause = time("longest_pause", setting.longest_pause);
    setting.linger = time("linger", setting.linger);
    section.refuse_the_rest(reading);
    url.map(|_| setting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read_text;

    fn read_as(text: &str, sampled: Sampled) -> Result<Option<TraceSetting>, Vec<String>> {
        let read = read_text(Reading::new("p.toml", text, true), |reading, document| {
            let mut top = Section::new("the file", document.get_ref(), 0..0);
            let setting = read(reading, &mut top, Path::new("beside"), sampled);
            top.refuse_the_rest(reading);
            setting
        });
        read.map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn an_endpoint_is_a_url_with_a_port_and_gets_the_path_of_traces() {
        for (text, url) in [
            ("http://127.0.0.1:4318", Some("http://127.0.0.1:4318/v1/traces")),
            ("http://127.0.0.1:4318/", Some("http://127.0.0.1:4318/v1/traces")),
            ("https://otel.example:443/otlp", Some("https://otel.example:443/otlp/v1/traces")),
            ("http://[::1]:4318/v1/traces", Some("http://[::1]:4318/v1/traces")),
            ("127.0.0.1:4318", None),
            ("grpc://127.0.0.1:4317", None),
            ("http://127.0.0.1", None),
            ("http://user:word@127.0.0.1:4318", None),
            ("http://127.0.0.1:4318/a?token=b", None),
        ] {
            assert_eq!(url_of(text).as_deref(), url, "{text}");
        }
    }

    #[test]
    fn a_token_does_not_go_into_a_header_of_the_request_itself() {
        assert!(is_header("Authorization") && is_header("api-key"));
        for wrong in ["", "a key", "a:b", "Content-Length", "host", "TRANSFER-ENCODING"] {
            assert!(!is_header(wrong), "{wrong}");
        }
    }

    #[cfg(not(feature = "otel"))]
    #[test]
    fn the_settings_of_traces_need_the_feature() {
        let found = read_as("[otel]\nendpoint = \"http://127.0.0.1:4318\"\n", Sampled::Orders).unwrap_err();
        assert_eq!(found, ["p.toml:1:1: this program was built without the feature 'otel'"]);
    }

    #[cfg(feature = "otel")]
    #[test]
    fn the_settings_of_traces_are_read() {
        let text = r#"
            [otel]
            endpoint = "https://collector:4318"
            authorities = "collector.pem"
            token = "of-nobody-else"
            token_header = "api-key"
            service_name = "plant-1"
            packets_every = 5_000
            packets_slower_than = "2ms"
            operations = false
            queue_samples = 64
            export_every = "250ms"
            timeout = "3s"
            longest_pause = "7s"
            linger = "1s"
        "#;
        let setting = read_as(text, Sampled::Packets).unwrap().unwrap();
        assert!(!format!("{setting:?}").contains("of-nobody-else"));
        let expected = TraceSetting {
            authorities: Some(Path::new("beside").join("collector.pem")),
            token: Some("of-nobody-else".into()),
            token_header: Some("api-key".to_owned()),
            service_name: "plant-1".to_owned(),
            sampling: Sampling { every: 5_000, slower_than: Some(Duration::from_millis(2)) },
            operations: false,
            queue_samples: 64,
            export_every: Duration::from_millis(250),
            timeout: Duration::from_secs(3),
            longest_pause: Duration::from_secs(7),
            linger: Duration::from_secs(1),
            ..TraceSetting::new("https://collector:4318/v1/traces".to_owned(), Sampled::Packets)
        };
        assert_eq!(setting, expected);
        let least = read_as("[otel]\nendpoint = \"http://127.0.0.1:4318\"\n", Sampled::Orders).unwrap();
        let usual = TraceSetting::new("http://127.0.0.1:4318/v1/traces".to_owned(), Sampled::Orders);
        assert_eq!(least, Some(usual));
        assert_eq!(read_as("", Sampled::Orders), Ok(None));
    }

    #[cfg(feature = "otel")]
    #[test]
    fn wrong_settings_of_traces_are_named_with_line_and_column() {
        let wrong = "[otel]\nendpoint = \"https://c:4318\"\ntoken_header = \"a key\"\norders_every = -1\npackets_every = 5\nlinger = \"2h\"\n";
        let found = read_as(wrong, Sampled::Orders).unwrap_err();
        let expected = [
            "p.toml:2:12: an https URL needs 'authorities'",
            "p.toml:3:16: 'token_header'",
            "p.toml:4:16: 'orders_every'",
            "p.toml:5:1: ",
            "p.toml:6:10: 'linger'",
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
        let found = read_as("[otel]\ntoken_file = \"not-there\"\n", Sampled::Orders).unwrap_err();
        assert!(found.iter().any(|found| found.contains("endpoint")), "{found:?}");
        assert!(found.iter().any(|found| found.contains("not-there")), "{found:?}");
    }
}
