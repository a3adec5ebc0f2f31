"""What a model gives, by onnxruntime and by `onnx.reference`: the two that Treadle is compared with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Missing

onnxruntime.set_default_logger_severity(4)

Array = Any  # an array, a list of them, which is a sequence, or None, which is an optional value without one
# Operators whose reference does not do what the standard says, so that its word alone does not count
REFERENCE_IS_WRONG = {
    "AveragePool": "dilations are ignored where auto_pad is VALID, and windows of ceil_mode begin elsewhere",
    "ConvTranspose": "of groups, each channel gets a bias of another one's",
    "GlobalMaxPool": "one axis is left out of the maximum where there are not two",
    "GRU": "clip and the lengths of sequences are ignored",
    "LRN": "as many channels are computed as there are images",
    "LpPool": "dilations are ignored where auto_pad is VALID",
    "LSTM": "clip and the lengths of sequences are ignored",
    "Loop": "without a condition there are no rounds, and what is scanned is put together along its own first axis",
    "Optional": "the value comes in a list of one, and nothing does, too",
    "SequenceInsert": "what goes behind the last tensor comes before it",
    "StringNormalizer": "accents and empty texts are taken off",
    "MaxPool": "padding is negative where strides are larger than the kernel",
    **dict.fromkeys(("ReduceProd", "ReduceSum", "ReduceSumSquare"), "of small integers the result has a wider type"),
    "GridSample": "cubic places at the border are others",
    "RNN": "clip and the lengths of sequences are ignored",
}

# Operators of which onnxruntime does not survive tensors without elements: a division by 0, an exception that nobody catches
_ENDS_THE_PROCESS = {"ConcatFromSequence", "Einsum", "Unique"}

TOLERANCE, COARSE = 2e-4, 4e-2  # relative to the greatest magnitude; of numbers with 11 bits or fewer


def _scale_of_zeros(node: onnx.NodeProto, operands: Sequence[Array | None], results: Sequence[Array]) -> bool:
    return not np.any(operands[0])


def _no_rounds(node: onnx.NodeProto, operands: Sequence[Array | None], results: Sequence[Array]) -> bool:
    carried = max(len(node.input) - 2, 0)
    return any(is_tensor(scanned) and scanned.shape[:1] == (0,) for scanned in results[carried:])


def _order_decides(node: onnx.NodeProto, operands: Sequence[Array | None], results: Sequence[Array]) -> bool:
    x = operands[0]
    return x is not None and x.dtype.kind == "f" and bool(np.isfinite(x).all() and not np.isfinite(results[0]).all())


def _parts_that_do_not_fit(node: onnx.NodeProto, operands: Sequence[Array | None], results: Sequence[Array]) -> bool:
    if len(node.input) > 1 or not any(attribute.name == "num_outputs" for attribute in node.attribute):
        return False
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    x, count = operands[0], len(node.output)
    return x is not None and -(-x.shape[axis] // count) * (count - 1) > x.shape[axis]


def _other_sizes_differ(node: onnx.NodeProto, operands: Sequence[Array | None], results: Sequence[Array]) -> bool:
    told = {attribute.name: attribute.i for attribute in node.attribute}
    parts = operands[0] or []
    shapes = [part.shape if told.get("new_axis") else np.delete(part.shape, told["axis"]) for part in parts]
    return len({tuple(shape) for shape in shapes}) > 1


def _letters_become_two(node: onnx.NodeProto, operands: Sequence[Array | None], results: Sequence[Array]) -> bool:
    x = operands[0]
    return x is not None and any(len(text.upper()) != len(text) for text in x.flat)


# What the standard leaves open, or what both judges do otherwise: of a node, its operands and its results, and why
Unsaid = Callable[[onnx.NodeProto, Sequence[Array | None], Sequence[Array]], bool]
UNSAID: dict[str, tuple[Unsaid, str]] = {
    "ConcatFromSequence": (
        _other_sizes_differ,
        '"the same shape, except for the dimension size of the axis"; to onnxruntime, tensors without elements may have any',
    ),
    "DynamicQuantizeLinear": (
        _scale_of_zeros,
        '"y_scale = (maximum(0, max(x)) - minimum(0, min(x))) / (qmax - qmin)" is 0 of zeros; each judge has another scale',
    ),
    "Loop": (
        _no_rounds,
        "what is scanned is as long as there are rounds; what other sizes it has where there are none, is not said",
    ),
    "MeanVarianceNormalization": (
        _order_decides,
        "the variance of equal numbers is 0, or what rounding leaves of a difference, of which there may be no root",
    ),
    "ReduceProd": (_order_decides, "an order of the factors is not said, and decides whether a product overflows"),
    "StringNormalizer": (
        _letters_become_two,
        "of the two cases that Unicode has for letters such as ß, onnxruntime takes that of one letter, Treadle the full one",
    ),
    "Split": (
        _parts_that_do_not_fit,
        '"equal sized parts", of which "the last chunk will be smaller", are more than there is without the last one',
    ),
}


def unsaid(node: onnx.NodeProto, operands: Sequence[Array | None], results: Sequence[Array]) -> str | None:
    """Why nothing is due of a node, or None."""
    applies, reason = UNSAID.get(node.op_type, (None, "")) if node.domain == "" else (None, "")
    return reason if applies is not None and applies(node, operands, results) else None


class Refused(Exception):
    """A judge does not take a model, or fails on it."""


def exact_session(
    model: bytes | str, options: onnxruntime.SessionOptions | None = None
) -> onnxruntime.InferenceSession:
    """onnxruntime for a serialised model or a path, with exact sums of 8-bit products.

    On CPUs that have AVX2 but no VNNI, onnxruntime adds two products of unsigned numbers with signed weights in 16 bits, which
    saturates. Asked for precision, it takes unsigned weights instead, where weights are constants. Products of two signed numbers
    are exact there, and have no such form.
    """
    options = options or onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Missing:
        options.add_session_config_entry("session.x64quantprecision", "0")
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _is_empty(value: Any) -> bool:
    """Whether it is a tensor without elements, or a sequence that has one."""
    return any(map(_is_empty, value)) if isinstance(value, (list, tuple)) else is_tensor(value) and not value.size


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs. Raises Refused."""
    is_empty = any(map(_is_empty, feeds.values()))
    if is_empty and any(node.op_type in _ENDS_THE_PROCESS for node in model.graph.node):
        raise Refused("the process would end")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # what it fuses rounds otherwise, and is not what is compared
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return [as_array(each) for each in exact_session(model.SerializeToString(), options).run(None, dict(feeds))]
    except Exception as error:
        raise Refused(str(error)) from None


def by_reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs. Raises Refused."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, dict(feeds))
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from None
    return [as_array(result) for result in results]


def as_array(value: Any) -> Array:
    """What a judge gives, as an array, of objects if it has texts; of a sequence, each."""
    if value is None or isinstance(value, list):
        return value if value is None else [as_array(each) for each in value]
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "UST" else array


def is_tensor(value: Array) -> bool:
    return isinstance(value, (np.ndarray, np.generic))


def type_of(array: Array, shape: Sequence[Any] | None = None) -> onnx.TypeProto:
    """The ONNX type of an array."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(kind, list(array.shape) if shape is None else list(shape))


def difference(got: Array, expected: Array, slack: float = 0.0, coarse: bool = False) -> str | None:
    """Why two results are not the same, or None: types and shapes are, and floats up to a tolerance of the greatest magnitude.
    `slack`: units by which integers may differ, where rounding is of what was rounded before."""
    if got is None or expected is None:
        return None if got is expected else f"{_told(got)} for {_told(expected)}"
    if isinstance(expected, (list, tuple)) or isinstance(got, (list, tuple)):
        if type(got) not in (list, tuple) or type(expected) not in (list, tuple) or len(got) != len(expected):
            return f"{_told(got)} for {_told(expected)}"
        parts = (difference(a, b, slack, coarse) for a, b in zip(got, expected, strict=True))
        return next((part for part in parts if part), None)
    got, expected = as_array(got), as_array(expected)
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"{got.dtype}{got.shape} came, {expected.dtype}{expected.shape} is due"
    if not expected.size:
        return None
    if expected.dtype.kind in "biu" or expected.dtype.kind in "OUS":
        same = np.array_equal(got, expected)
        if not same and slack and expected.dtype.kind in "iu":
            same = bool((np.abs(got.astype(np.float64) - expected.astype(np.float64)) <= slack).all())
        return None if same else f"{got.tolist()} for {expected.tolist()}"
    coarse = coarse or expected.dtype.itemsize < 4
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    finite = expected[np.isfinite(expected)]
    tolerance = COARSE if coarse else TOLERANCE
    scale = 1 + np.max(np.abs(finite), initial=0)
    with np.errstate(all="ignore"):
        close = np.isclose(got, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    return None if close.all() else f"{got.tolist()} for {expected.tolist()}"


def _told(value: Array) -> str:
    if value is None:
        return "nothing"
    return f"a sequence of {len(value)}" if isinstance(value, (list, tuple)) else f"a tensor {np.asarray(value).shape}"
