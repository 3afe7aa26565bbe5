"""A plant's stream: from `stream_server`, an example of the crate of the service, and from servers that do as the tests say."""

import asyncio
import base64
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import warnings

import pytest
from relay import Relay

import tapeworks
from tapeworks._stream import decode_json, decode_protobuf

pytest.importorskip("websockets")
SERVER = os.environ.get("TAPEWORKS_STREAM_SERVER")
with_server = pytest.mark.skipif(not SERVER, reason="TAPEWORKS_STREAM_SERVER names no server")
RECORDS = 2_000


@pytest.fixture
def serve():
    """Starts servers of a generated session, which go on when so many clients are there."""
    servers = []

    def start(clients):
        words = [SERVER, "20000", "20", str(clients)]
        servers.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        word, port = servers[-1].stdout.readline().split()
        assert word == "port"
        return int(port)

    yield start
    for server in servers:
        # It may still wait for clients.
        server.kill()
        server.communicate()


def stream(port, schema="nbbo,trades", **options):
    return tapeworks.Stream(f"127.0.0.1:{port}", schema, **options)


def take(client, count):
    found = []
    for record in client:
        found.append(record)
        if len(found) == count:
            return found


def in_thread(work):
    """Runs it; the list has the result once the thread has ended."""
    result = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    return thread, result


@with_server
def test_both_encodings_have_the_same_records(serve):
    port = serve(3)
    clients = [stream(port, encoding=encoding) for encoding in ("json", "protobuf")]
    threads = [in_thread(lambda client=client: take(client, RECORDS)) for client in clients]
    # As another client has them.
    sync = pytest.importorskip("websockets.sync.client")
    with sync.connect(f"ws://127.0.0.1:{port}/stream?schema=nbbo,trades", close_timeout=0.1) as other:
        expected = [json.loads(other.recv()) for _ in range(RECORDS)]
    for thread, _ in threads:
        thread.join()
    (text,), (binary,) = (found for _, found in threads)
    assert len(text) == RECORDS == clients[0].records - len(clients[0]._ready)
    assert text == binary
    for record, other in zip(text, expected):
        assert record.event == int(other["event"])
        if isinstance(record, tapeworks.StreamNbbo):
            nbbo = other["nbbo"]
            assert record.bid_price_e9 == (int(nbbo["bid_price"]) if "bid_price" in nbbo else None)
            assert (record.symbol, record.ask_size, record.flags) == (nbbo["symbol"], nbbo["ask_size"], nbbo["flags"])
            if record.state == "normal":
                assert record.bid_price < record.ask_price
        else:
            assert record.price_e9 == int(other["trade"]["price"]) and record.price == record.price_e9 / 1e9
            assert record.ts_event == int(other["trade"]["ts_event"]) <= record.ts_recv
            assert f"SIDE_{ {'B': 'BID', 'A': 'ASK', 'N': 'NONE'}[record.side] }" == other["trade"]["side"]
    kinds = [type(record) for record in text]
    assert kinds.count(tapeworks.StreamTrade) > 10 and kinds.count(tapeworks.StreamNbbo) > 100
    # The state of each symbol comes first.
    assert text[0].is_snapshot and len({record.symbol for record in text if record.flags & 0x20}) > 10
    for client in clients:
        client.close()


@with_server
def test_only_the_symbols_and_schemas_that_were_asked_for_come(serve):
    port = serve(2)
    everything, part = stream(port), None
    first = next(iter(everything))
    part = stream(port, "trades", symbols=[first.symbol, "NOSUCH"], encoding="json")
    thread, found = in_thread(lambda: take(part, 3))
    symbol = [record for record in take(everything, RECORDS) if record.symbol == first.symbol]
    thread.join()
    trades = [record for record in symbol if isinstance(record, tapeworks.StreamTrade)]
    assert len(trades) >= 3 and found[0] == trades[:3]


@with_server
def test_a_callback_gets_each_record_until_it_is_closed(serve):
    client = stream(serve(1))
    found = []

    def on_record(record):
        found.append(record)
        if len(found) == 100:
            client.close()

    assert client.run(on_record, seconds=60) == 100 == len(found)
    began = time.monotonic()
    with stream(serve(9), symbols="NOSUCH") as nothing:
        assert nothing.run(found.append, seconds=0.2) == 0
    assert time.monotonic() - began < 30


@with_server
def test_another_thread_ends_a_stream_that_waits(serve):
    client = stream(serve(9), symbols="NOSUCH")
    thread, found = in_thread(lambda: list(client))
    time.sleep(0.3)
    client.close()
    thread.join(30)
    assert found == [[]]


@with_server
def test_asyncio_gets_each_record_and_its_loop_runs_on(serve):
    port = serve(2)
    thread, expected = in_thread(lambda: take(stream(port), RECORDS))
    turns = [0]

    async def tick():
        while True:
            turns[0] += 1
            await asyncio.sleep(0.01)

    async def gather():
        ticker = asyncio.create_task(tick())
        found = []
        async for record in stream(port):
            found.append(record)
            if len(found) == RECORDS:
                break
        ticker.cancel()
        return found

    found = asyncio.run(gather())
    thread.join()
    assert found == expected[0] and turns[0] > 20


class WebRelay(Relay):
    """The server answers to its own address alone."""

    def said(self, data):
        return data.replace(f"Host: 127.0.0.1:{self.port}".encode(), f"Host: 127.0.0.1:{self.to}".encode())


@with_server
@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_a_cut_stream_is_connected_again_and_says_so(serve, encoding):
    # In the midst of frames, within the state of all symbols that a connection begins with.
    relay = WebRelay(serve(9), [1_001, 1_203])
    relay.start()
    client = stream(relay.port, encoding=encoding, pause=0.01)
    found = []
    with pytest.warns(tapeworks.DataWarning, match=f"127.0.0.1:{relay.port}: connected again .* trades and gaps"):
        for record in client:
            found.append(record)
            states = [one.symbol for one in found if one.is_snapshot]
            if len(set(states)) == 20:
                break
    assert client.reconnects == 2 == relay.connections - 1
    # Each connection began with the first symbol.
    assert states.count(states[0]) == 3 and states == [one.symbol for one in found]
    client.close()


@with_server
def test_the_server_says_what_is_wrong_with_a_request(serve):
    port = serve(9)
    with pytest.raises(tapeworks.StreamError) as refused:
        next(iter(stream(port, symbols="ABCDEFGHIJKLMNOPQRSTUVWXYZ")))
    error = refused.value
    assert error.address == f"127.0.0.1:{port}" and error.status == 400
    assert error.reason.startswith('the server refused: 400 Bad Request: symbols: "ABCDEFGHIJKLMNOPQRSTUVWXYZ" cannot be')
    assert str(error) == f"{error.address}: {error.reason}" and isinstance(error, tapeworks.LiveError)
    with pytest.raises(tapeworks.StreamError, match="404"):
        next(iter(tapeworks.Stream(f"ws://127.0.0.1:{port}/nothing")))


def frame(opcode, payload):
    assert len(payload) < 126
    return bytes([opcode, len(payload)]) + payload


class Fake(threading.Thread):
    """Serves one connection after the other, as each function says."""

    def __init__(self, *connections, tls=None):
        super().__init__(daemon=True)
        self.tls = tls
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections, self.requests = connections, []
        self.start()

    def run(self):
        for serve in self.connections:
            connection, _ = self.listener.accept()
            if self.tls is not None:
                try:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                except OSError:
                    connection.close()
                    continue
            with connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(4096)
                self.requests.append(request.decode())
                try:
                    serve(connection, request.decode())
                except OSError:
                    pass
        self.listener.close()


def upgrade(connection, request):
    (key,) = [line.split(": ")[1] for line in request.split("\r\n") if line.lower().startswith("sec-websocket-key")]
    accept = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
    connection.sendall(f"{answer}{base64.b64encode(accept).decode()}\r\n\r\n".encode())


def sends(*frames, waits=True):
    def serve(connection, request):
        upgrade(connection, request)
        for part in frames:
            connection.sendall(part)
        while waits and connection.recv(4096):
            pass

    return serve


def answers(text):
    return lambda connection, _: connection.sendall(text.encode())


#: An NBBO: event 7, symbol ABC, bid -12e-9, no offer, 4,000,000,000 shares bid.
NBBO = bytes.fromhex("0807 120d 0a03414243 2017 30 80d0acf30e".replace(" ", ""))
LAGGED = bytes.fromhex("0809 2a06 0801 1002 1803".replace(" ", ""))


def test_messages_come_whole_from_parts_and_around_pings():
    got = []

    def serve(connection, request):
        upgrade(connection, request)
        # A ping between two parts of a message, byte by byte; a message of a kind that is not known yet.
        parts = frame(0x02, NBBO[:3]) + frame(0x89, b"there?") + frame(0x80, NBBO[3:])
        for byte in parts + frame(0x82, bytes.fromhex("0808ba0100")) + frame(0x82, LAGGED):
            connection.sendall(bytes([byte]))
        pong = connection.recv(4096)
        got.append(bytes(byte ^ pong[2 + at % 4] for at, byte in enumerate(pong[6:])))
        connection.sendall(frame(0x88, struct.pack(">H", 1001) + b"the plant has ended"))

    fake = Fake(serve)
    client = stream(fake.port, token="secret", symbols=["BRK.B", "A"], reconnect=False)
    found = []
    with pytest.raises(tapeworks.StreamError, match=r"closed the stream: 1001 the plant has ended$"):
        client.run(found.append)
    nbbo, lagged = found
    assert nbbo[:6] == (7, "ABC", 0, 0, -12, None) and nbbo.bid_size == 4_000_000_000 and nbbo.state == "one-sided"
    assert nbbo.bid_price == -12e-9 and nbbo.ask_price is None and not nbbo.is_snapshot and not nbbo.is_stale
    assert lagged == tapeworks.StreamLagged(9, 1, 2, 3) and client.unknown == 1 and got == [b"there?"]
    (request,) = fake.requests
    assert request.startswith("GET /stream?encoding=protobuf&schema=nbbo%2Ctrades&symbols=BRK.B%2CA HTTP/1.1\r\n")
    assert "Authorization: Bearer secret\r\n" in request


def test_what_came_before_an_end_comes_before_the_error():
    garbled = frame(0x82, b"\xff")
    closed = frame(0x88, b"")
    for end, reason in ((garbled, "no record: a number that is cut off"), (closed, "1005"), (b"\x82\x7f", "closed the conn")):
        fake = Fake(sends(frame(0x82, NBBO) * 3 + end, waits=False))
        found = []
        with pytest.raises(tapeworks.StreamError, match=reason):
            stream(fake.port, reconnect=False).run(found.append)
        assert len(found) == 3


@pytest.mark.parametrize(
    "answer, status, reason",
    [
        ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 8\r\n\r\nno token", 401, "401 Unauthorized: no token$"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, "200 OK: hi$"),
        ("220 mail.example.com ESMTP\r\n\r\n", None, "no WebSocket server"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
            None,
            "no WebSocket server",
        ),
    ],
)
def test_a_refusal_is_an_error_at_once(answer, status, reason):
    fake = Fake(answers(answer))
    with pytest.raises(tapeworks.StreamError, match=reason) as refused:
        next(iter(stream(fake.port)))
    assert refused.value.status == status and refused.value.address == f"127.0.0.1:{fake.port}"
    assert len(fake.requests) == 1


def test_a_server_that_fails_is_tried_again():
    busy = answers("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 8\r\n\r\ntoo many")
    gone = answers("")
    fake = Fake(busy, gone, sends(frame(0x82, NBBO), waits=False), sends(frame(0x82, NBBO)))
    client = stream(fake.port, pause=0.001)
    with pytest.warns(tapeworks.DataWarning, match=r"connected again \(the server closed the connection\)"):
        assert len(take(client, 2)) == 2
    # The first connection is none that was made again.
    assert client.reconnects == 1 and len(fake.requests) == 4
    client.close()


def test_each_loss_is_shown_by_the_filter_that_python_begins_with():
    def once():
        return sends(frame(0x82, NBBO), waits=False)

    async def gather(client):
        async for _ in client:
            if client.reconnects == 2:
                break

    def iterate(client):
        for _ in client:
            if client.reconnects == 2:
                break

    def run(client):
        client.run(lambda _: client.close() if client.reconnects == 2 else None)

    for read in (iterate, run, lambda client: asyncio.run(gather(client))):
        fake = Fake(once(), once(), sends(frame(0x82, NBBO)))
        client = stream(fake.port, pause=0.001)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            read(client)
        client.close()
        assert [f"reconnect {number} at " in str(one.message) for number, one in enumerate(seen, 1)] == [True, True]
        # It names the line of the reader, also where a thread reads for it.
        assert {one.filename for one in seen} == {__file__}


def test_a_token_is_not_in_the_logs(caplog):
    caplog.set_level("DEBUG")
    caplog.set_level("DEBUG", "websockets.client")
    fake = Fake(sends(frame(0x82, NBBO)))
    with stream(fake.port, token="secret") as client:
        take(client, 1)
        # What websockets logs as an error is kept.
        client._connection._protocol.logger.error("parser failed")
    assert "Bearer secret" in fake.requests[0]
    assert "secret" not in caplog.text and "parser failed" in caplog.text


def test_an_interrupt_while_records_are_decoded_is_a_break_that_is_warned_of(monkeypatch):
    begun, calls = threading.Event(), [0]

    def serve(connection, request):
        upgrade(connection, request)
        connection.sendall(frame(0x82, NBBO))
        begun.wait(30)
        connection.sendall(frame(0x82, NBBO) * 5)
        connection.recv(4096)

    def decode(message):
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return decode_protobuf(message)

    monkeypatch.setattr("tapeworks._stream.decode_protobuf", decode)
    client = stream(Fake(serve, sends(frame(0x82, LAGGED))).port)
    assert len(take(client, 1)) == 1
    begun.set()
    with pytest.raises(KeyboardInterrupt):
        list(client)
    # What the interrupt has lost is named.
    with pytest.warns(tapeworks.DataWarning, match=r"connected again \(KeyboardInterrupt\)"):
        assert take(client, 1) == [tapeworks.StreamLagged(9, 1, 2, 3)]
    client.close()


def test_a_stream_that_was_closed_makes_no_connection():
    fake = Fake(sends(frame(0x82, NBBO)))
    client = stream(fake.port)
    with client._lock:
        # It waits for the lock, which the closing thread has.
        thread, result = in_thread(client._turn)
        time.sleep(0.1)
        client._closed.set()
    thread.join(30)
    assert result == [None] and client._connection is None and fake.requests == []


def test_a_run_ends_within_a_pause_and_the_next_one_keeps_to_it(monkeypatch):
    monkeypatch.setattr("tapeworks._stream.LONGEST_PAUSE", 1_000.0)
    fake = Fake(*[answers("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")] * 3)
    client = stream(fake.port, pause=1_000.0)
    for _ in range(2):
        thread, result = in_thread(lambda: client.run(lambda _: None, seconds=0.2))
        thread.join(30)
        is_over = not thread.is_alive()
        if not is_over:
            client.close()
        assert is_over and result == [0] and len(fake.requests) == 1


def test_empty_parts_of_a_message_take_no_memory():
    got = threading.Event()

    def serve(connection, request):
        upgrade(connection, request)
        connection.sendall(frame(0x02, NBBO[:3]) + frame(0x00, b"") * 50_000 + frame(0x89, b""))
        # The pong says that it has read them.
        connection.recv(4096)
        got.set()
        connection.recv(4096)

    client = stream(Fake(serve).port)
    while not got.is_set():
        client._turn()
    assert len(client._connection._parts) == 3
    client.close()


def test_it_is_given_up_after_so_many_attempts():
    refused = socket.create_server(("127.0.0.1", 0))
    port = refused.getsockname()[1]
    refused.close()
    with pytest.raises(tapeworks.StreamError, match=f"127.0.0.1:{port}: Connection refused"):
        next(iter(stream(port, attempts=3, pause=0.001)))
    fake = Fake(*[answers("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")] * 5)
    with pytest.raises(tapeworks.StreamError, match="503 Busy$"):
        next(iter(stream(fake.port, attempts=3, pause=0.001)))
    assert len(fake.requests) == 4


def test_a_server_that_is_silent_counts_as_gone():
    with pytest.raises(tapeworks.StreamError, match="silent for 0.2 s"):
        next(iter(stream(Fake(sends()).port, reconnect=False, silence=0.2)))
    with pytest.raises(tapeworks.StreamError, match="no answer within the time"):
        next(iter(stream(Fake(lambda connection, _: connection.recv(1)).port, reconnect=False, patience=0.2)))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of this machine that no authority has signed."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*words.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, certificate


def test_a_stream_behind_tls_needs_a_certificate_that_holds(certificate):
    server, path = certificate
    fake = Fake(*[sends(frame(0x82, NBBO) * 3)] * 3, tls=server)
    # Neither one that nobody has signed, nor one of another name.
    for host, options in (("localhost", {}), ("127.0.0.1", {"tls": ssl.create_default_context(cafile=path)})):
        with pytest.raises(tapeworks.StreamError, match=f"^{host}:{fake.port}: its certificate: "):
            next(iter(tapeworks.Stream(f"wss://{host}:{fake.port}", **options)))
    assert fake.requests == []
    tls = ssl.create_default_context(cafile=path)
    with tapeworks.Stream(f"wss://localhost:{fake.port}/stream", tls=tls, token="secret") as client:
        assert [record.event for record in take(client, 3)] == [7, 7, 7]
        assert client.run(lambda record: None, seconds=0.3) == 0
    assert "Authorization: Bearer secret" in fake.requests[0]
    with pytest.raises(tapeworks.UsageError, match="wss://"):
        tapeworks.Stream("localhost:1", tls=tls)


def test_an_interrupt_ends_the_waiting():
    client = stream(Fake(sends(frame(0x82, NBBO))).port)
    found = []
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            client.run(found.append)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert len(found) == 1
    client.close()


def test_a_task_that_is_cancelled_ends_its_stream():
    client = stream(Fake(sends(frame(0x82, NBBO))).port)

    async def gather(found):
        async for record in client:
            found.append(record)

    async def main():
        found = []
        task = asyncio.create_task(gather(found))
        while not found:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return found

    assert len(asyncio.run(main())) == 1
    # Its thread ends by itself.
    until = time.monotonic() + 30
    while client._connection is not None and time.monotonic() < until:
        time.sleep(0.01)
    assert client._connection is None


def test_closing_ends_the_pause_between_attempts():
    client = stream(1, pause=1_000.0)
    thread, found = in_thread(lambda: list(client))
    time.sleep(0.2)
    client.close()
    thread.join(5)
    assert found == [[]]


def test_wrong_arguments_are_errors_before_anything_is_sent():
    wrong = [
        {"address": "nowhere"},
        {"address": "http://127.0.0.1:1"},
        {"address": "127.0.0.1:x"},
        {"address": "ws://127.0.0.1/stream?schema=nbbo"},
        {"address": "a..b:80"},
        {"address": "ws://[::1"},
        {"schema": "mbo"},
        {"schema": ""},
        {"encoding": "xml"},
        {"token": "a\r\nb"},
        {"symbols": "A,,B"},
        {"symbols": []},
    ]
    for one in wrong:
        options = {"address": "127.0.0.1:1", **one}
        with pytest.raises(tapeworks.UsageError):
            tapeworks.Stream(**options)
    assert tapeworks.Stream("wss://example.com").address == "example.com:443"
    assert tapeworks.Stream("[::1]:8080").address == "[::1]:8080"


@pytest.mark.parametrize(
    "address",
    [
        "ws://user:SECRET@127.0.0.1:1",
        "ws://user:SE/SECRET@127.0.0.1:1",
        "ws://user:SECRET?x@127.0.0.1:1",
        "ws://user:SECRET@[::1",
        "ws://127.0.0.1:1/stream?token=SECRET",
        "http://127.0.0.1:1/stream?token=SECRET",
        "127.0.0.1:1#SECRET",
        "127.0.0.1:1?a=b@SECRET",
    ],
)
def test_an_error_repeats_no_secret_of_the_address(address):
    with pytest.raises(tapeworks.UsageError) as refused:
        tapeworks.Stream(address)
    error = refused.value
    assert "SECRET" not in str(error) and (error.__suppress_context__ or error.__context__ is None)


def test_an_error_has_one_line_of_what_a_server_says():
    body = "\r\n\x1b[31mno\x07 entry\r\nsecond line"
    refusal = answers(f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    closed = sends(frame(0x88, struct.pack(">H", 1001) + b"away\x1b[2J\nand more"), waits=False)
    cases = (refusal, "the server refused: 403 Forbidden: [31mno entry"), (closed, "the server closed the stream: 1001 away[2J")
    for serve, reason in cases:
        with pytest.raises(tapeworks.StreamError) as refused:
            next(iter(stream(Fake(serve).port, reconnect=False)))
        assert refused.value.reason == reason


def test_a_stream_that_is_read_again_after_its_error_says_why_it_broke():
    garbled = sends(frame(0x82, b"\xff"), waits=False)
    for end, reason in ((sends(waits=False), "the server closed the connection"), (garbled, "a message that is no record")):
        client = stream(Fake(end, sends(frame(0x82, NBBO))).port, reconnect=False)
        with pytest.raises(tapeworks.StreamError):
            next(iter(client))
        with pytest.warns(tapeworks.DataWarning, match=rf"connected again \({reason}"):
            assert len(take(client, 1)) == 1
        client.close()


@pytest.mark.parametrize("number", ["1e999", "2.7", "NaN", "Infinity", "true", "2e3"])
def test_a_number_of_json_that_is_not_whole_is_an_error_of_the_stream(number):
    text = '{"event": "8", "lagged": {"conflated": %s, "dropped_trades": 0, "dropped_gaps": 0}}' % number
    fake = Fake(sends(frame(0x81, text.encode())))
    with pytest.raises(tapeworks.StreamError, match=f"^127.0.0.1:{fake.port}: a message that is no record: "):
        next(iter(stream(fake.port, encoding="json")))


def test_without_websockets_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(ImportError, match=r"pip install 'tapeworks\[stream\]'"):
        tapeworks.Stream("127.0.0.1:1")


def test_random_bytes_are_records_or_one_error():
    chance = random.Random(7)
    times = {"ts_event": "1", "ts_recv": "2"}
    trade = {"symbol": "A", **times, "price": "3", "size": 4, "publisher": 5, "side": "SIDE_ASK", "flags": 6}
    text = json.dumps({"event": "7", "trade": trade})
    assert decode_json(text.encode()) == (7, "A", 1, 2, 3, 4, 5, "A", 6)
    longs = {"first": "9007199254740993", "count": "1", **times}
    gap = decode_json(json.dumps({"event": "8", "gap": {"publisher": 1, "channel": 2, **longs}}).encode())
    assert gap == tapeworks.StreamGap(8, 1, 2, 9007199254740993, 1, 1, 2)
    assert gap == decode_protobuf(bytes.fromhex("0808 2213 0801 1002 188180808080808010 2001 2802 3004".replace(" ", "")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20_000):
            for decode, good in ((decode_protobuf, NBBO), (decode_json, text.encode())):
                noise = bytearray(good)
                for _ in range(chance.randrange(4)):
                    noise[chance.randrange(len(noise))] = chance.randrange(256)
                try:
                    record = decode(bytes(noise[: chance.randrange(len(noise) + 1)]))
                    assert record is None or isinstance(record, tuple)
                except ValueError as wrong:
                    assert str(wrong)
