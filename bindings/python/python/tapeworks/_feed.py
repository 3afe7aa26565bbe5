"""Books and the synthetic NBBO while packets come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Optional, Sequence, Union

from . import _native
from ._reader import Path, Time, names_of, ns_of, paths_of
from ._types import Stale

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Feed"]


class Feed(_native.Feed):
    """Order books and the synthetic NBBO while packets come: of files, which are merged by time, or of the caller's.

    >>> feed = tapeworks.Feed("session.pcap.zst")
    >>> while feed.advance(until):
    ...     print(feed.nbbo("AAPL"), feed.book("AAPL", "XNAS", depth=5).bids)
    ...     until += 1_000_000_000

    Or packet by packet: ``feed.packet(payload, received_ns, "233.54.12.111:26477")``.

    Args:
        paths: Files for :meth:`advance`; none for packets of the caller's.
        symbols, protocol, venue, date, stale, odd_lots: As of :func:`tapeworks.read`.
    """

    def __new__(
        cls,
        paths: Union[Path, Iterable[Path]] = (),
        *,
        symbols: Union[str, Sequence[str], None] = None,
        protocol: Optional[str] = None,
        venue: Optional[str] = None,
        date: Optional[str] = None,
        stale: Stale = "flag",
        odd_lots: bool = False,
    ) -> "Self":
        return super().__new__(
            cls,
            paths_of(paths),
            symbols=names_of(symbols),
            protocol=protocol,
            venue=venue,
            date=date,
            stale=stale,
            odd_lots=odd_lots,
        )

    def advance(self, until: Optional[Time] = None) -> bool:
        """Takes the packets of the files that were received before ``until``, or all. ``False`` when they have ended.

        Raises:
            UsageError: ``until`` lies before :attr:`time`: a feed does not go back.
        """
        return super().advance(ns_of(until))
