"""Runs kernels where each tensor lies between pages that nobody may touch: what reads or writes out of bounds ends the process.

Inputs cannot be written, nor can the words that tell a kernel where its tensors are. For tests, and for the fuzzer, which runs
this in a child process. Definitions are not checked here: kernels are made of whatever a template takes.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from ....compiler.targets.cpu.target import Target, host
from ....compiler.targets.cpu.toolchain.kernels import compiled
from ....formats import dims
from ....formats.primitive import PrimitiveDefinition
from ....native.convention import ARGUMENT_HEAD, NOTE_WORDS
from ....native.platform import load_object
from ....vm.library import PROTOTYPE, BuiltKernel

_PAGE = mmap.PAGESIZE
_NONE, _READ = 0, 1  # PROT_NONE, PROT_READ of mprotect(2)
POISON = 0xA5  # bytes of outputs before a kernel writes them, and of what lies beside tensors
_libc = ctypes.CDLL(None, use_errno=True)
_addresses: dict[str, int] = {}


class Fenced:
    """A copy of an array between two forbidden pages: it ends `slack` bytes before one, or, `at_start`, begins
    `slack` bytes after one, at a multiple of 4. What else lies between the pages is full of `fill`."""

    def __init__(
        self, array: np.ndarray, slack: int = 0, *, at_start: bool = False, writable: bool = True, fill: int = POISON
    ) -> None:
        pages = max(1, -(-(array.nbytes + slack) // _PAGE))
        memory = mmap.mmap(-1, (pages + 2) * _PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        end = (pages + 1) * _PAGE
        offset = (_PAGE + slack if at_start else end - array.nbytes - slack) // 4 * 4
        between = np.frombuffer(memory, np.uint8, pages * _PAGE, _PAGE)
        between[:] = fill
        self.array = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
        self.array[...] = array
        self._rest = between[: offset - _PAGE], between[offset - _PAGE + array.nbytes :]
        self._fill = fill
        _protect(base, _PAGE, _NONE)
        _protect(base + end, _PAGE, _NONE)
        if not writable:
            _protect(base + _PAGE, pages * _PAGE, _READ)

    @property
    def address(self) -> int:
        return self.array.__array_interface__["data"][0]

    def is_clean(self) -> bool:
        """Whether nobody has written beside the array."""
        return all(bool((rest == self._fill).all()) for rest in self._rest)


def _protect(address: int, size: int, manner: int) -> None:
    if _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), manner):
        raise OSError(ctypes.get_errno(), "mprotect fails")


def call(kernel: BuiltKernel, args: int, scratch: int, part: int, parts: int) -> int:
    """One call of a kernel; its answer."""
    if kernel.object_key not in _addresses:
        (_addresses[kernel.object_key],) = load_object(kernel.code).values()
    result, exception = ctypes.c_int64(-99), ctypes.c_void_p()
    status = PROTOTYPE(_addresses[kernel.object_key])(
        ctypes.addressof(result), ctypes.addressof(exception), args, scratch, part, parts
    )
    if status:
        raise RuntimeError(f"the kernel raised an exception of Numba's, status {status}")
    return result.value


@lru_cache(maxsize=256)
def kernel_of(definition: PrimitiveDefinition, target: Target) -> BuiltKernel | None:
    """The compiled kernel of a definition that need not be well-formed; None where no template takes it."""
    return compiled(definition, target)


def run_kernel(
    definition: PrimitiveDefinition,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int] | None = None,
    parts: int = 1,
    target: Target | None = None,
    slack: int = 0,
    at_once: bool = False,
    over: int | None = None,
    at_start: bool = False,
    fill: int = POISON,
    kernel: BuiltKernel | None = None,
) -> tuple[int, list[np.ndarray]]:
    """The code (0 for success) and the outputs of a kernel, by default of the definition's own, made by `parts` parts one after
    the other, or each by a thread. The first output lies `over` an input, where one is named. `slack` and `at_start` say where
    tensors lie: see `Fenced`. Outputs are full of `fill` before. Raises AssertionError for a kernel that writes beside its
    tensors, within a page."""
    kernel, sizes = kernel or kernel_of(definition, target or host()), sizes or {}
    assert kernel is not None, f"no kernel for {definition}"

    def fenced(array: np.ndarray, slack: int = 0, writable: bool = True) -> Fenced:
        return Fenced(array, slack, at_start=at_start, writable=writable, fill=fill)

    inputs = [
        fenced(np.require(array, requirements="C"), slack, writable=place == over) for place, array in enumerate(arrays)
    ]
    outputs = []
    for type_ in definition.results:
        shape = tuple(dims.evaluate(dim, sizes) for dim in type_.shape)  # type: ignore[arg-type]
        blank = np.full(math.prod(shape) * type_.dtype.itemsize, fill, np.uint8).view(type_.dtype.numpy)
        outputs.append(fenced(blank.reshape(shape), slack))
    if over is not None:
        outputs[0] = inputs[over]
    words = fenced(np.array([*kernel.words, 0], np.int64), writable=False)
    stride = (kernel.scratch_bytes + 63) // 64 * 64
    scratch = fenced(np.full(stride * (parts if at_once else 1), -1, np.int8))
    variables = [sizes[name] for name in definition.variables]
    addresses = [each.address for each in (words, *inputs, *outputs)]
    args = fenced(np.array([*[0] * ARGUMENT_HEAD, *addresses, *variables, *[0] * NOTE_WORDS], np.int64))
    begin = args.address + 8 * ARGUMENT_HEAD
    asked = call(kernel, begin, 0, -1, 2)
    assert 1 <= asked <= 64, f"the kernel asks for {asked} parts"
    with ThreadPoolExecutor(parts if at_once else 1) as threads:
        places = [scratch.address + part * stride * at_once for part in range(parts)]
        codes = list(threads.map(lambda part: call(kernel, begin, places[part], part, parts), range(parts)))
    for number, each in enumerate((*inputs, *outputs)):
        assert each.is_clean(), f"the kernel writes beside tensor {number}"
    assert scratch.is_clean(), "the kernel writes beside its scratch memory"
    assert args.is_clean(), "the kernel writes beside its arguments"
    return max(codes), [
        each.array.view(type_.dtype.numpy) for each, type_ in zip(outputs, definition.results, strict=True)
    ]
