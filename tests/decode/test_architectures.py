"""Decoders as onnxruntime-genai's builder writes them: texts are those of onnxruntime, called token by token."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import treadle
from treadle.decode.contexts import Appended
from treadle.decode.step_contexts import StepContexts
from treadle.formats.messages.errors import ArgumentError
from treadle.tools.dev.zoo.folders import listening
from treadle.tools.dev.zoo.genai import ATTENTION, CONVOLUTION, WINDOW, decoder

PROMPT, COUNT = [3, 1, 4, 1, 5, 9, 2], 12  # more than the window


def greedy(model: onnx.ModelProto, prompt: list[int], count: int, **fed: np.ndarray) -> list[int]:
    """The likeliest tokens after a prompt, by onnxruntime; `fed` are what an encoder has made."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    sizes = {"batch_size": 1, "past_sequence_length": 0, "past_sliding_length": 0, "kv_cache_dim": 16}
    caches = {
        each.name: np.zeros([sizes.get(size, size) for size in each.shape], np.float32)
        for each in session.get_inputs()
        if each.name.startswith("past") and each.name not in fed
    }
    outputs = [each.name for each in session.get_outputs()]
    text, ids = list(prompt), list(prompt)
    for _ in range(count):
        feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(text)), np.int64), **fed, **caches}
        taken = {each.name: feeds[each.name] for each in session.get_inputs()}
        made = dict(zip(outputs, session.run(outputs, taken), strict=True))
        caches = {name: made[name.replace("past_key_values", "past").replace("past", "present")] for name in caches}
        ids = [int(made["logits"][0, -1].argmax())]
        text += ids
    return text[len(prompt) :]


@pytest.mark.parametrize(("layers", "bits"), [((WINDOW, ATTENTION), 4), ((CONVOLUTION, WINDOW), 0)])
def test_texts_are_those_of_onnxruntime(layers: tuple[str, str], bits: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the size of a head has a name, and only one number is left for it
        executable = treadle.compile(decoder(layers, bits=bits), decode_loop=True, progress=False)
    machine = treadle.VirtualMachine(executable)
    wanted = greedy(decoder(layers, bits=bits, keeps_windows=False), PROMPT, COUNT)
    assert list(treadle.generate(machine, PROMPT, max_new_tokens=COUNT)) == wanted
    assert machine["generate"]([PROMPT], COUNT, np.zeros(0, int)).numpy()[0].tolist() == wanted
    of_attention = sum(kind != CONVOLUTION for kind in layers)
    names = machine.outputs("main.step").names
    assert sum(name.startswith("new.") for name in names) == 2 * of_attention  # rows alone, not longer caches


def test_states_begin_as_zeros_without_a_step() -> None:
    model = decoder((CONVOLUTION, ATTENTION))
    plain = treadle.VirtualMachine(treadle.compile(model, opt_level=0, progress=False))
    assert list(treadle.generate(plain, PROMPT, max_new_tokens=4)) == greedy(model, PROMPT, 4)


def test_a_head_of_the_last_token_is_asked_for_each() -> None:
    """`prune_lm_head`: logits of several tokens take several calls."""
    made = []
    for head in ("all", "last"):
        machine = treadle.VirtualMachine(treadle.compile(decoder(head=head), opt_level=0, progress=False))
        contexts = StepContexts(machine)
        made.append(contexts.append([Appended(contexts.open(), np.array(PROMPT), 3)])[0])
    np.testing.assert_allclose(made[1], made[0], rtol=1e-5, atol=1e-5)


def test_a_decoder_without_a_head_generates_nothing() -> None:
    """`exclude_lm_head`: hidden states are no logits."""
    executable = treadle.compile(decoder(head="none"), progress=False)
    assert executable.globals == ["main"]
    with pytest.raises(ArgumentError, match=r"gives no logits.*got hidden_states; export the model with its head"):
        treadle.generate(treadle.VirtualMachine(executable), PROMPT, max_new_tokens=1)


def test_states_of_shorter_texts_are_computed_again() -> None:
    machine = treadle.VirtualMachine(treadle.compile(decoder((CONVOLUTION, ATTENTION)), progress=False))
    contexts = StepContexts(machine)

    def logits(context: int, *tokens: int) -> np.ndarray:
        return contexts.append([Appended(context, np.array(tokens))])[0][0]

    whole, short = contexts.open(), contexts.open()
    logits(whole, 3, 1, 4, 1, 5)
    logits(short, 3, 1, 4)
    wanted = logits(contexts.fork(short, 3), 9)
    np.testing.assert_array_equal(logits(contexts.fork(whole, 3), 9), wanted)
    back = contexts.restored(contexts.saved(whole), 5)
    for context in (whole, back):
        contexts.shorten(context, 3)
        np.testing.assert_array_equal(logits(context, 9), wanted)


def test_a_folder_with_an_encoder_is_one_executable(tmp_path: Path) -> None:
    folder = listening(tmp_path / "whisper")
    executable = treadle.compile(folder, progress=False)
    assert executable.globals == ["main", "encoder", "main.step"]
    machine = treadle.VirtualMachine(executable)
    sound = np.random.default_rng(0).normal(size=(1, 8, 6)).astype(np.float32)
    session = onnxruntime.InferenceSession(folder / "encoder.onnx", providers=["CPUExecutionProvider"])
    outputs = [each.name for each in session.get_outputs()]
    made = dict(zip(outputs, session.run(outputs, {"audio_features": sound}), strict=True))
    cross = {name.replace("present", "past"): each for name, each in made.items() if "cross" in name}
    wanted = greedy(onnx.load(folder / "decoder.onnx"), [3, 1], COUNT, **cross)
    for feeds in ({"audio_features": sound}, cross):
        assert list(treadle.generate(machine, [3, 1], max_new_tokens=COUNT, feeds=feeds)) == wanted
    with pytest.raises(ArgumentError, match="the encoder takes audio_features; expected feeds="):
        treadle.generate(machine, [3, 1], max_new_tokens=1)
