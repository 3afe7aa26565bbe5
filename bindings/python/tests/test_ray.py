"""Batches by a real Ray on this host, whose processes are killed in mid-task.

Each test starts Ray, which takes seconds, and on a busy machine much longer.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import tapeworks
from batches import SCHEMAS, TASKS, assert_same, captures, contents, records
from tapeworks._ray import RETRIES

try:
    import ray
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("Ray is not installed: pip install ray", allow_module_level=True)

PROGRAM = os.environ.get("TAPEWORKS_PROGRAM")
with_program = pytest.mark.skipif(not PROGRAM, reason="TAPEWORKS_PROGRAM names no program")

#: Seconds for what comes at some time.
PATIENCE = 600

#: A driver: what it returns, as JSON.
DRIVER = """\
import json, sys, tapeworks
print(json.dumps(tapeworks.batch(sys.argv[1], sys.argv[2], schema=sys.argv[3], buckets=4, executor="ray", **json.loads(sys.argv[4]))))
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return captures(tmp_path_factory.mktemp("ray") / "in", messages=20_000)


@pytest.fixture(scope="module")
def expected(inputs, tmp_path_factory):
    """What threads make of it."""
    out = tmp_path_factory.mktemp("threads") / "out"
    with pytest.warns(tapeworks.DataWarning):
        tapeworks.batch(inputs, out, schema=SCHEMAS, buckets=4, jobs=1)
    return contents(out)


@pytest.fixture
def drivers():
    """Starts drivers, and ends them with all that they have started."""
    started = []

    def start(inputs, out, **more):
        words = [sys.executable, "-W", "ignore", "-c", DRIVER, inputs, str(out), SCHEMAS, json.dumps(more)]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    def program(inputs, out, *more):
        words = [PROGRAM, "batch", inputs, "--out", str(out), "--schema", SCHEMAS, "--buckets", "4"]
        words += ["--executor", "ray", "--python", sys.executable, "--json", *more]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    start.program = program
    yield start
    for run in started:
        for process in [*below(run.pid), run.pid] if run.poll() is None else []:
            kill(process)
        run.communicate()


def below(ancestor):
    """The processes that a process has started, and those that these have."""
    children = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found, at = [ancestor], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found[1:]


def kill(process, number=signal.SIGKILL):
    """Whether the process was there."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def writes(process):
    """The task whose files a worker has open, if it has."""
    try:
        links = [os.readlink(link) for link in pathlib.Path(f"/proc/{process}/fd").iterdir()]
    except OSError:
        return None
    names = (part for link in links for part in link.split("/") if part.endswith(".work"))
    return next((name.removesuffix(".work") for name in names), None)


def kill_workers(driver, out, choose):
    """Kills the workers of a driver that are in the middle of a task which `choose` chooses, until the driver ends. Returns the names of
    their tasks."""
    killed, dead = [], set()
    until = time.monotonic() + PATIENCE
    while driver.poll() is None and time.monotonic() < until:
        for worker in below(driver.pid):
            # One that was killed may take a moment to go.
            name = None if worker in dead else writes(worker)
            if name is None or not choose(name, killed) or not kill(worker, signal.SIGSTOP):
                continue
            # It stands still, so what holds now holds when it is killed.
            if writes(worker) == name and name not in records(out):
                killed.append(name)
                dead.add(worker)
                kill(worker)
            else:
                kill(worker, signal.SIGCONT)
        time.sleep(0.02)
    return killed


def result(run):
    output, error = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, error
    # Before it stands what Ray says of killed workers.
    return json.loads(output.splitlines()[-1])


def wait_until(holds, run=None):
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until and (run is None or run.poll() is None), "it does not come, or has ended first"
        time.sleep(0.01)


def wait_until_gone(processes):
    """Ray's processes end by themselves when their driver has. A worker that lives may hold the folder, though it writes no task."""
    wait_until(lambda: not any(kill(process, 0) for process in processes))


def test_ray_makes_the_same_bytes_with_one_worker_and_with_two(inputs, expected, drivers, tmp_path):
    for workers in (1, 2):
        summary = result(drivers(inputs, tmp_path / str(workers), jobs=workers))
        counts = [summary[name] for name in ("tasks", "performed", "resumed", "left")]
        assert counts == [TASKS, TASKS, 0, 0] and summary["failed_tasks"] == []
        assert summary["failed_inputs"][0]["path"].endswith("noise.pcap")
        assert_same(contents(tmp_path / str(workers)), expected)


def test_a_worker_that_is_killed_in_mid_task_is_replaced(inputs, expected, drivers, tmp_path):
    out = tmp_path / "out"
    driver = drivers(inputs, out, jobs=2)
    # Three tasks once, one of them twice.
    killed = kill_workers(
        driver, out, lambda name, killed: len(killed) < 4 and killed.count(name) < (2 if killed[:1] == [name] else 1)
    )
    summary = result(driver)
    assert len(killed) >= 3 and len(set(killed)) >= 2, killed
    assert summary["performed"] == TASKS and summary["failed_tasks"] == []
    assert_same(contents(out), expected)
    assert records(out, "work") == set()


def test_a_task_that_kills_each_of_its_workers_is_reported_and_the_others_are_done(
    inputs, expected, drivers, tmp_path
):
    out = tmp_path / "out"
    driver = drivers(inputs, out, jobs=2)
    killed = kill_workers(driver, out, lambda name, _: name == "2025-11-14-nbbo")
    summary = result(driver)
    assert len(killed) == RETRIES + 1
    (failed,) = summary["failed_tasks"]
    assert failed == {"name": "2025-11-14-nbbo", "error": f"its worker was killed {RETRIES + 1} times"}
    assert summary["performed"] == TASKS - 1
    found = contents(out)
    assert json.loads(found["manifest.json"])["failed_tasks"] == [failed]
    # By threads: the executor may be another one.
    with pytest.warns(tapeworks.DataWarning):
        summary = tapeworks.batch(inputs, out, schema=SCHEMAS, buckets=4)
    assert (summary["performed"], summary["resumed"]) == (1, TASKS - 1)
    assert_same(contents(out), expected)


def test_a_run_goes_on_after_its_driver_was_killed(inputs, expected, drivers, tmp_path):
    out = tmp_path / "out"
    driver = drivers(inputs, out, jobs=1)
    wait_until(lambda: records(out) and records(out, "work"), driver)
    started = below(driver.pid)
    driver.kill()
    driver.communicate()
    finished = records(out)
    assert finished and not (out / "manifest.json").exists()
    wait_until_gone(started)
    summary = result(drivers(inputs, out, jobs=2))
    assert summary["resumed"] >= len(finished) and summary["resumed"] + summary["performed"] == TASKS
    assert_same(contents(out), expected)


def test_a_ray_that_runs_is_used_and_stays(inputs, expected, drivers, tmp_path):
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False)
    try:
        with pytest.warns(tapeworks.DataWarning):
            tapeworks.batch(inputs, tmp_path / "within", schema=SCHEMAS, buckets=4, executor="ray", jobs=2)
        assert ray.is_initialized()
        assert_same(contents(tmp_path / "within"), expected)
        address = ray.get_runtime_context().gcs_address
        result(drivers(inputs, tmp_path / "joined", address=address))
        assert_same(contents(tmp_path / "joined"), expected)
        assert len(ray.nodes()) == 1 and ray.nodes()[0]["Alive"]
    finally:
        ray.shutdown()


def test_a_cluster_that_is_not_there_is_an_error(inputs, tmp_path):
    with pytest.raises(tapeworks.ExecutorError, match="does not connect to 127.0.0.1:1"):
        tapeworks.batch(inputs, tmp_path / "out", executor="ray", address="127.0.0.1:1")


def test_an_interrupt_ends_a_driver_and_its_tasks(inputs, expected, drivers, tmp_path):
    # On a busy machine a run may be done before the signal comes.
    for attempt in range(5):
        out = tmp_path / f"out-{attempt}"
        driver = drivers(inputs, out, jobs=2)
        wait_until(lambda out=out: records(out) and records(out, "work"), driver)
        started = below(driver.pid)
        driver.send_signal(signal.SIGINT)
        _, error = driver.communicate(timeout=PATIENCE)
        if driver.returncode != 0:
            break
    # Ray 2.60 itself may abort when tasks are cancelled while they end: it names its task_manager.cc. Its workers then end by themselves.
    assert driver.returncode != 0 and ("KeyboardInterrupt" in error or "task_manager.cc" in error)
    if "KeyboardInterrupt" in error:
        assert records(out, "work") == set()
    wait_until_gone(started)
    assert not (out / "manifest.json").exists()
    with pytest.warns(tapeworks.DataWarning):
        assert tapeworks.batch(inputs, out, schema=SCHEMAS, buckets=4)["resumed"] >= 1
    assert_same(contents(out), expected)


@with_program
def test_the_program_makes_the_same_bytes_by_ray_and_reports_a_file_that_goes(
    inputs, expected, drivers, tmp_path
):
    out, own = tmp_path / "out", tmp_path / "in"
    own.mkdir()
    for path in pathlib.Path(inputs[:-2]).iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    run = drivers.program(f"{own}/**", out, "--jobs", "2")
    # It has planned.
    wait_until((out / ".tasks/settings.json").exists, run)
    (own / "14-memx.pcap").unlink()
    output, error = run.communicate(timeout=PATIENCE)
    assert run.returncode == 3, error
    assert "14-memx.pcap: cannot be read" in error and "noise.pcap: neither a capture" in error
    summary = json.loads(output)
    assert (summary["performed"], len(summary["failed_tasks"])) == (TASKS - 2, 2)
    found = contents(out)
    assert len(found) > 10
    for name, content in found.items():
        assert name == "manifest.json" or content == expected[name]
    run = drivers.program(inputs, tmp_path / "whole", "--jobs", "2")
    output, error = run.communicate(timeout=PATIENCE)
    assert run.returncode == 3, error
    assert error.count("\n") == 2, error
    assert_same(contents(tmp_path / "whole"), expected)


@with_program
def test_the_program_stops_ray_in_good_order(inputs, expected, drivers, tmp_path):
    out = tmp_path / "out"
    run = drivers.program(inputs, out, "--jobs", "1")
    wait_until(lambda: records(out) and records(out, "work"), run)
    started = below(run.pid)
    run.send_signal(signal.SIGINT)
    output, error = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130, error
    assert "the same command goes on" in error and json.loads(output)["manifest"] is None
    assert records(out, "work") == set() and not any(writes(process) for process in started)
    # Killed, it leaves a process of Python whose input has ended.
    run = drivers.program(inputs, out, "--jobs", "1")
    finished = records(out)
    wait_until(lambda: records(out) > finished and records(out, "work"), run)
    started = below(run.pid)
    run.kill()
    run.communicate()
    wait_until_gone(started)
    run = drivers.program(inputs, out)
    output, error = run.communicate(timeout=PATIENCE)
    assert run.returncode == 3, error
    assert json.loads(output)["resumed"] >= 2
    assert_same(contents(out), expected)


@with_program
def test_the_program_ends_with_an_error_when_its_python_is_killed(inputs, expected, drivers, tmp_path):
    out = tmp_path / "out"
    run = drivers.program(inputs, out, "--jobs", "1")
    wait_until(lambda: records(out) and records(out, "work"), run)
    started = below(run.pid)
    # The first that it has started: the others are of Ray.
    kill(started[0])
    _, error = run.communicate(timeout=PATIENCE)
    assert run.returncode == 1 and "ended before the tasks had" in error, error
    wait_until_gone(started)
    with pytest.warns(tapeworks.DataWarning):
        assert tapeworks.batch(inputs, out, schema=SCHEMAS, buckets=4)["resumed"] >= 1
    assert_same(contents(out), expected)
