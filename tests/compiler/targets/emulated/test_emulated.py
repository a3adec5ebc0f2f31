"""The emulator: programs for a CPU whose kernels are interpreted. A target like any other, that uses all of `Backend`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle import errors, op
from treadle.compiler.targets.emulated import backend
from treadle.vm import library

from ....timing import soon

_random = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return _random.standard_normal(shape, np.float32)


def variable(name: str, *shape: int | str) -> treadle.op.Node:
    return treadle.var(name, treadle.TensorType("float32", shape))


def perceptron() -> treadle.Module:
    x, w, b = variable("x", "n", 16), normal(16, 24), normal(24)
    hidden = op.gelu(op.add(op.matmul(x, treadle.constant(w)), treadle.constant(b)))
    return treadle.Module(main=treadle.function([x], op.matmul(hidden, treadle.constant(normal(24, 5)))))


def convolutions() -> treadle.Module:
    x = variable("x", 1, 3, 8, 8)
    y = op.relu(op.conv(x, treadle.constant(normal(16, 3, 3, 3)), pads=(1, 1, 1, 1)))
    y = op.conv(op.max_pool(y, kernel=(2, 2), strides=(2, 2)), treadle.constant(normal(16, 16, 1, 1)))
    return treadle.Module(main=treadle.function([x], op.tanh(op.mean(y, axes=(2, 3)))))


def attention() -> treadle.Module:
    q, k, v = (variable(name, 1, 2, 9, 8) for name in "qkv")
    weights = op.softmax(op.matmul(q, op.permute_dims(k, axes=(0, 1, 3, 2))))  # taken apart: passes recognise it
    return treadle.Module(main=treadle.function([q, k, v], op.softmax(op.matmul(weights, v))))


MODELS = {
    "perceptron": (perceptron, (3, 16)),
    "convolutions": (convolutions, (1, 3, 8, 8)),
    "attention": (attention, (1, 2, 9, 8)),
}


def run(executable: treadle.Executable, arguments: list[np.ndarray]) -> np.ndarray:
    return treadle.VirtualMachine(executable)["main"](*arguments).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_interpreted_kernels_give_the_bits_of_native_ones(name: str) -> None:
    make, shape = MODELS[name]
    module = make()
    arguments = [normal(*shape) for _ in module.functions["main"].params]
    native = treadle.compile(module)
    emulated = treadle.compile(module, target=treadle.emulated())
    assert emulated.primitive_ops == native.primitive_ops
    assert run(emulated, arguments).tobytes() == run(native, arguments).tobytes()


def test_no_native_code_is_made_or_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executable = treadle.compile(perceptron(), target=treadle.emulated())
    for name in ("compiler", "find_kernels", "_load"):
        monkeypatch.setattr(library, name, lambda *given: pytest.fail("native code is asked for"))
    executable.save(tmp_path / "model.trdl")
    x = normal(3, 16)
    loaded = treadle.load(tmp_path / "model.trdl")
    assert not any(loaded.native.values())
    assert run(loaded, [x]).tobytes() == run(executable, [x]).tobytes()


def test_the_kernels_are_those_of_the_cpu_that_is_named() -> None:
    module, x = perceptron(), normal(3, 16)
    native = treadle.compile(module)
    texts = {"": [native.lib.get_source(name) for name in native.lib]}
    for cpu in (None, "aarch64", "x86-64-v4"):
        emulated = treadle.compile(module, target=treadle.emulated(cpu))
        np.testing.assert_allclose(run(emulated, [x]), run(native, [x]), rtol=1e-5, atol=1e-5)
        texts[cpu or "host"] = [emulated.lib.get_source(name) for name in emulated.lib]
    assert texts["host"] == texts[""]
    assert texts["aarch64"] != texts["x86-64-v4"]  # whose registers are four times as long


# ---- errors ----


def with_text(monkeypatch: pytest.MonkeyPatch, pattern: str, other: str) -> None:
    """From now on, emulated kernels have another text."""
    real = backend.lower

    def lower(*given: object) -> object:
        kernel = real(*given)
        source, count = re.subn(pattern, other, kernel.source)
        assert count
        return dataclasses.replace(kernel, source=source)

    monkeypatch.setattr(backend, "lower", lower)


FAULTS: Mapping[str, tuple[str, str, str]] = {
    "a row too many": (
        r"last = groups\n",
        "last = groups + 1\n",
        r"(reads|writes) \d+ bytes at byte \d+ of (in|out)put 0",
    ),
    "parts that overlap": (r"first = groups \* part // parts", "first = 0", "a race: it writes byte 0 of output 0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_kernel_that_does_wrong_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pattern, other, message = FAULTS[name]
    rows = 4 if "row" in name else 64  # enough for several parts
    x = variable("x", rows, 128)
    executable = treadle.compile(treadle.function([x], op.softmax(x, axis=-1)), target=treadle.emulated())
    with_text(monkeypatch, pattern, other)
    with pytest.raises(errors.ExecutionError, match=f"primitive softmax: kernel 'softmax', line .*{message}") as caught:
        run(executable, [normal(rows, 128)])
    assert isinstance(caught.value.__cause__, treadle.debug.KernelFaultError)
    assert caught.value.function == "main"


def test_wrong_elements_are_refused_in_the_words_of_native_kernels() -> None:
    x, i = variable("x", 4, 3), treadle.var("i", treadle.TensorType("int64", ("n",)))
    function = treadle.function([x, i], op.take(x, i, axis=0))
    messages = []
    for target in (None, treadle.emulated()):
        with pytest.raises(errors.IndexOutOfRangeError) as caught:
            run(treadle.compile(function, target=target), [normal(4, 3), np.array([1, 9])])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_an_interpreted_kernel_ends_with_its_budget() -> None:
    x = variable("x", 256, 256)
    executable = treadle.compile(treadle.function([x], op.matmul(x, x)), target=treadle.emulated())
    with soon(5), pytest.raises(errors.BudgetExceededError):
        treadle.VirtualMachine(executable, max_seconds=0.05)["main"](normal(256, 256))


@pytest.mark.parametrize("cpu", ["abacus", "", 3])
def test_another_cpu_is_refused(cpu: object) -> None:
    with pytest.raises(errors.CompileError, match=rf"emulated\({cpu!r}\): "):
        treadle.emulated(cpu)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("gpu 7", "made for the target 'gpu 7'; besides CPUs, .* has emulated"),
        ("emulated abacus", "the target 'emulated abacus' of an executable: LLVM knows no CPU 'abacus'"),
        ("emulated " + "x" * 5000, "a CPU of 5000 characters"),
    ],
)
def test_a_file_for_another_target_is_refused_before_it_runs(target: str, message: str) -> None:
    program = treadle.compile(perceptron(), embed_native=False).program
    other = dataclasses.replace(program, metadata={**program.metadata, "target": target})
    with pytest.raises(errors.TreadleError, match=message):
        treadle.VirtualMachine(treadle.Executable(other))
