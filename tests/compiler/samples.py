"""Small programs, with arguments, that together use everything the language has; several tests run all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from treadle.compiler import ir
from treadle.compiler.builder.programs import (
    Module,
    constant,
    data_type,
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
from treadle.formats.types import FunctionType, TupleType, TypeVariable, tensor

FLOAT, INT = tensor("float32"), tensor("int64")
A, B = TypeVariable("a"), TypeVariable("b")
List = data_type("List[a] = Nil | Cons(a, List[a])")
Tree = data_type("Tree[a] = Leaf | Node(Tree[a], a, Tree[a])")


@dataclass(frozen=True)
class Sample:
    module: ir.Module
    arguments: tuple


SAMPLES: dict[str, Sample] = {}


def sample(*arguments: object) -> Callable[[Callable[[], ir.Module]], Callable[[], ir.Module]]:
    def register(make: Callable[[], ir.Module]) -> Callable[[], ir.Module]:
        SAMPLES[make.__name__] = Sample(make(), arguments)
        return make

    return register


def floats(*shape: int) -> np.ndarray:
    return np.linspace(-1, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)


# ---- straight code ----


@sample(floats(10, 10))
def double() -> ir.Module:
    x = var("x", (10, 10))
    return Module(main=function([x], x + x))


@sample(np.float64(1.5))
def same() -> ir.Module:
    x = var("x", (), "float64")
    return Module(main=function([x], x))


@sample(floats(4, 6))
def mlp() -> ir.Module:
    x = var("x", (4, 6))
    hidden = op.relu(x @ constant(floats(6, 8)) + constant(floats(8)))
    return Module(main=function([x], op.softmax(hidden @ constant(floats(8, 3)))))


@sample(floats(1, 3, 6, 6))
def residual_block() -> ir.Module:
    x = var("x", (1, 3, 6, 6))
    weight = constant(floats(3, 3, 3, 3))
    ones = constant(np.ones(3, np.float32))
    y = op.conv(x, weight, pads=(1, 1, 1, 1))
    y = op.batch_normalization(y, ones, ones, ones, ones)
    return Module(main=function([x], op.relu(y + x)))


@sample(floats(3, 4))
def split() -> ir.Module:
    x = var("x", (3, 4))
    left, right = op.split(x, axis=1, sizes=(1, 3))
    return Module(main=function([x], tuple_(op.concat(right, left, axis=1), left)))


@sample((floats(), (floats(2), floats(2))))
def tuple_argument() -> ir.Module:
    t = var("t", TupleType((FLOAT, TupleType((tensor("float32", (2,)), tensor("float32", (2,)))))))
    return Module(main=function([t], tuple_(t[0] * t[1][1], t[1])))


# ---- symbolic and unknown shapes ----


@sample(floats(3, 5))
def symbolic() -> ir.Module:
    x = var("x", ("n", 5))
    return Module(main=function([x], op.sum(op.exp(x * 2.0) @ constant(floats(5, 3)), axes=[1])))


@sample(floats(3), floats(4))
def two_symbols() -> ir.Module:
    x, y = var("x", ("n",)), var("y", ("m",))
    return Module(main=function([x, y], op.concat(x, y, axis=0) + op.concat(y, x, axis=0)))


@sample(floats(3, 2), floats(3, 4))
def derived_symbols() -> ir.Module:
    x, y = var("x", ("n", "m")), var("y", ("n", "2 * m"))
    return Module(main=function([x, y], op.reshape(op.concat(x, y, axis=1), shape=("3 * n", "m"))[1:]))


@sample(floats(3, 4))
def views() -> ir.Module:
    x = var("x", ("n", 4))
    return Module(main=function([x], tuple_(op.reshape(op.reshape(x + 1, shape=(-1,)), shape=(2, -1)), op.shape(x))))


@sample(floats(3, 4))
def data_dependent() -> ir.Module:
    x = var("x", (3, 4))
    found = op.cast(op.nonzero(op.relu(x)), dtype="float32")
    return Module(main=function([x], op.sum(op.relu(found * 2.0))))


@sample(np.array(3), floats(2))
def growing_loop() -> ir.Module:
    n, x = var("n", (), "int64"), var("x", ("m",))
    return Module(main=function([n, x], for_loop(n, lambda i, s: op.concat(s, s * 2.0, axis=0), [x])[0]))


# ---- control ----


@sample(np.array(True), floats(3), floats(3))
def simple_if() -> ir.Module:
    c, x, y = var("c", (), "bool"), var("x", (3,)), var("y", (3,))
    return Module(main=function([c, x, y], op.relu(if_(c, x + 1, op.exp(y))) + x))


@sample(np.array(False), floats(3), floats(3))
def if_of_tuples() -> ir.Module:
    c, x, y = var("c", (), "bool"), var("x", (3,)), var("y", (3,))
    left, right = if_(c, tuple_(x, y), tuple_(y, x * 2))
    return Module(main=function([c, x, y], tuple_(left, if_(c, left, right))))


@sample(floats(3))
def constant_if() -> ir.Module:
    x = var("x", (3,))
    unused = global_function("unused", FunctionType((tensor("float32", (3,)),), tensor("float32", (3,))))
    body = if_(constant(True), x + 1, unused(x))
    return Module(main=function([x], body), unused=function([x], x * 3))


@sample(np.array(10), floats(3))
def swap_in_loop() -> ir.Module:
    n, x = var("n", (), "int64"), var("x", (3,))
    return Module(main=function([n, x], for_loop(n, lambda i, s, t: tuple_(t, s + 1), [x, x * 2])))


@sample(np.float32(100))
def while_() -> ir.Module:
    limit = var("limit", ())
    looped = while_loop(lambda s, n: s < limit, lambda s, n: tuple_(s * 2.0, n + 1), [constant(1.0), constant(0)])
    return Module(main=function([limit], looped))


@sample(np.array(3), np.array(4))
def nested_loops() -> ir.Module:
    n, m = var("n", (), "int64"), var("m", (), "int64")

    def outer(i, total):  # type: ignore[no-untyped-def]
        return for_loop(m, lambda j, sum: sum + i * j, [total])[0]

    return Module(main=function([n, m], for_loop(n, outer, [constant(0)])[0]))


# ---- functions ----


@sample(np.array(10))
def factorial() -> ir.Module:
    n = var("n", (), "int64")
    again = global_function("factorial", FunctionType((INT,), INT))
    return Module(main=function([n], again(n)), factorial=function([n], if_(n < 1, constant(1), n * again(n - 1)), INT))


@sample(np.array(100))
def tail_recursion() -> ir.Module:
    n, total = var("n", (), "int64"), var("total", (), "int64")
    again = global_function("sum", FunctionType((INT, INT), INT))
    body = if_(n < 1, total, again(n - 1, total + n))
    return Module(main=function([n], again(n, 0)), sum=function([n, total], body, INT))


@sample(np.array(7))
def mutual_recursion() -> ir.Module:
    n = var("n", (), "int64")
    even, odd = (global_function(name, FunctionType((INT,), tensor("bool"))) for name in ("even", "odd"))
    return Module(
        main=function([n], even(n)),
        even=function([n], if_(n < 1, constant(True), odd(n - 1)), tensor("bool")),
        odd=function([n], if_(n < 1, constant(False), even(n - 1)), tensor("bool")),
    )


@sample(floats())
def closures() -> ir.Module:
    """compose(add, add), as in every functional language's first lesson."""
    k, x = var("k", ()), var("x", ())
    f, g = (var(name, FunctionType((FLOAT,), FLOAT)) for name in "fg")
    compose = global_function("compose", FunctionType((f.type, g.type), FunctionType((FLOAT,), FLOAT)))  # type: ignore[arg-type]
    add = function([x], x + k)
    return Module(main=function([k], compose(add, add)(k)), compose=function([f, g], function([x], g(f(x)))))


@sample(floats(4))
def closure_over_a_dimension() -> ir.Module:
    x, k = var("x", ("n",)), var("k", ())
    scaled = function([k], op.sum(op.full(shape=("n",), value=2.0, dtype="float32") * k))
    return Module(main=function([x], scaled(op.max(x)) + scaled(op.sum(x))))


@sample(floats(3))
def self_application() -> ir.Module:
    """A function value that is stored, fetched and called."""
    x, y = var("x", (3,)), var("y", (3,))
    functions = List.Cons(function([y], y * x), List.Cons(function([y], y + x), List.Nil()))
    apply = match_(functions, {List.Nil: x, List.Cons: lambda f, rest: f(x)})
    return Module(main=function([x], apply))


# ---- data ----


def _list_functions() -> dict:
    """The list functions of every prelude."""
    xs, f, g = var("xs", List(A)), var("f", FunctionType((A,), B)), var("g", FunctionType((B, A), B))
    start = var("start", B)
    length = global_function("length", FunctionType((List(A),), INT))
    map_ = global_function("map", FunctionType((f.type, List(A)), List(B)))  # type: ignore[arg-type]
    fold = global_function("fold", FunctionType((g.type, B, List(A)), B))  # type: ignore[arg-type]
    return {
        "length": function([xs], match_(xs, {List.Nil: constant(0), List.Cons: lambda h, t: length(t) + 1}), INT),
        "map": function(
            [f, xs], match_(xs, {List.Nil: List.Nil(), List.Cons: lambda h, t: List.Cons(f(h), map_(f, t))}), List(B)
        ),
        "fold": function(
            [g, start, xs], match_(xs, {List.Nil: start, List.Cons: lambda h, t: fold(g, g(start, h), t)}), B
        ),
    }


def _list_of(*values: object):  # type: ignore[no-untyped-def]
    result = List.Nil()
    for value in reversed(values):
        result = List.Cons(value, result)  # type: ignore[arg-type]
    return result


@sample(floats())
def list_length() -> ir.Module:
    x = var("x", ())
    length = global_function("length", FunctionType((List(A),), INT))
    return Module(main=function([x], length(_list_of(x, x + 1, x * 2))), **_list_functions())


@sample(floats(2))
def list_map() -> ir.Module:
    """The element's shape is known where the list is made, and forgotten in the list."""
    x, e = var("x", (2,)), var("e", (2,))
    map_ = global_function("map", FunctionType((FunctionType((A,), B), List(A)), List(B)))
    return Module(main=function([x], map_(function([e], op.sum(e * x)), _list_of(x, x + 1))), **_list_functions())


@sample(floats(5))
def list_map_symbolic() -> ir.Module:
    x, e = var("x", ("n",)), var("e", ("n",))
    map_ = global_function("map", FunctionType((FunctionType((A,), B), List(A)), List(B)))
    return Module(main=function([x], map_(function([e], op.sum(e * x)), _list_of(x, x + 1))), **_list_functions())


@sample(floats())
def list_fold() -> ir.Module:
    x, s, e = var("x", ()), var("s", ()), var("e", ())
    fold = global_function("fold", FunctionType((FunctionType((B, A), B), B, List(A)), B))
    return Module(main=function([x], fold(function([s, e], s * 2.0 + e), x, _list_of(x, x + 1))), **_list_functions())


@sample(floats())
def tree_sum() -> ir.Module:
    x, t = var("x", ()), var("t", Tree(FLOAT))
    total = global_function("total", FunctionType((Tree(FLOAT),), FLOAT))
    body = match_(
        t, {Tree.Leaf: constant(0.0), Tree.Node: lambda left, value, right: total(left) + value + total(right)}
    )
    leaf = Tree.Leaf()
    made = Tree.Node(Tree.Node(leaf, x, leaf), x + 1, Tree.Node(leaf, x * 3, leaf))
    return Module(main=function([x], total(made)), total=function([t], body, FLOAT))


@sample(floats())
def nested_patterns() -> ir.Module:
    """Clauses that overlap: the first that fits is taken; one body is reached by several tests."""
    x, xs, ys = var("x", ()), var("xs", List(FLOAT)), var("ys", List(FLOAT))
    names = {name: ir.Var(name) for name in ("a", "b", "rest")}
    bind = {name: ir.Bind(variable) for name, variable in names.items()}
    nil, skip = ir.ConstructorPattern("Nil", ()), ir.Wildcard()
    pair = tuple_(xs, ys)
    clauses = [
        (ir.TuplePattern((ir.ConstructorPattern("Cons", (bind["a"], nil)), skip)), lambda a: a * 10.0),
        (ir.TuplePattern((skip, ir.ConstructorPattern("Cons", (bind["b"], bind["rest"])))), lambda b, rest: b * 100.0),
        (ir.TuplePattern((skip, skip)), constant(-1.0)),
    ]
    zipped = global_function("first", FunctionType((List(FLOAT), List(FLOAT)), FLOAT))
    one, two, none = _list_of(x), _list_of(x, x), List.Nil()
    calls = [zipped(one, none), zipped(two, one), zipped(none, two), zipped(two, none), zipped(none, none)]
    return Module(
        main=function([x], tuple_(*calls)), first=function([xs, ys], match_(pair, clauses), FLOAT), data_types=[List]
    )


@sample(np.float32(0.5), floats(3))
def condition_of_floats() -> ir.Module:
    c, x = var("c", ()), var("x", (3,))
    return Module(main=function([c, x], if_(c, x + 1, x)))
