"""Models built from a seed with onnx.helper alone, written as exporters write them: for tests and benchmarks.

Nothing is downloaded, and a seed always gives the same file. Weights are scaled so that activations stay near 1, so that
outputs of two runtimes may be compared. `catalogue.CATALOGUE` names the models of the race track, `treadle bench models`; each
family is a file, made of the layers in `layers.py`, with the writer in `writer.py`.
"""

from .bert import bert
from .light import LIGHT_NETWORKS, light
from .mlp import mlp
from .resnet import resnet

__all__ = ["LIGHT_NETWORKS", "bert", "light", "mlp", "resnet"]
