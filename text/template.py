"""Chat templates, rendered by a process of their own (`template_process.py`): a template that takes too long is ended with it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from ..formats.messages.errors import ArgumentError, BudgetExceededError, MissingPackageError
from .confined import MEMORY, Confined

SECONDS = 2.0  # that a chat may take
MOST_BYTES = 4 << 20  # of a rendered chat


class Renderer(Confined):
    """A process that renders templates, one request at a time. Any thread may ask."""

    def __init__(self) -> None:
        super().__init__("template_process.py", b'{"template": "", "variables": {}}')

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Raises ArgumentError for a template that fails or variables that are not JSON, BudgetExceededError,
        MissingPackageError."""
        if find_spec("jinja2") is None:
            raise MissingPackageError("chat templates need jinja2: pip install 'treadle[text]'")
        try:  # JSON takes up to 6 bytes for one
            answer = self.ask({"template": template, "variables": dict(variables)}, SECONDS, 6 * MOST_BYTES)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"the chat template: its variables are not JSON: {error}") from None
        if answer is None or len(answer.get("text", "")) > MOST_BYTES:
            raise BudgetExceededError(
                f"the chat template took more than {SECONDS} s, {MEMORY >> 20} MiB, or {MOST_BYTES} characters",
                budget="seconds",
            )
        if "error" in answer:
            raise ArgumentError(f"the chat template: {answer['error']}")
        return str(answer["text"])
