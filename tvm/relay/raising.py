"""From Treadle's IR to Relay's expressions: the functions of a model that a frontend read, for those who look into them.

Each binding becomes one expression: a call of Relay's operator where lowering that gives the binding back, else of Treadle's own
(`treadle.gelu`); a loop a function that calls itself; what is used in branches alone a `let` before them. An expression's place
is that of its binding, its span the name of the model's node: so lowering (`lower.py`) gives the same module again, also from
the text.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...compiler import ir
from ...compiler.builder import programs
from ...compiler.builder.programs import Expression
from ...compiler.driver import bind_parameters, named_results
from ...compiler.ir.analysis import atoms_in
from ...compiler.ir.infer import infer_types
from ...compiler.ir.printer import print_type
from ...compiler.ir.unify import leaves
from ...formats import types
from ...formats.dtypes import DType
from ...formats.messages.errors import InferenceError, TreadleError
from . import adt, ty
from .expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    SourceName,
    Span,
    Tuple,
    TupleGetItem,
    Var,
    next_place,
)
from .loops import WhileLoop
from .lower import RESULTS, body_of, declared, variable
from .op.matching import candidates
from .op.table import native_call
from .visit import run


@dataclass(frozen=True, eq=False)
class Source:
    """A function of a module of Treadle's."""

    module: ir.Module
    name: str
    typed: Callable[[], ir.Module]

    @property
    def function(self) -> ir.Function:
        return self.module.functions[self.name]

    def bound(self, params: Mapping[str, np.ndarray]) -> Function:
        """The function with parameters replaced by constants. Raises CompileError for one that does not fit."""
        return functions_of(bind_parameters(self.module, self.name, params))[self.name]


def functions_of(module: ir.Module) -> dict[str, Function]:
    """The functions of a module as Relay's. They are made when one looks into them, which raises InferenceError where types are
    wrong."""
    typed = functools.cache(lambda: infer_types(module))

    def made(name: str) -> Function:
        return Function.later(Source(module, name, typed), lambda: _Raising(typed(), name).function())

    return {name: made(name) for name in module.functions}


_PARTS = (ir.GetItem, ir.MakeTuple)  # left out where nothing uses them, as of several results


class _Raising:
    """Raises one function. What it raises is lowered at once, to see what lowering will make of it."""

    def __init__(self, module: ir.Module, name: str) -> None:
        self.module, self.name = module, name
        self.body = body_of(module, name)
        self.uses = Counter(atoms_in(module.functions[name].body))
        self.values: dict[ir.Atom, Expr] = {}
        self.constants: dict[ir.Constant, Constant] = {}
        self.arrays = Counter(id(atom.array) for atom in self.uses.elements() if isinstance(atom, ir.Constant))

    def function(self) -> Function:
        source = self.module.functions[self.name]
        made = self._function(source)
        names = named_results(source).result_names if self.name == "main" else source.result_names
        return made.with_attr(RESULTS, list(names)) if names else made

    def _function(self, source: ir.Function) -> Function:
        params = list(map(self.variable, source.params))
        body = self.block(source.body)
        result = None if source.result_type is None else ty.from_type(source.result_type)
        parts = [param.type for param in source.params if param.type is not None]
        names = dict.fromkeys(
            leaf.name for each in parts for leaf in leaves(each) if isinstance(leaf, types.TypeVariable)
        )
        made = Function(params, body, result, [ty.TypeVar(name) for name in names])
        if result is not None:
            made._checked_type = ty.FuncType(tuple(param.checked_type for param in params), result, made.type_params)
        return made

    def variable(self, var: ir.Var) -> Var:
        """A variable that a function, a loop or a pattern binds."""
        made = Var(var.name or "v", None if var.type is None else ty.from_type(var.type))
        made._checked_type, made.span = made.type_annotation, _span(var.name)
        self.body.variables[made] = variable(made)
        self.values[var] = made
        return made

    # ---- blocks ----

    def block(self, block: ir.Block) -> Expr:
        """The bindings of a block as its result is made of them; those that are used in its inner blocks alone are lets."""
        lets = self._opened(block.bindings, (block.result,))
        body = self.atom(block.result)
        for var, value in reversed(lets):
            body = Let(var, value, body)
        return body

    def _opened(self, bindings: Sequence[ir.Binding], results: Sequence[ir.Atom]) -> list[tuple[Var, Expr]]:
        """Raises the bindings of a block; those that are lets."""
        bindings = [each for each in bindings if self.uses[each.var] or not isinstance(each.value, _PARTS)]
        used = {atom for binding in bindings for atom in ir.atoms_of(binding.value)}.union(results)
        lets = []
        for binding in bindings:
            if isinstance(binding.value, (ir.Var, ir.Constant, ir.GlobalRef)):
                self.values[binding.var] = self.atom(binding.value)
                continue
            value = self.value(binding)
            if binding.var in used and not isinstance(binding.value, ir.Function) and not _is_declared(binding):
                self.values[binding.var] = value
            else:
                variable_ = self.variable(binding.var)
                variable_.span = _span(binding.var.name) if isinstance(binding.value, ir.Function) else None
                variable_._checked_type = variable_._checked_type if self.uses[binding.var] else None
                self.body.variables[variable_] = self._lowered(value)
                lets.append((variable_, value))
        return lets

    def atom(self, atom: ir.Atom) -> Expr:
        if isinstance(atom, ir.Constant):
            if (found := self.constants.get(atom)) is None:
                found = self.constants[atom] = Constant.of(atom.array)
                found._checked_type = found._known_type
                found.place = next_place() if self.arrays[id(atom.array)] > 1 else None
            return found
        return GlobalVar(atom.name) if isinstance(atom, ir.GlobalRef) else self.values[atom]

    def atoms(self, atoms: Sequence[ir.Atom]) -> list[Expr]:
        return list(map(self.atom, atoms))

    # ---- bindings ----

    def value(self, binding: ir.Binding) -> Expr:
        kind = type(binding.value).__name__
        rule = getattr(self, kind, None)
        if rule is None:
            raise InferenceError(
                f"{kind} is what passes make; Relay has expressions of programs before these", function=self.name
            )
        made = rule(binding.value, binding)
        made._checked_type = None if binding.var.type is None else ty.from_type(binding.var.type)
        return self.placed(made, binding)

    def placed(self, expr: Expr, binding: ir.Binding) -> Expr:
        expr.place, expr.span = next_place(), _span(binding.origin)
        return expr

    def OperatorCall(self, call: ir.OperatorCall, binding: ir.Binding) -> Expr:
        args = self.atoms(call.args)
        types_ = [getattr(atom, "type", None) for atom in call.args]
        for made in candidates(call, args, types_):
            inner = made.tuple_value if isinstance(made, TupleGetItem) else (*made.args, made)[0]
            if inner not in args:  # made of two: the inner one has a place and a type too
                self.placed(inner, binding)
                inner._checked_type = _type_of_inner(made, types_, binding.var.type)
            if self.gives_back(made, call, args):
                return made
        return native_call(call.operator, args, {name: attribute(value) for name, value in call.attributes})

    def gives_back(self, made: Expr, call: ir.OperatorCall, args: Sequence[Expr]) -> bool:
        """Whether lowering makes the one call of an operator again."""
        found, operands = self._lowered(made), list(map(self._lowered, args))
        if found.make is None or found.bodies or list(map(id, found.operands)) != list(map(id, operands)):
            return False
        built = found.make(call.args, ())
        if not isinstance(built, ir.OperatorCall) or built.args != call.args:
            return False
        return built.operator == call.operator and built.attributes == call.attributes

    def _lowered(self, value: Expr) -> Expression:
        try:
            return run(self.body.lower(value))
        except (TreadleError, NotImplementedError, TypeError, ValueError, AttributeError, IndexError):
            return programs.var("value", None)  # whose type lowering does not know

    def MakeTuple(self, value: ir.MakeTuple, _: ir.Binding) -> Expr:
        return Tuple(self.atoms(value.fields))

    def GetItem(self, value: ir.GetItem, _: ir.Binding) -> Expr:
        return TupleGetItem(self.atom(value.tuple), value.index)

    def MatchShape(self, value: ir.MatchShape, _: ir.Binding) -> Expr:
        return native_call("match_shape", [self.atom(value.value)], {"shape": tuple(map(attribute, value.shape))})

    def ImportCall(self, value: ir.ImportCall, _: ir.Binding) -> Expr:
        type_ = print_type(self.module.imports[value.name])
        return native_call("import", self.atoms(value.args), {"function": value.name, "signature": type_})

    def Call(self, value: ir.Call, _: ir.Binding) -> Expr:
        return Call(self.atom(value.callee), self.atoms(value.args))

    def Function(self, value: ir.Function, _: ir.Binding) -> Expr:
        return self._function(value)

    def Construct(self, value: ir.Construct, _: ir.Binding) -> Expr:
        return Call(self.constructor(value.data_type, value.constructor), self.atoms(value.args))

    def constructor(self, data_type: str, name: str) -> adt.Constructor:
        cases = self.module.data_types[data_type].constructors
        tag, case = next((tag, case) for tag, case in enumerate(cases) if case.name == name)
        made = adt.Constructor(name, tuple(map(ty.from_type, case.fields)), ty.GlobalTypeVar(data_type))
        made.tag = tag
        return made

    # ---- control ----

    def If(self, value: ir.If, _: ir.Binding) -> Expr:
        return If(self.atom(value.condition), self.block(value.then), self.block(value.otherwise))

    def Match(self, value: ir.Match, _: ir.Binding) -> Expr:
        assert not isinstance(value.value, (ir.Constant, ir.GlobalRef))
        data = value.value.type.name if isinstance(value.value.type, types.DataType) else ""
        clauses = [adt.Clause(self.pattern(pattern, data), self.block(block)) for pattern, block in value.clauses]
        return adt.Match(self.atom(value.value), clauses)

    def pattern(self, pattern: ir.Pattern, data: str) -> adt.Pattern:
        """A pattern of values of a data type."""
        if isinstance(pattern, ir.Bind):
            return adt.PatternVar(self.variable(pattern.var))
        if isinstance(pattern, ir.Wildcard):
            return adt.PatternWildcard()
        if isinstance(pattern, ir.TuplePattern):
            return adt.PatternTuple([self.pattern(each, "") for each in pattern.fields])
        data = data or next(
            name
            for name, each in self.module.data_types.items()
            if pattern.constructor in {c.name for c in each.constructors}
        )
        constructor = self.constructor(data, pattern.constructor)
        return adt.PatternConstructor(constructor, [self.pattern(each, "") for each in pattern.fields])

    def Loop(self, value: ir.Loop, binding: ir.Binding) -> Expr:
        initial = self.atoms(value.initial)
        params = list(map(self.variable, value.variables))
        condition = self.block(value.condition)
        name = Var("while_loop")
        return WhileLoop(params, initial, condition, self.following(name, value.body, len(params))).let(name)

    def following(self, name: Var, block: ir.Block, count: int) -> Expr:
        """The body of a loop: its last tuple as a call of the loop."""
        last = block.bindings[-1] if block.bindings else None
        if last is not None and last.var is block.result and isinstance(last.value, ir.MakeTuple):
            lets, args, origin = self._opened(block.bindings[:-1], last.value.fields), last.value.fields, last.origin
            again = Call(name, self.atoms(args), span=_span(origin))
        else:
            lets = self._opened(block.bindings, (block.result,))
            whole = self.atom(block.result)
            again = Call(name, [TupleGetItem(whole, place) for place in range(count)])
        for var, let in reversed(lets):
            again = Let(var, let, again)  # type: ignore[assignment]
        return again


def _type_of_inner(made: Call | TupleGetItem, args: Sequence[Any], result: types.Type | None) -> ty.Type | None:
    if result is None or None in args:
        return None
    if isinstance(made, TupleGetItem):  # of batch_norm: the result, mean and variance
        return ty.TupleType(tuple(map(ty.from_type, (result, *args[3:]))))
    is_tuple = bool(made.args) and isinstance(made.args[0], Tuple)
    return ty.TupleType(tuple(map(ty.from_type, args))) if is_tuple else ty.from_type(result)


def _is_declared(binding: ir.Binding) -> bool:
    """Whether inference may find another type: of data, of which the value is one case."""
    if not isinstance(binding.value, (ir.If, ir.Match, ir.Construct)) or binding.var.type is None:
        return False
    return declared(binding.var.type) is not None


def attribute(value: Any) -> Any:
    """A value of an operator's attribute as Relay's have it."""
    if value is types.UNKNOWN:
        return ty.Any()
    return value.name if isinstance(value, DType) else value


def _span(name: str) -> Span | None:
    return Span(SourceName(name), 0, 0, 0, 0) if name else None
