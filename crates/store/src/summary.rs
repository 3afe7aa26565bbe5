//! What went into a file, and what did not.

/// Why an update gave no record. Every update that leaves no trace in the file is counted under one of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Skip {
    /// The schema has no place for this kind of event.
    NotInSchema,
    /// A book changed, but not within what the schema shows (best level, ten levels, NBBO).
    NothingShownChanged,
    /// A price level or quote: `mbo` holds orders, and a level is none.
    NotOrderByOrder,
    /// An execution that is not to be counted in volume: the venue reports it again in bulk (Nasdaq's crosses).
    NotPrintable,
    /// A trade without shares or price (an auction that crossed nothing).
    EmptyTrade,
    /// The order it refers to is not in the book: its addition was lost, or came before the capture.
    UnknownOrder,
    /// An order with this reference is in the book already.
    DuplicateOrder,
    /// More shares were executed or cancelled than the order had.
    Overfill,
    /// An order or level without price or shares.
    Incomplete,
    /// The removal of a level that is not there.
    UnknownLevel,
    /// The level and its orders disagree, or a table is full.
    LevelMismatch,
    /// One half of an imbalance without the other.
    HalfImbalance,
    /// A symbol that cannot be read, or a number that nothing has named.
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

    /// Its name in reports: `skipped_unknown_order`.
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

/// What went into a file, and what did not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Updates put.
    pub updates: u64,
    /// Records written.
    pub records: u64,
    /// The length of the file in bytes; 0 before it is finished.
    pub bytes: u64,
    /// Values that the file cannot hold. In Parquet prices of a billion and more in a decimal(18, 9) and times after the
    /// year 2262 are null; in every format a size of more than 32 bits is the greatest number.
    pub out_of_range: u64,
    pub(crate) skipped: [u64; Skip::ALL.len()],
}

impl Summary {
    /// Updates that gave no record for this reason.
    pub const fn skipped(&self, reason: Skip) -> u64 {
        self.skipped[reason as usize]
    }

    /// The reasons that occurred, with how often.
    pub fn all_skipped(&self) -> impl Iterator<Item = (Skip, u64)> + '_ {
        Skip::ALL.into_iter().map(|reason| (reason, self.skipped(reason))).filter(|(_, count)| *count > 0)
    }
}
