"""`treadle ops`: which operators of ONNX there are, which of them are native, and what a model needs of them.

    treadle ops                          the operators that can be imported
    treadle ops --model model.onnx       those of a model, and whatever of it is not supported

Which operators there are says the table of importers (`onnx/table.py`) beside ONNX's own of all operators.
How they run cannot be read off a table: an importer makes what it likes of an operator, and templates take some element types
and not others. So it is tried, on the cases that ONNX keeps for tests of backends, in each element type that the standard allows.
What was found is kept in `operators.json`, which `tools/dev/derive/operators.py` writes; docs/operators.md shows it.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.messages.errors import UnsupportedOperatorError
from .program_files import ONNX, program_file

if TYPE_CHECKING:
    pass

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
    found = tried()["types"]
    listed = [
        Operator(domain, name, *_split(domain, name, sinces), found.get(f"{domain}.{name}".lstrip("."), {}))
        for (domain, name), sinces in standard().items()
    ]
    from ..compiler.onnx import importer as _  # noqa: F401  (its parts register importers)
    from ..compiler.onnx.schemas import OF_GRAPHS
    from ..compiler.onnx.table import _TABLE

    others = [
        Operator(domain, name, tuple(sorted(version.since for version in versions)))
        for (domain, name), versions in _TABLE.items()
        if (domain, name) not in standard() and any(by_users or not version.by_user for version in versions)
    ]
    others += [Operator(domain, name, (1,)) for domain, name in OF_GRAPHS if (domain, name) not in standard()]
    return sorted([*listed, *others], key=lambda each: (each.domain, each.name.lower()))


@cache
def standard() -> dict[tuple[str, str], tuple[int, ...]]:
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
def tried() -> dict[str, Any]:
    return json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {"types": {}, "cases": {}}


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
