"""The program: the decoded sections of an executable, plain data.

`sections.py` encodes it, `container.py` lays the sections out in a file, `text/assembly.py` prints and parses it as text, and
`executable.py` is the public value around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .messages.readable import Readable, brief
from .primitive import Primitive
from .types import DataTypeDefinition, FunctionType, TensorType, Type


@dataclass(frozen=True, repr=False)
class Function(Readable):
    """A global function. `start` and `length` are in words of the code section, in which functions lie one after the
    other in the order of the table, without gaps."""

    name: str
    param_names: tuple[str, ...]  # of captured values too, which come last
    type: FunctionType  # dimensions that callers may rely on; symbolic ones keep their names, for messages
    captured: int  # how many of the parameters are bound by alloc_closure; 0 for a function that can be called by name
    ref_registers: int
    int_registers: int
    frame_bytes: int
    start: int
    length: int
    result_names: tuple[str, ...] = ()  # of the result, or of a tuple's fields; empty where nobody has named them

    def _shown(self) -> str:
        return f"{brief(self.name)}({brief(self.param_names)[1:-1]}): {self.type}"

    def _brief(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Import(Readable):
    """A Python function that the program calls. It is given by name when a machine is made."""

    name: str
    type: FunctionType  # symbolic dimensions are bound by the arguments of each call

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, repr=False)
class SourceLocation(Readable):
    """The instruction at word `offset` of function number `function` comes from the model node `node`."""

    function: int
    offset: int
    node: str


TARGET = "target"  # the metadata's key
HOST, CPU = (
    "host",
    "cpu",
)  # the place of tensors whose types name no device; the target of devices that are this machine's CPU


@dataclass(frozen=True, repr=False)
class ProgramDevice(Readable):
    """A device that a program names: types say which values lie there, primitives which of them it computes."""

    name: str  # in text: float32[n]@gpu0
    target: str  # what computes there, as in `Program.target`; "cpu" for kernels that the machine builds

    def __str__(self) -> str:
        return f"{self.name}: {self.target}"


# What a program's products and convolutions may be computed with; their sums, and all else, are float32 where the model's are
EXACT = "float32"
PRECISIONS = (EXACT, "bfloat16", "int8")
AUTO = "auto"  # as much bfloat16 as a tolerance allows
PRECISION, PRECISION_REPORT = "precision", "precision_report"  # keys of the metadata


@dataclass(frozen=True, eq=False, repr=False)
class Program(Readable):
    """The decoded sections of an executable."""

    functions: tuple[Function, ...]
    constants: tuple[np.ndarray, ...]  # read-only, C-contiguous; memory-mapped when they come from a file
    primitives: tuple[Primitive, ...]
    code: np.ndarray  # int64, read-only
    # The type table: alloc_tensor, alloc_data …; no type variables, symbolic dimensions erased to ?
    types: tuple[Type, ...]
    data_types: tuple[DataTypeDefinition, ...]  # monomorphic: no parameters; named like "List[float32[2]]"
    source_map: tuple[SourceLocation, ...] = ()  # in order of (function, offset), one entry an instruction at most
    metadata: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[Import, ...] = ()
    texts: object = None  # who holds the texts of the constants, if they came from a file
    devices: tuple[ProgramDevice, ...] = ()  # besides the host
    placed: Mapping[int, str] = field(default_factory=dict)  # the constants that lie on a device, and its name

    def _shown(self) -> str:
        functions = f"{len(self.functions)} functions {brief(self.functions)}"
        return f"of {functions}, {len(self.primitives)} primitives, {len(self.constants)} constants"

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))
        object.__setattr__(self, "placed", MappingProxyType(dict(self.placed)))

    @property
    def target(self) -> str:
        """What it was made for, if no other target computes its primitives; "" where any machine builds their kernels."""
        return self.metadata.get(TARGET, "")

    def target_of(self, primitive: int) -> str:
        """What a primitive was made for: `target`, or that of the device that computes it."""
        name = self.primitives[primitive].device
        found = next((device.target for device in self.devices if device.name == name), self.target)
        return "" if name and found == CPU else found


class NativeKernel(NamedTuple):
    """Native code of one primitive on one target."""

    code: bytes  # an object file; kernels that differ only in `words` share it
    words: tuple[int, ...]  # static words, args[0] of the kernel convention
    scratch_bytes: int
    nanoseconds: int  # expected duration of one call on one thread, 0 when not measured

    def __repr__(self) -> str:
        """In one line: the code of a model's kernels is hundreds of kilobytes."""
        return f"<NativeKernel: {len(self.code)} bytes of code, {self.scratch_bytes} of scratch memory>"


Native = Mapping[str, Mapping[str, NativeKernel]]  # target key → definition key, hex → kernel


@dataclass(frozen=True, repr=False)
class LateBoundConstant(Readable):
    """A constant whose bytes lie in another file: `file` is a name beside the executable, without folders."""

    type: TensorType
    crc32: int
    file: str
    key: str
