"""Images are not built by tests, but the commands in the Dockerfile and those of the pages are commands, and their
variables are read; `.ci/container` builds the image where it can."""

from __future__ import annotations

import json
import re
import shlex

from treadle.native.knobs import KNOBS
from treadle.tools.cli import _parser
from treadle.tools.dev.derive import pages

FILES = [
    text
    for page in pages.PAGES
    for text in re.findall(r"^```dockerfile\n(.*?)^```", (pages.ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
] + [(pages.ROOT / "Dockerfile").read_text(encoding="utf-8")]


def commands(text: str) -> list[list[str]]:
    """Of `RUN` and `CMD`, those that begin with `treadle`."""
    found = [part for line in re.findall(r"^RUN (.*)$", text, re.M) for part in line.split("&&")]
    split = [shlex.split(each) for each in found] + [json.loads(each) for each in re.findall(r"^CMD (.*)$", text, re.M)]
    return [each[1:] for each in split if each[0] == "treadle"]


def test_commands_of_dockerfiles_are_commands() -> None:
    assert FILES
    for text in FILES:
        assert commands(text)
        for command in commands(text):
            _parser().parse_args(command)


def test_variables_of_dockerfiles_are_variables() -> None:
    assert {name for text in FILES for name in re.findall(r"\b(TREADLE_\w+)=", text)} <= set(KNOBS)
