"""What primitives are called in the text of a graph's JSON: as TVM's compiler calls them, by Relay's operators.

People search graphs and reports for `fused_nn_softmax`. The names are labels: a graph may call a primitive by its own name too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...formats.primitive import Primitive, PrimitiveNode

PREFIX, VM_PREFIX = "tvmgen_default_fused_", "vm_mod_fused_"  # in a graph, in a program of the Relay VM
PREFIXES = (PREFIX, VM_PREFIX)
_LONGEST = 12  # operators that a name tells

# an operator → Relay's, where that has another name
_RELAY: Mapping[str, str] = {
    **{name: f"nn_{name}" for name in ("softmax", "log_softmax", "relu", "leaky_relu", "pad", "depth_to_space")},
    **dict.fromkeys(("conv", "conv_depthwise", "conv_integer"), "nn_conv2d"),
    **dict.fromkeys(("conv_blocked", "conv_planar", "conv_to_few"), "nn_contrib_conv2d_NCHWc"),
    **dict.fromkeys(("conv_integer_blocked", "conv_int8_blocked", "conv_bfloat16_blocked"), "nn_contrib_conv2d_NCHWc"),
    **dict.fromkeys(("conv_winograd", "conv_winograd_raw"), "nn_contrib_conv2d_winograd_without_weight_transform"),
    "conv_transpose": "nn_conv2d_transpose",
    **dict.fromkeys(("matmul", "matmul_transposed", "matmul_integer"), "nn_matmul"),
    **dict.fromkeys(
        ("matmul_packed", "matmul_integer_packed", "matmul_bfloat16_packed", "matmul_int8_packed"),
        "nn_contrib_dense_pack",
    ),
    "max_pool": "nn_max_pool2d",
    "average_pool": "nn_avg_pool2d",
    "batch_normalization": "nn_batch_norm",
    "layer_normalization": "nn_layer_norm",
    "permute_dims": "transpose",
    "concat": "concatenate",
    **dict.fromkeys(("pack_channels", "unpack_channels", "join_channels"), "layout_transform"),
}


_PLANAR = frozenset(("conv", "conv_depthwise", "conv_integer", "conv_transpose", "max_pool", "average_pool"))


def _relay_name(node: PrimitiveNode) -> str:
    """Relay's operator; one over other than two axes of space says how many."""
    name, rank = _RELAY.get(node.operator, node.operator), len(node.results[0].shape)
    return name.replace("2d", f"{rank - 2}d") if node.operator in _PLANAR and rank > 2 else name


def graph_names(primitives: Sequence[Primitive]) -> list[str]:
    """A name for each primitive, all different."""
    names: list[str] = []
    taken: set[str] = set()
    for primitive in primitives:
        operators = [_relay_name(node) for node in primitive.definition.nodes if node.operator != "constant"]
        label = PREFIX + "_".join(operators[:_LONGEST])
        name, number = label, 0
        while name in taken:
            number += 1
            name = f"{label}_{number}"
        taken.add(name)
        names.append(name)
    return names


def own_names(primitives: Sequence[Primitive]) -> dict[str, str]:
    """The primitives' own names, by those that they have in the texts of a graph and of a program of the Relay VM."""
    own = [primitive.name for primitive in primitives]
    return {VM_PREFIX + name: name for name in own} | dict(zip(graph_names(primitives), own, strict=True))
