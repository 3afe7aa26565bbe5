"""Parquet files read by Polars, against the DBN files of the same replay as databento reads them."""

import polars
from replays import arguments, compare_parquet, normal


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


if __name__ == "__main__":
    compare_parquet("Polars", parquet_table, arguments(__doc__))
