"""A plant that listens to venues on loopback multicast, under the official clients: live and replayed, against its journal's files."""

import argparse
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading

import databento

KEY = "db-TapeworksDemoKey0000000000000"
DATASET = "TAPEWORKS.DEMO"
SCHEMAS = ("mbo", "cmbp-1")
MESSAGES = (databento.SymbolMappingMsg, databento.SystemMsg, databento.ErrorMsg)
#: The kind of an order's record.
MBO = 0xA0
#: The smallest that says something: two venues, lines that lose.
MARKET = 40_000
VENUES = (("Nasdaq", "nasdaq", "XNAS.ITCH"), ("BX", "bx", "XBOS.ITCH"))


def ports(kind, count):
    """Ports that are free now."""
    sockets = [socket.socket(socket.AF_INET, kind) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    numbers = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return numbers


def configure(folder, messages=MARKET, rate=20_000):
    """Writes the configurations of the venues and the plant; returns them and the clients' port."""
    [clients, *snapshots] = ports(socket.SOCK_STREAM, 3)
    [line, *retransmissions] = ports(socket.SOCK_DGRAM, 3)
    venues = plant = ""
    for number, (name, kind, publisher) in enumerate(VENUES):
        # A range that nothing else here uses.
        group = f"239.198.{os.getpid() % 250}.{1 + 2 * number}", f"239.198.{os.getpid() % 250}.{2 + 2 * number}"
        both = (
            f'[[venue]]\nname = "{name}"\nlines = ["{group[0]}:{line}", "{group[1]}:{line}"]\n'
            f'retransmission = "127.0.0.1:{retransmissions[number]}"\nsnapshot = "127.0.0.1:{snapshots[number]}"\n'
        )
        faults = "{ a = { lost_per_million = 5_000 }, b = { lost_per_million = 5_000 } }"
        venues += f'{both}kind = "{kind}"\nfaults = {faults}\n'
        plant += f'{both}protocol = "itch"\npublisher = "{publisher}"\n'
    head = f'rate = {rate}\nmessages = {messages}\nsymbols = 20\nwait = "rest"\ninterface = "127.0.0.1"\n'
    (folder / "venues.toml").write_text(head + venues)
    head = (
        f'interface = "127.0.0.1"\n[journal]\nfolder = "journal"\nsegment_mb = 4\ncheckpoint_every = "200ms"\n'
        f'[clients]\nlisten = "127.0.0.1:{clients}"\ndataset = [{{ name = "{DATASET}" }}]\n'
        f'key = [{{ name = "demo", key = "{KEY}" }}]\n'
    )
    (folder / "plant.toml").write_text(head + plant)
    return folder / "venues.toml", folder / "plant.toml", clients


def start_plant(program, config):
    """Starts a plant and waits until it serves."""
    plant = subprocess.Popen(
        [program, "plant", config], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    for line in plant.stderr:
        if "clients are served" in line:
            threading.Thread(target=plant.stderr.read, daemon=True).start()
            return plant
    raise AssertionError("the plant ended before it served")


class Client:
    """The official client in Python, of one schema."""

    def __init__(self, port, schema, start=None):
        self.live = databento.Live(key=KEY, gateway="127.0.0.1", port=port)
        self.live.subscribe(dataset=DATASET, schema=schema, start=start)
        self.records = []
        self.is_ready, self.is_replayed = threading.Event(), threading.Event()
        self.live.add_callback(self.take)
        self.live.start()
        assert self.is_ready.wait(30), f"{schema}: no acknowledgement"

    def take(self, record):
        self.records.append(record)
        if isinstance(record, databento.SystemMsg):
            if "succeeded" in record.msg:
                self.is_ready.set()
            if "Finished" in record.msg:
                self.is_replayed.set()

    def end(self):
        """The records to the end of the session, as (publisher, symbol, time, bytes without the number of the instrument)."""
        self.live.block_for_close(60)
        mappings = [record for record in self.records if isinstance(record, databento.SymbolMappingMsg)]
        symbols = {record.instrument_id: record.stype_out_symbol for record in mappings}
        records = [bytes(record) for record in self.records if not isinstance(record, MESSAGES)]
        return [values_of(record, symbols) for record in records]


class RustClient:
    """The official client in Rust, of all schemas."""

    def __init__(self, program, port, folder, start=0):
        self.folder = folder
        arguments = [program, "--plant", str(port), folder, str(start)]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self.wait_for("subscribed" if start == 0 else "replayed")

    def wait_for(self, word):
        """Waits until both schemas are so far."""
        lines = 0
        while lines < len(SCHEMAS):
            line = self.process.stdout.readline()
            assert line, "the Rust client ended"
            lines += line.startswith(word)

    def end(self):
        """The records of each schema, as in `Client.end`."""
        assert self.process.wait(60) == 0, "the Rust client failed"
        records = {}
        for schema in SCHEMAS:
            lines = (self.folder / f"{schema}.symbols").read_text().splitlines()
            symbols = {int(number): symbol for number, symbol in (line.split() for line in lines)}
            rest = (self.folder / f"{schema}.records").read_bytes()
            records[schema] = []
            while rest:
                record, rest = rest[: rest[0] * 4], rest[rest[0] * 4 :]
                records[schema].append(values_of(record, symbols))
        return records


def values_of(record, symbols):
    """A record without the number of its instrument, which each server gives out by itself, and with its symbol."""
    publisher, number = int.from_bytes(record[2:4], "little"), int.from_bytes(record[4:8], "little")
    # Where a record has the time of receipt: an order's number stands before it.
    at = 40 if record[1] == MBO else 32
    return publisher, symbols.get(number, ""), int.from_bytes(record[at : at + 8], "little"), record[:4] + record[8:]


def exported(folder, schema):
    """What the journal's files hold of a schema."""
    records = []
    for path in sorted(folder.rglob(f"{schema}.dbn")):
        store = databento.DBNStore.from_file(path)
        symbols = {int(one["symbol"]): symbol for symbol, all in store.mappings.items() for one in all}
        records += [values_of(bytes(record), symbols) for record in store]
    return records


def by_publisher(records, schema):
    """Orders of each venue keep their sequence; the files of several venues have none among them."""
    parts = {}
    for publisher, *rest in records:
        parts.setdefault(publisher if schema == "mbo" else 0, []).append((publisher, *rest))
    return parts


def same(what, schema, one, other):
    """Compares records; returns how many."""
    one, other = by_publisher(one, schema), by_publisher(other, schema)
    assert one.keys() == other.keys(), f"{what}: publishers {one.keys()}, expected {other.keys()}"
    for publisher, records in one.items():
        for place, (record, expected) in enumerate(zip(records, other[publisher])):
            assert record == expected, f"{what}, publisher {publisher}: record {place} is {record}, expected {expected}"
        counts = len(records), len(other[publisher])
        assert counts[0] == counts[1], f"{what}, publisher {publisher}: {counts[0]} records, expected {counts[1]}"
    count = sum(map(len, one.values()))
    assert count > 1000, f"{what}: only {count} records"
    return count


def main():
    """Plant, venues, clients of now and of the past, and the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tapeworks", required=True, help="the program")
    parser.add_argument("--rust-client", required=True, help="the program of interop/live")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="a folder to write to")
    options = parser.parse_args()
    folder = options.work / "plant"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    venues, config, port = configure(folder)
    plant = start_plant(options.tapeworks, config)
    try:
        live = {schema: Client(port, schema) for schema in SCHEMAS}
        rust = RustClient(options.rust_client, port, folder / "rust-live")
        subprocess.run([options.tapeworks, "exchange", "serve", venues], check=True, stdout=subprocess.DEVNULL)
        orders = [record for record in live["mbo"].records if isinstance(record, databento.MBOMsg)]
        start = orders[len(orders) // 2].ts_recv
        replayed = {schema: Client(port, schema, start) for schema in SCHEMAS}
        assert all(client.is_replayed.wait(60) for client in replayed.values()), "a replay did not end"
        rust_replayed = RustClient(options.rust_client, port, folder / "rust-replayed", start)
    finally:
        plant.send_signal(signal.SIGINT)
        plant.wait(60)
    assert plant.returncode == 0, f"the plant ended with {plant.returncode}"
    export = [options.tapeworks, "journal", "export", config, "--out", folder / "days", "--schema", ",".join(SCHEMAS)]
    subprocess.run([*export, "--format", "dbn"], check=True, stdout=subprocess.DEVNULL)
    rust, rust_replayed = rust.end(), rust_replayed.end()
    for schema in SCHEMAS:
        whole = exported(folder / "days", schema)
        rest = [record for record in whole if record[2] >= start]
        assert 0 < len(rest) < len(whole), f"{schema}: the replay is of all or of nothing"
        for name, records, expected in (
            ("Python, live", live[schema].end(), whole),
            ("Rust, live", rust[schema], whole),
            ("Python, replayed", replayed[schema].end(), rest),
            ("Rust, replayed", rust_replayed[schema], rest),
        ):
            print(f"a plant's {schema}, {name}: {same(f'{schema}, {name}', schema, records, expected)} records")


if __name__ == "__main__":
    main()
