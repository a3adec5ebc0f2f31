"""Functional programs as other virtual machines for tensors test themselves with: lists, closures, recursion, loops."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest
from treadle.compiler.ir.text import parse_module
from treadle.formats.executable import load
from treadle.formats.messages.errors import ExecutionError
from treadle.vm.machine import VirtualMachine

from ..prelude import with_prelude
from ..test_compile import run, saved


def value(text: str, *arguments: object) -> Any:
    """What a program gives, compiled, saved, loaded and run; its text may use the prelude."""
    return run(saved(with_prelude(parse_module(textwrap.dedent(text)))), *arguments)


def numbers(items: Any) -> list:
    """A list of the machine as one of Python."""
    found = []
    while items.fields:
        found.append(np.asarray(items.fields[0]).item())
        items = items.fields[1]
    return found


def with_list(body: str) -> str:
    """A function of x whose list is xs = [x, x + 1, x + 2]."""
    return f"""
    func @main(x: int64[]) {{
      y = add(x, int64(1))
      z = add(x, int64(2))
      nil = List::Nil()
      zs = List::Cons(z, nil)
      ys = List::Cons(y, zs)
      xs = List::Cons(x, ys)
      {body}
      r
    }}"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("r = @head(xs)", 7),
        ("r = @nth(xs, int64(2))", 9),
        ("r = @length(xs)", 3),
        ("f = fn(a: int64[], b: int64[]) { s = subtract(a, b)\ns }\nr = @foldl(f, x, xs)", 7 - 7 - 8 - 9),
        ("f = fn(a: int64[], b: int64[]) { s = subtract(a, b)\ns }\nr = @foldr(f, x, xs)", 7 - (8 - (9 - 7))),
        ("f = fn(a: int64[]) { s = multiply(a, a)\ns }\ng = @iterate(f, int64(3))\nr = call g(int64(2))", 256),
        (
            "f = fn(a: int64[]) { s = multiply(a, x)\ns }\ng = fn(a: int64[]) { s = add(a, x)\ns }\n"
            "h = @compose(f, g)\nr = call h(x)",
            (7 + 7) * 7,
        ),
    ],
)
def test_functions_of_lists_that_give_a_number(body: str, expected: int) -> None:
    assert np.asarray(value(with_list(body), np.int64(7))).item() == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("r = @tail(xs)", [8, 9]),
        ("r = @update(xs, int64(1), int64(0))", [7, 0, 9]),
        ("f = fn(a: int64[]) { s = multiply(a, x)\ns }\nr = @map(f, xs)", [49, 56, 63]),
        ("f = fn(a: int64[]) { s = less(x, a)\ns }\nr = @filter(f, xs)", [8, 9]),
        ("r = @append(xs, ys)", [7, 8, 9, 8, 9]),
        ("r = @reverse(xs)", [9, 8, 7]),
    ],
)
def test_functions_of_lists_that_give_a_list(body: str, expected: list[int]) -> None:
    assert numbers(value(with_list(body), np.int64(7))) == expected


def test_the_tail_of_the_empty_list_is_an_error() -> None:
    with pytest.raises(ExecutionError, match="no clause"):
        value(
            "func @main(x: int64[]) {\nnil = List::Nil()\nxs = List::Cons(x, nil)\na = @tail(xs)\nr = @tail(a)\nr }",
            np.int64(1),
        )


def test_counting_by_recursion() -> None:
    text = """
    func @count(i: int64[]) -> int64[] {
      c = equal(i, int64(0))
      r = if c {
        i
      } else {
        j = subtract(i, int64(1))
        k = @count(j)
        n = add(int64(1), k)
        n
      }
      r
    }
    func @main(i: int64[]) {
      r = @count(i)
      r
    }"""
    assert value(text, np.int64(1000)).numpy() == 1000


def test_a_loop_with_a_variable_from_outside() -> None:
    text = """
    func @main(k: int64[]) {
      last = loop (i: int64[] = int64(0), s: int64[] = int64(0)) while {
        c = less(i, int64(10))
        c
      } do {
        j = add(i, int64(1))
        m = multiply(i, k)
        t = add(s, m)
        r = (j, t)
        r
      }
      v = last[1]
      v
    }"""
    assert value(text, np.int64(2)).numpy() == 90


def test_a_list_that_came_from_outside_and_went_back() -> None:
    text = with_list("r = (xs, ys)") + "\nfunc @again(xs: List[int64[]]) -> int64[] {\nr = @length(xs)\nr }\n"
    data = saved(with_prelude(parse_module(textwrap.dedent(text))), entries=("main", "again"))
    machine = VirtualMachine(load(data), kernels="cached")
    xs, ys = machine["main"](np.int64(1))
    assert (machine["again"](xs).numpy(), machine["again"](ys).numpy()) == (3, 2)


def test_a_shape_that_grows_in_recursion() -> None:
    text = """
    func @grow(n: int64[], x: float32[?]) -> float32[?] {
      c = less(n, int64(1))
      r = if c {
        x
      } else {
        m = subtract(n, int64(1))
        y = concat(x, x)
        z = @grow(m, y)
        z
      }
      r
    }
    func @main(n: int64[], x: float32[3]) {
      r = @grow(n, x)
      r
    }"""
    assert value(text, np.int64(4), np.ones(3, np.float32)).shape == (48,)
