"""A file that is given to the wrong function is told for what it is, with the function that takes it."""

import pickle
import zipfile

import numpy as np
import pytest
import treadle
from treadle import Module, function, var
from treadle.formats.errors import FormatError, ModelError
from treadle.formats.file_kinds import HEAD_BYTES, KINDS, kind_of


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind, made by what makes such files."""
    folder = tmp_path_factory.mktemp("kinds")
    onnx = pytest.importorskip("onnx")
    x = var("x", (2,))
    module = Module(main=function([x], x + 1))
    executable = treadle.compile(module, progress=False, embed_native=False)
    executable.export_library(folder / "executable")
    (folder / "assembly").write_text(executable.as_text())
    (folder / "ir").write_text(str(module))
    np.savez(folder / "npz.npz", w=np.ones(2))
    (folder / "npz.npz").rename(folder / "npz")
    np.save(folder / "npy.npy", np.ones(2))
    (folder / "npy.npy").rename(folder / "npy")
    treadle.save_params({"w": np.ones(2, np.float32)}, folder / "w.params")
    (folder / "w.params").rename(folder / "params")
    ports = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    onnx.save(onnx.helper.make_model(graph), folder / "onnx")
    (folder / "pickle").write_bytes(pickle.dumps([1]))
    with zipfile.ZipFile(folder / "zip", "w") as archive:
        archive.writestr("archive/data.pkl", "x")
    (folder / "graph json").write_text('{\n  "nodes": [], "arg_nodes": []}')
    (folder / "json").write_text('{"a": 1}')
    (folder / "script").write_text("import torch\n")
    (folder / "relay text").write_text('#[version = "0.0.5"]\ndef @main(%x: int64) { %x }')
    (folder / "relay or relax").write_bytes((0xD225DE2F4214151D).to_bytes(8, "little") + bytes(20))
    (folder / "gzip").write_bytes(b"\x1f\x8b\x08" + bytes(20))
    (folder / "library").write_bytes(b"\x7fELF\x02" + bytes(60))
    (folder / "hdf5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(60))
    (folder / "tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(60))
    (folder / "gguf").write_bytes(b"GGUF" + bytes(60))
    (folder / "safetensors").write_bytes((10).to_bytes(8, "little") + b'{"w":{}}  ')
    (folder / "empty").write_bytes(b"")
    return folder


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_file_is_recognised_by_how_it_begins(files, kind):
    assert kind_of((files / kind.name).read_bytes()[:HEAD_BYTES]) is kind


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("onnx", "is not a Treadle file: it starts with .*; it is an ONNX model: treadle.compile takes it"),
        ("params", "it is a file of TVM's parameters: treadle.load_params takes it"),
        ("zip", "it is a zip archive, as PyTorch and Keras save models: export the model to ONNX"),
        ("assembly", "it is assembly text: `treadle as` makes an executable of it"),
        ("relay or relax", "it is TVM's: treadle.tvm.runtime.load_module takes it"),
    ],
)
def test_load_says_what_it_was_given(files, name, message):
    with pytest.raises(FormatError, match=message):
        treadle.load(files / name)


@pytest.mark.parametrize("name", [kind.name for kind in KINDS if kind.name != "onnx"])
def test_compile_says_what_it_was_given(files, name):
    kind = next(kind for kind in KINDS if kind.name == name)
    with pytest.raises(ModelError, match="is not an ONNX model") as refused:
        treadle.compile(files / name)
    assert kind.what in str(refused.value)


@pytest.mark.parametrize("suffix", [".bin", ".params", ".npz"])
def test_load_params_says_what_it_was_given(files, suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    path.write_bytes((files / "onnx").read_bytes())
    with pytest.raises(FormatError, match=r"it is an ONNX model: treadle\.compile takes it"):
        treadle.load_params(path)


def test_a_text_of_the_ir_is_compiled_by_its_name(files, tmp_path):
    (tmp_path / "model.ir").write_bytes((files / "ir").read_bytes())
    machine = treadle.VirtualMachine(treadle.compile(tmp_path / "model.ir", progress=False))
    assert machine["main"](np.zeros(2, np.float32)).numpy().tolist() == [1, 1]


def test_an_ir_file_that_is_no_text_says_what_it_is(files, tmp_path):
    (tmp_path / "model.ir").write_bytes((files / "pickle").read_bytes() + b"\xff")
    with pytest.raises(FormatError, match="is no text in UTF-8: it is a pickle"):
        treadle.compile(tmp_path / "model.ir")
