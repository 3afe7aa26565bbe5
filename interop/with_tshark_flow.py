"""What tshark says of the checksums of packets that a flow has rewritten.

Every packet must have the same verdicts as before the rewriting, and none of a generated session may be bad: captures made
on a sender may hold checksums that were left to the network card.
"""

import sys

from replays import CAPTURES, arguments, captures, run

FIELDS = ["ip.checksum.status", "tcp.checksum.status", "udp.checksum.status", "ip.src", "ip.dst", "tcp.dstport", "udp.dstport", "vlan.id"]
CHECKS = ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE"]
BAD, GOOD = "0", "1"

FLOW = """
[[stage]]
name = "in"
type = "capture_reader"
file = "{capture}"

[[stage]]
name = "to"
type = "rewriter"
source = "10.20.30.40"
destination = "239.99.1.2"
source_port = 4242
destination_port = 2424
push_vlan = 77

[[stage]]
name = "out"
type = "capture_writer"
file = "{out}"
overwrite = true

[[edge]]
from = "in"
to = "to"
kind = "spsc"

[[edge]]
from = "to"
to = "out"
"""


def verdicts(capture):
    """The fields of every packet as tshark shows them."""
    command = ["tshark", "-r", capture, "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]
    for check in CHECKS:
        command += ["-o", check]
    for field in FIELDS:
        command += ["-e", field]
    return [dict(zip(FIELDS, line.split("|"))) for line in run(command).splitlines()]


def main():
    given = arguments(__doc__)
    session = given.work / "flow-session.pcap"
    generate = ["exchange", "generate", "--messages", "5000", "--symbols", "5", "--force", "--out", session]
    run([given.tapeworks, *generate])
    config, out = given.work / "flow.toml", given.work / "flow-rewritten.pcap"
    compared = 0
    inputs = [capture for folder in [*CAPTURES, "nasdaq-ouch50"] for capture in captures(folder)]
    for capture in [*inputs, session]:
        config.write_text(FLOW.format(capture=capture, out=out))
        run([given.tapeworks, "flow", "run", config])
        before, after = verdicts(capture), verdicts(out)
        assert len(before) == len(after), f"{capture}: {len(before)} packets became {len(after)}"
        for number, (old, new) in enumerate(zip(before, after), start=1):
            for field in FIELDS[:3]:
                if old[field] != new[field] or (capture is session and new[field] == BAD):
                    sys.exit(f"{capture}: packet {number}: {field} was {old[field]}, is {new[field]}")
            expected = ("10.20.30.40", "239.99.1.2", "2424", "77")
            if (new["ip.src"], new["ip.dst"], new["tcp.dstport"] or new["udp.dstport"], new["vlan.id"]) != expected:
                sys.exit(f"{capture}: packet {number}: {new}")
            compared += sum(new[field] == GOOD for field in FIELDS[:3])
    assert compared > 5_000, f"only {compared} checksums were good"
    print(f"tshark finds {compared} checksums of rewritten packets good, and none bad that was not")


if __name__ == "__main__":
    main()
