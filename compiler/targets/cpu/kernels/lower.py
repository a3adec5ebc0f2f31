"""From the definition of a primitive to its kernel: the table of templates, by the operator that anchors the primitive."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Union

from .....formats.dtypes import DType
from .....formats.messages.errors import CompileError, LimitError, TreadleError
from .....formats.primitive import PrimitiveDefinition
from .....formats.types import UNKNOWN, TensorType
from ....codegen.copies import OPERATORS as MOVEMENT
from ..convolutions import (
    blocked,
    col2im,
    depthwise,
    direct,
    im2col,
    integer,
    pooling,
    symbolic,
    to_few,
    winograd,
    winograd_raw,
)
from ..moves import arange, channels, gather, movement, packing, pad, resize, resize_images, scatter
from ..products import digits, few_rows, gemm, product
from ..rows import (
    attention,
    cumulative,
    extreme,
    group,
    linear_attention,
    normalization,
    pages,
    quantization,
    recurrent,
    reduce,
    rotary,
    top_k,
)
from ..target import Target
from . import coupling, elementwise, found, own, regions, suppression, text_counts, trees
from .anchor import anchor_of
from .kernel import Kernel, TooLargeError
from .operands import rewired
from .writer import Unsupported

# Gives a kernel, or a function that writes one if it is certain to exist; None for an unsupported definition.
Template = Callable[[PrimitiveDefinition, Target], Union[Kernel, Callable[[], Kernel], None]]


def _either(special: Template, general: Template) -> Template:
    """A template that tries one, then the other."""
    return lambda definition, target: special(definition, target) or general(definition, target)


TEMPLATES: dict[str, Template] = {
    **dict.fromkeys(reduce.REDUCTIONS, reduce.lower),
    **dict.fromkeys(MOVEMENT, movement.lower),
    "arange": arange.lower,
    "log_sum_exp": reduce.lower_log_sum_exp,
    "max_pool": pooling.lower,
    "average_pool": pooling.lower,
    "pad": pad.lower,
    "resize": _either(resize.lower, resize_images.lower),
    "take": gather.lower_take,
    "take_along_axis": gather.lower_take_along_axis,
    "put_along_axis": scatter.lower_put_along_axis,
    "scatter_nd": scatter.lower_scatter_nd,
    **dict.fromkeys(("cumulative_sum", "cumulative_prod"), cumulative.lower),
    "top_k": top_k.lower,
    "best_boxes": suppression.lower,
    "counted_boxes": found.lower_boxes,
    "counted_nonzero": found.lower_nonzero,
    "roi_align": regions.lower,
    "tree_ensemble": trees.lower,
    "count_text_ngrams": text_counts.lower,
    "coupled_probabilities": coupling.lower,
    "gather_nd": gather.lower_gather_nd,
    "argmax": extreme.lower,
    "argmin": extreme.lower,
    "softmax": normalization.lower_softmax,
    "log_softmax": normalization.lower_log_softmax,
    "layer_normalization": normalization.lower_layer,
    "rms_normalization": normalization.lower_layer,
    "instance_normalization": normalization.lower_instance,
    "group_normalization": normalization.lower_group,
    "group_normalization_blocked": group.lower,
    "local_response_normalization": normalization.lower_local_response,
    "batch_normalization": normalization.lower_batch,
    **dict.fromkeys(gemm.PACKED, _either(few_rows.lower, gemm.lower)),
    "matmul_dequantized": _either(digits.lower, gemm.lower),
    "matmul_transposed": gemm.lower,
    "matmul": _either(gemm.lower, product.lower),
    "attention": attention.lower,
    "paged_attention": pages.lower,
    "linear_attention": linear_attention.lower,
    "rotary": rotary.lower,
    "quantize_rows": quantization.lower,
    "image_ranges": quantization.lower_ranges,
    "image_facts": quantization.lower_facts,
    "quantize_image": quantization.lower_image,
    "pack_channels": packing.lower,
    "unpack_channels": packing.lower,
    "col2im": col2im.lower,
    "join_channels": channels.lower,
    "conv": direct.lower,
    **dict.fromkeys(("conv_blocked", "conv_planar"), _either(blocked.lower, _either(symbolic.lower, im2col.lower))),
    "conv_to_few": to_few.lower,
    **dict.fromkeys(("conv_integer_blocked", "conv_int8_blocked", "conv_bfloat16_blocked"), integer.lower),
    "conv_depthwise": depthwise.lower,
    **dict.fromkeys(("rnn", "gru", "lstm"), recurrent.lower),
    "conv_winograd": winograd.lower,
    "conv_winograd_raw": winograd_raw.lower,
}


# what numbers of a strange definition lead to; the last, where an estimate is of sizes that no float holds
_STRANGE = (Unsupported, TooLargeError, LimitError, OverflowError)


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of a definition, or None if no template takes it: then it must be split, or run as a host operator.

    None, too, for a kernel that would be too large: sizes are untrusted, and templates write loops out.
    """
    with _named(definition), contextlib.suppress(*_STRANGE):
        found = _by_template(definition, target)
        return found() if callable(found) else found
    return None


@contextlib.contextmanager
def _named(definition: PrimitiveDefinition) -> Iterator[None]:
    """Turns unexpected errors of a template into Treadle's: definitions may come from untrusted files."""
    try:
        yield
    except TreadleError:
        raise
    except Exception as error:
        operators = ", ".join(node.operator for node in definition.nodes[:5])
        place = next((node.origin for node in definition.nodes if node.origin), None)
        message = f"the template of a kernel for {operators} failed, which is Treadle's fault: {type(error).__name__}: {error}"
        raise CompileError(message[:1000], node=place) from error


def _by_template(definition: PrimitiveDefinition, target: Target) -> Kernel | Callable[[], Kernel] | None:
    if any(dim is UNKNOWN for type_ in definition.values for dim in type_.shape):
        return None
    seen = rewired(definition)
    if seen is None:
        return None
    anchor = anchor_of(seen)
    if anchor is not None and anchor[0].operator not in MOVEMENT and any(map(_is_tiny, seen.values)):
        return None
    if seen.nodes[-1].operator == "attention":
        return attention.lower(seen, target)  # what joins its operands stands before it
    template = elementwise.lower if anchor is None else TEMPLATES.get(anchor[0].operator, own.lower)
    return template(seen, target)


def _is_tiny(type_: TensorType) -> bool:
    """Whether a type has fewer than 16 bits and is not NumPy's: such tensors are moved and converted, hardly ever more."""
    return not type_.dtype.is_numpys and type_.dtype.itemsize < DType.float16.itemsize


def supports(definition: PrimitiveDefinition, target: Target) -> bool:
    """Whether `lower` gives a kernel, unless its text is too large. No text is written if the template can tell without."""
    with _named(definition), contextlib.suppress(*_STRANGE):
        return _by_template(definition, target) is not None
    return False
