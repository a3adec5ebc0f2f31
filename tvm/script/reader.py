"""Reads TVMScript of Relax: a decorated function or class, or a text. The text is parsed by `ast` and walked; nothing of it is
executed. What it may call are the names of R, T, I and `relax`; a decorated function may look at the variables around it.

What needs functions of TIR is refused, by name and line.
"""

from __future__ import annotations

import ast
import base64
import inspect
import json
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...formats import dims, strings
from ...formats.constants import from_bytes
from ...formats.dtypes import DType
from ...formats.types import TensorType
from ..relax import expr
from ..relax.block_builder import check_dataflow
from ..relax.expr import Call, ExternFunc, Function, GlobalVar, Var
from ..relax.module import IRModule, VDevice
from ..relax.node import Node
from ..relax.struct_info import (
    Condition,
    FuncStructInfo,
    ObjectStructInfo,
    TupleStructInfo,
    defined_names,
    erased,
    is_base_of,
    sizes_in,
)
from .expressions import Expressions, closure_of, kind_of
from .names import Cast, Macro, Own, ScriptError, Size, TirError, as_info
from .vocabulary import VOCABULARY

_BY_MODULE = {"ir": "I", "tir": "T", "relax": "R"}

__all__ = [
    "ScriptError",
    "TirError",
    "from_source",
    "function",
    "ir_module",
    "macro",
    "parse",
]


def from_source(source: Any, extra_vars: Mapping[str, Any] | None = None, check_well_formed: bool = True) -> Any:
    """The module or function that a text, a function or a class says. Raises ScriptError with line and column."""
    if not isinstance(source, str):
        return _of_object(source, dict(extra_vars or {}))
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        line, column = getattr(error, "lineno", 1) or 1, getattr(error, "offset", 1) or 1
        raise ScriptError(f"line {line}, column {column}: {getattr(error, 'msg', 'too deep')}") from None
    return _Reader(VOCABULARY, dict(extra_vars or {}), 0, "").text(tree)


parse = from_source


def _of_object(source: Any, extra: dict[str, Any]) -> Any:
    text, first = inspect.getsourcelines(source)
    tree = ast.parse(textwrap.dedent("".join(text)))
    (node,) = tree.body
    functions = [source] if not inspect.isclass(source) else [each for each in vars(source).values() if callable(each)]
    env: dict[str, Any] = {}
    for each in functions:
        each = getattr(each, "__wrapped__", each)
        env.update(getattr(each, "__globals__", {}))
        if hasattr(each, "__closure__"):
            env.update(closure_of(each))
    reader = _Reader(VOCABULARY, {**extra, **env}, first - 1, inspect.getsourcefile(source) or "")
    if isinstance(node, ast.ClassDef):
        return reader.module(node)
    assert isinstance(node, ast.FunctionDef)
    return reader.function(node)


def _around() -> dict[str, Any]:
    """The variables of the frame in which a decorator stands."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back  # type: ignore[assignment]
    found: dict[str, Any] = {}
    outer: Any = frame
    while outer is not None and (outer is frame or "__qualname__" in frame.f_locals):
        found = {**outer.f_locals, **found}
        if "__qualname__" not in outer.f_locals:
            break
        outer = outer.f_back
    return found


def ir_module(mod: Any = None, check_well_formed: bool = True) -> Any:
    """Reads a class as a module. Raises ScriptError."""
    if mod is None:
        return ir_module
    return _of_object(mod, _around())


def function(f: Any = None, pure: bool = True, private: bool = False, check_well_formed: bool = True) -> Any:
    """Reads a function; within a class it waits for `ir_module`. Raises ScriptError."""
    if f is None:
        return function
    around = sys._getframe(1).f_locals
    if "__qualname__" in around and "__module__" in around:
        return f
    return _of_object(f, _around())


def macro(f: Any = None, hygienic: bool = True) -> Any:
    """A function whose statements are put where it is called; what it looks at outside of it is looked at now, if hygienic."""
    if f is None:
        return lambda each: macro(each, hygienic)
    text, _ = inspect.getsourcelines(f)
    (node,) = ast.parse(textwrap.dedent("".join(text))).body
    assert isinstance(node, ast.FunctionDef)
    env = {**f.__globals__, **closure_of(f)} if hygienic else {}
    return Macro(node, env, hygienic, f)


# ---- reading ----


class _Reader(Expressions):
    """Binds statements with a builder."""

    # ---- texts and modules ----

    def text(self, tree: ast.Module) -> Any:
        found: Any = None
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imported(node)
            elif isinstance(node, ast.ClassDef):
                found = self.module(node)
            elif isinstance(node, ast.FunctionDef):
                found = self.function(node)
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "metadata":
                self.read_metadata(node)
            elif isinstance(node, ast.Expr):
                found = None if isinstance(node.value, ast.Constant) else self.value(node.value)
            else:
                self.fail(
                    node, f"expected a class with @I.ir_module or a function with @R.function, got {kind_of(node)}"
                )
        return (
            found
            if found is not None
            else self.fail(tree, "expected a class with @I.ir_module or a function with @R.function")
        )

    def imported(self, node: ast.Import | ast.ImportFrom) -> None:
        """The names of TVM's imports; others are not looked at. Raises ScriptError for another module."""
        module = getattr(node, "module", "") or ""
        for alias in node.names:
            name = alias.name
            if module in ("tvm.script", "tvm.script.parser") and name in _BY_MODULE:
                self.names[alias.asname or name] = self.vocabulary.names[_BY_MODULE[name]]
            elif (module or name).split(".")[0] not in ("tvm", "numpy", "__future__"):
                self.fail(node, f"import {module or name}: a text names modules of tvm.script alone")

    def read_metadata(self, node: ast.Assign) -> None:
        value = node.value
        is_text = isinstance(value, ast.Call) and len(value.args) == 1 and isinstance(value.args[0], ast.Constant)
        if not is_text or ast.unparse(value.func) != "tvm.ir.load_json":  # type: ignore[attr-defined]
            self.fail(node, 'metadata: expected tvm.ir.load_json("""…""")')
        with self.at(node):
            found = json.loads(str(value.args[0].value))  # type: ignore[attr-defined]
            tensors = [expr.Constant(_tensor(each)) for each in found.get("relax.expr.Constant", ())]
        self.metadata = {**found, "relax.expr.Constant": tensors}
        self.names["metadata"] = self.metadata

    def module(self, node: ast.ClassDef) -> IRModule:
        """A class of functions."""
        self.names[node.name] = Own()
        made = IRModule()
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                self.refuse_tir(each)
                with self.at(each):
                    self.globals[each.name] = GlobalVar(each.name, self.declared(each))
            elif isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
                name = each.targets[0].id
                with self.at(each):
                    value = self.value(each.value)
                    if not isinstance(value, ExternFunc):
                        self.fail(each, f"{name}: a module has functions, got {ast.unparse(each.value)}")
                    self.globals[name] = GlobalVar(name, value.struct_info)
                    made[name] = value
            elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
                self.of_module(each.value, made)
            elif not isinstance(each, (ast.Pass, ast.Expr)):
                self.fail(each, f"expected a function with @R.function, got {kind_of(each)}")
        names = self.metadata.get("treadle.names", {})
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                made[names.get(each.name, {}).get(each.name, each.name)] = self.function(each)
        order = [name for name in self.metadata.get("treadle.order", ()) if name in made]
        return IRModule({name: made[name] for name in order}, made.attrs, made.global_infos) if order else made

    def of_module(self, node: ast.Call, made: IRModule) -> None:
        """`I.module_attrs(…)`, `I.module_global_infos(…)`."""
        name = ast.unparse(node.func).rpartition(".")[2]
        with self.at(node):
            if name == "module_attrs":
                made.attrs.update(self.value(node.args[0]))
            elif name == "module_global_infos":
                for key, infos in self.value(node.args[0]).items():
                    made.update_global_info(key, infos)
                    self.infos[key] = list(infos)
            else:
                self.fail(node, f"a module's text has I.module_attrs and I.module_global_infos, got {name}")

    def refuse_tir(self, node: ast.FunctionDef) -> None:
        """Raises UnsupportedNameError for a function of TIR, ScriptError for one that is not of Relax."""
        for decorator in node.decorator_list:
            name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name.rpartition(".")[2] in ("prim_func", "macro") and name.startswith("T."):
                raise TirError(
                    f"{self.place(node)}: {name} {node.name}: functions of TIR are not read; Treadle's compiler makes "
                    "kernels of operators, and a function of your own is handed over by register_func and called by "
                    "R.call_dps_packed"
                )
            if name.rpartition(".")[2] == "function":
                return
        self.fail(node, f"{node.name}: expected a function with @R.function")

    # ---- functions ----

    def declared(self, node: ast.FunctionDef) -> FuncStructInfo:
        """What a function's head says of it."""
        with self.scope():
            infos = [self.info(each.annotation, each) for each in node.args.args]
            ret = ObjectStructInfo() if node.returns is None else self.info(node.returns, node)
        return FuncStructInfo(infos, ret, self.options(node).get("pure", True))

    def options(self, node: ast.FunctionDef) -> dict[str, Any]:
        calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
        return {str(key.arg): self.value(key.value) for each in calls for key in each.keywords}

    def info(self, node: ast.AST | None, owner: ast.AST) -> Any:
        """The struct info of an annotation. Raises ScriptError where there is none."""
        if node is None:
            self.fail(owner, f"{getattr(owner, 'arg', '')}: the annotation is missing; as R.Tensor((2, 3), 'float32')")
        with self.at(node):  # type: ignore[arg-type]
            return self.with_device(as_info(self.value(node)))  # type: ignore[arg-type]

    def with_device(self, info: Any) -> Any:
        device = getattr(info, "vdevice", None)
        if not isinstance(device, str):
            return info
        name, _, number = device.partition(":")
        known = [each for each in self.infos.get("vdevice", ()) if isinstance(each, VDevice)]
        own = known if name == "vdevice" else [each for each in known if each.target.split()[0] == name]
        at = int(number or 0)
        found = own[at] if at < len(own) else VDevice(name, at)
        return (
            type(info)(info.shape if info.sizes is None else info.sizes, info.dtype, found) if info.ndim >= 0 else info
        )

    def function(self, node: ast.FunctionDef, is_nested: bool = False) -> Function:
        """A function with @R.function."""
        self.refuse_tir(node)
        options = self.options(node)
        if node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.defaults:
            self.fail(node, f"{node.name}: expected parameters by place, without defaults")
        outer, self.is_dataflow = self.is_dataflow, False
        with self.at(node), self.scope():
            infos = [self.info(each.annotation, each) for each in node.args.args]
            sizes = [each for info in infos for each in sizes_in(info)]
            missing = {name for each in sizes for name in _variables(each)} - defined_names(infos)
            if missing and not is_nested:
                self.fail(
                    node, f"{node.name}: the size {min(missing)} is not defined; a parameter's shape names it alone"
                )
            real = self.metadata.get("treadle.names", {}).get(self.reading if is_nested else node.name, {})
            params = [Var(real.get(each.arg, each.arg), info) for each, info in zip(node.args.args, infos, strict=True)]
            for each, param in zip(node.args.args, params, strict=True):
                self.scopes[-1][each.arg] = param
            declared = None if node.returns is None else self.info(node.returns, node)
            self.attrs.append({})
            outer_reading, self.reading = self.reading, node.name if not is_nested else self.reading
            self.builder.begin_scope()
            result = self.statements(node.body, node)
            body = self.builder.ended(result)
            self.reading = outer_reading
            attrs = self.attrs.pop()
        self.is_dataflow = outer
        with self.at(node):
            check_dataflow(body)
        if "global_symbol" in attrs and options.get("private"):
            self.fail(node, f"{node.name}: a private function has no global_symbol")
        symbol = {} if options.get("private") or is_nested else {"global_symbol": real.get(node.name, node.name)}
        known = erased(body.struct_info or ObjectStructInfo(), defined_names(infos) | self.outer_names())
        ret = known if declared is None or is_base_of(declared, known) else declared
        made = Function(params, body, ret, options.get("pure", True), {**symbol, **attrs})
        results = self.metadata.get("treadle.results", {}).get(node.name)
        if results and not is_nested:
            made.result_names = tuple(results)
        return made

    def outer_names(self) -> set[str]:
        """The sizes that functions around define."""
        found = (value for scope in self.scopes for value in scope.values())
        return defined_names([each.struct_info for each in found if isinstance(each, Var)])

    # ---- statements ----

    def statements(self, nodes: list[ast.stmt], owner: ast.AST) -> Any:
        """Binds a function's statements; its result. Raises ScriptError where there is none, and where more follows."""
        for number, node in enumerate(nodes):
            returned = self.statement(node)
            if returned is not None:
                if number + 1 < len(nodes):
                    self.fail(nodes[number + 1], "a function ends with its return")
                return returned
        return self.fail(owner, f"{getattr(owner, 'name', '')}: a function ends with a return")

    def statement(self, node: ast.stmt) -> Any:
        """Binds a statement. What it gives is the function's result, if it returns."""
        with self.at(node):
            found = getattr(self, f"_{type(node).__name__}", None)
            if found is None:
                self.fail(node, f"{kind_of(node)} is not a statement of TVMScript")
            return found(node)  # type: ignore[misc]

    def _Pass(self, node: ast.Pass) -> None:
        pass

    def _Return(self, node: ast.Return) -> Any:
        if node.value is None:
            self.fail(node, "a function returns a value")
        value = self.value(node.value)  # type: ignore[arg-type]
        if isinstance(value, Cast):
            self.fail(node, "R.match_cast: give it a name first")
        return self.builder.leaf(expr.as_expr(value))

    def _Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.fail(node, "a = b = c is not allowed; one name is bound at a time")
        self.assign(node.targets[0], self.value(node.value), node)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None or not isinstance(node.target, ast.Name):
            self.fail(node, "expected name: struct info = value")
        value = self.value(node.value)  # type: ignore[arg-type]
        info = self.info(node.annotation, node)
        self.assign(node.target, value, node, info)

    def assign(self, target: ast.expr, value: Any, node: ast.stmt, info: Any = None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            several = list(value) if not isinstance(value, expr.Expr) else list(self.builder.leaf(value))
            if len(several) != len(target.elts):
                self.fail(node, f"{len(target.elts)} names, but {len(several)} values")
            for each, part in zip(target.elts, several, strict=True):
                self.assign(each, part, node)
            return
        if not isinstance(target, ast.Name):
            self.fail(target, f"expected a name, got {kind_of(target)}")
        name = target.id  # type: ignore[attr-defined]
        self.scopes[-1][name] = self.bound(name, value, node, info)

    def bound(self, name: str, value: Any, node: ast.AST, info: Any = None) -> Any:
        """What a name stands for: a variable of the program, or a value of the text."""
        if isinstance(value, Size):
            if value.dtype != "int64":
                self.fail(node, f"{name}: sizes are T.int64(), got T.{value.dtype}()")
            return dims.named(name)
        is_output = self.is_dataflow and (name, node) in self.outputs
        real = self.real(name)
        if isinstance(value, Cast):
            made = self.builder.cast(real, value.value, info or value.info, is_output)
        elif isinstance(value, (expr.Expr, expr.ShapeExpr)) or (
            isinstance(value, tuple) and not isinstance(value, Node)
        ):
            value = expr.as_expr(value)
            made = self.builder.bind(real, value, self.annotated(value, info, node), is_output)
            if info is not None and isinstance(value, Call):
                value.struct_info_ = made.struct_info
        else:
            return value
        return self.with_origin(made, name)

    def annotated(self, value: Any, info: Any, node: ast.AST) -> Any:
        """The struct info of a variable that was given one. Raises ScriptError where the value is known to be another."""
        own = value.struct_info
        if info is None or own is None:
            return info
        if not is_base_of(info, own) and not is_base_of(own, info) and not _may_be(info, own):
            self.fail(node, f"the value is {own.script().splitlines()[-1]}, not {info.script().splitlines()[-1]}")
        return own if isinstance(value, Var) and isinstance(info, ObjectStructInfo) else info

    def _Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Call):
            name = ast.unparse(node.value.func)
            if name == "R.func_attr":
                self.attrs[-1].update(self.value(node.value.args[0]))
                return
            if name == "R.output":
                self.fail(node, "R.output stands at the end of a `with R.dataflow():`, once")
        value = self.value(node.value)
        if not isinstance(value, Call) or value.struct_info != TupleStructInfo([]):
            self.fail(node, "a value that is not bound to a name; only calls without a result stand alone")
        self.builder.bind("_", value)

    def _With(self, node: ast.With) -> Any:
        (item,) = node.items if len(node.items) == 1 else (None,)
        if item is None or ast.unparse(item.context_expr) != "R.dataflow()":
            self.fail(node, "expected `with R.dataflow():`")
        if self.is_dataflow:
            self.fail(node, "a block of dataflow within another")
        *statements, last = node.body
        outputs = self.names_of_outputs(last, statements, node)
        self.outputs = {(name, place) for name, place in outputs.items()}
        self.builder._begin_dataflow_block()
        self.is_dataflow = True
        with self.scope() as inner:
            for each in statements:
                self.statement(each)
            result = self._Return(last) if isinstance(last, ast.Return) else None
        self.is_dataflow = False
        self.builder._end_block()
        self.scopes[-1].update((name, inner[name]) for name in outputs)
        self.scopes[-1].update((name, value) for name, value in inner.items() if isinstance(value, dims.SymbolicDim))
        return result

    def names_of_outputs(self, last: ast.stmt, statements: list[ast.stmt], node: ast.With) -> dict[str, ast.stmt]:
        """The names that a block of dataflow gives, and the statements that bind them. Raises ScriptError."""
        is_output = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
        if isinstance(last, ast.Return):
            names = {each.id for each in ast.walk(last) if isinstance(each, ast.Name)}
        elif is_output and ast.unparse(last.value.func) == "R.output":  # type: ignore[attr-defined]
            names = {ast.unparse(each) for each in last.value.args}  # type: ignore[attr-defined]
        else:
            return self.fail(last, "a block of dataflow ends with R.output")
        places: dict[str, ast.stmt] = {}
        for each in statements:
            if isinstance(each, ast.FunctionDef) and each.name in names:
                places[each.name] = each
            for target in getattr(each, "targets", None) or [getattr(each, "target", None)]:
                for name in ast.walk(target) if target is not None else ():
                    if isinstance(name, ast.Name) and name.id in names:
                        places[name.id] = each
        missing = names - places.keys()
        if missing and not isinstance(last, ast.Return):
            self.fail(last, f"R.output: {min(missing)} is not bound in the block")
        return places

    def _If(self, node: ast.If) -> None:
        if self.is_dataflow:
            self.fail(node, "a block of dataflow has no branches")
        condition = expr.as_expr(self.value(node.test))
        condition = self.builder.leaf(condition)
        branches: list[Any] = []
        names: list[str] = []
        for statements in (node.body, node.orelse):
            if not statements:
                self.fail(node, "an if has an else, and both bind the same name")
            self.builder.begin_scope()
            try:
                with self.scope() as inner:
                    outer = self.path, self.ending
                    self.path += f"#{len(names)}"
                    for each in statements:
                        if isinstance(each, ast.Return):
                            self.fail(each, "a return within a branch")
                        self.ending = self.path if each is statements[-1] else ""
                        self.statement(each)
                    self.path, self.ending = outer
                    names.append(self.name_bound(statements[-1]))
                    last = inner.get(names[-1]) if names[-1] != "_" else None
                    if last is None:
                        last = self.builder._open.bindings[-1].var
                    result = self.builder.leaf(expr.as_expr(last))
                    branches.append(self.builder._bodies[-1].ended(result))
            finally:
                self.builder.end_scope()
        if names[0] != names[1]:
            self.fail(node.orelse[-1], f"both branches end with one name: {names[0]}, got {names[1]}")
        made = self.builder.bind(self.real(names[0]), expr.If(condition, *branches))
        self.scopes[-1][names[0]] = self.with_origin(made, names[0])

    def real(self, name: str) -> str:
        """The name of a variable in the program; the last of a branch has one of its own."""
        known = self.metadata.get("treadle.names", {}).get(self.reading, {})
        return known.get(name + self.ending, name)

    def with_origin(self, made: Any, name: str) -> Any:
        origin = self.metadata.get("treadle.origins", {}).get(self.reading, {}).get(name + self.ending)
        if origin:
            made.origin = origin
        return made

    def name_bound(self, node: ast.stmt) -> str:
        """The name that a branch's last statement binds. Raises ScriptError."""
        if isinstance(node, ast.Expr):
            return "_"
        if isinstance(node, ast.If):
            return self.name_bound(node.body[-1])
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(target, ast.Name):
            self.fail(node, "a branch ends with a name that is bound")
        return target.id  # type: ignore[union-attr]

    def _FunctionDef(self, node: ast.FunctionDef) -> None:
        self.refuse_tir(node)
        itself = Var(self.real(node.name), self.declared(node))
        self.scopes[-1][node.name] = itself
        made = self.function(node, is_nested=True)
        itself.struct_info_ = made.struct_info
        self.builder.emit_normalized(expr.VarBinding(itself, made))


def _variables(value: Any) -> list[str]:
    if isinstance(value, Condition):
        return dims.variables(value.left) + dims.variables(value.right)
    return dims.variables(value) if isinstance(value, dims.SymbolicDim) else []


def _may_be(info: Any, own: Any) -> bool:
    """Whether a run may find that a value of one struct info is of another: both of one kind."""
    return type(info) is type(own)


def _tensor(data: Mapping[str, Any]) -> np.ndarray:
    """A tensor of the metadata. Raises FormatError, ValueError, KeyError where it is none."""
    dtype, shape = DType.of(data["dtype"]), tuple(data["shape"])
    if "texts" in data:
        return strings.to_numbers(np.array([str(each) for each in data["texts"]], object)).reshape(shape)
    return from_bytes(TensorType(dtype, shape), base64.b64decode(data["data"]))
