"""Symbolic dimensions under the names that Relay programs make them by. There are no tensor expressions here."""

from .tir import Var as size_var
from .tir import Var as var

__all__ = ["size_var", "var"]
