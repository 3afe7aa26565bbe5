//! What a caller of `read` or `Feed` may set, as a replay takes it.

use std::collections::HashSet;
use std::path::PathBuf;

use pyo3::prelude::*;
use tapeworks_analysis::replay;
use tapeworks_analysis::sessions::ReadAs;
use tapeworks_feed::{Application, FEEDS, shared_publisher, shared_publishers};
use tapeworks_market::nbbo::{NbboRules, StaleBooks};
use tapeworks_market::{Publisher, Symbol};
use tapeworks_store::Prices;
use tapeworks_time::Nanos;
use tapeworks_time::clock;

use crate::errors::Failure;

/// The settings that `read` and `Feed` share, as Python gives them.
pub(crate) struct Given {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) symbols: Option<Vec<String>>,
    pub(crate) start: Option<i128>,
    pub(crate) end: Option<i128>,
    pub(crate) protocol: Option<String>,
    pub(crate) venue: Option<String>,
    pub(crate) date: Option<String>,
    pub(crate) stale: String,
    pub(crate) odd_lots: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) threads: Option<usize>,
}

/// A protocol by its name.
pub(crate) fn application(name: &str) -> Result<Application, Failure> {
    Application::by_name(name).ok_or_else(|| {
        let names: Vec<_> = FEEDS.iter().map(|feed| feed.name).collect();
        Failure::usage(format!("unknown protocol '{name}': expected one of {}", names.join(", ")))
    })
}

/// A protocol that can be dumped, by its name.
pub(crate) fn read_as(name: &str) -> Result<ReadAs, Failure> {
    ReadAs::by_name(name).map_or_else(|| application(name).map(ReadAs::Feed), Ok)
}

fn venue(name: &str) -> Result<Publisher, Failure> {
    shared_publisher(name).ok_or_else(|| {
        let names: Vec<_> = shared_publishers().filter_map(|one| one.names.first().copied()).collect();
        Failure::usage(format!("unknown venue '{name}': expected one of {}", names.join(", ")))
    })
}

/// Midnight in New York of a date such as 2025-11-14.
pub(crate) fn midnight(text: &str) -> Result<Nanos, Failure> {
    let midnight = clock::date_in(text).and_then(clock::midnight_of);
    midnight.ok_or_else(|| Failure::usage(format!("'{text}' is no date such as 2025-11-14")))
}

/// A time as the command line takes it, in ns since 1970 UTC.
#[pyfunction]
pub(crate) fn instant(text: &str) -> PyResult<u64> {
    let instant = clock::instant(text.trim());
    let wrong = || Failure::usage(format!("'{text}' is no time: use {}", clock::INSTANT_FORM));
    Ok(instant.ok_or_else(wrong)?.0)
}

fn time(name: &str, ns: i128) -> Result<Nanos, Failure> {
    let time = u64::try_from(ns).map(Nanos);
    time.map_err(|_| Failure::usage(format!("{name} is {ns} ns, which is not a time since 1970 in 64 bits")))
}

/// How prices come.
pub(crate) fn prices(name: &str) -> Result<Prices, Failure> {
    match name {
        "float" => Ok(Prices::Float),
        "decimal" => Ok(Prices::Decimal),
        "fixed" => Ok(Prices::Fixed),
        name => Err(Failure::usage(format!("prices are '{name}': expected one of float, decimal, fixed"))),
    }
}

impl Given {
    /// The options of a replay.
    pub(crate) fn options(self) -> Result<replay::Options, Failure> {
        let symbol = |text: &String| {
            let symbol = Symbol::from_bytes(text.as_bytes());
            symbol.map_err(|error| Failure::usage(format!("'{text}': {error}")))
        };
        if self.symbols.as_ref().is_some_and(Vec::is_empty) {
            return Err(Failure::usage(
                "symbols is empty, so nothing would be read: leave it out for all symbols",
            ));
        }
        let symbols = self.symbols.map(|all| all.iter().map(symbol).collect::<Result<HashSet<_>, _>>());
        let (from, to) = (self.start.map(|ns| time("start", ns)), self.end.map(|ns| time("end", ns)));
        let (from, to) = (from.transpose()?, to.transpose()?);
        if let (Some(from), Some(to)) = (from, to)
            && to <= from
        {
            return Err(Failure::usage("the end is not after the start"));
        }
        let application = self.protocol.as_deref().map(application).transpose()?;
        let publisher = self.venue.as_deref().map(venue).transpose()?;
        if let (Some(application), Some(publisher)) = (application, publisher)
            && !application.spec().has(publisher)
        {
            let text = format!("{} does not speak {}", publisher.venue_name(), application.protocol());
            return Err(Failure::usage(text));
        }
        let stale_books = match self.stale.as_str() {
            "flag" => StaleBooks::Flag,
            "exclude" => StaleBooks::Exclude,
            other => {
                return Err(Failure::usage(format!("stale is '{other}': expected one of flag, exclude")));
            }
        };
        let threads = self.threads.unwrap_or_else(replay::default_threads);
        if !(1..=replay::MAX_THREADS).contains(&threads) {
            return Err(Failure::usage(format!("threads: use 1 to {}", replay::MAX_THREADS)));
        }
        Ok(replay::Options {
            inputs: self.paths,
            application,
            publisher,
            midnight: self.date.as_deref().map(midnight).transpose()?,
            symbols: symbols.transpose()?,
            from,
            to,
            limit: self.limit,
            rules: NbboRules { stale_books, odd_lots_count: self.odd_lots, ..NbboRules::default() },
            threads,
            ..replay::Options::default()
        })
    }
}
