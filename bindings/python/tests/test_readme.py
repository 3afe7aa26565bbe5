"""The example at the top of the repository's README prints the output that is printed there."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[3] / "README.md"


def test_the_example_prints_the_output_in_the_readme(tmp_path, monkeypatch):
    blocks = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks, "the README has no example with output"
    example, expected = blocks.groups()
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, str(README), "exec"), {})
    # pandas pads lines with spaces, which the README does not have.
    assert [line.rstrip() for line in printed.getvalue().splitlines()] == expected.splitlines()
