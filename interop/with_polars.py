"""Parquet files read by Polars, against the DBN files of the same replay as databento reads them."""

import polars
from replays import SCHEMAS, arguments, compare, dbn_table, normal, replays


def parquet_table(path):
    """A Parquet file as columns, with whole numbers for prices (1e-9) and times (nanoseconds)."""
    frame = polars.read_parquet(path)
    columns = {}
    for name, kind in frame.schema.items():
        column = frame[name]
        if isinstance(kind, polars.Decimal):
            values = [None if value is None else value.scaleb(9) for value in column.to_list()]
        elif isinstance(kind, polars.Datetime):
            assert kind.time_unit == "ns" and kind.time_zone == "UTC", f"{path}: {name} is {kind}"
            values = column.cast(polars.Int64).to_list()
        else:
            values = column.to_list()
        columns[name] = [normal(value) for value in values]
    return columns


def main():
    """Compares every schema of every replay."""
    values = 0
    for replay in replays(arguments(__doc__)):
        for schema in SCHEMAS:
            told = dbn_table(replay.file(schema, "dbn"))
            read = parquet_table(replay.file(schema, "parquet"))
            if any(told.values()) or any(read.values()):
                values += compare(f"Polars, {schema} of {replay.name}", read, told)
    assert values > 500_000, f"only {values} values were compared"
    print(f"Polars reads the same as databento: {values} values")


if __name__ == "__main__":
    main()
