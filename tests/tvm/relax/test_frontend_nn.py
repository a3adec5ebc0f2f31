"""`relax.frontend.nn`: modules that export programs, whose results are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm import relax
from treadle.tvm.relax.frontend import nn

RNG = np.random.default_rng(5)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


class Network(nn.Module):
    """Two layers and a norm."""

    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3, bias=False)])
        self.norm = nn.RMSNorm(3, axes=[-1], bias=False)

    def forward(self, x: Any) -> Any:
        return self.norm(self.layers(x) * 2.0)


def test_a_network_is_exported_and_run() -> None:
    network = Network()
    module, params = network.export_tvm({"forward": {"x": nn.spec.Tensor(["n", 4], "float32")}})
    assert [name for name, _ in params] == ["layers.0.weight", "layers.0.bias", "layers.2.weight", "norm.weight"]
    assert module["forward"].attrs["num_input"] == 1
    x, weights = random(5, 4), [random(*param.shape) for _, param in params]
    result = relax.VirtualMachine(relax.build(module), tvm.cpu())["forward"](x, *weights).numpy()
    made = np.maximum(x @ weights[0].T + weights[1], 0) @ weights[2].T * 2
    expected = made / np.sqrt((made**2).mean(-1, keepdims=True) + 1e-5) * weights[3]
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


def test_parameters_take_data_and_types() -> None:
    network = Network()
    network.to("float16")
    assert {param.dtype for param in network.parameters()} == {"float16"}
    with pytest.raises(KeyError, match="missing"):
        network.load_state_dict({})
    network.load_state_dict({name: np.zeros(param.shape, np.float16) for name, param in network.named_parameters()})
    assert all(param.data.shape == tuple(param.shape) for param in network.parameters())


def test_with_debug_functions_take_and_give_effects() -> None:
    module, _ = nn.Identity().export_tvm({"forward": {"x": nn.spec.Tensor((2,), "float32")}}, debug=True)
    assert list(module._functions) == ["_initialize_effect", "forward"]
    vm = relax.VirtualMachine(relax.build(module), tvm.cpu())
    value, effects = vm["forward"](tvm.nd.array(random(2)), vm["_initialize_effect"]()[0])
    assert (value.shape, len(effects)) == ((2,), 1)


def test_lists_may_be_given_by_name() -> None:
    """Those of arguments, shapes and tensors alike."""
    x = nn.Tensor.placeholder([2, 3], "float32")
    assert nn.op.zeros(shape=[2, 3]).shape == [2, 3]
    assert nn.op.reshape(x, shape=[3, 2]).shape == [3, 2]
    assert nn.op.concat(x=[x, x], dim=1).shape == [2, 6]
    assert [each.shape for each in nn.op.chunk(x, chunks=2, dim=0)] == [[1, 3], [1, 3]]


def test_tensors_have_the_methods_of_operators() -> None:
    class Model(nn.Module):
        def forward(self, x: nn.Tensor) -> Any:
            return (2 * x).maximum(nn.Tensor.from_scalar(3, "float32")).repeat(2, axis=0)

    module, _ = Model().export_tvm(spec={"forward": {"x": nn.spec.Tensor([2], "float32")}})
    run = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())["forward"]
    np.testing.assert_array_equal(run(tvm.nd.array(np.array([1, 2], np.float32))).numpy(), [3, 3, 4, 4])
    assert repr(nn.Tensor.from_const(np.zeros((1, 10)))) == 'Tensor([1, 10], "float32")'
