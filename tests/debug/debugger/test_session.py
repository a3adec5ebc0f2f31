"""What a session shows and changes: conditions, places, values, and where these come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle
from treadle import DType, Module, TensorType, data_type, for_loop, function, global_function, match_, op, var
from treadle.debug.debugger.conditions import FUNCTIONS, Condition
from treadle.formats.messages.errors import ArgumentError, ShapeError
from treadle.vm.machine import VirtualMachine
from treadle.vm.values import DataValue

X = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, np.nan]], np.float32)
VALUES = {"x": X, "n": np.int64(3), "r0": np.zeros((), np.float32), "e": np.zeros((0,), np.float32)}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("any(isnan(x))", True),
        ("max(abs(x[0])) > 2 and not any(isnan(x[0]))", True),
        ("max(abs(x[0, :2])) > 1e4", False),
        ("x[0, -1] == 3", True),
        ("x.shape == (2, 3)", True),
        ("x.size == 6 and x.dtype == 'float32'", True),
        ("1 < n <= 3", True),
        ("n ** 2 == 9 or any(foo)", True),
        ("sum(x[0]) == 2.0", True),
        ("2 ** 100 > 1", True),  # powers are floats
        ("any(isnan(n))", False),
        ("norm(x[1, :2]) > 6", True),
        ("-n % 2 == 1", True),
        ("len(x) == 2", True),
    ],
)
def test_a_condition_holds(text: str, wanted: bool) -> None:
    text = text.replace("any(foo)", "any(x > 9)")
    assert Condition(text).holds(VALUES) is wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os')", "there is no function '__import__'"),
        ("x.__class__", "a value has shape, size, dtype, no '__class__'"),
        ("x.tofile('a')", "there is no function 'x.tofile'"),
        ("[y for y in x]", "ListComp is not of the language"),
        ("lambda: 1", "Lambda is not of the language"),
        ("(y := 1)", "NamedExpr is not of the language"),
        ("max(x, 1)", "max takes one value"),
        ("max(*x)", "max takes one value"),
        ("x if 1 else 2", "IfExp is not of the language"),
        ("f'{x}'", "JoinedStr is not of the language"),
        ("{}", "Dict is not of the language"),
        ("...", "Ellipsis is not a number"),
        ("1j", "1j is not a number"),
        ("x +", "invalid syntax"),
        ("", "invalid syntax"),
        ("\0", "null bytes"),
        ("(" * 400 + "1" + ")" * 400, "too many nested parentheses"),
        ("1+" * 150 + "1", "terms; at most"),
        ("x" * 1001, "characters; at most 1000"),
        ("any(isnann(x))", "there is no function 'isnann'; there are any.*did you mean isnan"),
    ],
)
def test_what_is_not_of_the_language_is_refused_when_it_is_set(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Condition(text)


@pytest.mark.parametrize(
    "text", ["x", "x > 1", "x[7]", "x + x[:1, :2]", "max(e)", "not x", "x['a']", "x.shape + 1 < 2"]
)
def test_what_cannot_be_evaluated_says_so(text: str) -> None:
    with pytest.raises(ArgumentError, match="condition"):
        Condition(text).holds(VALUES)


def test_every_function_takes_every_kind_of_tensor() -> None:
    for name in FUNCTIONS:
        for value in (X, X.astype(np.float16), np.arange(3), np.array([True, False]), np.array(1.5, np.float32)):
            if name != "len" or value.ndim:
                Condition(f"{name}(x)").value({"x": value})


# ---- a program of all kinds ----

VECTOR = TensorType(DType.of("float32"), (2,))
List = data_type("List = Nil | Cons(float32[2], List)")


@pytest.fixture(scope="module")
def machine() -> VirtualMachine:
    items, total, x, k = var("items", List()), global_function("total"), var("x", (2,)), var("k", ())
    scaled = function([y := var("y", (2,))], y * k)
    (looped,) = for_loop(3, lambda i, s: (op.tanh(s),), [x])
    clauses = {List.Nil: np.zeros(2, np.float32), List.Cons: lambda head, rest: head + total(rest)}
    module = Module(
        total=function([items], match_(items, clauses), result_type=VECTOR),
        makes=function([k], scaled),
        loops=function([x], looped),
        product=function([x], op.matmul(op.reshape(x, shape=(1, 2)), np.ones((2, 2), np.float32))),
        marked=function([x], op.sqrt(treadle.debug.breakpoint(op.exp(x)))),
    )
    return VirtualMachine(
        treadle.compile(module, entry=["total", "makes", "loops", "marked", "product"], progress=False)
    )


def cons(*heads: float) -> DataValue:
    found = DataValue("Nil")
    for head in reversed(heads):
        found = DataValue("Cons", ([head, head], found))
    return found


def test_recursion_is_frames_and_data_values_have_fields(machine: VirtualMachine, no_leak: None) -> None:
    with machine.debug("total", [cons(1, 2, 3)]) as session:
        point = session.break_at("total")
        levels = [session.resume() and len(session.frames()) for _ in range(3)]
        assert levels == [2, 3, 4]
        assert session.value("items").text == "Nil()"
        outer = {each.name: each.value.text for each in session.registers(1)}
        name = next(name for name, text in outer.items() if text == "[3., 3.]")
        assert session.tensor(name, level=1).tolist() == [3.0, 3.0]
        assert session.out().reason == "step"
        assert len(session.frames()) == 3
        session.goto(0)
        assert [(name, value.kind) for name, value in session.fields("items")] == [("0", "tensor"), ("1", "data")]
        assert session.value("items", (1,)).text == "Cons(…)"
        assert session.tensor("items", (1, 1, 0)).tolist() == [3.0, 3.0]
        session.delete(point.number)
        assert session.over().reason == "step"
        assert session.resume().reason == "returned"
        assert session.result.numpy().tolist() == [6.0, 6.0]
        with pytest.raises(ArgumentError, match="the call has returned"):
            session.registers()
        session.break_at("total", when="depth == 3")
        assert len((session.resume(back=True), session.frames())[1]) == 3
        assert session.resume(back=True).reason == "start"


def test_a_step_over_a_call_and_back_over_it(machine: VirtualMachine) -> None:
    with machine.debug("total", [cons(1, 2)]) as session:
        seen = [session.stop.time]
        while (stop := session.over()).reason == "step":
            assert stop.frame.function == "total"
            assert len(session.frames()) == 1
            seen.append(stop.time)
        back = []
        while (stop := session.over(back=True)).reason == "step":
            back.append(stop.time)
        assert back == seen[::-1]
        session.resume()
        session.goto(session.time - 1)
        inside = session.step(back=True)
        while len(session.frames()) < 3:
            inside = session.step(back=True)
        assert session.out(back=True).time < inside.time
        assert session.stop.frame.instruction.startswith("invoke")


def test_a_closure_shows_what_it_has_captured(machine: VirtualMachine) -> None:
    with machine.debug("makes", [2.5]) as session:
        while (stop := session.instruction()).frame.instruction.partition(" ")[0] != "ret":
            pass
        name = stop.frame.instruction.partition(" ")[2]
        assert session.value(name).kind == "closure"
        assert [(each, value.text) for each, value in session.fields(name)] == [("k", "2.5")]
        assert session.tensor(name, (0,)).tolist() == 2.5
        assert session.origin(name).maker.frame.instruction.startswith("alloc_closure")
        with pytest.raises(ArgumentError, match="there is no field 1"):
            session.value(name, (1,))
        with pytest.raises(ArgumentError, match="not a tensor"):
            session.tensor(name)


def test_where_a_value_was_made_and_who_reads_it(machine: VirtualMachine) -> None:
    with machine.debug("loops", [np.ones(2, np.float32)]) as session:
        session.break_at("tanh", when="all(x == x)", iteration=1)
        stop = session.resume()
        origin = session.origin(stop.register)
        assert (origin.maker.time, origin.readers) == (stop.time - 1, ())
        assert [each.iteration for each in origin.maker.frame.rounds] == [1]
        session.goto(0)
        assert session.origin("x").name == "argument x"
        assert session.time == 0


def test_a_register_is_set_and_the_call_goes_on(machine: VirtualMachine) -> None:
    with machine.debug("loops", [np.ones(2, np.float32)]) as session:
        point = session.break_at("tanh", iteration=1)
        session.resume()
        (register,) = (
            each.name for each in session.registers() if each.value.type == "float32[2]" and each.value.text != "blank"
        )
        before = session.tensor(register)
        session.set(register, [0.5, 0.25])
        at = session.time
        session.delete(point.number)
        session.resume()
        assert session.result.numpy() == pytest.approx(np.tanh(np.tanh(np.float32([0.5, 0.25]))))
        session.goto(at)
        assert session.tensor(register).tolist() == [0.5, 0.25]  # what was set is part of the past
        session.goto(at - 1)
        session.goto(at)
        assert session.tensor(register).tolist() == [0.5, 0.25]
        assert before.tolist() != [0.5, 0.25]
        for value, error in ((np.ones(3), ShapeError), ("a", ArgumentError), (object(), ArgumentError)):
            with pytest.raises(error, match=f"set: {register}"):
                session.set(register, value)


def test_a_program_has_places_at_which_debuggers_stop(machine: VirtualMachine) -> None:
    assert machine["marked"]([0.0, 2.0]).numpy() == pytest.approx(np.sqrt(np.exp(np.float32([0, 2]))))
    with machine.debug("marked", [[0.0, 2.0]]) as session:
        stop = session.resume()
        assert stop.reason == "breakpoint"
        assert "breakpoint" in stop.frame.instruction
        assert stop.frame.node.startswith("test_session.py:")
        assert session.resume().reason == "returned"
    with pytest.raises(ArgumentError, match="expected an expression of a program, got nothing"):
        treadle.debug.breakpoint()


def test_an_operator_is_found_by_the_name_that_the_model_has(machine: VirtualMachine) -> None:
    with machine.debug("product", [np.ones(2, np.float32)]) as session:
        session.break_at("MatMul")
        assert "matmul_" in session.resume().frame.instruction
        with pytest.raises(ArgumentError, match="there is nothing called 'matmu'"):
            session.break_at("operator matmu")


def test_an_instruction_is_a_place(machine: VirtualMachine) -> None:
    with machine.debug("loops", [np.ones(2, np.float32)]) as session:
        for _ in range(5):
            frame = session.instruction().frame
        session.goto(0)
        session.break_at(f"loops+{frame.offset}")
        assert session.resume().frame == frame
        with pytest.raises(ArgumentError, match=r"there is nothing called 'loops\+100'"):
            session.break_at("loops+100")


def test_statistics_of_a_tensor(machine: VirtualMachine) -> None:
    with machine.debug("loops", [np.float32([np.nan, 3.0])]) as session:
        numbers = session.numbers("x")
        assert (numbers.nans, numbers.least, numbers.first_nonfinite) == (1, 3.0, (0,))
        assert sum(numbers.histogram) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s: s.break_at(), "a breakpoint needs a place"),
        (lambda s: s.break_at(3), "expected the name of a place"),
        (lambda s: s.break_at("main", iteration=-1), "iteration: expected a number from 0 on"),
        (lambda s: s.break_at("function tanh"), "there is nothing called 'tanh'"),
        (lambda s: s.break_at("loops", when="z > 1"), "there is no 'z' here"),
        (lambda s: s.delete(9), "there is no breakpoint 9"),
        (lambda s: s.goto(-1), "goto: expected a number"),
        (lambda s: s.registers(3), "there is no frame 3"),
        (lambda s: s.value("q1"), "loops has no register q1"),
        (lambda s: s.evaluate("nothing + 1"), "loops has no register nothing"),
        (lambda s: s.result, "the call has not returned"),
    ],
)
def test_misuses_are_named(machine: VirtualMachine, wrong: Any, message: str) -> None:
    with machine.debug("loops", [np.ones(2, np.float32)]) as session, pytest.raises(ArgumentError, match=message):
        wrong(session)


def test_bounds_are_those_of_a_call(machine: VirtualMachine) -> None:
    with pytest.raises(ArgumentError, match="'max_step' is not a parameter"):
        machine.debug("loops", [np.ones(2, np.float32)], max_step=3)
    with machine.debug("total", [cons(1, 2, 3)], max_depth=2) as session:
        stop = session.resume()
        assert (stop.reason, stop.error.budget, len(session.frames())) == ("budget", "depth", 2)
        assert session.step(back=True).reason == "step"
