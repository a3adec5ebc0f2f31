"""Base of passes: a walk that rebuilds a function binding by binding, and an emitter of new bindings."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats.types import TensorType, TupleType, Type
from .. import bounds, ir
from ..ir.analysis import atoms_in
from ..operators.table import lookup


class Rewriter:
    """Rebuilds functions. A pass overrides `binding`, and records replaced variables in `atoms`."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.atoms: MutableMapping[ir.Var, ir.Atom] = {}
        self._came: ir.Function | None = None  # the current function
        self._uses: Counter[ir.Atom] | None = None

    @property
    def uses(self) -> Counter[ir.Atom]:
        """Use counts of each atom in the current function, before the pass; computed on first use."""
        if self._uses is None:
            self._uses = Counter() if self._came is None else Counter(atoms_in(self._came.body))
        return self._uses

    def run(self) -> ir.Module:
        functions = {name: self.function(function) for name, function in self.module.functions.items()}
        return dataclasses.replace(self.module, functions=functions)

    def function(self, function: ir.Function) -> ir.Function:
        self._came, self._uses = function, None
        return dataclasses.replace(function, body=self.block(function.body))

    def block(self, block: ir.Block) -> ir.Block:
        bindings: list[ir.Binding] = []
        for binding in block.bindings:
            bounds.check(binding.origin)
            bindings.extend(self.binding(binding))
        return ir.Block(tuple(bindings), self.atom(block.result))

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        """The replacement of a binding: of an operator's call, what `call` says."""
        binding = self.with_new_operands(binding)
        return self.call(binding, binding.value) if isinstance(binding.value, ir.OperatorCall) else (binding,)

    def call(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        """The replacement of an operator's call, whose operands are replaced already."""
        return (binding,)

    def with_new_operands(self, binding: ir.Binding) -> ir.Binding:
        if isinstance(binding.value, ir.OperatorCall) and not any(arg in self.atoms for arg in binding.value.args):
            return binding  # the common case
        value = ir.map_atoms(binding.value, self.atom, self.block)
        return binding if value is binding.value else dataclasses.replace(binding, value=value)

    def atom(self, atom: ir.Atom) -> ir.Atom:
        while isinstance(atom, ir.Var) and atom in self.atoms:
            atom = self.atoms[atom]
        return atom


class Emitter(Rewriter):
    """A rewriter that inserts new bindings before the current one: those of `new`, which `binding` resets for each."""

    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.new: list[ir.Binding] = []
        self.origin = ""  # of the current binding

    def begin(self, binding: ir.Binding) -> None:
        """Starts emitting before this binding."""
        self.new, self.current, self.origin = [], binding, binding.origin

    def emit(self, operator: str, *args: ir.Atom, **attributes: Any) -> ir.Var:
        """The result of an operator."""
        call = operator_call(operator, *args, **attributes)
        types = lookup(operator).result_types([tensor_type(arg) for arg in args], call.attributes)
        return self.bind(call, types[0] if len(types) == 1 else TupleType(types), operator)

    def bind(self, value: ir.Expr, type_: Type, name: str) -> ir.Var:
        """The variable of a new binding."""
        var = ir.Var(name, type_)
        self.new.append(ir.Binding(var, value, self.origin))
        return var


# ---- new parts ----


def operator_call(operator: str, *args: ir.Atom, **attributes: Any) -> ir.OperatorCall:
    """A call with its attributes in the IR's form. Raises InferenceError for attributes that the operator does not have."""
    return ir.OperatorCall(operator, args, lookup(operator).canonical(attributes))


def tensor_type(atom: ir.Atom) -> TensorType:
    """The type of an atom that is a tensor, in a typed module."""
    assert not isinstance(atom, ir.GlobalRef)
    assert isinstance(atom.type, TensorType)
    return atom.type


def is_row(atom: ir.Atom, size: int) -> bool:
    """Whether an atom is a constant of `size` elements, all along its last axis, such as a bias of a product's columns."""
    return isinstance(atom, ir.Constant) and atom.array.shape[-1:] == (size,) == (atom.array.size,)


def order_of(call: ir.OperatorCall) -> tuple[int, ...]:
    """The axes of a transposition, a call of permute_dims in a typed module."""
    rank = tensor_type(call.args[0]).rank
    axes: Any = lookup("permute_dims").bind(call.attributes)["axes"]
    return tuple(range(rank))[::-1] if axes is None else tuple(axis % rank for axis in axes)


def constant(array: np.ndarray) -> ir.Constant:
    """A constant of these elements, which must not change any more."""
    return ir.Constant(ir.frozen(array))


@dataclass(frozen=True)
class Rewriting:
    """A pass that a rewriter does, made of the module and of the pass's options."""

    name: str
    rewriter: Callable[..., Rewriter]
    options: tuple[Any, ...]

    def __call__(self, module: ir.Module) -> ir.Module:
        return self.rewriter(module, *self.options).run()


def rewriting(name: str, rewriter: Callable[..., Rewriter]) -> Callable[..., Rewriting]:
    """The function that makes a pass of options."""
    return lambda *options: Rewriting(name, rewriter, options)
