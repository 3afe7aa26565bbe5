"""Parquet files read by DuckDB, against the DBN files of the same replay as databento reads them."""

import duckdb
from replays import arguments, compare_parquet, normal


def parquet_table(path):
    """A Parquet file as columns, with whole numbers for prices (1e-9) and times (nanoseconds)."""
    source = f"read_parquet('{path}')"
    columns = {}
    for name, kind, *_ in duckdb.sql(f"describe select * from {source}").fetchall():
        field = f'"{name}"'
        if kind.startswith("DECIMAL"):
            field = f"cast(cast({field} as decimal(38, 9)) * 1000000000 as hugeint)"
        elif kind.startswith("TIMESTAMP"):
            field = f"epoch_ns({field})"
        columns[name] = [normal(row[0]) for row in duckdb.sql(f"select {field} from {source}").fetchall()]
    return columns


if __name__ == "__main__":
    compare_parquet("DuckDB", parquet_table, arguments(__doc__))
