"""Traces of a plant and of a gateway in OpenTelemetry's own Collector, built from its Go modules: every span is there, and well formed.

Venues and an exchange are simulated on loopback. Amid the session the Collector is killed: the plant goes on, what finds no room is counted, and the
export resumes with the next Collector. At the end the Collector's file has what the counters say: each trace has one root, each child lies within
its parent, and the stages of a packet and of an order come in their order. Then come collectors that are none: one that is away, one that does not answer,
one that answers something else.

Usage: with_otel.py --tapeworks BINARY --work FOLDER --server FOLDER, where the last has the program `collector`.
"""

import argparse
import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from trading_day import EXCHANGE, GATEWAY, Server, free_ports
from with_kafka import serve, venues_of
from with_questdb import Plant, certify, free_port, get, until

MESSAGES, RATE = 24_000, 2_000
PACKETS_EVERY, ORDERS_EVERY = 20, 5
ORDERS_A_SECOND, ORDER_SECONDS = 200, 3
DEADLINE = 60
TOKEN = "for-tests-only-0123456789"
PACKET = ["receive", "decode", "publish", "books"]
ORDER = [
    "read", "check and translate", "store", "send to the venue", "venue", "read the answer", "translate the answer", "store the answer",
    "send to the client",
]


class Collector:
    """The Collector: OTLP over HTTP in, with TLS and without, a file out."""

    def __init__(self, program: Path, work: Path):
        self.program, self.work, self.port, self.runs, self.process = program, work, free_port(), 0, None
        self.port_of_tls = free_port()
        certify(work)

    def start(self) -> None:
        self.runs += 1
        config = self.work / f"collector-{self.runs}.yaml"
        config.write_text(
            f"receivers:\n  otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{self.port}'}}}}}}\n"
            f"  otlp/tls: {{protocols: {{http: {{endpoint: '127.0.0.1:{self.port_of_tls}', "
            f"tls: {{cert_file: '{self.work / 'server.pem'}', key_file: '{self.work / 'server.key'}'}}}}}}}}\n"
            f"exporters: {{file: {{path: '{self.file(self.runs)}', flush_interval: 100ms}}}}\n"
            "service: {pipelines: {traces: {receivers: [otlp, otlp/tls], exporters: [file]}}}\n"
        )
        log = open(self.work / "collector.log", "a")
        self.process = subprocess.Popen([str(self.program), "--config", f"file:{config}"], stdout=log, stderr=log)
        until("the collector listens", self.listens)

    def listens(self) -> bool:
        if self.process.poll() is not None:
            sys.exit(f"the collector ended: see {self.work / 'collector.log'}")
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/traces", data=b"", headers={"Content-Type": "application/x-protobuf"})
        try:
            return urllib.request.urlopen(request, timeout=2).status == 200
        except OSError:
            return False

    def end(self, by: int) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(by)
            self.process.wait(timeout=DEADLINE)

    def file(self, run: int) -> Path:
        return self.work / f"spans-{run}.json"

    def spans(self, run: int) -> dict:
        """The spans of a run that ended, by the service that they are of."""
        found = defaultdict(dict)
        for line in self.file(run).read_text().splitlines():
            try:
                read = json.loads(line)
            except json.JSONDecodeError:
                # The last line of a Collector that was killed.
                continue
            for of_resource in read["resourceSpans"]:
                resource = facts(of_resource["resource"])
                assert resource["service.version"] and resource["service.instance.id"], resource
                for scope in of_resource.get("scopeSpans", []):
                    for span in scope["spans"]:
                        found[resource["service.name"]][span["spanId"]] = span
        return found


def facts(of: dict) -> dict:
    return {each["key"].removeprefix("tapeworks."): next(iter(each["value"].values())) for each in of.get("attributes", [])}


def times(span: dict) -> tuple:
    return int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])


def traces_of(spans: dict) -> list:
    """Each trace: its root and its children, in the order of their times. Whatever is not well formed ends the run."""
    children, roots = defaultdict(list), {}
    for span in spans.values():
        assert len(span["traceId"]) == 32 and len(span["spanId"]) == 16, span
        (start, end) = times(span)
        assert 0 < start <= end, span
        if span.get("parentSpanId"):
            children[span["parentSpanId"]].append(span)
        else:
            roots[span["spanId"]] = span
    assert len({root["traceId"] for root in roots.values()}) == len(roots), "two roots have one trace"
    for parent, of_parent in children.items():
        root = roots[parent]
        (start, end) = times(root)
        for child in of_parent:
            assert child["traceId"] == root["traceId"], (root, child)
            (begins, ends) = times(child)
            assert start <= begins and ends <= end, (root, child)
    for of_parent in children.values():
        of_parent.sort(key=times)
    return [(root, children[at]) for at, root in roots.items()]


def named(traces: list, name: str) -> list:
    return [(root, children) for root, children in traces if root["name"] == name]


def stages(children: list, wanted: list) -> None:
    """The children are these stages, some of which may be left out, one behind the other."""
    names = [child["name"] for child in children]
    left = iter(wanted)
    # Stages that took no time have the same times.
    ordered = sorted(children, key=lambda child: (times(child), wanted.index(child["name"])))
    assert all(child["name"] in left for child in ordered), names
    for before, after in zip(ordered, ordered[1:]):
        assert times(before)[1] <= times(after)[0], (before, after)


def cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def plant_of(tapeworks: Path, work: Path, name: str, endpoint: str, of_venues: str, more: str = "") -> Plant:
    page, file = free_port(), work / f"{name}.toml"
    otel = f'[otel]\nendpoint = "{endpoint}"\nservice_name = "{name}"\npackets_every = {PACKETS_EVERY}\nexport_every = "100ms"\n{more}'
    file.write_text(
        f'interface = "127.0.0.1"\n[journal]\nfolder = "journal-{name}"\nsegment_mb = 1\ncheckpoint_every = "1s"\n'
        f'[web]\nlisten = "127.0.0.1:{page}"\n{otel if endpoint else ""}\n{of_venues}'
    )
    return Plant(tapeworks, file, page, work / f"{name}.log")


def otel(plant: Plant) -> dict:
    return (plant.status() or {}).get("otel") or {}


def venues_for(work: Path) -> tuple:
    file, of_venues = venues_of(work, random.randrange(1, 250), random.randrange(20_000, 30_000), MESSAGES, RATE)
    # So many that some packets are lost on both lines, and are requested.
    file.write_text(file.read_text().replace("lost_per_million = 2000", "lost_per_million = 50000"))
    return file, of_venues


def session(tapeworks: Path, collector: Collector, work: Path) -> None:
    """A plant, while the Collector is killed and starts again."""
    venues, of_venues = venues_for(work)
    collector.start()
    more = f'queue_samples = 64\nlongest_pause = "200ms"\npackets_slower_than = "500ms"\ntoken = "{TOKEN}"\n'
    plant = plant_of(tapeworks, work, "plant-1", f"http://127.0.0.1:{collector.port}", of_venues, more)
    plant.start()
    exchange = serve(tapeworks, venues)
    try:
        until("traces are exported", lambda: otel(plant).get("traces", 0) > 20)
        collector.end(signal.SIGKILL)
        until("traces are dropped", lambda: otel(plant).get("dropped", 0) > 50)
        away = otel(plant)
        assert not away["is_connected"] and away["failures"] > 0 and away["error"], away
        events = plant.status()["events"]
        until("the plant goes on", lambda: plant.status()["events"] > events + 500)
        before = otel(plant)["spans"]
        collector.start()
        until("the export resumes", lambda: otel(plant)["is_connected"] and otel(plant)["spans"] > before + 50)
        top = subprocess.run([str(tapeworks), "top", f"127.0.0.1:{plant.page}", "--once"], capture_output=True, text=True, check=True)
        assert "otel connected" in top.stdout, top.stdout
        with urllib.request.urlopen(f"http://127.0.0.1:{plant.page}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        assert "tapeworks_otel_spans_total" in metrics and "tapeworks_otel_dropped_traces_total" in metrics
        assert exchange.wait(timeout=DEADLINE) == 0
        end = plant.end()
    finally:
        exchange.kill()
        plant.kill()
    status = end["otel"]
    orders(tapeworks, collector, work)
    collector.end(signal.SIGTERM)
    first, second = collector.spans(1), collector.spans(2)
    found = second["plant-1"]
    assert len(found) == status["spans"] - before, (len(found), status, before)
    # A Collector that is killed loses what it has not written yet.
    assert 0 < len(first["plant-1"]) <= before, (len(first["plant-1"]), before)
    assert status["lost"] == 0 and status["refused_spans"] == 0 and status["unfollowed"] == 0, status
    traces = traces_of(first["plant-1"]) + traces_of(found)
    packets = named(traces, "packet")
    for root, children in packets:
        known = facts(root)
        stages(children, PACKET)
        assert known["venue"] in ("Nasdaq", "BX", "IEX") and known["line"] in ("A", "B", "recovery"), known
        names = [child["name"] for child in children]
        assert names == PACKET if int(known["events"]) > 0 else names == PACKET[:3], (known, names)
    assert {facts(root)["line"] for root, _ in packets} >= {"A", "B"}
    for name in ("start", "checkpoint", "recover messages"):
        assert named(traces, name), (name, {root["name"] for root, _ in traces})
    for root, _ in named(traces, "recover messages"):
        assert int(facts(root)["requests"]) > 0, root
    print(
        f"plant: {len(packets)} packets in {len(found) + len(first['plant-1'])} spans, {status['dropped']} traces dropped while the Collector was away; "
        f"{len(named(traces, 'checkpoint'))} checkpoints, {len(named(traces, 'recover messages'))} recoveries",
        flush=True,
    )
    log = (work / "plant-1.log").read_text() + (work / "collector.log").read_text()
    assert TOKEN not in log and TOKEN not in json.dumps(end), "the token is shown"


def orders(tapeworks: Path, collector: Collector, work: Path) -> None:
    """A gateway, whose traces go to the Collector that is there."""
    real_time, recovery, fix, page = free_ports(4)
    (work / "exchange.toml").write_text(EXCHANGE.format(real_time=real_time, recovery=recovery))
    text = GATEWAY.format(fix=fix, folder=work, real_time=real_time, recovery=recovery)
    (work / "gateway.toml").write_text(
        f'{text}[web]\naddress = "127.0.0.1:{page}"\n[otel]\nendpoint = "https://127.0.0.1:{collector.port_of_tls}"\n'
        f'authorities = "authority.pem"\nservice_name = "gateway-1"\n'
        f'orders_every = {ORDERS_EVERY}\nexport_every = "100ms"\n'
    )
    exchange = Server([str(tapeworks), "exchange", "serve", str(work / "exchange.toml")], "orders")
    words = [str(tapeworks), "gateway", str(work / "gateway.toml"), "--json"]
    gateway = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=open(work / "gateway.log", "a"), text=True)
    url = f"http://127.0.0.1:{page}"

    def status() -> dict:
        try:
            return get(f"{url}/status.json")
        except OSError:
            return {}

    try:
        until("the gateway takes orders", lambda: status().get("takes_orders"))
        load = [str(tapeworks), "fix", f"127.0.0.1:{fix}", "--comp-id", "MAKER", "--rate", str(ORDERS_A_SECOND), "--json"]
        done = subprocess.run([*load, "--seconds", str(ORDER_SECONDS)], capture_output=True, text=True, check=True, timeout=DEADLINE)
        for command in ("halt", "resume"):
            urllib.request.urlopen(urllib.request.Request(f"{url}/{command}", data=b""), timeout=10).read()
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            assert "tapeworks_otel_spans_total" in answer.read().decode()
        requests = status()["translated"]["client_messages"]
        gateway.send_signal(signal.SIGINT)
        printed, _ = gateway.communicate(timeout=DEADLINE)
    finally:
        gateway.kill()
        exchange.process.kill()
    counters = json.loads(printed)["otel"]
    collector.end(signal.SIGTERM)
    found = collector.spans(2)["gateway-1"]
    assert len(found) == counters["spans"] and counters["dropped"] == counters["lost"] == counters["unfollowed"] == 0, (len(found), counters)
    traces = traces_of(found)
    assert len(traces) == counters["traces"], (len(traces), counters)
    chosen = named(traces, "order")
    assert len(chosen) == math.ceil(requests / ORDERS_EVERY), (len(chosen), requests, done.stdout)
    for root, children in chosen:
        known = facts(root)
        stages(children, ORDER)
        assert known["session"] == "MAKER" and known["symbol"] == "AAPL" and known["side"] == "buy", known
        assert known["order_id"] and known["outcome"] in ("accepted", "cancelled", "expired", "filled"), known
        assert sorted(child["name"] for child in children) == sorted(ORDER), children
    assert len({facts(root)["cl_ord_id"] for root, _ in chosen}) == len(chosen)
    for name in ("start", "recover missed reports", "halt", "resume"):
        assert len(named(traces, name)) == 1, (name, {root["name"] for root, _ in traces})
    print(f"gateway: {len(chosen)} of {requests} orders, with {len(ORDER)} stages each", flush=True)


class Other(BaseHTTPRequestHandler):
    """A server that is no collector."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")

    def log_message(self, *_):
        pass


def others(tapeworks: Path, work: Path) -> None:
    """Collectors that are none: the plant goes on, and ends in order."""
    venues, of_venues = venues_for(work)
    other = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    # The kernel accepts for it, and nobody answers.
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(16)
    wanted = {
        "away": (free_port(), lambda status: status["failures"] > 1 and not status["is_connected"] and status["dropped"] > 0),
        "silent": (silent.getsockname()[1], lambda status: status["failures"] > 1 and "timeout" in (status["error"] or "")),
        "other": (other.server_address[1], lambda status: status["refused_spans"] > 50 and "not that of a collector" in (status["error"] or "")),
    }
    more = 'queue_samples = 16\ntimeout = "300ms"\nlinger = "500ms"\n'
    plants = {name: plant_of(tapeworks, work, name, f"http://127.0.0.1:{port}", of_venues, more) for name, (port, _) in wanted.items()}
    plants["none"] = plant_of(tapeworks, work, "none", "", of_venues)
    for plant in plants.values():
        plant.start()
    exchange = serve(tapeworks, venues)
    try:
        for name, (_, is_so) in wanted.items():
            until(f"{name}: the plant counts", lambda: is_so(otel(plants[name])))
        assert exchange.wait(timeout=DEADLINE) == 0
        time.sleep(1)
        spent = {name: cpu(plant.process.pid) for name, plant in plants.items()}
        time.sleep(5)
        for name, plant in plants.items():
            print(f"{name}: idle for 5 s, the plant took {(cpu(plant.process.pid) - spent[name]) / 5 * 100:.1f} % of a core", flush=True)
        for name, plant in plants.items():
            began = time.monotonic()
            end = plant.end()
            print(f"{name}: ended in {time.monotonic() - began:.1f} s; {end['messages']} messages; {end['otel']}", flush=True)
    finally:
        exchange.kill()
        for plant in plants.values():
            plant.kill()
        silent.close()
        other.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--tapeworks", "--work", "--server"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    work = given.work.resolve() / "otel"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    collector = Collector(given.server.resolve() / "collector", work)
    try:
        session(given.tapeworks.resolve(), collector, work)
    finally:
        collector.end(signal.SIGKILL)
    others(given.tapeworks.resolve(), work)


if __name__ == "__main__":
    sys.exit(main())
