"""Models of onnxruntime's own operators, and what they give there, by the reference evaluator, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import treadle
from onnx import helper, numpy_helper
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.tools.dev.fuzz.random_onnx.judges import exact_session

RUNTIME = "com.microsoft"
Arrays = dict[str, np.ndarray]
_MOST_TOKENS = 7


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def model_of(
    nodes: list, inputs: Arrays, outputs: list[str], constants: Arrays | None = None, known: bool = False
) -> onnx.ModelProto:
    """Inputs are declared like these arrays: by `known` sizes, or small ones, such as counts of tokens, by names, of which each
    but 1 has one."""
    graph = helper.make_graph(
        nodes,
        "runtime",
        [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(array.dtype),
                [size if known or size == 1 or size > _MOST_TOKENS else f"n{size}" for size in array.shape],
            )
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(RUNTIME, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def by_onnxruntime(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray]:
    return exact_session(model.SerializeToString()).run(None, inputs)


def by_reference(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray]:
    return [np.asarray(each) for each in _listed(evaluate(from_onnx(model), "main", *inputs.values()))]


def compiled(model: onnx.ModelProto) -> Callable[[Arrays], list[np.ndarray]]:
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))
    return lambda inputs: [tensor.numpy() for tensor in _listed(machine["main"](*inputs.values()))]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def check(
    operator: str,
    inputs: Arrays,
    outputs: tuple[str, ...] = ("y",),
    *,
    names: list[str] | None = None,
    constants: Arrays | None = None,
    domain: str = RUNTIME,
    tolerance: float = 2e-5,
    symbolic: bool = True,
    **attributes: Any,
) -> list[np.ndarray]:
    """One node, its sizes known, and `symbolic`, gives what onnxruntime gives; so does the reference. `names`: of all inputs, ""
    for those that are left out."""
    names = names or [*inputs, *(constants or {})]
    node = helper.make_node(operator, names, outputs, "the node", domain=domain, **attributes)
    given = [name for name in outputs if name]
    wanted = by_onnxruntime(model_of([node], inputs, given, constants, known=True), inputs)
    for known in (True, False) if symbolic else (True,):
        model = model_of([node], inputs, given, constants, known=known)
        for got in (by_reference(model, inputs), compiled(model)(inputs)):
            assert len(got) == len(wanted)
            for mine, theirs in zip(got, wanted, strict=True):
                assert mine.dtype == theirs.dtype
                np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
    return wanted
