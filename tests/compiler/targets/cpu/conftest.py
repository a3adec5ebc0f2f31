"""Random elements are a test's own: they do not depend on which tests ran before."""

import pytest

from . import harness


@pytest.fixture(autouse=True)
def seeded() -> None:
    harness.seed()
