"""Finds the cause of wrong results: a kernel, a pass, or the model itself.

Kernels first: with all primitives evaluated by their definitions, results are right if and only if kernels are to blame; halves
of the primitives then say which. Else the program is wrong, which the reference evaluator tells without any kernel: after which
pass first, and whether leaving that pass out makes it right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .comparison import DIFFERS, Bisection, result_rows
from .flow import Flow
from .kernels import LeftOut
from .references import Reference
from .subject import Subject


def bisected(of: Subject, feeds: Mapping[str, np.ndarray], wanted: Reference, tolerance: float) -> Bisection:
    """Finds what makes the results of a call wrong, which they are."""
    search = _Search(of, feeds, wanted, tolerance)
    names = search.called()
    if search.is_right_without(names):
        blamed = _least(names, search.is_right_without)
        detail = f"without the kernel{'s' * (len(blamed) > 1)} of {', '.join(blamed)} the results are right"
        return Bisection("kernel", tuple(blamed), True, detail, search.runs)
    if of.model is None:
        detail = (
            "no kernel is to blame: the primitives' definitions give the same. Give the model to look at its passes"
        )
        return Bisection("open", (), False, detail, search.runs)
    return search.passes()


def _least(names: Sequence[str], is_right_without: Callable[[Sequence[str]], bool]) -> list[str]:
    """Names, as few as can be, without which all is right: each step drops a part that is not needed (delta debugging, Zeller and
    Hildebrandt 2002, from halves to single ones)."""
    kept, parts = list(names), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        smaller = next((chunk for chunk in chunks if is_right_without(chunk)), None)
        if smaller is not None:
            kept, parts = smaller, 2
            continue
        rests = ([name for name in kept if name not in chunk] for chunk in chunks) if parts > 2 else ()
        rest = next((rest for rest in rests if is_right_without(rest)), None)
        if rest is not None:
            kept, parts = rest, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept


class _Search:
    def __init__(self, of: Subject, feeds: Mapping[str, np.ndarray], wanted: Reference, tolerance: float) -> None:
        self.of, self.feeds, self.wanted, self.tolerance = of, feeds, wanted, tolerance
        self.runs, self._depth = 0, 1

    def called(self) -> list[str]:
        """The primitives of a call, in the order of their first calls."""
        flow = Flow()
        self.of.run(self.feeds, flow)
        self._depth = 1 + max((step.depth for step in flow.steps), default=0)
        return list(dict.fromkeys(step.primitive for step in flow.steps))

    def is_right_without(self, primitives: Sequence[str]) -> bool:
        """Whether the results are right when these run by their definitions."""
        self.runs += 1
        return self._agree(self.of.run(self.feeds, LeftOut(frozenset(primitives))))

    def _agree(self, results: Mapping[str, object]) -> bool:
        rows = result_rows(results, self.wanted, self._depth, self.tolerance)
        return all(row.status != DIFFERS for row in rows)

    # ---- passes ----

    def passes(self) -> Bisection:
        from ..compiler.passes import Options, optional_passes, pipeline
        from ..compiler.targets.choice import backend_of

        options = Options((self.of.function,), backend_of(None, self.of.precision))
        steps = pipeline(self.of.opt_level, options, self.of.without)
        module = self.of.module()
        if not self._is_right(module):
            detail = "no pass is to blame: the program is wrong before the first one; look at the weights and the model"
            return Bisection("model", (), False, detail, self.runs)
        for step in steps:
            module = step(module)
            if not self._is_right(module):
                return self._blamed(step.name, steps, step.name in optional_passes())
        detail = "the program is right behind every pass, its definitions are not: code generation is to blame"
        return Bisection("open", (), False, detail, self.runs)

    def _blamed(self, name: str, steps: Sequence, may_be_left_out: bool) -> Bisection:
        if not may_be_left_out:
            return Bisection(
                "pass", (name,), False, f"the pass {name}, which must run, makes the program wrong", self.runs
            )
        module = self.of.module()
        for step in steps:
            module = step(module) if step.name != name else module
        right = self._is_right(module)
        ending = "right" if right else "wrong still"
        return Bisection(
            "pass",
            (name,),
            right,
            f"the pass {name} makes the program wrong; without it (--without {name}) it is {ending}",
            self.runs,
        )

    def _is_right(self, module: object) -> bool:
        """Whether the reference evaluator finds a module right."""
        from ..compiler.ir.evaluate import evaluate

        self.runs += 1
        with np.errstate(all="ignore"):
            value = evaluate(module, self.of.function, *self.feeds.values())  # type: ignore[arg-type]
        values = list(value) if isinstance(value, tuple) else [value]
        names = [port.name for port in self.of.executable.outputs(self.of.function)]
        return self._agree(dict(zip(names, values, strict=True)))
