"""What tshark reads of the packets that a plant sends to its multicast group: MoldUDP64 without a gap.

Every packet must be well formed and begin where the one before it ended, every message have the length that it says, and tshark
must count as many messages as our own client of the group has received.
"""

import json
import signal
import socket
import subprocess
import sys
import time

from replays import arguments, run

MESSAGES = 20_000
GROUP = "239.198.7.9"

VENUES = """
rate = 10_000
messages = {messages}
symbols = 20
wait = "rest"
interface = "127.0.0.1"

[[venue]]
name = "Nasdaq"
kind = "nasdaq"
lines = ["239.198.7.1:{line}", "239.198.7.2:{line}"]
"""

PLANT = """
interface = "127.0.0.1"

[multicast]
group = "{group}:{port}"
hops = 0
retransmission = "127.0.0.1:{retransmission}"
schemas = ["mbo", "cmbp-1"]
symbols_every = "500ms"

[[venue]]
name = "Nasdaq"
protocol = "itch"
publisher = "XNAS.ITCH"
lines = ["239.198.7.1:{line}", "239.198.7.2:{line}"]
"""


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        return udp.getsockname()[1]


def wait_for(process, text):
    """Reads the log until it has the text, and goes on reading in the background."""
    for line in process.stderr:
        if text in line:
            subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
            return
    sys.exit(f"the program ended before it said {text!r}")


def main():
    given = arguments(__doc__)
    given.work.mkdir(parents=True, exist_ok=True)
    capture = given.work / "multicast.pcap"
    capture.unlink(missing_ok=True)
    ports = {"line": free_port(), "port": free_port(), "retransmission": free_port()}
    (given.work / "multicast-venues.toml").write_text(VENUES.format(messages=MESSAGES, **ports))
    (given.work / "multicast-plant.toml").write_text(PLANT.format(group=GROUP, **ports))
    tapeworks = str(given.tapeworks)
    programs = []

    def start(*command):
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        programs.append(program)
        return program

    try:
        # A buffer that holds all of it: what tshark drops would be a gap.
        taps = ["-B", "64", "-i", "lo", "-F", "pcap", "-w", str(capture)]
        tap = start("tshark", "-q", *taps, "-f", f"udp dst port {ports['port']}")
        wait_for(tap, "Capturing on")
        plant = start(tapeworks, "plant", str(given.work / "multicast-plant.toml"))
        wait_for(plant, "multicast")
        group = f"{GROUP}:{ports['port']}"
        asks = f"127.0.0.1:{ports['retransmission']}"
        client = start(tapeworks, "subscribe", "--multicast", group, "--retransmission", asks, "--quiet", "--json")
        # Neither says when it has joined.
        time.sleep(1)
        run([tapeworks, "exchange", "serve", str(given.work / "multicast-venues.toml"), "--json"])
        time.sleep(1)
        plant.send_signal(signal.SIGINT)
        assert plant.wait(timeout=60) == 0, "the plant ended badly"
        _, errors = client.communicate(timeout=60)
        assert client.returncode == 0, errors
        time.sleep(1)
        tap.send_signal(signal.SIGINT)
        tap.wait(timeout=60)
    finally:
        for program in programs:
            program.kill()
    received = json.loads(errors[errors.index("{") :])

    names = ["moldudp64.session", "moldudp64.sequence", "moldudp64.count", "moldudp64.msglen", "_ws.malformed"]
    command = ["tshark", "-r", capture, "-d", f"udp.port=={ports['port']},moldudp64"]
    command += ["-T", "fields", "-E", "separator=|", "-E", "aggregator=,"]
    for name in names:
        command += ["-e", name]
    expected, packets, messages, sessions = 1, 0, 0, set()
    for line in run(command).splitlines():
        session, sequence, count, lengths, malformed = line.split("|")
        assert not malformed, f"packet {packets + 1}: {line}"
        sessions.add(session)
        packets += 1
        # 0 is a heartbeat, 65535 the end of the session.
        assert int(sequence) == expected, f"packet {packets} begins with {sequence}, and {expected} comes next"
        if int(count) not in (0, 0xFFFF):
            assert len(lengths.split(",")) == int(count), f"packet {packets}: {count} messages, lengths {lengths}"
            expected += int(count)
            messages += int(count)
    assert len(sessions) == 1, sessions
    assert messages > MESSAGES, f"only {messages} messages"
    ours = received["multicast"]["messages"]
    assert messages == ours, f"tshark counts {messages} messages, our client {ours}"
    print(f"tshark reads {messages} messages in {packets} packets of the plant's multicast, none missing")


if __name__ == "__main__":
    main()
