"""Rows that nobody reads."""

from __future__ import annotations

import numpy as np
import pytest
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.text import parse_module, print_module
from treadle.compiler.passes import DeadCode, InferTypes, UnreadRows

SIGNATURE = "x: float32[b, n, 4], w: float32[4, 4], v: float32[4, 6], s: float32[4], i: int64[k]"
LAST = "take({}, int64(-1)) {{axis=1}}"
SOME = "take({}, i) {{axis=1}}"
CUT = "slice({}) {{starts=(0,), ends=(2,), axes=(1,)}}"

NARROWED = {
    "a product": ["y = matmul(x, v)", "z = " + LAST.format("y")],
    "by indices": ["y = matmul(x, v)", "z = take(y, int64[2] [0, 1]) {axis=1}"],
    "by bounds": ["y = matmul(x, v)", "z = " + CUT.format("y")],
    "a head": ["h = rms_normalization(x, s)", "y = matmul(h, v)", "z = " + LAST.format("y")],
    "a gate": ["h = matmul(x, w)", "g = silu(h)", "y = multiply(h, g)", "r = add(x, y)", "z = " + LAST.format("r")],
    "two readers of the same rows": [
        *("h = matmul(x, w)", "p = matmul(h, v)", "q = matmul(h, v)"),
        *("c = " + LAST.format("p"), "d = " + LAST.format("q"), "z = subtract(c, d)"),
    ],
    "views": ["y = matmul(x, v)", "h = reshape(y) {shape=(<b>, <n>, 2, 3)}", "z = " + LAST.format("h")],
    "transposed": ["y = matmul(x, v)", "h = permute_dims(y) {axes=(1, 0, 2)}", "z = take(h, int64(-1)) {axis=0}"],
    "of a batch": ["y = matmul(x, w)", "z = slice(y) {starts=(0,), ends=(1,), axes=(0,)}"],
    "in a branch": [
        *("c = less(int64(0), int64(1))", "z = if c { y = matmul(x, v)", LAST.format("y").join(("t = ", " t }"))),
        *("else { h = matmul(x, w)", "p = matmul(h, v)", LAST.format("p").join(("u = ", " u }"))),
    ],
    "a row for all rows": ["y = matmul(x, w)", "h = add(y, s)", "z = " + LAST.format("h")],
}
WHOLE = {
    "more indices than rows, perhaps": ["y = matmul(x, v)", "z = " + SOME.format("y")],
    "a row twice": ["y = matmul(x, v)", "z = take(y, int64[2] [1, 1]) {axis=1}"],
    "a row twice, perhaps": ["y = matmul(x, v)", "z = take(y, int64[2] [-1, 0]) {axis=1}"],
    "all rows are read": ["y = matmul(x, w)", "q = take(y, int64[1] [-1]) {axis=1}", "z = add(y, q)"],
    "other rows are read": [
        *("y = matmul(x, w)", "p = " + LAST.format("y"), "q = take(y, int64(0)) {axis=1}", "z = subtract(p, q)"),
    ],
    "columns": ["y = matmul(x, w)", "z = take(y, int64(0)) {axis=2}"],
    "along the axis of a softmax": ["h = softmax(x) {axis=1}", "z = " + LAST.format("h")],
    "nothing that costs": ["h = add(x, s)", "z = " + LAST.format("h")],
    "merged rows": ["y = matmul(x, w)", "h = reshape(y) {shape=(<b * n>, 4)}", "z = take(h, int64(-1)) {axis=0}"],
    "indices of later": ["y = matmul(x, w)", "j = multiply(i, i)", "z = take(y, j) {axis=1}"],
}


def _before_and_after(lines: list[str]) -> tuple[str, str]:
    module = InferTypes()(parse_module(f"func @main({SIGNATURE}) {{\n" + "\n".join(lines) + "\nz\n}"))
    after = InferTypes()(DeadCode(("main",))(UnreadRows()(module)))
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("f") for shape in ((2, 3, 4), (4, 4), (4, 6), (4,))]
    indices = np.array([1, 0])
    before, now = (evaluate(each, "main", *arrays, indices) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-6)
    return print_module(module), print_module(after)


@pytest.mark.parametrize("case", NARROWED)
def test_rows_that_nobody_reads_are_not_computed(case: str):
    _, after = _before_and_after(NARROWED[case])
    products = [line.split("=")[0] for line in after.splitlines() if "= matmul(" in line]
    assert products
    assert not any("float32[b, n, " in product for product in products), after


@pytest.mark.parametrize("case", WHOLE)
def test_rows_that_are_read_or_mixed_are_computed(case: str):
    before, after = _before_and_after(WHOLE[case])
    assert after == before
