"""The table of layers, and the page that it shares with the races."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from treadle.tools.cli import main
from treadle.tools.dev.bench import race_report


def test_what_layers_take_is_a_table_of_a_page_that_has_others(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nText.\n\n## Compile time by layers\n\nOld.\n\n## Others\n\nMore.\n")
    assert main(["bench", "layers", "--layers", "1,3", "--json", "--report", str(page)]) == 0
    few, many = json.loads(capsys.readouterr().out)
    assert (few["layers"], many["layers"]) == (1, 3)
    assert few["seconds"] > 0
    assert few["nodes"] < many["nodes"]
    assert few["file_bytes"] < many["file_bytes"]
    text = page.read_text()
    assert text.startswith("# Title\n\nText.\n\n## Compile time by layers\n\nWritten by")
    assert "| 3 |" in text
    assert "Old." not in text
    assert text.endswith("## Others\n\nMore.\n")


def test_races_are_written_beside_other_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Old\n\n## 1 thread\n\nOld races.\n\n## Compile time by layers\n\nLayers.\n")
    race_report.write(str(page), [])
    assert page.read_text().startswith("# Treadle and the runtimes that people use today\n")
    assert page.read_text().endswith("\n\n## Compile time by layers\n\nLayers.\n")
    assert "Old" not in page.read_text()
