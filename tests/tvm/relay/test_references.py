"""References of Relay, which lowering follows."""

import numpy as np
import pytest
from treadle.errors import InferenceError
from treadle.tvm import relay


def sequence(*lines):
    """Lines that are (variable, value), the last one an expression."""
    *bindings, body = lines
    for variable, value in reversed(bindings):
        body = relay.Let(variable, value, body)
    return body


def test_a_reference_holds_what_was_written_last():
    r, x, u = relay.var("r"), relay.var("x", shape=(2,)), relay.var("u")
    before = relay.var("before")
    body = sequence(
        (r, relay.RefCreate(x)), (before, relay.RefRead(r)), (u, relay.RefWrite(r, x + x)), before * relay.RefRead(r)
    )
    found = relay.create_executor().evaluate(relay.Function([x], body))(np.float32([1, 3]))
    assert found.numpy().tolist() == [2, 18]


@pytest.mark.parametrize(("flag", "expected"), [(True, 5), (False, 2)])
def test_a_branch_may_write_it(flag, expected):
    text = """
    #[version = "0.0.5"]
    def @main(%c: bool) {
      let %r = ref(2);
      let %u = if (%c) { ref_write(%r, 5) } else { () };
      ref_read(%r)
    }
    """
    module = relay.fromtext(text)
    assert "ref_write(%r, 5" in module.astext()
    assert relay.create_executor(mod=module).evaluate()(flag).numpy() == expected


def test_a_reference_of_another_function_is_refused():
    r, y = relay.var("r"), relay.var("y", shape=())
    inner = relay.Function([y], y + relay.RefRead(r))
    body = sequence((r, relay.RefCreate(relay.const(1.0))), inner(relay.const(2.0)))
    with pytest.raises(InferenceError, match="ref_read: a reference is followed in the function that makes it alone"):
        relay.create_executor().evaluate(relay.Function([], body))
    assert isinstance(relay.RefRead(r), relay.RefRead)
    assert not isinstance(relay.RefRead(r), relay.RefWrite)
