"""What fuzzing found, and what it starts from, is taken or refused by name, and soon; definitions are changed in every way."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from treadle.formats.messages.errors import TreadleError
from treadle.tools.dev.fuzz import readers, runs
from treadle.tools.dev.fuzz.changed_definitions import mended, mutate_definition
from treadle.tools.dev.fuzz.definitions import try_definition
from treadle.tools.dev.fuzz.targets import (
    CORPUS,
    TARGETS,
    is_fault,
    known_definitions,
    read_corpus,
    with_changed_section,
)

from ..timing import soon

DEFINITIONS = known_definitions()


def refusal(target: Callable[[bytes], object], data: bytes) -> TreadleError | None:
    """An error that says itself that it is a fault; other refusals are as it should be."""
    try:
        target(data)
    except TreadleError as error:
        return error if is_fault(error) else None
    return None


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_of_the_corpus_are_taken_or_refused_by_name_within_two_seconds(name: str) -> None:
    inputs = read_corpus(name)
    assert inputs
    for data in inputs:
        with soon(2):
            assert refusal(TARGETS[name], data) is None


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < 1_000_000


def test_what_is_well_formed_needs_no_mending() -> None:
    for definition in DEFINITIONS:
        if all(node.operator != "constant" for node in definition.nodes):
            again = mended(definition)
            assert (again.params, again.nodes, again.outputs) == (
                definition.params,
                definition.nodes,
                definition.outputs,
            )


def test_changed_definitions_are_refused_or_have_a_kernel() -> None:
    tally: Counter[str] = Counter()
    with np.errstate(all="ignore"):
        for number in range(1500):
            random = Random(number)
            changed = mutate_definition(random, random.choice(DEFINITIONS))
            tally[try_definition(changed, random, lambda: None, 0.0)] += 1
    assert {"refused by its form", "refused by its types", "checked, lowered", "checked, no kernel"} <= tally.keys()
    assert min(tally["refused by its form"], tally["refused by its types"], tally["checked, lowered"]) > 150


def test_a_changed_section_has_a_checksum_that_fits() -> None:
    data = next(data for data in read_corpus("file") if len(data) > 1000)
    changed = with_changed_section(data, 0, lambda section: section[:-1] + b"\xff")
    assert changed != data
    with contextlib.suppress(TreadleError):
        TARGETS["file"](changed)
    assert with_changed_section(b"no container", 0, lambda section: section) == b"no container"


@pytest.mark.parametrize("name", readers.DEFAULT)
def test_changed_inputs_are_taken_or_refused_and_cost_little(name: str) -> None:
    tracemalloc.start()
    try:
        taken = [data for data in read_corpus(name) if readers.try_input(name, data) == "taken"]
        outcomes = [readers.try_input(name, readers.make_input(taken, 1, number)) for number in range(300)]
    finally:
        tracemalloc.stop()
    assert [each for each in outcomes if runs.is_bad(each)] == []
    assert readers.make_input([b"abc"], 1, 2) == readers.make_input([b"abc"], 1, 2)
