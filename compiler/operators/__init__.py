"""The operators: `TABLE` holds an entry for each, by name; the modules here define them by family."""

from . import (  # noqa: F401  (they register entries)
    attention,
    blocked,
    col2im,
    coupling,
    creation,
    dequantized,
    detection,
    elementwise,
    images,
    indexing,
    linear,
    movement,
    normalization,
    packing,
    pooling,
    quantized,
    random,
    recurrent,
    reduction,
    resize,
    text_counts,
    texts,
    trees,
    winograd,
)
from .table import TABLE, Attribute, Fusion, Kind, Operator, lookup

__all__ = ["TABLE", "Attribute", "Fusion", "Kind", "Operator", "lookup"]
