"""Derives builder/operator_types.pyi, the types of `treadle.op`'s functions, from the table of operators.

python -m treadle.tools.dev.derive.stubs
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Mapping
from typing import Any

from ....compiler.builder.draws import FUNCTIONS
from ....compiler.builder.operator_functions import LOWERED, documentation, signature
from ....compiler.operators import Attribute, Kind, complete
from ....formats.dtypes import DType
from ....formats.extensions import EXTENSIONS
from . import ROOT, write

PATH = ROOT / "compiler" / "builder" / "operator_types.pyi"
_HEAD = '''\
# Derived by tools/dev/derive/stubs.py; edit the table of operators instead, then run `make docs`.
"""The operators of models, as editors and type checkers see `treadle.op`."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ...formats.dtypes import DType
from ...formats.types import ShapeDim
from .expressions import Expression, Operand

_Dimension = ShapeDim | str
_Dimensions = Sequence[_Dimension] | np.ndarray
_Integers = Sequence[int] | np.ndarray
_ElementType = DType | np.dtype[Any] | type | str

class LoweredOperators:
    """Operators that only passes make."""

    def __getattr__(self, name: str) -> Any: ...

class ModelOperators:
    """A function for each operator: inputs by position, attributes by name."""

    lowered: LoweredOperators
'''
_COMPOSED = {  # parameters of functions that are made of several operators
    "shape": "Sequence[_Dimension]",
    "seed": "int | None",
    "dtype": "_ElementType | None",
    **dict.fromkeys(("low", "high", "mean", "scale", "ratio"), "float"),
}
_WIDTH = 120  # of a line, as pyproject.toml has it
_TYPES = {
    Kind.BOOL: "bool",
    Kind.INT: "int",
    Kind.FLOAT: "float",
    Kind.NUMBER: "float",
    Kind.STRING: "str",
    Kind.DTYPE: "_ElementType",
    Kind.DIM: "_Dimension",
    Kind.INTS: "_Integers",
    Kind.DIMS: "_Dimensions",
}


def stubs() -> str:
    """The text of the file, without operators that a user has defined in this process."""
    parts = [_HEAD]
    for name, operator in sorted(complete().items()):
        if name not in LOWERED and name not in EXTENSIONS:
            types = {each: _type(attribute) for each, attribute in operator.attributes.items()}
            parts.append(_method(name, signature(operator), types, documentation(operator)))
    for name, function in FUNCTIONS.items():
        found = inspect.signature(function)
        found = found.replace(parameters=list(found.parameters.values())[1:])
        parts.append(_method(name, found, _COMPOSED, inspect.cleandoc(function.__doc__ or "")))
    return "".join(parts)


def _method(name: str, found: inspect.Signature, types: Mapping[str, str], documented: str) -> str:
    """One function: inputs by position, attributes, which have these types, by name."""
    inputs, attributes = [], []
    for parameter in found.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            attributes.append(f"{parameter.name}: {_with_default(types[parameter.name], parameter)}")
        elif parameter.kind is parameter.VAR_POSITIONAL:
            inputs += ["/", f"*{parameter.name}: Operand"]
        else:
            inputs.append(
                f"{parameter.name}: Operand{'' if parameter.default is parameter.empty else ' | None = None'}"
            )
    if "/" not in inputs:
        inputs += ["/", "*"] if attributes else ["/"]
    lines = documented.splitlines()
    doc = "\n".join(f"        {line}".rstrip() for line in ['"""' + lines[0], *lines[1:]])
    end = '"""' if len(lines) == 1 else '\n        """'
    return f"\n    def {name}({_wrapped(name, ['self', *inputs, *attributes])}) -> Expression:\n{doc}{end}\n"


def _wrapped(name: str, parts: list[str]) -> str:
    """The parameters, on lines of their own where they do not fit on the function's."""
    line = ", ".join(parts)
    if len(f"    def {name}({line}) -> Expression:") <= _WIDTH:
        return line
    whole = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
    indent = 8 * " "
    filled = textwrap.fill(
        whole, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return "\n" + filled.replace("\N{NO-BREAK SPACE}", " ") + "\n    "


def _type(attribute: Attribute) -> str:
    if attribute.choices:  # editors offer them; many are computed
        return f"Literal[{', '.join(map(_literal, attribute.choices))}] | str"
    return _TYPES[attribute.kind]


def _with_default(type_: str, parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return type_
    optional = " | None" if parameter.default is None and "None" not in type_ else ""
    return f"{type_}{optional} = {_literal(parameter.default)}"


def _literal(value: Any) -> str:
    """A default as the file has it; `...` for anything but a literal of Python's."""
    if isinstance(value, DType) or (isinstance(value, float) and not math.isfinite(value)):
        return "..."
    return '"' + value + '"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    write({PATH: stubs()})
