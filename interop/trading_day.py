"""A day of trading through the gateway with somebody else's FIX client, for the scripts of QuickFIX/J and QuickFIX C++.

The client is a program that takes commands and prints every message (examples/quickfixj, interop/quickfix-cpp). Exchange, gateway and
client are real processes; the gateway is killed twice. At the end:

- each request has its answer once, and each execution report (ExecID) reached the client's application once;
- the fills of an order are its CumQty, and those of all orders are what the other side of the market has sold;
- the sequence numbers of client and gateway are the same;
- neither side sent a session reject or a BusinessMessageReject. The client validates what it gets with its dictionary.
"""

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time

ORDERS = 1_000
PATIENCE = 60.0

EXCHANGE = """
[[orders]]
name = "Exchange"
real_time = "127.0.0.1:{real_time}"
recovery = "127.0.0.1:{recovery}"
partitions = 2
throttle_per_second = 0
[[orders.user]]
name = "TW01"
password = "password"
cancels_on_disconnect = false
[[orders.symbol]]
name = "AAPL"
id = 1
[[orders.symbol]]
name = "MSFT"
id = 2
partition = 2
"""

GATEWAY = """
listen = "127.0.0.1:{fix}"
[store]
folder = "{folder}/gateway-store"
segment_mb = 1
[venue]
protocol = "millennium"
real_time = "127.0.0.1:{real_time}"
recovery = "127.0.0.1:{recovery}"
user = "TW01"
password = "password"
partitions = 2
throttle_per_second = 0
first_reconnect = "50ms"
longest_reconnect = "200ms"
[[instrument]]
symbol = "AAPL"
id = 1
[[instrument]]
symbol = "MSFT"
id = 2
partition = 2
[[client]]
name = "MAKER"
comp_id = "MAKER"
"""


class Fault(Exception):
    """What the day should not be."""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for taken in sockets:
        taken.bind(("127.0.0.1", 0))
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports


class Server:
    """A process of ours that says in its log when it serves."""

    def __init__(self, words: list[str], text: str) -> None:
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = ""
        for line in self.process.stderr:
            said += line
            if text in line:
                break
        else:
            raise Fault(f"{words} ended:\n{said}")
        # A pipe that is not read blocks its writer.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def end(self, by: int) -> None:
        self.process.send_signal(by)
        self.process.wait(timeout=PATIENCE)


class Message(dict):
    """The last value of each tag, and where the message came from."""

    def __init__(self, text: str) -> None:
        super().__init__(part.split("=", 1) for part in text.split("|") if "=" in part)


class Session:
    """One session of the client, as its printed lines show it."""

    def __init__(self, client: "Client", version: str, name: str) -> None:
        self.client, self.version, self.name = client, version, name
        self.is_logged_on = False
        self.reports: list[Message] = []
        self.numbers = None
        self.sent = 0
        self.resent = self.replayed = 0

    def request(self, kind: str, **fields: object) -> None:
        tags = {"id": 11, "of": 41, "symbol": 55, "side": 54, "quantity": 38, "price": 44}
        parts = [f"{tags[name]}={value}" for name, value in fields.items()]
        now = time.time()
        parts.append("60=" + time.strftime("%Y%m%d-%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}")
        if kind != "F":
            parts += ["21=1", "40=2"]
        self.sent += 1
        self.say(f"send {kind} " + "|".join(parts))

    def say(self, command: str) -> None:
        self.client.say(f"{self.name} {command}")


class Client:
    """The counterpart's program."""

    def __init__(self, words: list[str], settings: str, versions: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [*words, settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.sessions = {name: Session(self, version, name) for name, version in versions.items()}
        self.faults: list[str] = []
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.errors = ""
        threading.Thread(target=self.read, daemon=True).start()
        threading.Thread(target=self.read_errors, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def read_errors(self) -> None:
        for line in self.process.stderr:
            self.errors += line

    def say(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def take(self, line: str) -> None:
        what, name, text = (line.split(" ", 2) + ["", ""])[:3]
        if what == "error":
            self.faults.append(line)
            return
        session = self.sessions.get(name)
        if session is None:
            return
        if what in ("logon", "logout"):
            session.is_logged_on = what == "logon"
        elif what == "numbers":
            session.numbers = tuple(int(number) for number in text.split())
        elif what in ("in", "out", "admin-in", "admin-out"):
            message = Message(text)
            if message["35"] in ("3", "j"):
                self.faults.append(f"{name}: a reject, {what}: {text}")
            if what == "in":
                session.reports.append(message)
                session.replayed += message.get("43") == "Y"
            session.resent += what == "out" and message.get("43") == "Y"

    def wait(self, what: str, until) -> None:
        """Takes lines until a condition holds."""
        end = time.monotonic() + PATIENCE
        while not until():
            try:
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise Fault(f"not in {PATIENCE:.0f} s: {what}\n{self.errors}") from None
            if line is None:
                raise Fault(f"the client ended before: {what}\n{self.errors}")
            self.take(line)

    def settle(self, seconds: float) -> None:
        """Takes lines until none came for a while."""
        while True:
            try:
                line = self.lines.get(timeout=seconds)
            except queue.Empty:
                return
            if line is not None:
                self.take(line)


def settings(folder: str, port: int, versions: dict[str, str], more: dict[str, str]) -> str:
    """The client's settings: the stock ones, with validation by dictionary. `more` has lines by BeginString."""
    lines = ["[DEFAULT]", "ConnectionType=initiator", "SocketConnectHost=127.0.0.1", f"SocketConnectPort={port}"]
    lines += ["StartTime=00:00:00", "EndTime=00:00:00", "HeartBtInt=10", "ReconnectInterval=1"]
    lines += [f"FileStorePath={folder}/client-store", "UseDataDictionary=Y"]
    for name, version in versions.items():
        lines += ["[SESSION]", f"BeginString={version}", f"SenderCompID={name}", "TargetCompID=TAPEWORKS"]
        lines += more.get(version, "").splitlines()
    path = f"{folder}/client.cfg"
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def trade(binary: str, folder: str, words: list[str], versions: dict[str, str], more: dict[str, str]) -> str:
    """The day: `versions` has the BeginString of each SenderCompID. Returns what was compared."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    fix, real_time, recovery = free_ports(3)
    ports = {"fix": fix, "real_time": real_time, "recovery": recovery, "folder": folder}
    clients = "".join(
        f'[[client]]\nname = "{name}"\ncomp_id = "{name}"\nbegin_string = "{version}"\n' for name, version in versions.items()
    )
    for name, text in (("orders.toml", EXCHANGE), ("gateway.toml", GATEWAY)):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text.format(**ports) + (clients if name == "gateway.toml" else ""))
    started: list = []
    try:
        return day(binary, folder, words, versions, more, fix, started)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()


def day(binary, folder, words, versions, more, port, started) -> str:
    def gateway() -> Server:
        server = Server([binary, "gateway", f"{folder}/gateway.toml"], "orders pass")
        started.append(server.process)
        return server

    exchange = Server([binary, "exchange", "serve", f"{folder}/orders.toml"], "no store")
    started.append(exchange.process)
    ours = gateway()
    client = Client(words, settings(folder, port, versions, more), versions)
    started.append(client.process)
    sessions = list(client.sessions.values())

    def each(what: str, holds) -> None:
        client.wait(what, lambda: all(holds(session) for session in sessions))

    def orders(first: int, last: int) -> None:
        for number in range(first, last + 1):
            for session in sessions:
                symbol = "MSFT" if number % 4 == 0 else "AAPL"
                price = f"{90 + number % 100 / 100:.2f}"
                session.request("D", id=f"O{number}", symbol=symbol, side=1, quantity=100, price=price)

    def has(session: Session, kinds: str, count: int) -> bool:
        return sum(report.get("150", "-") in kinds for report in session.reports) >= count

    each("logon", lambda session: session.is_logged_on)

    # A stream of orders; the connection is cut in the middle of it, and more are written meanwhile.
    orders(1, 400)
    for session in sessions:
        session.say("drop")
    orders(401, 600)
    each("logon after a cut", lambda session: session.is_logged_on and has(session, "0", 401))
    orders(601, ORDERS)
    each("an answer to each order", lambda session: has(session, "0", ORDERS))

    # A fifth is cancelled, a fifth replaced: by a price that the seller will take.
    for number in range(1, ORDERS + 1):
        symbol = "MSFT" if number % 4 == 0 else "AAPL"
        for session in sessions:
            if number % 5 == 0:
                session.request("F", id=f"C{number}", of=f"O{number}", symbol=symbol, side=1, quantity=100)
            elif number % 5 == 1:
                replaced = {"id": f"R{number}", "of": f"O{number}", "symbol": symbol}
                session.request("G", **replaced, side=1, quantity=200, price="95.00")
    fifth = ORDERS // 5
    each("an answer to each cancel and replace", lambda session: has(session, "4", fifth) and has(session, "5", fifth))

    # Orders are filled while the clients are away, and the gateway is killed before they come back.
    for session in sessions:
        session.say("logout")
    each("logout", lambda session: not session.is_logged_on)
    script = f"{folder}/maker.txt"
    sold = len(sessions) * fifth * 150
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"new AAPL sell {sold} @94.00 ioc\nnew MSFT sell {sold} @90.50 ioc\nwait 500ms\n")
    maker = [binary, "fix", f"127.0.0.1:{port}", "--comp-id", "MAKER", "--script", script, "--json"]
    maker_says = subprocess.run(maker, capture_output=True, text=True, timeout=PATIENCE, check=False)
    by_order: dict[str, int] = {}
    for line in maker_says.stdout.splitlines():
        report = json.loads(line)
        if report.get("150") == "F":
            by_order[report["11"]] = by_order.get(report["11"], 0) + int(report["32"])
    if sum(by_order.values()) < sold // 2:
        raise Fault(f"the seller sold too little: {by_order}\n{maker_says.stdout[-2000:]}{maker_says.stderr}")
    ours.end(signal.SIGKILL)
    ours = gateway()
    for session in sessions:
        session.reports_before = len(session.reports)
        session.say("logon")
    fills = lambda: sum(int(float(report.get("32", 0))) for session in sessions for report in session.reports)
    client.wait("the fills of the time away", lambda: fills() >= sum(by_order.values()))

    # The gateway is killed under a stream of orders; the clients come back by themselves.
    orders(ORDERS + 1, ORDERS + 60)
    ours.end(signal.SIGKILL)
    for session in sessions:
        session.is_logged_on = False
    orders(ORDERS + 61, ORDERS + 100)
    ours = gateway()
    each("an answer to each order after the second kill", lambda session: has(session, "0", ORDERS + 100))
    client.settle(0.5)
    for session in sessions:
        session.say("logout")
    each("the last logout", lambda session: not session.is_logged_on)
    for session in sessions:
        session.say("numbers")
    each("numbers", lambda session: session.numbers is not None)
    client.say("quit")
    client.process.wait(timeout=PATIENCE)
    ours.end(signal.SIGTERM)
    exchange.end(signal.SIGTERM)
    faults = client.faults + compare(binary, folder, sessions, sum(by_order.values()))
    if faults:
        raise Fault("\n".join(faults[:20]))
    filled = sum(by_order.values())
    resent, replayed = (sum(getattr(session, name) for session in sessions) for name in ("resent", "replayed"))
    if not resent or not replayed:
        raise Fault(f"nothing had to be resent: {resent} requests, {replayed} reports")
    requests = sum(session.sent for session in sessions)
    names = ", ".join(session.version for session in sessions)
    return f"{names}: {requests} requests answered once, {filled} shares filled, {resent} requests and {replayed} reports resent"


def compare(binary: str, folder: str, sessions: list[Session], sold: int) -> list[str]:
    faults: list[str] = []
    bought = 0
    for session in sessions:
        answers: dict[str, list[str]] = {}
        seen: set[str] = set()
        fills: dict[str, int] = {}
        latest: dict[str, Message] = {}
        for report in session.reports:
            if report["35"] != "8":
                faults.append(f"{session.name}: not an execution report: {dict(report)}")
                continue
            if report["17"] in seen:
                faults.append(f"{session.name}: ExecID {report['17']} came twice")
            seen.add(report["17"])
            # FIX 4.2 has one ExecType for a partial fill, and another for a whole one.
            kind = "F" if report["150"] in "12F" else report["150"]
            order = report["37"]
            if kind == "F":
                fills[order] = fills.get(order, 0) + int(float(report["32"]))
                if int(float(report["14"])) != fills[order]:
                    faults.append(f"{session.name}: order {order}: CumQty {report['14']}, fills {fills[order]}")
            else:
                answers.setdefault(report["11"], []).append(kind)
            latest[order] = report
        expected = {f"O{number}": ["0"] for number in range(1, ORDERS + 101)}
        expected |= {f"C{number}": ["4"] for number in range(5, ORDERS + 1, 5)}
        expected |= {f"R{number}": ["5"] for number in range(1, ORDERS + 1, 5)}
        for name in sorted(answers.keys() | expected.keys()):
            if answers.get(name) != expected.get(name):
                faults.append(f"{session.name}: {name} has the answers {answers.get(name)}, expected {expected.get(name)}")
        for order, report in latest.items():
            done, left = int(float(report["14"])), int(float(report["151"]))
            if done != fills.get(order, 0) or (report["39"] in "01" and done + left != int(float(report["38"]))):
                faults.append(f"{session.name}: order {order}: {dict(report)}")
        bought += sum(fills.values())
    if bought != sold:
        faults.append(f"{bought} bought, {sold} sold")
    inspect = [binary, "gateway", "store", "inspect", f"{folder}/gateway-store", "--json"]
    stored = json.loads(subprocess.run(inspect, capture_output=True, text=True, check=True).stdout)
    numbers = {client["name"]: (client["next_incoming"], client["next_outgoing"]) for client in stored["clients"]}
    for session in sessions:
        if numbers[session.name] != session.numbers:
            faults.append(f"{session.name}: the gateway's numbers are {numbers[session.name]}, the client's {session.numbers}")
    return faults
