"""`treadle.debug`: find the node that is wrong, the first number that is not finite, and what a call made on the way.

    report = treadle.debug.compare("model.onnx", feeds)       # node by node, against onnxruntime
    print(report.table())

All of it listens to calls (`observe/hooks.py`): a machine that nobody listens to pays nothing. Names are imported when they
are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..formats.messages.names import lazily

if TYPE_CHECKING:
    from ..compiler.targets.emulated.memory import KernelFaultError
    from .case import load_case
    from .comparison import Comparison, Row
    from .debugger.listening import Listening, listen
    from .debugger.marks import breakpoint
    from .debugger.session import Session
    from .difference import diff
    from .dumping import dump
    from .graph import save_graph
    from .noise import Loss, loss
    from .nonfinite import NonFinite, first_nonfinite
    from .recording import Recorded, load_recording
    from .side_by_side import compare
    from .statistics import Stats, stats
    from .stepping import step
    from .trace import save_trace

_HOMES = {
    "Comparison": ".comparison",
    "KernelFaultError": "..compiler.targets.emulated.memory",
    "Listening": ".debugger.listening",
    "NonFinite": ".nonfinite",
    "Recorded": ".recording",
    "Row": ".comparison",
    "Session": ".debugger.session",
    "breakpoint": ".debugger.marks",
    "compare": ".side_by_side",
    "diff": ".difference",
    "dump": ".dumping",
    "first_nonfinite": ".nonfinite",
    "Loss": ".noise",
    "listen": ".debugger.listening",
    "loss": ".noise",
    "load_case": ".case",
    "load_recording": ".recording",
    "save_graph": ".graph",
    "save_trace": ".trace",
    "stats": ".statistics",
    "step": ".stepping",
    "Stats": ".statistics",
}

__all__ = [
    "Comparison",
    "KernelFaultError",
    "Listening",
    "Loss",
    "NonFinite",
    "Recorded",
    "Row",
    "Session",
    "Stats",
    "breakpoint",
    "compare",
    "diff",
    "dump",
    "first_nonfinite",
    "listen",
    "load_case",
    "load_recording",
    "loss",
    "save_graph",
    "save_trace",
    "stats",
    "step",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
