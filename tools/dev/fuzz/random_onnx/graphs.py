"""Whole random graphs: a walk of several steps, and what a run needs of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import onnx

from .....compiler.onnx import importer as _importers  # noqa: F401
from .....compiler.onnx.table import find
from . import control, elementwise, gradients, ml, movement, networks, optionals, quantized, runtime, sequences, texts  # noqa: F401  (they register steps)
from .judges import UNSAID, Array, by_onnxruntime, type_of, unsaid
from .walk import OPSETS, STEPS, SYMBOLS, Value, Walk, attempt, coarse

LENGTH = 12  # steps that are tried
CONTROL = ("If", "Loop", "Scan")


def operators() -> list[str]:
    """Those of ai.onnx that Treadle imports or takes apart by the function of their schemas, and for which there is a step."""
    own = []
    for name in (name for domain, name in STEPS if domain == ""):
        schema: Any = onnx.defs.get_schema(name) if onnx.defs.has(name) else None
        has_body = schema and (schema.has_function or schema.has_context_dependent_function)
        if schema and (name in CONTROL or has_body or find("", name, OPSETS[1])):
            own.append(name)
    return own


OWN = operators()
# Operators of values of one kind, which meet more often than those of one tensor by chance
_KEPT_TOGETHER = (sequences, optionals, texts, gradients, ml)
FAMILIES = [
    [
        (domain, name)
        for (domain, name), each in STEPS.items()
        if each.__module__ == module.__name__ and (domain or name in OWN)
    ]
    for module in _KEPT_TOGETHER
]


def drawn(random: Random) -> tuple[str, str]:
    """A domain and an operator of it: one in five of a family."""
    return random.choice(random.choice(FAMILIES)) if random.random() < 0.2 else ("", random.choice(OWN))


# Operators that the newest opsets do not have: the version of a graph of them alone
LAST_OPSET = {"Scatter": 10, "Upsample": 9}


def single(random: Random, domain: str, name: str) -> Sample:
    """A graph of one step, whose operands are new."""
    walk = Walk(random, LAST_OPSET.get(name) or random.randrange(OPSETS[0], OPSETS[1] + 1), fresh=1.0, drawn=drawn)
    attempt(walk, domain, name)
    return sample(walk)


@dataclass
class Sample:
    """A model, and what is known of it. `outputs` are the graph's, with what they may be for `feeds()`."""

    model: onnx.ModelProto
    inputs: list[Value]
    outputs: list[Value]
    tally: Counter[str]
    coarse: bool  # there are numbers with 11 bits or fewer in it

    @property
    def has_symbols(self) -> bool:
        return any(value.symbolic and value.symbolic != value.array.shape for value in self.inputs)

    def fixed(self) -> onnx.ModelProto:
        """The model for the witness's sizes alone."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for info, value in zip(model.graph.input, self.inputs, strict=True):
            info.type.CopyFrom(value.held or type_of(value.array))
        return model

    def feeds(self) -> dict[str, Array]:
        return {value.name: value.array for value in self.inputs}

    def part(self, names: Sequence[str]) -> onnx.ModelProto:
        """The model of these values of the graph: the nodes that they are made of, and all inputs."""
        model, wanted = onnx.ModelProto(), set(names)
        model.CopyFrom(self.model)
        kept = []
        for node in reversed(self.model.graph.node):
            if wanted.intersection(node.output):
                kept.append(node)
                wanted.update(_names(node))
        del model.graph.node[:], model.graph.output[:]
        model.graph.node.extend(reversed(kept))
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return model

    def is_open(self, feeds: dict[str, Array]) -> bool:
        """Whether the standard leaves open what a node of the graph gives for these arguments. Raises Refused."""
        held = {each.name: onnx.numpy_helper.to_array(each) for each in self.model.graph.initializer}
        for node in self.model.graph.node:
            if node.op_type in UNSAID:
                given = feeds | held
                names = [name for name in (*node.input, *node.output) if name and name not in given]
                given |= dict(zip(names, by_onnxruntime(self.part(names), feeds), strict=True))
                results = [given[name] for name in node.output if name]
                if unsaid(node, [given.get(name) for name in node.input], results):
                    return True
        return False

    def other_sizes(self) -> Iterator[dict[str, Array]]:
        """Arguments with other values of the symbolic sizes; their elements are those of the witness."""
        for way in range(1, len(next(iter(SYMBOLS.values())))):
            sizes = {name: values[way] for name, values in SYMBOLS.items()}
            feeds = {}
            for value in self.inputs:
                if value.held:
                    feeds[value.name] = value.array
                    continue
                shape = [sizes.get(dim, dim) for dim in value.symbolic or value.array.shape]
                if value.array.size == 0 and np.prod(shape):
                    return
                feeds[value.name] = np.resize(value.array, shape) if value.symbolic else value.array
            if any(feeds[value.name].shape != value.array.shape for value in self.inputs if not value.held):
                yield feeds

    def turned(self) -> dict[str, Array] | None:
        """Arguments with which a run goes other ways: conditions turned round, sequences of other lengths, optional values away.
        None where there are no such arguments."""
        feeds = {value.name: _turned(value) for value in self.inputs}
        return feeds if any(feeds[value.name] is not value.array for value in self.inputs) else None


def _turned(value: Value) -> Array:
    if isinstance(value.array, list):
        return value.array[1:] if len(value.array) > 1 else value.array * 2
    if value.held:
        return None
    return ~value.array if value.array.dtype == bool and not value.rank else value.array


def random_graph(random: Random, length: int = LENGTH) -> Sample:
    """A graph with at most that number of steps, of a random version of the operators."""
    opset = random.randrange(OPSETS[0], OPSETS[1] + 1) if random.random() < 0.7 else random.choice((17, 21))
    walk = Walk(random, opset, drawn=drawn)
    for _ in range(random.randrange(2, length + 1)):
        attempt(walk, *drawn(random))
    return sample(walk)


def sample(walk: Walk) -> Sample:
    """The model of a walk: what no node takes is its result, and now and then what one takes."""
    taken = {name for node in walk.nodes for name in _names(node)}
    made = [v for v in walk.values if v.expected]
    outputs = [v for v in made if v.name not in taken or walk.chance(0.15)]
    is_coarse = coarse(*(value.array for value in (*walk.values, *walk.hidden)))
    return Sample(walk.model(outputs), walk.inputs, outputs, walk.tally, is_coarse)


def _names(node: onnx.NodeProto) -> Iterator[str]:
    """What a node takes, in its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from (output.name for output in attribute.g.output)
            for inner in attribute.g.node:
                yield from _names(inner)
