//! A client's interest in one schema: the instruments it has subscribed to, known or not yet.

use std::collections::{HashMap, HashSet};

use fixedbitset::FixedBitSet;
use tapeworks_market::{InstrumentId, Instruments, Symbol};
use tapeworks_planted::planted;
use tapeworks_time::Nanos;

use super::super::control::{Subscription, Wanted};

/// Instruments that were subscribed to at the same event.
#[derive(Debug)]
pub(super) struct Group {
    /// The first event whose records are wanted.
    pub(super) from: u64,
    pub(super) is_all: bool,
    pub(super) instruments: FixedBitSet,
}

/// The known instruments of one subscription.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) is_all: bool,
    pub(super) instruments: FixedBitSet,
}

impl Chosen {
    pub(super) const fn is_all(&self) -> bool {
        self.is_all
    }

    /// Returns the listed instruments.
    pub(super) const fn listed(&self) -> &FixedBitSet {
        &self.instruments
    }

    pub(super) fn contains(&self, instrument: InstrumentId) -> bool {
        self.is_all || self.instruments.contains(instrument.index())
    }

    /// Iterates over the chosen ones of the first `count` instruments, with numbers from `start` up to but excluding `end`.
    pub(super) fn between(
        &self,
        start: u32,
        end: u32,
        count: usize,
    ) -> impl Iterator<Item = InstrumentId> + '_ {
        let end = end.min(u32::try_from(count).unwrap_or(u32::MAX));
        (start..end).map(InstrumentId).filter(|instrument| self.contains(*instrument))
    }
}

/// A client's interest in one schema.
#[derive(Debug, Default)]
pub(super) struct Interest {
    pub(super) groups: Vec<Group>,
    pub(super) excluded: FixedBitSet,
    /// Symbols that no instrument has yet.
    pub(super) pending: HashSet<Symbol>,
    /// Numbers that no instrument has yet, wanted (`true`) or unwanted. They are on no list, because a list is as large as its
    /// largest number, and a client may send any number.
    pub(super) pending_numbers: HashMap<InstrumentId, bool>,
    /// The start time of the running replay.
    pub(super) start: Option<Nanos>,
    /// The instruments of the running replay.
    pub(super) replayed: Vec<Wanted>,
}

impl Interest {
    /// Merges all groups into one, which is possible once no record from before is held.
    pub(super) fn merge(&mut self) {
        let mut groups = std::mem::take(&mut self.groups).into_iter();
        let Some(mut first) = groups.next() else { return };
        for group in groups {
            first.is_all |= group.is_all;
            first.from = first.from.min(group.from);
            first.instruments.union_with(&group.instruments);
        }
        self.groups.push(first);
    }

    /// Finds the instruments of a subscription, and notes its symbols and numbers that no instrument has yet. Returns the known
    /// instruments and the unknown names.
    pub(super) fn resolve(
        &mut self,
        subscription: &Subscription,
        known: &Instruments,
    ) -> (Chosen, Vec<String>) {
        let mut chosen = Chosen { is_all: false, instruments: FixedBitSet::new() };
        let mut unknown = Vec::new();
        match &subscription.wanted {
            Wanted::All => chosen.is_all = true,
            Wanted::Symbols(symbols) => {
                for symbol in symbols {
                    match known.find(*symbol) {
                        Some(instrument) => insert(&mut chosen.instruments, instrument),
                        None => {
                            self.pending.insert(*symbol);
                            unknown.push(symbol.as_str().to_owned());
                        }
                    }
                }
            }
            Wanted::Instruments(instruments) => {
                for instrument in instruments {
                    if instrument.index() < known.len() {
                        insert(&mut chosen.instruments, *instrument);
                    } else {
                        self.pending_numbers.insert(*instrument, true);
                        unknown.push((u64::from(instrument.0) + 1).to_string());
                    }
                }
            }
        }
        if subscription.start.is_some() {
            self.start = subscription.start;
            self.replayed.push(subscription.wanted.clone());
        }
        (chosen, unknown)
    }

    /// Adds instruments, or all of them, from event `from` on.
    pub(super) fn take(&mut self, instruments: &FixedBitSet, is_all: bool, from: u64) {
        if is_all {
            self.excluded.clear();
            self.pending_numbers.retain(|_, is_wanted| *is_wanted);
        }
        self.excluded.difference_with(instruments);
        match self.groups.iter_mut().find(|group| group.from == from) {
            Some(known) => {
                known.is_all |= is_all;
                known.instruments.union_with(instruments);
            }
            None => self.groups.push(Group { from, is_all, instruments: instruments.clone() }),
        }
    }

    pub(super) fn remove(&mut self, wanted: &Wanted, known: &Instruments) {
        let mut gone = FixedBitSet::new();
        match wanted {
            Wanted::All => {
                self.groups.clear();
                self.pending.clear();
                self.pending_numbers.clear();
                return;
            }
            Wanted::Symbols(symbols) => {
                for symbol in symbols {
                    self.pending.remove(symbol);
                    if let Some(instrument) = known.find(*symbol) {
                        insert(&mut gone, instrument);
                    }
                }
            }
            Wanted::Instruments(instruments) => {
                let is_all = self.is_all();
                for instrument in instruments {
                    if instrument.index() < known.len() {
                        insert(&mut gone, *instrument);
                    } else if is_all {
                        self.pending_numbers.insert(*instrument, false);
                    } else {
                        self.pending_numbers.remove(instrument);
                    }
                }
            }
        }
        self.groups.iter_mut().for_each(|group| group.instruments.difference_with(&gone));
        if self.is_all() {
            self.excluded.union_with(&gone);
        }
    }

    /// Handles an instrument that has appeared. Returns whether it was added to a list.
    pub(super) fn appears(&mut self, instrument: InstrumentId, symbol: Symbol) -> bool {
        // The subscription may identify it by symbol, by number, or both.
        let is_named = self.pending.remove(&symbol);
        let by_number = self.pending_numbers.remove(&instrument);
        let is_wanted = (is_named || by_number == Some(true)) && !planted!("list-forgets-a-new-symbol");
        if is_wanted {
            if let Some(group) = self.groups.first_mut() {
                insert(&mut group.instruments, instrument);
            }
        } else if by_number == Some(false) {
            insert(&mut self.excluded, instrument);
        }
        is_wanted && !self.is_all()
    }

    #[inline]
    pub(super) fn wants(&self, instrument: InstrumentId, event: u64) -> bool {
        let is_wanted = |group: &Group| {
            event >= group.from && (group.is_all || group.instruments.contains(instrument.index()))
        };
        self.groups.iter().any(is_wanted) && !self.excluded.contains(instrument.index())
    }

    /// Returns the number of instruments on its lists.
    pub(super) fn count(&self) -> usize {
        self.groups.iter().map(|group| group.instruments.count_ones(..)).sum()
    }

    pub(super) fn is_all(&self) -> bool {
        self.groups.iter().any(|group| group.is_all)
    }

    /// Iterates over the numbers of all instruments on its lists.
    pub(super) fn instruments(&self) -> impl Iterator<Item = usize> + '_ {
        let mut all = FixedBitSet::new();
        self.groups.iter().for_each(|group| all.union_with(&group.instruments));
        all.into_ones()
    }

    pub(super) fn is_empty(&self) -> bool {
        let is_empty = |group: &Group| !group.is_all && group.instruments.is_clear();
        self.pending.is_empty() && self.pending_numbers.is_empty() && self.groups.iter().all(is_empty)
    }
}

/// Adds a known instrument to a list, which grows to its largest number.
pub(super) fn insert(set: &mut FixedBitSet, instrument: InstrumentId) {
    set.grow_and_insert(instrument.index());
}

#[cfg(test)]
mod tests {
    use tapeworks_store::Schema;

    use super::*;

    fn subscription(wanted: Wanted) -> Subscription {
        Subscription {
            schema: Schema::Mbo,
            wanted,
            start: None,
            has_snapshot: false,
            id: None,
            is_last: true,
        }
    }

    /// Regression: a subscription to the highest possible number made every list and table grow to it, 400 MB for each schema.
    #[test]
    fn a_number_that_no_instrument_has_is_on_no_list_until_one_has_it() {
        let mut known = Instruments::default();
        let first = known.intern(Symbol::from_bytes(b"FIRST").unwrap());
        let (second, largest) = (InstrumentId(1), InstrumentId((1 << 24) - 2));
        let mut interest = Interest::default();
        let wanted = Wanted::Instruments(vec![first, second, largest]);
        let (chosen, unknown) = interest.resolve(&subscription(wanted), &known);
        interest.take(chosen.listed(), chosen.is_all(), 0);
        assert_eq!(unknown, ["2", "16777215"]);
        assert_eq!(chosen.instruments.len(), 1);
        assert_eq!(interest.instruments().collect::<Vec<_>>(), [0]);
        assert!(interest.wants(first, 0) && !interest.wants(second, 0));
        assert_eq!(known.intern(Symbol::from_bytes(b"SECOND").unwrap()), second);
        assert!(interest.appears(second, Symbol::from_bytes(b"SECOND").unwrap()));
        assert!(interest.wants(second, 0));
        assert!(interest.groups.iter().all(|group| group.instruments.len() == 2));
        interest.remove(&Wanted::Instruments(vec![first, second, largest]), &known);
        assert!(interest.is_empty());
    }

    #[test]
    fn a_number_that_is_not_wanted_of_all_is_left_out_when_it_appears() {
        let known = Instruments::default();
        let mut interest = Interest::default();
        let (chosen, _) = interest.resolve(&subscription(Wanted::All), &known);
        interest.take(chosen.listed(), chosen.is_all(), 0);
        interest.remove(&Wanted::Instruments(vec![InstrumentId(0), InstrumentId(1)]), &known);
        assert_eq!(interest.excluded.len(), 0);
        for number in [0, 1, 2].map(InstrumentId) {
            assert!(
                !interest.appears(number, Symbol::from_bytes(b"ANY").unwrap()),
                "who takes all is on no list"
            );
            assert_eq!(interest.wants(number, 0), number.0 == 2);
        }
    }
}
