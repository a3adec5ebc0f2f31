"""Expressions as those who know NumPy expect them: an array's methods, NumPy's functions, indexing."""

import numpy as np
import pytest
import treadle
from treadle import Module, function, op, var
from treadle.compiler.builder.array_methods import UFUNCS
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.operators import TABLE
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import InferenceError, UnsupportedOperatorError

X = np.array([[0.5, 1.0, -2.0], [3.0, 0.25, 1.5]], np.float32)
I = np.array([[1, 2, 3], [4, 5, 6]], np.int32)  # noqa: E741
BITS = np.array([[True, False, True], [False, False, True]])


def value_of(make, *arrays):
    """What the program that `make` builds of expressions gives."""
    params = [var(f"x{at}", array.shape, array.dtype) for at, array in enumerate(arrays)]
    module = infer_types(Module(main=function(params, make(*params))))
    return np.asarray(evaluate(module, "main", *arrays))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.sum(),
        lambda x: x.sum(axis=1),
        lambda x: x.mean(axis=(0, 1), keepdims=True),
        lambda x: x.max(0),
        lambda x: x.min(-1, keepdims=True),
        lambda x: x.prod(),
        lambda x: x.argmax(),
        lambda x: x.argmin(axis=1),
        lambda x: x.cumsum(1),
        lambda x: x.clip(0, 1),
        lambda x: x.round(),
        lambda x: x.T,
        lambda x: x.transpose(1, 0),
        lambda x: x.transpose((1, 0)),
        lambda x: x.transpose(),
        lambda x: x.swapaxes(0, 1),
        lambda x: x.reshape(3, 2),
        lambda x: x.reshape((-1,)),
        lambda x: x.ravel(),
        lambda x: x.astype("int32"),
        lambda x: x[0],
        lambda x: x[-1, 1:],
        lambda x: x[..., 0],
        lambda x: x[None],
        lambda x: x[:, None, ::-1],
        lambda x: x[1, None],
        lambda x: x[np.int64(1)],
        lambda x: x[[1, 0, 1]],
        lambda x: x[:, np.array([2, 0])],
        lambda x: x[..., [2, 0]],
        lambda x: np.exp(x),
        lambda x: np.arctan(x),
        lambda x: np.add(x, 1),
        lambda x: np.maximum(x, X),
        lambda x: X + x,
        lambda x: X.T @ x,
        lambda x: np.matmul(X.T, x),
        lambda x: np.float32(2) ** x,
        lambda x: np.sum(x, axis=0),
        lambda x: np.mean(x),
        lambda x: np.where(x > 1, x, 0 * x),
        lambda x: np.concatenate([x, X], axis=1),
        lambda x: np.concatenate((x, x), axis=None),
        lambda x: np.stack([x, x], axis=1),
        lambda x: np.expand_dims(x, 0),
        lambda x: np.squeeze(np.expand_dims(x, 0)),
        lambda x: np.dot(x, X.T),
        lambda x: np.clip(x, 0, 1),
        lambda x: np.transpose(x),
        lambda x: np.tile(x, (1, 2)),
        lambda x: np.take(x, [1], axis=0),
        lambda x: (x > 0) & (x < 2),
        lambda x: ~(x > 0) | (X > 1),
        lambda x: x == X,
        lambda x: np.sort(x),
        lambda x: np.sort(x, axis=None),
        lambda x: np.argsort(x, axis=0),
        lambda x: np.linalg.norm(x),
        lambda x: np.linalg.norm(x, axis=1, keepdims=True),
        lambda x: np.linalg.norm(x, 1, axis=0),
        lambda x: np.einsum("ij->ji", x),
        lambda x: np.einsum("ij", x),
        lambda x: np.einsum("ij,kj->ik", x, X),
        lambda x: np.einsum("ij,kl->ijkl", x, x),
        lambda x: np.einsum("...i->...", x),
        lambda x: np.einsum("ii->i", x[:, :2]),
        lambda x: np.einsum("bii->b", np.stack([x[:, :2], x[:, 1:]])),
        lambda x: np.einsum("bij,bjk,k->bi", np.stack([x, x]), np.stack([X.T, X.T]), X[:, 0]),
    ],
)
def test_it_gives_what_numpy_gives(make):
    np.testing.assert_allclose(value_of(make, X), make(X), rtol=1e-6)


def test_sums_over_symbolic_sizes():
    shapes = ("n", "m"), ("k", "m", "m")
    x, y = var("x", shapes[0]), var("y", shapes[1])
    machine = treadle.VirtualMachine(treadle.compile(function([x, y], np.einsum("nm,kmm->nk", x, y)), progress=False))
    one, other = np.ones((2, 3), np.float32), np.arange(36, dtype=np.float32).reshape(4, 3, 3)
    np.testing.assert_allclose(machine(one, other), np.einsum("nm,kmm->nk", one, other))


@pytest.mark.parametrize(
    "make",
    [
        lambda x, n: x.sum(0) / n,
        lambda x, n: n - x,
        lambda x, n: n * x + 2 * n,
        lambda x, n: n > x,
        lambda x, n: np.maximum(x, n),
        lambda x, n: (
            op.greater(n, 2) if isinstance(x, treadle.compiler.builder.programs.Expression) else np.bool_(n > 2)
        ),
        lambda x, n: x[n - 1],
        lambda x, n: (x > 1) & (x < n),
    ],
)
def test_a_size_is_a_number_among_operands(make):
    x = var("x", ("n", 3))
    machine = treadle.VirtualMachine(treadle.compile(function([x], make(x, x.shape[0])), progress=False))
    expected = make(X, X.shape[0])
    np.testing.assert_allclose(machine(X), expected)
    assert np.asarray(machine(X)).dtype == expected.dtype


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n: n > 1, "> of n, a size known only at run time: op.greater takes it as an operand, an int64 scalar"),
        (lambda n: max(n, 3), "< of n|> of n"),
        (lambda n: n / 2, "/ of n, a size known only at run time: op.divide takes it"),
        (
            lambda n: n * 1.5,
            r"\* of n, a size known only at run time, and a float: sizes compute with integers and sizes",
        ),
        (lambda n: "a" + n, r"\+ of n, a size known only at run time, and a str"),
        (lambda n: treadle.constant(n), "constant: n is a size known only at run time"),
    ],
)
def test_what_is_no_size_is_said_so(make, message):
    with pytest.raises(InferenceError, match=message):
        make(var("x", ("n",)).shape[0])


def test_types_of_results():
    x = var("x", (2, 2))
    assert np.result_type(x, x) == np.float32
    assert np.result_type(x, np.float64) == np.float64


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: np.einsum("ij,jk->ik", x), "names 2 operands, got 1"),
        (lambda x: np.einsum("ij->k", x), "the result's axes 'k' are not those that are left"),
        (lambda x: np.einsum("ijk->k", x), "does not fit an operand of rank 2"),
        (lambda x: np.einsum("ij,jk->ik", x, x), "matmul"),
        (lambda x: np.einsum(x, [0, 1]), "equation: expected a text"),
        (lambda x: np.einsum("i", var("u", None)), "np.einsum asks for the number of axes"),
    ],
)
def test_sums_that_do_not_fit(make, message):
    with pytest.raises(InferenceError, match=message):
        make(var("x", (2, 3)))


@pytest.mark.parametrize("make", [lambda i: i & 3, lambda i: 5 | i, lambda i: i ^ i[0], lambda i: ~i, lambda i: i << 2])
def test_bits_of_integers(make):
    np.testing.assert_array_equal(value_of(make, I), make(I))


def test_truth_values():
    np.testing.assert_array_equal(value_of(lambda b: np.invert(b) & b.any(axis=0), BITS), ~BITS & BITS.any(axis=0))


def test_an_expression_says_what_it_is():
    x = var("x", ("n", 4))
    assert (x.dtype, x.ndim) == (np.float32, 2)
    assert [str(size) for size in x.shape] == ["n", "4"]
    assert var("y", x.shape).type == x.type
    assert str(x.reshape(x.shape[0] * 4).type) == "float32[4*n]"
    assert var("u", None).shape is var("u", None).dtype is var("u", None).ndim is None


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (np.arctan2, "np.arctan2"),
        (lambda x, _: np.partition(x, 1), "np.partition"),
        (lambda x, _: np.subtract.reduce(x), "np.subtract.reduce"),
        (lambda x, y: np.add(x, y, dtype="f8"), "np.add with dtype"),
        (lambda x, _: np.linalg.inv(x), "np.linalg.inv"),
        (lambda x, _: np.linalg.norm(x, 1), "np.linalg.norm"),
    ],
)
def test_what_has_no_operator_is_named(make, name):
    x = var("x", (2, 2))
    with pytest.raises(UnsupportedOperatorError, match=name):
        make(x, x)


@pytest.mark.parametrize(
    "ask",
    [np.asarray, lambda x: np.array([x, x]), lambda x: x[True], lambda x: x["a"], lambda x: x[x > 0], lambda x: x[x:]],
)
def test_what_it_is_not(ask):
    with pytest.raises(InferenceError):
        ask(var("x", (2, 2)))


def test_a_comparison_is_no_truth():
    x, y = var("x", (2,)), var("y", (2,))
    assert (x == y).dtype == DType.bool
    assert {x: 1}[x] == 1
    for ask in (lambda: bool(x == y), lambda: x in [y], lambda: [x] == [y]):
        with pytest.raises(TypeError, match="no truth value"):
            ask()


def test_each_ufunc_that_is_named_is_one_and_has_its_operator():
    for name in UFUNCS:
        assert isinstance(getattr(np, name), np.ufunc)
        assert UFUNCS[name] in TABLE


def test_a_ufunc_whose_name_an_operator_has_is_that_operator():
    numbers, truths = var("x", (2, 2)), var("t", (2, 2), "bool")
    same = {name for name in TABLE if getattr(getattr(np, name, None), "__name__", "") == name}
    ufuncs = {name for name in same if isinstance(getattr(np, name), np.ufunc) and not name.startswith("bitwise_")}
    assert len(ufuncs) > 40
    for name in ufuncs:
        x = truths if name.startswith("logical_") else numbers
        made = getattr(np, name)(*[x] * getattr(np, name).nin)
        assert made.shape == (2, 2)


def test_a_program_of_numpy_s_functions_compiles():
    x = var("x", ("n", 3))
    vm = treadle.VirtualMachine(treadle.compile(Module(main=function([x], np.exp(x).sum(axis=-1) + op.relu(x)[:, 0]))))
    np.testing.assert_allclose(vm["main"](X).numpy(), np.exp(X).sum(-1) + np.maximum(X, 0)[:, 0], rtol=1e-5)
