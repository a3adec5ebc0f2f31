"""Functions of Python's in modules: declared, typed, evaluated, and called as often as the program says, in its order."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.compiler.builder.programs import (
    Module,
    constant,
    function,
    global_function,
    if_,
    import_,
    op,
    tuple_,
    var,
    while_loop,
)
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.infer import infer_types
from treadle.compiler.ir.text import parse_module, print_module
from treadle.formats.messages.errors import InferenceError, ParseError, ShapeError, UnknownFunctionError
from treadle.formats.types import FunctionType, TupleType, tensor
from treadle.vm.values import DataValue

from ..structure import structurally_equal

ROWS = tensor("float32", ("n", 4))
NUMBER = tensor("int64", ())
NOTE = FunctionType((NUMBER,), NUMBER)
X = np.arange(8, dtype=np.float32).reshape(2, 4)

note = import_("note", NOTE)


class Notes:
    """Remembers what it was told, and gives it back, one more."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def __call__(self, number: Any) -> int:
        self.told.append(int(np.asarray(getattr(number, "array", number))))
        return self.told[-1] + 1


def run(module: Any, *args: Any, level: int = 2) -> tuple[Any, list[int]]:
    """The machine's result and what was noted; the evaluator's is the same."""
    made, evaluated = Notes(), Notes()
    executable = treadle.compile(module, opt_level=level, progress=False)
    result = treadle.VirtualMachine(executable, imports={"note": made})["main"](*args)
    expected = evaluate(infer_types(module), "main", *args, imports={"note": evaluated})
    assert made.told == evaluated.told
    np.testing.assert_array_equal(result.numpy(), expected)
    return result.numpy().tolist(), made.told


# ---- declared, printed, typed ----


def test_a_module_declares_what_it_calls_and_an_executable_what_it_imports():
    f = import_("f", FunctionType((ROWS,), ROWS))
    x = var("x", ("n", 4))
    module = Module(main=function([x], f(x + x) * 2.0))
    assert dict(module.imports) == {"f": FunctionType((ROWS,), ROWS)}
    executable = treadle.load(treadle.compile(module, progress=False).as_bytes())
    assert list(map(str, executable.program.imports)) == ["f: fn(float32[n, 4]) -> float32[n, 4]"]
    machine = treadle.VirtualMachine(executable, imports={"f": lambda a: a.numpy() + 1})
    np.testing.assert_array_equal(machine["main"](X).numpy(), (2 * X + 1) * 2)


def test_a_type_may_be_text():
    x = var("x", (3,))
    norm = import_("norm", "fn(float32[n]) -> float32[]")
    machine = treadle.VirtualMachine(
        treadle.compile(Module(main=function([x], x / norm(x))), progress=False),
        imports={"norm": lambda x: np.linalg.norm(x.numpy())},
    )
    np.testing.assert_allclose(machine["main"]([3.0, 4.0, 0.0]).numpy(), [0.6, 0.8, 0.0], rtol=1e-6)
    for text in ("float32[n]", "fn(float32[n]) -> float32[] x", "fn("):
        with pytest.raises((InferenceError, ParseError), match="expected"):
            import_("norm", text)


def test_text_says_it_all():
    text = """\
import "my f": fn(float32[n], fn(float32[n]) -> float32[]) -> (float32[n], int64[])

func @main(x: float32[m], g: fn(float32[?]) -> float32[]) {
  y = import "my f"(x, g)
  z = y[0]
  z
}
"""
    module = parse_module(text)
    assert print_module(module) == text
    assert structurally_equal(module, parse_module(print_module(module)))
    assert not structurally_equal(module, parse_module(text.replace("int64[])", "int32[])")))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import f: float32[2]", "an import has the type of a function, not float32"),
        ("import f: fn() -> ()\nimport f: fn() -> ()", "there is an import 'f' already"),
        ("import f fn() -> ()", "expected ':'"),
    ],
)
def test_mistakes_in_text_are_shown(text: str, told: str):
    with pytest.raises(ParseError, match=told):
        parse_module(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("func @main() { y = import f() y }", "there is no import 'f' in this module; it has none"),
        ("import f: fn(int64[]) -> int64[]\nfunc @main() { y = import f() y }", "import f: expected 1 arguments"),
        ("import f: fn(int64[]) -> int64[]\nfunc @main(x: int8[]) { y = import f(x) y }", "argument 0"),
        ("import f: fn(a) -> int64[]\nfunc @main(x: int8[]) { y = import f(x) y }", "is generic"),
        (
            "import f: fn(int8[n], int8[n]) -> ()\nfunc @main(x: int8[2], y: int8[3]) { z = import f(x, y) z }",
            "argument",
        ),
    ],
)
def test_calls_are_typed(text: str, told: str):
    with pytest.raises(InferenceError, match=told):
        infer_types(parse_module(text))


def test_sizes_of_results_follow_from_those_of_arguments():
    module = infer_types(
        parse_module("import f: fn(float32[n]) -> float32[2*n]\nfunc @main(x: float32[m]) { y = import f(x) y }")
    )
    assert str(module.functions["main"].result_type) == "float32[2*m]"


def test_a_name_has_one_type():
    other = import_("note", FunctionType((), NUMBER))
    with pytest.raises(InferenceError, match=r"'note' is .* a name has one type"):
        Module(main=function([], note(other())))
    with pytest.raises(InferenceError, match="expected the type of a function"):
        import_("f", NUMBER)  # type: ignore[arg-type]


def test_data_types_and_closures_go_through():
    text = """
    data List[a] = Nil | Cons(a, List[a])
    import reverse: fn(List[float32[2]]) -> List[float32[2]]
    import twice: fn(fn(float32[2]) -> float32[2], float32[2]) -> float32[2]
    func @main(x: float32[2], y: float32[2]) -> float32[2] {
      nil = List::Nil()
      one = List::Cons(x, nil)
      two = List::Cons(y, one)
      list = import reverse(two)
      plus = fn(z: float32[2]) { s = add(z, y) s }
      head: float32[2] = match list {
        Nil() => { x }
        Cons(h, _) => { h }
      }
      result = import twice(plus, head)
      result
    }
    """

    def reverse(items: Any) -> Any:
        second, rest = items.fields
        first, nil = rest.fields
        return DataValue("Cons", (first, DataValue("Cons", (second, nil))))

    functions = {"reverse": reverse, "twice": lambda f, x: f(f(x))}
    machine = treadle.VirtualMachine(treadle.compile(parse_module(text), progress=False), imports=functions)
    assert machine["main"]([1.0, 2.0], [10.0, 20.0]).numpy().tolist() == [21.0, 42.0]


# ---- the reference ----


def test_the_evaluator_checks_what_it_is_given():
    f = import_("f", FunctionType((ROWS,), ROWS))
    x = var("x", ("n", 4))
    module = infer_types(Module(main=function([x], f(x))))
    with pytest.raises(UnknownFunctionError, match="f: fn"):
        evaluate(module, "main", X)
    with pytest.raises(ShapeError, match="the result of the import 'f'"):
        evaluate(module, "main", X, imports={"f": lambda x: x[:1]})


# ---- as often as the program says, in its order ----


def number(value: int) -> Any:
    return constant(np.int64(value))


def dropped(value: Any, *calls: Any) -> Any:
    """A value, after calls whose results it does not use."""
    return tuple_(*calls, value)[len(calls)]


LEVELS = pytest.mark.parametrize("level", [0, 1, 2])


@LEVELS
def test_calls_of_constants_are_made_when_the_program_runs(level: int):
    assert run(Module(main=function([], note(number(5)) + number(1))), level=level) == (7, [5])


@LEVELS
def test_equal_calls_are_all_made(level: int):
    x = var("x", (), "int64")
    assert run(Module(main=function([x], note(x) + note(x))), np.int64(3), level=level) == (8, [3, 3])


@LEVELS
def test_a_call_whose_result_nobody_wants_is_made(level: int):
    x = var("x", (), "int64")
    result, told = run(Module(main=function([x], dropped(x + x, note(x), note(x + 1)))), np.int64(3), level=level)
    assert (result, told) == (6, [3, 4])


@LEVELS
def test_calls_stay_in_their_order(level: int):
    x = var("x", (), "int64")
    later = note(x * 7)
    first = note(number(1))
    second = note(x + 2)
    body = dropped(second + first * x, first, second, later)
    assert run(Module(main=function([x], body)), np.int64(3), level=level)[1] == [1, 5, 21]


@LEVELS
def test_a_function_that_calls_an_import_is_called_like_one(level: int):
    x, y = var("x", (), "int64"), var("y", (), "int64")
    helper = global_function("helper", FunctionType((NUMBER,), NUMBER))
    body = dropped(x, helper(x), helper(x), helper(x + 1))
    module = Module(main=function([x], body), helper=function([y], note(y * 2)))
    assert run(module, np.int64(3), level=level) == (3, [6, 6, 8])


@LEVELS
def test_a_closure_may_be_one_that_calls_an_import(level: int):
    x, y = var("x", (), "int64"), var("y", (), "int64")
    closure = function([y], note(x + y))
    assert run(Module(main=function([x], dropped(x, closure(x), closure(x)))), np.int64(3), level=level) == (3, [6, 6])


@LEVELS
def test_only_the_branch_that_is_taken_calls(level: int):
    x = var("x", (), "int64")
    chosen = if_(op.less(x, number(5)), note(x), note(x + 100))
    module = Module(main=function([x], dropped(x, chosen)))
    assert run(module, np.int64(3), level=level)[1] == [3]
    assert run(module, np.int64(7), level=level)[1] == [107]


@LEVELS
def test_every_round_of_a_loop_calls(level: int):
    x = var("x", (), "int64")
    loop = while_loop(lambda i: op.less(i, number(4)), lambda i: (note(i),), (x,))
    assert run(Module(main=function([x], loop[0])), np.int64(1), level=level) == (4, [1, 2, 3])


def test_what_no_entry_reaches_is_not_imported():
    x = var("x", (), "int64")
    module = Module(main=function([x], x + 1), other=function([var("y", (), "int64")], note(number(1))))
    assert treadle.compile(module, entry="main", progress=False).program.imports == ()


def test_kernels_are_fused_around_calls_and_not_across_their_order():
    x = var("x", ("n",))
    see = import_("see", FunctionType((tensor("float32", ("n",)),), TupleType(())))
    doubled = x + x
    body = dropped(op.tanh(doubled) * 2.0, see(doubled))
    seen: list[Any] = []
    executable = treadle.compile(Module(main=function([x], body)), progress=False)

    def look(value: Any) -> tuple:
        seen.append(value.numpy().copy())
        return ()

    result = treadle.VirtualMachine(executable, imports={"see": look})["main"](X[0])
    np.testing.assert_array_equal(seen[0], 2 * X[0])
    np.testing.assert_allclose(result.numpy(), 2 * np.tanh(2 * X[0]), rtol=1e-6)


class RandomText:
    """Random functions of integers that note some of them: in branches, loops, closures, by other functions, and for nothing."""

    def __init__(self, seed: int) -> None:
        self.random, self.count, self.helpers = Random(seed), 0, 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def module(self) -> str:
        parts = ["import note: fn(int64[]) -> int64[]\n"]
        for _ in range(self.random.randrange(3)):
            parts.append(f"func @helper{self.helpers}(a: int64[], b: int64[]) -> int64[] {self.block(['a', 'b'], 1)}\n")
            self.helpers += 1
        return "\n".join([*parts, f"func @main(x: int64[], y: int64[]) -> int64[] {self.block(['x', 'y'], 0)}\n"])

    def block(self, known: list[str], depth: int) -> str:
        known, lines = list(known), []
        for _ in range(self.random.randrange(1, 7 - 2 * depth)):
            name = self.name()
            lines.append(f"{name}: int64[] = {self.step(known, depth, lines)}")
            known.append(name)
        return "\n".join(["{", *lines, self.random.choice(known), "}"])

    def step(self, known: list[str], depth: int, lines: list[str]) -> str:
        kind = self.random.choice(["note", "note", "add", "remainder", "call", "if", "loop", "closure"])
        a, b = self.random.choice(known), self.random.choice([*known, "int64(3)"])
        if kind == "call" and self.helpers:
            return f"@helper{self.random.randrange(self.helpers)}({a}, {b})"
        if kind == "add":
            return f"add({a}, {b})"
        if depth > 1 or kind in ("note", "call"):
            return f"import note({a})"
        small, flag, other = self.name(), self.name(), self.name()
        lines.append(f"{small}: int64[] = remainder({a}, int64(3))")
        if kind == "if":
            lines.append(f"{flag}: bool[] = greater({small}, int64(1))")
            return f"if {flag} {self.block(known, depth + 1)} else {self.block(known, depth + 1)}"
        if kind == "loop":
            after, inner = self.name(), self.name()
            ends = f"while {{ {flag}: bool[] = less({other}, int64(3)) {flag} }}"
            step = f"{after}f = fn({inner}: int64[]) {self.block([*known, inner], depth + 1)}"
            called = f"{after}n: int64[] = call {after}f({other})"
            result = f"{after}: int64[] = add({other}, int64(1)) {after}t = ({after},) {after}t"
            lines.append(f"{small}loop = loop ({other}: int64[] = {small}) {ends} do {{ {step} {called} {result} }}")
            return f"{small}loop[0]"
        if kind == "closure":
            lines.append(f"{flag} = fn({other}: int64[]) {self.block([*known, other], depth + 1)}")
            lines.append(f"{self.name()}: int64[] = call {flag}({a})")
            return f"call {flag}({b})"
        return f"remainder({a}, int64(5))"


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_note_the_same_in_the_same_order(seed: int):
    module = parse_module(RandomText(seed).module())
    for level in (0, 1, 2):
        for numbers in ((0, 1), (5, -2)):
            run(module, *map(np.int64, numbers), level=level)


def test_a_result_whose_size_is_divided_by_0_is_a_named_error() -> None:
    parts = import_(
        "parts", FunctionType((tensor("float32", ("n",)), tensor("float32", ("m",))), tensor("float32", ("n // m",)))
    )
    x, y = var("x", ("n",)), var("y", ("m",))
    program = treadle.compile(Module(main=function([x, y], parts(x, y))), progress=False)
    machine = treadle.VirtualMachine(program, imports={"parts": lambda x, y: np.zeros(2, np.float32)})
    assert machine["main"](np.zeros(4, np.float32), np.zeros(2, np.float32)).numpy().tolist() == [0, 0]
    with pytest.raises(ShapeError, match=r"its result: a dimension \(?n // m\)? is divided by 0 \(n = 4, m = 0\)"):
        machine["main"](np.zeros(4, np.float32), np.zeros(0, np.float32))
