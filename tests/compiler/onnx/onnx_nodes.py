"""Models of one ONNX node, by Treadle's machine and evaluator, and by ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import treadle
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.compiler.targets.cpu.kernels.lower import supports
from treadle.compiler.targets.cpu.target import host


class Node:
    """One node; inputs are declared as ("float32", ("n", 3)), as arrays (initializers), or None (left out)."""

    def __init__(
        self, op: str, *inputs: Any, outputs: int = 1, opset: int = 26, domain: str = "", **attributes: Any
    ) -> None:
        names = ["" if given is None else f"x{place}" for place, given in enumerate(inputs)]
        infos, constants = [], []
        for name, given in zip(names, inputs, strict=True):
            if isinstance(given, np.ndarray):
                constants.append(numpy_helper.from_array(given, name))
            elif given is not None:
                kind, shape = given
                infos.append(
                    helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
                )
        results = [f"y{place}" for place in range(outputs)]
        node = helper.make_node(op, names, results, "the_node", domain=domain, **attributes)
        graph = helper.make_graph(
            [node], "graph", infos, [onnx.ValueInfoProto(name=name) for name in results], constants
        )
        imports = [helper.make_opsetid(domain, opset)] + ([helper.make_opsetid("", 26)] if domain else [])
        self.names = [info.name for info in infos]
        self.model = helper.make_model(graph, opset_imports=imports, ir_version=13)

    @cached_property
    def executable(self) -> treadle.Executable:
        return treadle.compile(self.model, progress=False)

    @cached_property
    def machine(self) -> treadle.VirtualMachine:
        return treadle.VirtualMachine(self.executable)

    def run(self, *arrays: Any) -> list[np.ndarray]:
        """By the machine."""
        return _listed(self.machine["main"](*map(np.asarray, arrays)))

    def evaluated(self, *arrays: Any) -> list[np.ndarray]:
        """By the evaluator, which is made of the operators' references."""
        return _listed(evaluate(from_onnx(self.model), "main", *map(np.asarray, arrays)))

    def expected(self, *arrays: Any) -> list[np.ndarray]:
        """By ONNX."""
        feeds = dict(zip(self.names, map(np.asarray, arrays), strict=True))
        return list(map(np.asarray, ReferenceEvaluator(self.model).run(None, feeds)))

    def check(self, *arrays: Any, expected: Sequence[np.ndarray] | None = None, **tolerances: float) -> None:
        """Machine, evaluator and ONNX give the same."""
        wanted = self.expected(*arrays) if expected is None else expected
        for made in (self.run(*arrays), self.evaluated(*arrays)):
            same(made, wanted, **tolerances)

    @property
    def on_host(self) -> list[str]:
        """The program's primitives that run without a kernel."""
        target = host()
        return [each.name for each in self.executable.program.primitives if not supports(each.definition, target)]


def same(made: Sequence[np.ndarray], wanted: Sequence[np.ndarray], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    for a, b in zip(made, wanted, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol, atol)


def _listed(result: Any) -> list[np.ndarray]:
    return list(map(np.asarray, result if isinstance(result, tuple) else (result,)))
