"""What a process keeps: every cache and every table of a module that grows while the process runs stands in MEMORIES, with what
bounds it and why it may outlive the call, the machine and the session that filled it."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator

import numpy as np
import treadle
from treadle.compiler.ir.text import parse_module
from treadle.compiler.operators import recall
from treadle.vm.outputs import _classes, outputs_class

from . import package

CACHES = {"cache", "lru_cache", "once"}
CONTAINERS = {
    "dict", "list", "set", "deque", "OrderedDict", "defaultdict", "Counter", "SimpleQueue",
    "WeakSet", "WeakKeyDictionary", "WeakValueDictionary",
}  # fmt: skip
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "put", "remove",
    "setdefault", "update",
}  # fmt: skip
# ---- what bounds each, and why it outlives what filled it ----

ONE = "one value, of the process"
OF_THE_TABLE = "filled while modules are imported, by tables of the package"
BY_USERS = "what users of the process register by name"
MEMORIES = {
    "cluster/dask.py: _runners": "64; the threads and machine that a worker goes on with from batch to batch",
    "cluster/handle.py: _opened": "64; a worker's machines, from batch to batch",
    "cluster/handle.py: _temporary_folder": ONE,
    "compiler/builder/draws.py: FUNCTIONS": OF_THE_TABLE,
    "compiler/onnx/schemas.py: _known_schema": "1,024 names of 200 characters",
    "compiler/onnx/batch_rules.py: RULES": OF_THE_TABLE,
    "compiler/onnx/dims.py: TABLE": OF_THE_TABLE,
    "compiler/onnx/export/graph.py: _schemas": ONE,
    "compiler/onnx/export/graph.py: _version": "4,096 operators of ONNX, with their attributes' names and their types",
    "compiler/onnx/export/table.py: WRITERS": OF_THE_TABLE,
    "compiler/onnx/gradient.py: _RULES": OF_THE_TABLE,
    "compiler/onnx/table.py: _TABLE": "importers of the package's and of users'",
    "compiler/targets/cpu/toolchain/kernels.py: _failed": "4,096 digests of what could not be built, which would be tried again",
    "compiler/operators/own.py: OWN": BY_USERS,
    "compiler/targets/cpu/vectors/simd.py: namespace": "one for each number of lanes",
    "compiler/targets/cpu/target.py: _caches": ONE,
    "compiler/targets/cpu/target.py: of": "one for each CPU that users compile for",
    "compiler/targets/cpu/products/tile.py: tiles": "one for each CPU that users compile for",
    "compiler/operators/regular_expressions.py: _other_cases": "4,096 characters",
    "compiler/operators/regular_expressions.py: pattern_problem": "64 expressions of 10,000 characters, and a line each",
    "compiler/operators/recall.py: _kept": "one for each operator that keeps something, with which it goes",
    "compiler/operators/table.py: TABLE": "operators of the package's and of users'",
    "compiler/targets/cpu/operators/winograd.py: transforms": "one for each size of tile in a table",
    "compiler/passes/patterns.py: parse": "patterns of the package's",
    "compiler/passes/recognise.py: _rules_of": "one for each operator of the table",
    "compiler/targets/emulated/call.py: _assigned": "16 kernels",
    "compiler/targets/emulated/call.py: _code": "16 kernels",
    "compiler/targets/emulated/emitted.py: _c_function": "functions of the C library that elementary ones call",
    "compiler/targets/emulated/emitted.py: _program": "1,024 functions of an element type, a number of lanes and a CPU",
    "compiler/targets/emulated/vectors.py: _constant": "4,096 numbers",
    "compiler/targets/emulated/vectors.py: dtype_of": "element types",
    "compiler/targets/emulated/vocabulary.py: vocabulary": "one for each number of lanes",
    "formats/dtypes.py: _BY_NUMPY": "element types",
    "formats/extensions.py: EXTENSIONS": BY_USERS,
    "formats/host_values.py: _dicts": "64 functions",
    "formats/text/notation.py: _printed_name": "1,024 names of 200 characters",
    "formats/same_file.py: _digests": "1,024 digests of files, which would be read again",
    "formats/schema.py: _parse_dim": "1,024 dimensions of 1,024 characters and 64 terms",
    "formats/strings.py: _gone": "texts whose holders are gone: as many as the calls held, forgotten by the next ones",
    "formats/strings.py: _lasting": "16,384 texts of constants, which PERMANENT holds",
    "formats/strings.py: _others": "texts that somebody holds",
    "formats/strings.py: _texts": "texts that somebody holds: calls, whose budgets count them, and executables",
    "serve/grpc_messages.py: _pool": ONE,
    "serve/grpc_messages.py: message": "messages of the protocol",
    "serve/http_pages.py: _page": ONE,
    "serve/http_tensors.py: _known_answers": "a number of answers' shapes, without elements",
    "serve/http_tensors.py: _known_heads": "a number of short heads of requests, without elements",
    "serve/http_tensors.py: _wire": "element types",
    "text/grammar.py: _processes": "one for each tokenizer, with which it goes",
    "text/decoders.py: _bytes_of_characters": ONE,
    "tvm/_lazy.py: _ABSENT": OF_THE_TABLE,
    "tvm/_lazy.py: _ALIASES": OF_THE_TABLE,
    "tvm/ir/diagnostics.py: _renderers": BY_USERS,
    "tvm/relax/expr.py: OPERATOR_CALLS": OF_THE_TABLE,
    "tvm/relax/frontend/nn/core.py: _default_dtype": ONE,
    "tvm/relay/external.py: _MADE": "weak",
    "tvm/relay/op/contrib/register.py: _TABLES": BY_USERS,
    "tvm/relay/op/matching.py: _elementwise": ONE,
    "tvm/relay/expr.py: OPERATOR_CALLS": OF_THE_TABLE,
    "tvm/relay/expr.py: _OPS": "Relay's operators",
    "tvm/relay/op/table.py: TABLE": OF_THE_TABLE,
    "tvm/relay/libraries.py: library": "two libraries",
    "tvm/rpc/server.py: _servers": "servers that users have started",
    "vm/__init__.py: targets": OF_THE_TABLE,
    "vm/array_memory.py: _accounts": "as many as operators ran at once; arrays may refer to one",
    "vm/array_memory.py: handler_functions": ONE,
    "vm/aside.py: _idle": "threads: as many as operators ran at once",
    "vm/aside.py: _left": "16 operators that nobody waits for, and those that ran when these became 16",
    "vm/blas.py: _users": "threads: as many as operators run at once",
    "vm/blas.py: thread_functions": ONE,
    "native/cache.py: _cache_at": "one for each setting of two variables",
    "vm/calls.py: _machines": "weak",
    "vm/context.py: _contexts": "weak",
    "vm/context.py: _words": "one for each context, which takes it away",
    "vm/context.py: outside": ONE,
    "vm/core.py: engine": ONE,
    "native/numba_frontend.py: _context": "one for each CPU that users compile for",
    "native/numba_frontend.py: _operations": "functions of the package's, and the element types of their operands",
    "tvm/modules/kernel_function.py: machine": "16 of one function, with which they go",
    "vm/library.py: _loaded": "addresses of kernels, each built once: no code is taken away from calls that may run it",
    "vm/library.py: compiler": ONE,
    "tvm/modules/registry.py: _providers": OF_THE_TABLE,
    "tvm/modules/registry.py: loaders": BY_USERS,
    "native/llvm.py: _switches": "one for each CPU that users compile for",
    "native/llvm.py: llvm": ONE,
    "native/loader.py: _libraries": ONE,
    "vm/memory.py: _array_type": "64 types",
    "native/platform.py: _processor": ONE,
    "native/platform.py: _target_of": "one for each setting of a variable",
    "native/platform.py: toolchain": ONE,
    "native/once.py: _locks": "weak",
    "vm/outputs.py: _classes": "weak",
    "decode/engine.py: _engines": "weak",
    "decode/engine.py: _held": "engines, while a process is forked",
    "decode/paged_kernel.py: _helpers": "one for each fork",
    "decode/paged_kernel.py: kernel_for": "kernels, one for each size of heads",
    "vm/python_layout.py: _method": "one for each entry point of the engine that is called as a method",
    "vm/python_layout.py: python_layout": ONE,
    "vm/python_layout.py: without_engine": ONE,
    "tvm/modules/registry.py: _UNCHANGED": BY_USERS,
    "tvm/modules/registry.py: _contained": OF_THE_TABLE,
    "tvm/modules/registry.py: _functions": BY_USERS,
    "tvm/machines/relax/devices.py: _allocated": "weak",
    "tvm/machines/relax/tensor_cache.py: _tensors": "tensors that users of the process, or programs that they trust, name",
    "tvm/machines/relay/program.py: FUNCTIONS": OF_THE_TABLE,
    "native/sources.py: engine_version": ONE,
    "native/sources.py: kernel_version": ONE,
    "native/sources.py: translator_version": ONE,
    "vm/threads.py: _c_library": ONE,
    "vm/threads.py: pool": ONE,
    "vm/watch.py: _ENTRANCES": OF_THE_TABLE,
    "native/words.py: _inlined": OF_THE_TABLE,
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for name, path in package.modules(without={"tools"}).items():  # which end with what they were begun for
        yield name, ast.parse(path.read_text("utf-8"))


def memories() -> set[str]:
    """ "file: name" of caches, and of tables of modules that functions change."""
    found, tables, changed = set(), dict[str, set[str]](), set()
    for path, tree in modules():
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if any(_name(each) in CACHES for each in node.decorator_list):
                    found.add(f"{path}: {node.name}")
                changed |= {(path, name) for name in _changed_in(node)}
            elif isinstance(node, ast.Call) and _name(node) in CACHES & imported:
                found |= {f"{path}: {_name(argument)}" for argument in node.args if isinstance(argument, ast.Name)}
        for node in tree.body:
            value = getattr(node, "value", None)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_container(value):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        tables.setdefault(target.id, set()).add(path)
    for path, name in changed:
        homes = tables.get(name.rpartition(".")[2], set())
        found |= {
            f"{home}: {name.rpartition('.')[2]}" for home in homes if home == path or "." in name or path not in homes
        }
    return found


def _name(node: ast.AST) -> str:
    """The last name of what is called, or stands there."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_container(node: ast.AST | None) -> bool:
    kinds = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
    called = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) else node
    return isinstance(node, kinds) or (isinstance(node, ast.Call) and _name(called) in CONTAINERS)


def _changed_in(function: ast.AST) -> Iterator[str]:
    """Names, and names of attributes with a dot before, of what a function changes in place."""
    for node in ast.walk(function):
        changed = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            changed = node.func.value
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            changed = node.value
        elif isinstance(node, ast.AugAssign):
            changed = node.target
        if isinstance(changed, ast.Name):
            yield changed.id
        elif isinstance(changed, ast.Attribute) and isinstance(changed.value, ast.Name) and changed.value.id != "self":
            yield f".{changed.attr}"


def test_every_memory_of_the_process_is_known() -> None:
    assert memories() == set(MEMORIES)


# ---- what operators keep ----


def test_an_operator_keeps_what_it_made_of_its_last_inputs() -> None:
    before, made = recall.kept_in_all(), list[int]()
    operator, keys = recall.Recall(), np.array([1.0, np.nan])
    for array in (keys, keys.copy(), keys[:1], keys):
        operator.of((array, "name"), lambda _: 1000, lambda: made.append(1))
    assert len(made) == 3
    assert recall.kept_in_all() == before + 1000
    operator.of((keys, "other"), lambda _: recall.MOST + 1, lambda: made.append(1))
    assert operator.of((keys, "name"), lambda _: 1000, lambda: "made") is None  # of before: the other was too large
    others = [recall.Recall() for _ in range(2 * recall.IN_ALL // recall.MOST)]
    for other in others:
        other.of((), lambda _: recall.MOST, int)
    assert recall.kept_in_all() <= recall.IN_ALL
    del operator, other, others
    gc.collect()
    assert recall.kept_in_all() == before


def test_what_a_machine_keeps_of_its_calls_goes_with_it() -> None:
    program = """
    func @main(x: int64[n], keys: int64[m], values: float32[m]) {
      y = look_up(x, keys, values, float32(0.0))
      y
    }
    """
    before = recall.kept_in_all()
    vm = treadle.VirtualMachine(treadle.compile(parse_module(program)))
    for count in range(1, 6):
        keys = np.arange(count)[::-1].copy()
        assert vm["main"](keys, keys, keys.astype(np.float32)).numpy().tolist() == keys.tolist()
        assert recall.kept_in_all() == before + 2 * keys.nbytes
    del vm
    gc.collect()
    assert recall.kept_in_all() == before


def test_names_of_results_are_kept_as_long_as_results() -> None:
    made = outputs_class(("a name that nobody else has",))
    assert outputs_class(("a name that nobody else has",)) is made
    del made
    gc.collect()
    assert ("a name that nobody else has",) not in _classes
