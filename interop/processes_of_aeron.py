"""What it costs to take a plant's events from Aeron in one, two and four more processes, each with the books and the NBBO of its share of symbols.

Venues are simulated on loopback; the plant publishes events over IPC; each reader is `tapeworks subscribe --aeron --schema cmbp-1,trades` of its symbols.
Then the same with plants downstream, each with a journal, books and the NBBO of its shard. Printed are seconds of a processor for a million events of the first plant: of that plant, of the media driver, and of each
reader or plant downstream.

Usage: processes_of_aeron.py --tapeworks BINARY --work FOLDER --server FOLDER, where the last has the driver's archive, as the step `aeron` of
`cargo xtask test` fetches it. Each row is measured at two rates, for ten seconds. RATES: messages a second, such as 40000,300000. TERM_KB: the
length of a term, 16384 unless given.
"""

import argparse
import os
import shutil
import signal
import subprocess
from pathlib import Path

import with_aeron
from with_aeron import TOKEN, Downstream, Scene, cpu, serve, settled
from with_questdb import until

RATES = [int(rate) for rate in os.environ.get("RATES", "40000,300000").split(",")]
SECONDS = 10
#: As plants have it unless they say otherwise.
HOW = (int(os.environ.get("TERM_KB", "16384")) << 10, "", "")


def measure(scene: Scene, count: int) -> str:
    scene.driver.start()
    scene.plant.start()
    until("the plant finds the driver", lambda: scene.status().get("is_connected"))
    symbols = [f"TW{chr(65 + number // 26)}{chr(65 + number % 26)}" for number in range(20)]
    readers = []
    exchange = None
    try:
        for number in range(count):
            words = ["subscribe", "--aeron", scene.channel, "--aeron-dir", scene.driver.folder, "--aeron-token", TOKEN]
            words += ["--from", f"127.0.0.1:{scene.replay}", "--start", "0", "--schema", "cmbp-1,trades", "--quiet"]
            words += ["--symbols", ",".join(symbols[number::count])]
            log = open(scene.work / f"reader-{number}.log", "w")
            readers.append(subprocess.Popen([str(word) for word in [scene.tapeworks, *words]], stdout=log, stderr=log))
        until("readers are there", lambda: scene.status().get("read_streams", 0) > 0)
        before = [cpu(process.pid) for process in (scene.plant.process, scene.driver.process)]
        exchange = serve(scene.tapeworks, scene.venues)
        assert exchange.wait(timeout=120) == 0
        settled(scene)
        plant, driver = (cpu(process.pid) - was for process, was in zip((scene.plant.process, scene.driver.process), before))
        of_readers = [cpu(reader.pid) for reader in readers]
        status = scene.plant.status()
        events, aeron = status["events"] / 1e6, status["aeron"]
        for reader in readers:
            reader.send_signal(signal.SIGINT)
            assert reader.wait(timeout=60) == 0
        dropped = aeron["dropped_slow"] + aeron["dropped_full"]
        each = ", ".join(f"{spent / events:.2f}" for spent in of_readers)
        return f"| {count} | {with_aeron.RATE:,} | {events:.2f} | {plant / events:.2f} | {driver / events:.2f} | {each} | {dropped} |"
    finally:
        for process in [*readers, *filter(None, [exchange])]:
            process.kill()


def measure_plants(scene: Scene, count: int) -> str:
    scene.driver.start()
    scene.plant.start()
    until("the plant finds the driver", lambda: scene.status().get("is_connected"))
    plants = [Downstream(scene, f"shard-{shard}", shard, count) for shard in range(count)]
    exchange = None
    try:
        for plant in plants:
            plant.start()
        until("they hear the first plant", lambda: all(plant.source().get("is_heard") for plant in plants))
        processes = [scene.plant.process, scene.driver.process, *(plant.process for plant in plants)]
        before = [cpu(process.pid) for process in processes]
        exchange = serve(scene.tapeworks, scene.venues)
        assert exchange.wait(timeout=120) == 0
        until("they have all", lambda: all(plant.has_all(scene) for plant in plants))
        first, driver, *each = [cpu(process.pid) - was for process, was in zip(processes, before)]
        status = scene.plant.status()
        events, aeron = status["events"] / 1e6, status["aeron"]
        fetched = sum(plant.source()["fetched"] for plant in plants)
        spent = ", ".join(f"{one / events:.2f}" for one in each)
        return f"| {count} | {with_aeron.RATE:,} | {events:.2f} | {first / events:.2f} | {driver / events:.2f} | {spent} | {aeron['dropped_slow'] + aeron['dropped_full']} | {fetched} |"
    finally:
        for plant in plants:
            plant.kill()
        if exchange:
            exchange.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--tapeworks", "--work", "--server"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    work = given.work.resolve() / "aeron-processes"
    shutil.rmtree(work, ignore_errors=True)
    tables = (("readers", "reader", " |", measure), ("plants", "plant downstream", " | fetched by all |", measure_plants))
    for name, each, more, row in tables:
        print(f"| {name} | messages a second | million events | first plant, s | driver, s | each {each}, s | dropped{more}")
        print(f"|{' --- |' * (7 + more.count('|') - 1)}", flush=True)
        for rate in RATES:
            with_aeron.MESSAGES, with_aeron.RATE = rate * SECONDS, rate
            for count in (1, 2, 4):
                folder = work / f"{name}-{rate}-{count}"
                scene = Scene(given.tapeworks.resolve(), given.server.resolve(), folder, "aeron:ipc", HOW)
                try:
                    print(row(scene, count), flush=True)
                finally:
                    scene.clear()


if __name__ == "__main__":
    main()
