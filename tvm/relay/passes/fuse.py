"""FuseOps: groups of operators as primitive functions, by post-dominators and patterns (`graph_partitioner.cc`, `fuse_ops.cc`).

It says what TVM would fuse. Treadle's own fusion sees the program after Relay, and through these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...transform import ModulePass, PassContext, PassInfo
from .. import ty
from ..expr import Call, Constant, Expr, Function, Op, Tuple, TupleGetItem, Var
from ..module import IRModule
from ..rewrite import rebuilt
from ..visit import children, postorder
from .core import op_of, type_of, typed
from .functions import own_functions

ELEMWISE, BROADCAST, INJECTIVE, REDUCE, OUT_FUSABLE, TUPLE, OPAQUE = 0, 1, 2, 3, 4, 7, 8

_PATTERNS = {
    ELEMWISE: """
        log log2 log10 tan cos cosh sin sinh acos acosh asin asinh atan atanh exp fast_exp erf fast_erf sqrt rsqrt zeros_like
        ones_like sigmoid copy floor ceil trunc round sign abs tanh fast_tanh negative logical_not bitwise_not isnan isfinite
        isinf nn.leaky_relu nn.relu cast cast_like reinterpret full full_like trilu clip fixed_point_multiply zeros ones
        qnn.dequantize qnn.quantize qnn.requantize qnn.simulated_dequantize qnn.simulated_quantize qnn.tanh
    """,
    BROADCAST: """
        add subtract right_shift left_shift maximum minimum divide trunc_divide floor_divide multiply power mod floor_mod
        trunc_mod logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor equal not_equal less less_equal greater
        greater_equal nn.bias_add nn.prelu expand_dims repeat tile where broadcast_to broadcast_to_like
        fixed_point_multiply_per_axis
    """,
    INJECTIVE: """
        image.affine_grid image.grid_sample image.resize1d image.resize2d image.resize3d image.crop_and_resize nn.batch_flatten
        nn.dilate nn.depth_to_space nn.space_to_depth nn.space_to_batch_nd nn.batch_to_space_nd nn.pad nn.mirror_pad nn.upsampling
        nn.upsampling3d concatenate stack transpose reshape reshape_like take meshgrid reverse reverse_sequence squeeze
        strided_slice strided_set split slice_like contrib_reverse_reshape gather gather_nd sequence_mask unravel_index
        matrix_set_diag adv_index ndarray_size one_hot arange layout_transform vision.yolo_reorg qnn.concatenate shape_of
        sparse_to_dense
    """,
    REDUCE: """
        sum all any max min prod mean variance argmax argmin einsum collapse_sum_like collapse_sum_to nn.cross_entropy
        nn.cross_entropy_with_logits nn.nll_loss
    """,
    OUT_FUSABLE: """
        nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose nn.deformable_conv2d
        nn.correlation nn.matmul nn.dense nn.softmax nn.fast_softmax nn.log_softmax nn.batch_norm nn.batch_matmul nn.max_pool1d
        nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.global_avg_pool2d nn.global_max_pool2d
        nn.adaptive_avg_pool1d nn.adaptive_max_pool1d nn.adaptive_avg_pool2d nn.adaptive_max_pool2d nn.adaptive_avg_pool3d
        nn.adaptive_max_pool3d nn.sparse_dense nn.sparse_transpose image.dilation2d vision.roi_align vision.roi_pool
        qnn.batch_matmul
    """,
}
PATTERN_OF = {name: pattern for pattern, names in _PATTERNS.items() for name in names.split()}
_RESHAPES = {"reshape", "expand_dims", "squeeze", "reshape_like", "contrib_reverse_reshape", "nn.batch_flatten"}
_FUSABLE_SCALARS = {"int32", "int64", "float32", "float64", "bool"}
MAX_DEPTH = 256  # operators in one group, TVM's default


class _Node:
    """An expression in the graph: its pattern, its users with the pattern of each edge, and its place in a group."""

    def __init__(self, expr: Expr, index: int, pattern: int) -> None:
        self.expr, self.index, self.pattern = expr, index, pattern
        self.outputs: list[tuple[_Node, int]] = []
        self.is_external = False  # something that is no operator uses it
        self.parent: _Node | None = None  # in the tree of post-dominators
        self.depth, self.edge = 1, OPAQUE  # there, and the pattern of the way to the parent
        self.group: _Node | None = None  # the node that stands for the group, or on the way to it
        self.group_pattern, self.count, self.has_anchor = pattern, 1, pattern == OUT_FUSABLE
        self.root = expr  # of a group: what it gives

    def find(self) -> _Node:
        node = self
        while node.group is not None:
            node = node.group
        return node


def _has_shape(expr: Expr) -> bool:
    return isinstance(type_of(expr), ty.TensorType)


def _graph(root: Function) -> list[_Node]:
    nodes: dict[int, _Node] = {}
    order: list[_Node] = []
    skipped = {
        id(each) for e in postorder(root) if isinstance(e, Function) and "Compiler" in e.attrs for each in postorder(e)
    }
    for expr in postorder(root):
        if id(expr) not in skipped:
            nodes[id(expr)] = _Node(expr, len(order), _pattern(expr))
            order.append(nodes[id(expr)])
    for node in order:
        expr = node.expr
        for child in children(expr):
            if id(child) not in nodes:
                continue
            part, edge = nodes[id(child)], node.pattern
            if isinstance(expr, Call) and isinstance(expr.op, Op):
                mine, other = type_of(expr), type_of(child)
                if edge == BROADCAST and isinstance(mine, ty.TensorType) and isinstance(other, ty.TensorType):
                    edge = ELEMWISE if mine.shape == other.shape else edge
            elif isinstance(expr, (Tuple, TupleGetItem)) and edge != OPAQUE and _joins(expr, child):
                edge = INJECTIVE
            else:
                part.is_external = True
                continue
            part.outputs.append((node, edge))
    nodes[id(root)].is_external = True
    return order


def _joins(expr: Expr, child: Expr) -> bool:
    return isinstance(expr, TupleGetItem) or _has_shape(child)


def _pattern(expr: Expr) -> int:
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        return PATTERN_OF.get(op_of(expr), OPAQUE)
    if isinstance(expr, Tuple):
        return TUPLE
    if isinstance(expr, TupleGetItem):
        type_ = type_of(expr.tuple_value)
        tensors = isinstance(type_, ty.TupleType) and all(isinstance(field, ty.TensorType) for field in type_.fields)
        return INJECTIVE if tensors else OPAQUE
    if isinstance(expr, Constant) and not expr.array.shape and expr.array.dtype.name in _FUSABLE_SCALARS:
        return ELEMWISE
    return OPAQUE


def _post_dominators(order: list[_Node]) -> None:
    for node in reversed(order):
        if node.is_external or not node.outputs:
            continue
        parent: Any = node.outputs[0][0]
        edge = max([ELEMWISE, *(pattern for _, pattern in node.outputs)])
        for user, _ in node.outputs[1:]:
            other: Any = user
            while parent is not other and parent is not None and other is not None:
                if parent.depth >= other.depth:
                    parent, other = other, parent
                edge, other = max(edge, other.edge), other.parent
            parent = parent if parent is other else None
        node.parent, node.edge = parent, edge
        node.depth = parent.depth + 1 if parent is not None else 1


def _between(source: _Node, sink: _Node) -> list[_Node]:
    """The nodes on the ways from one to another, without the latter."""
    found: dict[int, _Node] = {}
    stack = [source]
    while stack:
        node = stack.pop()
        if node is not sink and node.index not in found:
            found[node.index] = node
            stack += [other for other, _ in node.outputs]
    return list(found.values())


def _may_fuse(source: _Node, sink: _Node, allowed: Callable[[int], bool], at_sink: Callable[[int], bool]) -> bool:
    on_the_way = _between(source, sink)[1:] if source is not sink else []
    return all(allowed(node.find().group_pattern) for node in on_the_way) and at_sink(sink.find().group_pattern)


def _fuse(source: _Node, sink: _Node, limit: int) -> None:
    members = _between(source, sink)
    target = sink.find()
    groups = {id(node.find()): node.find() for node in members}
    if sum(group.count for key, group in groups.items() if key != id(target)) + target.count > limit:
        return
    for node in members:
        group = node.find()
        if group is target:
            continue
        group.group = target
        target.count += group.count
        if group.has_anchor:
            target.has_anchor, target.group_pattern = True, max(group.group_pattern, target.group_pattern)


def _partition(order: list[_Node], limit: int) -> None:
    _post_dominators(order)
    for phase in range(3):
        for node in order:
            if node.group_pattern == OPAQUE or node.parent is None:
                continue
            _try(node, node.parent, phase, limit)


def _try(node: _Node, parent: _Node, phase: int, limit: int) -> None:
    kind = node.group_pattern
    up_to_injective = INJECTIVE.__ge__
    if phase == 2:  # injective operators into tuples that injective operators use
        top = parent.find()
        if kind > INJECTIVE or parent.group_pattern != TUPLE or top.group_pattern > INJECTIVE:
            return
        if _may_fuse(node, parent, up_to_injective, up_to_injective):
            _fuse(node, parent, limit)
        return
    if node.find() is parent.find() or parent.group_pattern == TUPLE:
        return
    if kind == OUT_FUSABLE:
        if phase == 0 and node.edge == ELEMWISE and _may_fuse(node, parent, BROADCAST.__ge__, BROADCAST.__ge__):
            _fuse(node, parent, limit)
    elif kind <= BROADCAST:
        if node.edge <= REDUCE and _may_fuse(node, parent, up_to_injective, OUT_FUSABLE.__ge__):
            _fuse(node, parent, limit)
    elif kind in (INJECTIVE, TUPLE) and phase == 1 and _may_fuse(node, parent, up_to_injective, up_to_injective):
        _fuse(node, parent, limit)


class _Fused:
    """The function with its groups as functions."""

    def __init__(self, order: list[_Node], link_params: bool) -> None:
        self.nodes = {id(node.expr): node for node in order}
        self.order, self.link_params = order, link_params
        self.arguments: dict[int, list[tuple[Expr, Var]]] = {}  # of a group

    def made(self) -> dict[int, Expr]:
        made: dict[int, Expr] = {}
        for node in self.order:
            expr = node.expr
            parts = [made.get(id(child), child) for child in children(expr)]
            made[id(expr)] = self._of(node, parts)
        return made

    def _of(self, node: _Node, parts: list[Expr]) -> Expr:
        expr, group = node.expr, node.find()
        is_operator = isinstance(expr, Call) and isinstance(expr.op, Op)
        if op_of(expr) == "annotation.stop_fusion":
            return parts[0]
        if not is_operator and not isinstance(expr, (Tuple, TupleGetItem)):
            return rebuilt(expr, parts)
        is_root = group.root is expr
        if isinstance(expr, Tuple) and is_root:
            return rebuilt(expr, parts)
        if isinstance(expr, TupleGetItem) and is_root and self._group_of(expr.tuple_value) is not group:
            return rebuilt(expr, parts)
        old = children(expr)
        new = rebuilt(expr, [self._argument(group, child, part) for child, part in zip(old, parts, strict=True)])
        new._checked_type = expr._checked_type
        return self._call(group, new) if is_root else new

    def _group_of(self, expr: Expr) -> _Node | None:
        node = self.nodes.get(id(expr))
        return None if node is None else node.find()

    def _argument(self, group: _Node, child: Expr, part: Expr) -> Expr:
        if self._group_of(child) is group or (self.link_params and isinstance(part, Constant)):
            return part
        known = self.arguments.setdefault(id(group), [])
        found = next((variable for value, variable in known if value is part), None)
        if found is None:
            found = Var(f"p{len(known)}", type_of(child))
            known.append((part, found))
        return found

    def _call(self, group: _Node, body: Expr) -> Expr:
        arguments = self.arguments.get(id(group), [])
        inside = [each for each in postorder(body) if isinstance(each, Call)]
        function = Function([variable for _, variable in arguments], body).with_attr("Primitive", int(bool(inside)))
        if inside and all(op_of(each) in _RESHAPES for each in inside):
            function = function.with_attr("relay.reshape_only", 1)
        return Call(function, [value for value, _ in arguments])


def fused(function: Function, level: int, limit: int, link_params: bool) -> Expr:
    """The function with its groups of operators as primitive functions; `level` 0: each operator is a group."""
    order = _graph(function)
    if level > 0:
        _partition(order, limit)
    return _Fused(order, link_params).made()[id(function)]


def FuseOps(fuse_opt_level: int = -1) -> ModulePass:
    """Groups of operators as functions of the attribute `Primitive` (`fuse_ops.cc`)."""

    def run(module: IRModule, context: PassContext) -> IRModule:
        level = context.opt_level if fuse_opt_level == -1 else fuse_opt_level
        limit = int(context.config.get("relay.FuseOps.max_depth", MAX_DEPTH))
        link = bool(context.config.get("relay.FuseOps.link_params", False))
        made = typed(module).shallow_copy()
        for name, function in own_functions(module).items():
            if "Compiler" not in function.attrs and "Primitive" not in function.attrs:
                made._functions[name] = fused(function, level, limit, link)  # type: ignore[assignment]
        return typed(made)

    return ModulePass(PassInfo(0, "FuseOps"), run)
