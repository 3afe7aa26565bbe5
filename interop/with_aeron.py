"""A plant publishes on streams of Aeron, through the media driver as it comes from Maven: every reader has each record once.

Venues are simulated on loopback. One reader is there from the start, one comes late, one is stopped for a while so that it is too slow; each
reads the NBBO (two streams) or makes records of the events. Amid the session the media driver is killed and starts again, and so does the plant.
At the end each reader's file has the records, byte for byte, that a live client gets of the plant's journal. Over IPC first, then over UDP. Then come the ways to
fail: no driver, a wrong token, a reader without a replay server that loses something.

Last, plants downstream take the events in place of lines: two a shard each, one of them killed, one too slow, and a third that comes late. Their live
clients together have the first plant's records, byte for byte. There the replay server speaks TLS and asks for certificates: readers that trust another
authority, show none or speak no TLS say so and are counted.

Usage: with_aeron.py --tapeworks BINARY --work FOLDER --server FOLDER, where the last has the driver's archive.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path

from with_kafka import serve, venues_of
from with_questdb import VENUES, Plant, certify, free_port, until

MESSAGES, RATE = 24_000, 2_000
KEY = "db-" + "0" * 29
TOKEN = "for-tests-only-0123456789"
DEADLINE = 60
FEEDS = json.dumps([venue[-1] for venue in VENUES])
PROBLEMS = 3


class Driver:
    """The media driver, one thread of it, that sleeps when there is nothing to do."""

    def __init__(self, archives: Path, folder: Path, log: Path, term_bytes: int):
        self.archives, self.folder, self.log, self.term_bytes, self.process = archives, folder, log, term_bytes, None

    def start(self) -> None:
        (archive,) = self.archives.glob("aeron-all-*.jar")
        opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("jdk.internal.misc", "sun.nio.ch")]
        setting = {
            "aeron.dir": self.folder, "aeron.threading.mode": "SHARED", "aeron.dir.delete.on.start": "true",
            "aeron.shared.idle.strategy": "org.agrona.concurrent.BackoffIdleStrategy",
            "aeron.ipc.term.buffer.length": self.term_bytes, "aeron.term.buffer.length": self.term_bytes,
            "aeron.client.liveness.timeout": 5_000_000_000,
        }
        words = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", *opens, *(f"-D{name}={value}" for name, value in setting.items())]
        log = open(self.log, "a")
        command = [*words, "-cp", str(archive), "io.aeron.driver.MediaDriver"]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until("the driver is there", lambda: self.process.poll() is None and (self.folder / "cnc.dat").exists())

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


class Reader:
    """`tapeworks subscribe --aeron` into a file of DBN."""

    def __init__(self, tapeworks: Path, name: str, scene: "Scene", schema: str, *more: str):
        self.file, self.log = scene.work / f"{name}.dbn", scene.work / f"{name}.log"
        words = ["subscribe", "--aeron", scene.channel, "--aeron-dir", str(scene.driver.folder), "--aeron-token", TOKEN]
        words += ["--schema", schema, "--out", str(self.file), "--force", *more]
        self.process = subprocess.Popen([str(tapeworks), *words], stdout=subprocess.DEVNULL, stderr=open(self.log, "w"))

    def end(self, wanted: int = 0) -> dict:
        """Ends it; its records by instrument."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=DEADLINE)
        if code != wanted:
            sys.exit(f"the reader of {self.file} ended with {code}, not {wanted}: {self.log.read_text()}")
        return records(self.file)

    def last_line(self) -> str:
        return next(line for line in self.log.read_text().splitlines() if "Aeron: " in line)


# The smallest logs that there are, and no patience: a reader that stops is soon too slow.
IMPATIENT = (1 << 16, "segment_mb = 1", 'queue_mb = 1\nback_pressure = "2ms"')


class Scene:
    """A driver, a plant, and what readers need to know. `how`: the bytes of a term, and what the plant's sections `journal` and `aeron` have besides."""

    def __init__(
        self, tapeworks: Path, archives: Path, work: Path, channel: str, how: tuple[int, str, str] = IMPATIENT, *, by_tls: bool = False
    ):
        work.mkdir(parents=True)
        of_plant = self.of_downstream = ""
        if by_tls:
            certify(work)
            own = 'certificate = "server.pem"\nprivate_key = "server.key"\n'
            of_plant, self.of_downstream = f'{own}client_authorities = "authority.pem"\n', f'{own}authorities = "authority.pem"\n'
        self.tapeworks, self.work, self.channel = tapeworks, work, channel
        self.driver = Driver(archives, Path(f"/dev/shm/tapeworks-aeron-{os.getpid()}-{work.name}"), work / "driver.log", how[0])
        self.page, self.replay, self.clients = free_port(), free_port(), free_port()
        self.venues, of_venues = venues_of(work, random.randrange(1, 250), random.randrange(20_000, 30_000), MESSAGES, RATE)
        file = work / "plant.toml"
        file.write_text(
            f'interface = "127.0.0.1"\n[journal]\nfolder = "journal"\n{how[1]}\n[web]\nlisten = "127.0.0.1:{self.page}"\n'
            f'[clients]\nlisten = "127.0.0.1:{self.clients}"\n[[clients.dataset]]\nname = "ALL"\n[[clients.key]]\nname = "t"\nkey = "{KEY}"\n'
            f'[aeron]\nchannel = "{channel}"\ndirectory = "{self.driver.folder}"\nnbbo_streams = 2\ndriver_timeout = "2s"\n'
            f'replay = "127.0.0.1:{self.replay}"\ntoken = "{TOKEN}"\n{how[2]}\n{of_plant}{of_venues}'
        )
        self.plant = Plant(tapeworks, file, self.page, work / "plant.log")

    def status(self) -> dict:
        return (self.plant.status() or {}).get("aeron") or {}

    def live(self, schema: str, clients: int = 0) -> dict:
        """The records of the whole day as a live client of the plant, or of one downstream, gets them, by instrument."""
        file = self.work / f"live-{schema}-{clients}.dbn"
        words = ["subscribe", f"127.0.0.1:{clients or self.clients}", "--key", KEY, "--dataset", "ALL", "--schema", schema]
        words += ["--start", "0", "--seconds", "5", "--out", str(file), "--force"]
        subprocess.run([str(self.tapeworks), *words], check=True, stdout=subprocess.DEVNULL, stderr=open(self.work / "live.log", "a"))
        return records(file)

    def clear(self) -> None:
        self.plant.kill()
        self.driver.kill()
        shutil.rmtree(self.driver.folder, ignore_errors=True)


class Downstream(Plant):
    """A plant that takes the events of the scene's plant from Aeron, of one shard of its symbols."""

    def __init__(self, scene: Scene, name: str, shard: int = 0, shards: int = 1):
        page, self.clients, self.journal = free_port(), free_port(), scene.work / f"journal-{name}"
        file = scene.work / f"{name}.toml"
        file.write_text(
            f'[source.aeron]\nchannel = "{scene.channel}"\ndirectory = "{scene.driver.folder}"\nfrom = "127.0.0.1:{scene.replay}"\n'
            f'feeds = {FEEDS}\ntoken = "{TOKEN}"\nshard = {shard}\nshards = {shards}\ndriver_timeout = "2s"\n{scene.of_downstream}'
            f'[journal]\nfolder = "{self.journal.name}"\nsegment_mb = 1\ncheckpoint_every = "1s"\n[web]\nlisten = "127.0.0.1:{page}"\n'
            f'[clients]\nlisten = "127.0.0.1:{self.clients}"\n[[clients.dataset]]\nname = "ALL"\n[[clients.key]]\nname = "t"\nkey = "{KEY}"\n'
        )
        super().__init__(scene.tapeworks, file, page, scene.work / f"{name}.log")

    def source(self) -> dict:
        return (self.status() or {}).get("source") or {}

    def unmet(self) -> str:
        """Why it is not ready; nothing if it is."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/ready", timeout=5):
                return ""
        except urllib.error.HTTPError as refused:
            return refused.read().decode()
        except OSError as gone:
            return str(gone)

    def has_all(self, scene: Scene) -> bool:
        return (scene.plant.status() or {}).get("events", 1 << 60) <= self.source().get("next", 0)


def records(file: Path) -> dict:
    """The records of a file of DBN, by instrument, in their order; without mappings and messages of the system."""
    bytes_, found = file.read_bytes(), defaultdict(list)
    assert bytes_[:3] == b"DBN", file
    at = 8 + int.from_bytes(bytes_[4:8], "little")
    while at < len(bytes_):
        length, rtype = bytes_[at] * 4, bytes_[at + 1]
        if rtype not in (0x15, 0x16, 0x17):
            found[int.from_bytes(bytes_[at + 4 : at + 8], "little")].append(bytes_[at : at + length])
        at += length
    return found


def compare(name: str, ours: dict, wanted: dict) -> int:
    for instrument in sorted(set(ours) | set(wanted)):
        mine, theirs = ours.get(instrument, []), wanted.get(instrument, [])
        if mine != theirs:
            place = next((at for at, (a, b) in enumerate(zip(mine, theirs)) if a != b), min(len(mine), len(theirs)))
            twice = len(mine) - len(set(mine))
            sys.exit(f"{name}: instrument {instrument} has {len(mine)} records, not {len(theirs)}; they differ from {place} on; {twice} are twice")
    return sum(map(len, wanted.values()))


def cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def session(scene: Scene) -> None:
    """The session with kills."""
    tapeworks, replay = scene.tapeworks, ("--from", f"127.0.0.1:{scene.replay}")
    # The plant is there before the driver.
    scene.plant.start()
    until("the plant misses the driver", lambda: "no media driver" in (scene.status().get("error") or ""))
    scene.driver.start()
    until("the plant finds the driver", lambda: scene.status().get("is_connected"))
    whole = ("--start", "0", *replay)
    readers = {
        "nbbo": Reader(tapeworks, "nbbo", scene, "cmbp-1", *whole),
        "events": Reader(tapeworks, "events", scene, "mbo", *whole),
        "slow": Reader(tapeworks, "slow", scene, "cmbp-1", *whole),
    }
    exchange = serve(tapeworks, scene.venues)
    try:
        until("something is read", lambda: scene.status().get("items", 0) > 3_000)
        os.kill(readers["slow"].process.pid, signal.SIGSTOP)
        until("messages are dropped for the slow reader", lambda: scene.status().get("dropped_slow", 0) > 100)
        scene.driver.kill()
        time.sleep(0.5)
        scene.driver.start()
        until("the plant notices", lambda: scene.status().get("connects", 0) > 1)
        os.kill(readers["slow"].process.pid, signal.SIGCONT)
        readers["late"] = Reader(tapeworks, "late", scene, "cmbp-1", *whole)
        readers["trades"] = Reader(tapeworks, "trades", scene, "trades", *whole)
        time.sleep(1)
        dropped = scene.status()["dropped_slow"]
        scene.plant.kill()
        scene.plant.start()
        until("the plant is there again", lambda: scene.status().get("is_connected"))
        assert exchange.wait(timeout=DEADLINE) == 0
        settled(scene)
        status, count = scene.status(), 0
        wanted = {schema: scene.live(schema) for schema in ("cmbp-1", "mbo", "trades")}
        for name, reader in readers.items():
            schema = {"events": "mbo", "trades": "trades"}.get(name, "cmbp-1")
            count += compare(f"{scene.channel}, {name}", reader.end(), wanted[schema])
            print(f"  {name}: {reader.last_line()}", flush=True)
        assert status["refused"] == 0 and status["replays"] > 0, status
        print(f"{scene.channel}: {count} records once each; {dropped} were dropped, {status['replays']} replays", flush=True)
    finally:
        exchange.kill()
        for reader in readers.values():
            reader.process.kill()


def settled(scene: Scene) -> None:
    """All is published, and readers have had time to notice what is missing."""
    before = -1
    while before != (now := (scene.plant.status() or {}).get("events", 0)) or scene.status().get("waiting"):
        before = now
        time.sleep(0.7)
    time.sleep(2.5)


SCHEMAS = ("cmbp-1", "mbo", "trades")


def downstream(scene: Scene) -> None:
    """Two plants take a shard each of the first one's events, and a third comes late and takes all: together they have its records."""
    scene.driver.start()
    scene.plant.start()
    shards = [Downstream(scene, f"shard-{shard}", shard, 2) for shard in range(2)]
    late = Downstream(scene, "late")
    shards[0].start()
    exchange = serve(scene.tapeworks, scene.venues)
    try:
        until("something is read", lambda: shards[0].source().get("events", 0) > 2_000)
        # This one begins in the middle, and is then too slow.
        shards[1].start()
        until("it has caught up", lambda: shards[1].source().get("has_caught_up"))
        shards[0].kill()
        shards[0].start()
        os.kill(shards[1].process.pid, signal.SIGSTOP)
        until("messages are dropped for the slow plant", lambda: scene.status().get("dropped_slow", 0) > 100)
        os.kill(shards[1].process.pid, signal.SIGCONT)
        until("it fetches them", lambda: shards[1].source().get("filled", 0) > 0)
        # One that has not connected again yet would not notice.
        until("the first shard is back", lambda: shards[0].source().get("has_caught_up"))
        scene.driver.kill()
        time.sleep(0.5)
        scene.driver.start()
        until("both plants notice", lambda: scene.status().get("connects", 0) > 1 and shards[0].source().get("connects", 0) > 1)
        scene.plant.kill()
        until("its plants are not ready", lambda: all("is silent" in one.unmet() for one in shards))
        shards[0].kill()
        scene.plant.start()
        shards[0].start()
        late.start()
        until("all are ready", lambda: not any(one.unmet() for one in (*shards, late)))
        assert exchange.wait(timeout=DEADLINE) == 0
        settled(scene)
        plants = [*shards, late]
        until("all have all", lambda: all(one.has_all(scene) for one in plants))
        count = 0
        for schema in SCHEMAS:
            wanted = scene.live(schema)
            parts = [scene.live(schema, one.clients) for one in shards]
            assert all(parts) and not set(parts[0]) & set(parts[1]), f"{schema}: a symbol is in two shards"
            count += compare(f"{schema} of two shards", {**parts[0], **parts[1]}, wanted)
            count += compare(f"{schema} of the late plant", scene.live(schema, late.clients), wanted)
        sources = [one.source() for one in plants]
        for one in sources:
            assert one["gaps"] == one["filled"] and one["malformed"] == 0, one
        print(f"downstream: {count} records once each; fetched {[one['fetched'] for one in sources]}", flush=True)
        by_tls(scene)
        another_day(scene, shards[0])
    finally:
        exchange.kill()
        for one in (*shards, late):
            one.kill()


def by_tls(scene: Scene) -> None:
    """A reader with a certificate has the day's records; others say what is wrong, and are counted."""
    before = scene.status()["tls_refused"]
    (other := scene.work / "other").mkdir()
    certify(other)
    ours, own = ("--tls-authorities", str(scene.work / "authority.pem")), ("--tls-certificate", str(scene.work / "server.pem"), "--tls-key", str(scene.work / "server.key"))
    more = ("--start", "0", "--seconds", "3", "--from", f"127.0.0.1:{scene.replay}")
    reader = Reader(scene.tapeworks, "by-tls", scene, "mbo", *more, *ours, *own)
    strangers = {
        "speaks TLS, and nothing else": (),
        "no TLS with the replay server": ours,
        "invalid peer certificate": ("--tls-authorities", str(other / "authority.pem"), *own),
    }
    refused = {why: Reader(scene.tapeworks, f"stranger-{len(flags)}", scene, "cmbp-1", *more, *flags) for why, flags in strangers.items()}
    for why, stranger in refused.items():
        assert stranger.process.wait(timeout=DEADLINE) == PROBLEMS and why in stranger.log.read_text(), (why, stranger.log.read_text())
    assert reader.process.wait(timeout=DEADLINE) == 0, reader.log.read_text()
    count = compare("a reader by TLS", records(reader.file), scene.live("mbo"))
    # One tries again for each of the two streams of the NBBO.
    assert scene.status()["tls_refused"] >= before + len(strangers), scene.status()
    print(f"by TLS: {count} records once each; {scene.status()['tls_refused']} handshakes were refused", flush=True)


def another_day(scene: Scene, plant: Downstream) -> None:
    """The first plant begins anew: a plant downstream ends and says why, until it begins anew too."""
    scene.plant.kill()
    (scene.work / "journal").rename(scene.work / "journal-before")
    scene.plant.start()
    exchange = serve(scene.tapeworks, scene.venues)
    try:
        assert plant.process.wait(timeout=DEADLINE) == 1
        assert "The first plant has begun anew" in plant.log.read_text(), plant.log.read_text()
        plant.journal.rename(scene.work / "journal-shard-before")
        plant.start()
        until("it reads the new day", lambda: plant.source().get("events", 0) > 2_000)
        until("its journal has some of it", lambda: ((plant.status() or {}).get("journal") or {}).get("records", 0) > 1)
    finally:
        exchange.kill()
    words = [str(scene.tapeworks), "plant", plant.words[2], "--seconds", "1"]
    plant.kill()
    Path(plant.words[2]).write_text(Path(plant.words[2]).read_text().replace("shards = 2", "shards = 3"))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "the journal has shard 0 of 2" in done.stderr, (done.returncode, done.stderr)


def failures(scene: Scene) -> None:
    """The ways to fail."""
    replay = ("--from", f"127.0.0.1:{scene.replay}")
    words = ["subscribe", "--aeron", scene.channel, "--aeron-dir", str(scene.driver.folder), "--start", "0", *replay, "--quiet", "--seconds", "3"]
    done = subprocess.run([str(scene.tapeworks), *words, "--aeron-token", "wrong"], capture_output=True, text=True, check=False)
    assert "the token is wrong" in done.stderr, done.stderr
    assert scene.status()["refused_replays"] > 0
    # Without a replay server what is lost is counted.
    spent = cpu(scene.plant.process.pid)
    time.sleep(5)
    print(f"idle: the plant took {(cpu(scene.plant.process.pid) - spent) / 5 * 100:.1f} % of a core", flush=True)
    replays = scene.status()["replays"]
    # The day begins anew, and so do the numbers of events: that is seen by the reader that has the day before.
    before = Reader(scene.tapeworks, "before", scene, "cmbp-1", "--start", "0", *replay)
    until("the day is read", lambda: scene.status()["replays"] > replays + 1 and not scene.status()["running_replays"])
    scene.plant.kill()
    (scene.work / "journal").rename(scene.work / "journal-before")
    scene.plant.start()
    until("the plant is there", lambda: scene.status().get("is_connected"))
    alone = Reader(scene.tapeworks, "alone", scene, "cmbp-1")
    exchange = serve(scene.tapeworks, scene.venues)
    try:
        until("something is read", lambda: scene.status().get("items", 0) > 3_000)
        scene.driver.kill()
        time.sleep(1)
        scene.driver.start()
        assert exchange.wait(timeout=DEADLINE) == 0
        settled(scene)
        alone.end(PROBLEMS)
        assert "missing: there is no replay server to ask" in alone.log.read_text() or "may be missing" in alone.log.read_text()
        print(f"  alone: {alone.last_line()}", flush=True)
        before.end(PROBLEMS)
        assert "the plant's numbers began anew" in before.log.read_text()
        print(f"  before: {before.last_line()}", flush=True)
    finally:
        exchange.kill()
        for reader in (alone, before):
            reader.process.kill()
    scene.driver.kill()
    done = subprocess.run([str(scene.tapeworks), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "driver" in done.stderr, (done.returncode, done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--tapeworks", "--work", "--server"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    work = given.work.resolve() / "aeron"
    shutil.rmtree(work, ignore_errors=True)
    channels = {"ipc": "aeron:ipc", "udp": f"aeron:udp?endpoint=127.0.0.1:{free_port()}"}
    for name, channel in channels.items():
        scene = Scene(given.tapeworks.resolve(), given.server.resolve(), work / name, channel)
        try:
            session(scene)
            if name == "ipc":
                failures(scene)
        finally:
            scene.clear()
    scene = Scene(given.tapeworks.resolve(), given.server.resolve(), work / "downstream", channels["ipc"], by_tls=True)
    try:
        downstream(scene)
    finally:
        scene.clear()


if __name__ == "__main__":
    main()
