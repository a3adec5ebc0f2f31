"""Operators on tensors that the Relax machine calls, by their text: `R.add(a0, a1)`. Each is compiled once for the shapes and
element types that it is called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compiler import driver
from ...formats.messages.errors import ParseError
from ...vm.machine import VirtualMachine
from ...vm.tensor import Tensor
from ..runtime.container import given
from ..script.reader import from_source
from . import expr
from .expr import Call, Function, PrimValue, ShapeExpr, Var, free_vars, replaced
from .module import IRModule
from .struct_info import TensorStructInfo

BEGIN = "R."


def kernel(text: str) -> Callable[..., Any]:
    """The function that an operator's text over a0, a1, … is. Raises ParseError."""
    call = from_source(text, {f"a{at}": Var(f"a{at}", TensorStructInfo(None, "")) for at in range(text.count("a"))})
    if not isinstance(call, Call):
        raise ParseError(f"{text!r}: expected the call of an operator")
    params = {each.name_hint: each for each in free_vars(call)}
    made: dict[Any, tuple[VirtualMachine, list[int]]] = {}

    def run(*args: Any) -> Any:
        key = tuple(map(_kind, args))
        if key not in made:
            made[key] = _built(call, params, args)
        machine, tensors = made[key]
        return given(machine["main"](*(args[at] for at in tensors)))

    return run


def _kind(value: Any) -> Any:
    return (value.array.dtype.name, value.array.shape) if isinstance(value, Tensor) else ("", str(value))


def _built(call: Call, params: dict[str, Var], args: Any) -> tuple[VirtualMachine, list[int]]:
    values: dict[Var, Any] = {}
    own: list[Var] = []
    tensors: list[int] = []
    for at, value in enumerate(args):
        if f"a{at}" not in params:
            continue
        if isinstance(value, Tensor):
            made: Any = Var(f"a{at}", expr.Constant(value).struct_info)
            own.append(made)
            tensors.append(at)
        else:
            made = PrimValue(value) if isinstance(value, (int, float)) else ShapeExpr(value)
        values[params[f"a{at}"]] = made
    actual = replaced(call, lambda each: values.get(each) if isinstance(each, Var) else None)
    result = Var("result", actual.struct_info)
    block = expr.BindingBlock([expr.VarBinding(result, actual)])
    module = IRModule({"main": Function(own, expr.SeqExpr([block], result), None, True, {"global_symbol": "main"})})
    return VirtualMachine(driver.compile(module.lowered(), progress=False)), tensors
