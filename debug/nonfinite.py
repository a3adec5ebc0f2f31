"""`first_nonfinite`: where the first NaN or infinity of a call is made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..formats.messages.calling import Suggesting, public, public_class
from ..formats.messages.terminal import showing
from ..vm.observe.hooks import Event, InstrumentAction
from .flow import Flow, Step
from .kernels import inside
from .subject import arguments, subject


@public_class
@dataclass(frozen=True)
class NonFinite(Suggesting):
    """A kernel that made the first numbers that are not finite, or an argument that held some."""

    node: str
    primitive: str  # "" for an argument
    operators: tuple[str, ...]
    type: str
    nans: int
    infinities: int
    elements: int
    first: tuple[int, ...]  # index of the first such element
    step: int  # kernels that were called before
    inputs: tuple[str, ...] = ()  # what the kernel read: types, and the range of the elements
    operator: str = ""  # of the kernel's, the first whose definition gives such numbers, and its model node
    at: str = ""
    iterations: str = ""  # that the kernel was called in, the innermost loop first, and the depth of nested calls
    inherited: bool = False  # whether what it read held such numbers already: constants, or masks of infinities

    @showing
    def __str__(self) -> str:
        counts = [f"{n} {what}" for n, what in ((self.nans, "NaN"), (self.infinities, "infinite")) if n]
        where = f"element {list(self.first)}" if self.first else "the element"
        made = f"the argument {self.node!r}" if not self.primitive else f"{self.node!r} ({', '.join(self.operators)})"
        text = f"first at {made}: {self.type} has {' and '.join(counts)} of {self.elements}, the first is {where}"
        if self.primitive:
            text += f"; primitive {self.primitive}, kernel {self.step + 1} of the call"
            text += f", {self.iterations}" if self.iterations else ""
        if self.operator and len(self.operators) > 1:
            text += f"; by its definition, {self.operator} makes them, node {self.at!r}"
        if self.inherited:
            text += "; a constant that it reads holds such numbers already"
        return text + "".join(f"\n  read {line}" for line in self.inputs)

    def json(self) -> str:
        return json.dumps(asdict(self))


@public
def first_nonfinite(
    model: Any,
    feeds: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    function: str = "main",
    infinities: bool = True,
    **options: Any,
) -> NonFinite | None:
    """The first place in a call where a NaN or an infinity is made; None where all numbers are finite.

    `model`, `feeds`, `function` and options are as `compare` has them. Masks hold infinities on purpose: a kernel that reads some
    is looked at for NaNs alone. `infinities=False` looks for NaNs everywhere.
    """
    of = subject(model, function=function, **options)
    values = arguments(of.executable, function, feeds)
    for name, array in values.items():
        found = _counted(array, infinities)
        if found is not None:
            return NonFinite(name, "", (), _described(array), *found, step=0)
    watch = _Watch(infinities)
    of.run(values, watch)
    return watch.found


class _Watch(Flow):
    def __init__(self, infinities: bool) -> None:
        super().__init__()
        self._infinities = infinities
        self._inputs: list[np.ndarray] = []
        self.found: NonFinite | None = None

    def reads(self, step: Step, event: Event) -> InstrumentAction | None:
        if self.found is None:
            self._inputs = [event.tensor(register) for register in event.registers("inputs")]
        return None

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        if self.found is not None:
            return
        array = event.tensor(register)
        read = [_counted(each, True) is not None for each in self._inputs]
        found = _counted(array, self._infinities and not any(read))
        if found is None:
            return
        inputs = tuple(f"{_described(each)} {_range(each)}" for each in self._inputs)
        assert event.primitive is not None
        definition = event.primitive.definition
        operator, at = next(
            (
                (operator, node)
                for operator, node, made in inside(definition, step.node, self._inputs, event.sizes)
                if _counted(made, self._infinities and not any(read)) is not None
            ),
            ("", ""),
        )
        described = _described(array)
        self.found = NonFinite(
            step.node,
            step.primitive,
            step.operators,
            described,
            *found,
            step.number,
            inputs,
            operator,
            at,
            step.iterations,
            any(read),
        )


def _counted(array: Any, infinities: bool) -> tuple[int, int, int, tuple[int, ...]] | None:
    """NaNs, infinities, elements, and the index of the first that counts."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or bool(np.isfinite(array).all()):
        return None
    nan, infinite = np.isnan(array), np.isinf(array)
    counting = nan | infinite if infinities else nan
    if not counting.any():
        return None
    first = tuple(map(int, np.unravel_index(int(counting.argmax()), array.shape)))
    return int(nan.sum()), int(infinite.sum()), array.size, first


def _described(array: np.ndarray) -> str:
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"


def _range(array: np.ndarray) -> str:
    if array.size == 0:
        return "empty"
    if array.dtype.kind not in "fiu":
        return ""
    finite = array[np.isfinite(array)]
    if finite.size == 0:
        return "nothing finite"
    return f"{finite.min():.6g} … {finite.max():.6g}"
