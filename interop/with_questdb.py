"""A plant writes into QuestDB itself: every row is there, once, with the values of the DBN files of the same journal.

Venues are simulated on loopback. Amid the session the server is killed and starts again, and so does the plant. At the end
the journal is exported as DBN files, which databento reads, and the tables are read by SQL.

Usage: with_questdb.py --tapeworks BINARY --work FOLDER --server FOLDER, where the last has QuestDB's archive.
"""

import argparse
import calendar
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from decimal import Decimal
from pathlib import Path

from replays import SCHEMAS, UNDEFINED, dbn_table

VENUES = [
    ("Nasdaq", "nasdaq", "itch", "XNAS.ITCH"),
    ("BX", "bx", "itch", "XBOS.ITCH"),
    ("IEX", "iex-deep", "deep", "IEXG.DEEP"),
]
MESSAGES, RATE, SYMBOLS, SEED = 90_000, 4_500, 25, 11

# Small, so that records find no room while the server is away.
QUEUE_MB = 1

# What a DBN file has and a table has in another form, or not: the feed's and the instrument's names stand for their numbers.
OTHERWISE = {"rtype", "publisher_id", "instrument_id", "symbol"}
# Of a definition the table has only the fields that venues publish for equities; these stay.
SHOWN = {
    "definition": {
        "ts_recv", "ts_event", "security_update_action", "instrument_class", "currency", "secsubtype", "group",
        "exchange", "cfi", "security_type", "raw_instrument_id", "min_lot_size_round_lot",
    }
}
# A file ends the interval that is open when it ends; a plant sends an interval when it is over.
INTERVALS = {"bbo-1s", "bbo-1m", "cbbo-1s", "cbbo-1m", "ohlcv-1s", "ohlcv-1m", "ohlcv-1h", "ohlcv-1d"}
CONSOLIDATED = {"cmbp-1", "cbbo-1s", "cbbo-1m"}
DEADLINE = 120

# How often a table of the server's may be resumed; more is a fault of its own.
RESUMED = 20

# The plant gives up a group of events that a gap cuts, or whose end was lost and comes late by retransmission: its last record is
# not marked as the last. A file waits for the end and marks it. At most so many of a hundred rows differ.
LAST, GIVEN_UP = 128, 5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what: str, look):
    """What `look` gives as soon as it gives something."""
    began = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() - began > DEADLINE:
            sys.exit(f"waited {DEADLINE} s in vain: {what}")
        time.sleep(0.05)


def get(url: str):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def certify(folder: Path) -> None:
    """An authority, and a certificate of this machine that it has signed."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    for words in (
        ["req", "-x509", *key, "-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=authority for tests"],
        ["req", "-new", *key[:-2], "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server"],
        ["x509", "-req", "-in", "server.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-days", "2", "-out", "server.pem",
         "-extfile", "extensions"],
    ):
        (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


class Server:
    """QuestDB, on this machine alone."""

    def __init__(self, archive: Path, folder: Path):
        self.archive, self.folder, self.port = archive, folder, free_port()
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "conf").mkdir(parents=True)
        setting = [
            f"http.bind.to=127.0.0.1:{self.port}", "http.min.enabled=false", "pg.enabled=false",
            "line.tcp.enabled=false", "telemetry.enabled=false", "shared.worker.count=2",
            # A column of a partition takes a page of disk at once: 16 MB by default, 6 GB for these tables.
            "cairo.writer.data.append.page.size=64K", "cairo.writer.data.index.key.append.page.size=16K",
            "cairo.writer.data.index.value.append.page.size=64K", "cairo.wal.writer.data.append.page.size=64K",
            "cairo.wal.event.writer.append.page.size=64K", "cairo.system.writer.data.append.page.size=64K",
            "cairo.system.wal.writer.data.append.page.size=64K", "cairo.writer.misc.append.page.size=4K",
            "cairo.o3.column.memory.size=256K",
        ]
        (folder / "conf/server.conf").write_text("\n".join(setting) + "\n")
        self.process, self.resumed = None, 0

    def start(self) -> None:
        log = open(self.folder / "log.txt", "a")
        words = ["java", "-Xmx768m", "-p", self.archive, "-m", "io.questdb/io.questdb.ServerMain", "-d", self.folder]
        self.process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        until("QuestDB answers", lambda: self.process.poll() is None and self.answers())

    def answers(self) -> bool:
        try:
            return self.query("SELECT 1") == [{"1": 1}]
        except OSError:
            return False

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def execute(self, sql: str) -> dict:
        url = f"http://127.0.0.1:{self.port}/exec?" + urllib.parse.urlencode({"query": sql, "timings": "false"})
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer, parse_float=Decimal)

    def query(self, sql: str) -> list:
        """Rows as dictionaries; numbers with a point are exact."""
        result = self.execute(sql)
        names = [column["name"] for column in result["columns"]]
        assert result["count"] == len(result["dataset"]), sql
        return [dict(zip(names, row)) for row in result["dataset"]]

    def resume(self, table: dict) -> None:
        """As an operator would: QuestDB stops applying to a table when the machine refuses it something, a full disk's space for one."""
        print(f"QuestDB stopped at {table['name']}: {table['errorTag']} {table['errorMessage']}", file=sys.stderr)
        self.resumed += 1
        if self.resumed > RESUMED:
            sys.exit(f"QuestDB stopped {self.resumed} times")
        self.execute(f"ALTER TABLE {table['name']} RESUME WAL")

    def settle(self) -> None:
        """Waits until everything that was acknowledged can be read."""

        def is_settled() -> bool:
            tables = self.query("SELECT name, suspended, writerTxn, sequencerTxn, errorTag, errorMessage FROM wal_tables()")
            for table in tables:
                if table["suspended"]:
                    self.resume(table)
            return all(table["writerTxn"] == table["sequencerTxn"] for table in tables)

        until("QuestDB applies what it has taken", is_settled)


class Plant:
    """A plant and the status on its page."""

    def __init__(self, binary: Path, config: Path, page: int, log: Path):
        self.words, self.page, self.log, self.process = [str(binary), "plant", str(config), "--json"], page, log, None

    def start(self) -> None:
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=log, text=True)
        until("the plant's page", lambda: self.process.poll() is None and self.status())

    def status(self):
        try:
            return get(f"http://127.0.0.1:{self.page}/status.json")
        except OSError:
            return None

    def questdb(self) -> dict:
        return (self.status() or {}).get("questdb") or {}

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def end(self) -> dict:
        self.process.send_signal(signal.SIGINT)
        printed, _ = self.process.communicate(timeout=DEADLINE)
        return json.loads(printed)


def configure(work: Path, questdb: int, page: int) -> tuple:
    """The files of the plant and of the venues."""
    port, group = random.randrange(20_000, 30_000), random.randrange(1, 250)
    plant = f"""interface = "127.0.0.1"
[journal]
folder = "journal"
segment_mb = 4
[web]
listen = "127.0.0.1:{page}"
[questdb]
address = "127.0.0.1:{questdb}"
schemas = {json.dumps(SCHEMAS)}
table_prefix = "test_"
queue_mb = {QUEUE_MB}
flush_every = "50ms"
"""
    venues = f'seed = {SEED}\nsymbols = {SYMBOLS}\nrate = {RATE}\nmessages = {MESSAGES}\ninterface = "127.0.0.1"\nwait = "rest"\n'
    for number, (name, kind, protocol, publisher) in enumerate(VENUES):
        lines = json.dumps([f"239.197.{group}.{2 * number + line}:{port}" for line in (1, 2)])
        servers = f'retransmission = "127.0.0.1:{free_port()}"\nsnapshot = "127.0.0.1:{free_port()}"\n'
        venues += f'[[venue]]\nname = "{name}"\nkind = "{kind}"\nlines = {lines}\n{servers}'
        venues += "faults = { a = { lost_per_million = 2000 }, b = { lost_per_million = 2000 } }\n"
        plant += f'[[venue]]\nname = "{name}"\nprotocol = "{protocol}"\npublisher = "{publisher}"\nlines = {lines}\n{servers}'
    files = work / "plant.toml", work / "venues.toml"
    files[0].write_text(plant)
    files[1].write_text(venues)
    return files


def nanoseconds(text: str) -> int:
    """2026-01-02T03:04:05.123456789Z."""
    whole, fraction = text.rstrip("Z").split(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) * 10**9 + int(fraction.ljust(9, "0"))


def normal(name: str, value):
    """A value of the table as `dbn_table` has it."""
    if isinstance(value, str):
        return nanoseconds(value) if name.startswith("ts_") or name == "auction_time" else value
    if isinstance(value, Decimal):
        # Nine places are what a price has.
        return int((value * 10**9).to_integral_value())
    # The largest difference of times is a number in the table, which `dbn_table` takes for an undefined one.
    return None if value in UNDEFINED else value


def compare(server: Server, schema: str, files: list) -> tuple:
    """Compares a table with the files of its schema. Returns rows and values."""
    table = "test_" + schema.replace("-", "_")
    rows = server.query(f"SELECT * FROM {table} ORDER BY event, part")
    wanted, compared, given_up = 0, 0, 0
    for feed, path in files:
        expected = dbn_table(path)
        ours = [row for row in rows if feed is None or row["publisher"] == feed]
        count = len(next(iter(expected.values()), []))
        if schema in INTERVALS and len(ours) < count:
            times = expected["ts_recv" if "ts_recv" in expected else "ts_event"]
            if len(set(times[len(ours):])) != 1:
                sys.exit(f"{schema} of {feed}: {len(ours)} rows, {count} records, of more than one interval")
            expected = {name: column[: len(ours)] for name, column in expected.items()}
            count = len(ours)
        if len(ours) != count:
            sys.exit(f"{schema} of {feed}: {len(ours)} rows, {count} records in {path}")
        wanted += count
        names = [name for name in expected if name not in OTHERWISE and name in SHOWN.get(schema, expected)]
        for name in names:
            is_price = name.endswith("price") or "_px_" in name or name.endswith("_collar") or name in ("open", "high", "low", "close")
            for place, (row, value) in enumerate(zip(ours, expected[name])):
                if name not in row:
                    sys.exit(f"{schema}: the table has no column {name}")
                mine = row[name]
                if is_price and isinstance(mine, int):
                    mine = Decimal(mine)
                if name in ("bid_pb_00", "ask_pb_00"):
                    mine = FEEDS.get(mine, 0) if mine is not None else 0
                    value = value or 0
                if name == "flags" and value & LAST and mine == value - LAST:
                    given_up += 1
                elif normal(name, mine) != value:
                    sys.exit(f"{schema} of {feed}, row {place}: {name} is {mine!r}, the file has {value!r}")
            compared += count
        symbols = expected.get("symbol", [])
        for place, (row, symbol) in enumerate(zip(ours, symbols)):
            if row["symbol"] != symbol:
                sys.exit(f"{schema} of {feed}, row {place}: the symbol is {row['symbol']!r}, the file has {symbol!r}")
    if given_up * 100 > GIVEN_UP * len(rows):
        sys.exit(f"{schema}: {given_up} of {len(rows)} rows lack the flag of the last of a group")
    if len(rows) != wanted:
        sys.exit(f"{schema}: {len(rows)} rows, {wanted} records in {len(files)} files")
    return len(rows), compared


FEEDS = {"XNAS.ITCH": 2, "XBOS.ITCH": 3, "IEXG.DEEP": 9001}


def sums(server: Server, files: list) -> int:
    """Trades in a typical query: of each symbol their number, their shares, the first price and the last."""
    expected: dict = {}
    for feed, path in files:
        table = dbn_table(path)
        for symbol, size, price in zip(table["symbol"], table["size"], table["price"]):
            count, shares, first, _ = expected.get((feed, symbol), (0, 0, price, None))
            expected[feed, symbol] = (count + 1, shares + size, first, price)
    rows = server.query(
        "SELECT publisher, symbol, count() count, sum(size) shares, first(price) first, last(price) last "
        "FROM (SELECT * FROM test_trades ORDER BY event, part)"
    )
    prices = ("first", "last")
    found = {
        (row["publisher"], row["symbol"]): (row["count"], row["shares"], *(int(Decimal(row[name]) * 10**9) for name in prices))
        for row in rows
    }
    if found != expected:
        key = next(key for key in expected.keys() | found.keys() if found.get(key) != expected.get(key))
        sys.exit(f"trades of {key}: {found.get(key)} by SQL, {expected.get(key)} in the files")
    return len(found)


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--tapeworks", "--work", "--server"):
        parser.add_argument(name, required=True, type=Path)
    given = parser.parse_args()
    work = (given.work / "questdb").resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (archive,) = given.server.resolve().glob("questdb-*.jar")
    server, page = Server(archive, work / "server"), free_port()
    config, venues = configure(work, server.port, page)
    plant = Plant(given.tapeworks.resolve(), config, page, work / "plant.log")
    exchange = None
    try:
        server.start()
        plant.start()
        until("the tables", lambda: plant.questdb().get("is_connected"))
        exchange = subprocess.Popen(
            [str(given.tapeworks.resolve()), "exchange", "serve", str(venues), "--json"],
            stdout=subprocess.DEVNULL, stderr=open(work / "venues.log", "w"),
        )
        until("the first rows", lambda: plant.questdb().get("rows", 0) > 1_000)
        server.kill()
        full = until("rows without room", lambda: plant.questdb().get("overflowed", 0) and plant.questdb())
        assert not full["is_connected"] and full["lost"] == 0 and full["error"], full
        server.start()
        back = until("rows from the journal", lambda: plant.questdb().get("rows_again", 0) and plant.questdb())
        assert back["reconnects"] == 1, back
        plant.kill()
        plant.start()
        exchange.wait(timeout=DEADLINE)
        assert exchange.returncode == 0, exchange.returncode

        def is_done():
            status = plant.questdb()
            is_idle = status.get("waiting") == 0 and not status["to_send_again"] and not status["sending_again"]
            return status if is_idle and status["sent_again"] else None

        until("the day is sent again", is_done)
        ended = plant.end()["questdb"]
        assert ended["lost"] == 0 and ended["refused"] == 0 and ended["unreadable"] == 0, ended
        server.settle()
        export = ["journal", "export", config, "--out", work / "days", "--schema", ",".join(SCHEMAS), "--format", "dbn"]
        done = subprocess.run([str(word) for word in [given.tapeworks.resolve(), *export]], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            sys.exit(f"the export ended with {done.returncode}: {done.stderr}")
        (day,) = (work / "days").iterdir()
        rows, values = 0, 0
        for schema in SCHEMAS:
            folders = ["nbbo"] if schema in CONSOLIDATED else [feed for *_, feed in VENUES]
            files = [(None if folder == "nbbo" else folder, day / folder / f"{schema}.dbn") for folder in folders]
            files = [(feed, path) for feed, path in files if path.exists()]
            of_schema = compare(server, schema, files)
            # A session of seconds ends no hour, and a minute only sometimes.
            may_be_empty = ("imbalance", "statistics", "cbbo-1m", "bbo-1m", "ohlcv-1m", "ohlcv-1h", "ohlcv-1d")
            if schema not in may_be_empty and of_schema[0] == 0:
                sys.exit(f"{schema}: nothing was compared")
            rows, values = rows + of_schema[0], values + of_schema[1]
        groups = sums(server, [(feed, day / feed / "trades.dbn") for *_, feed in VENUES if (day / feed / "trades.dbn").exists()])
    finally:
        plant.kill()
        server.kill()
        if exchange:
            exchange.kill()
            exchange.wait()
    if rows < MESSAGES:
        sys.exit(f"only {rows} rows were compared")
    print(f"QuestDB has the {rows} records of {len(SCHEMAS)} schemas once each ({values} values, {groups} sums by SQL)")
    shutil.rmtree(work / "server")
    return 0


if __name__ == "__main__":
    sys.exit(main())
