"""What `tapeworks batch` must do with any store of objects, and what the scripts that have the server of one share.

A server has a ``root`` (the address of its bucket), an ``environment`` for the program, a ``process``, and ``put``, ``upload``, ``keys`` and ``files``."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from replays import REPLAYED, ROOT, run

SCHEMAS = "mbo,cmbp-1"
SETTINGS = ["--schema", SCHEMAS, "--buckets", "2"]

# Captures of a few tasks. The first is the largest, so its task is the first.
DAYS = {
    "one/14-nasdaq.pcap": ["--venues", "nasdaq", "--date", "2025-11-14", "--messages", "12000"],
    "one/14-memx.pcap": ["--venues", "memx", "--date", "2025-11-14", "--messages", "8000", "--loss", "20000"],
    "two/17-bzx.pcap": ["--venues", "bzx", "--date", "2025-11-17", "--messages", "6000"],
    "two/18-nasdaq.pcap": ["--venues", "nasdaq", "--date", "2025-11-18", "--messages", "4000"],
    "two/19-memx.pcap": ["--venues", "memx", "--date", "2025-11-19", "--messages", "1000"],
}

# Larger than a request brings, and than a part of an upload.
LARGE = ["--venues", "nasdaq", "--date", "2025-11-20", "--messages", "400000", "--symbols", "8"]
RANGE_BYTES = 16 << 20

WAIT_SECONDS = 120


def check(holds: bool, what: str):
    """Ends the script if something does not hold."""
    if not holds:
        sys.exit(f"does not hold: {what}")
    print(f"  {what}")


class Batch:
    """The program with the environment of a server."""

    def __init__(self, tapeworks: Path, server, work: Path):
        self.tapeworks, self.server, self.work = tapeworks, server, work

    def command(self, *words):
        """A command line of a batch. Objects are staged in a folder of ours."""
        return [str(word) for word in [self.tapeworks, "batch", *words, "--work", self.work]]

    def start(self, *words, environment=None, **more):
        """Starts it."""
        env = {**os.environ, **self.server.environment, **(environment or {})}
        return subprocess.Popen(self.command(*words), cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def run(self, *words, accepted=REPLAYED, environment=None):
        """Runs it. Returns its code, and what it printed."""
        process = self.start(*words, environment=environment)
        output, errors = process.communicate()
        if process.returncode not in accepted:
            sys.exit(f"{' '.join(self.command(*words))} ended with {process.returncode}:\n{output}{errors}")
        return process.returncode, output, errors

    def refused(self, *words, environment=None) -> str:
        """Its one line of error with code 1."""
        _, output, errors = self.run(*words, accepted=(1,), environment=environment)
        check(output == "" and errors.count("\n") == 1, f"refused in one line: {errors.strip()}")
        return errors

    def staged(self) -> list:
        """What is left of staged files."""
        return sorted(self.work.rglob("*")) if self.work.exists() else []


def files(folder: Path) -> dict:
    """The same of a folder as of a prefix."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    named = {str(path.relative_to(folder)): path for path in found}
    return {name: path.read_bytes() for name, path in named.items() if not name.startswith(".tasks/")}


def outputs(found: dict) -> dict:
    """Without the manifest, which names the inputs."""
    return {name: content for name, content in found.items() if name != "manifest.json"}


def until(what: str, is_so):
    """Waits until something is so."""
    end = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > end:
            sys.exit(f"{what}: not after {WAIT_SECONDS} seconds")
        time.sleep(0.01)


def same_bytes(batch: Batch, captures: Path, days: Path):
    """The same results from and to folders and objects."""
    server, root, local = batch.server, batch.server.root, files(days)
    check(len(outputs(local)) > 10, f"a run in folders makes {len(local)} files")
    batch.run(captures, "--out", f"{root}/up/", *SETTINGS)
    check(server.files("up") == local, "files to objects: the same bytes, the manifest's too")
    code, _, errors = batch.run(f"{root}/in/**", "--out", f"{root}/days", *SETTINGS)
    whole = server.files("days")
    check(outputs(whole) == outputs(local), "objects to objects: the same bytes")
    manifest = json.loads(whole["manifest.json"])
    names = {one["path"] for task in manifest["tasks"] for one in task["inputs"]}
    check(names == {f"{root}/in/{name}" for name in DAYS}, "the manifest names the objects")
    check(code == 3 and str(batch.work) not in whole["manifest.json"].decode() + errors, "nothing names a staged file")
    folder = batch.work.parent / "cloud-down"
    shutil.rmtree(folder, ignore_errors=True)
    batch.run(f"{root}/in", "--out", folder, *SETTINGS)
    check(files(folder) == whole, "objects to files: the same bytes")
    _, report, _ = batch.run(f"{root}/in", "--out", f"{root}/days", *SETTINGS, "--json")
    check(json.loads(report)["performed"] == 0 and server.files("days") == whole, "the same command once more does nothing")
    check(not batch.staged(), "no staged file is left")
    check(".tasks/run" not in server.keys("days"), "the lease is given back")


def killed(batch: Batch, days: Path):
    """A run that is killed goes on, and keeps others out while it lives."""
    server, root, local = batch.server, batch.server.root, files(days)
    words = [f"{root}/in", "--out", f"{root}/kill", "--jobs", "1", *SETTINGS]

    def finished():
        return [name for name in server.keys("kill") if name.startswith(".tasks/20") and name.endswith(".json")]

    process = batch.start(*words)
    until("a finished task", lambda: len(finished()) >= 2 or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    check(process.returncode == -signal.SIGKILL, f"a run is killed when {len(finished())} tasks are done")
    check("manifest.json" not in server.keys("kill"), "a killed run has no manifest")
    check(bool(batch.staged()), "it leaves staged files")
    done = {name: server.keys("kill")[name] for name in finished()}
    # As if it had been killed while it put objects.
    torn = "schema=mbo/date=2025-11-14/bucket=00/torn.parquet"
    server.put(f"kill/{torn}", b"torn")
    publishing = json.dumps({"outputs": [{"path": torn}, {"path": "../in/one/14-memx.pcap"}]})
    server.put("kill/.tasks/torn.publishing", publishing.encode())
    _, report, errors = batch.run(*words, "--json")
    report = json.loads(report)
    check((report["resumed"], report["performed"] > 0) == (len(done), True), f"the same command goes on: {report['resumed']} resumed")
    now = server.keys("kill")
    check("renewal" not in errors and ".tasks/run" not in now, "the lease of the killed run was taken, and given back")
    check(done.items() <= now.items(), "finished tasks are not done again")
    check(outputs(server.files("kill")) == outputs(local), "the bytes are those of a run that was not killed")
    check(not [name for name in now if name.endswith((".publishing", "/run"))], "no remains are in the store")
    check(not batch.staged(), "no staged file is left")
    check("one/14-memx.pcap" in server.keys("in"), "nothing above the results is removed")


def leased(batch: Batch, captures: Path):
    """A run is refused while another one has the lease. For any store."""
    is_over, lease = threading.Event(), "leased/.tasks/run"

    def renew():
        count = 0
        while not is_over.wait(1):
            count += 1
            batch.server.put(lease, str(count).encode())

    batch.server.put(lease, b"0")
    thread = threading.Thread(target=renew)
    thread.start()
    line = batch.refused(captures, "--out", f"{batch.server.root}/leased", *SETTINGS)
    is_over.set()
    thread.join()
    check("another run works in this folder" in line, "a run beside another is refused")
    check(set(batch.server.keys("leased")) == {".tasks/run"}, "it has changed nothing")


def prepared_large(tapeworks: Path, folder: Path):
    """A capture of several ranges, the results of several parts that a run in folders has of it, and the settings of the run."""
    capture, days = folder / "large.pcap", folder / "large-days"
    if not capture.exists():
        run([tapeworks, "exchange", "generate", *LARGE, "--out", capture])
    check(capture.stat().st_size > RANGE_BYTES, f"a capture of {capture.stat().st_size} bytes")
    shutil.rmtree(days, ignore_errors=True)
    settings = ["--schema", "mbo", "--buckets", "1", "--format", "csv"]
    run([tapeworks, "batch", capture, "--out", days, *settings])
    return capture, days, settings


def large(batch: Batch, folder: Path):
    """An object of several ranges, and results of several parts."""
    capture, days, settings = prepared_large(batch.tapeworks, folder)
    root = batch.server.root
    batch.server.put("large/large.pcap", capture.read_bytes())
    batch.run(f"{root}/large/large.pcap", "--out", f"{root}/large-days", *settings)
    check(outputs(batch.server.files("large-days")) == outputs(files(days)), "ranges and parts: the same bytes")


def prepared(tapeworks: Path, work: Path):
    """The captures, and the results of a run in folders."""
    captures, days = work / "cloud-captures", work / "cloud-days"
    for name, session in DAYS.items():
        path = captures / name
        path.parent.mkdir(parents=True, exist_ok=True)
        run([tapeworks, "exchange", "generate", *session, "--symbols", "12", "--force", "--out", path])
    shutil.rmtree(days, ignore_errors=True)
    run([tapeworks, "batch", captures, "--out", days, *SETTINGS], REPLAYED)
    return captures, days


def arguments(about: str) -> argparse.ArgumentParser:
    """What the script takes."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--tapeworks", required=True, type=Path, help="the binary")
    parser.add_argument("--cloud", type=Path, help="the binary with the feature `cloud`, if it is another one")
    parser.add_argument("--work", required=True, type=Path, help="a folder to write to")
    return parser


def against(server, given: argparse.Namespace, checks):
    """Calls ``checks`` with the program, the captures, which are in the store too, the results of a run in folders, and a folder to write to."""
    tapeworks, work = (given.cloud or given.tapeworks).resolve(), given.work.resolve()
    try:
        captures, days = prepared(tapeworks, work)
        server.upload(captures, "in")
        checks(Batch(tapeworks, server, work / "cloud-staged"), captures, days, work)
    finally:
        server.process.kill()
