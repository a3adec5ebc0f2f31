"""An LSTM written out: a function for each step."""

from __future__ import annotations

from .. import op
from ..expr import Call, Function, Tuple, TupleGetItem, Var
from ..scope_builder import ScopeBuilder
from ..ty import TensorType, TupleType
from .init import workload
from .layers import as_function, dense_add_bias


def lstm_cell(num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = "") -> Function:
    """A step: of an input, a pair of states and weights, the output and the next states."""
    state = TensorType((batch_size, num_hidden), dtype)
    weight, bias = TensorType((4 * num_hidden, num_hidden), dtype), TensorType((4 * num_hidden,), dtype)
    inputs, states = Var("inputs", state), Var("states", TupleType((state, state)))
    weights = [Var("i2h_weight", weight), Var("i2h_bias", bias), Var("h2h_weight", weight), Var("h2h_bias", bias)]
    lines = ScopeBuilder()
    of_input = lines.let("i2h", dense_add_bias(inputs, weights[0], weights[1], 4 * num_hidden))
    of_state = lines.let("h2h", dense_add_bias(TupleGetItem(states, 0), weights[2], weights[3], 4 * num_hidden))
    gates = op.split(lines.let("gates", op.add(of_input, of_state)), indices_or_sections=4, axis=1)
    enter, forget, leave = (op.sigmoid(gates[place]) for place in (0, 1, 3))
    kept = op.multiply(forget, TupleGetItem(states, 1))
    cell = lines.let("next_c", op.add(kept, op.multiply(enter, op.tanh(gates[2]))))
    hidden = lines.let("next_h", op.multiply(leave, op.tanh(cell)))
    lines.ret(Tuple([hidden, Tuple([hidden, cell])]))
    result = TupleType((state, TupleType((state, state))))
    return Function([inputs, states, *weights], lines.get(), result)


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """The function of `iterations` steps, each with an input "data" and weights of its own."""
    state = TensorType((batch_size, num_hidden), dtype)
    weight, bias = TensorType((4 * num_hidden, num_hidden), dtype), TensorType((4 * num_hidden,), dtype)
    lines = ScopeBuilder()
    zeros = lines.let("zeros", op.zeros((batch_size, num_hidden), dtype))
    states, output = lines.let("init_states", Tuple([zeros, zeros])), zeros
    for step in range(iterations):
        weights = [
            *(Var(f"i2h_{step}_weight", weight), Var(f"i2h_{step}_bias", bias)),
            *(Var(f"h2h_{step}_weight", weight), Var(f"h2h_{step}_bias", bias)),
        ]
        cell = lstm_cell(num_hidden, batch_size, dtype, f"lstm_{step}")
        called = lines.let(f"call_{step}", Call(cell, [Var("data", state), states, *weights]))
        output = lines.let(f"out_{step}", TupleGetItem(called, 0))
        states = lines.let(f"states_{step}", TupleGetItem(called, 1))
    lines.ret(output)
    return as_function(lines.get())


get_workload = workload(get_net)
