"""What a debug executor found, for people and for files: a table, the graph, all tensors, and a trace for Chrome (about:tracing).

The files and their names are those that TVM's tools read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...formats.param_dict import save_param_dict
from ...vm.tensor import Tensor

GRAPH_FILE = "_tvmdbg_graph_dump.json"
TRACE_FILE = "_tvmdbg_execution_trace.json"
TENSORS_FILE = "output_tensors.params"

_HEADER = ("Node Name", "Ops", "Time(us)", "Time(%)", "Shape", "Inputs", "Outputs", "Measurements(us)")
_RULE = ("---------", "---", "--------", "-------", "-----", "------", "-------", "----------------")


class DebugResult:
    """A graph's nodes, and what is known of them: times (seconds by node and repeat) and the tensors that they gave."""

    def __init__(self, graph_json: str, dump_path: str) -> None:
        """Writes the graph into the folder. Its nodes say there which function they call, and of what, by name."""
        self._path = Path(dump_path)
        document = json.loads(graph_json)
        self._nodes: list[dict[str, Any]] = document["nodes"]
        self._shapes, self._dtypes = document["attrs"]["shape"], document["attrs"]["dltype"]
        self._first = [0]  # the entry of each node's first output
        for node in self._nodes:
            self._describe(node)
            self._first.append(self._first[-1] + self.get_graph_node_output_num(node))
        self._tensors: list[Any] = []
        self.times: Sequence[Sequence[float]] = []
        (self._path / GRAPH_FILE).write_text(json.dumps(document, indent=4))

    def _describe(self, node: dict[str, Any]) -> None:
        """A node as it stands in the file: with the names of what it reads, its own type and shape."""
        entry = self._first[-1]
        if node["op"] == "null":
            node["op"], node["attrs"], node["inputs"] = "param", {}, []
        else:
            node["op"] = node["attrs"]["func_name"]
            node["inputs"] = [self._nodes[source[0]]["name"] for source in node["inputs"]]
        has_output = entry < len(self._shapes[1]) and self.get_graph_node_output_num(node) > 0
        node["attrs"]["T"] = f"type: {self._dtypes[1][entry]}" if has_output else "type: none"
        node["shape"] = self._shapes[1][entry] if has_output else []

    # ---- what TVM calls it ----

    def get_graph_nodes(self) -> list[dict[str, Any]]:
        """The nodes, in the order in which they run."""
        return self._nodes

    def get_graph_node_shapes(self) -> list[Any]:
        return self._shapes

    def get_graph_node_dtypes(self) -> list[Any]:
        return self._dtypes

    def get_graph_node_output_num(self, node: dict[str, Any]) -> int:
        """How many tensors a node gives."""
        return 1 if node["op"] == "param" else int(node["attrs"]["num_outputs"])

    def update_output_tensors(self, tensors: Sequence[Any]) -> None:
        """The tensors of one run, in the order of the entries. Those of the run before are forgotten."""
        self._tensors = list(tensors)

    def get_output_tensors(self) -> dict[str, Any]:
        """The tensors by keys that are unique: names of nodes are not."""
        keys = (
            f"{node['name']}____topo-index:{number}____output-num:{output}"
            for number, node in enumerate(self._nodes)
            for output in range(self.get_graph_node_output_num(node))
        )
        return dict(zip(keys, self._tensors, strict=False))

    def dump_output_tensor(self) -> None:
        """Writes the tensors, as a parameter file, in place of those that were dumped before."""
        for name in os.listdir(self._path):
            if not name.endswith(".json"):
                (self._path / name).unlink()
        arrays = {
            name: tensor.array if isinstance(tensor, Tensor) else tensor
            for name, tensor in self.get_output_tensors().items()
        }
        (self._path / TENSORS_FILE).write_bytes(save_param_dict(arrays))

    def dump_chrome_trace(self) -> None:
        """Writes when each node began and ended, as if they had run one after the other without pauses."""
        events, now = [], 0.0
        for node, seconds in zip(self._nodes, self.times, strict=False):
            for phase, at in (("B", now), ("E", now + float(np.mean(seconds)))):
                events.append({"ts": at * 1e6, "tid": 1, "pid": 1, "name": node["name"], "ph": phase})
            now += float(np.mean(seconds))
        (self._path / TRACE_FILE).write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))

    def get_debug_result(self, sort_by_time: bool = True) -> str:
        """A table of all nodes but parameters; sorted, the longest first, with their sum below."""
        means = [float(np.mean(seconds)) for seconds in self.times]
        total = sum(means)
        rows = []
        for number, (node, seconds, mean) in enumerate(zip(self._nodes, self.times, means, strict=False)):
            if node["op"] == "param":
                continue
            share = round(100 * mean / total, 3) if total else 0.0
            each = str([round(one * 1e6, 3) for one in seconds])
            counts = str(node["attrs"]["num_inputs"]), str(node["attrs"]["num_outputs"])
            for entry in range(self._first[number], self._first[number + 1]):
                shape = str(tuple(self._shapes[1][entry]))
                rows.append([node["name"], node["op"], round(mean * 1e6, 3), share, shape, *counts, each])
        if sort_by_time:
            rows.sort(key=lambda row: -row[2])
            rows.append(["Total_time", "-", round(total * 1e6, 3), *["-"] * (len(_HEADER) - 3)])
        lines = [_HEADER, _RULE, *rows]
        widths = [max(len(str(line[at])) for line in (_HEADER, *rows)) + 2 for at in range(len(_HEADER))]
        return "\n".join(
            "".join(f"{cell!s:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines
        )

    def display_debug_result(self, sort_by_time: bool = True) -> None:
        print(self.get_debug_result(sort_by_time))
