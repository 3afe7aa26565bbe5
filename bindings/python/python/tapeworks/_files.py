"""What the commands of the same names do."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence, Union

from . import _native
from ._reader import Path, Time, names_of, ns_of, paths_of

__all__ = ["dump", "generate", "stats", "study"]


def dump(
    paths: Union[Path, Iterable[Path]],
    *,
    symbols: Union[str, Sequence[str], None] = None,
    messages: Union[str, Sequence[str], None] = None,
    protocol: Optional[str] = None,
    limit: Optional[int] = None,
) -> Iterator[Dict[str, Any]]:
    """Every message of captures, field by field, as ``tapeworks dump --json`` has it: a dictionary each.

    Args:
        paths: One file or several.
        symbols: Only what is about these.
        messages: Only messages of these names of the schema.
        protocol: The protocol, instead of recognising it.
        limit: The most messages.

    Raises:
        InputError: A file cannot be read, or, at the end, was found damaged.
    """
    return _native.dump(
        paths_of(paths), symbols=names_of(symbols), messages=names_of(messages), protocol=protocol, limit=limit
    )


def stats(paths: Union[Path, Iterable[Path]], *, protocol: Optional[str] = None, top: int = 10) -> Dict[str, Any]:
    """What is in captures (contents, rates, gaps), as ``tapeworks stats --json`` has it. ``top``: so many busiest symbols."""
    return _native.stats(paths_of(paths), protocol=protocol, top=top)


def study(
    paths: Union[Path, Iterable[Path]],
    service_ns: Union[int, Sequence[int]],
    *,
    window_ns: Optional[int] = None,
    start: Optional[Time] = None,
    end: Optional[Time] = None,
    protocol: Optional[str] = None,
) -> Dict[str, Any]:
    """How long the queue before an engine of these service times (ns a message) would have become, as ``tapeworks study --json``."""
    service = [service_ns] if isinstance(service_ns, int) else list(service_ns)
    return _native.study(
        paths_of(paths), service, window_ns=window_ns, start=ns_of(start), end=ns_of(end), protocol=protocol
    )


def generate(
    path: Path,
    *,
    scenario: str = "demo",
    messages: Optional[int] = None,
    symbols: Optional[int] = None,
    venues: Union[str, Sequence[str]] = (),
    seed: Optional[int] = None,
    date: Optional[str] = None,
    line_b: bool = False,
    loss: int = 0,
    duplicates: int = 0,
    reorder: int = 0,
    late_copies: int = 0,
    days: int = 1,
    restarts: int = 0,
    announced: bool = True,
    overwrite: bool = False,
) -> Dict[str, Any]:
    """Generates a trading session: the same seed gives the same bytes. Arguments as of ``tapeworks exchange generate``.

    ``line_b`` sends every packet on line B too. ``loss``, ``duplicates``, ``reorder`` and ``late_copies`` are faults of each
    line, in packets per million. ``days`` is the number of trading days in the capture, and ``restarts`` how often in a day all
    feeds fail and start their numbers over; with ``announced=False`` no message says that they do.

    Returns:
        ``messages``, ``packets``, ``bytes``, ``first_ns`` and ``last_ns``.
    """
    return _native.generate(
        os.fspath(path),
        scenario=scenario,
        messages=messages,
        symbols=symbols,
        venues=names_of(venues) or [],
        seed=seed,
        date=date,
        line_b=line_b,
        loss=loss,
        duplicates=duplicates,
        reorder=reorder,
        late_copies=late_copies,
        days=days,
        restarts=restarts,
        announced=announced,
        overwrite=overwrite,
    )
