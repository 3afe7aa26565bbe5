"""The live server under the official client: what it delivers, against the files of the same session."""

import argparse
import collections
import datetime
import pathlib
import subprocess
import threading

import databento
import databento_dbn

KEY = "db-TapeworksDemoKey0000000000000"
DATASET = "TAPEWORKS.DEMO"
SCHEMAS = (
    "mbo mbp-1 mbp-10 bbo-1s bbo-1m tbbo trades cmbp-1 cbbo-1s cbbo-1m status imbalance definition ohlcv-1s".split()
)
#: The flag of records of a snapshot.
SNAPSHOT = databento.RecordFlags.F_SNAPSHOT
#: Messages of the session itself, as against records.
MESSAGES = (databento.SymbolMappingMsg, databento.SystemMsg, databento.ErrorMsg)


class Server:
    """A server of a generated session, which publishes on command."""

    def __init__(self, program, folder, messages=20_000, symbols=20):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.process = subprocess.Popen(
            [program, folder, str(messages), str(symbols)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.answer("port")[0])
        self.events = int(self.answer("events")[0])

    def answer(self, word):
        """The rest of the next line, which begins with `word`."""
        line = self.process.stdout.readline().split()
        assert line and line[0] == word, f"the server said {line} instead of {word}"
        return line[1:]

    def publish(self, count=None):
        """Publishes events; returns how many there were so far and the time of the last."""
        self.process.stdin.write(f"publish {count}\n" if count else "publish all\n")
        self.process.stdin.flush()
        return tuple(int(number) for number in self.answer("published"))

    def end(self):
        """Ends the session: clients get what is left, and the end."""
        self.process.stdin.write("end\n")
        self.process.stdin.close()
        assert self.process.wait(30) == 0, "the server failed"

    def records(self, schema):
        """The records of a schema."""
        return databento.DBNStore.from_file(self.folder / f"{schema}.dbn")

    def file(self, schema):
        """The records of a schema, as bytes."""
        return [bytes(record) for record in self.records(schema)]


class Client:
    """The official client, with every record that it was given."""

    def __init__(self, server, **options):
        self.live = databento.Live(key=KEY, gateway="127.0.0.1", port=server.port, **options)
        self.records = []
        self.is_started = threading.Event()

    def subscribe(self, **options):
        self.live.subscribe(dataset=DATASET, **options)
        return self

    def start(self):
        """Begins, and waits until the server has acknowledged the subscriptions."""
        self.live.add_callback(self.take)
        self.live.start()
        assert self.is_started.wait(10), "no acknowledgement of the subscription"
        return self

    def take(self, record):
        self.records.append(record)
        if isinstance(record, databento.SystemMsg) and "succeeded" in record.msg:
            self.is_started.set()

    def end(self, may_fail=False):
        """Waits for the end of the session; returns the records."""
        try:
            self.live.block_for_close(30)
        except databento.BentoError:
            assert may_fail, "the session failed"
        return [record for record in self.records if not isinstance(record, MESSAGES)]

    def messages(self, kind):
        """The messages of the session of one kind."""
        return [record for record in self.records if isinstance(record, kind)]


def same(what, received, expected):
    """Compares records."""
    received = [bytes(record) for record in received]
    for place, (one, other) in enumerate(zip(received, expected)):
        assert one == other, f"{what}: record {place} is {one.hex()}, expected {other.hex()}"
    assert len(received) == len(expected), f"{what}: {len(received)} records, expected {len(expected)}"
    assert received, f"{what}: no record was compared"
    return len(received)


def schemas(start):
    """Every schema, all symbols, from before the first event to the end."""
    server = start("schemas")
    clients = {schema: Client(server).subscribe(schema=schema).start() for schema in SCHEMAS}
    packed = Client(server, compression=databento.Compression.ZSTD).subscribe(schema="mbo").start()
    stamped = Client(server, ts_out=True).subscribe(schema="cmbp-1").start()
    server.publish()
    server.end()
    count = 0
    for schema, client in clients.items():
        records = client.end()
        expected = server.file(schema)
        # The intervals that the end of a file ends are not over for a live client.
        if "bbo-1" in schema or schema.startswith("ohlcv"):
            assert len(expected) - len(records) <= 60, f"{schema}: {len(records)} of {len(expected)}"
            expected = expected[: len(records)]
        count += same(schema, records, expected)
        symbols = client.messages(databento.SymbolMappingMsg)
        assert len(symbols) == 20, f"{schema}: {len(symbols)} symbols"
        assert client.live.symbology_map[symbols[0].instrument_id] == symbols[0].stype_in_symbol
    count += same("mbo with zstd", packed.end(), server.file("mbo"))
    received = stamped.end()
    assert all(record.ts_out > record.ts_recv for record in received), "ts_out is not the time of sending"
    expected = server.file("cmbp-1")
    assert [bytes(record)[1:80] for record in received] == [record[1:80] for record in expected]
    return count + len(received)


def lists(start):
    """Some symbols of several schemas, by name and by number, one that is not there, and one more later."""
    server = start("lists")
    server.publish(200)
    probe = Client(server).subscribe(schema="mbo").start()
    names = {message.stype_in_symbol: message.instrument_id for message in probe.messages(databento.SymbolMappingMsg)}
    chosen = sorted(names)[:3]
    by_name = Client(server)
    by_name.subscribe(schema="trades", symbols=[chosen[0], "NOSUCH"]).subscribe(schema="mbp-1", symbols=chosen[:2])
    by_name.start()
    by_number = Client(server).subscribe(schema="mbo", symbols=[names[chosen[2]]], stype_in="instrument_id").start()
    server.publish()
    server.end()
    probe.end()
    received = collections.defaultdict(list)
    for record in by_name.end(may_fail=True):
        received[record.rtype].append(record)
    numbers = [names[name] for name in chosen]

    def of(schema, wanted):
        records = databento.DBNStore.from_file(server.folder / f"{schema}.dbn")
        return [bytes(record) for record in records if record.instrument_id in wanted]

    def end_of(received, expected):
        return expected[len(expected) - len(received) :]

    errors = [message.err for message in by_name.messages(databento.ErrorMsg)]
    assert len(errors) == 1 and "NOSUCH" in errors[0], errors
    count = 0
    for rtype, schema, wanted in ((0x00, "trades", numbers[:1]), (0x01, "mbp-1", numbers[:2])):
        expected = of(schema, wanted)
        records = [record for key, records in received.items() for record in records if int(key) == rtype]
        count += same(f"{schema} of {wanted}", records, end_of(records, expected))
        assert len(records) > 0.9 * len(expected)
    records = by_number.end()
    return count + same("mbo by number", records, end_of(records, of("mbo", numbers[2:])))


def snapshots(start):
    """The books of a snapshot and what follows it are those of the whole session."""
    server = start("snapshots")
    server.publish(10_000)
    client = Client(server).subscribe(schema="mbo", snapshot=True).start()
    quotes = Client(server).subscribe(schema="cmbp-1", snapshot=True).start()
    server.publish()
    server.end()

    def book(records):
        orders = {}
        for record in records:
            key = (record.publisher_id, record.instrument_id)
            action = str(record.action)
            if action == "R":
                orders[key] = {}
            elif action == "A":
                orders.setdefault(key, {})[record.order_id] = [str(record.side), record.price, record.size]
            elif action == "C":
                order = orders[key][record.order_id]
                order[2] -= record.size
                if order[2] == 0:
                    del orders[key][record.order_id]
        return {key: book for key, book in orders.items() if book}

    records = client.end()
    first = [record for record in records if record.flags & SNAPSHOT]
    assert first and records[: len(first)] == first, "the snapshot comes first"
    whole = databento.DBNStore.from_file(server.folder / "mbo.dbn")
    assert book(records) == book(whole), "the books differ"
    received = quotes.end()
    first = [record for record in received if record.flags & SNAPSHOT]
    assert first, "no quote in the snapshot"
    rest = received[len(first) :]
    expected = server.file("cmbp-1")
    return len(records) + same("cmbp-1 after the snapshot", rest, expected[len(expected) - len(rest) :])


def replays(start):
    """From a time of the day on: nothing is missing, nothing comes twice."""
    server = start("replays")
    _, time = server.publish(8_000)
    server.publish(4_000)
    clients = {
        schema: Client(server).subscribe(schema=schema, start=time).start() for schema in ("mbo", "mbp-1", "cmbp-1")
    }
    everything = Client(server).subscribe(schema="mbp-10", start=0).start()
    server.publish()
    server.end()
    count = same("mbp-10 from the beginning", everything.end(), server.file("mbp-10"))
    for schema, client in clients.items():
        store = databento.DBNStore.from_file(server.folder / f"{schema}.dbn")
        expected = [bytes(record) for record in store if record.ts_recv >= time]
        count += same(f"{schema} from {datetime.datetime.fromtimestamp(time / 1e9)}", client.end(), expected)
        done = [message for message in client.messages(databento.SystemMsg) if "Finished" in message.msg]
        assert len(done) == 1 and done[0].code == databento_dbn.SystemCode.REPLAY_COMPLETED, done
    return count


def refusals(start):
    """A wrong key, dataset or symbol type is reported."""
    server = start("refusals")
    for options, why in (
        ({"key": "db-TapeworksWrongKey000000000000"}, "authentication failed"),
        ({"dataset": "XNAS.ITCH"}, "unknown dataset"),
    ):
        live = databento.Live(key=options.get("key", KEY), gateway="127.0.0.1", port=server.port)
        try:
            live.subscribe(dataset=options.get("dataset", DATASET), schema="mbo")
        except databento.BentoError as error:
            assert why in str(error), error
        else:
            raise AssertionError(f"{options} was taken")
    live = databento.Live(key=KEY, gateway="127.0.0.1", port=server.port)
    live.subscribe(dataset=DATASET, schema="mbo", stype_in="parent", symbols="ES.FUT")
    try:
        live.start()
        live.block_for_close(10)
    except databento.BentoError as error:
        assert "stype_in=parent" in str(error), error
    else:
        raise AssertionError("stype_in=parent was taken")
    server.end()
    return 3


def main():
    """Runs every scenario."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the example live_server")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="a folder to write to")
    options = parser.parse_args()
    for scenario in (schemas, lists, snapshots, replays, refusals):
        count = scenario(lambda name: Server(options.server, options.work / "live" / name))
        print(f"databento, {scenario.__name__}: {count} records")


if __name__ == "__main__":
    main()
