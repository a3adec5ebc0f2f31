"""Parameter files of Apache TVM's own newest package, both ways. Skipped where that is not installed.

TVM runs in a process of its own, away from this checkout, whose folder `tvm` also answers to `import tvm`. TREADLE_TEST_TVM may
name the Python that has it.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from treadle.formats.param_dict import load_param_dict_from_file, save_param_dict, save_param_dict_to_file

PYTHON = os.environ.get("TREADLE_TEST_TVM", sys.executable)
ARRAYS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "i": np.array(-3),
    "empty": np.zeros((0, 4), np.float16),
    "bytes": np.arange(4, dtype=np.uint8),
}
SAVE = """
import sys, numpy, tvm
arrays = numpy.load(sys.argv[1])
tvm.runtime.save_param_dict_to_file({name: tvm.runtime.tensor(arrays[name]) for name in arrays}, sys.argv[2])
"""
LOAD = """
import sys, numpy, tvm
found = tvm.runtime.load_param_dict_from_file(sys.argv[1])
numpy.savez(sys.argv[2], **{name: value.numpy() for name, value in found.items()})
"""


def tvm(code: str, folder: Path, *arguments: str) -> None:
    done = subprocess.run([PYTHON, "-c", code, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", autouse=True)
def _there(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tvm")
    if subprocess.run([PYTHON, "-c", "import tvm.runtime"], cwd=folder, capture_output=True).returncode:
        pytest.skip("apache-tvm is not installed; TREADLE_TEST_TVM may name a Python that has it")


def test_files_of_tvm_are_read_and_written_again_byte_for_byte(tmp_path: Path) -> None:
    np.savez(tmp_path / "arrays.npz", **ARRAYS)
    tvm(SAVE, tmp_path, "arrays.npz", "weights.params")
    found = load_param_dict_from_file(tmp_path / "weights.params")
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert save_param_dict(found) == (tmp_path / "weights.params").read_bytes()


def test_tvm_reads_what_is_written_here(tmp_path: Path) -> None:
    save_param_dict_to_file(ARRAYS, tmp_path / "weights.params")
    tvm(LOAD, tmp_path, "weights.params", "arrays.npz")
    found = np.load(tmp_path / "arrays.npz")
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
