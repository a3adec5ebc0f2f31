"""Writes docs/reference/: every command with its options, every operator, every environment variable.

python -m treadle.tools.dev.derive.reference

The pages are made for the site alone (`make docs`), and git does not know them.
"""

from __future__ import annotations

import argparse
import inspect
import os

from ....compiler.builder.draws import FUNCTIONS
from ....compiler.builder.operator_functions import LOWERED, documentation, signature
from ....compiler.operators import complete
from ....formats.extensions import EXTENSIONS
from ....native.knobs import KNOBS
from ... import cli
from . import ROOT, write

FOLDER = ROOT / "docs" / "reference"
_NOTICE = "<!-- Derived by tools/dev/derive/reference.py. -->\n"
_COLUMNS = "110"  # of the options' texts


def commands_page() -> str:
    """The command line, as `--help` prints it."""
    before, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), _COLUMNS
    try:
        parser = cli._parser()
        commands = cli._commands(parser)
        parts = [_NOTICE, "# Commands", "", *_text(parser)]
        for name in (name for group in cli.grouped().values() for name in group):
            parts += ["", f"## treadle {name}", "", *_text(commands[name])]
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return "\n".join(parts) + "\n"


def _text(parser: argparse.ArgumentParser) -> list[str]:
    return ["```text", parser.format_help().rstrip(), "```"]


def operators_page() -> str:
    """The functions of `treadle.op`."""
    parts = [_NOTICE, "# Operators", ""]
    parts += ["`treadle.op` has a function for each: tensors by position, attributes by name.", ""]
    table = complete()
    for name in sorted(table):
        if name not in LOWERED and name not in EXTENSIONS:
            parts += _block(name, signature(table[name]), documentation(table[name]))
    for name, function in FUNCTIONS.items():
        found = inspect.signature(function)
        written = found.replace(parameters=list(found.parameters.values())[1:], return_annotation=found.empty)
        parts += _block(name, written, inspect.cleandoc(function.__doc__ or ""))
    return "\n".join(parts)


def _block(name: str, signature: inspect.Signature, doc: str) -> list[str]:
    return [f"## {name}", "", "```text", f"op.{name}{signature}", "", doc, "```", ""]


def variables_page() -> str:
    """The environment variables that Treadle reads."""
    parts = [_NOTICE, "# Environment variables", "", "`treadle knobs` prints them with their present values.", ""]
    parts += ["| name | meaning |", "|--|--|", *(f"| `{knob.name}` | {knob.doc} |" for knob in KNOBS.values())]
    return "\n".join(parts) + "\n"


PAGES = {"commands.md": commands_page, "operators.md": operators_page, "variables.md": variables_page}


if __name__ == "__main__":
    write({FOLDER / name: page() for name, page in PAGES.items()})
