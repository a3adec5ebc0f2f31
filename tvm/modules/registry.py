"""Functions that are registered under a name for the whole process, and how values cross the border of one.

A program from a file reaches none of them by itself: who loads it hands over what it may call (`reachable` is the rule, `handed`
makes what is handed over of the argument `imports`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from numbers import Complex, Integral, Real
from threading import Lock
from typing import Any, Union

from ...formats.data_type import DataType
from ...formats.dims import SymbolicDim
from ...formats.messages.errors import ArgumentError, ExecutionError, FormatError, UnknownGlobalFunctionError
from ...vm.device import Device
from ...vm.tensor import Tensor
from ...vm.values import Closure, DataValue
from .containers import Array, Map, Object, String

BUILTIN = "vm.builtin."
_INT64 = 1 << 63

# What a file's programs are handed: functions by name, or the names of registered ones.
Imports = Union[Mapping[str, Callable[..., Any]], Iterable[str]]


class PackedFunc:
    """A function of positional arguments, which come to it, and whose result goes back, as the values that TVM knows.

    Integers and floats become Python's, bytes a new bytearray, an element type its text, lists and mappings `Array` and `Map`,
    functions PackedFuncs. Devices, strings, modules and objects stay what they are; tensors share their elements.
    """

    __slots__ = ("__name__", "__weakref__", "function", "is_global")

    def __init__(self, function: Callable[..., Any], is_global: bool = False) -> None:
        self.function, self.is_global = function, is_global
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    @staticmethod
    def of(function: Callable[..., Any]) -> PackedFunc:
        """The function itself where it is one already. Raises ArgumentError for what cannot be called."""
        if isinstance(function, PackedFunc):
            return function
        if not callable(function):
            raise ArgumentError(f"expected a function, got a {type(function).__name__}")
        return PackedFunc(function)

    def __call__(self, *args: Any) -> Any:
        """Raises ArgumentError for a value that does not cross, FormatError, a ValueError, for a tuple as result, and whatever
        the function raises."""
        result = self.function(*map(crossing, args))
        if isinstance(result, tuple) and not isinstance(result, Object):
            message = f"{self.__name__}: PackedFunction can only support one return value, got {len(result)}"
            raise FormatError(f"{message}; return a list")
        return crossing(result)

    @property
    def handle(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(id(self.function))

    def __repr__(self) -> str:
        return f"<PackedFunc {self.__name__}>"


Function = PackedFunc  # as it was called before 0.7

# What crosses as it is; `register_crossing` adds modules, and classes that users register.
_UNCHANGED: list[type] = [Object, SymbolicDim, DataValue, Closure, Device, str, PackedFunc, ctypes.c_void_p]


def register_crossing(kind: type) -> type:
    """Values of that class cross the border of functions as they are."""
    _UNCHANGED.append(kind)
    return kind


def crossing(value: Any) -> Any:
    """A value on the other side of a function's border. Raises ArgumentError for one that does not cross."""
    if isinstance(value, Tensor):
        return value.alias()
    if value is None or isinstance(value, tuple(_UNCHANGED)):
        return value
    if isinstance(value, Integral):
        number = int(value)
        if not -_INT64 <= number < _INT64:
            raise ArgumentError(f"{number} does not cross: integers have 64 bits")
        return number
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (bytes, bytearray)):
        return bytearray(value)
    if isinstance(value, DataType):
        return str(value)
    if isinstance(value, (list, tuple)):
        return Array(map(converted, value))
    if isinstance(value, dict):
        return Map({key: converted(item) for key, item in value.items()})
    if hasattr(value, "asobject"):
        return value.asobject()
    if callable(value) and not isinstance(value, Complex):
        return PackedFunc(value)
    raise ArgumentError(f"Don't know how to handle type {type(value)}: it does not cross a function's border")


def converted(value: Any) -> Any:
    """A value in a list or a mapping."""
    return String(value) if isinstance(value, str) and not isinstance(value, Object) else crossing(value)


# ---- the table ----

_functions: dict[str, PackedFunc] = {}
_changing = Lock()

# The beginning of names → what registers functions of such names, once the first of them is asked for
_providers: dict[str, Callable[[], None]] = {}


def provide(prefix: str, provider: Callable[[], None]) -> None:
    """Says what registers the functions whose names begin with a prefix."""
    _providers[prefix] = provider


def provided(name: str | None = None) -> None:
    """Has the functions of such names registered; without a name, all."""
    for prefix, provider in list(_providers.items()):
        if name is None or name.startswith(prefix):
            provider()


def register_func(
    func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False
) -> Any:
    """Registers a function under a name, by which `get_global_func` finds it: `register_func("name", function)`, or as a
    decorator, with the name or alone. Gives the PackedFunc.

    Raises FormatError, a ValueError, for a name that is not a string, ExecutionError for one that is taken, unless `override`.
    """
    if callable(func_name):
        return register_func(func_name.__name__, func_name, override)
    if not isinstance(func_name, str):
        raise FormatError(f"register_func: expect string function name, got {func_name!r}")
    name = func_name

    def register(function: Callable[..., Any]) -> PackedFunc:
        packed = PackedFunc(PackedFunc.of(function).function, is_global=True)
        with _changing:
            if name in _functions and not override:
                raise ExecutionError(f"Global PackedFunc {name} is already registered; override=True replaces it")
            _functions[name] = packed
        return packed

    return register if f is None else register(f)


def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """The function registered under a name. Where there is none: None if that is allowed, else UnknownGlobalFunctionError, which
    is a ValueError."""
    found = _functions.get(name) if isinstance(name, str) else None
    if found is None and isinstance(name, str):
        provided(name)
        found = _functions.get(name)
    if found is None and not allow_missing:
        raise UnknownGlobalFunctionError(f"Cannot find global function {name!s:.200}; register_func makes one")
    return found


# ---- who reaches it ----

_contained: dict[str, PackedFunc] = {}


def register_contained(name: str, function: Callable[..., Any]) -> None:
    """Registers a function that a file's program may call by its name: it works on its arguments alone, and touches neither
    files, nor the registry, nor anything that the process has but once."""
    _contained[name] = register_func(name, function, override=True)


def contained_names() -> frozenset[str]:
    """The functions that every program may call."""
    provided(BUILTIN)
    return frozenset(_contained)


def reachable(name: str, given: Mapping[str, Callable[..., Any]], from_file: bool) -> Callable[..., Any] | None:
    """What a program may call by a name, None where there is nothing: what was handed over with it, a contained builtin, and,
    for a program that this process has made, whatever is registered."""
    if name in given:
        return given[name]
    registered = get_global_func(name, allow_missing=True)
    return _contained.get(name) if from_file else registered


def handed(imports: Imports) -> dict[str, PackedFunc]:
    """What is handed over to a file's program: functions by name, or the names of registered ones. Raises ArgumentError,
    UnknownGlobalFunctionError."""
    if isinstance(imports, Mapping):
        return {name: PackedFunc.of(function) for name, function in imports.items()}
    if isinstance(imports, str) or not isinstance(imports, Iterable):
        raise ArgumentError(
            f"imports={imports!r:.60}: expected functions by name, {{name: function}}, or a list of the names of registered ones"
        )
    found = {}
    for name in imports:
        function = get_global_func(name)
        assert function is not None
        found[name] = function
    return found


def list_global_func_names() -> list[str]:
    """The names of all registered functions, sorted."""
    return sorted(_functions)


def remove_global_func(name: str) -> None:
    """Takes a function out of the table, if it is there; who has it keeps it."""
    _functions.pop(name, None)


# ---- kinds of modules, and what else an executable's has ----

Loader = Callable[[memoryview, bool], Any]
loaders: dict[str, Loader] = {}  # kind → what makes such a module of its bytes
extensions: dict[str, Callable[[Any], Any]] = {}  # name → of an executable, the module that has a function of that name


def register_loader(kind: str, loader: Loader) -> None:
    """Says who makes modules of that kind from their bytes: `loader(data, trust_native)`."""
    loaders[kind] = loader
