"""The stream of a running plant: NBBO, trades and gaps over a WebSocket.

The frames are those of the library `websockets`, whose sans-I/O layer does the protocol (RFC 6455) without a thread or an event loop of
its own. So one path serves iterator, callback and asyncio, and the library is needed only here: it is the extra ``stream``.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import socket
import ssl
import threading
import time
import urllib.parse
import warnings
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence
from typing import Tuple, Union

from . import _native
from ._reader import names_of
from .errors import DataWarning, StreamError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

    LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    LoggerAdapter = logging.LoggerAdapter

__all__ = ["Stream", "StreamGap", "StreamLagged", "StreamNbbo", "StreamRecord", "StreamTrade"]

#: The longest wait for bytes, in seconds. A stream that waits notices within it that it was closed.
POLL = 0.1
#: The most that one read takes, in bytes.
READ_BYTES = 1 << 16
#: The longest message, in bytes. The server's have some 300.
MOST_BYTES = 1 << 20
#: The most that an error repeats of what a server says, in characters.
MOST_SAID = 500
#: The longest pause between two attempts, in seconds.
LONGEST_PAUSE = 10.0

JSON_STATES = {f"MARKET_STATE_{name.upper().replace('-', '_')}": name for name in ("one-sided", "normal", "locked", "crossed")}
JSON_SIDES = {"SIDE_NONE": "N", "SIDE_BID": "B", "SIDE_ASK": "A"}


def _dollars(price_e9: Optional[int]) -> Optional[float]:
    return None if price_e9 is None else price_e9 / 1e9


class StreamNbbo(NamedTuple):
    """The synthetic NBBO of an instrument after it changed, or as it is when the stream begins (``is_snapshot``).

    Prices are in units of 1e-9, or ``None`` where no venue quotes one. ``state`` is ``one-sided``, ``normal``, ``locked`` or
    ``crossed``. Times are ns since 1970 UTC.
    """

    event: int
    symbol: str
    ts_event: int
    ts_recv: int
    bid_price_e9: Optional[int]
    ask_price_e9: Optional[int]
    bid_size: int
    ask_size: int
    bid_publisher: int
    ask_publisher: int
    flags: int
    state: str

    @property
    def bid_price(self) -> Optional[float]:
        """The best bid in dollars."""
        return _dollars(self.bid_price_e9)

    @property
    def ask_price(self) -> Optional[float]:
        """The best offer in dollars."""
        return _dollars(self.ask_price_e9)

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a state and no change: at the beginning, or after a slow client missed changes."""
        return self.flags & 0x20 != 0

    @property
    def is_stale(self) -> bool:
        """Whether a venue among the best has a gap."""
        return self.flags & 0x04 != 0


class StreamTrade(NamedTuple):
    """A trade. ``side`` is the aggressor's: ``B``, ``A``, or ``N`` where it is not known. Times are ns since 1970 UTC."""

    event: int
    symbol: str
    ts_event: int
    ts_recv: int
    price_e9: int
    size: int
    publisher: int
    side: str
    flags: int

    @property
    def price(self) -> float:
        """The price in dollars."""
        return self.price_e9 / 1e9


class StreamGap(NamedTuple):
    """Messages of a feed's channel never came: so many ``missing`` ones from the sequence number ``first`` on."""

    event: int
    publisher: int
    channel: int
    first: int
    missing: int
    ts_event: int
    ts_recv: int


class StreamLagged(NamedTuple):
    """What this client missed since the last such record, because it was too slow."""

    event: int
    conflated: int
    dropped_trades: int
    dropped_gaps: int


StreamRecord = Union[StreamNbbo, StreamTrade, StreamGap, StreamLagged]


def _line(text: str) -> str:
    """The first line of what a server says, without control characters."""
    lines = text.strip().splitlines()
    return "".join(letter for letter in lines[0] if letter.isprintable())[:MOST_SAID] if lines else ""


class _Ended(Exception):
    """The end of a connection. The reason may have a server's words."""

    def __init__(self, reason: str) -> None:
        super().__init__(_line(reason))


class _Broken(_Ended):
    """The connection broke, or was not made. The next attempt may succeed."""


class _Refused(_Ended):
    """The server refused, or does not speak this protocol. It is not tried again."""

    def __init__(self, reason: str, status: Optional[int] = None) -> None:
        super().__init__(reason)
        self.status = status


class _WithoutHeaders(LoggerAdapter):
    """The log of websockets without its level DEBUG, which has each header and so the token."""

    def isEnabledFor(self, level: int) -> bool:
        return level > logging.DEBUG and super().isEnabledFor(level)


#: By the number of their field in `Record` of `tapeworks.proto`.
KINDS: Dict[int, Any] = {2: StreamNbbo, 3: StreamTrade, 4: StreamGap, 5: StreamLagged}


def decode_protobuf(message: bytes) -> Optional[StreamRecord]:
    """The record of a binary message; ``None`` if it is of no kind that is known here. ``ValueError``: it is no record."""
    found = _native.decode_stream(message)
    if found is None:
        return None
    kind, values = found
    record: StreamRecord = KINDS[kind]._make(values)
    return record


def _whole(value: Any) -> int:
    """A number of JSON, or one in a text, as those of 64 bits are."""
    if isinstance(value, (bool, float)):
        raise ValueError(f"{value} is not a whole number")
    return int(value)


def decode_json(text: bytes) -> Optional[StreamRecord]:
    """The same of a text message."""
    try:
        record = json.loads(text)
        event = _whole(record["event"])
        if "nbbo" in record:
            nbbo = record["nbbo"]
            prices = [_whole(nbbo[name]) if name in nbbo else None for name in ("bid_price", "ask_price")]
            return StreamNbbo(
                event,
                str(nbbo["symbol"]),
                _whole(nbbo["ts_event"]),
                _whole(nbbo["ts_recv"]),
                prices[0],
                prices[1],
                _whole(nbbo["bid_size"]),
                _whole(nbbo["ask_size"]),
                _whole(nbbo["bid_publisher"]),
                _whole(nbbo["ask_publisher"]),
                _whole(nbbo["flags"]),
                JSON_STATES.get(nbbo["state"]) or str(nbbo["state"]),
            )
        if "trade" in record:
            trade = record["trade"]
            return StreamTrade(
                event,
                str(trade["symbol"]),
                _whole(trade["ts_event"]),
                _whole(trade["ts_recv"]),
                _whole(trade["price"]),
                _whole(trade["size"]),
                _whole(trade["publisher"]),
                JSON_SIDES.get(trade["side"]) or str(trade["side"]),
                _whole(trade["flags"]),
            )
        if "gap" in record:
            gap = record["gap"]
            longs = [_whole(gap[name]) for name in ("first", "count", "ts_event", "ts_recv")]
            return StreamGap(event, _whole(gap["publisher"]), _whole(gap["channel"]), *longs)
        if "lagged" in record:
            lagged = record["lagged"]
            return StreamLagged(event, *(_whole(lagged[name]) for name in ("conflated", "dropped_trades", "dropped_gaps")))
        return None
    except (KeyError, TypeError, AttributeError, RecursionError, ArithmeticError) as wrong:
        raise ValueError(f"{type(wrong).__name__} {wrong}") from None


class _Connection:
    """One connection to the server, from its beginning to its end."""

    def __init__(self, stream: "Stream") -> None:
        from websockets.client import ClientProtocol
        from websockets.uri import parse_uri

        self._silence = stream._silence
        self._decode = decode_protobuf if stream._encoding == "protobuf" else decode_json
        logger = _WithoutHeaders(logging.getLogger("websockets.client"), {})
        self._protocol = ClientProtocol(parse_uri(stream._url), max_size=MOST_BYTES, logger=logger)
        #: What has come of a message in parts. `max_size` bounds its bytes, but not the number of empty parts.
        self._parts: Optional[bytearray] = None
        #: What has come and is not handed out.
        self._taken: List[StreamRecord] = []
        self._failure: Optional[Exception] = None
        self.unknown = 0
        until = time.monotonic() + stream._patience
        try:
            self._socket: socket.socket = socket.create_connection(stream._peer, stream._patience)
        except OSError as error:
            raise _Broken(_said(error)) from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if stream._tls is not None:
                self._socket = stream._tls.wrap_socket(self._socket, server_hostname=stream._peer[0])
            self._shake_hands(stream._token, until)
        except ssl.SSLCertVerificationError as error:
            self._socket.close()
            raise _Refused(f"its certificate: {error.verify_message}") from None
        except OSError as error:
            self._socket.close()
            raise _Broken(_said(error)) from None
        except BaseException:
            self._socket.close()
            raise
        self._heard = time.monotonic()

    def _shake_hands(self, token: Optional[str], until: float) -> None:
        from websockets.exceptions import InvalidStatus

        request = self._protocol.connect()
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        self._protocol.send_request(request)
        self._flush()
        response: Any = None
        early: List[Any] = []
        while response is None and self._protocol.handshake_exc is None:
            left = until - time.monotonic()
            if left <= 0:
                raise _Broken("no answer within the time")
            self._socket.settimeout(left)
            data = self._socket.recv(READ_BYTES)
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            for event in self._protocol.events_received():
                if response is None:
                    response = event
                else:
                    # The first frames may come with the answer.
                    early.append(event)
            if not data:
                break
        error = self._protocol.handshake_exc
        if isinstance(error, InvalidStatus):
            status = error.response.status_code
            said = _line(bytes(error.response.body or b"")[:1_000].decode(errors="replace"))
            phrase = _line(error.response.reason_phrase)
            reason = f"the server refused: {status} {phrase}" + (f": {said}" if said else "")
            # A status from 500 on is a failure of the server, which may pass.
            raise _Broken(reason) if status >= 500 else _Refused(reason, status)
        if isinstance(error and error.__cause__, EOFError) or (error is None and response is None):
            raise _Broken("the server closed the connection instead of an answer")
        if error is not None:
            raise _Refused(f"no WebSocket server: {error}") from None
        self._take_all(early)
        self._socket.settimeout(POLL)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.sendall(data)
            else:
                # The protocol has ended: nothing will be written any more.
                self._socket.shutdown(socket.SHUT_WR)

    def _take(self, frame: Any) -> Optional[StreamRecord]:
        """The record that a frame completes."""
        from websockets.frames import Opcode

        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return None
        data = bytes(frame.data)
        if self._parts is not None or not frame.fin:
            self._parts = self._parts or bytearray()
            self._parts += data
            if not frame.fin:
                return None
            data, self._parts = bytes(self._parts), None
        try:
            record = self._decode(data)
        except ValueError as wrong:
            raise _Refused(f"a message that is no record: {wrong}") from None
        self.unknown += record is None
        return record

    def _take_all(self, frames: List[Any]) -> None:
        """Takes what has come. A failure is kept: what came before it is handed out first."""
        try:
            for frame in frames:
                record = self._take(frame)
                if record is not None:
                    self._taken.append(record)
            self._flush()
            self._check()
        except OSError as error:
            self._failure = _Broken(_said(error))
        except (_Broken, _Refused) as failure:
            self._failure = failure

    def read(self) -> List[StreamRecord]:
        """What has come, or comes within 0.1 s."""
        if not self._taken and self._failure is None:
            try:
                data = self._socket.recv(READ_BYTES)
            except TimeoutError:
                if time.monotonic() - self._heard > self._silence:
                    raise _Broken(f"the server has been silent for {self._silence:g} s") from None
                return []
            except OSError as error:
                raise _Broken(_said(error)) from None
            self._heard = time.monotonic()
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            self._take_all(self._protocol.events_received())
            if not data and self._failure is None:
                self._failure = _Broken("the server closed the connection")
        if not self._taken and self._failure is not None:
            raise self._failure
        taken, self._taken = self._taken, []
        return taken

    def _check(self) -> None:
        """Whether the server has closed the stream, or broken its protocol."""
        close = self._protocol.close_rcvd
        if close is not None:
            raise _Broken(f"the server closed the stream: {close.code} {close.reason}".rstrip())
        wrong = self._protocol.parser_exc
        if wrong is not None and not isinstance(wrong, EOFError):
            raise _Refused(f"this is not WebSocket's protocol: {wrong}")

    def close(self) -> None:
        try:
            if self._failure is None:
                self._protocol.send_close(1000)
                self._flush()
        except Exception:
            # It ends in any case.
            pass
        self._socket.close()


def _said(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer within the time"
    return error.strerror or str(error)


class Stream:
    """The stream of a plant: NBBO, trades and gaps over a WebSocket (needs ``pip install 'tapeworks[stream]'``).

    Iterate it for records as they come, call :meth:`run` with a callback, or use ``async for``. A record is a :class:`StreamNbbo`,
    :class:`StreamTrade`, :class:`StreamGap` or :class:`StreamLagged`. When the connection breaks it connects again: the NBBO of each
    symbol comes anew (``is_snapshot``), trades and gaps of the time between are missing, which a :class:`DataWarning` says.

    Args:
        address: Host and port of the plant's page (``[web]``), or an address with ``ws://`` or ``wss://``, and a path if it is
            not ``/stream``.
        schema: ``nbbo``, ``trades`` or both. Gaps always come.
        symbols: Only these, at least one; ``None`` for all.
        encoding: ``protobuf`` or ``json``. The records are the same.
        token: The token of ``[web]``, where it has one.
        tls: What verifies a ``wss://`` server; the system's certificates unless given.
        reconnect: Whether to connect again.
        attempts: How often an attempt is repeated, in a row and without a record, before it is given up: with 10 there are 11.
        pause: Seconds before the second attempt; it doubles up to 10.
        patience: Seconds that one attempt to connect may take.
        silence: Seconds without a byte after which the server counts as gone. It pings every 15 s.

    Raises:
        StreamError: The server refused, or cannot be reached any more.
        UsageError: An argument is wrong.
    """

    def __init__(
        self,
        address: str,
        schema: Union[str, Sequence[str]] = "nbbo",
        *,
        symbols: Union[str, Sequence[str], None] = None,
        encoding: str = "protobuf",
        token: Optional[str] = None,
        tls: Optional[ssl.SSLContext] = None,
        reconnect: bool = True,
        attempts: int = 10,
        pause: float = 0.1,
        patience: float = 10.0,
        silence: float = 60.0,
    ) -> None:
        try:
            import websockets  # noqa: F401
        except ImportError as error:
            raise ImportError("tapeworks.Stream needs websockets: pip install 'tapeworks[stream]'") from error
        schemas = names_of(schema) or []
        if not schemas or not set(schemas) <= {"nbbo", "trades"}:
            raise UsageError(f"schema {','.join(schemas)!r}: a stream has nbbo and trades")
        if encoding not in ("protobuf", "json"):
            raise UsageError(f"encoding {encoding!r}: expected protobuf or json")
        if token is not None and not all("!" <= letter <= "~" for letter in token):
            raise UsageError("the token has characters that cannot be sent")
        names = names_of(symbols)
        if names is not None and not (names and all(names)):
            raise UsageError("symbols: give None for all" if not names else "symbols: one of them is empty")
        self._encoding, self._token = encoding, token
        scheme, self.address, self._peer, path = _target(address)
        if scheme == "ws" and tls is not None:
            raise UsageError("tls is for addresses that begin with wss://")
        self._tls = (tls or ssl.create_default_context()) if scheme == "wss" else None
        query = {"encoding": encoding, "schema": ",".join(schemas)}
        if names:
            query["symbols"] = ",".join(names)
        self._url = f"{scheme}://{self.address}{path}?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}"
        self._reconnect, self._attempts, self._pause = reconnect, attempts, pause
        self._patience, self._silence = patience, silence
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._connection: Optional[_Connection] = None
        self._ready: Deque[StreamRecord] = deque()
        self._failed = 0
        #: When the next attempt to connect begins.
        self._attempt_at = 0.0
        self._broken_by: Optional[str] = None
        #: Warnings that the reader has not had.
        self._unsaid: Deque[str] = deque()
        self._has_begun = False
        #: Records received.
        self.records = 0
        #: How often it connected again.
        self.reconnects = 0
        #: Messages of kinds that this version does not know.
        self.unknown = 0

    def close(self) -> None:
        """Ends the stream. May be called from another thread: the reader ends within 0.1 s, while it connects within ``patience``."""
        self._closed.set()
        # Where another thread reads for longer than this, it ends the connection itself.
        if self._lock.acquire(timeout=1.0):
            try:
                self._disconnect()
            finally:
                self._lock.release()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _turn(self, until: Optional[float] = None) -> None:
        """Reads what comes within 0.1 s. Where there is no connection it makes one, after the pause, which ends at ``until``."""
        ends = self._attempt_at if until is None else min(self._attempt_at, until)
        self._closed.wait(max(ends - time.monotonic(), 0))
        if time.monotonic() < self._attempt_at:
            return
        with self._lock:
            if self._closed.is_set():
                return
            try:
                if self._connection is None:
                    self._connection = _Connection(self)
                    self._note_that_it_goes_on()
                connection = self._connection
                unknown = connection.unknown
                try:
                    taken = connection.read()
                finally:
                    self.unknown += connection.unknown - unknown
                if taken:
                    self._failed = 0
                    self._ready.extend(taken)
                    self.records += len(taken)
            except _Refused as refused:
                self._break(str(refused))
                raise StreamError(self.address, str(refused), status=refused.status) from None
            except _Broken as broken:
                self._break(str(broken))
                if self._closed.is_set():
                    return
                if not self._reconnect or self._failed >= self._attempts:
                    raise StreamError(self.address, str(broken)) from None
                self._attempt_at = time.monotonic() + min(self._pause * 2 ** min(self._failed, 20), LONGEST_PAUSE)
                self._failed += 1
            except BaseException as failure:
                # An interrupt may have come between reading bytes and keeping their records, so this connection cannot go on.
                self._break(type(failure).__name__)
                raise
            finally:
                if self._closed.is_set():
                    self._disconnect()

    def _break(self, reason: str) -> None:
        self._broken_by = reason
        self._disconnect()

    def _note_that_it_goes_on(self) -> None:
        if self._has_begun:
            self.reconnects += 1
            # Python shows a text once. The time makes each one another.
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")
            what = f"connected again ({self._broken_by}), reconnect {self.reconnects} at {now}"
            self._unsaid.append(f"{self.address}: {what}: trades and gaps of the time between are missing")
        self._has_begun = True

    def _warn(self) -> None:
        """Warns in the thread of the reader, whose line it names."""
        while self._unsaid:
            warnings.warn(DataWarning(self._unsaid.popleft()), stacklevel=3)

    def __iter__(self) -> Iterator[StreamRecord]:
        while not self._closed.is_set():
            if self._ready:
                yield self._ready.popleft()
            else:
                try:
                    self._turn()
                finally:
                    self._warn()

    def run(self, on_record: Callable[[StreamRecord], Any], seconds: Optional[float] = None) -> int:
        """Calls ``on_record`` with each record, until :meth:`close` or for ``seconds``. Returns how many.

        A connection that is being made when the time is over may take ``patience`` longer.
        """
        until = None if seconds is None else time.monotonic() + seconds
        count = 0
        while not self._closed.is_set() and (until is None or time.monotonic() < until):
            if self._ready:
                count += 1
                on_record(self._ready.popleft())
            else:
                try:
                    self._turn(until)
                finally:
                    self._warn()
        return count

    async def __aiter__(self) -> AsyncIterator[StreamRecord]:
        """Records, without blocking the event loop: a thread waits for them."""
        loop = asyncio.get_running_loop()
        waiting = ThreadPoolExecutor(1, "tapeworks-stream")
        try:
            while not self._closed.is_set():
                # What is there is taken at once; the thread is only for waiting.
                if self._ready:
                    yield self._ready.popleft()
                else:
                    try:
                        await loop.run_in_executor(waiting, self._turn)
                    finally:
                        self._warn()
        finally:
            self._closed.set()
            # Behind what the thread still does.
            waiting.submit(self.close)
            waiting.shutdown(wait=False)


def _target(address: str) -> Tuple[str, str, Tuple[str, int], str]:
    """Scheme, host and port as text and as a pair, and path."""
    # An error repeats neither a password nor a token in a query.
    shown = "the address" if "@" in address else f"'{address.partition('?')[0].partition('#')[0]}'"
    port: Optional[int] = None
    try:
        parts = urllib.parse.urlsplit(address if "://" in address else f"ws://{address}")
        host = parts.hostname or ""
        if ":" not in host:
            # As `socket` does it for its look-up.
            host.encode("idna")
        port = parts.port
    except ValueError:
        raise UsageError(f"{shown} is not an address such as 127.0.0.1:8080 or wss://HOST/stream") from None
    if "@" in parts.netloc:
        raise UsageError("the address has a user or a password: a plant takes token=")
    if port is None and "://" in address:
        port = {"ws": 80, "wss": 443}.get(parts.scheme)
    if parts.scheme not in ("ws", "wss") or not host or not port:
        raise UsageError(f"{shown} is not an address such as 127.0.0.1:8080 or wss://HOST/stream")
    if parts.query or parts.fragment:
        raise UsageError(f"{shown}: schema, symbols, encoding and token are arguments")
    path = parts.path if parts.path not in ("", "/") else "/stream"
    host_and_port = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return parts.scheme, host_and_port, (host, port), path
