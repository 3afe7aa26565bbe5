"""The examples of the README and of the tutorial print the output that is printed there."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", ["README.md", "docs/src/tutorials/python-nbbo.md"])
def test_the_examples_of_a_page_print_the_output_on_the_page(page, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", (ROOT / page).read_text(), re.DOTALL)
    assert any(expected for _, expected in blocks), f"{page} has no example with output"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict = {}
    for example, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example, page, "exec"), names)
        # pandas pads lines with spaces, which the pages do not have.
        shown = [line.rstrip() for line in printed.getvalue().splitlines()]
        assert shown == expected.splitlines() or not expected, example
