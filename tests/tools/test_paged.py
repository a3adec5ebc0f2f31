"""`treadle bench paged`: what it measures is right, and it says so."""

from __future__ import annotations

import json

import pytest
import treadle
from treadle.tools import cli
from treadle.tools.dev.bench import paged


def test_a_small_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "_SEQUENCES", 2)
    monkeypatch.setattr(paged, "_TOKENS", 64)
    threads = treadle.get_num_threads()
    assert cli.main(["bench", "paged", "--repeat", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["megabytes"] == 2 * 64 * 8 * 128 * 2 * 4 / 1e6
    assert found["ms_a_step"] > 0
    assert treadle.get_num_threads() == threads
