"""`relax.BlockBuilder`: functions from what is emitted, in normal form: a call's arguments are variables, constants and tuples of
such, and so is a function's result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from ...formats.messages.errors import CheckError
from . import expr
from .expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    GlobalVar,
    MatchCast,
    SeqExpr,
    Var,
    walk,
)
from .module import IRModule
from .op import TIR
from .struct_info import ObjectStructInfo
from .structural import structural_equal

__all__ = ["BlockBuilder"]

_LEAVES = (
    *(Var, expr.Constant, expr.ShapeExpr, expr.PrimValue, expr.StringImm, expr.DataTypeImm, GlobalVar, expr.ExternFunc),
    expr.Op,
)


class Block:
    """A block in the making."""

    def __init__(self, is_dataflow: bool) -> None:
        self.is_dataflow = is_dataflow
        self.bindings: list[Binding] = []

    def made(self) -> BindingBlock:
        return (DataflowBlock if self.is_dataflow else BindingBlock)(self.bindings)


class Body:
    """The blocks of a body in the making: those that have ended, and the one that is open."""

    def __init__(self) -> None:
        self.blocks: list[BindingBlock] = []
        self.open = Block(False)

    def switch(self, is_dataflow: bool) -> None:
        """Ends the block, and begins another."""
        if self.open.bindings:
            self.blocks.append(self.open.made())
        self.open = Block(is_dataflow)

    def ended(self, result: Any) -> SeqExpr:
        self.switch(False)
        return SeqExpr(self.blocks, result)


class BlockBuilder:
    """Collects functions, made of what is emitted."""

    _stack: ClassVar[list[BlockBuilder]] = []

    def __init__(self, mod: IRModule | None = None) -> None:
        self._module = IRModule() if mod is None else mod.shallow_copy()
        self._names: dict[str, int] = {}
        self._bodies: list[Body] = []
        self._bound: dict[Var, Any] = {}
        self._loose: list[Block] = []  # blocks that were begun outside of a function
        self._function: dict[str, Any] | None = None
        self._is_done = False

    @staticmethod
    def current() -> BlockBuilder | None:
        """The one whose function is being built."""
        return BlockBuilder._stack[-1] if BlockBuilder._stack else None

    def unique(self, name: str) -> str:
        """A name that no other value has."""
        count = self._names[name] = self._names.get(name, -1) + 1
        return f"{name}{count}" if count else name

    get_unique_name = unique

    # ---- functions ----

    @contextmanager
    def function(
        self,
        name: str,
        params: Any = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> Iterator[None]:
        """Within this, a function is built. Raises CheckError where it ends without emit_func_output, and in another one."""
        if self._function is not None:
            raise CheckError(f"function {name!r}: the function {self._function['name']!r} has not ended")
        symbol = {} if private else {"global_symbol": name}
        own = None if params is None else _params(params)
        self._function = {"name": name, "params": own, "attrs": {**symbol, **(attrs or {})}, "pure": pure}
        self._is_done = False
        self._bodies.append(Body())
        BlockBuilder._stack.append(self)
        try:
            yield
            if not self._is_done:
                raise CheckError(f"emit_func_output must be called in the end of the function {name!r}")
        finally:
            BlockBuilder._stack.pop()
            self._bodies.clear()
            self._function = None

    def emit_func_output(self, output: Any, params: Any = None) -> GlobalVar:
        """The function's result; its parameters, if `function` was not told them. Raises CheckError."""
        made = self._function
        if made is None or self._is_done:
            raise CheckError("emit_func_output should happen once in a function scope")
        if params is not None and made["params"] is not None:
            raise CheckError("function parameters have been given in function(…) already")
        own = made["params"] if params is None else _params(params)
        if own is None:
            raise CheckError(f"the parameters of the function {made['name']!r} are not known")
        result = self.leaf(expr.as_expr(output))
        self._is_done = True
        body = self._bodies[-1].ended(result)
        check_dataflow(body)
        function = Function(own, body, None, made["pure"], made["attrs"])
        name, number = made["name"], 0
        while name in self._module:
            number += 1
            name = f"{made['name']}{number}"
        self._module[name] = function
        return GlobalVar(name, function.struct_info)

    def add_func(self, func: Function, func_name: str) -> GlobalVar:
        """A function under that name, or the one of the module that equals it."""
        for name, known in self._module._functions.items():
            if structural_equal(known, func):
                return GlobalVar(name, func.struct_info)
        name = func_name if func_name not in self._module else self.unique(func_name)
        self._module[name] = func
        return GlobalVar(name, func.struct_info)

    def update_func(self, gv: GlobalVar, updated_func: Function) -> None:
        """Another function under a global variable."""
        self._module[gv] = updated_func

    def get(self) -> IRModule:
        """The module."""
        return self._module.shallow_copy()

    finalize = get

    # ---- blocks ----

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """What is emitted within has no effects."""
        self._begin_dataflow_block()
        yield
        self._end_block()

    def _begin_dataflow_block(self) -> None:
        self._begin(True)

    def _begin_binding_block(self) -> None:
        self._begin(False)

    def _begin(self, is_dataflow: bool) -> None:
        if self._bodies:
            self._bodies[-1].switch(is_dataflow)
        else:
            self._loose.append(Block(is_dataflow))

    def _end_block(self) -> BindingBlock:
        """Ends the block that was begun last. Raises CheckError where none was."""
        if self._bodies:
            made = self._bodies[-1].open.made()
            self._bodies[-1].switch(False)
            return made
        if not self._loose:
            raise CheckError("end_block: no block was begun")
        return self._loose.pop().made()

    @property
    def _open(self) -> Block:
        if self._bodies:
            return self._bodies[-1].open
        if not self._loose:
            self._loose.append(Block(False))
        return self._loose[-1]

    def begin_scope(self, params: Any = None) -> None:
        """A body in the making, within which names are bound; `ended` gives it."""
        self._bodies.append(Body())

    def ended(self, result: Any) -> SeqExpr:
        """Ends a body that `begin_scope` began, with its result."""
        return self._bodies.pop().ended(result)

    def end_scope(self) -> None:
        self._bodies.pop()

    # ---- bindings ----

    def emit(self, expr: Any, name_hint: str = "") -> Any:
        """The value of an expression, as a variable: "lv" in a dataflow block, else "gv", where no name is given."""
        return self._bind(expr, self.unique(name_hint or self._hint()), DataflowVar if self._open.is_dataflow else Var)

    def emit_output(self, output: Any, name_hint: str = "") -> Any:
        """What a dataflow block gives. Raises CheckError outside of one."""
        if not self._open.is_dataflow:
            raise CheckError("emit_output has to be called within a dataflow block")
        return self._bind(output, self.unique(name_hint or "gv"), Var)

    def _hint(self) -> str:
        return "lv" if self._open.is_dataflow else "gv"

    def _bind(self, value: Any, name: str, kind: type[Var], info: Any = None) -> Any:
        made = self.normal(expr.as_expr(value))
        own = getattr(made, "struct_info", None) or ObjectStructInfo()
        return self.emit_normalized(expr.VarBinding(kind(name, own if info is None else info), made))

    def bind(self, name: str, value: Any, info: Any = None, is_output: bool = False) -> Any:
        """A variable of exactly this name."""
        return self._bind(value, name, DataflowVar if self._open.is_dataflow and not is_output else Var, info)

    def match_cast(self, value: Any, struct_info: Any, name_hint: str = "") -> Any:
        """The value, whose struct info is checked when the program runs."""
        return self.cast(self.unique(name_hint or self._hint()), value, struct_info)

    def cast(self, name: str, value: Any, info: Any, is_output: bool = False) -> Any:
        """`match_cast` to a variable of exactly this name."""
        kind = DataflowVar if self._open.is_dataflow and not is_output else Var
        return self.emit_normalized(MatchCast(kind(name, info), self.leaf(expr.as_expr(value)), info))

    def emit_normalized(self, binding: Binding) -> Any:
        """A binding that is in normal form."""
        self._open.bindings.append(binding)
        self._bound[binding.var] = binding.value
        return binding.var

    def lookup_binding(self, var: Var) -> Any:
        """What a variable was bound to; None for a parameter."""
        return self._bound.get(var)

    def normalize(self, expr: Any) -> Any:
        """The expression, which knows its struct info."""
        return expr

    def normal(self, value: Any) -> Any:
        """The expression with leaves as its parts, which are bound where they are not."""
        if isinstance(value, SeqExpr):
            return self._inlined(value)
        if isinstance(value, Call):
            args = tuple(map(self.leaf, value.args))
            op = value.op if isinstance(value.op, _LEAVES) else self.leaf(value.op)
            if args != value.args or op is not value.op:
                return Call(op, args, value.attrs, value.sinfo_args)
        if isinstance(value, expr.Tuple):
            fields = tuple(map(self.leaf, value.fields))
            return value if fields == value.fields else expr.Tuple(fields)
        if isinstance(value, expr.TupleGetItem):
            inner = self.leaf(value.tuple_value)
            return value if inner is value.tuple_value else expr.TupleGetItem(inner, value.index)
        return value

    def leaf(self, value: Any) -> Any:
        """The expression itself where it is a leaf or a tuple of such, else a variable."""
        if isinstance(value, _LEAVES) or not isinstance(value, expr.Expr):
            return value
        made = self.normal(value)
        return made if isinstance(made, (expr.Tuple, *_LEAVES)) else self.emit(made)

    def _inlined(self, body: SeqExpr) -> Any:
        """The result of a body whose blocks become blocks here."""
        was_dataflow = self._open.is_dataflow
        target = self._bodies[-1] if self._bodies else None
        for block in body.blocks:
            is_dataflow = isinstance(block, DataflowBlock)
            if target is not None and is_dataflow != self._open.is_dataflow:
                target.switch(is_dataflow)
            for binding in block.bindings:
                self.emit_normalized(binding)
        if target is not None and self._open.is_dataflow != was_dataflow:
            target.switch(was_dataflow)
        return body.body

    # ---- what there is not ----

    def emit_te(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Raises UnsupportedNameError."""
        return TIR["emit_te"](func, *args)

    def call_te(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Raises UnsupportedNameError."""
        return TIR["call_te"](func, *args)


def check_dataflow(body: SeqExpr) -> None:
    """Raises CheckError where a block that is not of dataflow, or the result, uses a variable of a dataflow block."""
    for part in (*(block for block in body.blocks if not isinstance(block, DataflowBlock)), body.body):
        inner = _bound_in_dataflow(part)
        for each in walk(part):
            if isinstance(each, DataflowVar) and each not in inner:
                raise CheckError(
                    f"Malformed AST: the variable {each.name_hint} of a dataflow block is used outside of it; "
                    "emit_output gives it"
                )


def _bound_in_dataflow(node: Any) -> set[Var]:
    """The variables that the blocks of dataflow in a piece of syntax bind."""
    blocks = (each for each in walk(node) if isinstance(each, DataflowBlock))
    return {binding.var for block in blocks for binding in block.bindings}


def loose_dataflow(body: SeqExpr) -> Var | None:
    """A variable of a dataflow block that is used outside of it."""
    for block in body.blocks:
        bound = _bound_in_dataflow(block)
        for each in walk(block):
            if isinstance(each, DataflowVar) and each not in bound:
                return each
    return next((each for each in walk(body.body) if isinstance(each, DataflowVar)), None)


def _params(params: Any) -> list[Var]:
    several: Sequence[Any] = [params] if isinstance(params, Var) else list(params)
    return list(several)
