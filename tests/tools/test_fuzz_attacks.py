"""The judge of attacks tells what must not happen, and a variant of each class holds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from treadle.formats.messages.errors import ShapeError
from treadle.tools.dev.fuzz import attacks
from treadle.tools.dev.fuzz.hostile.attacks import ATTACKS
from treadle.tools.dev.fuzz.hostile.variants import MB, Variant, want


@pytest.mark.serial  # it looks at how long other threads wait
@pytest.mark.parametrize("name", ATTACKS)
def test_a_variant_of_each_class_holds(name: str) -> None:
    for number in range(2):
        assert re.match(r"held|refused \w+Error", attacks.try_attack(name, 0, number))


def busy(seconds: float) -> None:
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass


def refuse(text: str) -> None:
    error = ShapeError("")
    error.args = (text,)
    raise error


FINDINGS: dict[str, tuple[Callable[[], object], str]] = {
    "a promise": (lambda: want(False, "another's text"), "another's text"),
    "a raw error": (lambda: np.zeros(2)[3], "IndexError"),
    "text": (lambda: ["\x1b[2J"], "printed as it is"),
    "an error's text": (lambda: refuse("\x1b[2J"), "printed as it is"),
    "time": (lambda: busy(0.3), "took 0.3 s of 0.2"),
    "a turn": (lambda: re.match(r"(a|a)*b", "a" * 20), "took the turn of another thread"),
    "memory": (lambda: np.ones(200 * MB, np.uint8).sum(), "took .* MiB of 20"),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_what_must_not_happen_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    act, told = FINDINGS[name]
    seconds = 0.2 if name == "time" else 30
    pause = 0.02 if name == "a turn" else 30

    def made(_: Random) -> Variant:
        return Variant(act, seconds=seconds, memory=20 * MB, pause=pause)

    monkeypatch.setitem(ATTACKS, "planted", made)
    assert re.match(f"finding: .*{told}", attacks.try_attack("planted", 0, 0))
