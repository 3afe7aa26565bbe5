"""A day of ITCH to a data frame: this package beside the public ones, in one run.

    pip install databento itch-book itchcpp itchfeed meatpy pandas polars pyarrow
    python bindings/python/bench.py [--messages 20000000] [--rounds 3] [--cold]

Each measurement is a process of its own, in which only the reading is timed. The ways take turns, and the median of the rounds counts.
Those that make an object of Python a message are given the first part of the file: their time a message does not depend on its length.

The host of a virtual machine may give it memory only when that is first touched, which can cost more than all the reading. So each process
touches `WARM` bytes, or half of what is free, and frees them before its clock starts. `--cold` leaves that out.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

DAY = datetime.date(2025, 11, 14)
#: Messages for the ways that make objects of Python.
FEW = 300_000
#: Bytes that are touched before the clock starts: more than the frame and what it is made of take.
WARM = 8 << 30


def tapeworks_frame(path):
    import tapeworks

    return len(tapeworks.read(path, "mbo", date=str(DAY), errors="ignore").to_df())


def tapeworks_polars(path):
    import tapeworks

    return tapeworks.read(path, "mbo", date=str(DAY), errors="ignore").to_polars().height


def tapeworks_bbo(path):
    import tapeworks

    return len(tapeworks.read(path, "mbp-1", date=str(DAY), errors="ignore").to_df())


def tapeworks_records(path):
    import tapeworks

    count = 0
    for record in tapeworks.read(path, "mbo", date=str(DAY), errors="ignore", limit=FEW):
        count += record.size is not None
    return count


def databento_frame(path):
    import databento

    return len(databento.DBNStore.from_file(path).to_df())


def itch_book_messages(path):
    import itch_book
    import pandas

    feed = itch_book.open(str(path), date=DAY)
    return len(pandas.concat(pandas.DataFrame(batch.messages) for batch in feed.batches(("messages",))))


def itch_book_bbo(path):
    import itch_book
    import pandas

    feed = itch_book.open(str(path), date=DAY)
    return len(pandas.concat(pandas.DataFrame(batch.bbo) for batch in feed.batches(("bbo",))))


def objects_frame(parser, path):
    import pandas

    rows = []
    with open(path, "rb") as file:
        for message in parser.parse_file(file):
            rows.append({name: getattr(message, name, None) for name in NAMES})
            if len(rows) == FEW:
                break
    return len(pandas.DataFrame(rows))


NAMES = ("message_type", "stock_locate", "timestamp", "order_reference_number", "buy_sell_indicator", "shares", "price")


def itchcpp_frame(path):
    from itchcpp.parser import MessageParser

    return objects_frame(MessageParser(), path)


def itchfeed_frame(path):
    from itch.parser import MessageParser

    return objects_frame(MessageParser(), path)


def meatpy_messages(path):
    """Without a data frame: only the messages."""
    from meatpy.itch50 import ITCH50MessageReader

    count = 0
    with ITCH50MessageReader(path) as reader:
        for _ in reader:
            count += 1
            if count == FEW:
                break
    return count


#: The file each takes, and whether it takes all of it.
WAYS = {
    "tapeworks, mbo to pandas": (tapeworks_frame, "itch", True),
    "tapeworks, mbo to Polars": (tapeworks_polars, "itch", True),
    "itch-book, messages to pandas": (itch_book_messages, "itch", True),
    "tapeworks, books, mbp-1 to pandas": (tapeworks_bbo, "itch", True),
    "itch-book, books, bbo to pandas": (itch_book_bbo, "itch", True),
    "databento, the same mbo as DBN to pandas": (databento_frame, "dbn", True),
    "tapeworks, mbo as records": (tapeworks_records, "itch", False),
    "itchcpp, messages to pandas": (itchcpp_frame, "itch", False),
    "itchfeed, messages to pandas": (itchfeed_frame, "itch", False),
    "meatpy, messages": (meatpy_messages, "itch", False),
}


#: What a way imports, by the first word of its name.
MODULES = {"itch-book": "itch_book", "itchcpp": "itchcpp.parser", "itchfeed": "itch.parser", "meatpy": "meatpy.itch50"}


def warm():
    import numpy

    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Each gigabyte is kept until all are touched.
    kept = [numpy.ones(1 << 27) for _ in range(min(WARM, free // 2) >> 30)]
    del kept


def measure(way, path, is_cold):
    # To import is not to read.
    word = way.split(",")[0]
    for name in ("pandas", "pyarrow", "polars", MODULES.get(word, word)):
        importlib.import_module(name)
    if not is_cold:
        warm()
    began = time.perf_counter()
    rows = WAYS[way][0](path)
    return time.perf_counter() - began, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="leave memory as the machine has it")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(*measure(arguments.one, arguments.path, arguments.cold))
        return
    import tapeworks

    with tempfile.TemporaryDirectory() as folder:
        files = {ending: pathlib.Path(folder) / f"day.{ending}" for ending in ("itch", "dbn")}
        made = tapeworks.generate(
            files["itch"], scenario="benchmark", messages=arguments.messages, date=str(DAY)
        )["messages"]
        tapeworks.read(files["itch"], "mbo", date=str(DAY), errors="ignore").write(str(files["dbn"]))
        times = {way: [] for way in WAYS}
        rows = {}
        for _ in range(arguments.rounds):
            for way, (_, ending, _) in WAYS.items():
                run = [sys.executable, __file__, "--one", way, "--path", files[ending]]
                run += ["--cold"] if arguments.cold else []
                done = subprocess.run(run, capture_output=True, text=True)
                if done.returncode != 0:
                    why = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
                    print(f"{way}: {why[-1]}", file=sys.stderr)
                    continue
                seconds, rows[way] = done.stdout.split()
                times[way].append(float(seconds))
        memory = "cold" if arguments.cold else "warm"
        print(f"{made:,} messages; {os.cpu_count()} processors; medians of {arguments.rounds} rounds; memory {memory}\n")
        print("| | messages | seconds | ns a message | against the first |\n| --- | --: | --: | --: | --: |")
        first = None
        for way, (_, _, is_whole) in WAYS.items():
            if not times[way]:
                continue
            seconds = statistics.median(times[way])
            messages = made if is_whole else FEW
            each = seconds / messages * 1e9
            first = first or each
            print(f"| {way} | {messages:,} | {seconds:.2f} | {each:,.0f} | {each / first:.1f} |")


if __name__ == "__main__":
    main()
