"""Monomorphisation: a copy of each generic function and data type for every combination of types that it is used at.

The types of elements in data values forget their dimensions: a List[float32[2]] can be given where a List[float32[?]] is
expected, and both must be the same data type of the executable. The known shape of a field is proved when
it is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...formats.messages.errors import CompileError, InferenceError
from ...formats.types import (
    UNKNOWN,
    Constructor,
    DataType,
    DataTypeDefinition,
    FunctionType,
    TensorType,
    TupleType,
    Type,
    TypeVariable,
    erase_dims,
)
from .. import ir
from ..ir.analysis import function_type
from ..ir.unify import Unifier, leaves, replace_variables

# A program that needs more instances, or longer types, is assumed to need infinitely many.
_MAX_INSTANCES = 1000
_MAX_NAME = 10_000


@dataclass(frozen=True)
class Monomorphise:
    name: str = "monomorphise"

    def __call__(self, module: ir.Module) -> ir.Module:
        generic = [name for name, function in module.functions.items() if _type_variables(function_type(function))]
        if not generic and not any(definition.parameters for definition in module.data_types.values()):
            return module
        return _Instantiator(module, frozenset(generic)).run()


class _Instantiator:
    def __init__(self, module: ir.Module, generic: frozenset[str]) -> None:
        self.module, self.generic = module, generic
        self.functions: dict[str, ir.Function] = {}
        self.data_types: dict[str, DataTypeDefinition] = {}
        self.pending: list[tuple[str, str, Mapping[str, Type]]] = []  # new name, generic name, type arguments
        self.names: set[str] = set()

    def run(self) -> ir.Module:
        for name, definition in self.module.data_types.items():
            if not definition.parameters:
                self.type(DataType(name))
        for name in self.module.functions:
            if name not in self.generic:
                self.pending.append((name, name, {}))
                self._drain()
        imports: dict[str, Any] = {name: self.type(type_) for name, type_ in self.module.imports.items()}
        return dataclasses.replace(self.module, functions=self.functions, data_types=self.data_types, imports=imports)

    def _drain(self) -> None:
        while self.pending:
            name, source, arguments = self.pending.pop(0)
            self.functions[name] = _Copy(self, source, arguments).function(self.module.functions[source])

    def instance(self, name: str, arguments: Mapping[str, Type]) -> str:
        """The name of the copy of a generic function for these type arguments."""
        shown = ", ".join(str(self.type(argument)) for argument in arguments.values())
        instance = f"{name}[{shown}]"
        if instance not in self.names:
            self._note(instance)
            self.pending.append((instance, name, arguments))
        return instance

    def type(self, type_: Type) -> Type:
        """`type_` with its data types monomorphic."""
        if isinstance(type_, TupleType):
            return TupleType(tuple(map(self.type, type_.fields)))
        if isinstance(type_, FunctionType):
            return FunctionType(tuple(map(self.type, type_.params)), self.type(type_.result))
        if not isinstance(type_, DataType):
            return type_
        instance = DataType(str(DataType(type_.name, tuple(self.type(_forget_dims(a)) for a in type_.arguments))))
        if instance.name not in self.names:
            self._note(instance.name)
            definition = self.module.data_types[type_.name]
            arguments = dict(zip(definition.parameters, map(_forget_dims, type_.arguments), strict=True))
            self.data_types[instance.name] = DataTypeDefinition(instance.name, (), ())  # its place in the order
            constructors = tuple(
                Constructor(c.name, tuple(self.type(replace_variables(field, arguments)) for field in c.fields))
                for c in definition.constructors
            )
            self.data_types[instance.name] = DataTypeDefinition(instance.name, (), constructors)
        return instance

    def _note(self, name: str) -> None:
        self.names.add(name)
        if len(self.names) > _MAX_INSTANCES or len(name) > _MAX_NAME:
            message = "generic functions and data types need too many instances, or at types that are too large"
            raise CompileError(f"{message}, such as {name[:80]} …")


def _forget_dims(type_: Type) -> Type:
    """A type argument of a data type: sizes are dropped, except in a function's type, where a tensor of unknown
    size cannot replace one of a known size."""
    if isinstance(type_, TensorType):
        return TensorType(type_.dtype, (UNKNOWN,) * type_.rank)
    if isinstance(type_, TupleType):
        return TupleType(tuple(map(_forget_dims, type_.fields)))
    return erase_dims(type_)


class _Copy:
    """A copy of one function, its type variables replaced."""

    def __init__(self, instantiator: _Instantiator, name: str, arguments: Mapping[str, Type]) -> None:
        self.instantiator, self.name, self.arguments = instantiator, name, dict(arguments)
        self.module = instantiator.module
        self.vars: dict[ir.Var, ir.Var] = {}

    # ---- types ----

    def generic_type(self, type_: Type | None) -> Type:
        """A type with this copy's type arguments, its data types still generic."""
        assert type_ is not None
        return replace_variables(type_, self.arguments)

    def type(self, type_: Type | None) -> Type:
        return self.instantiator.type(self.generic_type(type_))

    def var(self, var: ir.Var) -> ir.Var:
        self.vars[var] = ir.Var(var.name, self.type(var.type))
        return self.vars[var]

    # ---- structure ----

    def function(self, function: ir.Function) -> ir.Function:
        params = tuple(map(self.var, function.params))
        body = self.block(function.body, function.result_type)
        return dataclasses.replace(function, params=params, body=body, result_type=self.type(function.result_type))

    def block(self, block: ir.Block, type_: Type | None) -> ir.Block:
        bindings = []
        for binding in block.bindings:
            value = self.expression(binding.value, binding.var.type)
            bindings.append(ir.Binding(self.var(binding.var), value, binding.origin))
        return ir.Block(tuple(bindings), self.atom(block.result, type_))

    def expression(self, expr: ir.Expr, type_: Type | None) -> ir.Expr:
        if isinstance(expr, ir.Call):
            return self._call(expr, type_)
        if isinstance(expr, ir.ImportCall):
            params = self.module.imports[expr.name].params
            return ir.ImportCall(expr.name, tuple(map(self.atom, expr.args, params)))
        if isinstance(expr, ir.Construct):
            return self._construct(expr, type_)
        if isinstance(expr, ir.MakeTuple) and isinstance(type_, TupleType):
            return ir.MakeTuple(tuple(map(self.atom, expr.fields, type_.fields)))
        if isinstance(expr, ir.Function):
            return self.function(expr)
        if isinstance(expr, ir.Match):
            return self._match(expr, type_)
        if isinstance(expr, ir.Loop):
            return self._loop(expr, type_)
        if isinstance(expr, (ir.Var, ir.Constant, ir.GlobalRef)):
            return self.atom(expr, type_)
        return ir.map_atoms(expr, lambda atom: self.atom(atom, None), lambda block: self.block(block, type_))

    def atom(self, atom: ir.Atom, expected: Type | None) -> ir.Atom:
        if isinstance(atom, ir.Var):
            return self.vars[atom]
        if isinstance(atom, ir.GlobalRef) and atom.name in self.instantiator.generic:
            if expected is None:
                message = f"the types at which the generic function {atom.name!r} is used are not known"
                raise CompileError(f"{message}: bind it to a variable that has a type", function=self.name)
            return self._instance(
                atom.name, [function_type(self.module.functions[atom.name])], [self.generic_type(expected)]
            )
        return atom

    def _call(self, call: ir.Call, type_: Type | None) -> ir.Call:
        if not isinstance(call.callee, ir.GlobalRef):
            callee = self.generic_type(call.callee.type)
            params: Sequence[Type] = callee.params if isinstance(callee, FunctionType) else ()
            return ir.Call(self.atom(call.callee, None), tuple(map(self.atom, call.args, params)))
        signature = function_type(self.module.functions[call.callee.name])
        if call.callee.name not in self.instantiator.generic:
            return ir.Call(call.callee, tuple(map(self.atom, call.args, signature.params)))
        known = [
            (param, self.generic_type(arg.type))
            for param, arg in zip(signature.params, call.args, strict=True)
            if not isinstance(arg, ir.GlobalRef)
        ]
        functions = [
            (param, self.generic_type(function_type(self.module.functions[arg.name])))
            for param, arg in zip(signature.params, call.args, strict=True)
            if isinstance(arg, ir.GlobalRef) and arg.name not in self.instantiator.generic
        ]
        pairs = [*known, *functions, (signature.result, self.generic_type(type_))]
        arguments = _solve([pair[0] for pair in pairs], [pair[1] for pair in pairs], _type_variables(signature))
        name = self.instantiator.instance(call.callee.name, arguments)
        expected = [replace_variables(param, dict(arguments)) for param in signature.params]
        return ir.Call(ir.GlobalRef(name), tuple(map(self.atom, call.args, expected)))

    def _instance(self, name: str, patterns: Sequence[Type], types: Sequence[Type]) -> ir.GlobalRef:
        names = _type_variables(function_type(self.module.functions[name]))
        return ir.GlobalRef(self.instantiator.instance(name, _solve(patterns, types, names)))

    def _construct(self, expr: ir.Construct, type_: Type | None) -> ir.Construct:
        generic = self.generic_type(type_)
        instance = self.instantiator.type(generic)
        assert isinstance(generic, DataType)
        assert isinstance(instance, DataType)
        definition = self.module.data_types[generic.name]
        arguments = dict(zip(definition.parameters, generic.arguments, strict=True))
        constructor = next(c for c in definition.constructors if c.name == expr.constructor)
        fields = [replace_variables(field, arguments) for field in constructor.fields]
        return ir.Construct(instance.name, expr.constructor, tuple(map(self.atom, expr.args, fields)))

    def _match(self, expr: ir.Match, type_: Type | None) -> ir.Match:
        value = self.atom(expr.value, None)
        clauses = tuple((self._pattern(pattern), self.block(block, type_)) for pattern, block in expr.clauses)
        return ir.Match(value, clauses)

    def _pattern(self, pattern: ir.Pattern) -> ir.Pattern:
        if isinstance(pattern, ir.Bind):
            return ir.Bind(self.var(pattern.var))
        if isinstance(pattern, (ir.ConstructorPattern, ir.TuplePattern)):
            return dataclasses.replace(pattern, fields=tuple(map(self._pattern, pattern.fields)))
        return pattern

    def _loop(self, expr: ir.Loop, type_: Type | None) -> ir.Loop:
        initial = tuple(self.atom(atom, var.type) for atom, var in zip(expr.initial, expr.variables, strict=True))
        variables = tuple(map(self.var, expr.variables))
        return ir.Loop(variables, initial, self.block(expr.condition, None), self.block(expr.body, type_))


def _type_variables(type_: Type) -> list[str]:
    return list(dict.fromkeys(leaf.name for leaf in leaves(type_) if isinstance(leaf, TypeVariable)))


def _solve(patterns: Sequence[Type], types: Sequence[Type], names: Sequence[str]) -> dict[str, Type]:
    """The type variables `names` of `patterns`, solved for these types. An unconstrained one is (): the element of a list
    that is always empty."""
    found: dict[str, list[Type]] = {name: [] for name in names}
    for pattern, type_ in zip(patterns, types, strict=True):
        _collect(pattern, type_, found)
    return {name: erase_dims(_joined(candidates)) for name, candidates in found.items()}


def _collect(pattern: Type, type_: Type, found: dict[str, list[Type]]) -> None:
    if isinstance(pattern, TypeVariable):
        found[pattern.name].append(type_)
    elif isinstance(pattern, TupleType) and isinstance(type_, TupleType):
        for part, actual in zip(pattern.fields, type_.fields, strict=True):
            _collect(part, actual, found)
    elif isinstance(pattern, DataType) and isinstance(type_, DataType):
        for part, actual in zip(pattern.arguments, type_.arguments, strict=True):
            _collect(part, actual, found)
    elif isinstance(pattern, FunctionType) and isinstance(type_, FunctionType):
        for part, actual in zip((*pattern.params, pattern.result), (*type_.params, type_.result), strict=True):
            _collect(part, actual, found)


def _joined(candidates: Sequence[Type]) -> Type:
    unifier = Unifier()
    joined: Type = candidates[0] if candidates else TupleType(())
    for candidate in candidates[1:]:
        try:
            joined = unifier.join(joined, candidate)
        except InferenceError:
            continue  # it comes from a parameter of a function, where the other one is what is asked for
    return unifier.deep(joined)
