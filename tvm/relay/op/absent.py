"""TVM's operators that are not here, and why; `docs/tvm.md` has the same list."""

from __future__ import annotations

_PACKED = "TVM's passes put it in the place of {}, whose weights Treadle's passes pack and transform themselves"
_FEW_BITS = "products of narrow integers are imported as ONNX's quantized operators"
_GRADIENT = "programs are run, not trained: there are no gradients"
_PASSES = "Treadle's passes make storage, shapes and calls themselves"
_TABLE = "Treadle's operators are rows of a table (relay.op.TABLE); relay.op.table.operator adds one"

NN = {
    "avg_pool2d_grad": _GRADIENT,
    "bitpack": _FEW_BITS,
    "bitserial_conv2d": _FEW_BITS,
    "bitserial_dense": _FEW_BITS,
    "contrib_conv2d_gemm_weight_transform": _PACKED.format("conv2d"),
    "contrib_conv2d_gemm_without_weight_transform": _PACKED.format("conv2d"),
    "contrib_conv2d_nchwc": _PACKED.format("conv2d"),
    "contrib_conv2d_winograd_nnpack_weight_transform": _PACKED.format("conv2d"),
    "contrib_conv2d_winograd_weight_transform": _PACKED.format("conv2d"),
    "contrib_conv2d_winograd_without_weight_transform": _PACKED.format("conv2d"),
    "contrib_conv3d_winograd_weight_transform": _PACKED.format("conv3d"),
    "contrib_conv3d_winograd_without_weight_transform": _PACKED.format("conv3d"),
    "contrib_dense_pack": _PACKED.format("dense"),
    "contrib_depthwise_conv2d_nchwc": _PACKED.format("conv2d"),
    "conv2d_backward_weight": _GRADIENT,
    "max_pool2d_grad": _GRADIENT,
}
_DECORATORS = """
    OpImplementation OpPattern OpSpecialization OpStrategy register register_broadcast_schedule
    register_compute register_external_compiler
    register_infer_correct_layout register_injective_schedule
    register_optional_fake_quantization_to_integer register_pattern
    register_reduce_schedule register_schedule register_shape_func register_stateful register_strategy strategy
"""
VISION = {
    "proposal": "get_valid_counts, non_max_suppression and multibox_transform_loc are its parts",
    "regular_non_max_suppression": "all_class_non_max_suppression does it class by class",
}
OP = {
    **dict.fromkeys(("dyn", "memory", "vm"), _PASSES),
    **dict.fromkeys(_DECORATORS.split(), _TABLE),
    "debug": "print the values of an executor, or use the debug executor",
}
RELAY = {"copy_shape_func": _PASSES}
