"""Primitives by their definitions: what a kernel should have made of what it read, and runs in which kernels are left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..compiler.ir.evaluate import apply_operator, evaluate_definition
from ..formats.primitive import PrimitiveDefinition
from ..vm.observe.hooks import NO_OP, SKIP_RUN, Event, InstrumentAction
from .flow import Flow, Step, nodes_of
from .subject import Subject
from .tensors import bound, error


class LeftOut(Flow):
    """Calls of these primitives are evaluated by their definitions; None: of all."""

    def __init__(self, primitives: Collection[str] | None = None) -> None:
        super().__init__()
        self._primitives = primitives

    def reads(self, step: Step, event: Event) -> InstrumentAction | None:
        if self._primitives is not None and step.primitive not in self._primitives:
            return NO_OP
        self.made(event)
        for index, (register, result) in enumerate(zip(event.registers("outputs"), _evaluated(event), strict=True)):
            event.set_tensor(register, result)
            self.result(step, index, event, register)  # what is skipped has no `after`
        return SKIP_RUN


def _evaluated(event: Event) -> list[np.ndarray]:
    assert event.primitive is not None
    arrays = [event.tensor(register) for register in event.registers("inputs")]
    with np.errstate(all="ignore"):
        return evaluate_definition(event.primitive.definition, arrays, event.sizes)


@dataclass
class Checked:
    """One kernel's results beside those of its definition, for the same inputs."""

    step: Step
    definition: PrimitiveDefinition
    inputs: list[np.ndarray]
    sizes: tuple[int, ...]
    found: list[np.ndarray] = field(default_factory=list)
    wanted: list[np.ndarray] = field(default_factory=list)

    @property
    def errors(self) -> list[float]:
        return [error(a, b) for a, b in zip(self.found, self.wanted, strict=True)]

    @property
    def is_right(self) -> bool:
        pairs = zip(self.errors, self.found, self.wanted, strict=True)
        return all(each <= bound(found.dtype, wanted.dtype, 1) for each, found, wanted in pairs)

    def inside(self) -> list[tuple[str, str, np.ndarray]]:
        """Operator, model node and result of each operator that the kernel stands for, by its definition."""
        return inside(self.definition, self.step.node, self.inputs, self.sizes)


def inside(
    definition: PrimitiveDefinition, text: str, arrays: Sequence[np.ndarray], sizes: Sequence[int]
) -> list[tuple[str, str, np.ndarray]]:
    """Operator, model node and result of each operator of a definition, for these inputs. `text` is what the step says of its
    nodes: places that share a definition have nodes of their own, in the same order."""
    own = nodes_of(text, {})
    first = list(dict.fromkeys(node.origin for node in definition.nodes if node.origin))
    names = dict(zip(first, own, strict=True)) if len(own) == len(first) else {}
    bound_dims = dict(zip(definition.variables, sizes, strict=True))
    values, found = list(arrays), []
    with np.errstate(all="ignore"):
        for node in definition.nodes:
            results = apply_operator(node.operator, [values[at] for at in node.inputs], node.attributes, bound_dims)
            found.append((node.operator, names.get(node.origin, text), results[0]))
            values += results
    return found


class _Check(Flow):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number, self.checked = number, None

    checked: Checked | None

    def reads(self, step: Step, event: Event) -> InstrumentAction | None:
        if step.number == self._number:
            assert event.primitive is not None
            inputs = [event.tensor(register) for register in event.registers("inputs")]
            definition = event.primitive.definition
            self.checked = Checked(step, definition, inputs, event.sizes, wanted=_evaluated(event))
        return None

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        if step.number == self._number and self.checked is not None:
            self.checked.found.append(event.tensor(register))


def check(of: Subject, feeds: Mapping[str, np.ndarray], number: int) -> Checked | None:
    """One step of a run, by itself."""
    listener = _Check(number)
    of.run(feeds, listener)
    return listener.checked
