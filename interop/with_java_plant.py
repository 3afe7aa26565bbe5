"""The Java client at a plant that is stopped and started amid the session: each order once, as the journal's files have it.

Usage: with_java_plant.py --tapeworks PROGRAM --client FOLDER --work FOLDER, where the client's FOLDER has tapeworks-client.jar.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import threading

from with_databento_plant import configure, exported, same, start_plant, values_of

#: Orders before the plant is stopped: the venues have sent a part of their day.
BEFORE = 5_000
SYMBOL_MAPPING = 0x16
MBO = 0xA0
#: The first with 0.1 s of rest, each with twice as much: enough for a plant that begins anew.
RECONNECTS = 7


class Client:
    """The Java client of all records of a schema, in a process of its own."""

    def __init__(self, jar, addresses, schema="mbo", **more):
        words = ["java", "-jar", jar, "live", addresses, schema]
        environment = os.environ | {"TAPEWORKS_RECONNECTS": str(RECONNECTS)} | more
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        first = self.process.stderr.readline()
        assert "succeeded" in first, f"no acknowledgement: {first}"
        self.errors = []
        #: What it printed of each record, and the names of the instruments by then.
        self.lines = []
        self.symbols = {}
        self.enough = threading.Event()
        self.threads = [threading.Thread(target=self.read), threading.Thread(target=self.read_errors)]
        for thread in self.threads:
            thread.start()

    def read_errors(self):
        self.errors += self.process.stderr

    def read(self):
        for text in self.process.stdout:
            if text.startswith(f'{{"record_type":{SYMBOL_MAPPING},'):
                line = json.loads(text)
                self.symbols[line["instrument_id"]] = line["stype_out_symbol"]
            else:
                self.lines.append(text)
            if len(self.lines) >= BEFORE:
                self.enough.set()

    def orders(self):
        """Orders as the other clients' are: numbers of instruments are of a session, so the names stand for them."""
        return [values_of(packed(json.loads(line)), self.symbols) for line in self.lines]

    def end(self):
        """The orders to the end: the plant is gone, and the client has tried often enough."""
        code = self.process.wait(120)
        for thread in self.threads:
            thread.join()
        said = self.errors[-1].strip() if self.errors else ""
        assert code == 1 and "refused" in said.lower(), f"the client ended with {code}: {said}"
        return self.orders()


def packed(line):
    """An order as DBN has it."""
    order_id = line["order_id"] % (1 << 64)
    return struct.pack(
        "<BBHIQQqIBBccQiI",
        14,
        line["record_type"],
        line["publisher_id"],
        line["instrument_id"],
        line["ts_event"],
        order_id,
        line["price"],
        line["size"],
        line["flags"],
        line["channel_id"],
        line["action"].encode(),
        line["side"].encode(),
        line["ts_recv"],
        line["ts_in_delta"],
        line["sequence"],
    )


def stop(plant):
    plant.send_signal(signal.SIGINT)
    assert plant.wait(60) == 0, f"the plant ended with {plant.returncode}"


def arguments(about, name):
    """What the script takes, and an empty folder to write to."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--tapeworks", required=True, help="the program")
    parser.add_argument("--client", required=True, help="the folder of the client")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="a folder to write to")
    options = parser.parse_args()
    folder = options.work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return options, folder


def main():
    options, folder = arguments(__doc__, "java-plant")
    # So slow that the venues go on for seconds behind the plant's second start, which recovers from them.
    venues, config, port = configure(folder, 50_000, 7_000)
    plant = start_plant(options.tapeworks, config)
    client = Client(f"{options.client}/tapeworks-client.jar", f"127.0.0.1:{port}")
    try:
        serve = [options.tapeworks, "exchange", "serve", venues]
        exchange = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert client.enough.wait(60), f"only {len(client.lines)} orders came"
        stop(plant)
        plant = start_plant(options.tapeworks, config)
        assert exchange.wait(120) == 0, f"the venues ended with {exchange.returncode}"
        stop(plant)
    finally:
        plant.kill()
    records = client.end()
    export = [options.tapeworks, "journal", "export", config, "--out", folder / "days", "--schema", "mbo", "--format", "dbn"]
    subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
    count = same("mbo, Java", "mbo", records, exported(folder / "days", "mbo"))
    print(f"the Java client has each of {count} orders once, over a plant that was stopped and started")


if __name__ == "__main__":
    main()
