"""What the scripts share: their arguments, the replays that make the files, and the comparison of tables.

The files are made once into the work folder and made again when the binary is newer than they are.
"""

import argparse
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = [
    "mbo", "mbp-1", "mbp-10", "bbo-1s", "bbo-1m", "tbbo", "trades", "cmbp-1", "cbbo-1s", "cbbo-1m", "status",
    "imbalance", "definition", "statistics", "ohlcv-1s", "ohlcv-1m", "ohlcv-1h", "ohlcv-1d",
]
ENDINGS = ["dbn", "dbn.zst", "parquet", "csv"]

# The venues of the real captures that carry what a book is made of.
CAPTURES = ["nasdaq-itch50", "nasdaq-bx-itch50", "iex-tops16", "iex-deep"]

# A generated session: four venues, two lines with losses, small enough to compare in Python.
SESSION = [
    "--scenario", "demo", "--messages", "30000", "--symbols", "40", "--seed", "7", "--line-b", "--loss", "20000",
]

# Replays of input with gaps end with 3; their output is complete.
REPLAYED = (0, 3)

# DBN says "undefined" with the largest number of a type, the others with null.
UNDEFINED = {2**63 - 1, 2**64 - 1, 2**32 - 1, 2**31 - 1}
# Of narrow types it may be a value too, so it stands for null only where the other side has none.
NARROW_UNDEFINED = {2**16 - 1, 2**15 - 1, 2**8 - 1, 2**7 - 1}
UNDEFINED_TEXT = {str(number) for number in UNDEFINED}

# Columns that every file of records has, for every reader.
ALWAYS = {"ts_event", "instrument_id", "publisher_id", "symbol"}


def arguments(what: str) -> argparse.Namespace:
    """The arguments of every script."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--tapeworks", required=True, type=Path, help="the binary")
    parser.add_argument("--work", required=True, type=Path, help="a folder to write to")
    given = parser.parse_args()
    given.tapeworks = given.tapeworks.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    return given


def run(command: list, accepted: tuple = (0,)) -> str:
    """Runs a program from the root of the repository; one that fails ends the script."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in accepted:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def captures(folder: str) -> list:
    """The real captures of a folder."""
    found = sorted((ROOT / "testdata/captures" / folder).glob("*.pcap"))
    if not found:
        sys.exit(f"testdata/captures/{folder} has no captures")
    return found


class Replay:
    """One input, replayed into every schema and ending."""

    def __init__(self, name: str, folder: Path, inputs: list):
        self.name, self.folder, self.inputs = name, folder, inputs

    def file(self, schema: str, ending: str) -> Path:
        """An output."""
        return self.folder / f"{self.name}.{schema}.{ending}"

    def make(self, tapeworks: Path, folder: Path) -> None:
        """Replays into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        for schema in SCHEMAS:
            outputs = []
            for ending in ENDINGS:
                outputs += ["--out", folder / f"{self.name}.{schema}.{ending}"]
            run([tapeworks, "replay", *self.inputs, "--schema", schema, "--force", *outputs], REPLAYED)


def replays(given: argparse.Namespace) -> list:
    """The replays of all inputs, made twice with the same bytes."""
    folder, stamp = given.work / "replays", given.work / "replays/made"
    session = given.work / "session.pcap"
    found = [Replay(name, folder, captures(name)) for name in CAPTURES]
    found.append(Replay("session", folder, [session]))
    if stamp.exists() and stamp.stat().st_mtime > given.tapeworks.stat().st_mtime:
        return found
    run([given.tapeworks, "exchange", "generate", "--out", session, "--force", *SESSION])
    compared = 0
    for replay in found:
        replay.make(given.tapeworks, folder)
        replay.make(given.tapeworks, given.work / "again")
        for path in sorted(folder.glob(f"{replay.name}.*")):
            again = given.work / "again" / path.name
            if path.read_bytes() != again.read_bytes():
                sys.exit(f"two runs differ: {path} and {again}")
            compared += 1
    stamp.touch()
    print(f"{compared} files are the same in two runs")
    return found


def compare(what: str, ours: dict, theirs: dict) -> int:
    """Compares two tables, each a dictionary of columns, in the columns that both have. Returns how many values."""
    shared = [name for name in ours if name in theirs]
    if not ALWAYS.issubset(shared):
        sys.exit(f"{what}: only {shared} are in both of {list(ours)} and {list(theirs)}")
    compared = 0
    for name in shared:
        left, right = ours[name], theirs[name]
        if len(left) != len(right):
            sys.exit(f"{what}: {len(left)} records and {len(right)} records")
        for row, (one, other) in enumerate(zip(left, right)):
            is_undefined = one is None and other in NARROW_UNDEFINED or other is None and one in NARROW_UNDEFINED
            if one != other and not is_undefined:
                sys.exit(f"{what}: {name} of record {row} is {one!r} and {other!r}")
        compared += len(left)
    return compared


def normal(value):
    """A value of any reader as text, a whole number, or None for undefined."""
    if value is None or value == "" or value != value or str(value) == "NaT":
        return None
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return None if value in UNDEFINED_TEXT else value
    value = int(value)
    return None if value in UNDEFINED else value


def dbn_table(path: Path) -> dict:
    """A DBN file as columns, prices as integers in 1e-9 and times in nanoseconds, as databento reads it."""
    import databento

    # The package uses a form of pandas that pandas warns of; its warnings are not about our files.
    warnings.filterwarnings("ignore", module="databento")
    store = databento.DBNStore.from_file(path)
    frame = store.to_df(price_type="fixed", pretty_ts=False, map_symbols=True)
    if frame.index.name:
        frame = frame.reset_index()
    return {name: [normal(value) for value in frame[name].tolist()] for name in frame.columns}


def compare_parquet(reader: str, parquet_table, given):
    """Compares the Parquet files of every schema of every replay, as `parquet_table` reads them, with the DBN files."""
    values = 0
    for replay in replays(given):
        for schema in SCHEMAS:
            expected = dbn_table(replay.file(schema, "dbn"))
            read = parquet_table(replay.file(schema, "parquet"))
            if any(expected.values()) or any(read.values()):
                values += compare(f"{reader}, {schema} of {replay.name}", read, expected)
    assert values > 500_000, f"only {values} values were compared"
    print(f"{reader} reads the same as databento: {values} values")
