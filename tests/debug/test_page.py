"""What docs/debugging.md shows is what its commands print."""

from pathlib import Path

import treadle
from treadle.tools.dev.derive.pages import without_numbers
from treadle.tools.dev.planted import PAGE, WRONG_ROWS, model, page, with_wrong_kernel


def test_the_page_shows_what_its_commands_print() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert without_numbers(page(text)) == without_numbers(text), "run python -m treadle.tools.dev.planted"


def test_a_planted_kernel_is_wrong_also_where_the_right_one_was_built(tmp_path: Path) -> None:
    treadle.VirtualMachine(treadle.compile(model(rows=WRONG_ROWS), progress=False))
    executable, wrong = with_wrong_kernel()
    executable.export_library(tmp_path / "kernel.trdl")
    found = treadle.debug.compare(tmp_path / "kernel.trdl", trust_native=True)
    assert found.first is not None
    assert found.first.primitive == wrong
