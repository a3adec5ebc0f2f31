"""Texts from decoders: treadle.generate, and the loop in the executable."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import op
from treadle.decode.generation import Sampler, generate
from treadle.decode.step_contexts import _Rows
from treadle.formats.decoders import Roles
from treadle.formats.messages.errors import ArgumentError, BudgetExceededError, CancelledError, CompileError
from treadle.formats.ports import Port
from treadle.formats.types import tensor

WORDS, WIDTH, LONGEST = 23, 8, 64
PROMPT = [3, 1, 4, 1, 5]


def decoder(*, with_cache: bool = True, fixed: int | None = None) -> treadle.Module:
    """One layer of attention with a causal mask, which leaves out what attention_mask says; places by position_ids."""
    rng = np.random.default_rng(6)

    def weight(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("f")

    ids = treadle.var("input_ids", ("batch", "length"), "int64")
    mask = treadle.var("attention_mask", ("batch", "total"), "int64")
    places = treadle.var("position_ids", ("batch", "length"), "int64")
    past = [
        treadle.var(f"past_key_values.0.{name}", ("batch", 1, fixed or "past", WIDTH), "float32")
        for name in ("key", "value")
    ]
    x = op.take(treadle.constant(weight(WORDS, WIDTH)), ids, axis=0)
    x = x + op.take(treadle.constant(weight(LONGEST, WIDTH)), places, axis=0)
    query, key, value = (op.expand_dims(op.matmul(x, weight(WIDTH, WIDTH)), axes=(1,)) for _ in range(3))
    if with_cache:
        key, value = (op.concat(old, new, axis=2) for old, new in zip(past, (key, value), strict=True))
    key, value = (treadle.match_shape(each, ("batch", 1, "total", WIDTH)) for each in (key, value))
    scores = op.matmul(query, op.permute_dims(key, axes=(0, 1, 3, 2))) * 0.3
    here = op.reshape(op.arange(start=0, stop="total", step=1, dtype="int64"), shape=(1, 1, 1, "total"))
    first = op.arange(start="total - length", stop="total", step=1, dtype="int64")
    seen = op.less_equal(here, op.reshape(first, shape=(1, 1, "length", 1)))
    seen = op.logical_and(seen, op.reshape(op.not_equal(mask, 0), shape=("batch", 1, 1, "total")))
    weights = op.softmax(op.where(seen, scores, -1e9))
    context = op.squeeze(op.matmul(weights, value), axes=(1,))
    logits = treadle.named("logits", op.matmul(x + context, weight(WIDTH, WORDS)))
    results = [logits, *(treadle.named(f"present.0.{n}", v) for n, v in (("key", key), ("value", value)))]
    params = [ids, mask, places, *(past if with_cache else ())]
    return treadle.Module(main=treadle.function(params, treadle.tuple_(*results[: 3 if with_cache else 1])))


@pytest.fixture(scope="module")
def machine() -> treadle.VirtualMachine:
    return treadle.VirtualMachine(treadle.compile(decoder(), progress=False))


@pytest.fixture(scope="module")
def looping() -> treadle.VirtualMachine:
    return treadle.VirtualMachine(treadle.compile(decoder(), progress=False, decode_loop=True))


def whole(machine: treadle.VirtualMachine, prompt: list[int], count: int) -> list[int]:
    """The likeliest tokens, each from a call with the whole text: what a cache must not change."""
    text = list(prompt)
    for _ in range(count):
        empty = np.zeros((1, 1, 0, WIDTH), "f")
        logits, *_ = machine["main"](
            np.array([text]), np.ones((1, len(text)), int), np.arange(len(text))[None], empty, empty
        )
        text.append(int(logits.numpy()[0, -1].argmax()))
    return text[len(prompt) :]


def test_a_cache_changes_no_token(machine: treadle.VirtualMachine):
    found = list(generate(machine, PROMPT, max_new_tokens=30))
    assert found == whole(machine, PROMPT, 30)
    assert len(set(found)) > 1


def test_a_decoder_without_a_cache_sees_the_whole_text_each_time(machine: treadle.VirtualMachine):
    executable = treadle.compile(decoder(with_cache=False), progress=False)
    assert list(generate(executable, PROMPT, max_new_tokens=9)) == whole(machine, PROMPT, 9)


def runtime_decoder(depth: str | int = 16) -> Any:
    """A decoder as onnxruntime's model builder writes it: GroupQueryAttention is told lengths alone, the sums of a mask, so that
    padding in front counts as tokens. `depth` is how the last axis of the caches is declared."""
    onnx = pytest.importorskip("onnx")
    from treadle.tools.dev.zoo.writer import GraphWriter

    heads, size = 2, 16
    g = GraphWriter("decoder", seed=3)
    ids = g.input("input_ids", ("batch", "length"), "int64")
    mask = g.input("attention_mask", ("batch", "total"), "int64")
    past = [g.input(f"past_key_values.0.{name}", ("batch", 1, "past", depth)) for name in ("key", "value")]
    last = g.op("Sub", g.op("ReduceSum", mask, g.integers(1), keepdims=1), g.integers(1))
    total = g.op("Gather", g.op("Shape", mask), g.integer(1))
    lengths = [g.op("Cast", each, to=onnx.TensorProto.INT32) for each in (last, total)]
    x = g.op("Gather", g.normal("words", WORDS, WIDTH, deviation=1), ids)
    rows = [
        g.op("MatMul", x, g.normal(n, WIDTH, c * size, deviation=0.7)) for n, c in (("q", heads), ("k", 1), ("v", 1))
    ]
    angles = np.arange(LONGEST)[:, None] * 100.0 ** (-np.arange(size // 2) / size)
    tables = [g.weight(name, each.astype("f")) for name, each in (("cos", np.cos(angles)), ("sin", np.sin(angles)))]
    kinds = {"domain": "com.microsoft", "num_heads": heads, "kv_num_heads": 1, "do_rotary": 1}
    context, *present = g.ops("GroupQueryAttention", *rows, *past, *lengths, *tables, outputs=3, **kinds)
    x = g.op("Add", x, g.op("MatMul", context, g.normal("o", heads * size, WIDTH, deviation=0.3)))
    g.output(g.op("MatMul", x, g.normal("head", WIDTH, WORDS, deviation=1)), "logits", ("batch", "length", WORDS))
    for name, each in zip(("key", "value"), present, strict=True):
        g.output(each, f"present.0.{name}", ("batch", 1, "total", depth))
    model = g.model()
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model


def blind_decoder() -> treadle.Module:
    """One that takes neither a mask nor places: padding would be text."""
    ids = treadle.var("input_ids", ("batch", "length"), "int64")
    past = treadle.var("past_0", (2, "batch", "past", WIDTH))
    rng = np.random.default_rng(5)
    x = op.take(treadle.constant(rng.standard_normal((WORDS, WIDTH)).astype("f")), ids, axis=0)
    rows = op.concat(past, op.broadcast_to(x, shape=(2, "batch", "length", WIDTH)), axis=2)
    seen = op.mean(op.take(rows, treadle.constant(0), axis=0), axes=(1,), keepdims=True)
    logits = op.matmul(x + seen, rng.standard_normal((WIDTH, WORDS)).astype("f"))
    results = treadle.named("logits", logits), treadle.named("present_0", rows)
    return treadle.Module(main=treadle.function([ids, past], treadle.tuple_(*results)))


def test_a_decoder_with_caches_of_int8_gives_the_tokens_of_the_whole_text():
    onnx = pytest.importorskip("onnx")
    model = runtime_decoder()
    node = next(each for each in model.graph.node if each.op_type == "GroupQueryAttention")
    node.input.extend([""] * (12 - len(node.input)))
    for name in "kv":
        node.input.append(f"{name}_scale")
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([0.05]), f"{name}_scale"))
        node.attribute.append(onnx.helper.make_attribute(f"{name}_quant_type", "PER_TENSOR"))
    node.attribute.append(onnx.helper.make_attribute("kv_cache_bit_width", 8))
    for each in (*model.graph.input[-2:], *model.graph.output[-2:]):
        each.type.tensor_type.elem_type = onnx.TensorProto.INT8
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))
    text, empty = list(PROMPT), [np.zeros((1, 1, 0, 16), np.int8)] * 2
    for _ in range(12):
        logits = machine["main"](np.array([text]), np.ones((1, len(text)), int), *empty)[0].numpy()
        text.append(int(logits[0, -1].argmax()))
    assert list(generate(machine, PROMPT, max_new_tokens=12)) == text[len(PROMPT) :]


@pytest.mark.parametrize("make", [decoder, runtime_decoder, blind_decoder])
def test_a_text_does_not_depend_on_the_texts_beside_it(make: Any):
    """Whatever a model does about padding, and wherever that is."""
    machine = treadle.VirtualMachine(treadle.compile(make(), progress=False))
    prompts = [PROMPT, PROMPT[:2], [7], [11, 2]]
    alone = [list(generate(machine, prompt, max_new_tokens=12)) for prompt in prompts]
    assert len({*map(tuple, alone)}) == 4
    for pad in (lambda row: [0] * (5 - len(row)) + row, lambda row: row + [0] * (5 - len(row))):
        ids, mask = (np.array([pad(row) for row in rows]) for rows in (prompts, [[1] * len(row) for row in prompts]))
        columns = list(generate(machine, ids, max_new_tokens=12, attention_mask=mask))
        assert all(column.shape == (4,) for column in columns)
        assert np.transpose(columns).tolist() == alone
    assert np.transpose(list(generate(machine, prompts, max_new_tokens=12))).tolist() == alone


@pytest.mark.parametrize("make", [decoder, runtime_decoder])
def test_a_step_gives_the_last_logits_and_new_rows_of_caches_with_room(make: Any):
    """The bits of the whole computation. What is behind the rows that are held is not read."""
    executable = treadle.compile(make(), progress=False)
    machine, rng = treadle.VirtualMachine(executable), np.random.default_rng(1)
    depth = executable.inputs("main")["past_key_values.0.key"].shape[-1]
    for past, length in ((0, 5), (5, 1), (20, 7)):
        ids, total = rng.integers(0, WORDS, (2, length)), past + length
        given = {"attention_mask": np.ones((2, total), int), "position_ids": np.tile(np.arange(past, total), (2, 1))}
        held = [rng.standard_normal((2, 1, past, depth)).astype("f") for _ in range(2)]
        room = [np.concatenate([each, np.full((2, 1, 3, depth), np.nan, "f")], axis=2) for each in held]
        others = [given[name] for name in executable.inputs("main").names[1:-2]]
        logits, *whole_caches = (each.numpy() for each in machine["main"](ids, *others, *held))
        last, *rows = (each.numpy() for each in machine["main.step"](ids, np.zeros((past, 0), bool), *room))
        np.testing.assert_array_equal(last, logits[:, -1])
        for new, whole_cache in zip(rows, whole_caches, strict=True):
            np.testing.assert_array_equal(new, whole_cache[:, :, past:])
    assert executable.outputs("main.step").names[1:] == tuple(f"new.{n}" for n in executable.inputs("main").names[-2:])


def test_attention_of_a_step_reads_caches_where_they_lie():
    executable = treadle.compile(decoder(), progress=False)
    operators = [[node.operator for node in each.definition.nodes] for each in executable.program.primitives]
    assert any(each[-1] == "attention" and each.count("concat") == each.count("slice") == 2 for each in operators)


@pytest.mark.parametrize("change", [lambda x: x * 1.5, lambda x: op.concat(x, x[..., -1:, :], axis=2)])
def test_caches_that_do_more_than_grow_are_taken_and_given_whole(change: Any):
    ids = treadle.var("input_ids", ("batch", "length"), "int64")
    past = treadle.var("past_0", ("batch", 1, "past", WIDTH))
    column = op.reshape(op.cast(ids, dtype="float32"), shape=("batch", "length", 1))
    new = op.broadcast_to(op.expand_dims(column, axes=(1,)), shape=("batch", 1, "length", WIDTH))
    rows = change(op.concat(past, new, axis=2))
    logits = op.expand_dims(op.sum(rows, axes=(1, 2)), axes=(1,)) + column
    results = treadle.named("logits", logits), treadle.named("present_0", rows)
    executable = treadle.compile(treadle.function([ids, past], treadle.tuple_(*results)), progress=False)
    assert executable.outputs("main.step").names == ("logits", "present_0")
    machine = treadle.VirtualMachine(executable)
    text, cache = list(generate(machine, PROMPT, max_new_tokens=4)), np.zeros((1, 1, 0, WIDTH), "f")
    new_ids = np.array([PROMPT])
    for token in text:
        made, cache = (each.numpy() for each in machine["main"](new_ids, cache))
        assert token == made[0, -1].argmax()
        new_ids = np.array([[token]])


def test_what_is_no_decoder_has_no_step():
    x = treadle.var("past_0", ("n",))
    assert list(treadle.compile(treadle.function([x], treadle.named("present_0", x + 1)), progress=False)) == ["main"]
    assert "main.step" not in list(treadle.compile(decoder(), progress=False, opt_level=0))
    assert "main.step" not in list(treadle.compile(decoder(with_cache=False), progress=False))


def test_a_machine_elsewhere_keeps_the_caches(machine: treadle.VirtualMachine):
    """Room would be sent with each call."""

    class Elsewhere(treadle.VirtualMachine):
        _reads_in_place = False

        def __getitem__(self, name: str) -> Any:
            assert name == "main"
            return super().__getitem__(name)

    text = list(generate(Elsewhere(machine.executable), PROMPT, max_new_tokens=5))
    assert text == list(generate(machine, PROMPT, max_new_tokens=5))


def test_room_of_a_cache_doubles_up_to_what_a_text_can_need():
    rows, taken = _Rows(np.zeros((1, 2, 0, 3), "f"), most=50), []
    whole = np.random.default_rng(0).standard_normal((1, 2, 50, 3)).astype("f")
    for start, end in ((0, 5), *((n, n + 1) for n in range(5, 50))):
        rows.put(whole[:, :, start:end])
        taken.append(rows.room.shape[2])
        np.testing.assert_array_equal(rows.room[:, :, :end], whole[:, :, :end])
    assert sorted(set(taken)) == [10, 22, 46, 50]


def test_samplers_may_keep_what_they_are_given(machine: treadle.VirtualMachine):
    """The logits of each step are an array of its own, in the order of the prompts; those of texts that have ended stay."""
    kept: list[np.ndarray] = []
    prompts = [[7], PROMPT, [11]]
    list(generate(machine, prompts, max_new_tokens=3, sampler=lambda logits: kept.append(logits) or logits.argmax(-1)))
    assert [each.shape for each in kept] == [(3, WORDS)] * 3
    assert len({each.tobytes() for each in kept}) == 3
    alone: list[np.ndarray] = []
    list(
        generate(machine, [PROMPT], max_new_tokens=3, sampler=lambda logits: alone.append(logits) or logits.argmax(-1))
    )
    assert all(np.array_equal(one[1], other[0]) for one, other in zip(kept, alone, strict=True))


def test_a_batch_of_1_is_told_from_one_head():
    roles = Roles.of(
        [Port("ids", tensor("int64", (1, "n"))), Port("past_0", tensor("float32", ("b", 1, "past", 4)))],
        [Port("present_0", tensor("float32", ("b", 1, "total", 4))), Port("logits", tensor("float32", (1, "n", 9)))],
        "main",
    )
    assert roles.empty("past_0", 1) == [1, 1, 0, 4]


def test_unequal_prompts_do_not_suit_a_fixed_batch():
    ids = treadle.var("input_ids", (2, "length"), "int64")
    logits = op.cast(op.expand_dims(ids, axes=(2,)), dtype="float32")
    machine = treadle.VirtualMachine(treadle.compile(treadle.function([ids], logits), progress=False))
    assert len(list(generate(machine, [[1, 2], [3, 4]], max_new_tokens=2))) == 2
    with pytest.raises(ArgumentError, match=r"takes batches of 2, and only.*got 1 of 2 tokens, 1 of 1 tokens. Compile"):
        generate(machine, [[1, 2], [3]], max_new_tokens=2)


def test_sizes_of_caches_that_the_results_tell_are_no_lengths():
    """Neither in Python's loop nor in the executable's. They are numbers: steps give new rows, and nobody is warned."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executable = treadle.compile(runtime_decoder("depth"), decode_loop=True, progress=False)
    machine = treadle.VirtualMachine(executable)
    known = treadle.VirtualMachine(treadle.compile(runtime_decoder(), progress=False))
    assert [(p.name, p.type) for p in machine.inputs("main.step")] == [
        (p.name, p.type) for p in known.inputs("main.step")
    ]
    expected = list(generate(known, PROMPT, max_new_tokens=9))
    assert list(generate(machine, PROMPT, max_new_tokens=9)) == expected
    assert machine["generate"]([PROMPT], 9, np.zeros(0, int)).numpy()[0].tolist() == expected


def test_a_text_ends_behind_a_stop_sequence(machine: treadle.VirtualMachine):
    text = list(generate(machine, PROMPT, max_new_tokens=20))
    place = next(i for i in range(3, 20) if text[i - 1 : i + 1] not in (text[j - 1 : j + 1] for j in range(1, i)))
    stop = text[place - 1 : place + 1]
    assert list(generate(machine, PROMPT, max_new_tokens=20, stop=[stop, [99]])) == text[: place + 1]
    assert list(generate(machine, PROMPT, max_new_tokens=20, stop=[text[0]])) == text[:1]


def test_a_row_that_has_ended_repeats_its_last_token(machine: treadle.VirtualMachine):
    ids = np.array([PROMPT, PROMPT[::-1]])
    free = np.array(list(generate(machine, ids, max_new_tokens=8)))
    only_first = next(token for token in free[:, 0] if token not in free[:, 1])
    ended = np.array(list(generate(machine, ids, max_new_tokens=8, stop=[int(only_first)])))
    place = list(free[:, 0]).index(only_first)
    assert (ended[place:, 0] == only_first).all()
    np.testing.assert_array_equal(ended[:, 1], free[:, 1])


def test_equal_seeds_give_equal_texts_and_others_do_not(machine: treadle.VirtualMachine):
    def text(seed: int) -> list[int]:
        return list(generate(machine, PROMPT, max_new_tokens=20, temperature=2.0, seed=seed))

    assert text(1) == text(1)
    assert len({tuple(text(seed)) for seed in range(5)}) > 1


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (Sampler(1.0, seed=0), [0.1, 0.2, 0.3, 0.4]),
        (Sampler(1.0, top_k=2, seed=0), [0, 0, 3 / 7, 4 / 7]),
        (Sampler(1.0, top_p=0.65, seed=0), [0, 0, 3 / 7, 4 / 7]),
        (Sampler(1.0, top_k=3, top_p=0.4, seed=0), [0, 0, 0, 1]),
        (Sampler(0.5, seed=0), [1 / 30, 4 / 30, 9 / 30, 16 / 30]),
        (Sampler(0.0), [0, 0, 0, 1]),
    ],
    ids=str,
)
def test_tokens_come_as_often_as_their_probabilities_say(sampler: Sampler, expected: list[float]):
    logits = np.log([[0.1, 0.2, 0.3, 0.4]]).astype("f")
    choose = sampler.chooser()
    counts = np.bincount(np.concatenate([choose(logits) for _ in range(4000)]), minlength=4) / 4000
    np.testing.assert_allclose(counts, expected, atol=0.03)


def test_a_function_may_choose(machine: treadle.VirtualMachine):
    assert list(generate(machine, PROMPT, max_new_tokens=3, sampler=lambda logits: np.array([7]))) == [7, 7, 7]
    with pytest.raises(ArgumentError, match="the sampler gave float64"):
        list(generate(machine, PROMPT, max_new_tokens=3, sampler=lambda logits: np.array([0.5])))


@pytest.mark.parametrize("count", [0, 1, 17])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_loop_in_the_executable_makes_the_same_text(looping: treadle.VirtualMachine, batch: int, count: int):
    ids = np.random.default_rng(batch).integers(0, WORDS, (batch, 4))
    expected = list(generate(looping, ids, max_new_tokens=count))
    none = np.zeros(0, np.int64)
    found = looping["generate"](ids, np.int64(count), none).numpy()
    assert found.shape == (batch, count)
    for place, column in enumerate(expected):
        np.testing.assert_array_equal(found[:, place], column)
    if count == 17:
        stop = int(found[0, 5])
        texts = np.array(list(generate(looping, ids, max_new_tokens=count, stop=[stop]))).T
        np.testing.assert_array_equal(looping["generate"](ids, np.int64(count), np.array([stop])).numpy(), texts)


@pytest.mark.parametrize(("length", "count"), [(1, 40), (2, 2), (9, 30), (25, 8)])
def test_room_of_the_loop_doubles_and_changes_no_token(looping: treadle.VirtualMachine, length: int, count: int):
    """Whether it is full behind the prompt, in the middle, or never."""
    ids = np.random.default_rng(length).integers(0, WORDS, (2, length))
    expected = np.stack(list(generate(looping, ids, max_new_tokens=count)), axis=1)
    found = looping["generate"](ids, np.int64(count), np.zeros(0, np.int64)).numpy()
    assert found.tolist() == expected.tolist()


def test_the_loop_puts_rows_where_the_caches_lie(looping: treadle.VirtualMachine):
    """Its rounds join and copy no cache."""
    lines = [f"{line.opname} {line.argrepr}" for line in treadle.dis(looping.executable, "generate")]
    puts = [re.search(r"call put_slice\w* \((r\d+), r\d+\) -> \((r\d+)\)", line) for line in lines]
    assert [put and put[1] == put[2] for put in puts if put] == [True, True]
    joined = [line for line in lines if line.startswith("call concat")]
    assert len(joined) == 1  # the new tokens


def test_the_loop_takes_the_memory_of_the_text_that_it_makes(looping: treadle.VirtualMachine):
    ids, none = np.array([PROMPT]), np.zeros(0, np.int64)
    text = looping["generate"](ids, np.int64(40), none).numpy()[0].tolist()
    end = next(token for place, token in enumerate(text) if place > 8 and token not in text[:place])
    wanted = text[: text.index(end) + 1]
    for many in (40, 1 << 40, np.iinfo(np.int64).max):
        made = looping.call("generate", [ids, np.int64(many), np.array([end])], max_memory=1 << 20)
        assert made.numpy()[0].tolist() == wanted


def test_a_text_that_is_stopped_in_the_middle_leaves_nothing_behind(looping: treadle.VirtualMachine):
    arguments = [np.array([PROMPT]), np.int64(9), np.zeros(0, np.int64)]
    text = looping.call("generate", arguments).numpy().tolist()
    for steps in range(30, 900, 31):
        with pytest.raises(BudgetExceededError, match="max_steps"):
            looping.call("generate", arguments, max_steps=steps)
        assert looping.call("generate", arguments).numpy().tolist() == text


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"ids": [0.5]}, "ids: expected integers"),
    ({"ids": []}, "the prompt has no token"),
    ({"ids": np.zeros((1, 0), int)}, "the prompt has no token"),
    ({"ids": [3, -1]}, "not negative, got -1"),
    ({"ids": np.array([3, 2**64 - 1], np.uint64)}, "not negative, got 18446744073709551615"),
    ({"ids": "hello"}, "a tokenizer makes them of text"),
    ({"sampler": "greedy"}, "sampler: expected a treadle.Sampler, or a function of logits, got a str"),
    ({"sampler": Sampler}, "got the class Sampler"),
    ({"sampler": Sampler(), "top_k": 3}, "sampler: expected it alone"),
    ({"model": "decoder.onnx"}, "model: expected a machine or an executable, got a str"),
    ({"ids": np.zeros((1, 2, 3), int)}, "ids: expected integers"),
    ({"max_new_tokens": -1}, "max_new_tokens: expected a whole number"),
    ({"max_new_tokens": 2.0}, "max_new_tokens: expected a whole number"),
    ({"temperature": -1}, "temperature: expected"),
    ({"top_k": 1.5}, "top_k: expected"),
    ({"top_p": 0}, "top_p: expected"),
    ({"stop": [[]]}, "an empty sequence"),
    ({"stop": ["a"]}, "stop: expected token ids"),
    ({"attention_mask": [1]}, "attention_mask: expected the shape of ids"),
    ({"ids": [[1, 2], []]}, "ids: row 1: the prompt has no token"),
    ({"ids": [[1, 2], [0.5]]}, r"ids: row 1: expected integers, got float64\[1\]"),
    ({"ids": [[1, 2], 3]}, r"ids: expected integers \[length\] or \[batch, length\]"),
    (
        {"ids": [[1, 2], [3]], "attention_mask": [[1, 1], [0, 1]]},
        "attention_mask: expected none beside prompts of several",
    ),
    ({"ids": [[1, 2], [3, 4]], "attention_mask": [[1, 1], [0, 0]]}, "ids: row 1: the prompt has no token"),
    ({"attention_mask": [[1, 1], [1]]}, "attention_mask: its rows are of several lengths"),
    ({"feeds": [1]}, "feeds: expected a dict from names to arrays, got a list"),
    ({"feeds": {"input_id": [1]}}, "feeds: main has no input 'input_id'; did you mean input_ids"),
    ({"feeds": {"input_ids": [1]}}, "feeds: 'input_ids' differs from call to call and is made of ids"),
    ({"feeds": {"position_ids": [1]}}, "feeds: 'position_ids' differs from call to call and is made of attention_mask"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_is_wrong_is_said_before_the_first_token(machine: treadle.VirtualMachine, number: int):
    change, message = WRONG[number]
    with pytest.raises(ArgumentError, match=message):
        generate(**({"model": machine, "ids": PROMPT, "max_new_tokens": 3} | change))


@pytest.mark.parametrize("given", [{"top_k": 5}, {"top_p": 0.99}, {}])
def test_what_only_chance_needs_asks_for_chance(machine: treadle.VirtualMachine, given: dict[str, Any]):
    def texts(**temperature: float) -> set[tuple[int, ...]]:
        return {
            tuple(generate(machine, PROMPT, max_new_tokens=12, seed=seed, **given, **temperature)) for seed in range(4)
        }

    assert texts() == texts(temperature=1.0)
    assert len(texts()) > 1
    assert texts(temperature=0.0) == {tuple(generate(machine, PROMPT, max_new_tokens=12))}


def test_a_token_ends_a_text(machine: treadle.VirtualMachine):
    token = treadle.CancelToken()
    text = generate(machine, PROMPT, max_new_tokens=10, cancel=token)
    first = next(text)
    token.cancel()
    with pytest.raises(CancelledError):
        next(text)
    assert first == next(generate(machine, PROMPT, max_new_tokens=1))


def test_a_cache_of_a_fixed_length_is_told_how_to_become_symbolic():
    ids, past = treadle.var("input_ids", (1, "length"), "int64"), treadle.var("past.0", (1, 2, 16, 4))
    logits = treadle.op.cast(treadle.op.expand_dims(ids, axes=(2,)), dtype="float32")
    results = treadle.tuple_(treadle.named("logits", logits), treadle.named("present.0", past * 1.0))
    executable = treadle.compile(treadle.function([ids, past], results), progress=False)
    with pytest.raises(ArgumentError, match=r"shapes=\{'past.0': \(1, 2, 'past', 4\), …\}"):
        generate(executable, PROMPT, max_new_tokens=1)


def test_a_function_that_is_no_decoder_is_told_apart():
    x, y = treadle.var("x", ("n",)), treadle.var("y", ("n",))
    module = treadle.Module(main=treadle.function([x, y], x + y))
    with pytest.raises(ArgumentError, match="main: cannot tell what 'x', 'y' is"):
        generate(treadle.compile(module, progress=False), PROMPT, max_new_tokens=1)
    with pytest.raises(CompileError, match="decode_loop: main: cannot tell what"):
        treadle.compile(module, decode_loop=True, progress=False)
    with pytest.raises(CompileError, match="has no cache"):
        treadle.compile(decoder(with_cache=False), decode_loop=True, progress=False)
    with pytest.raises(CompileError, match="of a fixed length"):
        treadle.compile(decoder(fixed=4), decode_loop=True, progress=False)
    with pytest.raises(ArgumentError, match="of a fixed length"):
        generate(treadle.compile(decoder(fixed=4), progress=False), PROMPT, max_new_tokens=1)


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values_0_key", "present_key_values_0_key"),
        ("past_0", "present_0"),
        ("past.3.decoder.key", "present.3.decoder.key"),
        ("cache_0", "new_cache_0"),
    ],
)
def test_exporters_names_of_caches_are_paired(past: str, present: str):
    ids, type_ = treadle.TensorType(treadle.DType.int64, (1, 2)), treadle.TensorType(treadle.DType.float32, (1, 2, 3))
    roles = Roles.of([Port("input_ids", ids), Port(past, type_)], [Port(present, type_), Port("logits", type_)], "main")
    assert (roles.cache, roles.logits) == (((past, 0),), 1)


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_tokens_are_onnxruntimes(name: str):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from importlib import import_module

    model = getattr(import_module(f"treadle.tools.dev.zoo.{name}"), name)(layers=2, hidden=64, heads=4, vocabulary=300)
    machine = treadle.VirtualMachine(treadle.compile(model, decode_loop=True, progress=False))
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ids, expected = np.array([PROMPT]), []
    caches = {p.name: np.zeros([d if isinstance(d, int) else 0 for d in p.shape], "f") for p in machine.inputs()[1:]}
    for _ in range(40):
        logits, *after = session.run(None, {"input_ids": ids, **caches})
        expected.append(int(logits[0, -1].argmax()))
        ids, caches = np.array([[expected[-1]]]), dict(zip(caches, after, strict=True))
    assert list(generate(machine, PROMPT, max_new_tokens=40)) == expected
    assert machine["generate"](np.array([PROMPT]), np.int64(40), np.zeros(0, int)).numpy()[0].tolist() == expected


def decoder_with_encoder(*, merged: bool = False) -> treadle.Module:
    """A decoder that reads an encoder's results: in every call, or, if `merged`, in the first, and then what that made."""
    rng = np.random.default_rng(7)

    def weight(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("f")

    ids = treadle.var("input_ids", ("batch", "length"), "int64")
    states = treadle.var("encoder_hidden_states", ("batch", "source", WIDTH))
    seen = treadle.var("encoder_attention_mask", ("batch", "source"), "int64")
    past = treadle.var("past_key_values.0.decoder.key", ("batch", "past", WIDTH))
    old = treadle.var("past_key_values.0.encoder.key", ("batch", "kept", WIDTH))
    switch = treadle.var("use_cache_branch", (1,), "bool")
    x = op.take(treadle.constant(weight(WORDS, WIDTH)), ids, axis=0)
    key = op.concat(past, x, axis=1)
    made = op.matmul(states, weight(WIDTH, WIDTH))
    used, given = made, made
    if merged:
        first = op.logical_not(op.reshape(switch, shape=()))
        used = treadle.match_shape(treadle.if_(first, made, old), ("batch", "source", WIDTH))
        given = treadle.if_(first, made, op.full(shape=("batch", 0, WIDTH), value=0.0, dtype="float32"))
    hidden = op.where(op.reshape(op.not_equal(seen, 0), shape=("batch", "source", 1)), used, 0.0)
    x = x + op.sum(hidden, axes=(1,), keepdims=True) + op.sum(key, axes=(1,), keepdims=True)
    results = {"logits": op.matmul(x, weight(WIDTH, WORDS)), "present.0.decoder.key": key}
    results |= {"present.0.encoder.key": given} if merged else {}
    params = [seen, ids, states, past, *((old, switch) if merged else ())]
    return treadle.Module(
        main=treadle.function(params, treadle.tuple_(*(treadle.named(name, each) for name, each in results.items())))
    )


@pytest.mark.parametrize("merged", [False, True])
def test_a_decoder_takes_what_an_encoder_has_made(merged: bool):
    machine = treadle.VirtualMachine(treadle.compile(decoder_with_encoder(merged=merged), progress=False))
    whole = treadle.VirtualMachine(treadle.compile(decoder_with_encoder(), progress=False))
    states = np.random.default_rng(8).standard_normal((2, 5, WIDTH)).astype("f")
    seen = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    feeds = {"encoder_hidden_states": states, "encoder_attention_mask": seen}
    found = np.stack(list(generate(machine, [[3, 1], [4, 1]], max_new_tokens=9, feeds=feeds)), axis=1)

    text = np.array([[3, 1], [4, 1]])
    for _ in range(9):
        logits = whole["main"](seen, text, states, np.zeros((2, 0, WIDTH), "f")).logits.numpy()
        text = np.concatenate([text, logits[:, -1].argmax(-1)[:, None]], axis=1)
    assert found.tolist() == text[:, 2:].tolist()
    assert len({*map(tuple, found)}) == 2
    columns = list(generate(machine, [[3, 1], [4]], max_new_tokens=9, feeds=feeds))
    assert [row[0] for row in columns] == found[0].tolist()
    own = {name: array[1:] for name, array in feeds.items()}
    assert [row[1] for row in columns] == list(generate(machine, [4], max_new_tokens=9, feeds=own))
    with pytest.raises(ArgumentError, match=r"given by name: feeds=\{'encoder_"):
        generate(machine, [[3]], max_new_tokens=1)
    if not merged:
        looping = treadle.VirtualMachine(treadle.compile(decoder_with_encoder(), decode_loop=True, progress=False))
        none = np.zeros(0, np.int64)
        text = looping.call("generate", ([[3, 1], [4, 1]], 9, none), feeds)
        assert text.numpy().tolist() == found.tolist()


@pytest.mark.parametrize("name", ["cache_position", "position_ids"])
def test_a_decoder_counts_its_tokens_and_the_logits_that_it_gives(name: str):
    """Places as one list for all rows, and `num_logits_to_keep`, as exporters of 2025 write them."""
    rng = np.random.default_rng(9)
    table, head = (rng.standard_normal(shape).astype("f") for shape in ((LONGEST, WIDTH), (WIDTH, WORDS)))
    ids = treadle.var("input_ids", ("batch", "length"), "int64")
    places, kept = treadle.var(name, ("length",), "int64"), treadle.var("num_logits_to_keep", (), "int64")
    past = treadle.var("past_key_values.0.key", ("batch", "past", WIDTH))
    x = op.take(treadle.constant(rng.standard_normal((WORDS, WIDTH)).astype("f")), ids, axis=0)
    x = x + op.take(treadle.constant(table), places, axis=0) * 3.0
    key = op.concat(past, x, axis=1)
    logits = op.matmul(x + op.mean(key, axes=(1,), keepdims=True), head)
    logits = op.where(op.equal(kept, 1), logits, op.negative(logits))
    results = treadle.tuple_(treadle.named("logits", logits), treadle.named("present.0.key", key))
    main = treadle.function([ids, places, kept, past], results)
    machine = treadle.VirtualMachine(treadle.compile(main, decode_loop=True, progress=False))
    text = np.array([PROMPT])
    for _ in range(12):
        found = machine["main"](text, np.arange(text.shape[1]), 1, np.zeros((1, 0, WIDTH), "f")).logits.numpy()
        text = np.concatenate([text, found[:, -1].argmax(-1)[:, None]], axis=1)
    expected = text[0, len(PROMPT) :].tolist()
    assert len(set(expected)) > 3
    assert list(generate(machine, PROMPT, max_new_tokens=12)) == expected
    assert machine["generate"]([PROMPT], 12, np.zeros(0, np.int64)).numpy()[0].tolist() == expected
