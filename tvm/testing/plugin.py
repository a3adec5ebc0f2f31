"""A plugin of pytest's for TVM's tests: their arguments `target` and `dev` are each available target."""

from __future__ import annotations

from typing import Any

import pytest

from ...vm.device import Device, device
from .utils import enabled_targets


@pytest.fixture
def dev(target: Any) -> Device:
    """The device of a test's target, where a mark gives the target."""
    return device(str(target).split(" ")[0])


def pytest_generate_tests(metafunc: Any) -> None:
    """Tests that say nothing else are run for each target."""
    marks = list(metafunc.definition.iter_markers("parametrize"))
    marked = [name for mark in marks for name in _names(mark.args[0])]
    if "target" in marked and "dev" in metafunc.fixturenames and "dev" not in marked:
        marked.append("dev")  # the fixture gives the target's
    wanted = [name for name in ("target", "dev") if name in metafunc.fixturenames and name not in marked]
    if wanted:
        values = [dict(zip(("target", "dev"), pair, strict=True)) for pair in enabled_targets()]
        metafunc.parametrize(
            wanted,
            [tuple(value[name] for name in wanted) for value in values],
            ids=[value["target"] for value in values],
        )

    _parametrize_groups(metafunc)


def _parametrize_groups(metafunc: Any) -> None:
    """Fixtures of one call of `parameters` take their values together."""
    groups: dict[int, tuple[Any, list[tuple[str, int]]]] = {}
    for name in metafunc.fixturenames:
        definitions = metafunc._arg2fixturedefs.get(name)
        function: Any = definitions[-1].func if definitions else None
        if hasattr(function, "group"):
            groups.setdefault(id(function.group), (function.group, []))[1].append((name, function.place))
    for (value_sets, ids), places in groups.values():
        sets = [tuple(each[place] for _, place in places) for each in value_sets]
        metafunc.parametrize([name for name, _ in places], sets, ids=ids, indirect=True)


def _names(names: Any) -> list[str]:
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
