"""Programs that are more than a graph of layers: recursion over a tree, closures, loops, and sizes that only a call knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import treadle
from treadle import (
    DType,
    Module,
    TensorType,
    data_type,
    for_loop,
    function,
    global_function,
    if_,
    match_,
    op,
    tuple_,
    var,
    while_loop,
)

NUMBER = TensorType(DType.of("float32"))
Tree = data_type("Tree = Leaf | Node(Tree, float32[], Tree)")


def sum_of_tree() -> Any:
    """fn(Tree) -> float32[]: what the nodes hold, added up by a function that calls itself."""
    tree, total = var("tree", Tree()), global_function("sum_of_tree")
    clauses = {Tree.Leaf: np.float32(0), Tree.Node: lambda left, value, right: total(left) + value + total(right)}
    return function([tree], match_(tree, clauses), result_type=NUMBER)


def applied_twice() -> Any:
    """fn(float32[n], float32[]) -> float32[n]: a closure, which knows k, called twice."""
    x, y, k = var("x", ("n",)), var("y", ("n",)), var("k")
    scaled = function([y], y * k)
    return function([x, k], scaled(scaled(x)))


def square_root() -> Any:
    """fn(float32[]) -> (float32[], int64[]): Newton's method, as often as it takes, and how often that was."""
    x = var("x")

    def is_far(root: Any, steps: Any) -> Any:
        return op.logical_and(abs(root * root - x) > 1e-5 * x, steps < 50)

    root, steps = while_loop(is_far, lambda root, steps: ((root + x / root) / 2, steps + 1), [x, np.int64(0)])
    return function([x], tuple_(root, steps))


def power() -> Any:
    """fn(float32[n, n], int64[]) -> float32[n, n]: a matrix multiplied with itself, `exponent` times."""
    matrix, exponent = var("matrix", ("n", "n")), var("exponent", (), "int64")
    (result,) = for_loop(exponent - 1, lambda _, product: product @ matrix, [matrix])
    return function([matrix, exponent], if_(exponent > 0, result, matrix * 0))


def main() -> None:
    names = {"sum_of_tree": sum_of_tree(), "twice": applied_twice(), "square_root": square_root(), "power": power()}
    machine = treadle.VirtualMachine(treadle.compile(Module(names), entry=list(names), progress=False))
    leaf = Tree.Leaf()
    tree: Any = leaf
    for value in range(1, 101):
        tree = Tree.Node(leaf, float(value), tree)
    total = machine["sum_of_tree"](tree).item()
    print(f"the tree holds {total}")
    assert total == 5050
    print("twice:", machine["twice"](np.array([1, 2, 3], np.float32), np.float32(10)).tolist())
    root, steps = machine["square_root"](np.float32(2))
    print(f"the root of 2 is {root.item():.5f}, after {steps.item()} steps")
    print("Fibonacci:", machine["power"](np.array([[1, 1], [1, 0]], np.float32), np.int64(10)).tolist())


if __name__ == "__main__":
    main()
