"""The Java client of DBN live: every field of every record, against the files of the same session as databento reads them.

Usage: with_java_live.py --server LIVE_SERVER --client FOLDER --work FOLDER, where the client's FOLDER has tapeworks-client.jar.
"""

import argparse
import enum
import json
import pathlib
import subprocess
import sys

from with_databento_live import SCHEMAS, Server

#: What DBN calls the fields of a level.
LEVEL = {
    "bid_price": "bid_px",
    "ask_price": "ask_px",
    "bid_size": "bid_sz",
    "ask_size": "ask_sz",
    "bid_count": "bid_ct",
    "ask_count": "ask_ct",
    "bid_publisher": "bid_pb",
    "ask_publisher": "ask_pb",
}
#: Record types of what the server says itself.
MESSAGES = (0x15, 0x16)


def plain(value):
    """A value of databento's as JSON has it; a character that says yes or no is a truth value there."""
    if isinstance(value, bool) or value is None:
        return {True: "Y", False: "N", None: "~"}[value]
    if isinstance(value, enum.Enum) or hasattr(value, "value"):
        value = value.value
    return int(value) if isinstance(value, (int, float)) else str(value)


def difference(line, record):
    """The first field that differs, as text."""
    for name, value in line.items():
        if name == "record_type":
            name, expected = "rtype", record.rtype
        elif name in LEVEL:
            expected = [getattr(level, LEVEL[name]) for level in record.levels]
        else:
            expected = getattr(record, name)
        expected = [plain(one) for one in expected] if isinstance(expected, list) else plain(expected)
        # A number of eight bytes has the same bits with a sign and without.
        if isinstance(value, int) and value < 0 <= expected:
            value += 1 << 64
        if value != expected:
            return f"{name} is {value!r}, expected {expected!r}"
    return None


def compare(schema, lines, expected):
    """How many records and fields are the same."""
    fields = 0
    for place, (line, record) in enumerate(zip(lines, expected)):
        wrong = difference(line, record)
        if wrong:
            raise SystemExit(f"{schema}: record {place}: {wrong}")
        fields += len(line)
    # The intervals that the end of a file ends are not over for a live client.
    missing = 60 if "bbo-1" in schema or schema.startswith("ohlcv") else 0
    if not lines or not len(expected) - missing <= len(lines) <= len(expected):
        raise SystemExit(f"{schema}: {len(lines)} records, expected {len(expected)}")
    return len(lines), fields


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    server = Server(arguments.server, arguments.work / "java-live", 4_000, 20)
    jar = f"{arguments.client}/tapeworks-client.jar"
    clients = {}
    try:
        for schema in SCHEMAS:
            words = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-jar", jar, "live", f"127.0.0.1:{server.port}", schema]
            clients[schema] = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for client in clients.values():
            # The first word of the server's own is the acknowledgement of the subscription.
            client.stderr.readline()
        server.publish()
        server.end()
        records = fields = 0
        for schema, client in clients.items():
            printed, errors = client.communicate(timeout=120)
            if client.returncode != 0:
                raise SystemExit(f"{schema}: the client ended with {client.returncode}: {errors.strip()}")
            lines = [json.loads(line) for line in printed.splitlines()]
            lines = [line for line in lines if line["record_type"] not in MESSAGES]
            same = compare(schema, lines, list(server.records(schema)))
            records, fields = records + same[0], fields + same[1]
    finally:
        for client in clients.values():
            client.kill()
        server.process.kill()
    print(f"the Java client reads {records} records of {len(clients)} schemas with {fields} fields as databento does")
    return 0


if __name__ == "__main__":
    sys.exit(main())
