"""Nothing that a debugger holds outlives it."""

from ...vm.conftest import no_leak

__all__ = ["no_leak"]
