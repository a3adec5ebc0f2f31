"""`relay.build`, `relay.create_executor`, and what they share: from a Relay module to Treadle's executable."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...compiler import ir
from ...compiler.driver import compile
from ...compiler.passes import optional_passes
from ...formats.executable import Executable
from ...formats.messages.calling import warn_user
from ...formats.messages.errors import ArgumentError, CompileError
from ...formats.types import TensorType
from ...vm.device import cpu
from ...vm.machine import VirtualMachine
from ...vm.tensor import require_cpu
from ..graphs.factory import GraphFactory
from ..runtime.arguments import argument
from ..runtime.container import wrapped
from ..runtime.executable import Executable as VMExecutable
from ..runtime.vm import VirtualMachine as RelayMachine
from ..transform import PassContext
from .expr import Constant, Expr, Function, GlobalVar, as_expr
from .module import IRModule, as_module
from .rewrite import bind, substitute
from .transform import build_config
from .visit import free_vars, postorder

__all__ = ["BuildModule", "bind_params_by_name", "build", "build_config", "compiled", "create_executor", "optimize"]


def array_of(value: Any) -> np.ndarray:
    """A tensor's or an array's elements, or a number's."""
    return np.asarray(value.array if hasattr(value, "array") else value.numpy() if hasattr(value, "numpy") else value)


def check_target(target: Any) -> None:
    """Raises ArgumentError for a target that Treadle makes no programs for."""
    several = (
        list(target.values())
        if isinstance(target, Mapping)
        else target
        if isinstance(target, (list, tuple))
        else [target]
    )
    for each in several:
        text = str(getattr(each, "kind", each) if not isinstance(each, str) else each)
        kind = text.split()[0] if text.split() else "llvm"
        if each is not None and kind not in ("llvm", "cpu", "c", "stackvm", "hybrid", "None"):
            raise ArgumentError(f"target={text!r}: Treadle makes programs for CPUs, which TVM calls llvm")


def bind_params_by_name(function: Any, params: Mapping[str, Any]) -> Any:
    """The function with parameters replaced by constants. Names that it lacks are told, and left out."""
    named = names_of(function)
    if several := [name for name in params if named.count(name) > 1]:
        raise CompileError(f"bind_params_by_name: the function has several parameters of the name {', '.join(several)}")
    if unknown := [name for name in params if name not in named]:
        warnings.warn(f"the function has no parameters {', '.join(unknown)}; they are left out", stacklevel=3)
    arrays = {name: array_of(value) for name, value in params.items() if name in named}
    if function.source is not None:
        return function.source.bound(arrays)
    by_name = {param.name_hint: param for param in function.params}
    return substitute(function, {by_name[name]: Constant(array) for name, array in arrays.items()})


def names_of(function: Any) -> list[str]:
    """The names of a function's parameters; an imported one is not looked into."""
    if function.source is not None:
        return [param.name for param in function.source.function.params]
    return [param.name_hint for param in function.params]


def with_known_params(module: IRModule, params: Mapping[str, Any] | None) -> tuple[ir.Module, dict[str, np.ndarray]]:
    """Treadle's module, and the arrays of the parameters that its main has. Others are told, and left out."""
    lowered = module.lowered("main")
    names = {param.name for param in lowered.functions["main"].params}
    if unknown := [name for name in params or {} if name not in names]:
        warnings.warn(f"main has no parameters {', '.join(unknown)}; they are left out", stacklevel=4)
    return lowered, {name: array_of(value) for name, value in (params or {}).items() if name in names}


def compiled(mod: Any, target: Any = None, params: Mapping[str, Any] | None = None) -> Executable:
    """Treadle's executable of a module, by the innermost PassContext. Raises CompileError."""
    check_target(target)
    lowered, arrays = with_known_params(as_module(mod), params)
    return compiled_ir(lowered, arrays, entry="main")


def compiled_ir(module: ir.Module, params: Mapping[str, np.ndarray], **options: Any) -> Executable:
    """The executable of a module of Treadle's, by the innermost PassContext. Raises CompileError."""
    context = PassContext.current()
    without = [name for name in context.disabled_pass if name in optional_passes()]
    return compile(module, params=params, opt_level=context.level, progress=False, without=without, **options)


def optimize(mod: Any, target: Any = None, params: Mapping[str, Any] | None = None) -> tuple[IRModule, dict]:
    """The module, parameters bound, after the passes that the context requires, and an empty dict: what follows is done by
    Treadle's passes when it is compiled."""
    from . import transform

    check_target(target)
    module = as_module(mod).shallow_copy()
    if params:
        module["main"] = bind_params_by_name(module["main"], params)
    for name in PassContext.current().required_pass:
        module = getattr(transform, name)()(module)
    return module, {}


def build(
    ir_mod: Any,
    target: Any = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> Any:
    """A module for the graph executor; it can be taken apart as `graph, lib, params` too. The option "link-params" of `executor`
    makes the weights the library's, and so does a function with the attribute "Compiler": there are no params then.

    Raises CompileError, and ArgumentError for a module that is no graph, such as one with symbolic shapes or branches: the
    virtual machine runs that.
    """
    check_target(target)
    module = as_module(ir_mod)
    lowered, arrays = with_known_params(module, params)
    is_linked = (executor is not None and executor["link-params"]) or _has_foreign_functions(module)
    executable = compiled_ir(lowered, arrays, entry="main", named_weights=True)
    return GraphFactory(executable, mod_name, is_linked=bool(is_linked))


def _has_foreign_functions(module: IRModule) -> bool:
    """Whether a function is another compiler's, whose library has its constants. What a frontend has read, no pass has handed
    over: it is not made Relay's to look."""
    own = (each for each in module._functions.values() if isinstance(each, Function) and each.source is None)
    parts = (part for function in own for part in postorder(function))
    return any(isinstance(part, Function) and "Compiler" in (part.attrs or {}) for part in parts)


class BuildModule:
    """Builds one module, step by step; what `build` gives, in parts."""

    def __init__(self) -> None:
        self._built: Any = None

    def build(
        self,
        mod: Any,
        target: Any = None,
        target_host: Any = None,
        executor: Any = None,
        runtime: Any = None,
        workspace_memory_pools: Any = None,
        constant_memory_pools: Any = None,
        params: Mapping[str, Any] | None = None,
        mod_name: str = "default",
    ) -> tuple[str, Any, dict[str, Any]]:
        """The graph as JSON, the library, and the weights. Raises what `build` of this module raises."""
        self._built = build(mod, target, executor=executor, params=params, mod_name=mod_name)
        return self.get_graph_json(), self.get_module(), self.get_params()

    def optimize(
        self, mod: Any, target: Any = None, target_host: Any = None, params: Mapping[str, Any] | None = None
    ) -> tuple[IRModule, dict]:
        """`optimize` of this module."""
        return optimize(mod, target, params)

    def _known(self) -> Any:
        if self._built is None:
            raise ArgumentError("BuildModule: nothing is built yet; call build first")
        return self._built

    def get_graph_json(self) -> str:
        """The graph as JSON. Raises ArgumentError before `build`."""
        return self._known().get_graph_json()

    def get_module(self) -> Any:
        """The library. Raises ArgumentError before `build`."""
        return self._known().get_lib()

    def get_params(self) -> dict[str, Any]:
        """The weights. Raises ArgumentError before `build`."""
        return self._known().get_params()


# ---- running at once ----


def bound_arguments(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """One value for each parameter, by its name also where several have it. Warns of other names: all weights of a model's
    importer may be given. Raises ArgumentError, a TypeError, as TVM words it."""
    values = list(args)
    for place, name in enumerate(names):
        if name in kwargs:
            if place < len(args):
                raise ArgumentError(
                    f"duplicate argument supplied in both positional args (at position: {place}), "
                    f"and keyword argument (with name: {name})"
                )
            values.append(kwargs[name])
    if unknown := [name for name in kwargs if name not in names]:
        warn_user(f"unknown arguments {', '.join(unknown)}: left out; the function's are {', '.join(names)}")
    if len(values) != len(names):
        raise ArgumentError(f"insufficient arguments, expected {len(names)}, provided {len(values)}")
    return tuple(values)


class Executor:
    """`evaluate` gives a Python function of a program's main function, or the value of an expression."""

    converts = (
        True  # whether an array of another width is converted within its kind of number, as a graph executor does
    )

    def __init__(
        self,
        mod: IRModule | None = None,
        device: Any = None,
        target: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        check_target(target)
        self.mod, self.device, self.target = IRModule() if mod is None else mod, device, target
        self.params = dict(params or {})

    def evaluate(
        self, expr: Expr | None = None, binds: Mapping[Any, Any] | None = None, params: Mapping[str, Any] | None = None
    ) -> Any:
        """A function, for a function or nothing; else the expression's value."""
        if expr is None:
            return self._callable(self.mod, self.mod["main"], params)
        expr = as_expr(expr)
        if isinstance(expr, GlobalVar):
            function = self.mod[expr]
            if function.source is not None and function.source.function.is_generic:
                raise ArgumentError(f"{expr.name_hint} is generic; call it in a function with types")
            return self._callable(self._with_main(function), function, params)
        if binds:
            expr = bind(expr, binds)
        if isinstance(expr, Function):
            if free := free_vars(expr):
                raise ArgumentError(f"the function has free variables: {', '.join(v.name_hint for v in free)}")
            return self._callable(self._with_main(expr), expr, params)
        function = Function([], expr)
        return self._callable(self._with_main(function), function, params)()

    def _with_main(self, function: Function) -> IRModule:
        module = self.mod.shallow_copy()
        module["main"] = function
        return module

    def _callable(self, module: IRModule, function: Any, params: Mapping[str, Any] | None) -> Callable[..., Any]:
        fixed = {**self.params, **(params or {})}
        executable = compiled(module, self.target, fixed)
        free = [name for name in names_of(function) if name not in fixed]
        types, of_kind = executable.function("main").type.params, _of_kind if self.converts else lambda value, _: value
        main = VirtualMachine(executable).converting(
            "main", lambda values: [of_kind(argument(*each), each[1]) for each in zip(values, types, strict=True)]
        )

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._given_out(main(*bound_arguments(free, args, kwargs)))

        return call

    def _given_out(self, result: Any) -> Any:
        return wrapped(result)


class GraphExecutor(Executor):
    """Evaluates as the graph executor does, which gives several results as a list."""

    def _given_out(self, result: Any) -> Any:
        return list(map(self._given_out, result)) if isinstance(result, tuple) else wrapped(result)


def _of_kind(value: Any, type_: Any) -> Any:
    """An array in the type of the parameter, where that is of its kind."""
    if not isinstance(value, np.ndarray) or not isinstance(type_, TensorType):
        return value
    target = type_.dtype.numpy
    return value.astype(target) if np.can_cast(value.dtype, target, "same_kind") else value


class VMExecutor(Executor):
    """Evaluates a module's main function on the machine."""

    converts = False

    def __init__(
        self, mod: IRModule | None, device: Any = None, target: Any = None, params: Mapping[str, Any] | None = None
    ) -> None:
        if mod is None:
            raise RuntimeError("Must provide module to get VM executor.")
        super().__init__(mod, device, target, params)

    @property
    def ctx(self) -> Any:
        """The device, by its name before TVM 0.8."""
        return self.device

    @cached_property
    def executable(self) -> VMExecutable:
        """The program of the module."""
        return VMExecutable(compiled(self.mod, self.target, self.params))

    @cached_property
    def vm(self) -> RelayMachine:
        """A machine that runs `executable`."""
        return RelayMachine(self.executable, self.device or cpu())


_KINDS = ("vm", "graph", "debug", "aot")


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Any = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
    *,
    ctx: Any = None,
) -> Executor:
    """What evaluates programs at once. There is one machine, so the kinds "vm", "graph", "debug" and "aot" differ in their class
    alone, and "graph" and "aot" give several results as a list. `ctx` is what `device` was called before 0.8.

    Raises RuntimeError for another kind, ArgumentError for a device or target that does not exist.
    """
    device = ctx if device is None else device
    if device is not None:
        require_cpu(device, "create_executor")
    if kind not in _KINDS:
        raise RuntimeError(f"unknown execution strategy: {kind}; there are {', '.join(_KINDS)}")
    if kind == "vm":
        return VMExecutor(IRModule() if mod is None else mod, device, target, params)
    made = GraphExecutor if kind in ("graph", "aot") else Executor
    return made(mod, device, target, params)
