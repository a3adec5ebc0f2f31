"""Users' passes among the compiler's own.

compile(module, passes=[after("fold_constants", MyPass())])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...formats.messages.calling import public, raised, told
from ...formats.messages.errors import (
    ArgumentError,
    CompileBudgetError,
    CompileError,
    TreadleError,
    UnknownAttributeError,
)
from ...formats.messages.names import near
from .. import ir


class OwnPass(Protocol):
    """A function from module to module; it gets a typed module, and may leave new parts untyped."""

    @property
    def name(self) -> str: ...

    def __call__(self, module: ir.Module) -> ir.Module: ...


@dataclass(frozen=True)
class Placed:
    """A user's pass and its place. It is a pass itself: it types the user's result, and names the user's pass in errors."""

    run: OwnPass
    beside: str  # the name of the neighbouring pass
    is_after: bool
    entries: tuple[str, ...] = ()  # functions that callers of the program know by name

    @property
    def name(self) -> str:
        return _name(self.run) or ""

    def __call__(self, module: ir.Module) -> ir.Module:
        from ..ir.infer import infer_types

        try:
            made = self.run(module)
            if not isinstance(made, ir.Module):
                raise CompileError(f"expected a Module, got {type(made).__name__}")
            if lost := [name for name in self.entries if name in module.functions and name not in made.functions]:
                left = ", ".join(map(repr, made.functions)) or "no functions"
                raise CompileError(
                    f"the module that it gave has no function {lost[0]!r}, which callers call; it has {left}"
                )
            return infer_types(made)
        except CompileBudgetError:
            raise
        except UnknownAttributeError as error:  # the fault is the pass's
            raise CompileError(f"the pass {self.name!r} raised {raised(error, self.run)}") from error
        except TreadleError as error:
            raise CompileError(
                f"the pass {self.name!r}: {error.message}", function=error.function, node=error.node
            ) from error
        except Exception as error:
            raise CompileError(f"the pass {self.name!r} raised {raised(error, self.run)}") from error


@public
def after(name: str, run: OwnPass) -> Placed:
    """Has a pass run after the last run of the pass `name`, for `treadle.compile(…, passes=[…])`. It is a function from module
    to module, or an object that is called so and has a `name`. Raises ArgumentError."""
    return _placed(name, run, True)


@public
def before(name: str, run: OwnPass) -> Placed:
    """Has a pass run before the first run of the pass `name`, for `treadle.compile(…, passes=[…])`. It is a function from module
    to module, or an object that is called so and has a `name`. Raises ArgumentError."""
    return _placed(name, run, False)


def _placed(name: str, run: OwnPass, is_after: bool) -> Placed:
    if isinstance(run, type) or not callable(run) or not _name(run):
        got = f"the class {run.__name__}" if isinstance(run, type) else told(run)
        got = "a lambda, which has none" if getattr(run, "__name__", "") == "<lambda>" else got
        raise ArgumentError(f"expected a pass, which has a name and is called with a module, got {got}")
    return Placed(run, name, is_after)


def _name(run: OwnPass) -> str | None:
    """A pass's name: its `name`, or a function's `__name__`."""
    name = getattr(run, "name", None) or getattr(run, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else None


def with_placed(steps: Sequence[OwnPass], placed: Sequence[Placed], entries: Sequence[str]) -> list[OwnPass]:
    """The passes of a compilation with users' inserted; several at one place in the order given. `entries` are the
    functions that none may remove. Raises CompileError for one beside a pass that does not run."""
    result = list(steps)
    for each in placed:
        if not isinstance(each, Placed):
            raise CompileError(
                f"passes: expected what treadle.after and treadle.before give, got {told(each)}; for instance "
                'treadle.after("simplify", my_pass)'
            )
        places = [number for number, step in enumerate(result) if step.name == each.beside]
        if not places:
            names = list(dict.fromkeys(step.name for step in result))
            raise CompileError(
                f"the pass {each.name!r} is to run beside {each.beside!r}, which does not run; these do: {', '.join(names)}"
                f"{near(each.beside, names)}"
            )
        at = places[-1] + 1 if each.is_after else places[0]
        while each.is_after and at < len(result) and _is_like(result[at], each):
            at += 1
        result.insert(at, replace(each, entries=tuple(entries)))
    return result


def _is_like(step: OwnPass, placed: Placed) -> bool:
    """Whether a pass is a user's at the same place."""
    return isinstance(step, Placed) and step.is_after and step.beside == placed.beside
