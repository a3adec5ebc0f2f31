"""`tvm.contrib.debugger.debug_executor`: a graph node by node. What it stands on: `graphs/debugger.py`, `graphs/dump.py`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

from ....vm.device import Device
from ...graphs.debugger import DebugExecutor
from ...graphs.dump import DebugResult
from ...graphs.factory import executor_of
from ..graph_executor import GraphModule, forwarding, get_device


def create(
    graph_json_str: str, libmod: Any, device: Any = None, dump_root: str | None = None, *, ctx: Any = None
) -> GraphModuleDebug:
    """As `graph_executor.create`, node by node. Weights are set where `libmod` has some."""
    devices, _, _ = get_device(libmod, ctx if device is None else device)
    executor = executor_of(DebugExecutor, graph_json_str, libmod, devices[0])
    return GraphModuleDebug(executor, devices, graph_json_str, dump_root)


@forwarding(DebugExecutor, "run_individual", "run_individual_node", "profile")
class GraphModuleDebug(GraphModule):
    """A graph module whose `run` measures each node and keeps what it gave. It writes into a folder: of its own, which `exit`
    removes, or `dump_root`, of which `exit` removes what the module has written."""

    def __init__(self, module: Any, device: Sequence[Device], graph_json_str: str, dump_root: str | None) -> None:
        super().__init__(module)
        self._is_own_root = not dump_root
        self._dump_root = dump_root or tempfile.mkdtemp(prefix="tvmdbg_")
        folder = str(device[0]).upper().replace("(", "_").replace(")", "").replace(":", "_")
        self._dump_path = os.path.join(self._dump_root, f"_tvmdbg_device_{folder}")
        os.makedirs(self._dump_path, 0o700, exist_ok=True)
        self.debug_datum = DebugResult(graph_json_str, self._dump_path)

    def run(
        self,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 1,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        sort_by_time: bool = True,
        **input_dict: Any,
    ) -> None:
        """Measures each node, keeps all tensors, writes both into the folder, and prints a table."""
        if input_dict:
            self.module["set_input"](**input_dict)
        times = number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown
        self.debug_datum.times = self.module["run_individual"](*times)
        self._keep_tensors()
        self.debug_datum.dump_output_tensor()
        self.debug_datum.dump_chrome_trace()
        self.debug_datum.display_debug_result(sort_by_time)

    def _keep_tensors(self) -> None:
        nodes, tensors = self.debug_datum.get_graph_nodes(), []
        for index, node in enumerate(nodes):
            self.module["execute_node"](index)
            count = self.debug_datum.get_graph_node_output_num(node)
            tensors += [self.module["get_node_output"](index, output) for output in range(count)]
        self.debug_datum.update_output_tensors(tensors)

    def get_node_output(self, node: int | str, output: int = 0) -> Any:
        """A copy of what a node gave when it was computed last."""
        return self.module["get_node_output"](self.module.node_index(node), output)

    def exit(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self._dump_root if self._is_own_root else self._dump_path, ignore_errors=True)
