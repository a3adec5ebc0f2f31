"""Modules of Relax: Treadle's, whose functions are seen as Relax has them: parameters, body and struct infos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...compiler import ir
from ...compiler.ir.infer import infer_types
from ..modules.containers import Object
from ..relay.expr import GlobalVar
from ..runtime.ndarray import NDArray, array
from .struct_info import FuncStructInfo, StructInfo, struct_info_of
from .values import Var

__all__ = ["BindingBlock", "DataflowBlock", "Function", "IRModule", "SeqExpr", "VarBinding"]


@dataclass(frozen=True, eq=False)
class VarBinding(Object):
    """A variable, and the expression that it is: one of `compiler/ir`."""

    var: Var
    value: ir.Expr


@dataclass(frozen=True, eq=False)
class BindingBlock(Object):
    """Bindings in order."""

    bindings: tuple[VarBinding, ...]


class DataflowBlock(BindingBlock):
    """Bindings of pure expressions, as all of Treadle's are."""


@dataclass(frozen=True, eq=False)
class SeqExpr(Object):
    """The body of a function: blocks of bindings, and the result, a variable or a constant."""

    blocks: tuple[BindingBlock, ...]
    body: Any


class Function(Object):
    """A function of a module."""

    attrs: dict[str, Any]

    def __init__(self, name: str, function: ir.Function, attrs: Mapping[str, Any]) -> None:
        self.name, self.function = name, function
        self.attrs = {"global_symbol": name, **attrs}
        self._variables: dict[ir.Var, Var] = {}

    def _variable(self, variable: ir.Var) -> Var:
        return self._variables.setdefault(variable, Var.of(variable))

    @cached_property
    def params(self) -> tuple[Var, ...]:
        """Its parameters, which have `name_hint` and `struct_info`; the same objects each time."""
        return tuple(map(self._variable, self.function.params))

    @property
    def ret_struct_info(self) -> StructInfo:
        """That of its result."""
        return struct_info_of(self.function.result_type)

    @property
    def struct_info(self) -> FuncStructInfo:
        """That of the function."""
        return FuncStructInfo([struct_info_of(param.type) for param in self.params], self.ret_struct_info)

    @cached_property
    def body(self) -> SeqExpr:
        """Its bindings, and its result."""
        block = self.function.body
        bindings = tuple(VarBinding(self._variable(each.var), each.value) for each in block.bindings)
        result = block.result
        shown = self._variable(result) if isinstance(result, ir.Var) else result
        return SeqExpr((DataflowBlock(bindings),) if bindings else (), shown)

    def __str__(self) -> str:
        return str(ir.Module({self.name: self.function}))

    def __repr__(self) -> str:
        return f"<relax.Function {self.name}: {self.struct_info}>"


@dataclass(frozen=True, eq=False, repr=False)
class IRModule(ir.Module):
    """A module, and for functions the weights that are their last parameters. `mod["main"]` is a `Function` of Relax, whose
    types are inferred where they are not known; `mod.functions` has Treadle's own."""

    params: Mapping[str, Sequence[NDArray]] = field(default_factory=dict)

    @staticmethod
    def of(module: ir.Module, params: Mapping[str, Any] | None = None) -> IRModule:
        """A module as Relax sees it."""
        kept = {name: [array(each) for each in arrays] for name, arrays in (params or {}).items()}
        return IRModule(module.functions, module.data_types, module.imports, module.entries, kept)

    @cached_property
    def _seen(self) -> dict[str, Function]:
        typed: ir.Module = ir.Module(self.functions, self.data_types, self.imports, self.entries)
        if any(function.result_type is None for function in self.functions.values()):
            typed = infer_types(typed)
        return {name: Function(name, function, self._attrs(name)) for name, function in typed.functions.items()}

    def _attrs(self, name: str) -> dict[str, Any]:
        if name not in self.params:
            return {}
        count = len(self.functions[name].params) - len(self.params[name])
        return {"num_input": count, "params": list(self.params[name])}

    def __getitem__(self, name: Any) -> Any:
        """The function of that name, or of that global variable. Raises UnknownFunctionError."""
        hint = name.name_hint if isinstance(name, GlobalVar) else name
        super().__getitem__(hint)
        return self._seen[hint]

    def get_global_vars(self) -> list[GlobalVar]:
        return [GlobalVar(name) for name in self.functions]

    def get_global_var(self, name: str) -> GlobalVar:
        """The variable of a function. Raises UnknownFunctionError."""
        super().__getitem__(name)
        return GlobalVar(name)
