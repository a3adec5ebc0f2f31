"""`relay.fromtext`: a module from Treadle's text of it. TVM's own text is not read; docs/tvm.md says so."""

from __future__ import annotations

from typing import Any

from ...compiler.text import parse_module
from ...formats.errors import ParseError
from .module import IRModule


def fromtext(data: str, source_name: str | None = None) -> IRModule:
    """A module from what `compiler.printer.print_module` wrote. Raises ParseError."""
    if "def @" in data or "#[version" in data:
        raise ParseError(
            "this is TVM's text of a program, which Treadle does not read; build the module with relay's functions"
        )
    parsed = parse_module(data)
    module = IRModule()
    for definition in parsed.data_types.values():
        module._add_definition(definition)
    for name, function in parsed.functions.items():
        module[name] = function
    return module


def parse(
    source: str, source_name: str = "from_string", init_module: Any = None, init_meta_table: Any = None
) -> IRModule:
    """`fromtext`."""
    return fromtext(source)
