"""The elementary functions, measured in units in the last place over all of float32's range."""

import math

import numpy as np
import pytest
from treadle.compiler.targets.emulated import emitted
from treadle.formats.types import tensor
from treadle.native.numba_frontend import compiling_for

from .. import instruction_sets
from ..harness import NARROW, ON_X86, TARGET, definition_of, run_kernel

BITS = np.arange(0, 2**32, 20011, dtype=np.uint64).astype(np.uint32)
EVERYWHERE = BITS.view(np.float32)
EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 88.72, 88.73, -87.4, 3.4e38, -3.4e38], np.float32
)


def sigmoid(x):
    return np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x)))


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


erf = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "erf": erf,
    "softplus": lambda x: np.logaddexp(x, 0),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def compute(operator, x, target=TARGET, **attributes):
    definition = definition_of(operator, [tensor("float32", x.shape)], **attributes)
    code, (result,) = run_kernel(definition, [x], target=target)
    assert code == 0
    return result


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_errors_stay_below_two_and_a_half_units_in_the_last_place(operator):
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[operator](EVERYWHERE.astype(np.float64))
        rounded = wanted.astype(np.float32)
    got = compute(operator, EVERYWHERE)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    unit = np.spacing(np.maximum(np.abs(rounded[finite]), np.finfo(np.float32).tiny)).astype(np.float64)
    assert np.max(np.abs(got[finite] - wanted[finite]) / unit) < (2 if operator in ("tanh", "sigmoid") else 2.5)


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_edges_are_exact(operator):
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[operator](EDGES.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(compute(operator, EDGES), wanted, rtol=5e-7, atol=1e-44)


@pytest.mark.parametrize(("approximate", "exact"), [("none", gelu), ("tanh", gelu_tanh)])
def test_the_error_of_gelu_is_small_beside_its_argument(approximate, exact):
    x = np.linspace(-20, 20, 100_001, dtype=np.float32)
    error = np.abs(compute("gelu", x, approximate=approximate) - exact(x.astype(np.float64)))
    assert np.all(error <= 2 * np.spacing(np.abs(x)))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("target", [TARGET, *NARROW])
def test_gelu_far_from_zero_is_its_argument_or_nothing(approximate, target):
    x = np.array([1e30, 3e38, np.inf, -1e30, -3e38, -0.0, np.nan, -np.inf], np.float32)
    wanted = np.array([1e30, 3e38, np.inf, 0, 0, 0, np.nan, np.nan], np.float32)
    np.testing.assert_array_equal(compute("gelu", x, target, approximate=approximate), wanted)


@pytest.mark.parametrize(("operator", "most"), [("sin", 2), ("cos", 2), ("tan", 2.5)])
def test_angles_near_multiples_of_right_angles(operator, most):
    turns = np.concatenate([np.arange(-3000, 3000), np.random.default_rng(0).integers(-1_000_000, 1_000_000, 30_000)])
    x = (turns * (np.pi / 2)).astype(np.float32)
    wanted = FUNCTIONS[operator](x.astype(np.float64))
    assert np.max(np.abs(compute(operator, x) - wanted) / np.spacing(np.abs(wanted.astype(np.float32)))) < most


def powers(x, exponents, target=TARGET):
    types = [tensor("float32", x.shape), tensor("float32", exponents.shape)]
    code, (result,) = run_kernel(definition_of("pow", types), [x, exponents], target=target)
    assert code == 0
    return result


def test_powers_are_nearly_rounded_right():
    random = np.random.default_rng(0)
    x = np.abs(EVERYWHERE)
    exponents = np.concatenate([random.normal(0, 3, len(x) // 2), random.normal(0, 200, len(x) - len(x) // 2)])
    exponents = exponents.astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float64) ** exponents.astype(np.float64)
        rounded = wanted.astype(np.float32)
        got = powers(x, exponents)
        near = np.isfinite(rounded)
        np.testing.assert_array_equal(got[~near], rounded[~near])
        unit = np.spacing(np.maximum(rounded[near], np.finfo(np.float32).smallest_subnormal)).astype(np.float64)
    assert np.max(np.abs(got[near] - wanted[near]) / unit) < 1


@pytest.mark.parametrize("target", [TARGET, *NARROW])
def test_powers_of_edges(target):
    exponents = np.array([0.0, -0.0, 1.0, 2.0, 3.0, -3.0, 0.5, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)
    x, exponents = (
        a.reshape(-1) for a in np.meshgrid(np.append(EDGES, [1, -1, 2, 3, -7, 0.5]).astype(np.float32), exponents)
    )
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.float64) ** exponents.astype(np.float64)).astype(np.float32)
    for some in (slice(None), x > 0, x >= 0):
        np.testing.assert_allclose(powers(x[some], exponents[some], target), wanted[some], rtol=2e-7, atol=0)


def doubles():
    """float64 numbers of all sizes, and those of which functions are neither 0 nor 1."""
    random = np.random.default_rng(0)
    everywhere = random.integers(0, 2**64, 30_000, dtype=np.uint64).view(np.float64)
    near = [random.normal(0, size, 30_000) for size in (1e-3, 0.3, 1, 10, 300)]
    return np.concatenate([everywhere, *near, [710.0, 709.7, -745.2, -708.4, 5e-324, -5e-324, 1e-310]])


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("operator", ["exp", "expm1", "tanh", "sin", "cos"])
def test_errors_of_float64_stay_below_two_units_in_the_last_place(operator, target):
    x = doubles()
    if operator in ("sin", "cos"):
        turns = np.random.default_rng(1).integers(-1_000_000, 1_000_000, 20_000)
        x = np.concatenate([x[np.abs(x) < 1e9], turns * (np.pi / 2), np.arange(-3000, 3000) * (np.pi / 2)])
    definition = definition_of(operator, [tensor("float64", x.shape)])
    code, (got,) = run_kernel(definition, [x], target=target)
    assert code == 0
    with np.errstate(all="ignore"):
        wanted = getattr(np, operator)(x.astype(np.longdouble))
        rounded = wanted.astype(np.float64)
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(got[~finite], rounded[~finite])
        unit = np.spacing(np.maximum(np.abs(rounded[finite]), 5e-324)).astype(np.longdouble)
    assert np.max(np.abs(got[finite] - wanted[finite]) / unit) < 2


@pytest.mark.parametrize("operator", ["exp", "expm1", "tanh", "sin", "cos", "sigmoid"])
def test_edges_of_float64_are_exact(operator):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 1e-308] * 3)
    _, (got,) = run_kernel(definition_of(operator, [tensor("float64", x.shape)]), [x])
    with np.errstate(all="ignore"):
        wanted = sigmoid(x) if operator == "sigmoid" else getattr(np, operator)(x)
    np.testing.assert_allclose(got, wanted, rtol=5e-16, atol=0)
    if operator in ("expm1", "tanh", "sin"):
        np.testing.assert_array_equal(np.signbit(got[:2]), [False, True])


@ON_X86
@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512"])
def test_a_nan_of_any_bits_stays_one(cpu):
    """Where the exponent is added to the bits of a power of two, those of NaN may become a number's."""
    numbers = np.uint32([0x7FC00001, 0x7FC001FF, 0xFFC00003, 0x7FFFFFFF] * 4).view("f")
    with compiling_for(instruction_sets.target(cpu)):
        for name in ("exp", "exp_of_negative", "weight_of", "short_weight_of", "expm1", "gelu", "sigmoid", "tanh"):
            assert np.isnan(emitted.call(name, numbers)).all(), name
