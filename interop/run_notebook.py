"""Runs the notebook of the book from its first cell to its last, as a reader does.

Usage: run_notebook.py --notebook docs/src/notebooks/day.ipynb --page docs/src/notebook.md --figures FOLDER

It fails where a cell fails, where the page shows a figure that the notebook does not make, or the other way round. With the folder
beside the notebook (docs/src/notebooks/figures) it renews the figures of the page.
"""

import argparse
import os
import pathlib
import re
import sys
import tempfile
import time

import nbclient
import nbformat
from jupyter_client.manager import AsyncKernelManager

#: Seconds that a cell may take: ten times what the slowest takes on a busy machine of two cores.
PATIENCE = 120


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
    arguments.figures.mkdir(parents=True, exist_ok=True)
    for old in arguments.figures.glob("*.svg"):
        old.unlink()
    os.environ["TAPEWORKS_FIGURES"] = str(arguments.figures.resolve())
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            # No port: what is sent stays between the two processes.
            kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
            nbclient.NotebookClient(notebook, timeout=PATIENCE, km=kernel).execute(cwd=folder)
    except nbclient.exceptions.CellExecutionError as error:
        print(f"{arguments.notebook}: {error}")
        return 1
    took = time.monotonic() - began
    made = {path.name for path in arguments.figures.glob("*.svg")}
    shown = set(re.findall(r"\]\(notebooks/figures/([^)]+)\)", arguments.page.read_text()))
    if made != shown or not made:
        print(f"the notebook makes {sorted(made)}, {arguments.page} shows {sorted(shown)}")
        return 1
    of_the_book = arguments.notebook.parent / "figures"
    other = [name for name in sorted(made) if (of_the_book / name).read_bytes() != (arguments.figures / name).read_bytes()]
    print(f"the notebook's {len(notebook.cells)} cells run, in {took:.0f} s, and make the {len(made)} figures of its page")
    if other:
        print(f"  {', '.join(other)}: not byte by byte as in the book: --figures {of_the_book} renews them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
