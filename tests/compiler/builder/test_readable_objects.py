"""Whatever a program is made of is shown in one short line."""

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass

import numpy as np
import pytest
import treadle
from treadle import Module, debug, function, named, op, tuple_, var, while_loop
from treadle.compiler import ir
from treadle.formats import primitive, program
from treadle.formats.messages.readable import WIDTH, Readable

LAYERS = 30


@pytest.fixture(scope="module")
def module() -> ir.Module:
    x = var("x" * 300, ("n", 64))
    weights = np.random.default_rng(0).random((64, 64), np.float32)
    value = x
    for _ in range(LAYERS):
        value = op.relu(value @ treadle.constant(weights)) + weights[0]
    looped = while_loop(lambda v: op.sum(v) < 3.0, lambda v: v + 1.0, (value,))[0]
    return Module(main=function([x], tuple_(looped, *(value + number for number in range(LAYERS)))))


@pytest.fixture(scope="module")
def executable(module: ir.Module) -> treadle.Executable:
    return treadle.compile(module, progress=False)


def parts(expr: ir.Expr | ir.Block) -> Iterator[object]:
    yield expr
    blocks = (expr,) if isinstance(expr, ir.Block) else tuple(ir.blocks_of(expr))
    yield from () if isinstance(expr, ir.Block) else ir.atoms_of(expr)
    for block in blocks:
        yield block
        for binding in block.bindings:
            yield from (binding, binding.var)
            yield from parts(binding.value)


def is_short(value: object) -> bool:
    shown = repr(value)
    return len(shown) <= WIDTH and "\n" not in shown


def test_modules_functions_and_nodes_are_shown_in_one_line(module: ir.Module) -> None:
    main = module.functions["main"]
    found = [module, main, *parts(main.body)]
    assert len(found) > 10 * LAYERS
    assert [value for value in found if not is_short(value)] == []


def test_programs_and_primitives_are_shown_in_one_line(executable: treadle.Executable) -> None:
    whole = executable.program
    definitions = [each.definition for each in whole.primitives]
    nodes = [node for definition in definitions for node in definition.nodes]
    found = [whole, *whole.functions, *whole.primitives, *whole.source_map, *definitions, *nodes, executable.lib]
    assert [value for value in found if not is_short(value)] == []


def test_machines_results_and_reports_are_shown_in_few_lines(executable: treadle.Executable) -> None:
    machine = treadle.VirtualMachine(executable)
    result = machine["main"](np.ones((3, 64), np.float32))
    for value in (
        executable,
        machine,
        debug.stats(executable),
        debug.compare(executable),
        op,
        op.conv,
        executable.native,
    ):
        assert len(repr(value)) < 1000
    assert len(repr(result[0])) < 1000


def test_each_class_of_a_program_is_readable() -> None:
    """A new one is not shown by its fields, all of them."""
    for home in (ir, primitive, program):
        source = importlib.import_module(home.__name__)
        for name, kind in inspect.getmembers(source, is_dataclass):
            if inspect.isclass(kind) and kind.__module__ == home.__name__:
                assert kind.__repr__ is Readable.__repr__, name


def test_what_is_shown_of_each() -> None:
    x = var("x", ("n", 4))
    main = Module(main=function([x], named("relu", op.relu(x)) + 1.0)).functions["main"]
    assert repr(main) == "<Function main(x): 2 bindings>"
    assert repr(main.body.bindings[0]) == "<Binding relu = <OperatorCall relu (x)> from relu>"
    assert repr(main.body.bindings[1].value) == "<OperatorCall add (relu, 1.0)>"
    assert repr(main.params[0]) == "<Var x: float32[n, 4]>"
    small = treadle.compile(function([x], op.relu(x)), progress=False).program
    assert repr(small) == "<Program of 1 functions (main), 1 primitives, 0 constants>"
    assert repr(small.primitives[0]).startswith("<Primitive relu: relu: fn(float32[")


def test_to_show_a_weight_settles_nothing() -> None:
    """Reading a weight's value makes the result depend on it; printing it does not."""
    settled: set[str] = set()
    weight = ir.Weight(np.ones((2, 2), np.float32), frozenset({"w"}), settled)
    assert repr(weight) == "<Weight float32[2, 2]>"
    assert not settled
