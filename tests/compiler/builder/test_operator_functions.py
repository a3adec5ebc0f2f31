"""`treadle.op`: the operators of models, and those that only passes make."""

import ast

import pytest
import treadle
from treadle import op, var
from treadle.compiler.builder import expressions
from treadle.compiler.builder.operator_functions import LOWERED
from treadle.compiler.operators import TABLE, complete

from ... import package


def test_operators_of_layouts_and_packing_are_in_a_namespace_of_their_own():
    assert "conv" in dir(op)
    assert "conv_blocked" not in dir(op)
    assert "conv_blocked" in dir(op.lowered)
    image = op.lowered.pack_channels(var("x", (1, 32, 8, 8)))
    assert str(image.type) == "float32[1, 2, 8, 8, 16]"
    with pytest.raises(
        treadle.TreadleError, match=r"'conv_blocked' is not an operator of a model.*op\.lowered\.conv_blocked"
    ):
        op.conv_blocked  # noqa: B018


def test_editors_and_checkers_see_types_without_running_anything():
    """Editors follow declarations, but no casts to a name."""
    assert expressions.__annotations__["op"] == "ModelOperators"
    for name in ("sum", "reshape", "astype", "clip", "squeeze"):
        assert getattr(expressions.Expression, name).__annotations__["return"] == "Self"


def test_a_wrong_name_suggests_operators_of_models_only():
    with pytest.raises(treadle.TreadleError, match=r"rellu.*did you mean.*relu"):
        op.rellu  # noqa: B018
    with pytest.raises(treadle.TreadleError, match=r"dir\(op\.lowered\) lists them"):
        op.lowered.relu  # noqa: B018


def test_each_operator_on_packed_tensors_is_a_lowered_one():
    """All operators of targets are, or `op` would have more once a target is loaded; others are recognisable by their names."""
    words = {"pack", "unpack", "packed", "blocked", "counted"}
    expected = {
        name
        for name, entry in complete().items()
        if ".compiler.targets." in entry.infer.__module__ or words & set(name.split("_"))
    }
    assert expected == LOWERED
    assert set(TABLE) >= LOWERED


def test_importers_of_models_make_no_lowered_operators():
    modules = package.modules().items()
    importers = {name: path for name, path in modules if name.startswith("compiler/onnx/") and "/export/" not in name}
    assert "compiler/onnx/operators/networks.py" in importers
    for name, path in importers.items():
        texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not texts & LOWERED, name


def test_a_module_of_a_model_has_no_lowered_operators():
    x = var("x", (1, 16, 8, 8))
    module = treadle.Module(main=treadle.function([x], op.relu(x) + 1))
    assert not any(name in str(module) for name in LOWERED)


def test_operators_have_their_words_in_the_notebook():
    assert repr(op) == f"<op: {len(dir(op))} operators; dir(op) lists them>"
    assert (op.relu.__doc__ or "").startswith("relu(x): ")
    assert op.relu is op.relu
