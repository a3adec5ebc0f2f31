"""Tensors as those who know NumPy expect them."""

import operator
import pickle

import ml_dtypes  # noqa: F401  NumPy knows the names of its types then
import numpy as np
import pytest
from treadle import Tensor
from treadle.formats.dtypes import DType
from treadle.rpc.tensor import RemoteTensor


@pytest.fixture
def t():
    return Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))


def test_an_element_type_is_equal_to_numpy_s(t):
    for same in (np.float32, np.dtype("float32"), np.dtype(">f4").newbyteorder("="), "float32", "f4", DType.float32):
        assert t.dtype == same
        assert same == t.dtype
    for other in (np.float64, "int8", "no such type", None, 4, float, list, DType.float16):
        assert t.dtype != other
    assert np.dtype(t.dtype) is np.dtype(np.float32)
    assert {np.dtype("float32"): 1}[t.dtype] == 1
    assert np.zeros(2, t.dtype).dtype == t.dtype


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if not dtype.is_string])  # NumPy has objects for texts
def test_each_element_type_is_numpy_s_of_its_name(dtype):
    assert dtype == np.dtype(dtype.name) == dtype
    if np.dtype(dtype.name).isbuiltin == 1:  # others are ml_dtypes', whose import no hash is worth
        assert hash(dtype) == hash(np.dtype(dtype.name))
    assert pickle.loads(pickle.dumps(dtype)) is dtype


def test_a_tensor_at_a_server_has_its_size_here():
    """Nothing is asked of the server for that."""
    there = RemoteTensor(None, np.dtype("float32"), (2, 3))
    assert (there.dtype, there.shape, there.ndim, there.size, there.nbytes) == (DType.float32, (2, 3), 2, 6, 24)
    assert len(there) == 2
    assert there.in_shape((6,)).shape == (6,)
    assert not there.is_here


def test_parts_and_elements(t):
    assert t[1, 2] == 5
    assert t[0].tolist() == [0, 1, 2]
    assert [row.tolist() for row in t] == t.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert t[:, ::2].shape == (2, 2)
    assert len(t) == 2
    assert 5 in t
    assert 6 not in t
    assert t.T.shape == (3, 2)
    assert t.reshape(3, 2).tolist() == t.reshape((3, 2)).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert t.astype("int8").dtype == np.int8
    with pytest.raises(IndexError):
        t[2]


def test_parts_share_memory(t):
    t[0][...] = 7
    assert t.numpy()[0].tolist() == [7, 7, 7]


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.ge])
def test_a_comparison_is_elementwise(t, compare):
    other = Tensor(np.array([[0, 9, 2], [3, 4, 9]], np.float32))
    expected = compare(t.numpy(), other.numpy())
    for found in (compare(t, other), compare(t, other.numpy()), compare(t.numpy(), other)):
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, expected)


def test_a_comparison_is_never_of_identity(t):
    with pytest.raises(ValueError, match="broadcast"):
        t == np.zeros(4)  # noqa: B015
    for ask in (bool, lambda t: t in [Tensor(t.numpy().copy())], lambda t: [t] == [Tensor(t.numpy().copy())]):
        with pytest.raises(ValueError, match=r"size 1|ambiguous"):
            ask(t)
    with pytest.raises(TypeError, match="unhashable"):
        hash(t)
    with pytest.raises(TypeError, match="unhashable"):
        {t}  # noqa: B018


def test_it_computes_as_an_array_does(t):
    array = t.numpy()
    for found, expected in (
        (t + 1, array + 1),
        (2 * t, 2 * array),
        (array - t, array - array),
        (-t, -array),
        (t @ t.T, array @ array.T),
        (np.exp(t), np.exp(array)),
        (np.sum(t, axis=0), array.sum(axis=0)),
        (np.add.reduce(t, axis=1), array.sum(axis=1)),
        (np.concatenate([t, t]), np.concatenate([array, array])),
    ):
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, expected)


def test_it_computes_in_place(t):
    before = t
    t += 1
    assert t is before
    assert t[0].tolist() == [1, 2, 3]
    fixed = Tensor(np.zeros(2, np.float32))
    fixed.numpy().flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fixed += 1


def test_a_tensor_can_be_pickled(t):
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(t)), t)


def test_a_tensor_of_texts_says_so() -> None:
    tensor = Tensor(np.array(["abc"], object))
    assert tensor.dtype is DType.string
    assert repr(tensor) == "Tensor(['abc'], dtype=string, device=cpu(0))"
