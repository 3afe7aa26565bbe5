"""Record batches to a data frame of pandas, column by column while they come.

A table of pyarrow's has its own way there, which unites the dictionaries of all batches and copies all columns at the end: fresh memory for
each, which costs more than what is written to it. Here each batch goes to its place in the frame's arrays at once, while another thread reads on,
and the dictionary of the last batch has the texts of all. The frame is the same.

Memory: the frame's arrays. Room for more than comes is never touched, so it takes none, and is given back at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List

if TYPE_CHECKING:
    import pandas
    import pyarrow

#: Rows for which there is room at first.
_FIRST = 1 << 16

#: What is expected in all when so many rows have come.
Expect = Callable[[int], int]


class _Numbers:
    """An array that grows."""

    def __init__(self, dtype: Any) -> None:
        import numpy

        self.values = numpy.empty(_FIRST, dtype)
        self.length = 0

    def widen(self, dtype: Any) -> None:
        """Room for greater numbers."""
        if self.values.dtype != dtype:
            self._move(len(self.values), dtype)

    def _move(self, room: int, dtype: Any) -> None:
        import numpy

        values = numpy.empty(room, dtype)
        values[: self.length] = self.values[: self.length]
        self.values = values

    def add(self, values: Any, expect: Expect) -> None:
        end = self.length + len(values)
        if end > len(self.values):
            self._move(max(expect(self.length), end + end // 4), self.values.dtype)
        self.values[self.length : end] = values
        self.length = end

    def take(self) -> Any:
        # In place: nothing else has it.
        self.values.resize(self.length, refcheck=False)
        return self.values


class _Column:
    """A column on its way, as the type in the batches says."""

    def __init__(self, field: "pyarrow.Field[Any]") -> None:
        import pyarrow

        kind = field.type
        types = pyarrow.types
        self.is_text = types.is_dictionary(kind)
        self.zone = kind.tz if types.is_timestamp(kind) else None
        self.type = kind
        #: What an array of numpy cannot hold, as it came.
        self.chunks: List[Any] = []
        #: The numbers; of a text that of the dictionary, -1 without one.
        self.numbers: Any = None
        self.last: Any = None
        if self.is_text:
            self.numbers = _Numbers("int8")
        elif self.zone is not None:
            self.numbers = _Numbers("M8[ns]")
        elif types.is_integer(kind) or types.is_floating(kind):
            self.numbers = _Numbers(kind.to_pandas_dtype())

    def add(self, values: Any, expect: Expect) -> None:
        if self.is_text:
            texts = len(values.dictionary)
            # As small as pandas would have it.
            self.numbers.widen("int8" if texts < 0x7F else "int16" if texts < 0x7FFF else "int32")
            self.last = values
            values = values.indices.fill_null(-1) if values.null_count else values.indices
        elif self.numbers is not None and values.null_count and self.numbers.values.dtype.kind in "iu":
            # Of integers pandas makes floats then, and pyarrow knows how.
            import pyarrow

            self.chunks = [pyarrow.array(self.numbers.take(), self.type)]
            self.numbers = None
        if self.numbers is None:
            self.chunks.append(values)
        else:
            self.numbers.add(values.to_numpy(zero_copy_only=False), expect)

    def take(self) -> Any:
        import pandas
        import pyarrow

        if self.numbers is None:
            return pyarrow.chunked_array(self.chunks, self.type).to_pandas()
        values = self.numbers.take()
        if self.is_text:
            categories = self.last.slice(0, 0).to_pandas().cat.categories
            return pandas.Categorical.from_codes(values, categories)
        return values if self.zone is None else pandas.DatetimeIndex(values, tz=self.zone)


def frame(
    schema: "pyarrow.Schema", batches: Iterable["pyarrow.RecordBatch"], expect: Expect
) -> "pandas.DataFrame":
    """What ``pyarrow.Table.from_batches(batches, schema).to_pandas(split_blocks=True)`` gives.

    The batches' dictionaries are of one :class:`Reader`: each begins with the texts of the one before.
    """
    import pandas
    import pyarrow

    columns = [_Column(field) for field in schema]
    is_empty = True
    for batch in batches:
        is_empty &= batch.num_rows == 0
        for column, values in zip(columns, batch.columns):
            column.add(values, expect)
    if is_empty:
        empty: "pandas.DataFrame" = pyarrow.Table.from_batches([], schema).to_pandas()
        return empty
    made: Dict[str, Any] = {field.name: column.take() for field, column in zip(schema, columns)}
    return pandas.DataFrame(made, copy=False)
