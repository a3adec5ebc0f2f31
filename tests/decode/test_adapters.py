"""Low-rank adapters: what PEFT writes is what is added, each text has its own, and no text sees another one's."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from treadle.decode.adapters import Adapter, Bound
from treadle.decode.contexts import Appended, Contexts
from treadle.decode.engine import Engine
from treadle.decode.paged_contexts import PagedContexts
from treadle.decode.step_contexts import StepContexts
from treadle.formats import session as files
from treadle.formats.decoders import ADAPTER_MASK
from treadle.formats.messages.errors import ArgumentError, CompileError, FormatError, TreadleError
from treadle.tools.dev.zoo.llama import llama

safetensors = pytest.importorskip("safetensors.numpy")
WORDS, WIDTH = 40, 32
MODEL = llama(1, WIDTH, 2, 1, vocabulary=WORDS, batch="batch")
PROMPT = [3, 1, 4, 1, 5, 9, 2]


@pytest.fixture(scope="module")
def machine() -> treadle.VirtualMachine:
    return treadle.VirtualMachine(treadle.compile(MODEL, adapters=True, progress=False))


@pytest.fixture(scope="module")
def bound(machine: treadle.VirtualMachine) -> Bound:
    return Bound(machine.inputs("main"), "main")


def adapter(bound: Bound, seed: int, rank: int = 4, *last: str) -> Adapter:
    """An adapter of modules whose names end so, by default of all."""
    rng = np.random.default_rng(seed)
    return Adapter(
        {
            f"model.{name}": (rng.normal(size=(inputs, rank)) / 4, rng.normal(size=(rank, outputs)) / 2)
            for name, (inputs, outputs) in bound.modules.items()
            if not last or name.rpartition(".")[2] in last
        }
    )


def write(folder: Path, modules: dict[str, Any], dtype: Any = np.float32, **config: Any) -> Path:
    """A folder as PEFT writes it. `modules`: A [rank, inputs] and B [outputs, rank]."""
    folder.mkdir(exist_ok=True)
    tensors = {}
    for name, pair in modules.items():
        for letter, array in zip("AB", pair, strict=True):
            tensors[f"base_model.model.{name}.lora_{letter}.weight"] = np.ascontiguousarray(array, dtype)
    safetensors.save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "target_modules": ["q_proj"], **config}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def merged(each: Adapter | None) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    for tensor in model.graph.initializer:
        name = f"model.{tensor.name.removesuffix('.weight_T')}"
        if each is not None and name in each.modules:
            a, b = each.modules[name]
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + a @ b, tensor.name))
    return model


def logits(contexts: Contexts, context: int, *tokens: int, wanted: int = 1) -> np.ndarray:
    return contexts.append([Appended(context, np.array(tokens), wanted)])[0]


def test_peft_s_folder_is_what_merged_weights_compute(
    machine: treadle.VirtualMachine, bound: Bound, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    given = adapter(bound, 1, 4, "q_proj", "v_proj", "down_proj")
    loaded = Adapter.load(write(tmp_path / "a", {name: (a.T, b.T / 2) for name, (a, b) in given.modules.items()}))
    assert str(loaded) == "<Adapter: 3 modules, rank 4>"
    assert loaded.digest == given.digest
    for each in (loaded, None):
        session = runtime.InferenceSession(merged(each).SerializeToString(), providers=["CPUExecutionProvider"])
        empty = np.zeros((1, 1, 0, WIDTH // 2), np.float32)
        expected = session.run(["logits"], {"input_ids": [PROMPT], "past.0.key": empty, "past.0.value": empty})[0][0]
        contexts = StepContexts(machine)
        found = logits(contexts, contexts.open(each), *PROMPT)
        np.testing.assert_allclose(found, expected[-1:], atol=1e-4)


@pytest.mark.parametrize("kind", [StepContexts, PagedContexts])
def test_texts_of_several_adapters_are_the_same_to_the_bit_as_alone(
    machine: treadle.VirtualMachine, bound: Bound, kind: Any
) -> None:
    given = [adapter(bound, 1), None, adapter(bound, 2, 20), adapter(bound, 3, 1, "q_proj"), adapter(bound, 1), None]
    prompts = [PROMPT, PROMPT, [5, 6], PROMPT[:5], [7], [8, 9, 8]]

    def alone(each: Adapter | None, prompt: list[int]) -> np.ndarray:
        contexts = kind(machine)
        context = contexts.open(each)
        first = logits(contexts, context, *prompt)
        return np.concatenate([first, *(logits(contexts, context, token) for token in (1, 2))])

    expected = [alone(*each) for each in zip(given, prompts, strict=True)]
    assert len({each.tobytes() for each in expected[:2]}) == 2
    contexts = kind(machine)
    names = [contexts.open(each) for each in given]
    found = [[] for _ in names]
    for new in (prompts, [[1]] * 6, [[2]] * 6):
        batch = [Appended(name, np.array(tokens)) for name, tokens in zip(names, new, strict=True)]
        for rows, each in zip(found, contexts.append(batch), strict=True):
            rows.append(each)
    for rows, each in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.concatenate(rows), each)
    other = contexts.fork(names[2], 2)
    pieces = kind(machine)
    start = pieces.open(given[2])
    logits(pieces, start, 5)
    logits(pieces, start, 6)
    np.testing.assert_array_equal(logits(contexts, other, 4), logits(pieces, start, 4))


def test_the_engine_and_generate_take_one_for_each_text(machine: treadle.VirtualMachine, bound: Bound) -> None:
    given = [adapter(bound, 4), None, adapter(bound, 5)]
    alone = [list(treadle.generate(machine, PROMPT, max_new_tokens=12, adapter=each)) for each in given]
    assert len(set(map(tuple, alone))) == 3
    together = treadle.generate(machine, [PROMPT] * 3, max_new_tokens=12, adapter=given)
    assert np.stack(list(together), axis=1).tolist() == alone
    with treadle.Engine(machine) as engine:
        for _ in range(2):  # the second time, the beginnings are known; each adapter's are its own
            texts = [engine.submit(PROMPT * 3, max_new_tokens=12, adapter=each) for each in given]
            found = [[token.id for token in text] for text in texts]
        assert all(text.cached_tokens >= 16 for text in texts)
        beams = [engine.beams(PROMPT, max_new_tokens=5, count=2, adapter=each) for each in given]
        greedy = [engine.beams(PROMPT, max_new_tokens=5, count=1, adapter=each)[0].tokens for each in given]
    assert len({tuple(each[0].tokens) for each in beams}) == 3
    assert greedy == [each[:5] for each in alone]
    assert found == [list(treadle.generate(machine, PROMPT * 3, max_new_tokens=12, adapter=each)) for each in given]


def test_what_overflows_by_one_adapter_is_not_seen_by_others(machine: treadle.VirtualMachine, bound: Bound) -> None:
    huge = Adapter({name: (a * 1e38, b) for name, (a, b) in adapter(bound, 1).modules.items()})
    contexts = StepContexts(machine)
    together = contexts.open_together(2, adapters=[huge, None])
    both = contexts.append([Appended(each, np.array(PROMPT)) for each in together])
    alone = logits(contexts, contexts.open(), *PROMPT)
    assert not np.isfinite(both[0]).all()
    np.testing.assert_array_equal(both[1], alone)


def test_packed_modules_take_the_adapters_of_their_parts() -> None:
    shapes = {"a.layers.0.attn.qkv_proj": (6, 16), "a.layers.0.mlp.gate_up_proj": (6, 8)}
    packed = Bound([], "main")
    packed.modules.update(shapes)
    rng = np.random.default_rng(1)

    def pair(outputs: int, rank: int) -> Any:
        return rng.normal(size=(6, rank)).astype("f"), rng.normal(size=(rank, outputs)).astype("f")

    parts = {"self_attn.q_proj": pair(8, 2), "self_attn.v_proj": pair(4, 3), "mlp.up_proj": pair(4, 2)}
    made = packed._pairs(Adapter({f"base.a.layers.0.{name}": each for name, each in parts.items()}))
    delta = {name: a @ b for name, (a, b) in made.items()}
    wanted = {name: a @ b for name, (a, b) in parts.items()}
    expected = np.concatenate([wanted["self_attn.q_proj"], np.zeros((6, 4)), wanted["self_attn.v_proj"]], axis=1)
    np.testing.assert_allclose(delta["a.layers.0.attn.qkv_proj"], expected, rtol=1e-5)
    expected = np.concatenate([np.zeros((6, 4)), wanted["mlp.up_proj"]], axis=1)
    np.testing.assert_allclose(delta["a.layers.0.mlp.gate_up_proj"], expected, rtol=1e-5)
    with pytest.raises(ArgumentError, match="q_proj has 20 outputs; 16 are those of"):
        packed._pairs(Adapter({"a.layers.0.attn.q_proj": pair(20, 2)}))


def linear(form: str) -> tuple[onnx.ModelProto, np.ndarray]:
    """A model of one linear module [64, 48] over words, as exporters write it, and the words times its weights."""
    rng = np.random.default_rng(2)
    words = rng.normal(size=(WORDS, 64)).astype(np.float32)
    weight = rng.normal(size=(64, 48)).astype(np.float32) / 8
    path, name, kind = "model.layers.3.mlp.up_proj", "/model/layers.3/mlp/up_proj/MatMul", TensorProto.FLOAT
    weights, nodes = {"words": words}, [helper.make_node("Gather", ["words", "input_ids"], ["x"], "/embed")]
    if form == "MatMul":
        weights["onnx::MatMul_17"] = weight
        nodes.append(helper.make_node("MatMul", ["x", "onnx::MatMul_17"], ["y"], name))
    elif form == "transposed":
        weights[f"{path}.weight"] = weight.T.copy()
        nodes.append(helper.make_node("Transpose", [f"{path}.weight"], ["t"], "node_t_1", perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["x", "t"], ["y"], "node_linear_1"))
    elif form == "Gemm":
        weights |= {f"{path}.weight": weight.T.copy(), "rows": np.array([-1, 64]), "size": np.array([48])}
        nodes.append(helper.make_node("Reshape", ["x", "rows"], ["flat"]))
        nodes.append(helper.make_node("Gemm", ["flat", f"{path}.weight"], ["g"], "Gemm_7", transB=1))
        nodes += [
            helper.make_node("Shape", ["input_ids"], ["s"]),
            helper.make_node("Concat", ["s", "size"], ["s3"], axis=0),
        ]
        nodes.append(helper.make_node("Reshape", ["g", "s3"], ["y"]))
    elif form == "float16":
        weights |= {"words": words.astype(np.float16), f"{path}.weight": weight.astype(np.float16)}
        nodes.append(helper.make_node("MatMul", ["x", f"{path}.weight"], ["y"], "n"))
        kind = TensorProto.FLOAT16
    else:
        numbers, scales = rng.integers(0, 16, (48, 64), np.uint8), rng.normal(size=(48, 2)).astype(np.float32) / 8
        weight = ((numbers.astype(np.float32) - 8).reshape(48, 2, 32) * scales[..., None]).reshape(48, 64).T
        packed = (numbers[:, ::2] | numbers[:, 1::2] << 4).reshape(48, 2, 16)
        weights |= {f"{path}.MatMul.weight_Q4": packed, "scales": scales}
        given = {"K": 64, "N": 48, "bits": 4, "block_size": 32}
        operands = ["x", f"{path}.MatMul.weight_Q4", "scales"]
        nodes.append(helper.make_node("MatMulNBits", operands, ["y"], f"{name}_Q4", domain="com.microsoft", **given))
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    result = helper.make_tensor_value_info("y", kind, ["batch", "length", 48])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "linear", [ids], [result], tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets), words @ weight


@pytest.mark.parametrize("form", ["MatMul", "transposed", "Gemm", "float16", "MatMulNBits"])
def test_linear_modules_are_found_as_exporters_write_them(form: str) -> None:
    model, expected = linear(form)
    machine = treadle.VirtualMachine(treadle.compile(model, adapters=["up_proj"], progress=False))
    bound = Bound(machine.inputs("main"), "main")
    assert bound.modules == {"model.layers.3.mlp.up_proj": (64, 48)}
    given = adapter(bound, 3)
    ((a, b),) = given.modules.values()
    words = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == "words"))
    with_it = expected + words.astype(np.float32) @ a @ b
    ids = np.array([[1, 2, 3], [4, 5, 6]])
    fed = bound.inputs([given, None], [3, 3])
    fed[ADAPTER_MASK] = fed[ADAPTER_MASK].reshape(2, 3, -1)
    found = machine["main"](input_ids=ids, **fed).numpy().astype(np.float32)
    tolerance = 0.05 if form == "float16" else 1e-4
    np.testing.assert_allclose(found[0], with_it[ids[0]], atol=tolerance)
    np.testing.assert_allclose(found[1], expected[ids[1]], atol=tolerance)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"adapters": ["q_prj"]},
            "no linear module 'q_prj' in the model's numbered layers; they have .*did you mean q_proj",
        ),
        ({"adapters": "q_proj"}, r"adapters='q_proj': expected True, or names of modules such as \['q_proj'"),
        ({"adapters": [1]}, "expected True, or names"),
        ({"adapters": True, "batch": "n"}, "in the place of batch"),
        ({"adapters": True, "decode_loop": True}, "taken by treadle.generate alone"),
    ],
)
def test_what_takes_no_adapters_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        treadle.compile(MODEL, progress=False, **options)


def test_a_model_without_layers_takes_none() -> None:
    model, _ = linear("MatMul")
    model.graph.node[1].name = "/up_proj/MatMul"
    with pytest.raises(CompileError, match="no linear modules in numbered layers"):
        treadle.compile(model, adapters=True, progress=False)


def test_an_adapter_for_another_decoder_is_refused(machine: treadle.VirtualMachine, bound: Bound) -> None:
    plain = treadle.VirtualMachine(treadle.compile(MODEL, progress=False))
    ok = adapter(bound, 1)
    pair = np.zeros((WIDTH, 2)), np.zeros((2, WIDTH))
    other = Adapter({"model.layers.7.self_attn.q_proj": pair})
    larger = Adapter({"layers.0.self_attn.q_proj": (np.zeros((WIDTH * 2, 2)), np.zeros((2, WIDTH)))})
    for model, given, message in (
        (plain, ok, r"main takes none; treadle.compile\(…, adapters=True\)"),
        (machine, "adapter/", "expected a treadle.Adapter, got a str"),
        (machine, other, "compiled without an adapter of 'model.layers.7.self_attn.q_proj'"),
        (machine, larger, f"expected {WIDTH} inputs and {WIDTH} outputs, got {2 * WIDTH}"),
    ):
        with pytest.raises(ArgumentError, match=message):
            treadle.Engine(model).submit(PROMPT, max_new_tokens=3, adapter=given)
        with pytest.raises(ArgumentError, match=message):
            treadle.generate(model, PROMPT, max_new_tokens=3, adapter=given)
    with pytest.raises(ArgumentError, match="expected one for each of 1 prompts, got 2"):
        treadle.generate(machine, PROMPT, max_new_tokens=3, adapter=[ok, ok])
    for wrong, message in (((pair[0], pair[0]), "expected A"), ((pair[0] + np.nan, pair[1]), "finite")):
        with pytest.raises(ArgumentError, match=message):
            Adapter({"layers.0.self_attn.q_proj": wrong})


PAIR = np.ones((4, WIDTH)), np.ones((WIDTH, 4))
NAME = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({}, 2),
        ({"use_rslora": True}, 4),
        ({"alpha_pattern": {"q_proj": 1}}, 0.25),
        ({"alpha_pattern": {"k_proj": 1}}, 2),
    ],
)
def test_scales_are_peft_s(tmp_path: Path, config: dict[str, Any], scale: float) -> None:
    loaded = Adapter.load(write(tmp_path / "a", {NAME: PAIR}, np.float16, **config))
    assert loaded.modules[NAME][1][0, 0] == scale


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "expected an object with peft_type LORA"),
        ({"use_dora": True}, "use_dora is True; adapters that do more"),
        ({"bias": "all"}, "bias is all"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is"),
        ({"lora_alpha": "8"}, "lora_alpha of"),
        ({"lora_alpha": 1e300}, "lora_alpha of"),
    ],
)
def test_other_adapters_are_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Adapter.load(write(tmp_path / "a", {NAME: PAIR}, **config))


def exported(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    runtime = pytest.importorskip("onnxruntime")
    file = runtime.AdapterFormat()
    file.set_adapter_version(1)
    file.set_model_version(1)
    file.set_parameters({name: runtime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()})
    file.export_adapter(str(path))
    return path


def test_onnxruntime_s_files_are_read(tmp_path: Path) -> None:
    a, b = (np.random.default_rng(1).normal(size=size).astype("f") for size in ((WIDTH, 4), (4, 16)))
    arrays = {f"{NAME}.lora_A.weight": a, f"{NAME}.lora_B.weight": b}
    loaded = Adapter.load(exported(tmp_path / "x.onnx_adapter", arrays))
    for found, expected in zip(loaded.modules[NAME], (a, b), strict=True):
        np.testing.assert_array_equal(found, expected)
    half = Adapter.load(exported(tmp_path / "y", {name: array.astype(np.float16) for name, array in arrays.items()}))
    np.testing.assert_allclose(half.modules[NAME][0], a, rtol=1e-3)
    data = (tmp_path / "x.onnx_adapter").read_bytes()
    rng = np.random.default_rng(0)
    for count in range(1500):
        mutated = bytearray(data[: None if count % 4 else rng.integers(len(data))])
        for _ in range(rng.integers(0, 4)):
            if mutated:
                places = [
                    rng.integers(len(mutated)),
                    rng.integers(min(len(mutated), 200)),
                    len(mutated) - 1 - rng.integers(160) % len(mutated),
                ]
                mutated[places[rng.integers(3)]] = rng.integers(256)
        (tmp_path / "z").write_bytes(mutated)
        with contextlib.suppress(FormatError):
            Adapter.load(tmp_path / "z")
    (tmp_path / "z").write_bytes(b"x")
    with pytest.raises(FormatError, match=r"z is not an \.onnx_adapter file"):
        Adapter.load(tmp_path / "z")


def test_damaged_folders_are_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", {NAME: PAIR})
    files = [folder / "adapter_config.json", folder / "adapter_model.safetensors"]
    whole = [file.read_bytes() for file in files]
    rng = np.random.default_rng(0)
    for _ in range(300):
        for file, data in zip(files, whole, strict=True):
            mutated = bytearray(data)
            for _ in range(rng.integers(0, 4)):
                mutated[rng.integers(min(len(mutated), 300))] = rng.integers(256)
            file.write_bytes(bytes(mutated[: rng.integers(1, len(mutated) + 1)]) if rng.integers(4) == 0 else mutated)
        with contextlib.suppress(TreadleError):
            assert Adapter.load(folder).modules.keys()
    files[1].unlink()
    with pytest.raises(TreadleError, match=r"adapter_model\.safetensors"):
        Adapter.load(folder)
    with pytest.raises(TreadleError, match=r"has no adapter_config\.json"):
        Adapter.load(tmp_path)


@pytest.mark.parametrize("with_caches", [True, False])
def test_a_session_goes_on_with_its_adapter(
    machine: treadle.VirtualMachine, bound: Bound, tmp_path: Path, with_caches: bool
) -> None:
    given, other = Adapter(adapter(bound, 1).modules, name="poet"), adapter(bound, 2)
    with Engine(machine) as engine:
        session = engine.session(PROMPT * 12, treadle.Sampler(0.0), adapter=given)
        made = [token.id for token in session.generate(40)]
        path = session.save(tmp_path / "a.trses")
        expected = [token.id for token in session.fork().generate(12)]
        plain = engine.session(PROMPT).save(tmp_path / "b.trses")
    alone = list(treadle.generate(machine, PROMPT * 12, max_new_tokens=52, adapter=given))
    assert [*made, *expected] == alone
    if not with_caches:
        found = files.load(path)
        path = files.save(replace(found, held=0, caches={}), path)
    with Engine(machine) as engine:
        text = engine.resume(path, adapter=Adapter(given.modules)).generate(12)  # the name is for messages
        assert [token.id for token in text] == expected
        assert (text.cached_tokens > 0) == with_caches
        for wrong, message in (
            (other, r"the adapter 'poet' of digest \w{12}, got '' of digest"),
            (None, r"the adapter 'poet' of digest \w{12}, got none"),
            ("poet", "resume: adapter: expected a treadle.Adapter, got"),
        ):
            with pytest.raises(ArgumentError, match=message):
                engine.resume(path, adapter=wrong)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="a session without an adapter, got"):
            engine.resume(plain, adapter=given)
