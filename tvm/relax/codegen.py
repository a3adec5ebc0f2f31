"""From Relax to instructions of the Relax machine, for programs whose values Treadle's types do not describe. Operators on
tensors are calls of kernels that are named by their text, as `R.add(a0, a1)` (`kernels.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...formats import dims
from ...formats.data_type import DataType
from ...formats.messages.errors import CompileError
from ...formats.types import UNKNOWN
from ..files.relax_program import Operand, RelaxProgram
from ..modules.containers import ShapeTuple
from . import expr
from .exec_builder import ExecBuilder
from .expr import OPERATOR_CALLS, Call, Function, GlobalVar, Op, Var, bindings_of, free_vars, walk
from .module import IRModule
from .struct_info import (
    Condition,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
    is_base_of,
    sizes_in,
)

ASSERT_EQUAL_TO_IMM, STORE_TO_HEAP, NO_OP, ASSERT_EQUAL_TO_LOAD = range(4)
USE_IMM, LOAD_SHAPE = range(2)
BUILTIN = "vm.builtin."

# operators that are a function of the machine: its name, whether it takes the machine, and its arguments' order here
DIRECT: dict[str, tuple[str, bool, tuple[int, ...] | None]] = {
    "relax.shape_of": (f"{BUILTIN}shape_of", False, None),
    "relax.shape_to_tensor": (f"{BUILTIN}shape_to_tensor", False, None),
    "relax.tensor_to_shape": (f"{BUILTIN}tensor_to_shape", False, None),
    "relax.print": ("relax.run.print", False, None),
    "relax.assert_op": ("relax.run.assert_op", False, None),
    "relax.null_value": (f"{BUILTIN}null_value", False, None),
    "relax.builtin.stop_lift_params": (f"{BUILTIN}copy", False, None),
    "relax.to_vdevice": (f"{BUILTIN}copy", False, None),
    "relax.hint_on_device": (f"{BUILTIN}copy", False, None),
    "relax.vm.alloc_storage": (f"{BUILTIN}alloc_storage", True, (0, 1, 2, 3)),
    "relax.memory.alloc_storage": (f"{BUILTIN}alloc_storage", True, (0, 1, 3, 2)),
    "relax.vm.alloc_tensor": (f"{BUILTIN}alloc_tensor", False, None),
    "relax.memory.alloc_tensor": (f"{BUILTIN}alloc_tensor", False, None),
}
_PACKED = ("relax.call_pure_packed", "relax.call_inplace_packed")
_KILLS = ("relax.vm.kill_object", "relax.memory.kill_storage", "relax.memory.kill_tensor")


def program_of(module: IRModule) -> RelaxProgram:
    """The program of a module. Raises CompileError for what the machine does not do."""
    builder = ExecBuilder()
    generate(builder, module, checks=True)
    program: Any = builder.get().program
    return program


def generate(builder: ExecBuilder, module: IRModule, checks: bool = False) -> None:
    """The instructions of a module's functions; with `checks`, of what they are given and give too."""
    waiting: list[tuple[str, Function, tuple[Var, ...]]] = [
        (name, each, ()) for name, each in module._functions.items() if isinstance(each, Function)
    ]
    taken = {name for name, _, _ in waiting}
    while waiting:
        name, function, captured = waiting.pop(0)
        made = _Generation(builder, module, name, checks, taken)
        made.function(function, captured)
        waiting += made.lifted


class _Generation:
    """The instructions of a function. Sizes lie in a heap, a slot for each that has a name or is computed."""

    def __init__(self, builder: ExecBuilder, module: IRModule, name: str, checks: bool, taken: set[str]) -> None:
        self.ib, self.module, self.name, self.checks, self.taken = builder, module, name, checks, taken
        self.registers: dict[Var, Operand] = {}
        self.count = 0
        self.slots: dict[str, int] = {}  # the text of a size → where it lies
        self.heap: Operand | None = None
        self.lifted: list[tuple[str, Function, tuple[Var, ...]]] = []
        self.nested: dict[Var, tuple[str, tuple[Var, ...]]] = {}
        self.delayed: list[tuple[Any, Any]] = []

    def register(self) -> Operand:
        self.count += 1
        return self.ib.r(self.count - 1)

    def call(self, name: str, args: Sequence[Any]) -> Operand:
        made = self.register()
        self.ib.emit_call(name, list(args), made)
        return made

    def builtin(self, name: str, *args: Any) -> Operand:
        return self.call(f"{BUILTIN}{name}", args)

    # ---- functions ----

    def function(self, function: Function, captured: Sequence[Var]) -> None:
        params = [*function.params, *captured]
        names, seen = [], set[str]()
        for param in params:
            name = param.name_hint
            while name in seen:
                name += "_"
            seen.add(name)
            names.append(name)
        with self.ib.function(self.name, len(params), names):
            for param in params:
                self.registers[param] = self.register()
            texts = {text for node in walk(function) for text in _sizes_of(node)}
            if texts:
                self.heap = self.builtin("alloc_shape_heap", self.ib.vm_state(), self.ib.imm(len(texts) * 2 + 1))
            for param in params:
                context = f"ErrorContext(fn={self.name}, loc=param[{params.index(param)}], param={param.name_hint})"
                if self.checks:
                    self.check(self.registers[param], param.struct_info, context)
            for operand, info in self.delayed:
                self.match(operand, info, f"ErrorContext(fn={self.name}, loc=param)")
            result = self.body(function.body)
            info = function.body.body.struct_info
            if self.checks and not is_base_of(function.ret_struct_info, info):
                self.check(result, function.ret_struct_info, f"ErrorContext(fn={self.name}, loc=return)")
            self.ib.emit_ret(result)

    def body(self, body: expr.SeqExpr) -> Operand:
        for binding in bindings_of(body):
            self.binding(binding)
        return self.held(body.body)

    def held(self, value: Any) -> Operand:
        """A value in a register."""
        operand = self.operand(value)
        is_register = isinstance(operand, Operand) and operand.kind == self.ib.r(0).kind
        return operand if is_register else self.builtin("copy", operand)

    # ---- checks ----

    def check(self, operand: Operand, info: Any, context: str) -> None:
        """Instructions that a value is of a struct info, and that name its sizes."""
        if isinstance(info, TensorStructInfo):
            self.builtin("check_tensor_info", operand, self.ib.imm(info.ndim), *_dtype(info.dtype), context)
            self.sized(operand, info.sizes, context)
        elif isinstance(info, ShapeStructInfo):
            self.builtin("check_shape_info", operand, self.ib.imm(info.ndim), context)
            self.sized(operand, info.values, context)
        elif isinstance(info, PrimStructInfo):
            self.builtin("check_prim_value_info", operand, DataType(info.dtype), context)
            if isinstance(info.value, (int, dims.SymbolicDim)):
                self.prim(operand, info.value, context)
        elif isinstance(info, TupleStructInfo) and info.fields:
            self.builtin("check_tuple_info", operand, self.ib.imm(len(info.fields)), context)
            for index, each in enumerate(info.fields):
                if not isinstance(each, ObjectStructInfo):
                    self.check(self.builtin("tuple_getitem", operand, self.ib.imm(index)), each, context)

    def sized(self, operand: Operand, sizes: Any, context: str) -> None:
        if sizes is None:
            return
        later = any(
            isinstance(each, dims.SymbolicDim) and not self.is_known(each) and not dims.is_variable(each)
            for each in sizes
        )
        if later:
            self.delayed.append((operand, sizes))
        self.match(operand, sizes, context)

    def is_known(self, size: Any) -> bool:
        return all(name in self.slots for name in dims.variables(size))

    def match(self, operand: Operand, sizes: Sequence[Any], context: str) -> None:
        """`match_shape`: sizes that are known are compared, variables that are not are stored."""
        codes: list[int] = []
        if self.heap is None:
            self.heap = self.builtin("alloc_shape_heap", self.ib.vm_state(), self.ib.imm(1))
        for each in sizes:
            if isinstance(each, int):
                codes += [ASSERT_EQUAL_TO_IMM, each]
            elif each is UNKNOWN or not (self.is_known(each) or dims.is_variable(each)):
                codes += [NO_OP, 0]
            elif not self.is_known(each):
                self.slots[str(each)] = len(self.slots)
                codes += [STORE_TO_HEAP, self.slots[str(each)]]
            else:
                codes += [ASSERT_EQUAL_TO_LOAD, self.slot(each)]
        self.builtin("match_shape", operand, self.heap, self.ib.imm(len(sizes)), *map(self.ib.imm, codes), context)

    def prim(self, operand: Operand, value: Any, context: str) -> None:
        if isinstance(value, int):
            code, at = ASSERT_EQUAL_TO_IMM, value
        elif self.is_known(value):
            code, at = ASSERT_EQUAL_TO_LOAD, self.slot(value)
        elif dims.is_variable(value):
            self.slots[str(value)] = len(self.slots)
            code, at = STORE_TO_HEAP, self.slots[str(value)]
        else:
            return
        self.builtin("match_prim_value", operand, self.heap, self.ib.imm(code), self.ib.imm(at), context)

    def slot(self, size: Any) -> int:
        """Where a size lies, which is computed if it is not there. Raises CompileError for one of unknown sizes."""
        text = str(size)
        if text not in self.slots:
            self.slots[text] = len(self.slots)
            self.builtin("compute_size", self.heap, text, self.ib.imm(self.slots[text]), *self.known(size))
        return self.slots[text]

    def known(self, *sizes: Any) -> list[Any]:
        """The names in sizes, and where they lie."""
        names = dict.fromkeys(
            name for each in sizes if isinstance(each, dims.SymbolicDim) for name in dims.variables(each)
        )
        missing = [name for name in names if name not in self.slots]
        if missing:
            raise CompileError(f"{self.name}: the size {missing[0]} is not known; a parameter or R.match_cast names it")
        return [part for name in names for part in (name, self.ib.imm(self.slots[name]))]

    # ---- values ----

    def binding(self, binding: Any) -> None:
        var, value = binding.var, binding.value
        if isinstance(binding, expr.MatchCast):
            operand = self.held(value)
            self.check(operand, binding.struct_info, f"ErrorContext(match_cast, {var.name_hint})")
            self.registers[var] = operand
        elif isinstance(value, Function):
            self.nest(var, value)
        elif isinstance(value, expr.If):
            self.registers[var] = self.branches(value)
        elif isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in _KILLS:
            self.ib.emit_call(f"{BUILTIN}null_value", [], self.registers[value.args[0]])
            self.registers[var] = self.ib.void_arg()
        elif isinstance(value, (Var, expr.ExternFunc)):
            self.registers[var] = self.builtin("copy", self.operand(value))
        else:
            self.registers[var] = self.held(value)

    def nest(self, var: Var, function: Function) -> None:
        """A nested function becomes one of the program, which takes what it captures after its arguments."""
        name = f"{self.name}_{var.name_hint}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        captured = tuple(each for each in free_vars(function) if each is not var)
        if var in set(free_vars(function)):
            raise CompileError(
                f"{self.name}: the nested function {var.name_hint} calls itself; make it one of the module"
            )
        self.lifted.append((name, function, captured))
        self.registers[var] = self.builtin("make_closure", self.ib.f(name), *(self.operand(each) for each in captured))

    def branches(self, value: expr.If) -> Operand:
        condition = self.builtin("read_if_cond", self.operand(value.cond))
        result = self.register()
        code = self.ib._code
        assert code is not None
        at = len(code)
        known = dict(self.slots)
        self.ib.emit_if(condition, 2)
        self.ib.emit_call(f"{BUILTIN}copy", [self.body(value.true_branch)], result)
        jump = len(code)
        self.ib.emit_goto(1)
        self.slots = dict(known)
        code[at] = code[at]._replace(false_offset=len(code) - at)  # type: ignore[call-arg]
        self.ib.emit_call(f"{BUILTIN}copy", [self.body(value.false_branch)], result)
        code[jump] = code[jump]._replace(offset=len(code) - jump)  # type: ignore[call-arg]
        self.slots = dict(known)
        return result

    def operand(self, value: Any) -> Any:
        if isinstance(value, Var):
            if value not in self.registers:
                raise CompileError(f"{self.name}: {value.name_hint} is used before it is bound")
            return self.registers[value]
        if isinstance(value, expr.Constant):
            return value.data
        if isinstance(value, expr.PrimValue):
            return self.number(value.value)
        if isinstance(value, ShapeExpr):
            return self.shape(value)
        if isinstance(value, expr.StringImm):
            return value.value
        if isinstance(value, expr.DataTypeImm):
            return DataType(value.value)
        if isinstance(value, (GlobalVar, expr.ExternFunc)):
            return self.ib.f(value.name_hint if isinstance(value, GlobalVar) else value.global_symbol)
        if isinstance(value, expr.Tuple):
            return self.builtin("make_tuple", *map(self.operand, value.fields))
        if isinstance(value, expr.TupleGetItem):
            return self.builtin("tuple_getitem", self.operand(value.tuple_value), self.ib.imm(value.index))
        if isinstance(value, Call):
            return self.called(value)
        if isinstance(value, expr.If):
            return self.branches(value)
        if isinstance(value, expr.SeqExpr):
            return self.body(value)
        raise CompileError(f"{self.name}: {value} is not a value of the Relax machine")

    def number(self, value: Any) -> Any:
        if isinstance(value, Condition):
            sides = [str(value.left), str(value.right)]
            return self.builtin(
                "compute_condition", self.heap, value.operator, *sides, *self.known(value.left, value.right)
            )
        if isinstance(value, dims.SymbolicDim):
            return self.builtin("make_prim_value", self.heap, self.ib.imm(LOAD_SHAPE), self.ib.imm(self.slot(value)))
        return self.ib.imm(int(value)) if isinstance(value, int) else value

    def shape(self, value: ShapeExpr) -> Any:
        if all(isinstance(each, int) for each in value):
            return ShapeTuple(value)
        codes = [
            part
            for each in value
            for part in ((USE_IMM, each) if isinstance(each, int) else (LOAD_SHAPE, self.slot(each)))
        ]
        return self.builtin("make_shape", self.heap, self.ib.imm(len(value)), *map(self.ib.imm, codes))

    # ---- calls ----

    def called(self, value: Call) -> Operand:
        op = value.op
        if isinstance(op, expr.ExternFunc):
            return self.call(op.global_symbol, [self.operand(each) for each in value.args])
        if isinstance(op, GlobalVar):
            known = self.module._functions.get(op.name_hint)
            name = known.global_symbol if isinstance(known, expr.ExternFunc) else op.name_hint
            return self.call(name, [self.operand(each) for each in value.args])
        if not isinstance(op, Op):
            return self.builtin("invoke_closure", self.ib.vm_state(), self.operand(op), *map(self.operand, value.args))
        return self.operator(op.name, value)

    def operator(self, name: str, value: Call) -> Operand:
        args = value.args
        if name in DIRECT:
            function, takes_machine, order = DIRECT[name]
            operands = [self.operand(each) for each in (args if order is None else [args[at] for at in order])]
            return self.call(function, [*([self.ib.vm_state()] if takes_machine else []), *operands])
        if name in _PACKED:
            return self.packed(args[0], [self.operand(each) for each in args[1:]])
        if name == "relax.call_builtin_with_ctx":
            return self.packed(args[0], [self.ib.vm_state(), *self.fields(args[1])])
        if name == "relax.call_dps_packed":
            infos: Any = value.sinfo_args
            outputs = [self.allocated(info.shape, info.dtype) for info in infos]
            self.packed(args[0], [*self.fields(args[1]), *outputs])
            return outputs[0] if len(outputs) == 1 else self.builtin("make_tuple", *outputs)
        if name == "relax.make_closure":
            return self.builtin("make_closure", self.operand(args[0]), *self.fields(args[1]))
        if name in ("relax.invoke_closure", "relax.invoke_pure_closure"):
            return self.builtin("invoke_closure", self.ib.vm_state(), self.operand(args[0]), *self.fields(args[1]))
        if name == "relax.vm.call_tir_dyn":
            return self.builtin("call_tir_dyn", self.operand(args[0]), *self.fields(args[1]))
        if name == "relax.builtin.alloc_tensor":
            return self.allocated(args[0], args[1].value)
        if OPERATOR_CALLS[name.removeprefix("relax.")].body is None:
            raise CompileError(f"{self.name}: {name} is not an operator of the Relax machine")
        return self.kernel(value)

    def packed(self, function: Any, operands: Sequence[Any]) -> Operand:
        if isinstance(function, expr.ExternFunc):
            return self.call(function.global_symbol, operands)
        return self.builtin("invoke_closure", self.ib.vm_state(), self.operand(function), *operands)

    def fields(self, value: Any) -> list[Any]:
        """A tuple's fields: those of its text, or of a value."""
        if isinstance(value, expr.Tuple):
            return [self.operand(each) for each in value.fields]
        count, held = len(value.struct_info.fields), self.operand(value)
        return [self.builtin("tuple_getitem", held, self.ib.imm(index)) for index in range(count)]

    def allocated(self, shape: Any, dtype: str) -> Operand:
        sizes, kind = self.operand(shape), DataType(dtype)
        storage = self.builtin("alloc_storage", self.ib.vm_state(), sizes, self.ib.imm(0), kind)
        return self.builtin("alloc_tensor", storage, self.ib.imm(0), sizes, kind)

    def kernel(self, value: Call) -> Operand:
        """The call of an operator on tensors, by its text over a0, a1, …"""
        operands: list[Any] = []

        def named(each: Any) -> Any:
            if isinstance(each, expr.Tuple):
                return expr.Tuple([named(part) for part in each.fields])
            operands.append(self.operand(each))
            return Var(f"a{len(operands) - 1}")

        text = Call(value.op, [named(each) for each in value.args], value.attrs).script()
        return self.call(text.splitlines()[-1], operands)


def _dtype(dtype: str) -> list[Any]:
    return [DataType(dtype)] if dtype else []


def _sizes_of(node: Any) -> Iterator[str]:
    """The texts of symbolic sizes that a piece of syntax names."""
    infos = [
        getattr(node, "struct_info", None),
        *getattr(node, "sinfo_args", ()),
        getattr(node, "ret_struct_info", None),
    ]
    for each in (size for info in infos for size in sizes_in(info)):
        if isinstance(each, (dims.SymbolicDim, Condition)):
            yield str(each)
            sides = (each,) if isinstance(each, dims.SymbolicDim) else (each.left, each.right)
            yield from (name for side in sides if isinstance(side, dims.SymbolicDim) for name in dims.variables(side))
