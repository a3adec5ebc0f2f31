"""Faults planted in templates' texts are found where they happen, whatever their results would have been."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from treadle.compiler.targets.cpu.kernels.kernel import Kernel
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.emulated import call
from treadle.compiler.targets.emulated.memory import KernelFaultError

from ....golden import TARGETS
from ..examples import Example
from ..harness import random_array
from .test_contract import DEFINITIONS
from .test_interpreted import ONE_OF_EACH, example_of, interpreted

TARGET = TARGETS["avx512"]  # texts are interpreted: they may be for any CPU, and are the same on all
BEYOND = r"(reads|writes|gathers) \d+ bytes at byte -?\d+ of"
RACE = "a race: it (reads|writes) byte"
SEEDS = 60  # of random mutations, of which two thirds fit their texts
NOBODY = "made of memory that nobody wrote|which nobody wrote"

# title: definition, what stands in its text, what is put there in its place, what is found
FAULTS: dict[str, tuple[str, str, str, str]] = {
    "a tail read whole": ("chain", r"(v1 = vload_float32\(p1, whole \* 4), rest", r"\1", BEYOND),
    "a tail written whole": ("layer_normalization", r"(vstore\(p1(_r0)?, (whole|i) \* 4, v3(_r0)?), rest", r"\1", BEYOND),
    "a tail of one lane too many": ("pad", r"rest = n1 - whole", "rest = n1 - whole + 2", BEYOND),
    "a row too many": ("max_pool", r"(a = source \+ \()plane", r"\1(plane + 1)", BEYOND),
    "an element too many": ("permute_dims 0", r"range\(whole, end\)", "range(whole, end + 1)", BEYOND),
    "an element too early": ("max_pool", r"n1 \+ y \+ i", "n1 + y + i - 1", BEYOND),
    "a wrong stride": ("matmul", r"x_row = a_row", "x_row = 2 * a_row", BEYOND),
    "a stride of elements for bytes": ("sum of columns", r"(p0 = t0 \+ .*) \* 4", r"\1 * 16", BEYOND),
    "a tile behind the last": ("permute_dims", r"to_tile = b \+ column", "to_tile = b + (column + 64)", BEYOND),
    "a gather of wrong places": ("argmax 0", r"vgather_float32\(a \+ i", "vgather_float32(a + (i + 1)", "gathers 4 bytes"),
    "more scratch memory than it has": ("max_pool", r"vstore\(scratch, i \* 4, total\)", "vstore(scratch, i * 4 + 65536, total)",
                                        "bytes at byte .* of scratch memory"),
    "a result written to an input": ("softmax", r"t1 = word\(args, 2\)", "t1 = word(args, 1)", "cannot be written"),
    "a vector at an odd byte": ("sum of rows", r"t0 = word\(args, 1\)", "t0 = word(args, 1) + 2", "not at a multiple of 4"),
    "parts that overlap": ("softmax", r"(first = )(\w+)( \* part // parts)", r"\1max(0, \2\3 - 1)", RACE),
    "parts that all do everything": ("pad", r"last = rows \* \(part \+ 1\) // parts", "last = rows", RACE),
    "a part that reads another's result": ("chain", r"v0 = vload_float32\(p0.*", "v0 = vload_float32(t2, 0, 1)", RACE),
    "scratch memory that nobody wrote": ("max_pool", r"vstore\(scratch, i \* 4, (total|identity)\)", "one = 1", NOBODY),
    "a heap that nobody filled": ("top_k 0", r"store_int64\(scratch, hole \* 8, key\)", "one = 1", NOBODY),
    "rows that nobody wrote": ("chain", r"rows = n1", "rows = n1 - 1", "never written"),
    "a tail that nobody wrote": ("chain", r"if whole < count", "if whole < count - 6", "never written"),
    "a loop that does not end": ("concat 0", r"unit \+= count", "unit += 0", "does one not end"),
    "a name that kernels do not have": ("chain", r"sigmoid\(v2\)", "sigmoidal(v2)", "'sigmoidal' is not defined"),
    "a variable without a value": ("chain", r"\n +row = first - block \* rows", "", "before it is assigned"),
}  # fmt: skip


def example_named(name: str) -> Example:
    if name in ONE_OF_EACH:
        return example_of(name)
    definition = DEFINITIONS[name]
    return Example(name, definition, {}, [random_array(param, seed) for seed, param in enumerate(definition.params)])


def planted(name: str, pattern: str, other: str) -> Kernel:
    kernel = lower(example_named(name).definition, TARGET)
    assert kernel is not None
    source, count = re.subn(pattern, other, kernel.source)
    assert count, f"the text of {name} has no {pattern}"
    return replace(kernel, source=source)


def found(name: str, kernel: Kernel, parts_of: tuple[int, ...] = (1, 3)) -> KernelFaultError:
    """The findings for an example's kernel run in a number of parts."""
    for parts in parts_of:
        try:
            interpreted(example_named(name), kernel, parts=parts)
        except KernelFaultError as error:
            return error
    pytest.fail("nothing is found")


@pytest.mark.parametrize("title", FAULTS)
def test_a_planted_fault_is_found_and_its_line_named(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MAX_ROUNDS", 1 << 12)
    name, pattern, other, wanted = FAULTS[title]
    kernel = planted(name, pattern, other)
    error = found(name, kernel, (3,) if wanted == RACE else (1, 3))
    assert re.search(wanted, error.reason), error
    assert error.kernel == kernel.description
    if wanted == "never written":  # no line does it
        assert "output 0" in error.reason
    else:
        lines = kernel.source.splitlines()
        assert error.text == lines[error.line - 1].strip()
        assert f"line {error.line}" in str(error)
        assert error.text in str(error)


# What is a fault in every text that has it. `{output}` and `{input}` are words of the arguments
MUTATIONS = {
    "a unit more": (r"(last = )(.+)( \* \(part \+ 1\) // parts)", r"\1min(\2, \2\3 + 1)"),
    "a unit less": (r"(last = )(.+ \* \(part \+ 1\) // parts)", r"\1max(first, \2 - 1)"),
    "results a vector later": (r"word\(args, {output}\)", r"(word(args, {output}) + 64)"),
    "operands an element earlier": (r"word\(args, {input}\)", r"(word(args, {input}) - 8)"),
    "scratch memory a line earlier": (r"(store\w*\(scratch)\b", r"\1 - 64"),
}
# Operators whose examples leave out elements of their operands, or have no results
SPARSE = ("slice", "roi_align", "count_text_ngrams", "gather_nd", "take")


def mutated(seed: int) -> tuple[str, str, Kernel] | None:
    """A template and a mutation, drawn at random; None if its text has nothing to be changed so."""
    draw = random.Random(seed)
    name, title = (
        draw.choice([each for each in sorted(ONE_OF_EACH) if not each.startswith(SPARSE)]),
        draw.choice(sorted(MUTATIONS)),
    )
    kernel = lower(ONE_OF_EACH[name], TARGET)
    if kernel is None:
        return None
    words = {"output": 1 + len(ONE_OF_EACH[name].params), "input": 1}
    pattern, other = (text.format(**words) for text in MUTATIONS[title])
    source, count = re.subn(pattern, other, kernel.source)
    return (name, title, replace(kernel, source=source)) if count else None


@pytest.mark.parametrize("seed", [seed for seed in range(SEEDS) if mutated(seed)])
def test_a_fault_that_is_planted_at_random_is_found(seed: int) -> None:
    case = mutated(seed)
    assert case is not None
    name, title, kernel = case
    error = found(name, kernel, (3,))
    assert error.line or "never written" in error.reason, f"{title} in {name}: {error}"
