"""`relay.qnn.op`: quantised operators."""

from . import legalizations  # noqa: F401
from .integers import add, batch_matmul, concatenate, conv2d, conv2d_transpose, dense, mul, subtract  # noqa: F401
from .reals import (  # noqa: F401
    abs,
    avg_pool2d,
    erf,
    exp,
    hardswish,
    leaky_relu,
    log,
    rsqrt,
    sigmoid,
    softmax,
    sqrt,
    tanh,
)
from .scales import (  # noqa: F401
    RequantizeConfig,
    current_requantize_config,
    dequantize,
    quantize,
    requantize,
    requantize_config,
    simulated_dequantize,
    simulated_quantize,
)
