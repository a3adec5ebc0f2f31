"""`treadle ops`: which operators of ONNX there are, which of them are native, and what a model needs of them.

    treadle ops                          the operators that can be imported
    treadle ops --model model.onnx       those of a model, and whatever of it is not supported

Which operators there are says the table of importers (`onnx/table.py`) beside ONNX's own of all operators.
How they run cannot be read off a table: an importer makes what it likes of an operator, and templates take some element types
and not others. So it is tried, on the cases that ONNX keeps for tests of backends, in each element type that the standard allows.
What was found is kept in `operators.json`, which `python -m treadle.tools.operators` writes anew in a minute or two.
docs/operators.md shows it.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.messages.errors import TreadleError, UnsupportedOperatorError
from .program_files import ONNX, program_file

if TYPE_CHECKING:
    import onnx

FOUND = Path(__file__).with_suffix(".json")
FIRST_OPSET = 7  # of ai.onnx, before which broadcasting was another
_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")

NATIVE, HOST, BOTH, GONE, UNTRIED = "native", "host", "native or host", "at import", "untried"


@dataclass(frozen=True)
class Operator:
    """An operator of the standard, or of onnxruntime, that can be imported or not.

    `versions` are the opset versions since which there is another form of it, as far as it is imported from them; `lacks` the
    others. `types` says by element type how the operator ran where it was tried: NATIVE, HOST, BOTH, or GONE where nothing of
    it is left for run time."""

    domain: str
    name: str
    versions: tuple[int, ...]
    lacks: tuple[int, ...] = ()
    types: dict[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.domain}.{self.name}".lstrip(".")

    @property
    def runs(self) -> str:
        """How, over all types."""
        found = set(self.types.values())
        if not found:
            return UNTRIED if self.versions else ""
        if len(found) == 1:
            return found.pop()
        return BOTH if found & {HOST, BOTH} else NATIVE


# ---- what there is ----


def operators(*, by_users: bool = True) -> list[Operator]:
    """All operators of the standard, and others that are imported, in the order of their names; those that users' importers
    alone take only if asked for."""
    found = _found()["types"]
    listed = [
        Operator(domain, name, *_split(domain, name, sinces), found.get(f"{domain}.{name}".lstrip("."), {}))
        for (domain, name), sinces in _standard().items()
    ]
    from ..compiler.onnx import importer as _  # noqa: F401  (its parts register importers)
    from ..compiler.onnx.table import _TABLE

    others = [
        Operator(domain, name, tuple(sorted(version.since for version in versions)))
        for (domain, name), versions in _TABLE.items()
        if (domain, name) not in _standard() and any(by_users or not version.by_user for version in versions)
    ]
    return sorted([*listed, *others], key=lambda each: (each.domain, each.name.lower()))


@cache
def _standard() -> dict[tuple[str, str], tuple[int, ...]]:
    """The versions of each operator that a model of opset 7 on may use: those of ai.onnx that are older count as 7."""
    import onnx

    found: dict[tuple[str, str], set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in _DOMAINS:
            first = FIRST_OPSET if schema.domain == "" else 1
            found.setdefault((schema.domain, schema.name), set()).add(max(schema.since_version, first))
    deprecated = {
        key for key in found if onnx.defs.has(key[1], key[0]) and onnx.defs.get_schema(key[1], domain=key[0]).deprecated
    }
    return {key: tuple(sorted(versions)) for key, versions in sorted(found.items()) if key not in deprecated}


def _split(domain: str, name: str, sinces: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The versions that are imported, and the others."""
    from ..compiler.onnx.schemas import is_known

    known = tuple(since for since in sinces if is_known(domain, name, since))
    return known, tuple(since for since in sinces if since not in known)


# ---- how it runs ----


@cache
def _found() -> dict[str, Any]:
    return json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {"types": {}, "cases": {}}


def measured() -> dict[str, Any]:
    """The contents of `operators.json`, measured anew: it takes a minute or two."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [(case.name, _model(case)) for case in load_model_tests(kind="node")]
        for kind in ("simple", "pytorch-operator", "pytorch-converted"):
            cases += [(f"{kind}/{case.name}", _model(case)) for case in load_model_tests(kind=kind)]
        ways = {name: _way(model) for name, model in cases}
        types: dict[str, dict[str, str]] = {}
        for name, model in cases:
            if len(model.graph.node) == 1 and not name.endswith("_expanded"):
                _try_types(model, types, ways[name])
    counted = Counter(way or "refused" for way in ways.values())
    return {
        "cases": {"all": len(ways), **{key: counted[key] for key in sorted(counted)}},
        "types": {name: dict(sorted(found.items())) for name, found in sorted(types.items())},
    }


def _model(case: Any) -> onnx.ModelProto:
    import onnx

    return case.model or onnx.load(Path(case.model_dir) / "model.onnx")


def _way(model: onnx.ModelProto) -> str:
    """How a model runs; "" for one that is refused."""
    from .. import compile
    from ..compiler.host_work import host_primitives
    from ..compiler.targets.choice import backend_of

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
    import onnx

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
    import onnx

    return {name.lower(): code for name, code in onnx.TensorProto.DataType.items()}


def _better(before: str | None, now: str) -> str:
    order = (NATIVE, BOTH, HOST, GONE)
    return now if before is None else min(before, now, key=order.index)


def _retyped(model: onnx.ModelProto, schema: Any, letter: str, code: int) -> onnx.ModelProto:
    """The model with another element type for all inputs that the standard gives the same."""
    import onnx

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
    listed, cases = operators(by_users=False), _found()["cases"]
    there = [each for each in listed if each.versions]
    standard = [each for each in listed if (each.domain, each.name) in _standard()]
    share = cases.get(NATIVE, 0) + cases.get(GONE, 0)
    imported = sum(bool(each.versions) for each in standard)
    runtimes = sum(each.domain == "com.microsoft" for each in there)
    all_, refused = cases.get("all", 0), cases.get("refused", 0)
    lines = [
        notice,
        "# The operators of ONNX",
        "",
        "`treadle ops` prints this list, and `treadle ops --model model.onnx` what a model needs of it.",
        "",
        f"Of the {len(standard)} operators of the standard that are not deprecated, {imported} can be imported, and",
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


# ---- the command ----

COMMANDS = {"Look inside": ("ops",)}


def add_commands(commands: Any) -> None:
    """Adds `treadle ops`."""
    parser = commands.add_parser("ops", help="list the supported operators of ONNX, or those that a model needs")
    parser.add_argument(
        "--model", metavar="FILE", help="a .onnx model: what it needs, and all of it that is not supported"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    if options.model is not None:
        return _model_command(options)
    listed = [each for each in operators() if each.versions]
    if options.json:
        print(json.dumps([{**asdict(each), "runs": each.runs} for each in listed], indent=2))
    else:
        width = max(len(each.full_name) for each in listed)
        for each in listed:
            print(f"{each.full_name:{width}}  {each.runs:14}  {', '.join(map(str, each.versions))}")
    return 0


def _model_command(options: argparse.Namespace) -> int:
    """0 for a model that can be compiled, 3, as of a model that is refused, for another."""
    from .. import compile
    from ..compiler.host_work import host_primitives
    from ..compiler.targets.choice import backend_of
    from .cli import INVALID, OK

    file = program_file(options.model)
    file.require((ONNX,), "treadle ops")
    needed = _needed(file.source)
    unsupported: list[tuple[str, str, str]] = []
    hosted = []
    try:
        hosted = host_primitives(
            compile(file.source, embed_native=False, progress=False).program, backend_of().supports
        )
    except UnsupportedOperatorError as error:
        unsupported = error.operators
    if options.json:
        facts = {
            "operators": [
                {"operator": name, "version": version, "nodes": count} for (name, version), count in needed.items()
            ],
            "unsupported": [{"operator": name, "node": node, "reason": reason} for name, node, reason in unsupported],
            "host": [asdict(each) for each in hosted],
        }
        print(json.dumps(facts, indent=2))
    else:
        refused = Counter(name for name, _, _ in unsupported)
        by_host = {node for each in hosted for node in each.nodes}
        for (name, version), count in needed.items():
            print(f"{count:6} × {name} of opset {version}{f': {refused[name]} not supported' if refused[name] else ''}")
        for name, node, reason in unsupported:
            print(f"not supported: {name} ({node}): {reason}")
        for each in hosted:
            print(f"on the host: {each}{', in a loop' if each.in_loop else ''}")
        if not unsupported and not by_host and not hosted:
            print("all of it is native")
    return INVALID if unsupported else OK


def _needed(source: Path | bytes) -> dict[tuple[str, int | None], int]:
    """How often a model has each operator, its functions and the graphs in nodes included, with its domain's version."""
    from ..compiler.onnx.file import read_model

    model = read_model(source).model
    versions = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in model.opset_import}
    counts: Counter[tuple[str, int | None]] = Counter()
    own = {(each.domain, each.name) for each in model.functions}
    for node in _nodes(node for part in [model.graph, *model.functions] for node in part.node):
        if (node.domain, node.op_type) not in own:
            domain = "" if node.domain == "ai.onnx" else node.domain
            counts[(f"{domain}.{node.op_type}".lstrip("."), versions.get(domain))] += 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0][0])))


def _nodes(nodes: Any) -> Iterator[Any]:
    """The nodes, and those of graphs in them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in [attribute.g, *attribute.graphs]:
                yield from _nodes(graph.node)


if __name__ == "__main__":
    FOUND.write_text(json.dumps(measured(), indent=0) + "\n", encoding="utf-8")
