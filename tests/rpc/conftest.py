"""Fixtures of tests of the server."""

from ..serve.conftest import folder, start

__all__ = ["folder", "start"]
