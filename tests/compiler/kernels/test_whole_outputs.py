"""Every byte of every output is written, or the call fails; nothing else is; whatever the sizes are."""

from __future__ import annotations

from functools import partial

import pytest
from treadle.compiler.kernels.build import build
from treadle.compiler.kernels.lower import TEMPLATES, supports

from .examples import examples
from .harness import TARGET
from .trial import failures, trial

_EACH = 6


@pytest.mark.parametrize("operator", TEMPLATES)
def test_every_byte_of_every_output_is_written_or_the_call_fails(operator: str) -> None:
    cases = [case for case in examples(operator, 0, _EACH) if supports(case.definition, TARGET)]
    build([case.definition for case in cases], TARGET, progress=False)
    tasks = [(case.name, partial(trial, case)) for case in cases]
    assert failures(tasks) == {}
