"""Parts of a program for other compilers: MergeComposite, AnnotateTarget, MergeCompilerRegions, PartitionGraph.

A part becomes a function of the attribute `Compiler`, which a Python function gets that is registered for that (`external.py`);
Treadle compiles it itself otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...modules.registry import get_global_func
from ...transform import ModulePass, Pass, PassInfo
from ..dataflow_pattern import DFPattern
from ..expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, Var
from ..module import IRModule
from ..rewrite import bind, rebuilt
from ..visit import children, postorder
from .core import each_function, make, op_of, rewrite, type_of, typed
from .functions import own_functions

DEFAULT = "default"
BEGIN, END = "annotation.compiler_begin", "annotation.compiler_end"


def MergeComposite(pattern_table: Sequence[Any]) -> Pass:
    """What fits the patterns, `(name, pattern[, check])`, as functions of the attribute `Composite` (`merge_composite.cc`)."""

    def merge(function: Function, _: IRModule) -> Expr:
        made: Expr = function
        for name, pattern, *check in pattern_table:
            assert isinstance(pattern, DFPattern)
            made = pattern.partition(made, {"Composite": name}, *check)
        return made

    return each_function("MergeComposite", merge, level=0)


# ---- which compiler an operator is for ----


def _compiler(annotation: Any) -> str:
    return str(annotation.attrs["compiler"])


def _noted(name: str, expr: Expr, target: str) -> Expr:
    made = make(name, expr, target)
    made._checked_type = type_of(expr)
    return made


class _Annotator:
    """Puts an expression's compiler around it: begins at its operands, ends where it is used by another."""

    def __init__(self, targets: Sequence[str], non_call_ops: bool) -> None:
        self.targets, self.non_call_ops = targets, non_call_ops
        self.of: dict[int, str] = {}
        self.kept: list[Expr] = []  # whose identities are in use

    def _set(self, expr: Expr, target: str) -> Expr:
        self.of[id(expr)] = target
        self.kept.append(expr)
        return expr

    def _supported(self, old: Any) -> str:
        """The first compiler that takes a call."""
        if isinstance(old.op, Op):
            for target in self.targets:
                takes = old.op.get_attr(f"target.{target}")
                if takes is not None and takes(old):
                    return target
        elif isinstance(old.op, Function):
            target = str(old.op.attrs.get("Composite", "")).partition(".")[0]
            return target if target in self.targets else DEFAULT
        return DEFAULT

    def _begun(self, args: Sequence[Any], target: str = "") -> tuple[str, list[Expr]]:
        """The operands, begun for a compiler: the given one, or the one that they have all in common."""
        begins: list[Expr] = []
        ends: list[Expr] = []
        common = ""
        for arg in args:
            own = DEFAULT
            if op_of(arg) == BEGIN:
                (begins if _compiler(arg) != DEFAULT else ends).append(
                    arg if _compiler(arg) != DEFAULT else arg.args[0]
                )
                own = _compiler(arg.args[0]) if op_of(arg.args[0]) == END else own
            elif id(arg) in self.of:
                own = self.of[id(arg)]
                is_made = isinstance(arg, Call) and not arg.args
                ends.append(arg if is_made else _noted(END, arg, own))
            else:
                ends.append(arg)
            common = own if common in ("", own) else DEFAULT
        chosen = target or common
        if not common:
            return chosen, list(args)
        return chosen, [*begins, *(_noted(BEGIN, each, chosen) for each in ends)]

    def _ended(self, expr: Any) -> Expr:
        """The expression, ended for its compiler."""
        if id(expr) in self.of:
            has_operands = isinstance(expr, TupleGetItem) or bool(getattr(expr, "args", getattr(expr, "fields", ())))
            if not has_operands:
                return expr
            target = self.of[id(expr)]
            return self._set(_noted(END, expr, target), target)
        if op_of(expr) == END and _compiler(expr) == DEFAULT:
            inner = expr.args[0]
            target = self.of.get(id(inner), DEFAULT)
            return self._set(_noted(END, inner, target), target)
        return expr

    def rule(self, old: Any, new: Any) -> Expr | None:
        made = self._made(old, new)
        if made is not None and made._checked_type is None:
            made._checked_type = old._checked_type
        return made

    def _made(self, old: Any, new: Any) -> Expr | None:
        if isinstance(new, Call):
            return self._call(old, new)
        if isinstance(new, (Tuple, TupleGetItem)):
            if not self.non_call_ops:
                return rebuilt(new, [self._ended(child) for child in children(new)])
            target, parts = self._begun(children(new))
            made = rebuilt(new, parts)
            return self._set(made if made is not old else Tuple(parts) if isinstance(new, Tuple) else made, target)
        if isinstance(new, Function):
            return None if "Composite" in new.attrs else rebuilt(new, [*new.params, self._ended(new.body)])
        if isinstance(new, If):
            return rebuilt(new, [self._ended(child) for child in children(new)])
        if isinstance(new, Let):
            body = self._ended(new.body)
            if isinstance(new.value, Function) or not self.non_call_ops:
                return Let(new.var, new.value, body)
            return Let(new.var, self._begun([new.value])[1][0], body)
        return None

    def _call(self, old: Any, new: Any) -> Expr | None:
        name = op_of(old)
        if name == BEGIN:
            return None
        if name == END:
            self.of.setdefault(id(new.args[0]), _compiler(new))
            self.kept.append(new.args[0])
            return None
        if old.args and op_of(old.args[0]) == BEGIN and _compiler(old.args[0]) != DEFAULT:
            return None
        if isinstance(old.op, Var) and not self.non_call_ops:
            return Call(new.op, [self._ended(arg) for arg in new.args], new.attrs, new.type_args)
        target = self._supported(old)
        _, args = self._begun(new.args, target)
        return self._set(Call(new.op, args, new.attrs, new.type_args, names=new.names), target)


def AnnotateTarget(targets: str | Sequence[str], include_non_call_ops: bool = True) -> Pass:
    """Marks what these compilers take (`annotate_target.cc`): operators whose attribute `target.<name>` says so
    (`tvm.ir.register_op_attr`), and composite functions of their name."""
    several = [targets] if isinstance(targets, str) else list(targets)

    def annotate(function: Function, _: IRModule) -> Expr:
        skipped = {
            id(each)
            for inner in postorder(function)
            if isinstance(inner, Function) and "Composite" in inner.attrs
            for each in postorder(inner)
        }
        annotator = _Annotator(several, include_non_call_ops)
        return rewrite(function, lambda old, new: old if id(old) in skipped else annotator.rule(old, new))

    return each_function("AnnotateTargetFunc", annotate, level=0)


# ---- regions ----


class Region:
    """Expressions between begins and ends of one compiler."""

    def __init__(self, number: int, target: str) -> None:
        self.number, self.target = number, target
        self.nodes: dict[int, Expr] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []


class Regions:
    """The regions of a function, numbered in the order in which they begin (`annotated_region_set.cc`)."""

    def __init__(self, root: Expr) -> None:
        self.regions: list[Region] = []
        self._of: dict[int, Region] = {}
        self._count = 0
        self.composite = {
            id(each)
            for inner in postorder(root)
            if isinstance(inner, Function) and inner is not root and "Composite" in inner.attrs
            for each in postorder(inner)
        }
        for expr in postorder(root):
            if id(expr) not in self.composite:
                self._add(expr)

    def of(self, expr: Expr) -> Region | None:
        return self._of.get(id(expr))

    def _put(self, region: Region, expr: Expr) -> None:
        region.nodes[id(expr)] = expr
        self._of[id(expr)] = region

    def _add(self, expr: Any) -> None:
        name = op_of(expr)
        if name == BEGIN:
            region = Region(self._count, _compiler(expr))
            self._count += 1
            self.regions.append(region)
            self._put(region, expr)
            region.inputs.append(expr)
        elif name == END:
            inside = self.of(expr.args[0])
            if inside is not None:
                self._put(inside, expr)
                inside.outputs.append(expr)
        elif isinstance(expr, (Call, Tuple, TupleGetItem, Let, If)):
            args = expr.args if isinstance(expr, Call) else children(expr)
            found = [self.of(arg) for arg in args if op_of(arg) != END]
            several = [region for region in found if region is not None]
            if several:
                for other in several[1:]:
                    self.merge(other, several[0])
                self._put(several[0], expr)

    def merge(self, source: Region, into: Region) -> None:
        if source is into:
            return
        for expr in source.nodes.values():
            self._put(into, expr)
        into.inputs += source.inputs
        into.outputs += source.outputs
        inner = [each for each in into.inputs if id(each.args[0]) in source.nodes]
        into.inputs = [each for each in into.inputs if each not in inner]
        gone = {id(each.args[0]) for each in inner}
        into.outputs = [each for each in into.outputs if id(each) not in gone]
        self.regions.remove(source)


def _merged(function: Function, _: IRModule) -> Expr:
    regions = Regions(function)
    limits: dict[int, set[int]] = {}
    done: set[int] = set()

    def parents(region: Region) -> Iterator[Region]:
        for begin in region.inputs:
            found = regions.of(begin.args[0])
            if found is not None:
                yield found

    def controlled(expr: Expr) -> Iterator[Region]:
        for child in children(expr) if isinstance(expr, If) else ():
            found = regions.of(child)
            if found is not None:
                yield found
            else:
                yield from controlled(child)

    for end in postorder(function):
        region = regions.of(end) if op_of(end) == END else None
        if region is None or region.number in done:
            continue
        above = list(dict.fromkeys(parents(region)))
        around = [
            *above,
            *(
                each
                for begin in region.inputs
                if regions.of(begin.args[0]) is None
                for each in controlled(begin.args[0])
            ),
        ]
        own = limits.setdefault(region.number, set())
        for other in around:
            own |= limits.setdefault(other.number, set())
        for other in above:
            if other.target != region.target:
                own.add(other.number)
            elif other.number not in own and other is not region:
                regions.merge(other, region)
                for known in limits.values():
                    if other.number in known:
                        known.remove(other.number)
                        known.add(region.number)
        done.add(region.number)

    def rule(old: Any, new: Any) -> Expr | None:
        if op_of(old) == BEGIN and op_of(old.args[0]) == END and regions.of(old) is regions.of(old.args[0]):
            return new.args[0].args[0]
        return None

    return rewrite(function, rule)


def MergeCompilerRegions() -> Pass:
    """Neighbouring regions of one compiler as one, where that makes no cycle (`merge_compiler_regions.cc`)."""
    return each_function("MergeCompilerRegions", _merged, level=0)


# ---- functions ----


class _Partitioner:
    """The regions of one function as functions of the module."""

    def __init__(self, module: IRModule, name: str, function: Function, bind_constants: bool) -> None:
        self.module, self.name, self.function, self.bind_constants = module, name, function, bind_constants
        self.regions = Regions(function)
        self.arguments: dict[int, list[tuple[Var, Expr]]] = {}
        self.inside: dict[tuple[int, int], Var] = {}
        self.results: dict[tuple[int, int], Expr] = {}
        self.made: dict[int, Expr] = {}

    def run(self) -> Expr:
        for expr in postorder(self.function):
            self._visit(expr)
        return self.made[id(self.function)]

    def _visit(self, expr: Expr) -> Expr:
        """What an expression becomes; parts may be made before their turn, for the other results of a region."""
        for each in postorder(expr):
            if id(each) not in self.made:
                new = rebuilt(each, [self.made[id(child)] for child in children(each)])
                found = self._rule(each, new)
                new = new if found is None else found
                if new is not each and new._checked_type is None:
                    new._checked_type = each._checked_type
                self.made[id(each)] = new
        return self.made[id(expr)]

    def _rule(self, old: Any, new: Any) -> Expr | None:
        region = self.regions.of(old) if op_of(old) in (BEGIN, END) else None
        if region is None:
            return None
        if op_of(old) == END:
            if (region.number, id(old.args[0])) not in self.results:
                self._function(region)
            return self.results[region.number, id(old.args[0])]
        parent = old.args[0]
        while op_of(parent) in (BEGIN, END):
            parent = parent.args[0]
        key = region.number, id(parent)
        if key not in self.inside:
            place = next(at for at, each in enumerate(region.inputs) if each is old)
            self.inside[key] = Var(f"{region.target}_{region.number}_i{place}", type_of(old))
            self.arguments.setdefault(region.number, []).append((self.inside[key], new.args[0]))
        return self.inside[key]

    def _function(self, region: Region) -> None:
        outputs = list({id(end.args[0]): end.args[0] for end in region.outputs}.values())
        fields = [self._visit(each) for each in outputs]
        given = self.arguments.get(region.number, [])
        bound = {variable: value for variable, value in given if self.bind_constants and _is_constant(value)}
        result = outputs[0]._checked_type if len(outputs) == 1 else None
        function: Any = Function(
            [variable for variable, _ in given], fields[0] if len(fields) == 1 else Tuple(fields), result
        )
        function = bind(function, bound) if bound else function
        optimise = get_global_func(f"relay.ext.{region.target}.optimize", allow_missing=True)
        if optimise is not None:
            function = optimise(typed(IRModule.from_expr(function)))["main"]
        name = f"{region.target}_{self.name}_{region.number}"
        attrs = {"global_symbol": name, "Primitive": 1, "Compiler": region.target, "Inline": 1}
        place = GlobalVar(name)
        self.module[place] = function.with_attr(attrs)
        call = Call(place, [value for variable, value in given if variable not in bound])
        for at, output in enumerate(outputs):
            part: Expr = call if len(outputs) == 1 else TupleGetItem(call, at)
            part._checked_type = output._checked_type
            self.results[region.number, id(output)] = part


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, Constant) or (
        isinstance(expr, Tuple) and all(isinstance(field, Constant) for field in expr.fields)
    )


def _without_default(old: Any, new: Any) -> Expr | None:
    return new.args[0] if op_of(old) in (BEGIN, END) and _compiler(old) == DEFAULT else None


def _flat(old: Any, new: Any) -> Expr | None:
    if op_of(old) == END and isinstance(new.args[0], Tuple):
        fields = new.args[0].fields
        return Tuple([_noted(END, field, _compiler(old)) for field in fields])
    return None


def partition(module: IRModule, bind_constants: bool = True, mod_name: str | None = None) -> IRModule:
    """The module with its regions as functions."""
    made = typed(module).shallow_copy()
    for name, function in own_functions(module).items():
        for rule in (_flat, _without_default):
            function = rewrite(function, rule)  # type: ignore[assignment]
        made._functions[name] = _Partitioner(made, name, function, bind_constants).run()  # type: ignore[assignment]
    return typed(_renamed(made, mod_name or DEFAULT))


def _renamed(module: IRModule, mod_name: str) -> IRModule:
    """The functions for other compilers with TVM's prefix."""
    prefix = "tvmgen_" + mod_name.removeprefix("tvmgen_")
    names = {
        name: re.sub(r"\W", "_", f"{prefix}_{name}", flags=re.ASCII)
        for name, function in own_functions(module).items()
        if "Compiler" in function.attrs
    }
    made = module.shallow_copy()
    made._functions, made._variables = {}, {}
    for name, function in module._functions.items():
        if isinstance(function, Function):
            function = rewrite(  # type: ignore[assignment]
                function, lambda old, new: GlobalVar(names[old.name_hint]) if _is_renamed(old, names) else None
            )
        if name in names:
            made[GlobalVar(names[name])] = function.with_attr("global_symbol", names[name])  # type: ignore[union-attr]
        else:
            made[module._variables[name]] = function
    return made


def _is_renamed(expr: Any, names: dict[str, str]) -> bool:
    return isinstance(expr, GlobalVar) and expr.name_hint in names


def PartitionGraph(mod_name: str = DEFAULT, bind_constants: bool = True) -> ModulePass:
    """The marked regions as functions of the attribute `Compiler` (`partition_graph.cc`). With `bind_constants`, constants go
    inside."""
    return ModulePass(PassInfo(0, "PartitionGraph"), lambda module, _: partition(module, bind_constants, mod_name))
