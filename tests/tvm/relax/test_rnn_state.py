"""What TVM's relax/test_runtime_builtin_rnn_state.py checks, without its kernels."""

from __future__ import annotations

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm.runtime import ShapeTuple

ZERO, ONE = np.zeros((16, 16), "float16"), np.ones((32, 32), "float32")
TWO, THREE = np.full((16, 16), 2, "float16"), np.full((32, 32), 3, "float32")


def builtin(name: str):
    return tvm.get_global_func(f"vm.builtin.{name}")


@pytest.fixture
def state():
    initial = [tvm.nd.array(ZERO), tvm.nd.array(ONE)]
    return builtin("rnn_state_create")(1, 4, 4, [None, None], None, initial)


def forward(state, sequences: list[int], values=None, count: int = 1) -> None:
    """One token for sequences, after which their states are `values`."""
    builtin("kv_state_begin_forward")(state, ShapeTuple(sequences), ShapeTuple([count] * len(sequences)))
    for number, value in enumerate(values or ()):
        result = builtin("rnn_state_set")(state, 0, number, tvm.nd.array(np.stack([value] * len(sequences))))
        assert result == state
    builtin("kv_state_end_forward")(state)


def verify(state, expected: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
    for sequence, values in expected.items():
        for number, value in enumerate(values):
            found = builtin("rnn_state_debug_get")(state, 0, number, sequence)
            np.testing.assert_array_equal(found.numpy(), value)


def test_a_new_sequence_is_in_the_initial_state(state) -> None:
    builtin("kv_state_add_sequence")(state, 0)
    builtin("kv_state_begin_forward")(state, ShapeTuple([0]), ShapeTuple([1]))
    for number, value in enumerate((ZERO, ONE)):
        out = tvm.nd.empty((1, *value.shape), str(value.dtype))
        builtin("rnn_state_get")(state, 0, number, out)
        np.testing.assert_array_equal(out.numpy()[0], value)
    builtin("kv_state_end_forward")(state)


def test_states_are_set_for_some_of_the_sequences(state) -> None:
    for sequence in range(3):
        builtin("kv_state_add_sequence")(state, sequence)
    forward(state, [0, 2], [TWO, THREE])
    verify(state, {0: (TWO, THREE), 1: (ZERO, ONE), 2: (TWO, THREE)})


def test_what_is_not_set_stays(state) -> None:
    builtin("kv_state_add_sequence")(state, 0)
    forward(state, [0], [TWO, THREE])
    forward(state, [0], [ZERO])
    verify(state, {0: (ZERO, THREE)})


def test_states_are_taken_back_as_far_as_there_is_history(state) -> None:
    builtin("kv_state_add_sequence")(state, 0)
    forward(state, [0], [TWO, THREE])
    builtin("kv_state_popn")(state, 0, 1)
    verify(state, {0: (ZERO, ONE)})
    with pytest.raises(tvm.TVMError, match="only has 0 available history"):
        builtin("kv_state_popn")(state, 0, 1)
    for _ in range(6):
        forward(state, [0], [TWO, THREE])
    builtin("kv_state_popn")(state, 0, 3)
    with pytest.raises(tvm.TVMError, match="only has 0 available history"):
        builtin("kv_state_popn")(state, 0, 1)
    forward(state, [0], [TWO, THREE], count=5)  # a prompt is not taken back
    with pytest.raises(tvm.TVMError, match="only has 0 available history"):
        builtin("kv_state_popn")(state, 0, 1)


def test_a_fork_has_a_history_of_its_own(state) -> None:
    builtin("kv_state_add_sequence")(state, 0)
    forward(state, [0], [TWO, THREE])
    builtin("kv_state_fork_sequence")(state, 0, 1, -1)
    verify(state, {0: (TWO, THREE), 1: (TWO, THREE)})
    builtin("kv_state_popn")(state, 1, 1)
    verify(state, {0: (TWO, THREE), 1: (ZERO, ONE)})
    forward(state, [0], [ZERO, ONE])
    builtin("kv_state_fork_sequence")(state, 0, 2, 1)  # as it was after the first token
    builtin("kv_state_fork_sequence")(state, 0, 3, 0)
    verify(state, {0: (ZERO, ONE), 2: (TWO, THREE), 3: (ZERO, ONE)})


def test_what_it_refuses(state) -> None:
    add = builtin("kv_state_add_sequence")
    for sequence in range(4):
        add(state, sequence)
    refused = [
        (lambda: add(state, 0), 'sequence "0" is already in the space state storage'),
        (lambda: add(state, 9), "The Sequence slot is full.*there are 4"),
        (lambda: builtin("kv_state_remove_sequence")(state, 9), 'sequence "9" cannot be found'),
        (lambda: builtin("kv_state_popn")(state, 0, -1), "cannot be negative"),
        (lambda: builtin("rnn_state_get")(state, 0, 0, tvm.nd.array(ZERO[None])), "begin_forward comes first"),
        (lambda: builtin("rnn_state_debug_get")(state, 1, 0, 0), "there is no state 0 of layer 1"),
        (lambda: builtin("kv_state_begin_forward")(state, [0], [2], [-1, -1]), "Unexpected token tree for RNN state"),
        (lambda: builtin("kv_state_begin_forward")(state, [0], [2, 1]), "mismatch"),
        (lambda: builtin("rnn_state_get")(5, 0, 0, tvm.nd.array(ZERO)), "expected a recurrent state"),
        (lambda: builtin("rnn_state_create")(1, 4, 0, None, None, [tvm.nd.array(ZERO)]), "number of history"),
        (lambda: builtin("rnn_state_create")(1, 4, 2, None, None, [tvm.nd.empty((0,))]), "at least one element"),
        (lambda: builtin("rnn_state_create")(1 << 40, 1 << 40, 2, None, None, [tvm.nd.array(ZERO)]), "bytes at most"),
        (lambda: builtin("rnn_state_create")(1, 4, 2, [], None, [tvm.nd.array(ZERO)]), "number of state getters"),
    ]
    for act, text in refused:
        with pytest.raises(tvm.TVMError, match=text):
            act()
    builtin("kv_state_begin_forward")(state, [0], [1])
    with pytest.raises(tvm.TVMError, match=r"state 0 of this batch must be \[1, 16, 16\]"):
        builtin("rnn_state_set")(state, 0, 0, tvm.nd.array(ZERO))
    builtin("kv_state_remove_sequence")(state, 3)
    add(state, 9)
    builtin("kv_state_clear")(state)
    add(state, 0)
