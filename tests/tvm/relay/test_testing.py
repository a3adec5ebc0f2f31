"""The networks of relay.testing: their types are found, and they run."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from treadle.tvm import relay
from treadle.tvm.relay import testing

ROOT = Path(__file__).parents[3]
SMALL = {"image_shape": (3, 32, 32)}
NETWORKS = {
    "mlp": lambda: testing.mlp.get_workload(2),
    "resnet": lambda: testing.resnet.get_workload(num_layers=18, num_classes=10, image_shape=(3, 32, 32)),
    "resnet of small images": lambda: testing.resnet.get_workload(
        num_layers=8, num_classes=10, image_shape=(3, 28, 28)
    ),
    "resnet, channels last": lambda: testing.resnet.get_workload(1, 10, 18, (32, 32, 3), layout="NHWC"),
    "mobilenet": lambda: testing.mobilenet.get_workload(image_shape=(3, 64, 64)),
    "mobilenet, channels last": lambda: testing.mobilenet.get_workload(image_shape=(64, 64, 3), layout="NHWC"),
    "squeezenet": lambda: testing.squeezenet.get_workload(version="1.1", image_shape=(3, 64, 64)),
    "vgg": lambda: testing.vgg.get_workload(1, 10, (3, 32, 32), batch_norm=True),
    "densenet": lambda: testing.densenet.get_workload(batch_size=1),
    "inception_v3": lambda: testing.inception_v3.get_workload(),
    "dcgan": lambda: testing.dcgan.get_workload(1, ngf=8),
    "dqn": lambda: testing.dqn.get_workload(1),
    "lstm": lambda: testing.lstm.get_workload(2, 8),
    "synthetic": lambda: testing.synthetic.get_workload(),
}
RUN = ("mlp", "resnet of small images", "dqn", "lstm", "synthetic", "dcgan")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_types_of_a_network_are_found(name):
    module, params = NETWORKS[name]()
    function = module["main"]
    names = {param.name_hint for param in function.params}
    assert names == {"data", *params}
    for param in function.params:
        if param.name_hint != "data":
            assert params[param.name_hint].shape == param.checked_type.concrete_shape


@pytest.mark.parametrize("name", RUN)
def test_a_network_runs_and_gives_the_same_each_time(name):
    module, params = NETWORKS[name]()
    type_ = module["main"].checked_type
    inputs = [t for p, t in zip(module["main"].params, type_.arg_types, strict=True) if p.name_hint == "data"]
    data = [np.random.default_rng(0).random(t.concrete_shape, "float32") for t in inputs]
    run = relay.create_executor("graph", mod=module, params=params).evaluate()
    first = run(*data).numpy()
    assert first.shape == type_.ret_type.concrete_shape
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(run(*data).numpy(), first)


def test_weights_are_the_same_each_time():
    (_, first), (_, second) = testing.mlp.get_workload(1), testing.mlp.get_workload(1)
    for name, weight in first.items():
        np.testing.assert_array_equal(weight.numpy(), second[name].numpy())


def test_the_quick_start_runs():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "quick_start.py"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split("[")) == 3


def test_workloads_have_the_parameters_of_their_networks_in_tvms_order() -> None:
    told = inspect.signature(testing.squeezenet.get_workload).parameters
    assert list(told) == ["batch_size", "num_classes", "version", "image_shape", "dtype"]
    assert (told["batch_size"].default, told["version"].default) == (1, "1.0")
    with pytest.raises(TypeError, match="num_layers"):
        testing.mlp.get_workload(1, num_layers=2)
