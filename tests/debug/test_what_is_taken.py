"""Every function of `treadle.debug` takes an executable, its file, a machine of it, or a model, and says what is not a path."""

import warnings

import numpy as np
import pytest
import treadle
from treadle import function, op, var
from treadle.formats.messages.errors import ArgumentError

x = var("x", ("n", 4))
CONSTANT = np.arange(8, dtype=np.float32).reshape(4, 2)
FEEDS = {"x": np.ones((3, 4), np.float32)}


def program(constant=CONSTANT):
    return treadle.compile(
        function([x], op.relu(treadle.named("layer1", x @ constant))), progress=False, embed_native=False
    )


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    executable = program()
    path = tmp_path_factory.mktemp("given") / "program.trdl"
    executable.export_library(path)
    return executable, str(path), treadle.VirtualMachine(executable)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_program_is_taken_in_every_form(given, which, tmp_path):
    model = given[which]
    assert treadle.debug.stats(model, FEEDS).steps
    assert treadle.debug.first_nonfinite(model, FEEDS) is None
    assert treadle.debug.diff(model, given[0]).same
    assert treadle.debug.step(model, FEEDS, given[0].lib.names[0]).code == 0
    treadle.debug.save_graph(model, tmp_path / "g.netron")
    treadle.debug.save_trace(model, FEEDS, tmp_path / "t.json")
    treadle.debug.dump(model, FEEDS, tmp_path / "dump")


def test_what_is_no_path_is_told(given):
    for wrong in (
        lambda: treadle.debug.save_trace("t.json", given[0], FEEDS),
        lambda: treadle.debug.save_graph(given[0], 7),
        lambda: treadle.debug.dump(given[0], FEEDS, FEEDS),
    ):
        with pytest.raises(ArgumentError, match=r": expected a path, got an? (int|dict)"):
            wrong()


def test_a_difference_of_constants_names_the_nodes_that_read_them(given):
    other = CONSTANT.copy()
    other[1, 1] += 1
    lines = treadle.debug.diff(given[0], program(other)).constants
    assert [line[0] for line in lines] == ["-", "+", "="]
    assert all("of 'layer1" in line for line in lines)


def test_a_mapping_among_arguments_says_how_names_are_given(given):
    machine = given[2]
    for wrong in (lambda: machine(FEEDS), lambda: machine(None, FEEDS), lambda: machine.call("main", FEEDS)):
        with pytest.raises(ArgumentError, match=r"arguments by name: machine.*feeds\)"):
            wrong()
    with pytest.raises(ArgumentError, match=r"a list of one is \[x\]"):
        machine.call("main", FEEDS["x"])


def test_warnings_stand_on_the_users_line():
    from onnx import parser

    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[n, 4] x) => (float[1, 2, 2] y) '
        "<int64[3] s = {1, 2, 2}> { y = Reshape(x, s) }"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        treadle.compile(model, shapes={"n": "rows"}, progress=False, embed_native=False)
    assert [warning.filename for warning in caught] == [__file__]


def test_what_is_often_given_by_mistake_is_told(given):
    executable, _, machine = given
    with pytest.raises(ArgumentError, match=r"got a text of several lines; treadle\.Executable\.from_text"):
        treadle.load(executable.as_text())
    with pytest.raises(
        IndexError, match="a tensor has no names; a function that has one result gives the tensor itself"
    ):
        machine(FEEDS["x"])["layer1"]
    with pytest.raises(ArgumentError, match=r"treadle\.compile\(…, shapes=\{name: sizes\}\) fixes sizes"):
        machine.bind("main", [FEEDS["x"]], [np.empty((3, 2), np.float32)])
