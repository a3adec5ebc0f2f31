"""Each importer against onnxruntime: one node, small random inputs, with fixed sizes and with a symbolic first one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.tools.dev.fuzz.random_onnx.judges import exact_session

onnxruntime.set_default_logger_severity(4)
rng = np.random.default_rng(0)


@dataclass
class Case:
    op: str
    inputs: list[np.ndarray | None]
    opset: int
    attributes: dict[str, Any]
    constants: tuple[int, ...]  # which inputs are initializers
    outputs: int = 1
    symbolic: bool = True  # also with a symbolic first dimension
    tag: str = field(default="")

    def model(self, first_dim: str | None) -> onnx.ModelProto:
        names = [f"in{i}" if array is not None else "" for i, array in enumerate(self.inputs)]
        outputs = [f"out{i}" for i in range(self.outputs)]
        infos, initializers = [], []
        for i, array in enumerate(self.inputs):
            if array is None:
                continue
            if i in self.constants:
                initializers.append(numpy_helper.from_array(array, names[i]))
                continue
            shape: list[Any] = list(array.shape)
            if first_dim and i == 0 and shape:
                shape[0] = first_dim
            infos.append(helper.make_tensor_value_info(names[i], helper.np_dtype_to_tensor_dtype(array.dtype), shape))
        node = helper.make_node(self.op, names, outputs, "the_node", **self.attributes)
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph([node], "graph", infos, results, initializers)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", self.opset)])

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"in{i}": a for i, a in enumerate(self.inputs) if a is not None and i not in self.constants}


def case(
    op: str,
    *inputs: Any,
    opset: int = 17,
    constants: tuple[int, ...] = (),
    outputs: int = 1,
    symbolic: bool = True,
    **attributes: Any,
) -> Any:
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    words = [op, f"opset{opset}", *(f"{k}={v}" for k, v in attributes.items() if not isinstance(v, onnx.TensorProto))]
    words += ["x".join(map(str, a.shape)) or "scalar" for a in arrays if a is not None]
    return pytest.param(Case(op, arrays, opset, attributes, constants, outputs, symbolic), id=" ".join(words))


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return rng.uniform(0.5, 2, shape).astype(np.float32)


def integers(*shape: int, low: int = 1, high: int = 9) -> np.ndarray:
    return rng.integers(low, high, shape)


def bytes_(*shape: int, signed: bool = False) -> np.ndarray:
    return rng.integers(0, 256, shape, np.uint8).view(np.int8 if signed else np.uint8)


def truths(*shape: int) -> np.ndarray:
    return rng.random(shape) < 0.5


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
UNARY = "Abs Ceil Cos Elu Erf Exp Floor HardSigmoid HardSwish Identity LeakyRelu Neg Relu Round Selu Sigmoid Sign Sin"
UNARY += " Softplus Softsign Tan Tanh ThresholdedRelu Mish Celu"


def recurrent(op: str, gates: int, *more: Any, directions: int = 1, biased: bool = True, **attributes: Any) -> Any:
    """A layer of 5 units on 3 sequences of 4 steps."""
    weights = normal(directions, gates * 5, 2), normal(directions, gates * 5, 5)
    bias = normal(directions, 2 * gates * 5) if biased else None
    outputs = 3 if op == "LSTM" else 2
    x = normal(3, 4, 2) if attributes.get("layout") else normal(4, 3, 2)
    return case(op, x, *weights, bias, *more, constants=(1, 2, 3), outputs=outputs, hidden_size=5, **attributes)


def blocks(image: tuple[int, ...], block: tuple[int, ...], columns: int, **attributes: Any) -> Any:
    """Two images of three channels that are put together from blocks."""
    elements = normal(2, 3 * int(np.prod(block)), columns)
    return case("Col2Im", elements, ints(*image), ints(*block), opset=18, constants=(1, 2), **attributes)


CASES = [
    *[recurrent(op, gates, direction=way) for op, gates in GATES.items() for way in ("forward", "reverse")],
    *[recurrent(op, gates, directions=2, direction="bidirectional", biased=False) for op, gates in GATES.items()],
    *[recurrent(op, gates, np.int32([4, 1, 3])) for op, gates in GATES.items()],
    recurrent("LSTM", 4, None, normal(1, 3, 5), normal(1, 3, 5), normal(1, 15), opset=7),
    recurrent("GRU", 3, None, normal(2, 3, 5), directions=2, direction="bidirectional", linear_before_reset=1),
    recurrent("GRU", 3, linear_before_reset=1, clip=0.3),
    recurrent("RNN", 1, activations=["Relu"]),
    *[case(op, normal(2, 5), opset=18) for op in UNARY.split()],
    *[case(op, positive(2, 5)) for op in ("Log", "Sqrt", "Reciprocal")],
    *[case(op, positive(2, 5) / 2 - 0.1) for op in ("Acos", "Asin", "Atan", "Atanh", "Asinh", "Cosh", "Sinh")],
    case("Acosh", positive(2, 5) + 1),
    *[
        case("CumSum", normal(2, 5), ints(axis).reshape(()), constants=(1,), exclusive=axis, reverse=axis)
        for axis in (0, 1)
    ],
    case("CumSum", integers(2, 5), ints(-1).reshape(()), constants=(1,), exclusive=1),
    case("TopK", np.float32([[1, 3, 2, 3], [4, 4, 0, 1]]), ints(3), constants=(1,), outputs=2),
    case("TopK", normal(2, 5, 3), ints(2), constants=(1,), outputs=2, axis=1, largest=0),
    case("TopK", np.float32([[1, 3, 2, 3], [-0.0, -1, 0.0, -2]]), ints(1), constants=(1,), outputs=2),
    case("TopK", normal(2, 5, 3), ints(1), constants=(1,), outputs=2, axis=1),
    case("TopK", normal(2, 5, 3), ints(1), constants=(1,), outputs=2, axis=1, largest=0),
    *[case("TopK", normal(2, 5, 3), outputs=2, axis=1, k=k, opset=9) for k in (1, 2)],
    case("GatherND", normal(3, 4, 5), integers(2, 2, low=-3, high=3)),
    case("GatherND", normal(3, 4, 5), integers(3, 2, 1, high=4), batch_dims=1, symbolic=False),
    case("ScatterND", normal(3, 4, 5), ints(0, 2)[:, None], normal(2, 4, 5)),
    case("ScatterND", normal(3, 4, 5), integers(6, 2, high=3), normal(6, 5), opset=18, reduction="add"),
    case("ScatterElements", normal(3, 4), np.int64([[0, 2, 1, 2], [1, 0, 2, -3]]), normal(2, 4), symbolic=False),
    case(
        "ScatterElements",
        normal(3, 4),
        np.int64([[0, 0], [1, 3], [2, 2]]),
        normal(3, 2),
        opset=18,
        axis=1,
        reduction="max",
    ),
    case("OneHot", ints(0, -1, 3, 7), ints(4), np.float32([0.5, 2]), constants=(1,)),
    case("OneHot", integers(2, 3), ints(9), ints(0, 1), constants=(1,), axis=1),
    case("EyeLike", normal(3, 4), k=1),
    case("EyeLike", normal(3, 4), dtype=onnx.TensorProto.INT64, k=-1),
    *[
        case("Einsum", *[normal(*shape) for shape in shapes], equation=equation)
        for equation, shapes in {
            "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
            "bqhd,bkhd->bhqk": [(2, 4, 3, 5), (2, 6, 3, 5)],
            "ij,jk->ik": [(2, 3), (3, 4)],
            "ij,jk": [(2, 3), (3, 4)],
            "i,j->ji": [(2,), (3,)],
            "...ij,...jk->...ik": [(2, 1, 3, 4), (2, 1, 4, 5)],
            "bij->bji": [(2, 3, 4)],
            "bij->b": [(2, 3, 4)],
            "ij,ij,j->i": [(2, 3), (2, 3), (3,)],
            "abc,cd,def->fa": [(2, 3, 4), (4, 5), (5, 6, 7)],
        }.items()
    ],
    case("Gelu", normal(2, 5), opset=20),
    case("Gelu", normal(2, 5), opset=20, approximate="tanh"),
    case("Not", truths(2, 5)),
    case("IsNaN", np.float32([[1, np.nan]])),
    case("IsInf", np.float32([[1, np.inf, -np.inf]]), detect_negative=0),
    *[case(op, normal(2, 3, 4), normal(3, 1)) for op in ("Add", "Sub", "Mul", "Div")],
    *[case(op, normal(2, 3), normal(2, 3)) for op in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")],
    *[case(op, truths(2, 3), truths(2, 3)) for op in ("And", "Or", "Xor")],
    *[case(op, normal(2, 3), normal(2, 3), normal(3)) for op in ("Max", "Min", "Sum", "Mean")],
    case("Equal", integers(2, 3), integers(2, 3)),
    case("Div", integers(2, 3) - 5, integers(2, 3)),
    case("Mod", integers(2, 3) - 5, integers(2, 3)),
    case("Mod", normal(2, 3), positive(2, 3), fmod=1),
    case("Pow", positive(2, 3), positive(2, 3)),
    case("Pow", positive(2, 3), ints(3)),
    case("Where", truths(2, 3), normal(2, 3), normal(1, 3)),
    case("Cast", normal(2, 3) * 9, to=onnx.TensorProto.INT32),
    case("Cast", integers(2, 3), to=onnx.TensorProto.FLOAT),
    case("PRelu", normal(2, 3, 4), normal(3, 1)),
    case("Clip", normal(2, 3), np.float32(-0.5), np.float32(0.5), constants=(1, 2)),
    case("Clip", normal(2, 3), None, np.float32(0.5), constants=(2,)),
    case("Clip", normal(2, 3), np.float32(-0.5), np.float32(0.5)),
    case("Clip", normal(2, 3), opset=6, min=-0.5),
    case("Dropout", normal(2, 3), opset=13),
    case("Dropout", normal(2, 3), opset=7, ratio=0.3),
    case("MatMul", normal(2, 3, 4), normal(4, 5)),
    case("MatMul", normal(2, 3, 4), normal(2, 4, 5)),
    case("MatMul", normal(2, 3, 4), normal(4)),
    case("Gemm", normal(2, 3), normal(3, 4), normal(4)),
    case("Gemm", normal(3, 2), normal(4, 3), normal(2, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
    case("Conv", normal(2, 4, 9, 8), normal(6, 4, 3, 3), normal(6), pads=[1, 1, 1, 1]),
    case("Conv", normal(2, 4, 9, 8), normal(6, 2, 3, 3), group=2, strides=[2, 1], dilations=[1, 2]),
    case("Conv", normal(2, 4, 9, 8), normal(6, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", normal(2, 4, 9, 8), normal(6, 4, 2, 2), auto_pad="SAME_LOWER"),
    case("Conv", normal(2, 4, 9), normal(6, 4, 3), normal(6)),
    case("ConvTranspose", normal(2, 4, 5, 6), normal(4, 3, 3, 3), normal(3), strides=[2, 2], pads=[1, 1, 1, 1]),
    case("ConvTranspose", normal(2, 4, 5, 6), normal(4, 3, 3, 3), strides=[2, 2], output_padding=[1, 1]),
    case("ConvTranspose", normal(2, 4, 5, 6), normal(4, 3, 3, 3), strides=[2, 2], output_shape=[10, 12]),
    case("ConvTranspose", normal(2, 4, 5, 6), normal(4, 3, 3, 3), strides=[2, 2], output_shape=[12, 14]),
    case("ConvTranspose", normal(2, 4, 5, 6), normal(4, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
    case("MaxPool", normal(2, 3, 9, 8), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]),
    case("MaxPool", normal(2, 3, 9, 8), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("MaxPool", normal(2, 3, 9, 8), kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
    case("AveragePool", normal(2, 3, 9, 8), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("AveragePool", normal(2, 3, 9, 8), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    case("GlobalAveragePool", normal(2, 3, 4, 5)),
    case("GlobalMaxPool", normal(2, 3, 4, 5)),
    case("BatchNormalization", normal(2, 3, 4), normal(3), normal(3), normal(3), positive(3), epsilon=0.01),
    case("LayerNormalization", normal(2, 3, 4), normal(4), normal(4)),
    case("LayerNormalization", normal(2, 3, 4), normal(3, 4), axis=1, epsilon=0.01),
    case("LayerNormalization", normal(2, 3, 4), normal(4), outputs=3),
    case("LpNormalization", normal(2, 3, 4), axis=1),
    case("LpNormalization", normal(2, 3, 4), p=1),
    case("Hardmax", normal(2, 3, 4), axis=1),
    case("Shrink", normal(2, 5)),
    case("InstanceNormalization", normal(2, 3, 4, 5), normal(3), normal(3)),
    case("GroupNormalization", normal(2, 4, 3), normal(4), normal(4), opset=21, num_groups=2),
    case("LRN", normal(2, 7, 3, 3), size=5, alpha=0.3),
    case("Softmax", normal(2, 3, 4)),
    case("Softmax", normal(2, 3, 4), axis=1),
    case("Softmax", normal(2, 3, 4), opset=11, axis=1),
    case("LogSoftmax", normal(2, 3, 4)),
    case("LogSoftmax", normal(2, 3, 4), opset=9),
    *[
        case(f"Reduce{kind}", positive(2, 3, 4), axes=[1], keepdims=0)
        for kind in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"]
    ],
    case("ReduceMean", normal(2, 3, 4)),
    case("ReduceMean", normal(2, 3, 4), ints(-1, 0), opset=18, constants=(1,)),
    case("ReduceSum", normal(2, 3, 4), ints(1), constants=(1,), keepdims=0),
    case("ReduceSum", normal(2, 3, 4), noop_with_empty_axes=1),
    case("ArgMax", normal(2, 3, 4), axis=1),
    case("ArgMin", normal(2, 3, 4), axis=-1, keepdims=0),
    case("Reshape", normal(2, 3, 4), ints(0, -1), constants=(1,)),
    case("Reshape", normal(2, 3, 4), ints(-1, 2, 6), constants=(1,)),
    case("Flatten", normal(2, 3, 4)),
    case("Flatten", normal(2, 3, 4), axis=-1),
    case("Flatten", normal(2, 3, 4), axis=0),
    case("Squeeze", normal(2, 1, 4, 1), ints(1), constants=(1,)),
    case("Squeeze", normal(2, 1, 4, 1)),
    case("Squeeze", normal(2, 1, 4, 1), opset=11, axes=[-1]),
    case("Unsqueeze", normal(2, 3), ints(0, 3), constants=(1,)),
    case("Unsqueeze", normal(2, 3), opset=11, axes=[1]),
    case("Transpose", normal(2, 3, 4)),
    case("Transpose", normal(2, 3, 4), perm=[1, 0, 2]),
    case("Expand", normal(2, 1, 4), ints(3, 1), constants=(1,)),
    case("Expand", normal(3, 1), ints(2, 1, 4), constants=(1,)),
    case("Tile", normal(2, 3), ints(1, 2), constants=(1,)),
    case("DepthToSpace", normal(2, 8, 3, 3), blocksize=2),
    blocks((4, 6), (2, 3), 4, strides=[2, 3]),
    blocks((7, 8), (3, 3), 16, strides=[2, 2], pads=[1, 1, 1, 1]),
    blocks((5, 5), (2, 3), 12),
    blocks((9, 8), (2, 2), 20, strides=[2, 2], pads=[1, 0, 0, 1]),
    blocks((8, 9), (3, 2), 8, strides=[3, 2], dilations=[2, 3], pads=[0, 1, 2, 0]),
    blocks((9,), (2,), 2, strides=[4]),
    blocks((4, 5, 6), (2, 2, 3), 36, strides=[1, 1, 2], pads=[0, 0, 0, 0, 0, 1]),
    case("DepthToSpace", normal(2, 8, 3, 3), blocksize=2, mode="CRD"),
    case("SpaceToDepth", normal(2, 3, 4, 6), blocksize=2),
    *[
        case(
            "Resize",
            normal(2, 3, 5, 6),
            None,
            np.float32([1, 1, 2, 1.5]),
            constants=(2,),
            mode=mode,
            coordinate_transformation_mode=coordinates,
        )
        for mode in ("nearest", "linear", "cubic")
        for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    ],
    *[
        case(
            "Resize",
            normal(2, 3, 6),
            None,
            None,
            ints(2, 3, size),
            constants=(3,),
            nearest_mode=rounding,
            symbolic=False,
        )
        for size in (4, 9)
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    ],
    case("Resize", normal(2, 2, 5, 6), None, None, ints(7, 3), opset=18, constants=(3,), mode="linear", axes=[2, 3]),
    case(
        "Resize",
        normal(2, 2, 7, 6),
        None,
        np.float32([0.6, 0.7]),
        opset=19,
        constants=(2,),
        mode="linear",
        axes=[2, 3],
        coordinate_transformation_mode="half_pixel_symmetric",
    ),
    case(
        "Resize",
        normal(2, 2, 4, 4),
        None,
        np.float32([1, 1, 0.8, 1.4]),
        constants=(2,),
        mode="cubic",
        exclude_outside=1,
        cubic_coeff_a=-0.5,
    ),
    case("Resize", normal(1, 2, 3, 4), np.float32([1, 1, 2, 2]), opset=10, constants=(1,)),
    case("Upsample", normal(1, 2, 3, 4), np.float32([1, 1, 2, 3]), opset=9, constants=(1,), mode="linear"),
    case("Upsample", normal(1, 2, 3, 4), opset=7, scales=[1.0, 1.0, 2.0, 3.0]),
    case("Concat", normal(2, 3), normal(2, 1), axis=1),
    case("Concat", normal(2, 3), normal(4, 3), axis=0),
    case("Split", normal(2, 6), outputs=3, axis=1),
    case("Split", normal(2, 6), ints(2, 4), constants=(1,), outputs=2, axis=1),
    case("Split", normal(2, 7), opset=18, outputs=3, axis=1, num_outputs=3),
    case("Split", normal(2, 6), opset=11, outputs=2, axis=-1, split=[1, 5]),
    case("Slice", normal(4, 6), ints(1, 0), ints(3, 5), constants=(1, 2)),
    case("Slice", normal(4, 6), ints(-3), ints(2**31 - 1), ints(1), constants=(1, 2, 3)),
    case("Slice", normal(4, 6), ints(-1), ints(-(2**63)), ints(1), ints(-2), constants=(1, 2, 3, 4)),
    case("Slice", normal(4, 6), ints(0), ints(-1), ints(0), constants=(1, 2, 3)),
    case("Slice", normal(4, 6), opset=9, axes=[1], starts=[2], ends=[9999]),
    case("Pad", normal(2, 3), ints(0, 1, 0, 2), constants=(1,)),
    case("Pad", normal(2, 3), ints(0, 1, 0, 2), np.float32(7), constants=(1, 2)),
    case("Pad", normal(2, 5), ints(0, 1, 0, -2), constants=(1,)),
    case("Pad", normal(2, 3), ints(0, 1, 0, 2), constants=(1,), mode="reflect"),
    case("Pad", normal(2, 3), ints(0, 1, 0, 2), constants=(1,), mode="edge"),
    case("Pad", normal(2, 3), opset=10, pads=[0, 1, 0, 2], value=1.5),
    case("Gather", normal(4, 3), ints(1, -1)),
    case("Gather", normal(4, 3), ints(2, 0).reshape(1, 2), axis=1),
    case("Gather", normal(4, 3), np.array(1), constants=(1,)),
    case("GatherElements", normal(4, 3), ints(1, 0, 2, 1, 1, 1).reshape(2, 3), symbolic=False),
    case("GatherElements", normal(2, 3), ints(1, 0, 2, 1).reshape(2, 2), axis=1),
    case("Trilu", normal(3, 4, 5)),
    case("Trilu", normal(3, 4, 5), np.array(1), constants=(1,), upper=0),
    case("ConstantOfShape", ints(2, 3), constants=(0,), value=numpy_helper.from_array(np.array([7], np.int32))),
    case("Shape", normal(2, 3, 4)),
    case("Shape", normal(2, 3, 4), start=-2),
    case("Size", normal(2, 3, 4)),
    case("Range", np.array(1), np.array(9), np.array(3), constants=(0, 1, 2)),
    case("Range", np.float32(1), np.float32(2), np.float32(0.3), constants=(0, 1, 2)),
    case("NonZero", truths(3, 4)),
    *[
        case(
            "GridSample",
            normal(2, 3, 5, 6),
            normal(2, 4, 7, 2),
            opset=20,
            mode=mode,
            padding_mode=padding,
            align_corners=aligned,
        )
        for mode in ("nearest", "linear", "cubic")
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ],
    case("GridSample", normal(2, 1, 1, 6), normal(2, 4, 1, 2), padding_mode="reflection", align_corners=1),
    case("GridSample", normal(2, 3, 4, 5, 6), normal(2, 2, 3, 4, 3), opset=20),
    *[
        case("NonMaxSuppression", positive(2, 30, 4), positive(2, 3, 30), *numbers, center_point_box=centred)
        for numbers in [(ints(5), np.float32([0.4]), np.float32([1.1])), (np.array(9), np.float32(0.1)), (ints(3),)]
        for centred in (0, 1)
    ],
    case("NonMaxSuppression", positive(1, 30, 4), positive(1, 3, 30)),
    *[
        case("MaxRoiPool", normal(2, 3, 9, 8), regions, pooled_shape=size, spatial_scale=scale)
        for regions in [
            np.float32([[0, 1, 2, 6, 7], [1, 0, 0, 3, 3], [1, 5, 6, 2, 1], [0, 7, 8, 20, 30], [1, -9, -8, -7, -3]]),
            np.float32([[1, 0.5, 1.5, 2.5, 6.49]]),
            np.zeros((0, 5), np.float32),
        ]
        for size in ((2, 3), (1, 1), (12, 9))
        for scale in (1.0, 0.5)
    ],
    *[
        case("RoiAlign", normal(2, 3, 9, 8), *regions, opset=opset, mode=mode, sampling_ratio=ratio, **kind)
        for regions in [(np.sort(positive(4, 2, 2) * 6, 1).reshape(4, 4).astype(np.float32), ints(0, 1, 1, 0))]
        for mode in ("avg", "max")
        for ratio in (0, 2)
        for opset, kind in (
            (10, {"spatial_scale": 0.5}),
            (16, {"output_height": 3, "output_width": 2}),
            (16, {"coordinate_transformation_mode": "output_half_pixel"}),
        )
    ],
    *[case("LpPool", normal(2, 3, 9, 8), opset=18, kernel_shape=[3, 2], strides=[2, 1], p=p) for p in (1, 2, 3)],
    case("LpPool", normal(2, 3, 9, 8), opset=18, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("LpPool", normal(2, 3, 9, 8), opset=22, kernel_shape=[2, 3], strides=[2, 3], pads=[1, 0, 0, 1], ceil_mode=1),
    case("LpPool", normal(2, 3, 9, 8), opset=22, kernel_shape=[3, 3], strides=[2, 2], dilations=[2, 1], ceil_mode=1),
    *[
        case("LpPool", normal(2, 3, 9, 8), opset=opset, kernel_shape=[3, 2], auto_pad="SAME_UPPER")
        for opset in (7, 11, 17)
    ],
    *[case("GlobalLpPool", normal(2, 3, 4, 5), p=p) for p in (1, 2, 3)],
    *[
        case("BitShift", integers(2, 5).astype(dtype), integers(2, 5, high=7).astype(dtype), direction=direction)
        for dtype in (np.uint8, np.uint32)
        for direction in ("LEFT", "RIGHT")
    ],
    *[case("Compress", normal(4, 3, 2), np.array([True, False, True]), axis=axis) for axis in (0, 1, -2)],
    case("Compress", normal(4, 3), np.array([False, True, True, False, True])),
    case("ReverseSequence", normal(4, 3, 2), ints(1, 4, 3)),
    case("ReverseSequence", normal(3, 5), ints(1, 5, 3), batch_axis=0, time_axis=1),
    *[
        case("DFT", normal(2, 9, 3, parts) / 9, *([] if length is None else [np.array(length)]), constants=(1,), **kind)
        for parts in (1, 2)
        for length in (None, 6, 12)
        for kind in ({}, {"inverse": 1, "axis": 2}, {"onesided": 1})
        if not (parts == 2 and "onesided" in kind)
    ],
    case("DFT", normal(2, 1024, 2) / 16),
    case("DFT", normal(2, 3, 8, 1), opset=20),
    case("DFT", normal(2, 3, 8, 1), np.array(5), np.array(1), opset=20, constants=(1, 2), inverse=1),
    case("STFT", normal(2, 40, 1) / 9, np.array(5), positive(12), np.array(12), constants=(1, 2, 3)),
    case("STFT", normal(2, 40, 2) / 9, np.array(7), None, np.array(9), constants=(1, 3), onesided=0),
    case("STFT", normal(2, 40, 1) / 9, np.array(7), positive(8), constants=(1,)),
    case(
        "MelWeightMatrix", *map(np.array, (8, 64, 16000)), np.float32(50), np.float32(7000), constants=(0, 1, 2, 3, 4)
    ),
    case("QuantizeLinear", normal(2, 3, 4) * 9, np.float32(0.1), np.uint8(128), opset=13),
    case("QuantizeLinear", normal(2, 3, 4) * 9, np.float32([0.1, 0.2, 0.5]), np.int8([0, -3, 7]), opset=13),
    case("QuantizeLinear", normal(2, 3, 4) * 9, np.float32(0.25)),
    case("QuantizeLinear", normal(2, 7) * 9, positive(2, 3), integers(2, 3).astype(np.int8), opset=21, block_size=3),
    case("DequantizeLinear", integers(2, 3).astype(np.uint8), np.float32(0.1), np.uint8(128), opset=13),
    case("DequantizeLinear", integers(2, 3).astype(np.int8), positive(2), np.int8([0, 5]), opset=13, axis=0),
    case("DequantizeLinear", integers(2, 3).astype(np.int32) << 24, np.float32(0.1), opset=13),
    case("DequantizeLinear", integers(2, 6, 3).astype(np.int8), positive(2, 2, 3), opset=21, block_size=3),
    case("DynamicQuantizeLinear", normal(2, 5), outputs=3),
    case("MatMulInteger", bytes_(2, 700), bytes_(700, 3, signed=True), np.uint8(130), np.int8(0), constants=(1, 2, 3)),
    case("MatMulInteger", bytes_(2, 5), bytes_(5, 3), np.uint8(130), bytes_(3)),
    case("MatMulInteger", bytes_(2, 4, 5), bytes_(5, 3)),
    case("ConvInteger", bytes_(2, 3, 7, 6), bytes_(4, 3, 3, 3), np.uint8(7), np.uint8(200), pads=[1, 1, 1, 1]),
    case("ConvInteger", bytes_(2, 40, 7, 6), bytes_(4, 20, 3, 3), group=2, strides=[2, 1]),
    case(
        "QLinearMatMul",
        *(bytes_(2, 5), np.float32(0.1), np.uint8(130)),
        *(bytes_(5, 3), np.float32([0.1, 0.2, 0.3]), np.uint8([120, 130, 140])),
        *(np.float32(2.1), np.uint8(128)),
    ),
    case(
        "QLinearConv",
        *(bytes_(2, 3, 7, 6), np.float32(0.1), np.uint8(130)),
        *(bytes_(4, 3, 3, 3, signed=True), positive(4) / 9, np.zeros(4, np.int8)),
        *(np.float32(9.1), np.uint8(128)),
        integers(4).astype(np.int32),
        constants=(3, 4, 5, 8),
        pads=[1, 1, 1, 1],
    ),
]


@pytest.mark.parametrize("first_dim", [None, "n"], ids=["static", "symbolic"])
@pytest.mark.parametrize("case", CASES)
def test_operator_agrees_with_onnxruntime(case: Case, first_dim: str | None) -> None:
    feeds = case.feeds()
    if first_dim and (not case.symbolic or "in0" not in feeds):
        pytest.skip("nothing to make symbolic")
    expected = exact_session(case.model(None).SerializeToString()).run(None, feeds)
    module = from_onnx(case.model(first_dim))
    actual = evaluate(module, "main", *feeds.values())
    actual = actual if isinstance(actual, tuple) else (actual,)
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_any_p_of_whole_images(p: int) -> None:
    x = normal(2, 3, 4, 5)
    pooled = evaluate(from_onnx(Case("GlobalLpPool", [x], 17, {"p": p}, ()).model(None)), "main", x)
    expected = (np.abs(x).astype(np.float64) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5)


def test_before_opset_7_operands_broadcast_from_an_axis_on() -> None:
    a, b = normal(2, 3, 4), normal(3)
    add = Case("Add", [a, b], 6, {"broadcast": 1, "axis": 1}, ())
    np.testing.assert_array_equal(evaluate(from_onnx(add.model(None)), "main", a, b), a + b[:, np.newaxis])


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"])
def test_bits_shifted_by_any_distance(dtype: str, direction: str) -> None:
    """By none, by all, by more, and by less than none, which is as if it were all. Signed numbers keep their sign."""
    bounds = np.iinfo(dtype)
    x = np.array([bounds.min, bounds.max, 0, 1, 5, bounds.max // 3, bounds.min // 3], dtype)[:, np.newaxis]
    distances = [0, 1, bounds.bits - 2, bounds.bits - 1, bounds.bits, bounds.bits + 1, *[-1, -7] * (bounds.min < 0)]
    y = np.array(distances, dtype)
    shifted = evaluate(from_onnx(Case("BitShift", [x, y], 17, {"direction": direction}, ()).model(None)), "main", x, y)
    shift = np.left_shift if direction == "LEFT" else np.right_shift
    expected = shift(x, np.where((y < 0) | (y > bounds.bits), bounds.bits, y).astype(dtype))
    np.testing.assert_array_equal(shifted, expected)
