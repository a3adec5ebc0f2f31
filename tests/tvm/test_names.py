"""The face's names are there when they are first used, and not before."""

import importlib
import subprocess
import sys
import types

import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import UnknownAttributeError, UnsupportedImportError, UnsupportedNameError

IMPORT = """
import sys, time
import treadle, numpy
start = time.perf_counter()
import treadle.tvm
print(time.perf_counter() - start)
print([name for name in sys.modules if name.split(".")[0] in ("numba", "llvmlite") or name.startswith("treadle.compiler")])
"""


def test_importing_the_face_costs_next_to_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    seconds, heavy = done.stdout.splitlines()
    assert float(seconds) < 0.05
    assert heavy == "[]"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        tvm.nonsense  # noqa: B018


def test_errors_have_tvms_names() -> None:
    assert issubclass(tvm.error.OpNotImplemented, NotImplementedError)
    assert issubclass(tvm.error.InternalError, tvm.TVMError)


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("nd", "runtime.ndarray"),
        ("contrib.util", "contrib.utils"),
        ("ir.module", "relay.module"),
        ("relay.backend.vm", "relay.vm"),
        ("relay.function", "relay.expr"),
        ("relax.vm_build", "relax.build_module"),
        ("runtime.relax_vm", "relax.vm"),
    ],
)
def test_a_module_is_imported_by_its_other_names_too(name: str, home: str) -> None:
    found = importlib.import_module(f"treadle.tvm.{name}")
    assert found is importlib.import_module(f"treadle.tvm.{home}")
    assert found.__spec__ is not None
    assert found.__spec__.name == f"treadle.tvm.{home}"


@pytest.mark.parametrize("name", ["autotvm", "topi", "te.compute", "relax.frontend.torch"])
def test_what_is_left_out_on_purpose_says_what_does_its_job(name: str) -> None:
    with pytest.raises(UnsupportedImportError, match=rf"tvm\.{name} is not here: .{{20}}"):
        importlib.import_module(f"treadle.tvm.{name}")
    package, _, last = f"treadle.tvm.{name}".rpartition(".")
    with pytest.raises(UnsupportedNameError, match=rf"tvm\.{name} is not here: .{{20}}"):
        getattr(importlib.import_module(package), last)
    with pytest.raises(UnsupportedImportError):
        exec(f"from {package} import {last}")
    assert not hasattr(tvm, name)


def test_all_that_a_module_of_the_face_says_it_has_is_there() -> None:
    missing, waiting = [], [tvm]
    while waiting:
        package = waiting.pop()
        for name in dir(package):
            if not hasattr(package, name):
                missing.append(f"{package.__name__}.{name}")
            elif isinstance(found := getattr(package, name), types.ModuleType) and hasattr(found, "__path__"):
                waiting += [found] if found.__name__.startswith(f"{package.__name__}.") else []
    assert missing == []


def test_a_name_that_tvm_has_not_either_suggests_one() -> None:
    with pytest.raises(UnknownAttributeError, match="did you mean relay"):
        tvm.rellay  # noqa: B018
    assert not hasattr(tvm, "nothing_like_it")
