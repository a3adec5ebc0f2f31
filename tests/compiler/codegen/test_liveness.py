"""Where registers are wanted, which may share a number, and where tensors lie: spans against sets of single positions."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from treadle.compiler.codegen import spans
from treadle.compiler.codegen.liveness import analyse, members
from treadle.compiler.codegen.memory import MemoryReport, _best_gap, _Buffer, _Placed, plan
from treadle.compiler.codegen.registers import _Numbers, allocate
from treadle.compiler.codegen.virtual import Instruction, Label, Register, VirtualFunction, instruction
from treadle.formats.dtypes import DType
from treadle.formats.isa import Kind
from treadle.formats.primitive import PrimitiveDefinition, PrimitiveNode
from treadle.formats.types import TensorType
from treadle.tests import timing

NUMBERS = st.frozensets(st.integers(0, 20))


def spans_of(numbers: frozenset[int]) -> spans.Spans:
    """The definition: a border is where membership changes."""
    return tuple(number for number in range(22) if (number in numbers) != (number - 1 in numbers))


@given(NUMBERS, NUMBERS, st.integers(0, 21))
def test_spans_are_sets(left: frozenset[int], right: frozenset[int], number: int) -> None:
    a, b = spans_of(left), spans_of(right)
    assert spans.union(a, b) == spans_of(left | right)
    assert spans.intersection(a, b) == spans_of(left & right)
    assert spans.meet(a, b) == bool(left & right)
    assert spans.contains(a, number) == (number in left)
    assert {each for start, end in spans.runs(a) for each in range(start, end)} == left


def random_function(seed: int) -> VirtualFunction:
    """Moves, jumps forwards and backwards, and tests of registers, in no order that a compiler would make."""
    rng = np.random.default_rng(seed)
    function = VirtualFunction("f", ())
    function.params = tuple(function.new_register(Kind.REF) for _ in range(2))
    registers = [*function.params, *(function.new_register(Kind.REF) for _ in range(int(rng.integers(1, 8))))]
    labels = [Label() for _ in range(int(rng.integers(0, 4)))]

    def register() -> object:
        return registers[int(rng.integers(len(registers)))]

    for _ in range(int(rng.integers(3, 25))):
        kind = int(rng.integers(0, 8)) if labels else 0
        if kind < 4:
            function.items.append(instruction("move", register(), register()))
        elif kind < 5:
            function.items.append(instruction("alloc_data", register(), 0, 0, (register(), register())))
        elif kind < 7:
            function.items.append(instruction("if", register(), labels[int(rng.integers(len(labels)))]))
        else:
            function.items.append(instruction("goto", labels[int(rng.integers(len(labels)))]))
    for label in labels:
        function.items.insert(int(rng.integers(len(function.items))), label)
    function.items.append(instruction("ret", register()))
    return function


def wanted_before(function: VirtualFunction) -> list[set[int]]:
    """The equations of liveness, solved as they stand."""
    items = function.items
    before: list[set[int]] = [set() for _ in items]
    for _ in range(len(items) + 1):
        for position, item in enumerate(items):
            after = wanted_behind(function, before, position)
            if isinstance(item, Instruction):
                after -= {register.serial for register in item.writes()}
                after |= {register.serial for register in item.reads()}
            before[position] = after
    return before


def wanted_behind(function: VirtualFunction, before: list[set[int]], position: int) -> set[int]:
    item = function.items[position]
    if isinstance(item, Label):
        return set(before[position + 1])
    followers = [] if item.operation.ends_block else [position + 1]
    followers += [function.items.index(target) for target in item.targets()]
    return {serial for follower in followers for serial in before[follower]}


@pytest.mark.parametrize("seed", range(60))
def test_liveness_of_any_code_solves_its_equations(seed: int) -> None:
    function = random_function(seed)
    before, found = wanted_before(function), analyse(function)
    busy = [each | wanted_behind(function, before, position) for position, each in enumerate(before)]
    busy[0] |= {param.serial for param in function.params}
    for position, item in enumerate(function.items):
        assert {r.serial for r in function.registers if found.is_wanted(r, position)} == before[position]
        if isinstance(item, Instruction):
            busy[position] |= {register.serial for register in item.writes()}
        if isinstance(item, Label) or any(item.targets()):
            assert {register.serial for register in members(found.before[item], found.crossing)} == before[position]
    for register in function.registers:
        in_use = {position for position, serials in enumerate(busy) if register.serial in serials}
        assert found.positions[register.serial] == spans_over(in_use)


def spans_over(numbers: set[int]) -> spans.Spans:
    return tuple(n for n in range(max(numbers, default=0) + 2) if (n in numbers) != (n - 1 in numbers))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_read_is_what_was_written_whatever_shares_a_number(seed: int) -> None:
    function = random_function(seed)
    numbers = allocate(function, analyse(function)).numbers
    assert [numbers[param] for param in function.params] == [0, 1]
    rng = np.random.default_rng(seed)
    written: dict[Register, int] = {param: index for index, param in enumerate(function.params)}
    held = {numbers[param]: value for param, value in written.items()}
    position = 0
    for step in range(2, 200):
        item = function.items[position]
        position += 1
        if isinstance(item, Label):
            continue
        for register in item.reads():
            if register in written:  # random code reads registers too that nothing was written to
                assert held[numbers[register]] == written[register]
        source = next(item.reads(), None)
        for register in item.writes():
            if item.name != "move":
                written[register] = held[numbers[register]] = step
            elif source in written:
                written[register] = held[numbers[register]] = written[source]
            else:
                written.pop(register, None)
        if item.name == "ret":
            return
        if item.name == "goto" or (item.name == "if" and rng.integers(2)):
            position = function.items.index(next(item.targets()))


@given(st.lists(st.tuples(NUMBERS.filter(bool), st.integers(1, 5)), min_size=1, max_size=12))
def test_rivals_for_memory_are_all_that_live_at_the_same_time(lives: list[tuple[frozenset[int], int]]) -> None:
    placed, earlier = _Placed(21), []
    for lifetime, size in lives:
        register = Register(Kind.REF, 0, TensorType(DType.uint8, (64 * size,)))
        buffer = _Buffer(min(lifetime), register, lifetime=spans_of(lifetime))
        rivals = sorted(place for place, lived in earlier if lived & lifetime)
        assert placed.rivals(buffer) == rivals
        buffer.offset = _best_gap(rivals, buffer.size)
        placed.add(buffer)
        earlier.append(((buffer.offset, len(earlier), buffer.offset + buffer.size), lifetime))


@given(st.lists(NUMBERS, max_size=4), st.lists(NUMBERS.filter(bool), max_size=12))
# number 0 is used in a gap, waits in what is left of that, then is free
@example([frozenset({0, 8, 9})], [frozenset(each) for each in ({3}, {5, 8}, {12, 13}, {12, 14}, {12, 15})])
def test_each_takes_the_lowest_number_that_nobody_has_meanwhile(
    fixed: list[frozenset[int]], others: list[frozenset[int]]
) -> None:
    taken = [numbers | {0} for numbers in fixed]
    numbers = _Numbers([spans_of(each) for each in taken])
    for wanted in sorted(others, key=min):
        lowest = next((n for n, held in enumerate(taken) if not held & wanted), len(taken))
        assert numbers.take(spans_of(wanted)) == lowest
        taken[lowest:] = [taken[lowest] | wanted, *taken[lowest + 1 :]] if lowest < len(taken) else [wanted]
    assert len(numbers) == len(taken)


TENSOR = TensorType(DType.float32, (4,))


class Code:
    """A function as it grows: parameters, and sums of two tensors."""

    def __init__(self, params: int) -> None:
        self.function = VirtualFunction("f", ())
        self.params = self.function.params = tuple(self.register() for _ in range(params))

    def register(self) -> Register:
        return self.function.new_register(Kind.REF, TENSOR)

    def emit(self, name: str, *operands: object) -> None:
        self.function.items.append(instruction(name, *operands))

    def sum(self, x: Register, y: Register) -> Register:
        made = self.register()
        self.emit("alloc_tensor", made, 0)
        self.emit("call", 0, (x, y), (made,), ())
        return made


def straight(count: int) -> VirtualFunction:
    """A chain of primitives, each of which reads what the one before it made: a parameter, too, that waits for its turn."""
    code = Code(count + 1)
    value = code.params[0]
    for param in code.params[1:]:
        value = code.sum(value, param)
    code.emit("ret", value)
    return code.function


def branches(count: int) -> VirtualFunction:
    """Results of branches that all wait for the end."""
    code = Code(2)
    x, condition = code.params
    results = []
    for _ in range(count):
        result, other, end = code.register(), Label(), Label()
        code.emit("if", condition, other)
        code.emit("move", result, code.sum(x, x))
        code.emit("goto", end)
        code.function.items.append(other)
        code.emit("move", result, code.sum(x, x))
        code.function.items.append(end)
        results.append(result)
    value = x
    for result in results:
        value = code.sum(value, result)
    code.emit("ret", value)
    return code.function


def loops(count: int) -> VirtualFunction:
    """A chain of loops: what each gives may have been made by any before it."""
    code = Code(2)
    x, condition = code.params
    value = code.sum(x, x)
    for _ in range(count):
        state, top, end = code.register(), Label(), Label()
        code.emit("move", state, value)
        code.function.items.append(top)
        code.emit("if", condition, end)
        code.emit("move", state, code.sum(state, x))
        code.emit("goto", top)
        code.function.items.append(end)
        value = state
    code.emit("ret", value)
    return code.function


def planned(function: VirtualFunction) -> MemoryReport:
    definition = PrimitiveDefinition((TENSOR, TENSOR), (PrimitiveNode("add", (0, 1), (TENSOR,)),), (2,))
    report = plan(function, lambda index: definition)
    allocate(function, analyse(function))
    return report


def test_a_chain_of_sums_is_made_in_place() -> None:
    assert planned(straight(20)).in_place == 20 - 2  # all but the first, and the last, which is returned


Make = Callable[[int], VirtualFunction]


def bytes_at_once(make: Make, count: int) -> int:
    function = make(count)
    gc.collect()
    gc.disable()  # it would collect now and then
    tracemalloc.start()
    try:
        planned(function)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()


def calls(make: Make, count: int) -> int:
    function = make(count)
    return timing.calls(lambda: planned(function))


@pytest.mark.parametrize(
    ("measure", "make", "count"),
    [
        (bytes_at_once, straight, 500),
        (bytes_at_once, branches, 200),
        (calls, straight, 100),
        (calls, branches, 50),
        (calls, loops, 200),
    ],
)
def test_planning_grows_with_the_code_and_no_faster(
    measure: Callable[[Make, int], int], make: Make, count: int
) -> None:
    planned(make(count))  # what is made at first use
    assert measure(make, 2 * count) < 2.3 * measure(make, count)
