"""What an operator is: one entry holds all that is known of it.

An entry's `infer` types a call, its `reference` evaluates it with NumPy (the reference evaluator is made of these), its
`fusion` says how it may share a kernel, and `native` names what lowers it: for an elementwise operator the function of
`compiler/kernels/elementwise.py`'s vocabulary, else the kernel template in `compiler/kernels`. Without `native` it runs as a host
operator. The modules beside this one register entries by family; `operators.TABLE` holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...formats.errors import InferenceError
from ...formats.types import TensorType


class Fusion(Enum):
    """How an operator may be fused."""

    ELEMENTWISE = "elementwise"  # one output element from the broadcast input elements at the same place
    MOVEMENT = "movement"  # output elements are input elements at other places: transpose, slice, concat …
    REDUCTION = "reduction"  # over axes; takes elementwise prologue and epilogue
    ANCHOR = "anchor"  # conv, matmul, softmax …: takes an elementwise epilogue
    OPAQUE = "opaque"  # a kernel of its own, or a host operator
    VIEW = "view"  # no kernel: the same elements in another shape (the machine's reshape)


@dataclass(frozen=True)
class Attribute:
    """An attribute's meaning and default; `required` ones have none."""

    doc: str
    default: Any = None
    required: bool = False


@dataclass(frozen=True)
class Operator:
    """`inputs`: names of the tensor inputs; "bias?" may be missing (only at the end), "*tensors" is any number of them.

    `infer(inputs, **attributes)` takes the inputs' TensorTypes and gives the result's TensorType, or a tuple of them
    for several results; it raises InferenceError with what was expected and what came. `reference(*arrays,
    **attributes)` takes NumPy arrays and gives an array or a tuple of them, of exactly the inferred types; dimensions in
    attributes are integers by then. `data_dependent` operators have result shapes that only a run can tell: their
    inferred shapes hold UNKNOWN, and they are always host operators.
    """

    name: str
    inputs: tuple[str, ...]
    infer: Callable[..., TensorType | tuple[TensorType, ...]]
    reference: Callable[..., Any]
    fusion: Fusion
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    native: str = ""
    doc: str = ""
    data_dependent: bool = False

    def check_arity(self, count: int) -> None:
        """Raises InferenceError unless `count` inputs are possible."""
        least = sum(not name.endswith("?") and not name.startswith("*") for name in self.inputs)
        most = float("inf") if any(name.startswith("*") for name in self.inputs) else len(self.inputs)
        if not least <= count <= most:
            raise InferenceError(f"{self.name} takes {', '.join(self.inputs)}, but {count} inputs came")


TABLE: dict[str, Operator] = {}


def register(operator: Operator) -> Operator:
    """Adds an entry; a second one of the same name is an error in this program."""
    if operator.name in TABLE:
        raise ValueError(f"operator {operator.name!r} is registered twice")
    TABLE[operator.name] = operator
    return operator


def lookup(name: str) -> Operator:
    """The entry of that name. Raises InferenceError with the nearest names if there is none."""
    try:
        return TABLE[name]
    except KeyError:
        import difflib

        near = difflib.get_close_matches(name, TABLE, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InferenceError(f"there is no operator {name!r}{hint}") from None
