"""The names that arguments take, for editors and type checkers."""

from typing import Literal

__all__ = ["Errors", "Prices", "Schema", "Stale"]

#: The schemas of files, by DBN's names.
Schema = Literal[
    "mbo",
    "mbp-1",
    "mbp-10",
    "bbo-1s",
    "bbo-1m",
    "tbbo",
    "trades",
    "cmbp-1",
    "cbbo-1s",
    "cbbo-1m",
    "status",
    "imbalance",
    "definition",
    "statistics",
    "ohlcv-1s",
    "ohlcv-1m",
    "ohlcv-1h",
    "ohlcv-1d",
]

#: The form of prices: dollars, exact decimals, or integers of 1e-9 dollars.
Prices = Literal["float", "decimal", "fixed"]

#: What happens when part of the input is missing or cannot be read.
Errors = Literal["warn", "raise", "ignore"]

#: Whether venues with a gap are flagged in the NBBO or excluded until they recover.
Stale = Literal["flag", "exclude"]
