"""Figures of speed stand once, in `targets/cpu/costs.py`, each with its date, commit and unit."""

import re
from pathlib import Path

import pytest
from treadle.compiler.targets.cpu import costs

CPU = Path(costs.__file__).parent
# NAME = value  # day commit | unit: meaning | measured
ROW = re.compile(r"[A-Z][A-Z0-9_]* = .*  # \d\d [0-9a-f]{7} \| [^|:]+(: [^|]+)?( \| [^|]+)?")
ROWS = [line for line in Path(costs.__file__).read_text().splitlines() if re.match(r"[A-Z]", line) and " = " in line]


@pytest.mark.parametrize("line", ROWS, ids=lambda line: line.split()[0])
def test_a_figure_has_its_date_commit_and_unit(line: str) -> None:
    assert ROW.fullmatch(line)


def test_each_figure_is_used() -> None:
    text = "".join(path.read_text() for path in CPU.rglob("*.py") if path.name != "costs.py")
    assert [name for name in map(str.split, ROWS) if f"costs.{name[0]}" not in text] == []


def test_no_template_has_figures_of_time_of_its_own() -> None:
    own = re.compile(r"^_?[A-Z_]*(?:PICOSECONDS|NANOSECOND|CYCLES|GIGAHERTZ)[A-Z_]* = \d", re.M)
    assert [path.name for path in CPU.rglob("*.py") if path.name != "costs.py" and own.search(path.read_text())] == []
