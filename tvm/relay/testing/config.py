"""`relay.testing.config`: what tests of before 0.8 run on."""

from __future__ import annotations

from typing import Any

from . import enabled_targets

__all__ = ["ctx_list"]


def ctx_list() -> list[tuple[str, Any]]:
    """The target, and the device: there is one."""
    return enabled_targets()
