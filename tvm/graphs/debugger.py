"""The debug executor: a graph node by node, each timed alone, with all that it gave there to look at.

Each node is a function of the machine, or a call of Python's, and every tensor has memory of its own. So a result can be seen
after nodes that would write over it where storages are shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...formats.messages.errors import ArgumentError, UnknownNodeError
from ...vm.observe.benchmark import BenchmarkResult, Repeats, measure
from ...vm.observe.profile import MetricCollector
from ...vm.observe.report import Count, Metric, Report, in_all, timed
from ...vm.threads import get_num_threads
from ..files.graph_json import Node
from .executor import GraphExecutor
from .program import GraphProgram, make_program

_WARM_UPS = 3  # runs before one is measured, as TVM has them


class DebugExecutor(GraphExecutor):
    """A graph executor whose nodes can be run one at a time."""

    type_key = "GraphExecutorDebug"
    functions = (
        *GraphExecutor.functions,
        *("execute_node", "get_node_output", "profile", "profile_rpc", "run_individual", "run_individual_node"),
    )

    def _make_plan(self, primitives: tuple, python: Mapping[str, Any]) -> GraphProgram:
        return make_program(self.graph, primitives, python, apart=True)

    def _storage(self, entry: int) -> int:
        return entry  # every tensor has its own

    # ---- nodes ----

    def _node(self, function: str, index: int) -> Node:
        """Raises ArgumentError for an index that no node has."""
        if not isinstance(index, (int, np.integer)) or not 0 <= index < len(self.graph.nodes):
            raise ArgumentError(f"{function}: there is no node {index!r}; the graph has {len(self.graph.nodes)}")
        return self.graph.nodes[index]

    def _runner(self, index: int) -> Callable[[], Any] | None:
        """What computes a node; None for a parameter."""
        for at, step in enumerate(self._plan.steps):
            if step.nodes == [index]:
                return self._calls()[at]
        return None

    def execute_node(self, index: int) -> None:
        """Computes a node from what nodes before it have given."""
        self._node("execute_node", index)
        run = self._runner(index)
        if run is not None:
            run()

    def get_node_output(self, index: int, output: int = 0) -> Any:
        """A copy of what a node gave when it was computed last: result `output` of it."""
        node = self._node("get_node_output", index)
        if not 0 <= output < node.outputs:
            raise ArgumentError(
                f"get_node_output: node {index} ({node.name!r}) has {node.outputs} outputs, not {output + 1}"
            )
        return self._tensor(self._array(self.graph.row_ptr[index] + output).copy())

    def debug_get_output(self, node: int | str, out: Any = None, output: int = 0) -> Any:
        """Computes all nodes up to one, given by index or name, and copies result `output` of it into `out`, or a new tensor.

        Raises UnknownNodeError, an AttributeError, for a name that no node has.
        """
        index = self.node_index(node)
        if not 0 <= output < self.graph.nodes[index].outputs:
            raise ArgumentError(f"debug_get_output: node {node!r} has {self.graph.nodes[index].outputs} outputs")
        for number in range(index + 1):
            self.execute_node(number)
        array = self._array(self.graph.row_ptr[index] + output)
        return self._tensor(array.copy()) if out is None else self._handed_out("debug_get_output", node, array, out)

    def node_index(self, node: int | str) -> int:
        """The index of the first node of a name. Raises UnknownNodeError, an AttributeError, and ArgumentError."""
        if isinstance(node, str):
            for index, each in enumerate(self.graph.nodes):
                if each.name == node:
                    return index
            raise UnknownNodeError(f"Could not find a node named {node} in this graph.")
        if isinstance(node, (int, np.integer)) and not isinstance(node, bool):
            self._node("debug_get_output", node)
            return int(node)
        raise ArgumentError("Require node index or name only.")

    # ---- times ----

    def run_individual(self, *times: Any, **named_times: Any) -> list[list[float]]:
        """Seconds for each node and repeat, each node measured alone as `Repeats` says; 0 for parameters."""
        nodes = range(len(self.graph.nodes))
        return [list(self.run_individual_node(index, *times, **named_times).results) for index in nodes]

    def run_individual_node(self, index: int, *times: Any, **named_times: Any) -> BenchmarkResult:
        """How long a node takes, nodes before it computed once, by `Repeats` of these; no time for a parameter. Raises
        ArgumentError."""
        self._node("run_individual_node", index)
        repeats = Repeats(*times, **named_times)
        run = self._runner(index)
        if run is None:
            return BenchmarkResult([0.0] * repeats.repeat)
        for earlier in range(index):
            self.execute_node(earlier)
        return measure(run, repeats)

    def profile(self, collectors: Sequence[MetricCollector] | None = None, **inputs: Any) -> Report:
        """A report of one run, a row for each node that does something, after three runs that are not measured."""
        if inputs:
            self._set_each(inputs)
        for _ in range(_WARM_UPS):
            self.run()
        for collector in collectors or ():
            collector.init([self.device])
        rows: list[tuple[int, float, dict[str, Metric]]] = []
        begin = time.perf_counter()
        for step, call in zip(self._plan.steps, self._calls(), strict=True):
            started = [collector.start(self.device) for collector in collectors or ()]
            since = time.perf_counter()
            call()
            seconds = time.perf_counter() - since
            found: dict[str, Metric] = {}
            for collector, each in zip(collectors or (), started, strict=True):
                found |= collector.stop(each)
            rows.append((step.nodes[0], seconds, found))
        total = time.perf_counter() - begin
        calls = [self._row(node, seconds, total) | found for node, seconds, found in rows]
        return Report(calls, in_all(total), {"Executor": "Graph", "Number of threads": Count(get_num_threads())})

    def profile_rpc(self, **inputs: Any) -> str:
        """The report as JSON."""
        return self.profile(**inputs).json()

    def _row(self, index: int, seconds: float, total: float) -> dict[str, Metric]:
        node, graph = self.graph.nodes[index], self.graph
        entries = [*map(graph.number, node.inputs), *range(graph.row_ptr[index], graph.row_ptr[index + 1])]
        shapes = ", ".join(str(graph.types[entry]) for entry in entries)
        row = timed(node.function or node.name, seconds, total, shapes)
        if "hash" in node.attrs:
            row["Hash"] = node.attrs["hash"]
        return row | {name: text for name, text in node.attrs.items() if "layout" in name}
