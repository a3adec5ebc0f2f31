"""Rows that are one axis for a product only."""

from __future__ import annotations

import numpy as np
import pytest
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.text import parse_module, print_module
from treadle.compiler.passes import DeadCode, InferTypes, SplitRows

SIGNATURE = "x: float32[{n}, 3, 4], w: float32[4, 6], b: float32[6], r: float32[{n}, 3, 6], q: float32[{m}, 6]"
FLAT = "f = reshape(x) {{shape=({m}, 4)}}\np = matmul(f, w)"
BACK = "y = reshape({}) {{{{shape=({{n}}, 3, 6)}}}}"

APART = {
    "a product": [BACK.format("p")],
    "a bias": ["s = add(p, b)", BACK.format("s")],
    "an activation": ["s = add(b, p)", 'a = gelu(s) {{approximate="tanh"}}', BACK.format("a")],
    "another matrix": ["s = add(p, q)", BACK.format("s")],
    "a gate": ["s = sigmoid(p)", "o = multiply(s, q)", BACK.format("o")],
    "two products": ["s = gelu(p)", "t = matmul(s, v)", BACK.format("t")],
}
TOGETHER = {
    "what is needed as it is": ["s = sigmoid(p)", BACK.format("p"), "z = concat(s, s) {{axis=0}}"],
    "rows of another length": ["y = reshape(p) {{shape=({n}, 6, 3)}}"],
    "no product": ["s = add(q, b)", BACK.format("s")],
}


def check(lines: list[str], symbolic: bool, applies: bool) -> None:
    sizes = {"n": "<n>", "m": "<3 * n>"} if symbolic else {"n": 2, "m": 6}
    plain = {"n": "n", "m": "3 * n"} if symbolic else sizes
    body = "\n".join([FLAT, *lines]).format(**sizes)
    signature = SIGNATURE.format(**plain) + (", v: float32[6, 6]" if "v)" in body else "")
    result = "z" if "z =" in body else "y"
    module = InferTypes()(parse_module(f"func @main({signature}) {{\n{body}\n{result}\n}}"))
    after = InferTypes()(DeadCode(("main",))(SplitRows()(module)))
    assert ("reshape(" not in print_module(after).replace("reshape(q)", "")) == applies
    random = np.random.default_rng(0)
    shapes = [(2, 3, 4), (4, 6), (6,), (2, 3, 6), (6, 6), (6, 6)][: 6 if "v)" in body else 5]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    before, now = (evaluate(each, "main", *arrays) for each in (module, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", APART)
def test_rows_stay_apart(case: str, symbolic: bool) -> None:
    check(APART[case], symbolic, applies=True)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", TOGETHER)
def test_rows_that_stay_as_they_are(case: str, symbolic: bool) -> None:
    check(TOGETHER[case], symbolic, applies=False)
