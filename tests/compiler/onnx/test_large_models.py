"""Models whose weights are most of what they are: how much memory compiling takes, and what their files may say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import treadle
from onnx import helper, numpy_helper
from treadle.compiler import ir
from treadle.compiler.codegen import spill
from treadle.compiler.codegen.tables import Tables
from treadle.compiler.named_weights import computed
from treadle.formats import constants, mapped
from treadle.formats.messages.errors import FileError, ModelError
from treadle.tools.dev.zoo.llama import llama

PEAK = """
lines = open("/proc/self/status").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""
IN_MEMORY = "import sys, treadle; made = treadle.compile(sys.argv[1], embed_native=False)"
TO_A_FILE = """
import contextlib, os, sys
from treadle.tools.cli import main
with contextlib.redirect_stdout(sys.stderr):
    assert main(["compile", sys.argv[1], "-o", sys.argv[2], "--no-kernels"]) == 0
"""


def peak(code: str, *arguments: object) -> int:
    """Bytes that a fresh process has in use at once."""
    command = [sys.executable, "-c", code + PEAK, *map(str, arguments)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """160 MB of weights beside a model, as exporters leave them; the largest is a tenth of them."""
    return saved(llama(6, 704, 11, 1, vocabulary=5600), tmp_path_factory.mktemp("large"))


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    onnx.save_model(
        model, folder / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=1024
    )
    return folder / "model.onnx"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak")
@pytest.mark.parametrize(("code", "most"), [(TO_A_FILE, 0.6), (IN_MEMORY, 1.3)], ids=["to a file", "in memory"])
def test_weights_are_not_held_more_often_than_needed(code: str, most: float, model: Path, tmp_path: Path) -> None:
    weights = model.with_name("model.data").stat().st_size
    small = saved(llama(6, 8, 1, 1, vocabulary=100), tmp_path / "small")
    assert peak(code, model, tmp_path / "made.trdl") - peak(code, small, tmp_path / "small.trdl") < most * weights


def test_the_file_is_the_same_whatever_holds_the_constants_meanwhile(model: Path, tmp_path: Path) -> None:
    treadle.compile(model, embed_native=False).export_library(tmp_path / "memory.trdl")
    with spill.spilling(tmp_path):
        treadle.compile(model, embed_native=False).export_library(tmp_path / "spilled.trdl")
    assert (tmp_path / "memory.trdl").read_bytes() == (tmp_path / "spilled.trdl").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory.trdl", "spilled.trdl"]


def test_constants_outlive_the_file_that_held_them(tmp_path: Path) -> None:
    elements = np.random.default_rng(0).random((512, 512), np.float32)
    with spill.spilling(tmp_path):
        made = computed("permute_dims", ir.Constant(ir.frozen(elements)), axes=(1, 0)).array
    assert mapped.is_private(made)
    assert not made.flags.writeable
    assert np.array_equal(made, elements.T)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_nothing_is_named(tmp_path: Path) -> None:
    with spill.spilling(tmp_path / "none"), pytest.raises(FileError, match=r"cannot be kept in a file .*none"):
        spill.kept(np.ones(1 << 20))


def test_pages_of_a_file_come_back_when_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 4096)
    array = np.memmap(tmp_path / "file", np.uint8, "r")[77:-5]
    before = array.sum()
    mapped.release(array)
    assert array.sum() == before
    assert b"".join(mapped.read_once(memoryview(array))) == array.tobytes()


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_pages_that_may_be_changed_are_never_given_back(mode: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 16))
    array = np.memmap(tmp_path / "file", np.uint8, mode)
    array[:] = 7
    mapped.release(array)
    assert array.min() == 7


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_copies_of_turned_tensors_have_the_same_elements(axes: tuple[int, ...]) -> None:
    turned = np.arange(300 * 70 * 16, dtype=np.float32).reshape(300, 70, 16).transpose(axes)
    copy = constants.aligned_copy(turned)
    assert copy.flags.c_contiguous
    assert copy.ctypes.data % 64 == 0
    assert np.array_equal(copy, turned)
    constants.copy_elements(copy, turned[::-1])
    assert np.array_equal(copy, turned[::-1])


def test_constants_that_differ_where_nobody_looks_first_are_two() -> None:
    first = np.zeros(1 << 20, np.uint8)
    second, third = first.copy(), first.copy()
    second[5000] = 1
    tables = Tables(ir.Module({}))
    places = [tables.constant(ir.Constant(ir.frozen(array))) for array in (first, second, third, second.copy())]
    assert places == [0, 1, 0, 1]


# ---- what files of models may say ----


def save(path: Path, nodes: list, tensors: list, inputs: list, outputs: list) -> Path:
    infos = [[helper.make_tensor_value_info(name, 1, shape) for name, shape in each] for each in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *infos, tensors)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def external(name: str, location: str, shape: tuple[int, ...], **fields: int) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=1, dims=shape, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, **fields}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def added(folder: Path, location: str, **fields: int) -> Path:
    tensor = external("w", location, (2,), **fields)
    return save(folder / "m.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], [tensor], [("x", [2])], [("y", None)])


def result(model: Path | bytes, *args: np.ndarray) -> np.ndarray:
    machine = treadle.VirtualMachine(treadle.compile(model, embed_native=False), kernels="cached")
    return machine["main"](*args).numpy()


X = np.array([1, 2], np.float32)


def test_external_data_lie_in_the_models_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    for place in (tmp_path, folder, folder / "inner"):
        (place / "w").write_bytes(np.array([5, 7], np.float32).tobytes())
    (folder / "inside").symlink_to(folder / "inner" / "w")
    (folder / "outside").symlink_to(tmp_path / "w")
    for good in ("w", "inner/w", "inside", "./inner/../w"):
        assert result(added(folder, good), X).tolist() == [6, 9]
    for bad in ("../w", "outside", str(tmp_path / "w"), "inner", "none", ""):
        with pytest.raises(ModelError, match="which is not a file in the model's folder"):
            treadle.compile(added(folder, bad))
    for fields in ({"offset": 4}, {"offset": -1}, {"length": 4}, {"offset": 1 << 62}):
        with pytest.raises(ModelError, match="needs 8 bytes"):
            treadle.compile(added(folder, "w", **fields))


def test_a_model_that_is_itself_a_link_has_its_data_beside_the_link_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "w").write_bytes(X.tobytes())
    model = added(tmp_path / "real", "w")
    (tmp_path / "link.onnx").symlink_to(model)
    with pytest.raises(ModelError, match="not a file in the model's folder"):
        treadle.compile(tmp_path / "link.onnx")


def test_data_beyond_two_gigabytes_are_found(tmp_path: Path) -> None:
    with open(tmp_path / "w", "wb") as file:  # sparse: it takes no room
        file.seek(5 << 30)
        file.write(X.tobytes())
    assert result(added(tmp_path, "w", offset=5 << 30), X).tolist() == [2, 4]


def test_an_initializer_that_is_an_input_too_is_a_constant(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    inputs = [("x", [2]), ("w", [2])]
    assert result(
        save(tmp_path / "m.onnx", [node], [numpy_helper.from_array(X, "w")], inputs, [("y", None)]), X
    ).tolist() == [2, 4]


def test_nodes_need_no_names_and_may_share_one(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", [a], [b], name=name)
        for a, b, name in [("x", "a", ""), ("a", "b", "n"), ("b", "y", "n")]
    ]
    assert result(save(tmp_path / "m.onnx", nodes, [], [("x", [2])], [("y", None)]), X).tolist() == [-1, -2]


def test_a_value_that_is_made_twice_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    with pytest.raises(ModelError, match="value 'y' is made twice"):
        treadle.compile(save(tmp_path / "m.onnx", nodes, [], [("x", [2])], [("y", None)]))


def test_outputs_that_nobody_uses_and_inputs_that_are_left_out(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["", "unused"]),
        helper.make_node("Clip", ["x", "", "most"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.array([1]), "k"), numpy_helper.from_array(np.float32(1.5), "most")]
    assert result(save(tmp_path / "m.onnx", nodes, tensors, [("x", [2])], [("y", None)]), X).tolist() == [1, 1.5]


def test_graphs_in_graphs_take_values_of_all_around_them() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    agraph (float[2] x, bool c) => (float[2] y) {
        a = Neg (x)
        y = If (c) <
            then_branch = g () => (float[2] t) {
                b = Abs (a)
                t = If (c) <
                    then_branch = h () => (float[2] u) { v = Add (a, b) u = Add (v, x) },
                    else_branch = i () => (float[2] w) { w = Identity (x) }>
            },
            else_branch = j () => (float[2] e) { e = Identity (a) }>
    }"""
    content = onnx.parser.parse_model(text).SerializeToString()
    assert result(content, X, np.array(True)).tolist() == [1, 2]
    assert result(content, X, np.array(False)).tolist() == [-1, -2]
