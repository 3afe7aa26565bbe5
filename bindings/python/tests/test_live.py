"""Records of a live server: against the files of the same session. The server is `live_server`, an example of the crate of outputs."""

import asyncio
import collections
import os
import socket
import struct
import subprocess
import threading
import time
import warnings

import pytest
from relay import Relay

import tapeworks

SERVER = os.environ.get("TAPEWORKS_LIVE_SERVER")

pytestmark = pytest.mark.skipif(not SERVER, reason="TAPEWORKS_LIVE_SERVER names no server")


class Server:
    """A server of a generated session, which publishes on command."""

    def __init__(self, folder):
        self.folder = folder
        self.process = subprocess.Popen(
            [SERVER, folder, "20000", "20"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.answer("port")[0])
        self.events = int(self.answer("events")[0])

    def answer(self, word):
        line = self.process.stdout.readline().split()
        assert line and line[0] == word, line
        return line[1:]

    def publish(self, count=None):
        self.process.stdin.write(f"publish {count}\n" if count else "publish all\n")
        self.process.stdin.flush()
        return self.answer("published")

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.write("end\n")
            self.process.stdin.close()
            assert self.process.wait(30) == 0

    def expected(self, schema):
        """The records of the file, by the client library of DBN's inventor."""
        databento = pytest.importorskip("databento")
        store = databento.DBNStore.from_file(self.folder / f"{schema}.dbn")
        return [(record.ts_event, record.price, record.size, record.order_id) for record in store]


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.end()


def essence(record):
    return (record.ts_event, record.price, record.size, record.order_id)


def publish_later(server, parts=4):
    """Publishes in parts, in a thread, once a client had time to come."""

    def publish():
        time.sleep(0.5)
        for _ in range(parts - 1):
            server.publish(server.events // parts)
            time.sleep(0.1)
        server.publish()
        server.end()

    thread = threading.Thread(target=publish)
    thread.start()
    return thread


def live(port, **options):
    return tapeworks.Live(f"127.0.0.1:{port}", "mbo", prices="fixed", **options)


def test_records_come_as_the_file_has_them(server):
    expected = server.expected("mbo")
    publisher = publish_later(server)
    found = []
    with pytest.raises(tapeworks.LiveError, match="ended the session"):
        for record in live(server.port, reconnect=False):
            found.append(essence(record))
    publisher.join()
    assert found == expected and len(found) > 10_000


def test_batches_have_the_records_and_symbols(server):
    expected = server.expected("mbo")
    publisher = publish_later(server)
    found, symbols = [], set()
    with pytest.raises(tapeworks.LiveError):
        for schema, batch in live(server.port, reconnect=False).batches():
            assert schema == "mbo"
            names = ("ts_event", "price", "size", "order_id")
            columns = [batch[name].cast("int64") if name == "ts_event" else batch[name] for name in names]
            found.extend(zip(*(column.to_pylist() for column in columns)))
            symbols.update(batch["symbol"].to_pylist())
    publisher.join()
    assert found == expected and len(symbols) == 20 and None not in symbols


def test_a_callback_gets_each_record_until_it_is_closed(server):
    session = live(server.port)
    counted = collections.Counter()

    def take(record):
        counted[record.symbol] += 1
        if sum(counted.values()) == 100:
            session.close()

    publisher = publish_later(server)
    assert session.run(take, seconds=30) == 100 == sum(counted.values())
    publisher.join()


def test_asyncio_gets_each_record_and_its_loop_runs_on(server):
    expected = server.expected("mbo")
    publisher = publish_later(server)
    turns = [0]

    async def tick():
        while True:
            turns[0] += 1
            await asyncio.sleep(0.01)

    async def take():
        ticker = asyncio.create_task(tick())
        found = []
        try:
            async for record in live(server.port, reconnect=False):
                found.append(essence(record))
        except tapeworks.LiveError:
            pass
        ticker.cancel()
        return found

    assert asyncio.run(take()) == expected
    publisher.join()
    assert turns[0] > 20


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_cut_connection_is_resumed_and_each_record_comes_once(server, is_reset):
    expected = server.expected("mbo")
    server.publish()
    # In the midst of records: 56 bytes each.
    relay = Relay(server.port, [100_001, 77_777, 200_003], is_reset)
    relay.start()
    session = live(relay.port, start=1, pause=0.01)
    found = []
    for record in session:
        found.append(essence(record))
        if len(found) == len(expected):
            break
    assert found == expected and session.reconnects == 3 == relay.connections - 1
    assert session.records == len(expected)


def test_of_several_servers_the_next_one_goes_on(server, tmp_path_factory):
    expected = server.expected("mbo")
    server.publish()
    other = Server(tmp_path_factory.mktemp("other"))
    other.publish()
    relay = Relay(server.port, [100_001])
    relay.start()
    # The first is not there, the second breaks, the third has it all.
    addresses = ["127.0.0.1:1", f"127.0.0.1:{relay.port}", f"127.0.0.1:{other.port}"]
    for given in (addresses, ",".join(reversed(addresses))):
        session = tapeworks.Live(given, "mbo", prices="fixed", start=1, pause=0.01)
        found = []
        for record in session:
            found.append(essence(record))
            if len(found) == len(expected):
                break
        session.close()
        assert found == expected
        assert session.reconnects == (1 if given is addresses else 0)
    assert relay.connections == 1
    other.end()
    with pytest.raises(tapeworks.LiveError, match=f"127.0.0.1:{server.port}"):
        # One refuses and one is away: it tries again, and says why the one refuses.
        next(iter(tapeworks.Live(["127.0.0.1:1", f"127.0.0.1:{server.port}"], "mbo", key="db-" + 29 * "x", attempts=1, pause=0.01)))
    with pytest.raises(tapeworks.UsageError, match="name an address"):
        tapeworks.Live([], "mbo")


def test_bars_between_cuts_come_once_too(server):
    server.publish()
    databento = pytest.importorskip("databento")
    bars = lambda record: (record.ts_event, record.open, record.close, record.volume, record.publisher_id)
    expected = [bars(record) for record in databento.DBNStore.from_file(server.folder / "ohlcv-1s.dbn")]
    orders = len(server.expected("mbo"))
    relay = Relay(server.port, [300_001, 200_003])
    relay.start()
    session = tapeworks.Live(f"127.0.0.1:{relay.port}", "mbo,ohlcv-1s", prices="fixed", start=1, pause=0.01)
    counted, found = 0, []
    for record in session:
        if record.schema == "mbo":
            counted += 1
        else:
            found.append(bars(record))
        if counted == orders and len(found) >= len(expected) - 1:
            break
    # The last bar is that of an interval which has not ended.
    assert sorted(found) == sorted(expected)[: len(found)] and session.reconnects == 2


def test_a_symbol_that_is_not_there_yet_is_a_warning(server):
    with pytest.warns(tapeworks.DataWarning, match="NOSUCH"):
        session = live(server.port, symbols="NOSUCH")
        assert session.run(lambda record: None, seconds=1) == 0
    with session:
        pass
    assert session.records == 0


def test_a_refusal_is_an_error_at_once(server):
    with pytest.raises(tapeworks.LiveError, match="127.0.0.1"):
        next(iter(live(server.port, key="db-" + 29 * "x")))
    with pytest.raises(tapeworks.UsageError, match="a key has 32"):
        next(iter(live(server.port, key="secret")))
    began = time.monotonic()
    with pytest.raises(tapeworks.LiveError):
        next(iter(live(1, attempts=3, pause=0.01)))
    assert time.monotonic() - began < 30
    for wrong in ({"address": "nowhere"}, {"schema": "mbo,mbo"}, {"schema": "none"}, {"schema": ""}, {"prices": "x"}):
        options = {"address": "127.0.0.1:1", "schema": "mbo", **wrong}
        with pytest.raises(tapeworks.UsageError):
            tapeworks.Live(**options)


def scripted(scripts):
    """The port of a server that answers one connection after the other with these bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        for script in scripts:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                connection.sendall(b"lsg_version=test\ncram=abc\n")
                lines.readline()
                connection.sendall(b"success=1|session_id=1\n")
                while lines.readline() not in (b"start_session\n", b"start_session=0\n", b""):
                    pass
                connection.sendall(script)
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


@pytest.mark.parametrize("when_refused", ["stop", "continue"])
def test_a_refused_replay_stops_or_continues_with_the_hole_reported(when_refused):
    dbn = pytest.importorskip("databento_dbn")
    metadata = dbn.Metadata("TAPEWORKS.DEMO", 0, None, dbn.SType.INSTRUMENT_ID, dbn.Schema.MBO, version=3).encode()

    def order(number, time):
        return bytes(dbn.MBOMsg(1, 1, time, number, 10**9, 100, dbn.Action.ADD, dbn.Side.BID, time))

    text = b"the replay is no longer kept"
    refusal = struct.pack("<BBHIQ302sBB", 80, 0x15, 0, 0, 0, text, 8, 1)
    begun = metadata + order(1, 10) + order(2, 20)
    # Each of two servers refuses before the client decides.
    rest = [metadata + refusal, metadata + refusal, metadata + order(7, 70) + order(8, 80)]
    port = scripted([begun, *rest])
    found = []
    session = tapeworks.Live([f"127.0.0.1:{port}"] * 2, "mbo", attempts=3, pause=0.01, when_refused=when_refused)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(tapeworks.LiveError, match=text.decode() if when_refused == "stop" else ""):
            for record in session:
                found.append(record.order_id)
                if len(found) == 4:
                    raise tapeworks.LiveError("all is there")
    assert found == ([1, 2] if when_refused == "stop" else [1, 2, 7, 8])
    missing = [str(one.message) for one in said if "may be missing from" in str(one.message)]
    assert len(missing) == (when_refused == "continue"), said
    with pytest.raises(tapeworks.UsageError, match="expected stop or continue"):
        live(1, when_refused="wait")


def test_no_symbol_is_not_all_symbols():
    with pytest.raises(tapeworks.UsageError, match="give None for all"):
        tapeworks.Live("127.0.0.1:1", "trades", symbols=[])
