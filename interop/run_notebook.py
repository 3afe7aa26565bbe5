"""Runs the notebook of the book from its first cell to its last, as a reader does.

Usage: run_notebook.py --notebook docs/src/notebooks/day.ipynb --page docs/src/notebook.md --figures FOLDER

It fails where a cell fails, where the page shows a figure that the notebook does not make or the other way round, and where a figure is
not as in the book. With the folder beside the notebook (docs/src/notebooks/figures) it renews the figures of the book instead. The
folder changes only once all cells have run.
"""

import argparse
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

import nbclient
import nbformat
from jupyter_client.manager import AsyncKernelManager

#: Seconds that a cell may take: ten times what the slowest takes on a busy machine of two cores.
PATIENCE = 120
#: A number in a figure, and by how much it may differ: another machine rounds in another way. The unit is a point.
NUMBER = re.compile(r"-?\d+\.?\d*")
TOLERANCE = 0.01


def is_like(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Whether both files are there with the same figure."""
    if not (one.exists() and other.exists()):
        return False
    texts = [path.read_text() for path in (one, other)]
    first, second = (NUMBER.findall(text) for text in texts)
    if NUMBER.sub("", texts[0]) != NUMBER.sub("", texts[1]) or len(first) != len(second):
        return False
    return all(left == right or abs(float(left) - float(right)) <= TOLERANCE for left, right in zip(first, second))


#: Inverts a Matplotlib figure but keeps its hues, for readers who prefer dark pages.
DARK = "<style>@media (prefers-color-scheme: dark) { svg { filter: invert(0.93) hue-rotate(180deg) } }</style>\n "


def add_dark_mode(figure: pathlib.Path) -> None:
    before, found, after = figure.read_text().partition("<metadata>")
    if not found:
        raise SystemExit(f"{figure}: no <metadata>, before which the style belongs")
    figure.write_text(before + DARK + found + after)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--notebook", type=pathlib.Path, required=True)
    parser.add_argument("--page", type=pathlib.Path, required=True)
    parser.add_argument("--figures", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    notebook = nbformat.read(arguments.notebook, nbformat.NO_CONVERT)
    wrong = [cell["id"] for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]
    if wrong:
        print(f"{arguments.notebook}: clear the outputs before it is committed: {', '.join(wrong)}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        return run(notebook, arguments, pathlib.Path(folder))


def run(notebook: nbformat.NotebookNode, arguments: argparse.Namespace, folder: pathlib.Path) -> int:
    figures = folder / "figures"
    figures.mkdir()
    os.environ["TAPEWORKS_FIGURES"] = str(figures)
    began = time.monotonic()
    try:
        # No port: what is sent stays between the two processes.
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
        nbclient.NotebookClient(notebook, timeout=PATIENCE, km=kernel).execute(cwd=str(folder))
    except nbclient.exceptions.CellExecutionError as error:
        print(f"{arguments.notebook}: {error}")
        return 1
    took = time.monotonic() - began
    for figure in figures.glob("*.svg"):
        add_dark_mode(figure)
    made = {path.name for path in figures.glob("*.svg")}
    shown = set(re.findall(r"\]\(notebooks/figures/([^)]+)\)", arguments.page.read_text()))
    if made != shown or not made:
        print(f"the notebook makes {sorted(made)}, {arguments.page} shows {sorted(shown)}")
        return 1
    of_the_book = arguments.notebook.parent / "figures"
    other = [name for name in sorted(made) if not is_like(of_the_book / name, figures / name)]
    arguments.figures.mkdir(parents=True, exist_ok=True)
    for old in arguments.figures.glob("*.svg"):
        old.unlink()
    for name in made:
        shutil.copyfile(figures / name, arguments.figures / name)
    print(f"the notebook's {len(notebook.cells)} cells run, in {took:.0f} s, and make the {len(made)} figures of its page")
    if other and arguments.figures.resolve() != of_the_book.resolve():
        print(f"  {', '.join(other)}: not as in the book: --figures {of_the_book} renews them")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
