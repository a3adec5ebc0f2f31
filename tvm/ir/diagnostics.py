"""`tvm.ir.diagnostics`: who shows messages about wrong programs. Errors here are exceptions, which say all themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_renderers: list[Callable[..., Any]] = []


def get_renderer() -> Callable[..., Any] | None:
    """The renderer that was put in, if one was."""
    return _renderers[-1] if _renderers else None


def override_renderer(render_func: Callable[..., Any] | None) -> None:
    """Puts in a renderer, or takes the last one out. None is ever called: errors are raised."""
    if render_func is not None:
        _renderers.append(render_func)
    elif _renderers:
        _renderers.pop()
