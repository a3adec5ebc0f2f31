"""The table of docs/kernels.md has the operators of `TEMPLATES`, and the files of their templates in the order of asking."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from treadle.compiler.operators.table import TABLE, Fusion
from treadle.compiler.targets.cpu.kernels.lower import TEMPLATES
from treadle.tools.dev.derive import pages

TEXT = (pages.ROOT / "docs/kernels.md").read_text(encoding="utf-8")
TABLE_ROW = re.compile(r"^\| ?(.*?) \| `((?:\w+/)?\w+)\.py` \|", re.MULTILINE)


def told() -> dict[str, list[str]]:
    """By operator the files of its rows; a row without operators goes on from the one before."""
    found: dict[str, list[str]] = {}
    operators: list[str] = []
    for first, file in TABLE_ROW.findall(TEXT):
        if first.strip():
            operators = [name for name in re.findall(r"`(\w+)`", first) if name in TABLE]
        for operator in operators:
            found.setdefault(operator, []).append(file)
    return found


def files(template: Callable[..., Any]) -> list[str]:
    """Of a template, or of the two that `_either` chooses from, the first one first."""
    cells = {
        name: cell.cell_contents
        for name, cell in zip(template.__code__.co_freevars, template.__closure__ or (), strict=True)
    }
    if cells:
        return [*files(cells["special"]), *files(cells["general"])]
    return ["/".join(template.__module__.split(".")[-2:])]


def test_the_table_has_every_template_in_the_order_of_asking() -> None:
    assert told() == {operator: files(template) for operator, template in TEMPLATES.items()}


def test_every_file_that_the_page_names_is_there() -> None:
    folder = pages.ROOT / "compiler/targets/cpu"
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", TEXT))
    places = (folder, pages.ROOT / "compiler", pages.ROOT)
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_elementwise_operators_are_in_no_row_of_their_own() -> None:
    assert not [name for name in told() if TABLE[name].fusion is Fusion.ELEMENTWISE]
