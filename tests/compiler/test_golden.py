"""A refactoring changes no kernel and no program: their hashes are those that golden.txt accepts."""

from __future__ import annotations

import numpy as np
import pytest
import treadle
from treadle.tools.dev.zoo.catalogue import CATALOGUE

from . import golden


def test_the_kernels_of_templates_are_as_accepted() -> None:
    found = {row: golden.hashes(texts) for row, texts in golden.of_templates()}
    known = {row: hashes for row, hashes in golden.accepted().items() if not row.startswith(golden.MODELS)}
    assert not (message := golden.changes(found, known)), message


@pytest.mark.parametrize("model", CATALOGUE)
def test_the_program_and_the_kernels_of_a_model_are_as_accepted(model: str) -> None:
    row = golden.MODELS + model
    known = {name: hashes for name, hashes in golden.accepted().items() if name == row}
    message = golden.changes({row: golden.hashes(golden.of_model(model))}, known)
    assert not message, message


def test_no_model_is_accepted_that_is_not_in_the_zoo() -> None:
    models = [row.removeprefix(golden.MODELS) for row in golden.accepted() if row.startswith(golden.MODELS)]
    assert models == sorted(CATALOGUE)


def test_what_has_changed_is_named() -> None:
    known = {"conv 1": {"avx2": "a", "neon": "b"}, "conv 2": {"avx2": "c"}, "gone 1": {"avx2": "d"}}
    found = {"conv 1": {"avx2": "a", "neon": "e"}, "conv 2": {"avx2": "c"}, "new 1": {"avx2": "f"}}
    assert golden.changes(known, known) == ""
    _, *lines, advice = golden.changes(found, known).splitlines()
    assert lines == ["conv 1: neon", "gone 1: is in golden.txt alone", "new 1: is not in golden.txt"]
    assert "--diff 'conv 1'" in advice
    assert "make golden" in advice


def test_constants_count_but_not_their_last_bits() -> None:
    x = treadle.var("x", (3,))

    def program(*values: float) -> str:
        module = treadle.Module(main=treadle.function([x], treadle.op.add(x, np.array(values, np.float32))))
        return golden._program(treadle.compile(module, embed_native=False, progress=False))

    assert program(1, 0.3, -0.2) == program(1, np.nextafter(np.float32(0.3), np.float32(1)), -0.2)
    assert program(1, 0.3, -0.2) != program(0.3, 1, -0.2)
    assert program(1, 0.3, np.nan) != program(1, 0.3, np.inf)
