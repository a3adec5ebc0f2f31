"""`tvm.transform`: passes, their sequences, and the context that says how hard to work."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..formats.messages.errors import ArgumentError

if TYPE_CHECKING:
    from .relay.module import IRModule

# TVM's options. What TVM's own tuners, back ends and TIR passes read is accepted, and changes nothing here; any other name is a
# mistake.
_CONFIG = """
    relay.FuseOps.max_depth relay.FuseOps.link_params relay.ToMixedPrecision.keep_orig_output_dtype
    relay.backend.disable_compile_engine_cache relay.backend.tir_converter relay.backend.use_auto_scheduler
    relay.backend.use_meta_schedule relay.backend.use_meta_schedule_dispatch relay.backend.use_multitargets
    relay.collect_device_annotation_ops relay.fallback_device_type relay.frontend.fill_span
    relay.remove_standalone_reshapes.enable te.keep_schedule_record tir.add_lower_pass tir.disable_assert
    tir.disable_cse_tir tir.disable_storage_rewrite tir.disable_vectorize tir.debug_keep_trivial_loop
    tir.detect_global_barrier tir.enable_debug tir.instrument_bound_checkers tir.is_entry_func tir.noalias
    tir.use_async_copy tir.usmp.enable tir.usmp.algorithm
"""
CONFIG = _CONFIG.split()

# the types of options that are not numbers, by TVM's names
_TYPES = {
    "relay.backend.tir_converter": "runtime.String",
    "tir.add_lower_pass": "Array",
    "tir.usmp.algorithm": "runtime.String",
}


class _Contexts(threading.local):
    """The contexts of a thread: the default one, and those whose `with` runs."""

    def __init__(self) -> None:
        self.default = PassContext()
        self.stack: list[PassContext] = []


class PassContext:
    """How programs are compiled within a `with`. `opt_level` 0: what running needs; 1: simplification and fusion; 2
    and more: all.

    `disabled_pass` names passes of Treadle that are left out (names of TVM's passes name none here). Unknown options raise.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(opt_level, int):
            raise ArgumentError(f"PassContext(opt_level={opt_level!r}): expected an integer")
        for what, names in (("required_pass", required_pass), ("disabled_pass", disabled_pass)):
            if names is not None and not isinstance(names, (list, tuple, set)):
                raise TypeError(f"{what} is expected to be the type of list/tuple/set.")
        if config is not None and not isinstance(config, Mapping):
            raise TypeError("config is expected to be a dictionary of options")
        for name in config or {}:
            if name not in CONFIG and not name.startswith("relay.ext."):
                raise AttributeError(f"Invalid config option {name!r}; there are {', '.join(CONFIG)}")
        self.opt_level = opt_level
        self.required_pass, self.disabled_pass = list(required_pass or ()), list(disabled_pass or ())
        self.instruments, self.config = list(instruments or ()), dict(config or {})

    def __enter__(self) -> PassContext:
        self._enter()
        _CONTEXTS.stack.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _CONTEXTS.stack.pop()
        self._exit()

    def override_instruments(self, instruments: Sequence[Any] | None) -> None:
        """Other instruments from now on."""
        self._exit()
        self.instruments = list(instruments or ())
        self._enter()

    def _enter(self) -> None:
        """If an instrument fails, those before it are told that it is over, and there are none any more."""
        entered: list[Any] = []
        try:
            for each in self.instruments:
                _tell([each], "enter_pass_ctx")
                entered.append(each)
        except BaseException:
            self.instruments = entered
            self._exit()
            self.instruments = []
            raise

    def _exit(self) -> None:
        """If an instrument fails, there are none any more."""
        try:
            _tell(self.instruments, "exit_pass_ctx")
        except BaseException:
            self.instruments = []
            raise

    @staticmethod
    def current() -> PassContext:
        """The innermost context of this thread, or the default."""
        return _CONTEXTS.stack[-1] if _CONTEXTS.stack else _CONTEXTS.default

    @staticmethod
    def list_configs() -> dict[str, dict[str, str]]:
        return {name: {"type": _TYPES.get(name, "IntImm")} for name in CONFIG}

    @property
    def level(self) -> int:
        """Treadle's level of optimisation."""
        return max(0, min(self.opt_level, 2))


_CONTEXTS = _Contexts()


def _tell(instruments: Sequence[Any], what: str, *args: Any) -> list[Any]:
    return [getattr(each, what)(*args) for each in instruments if hasattr(each, what)]


class PassInfo:
    """What a pass is called, and from which level on it is done."""

    def __init__(
        self, opt_level: int, name: str, required: Sequence[str] | None = None, traceable: bool = False
    ) -> None:
        self.opt_level, self.name, self.required, self.traceable = opt_level, name, list(required or ()), traceable

    def __repr__(self) -> str:
        return f"The meta data of the pass - pass name: {self.name}, opt_level: {self.opt_level}"


class Pass:
    """A function from module to module."""

    def __init__(self, info: PassInfo, function: Callable[[IRModule, PassContext], IRModule]) -> None:
        self._info, self._function = info, function

    @property
    def info(self) -> PassInfo:
        return self._info

    def __call__(self, mod: IRModule) -> IRModule:
        context = PassContext.current()
        if not all(answer is not False for answer in _tell(context.instruments, "should_run", mod, self._info)):
            return mod
        _tell(context.instruments, "run_before_pass", mod, self._info)
        result = self._function(mod, context)
        _tell(context.instruments, "run_after_pass", result, self._info)
        return result

    def __repr__(self) -> str:
        return f"Run Module pass: {self._info.name} at the optimization level {self._info.opt_level}"


class ModulePass(Pass):
    """A pass over a module."""


class Sequential(Pass):
    """Passes, one after another."""

    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> None:
        if not isinstance(passes or [], (list, tuple)):
            raise TypeError(f"passes must be a list of Pass objects, got a {type(passes).__name__}")
        self.passes = list(passes or ())
        super().__init__(PassInfo(opt_level, name, required, traceable), self._all)

    def _all(self, mod: IRModule, context: PassContext) -> IRModule:
        """Only passes of a sequence are left out by the context; one that is called by itself runs."""
        for each in self.passes:
            info = each.info
            if info.name in context.disabled_pass:
                continue
            if info.opt_level <= context.opt_level or info.name in context.required_pass:
                mod = each(mod)
        return mod


def module_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Makes a pass of a function `(module, context) → module`, or of a class with `transform_module`."""
    if opt_level is None:
        raise ValueError("Please provide opt_level for the module pass.")

    def make(function: Any) -> Any:
        info = PassInfo(opt_level, name or function.__name__, required, traceable)
        if not isinstance(function, type):
            return ModulePass(info, function)

        class Made(ModulePass):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                inner = function(*args, **kwargs)
                super().__init__(info, inner.transform_module)
                self._inner = inner

            def __getattr__(self, attribute: str) -> Any:
                return getattr(self._inner, attribute)

        Made.__name__ = function.__name__
        return Made

    return make if pass_func is None else make(pass_func)


def PrintIR(header: str = "", show_meta_data: bool = False) -> ModulePass:
    """A pass that prints the module, among the errors."""

    def show(mod: IRModule, context: PassContext) -> IRModule:
        print(f"PrintIR({header}):", mod.astext(show_meta_data), sep="\n", file=sys.stderr)
        return mod

    return ModulePass(PassInfo(0, "PrintIR"), show)
