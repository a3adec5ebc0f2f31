"""The runtimes that `treadle bench models` compares, each behind one function: a model, its inputs, threads → a call.

Every engine is used as its documentation advises for low latency, in float32; with `precision` "bfloat16", Treadle so and
the others as people install them: OpenVINO then takes bfloat16 where the CPU has it. A session is made once; the measured call
takes NumPy arrays and gives NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ....formats.program import EXACT

if TYPE_CHECKING:
    import onnx

Feeds = Mapping[str, np.ndarray]
Call = Callable[[], "list[np.ndarray]"]
Prepare = Callable[["onnx.ModelProto", Feeds, int, str], Call]


def treadle(model: onnx.ModelProto, feeds: Feeds, threads: int, precision: str) -> Call:
    """Threads are the process's, not the machine's: this sets them."""
    from .... import VirtualMachine, compile, set_num_threads

    set_num_threads(threads)
    function = VirtualMachine(compile(model, precision=precision, progress=False))["main"]
    inputs = tuple(feeds.values())

    def call() -> list[np.ndarray]:
        result = function(*inputs)
        return [part.numpy() for part in (result if isinstance(result, tuple) else (result,))]

    return call


def onnxruntime(model: onnx.ModelProto, feeds: Feeds, threads: int, precision: str) -> Call:
    """All graph optimisations are on by default. It has no kernels of bfloat16."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def openvino(model: onnx.ModelProto, feeds: Feeds, threads: int, precision: str) -> Call:
    """In float32 if that is asked for: where a CPU has bfloat16, OpenVINO would otherwise compute with 8 bits of precision."""
    import openvino

    core = openvino.Core()
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        **({"INFERENCE_PRECISION_HINT": "f32"} if precision == EXACT else {}),
    }
    request = core.compile_model(core.read_model(model.SerializeToString()), "CPU", settings).create_infer_request()
    inputs = dict(feeds)

    def call() -> list[np.ndarray]:
        return list(request.infer(inputs, share_inputs=True, share_outputs=True).to_tuple())

    return call


ENGINES: dict[str, Prepare] = {"treadle": treadle, "onnxruntime": onnxruntime, "openvino": openvino}
