"""Modules: functions by global variable, and data types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...compiler import ir
from ...formats import types
from ..modules.containers import Map, Object
from . import adt, libraries, ty
from .expr import Function, GlobalVar, as_expr, as_text
from .lower import lowered
from .raising import functions_of
from .visit import free_vars


class IRModule(Object):
    """Functions by name, in order. `mod["main"] = function`; an expression becomes a function of no parameters. Of functions of
    Relax, which say so by `module_class`, the module is one of Relax."""

    def __new__(cls, functions: Mapping[Any, Any] | None = None, *_: Any, **__: Any) -> IRModule:
        kinds = (getattr(each, "module_class", None) for each in dict(functions or {}).values())
        return super().__new__(next(filter(None, kinds), cls))

    def __init__(
        self,
        functions: Mapping[Any, Any] | None = None,
        type_definitions: Mapping[Any, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        self.attrs = dict(attrs or {})
        self._functions: dict[str, Function | ir.Function] = {}
        self._variables: dict[str, GlobalVar] = {}
        self._data_types: dict[str, types.DataTypeDefinition] = {}
        self._constructors: dict[str, tuple[adt.Constructor, ...]] = {}
        self._libraries: dict[str, None] = {}  # what was imported, in order
        for name, data in (type_definitions or {}).items():
            self[name] = data
        for name, function in (functions or {}).items():
            self[name] = function

    # ---- functions ----

    def __setitem__(self, name: str | GlobalVar | ty.GlobalTypeVar, value: Any) -> None:
        if isinstance(value, adt.TypeData):
            self.add_type_data(value)
            return
        hint = name if isinstance(name, str) else name.name_hint
        function = value if isinstance(value, (Function, ir.Function)) else Function([], as_expr(value))
        self._functions[hint] = function
        if isinstance(name, GlobalVar):
            self._variables[hint] = name
        self._variables.setdefault(hint, GlobalVar(hint))

    def __getitem__(self, name: str | GlobalVar | ty.GlobalTypeVar) -> Any:
        """A function by name or global variable; a data type by its own. Raises ValueError."""
        if isinstance(name, ty.GlobalTypeVar):
            return self._type_data(name.name_hint)
        hint = name if isinstance(name, str) else name.name_hint
        if hint not in self._functions:
            known = ", ".join(self._functions) or "none"
            raise ValueError(f'Cannot find global function "{hint}" in the Module; it has {known}')
        function = self._functions[hint]
        return function if isinstance(function, Function) else self._of_library()[hint]

    def _of_library(self) -> dict[str, Function]:
        """The functions of libraries, for those who look at them; the module has them in Treadle's form."""
        own = {name: each for name, each in self._functions.items() if isinstance(each, ir.Function)}
        return functions_of(ir.Module(own, self._data_types))

    def __contains__(self, name: str | GlobalVar) -> bool:
        return (name if isinstance(name, str) else name.name_hint) in self._functions

    @property
    def functions(self) -> Map:
        library = self._of_library()
        return Map({self._variables[name]: library.get(name, each) for name, each in self._functions.items()})

    def functions_items(self) -> list[tuple[GlobalVar, Any]]:
        return sorted(self.functions.items(), key=lambda pair: pair[0].name_hint)

    def get_global_var(self, name: str) -> GlobalVar:
        """The variable of a function. Raises ValueError."""
        self[name]
        return self._variables[name]

    def get_global_vars(self) -> list[GlobalVar]:
        return list(self._variables.values())

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def _add(self, var: Any, func: Any, update: bool = False) -> None:
        """A function, or a data type. Raises ValueError where there is one of that name, unless `update`."""
        if not update and not isinstance(func, adt.TypeData) and var in self:
            raise ValueError(f"the module has a function {var} already; update=True replaces it")
        self[var] = func

    def update_func(self, var: GlobalVar, func: Any) -> None:
        self[var] = func

    def update(self, other: IRModule | Mapping) -> None:
        """Takes all of another module, over what has the same names."""
        other = other if isinstance(other, IRModule) else IRModule(other)
        self._functions.update(other._functions)
        self._variables.update(other._variables)
        self._data_types.update(other._data_types)
        self._constructors.update(other._constructors)
        self._libraries.update(other._libraries)

    def shallow_copy(self) -> IRModule:
        made = IRModule(attrs=self.attrs)
        made.update(self)
        return made

    def with_attr(self, key: str, value: Any) -> IRModule:
        made = self.shallow_copy()
        made.attrs[key] = value
        return made

    # ---- data types ----

    def add_type_data(self, data: adt.TypeData) -> None:
        """A data type, with its constructors."""
        name = data.header.name_hint
        cases = []
        for tag, constructor in enumerate(data.constructors):
            constructor.tag = tag
            fields = tuple(_argument(each) for each in constructor.inputs)
            cases.append(types.Constructor(constructor.name_hint, fields))
        parameters = tuple(variable.name_hint for variable in data.type_vars)
        self._data_types[name] = types.DataTypeDefinition(name, parameters, tuple(cases))
        self._constructors[name] = tuple(data.constructors)

    def _add_definition(self, definition: types.DataTypeDefinition) -> None:
        header = ty.GlobalTypeVar(definition.name)
        made = []
        for tag, case in enumerate(definition.constructors):
            constructor = adt.Constructor(case.name, tuple(map(ty.from_type, case.fields)), header)
            constructor.tag = tag
            made.append(constructor)
        self._data_types[definition.name] = definition
        self._constructors[definition.name] = tuple(made)

    def _type_data(self, name: str) -> adt.TypeData:
        if name not in self._data_types:
            raise ValueError(f'Cannot find global type var "{name}" in the Module')
        parameters = [ty.TypeVar(each) for each in self._data_types[name].parameters]
        return adt.TypeData(ty.GlobalTypeVar(name), parameters, self._constructors[name])

    @property
    def type_definitions(self) -> Map:
        return Map({ty.GlobalTypeVar(name): self._type_data(name) for name in self._data_types})

    def get_type(self, name: str) -> tuple:
        """A data type and its constructors: `list_, cons, nil = mod.get_type("List")`. Raises ValueError."""
        data = self._type_data(name)
        return (data.header, *data.constructors)

    def get_global_type_var(self, name: str) -> ty.GlobalTypeVar:
        return self._type_data(name).header

    def get_global_type_vars(self) -> list[ty.GlobalTypeVar]:
        return [ty.GlobalTypeVar(name) for name in self._data_types]

    def get_constructor(self, tag: int) -> adt.Constructor:
        """The first constructor of that tag. Tags here are places in a type, and say nothing of the type."""
        for several in self._constructors.values():
            if tag < len(several):
                return several[tag]
        raise ValueError(f"There is no constructor with the tag {tag}")

    # ---- from elsewhere ----

    @staticmethod
    def from_expr(expr: Any, functions: Mapping | None = None, type_defs: Mapping | None = None) -> IRModule:
        """A module whose "main" is a function, or a function of an expression's free variables."""
        if kind := getattr(expr, "module_class", None):
            return kind.from_expr(expr, functions)
        expr = as_expr(expr)
        module = IRModule(functions, type_defs)
        module["main"] = expr if isinstance(expr, Function) else Function(free_vars(expr), expr)
        return module

    def import_from_std(self, file: str) -> None:
        """A library of Relay's: "prelude.rly" or "nat.rly". Raises ValueError for another."""
        library = _library(file)
        self._libraries[file] = None
        for definition in library.data_types.values():
            self._add_definition(definition)
        for name, function in library.functions.items():
            if name not in self._functions:
                self[name] = function

    def own_data_types(self) -> Iterator[adt.TypeData]:
        """The data types that no library brought."""
        brought = {name for file in self._libraries for name in _library(file).data_types}
        return (self._type_data(name) for name in self._data_types if name not in brought)

    # ---- to Treadle ----

    def lowered(self, *entries: str) -> ir.Module:
        """Treadle's module of what the entries reach, not typed yet. Raises InferenceError."""
        return lowered(self._functions, self._data_types, entries or ("main",))

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        """Relay's text of the module, which `relay.fromtext` reads; `annotate` gives what stands behind each expression."""
        return as_text(self, show_meta_data, annotate)

    def __str__(self) -> str:
        return self.astext(show_meta_data=False)

    def script(self, **options: Any) -> str:
        return self.astext()

    def __repr__(self) -> str:
        return f"<IRModule: {', '.join(self._functions) or 'no functions'}>"


def _library(file: str) -> ir.Module:
    """A library of Relay's. Raises ValueError."""
    if file not in libraries.LIBRARIES:
        raise ValueError(f"import_from_std({file!r}): there are {', '.join(libraries.LIBRARIES)}")
    return libraries.library(file)


def _argument(value: Any) -> types.Type:
    made = ty.to_type(value() if isinstance(value, type) else value)
    if made is None:
        raise TypeError("the fields of a constructor need types that are known")
    return made


def of_ir(module: ir.Module) -> IRModule:
    """A module of Treadle's as Relay's."""
    made = IRModule(functions_of(module))
    for definition in module.data_types.values():
        made._add_definition(definition)
    return made


def as_module(value: Any) -> IRModule:
    """A module from one, or from an expression. Raises TypeError."""
    if isinstance(value, ir.Module) or hasattr(value, "__treadle_module__"):
        raise TypeError("expected a module of Relay, got one of Relax; tvm.compile and relax.build take it")
    return value if isinstance(value, IRModule) else IRModule.from_expr(value)


Module = IRModule
