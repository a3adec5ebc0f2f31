"""What is relied on in other packages: all of it stands in one table, and a probe names what broke."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numba.core.registry
import pytest
from packaging.specifiers import SpecifierSet
from treadle.formats.messages.errors import CompileError
from treadle.native import platform
from treadle.tools import doctor
from treadle.vm import internals

from .. import package

READS_OBJECTS = {"layout of arrays and tuples", "functions of numpy"}
PUBLIC = {"llvmlite.binding"}


def texts() -> Iterator[tuple[Path, str]]:
    for path in package.modules().values():
        yield path, path.read_text(encoding="utf-8")


def imported(text: str) -> Iterator[str]:
    """The dotted names that a module takes of Numba and llvmlite."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in ("numba", "llvmlite"))


def test_every_name_that_is_imported_of_numba_is_probed() -> None:
    known = {f"{module}.{name}" for module, names in internals.NAMES.items() for name in names}
    assert {name for _, text in texts() for name in imported(text)} <= known | PUBLIC


def test_every_function_of_python_that_is_called_by_name_is_probed() -> None:
    pattern = r"pythonapi\.(\w+)|\bpython\.(Py\w+)|\"(Py[A-Z]\w+_\w+)\""
    used = {
        name
        for path, text in texts()
        if path.name != "internals.py"
        for found in re.findall(pattern, text)
        for name in found
    }
    assert {name for name in used if not name.startswith("PyDataMem_")} - {""} <= set(internals.PYTHON_FUNCTIONS)


@pytest.mark.parametrize("reliance", internals.RELIANCES, ids=lambda each: each.name)
def test_all_is_as_expected_here(reliance: internals.Reliance) -> None:
    """Without a GIL, native code may not read Python's objects: the slower way is the right one there."""
    is_slower = reliance.name in READS_OBJECTS and not getattr(sys, "_is_gil_enabled", lambda: True)()
    found = reliance.problem()
    assert found.endswith(reliance.otherwise) if is_slower else found == ""


def test_a_name_that_went_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(numba.core.registry, "cpu_target")
    problem = internals.RELIANCES[0].problem()
    assert problem.startswith("there is no numba.core.registry.cpu_target; nothing can be compiled")
    assert "pip install 'numba<" in problem


@pytest.mark.parametrize(
    "broken", [AttributeError("no attribute 'add_pass'"), ImportError("no typed_passes"), TypeError("2 arguments")]
)
def test_a_compilation_that_numbas_change_breaks_says_so(broken: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.compiler.targets.cpu.target import host
    from treadle.compiler.targets.cpu.toolchain import translate, worker

    def lowering(*_: object) -> None:
        raise broken

    monkeypatch.setattr(translate, "Lowering", lowering)
    with pytest.raises(CompileError, match=r"Numba .* is not as Treadle expects.*pip install 'numba<"):
        worker.compile_kernel("k", "def kernel(args, scratch, part, parts):\n    return 0\n", 4, host().native)


def test_doctor_prints_the_probes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    broken = internals.Reliance("layout of arrays and tuples", lambda: "a tuple is longer", "Python does it, slower")
    monkeypatch.setattr(internals, "RELIANCES", (broken,))
    found = {finding.name: finding for finding in doctor.examine()}
    assert found["layout of arrays and tuples"].problem == "a tuple is longer; Python does it, slower"


def test_the_bound_of_numba_is_the_packages() -> None:
    import importlib.metadata

    (declared,) = (each for each in importlib.metadata.requires("treadle") or [] if each.startswith("numba"))
    assert f"<{platform.NUMBA_BELOW}" in declared
    assert SpecifierSet(declared.removeprefix("numba")).contains(importlib.metadata.version("numba"))
