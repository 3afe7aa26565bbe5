"""Readers: captures to record batches, data frames and files."""

from __future__ import annotations

import datetime
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

from . import _gather, _native
from ._types import Errors, Prices, Schema, Stale

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Path = Union[str, "os.PathLike[str]"]
Time = Union[int, str, datetime.datetime]

__all__ = ["Path", "Reader", "Time", "read"]


def paths_of(paths: Union[Path, Iterable[Path]]) -> List[str]:
    """One path or several, as a list."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    return [os.fspath(path) for path in paths]


def names_of(names: Union[str, Iterable[str], None]) -> Optional[List[str]]:
    """One name, several with commas or in a list, or none."""
    if names is None:
        return None
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    return list(names)


def ns_of(time: Optional[Time]) -> Optional[int]:
    """A time in ns since 1970 UTC. Text and a ``datetime`` must have a zone: the rule of the command line."""
    if time is None or isinstance(time, int):
        return time
    if isinstance(time, str):
        return _native.instant(time)
    if not isinstance(time, datetime.datetime):
        raise _usage(f"{time!r} is no time: use ns since 1970 UTC, ISO 8601 with a zone, or a datetime with a zone")
    if time.tzinfo is None:
        raise _usage(f"{time!r} has no zone: give it a tzinfo, such as datetime.timezone.utc or ZoneInfo('America/New_York')")
    since = time - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    ns = ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000
    # A timestamp of pandas has nanoseconds besides.
    return ns + int(getattr(time, "nanosecond", 0))


def _usage(text: str) -> Exception:
    from .errors import UsageError

    return UsageError(text)


def _dollars(column: Any) -> Any:
    """Prices of any form as floats; what is absent is not a number."""
    import numpy
    import pyarrow

    if pyarrow.types.is_decimal(column.type):
        # Its own cast does not give the nearest float.
        return numpy.array([float("nan") if price is None else float(price) for price in column.to_pylist()])
    prices = column.to_numpy(zero_copy_only=False)
    return prices / 1e9 if pyarrow.types.is_integer(column.type) else prices


def _modify_in_part(events: Any, hftbacktest: Any) -> None:
    """Makes modifications of the cancellations that leave a part of their orders."""
    add, cancel, modify, clear = (
        getattr(hftbacktest, f"{kind}_EVENT") for kind in ("ADD_ORDER", "CANCEL_ORDER", "MODIFY_ORDER", "DEPTH_CLEAR")
    )
    left: Dict[int, float] = {}
    kinds = (events["ev"] & 0xFF).tolist()
    for at, (kind, order, size) in enumerate(zip(kinds, events["order_id"].tolist(), events["qty"].tolist())):
        if kind in (add, modify):
            left[order] = size
        elif kind == cancel:
            rest = left.pop(order, 0.0) - size
            if rest > 0:
                left[order] = rest
                events["ev"][at] += modify - cancel
                events["qty"][at] = rest
        elif kind == clear:
            left.clear()


def _bar(wanted: Optional[bool]) -> Any:
    """A progress bar of tqdm: where a person sees it unless ``wanted`` says otherwise, and only where tqdm is there."""
    if wanted is None:
        wanted = sys.stderr is not None and sys.stderr.isatty()
    if not wanted:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(unit="B", unit_scale=True, unit_divisor=1000, delay=0.5)


class Reader(_native.Reader):
    """The records of captures.

    A reader can be iterated (a :class:`Record` each), taken by anything that speaks the Arrow PyCapsule interface
    (``pyarrow.table(reader)``, ``polars.DataFrame(reader)``, DuckDB), or asked for a data frame or a file. It reads once: what asks
    for a table or a frame after the end gets a ``UsageError``. One thread at a time may use it.

    Sizes are unsigned, as Databento's are: ``size`` is ``uint32``. Cast before subtracting (``frame["size"].astype("int64")``): the
    difference of two unsigned columns wraps around below 0.
    """

    def batches(self, *, progress: Optional[bool] = None) -> Iterator["pyarrow.RecordBatch"]:
        """The record batches, of 8,192 records or some more, one by one (needs pyarrow)."""
        import pyarrow

        if self.is_over:
            raise _usage("this reader is exhausted: call tapeworks.read again")
        bar = _bar(progress)
        try:
            while True:
                batch = self.next_batch()
                if bar is not None:
                    done, total, _ = self.progress
                    bar.total = total
                    bar.update(done - bar.n)
                if batch is None:
                    return
                yield pyarrow.record_batch(batch)
        finally:
            if bar is not None:
                bar.close()

    def to_arrow(self, *, progress: Optional[bool] = None) -> "pyarrow.Table":
        """All records as a table of pyarrow."""
        import pyarrow

        schema = pyarrow.schema(self)
        return pyarrow.Table.from_batches(self.batches(progress=progress), schema)

    def _expected(self, rows: int) -> int:
        """How many rows all will have, if the rest of the files is like what has come: some more, and at most 64 times as many."""
        done, total, _ = self.progress
        return min(int(rows * 1.05 * total / done), 64 * rows) if total and done else 0

    def to_df(self, *, progress: Optional[bool] = None, index: Optional[str] = None) -> "pandas.DataFrame":
        """All records as a data frame of pandas. ``index``: the column to index by, such as ``ts_recv``.

        Symbols and letters are categories, times are UTC, and prices are as ``prices`` of :func:`read` says.
        """
        import pyarrow

        frame = _gather.frame(pyarrow.schema(self), self.batches(progress=progress), self._expected)
        return frame if index is None else frame.set_index(index)

    def to_polars(self, *, progress: Optional[bool] = None) -> "polars.DataFrame":
        """All records as a data frame of Polars."""
        import polars

        frame = polars.from_arrow(self.to_arrow(progress=progress))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_parquet(self, path: Path, *, overwrite: bool = False) -> Any:
        """Writes the records to a Parquet file, without pyarrow. Returns the summary."""
        return self.write(os.fspath(path), overwrite=overwrite, format="parquet")

    def to_hftbacktest(self, path: Optional[Path] = None, *, base_latency: int = 0) -> Any:
        """The orders of one symbol at one venue as events of hftbacktest: an array of its ``event_dtype``, for its L3 backtests.

        Needs hftbacktest, whose own functions order the events and keep local times behind the exchange's. What leaves a part of an
        order is a modification there, with the part that is left: a cancellation removes the whole.

        Args:
            path: A file to write it to (``.npz``), which hftbacktest reads.
            base_latency: The least feed latency in ns, where the capture's clock is behind the venue's.

        Raises:
            UsageError: The records are not ``mbo``, or of several symbols or venues, whose order numbers would mix.
        """
        if self.schema != "mbo":
            raise _usage(f"hftbacktest takes orders: read mbo, not {self.schema}")
        hftbacktest: Any = importlib.import_module("hftbacktest")
        data: Any = importlib.import_module("hftbacktest.data")
        import numpy

        table = self.to_arrow()
        for name, what in (("symbol", "symbols"), ("publisher_id", "venues")):
            found = table[name].unique().to_pylist()
            if len(found) > 1:
                raise _usage(f"the records are of {len(found)} {what}: read one at a time")
        kinds = {
            "A": hftbacktest.ADD_ORDER_EVENT,
            "C": hftbacktest.CANCEL_ORDER_EVENT,
            "M": hftbacktest.MODIFY_ORDER_EVENT,
            "R": hftbacktest.DEPTH_CLEAR_EVENT,
            "T": hftbacktest.TRADE_EVENT,
            "F": hftbacktest.FILL_EVENT,
        }
        sides = {"B": hftbacktest.BUY_EVENT, "A": hftbacktest.SELL_EVENT}
        events: Any = numpy.zeros(len(table), hftbacktest.types.event_dtype)
        for batch in table.combine_chunks().to_batches():
            codes = {}
            for name, numbers in (("action", kinds), ("side", sides)):
                column = batch[name]
                known = [numbers.get(text, 0) for text in column.dictionary.to_pylist()]
                codes[name] = numpy.array([*known, 0], "u8")[column.indices.fill_null(len(known)).to_numpy()]
            # Records without an action that moves an order or trades ("N") have no event.
            events["ev"] = numpy.where(codes["action"] > 0, codes["action"] | codes["side"], 0)
            events["exch_ts"] = batch["ts_event"].cast("int64").to_numpy(zero_copy_only=False)
            events["local_ts"] = batch["ts_recv"].cast("int64").to_numpy(zero_copy_only=False)
            events["px"] = _dollars(batch["price"])
            events["qty"] = batch["size"].to_numpy()
            events["order_id"] = batch["order_id"].to_numpy()
            events["ival"] = batch["flags"].to_numpy()
        events = events[events["ev"] > 0]
        _modify_in_part(events, hftbacktest)
        events = data.correct_local_timestamp(events, base_latency)
        by_exchange = numpy.argsort(events["exch_ts"], kind="stable")
        by_receipt = numpy.argsort(events["local_ts"], kind="stable")
        events = data.correct_event_order(events, by_exchange, by_receipt)
        data.validate_event_order(events)
        if path is not None:
            numpy.savez_compressed(os.fspath(path), data=events)
        return events

    def to_nautilus(self, catalog: Path, *, price_precision: int = 4, venue: Optional[str] = None) -> Dict[str, int]:
        """Writes the records to a catalogue of nautilus_trader (its ``ParquetDataCatalog``). Returns how many, by instrument.

        Orders (``mbo``) become order book deltas, ``mbp-1``, ``cmbp-1``, ``bbo-*`` and ``cbbo-*`` quote ticks, ``trades`` trade
        ticks, and ``definition`` equities with their round lots. An instrument that is not in the catalogue yet is written too, with a
        round lot of 100. Instruments are ``AAPL.XNAS``; those of the NBBO ``AAPL.NBBO``. ``ts_init`` is the receive time.

        Args:
            catalog: Its folder.
            price_precision: Digits behind the point of all prices. US stocks have at most 4.
            venue: The venue of all instruments, instead of the market identifier code of each feed.

        Raises:
            UsageError: The catalogue has nothing of the schema's kind, a price has more digits, the catalogue has an instrument with other
                digits or records of these times, or ``venue`` would make one instrument of several. Nothing is written then.
        """
        from ._nautilus import write

        return write(self, catalog, price_precision=price_precision, venue=venue)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(
    paths: Union[Path, Iterable[Path]],
    schema: Schema = "mbo",
    *,
    symbols: Union[str, Sequence[str], None] = None,
    start: Optional[Time] = None,
    end: Optional[Time] = None,
    prices: Prices = "float",
    protocol: Optional[str] = None,
    venue: Optional[str] = None,
    date: Optional[str] = None,
    stale: Stale = "flag",
    odd_lots: bool = False,
    limit: Optional[int] = None,
    threads: Optional[int] = None,
    errors: Errors = "warn",
) -> Reader:
    """Reads captures (pcap, pcapng) and message files (ITCH, SoupBinTCP), plain, gzip or zstd, merged by time.

    Args:
        paths: One file or several.
        schema: What the records are, by DBN's names; ``tapeworks.SCHEMAS`` has all.
        symbols: Only these: a list, or text with commas.
        start: The first receive time whose records come: ns since 1970 UTC, or ISO 8601 or a ``datetime`` with a zone. Books are built from
            the beginning all the same.
        end: The receive time at which reading ends.
        prices: ``float`` (dollars), ``decimal`` (exact, ``decimal128(18, 9)``) or ``fixed`` (integers of 1e-9 dollars).
        protocol: The protocol, instead of recognising it.
        venue: The venue of a protocol that several speak, instead of deriving it from the multicast group.
        date: The day in New York of files whose day cannot be found in name or content.
        stale: Whether venues with a gap are flagged in the NBBO (``flag``) or left out until recovered (``exclude``).
        odd_lots: Whether odd lots count in the NBBO at their own prices.
        limit: The most messages to take.
        threads: As ``--threads`` of ``tapeworks replay``.
        errors: What happens at the end where messages are missing or cannot be read: ``warn`` (:class:`DataWarning`), ``raise``
            (:class:`DataError`) or ``ignore``, once. The records that could be read come before it (``to_df`` and the like, which
            give all at once, give none with ``raise``), and the reader's ``summary`` says what was lost.

    Raises:
        InputError: A file cannot be read at all.
        UsageError: An argument is wrong.
    """
    return Reader(
        paths_of(paths),
        schema,
        symbols=names_of(symbols),
        start=ns_of(start),
        end=ns_of(end),
        prices=prices,
        protocol=protocol,
        venue=venue,
        date=date,
        stale=stale,
        odd_lots=odd_lots,
        limit=limit,
        threads=threads,
        errors=errors,
    )
