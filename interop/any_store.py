"""What `tapeworks batch` must do with any store of objects, for the scripts that have the server of one."""

import json
import shutil
import signal
from pathlib import Path

from with_batch_cloud import DAYS, SETTINGS, Batch, check, files, outputs, prepared_large, until


def same_bytes(batch: Batch, captures: Path, days: Path):
    """The same results from and to folders and objects."""
    server, root, local = batch.server, batch.server.root, outputs(files(days))
    code, _, errors = batch.run(f"{root}/in/**", "--out", f"{root}/days", *SETTINGS)
    whole = server.files("days")
    check(outputs(whole) == local, "objects to objects: the same bytes")
    manifest = json.loads(whole["manifest.json"])
    names = {one["path"] for task in manifest["tasks"] for one in task["inputs"]}
    check(code == 3 and names == {f"{root}/in/{name}" for name in DAYS}, f"the manifest names the objects {errors.strip()}")
    folder = batch.work.parent / "cloud-down"
    shutil.rmtree(folder, ignore_errors=True)
    batch.run(f"{root}/in", "--out", folder, *SETTINGS)
    check(files(folder) == whole, "objects to files: the same bytes")
    batch.run(captures, "--out", f"{root}/up", *SETTINGS)
    check(server.files("up") == files(days), "files to objects: the same bytes, the manifest's too")
    _, report, _ = batch.run(f"{root}/in", "--out", f"{root}/days", *SETTINGS, "--json")
    check(json.loads(report)["performed"] == 0 and server.files("days") == whole, "the same command once more does nothing")
    check(not batch.staged() and ".tasks/run" not in server.keys("days"), "no staged file is left, and the lease is given back")


def killed(batch: Batch, days: Path):
    """A run that is killed goes on."""
    server, root = batch.server, batch.server.root
    words = [f"{root}/in", "--out", f"{root}/kill", "--jobs", "1", *SETTINGS]

    def finished():
        return {name: tag for name, tag in server.keys("kill").items() if name.startswith(".tasks/20") and name.endswith(".json")}

    process = batch.start(*words)
    until("a finished task", lambda: len(finished()) >= 2 or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = finished()
    check(process.returncode == -signal.SIGKILL and ".tasks/run" in server.keys("kill"), f"a run is killed when {len(done)} tasks are done")
    _, report, _ = batch.run(*words, "--json")
    report = json.loads(report)
    check((report["resumed"], report["performed"] > 0) == (len(done), True), f"the same command goes on: {report['resumed']} resumed")
    now = server.keys("kill")
    check(done.items() <= now.items(), "finished tasks are not done again")
    check(outputs(server.files("kill")) == outputs(files(days)), "the bytes are those of a run that was not killed")
    check(not [name for name in now if name.endswith((".publishing", "/run"))], "no remains are in the store, nor the lease of the killed run")


def large(batch: Batch, folder: Path):
    """An object of several ranges, and results of several parts."""
    capture, days, settings = prepared_large(batch.tapeworks, folder)
    root = batch.server.root
    batch.server.put("large/large.pcap", capture.read_bytes())
    batch.run(f"{root}/large/large.pcap", "--out", f"{root}/large-days", *settings)
    check(outputs(batch.server.files("large-days")) == outputs(files(days)), "ranges and parts: the same bytes")
