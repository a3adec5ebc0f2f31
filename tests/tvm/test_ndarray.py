"""`tvm.nd`: tensors are made, copied, set and shared."""

import gc
import pickle
import weakref

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float16", "bool"])
def test_a_tensor_has_what_it_was_made_of(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 10, size=(3, 4)).astype(dtype)
    y = tvm.nd.array(x, device=tvm.cpu())
    z = y.copyto(tvm.cpu())
    assert isinstance(y, tvm.nd.NDArray)
    assert (y.dtype, y.shape, y.device) == (dtype, (3, 4), tvm.cpu(0))
    np.testing.assert_array_equal(y.numpy(), x)
    np.testing.assert_array_equal(z.numpy(), x)
    assert not np.shares_memory(z.array, y.array)


def test_lists_are_arrays_and_numpy_gives_copies() -> None:
    x = tvm.nd.array([1, 2, 3])
    before = x.numpy()
    x[:] = np.array([4, 5, 6])
    assert before.tolist() == [1, 2, 3]
    assert x.numpy().tolist() == [4, 5, 6]
    with pytest.warns(DeprecationWarning, match="use NDArray.numpy"):
        assert x.asnumpy().tolist() == [4, 5, 6]


def test_what_is_made_of_an_array_is_a_copy() -> None:
    x = np.zeros(3)
    y = tvm.nd.array(x)
    x[:] = 1
    assert y.numpy().tolist() == [0, 0, 0]
    assert y.array.ctypes.data % 64 == 0


def test_an_empty_tensor_is_zeros() -> None:
    assert tvm.nd.empty((2, 3)).dtype == "float32"
    assert not tvm.nd.empty((2, 3), "int8").numpy().any()
    assert tvm.nd.empty(()).shape == ()
    for shape in ((-1,), (1 << 50, 1 << 20)):
        with pytest.raises(ValueError, match="expected up to 32 sizes"):
            tvm.nd.empty(shape)


def test_elements_are_copied_between_tensors_of_one_shape_and_type() -> None:
    x, y = tvm.nd.array(np.arange(6.0).reshape(2, 3)), tvm.nd.empty((2, 3), "float64")
    assert x.copyto(y) is y
    np.testing.assert_array_equal(x.numpy(), y.numpy())
    with pytest.raises(ValueError, match=r"shape do not match.*got \(2, 3\), expected \(3, 2\)"):
        x.copyto(tvm.nd.empty((3, 2), "float64"))
    with pytest.raises(TypeError, match="float64 elements do not go into int64"):  # TVM compares bytes alone
        x.copyto(tvm.nd.empty((2, 3), "int64"))
    with pytest.raises(TypeError, match="a tensor or a device"):
        x.copyto([])


def test_only_the_whole_is_set() -> None:
    x = tvm.nd.empty((2, 2))
    x[:] = [[1, 2], [3, 4]]
    x[:] = x.copyto(tvm.cpu())
    x.copyfrom(np.array([[1, 2], [3, 5]]))  # converted
    assert x.numpy().tolist() == [[1, 2], [3, 5]]
    for place in (0, slice(0, 1), (slice(None), 0)):
        with pytest.raises(ValueError, match="Array only support set from numpy array"):
            x[place] = 1
    with pytest.raises(ValueError, match=r"got \(3,\), expected \(2, 2\)"):
        x.copyfrom(np.zeros(3))
    with pytest.raises(TypeError, match="expected an array of float32 elements, got a object"):
        x.copyfrom(object())


def test_a_tensor_equals_itself_alone() -> None:
    x = tvm.nd.array([1, 2])
    y = tvm.nd.array([1, 2])
    assert x == x.same_as(x) or x.same_as(x)
    assert x != y
    assert len({x, y, x}) == 2


def test_a_view_shares_memory() -> None:
    x = tvm.nd.array(np.arange(6))
    view = x._create_view((2, 3))
    x[:] = np.zeros(6, np.int64)
    assert view.numpy().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_view_is_a_part_of_the_memory() -> None:
    x = tvm.nd.array(np.arange(1024, dtype=np.int32))
    half = x._create_view([512], relative_byte_offset=2048)
    np.testing.assert_array_equal(
        half._create_view([16, 16], relative_byte_offset=1024).numpy().ravel(), np.arange(768, 1024)
    )
    assert x._create_view([4], "uint8").numpy().tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="only contains 4096 bytes"):
        x._create_view([2048])
    with pytest.raises(ValueError, match="would occupy bytes 2048 <= i_byte < 4096"):
        half._create_view([512], relative_byte_offset=2048)
    with pytest.raises(ValueError, match="would occupy"):
        x._create_view([-1])
    with pytest.raises(TypeError, match="copy it first"):
        tvm.nd.from_dlpack(np.arange(8)[::2])._create_view([2])


def test_it_says_what_it_is() -> None:
    assert (
        repr(tvm.nd.array(np.zeros(2, np.float32)))
        == "<tvm.nd.NDArray shape=(2,), cpu(0)>\narray([0., 0.], dtype=float32)"
    )
    assert str(tvm.nd.array([1, 2])) == "[1 2]"


def test_tensors_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(tvm.nd.array([1, 2]))).numpy().tolist() == [1, 2]


def test_dlpack_goes_both_ways_and_shares() -> None:
    x = tvm.nd.array(np.arange(4.0))
    shared = np.from_dlpack(x)
    x[:] = np.ones(4)
    assert shared.tolist() == [1, 1, 1, 1]
    y = tvm.nd.from_dlpack(x.to_dlpack())  # a capsule
    y[:] = np.full(4, 2.0)
    assert x.numpy().tolist() == [2, 2, 2, 2]


def test_strided_tensors_come_in_as_they_lie() -> None:
    array = np.arange(12.0).reshape(3, 4)
    for view in (array.T, array[:, ::2], array[:1]):
        np.testing.assert_array_equal(tvm.nd.from_dlpack(view).numpy(), view)
    np.testing.assert_array_equal(tvm.nd.from_dlpack(array[:1])._create_view((2, 2)).numpy(), [[0, 1], [2, 3]])


def test_memory_that_came_in_lives_as_long_as_it_is_used() -> None:
    array = np.arange(1000.0)
    gone = weakref.ref(array)
    x = tvm.nd.from_dlpack(array)
    del array
    gc.collect()
    assert gone() is not None
    assert x.numpy().sum() == 499500
    del x
    gc.collect()
    assert gone() is None


def test_what_may_not_be_written_to_stays_so() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.raises(treadle.TreadleError, match="read-only"):
        tvm.nd.numpyasarray(array).copyfrom(np.zeros(3))
    with pytest.raises(treadle.TreadleError, match="from_dlpack"):
        tvm.nd.from_dlpack([1, 2])


def test_our_own_tensors_do_the_same() -> None:
    x = treadle.Tensor(np.zeros(3))
    x[:] = [1, 2, 3]
    y = x.copyto(treadle.cpu())
    assert type(y) is treadle.Tensor
    assert y.numpy().tolist() == [1, 2, 3]
    with pytest.raises(treadle.TreadleError, match=r"copyto: cuda\(0\) does not exist here; there is cpu\(0\)"):
        x.copyto(tvm.cuda(0))


def test_a_function_takes_another_library_s_tensors_where_they_lie() -> None:
    class Other:
        """A tensor of another library's."""

        def __init__(self, array: np.ndarray) -> None:
            self.array = array

    def fill(x: tvm.nd.NDArray, number: float) -> None:
        x[:] = np.full(x.shape, number, x.dtype)

    own = np.zeros(3, "float32")
    tvm.contrib.dlpack.convert_func(fill, Other, lambda other: other.array.__dlpack__())(Other(own), 2.0)
    assert own.tolist() == [2, 2, 2]
