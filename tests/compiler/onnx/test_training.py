"""Steps of optimisers, against ONNX's evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from treadle.formats.messages.errors import ShapeError
from treadle.tests.compiler.onnx.onnx_nodes import Node

DOMAIN = "ai.onnx.preview.training"
SHAPES = ((3, 4), (5,))
MOMENTUM = {"alpha": 0.9, "beta": 0.3, "norm_coefficient": 0.01}
OPTIMISERS = [
    ("Adagrad", 3, {"decay_factor": 0.1, "epsilon": 1e-5, "norm_coefficient": 0.02}),
    ("Adam", 4, {"alpha": 0.95, "beta": 0.85, "epsilon": 1e-2, "norm_coefficient": 0.02, "norm_coefficient_post": 0.1}),
    ("Adam", 4, {}),
    ("Momentum", 3, {"mode": "standard", **MOMENTUM}),
    ("Momentum", 3, {"mode": "nesterov", **MOMENTUM}),
]


@pytest.mark.parametrize(("name", "each", "attributes"), OPTIMISERS, ids=lambda part: str(part))
def test_a_step_of_two_tensors(name, each, attributes):
    draw = np.random.default_rng(0)
    tensors = [draw.uniform(0.5, 2, shape).astype(np.float32) for _ in range(each) for shape in SHAPES]
    declared = [("float32", ("n", *array.shape[1:]) if array.ndim > 1 else array.shape) for array in tensors]
    node = Node(
        name, ("float32", ()), ("int64", ()), *declared, outputs=2 * (each - 1), opset=1, domain=DOMAIN, **attributes
    )
    for count in (0, 3):
        node.check(np.float32(0.1), count, *tensors)
    assert node.on_host == []


@pytest.mark.parametrize(("name", "each", "attributes"), OPTIMISERS, ids=lambda part: str(part))
def test_sizes_of_a_tensor_and_of_what_is_kept_of_it_may_have_names_of_their_own(name, each, attributes):
    """They are one size: known where one of them is, and checked in a run."""
    draw = np.random.default_rng(0)
    tensors = [draw.uniform(0.5, 2, (4, 3)).astype(np.float32) for _ in range(each)]
    declared = [("float32", (4 if place == 1 else f"n{place}", 3)) for place in range(each)]
    node = Node(name, ("float32", ()), ("int64", ()), *declared, outputs=each - 1, opset=1, domain=DOMAIN, **attributes)
    given = (np.float32(0.1), 3, *tensors)
    node.check(
        *given, expected=[array.astype(np.float32) for array in node.expected(*given)]
    )  # Adam of one tensor is wide there
    with pytest.raises(ShapeError):
        node.run(np.float32(0.1), 3, tensors[0][:1], *tensors[1:])
