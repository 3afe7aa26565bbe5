"""Parquet files read by DuckDB, against the DBN files of the same replay as databento reads them."""

import duckdb
from replays import SCHEMAS, arguments, compare, dbn_table, normal, replays


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


def main():
    """Compares every schema of every replay."""
    values = 0
    for replay in replays(arguments(__doc__)):
        for schema in SCHEMAS:
            told = dbn_table(replay.file(schema, "dbn"))
            read = parquet_table(replay.file(schema, "parquet"))
            if any(told.values()) or any(read.values()):
                values += compare(f"DuckDB, {schema} of {replay.name}", read, told)
    assert values > 500_000, f"only {values} values were compared"
    print(f"DuckDB reads the same as databento: {values} values")


if __name__ == "__main__":
    main()
