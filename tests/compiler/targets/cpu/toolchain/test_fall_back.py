"""A kernel that cannot be built costs speed and one warning, and nothing else."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
import treadle
from treadle.compiler.targets.cpu.kernels import lower
from treadle.compiler.targets.cpu.toolchain import compile_pool, kernels
from treadle.formats.messages.errors import CompileError, ExecutionError
from treadle.native import processes

X = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def model(monkeypatch, tmp_path):
    """`model(count)`: a module of `count` kernels, none of which this process or the cache has met."""
    from treadle.vm import core

    core.engine()  # stays where it is
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "_failed", set())

    def make(count: int) -> treadle.Module:
        x = treadle.var("x", (4, 6), "float32")
        parts = [treadle.op.softmax(x + float(number), axis=number % 2) for number in range(count)]
        return treadle.Module(main=treadle.function([x], treadle.tuple_(*parts)))

    return make


def expected(count: int) -> list[np.ndarray]:
    exponentials = [np.exp(X + number) for number in range(count)]
    return [each / each.sum(axis=number % 2, keepdims=True) for number, each in enumerate(exponentials)]


def run(executable: treadle.Executable, count: int) -> None:
    results = treadle.VirtualMachine(executable)["main"](X)
    for result, wanted in zip(results, expected(count), strict=True):
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5)


def said(record) -> list[str]:
    return [str(each.message) for each in record if "cannot be built" in str(each.message)]


@pytest.mark.parametrize("count", [1, 4])
def test_a_text_that_does_not_compile_is_evaluated_and_said_once(model, monkeypatch, count):
    right = lower.lower

    def broken(definition, target):
        kernel = right(definition, target)
        if kernel is not None and "softmax" in {node.operator for node in definition.nodes}:
            return dataclasses.replace(
                kernel, source="def kernel(args, scratch, part, parts):\n    return no_such_name\n"
            )
        return kernel

    monkeypatch.setattr(lower, "lower", broken)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        executable = treadle.compile(model(count), progress=False)
        run(executable, count)
        run(executable, count)
    messages = said(record)
    assert len(messages) == min(count, 2)  # a softmax along either axis
    assert all("softmax" in message and "no_such_name" in message for message in messages)


def test_a_builder_that_dies_twice_is_survived(model, monkeypatch, tmp_path):
    (tmp_path / "deadly.py").write_text("import os, sys\nsys.stdin.buffer.read(200)\nos._exit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compile_pool.worker, "__name__", "deadly")
    with pytest.warns(RuntimeWarning) as record:
        run(treadle.compile(model(4), progress=False), 4)
    assert said(record)
    assert all("died twice, with exit status 7" in message for message in said(record))


def test_a_template_that_fails_is_survived(model, monkeypatch):
    def failing(definition, target):
        raise CompileError("the template of a kernel failed: IndexError")

    executable = treadle.compile(model(1), progress=False, embed_native=False)
    monkeypatch.setattr(lower, "lower", failing)
    with pytest.warns(RuntimeWarning, match="template of a kernel failed: IndexError"):
        run(executable, 1)


def test_a_kernel_that_failed_may_be_built_by_the_next_process(model, monkeypatch):
    executable = treadle.compile(model(1), progress=False, embed_native=False)
    with monkeypatch.context() as now:
        now.setattr(compile_pool.worker, "compile_kernel", lambda *_: (_ for _ in ()).throw(CompileError("no memory")))
        with pytest.warns(RuntimeWarning, match="no memory"):
            run(executable, 1)
    monkeypatch.setattr(kernels, "_failed", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(executable, 1)


def test_where_no_process_starts_kernels_are_built_here(model, monkeypatch):
    def start(*_, **__):
        raise ExecutionError("no process can be started: EAGAIN")

    monkeypatch.setattr(processes, "start", start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(treadle.compile(model(4), progress=False), 4)
