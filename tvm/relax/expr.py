"""Relax's expressions, bindings and functions: plain objects, as TVM's users build, walk and print them.

An expression's struct info is what is known of its value. That of a call follows from its operator (`OPERATOR_CALLS`, which `op/`
fills), or from the struct info of the function that it calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ...formats import dims
from ...formats.dims import SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.errors import CheckError
from ...formats.types import UNKNOWN
from ...vm.tensor import Tensor
from .. import relax
from ..relay import expr as relay
from ..runtime.ndarray import NDArray, array
from .node import Node
from .struct_info import (
    Condition,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    bind_sizes,
    defined_names,
    erased,
    map_sizes,
    struct_info_of,
)

__all__ = [
    *(
        "Binding",
        "BindingBlock",
        "Call",
        "Constant",
        "DataTypeImm",
        "DataflowBlock",
        "DataflowVar",
        "Expr",
        "ExternFunc",
    ),
    *("Function", "GlobalVar", "If", "MatchCast", "Op", "PrimValue", "SeqExpr", "ShapeExpr", "StringImm", "Tuple"),
    *("TupleGetItem", "Var", "VarBinding", "const", "get_shape_of"),
]

OPERATOR_CALLS: dict[str, Any] = {}  # by the name without "relax.", as "nn.softmax"


def _method(name: str, swapped: bool = False) -> Callable[..., Any]:
    def method(self: Expr, other: Any) -> Any:
        return OPERATOR_CALLS[name](*((other, self) if swapped else (self, other)))

    return method


class Expr(Node):
    """What a program is made of."""

    parts: ClassVar[tuple[str, ...]] = ()  # the attributes that say what it is, in the constructor's order
    struct_info_: StructInfo | None = None
    span: object = None

    __add__, __radd__ = _method("add"), _method("add", swapped=True)
    __sub__, __rsub__ = _method("subtract"), _method("subtract", swapped=True)
    __mul__, __rmul__ = _method("multiply"), _method("multiply", swapped=True)
    __truediv__, __rtruediv__ = _method("divide"), _method("divide", swapped=True)
    __floordiv__, __pow__ = _method("floor_divide"), _method("power")
    __lt__, __le__, __gt__, __ge__ = map(_method, ("less", "less_equal", "greater", "greater_equal"))

    def __neg__(self) -> Any:
        return OPERATOR_CALLS["negative"](self)

    def astype(self, dtype: str) -> Any:
        return OPERATOR_CALLS["astype"](self, dtype)

    def __call__(self, *args: Any, attrs: Any = None) -> Call:
        return Call(self, args, attrs)

    def __getitem__(self, index: int) -> Expr:
        """A field of a tuple. Raises IndexError where it is known not to have it, which ends unpacking too."""
        info = self.struct_info
        if isinstance(info, TupleStructInfo) and not -len(info.fields) <= index < len(info.fields):
            raise IndexError(f"Tuple index out of range: {index} of {len(info.fields)}")
        return TupleGetItem(self, index)

    def __iter__(self) -> Iterator[Expr]:
        info = self.struct_info
        if not isinstance(info, TupleStructInfo):
            raise TypeError(f"{self}: expected a tuple whose fields are known")
        return (TupleGetItem(self, index) for index in range(len(info.fields)))

    @property
    def struct_info(self) -> Any:
        """What is known of the value; None for a variable of which nothing was said."""
        return self.struct_info_

    @property
    def checked_type(self) -> Any:
        """Its type. Raises CheckError where no struct info is known."""
        info = self.struct_info
        if info is None:
            raise CheckError(f"{self}: the struct info is not known")
        return info.checked_type

    @property
    def _checked_type_(self) -> Any:
        return None if self.struct_info is None else self.struct_info.checked_type

    __repr__ = Node.__str__


def as_expr(value: Any) -> Any:
    """The expression that a value of Python's stands for: numbers, strings, tuples, shapes. Raises TypeError for another."""
    if isinstance(value, (Expr, ShapeExpr)):
        return value
    if isinstance(value, (tuple, list)):
        return Tuple(value)
    if isinstance(value, (int, float, SymbolicDim, Condition, np.generic)):
        return PrimValue(value)
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (Tensor, np.ndarray)):
        return Constant(value)
    if isinstance(value, relay.GlobalVar):
        return value
    raise TypeError(f"expected an expression of Relax, got a {type(value).__name__}")


class Op(Expr):
    """An operator: "relax.nn.softmax"."""

    parts = ("name",)
    _known: ClassVar[dict[str, Op]] = {}
    name: str

    def __new__(cls, name: str) -> Op:
        if name not in cls._known:
            cls._known[name] = super().__new__(cls)
            cls._known[name].name = name
        return cls._known[name]

    get: ClassVar[Callable[..., Op]]


Op.get = Op


class Var(Expr):
    """A variable, which is its own identity."""

    parts = ("name_hint", "struct_info_")

    def __init__(self, name_hint: str, struct_info: Any = None, span: object = None) -> None:
        self.name_hint = name_hint
        self.struct_info_ = None if struct_info is None else struct_info_of(struct_info)

    @property
    def vid(self) -> Var:
        """Itself, which is its identity."""
        return self


class DataflowVar(Var):
    """A variable of a dataflow block, whose outputs alone are Vars."""


class GlobalVar(relay.GlobalVar, Expr):
    """The name of a function of a module; two of one name are equal."""

    parts = ("name_hint",)

    def __init__(self, name_hint: str, struct_info: Any = None) -> None:
        super().__init__(name_hint)
        self.struct_info_ = struct_info

    def __call__(self, *args: Any, attrs: Any = None) -> Call:  # type: ignore[override]
        return Call(self, args, attrs)

    struct_info = Expr.struct_info
    script = Expr.script
    __str__ = __repr__ = Expr.__str__  # type: ignore[assignment]


class Constant(Expr):
    """A tensor that is known."""

    parts = ("data",)

    def __init__(self, data: Any, struct_info: Any = None, span: object = None) -> None:
        self.data: NDArray = data if isinstance(data, NDArray) else array(data)
        self.struct_info_ = struct_info or TensorStructInfo(self.data.array.shape, DType.of(self.data.array.dtype).name)


def const(value: Any, dtype: str | None = None) -> Constant:
    """A tensor known now; of numbers, lists and NumPy's arrays, float64 becomes float32 and int64 int32 unless `dtype` says
    otherwise."""
    given = value.array if isinstance(value, Tensor) else np.asarray(value)
    if dtype is None and not isinstance(value, Tensor):
        dtype = {"float64": "float32", "int64": "int32"}.get(given.dtype.name)
    return Constant(given if dtype is None else given.astype(DType.of(dtype).numpy))


class PrimValue(Expr):
    """A number: known, or an expression of sizes."""

    parts = ("value",)

    def __init__(self, value: Any, span: object = None) -> None:
        self.value = value
        self.struct_info_ = PrimStructInfo(value=value)


class _Literal(Expr):
    parts = ("value",)

    def __init__(self, value: str, span: object = None) -> None:
        self.value = value
        self.struct_info_ = ObjectStructInfo()


class StringImm(_Literal):
    """A string."""


class DataTypeImm(_Literal):
    """An element type."""


class ExternFunc(Expr):
    """A registered function, by its name."""

    parts = ("global_symbol",)

    def __init__(self, global_symbol: str, struct_info: Any = None, span: object = None) -> None:
        self.global_symbol = str(global_symbol)
        self.struct_info_ = struct_info or FuncStructInfo.opaque_func()
        self.attrs = {"global_symbol": self.global_symbol}

    def __call__(self, *args: Any, sinfo_args: Any = (), attrs: Any = None) -> Call:
        return Call(self, args, attrs, sinfo_args)


class Tuple(Expr):
    """A tuple."""

    parts = ("fields",)

    def __init__(self, fields: Sequence[Any], span: object = None) -> None:
        self.fields = tuple(map(as_expr, fields))
        infos = [each.struct_info for each in self.fields]
        self.struct_info_ = None if None in infos else TupleStructInfo(infos)

    def __getitem__(self, index: int) -> Any:
        if not -len(self.fields) <= index < len(self.fields):
            raise IndexError(f"Tuple index out of range: {index} of {len(self.fields)}")
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fields)


class TupleGetItem(Expr):
    """A field of a tuple."""

    parts = ("tuple_value", "index")

    def __init__(self, tuple_value: Any, index: int, span: object = None) -> None:
        self.tuple_value, self.index = tuple_value, index
        info = tuple_value.struct_info
        known = isinstance(info, TupleStructInfo) and -len(info.fields) <= index < len(info.fields)
        self.struct_info_ = info.fields[index] if known else ObjectStructInfo()


class Call(Expr):
    """A call of an operator, of a registered function, or of a function."""

    parts = ("op", "args", "attrs", "sinfo_args")

    def __init__(
        self, op: Any, args: Sequence[Any], attrs: Any = None, sinfo_args: Any = (), span: object = None
    ) -> None:
        """Raises CheckError for what is known not to be a function."""
        info = getattr(op, "struct_info", None)
        if not isinstance(op, Op) and info is not None and not isinstance(info, (FuncStructInfo, ObjectStructInfo)):
            raise CheckError(f"Call: op: expected a function, got {op}: {info}")
        self.op, self.args = op, tuple(map(as_expr, args))
        self.attrs: Mapping[str, Any] = dict(attrs or {})
        self.sinfo_args = tuple(map(struct_info_of, infos_of(sinfo_args)))

    @property
    def struct_info(self) -> Any:
        if self.struct_info_ is None:
            self.struct_info_ = self._deduced()
        return self.struct_info_

    def _deduced(self) -> StructInfo:
        if isinstance(self.op, Op):
            return OPERATOR_CALLS[self.op.name.removeprefix("relax.")].deduce(self)
        if self.sinfo_args:
            return self.sinfo_args[0] if len(self.sinfo_args) == 1 else TupleStructInfo(self.sinfo_args)
        info = getattr(self.op, "struct_info", None)
        if not isinstance(info, FuncStructInfo):
            return ObjectStructInfo()
        if info.params is None:
            return info.ret
        given = [each.struct_info for each in self.args]
        found = bind_sizes(info.params, given)
        known = {name for each in given for name in defined_names([each])}
        changed = map_sizes(info.ret, lambda each: _substituted(each, found))
        return erased(changed, known | _names(found.values()))


def _names(sizes: Any) -> set[str]:
    return {name for each in sizes for name in dims.variables(each)}


def _substituted(size: Any, found: Mapping[str, Any]) -> Any:
    return dims.substitute(size, found) if set(dims.variables(size)) <= found.keys() else UNKNOWN


def infos_of(value: Any) -> list[Any]:
    """Struct infos, of which one alone may stand for a list, and a class for one of it."""
    several = list(value) if isinstance(value, (list, tuple)) else [value]
    return [each() if isinstance(each, type) or not isinstance(each, Node) else each for each in several]


class If(Expr):
    """One of two values."""

    parts = ("cond", "true_branch", "false_branch")

    def __init__(self, cond: Any, true_branch: Any, false_branch: Any, span: object = None) -> None:
        self.cond = as_expr(cond)
        self.true_branch, self.false_branch = as_body(true_branch), as_body(false_branch)
        a, b = self.true_branch.struct_info, self.false_branch.struct_info
        self.struct_info_ = a if a == b else common_info(a, b)


def common_info(a: Any, b: Any) -> StructInfo:
    """What is known of a value that is one of two."""
    if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
        return TensorStructInfo(None, a.dtype if a.dtype == b.dtype else "", ndim=a.ndim if a.ndim == b.ndim else -1)
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo) and len(a.fields) == len(b.fields):
        return TupleStructInfo(list(map(common_info, a.fields, b.fields)))
    if isinstance(a, PrimStructInfo) and isinstance(b, PrimStructInfo) and a.dtype == b.dtype:
        return PrimStructInfo(a.dtype)
    return a if a == b else ObjectStructInfo()


class Binding(Node):
    """A variable, and what it is."""

    parts: ClassVar[tuple[str, ...]]
    var: Var
    value: Any


class VarBinding(Binding):
    """A variable, and the expression that it is."""

    parts = ("var", "value")

    def __init__(self, var: Var, value: Any, span: object = None) -> None:
        self.var, self.value = var, value


class MatchCast(Binding):
    """A value whose struct info is checked when the program runs; sizes that are not known yet are named by it."""

    parts = ("var", "value", "struct_info")

    def __init__(self, var: Var, value: Any, struct_info: Any, span: object = None) -> None:
        self.var, self.value, self.struct_info = var, value, struct_info_of(struct_info)

    @property
    def pattern(self) -> Any:
        """The sizes that are matched."""
        info: Any = self.struct_info
        return info.values if hasattr(info, "values") else info.shape


class BindingBlock(Node):
    """Bindings in order."""

    parts: ClassVar[tuple[str, ...]] = ("bindings",)

    def __init__(self, bindings: Sequence[Binding], span: object = None) -> None:
        self.bindings = tuple(bindings)


class DataflowBlock(BindingBlock):
    """Bindings without effects and without branches."""


class SeqExpr(Expr):
    """Blocks of bindings, and the result."""

    parts = ("blocks", "body")

    def __init__(self, blocks: Sequence[BindingBlock], body: Any, span: object = None) -> None:
        self.blocks, self.body = tuple(blocks), as_expr(body)
        self.struct_info_ = self.body.struct_info


def as_body(value: Any) -> SeqExpr:
    return value if isinstance(value, SeqExpr) else SeqExpr((), value)


class Function(Expr):
    """A function: its parameters, its body, and what is known of its result."""

    parts = ("params", "body", "ret_struct_info", "is_pure", "attrs")
    params: tuple[Var, ...]
    body: SeqExpr
    ret_struct_info: StructInfo
    is_pure: bool
    attrs: dict[str, Any]
    result_names: tuple[str, ...] = ()  # what a model calls the results

    def __init__(
        self,
        params: Sequence[Var],
        body: Any,
        ret_struct_info: Any = None,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None,
        span: object = None,
    ) -> None:
        self.params, self.body, self.is_pure = tuple(params), as_body(body), bool(is_pure)
        self.attrs = dict(attrs or {})
        infos = [param.struct_info or ObjectStructInfo() for param in self.params]
        if ret_struct_info is None:
            ret_struct_info = erased(self.body.struct_info or ObjectStructInfo(), defined_names(infos))
        self.ret_struct_info = struct_info_of(ret_struct_info)
        self.struct_info_ = FuncStructInfo(infos, self.ret_struct_info, self.is_pure)

    def with_attr(self, key: Any, value: Any = None) -> Function:
        """The function with an attribute, or those of a mapping."""
        more = key if isinstance(key, Mapping) else {key: value}
        return Function(self.params, self.body, self.ret_struct_info, self.is_pure, {**self.attrs, **more})

    with_attrs = with_attr

    def without_attr(self, key: str) -> Function:
        attrs = {name: value for name, value in self.attrs.items() if name != key}
        return Function(self.params, self.body, self.ret_struct_info, self.is_pure, attrs)

    def bind_params(self, binding: Mapping[Any, Any]) -> Function:
        """The function with parameters, or parameters of these names, replaced by values. Raises CompileError."""
        bound: Function = importlib.import_module(relax.binder).with_params(self, binding)
        return bound

    def bind_symbolic_vars(self, binding_map: Mapping[Any, Any]) -> Function:
        """The function with sizes, or sizes of these names, replaced by others. Raises CompileError."""
        bound: Function = importlib.import_module(relax.binder).with_symbols(self, binding_map)
        return bound


def get_shape_of(expr: Any) -> Any:
    """The shape of a tensor. Raises CheckError for anything else."""
    info = expr.struct_info
    if not isinstance(info, TensorStructInfo):
        raise CheckError(f"get_shape_of expects expression with struct info of tensors, got {info}")
    return info.shape


# ---- walks, by the `parts` of classes ----

SYNTAX = (Expr, Binding, BindingBlock)


def children(node: Any) -> Iterator[Any]:
    """The expressions, bindings and blocks that a piece of syntax is made of, in order."""
    for name in node.parts if isinstance(node, SYNTAX) else ():
        value = getattr(node, name)
        for each in value if isinstance(value, tuple) and not isinstance(value, Expr) else (value,):
            if isinstance(each, SYNTAX):
                yield each


def walk(node: Any) -> Iterator[Any]:
    """A piece of syntax and all in it, in the order of its text."""
    yield node
    for each in children(node):
        yield from walk(each)


def post_order_visit(expr: Any, fvisit: Callable[[Any], Any]) -> None:
    """Calls a function for each expression, after those in it."""
    for each in children(expr):
        post_order_visit(each, fvisit)
    if isinstance(expr, Expr):
        fvisit(expr)


def bindings_of(body: SeqExpr) -> Iterator[Binding]:
    """The bindings of a body's blocks."""
    for block in body.blocks:
        yield from block.bindings


def replaced(node: Any, change: Callable[[Any], Any]) -> Any:
    """The syntax with what `change` gives for an expression in its place, None: made anew of its parts."""
    if not isinstance(node, SYNTAX):
        if type(node) is not tuple:
            return node
        parts = tuple(replaced(each, change) for each in node)
        return node if all(new is each for new, each in zip(parts, node, strict=True)) else parts
    found = change(node) if isinstance(node, Expr) else None
    if found is not None:
        return found
    if isinstance(node, (Var, GlobalVar, Op, Constant)):
        return node
    made = [replaced(getattr(node, name), change) for name in node.parts]
    if all(
        new is getattr(node, name) or new == () == getattr(node, name)
        for new, name in zip(made, node.parts, strict=True)
    ):
        return node
    return type(node)(*made)


def substituted(node: Any, values: Mapping[Var, Any]) -> Any:
    """The syntax with variables replaced."""
    return replaced(node, lambda each: values.get(each) if isinstance(each, Var) else None)


def free_vars(node: Any) -> list[Var]:
    """The variables that are used and not bound within, each once, in order."""
    bound = {each.var for each in walk(node) if isinstance(each, Binding)}
    bound |= {param for each in walk(node) if isinstance(each, Function) for param in each.params}
    return list(dict.fromkeys(each for each in walk(node) if isinstance(each, Var) and each not in bound))
