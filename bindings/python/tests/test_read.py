"""Records of captures: as Arrow, data frames, files and objects."""

import ast
import copy
import datetime
import decimal
import gzip
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing
import warnings
import zoneinfo

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import tapeworks
from tapeworks import _types


@pytest.mark.parametrize(
    "schema, prices",
    [(schema, "float") for schema in tapeworks.SCHEMAS]
    + [(schema, prices) for schema in ("mbp-10", "cmbp-1", "definition") for prices in ("decimal", "fixed")],
)
def test_batches_have_what_the_parquet_file_has(session, tmp_path, schema, prices):
    table = tapeworks.read(session, schema, prices=prices).to_arrow()
    path = tmp_path / "records.parquet"
    summary = tapeworks.read(session, schema, prices=prices).to_parquet(path)
    assert summary["written"][0]["records"] == len(table)
    file = pyarrow.parquet.read_table(path)
    assert table.column_names == file.column_names
    plain = pyarrow.table(
        {
            name: column.cast(column.type.value_type) if pyarrow.types.is_dictionary(column.type) else column
            for name, column in zip(table.column_names, table.columns)
        }
    )
    for name in table.column_names:
        assert plain[name].type == file[name].type, name
        assert plain[name].combine_chunks().equals(file[name].combine_chunks()), name
    if schema in ("mbo", "mbp-1", "trades", "cmbp-1"):
        assert len(table) > 1_000


def test_prices_are_the_same_in_each_form(session):
    read = lambda prices: tapeworks.read(session, "mbp-1", prices=prices).to_arrow()["price"].to_pylist()
    fixed, exact, floats = read("fixed"), read("decimal"), read("float")
    assert len(fixed) > 1_000
    for one, two, three in zip(fixed, exact, floats):
        assert (one is None) == (two is None) == (three is None)
        if one is not None:
            assert two == decimal.Decimal(one) / 10**9 and three == one / 1e9


def test_records_are_the_rows(session):
    table = tapeworks.read(session, "trades", prices="decimal").to_arrow()
    rows = table.cast(
        pyarrow.schema([(f.name, pyarrow.int64() if pyarrow.types.is_timestamp(f.type) else f.type) for f in table.schema])
    ).to_pylist()
    records = list(tapeworks.read(session, "trades", prices="decimal"))
    assert [record.as_dict() for record in records] == rows
    record = records[0]
    assert record.schema == "trades" and record.price == rows[0]["price"] and record["size"] == rows[0]["size"]
    assert "price=" in repr(record) and "symbol" in dir(record)
    with pytest.raises(AttributeError, match="no field volume"):
        record.volume
    with pytest.raises(KeyError):
        record["volume"]


@pytest.mark.parametrize(
    "schema, prices",
    [(schema, "float") for schema in tapeworks.SCHEMAS]
    + [(schema, prices) for schema in ("mbo", "definition") for prices in ("decimal", "fixed")],
)
def test_a_data_frame_is_the_one_that_pyarrow_makes(session, schema, prices):
    read = lambda: tapeworks.read(session, schema, prices=prices)
    expected = read().to_arrow().to_pandas(split_blocks=True)
    frame = read().to_df()
    pandas.testing.assert_frame_equal(frame, expected)
    for name in frame.columns[frame.dtypes == "category"]:
        assert frame[name].cat.codes.dtype == expected[name].cat.codes.dtype, name
    assert len(frame) > 1_000 or schema not in ("mbo", "mbp-1", "trades", "cmbp-1")


def test_a_data_frame_of_pieces_has_each_kind_of_column_at_any_length():
    texts = [f"S{number}" for number in range(40_000)]
    schema = pyarrow.schema(
        [
            ("text", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())),
            ("whole", pyarrow.uint32()),
            ("part", pyarrow.float64()),
            ("time", pyarrow.timestamp("ns", "UTC")),
            ("exact", pyarrow.decimal128(10, 2)),
        ]
    )

    def batch(first, count, has_nulls):
        numbers = list(range(first, first + count))
        nulls = [None if has_nulls and number % 7 == 0 else number for number in numbers]
        codes = pyarrow.array([None if number is None else number % (first + count) for number in nulls], pyarrow.int32())
        columns = [
            pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(texts[: first + count])),
            pyarrow.array(nulls, pyarrow.uint32()),
            pyarrow.array(nulls, pyarrow.float64()),
            pyarrow.array(nulls, pyarrow.timestamp("ns", "UTC")),
            pyarrow.array([None if number is None else decimal.Decimal(number) / 100 for number in nulls], pyarrow.decimal128(10, 2)),
        ]
        return pyarrow.record_batch(columns, schema=schema)

    for cuts in ([], [(0, 0, False)], [(0, 100, False), (100, 100, False)], [(0, 100, True), (100, 39_900, False)],
                 [(0, 20_000, False), (20_000, 200, True), (20_200, 1, False)]):
        for room in (0, 1_000_000):
            batches = [batch(*cut) for cut in cuts]
            expected = pyarrow.Table.from_batches(batches, schema).unify_dictionaries().to_pandas(split_blocks=True)
            frame = tapeworks._gather.frame(schema, batches, lambda rows: room)
            pandas.testing.assert_frame_equal(frame, expected)
    # More than there is room for at first, and than was expected.
    batches = [batch(0, 40_000, False)] * 5
    frame = tapeworks._gather.frame(schema, batches, lambda rows: 100_000)
    pandas.testing.assert_frame_equal(frame, pyarrow.Table.from_batches(batches, schema).to_pandas())


def test_what_speaks_arrow_takes_a_reader(session):
    count = len(tapeworks.read(session, "mbo").to_arrow())
    assert len(pyarrow.table(tapeworks.read(session, "mbo"))) == count
    frame = polars.from_arrow(tapeworks.read(session, "mbo").to_arrow())
    assert frame.height == count == tapeworks.read(session, "mbo").to_polars().height
    reader = pyarrow.RecordBatchReader.from_stream(tapeworks.read(session, "mbo"))
    found = duckdb.sql("SELECT count(*), count(DISTINCT symbol), sum(size) FROM reader").fetchall()[0]
    assert found[0] == count and found[1] == frame["symbol"].n_unique() and found[2] == frame["size"].sum()


def test_a_data_frame_has_times_categories_and_floats(session, busy):
    frame = tapeworks.read(session, "cmbp-1", symbols=busy[0]).to_df(index="ts_recv")
    assert isinstance(frame, pandas.DataFrame) and str(frame.index.tz) == "UTC"
    assert frame.index.is_monotonic_increasing and frame["bid_px_00"].dtype == "float64"
    assert isinstance(frame["symbol"].dtype, pandas.CategoricalDtype) and set(frame["symbol"]) == {busy[0]}


def test_symbols_and_a_window_of_time_select(session, busy):
    all_of = tapeworks.read(session, "trades").to_df()
    middle = all_of["ts_recv"].iloc[len(all_of) // 2]
    late = tapeworks.read(session, "trades", start=middle).to_df()
    early = tapeworks.read(session, "trades", end=middle.isoformat()).to_df()
    assert len(early) + len(late) == len(all_of) and len(early) > 0 and (late["ts_recv"] >= middle).all()
    two = tapeworks.read(session, "trades", symbols=busy).to_df()
    assert set(two["symbol"]) == set(busy)
    assert len(two) == all_of["symbol"].isin(busy).sum()
    with pytest.warns(tapeworks.DataWarning, match="no message is about NOSUCH"):
        assert len(tapeworks.read(session, "trades", symbols="NOSUCH").to_arrow()) == 0


def test_compressed_and_plain_files_give_the_same(session, tmp_path):
    plain, zipped = tmp_path / "day.itch", tmp_path / "day.itch.gz"
    tapeworks.generate(plain, scenario="session", messages=20_000, symbols=20, date="2025-11-14")
    with open(plain, "rb") as source, gzip.open(zipped, "wb") as sink:
        shutil.copyfileobj(source, sink)
    options = {"date": "2025-11-14"}
    assert tapeworks.read(plain, **options).to_arrow() == tapeworks.read(zipped, **options).to_arrow()


def test_a_gap_is_a_warning_an_error_or_nothing(capture):
    with pytest.warns(tapeworks.DataWarning, match="missing|problem"):
        table = tapeworks.read(capture).to_arrow()
    with pytest.raises(tapeworks.DataError) as caught:
        tapeworks.read(capture, errors="raise").to_arrow()
    assert caught.value.path == str(capture) and caught.value.packet >= 1 and caught.value.offset > 0
    assert caught.value.summary["problems"]["total"] >= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader = tapeworks.read(capture, errors="ignore")
        assert reader.to_arrow() == table
    assert reader.summary["problems"]["total"] >= 1
    with pytest.raises(Exception, match="DataError: [0-9,]+ messages are missing"):
        pyarrow.table(tapeworks.read(capture, errors="raise"))
    with pytest.warns(tapeworks.DataWarning, match="missing") as warned:
        reader = tapeworks.read(capture)
        assert pyarrow.table(reader).num_rows == len(table)
        # It is said once.
        assert reader.next_batch() is None and list(reader) == []
    assert len(warned) == 1


def test_a_cut_file_gives_what_is_whole_and_names_the_place(session, tmp_path):
    whole, cut = tmp_path / "whole.pcap", tmp_path / "cut.pcap"
    tapeworks.generate(whole, messages=20_000, seed=3)
    cut.write_bytes(whole.read_bytes()[:-20])
    with pytest.warns(tapeworks.DataWarning, match="cut.pcap: packet"):
        table = tapeworks.read(cut, "trades").to_arrow()
    assert 0 < len(table) <= len(tapeworks.read(whole, "trades", errors="ignore").to_arrow())


def test_wrong_arguments_and_files_are_errors_at_once(session, tmp_path):
    for wrong in (
        {"schema": "mbo2"},
        {"prices": "cents"},
        {"errors": "maybe"},
        {"stale": "no"},
        {"threads": 0},
        {"venue": "nowhere"},
        {"protocol": "itch51"},
        {"date": "yesterday"},
        {"start": "soon"},
        {"start": -1},
        {"start": 1.5},
        {"start": 2, "end": 1},
        {"symbols": [""]},
    ):
        with pytest.raises(tapeworks.UsageError):
            tapeworks.read(session, **wrong)
    with pytest.raises(ValueError, match="no file"):
        tapeworks.read([])
    with pytest.raises(tapeworks.InputError, match="no such file") as caught:
        tapeworks.read(tmp_path / "none.pcap")
    assert caught.value.path.endswith("none.pcap") and caught.value.packet is None
    text = tmp_path / "text.pcap"
    text.write_text("no capture at all")
    with pytest.raises(tapeworks.InputError, match="text.pcap"):
        tapeworks.read(text)
    with pytest.raises(tapeworks.InputError, match="directory"):
        tapeworks.read(tmp_path)


def test_a_file_that_exists_is_kept_unless_it_may_be_replaced(session, tmp_path):
    path = tmp_path / "trades.parquet"
    path.write_text("mine")
    with pytest.raises(tapeworks.OutputError, match="exists") as caught:
        tapeworks.read(session, "trades").to_parquet(path)
    assert path.read_text() == "mine" and "trades.parquet" in str(caught.value)
    tapeworks.read(session, "trades").to_parquet(path, overwrite=True)
    assert pyarrow.parquet.read_metadata(path).num_rows > 0
    reader = tapeworks.read(session, "trades")
    next(reader)
    with pytest.raises(tapeworks.UsageError, match="has begun"):
        reader.write(str(tmp_path / "again.csv"))
    tapeworks.read(session, "trades").write(str(tmp_path / "trades.csv.zst"))


def test_a_reader_ends_when_it_is_closed_or_forgotten(session):
    with tapeworks.read(session, "mbo") as reader:
        assert next(reader).schema == "mbo"
    assert list(reader) == [] and reader.next_batch() is None and reader.summary is None
    threads = len(list(__import__("os").scandir("/proc/self/task"))) if sys.platform == "linux" else 0
    for _ in range(20):
        next(tapeworks.read(session, "mbo"))
    time.sleep(1.0)
    if threads:
        assert len(list(__import__("os").scandir("/proc/self/task"))) <= threads + 2


def test_progress_reaches_the_end(session):
    reader = tapeworks.read(session, "mbo")
    assert reader.progress == (0, None, 0)
    assert sum(len(batch) for batch in reader.batches(progress=True)) > 1_000
    done, total, messages = reader.progress
    assert done == total == session.stat().st_size and messages == reader.summary["messages"] > 25_000


def test_others_run_while_a_reader_works(session):
    # Python's own loop counts in a thread: with the lock held it would stand still.
    stop, counted = threading.Event(), [0]

    def count():
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counted[0]
        tapeworks.read([session] * 10, "mbo").to_arrow()
        assert counted[0] - before > 1_000
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("how", ["to_arrow()", "to_parquet('x.parquet')", "table", "sum(1 for _ in reader)"])
def test_an_interrupt_ends_long_work(session, tmp_path, how):
    work = "pyarrow.table(reader)" if how == "table" else how if how.startswith("sum") else f"reader.{how}"
    program = (
        "import sys, pyarrow, tapeworks\n"
        f"reader = tapeworks.read([{str(session)!r}] * 500, 'mbo', errors='ignore')\n"
        "print('begins', flush=True)\n"
        f"{work}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begins\n"
    # As a person does who sees nothing happen: on a busy machine the first may come before the work has begun.
    for _ in range(20):
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(5)
            break
        except subprocess.TimeoutExpired:
            continue
    _, errors = process.communicate(timeout=5)
    assert "KeyboardInterrupt" in errors and process.returncode != 0
    time.sleep(0.2)
    assert not (tmp_path / "x.parquet").exists()


def test_a_reader_that_is_read_to_its_end_says_so(session):
    reader = tapeworks.read(session, "trades")
    assert not reader.is_over and len(reader.to_df()) > 0 and reader.is_over
    for again in (reader.to_df, reader.to_arrow, reader.to_polars, lambda: pyarrow.table(reader)):
        with pytest.raises(tapeworks.UsageError, match="this reader is exhausted"):
            again()
    # What is read in part gives the rest.
    reader = tapeworks.read(session, "trades")
    next(iter(reader.batches()))
    assert not reader.is_over and len(reader.to_df()) >= 0 and reader.is_over
    closed = tapeworks.read(session, "trades")
    closed.close()
    with pytest.raises(tapeworks.UsageError, match="this reader is exhausted"):
        closed.to_df()


def test_no_symbols_are_not_all_symbols(session):
    for empty in ([], ()):
        with pytest.raises(tapeworks.UsageError, match="symbols is empty"):
            tapeworks.read(session, "trades", symbols=empty)
        with pytest.raises(tapeworks.UsageError, match="symbols is empty"):
            tapeworks.Feed(session, symbols=empty)


def test_times_need_a_zone(session):
    new_york = zoneinfo.ZoneInfo("America/New_York")
    noon = datetime.datetime(2025, 11, 14, 12, tzinfo=new_york)
    ns = int(noon.timestamp()) * 1_000_000_000
    texts = ("2025-11-14T12:00[America/New_York]", "2025-11-14T12:00-05:00", "2025-11-14T17:00:00.000000000Z", str(ns))
    expected = len(tapeworks.read(session, "trades", start=ns).to_arrow())
    for start in (noon, noon.astimezone(datetime.timezone.utc), pandas.Timestamp(noon), *texts):
        assert len(tapeworks.read(session, "trades", start=start).to_arrow()) == expected
    for start in (noon.replace(tzinfo=None), pandas.Timestamp("2025-11-14 12:00"), "2025-11-14T12:00", "2025-11-14"):
        with pytest.raises(tapeworks.UsageError, match="zone"):
            tapeworks.read(session, "trades", start=start)


@pytest.mark.parametrize("prices", typing.get_args(_types.Prices))
def test_records_compare_hash_copy_and_pickle(session, prices):
    def records():
        return [record for record, _ in zip(tapeworks.read(session, "mbp-1", prices=prices, errors="ignore"), range(500))]

    first, again = records(), records()
    assert first == again and set(first) == set(again) and first[0] != first[1]
    assert first[0] != next(iter(tapeworks.read(session, "trades", prices=prices))) and first[0] != "text"
    for record in first[:50]:
        assert copy.copy(record) == record and copy.deepcopy(record) == record
        loaded = pickle.loads(pickle.dumps(record))
        assert loaded == record and hash(loaded) == hash(record) and repr(loaded) == repr(record)
        assert loaded.as_dict() == record.as_dict() and loaded.bid_px_00 == record.bid_px_00
    with pytest.raises(AttributeError, match="has no field order_id"):
        first[0].order_id


def test_types_name_what_there_is(session):
    assert set(typing.get_args(_types.Schema)) == set(tapeworks.SCHEMAS)
    stub = pathlib.Path(tapeworks.__file__).with_name("_native.pyi").read_text()
    classes = {node.name: node for node in ast.parse(stub).body if isinstance(node, ast.ClassDef)}
    typed = {node.target.id for node in classes["Record"].body if isinstance(node, ast.AnnAssign)}
    columns = set()
    for schema in set(tapeworks.SCHEMAS) - {"definition"}:
        columns |= set(pyarrow.schema(tapeworks.read(session, schema)).names)
    assert typed == columns


def test_levels_that_orders_cannot_hold_are_said(session, tmp_path):
    path = tmp_path / "deep.pcap"
    tapeworks.generate(path, venues=["iex-deep"], messages=2_000, symbols=5)
    with pytest.warns(tapeworks.DataWarning, match="price levels and quotes were left out; mbp-1, mbp-10"):
        tapeworks.read(path, "mbo").to_df()
    # It is no fault of the input.
    with pytest.warns(tapeworks.DataWarning, match="price levels"):
        tapeworks.read(path, "mbo", errors="raise").to_df()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tapeworks.read(path, "mbp-10").to_df()
