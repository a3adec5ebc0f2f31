"""Tuning: measures which variants of the kernels are fastest on this machine.

Variants are those that the templates offer (`kernels/variants.py`). A primitive's kernels take turns on the same data, as they
would find it: constants come from memory where those of the whole program are larger than the last-level cache, other tensors
from the caches. One thread measures. A variant replaces the default only if it was faster again when the two were
compared once more. Results are kept in the cache, primitive by primitive.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....formats.bytecode import function_words, scan
from ....formats.executable import Executable
from ....formats.isa import Kind
from ....formats.primitive import PrimitiveDefinition
from ....formats.program import Program
from ....formats.tuning import SECONDS, parse_variant, print_variant
from ....native import platform
from ....vm import library
from ... import bounds
from .kernels.lower import space
from .target import Target, host
from .timing import GAIN, Memory, Operands, Use, compare, is_possible
from .toolchain.kernels import build

_BATCH = 4  # primitives whose variants are built together
_LEAST_SECONDS = 3e-6  # shorter calls are mostly call overhead


@dataclass
class Outcome:
    """The tuning result of one primitive. Seconds are of one call."""

    name: str
    calls: int
    default: float
    best: float
    variant: str = ""


@dataclass
class Tuned:
    """The tuning results: variants by definition key, empty where the default is best; and the measurements."""

    variants: dict[str, str] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    algorithms: list[Outcome] = field(default_factory=list)  # of convolutions: not those that the cost model chooses
    untried: int = 0  # primitives for which there was no time
    was_interrupted: bool = False

    @property
    def default_seconds(self) -> float:
        """Seconds of all calls of the measured primitives, with the defaults."""
        return sum(each.default * each.calls for each in self.outcomes)

    @property
    def seconds(self) -> float:
        return sum(each.best * each.calls for each in self.outcomes)


@dataclass
class Session:
    """Tuning of one model: its time, and its results."""

    seconds: float = SECONDS
    progress: bool = True
    found: Tuned = field(default_factory=Tuned)

    def __post_init__(self) -> None:
        self.start = time.perf_counter()

    def deadline(self, share: float = 1.0) -> float:
        """When that share of the time is over."""
        return self.start + share * self.seconds


def tune(program: Program, target: Target, session: Session) -> Tuned:
    """Measures the primitives that take the most time first. Ctrl-C ends it early, and keeps what was found."""
    from tqdm import tqdm

    memory = Memory.of(program, target)
    found, deadline = session.found, session.deadline()
    if found.was_interrupted:
        return found
    try:
        work = _by_time(_tunable(program, target), memory, target)
        hidden = None if session.progress else True  # None: hidden where stderr is not a terminal
        with tqdm(total=len(work), desc="tuning", unit=" kernels", leave=False, disable=hidden) as bar:
            for number, use in enumerate(work):
                bounds.check(use.name)
                if time.perf_counter() >= deadline:
                    found.untried = len(work) - number
                    break
                if number % _BATCH == 0:
                    _build_variants(work[number : number + _BATCH], target)
                outcome = _tune_one(use, memory, target, deadline)
                found.outcomes.append(outcome)
                key = library.definition_key(use.definition, target.key)
                platform.cache().put(_choice_key(key), outcome.variant.encode())
                found.variants[key] = outcome.variant
                bar.update()
                bar.set_postfix_str(f"{found.default_seconds * 1e3:.2f} → {found.seconds * 1e3:.2f} ms")
    except KeyboardInterrupt:
        found.was_interrupted = True
    return found


def known(program: Program, target: Target) -> dict[str, str]:
    """The variants that this machine's cache remembers from tuning, by definition key."""
    found = {}
    for primitive in program.primitives:
        key = library.definition_key(primitive.definition, target.key)
        choice = platform.cache().get(_choice_key(key))
        if choice:
            found[key] = choice.decode()
    return found


def _choice_key(definition_key: str) -> str:
    return hashlib.sha256(f"tuned {definition_key}".encode()).hexdigest()


def with_known_variants(executable: Executable, target: Target | None = None) -> Executable:
    """`executable` with the variants of its kernels that this machine remembers from tuning."""

    target = target or host()
    return _with_variants(executable, target, known(executable.program, target))


def tune_kernels(executable: Executable, target: Target | None = None, session: Session | None = None) -> Executable:
    """`executable` with the fastest variants of its kernels, as far as the session's time allows to measure them."""

    target = target or host()
    found = tune(executable.program, target, session or Session())
    return _with_variants(executable, target, found.variants)


def _with_variants(executable: Executable, target: Target, variants: Mapping[str, str]) -> Executable:
    """An empty text for a definition is the default."""
    before = executable.tuning.get(target.key, {})
    all_ = {key: text for key, text in {**before, **variants}.items() if text}
    others = {key: choices for key, choices in executable.tuning.items() if key != target.key}
    return executable.with_tuning(others | ({target.key: all_} if all_ else {}))


# ---- what there is to tune ----


def uses(program: Program) -> list[Use]:
    """The primitives that a program calls."""
    calls: Counter[int] = Counter()
    constant: dict[int, list[bool]] = {}
    for function in program.functions:
        holds_constant: set[int] = set()
        for instruction in scan(function_words(program, function)):
            name = instruction.operation.name
            if name == "load_const":
                holds_constant.add(instruction.word("dst"))
                continue
            if name == "call":
                number = instruction.word("prim")
                calls[number] += 1
                now = [register in holds_constant for register in instruction.list("inputs")]
                before = constant.setdefault(number, now)
                constant[number] = [a and b for a, b in zip(before, now, strict=True)]
            holds_constant.difference_update(instruction.written(Kind.REF))
    primitives = program.primitives
    return [
        Use(primitives[number].name, primitives[number].definition, count, tuple(constant[number]))
        for number, count in calls.items()
    ]


def _tunable(program: Program, target: Target) -> list[Use]:
    """The primitives with decisions to tune; equal definitions once."""
    found: dict[PrimitiveDefinition, Use] = {}
    for use in uses(program):
        if use.definition in found:
            before = found[use.definition]
            found[use.definition] = Use(use.name, use.definition, before.calls + use.calls, before.constants)
        elif use.is_measurable and any(len(texts) > 1 for texts in space(use.definition, target).values()):
            found[use.definition] = use
    return list(found.values())


def _by_time(work: Sequence[Use], memory: Memory, target: Target) -> list[Use]:
    """The primitives that are long enough to be measured, in descending order of time."""
    build([use.definition for use in work], target, progress=False)
    seconds = {}
    for use in work:
        data = Operands(use, memory)
        (kernel,) = data.kernels([""], target)
        seconds[use.name] = min(kernel.seconds(1) for _ in range(3)) if kernel else 0.0
    worth = [use for use in work if seconds[use.name] > _LEAST_SECONDS]
    return sorted(worth, key=lambda use: -seconds[use.name] * use.calls)


def _build_variants(work: Sequence[Use], target: Target) -> None:
    """Builds the kernels that will be measured first: many at once, since starting compilers takes as long as two kernels."""
    wanted = [(use.definition, variant) for use in work for variant in _alone(use.definition, target)]
    build([definition for definition, _ in wanted], target, variants=[variant for _, variant in wanted], progress=False)


# ---- one primitive ----


def _tune_one(use: Use, memory: Memory, target: Target, deadline: float) -> Outcome:
    data = Operands(use, memory)
    default, *others = data.kernels(["", *_alone(use.definition, target)], target)
    assert default is not None
    kernels = {kernel.variant: kernel for kernel in others if kernel is not None}
    ratios = compare(default, list(kernels.values()), deadline)
    candidates = _promising(ratios)
    joined = [kernel for kernel in data.kernels(candidates, target) if kernel is not None]
    finals = compare(default, joined, deadline)
    best = min(finals, key=finals.__getitem__, default="")
    seconds = statistics.median(default.times)
    if best and finals[best] < GAIN:
        return Outcome(use.name, use.calls, seconds, seconds * finals[best], best)
    return Outcome(use.name, use.calls, seconds, seconds)


def _alone(definition: PrimitiveDefinition, target: Target) -> list[str]:
    """The variants that differ from the default in one choice, as far as they are possible: one choice may exclude another."""
    every = [print_variant({name: text}) for name, texts in space(definition, target).items() for text in texts[1:]]
    return [variant for variant in every if is_possible(definition, variant, target)]


def _promising(ratios: Mapping[str, float]) -> list[str]:
    """From the variants with one changed choice: the best, and the combination of the best choices of each kind."""
    best: dict[str, tuple[float, str]] = {}
    for variant, ratio in ratios.items():
        ((name, text),) = parse_variant(variant).items()
        if ratio < best.get(name, (GAIN, ""))[0]:
            best[name] = ratio, text
    if not best:
        return []
    first = min(best, key=lambda name: best[name][0])
    return list(
        dict.fromkeys(
            [print_variant({first: best[first][1]}), print_variant({name: text for name, (_, text) in best.items()})]
        )
    )
