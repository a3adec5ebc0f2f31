"""Joins and splits that copy nothing: what the planner of memory makes of them, and that values stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from treadle.compiler import ir
from treadle.compiler.builder.programs import Module, function, op, tuple_, var
from treadle.compiler.driver import compile_module
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types

from ..test_compile import assert_equal, run, saved
from .test_codegen import listing

_WIDTH = 16  # a row is as long as the alignment of tensors, so that each may begin a part


def test_the_inputs_of_a_join_are_written_where_they_are_joined() -> None:
    lines = listing("""
        func @main(x: float32[1, 2, 16], y: float32[1, 3, 16]) {
          a = exp(x)
          b = sqrt(y)
          c = concat(a, b) {axis=1}
          d = sum(c)
          d
        }""")
    offsets = {line.split()[1]: line.split()[-1] for line in lines if line.startswith("frame_tensor")}
    assert sorted(offsets.values()) == ["0", "0", "128"]  # c, a, b


def test_tensors_that_grow_lie_in_the_last_of_them() -> None:
    text = "func @main(x: float32[2, 16]) {\na = exp(x)\nb = concat(a, x) {axis=0}\nc = sqrt(b)\nd = concat(b, c) {axis=0}\n"
    text += "e = exp(d)\nf = concat(b, c, e) {axis=0}\ng = sum(f)\ng }"
    report = compile_module(infer_types(_parse(text))).memory[0]
    assert report.frame_bytes == 16 * _WIDTH * 4  # f


def test_parts_of_a_split_stay_where_they_are() -> None:
    text = "func @main(x: float32[4, 16]) {\na = exp(x)\np = split(a) {axis=0, sizes=(1, 3)}\nq = p[0]\nr = p[1]\n"
    text += "s = sum(q)\nt = sum(r)\nu = add(s, t)\nu }"
    report = compile_module(infer_types(_parse(text))).memory[0]
    assert report.frame_bytes <= 4 * _WIDTH * 4 + 2 * 64


def _parse(text: str) -> ir.Module:
    from treadle.compiler.ir.text import parse_module

    return parse_module(text)


@st.composite
def graphs(draw: Callable[[st.SearchStrategy], Any]) -> ir.Module:
    """Graphs in which tensors of a few rows are joined, split, and computed with."""
    x = var("x", (2, _WIDTH))
    values = [(op.relu(x), 2), (op.exp(x), 2)]
    for _ in range(draw(st.integers(2, 14))):
        kind = draw(st.sampled_from(["join", "join", "split", "slice", "compute", "add"]))
        chosen = [draw(st.sampled_from(values[-5:])) for _ in range(draw(st.integers(2, 4)))]
        (first, rows), (second, others) = chosen[:2]
        if kind == "join" and sum(count for _, count in chosen) < 60:
            values.append((op.concat(*(value for value, _ in chosen), axis=0), sum(count for _, count in chosen)))
        elif kind == "split" and rows > 1:
            low = draw(st.integers(1, rows - 1))
            parts = op.split(first, axis=0, sizes=(low, rows - low))
            values += [(parts[0], low), (parts[1], rows - low)]
        elif kind == "slice" and rows > 2:
            low = draw(st.integers(0, rows - 2))
            values.append((op.slice(first, starts=(low,), ends=(rows - 1,), axes=(0,)), rows - 1 - low))
        elif kind == "add" and rows == others:
            values.append((op.multiply(op.add(first, second), 0.5), rows))
        else:
            values.append((op.tanh(first), rows))
    results = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    return Module(
        main=function([x], tuple_(*(op.sum(op.sin(value), axes=(1,)) for value, _ in results), values[-1][0]))
    )


@pytest.mark.parametrize("level", [0, 2])
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(graphs())
def test_values_of_any_joins_and_splits(level: int, module: ir.Module) -> None:
    x = np.random.default_rng(0).standard_normal((2, _WIDTH)).astype(np.float32)
    assert_equal(run(saved(module, opt_level=level), x), evaluate(infer_types(module), "main", x))


def test_a_join_that_a_loop_carries_is_not_written_before_it_is_read() -> None:
    text = """
    func @main(x: float32[2, 16], n: int64[]) {
      first = concat(x, x) {axis=0}
      last = loop (i: int64[] = int64(0), s: float32[4, 16] = first) while {
        c = less(i, n)
        c
      } do {
        j = add(i, int64(1))
        a = sum(s) {axes=(0,), keepdims=true}
        b = tanh(a)
        y = add(x, b)
        z = exp(b)
        k = sum(s) {axes=(0,), keepdims=true}
        w = add(z, k)
        v = concat(y, w, b) {axis=0}
        r = (j, v)
        r
      }
      v = last[1]
      t = sum(v) {axes=(1,)}
      t
    }"""
    module, x = _parse(text), np.random.default_rng(0).standard_normal((2, _WIDTH)).astype(np.float32)
    for rounds in (0, 1, 4):
        count = np.array(rounds, np.int64)
        assert_equal(run(saved(module), x, count), evaluate(infer_types(module), "main", x, count))


def test_parts_that_are_wanted_behind_a_branch_and_in_every_round_of_a_loop_stay_what_they_are() -> None:
    """`a` is joined in one branch, where the whole is written over; `p` is split off what every round reads again."""
    module = _parse("""
    func @main(x: float32[2, 16], n: int64[], c: bool[]) {
      a = sin(x)
      b = tanh(x)
      w = if c {
        d = concat(a, b) {axis=0}
        e = relu(d)
        e
      } else {
        f = concat(b, a) {axis=0}
        f
      }
      last = loop (i: int64[] = int64(0), s: float32[2, 16] = b) while {
        g = less(i, n)
        g
      } do {
        parts = split(w) {axis=0, sizes=(2, 2)}
        p = parts[0]
        q = parts[1]
        t = tanh(q)
        u = add(p, t)
        v = add(u, s)
        j = add(i, int64(1))
        r = (j, v)
        r
      }
      v = last[1]
      y = concat(v, a, w) {axis=0}
      z = sum(y) {axes=(1,)}
      z
    }""")
    x = np.random.default_rng(0).standard_normal((2, _WIDTH)).astype(np.float32)
    for rounds, condition in ((0, False), (1, True), (3, True), (3, False)):
        arguments = x, np.array(rounds, np.int64), np.array(condition)
        assert_equal(run(saved(module), *arguments), evaluate(infer_types(module), "main", *arguments))
