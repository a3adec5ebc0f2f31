"""Building kernels: from definitions of primitives to native code, lowered and compiled only where the cache lacks them.

This module is the compiler that the machine knows (`vm/library.py`): it names the target, builds, and evaluates.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .....formats import dims
from .....formats.messages.calling import warn_user
from .....formats.messages.errors import BudgetExceededError, CompileError, KernelError
from .....formats.primitive import PrimitiveDefinition
from .....formats.weight_table import WeightTable
from .....native import platform, sources
from .....native.claims import Claims
from .....vm import library
from .....vm.library import BuiltKernel, Evaluate
from .... import bounds
from ...base import CHECK_STEPS, reference
from ..kernels import own
from ..kernels.kernel import Kernel
from ..target import Target, host
from .compile_pool import Result, Text, UnfinishedError, compile_texts

_STEPS = (
    1000  # of arithmetic on symbolic dimensions, besides CHECK_STEPS, that checking and lowering a definition may take
)

_SYMBOL = "kernel_"  # prefix of the functions' names in object code, before their object key


class _Wanted(NamedTuple):
    """A kernel to build."""

    definition: PrimitiveDefinition
    name: str = ""  # of the primitive


def target_key() -> str:
    """The key of this process's kernel target."""
    return host().key


def build(
    definitions: Sequence[PrimitiveDefinition],
    target: Target | None = None,
    *,
    progress: bool = True,
    jobs: int | None = None,
    names: Sequence[str] = (),
    seconds: float | None = None,
) -> list[BuiltKernel | None]:
    """The kernel of each definition; None for one without a native lowering, which will be evaluated by reference. So will one
    whose kernel cannot be built, with a warning: that is a fault of Treadle or of this machine, and the program is right. If a
    user wrote the kernel, KernelError is raised.

    What is built is stored in the cache. `jobs` bounds the processes, `seconds` the time. `names` are those of the primitives,
    for messages. Raises InferenceError for a malformed definition, BudgetExceededError when the time is over.
    """
    until = math.inf if seconds is None else time.monotonic() + seconds
    target = target or host()
    wanted = list(map(_Wanted, definitions, names or [""] * len(definitions)))
    keys = [library.definition_key(each.definition, target.key) for each in wanted]
    found = library.find_kernels(keys)
    missing = {key: each for key, each in zip(keys, wanted, strict=True) if key not in found}
    if missing:
        with dims.bounded(CHECK_STEPS + _STEPS * len(missing)):
            lowered = _lowered(missing, target, until)
        found |= _build(missing, lowered, target, progress, jobs, until)
    return [found[key] for key in keys]


def compiled(definition: PrimitiveDefinition, target: Target) -> BuiltKernel | None:
    """The kernel of an unchecked definition, without a record in the cache: for tests of the templates only.

    Native code is kept by text alone, whatever made the text.
    """
    from ..kernels.lower import lower

    kernel = lower(definition, target)
    if kernel is None:
        return None
    ((key, code),) = _compile({_object_key(kernel, target): kernel}, target, False, 1)
    if isinstance(code, CompileError):
        raise code
    return BuiltKernel("", key, code, kernel.words, kernel.scratch_bytes, kernel.nanoseconds)


def paged_attention(size: int, group: int, element: str, turns: bool) -> BuiltKernel | None:
    """The kernel of `rows/paged_attention.py` for heads of `size` elements, `group` of which share keys; None if there is none.
    Raises CompileError."""
    from ..rows import paged_attention as template

    if not template.is_possible(size, element, turns):
        return None
    target = host()
    kernel = template.kernel(size, group, element, turns, target)
    ((key, code),) = _compile({_object_key(kernel, target): kernel}, target, True, 1)
    if isinstance(code, CompileError):
        raise code
    return BuiltKernel("", key, code, (template.heads_of(group),), 0, 0)


def remade(table: WeightTable, arrays: Mapping[int, np.ndarray], places: Collection[int]) -> dict[int, np.ndarray]:
    """Constants at these places, made of other weights, whose numbers are those of the table. Raises TreadleError."""
    from ....named_weights import remade

    return remade(table, arrays, places)


def evaluator(definition: PrimitiveDefinition) -> Evaluate:
    """What computes a primitive without a kernel. Raises InferenceError for a malformed definition."""
    return reference(definition)


def _lowered(missing: Mapping[str, _Wanted], target: Target, until: float) -> dict[str, Kernel]:
    """The kernels of those definitions that have one; of the others this is stored."""
    from ....check import check_definition
    from ..kernels.lower import lower

    kernels: dict[str, Kernel] = {}
    for key, wanted in missing.items():
        if time.monotonic() > until:
            raise _too_late([wanted])
        check_definition(wanted.definition)
        if key in _failed:
            continue
        try:
            kernel = lower(wanted.definition, target)
        except KernelError:  # the user's own can be mended
            raise
        except CompileError as error:
            _fall_back(key, wanted, str(error))
            continue
        if kernel is None:
            library.store_record(key, None)
        else:
            kernels[key] = kernel
    return kernels


def _build(
    missing: Mapping[str, _Wanted],
    kernels: Mapping[str, Kernel],
    target: Target,
    progress: bool,
    jobs: int | None,
    until: float,
) -> dict[str, BuiltKernel | None]:
    """Each kernel is kept as soon as it is done, so that an interrupted build loses little."""
    users: dict[str, list[str]] = {}  # object key → the definitions' keys that share the code
    for key, kernel in kernels.items():
        users.setdefault(_object_key(kernel, target), []).append(key)
    built: dict[str, BuiltKernel | None] = dict.fromkeys(missing)
    texts = {object_key: kernels[keys[0]] for object_key, keys in users.items()}
    try:
        for object_key, code in _compile(texts, target, progress, jobs, until):
            for key in users[object_key]:
                if isinstance(code, CompileError):
                    own.check(missing[key].definition, kernels[key].source, code)
                    _fall_back(key, missing[key], str(code))
                    continue
                kernel = kernels[key]
                built[key] = BuiltKernel(key, object_key, code, kernel.words, kernel.scratch_bytes, kernel.nanoseconds)
                library.store_record(key, built[key])
    except UnfinishedError as error:
        late = [users[text.symbol.removeprefix(_SYMBOL)] for text in error.texts]
        raise _too_late([missing[key] for keys in late for key in keys]) from None
    return built


# The keys of kernels that could not be built, for this process: another one may have more memory
_failed: set[str] = set()
_MOST_FAILED = 4096  # from which on all are tried again


def _fall_back(key: str, wanted: _Wanted, reason: str) -> None:
    """Says once that a primitive is evaluated by the operators' reference implementations."""
    if len(_failed) >= _MOST_FAILED:
        _failed.clear()
    _failed.add(key)
    nodes = wanted.definition.nodes
    what = " ".join(filter(None, (wanted.name, f"({', '.join(node.operator for node in nodes)})")))
    origin = next((f", node {node.origin!r}," for node in nodes if node.origin), "")
    warn_user(
        f"the kernel of the primitive {what}{origin} cannot be built: {' '.join(reason.split())}; its reference implementation "
        "runs in its place, which is right, and slow. Please report this",
        RuntimeWarning,
    )


def _too_late(late: Sequence[_Wanted]) -> BudgetExceededError:
    names = ", ".join(repr(each.name or each.definition.nodes[-1].operator) for each in late[:5])
    more = f" and {len(late) - 5} more" if len(late) > 5 else ""
    message = f"building kernels takes longer than max_build_seconds allows; not done: {names}{more}"
    advice = 'allow more time, or run them by their reference implementation with kernels="cached"'
    return BudgetExceededError(f"{message}; {advice}", budget="build_seconds")


def _object_key(kernel: Kernel, target: Target) -> str:
    """The identity of a kernel's native code: its text, and what makes code of one. Kernels of other sizes may share it."""
    identity = f"{sources.translator_version()} {target.key} {kernel.lanes}\n{kernel.source}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _compile(
    kernels: Mapping[str, Kernel], target: Target, progress: bool, jobs: int | None, until: float = math.inf
) -> Iterator[tuple[str, Result]]:
    """Native code or its error by object key, as available: from the cache, then compiled, with a
    progress bar, and cached at once. Code that another process is compiling is waited for."""
    cache = platform.cache()
    waiting: dict[str, Kernel] = {}
    for key, kernel in kernels.items():
        known = cache.get(key)
        if known is None:
            waiting[key] = kernel
        else:
            yield key, known
    if not waiting:
        return
    with cache.claims() as claims, _progress(len(waiting), progress) as count:
        for key, code in _compile_or_await(waiting, claims, target, jobs, until):
            yield key, code
            count()


def _compile_or_await(
    waiting: Mapping[str, Kernel], claims: Claims, target: Target, jobs: int | None, until: float
) -> Iterator[tuple[str, Result]]:
    """Compiles what no other process compiles, then takes what others have made, and compiles what they have not."""
    mine = [key for key in waiting if claims.take(key)]
    yield from _compile_claimed(waiting, mine, claims, target, jobs, until)
    left = []
    for key in waiting.keys() - set(mine):
        known = claims.await_other(key, until)
        if known is None:
            left.append(key)
        else:
            yield key, known
    yield from _compile_claimed(waiting, left, claims, target, jobs, until)


def _compile_claimed(
    kernels: Mapping[str, Kernel], keys: Sequence[str], claims: Claims, target: Target, jobs: int | None, until: float
) -> Iterator[tuple[str, Result]]:
    if not keys:
        return
    texts = [Text(f"{_SYMBOL}{key}", kernels[key].source, kernels[key].lanes) for key in keys]
    for text, code in compile_texts(texts, target.native, jobs, until):
        key = text.symbol.removeprefix(_SYMBOL)
        if isinstance(code, bytes):
            platform.cache().put(key, code)
        claims.release(key)
        yield key, code


_SILENCE = 1.0  # seconds before the bar is shown


@contextlib.contextmanager
def _progress(total: int, is_wanted: bool) -> Iterator[Callable[[], None]]:
    """What is to be called for each kernel: a bar on a terminal, elsewhere lines about what takes long."""
    from tqdm import tqdm

    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    done = 0

    def text() -> str:
        cache = platform.cache()
        kept = f", which are kept in {cache.folder}" if cache.folder is not None and not cache.problem() else ""
        return "" if is_terminal and done else f"compiling {total} kernels{kept}: {done} done"

    with (
        bounds.telling(is_wanted) as teller,
        tqdm(
            total=total,
            desc="compiling kernels",
            unit="",
            delay=_SILENCE,
            leave=False,
            disable=not (is_wanted and is_terminal),
        ) as bar,
    ):

        def count() -> None:
            nonlocal done
            done += 1
            bar.update()

        teller.begin(text)
        yield count
