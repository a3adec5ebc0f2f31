"""The operator table: inference agrees with the references, the references with NumPy and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from treadle.compiler.ir.evaluate import apply_operator
from treadle.compiler.operators import TABLE, Fusion, lookup
from treadle.formats import dims
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import ExecutionError, IndexOutOfRangeError, InferenceError, ShapeError
from treadle.formats.strings import to_numbers
from treadle.formats.types import UNKNOWN, TensorType, substitute_dims, tensor

RNG = np.random.default_rng(0)
DIMS = {"n": 3, "h": 11, "w": 9}

f32, f64 = partial(np.array, dtype=np.float32), partial(np.array, dtype=np.float64)
i8, i16, i32, i64 = (partial(np.array, dtype=f"int{bits}") for bits in (8, 16, 32, 64))
u8, u64 = partial(np.array, dtype=np.uint8), partial(np.array, dtype=np.uint64)


def texts(values: Any) -> np.ndarray:
    """The elements of a string tensor."""
    return to_numbers(np.array(values, object))


F, I, B, S = "float32", "int64", "bool", "string"  # noqa: E741

# operator, types of the inputs, attributes: more than one row where shapes are inferred in more than one way
EXAMPLES: list[tuple[str, list[tuple[str, tuple]], dict[str, Any]]] = [
    *[(name, [(F, ("n", 4)), (F, (4,))], {}) for name in ("add", "subtract", "multiply", "divide", "pow", "maximum")],
    *[(name, [(F, ("n", 1)), (F, (1, 4))], {}) for name in ("minimum", "remainder", "fmod", "floor_divide", "less")],
    *[(name, [(I, ("n",)), (I, ())], {}) for name in ("equal", "bitwise_and", "bitwise_or", "bitwise_xor", "not_equal")],
    *[(name, [(I, ("n",)), (I, ())], {}) for name in ("shift_left", "shift_right")],
    *[(name, [(F, ("n",)), (F, ())], {}) for name in ("less_equal", "greater", "greater_equal")],
    *[(name, [(B, ("n",)), (B, ())], {}) for name in ("logical_and", "logical_or", "logical_xor")],
    ("where", [(B, ("n", 1)), (F, (4,)), (F, ())], {}),
    ("cast", [(F, ("n",))], {"dtype": "int8"}),
    ("cast", [(B, ("n",))], {"dtype": "float16"}),
    ("bitcast", [(F, ("n",))], {"dtype": "uint32"}),
    ("clip", [(F, ("n",))], {"min": -0.5, "max": 0.5}),
    ("clip", [(I, ("n",))], {"max": 1}),
    ("gelu", [(F, ("n",))], {"approximate": "tanh"}),
    ("constant", [], {"value": 1.5, "dtype": F}),
    ("full", [], {"shape": ("n", 2), "value": 1, "dtype": I}),
    ("arange", [], {"start": 1, "stop": "2*n", "step": 2}),
    ("arange", [], {"start": "n", "stop": 0, "step": -2, "dtype": F}),
    ("shape_tensor", [], {"dims": ("n", 2, "n*n")}),
    ("shape", [(F, ("n", 2))], {}),
    *[(name, [(F, ("n", 2, 3))], {"axes": (0, -1)}) for name in ("sum", "mean", "prod", "max", "min", "l1_norm")],
    *[(name, [(F, ("n", 2))], {"axes": (1,), "keepdims": True}) for name in ("sum_of_squares", "l2_norm", "log_sum_exp")],
    ("sum", [(I, ("n", 2))], {}),
    ("any", [(B, ("n", 2))], {"axes": ()}),
    ("all", [(B, ("n", 2))], {"axes": (0,)}),
    ("argmax", [(F, ("n", 4))], {"axis": 1}),
    ("argmin", [(F, ("n", 4))], {"axis": -2, "keepdims": True, "select_last_index": True}),
    ("cumulative_sum", [(F, ("n", 4))], {"axis": 0, "exclusive": True, "reverse": True}),
    ("cumulative_sum", [(I, ("n", 4))], {"axis": 1, "exclusive": True}),
    ("top_k", [(F, ("n", 4))], {"k": 2}),
    ("top_k", [(F, ("n", 4))], {"k": "n", "axis": 0, "largest": False}),
    ("gather_nd", [(F, ("n", 4, 5)), (I, (2, 1))], {}),
    ("scatter_nd", [(F, ("n", 4)), (I, (2, 1)), (F, (2, 4))], {"reduction": "add"}),
    ("put_along_axis", [(F, ("n", 4)), (I, (2, 4)), (F, (2, 4))], {}),
    *[(name, [(F, ("n",))], {}) for name in ("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")],
    ("matmul", [(F, ("n", 4)), (F, (4, 2))], {}),
    ("matmul", [(F, (4,)), (F, (2, 4, "n"))], {}),
    ("matmul", [(F, (2, 1, "n", 4)), (F, (5, 4, 3))], {}),
    ("matmul", [(F, ("n",)), (F, ("n",))], {}),
    ("quantize", [(F, ("n", 4)), (F, (4,)), ("int8", ())], {}),
    ("dequantize", [("uint16", ("n", 4)), (F, ()), ("uint16", ("n", 1))], {}),
    ("matmul_integer", [("uint8", (2, "n", 4)), ("int8", (4, 3))], {}),
    ("matmul_integer", [("int8", ("n", 4)), ("uint8", (4, 3)), ("int8", ("n", 1)), ("uint8", (3,))], {}),
    ("matmul_integer_packed", [("uint8", (2, "n", 8)), ("int8", (2, 2, 16, 4))], {"columns": 19}),
    ("pack_integer_matrix", [("int8", (5, 19))], {}),
    ("matmul_bfloat16_packed", [("bfloat16", (2, "n", 8)), ("bfloat16", (2, 4, 16, 2))], {"columns": 19}),
    ("pack_bfloat16_matrix", [(F, (5, 19))], {}),
    ("quantize_rows", [(F, (2, "n", 5))], {}),
    ("matmul_int8_packed", [("uint8", (2, "n", 16)), ("int8", (2, 4, 16, 4))], {"columns": 19}),
    ("pack_int8_matrix", [(F, (5, 19))], {}),
    ("image_ranges", [(F, ("n", 2, "h", 5, 16))], {"channels": 20}),
    ("image_facts", [(F, ("n", 2, 2))], {}),
    ("quantize_image", [(F, ("n", 2, "h", 5, 16)), (F, ("n", 2))], {"pads": (1, 0, 1, 0)}),
    ("pack_int8_weights", [(F, (5, 3, 3, 1))], {}),
    ("pack_int8_columns", [(F, (5, 3, 3, 1)), (F, (5,))], {}),
    ("conv_int8_blocked",
     [("uint8", ("n", 2, "h", 5, 16)), ("int8", (2, 2, 3, 1, 4, 16, 4)), (F, ("n", 2)), (F, (2, 3, 16))], {}),
    ("conv_bfloat16_blocked", [("bfloat16", ("n", 2, "h", 5, 16)), ("bfloat16", (2, 2, 3, 1, 8, 16, 2)), (F, (2, 1, 1, 16))],
     {"channels": 21, "pads": (1, 0, 1, 0)}),
    ("round_bfloat16", [(F, ("n", 5))], {}),
    ("pack_bfloat16_weights", [("bfloat16", (5, 3, 3, 1))], {}),
    ("matmul_dequantized", [(F, (2, "n", 20)), ("uint32", (2, 3, 16)), (F, (2, 2, 16))], {"columns": 19, "group": 16}),
    ("matmul_dequantized", [(F, ("n", 16)), ("uint32", (1, 2, 16)), (F, (1, 2, 16)), ("uint8", (1, 2, 16))],
     {"columns": 16, "group": 8}),
    ("matmul_dequantized", [(F, ("n", 16)), ("uint32", (1, 4, 16)), (F, (1, 4, 16))], {"columns": 16, "group": 4, "bits": 8}),
    ("conv_integer", [("uint8", ("n", 4, "h", 5)), ("int8", (6, 2, 3, 2)), ("uint8", (1,))], {"groups": 2}),
    ("conv_integer_blocked", [("uint8", ("n", 2, "h", 5, 16)), ("int8", (2, 2, 3, 1, 4, 16, 4)), ("int32", (2, 1, 1, 16))],
     {"pads": (1, 0, 1, 0)}),
    ("pack_integer_weights", [("int8", (5, 3, 3, 1))], {}),
    *[("pack_channels", [(F, ("n", 20, "h", 3))], {"last": last}) for last in (False, True)],
    *[("unpack_channels", [(F, ("n", 2, "h", 3, 16))], {"channels": 20, "last": last}) for last in (False, True)],
    ("pack_vector", [(F, ("n",))], {"axes": 1}),
    ("pack_weights", [(F, (20, 5, "h", 3))], {"groups": 1}),
    ("pack_weights", [(F, (32, 16, 3))], {"groups": 2}),
    ("pack_weights", [(F, (20, 3, 3, 3))], {"groups": 4}),
    ("pack_planar_weights", [(F, ("n", 3, "h", 3))], {}),
    ("pack_matrix", [(F, ("n", 20))], {}),
    ("conv", [(F, ("n", 4, "h", "w")), (F, (6, 2, 3, 2)), (F, (6,))], {"groups": 2, "strides": (2, 1), "pads": (1, 0, 2, 1)}),
    ("conv", [(F, (1, 3, "h")), (F, (2, 3, 3))], {"dilations": (3,)}),
    ("conv", [(F, (1, 1, 5, "h", 4)), (F, (2, 1, 2, 2, 2))], {}),
    ("conv_transpose", [(F, ("n", 4, "h", 5)), (F, (4, 3, 3, 2)), (F, (6,))],
     {"groups": 2, "strides": (2, 3), "pads": (1, 0, 1, 1)}),
    ("conv_transpose", [(F, (1, 2, "h")), (F, (2, 3, 4))], {"dilations": (2,), "strides": (3,), "output_padding": (2,)}),
    ("max_pool", [(F, ("n", 2, "h", "w"))], {"kernel": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1), "ceil_mode": True}),
    ("max_pool", [(F, (1, 2, "h"))], {"kernel": (3,), "dilations": (2,)}),
    ("average_pool", [(F, ("n", 2, "h", "w"))], {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ("average_pool", [(F, ("n", 2, "h", "w"))], {"kernel": (2, 3), "pads": (1, 0, 0, 1), "count_include_pad": True}),
    ("rnn", [(F, ("h", "n", 1, 1, 5)), (F, (1, 1, 5, 1, 16)), (F, (1, "n", 5))], {"direction": "reverse", "clip": 0.5}),
    ("gru", [(F, ("h", "n", 2, 3, 20)), (F, (2, 2, 20, 3, 16)), (F, (2, "n", 20)), (F, (2, 20))],
     {"direction": "bidirectional"}),
    ("lstm", [(F, ("h", "n", 1, 4, 5)), (F, (1, 1, 5, 4, 16)), (F, (1, "n", 5)), (F, (1, "n", 5)), (F, (1, 3, 5)), (I, ("n",))],
     {"activations": "sigmoid relu tanh"}),
    ("resize", [(F, ("n", "h", 3))], {"axis": 1, "size": "2 * h", "mode": "cubic", "exclude_outside": True}),
    ("softmax", [(F, ("n", 4))], {}),
    ("log_softmax", [(F, ("n", 4))], {"axis": 0}),
    ("batch_normalization", [(F, ("n", 4, "h")), *[(F, (4,))] * 4], {}),
    ("layer_normalization", [(F, ("n", 4, 5)), (F, (4, 5)), (F, (4, 5))], {"axis": 1}),
    ("layer_normalization", [(F, ("n", 4, 5))], {}),
    ("rms_normalization", [(F, ("n", 4)), (F, (4,))], {}),
    ("instance_normalization", [(F, ("n", 4, "h")), (F, (4,)), (F, (4,))], {}),
    ("group_normalization", [(F, ("n", 4, "h")), (F, (4,)), (F, (4,))], {"groups": 2}),
    ("local_response_normalization", [(F, ("n", 4, "h"))], {"size": 3}),
    ("attention", [(F, ("n", 2, "h", 4)), (F, ("n", 2, 5, 4)), (F, ("n", 2, 5, 3)), (F, ("h", 5))], {"scale": 0.5}),
    ("attention", [(F, ("n", "h", 2, 4)), (F, ("n", 5, 2, 4)), (F, ("n", 5, 2, 3)), (B, ("n", 1, 1, 5))],
     dict.fromkeys(("q_axes", "k_axes", "v_axes", "result_axes"), (0, 2, 1, 3))),
    ("paged_attention", [(F, (1, 4, 0, 8)), (F, (1, 2, 0, 8)), (F, (1, 0, 2, 3)), (F, ("n", 2, 2, 8, 16)), (F, ("n", 2, 32, 3)),
                         (I, (0, 4)), (I, ("h",))], {"repeat": 2, "v_axes": (0, 2, 1, 3)}),
    ("linear_attention", [*[(F, ("n", "h", 2, 3))] * 2, (F, ("n", "h", 2, 5)), (F, ("n", 2, 3, 5)), *[(F, ("n", "h", 2, 1))] * 2],
     {"delta": True, "scale": 0.5}),
    ("rotary", [(F, ("n", 2, "h", 6)), (F, ("h", 6)), (F, ("n", 1, 1, 6))], {}),
    ("reshape", [(F, ("n", 4, 2))], {"shape": (-1, "n", 2)}),
    ("reshape", [(F, ("n", 4))], {"shape": (2, "2*n")}),
    ("expand_dims", [(F, ("n",))], {"axes": (0, -1)}),
    ("squeeze", [(F, (1, "n", 1))], {"axes": (0, -1)}),
    ("permute_dims", [(F, ("n", 4, 2))], {"axes": (2, 0, 1)}),
    ("permute_dims", [(F, ("n", 4, 2))], {}),
    ("depth_to_space", [(F, ("n", 12, "h", 2, 3))], {"blocks": (2, 3)}),
    ("col2im", [(F, ("n", 12, "h", 2))], {"shape": ("2 * h", 7), "kernel": (2, 3), "strides": (2, 1), "starts": (1, 0)}),
    ("broadcast_to", [(F, ("n", 1))], {"shape": (2, "n", 5)}),
    ("tile", [(F, ("n", 2))], {"repetitions": (2, "n")}),
    ("concat", [(F, ("n", 2)), (F, ("n", 3))], {"axis": -1}),
    ("concat", [(F, ("n", 2)), (F, (1, 2)), (F, ("h", 2))], {}),
    ("stack", [(F, ("n", 2)), (F, ("n", 2))], {"axis": -1}),
    ("split", [(F, ("n", 4))], {"axis": 1, "sizes": (1, 3)}),
    ("split", [(F, ("n",))], {"sizes": ("n - 2", 2)}),
    ("slice", [(F, ("n", 7))], {"starts": (1, -3), "ends": (1 << 62, 6), "axes": (0, 1), "steps": (1, 2)}),
    ("slice", [(F, ("h", 7))], {"starts": (-1, 5), "ends": (-(1 << 62), 0), "steps": (-3, -2)}),
    ("slice", [(F, ("h",))], {"starts": (2,), "ends": ("n",)}),
    ("slice", [(F, ("n",))], {"starts": (5,), "ends": (9,)}),
    ("put_slice", [(F, ("n", 7)), (F, ("n", 2))], {"start": 5, "axis": 1}),
    ("put_slice", [(F, ("h", 2)), (F, (1, 2))], {"start": "h - 1"}),
    ("pad", [(F, ("n", 2))], {"pads": (1, 0, "n", 2), "value": 1.5}),
    ("pad", [(F, ("n", 4))], {"pads": (1, 3, 2, 0), "mode": "reflect"}),
    ("pad", [(F, ("n", 4))], {"pads": (1, 3, 2, 0), "mode": "edge"}),
    ("take", [(F, ("n", 4)), (I, (2, 2))], {"axis": -1}),
    ("take_along_axis", [(F, ("n", 4)), (I, ("n", 2))], {}),
    ("nonzero", [(F, ("n", 4))], {}),
    ("best_boxes", [(F, (2, "n", 4)), (F, (2, 3, "n")), (I, ()), (F, ()), (F, ())], {"room": 3}),
    ("listed_boxes", [(I, (2, "n", 3))], {}),
    ("extent", [(I, ())], {}),
    ("extents", [(I, (3,))], {}),
    ("lexicographic_order", [(F, ("n", 3))], {}),
    ("solve", [(F, (3, 3)), (F, (3, "n"))], {}),
    ("determinant", [(F, ("n", 3, 3))], {}),
    ("call_seed", [], {"place": 0}),
    ("breakpoint", [(F, ("n", 2))], {}),
    ("device_copy", [(F, (2, 3))], {"device": "near"}),
    ("cumulative_prod", [(F, ("n", 4))], {"axis": -1, "exclusive": True, "reverse": True}),
    ("counted_nonzero", [(F, (2, 4))], {"count": 8}),
    ("counted_boxes", [(I, (2, 3, 3))], {"count": 18}),
    ("roi_align", [(F, (3, "n", 4, 5)), (F, ("n", 4)), (I, ("n",))], {"size": (2, 3)}),
    ("max_of_regions", [(F, (3, 2, "n", 5)), (F, ("n", 5))], {"size": (2, 3)}),
    ("coupled_probabilities", [(F, ("n", 3))], {"classes": 3}),
    ("tree_ensemble", [(F, ("n", 4)), ("int32", (6, 4)), ("int32", (1, 8)), (F, (3, 2))], {"targets": 2}),
    ("equal", [(S, ("n", 1)), (S, (4,))], {}),
    ("concat", [(S, ("n", 4)), (S, ("n", 4))], {"axis": 0}),
    ("concat_texts", [(S, ("n", 1)), (S, (4,))], {}),
    ("split_texts", [(S, ("n", 1))], {"delimiter": "1"}),
    ("normalize_texts", [(S, (1, "n")), (S, (2,))], {"case": "lower"}),
    ("match_texts", [(S, ("n", 2))], {"expression": "[0-9]+"}),
    ("tokenize_texts", [(S, ("n",)), (S, (1,))], {}),
    ("text_bytes", [(S, ("n",))], {"case": "upper"}),
    ("text_bytes", [(S, ("n",)), (S, (2,))], {}),
    ("count_text_ngrams", [("uint8", ("n",)), (I, (0,)), ("int32", (4, 256)), ("int32", (1, 4)), ("uint8", (0,)),
     ("int32", (1, 4)), ("int32", (1,))], {"width": 3}),
    ("hash_texts", [(S, ("n", 2))], {"seed": 3}),
    ("decode_image", [("uint8", ("n",))], {"pixel_format": "Grayscale"}),
    ("print_numbers", [(F, ("n",))], {}),
    ("read_numbers", [(S, ("n", 2))], {"dtype": F}),
    ("look_up", [(S, ("n", 2)), (S, (3,)), (F, (3,)), (F, ())], {}),
    ("look_up", [(F, ("n", 2)), (F, ("n",)), (S, ("n",)), (S, ())], {}),
    ("count_ngrams", [(S, ("n", 5)), (S, (3,)), (I, (2,))],
     {"begins": (0, 1), "least": 1, "most": 2, "skips": 1, "columns": 4}),
]  # fmt: skip
EXAMPLES += [
    (name, [("int64" if name == "bitwise_invert" else "bool" if name == "logical_not" else F, ("n", 4))], {})
    for name, operator in TABLE.items()
    if operator.inputs == ("x",) and operator.fusion is Fusion.ELEMENTWISE and name != "cast"
]


def array(type_: TensorType) -> np.ndarray:
    """Elements that every operator takes: small, positive, different; indices 0 … 2."""
    if type_.dtype is DType.bool:
        return RNG.random(type_.shape) < 0.5  # type: ignore[arg-type]
    if type_.dtype.is_string:
        return to_numbers(np.array(RNG.integers(0, 9, type_.shape).astype(str), object))  # type: ignore[arg-type]
    if type_.dtype.is_integer:
        return RNG.integers(1, 3, type_.shape, type_.dtype.numpy)  # type: ignore[arg-type]
    return np.asarray(RNG.random(type_.shape) + 0.1).astype(type_.dtype.numpy)  # type: ignore[arg-type]


def concrete(type_: TensorType) -> TensorType:
    return substitute_dims(type_, DIMS)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_symbolic_inference_says_what_the_reference_gives(name: str, inputs: list, attributes: dict) -> None:
    operator = lookup(name)
    types = [tensor(*parts) for parts in inputs]
    canonical = operator.canonical(attributes)
    inferred = operator.result_types(types, canonical)
    results = apply_operator(name, [array(concrete(type_)) for type_ in types], canonical, DIMS)
    for result, type_ in zip(results, map(concrete, inferred), strict=True):
        assert result.dtype == type_.dtype.numpy
        assert all(size == dim or dim is UNKNOWN for size, dim in zip(result.shape, type_.shape, strict=True))


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_inference_says_of_unknown_and_named_sizes_what_holds_for_all(
    name: str, inputs: list, attributes: dict
) -> None:
    """Sizes are drawn that the operator takes; then some of them are hidden behind ?, or behind names that may be equal."""
    random = Random(name)
    for _ in range(20):
        values = {variable: random.choice((0, 1, 2, 3, 4, 6)) for variable in DIMS}
        canonical = _with_values(lookup(name).canonical(attributes), values)
        drawn = [
            TensorType(type_.dtype, tuple(random.choice((dim, dim, dim, 1, 2, 0)) for dim in type_.shape))
            for type_ in (substitute_dims(tensor(*parts), values) for parts in inputs)
        ]
        hidden = {size: random.choice((UNKNOWN, dims.variable(f"v{size}"), size)) for size in range(300)}
        seen = [
            TensorType(type_.dtype, tuple(random.choice((dim, hidden[dim])) for dim in type_.shape)) for type_ in drawn
        ]
        try:
            known = lookup(name).result_types(drawn, canonical)
            said = lookup(name).result_types(seen, canonical)
        except InferenceError:  # sizes that do not fit; an operator may also ask for known ones
            continue
        for now, type_ in zip(known, said, strict=True):
            found = _with_values(type_.shape, {f"v{size}": size for size in hidden})
            assert all(dim is UNKNOWN or dim == size for dim, size in zip(found, now.shape, strict=True)), (seen, drawn)


def _with_values(value: Any, values: dict[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_with_values(part, values) for part in value)
    return dims.evaluate(value, values) if isinstance(value, dims.SymbolicDim) else value


def test_every_operator_has_an_example_and_says_what_it_does() -> None:
    packed = {name for name, operator in TABLE.items() if operator.infer.__module__.endswith(("blocked", "winograd"))}
    assert TABLE.keys() - {name for name, _, _ in EXAMPLES} - packed == set()
    assert all(operator.doc for operator in TABLE.values())


def run(name: str, *arrays: Any, **attributes: Any) -> Any:
    results = apply_operator(name, list(map(np.asarray, arrays)), lookup(name).canonical(attributes), {})
    return results[0] if len(results) == 1 else tuple(results)


# name, a row of inputs, what comes out
EDGES: list[tuple[str, list, dict, Any]] = [
    ("divide", [i32([7, -7, 7, -(2**31)]), i32([2, 2, -2, -1])], {}, i32([3, -3, -3, -(2**31)])),
    ("remainder", [i8([7, -7, 7]), i8([3, 3, -3])], {}, i8([1, 2, -2])),
    ("fmod", [i8([7, -7, 7]), i8([3, 3, -3])], {}, i8([1, -1, 1])),
    ("pow", [i64([2, 2, -1, 3, 0]), i64([10, -1, -3, -2, 0])], {}, i64([1024, 0, -1, 0, 1])),
    ("cast", [f32([1.9, -1.9, 300, -300, np.nan, np.inf])], {"dtype": "int8"}, i8([1, -1, 127, -128, 0, 127])),
    ("cast", [f32([3e9, -1])], {"dtype": "uint64"}, u64([3000000000, 0])),
    ("cast", [f64([1e300, -1e300])], {"dtype": "int64"}, i64([2**63 - 1, -(2**63)])),
    ("bitcast", [f32([1.0, -0.0])], {"dtype": "int32"}, i32([0x3F800000, -(2**31)])),
    ("bitcast", [u64(1)], {"dtype": "float64"}, np.float64(5e-324)),
    ("cast", [f32([0.0, -0.0, np.nan, 0.1])], {"dtype": "bool"}, np.array([False, False, True, True])),
    ("maximum", [f32([np.nan, 1]), f32([1, np.nan])], {}, f32([np.nan, np.nan])),
    ("relu", [f32([np.nan, -1, 2])], {}, f32([np.nan, 0, 2])),
    ("clip", [u8([3, 250])], {"min": -5, "max": 1000}, u8([3, 250])),
    ("round", [f32([0.5, 1.5, -2.5])], {}, f32([0, 2, -2])),
    ("sigmoid", [f32([-1000, 0, 1000])], {}, f32([0, 0.5, 1])),
    ("softplus", [f32([-1000, 1000])], {}, f32([0, 1000])),
    ("softmax", [f32([1000, 1000])], {}, f32([0.5, 0.5])),
    ("sum", [np.zeros((0, 2), np.float32)], {"axes": (0,)}, f32([0, 0])),
    ("max", [np.zeros((0, 2), np.int16)], {"axes": (0,)}, i16([-32768, -32768])),
    ("min", [np.zeros((0,), np.float32)], {}, f32(np.inf)),
    ("sum", [i8([100, 100])], {}, i8(-56)),
    ("argmax", [f32([1, 3, 3])], {"axis": 0, "select_last_index": True}, i64(2)),
    ("argmax", [f32([1, np.nan, 3])], {"axis": 0}, i64(1)),
    ("take", [f32([1, 2, 3]), i32([-1, 0])], {}, f32([3, 1])),
    ("nonzero", [i8([[0, 1], [1, 0]])], {}, i64([[0, 1], [1, 0]])),
    ("equal", [texts(["ä", "", "b"]), texts(["ä", "b", "b"])], {}, np.array([True, False, True])),
    ("where", [np.array([True, False]), texts(["a", "b"]), texts("c")], {}, texts(["a", "c"])),
    ("concat_texts", [texts(["a", "ß"]), texts("-")], {}, texts(["a-", "ß-"])),
    ("normalize_texts", [texts(["The", "cat"]), texts(["the", "CAT"])], {}, texts([""])),
    ("normalize_texts", [texts(["The", "cat"]), texts(["the"])], {"is_case_sensitive": True, "case": "upper"},
     texts(["THE", "CAT"])),
    ("print_numbers", [f32([0.1, 1e20, -np.inf, np.nan])], {}, texts(["0.1", "1e+20", "-INF", "NaN"])),
    ("print_numbers", [np.array([True, False])], {}, texts(["1", "0"])),
    ("read_numbers", [texts(["1e2", "+inf", "-7", "nan"])], {"dtype": "float32"}, f32([100, np.inf, -7, np.nan])),
    ("read_numbers", [texts(["9223372036854775807", "2.9"])], {"dtype": "int64"}, i64([2**63 - 1, 2])),
    ("look_up", [f32([np.nan, 2, 3]), f32([3, np.nan, 3]), texts(["a", "b", "c"]), texts("?")], {}, texts(["b", "?", "a"])),
    ("look_up", [texts(["x", "y"]), texts([]), f32([]), f32(0.5)], {}, f32([0.5, 0.5])),
    ("count_ngrams", [texts(["a", "b", "a", "b"]), texts(["a", "a", "b"]), i64([1, 0])],
     {"begins": (0, 1), "least": 1, "most": 2, "skips": 2, "columns": 2}, f32([3, 2])),
    (
        "best_boxes",
        [
            f32([[[0, 0, 2, 2], [0, 0, 2, 1.8], [2, 2, 4, 4], [9, 9, 9, 9]]]),
            f32([[[0.5, 0.6, 0.7, 0.1]]]),
            *(np.array(5), f32(0.5), f32(0.2)),
        ],
        {"room": 3},
        i64([[[2, 1, -1]]]),
    ),
    ("listed_boxes", [i64([[[2, 1, -1]], [[-1, -1, -1]], [[0, -1, -1]]])], {}, i64([[0, 0, 2], [0, 0, 1], [2, 0, 0]])),
    ("average_pool", [np.ones((1, 1, 4), np.float32)], {"kernel": (3,), "pads": (1, 1), "count_include_pad": True},
     f32([[[2 / 3, 1, 1, 2 / 3]]])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attributes", "expected"), EDGES)
def test_edge_values(name: str, inputs: list, attributes: dict, expected: np.ndarray) -> None:
    result = run(name, *inputs, **attributes)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


# operator, inputs, attributes, then the same for onnxruntime
ONNX: list[tuple[str, list[tuple], dict, str, dict]] = [
    ("conv", [(2, 4, 9, 8), (6, 2, 3, 2), (6,)], {"groups": 2, "strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (2, 3)},
     "Conv", {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [2, 3]}),
    ("conv_transpose", [(2, 4, 5, 4), (4, 3, 3, 2), (6,)],
     {"groups": 2, "strides": (2, 3), "pads": (1, 0, 1, 1), "dilations": (1, 2), "output_padding": (1, 0)},
     "ConvTranspose", {"group": 2, "strides": [2, 3], "pads": [1, 0, 1, 1], "dilations": [1, 2], "output_padding": [1, 0]}),
    ("max_pool", [(1, 2, 8, 7)], {"kernel": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1), "ceil_mode": True},
     "MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
    ("average_pool", [(1, 2, 8, 8)], {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": True},
     "AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    ("average_pool", [(1, 2, 8, 8)],
     {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": True, "count_include_pad": True},
     "AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1, "count_include_pad": 1}),
    ("local_response_normalization", [(2, 7, 3, 3)], {"size": 3, "alpha": 0.5}, "LRN", {"size": 3, "alpha": 0.5}),
    ("batch_normalization", [(2, 3, 4), *[(3,)] * 4], {}, "BatchNormalization", {}),
    ("layer_normalization", [(2, 3, 4), (3, 4), (3, 4)], {"axis": 1}, "LayerNormalization", {"axis": 1}),
    ("instance_normalization", [(2, 3, 4), (3,), (3,)], {}, "InstanceNormalization", {}),
    ("log_softmax", [(2, 3, 4)], {"axis": 1}, "LogSoftmax", {"axis": 1}),
    ("gelu", [(5,)], {}, "Gelu", {}),
    ("hard_swish", [(5,)], {}, "HardSwish", {}),
    ("hard_sigmoid", [(5,)], {}, "HardSigmoid", {}),
    ("mish", [(5,)], {}, "Mish", {}),
    ("elu", [(5,)], {"alpha": 2.0}, "Elu", {"alpha": 2.0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes", "attributes", "onnx_name", "onnx_attributes"), ONNX)
def test_references_agree_with_onnxruntime(
    name: str, shapes: list, attributes: dict, onnx_name: str, onnx_attributes: dict
) -> None:
    arrays = [(RNG.random(shape) + (0.1 if i == 4 else -0.4)).astype(np.float32) for i, shape in enumerate(shapes)]
    expected = onnxruntime(onnx_name, arrays, onnx_attributes)
    np.testing.assert_allclose(run(name, *arrays, **attributes), expected, rtol=1e-4, atol=1e-5)


def onnxruntime(name: str, arrays: list[np.ndarray], attributes: dict) -> np.ndarray:
    """One ONNX operator."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    names = [f"x{i}" for i in range(len(arrays))]
    inputs = [onnx.helper.make_tensor_value_info(n, 1, a.shape) for n, a in zip(names, arrays, strict=True)]
    node = onnx.helper.make_node(name, names, ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.helper.make_tensor_value_info("y", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


# operator, types of the inputs, attributes, a part of the message
WRONG: list[tuple[str, list[tuple[str, tuple]], dict, str]] = [
    ("add", [(F, ("n",)), (F, ("m",))], {}, "expected shapes that broadcast, got [n] and [m]"),
    ("add", [(F, ("n",)), (F, (4,))], {}, "expected shapes that broadcast, got [n] and [4]"),
    ("add", [(F, (2,)), (I, (2,))], {}, "expected tensors of one element type, got float32[2] and int64[2]"),
    ("add", [(F, (2,))], {}, "add takes a, b, got 1 input"),
    ("exp", [(I, (2,))], {}, "expected a float tensor, got int64[2]"),
    ("matmul", [(F, ("n", 4)), (F, (5, 2))], {}, "expected 4 rows in b"),
    ("conv", [(F, (1, 3, 8, 8)), (F, (4, 2, 3, 3))], {}, "expected 3 channels on axis 1 of the weights"),
    ("conv", [(F, (1, 3, 2, 2)), (F, (4, 3, 9, 9))], {}, "expected at most 2 elements in a window"),
    ("conv", [(F, (1, 3, 8)), (F, (4, 3, 3))], {"strides": (0,)}, "expected strides of at least 1"),
    (
        "conv_winograd",
        [(F, (1, 2, 9, 16)), (F, (1, 1, 6, 64, 16))],
        {"channels": 32, "window": (5,)},
        "weights of 32 channels",
    ),
    (
        "conv_winograd",
        [(F, (1, 2, 9, 16)), (F, (1, 1, 6, 32, 16))],
        {"channels": 32, "window": (7,)},
        "transformed weights",
    ),
    (
        "conv_winograd",
        [(F, (1, 1, 2, 9, 9, 16)), (F, (1, 6, 6, 0, 16))],
        {"channels": 16, "window": (6, 6)},
        "weights of 16",
    ),
    (
        "conv_winograd",
        [(F, (1, 2, 9, 16)), (F, (3, 1, 6, 16, 16))],
        {"channels": 16, "window": (3,), "groups": 2},
        "2 groups",
    ),
    (
        "conv_winograd",
        [(F, (1, 2, 9, 16)), (F, (1, 1, 6, "n", 16))],
        {"channels": 32, "window": (3,)},
        "of a known size",
    ),
    ("reshape", [(F, (2, 3))], {"shape": (4, 2)}, "expected a shape of 6 elements for float32[2, 3], got [4, 2]"),
    ("reshape", [(F, ("n", 3))], {"shape": ("n + 1", 3)}, "expected a shape of 3*n elements"),
    ("reshape", [(F, (2, 3))], {"shape": (4, -1)}, "expected a shape of 6 elements"),
    ("concat", [(F, (2, 3)), (F, (2, 4))], {}, "expected tensors of one shape but for axis 0"),
    ("put_slice", [(F, ("n", 3)), (F, ("n", 2))], {"start": 2, "axis": 1}, "expected elements from 2 on of axis 1"),
    ("put_slice", [(F, (3,)), (F, (2,))], {"start": -1}, "expected elements from -1 on"),
    ("put_slice", [(F, (3, 4)), (F, (2, 3))], {"start": 0}, "expected dimension 4, got 3"),
    *[
        (name, [], {**attributes, "dtype": S}, "expected an element type of numbers, got string")
        for name, attributes in (("constant", {"value": 1}), ("full", {"shape": (2,)}), ("arange", {"stop": 3}))
    ],
    ("split", [(F, ("n",))], {"sizes": (1, 2)}, "expected sizes that sum to n"),
    ("softmax", [(F, (2, 3))], {"axis": 2}, "expected an axis from -2 to 1, got 2"),
    ("softmax", [(F, (2, 3))], {"axes": 2}, "softmax has no attribute 'axes'; its attributes: axis"),
    ("cast", [(F, (2,))], {}, "cast: attribute 'dtype' is missing"),
    ("bitcast", [(F, (2,))], {"dtype": "int64"}, "as many bytes as int64"),
    ("bitcast", [("uint8", (2,))], {"dtype": "bool"}, "no truth values"),
    ("pad", [(F, (2,))], {"pads": (1, 1), "mode": "wrap"}, "takes 'constant' or 'edge' or 'reflect', got 'wrap'"),
    ("take", [(F, (2,)), (F, (2,))], {}, "expected a tensor of int32 or int64, got float32[2]"),
    ("put_along_axis", [(F, (3, 4)), (I, (2, 4)), (F, (2, 3))], {"axis": 0}, "4"),
    ("pack_integer_weights", [("uint8", (16, 4, 3))], {}, "int8"),
    (
        "conv_winograd",
        [(F, (1, 1, 2, 2, 2, 9, 16)), (F, (1, 1, 6, 16, 16))],
        {"channels": 16, "window": (3,)},
        "image or volume",
    ),
    ("full", [], {"shape": (1 << 40, 1 << 40), "value": 0, "dtype": F}, "has more than 140737488355327 bytes"),
]


@pytest.mark.parametrize(("name", "inputs", "attributes", "message"), WRONG)
def test_inference_says_what_was_expected_and_what_came(
    name: str, inputs: list, attributes: dict, message: str
) -> None:
    operator = lookup(name)
    with pytest.raises(InferenceError) as error:
        operator.result_types([tensor(*parts) for parts in inputs], operator.canonical(attributes))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: run("take", f32([1]), i64([1])), IndexOutOfRangeError),
        (lambda: run("take_along_axis", f32([1]), i64([-2])), IndexOutOfRangeError),
        (lambda: run("divide", i8([1]), i8([0])), ExecutionError),
        (lambda: run("add", f32([1, 2]), f32([1, 2, 3])), ShapeError),
    ],
)
def test_references_fail_by_name(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_a_region_of_an_image_that_there_is_not_is_named() -> None:
    with pytest.raises(IndexOutOfRangeError, match="image 1 of 1 of 4x5 pixels"):
        run("roi_align", np.zeros((1, 4, 5, 2), np.float32), f32([[0, 0, 1, 1]]), i64([1]), size=(1, 1))


def test_unknown_operators_are_answered_with_near_ones() -> None:
    with pytest.raises(InferenceError, match="did you mean softmax"):
        lookup("soft_max")
