"""`relay.transform.gradient`, and `check_grad` that it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from treadle.formats.messages.errors import CompileError
from treadle.tvm import relay
from treadle.tvm.relay.passes.core import value_of
from treadle.tvm.relay.testing import run_infer_type
from treadle.tvm.relay.transform import gradient


def gradients(function: Any, *inputs: np.ndarray) -> Any:
    """The gradients by the reference evaluator."""
    return value_of(relay.Call(gradient(run_infer_type(function)), [relay.const(each) for each in inputs]))[1]


def differences(function: Any, inputs: list[np.ndarray], eps: float = 1e-5) -> list[np.ndarray]:
    found = []
    for number, array in enumerate(inputs):
        slopes = np.zeros(array.shape)
        for index in np.ndindex(*array.shape):
            sums = []
            for step in (eps, -eps):
                moved = [each.copy() for each in inputs]
                moved[number][index] += step
                sums.append(value_of(relay.Call(function, [relay.const(each, "float64") for each in moved])).sum())
            slopes[index] = (sums[0] - sums[1]) / (2 * eps)
        found.append(slopes)
    return found


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "broadcasting": (lambda a, b: (a + b) * a / b, [(2, 3), (3,)]),
    "elementwise": (lambda a: relay.tanh(a) * relay.sigmoid(a) + relay.log(a) * relay.sqrt(a), [(2, 2)]),
    "reductions": (lambda a: relay.mean(a * a, axis=1) + relay.max(a, axis=1), [(2, 3)]),
    "softmax": (lambda a: relay.nn.log_softmax(a) * a, [(2, 3)]),
    "dense": (lambda a, w: relay.nn.dense(a, w), [(2, 3), (4, 3)]),
    "conv2d": (lambda a, w: relay.nn.conv2d(a, w, strides=(2, 1), padding=(1, 0)), [(1, 2, 4, 3), (2, 2, 2, 2)]),
    "shapes": (
        lambda a: relay.transpose(relay.concatenate([a, relay.reshape(a, (2, 3))], 0)) * relay.const(2.0, "float64"),
        [(2, 3)],
    ),
    "branches": (lambda a: relay.If(relay.const(True), a * a, a), [(2,)]),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_what_differences_say(case: str) -> None:
    body, shapes = CASES[case]
    params = [relay.var(f"p{place}", shape=shape, dtype="float64") for place, shape in enumerate(shapes)]
    function = relay.Function(params, body(*params))
    inputs = [np.random.default_rng(place).random(shape) + 0.5 for place, shape in enumerate(shapes)]
    made = gradient(run_infer_type(function))
    found = value_of(relay.Call(made, [relay.const(each, "float64") for each in inputs]))[1]
    for mine, other in zip(found, differences(function, inputs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


def test_a_gradient_has_a_gradient() -> None:
    a = relay.var("a", shape=(2,))
    once = gradient(run_infer_type(relay.Function([a], a * a * a)))
    b = relay.var("b", shape=(2,))
    slope = relay.Function([b], relay.TupleGetItem(relay.TupleGetItem(once(b), 1), 0))
    (second,) = gradients(slope, np.array([1.0, 2.0], "float32"))
    np.testing.assert_allclose(second, [6, 12])


def test_what_has_no_gradient_is_said() -> None:
    a = relay.var("a", shape=(1, 1, 4, 4))
    with pytest.raises(CompileError, match=r"nn\.max_pool2d has no rule; relay\.op\.register_gradient"):
        gradient(run_infer_type(relay.Function([a], relay.nn.max_pool2d(a))))
    f, n = relay.var("f"), relay.var("n", shape=())
    loop = relay.Let(
        f, relay.Function([n], relay.If(n < relay.const(0.0), n, f(n - relay.const(1.0)))), f(relay.const(2.0))
    )
    with pytest.raises(CompileError, match="calls itself"):
        gradient(relay.Function([], loop))
