"""What the command line raises."""

from __future__ import annotations

from ..formats.messages.errors import TreadleError


class UsageError(TreadleError, ValueError):
    """The command line asks for something that does not fit together."""
