"""Relay's expressions, types and modules as JSON: a list of nodes, each after those that are in it; what is shared stays so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...formats.messages.errors import FormatError
from ..modules.containers import Array, Map
from ..relax import expr as relax
from ..relax import struct_info as infos
from ..relay import adt, expr, ty
from ..relay.module import IRModule
from ..relay.visit import Walk, run


def _kinds(module: Any, attribute: str) -> list[Any]:
    """The classes of a module whose fields an attribute of theirs names."""
    return [
        each for each in vars(module).values() if isinstance(each, type) and getattr(each, attribute, None) is not None
    ]


# kind → its fields, in the order in which its class takes them
FIELDS: dict[type, tuple[str, ...]] = {
    expr.Constant: ("data",),
    expr.Var: ("name_hint", "type_annotation"),
    expr.GlobalVar: ("name_hint",),
    expr.Op: ("name",),
    expr.Call: ("op", "args", "attrs", "type_args", "span", "names"),
    expr.Tuple: ("fields",),
    expr.TupleGetItem: ("tuple_value", "index"),
    expr.Let: ("var", "value", "body"),
    expr.If: ("cond", "true_branch", "false_branch"),
    expr.Function: ("params", "body", "ret_type", "type_params", "attrs"),
    expr.SourceName: ("name",),
    expr.Span: ("source_name", "line", "end_line", "column", "end_column"),
    adt.Match: ("data", "clauses", "complete"),
    adt.Clause: ("lhs", "rhs"),
    adt.PatternWildcard: (),
    adt.PatternVar: ("var",),
    adt.PatternConstructor: ("constructor", "patterns"),
    adt.PatternTuple: ("patterns",),
    adt.Constructor: ("name_hint", "inputs", "belong_to"),
    adt.TypeData: ("header", "type_vars", "constructors"),
    ty.TensorType: ("shape", "dtype"),
    ty.TupleType: ("fields",),
    ty.TypeVar: ("name_hint", "kind"),
    ty.GlobalTypeVar: ("name_hint", "kind"),
    ty.TypeCall: ("func", "args"),
    ty.FuncType: ("arg_types", "ret_type", "type_params", "type_constraints"),
    ty.IncompleteType: ("kind",),
    ty.Any: (),
    IRModule: ("functions", "type_definitions", "attrs"),
    **{kind: kind.parts for kind in _kinds(relax, "parts")},
    **{kind: kind.fields_of for kind in _kinds(infos, "fields_of")},
    infos.ShapeExpr: ("values",),
    infos.Condition: ("operator", "left", "right"),
}
_KINDS = {f"{kind.__module__.split('.')[-2]}.{kind.__name__}": kind for kind in FIELDS}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_LISTS: dict[str, Any] = {"list": list, "tuple": tuple, "Array": Array}
_MAPS: dict[str, Any] = {"dict": dict, "Attrs": expr.Attrs, "Map": Map}


class Writer:
    """Writes values; `plain` is the form of everything but nodes. `nodes` are the nodes that have come."""

    def __init__(self, plain: Callable[[Any], Any]) -> None:
        self.nodes: list[list[Any]] = []
        self._plain = plain
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # what identities are of lives

    def write(self, value: Any) -> Any:
        """The form of a value. Raises FormatError for one that has none."""
        return run(self._value(value))

    def _value(self, value: Any) -> Walk:
        if value is None or type(value) in (bool, int, float, str):
            return {"Python": value}
        if type(value) in FIELDS:
            if id(value) not in self._numbers:
                yield self._node(value)
            return {"Node": self._numbers[id(value)]}
        if type(value) in _MAPS.values():
            pairs = []
            for key, each in value.items():
                pairs.append([(yield self._value(key)), (yield self._value(each))])
            return {type(value).__name__: pairs}
        if type(value) in _LISTS.values():
            items = []
            for each in value:
                items.append((yield self._value(each)))
            return {type(value).__name__: items}
        return self._plain(value)

    def _node(self, node: Any) -> Walk:
        fields = []
        for name in FIELDS[type(node)]:
            fields.append((yield self._value(getattr(node, name))))
        if isinstance(node, adt.Constructor):
            fields.append({"Python": node.tag})  # which modules number
        self._numbers[id(node)] = len(self.nodes)
        self._kept.append(node)
        self.nodes.append([_NAMES[type(node)], *fields])


class Reader:
    """Reads what a Writer wrote; `plain` reads everything but nodes."""

    def __init__(self, nodes: list[Any], plain: Callable[[Any], Any]) -> None:
        self._plain = plain
        self._made: list[Any] = []
        for kind, *fields in nodes:
            self._made.append(self._node(kind, [self.read(field) for field in fields]))

    def _node(self, name: str, fields: list[Any]) -> Any:
        kind = _KINDS[name]
        if kind is expr.Op:
            return expr.Op.get(*fields)
        if kind is adt.Constructor:
            made = adt.Constructor(*fields[:-1])
            made.tag = fields[-1]
            return made
        return getattr(kind, "of_fields", kind)(*fields)

    def read(self, form: Any) -> Any:
        """The value of a form. Raises FormatError, and what Python raises for a form that is none."""
        ((kind, value),) = form.items()
        if kind == "Python":
            return value
        if kind == "Node":
            if not 0 <= value < len(self._made):
                raise FormatError(f"load_json: node {value} is named before it is there")
            return self._made[value]
        if kind in _LISTS:
            return _LISTS[kind](self.read(each) for each in value)
        if kind in _MAPS:
            return _MAPS[kind]((self.read(key), self.read(each)) for key, each in value)
        return self._plain(form)
