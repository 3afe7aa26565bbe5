"""Tapeworks for Python: captures of exchange feeds to Arrow, order books and the synthetic NBBO, records of a running plant.

>>> import tapeworks
>>> frame = tapeworks.read("session.pcap.zst", "cmbp-1", symbols="AAPL").to_df()
"""

from ._batch import batch
from ._feed import Feed
from ._files import dump, generate, stats, study
from ._live import Live
from ._native import SCHEMAS, VENUES, BestSide, Book, Level, Nbbo, Record, __version__
from ._reader import Reader, read
from ._stream import Stream, StreamGap, StreamLagged, StreamNbbo, StreamRecord, StreamTrade
from .errors import (
    DataError,
    DataWarning,
    Error,
    ExecutorError,
    InputError,
    LiveError,
    OutputError,
    StreamError,
    UsageError,
)

__all__ = [
    "SCHEMAS",
    "VENUES",
    "BestSide",
    "Book",
    "DataError",
    "DataWarning",
    "Error",
    "ExecutorError",
    "Feed",
    "InputError",
    "Level",
    "Live",
    "LiveError",
    "Nbbo",
    "OutputError",
    "Reader",
    "Record",
    "Stream",
    "StreamError",
    "StreamGap",
    "StreamLagged",
    "StreamNbbo",
    "StreamRecord",
    "StreamTrade",
    "UsageError",
    "__version__",
    "batch",
    "dump",
    "generate",
    "read",
    "stats",
    "study",
]
