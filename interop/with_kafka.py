"""A plant writes into Kafka itself: every record is there, once, with the values of the DBN files of the same journal.

Venues are simulated on loopback, the broker is a real one. Amid the session the plant and the broker are killed again and again, alone and
together, and start again. At the end a consumer of Confluent's client reads what is committed, and decodes it by the shipped declaration;
the journal is exported as DBN files, which databento reads. Then the topic of the position is removed amid the session, and another day's journal
comes. Then come the ways to fail: a second plant with the same id, a wrong password,
a topic that is not there, a batch that is too large, a journal that lost its end, one whose beginning was removed.

Usage: with_kafka.py --tapeworks BINARY --work FOLDER --server FOLDER, where the last has the broker's archives. KAFKA_KILLS: how often
something is killed.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_tools import protoc

from replays import ROOT, SCHEMAS, dbn_table
from with_questdb import CONSOLIDATED, GIVEN_UP, INTERVALS, LAST, OTHERWISE, SHOWN, VENUES, Plant, free_port, until

MESSAGES, RATE, SYMBOLS, SEED = 30_000, 1_500, 20, 17
KILLS = int(os.environ.get("KAFKA_KILLS", "3"))
DEADLINE = 120
USER, PASSWORD = "plant", "for-tests-only"


class Broker:
    """Kafka, one node of it on this machine alone. One listener asks for a password, the other does not."""

    def __init__(self, archives: Path, folder: Path):
        self.archives, self.folder, self.process = archives, folder, None
        self.port, self.sasl, self.controller = free_port(), free_port(), free_port()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        setting = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:{self.sasl},CONTROLLER://127.0.0.1:{self.controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:{self.sasl}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{plain} required user_{USER}="{PASSWORD}";',
            "log.dirs": folder / "data",
            "auto.create.topics.enable": "false",
            "num.partitions": 3,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        (folder / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in setting.items()))
        pattern = '<Configuration><Appenders><Console name="C"/></Appenders><Loggers><Root level="warn"><AppenderRef ref="C"/></Root></Loggers></Configuration>'
        (folder / "log4j2.xml").write_text(pattern)
        self.run("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", folder / "server.properties").wait()

    def run(self, name: str, *words) -> subprocess.Popen:
        java = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}", "-cp", f"{self.archives}/*"]
        log = open(self.folder / "log.txt", "a")
        return subprocess.Popen([str(word) for word in [*java, name, *words]], stdout=log, stderr=log)

    def start(self) -> None:
        self.process = self.run("kafka.Kafka", self.folder / "server.properties")

    def until_ready(self) -> None:
        def is_ready():
            if self.process.poll() is not None:
                sys.exit(f"the broker ended: see {self.folder / 'log.txt'}")
            consumer = self.consumer()
            try:
                return consumer.list_topics(timeout=1)
            except Exception:
                return None
            finally:
                consumer.close()

        until("the broker answers", is_ready)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def consumer(self, isolation: str = "read_committed") -> Consumer:
        setting = {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "group.id": "test",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
        return Consumer(setting, error_cb=lambda error: None)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})

    def create(self, topic: str, setting: dict, partitions: int = 1) -> None:
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=setting)])[topic].result(timeout=DEADLINE)

    def remove(self, *topics: str) -> None:
        admin = self.admin()
        for removed in admin.delete_topics(list(topics)).values():
            removed.result(timeout=DEADLINE)

    def read(self, topic: str) -> list:
        """What is committed, each with its partition, key and value, in the order of each partition."""
        consumer = self.consumer()
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        ended, found, began = set(), [], time.monotonic()
        while len(ended) < len(partitions):
            if time.monotonic() - began > DEADLINE:
                sys.exit(f"{topic} cannot be read to its end")
            for message in consumer.consume(10_000, timeout=1):
                if message.error():
                    ended.add(message.partition())
                else:
                    found.append((message.partition(), message.key().decode(), message.value()))
        consumer.close()
        return found


def messages(work: Path) -> tuple:
    """The messages of the shipped declaration, read by protoc."""
    described = work / "records.pb"
    folder = ROOT / "clients/proto"
    if protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={described}", "tapeworks_records.proto"]) != 0:
        sys.exit("protoc refuses the declaration")
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(described.read_bytes()).file:
        pool.Add(file)
    of = lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tapeworks.records.v1.{name}"))
    return of("Record"), of("Position")


def kafka_of(plant: Plant) -> dict:
    return (plant.status() or {}).get("kafka") or {}


def venues_of(work: Path, group: int, port: int, messages_: int, rate: int, wait: str = "rest") -> tuple:
    """The file of the venues, and a plant's part of them."""
    plant = ""
    venues = f'seed = {SEED}\nsymbols = {SYMBOLS}\nrate = {rate}\nmessages = {messages_}\ninterface = "127.0.0.1"\nwait = "{wait}"\n'
    for number, (name, kind, protocol, publisher) in enumerate(VENUES):
        lines = json.dumps([f"239.198.{group}.{2 * number + line}:{port}" for line in (1, 2)])
        servers = f'retransmission = "127.0.0.1:{free_port()}"\nsnapshot = "127.0.0.1:{free_port()}"\n'
        venues += f'[[venue]]\nname = "{name}"\nkind = "{kind}"\nlines = {lines}\n{servers}'
        venues += "faults = { a = { lost_per_million = 2000 }, b = { lost_per_million = 2000 } }\n"
        plant += f'[[venue]]\nname = "{name}"\nprotocol = "{protocol}"\npublisher = "{publisher}"\nlines = {lines}\n{servers}'
    file = work / "venues.toml"
    file.write_text(venues)
    return file, plant


def config(work: Path, name: str, page: int, brokers: int, of_venues: str, journal: str = "journal", more: str = "", more_journal: str = "", login: str = "") -> Path:
    file = work / f"{name}.toml"
    file.write_text(
        f'interface = "127.0.0.1"\n[journal]\nfolder = "{journal}"\nsegment_mb = 1\n{more_journal}\n[web]\nlisten = "127.0.0.1:{page}"\n'
        f'[kafka]\nbrokers = "127.0.0.1:{brokers}"\nflush_every = "50ms"\n{more}\n{login}\n{of_venues}'
    )
    return file


def compare(schema: str, messages_: list, files: list, record_type) -> tuple:
    """Compares a topic with the files of its schema. Returns records and values."""
    rows, last, seen = [], {}, set()
    for partition, key, value in messages_:
        row = record_type.FromString(value)
        place = (row.event, row.part)
        if place in seen:
            sys.exit(f"{schema}: the record {row.part} of event {row.event} is there twice")
        seen.add(place)
        if last.get(partition, (-1, 0)) >= place:
            sys.exit(f"{schema}: partition {partition} has event {row.event} behind event {last[partition][0]}")
        last[partition] = place
        if row.schema != schema or key != (row.symbol or row.publisher):
            sys.exit(f"{schema}: a record of {row.schema} and {row.symbol!r} has the key {key!r}")
        rows.append(row)
    partitions = defaultdict(set)
    for partition, key, _ in messages_:
        partitions[key].add(partition)
    if any(len(each) > 1 for each in partitions.values()):
        sys.exit(f"{schema}: a symbol is in two partitions")
    rows.sort(key=lambda row: (row.event, row.part))
    fields = record_type.DESCRIPTOR.fields_by_name
    wanted, compared, given_up = 0, 0, 0
    for feed, path in files:
        expected = dbn_table(path)
        ours = [row for row in rows if feed is None or row.publisher == feed]
        count = len(next(iter(expected.values()), []))
        if schema in INTERVALS and len(ours) < count:
            times = expected["ts_recv" if "ts_recv" in expected else "ts_event"]
            if len(set(times[len(ours):])) != 1:
                sys.exit(f"{schema} of {feed}: {len(ours)} messages, {count} records, of more than one interval")
            expected = {name: column[: len(ours)] for name, column in expected.items()}
            count = len(ours)
        if len(ours) != count:
            sys.exit(f"{schema} of {feed}: {len(ours)} messages, {count} records in {path}")
        wanted += count
        for name in expected:
            if name in OTHERWISE or name not in SHOWN.get(schema, expected):
                continue
            field = "status_action" if (schema, name) == ("status", "action") else name
            if field not in fields:
                sys.exit(f"{schema}: the declaration has no field {field}")
            for place, (row, value) in enumerate(zip(ours, expected[name])):
                mine = getattr(row, field) if row.HasField(field) else None
                if name in ("bid_pb_00", "ask_pb_00"):
                    mine, value = FEEDS.get(mine, 0), value or 0
                if name == "flags" and value & LAST and mine == value - LAST:
                    given_up += 1
                elif normal(mine) != value:
                    sys.exit(f"{schema} of {feed}, record {place}, event {row.event}: {name} is {mine!r}, the file has {value!r}")
            compared += count
        for row, symbol in zip(ours, expected.get("symbol", [])):
            if (row.symbol or None) != (symbol or None):
                sys.exit(f"{schema} of {feed}: the symbol is {row.symbol!r}, the file has {symbol!r}")
    if given_up * 100 > GIVEN_UP * max(len(rows), 1):
        sys.exit(f"{schema}: {given_up} of {len(rows)} records lack the flag of the last of a group")
    if len(rows) != wanted:
        sys.exit(f"{schema}: {len(rows)} messages, {wanted} records in {len(files)} files")
    return len(rows), compared


def normal(value):
    """The largest numbers of their types are undefined for `dbn_table`."""
    return None if isinstance(value, int) and value in (2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1) else value


FEEDS = {"XNAS.ITCH": 2, "XBOS.ITCH": 3, "IEXG.DEEP": 9001}


def ends(tapeworks: Path, file: Path, log: Path) -> str:
    """What a plant that ends by itself says."""
    done = subprocess.run([str(tapeworks), "plant", str(file), "--json"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    log.write_text(done.stderr)
    if done.returncode == 0:
        sys.exit(f"the plant of {file} ends as if all were well")
    return done.stderr


def serve(tapeworks: Path, venues: Path) -> subprocess.Popen:
    words = [str(tapeworks), "exchange", "serve", str(venues), "--json"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=open(venues.with_suffix(".log"), "a"))


def files_of(tapeworks: Path, file: Path, out: Path, schemas: list) -> Path:
    """The folder with the DBN files of a plant's journal."""
    export = ["journal", "export", file, "--out", out, "--schema", ",".join(schemas), "--format", "dbn"]
    done = subprocess.run([str(word) for word in [tapeworks, *export]], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"the export ended with {done.returncode}: {done.stderr}")
    (day,) = out.iterdir()
    return day


def with_topics_removed(broker: Broker, tapeworks: Path, work: Path, types: tuple, plants: list) -> None:
    """An operator creates the position's topic with three partitions, and removes it with another one amid the session. Then comes the journal
    of another day."""
    record_type, position_type = types
    work.mkdir()
    # By its key the position would be in the topic's last partition.
    name, schemas, page = "removed-1", ["mbo", "trades"], free_port()
    position, mbo, trades = f"{name}.position", f"{name}.mbo", f"{name}.trades"
    broker.create(position, {"cleanup.policy": "compact"}, partitions=3)
    venues, of_venues = venues_of(work, random.randrange(1, 250), random.randrange(20_000, 30_000), 9_000, 1_500)
    more = f'id = "{name}"\ntopic = "{name}.{{schema}}"\nschemas = {json.dumps(schemas)}'
    file = config(work, "plant", page, broker.port, of_venues, more=more)
    plant = Plant(tapeworks, file, page, work / "plant.log")
    plants.append(plant)

    def all_of(exchange: subprocess.Popen) -> dict:
        """The plant's summary when all is sent."""
        assert exchange.wait(timeout=DEADLINE) == 0
        until("all is sent", lambda: kafka_of(plant).get("is_connected") and kafka_of(plant).get("lag_events", 1) == 0)
        ended = plant.end()
        assert ended["kafka"]["lost_events"] == 0, ended["kafka"]
        sent = [position_type.FromString(value).next_event for _, key, value in broker.read(position) if key == name]
        assert sent[-1] == ended["events"], (sent[-1], ended["kafka"])
        return ended

    plant.start()
    exchange = serve(tapeworks, venues)
    try:
        until("the first records", lambda: kafka_of(plant).get("records", 0) > 500)
        plant.kill()
        plant.start()
        until("more records", lambda: kafka_of(plant).get("records", 0) > 500)
        broker.remove(position, trades)
        began = time.monotonic()
        failures = all_of(exchange)["kafka"]["failures"]
        assert failures > 0
        day = files_of(tapeworks, file, work / "days", schemas)
        of = lambda schema, day: [(feed, day / feed / f"{schema}.dbn") for *_, feed in VENUES]
        before = broker.read(mbo)
        records, _ = compare("mbo", before, of("mbo", day), record_type)
        places = [(row.event, row.part) for row in (record_type.FromString(value) for *_, value in broker.read(trades))]
        assert len(places) == len(set(places)), "trades are there twice"
        print(f"the topic of the position had three partitions, and was removed: {records} records once each, {time.monotonic() - began:.0f} s later")
        (work / "journal").rename(work / "journal-before")
        (work / "days").rename(work / "days-before")
        plant.start()
        exchange = serve(tapeworks, venues)
        all_of(exchange)
        day = files_of(tapeworks, file, work / "days", ["mbo"])
        # Of each partition the later ones.
        places, later = defaultdict(int), []
        for partition, *_ in before:
            places[partition] += 1
        for message in broker.read(mbo):
            places[message[0]] -= 1
            if places[message[0]] < 0:
                later.append(message)
        records, _ = compare("mbo", later, of("mbo", day), record_type)
        print(f"a later journal is sent from its first event: {records} records once each")
    finally:
        exchange.kill()
        exchange.wait()


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--tapeworks", "--work", "--server"):
        parser.add_argument(name, required=True, type=Path)
    given = parser.parse_args()
    work, tapeworks = (given.work / "kafka").resolve(), given.tapeworks.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    record_type, position_type = messages(work)
    broker, page = Broker(given.server.resolve(), work / "broker"), free_port()
    group, port = random.randrange(1, 250), random.randrange(20_000, 30_000)
    venues, of_venues = venues_of(work, group, port, MESSAGES, RATE)
    main_file = config(work, "plant", page, broker.port, of_venues, more=f"schemas = {json.dumps(SCHEMAS)}\nbatch_records = 500", more_journal='checkpoint_every = "2s"')
    plant, others = Plant(tapeworks, main_file, page, work / "plant.log"), []
    exchange = None

    def other(file: Path, page_: int) -> Plant:
        others.append(Plant(tapeworks, file, page_, file.with_suffix(".log")))
        others[-1].start()
        return others[-1]

    try:
        # The broker is away at the start, and the plant waits for it.
        plant.start()
        until("an error while the broker is away", lambda: kafka_of(plant).get("error"))
        broker.start()
        broker.until_ready()
        until("a connection", lambda: kafka_of(plant).get("is_connected"))
        exchange = serve(tapeworks, venues)
        until("the first records", lambda: kafka_of(plant).get("records", 0) > 1_000)
        choose, killed = random.Random(SEED), []
        for number in range(KILLS):
            time.sleep(choose.uniform(0.3, 1.5))
            is_plant, is_broker = [(True, False), (False, True), (True, True)][number % 3]
            if is_plant:
                plant.kill()
            if is_broker:
                broker.kill()
                broker.start()
            if is_plant:
                time.sleep(choose.uniform(0, 0.3))
                plant.start()
            before = kafka_of(plant).get("position") or 0
            until("the output goes on", lambda: kafka_of(plant).get("is_connected") and (kafka_of(plant).get("position") or 0) > before)
            killed.append("both" if is_plant and is_broker else "plant" if is_plant else "broker")
        exchange.wait(timeout=DEADLINE)
        assert exchange.returncode == 0, exchange.returncode
        idle_since = time.monotonic()
        until("all is sent", lambda: kafka_of(plant).get("lag_events", 1) == 0 or time.monotonic() - idle_since > 20)
        ended = plant.end()
        assert ended["kafka"]["lost_events"] == 0 and ended["kafka"]["lag_events"] == 0, ended["kafka"]
        _, key, value = broker.read("tapeworks.position")[-1]
        assert key == "tapeworks" and position_type.FromString(value).next_event == ended["events"], ended["kafka"]
        day = files_of(tapeworks, main_file, work / "days", SCHEMAS)
        rows, values = 0, 0
        for schema in SCHEMAS:
            folders = ["nbbo"] if schema in CONSOLIDATED else [feed for *_, feed in VENUES]
            files = [(None if folder == "nbbo" else folder, day / folder / f"{schema}.dbn") for folder in folders]
            files = [(feed, path) for feed, path in files if path.exists()]
            of_schema = compare(schema, broker.read(f"tapeworks.{schema}"), files, record_type)
            may_be_empty = ("imbalance", "statistics", "cbbo-1m", "bbo-1m", "ohlcv-1m", "ohlcv-1h", "ohlcv-1d")
            if schema not in may_be_empty and of_schema[0] == 0:
                sys.exit(f"{schema}: nothing was compared")
            rows, values = rows + of_schema[0], values + of_schema[1]
        if rows < MESSAGES:
            sys.exit(f"only {rows} records were compared")
        print(f"Kafka has the {rows} records of {len(SCHEMAS)} schemas once each ({values} values); killed: {', '.join(killed)}")

        with_topics_removed(broker, tapeworks, work / "removed", (record_type, position_type), others)

        # Two plants with one id: the second takes it, and the first ends with the reason.
        plant.start()
        until("a connection", lambda: kafka_of(plant).get("is_connected"))
        shutil.copytree(work / "journal", work / "journal2", ignore=shutil.ignore_patterns("*lock*"))
        page2 = free_port()
        second = other(config(work, "second", page2, broker.port, of_venues, "journal2"), page2)
        until("the second is connected", lambda: kafka_of(second).get("is_connected"))
        plant.process.wait(timeout=DEADLINE)
        said = (work / "plant.log").read_text()
        assert plant.process.returncode not in (0, None) and "another one uses the id 'tapeworks'" in said, said[-2000:]
        assert kafka_of(second)["is_connected"]
        second.end()

        # Errors that say what is wrong, while the plant itself works.
        login = lambda password: f'[kafka.login]\nuser = "{USER}"\nmechanism = "PLAIN"\npassword = "{password}"'
        cases = [
            ("password", broker.sasl, 'id = "p"', login("wrong"), "refuses the login"),
            ("topic", broker.port, 'id = "t"\ntopic = "none.{schema}"\ncreate_topics = false', "", "no topic none.trades"),
        ]
        for name, at, more, of_login, expected in cases:
            page_ = free_port()
            wrong = other(config(work, name, page_, at, of_venues, f"journal-{name}", more, login=of_login), page_)
            until(f"the error of {name}", lambda: expected in (kafka_of(wrong).get("error") or ""))
            assert PASSWORD not in wrong.log.read_text()
            wrong.kill()
        page_ = free_port()
        right = other(config(work, "right", page_, broker.sasl, of_venues, "journal-right", 'id = "r"', login=login(PASSWORD)), page_)
        until("the login", lambda: kafka_of(right).get("is_connected"))
        right.end()

        # A journal that is not the position's: one that ends before it.
        shutil.copytree(work / "journal2", work / "journal3", ignore=shutil.ignore_patterns("*lock*"))
        newest = sorted((work / "journal3").glob("*.journal"))
        for path in newest[len(newest) // 2:]:
            path.unlink()
        for path in set((work / "journal3").iterdir()) - set(newest):
            path.unlink()
        said = ends(tapeworks, config(work, "short", free_port(), broker.port, of_venues, "journal3"), work / "short.log")
        assert "the journal ends at event" in said, said
        # One whose beginning was removed: the loss is counted, and the rest is sent.
        shutil.copytree(work / "journal2", work / "journal4", ignore=shutil.ignore_patterns("*lock*"))
        for path in sorted((work / "journal4").glob("*.journal"))[:2]:
            path.unlink()
        page_ = free_port()
        beheaded = other(config(work, "beheaded", page_, broker.port, of_venues, "journal4", 'id = "b"\ntopic = "b.{schema}"'), page_)
        until("what is left of the journal", lambda: kafka_of(beheaded).get("records") and kafka_of(beheaded)["lost_events"])
        beheaded.kill()

        # Batches that are too large are not taken, and the error says what to do; those that are not are.
        broker.create("large.trades", {"max.message.bytes": "400"})
        page_ = free_port()
        more = 'id = "l"\ntopic = "large.{schema}"\nschemas = "trades"\ncompression = "none"'
        large = other(config(work, "large", page_, broker.port, of_venues, "journal4", more), page_)
        until("the error of a large batch", lambda: "'batch_kb' makes batches smaller" in (kafka_of(large).get("error") or ""))
        large.kill()
    finally:
        for each in [plant, *others]:
            each.kill()
        broker.kill()
        if exchange:
            exchange.kill()
            exchange.wait()
    print(
        "a second plant with the same id takes it; a wrong password, a missing topic, a large batch, a journal without its end or beginning "
        "are named"
    )
    shutil.rmtree(work / "broker")
    return 0


if __name__ == "__main__":
    sys.exit(main())
