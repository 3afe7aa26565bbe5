"""The native part. Times are ns since 1970 UTC, sizes shares, offsets bytes."""

from decimal import Decimal
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from typing_extensions import Self

from ._types import Errors, Prices, Schema, Stale

#: A price in the form that `prices` chose.
Price = Union[float, Decimal, int, None]

__version__: str
SCHEMAS: List[str]
DEMO_KEY: str
#: The market identifier code of each feed by its number (`publisher_id`).
VENUES: Dict[int, str]

class Record:
    """A record of a schema, whose fields are attributes: names and order are those of the columns.

    Times are integers (ns since 1970 UTC), absent values ``None``. A field is there if the record's schema has it; those of ``definition`` are
    not listed. Records are immutable: they compare and hash by value, and can be copied and pickled.
    """

    # All schemas.
    ts_event: Optional[int]
    publisher_id: int
    instrument_id: int
    symbol: str
    rtype: int

    # Of files that keep where a record came from.
    channel_sequence: int
    line: str

    # All but bars.
    ts_recv: int

    # Orders, trades, quotes and books. Of `status` the action is a number.
    action: Union[str, int]
    side: str
    price: Price
    size: int
    flags: int
    sequence: int
    ts_in_delta: int
    depth: int
    channel_id: int
    order_id: int

    # The levels of books and quotes.
    bid_px_00: Price
    ask_px_00: Price
    bid_sz_00: int
    ask_sz_00: int
    bid_ct_00: int
    ask_ct_00: int
    bid_px_01: Price
    ask_px_01: Price
    bid_sz_01: int
    ask_sz_01: int
    bid_ct_01: int
    ask_ct_01: int
    bid_px_02: Price
    ask_px_02: Price
    bid_sz_02: int
    ask_sz_02: int
    bid_ct_02: int
    ask_ct_02: int
    bid_px_03: Price
    ask_px_03: Price
    bid_sz_03: int
    ask_sz_03: int
    bid_ct_03: int
    ask_ct_03: int
    bid_px_04: Price
    ask_px_04: Price
    bid_sz_04: int
    ask_sz_04: int
    bid_ct_04: int
    ask_ct_04: int
    bid_px_05: Price
    ask_px_05: Price
    bid_sz_05: int
    ask_sz_05: int
    bid_ct_05: int
    ask_ct_05: int
    bid_px_06: Price
    ask_px_06: Price
    bid_sz_06: int
    ask_sz_06: int
    bid_ct_06: int
    ask_ct_06: int
    bid_px_07: Price
    ask_px_07: Price
    bid_sz_07: int
    ask_sz_07: int
    bid_ct_07: int
    ask_ct_07: int
    bid_px_08: Price
    ask_px_08: Price
    bid_sz_08: int
    ask_sz_08: int
    bid_ct_08: int
    ask_ct_08: int
    bid_px_09: Price
    ask_px_09: Price
    bid_sz_09: int
    ask_sz_09: int
    bid_ct_09: int
    ask_ct_09: int
    bid_pb_00: int
    ask_pb_00: int

    # Bars.
    open: Price
    high: Price
    low: Price
    close: Price
    volume: int

    # `status`.
    reason: int
    trading_event: int
    is_trading: str
    is_quoting: str
    is_short_sell_restricted: str

    # `imbalance`.
    auction_time: Optional[int]
    ref_price: Price
    cont_book_clr_price: Price
    auct_interest_clr_price: Price
    ssr_filling_price: Price
    ind_match_price: Price
    upper_collar: Price
    lower_collar: Price
    paired_qty: Optional[int]
    total_imbalance_qty: Optional[int]
    market_imbalance_qty: Optional[int]
    unpaired_qty: Optional[int]
    auction_type: str
    auction_status: int
    freeze_status: int
    num_extensions: int
    unpaired_side: str
    significant_imbalance: str

    # `statistics`.
    ts_ref: Optional[int]
    quantity: Optional[int]
    stat_type: int
    update_action: int
    stat_flags: int

    @property
    def schema(self) -> str: ...
    def __getattr__(self, name: str) -> Any: ...
    def __getitem__(self, name: str) -> Any: ...
    def keys(self) -> List[str]: ...
    def as_dict(self) -> Dict[str, Any]: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Batch:
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: Optional[object] = None) -> Tuple[object, object]: ...

class Reader:
    def __new__(
        cls,
        paths: Sequence[str],
        schema: Schema = "mbo",
        *,
        symbols: Optional[Sequence[str]] = None,
        start: Optional[int] = None,
        end: Optional[int] = None,
        prices: Prices = "float",
        protocol: Optional[str] = None,
        venue: Optional[str] = None,
        date: Optional[str] = None,
        stale: Stale = "flag",
        odd_lots: bool = False,
        limit: Optional[int] = None,
        threads: Optional[int] = None,
        errors: Errors = "warn",
    ) -> Self: ...
    @property
    def schema(self) -> str:
        """The name of the schema."""

    @property
    def progress(self) -> Tuple[int, Optional[int], int]:
        """Bytes read of the files as they lie, bytes of all files, messages taken."""

    @property
    def summary(self) -> Optional[Dict[str, Any]]:
        """What was read and what was not, once all is read: the object of ``tapeworks replay --json``, without an NBBO where the records need none. ``None`` before."""

    @property
    def is_over(self) -> bool:
        """Whether all was read, or the reader was closed."""

    def close(self) -> None:
        """Ends the reading. What came so far is what there is."""

    def next_batch(self) -> Optional[Batch]:
        """The next batch, for the Arrow PyCapsule interface; ``None`` at the end."""

    def write(self, path: str, *, overwrite: bool = False, format: Optional[str] = None) -> Optional[Dict[str, Any]]:
        """Writes the records to a file instead; ``format`` or the name's ending says how. Returns the summary."""

    def __iter__(self) -> Iterator[Record]: ...
    def __next__(self) -> Record: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object: ...

class Level:
    """Shares and orders at a price; ``price_e9`` is in units of 1e-9."""

    @property
    def price(self) -> float: ...
    @property
    def price_e9(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def orders(self) -> int: ...

class Book:
    """The book of an instrument at a venue, as it was when it was asked for; the best levels come first."""

    @property
    def symbol(self) -> str: ...
    @property
    def venue(self) -> str: ...
    @property
    def bids(self) -> List[Level]: ...
    @property
    def asks(self) -> List[Level]: ...
    @property
    def is_stale(self) -> bool: ...

class BestSide:
    """The best bid or offer across venues; ``venue`` is the one with the most shares at it."""

    @property
    def price(self) -> float: ...
    @property
    def price_e9(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def venue(self) -> str: ...

class Nbbo:
    """The synthetic NBBO of an instrument, as it was when it was asked for.

    ``state`` is ``one-sided``, ``normal``, ``locked`` or ``crossed``; ``is_stale`` says whether a venue among the best has a gap.
    """

    @property
    def bid(self) -> Optional[BestSide]: ...
    @property
    def ask(self) -> Optional[BestSide]: ...
    @property
    def state(self) -> str: ...
    @property
    def is_stale(self) -> bool: ...

class Feed:
    def __new__(
        cls,
        paths: Sequence[str] = ...,
        *,
        symbols: Optional[Sequence[str]] = None,
        protocol: Optional[str] = None,
        venue: Optional[str] = None,
        date: Optional[str] = None,
        stale: Stale = "flag",
        odd_lots: bool = False,
    ) -> Self: ...
    def advance(self, until: Optional[int] = None) -> bool: ...
    def packet(self, payload: bytes, received: int, destination: str, source: str = "0.0.0.0:0") -> int:
        """Takes the payload of a UDP datagram. Returns how many messages of it were taken."""

    def frame(self, frame: bytes, received: int) -> int:
        """Takes an Ethernet frame. Returns how many messages of it were taken."""

    def book(self, symbol: str, venue: str, depth: Optional[int] = None) -> Optional[Book]:
        """The book of a symbol at the venue with this market identifier code, with at most ``depth`` levels."""

    def orders(self, symbol: str, venue: str) -> List[Tuple[int, str, float, int]]:
        """The orders: ``(order_id, side, price, size)``, bids then offers, in the order of their execution."""

    def nbbo(self, symbol: str) -> Optional[Nbbo]:
        """The synthetic NBBO of a symbol."""

    @property
    def symbols(self) -> List[str]: ...
    @property
    def venues(self) -> List[str]: ...
    @property
    def time(self) -> Optional[int]: ...
    @property
    def messages(self) -> int: ...
    def finish(self) -> Dict[str, Any]:
        """Ends it. Returns what was read and what was not: the object of ``tapeworks replay --json``."""

class Live:
    def __new__(
        cls,
        addresses: Sequence[str],
        schema: Sequence[str],
        *,
        key: str,
        dataset: str = ...,
        symbols: Sequence[str] = ...,
        start: Optional[int] = None,
        snapshot: bool = False,
        slow_reader: Optional[str] = None,
        prices: Prices = "float",
        when_refused: str = "stop",
    ) -> Self: ...
    @property
    def records(self) -> int: ...
    @property
    def is_ended(self) -> bool: ...
    @property
    def is_refused(self) -> bool: ...
    @property
    def reason(self) -> Optional[str]: ...
    def close(self) -> None: ...
    def resume(self) -> None: ...
    def ready_record(self) -> Optional[Record]: ...
    def next_record(self, seconds: Optional[float] = None) -> Optional[Record]: ...
    def next_batch(self, seconds: Optional[float] = None) -> Optional[Tuple[str, Batch]]: ...

def instant(text: str) -> int: ...
def record(schema: str, names: Sequence[str], values: Sequence[Any]) -> Record: ...
def decode_stream(message: bytes) -> Optional[Tuple[int, Tuple[Any, ...]]]:
    """The kind and the values of a record in Protobuf; ``None``: of a kind that is not known."""

class Dump:
    def __iter__(self) -> Iterator[Dict[str, Any]]: ...
    def __next__(self) -> Dict[str, Any]: ...

def dump(
    paths: Sequence[str],
    *,
    symbols: Optional[Sequence[str]] = None,
    messages: Optional[Sequence[str]] = None,
    protocol: Optional[str] = None,
    limit: Optional[int] = None,
) -> Dump: ...
def stats(paths: Sequence[str], *, protocol: Optional[str] = None, top: int = 10) -> Dict[str, Any]: ...
def study(
    paths: Sequence[str],
    service_ns: Sequence[int],
    *,
    window_ns: Optional[int] = None,
    start: Optional[int] = None,
    end: Optional[int] = None,
    protocol: Optional[str] = None,
) -> Dict[str, Any]: ...
def generate(
    path: str,
    *,
    scenario: str = "demo",
    messages: Optional[int] = None,
    symbols: Optional[int] = None,
    venues: Sequence[str] = ...,
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
) -> Dict[str, Any]: ...
def batch(
    patterns: Sequence[str],
    out: str,
    *,
    schemas: Sequence[str],
    format: str = "parquet",
    buckets: int = 16,
    exclude: Sequence[str] = ...,
    jobs: Optional[int] = None,
    protocol: Optional[str] = None,
    date: Optional[str] = None,
    symbols: Optional[Sequence[str]] = None,
    stale: Stale = "flag",
    odd_lots: bool = False,
    ignore_price_bands: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    dry_run: bool = False,
    work: Optional[str] = None,
    executor: Optional[Callable[[Sequence[str]], Iterator[Tuple[str, Optional[str], bool]]]] = None,
    progress: Optional[Callable[[int, int], None]] = None,
) -> Tuple[Dict[str, Any], List[str]]: ...
def batch_task(task: str, out: str, work: Optional[str] = None) -> Tuple[Optional[str], bool, bool]: ...
