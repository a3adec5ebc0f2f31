"""TVMScript of Relax: `script()` of a module, a function, or any other piece of syntax.

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), dtype="float32")) -> R.Tensor(("n", 4), dtype="float32"):
            n = T.int64()
            with R.dataflow():
                gv: R.Tensor((n, 4), dtype="float32") = R.nn.relu(x)
                R.output(gv)
            return gv

Tensors are in the metadata, which `show_meta` prints; `reader.py` reads both.
"""

from __future__ import annotations

import base64
import json
import keyword
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...formats import dims, strings
from ...formats.dtypes import DType
from ...formats.messages.errors import CompileError
from ...formats.types import UNKNOWN
from ..relax import expr, ty
from ..relax.expr import Call, DataflowVar, Function, Op, Var, bindings_of, free_vars, walk
from ..relax.module import DummyGlobalInfo, IRModule, VDevice
from ..relax.node import Node
from ..relax.op.calls import UNTOLD
from ..relax.struct_info import (
    Condition,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    sizes_in,
)

CONSTANT = "relax.expr.Constant"
NAMES, ORIGINS, RESULTS, ORDER = "treadle.names", "treadle.origins", "treadle.results", "treadle.order"
_IMPORTS = {"I": "ir", "T": "tir", "R": "relax"}
_RESERVED = {*_IMPORTS, *keyword.kwlist, "metadata", "cls", "Module"}
_OMITTED = "# Metadata omitted. Use show_meta=True in script() method to show it."
_SAYS_ITS_TYPE = ("relax.call_dps_packed",)  # operators whose calls name the struct info of the result


def script(value: Any, **options: Any) -> str:
    """The text of a piece of syntax."""
    return _Printer(**options).text(value)


def identifier(name: str) -> str:
    """A name of Python's that is most like this one."""
    made = "".join(each if each.isascii() and (each.isalnum() or each == "_") else "_" for each in name) or "_"
    return f"v_{made}" if made[0].isdigit() else made


class _Printer:
    def __init__(
        self,
        show_meta: bool = False,
        show_all_struct_info: bool = True,
        module_alias: str = "cls",
        verbose_expr: bool = False,
        **_: Any,
    ) -> None:
        self.show_meta, self.show_all, self.alias = show_meta, show_all_struct_info, module_alias
        self.lines: list[str] = []
        self.indent = ""
        self.used: set[str] = set()  # of I, T, R
        self.names: dict[Var, str] = {}
        self.taken: set[str] = set(_RESERVED)
        self.sizes: set[str] = set()  # that are declared
        self.needed: dict[str, None] = {}  # in the function
        self.quoted = False  # sizes are in a function's signature
        self.in_function = False
        self.module = ""
        self.calls_global = False
        self.metadata: dict[str, Any] = {}
        self.numbers: dict[int, int] = {}
        self.counts: Counter[Var] = Counter()
        self.uses: Counter[int] = Counter()  # of constants, by identity
        self.kept: list[Any] = []  # what identities are of lives
        self.current = ""  # the function
        self.path = ""  # of branches that are being printed

    def text(self, value: Any) -> str:
        if isinstance(value, IRModule):
            self.ir_module(value)
        elif isinstance(value, Function):
            self.count(value)
            self.function(value.attrs.get("global_symbol", "main"), value)
        elif isinstance(value, (expr.Binding, expr.BindingBlock, expr.SeqExpr, expr.If)):
            self.count(value)
            self.statements(value)
        else:
            self.line(self.any(value))
        head = [f"# from tvm.script import {_IMPORTS[each]} as {each}" for each in "ITR" if each in self.used]
        if CONSTANT in self.metadata and not self.show_meta:
            head.append(_OMITTED)
        elif self.metadata and self.show_meta:
            head += ["", f'metadata = tvm.ir.load_json("""{json.dumps(self.metadata)}""")']
        is_program = isinstance(value, (IRModule, Function))
        return "\n".join([*head, "", *self.lines] if is_program else self.lines)

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text if text else "")

    def count(self, value: Any) -> None:
        self.counts = Counter(each for each in walk(value) if isinstance(each, Var))
        self.uses.update(id(each) for each in walk(value) if isinstance(each, expr.Constant))

    # ---- modules and functions ----

    def ir_module(self, module: IRModule) -> None:
        if self.show_meta and module.source is not None and module.source.data_types:
            raise _untold(", ".join(module.source.data_types))
        self.used.add("I")
        self.line("@I.ir_module")
        self.line("class Module:")
        self.indent, self.module = "    ", "Module"
        if module.attrs:
            self.line(f"I.module_attrs({self.attribute(module.attrs)})")
        if module.global_infos:
            infos = ", ".join(
                f"{json.dumps(name)}: [{', '.join(map(self.any, several))}]"
                for name, several in module.global_infos.items()
            )
            self.line(f"I.module_global_infos({{{infos}}})")
        order = list(module._functions)
        functions = sorted(module._functions.items(), key=lambda pair: (isinstance(pair[1], Function), pair[0]))
        if order != [name for name, _ in functions]:
            self.metadata[ORDER] = order
        for _, function in functions:
            self.count(function)
        for number, (name, function) in enumerate(functions):
            if isinstance(function, expr.ExternFunc):
                self.line(f"{name} = {self.any(function)}")
                continue
            if number and self.lines[-1]:
                self.line("") if not self.lines[-1].strip().endswith('")') else None
            self.names, self.taken, self.sizes = {}, set(_RESERVED), set()
            self.counts = Counter(each for each in walk(function) if isinstance(each, Var))
            self.function(name, function)
            for key in (NAMES, ORIGINS):
                if not self.metadata.get(key, {}).get(name, True):
                    del self.metadata[key][name]
        if not module._functions:
            self.line("pass")

    def function(self, name: str, function: Function, is_nested: bool = False) -> None:
        self.used.add("R")
        if is_nested:
            self.line("# from tvm.script import relax as R")
            self.line("")
        is_private = "global_symbol" not in function.attrs and not is_nested
        options = [
            f"{key}={value}"
            for key, value in (("private", is_private), ("pure", function.is_pure))
            if value == (key == "private")
        ]
        self.line(f"@R.function({', '.join(options)})" if options else "@R.function")
        shown = identifier(name)
        if not is_nested:
            self.current = name
            self.note(NAMES, name, shown, shown)
        outer = self.quoted, self.sizes, self.needed, self.in_function, self.calls_global
        self.quoted, self.in_function, self.sizes, self.needed, self.calls_global = (
            True,
            True,
            set(self.sizes),
            {},
            False,
        )
        params = [
            f"{self.bind(param)}: {self.info(param.struct_info or ObjectStructInfo())}" for param in function.params
        ]
        result = self.info(function.ret_struct_info)
        self.quoted = False
        self.line(f"def {shown}({', '.join(params)}) -> {result}:")
        self.indent += "    "
        place = len(self.lines)
        attrs = {key: value for key, value in function.attrs.items() if key != "global_symbol"}
        if function.attrs.get("global_symbol", name) != name:
            attrs = function.attrs
        self.annotations(function, name)
        if attrs:
            self.line(f"R.func_attr({self.attribute(attrs)})")
        self.body(function.body, lambda result: self.line(f"return {result}"))
        head = [f"{size} = T.int64()" for size in self.needed if size not in outer[1]]
        head += [f"{self.alias} = {self.module}"] if self.calls_global and self.module and self.alias else []
        self.lines[place:place] = [self.indent + each for each in head]
        self.used |= {"T"} if self.needed else set()
        self.indent = self.indent[:-4]
        self.quoted, self.sizes, self.needed, self.in_function, self.calls_global = outer
        if is_nested:
            self.line("")

    def annotations(self, function: Function, name: str) -> None:
        """What Treadle's programs say and Relax does not: names of results, and of nodes of a model."""
        if function.result_names:
            self.metadata.setdefault(RESULTS, {})[name] = list(function.result_names)

    def note(self, key: str, function: str, name: str, shown: str) -> None:
        if name != shown or key == ORIGINS:
            self.metadata.setdefault(key, {}).setdefault(function, {})[shown] = name

    # ---- statements ----

    def statements(self, value: Any) -> None:
        if isinstance(value, expr.Binding):
            self.binding(value)
        elif isinstance(value, expr.DataflowBlock):
            self.dataflow(value)
        elif isinstance(value, expr.BindingBlock):
            for each in value.bindings:
                self.binding(each)
        elif isinstance(value, expr.SeqExpr):
            self.body(value, self.line)
        else:
            self.branches(value, None)

    def body(self, body: expr.SeqExpr, end: Any) -> None:
        for block in body.blocks:
            self.statements(block)
        end(self.any(body.body))

    def dataflow(self, block: expr.DataflowBlock) -> None:
        for var in free_vars(block) if not self.in_function else ():
            self.any(var)
        self.line("with R.dataflow():")
        self.indent += "    "
        for each in block.bindings:
            self.binding(each)
        outputs = [self.names[each.var] for each in block.bindings if not isinstance(each.var, DataflowVar)]
        self.line(f"R.output({', '.join(outputs)})")
        self.indent = self.indent[:-4]

    def binding(self, binding: Any, name: str = "") -> None:
        var, value = binding.var, binding.value
        if isinstance(value, Function):
            shown = self.bind(var, name)
            self.function(shown, value, is_nested=True)
            return
        if isinstance(value, expr.If):
            self.branches(value, var, name)
            return
        if isinstance(binding, expr.MatchCast):
            text = f"R.match_cast({self.any(value)}, {self.info(binding.struct_info)})"
        else:
            text = self.any(value)
        is_void = isinstance(value, Call) and var.struct_info == TupleStructInfo([]) and self.counts[var] <= 1
        if is_void and not name and not isinstance(binding, expr.MatchCast):
            self.line(text)
            return
        annotation = "" if self.is_plain(binding) else f": {self.info(var.struct_info)}"
        self.line(f"{self.bind(var, name)}{annotation} = {text}")

    def is_plain(self, binding: Any) -> bool:
        """Whether the value says the struct info of its variable."""
        value, info = binding.value, binding.var.struct_info
        if info is None:
            return True
        if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in _SAYS_ITS_TYPE:
            return True
        if self.show_all:
            return False
        if isinstance(binding, expr.MatchCast):
            return binding.struct_info == info
        return (value._deduced() if isinstance(value, Call) else value.struct_info) == info

    def branches(self, value: expr.If, var: Var | None, name: str = "") -> None:
        shown = (self.bind(var, name)) if var is not None else ""
        self.line(f"if {self.any(value.cond)}:")
        for number, branch in enumerate((value.true_branch, value.false_branch)):
            if number:
                self.line("else:")
            self.indent += "    "
            outer, path = set(self.taken), self.path
            self.path += f"#{number}"
            self.branch(branch, shown)
            self.taken, self.path = outer, path
            self.indent = self.indent[:-4]

    def branch(self, branch: expr.SeqExpr, shown: str) -> None:
        """A branch, whose last statement binds the name of the result."""
        bindings = list(bindings_of(branch))
        if not shown:
            self.body(branch, self.line)
            return
        last = bindings[-1] if bindings else None
        if (
            last is None
            or last.var is not branch.body
            or isinstance(last.var, DataflowVar)
            or self.counts[last.var] > 2
        ):
            for block in branch.blocks:
                self.statements(block)
            self.line(f"{shown} = {self.any(branch.body)}")
            return
        *blocks, final = branch.blocks
        for block in blocks:
            self.statements(block)
        if isinstance(final, expr.DataflowBlock):
            self.dataflow(final)
            self.line(f"{shown} = {self.names[last.var]}")
            return
        for each in final.bindings[:-1]:
            self.binding(each)
        self.binding(last, shown)

    # ---- names ----

    def bind(self, var: Var, name: str = "") -> str:
        """The name of a variable: its own where nothing else has that, else one with a number."""
        if name:
            self.names[var] = name
            self.told(var, name + self.path)
            return name
        hint = identifier(var.name_hint)
        shown, number = hint, 0
        while shown in self.taken or shown in self.sizes:
            number += 1
            shown = f"{hint}_{number}"
        self.taken.add(shown)
        self.names[var] = shown
        self.told(var, shown)
        return shown

    def told(self, var: Var, shown: str) -> None:
        """What a variable is called and comes from, where its name in the text does not say it."""
        if self.in_function and self.current:
            self.note(NAMES, self.current, var.name_hint, shown)
            if origin := getattr(var, "origin", ""):
                self.note(ORIGINS, self.current, origin, shown)

    def size(self, value: Any) -> str:
        """A dimension; in a signature in quotes."""
        if not isinstance(value, dims.SymbolicDim):
            return '"?"' if value is UNKNOWN else str(value)
        text = str(value).replace("min(", "T.min(").replace("max(", "T.max(")
        if self.quoted:
            return f'"{text}"'
        for name in dims.variables(value):
            self.declare(name)
        return text

    def declare(self, name: str) -> None:
        if self.in_function:
            self.needed[name] = None
        elif name not in self.sizes:
            self.sizes.add(name)
            self.used.add("T")
            self.line(f"{name} = T.int64()")

    # ---- expressions ----

    def any(self, value: Any) -> str:
        return getattr(self, f"_{type(value).__name__}")(value)

    def several(self, values: Iterable[Any]) -> str:
        texts = [self.any(each) for each in values]
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

    def info(self, value: Any) -> str:
        self.used.add("R")
        return self.any(value)

    def _Var(self, value: Var) -> str:
        if value not in self.names:
            info = value.struct_info
            for each in sizes_in(info):
                self.size(each)
            shown = self.bind(value)
            if info is not None:
                self.line(f"{shown}: {self.info(info)}")
        return self.names[value]

    _DataflowVar = _Var

    def _GlobalVar(self, value: Any) -> str:
        if not self.module:
            return value.name_hint
        self.calls_global = True
        return f"{self.alias or self.module}.{identifier(value.name_hint)}"

    def _Constant(self, value: expr.Constant) -> str:
        self.used.add("R")
        array = value.data.array
        is_number = array.ndim == 0 and array.dtype.isbuiltin == 1 and array.dtype.kind in "biuf"
        if is_number and not (self.show_meta and self.uses[id(value)] > 1):
            return f"R.const({_number(array.item())}, {json.dumps(DType.of(array.dtype).name)})"
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.numbers)
            self.metadata.setdefault(CONSTANT, []).append(_data(array))
            self.kept.append(value)
        return f'metadata["{CONSTANT}"][{self.numbers[id(value)]}]'

    def _ShapeExpr(self, value: ShapeExpr) -> str:
        return f"R.shape([{', '.join(map(self.size, value))}])"

    def _PrimValue(self, value: expr.PrimValue) -> str:
        return f"R.prim_value({self.number(value.value)})"

    def number(self, value: Any) -> str:
        if isinstance(value, Condition):
            for name in dims.variables(value.left) + dims.variables(value.right):
                self.declare(name)
            return str(value)
        if isinstance(value, dims.SymbolicDim):
            return self.size(value)
        if isinstance(value, (bool, np.bool_)):
            self.used.add("T")
            return f"T.bool({bool(value)})"
        return _number(value)

    def _StringImm(self, value: expr.StringImm) -> str:
        return f"R.str({json.dumps(value.value)})"

    def _DataTypeImm(self, value: expr.DataTypeImm) -> str:
        return f"R.dtype({json.dumps(value.value)})"

    def _ExternFunc(self, value: expr.ExternFunc) -> str:
        self.used.add("R")
        return f"R.ExternFunc({json.dumps(value.global_symbol)})"

    def _Op(self, value: Op) -> str:
        return f"R.{value.name.removeprefix('relax.')}"

    def _Tuple(self, value: expr.Tuple) -> str:
        return self.several(value.fields) if value.fields else "R.tuple()"

    def _TupleGetItem(self, value: expr.TupleGetItem) -> str:
        return f"{self.any(value.tuple_value)}[{value.index}]"

    def _Function(self, value: Function) -> str:
        raise TypeError("a function within an expression has no text; bind it to a variable")

    def _SeqExpr(self, value: expr.SeqExpr) -> str:
        raise TypeError("a body within an expression has no text; bind it to a variable")

    _If = _SeqExpr

    def _Call(self, value: Call) -> str:
        self.used.add("R")
        if isinstance(value.op, Op):
            return self.operator_call(value)
        if isinstance(value.op, expr.ExternFunc):
            args = [json.dumps(value.op.global_symbol), *map(self.any, value.args), *self.infos(value)]
            return f"R.call_packed({', '.join(args)})"
        args = [*map(self.any, value.args), *self.infos(value)]
        return f"{self.any(value.op)}({', '.join(args)})"

    def infos(self, value: Call) -> list[str]:
        several = list(map(self.info, value.sinfo_args))
        return [f"sinfo_args=({', '.join(several)}{',' if len(several) == 1 else ''})"] if several else []

    def operator_call(self, value: Call) -> str:
        name = value.op.name.removeprefix("relax.")
        args = list(value.args)
        if name.startswith(UNTOLD):
            raise _untold(name.removeprefix(UNTOLD))
        texts: list[str] = []
        if name in ("print", "assert_op"):
            place = int(name == "assert_op")
            form = args.pop(place)
            texts = [*map(self.any, args), *([f"format={self.any(form)}"])]
        else:
            for number, each in enumerate(args):
                is_name = number == 0 and isinstance(each, expr.ExternFunc)
                texts.append(json.dumps(each.global_symbol) if is_name else self.any(each))
        texts += [f"{key}={self.attribute(each)}" for key, each in value.attrs.items()]
        if name == "call_dps_packed":
            infos = list(map(self.info, value.sinfo_args))
            texts.append(f"out_sinfo={infos[0] if len(infos) == 1 else '[' + ', '.join(infos) + ']'}")
        else:
            texts += self.infos(value)
        return f"R.{name}({', '.join(texts)})"

    def attribute(self, value: Any) -> str:
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.attribute(key)}: {self.attribute(each)}' for key, each in value.items())}}}"
        if isinstance(value, (list, tuple)) and not isinstance(value, Node):
            return f"[{', '.join(map(self.attribute, value))}]"
        if isinstance(value, dims.SymbolicDim):
            return self.size(value)
        if isinstance(value, VDevice):
            return json.dumps(value.target)
        if isinstance(value, Node):
            return self.any(value)
        if isinstance(value, DType):
            return json.dumps(value.name)
        if isinstance(value, np.ndarray):
            return self._Constant(expr.Constant(value))
        if hasattr(value, "array"):
            return self._Constant(value if isinstance(value, expr.Constant) else expr.Constant(value))
        if isinstance(value, str):
            return json.dumps(value)
        return repr(value) if value is None or isinstance(value, bool) else _number(value)

    # ---- struct infos and types ----

    def _ObjectStructInfo(self, value: StructInfo) -> str:
        return "R.Object"

    _ObjectType = _ObjectStructInfo

    def _PrimStructInfo(self, value: PrimStructInfo) -> str:
        return f'R.Prim("{value.dtype}")' if value.value is None else f"R.Prim(value={self.number(value.value)})"

    def _ShapeStructInfo(self, value: ShapeStructInfo) -> str:
        return (
            f"R.Shape(ndim={value.ndim})"
            if value.values is None
            else f"R.Shape([{', '.join(map(self.size, value.values))}])"
        )

    def _TensorStructInfo(self, value: TensorStructInfo) -> str:
        parts = []
        known = value.sizes is not None and any(each is not UNKNOWN for each in value.sizes)
        if value.sizes is not None and (known or not value.sizes):
            sizes = list(map(self.size, value.sizes))
            parts.append(f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})")
        elif value.shape is not None:
            parts.append(self.any(value.shape))
        if value.dtype:
            parts.append(f'dtype="{value.dtype}"')
        if not known and value.shape is None and value.ndim >= 0:
            parts.append(f"ndim={value.ndim}")
        if value.vdevice is not None:
            parts.append(f"vdevice={self.attribute(value.vdevice)}")
        return f"R.Tensor({', '.join(parts)})" if parts else "R.Tensor"

    def _TupleStructInfo(self, value: TupleStructInfo) -> str:
        return f"R.Tuple({', '.join(map(self.any, value.fields))})" if value.fields else "R.Tuple"

    def _FuncStructInfo(self, value: FuncStructInfo) -> str:
        if value.params is not None:
            return f"R.Callable({self.several(value.params)}, {self.any(value.ret)}, {value.purity})"
        if value.ret == ObjectStructInfo() and not value.purity:
            return "R.Callable"
        return f"R.Callable(ret={self.any(value.ret)}, purity={value.purity})"

    def _ShapeType(self, value: ty.ShapeType) -> str:
        return f"R.Shape(ndim={value.ndim})"

    def _PrimType(self, value: ty.PrimType) -> str:
        return f'R.Prim("{value.dtype}")'

    def _PackedFuncType(self, value: ty.PackedFuncType) -> str:
        return "R.PackedFunc"

    def _DynTensorType(self, value: ty.DynTensorType) -> str:
        return f'R.Tensor(ndim={value.ndim}, dtype="{value.dtype}")'

    _TupleType = _TupleStructInfo

    def _FuncType(self, value: ty.FuncType) -> str:
        return f"R.Callable({self.several(value.arg_types)}, {self.any(value.ret_type)})"

    def _VDevice(self, value: VDevice) -> str:
        more = [json.dumps(value.target), str(value.vdevice_id), json.dumps(value.memory_scope)]
        return f"I.vdevice({', '.join(more)})"

    def _DummyGlobalInfo(self, value: DummyGlobalInfo) -> str:
        return "I.dummy_global_info()"


def _untold(what: str) -> CompileError:
    return CompileError(
        f"script: {what}: Relax has no text of values of data types, as sequences are; treadle.compile and relax.build take "
        "the module as it is"
    )


def _number(value: Any) -> str:
    """A number as Python's text, which gives the same bits; infinities and NaN by name."""
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return str(int(value) if not isinstance(value, (bool, np.bool_)) else bool(value))
    number = float(value)
    return repr(number) if np.isfinite(number) else f'float("{number!r}")'


def _data(array: np.ndarray) -> Any:
    """A tensor as metadata has it."""
    dtype = DType.of(array.dtype)
    if dtype.is_string:
        return {"dtype": dtype.name, "shape": list(array.shape), "texts": strings.listed(array)}
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": dtype.name, "shape": list(array.shape), "data": data}
