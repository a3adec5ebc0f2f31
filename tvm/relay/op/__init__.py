"""`relay.op`: the operators. One table (`table.py`); each module registers a family."""

from ..._lazy import lazy
from ..expr import const  # noqa: F401  (importers of models take it from here)
from . import algorithm, annotation, contrib, image, nn, random, reduce, references, sparse, tensor, transform, vision  # noqa: F401
from . import table as op  # noqa: F401
from .absent import OP, RELAY
from .algorithm import argsort, searchsorted, sort, topk  # noqa: F401
from .coordinates import sparse_fill_empty_rows, sparse_reshape  # noqa: F401
from .reduce import (  # noqa: F401
    all,
    any,
    argmax,
    argmin,
    logsumexp,
    max,
    mean,
    mean_std,
    mean_variance,
    min,
    prod,
    std,
    sum,
    variance,
)
from .sparse import *  # noqa: F403
from .table import (  # noqa: F401
    TABLE,
    get,
    register_alter_op_layout,
    register_convert_op_layout,
    register_fake_quantization_to_integer,
    register_gradient,
    register_legalize,
    register_mixed_precision_conversion,
    register_op_attr,
)
from .tensor import *  # noqa: F403
from .transform import *  # noqa: F403

# the operators that stand in `relay` itself too
FUNCTIONS = [
    *tensor.__all__,
    *transform.__all__,
    *sparse.__all__,
    *("argsort", "searchsorted", "sort", "sparse_fill_empty_rows", "sparse_reshape", "topk"),
    *("all", "any", "argmax", "argmin", "logsumexp", "max", "mean", "mean_std", "mean_variance", "min", "prod"),
    *("std", "sum", "variance"),
]

__all__ = [
    *FUNCTIONS,
    *("TABLE", "algorithm", "annotation", "get", "image", "nn", "op", "random", "reduce", "tensor", "vision"),
]

__getattr__, __dir__ = lazy(__name__, absent={**OP, **RELAY})
