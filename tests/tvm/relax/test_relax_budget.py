"""Calls of Relax programs end at their bounds, and the machine goes on."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import treadle
from treadle.errors import BudgetExceededError, CancelledError
from treadle.tvm import relax
from treadle.tvm.machines.relax.machine import RelaxMachine
from treadle.vm.budgets import Budget, CancelToken


def endless() -> RelaxMachine:
    """f(x): for ever, unless x is 0; g(x, make): make(x); deep(x): calls itself."""
    builder = relax.ExecBuilder()
    with builder.function("f", num_inputs=1):
        builder.emit_if(builder.r(0), 2)  # past the jump back, where x is 0
        builder.emit_goto(-1)
        builder.emit_ret(builder.r(0))
    with builder.function("g", num_inputs=1):
        builder.emit_call("make", args=[builder.r(0)], dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    with builder.function("deep", num_inputs=1):
        builder.emit_call("deep", args=[builder.r(0)], dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    return RelaxMachine(builder.get().program, {"make": lambda count: treadle.Tensor(np.ones(int(count)))})


@pytest.mark.parametrize(
    ("name", "budget", "told"),
    [
        ("f", Budget(max_steps=1000), "more than 1000 steps; raise max_steps"),
        ("f", Budget(max_seconds=0.05), "longer than 0.05 s; raise max_seconds"),
        ("g", Budget(max_memory=10_000), "arrays take more than 10000 bytes; raise max_memory"),
        ("deep", Budget(max_depth=50), "50 deep; raise max_depth"),
    ],
)
def test_a_call_ends_at_its_bound_and_the_next_one_runs(name, budget, told) -> None:
    machine = endless()
    with pytest.raises(BudgetExceededError, match=told) as raised:
        machine.call(name, [100_000], budget)
    assert raised.value.budget == told.rpartition("max_")[2]
    assert machine.call("g", [3], Budget(max_steps=2, max_memory=1000)).numpy().tolist() == [1, 1, 1]
    assert machine.call("g", [100_000]).shape == (100_000,)


def test_the_machines_own_budget_bounds_each_call() -> None:
    machine = RelaxMachine(endless().program, {"make": lambda count: count}, Budget(max_steps=2))
    assert [machine.call("g", [count]) for count in range(3)] == [0, 1, 2]
    with pytest.raises(BudgetExceededError):
        machine.call("f", [1])


def test_what_a_closure_takes_counts_for_the_call_that_it_is_part_of() -> None:
    machine = RelaxMachine(endless().program, {"make": lambda count: machine.closure("f")(1)})
    with pytest.raises(BudgetExceededError, match="more than 100 steps"):
        machine.call("g", [0], Budget(max_steps=100))


def test_a_call_is_cancelled_from_another_thread() -> None:
    machine, token = endless(), CancelToken()
    timer = threading.Timer(0.05, token.cancel)
    timer.start()
    begun = time.thread_time()
    with pytest.raises(CancelledError):
        machine.call("f", [1], Budget(cancel=token))
    assert time.thread_time() - begun < 5
