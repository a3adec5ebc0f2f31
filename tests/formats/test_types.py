"""Types as users write them."""

import numpy as np
import pytest
from treadle import DType, TensorType
from treadle.formats.messages.errors import DTypeError, ShapeError
from treadle.formats.types import tensor


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
