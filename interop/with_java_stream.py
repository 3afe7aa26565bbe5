"""The Java client of the stream, in both encodings at once: the same records, line by line.

Usage: with_java_stream.py --server STREAM_SERVER --client FOLDER, where FOLDER has tapeworks-client.jar.
"""

import argparse
import json
import subprocess
import sys

RECORDS = 3_000
SYMBOLS = 20


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--client", required=True)
    arguments = parser.parse_args()
    clients = {}
    server = subprocess.Popen(
        [arguments.server, "20000", str(SYMBOLS), "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        word, port = server.stdout.readline().split()
        assert word == "port", word
        jar = f"{arguments.client}/tapeworks-client.jar"
        for encoding in ("json", "protobuf"):
            url = f"ws://127.0.0.1:{port}/stream?schema=nbbo,trades&encoding={encoding}"
            words = ["java", "-jar", jar, "stream", url, str(RECORDS)]
            clients[encoding] = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = {}
        for encoding, client in clients.items():
            printed, errors = client.communicate(timeout=120)
            if client.returncode != 0:
                print(f"{encoding}: the client ended with {client.returncode}: {errors.strip()}")
                return 1
            lines[encoding] = printed.splitlines()
    finally:
        for client in clients.values():
            client.kill()
        server.stdin.close()
        server.wait(timeout=30)
    return compare(lines["json"], lines["protobuf"])


def compare(text: list[str], binary: list[str]) -> int:
    wrong = 0
    if len(text) != RECORDS or len(binary) != RECORDS:
        print(f"{len(text)} records as JSON, {len(binary)} as Protobuf, expected {RECORDS} each")
        wrong += 1
    for place, (one, other) in enumerate(zip(text, binary)):
        if json.loads(one) != json.loads(other):
            print(f"record {place}:\n  json      {one}\n  protobuf  {other}")
            wrong += 1
            if wrong > 10:
                break
    counts: dict[str, int] = {}
    symbols = set()
    for line in text:
        record = json.loads(line)
        (kind,) = record.keys() - {"event"}
        counts[kind] = counts.get(kind, 0) + 1
        symbols.add(record[kind].get("symbol"))
    if not counts.get("nbbo") or not counts.get("trade") or "lagged" in counts or len(symbols) < SYMBOLS // 2:
        print(f"records of all kinds and no lag are expected: {counts} of {len(symbols)} symbols")
        wrong += 1
    if wrong:
        return 1
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"the Java client reads the same {len(text)} records ({kinds}) in both encodings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
