"""`tapeworks query` against DuckDB: the same answers over the files of one batch, from a folder and from a store that speaks S3's protocol."""

import argparse
import csv
import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import boto3
import duckdb
from moto.server import ThreadedMotoServer
from replays import REPLAYED, ROOT, run

# A statement for both, with {trades} for their table.
SAME = [
    "SELECT symbol, count(*) AS n, sum(size) AS volume, min(price) AS low, max(price) AS high FROM {trades} "
    "GROUP BY symbol ORDER BY symbol",
    "SELECT date, count(*) AS n FROM {trades} GROUP BY date ORDER BY date",
    "SELECT count(*) AS n FROM {trades} WHERE date = '2025-11-17' AND price > 50",
    "SELECT symbol, side, count(*) AS n FROM {trades} WHERE bucket = '03' GROUP BY symbol, side ORDER BY symbol, side",
]

# DuckDB needs another package to give times with a zone to Python.
JOINED = "symbol, CAST(ts_recv AS BIGINT) AS received, price, size, bid_px_00, bid_sz_00, ask_px_00, ask_sz_00"

# The last record of one time by the file's order, which DuckDB's own join does not promise.
AS_OF = f"""
WITH quotes AS (
  SELECT symbol, date, ts_recv, bid_px_00, bid_sz_00, ask_px_00, ask_sz_00
  FROM read_parquet('{{days}}/schema=cmbp-1/**/*.parquet', hive_partitioning = true, file_row_number = true)
  QUALIFY row_number() OVER (PARTITION BY symbol, date, ts_recv ORDER BY file_row_number DESC) = 1
)
SELECT t.symbol, epoch_ns(t.ts_recv), t.price, t.size, q.bid_px_00, q.bid_sz_00, q.ask_px_00, q.ask_sz_00
FROM {{trades}} AS t ASOF LEFT JOIN quotes AS q
  ON t.symbol = q.symbol AND t.date = q.date AND t.ts_recv >= q.ts_recv
"""


def plain(value):
    """A value as text of CSV: a number without needless zeros."""
    text = "" if value is None else str(value)
    head, point, tail = text.rpartition(".")
    return (head + point + tail.rstrip("0")).rstrip(".") if point and tail.isdigit() else text


def ours(query: Path, place: str, statement: str, environment=None):
    """The rows of our answer."""
    command = [str(query), "--quiet", "--format", "csv", "--data", place, statement]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return [[plain(value) for value in row] for row in csv.reader(io.StringIO(done.stdout))][1:]


def theirs(statement: str):
    """The rows of DuckDB's answer."""
    return [[plain(value) for value in row] for row in duckdb.sql(statement).fetchall()]


def compare(what: str, first: list, second: list):
    """Ends the script at the first difference."""
    if first != second:
        for one, other in zip(first, second):
            if one != other:
                sys.exit(f"{what}\n  ours:   {one}\n  DuckDB: {other}")
        sys.exit(f"{what}: {len(first)} rows, DuckDB has {len(second)}")
    if not first:
        sys.exit(f"{what}: no rows, so nothing is compared")
    print(f"  {len(first):6} rows  {' '.join(what.split())[:100]}")


def make(tapeworks: Path, work: Path) -> Path:
    """Two days of two venues as one batch."""
    days, captures = work / "query-days", work / "query-captures"
    captures.mkdir(parents=True, exist_ok=True)
    for date in ["2025-11-14", "2025-11-17"]:
        out = captures / f"{date}.pcap"
        session = ["--venues", "nasdaq,memx", "--messages", "40000", "--symbols", "40", "--date", date]
        run([tapeworks, "exchange", "generate", *session, "--force", "--out", out])
    batch = [tapeworks, "batch", captures, "--out", days, "--force", "--schema", "trades,cmbp-1", "--buckets", "4"]
    run(batch, REPLAYED)
    return days


def upload(days: Path, address: str):
    """The folder as objects of a bucket."""
    client = boto3.client("s3", endpoint_url=address, region_name="us-east-1")
    client.create_bucket(Bucket="captures")
    for path in sorted(days.rglob("*")):
        if path.is_file() and ".tasks" not in path.parts:
            client.upload_file(str(path), "captures", f"days/{path.relative_to(days)}")


def main(tapeworks: Path, query: Path, work: Path):
    days = make(tapeworks, work)
    trades = f"read_parquet('{days}/schema=trades/**/*.parquet', hive_partitioning = true)"
    as_of = f"SELECT {JOINED} FROM as_of('trades', 'cmbp_1')"
    expected = sorted(theirs(AS_OF.format(days=days, trades=trades)))
    if not any(row[4] for row in expected):
        sys.exit("no trade has an NBBO, so nothing is compared")
    for statement in SAME:
        compare(statement, ours(query, str(days), statement.format(trades="trades")), theirs(statement.format(trades=trades)))
    compare(as_of, sorted(ours(query, str(days), as_of)), expected)
    print("from a store that speaks S3's protocol:")
    # It would log every request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1")
    upload(days, address)
    store = {"AWS_ENDPOINT": address, "AWS_ALLOW_HTTP": "true"}
    place = "s3://captures/days"
    for statement in SAME:
        compare(statement, ours(query, place, statement.format(trades="trades"), store), theirs(statement.format(trades=trades)))
    compare(as_of, sorted(ours(query, place, as_of, store)), expected)
    server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tapeworks", required=True, type=Path, help="the binary")
    parser.add_argument("--query", required=True, type=Path, help="the binary of `tapeworks query`, with the feature `cloud`")
    parser.add_argument("--work", required=True, type=Path, help="a folder to write to")
    given = parser.parse_args()
    main(given.tapeworks.resolve(), given.query.resolve(), given.work.resolve())
