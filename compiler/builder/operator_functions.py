"""`treadle.op`: a function for each operator of a model, `op.conv(x, weight, strides=(2, 2))`.

Operators that only passes put into a program (packed tensors, counts of what a run finds) are in `op.lowered`: their names
stand in the text form and in files, but nobody is to find them who writes a model.

`operator_types.pyi` declares the same functions for editors and type checkers. `make docs` derives it from the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ...formats.messages.elsewhere import elsewhere
from ...formats.messages.errors import UnknownNameError
from ...formats.messages.names import near
from ..operators import TABLE, Operator, complete
from ..operators.table import REQUIRED

LOWERED = frozenset(
    [
        *("pack_channels", "unpack_channels", "pack_vector", "pack_weights", "pack_planar_weights", "pack_matrix"),
        *("pack_winograd_weights", "pack_integer_weights", "pack_integer_matrix"),
        *("pack_bfloat16_weights", "pack_bfloat16_matrix", "round_bfloat16", "narrow_panels", "join_channels"),
        *("conv_blocked", "conv_planar", "conv_to_few", "conv_depthwise", "conv_winograd", "conv_winograd_raw"),
        *("conv_integer_blocked", "conv_bfloat16_blocked", "group_normalization_blocked"),
        *("matmul_packed", "matmul_transposed", "matmul_dequantized"),
        *("matmul_integer_packed", "matmul_bfloat16_packed", "matmul_int8_packed"),
        *("pack_int8_matrix", "pack_int8_weights", "pack_int8_columns", "conv_int8_blocked"),
        *("quantize_rows", "image_ranges", "image_facts", "quantize_image"),
        *("counted_nonzero", "counted_boxes", "count_text_ngrams", "text_bytes"),
    ]
)

Apply = Callable[[Operator, tuple[Any, ...], dict[str, Any]], Any]


def is_operator(name: str) -> bool:
    """Whether `treadle.op` has it."""
    return name in TABLE and name not in LOWERED


class LoweredOperators:
    """The operators that only passes make, by name."""

    _where = "op.lowered"

    def __init__(self, apply: Apply) -> None:
        self._apply = apply
        self._functions: dict[str, tuple[Operator, Callable[..., Any]]] = {}

    @staticmethod
    def _has(name: str) -> bool:
        return name in LOWERED

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if (name not in TABLE and name not in complete()) or not self._has(name):
            raise UnknownNameError(self._unknown(name))
        known = self._functions.get(name)
        if known is None or known[0] is not TABLE[name]:  # users may define theirs again
            known = self._functions[name] = TABLE[name], _function(TABLE[name], self._apply, self._where)
        return known[1]

    def __dir__(self) -> list[str]:
        return sorted(filter(self._has, complete()))

    def __repr__(self) -> str:
        return f"<{self._where}: {len(dir(self))} operators; dir({self._where}) lists them>"

    def _unknown(self, name: str) -> str:
        meant = elsewhere("op", name) or near(name, dir(self))
        return f"there is no operator {name!r}{meant}; dir({self._where}) lists them"


class Operators(LoweredOperators):
    """The operators of models, by name; `lowered` are the others. `composed` are functions that make several operators."""

    _where = "op"

    def __init__(self, apply: Apply, composed: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(apply)
        self.lowered = LoweredOperators(apply)
        self._composed = composed

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._composed[name] if name in self._composed else super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self._composed])

    @staticmethod
    def _has(name: str) -> bool:
        return name not in LOWERED

    def _unknown(self, name: str) -> str:
        if name in LOWERED:
            return f"{name!r} is not an operator of a model: passes make it, as op.lowered.{name}"
        return super()._unknown(name)


def signature(operator: Operator) -> inspect.Signature:
    """How an operator's function is called: inputs by position, attributes by name."""
    parameters = []
    for name in operator.inputs:
        if name.startswith("*"):
            parameters.append(inspect.Parameter(name[1:], inspect.Parameter.VAR_POSITIONAL))
        else:
            default = None if name.endswith("?") else inspect.Parameter.empty
            parameters.append(inspect.Parameter(name.rstrip("?"), inspect.Parameter.POSITIONAL_ONLY, default=default))
    for name, attribute in operator.attributes.items():
        default = inspect.Parameter.empty if attribute.default is REQUIRED else attribute.default
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    return inspect.Signature(parameters)


def documentation(operator: Operator) -> str:
    """An operator's description, then its attributes."""
    lines = [f"{operator.name}({', '.join(operator.inputs)}): {operator.doc}.", ""]
    lines += [f"{name}: {attribute.doc}" for name, attribute in operator.attributes.items()]
    return "\n".join(lines).rstrip()


def _function(operator: Operator, apply: Apply, where: str) -> Callable[..., Any]:
    def call(*args: Any, **attributes: Any) -> Any:
        return apply(operator, args, attributes)

    call.__name__, call.__qualname__, call.__doc__ = operator.name, f"{where}.{operator.name}", documentation(operator)
    call.__signature__ = signature(operator)  # type: ignore[attr-defined]
    return call
