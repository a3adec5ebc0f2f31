"""Reports about an executable: numbers for tools, and a text for people."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Protocol

import numpy as np

from .. import container, host_work, sections
from ..bytecode import function_words, scan
from ..constants import constant_type
from ..ports import Ports
from ..program import EXACT, PRECISION_REPORT, LateBoundConstant, Native, Program
from ..weight_table import WeightTable
from .disassembly import signature


class Reported(Protocol):
    """What reports read of an executable."""

    @property
    def program(self) -> Program: ...
    @property
    def native(self) -> Native: ...
    @property
    def weights(self) -> WeightTable: ...
    @property
    def late_bound_consts(self) -> dict[int, LateBoundConstant]: ...
    @property
    def globals(self) -> list[str]: ...
    @property
    def primitive_ops(self) -> list[str]: ...
    @property
    def constants(self) -> tuple[np.ndarray, ...]: ...
    def outputs(self, name: str) -> Ports: ...


def information(executable: Reported) -> dict[str, Any]:
    """The main facts of an executable, as JSON values."""
    files = {constant.file for constant in executable.late_bound_consts.values()}
    return {
        "format_version": container.FORMAT_VERSION,
        "functions": [
            {
                "name": function.name,
                "params": [
                    {"name": name, "type": str(type_)}
                    for name, type_ in zip(function.param_names, function.type.params, strict=True)
                ],
                "result": str(function.type.result),
            }
            for function in executable.program.functions
            if not function.captured
        ],
        "outputs": {
            name: [{"name": port.name, "type": str(port.type)} for port in executable.outputs(name)]
            for name in executable.globals
        },
        "imports": [str(entry) for entry in executable.program.imports],
        "devices": _device_facts(executable.program),
        "data_types": [str(definition) for definition in executable.program.data_types],
        "primitives": len(executable.primitive_ops),
        "constants": len(executable.constants),
        "constant_bytes": sum(array.nbytes for array in executable.constants),
        "constants_files": sorted(files),
        "native": {target: len(kernels) for target, kernels in executable.native.items()},
        "metadata": dict(executable.program.metadata),
        **({} if executable.program.text is None else {"texts": str(executable.program.text)}),
    }


def held_texts(facts: dict[str, Any]) -> dict[str, str]:
    """The contents of an executable, in a few words each."""
    files = f", in part in {', '.join(facts['constants_files'])}" if facts["constants_files"] else ""
    native = ", ".join(f"{count} for {target}" for target, count in facts["native"].items())
    return {
        "constants": f"{facts['constants']}, {size_text(facts['constant_bytes'])}{files}",
        "primitives": str(facts["primitives"]),
        "native kernels": native or "none",
        **({"texts": facts["texts"]} if "texts" in facts else {}),
    }


def information_text(facts: dict[str, Any]) -> str:
    kind = facts.get("kind", "Treadle executable")
    lines = [f"{facts['file']}: {kind}, format {facts['format_version']}, {size_text(facts['bytes'])}"]
    for function in facts["functions"]:
        ports = [("in ", port) for port in function["params"]]
        ports += [("out", port) for port in facts["outputs"][function["name"]]]
        width = max((len(port["name"]) for _, port in ports), default=0)
        lines.append(f"  {function['name']}")
        lines += [f"    {way}  {port['name']:{width}}  {port['type']}" for way, port in ports]
    lines += [f"  import {entry}" for entry in facts["imports"]]
    lines += [f"  device {text}" for text in _device_texts(facts)]
    lines += [f"  {definition}" for definition in facts["data_types"]]
    held = held_texts(facts)
    lines.append(f"  constants: {held['constants']}")
    lines.append(f"  primitives: {held['primitives']}; native kernels: {held['native kernels']}")
    lines += [f"  texts: {held['texts']}"] if "texts" in held else []
    for each in facts.get("host", ()):
        nodes = f", of {', '.join(each['nodes'][:3])}{' …' if len(each['nodes']) > 3 else ''}" if each["nodes"] else ""
        loop = ", in a loop: this may be slow" if each["in_loop"] else ""
        lines.append(f"    on the host: {each['name']} ({', '.join(dict.fromkeys(each['operators']))}){nodes}{loop}")
    skipped = (host_work.NOTE, PRECISION_REPORT)  # the lines above say it
    lines += [f"  {key}: {value}" for key, value in facts["metadata"].items() if key not in skipped]
    return "\n".join(lines)


def statistics(executable: Reported) -> dict[str, Any]:
    """Counts and sizes, as JSON has them. Keys are stable."""
    program = executable.program
    contents = sections.encode(program, executable.late_bound_consts, executable.native, executable.weights)
    return {
        "format_version": container.FORMAT_VERSION,
        "constants": [str(constant_type(a).on(program.placed.get(i, ""))) for i, a in enumerate(program.constants)],
        "constant_bytes": sum(array.nbytes for array in program.constants),
        "late_bound_constants": sorted(executable.late_bound_consts),
        "functions": [
            {
                "name": function.name,
                "signature": signature(function),
                "is_closure": function.captured > 0,
                "instructions": _instruction_count(program, number),
                "ref_registers": function.ref_registers,
                "int_registers": function.int_registers,
                "frame_bytes": function.frame_bytes,
            }
            for number, function in enumerate(program.functions)
        ],
        "primitive_ops": executable.primitive_ops,
        "imports": [str(entry) for entry in program.imports],
        "devices": _device_facts(program),
        "code_words": len(program.code),
        "native": {target: len(kernels) for target, kernels in executable.native.items()},
        "sections": {name: sum(map(len, pieces)) for name, pieces in contents.items()},
        "metadata": dict(program.metadata),
    }


def _device_facts(program: Program) -> list[dict[str, Any]]:
    on = Counter(primitive.device for primitive in program.primitives)
    return [
        {
            "name": device.name,
            "target": device.target,
            "primitives": on[device.name],
            "constants": sum(name == device.name for name in program.placed.values()),
        }
        for device in program.devices
    ]


def _device_texts(facts: dict[str, Any]) -> list[str]:
    return [
        f"{each['name']}: {each['target']}, {each['primitives']} primitives, {each['constants']} constants"
        for each in facts.get("devices", ())
    ]


def _instruction_count(program: Program, number: int) -> int:
    function = program.functions[number]
    return sum(1 for _ in scan(function_words(program, function), function.name))


def statistics_text(executable: Reported) -> str:
    facts = statistics(executable)
    functions = facts["functions"]
    late = len(facts["late_bound_constants"])
    lines = [
        "Executable statistics:",
        f"  Constants (#{len(facts['constants'])}, {size_text(facts['constant_bytes'])}"
        + (f", {late} in other files" if late else "")
        + f"): {_counted(facts['constants'])}",
        f"  Globals (#{len(executable.globals)}): {_listed(executable.globals)}",
        f"  Primitive ops (#{len(facts['primitive_ops'])}): {_listed(facts['primitive_ops'])}",
        *([f"  Imports (#{len(facts['imports'])}): {_listed(facts['imports'])}"] if facts["imports"] else []),
        *([f"  Devices (#{len(facts['devices'])}): {_listed(_device_texts(facts))}"] if facts["devices"] else []),
        f"  Code: {sum(f['instructions'] for f in functions)} instructions, {facts['code_words']} words",
        f"  Planned memory: {size_text(max((f['frame_bytes'] for f in functions), default=0))} in the largest frame",
        f"  Native code: {_listed([f'{target} (#{n})' for target, n in facts['native'].items()])}",
        "  Sections: " + ", ".join(f"{name} {size_text(size)}" for name, size in facts["sections"].items()),
    ]
    return "\n".join([*lines, *precision_lines(executable)]) + "\n"


def precision_lines(executable: Reported) -> list[str]:
    """The table of the nodes that may be narrow, if the compiler has searched for those that are (`debug/precision.py`)."""
    try:
        said = json.loads(executable.program.metadata.get(PRECISION_REPORT, "{}"))
        unseen = "" if said["unseen"] is None else f", {float(said['unseen']):.1e} on those kept for the check"
        error, bound, allowed = (float(said[name]) for name in ("error", "bound", "tolerance"))
        lines = [
            f"  Precision: off by {error:.1e} ({said['measure']}) on the samples ({said['samples']}){unseen}; "
            f"others may reach {bound:.1e}, allowed {allowed:g}"
        ]
        if worst := [str(name) for name in said["worst"]]:
            whole = "by any amount" if said["narrow"] is None else f"by {float(said['narrow']):.1e}"
            lines.append(f"    all that gains time would be off {whole}, most of it by {', '.join(worst)}")
        lines.append("    before, us  after, us  precision  share of error  node")
        for node, precision, before, after, share in said["nodes"]:
            spent = "" if share is None or precision == EXACT else f"{float(share):.1%}"
            times = ["" if each is None else f"{float(each):.1f}" for each in (before, after)]
            lines.append(f"  {times[0]:>12}{times[1]:>11}  {precision:9}  {spent:>14}  {node}")
    except (
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
    ):  # of a file, whose metadata may say anything
        return []
    return lines


def _counted(names: list[str]) -> str:
    """Each name once, with the number of times when there are several."""
    return _listed([name if count == 1 else f"{count}× {name}" for name, count in Counter(names).items()])


def _listed(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


def size_text(size: int) -> str:
    """1234567 → "1.2 MB"."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
