"""Importers of onnxruntime's own operators that ONNX has taken over since, and of some that it has not: torch's exporter and
skl2onnx write them on demand."""

from __future__ import annotations

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..images.sampling import grid_sample
from ..operators import networks
from ..operators.indexing import gather_nd
from ..operators.shapes import arrange, integers_of, pad, trilu
from ..operators.unique import unique
from ..sizes_of_run import numbered
from ..table import importer
from ..values import GraphBuilder, Value
from .floats import DOMAIN, check_ranks

importer("GatherND", domain=DOMAIN)(gather_nd)
importer("GridSample", domain=DOMAIN)(grid_sample)
importer("Pad", domain=DOMAIN)(pad)
importer("Trilu", domain=DOMAIN)(trilu)


@importer("Range", domain=DOMAIN)
def _range(g: GraphBuilder, start: Value, limit: Value, delta: Value | None = None) -> Value:
    return arrange(g, start, limit, g.constant(1, start.dtype) if delta is None else delta)


@importer("ExpandDims", domain=DOMAIN)
def _expand_dims(g: GraphBuilder, x: Value, axis: Value) -> Value:
    return g.op("expand_dims", x, axes=integers_of(axis, "axis"))


@importer("Unique", domain=DOMAIN)
def _unique(g: GraphBuilder, x: Value) -> tuple[Value, ...]:
    """Each element once, in order of first occurrence; the index among them of each element of x; the count of each."""
    check_ranks(1, x=x)
    values, _, inverse, counts = unique(g, x, sorted=0)
    return values, inverse, counts


@importer("MatMulInteger16", domain=DOMAIN)
def _matmul_of_16_bits(g: GraphBuilder, a: Value, b: Value) -> Value:
    return networks.product(g, *(g.op("cast", x, dtype=DType.int32) for x in (a, b)))


@importer("Inverse", domain=DOMAIN)
def _inverse(g: GraphBuilder, x: Value) -> Value:
    """Of each matrix that the last two axes are. A singular one has none: the call says so."""
    if x.rank < 2:
        raise ModelError(f"expected matrices, got {x.type}")
    lines = numbered(g, x.shape[-1])
    is_diagonal = g.op("equal", g.op("expand_dims", lines, axes=(1,)), lines)
    unit = g.op("cast", is_diagonal, dtype=x.dtype)
    return g.op("solve", x, g.op("broadcast_to", unit, shape=(*x.shape[:-1], x.shape[-1])))


_METRICS = ("euclidean", "sqeuclidean")


@importer("CDist", domain=DOMAIN)
def _distances(g: GraphBuilder, a: Value, b: Value, *, metric: str = "sqeuclidean") -> Value:
    """Of each row of a from each row of b, or its square, as a² - 2ab + b², which rounds as the largest of the three does."""
    if metric not in _METRICS:
        raise ModelError(f"metric {metric!r} is none of {', '.join(_METRICS)}")
    check_ranks(2, A=a, B=b)
    squares = [g.op("sum", g.op("multiply", x, x), axes=(1,), keepdims=True) for x in (a, b)]
    both = g.op("add", squares[0], g.op("permute_dims", squares[1], axes=(1, 0)))
    product = networks.product(g, a, g.op("permute_dims", b, axes=(1, 0)))
    found = g.op("subtract", both, g.op("multiply", product, g.constant(2, a.dtype)))
    found = g.op("maximum", found, g.constant(0, a.dtype))
    return g.op("sqrt", found) if metric == "euclidean" else found
