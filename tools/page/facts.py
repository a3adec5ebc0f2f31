"""What a program holds, as the values that the page's script reads: nodes, code, kernels, constants."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...compiler.targets.cpu.kernels.anchor import anchor_of
from ...formats.dtypes import DType
from ...formats.executable import Executable
from ...formats.messages.errors import TreadleError, UnknownOperatorError
from ...formats.pictures.graph import label_of, operator_kind, type_text
from ...formats.pictures.plots import sample
from ...formats.pictures.program import CONSTANT, PARAMETERS, Graph, Node
from ...formats.pictures.svg import seconds, size
from ...formats.primitive import PrimitiveDefinition
from ...formats.text.dis import dis
from ...formats.text.disassembly import signature
from ...formats.types import TensorType, Type
from .gather import Beside, Place, Run, Seen, key_of

# CPU time for LLVM's and the assembler's texts of kernels, the longest first; Python's are there at once
_FORMS_SECONDS = 10.0
_LONGEST_TEXT = 400_000  # characters of one text
_WHOLE = 2**22  # elements of a constant that are all looked at


def program(seen: Seen, compared: Sequence[Beside]) -> dict[str, Any]:
    """All that the script knows of a program."""
    return {
        "name": seen.name,
        "nodes": _nodes(seen, compared),
        "functions": [_function(seen, graph) for graph in seen.graphs],
        "kernels": _kernels(seen),
    }


# ---- nodes ----


def _nodes(seen: Seen, compared: Sequence[Beside]) -> dict[str, dict[str, Any]]:
    precisions = {each.name: precision_of(each.definition).name for each in seen.of.executable.program.primitives}
    nodes: dict[str, dict[str, Any]] = {}
    for number, graph in enumerate(seen.graphs):
        for at, (name, type_) in enumerate(graph.parameters.items()):
            nodes[key_of(number, -1 - at)] = {"label": name, "kind": "input", "lines": [["type", type_text(type_)]]}
        for at, node in enumerate(graph.nodes):
            if node.operation == CONSTANT:
                continue
            fact = nodes[key_of(number, at)] = {
                "label": label_of(node),
                "kind": operator_kind(node.operators),
                "origin": node.origin,
                "place": [number, node.offset],
                "callee": node.callee,
                "kernel": node.operation if node.operation in precisions else "",
                "precision": precisions.get(node.operation, ""),
                "memory": sum(_bytes(type_) for type_ in node.results),
                "lines": _lines(node, graph),
            }
            if seen.run:
                _add_measured(fact, seen.run, (graph.name, node.offset))
            _add_errors(fact, compared, (graph.name, node.offset))
    return nodes


def _add_measured(fact: dict[str, Any], run: Run, place: Place) -> None:
    if place in run.rows:
        row = run.rows[place].as_json()
        fact["seconds"], calls = row["seconds"], row["calls"]
        fact["lines"] += [
            ["time of a call", f"{seconds(row['seconds'])} in {calls} run{'s' * (calls != 1)} of it"],
            ["rate", f"{row['gflops']:.1f} GFLOP/s, {row['gbytes_per_second']:.1f} GB/s"],
            ["roofline", f"{100 * row['roofline_share']:.0f} %, bound by {row['bound']}"],
        ]
    if place in run.in_use:
        fact["memory"] = run.in_use[place]
        fact["lines"].append(["memory in use", size(run.in_use[place])])


def _add_errors(fact: dict[str, Any], compared: Sequence[Beside], place: Place) -> None:
    for each in compared:
        error = each.errors.get(place)
        if error is not None:
            fact["lines"].append([f"error, {each.name}", f"{error.text}: {error.status}"])
            fact["error"] = max(error.grade, fact.get("error", 0.0))
        if each.first == place:
            fact["first"] = True


def _lines(node: Node, graph: Graph) -> list[list[str]]:
    """Facts under names, in the order in which they are read."""
    constants = [
        type_text(graph.nodes[maker].results[0])
        for makers in node.inputs
        for maker, _ in makers
        if maker != PARAMETERS and graph.nodes[maker].operation == CONSTANT
    ]
    lines = [
        ["model nodes", node.origin.replace(" + ", "\n")],
        ["kernel", node.operation if node.operators else ""],
        ["operators", ", ".join(node.operators)],
        ["results", ", ".join(filter(None, map(type_text, node.results)))],
        ["constants", "\n".join(constants)],
        ["instruction", node.details["instruction"]],
    ]
    return [line for line in lines if line[1]]


def _bytes(type_: Type | None) -> int:
    """Of a tensor of fixed shape; 0 of anything else."""
    if not isinstance(type_, TensorType) or not type_.is_static or type_.dtype.is_string:
        return 0
    return type_.nbytes


def precision_of(definition: PrimitiveDefinition) -> DType:
    """The type of the weights of a product or convolution; of anything else that of its first result."""
    try:
        anchor = anchor_of(definition)
    except UnknownOperatorError:  # of a user, who is not here
        anchor = None
    if anchor is not None and len(anchor[0].inputs) > 1:
        return definition.values[anchor[0].inputs[1]].dtype
    return definition.results[0].dtype


# ---- code ----


def _function(seen: Seen, graph: Graph) -> dict[str, Any]:
    executable, rows = seen.of.executable, seen.run.rows if seen.run else {}
    function = executable.function(graph.name)
    code = []
    for each in dis(executable, graph.name):
        row = rows.get((graph.name, each.offset))
        code.append(
            [
                each.offset,
                each.opname,
                each.argrepr,
                each.node,
                int(each.is_jump_target),
                seen.keys.get((graph.name, each.offset), ""),
                row.seconds if row else 0,
                row.calls if row else 0,
            ]
        )
    registers = (
        f"{function.ref_registers} references, {function.int_registers} integers, frame of {size(function.frame_bytes)}"
    )
    return {"name": graph.name, "signature": signature(function), "registers": registers, "code": code}


# ---- kernels ----


def _kernels(seen: Seen) -> list[dict[str, Any]]:
    """The primitives, the longest first."""
    spent: dict[str, tuple[float, int]] = {}
    for row in seen.run.rows.values() if seen.run else ():
        before = spent.get(row.primitive, (0.0, 0))
        spent[row.primitive] = before[0] + row.seconds, before[1] + row.calls
    found = [
        {
            "name": each.name,
            "operators": ", ".join(node.operator for node in each.definition.nodes),
            "seconds": spent.get(each.name, (0.0, 0))[0],
            "calls": spent.get(each.name, (0.0, 0))[1],
        }
        for each in seen.of.executable.program.primitives
    ]
    return sorted(found, key=lambda each: -each["seconds"])


def sources(executable: Executable, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The texts of kernels in the order of names: Python's of all, LLVM's and the assembler's as far as time allows."""
    end = time.process_time() + _FORMS_SECONDS
    found: dict[str, dict[str, str]] = {}
    for name in names:
        texts = found[name] = {}
        for form in ("python", "llvm", "asm"):
            if form != "python" and time.process_time() > end:
                texts[form] = f"left out: `treadle source PROGRAM {name} --form {form}` shows it"
                continue
            try:
                texts[form] = executable.lib.get_source(name, form)[:_LONGEST_TEXT]
            except TreadleError as error:
                texts[form] = f"there is none: {error}"
                if form == "python":
                    break
    return found


# ---- constants ----


def constant_rows(executable: Executable) -> list[tuple[int, str, str]]:
    """Numbers of constants, the largest first, with their types and the model nodes that read them."""
    readers: dict[int, list[str]] = {}
    for instruction in dis(executable):
        if instruction.opname == CONSTANT:
            readers.setdefault(instruction.arg[-1], []).append(instruction.node)  # type: ignore[arg-type]
    weights = executable.weights
    names = {place: weights.weights[number].name for number, place in weights.held.items()}
    rows = []
    for number, array in sorted(enumerate(executable.constants), key=lambda pair: -pair[1].nbytes):
        type_ = type_text(TensorType(DType.of(array.dtype), array.shape))
        rows.append(
            (number, type_, names.get(number) or ", ".join(dict.fromkeys(filter(None, readers.get(number, ())))))
        )
    return rows


def moments(array: np.ndarray) -> dict[str, str]:
    """Statistics of a constant's numbers, of evenly spaced ones where it is large."""
    try:
        values = sample(array, _WHOLE)
    except (TypeError, ValueError):
        return {}
    if not values.size:
        return {}
    finite = values[np.isfinite(values)]
    odd = values.size - finite.size
    if not finite.size:
        return {"not finite": f"{odd}"}
    return {
        "min": f"{finite.min():.4g}",
        "max": f"{finite.max():.4g}",
        "mean": f"{finite.mean():.3g}",
        "deviation": f"{finite.std():.3g}",
        "zeros": f"{100 * np.count_nonzero(finite == 0) / finite.size:.1f} %",
        **({"not finite": f"{odd}"} if odd else {}),
    }
