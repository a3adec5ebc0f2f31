"""All modules with importers of operators, which register themselves where they are imported."""

from .images import blocks, detection, max_places, resize, sampling  # noqa: F401
from .ml import encoders, features, linear, trees  # noqa: F401
from .operators import (  # noqa: F401
    elementwise,
    experiments,
    fourier,
    host_values,
    indexing,
    networks,
    quantized,
    random,
    recurrent,
    sequences,
    shapes,
    squeeze,
    texts,
    training,
    unique,
)
from .ort import attention, experts, floats, packed_weights, tensors  # noqa: F401
from .ort import quantized as ort_quantized  # noqa: F401
from .ort import recurrent as ort_recurrent  # noqa: F401
