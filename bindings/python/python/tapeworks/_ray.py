"""Ray as the executor of batches: a remote task for each task.

A task is plain data and its result is a record in the folder, so a task whose worker was killed is done once more by another worker, and
one that is done twice is found done. ``tapeworks batch --executor ray`` starts this module as a program: see :func:`main`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _native
from .errors import ExecutorError

#: How often a task is done once more after its worker was killed.
RETRIES = 5

#: Seconds that a task waits for one that does the same: that of a worker that is ending.
BUSY_SECONDS = 60.0

#: Seconds that tasks have to end when the run is stopped, before their workers are killed.
STOP_SECONDS = 10.0

#: Seconds that a connection to a cluster may take.
CONNECT_SECONDS = 10.0

#: Seconds between two looks at whether the run shall stop.
LOOK_SECONDS = 0.2

#: How often Ray is started. It gives up after 30 seconds, which a busy machine may need.
STARTS = 3

#: Bytes for results, which are short. Ray accepts no less than 75 MB.
OBJECT_STORE_BYTES = 100_000_000

#: A task that has ended: its name, why it has no result, whether its inputs are to blame.
Ended = Tuple[str, Optional[str], bool]


def load() -> Any:
    """The module of Ray."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ExecutorError(f"Ray is not there ({error}): install tapeworks[ray]") from None


def one_task(task: str, out: str, folder: str, work: Optional[str]) -> Tuple[Optional[str], bool]:
    """Does a task in a worker: why it has no result, and whether its inputs are to blame. ``folder``: where relative names begin;
    ``work``: where it stages objects."""
    os.chdir(folder)
    until = time.monotonic() + BUSY_SECONDS
    while True:
        error, is_of_input, is_busy = _native.batch_task(task, out, work)
        if not is_busy or time.monotonic() > until:
            return error, is_of_input
        time.sleep(LOOK_SECONDS)


def _reach(address: str) -> None:
    """Sees to it that something listens at an address of host and port: Ray itself would look for ten minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            raise ExecutorError(f"Ray does not connect to {address}: {error}") from None


def _begin(ray: Any, jobs: Optional[int], address: Optional[str]) -> bool:
    """Connects to Ray. ``True``: the connection is ours to end."""
    if ray.is_initialized():
        return False
    if address is not None:
        _reach(address)
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    for left in reversed(range(STARTS)):
        try:
            if address is not None:
                ray.init(address=address, **quiet)
            else:
                # "local": else it joins a cluster that happens to run here.
                ray.init(
                    address="local",
                    num_cpus=jobs or min(os.cpu_count() or 1, 4),
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    **quiet,
                )
            return True
        except Exception as error:
            ray.shutdown()
            if not left or address is not None:
                what = "start" if address is None else f"connect to {address}"
                raise ExecutorError(f"Ray does not {what}: {_line(error)}") from error
    raise AssertionError("the last attempt returns or raises")


def _line(error: BaseException) -> str:
    """An error of Ray, which has many lines, in one."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)


def _result(ray: Any, reference: Any) -> Tuple[Optional[str], bool]:
    try:
        error, is_of_input = ray.get(reference)
        return error, is_of_input
    except ray.exceptions.WorkerCrashedError:
        return f"its worker was killed {RETRIES + 1} times", False
    except ray.exceptions.RayError as error:
        return f"Ray: {_line(error)}", False


def _cancel(ray: Any, references: List[Any]) -> None:
    """Ends tasks that wait or are under way, and waits until they have."""
    for is_forced in (False, True):
        for reference in references:
            ray.cancel(reference, force=is_forced)
        _, references = ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)
        if not references:
            return


def perform(
    tasks: Sequence[str],
    *,
    out: str,
    jobs: Optional[int] = None,
    address: Optional[str] = None,
    work: Optional[str] = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Ended]:
    """Does tasks, in the words of ``--dry-run --json``, and yields each when it has ended. To close it is to stop it."""
    ray = load()
    is_ours = _begin(ray, jobs, address)
    try:
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(one_task)
        most = jobs or len(tasks)
        folder = os.getcwd()
        left = [(task, str(json.loads(task)["name"])) for task in reversed(tasks)]
        names: Dict[Any, str] = {}
        try:
            while (left or names) and not is_stopped():
                while left and len(names) < most:
                    task, name = left.pop()
                    names[remote.remote(task, out, folder, work)] = name
                ready, _ = ray.wait(list(names), timeout=LOOK_SECONDS)
                for reference in ready:
                    error, is_of_input = _result(ray, reference)
                    yield names.pop(reference), error, is_of_input
        finally:
            if names:
                _cancel(ray, list(names))
    except ray.exceptions.RaySystemError as error:
        raise ExecutorError(f"Ray is lost: {_line(error)}") from error
    finally:
        if is_ours:
            ray.shutdown()


def main() -> int:
    """The executor as a process. Standard input: one line of JSON with ``tasks``, ``out``, ``jobs``, ``address``
    and ``work``; its end stops all.
    Standard output: a line of JSON for each event.

    =========================================================  ==========================================
    ``{"ready": VERSION}``                                     Ray is installed
    ``{"ended": NAME, "error": …, "is_of_input": …}``          a task has ended
    ``{"done": true}``                                         all have ended, or it was stopped
    ``{"failed": WHY}``                                        it ends without having done all
    =========================================================  ==========================================
    """
    answers = os.fdopen(os.dup(1), "w")
    # What libraries print is no answer.
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    # Ctrl-C comes to the program that started this, which closes standard input. Not ignored, for the workers would inherit that.
    signal.signal(signal.SIGINT, lambda *_: None)
    stopped = threading.Event()

    def listen() -> None:
        # Not through sys.stdin, whose lock would keep the program from ending.
        while os.read(0, 1):
            pass
        stopped.set()

    try:
        load()
        say(ready=_native.__version__)
        line = sys.stdin.readline()
        if not line:
            return 0
        request = json.loads(line)
        threading.Thread(target=listen, daemon=True).start()
        ended = perform(
            request["tasks"],
            out=request["out"],
            jobs=request["jobs"],
            address=request["address"],
            work=request["work"],
            is_stopped=stopped.is_set,
        )
        for name, error, is_of_input in ended:
            say(ended=name, error=error, is_of_input=is_of_input)
        say(done=True)
        return 0
    except ExecutorError as error:
        say(failed=str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
