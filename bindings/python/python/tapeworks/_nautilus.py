"""Records into a catalogue of nautilus_trader.

The package's own types are made and its own catalogue writes them, so that files and precision are those of the installed version. That
costs some 20 us a record, and each record is an object in memory meanwhile.
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

Rows = Iterator[Tuple[Any, ...]]


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

    def price(self, price_e9: int, instrument_id: Any) -> int:
        """As nautilus_trader has it; it must be a whole number of the last digit."""
        if price_e9 % 10 ** (MOST_DIGITS - self.digits):
            text = f"{price_e9 / UNITS:.9f}".rstrip("0")
            raise UsageError(f"{instrument_id}: the price {text} has more than {self.digits} digits: give price_precision=")
        return price_e9 * self.price_scale

    def size(self, shares: int) -> int:
        return shares * self.size_scale

    def check(self, made: List[Any], instrument_id: Any) -> None:
        """Records of one type and instrument replace others of the same first and last time. Of other times they may not overlap."""
        times = (made[0].ts_init, made[-1].ts_init)
        for begin, end in self.files.get_intervals(type(made[0]), str(instrument_id)):
            if (begin, end) != times and begin <= times[1] and times[0] <= end:
                kind = type(made[0]).__name__
                raise UsageError(f"{instrument_id}: the catalogue has a {kind} of these times already ({begin} to {end} ns)")

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


def _deltas(to: _Catalogue, instrument_id: Any, rows: Rows) -> List[Any]:
    actions = to.enums.BookAction
    kinds = {"A": actions.ADD, "M": actions.UPDATE, "C": actions.DELETE, "R": actions.CLEAR}
    sides = {"B": to.enums.OrderSide.BUY, "A": to.enums.OrderSide.SELL}
    none = to.enums.OrderSide.NO_ORDER_SIDE
    make = to.data.OrderBookDelta.from_raw
    left: Dict[int, int] = {}
    unknown = 0
    found: List[Tuple[Any, ...]] = []
    for kind, letter, price_e9, size, order, flags, *moment in rows:
        action = kinds.get(kind)
        if action is None:
            # Trades and fills move nothing; the event ends with what came before them.
            if flags & LAST and found:
                found[-1] = (*found[-1][:8], found[-1][8] | LAST, *found[-1][9:])
            continue
        if kind in "AM":
            left[order] = size
        elif kind == "C":
            # A deletion removes the whole order: one that leaves a part is an update.
            unknown += order not in left
            rest = left.pop(order, 0) - size
            if rest > 0:
                left[order], action, size = rest, actions.UPDATE, rest
        else:
            left.clear()
        if kind == "R":
            size, price = 0, 0
        else:
            size, price = to.size(size), to.price(price_e9, instrument_id)
        side = sides.get(letter, none)
        found.append((instrument_id, action, side, price, to.digits, size, 0, order or 0, flags, *moment))
    if unknown:
        text = f"{instrument_id}: {unknown:,} cancellations are of orders that no record has added: the book lacks those (read without start=)"
        warnings.warn(DataWarning(text), stacklevel=4)
    return [make(*delta) for delta in found]


def _quotes(to: _Catalogue, instrument_id: Any, rows: Rows) -> List[Any]:
    make = to.data.QuoteTick.from_raw
    found, left_out = [], 0
    for action, bid, ask, bid_size, ask_size, *times in rows:
        # A trade stands with the quotes before it, which have come.
        if action == "T":
            continue
        if bid is None or ask is None:
            left_out += 1
            continue
        prices, sizes = (to.price(bid, instrument_id), to.price(ask, instrument_id)), (to.size(bid_size), to.size(ask_size))
        found.append(make(instrument_id, *prices, to.digits, to.digits, *sizes, 0, 0, *times))
    if left_out:
        text = f"{instrument_id}: {left_out:,} quotes without a bid or an offer are left out: a QuoteTick has both"
        warnings.warn(DataWarning(text), stacklevel=4)
    return found


def _trades(to: _Catalogue, instrument_id: Any, rows: Rows) -> List[Any]:
    sides = {"B": to.enums.AggressorSide.BUYER, "A": to.enums.AggressorSide.SELLER}
    none = to.enums.AggressorSide.NO_AGGRESSOR
    make, trade_id = to.data.TradeTick.from_raw, to.ids.TradeId
    found: List[Any] = []
    last, repeats = None, 0
    for letter, price_e9, shares, sequence, *times in rows:
        # Several trades of one message share its number.
        repeats = repeats + 1 if sequence == last else 0
        last = sequence
        name = trade_id(f"{last}-{repeats}" if repeats else str(last))
        price, size = to.price(price_e9, instrument_id), to.size(shares)
        found.append(make(instrument_id, price, to.digits, size, 0, sides.get(letter, none), name, *times))
    return found


MAKERS: Dict[str, Callable[[_Catalogue, Any, Rows], List[Any]]] = {
    "OrderBookDelta": _deltas,
    "QuoteTick": _quotes,
    "TradeTick": _trades,
}
COLUMNS = {
    "OrderBookDelta": ("action", "side", "price", "size", "order_id", "flags", "sequence", "ts_event", "ts_init"),
    "QuoteTick": ("action", "bid_px_00", "ask_px_00", "bid_sz_00", "ask_sz_00", "ts_event", "ts_init"),
    "TradeTick": ("side", "price", "size", "sequence", "ts_event", "ts_init"),
    "Equity": ("min_lot_size_round_lot",),
}


def _values(column: Any) -> List[Any]:
    """A column as a list, times in ns."""
    import numpy
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.unify_dictionaries().combine_chunks()
        names = numpy.array([*column.dictionary.to_pylist(), None], object)
        found: List[Any] = names[column.indices.fill_null(len(names) - 1).to_numpy()].tolist()
        return found
    if pyarrow.types.is_timestamp(column.type):
        column = column.cast("int64")
    if column.null_count == 0 and not pyarrow.types.is_decimal(column.type):
        found = column.to_numpy().tolist()
        return found
    found = column.to_pylist()
    return found


def _column(table: Any, name: str, schema: str) -> List[Any]:
    """What a record of the catalogue has of ours. Prices are in units of 1e-9."""
    import numpy
    import pyarrow

    if name == "ts_event" and "bbo-" in schema:
        # Its own time is that of the interval's last trade, and the quote is that of the interval's end.
        name = "ts_recv"
    if name == "ts_init":
        # What waited behind a gap may have an earlier time than what came before it; the catalogue takes none that steps back.
        times = numpy.array(_values(table["ts_recv"]), "int64")
        found: List[Any] = numpy.maximum.accumulate(times).tolist() if len(times) else []
        return found
    if name == "sequence" and "channel_sequence" in table.column_names:
        name = "channel_sequence"
    if name not in table.column_names:
        # What stems from no one message has no action.
        return [None] * len(table)
    values = _values(table[name])
    if (name == "price" or name.endswith("_px_00")) and not pyarrow.types.is_integer(table[name].type):
        return [None if price is None else round(price * UNITS) for price in values]
    return values


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
    is_consolidated = schema.startswith("c")
    places: Dict[Any, List[int]] = {}
    for at, key in enumerate(zip(_values(table["symbol"]), _values(table["publisher_id"]))):
        # The NBBO is one instrument, whichever venue moved it.
        places.setdefault((key[0], 0) if is_consolidated else key, []).append(at)
    columns = [_column(table, name, schema) for name in COLUMNS[kind]]
    known = {instrument.id: instrument for instrument in to.files.instruments()}
    ids = {(symbol, publisher): to.id_of(symbol, publisher, is_consolidated) for symbol, publisher in places}
    publishers: Dict[Any, int] = {}
    for (_, publisher), instrument_id in ids.items():
        before = publishers.setdefault(instrument_id, publisher)
        if before != publisher:
            both = " and ".join(f"{VENUES.get(one, one)}" for one in (before, publisher))
            raise UsageError(f"{instrument_id} would have the records of {both}: leave venue= out, or read a capture of one venue")
        if instrument_id in known and known[instrument_id].price_precision != to.digits:
            digits = known[instrument_id].price_precision
            raise UsageError(f"{instrument_id}: the catalogue has it with {digits} digits: give price_precision={digits}")
    # All is made and checked before the first is written: an error leaves the catalogue as it was.
    written: Dict[str, int] = {}
    found: List[List[Any]] = []
    for key, rows in places.items():
        instrument_id = ids[key]
        if kind == "Equity":
            found.append([to.instrument(instrument_id, columns[0][rows[-1]] or ROUND_LOT)])
            written[str(instrument_id)] = 1
            continue
        made = MAKERS[kind](to, instrument_id, zip(*([column[at] for at in rows] for column in columns)))
        if made:
            to.check(made, instrument_id)
            if instrument_id not in known:
                found.append([to.instrument(instrument_id, ROUND_LOT)])
            found.append(made)
        written[str(instrument_id)] = len(made)
    for records in found:
        to.files.write_data(records)
    return written
