"""Captures that earlier versions misread: the package reads them as the program does. `crates/run/cli/tests/cases.rs` says what each must give.

The generated cases are in `testdata/cases`. Those with real packets are in the folder that TAPEWORKS_REAL_DATA names, or in `cases` beside it.
"""

import json
import os
import pathlib
import struct
import subprocess
from typing import NamedTuple

import pyarrow.parquet
import pytest

import tapeworks
from conftest import ROOT

PROGRAM = os.environ.get("TAPEWORKS_PROGRAM")
REAL_DATA = os.environ.get("TAPEWORKS_REAL_DATA")

needs_program = pytest.mark.skipif(not PROGRAM, reason="TAPEWORKS_PROGRAM names no program")

# What a summary says of the run, not of the input. The package leaves the NBBO out unless the schema needs it, and with it the
# updates of each symbol that follow an event of a whole venue; `books` has the events without them.
OF_RUN = ("elapsed_seconds", "messages_per_second", "mean_ns_per_message", "service_time_ns", "worst_lateness_ns", "written")
OF_NBBO = ("nbbo", "busiest", "events")


class Case(NamedTuple):
    """Files that are read together, and what they must give."""

    name: str
    files: tuple
    # All messages, those that came again left out.
    messages: int
    # Whether everything was read and can be written, and nothing is missing.
    is_clean: bool = True
    protocol: str | None = None
    venue: str | None = None
    is_real: bool = False

    def paths(self):
        if not self.is_real:
            return [str(ROOT / "testdata/cases" / name) for name in self.files]
        if not REAL_DATA:
            pytest.skip("TAPEWORKS_REAL_DATA does not name a folder with real captures")
        folder = pathlib.Path(REAL_DATA)
        found = []
        for name in self.files:
            places = [folder / name, folder.parent / "cases" / name]
            place = next((place for place in places if place.is_file()), None)
            if place is None:
                pytest.skip(f"{name} is not among the real captures")
            found.append(str(place))
        return found

    def options(self):
        return {key: value for key, value in (("protocol", self.protocol), ("venue", self.venue)) if value}

    def flags(self):
        return [word for key, value in self.options().items() for word in (f"--{key}", value)]


DAYS = ("13", "14")
CASES = [
    Case("two-days-bzx", tuple(f"two-days-bzx-2025-11-{day}.pcap" for day in DAYS), 1_002, protocol="pitch", venue="bzx"),
    Case("one-file-bzx", ("one-file-bzx.pcap",), 1_002, protocol="pitch", venue="bzx"),
    Case("two-days-nasdaq", tuple(f"two-days-nasdaq-2025-11-{day}.pcap" for day in DAYS), 1_000),
    Case("longer-nyse", ("longer-nyse-day1.pcap", "longer-nyse-day2.pcap"), 1_198, protocol="integrated", venue="nyse"),
    Case("seq0hb", ("seq0hb.pcap",), 6),
    Case("itch_mid", ("itch_mid.pcap",), 10),
    Case("pitch_mid_ny", ("pitch_mid_ny.pcap",), 10, protocol="pitch", venue="bzx"),
    Case("bigcross", ("bigcross.pcap",), 9, is_clean=False),
    Case("fr_in", ("fr_in.pcap",), 68),
    Case("fr_whole", ("fr_whole.pcap",), 68),
    Case("iex-session-restarts", ("iex-session-restarts/deep10_restart_small.pcap",), 14_966, is_real=True),
    *(
        Case(name, (f"tunnelled-packets/{name}.pcap",), 1_273, is_real=True)
        for name in ("iex_arista_ts", "iex_erspan2", "iex_mpls")
    ),
]

of_each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
SCHEMAS = ("mbo", "mbp-1", "mbp-10", "trades", "status", "imbalance", "definition", "cmbp-1", "ohlcv-1m")


def program(*words):
    """What the program prints and its exit code."""
    ran = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 3), ran.stderr
    return ran.stdout, ran.returncode


def of_input(summary):
    return {key: value for key, value in summary.items() if key not in OF_RUN + OF_NBBO}


def frames(path):
    """The Ethernet frames of a little-endian capture, and when they were captured."""
    content = path.read_bytes()
    (magic,) = struct.unpack_from("<I", content)
    if magic == 0x0A0D0D0A:
        yield from frames_of_pcapng(content)
        return
    scale = {0xA1B23C4D: 1, 0xA1B2C3D4: 1_000}[magic]
    at = 24
    while at < len(content):
        seconds, fraction, length, _ = struct.unpack_from("<4I", content, at)
        yield seconds * 1_000_000_000 + fraction * scale, content[at + 16 : at + 16 + length]
        at += 16 + length


def frames_of_pcapng(content):
    """Of enhanced packet blocks; the one interface counts in nanoseconds if it has an option that says so, else in microseconds."""
    at, scale = 0, 1_000
    while at < len(content):
        kind, length = struct.unpack_from("<2I", content, at)
        if kind == 1:
            option, _, resolution = struct.unpack_from("<2HB", content, at + 16)
            assert option == 9 or length == 20, "another option than the resolution"
            scale = 10 ** (9 - resolution) if option == 9 else 1_000
        elif kind == 6:
            _, high, low, captured, _ = struct.unpack_from("<5I", content, at + 8)
            yield (high << 32 | low) * scale, content[at + 28 : at + 28 + captured]
        at += length


@of_each_case
def test_a_case_is_read_whole(case):
    paths = case.paths()
    options = {"protocol": case.protocol} if case.protocol else {}
    stats = tapeworks.stats(paths, **options)
    channels = stats["channels"]
    assert stats["messages"] == sum(channel["messages"] for channel in channels) == case.messages
    for channel in channels:
        names = ("repeated_messages", "implausible_packets", "missing_messages", "gaps")
        assert [channel[name] for name in names] == [0] * 4, channel
    assert stats["problems"] == stats["bad_messages"] == 0 and not stats["damaged_files"]
    # Price levels and quotes are not in mbo; the size that does not fit is.
    reader = tapeworks.read(paths, "mbp-1" if case.is_clean else "mbo", errors="ignore", **case.options())
    table = reader.to_arrow()
    # The real packets were sent before the open.
    assert reader.summary["messages"] == case.messages and (len(table) > 0 or case.is_real)
    assert reader.summary["is_clean"] == case.is_clean, reader.summary


@needs_program
@of_each_case
@pytest.mark.parametrize("schema", SCHEMAS)
def test_records_and_summary_of_a_case_are_those_of_the_program(case, schema, tmp_path):
    paths, out = case.paths(), tmp_path / "out.parquet"
    printed, code = program("replay", *paths, *case.flags(), "--schema", schema, "--out", str(out), "--json")
    theirs = json.loads(printed)
    reader = tapeworks.read(paths, schema, prices="decimal", errors="ignore", **case.options())
    ours, expected = reader.to_arrow(), pyarrow.parquet.read_table(out)
    assert ours.column_names == expected.column_names
    assert len(ours) == len(expected) == theirs["written"][0]["records"]
    for name in expected.column_names:
        assert ours[name].to_pylist() == expected[name].to_pylist(), name
    assert of_input(reader.summary) == of_input(theirs)
    assert (code == 0) == theirs["is_clean"]


@needs_program
@of_each_case
def test_statistics_of_a_case_are_those_of_the_program(case):
    paths = case.paths()
    options = {"protocol": case.protocol} if case.protocol else {}
    printed, code = program("stats", "--json", *paths, *(["--protocol", case.protocol] if case.protocol else []))
    assert tapeworks.stats(paths, **options) == json.loads(printed)
    # A size that a column cannot hold is a matter of the replay.
    assert code == 0


@of_each_case
def test_frames_one_by_one_give_the_books_of_the_files(case):
    paths = case.paths()
    whole = tapeworks.Feed(paths, **case.options())
    whole.advance()
    single = tapeworks.Feed(**case.options())
    taken = 0
    for path in paths:
        for time, frame in frames(pathlib.Path(path)):
            taken += single.frame(frame, time)
    assert taken == single.messages == whole.messages == case.messages
    assert single.symbols == whole.symbols and single.venues == whole.venues and single.time == whole.time
    for venue in whole.venues:
        for symbol in whole.symbols:
            assert repr(single.book(symbol, venue)) == repr(whole.book(symbol, venue)), (symbol, venue)
    ours, theirs = single.finish(), whole.finish()
    for name in ("messages", "events", "books", "nbbo", "is_clean"):
        assert ours[name] == theirs[name], name
    assert ours["problems"]["total"] == theirs["problems"]["total"]
