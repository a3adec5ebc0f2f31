"""Quantised models, compiled: products of integers are exact, whatever their zero points are."""

import warnings

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.formats.host_work import noted
from treadle.tools.dev.fuzz.random_onnx.judges import exact_session

RANDOM = np.random.default_rng(7)


def whole_range(dtype, *shape):
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


def model_of(nodes, inputs, constants, outputs, opset=17):
    """A model of inputs (element type and shape by name), constants (arrays by name), and outputs (element type by name)."""
    elements = {
        name: (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape) for name, (dtype, shape) in inputs.items()
    }
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info(name, *type_) for name, type_ in elements.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def compiled(model: onnx.ModelProto):
    return treadle.VirtualMachine(treadle.compile(model, progress=False))["main"]


@pytest.mark.parametrize("a_type", [np.uint8, np.int8])
@pytest.mark.parametrize("b_type", [np.uint8, np.int8])
@pytest.mark.parametrize("depth", [36, 37])
def test_products_of_integers_with_any_zero_points(a_type, b_type, depth):
    b = whole_range(b_type, depth, 50)
    for a_zero in (0, 3):
        for b_zero in (0, 7, 128 if b_type is np.uint8 else -1, np.arange(50)):
            zeros = {"a_zero": np.asarray(a_zero, a_type), "b_zero": np.asarray(b_zero, b_type)}
            node = helper.make_node("MatMulInteger", ["a", "b", *zeros], ["y"])
            run = compiled(model_of([node], {"a": (a_type, ["n", depth])}, {"b": b, **zeros}, {"y": TensorProto.INT32}))
            for rows in (1, 9):
                a = whole_range(a_type, rows, depth)
                wanted = (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)
                np.testing.assert_array_equal(run(a).numpy(), wanted)


@pytest.mark.parametrize("a_shape", [(5, 300), (2, 3, 5, 300), (300,)])
def test_products_of_computed_integers(a_shape):
    node = helper.make_node("MatMulInteger", ["a", "b", "a_zero", "b_zero"], ["y"])
    zeros = {"a_zero": np.uint8(130), "b_zero": np.int8(-3)}
    inputs = {"a": (np.uint8, a_shape), "b": (np.int8, (300, 4))}
    run = compiled(model_of([node], inputs, zeros, {"y": TensorProto.INT32}))
    a, b = whole_range(np.uint8, *a_shape), whole_range(np.int8, 300, 4)
    np.testing.assert_array_equal(run(a, b).numpy(), (a.astype(np.int64) - 130) @ (b.astype(np.int64) + 3))


# ---- quantised tensors between float operators ----


class Network:
    """Nodes of a model in which tensors are quantised and dequantised again, as tools write it."""

    def __init__(self) -> None:
        self.nodes, self.constants = [], {}

    def constant(self, array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def __call__(self, operator: str, *inputs: str, **attributes) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [f"v{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def dequantized(self, x: str, scale, zero, **attributes) -> str:
        return self("DequantizeLinear", x, self.constant(np.float32(scale)), self.constant(zero), **attributes)

    def through_integers(self, x: str, scale, zero) -> str:
        numbers = [self.constant(np.float32(scale)), self.constant(zero)]
        return self("DequantizeLinear", self("QuantizeLinear", x, *numbers), *numbers)

    def weights(self, shape, axis, dtype=np.int8) -> str:
        """Constants with a scale for each place along an axis."""
        self.scales = RANDOM.uniform(0.005, 0.02, shape[axis]).astype(np.float32)
        zeros = np.zeros(shape[axis], dtype)
        return self.dequantized(self.constant(whole_range(dtype, *shape)), self.scales, zeros, axis=axis)

    def bias(self, scale) -> str:
        """Integers that count in units of the scale of a product of activations of that scale with the last weights."""
        integers = whole_range(np.int16, len(self.scales)).astype(np.int32)
        return self.dequantized(self.constant(integers), scale * self.scales, np.zeros(len(integers), np.int32), axis=0)

    def model(self, shape, result: str) -> onnx.ModelProto:
        self.nodes[-1].output[0] = "y"
        return model_of(self.nodes, {"x": (np.float32, shape)}, self.constants, {"y": TensorProto.FLOAT})


def check_network(network: Network, shape, result: str, quantum: float, *, symbolic: str = "") -> treadle.Executable:
    """What is compiled differs from the floats, and from onnxruntime, by a quantum at most, and seldom. onnxruntime multiplies
    sums with a product of scales that is rounded itself: a hidden number that it rounds the other way shows all along its row."""
    model = network.model([symbolic or shape[0], *shape[1:]], result)
    executable = treadle.compile(model, progress=False)
    x = RANDOM.standard_normal(shape).astype(np.float32)
    got = treadle.VirtualMachine(executable)["main"](x).numpy()
    floats = evaluate(from_onnx(model), "main", x)
    session = exact_session(model.SerializeToString())
    for wanted, share in ((floats, 0.01), (session.run(None, {"x": x})[0], 0.05)):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1.01 * quantum)
        assert np.mean(np.abs(got - wanted) > 0.5 * quantum) < share
    return executable


def primitives(executable: treadle.Executable) -> list[str]:
    return executable.primitive_ops


@pytest.mark.parametrize("activations", [np.uint8(117), np.int8(3), np.uint8(0)])
@pytest.mark.parametrize("symbolic", ["", "n"])
def test_dense_layers_are_computed_in_integers(activations, symbolic):
    net = Network()
    h = net.through_integers("x", 0.03, activations)
    h = net("MatMul", h, net.weights((40, 50), 1))
    h = net("Add", h, net.constant(RANDOM.standard_normal(50).astype(np.float32)))
    h = net.through_integers(h, 0.11, activations)
    weights = net.weights((30, 50), 0)
    h = net("Gemm", h, weights, net.bias(0.11), transB=1)
    h = net.through_integers(h, 0.5, activations)
    executable = check_network(net, (9, 40), h, 0.5, symbolic=symbolic)
    assert sum("matmul_integer_packed" in name for name in primitives(executable)) == 2


def test_residuals_and_moves_stay_in_integers():
    net = Network()
    x = net.through_integers("x", 0.0317, np.uint8(117))
    h = net("Reshape", x, net.constant(np.int64([12, 40])))
    h = net.through_integers(h, 0.0317, np.uint8(117))
    h = net.through_integers(net("MatMul", h, net.weights((40, 40), 1)), 0.2134, np.uint8(130))
    h = net("Reshape", h, net.constant(np.int64([3, 4, 40])))
    h = net.through_integers(net("Add", h, x), 0.2371, np.uint8(128))
    h = net("Transpose", h, perm=[0, 2, 1])
    h = net.through_integers(net("Mul", h, net.constant(np.float32(0.5))), 0.11, np.uint8(128))
    check_network(net, (3, 4, 40), h, 0.11)


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(117), np.int8(-5)])
def test_convolutions_are_computed_in_integers(zero):
    net = Network()
    h = net.through_integers("x", 0.0317, zero)
    h = net("Conv", h, net.weights((20, 3, 3, 3), 0), net.bias(0.0317), pads=[1, 1, 1, 1], strides=[2, 2])
    h = first = net.through_integers(net("Relu", h), 0.0317, zero)
    h = net("Conv", h, net.weights((20, 1, 3, 3), 0), net.bias(0.0317), pads=[1, 1, 1, 1], group=20)
    h = net.through_integers(h, 0.0317, zero)
    h = net.through_integers(net("Conv", h, net.weights((20, 20, 1, 1), 0)), 0.31, zero)
    h = net.through_integers(net("Add", h, first), 0.33, zero)
    h = net.through_integers(net("MaxPool", h, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 0.33, zero)
    executable = check_network(net, (2, 3, 13, 18), h, 0.33)
    names = primitives(executable)
    assert sum("conv_integer_blocked" in name for name in names) == 2
    assert sum("conv_depthwise" in name for name in names) == 1
    assert sum("dequantize" in name for name in names) == 1  # of the result


@pytest.mark.parametrize(("members", "window"), [(2, 3), (8, 3), (4, 1)])
def test_small_groups_are_computed_as_depthwise_ones(members, window):
    net, pad = Network(), window // 2
    h = net.through_integers("x", 0.0317, np.uint8(117))
    h = net("Conv", h, net.weights((24, members, window, window), 0), pads=[pad] * 4, group=24 // members)
    executable = check_network(net, (2, 24, 9, 8), net.through_integers(h, 0.31, np.uint8(117)), 0.31)
    assert any("conv_depthwise" in name for name in primitives(executable))


@pytest.mark.parametrize("width", [3, 16])
def test_grouped_convolutions(width):
    net = Network()
    h = net.through_integers("x", 0.0317, np.uint8(117))
    h = net("Conv", h, net.weights((4 * width, width, 3, 3), 0), net.bias(0.0317), pads=[1, 1, 1, 1], group=2)
    executable = check_network(net, (2, 2 * width, 9, 8), net.through_integers(h, 0.31, np.uint8(117)), 0.31)
    assert any("conv_integer" in name for name in primitives(executable)) == (width == 16)


@pytest.mark.parametrize("groups", [1, 2, 12])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("constants", ["w", "w x_zero", "x_zero"])
def test_convolutions_of_integers(groups, dtype, constants):
    arrays = {"x": whole_range(dtype, 2, 12, 9, 8), "w": whole_range(np.int8, 12, 12 // groups, 3, 3)}
    arrays |= {"x_zero": np.asarray(113, dtype), "w_zero": np.asarray(0, np.int8)}
    node = helper.make_node("ConvInteger", [*arrays], ["y"], group=groups, pads=[1, 1, 0, 1])
    known = {name: arrays[name] for name in (*constants.split(), "w_zero")}
    inputs = {name: (array.dtype, array.shape) for name, array in arrays.items() if name not in known}
    model = model_of([node], inputs | {"x": (dtype, ["n", 12, 9, 8])}, known, {"y": TensorProto.INT32})
    arguments = [arrays[name] for name in inputs]
    executable = treadle.compile(model, progress=False)
    assert noted(executable.program) == []
    got = treadle.VirtualMachine(executable)["main"](*arguments).numpy()
    np.testing.assert_array_equal(got, evaluate(from_onnx(model), "main", *arguments))


@pytest.mark.parametrize("sizes", [["n", 16, "h", "w"], ["n", 16, 24, 40]])
@pytest.mark.parametrize("x_zero", ["known", "given"])
@pytest.mark.parametrize("form", ["centred", "all bytes", "given", "by channel"])
def test_sums_of_convolutions_are_exact_whatever_the_image(sizes, x_zero, form):
    """Where Winograd's algorithm would be quicker too: it rounds."""
    groups = 16 if form == "by channel" else 1
    kind = np.uint8 if form == "all bytes" else np.int8
    arrays = {"x": whole_range(np.uint8, 2, 16, 24, 40), "w": whole_range(kind, 16, 16 // groups, 3, 3)}
    arrays |= {"x_zero": np.uint8(113), "w_zero": kind(0)}
    node = helper.make_node("ConvInteger", [*arrays], ["y"], group=groups, pads=[1, 1, 1, 1])
    given = ["x", *(["x_zero"] if x_zero == "given" else []), *(["w"] if form == "given" else [])]
    inputs = {name: (arrays[name].dtype, sizes if name == "x" else arrays[name].shape) for name in given}
    known = {name: array for name, array in arrays.items() if name not in given}
    executable = treadle.compile(model_of([node], inputs, known, {"y": TensorProto.INT32}), progress=False)
    got = treadle.VirtualMachine(executable)["main"](*(arrays[name] for name in given)).numpy()
    image = np.pad(arrays["x"].astype(np.float64) - 113, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    weights = arrays["w"].astype(np.float64)
    formula = "nohwij,oij->nohw" if groups > 1 else "nchwij,ocij->nohw"
    wanted = np.einsum(formula, windows, weights[:, 0] if groups > 1 else weights, optimize=True)
    np.testing.assert_array_equal(got, wanted)
    if form == "centred":
        assert any("conv_integer_blocked" in name for name in primitives(executable))


@pytest.mark.parametrize(("axes", "groups"), [(1, 1), (2, 1), (3, 1), (2, 12), (2, 24)])
def test_convolutions_of_any_size_have_kernels(axes, groups):
    x = whole_range(np.uint8, 1, 24, *range(4, 4 + axes))
    weights = whole_range(np.int8, 24, 24 // groups, *[2] * axes)
    node = helper.make_node("ConvInteger", ["x", "w", "zero"], ["y"], pads=[1] * 2 * axes, group=groups)
    inputs, known = {"x": (np.uint8, [1, 24, *"dhw"[-axes:]])}, {"w": weights, "zero": np.uint8(113)}
    model = model_of([node], inputs, known, {"y": TensorProto.INT32})
    executable = treadle.compile(model, progress=False)
    assert noted(executable.program) == []
    got = treadle.VirtualMachine(executable)["main"](x).numpy()
    np.testing.assert_array_equal(got, evaluate(from_onnx(model), "main", x))


def test_numbers_beyond_the_range_and_what_is_none_have_their_nearest_integers():
    x = np.float32([np.inf, -np.inf, np.nan, 1e30, -1e30, 0.25, 0.75, -0.25])
    for zero in (np.uint8(3), np.int8(-5), np.uint16(0), np.int16(7)):
        limits = np.iinfo(zero.dtype)
        node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])
        constants = {"scale": np.float32(0.5), "zero": zero}
        output = {"y": helper.np_dtype_to_tensor_dtype(zero.dtype)}
        run = compiled(model_of([node], {"x": (np.float32, x.shape)}, constants, output, opset=21))
        extremes = [limits.max, limits.min, limits.min, limits.max, limits.min]
        small = [max(zero + step, limits.min) for step in (0, 2, 0)]
        np.testing.assert_array_equal(run(x).numpy(), [*extremes, *small])


# ---- operators of onnxruntime's own ----

U8, I8 = np.uint8, np.int8
X, Y = (np.float32(0.05), U8(120)), (np.float32(0.11), U8(90))
COLUMNS = np.float32([0.1, 0.2, 3, 0.01])
RUNTIME_OPERATORS = [
    ("QLinearAdd", [(2, 3, 4), *X, (3, 1), *Y, np.float32(0.13), U8(100)], {}),
    ("QLinearMul", [(2, 3, 4), *X, (2, 3, 4), *Y, np.float32(0.4), U8(128)], {}),
    ("QLinearSigmoid", [(2, 30), *X, np.float32(1 / 256), U8(0)], {}),
    ("QLinearLeakyRelu", [(2, 30), *X, *Y], {"alpha": 0.2}),
    ("QLinearSoftmax", [(2, 3, 40), *X, np.float32(1 / 256), U8(0)], {"axis": -1, "opset": 13}),
    ("QLinearGlobalAveragePool", [(2, 3, 5, 7), *X, np.float32(0.01), U8(120)], {"channels_last": 0}),
    ("QLinearAveragePool", [(2, 3, 9, 7), *X, np.float32(0.04), U8(120)], {"kernel_shape": [3, 2], "strides": [2, 1]}),
    ("QLinearGlobalAveragePool", [(2, 5, 7, 3), *X, np.float32(0.01), U8(120)], {"channels_last": 1}),
    ("QLinearAveragePool", [(2, 9, 7, 3), *X, *Y], {"kernel_shape": [3, 2], "strides": [2, 1], "channels_last": 1}),
    ("NhwcMaxPool", [(2, 9, 7, 3)], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    (
        "QLinearConv",
        [(2, 9, 7, 3), *X, (5, 3, 3, 2), *Y, np.float32(9), U8(9)],
        {"channels_last": 1, "pads": [1, 0, 1, 1]},
    ),
    ("QLinearConv", [(2, 3, 9), *X, (5, 3, 2), *Y, np.float32(3), U8(9), np.int32([1, -900, 3, 70, 5])], {}),
    ("QLinearWhere", [np.array([[True], [False]]), (2, 3), *X, (3,), *Y, np.float32(0.13), U8(100)], {}),
    ("QLinearConcat", [*Y, (2, 3), *X, (2, 5), *Y], {"axis": 1}),
    ("QGemm", [(5, 6), *X, (4, 6), *Y, np.int32([1, -900, 3, 70]), np.float32(1.1), U8(128)], {"transB": 1}),
    ("QGemm", [(5, 6), *X, (6, 4), *Y, np.int32([1, -900, 3, 70])], {}),
    ("MatMulIntegerToFloat", [(2, 5, 6), (6, 4), *(X[0], Y[0]), *(X[1], Y[1])], {}),
    ("MatMulIntegerToFloat", [(5, 6), (6, 4), X[0], COLUMNS, X[1], U8([1, 2, 250, 9]), COLUMNS], {}),
]


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"), RUNTIME_OPERATORS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_operators_of_onnxruntime(operator, inputs, attributes):
    arrays, constants, names = {}, {}, []
    for number, value in enumerate(inputs):
        names.append(f"in{number}")
        into = arrays if isinstance(value, tuple) else constants
        into[names[-1]] = whole_range(U8, *value) if isinstance(value, tuple) else value
    node = helper.make_node(operator, names, ["y"], domain="com.microsoft", **attributes)
    is_float = operator == "MatMulIntegerToFloat" or (operator == "QGemm" and len(inputs) == 7)
    element = TensorProto.FLOAT if is_float else TensorProto.UINT8
    model = model_of([node], {name: (U8, array.shape) for name, array in arrays.items()}, constants, {"y": element})
    session = exact_session(model.SerializeToString())
    (wanted,) = session.run(None, arrays)
    got = compiled(model)(*arrays.values()).numpy()
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=1e-6, atol=1 if got.dtype == U8 else 1e-4)


@pytest.mark.parametrize("scale", [np.inf, np.nan, 1e38])
def test_scales_that_are_no_finite_numbers_stay_floats(scale):
    """As the quantiser's of a mask of the least numbers."""
    net = Network()
    h = net.dequantized("x", scale, np.uint8(3))
    h = net("Mul", h, net.constant(np.float32(8)))
    h = net(
        "QuantizeLinear",
        net("Clip", h, net.constant(np.float32(-1)), net.constant(np.float32(1))),
        net.constant(np.float32(0.01)),
    )
    net.nodes[-1].output[0] = "y"
    model = model_of(net.nodes, {"x": (np.uint8, (5,))}, net.constants, {"y": TensorProto.UINT8})
    x = np.uint8([0, 3, 4, 255, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = compiled(model)
    with np.errstate(all="ignore"):
        wanted = evaluate(from_onnx(model), "main", x)
    is_number = x != 3 if scale == np.inf else np.full(5, scale == 1e38)
    np.testing.assert_array_equal(run(x).numpy()[is_number], wanted[is_number])
