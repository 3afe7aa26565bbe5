"""Records into a catalogue of nautilus_trader.

The package's own types are made and its own catalogue writes them, so that files and precision are those of the installed version. That
costs some microseconds a record.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ._native import VENUES
from .errors import DataWarning, UsageError

__all__ = ["SCHEMAS", "write"]

#: What becomes of the records of a schema.
SCHEMAS = {
    "mbo": "OrderBookDelta",
    "mbp-1": "QuoteTick",
    "cmbp-1": "QuoteTick",
    "bbo-1s": "QuoteTick",
    "bbo-1m": "QuoteTick",
    "cbbo-1s": "QuoteTick",
    "cbbo-1m": "QuoteTick",
    "trades": "TradeTick",
    "definition": "Equity",
}
#: Units of a dollar in the prices that are read.
UNITS = 10**9
#: The most digits behind the point of a price in units of 1e-9.
MOST_DIGITS = 9
#: The bit of flags of the last record of a venue's event, for nautilus_trader as for DBN.
LAST = 0x80
#: The round lot of an instrument of which no definition is in the catalogue, in shares.
ROUND_LOT = 100

Row = Dict[str, Any]


class _Catalogue:
    """What nautilus_trader has for us, and how prices are written for it."""

    def __init__(self, path: str, digits: int, venue: Optional[str]) -> None:
        def module(name: str) -> Any:
            return importlib.import_module(f"nautilus_trader.{name}")

        self.data, self.enums = module("model.data"), module("model.enums")
        self.ids, self.objects = module("model.identifiers"), module("model.objects")
        self.equity = module("model.instruments").Equity
        self.currency = self.objects.Currency.from_str("USD")
        self.files = module("persistence.catalog").ParquetDataCatalog(path)
        self.digits, self.venue = digits, venue
        # Its fixed point has 9 or 16 digits, as it was built.
        self.price_scale: int = self.objects.Price.from_str("1").raw // UNITS
        self.size_scale: int = self.objects.Quantity.from_int(1).raw

    def id_of(self, symbol: str, publisher: int, is_consolidated: bool) -> Any:
        mic = self.venue or ("NBBO" if is_consolidated else VENUES.get(publisher, f"P{publisher}"))
        return self.ids.InstrumentId(self.ids.Symbol(symbol), self.ids.Venue(mic))

    def price(self, price_e9: int) -> int:
        """As nautilus_trader has it; it must be a whole number of the last digit."""
        if price_e9 % 10 ** (MOST_DIGITS - self.digits):
            text = f"{price_e9 / UNITS:.9f}".rstrip("0")
            raise UsageError(f"the price {text} has more than {self.digits} digits: give price_precision=")
        return price_e9 * self.price_scale

    def size(self, shares: int) -> int:
        return shares * self.size_scale

    def add(self, made: List[Any], instrument_id: Any) -> None:
        """Writes records of one type and instrument. Those of the same time replace others."""
        times = (made[0].ts_init, made[-1].ts_init)
        for begin, end in self.files.get_intervals(type(made[0]), str(instrument_id)):
            if (begin, end) != times and begin <= times[1] and times[0] <= end:
                kind = type(made[0]).__name__
                raise UsageError(f"{instrument_id}: the catalogue has a {kind} of these times already ({begin} to {end} ns)")
        self.files.write_data(made)

    def instrument(self, instrument_id: Any, lot: int) -> Any:
        # A cent is the tick of stocks of a dollar and more.
        digits = min(self.digits, 2)
        tick = f"{10**-digits:.{self.digits}f}"
        return self.equity(
            instrument_id=instrument_id,
            raw_symbol=instrument_id.symbol,
            currency=self.currency,
            price_precision=self.digits,
            price_increment=self.objects.Price.from_str(tick),
            lot_size=self.objects.Quantity.from_int(lot),
            # Any time of the data comes behind it.
            ts_event=0,
            ts_init=0,
        )


def _deltas(to: _Catalogue, instrument_id: Any, rows: Iterator[Row]) -> List[Any]:
    actions = to.enums.BookAction
    kinds = {"A": actions.ADD, "M": actions.UPDATE, "C": actions.DELETE, "R": actions.CLEAR}
    sides = {"B": to.enums.OrderSide.BUY, "A": to.enums.OrderSide.SELL}
    none = to.enums.OrderSide.NO_ORDER_SIDE
    make = to.data.OrderBookDelta.from_raw
    left: Dict[int, int] = {}
    found: List[Tuple[Any, ...]] = []
    for row in rows:
        kind, order, size = row["action"], row["order_id"], row["size"]
        action = kinds.get(kind)
        if action is None:
            # Trades and fills move nothing; the event ends with what came before them.
            if row["flags"] & LAST and found:
                found[-1] = (*found[-1][:8], found[-1][8] | LAST, *found[-1][9:])
            continue
        if kind in "AM":
            left[order] = size
        elif kind == "C":
            # A deletion removes the whole order: one that leaves a part is an update.
            rest = left.pop(order, 0) - size
            if rest > 0:
                left[order], action, size = rest, actions.UPDATE, rest
        else:
            left.clear()
        price = 0 if kind == "R" else to.price(row["price"])
        side = sides.get(row["side"], none)
        moment = (row["sequence"], row["ts_event"], row["ts_init"])
        size = 0 if kind == "R" else to.size(size)
        found.append((instrument_id, action, side, price, to.digits, size, 0, order or 0, row["flags"], *moment))
    return [make(*delta) for delta in found]


def _quotes(to: _Catalogue, instrument_id: Any, rows: Iterator[Row]) -> List[Any]:
    make = to.data.QuoteTick.from_raw
    found, left_out = [], 0
    for row in rows:
        # A trade stands with the quotes before it, which have come.
        if row.get("action") == "T":
            continue
        bid, ask = row["bid_px_00"], row["ask_px_00"]
        if bid is None or ask is None:
            left_out += 1
            continue
        sizes = to.size(row["bid_sz_00"]), to.size(row["ask_sz_00"])
        prices = to.price(bid), to.price(ask)
        found.append(
            make(instrument_id, *prices, to.digits, to.digits, *sizes, 0, 0, row["ts_event"], row["ts_init"])
        )
    if left_out:
        text = f"{instrument_id}: {left_out:,} quotes without a bid or an offer are left out: a QuoteTick has both"
        warnings.warn(DataWarning(text), stacklevel=5)
    return found


def _trades(to: _Catalogue, instrument_id: Any, rows: Iterator[Row]) -> List[Any]:
    sides = {"B": to.enums.AggressorSide.BUYER, "A": to.enums.AggressorSide.SELLER}
    none = to.enums.AggressorSide.NO_AGGRESSOR
    make, trade_id = to.data.TradeTick.from_raw, to.ids.TradeId
    found: List[Any] = []
    last, repeats = None, 0
    for row in rows:
        # Several trades of one message share its number.
        repeats = repeats + 1 if row["sequence"] == last else 0
        last = row["sequence"]
        name = trade_id(f"{last}-{repeats}" if repeats else str(last))
        side = sides.get(row["side"], none)
        price, size = to.price(row["price"]), to.size(row["size"])
        found.append(make(instrument_id, price, to.digits, size, 0, side, name, row["ts_event"], row["ts_init"]))
    return found


MAKERS: Dict[str, Callable[[_Catalogue, Any, Iterator[Row]], List[Any]]] = {
    "OrderBookDelta": _deltas,
    "QuoteTick": _quotes,
    "TradeTick": _trades,
}
COLUMNS = {
    "OrderBookDelta": ("action", "side", "price", "size", "order_id", "flags", "sequence", "ts_event", "ts_init"),
    "QuoteTick": ("action", "bid_px_00", "ask_px_00", "bid_sz_00", "ask_sz_00", "ts_event", "ts_init"),
    "TradeTick": ("side", "price", "size", "sequence", "ts_event", "ts_init"),
}


def _columns(table: Any) -> Dict[str, Any]:
    """The columns as numpy arrays or lists. Prices become units of 1e-9, times ns."""
    import numpy
    import pyarrow

    columns: Dict[str, Any] = {}
    for name in table.column_names:
        column = table[name]
        if name == "price" or name.endswith("_px_00"):
            prices = column.to_pylist()
            if not pyarrow.types.is_integer(column.type):
                prices = [None if price is None else round(price * UNITS) for price in prices]
            columns[name] = prices
        elif pyarrow.types.is_timestamp(column.type):
            columns[name] = column.cast("int64").to_numpy()
        else:
            columns[name] = column.to_pylist()
    if "channel_sequence" in columns:
        columns["sequence"] = columns.pop("channel_sequence")
    # What waited behind a gap may have an earlier time than what came before it; the catalogue takes none that steps back.
    columns["ts_init"] = numpy.maximum.accumulate(columns["ts_recv"]).tolist() if len(table) else []
    columns["ts_event"] = columns["ts_event"].tolist()
    return columns


def write(reader: Any, path: Any, *, price_precision: int, venue: Optional[str]) -> Dict[str, int]:
    """See :meth:`tapeworks.Reader.to_nautilus`."""
    schema = reader.schema
    kind = SCHEMAS.get(schema)
    if kind is None:
        raise UsageError(f"nautilus_trader's catalogue takes {', '.join(SCHEMAS)} from here, not {schema}")
    if not 0 <= price_precision <= MOST_DIGITS:
        raise UsageError(f"price_precision={price_precision}: a price has 0 to {MOST_DIGITS} digits")
    to = _Catalogue(os.fspath(path), price_precision, venue)
    table = reader.to_arrow()
    columns = _columns(table)
    places: Dict[Any, List[int]] = {}
    for at, key in enumerate(zip(columns["symbol"], columns["publisher_id"])):
        # The NBBO is one instrument, whichever venue moved it.
        places.setdefault((key[0], 0) if schema.startswith("c") else key, []).append(at)
    written: Dict[str, int] = {}
    known = {instrument.id for instrument in to.files.instruments()}
    for (symbol, publisher), rows in places.items():
        instrument_id = to.id_of(symbol, publisher, schema.startswith("c"))
        if kind == "Equity":
            lot = columns["min_lot_size_round_lot"][rows[-1]]
            to.files.write_data([to.instrument(instrument_id, lot or ROUND_LOT)])
            written[str(instrument_id)] = 1
            continue
        names = [name for name in COLUMNS[kind] if name in columns]
        lists = [columns[name] for name in names]
        made = MAKERS[kind](to, instrument_id, (dict(zip(names, (one[at] for one in lists))) for at in rows))
        if made:
            if instrument_id not in known:
                to.files.write_data([to.instrument(instrument_id, ROUND_LOT)])
            to.add(made, instrument_id)
        written[str(instrument_id)] = len(made)
    return written
