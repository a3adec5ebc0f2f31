"""Passes over Relax's syntax: `relax.transform` names them. Each gives a function, the same one where it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...compiler.ir.evaluate import evaluate
from ...compiler.ir.infer import infer_types
from ...formats import dims
from ...formats.messages.errors import CompileError
from . import expr
from .expr import (
    OPERATOR_CALLS,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    Op,
    SeqExpr,
    Var,
    VarBinding,
    replaced,
    substituted,
    walk,
)
from .module import IRModule
from .struct_info import ShapeExpr, TensorStructInfo, bind_sizes, defined_names, is_base_of, map_sizes

_EFFECTS = {"relax.print", "relax.assert_op", "relax.call_inplace_packed", "relax.call_builtin_with_ctx"}


def is_pure(value: Any) -> bool:
    """Whether nothing but its value is seen of an expression."""
    for each in walk(value):
        if isinstance(each, Call) and (not isinstance(each.op, Op) or each.op.name in _EFFECTS):
            info = each.op.struct_info
            if isinstance(each.op, (Op, expr.ExternFunc)) or not getattr(info, "purity", False):
                return False
        if (
            isinstance(each, Call)
            and isinstance(each.op, Op)
            and each.op.name.startswith(("relax.vm.", "relax.memory."))
        ):
            return False
    return True


class Rewriter:
    """Goes through the bindings of a function, in order; `value` and `keeps` say what becomes of them."""

    def __init__(self) -> None:
        self.values: dict[Var, Any] = {}  # what stands for a variable

    def function(self, function: Function) -> Function:
        """The function rewritten; itself where nothing changes."""
        body = self.body(function.body)
        if body is function.body:
            return function
        return Function(function.params, body, function.ret_struct_info, function.is_pure, function.attrs)

    def body(self, body: SeqExpr) -> SeqExpr:
        blocks = [self.block(block) for block in body.blocks]
        result = substituted(body.body, self.values)
        if result is body.body and all(a is b for a, b in zip(blocks, body.blocks, strict=True)):
            return body
        return SeqExpr([block for block in blocks if block.bindings], result)

    def block(self, block: Any) -> Any:
        made = [each for each in map(self.binding, block.bindings) if each is not None]
        same = len(made) == len(block.bindings) and all(a is b for a, b in zip(made, block.bindings, strict=True))
        return block if same else type(block)(made)

    def binding(self, binding: Any) -> Any:
        """The binding rewritten; None: it goes."""
        value = self.value(self.inner(substituted(binding.value, self.values)))
        if not self.keeps(binding, value):
            return None
        if value is binding.value:
            return binding
        rest = (binding.struct_info,) if isinstance(binding, expr.MatchCast) else ()
        return type(binding)(binding.var, value, *rest)

    def inner(self, value: Any) -> Any:
        """The value with the bodies in it rewritten."""
        if isinstance(value, Function):
            return self.function(value)
        if isinstance(value, expr.If):
            branches = [self.branch(each) for each in (value.true_branch, value.false_branch)]
            same = branches[0] is value.true_branch and branches[1] is value.false_branch
            return value if same else expr.If(value.cond, *branches)
        return value

    def branch(self, body: SeqExpr) -> SeqExpr:
        return self.body(body)

    def value(self, value: Any) -> Any:
        return value

    def keeps(self, binding: Any, value: Any) -> bool:
        return True


def is_leaf(value: Any) -> bool:
    """Whether an expression is a variable, a constant or a tuple of such: what calls in normal form are made of."""
    if isinstance(value, expr.Tuple):
        return all(map(is_leaf, value))
    return not isinstance(value, (Call, expr.If, expr.TupleGetItem, Function, SeqExpr))


class Normalize(Rewriter):
    """What is computed within an expression is bound before it."""

    def body(self, body: SeqExpr) -> SeqExpr:
        blocks = [self.block(block) for block in body.blocks]
        last: list[Any] = []
        result = self.leaf(substituted(body.body, self.values), Var, last)
        return SeqExpr([*blocks, expr.BindingBlock(last)] if last else blocks, result)

    def block(self, block: Any) -> Any:
        made: list[Any] = []
        for binding in block.bindings:
            kind = DataflowVar if isinstance(block, DataflowBlock) else Var
            value = self.flat(self.inner(substituted(binding.value, self.values)), kind, made)
            rest = (binding.struct_info,) if isinstance(binding, expr.MatchCast) else ()
            made.append(type(binding)(binding.var, value, *rest))
        return type(block)(made)

    def flat(self, value: Any, kind: type[Var], before: list[Any]) -> Any:
        """The expression made of leaves; what they stand for is bound before."""
        if isinstance(value, (Call, expr.Tuple, expr.TupleGetItem)):
            return replaced(value, lambda each: None if each is value else self.leaf(each, kind, before))
        if isinstance(value, expr.If):
            return expr.If(self.leaf(value.cond, kind, before), value.true_branch, value.false_branch)
        return value

    def leaf(self, value: Any, kind: type[Var], before: list[Any]) -> Any:
        if is_leaf(value):
            return value
        value = self.flat(value, kind, before)
        if isinstance(value, expr.Tuple):
            return value
        before.append(VarBinding(kind("gv", value.struct_info), value))
        return before[-1].var


class CanonicalizeBindings(Rewriter):
    """A variable that is another one is that one."""

    def keeps(self, binding: Any, value: Any) -> bool:
        is_output = isinstance(value, DataflowVar) and not isinstance(binding.var, DataflowVar)
        is_alias = isinstance(binding, VarBinding) and isinstance(value, (Var, Constant)) and not is_output
        if is_alias and isinstance(value, Constant) and not isinstance(binding.var, DataflowVar):
            return True
        if is_alias:
            self.values[binding.var] = value
        return not is_alias


class EliminateCommonSubexpr(Rewriter):
    """What was computed before is taken from there."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Var] = {}

    def branch(self, body: SeqExpr) -> SeqExpr:
        outer, self.known = self.known, dict(self.known)
        made = self.body(body)
        self.known = outer
        return made

    def function(self, function: Function) -> Function:
        outer, self.known = self.known, {}
        made = super().function(function)
        self.known = outer
        return made

    def block(self, block: Any) -> Any:
        outer = dict(self.known)
        made = super().block(block)
        self.known = {key: var for key, var in self.known.items() if key in outer or not isinstance(var, DataflowVar)}
        return made

    def keeps(self, binding: Any, value: Any) -> bool:
        if not isinstance(binding, VarBinding) or not isinstance(value, (Call, expr.Tuple, expr.TupleGetItem)):
            return True
        key = _key(value) if is_pure(value) else None
        before = self.known.get(key) if key is not None else None
        if before is None or before.struct_info != binding.var.struct_info:
            if key is not None:
                self.known[key] = binding.var
            return True
        if isinstance(before, DataflowVar) and not isinstance(binding.var, DataflowVar):
            return True
        self.values[binding.var] = before
        return False


def _key(value: Any) -> Any:
    """Equal for expressions that compute the same."""
    if isinstance(value, (Var, Op)):
        return id(value)
    if isinstance(value, Constant):
        array = value.data.array
        return array.dtype.name, array.shape, array.tobytes()
    if isinstance(value, ShapeExpr):
        return tuple(map(str, value))
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    if isinstance(value, expr.Expr):
        return (type(value).__name__, *(_key(getattr(value, name)) for name in value.parts))
    return str(value)


class FoldConstant(Rewriter):
    """Calls of operators on constants in blocks of dataflow are computed now, and put where they are used."""

    is_dataflow = False

    def block(self, block: Any) -> Any:
        self.is_dataflow = isinstance(block, DataflowBlock)
        return super().block(block)

    def value(self, value: Any) -> Any:
        row = OPERATOR_CALLS.get(value.op.name.removeprefix("relax.")) if _is_operator(value) else None
        if not self.is_dataflow or row is None or row.body is None or not all(map(_is_constant, value.args)):
            return value
        result = Var("result", value.struct_info)
        body = SeqExpr([expr.BindingBlock([VarBinding(result, value)])], result)
        module = IRModule({"main": Function([], body, None, True, {"global_symbol": "main"})})
        try:
            found = evaluate(infer_types(module.lowered()), "main")
        except (CompileError, NotImplementedError):
            return value
        return Constant(np.asarray(found)) if not isinstance(found, tuple) else value

    def keeps(self, binding: Any, value: Any) -> bool:
        if value is binding.value or not isinstance(value, Constant):
            return True
        self.values[binding.var] = value
        return False


def _is_operator(value: Any) -> bool:
    return isinstance(value, Call) and isinstance(value.op, Op)


def _is_constant(value: Any) -> bool:
    if isinstance(value, expr.Tuple):
        return all(map(_is_constant, value.fields))
    known = isinstance(value, ShapeExpr) and all(isinstance(each, int) for each in value)
    return known or isinstance(value, (Constant, expr.PrimValue, expr.StringImm, expr.DataTypeImm))


def dead_code_eliminated(function: Function) -> Function:
    """Without bindings that nobody uses and that have no effects."""
    while True:
        used = {id(each) for each in _uses(function)}

        class _Dead(Rewriter):
            def keeps(self, binding: Any, value: Any) -> bool:
                return id(binding.var) in used or not isinstance(binding, VarBinding) or not is_pure(value)  # noqa: B023

        made = _Dead().function(function)
        if made is function:
            return made
        function = made


def _uses(node: Any) -> Iterator[Var]:
    """The variables that are used, not those that are bound."""
    if isinstance(node, Var):
        yield node
        return
    names = [name for name in getattr(node, "parts", ()) if name not in ("var", "params")]
    for name in names:
        value = getattr(node, name)
        for each in value if isinstance(value, tuple) and not isinstance(value, expr.Expr) else (value,):
            if isinstance(each, (expr.Expr, expr.Binding, expr.BindingBlock)):
                yield from _uses(each)


def reached(module: IRModule, entries: list[str]) -> set[str]:
    """The names of the functions that these come to."""
    found: set[str] = set()
    while entries:
        name = entries.pop()
        if name in found or name not in module:
            continue
        found.add(name)
        entries += [each.name_hint for each in walk(module[name]) if isinstance(each, expr.GlobalVar)]
    return found


def to_non_dataflow(function: Function) -> Function:
    """Without blocks of dataflow: their variables are ordinary ones."""
    inner = (each for each in walk(function) if isinstance(each, DataflowVar))
    found: dict[Var, Var] = {each: Var(each.name_hint, each.struct_info) for each in inner}

    class _Plain(Rewriter):
        def block(self, block: Any) -> Any:
            if not isinstance(block, DataflowBlock):
                return super().block(block)
            return expr.BindingBlock([self.renamed(each) for each in block.bindings])

        def renamed(self, binding: Any) -> Any:
            rest = (binding.struct_info,) if isinstance(binding, expr.MatchCast) else ()
            value = self.inner(substituted(binding.value, self.values))
            return type(binding)(found.get(binding.var, binding.var), value, *rest)

    plain = _Plain()
    plain.values.update(found)
    return plain.function(function)


def with_params(function: Function, binding: Mapping[Any, Any]) -> Function:
    """The function with parameters, or parameters of these names, replaced by values, which say what their sizes are. What is
    known of the variables is found anew. Raises CompileError."""
    named = {param.name_hint: param for param in function.params}
    values: dict[Var, Any] = {}
    for key, value in binding.items():
        param = named.get(key) if isinstance(key, str) else key
        if param not in function.params:
            raise CompileError(f"there is no parameter {key!r}; the function has {', '.join(named)}")
        info, made = param.struct_info, expr.as_expr(value)
        if isinstance(made, Constant):
            fits = isinstance(info, TensorStructInfo) and info.dtype in ("", made.struct_info.dtype)
            if not fits or info.ndim not in (-1, made.struct_info.ndim):
                raise CompileError(f"{param.name_hint}: expected {info}, got {made.struct_info}")
        values[param] = made
    sizes = dict(bind_sizes([param.struct_info for param in values], [each.struct_info for each in values.values()]))
    params = [param for param in function.params if param not in values]
    body = substituted(function.body, values)
    bound = Function(params, body, function.ret_struct_info, function.is_pure, function.attrs)
    bound = with_sizes(bound, sizes) if sizes else bound
    return Function(bound.params, _Renewed().body(bound.body), None, bound.is_pure, bound.attrs)


class _Renewed(Rewriter):
    """Variables of which as much is known as of their values."""

    def binding(self, binding: Any) -> Any:
        made = super().binding(binding)
        info = made.value.struct_info if isinstance(made, VarBinding) else None
        if info is None or info == made.var.struct_info or not is_base_of(made.var.struct_info, info):
            return made
        self.values[made.var] = type(made.var)(made.var.name_hint, info)
        return VarBinding(self.values[made.var], made.value)


def with_symbols(function: Function, binding: Mapping[Any, Any]) -> Function:
    """The function with sizes, or sizes of these names, replaced by others. Raises CompileError for one that the function does
    not have, or that is named twice."""
    known = sorted(defined_names([param.struct_info for param in function.params]))
    sizes = {str(key): value for key, value in binding.items()}
    if len(sizes) != len(binding):
        raise CompileError(f"bind_symbolic_vars: {', '.join(map(str, binding))} name one size twice")
    if unknown := [name for name in sizes if name not in known]:
        raise CompileError(f"bind_symbolic_vars: there is no size {unknown[0]!r}; the function has {', '.join(known)}")
    return with_sizes(function, sizes)


def with_sizes(function: Function, sizes: dict[str, Any]) -> Function:
    """The function with sizes of these names replaced."""

    def change(size: Any) -> Any:
        return dims.substitute(size, sizes)

    known: dict[Var, Var] = {}

    def renew(node: Any) -> Any:
        if isinstance(node, Var):
            if node not in known:
                known[node] = type(node)(
                    node.name_hint, None if node.struct_info is None else map_sizes(node.struct_info, change)
                )
            return known[node]
        return None

    params = [renew(param) for param in function.params]
    body = _sized(replaced(function.body, renew), change)
    return Function(params, body, map_sizes(function.ret_struct_info, change), function.is_pure, function.attrs)


def _sized(node: Any, change: Callable[[Any], Any]) -> Any:
    """The syntax with the sizes in shapes, numbers and struct infos of calls replaced."""
    if isinstance(node, ShapeExpr):
        return ShapeExpr([change(each) if isinstance(each, dims.SymbolicDim) else each for each in node])
    if isinstance(node, expr.PrimValue) and isinstance(node.value, dims.SymbolicDim):
        return expr.PrimValue(change(node.value))
    if type(node) is tuple:
        return tuple(_sized(each, change) for each in node)
    if not isinstance(node, (expr.Expr, expr.Binding, expr.BindingBlock)) or isinstance(node, (Var, Op, Constant)):
        return map_sizes(node, change)
    return type(node)(*(_sized(getattr(node, name), change) for name in node.parts))
