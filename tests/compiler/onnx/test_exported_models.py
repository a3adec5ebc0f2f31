"""Models as exporters write them, built from seeds: each gives what the framework or onnxruntime gives.

`make exporters-test` runs them in an environment of their own; elsewhere those of torch are skipped.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import treadle
from onnx import helper, numpy_helper

torch = pytest.importorskip("torch", reason="make exporters-test has it")
nn = torch.nn
functional = torch.nn.functional


def compiled(content: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    results = treadle.VirtualMachine(treadle.compile(content, progress=False))["main"](*feeds.values())
    return [np.asarray(each) for each in (results if isinstance(results, (tuple, list)) else [results])]


def by_onnxruntime(content: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)


def assert_alike(got: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 2e-4) -> None:
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance * (1 + np.abs(theirs).max(initial=0)))


# ---- torch ----


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.depthwise, self.point = nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(8, 16, 1)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = functional.relu6(self.norm(self.first(x)))
        x = functional.hardswish(self.point(self.depthwise(x)))
        x = functional.max_pool2d(x, 2)
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.places = nn.Embedding(32, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 50)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.layers(x))


class StateSpace(nn.Module):
    """Mamba's block: a convolution over time, and a selective scan of states, whose length is that of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(8, 24), nn.Linear(12, 8)
        self.conv = nn.Conv1d(12, 12, 3, padding=2, groups=12)
        self.project, self.step = nn.Linear(12, 2 + 4 + 4), nn.Linear(2, 12)
        self.logs, self.skip = nn.Parameter(torch.rand(12, 4)), nn.Parameter(torch.ones(12))

    def forward(self, x: Any) -> Any:
        length = x.shape[1]
        inner, gate = self.enter(x).chunk(2, -1)
        inner = functional.silu(self.conv(inner.transpose(1, 2))[..., :length].transpose(1, 2))
        rank, b, c = self.project(inner).split([2, 4, 4], -1)
        step = functional.softplus(self.step(rank))
        decay = (step.unsqueeze(-1) * -torch.exp(self.logs)).cumsum(1)
        # h_t = sum over s <= t of exp(decay_t - decay_s) · step_s · b_s · x_s
        added = step.unsqueeze(-1) * b.unsqueeze(2) * inner.unsqueeze(-1)
        states = torch.exp(decay) * (added * torch.exp(-decay)).cumsum(1)
        y = (states * c.unsqueeze(2)).sum(-1) + inner * self.skip
        return self.leave(y * functional.silu(gate))


class Experts(nn.Module):
    """A router sends each token to the two best of four experts; all are computed, and weighed."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 8, 16)), nn.Parameter(torch.randn(4, 16, 8))

    def forward(self, x: Any) -> Any:
        best, chosen = self.router(x).topk(2, -1)
        gates = torch.zeros_like(self.router(x)).scatter(-1, chosen, best.softmax(-1))
        hidden = functional.gelu(torch.einsum("btd,edh->bteh", x, self.up))
        return torch.einsum("bteh,ehd,bte->btd", hidden, self.down, gates)


class Speech(nn.Module):
    """Log spectra of a waveform, convolutions, a recurrent encoder, and a decoder that attends to it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))
        self.first, self.second = nn.Conv1d(9, 12, 3, 1, 1), nn.Conv1d(12, 12, 3, 2, 1)
        self.encoder = nn.GRU(12, 8, batch_first=True, bidirectional=True)
        self.table = nn.Embedding(20, 16)
        layer = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)
        self.decoder, self.head = nn.TransformerDecoder(layer, 1), nn.Linear(16, 20)

    def forward(self, wave: Any, ids: Any) -> Any:
        spectrum = torch.stft(wave, 16, 8, window=self.window, center=False, return_complex=False, onesided=True)
        power = spectrum.pow(2).sum(-1)
        x = functional.gelu(self.first(torch.log(power + 1e-3)))
        x = functional.gelu(self.second(x)).transpose(1, 2)
        memory, _ = self.encoder(x)
        return self.head(self.decoder(self.table(ids), memory))


class Tokens(nn.Module):
    """Images become tokens and images again, as in SegFormer: sizes are computed, and channels are what a reshape leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.norm = nn.Conv2d(3, 8, 7, 4, 3), nn.LayerNorm(8)
        self.mix, self.again = nn.Linear(8, 8), nn.Conv2d(8, 12, 3, 2, 1)

    def forward(self, x: Any) -> Any:
        x = self.cut(x)
        batch, _, height, width = x.shape
        x = self.norm(x.flatten(2).transpose(1, 2))
        x = x + functional.gelu(self.mix(x))
        return self.again(x.reshape(batch, height, width, -1).permute(0, 3, 1, 2))


class Columns(nn.Module):
    """Queries, keys and values that convolutions make lie column by column, as in SqueezeBERT."""

    def __init__(self) -> None:
        super().__init__()
        self.three = nn.ModuleList(nn.Conv1d(8, 8, 1, groups=2) for _ in range(3))

    def forward(self, x: Any) -> Any:
        query, key, value = (each(x).unflatten(1, (2, 4)) for each in self.three)
        weights = (query.transpose(2, 3) @ key).softmax(-1)
        return (weights @ value.transpose(2, 3)).transpose(2, 3).flatten(1, 2)


class GraphAttention(nn.Module):
    """Nodes and edges of a graph, both any number: what each edge says is weighed over those that end at its node."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 8), nn.Linear(8, 3)
        self.ends = nn.Parameter(torch.randn(2, 2, 4))

    def forward(self, x: Any, edges: Any) -> Any:
        nodes = x.shape[0]
        hidden = self.enter(x).view(-1, 2, 4)
        ends = [(hidden * each).sum(-1)[at] for each, at in zip(self.ends, edges, strict=True)]
        logits = functional.leaky_relu(ends[0] + ends[1], 0.2)
        where = edges[1][:, None].expand(-1, 2)
        most = torch.full((nodes, 2), -1e9).scatter_reduce(0, where, logits, "amax")
        weights = torch.exp(logits - most[edges[1]])
        totals = torch.zeros(nodes, 2).scatter_add(0, where, weights)
        said = (weights / totals[edges[1]]).unsqueeze(-1) * hidden[edges[0]]
        places = edges[1][:, None].expand(-1, 8)
        return self.leave(functional.elu(torch.zeros(nodes, 8).scatter_add(0, places, said.flatten(1))))


class Flow(nn.Module):
    """A normalising flow of coupling layers (RealNVP): half of the columns shift and scale the other half."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6)) for _ in range(3))
        self.register_buffer("order", torch.tensor([3, 0, 4, 1, 5, 2]))

    def forward(self, x: Any) -> Any:
        volume = torch.zeros(x.shape[0])
        for layer in self.layers:
            kept, moved = x.chunk(2, -1)
            scale, shift = layer(kept).chunk(2, -1)
            scale = torch.tanh(scale)
            volume = volume + scale.sum(-1)
            x = torch.cat([kept, moved * torch.exp(scale) + shift], -1)[:, self.order]
        return volume - 0.5 * x.pow(2).sum(-1)


class Translator(nn.Module):
    """A recurrent encoder in both directions, and a decoder that attends to it, one step after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.bridge, self.head = nn.Embedding(20, 6), nn.Linear(10, 8), nn.Linear(8, 20)
        self.encoder = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.decoder, self.query = nn.LSTM(6 + 10, 8, batch_first=True), nn.Linear(8, 10)

    def forward(self, source: Any, target: Any) -> Any:
        memory, _ = self.encoder(self.table(source))
        hidden = torch.tanh(self.bridge(memory.mean(1)))[None]
        state, steps = (hidden, torch.zeros_like(hidden)), []
        for at in range(target.shape[1]):
            weights = (self.query(state[0][0])[:, None] * memory).sum(-1).softmax(-1)
            context = (weights[..., None] * memory).sum(1)
            y, state = self.decoder(torch.cat([self.table(target[:, at]), context], -1)[:, None], state)
            steps.append(self.head(y[:, 0]))
        return torch.stack(steps, 1)


class Codes(nn.Module):
    """An autoencoder whose middle is rows of a table, the nearest ones."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(12, 4))
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 4, 4, 2, 1))
        self.decoder = nn.Sequential(nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1))

    def forward(self, x: Any) -> Any:
        hidden = self.encoder(x).permute(0, 2, 3, 1)
        rows = hidden.reshape(-1, 4)
        far = rows.pow(2).sum(1, keepdim=True) + self.table.pow(2).sum(1) - 2 * rows @ self.table.t()
        return self.decoder(self.table[far.argmin(1)].view(hidden.shape).permute(0, 3, 1, 2))


class Neighbours(nn.Module):
    """Points, each with its nearest ones (DGCNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.head = nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        near = (x[:, :, None] - x[:, None]).pow(2).sum(-1).topk(4, -1, largest=False).indices
        around = torch.gather(x[:, None].expand(-1, x.shape[1], -1, -1), 2, near[..., None].expand(-1, -1, -1, 3))
        middle = x[:, :, None].expand_as(around)
        return self.head(self.edge(torch.cat([around - middle, middle], -1)).relu().amax(2).amax(1))


def floats(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def tokens(*shape: int, most: int = 20) -> Any:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(7))


# module, inputs, names of their axes, inputs of other sizes
Model = tuple[Callable[[], Any], tuple, dict[str, dict[int, str]], tuple]
MODELS: dict[str, Model] = {
    "cnn": (Cnn, (floats(2, 3, 32, 32),), {"x": {0: "batch"}}, (floats(3, 3, 32, 32),)),
    "transformer": (Transformer, (tokens(2, 5),), {"ids": {0: "batch", 1: "length"}}, (tokens(3, 9),)),
    "state space": (StateSpace, (floats(2, 6, 8),), {"x": {0: "batch", 1: "length"}}, (floats(1, 11, 8),)),
    "mixture of experts": (Experts, (floats(2, 5, 8),), {"x": {0: "batch", 1: "length"}}, (floats(3, 4, 8),)),
    "images of tokens": (
        Tokens,
        (floats(2, 3, 32, 24),),
        {"x": {0: "batch", 2: "height", 3: "width"}},
        (floats(1, 3, 40, 64),),
    ),
    "columns": (Columns, (floats(2, 8, 5),), {"x": {0: "batch", 2: "length"}}, (floats(3, 8, 11),)),
    "graph attention": (
        GraphAttention,
        (floats(9, 6), tokens(2, 20, most=9)),
        {"x": {0: "nodes"}, "edges": {1: "count"}},
        (floats(14, 6), tokens(2, 31, most=14)),
    ),
    "flow": (Flow, (floats(4, 6),), {"x": {0: "batch"}}, (floats(7, 6),)),
    "translator": (Translator, (tokens(2, 6), tokens(2, 3)), {}, (tokens(2, 6), tokens(2, 3))),
    "codes": (Codes, (floats(2, 3, 16, 24),), {"x": {0: "batch"}}, (floats(3, 3, 16, 24),)),
    "neighbours": (Neighbours, (floats(2, 10, 3),), {}, (floats(2, 10, 3),)),
    "speech": (Speech, (floats(2, 96), tokens(2, 4)), {}, (floats(2, 96), tokens(2, 4))),
}


def exported(module: Any, inputs: tuple, axes: dict[str, dict[int, str]], dynamo: bool) -> bytes:
    """The bytes that an exporter of torch's writes: the newer one, by torch.export, or the older one, by tracing."""
    names = list(axes) or [f"in{i}" for i in range(len(inputs))]
    if dynamo:
        shapes = tuple(
            {axis: torch.export.Dim(name, min=1, max=64) for axis, name in each.items()} for each in axes.values()
        )
        program = torch.onnx.export(
            module, inputs, input_names=names, dynamic_shapes=shapes or None, dynamo=True, verbose=False
        )
        return program.model_proto.SerializeToString()
    buffer = io.BytesIO()
    torch.onnx.export(module, inputs, buffer, input_names=names, dynamic_axes=axes, opset_version=17, dynamo=False)
    return buffer.getvalue()


@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "exported"])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_torch(name: str, dynamo: bool) -> None:
    make, inputs, axes, others = MODELS[name]
    if name == "transformer" and not dynamo:  # tracing writes the length down
        axes, others = {"ids": {0: "batch"}}, (tokens(3, 5),)
    torch.manual_seed(0)
    module = make().eval()
    content = exported(module, inputs, axes, dynamo)
    names = [info.name for info in onnx.load_from_string(content).graph.input]
    for given in (inputs, others):
        feeds = {name: each.numpy() for name, each in zip(names, given, strict=True)}
        with torch.no_grad():
            expected = [module(*given).numpy()]
        assert_alike(compiled(content, feeds), expected)
        assert_alike(compiled(content, feeds), by_onnxruntime(content, feeds))


class Boxes(nn.Module):
    """A detector's head: of each place of an image a box, and scores of two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.boxes, self.scores = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.body(x))
        middles, sizes = self.boxes(x).flatten(2).transpose(1, 2).split([2, 2], -1)
        corners = torch.cat([middles - sizes.exp(), middles + sizes.exp()], -1)
        return corners, self.scores(x).flatten(2).sigmoid()


def test_a_detector_with_non_max_suppression_behind_it() -> None:
    torch.manual_seed(0)
    buffer = io.BytesIO()
    outputs = ["boxes", "scores"]
    torch.onnx.export(
        Boxes().eval(), (floats(1, 3, 16, 16),), buffer, input_names=["x"], output_names=outputs, dynamo=False
    )
    model = onnx.load_from_string(buffer.getvalue())
    limits = {"most": np.array([5]), "overlap": np.float32([0.5]), "least": np.float32([0.4])}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in limits.items())
    model.graph.node.append(helper.make_node("NonMaxSuppression", [*outputs, *limits], ["chosen"]))
    model.graph.output.append(helper.make_tensor_value_info("chosen", onnx.TensorProto.INT64, [None, 3]))
    content, feeds = model.SerializeToString(), {"x": floats(1, 3, 16, 16).numpy()}
    assert_alike(compiled(content, feeds), by_onnxruntime(content, feeds))


class Greedy(nn.Module):
    """A recurrent decoder that feeds its own choices back: `for` becomes a Loop."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(8, 10)

    def forward(self, token: torch.Tensor, steps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = self.table(token)
        for _ in range(int(steps)):
            state = torch.tanh(self.mix(state + self.table(token)))
            token = self.head(state).argmax(-1)
        return state, token


def test_a_decoder_that_loops() -> None:
    torch.manual_seed(0)
    module = torch.jit.script(Greedy().eval())
    first, steps, buffer = tokens(3, most=10), torch.tensor(4), io.BytesIO()
    torch.onnx.export(module, (first, steps), buffer, input_names=["token", "steps"], dynamo=False, opset_version=17)
    content = buffer.getvalue()
    assert any(node.op_type == "Loop" for node in onnx.load_from_string(content).graph.node)
    for count in (0, 1, 6):
        feeds = {"token": first.numpy(), "steps": np.array(count)}
        expected = [each.detach().numpy() for each in module(first, torch.tensor(count))]
        assert_alike(compiled(content, feeds), expected)


@pytest.mark.parametrize("name", ["cnn", "transformer", "codes"])
@pytest.mark.parametrize("keeps", [False, True], ids=["all", "inside"])
def test_what_onnxruntimes_converter_makes_float16(name: str, keeps: bool) -> None:
    """Where inputs and outputs keep their types, it writes the casts of inputs after the nodes that read them."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    make, inputs, axes, _ = MODELS[name]
    torch.manual_seed(0)
    content = exported(make().eval(), inputs, axes if name != "transformer" else {"ids": {0: "batch"}}, dynamo=False)
    model = convert_float_to_float16(onnx.load_from_string(content), keep_io_types=keeps)
    feeds = {info.name: each.numpy() for info, each in zip(model.graph.input, inputs, strict=True)}
    if not keeps:
        feeds = {key: each.astype(np.float16) if each.dtype == np.float32 else each for key, each in feeds.items()}
    content = model.SerializeToString()
    assert_alike(compiled(content, feeds), by_onnxruntime(content, feeds), 5e-3)
