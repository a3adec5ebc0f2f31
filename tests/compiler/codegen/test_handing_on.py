"""Tensors of the heap that primitives give another value in place, from round to round of a loop: `memory._HandingOn`.

Wherever something else is seen of a tensor, a new one is made: programs give what the evaluator gives, and the verifier, which
decides by itself what may be written into, takes them all.
"""

from __future__ import annotations

import itertools
import re
import warnings
from random import Random

import numpy as np
import pytest
from treadle.compiler.driver import compile_module
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.ir.text import parse_module
from treadle.formats.executable import Executable
from treadle.formats.text.dis import dis
from treadle.vm.machine import VirtualMachine

PARAMS = "x: float32[n, 4], p: float32[1, 4], q: float32[1, 4], i: int64[]"
FUNCTIONS = """
func @new(v: float32[n, 4]) -> float32[n, 4] { w = negative(v) w }
func @same(v: float32[n, 4]) -> float32[n, 4] { v }
"""
RNG = np.random.default_rng(0)
ARRAYS = [RNG.integers(-9, 9, shape).astype("f") for shape in ((3, 4), (1, 4), (1, 4))] + [np.array(1)]


def run(lines: str, level: int = 2) -> list[str]:
    """The instructions of a program, which gives what the evaluator gives."""
    module = parse_module(f"{FUNCTIONS}func @main({PARAMS}) {{\n{lines}\n}}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the host evaluates
        program = compile_module(module, opt_level=level).program
    given = [array.copy() for array in ARRAYS]
    made = VirtualMachine(Executable(program), kernels="cached")["main"](*given)
    for got, wanted in zip(made, evaluate(infer_types(module), "main", *ARRAYS), strict=True):  # type: ignore[arg-type]
        np.testing.assert_array_equal(got.numpy(), wanted)
    for array, before in zip(given, ARRAYS, strict=True):
        np.testing.assert_array_equal(array, before)
    return [f"{item.opname} {item.argrepr}" for item in dis(program, "main")]


# What a loop's two variables start as, and its body; whether the first put_slice writes into what it takes.
BODIES: dict[str, tuple[str, str, str, bool]] = {
    "a variable": ("y", "z", "t = put_slice(s, c) {start=1} r = (j, t, o)", True),
    "twice": ("y", "z", "t = put_slice(s, c) {start=1} u = put_slice(t, p) {start=0} r = (j, u, o)", True),
    "in a branch": ("y", "z", "t = if d { a = put_slice(s, c) {start=1} a } else { s } r = (j, t, o)", True),
    "read before": (
        "y",
        "z",
        "a = slice(s) {starts=(2,), ends=(3,)} t = put_slice(s, a) {start=0} r = (j, t, o)",
        True,
    ),
    "beside another": ("y", "z", "t = put_slice(s, c) {start=1} u = add(o, p) r = (j, t, u)", True),
    "kept for the next round": ("y", "z", "t = put_slice(s, c) {start=1} r = (j, t, s)", False),
    "two that change places": ("y", "z", "t = put_slice(s, c) {start=1} r = (j, o, t)", False),
    "read behind it": ("y", "z", "t = put_slice(s, c) {start=1} u = add(t, s) r = (j, t, u)", False),
    "two of one start": ("y", "y", "t = put_slice(s, c) {start=1} u = put_slice(o, p) {start=0} r = (j, t, u)", False),
    "a start that is read": ("y", "z", "t = put_slice(s, c) {start=1} u = add(o, y) r = (j, t, u)", False),
    "the caller's": ("x", "z", "t = put_slice(s, c) {start=1} r = (j, t, o)", False),
    "given to a function": ("y", "z", "t = put_slice(s, c) {start=1} u = @same(t) r = (j, t, u)", False),
    "captured": ("y", "z", "t = put_slice(s, c) {start=1} g = fn() { t } u = call g() r = (j, t, u)", False),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_loop_writes_into_what_nothing_else_holds(name: str) -> None:
    first, second, body, is_in_place = BODIES[name]
    lines = run(f"""
        y = negative(x) z = abs(y)
        last = loop (k: int64[] = int64(0), s = {first}, o = {second}) while {{ go = less(k, int64(3)) go }} do {{
          j = add(k, int64(1)) f = cast(k) {{dtype=float32}} c = add(p, f) d = equal(k, i)
          {body} r
        }}
        a = last[1] b = last[2] v = abs(a) w = abs(b) both = (v, w) both""")
    put = next(line for line in lines if line.startswith("call put_slice"))
    source, target = re.findall(r"\((r\d+)", put)
    assert (source == target) == is_in_place, put


class Programs:
    """Random programs of tensors that loops carry: put into, kept, swapped, chosen, and given away."""

    def __init__(self, seed: int) -> None:
        self.random, self.names = Random(seed), itertools.count()

    def text(self) -> str:
        lines, pool = self.body(["x", "y", "z"], 0)
        last = self.loop([*pool], 0, "last")
        result = self.random.choice(("w = abs(last) t = (w, last)", "t = (last, last)", "w = abs(last) t = (w, y)"))
        return f"y = negative(x) z = abs(y) {lines} {last} {result} t"

    def body(self, pool: list[str], depth: int) -> tuple[str, list[str]]:
        lines, pool = [], [*pool]
        for _ in range(self.random.randrange(1, 5)):
            name = f"v{next(self.names)}"
            kind = self.random.choice(
                (self.put, self.put, self.put, self.other, self.call, self.choice, self.loop)[: 7 if depth < 2 else 5]
            )
            lines.append(kind(pool, depth, name))
            pool.append(name)
        return " ".join(lines), pool

    def recent(self, pool: list[str]) -> str:
        return self.random.choice(pool[-4:])

    def put(self, pool: list[str], depth: int, name: str) -> str:
        part = self.random.choice(("p", "q", name + "p"))
        cut = f"{part} = slice({self.random.choice(pool)}) {{starts=(0,), ends=(1,)}} " if part not in "pq" else ""
        return f"{cut}{name} = put_slice({self.recent(pool)}, {part}) {{start={self.random.randrange(2)}}}"

    def other(self, pool: list[str], depth: int, name: str) -> str:
        made = f"negative({self.recent(pool)})", f"add({self.recent(pool)}, {self.random.choice(pool)})"
        return f"{name} = {self.random.choice(made)}"

    def call(self, pool: list[str], depth: int, name: str) -> str:
        return f"{name} = @{self.random.choice(('new', 'same'))}({self.recent(pool)})"

    def choice(self, pool: list[str], depth: int, name: str) -> str:
        (first, one), (second, other) = (self.body(pool, depth + 1) for _ in range(2))
        branches = f"{{ {first} {self.recent(one)} }} else {{ {second} {self.recent(other)} }}"
        return f"{name}c = equal(i, int64({self.random.randrange(3)})) {name} = if {name}c {branches}"

    def loop(self, pool: list[str], depth: int, name: str) -> str:
        states = [f"{name}s{number}" for number in range(self.random.randrange(1, 4))]
        starts = ", ".join(f"{state}: float32[n, 4] = {self.recent(pool)}" for state in states)
        lines, after = self.body(pool + states, depth + 1)
        results = ", ".join(self.random.choice(after[-4:] + states) for _ in states)
        return (
            f"{name}l = loop ({name}i: int64[] = int64(0), {starts}) "
            f"while {{ {name}c = less({name}i, int64({self.random.randrange(1, 4)})) {name}c }} "
            f"do {{ {lines} {name}n = add({name}i, int64(1)) {name}r = ({name}n, {results}) {name}r }} "
            f"{name} = {name}l[{self.random.randrange(len(states)) + 1}]"
        )


@pytest.mark.parametrize("first", [100, 160, 190, 2040, 2300])  # each has a program that one rule alone saves
def test_random_loops_keep_their_values(first: int) -> None:
    for number in range(first, first + 10):
        run(Programs(number).text(), level=number % 3)
