"""`relax.BlockBuilder` and `relax.op`: programs that are emitted, built and run."""

from __future__ import annotations

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import CheckError, CompileError
from treadle.tvm import relax
from treadle.tvm.relax.testing import nn

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


def run(module, *args, name: str = "main"):
    return relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())[name](*args)


def of(make, *shapes):
    """A module with one function of variables of these shapes."""
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{at}", relax.TensorStructInfo(shape)) for at, shape in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            made = bb.emit(make(*params))
            out = bb.emit_output(made)
        bb.emit_func_output(out)
    return bb.get()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: relax.op.add(x, relax.const(1.0)), X + 1),
        (lambda x: relax.op.sum(x, axis=1, keepdims=True), X.sum(1, keepdims=True)),
        (lambda x: relax.op.mean(x), X.mean()),
        (lambda x: relax.op.permute_dims(x), X.T),
        (lambda x: relax.op.permute_dims(x, [1, 0]), X.T),
        (lambda x: relax.op.reshape(x, (3, 2)), X.reshape(3, 2)),
        (lambda x: relax.op.flatten(x), X.reshape(-1)),
        (lambda x: relax.op.concat([x, x], axis=1), np.concatenate([X, X], 1)),
        (lambda x: relax.op.nn.relu(x), np.maximum(X, 0)),
        (lambda x: relax.op.linear(x, relax.const(np.ones((4, 3), np.float32))), X @ np.ones((3, 4), np.float32)),
        (lambda x: relax.op.astype(x, "int32"), X.astype(np.int32)),
        (lambda x: relax.op.squeeze(relax.op.expand_dims(x, 0), 0), X),
        (lambda x: relax.op.clip(x, -1, 2), X.clip(-1, 2)),
        (lambda x: relax.op.add(x, relax.op.ones((2, 3))), X + 1),
        (lambda x: relax.op.power(x, relax.const(2.0)), X**2),
        (lambda x: relax.op.argmax(x, 1), X.argmax(1)),
        (lambda x: relax.op.nn.dropout(x)[0], X),
    ],
)
def test_operators(make, expected) -> None:
    assert np.allclose(run(of(make, (2, 3)), X).numpy(), expected)


def test_group_norm_without_scale_and_shift() -> None:
    unused = relax.const(np.full(2, 9, np.float32))
    options = {"num_groups": 2, "channel_axis": 1, "axes": [2], "center": False, "scale": False}
    made = of(lambda x: relax.op.nn.group_norm(relax.op.reshape(x, (1, 2, 3)), unused, unused, **options), (2, 3))
    expected = (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5)
    assert np.allclose(run(made, X).numpy()[0], expected, atol=1e-4)


def test_attention_over_a_window_is_refused() -> None:
    x = relax.Var("x", relax.TensorStructInfo((1, 4, 2, 8)))
    with pytest.raises(NotImplementedError, match="window_size: expected None, got 2"):
        _ = relax.op.nn.attention(x, x, x, window_size=2).struct_info


def test_tuples_and_symbolic_shapes() -> None:
    n = tvm.tir.Var("n", "int64")
    (total, same), first = run(
        of(
            lambda x: relax.Tuple([relax.Tuple([relax.op.add(x, x), x]), relax.TupleGetItem(relax.Tuple([x]), 0)]),
            (n, 3),
        ),
        X,
    )
    assert np.array_equal(total.numpy(), X + X)
    assert np.array_equal(same.numpy(), X)
    assert np.array_equal(first.numpy(), X)


def test_a_network_and_its_parameters() -> None:
    bb = relax.BlockBuilder()
    with bb.function("main"):
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
        data = nn.Placeholder((2, 3), name="data")
        bb.emit_func_output(model(data), params=[data, *model.parameters()])
    module = bb.get()
    assert [param.name_hint for param in module["main"].params] == [
        *("data", "linear_weight", "linear_bias", "linear_weight1"),
    ]
    first, bias, second = np.ones((3, 4), np.float32), np.ones(4, np.float32), np.ones((4, 2), np.float32)
    bound = relax.transform.BindParams("main", {"linear_weight": first, "linear_bias": bias, "linear_weight1": second})
    assert np.allclose(run(bound(module), X).numpy(), np.maximum(X @ first + bias, 0) @ second)
    vm = relax.VirtualMachine(relax.build(bound(module)), tvm.cpu(), profile=True)
    assert "matmul" in str(vm.profile("main", X))


def test_what_is_not_well_built() -> None:
    bb = relax.BlockBuilder()
    with pytest.raises(CheckError, match="emit_func_output must be called"), bb.function("main", []):
        pass
    x = relax.Var("x", relax.TensorStructInfo((2,)))
    with pytest.raises(CheckError, match="parameters of the function 'f' are not known"), bb.function("f"):
        bb.emit_func_output(x)
    with pytest.raises(CompileError, match=r"tvm\.script\.from_source reads a text"):
        relax.build(object)
    with pytest.raises(AttributeError, match=r"relax\.op has no 'nonsense'"):
        relax.op.nonsense  # noqa: B018
