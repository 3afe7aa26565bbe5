"""Exceptions and warnings, with the place that they are about."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Optional

__all__ = [
    "DataError",
    "DataWarning",
    "Error",
    "ExecutorError",
    "InputError",
    "LiveError",
    "OutputError",
    "StreamError",
    "UsageError",
]


class Error(Exception):
    """Any error of this package.

    Attributes:
        path: The file, if it is about one.
        packet: The number of the packet or message in the file, from 1.
        offset: Where in the file, in bytes (of a compressed file, in decompressed bytes).
    """

    path: Optional[str]
    packet: Optional[int]
    offset: Optional[int]

    def __init__(
        self,
        text: str,
        *,
        path: Optional[str] = None,
        packet: Optional[int] = None,
        offset: Optional[int] = None,
    ) -> None:
        super().__init__(text)
        self.path = path
        self.packet = packet
        self.offset = offset


class InputError(Error):
    """A file cannot be read at all."""


class OutputError(Error):
    """A file cannot be written."""


class ExecutorError(Error):
    """What does the tasks of a batch is not installed, does not start, or is lost."""


class LiveError(Error):
    """A live server, or the way to it, failed."""


class StreamError(LiveError):
    """A plant's stream, or the way to it, failed.

    Attributes:
        address: Host and port.
        reason: Why.
        status: The status of HTTP with which the server refused, if it did.
    """

    def __init__(self, address: str, reason: str, *, status: Optional[int] = None) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason
        self.status = status


class UsageError(Error, ValueError):
    """An argument is wrong."""


class DataError(Error):
    """Part of the input could not be read, or messages are missing.

    Attributes:
        summary: All that was read and that was not, as ``tapeworks replay --json`` has it.
    """

    summary: Dict[str, Any]

    def __init__(self, text: str, *, summary: Dict[str, Any], **place: Any) -> None:
        super().__init__(text, **place)
        self.summary = summary


class DataWarning(UserWarning):
    """Part of the input could not be read, messages are missing, or a live server says something of that kind."""


def _describe(summary: Dict[str, Any]) -> tuple[str, Dict[str, Any]]:
    """What the input lacked, in a line, and the first place."""
    problems = summary["problems"]
    place: Dict[str, Any] = {}
    parts = list(summary["damaged_files"])
    missing = sum(channel["missing_messages"] for channel in summary["channels"])
    if missing:
        parts.append(f"{missing:,} messages are missing")
    for first in problems["first"][:1]:
        place = {"path": first["file"], "packet": first["packet"], "offset": first["offset"]}
        parts.append(
            f"{first['file']}: packet {first['packet']} at offset {first['offset']}: {first['problem']}"
        )
    if problems["total"] > 1:
        parts.append(f"{problems['total']:,} problems in all")
    if summary["unseen_symbols"]:
        parts.append(f"no message is about {', '.join(summary['unseen_symbols'][:10])}")
    parts += summary["lacking"]
    text = "; ".join(parts) or "some events contradicted their books"
    return f"{text} (the reader's summary has all)", place


def report(summary: Dict[str, Any], policy: str) -> None:
    """Says what the input lacked: ``raise``, ``warn`` or ``ignore``."""
    if policy == "ignore":
        return
    text, place = _describe(summary)
    # What the schema cannot hold is no fault of the input.
    if policy == "raise" and not summary["is_clean"]:
        raise DataError(text, summary=summary, **place)
    warnings.warn(DataWarning(text), stacklevel=3)


def say(text: str) -> None:
    """Passes on what a live server has said, such as that it has left out records for a slow client."""
    warnings.warn(DataWarning(text), stacklevel=3)
