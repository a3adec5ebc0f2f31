"""The models of the race track: how each is built, what its symbolic sizes are when it runs, and inputs for it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx

from .bert import bert
from .convnext import convnext
from .densenet import densenet
from .dlrm import dlrm
from .efficientnet import efficientnet
from .gpt import gpt
from .llama import llama
from .mlp import mlp
from .mobilenet import mobilenet_v2, mobilenet_v3_small
from .recurrent import recurrent
from .regnet import regnet
from .resnet import resnet
from .shufflenet import shufflenet
from .swin import swin
from .t5 import t5
from .unet import unet
from .vit import vit
from .whisper import whisper

_LEAST_VOCABULARY = 1000  # of all models: token numbers below it suit each of them


@dataclass(frozen=True)
class Entry:
    """A model by the name that `treadle bench models --only` takes."""

    name: str
    build: Callable[[], onnx.ModelProto]
    sizes: Mapping[str, int] = field(default_factory=dict)  # of symbolic dimensions, in the runs that are measured


# fmt: off
CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in (
    Entry("resnet18", partial(resnet, 18)),
    Entry("resnet50", partial(resnet, 50)),
    Entry("mobilenet-v2", mobilenet_v2),
    Entry("mobilenet-v3-small", mobilenet_v3_small),
    Entry("efficientnet-b0", efficientnet),
    Entry("densenet121", densenet),
    Entry("regnet", regnet),
    Entry("convnext-atto", convnext),
    Entry("shufflenet-v2", shufflenet),
    Entry("unet", unet),
    Entry("vit-tiny", vit),
    Entry("swin", swin),
    Entry("minilm", partial(bert, 6, 384, 12, vocabulary=5000, length=64)),
    Entry("minilm-symbolic", partial(bert, 6, 384, 12, vocabulary=5000, batch="b", length="s"), {"b": 1, "s": 64}),
    Entry("gpt2-prefill", partial(gpt, past=0, length=64)),
    Entry("gpt2-prefill-symbolic", gpt, {"length": 64, "past": 0}),
    Entry("gpt2-decode", partial(gpt, length=1), {"past": 127}),
    Entry("llama-prefill", llama, {"length": 64, "past": 0}),
    Entry("llama-decode", partial(llama, length=1), {"past": 127}),
    Entry("t5", t5),
    Entry("whisper-encoder", whisper),
    Entry("lstm", recurrent),
    Entry("lstm-bidirectional", partial(recurrent, bidirectional=True)),
    Entry("gru", partial(recurrent, "GRU")),
    Entry("gru-bidirectional", partial(recurrent, "GRU", bidirectional=True)),
    Entry("mlp", mlp),
    Entry("dlrm", dlrm),
)}
# fmt: on


def inputs(entry: Entry, model: onnx.ModelProto, number: int = 0) -> dict[str, np.ndarray]:
    """Arrays for the model's inputs, for each number always the same."""
    rng = np.random.default_rng(zlib.crc32(entry.name.encode()) + number)
    return dict(_inputs(model, entry.sizes, rng))


def _inputs(
    model: onnx.ModelProto, sizes: Mapping[str, int], rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    """Normally distributed numbers; of integers, masks are full and all others are numbers of rows in some table."""
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = tuple(sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in tensor.shape.dim)
        if tensor.elem_type == onnx.TensorProto.FLOAT:
            yield info.name, rng.standard_normal(shape, np.float32)
        elif info.name == "attention_mask":
            yield info.name, np.ones(shape, np.int64)
        else:
            yield info.name, rng.integers(0, 2 if info.name == "token_type_ids" else _LEAST_VOCABULARY, shape)
