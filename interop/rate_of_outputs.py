"""How many records a second a plant writes into Kafka and into QuestDB: the same journal, the same schemas, one after the other.

A plant first fills a journal from simulated venues, with neither. Then it starts on copies of that journal, once with `[kafka]` and once with
`[questdb]`, and the time counts from the first record that the server has taken to the last. Reading the journal and making books are included.
At the end the plant with `[kafka]` is idle for a while, and its CPU is counted.

Usage: rate_of_outputs.py --tapeworks BINARY --work FOLDER --kafka FOLDER --questdb FOLDER, where the last two have the servers' archives, as
the steps `kafka` and `questdb` of `cargo xtask test` fetch them.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from with_kafka import Broker, kafka_of, venues_of
from with_questdb import Plant, Server, free_port, until

SCHEMAS = ["mbo", "mbp-10", "trades", "cmbp-1"]


def rate(name: str, look, is_done) -> str:
    """Records a second, from the first look with records to the one after which no more come."""
    first = until(f"the first records of {name}", lambda: (lambda seen: seen and (time.monotonic(), seen))(look()))
    until(f"all records of {name}", is_done)
    seconds, records = time.monotonic() - first[0], look()
    return f"{name}: {records} records, {(records - first[1]) / seconds:,.0f} a second in {seconds:.1f} s"


def cpu(process: int) -> float:
    """The seconds of CPU of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--tapeworks", "--work", "--kafka", "--questdb"):
        parser.add_argument(name, required=True, type=Path)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--idle", type=float, default=30, help="seconds without messages")
    given = parser.parse_args()
    work, tapeworks = (given.work / "rate").resolve(), given.tapeworks.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (archive,) = given.questdb.resolve().glob("questdb-*.jar")
    broker, server = Broker(given.kafka.resolve(), work / "broker"), Server(archive, work / "server")
    group, port = random.randrange(1, 250), random.randrange(20_000, 30_000)
    venues, of_venues = venues_of(work, group, port, given.messages, given.rate)
    plants = []

    def plant(name: str, output: str) -> Plant:
        page, file = free_port(), work / f"{name}.toml"
        if name != "source":
            shutil.copytree(work / "source", work / name, ignore=shutil.ignore_patterns("*lock*"))
        journal = f'[journal]\nfolder = "{name}"\n[web]\nlisten = "127.0.0.1:{page}"\n'
        file.write_text(f'interface = "127.0.0.1"\n{journal}{output}\n{of_venues}')
        plants.append(Plant(tapeworks, file, page, work / f"{name}.log"))
        plants[-1].start()
        return plants[-1]

    try:
        source = plant("source", "")
        words = [str(tapeworks), "exchange", "serve", str(venues), "--json"]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        print(f"the journal: {source.end()['events']} events of {given.messages} messages", flush=True)
        schemas = json.dumps(SCHEMAS)

        server.start()
        to_questdb = plant("questdb", f'[questdb]\naddress = "127.0.0.1:{server.port}"\nschemas = {schemas}')
        seen = lambda: to_questdb.questdb().get("rows", 0)
        is_done = lambda: (lambda now: now.get("sent_again") and not now.get("waiting"))(to_questdb.questdb())
        print(rate("QuestDB", seen, is_done), flush=True)
        to_questdb.end()
        server.kill()

        broker.start()
        broker.until_ready()
        to_kafka = plant("kafka", f'[kafka]\nbrokers = "127.0.0.1:{broker.port}"\nschemas = {schemas}')
        seen = lambda: kafka_of(to_kafka).get("records", 0)
        print(rate("Kafka", seen, lambda: kafka_of(to_kafka).get("lag_events", 1) == 0), flush=True)
        time.sleep(2)
        before = cpu(to_kafka.process.pid)
        time.sleep(given.idle)
        spent = cpu(to_kafka.process.pid) - before
        print(f"idle with [kafka]: {spent / given.idle * 100:.1f} % of a core in {given.idle:.0f} s, the whole plant")
        to_kafka.end()
    finally:
        for each in plants:
            each.kill()
        broker.kill()
        server.kill()
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
