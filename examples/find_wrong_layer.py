"""Finds a wrong weight, and the first NaN, in a network of forty layers: each by one call."""

from __future__ import annotations

import numpy as np
import treadle
from treadle import Module, debug, function, named, op, var

LAYERS, WIDTH, WRONG = 40, 16, 23


def network(*, wrong: bool = False, nan: bool = False) -> treadle.Executable:
    """Layers of a product, a bias and a tanh, with names; in one of them an element, or the function, is wrong."""
    random = np.random.default_rng(0)
    x = var("x", ("n", WIDTH))
    value = x
    for number in range(LAYERS):
        weight = random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 4
        if wrong and number == WRONG:
            weight[2, 5] += 0.5
        product = named(f"layer{number}.product", value @ weight)
        value = named(f"layer{number}", op.log(product) if nan and number == WRONG else op.tanh(product))
    return treadle.compile(Module(main=function([x], value)), progress=False)


def main() -> None:
    feeds = [np.random.default_rng(1).standard_normal((4, WIDTH)).astype(np.float32)]
    report = debug.compare(network(wrong=True), feeds, against=network())
    assert report.first is not None
    print(f"of {len(report.rows)} tensors the first that differs is made at {report.first.node!r}")
    found = debug.first_nonfinite(network(nan=True), feeds, infinities=False)
    assert found is not None
    print(f"the first NaN: {found}")


if __name__ == "__main__":
    main()
