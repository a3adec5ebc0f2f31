"""onnxruntime's mixtures of experts, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle
from onnx import helper
from treadle.formats.messages.errors import ModelError, UnsupportedOperatorError

from .runtime_models import RUNTIME, check, compiled, floats, model_of

EXPERTS, FEATURES, INNER = 4, 32, 16


def _weights(columns: int = INNER) -> dict[str, np.ndarray]:
    return {
        "w1": floats(EXPERTS, columns, FEATURES),
        "b1": floats(EXPERTS, columns),
        "w2": floats(EXPERTS, FEATURES, INNER),
        "b2": floats(EXPERTS, FEATURES),
    }


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize(("k", "normalize"), [(1, 0), (2, 0), (2, 1), (4, 1)])
@pytest.mark.parametrize("shape", [(5, FEATURES), (2, 3, FEATURES)])
def test_rows_go_through_the_experts_that_are_chosen(
    activation: str, k: int, normalize: int, shape: tuple[int, ...]
) -> None:
    inputs = {"x": floats(*shape), "router": floats(int(np.prod(shape[:-1])), EXPERTS, seed=1)}
    ways: dict[str, Any] = {"k": k, "normalize_routing_weights": normalize, "activation_type": activation}
    check("MoE", inputs, constants=_weights(), tolerance=2e-4, **ways)


@pytest.mark.parametrize(
    "bounds",
    [{}, {"swiglu_limit": 0.7}, {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0}],
)
def test_gated_experts(bounds: dict[str, float]) -> None:
    inputs = {"x": floats(5, FEATURES), "router": floats(5, EXPERTS, seed=1)}
    ways: dict[str, Any] = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, **bounds}
    check("MoE", inputs, constants=_weights(2 * INNER), tolerance=2e-4, **ways)


def test_halves_that_lie_one_behind_the_other() -> None:
    """As columns that alternate, put in order: onnxruntime has no kernel of it for this CPU."""
    weights = _weights(2 * INNER)
    order = np.arange(2 * INNER).reshape(INNER, 2).T.reshape(-1)
    behind = weights | {"w1": weights["w1"][:, order], "b1": weights["b1"][:, order]}
    inputs = {"x": floats(5, FEATURES), "router": floats(5, EXPERTS, seed=1)}
    results = []
    for fusion, constants in ((1, weights), (2, behind)):
        node = helper.make_node(
            "MoE", [*inputs, *constants], ["y"], domain=RUNTIME, k=2, activation_type="swiglu", swiglu_fusion=fusion
        )
        results.append(compiled(model_of([node], inputs, ["y"], constants))(inputs)[0])
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


def test_an_expert_that_nobody_chooses() -> None:
    router = np.tile(np.float32([9, 1, 2, -9]), (5, 1))
    inputs = {"x": floats(5, FEATURES), "router": router}
    check("MoE", inputs, constants=_weights(), tolerance=2e-4, k=2, activation_type="relu")


def _packed(bits: int, block: int, rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(seed)
    whole = source.integers(0, 256, (EXPERTS, rows, columns * bits // 8)).astype(np.uint8)
    sizes = (EXPERTS, rows, columns // block) if block else (EXPERTS, rows)
    return whole, source.uniform(0.001, 0.01, sizes).astype(np.float32)


@pytest.mark.parametrize(("bits", "block"), [(4, 0), (8, 0), (4, 16), (4, 32)])
@pytest.mark.parametrize("rows", [1, 5])
def test_experts_of_few_bits(bits: int, block: int, rows: int) -> None:
    constants: dict[str, np.ndarray] = {}
    for number in (1, 2):
        constants[f"w{number}"], constants[f"s{number}"] = _packed(bits, block, FEATURES, FEATURES, number)
    constants |= {"b1": floats(EXPERTS, FEATURES)}
    inputs = {"x": floats(rows, FEATURES), "router": floats(rows, EXPERTS, seed=1)}
    ways: dict[str, Any] = {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}
    ways |= {"expert_weight_bits": bits} | ({"block_size": block} if block else {})
    names = ["x", "router", "w1", "s1", "b1", "w2", "s2"]
    for order in ({}, {"weights_prepacked": -1}, {"weights_prepacked": 0}):
        check("QMoE", inputs, names=names, constants=constants, tolerance=1e-3, **ways, **order)


def test_weights_of_few_bits_that_cannot_be_read_are_told() -> None:
    inputs = {"x": floats(5, FEATURES), "router": floats(5, EXPERTS)}
    names = ["x", "router", "w1", "s1", "", "w2", "s2"]

    def of(columns: int, **ways: Any) -> Any:
        constants: dict[str, np.ndarray] = {}
        for number in (1, 2):
            constants[f"w{number}"], constants[f"s{number}"] = _packed(4, 0, FEATURES, columns, number)
        node = helper.make_node("QMoE", names, ["y"], "the node", domain=RUNTIME, **ways)
        return model_of([node], inputs, ["y"], constants, known=True)

    with pytest.raises(UnsupportedOperatorError, match="weights_prepacked = 1"):
        treadle.compile(of(FEATURES, weights_prepacked=1), progress=False)
    for columns, block in ((0, 0), (FEATURES, -16), (FEATURES, 24)):
        with pytest.raises(ModelError, match=r"fc1_scales: expected a scale for each .*the node"):
            treadle.compile(of(columns, block_size=block), progress=False)


def test_what_is_not_known_is_named() -> None:
    constants = _weights()
    inputs = {"x": floats(5, FEATURES), "router": floats(5, EXPERTS + 1)}

    def of(**ways: Any) -> Any:
        node = helper.make_node("MoE", [*inputs, *constants], ["y"], "the node", domain=RUNTIME, **ways)
        return model_of([node], inputs, ["y"], constants, known=True)

    with pytest.raises(UnsupportedOperatorError, match=r"use_sparse_mixer = 1"):
        treadle.compile(of(use_sparse_mixer=1), progress=False)
    with pytest.raises(ModelError, match=r"scores of 4 experts.*got float32\[5, 5\] and k = 1.*the node"):
        treadle.compile(of(), progress=False)
    constants["w2"] = constants["w2"][1:]
    with pytest.raises(ModelError, match=r"the same number of experts in each layer, got 4, 3"):
        treadle.compile(of(), progress=False)
