"""Recurrent layers, compiled, against the reference evaluator."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.compiler.operators.recurrent import recurrent_words, unpacked
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.emulated import call as emulated
from treadle.formats.types import tensor

from ..harness import TARGET, Builder, check, check_random, definition_of, random_array, run_kernel, without

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
NARROW = {"bfloat16": (2, 0), "int8": (4, 2)}  # elements of the state in a word, words of facts behind a column


def layer(operator, hidden, batch, steps, lengths=None, peephole=False, narrow=None, **attributes):
    """A definition, and its inputs."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates, state = GATES[operator], (directions, batch, hidden)
    shapes = [(steps, batch, directions, gates, hidden), (directions, -(-hidden // 16), hidden, gates, 16), state]
    shapes += {"rnn": [], "gru": [(directions, hidden)], "lstm": [state]}[operator]
    shapes += [(directions, 3, hidden)] if peephole else []
    params = [tensor("float32", shape) for shape in shapes]
    if narrow:
        each, facts = NARROW[narrow]
        params[1] = tensor(narrow, (directions, -(-hidden // 16), -(-hidden // each) + facts, gates, 16, each))
    params += [tensor("int32", (batch,))] if lengths else []
    return definition_of(operator, params, **attributes)


def words_like(array, hidden):
    """Weights of int8 of that shape, and their facts."""
    directions, blocks, _, gates, *_ = array.shape
    generator = np.random.default_rng(7)
    codes = generator.integers(-128, 128, (directions, blocks, hidden, gates, 16)).astype(np.int8)
    scale = generator.uniform(0.001, 0.002, (directions, blocks, 1, gates, 16)).astype(np.float32)
    is_unit = np.arange(blocks * 16).reshape(blocks, 1, 1, 16) < hidden
    return recurrent_words(np.where(is_unit, codes, 0), scale * is_unit)


def check_layer(*args, parts=2, sizes=None, target=TARGET, rtol=1e-4, atol=2e-5, **options):
    definition = layer(*args, **options)
    arrays = [random_array(param, seed, sizes) for seed, param in enumerate(definition.params)]
    if options.get("narrow") == "int8":
        arrays[1] = words_like(arrays[1], args[1])
    else:
        arrays[1] *= arrays[1].dtype.type(0.3)
    if options.get("lengths"):
        arrays[-1] = np.array(options["lengths"], np.int32)
    check(definition, arrays, sizes, parts, rtol, atol, target)


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions(operator, direction):
    check_layer(operator, 32, 1, 5, direction=direction)


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("hidden", [1, 40])
def test_units_that_fill_no_vector_and_tiles_of_sequences(operator, hidden):
    check_layer(operator, hidden, 13, 3, direction="bidirectional", parts=3)


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_parts_that_take_steps_together(operator, parts):
    check_layer(operator, 150, 1, 3, direction="bidirectional", parts=parts)
    check_layer(operator, 390, 7, 3, parts=parts)
    check_layer(operator, 150, 3, 3, parts=parts, lengths=[3, 0, 2], peephole=operator == "lstm")


@pytest.mark.parametrize("operator", GATES)
def test_parts_at_the_same_time_give_the_bits_of_one(operator):
    definition = layer(operator, 150, 1, 40, direction="bidirectional")
    arrays = [random_array(param, seed) for seed, param in enumerate(definition.params)]
    arrays[1] *= np.float32(0.3)
    _, alone = run_kernel(definition, arrays)
    for _ in range(20):
        code, together = run_kernel(definition, arrays, parts=3, at_once=True)
        assert code == 0
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("operator", GATES)
def test_sequences_of_different_lengths(operator):
    options = {"lengths": [5, 0, 2, 9], "peephole": operator == "lstm"}
    for direction in ("forward", "reverse", "bidirectional"):
        check_layer(operator, 20, 4, 5, direction=direction, **options)
    check_layer(operator, 20, "n", "t", sizes={"n": 4, "t": 5}, **options)
    check_layer(operator, 33, 13, 4, **options | {"lengths": [0, 4, 3, 1] * 3 + [-2]})
    check_layer(operator, 20, 3, 4, **options | {"lengths": [0, 0, -1]})


@pytest.mark.parametrize("batch", [1, 9])
def test_the_reset_gate_behind_the_product(batch):
    check_layer("gru", 24, batch, 4, reset_after=True)


def test_other_activations_peepholes_and_a_bound():
    check_layer("lstm", 16, 2, 3, peephole=True, activations="sigmoid softsign relu", clip=0.5)
    check_layer("rnn", 16, 2, 3, activations="relu")


@pytest.mark.parametrize("operator", GATES)
def test_symbolic_sizes(operator):
    for sizes in ({"n": 1, "t": 4}, {"n": 8, "t": 2}, {"n": 3, "t": 0}, {"n": 7, "t": 2}):
        check_layer(operator, 16, "n", "t", sizes=sizes)
        check_layer(operator, 90, "n", "t", sizes=sizes, direction="bidirectional", parts=3)


def test_one_tensor_that_is_both_first_states():
    state = tensor("float32", (1, "n", 20))
    build = Builder(tensor("float32", (3, "n", 1, 4, 20)), tensor("float32", (1, 2, 20, 4, 16)), state)
    first = build("lstm", 0, 1, 2, 2)
    check_random(build.definition(first, first + 1, first + 2), {"n": 5}, parts=2)


@pytest.mark.parametrize("operator", GATES)
def test_narrow_vectors(operator):
    check_layer(operator, 24, 2, 3, target=dataclasses.replace(TARGET, vector_bytes=32, vector_registers=16))


# ---- weights of bfloat16, and of int8 ----


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("vector_bytes", [64, 32])
@pytest.mark.parametrize("narrow", NARROW)
def test_narrow_weights_meet_rounded_states(operator, vector_bytes, narrow):
    pytest.importorskip("ml_dtypes")
    target = dataclasses.replace(TARGET, vector_bytes=vector_bytes, vector_registers=vector_bytes // 2)
    for hidden, batch in ((1, 2), (21, 5), (40, 13)):
        options = {"narrow": narrow, "target": target, "rtol": 1e-2, "atol": 4e-3}
        check_layer(operator, hidden, batch, 4, parts=3, direction="bidirectional", **options)


@pytest.mark.parametrize("operator", GATES)
def test_int8_weights_meet_states_in_steps_of_their_own_range(operator):
    """One step, from the same state, has the sums of the reference: they are exact."""
    options = {"narrow": "int8", "rtol": 1e-5, "atol": 1e-6}
    check_layer(operator, 37, 3, 1, lengths=[1, 0, 1], peephole=operator == "lstm", **options)
    check_layer(operator, 150, 1, 1, parts=3, **options)


@pytest.mark.parametrize("operator", GATES)
def test_states_that_are_not_finite_become_nan_in_int8(operator):
    definition = layer(operator, 40, 3, 1, narrow="int8")
    arrays = [random_array(param, seed) for seed, param in enumerate(definition.params)]
    arrays[1], arrays[2][0, 2] = words_like(arrays[1], 40), 0
    arrays[2][0, 0, 3], arrays[2][0, 1, 5] = np.nan, np.inf
    check(definition, arrays, None, 2, 1e-5, 1e-6)


@given(st.integers(1, 2), st.integers(1, 40), st.sampled_from(list(GATES.values())), st.integers(0, 2**32 - 1))
def test_words_stand_for_the_weights_that_they_are_made_of(directions, hidden, gates, seed):
    generator, blocks = np.random.default_rng(seed), -(-hidden // 16)
    codes = generator.integers(-128, 128, (directions, blocks, hidden, gates, 16)).astype(np.int8)
    scale = generator.uniform(0, 1, (directions, blocks, 1, gates, 16)).astype(np.float32)
    wanted = unpacked(codes.astype(np.float32), hidden) * unpacked(np.repeat(scale, hidden, 2), hidden)
    np.testing.assert_array_equal(unpacked(recurrent_words(codes, scale), hidden), wanted)


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize(("narrow", "feature"), [("bfloat16", "avx512bf16"), ("int8", "vnni")])
def test_narrow_states_have_the_same_bits_in_any_batch_and_without_the_instructions(operator, narrow, feature):
    pytest.importorskip("ml_dtypes")
    definition, single = (layer(operator, 150, batch, 5, narrow=narrow) for batch in (3, 1))
    arrays = [random_array(param, seed) for seed, param in enumerate(definition.params)]
    if narrow == "int8":
        arrays[1] = words_like(arrays[1], 150)
    results = [
        run_kernel(definition, arrays, None, parts, target)[1]
        for parts, target in ((1, TARGET), (4, without(TARGET, feature)))
    ]
    for one, another in zip(*results, strict=True):
        np.testing.assert_array_equal(one, another)
    alone = [
        array[:, 1:2] if place in (0, 2, 3) and array.shape[1] == 3 else array for place, array in enumerate(arrays)
    ]
    narrower = dataclasses.replace(without(TARGET, feature), vector_bytes=32, vector_registers=16)
    for parts, target in ((1, TARGET), (2, without(TARGET, feature)), (1, narrower)):
        states = run_kernel(single, alone, None, parts, target)[1][0]
        np.testing.assert_array_equal(states[:, :, 0], results[0][0][:, :, 1])


@pytest.mark.parametrize("operator", GATES)
def test_codes_of_one_sequence_are_split_where_nothing_multiplies_bytes(operator):
    """The text, interpreted, gives the bits of its native code: no sum passes 16 bits."""
    target = dataclasses.replace(without(TARGET, "vnni"), vector_bytes=32, vector_registers=16)
    definition = layer(operator, 36, 1, 2, narrow="int8")
    arrays = [random_array(param, seed) for seed, param in enumerate(definition.params)]
    arrays[1] = words_like(arrays[1], 36)
    kernel = lower(definition, target)
    assert kernel is not None
    assert not target.dot_halves or target.dot_halves in kernel.source
    interpreted = emulated.run_kernel(kernel, definition, arrays).outputs
    for one, another in zip(interpreted, run_kernel(definition, arrays, None, 1, target)[1], strict=True):
        np.testing.assert_array_equal(one, another)
