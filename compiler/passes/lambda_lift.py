"""Lambda lifting: closures become global functions, with their free variables as last parameters.

A dimension variable of a closure that its parameters do not bind is captured, too: as a tensor around it
whose shape binds it. A call to a known closure becomes a call to its function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...formats import dims
from ...formats.messages.errors import CompileError
from ...formats.types import ShapeDim, TensorType, TupleType, Type
from .. import ir
from ..ir.analysis import bound_vars, dimension_names, dimension_uses, expressions, free_vars
from .rewriting import Rewriter


@dataclass(frozen=True)
class LambdaLift:
    name: str = "lambda_lift"

    def __call__(self, module: ir.Module) -> ir.Module:
        closures = (
            b for f in module.functions.values() for b in expressions(f.body) if isinstance(b.value, ir.Function)
        )
        return _Lifter(module).run() if any(closures) else module


class _Lifter(Rewriter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.lifted: dict[str, ir.Function] = {}
        self.closures: dict[ir.Var, ir.MakeClosure] = {}
        self.binders: dict[str, ir.Var] = {}  # by dimension variable, a tensor that binds it
        self.names: list[str] = []  # of the functions around

    def run(self) -> ir.Module:
        functions: dict[str, ir.Function] = {}
        for name, function in self.module.functions.items():
            self.names = [name]
            self.binders = {}
            self._note_binders(function.params)
            functions[name] = self.function(function)
            functions |= self.lifted
            self.lifted = {}
        return dataclasses.replace(self.module, functions=functions)

    def block(self, block: ir.Block) -> ir.Block:
        outer = dict(self.binders)
        block = super().block(block)
        self.binders = outer
        return block

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        if isinstance(binding.value, ir.Function):
            return self._lift(binding, binding.value)
        self._note_binders(bound_vars(binding.value))
        binding = self.with_new_operands(binding)
        self._note_binders([binding.var] if isinstance(binding.value, ir.MatchShape) else [])
        call = binding.value
        known = self.closures.get(call.callee) if isinstance(call, ir.Call) else None  # type: ignore[arg-type]
        if known is not None:
            direct = ir.Call(ir.GlobalRef(known.function), (*call.args, *known.captured))  # type: ignore[union-attr]
            return (dataclasses.replace(binding, value=direct),)
        return (binding,)

    def _lift(self, binding: ir.Binding, function: ir.Function) -> Iterable[ir.Binding]:
        name = self._new_name(binding.var.name or "closure")
        outer = dict(self.binders)
        self._note_binders(function.params)
        self.names.append(name)
        function = self.function(function)
        self.names.pop()
        self.binders = outer
        captured = dict.fromkeys([*free_vars(function), *self._dimension_binders(name, function)])
        params = {var: ir.Var(var.name, var.type) for var in captured}
        body = _renamed(function.body, params, self.module)
        self.lifted[name] = dataclasses.replace(
            function, params=(*function.params, *params.values()), body=body, name=name, captured=len(captured)
        )
        if not captured:
            self.atoms[binding.var] = ir.GlobalRef(name)
            return ()
        closure = ir.MakeClosure(name, tuple(captured))
        self.closures[binding.var] = closure
        return (dataclasses.replace(binding, value=closure),)

    def _new_name(self, base: str) -> str:
        stem = f"{self.names[-1]}.{base}"
        taken = self.module.functions.keys() | self.lifted.keys() | set(self.names)
        name, count = stem, 1
        while name in taken:
            name, count = f"{stem}_{count}", count + 1
        return name

    def _note_binders(self, variables: Iterable[ir.Var]) -> None:
        for var in variables:
            for name in _bound_by(var.type):
                self.binders.setdefault(name, var)

    def _dimension_binders(self, name: str, function: ir.Function) -> list[ir.Var]:
        """The outside tensors that bind the dimensions which `function`, or its captures, use and do not
        bind."""
        params = [*function.params, *free_vars(function)]
        compared: set[str] = set()
        for inner in expressions(function.body):
            if isinstance(inner.value, ir.MatchShape):
                # a variable that is known outside is compared there, not bound
                compared |= _bound_by(inner.var.type) - self.binders.keys()
        needed = dict.fromkeys(dimension_uses(ir.Binding(ir.Var(""), function)))
        needed |= dict.fromkeys(dimension_names(function.result_type) if function.result_type is not None else ())
        found: list[ir.Var] = []
        while True:
            types = [var.type for var in (*params, *found) if var.type is not None]
            needed |= dict.fromkeys(name for type_ in types for name in dimension_names(type_))
            bound = compared | _bound_by(*types)
            missing = next((dim for dim in needed if dim not in bound), None)
            if missing is None:
                return found
            if missing not in self.binders:
                raise CompileError(
                    f"nothing says what the dimension {missing!r} is in the closure {name!r}: give it a parameter of "
                    f"that dimension, or let it use a tensor that has it",
                    function=self.names[0],
                )
            found.append(self.binders[missing])


def _bound_by(*types: Type | None) -> set[str]:
    """The dimension variables bound by parameters of these types: those that the code of a function solves for."""
    shape = [dim for type_ in types for dim in _dimensions(type_)]
    return {str(solution.variable) for solution in dims.solve(shape, ())}


def _dimensions(type_: Type | None) -> Iterator[ShapeDim]:
    """Dimensions of the tensors that code generation finds in a parameter."""
    if isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _dimensions(field)
    elif isinstance(type_, TensorType):
        yield from type_.shape


def _renamed(block: ir.Block, names: dict[ir.Var, ir.Var], module: ir.Module) -> ir.Block:
    rewriter = Rewriter(module)
    rewriter.atoms.update(names)
    return rewriter.block(block)
