"""References for a run: the tensors that another implementation made of the same arguments, by name and by model node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats.executable import Executable
from ..formats.messages.errors import ArgumentError, MissingPackageError
from .flow import Flow, Step, nodes_of
from .subject import Subject, is_executable, subject
from .tensors import forms

if TYPE_CHECKING:
    import onnx

    from ..vm.observe.hooks import Event

_ONNXRUNTIME, _REFERENCE = "onnxruntime", "reference"


@dataclass
class Tensor:
    """One that the reference made: its name, when, of which node, and what that node reads that is a weight."""

    name: str
    order: int
    node: str
    array: np.ndarray
    weights: tuple[str, ...] = ()
    step: float = (
        0.0  # between the codes that it was made of, or what it was made of, as a share of its largest magnitude
    )
    turn: int = 0  # how many of the same name and node were made before: in a loop, one an iteration …
    rounds: tuple[int, ...] = ()  # … and in which ones, the innermost loop first, where that is known


@dataclass
class Reference:
    """All tensors of a run of something else, in the order in which they were made."""

    name: str
    tensors: list[Tensor] = field(default_factory=list)
    by_node: dict[str, list[Tensor]] = field(default_factory=dict)
    results: dict[str, np.ndarray] = field(default_factory=dict)
    _turns: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(
        self,
        name: str,
        node: str,
        array: Any,
        weights: tuple[str, ...] = (),
        step: float = 0.0,
        rounds: tuple[int, ...] = (),
    ) -> None:
        """A further tensor; what is not a tensor is left out."""
        if isinstance(array, np.ndarray):
            turn = self._turns[name, node] = self._turns.get((name, node), -1) + 1
            tensor = Tensor(name, len(self.tensors), node, array, weights, step, turn, rounds)
            self.tensors.append(tensor)
            self.by_node.setdefault(node, []).append(tensor)

    def of(self, text: str, turn: int = 0, rounds: tuple[int, ...] = ()) -> list[Tensor]:
        """The tensors of the nodes that a step was made of, the last one first. For a step in iterations `rounds`, those that
        were made in them, or, where that is not known, the ones of that turn."""
        found = [tensor for node in nodes_of(text, self.by_node) for tensor in self.by_node.get(node, ())]
        if rounds:
            repeated = {(tensor.name, tensor.node) for tensor in found if tensor.turn}
            found = [
                each
                for each in found
                if (each.rounds == rounds if each.rounds else each.turn == turn)
                or (not each.rounds and (each.name, each.node) not in repeated)
            ]
        return sorted(found, key=lambda tensor: -tensor.order)

    def later(self, than: Tensor, array: np.ndarray) -> Iterator[Tensor]:
        """Tensors that were made later than one, not of the same name, and may have the elements of `array`, by their sizes."""
        for tensor in self.tensors[than.order + 1 :]:
            if (tensor.name, tensor.node) == (than.name, than.node):
                continue
            if tensor.array.dtype == array.dtype and next(forms(array, tensor.array.shape), None) is not None:
                yield tensor


def is_foreign(of: Subject, against: Any) -> bool:
    """Whether `reference` hands a model to onnxruntime and to the package onnx, whose code in C++ is not Treadle's."""
    if against in (_ONNXRUNTIME, None):
        return of.is_onnx
    from ..compiler import ir

    if against == _REFERENCE or isinstance(against, (Executable, ir.Module)):
        return False
    return not (isinstance(against, (str, os.PathLike)) and is_executable(Path(against)))


def reference(of: Subject, feeds: Mapping[str, np.ndarray], against: Any) -> Reference:
    """Runs `against`: "onnxruntime", "reference" (the operators' NumPy references), an executable, a model, or a file of either.

    Raises ArgumentError for what cannot be run here.
    """
    if against == _ONNXRUNTIME:
        if not of.is_onnx:
            raise ArgumentError(
                'against="onnxruntime" needs the ONNX model, which is not here: give it as `against`, or take "reference"'
            )
        return _of_onnxruntime(of.model, feeds)
    if against == _REFERENCE:
        return _of_evaluator(of, feeds)
    if isinstance(against, (str, os.PathLike)) and not Path(against).is_file():
        raise ArgumentError(
            f'against={str(against)!r}: expected "onnxruntime", "reference", an executable, or a file of a model'
        )
    if isinstance(against, Executable) or (isinstance(against, (str, os.PathLike)) and is_executable(Path(against))):
        return _of_executable(subject(against, function=of.function), feeds)
    from ..compiler import ir

    if isinstance(against, ir.Module):
        return _of_evaluator(Subject(of.executable, against, of.function), feeds)
    return _of_onnxruntime(against, feeds)


# ---- onnxruntime ----


def _of_onnxruntime(model: Any, feeds: Mapping[str, np.ndarray]) -> Reference:
    """Every value of the graph, without optimisations, which would take nodes away."""
    from ..compiler.onnx.schemas import node_name

    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingPackageError(
            'compare(against="onnxruntime") needs onnxruntime: pip install onnxruntime; against="reference" does without, '
            "and so does an executable, which treadle.compile makes of a model"
        ) from None
    proto = proto_of(model)
    results = [info.name for info in proto.graph.output]
    made = {name: node for node in proto.graph.node for name in node.output if name}
    del proto.graph.output[len(results) :]
    proto.graph.output.extend(type(proto.graph.output[0])(name=name) for name in made if name not in results)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        taken = {each.name for each in session.get_inputs()}
        values = dict(zip(names, session.run(names, {n: a for n, a in feeds.items() if n in taken}), strict=True))
    except Exception as error:  # onnxruntime's exceptions have no common base class
        reason = " ".join(str(error).split())[:300]
        raise ArgumentError(
            f'onnxruntime does not run this model: {reason}; take against="reference" (--against reference)'
        ) from None
    found = Reference(f"onnxruntime {onnxruntime.__version__}", results={name: values[name] for name in results})
    weights = {tensor.name for tensor in proto.graph.initializer}
    steps: dict[str, float] = {}
    for name, node in made.items():
        read = tuple(each for each in node.input if each in weights)
        steps[name] = max([steps.get(each, 0.0) for each in node.input] + [_step(node, proto, values[name])])
        found.add(name, node_name(node), values[name], read, steps[name])
    return found


def _step(node: Any, proto: onnx.ModelProto, made: Any) -> float:
    """Between two neighbouring codes, if the node turns codes into numbers, as a share of the largest of these."""
    from onnx import numpy_helper

    weights = {each.name for each in proto.graph.initializer}
    if (
        node.op_type != "DequantizeLinear" or not made.size or node.input[0] in weights
    ):  # nothing was rounded in the call
        return 0.0
    scales = [each for each in proto.graph.initializer if each.name == node.input[1]]
    largest = float(np.abs(made).max())
    return float(np.abs(numpy_helper.to_array(scales[0])).max()) / largest if scales and largest else 0.0


def proto_of(model: Any) -> onnx.ModelProto:
    """A copy of an ONNX model with all its weights."""
    import onnx

    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
    try:
        return onnx.load(model) if isinstance(model, (str, os.PathLike)) else onnx.load_from_string(bytes(model))
    except Exception as error:  # protobuf's, or onnx's of external data
        raise ArgumentError(f"against: this is not an ONNX model: {' '.join(str(error).split())[:200]}") from None


# ---- the reference evaluator ----


def _of_evaluator(of: Subject, feeds: Mapping[str, np.ndarray]) -> Reference:
    """Every binding of the program before the passes; for an executable alone, of which only primitives are known, each of these
    by its definition, one fed by the other."""
    found = Reference("the reference evaluator")
    if of.model is None:
        from .kernels import LeftOut

        class Evaluated(_Recorded, LeftOut):
            """Every primitive is left out, and what its definition gives is recorded."""

        found.name += " of the primitives"
        found.results = _arrays(of.run(feeds, Evaluated(found)))
        return found
    from ..compiler import ir
    from ..compiler.ir.observe import observe

    def seen(binding: ir.Binding, value: Any) -> None:
        found.add(binding.var.name, binding.origin or binding.var.name, value)

    module = of.module()
    value = observe(module, of.function, *feeds.values(), seen=seen)
    values = list(value) if isinstance(value, tuple) else [value]
    names = [port.name for port in of.executable.outputs(of.function)]
    found.results = _arrays(dict(zip(names, values, strict=True)))
    return found


# ---- another executable ----


class _Recorded(Flow):
    def __init__(self, into: Reference) -> None:
        super().__init__()
        self._into = into

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        node = step.node.split(" + ")[-1] if step.node else step.primitive
        rounds = tuple(each.iteration for each in step.rounds)
        self._into.add(f"{step.primitive}:{index}", node, event.tensor(register), rounds=rounds)


def _of_executable(other: Subject, feeds: Mapping[str, np.ndarray]) -> Reference:
    found = Reference("the other executable")
    found.results = _arrays(other.run(dict(zip(_names(other), feeds.values(), strict=True)), _Recorded(found)))
    return found


def _names(of: Subject) -> list[str]:
    return [port.name for port in of.executable.inputs(of.function)]


def _arrays(results: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: value for name, value in results.items() if isinstance(value, np.ndarray)}
