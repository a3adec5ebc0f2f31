"""NumPy's functions of expressions compute what they do of arrays; misuses of them, and of operators, name the operator."""

import numpy as np
import pytest
import treadle
from treadle import Sampler, data_type, op, var
from treadle.formats.messages.errors import ArgumentError, InferenceError

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
        lambda x: x.var(axis=1),
        lambda x: x.std(),
        lambda x: np.cumsum(x),
        lambda x: np.repeat(x, 3, axis=1),
        lambda x: np.repeat(x, 2),
        lambda x: np.tile(x, 2),
        lambda x: np.tile(x, (2, 1, 3)),
        lambda x: np.flip(x),
        lambda x: np.flip(x, 1),
        lambda x: np.diff(x, 2, axis=0),
        lambda x: np.roll(x, -4, axis=1),
        lambda x: np.roll(x, 5),
        lambda x: np.moveaxis(x, 0, -1),
        lambda x: np.full_like(x, 3) + np.zeros_like(x) - np.ones_like(x),
        lambda x: np.outer(x, x[0]),
        lambda x: np.add.reduce(x),
        lambda x: np.maximum.reduce(x, axis=1, keepdims=True),
        lambda x: np.hypot(x, 2.0) + np.logaddexp(x, x * 3),
        lambda x: np.exp2(x) + np.log2(abs(x)) + np.log10(abs(x)) + np.cbrt(x) + np.deg2rad(x) + np.rad2deg(x),
        lambda x: divmod(x, 2.0)[0] + divmod(3.0, x)[1] + np.round(x),
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
        (lambda x: x @ 3, "matmul: expected tensors of rank 1 at least, got"),
        (lambda x: x.sum(axis=7), "sum: expected an axis from -2 to 1, got 7"),
        (lambda x: op.softmax(x, axis=9), "softmax: expected an axis from -2 to 1, got 9"),
        (lambda x: np.split(x, 4, axis=1), "np.split: axis 1 of 6 elements has no 4 equal parts"),
        (lambda x: np.split(x, 2, axis=5), "np.split: expected an axis from -2 to 1, got 5"),
        (lambda x: np.pad(x, -1), "np.pad: pad_width=-1: expected whole numbers from 0 on"),
        (lambda x: np.pad(x, 1, mode="mean"), "np.pad: mode 'mean'"),
        (lambda _: data_type("List = "), "data_type: 'List = ' has no constructors; expected text such as"),
    ],
)
def test_misuses_name_the_operator(misuse, message):
    with pytest.raises(InferenceError) as refused:
        misuse(var("x", (4, 6)))
    assert str(refused.value).startswith(message)


def test_an_expression_knows_what_of_it_is_known():
    x, y = var("x", (4, 6)), var("y", ("n", 2))
    assert (len(x), x.size, len(treadle.tuple_(x, y, x))) == (4, 24, 3)
    assert str(y.size) == "2*n"
    for asks, message in (
        (lambda: len(y), "len(): axis 0 is n, whose size is known only at run time"),
        (lambda: float(x), "an expression has no elements while the program is built"),
        (lambda: range(x), "an expression has no elements while the program is built"),
    ):
        with pytest.raises(InferenceError) as refused:
            asks()
        assert str(refused.value).startswith(message)
    for name, message in (
        ("item", "Expression has no attribute 'item': an expression has no elements while the program is built"),
        ("byteswap", "Expression has no attribute 'byteswap', which arrays have; dir(treadle.op) lists the operators"),
        ("reshpe", "Expression has no attribute 'reshpe'; did you mean reshape or"),
    ):
        with pytest.raises(AttributeError) as unknown:
            getattr(x, name)
        assert str(unknown.value).startswith(message)


@pytest.mark.parametrize("seed", ["a", -1, 1.5, True])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ArgumentError, match="seed: expected a whole number from 0 on, or None"):
        Sampler(seed=seed)
