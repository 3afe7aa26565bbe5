//! The report as JSON, for the page and for programs at `/status.json`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tapeworks_market::levels::Level;
use tapeworks_market::nbbo::{BestSide, Nbbo};
use tapeworks_market::{Flags, Symbol};
use tapeworks_time::Nanos;

use super::files::{self, Files};
use crate::describe::{self, feed_name};
use crate::report::Report;
use tapeworks_plant::view::{SymbolView, View};
use tapeworks_plant::{Condition, DelayPoint};

/// A snapshot of the whole state.
pub(super) struct Look {
    pub(super) now: Nanos,
    pub(super) has_replayed: bool,
    pub(super) report: Report,
    pub(super) web: Vec<(&'static str, &'static str, u64)>,
    pub(super) viewers: usize,
    /// Followed files, with their purposes.
    pub(super) files: Arc<Files>,
    /// Whether a token is required.
    pub(super) has_login: bool,
}

impl Look {
    /// Returns the conditions of a complete output. `/health` only reports that the process is alive.
    pub(super) fn conditions(&self) -> [Condition; 7] {
        self.report.plant.conditions(self.has_replayed, self.now)
    }

    /// Returns the answer of `/ready`, and whether all conditions are met.
    pub(super) fn readiness(&self) -> (bool, Value) {
        let conditions = self.conditions();
        let is_ready = conditions.iter().all(Condition::is_met);
        let states: Vec<Value> = conditions
            .iter()
            .map(|condition| {
                json!({ "name": condition.name, "is_met": condition.is_met(), "reasons": condition.reasons })
            })
            .collect();
        let reasons: Vec<&String> = conditions.iter().flat_map(|condition| &condition.reasons).collect();
        (is_ready, json!({ "is_ready": is_ready, "reasons": reasons, "conditions": states }))
    }
}

/// Returns the whole status except the books and the curve. Times are in ns.
pub(super) fn status(look: &Look) -> Value {
    let (is_ready, readiness) = look.readiness();
    let web: serde_json::Map<String, Value> =
        look.web.iter().map(|(name, _, count)| ((*name).to_owned(), (*count).into())).collect();
    let mut all = describe::status(&look.report);
    all["now_ns"] = look.now.0.into();
    all["has_replayed"] = look.has_replayed.into();
    all["has_login"] = look.has_login.into();
    all["is_ready"] = is_ready.into();
    all["reasons"] = readiness["reasons"].clone();
    all["conditions"] = readiness["conditions"].clone();
    all["web"] = web.into();
    all["files"] = files::status(&look.files);
    all
}

/// An update for all pages, built once.
#[derive(Debug, Default)]
pub(super) struct Tick {
    /// [`status`].
    pub(super) status: String,
    delays: Vec<DelayPoint>,
    view: Arc<View>,
    /// The symbols with their NBBO, ordered by name.
    list: Vec<(Symbol, Nbbo)>,
    /// The most active symbol, which a page shows until its user chooses one.
    busiest: Option<Symbol>,
}

/// Counts the changes of each symbol's NBBO between ticks. Costs a comparison per NBBO and tick while a page is open.
#[derive(Default, Debug)]
pub(super) struct Activity(HashMap<Symbol, (Nbbo, u32)>);

impl Activity {
    /// Fewer changes than this may be chance. There are five ticks a second.
    const BUSY: u32 = 8;

    /// Counts the changes since the last tick. Returns the symbol with the most changes so far; a tie goes to the first by name.
    fn busiest(&mut self, list: &[(Symbol, Nbbo)]) -> Option<Symbol> {
        for (symbol, nbbo) in list {
            let (last, changes) = self.0.entry(*symbol).or_insert((*nbbo, 0));
            *changes += u32::from(last != nbbo);
            *last = *nbbo;
        }
        let changes = |symbol: &Symbol| self.0.get(symbol).map_or(0, |(_, changes)| *changes);
        let (symbol, _) = list.iter().rev().max_by_key(|(symbol, _)| changes(symbol))?;
        (changes(symbol) >= Self::BUSY).then_some(*symbol)
    }
}

impl Tick {
    pub(super) fn new(look: Look, view: Arc<View>, activity: &mut Activity) -> Self {
        let mut list = view.nbbos.clone();
        list.sort_unstable_by(|one, other| one.0.as_bytes().cmp(other.0.as_bytes()));
        let busiest = activity.busiest(&list);
        Self {
            status: status(&look).to_string(),
            delays: look.report.plant.delays.points,
            view,
            list,
            busiest,
        }
    }

    /// Returns the points of the delay curve after the time `after`, and the time of the last point. A point is the time in ms
    /// since the epoch, the messages, then p50, p99, p99.9 and the maximum in ns.
    pub(super) fn delays(&self, after: Nanos) -> (Value, Nanos) {
        let points: Vec<Value> = self
            .delays
            .iter()
            .filter(|point| point.time > after)
            .map(|point| {
                json!([point.time.0 / 1_000_000, point.messages, point.p50, point.p99, point.p999, point.max])
            })
            .collect();
        (points.into(), self.delays.last().map_or(after, |point| point.time))
    }

    /// Returns at most `most` symbols that contain `search`, prefix matches first. The answer repeats the search text, because
    /// the page may already be searching for another.
    pub(super) fn list(&self, search: &str, most: usize) -> Value {
        let begins = self.list.iter().filter(|(symbol, _)| symbol.as_str().starts_with(search));
        let contains = self
            .list
            .iter()
            .filter(|(symbol, _)| !symbol.as_str().starts_with(search) && symbol.as_str().contains(search));
        let mut matching = 0;
        let mut rows = Vec::new();
        for (symbol, nbbo) in begins.chain(contains) {
            matching += 1;
            if rows.len() < most {
                rows.push(self.nbbo(symbol, nbbo));
            }
        }
        let busiest = self.busiest.as_ref().map(Symbol::as_str);
        json!({ "search": search, "total": self.list.len(), "matching": matching, "rows": rows, "busiest": busiest })
    }

    /// Returns the NBBO and the books of a symbol, or `null` if they are not known yet.
    pub(super) fn book(&self, symbol: Symbol) -> Value {
        self.view.symbols.get(&symbol).map_or(Value::Null, |shown| self.symbol(&symbol, shown))
    }

    fn side(&self, side: &BestSide) -> Value {
        let venues: Vec<String> = self
            .view
            .venues
            .iter()
            .enumerate()
            .filter(|(bit, _)| side.venues >> bit & 1 == 1)
            .map(|(_, publisher)| publisher.venue_name())
            .collect();
        json!({
            "price": side.price.map(|price| price.to_string()),
            "size": side.size,
            "venue": side.price.map(|_| side.publisher.venue_name()),
            "venues": venues,
        })
    }

    fn nbbo(&self, symbol: &Symbol, nbbo: &Nbbo) -> Value {
        json!({
            "symbol": symbol.as_str(),
            "bid": self.side(&nbbo.bid),
            "ask": self.side(&nbbo.ask),
            "state": nbbo.state().as_str(),
            "maybe_bad_book": nbbo.flags.contains(Flags::MAYBE_BAD_BOOK),
        })
    }

    fn symbol(&self, symbol: &Symbol, shown: &SymbolView) -> Value {
        let levels = |levels: &[Level]| -> Vec<Value> {
            let level = |level: &Level| json!([level.price.to_string(), level.size, level.orders]);
            levels.iter().map(level).collect()
        };
        let venues: Vec<Value> = shown
            .venues
            .iter()
            .map(|book| {
                json!({
                    "venue": book.publisher.venue_name(),
                    "feed": feed_name(book.publisher),
                    "bids": levels(&book.bids),
                    "asks": levels(&book.asks),
                    "is_stale": book.is_stale,
                    "is_trading": book.is_trading,
                    "is_under_self_help": book.is_under_self_help,
                })
            })
            .collect();
        let mut value = self.nbbo(symbol, &shown.nbbo);
        if let Some(object) = value.as_object_mut() {
            object.insert("books".to_owned(), venues.into());
            object.insert("is_short_sale_restricted".to_owned(), shown.is_short_sale_restricted.into());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tapeworks_market::price::Price;

    use tapeworks_market::Publisher;

    use super::*;
    use tapeworks_plant::view::VenueBook;

    fn side(price: i64, venues: u32) -> BestSide {
        BestSide {
            price: Price::from_e9(price),
            size: 300,
            venue_size: 200,
            publisher: Publisher::XBOS_ITCH,
            venues,
        }
    }

    fn tick() -> Tick {
        let symbol = |name: &str| Symbol::from_bytes(name.as_bytes()).unwrap();
        let crossed = Nbbo {
            bid: side(12_510_000_000, 0b11),
            ask: side(12_500_000_000, 0b10),
            flags: Flags::MAYBE_BAD_BOOK,
        };
        let locked = Nbbo { ask: side(12_510_000_000, 0b10), flags: Flags(0), ..crossed };
        let one_sided = Nbbo { ask: BestSide::default(), ..locked };
        let book = VenueBook {
            publisher: Publisher::XNAS_ITCH,
            bids: Price::from_e9(1_000_000_001)
                .map(|price| Level { price, size: 7, orders: 2 })
                .into_iter()
                .collect(),
            asks: Vec::new(),
            is_stale: true,
            is_trading: false,
            is_under_self_help: true,
        };
        let shown = SymbolView { nbbo: crossed, is_short_sale_restricted: true, venues: vec![book] };
        let view = View {
            venues: vec![Publisher::XNAS_ITCH, Publisher::XBOS_ITCH],
            symbols: BTreeMap::from([(symbol("ABC"), shown)]),
            ..View::default()
        };
        Tick {
            view: Arc::new(view),
            list: vec![(symbol("ABC"), crossed), (symbol("BAB"), locked), (symbol("CAB"), one_sided)],
            ..Tick::default()
        }
    }

    #[test]
    fn symbols_that_begin_with_the_search_text_come_first() {
        let tick = tick();
        let found = |search: &str, most| {
            let list = tick.list(search, most);
            let rows = list["rows"].as_array().unwrap();
            let names: Vec<_> = rows.iter().map(|row| row["symbol"].as_str().unwrap().to_owned()).collect();
            (names.join(" "), list["matching"].as_u64().unwrap(), list["total"].as_u64().unwrap())
        };
        assert_eq!(found("", 9), ("ABC BAB CAB".to_owned(), 3, 3));
        assert_eq!(found("B", 9), ("BAB ABC CAB".to_owned(), 3, 3));
        assert_eq!(found("AB", 2), ("ABC BAB".to_owned(), 3, 3));
        assert_eq!(found("X", 9), (String::new(), 0, 3));
    }

    #[test]
    fn the_busiest_symbol_is_the_one_whose_nbbo_changes_most_often() {
        let mut list = tick().list;
        let mut activity = Activity::default();
        assert_eq!(activity.busiest(&list), None);
        for size in 1..=Activity::BUSY {
            assert_eq!(activity.busiest(&list), None, "before change {size}");
            list[1].1.bid.size = size;
        }
        assert_eq!(activity.busiest(&list), Some(list[1].0));
        // A tie goes to the first by name.
        for size in 1..=Activity::BUSY {
            list[0].1.bid.size = size;
            activity.busiest(&list);
        }
        assert_eq!(activity.busiest(&list), Some(list[0].0));
        list[1].1.bid.size = 9;
        assert_eq!(activity.busiest(&list), Some(list[1].0));
    }

    #[test]
    fn locked_crossed_and_stale_markets_are_shown_with_the_venues_of_each_side() {
        let tick = tick();
        let rows = tick.list("", 9)["rows"].clone();
        let states: Vec<_> = (0..3).map(|at| rows[at]["state"].as_str().unwrap().to_owned()).collect();
        assert_eq!(states, ["crossed", "locked", "one-sided"]);
        assert_eq!((&rows[0]["maybe_bad_book"], &rows[1]["maybe_bad_book"]), (&json!(true), &json!(false)));
        assert_eq!(rows[0]["bid"]["venues"], json!(["Nasdaq", "Nasdaq BX"]));
        assert_eq!(rows[0]["bid"]["venue"], "Nasdaq BX");
        assert_eq!((&rows[0]["bid"]["price"], &rows[2]["ask"]["price"]), (&json!("12.51"), &Value::Null));
    }

    #[test]
    fn a_book_is_shown_with_exact_prices_and_its_staleness() {
        let tick = tick();
        let book = tick.book(Symbol::from_bytes(b"ABC").unwrap());
        assert_eq!(book["books"][0]["bids"], json!([["1.000000001", 7, 2]]));
        assert_eq!(
            (&book["books"][0]["is_stale"], &book["books"][0]["is_trading"]),
            (&json!(true), &json!(false))
        );
        assert_eq!(book["books"][0]["is_under_self_help"], json!(true));
        assert_eq!(book["is_short_sale_restricted"], json!(true));
        assert_eq!(tick.book(Symbol::from_bytes(b"NONE").unwrap()), Value::Null);
    }
}
