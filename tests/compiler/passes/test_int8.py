"""`precision="int8"`: what becomes int8, on which CPU, and how far it is off. Kernels are interpreted: any CPU will do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle
from treadle import op

from .. import test_precision
from ..test_precision import run

FAST, SLOW = test_precision.WITH, test_precision.WITHOUT  # products of bytes; those of pairs of 16 bits alone
GENERATOR = np.random.default_rng(0)
PARAMS = {
    "w": GENERATOR.standard_normal((96, 64)).astype("f"),
    "v": GENERATOR.standard_normal((64, 9)).astype("f"),
    "k": GENERATOR.standard_normal((32, 17, 3, 3)).astype("f"),
    "b": GENERATOR.standard_normal(32).astype("f"),
}


def perceptron() -> treadle.Module:
    """The second product has too few columns to gain anything."""
    x, w, v = treadle.var("x", ("n", 96)), treadle.var("w", (96, 64)), treadle.var("v", (64, 9))
    return treadle.Module(main=treadle.function([x, w, v], op.matmul(op.relu(op.matmul(x, w)), v)))


def convolution(*image: int, dilation: int = 1) -> treadle.Module:
    x, k, b = treadle.var("x", ("n", 17, *(image or (3, 4)))), treadle.var("k", (32, 17, 3, 3)), treadle.var("b", (32,))
    window = {"pads": (dilation,) * 4, "dilations": (dilation,) * 2}
    return treadle.Module(main=treadle.function([x, k, b], op.relu(op.conv(x, k, b, **window))))


def compiled(module: treadle.Module, precision: Any, target: Any = FAST, **options: Any) -> Any:
    return test_precision.compiled(module, precision, target, PARAMS, **options)


def error(executable: Any, x: np.ndarray, module: treadle.Module) -> float:
    wanted = run(compiled(module, "float32"), x)
    return float(np.abs(run(executable, x) - wanted).max() / np.abs(wanted).max())


def test_products_that_gain_are_int8_and_others_bfloat16():
    executable = compiled(perceptron(), "int8")
    (name,) = (each for each in executable.primitive_ops if "matmul_int8" in each)
    assert name == "matmul_int8_packed_relu_round_bfloat16"
    assert any("matmul_bfloat16" in each for each in executable.primitive_ops)
    x = GENERATOR.standard_normal((5, 96)).astype("f") + 0.5
    assert 1e-4 < error(executable, x, perceptron()) < 0.03
    together = run(executable, x)
    assert all(run(executable, x[at : at + 1]).tobytes() == row.tobytes() for at, row in enumerate(together))


def test_weights_take_a_quarter_of_the_bytes():
    sizes = [sum(each.nbytes for each in compiled(perceptron(), each).constants) for each in ("float32", "int8")]
    assert sizes[0] - sizes[1] > 0.7 * PARAMS["w"].nbytes


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("target", [FAST, SLOW], ids=["fast", "slow"])
def test_convolutions_are_int8_where_no_algorithm_for_floats_is_as_fast(target: Any, dilation: int):
    """With slow products of bytes, dilated windows of large images stay with Winograd's, which bytes have for others alone."""
    executable = compiled(convolution(16, 16, dilation=dilation), "int8", target)
    is_narrow = any("conv_int8_blocked" in each for each in executable.primitive_ops)
    assert is_narrow == (target is FAST or dilation == 1)


def test_images_are_quantised_each_by_itself():
    executable = compiled(convolution(), "int8")
    assert "conv_int8_blocked_relu" in executable.primitive_ops
    x = GENERATOR.standard_normal((2, 17, 3, 4)).astype("f")
    x[1] *= 5
    assert error(executable, x, convolution()) < 0.03
    assert run(executable, x[1:]).tobytes() == run(executable, x)[1:].tobytes()


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_products_of_short_sums_stay_exact(precision: str):
    """Such as the angles of rotary embeddings, of places in the thousands."""
    x, w = treadle.var("x", ("n", 1)), treadle.constant(GENERATOR.standard_normal((1, 32)).astype("f"))
    module = treadle.Module(main=treadle.function([x], op.sin(op.matmul(x, w))))
    places = np.arange(4000, 4005, dtype="f")[:, np.newaxis]
    assert run(compiled(module, precision), places).tobytes() == run(compiled(module, "float32"), places).tobytes()


def test_what_several_products_read_is_quantised_once():
    x, w = treadle.var("x", ("n", 96)), treadle.var("w", (96, 64))
    y = op.exp(x)
    products = op.add(op.matmul(y, w), op.matmul(y, treadle.constant(PARAMS["w"][:, ::-1].copy())))
    executable = compiled(treadle.Module(main=treadle.function([x, w], products)), "int8", without=["merge_products"])
    assert sum("matmul_int8" in name for name in executable.primitive_ops) == 2
    assert sum("quantize_rows" in name for name in executable.primitive_ops) == 1


def test_weights_of_an_int8_program_are_replaced_by_name():
    executable = compiled(perceptron(), "int8", named_weights=True)
    machine, x = treadle.VirtualMachine(executable), GENERATOR.standard_normal((2, 96)).astype("f")
    machine.load_params({"w": 2 * PARAMS["w"], "v": PARAMS["v"]})
    np.testing.assert_array_equal(machine["main"](x).numpy(), 2 * run(executable, x))
    executable = compiled(convolution(), "int8", named_weights=True)
    machine, x = treadle.VirtualMachine(executable), GENERATOR.standard_normal((2, 17, 3, 4)).astype("f")
    machine.load_params({"k": 2 * PARAMS["k"], "b": 2 * PARAMS["b"]})
    np.testing.assert_array_equal(machine["main"](x).numpy(), 2 * run(executable, x))


def test_nodes_are_int8_by_name():
    module = perceptron()
    x = treadle.var("x", ("n", 96))
    w, v = treadle.var("w", (96, 64)), treadle.var("v", (64, 9))
    module = treadle.Module(main=treadle.function([x, w, v], op.matmul(treadle.named("hidden", op.matmul(x, w)), v)))
    executable = compiled(module, {"hidden": "int8"})
    assert any("int8" in each for each in executable.primitive_ops)
    assert not any("bfloat16" in each for each in executable.primitive_ops)
