"""CombineParallel…: calls of one operator on the same data as one call on joined weights (`combine_parallel_op.cc`).

What follows each call, elementwise and alike in all branches, is joined too. At the end the result is cut into the branches'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...transform import Pass, Sequential
from ..expr import Call, Expr, Function, Op, Tuple, TupleGetItem
from ..module import IRModule
from ..visit import postorder
from .core import again, each_function, make, op_of, replaced, shape_of, static_shape, type_of
from .folding import same_attributes
from .fuse import BROADCAST, OPAQUE, PATTERN_OF

Branch = list[Any]  # calls, each an operand of the next


class _Combiner:
    """One operator's rules. `group` are branches that are alike; `at` says which operand of what follows is the branch."""

    op = ""

    def supports(self, call: Any) -> bool:
        return True

    def alike(self, a: Any, b: Any) -> bool:
        raise NotImplementedError

    def joined(self, group: Sequence[Branch]) -> Expr:
        raise NotImplementedError

    def operands_alike(self, a: Any, b: Any, at: int) -> bool:
        return type_of(a.args[at]) == type_of(b.args[at])

    def operand(self, group: Sequence[Branch], depth: int, at: int, parent: int) -> Expr:
        raise NotImplementedError

    def cut(self, data: Expr, group: Sequence[Branch], depth: int) -> list[Expr]:
        raise NotImplementedError

    # ---- what is the same for all ----

    def combine(self, function: Function, least: int) -> Expr:
        values: dict[int, Expr] = {}
        for group in self._groups(function):
            if len(group) >= least:
                data, depth = self._followed(group)
                values.update(
                    (id(branch[depth]), part) for branch, part in zip(group, self.cut(data, group, depth), strict=True)
                )
        return replaced(function, values) if values else function

    def _groups(self, function: Function) -> list[list[Branch]]:
        users: dict[int, list[Any]] = {}
        roots: dict[int, None] = {}
        for call in postorder(function):
            if not isinstance(call, Call):
                continue
            is_own = op_of(call) == self.op and self.supports(call)
            if is_own:
                roots[id(call.args[0])] = None
            for arg in call.args[:1] if is_own else call.args:
                users.setdefault(id(arg), []).append(call)
        groups: list[list[Branch]] = []
        for root in roots:
            own: list[list[Branch]] = []
            for call in users[root]:
                if op_of(call) == self.op and self.supports(call):
                    branch = self._branch(call, users)
                    group = next((each for each in own if self.alike(call, each[0][0])), None)
                    if group is None:
                        own.append([branch])
                    else:
                        group.append(branch)
            groups += own
        return groups

    def _branch(self, call: Any, users: dict[int, list[Any]]) -> Branch:
        branch = [call]
        while len(following := users.get(id(branch[-1]), [])) == 1:
            if PATTERN_OF.get(op_of(following[0]), OPAQUE) > BROADCAST:
                break
            branch.append(following[0])
        return branch

    def _followed(self, group: Sequence[Branch]) -> tuple[Expr, int]:
        """The joined call with what follows joined too, and how far that went."""
        data, depth = self.joined(group), 1
        while depth < min(map(len, group)):
            call, before = group[0][depth], group[0][depth - 1]
            parent = next(place for place, arg in enumerate(call.args) if arg is before)
            if not all(self._level(call, branch, depth, parent) for branch in group[1:]):
                break
            args = [data if at == parent else self.operand(group, depth, at, parent) for at in range(len(call.args))]
            data, depth = again(call, args), depth + 1
        return data, depth - 1

    def _level(self, call: Any, branch: Branch, depth: int, parent: int) -> bool:
        other = branch[depth]
        return (
            op_of(other) == op_of(call)
            and same_attributes(other, call)
            and len(other.args) == len(call.args)
            and other.args[parent] is branch[depth - 1]
            and all(self.operands_alike(call, other, at) for at in range(len(call.args)) if at != parent)
        )


def _sized(data: Expr, starts: Sequence[int], sizes: Sequence[int]) -> Expr:
    return make("strided_slice", data, list(starts), list(sizes), [1] * len(starts), slice_mode="size")


def _dims(expr: Expr) -> tuple[int, ...]:
    shape = static_shape(expr)
    assert shape is not None
    return shape


class _Conv2D(_Combiner):
    op = "nn.conv2d"

    def supports(self, call: Any) -> bool:
        return call.attrs["groups"] == 1 and static_shape(call) is not None and static_shape(call.args[1]) is not None

    def alike(self, a: Any, b: Any) -> bool:
        layout = a.attrs["kernel_layout"]
        names = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_dtype", "out_layout")
        sizes = [[_dims(each.args[1])[layout.index(axis)] for axis in "HW"] for each in (a, b)]
        return all(a.attrs[name] == b.attrs[name] for name in names) and sizes[0] == sizes[1]

    def _place(self, call: Any) -> int:
        return (call.attrs["out_layout"] or call.attrs["data_layout"]).index("C")

    def _channels(self, call: Any) -> int:
        return _dims(call.args[1])[call.attrs["kernel_layout"].index("O")]

    def joined(self, group: Sequence[Branch]) -> Expr:
        call = group[0][0]
        weight = make(
            "concatenate", Tuple([branch[0].args[1] for branch in group]), call.attrs["kernel_layout"].index("O")
        )
        return again(call, [call.args[0], weight], channels=sum(self._channels(branch[0]) for branch in group))

    def operands_alike(self, a: Any, b: Any, at: int) -> bool:
        mine, other, results = _dims(a.args[at]), _dims(b.args[at]), (_dims(a), _dims(b))
        channel = self._here - len(results[0]) + len(mine)
        if len(mine) != len(other) or channel < 0 or type_of(a.args[at]).dtype != type_of(b.args[at]).dtype:  # type: ignore
            return False
        place = self._here
        if mine[channel] != results[0][place] or other[channel] != results[1][place]:
            return False
        return all(x == y for axis, (x, y) in enumerate(zip(mine, other, strict=True)) if axis != channel)

    _here = 1  # the axis of channels in the group at hand

    def _followed(self, group: Sequence[Branch]) -> tuple[Expr, int]:
        self._here = self._place(group[0][0])
        return super()._followed(group)

    def operand(self, group: Sequence[Branch], depth: int, at: int, parent: int) -> Expr:
        call = group[0][depth]
        axis = self._here - len(_dims(call)) + len(_dims(call.args[at]))
        return make("concatenate", Tuple([branch[depth].args[at] for branch in group]), axis)

    def cut(self, data: Expr, group: Sequence[Branch], depth: int) -> list[Expr]:
        parts, start = [], 0
        for branch in group:
            channels = self._channels(branch[0])
            parts.append(_sized(data, [0] * self._here + [start], [-1] * self._here + [channels]))
            start += channels
        return parts


class _Dense(_Combiner):
    op = "nn.dense"

    def supports(self, call: Any) -> bool:
        return static_shape(call.args[1]) is not None and static_shape(call) is not None

    def alike(self, a: Any, b: Any) -> bool:
        return a.attrs["out_dtype"] == b.attrs["out_dtype"] and _dims(a.args[1])[1] == _dims(b.args[1])[1]

    def joined(self, group: Sequence[Branch]) -> Expr:
        call = group[0][0]
        weight = make("concatenate", Tuple([branch[0].args[1] for branch in group]), 0)
        return again(call, [call.args[0], weight], units=sum(_dims(branch[0].args[1])[0] for branch in group))

    def operands_alike(self, a: Any, b: Any, at: int) -> bool:
        mine, other = _dims(a.args[at]), _dims(b.args[at])
        return (
            type_of(a.args[at]).dtype == type_of(b.args[at]).dtype  # type: ignore[union-attr]
            and len(mine) == len(other)
            and len(_dims(a)) >= len(mine)
            and len(_dims(b)) >= len(other)
            and mine[:-1] == other[:-1]
        )

    def operand(self, group: Sequence[Branch], depth: int, at: int, parent: int) -> Expr:
        rank = len(_dims(group[0][depth].args[at]))
        axis, parts = max(rank - 1, 0), []
        for branch in group:
            width = _dims(branch[depth].args[parent])[-1]
            arg = branch[depth].args[at]
            if rank == 0:
                arg = make("repeat", make("expand_dims", arg, -1, 1), width, axis)
            elif width > 1 and _dims(arg)[-1] == 1:
                arg = make("repeat", arg, width, axis)
            parts.append(arg)
        return make("concatenate", Tuple(parts), axis)

    def cut(self, data: Expr, group: Sequence[Branch], depth: int) -> list[Expr]:
        parts, start = [], 0
        for branch in group:
            width, shape = _dims(branch[0])[1], _dims(branch[depth])
            axis = max(place for place, size in enumerate(shape) if size == width)
            starts, sizes = [0] * len(shape), [-1] * len(shape)
            starts[axis], sizes[axis] = start, width
            parts.append(_sized(data, starts, sizes))
            start += width
        return parts


class _BatchMatmul(_Combiner):
    op = "nn.batch_matmul"

    def supports(self, call: Any) -> bool:
        plain = not call.attrs["transpose_a"] and call.attrs["transpose_b"]
        return plain and static_shape(call.args[1]) is not None and static_shape(call) is not None

    def alike(self, a: Any, b: Any) -> bool:
        return a.attrs["out_dtype"] == b.attrs["out_dtype"] and _dims(a.args[1])[0] == _dims(b.args[1])[0]

    def joined(self, group: Sequence[Branch]) -> Expr:
        call = group[0][0]
        return again(call, [call.args[0], make("concatenate", Tuple([branch[0].args[1] for branch in group]), 1)])

    def operands_alike(self, a: Any, b: Any, at: int) -> bool:
        mine, other = _dims(a.args[at]), _dims(b.args[at])
        whole = mine and mine[-1] == _dims(a)[-1] and other and other[-1] == _dims(b)[-1]  # joined along the last axis
        return bool(whole) and mine[:-1] == other[:-1]

    def operand(self, group: Sequence[Branch], depth: int, at: int, parent: int) -> Expr:
        return make("concatenate", Tuple([branch[depth].args[at] for branch in group]), -1)

    def cut(self, data: Expr, group: Sequence[Branch], depth: int) -> list[Expr]:
        parts, start = [], 0
        for branch in group:
            width = _dims(branch[0].args[1])[1]
            parts.append(_sized(data, [0, 0, start], [-1, -1, width]))
            start += width
        return parts


class _Batch(_Combiner):
    """Calls of `op` as one call of `batch_op` on stacked operands."""

    def __init__(self, op: str, batch_op: str) -> None:
        self.op, self.batch_op = op, batch_op

    def alike(self, a: Any, b: Any) -> bool:
        return [type_of(arg) for arg in a.args] == [type_of(arg) for arg in b.args]

    def joined(self, group: Sequence[Branch]) -> Expr:
        count = len(group[0][0].args)
        stacked = [make("stack", Tuple([branch[0].args[at] for branch in group]), 0) for at in range(count)]
        return self._call(group[0][0], stacked)

    def _call(self, call: Any, stacked: list[Expr]) -> Expr:
        return make(self.batch_op, *stacked)

    def operand(self, group: Sequence[Branch], depth: int, at: int, parent: int) -> Expr:
        parts = [branch[depth].args[at] for branch in group]
        parts = [make("expand_dims", part, 0, 1) if len(shape_of(part) or ()) == 1 else part for part in parts]
        return make("stack", Tuple(parts), 0)

    def cut(self, data: Expr, group: Sequence[Branch], depth: int) -> list[Expr]:
        split = make("split", data, len(group), 0).astuple()
        return [make("squeeze", TupleGetItem(split, place), [0]) for place in range(len(group))]


class _DenseBatch(_Batch):
    def __init__(self) -> None:
        super().__init__("nn.dense", "nn.batch_matmul")

    def alike(self, a: Any, b: Any) -> bool:
        return a.attrs["out_dtype"] == b.attrs["out_dtype"] and shape_of(a.args[1]) == shape_of(b.args[1])

    def _call(self, call: Any, stacked: list[Expr]) -> Expr:
        return make(self.batch_op, *stacked, out_dtype=call.attrs["out_dtype"], transpose_a=False, transpose_b=True)


def _pass(name: str, combiner: _Combiner, least: int) -> Pass:
    def combine(function: Function, _: IRModule) -> Expr:
        return combiner.combine(function, least)

    return each_function(name, combine, level=4)


def CombineParallelConv2D(min_num_branches: int = 3) -> Pass:
    """Convolutions of the same data as one with all their filters."""
    return _pass("CombineParallelConv2d", _Conv2D(), min_num_branches)


def CombineParallelDense(min_num_branches: int = 3, to_batch: bool = True) -> Pass:
    """Dense products of the same data as one batch_matmul, or with `to_batch` False as one dense product."""
    return _pass("CombineParallelDense", _DenseBatch() if to_batch else _Dense(), min_num_branches)


def CombineParallelBatchMatmul(min_num_branches: int = 3) -> Pass:
    """Batched products of the same data as one."""
    return _pass("CombineParallelBatchMatmul", _BatchMatmul(), min_num_branches)


def CombineParallelOpBatch(op_name: str, batch_op_name: str, min_num_branches: int = 3) -> Pass:
    """Calls of an operator as one call of another on stacked operands."""
    Op.get(op_name), Op.get(batch_op_name)
    return _pass("CombineParallelOpBatch", _Batch(op_name, batch_op_name), min_num_branches)


def BatchingOps() -> Pass:
    """The passes of this file for convolutions, dense and batched products."""
    passes = [CombineParallelConv2D(), CombineParallelDense(), CombineParallelBatchMatmul()]
    return Sequential(passes, name="BatchingOps")
