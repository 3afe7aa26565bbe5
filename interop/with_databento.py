"""DBN files, plain and compressed, read by the official package, against the CSV files of the same replay."""

import csv

from replays import SCHEMAS, arguments, compare, dbn_table, normal, replays


def csv_table(path, like):
    """A CSV file as columns; what is a number in the table `like` is one here too."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    if not rows:
        return {}
    names, rows = rows[0], rows[1:]
    columns = {}
    for place, name in enumerate(names):
        is_number = any(isinstance(value, int) for value in like.get(name, []))
        values = [row[place] for row in rows]
        columns[name] = [normal(int(value) if is_number and value else value) for value in values]
    return columns


def main():
    """Compares every schema of every replay."""
    values = records = 0
    for replay in replays(arguments(__doc__)):
        for schema in SCHEMAS:
            what = f"databento, {schema} of {replay.name}"
            plain = dbn_table(replay.file(schema, "dbn"))
            packed = dbn_table(replay.file(schema, "dbn.zst"))
            assert plain == packed, f"{what}: the compressed file has other records"
            expected = csv_table(replay.file(schema, "csv"), plain)
            count = len(next(iter(plain.values()), []))
            if count or any(expected.values()):
                values += compare(what, plain, expected)
            records += count
    assert records > 50_000, f"only {records} records were compared"
    print(f"databento reads {records} records as they were written: {values} values")


if __name__ == "__main__":
    main()
