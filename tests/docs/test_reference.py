"""The reference has every public name, operator, command and variable."""

from __future__ import annotations

import inspect
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import treadle
from treadle import debug, op
from treadle.native.knobs import KNOBS
from treadle.tools.cli import _parser
from treadle.tools.dev.derive import reference

API = (reference.FOLDER.parent / "api.md").read_text(encoding="utf-8")
DOCUMENTED = set(re.findall(r"^\.\. auto\w+:: (\S+)$", API, re.MULTILINE)) | set(re.findall(r"`(treadle\.\w+)`", API))


@pytest.mark.parametrize("name", treadle.__all__)
def test_each_public_name_is_in_the_reference(name: str) -> None:
    assert f"treadle.{name}" in DOCUMENTED


@pytest.mark.parametrize("name", debug.__all__)
def test_each_name_of_debug_is_in_the_reference(name: str) -> None:
    assert f"treadle.debug.{name}" in DOCUMENTED


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_what_is_in_the_reference_is_there(name: str) -> None:
    value: Any = treadle
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    assert isinstance(value, str) or value.__doc__


def test_each_row_of_a_table_in_a_docstring_is_a_row_of_the_site() -> None:
    conf = runpy.run_path(str(reference.FOLDER.parent / "conf.py"))
    lines = inspect.cleandoc(treadle.compile.__doc__ or "").splitlines()
    conf["_as_markup"](None, "function", "treadle.compile", None, None, lines)
    names = [name for line in lines if (found := re.fullmatch("``(.+)``", line)) for name in found[1].split(", ")]
    assert sorted(names) == sorted(set(inspect.signature(treadle.compile).parameters) - {"model"})


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_the_site_needs_its_own_packages_alone_and_says_where_it_is(tmp_path: Path) -> None:
    command = ["make", "--dry-run", "--no-print-directory", f"VENV={tmp_path}", "docs"]
    done = subprocess.run(command, cwd=reference.FOLDER.parent.parent, capture_output=True, text=True, check=True)
    assert "[dev]" not in done.stdout
    assert "[docs-test]" in done.stdout
    assert "build/docs/index.html" in done.stdout.splitlines()[-1]


def test_each_operator_is_in_the_reference() -> None:
    page = reference.operators_page()
    assert all(f"\n## {name}\n" in page for name in dir(op) if name != "lowered")


def test_each_command_is_in_the_reference_with_its_options() -> None:
    page = reference.commands_page()
    for action in _parser()._subparsers._group_actions:  # type: ignore[union-attr]
        for name, command in action.choices.items():  # type: ignore[union-attr, attr-defined]
            assert f"\n## treadle {name}\n" in page
            assert all(option in page for option in command._option_string_actions)


def test_each_variable_is_in_the_reference() -> None:
    page = reference.variables_page()
    assert all(f"| `{name}` |" in page for name in KNOBS)
