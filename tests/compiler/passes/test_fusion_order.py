"""Which groups of fused operators would wait for each other: an order of the groups tells, in place of a search of the block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from treadle.compiler.ir.effects import Effects
from treadle.compiler.ir.text import parse_module
from treadle.compiler.passes import Fuse, InferTypes, fuse


def searched(fusion: Any, producer: Any, consumer: Any) -> bool:
    """Whether something between the two needs the one and is needed by the other: all that the consumer needs is looked at."""
    seen: set[Any] = set()
    pending = [fusion.groups[var].find() for var in consumer.inputs]
    while pending:
        group = pending.pop()
        if group is producer or group in seen:
            continue
        seen.add(group)
        needed = [fusion.groups[var].find() for var in group.inputs]
        if producer in needed:
            return True
        pending += needed
    return False


def lines(seed: int, count: int) -> Iterator[str]:
    """Sums and products of values before, sums of rows, and products of matrices, which stay apart."""
    rng = np.random.default_rng(seed)
    for place in range(count):
        near = max(0, place - 12) if rng.random() < 0.7 else 0
        a, b = (f"v{number}" if number else "x" for number in rng.integers(near, place + 1, 2))
        operator = rng.choice(["add", "multiply", "tanh", "matmul", "sum"], p=[0.3, 0.2, 0.2, 0.15, 0.15])
        if operator == "sum":
            yield f"s{place} = sum({a}) {{axes=(1,), keepdims=true}}\nv{place + 1} = add(s{place}, {b})"
        else:
            yield f"v{place + 1} = {operator}({a})" if operator == "tanh" else f"v{place + 1} = {operator}({a}, {b})"


@pytest.mark.parametrize("seed", range(8))
def test_the_order_tells_what_a_search_of_the_block_tells(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "func @main(x: float32[4, 4]) {\n" + "\n".join(lines(seed, 120)) + "\nr = (v120, v60, v90)\nr\n}"
    module = InferTypes()(parse_module(text))
    answers = []
    by_order = fuse._BlockFusion._needed_between

    def compared(fusion: Any, producer: Any, consumer: Any) -> Any:
        found = by_order(fusion, producer, consumer)
        answers.append(found is None)
        assert answers[-1] == searched(fusion, producer, consumer)
        for group in {each.find() for each in fusion.groups.values()}:
            assert all(fusion.groups[var].find().place < group.place for var in group.inputs)
        return found

    monkeypatch.setattr(fuse._BlockFusion, "_needed_between", compared)
    monkeypatch.setattr(fuse._Order, "_ROOM", 1 << 6)  # places are spread anew now and then
    Fuse()(module)
    assert answers.count(False) > 5


def test_a_chain_and_its_way_back_take_time_that_grows_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: the groups that are looked at. Four times as many layers took eleven times as many before."""

    def looked_at(layers: int) -> int:
        forth = [f"v{k + 1} = tanh({f'v{k}' if k else 'x'})" for k in range(layers)]
        back = [
            f"q{k} = multiply(v{k}, v{k})\nd{k} = subtract(float32(1.0), q{k})\n"
            f"g{k} = multiply({f'g{k + 1}' if k < layers else f'v{layers}'}, d{k})"
            for k in range(layers, 0, -1)
        ]
        text = "func @main(x: float32[4, 4]) {\n" + "\n".join([*forth, *back]) + "\ng1\n}"
        module = InferTypes()(parse_module(text))
        count = 0
        find = fuse._Group.find

        def counted(group: Any) -> Any:
            nonlocal count
            count += 1
            return find(group)

        monkeypatch.setattr(fuse._Group, "find", counted)
        fuse._BlockFusion(module.functions["main"].body, module, Fuse(), Effects(module)).run()
        monkeypatch.setattr(fuse._Group, "find", find)
        return count

    assert looked_at(800) < 5 * looked_at(200)
