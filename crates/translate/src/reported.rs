//! The venue's reports that are kept: to know one that comes again, and to find the fill that a bust or a correction means.
//!
//! A venue that starts its numbers over, or repeats a message under the next number, would have a fill booked twice. Kept are fills, and the
//! reports that change an order that goes on working. Others do no harm: an order ends once. Cost: a hash and a cache line or two for each.
//! Nothing allocates after [`Reported::new`].

use crate::fix_side::DAY_NS;
use crate::ids::ExecutionId;
use crate::index::{Hash, Index};
use crate::pool::Handle;
use crate::report::Execution;

/// What names a report of an order for a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    /// A fill, by the number of its match.
    Match(u64),
    /// By the venue's id of the execution.
    Execution(ExecutionId),
}

/// A remembered report. Of a fill: the figures that count for its order now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// The order, which one partition of the venue processes: both sides of a match may have the same number.
    pub(crate) order: Handle,
    /// The number of the trade; 0: none.
    pub(crate) match_id: u64,
    /// The id by which the client knows it.
    pub(crate) execution_id: ExecutionId,
    /// When, in UTC nanoseconds: a report that comes again has its time.
    pub(crate) time_ns: u64,
    /// 0: it is no fill.
    pub(crate) quantity: u32,
    pub(crate) price_e8: i64,
    /// Whether `match_id` names it, and not `execution_id`.
    pub(crate) is_named_by_match: bool,
    /// The trade was cancelled. It is cancelled once.
    pub(crate) is_cancelled: bool,
}

impl Kept {
    /// A report that is no fill.
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

/// The day is compared, and not hashed: most orders live for one.
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
    /// Where the next one goes when the ring is full: the oldest is there.
    oldest: usize,
    by_id: Index,
}

impl Reported {
    /// Room for so many reports.
    pub(crate) fn new(most: usize) -> Self {
        Self { ring: Vec::with_capacity(most), most, oldest: 0, by_id: Index::new(most) }
    }

    #[inline]
    fn place(&self, hash: Hash, order: Handle, id: &Id, time_ns: u64) -> Option<u32> {
        let is_it =
            |place: u32| self.ring.get(place as usize).is_some_and(|kept| kept.is(order, id, time_ns));
        self.by_id.get(hash, is_it)
    }

    /// Keeps a report unless it is there; then it came before.
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

    /// The fill of an order that a bust or a correction of this time names. It may be of another day: then the number of its trade finds it, by
    /// a walk over all reports.
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
        /// Against a list of the last ones.
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
