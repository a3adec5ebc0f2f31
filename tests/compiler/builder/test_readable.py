"""What objects show of themselves: one line."""

import treadle
from treadle import function, op, var


def test_an_expression_shows_its_name_and_type():
    x = var("x", ("n", 4))
    assert repr(x) == "<Expression x: float32[n, 4]>"
    assert repr(op.exp(x) + 1) == "<Expression add: float32[n, 4]>"
    assert repr(var("u", None)) == "<Expression u: type not known yet>"
    assert repr(function([x], x)) == "<FunctionExpression function: fn(float32[n, 4]) -> float32[n, 4]>"


def test_native_code_is_not_shown_byte_by_byte():
    x = var("x", (4,))
    native = treadle.compile(function([x], op.exp(x)), progress=False).native
    assert "bytes of code" in repr(native)
    assert len(repr(native)) < 1000


def test_a_machine_shows_its_device_and_functions():
    x = var("x", (4,))
    vm = treadle.VirtualMachine(treadle.compile({"more": function([x], x + 1), "less": function([x], x - 1)}))
    assert repr(vm) == "<VirtualMachine on cpu(0): more, less>"
    assert vm._ipython_key_completions_() == ["more", "less"]
