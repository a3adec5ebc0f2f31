"""Random operators: what they draw, and from which seed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest
from treadle.tests.compiler.onnx.onnx_nodes import Node

MANY = (100, 200)


def split_mix(key: int, count: int) -> np.ndarray:
    """The generator as its paper has it, number by number, as floats from 0 to 1."""
    word = (1 << 64) - 1

    def mixed(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & word
        z = (z ^ z >> 27) * 0x94D049BB133111EB & word
        return z ^ z >> 31

    state = mixed(key)
    return np.array([(mixed(state + i * 0x9E3779B97F4A7C15 & word) >> 11) * 2.0**-53 for i in range(1, count + 1)])


def test_a_seed_of_the_model_gives_the_numbers_of_its_generator():
    node = Node("RandomUniformLike", ("float64", ("n",)), seed=2.5)
    key = int(np.float32(2.5).view(np.uint32))
    for _ in range(2):
        np.testing.assert_array_equal(node.run(np.zeros(50)), [split_mix(key, 50)])


def test_calls_without_a_seed_differ_and_so_do_nodes():
    node = Node("RandomUniformLike", ("float32", ("n",)))
    first, second = node.run(np.zeros(50, np.float32)), node.run(np.zeros(50, np.float32))
    assert not np.intersect1d(first, second).size


def test_a_process_can_be_given_a_seed():
    program = (
        "import numpy as np\nfrom treadle.tests.compiler.onnx.onnx_nodes import Node\n"
        "node = Node('RandomUniformLike', ('float32', ('n',)))\n"
        "print([node.run(np.zeros(2, np.float32))[0].tolist() for _ in range(2)])"
    )
    made = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "TREADLE_SEED": "7"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert made[0] == made[1]
    first, second = ast.literal_eval(made[0])
    assert first != second


def test_a_seed_that_is_none_is_refused():
    node = Node("RandomUniformLike", ("float32", ("n",)))
    with patch.dict(os.environ, TREADLE_SEED="x"), pytest.raises(Exception, match="TREADLE_SEED='x': a whole number"):
        node.run(np.zeros(3, np.float32))


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_distributions(kind):
    x = np.zeros(MANY, kind)
    (even,) = Node("RandomUniformLike", (kind, ("n", "m")), low=-1.0, high=3.0).run(x)
    (normal,) = Node("RandomNormalLike", (kind, ("n", "m")), mean=2.0, scale=0.5).run(x)
    assert (even.dtype, normal.dtype) == (x.dtype, x.dtype)
    assert even.min() >= -1
    assert even.max() <= 3
    wide = even.astype(np.float64), normal.astype(np.float64)
    np.testing.assert_allclose([wide[0].mean(), wide[0].std()], [1, 4 / 12**0.5], atol=0.05)
    np.testing.assert_allclose([wide[1].mean(), wide[1].std()], [2, 0.5], atol=0.02)
    # a normal distribution's share within one, two and three deviations
    shares = np.array([np.mean(np.abs(wide[1] - 2) < deviations * 0.5) for deviations in (1, 2, 3)])
    due = np.array([0.6827, 0.9545, 0.9973])
    assert (np.abs(shares - due) < 6 * np.sqrt(due * (1 - due) / x.size)).all()  # standard errors: the seed is any


@pytest.mark.parametrize(("op", "reach"), [("RandomUniform", (0, 1)), ("RandomNormal", (-6, 6))])
def test_shapes_that_the_model_says(op, reach):
    (made,) = Node(op, shape=[3, 500], dtype=11).run()
    assert (made.shape, made.dtype) == ((3, 500), np.float64)
    assert reach[0] <= made.min() < made.max() <= reach[1]
    assert len(np.unique(made)) == made.size


def test_truths_by_their_probability():
    x = np.linspace(0, 1, MANY[1], dtype=np.float32) + np.zeros(MANY, np.float32)
    (made,) = Node("Bernoulli", ("float32", ("n", "m")), dtype=9).run(x)
    assert made.dtype == np.bool_
    np.testing.assert_allclose(made.mean(0), x[0], atol=0.25)
    assert not made[:, 0].any()
    assert made[:, -1].all()


def test_classes_by_the_logarithms_of_their_probabilities():
    likely = np.float32([0.1, 0.6, 0.3])
    (made,) = Node("Multinomial", ("float32", ("n", 3)), sample_size=4000, dtype=7).run(np.log([likely, likely * 5]))
    assert made.dtype == np.int64
    for row in made:
        np.testing.assert_allclose(np.bincount(row) / row.size, likely, atol=0.04)


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.75])
def test_dropout_in_training(ratio):
    x = np.random.default_rng(0).uniform(1, 2, MANY).astype(np.float32)
    node = Node("Dropout", ("float32", ("n", "m")), ("float32", ()), ("bool", ()), outputs=2)
    made, mask = node.run(x, np.float32(ratio), True)
    np.testing.assert_allclose(made, np.where(mask, x / np.float32(1 - ratio), 0), rtol=1e-6)
    np.testing.assert_allclose(mask.mean(), 1 - ratio, atol=0.02)
    made, mask = node.run(x, np.float32(ratio), False)
    np.testing.assert_array_equal(made, x)
    assert mask.all()
