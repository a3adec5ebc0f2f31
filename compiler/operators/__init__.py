"""The operators: `TABLE` holds an entry for each, by name; the modules here define them by family. Those of targets
follow when one is asked for."""

from . import (  # noqa: F401  (they register entries)
    attention,
    col2im,
    coupling,
    creation,
    detection,
    elementwise,
    images,
    indexing,
    linear,
    linear_attention,
    lookups,
    movement,
    normalization,
    paged,
    pooling,
    quantized,
    random,
    recurrent,
    reduction,
    resize,
    texts,
    trees,
)
from .table import TABLE, Attribute, Fusion, Kind, Operator, complete, lookup

__all__ = ["TABLE", "Attribute", "Fusion", "Kind", "Operator", "complete", "lookup"]
