"""`relay.qnn`: results are those of the real numbers that the integers stand for, rounded as TVM rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import InferenceError
from treadle.tvm import relay
from treadle.tvm.relay.testing.temp_op_attr import TempOpAttr

qnn = relay.qnn.op


def evaluate(result: relay.Expr, *args: np.ndarray) -> np.ndarray:
    module = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(result), result))
    module = relay.qnn.transform.CanonicalizeOps()(relay.transform.InferType()(module))
    return relay.create_executor("vm", mod=module).evaluate()(*args).numpy()


def scale(value: Any) -> relay.Expr:
    return relay.const(np.array(value, np.float32))


def zero(value: Any) -> relay.Expr:
    return relay.const(np.array(value, np.int32))


def test_quantize_and_dequantize_take_one_scale_or_one_for_each_place_of_an_axis() -> None:
    x = relay.var("x", shape=(2, 3))
    data = np.array([[-1, 0.2, 300], [2, -64, 0.75]], np.float32)
    whole = evaluate(qnn.quantize(x, scale([0.5, 0.25]), zero([1, 2]), axis=0), data)
    assert whole.dtype == np.int8
    assert whole.tolist() == [[-1, 1, 127], [10, -128, 5]]
    q = relay.var("q", shape=(2, 3), dtype="int8")
    assert evaluate(qnn.dequantize(q, scale([0.5, 0.25]), zero([1, 2]), axis=0), whole).tolist() == [
        [-1.0, 0.0, 63.0],
        [2.0, -32.5, 0.75],
    ]
    wide = evaluate(qnn.quantize(x, scale(0.5), zero(3), out_dtype="int32"), data)
    assert wide.tolist() == [[1, 3, 603], [7, -125, 5]]


@pytest.mark.parametrize(("rounding", "expected"), [("UPWARD", [-1, 0, 1, 2]), ("TONEAREST", [-2, -1, 1, 2])])
def test_requantize_rounds_halves_as_it_is_told(rounding: str, expected: list[int]) -> None:
    x = relay.var("x", shape=(4,), dtype="int32")
    data = np.array([-3, -1, 1, 3], np.int32)
    told = qnn.requantize(x, scale(0.5), zero(0), scale(1.0), zero(0), rounding=rounding)
    assert evaluate(told, data).tolist() == expected
    with qnn.requantize_config(rounding=rounding):
        assert evaluate(qnn.requantize(x, scale(0.5), zero(0), scale(1.0), zero(0)), data).tolist() == expected
    with pytest.raises(InferenceError, match="UPWARD or TONEAREST"):
        evaluate(qnn.requantize(x, scale(0.5), zero(0), scale(1.0), zero(0), rounding="DOWN"), data)


@pytest.mark.parametrize("zeros", [(0, 0), (3, 5)])
def test_products_are_exact(zeros: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 255, (2, 3, 4), np.uint8), rng.integers(0, 255, (2, 5, 4), np.uint8)
    x, y = (relay.var(name, shape=each.shape, dtype="uint8") for name, each in (("x", a), ("y", b)))
    made = qnn.batch_matmul(x, y, zero(zeros[0]), zero(zeros[1]), scale(1.0), scale(1.0))
    left, right = a.astype(np.int32) - zeros[0], b.astype(np.int32) - zeros[1]
    assert evaluate(made, a, b).tolist() == (left @ right.transpose(0, 2, 1)).tolist()
    x, y = (relay.var(name, shape=each.shape, dtype="uint8") for name, each in (("x", a[0]), ("y", b[0])))
    made = qnn.dense(x, y, zero(zeros[0]), zero(zeros[1]), scale(1.0), scale(1.0), units=5)
    assert evaluate(made, a[0], b[0]).tolist() == (left[0] @ right[0].T).tolist()


def test_a_convolution_pads_with_the_zero_point_and_takes_zero_points_of_channels() -> None:
    data, weight = np.full((1, 1, 2, 2), 7, np.uint8), np.array([1, 2], np.int8).reshape(2, 1, 1, 1)
    x, w = relay.var("x", shape=data.shape, dtype="uint8"), relay.const(weight)
    made = qnn.conv2d(x, w, zero(5), zero([1, 0]), scale(1.0), scale([1.0, 1.0]), (1, 1), 2, padding=(0, 1))
    assert evaluate(made, data).tolist() == [[[[0] * 4] * 2, [[0, 4, 4, 0]] * 2]]
    turned = qnn.conv2d_transpose(x, relay.const(weight.reshape(1, 2, 1, 1)), zero(5), zero(0), scale(1.0), scale(1.0))
    assert evaluate(turned, data).tolist() == [[[[2, 2]] * 2, [[4, 4]] * 2]]


@pytest.mark.parametrize("operator", [qnn.add, qnn.subtract, qnn.mul])
def test_arithmetic_has_a_scale_of_its_own(operator: Any) -> None:
    x, y = (relay.var(name, shape=(3,), dtype="int8") for name in "xy")
    made = operator(x, y, scale(0.5), zero(0), scale(1.0), zero(0), scale(0.5), zero(1))
    a, b = np.array([2, 4, 64], np.int8), np.array([1, 2, 64], np.int8)
    real = {qnn.add: a / 2 + b, qnn.subtract: a / 2 - b, qnn.mul: a / 2 * b}[operator]
    wanted = np.clip(real / 0.5 + 1, -128, 127).tolist()
    assert evaluate(made, a, b).tolist() == wanted


def test_tensors_are_joined_at_the_scale_of_the_result() -> None:
    x, y = (relay.var(name, shape=(2,), dtype="int8") for name in "xy")
    scales, zeros = relay.Tuple([scale(0.5), scale(1.0)]), relay.Tuple([zero(0), zero(1)])
    made = qnn.concatenate(relay.Tuple([x, y]), scales, zeros, scale(0.5), zero(0), 0)
    assert evaluate(made, np.array([1, 2], np.int8), np.array([3, 4], np.int8)).tolist() == [1, 2, 4, 6]


FUNCTIONS = {
    "abs": np.abs,
    "exp": np.exp,
    "hardswish": qnn.legalizations.hardswish_func,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_the_real_numbers(name: str) -> None:
    data = np.arange(3, 40, 7, dtype=np.uint8)
    made = getattr(qnn, name)(
        relay.var("x", shape=data.shape, dtype="uint8"), scale(0.1), zero(3), scale(0.03), zero(2)
    )
    real = FUNCTIONS[name]((data.astype(np.float32) - 3) * np.float32(0.1))
    assert evaluate(made, data).tolist() == np.clip(np.round(real / 0.03) + 2, 0, 255).tolist()


def test_leaky_relu_softmax_and_pooling() -> None:
    q = relay.var("q", shape=(2, 2), dtype="int8")
    data = np.array([[-8, 8], [4, 4]], np.int8)
    around = scale(0.5), zero(0), scale(0.25), zero(1)
    assert evaluate(qnn.leaky_relu(q, 0.5, *around), data).tolist() == [[-7, 17], [9, 9]]
    assert evaluate(qnn.softmax(q, *around), data).tolist() == [[1, 5], [3, 3]]
    image = relay.reshape(q, (1, 2, 2, 1))
    pooled = qnn.avg_pool2d(image, *around, (2, 2), (1, 1), (0, 0, 0, 0), (1, 1))
    assert evaluate(pooled, data).tolist() == [[[[5]]]]


@pytest.mark.parametrize(("code", "expected"), [(0, [-70.5, 9.0]), (1, [-128.0, 21.0]), (2, [0.0, 21.0])])
def test_simulated_operators_take_the_type_at_run_time(code: int, expected: list[float]) -> None:
    x, kind = relay.var("x", shape=(2,)), relay.var("kind", shape=(), dtype="int32")
    data = np.array([-70.5, 9.0], np.float32)
    whole = qnn.simulated_quantize(x, scale(0.5), zero(3), out_dtype=kind)
    assert evaluate(whole, data, np.int32(code)).tolist() == expected
    back = qnn.simulated_dequantize(whole, scale(0.5), zero(3), in_dtype=kind)
    assert evaluate(back, data, np.int32(code))[1] == 9.0


def test_a_rule_for_a_while_is_what_legalize_does() -> None:
    x = relay.var("x", shape=(2, 3), dtype="int8")
    module = tvm.IRModule.from_expr(qnn.dequantize(x, scale(0.5), zero(3)))
    with TempOpAttr("qnn.dequantize", "FTVMQnnLegalize", lambda attrs, inputs, types: relay.cast(inputs[0], "float32")):
        changed = relay.qnn.transform.Legalize()(module)
    assert changed["main"].body.op.name == "cast"
    assert relay.qnn.transform.Legalize()(module)["main"].body.op.name == "qnn.dequantize"


def test_integers_of_another_width_are_taken_where_they_fit() -> None:
    x = relay.var("x", shape=(2,), dtype="uint8")
    assert evaluate(x + x, np.array([3, 4])).tolist() == [6, 8]
    with pytest.raises(tvm.TVMError, match="expected uint8"):
        evaluate(x + x, np.array([3, 300]))
