"""What stands among expressions: symbolic sizes, lists of numbers, types as texts, patterns for the rest."""

import numpy as np
import pytest
import treadle
from treadle import Module, data_type, function, global_function, if_, match_, op, tuple_, var
from treadle.formats.messages.errors import InferenceError, UnknownFunctionError

x = var("x", ("n",))
n = x.shape[0]
Tree = data_type("Tree = Leaf(float32[]) | Node(Tree, Tree)")


def called(main, *arguments):
    return treadle.VirtualMachine(treadle.compile(main, progress=False))(*arguments)


def test_symbolic_sizes_are_operands_of_the_element_type_that_numbers_would_have():
    results = called(
        function([x], tuple_(x / n, n * x, n // 2 - x, n, op.greater(n, 3), op.sqrt(op.cast(n, dtype="float32")))),
        np.float32([1, 2, 4, 8]),
    )
    assert [result.tolist() for result in results] == [
        [0.25, 0.5, 1, 2],
        [4, 8, 16, 32],
        [1, 0, -2, -6],
        4,
        True,
        2,
    ]


def test_a_size_is_no_python_number():
    for wrong in (
        lambda: np.ones(x.shape),
        lambda: int(n),
        lambda: n > 3,
        lambda: n / 2,
        lambda: if_(n > n // 2, x, x),
    ):
        with pytest.raises(InferenceError, match=r"known only at run time|when the program runs"):
            wrong()


def test_lists_of_numbers_take_the_element_type_that_numbers_would_have():
    y = var("y", (3,))
    assert called(function([y], y * [1, 2.5, 4]), np.float32([2, 2, 2])).tolist() == [2, 5, 8]
    assert called(function([y], op.take(y, [2, 0])), np.float32([1, 2, 3])).tolist() == [3, 1]
    assert called(function([y], op.where([True, False, True], y, 0)), np.float32([1, 2, 3])).tolist() == [1, 0, 3]
    with pytest.raises(InferenceError, match=r"int64 can hold, got 2\.5"):
        op.add(var("i", (2,), "int64"), [1, 2.5])


def test_operands_of_several_element_types_say_how_one_is_converted():
    with pytest.raises(InferenceError, match=r"nothing is converted in silence: \.astype\('float32'\)"):
        x + var("i", ("n",), "int64")


def test_a_type_is_given_by_its_text_and_a_data_type_stands_for_itself():
    step, t = var("step", "fn(float32[n]) -> float32[n]"), var("t", Tree)
    k, y = var("k", ()), var("y", ("n",))
    twice = global_function("twice")
    module = Module(
        main=function([x, k], twice(function([y], y + k), x)),
        twice=function([step, x], step(step(x)), result_type="float32[n]"),
    )
    assert called(module, np.float32([1]), 2.0).tolist() == [5]
    assert called(function([t], match_(t, {Tree.Leaf: lambda v: v, ...: 7.0})), Tree.Leaf(3.0)).item() == 3
    for wrong in (
        lambda: function([x], x, result_type="float32"),
        lambda: data_type("Box = Box(float32)"),
        lambda: data_type("List[a] = Nil | Cons(a, List[a])")("int64"),
    ):
        with pytest.raises(InferenceError, match=r"is an element type; the type of a scalar is \w+\[\]"):
            wrong()


def test_three_dots_are_the_pattern_of_the_rest():
    t = var("t", Tree)
    main = function([t], match_(t, {Tree.Node: lambda left, right: left, ...: lambda: Tree.Leaf(1.0)}))
    assert called(main, Tree.Leaf(3.0))[0].item() == 1
    with pytest.raises(InferenceError, match=r"or \.\.\. for all that no clause before fits, got '_'"):
        match_(t, {Tree.Leaf: lambda v: v, "_": 1.0})


def test_constructors_of_a_data_type_are_told_apart():
    with pytest.raises(InferenceError, match="data_type: Tree has two constructors Leaf"):
        data_type("Tree = Leaf | Leaf")
    assert repr(Tree) == "<data Tree = Leaf(float32[]) | Node(Tree, Tree)>"
    assert repr(Tree.Node) == "<constructor Tree.Node(Tree, Tree)>"
    assert dir(Tree) == ["Leaf", "Node"]


def test_nothing_is_assigned_to_a_part_of_an_expression():
    with pytest.raises(InferenceError, match=r"op\.where"):
        x[0] = 1


def test_a_module_has_its_functions_by_name():
    module = Module(main=function([x], x + 1), other=function([x], x))
    assert list(module) == ["main", "other"]
    assert "main" in module
    assert "main" in repr(module["main"])
    with pytest.raises(UnknownFunctionError, match="did you mean main"):
        module["mian"]
    with pytest.raises(AttributeError, match=r"module\['main'\]"):
        _ = module.main


def test_a_function_within_may_have_the_variable_of_the_one_around_it_as_a_parameter():
    k = var("k", ())
    double, shifted = function([x], x * 2), function([x], x + k)
    assert called(function([x], double(x) + x), np.float32([1, 2])).tolist() == [3, 6]
    assert called(function([x, k], shifted(shifted(x)) - x), np.float32([1, 2]), 5.0).tolist() == [10, 10]
