"""Each script of examples/ runs and says something; `quick_start.py` is looked at more closely in tests/tvm."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "quick_start.py")


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_runs(script: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / script], capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_notebook_runs(tmp_path: Path) -> None:
    """By a kernel of Jupyter's where there is one, else cell by cell in one namespace."""
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    if importlib.util.find_spec("nbclient") and importlib.util.find_spec("ipykernel"):
        import nbformat
        from nbclient import NotebookClient

        notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
        NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
        return
    namespace: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(cell["source"], namespace)


def test_the_notebook_is_kept_without_results() -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
