"""What the notebook of the book calculates, and the script that runs it."""

import ast
import json
import subprocess
import sys

import pytest
from conftest import ROOT

NOTEBOOK = ROOT / "docs/src/notebooks/day.ipynb"
SCRIPT = ROOT / "interop/run_notebook.py"


def functions(pandas):
    """The functions of its cells, without what surrounds them."""
    found = {"pandas": pandas}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            body = [part for part in ast.parse("".join(cell["source"])).body if isinstance(part, ast.FunctionDef)]
            exec(compile(ast.Module(body, []), str(NOTEBOOK), "exec"), found)
    return found


def test_a_mean_over_time_weighs_each_value_by_how_long_it_holds():
    pandas = pytest.importorskip("pandas")
    cells = functions(pandas)
    at = lambda time: pandas.Timestamp(f"2025-11-14 {time}", tz="America/New_York")
    # Two of one time; one side is missing from 09:34 to 09:36; from 09:45:00 to 09:50:30 throughout.
    changes = [("09:20", 9.0), ("09:20", 2.0), ("09:34", None), ("09:36", 4.0), ("09:39", 8.0), ("09:45", None), ("09:50:30", 6.0)]
    values = pandas.Series([value for _, value in changes], [at(time) for time, _ in changes])
    edges = pandas.date_range(at("09:30"), at("10:00"), freq="5min")
    means = cells["mean_over_time"](values, edges)
    expected = [2.0, (4.0 * 180 + 8.0 * 60) / 240, 8.0, None, 6.0, 6.0]
    assert [None if value != value else value for value in means] == pytest.approx(expected)
    assert cells["held"](values.fillna(0), edges).tolist() == [2.0, 0.0, 8.0, 0.0, 0.0, 6.0, 6.0]


@pytest.fixture
def book(tmp_path):
    """A notebook whose one cell is the code, beside its page and figures, and what runs it."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    (tmp_path / "figures").mkdir()

    def run(code, shown="one.svg", figures="elsewhere"):
        begin = "import os, pathlib\nfigures = pathlib.Path(os.environ['TAPEWORKS_FIGURES'])\n"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(begin + code, id="one")])
        nbformat.write(notebook, tmp_path / "day.ipynb")
        (tmp_path / "page.md").write_text(f"![A figure](notebooks/figures/{shown})\n")
        words = ["--notebook", tmp_path / "day.ipynb", "--page", tmp_path / "page.md", "--figures", tmp_path / figures]
        ended = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.returncode, ended.stdout

    return tmp_path, run


#: The style of dark pages, which the script adds.
DARK = next(
    part.value.value
    for part in ast.parse(SCRIPT.read_text()).body
    if isinstance(part, ast.Assign) and part.targets[0].id == "DARK"
)


def drawn(number, style=DARK):
    """A figure, as the script keeps it."""
    return f'<svg version="1.1">{style}<metadata></metadata><path d="M 10 {number} L 20"/></svg>'


def write(number):
    return f"(figures / 'one.svg').write_text('{drawn(number, style='')}')"


def test_a_figure_that_is_new_or_stale_fails_and_is_renewed_in_the_book(book):
    folder, run = book
    kept = folder / "figures/one.svg"
    status, said = run(write(1.5))
    assert status == 1 and "one.svg: not as in the book" in said and not kept.exists()
    assert (folder / "elsewhere/one.svg").read_text() == drawn(1.5)
    (folder / "figures/old.svg").write_text("")
    assert run(write(1.5), figures="figures")[0] == 0 and kept.read_text() == drawn(1.5)
    assert not (folder / "figures/old.svg").exists()
    # Rounding of another machine is no other figure.
    for number, expected in ((1.500001, 0), (1.6, 1)):
        status, said = run(write(number))
        assert status == expected and ("not as in the book" in said) == bool(expected)
        assert kept.read_text() == drawn(1.5)


def test_a_cell_that_fails_leaves_the_figures_of_the_book(book):
    folder, run = book
    kept = folder / "figures/one.svg"
    kept.write_text(drawn(1))
    status, said = run("raise ValueError('no such capture')", figures="figures")
    assert status == 1 and "no such capture" in said and kept.read_text() == drawn(1)
    status, said = run(write(2), shown="other.svg", figures="figures")
    assert status == 1 and "the notebook makes ['one.svg']" in said and kept.read_text() == drawn(1)
