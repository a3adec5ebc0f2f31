"""`tvm.ir.structural_equal` and its kin, for Relay's programs and for Relax's."""

from __future__ import annotations

from typing import Any

from ..relax import structural as relax
from ..relay import structural as relay

__all__ = ["assert_structural_equal", "structural_equal", "structural_hash"]


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two programs, types or lists of such are equal by structure. With `map_free_vars` free variables may differ."""
    of = relax if relax.is_relax(lhs) or relax.is_relax(rhs) else relay
    return of.structural_equal(lhs, rhs, map_free_vars)


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises ValueError for what is not equal by structure."""
    if not structural_equal(lhs, rhs, map_free_vars):
        raise ValueError(f"the structures differ:\n{lhs}\nand\n{rhs}")


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A number that programs which are equal have in common, and others hardly ever."""
    return (relax if relax.is_relax(node) else relay).structural_hash(node, map_free_vars)
