"""`tapeworks batch` with addresses, against a server of moto that speaks S3's protocol: the bytes of a run in folders, whatever the place and
the number of workers; runs that are killed, stand still or lose answers; buckets, credentials and objects that are not there."""

import http.client
import json
import os
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
from any_store import (
    RANGE_BYTES, SETTINGS, WAIT_SECONDS, Batch, against, arguments, check, files, killed, large, leased, outputs, same_bytes, until,
)
from botocore.exceptions import ClientError
from replays import REPLAYED, ROOT

BUCKET = "captures"

# How long a run does not know that its lease is lost.
UNKNOWN_SECONDS = 5


class Server:
    """moto in a process of its own, so that it serves while this script waits."""

    root = f"s3://{BUCKET}"

    def __init__(self):
        program = [sys.executable, "-u", "-c", "\n".join((
            "import logging",
            "from moto.server import ThreadedMotoServer",
            "logging.getLogger('werkzeug').setLevel(logging.ERROR)",
            "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)",
            "server.start()",
            "print(*server.get_host_and_port(), flush=True)",
            "server._thread.join()",
        ))]
        # It prints what happens to it when two write an object at once; it answers with an error then, and the request is repeated.
        self.process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        host, port = self.process.stdout.readline().split()
        self.address = f"http://{host}:{port}"
        self.environment = {
            "AWS_ENDPOINT": self.address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        self.client = boto3.client(
            "s3", endpoint_url=self.address, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        self.client.create_bucket(Bucket=BUCKET)

    def put(self, name: str, content: bytes):
        self.client.put_object(Bucket=BUCKET, Key=name, Body=content)

    def upload(self, folder: Path, prefix: str):
        """A folder as objects."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.client.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(folder)}")

    def keys(self, prefix: str) -> dict:
        """The objects below a prefix, by their names below it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
        return {one["Key"][len(prefix) + 1:]: one for page in pages for one in page.get("Contents", [])}

    def files(self, prefix: str) -> dict:
        """What a run has made below a prefix."""
        names = [name for name in self.keys(prefix) if not name.startswith(".tasks/")]
        return {name: self.client.get_object(Bucket=BUCKET, Key=f"{prefix}/{name}")["Body"].read() for name in names}


class Between:
    """Passes requests on to the server. ``rule`` gets each one's method, path and headers, which it may change, and says what becomes of it:
    ``None``: it is answered; ``lost``: it is done, and the answer is that of a server in trouble."""

    def __init__(self, server: Server):
        self.rule = lambda method, path, headers: None
        # Gets the headers of each answer, which it may change.
        self.answer = lambda fields: None
        # The bytes of answers, by method and path.
        self.answered = {}
        between, (host, port) = self, server.address.removeprefix("http://").split(":")

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = dict(self.headers)
                fate = between.rule(self.command, self.path, headers)
                connection = http.client.HTTPConnection(host, int(port))
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content, status, fields = answer.read(), answer.status, dict(answer.getheaders())
                connection.close()
                between.answer(fields)
                if fate == "lost":
                    status, fields, content = 500, {}, b"<Error><Code>InternalError</Code></Error>"
                key = (self.command, self.path.split("?")[0])
                between.answered[key] = between.answered.get(key, 0) + len(content)
                self.send_response_only(status)
                for name, value in fields.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                is_head = self.command == "HEAD"
                self.send_header("Content-Length", fields.get("Content-Length", "0") if is_head else str(len(content)))
                self.end_headers()
                if not is_head:
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on

            def log_message(self, *_):
                pass

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()
        self.environment = {"AWS_ENDPOINT": f"http://127.0.0.1:{self.listener.server_port}"}


def in_any_way(batch: Batch):
    """The same bytes with any number of jobs, and of processes that do each task twice."""
    server, whole = batch.server, batch.server.files("days")
    for jobs in ["1", "3"]:
        batch.run(f"s3://{BUCKET}/in/*/*.pcap", "--out", f"s3://{BUCKET}/jobs-{jobs}", "--jobs", jobs, *SETTINGS)
        check(server.files(f"jobs-{jobs}") == whole, f"jobs: {jobs}: the same bytes")
    _, plan, _ = batch.run(f"s3://{BUCKET}/in", "--out", f"s3://{BUCKET}/apart", *SETTINGS, "--dry-run", "--json", accepted=(0,))
    check(not server.keys("apart"), "a dry run puts no object")
    workers = []
    for number, task in enumerate(json.loads(plan)["tasks"]):
        description = batch.work.parent / f"cloud-task-{number}.json"
        description.write_text(json.dumps(task))
        # Each task twice at the same time.
        workers += [batch.start("--task", description, "--out", f"s3://{BUCKET}/apart") for _ in range(2)]
    for worker in workers:
        _, errors = worker.communicate()
        check(worker.returncode in REPLAYED, f"a process does a task {errors.strip()[:60]}")
    _, report, _ = batch.run(f"s3://{BUCKET}/in", "--out", f"s3://{BUCKET}/apart", *SETTINGS, "--json")
    report = json.loads(report)
    check((report["performed"], report["resumed"]) == (0, len(workers) // 2), "a run finds them done")
    check(server.files("apart") == whole, "processes that do each task twice: the same bytes")
    check(not batch.staged(), "no staged file is left")


def is_renewal(method: str, path: str, headers: dict) -> bool:
    """Whether a request renews a lease."""
    return method == "PUT" and path.endswith("/.tasks/run") and "if-match" in {name.lower() for name in headers}


def outlived(batch: Batch, captures: Path, days: Path, between: Between):
    """A run whose renewals stand still loses its lease to another, and then changes nothing."""
    server, taken = batch.server, threading.Event()

    def rule(method, path, headers):
        # Its tasks go on as soon as another run has the lease, which it gets to know later.
        if is_renewal(method, path, headers):
            taken.wait(WAIT_SECONDS)
            time.sleep(UNKNOWN_SECONDS)
        elif method == "GET" and "one/14-nasdaq" in path and started.is_set():
            taken.wait(WAIT_SECONDS)
        elif method != "GET" and method != "HEAD" and taken.is_set():
            changes.append(f"{method} {path}")

    started, changes = threading.Event(), []
    between.rule = rule
    words = ["--out", f"s3://{BUCKET}/outlived", "--jobs", "1", *SETTINGS]
    first = batch.start(f"s3://{BUCKET}/in", *words, environment=between.environment)
    until("the lease of the first run", lambda: ".tasks/settings.json" in server.keys("outlived"))
    started.set()
    lease = server.keys("outlived")[".tasks/run"]["ETag"]
    second = batch.start(captures, *words)
    until("the lease of the second run", lambda: server.keys("outlived").get(".tasks/run", {}).get("ETag") != lease)
    taken.set()
    _, errors = first.communicate()
    _, others = second.communicate()
    check(first.returncode == 1 and "another run works in this folder" in errors, f"a run that stood still ends: {errors.strip()}")
    check(not changes, f"it changes nothing: {changes}")
    check(second.returncode in REPLAYED, f"the other one ends {others.strip()}")
    check(server.files("outlived") == files(days), "the bytes are those of the run that took over, the manifest's too")
    check(".tasks/run" not in server.keys("outlived"), "its lease is given back by itself")


def unanswered(batch: Batch, captures: Path, days: Path, between: Between):
    """A run goes on when a renewal is done and its answer is lost, and a store without conditions is refused."""
    lost = []

    def rule(method, path, headers):
        if is_renewal(method, path, headers) and len(lost) < 2:
            lost.append(path)
            return "lost"
        return None

    between.rule = rule
    batch.run(captures, "--out", f"s3://{BUCKET}/unanswered", *SETTINGS, environment=between.environment)
    check(len(lost) == 2, "answers to renewals are lost")
    check(batch.server.files("unanswered") == files(days), "the run keeps its lease: the same bytes")

    def blind(_method, _path, headers):
        for name in [name for name in headers if name.lower() in ("if-match", "if-none-match")]:
            del headers[name]

    between.rule = blind
    line = batch.refused(captures, "--out", f"s3://{BUCKET}/blind", *SETTINGS, environment=between.environment)
    check("has no conditional puts" in line, "a store without conditions is refused")


def halfway(batch: Batch, captures: Path):
    """A run that was killed between the two names of a record, and one for another day behind it."""
    server, words = batch.server, ["--out", f"s3://{BUCKET}/halfway", *SETTINGS]
    batch.run(captures / "two/19-memx.pcap", *words)
    whole = server.files("halfway")
    names = [name for name in server.keys("halfway") if name.startswith(".tasks/20")]
    for name in names:
        record = server.client.get_object(Bucket=BUCKET, Key=f"halfway/{name}")["Body"].read()
        server.put(f"halfway/{name.removesuffix('json')}publishing", record)
    batch.run(captures / "two/18-nasdaq.pcap", *words)
    found = server.files("halfway")
    manifest = json.loads(found["manifest.json"])
    named = {output["path"] for task in manifest["tasks"] for output in task["outputs"]}
    check(len(names) == 2 and named == set(outputs(found)), "the manifest names what is there, of both days")
    check(outputs(whole).items() <= found.items(), "the finished tasks have stayed")
    check(not [name for name in server.keys("halfway") if name.endswith(".publishing")], "no remains are in the store")


def named(batch: Batch, captures: Path, between: Between):
    """Names of objects that no file would have, objects that stand for folders, and one that is no capture."""
    server, content = batch.server, (captures / "two/19-memx.pcap").read_bytes()
    odd = ["a b.pcap", "50%25.pcap", "ünï.pcap", "a#b?.pcap", "x%2F..%2Fy.pcap", "+plus&.pcap", "a'b\".pcap", "c\\d.pcap", "two/e.pcap"]
    for name in odd:
        server.put(f"odd/{name}", content)
    for name in ["", "two/"]:
        server.put(f"odd/{name}", b"")
    batch.run(f"s3://{BUCKET}/odd/**", "--out", f"s3://{BUCKET}/odd-days", *SETTINGS, accepted=(0,))
    manifest = json.loads(server.files("odd-days")["manifest.json"])
    found = {one["path"] for task in manifest["tasks"] for one in task["inputs"]}
    check(found == {f"s3://{BUCKET}/odd/{name}" for name in odd}, "objects have their own names, and folders are none")
    line = batch.refused(captures, "--out", "s3://", *SETTINGS)
    check("s3://: has no bucket" in line and not (ROOT / "s3:").exists(), "an address without a bucket is no folder")
    for inputs in ["s3://", "s3://*", "s3://captures*/in"]:
        line = batch.refused(inputs, "--out", f"s3://{BUCKET}/none", *SETTINGS)
        check("s3://: has no bucket" in line, "a bucket of inputs is no pattern")
    between.rule = lambda *_: None
    server.put("noise/noise.bin", os.urandom(3 * RANGE_BYTES))
    server.put("noise/a.pcap", content)
    code, _, errors = batch.run(f"s3://{BUCKET}/noise", "--out", f"s3://{BUCKET}/noise-days", *SETTINGS, environment=between.environment)
    read = between.answered[("GET", f"/{BUCKET}/noise/noise.bin")]
    check(code == 3 and "neither a capture" in errors and read == RANGE_BYTES, f"of an object that is no capture {read} bytes are read")
    # No file of the run may be larger, as if the disk were full. Python ignores the signal of that, and so does the program.
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)), "restore_signals": False}
    process = batch.start(f"s3://{BUCKET}/in", "--out", f"s3://{BUCKET}/full", *SETTINGS, **limit)
    _, errors = process.communicate()
    is_named = "cannot be written: File too large" in errors and errors.count("\n") == 1
    check(process.returncode == 1 and is_named and not server.keys("full"), f"a full disk is no fault of an object: {errors.strip()}")
    away = {"AWS_ENDPOINT": "http://user:a-secret-of-the-endpoint@127.0.0.1:1"}
    line = batch.refused(captures, "--out", f"s3://{BUCKET}/none", *SETTINGS, environment=away)
    check("http://127.0.0.1:1/" in line and "a-secret" not in line, "an endpoint is shown without its password")
    check(not batch.staged(), "no staged file is left")


def missing(batch: Batch, captures: Path):
    """What is not there is named, and stops nothing else."""
    server = batch.server
    line = batch.refused("s3://nowhere/in/**", "--out", f"s3://{BUCKET}/none", *SETTINGS)
    check("s3://nowhere" in line and "NoSuchBucket" in line, "a bucket of inputs that is not there is named")
    line = batch.refused(captures, "--out", "s3://nowhere/days", *SETTINGS)
    check("s3://nowhere" in line and "NoSuchBucket" in line, "a bucket of results that is not there is named")
    line = batch.refused(f"s3://{BUCKET}/empty/**", "--out", f"s3://{BUCKET}/none", *SETTINGS)
    check("no file matches" in line, "a pattern that nothing matches is named")
    line = batch.refused("ftp://captures/a", "--out", f"s3://{BUCKET}/none", *SETTINGS)
    check("no store has the scheme ftp" in line, "a scheme that no store has is named")
    # Planned, and then gone or another.
    server.upload(captures, "change")
    _, plan, _ = batch.run(f"s3://{BUCKET}/change", "--out", f"s3://{BUCKET}/changed", *SETTINGS, "--dry-run", "--json", accepted=(0,))
    server.client.delete_object(Bucket=BUCKET, Key="change/two/19-memx.pcap")
    content = (captures / "two/18-nasdaq.pcap").read_bytes()
    server.put("change/two/18-nasdaq.pcap", content[:-1] + bytes([content[-1] ^ 1]))
    for day, why in [("18", "18-nasdaq.pcap: changed since it was listed"), ("19", "19-memx.pcap: is not there")]:
        task = next(task for task in json.loads(plan)["tasks"] if task["date"] == f"2025-11-{day}" and task["kind"] == "channels")
        description = batch.work.parent / "cloud-task.json"
        description.write_text(json.dumps(task))
        check(why in batch.refused("--task", description, "--out", f"s3://{BUCKET}/changed"), "a task names its object")
    # In mid-run: the smallest comes last.
    words = [f"s3://{BUCKET}/change", "--out", f"s3://{BUCKET}/vanished", "--jobs", "1", *SETTINGS]
    process = batch.start(*words)
    until("the first task", lambda: any(name.endswith("-nbbo.json") or ".json" in name and "20" in name for name in server.keys("vanished")))
    server.client.delete_object(Bucket=BUCKET, Key="change/two/17-bzx.pcap")
    _, errors = process.communicate()
    manifest = json.loads(server.files("vanished")["manifest.json"])
    failed = manifest["failed_tasks"]
    check(process.returncode == 3 and len(failed) in (1, 2), f"a run with a vanished object ends with {process.returncode}: {errors.strip()}")
    check(all("17-bzx.pcap: is not there" in one["error"] for one in failed), "the manifest has it by name")
    dates = {task["date"] for task in manifest["tasks"]}
    check({"2025-11-14", "2025-11-18"} <= dates, "the other tasks are done")
    # An object that is no capture, beside those that are.
    server.put("change/noise.pcap", b"this is no capture")
    code, _, errors = batch.run(f"s3://{BUCKET}/change", "--out", f"s3://{BUCKET}/noisy", *SETTINGS)
    check(code == 3 and f"s3://{BUCKET}/change/noise.pcap: neither a capture" in errors, "an object that is no capture is named")
    check(not batch.staged(), "no staged file is left")


def parts(batch: Batch):
    """The large results were put in parts."""
    tags = [one["ETag"] for name, one in batch.server.keys("large-days").items() if name.endswith(".csv")]
    check(len(tags) == 1 and "-" in tags[0], f"they were put in parts: {tags[0]}")


def credentials(batch: Batch):
    """Who is not known is refused. The server asks from here on."""
    request = urllib.request.Request(f"{batch.server.address}/moto-api/reset-auth", data=b"0", method="POST", headers={"Content-Type": "text/plain"})
    urllib.request.urlopen(request).read()
    try:
        batch.server.client.list_objects_v2(Bucket=BUCKET)
        sys.exit("the server takes any credentials")
    except ClientError:
        pass
    wrong = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "a-secret-of-nobody"}
    line = batch.refused(f"s3://{BUCKET}/in", "--out", f"s3://{BUCKET}/none", *SETTINGS, environment=wrong)
    check(f"s3://{BUCKET}/in" in line and "InvalidAccessKeyId" in line, "wrong credentials are refused by name")
    check("a-secret-of-nobody" not in line, "the secret is not shown")


def checks(batch: Batch, captures: Path, days: Path, work: Path):
    same_bytes(batch, captures, days)
    in_any_way(batch)
    killed(batch, days)
    leased(batch, captures)
    between = Between(batch.server)
    outlived(batch, captures, days, between)
    unanswered(batch, captures, days, between)
    halfway(batch, captures)
    named(batch, captures, between)
    missing(batch, captures)
    large(batch, work)
    parts(batch)
    credentials(batch)


if __name__ == "__main__":
    against(Server(), arguments(__doc__).parse_args(), checks)
