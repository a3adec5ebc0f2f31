"""`check_grad`: gradients against differences of values, and what else TVM's tests of gradients use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.ndarray import array
from ..analysis import list_op_freqs
from ..build_module import create_executor
from ..infer import infer_module
from ..module import IRModule

__all__ = ["check_grad", "count_ops", "rand"]


def rand(dtype: str, *shape: int) -> Any:
    """A tensor of uniform random numbers from 0 to 1."""
    return array(np.random.default_rng().random(shape).astype(dtype))


def count_ops(expr: Any) -> dict[str, int]:
    """How often each operator is called; 0 for others."""
    return Counter(list_op_freqs(expr))


def check_grad(
    func: Any,
    inputs: Sequence[np.ndarray] | None = None,
    test_inputs: Sequence[np.ndarray] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float | None = None,
    mean: float = 0,
    mode: str = "higher_order",
    target_devices: Any = None,
    executor_kind: str = "debug",
) -> None:
    """Raises AssertionError where the gradient of a function, at `inputs` or random numbers, is not what differences of its
    values over `eps` are."""
    from ..transform import gradient

    forward = infer_module(IRModule.from_expr(func))["main"]
    backward = infer_module(IRModule.from_expr(gradient(forward, mode=mode)))["main"]
    if inputs is None:
        spread = 10 * eps if scale is None else scale
        types = [param.checked_type for param in forward.params]
        draws = np.random.default_rng().normal
        inputs = [np.asarray(draws(mean, spread, each.concrete_shape)).astype(each.dtype) for each in types]
    tested = inputs if test_inputs is None else test_inputs
    value = create_executor(executor_kind).evaluate(forward)
    _, grads = create_executor(executor_kind).evaluate(backward)(*inputs)
    places = [next(at for at, each in enumerate(inputs) if each is x) for x in tested]
    for x, place in zip(tested, places, strict=True):
        expected = np.zeros(x.shape)
        for index in np.ndindex(*x.shape):
            before = x[index]
            several = []
            for step in (eps, -eps):
                x[index] = before + step
                several.append(value(*inputs).numpy().astype("float64"))
            x[index] = before
            expected[index] = np.sum((several[0] - several[1]) / (2 * eps))
        np.testing.assert_allclose(grads[place].numpy().astype("float64"), expected, atol=atol, rtol=rtol)
