"""Objects that are equal by structure, their hashes, where they differ, and their form as JSON."""

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import FormatError
from treadle.tvm import relay
from treadle.tvm.ir import (
    assert_structural_equal,
    get_first_structural_mismatch,
    load_json,
    save_json,
    structural_equal,
    structural_hash,
)
from treadle.tvm.relay import testing
from treadle.tvm.runtime import ObjectPath, convert

ROOT = ObjectPath.root()


def function(name: str = "x", factor: float = 2.0, shape: tuple = (2, 3)) -> relay.Function:
    x = relay.var(name, shape=shape)
    return relay.Function([x], relay.nn.relu(x * relay.const(factor)))


def test_calls_of_functions_differ_by_type_arguments_and_types_by_kinds() -> None:
    f, x = relay.var("f"), relay.var("x")
    calls = [relay.Call(f, [x], type_args=[relay.scalar_type(dtype)]) for dtype in ("float32", "float32", "int32")]
    assert [structural_equal(calls[0], each) for each in calls] == [True, True, False]
    assert structural_hash(calls[0]) == structural_hash(calls[1])
    variables = [relay.TypeVar("v", kind) for kind in (relay.TypeKind.Type, relay.TypeKind.ShapeVar)]
    kinds = [relay.FuncType([], each, [each]) for each in variables]
    assert kinds[0] != kinds[1]


@pytest.mark.parametrize(
    ("other", "is_equal"),
    [
        (function("y"), True),
        (function(factor=3.0), False),
        (function(shape=(3, 2)), False),
        (function().with_attr("Primitive", 1), False),
    ],
)
def test_functions_are_equal_whatever_their_variables_are_called(other: relay.Function, is_equal: bool) -> None:
    assert structural_equal(function(), other) == is_equal
    assert (structural_hash(function()) == structural_hash(other)) == is_equal


def test_what_is_computed_once_is_not_what_is_computed_twice() -> None:
    x = relay.var("x", shape=(2,))
    once = relay.add(x, x)
    shared, separate = once * once, relay.add(x, x) * relay.add(x, x)
    assert not structural_equal(shared, separate)
    assert structural_hash(shared) != structural_hash(separate)
    assert structural_equal(relay.Tuple([relay.Tuple([])] * 2), relay.Tuple([relay.Tuple([]), relay.Tuple([])]))


@pytest.mark.parametrize(
    ("a", "b", "first", "second"),
    [
        ([1, 2], [1, 3], ROOT.array_index(1).attr("value"), ROOT.array_index(1).attr("value")),
        ([1], [1, 2], ROOT.missing_array_element(1), ROOT.array_index(1)),
        ({"a": 1}, {"a": 1, "b": 2}, ROOT.missing_map_entry(), ROOT.map_value("b")),
        ({"a": [1.0]}, {"a": ["b"]}, ROOT.map_value("a").array_index(0), ROOT.map_value("a").array_index(0)),
    ],
)
def test_the_first_difference_has_a_path_on_each_side(
    a: object, b: object, first: ObjectPath, second: ObjectPath
) -> None:
    assert get_first_structural_mismatch(convert(a), convert(b)) == (first, second)
    assert get_first_structural_mismatch(convert(b), convert(a)) == (second, first)
    assert get_first_structural_mismatch(convert(a), convert(a)) is None
    assert not structural_equal(convert(a), convert(b))


def test_tensors_are_equal_by_their_elements() -> None:
    x = {"key": tvm.nd.array(np.arange(3.0))}
    assert_structural_equal(x, {"key": tvm.nd.array(np.arange(3.0))})
    assert structural_hash(x) == structural_hash({"key": tvm.nd.array(np.arange(3.0))})
    assert not structural_equal(x, {"key": tvm.nd.array(np.arange(3))})


def test_a_dimension_that_is_a_variable_has_a_name() -> None:
    n = tvm.te.var("n")
    assert n.name == "n"
    assert load_json(save_json({"n": n, "m": n * 2 + 1})) == {"n": n, "m": n * 2 + 1}
    with pytest.raises(AttributeError, match="is not a variable"):
        (n + 1).name  # noqa: B018


def programs() -> list:
    x, y = relay.var("x", shape=(relay.Any(), 2)), relay.var("y", "int32")
    shared = x + x
    prelude = relay.IRModule()
    box = relay.GlobalTypeVar("Box")
    a = relay.TypeVar("a")
    full = relay.Constructor("Full", [a], box)
    prelude[box] = relay.TypeData(box, [a], [full])
    value = relay.var("value", box(relay.TensorType((2,))))
    inner = relay.var("inner")
    taken = relay.Match(value, [relay.Clause(relay.PatternConstructor(full, [relay.PatternVar(inner)]), inner)])
    prelude["main"] = relay.Function([value], taken)
    return [
        relay.Function([x], relay.Tuple([shared, shared * shared])),
        relay.Function([y], relay.If(relay.less(y, relay.const(3)), y, relay.Let(y, relay.const(1), y))),
        prelude,
        testing.mlp.get_workload(1)[0],
        testing.resnet.get_workload(num_layers=18)[0],
    ]


@pytest.mark.parametrize("program", programs())
def test_programs_go_through_json(program: object) -> None:
    back = load_json(save_json(program))
    assert type(back) is type(program)
    assert_structural_equal(back, program)


def test_a_deep_program_goes_through_json() -> None:
    x = relay.var("x", shape=(2,))
    body = x
    for _ in range(5000):
        body = relay.nn.relu(body)
    assert_structural_equal(load_json(save_json(relay.Function([x], body))), relay.Function([x], body))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"Nodes": 3}',
        '{"Nodes": [[["Nonsense"]], {"Node": 0}]}',
        '{"Nodes": [[], {"Node": 0}]}',
        '{"Nodes": [[["Op", 3]], 1]}',
        '{"Nodes": [[["Call", {"Python": 1}, {"Node": -1}, {}, {}, {}, {}]], {"Node": 0}]}',
    ],
)
def test_text_that_nobody_wrote_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError, match="load_json"):
        load_json(text)
