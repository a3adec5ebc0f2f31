"""A file that is given to the wrong function is told for what it is, with the function that takes it."""

import lzma
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
import treadle
from treadle import Module, function, var
from treadle.formats.messages.errors import FormatError, ModelError
from treadle.formats.messages.file_kinds import HEAD_BYTES, KINDS, kind_of


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
    (folder / "xgboost").write_text('{"learner":{"attributes":{}},"version":[3,0,0]}')
    (folder / "lightgbm").write_text("tree\nversion=v4\nnum_class=1\n")
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
    with tarfile.open(folder / "tar", "w") as archive:
        archive.add(folder / "json", "model.json")
    (folder / "compressed").write_bytes(lzma.compress(b"x"))
    (folder / "image").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(20))
    (folder / "ort").write_bytes(b"\x18\0\0\0ORTM" + bytes(60))
    (folder / "git lfs").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n")
    (folder / "html").write_text("\n<!DOCTYPE html>\n<html><title>Not found</title></html>")
    (folder / "openvino").write_text('<?xml version="1.0"?>\n<net name="Model0" version="11">\n</net>')
    (folder / "xml").write_text('<?xml version="1.0"?>\n<a/>')
    (folder / "onnx text").write_text(
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
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
        ("assembly", "it is assembly text: `treadle as`, or treadle.Executable.from_text, makes an executable of it"),
        ("relay or relax", "it is TVM's: treadle.tvm.runtime.load_module takes it"),
        ("git lfs", "it is a pointer of git-lfs, in the place of the file itself: `git lfs pull` fetches that"),
        ("html", "it is a web page, as a download that failed leaves it"),
        ("openvino", r"it is the description of an OpenVINO model \(.xml\): treadle.compile takes the ONNX model"),
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


def test_a_model_that_was_copied_in_part_is_told_so(files):
    content = (files / "onnx").read_bytes()
    with pytest.raises(
        ModelError, match=f"begins as an ONNX model does, but its {len(content) - 9} bytes are incomplete"
    ):
        treadle.compile(content[:-9])


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
    with pytest.raises(FormatError, match="is not text in UTF-8: it is a pickle"):
        treadle.compile(tmp_path / "model.ir")
