"""ConvertLayout and AlterOpLayout: operators in other layouts, transforms where the layouts differ (`transform_layout.h`).

Each call's value is kept in the layout that its operator has now, with the one that the program had; a user that cannot take
the former gets the latter by a transform.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...transform import ModulePass, Pass, PassInfo
from .. import ty
from ..expr import Call, Expr, Op, Tuple, TupleGetItem, as_expr
from ..rewrite import rebuilt
from ..visit import children
from .core import each_function, make, op_of, rewrite, static_shape, type_of
from .inference import CanonicalizeOps
from .layout_rules import INFER, Layout, letters, parse, primal, text

Alter = Callable[
    [Any, dict[str, Any], list[Expr]], "Expr | None"
]  # the call as it was, attributes, operands → another call


class _Layouts:
    """The walk over one function. `alter` gives calls in another layout."""

    def __init__(self, alter: Alter) -> None:
        self.alter = alter
        self.changed: dict[int, tuple[Expr, Layout, Layout]] = {}  # of a value: itself, its layout before, and now
        self.memo: dict[tuple[int, str, str], Expr] = {}

    def _transform(self, raw: Expr, source: Layout, target: Layout) -> Expr:
        if source == target or source is None or target is None:
            return raw
        key = id(raw), source, target
        if key not in self.memo:
            self.memo[key] = self._transformed(raw, source, target)
            self.changed.setdefault(-id(raw), (raw, None, None))  # so that no other object takes its identity
        return self.memo[key]

    def _transformed(self, raw: Expr, source: str, target: str) -> Expr:
        missing = [axis for axis in parse(target) if axis[0].isupper() and axis[0] not in primal(source)]
        if missing:
            if static_shape(raw) == () or not source:
                return raw
            raw, source = make("expand_dims", raw, 0, len(missing)), text(missing) + source
        return raw if source == target else make("layout_transform", raw, source, target)

    def _realized(self, expr: Any) -> Expr:
        """The value in the layout that the program had."""
        if id(expr) in self.changed:
            _, before, now = self.changed[id(expr)]
            return self._transform(expr, now, before)
        if isinstance(expr, Tuple):
            return rebuilt(expr, [self._realized(field) for field in expr.fields])
        return expr

    def rule(self, old: Any, new: Any) -> Expr | None:
        if isinstance(new, Tuple):
            return None
        if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
            return new.tuple_value.fields[new.index]
        found = self._call(old, new) if op_of(new) else None
        if found is not None:
            return found
        parts = [self._realized(child) for child in children(new)]
        made = rebuilt(new, parts)
        if op_of(new):
            changed = self.alter(old, dict(new.attrs), list(parts)) if INFER.get(op_of(new)) is None else None
            return changed or made
        return made

    def _call(self, old: Any, new: Any) -> Expr | None:
        infer = INFER.get(op_of(old))
        flat = [field for arg in new.args for field in (arg.fields if isinstance(arg, Tuple) else [arg])]
        known = [self.changed.get(id(arg), (arg, None, None)) for arg in flat]
        was, now = [before for _, before, _ in known], [after for _, _, after in known]
        if infer is None:
            return None
        types = [each for arg in old.args for each in (_types(arg) if isinstance(arg, Tuple) else [type_of(arg)])]
        first = infer(old, None, was, types)
        if first is None or None in first[0] or None in first[1]:
            return None
        read, gave, attrs = first
        asked = [after or before for after, before in zip(now, read, strict=True)]
        producers = [before or current for before, current in zip(was, read, strict=True)]
        attributes = {**new.attrs, **attrs}
        call = self.alter(old, attributes, list(new.args)) or _again(new, new.args, attributes)
        if not op_of(call):
            return None
        second_rule = INFER.get(op_of(call))
        second = second_rule(call, asked, producers, types) if second_rule else None
        if second is None or None in second[0] or None in second[1]:
            return None
        wanted, gives, attrs = second
        parts = iter(zip(was, read, now, wanted, strict=True))
        args = []
        for arg in call.args:  # type: ignore[attr-defined]
            several = arg.fields if isinstance(arg, Tuple) else [arg]
            moved = [self._moved(each, *next(parts)) for each in several]
            args.append(rebuilt(arg, moved) if isinstance(arg, Tuple) else moved[0])
        made = _again(call, args, {**call.attrs, **attrs})  # type: ignore[attr-defined]
        if isinstance(type_of(old), ty.TupleType):
            count = len(type_of(old).fields)  # type: ignore[union-attr]
            fields = [TupleGetItem(made, place) for place in range(count)]
            gave, gives = (each * count if len(each) == 1 else each for each in (gave, gives))
            for field, before, after in zip(fields, gave, gives, strict=True):
                self.changed[id(field)] = field, before, after
            return Tuple(fields)
        self.changed[id(made)] = made, gave[0], gives[0]
        return made

    def _moved(self, arg: Expr, was: Layout, read: Layout, now: Layout, wanted: Layout) -> Expr:
        if was is None or was == read:
            return self._transform(arg, now if was is not None else read, wanted)
        return self._transform(self._transform(arg, now, was), read, wanted)


def _types(expr: Tuple) -> list[Any]:
    return [type_of(field) for field in expr.fields]


def _again(call: Any, args: Sequence[Expr], attrs: Mapping[str, Any]) -> Call:
    return Call(call.op, args, attrs, call.type_args, names=call.names)


def _pass(name: str, alter: Alter) -> ModulePass:
    """The pass of this name; biases are sums before, as TVM's passes want them."""
    change = each_function(name, lambda function, _: rewrite(function, _Layouts(alter).rule), level=3)
    return ModulePass(PassInfo(3, name), lambda module, _: change(CanonicalizeOps()(module)))


# ---- to a layout ----


def _converted(call: Any, attrs: dict[str, Any], args: Sequence[Expr], layouts: Sequence[str]) -> Expr | None:
    """A call of an operator in the layouts that are wanted of it."""
    name, data = op_of(call), layouts[0]
    if "data_layout" in attrs:
        kernel = layouts[1] if len(layouts) > 1 else "default"
        if kernel == "default":
            kernel = _default_kernel(call, data)
        return make(name, *args, **{**attrs, "data_layout": data, "kernel_layout": kernel})
    if "layout" in attrs:
        changed = {**attrs, "layout": data}
        if "out_layout" in attrs and ("pool" in name):
            changed["out_layout"] = data if len(layouts) < 2 else layouts[1]
        return make(name, *args, **changed)
    return None


def _default_kernel(call: Any, data: str) -> str:
    """The layout that goes with data of this layout."""
    name = op_of(call)
    if re.fullmatch(r"NC\w*", data) and not any(letter.islower() for letter in letters(data)):
        return ("IO" if "transpose" in name else "OI") + data[2:]
    if data == "HWNC":
        return "HWOI"
    space = data[1:-1]
    if "transpose" in name:
        return f"{space}{'IO' if name.startswith('qnn') else 'OI'}"
    kernel, shape = letters(call.attrs["kernel_layout"]), static_shape(call.args[1])
    depthwise = call.attrs["groups"] > 1 and shape is not None and shape[kernel.index("I")] == 1
    return f"{space}{'OI' if depthwise and 'D' not in space else 'IO'}"


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass:
    """Operators in other layouts: `{"nn.conv2d": ["NHWC", "default"]}` (`convert_layout.cc`). An operator's registered rule
    (`relay.op.register_convert_op_layout`) comes before Treadle's."""

    def alter(call: Any, attrs: dict[str, Any], args: list[Expr]) -> Expr | None:
        layouts = desired_layouts.get(op_of(call))
        if layouts is None:
            return None
        own = Op.get(op_of(call)).get_attr("FTVMConvertOpLayout")
        if own is not None:
            return own(call.attrs, args, [type_of(arg) for arg in call.args], list(map(str, layouts)))
        made = _converted(call, attrs, args, list(map(str, layouts)))
        return None if made is None else as_expr(made)

    return _pass("ConvertLayout", alter)


def AlterOpLayout() -> Pass:
    """Operators as their registered rules say, `relay.op.register_alter_op_layout` (`alter_op_layout.cc`). Treadle has no such
    rules: its compiler chooses the layouts of weights when it makes the kernels."""

    def alter(call: Any, attrs: dict[str, Any], args: list[Expr]) -> Expr | None:
        own = Op.get(op_of(call)).get_attr("FTVMAlterOpLayout")
        if own is None:
            return None
        made = own(_again(call, call.args, attrs).attrs, args, [type_of(arg) for arg in call.args], type_of(call))
        return None if made is None else as_expr(made)

    return _pass("AlterOpLayout", alter)
