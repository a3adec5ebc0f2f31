"""What the compiler makes, the verifier takes; and where it does not, the error says whose fault that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from treadle.compiler import ir
from treadle.compiler.builder.programs import (
    Module,
    constant,
    function,
    global_function,
    if_,
    match_shape,
    named,
    op,
    tuple_,
    var,
    while_loop,
)
from treadle.compiler.codegen.functions import memory
from treadle.compiler.driver import compile_module
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.formats import dims
from treadle.formats.messages.errors import CompileError, ExecutionError, MiscompilationError, TreadleError
from treadle.tools.dev.zoo.catalogue import CATALOGUE
from treadle.vm.verify.verifier import verify

from .samples import floats
from .test_compile import assert_equal, run, saved


def check(module: ir.Module, *arguments: np.ndarray) -> None:
    """The machine takes the program, at each level, and gives what the evaluator gives."""
    expected = evaluate(infer_types(module), "main", *arguments)
    for level in (0, 1, 2):
        assert_equal(run(saved(module, opt_level=level), *arguments), expected)


def test_what_lies_in_the_frame_is_not_written_over_what_lies_on_the_heap() -> None:
    x = var("x", ("n", 8))
    check(
        Module(main=function([x], op.softmax(op.sigmoid(op.reshape(op.softmax(x), shape=(2, 8)))))),
        floats(2, 8),
    )


@pytest.mark.parametrize("shape", [("n", 3), (2, "m"), (2, 3), ("a", "b"), ("n", "k"), ("n + 0", 3)])
def test_a_tensor_whose_shape_was_checked_is_still_used_by_its_old_one(shape: tuple) -> None:
    x = var("x", ("n", "m"))
    checked = match_shape(x, shape)
    total = op.softmax(checked) + op.reshape(op.softmax(x, axis=0), shape=shape)
    check(Module(main=function([x], tuple_(op.softmax(x), total, checked, op.tanh(x)))), floats(2, 3))


def test_a_shape_that_was_checked_for_a_call_does_not_rename_the_argument() -> None:
    x, y = var("x", ("n", "m")), var("y", ("n", "m"))
    inner = function([y], match_shape(y, (2, "m")) * 2.0)

    called = global_function("inner")(x)
    check(Module(main=function([x], tuple_(called, op.softmax(x))), inner=inner), floats(2, 3))


@pytest.mark.parametrize("count", [0, 2, 3, 4, 5, 9])
def test_a_slice_that_begins_before_the_first_element_begins_at_the_end(count: int) -> None:
    x, y = var("x", ("n", 3)), var("y", ("m",))
    last = op.slice(x, starts=(dims.variable("m") - 4,), ends=(2**62,), axes=(0,))
    arrays = floats(5, 3), np.zeros(count, np.float32)
    check(Module(main=function([x, y], last * 2.0)), *arrays)
    assert_equal(evaluate(infer_types(Module(main=function([x, y], last))), "main", *arrays), arrays[0][count - 4 :])


def test_sizes_known_before_nested_loops_are_known_in_them() -> None:
    x = var("x", ("n", 8))

    def outer(i: Any, a: Any, b: Any) -> tuple:
        grown = op.concat(a, a)
        inner = while_loop(lambda j, c: j < 2, lambda j, c: (j + 1, op.concat(c, a)), [0, a])[1]
        return i + 1, op.slice(grown, starts=(0,), ends=(3,)), op.slice(inner, starts=(1,), ends=(5,))

    check(Module(main=function([x], while_loop(lambda i, a, b: i < 3, outer, [0, x, x])[2])), floats(2, 8))


def numbers_of(array: np.ndarray) -> Any:
    """Where an array is not zero."""
    return op.squeeze(op.nonzero(constant(array)), axes=(0,))


KERNELS = {
    "pad": lambda x, size: op.pad(x, pads=(0, size), value=0.5),
    "arange": lambda x, size: op.arange(stop=size * size),
    "slice": lambda x, size: op.slice(op.pad(x, pads=(1, 2), value=0.5), starts=(0,), ends=(size,)),
    "full": lambda x, size: op.full(shape=(size * 2, 3), value=0.5, dtype="float32"),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_told_sizes_that_stand_in_no_shape(kernel: str) -> None:
    """A size that is solved for, that a value gives, or that a match binds to a computed dimension."""
    use, size, x, k = KERNELS[kernel], dims.variable("d"), var("x", ("m",)), var("k", (), "int64")
    check(Module(main=function([y := var("y", ("2*d + 3",))], use(y, size))), floats(9))
    check(Module(main=function([y := var("y", ("2 - d",))], use(y, size))), floats(1))

    given = match_shape(op.extent(k), ("d",))
    check(Module(main=function([x, k], tuple_(given, use(x, size)))), floats(4), np.array(3))

    grown = match_shape(if_(op.sum(x) > 0, op.concat(x, x), op.concat(x, x * 2.0)), ("d",))
    check(Module(main=function([x], tuple_(grown, use(x, size)))), floats(4))


def test_a_part_may_begin_at_a_size_though_all_shapes_are_known() -> None:
    x, y = var("x", ("n", 2)), var("y", (8,))
    check(
        Module(main=function([x, y], tuple_(op.slice(y, starts=("n",), ends=(0,)), op.tanh(x)))),
        floats(2, 2),
        floats(8),
    )


def test_rows_without_columns_are_as_many_as_anybody_says() -> None:
    x, y, none = var("x", ("m", 8)), var("y", ("n",)), constant(np.zeros((8, 0), np.float32))
    apart = op.reshape(op.sigmoid(op.matmul(x, none)), shape=(2, "n", 0))
    check(Module(main=function([x, y], tuple_(apart, y))), floats(3, 8), floats(5))


def test_a_size_that_divides_by_zero_is_named() -> None:
    x, y = var("x", ("n",)), var("y", ("m",))
    module = Module(main=function([x, y], op.full(shape=("(8*m) // n",), value=0.5, dtype="float32")))
    check(module, floats(2), floats(3))
    with pytest.raises(ExecutionError, match="divides by zero for m = 3, n = 0"):
        evaluate(infer_types(module), "main", floats(0), floats(3))
    with pytest.raises(ExecutionError, match="floor_divide by zero"):
        run(saved(module), floats(0), floats(3))


def test_a_closure_knows_the_sizes_of_what_it_captures() -> None:
    x, y = var("x", ("n",)), var("y", ("m",))
    cut = op.slice(x, starts=(0,), ends=("m",))  # as many as the smaller of the two
    total, given = function([p := var("p", ())], op.sum(cut) * p), function([q := var("q", ())], q)
    chosen = if_(op.sum(y) > 0, total, given)
    check(Module(main=function([x, y], tuple_(cut, chosen(op.sum(x))))), floats(3), floats(2))


@pytest.mark.parametrize(("size", "rows"), [("2*k", 6), ("k + 3", 5), ("2*k - 1", 5)])
def test_a_closure_knows_the_sizes_that_its_parameters_are_linear_in(size: str, rows: int) -> None:
    def filled(value: float) -> Any:
        return function([var("y", (size, 2))], op.full(shape=("k", 3), value=value, dtype="float32"))

    x, given = var("x", (rows, 2)), var("x", (size, 2))
    check(Module(main=function([x], if_(op.sum(x) > 0, filled(0.5), filled(1.0))(x))), floats(rows, 2))

    around = function([var("z", (3,))], op.full(shape=("k", 3), value=0.5, dtype="float32"))
    check(Module(main=function([given], around(constant(np.ones(3, np.float32))))), floats(rows, 2))


@pytest.mark.parametrize("number", [-2, 0, 3])
def test_a_tensor_that_is_made_for_its_size_has_elements(number: int) -> None:
    check(Module(main=function([k := var("k", (), "int64")], op.extent(k))), np.array(number))


def columns(x: Any, start: Any, end: Any) -> Any:
    return op.slice(x, starts=(start,), ends=(end,), axes=(1,))


def padded(x: Any, columns: int) -> Any:
    return op.pad(x, pads=(0, 0, 0, columns), value=0)


ASKED = {
    "1, beside what is cut and broadcasts": lambda found: found - columns(found, -1, 2**62),
    "1, beside what is cut twice": lambda found: columns(found, -2, 2**62) - columns(found, -1, 2**62),
    "a number that is the most": lambda found: op.concat(found, columns(found, -3, 2**62), axis=0),
    "a size that is the most": lambda found: op.concat(found, columns(found, 0, "n"), axis=0),
    "a number that is the least": lambda found: op.concat(
        columns(padded(found, 3), 0, 3), columns(found, 0, 3), axis=0
    ),
    "another number, after all": lambda found: op.concat(columns(padded(found, 1), 0, 3), columns(found, 0, 4), axis=0),
}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("use", ASKED)
def test_a_name_is_no_dimension_that_it_merely_fits(use: str, count: int) -> None:
    """What an operator asks of a size that a run finds is what it cannot do without."""
    x = var("x", ("n",), "int32")
    module = Module(main=function([x], ASKED[use](op.nonzero(x))))
    array = np.array([1] * count + [0] * (6 - count), np.int32)
    try:
        evaluate(infer_types(module), "main", array)
    except TreadleError:
        for level in (0, 1, 2):
            with pytest.raises(TreadleError):
                run(saved(module, opt_level=level), array)
    else:
        check(module, array)


FOUND = {
    "the branch of an if": lambda x: if_(constant(np.array(False)), x, op.concat(x, x)),
    "a constant's elements": lambda x: op.take(constant(np.ones((3, 4), np.float32)), numbers_of(np.ones(3)), axis=0),
    "a field of a tuple": lambda x: if_(constant(np.array(False)), tuple_(x), tuple_(op.concat(x, x)))[0],
}
USES = {
    "broadcast": lambda y, x: op.softmax(y) * x,
    "concat": lambda y, x: op.concat(y, x, axis=1),
    "where": lambda y, x: op.where(y > x, x, y),
    "reshape": lambda y, x: op.reshape(y, shape=(2, 4)) * 0.5,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize("rows", [2, "n"])
def test_what_can_only_fail_fails_when_the_program_comes_to_it(found: str, use: str, rows: int | str) -> None:
    """Inference lets ? pass; what other passes put in its place may not fit."""
    x = var("x", (rows, 4))
    y = FOUND[found](x)
    module = Module(main=function([x], if_(op.sum(x) > 0, x, USES[use](y, x))))
    check(module, np.ones((2, 4), np.float32))
    for level in (0, 1, 2):
        with pytest.raises(TreadleError) as raised:
            run(saved(module, opt_level=level), np.zeros((2, 4), np.float32))
        assert not isinstance(raised.value, CompileError)


@pytest.mark.parametrize("name", ["unet", "swin", "efficientnet-b0", "convnext-atto", "gpt2-decode"])
def test_models_with_a_symbolic_batch(name: str) -> None:
    from treadle.compiler.onnx.importer import from_onnx

    model = CATALOGUE[name].build()
    shapes = {}
    for info in model.graph.input:
        dims = [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]
        shapes[info.name] = ["batch", *dims[1:]]
    verify(compile_module(from_onnx(model, shapes=shapes)).program)


def test_a_fault_of_the_compiler_names_the_node_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_place", lambda buffers: 0)  # a planner that takes no memory
    x = var("x", (2, 8))

    first = named("encoder/first", op.softmax(x))
    module = Module(main=function([x], named("encoder/second", op.softmax(first))))
    with pytest.raises(MiscompilationError, match="fault of Treadle, not of the model; please report it") as raised:
        compile_module(module)
    assert raised.value.node == "encoder/first"
    assert raised.value.function == "main"
