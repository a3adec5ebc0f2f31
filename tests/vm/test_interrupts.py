"""Ctrl-C between any two bytecodes of the modules that hold what a process has but once: what they hold stays whole.

`sys.settrace` raises KeyboardInterrupt before each bytecode in turn, which is more often than a signal can come: Python looks for
these after calls, at the beginning of functions and where loops go back. It is not raised between the end of a `with` block
and the call that leaves it, where nobody could take a lock back (CPython's issue 74174), and where Python does not look.
"""

from __future__ import annotations

import ast
import contextvars
import functools
import gc
import itertools
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.formats import same_file, strings
from treadle.formats.constants import constant_type
from treadle.formats.executable import Executable
from treadle.formats.strings import Texts, to_texts
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.weight_table import NamedWeight, WeightTable
from treadle.native import once
from treadle.tools.dev.fuzz.hostile.interrupts import interrupted
from treadle.tvm.machines.relax import tensor_cache
from treadle.tvm.modules import registry
from treadle.vm import array_memory, aside, blas, library, threads
from treadle.vm.machine import VirtualMachine
from treadle.vm.tensor import Tensor
from treadle.vm.watch import _Watch

from .. import package

ROOT = Path(treadle.__file__).parent


def interrupt_everywhere(
    modules: list[str], make: Callable[[], Any], act: Callable[[Any], object], check: Callable[[Any], object]
) -> int:
    """Acts on what `make` gives once for each bytecode of these modules that this runs, before which it is interrupted, and
    checks what it left. The number of bytecodes."""
    files = {str(ROOT / module) for module in modules}
    for count in itertools.count():
        state = make()
        was_interrupted = interrupted(files.__contains__, count, functools.partial(act, state))
        check(state)
        if not was_interrupted:
            return count
    raise AssertionError


@pytest.fixture(autouse=True)
def finalisers_may_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python only tells of an exception that ends one."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


def is_free(lock: Any) -> bool:
    """Whether another thread can take a lock."""
    found: list[bool] = []

    def take() -> None:
        found.append(lock.acquire(timeout=5))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found[0]


# ---- texts ----


def test_a_text_that_is_held_is_known_whenever_work_on_texts_ends() -> None:
    names = np.array(["a", "b", "a", "c"], object)

    def made_by(holder: Texts) -> None:
        with strings.held_by(holder):
            strings.to_numbers(names)

    def act(kept: tuple[Texts, np.ndarray]) -> None:
        one, other = Texts(), Texts()
        one.numbers(names)
        other.keep(one)
        other.numbers(np.array(["c", "d"], object))
        del one
        other.number("e")  # forgets what is gone
        contextvars.copy_context().run(made_by, other)  # as `host.py` does

    def make() -> tuple[Texts, np.ndarray]:
        kept = Texts()
        return kept, kept.numbers(np.array(["b", "kept"], object))

    def check(kept: tuple[Texts, np.ndarray]) -> None:
        assert strings.holder() is strings.PERMANENT
        assert to_texts(kept[1]).tolist() == ["b", "kept"]
        fresh, again = Texts(), Texts()
        numbers = fresh.numbers(np.array([*names, "b", "d", "e"], object))
        assert to_texts(numbers).tolist() == [*names, "b", "d", "e"]
        assert np.array_equal(again.numbers(names), numbers[:4])  # equal texts are equal numbers
        assert numbers[1] == kept[1][0]
        known = {number: text for shard in strings._numbers for text, number in shard.items()}
        assert known.items() <= {item for block in strings._texts.values() for item in block.items()}
        assert is_free(strings._lock)

    assert interrupt_everywhere(["formats/strings.py"], make, act, check) > 300


def test_no_text_is_let_go_of_twice() -> None:
    """A remaining holder keeps it, whatever ended the tidying."""
    kept = Texts()
    number = kept.number("held by three")

    def act(_: None) -> None:
        for _ in range(2):
            Texts().number("held by three")
        strings.PERMANENT.number("")
        strings.forget()

    interrupt_everywhere(["formats/strings.py"], lambda: None, act, lambda _: None)
    gc.collect()
    Texts().number("others")
    assert strings._texts[number >> strings._BLOCK][number] == "held by three"
    assert kept.number("held by three") == number


# ---- constants ----


def constant_machine() -> VirtualMachine:
    type_ = constant_type(np.zeros(4, np.float32))
    text = "const a float32[4] = [1.0, 1.0, 1.0, 1.0]\nconst b float32[4] = [1.0, 1.0, 1.0, 1.0]\n"
    text += "func @main() -> (float32[4], float32[4]) {\n  load_const r0, a\n  load_const r1, b\n"
    text += "  alloc_data r2, (float32[4], float32[4]), 0 (r0, r1)\n  ret r2\n}\n"
    table = WeightTable((NamedWeight("a", type_), NamedWeight("b", type_)), constants=((0, 0), (1, 1)))
    return VirtualMachine(Executable(parse_assembly(text), weights=table))


def test_constants_are_old_or_new_and_in_memory_that_is_there() -> None:
    machine = constant_machine()
    counts = itertools.count(2)

    def make() -> float:
        return float(next(counts))

    def act(value: float) -> None:
        machine.load_params({name: np.full(4, value, np.float32) for name in "ab"})

    def check(value: float) -> None:
        _ = [np.full(4, -1, np.float32) for _ in range(50)]  # takes what was freed
        first, second = (each.numpy() for each in machine["main"]())
        assert first.tolist() == second.tolist()  # both in one step
        assert first[0] in (value, value - 1) or first[0] == machine._calls.image.arrays[0][0]
        assert is_free(machine._swapping)

    assert interrupt_everywhere(["vm/image.py", "vm/calls.py", "native/once.py"], make, act, check) > 100
    act(9.0)
    assert len(machine._calls.image._held) == 1


def test_a_call_that_is_interrupted_anywhere_leaves_the_machine_usable() -> None:
    machine = constant_machine()
    machine.load_params({name: np.full(4, 3, np.float32) for name in "ab"})
    machine.call("main", ())

    def check(_: None) -> None:
        assert [each.numpy()[0] for each in machine.call("main", ())] == [3, 3]

    modules = ["vm/calls.py", "vm/context.py", "vm/convert.py"]
    interrupt_everywhere(modules, lambda: None, lambda _: machine.call("main", (), max_seconds=60), check)


# ---- what runs beside ----


def test_locks_are_given_back() -> None:
    lock = once.Lock()
    made: list[int] = []

    def act(get: Callable[[int], int]) -> None:
        with lock:
            get(1)

    def check(get: Callable[[int], int]) -> None:
        assert is_free(lock)
        assert get(1) == get(1)

    def make() -> Callable[[int], int]:
        return once.once(lambda number: made.append(number) or object())

    interrupt_everywhere(["native/once.py"], make, act, check)


def test_deadlines_are_watched_behind_whatever_was_interrupted() -> None:
    machine = constant_machine()
    machine.call("main", ())
    (context,) = machine._calls._idle

    def check(watch: _Watch) -> None:
        context.go_on()
        watch.add(context, time.monotonic())
        end = time.monotonic() + 20
        while not context._head[0] and not any(context._head) and time.monotonic() < end:
            time.sleep(0.001)
        assert any(context._head)
        watch.remove(context)

    def make() -> _Watch:
        watch.remove(context)
        watch._is_idle = True  # as after a second without deadlines: then the thread is to be woken
        return watch

    watch = _Watch()
    watch._started()
    interrupt_everywhere(["vm/watch.py"], make, lambda each: each.add(context, time.monotonic() + 60), check)
    context.go_on()


def test_a_watch_is_started_once_or_not_at_all() -> None:
    def check(watch: _Watch) -> None:
        write = watch._started()
        assert watch._pipe is not None
        assert write == watch._pipe[1]
        assert is_free(watch._lock)

    assert interrupt_everywhere(["vm/watch.py"], _Watch, lambda watch: watch._started(), check) < 40


def test_memory_of_arrays_is_nobodys_behind_an_operator_that_was_interrupted() -> None:
    """A bound that stayed would be that of all arrays of the thread."""

    def act(_: None) -> None:
        def work() -> None:
            with array_memory.bounded(1 << 10):
                np.zeros(10)

        contextvars.copy_context().run(work)  # as `host.py` does

    functions = array_memory.handler_functions()
    before = None if functions is None else functions[0]()

    def check(_: None) -> None:
        np.zeros(1 << 12)
        assert functions is None or functions[0]() is before
        assert is_free(array_memory._lock)

    interrupt_everywhere(["vm/array_memory.py"], lambda: None, act, check)


def test_blas_has_its_threads_again_behind_the_next_operator() -> None:
    functions = blas.thread_functions()
    if functions is None:
        pytest.skip("NumPy's BLAS is not OpenBLAS")
    get, set_ = functions
    before = get()
    set_(2)

    def act(_: None) -> None:
        with blas.one_thread():
            assert get() == 1

    def check(_: None) -> None:
        assert is_free(blas._lock)
        act(None)
        assert get() == 2

    interrupt_everywhere(["vm/blas.py"], lambda: None, act, check)
    set_(before)


def test_jobs_of_other_threads_are_done_or_left_and_the_next_one_runs() -> None:
    def check(_: None) -> None:
        assert aside.Job(lambda: 5).run(lambda: None) == 5
        assert not aside.too_many_left()

    def act(_: None) -> None:
        aside.Job(lambda: 4).run(lambda: None)

    interrupt_everywhere(["vm/aside.py"], lambda: None, act, check)
    for helper in gc.get_objects():  # one that was interrupted between two jobs waits for ever: other tests count them
        if type(helper) is aside._Helper and helper not in aside._idle:
            last = aside.Job(lambda: None)
            last._is_abandoned = True
            helper.jobs.put(last)


def test_the_pool_is_left_to_the_next_call() -> None:
    pool = threads.pool()
    count = pool.threads

    def check(_: None) -> None:
        pool.resize(count)
        assert is_free(pool._lock)

    interrupt_everywhere(["vm/threads.py"], lambda: None, lambda _: pool.resize(count), check)


# ---- tables ----


def test_tables_of_one_operation_keep_what_they_had() -> None:
    value = Tensor(np.ones(2))

    def act(name: str) -> None:
        registry.register_func(name, lambda: name)
        tensor_cache.update(name, value)
        library._load({})
        same_file.digest_of_file(__file__, ())

    def check(name: str) -> None:
        registry.register_func(name, lambda: name, override=True)
        found = registry.get_global_func(name)
        assert found is not None
        assert found() == name
        registry.remove_global_func(name)
        tensor_cache.remove(name)
        assert is_free(registry._changing)
        assert is_free(library._loading)

    modules = [
        "tvm/modules/registry.py",
        "tvm/machines/relax/tensor_cache.py",
        "vm/library.py",
        "formats/same_file.py",
        "native/once.py",
    ]
    names = itertools.count()
    interrupt_everywhere(modules, lambda: f"tests.interrupts.{next(names)}", act, check)


# Modules with names whose values change while a process runs, and why nothing can be left half done there.
COVERED = {
    "decode/engine.py": "by tests/decode/test_engine.py; Python tells of Ctrl-C in what it calls at a fork, and goes on",
    "vm/__init__.py": "filled when the package is imported",
    "formats/strings.py": "above",
    "formats/same_file.py": "above",
    "compiler/builder/draws.py": "filled when it is imported",
    "compiler/operators/recall.py": "one assignment",
    "vm/outputs.py": "one assignment of what can be found again",
    "native/words.py": "filled when it is imported",
    "formats/extensions.py": "one assignment, when an operator is defined",
    "tvm/modules/registry.py": "above",
    "tvm/machines/relax/tensor_cache.py": "above",
    "tvm/machines/relax/devices.py": "one assignment",
    "vm/library.py": "above",
    "tvm/modules/load.py": "one assignment, when a loader is registered",
    "native/numba_frontend.py": "assignments of what can be found again",
    "native/once.py": "above",
    "vm/watch.py": "above",
    "vm/context.py": "above",
    "vm/calls.py": "above; machines add themselves",
    "vm/aside.py": "above",
    "vm/array_memory.py": "above",
    "vm/blas.py": "above",
    "vm/threads.py": "above",
    "tvm/machines/relay/program.py": "filled when it is imported",
    "cluster/handle.py": "one assignment",
    "cluster/dask.py": "one assignment",
    "serve/http_tensors.py": "assignments of what can be found again; signals come to no thread of theirs",
    "compiler/targets/cpu/toolchain/kernels.py": "one addition",
    "compiler/operators/own.py": "filled when it is imported",
    "compiler/operators/table.py": "one assignment, when an operator is defined",
    "compiler/onnx/table.py": "filled when it is imported",
    "compiler/onnx/export/table.py": "filled when it is imported",
    "compiler/onnx/gradient.py": "filled when it is imported",
    "compiler/onnx/batch_rules.py": "filled when it is imported",
    "tvm/_lazy.py": "filled when it is imported",
    "tvm/rpc/server.py": "one assignment, one removal",
    "text/grammar.py": "one assignment",
    "tvm/relay/expr.py": "one assignment",
    "tvm/relay/external.py": "one assignment; a function that is not in it is handed over anew",
    "tvm/relax/expr.py": "filled when it is imported",
    "tvm/relay/op/table.py": "one assignment, when an operator is defined",
    "tvm/relay/op/contrib/register.py": "one assignment, when a table is registered",
    "tvm/ir/diagnostics.py": "one assignment",
}
_EMPTY = ("dict", "list", "set", "deque", "WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "OrderedDict")


def changing_names(path: Path) -> list[str]:
    """Module-level names of empty containers, which are there to be filled, and names that functions assign anew."""
    text = path.read_text()
    if not re.search(r"^ +global |^\w.*= .*(\{\}|\[\]|\(\))", text, re.MULTILINE):  # parsing takes longer
        return []
    tree = ast.parse(text)
    found = [name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names]
    for node in tree.body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        is_empty = isinstance(value, (ast.Dict, ast.List)) and not getattr(value, "keys", getattr(value, "elts", None))
        is_made = isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in _EMPTY and not value.args
        if is_empty or is_made:
            found.append(ast.unparse(node))
    return found


def test_every_module_that_holds_what_a_process_has_once_is_looked_at() -> None:
    paths = package.modules(without={"tools"})
    assert {name for name, path in paths.items() if changing_names(path)} <= COVERED.keys()
    for name in COVERED:
        assert (ROOT / name).exists()


def test_nothing_of_the_process_is_changed_for_a_while() -> None:
    """Work that ends in the middle would leave it changed: for all threads, and for ever."""
    changing = re.compile(
        r"catch_warnings|simplefilter|filterwarnings|np\.seterr\b|os\.chdir|setrecursionlimit|setlocale|threading\.Thread\("
    )
    found = {name for name, path in package.modules(without={"tools"}).items() if changing.search(path.read_text())}
    assert not found
