//! The set to find a hash for: distinct values of one width, ascending.

use std::collections::HashMap;
use std::fmt;

/// The most values in a set.
pub const MAX_VALUES: usize = 1 << 16;

/// The unsigned integer type of the values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Width {
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
}

impl Width {
    /// Returns the narrowest width that holds `value`.
    #[must_use]
    pub const fn of(value: u64) -> Self {
        match value {
            0..=0xff => Self::U8,
            0x100..=0xffff => Self::U16,
            0x1_0000..=0xffff_ffff => Self::U32,
            _ => Self::U64,
        }
    }

    /// Returns the width with this many bits: 8, 16, 32 or 64.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            8 => Some(Self::U8),
            16 => Some(Self::U16),
            32 => Some(Self::U32),
            64 => Some(Self::U64),
            _ => None,
        }
    }

    /// Returns the width in bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::U8 => 8,
            Self::U16 => 16,
            Self::U32 => 32,
            Self::U64 => 64,
        }
    }

    /// Returns the width in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    /// Returns the greatest value.
    #[must_use]
    pub const fn greatest(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// Returns the name of the Rust type.
    #[must_use]
    pub const fn rust_name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// Returns the bits of the register that computes the hash: at least 32.
    pub(crate) const fn word_bits(self) -> u32 {
        match self {
            Self::U64 => 64,
            _ => 32,
        }
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rust_name())
    }
}

/// The reason why a set has no hash. Places count from 0 in the original list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchError {
    /// The set is empty.
    Empty,
    /// There are more than [`MAX_VALUES`].
    TooMany {
        /// The number of values.
        count: usize,
        /// The first value beyond the limit.
        value: u64,
    },
    /// A value occurs twice.
    Duplicate {
        /// The value.
        value: u64,
        /// The place of its first occurrence.
        first: usize,
        /// The place of its second occurrence.
        place: usize,
    },
    /// A value that the given width cannot hold.
    TooWide {
        /// The value.
        value: u64,
        /// The value's place.
        place: usize,
        /// The width.
        width: Width,
    },
}

impl SearchError {
    /// Returns the place of the faulty value, from 0, or `None` for an empty list.
    #[must_use]
    pub const fn place(&self) -> Option<usize> {
        match self {
            Self::Empty => None,
            Self::TooMany { .. } => Some(MAX_VALUES),
            Self::Duplicate { place, .. } | Self::TooWide { place, .. } => Some(*place),
        }
    }
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there are no values"),
            Self::TooMany { count, value } => {
                write!(f, "{count} values are too many: value {value:#x} is the first beyond {MAX_VALUES}")
            }
            Self::Duplicate { value, first, place } => {
                write!(f, "value {} is {value:#x}, as value {} is already", place + 1, first + 1)
            }
            Self::TooWide { value, place, width } => {
                write!(f, "value {} is {value:#x}, which does not fit into {width}", place + 1)
            }
        }
    }
}

impl std::error::Error for SearchError {}

/// Distinct values, ascending, at least one and at most [`MAX_VALUES`].
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) values: Vec<u64>,
    pub(crate) width: Width,
}

impl Set {
    /// Checks the list. Without a width, uses the narrowest that holds the greatest value.
    pub(crate) fn new(list: &[u64], width: Option<Width>) -> Result<Self, SearchError> {
        let greatest = list.iter().max().ok_or(SearchError::Empty)?;
        if let Some(value) = list.get(MAX_VALUES) {
            return Err(SearchError::TooMany { count: list.len(), value: *value });
        }
        let width = width.unwrap_or_else(|| Width::of(*greatest));
        let mut seen = HashMap::with_capacity(list.len());
        for (place, &value) in list.iter().enumerate() {
            if value > width.greatest() {
                return Err(SearchError::TooWide { value, place, width });
            }
            if let Some(first) = seen.insert(value, place) {
                return Err(SearchError::Duplicate { value, first, place });
            }
        }
        let mut values = list.to_vec();
        values.sort_unstable();
        Ok(Self { values, width })
    }
}
