"""Building kernels: cached by definition, shared by text, compiled by worker processes that may fail or die."""

import subprocess
import sys
import textwrap

import pytest
from treadle.compiler.targets.cpu.target import host
from treadle.compiler.targets.cpu.toolchain import compile_pool
from treadle.compiler.targets.cpu.toolchain import kernels as builder
from treadle.compiler.targets.cpu.toolchain.compile_pool import Text, compile_texts
from treadle.formats.messages.errors import BudgetExceededError, CompileError, InferenceError
from treadle.formats.types import tensor
from treadle.native import processes
from treadle.native.platform import load_object

from ..harness import Builder, definition_of

NATIVE = host().native


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    return tmp_path


def text(name, answer="part"):
    return Text(name, f"def kernel(args, scratch, part, parts):\n    return {answer}\n", 16)


def relu(size):
    return definition_of("relu", [tensor("float32", (size,))])


def test_kernels_that_differ_in_size_share_their_code(empty_cache):
    small, large = builder.build([relu(100), relu(200)])
    assert small.object_key == large.object_key
    assert small.key != large.key
    assert small.words != large.words


def test_what_was_built_is_found_again(empty_cache, monkeypatch):
    first = builder.build([relu(100)])
    monkeypatch.setattr(builder, "_compile", None)  # there is nothing to compile any more
    assert builder.build([relu(100), relu(300)][:1]) == first


def test_no_native_lowering_is_none(empty_cache):
    transposed = definition_of("conv_transpose", [tensor("float32", (1, 1, 5, 5)), tensor("float32", (1, 1, 3, 3))])
    assert builder.build([transposed]) == [None]


def test_malformed_definitions_are_refused(empty_cache):
    import dataclasses

    definition = relu(4)
    wrong = dataclasses.replace(definition.nodes[0], results=(tensor("float32", (5,)),))
    with pytest.raises(InferenceError):
        builder.build([dataclasses.replace(definition, nodes=(wrong,))])


def error_of(wrong, texts, **options):
    """Of the one text that does not compile, the others do."""
    built = dict(compile_texts(texts, NATIVE, **options))
    error = built[wrong]
    assert isinstance(error, CompileError)
    return str(error)


def test_workers_compile_side_by_side():
    texts = [text(f"kernel_{i}", f"part + {i}") for i in range(4)]
    built = dict(compile_texts(texts, NATIVE, jobs=2))
    assert built.keys() == set(texts)
    assert all(t.symbol in load_object(code) for t, code in built.items())


def test_a_text_that_does_not_compile_is_an_error():
    texts = [text("kernel_bad", "no_such_name"), text("kernel_2"), text("kernel_3")]
    assert "kernel_bad" in error_of(texts[0], texts)


def test_a_text_that_kills_its_compiler_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text("import os, sys\nsys.stdin.buffer.read(200)\nos._exit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compile_pool.worker, "__name__", "deadly")
    deadly = text("kernel_deadly")
    found = error_of(deadly, [deadly, text("kernel_2"), text("kernel_3")], jobs=1)
    assert "kernel_deadly died twice, with exit status 7" in found


def test_a_script_without_a_main_guard_may_build(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            from treadle.compiler.targets.cpu.toolchain.compile_pool import Text, compile_texts
            from treadle.compiler.targets.cpu.target import host

            source = "def kernel(args, scratch, part, parts):\\n    return part\\n"
            texts = [Text(f"kernel_{i}", source, 16) for i in range(3)]
            print(len(list(compile_texts(texts, host().native, jobs=1))))
            """
        )
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert result.stdout == "3\n"


def chain_of_exponentials(count):
    build = Builder(tensor("float32", (64,)))
    value = 0
    for _ in range(count):
        value = build("exp", value)
    return build.definition(value)


def test_a_worker_that_dies_before_it_is_told_its_target_is_an_error(monkeypatch):
    def start(code, **options):
        process = started("pass", **options)
        process.wait()
        return process

    started = processes.start
    monkeypatch.setattr(processes, "start", start)
    texts = [text(f"kernel_{i}") for i in range(3)]
    assert "died twice, with exit status 0" in error_of(texts[0], texts, jobs=1)


def test_a_build_without_time_names_what_was_not_done(empty_cache):
    with pytest.raises(BudgetExceededError, match="not done: 'first'") as caught:
        builder.build([relu(100), relu(200)], names=["first", "second"], seconds=0)
    assert caught.value.budget == "build_seconds"


def test_a_kernel_that_takes_too_long_is_given_up_and_its_process_ends(empty_cache, monkeypatch):
    started = []
    start = compile_pool._start
    monkeypatch.setattr(compile_pool, "_start", lambda *options: started.append(start(*options)) or started[-1])
    with pytest.raises(BudgetExceededError, match="not done: 'long'"):
        builder.build([chain_of_exponentials(200)], names=["long"], seconds=1.0)
    assert started
    assert all(process.poll() is not None for process in started)


def test_a_text_that_would_be_too_long_is_no_kernel(empty_cache):
    image, columns = tensor("float32", (1, 8, 5, 5)), {"shape": (6, 6), "kernel": (2, 2)}
    assert builder.build([definition_of("col2im", [image], **columns, strides=(1, 1 << 40))]) == [None]
