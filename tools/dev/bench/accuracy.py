"""`treadle bench accuracy`: how far the results of Treadle and of its rivals lie from those of the same model in float64.

The reference is the model with every float32 tensor made a float64 one, evaluated operator by operator in NumPy. Errors are
relative to the reference: the root mean square of the differences to that of its elements, the largest difference to the
largest element; of several outputs the worst one's. What counts is the ratio to the first rival: rounding errors are a
matter of luck from input to input, and the largest even more so, so a model is run on several inputs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ....formats.program import EXACT
from .race import OURS, WRONG, check_engines, errors_of, reason, told, zoo_entries

if TYPE_CHECKING:
    import onnx

    from ..zoo.catalogue import Entry

_INPUTS = 3  # of each model
_LIMIT = 2.0  # times the first rival's error, beyond which a model is marked


@dataclass(frozen=True)
class Deviation:
    """One engine's errors on one model; or why there are none."""

    rms: float = math.nan
    largest: float = math.nan
    failure: str = ""


@dataclass(frozen=True)
class Comparison:
    """All engines on one model."""

    model: str
    engines: Mapping[str, Deviation] = field(default_factory=dict)

    @property
    def ratios(self) -> tuple[float, float] | None:
        """Our errors, root mean square and largest, in units of the first rival's that could run the model."""
        rivals = [found for name, found in self.engines.items() if name != OURS and not found.failure]
        ours = self.engines[OURS]
        if ours.failure or not rivals:
            return None
        return _ratio(ours.rms, rivals[0].rms), _ratio(ours.largest, rivals[0].largest)


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else math.inf if ours else 1.0


def accuracy_command(options: argparse.Namespace) -> int:
    """Prints each comparison when it is made."""
    compared = compare_models(options.only, options.against, options.repeat or _INPUTS)
    found = told(compared, _line, options, lambda each: asdict(each) | {"ratios": each.ratios})
    if not options.json:
        within = [max(comparison.ratios) <= _LIMIT for comparison in found if comparison.ratios]
        print(f"\n{sum(within)} of {len(within)} models within {_LIMIT:g} times the first rival's errors")
    return 0


def _line(comparison: Comparison) -> str:
    parts = [f"{comparison.model:20}"]
    for name, found in comparison.engines.items():
        parts.append(f"{name} {'–':>8} {'–':>8}" if found.failure else f"{name} {found.rms:.2e} {found.largest:.2e}")
    if comparison.ratios:
        rms, largest = comparison.ratios
        parts.append(f"ratio {rms:.2f} {largest:.2f}" + (" !" if max(rms, largest) > _LIMIT else ""))
    for name, found in comparison.engines.items():
        if found.failure:
            parts.append(f"! {name}: {found.failure}")
        elif not found.largest <= WRONG:
            parts.append(f"! {name} is wrong")
    return "  ".join(parts)


def compare_models(models: Sequence[str], rivals: Sequence[str], count: int) -> Iterator[Comparison]:
    """Compares the models of these names, or all, on `count` inputs. Raises UsageError for an unknown name."""
    check_engines(rivals)
    for entry in zoo_entries(models):
        yield _compare(entry, (OURS, *rivals), count)


def _compare(entry: Entry, engines: Sequence[str], count: int) -> Comparison:
    from ..zoo.catalogue import inputs

    model = entry.build()
    samples = [inputs(entry, model, number) for number in range(count)]
    wanted = _reference(model, samples)
    found = {}
    for name in engines:
        try:
            found[name] = _deviation(_outputs(name, model, samples), wanted)
        except Exception as error:  # whatever a runtime raises: that it cannot run this model is a result
            found[name] = Deviation(failure=reason(error))
    return Comparison(entry.name, found)


def _outputs(
    engine: str, model: onnx.ModelProto, samples: Sequence[Mapping[str, np.ndarray]]
) -> list[list[np.ndarray]]:
    """The outputs for each of the inputs, all of which have the same shapes."""
    from .engines import ENGINES

    buffers = {name: array.copy() for name, array in samples[0].items()}  # an engine may read its inputs in place
    call, results = ENGINES[engine](model, buffers, 1, EXACT), []
    for sample in samples:
        for name, array in sample.items():
            buffers[name][...] = array
        results.append([array.copy() for array in call()])
    return results


def _reference(model: onnx.ModelProto, samples: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]]:
    from ....compiler.ir.evaluate import evaluate
    from ....compiler.ir.infer import infer_types
    from ....compiler.onnx.importer import from_onnx

    module = infer_types(from_onnx(in_double(model)))
    results = []
    for sample in samples:
        doubles = [array.astype(np.float64) if array.dtype == np.float32 else array for array in sample.values()]
        result = evaluate(module, "main", *doubles)
        results.append(list(result) if isinstance(result, tuple) else [result])
    return results


def _deviation(found: Sequence[Sequence[np.ndarray]], wanted: Sequence[Sequence[np.ndarray]]) -> Deviation:
    """The errors of the worst output of floats; each is the mean, or the largest, of all inputs'."""
    errors = [errors_of(a, b) for a, b in zip(zip(*found, strict=True), zip(*wanted, strict=True), strict=True)]
    return Deviation(max(rms for rms, _ in errors), max(largest for _, largest in errors))


# ---- a model in float64 ----


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float64 in place of float32: inputs, outputs, weights, constants, and what nodes convert to."""
    import onnx

    double = onnx.ModelProto()
    double.CopyFrom(model)
    _widen_graph(double.graph)
    for function in double.functions:
        _widen_nodes(function.node)
    return double


def _widen_graph(graph: onnx.GraphProto) -> None:
    from onnx import TensorProto

    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Any) -> None:
    from onnx import TensorProto, helper

    for node in nodes:
        for attribute in node.attribute:
            is_type = (node.op_type, attribute.name) in (("Cast", "to"), ("EyeLike", "dtype"))
            if is_type and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                values = attribute.floats if attribute.floats else [attribute.f]
                shape = [len(values)] if attribute.name == "value_floats" else []
                tensor = helper.make_tensor("", TensorProto.DOUBLE, shape, values)
                attribute.CopyFrom(helper.make_attribute("value", tensor))
            _widen_tensor(attribute.t)
            for graph in (attribute.g, *attribute.graphs):
                _widen_graph(graph)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    from onnx import TensorProto, numpy_helper

    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
