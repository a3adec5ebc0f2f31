"""`vm.builtin.*`: what TVM's test_runtime_builtin.py and test_vm_builtin.py check, and the errors."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import ArgumentError, FormatError, OutOfMemoryError, TreadleError
from treadle.tvm.modules.registry import contained_names
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
    with pytest.raises(ValueError, match="rows for a window"):
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


# ---- devices, and all of them ----


def test_what_a_cuda_graph_would_be_made_of_is_called_each_time() -> None:
    made, ran = [], []

    @tvm.register_func("test.builtins.allocate", override=True)
    def allocate():
        made.append(1)
        return [tensor([1.0])]

    @tvm.register_func("test.builtins.capture", override=True)
    def capture(x, y):
        ran.append(1)
        return [tensor(x.numpy() + y.numpy())]

    ib = tvm.relax.ExecBuilder()
    with ib.function("main", num_inputs=1):
        alloc, run = "vm.builtin.cuda_graph.get_cached_alloc", "vm.builtin.cuda_graph.run_or_capture"
        ib.emit_call(alloc, args=[ib.vm_state(), ib.f("test.builtins.allocate"), ib.imm(0)], dst=ib.r(1))
        ib.emit_call("vm.builtin.tuple_getitem", args=[ib.r(1), ib.imm(0)], dst=ib.r(2))
        ib.emit_call("vm.builtin.make_tuple", args=[ib.r(0), ib.r(2)], dst=ib.r(3))
        ib.emit_call(run, args=[ib.vm_state(), ib.f("test.builtins.capture"), ib.r(3), ib.imm(0)], dst=ib.r(4))
        ib.emit_call("vm.builtin.tuple_getitem", args=[ib.r(4), ib.imm(0)], dst=ib.r(4))
        ib.emit_ret(ib.r(4))
    vm = tvm.relax.VirtualMachine(ib.get(), tvm.cpu())
    for number in range(3):
        assert vm["main"](tensor([number])).numpy().tolist() == [number + 1]
    assert (len(made), len(ran)) == (1, 3)
    with pytest.raises(TypeError, match="expected a machine"):
        builtin("cuda_graph.get_cached_alloc")(None, allocate, 0)


def test_other_devices_are_not_there() -> None:
    for name in ("dma_copy", "dma_wait"):
        with pytest.raises(TypeError, match="there is no Hexagon device"):
            builtin(f"hexagon.{name}")()
    builtin("memory_manager.clear")()


def test_parameters_as_a_module() -> None:
    builtin("ndarray_cache.update")("p_0", tensor([5]), True)
    for module in (
        builtin("param_module_from_cache")("p", -1),
        builtin("param_module_from_cache_by_name")(["p_0"]),
    ):
        assert module["get_params"]()[0].numpy().tolist() == [5]
    builtin("ndarray_cache.remove")("p_0")


# All that TVM 0.18 registers
NAMES = """
alloc_shape_heap alloc_storage alloc_tensor apply_presence_and_frequency_penalty apply_repetition_penalty
apply_softmax_with_temperature attention_kv_cache_append attention_kv_cache_array_clear attention_kv_cache_array_popn
attention_kv_cache_attention_with_fused_qkv attention_kv_cache_commit_accepted_token_tree_nodes attention_kv_cache_create
attention_kv_cache_debug_get_kv attention_kv_cache_empty attention_kv_cache_enable_sliding_window_for_seq
attention_kv_cache_get_num_available_pages attention_kv_cache_get_query_positions
attention_kv_cache_get_total_sequence_length attention_kv_cache_update attention_kv_cache_view
attention_kv_cache_window_override attention_kv_cache_window_override_with_sinks call_tir_dyn check_func_info
check_prim_value_info check_shape_info check_tensor_info check_tuple_info copy cuda_graph.get_cached_alloc
cuda_graph.run_or_capture debug_print ensure_zero_offset hexagon.dma_copy hexagon.dma_wait invoke_closure invoke_debug_func
kv_state_add_sequence kv_state_begin_forward kv_state_clear kv_state_end_forward kv_state_fork_sequence kv_state_popn
kv_state_remove_sequence make_closure make_prim_value make_shape make_tuple match_prim_value match_shape
memory_manager.clear multinomial_from_uniform ndarray_cache.clear ndarray_cache.get ndarray_cache.load
ndarray_cache.remove ndarray_cache.update null_value paged_attention_kv_cache_create
paged_attention_kv_cache_create_reduced param_array_from_cache param_array_from_cache_by_name
param_array_from_cache_by_name_unpacked param_module_from_cache param_module_from_cache_by_name read_if_cond reshape
rnn_state_create rnn_state_debug_get rnn_state_get rnn_state_set sample_top_p_from_logits sample_top_p_from_prob shape_of
tensor_to_shape to_device tuple_getitem tuple_reset_item
""".split()  # noqa: SIM905  a list of 80 strings is longer


@pytest.mark.parametrize("name", NAMES)
def test_each_of_them_is_registered(name: str) -> None:
    assert callable(builtin(name))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("alloc_storage", (None,)),
        ("alloc_storage", (None, ShapeTuple([1]), 0, "uint8x3")),
        ("alloc_tensor", (None, tensor([1]), ShapeTuple([1]), "float32")),
        ("match_shape", (ShapeTuple([1]), None, 1, 1, 0, "")),
        ("match_shape", (ShapeTuple([1]), None, 1, tensor([1]), 0, "")),
        ("make_shape", (None, 1, 1, 0)),
        ("invoke_closure", (None,)),
        ("call_tir_dyn", ()),
        ("call_tir_dyn", (3, ShapeTuple([1]))),
        ("tuple_getitem", ((1,), "x")),
    ],
)
def test_values_that_are_none_of_a_functions_are_argument_errors(name: str, args: tuple) -> None:
    with pytest.raises((ArgumentError, FormatError)):
        builtin(name)(*args)


def test_memory_that_the_system_has_not_is_an_error_of_its_name() -> None:
    with pytest.raises(OutOfMemoryError, match=r"vm\.builtin\.alloc_shape_heap"):
        builtin("alloc_shape_heap")(None, 1 << 50)


def test_errors_of_the_users_functions_are_theirs() -> None:
    def fails(*_: object) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        builtin("call_tir_dyn")(tvm.runtime.convert(fails), tensor([1]), ShapeTuple([1]))
    with pytest.raises(ValueError, match=r"^mine$"):
        builtin("invoke_closure")(None, tvm.runtime.convert(fails))


PROCESS_WIDE = {
    f"vm.builtin.{name}"
    for name in (
        "ndarray_cache.load",
        "ndarray_cache.get",
        "tensor_cache.update",
        "tensor_cache.remove",
        "param_array_from_cache",
        "param_array_from_cache_by_name",
        "param_module_from_cache",
        "param_module_from_cache_by_name",
        "param_array_from_cache_by_name_unpacked",
        "invoke_debug_func",
        "memory_manager.clear",
    )
}
JUNK = (None, -1, 1 << 70, 0.5, "x", (), {}, object(), ShapeTuple([2, -1]), np.zeros(2), len)


@pytest.mark.parametrize("name", sorted(name for name in contained_names() | PROCESS_WIDE))
def test_whatever_a_builtin_is_given_its_errors_are_named(name: str) -> None:
    """Programs call them with what they will."""
    function = tvm.get_global_func(name).function  # no border in between
    calls = [(), *((each,) * count for each in JUNK for count in (1, 2, 3, 5)), (tensor([1.0]), *JUNK[:3]), JUNK]
    for args in calls:
        with contextlib.suppress(TreadleError):
            function(*args)
