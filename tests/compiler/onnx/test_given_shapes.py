"""Shapes that a user gives to a model's inputs: checked, and carried on to inputs whose sizes have the same name."""

import pytest
import treadle
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import parser
from treadle.formats.messages.errors import CompileError, ModelError

MODEL = parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> agraph '
    "(float[batch, length] ids, float[batch, length] mask, float[batch, past] cache, float[4] scale) "
    "=> (float[batch, length] y, float[batch, past] z, float[4] s) "
    "{ y = Add(ids, mask) z = Neg(cache) s = Neg(scale) }"
)


def shapes_with(**options):
    exe = treadle.compile(MODEL, progress=False, embed_native=False, **options)
    return {port.name: port.shape for port in exe.inputs()}


def test_a_size_holds_for_all_that_the_model_calls_by_its_name():
    assert shapes_with(shapes={"ids": (1, 128)}) == {
        "ids": (1, 128),
        "mask": (1, 128),
        "cache": (1, "past"),
        "scale": (4,),
    }


def test_a_size_can_be_given_by_the_name_alone():
    assert shapes_with(shapes={"length": 7, "batch": "b"})["mask"] == ("b", 7)
    assert shapes_with(shapes={"length": [7]})["mask"] == ("batch", 7)


def test_sizes_that_disagree_are_taken_as_they_are_given():
    shapes = shapes_with(shapes={"ids": (1, 4), "cache": (2, 3)})
    assert shapes["cache"] == (2, 3)
    assert shapes["mask"] == ("batch", 4)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"ids": 5}, r"shapes\['ids'\]: expected sizes and names of sizes, .* got an int"),
        ({"ids": (1,)}, r"shapes\['ids'\]: got 1 size, but the model's input has 2: \[batch, length\]"),
        ({"ids": (1, 2.0)}, r"shapes\['ids'\]\[1\]: expected a number, or a name such as \"n\", got a float"),
        ({"ids": (1, True)}, r"shapes\['ids'\]\[1\]: .*got a bool"),
        ({"ids": (-1, 2)}, r"shapes\['ids'\]\[0\] is -1; a size that is open is a name, such as \"n\", or None"),
        ({"ids": ("[n", 2)}, r"shapes\['ids'\]\[0\] is '\[n', which is not the name of a size"),
        (
            {"id": (1, 2)},
            r"a shape is given for 'id', .*its open sizes are 'batch', 'length', 'past'; did you mean ids",
        ),
        ({"lenght": 2}, "did you mean length"),
        ({"length": 1.5}, "shapes: 'length': expected a number"),
    ],
)
def test_what_is_no_shape_is_refused(shapes, message):
    with pytest.raises(ModelError, match=message):
        shapes_with(shapes=shapes)


def test_a_batch_that_is_a_number_is_told_to_be_a_shape():
    with pytest.raises(CompileError, match=r"a size that does not change is one of a shape: shapes=\{name: \(8, …\)\}"):
        shapes_with(batch=8)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.text(), st.text(min_size=1))
@example("表里图_dim1", "é")
@example("", " ")
@example('"', "'\n{")
@example("min", "²")
@example("n" * 10_000, "名" * 10_000)
@example("n" * 127, "n" * 128)
def test_whatever_a_model_calls_its_sizes_and_inputs_is_written_and_read(size: str, name: str):
    """In the executable's file, and in both texts. Sums of sizes are the longest that is written of them."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[n, m] x, float[n, m] y) => (float[k, m] z) '
        "{ z = Concat<axis=0>(x, y, x, y, x) }"
    )
    for place, value in enumerate(model.graph.input):
        value.name = name + str(place)
        value.type.tensor_type.shape.dim[0].dim_param = size + "01"[place]
    model.graph.node[0].input[:] = [value.name for value in (*model.graph.input,) * 2] + [name + "0"]
    executable = treadle.compile(model, progress=False, embed_native=False)
    assert executable.inputs().names == (name + "0", name + "1")
    for read in (treadle.load(executable.as_bytes()), treadle.Executable.from_text(executable.as_text())):
        assert (read.inputs(), read.outputs()) == (executable.inputs(), executable.outputs())
