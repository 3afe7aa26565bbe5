"""Batches by threads."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import tapeworks
from batches import SCHEMAS, TASKS, assert_same, captures, contents, records

PROGRAM = os.environ.get("TAPEWORKS_PROGRAM")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return captures(tmp_path_factory.mktemp("batch") / "in", messages=3_000)


def batch(inputs, out, **more):
    with pytest.warns(tapeworks.DataWarning, match="noise.pcap: neither a capture"):
        return tapeworks.batch(inputs, out, schema=SCHEMAS, buckets=4, **more)


def test_a_batch_has_the_same_bytes_with_any_number_of_jobs(inputs, tmp_path):
    summary = batch(inputs, tmp_path / "one", jobs=1)
    assert summary["manifest"] == str(tmp_path / "one/manifest.json")
    counts = [summary[name] for name in ("tasks", "performed", "resumed", "left")]
    assert counts == [TASKS, TASKS, 0, 0] and summary["failed_tasks"] == []
    (failed,) = summary["failed_inputs"]
    assert failed["path"].endswith("noise.pcap") and "neither a capture" in failed["error"]
    batch(inputs, tmp_path / "two", jobs=2)
    found = contents(tmp_path / "one")
    assert_same(contents(tmp_path / "two"), found)
    manifest = json.loads(found["manifest.json"])
    # The cut file's venue, and the merge of its date.
    damaged = [task["name"] for task in manifest["tasks"] if task["damaged_files"]]
    assert len(damaged) == 2 and all(name.startswith("2025-11-17") for name in damaged)
    assert batch(inputs, tmp_path / "one")["resumed"] == TASKS


@pytest.mark.skipif(not PROGRAM, reason="TAPEWORKS_PROGRAM names no program")
def test_a_batch_has_the_bytes_and_the_summary_of_the_program(inputs, tmp_path):
    summary = batch(inputs, tmp_path / "package", symbols="AAPL,MSFT", exclude=f"{inputs[:-2]}14-memx*")
    flags = ["--schema", SCHEMAS, "--buckets", "4", "--symbols", "AAPL,MSFT", "--exclude", f"{inputs[:-2]}14-memx*"]
    words = [PROGRAM, "batch", inputs, "--out", str(tmp_path / "program"), *flags, "--json"]
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 3, ran.stderr
    theirs = json.loads(ran.stdout)
    theirs["manifest"] = summary["manifest"]
    assert theirs == summary
    assert_same(contents(tmp_path / "package"), contents(tmp_path / "program"))


def test_a_dry_run_gives_tasks_that_can_be_done_one_by_one(inputs, tmp_path):
    plan = batch(inputs, tmp_path / "out", dry_run=True)
    assert len(plan["tasks"]) == TASKS and len(plan["failed_inputs"]) == 1
    assert not (tmp_path / "out").exists()
    for task in plan["tasks"]:
        done = tapeworks._native.batch_task(json.dumps(task), str(tmp_path / "out"))
        assert done == (None, False, False)
    assert batch(inputs, tmp_path / "out")["resumed"] == TASKS
    batch(inputs, tmp_path / "whole")
    assert_same(contents(tmp_path / "out"), contents(tmp_path / "whole"))


def test_a_task_says_why_it_has_no_result(inputs, tmp_path):
    task = batch(inputs, tmp_path / "out", dry_run=True)["tasks"][0]
    gone = json.dumps({**task, "inputs": [str(tmp_path / "gone.pcap")]})
    error, is_of_input, is_busy = tapeworks._native.batch_task(gone, str(tmp_path / "out"))
    assert "gone.pcap: cannot be read" in error and is_of_input and not is_busy
    error, is_of_input, is_busy = tapeworks._native.batch_task("{}", str(tmp_path / "out"))
    assert "is not a description of a task" in error and not is_of_input and not is_busy
    other = json.dumps({**task, "settings": {**task["settings"], "program": "tapeworks 0.0.1"}})
    error, _, _ = tapeworks._native.batch_task(other, str(tmp_path / "out"))
    assert "is of tapeworks 0.0.1" in error


def test_wrong_arguments_are_errors_of_their_kind(inputs, tmp_path):
    out = tmp_path / "out"
    wrong = [
        ({"executor": "dask"}, "expected one of threads, ray"),
        ({"address": "localhost:6379"}, "is for the executor ray"),
        ({"schema": "mbp-2"}, "mbp-2"),
        ({"schema": []}, "no schema"),
        ({"format": "xlsx"}, "xlsx"),
        ({"buckets": 0}, "1 to 1000"),
        ({"jobs": 0}, "jobs: use 1 to"),
        ({"date": "never"}, "no date"),
        ({"stale": "keep"}, "stale"),
        ({"protocol": "none"}, "unknown protocol"),
        ({"symbols": [""]}, "''"),
    ]
    for arguments, text in wrong:
        with pytest.raises(tapeworks.UsageError, match=text):
            tapeworks.batch(inputs, out, **arguments)
    with pytest.raises(tapeworks.UsageError, match="not a valid file pattern"):
        tapeworks.batch("a***", out)
    with pytest.raises(tapeworks.InputError, match="no file matches"):
        tapeworks.batch(tmp_path / "nowhere.pcap", out)
    with pytest.raises(tapeworks.InputError, match="nothing to do: none of 1 file.*noise.pcap"):
        tapeworks.batch(f"{inputs[:-2]}noise.pcap", out)
    assert not out.exists()
    batch(inputs, out)
    with pytest.raises(tapeworks.OutputError, match="overwrite=True") as caught:
        tapeworks.batch(inputs, out, schema="trades", buckets=4)
    assert caught.value.path == str(out)
    with pytest.warns(tapeworks.DataWarning):
        assert tapeworks.batch(inputs, out, schema="trades", buckets=4, overwrite=True)["performed"] == 4


def test_ray_that_is_not_installed_is_named_with_its_extra(inputs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(tapeworks.ExecutorError, match=r"install tapeworks\[ray\]"):
        tapeworks.batch(inputs, tmp_path / "out", executor="ray")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not PROGRAM, reason="TAPEWORKS_PROGRAM names no program")
def test_the_program_says_in_a_line_that_the_package_is_not_there(inputs, tmp_path):
    bare = tmp_path / "python"
    # Without the packages that are installed.
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    command = [PROGRAM, "batch", inputs, "--out", str(tmp_path / "out"), "--executor", "ray"]
    # It never ends.
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\nexec yes\n")
    other.chmod(0o755)
    expected = {
        bare: "its Python package is not there",
        other: "does not answer as the package does: y",
        tmp_path / "none": "does not start",
    }
    for python, why in expected.items():
        by_flag = subprocess.run([*command, "--python", str(python)], capture_output=True, text=True, check=False)
        environment = {**os.environ, "TAPEWORKS_PYTHON": str(python)}
        by_name = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        for ran in (by_flag, by_name):
            assert ran.returncode == 1 and ran.stderr.count("\n") == 1, ran.stderr
            assert f"{python}: {why}" in ran.stderr
    ran = subprocess.run([*command[:-2], "--python", "x"], capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and "are for --executor ray" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_an_interrupt_ends_a_batch_which_goes_on_afterwards(tmp_path):
    inputs = captures(tmp_path / "in", messages=20_000)
    program = "import sys, tapeworks; tapeworks.batch(sys.argv[1], sys.argv[2], schema=sys.argv[3], buckets=4, jobs=1)"
    words = [sys.executable, "-W", "ignore", "-c", program, inputs, str(tmp_path / "out"), SCHEMAS]
    # A fast run may end first.
    for _ in range(20):
        run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        while run.poll() is None and not records(tmp_path / "out"):
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=300)
        if run.returncode:
            break
        (tmp_path / "out/manifest.json").unlink()
        for name in list(records(tmp_path / "out"))[1:]:
            (tmp_path / f"out/.tasks/{name}.json").unlink()
    assert "KeyboardInterrupt" in error
    assert not (tmp_path / "out/manifest.json").exists() and records(tmp_path / "out", "work") == set()
    resumed = batch(inputs, tmp_path / "out")["resumed"]
    assert 1 <= resumed < TASKS
    batch(inputs, tmp_path / "whole")
    assert_same(contents(tmp_path / "out"), contents(tmp_path / "whole"))
