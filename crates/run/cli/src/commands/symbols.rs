//! `tapeworks symbols`: lists the symbols of a day, and how markets spell a symbol or number an issue.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tapeworks_analysis::paint::Paint;
use tapeworks_analysis::replay::{self, Listing, Summary};
use tapeworks_feed::Application;
use tapeworks_market::event::{Status, StatusAction};
use tapeworks_market::identifiers::{Cusip, IdentifierError, Isin};
use tapeworks_market::luld::{LimitState, PriceBands};
use tapeworks_market::price::price_e9;
use tapeworks_market::symbology::{Convention, convert, describe};
use tapeworks_market::{InstrumentId, Price, Publisher, Symbol};
use tapeworks_time::Nanos;

use super::replay::ending;
use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, counted};
use crate::terminal::{self, Bar};
use crate::values::{self, Symbols};
use crate::{output, report};

/// List the symbols of a day: spelling, ISIN, name, round lot, tick, listing market, venues and status.
///
/// Reads the same files as replay. A symbol is the same at every venue, in the spelling of Nasdaq's
/// integrated platform, and is shown with the spellings of the CTA's tapes (CQS) and of NYSE (CMS). London's
/// symbols are an ISIN and a currency.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks symbols testdata/captures/nasdaq-itch50/Multiple.Packets.pcap
  tapeworks symbols session.pcap --symbols AAPL,MSFT --json
  tapeworks symbols --spell 'BRK.B' --spell 'BAC PRL'
  tapeworks symbols --spell GB00BH4HKS39.GBX --spell US0378331005 --spell 037833100

Exit code 2: a --spell symbol matches no convention, or its check digit is wrong. 3: messages are missing, or some of \
the input could not be read or applied.")]
pub(crate) struct Arguments {
    /// Captures or message files, merged by time; - reads standard input.
    #[arg(required_unless_present = "spell", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Spell a symbol in every convention, or check an ISIN or CUSIP, instead of reading files; may be
    /// repeated.
    #[arg(long, value_name = "SYMBOL", conflicts_with = "files")]
    spell: Vec<String>,
    /// Parse the input as this protocol instead of detecting it; see "tapeworks schema --list".
    #[arg(short, long, value_name = "NAME", value_parser = values::application)]
    protocol: Option<Application>,
    /// Venue of messages that do not name it: bx (ITCH), edgx (PITCH), arca (NYSE Integrated).
    #[arg(long, value_name = "NAME", value_parser = values::venue)]
    venue: Option<Publisher>,
    /// Trading day (New York) of files without a date in their name or content.
    #[arg(long, value_name = "DATE", value_parser = values::midnight)]
    date: Option<Nanos>,
    /// Include only these symbols: A,B or @FILE.
    #[arg(short, long, value_name = "SYMBOLS", value_parser = values::symbols)]
    symbols: Option<Symbols>,
    /// Print one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    if !arguments.spell.is_empty() {
        return spell(&arguments.spell, arguments.json);
    }
    values::refuse_other_venue(arguments.protocol, arguments.venue)?;
    let options = replay::Options {
        application: arguments.protocol,
        publisher: arguments.venue,
        midnight: arguments.date,
        symbols: arguments.symbols.map(|symbols| symbols.0),
        inputs: arguments.files,
        threads: replay::default_threads(),
        skips_unused: true,
        reads_issue_names: true,
        ..replay::Options::default()
    };
    let mut bar = Bar::new("Reading");
    let summary = replay::replay(&options, &mut |progress| {
        bar.show(progress.bytes, progress.total_bytes, Some(progress.messages))
    })?;
    bar.clear();
    let rows = rows(&summary);
    let text = if arguments.json {
        format!("{:#}\n", json!({ "symbols": rows.iter().map(Row::to_json).collect::<Vec<_>>() }))
    } else {
        show(&rows, &summary, terminal::paint())
    };
    output::print(&text)?;
    Ok(ending(&summary))
}

/// A symbol and its listing at each venue.
struct Row<'s> {
    symbol: Symbol,
    listings: Vec<(Publisher, &'s Listing)>,
}

/// Returns the symbols that venues have named, in alphabetical order.
fn rows(summary: &Summary) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = summary
        .symbols
        .iter()
        .zip(0..)
        .map(|(symbol, number)| Row {
            symbol: *symbol,
            listings: summary.directory.of(InstrumentId(number)).collect(),
        })
        .filter(|row| !row.listings.is_empty())
        .collect();
    rows.sort_by_key(|row| row.symbol);
    rows
}

/// Returns the listing market for the SIPs' letter.
fn market(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'A' => "NYSE American",
        b'L' => "LTSE",
        b'M' => "NYSE Texas",
        b'N' => "NYSE",
        b'P' => "NYSE Arca",
        b'Q' => "Nasdaq",
        b'V' => "IEX",
        b'Z' => "Cboe BZX",
        _ => return None,
    })
}

/// Returns a trading status in one word.
const fn word(status: Status) -> &'static str {
    match status.action {
        StatusAction::PreOpen => "pre-open",
        StatusAction::PreCross => "pre-cross",
        StatusAction::Quoting => "quoting",
        StatusAction::Trading => "trading",
        StatusAction::Halt => "halted",
        StatusAction::Pause => "paused",
        StatusAction::Close => "closed",
        StatusAction::NotAvailableForTrading => "not available",
        StatusAction::None | StatusAction::ShortSaleRestrictionChange => "-",
    }
}

impl Row<'_> {
    fn spelled(&self, convention: Convention) -> Option<String> {
        convert(self.symbol.as_str(), Convention::Integrated, convention)
    }

    /// Returns the ISIN and currency that form the symbol.
    fn isin(&self) -> Option<(Isin, &str)> {
        Isin::with_currency(self.symbol.as_str())?.ok()
    }

    /// Returns the name of the issue from the first venue that sends one.
    fn name(&self) -> Option<&str> {
        self.listings.iter().find_map(|(_, listing)| listing.issue_name.as_deref())
    }

    /// Returns the distinct values of the venues, in the order of the venues.
    fn values<T: PartialEq>(&self, of: impl Fn(&Listing) -> Option<T>) -> Vec<T> {
        let mut values = Vec::new();
        for value in self.listings.iter().filter_map(|(_, listing)| of(listing)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    fn lots(&self) -> Vec<u32> {
        self.values(|listing| listing.definition.map(|one| one.round_lot).filter(|lot| *lot > 0))
    }

    fn ticks(&self) -> Vec<Price> {
        self.values(|listing| listing.definition.and_then(|one| one.tick))
    }

    fn markets(&self) -> Vec<&'static str> {
        self.values(|listing| listing.definition.and_then(|one| market(one.listing)))
    }

    /// Returns whether a short-sale price test is in effect. One venue that reports it suffices; `None` if no venue reports either.
    fn is_short_sell_restricted(&self) -> Option<bool> {
        self.values(|listing| listing.is_short_sell_restricted).into_iter().max()
    }

    /// Returns remarks about everything unusual.
    fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        let has = |is: fn(&Listing) -> bool| self.listings.iter().any(|(_, listing)| is(listing));
        if has(|listing| listing.definition.is_some_and(|one| one.is_test)) {
            remarks.push("test".to_owned());
        }
        if let Some(Err(error)) = Isin::with_currency(self.symbol.as_str()) {
            remarks.push(format!("no ISIN: {error}"));
        }
        if has(|listing| listing.definition.is_some_and(|one| one.is_etp)) {
            remarks.push("exchange-traded product".to_owned());
        }
        if self.is_short_sell_restricted() == Some(true) {
            remarks.push("short sales restricted".to_owned());
        }
        for (publisher, listing) in &self.listings {
            if let Some(bands) = listing.bands.filter(PriceBands::are_in_effect) {
                let price =
                    |price: Option<Price>| price.map_or_else(|| "-".to_owned(), |price| price.to_string());
                remarks.push(format!("bands {} to {}", price(bands.lower), price(bands.upper)));
            }
            match listing.standing.unwrap_or_default().state() {
                LimitState::None => {}
                state => remarks.push(format!("{} state at {}", state.words(), publisher.venue_name())),
            }
            if let Some((_, status)) = listing.status.filter(|(_, status)| status.is_trading != Some(true)) {
                remarks.push(format!("{} at {}", word(status), publisher.venue_name()));
            }
        }
        remarks.join(", ")
    }

    fn to_json(&self) -> Value {
        let symbol = self.symbol.as_str();
        let isin = self.isin();
        json!({
            "symbol": symbol,
            "name": self.name(),
            "isin": isin.map(|(isin, _)| isin.to_string()),
            "currency": isin.map(|(_, currency)| currency),
            "cusip": isin.and_then(|(isin, _)| isin.cusip()).map(|cusip| cusip.to_string()),
            "cqs": self.spelled(Convention::Cqs),
            "cms": self.spelled(Convention::Cms),
            "issue": describe(symbol, Convention::Integrated),
            "is_short_sell_restricted": self.is_short_sell_restricted(),
            "venues": self.listings.iter().map(|(publisher, listing)| json!({
                "venue": publisher.venue_name(),
                "dataset": publisher.feed().map(|feed| feed.dataset),
                "publisher_id": publisher.0,
                "name": listing.issue_name,
                "round_lot": listing.definition.map(|one| one.round_lot).filter(|lot| *lot > 0),
                "tick_e9": listing.definition.and_then(|one| one.tick).map(|tick| price_e9(Some(tick))),
                "reference_price_e9":
                    listing.definition.and_then(|one| one.reference_price).map(|price| price_e9(Some(price))),
                "class": listing.definition.map(|one| char::from(one.class).to_string()).filter(|class| class != " "),
                "listing_market": listing.definition.and_then(|one| market(one.listing)),
                "is_test": listing.definition.map(|one| one.is_test),
                "is_exchange_traded_product": listing.definition.map(|one| one.is_etp),
                "status": listing.status.map(|(_, status)| word(status)),
                "status_reason": listing.status.map(|(_, status)| status.reason).filter(|reason| *reason > 0),
                "status_time": listing.status.map(|(time, _)| time.0),
                "is_short_sell_restricted": listing.is_short_sell_restricted,
                "price_bands": listing.bands.map(|bands| json!({
                    "lower_e9": bands.lower.map(|price| price_e9(Some(price))),
                    "upper_e9": bands.upper.map(|price| price_e9(Some(price))),
                    "indicator": char::from(bands.indicator).to_string(),
                    "is_in_effect": bands.are_in_effect(),
                })),
                "limit_state": listing.standing.map(|standing| standing.state().words()),
            })).collect::<Vec<_>>(),
        })
    }
}

/// Joins values that may differ between venues.
fn listed(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<String> = values.into_iter().collect();
    if values.is_empty() { "-".to_owned() } else { values.join(" / ") }
}

fn show(rows: &[Row<'_>], summary: &Summary, paint: Paint) -> String {
    // Omit columns that are empty in every row.
    let has_isin = rows.iter().any(|row| row.isin().is_some());
    let has_name = rows.iter().any(|row| row.name().is_some());
    let columns = [
        ("symbol", Align::Left, true),
        ("CQS", Align::Left, true),
        ("CMS", Align::Left, true),
        ("ISIN", Align::Left, has_isin),
        ("name", Align::Left, has_name),
        ("lot", Align::Right, true),
        ("tick", Align::Right, true),
        ("listed", Align::Left, true),
        ("venues", Align::Left, true),
        ("remarks", Align::Left, true),
    ];
    let shown = columns.map(|(_, _, is_shown)| is_shown);
    let mut table = Table::new(&kept(columns.map(|(name, align, _)| (name, align)), shown));
    for row in rows {
        let spelled = |convention| row.spelled(convention).unwrap_or_else(|| "-".to_owned());
        let cells = [
            row.symbol.to_string(),
            spelled(Convention::Cqs),
            spelled(Convention::Cms),
            listed(row.isin().map(|(isin, _)| isin.to_string())),
            listed(row.name().map(str::to_owned)),
            listed(row.lots().iter().map(u32::to_string)),
            listed(row.ticks().iter().map(ToString::to_string)),
            listed(row.markets().into_iter().map(str::to_owned)),
            listed(row.listings.iter().map(|(publisher, _)| publisher.venue_name())),
            row.remarks(),
        ];
        table.row(kept(cells, shown));
    }
    let title = counted(rows.len() as u64, "symbol", "symbols");
    let title = paint.strong(&title);
    let directory = if table.is_empty() { String::new() } else { table.render(terminal::width(), paint) };
    [title.as_str(), "\n", &directory, &report::verdict(summary, paint)].concat()
}

/// Returns the columns or cells to show.
fn kept<T, const N: usize>(all: [T; N], shown: [bool; N]) -> Vec<T> {
    all.into_iter().zip(shown).filter(|(_, is_shown)| *is_shown).map(|(one, _)| one).collect()
}

/// The meaning of a text of `--spell`.
#[derive(Default)]
struct Spelled {
    convention: &'static str,
    /// The kind of issue, which issue numbers do not contain.
    issue: Option<String>,
    integrated: Option<String>,
    cqs: Option<String>,
    cms: Option<String>,
    isin: Option<Isin>,
    currency: Option<String>,
    cusip: Option<Cusip>,
}

/// Reads a text of `--spell`. Issue numbers are tried first: a symbol is shorter, or lacks a check digit.
fn read(text: &str) -> std::result::Result<Spelled, String> {
    const ALL: [(Convention, &str); 3] =
        [(Convention::Integrated, "integrated"), (Convention::Cqs, "CQS"), (Convention::Cms, "CMS")];
    let wrong = |error: IdentifierError| format!("{text}: {error}");
    if let Some(parsed) = Isin::with_currency(text) {
        let (isin, currency) = parsed.map_err(wrong)?;
        let currency = Some(currency.to_owned());
        return Ok(Spelled { currency, ..of_isin("ISIN.currency", isin) });
    }
    match text.parse::<Isin>() {
        Ok(isin) => return Ok(of_isin("ISIN", isin)),
        Err(error @ IdentifierError::CheckDigit { .. }) => return Err(wrong(error)),
        Err(IdentifierError::Form) => {}
    }
    match text.parse::<Cusip>() {
        Ok(cusip) => {
            return Ok(Spelled {
                convention: "CUSIP",
                isin: cusip.isin(),
                cusip: Some(cusip),
                ..Spelled::default()
            });
        }
        // No symbol starts with a digit.
        Err(error @ IdentifierError::CheckDigit { .. })
            if text.starts_with(|one: char| one.is_ascii_digit()) =>
        {
            return Err(wrong(error));
        }
        Err(_) => {}
    }
    let of_convention = |(from, name)| {
        let issue = Some(describe(text, from)?);
        let [integrated, cqs, cms] = ALL.map(|(to, _)| convert(text, from, to));
        Some(Spelled { convention: name, issue, integrated, cqs, cms, ..Spelled::default() })
    };
    ALL.into_iter().find_map(of_convention).ok_or_else(|| format!("no convention has {text}"))
}

fn of_isin(convention: &'static str, isin: Isin) -> Spelled {
    Spelled { convention, isin: Some(isin), cusip: isin.cusip(), ..Spelled::default() }
}

/// Spells symbols of any convention in every convention.
fn spell(symbols: &[String], is_json: bool) -> Result {
    let (mut spelled, mut unread) = (Vec::new(), Vec::new());
    for symbol in symbols {
        match read(symbol) {
            Ok(one) => spelled.push((symbol, one)),
            Err(why) => unread.push(why),
        }
    }
    if is_json {
        let objects = spelled.iter().map(|(symbol, one)| {
            json!({
                "given": symbol, "convention": one.convention, "issue": one.issue,
                "integrated": one.integrated, "cqs": one.cqs, "cms": one.cms,
                "isin": one.isin.map(|isin| isin.to_string()), "country": one.isin.as_ref().map(Isin::country),
                "currency": one.currency, "cusip": one.cusip.map(|cusip| cusip.to_string()),
            })
        });
        output::print(&format!("{:#}\n", json!({ "symbols": objects.collect::<Vec<_>>() })))?;
    } else if !spelled.is_empty() {
        output::print(&show_spelled(&spelled).render(terminal::width(), terminal::paint()))?;
    }
    if unread.is_empty() {
        return Ok(Ending::Complete);
    }
    Err(Failure::Usage(unread.join(", ")))
}

fn show_spelled(spelled: &[(&String, Spelled)]) -> Table {
    let has_symbol = spelled.iter().any(|(_, one)| one.issue.is_some());
    let has_number = spelled.iter().any(|(_, one)| one.isin.is_some());
    let columns = [
        ("given", true),
        ("read as", true),
        ("issue", has_symbol),
        ("integrated", has_symbol),
        ("CQS", has_symbol),
        ("CMS", has_symbol),
        ("ISIN", has_number),
        ("country", has_number),
        ("currency", has_number),
        ("CUSIP", has_number),
    ];
    let shown = columns.map(|(_, is_shown)| is_shown);
    let mut table = Table::new(&kept(columns.map(|(name, _)| (name, Align::Left)), shown));
    for (symbol, one) in spelled {
        let cells = [
            Some((*symbol).clone()),
            Some(one.convention.to_owned()),
            one.issue.clone(),
            one.integrated.clone(),
            one.cqs.clone(),
            one.cms.clone(),
            one.isin.map(|isin| isin.to_string()),
            one.isin.map(|isin| isin.country().to_owned()),
            one.currency.clone(),
            one.cusip.map(|cusip| cusip.to_string()),
        ];
        table.row(kept(cells.map(listed), shown));
    }
    table
}
