"""Random well-typed programs, for laws that must hold of every program.

`programs()` is a Hypothesis strategy of `Program`s: a module, which is not typed yet, and arguments for its function `main`. The
programs use closures, higher-order functions, generic and recursive functions, lists, tuples, ifs, matches, loops and
symbolic shapes; all of them end. Their floats are integers of moderate size, so that every correct implementation gives the
same bits: a comparison never hangs on a rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from treadle.compiler import ir
from treadle.compiler.builder.programs import (
    Expression,
    FunctionExpression,
    Module,
    data_type,
    for_loop,
    function,
    global_function,
    if_,
    match_,
    match_shape,
    op,
    tuple_,
    var,
    while_loop,
)
from treadle.compiler.builder.programs import field as item
from treadle.formats.types import DataType, FunctionType, TensorType, TupleType, Type, tensor

from .prelude import with_prelude

List = data_type("List[a] = Nil | Cons(a, List[a])")
Tree = data_type("Tree = Leaf | Node(Tree, float32[], Tree)")

SCALAR, INTEGER, BOOL = tensor("float32"), tensor("int64"), tensor("bool")
VECTOR, ROWS, FIXED = tensor("float32", ("n",)), tensor("float32", ("n", 3)), tensor("float32", (2, 3))
FLOATS, TREE = List(SCALAR), Tree()
MAPPER = FunctionType((SCALAR,), SCALAR)
PAIR = TupleType((SCALAR, INTEGER))
TENSORS: list[TensorType] = [SCALAR, INTEGER, VECTOR, ROWS, FIXED]
TYPES: list[Type] = [*TENSORS, FLOATS, TREE, PAIR, MAPPER]
RESULTS: list[Type] = [*TENSORS, BOOL, FLOATS, TREE, PAIR]


@dataclass(frozen=True)
class Program:
    module: ir.Module
    args: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Scope:
    """The variables that an expression may use, and the module's functions that it may call."""

    variables: tuple[tuple[Expression, Type], ...] = ()
    functions: tuple[tuple[str, Type], ...] = ()

    def bind(self, *pairs: tuple[Expression, Type]) -> Scope:
        return replace(self, variables=self.variables + pairs)


def _bounded(value: Any) -> Any:
    """A float of at most 20, so that products stay exact in float32."""
    return op.clip(value, min=-20.0, max=20.0)


@dataclass
class Maker:
    """Makes expressions of a wanted type. `fuel` is how deep they may nest."""

    draw: Callable[[st.SearchStrategy], Any]
    names: int = 0
    helpers: dict[str, FunctionExpression] = field(default_factory=dict)
    made: list[tuple[Scope, Type, Any]] = field(default_factory=list)  # may be used again where the scope is the same

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.draw(st.integers(0, len(options) - 1))]

    def number(self, low: int = -5, high: int = 5) -> int:
        return self.draw(st.integers(low, high))

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def variable(self, type_: Type) -> Expression:
        return var(self.name(), type_)

    # ---- any type ----

    def expression(self, type_: Type, scope: Scope, fuel: int) -> Any:
        if fuel <= 0:
            return self.leaf(type_, scope)
        before = [value for its_scope, its_type, value in self.made if its_scope is scope and its_type == type_]
        if before and not self.number(0, 4):
            return self.pick(before)
        value = self.new(type_, scope, fuel)
        self.made.append((scope, type_, value))
        return value

    def new(self, type_: Type, scope: Scope, fuel: int) -> Any:
        common = [self.leaf, self.chosen, self.matched, self.projected, self.applied, self.looped, self.of_tree]
        if isinstance(type_, TensorType):
            special = [self.tensor] * 6 + [self.called]
        elif isinstance(type_, DataType):
            special = [self.data] * 4  # type: ignore[list-item]
        else:
            special = [self.leaf] * 2
        return self.pick([*special, *common])(type_, scope, fuel - 1)

    def leaf(self, type_: Type, scope: Scope, fuel: int = 0) -> Any:
        known = [variable for variable, its_type in scope.variables if its_type == type_]
        if known and self.number(0, 3):
            return self.pick(known)
        if isinstance(type_, TensorType):
            return self.literal(type_)
        if isinstance(type_, TupleType):
            return tuple_(*(self.expression(part, scope, fuel) for part in type_.fields))
        if isinstance(type_, FunctionType):
            return self.closure(type_, scope, max(fuel, 1))
        if type_ == TREE:
            return Tree.Leaf()
        return List.Cons(self.literal(SCALAR), List.Nil())

    def literal(self, type_: TensorType) -> Any:
        value = self.number()
        if type_ == BOOL:
            return op.full(shape=(), value=value > 0, dtype="bool")
        return op.full(shape=type_.shape, value=value, dtype=type_.dtype)

    def closure(self, type_: FunctionType, scope: Scope, fuel: int) -> Any:
        params = [self.variable(param) for param in type_.params]
        inner = scope.bind(*zip(params, type_.params, strict=True))
        return function(params, self.expression(type_.result, inner, fuel - 1))

    # ---- control ----

    def chosen(self, type_: Type, scope: Scope, fuel: int) -> Any:
        condition = self.expression(BOOL, scope, fuel)
        return if_(condition, self.expression(type_, scope, fuel), self.expression(type_, scope, fuel))

    def matched(self, type_: Type, scope: Scope, fuel: int) -> Any:
        first, rest = self.variable(SCALAR), self.variable(FLOATS)
        inner = scope.bind((first, SCALAR), (rest, FLOATS))
        pattern = ir.ConstructorPattern("Cons", (ir.Bind(first.atom), ir.Bind(rest.atom)))  # type: ignore[arg-type]
        empty, full = self.expression(type_, scope, fuel), self.expression(type_, inner, fuel)
        return match_(self.expression(FLOATS, scope, fuel), [(List.Nil, empty), (pattern, full)])

    def of_tree(self, type_: Type, scope: Scope, fuel: int) -> Any:
        """A nested pattern, with a wildcard after it."""
        value = self.variable(SCALAR)
        leaf = ir.ConstructorPattern("Leaf", ())
        pattern = ir.ConstructorPattern("Node", (leaf, ir.Bind(value.atom), ir.Wildcard()))  # type: ignore[arg-type]
        inner = self.expression(type_, scope.bind((value, SCALAR)), fuel)
        tree = self.expression(TREE, scope, fuel)
        return match_(tree, [(pattern, inner), (ir.Wildcard(), self.expression(type_, scope, fuel))])

    def projected(self, type_: Type, scope: Scope, fuel: int) -> Any:
        other = self.expression(self.pick(TYPES), scope, fuel)
        return item(tuple_(other, self.expression(type_, scope, fuel)), 1)

    def applied(self, type_: Type, scope: Scope, fuel: int) -> Any:
        """A closure, called at once or handed through a generic function."""
        param = self.pick([SCALAR, INTEGER, VECTOR])
        closure = self.closure(FunctionType((param,), type_), scope, fuel)
        argument = self.expression(param, scope, fuel)
        if self.number(0, 1):
            return closure(argument)
        identity = self.variable(SCALAR)
        inner = global_function("compose")(function([identity], identity * 2.0), function([identity], identity + 1.0))
        unused = inner(self.expression(SCALAR, scope, 0))
        return item(tuple_(closure(argument), unused), 0)

    def looped(self, type_: Type, scope: Scope, fuel: int) -> Any:
        if not isinstance(type_, TensorType) or type_ == BOOL:
            return self.leaf(type_, scope, fuel)
        times = self.number(0, 4)
        start = self.expression(type_, scope, fuel)

        def step(i: Expression, value: Expression) -> Any:
            after = self.expression(type_, scope.bind((i, INTEGER), (value, type_)), fuel)
            return _bounded(after) if type_.dtype.is_float else after

        if self.number(0, 1):
            return item(for_loop(times, step, [start]), 0)
        return item(while_loop(lambda i, value: i < times, lambda i, value: (i + 1, step(i, value)), [0, start]), 1)

    # ---- tensors ----

    def tensor(self, type_: TensorType, scope: Scope, fuel: int) -> Any:
        def make(wanted: Type = type_) -> Any:
            return self.expression(wanted, scope, fuel)

        if type_ == BOOL:
            kind = self.pick([SCALAR, INTEGER])
            compare = self.pick([op.less, op.less_equal, op.equal, op.greater])
            options = [lambda: compare(make(kind), make(kind)), lambda: make() & make(), lambda: ~make()]
        elif type_ == INTEGER:
            whole = lambda: op.cast(_bounded(make(SCALAR)), dtype="int64")  # noqa: E731
            options = [lambda: make() + make(), lambda: make() * make(), lambda: make() // self.number(1, 5), whole]
            options += [lambda: global_function("length")(make(FLOATS)), lambda: make() % self.number(1, 5)]
        else:
            options = [lambda: self.arithmetic(type_, scope, fuel)] * 3 + self.by_shape(type_, make)
            options += [lambda: op.where(make(BOOL), make(), make()), lambda: _bounded(make()) * _bounded(make(SCALAR))]
        return self.pick(options)()

    def arithmetic(self, type_: TensorType, scope: Scope, fuel: int) -> Any:
        left, right = self.expression(type_, scope, fuel), self.expression(type_, scope, fuel)
        binary = self.pick([op.add, op.subtract, op.maximum, op.minimum])
        unary = self.pick([op.negative, op.abs, op.relu])
        return self.pick([lambda: binary(left, right), lambda: _bounded(left) * _bounded(right), lambda: unary(left)])()

    def by_shape(self, type_: TensorType, make: Callable[..., Any]) -> list[Callable[[], Any]]:
        """What gives a tensor of floats of this shape."""
        if type_ == SCALAR:
            return [
                lambda: op.sum(_bounded(make(self.pick([VECTOR, ROWS, FIXED])))),
                lambda: op.max(op.concat(make(VECTOR), make(VECTOR), op.full(shape=(1,), value=0.0, dtype="float32"))),
                lambda: op.cast(op.remainder(make(INTEGER), 50), dtype="float32"),
                lambda: global_function("foldl")(self.adder(), make(), make(FLOATS)),
                lambda: make(MAPPER)(make()),
                lambda: item(make(PAIR), 0),
                lambda: _bounded(make(VECTOR)) @ _bounded(make(VECTOR)),
            ]
        if type_ == VECTOR:
            return [
                lambda: op.sum(_bounded(make(ROWS)), axes=(1,)),
                lambda: op.slice(op.concat(make(), make()), starts=(0,), ends=("n",)),
                lambda: op.slice(make(), starts=(-1,), ends=(-(1 << 62),), steps=(-1,)),
                lambda: op.cast(op.arange(stop="n"), dtype="float32"),
                lambda: match_shape(make(), ("n",)),
                lambda: op.reshape(op.slice(make(ROWS), starts=(0,), ends=(1,), axes=(1,)), shape=("n",)),
            ]
        if type_ == ROWS:
            return [
                lambda: op.broadcast_to(op.expand_dims(make(VECTOR), axes=(1,)), shape=("n", 3)),
                lambda: op.permute_dims(op.stack(make(VECTOR), make(VECTOR), make(VECTOR))),
                lambda: make() + op.expand_dims(make(VECTOR), axes=(1,)),
                lambda: _bounded(op.sum(_bounded(make(FIXED)), axes=(0,), keepdims=True)) + make(),
            ]
        return [
            lambda: op.pad(op.slice(make(), starts=(0,), ends=(1,)), pads=(1, 0, 0, 0), value=1.0),
            lambda: op.matmul(op.slice(_bounded(make()), starts=(0,), ends=(2,), axes=(1,)), _bounded(make())),
            lambda: op.take(make(), np.array([2, 0, -2]), axis=1),
            lambda: op.concat(op.slice(make(), starts=(1,), ends=(2,)), op.slice(make(), starts=(0,), ends=(1,))),
        ]

    # ---- data ----

    def data(self, type_: DataType, scope: Scope, fuel: int) -> Any:
        def make(wanted: Type = type_) -> Any:
            return self.expression(wanted, scope, fuel)

        if type_ == TREE:
            return self.pick([lambda: Tree.Node(make(), make(SCALAR), make()), Tree.Leaf])()
        name = self.pick(["reverse", "tail_or_empty"])
        options = [
            lambda: List.Cons(make(SCALAR), make()),
            lambda: global_function("map")(make(MAPPER), make()),
            lambda: global_function("append")(make(), make()) if fuel < 2 else make(),
            lambda: global_function(name)(make()) if name == "reverse" else self.tail(make()),
            lambda: global_function("filter")(self.positive(), make()),
        ]
        return self.pick(options)()

    def tail(self, value: Any) -> Any:
        return match_(value, {List.Nil: lambda: List.Nil(), List.Cons: lambda first, rest: rest})

    def adder(self) -> Any:
        a, b = self.variable(SCALAR), self.variable(SCALAR)
        return function([a, b], _bounded(a + b))

    def positive(self) -> Any:
        a = self.variable(SCALAR)
        return function([a], a > 0.0)

    # ---- functions of the module ----

    def called(self, type_: TensorType, scope: Scope, fuel: int) -> Any:
        known = [name for name, result in scope.functions if result == type_]
        if not known:
            return self.leaf(type_, scope, fuel)
        return global_function(self.pick(known))(self.expression(VECTOR, scope, fuel), self.count(scope, fuel))

    def count(self, scope: Scope, fuel: int) -> Any:
        """How often a recursive function calls itself: a small number."""
        return op.clip(self.expression(INTEGER, scope, fuel), min=0, max=3)

    def helper(self, name: str, scope: Scope, fuel: int) -> Type:
        """A function of a vector that calls itself while its second argument is positive."""
        type_ = self.pick([SCALAR, INTEGER, VECTOR])
        x, depth = self.variable(VECTOR), self.variable(INTEGER)
        inner = scope.bind((x, VECTOR), (depth, INTEGER))
        again = global_function(name)(self.expression(VECTOR, inner, fuel), depth - 1)
        value = self.expression(type_, inner.bind((again, type_)), fuel)
        result = if_(depth <= 0, self.expression(type_, inner, fuel), value)
        result = _bounded(result) if type_ != INTEGER else result
        self.helpers[name] = function([x, depth], result, type_ if self.number(0, 1) else None)
        return type_


def array(draw: Callable[[st.SearchStrategy], Any], type_: TensorType, n: int) -> np.ndarray:
    """Small whole numbers."""
    shape = tuple(dim if isinstance(dim, int) else n for dim in type_.shape)
    values = draw(st.lists(st.integers(-9, 9), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    return np.array(values, type_.dtype.numpy).reshape(shape)


@st.composite
def programs(draw: Callable[[st.SearchStrategy], Any], fuel: int = 3, helpers: int = 2) -> Program:
    """Modules of a function `main`, up to `helpers` recursive ones, and what they use of the prelude."""
    maker = Maker(draw)
    scope = Scope()
    for number in range(draw(st.integers(0, helpers))):
        name = f"helper_{number}"
        result = maker.helper(name, scope, fuel - 1)
        scope = replace(scope, functions=(*scope.functions, (name, result)))
    params = [SCALAR, INTEGER, VECTOR, ROWS, FIXED]
    variables = [var(f"x{number}", type_) for number, type_ in enumerate(params)]
    inner = scope.bind(*zip(variables, params, strict=True))
    wanted = [maker.pick(RESULTS) for _ in range(draw(st.integers(1, 3)))]
    main = function(variables, tuple_(*(maker.expression(type_, inner, fuel) for type_ in wanted)))
    module = with_prelude(Module(data_types=(Tree,), main=main, **maker.helpers))
    n = draw(st.integers(0, 4))
    return Program(module, tuple(array(draw, type_, n) for type_ in params))
