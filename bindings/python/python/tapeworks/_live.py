"""Records of a running plant."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncIterator, Callable, Iterator, Literal, Optional, Sequence, Union

from . import _native
from ._reader import Time, names_of, ns_of
from ._types import Prices
from .errors import LiveError, UsageError

__all__ = ["Live"]


class Live:
    """A session with a live server: a plant of ``tapeworks plant``, or another server of the DBN live protocol.

    Iterate it for records as they come, call :meth:`run` with a callback, or use ``async for``. When the connection breaks it
    connects again and asks for a replay from the last record's receive time on, so that nothing is lost as far as the server's
    history goes; what has come already is left out. What the server says of unknown symbols and of records that it left out for a slow
    reader is a :class:`DataWarning`.

    Args:
        address: Host and port. Several, as a list or text with commas, are servers with the same records, such as the two plants of a pair: it
            connects to the first that serves, and goes on at the next one.
        schema: The schemas, as a list or text with commas. Of two whose records look alike only one can be subscribed to.
        key: The key: 32 characters that begin with ``db-``. Unless given, the environment's ``TAPEWORKS_KEY``, or the key of
            ``tapeworks demo``.
        dataset: The dataset.
        symbols: Only these, at least one; ``None`` for all.
        start: Replay from this time.
        snapshot: Whether the current state comes first.
        slow_reader: What the server does where this end is slow: ``warn``, ``skip`` or ``conflate``.
        prices: As of :func:`tapeworks.read`.
        reconnect: Whether to connect again.
        attempts: How often an attempt is repeated, in a row and without a record, before it is given up: with 10 there are 11.
        pause: Seconds before the second attempt; it doubles up to 10.
        when_refused: What to do when every server refuses to replay the records since the session broke: ``stop`` with the last server's
            reason, or ``continue`` with the present. A :class:`DataWarning` then says from when to when records are missing.

    Raises:
        LiveError: The server refused, or cannot be reached any more.
    """

    def __init__(
        self,
        address: Union[str, Sequence[str]],
        schema: Union[str, Sequence[str]],
        *,
        key: Optional[str] = None,
        dataset: str = "TAPEWORKS.DEMO",
        symbols: Union[str, Sequence[str], None] = None,
        start: Optional[Time] = None,
        snapshot: bool = False,
        slow_reader: Optional[str] = None,
        prices: Prices = "float",
        reconnect: bool = True,
        attempts: int = 10,
        pause: float = 0.1,
        when_refused: Literal["stop", "continue"] = "stop",
    ) -> None:
        names = names_of(symbols)
        if names is not None and not names:
            raise UsageError("symbols: give None for all")
        self._native = _native.Live(
            names_of(address) or [],
            names_of(schema) or [],
            key=key or os.environ.get("TAPEWORKS_KEY") or _native.DEMO_KEY,
            dataset=dataset,
            symbols=names or [],
            start=ns_of(start),
            snapshot=snapshot,
            slow_reader=slow_reader,
            prices=prices,
            when_refused=when_refused,
        )
        self._reconnect = reconnect
        self._attempts = attempts
        self._pause = pause
        self._is_closed = False
        self._failed = 0
        #: How often it connected again.
        self.reconnects = 0

    @property
    def records(self) -> int:
        """Records received."""
        return self._native.records

    def close(self) -> None:
        """Ends the session. May be called from another thread: the reader ends within 0.1 s."""
        self._is_closed = True
        try:
            self._native.close()
        except RuntimeError:
            # Another thread reads: it ends the connection.
            pass

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _turn(self, take: Callable[[float], Any]) -> Any:
        """What ``take`` gives within a turn, with a new connection where the last one broke; ``None`` when nothing came."""
        before = self._native.records
        try:
            taken = take(0.1)
            if taken is not None:
                self._failed = 0
                return taken
            if not self._native.is_ended:
                return None
            error = LiveError(self._native.reason or "the server has ended the session")
        except LiveError as failure:
            error = failure
        if self._native.records > before:
            self._failed = 0
        if not self._reconnect or self._failed >= self._attempts or self._native.is_refused:
            raise error
        time.sleep(min(self._pause * 2**self._failed, 10.0))
        self._failed += 1
        self.reconnects += 1
        self._native.resume()
        return None

    def __iter__(self) -> Iterator[_native.Record]:
        while not self._is_closed:
            record = self._turn(self._native.next_record)
            if record is not None:
                yield record
        self._native.close()

    def batches(self) -> Iterator[Any]:
        """``(schema, batch)`` as they come, each batch a ``pyarrow.RecordBatch``: one record at light load, thousands in a rush."""
        import pyarrow

        while not self._is_closed:
            taken = self._turn(self._native.next_batch)
            if taken is not None:
                schema, batch = taken
                yield schema, pyarrow.record_batch(batch)
        self._native.close()

    def run(self, on_record: Callable[[_native.Record], Any], seconds: Optional[float] = None) -> int:
        """Calls ``on_record`` with each record, until :meth:`close` or for ``seconds``. Returns how many."""
        until = None if seconds is None else time.monotonic() + seconds
        count = 0
        while not self._is_closed and (until is None or time.monotonic() < until):
            record = self._turn(self._native.next_record)
            if record is not None:
                count += 1
                on_record(record)
        if self._is_closed:
            self._native.close()
        return count

    async def __aiter__(self) -> AsyncIterator[_native.Record]:
        """Records, without blocking the event loop: a thread waits for them."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "tapeworks-live") as waiting:
            try:
                while not self._is_closed:
                    # What is there is taken at once; the thread is only for waiting.
                    record = self._native.ready_record()
                    if record is None:
                        record = await loop.run_in_executor(waiting, self._turn, self._native.next_record)
                    if record is not None:
                        yield record
            finally:
                self._is_closed = True
                # Behind what the thread still does.
                waiting.submit(self._native.close)
