"""What a model gives, by onnxruntime and by `onnx.reference`: the two that Treadle is compared with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(4)

Array = Any  # an array, or a list of them: a sequence
# Operators whose reference does not do what the standard says, so that its word alone does not count
REFERENCE_IS_WRONG = {
    "GlobalMaxPool": "one axis is left out of the maximum where there are not two",
    "GRU": "clip and the lengths of sequences are ignored",
    "LRN": "as many channels are computed as there are images",
    "LSTM": "clip and the lengths of sequences are ignored",
    "Loop": "without a condition there are no rounds, and what is scanned is put together along its own first axis",
    "MaxPool": "padding is negative where strides are larger than the kernel",
    **dict.fromkeys(("ReduceProd", "ReduceSum", "ReduceSumSquare"), "of small integers the result has a wider type"),
    "GridSample": "cubic places at the border are others",
    "RNN": "clip and the lengths of sequences are ignored",
}

TOLERANCE, COARSE = 2e-4, 4e-2  # relative to the greatest magnitude; of numbers with 11 bits or fewer


class Refused(Exception):
    """A judge does not take a model, or fails on it."""


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs. Raises Refused."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # what it fuses rounds otherwise, and is not what is compared
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(feeds)))
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
    return [result if isinstance(result, list) else np.asarray(result) for result in results]


def type_of(array: Array, shape: Sequence[Any] | None = None) -> onnx.TypeProto:
    """The ONNX type of an array or a sequence."""
    if isinstance(array, list):
        kind = helper.np_dtype_to_tensor_dtype(array[0].dtype) if array else onnx.TensorProto.FLOAT
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(kind, None))
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(kind, list(array.shape) if shape is None else list(shape))


def difference(got: Array, expected: Array, slack: float = 0.0, coarse: bool = False) -> str | None:
    """Why two results are not the same, or None: types and shapes are, and floats up to a tolerance of the greatest magnitude.
    `slack`: units by which integers may differ, where rounding is of what was rounded before."""
    if isinstance(expected, (list, tuple)) or isinstance(got, (list, tuple)):
        if type(got) not in (list, tuple) or type(expected) not in (list, tuple) or len(got) != len(expected):
            return f"{_told(got)} for {_told(expected)}"
        parts = (difference(a, b, slack, coarse) for a, b in zip(got, expected, strict=True))
        return next((part for part in parts if part), None)
    got, expected = np.asarray(got), np.asarray(expected)
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
    return f"a sequence of {len(value)}" if isinstance(value, (list, tuple)) else f"a tensor {np.asarray(value).shape}"
