//! Counts of what a file contains and what was skipped.

/// Why an update produced no record. Every update without a record is counted under one of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Skip {
    /// The schema has no place for this kind of event.
    NotInSchema,
    /// A book changed, but not within what the schema shows (best level, ten levels, NBBO).
    NothingShownChanged,
    /// A price level or quote, which is not an order as `mbo` requires.
    NotOrderByOrder,
    /// An execution that must not count in volume: the venue reports it again in bulk (Nasdaq's crosses).
    NotPrintable,
    /// A trade without shares or price (an auction that crossed nothing).
    EmptyTrade,
    /// The order is not in the book: its addition was lost, or preceded the capture.
    UnknownOrder,
    /// An order with this reference is already in the book.
    DuplicateOrder,
    /// More shares were executed or cancelled than the order had.
    Overfill,
    /// An order or level without price or shares.
    Incomplete,
    /// The removal of a level that does not exist.
    UnknownLevel,
    /// A level and its orders disagree, or a table is full.
    LevelMismatch,
    /// One half of an imbalance without the other.
    HalfImbalance,
    /// An unreadable symbol, or an instrument number that was never named.
    NoInstrument,
}

impl Skip {
    /// Every reason.
    pub const ALL: [Self; 13] = [
        Self::NotInSchema,
        Self::NothingShownChanged,
        Self::NotOrderByOrder,
        Self::NotPrintable,
        Self::EmptyTrade,
        Self::UnknownOrder,
        Self::DuplicateOrder,
        Self::Overfill,
        Self::Incomplete,
        Self::UnknownLevel,
        Self::LevelMismatch,
        Self::HalfImbalance,
        Self::NoInstrument,
    ];

    /// Returns the reason's name in reports, such as `skipped_unknown_order`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotInSchema => "skipped_not_in_schema",
            Self::NothingShownChanged => "skipped_nothing_shown_changed",
            Self::NotOrderByOrder => "skipped_not_order_by_order",
            Self::NotPrintable => "skipped_not_printable",
            Self::EmptyTrade => "skipped_empty_trade",
            Self::UnknownOrder => "skipped_unknown_order",
            Self::DuplicateOrder => "skipped_duplicate_order",
            Self::Overfill => "skipped_overfill",
            Self::Incomplete => "skipped_incomplete",
            Self::UnknownLevel => "skipped_unknown_level",
            Self::LevelMismatch => "skipped_level_mismatch",
            Self::HalfImbalance => "skipped_half_imbalance",
            Self::NoInstrument => "skipped_no_instrument",
        }
    }
}

/// The records and bytes of a file, and counts of skipped updates.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Updates taken.
    pub updates: u64,
    /// Records written.
    pub records: u64,
    /// Length of the file in bytes; 0 until it is finished.
    pub bytes: u64,
    /// Values that the file cannot hold. In Parquet, prices of a billion or more in a decimal(18, 9) and times after the year
    /// 2262 become null. In every format, a size beyond 32 bits becomes the maximum.
    pub out_of_range: u64,
    pub(crate) skipped: [u64; Skip::ALL.len()],
}

impl Summary {
    /// Returns the number of updates skipped for this reason.
    pub const fn skipped(&self, reason: Skip) -> u64 {
        self.skipped[reason as usize]
    }

    /// Returns the reasons that occurred and their counts.
    pub fn all_skipped(&self) -> impl Iterator<Item = (Skip, u64)> + '_ {
        Skip::ALL.into_iter().map(|reason| (reason, self.skipped(reason))).filter(|(_, count)| *count > 0)
    }
}
