"""relay.random: Threefry's numbers, as the paper has them, in Python's integers; what is made of them is as likely as it says."""

import numpy as np
import pytest
import treadle
from treadle.tvm import relay

MASK = 2**64 - 1
TURNS = [(14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32)]


def run(make, *arrays):
    params = [relay.var(f"x{place}", shape=each.shape, dtype=each.dtype.name) for place, each in enumerate(arrays)]
    mod = relay.IRModule.from_expr(relay.Function(params, make(*params)))
    return [each.numpy() for each in relay.create_executor("vm", mod=mod).evaluate()(*arrays)]


def key_of(*words):
    return np.array(words, "uint64")


def threefry(key, block):
    keys = [*key, 0x1BD11BDAA9FC1A22 ^ key[0] ^ key[1] ^ key[2] ^ key[3]]
    state = list(block)
    for number in range(20):
        if number % 4 == 0:
            state = [(word + keys[(number // 4 + place) % 5]) & MASK for place, word in enumerate(state)]
            state[3] = (state[3] + number // 4) & MASK
        for first, turn in zip((0, 2), TURNS[number % 8], strict=True):
            b = state[first + 1]
            state[first] = (state[first] + b) & MASK
            state[first + 1] = state[first] ^ ((b << turn | b >> (64 - turn)) & MASK)
        state[1], state[3] = state[3], state[1]
    return state


def test_the_numbers_are_threefry_of_key_path_and_counter():
    words = [5, MASK, 7, 1 << 63, 3, 4, 0, MASK - 100, 1 << 60, 0]
    after, bits = run(lambda key: relay.random.threefry_generate(key, (2, 5)), key_of(*words))
    blocks = [[(word + step) & MASK for word in words[4:8]] for step in (0, 1)]
    blocks.append([*words[4:7], words[7] + 8])
    expected = [number for block in blocks for number in threefry(words[:4], block)]
    assert bits.reshape(-1).tolist() == expected[:10]
    assert after.tolist() == [*words[:6], 0, words[7] + 12, *words[8:]]


def test_a_counter_without_room_goes_on_with_a_longer_path_or_a_new_key():
    words = [1, 2, 3, 4, 1 << 63, 0, 0, MASK - 2, 1, 0]
    after, _ = run(lambda key: relay.random.threefry_generate(key, (4,)), key_of(*words))
    assert after.tolist() == [1, 2, 3, 4, 1 << 63 | 1, 0, 0, 4, 0, 1 << 63]
    after, _ = run(lambda key: relay.random.threefry_generate(key, (4,)), key_of(*words[:8], 0, 0))
    assert after.tolist() == [*threefry(words[:4], [1 << 63, 0, MASK, MASK]), 0, 0, 0, 4, 1 << 63, 0]


def test_splits_differ_in_the_next_bit_of_the_path_until_it_is_full():
    left, right = run(relay.random.threefry_split, key_of(1, 2, 3, 4, 0, 0, 0, 9, 1 << 63, 0))
    assert left.tolist() == [1, 2, 3, 4, 0, 0, 0, 9, 1 << 62, 0]
    assert right.tolist() == [1, 2, 3, 4, 1 << 63, 0, 0, 9, 1 << 62, 0]
    left, right = run(relay.random.threefry_split, key_of(1, 2, 3, 4, 5, 6, 7, 8, 0, 0))
    fresh = threefry([1, 2, 3, 4], [5, 6, 7, 8])
    assert left.tolist() == [*fresh, 0, 0, 0, 0, 1 << 62, 0]
    assert right.tolist() == [*fresh, 1 << 63, 0, 0, 0, 1 << 62, 0]


def test_a_seed_makes_a_key_and_one_that_is_too_large_is_an_error():
    assert relay.random.threefry_key(1 << 64 | 7).data.numpy().tolist() == [7, 1, 0, 0, 0, 0, 0, 0, 1 << 63, 0]
    with pytest.raises(treadle.errors.ArgumentError, match="seed of 0 to"):
        relay.random.threefry_key(-1)


@pytest.mark.parametrize(("dtype", "digits"), [("float32", 23), ("float64", 52)])
def test_uniform_numbers_are_the_first_bits_within_the_bounds(dtype, digits):
    key = relay.random.threefry_key(3).data.numpy()
    _, bits = run(lambda k: relay.random.threefry_generate(k, (1000,)), key)
    _, found = run(lambda k: relay.random.uniform(k, (1000,), dtype), key)
    first = (bits & 0xFFFFFFFF) >> np.uint64(9) if dtype == "float32" else bits >> np.uint64(12)
    np.testing.assert_array_equal(found, first.astype(dtype) * 2.0**-digits)
    _, moved = run(lambda k: relay.random.uniform(k, (1000,), dtype, -2, 3), key)
    np.testing.assert_allclose(moved, found * 5 - 2, rtol=1e-5, atol=1e-6)
    assert moved.dtype == dtype
    assert -2 <= moved.min() < -1.9 < 2.9 < moved.max() <= 3


def test_normal_numbers_have_the_mean_and_the_scale():
    key = relay.random.threefry_key(11).data.numpy()
    _, found = run(lambda k: relay.random.normal(k, (100, 200), "float32", 5.0, 2.0), key)
    np.testing.assert_allclose([found.mean(), found.std()], [5, 2], atol=0.05)
    assert np.isclose((abs(found - 5) < 2).mean(), 0.683, atol=0.01)


def test_places_are_drawn_as_often_as_they_are_likely():
    key, probs = relay.random.threefry_key(2).data.numpy(), np.array([[1, 0, 3, -5], [0, 0, 0, 1]], "float32")
    _, found = run(lambda k, p: relay.random.multinomial(k, p, 4000), key, probs)
    assert (found.shape, found.dtype) == ((2, 4000), "int32")
    assert [set(row.tolist()) for row in found] == [{0, 2}, {3}]
    assert np.isclose((found[0] == 2).mean(), 0.75, atol=0.03)


def test_what_is_no_key_is_named():
    with pytest.raises(treadle.errors.InferenceError, match=r"random.threefry_split: expected a key, uint64\[10\]"):
        run(relay.random.threefry_split, np.zeros(9, "uint64"))
