//! Schemas: the kind of record in a file.

use std::fmt;
use std::str::FromStr;

use crate::error::{StoreError, list};

/// The kind of record in a file, with DBN's names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Schema {
    /// Every order and trade (market by order).
    Mbo,
    /// Every change of a venue's best bid or offer, and every trade.
    Mbp1,
    /// Every change within a venue's ten best levels, and every trade.
    Mbp10,
    /// Best bid and offer and last trade, for each second with a change.
    Bbo1S,
    /// Best bid and offer and last trade, for each minute with a change.
    Bbo1M,
    /// Every trade, with its venue's best bid and offer right before it.
    Tbbo,
    /// Every trade.
    Trades,
    /// Every change of the synthetic NBBO, and every trade.
    Cmbp1,
    /// Synthetic NBBO and last trade, for each second with a change.
    Cbbo1S,
    /// Synthetic NBBO and last trade, for each minute with a change.
    Cbbo1M,
    /// Every change of a trading state.
    Status,
    /// Every auction imbalance.
    Imbalance,
    /// Every instrument definition.
    Definition,
    /// Every price band of a SIP.
    Statistics,
    /// Open, high, low, close and volume, for each second with a trade.
    Ohlcv1S,
    /// The same for each minute.
    Ohlcv1M,
    /// The same for each hour.
    Ohlcv1H,
    /// The same for each UTC day.
    Ohlcv1D,
}

impl Schema {
    /// Every schema.
    pub const ALL: [Self; 18] = [
        Self::Mbo,
        Self::Mbp1,
        Self::Mbp10,
        Self::Bbo1S,
        Self::Bbo1M,
        Self::Tbbo,
        Self::Trades,
        Self::Cmbp1,
        Self::Cbbo1S,
        Self::Cbbo1M,
        Self::Status,
        Self::Imbalance,
        Self::Definition,
        Self::Statistics,
        Self::Ohlcv1S,
        Self::Ohlcv1M,
        Self::Ohlcv1H,
        Self::Ohlcv1D,
    ];

    /// Returns the name that DBN and the command line use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mbo => "mbo",
            Self::Mbp1 => "mbp-1",
            Self::Mbp10 => "mbp-10",
            Self::Bbo1S => "bbo-1s",
            Self::Bbo1M => "bbo-1m",
            Self::Tbbo => "tbbo",
            Self::Trades => "trades",
            Self::Cmbp1 => "cmbp-1",
            Self::Cbbo1S => "cbbo-1s",
            Self::Cbbo1M => "cbbo-1m",
            Self::Status => "status",
            Self::Imbalance => "imbalance",
            Self::Definition => "definition",
            Self::Statistics => "statistics",
            Self::Ohlcv1S => "ohlcv-1s",
            Self::Ohlcv1M => "ohlcv-1m",
            Self::Ohlcv1H => "ohlcv-1h",
            Self::Ohlcv1D => "ohlcv-1d",
        }
    }

    /// Returns whether the records have prices of a book or the NBBO, or the depth of a trade, so that price levels must be
    /// built from orders.
    pub const fn needs_levels(self) -> bool {
        match self {
            Self::Mbp1
            | Self::Mbp10
            | Self::Bbo1S
            | Self::Bbo1M
            | Self::Tbbo
            | Self::Trades
            | Self::Cmbp1
            | Self::Cbbo1S
            | Self::Cbbo1M => true,
            Self::Mbo
            | Self::Status
            | Self::Imbalance
            | Self::Definition
            | Self::Statistics
            | Self::Ohlcv1S
            | Self::Ohlcv1M
            | Self::Ohlcv1H
            | Self::Ohlcv1D => false,
        }
    }

    /// Returns whether the records are computed across venues.
    pub const fn is_consolidated(self) -> bool {
        matches!(self, Self::Cmbp1 | Self::Cbbo1S | Self::Cbbo1M)
    }

    /// Returns the width in ns of the intervals with one record each; `None` for a schema that follows events.
    pub const fn interval_ns(self) -> Option<u64> {
        match self {
            Self::Bbo1S | Self::Cbbo1S | Self::Ohlcv1S => Some(1_000_000_000),
            Self::Bbo1M | Self::Cbbo1M | Self::Ohlcv1M => Some(60_000_000_000),
            Self::Ohlcv1H => Some(3_600_000_000_000),
            Self::Ohlcv1D => Some(86_400_000_000_000),
            _ => None,
        }
    }

    /// Returns DBN's record type for the schema.
    pub fn rtype(self) -> u8 {
        dbn::RType::from(self.to_dbn()) as u8
    }

    /// Returns whether the two schemas share a record type, so that their records look the same.
    pub fn has_records_of(self, other: Self) -> bool {
        self.rtype() == other.rtype()
    }

    pub(crate) const fn to_dbn(self) -> dbn::Schema {
        match self {
            Self::Mbo => dbn::Schema::Mbo,
            Self::Mbp1 => dbn::Schema::Mbp1,
            Self::Mbp10 => dbn::Schema::Mbp10,
            Self::Bbo1S => dbn::Schema::Bbo1S,
            Self::Bbo1M => dbn::Schema::Bbo1M,
            Self::Tbbo => dbn::Schema::Tbbo,
            Self::Trades => dbn::Schema::Trades,
            Self::Cmbp1 => dbn::Schema::Cmbp1,
            Self::Cbbo1S => dbn::Schema::Cbbo1S,
            Self::Cbbo1M => dbn::Schema::Cbbo1M,
            Self::Status => dbn::Schema::Status,
            Self::Imbalance => dbn::Schema::Imbalance,
            Self::Definition => dbn::Schema::Definition,
            Self::Statistics => dbn::Schema::Statistics,
            Self::Ohlcv1S => dbn::Schema::Ohlcv1S,
            Self::Ohlcv1M => dbn::Schema::Ohlcv1M,
            Self::Ohlcv1H => dbn::Schema::Ohlcv1H,
            Self::Ohlcv1D => dbn::Schema::Ohlcv1D,
        }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Schema {
    type Err = StoreError;

    fn from_str(name: &str) -> Result<Self, StoreError> {
        Self::ALL.into_iter().find(|schema| schema.as_str() == name).ok_or_else(|| {
            StoreError::UnknownSchema {
                name: name.to_owned(),
                expected: list(Self::ALL.iter().map(|schema| schema.as_str())),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_found_by_its_name_and_named_as_dbn_names_it() {
        for schema in Schema::ALL {
            assert_eq!(schema.as_str().parse::<Schema>().unwrap(), schema);
            assert_eq!(schema.to_dbn().as_str(), schema.as_str());
        }
    }

    #[test]
    fn the_error_of_an_unknown_schema_lists_the_known_ones() {
        let message = "mbp-2".parse::<Schema>().unwrap_err().to_string();
        assert!(message.contains("mbp-2") && message.contains("mbp-10"), "{message}");
    }
}
