"""Modules of Relax: functions by global variable. What a frontend read is Treadle's program; its Relax form is made when it is
looked at (`lift.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...compiler import ir
from ...formats.messages.errors import CheckError, UnknownFunctionError
from ...formats.messages.names import near
from ..modules.containers import Map
from ..relay import module as relay_module
from ..runtime.ndarray import NDArray, array
from .expr import ExternFunc, Function, GlobalVar
from .node import Node

__all__ = ["DummyGlobalInfo", "IRModule", "VDevice"]


class VDevice(Node):
    """A device that tensors are said to be on; all are the CPU here."""

    def __init__(self, target: Any = None, vdevice_id: int = 0, memory_scope: str = "global") -> None:
        self.target, self.vdevice_id, self.memory_scope = str(target or ""), vdevice_id, memory_scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VDevice) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.target, self.vdevice_id, self.memory_scope


class DummyGlobalInfo(Node):
    """Information of a module of which nothing is known."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DummyGlobalInfo)

    def __hash__(self) -> int:
        return hash(DummyGlobalInfo)


class IRModule(relay_module.IRModule, Node):
    """Functions by name, in order. `mod["main"] = function`."""

    def __init__(
        self,
        functions: Mapping[Any, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.attrs = dict(attrs or {})
        self.global_infos = {name: list(infos) for name, infos in (global_infos or {}).items()}
        self.params: dict[str, list[NDArray]] = {}  # of functions, the weights that are their last parameters
        self.source: ir.Module | None = None  # Treadle's program, where it was not written in Relax
        self._made: dict[str, Function | ExternFunc] = {}
        for name, function in (functions or {}).items():
            self[name] = function

    @staticmethod
    def of(module: ir.Module, params: Mapping[str, Any] | None = None) -> IRModule:
        """A program of Treadle's as Relax sees it."""
        made = IRModule()
        made.source = module
        made.params = {name: [array(each) for each in arrays] for name, arrays in (params or {}).items()}
        return made

    @property
    def _functions(self) -> dict[str, Any]:  # type: ignore[override]
        if self.source is not None and not self._made:
            from .lift import lifted

            self._made.update(lifted(self.source, self.params))
        return self._made

    def __setitem__(self, name: Any, value: Any) -> None:
        """Raises CheckError for anything but a function."""
        if not isinstance(value, (Function, ExternFunc)):
            raise CheckError(f"IRModule: {name}: expected a function of Relax, got a {type(value).__name__}")
        functions = self._functions
        self.source = None
        functions[name if isinstance(name, str) else name.name_hint] = value

    def __getitem__(self, name: Any) -> Any:
        """The function of that name, or of that global variable. Raises UnknownFunctionError."""
        hint = name if isinstance(name, str) else name.name_hint
        if hint not in self._functions:
            known = ", ".join(self._functions) or "none"
            raise UnknownFunctionError(
                f"Cannot find global function {hint!r} in the module{near(hint, self._functions)}; it has {known}"
            )
        return self._functions[hint]

    def __delitem__(self, name: Any) -> None:
        self[name]
        self.source = None
        del self._made[name if isinstance(name, str) else name.name_hint]

    def __contains__(self, name: Any) -> bool:
        return (name if isinstance(name, str) else name.name_hint) in self._functions

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.get_global_vars())

    @property
    def functions(self) -> Map:
        return Map({self.get_global_var(name): function for name, function in self._functions.items()})

    def functions_items(self) -> list[tuple[Any, Any]]:
        return sorted(self.functions.items(), key=lambda pair: pair[0].name_hint)

    def get_global_var(self, name: str) -> GlobalVar:
        """The variable of a function, which knows its struct info. Raises UnknownFunctionError."""
        return GlobalVar(name, self[name].struct_info)

    def get_global_vars(self) -> list[GlobalVar]:  # type: ignore[override]
        return [self.get_global_var(name) for name in self._functions]

    def update_func(self, var: Any, func: Any) -> None:
        self[var] = func

    def update(self, other: Any) -> None:
        for name, function in (other if isinstance(other, IRModule) else IRModule(other))._functions.items():
            self[name] = function

    def update_global_info(self, name: str, infos: Iterable[Any]) -> None:
        self.global_infos[name] = list(infos)

    def shallow_copy(self) -> IRModule:
        made = IRModule(None, self.attrs, self.global_infos)
        made.params, made.source = dict(self.params), self.source
        made._made = dict(self._made)
        return made

    def with_attr(self, key: str, value: Any) -> IRModule:
        made = self.shallow_copy()
        made.attrs[key] = value
        return made

    @staticmethod
    def from_expr(expr: Any, functions: Any = None, type_defs: Any = None) -> IRModule:
        """A module of one function, called by its global symbol, or "main"."""
        made = IRModule(functions)
        function = expr if isinstance(expr, (Function, ExternFunc)) else Function([], expr)
        made[function.attrs.get("global_symbol", "main")] = function
        return made

    def lowered(self, *entries: str) -> ir.Module:
        """Treadle's module. Raises CompileError for what only the Relax machine does."""
        from .lower import lowered

        return self.source if self.source is not None else lowered(self._functions)

    def __treadle_module__(self) -> ir.Module:
        return self.lowered()

    script, show, __str__ = Node.script, Node.show, Node.__str__

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        return self.script(show_meta=show_meta_data)

    def __repr__(self) -> str:
        return f"<relax.IRModule: {', '.join(self._functions) or 'no functions'}>"


Function.module_class = ExternFunc.module_class = IRModule  # type: ignore[attr-defined]
