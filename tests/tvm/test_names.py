"""The face's names are there when they are first used, and not before."""

import subprocess
import sys

import pytest
import treadle.tvm as tvm

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
