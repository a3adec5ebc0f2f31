"""Texts of their own lengths in one call, over pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle
from treadle.decode.contexts import Appended
from treadle.decode.paged_contexts import PagedContexts, has_pages
from treadle.formats.messages.errors import ArgumentError, CacheFullError, CheckError, CompileError
from treadle.vm.machine import CancelToken

from .test_generation import decoder, runtime_decoder

WORDS = 23


def gpt() -> Any:
    pytest.importorskip("onnx")
    from treadle.tools.dev.zoo.gpt import gpt

    return gpt(2, 32, 2, vocabulary=WORDS)


def llama() -> Any:
    pytest.importorskip("onnx")
    from treadle.tools.dev.zoo.llama import llama

    return llama(2, 64, 4, 2, vocabulary=WORDS, batch="batch")


def machine_of(model: Any) -> treadle.VirtualMachine:
    return treadle.VirtualMachine(treadle.compile(model, progress=False))


def of_8_bits() -> Any:
    return treadle.compile(runtime_decoder(), progress=False, cache_dtype="uint8")


@pytest.fixture(
    scope="module", params=[runtime_decoder, of_8_bits, pytest.param(llama, marks=pytest.mark.thorough), gpt]
)
def machine(request: Any) -> treadle.VirtualMachine:
    made = request.param()
    return treadle.VirtualMachine(made) if isinstance(made, treadle.Executable) else machine_of(made)


def alone(machine: treadle.VirtualMachine, text: np.ndarray) -> np.ndarray:
    """All logits of a text, by the decoder as it was exported."""
    given = {}
    pages = machine.inputs("main.batch")
    for port in machine.inputs("main"):
        if port.name == "input_ids":
            given[port.name] = text[None]
        elif port.name == "attention_mask":
            given[port.name] = np.ones((1, len(text)), int)
        else:
            given[port.name] = np.zeros((1, pages[port.name].shape[1], 0, port.shape[-1]), "f")
    return machine["main"](**given)[0].numpy()[0]


def check_logits(machine: treadle.VirtualMachine, text: np.ndarray, logits: np.ndarray) -> None:
    """They are those of the decoder as it was exported, as far as the pages' type allows."""
    expected = alone(machine, text)
    if (dtype := machine.inputs("main.batch")[-1].dtype) == np.float32:
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    else:
        largest = {"float16": 0.002, "bfloat16": 0.02, "uint8": 0.02}[str(dtype)]
        assert 0 < np.sqrt(((logits - expected) ** 2).mean()) < largest * expected.std()


def test_any_batch_and_any_pieces_give_the_bits_of_a_text_alone(machine: treadle.VirtualMachine):
    random = np.random.default_rng(0)
    texts = [random.integers(0, WORDS, count) for count in (1, 2, 16, 31, 32, 33, 60)]
    contexts = PagedContexts(machine, tokens=1000)
    assert contexts.vocabulary == WORDS
    whole = [contexts.append([Appended(contexts.open(), text, len(text))])[0] for text in texts]
    for text, logits in zip(texts, whole, strict=True):
        check_logits(machine, text, logits)
    numbers, done = [contexts.open() for _ in texts], [0] * len(texts)
    while any(left := [len(text) - at for text, at in zip(texts, done, strict=True)]):
        going = [each for each in random.permutation(len(texts)) if left[each] and random.random() < 0.6]
        counts = [min(left[each], int(random.choice([1, 1, 2, 5, 40]))) for each in going]
        wanted = [int(random.integers(0, count + 1)) for count in counts]
        pieces = [
            Appended(numbers[each], texts[each][done[each] : done[each] + count], some)
            for each, count, some in zip(going, counts, wanted, strict=True)
        ]
        for each, count, some, logits in zip(going, counts, wanted, contexts.append(pieces), strict=True):
            done[each] += count
            np.testing.assert_array_equal(logits, whole[each][done[each] - some : done[each]])


def test_forks_share_pages_and_go_on_as_their_text(machine: treadle.VirtualMachine):
    text = np.arange(45) % WORDS
    contexts = PagedContexts(machine, tokens=320)
    first = contexts.open()
    whole = contexts.append([Appended(first, text, 45)])[0]
    free = contexts.room()
    forks = [contexts.fork(first, length) for length in (45, 40, 32, 0)]
    assert free - contexts.room() <= 2 * 32 * len(forks)
    for fork, length in zip(forks[1:], (40, 32, 0), strict=True):
        logits = contexts.append([Appended(fork, text[length:], 45 - length)])[0]
        np.testing.assert_array_equal(logits, whole[length:])
    contexts.shorten(first, 33)
    np.testing.assert_array_equal(contexts.append([Appended(first, text[33:], 12)])[0], whole[33:])
    with pytest.raises(CheckError, match=r"context \d+ has 45 tokens, not 46"):
        contexts.fork(first, 46)
    for each in (first, *forks):
        contexts.close(each)
    assert contexts.room() == 320


def test_what_is_saved_goes_on_elsewhere(machine: treadle.VirtualMachine):
    text = np.arange(50) % WORDS
    contexts, others = (PagedContexts(machine, tokens=100) for _ in range(2))
    number = contexts.open()
    contexts.append([Appended(number, text[:40], 0)])
    saved = contexts.saved(number)
    assert saved.keys() == {port.name for port in machine.inputs("main") if "past" in port.name}
    restored = others.restored(saved, 40)
    assert others.length(restored) == 40
    ends = [each.append([Appended(one, text[40:], 10)])[0] for each, one in ((contexts, number), (others, restored))]
    np.testing.assert_array_equal(*ends)
    name = next(iter(saved))
    for wrong in (
        {},
        {**saved, name: saved[name][:, :, 1:]},
        {**saved, name: saved[name].astype("f8")},
        {**saved, "x": saved[name]},
    ):
        with pytest.raises(ArgumentError, match="restored: "):
            others.restored(wrong, 40)


def test_where_there_is_no_room_or_a_call_ends_nothing_is_appended(machine: treadle.VirtualMachine):
    cancel = CancelToken()
    contexts = PagedContexts(machine, tokens=64, cancel=cancel)
    one, other = contexts.open(), contexts.open()
    text = np.arange(33) % WORDS
    before = contexts.append([Appended(one, text[:20], 1)])[0]
    with pytest.raises(CacheFullError):
        contexts.append([Appended(other, text, 1), Appended(one, text[:1], 1)])
    cancel.cancel()
    with pytest.raises(treadle.TreadleError):
        contexts.append([Appended(one, text[20:22], 1)])
    assert (contexts.length(one), contexts.length(other)) == (20, 0)
    again = PagedContexts(machine, tokens=64)
    np.testing.assert_array_equal(again.append([Appended(again.open(), text[:20], 1)])[0], before)
    for wrong in ([Appended(one, text[:0], 0)], [Appended(one, text[:2], 3)], [Appended(one, text[:2])] * 2):
        with pytest.raises(CheckError):
            contexts.append(wrong)


def test_a_decoder_that_is_not_understood_has_no_such_function():
    """Its heads have 8 elements, which no kernel takes."""
    assert not has_pages(machine_of(decoder()), "main")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_pages_of_16_bits_give_the_same_bits_in_any_pieces_too(dtype: str):
    machine = treadle.VirtualMachine(treadle.compile(runtime_decoder(), progress=False, cache_dtype=dtype))
    text = np.arange(50) % WORDS
    contexts, others = (PagedContexts(machine, tokens=200) for _ in range(2))
    whole = contexts.append([Appended(contexts.open(), text, 50)])[0]
    check_logits(machine, text, whole)
    one = others.open()
    for first, last in ((0, 33), (33, 34), (34, 50)):
        np.testing.assert_array_equal(
            others.append([Appended(one, text[first:last], last - first)])[0], whole[first:last]
        )
    saved = others.saved(one)
    assert {str(each.dtype) for each in saved.values()} == {dtype}
    assert others.restored(saved, 50) != one


def test_pages_have_their_types():
    with pytest.raises(CompileError, match="cache_dtype='int8': expected one of bfloat16, float16, float32, uint8, or"):
        treadle.compile(runtime_decoder(), progress=False, cache_dtype="int8")
