"""The subject of debugging: an executable with its arguments, and its model if known."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats import dims
from ..formats.dtypes import DType
from ..formats.executable import SUFFIX, Executable, load
from ..formats.messages.calling import told
from ..formats.messages.errors import ArgumentError
from ..formats.messages.names import near
from ..formats.program import EXACT
from ..formats.types import TensorType, Type

if TYPE_CHECKING:
    from ..compiler import ir
    from ..vm.observe.hooks import Listener

OPT_LEVEL = 2
SYMBOLIC_SIZE = 16  # of a symbolic dimension of arguments that nobody gave
_SEED = 0


@dataclass(frozen=True)
class Subject:
    """An executable, and what made it: `model` is None where only the executable is known."""

    executable: Executable
    model: Any = None  # an ir.Module, or what from_onnx takes
    function: str = "main"
    trust_native: bool = False
    opt_level: int = OPT_LEVEL  # that the model was compiled with
    without: tuple[str, ...] = ()
    precision: str = EXACT

    @property
    def is_onnx(self) -> bool:
        """Whether the model is an ONNX model."""
        from ..compiler import ir

        return self.model is not None and not isinstance(self.model, ir.Module)

    def module(self) -> ir.Module:
        """The typed program before any pass. Raises ArgumentError where the model is not known."""
        from ..compiler import ir
        from ..compiler.ir.infer import infer_types
        from ..compiler.onnx.importer import from_onnx

        if self.model is None:
            raise ArgumentError("an executable alone says nothing of the program before the passes; give the model")
        module = self.model if isinstance(self.model, ir.Module) else from_onnx(self.model, entry=self.function)
        return infer_types(module)

    def run(self, feeds: Mapping[str, np.ndarray], *listeners: Listener) -> dict[str, Any]:
        """The results of one call by name, which listeners are told of."""
        from ..vm.machine import VirtualMachine

        machine = VirtualMachine(self.executable, trust_native=self.trust_native)
        with machine.listening(*listeners):
            result = machine[self.function](*feeds.values())
        values = list(result) if isinstance(result, tuple) else [result]
        ports = self.executable.outputs(self.function)
        return {
            port.name: np.asarray(value) if hasattr(value, "__array__") else value
            for port, value in zip(ports, values, strict=True)
        }


def subject(
    model: Any,
    *,
    function: str = "main",
    opt_level: int = OPT_LEVEL,
    without: Collection[str] = (),
    trust_native: bool = False,
    precision: str = EXACT,
) -> Subject:
    """`model` is an executable or the path of one; or what `treadle.compile` takes, which is compiled; or a Subject."""
    if isinstance(model, Subject):
        return model
    model = _of_machine(model)
    if isinstance(model, Executable):
        return Subject(model, None, function, trust_native)
    if isinstance(model, (str, os.PathLike)) and is_executable(Path(model)):
        return Subject(load(model, trust_native=trust_native), None, function, trust_native)
    from ..compiler.driver import compile

    executable = compile(
        model, entry=function, opt_level=opt_level, without=without, precision=precision, progress=False
    )
    return Subject(executable, model, function, False, opt_level, tuple(without), precision)


def _of_machine(model: Any) -> Any:
    """The executable of a machine; anything else as it is."""
    from ..vm.machine import VirtualMachine

    return model.executable if isinstance(model, VirtualMachine) else model


def executable_of(model: Any, what: str) -> Executable:
    """An executable itself or a machine's, loaded from a file, or compiled without kernels. Raises ArgumentError for
    anything else (`what` names the caller in it), and what loading and compiling raise."""
    model = _of_machine(model)
    if isinstance(model, Executable):
        return model
    if isinstance(model, (str, os.PathLike)) and is_executable(Path(model)):
        return load(model)
    from ..compiler import ir

    if not isinstance(model, (str, os.PathLike, bytes, ir.Module)) and not hasattr(model, "SerializeToString"):
        raise ArgumentError(f"{what}: expected an Executable, a model, or a file of either, got {told(model)}")
    from ..compiler.driver import compile

    return compile(model, embed_native=False, progress=False)


def is_executable(path: Path) -> bool:
    """By its name."""
    return path.suffix == SUFFIX


# ---- arguments ----


def arguments(
    executable: Executable, function: str, feeds: Mapping[str, Any] | Sequence[Any] | None, seed: int = _SEED
) -> dict[str, np.ndarray]:
    """One array for each parameter, in order: those of `feeds`, by name or position; without feeds random ones from the seed.
    Raises ArgumentError."""
    ports = executable.inputs(function)
    names = [port.name for port in ports]
    if feeds is None:
        rng = np.random.default_rng(seed)
        return {port.name: _random(rng, port.name, port.type) for port in ports}
    if not isinstance(feeds, Mapping):
        values = [feeds] if isinstance(feeds, np.ndarray) or not isinstance(feeds, Iterable) else list(feeds)
        if len(values) != len(names):
            raise ArgumentError(f"feeds: expected {len(names)} arrays ({', '.join(names)}), got {len(values)}")
        feeds = dict(zip(names, values, strict=True))
    missing, unknown = [n for n in names if n not in feeds], [n for n in feeds if n not in names]
    if missing or unknown:
        wrong = f"there is no {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
        hint = near(unknown[0], names) if unknown else ""
        raise ArgumentError(f"feeds: {wrong}; {function} takes {', '.join(names) or 'nothing'}{hint}")
    return {port.name: _array(feeds[port.name], port.name, port.type) for port in ports}


def _array(value: Any, name: str, type_: Type) -> Any:
    if not isinstance(type_, TensorType):
        return value
    try:
        return np.asarray(value) if hasattr(value, "__array__") else np.asarray(value, type_.dtype.users)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"feeds: {name!r}: expected {type_}, got {told(value)}") from None


def _random(rng: np.random.Generator, name: str, type_: Type) -> np.ndarray:
    if not isinstance(type_, TensorType) or not all(isinstance(dim, (int, dims.SymbolicDim)) for dim in type_.shape):
        raise ArgumentError(f"feeds: nothing can be made up for {name!r}, which is {type_}; give it")
    shape = [
        dim if isinstance(dim, int) else dims.evaluate(dim, dict.fromkeys(dims.variables(dim), SYMBOLIC_SIZE))  # type: ignore[arg-type]
        for dim in type_.shape
    ]
    return random_elements(rng, type_.dtype, shape)


def random_elements(rng: np.random.Generator, dtype: DType, shape: Sequence[int], below: int = 2) -> np.ndarray:
    """Normally distributed floats; integers from 0 on, or texts of such: by default 0 and 1, indices into most tables."""
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    found = rng.integers(0, below, shape)
    return found.astype(str).astype(object) if dtype.is_string else found.astype(dtype.numpy)
