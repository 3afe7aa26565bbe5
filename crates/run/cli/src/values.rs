//! Parsers for values on the command line: times, durations, speeds, symbols, protocols, venues.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::civil;
use tapeworks_analysis::replay::MAX_THREADS;
use tapeworks_analysis::sessions::{ReadAs, Session, sessions};
use tapeworks_feed::{Application, FEEDS, shared_publisher, shared_publishers};
use tapeworks_market::nbbo::SelfHelp;
use tapeworks_market::round_lots::RoundLotPrices;
use tapeworks_market::{Publisher, Symbol};
use tapeworks_time::Nanos;
use tapeworks_time::clock;
use tapeworks_wire::Role;

/// What the sizes of the SIPs' quotes count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum SipSizes {
    ByDate,
    Lots,
    Shares,
}

impl From<SipSizes> for tapeworks_market::round_lots::SipSizes {
    fn from(sizes: SipSizes) -> Self {
        match sizes {
            SipSizes::ByDate => Self::ByDate,
            SipSizes::Lots => Self::Lots,
            SipSizes::Shares => Self::Shares,
        }
    }
}

/// Parses a protocol that can be dumped: a feed's, or a session's on TCP streams.
pub(crate) fn read_as(name: &str) -> Result<ReadAs, String> {
    let named = || sessions().filter(Session::may_be_named).map(|session| session.name());
    ReadAs::by_name(name).ok_or_else(|| not_read(name, &one_of(feeds().chain(named()))))
}

/// Parses a protocol that can be dumped and replayed.
pub(crate) fn application(name: &str) -> Result<Application, String> {
    let names = || one_of(feeds());
    match ReadAs::by_name(name) {
        Some(ReadAs::Feed(application)) => Ok(application),
        Some(ReadAs::Session(session)) => Err(format!(
            "{} is no feed: 'tapeworks dump' and 'tapeworks stats' read it; use {}",
            session.name(),
            names()
        )),
        None => Err(not_read(name, &names())),
    }
}

fn feeds() -> impl Iterator<Item = &'static str> {
    FEEDS.iter().map(|feed| feed.name)
}

/// Explains why inputs cannot be read as a protocol; `names` lists the alternatives.
fn not_read(name: &str, names: &str) -> String {
    let Some(protocol) = tapeworks_wire::protocol_by_name(name) else {
        return format!("unknown protocol; use {names}");
    };
    let name = protocol.schema.name;
    match protocol.role {
        Role::Transport(_) => format!("{name} is a transport: name a protocol that it carries"),
        Role::Application(_) | Role::Stream { .. } => format!("{name} is recognised by itself; use {names}"),
    }
}

/// Parses the publisher of a feed that several venues share.
pub(crate) fn venue(name: &str) -> Result<Publisher, String> {
    shared_publisher(name).ok_or_else(|| {
        let names = one_of(shared_publishers().filter_map(|one| one.names.first().copied()));
        format!("unknown venue; use {names} (the other feeds name themselves)")
    })
}

/// Refuses a venue that does not use the protocol.
pub(crate) fn refuse_other_venue(
    protocol: Option<Application>,
    venue: Option<Publisher>,
) -> Result<(), crate::ending::Failure> {
    let (Some(feed), Some(venue)) = (protocol.map(Application::spec), venue) else { return Ok(()) };
    if feed.has(venue) {
        return Ok(());
    }
    let names = one_of(feed.publishers.iter().filter_map(|one| one.names.first().copied()));
    Err(crate::ending::Failure::Usage(format!(
        "--venue: {} does not speak {}; {names} {}",
        venue.venue_name(),
        feed.schema.title,
        if feed.publishers.len() == 1 { "does" } else { "do" }
    )))
}

/// Formats a list as `a, b or c`.
pub(crate) fn one_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// Parses a day in New York, as the instant of its midnight.
pub(crate) fn midnight(text: &str) -> Result<Nanos, String> {
    let date = date(text).ok().or_else(|| clock::date_in(text));
    date.and_then(clock::midnight_of).ok_or_else(|| DATE_FORM.to_owned())
}

/// Parses a day in New York.
pub(crate) fn date(text: &str) -> Result<civil::Date, String> {
    text.parse().map_err(|_| DATE_FORM.to_owned())
}

const DATE_FORM: &str = "use a date such as 2025-11-14";

/// Parses an instant: nanoseconds since 1970, or ISO 8601 with a zone.
pub(crate) fn instant(text: &str) -> Result<Nanos, String> {
    clock::instant(text).ok_or_else(|| format!("use {}", clock::INSTANT_FORM))
}

/// Parses a period of self-help against a venue: `XNYS,FROM,UNTIL`, or `XNYS,FROM`.
pub(crate) fn self_help(text: &str) -> Result<SelfHelp, String> {
    let mut parts = text.split(',').map(str::trim);
    let mic = parts.next().unwrap_or_default();
    let venue = Publisher::of_venue(mic)
        .ok_or_else(|| format!("unknown venue {mic:?}; use {}", one_of(tapeworks_market::venue::mics())))?;
    let from = instant(parts.next().ok_or("use VENUE,FROM or VENUE,FROM,UNTIL")?)?;
    let until = parts.next().map(instant).transpose()?;
    if parts.next().is_some() {
        return Err("use VENUE,FROM or VENUE,FROM,UNTIL".to_owned());
    }
    if until.is_some_and(|until| until <= from) {
        return Err("it ends before it begins".to_owned());
    }
    Ok(SelfHelp { venue, from, until })
}

/// Parses the number of threads of a command.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let known = text.parse().ok().filter(|threads| (1..=MAX_THREADS).contains(threads));
    known.ok_or_else(|| format!("use a whole number from 1 to {MAX_THREADS}"))
}

/// Refuses a time window that ends before or when it starts.
pub(crate) fn refuse_empty_window(from: Option<Nanos>, to: Option<Nanos>) -> crate::ending::Result<()> {
    match (from, to) {
        (Some(from), Some(to)) if from >= to => {
            Err(crate::ending::Failure::Usage("--from must be before --to".to_owned()))
        }
        _ => Ok(()),
    }
}

/// The longest time that a flag accepts.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// Parses a duration: `2.5` (seconds), `500ms`, `2s`, `10m`, `1h`; 0 to 365 days.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    length(text, 1e9, Duration::ZERO..=LONGEST, "a number of seconds, or one with ns, us, ms, s, m or h")
}

/// Parses the time between two updates, like [`duration`], but 0.1 s to 1 h.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(100)..=Duration::from_secs(3_600);
    length(text, 1e9, bounds, "a number of seconds, or one with ms, s, m or h")
}

/// Parses a duration in ns: `250` (ns), `250ns`, `10us`, `1.5ms`, `2s`; 1 ns to 365 days.
pub(crate) fn duration_ns(text: &str) -> Result<u64, String> {
    let form = "a number of ns, or one with ns, us, ms, s, m or h";
    let time = length(text, 1.0, Duration::from_nanos(1)..=LONGEST, form)?;
    // A year in ns fits in 55 bits.
    Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Parses a finite number with a unit. Without a unit, the number is in units of `plain_ns`.
fn length(
    text: &str,
    plain_ns: f64,
    bounds: RangeInclusive<Duration>,
    form: &str,
) -> Result<Duration, String> {
    let usage = || format!("use {form}, from {} to {}", shown(*bounds.start()), shown(*bounds.end()));
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (count, unit) = text.split_at(split);
    let unit_ns = match unit.trim() {
        "" => plain_ns,
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3_600e9,
        _ => return Err(usage()),
    };
    let ns = count.parse::<f64>().map_err(|_| usage())? * unit_ns;
    let (least, most) = (bounds.start().as_nanos() as f64, bounds.end().as_nanos() as f64);
    if !(least..=most).contains(&ns) {
        return Err(usage());
    }
    Ok(Duration::from_nanos(ns.round() as u64))
}

fn shown(time: Duration) -> String {
    match time.as_nanos() {
        0 => "0".to_owned(),
        ns if ns < 1_000_000 => format!("{ns} ns"),
        ns if ns < 1_000_000_000 => format!("{} ms", time.as_millis()),
        _ if time.as_secs() < 86_400 => format!("{} s", time.as_secs()),
        _ => format!("{} days", time.as_secs() / 86_400),
    }
}

/// The speed at which a capture is replayed; `None` is as fast as possible.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Speed(pub(crate) Option<f64>);

/// Parses a speed: `max`, `1x`, `10x`, `0.5`.
pub(crate) fn speed(text: &str) -> Result<Speed, String> {
    if text.eq_ignore_ascii_case("max") {
        return Ok(Speed(None));
    }
    match text.trim_end_matches(['x', 'X']).parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(Speed(Some(factor))),
        _ => Err("use max, 1x, 10x or another factor above 0".to_owned()),
    }
}

/// Symbols from a list or a file: `AAPL,MSFT` or `@symbols.txt`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Symbols(pub(crate) HashSet<Symbol>);

/// Reads a file of prices that determine round lots.
pub(crate) fn round_lot_prices(path: &str) -> Result<RoundLotPrices, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    RoundLotPrices::parse(&text).map_err(|error| format!("{path}: {error}"))
}

/// Distinct names, as the user spells them.
#[derive(Clone, Debug)]
pub(crate) struct Names(pub(crate) Vec<String>);

/// Parses `AAPL,MSFT`, or `@FILE` with names separated by commas or line ends. Spaces around a name are ignored.
pub(crate) fn names(text: &str) -> Result<Names, String> {
    let list = match text.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?,
        None => text.to_owned(),
    };
    let mut names: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    for name in list.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty()) {
        if known.insert(name) {
            names.push(name.to_owned());
        }
    }
    if names.is_empty() { Err("no symbols".to_owned()) } else { Ok(Names(names)) }
}

/// Parses [`names`] that are symbols, in upper or lower case.
pub(crate) fn symbols(text: &str) -> Result<Symbols, String> {
    let Names(names) = names(text)?;
    let symbol = |name: &String| {
        Symbol::parse(&name.to_ascii_uppercase())
            .ok_or_else(|| format!("{name:?} cannot be a symbol, which has {}", Symbol::FORM))
    };
    names.iter().map(symbol).collect::<Result<_, _>>().map(Symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, ns) in [("250", 250), ("10us", 10_000), ("1.5ms", 1_500_000), ("2s", 2_000_000_000)] {
            assert_eq!(duration_ns(text), Ok(ns), "{text}");
        }
        for text in ["", "ms", "1d", "0", "-1", "1.2.3ms", "1e9", "nan", "99999999999999999999"] {
            let error = duration_ns(text).unwrap_err();
            assert!(
                error.starts_with("use a number of ns") && error.ends_with("from 1 ns to 365 days"),
                "{error}"
            );
        }
        for (text, ms) in [("2.5", 2_500), ("500ms", 500), ("0", 0), ("1h", 3_600_000), ("10m", 600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["nan", "inf", "-1", "1e9", "", "9000h"] {
            let error = duration(text).unwrap_err();
            assert!(error.ends_with("from 0 to 365 days"), "{error}");
        }
        assert!(interval("50ms").unwrap_err().ends_with("from 100 ms to 3600 s"));
    }

    #[test]
    fn instants_are_nanoseconds_or_have_a_zone() {
        let half_past_nine = Ok(Nanos(1_763_130_600_000_000_000));
        assert_eq!(instant("1763130600000000000"), half_past_nine);
        assert_eq!(instant("2025-11-14T14:30:00Z"), half_past_nine);
        assert_eq!(instant("2025-11-14T09:30-05:00"), half_past_nine);
        assert_eq!(instant("2025-11-14T09:30[America/New_York]"), half_past_nine);
        for without_zone in ["2025-11-14T09:30", "2025-11-14 09:30:00.5", "2025-11-14", "noon"] {
            assert!(instant(without_zone).unwrap_err().contains("with a zone"), "{without_zone}");
        }
        assert!(instant("99999999999999999999999").is_err());
    }

    #[test]
    fn speeds_are_factors_above_zero() {
        assert_eq!(speed("max"), Ok(Speed(None)));
        assert_eq!(speed("10x"), Ok(Speed(Some(10.0))));
        assert_eq!(speed("0.5"), Ok(Speed(Some(0.5))));
        for text in ["0", "-1x", "fast", "inf", "NaN", ""] {
            assert!(speed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn symbols_are_a_list_of_any_case() {
        let Symbols(found) = symbols("aapl, MSFT").unwrap();
        assert_eq!(
            found,
            HashSet::from([Symbol::from_bytes(b"AAPL").unwrap(), Symbol::from_bytes(b"MSFT").unwrap()])
        );
        assert!(symbols(" , ").is_err());
        assert!(
            symbols("AAPL,ABCDEFGHIJKLMNOPQRSTUV")
                .unwrap_err()
                .contains("\"ABCDEFGHIJKLMNOPQRSTUV\" cannot be")
        );
        assert!(symbols("@/nowhere/symbols").unwrap_err().contains("/nowhere/symbols"));
    }
}
