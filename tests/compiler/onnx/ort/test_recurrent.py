"""onnxruntime's own operators of decoders with states, against onnxruntime and the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest
import treadle
from onnx import helper
from treadle.formats.messages.errors import InferenceError, ModelError, UnsupportedOperatorError

from .runtime_models import RUNTIME, Arrays, check, compiled, floats, model_of

HEADS, DEPTH = 4, 8
WIDTH = HEADS * DEPTH


@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
@pytest.mark.parametrize("length", [1, 5])
def test_a_convolution_goes_on_from_its_state(activation: str, length: int) -> None:
    inputs, weights = {"x": floats(2, 20, length), "past": floats(2, 20, 3)}, {"w": floats(20, 1, 4), "b": floats(20)}
    names = ["x", "w", "b", "past"]
    check("CausalConvWithState", inputs, ("y", "state"), names=names, constants=weights, activation=activation, ndim=1)


def attended(key_heads: int, length: int = 5) -> Arrays:
    keys = {name: floats(2, length, key_heads * DEPTH, seed=seed) * 0.3 for seed, name in enumerate("qk")}
    gates = {"decay": -np.abs(floats(2, length, HEADS)), "beta": np.abs(floats(2, length, HEADS, seed=5)) / 4}
    return {**keys, "v": floats(2, length, WIDTH, seed=2), "past": floats(2, HEADS, DEPTH, DEPTH), **gates}


@pytest.mark.parametrize("key_heads", [HEADS, 2])
@pytest.mark.parametrize("length", [1, 5])
def test_linear_attention_goes_on_from_its_state(key_heads: int, length: int) -> None:
    inputs = attended(key_heads, length)
    check("LinearAttention", inputs, ("y", "state"), q_num_heads=key_heads, kv_num_heads=HEADS, state_window=0)


def test_linear_attention_of_symbolic_lengths_has_known_widths() -> None:
    inputs = attended(HEADS)
    shapes = {name: ("batch", "length", *array.shape[2:]) for name, array in inputs.items() if name != "past"}
    node = helper.make_node("LinearAttention", [*inputs], ["y"], domain=RUNTIME, q_num_heads=HEADS, kv_num_heads=HEADS)
    model = model_of([node], inputs, ["y"], known=True)
    executable = treadle.compile(model, shapes=shapes | {"past": ("batch", HEADS, DEPTH, DEPTH)}, progress=False)
    assert executable.outputs()[0].shape == ("batch", "length", WIDTH)


def test_linear_attention_takes_a_batch_that_was_exported_as_one() -> None:
    inputs = {name: array[:1] for name, array in attended(HEADS).items()}
    node = helper.make_node("LinearAttention", [*inputs], ["y"], domain=RUNTIME, q_num_heads=HEADS, kv_num_heads=HEADS)
    executable = treadle.compile(model_of([node], inputs, ["y"], known=True), batch="rows", progress=False)
    rows = {name: np.concatenate([array, array * 0.5]) for name, array in inputs.items()}
    got = treadle.VirtualMachine(executable)["main"](**rows).numpy()
    for row in range(2):
        one = compiled(model_of([node], inputs, ["y"], known=True))(
            {name: each[row : row + 1] for name, each in rows.items()}
        )
        np.testing.assert_array_equal(got[row : row + 1], one[0])


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
@pytest.mark.parametrize("size", [DEPTH, WIDTH])
def test_a_norm_with_a_gate(activation: str, size: int) -> None:
    inputs = {"x": floats(2, 5, WIDTH), "scale": floats(size), "gate": floats(2, 5, WIDTH, seed=1)}
    check("GatedRMSNorm", inputs, activation=activation, epsilon=1e-6)


def test_the_gates_of_linear_attention() -> None:
    inputs = {"a": floats(2, 5, HEADS), "dt": floats(HEADS), "scale": -np.abs(floats(HEADS, seed=1))}
    check("LinearAttentionGate", inputs, ("decay",))
    check("LinearAttentionGate", inputs | {"b": floats(2, 5, HEADS, seed=2)}, ("decay", "beta"))


def test_a_sum_with_a_gate() -> None:
    check("GatedAdd", {"x": floats(2, 5, 8), "other": floats(2, 5, 8, seed=1), "gate": floats(2, 5, 1, seed=2)})


def test_what_is_not_there_is_named() -> None:
    inputs = {"x": floats(2, 6, 5), "w": floats(6, 1, 4), "b": floats(6), "past": floats(2, 6, 3)}
    node = helper.make_node("CausalConvWithState", [*inputs], ["y", "state"], domain=RUNTIME, dilation=2)
    with pytest.raises(UnsupportedOperatorError, match="dilation must be 1, got 2"):
        compiled(model_of([node], inputs, ["y"]))
    norm = helper.make_node("GatedRMSNorm", ["x", "w"[:1], "x"], ["y"], domain=RUNTIME, activation="tanh")
    with pytest.raises(ModelError, match="activation 'tanh'; expected silu"):
        compiled(model_of([norm], {"x": floats(2, 6), "w": floats(6)}, ["y"]))
    empty = helper.make_node("GatedRMSNorm", ["x", "w", "x"], ["y"], domain=RUNTIME)
    with pytest.raises(ModelError, match=r"a scale float32\[0\] of no elements"):
        compiled(model_of([empty], {"x": floats(2, 6), "w": floats(0)}, ["y"], known=True))


REFUSED = {
    "update_rule 'other'; expected linear, gated, delta or gated_delta": {"update_rule": "other"},
    "update_rule 'gated' needs an input decay, got none": {"update_rule": "gated"},
    "2 heads of queries and 3 of values": {"update_rule": "linear", "kv_num_heads": 3},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_linear_attention_cannot_be_is_named(message: str) -> None:
    inputs = {name: floats(2, 5, WIDTH) for name in "qkv"}
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, **REFUSED[message]}
    node = helper.make_node("LinearAttention", [*inputs], ["y"], domain=RUNTIME, **attributes)
    with pytest.raises(ModelError, match=message):
        compiled(model_of([node], inputs, ["y"]))


@pytest.mark.parametrize(
    ("width", "error", "message"), [(0, ModelError, "elements for each head"), (1, InferenceError, "3 elements")]
)
def test_rows_of_linear_attention_have_elements_for_each_head(width: int, error: type, message: str) -> None:
    inputs = {name: floats(1, 3, width) for name in "qkv"}
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    node = helper.make_node("LinearAttention", [*inputs], ["y"], domain=RUNTIME, **attributes)
    with pytest.raises(error, match=message):
        compiled(model_of([node], inputs, ["y"], known=True))
