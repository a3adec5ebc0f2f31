"""Types as users write them."""

import numpy as np
import pytest
from treadle import DType, TensorType
from treadle.formats.messages.errors import ArgumentError, DTypeError, ShapeError
from treadle.formats.types import TupleType, erase_dims, placed_as, tensor


def test_a_tensor_type_takes_names_and_numpy_s_types():
    assert TensorType("float32", ["n", 4]) == TensorType(np.float32, ("n", 4)) == tensor("float32", ("n", 4))
    assert TensorType("int64") == TensorType(DType("int64"), ())
    assert str(TensorType("float32", ("2 * n", "?"))) == "float32[2*n, ?]"


def test_what_is_no_tensor_type_is_refused_when_it_is_made():
    with pytest.raises(DTypeError, match="did you mean float32"):
        TensorType("float33")
    for shape in (4, "n"):
        with pytest.raises(ShapeError, match=r"expected sizes and names of sizes, as \('n', 4\)"):
            TensorType("float32", shape)  # type: ignore[arg-type]


def test_a_type_says_where_its_tensor_lies():
    here = TensorType("float32", ("n", 4))
    there = here.on("gpu0")
    assert str(there) == "float32[n, 4]@gpu0"
    assert there != here == there.on("")
    assert there.with_shape((2,)) == tensor("float32", (2,)).on("gpu0")
    assert erase_dims(there) == tensor("float32", ("?", 4)).on("gpu0")
    assert placed_as(TupleType((here, here)), TupleType((there, here))) == TupleType((there, here))
    with pytest.raises(ArgumentError, match="device: expected a name, or '' for the host, got"):
        TensorType("float32", (2,), 3)  # type: ignore[arg-type]
