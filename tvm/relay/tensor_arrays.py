"""Tensor arrays of `relay.prelude`: lists of tensors, as TensorFlow's programs have them, as functions of the module.

A tensor in one is a value of a data type: `tensor_<dtype>_t` has a constructor for each rank up to 6, a shape that is told has
a type of its own. Functions are defined when they are asked for, those that they call with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any as AnyValue

from ...formats.messages.errors import ArgumentError
from . import op, ty
from .adt import Clause, Constructor, Match, Pattern, PatternConstructor, PatternVar, PatternWildcard, TypeData
from .expr import Expr, Function, GlobalVar, If, Var, const

_RANKS = 7
_RANKED = re.compile(r"(tensor_array_unstack_tensor)([1-6])")
_INTEGER = ty.TensorType((), "int32")
_NUMBERS = ty.TensorType((ty.Any(),), "int32")
Shape = Sequence[AnyValue]


class _Arrays:
    """The functions of arrays of one kind of tensors; `shapes` are those that a tensor may have."""

    def __init__(self, prelude: AnyValue, dtype: str, shapes: Sequence[Shape]) -> None:
        self.prelude, self.dtype, self.shapes = prelude, dtype, [list(shape) for shape in shapes]
        self.list, self.cons, self.nil = prelude.mod.get_type("List")

    # what the two kinds differ in

    def get_name(self, canonical: str) -> str:
        raise NotImplementedError

    def _constructor_name(self, shape: Shape) -> str:
        raise NotImplementedError

    def _of(self, shape: Shape) -> _Arrays:
        """The arrays that have tensors of a shape."""
        raise NotImplementedError

    # names

    def get_type(self, canonical: str = "tensor_t") -> ty.GlobalTypeVar:
        return self.prelude.mod.get_global_type_var(self.get_name(canonical))

    def get_ctor(self, canonical: str) -> Constructor:
        """A constructor. Raises ArgumentError."""
        name = self.get_name(canonical)
        for constructor in self.prelude.mod.get_type(self.get_name("tensor_t"))[1:]:
            if constructor.name_hint == name:
                return constructor
        raise ArgumentError(f"there is no constructor {name}")

    def get_global_var(self, canonical: str) -> GlobalVar:
        """A function, which is defined now if it is not there. Raises ArgumentError for a name that none has."""
        name = self.get_name(canonical)
        if name not in self.prelude.mod:
            ranked = _RANKED.fullmatch(canonical)
            define = _FUNCTIONS.get(ranked[1] if ranked else canonical)
            if define is None:
                raise ArgumentError(f"tensor arrays have no function {canonical!r}; there are {', '.join(_FUNCTIONS)}")
            self.define_tensor_adt()
            var = GlobalVar(name)
            self.prelude.mod[var] = Function([], const(0))  # the name is taken: functions call themselves
            self.prelude.mod[var] = define(self, var, self.shapes[int(ranked[2]) if ranked else 0])
        return self.prelude.mod.get_global_var(name)

    def define_tensor_adt(self) -> None:
        """The data type."""
        name = self.get_name("tensor_t")
        if name not in {each.name_hint for each in self.prelude.mod.get_global_type_vars()}:
            header = ty.GlobalTypeVar(name)
            cases = [
                (self._constructor_name(shape), [ty.TensorType(tuple(shape), self.dtype)]) for shape in self.shapes
            ]
            made = [Constructor(*case, header) for case in [(self.get_name("tensor_nil"), []), *cases]]
            self.prelude.mod[header] = TypeData(header, [], made)

    # for the functions

    @property
    def tensor(self) -> ty.Type:
        return self.get_type()()

    @property
    def array(self) -> ty.Type:
        return self.list(self.tensor)

    def wrapped(self, value: Expr, shape: Shape) -> Expr:
        """A tensor of that shape as a value of the data type."""
        own = self._of(shape)
        own.define_tensor_adt()
        return own.get_ctor_of(shape)(value)

    def get_ctor_of(self, shape: Shape) -> Constructor:
        constructors = self.prelude.mod.get_type(self.get_name("tensor_t"))[1:]
        return next(each for each in constructors if each.name_hint == self._constructor_name(shape))

    def each(self, value: Expr, made: Callable[[Var, list], Expr | None]) -> Expr:
        """What is made of the tensor that a value holds, by its shape; shapes of which None is made do not fit."""
        clauses = []
        for shape in self.shapes:
            var = Var("t", ty.TensorType(tuple(shape), self.dtype))
            if (result := made(var, shape)) is not None:
                clauses.append(Clause(PatternConstructor(self.get_ctor_of(shape), [PatternVar(var)]), result))
        return Match(value, clauses, False)

    def grown(self, shape: Shape) -> list:
        return [ty.Any(), *shape]


class TensorArrayOps(_Arrays):
    """Arrays of tensors of any shape."""

    def __init__(self, prelude: AnyValue, dtype: str) -> None:
        super().__init__(prelude, dtype, [[ty.Any()] * rank for rank in range(_RANKS)])

    def get_name(self, canonical: str) -> str:
        return f"tensor_{self.dtype}_t" if canonical == "tensor_t" else f"{canonical}_{self.dtype}"

    def _constructor_name(self, shape: Shape) -> str:
        return self.get_name(f"tensor{len(shape)}")

    def _of(self, shape: Shape) -> _Arrays:
        return self

    def register(self) -> None:
        """All functions."""
        for name in _FUNCTIONS:
            if name not in ("tensor_array_unstack", "tensor_get_data"):
                for rank in range(1, _RANKS) if name.endswith("unstack_tensor") else ("",):
                    self.get_global_var(f"{name}{rank}")


class StaticTensorArrayOps(_Arrays):
    """Arrays of tensors of one shape."""

    def __init__(self, prelude: AnyValue, dtype: str, shape: Shape, batch_dim: int | None = None) -> None:
        super().__init__(prelude, dtype, [shape])
        self.shape, self.batch_dim = list(shape), batch_dim

    def get_name(self, canonical: str, extra_shapes: AnyValue = None) -> str:
        return static_name(canonical, self.dtype, self.shape, self.batch_dim)

    def _constructor_name(self, shape: Shape) -> str:
        return self.get_name("tensor_constructor")

    def _of(self, shape: Shape) -> _Arrays:
        return StaticTensorArrayOps(self.prelude, self.dtype, shape, self.batch_dim)

    def register(self) -> None:
        """All functions."""
        self.define_tensor_adt()
        for name in _FUNCTIONS:
            if not name.endswith("unstack_tensor") and (self.shape or name not in _OF_AXES):
                self.get_global_var(name)

    def define_tensor_array_scatter(self, indices_shape: AnyValue = None, force_update: bool = False) -> None:
        """The function takes indices of any number."""
        self.get_global_var("tensor_array_scatter")

    def define_tensor_array_split(
        self, value_shape: AnyValue = None, lengths_shape: AnyValue = None, force_update: bool = False
    ) -> None:
        """The function takes any number of lengths, of a value of this shape."""
        self.get_global_var("tensor_array_split")


def static_name(canonical: str, dtype: str, shape: Shape, batch_dim: int | None = None) -> str:
    """The name of a function, constructor or type for tensors of one shape."""
    sizes = "_".join("any" if isinstance(dim, ty.Any) else str(dim) for dim in shape) or "scalar"
    if canonical == "tensor_t":
        return f"static_tensor_{dtype}_{sizes}_t"
    batch = "batch1_" if batch_dim == 1 and canonical not in ("tensor_constructor", "tensor_nil") else ""
    return f"{canonical}_{dtype}_{batch}{sizes}"


# ---- the functions ----


def _open(shape: Shape) -> list:
    return [ty.Any(), *shape[1:]]


def _take(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    """The rows from lower on, short of upper."""
    t, lower, upper = Var("tensor", a.tensor), Var("lower", _INTEGER), Var("upper", _INTEGER)

    def rows(x: Var, own: list) -> Expr | None:
        places = op.arange(lower, upper, dtype="int32")
        return a.wrapped(op.take(x, places, axis=0), _open(own)) if own else None

    return Function([t, lower, upper], a.each(t, rows), a._of(_open(shape)).tensor if shape else a.tensor)


def _expand_dims(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    t = Var("x", a.tensor)
    limit = _RANKS - 1 if len(a.shapes) > 1 else len(shape) + 1

    def row(x: Var, own: list) -> Expr | None:
        return a.wrapped(op.expand_dims(x, 0, 1), a.grown(own)) if len(own) < limit else None

    body = a.each(t, row)
    return Function([t], body, a._of(a.grown(shape)).tensor)


def _concatenate(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    x, y = Var("x", a.tensor), Var("y", a.tensor)

    def with_first(first: Var, own: list) -> Expr | None:
        def both(second: Var, other: list) -> Expr | None:
            same = len(own) == len(other)
            return a.wrapped(op.concatenate([first, second], 0), _open(own)) if same else None

        return a.each(y, both) if own else None

    body = a.each(x, with_first)
    return Function([x, y], body, a._of(_open(shape)).tensor if shape else a.tensor)


def _array(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    """As many tensors as told, none of which is there yet."""
    n = Var("n", _INTEGER)
    more = a.cons(a.get_ctor("tensor_nil")(), var(op.subtract(n, const(1))))
    return Function([n], If(op.equal(n, const(0)), a.nil(), more), a.array)


def _read(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    array, n = Var("tensor_array", a.array), Var("n", _INTEGER)
    return Function([array, n], a.prelude.nth(array, n), a.tensor)


def _write(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    array, n, v = Var("tensor_array", a.array), Var("n", _INTEGER), Var("v", a.tensor)
    return Function([array, n, v], a.prelude.update(array, n, v), a.array)


def _unstack(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    """The rows of a tensor."""
    own = a._of(shape[1:])
    own.define_tensor_adt()
    type_ = ty.TensorType(tuple(shape), a.dtype)
    helper = GlobalVar(f"{var.name_hint}_helper")
    i, up, t = Var("i", _INTEGER), Var("up", _INTEGER), Var("t", type_)
    row = own.wrapped(op.take(t, i, axis=0), shape[1:])
    rows = If(op.equal(i, up), a.nil(), a.cons(row, helper(op.add(i, const(1)), up, t)))
    a.prelude.mod[helper] = Function([i, up, t], rows, own.array)
    tensor = Var("tensor", type_)
    return Function([tensor], helper(const(0), _length(tensor), tensor), own.array)


def _length(x: Expr) -> Expr:
    return op.take(op.shape_of(x), const(0))


def _scatter(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    """An array with other tensors at indices."""
    helper = GlobalVar(f"{var.name_hint}_helper")
    read, write = a.get_global_var("tensor_array_read"), a.get_global_var("tensor_array_write")
    ta, values, indices = Var("ta", a.array), Var("values", a.array), Var("indices", _NUMBERS)
    now, limit = Var("current", _INTEGER), Var("limit", _INTEGER)
    changed = write(ta, op.take(indices, now), read(values, now))
    body = If(op.equal(now, limit), ta, helper(changed, op.add(now, const(1)), limit, indices, values))
    a.prelude.mod[helper] = Function([ta, now, limit, indices, values], body, a.array)
    array, places, others = Var("tensor_array", a.array), Var("indices", _NUMBERS), Var("values", a.array)
    return Function([array, places, others], helper(array, const(0), _length(places), places, others), a.array)


def _split(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    """An array with the parts of a tensor, of these lengths."""
    parts = a._of(_open(shape)) if len(a.shapes) == 1 else a
    parts.define_tensor_adt()
    helper = GlobalVar(f"{var.name_hint}_helper")
    take, write = a.get_global_var("tensor_take"), parts.get_global_var("tensor_array_write")
    ta, value, lengths = Var("ta", parts.array), Var("value", a.tensor), Var("lengths", _NUMBERS)
    offset, now, limit = (Var(name, _INTEGER) for name in ("offset", "current", "limit"))
    end = op.add(offset, op.take(lengths, now))
    others = helper(ta, value, end, op.add(now, const(1)), limit, lengths)
    body = If(op.equal(now, limit), ta, write(others, now, take(value, offset, end)))
    a.prelude.mod[helper] = Function([ta, value, offset, now, limit, lengths], body, parts.array)
    array, whole, sizes = Var("tensor_array", parts.array), Var("value", a.tensor), Var("lengths", _NUMBERS)
    parted = helper(array, whole, const(0), const(0), _length(sizes), sizes)
    return Function([array, whole, sizes], parted, parts.array)


def _joined(a: _Arrays, var: GlobalVar, whole: _Arrays, part: Callable[[Expr], Expr]) -> Function:
    """The tensors of an array, each made a part, one after the other."""
    array = Var("tensor_array", a.array)
    first, rest = Var("hd", a.tensor), Var("tl", a.array)
    concatenate = whole.get_global_var("tensor_concatenate")
    one = Clause(PatternConstructor(a.nil, []), part(first))
    more = Clause(PatternWildcard(), concatenate(part(first), var(rest)))
    several: list[Pattern] = [PatternVar(first), PatternVar(rest)]
    clauses = [Clause(PatternConstructor(a.cons, several), Match(rest, [one, more]))]
    clauses.append(Clause(PatternConstructor(a.nil, []), whole.get_ctor("tensor_nil")()))
    return Function([array], Match(array, clauses), whole.tensor)


def _concat(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    if len(a.shapes) > 1:
        return _joined(a, var, a, lambda x: x)
    whole = a._of(_open(shape))
    whole.define_tensor_adt()
    return _joined(a, var, whole, lambda x: a.each(x, lambda t, own: whole.wrapped(t, _open(own))))


def _stack(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    whole = a._of(a.grown(shape)) if len(a.shapes) == 1 else a
    whole.define_tensor_adt()
    expand = a.get_global_var("tensor_expand_dims")
    return _joined(a, var, whole, lambda x: expand(x))


def _gather(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    """Some tensors of an array, stacked."""
    stack, read = a.get_global_var("tensor_array_stack"), a.get_global_var("tensor_array_read")
    helper = GlobalVar(f"{var.name_hint}_helper")
    whole = a._of(a.grown(shape)) if len(a.shapes) == 1 else a
    ta, found, indices = Var("ta", a.array), Var("accu", a.array), Var("indices", _NUMBERS)
    now = Var("current", _INTEGER)
    before = op.subtract(now, const(1))
    following = helper(ta, a.cons(read(ta, op.take(indices, before)), found), before, indices)
    body = If(op.equal(now, const(0)), stack(found), following)
    a.prelude.mod[helper] = Function([ta, found, now, indices], body, whole.tensor)
    array, places = Var("tensor_array", a.array), Var("indices", _NUMBERS)
    return Function([array, places], helper(array, a.nil(), _length(places), places), whole.tensor)


def _get_data(a: _Arrays, var: GlobalVar, shape: Shape) -> Function:
    t = Var("tensor", a.tensor)
    return Function([t], a.each(t, lambda x, own: x), ty.TensorType(tuple(shape), a.dtype))


_FUNCTIONS: dict[str, Callable[[_Arrays, GlobalVar, Shape], Function]] = {
    "tensor_take": _take,
    "tensor_concatenate": _concatenate,
    "tensor_expand_dims": _expand_dims,
    "tensor_array": _array,
    "tensor_array_read": _read,
    "tensor_array_write": _write,
    "tensor_array_unstack_tensor": _unstack,
    "tensor_array_unstack": _unstack,
    "tensor_array_scatter": _scatter,
    "tensor_array_split": _split,
    "tensor_array_concat": _concat,
    "tensor_array_stack": _stack,
    "tensor_array_gather": _gather,
    "tensor_get_data": _get_data,
}
_OF_AXES = {"tensor_take", "tensor_concatenate", "tensor_array_unstack", "tensor_array_split", "tensor_array_concat"}
