"""Tries how the operators of ONNX run, and derives docs/operators.md of that.

python -m treadle.tools.dev.derive.operators    writes tools/operators.json, in a minute or two
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import onnx

from .... import compile
from ....compiler.host_work import host_primitives
from ....compiler.targets.choice import backend_of
from ....formats.messages.errors import TreadleError
from ...operators import BOTH, FOUND, GONE, HOST, NATIVE, Operator, operators, standard, tried
from ..conformance import Case, cases


def measured() -> dict[str, Any]:
    """The contents of `operators.json`, measured anew: it takes a minute or two."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = {name: _model(case) for name, case in cases().items() if not name.startswith("real/")}
        ways = {name: _way(model) for name, model in models.items()}
        types: dict[str, dict[str, str]] = {}
        for name, model in models.items():
            if len(model.graph.node) == 1 and not name.endswith("_expanded"):
                _try_types(model, types, ways[name])
    counted = Counter(way or "refused" for way in ways.values())
    return {
        "cases": {"all": len(ways), **{key: counted[key] for key in sorted(counted)}},
        "types": {name: dict(sorted(found.items())) for name, found in sorted(types.items())},
    }


def _model(case: Case) -> onnx.ModelProto:
    return onnx.load(case.model) if isinstance(case.model, Path) else case.model


def _way(model: onnx.ModelProto) -> str:
    """How a model runs; "" for one that is refused."""
    try:
        program = compile(model, embed_native=False, progress=False).program
    except TreadleError:
        return ""
    hosted = host_primitives(program, backend_of().supports)
    if not program.primitives:
        return GONE
    return HOST if len(hosted) == len(program.primitives) else BOTH if hosted else NATIVE


def _try_types(model: onnx.ModelProto, types: dict[str, dict[str, str]], own: str) -> None:
    """Notes how the one operator of a model runs as it is, and with other element types for its first tensor; what has been found
    native in one case stays so."""
    (node,) = model.graph.node
    opsets = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in model.opset_import}
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return
    if not schema.inputs or not model.graph.input or model.graph.initializer:
        return
    found = types.setdefault(f"{node.domain}.{node.op_type}".lstrip("."), {})
    letter = schema.inputs[0].type_str
    allowed = next((t.allowed_type_strs for t in schema.type_constraints if t.type_param_str == letter), [letter])
    tensor = model.graph.input[0].type.tensor_type
    if model.graph.input[0].name != (node.input[0] if node.input else "") or not tensor.elem_type:
        return
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    if own:
        found[name] = _better(found.get(name), own)
    for text in allowed:
        other = text.removeprefix("tensor(").removesuffix(")")
        code = _codes().get(other)
        if code is None or other in found or code == tensor.elem_type:
            continue
        way = _way(_retyped(model, schema, letter, code))
        if way:
            found[other] = way


@cache
def _codes() -> dict[str, int]:
    return {name.lower(): code for name, code in onnx.TensorProto.DataType.items()}


def _better(before: str | None, now: str) -> str:
    order = (NATIVE, BOTH, HOST, GONE)
    return now if before is None else min(before, now, key=order.index)


def _retyped(model: onnx.ModelProto, schema: Any, letter: str, code: int) -> onnx.ModelProto:
    """The model with another element type for all inputs that the standard gives the same."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    (node,) = other.graph.node
    formal = [*schema.inputs, *[schema.inputs[-1]] * len(node.input)]
    same = {name for name, each in zip(node.input, formal, strict=False) if each.type_str == letter}
    for info in other.graph.input:
        if info.name in same:
            info.type.tensor_type.elem_type = code
    for info in other.graph.output:
        info.type.Clear()
    return other


# ---- docs/operators.md ----

_LEGEND = """\
*Versions* are the opsets since which an operator has another form; those of ai.onnx before 7 count as 7. *Native* are the element
types of its first input for which all of it runs as native code, as far as those cases try it; *host* those for which some or all
of it is evaluated by NumPy. *At import*: nothing of it is left for run time in these cases. What stands in neither column was not
tried, or is refused."""


def page(notice: str) -> str:
    listed, cases = operators(by_users=False), tried()["cases"]
    there = [each for each in listed if each.versions]
    official = [each for each in listed if (each.domain, each.name) in standard()]
    share = cases.get(NATIVE, 0) + cases.get(GONE, 0)
    imported = sum(bool(each.versions) for each in official)
    runtimes = sum(each.domain == "com.microsoft" for each in there)
    all_, refused = cases.get("all", 0), cases.get("refused", 0)
    lines = [
        notice,
        "# The operators of ONNX",
        "",
        "`treadle ops` prints this list, and `treadle ops --model model.onnx` what a model needs of it.",
        "",
        f"Of the {len(official)} operators of the standard that are not deprecated, {imported} can be imported, and",
        f"{runtimes} of onnxruntime's own, and {len(there) - imported - runtimes} that the standard has dropped.",
        f"Of the {all_} cases of ONNX's tests for backends, large networks aside,",
        f"{all_ - refused} compile, {share} of them without a host operator ({100 * share / max(1, all_):.0f} % of all).",
        "",
        _LEGEND,
    ]
    for domain in dict.fromkeys(each.domain for each in listed):
        lines += ["", f"## {domain or 'ai.onnx'}", "", "| operator | versions | native | host |", "|--|--|--|--|"]
        lines += [_row(each) for each in listed if each.domain == domain]
    return "\n".join(lines) + "\n"


def _row(operator: Operator) -> str:
    versions = ", ".join(map(str, operator.versions)) or "–"
    if operator.versions and operator.lacks:
        versions += f" (not {', '.join(map(str, operator.lacks))})"
    native = [name for name, way in operator.types.items() if way in (NATIVE, GONE)]
    hosted = [name for name, way in operator.types.items() if way in (HOST, BOTH)]
    at_import = set(operator.types.values()) == {GONE}
    return f"| {operator.name} | {versions} | {'at import' if at_import else ', '.join(native)} | {', '.join(hosted)} |"


if __name__ == "__main__":
    FOUND.write_text(json.dumps(measured(), indent=0) + "\n", encoding="utf-8")
