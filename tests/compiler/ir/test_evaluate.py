"""The reference evaluator, on programs that one can work out by hand; many are those of TVM's own tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from treadle.compiler.builder.programs import (
    Expression,
    Module,
    constant,
    data_type,
    for_loop,
    function,
    global_function,
    if_,
    match_,
    match_shape,
    named,
    op,
    tuple_,
    var,
    while_loop,
)
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.ir.text import parse_module
from treadle.formats.messages.errors import (
    ArgumentError,
    BudgetExceededError,
    ExecutionError,
    IndexOutOfRangeError,
    InferenceError,
    ShapeError,
    UnknownFunctionError,
)
from treadle.vm.values import DataValue

from ..prelude import with_prelude

List = data_type("List[a] = Nil | Cons(a, List[a])")


def call(name: str, *args: Any) -> Expression:
    return global_function(name)(*args)


def list_of(*values: float) -> Expression:
    result = List.Nil()
    for value in reversed(values):
        result = List.Cons(value, result)
    return result


def plain(value: Any) -> Any:
    """Lists as Python's, tensors as numbers."""
    if isinstance(value, DataValue):
        return [plain(value.fields[0]), *plain(value.fields[1])] if value.fields else []
    return tuple(map(plain, value)) if isinstance(value, tuple) else value.tolist()


def run(result: Any, *params: Expression, args: tuple = (), **helpers: Any) -> Any:
    module = with_prelude(Module(main=function(list(params), result), **helpers))
    return plain(evaluate(infer_types(module), "main", *args))


A, B = var("a", ()), var("b", ())


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (lambda xs: call("head", xs), 1),
        (lambda xs: call("tail", xs), [2, 3]),
        (lambda xs: call("nth", xs, 2), 3),
        (lambda xs: call("update", xs, 1, 9.0), [1, 9, 3]),
        (lambda xs: call("length", xs), 3),
        (lambda xs: call("map", function([A], A * A), xs), [1, 4, 9]),
        (lambda xs: call("foldl", function([A, B], A - B), 0.0, xs), -6),
        (lambda xs: call("foldr", function([A, B], A - B), 0.0, xs), 2),
        (lambda xs: call("foldl", function([A, B], A + B), 0.0, xs), 6),
        (lambda xs: call("filter", function([A], A > 1.5), xs), [2, 3]),
        (lambda xs: call("append", xs, xs), [1, 2, 3, 1, 2, 3]),
        (lambda xs: call("reverse", xs), [3, 2, 1]),
        (lambda xs: call("zip", xs, call("reverse", xs)), [(1, 3), (2, 2), (3, 1)]),
        (lambda xs: call("compose", function([A], A + 1.0), function([A], A * 10.0))(call("head", xs)), 11),
        (lambda xs: call("iterate", function([A], A * 2.0), 10)(constant(1.0)), 1024),
    ],
)
def test_the_prelude(result: Any, expected: Any) -> None:
    assert run(result(list_of(1.0, 2.0, 3.0))) == expected


def test_the_smallest_program() -> None:
    x = var("x", (10, 10))
    module = infer_types(Module(main=function([x], x + x)))
    np.testing.assert_array_equal(
        evaluate(module, "main", np.ones((10, 10), np.float32)), np.full((10, 10), 2, np.float32)
    )


def test_recursion() -> None:
    n = var("n", (), "int64")
    factorial = function([n], if_(n <= 1, 1, n * call("factorial", n - 1)))
    assert run(call("factorial", 10), factorial=factorial) == 3628800


def test_recursion_is_as_deep_as_memory_allows_or_as_it_is_told() -> None:
    n = var("n", (), "int64")
    module = infer_types(Module(depth=function([n], if_(n <= 0, 0, 1 + call("depth", n - 1)))))
    assert evaluate(module, "depth", 3000) == 3000
    with pytest.raises(BudgetExceededError) as error:
        evaluate(module, "depth", 3000, max_depth=1000)
    assert error.value.budget == "depth"


def test_a_closure_keeps_the_variables_of_its_round() -> None:
    """Functions made in a loop are over that round's variables, not the last one's."""
    text = """
    data Functions = Empty | One(fn(int64[]) -> int64[], Functions)
    func @main() {
      none = Functions::Empty()
      last = loop (i: int64[] = int64(0), all: Functions = none) while { c = less(i, int64(3)) c } do {
        f = fn(x: int64[]) -> int64[] { y = add(x, i) y }
        more = Functions::One(f, all)
        next = add(i, int64(1))
        both = (next, more)
        both
      }
      made = last[1]
      sum = @apply(made)
      sum
    }
    func @apply(all: Functions) -> int64[] {
      sum = match all {
        Empty() => { int64(0) }
        One(f, rest) => { y = call f(int64(10)) others = @apply(rest) sum = add(y, others) sum }
      }
      sum
    }"""
    assert evaluate(infer_types(parse_module(text)), "main") == 33


def test_loops() -> None:
    k = var("k", (), "int64")
    assert run(for_loop(k, lambda i, total: total + i, [0]), k, args=(5,)) == (10,)
    assert run(while_loop(lambda i, x: i < k, lambda i, x: (i + 1, x * 2.0), [0, 1.0]), k, args=(5,)) == (5, 32)


def test_a_loop_may_change_shapes() -> None:
    x, k = var("x", ("n",)), var("k", (), "int64")
    grown = for_loop(k, lambda i, v: op.concat(v, x), [x])
    assert run(grown[0], x, k, args=(np.array([1, 2], np.float32), 2)) == [1, 2, 1, 2, 1, 2]


def test_only_the_chosen_branch_is_computed() -> None:
    x = var("x", (), "int64")
    assert run(if_(x == 0, 0, 10 // x), x, args=(0,)) == 0


def test_match_takes_the_first_clause_that_fits() -> None:
    xs = list_of(1.0, 2.0)
    assert run(match_(xs, {List.Nil: 0.0, List.Cons: lambda first, rest: first})) == 1
    with pytest.raises(ExecutionError, match="no clause of a match fits"):
        run(match_(List.Nil(), {List.Cons: lambda first, rest: 1.0}))


def test_symbolic_dimensions_are_those_of_the_arguments() -> None:
    x = var("x", ("n", 2))
    result = tuple_(op.shape_tensor(dims=("n", "2*n")), op.reshape(x, shape=("2*n",)))
    assert run(result, x, args=(np.zeros((3, 2), np.float32),)) == ([3, 6], [0] * 6)


def test_match_shape_fails_for_another_shape() -> None:
    x = var("x", ("n", "m"))
    square = match_shape(x, ("n", "n"))
    assert run(square, x, args=(np.ones((1, 1), np.float32),)) == [[1]]
    with pytest.raises(ShapeError, match=r"expected dimension n \(n = 1\), got 2"):
        run(square, x, args=(np.zeros((1, 2), np.float32),))


def test_errors_name_the_node() -> None:
    x, i = var("x", (3,)), var("i", (), "int64")
    with pytest.raises(
        IndexOutOfRangeError, match=r"index 7 is out of range for an axis of 3 elements, axis 0 \[node 'lookup'\]"
    ):
        run(named("lookup", op.take(x, i)), x, i, args=(np.zeros(3, np.float32), 7))


def test_arguments_are_checked() -> None:
    x = var("x", (2,))
    module = infer_types(Module(main=function([x], x)))
    with pytest.raises(ArgumentError, match=r"expected 1 arguments \(x\), got 0"):
        evaluate(module, "main")
    with pytest.raises(ArgumentError, match=r"parameter 'x': expected float32\[2\], got int64\[2\]"):
        evaluate(module, "main", np.array([1, 2]))
    with pytest.raises(ShapeError, match="parameter 'x' of main: expected dimension 2, got 3"):
        evaluate(module, "main", np.zeros(3, np.float32))
    with pytest.raises(UnknownFunctionError, match="there is no function 'f'; the module has main"):
        evaluate(module, "f")


# ---- the builder ----


def test_numbers_take_the_element_type_of_what_they_meet() -> None:
    x = var("x", (2,), "float64")
    assert (x * 2 + 1.5).dtype is x.dtype
    with pytest.raises(InferenceError, match=r"expected a number that int32 can hold, got 1.5"):
        var("i", (), "int32") + 1.5


def test_mistakes_are_reported_on_the_line_that_makes_them() -> None:
    with pytest.raises(InferenceError, match=r"expected shapes that broadcast, got \[2\] and \[3\]"):
        var("x", (2,)) + var("y", (3,))
    with pytest.raises(TypeError, match="no truth value"):
        bool(var("x", ()) > 1.0)
    with pytest.raises(AttributeError, match="no operator 'sofmax'"):
        op.sofmax(var("x", (2,)))


def test_shared_expressions_are_bound_once_where_all_uses_see_them() -> None:
    x = var("x", ())
    shared, single = op.exp(x), op.tanh(x)
    module = Module(main=function([x], if_(x > 0.0, shared + single, shared * 2.0)))
    outer = [binding.var.name for binding in module.functions["main"].body.bindings]
    assert outer == ["greater", "exp", "chosen"]


def test_graphs_of_any_depth() -> None:
    x = var("x", (2,))
    deep = x
    for _ in range(5000):
        deep = op.negative(deep)
    module = infer_types(Module(main=function([x], deep)))
    assert evaluate(module, "main", np.array([1, 2], np.float32)).tolist() == [1, 2]


def test_indexing() -> None:
    x = var("x", (3, 4))
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    for index in (0, -1, slice(1, None), slice(None, None, -1), (slice(0, 2), -2), (1, slice(None, 1, -2))):
        assert run(x[index], x, args=(value,)) == value[index].tolist()


def test_a_dimension_variable_may_occur_only_in_a_product() -> None:
    module = infer_types(parse_module("func @main(x: float32[2 * n]) {\n  r = reshape(x) {shape=(<n>, 2)}\n  r\n}"))
    assert evaluate(module, "main", np.zeros(6, np.float32)).shape == (3, 2)
    with pytest.raises(ShapeError, match=r"expected dimension 2\*n \(n = 2\), got 5"):
        evaluate(module, "main", np.zeros(5, np.float32))


@pytest.mark.parametrize("shape", [("n", 3, 4), ("n", "m", 4), (2, 3, "k"), (2, 3, 4)])
def test_indexing_is_numpys_whatever_is_known_of_the_axes(shape: tuple) -> None:
    x, array = var("x", shape), np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for pick in (lambda x: x[0], lambda x: x[-1], lambda x: x[1, 1:, 2], lambda x: x[:, 0, ::2], lambda x: x[1, 2, 3]):
        assert run(pick(x), x, args=(array,)) == plain(pick(array))


def test_an_index_behind_the_end_of_a_symbolic_axis_is_found_when_the_program_runs() -> None:
    x = var("x", ("n",))
    with pytest.raises(IndexOutOfRangeError, match="index 2 is out of range"):
        run(x[2], x, args=(np.zeros(2, np.float32),))
