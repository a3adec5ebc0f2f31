"""`tvm.instrument`: what looks on while passes run, given to `PassContext(instruments=[…])`."""

from __future__ import annotations

import time
from typing import Any

from .transform import PassInfo


class PassInstrument:
    """The methods that are called, each of which may be left out. A pass for which `should_run` says False is left out."""

    def enter_pass_ctx(self) -> None: ...

    def exit_pass_ctx(self) -> None: ...

    def should_run(self, mod: Any, info: PassInfo) -> bool:
        return True

    def run_before_pass(self, mod: Any, info: PassInfo) -> None: ...

    def run_after_pass(self, mod: Any, info: PassInfo) -> None: ...


def pass_instrument(pi_cls: type | None = None) -> Any:
    """Makes an instrument of a class that has some of the methods: a decorator."""

    def make(cls: type) -> type:
        return type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__, "__module__": cls.__module__})

    return make if pi_cls is None else make(pi_cls)


class PassTimingInstrument(PassInstrument):
    """How long each pass took; a pass in a pass is indented under it."""

    def __init__(self) -> None:
        self._open: list[tuple[int, float]] = []  # of the passes that run now: their line, and when they began
        self._lines: list[str] = []
        self._seconds: list[float] = []

    def enter_pass_ctx(self) -> None:
        self._open, self._lines, self._seconds = [], [], []

    exit_pass_ctx = enter_pass_ctx

    def run_before_pass(self, mod: Any, info: PassInfo) -> None:
        self._open.append((len(self._lines), time.perf_counter()))
        self._lines.append("\t" * (len(self._open) - 1) + info.name)
        self._seconds.append(0.0)

    def run_after_pass(self, mod: Any, info: PassInfo) -> None:
        line, start = self._open.pop()
        self._seconds[line] = time.perf_counter() - start

    def render(self) -> str:
        """A line for each pass that ran since the context was entered."""
        return "".join(
            f"{name}: {seconds * 1e6:.0f}us\n" for name, seconds in zip(self._lines, self._seconds, strict=True)
        )


class PrintBeforeAll(PassInstrument):
    """Prints the module before each pass."""

    def run_before_pass(self, mod: Any, info: PassInfo) -> None:
        print("Before Running Pass:", info, mod, sep="\n")


class PrintAfterAll(PassInstrument):
    """Prints the module after each pass."""

    def run_after_pass(self, mod: Any, info: PassInfo) -> None:
        print("After Running Pass:", info, mod, sep="\n")


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after the passes of these names."""

    def __init__(self, print_before_pass_names: Any = (), print_after_pass_names: Any = ()) -> None:
        self.before, self.after = set(print_before_pass_names), set(print_after_pass_names)

    def run_before_pass(self, mod: Any, info: PassInfo) -> None:
        if info.name in self.before:
            print(f"Print ir before: {info.name}", mod, sep="\n")

    def run_after_pass(self, mod: Any, info: PassInfo) -> None:
        if info.name in self.after:
            print(f"Print ir after: {info.name}", mod, sep="\n")
