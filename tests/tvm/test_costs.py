"""What calls by TVM's names cost beside the machine's own: calls of Python's functions, which the clock would only confuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm
from treadle.tvm import relax, relay
from treadle.tvm.contrib import graph_executor
from treadle.tvm.runtime.vm import VirtualMachine

from .. import timing

ARITIES = (1, 4, 16)


def summing(arity: int) -> tvm.IRModule:
    params = [relay.var(f"x{at}", shape=(4,)) for at in range(arity)]
    total = params[0]
    for each in params[1:]:
        total = relay.add(total, each)
    return tvm.IRModule.from_expr(relay.Function(params, relay.nn.relu(total)))


def ways(arity: int, kind: Callable[[np.ndarray], Any]) -> dict[str, Callable[[], Any]]:
    """Calls of one function with the same arguments; the machine's own is the first."""
    module = summing(arity)
    executable = relay.vm.compile(module)
    own, relays = treadle.VirtualMachine(executable.program), VirtualMachine(executable, tvm.cpu())
    direct, stateful = (relax.VirtualMachine(executable.program, tvm.cpu()) for _ in range(2))
    args = [kind(np.full(4, at, np.float32)) for at in range(arity)]
    stateful.set_input("main", *args)
    stateful.save_function("main", "saved", *args)
    graph = graph_executor.GraphModule(relay.build(module)["default"](tvm.cpu()))
    graph.set_input(**{f"x{at}": each for at, each in enumerate(args)})
    main, saved, relaxed = own["main"], stateful["saved"], direct["main"]
    return {
        "own": lambda: main(*args),
        "invoke": lambda: relays.invoke("main", *args),
        "invoke with what is set": lambda: relays.invoke("main"),
        "run": lambda: relays.run(*args),
        "invoke_stateful": lambda: relays.invoke_stateful("main", *args),
        "relax": lambda: relaxed(*args),
        "relax invoke_stateful": lambda: stateful.invoke_stateful("main"),
        "relax saved": saved,
        "graph run": graph.run,
        "graph set_input": lambda: graph.set_input("x0", args[0]),
        "graph get_output": lambda: graph.get_output(0),
    }


@pytest.mark.parametrize("kind", [np.asarray, treadle.Tensor, tvm.nd.array])
def test_a_call_by_tvms_names_calls_few_functions_more_however_many_arguments_there_are(kind: Any) -> None:
    more: dict[str, set[int]] = {}
    for arity in ARITIES:
        calls = {}
        for name, call in ways(arity, kind).items():
            call()
            calls[name] = timing.calls(call)
        for name, count in calls.items():
            more.setdefault(name, set()).add(count - calls["own"])
    assert all(len(counts) == 1 and max(counts) <= 9 for counts in more.values()), more


@pytest.mark.serial
def test_a_call_by_tvms_names_costs_a_microsecond_more_at_most() -> None:
    seconds = timing.seconds(ways(16, tvm.nd.array))
    more = {name: (each - seconds["own"]) * 1e6 / 100 for name, each in seconds.items()}
    assert max(more.values()) < 1, more


def test_inputs_that_are_set_at_once_cost_no_functions_each() -> None:
    module = graph_executor.GraphModule(relay.build(summing(16))["default"](tvm.cpu()))
    several = [{f"x{at}": tvm.nd.array(np.ones(4, np.float32)) for at in range(count)} for count in (1, 16)]
    for call in (module.set_input, module.run):
        counts = []
        for each in several:
            call(**each)
            counts.append(timing.calls(lambda call=call, each=each: call(**each)))
        assert counts[0] == counts[1], call


@pytest.mark.serial
def test_setting_four_inputs_running_and_getting_the_output_costs_a_microsecond_more_at_most() -> None:
    module = summing(4)
    graph = graph_executor.GraphModule(relay.build(module)["default"](tvm.cpu()))
    args = {f"x{at}": np.full(4, at, np.float32) for at in range(4)}
    main, values = treadle.VirtualMachine(relay.vm.compile(module).program)["main"], list(args.values())

    def by_the_graph() -> object:
        graph.set_input(**args)
        graph.run()
        return graph.get_output(0)

    seconds = timing.seconds({"own": lambda: main(*values), "graph": by_the_graph})
    assert (seconds["graph"] - seconds["own"]) * 1e6 / 100 < 1, seconds
