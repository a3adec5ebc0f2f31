"""TVM's quick start, on Treadle: ResNet-18 built from Relay, compiled, run, saved, loaded, and run again.

    python examples/quick_start.py

What a script for TVM needs to run here is this import.
"""

import os
import tempfile

import numpy as np
import treadle.tvm as tvm
from treadle.tvm import relay
from treadle.tvm.contrib import graph_runtime
from treadle.tvm.relay import testing

BATCH, CLASSES, IMAGE = 1, 1000, (3, 224, 224)


def main() -> None:
    """Prints some of what the network says of a random image, computed twice."""
    module, params = testing.resnet.get_workload(num_layers=18, batch_size=BATCH, image_shape=IMAGE)
    with relay.build_config(opt_level=3):
        graph, lib, params = relay.build_module.build(module, tvm.target.Target("llvm"), params=params)

    device = tvm.cpu()
    data = np.random.default_rng(0).uniform(-1, 1, (BATCH, *IMAGE)).astype("float32")
    executor = graph_runtime.create(graph, lib, device)
    executor.set_input("data", data)
    executor.set_input(**params)
    executor.run()
    first = executor.get_output(0, tvm.nd.empty((BATCH, CLASSES))).numpy()
    print(first.flatten()[:10])

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "deploy.params")
        with open(path, "wb") as file:
            file.write(relay.save_param_dict(params))
        with open(path, "rb") as file:
            loaded = bytearray(file.read())
        executor = graph_runtime.create(graph, lib, device)
        executor.load_params(loaded)
        executor.run(data=tvm.nd.array(data))
    second = executor.get_output(0).numpy()
    print(second.flatten()[:10])
    tvm.testing.assert_allclose(first, second, atol=1e-3)


if __name__ == "__main__":
    main()
