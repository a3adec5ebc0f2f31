"""Element types that NumPy lacks: kernels convert them as `ml_dtypes` does, bit by bit, and move and compute what holds them."""

from __future__ import annotations

import numpy as np
import pytest
from treadle.compiler.ir.evaluate import evaluate_definition
from treadle.formats.dtypes import DType
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, Builder, definition_of, run_kernel

pytest.importorskip("ml_dtypes")

TYPES = [dtype for dtype in DType if not dtype.is_numpys and not dtype.is_string]
FLOATS = [dtype for dtype in TYPES if dtype.is_float]
INTEGERS = [dtype for dtype in TYPES if dtype.is_integer]


def every(dtype: DType) -> np.ndarray:
    """Every value of a type that NumPy lacks."""
    return np.arange(1 << dtype.value.bits).astype(f"uint{8 * dtype.itemsize}").view(dtype.numpy)


def between(dtype: DType) -> np.ndarray:
    """Numbers of float32 at, between and beside those of a type, beyond them, and the special ones."""
    values = every(dtype).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    halves = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    near = np.concatenate(
        [np.nextafter(part, np.float32(way)) for part in (values, halves) for way in (-np.inf, np.inf)]
    )
    beyond = np.float32([0.0, -0.0, 1e-45, 1e-39, 1e9, 3e38, np.inf, np.nan])
    if dtype is DType.float4_e2m1fn:
        beyond = beyond[:-1]  # it has no NaN: of which sign 0 is then is nobody's concern
    return np.concatenate([values, halves, near, beyond, -beyond, np.float32(np.random.default_rng(0).normal(size=99))])


def same(got: np.ndarray, wanted: np.ndarray) -> None:
    """The same bits, but for those of NaN."""
    wide = wanted.astype(np.float32) if not DType.of(wanted.dtype).is_numpys else wanted
    is_nan = np.isnan(wide)
    np.testing.assert_array_equal(np.isnan(got.astype(wide.dtype)), is_nan)
    bits = f"uint{8 * wanted.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(bits)[~is_nan], wanted.view(bits)[~is_nan])


def run(definition, *arrays: np.ndarray, target=TARGET) -> np.ndarray:  # type: ignore[no-untyped-def]
    code, (result,) = run_kernel(definition, arrays, target=target)
    assert code == 0
    return result


def cast(array: np.ndarray, dtype: DType, target=TARGET) -> np.ndarray:  # type: ignore[no-untyped-def]
    params = [tensor(DType.of(array.dtype), array.shape)]
    definition = definition_of("cast", params, dtype=dtype)
    (wanted,) = evaluate_definition(definition, [array], [])
    result = run(definition, array, target=target)
    same(result, wanted)
    return result


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_value_becomes_float32_and_comes_back(dtype: DType, target) -> None:  # type: ignore[no-untyped-def]
    wide = cast(every(dtype), DType.float32, target)
    same(wide, every(dtype).astype(np.float32))
    same(cast(wide, dtype, target), every(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")
def test_numbers_are_rounded_as_ml_dtypes_does(dtype: DType, source: str) -> None:
    numbers = between(dtype).astype(DType.of(source).numpy)
    same(cast(numbers, dtype), numbers.astype(np.float32).astype(dtype.numpy))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float64_is_rounded_once(dtype: DType) -> None:
    values = np.unique(every(dtype).astype(np.float64)[: 1 << min(dtype.value.bits - 1, 14)])
    values = values[np.isfinite(values) & (values > 1e-30)]
    halves = (values[1:] + values[:-1]) / 2
    above = cast(np.nextafter(halves, np.inf), dtype).astype(np.float64)
    np.testing.assert_array_equal(above, values[1:])
    below = cast(np.nextafter(halves, 0), dtype).astype(np.float64)
    np.testing.assert_array_equal(below, values[:-1])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_keep_their_lowest_bits_and_floats_are_kept_in_range(dtype: DType) -> None:
    np.testing.assert_array_equal(
        cast(np.arange(-128, 128, dtype=np.int8), dtype), np.arange(-128, 128).astype(dtype.numpy)
    )
    least, greatest = dtype.bounds
    floats = np.float32([-1e9, -2.9, -0.5, 0.0, 0.9, 1.0, 1e9, np.nan])
    wanted = np.clip(np.trunc(np.nan_to_num(floats)), least, greatest)
    np.testing.assert_array_equal(cast(floats, dtype).astype(np.float32), wanted)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_elements_are_moved_as_they_are(dtype: DType) -> None:
    array = every(dtype)[:256].reshape(-1, 4)
    definition = definition_of("permute_dims", [tensor(dtype, array.shape)], axes=(1, 0))
    np.testing.assert_array_equal(run(definition, array).view(np.uint8), np.ascontiguousarray(array.T).view(np.uint8))


@pytest.mark.parametrize("dtype", [DType.bfloat16, DType.float8_e5m2, DType.int4, DType.uint2], ids=str)
def test_results_are_rounded_after_each_operator(dtype: DType) -> None:
    array = every(dtype)
    build = Builder(tensor(dtype, array.shape), tensor(dtype, array.shape))
    definition = build.definition(build("maximum", build("add", build("multiply", 0, 1), 1), 0))
    arrays = [array, np.roll(array, 3)]
    same(run(definition, *arrays), evaluate_definition(definition, arrays, [])[0])
