"""Fixtures of tests of the machine."""

from ..vm.conftest import machine

__all__ = ["machine"]
