"""`tvm.relay.parser`: programs from text, Relay's own or Treadle's (`treadle.compiler.ir.text`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...compiler.ir import text as treadle_text
from ..transform import ModulePass, PassInfo
from .expr import Expr
from .module import IRModule, of_ir
from .text import parse_expression, parse_module
from .transform import infer_module


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: IRModule | None = None,
    init_meta_table: Mapping[str, Sequence[Any]] | None = None,
) -> IRModule:
    """A module from Relay's text, typed; with `init_module` that module, with what the text defines in it.

    Raises TextError, which says at what line and column, and InferenceError.
    """
    return infer_module(parse_module(source, init_module, init_meta_table))


def parse_expr(source: str) -> Expr:
    """An expression from Relay's text, not typed. Raises TextError."""
    return parse_expression(source)


def fromtext(data: str, source_name: str | None = None) -> IRModule:
    """A module from the text that `astext` gives, or from what `treadle.compiler.ir.text.print_module` wrote."""
    if data.lstrip().startswith("#[version"):
        return parse(data)
    return _of_treadle(data)


def _of_treadle(data: str) -> IRModule:
    return of_ir(treadle_text.parse_module(data))


def SpanCheck() -> Any:
    """Nothing to check: errors here name nodes and functions."""
    return ModulePass(PassInfo(0, "SpanCheck"), lambda module, _: module)
