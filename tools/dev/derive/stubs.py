"""Derives builder/operator_types.pyi, the types of `treadle.op`'s functions, from the table of operators.

python -m treadle.tools.dev.derive.stubs            writes it
python -m treadle.tools.dev.derive.stubs --check    exits with 1, and shows the difference, when it is stale
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....compiler.builder.draws import FUNCTIONS
from ....compiler.builder.operator_functions import LOWERED, documentation, signature
from ....compiler.operators import Attribute, Kind, Operator, complete
from ....formats.dtypes import DType
from ....formats.extensions import EXTENSIONS

PATH = Path(__file__).parents[3] / "compiler" / "builder" / "operator_types.pyi"
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
    Kind.INTS: "Sequence[int] | np.ndarray",
    Kind.DIMS: "Sequence[_Dimension] | np.ndarray",
}


def stubs() -> str:
    """The text of the file, without operators that a user has defined in this process."""
    table = complete()
    operators = [table[name] for name in sorted(table) if name not in LOWERED and name not in EXTENSIONS]
    return _HEAD + "".join(map(_method, operators)) + "".join(map(_composed, FUNCTIONS.values()))


def _composed(function: Callable[..., Any]) -> str:
    """One that is made of several operators."""
    parts = ["self"]
    kinds = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            parts.append(f"{parameter.name}: Operand")
        else:
            parts += ["/"] * (inspect.Parameter.KEYWORD_ONLY not in kinds and len(parts) > 1)
            parts += ["*"] * (inspect.Parameter.KEYWORD_ONLY not in kinds)
            default = "" if parameter.default is parameter.empty else f" = {_literal(parameter.default)}"
            parts.append(f"{parameter.name}: {_COMPOSED[parameter.name]}{default}")
        kinds.append(parameter.kind)
    lines = inspect.cleandoc(function.__doc__ or "").splitlines()
    doc = "\n".join(f"        {line}".rstrip() for line in ['"""' + lines[0], *lines[1:]])
    end = '"""' if len(lines) == 1 else '\n        """'
    return f"\n    def {function.__name__}({_wrapped(function.__name__, parts)}) -> Expression:\n{doc}{end}\n"


def _method(operator: Operator) -> str:
    found = signature(operator)
    parts = ["self"]
    kinds = [parameter.kind for parameter in found.parameters.values()]
    for parameter in found.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts += ["/", f"*{parameter.name}: Operand"]
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            optional = parameter.default is not parameter.empty
            parts.append(f"{parameter.name}: Operand{' | None = None' if optional else ''}")
        else:
            parts.append(f"{parameter.name}: {_attribute(operator.attributes[parameter.name], parameter)}")
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        by_name = kinds.count(inspect.Parameter.KEYWORD_ONLY)
        at = len(parts) - by_name
        parts[at:at] = ["/", "*"] if by_name else ["/"]
    lines = documentation(operator).splitlines()
    doc = "\n".join(f"        {line}".rstrip() for line in ['"""' + lines[0], *lines[1:]])
    end = '"""' if len(lines) == 1 else '\n        """'
    return f"\n    def {operator.name}({_wrapped(operator.name, parts)}) -> Expression:\n{doc}{end}\n"


def _wrapped(name: str, parts: list[str]) -> str:
    """The parameters as the formatter breaks them."""
    line = ", ".join(parts)
    if len(f"    def {name}({line}) -> Expression:") <= _WIDTH:
        return line
    if len(line) + 8 <= _WIDTH:
        return f"\n        {line}\n    "
    return "".join(f"\n        {part}," for part in parts) + "\n    "


def _attribute(attribute: Attribute, parameter: inspect.Parameter) -> str:
    type_ = _TYPES[attribute.kind]
    if attribute.choices:
        type_ = f"Literal[{', '.join(map(_literal, attribute.choices))}] | str"  # editors offer them; many are computed
    if parameter.default is parameter.empty:
        return type_
    optional = " | None" if parameter.default is None else ""
    return f"{type_}{optional} = {_literal(parameter.default)}"


def _literal(value: Any) -> str:
    """A default as the file has it; `...` for anything but a literal of Python's."""
    if isinstance(value, DType) or (isinstance(value, float) and not math.isfinite(value)):
        return "..."
    return '"' + value + '"' if isinstance(value, str) else repr(value)


def stale() -> str:
    """The difference between the file and the table; "" when there is none."""
    old = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
    name = PATH.relative_to(Path(__file__).parents[3]).as_posix()
    lines = difflib.unified_diff(old.splitlines(True), stubs().splitlines(True), name, f"{name} (derived)")
    return "".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser("treadle.tools.dev.derive.stubs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    if parser.parse_args().check:
        difference = stale()
        sys.stdout.write(difference)
        return 1 if difference else 0
    PATH.write_text(stubs(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
