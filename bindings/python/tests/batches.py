"""Captures of two days, and what a batch has made of them."""

import pathlib

import tapeworks

#: Two schemas of venues, one of the NBBO.
SCHEMAS = "mbo,trades,cmbp-1"

#: Of the captures: each venue of each date, and each date.
TASKS = 6


def captures(folder, messages):
    """Two venues on each of two days; one file is cut, and one is no capture. The pattern of all."""
    folder.mkdir()
    for day in (14, 17):
        for venue in ("nasdaq", "memx"):
            path = folder / f"{day}-{venue}.pcap"
            tapeworks.generate(
                path, venues=venue, date=f"2025-11-{day}", messages=messages, seed=day, symbols=6
            )
    cut = folder / "17-memx.pcap"
    cut.write_bytes(cut.read_bytes()[:-7])
    (folder / "noise.pcap").write_text("this is no capture")
    return f"{folder}/**"


def contents(folder):
    """All files of a folder but those below `.tasks`, with their bytes."""
    folder = pathlib.Path(folder)
    paths = (path for path in folder.rglob("*") if path.is_file() and ".tasks" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def assert_same(found, expected):
    """The same files with the same bytes."""
    assert sorted(found) == sorted(expected)
    assert [name for name in found if found[name] != expected[name]] == []


def records(folder, ending="json"):
    """The names of the tasks that are finished, or have a file or folder of this ending."""
    found = (pathlib.Path(folder) / ".tasks").glob(f"*.{ending}")
    return {path.name.removesuffix(f".{ending}") for path in found} - {"settings"}
