"""The calls of kernels in one run: which stands where in the program, and which made what another reads.

Tensors are identified by the address of their elements: the last writer made what is read there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..vm.observe.hooks import Event, InstrumentAction, Listener
from ..vm.places import Round, iterations

_SEPARATOR = " + "  # between the nodes of a fused primitive, as the passes join them


@dataclass
class Step:
    """One call of a primitive in a run."""

    number: int  # how many came before
    function: str
    offset: int  # of the instruction, in words
    primitive: str
    node: str  # the model nodes that it was made of; of what has none, the primitive
    operators: tuple[str, ...]
    depth: int = 1  # primitives on the longest way from the arguments to its results, itself included
    makers: tuple[int, ...] = field(default=())  # the steps that made what it reads
    rounds: tuple[Round, ...] = ()  # the iterations that it is in, the innermost loop first
    calls: int = 0  # of functions, nested, in a recursion

    @property
    def iterations(self) -> str:
        """In which call of a recursion, and in which iterations of which loops; "" for neither."""
        return ", ".join(filter(None, [f"call depth {self.calls}" if self.calls else "", iterations(self.rounds)]))


class Flow(Listener):
    """Sees each call of a primitive, in order. Subclasses override `result`, and may see what it reads by `reads`."""

    operations = frozenset({"call"})

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._makers: dict[int, int] = {}  # address of elements → the step that wrote there last
        self.readers: dict[int, list[int]] = {}  # step → those that read what it made

    def before(self, event: Event) -> InstrumentAction | None:
        assert event.primitive is not None
        addresses = map(event.address, event.registers("inputs"))
        makers = tuple(dict.fromkeys(self._makers[each] for each in addresses if each in self._makers))
        step = Step(
            len(self.steps),
            event.function,
            event.instruction.offset,
            event.primitive.name,
            event.node or event.primitive.name,
            tuple(node.operator for node in event.primitive.definition.nodes),
            1 + max((self.steps[maker].depth for maker in makers), default=0),
            makers,
            event.rounds,
            event.depth if event.is_recursive else 0,
        )
        for maker in makers:
            self.readers.setdefault(maker, []).append(step.number)
        self.steps.append(step)
        return self.reads(step, event)

    def after(self, event: Event) -> None:
        step = self.steps[-1]
        self.made(event)
        for index, register in enumerate(event.registers("outputs")):
            self.result(step, index, event, register)

    def made(self, event: Event) -> None:
        """The results of the last step are what it has written from now on."""
        for register in event.registers("outputs"):
            self._makers[event.address(register)] = self.steps[-1].number

    def reads(self, step: Step, event: Event) -> InstrumentAction | None:
        """The step is about to run."""

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        """The step has run; `register` holds its result `index`."""


def nodes_of(text: str, known: Mapping[str, object]) -> tuple[str, ...]:
    """The model nodes that a text names; names that are known may hold the separator."""
    parts, found = text.split(_SEPARATOR) if text else [], []
    while parts:
        names = (_SEPARATOR.join(parts[:count]) for count in range(len(parts), 0, -1))
        found.append(next((name for name in names if name in known), parts[0]))
        parts = parts[1 + found[-1].count(_SEPARATOR) :]
    return tuple(found)


def spread(array: np.ndarray) -> bool:
    """Whether an array has different elements: what is the same everywhere says little about where it comes from."""
    return array.size > 1 and bool((array != array.flat[0]).any())
