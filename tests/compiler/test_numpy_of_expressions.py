"""NumPy's functions of expressions compute what they do of arrays; misuses of them, and of operators, name the operator."""

import numpy as np
import pytest
import treadle
from treadle import Sampler, data_type, op, var
from treadle.formats.errors import ArgumentError, InferenceError

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: np.var(x),
        lambda x: np.var(x, axis=1, keepdims=True),
        lambda x: np.var(x, axis=(0, 1), ddof=1),
        lambda x: np.std(x, axis=0, ddof=1),
        lambda x: np.split(x, 3, axis=1)[1],
        lambda x: np.split(x, [1, 3])[2],
        lambda x: np.split(x, 2, axis=-2)[0],
        lambda x: np.pad(x, 1),
        lambda x: np.pad(x, ((0, 1), (2, 3)), constant_values=5),
        lambda x: np.pad(x, (1, 2), mode="edge"),
        lambda x: np.pad(x, 2, mode="reflect"),
    ],
)
def test_numpys_functions_build_what_they_compute(compute):
    x = var("x", X.shape)
    executable = treadle.compile(treadle.function([x], compute(x)), progress=False, embed_native=False)
    found = treadle.VirtualMachine(executable, kernels="cached")["main"](X).numpy()
    np.testing.assert_allclose(found, compute(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda x: x @ 3, "matmul: expected tensors of rank 1 at least, but"),
        (lambda x: x.sum(axis=7), "sum: expected an axis from -2 to 1, but 7 came"),
        (lambda x: op.softmax(x, axis=9), "softmax: expected an axis from -2 to 1, but 9 came"),
        (lambda x: np.split(x, 4, axis=1), "np.split: axis 1 of 6 elements has no 4 equal parts"),
        (lambda x: np.split(x, 2, axis=5), "np.split: expected an axis from -2 to 1, but 5 came"),
        (lambda x: np.pad(x, -1), "np.pad: pad_width=-1: expected whole numbers from 0 on"),
        (lambda x: np.pad(x, 1, mode="mean"), "np.pad: mode 'mean'"),
        (lambda _: data_type("List = "), "data_type: 'List = ' has no constructors; expected text such as"),
    ],
)
def test_misuses_name_the_operator(misuse, message):
    with pytest.raises(InferenceError) as refused:
        misuse(var("x", (4, 6)))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("seed", ["a", -1, 1.5, True])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ArgumentError, match="seed: expected a whole number from 0 on, or None"):
        Sampler(seed=seed)
