"""`vm.builtin.*`: what TVM's test_runtime_builtin.py and test_vm_builtin.py check, and the errors."""

from __future__ import annotations

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm.relax.testing.runtime_builtin import MakeShapeCode, MatchShapeCode
from treadle.tvm.runtime import ShapeTuple


def builtin(name: str):
    return tvm.get_global_func(f"vm.builtin.{name}")


def tensor(values, dtype: str = "float32"):
    return tvm.nd.array(np.array(values, dtype))


def test_shapes_are_made_of_what_was_matched() -> None:
    heap = builtin("alloc_shape_heap")(None, 3)
    codes = MatchShapeCode
    match = [codes.ASSERT_EQUAL_TO_IMM, 1, codes.STORE_TO_HEAP, 2, codes.NO_OP, 0]
    builtin("match_shape")(ShapeTuple([1, 2, 3]), heap, 3, *match, "")
    builtin("match_shape")(tensor(np.zeros((2, 2))), heap, 2, *[codes.ASSERT_EQUAL_TO_LOAD, 2] * 2, "")
    made = builtin("make_shape")(
        heap, 3, MakeShapeCode.USE_IMM, 10, MakeShapeCode.LOAD_SHAPE, 0, MakeShapeCode.LOAD_SHAPE, 2
    )
    assert made == ShapeTuple([10, 0, 2])
    assert builtin("make_prim_value")(heap, MakeShapeCode.LOAD_SHAPE, 2) == 2


@pytest.mark.parametrize(
    ("shape", "codes", "text"),
    [
        ([1], (0, 1, 0, 1), "here match_cast shape size mismatch"),
        ([1, 2], (0, 1, 0, 3), r"here match_cast error,  shape\[1\] mismatch to specified constant"),
        ([1, 2], (0, 1, 3, 0), r"here match_cast error,  shape\[1\] mismatch to a previous populated value"),
        ([1, 2], (0, 1, 3, 9), "there is no slot 9"),
        ([1, 2], (0, 1, 8, 0), "there is no code 8"),
        ([1, 2], (0, 1), "expected 2 pairs"),
    ],
)
def test_shapes_that_do_not_match(shape, codes, text: str) -> None:
    heap = builtin("alloc_shape_heap")(None, 2)
    with pytest.raises(RuntimeError, match=text):
        builtin("match_shape")(ShapeTuple(shape), heap, 2, *codes, "here")


@pytest.mark.parametrize(
    ("name", "args", "error", "text"),
    [
        ("check_tensor_info", ([], 2, "", "here"), TypeError, "here expect a Tensor but get Array"),
        ("check_tensor_info", (tensor([1]), 3, "here"), ValueError, "here expect Tensor with ndim 3 but get 1"),
        ("check_tensor_info", (tensor([1]), 1, "int32", "here"), ValueError, "here expect Tensor with dtype int32"),
        ("check_shape_info", (ShapeTuple([1]), 2, "here"), ValueError, "here expect Shape with ndim 2 but get 1"),
        ("check_shape_info", (tensor([1]), 2, "here"), TypeError, "here expect a Shape"),
        ("check_prim_value_info", (tensor([1]), "int64", "here"), TypeError, "here expect a number of type int64"),
        ("check_prim_value_info", (1, "custom", "here"), TypeError, "there are no numbers of type custom"),
        (
            "check_tuple_info",
            ([1, 2], 3, "here"),
            ValueError,
            "Tuple with 3 elements,  but get a Tuple with 2 elements",
        ),
        ("check_tuple_info", (tensor([1]), 3, "here"), TypeError, "here expect a Tuple"),
        ("check_func_info", (tensor([1]), "here"), TypeError, "here expect a Function"),
        ("tuple_getitem", ([1, 2], 2), IndexError, "no field 2 in a tuple of 2"),
        ("reshape", (tensor([1, 2]), ShapeTuple([3])), ValueError, "has not as many elements"),
        ("read_if_cond", (tensor([1.0]),), TypeError, "expected a scalar"),
        ("tensor_to_shape", (tensor([1.0]),), TypeError, "expected integers along one axis"),
        ("alloc_storage", (None, ShapeTuple([4]), 3, "float32"), IndexError, "there is no device 3"),
        ("alloc_storage", (None, ShapeTuple([1 << 60]), 0, "float32"), RuntimeError, "out of memory"),
    ],
)
def test_what_the_checks_refuse(name: str, args: tuple, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        builtin(name)(*args)


def test_what_the_checks_take() -> None:
    for rest in ((2, "float32", ""), (-1, "", ""), (2, "void", ""), (-1, "")):
        builtin("check_tensor_info")(tensor([[1]]), *rest)
    for rest in ((1, ""), (-1, "")):
        builtin("check_shape_info")(ShapeTuple([3]), *rest)
    builtin("check_tuple_info")([1, 2], 2, "")
    builtin("check_func_info")(lambda: None, "")
    builtin("check_prim_value_info")(1, "int64", "")
    x = tensor([1])
    assert builtin("tuple_getitem")([x, 1], 0) == x
    assert builtin("shape_of")(x) == (1,)
    assert builtin("tensor_to_shape")(tensor([2, 3], "int64")) == (2, 3)
    assert builtin("tuple_reset_item")([1, 2], 0)[0] is None
    assert builtin("copy")(x) == x
    assert builtin("null_value")() is None


def test_tensors_lie_within_their_storage() -> None:
    storage = builtin("alloc_storage")(None, ShapeTuple([8]), -1, "float32", "global")
    made = builtin("alloc_tensor")(storage, 16, ShapeTuple([2, 2]), "float32")
    assert (made.shape, made.numpy().tolist()) == ((2, 2), [[0, 0], [0, 0]])
    for offset, shape in ((20, [2, 2]), (-4, [1]), (2, [1]), (0, [9])):
        with pytest.raises(ValueError, match="do not lie in a storage of 32"):
            builtin("alloc_tensor")(storage, offset, ShapeTuple(shape), "float32")


# ---- caches ----


def cache(rows: int, filled: int = 0):
    return builtin("attention_kv_cache_create")(tensor(np.full((rows, 2), -1)), ShapeTuple([rows, 2]), filled)


def view(of) -> list:
    return builtin("attention_kv_cache_view")(of).numpy()[:, 0].tolist()


def test_a_cache_grows_and_shrinks() -> None:
    of = cache(2)
    for number in range(5):
        of = builtin("attention_kv_cache_append")(of, tensor([[number, number]]))
    assert view(of) == [0, 1, 2, 3, 4]
    builtin("attention_kv_cache_update")(of, tensor([[7, 7], [8, 8]]))
    assert view(of) == [0, 1, 2, 7, 8]
    builtin("attention_kv_cache_array_popn")([of], 3)
    assert view(of) == [0, 1]
    builtin("attention_kv_cache_array_clear")([of])
    assert view(of) == []
    with pytest.raises(ValueError, match="1 rows are to go, 0 are there"):
        builtin("attention_kv_cache_array_popn")([of], 1)
    with pytest.raises(ValueError, match="expected rows of"):
        builtin("attention_kv_cache_append")(of, tensor([[1]]))
    with pytest.raises(ValueError, match="the cache holds"):
        builtin("attention_kv_cache_view")(of, ShapeTuple([3, 2]))


def test_a_window_is_written_round_and_round() -> None:
    of = cache(4)
    for number in range(6):
        builtin("attention_kv_cache_window_override")(of, tensor([[number, number]]), 4)
    assert view(of) == [4, 5, 2, 3]
    with_sinks = cache(4)
    for number in range(7):
        builtin("attention_kv_cache_window_override_with_sinks")(with_sinks, tensor([[number, number]]), 4, 1)
    assert view(with_sinks) == [0, 4, 5, 6]
    with pytest.raises(ValueError, match="rows came for a window"):
        builtin("attention_kv_cache_window_override")(of, tensor(np.zeros((5, 2))), 4)


# ---- sampling ----


def test_samples_fall_where_the_number_does() -> None:
    prob = tensor([[0.2, 0.3, 0.5], [0.3, 0.3, 0.4], [0.2, 0.3, 0.5]])
    found = builtin("multinomial_from_uniform")(prob, tensor([[1], [0], [0.4]]))
    assert found.numpy().tolist() == [[2], [0], [1]]
    assert builtin("sample_top_p_from_prob")(tensor([0.1, 0.6, 0.3]), 0.5, 0.99) == 1
    assert builtin("sample_top_p_from_prob")(tensor([0.1, 0.6, 0.3]), 1.0, 0.65) == 2
    assert builtin("sample_top_p_from_logits")(tensor([[1, 5, 2]]), 0.0, 0.9, 0.5) == 1
    assert builtin("sample_top_p_from_logits")(tensor([[1, 5, 2]]), 1.0, 0.5, 0.99) == 1


def test_penalties_and_softmax_are_in_place() -> None:
    logits = tensor([[2, -2, 4]])
    builtin("apply_repetition_penalty")(logits, tensor([0, 1], "int32"), 2.0)
    assert logits.numpy().tolist() == [[1, -4, 4]]
    builtin("apply_presence_and_frequency_penalty")(logits, tensor([2], "int32"), tensor([3], "int32"), 1.0, 0.5)
    assert logits.numpy().tolist() == [[1, -4, 1.5]]
    builtin("apply_softmax_with_temperature")(logits, 0.5)
    expected = np.exp(np.array([2, -8, 3.0]))
    assert np.allclose(logits.numpy(), expected / expected.sum())
    with pytest.raises(ValueError, match="expected indices of 3 tokens"):
        builtin("apply_repetition_penalty")(logits, tensor([3], "int32"), 2.0)
    with pytest.raises(ValueError, match="expected a temperature above 0"):
        builtin("apply_softmax_with_temperature")(logits, 0.0)
