"""An operator, an importer and a pass of one's own.

The operator gives each row's distance to the nearest of some points. Its reference says what it means; its kernel, a function of
elements, is compiled like Treadle's own. The importer makes it known to ONNX models as `Nearest` of `example.domain`; the pass
takes out divisions by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import treadle
from treadle import op
from treadle.compiler import ir
from treadle.compiler.passes.rewriting import Rewriter

prange = range  # in a kernel: rounds that threads share


def _nearest(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    distances: np.ndarray = np.sqrt(((rows[:, None] - points) ** 2).sum(2))
    return np.asarray(distances.min(1))


def _nearest_kernel(rows, points, out):  # type: ignore[no-untyped-def]
    for row in prange(rows.shape[0]):
        best = np.inf
        for point in range(points.shape[0]):
            total = 0.0
            for k in range(rows.shape[1]):
                difference = float(rows[row, k]) - float(points[point, k])
                total += difference * difference
            best = min(best, total)
        out[row] = np.sqrt(best)


nearest = treadle.operator(
    "nearest",
    infer="fn(float32[n, k], float32[m, k]) -> float32[n]",
    reference=_nearest,
    kernel=_nearest_kernel,
    doc="the distance of each row to the nearest point",
)


@treadle.onnx_operator("Nearest", domain="example.domain")
def _import_nearest(rows, points, *, scale=1.0):  # type: ignore[no-untyped-def]
    return nearest(rows, points) * scale


@dataclass(frozen=True)
class NoDivisionsByOne:
    """x / 1 is x."""

    name: str = "no_divisions_by_one"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Rewrite(module).run()


class _Rewrite(Rewriter):
    def binding(self, binding: ir.Binding) -> tuple[ir.Binding, ...]:
        binding = self.with_new_operands(binding)
        call = binding.value
        if isinstance(call, ir.OperatorCall) and call.operator == "divide":
            x, divisor = call.args
            if isinstance(divisor, ir.Constant) and divisor.value.ndim == 0 and divisor.value == 1:
                self.atoms[binding.var] = x
                return ()
        return (binding,)


def main() -> None:
    rows, points = treadle.var("rows", ("n", 8)), treadle.var("points", ("m", 8))
    module = treadle.Module(main=treadle.function([rows, points], op.exp(-nearest(rows, points)) / 1.0))
    executable = treadle.compile(module, passes=[treadle.after("simplify", NoDivisionsByOne())], progress=False)
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((1000, 8), np.float32), rng.standard_normal((50, 8), np.float32)
    result = treadle.VirtualMachine(executable)["main"](*arrays).numpy()
    np.testing.assert_allclose(result, np.exp(-_nearest(*arrays)), rtol=1e-5)
    print(f"{len(result)} distances, the least exp(-d) {result.min():.4f}")
    print(f"the executable needs: {executable.program.metadata['operator nearest']}")


if __name__ == "__main__":
    main()
