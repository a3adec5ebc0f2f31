"""`relax.build`: from a module to an executable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...compiler import ir
from ...formats.messages.errors import CheckError, CompileError
from ..relay.build_module import array_of, check_target, compiled_ir
from ..relay.build_module import compiled as relay_compiled
from ..relay.expr import Expr as RelayExpr
from ..relay.module import IRModule
from .codegen import generate, program_of
from .exec_builder import ExecBuilder
from .executable import Executable
from .expr import Function
from .lower import UntypedError
from .module import IRModule as RelaxModule
from .transform import BindParams

__all__ = ["build", "compile"]


def _vmcodegen(builder: ExecBuilder, mod: RelaxModule, exec_mode: str = "bytecode") -> RelaxModule:
    """The Relax machine's instructions of a module's functions, into a builder."""
    generate(builder, mod)
    return mod


def _vmlink(builder: ExecBuilder, target: Any, tir_mod: Any = None, *_: Any, **__: Any) -> Executable:
    """The program that a builder holds."""
    check_target(target)
    return builder.get()


def build(
    mod: Any,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    pipeline: Any = "default_build",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> Executable:
    """The executable of a module: Treadle's, or one of `tvm.relay`. Pipelines are Treadle's passes; both modes are one, in
    which kernels are native and the machine's own code is not. Raises CheckError, CompileError."""
    if exec_mode not in ("bytecode", "compiled"):
        raise CheckError(f"Unknown exec_mode {exec_mode!r}; expected bytecode or compiled")
    check_target(target)
    if isinstance(mod, Function):
        mod = RelaxModule.from_expr(mod)
    if isinstance(mod, RelaxModule):
        try:
            mod = mod.lowered()
        except UntypedError:
            return Executable(program_of(BindParams("main", params)(mod) if params else mod))
    if not isinstance(mod, (ir.Module, IRModule, RelayExpr)):
        raise CompileError(
            f"relax.build: expected a module of relax, of treadle.compiler.builder.programs or of tvm.relay, "
            f"got a {type(mod).__name__}; tvm.script.from_source reads a text"
        )
    if not isinstance(mod, ir.Module):
        return Executable(relay_compiled(mod, target, params))
    arrays = {name: array_of(value) for name, value in (params or {}).items()}
    entries = tuple(mod.functions)
    entry = ("main", *(name for name in entries if name != "main")) if "main" in entries else entries
    return Executable(compiled_ir(mod, arrays, entry=entry))


def compile(
    mod: Any, target: Any = None, *, relax_pipeline: Any = "default", tir_pipeline: Any = "default"
) -> Executable:
    """`tvm.compile` of TVM 0.20: what `build` makes; pipelines are Treadle's passes. Raises CompileError."""
    return build(mod, target, pipeline=relax_pipeline)
