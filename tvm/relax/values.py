"""Values of Relax's programs: expressions of Treadle's builder that say what Relax knows of them."""

from __future__ import annotations

from typing import Any

from ...compiler import ir
from ...compiler.builder.programs import Expression
from ...formats.types import Type
from .struct_info import StructInfo, struct_info_of, type_of

__all__ = ["DataflowVar", "Expr", "Var"]

Expr = Expression


class Var(Expression):
    """A variable: a parameter, or what a BlockBuilder has bound."""

    def __init__(self, name_hint: str, struct_info: StructInfo | Type | None = None, span: object = None) -> None:
        type_ = None if struct_info is None else type_of(struct_info)
        super().__init__(atom=ir.Var(name_hint, type_), type=type_)
        self.name_hint = name_hint

    @classmethod
    def of(cls, variable: ir.Var) -> Var:
        """That of a program."""
        made = cls.__new__(cls)
        Expression.__init__(made, atom=variable, type=variable.type)
        made.name_hint = variable.name
        return made

    @classmethod
    def bound(cls, name_hint: str, value: Expression) -> Var:
        """The name of a value."""
        made = cls.__new__(cls)
        shared: dict[str, Any] = {
            each: getattr(value, each) for each in ("type", "fields", "origin", "name", "given_name")
        }
        Expression.__init__(made, operands=(value,), **shared)
        made.name_hint = name_hint
        return made

    @property
    def struct_info(self) -> StructInfo | None:
        """What is known of the value; None for a parameter that was given no type."""
        return None if self.type is None else struct_info_of(self.type)

    @property
    def vid(self) -> Var:
        """Itself, which is its identity."""
        return self


class DataflowVar(Var):
    """A variable of a dataflow block, whose outputs alone are Vars."""
