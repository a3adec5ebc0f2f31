"""A plugin of pytest's for TVM's tests: their arguments `target` and `dev` are each target that there is here."""

from __future__ import annotations

from typing import Any

from .utils import enabled_targets


def pytest_generate_tests(metafunc: Any) -> None:
    """Tests that say nothing else are run for each target."""
    marked = [name for mark in metafunc.definition.iter_markers("parametrize") for name in _names(mark.args[0])]
    wanted = [name for name in ("target", "dev") if name in metafunc.fixturenames and name not in marked]
    if wanted:
        values = [dict(zip(("target", "dev"), pair, strict=True)) for pair in enabled_targets()]
        metafunc.parametrize(
            wanted,
            [tuple(value[name] for name in wanted) for value in values],
            ids=[value["target"] for value in values],
        )


def _names(names: Any) -> list[str]:
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
