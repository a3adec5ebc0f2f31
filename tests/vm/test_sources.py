"""The keys of the cache change with every module that decides about what they name, and with no other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import treadle
from treadle.formats.errors import TreadleError

PACKAGE = Path(treadle.__file__).parent
FOLDERS = ("formats", "vm", "compiler", "tools")

KEYS = """
from treadle.vm import core, library
print(library.compiler_version(), core._key())
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package in another folder."""
    for name in FOLDERS:
        shutil.copytree(PACKAGE / name, tmp_path / "treadle" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE / "__init__.py", tmp_path / "treadle")
    return tmp_path / "treadle"


def keys(package: Path) -> list[str]:
    """Of kernels and of the engine, as a new process of that package computes them."""
    environment = os.environ | {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", KEYS], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "\n# changed\n")


@pytest.mark.parametrize(
    ("path", "kernels", "engine"),
    [
        ("compiler/operators/winograd.py", True, False),
        ("compiler/operators/table.py", True, False),
        ("formats/dims.py", True, False),
        ("formats/limits.py", True, True),
        ("vm/heap.py", False, True),
        ("compiler/frontend/onnx.py", False, False),
        ("vm/verify.py", False, False),
        ("tools/cli.py", False, False),
    ],
)
def test_an_edit_changes_the_keys_that_it_should(copy, path, kernels, engine):
    before = keys(copy)
    edit(copy / path)
    after = keys(copy)
    assert [a != b for a, b in zip(before, after, strict=True)] == [kernels, engine]


def test_the_lists_are_those_of_the_imports():
    from treadle.tools import sources

    assert sources.LISTS.read_text() == sources.lists(), "imports have changed: run `make docs`"


@pytest.mark.parametrize("kind", ["KERNELS", "ENGINE"])
def test_each_module_of_the_import_closure_counts_and_no_other(copy, kind):
    from treadle.tools.sources import ROOTS, closure
    from treadle.vm import sources

    listed = closure(ROOTS[kind], package=copy)
    before = sources.version(listed, copy)
    for path in sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*.py")):
        text = (copy / path).read_bytes()
        (copy / path).write_bytes(text + b"#")
        assert (sources.version(listed, copy) != before) == (path in listed), path
        (copy / path).write_bytes(text)
    assert sources.version(listed, copy) == before


def test_imports_of_all_kinds_are_found(tmp_path):
    from treadle.tools.sources import closure

    files = {
        "__init__.py": "",
        "a/__init__.py": "from . import side",
        "a/side.py": "",
        "a/root.py": "from typing import TYPE_CHECKING\nimport os\nfrom ..b import thing, module\n"
        "if TYPE_CHECKING:\n    from . import typed\ndef f():\n    if 1:\n        from .local import x\nfrom .. import c as d",
        "a/typed.py": "",
        "a/local.py": "from ..b.deep import name",
        "a/unused.py": "from . import root",
        "b/__init__.py": "thing = 1",
        "b/module.py": "",
        "b/deep.py": "name = 1",
        "b/other.py": "",
        "c.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert closure("a/root.py", package=tmp_path) == sorted(files.keys() - {"a/typed.py", "a/unused.py", "b/other.py"})


def test_building_a_kernel_runs_modules_of_its_closure_alone(tmp_path):
    """What the scanner may not see, such as imports by name, would show here."""
    from treadle.vm import source_lists

    code = """
import json, sys
import treadle.compiler.kernels.build as build
from treadle.compiler.operators import table
from treadle.formats.primitive import PrimitiveDefinition
from treadle.compiler.kernels.compile_pool import Text, compile_texts
from treadle.compiler.kernels.target import host
source = "def kernel(args, scratch, part, parts):\\n    return part\\n"
print(len(list(compile_texts([Text("kernel_1", source, 4)], host().native))))
package = sys.modules["treadle"].__path__[0]
files = [m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] == "treadle" and getattr(m, "__file__", None)]
print(json.dumps([file[len(package) + 1:].replace("\\\\", "/") for file in files]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout.splitlines()[-1])) <= set(source_lists.KERNELS)


def test_an_installation_that_lacks_a_module_says_which(tmp_path):
    from treadle.vm import sources

    with pytest.raises(TreadleError, match=r"not whole: vm/heap\.py"):
        sources.version(["vm/heap.py"], tmp_path)
