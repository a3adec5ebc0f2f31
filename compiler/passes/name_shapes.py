"""Every unknown dimension that a kernel needs gets a name.

A kernel is compiled for shapes that are expressions over variables; a tensor whose type has ? reaches one through a
`MatchShape` that binds a new variable to that dimension. In inference, `?` unifies with any dimension, a fresh name
does not: if only one dimension is possible in place of the name, for all sizes, the `MatchShape` requires that one, so
that the program fails where the operator would. If the operator cannot be typed with names (two unknown shapes that may or
may not broadcast), it keeps the operands' inferred types, and will run as a host operator. So does one that
must fail: the size for ? may have been found by another pass, such as by the branch of an `If` that is always taken, and
mismatch. The program then fails when it reaches the operator.

The results of a data-dependent operator are counted first, so that its result's size has a name as well, and a kernel may write
them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dims import Dim, SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.errors import InferenceError
from ...formats.primitive import Attributes, PrimitiveDefinition
from ...formats.types import UNKNOWN, ShapeDim, TensorType, TupleType, Type
from .. import ir
from ..ir.analysis import dimension_uses
from ..operators.table import lookup
from .rewriting import Emitter, constant, rewriting, tensor_type

# Data-dependent operators: the comparison with 0 that selects an element, and the
# operator that takes their number.
_COUNTED = {"nonzero": ("not_equal", "counted_nonzero"), "listed_boxes": ("greater_equal", "counted_boxes")}

_MOST_PAIRS = 100  # most pairs of a name and a candidate that are tried for an operator
_TRIES = 8  # with other sizes, for each size of a name


class _Namer(Emitter):
    def function(self, function: ir.Function) -> ir.Function:
        used = set(dimension_uses(ir.Binding(ir.Var(""), function)))
        self.names = (name for number in itertools.count() if (name := f"s{number}") not in used)
        self.given: dict[str, int] = {}  # the names introduced here, and their order
        self._typed: dict[tuple[Any, ...], bool] = {}  # visited calls, by operator, operands' types and attributes
        self.inferred: dict[ir.Var, Type | None] = {}  # the previous types of retyped variables
        return super().function(function)

    def block(self, block: ir.Block) -> ir.Block:
        outer = self.atoms
        self.atoms = ChainMap({}, outer)  # a name is in scope in the block that binds it
        result = super().block(block)
        self.atoms = outer
        return result

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        got = binding
        binding = self.with_new_operands(binding)
        call = binding.value
        if not isinstance(call, ir.OperatorCall):
            return (binding,)
        if call.operator in _COUNTED and not _has_unknown(tensor_type(call.args[0])):
            return self._counted(binding, call)
        if not self._is_unknown(call, binding.var.type):
            if binding is got and self._is_typed(call):
                return (binding,)
        elif not lookup(call.operator).data_dependent:
            found = self._with_names(binding, call)
            if found is not None:
                return found
        return self._as_it_is(binding, call)

    def _with_names(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding] | None:
        """The operator on tensors with named dimensions; None if it cannot be typed with them."""
        named = {arg: self._name(arg) for arg in call.args if isinstance(arg, ir.Var) and _has_unknown(arg.type)}
        types = [tensor_type(named[arg].var if arg in named else arg) for arg in call.args]
        values = self._sizes(call, types)
        if values is None:
            return None
        for arg, type_ in zip(call.args, types, strict=True):
            wanted = _with_sizes(type_, values)
            if wanted != type_ and isinstance(arg, ir.Var):
                named[arg] = ir.Binding(ir.Var(arg.name, wanted), ir.MatchShape(arg, wanted.shape))
        for arg, found in named.items():
            self._becomes(arg, found.var)
        return (*named.values(), *self._typed_anew(binding, call))

    def _sizes(self, call: ir.OperatorCall, types: Sequence[TensorType]) -> dict[str, Any] | None:
        """The sizes that new names must have, if any, for the operator to take tensors of these types."""
        if self._takes(call, types, {}):
            return {}
        dimensions = list(dict.fromkeys(dim for type_ in types for dim in type_.shape))
        given = [name for name in map(str, dimensions) if name in self.given]
        older = {name: [dim for dim in dimensions if self._is_older(dim, name)] for name in given}
        singles = [{name: dim} for name in given for dim in older[name]]
        pairs = ({**a, **b} for a, b in itertools.combinations(singles, 2) if a.keys() != b.keys())
        for tried in (singles, itertools.islice(pairs, _MOST_PAIRS)):
            fitting = [values for values in tried if self._takes(call, types, values)]
            if fitting:
                return fitting[0] if len(fitting) == 1 and self._is_asked(call, types, fitting[0]) else None
        return None

    def _is_asked(self, call: ir.OperatorCall, types: Sequence[TensorType], values: Mapping[str, Any]) -> bool:
        """Whether the operator requires the names to equal `values`: among the tried sizes, it accepts no others.
        It does not if it may broadcast instead, or if a dimension is no larger than what was cut from it."""
        for name, dim in values.items():
            others = {other: known for other, known in values.items() if other != name}
            operands = [_with_sizes(type_, others) for type_ in types]
            for sizes in _some_sizes(name, operands, call.attributes):
                with contextlib.suppress(ZeroDivisionError):  # a size that no call can have
                    if sizes[name] != dims.evaluate(dim, sizes) and self._takes(
                        _call_for(call, sizes), operands, sizes
                    ):
                        return False
        return True

    def _is_older(self, dim: ShapeDim, name: str) -> bool:
        """Whether a dimension was known before the name."""
        if not isinstance(dim, SymbolicDim):
            return dim is not UNKNOWN
        return all(self.given.get(other, -1) < self.given[name] for other in dims.variables(dim))

    def _takes(self, call: ir.OperatorCall, types: Sequence[TensorType], values: Mapping[str, Any]) -> bool:
        types = [_with_sizes(type_, values) for type_ in types]
        try:
            results = lookup(call.operator).result_types(types, call.attributes)
        except InferenceError:
            return False
        return not any(map(_has_unknown, results))

    def _is_typed(self, call: ir.OperatorCall) -> bool:
        """Whether the operator takes tensors of its operands' types."""
        types = tuple(map(tensor_type, call.args))
        key = call.operator, types, call.attributes
        if key not in self._typed:
            try:
                lookup(call.operator).result_types(types, call.attributes)
                self._typed[key] = True
            except InferenceError:
                self._typed[key] = False
        return self._typed[key]

    def _as_it_is(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        """The operator on its operands; if it does not accept their new types, with the inferred ones, or none."""
        try:
            return self._typed_anew(binding, call)
        except InferenceError:
            pass
        try:
            return self._by_aliases(binding, call, self._inferred)
        except InferenceError:
            return self._by_aliases(binding, call, _without_sizes)

    def _by_aliases(
        self, binding: ir.Binding, call: ir.OperatorCall, type_of: Callable[[ir.Atom], Type | None]
    ) -> Iterable[ir.Binding]:
        """The operator on the same tensors with other types."""
        aliases = {arg: ir.Var(getattr(arg, "name", "constant"), type_of(arg)) for arg in call.args}
        aliases = {arg: alias for arg, alias in aliases.items() if alias.type != tensor_type(arg)}
        new = [ir.Binding(alias, arg) for arg, alias in aliases.items()]
        args = tuple(aliases.get(arg, arg) for arg in call.args)
        return (*new, *self._typed_anew(binding, dataclasses.replace(call, args=args)))

    def _inferred(self, atom: ir.Atom) -> Type | None:
        """The type that inference gave a tensor."""
        return self.inferred.get(atom, tensor_type(atom)) if isinstance(atom, ir.Var) else tensor_type(atom)

    def _typed_anew(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        """The call on retyped operands. A known dimension keeps its name."""
        call = ir.map_atoms(call, self.atom, self.block)  # type: ignore[assignment]
        results = lookup(call.operator).result_types([tensor_type(arg) for arg in call.args], call.attributes)
        type_: Type = results[0] if isinstance(binding.var.type, TensorType) else TupleType(results)
        if type_ == binding.var.type:
            return (dataclasses.replace(binding, value=call),)
        var = ir.Var(binding.var.name, type_)
        self._becomes(binding.var, var)
        made = ir.Binding(var, call, binding.origin)
        if not isinstance(type_, TensorType):
            return (made,)
        assert isinstance(binding.var.type, TensorType)
        pairs = zip(binding.var.type.shape, type_.shape, strict=True)
        known = TensorType(type_.dtype, tuple(now if was is UNKNOWN else was for was, now in pairs))
        if known == type_:
            return (made,)
        checked = ir.Binding(ir.Var(var.name, known), ir.MatchShape(var, known.shape), binding.origin)
        self._becomes(binding.var, checked.var)
        return (made, checked)

    def _becomes(self, before: ir.Var, after: ir.Var) -> None:
        self.atoms[before] = after
        self.inferred[after] = self.inferred.get(before, before.type)

    def _counted(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        """The number of an operator's results, a dimension of that size, and the operator that takes it."""
        (x,), (comparison, operator) = call.args, _COUNTED[call.operator]
        self.begin(binding)
        if tensor_type(x).dtype is not DType.bool:
            x = self.emit(comparison, x, constant(np.zeros((), tensor_type(x).dtype.numpy)))
        number = self.emit("sum", self.emit("cast", x, dtype=DType.int64))
        size = self._name(self.emit("extent", number))
        found = self.emit(operator, *call.args, count=tensor_type(size.var).shape[0])
        self._becomes(binding.var, found)
        return (*self.new[:-1], size, self.new[-1])

    def _is_unknown(self, call: ir.OperatorCall, type_: Type | None) -> bool:
        parts = type_.fields if isinstance(type_, TupleType) else (type_,)
        args = (arg.type for arg in call.args if isinstance(arg, ir.Var))
        return any(map(_has_unknown, (*parts, *args)))

    def _name(self, var: ir.Var) -> ir.Binding:
        """The same tensor with a new name for each unknown dimension."""
        assert isinstance(var.type, TensorType)
        shape = tuple(self._new_name() if dim is UNKNOWN else dim for dim in var.type.shape)
        named = ir.Var(var.name, TensorType(var.type.dtype, shape))
        return ir.Binding(named, ir.MatchShape(var, shape))

    def _new_name(self) -> Dim:
        name = next(self.names)
        self.given[name] = len(self.given)
        return dims.variable(name)


def _has_unknown(type_: Type | None) -> bool:
    return isinstance(type_, TensorType) and UNKNOWN in type_.shape


def _without_sizes(atom: ir.Atom) -> TensorType:
    """The type of a tensor of unknown size."""
    type_ = tensor_type(atom)
    return TensorType(type_.dtype, (UNKNOWN,) * type_.rank)


def _some_sizes(name: str, types: Sequence[TensorType], attributes: Attributes) -> Iterator[dict[str, int]]:
    """Sizes for all variables of a call, among them the static ones and those beside them, each for the name a few times."""
    known = [dim for type_ in types for dim in type_.shape if isinstance(dim, int)]
    numbers = sorted({0, 1, 2, 3, *known, *(dim + 1 for dim in known)})
    variables = PrimitiveDefinition.variables_of(tuple(types), tuple(value for _, value in attributes))
    others = [other for other in variables if other != name]
    random = Random(0)
    for number in numbers:
        for _ in range(_TRIES if others else 1):
            yield {name: number, **{other: random.choice(numbers) for other in others}}


def _call_for(call: ir.OperatorCall, sizes: Mapping[str, int]) -> ir.OperatorCall:
    """The call with numbers in place of the variables of its attributes."""

    def number(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(number, value))
        return dims.substitute(value, sizes) if isinstance(value, SymbolicDim) else value

    return dataclasses.replace(call, attributes=tuple((name, number(value)) for name, value in call.attributes))


def _with_sizes(type_: TensorType, values: Mapping[str, Dim]) -> TensorType:
    """The type with dimensions in place of some names."""
    shape = tuple(dims.substitute(dim, values) if isinstance(dim, SymbolicDim) else dim for dim in type_.shape)
    return TensorType(type_.dtype, shape)


NameShapes = rewriting("name_shapes", _Namer)
