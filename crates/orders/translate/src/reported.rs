//! Reports of the venue that are remembered, to detect repeated reports, and to find the fill that a bust or a correction refers
//! to.
//!
//! A venue that restarts its numbers, or repeats a message under the next number, would otherwise make a fill count twice. The ring
//! holds fills, busts and corrections of unknown fills, and reports that change an order that remains open. Other reports are
//! harmless, because an order ends only once. Cost: a hash and one or two cache lines for each. Nothing allocates after
//! [`Reported::new`].

use crate::fix_side::DAY_NS;
use crate::ids::ExecutionId;
use crate::index::{Hash, Index};
use crate::pool::Handle;
use crate::report::Execution;

/// Identifies a report of an order within a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    /// A fill, by its match number.
    Match(u64),
    /// A report, by the venue's execution id.
    Execution(ExecutionId),
}

/// A remembered report. For a fill, its figures are those that currently count for the order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// The order. One partition of the venue processes it; both sides of a match may have the same number.
    pub(crate) order: Handle,
    /// The trade's number; 0: none.
    pub(crate) match_id: u64,
    /// The execution id under which the client knows it.
    pub(crate) execution_id: ExecutionId,
    /// The time of the report in UTC nanoseconds. A repeated report has the same time.
    pub(crate) time_ns: u64,
    /// The filled quantity; 0: not a fill.
    pub(crate) quantity: u32,
    pub(crate) price_e8: i64,
    /// Whether the report is identified by `match_id` and not by `execution_id`.
    pub(crate) is_named_by_match: bool,
    /// Whether the trade was cancelled. It can be cancelled only once.
    pub(crate) is_cancelled: bool,
}

impl Kept {
    /// Creates the entry of a report that is not a fill.
    #[inline]
    pub(crate) const fn of_change(order: Handle, report: &Execution) -> Self {
        Self {
            order,
            match_id: report.match_id,
            execution_id: report.execution_id,
            time_ns: report.time_ns,
            quantity: 0,
            price_e8: report.last_price_e8,
            is_named_by_match: false,
            is_cancelled: false,
        }
    }

    #[inline]
    const fn id(&self) -> Id {
        match self.is_named_by_match {
            true => Id::Match(self.match_id),
            false => Id::Execution(self.execution_id),
        }
    }

    #[inline]
    fn is(&self, order: Handle, id: &Id, time_ns: u64) -> bool {
        self.order == order && self.id() == *id && self.time_ns / DAY_NS == time_ns / DAY_NS
    }
}

/// The day is compared but not hashed, because most orders live for one day.
#[inline]
fn hash(order: Handle, id: &Id) -> Hash {
    let place = u64::from(order.place);
    match id {
        Id::Match(number) => Hash::of_words([place, *number]),
        Id::Execution(execution) => {
            let (words, _) = execution.0.0.as_chunks::<8>();
            let [a, b, c, d] =
                [0, 1, 2, 3].map(|at| words.get(at).map_or(0, |word| u64::from_le_bytes(*word)));
            Hash::of_words([place ^ a, b ^ c.rotate_left(21) ^ d.rotate_left(42)])
        }
    }
}

/// The latest reports, in a ring.
#[derive(Debug)]
pub(crate) struct Reported {
    ring: Vec<Kept>,
    most: usize,
    /// The position of the oldest report, which the next one replaces when the ring is full.
    oldest: usize,
    by_id: Index,
}

impl Reported {
    /// Creates a ring for at most this many reports.
    pub(crate) fn new(most: usize) -> Self {
        Self { ring: Vec::with_capacity(most), most, oldest: 0, by_id: Index::new(most) }
    }

    #[inline]
    fn place(&self, hash: Hash, order: Handle, id: &Id, time_ns: u64) -> Option<u32> {
        let is_it =
            |place: u32| self.ring.get(place as usize).is_some_and(|kept| kept.is(order, id, time_ns));
        self.by_id.get(hash, is_it)
    }

    /// Remembers a report. Returns `false` if it was known, and so is a repetition.
    #[inline]
    pub(crate) fn add(&mut self, kept: Kept) -> bool {
        let hash = hash(kept.order, &kept.id());
        if self.place(hash, kept.order, &kept.id(), kept.time_ns).is_some() {
            return false;
        }
        if self.ring.len() < self.most {
            self.by_id.insert_new(hash, self.ring.len() as u32);
            self.ring.push(kept);
        } else if let Some(oldest) = self.ring.get_mut(self.oldest) {
            let old = core::mem::replace(oldest, kept);
            self.by_id.remove(self::hash(old.order, &old.id()), self.oldest as u32);
            self.by_id.insert_new(hash, self.oldest as u32);
            self.oldest = (self.oldest + 1) % self.most;
        }
        true
    }

    /// Returns the fill of an order that a bust or a correction at this time refers to. The fill may be from another day; then its
    /// trade number is searched for in all reports.
    #[cold]
    pub(crate) fn fill(&mut self, order: Handle, id: &Id, time_ns: u64, match_id: u64) -> Option<&mut Kept> {
        let of_match = |kept: &Kept| {
            match_id > 0 && kept.match_id == match_id && kept.order == order && kept.quantity > 0
        };
        let named = self.place(hash(order, id), order, id, time_ns).map(|place| place as usize);
        let place = named.or_else(|| self.ring.iter().position(of_match))?;
        self.ring.get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_wire::Ascii;

    use super::*;
    use crate::pool::Pool;

    fn kept(order: Handle, id: Id, day: u64) -> Kept {
        let (match_id, execution_id) = match id {
            Id::Match(number) => (number, ExecutionId::default()),
            Id::Execution(execution) => (0, execution),
        };
        Kept {
            order,
            match_id,
            execution_id,
            time_ns: day * DAY_NS,
            quantity: 1,
            price_e8: 1,
            is_named_by_match: matches!(id, Id::Match(_)),
            is_cancelled: false,
        }
    }

    proptest! {
        /// Compared with a list of the latest reports.
        #[test]
        fn a_report_is_known_as_long_as_it_is_among_the_latest(
            most in 0usize..6,
            names in prop::collection::vec((0usize..3, 0u64..4, 0u64..2), 0..60)
        ) {
            let mut pool = Pool::new(3);
            let orders: Vec<Handle> = (0..3).map(|number| pool.insert(number).unwrap()).collect();
            let (mut reported, mut latest) = (Reported::new(most), Vec::new());
            for (order, number, day) in names {
                let id = ExecutionId(Ascii::padded(format!("E{number:031}").as_bytes()).unwrap());
                let id = if number % 2 == 0 { Id::Match(number + 1) } else { Id::Execution(id) };
                let report = (orders[order], id, day);
                let is_new = !latest.contains(&report);
                prop_assert_eq!(reported.add(kept(report.0, report.1, report.2)), is_new);
                if is_new {
                    latest.push(report);
                    latest.drain(..latest.len().saturating_sub(most));
                }
                for (order, id, day) in &latest {
                    prop_assert!(reported.fill(*order, id, day * DAY_NS, 0).is_some());
                }
            }
        }
    }
}
