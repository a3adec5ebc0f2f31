"""Pointwise convolutions as products of the weights and the pixels: where they become such, and that results stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle import VirtualMachine, compile
from treadle.compiler import ir
from treadle.compiler.builder.programs import Module, constant, function, op, var
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.passes import DeadCode
from treadle.compiler.targets.cpu.passes.pointwise_products import PointwiseProducts

RNG = np.random.default_rng(7)
SIZE = 32  # of an image's sides
Network = Callable[[ir.Var], object]


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def pointwise(x, channels: int, outputs: int, **attributes):
    return op.conv(x, constant(normal(outputs, channels, 1, 1)), constant(normal(outputs)), **attributes)


def window(x, channels: int, outputs: int):
    return op.conv(x, constant(normal(outputs, channels, 3, 3)), pads=(1, 1, 1, 1))


def rewritten(network: Network, shape: tuple, batch: int = 2) -> list[str]:
    """The operators after the pass; the result is checked."""
    x = var("x", shape)
    before = infer_types(Module(main=function([x], network(x))))
    after = infer_types(DeadCode()(PointwiseProducts()(before)))
    array = normal(*(size if isinstance(size, int) else batch if size == "n" else SIZE for size in shape))
    wanted = evaluate(before, "main", array)
    np.testing.assert_allclose(evaluate(after, "main", array), wanted, rtol=1e-4, atol=1e-4)
    values = [binding.value for binding in after.functions["main"].body.bindings]
    return [value.operator for value in values if isinstance(value, ir.OperatorCall)]


ROW = constant(normal(1, 6, 1, 1))

PRODUCTS: dict[str, tuple[Network, int]] = {
    "alone": (lambda x: pointwise(x, 4, 6), 1),
    "an activation": (lambda x: op.relu(pointwise(x, 4, 6)), 1),
    "a gate": (lambda x: (lambda y: op.multiply(y, op.sigmoid(y)))(pointwise(x, 4, 6)), 1),
    "a number": (lambda x: op.multiply(pointwise(x, 4, 6), constant(np.float32(2))), 1),
    "a number for each channel": (lambda x: op.add(pointwise(x, 4, 6), ROW), 1),
    "the input": (lambda x: op.add(pointwise(x, 4, 4), x), 1),
    "two": (lambda x: pointwise(op.relu(pointwise(x, 4, 6)), 6, 5), 2),
    "two side by side": (lambda x: op.concat(pointwise(x, 4, 6), pointwise(x, 4, 6), axis=1), 2),
    "a mean": (lambda x: op.mean(pointwise(x, 4, 6), axes=(2, 3), keepdims=False), 1),
    "no bias": (lambda x: op.conv(x, constant(normal(6, 4, 1, 1))), 1),
}
CONVOLUTIONS: dict[str, Network] = {
    "behind a convolution": lambda x: pointwise(window(x, 4, 6), 6, 5),
    "before a convolution": lambda x: window(op.relu(pointwise(x, 4, 6)), 6, 5),
    "beside a convolution": lambda x: op.add(pointwise(x, 4, 6), window(x, 4, 6)),
    "joined with a convolution": lambda x: op.concat(pointwise(x, 4, 6), window(x, 4, 6), axis=1),
    "before pooling": lambda x: op.max_pool(pointwise(x, 4, 6), kernel=(2, 2), strides=(2, 2)),
    "two before a convolution": lambda x: window(pointwise(pointwise(x, 4, 6), 6, 6), 6, 5),
    "channels that come to lie last": lambda x: op.permute_dims(pointwise(x, 4, 6), axes=(0, 2, 3, 1)),
    "pads": lambda x: pointwise(x, 4, 6, pads=(1, 1, 0, 0)),
    "small groups": lambda x: op.conv(x, constant(normal(6, 2, 1, 1)), groups=2),
}


@pytest.mark.parametrize("shape", [(2, 4, SIZE, SIZE), ("n", 4, "h", SIZE)])
@pytest.mark.parametrize("case", PRODUCTS)
def test_between_planes_they_become_products(case: str, shape: tuple) -> None:
    network, count = PRODUCTS[case]
    operators = rewritten(network, shape)
    assert "conv" not in operators
    assert operators.count("matmul") == count


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_where_blocks_are_made_or_taken_they_stay(case: str) -> None:
    assert "matmul" not in rewritten(CONVOLUTIONS[case], (2, 4, SIZE, SIZE))


def test_few_pixels_stay_a_convolution() -> None:
    assert rewritten(lambda x: pointwise(x, 4, 6), (2, 4, 8, 8)) == ["conv"]
    assert rewritten(lambda x: pointwise(x, 4, 6, strides=(2, 2)), (2, 4, 32, 32)) == ["conv"]


@pytest.mark.parametrize("symbolic", [False, True])
def test_groups_are_products_side_by_side(symbolic):
    def network(x):
        y = op.conv(x, constant(normal(24, 8, 1, 1)), constant(normal(24)), groups=2)
        y = op.add(op.multiply(op.relu(y), constant(normal(24, 1, 1))), op.mean(x, axes=(1,), keepdims=True))
        other = op.conv(x, constant(normal(24, 16, 1, 1)))
        return op.add(y, other)

    assert rewritten(network, ("n", 16, SIZE, "w") if symbolic else (2, 16, SIZE, SIZE)).count("matmul") == 2


def test_strides_meet_some_of_the_pixels() -> None:
    def network(x):
        return op.relu(pointwise(x, 4, 6, strides=(1, 2)))

    assert rewritten(network, (2, 4, 35, 38)) == ["slice", "reshape", "matmul", "add", "relu", "reshape"]
    assert "conv" in rewritten(network, (2, 4, 35, "w"))


def test_signals_and_volumes_are_images_too() -> None:
    signal = rewritten(lambda x: op.conv(x, constant(normal(6, 4, 1))), (2, 4, 1000))
    volume = rewritten(lambda x: op.conv(x, constant(normal(6, 4, 1, 1, 1))), (1, 4, 8, 12, 11))
    assert "matmul" in signal
    assert "matmul" in volume


def test_pixels_that_are_repeated_are_seen_as_images() -> None:
    """Those of one line beside those of many, and those of a signal beside those of an image."""

    def lines(x):
        line = pointwise(op.slice(x, starts=(0,), ends=(1,), axes=(2,)), 4, 6)
        return op.add(pointwise(x, 4, 6), line)

    def signal(x):
        one = op.reshape(op.slice(x, starts=(0,), ends=(1,), axes=(0,)), shape=(4, 4, 800))
        return op.add(pointwise(x, 4, 4), op.conv(one, constant(normal(4, 4, 1))))

    assert rewritten(lines, (2, 4, 3, 1600)).count("matmul") == 2
    assert rewritten(signal, (2, 4, 4, 800)).count("matmul") == 2


def test_what_follows_joins_the_product() -> None:
    x = var("x", (1, 4, SIZE, SIZE))
    executable = compile(Module(main=function([x], op.relu(pointwise(x, 4, 6)))))
    assert list(executable.lib.names) == ["matmul_add_relu"]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 2),
    st.integers(1, 40),
    st.integers(1, 40),
    st.tuples(st.integers(24, 40), st.integers(32, 40)),
    st.booleans(),
)
def test_kernels_give_what_the_convolution_gives(
    n: int, channels: int, outputs: int, sides: tuple, twice: bool
) -> None:
    x = var("x", (n, channels, *sides))
    y = op.relu(pointwise(x, channels, outputs))
    module = Module(main=function([x], pointwise(y, outputs, channels) if twice else y))
    array = normal(n, channels, *sides)
    wanted = evaluate(infer_types(module), "main", array)
    np.testing.assert_allclose(VirtualMachine(compile(module))["main"](array), wanted, rtol=1e-4, atol=1e-3)
