"""Whole networks: compiled, saved, loaded in a new process, run by native kernels, compared with onnxruntime and stored results.

The large ones take minutes: `pytest -m slow` (or `make networks`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import treadle
from onnx import numpy_helper
from treadle.tools import digits
from treadle.tools.dev import zoo
from treadle.tools.dev.zoo.light import light_path

SMALL = ("squeezenet",)  # what the default run can afford
LIGHT = [pytest.param(name, marks=() if name in SMALL else pytest.mark.slow) for name in zoo.LIGHT_NETWORKS]


ANOTHER_PROCESS = """
import sys
import numpy, treadle
machine = treadle.VirtualMachine(treadle.load(sys.argv[1]))
with numpy.load(sys.argv[2]) as inputs:
    result = machine["main"](*inputs.values())
numpy.savez(sys.argv[3], *(value.numpy() for value in (result if isinstance(result, tuple) else (result,))))
"""


def run(model: onnx.ModelProto | Path, folder: Path, *inputs: np.ndarray) -> list[np.ndarray]:
    """What a user does: compile and save; load and call in a new process."""
    treadle.compile(model, progress=False).export_library(folder / "model.trdl")
    np.savez(folder / "inputs.npz", *inputs)
    files = [folder / "model.trdl", folder / "inputs.npz", folder / "results.npz"]
    subprocess.run([sys.executable, "-c", ANOTHER_PROCESS, *files], check=True, timeout=120)
    with np.load(files[2]) as results:
        return list(results.values())


def expected(model: onnx.ModelProto | Path, *inputs: np.ndarray) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options)
    return session.run(None, {info.name: x for info, x in zip(session.get_inputs(), inputs, strict=True)})


def check(model: onnx.ModelProto | Path, folder: Path, *inputs: np.ndarray) -> None:
    """Equal within 1e-3, or 1e-5 of the largest element where an element is next to nothing."""
    for a, b in zip(run(model, folder, *inputs), expected(model, *inputs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5 * float(np.abs(b).max()))


def images(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).standard_normal((batch, 3, 224, 224)).astype(np.float32)


@pytest.mark.parametrize("name", LIGHT)
def test_light_network_gives_the_stored_output(name: str, tmp_path: Path) -> None:
    x = (np.arange(3 * 224 * 224) / (3 * 224 * 224)).astype(np.float32).reshape(1, 3, 224, 224)
    path = light_path(name)
    stored = numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb")))
    (result,) = run(path, tmp_path, x)
    np.testing.assert_allclose(result, stored, rtol=2e-3)


@pytest.mark.parametrize("batch", [1, "batch"])
@pytest.mark.parametrize("name", LIGHT)
def test_light_network_with_seeded_weights(name: str, batch: int | str, tmp_path: Path) -> None:
    check(zoo.light(name, batch=batch), tmp_path, images(batch if isinstance(batch, int) else 3))


@pytest.mark.slow
@pytest.mark.parametrize("depth", [18, 50])
def test_resnet(depth: int, tmp_path: Path) -> None:
    check(zoo.resnet(depth), tmp_path, images(1))


def test_mlp(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)
    check(zoo.mlp(batch="batch"), tmp_path, x)


@pytest.mark.parametrize(("batch", "length"), [(1, 32), ("batch", "length")])
def test_bert(batch: int | str, length: int | str, tmp_path: Path) -> None:
    model = zoo.bert(1, 32, 2, batch=batch, length=length)
    ids = np.random.default_rng(0).integers(0, 1000, (1, 32) if batch == 1 else (3, 17))
    mask = np.ones_like(ids)
    mask[:, -3:] = 0
    check(model, tmp_path, ids, mask, ids % 2)


def test_one_executable_serves_every_size(tmp_path: Path) -> None:
    model = zoo.bert(1, 32, 2, batch="batch", length="length")
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))
    for batch, length in ((1, 1), (2, 5), (1, 300)):
        ids = np.random.default_rng(length).integers(0, 1000, (batch, length))
        inputs = (ids, np.ones_like(ids), ids % 2)
        for a, b in zip(machine["main"](*inputs), expected(model, *inputs), strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-3, atol=1e-4)


def test_digits_are_recognised(tmp_path: Path) -> None:
    _, held_out = digits.load_split()
    (probabilities,) = run(digits.MODEL, tmp_path, held_out.images)
    assert (probabilities.argmax(axis=1) == held_out.labels).mean() >= 0.97
    check(digits.MODEL, tmp_path, held_out.images[:7])
