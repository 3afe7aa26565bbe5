//! The settings that the results of a folder are made with, shared by all of its tasks.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tapeworks_feed::Application;
use tapeworks_market::Symbol;
use tapeworks_market::nbbo::{NbboRules, StaleBooks};
use tapeworks_store::{Format, Schema};

/// Maximum number of buckets. Each is an open file per schema of a task.
pub const MOST_BUCKETS: u16 = 1_000;

/// Maximum letters of a setting that are shown.
const MOST_SHOWN: usize = 60;

/// The settings that affect the bytes of the results.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Plain", into = "Plain")]
pub struct Settings {
    /// The schemas to write.
    pub schemas: Vec<Schema>,
    /// How files are encoded.
    pub format: Format,
    /// Partitions by symbol, 1 to [`MOST_BUCKETS`]: see [`bucket_of`](super::bucket_of).
    pub buckets: u16,
    /// The protocol to use instead of recognizing it.
    pub protocol: Option<Application>,
    /// The symbols to include, sorted, if limited.
    pub symbols: Option<Vec<Symbol>>,
    /// Whether venues with stale books are left out of the NBBO; otherwise they are flagged.
    pub excludes_stale_books: bool,
    /// Whether odd lots count in the NBBO at their own prices.
    pub odd_lots_count: bool,
    /// Whether quotes beyond the SIPs' price bands count in the NBBO.
    pub ignores_price_bands: bool,
}

/// The settings as stored in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    /// The program's version, which may affect the bytes too.
    program: String,
    schemas: Vec<String>,
    format: String,
    buckets: u16,
    protocol: Option<String>,
    symbols: Option<Vec<String>>,
    excludes_stale_books: bool,
    odd_lots_count: bool,
    ignores_price_bands: bool,
}

/// The program and its version.
const PROGRAM: &str = concat!("tapeworks ", env!("CARGO_PKG_VERSION"));

impl From<Settings> for Plain {
    fn from(settings: Settings) -> Self {
        Self {
            program: PROGRAM.to_owned(),
            schemas: settings.schemas.iter().map(ToString::to_string).collect(),
            format: settings.format.name().to_owned(),
            buckets: settings.buckets,
            protocol: settings.protocol.map(|application| application.protocol().to_owned()),
            symbols: settings.symbols.map(|symbols| symbols.iter().map(ToString::to_string).collect()),
            excludes_stale_books: settings.excludes_stale_books,
            odd_lots_count: settings.odd_lots_count,
            ignores_price_bands: settings.ignores_price_bands,
        }
    }
}

impl TryFrom<Plain> for Settings {
    type Error = String;

    fn try_from(plain: Plain) -> Result<Self, String> {
        if plain.program != PROGRAM {
            return Err(format!("it is of {}, and this is {PROGRAM}", plain.program));
        }
        if !(1..=MOST_BUCKETS).contains(&plain.buckets) {
            return Err(format!("{} buckets: use 1 to {MOST_BUCKETS}", plain.buckets));
        }
        let schemas = plain.schemas.iter().map(|name| name.parse().map_err(|error| format!("{error}")));
        let protocol =
            |name: String| Application::by_name(&name).ok_or_else(|| format!("unknown protocol '{name}'"));
        let symbol =
            |name: &String| Symbol::parse(name).ok_or_else(|| format!("'{name}' cannot be a symbol"));
        let symbols =
            plain.symbols.map(|names| names.iter().map(symbol).collect::<Result<Vec<_>, _>>()).transpose()?;
        Ok(Self {
            schemas: schemas.collect::<Result<_, String>>()?,
            format: plain.format.parse().map_err(|error| format!("{error}"))?,
            buckets: plain.buckets,
            protocol: plain.protocol.map(protocol).transpose()?,
            symbols,
            excludes_stale_books: plain.excludes_stale_books,
            odd_lots_count: plain.odd_lots_count,
            ignores_price_bands: plain.ignores_price_bands,
        })
    }
}

impl Settings {
    /// Returns the rules of the NBBO.
    pub(crate) fn rules(&self) -> NbboRules {
        NbboRules {
            stale_books: if self.excludes_stale_books { StaleBooks::Exclude } else { StaleBooks::Flag },
            odd_lots_count: self.odd_lots_count,
            ignores_price_bands: self.ignores_price_bands,
            ..NbboRules::default()
        }
    }

    /// Converts the settings to plain data.
    pub(crate) fn to_value(&self) -> Value {
        // Strings, numbers and lists of them can always be serialized.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Describes each setting that differs from `before`, which was read from a file: `buckets 4, now 16`.
    pub(crate) fn differences(&self, before: &Value) -> Vec<String> {
        let now = self.to_value();
        let names = now.as_object().into_iter().flatten().map(|(name, _)| name.clone());
        let others = before.as_object().into_iter().flatten().map(|(name, _)| name.clone());
        let mut names: Vec<String> = names.chain(others).collect();
        names.sort();
        names.dedup();
        names
            .into_iter()
            .filter(|name| before.get(name) != now.get(name))
            .map(|name| {
                let shown = |value: Option<&Value>| {
                    let text = value.unwrap_or(&Value::Null).to_string();
                    match text.char_indices().nth(MOST_SHOWN) {
                        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
                        None => text,
                    }
                };
                format!("{name} {}, now {}", shown(before.get(&name)), shown(now.get(&name)))
            })
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn settings() -> Settings {
        Settings {
            schemas: vec![Schema::Mbo, Schema::Cmbp1],
            format: Format::Parquet,
            buckets: 4,
            protocol: Application::by_name("itch"),
            symbols: Some(vec![Symbol::parse("AAPL").unwrap()]),
            excludes_stale_books: true,
            odd_lots_count: false,
            ignores_price_bands: true,
        }
    }

    #[test]
    fn settings_survive_being_plain_data() {
        let value = settings().to_value();
        assert_eq!(serde_json::from_value::<Settings>(value.clone()).unwrap(), settings());
        for (name, wrong) in [
            ("buckets", 0.into()),
            ("schemas", serde_json::json!(["mbp-2"])),
            ("format", "xlsx".into()),
            ("protocol", "none".into()),
            ("symbols", serde_json::json!([""])),
            ("program", "tapeworks 0.0.1".into()),
            ("more", 1.into()),
        ] {
            let mut value = value.clone();
            value[name] = wrong;
            serde_json::from_value::<Settings>(value).expect_err(name);
        }
    }

    #[test]
    fn settings_that_differ_are_named_with_both_values() {
        let before = settings().to_value();
        assert!(settings().differences(&before).is_empty());
        let now = Settings { buckets: 16, symbols: None, ..settings() };
        assert_eq!(now.differences(&before), ["buckets 4, now 16", "symbols [\"AAPL\"], now null"]);
    }
}
