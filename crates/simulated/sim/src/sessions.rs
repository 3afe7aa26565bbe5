//! Compares what the clients of one run of the plant have read.
//!
//! Clients that read all orders from the beginning are compared with the one of them that has read most. Every other client is
//! compared, schema by schema, with one that reads everything again after all faults have ended.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use crate::coverage::notes;
use crate::plan::Plan;
use crate::session::{Session, Taken};
use crate::states::{Book, book_of};

/// The result of the comparison.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) violations: Vec<String>,
    pub(crate) reached: BTreeSet<&'static str>,
}

/// Compares all sessions of the plant's last run, which is its start number `last`.
pub(crate) fn compare(
    plan: &Plan,
    sessions: &[Session],
    again: &[Session],
    last: u64,
    has_orders: bool,
) -> Compared {
    let mut compared = Compared::default();
    let of_life = |session: &&Session| session.began == last;
    plain(plan, sessions.iter().filter(of_life).filter(|session| session.client.is_plain()), has_orders)
        .into_iter()
        .for_each(|text| compared.violations.push(text));
    // If the disk rejected inputs or the journal does not keep them, a later replay lacks their records.
    if !plan.keeps_the_past() {
        return compared;
    }
    for session in sessions {
        let is_comparable = session.began == last || (session.client.resumes && plan.keeps_all());
        if session.client.is_plain() || !is_comparable {
            continue;
        }
        for schema in session.client.schema_names() {
            let is_it = |one: &&Session| one.client.schemas.contains(&schema) && one.began == last;
            let Some(all) = again.iter().find(is_it) else {
                compared.violations.push(format!("no client can read all of {schema} again"));
                return compared;
            };
            compared.reached.insert(notes::COMPARED);
            if let Err(why) = Pair::new(plan, session, all, &schema).check(&mut compared.reached) {
                let (number, read) = (session.number, session.records.len());
                compared.violations.push(format!("client {number} ({schema}, {read} records): {why}"));
            }
        }
    }
    compared
}

/// Compares clients that read all orders. A client that stays reads everything. What one client has read is the beginning of what
/// another client of the same run has read at the end. If the disk rejected inputs, a replay lacks their records but a client from
/// before the loss has them; the records that both have must then be in the same order.
fn plain<'s>(
    plan: &Plan,
    of_life: impl Iterator<Item = &'s Session> + Clone,
    has_orders: bool,
) -> Vec<String> {
    let (mut violations, has_lost) = (Vec::new(), plan.has_bad_disk());
    // A replay begins with the oldest record that the journal has kept.
    let begins_later = plan.limits.keep_bytes.is_some();
    let Some(longest) = of_life.clone().max_by_key(|session| session.records.len()) else {
        return violations;
    };
    // A journal that keeps little may have none of the past when a client connects. One on a bad disk may have lost all of it, which
    // shows as a gap.
    let has_nothing = |session: &Session| {
        session.is_put_off || session.client.is_absurd || has_lost && !session.gaps.is_empty()
    };
    let is_put_off = of_life.clone().all(has_nothing);
    if longest.records.is_empty() && has_orders && !begins_later && !is_put_off {
        violations.push("no client has read a record".to_owned());
    }
    if has_lost && !longest.is_whole {
        return violations;
    }
    let known: FxHashSet<u64> = match has_lost {
        true => longest.records.iter().map(|record| record.hash).collect(),
        false => FxHashSet::default(),
    };
    for session in of_life {
        let (read, most) = (session.records.len(), longest.records.len());
        if session.is_whole && read < most && plan.keeps_the_past() {
            violations.push(format!(
                "a client that stayed has read {read} records when no more came, and another one {most}"
            ));
        }
        let begin = session.records.first().filter(|_| begins_later);
        let begin = begin.and_then(|first| longest.records.iter().position(|one| one == first));
        if begins_later && begin.is_none() {
            continue;
        }
        let differs = if has_lost {
            let mut rest = longest.records.iter();
            let is_in_order = |record: &Taken| !known.contains(&record.hash) || rest.any(|one| one == record);
            session.records.iter().map(is_in_order).position(|is_in_order| !is_in_order)
        } else {
            differ(session, longest, begin.unwrap_or_default(), begins_later)
        };
        if let Some(place) = differs {
            violations.push(format!(
                "two clients differ from record {place} on: one read {read}, the other {most}"
            ));
        }
    }
    violations
}

/// Returns the first record of a session that the other session, starting at its record `begin`, does not have. With `begins_later` the
/// journal keeps little: either session may end first, and a replay continues after a gap if its next segment was removed to make room.
fn differ(session: &Session, other: &Session, begin: usize, begins_later: bool) -> Option<usize> {
    let (mut place, mut its) = (0, begin);
    while let Some(record) = session.records.get(place) {
        let Some(one) = other.records.get(its) else { return (!begins_later).then_some(place) };
        if one != record {
            let behind = |records: &[Taken], from: usize, wanted: &Taken| {
                records.iter().skip(from).position(|one| one == wanted).map(|ahead| from + ahead)
            };
            if begins_later && session.gaps.contains(&place) {
                its = behind(&other.records, its, record)?;
            } else if begins_later && other.gaps.contains(&its) {
                place = behind(&session.records, place, one)?;
            } else {
                return Some(place);
            }
        }
        (place, its) = (place + 1, its + 1);
    }
    None
}

/// The records of one schema that a client has, and those of a client that reads everything.
struct Pair<'s> {
    session: &'s Session,
    all: &'s Session,
    rtype: u8,
    /// The client had everything when no more records arrived. A client does not notice that its plant has lost power.
    is_whole: bool,
    /// A replay over damage lacks changes of the books, and reports them as gaps.
    passes_damage: bool,
    /// The client's records.
    read: Vec<&'s Taken>,
    /// The other client's records that match this client's subscription.
    expected: Vec<&'s Taken>,
}

/// Returns the record type of a schema.
pub(crate) fn rtype_of(schema: &str) -> u8 {
    schema.parse::<dbn::Schema>().map_or(0, |schema| dbn::RType::from(schema) as u8)
}

impl<'s> Pair<'s> {
    fn new(plan: &Plan, session: &'s Session, all: &'s Session, schema: &str) -> Self {
        let rtype = rtype_of(schema);
        let symbols: BTreeSet<String> =
            (0..session.client.symbols).map(tapeworks_generator::symbol_name).collect();
        let is_wanted = |taken: &&Taken| {
            let symbol = all.symbols.get(&taken.instrument);
            taken.rtype == rtype && (symbols.is_empty() || symbol.is_some_and(|one| symbols.contains(one)))
        };
        Self {
            session,
            all,
            rtype,
            is_whole: session.is_whole && session.began == all.began,
            passes_damage: plan.has_damage() && !all.gaps.is_empty(),
            read: session.records.iter().filter(|taken| taken.rtype == rtype).collect(),
            expected: all.records.iter().filter(is_wanted).collect(),
        }
    }

    fn check(&self, reached: &mut BTreeSet<&'static str>) -> Result<(), String> {
        let client = &self.session.client;
        let is_conflated = client.slow_reader.as_deref() == Some("conflate")
            && ["mbp-1", "bbo-1s", "cmbp-1", "cbbo-1s"].iter().any(|schema| rtype_of(schema) == self.rtype);
        if is_conflated {
            if self.read.len() < self.expected.len() && self.is_whole {
                reached.insert(notes::CONFLATED);
            }
            return self.is_conflated();
        }
        let followed = if client.is_live { self.follow_from_the_present() } else { self.follow(0) };
        let place = followed?;
        if self.is_whole && place != self.expected.len() && !(client.is_live && self.read.is_empty()) {
            return Err(format!("it ends at {place} of {} when no more came", self.expected.len()));
        }
        if client.has_snapshot && self.is_whole && !self.passes_damage {
            self.has_the_state()
        } else {
            Ok(())
        }
    }

    /// Follows the records from a position. Returns the position after the last one.
    fn follow(&self, place: usize) -> Result<usize, String> {
        // Numbers of skipped records count all schemas, so such a client has only one schema.
        let mut skipped = self.session.skipped.iter().peekable();
        let mut place = place;
        for (at, taken) in self.read.iter().enumerate() {
            while let Some((_, count)) = skipped.next_if(|(before, _)| *before <= at) {
                place += usize::try_from(*count).unwrap_or(usize::MAX);
            }
            if self.expected.get(place) != Some(taken) {
                let now = self.expected.iter().position(|one| one == taken);
                let most = self.expected.len();
                return Err(format!(
                    "its record {at} is not the one at {place} of {most}, but the one at {now:?}"
                ));
            }
            place += 1;
        }
        let rest: u64 = skipped.map(|(_, count)| *count).sum();
        Ok(place + usize::try_from(rest).unwrap_or(usize::MAX))
    }

    /// Checks that the snapshot's quotes match the records before the first one after the snapshot.
    fn joins_its_snapshot(&self, first: usize) -> Result<(), String> {
        // A record of an interval arrives at its end, but a snapshot shows the current state.
        if !self.is_of_now() || self.session.snapshot.is_empty() {
            return Ok(());
        }
        let mut should: BTreeMap<Book, u64> = BTreeMap::new();
        for taken in self.expected.iter().take(first) {
            let book = book_of(self.rtype, taken.publisher, taken.instrument);
            should.extend(taken.levels.map(|levels| (book, levels)));
        }
        match self.session.snapshot.iter().find(|(book, levels)| should.get(book) != Some(levels)) {
            Some((book, _)) => {
                Err(format!("its snapshot of book {book:?} is not the state before record {first}"))
            }
            None => Ok(()),
        }
    }

    /// Returns whether every change of the book produces a record of this kind.
    fn is_of_now(&self) -> bool {
        ["mbp-1", "mbp-10", "cmbp-1"].iter().any(|schema| rtype_of(schema) == self.rtype)
    }

    /// Like `follow`, for a client that started with live records at any position.
    fn follow_from_the_present(&self) -> Result<usize, String> {
        let Some(first) = self.read.first() else { return Ok(self.expected.len()) };
        let before =
            self.session.skipped.iter().take_while(|(at, _)| *at == 0).map(|(_, count)| *count).sum::<u64>();
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        let mut wrong = None;
        for place in (0..self.expected.len()).filter(|place| self.expected.get(*place) == Some(first)) {
            let Some(place) = place.checked_sub(before) else { continue };
            match self.follow(place).and_then(|end| self.joins_its_snapshot(place).map(|()| end)) {
                Ok(end) => return Ok(end),
                Err(why) => wrong = Some(why),
            }
        }
        Err(wrong.unwrap_or_else(|| format!("no other client has its first record, {first:?}")))
    }

    /// Groups the records by book.
    fn by_book(&self, records: &[&'s Taken]) -> BTreeMap<Book, Vec<u64>> {
        let mut by_book: BTreeMap<Book, Vec<u64>> = BTreeMap::new();
        for taken in records {
            let book = book_of(self.rtype, taken.publisher, taken.instrument);
            by_book.entry(book).or_default().push(taken.hash);
        }
        by_book
    }

    /// Checks that each quote is one that others received, in the order of its book, and that the last one is the last of all.
    fn is_conflated(&self) -> Result<(), String> {
        let (read, expected) = (self.by_book(&self.read), self.by_book(&self.expected));
        for (book, hashes) in &read {
            let all = expected.get(book).map_or(&[][..], Vec::as_slice);
            let mut rest = all.iter();
            if let Some(at) = hashes.iter().position(|hash| !rest.any(|one| one == hash)) {
                return Err(format!(
                    "the quote {at} of book {book:?} is not among those of others, or out of order"
                ));
            }
            if self.is_whole && hashes.last() != all.last() {
                return Err(format!("the last quote of book {book:?} is not the last"));
            }
        }
        let is_complete = self.is_whole && !self.session.client.is_live;
        match expected.keys().find(|book| !read.contains_key(book)) {
            Some(book) if is_complete => Err(format!("it has no quote of book {book:?}")),
            _ => Ok(()),
        }
    }

    /// Checks that a snapshot and the records after it result in the same books as all records.
    fn has_the_state(&self) -> Result<(), String> {
        let (Some(its), Some(all)) = (&self.session.states, &self.all.states) else { return Ok(()) };
        let wanted: BTreeSet<u32> = self.expected.iter().map(|taken| taken.instrument).collect();
        if self.rtype == dbn::rtype::MBO {
            let mut should = all.orders();
            should.retain(|(_, instrument), _| wanted.contains(instrument));
            let has = its.orders();
            let differs = |book: &&Book| has.get(book) != should.get(book);
            return match has.keys().chain(should.keys()).find(differs) {
                Some(book) => {
                    let count = |orders: Option<&BTreeMap<_, _>>| orders.map_or(0, BTreeMap::len);
                    let (has, should) = (count(has.get(book)), count(should.get(book)));
                    Err(format!("it has {has} orders of book {book:?}, and all records make {should}"))
                }
                None => Ok(()),
            };
        }
        let (has, should) = (its.quotes(self.rtype), all.quotes(self.rtype));
        match has.iter().find(|(book, hash)| should.get(book) != Some(hash)) {
            Some((book, _)) if self.is_of_now() => {
                Err(format!("its quote of book {book:?} is not the one of all records"))
            }
            _ => Ok(()),
        }
    }
}
