"""`vm.builtin.cuda_graph.*`, `memory_manager.clear` and `hexagon.*`: what programs ask of devices.

There is no graph to launch on a CPU: a function that one would be captured of is called, each time. Its memory is made once.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from ....formats.messages.errors import ArgumentError
from ...modules.registry import PackedFunc
from .machine import RelaxMachine, VMClosure
from .registering import builtin, calling_builtin
from .values import parts, required

# by machine, then by the place in its program
_allocated: WeakKeyDictionary[RelaxMachine, dict[int, Any]] = WeakKeyDictionary()


def get_cached_alloc(machine: Any, function: Any, index: int) -> Any:
    """What the function gives, which is called once for a machine and an index: storage that stays."""
    required(machine, RelaxMachine, "a machine", "cuda_graph.get_cached_alloc")
    if not isinstance(index, int):
        raise ArgumentError(f"cuda_graph.get_cached_alloc: expected the number of a place, got {index!r}")
    made = _allocated.setdefault(machine, {})
    if index not in made:
        made[index] = _function(function, "cuda_graph.get_cached_alloc")()
    return made[index]


def run_or_capture(machine: Any, function: Any, args: Any, index: int, dims: Any = None) -> Any:
    """Calls the function with the tuple's fields."""
    return _function(function, "cuda_graph.run_or_capture")(*parts(args, "cuda_graph.run_or_capture"))


def _function(value: Any, doing: str) -> Any:
    return required(value, (PackedFunc, VMClosure), "a function", doing)


def clear_memory() -> None:
    """Nothing: tensors that nobody has any more are gone already."""


def no_hexagon(*_: Any) -> None:
    """Raises ArgumentError."""
    raise ArgumentError("hexagon.dma_copy, dma_wait: there is no Hexagon device here; there is cpu(0)")


calling_builtin(get_cached_alloc, "cuda_graph.get_cached_alloc")
calling_builtin(run_or_capture, "cuda_graph.run_or_capture")
builtin(clear_memory, "memory_manager.clear", contained=False)
for _name in ("dma_copy", "dma_wait"):
    builtin(no_hexagon, f"hexagon.{_name}")
