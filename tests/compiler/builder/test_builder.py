"""The Python front door: what it knows of types before inference, and what it refuses on the line that makes it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.compiler import ir
from treadle.compiler.builder.programs import (
    Module,
    data_type,
    field,
    for_loop,
    function,
    global_function,
    if_,
    match_,
    op,
    tuple_,
    var,
    while_loop,
)
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.ir.text import parse_module, print_module
from treadle.formats import dims
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import InferenceError, TreadleError
from treadle.formats.types import FunctionType, TensorType

from ..samples import floats
from ..structure import structurally_equal
from ..test_compile import assert_equal
from ..test_made_programs import check

N, M = dims.variable("n"), dims.variable("m")


def matrix(*shape: Any, dtype: DType = DType.float32) -> TensorType:
    return TensorType(dtype, shape)


def x() -> Any:
    return var("x", ("n", 8))


def result_type(module: ir.Module) -> str:
    return str(infer_types(module).functions["main"].result_type)


# ---- sizes that nobody knows ----


def test_rows_that_inference_let_pass_are_checked_when_the_program_runs() -> None:
    first, second = x(), var("y", (2, 8))
    rows = if_(op.sum(first) > 0, first, second)
    joined = op.concat(op.sigmoid(first), rows, axis=1)
    check(Module(main=function([first, second], tuple_(op.exp(rows), joined))), floats(2, 8), floats(2, 8))


@pytest.mark.parametrize(
    "use",
    [
        lambda a, b, x: tuple_(op.exp(a), a + b),  # may broadcast
        lambda a, b, x: tuple_(op.exp(a), op.exp(b), a * x, op.maximum(b, x)),
        lambda a, b, x: tuple_(op.exp(a), op.exp(b), op.concat(a, b, x, axis=1)),
        lambda a, b, x: tuple_(op.exp(a), op.matmul(op.permute_dims(a), x), op.matmul(op.permute_dims(b), a)),
        lambda a, b, x: tuple_(op.exp(a), op.where(x > 0, a, x), op.stack(a, b)),
        lambda a, b, x: tuple_(op.tanh(a), op.reshape(a, shape=(2, 8)) + b, op.softmax(op.concat(a, a, axis=1))),
    ],
)
def test_tensors_of_unknown_rows_go_wherever_inference_lets_them(use: Any) -> None:
    first, second = x(), var("y", (2, 8))
    condition = op.sum(first) > 0
    a, b = if_(condition, first, second), if_(condition, second, first)
    check(Module(main=function([first, second], use(a, b, first))), floats(2, 8), floats(2, 8))


def test_where_one_row_broadcasts_nothing_is_checked() -> None:
    first, second = x(), var("y", (1, 8))
    rows = if_(op.sum(first) > 1e9, first, second)
    check(Module(main=function([first, second], tuple_(op.exp(rows), rows + first))), floats(3, 8), floats(1, 8))


def test_what_is_found_in_two_tensors_may_broadcast() -> None:
    first = x()
    found = op.nonzero(first > 0), op.nonzero(first > 0.5)
    check(
        Module(main=function([first], tuple_(op.abs(found[0]), op.maximum(found[0], found[1])))),
        np.ones((2, 8), np.float32),
    )


# ---- calls ----


def test_the_call_of_a_declared_function_has_the_sizes_of_its_arguments() -> None:
    z = var("z", ("m", 8))
    g = global_function("g", FunctionType((matrix(N, 8),), matrix(N, 8)))
    assert g(z).type == matrix(M, 8)
    y = x()
    module = Module(main=function([z], g(z) + z), g=function([y], y * 2))
    assert result_type(module) == "float32[m, 8]"


def test_the_call_of_a_closure_has_the_sizes_of_its_arguments_or_none() -> None:
    z, inner = var("z", ("m", 8)), var("inner", ("k", 8))
    closure = function([inner], inner * 2)
    check(Module(main=function([z], op.concat(closure(z), z))), floats(3, 8))


def test_a_declared_function_of_sums_of_sizes() -> None:
    g = global_function("g", FunctionType((matrix(N), matrix(M)), matrix(N + M * 2)))
    assert g(var("a", (3,)), var("b", ("k",))).type == matrix(dims.variable("k") * 2 + 3)


# ---- numbers ----


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
def test_a_number_takes_the_type_of_what_inference_finds(dtype: str) -> None:
    y = var("y", (4,), dtype)
    g = global_function("g")
    main = function([y], tuple_(g(y) * 2, 3 + g(y), g(y) > 1))
    inner = var("y", (4,), dtype)
    module = Module(main=main, g=function([inner], inner + inner))
    assert result_type(module) == f"({dtype}[4], {dtype}[4], bool[4])"
    got = evaluate(infer_types(module), "main", np.ones(4, dtype))
    assert [part.tolist() for part in got] == [[4] * 4, [5] * 4, [True] * 4]


def test_a_number_of_a_type_to_be_found_is_kept_in_the_text() -> None:
    y = x()
    module = Module(main=function([y], global_function("g")(y) * 2.5), g=function([y], y))
    assert "~float32(2.5)" in print_module(module)
    assert structurally_equal(parse_module(print_module(module)), module)


def test_a_number_takes_no_type_from_a_condition_or_an_index() -> None:
    y = x()
    unknown = global_function("g")(y)
    results = tuple_(op.where(y > 0, y, 0.5), op.where(y > 0, unknown, 2), op.take(y, 0), op.take(unknown, 1, axis=1))
    check(Module(main=function([y], results), g=function([y], y + 1)), floats(3, 8))


def test_a_number_as_an_argument_takes_the_type_that_is_asked_for() -> None:
    pair = data_type("Scaled = Scaled(float64[], float64[?])")
    y = var("y", (3,), "float64")
    g = global_function("g", FunctionType((matrix(dtype=DType.float64), y.type), y.type))
    by, inner = var("by", (), "float64"), var("inner", (3,), "float64")
    taken = match_(pair.Scaled(2, y), {pair.Scaled: lambda a, b: a * b})
    check(Module(main=function([y], tuple_(g(2, y), taken)), g=function([by, inner], by * inner)), np.ones(3))


@pytest.mark.parametrize(("dtype", "number"), [("int32", 2.5), ("uint8", 300), ("int8", -200)])
def test_a_number_that_the_type_does_not_hold(dtype: str, number: float) -> None:
    y = var("y", (4,), dtype)
    with pytest.raises(InferenceError, match=rf"expected a number that {dtype} can hold, got {number}"):
        y * number
    module = Module(main=function([y], global_function("g")(y) * number), g=function([y], y))
    with pytest.raises(InferenceError, match=rf"expected a number that {dtype} can hold, got {number}"):
        infer_types(module)


# ---- tuples whose types are not known ----


def test_the_results_of_a_loop_are_a_tuple_whatever_their_types() -> None:
    y = x()
    g = global_function("g")
    looped = for_loop(3, lambda i, a: a * 0.5, [g(y)])
    last = while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a + y), [0, g(y)])
    chosen = if_(op.sum(y) > 0, (g(y), y), (y, g(y)))
    number, value = last
    results = tuple_(looped[0], value, number, chosen[-1], tuple_(g(y), y)[0][0])
    check(Module(main=function([y], results), g=function([y], y + 1)), floats(2, 8))


def test_a_field_that_is_known_beside_one_that_is_not() -> None:
    y = x()
    pair = tuple_(global_function("g")(y), y)
    assert pair.type is None
    assert pair[1].type == field(pair, 1).type == y.type
    with pytest.raises(IndexError):
        pair[2]


# ---- loops ----


def test_loops_whose_bodies_take_any_number_of_variables() -> None:
    y = x()
    counted = for_loop(3, lambda i, *a: (a[1] * 0.5, a[0] + 1.0), [y, op.tanh(y)])
    whiles = while_loop(lambda i, *rest: i < 2, lambda *all_: (all_[0] + 1, *all_[1:]), [0, y, y])
    one = for_loop(2, lambda *a: (a[1] * 2.0,), [y])
    check(Module(main=function([y], tuple_(counted[0], counted[1], whiles[2], one[0]))), floats(2, 8))


def test_loops_whose_bodies_are_other_callables_or_have_defaults() -> None:
    y = x()
    scaled = for_loop(2, partial(lambda by, i, a: a * by, 0.5), [y])
    default = for_loop(2, lambda i, a, by=0.5: a * by, [y])
    check(Module(main=function([y], tuple_(scaled[0], default[0]))), floats(2, 8))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda y: for_loop(3, lambda i, a, b: (a, b), [y]), "the body takes 3 variables, but there are 2"),
        (lambda y: for_loop(3, lambda i: i, [y]), "the body takes 1 variables, but there are 2"),
        (lambda y: for_loop(3, lambda i, a: (a, a), [y, y]), "the body takes 2 variables, but there are 3"),
        (lambda y: for_loop(3, lambda i, a, b: (a,), [y, y]), "the body gives 1 values for 2 variables"),
        (lambda y: while_loop(lambda a: a, lambda i, a: (i, a), [0, y]), "the condition takes 1 variables"),
        (lambda y: while_loop(lambda *a: a[0], lambda i, *, k: i, [0]), "must not need the keyword argument 'k'"),
    ],
)
def test_bodies_that_do_not_fit_their_loop(make: Any, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        make(x())


# ---- variables ----


def test_a_variable_is_one_parameter() -> None:
    y = x()
    with pytest.raises(InferenceError, match="the variable 'x' is parameter 1, and one before it too"):
        function([y, y], y + 1.0)


@pytest.mark.parametrize("param", [x() + 1.0, 3, None])
def test_a_parameter_is_a_variable(param: Any) -> None:
    with pytest.raises(InferenceError, match=r"parameter 0 is .*; expected a variable, made by var"):
        function([param], x())


def test_a_variable_stands_once_in_a_pattern() -> None:
    pair = data_type("Pair = Pair(float32[], float32[])")
    twice = ir.Bind(ir.Var("a"))
    with pytest.raises(InferenceError, match="stands twice in a pattern"):
        match_(pair.Pair(1.0, 2.0), [(ir.ConstructorPattern("Pair", (twice, twice)), lambda a, b: a)])
    with pytest.raises(InferenceError, match="the clause of Pair takes 1 variables, but there are 2"):
        match_(pair.Pair(1.0, 2.0), {pair.Pair: lambda a: a})


def test_one_variable_may_be_a_parameter_of_several_functions() -> None:
    y = x()
    module = Module(main=function([y], global_function("g")(y)), g=function([y], y * 2.0))
    assert_equal(evaluate(infer_types(module), "main", floats(2, 8)), floats(2, 8) * 2)


def test_an_expression_of_a_parameter_stays_in_its_function():
    x, y = var("x", ()), var("y", ())
    for build, expected in (
        (lambda e: function([x], function([x], x * 2 + 1)(x * 2)), 5),
        (lambda e: function([x], function([y], e + y)(e)), 4),
        (lambda e: function([y], function([x], e + 1)(y)), 3),
    ):
        assert treadle.VirtualMachine(treadle.compile(build(x * 2), progress=False))(1.0).tolist() == expected
    for build in (
        lambda e: function([x], function([x], e + 1)(e)),
        lambda e: function([x], function([y], function([x], e + 1)(y) + e)(x)),
        lambda e: function([y], function([y], function([x], e + 1)(y) + e)(y)),
    ):
        with pytest.raises(
            InferenceError, match="is an expression of 'x', and is used in a function that has this variable"
        ):
            treadle.compile(build(x * 2), progress=False)


def test_types_tell_a_module_what_they_are_of():
    """A function that makes and matches nothing of a data type may take it and give it."""
    shape = data_type("Shape = Circle(float32[]) | Square(float32[])")
    item, call = var("item", shape()), var("call", FunctionType((shape(),), shape()))
    for main in (function([item], item), function([call, item], call(item)), function([item], tuple_(item, item))):
        assert list(Module(main=main).data_types) == ["Shape"]
    machine = treadle.VirtualMachine(treadle.compile(function([item], item), progress=False))
    assert repr(machine(shape.Square(2.0))) == repr(machine(shape.Square(2.0)))
    other = data_type("Shape = Line")
    with pytest.raises(
        InferenceError, match=r"data type 'Shape' is data Shape = Circle.* and data Shape = Line; a name has"
    ):
        Module(main=function([item], item), other=function([var("item", other())], 1.0))


# ---- draws ----


def drawing(seed=None):
    x = var("x", ("n", 4))
    draws = (
        op.random_normal(shape=("n", 4), mean=1, scale=2, seed=seed),
        op.random_uniform(shape=x.shape, low=2, high=3, seed=seed),
    )
    return function([x], (*draws, op.bernoulli(x * 0.25, seed=seed), op.dropout(x, ratio=0.25, seed=seed)))


def test_draws_are_others_in_each_call_unless_a_seed_says_which():
    x = np.ones((2000, 4), np.float32)
    machine, seeded = (treadle.VirtualMachine(treadle.compile(drawing(seed), progress=False)) for seed in (None, 7))
    first, second = machine["main"](x), machine["main"](x)
    assert not any(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(seeded["main"](x), seeded["main"](x), strict=True))
    for normal, uniform, ones, dropped in (first, seeded["main"](x)):
        assert abs(normal.numpy().mean() - 1) < 0.1
        assert abs(normal.numpy().std() - 2) < 0.1
        assert 2 <= uniform.numpy().min() < 2.01
        assert 2.99 < uniform.numpy().max() < 3
        assert set(np.unique(ones)) == {0, 1}
        assert abs(ones.numpy().mean() - 0.25) < 0.02
        assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.75)}
        assert abs(dropped.numpy().mean() - 1) < 0.02


def test_each_draw_is_its_own_and_equal_programs_have_equal_bytes():
    one, other = (treadle.compile(drawing(), progress=False, embed_native=False) for _ in range(2))
    assert one.as_bytes() == other.as_bytes()
    x = var("x", (4,))
    twice = function([x], (op.random_normal(shape=(4,)), op.random_normal(shape=(4,))))
    a, b = treadle.VirtualMachine(treadle.compile(twice, progress=False))["main"](np.ones(4, np.float32))
    assert not np.array_equal(a, b)


@pytest.mark.filterwarnings("ignore:the host evaluates")
def test_a_draw_in_a_loop_is_another_one_in_each_round():
    n = var("n", (), "int64")
    body = lambda i, total, last: (total, op.random_uniform(shape=(), seed=None) * 0 + op.random_uniform(shape=()))  # noqa: E731
    start = [np.float32(0), np.float32(0)]
    machine = treadle.VirtualMachine(treadle.compile(function([n], treadle.for_loop(n, body, start)), progress=False))
    assert len({float(machine["main"](np.int64(rounds))[1].numpy()) for rounds in (1, 2, 3)}) == 3


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda x: op.random_normal(shape=("?",)), "shape: a size is"),
        (lambda x: op.random_normal(shape=(2,), dtype="int64"), "expected an element type of floats"),
        (lambda x: op.random_uniform(shape=(2,), low="a"), "low: expected a finite number"),
        (lambda x: op.random_uniform(shape=(2,), seed=-1), "seed: expected None, or an integer of 64 bits"),
        (lambda x: op.dropout(x, ratio=1), "ratio=1: expected 0 or more, and less than 1"),
        (lambda x: op.dropout(x.astype("int64")), "expected floats"),
        (lambda x: op.bernoulli(3), "expected a tensor whose shape is known"),
        (lambda x: op.dropout(x, rate=1), "'rate' is not a parameter"),
    ],
)
def test_draws_that_do_not_fit_are_told(draw, message):
    with pytest.raises(TreadleError, match=message):
        draw(var("x", (2,)))
