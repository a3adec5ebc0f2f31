"""Passes over the functions of a module: inlining, lifting of closures, eta expansion, defusing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...transform import ModulePass, PassInfo
from .. import adt, ty
from ..expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, Var
from ..module import IRModule
from ..rewrite import bind
from ..visit import free_vars, global_vars, postorder
from .core import each_function, fresh, rewrite, typed


def own_functions(module: IRModule) -> dict[str, Function]:
    """The functions that have expressions of Relay."""
    return {name: each for name, each in module._functions.items() if isinstance(each, Function)}


def _callees_first(functions: dict[str, Function]) -> Iterator[str]:
    """The functions' names, those that a function calls before it, as far as that can be."""
    done: set[str] = set()
    for root in functions:
        stack = [(root, False)]
        while stack:
            name, ready = stack.pop()
            if ready:
                yield name
            elif name in functions and name not in done:
                done.add(name)
                stack.append((name, True))
                stack += [(each, False) for each in global_vars(functions[name])]


def inlined(module: IRModule) -> IRModule:
    """Functions of the attribute `Inline` put where they are used, and removed. Those that call what stays, themselves among
    it, stay."""
    made = module.shallow_copy()
    functions = own_functions(module)
    called = {name for function in functions.values() for name in global_vars(function)}
    leaves: dict[str, Function] = {}  # what can be inlined

    for name in _callees_first(functions):
        function = functions[name]

        def use(old: Expr, new: Expr) -> Expr | None:
            if isinstance(old, Call) and isinstance(old.op, GlobalVar) and old.op.name_hint in leaves:
                callee = leaves[old.op.name_hint]
                args = new.args  # type: ignore[attr-defined]
                if "Compiler" in callee.attrs:
                    return Call(callee, args, old.attrs, old.type_args)
                return bind(callee.body, dict(zip(callee.params, args, strict=True)))
            return leaves.get(new.name_hint) if isinstance(new, GlobalVar) else None

        changed = rewrite(function, use)
        assert isinstance(changed, Function)
        functions[name] = made._functions[name] = changed
        if function.attrs.get("Inline") and not global_vars(changed):
            leaves[name] = changed
    made._functions = {name: each for name, each in made._functions.items() if name not in leaves or name not in called}
    return made


def Inline() -> ModulePass:
    """Functions of the attribute `Inline` put where they are used (`inline.cc`)."""
    return ModulePass(PassInfo(1, "InlineGlobals"), lambda module, _: inlined(module))


def lifted(module: IRModule) -> IRModule:
    """Closures as functions of the module, which take what they capture and give the closure."""
    made = typed(module).shallow_copy()
    for name, function in own_functions(module).items():
        recursive: dict[Var, Function] = {}
        for each in postorder(function):
            if isinstance(each, Let) and isinstance(each.value, Function):
                recursive[each.var] = each.value

        def lift(old: Expr, new: Any, top: Function = function, recursive: Any = recursive) -> Expr | None:
            if not isinstance(new, Function) or old is top or new.attrs.get("Primitive") or "Compiler" in new.attrs:
                return None
            own = [variable for variable, value in recursive.items() if value is old and variable in free_vars(new)]
            captured = [variable for variable in free_vars(new) if variable not in own]
            place = GlobalVar(_unused(made, "lifted_name"))
            call: Expr = Call(place, captured) if captured else place
            if own:
                new = bind(new, {own[0]: call})
            result = new.with_attr("Closure", 1) if captured else new
            given = old._checked_type.ret_type if isinstance(old._checked_type, ty.FuncType) else None
            made[place] = Function(captured, result, old._checked_type if captured else given) if captured else result
            return call

        made._functions[name] = rewrite(function, lift)  # type: ignore[assignment]
    return typed(made)


def _unused(module: IRModule, hint: str) -> str:
    number = 0
    while f"{hint}_{number}" in module:
        number += 1
    return f"{hint}_{number}"


def LambdaLift() -> ModulePass:
    """Closures as functions of the module (`backend/vm/lambda_lift.cc`)."""
    return ModulePass(PassInfo(1, "LambdaLift"), lambda module, _: lifted(module))


def EtaExpand(expand_constructor: bool = True, expand_global_var: bool = False) -> ModulePass:
    """Constructors and functions that are values as functions that call them (`eta_expand.cc`)."""

    def expand(function: Function, module: IRModule) -> Expr:
        called = {id(each.op) for each in postorder(function) if isinstance(each, Call)}

        def rule(old: Expr, new: Expr) -> Expr | None:
            if id(old) in called:
                return None
            if (
                expand_global_var
                and isinstance(old, GlobalVar)
                and isinstance(module._functions.get(old.name_hint), Function)
            ):
                callee: Any = module._functions[old.name_hint]
                params = [fresh(param) for param in callee.params]
                return Function(params, Call(old, params), callee.ret_type, callee.type_params)
            if expand_constructor and isinstance(old, adt.Constructor):
                data = module[old.belong_to]
                params = [Var(f"eta_{place}", type_) for place, type_ in enumerate(old.inputs)]
                result = ty.TypeCall(data.header, tuple(data.type_vars))
                return Function(params, Call(old, params), result, data.type_vars)
            return None

        return rewrite(function, rule)

    return each_function("EtaExpand", expand)


def defused(function: Function, module: IRModule | None = None) -> Expr:
    """Primitive functions put where they are called."""

    def rule(old: Expr, new: Expr) -> Expr | None:
        if isinstance(old, Call) and isinstance(old.op, Function) and old.op.attrs.get("Primitive"):
            callee: Any = new.op  # type: ignore[attr-defined]
            return bind(callee.body, dict(zip(callee.params, new.args, strict=True)))  # type: ignore[attr-defined]
        return None

    return rewrite(function, rule)


def DefuseOps() -> ModulePass:
    """The inverse of FuseOps (`defuse_ops.cc`)."""
    return each_function("DefuseOps", defused)


def expanded(function: Function, module: IRModule | None) -> Function:
    """The function with calls of functions in the place of their bodies, and lets replaced by sharing, but for those that call
    themselves."""
    own = {} if module is None else own_functions(module)
    known = {name: each for name, each in own.items() if name not in _reached(own, name)}

    def expand(old: Expr, new: Any) -> Expr | None:
        if isinstance(new, adt.Match):
            return _chosen(new)
        if not isinstance(new, Call):
            return None
        callee: Any = known.get(new.op.name_hint) if isinstance(new.op, GlobalVar) else new.op
        if (
            isinstance(callee, If)
            and isinstance(callee.true_branch, Function)
            and isinstance(callee.false_branch, Function)
        ):
            return If(callee.cond, Call(callee.true_branch, new.args), Call(callee.false_branch, new.args))
        if not isinstance(callee, Function) or "Compiler" in callee.attrs:
            return None
        return bind(callee.body, dict(zip(callee.params, new.args, strict=True)))

    def inline(let: Let, value: Expr) -> bool:
        return not (isinstance(value, Function) and let.var in free_vars(value))

    for _ in range(100):  # a call may give a function, which is called then
        before = function
        function = rewrite(function, expand, inline)  # type: ignore[assignment]
        if function is before:
            break
    return function


def _chosen(match: adt.Match) -> Expr | None:
    """What a match of a tuple or a constructor's call is; None where that is known at run time alone."""
    for clause in match.clauses:
        bound: dict[Var, Expr] = {}
        fits = _fits(clause.lhs, match.data, bound)
        if fits:
            return bind(clause.rhs, bound)
        if fits is None:
            break
    return None


def _fits(pattern: Any, value: Any, bound: dict[Var, Expr]) -> bool | None:
    """Whether a pattern fits a value, and what its variables are then; None: unknown."""
    if isinstance(pattern, adt.PatternVar):
        bound[pattern.var] = value
    if not isinstance(pattern, (adt.PatternTuple, adt.PatternConstructor)):
        return True
    if isinstance(pattern, adt.PatternTuple) and isinstance(value, Tuple):
        parts = value.fields
    elif (
        isinstance(pattern, adt.PatternConstructor)
        and isinstance(value, Call)
        and isinstance(value.op, adt.Constructor)
    ):
        if value.op.name_hint != pattern.constructor.name_hint:
            return False
        parts = value.args
    else:
        return None
    several = [_fits(mine, part, bound) for mine, part in zip(pattern.patterns, parts, strict=True)]
    return False if False in several else None if None in several else True


def _reached(functions: dict[str, Function], name: str) -> set[str]:
    """The functions that a function calls, and those that these call."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for each in global_vars(functions[waiting.pop()]):
            if each not in found and each in functions:
                found.add(each)
                waiting.append(each)
    return found


def PartialEvaluate() -> ModulePass:
    """Calls of known functions as their bodies, and what is constant then as its value (`partial_eval.cc`). Functions that call
    themselves stay, as references do."""
    from .folding import folded

    def evaluate(function: Function, module: IRModule) -> Expr:
        before: Any = None
        made: Any = function
        while made is not before:
            before, made = made, folded(expanded(made, module))
        return made

    return each_function("PartialEvaluate", evaluate)
