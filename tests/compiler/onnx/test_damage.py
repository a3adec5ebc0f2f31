"""Damaged models: whatever is wrong with one, the importer raises an error of ours, and soon."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from treadle.compiler.onnx.importer import from_onnx
from treadle.formats.messages.errors import TreadleError
from treadle.tools import digits
from treadle.tools.dev import zoo

MODELS = [onnx.load(digits.MODEL), zoo.bert(1, 16, 2, vocabulary=8, batch="b", length="s"), zoo.mlp((4, 3))]
BYTES = [model.SerializeToString() for model in MODELS]
INTEGERS = st.sampled_from([-(1 << 63), -2, -1, 0, 1, 2, 3, 1 << 31, 1 << 40, (1 << 63) - 1])


def damage_attribute(draw: Callable, node: onnx.NodeProto) -> None:
    if not node.attribute:
        return
    attribute = draw(st.sampled_from(list(node.attribute)))
    if attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        attribute.ints[draw(st.integers(0, len(attribute.ints) - 1))] = draw(INTEGERS)
    elif attribute.type == onnx.AttributeProto.INTS or draw(st.booleans()):
        attribute.type = draw(st.sampled_from(onnx.AttributeProto.AttributeType.values()))
    else:
        attribute.i = draw(INTEGERS)


def damage_inputs(draw: Callable, node: onnx.NodeProto) -> None:
    if node.input and draw(st.booleans()):
        node.input.pop()
    elif node.input:
        node.input[draw(st.integers(0, len(node.input) - 1))] = draw(st.sampled_from(["", *node.input]))


def damage_operator(draw: Callable, node: onnx.NodeProto) -> None:
    node.op_type = draw(st.sampled_from(["Reshape", "Concat", "Gemm", "Slice", "If", "Celu", "", "é"]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_graphs(data: st.DataObject) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(data.draw(st.sampled_from(MODELS)))
    for _ in range(data.draw(st.integers(1, 3))):
        node = data.draw(st.sampled_from(list(model.graph.node)))
        data.draw(st.sampled_from([damage_attribute, damage_inputs, damage_operator]))(data.draw, node)
    with contextlib.suppress(TreadleError):
        from_onnx(model)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(BYTES), st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4))
def test_damaged_bytes(content: bytes, place: float, garbage: bytes) -> None:
    start = int(place * len(content))
    with contextlib.suppress(TreadleError):
        from_onnx(content[:start] + garbage + content[start + len(garbage) :])
