"""Kinds of files by their first bytes, and the function that takes each: for messages about a file given to another one.

One table. Only the first bytes are looked at; a kind that is recognised may be damaged all the same.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import NamedTuple

HEAD_BYTES = 4096  # of a file that are looked at

_OF_TVM = bytes.fromhex("1514422fde25d2")  # what executables of TVM's machines have in common after their first byte
_EXPORT = "export the model to ONNX, which treadle.compile takes"
_ORIGINAL = "treadle.compile takes the ONNX model that it was made of"
_BUILT = "a framework exports its models to ONNX; treadle.function and treadle.Module build others"
_LOADED_BY_NAME = "treadle.load takes one that export_library made, under a name that ends in .so, .dylib, .dll or .o"
_PARAMETERS = "treadle.load_params takes it"
_CONVERTED = "treadle.compile takes it where onnxmltools and {} are installed, under a name that ends in {}"
_LOADED_BY_TVM = "treadle.tvm.runtime.load_module takes it"


class FileKind(NamedTuple):
    """A kind of file: what it is, what to do with it, and how one tells."""

    name: str  # for programs
    what: str
    advice: str
    fits: Callable[[bytes], object]


def _starts(*starts: bytes) -> Callable[[bytes], object]:
    return lambda head: head.startswith(starts)


def _has(pattern: bytes) -> Callable[[bytes], object]:
    return re.compile(pattern, re.MULTILINE).search


def _is_safetensors(head: bytes) -> bool:
    return head[8:9] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] < 1 << 32


def _is_image(head: bytes) -> bool:
    return head.startswith((b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")) or head[8:12] == b"WEBP"


def _is_npz(head: bytes) -> bool:
    return head.startswith(b"PK\x03\x04") and head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".npy")


# begins alike in assembly and the IR
_function = _has(rb"^\s*(func @|data \w+|const \w+ |prim \w+\[?|import \S+:|meta \")")
_instructions = (
    _has(  # assembly alone has them, misspelt ones too, and labels; a line of the IR is a binding, or a value alone
        rb"\brefs=\d|^meta \"|^\w+:[ \t]*$|^[ \t]+[a-z]\w*[ \t]+[\w(]"
    )
)
_python = _has(rb"^(import \w+$|from [\w.]+ import |def \w+\(|@\w+)")

KINDS = (
    FileKind("executable", "a Treadle executable", "treadle.load takes it", _starts(b"\x89TRDL\r\n\x1a")),
    FileKind("relay or relax", "TVM's", _LOADED_BY_TVM, lambda head: head[1:8] == _OF_TVM),
    FileKind(
        "params",
        "a file of TVM's parameters",
        f"{_PARAMETERS}, under a name that ends in .params",
        _starts(struct.pack("<Q", 0xF7E58D4F05049CB7)),
    ),
    FileKind("safetensors", "a file of parameters (safetensors)", _PARAMETERS, _is_safetensors),
    FileKind("npz", "a file of NumPy's arrays (.npz)", _PARAMETERS, _is_npz),
    FileKind("npy", "one of NumPy's arrays (.npy)", "numpy.load takes it", _starts(b"\x93NUMPY")),
    FileKind("zip", "a zip archive, as PyTorch and Keras save models", _EXPORT, _starts(b"PK\x03\x04", b"PK\x05\x06")),
    FileKind("gzip", "a compressed archive, as TVM exports libraries", _LOADED_BY_TVM, _starts(b"\x1f\x8b")),
    FileKind(
        "library",
        "a library or object file",
        _LOADED_BY_NAME,
        _starts(b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"!<arch>\n"),
    ),
    FileKind("tar", "an archive (tar)", "unpack it first", lambda head: head[257:262] == b"ustar"),
    FileKind(
        "compressed",
        "a compressed file",
        "unpack it first",
        _starts(b"\xfd7zXZ\0", b"BZh", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c"),
    ),
    FileKind("image", "an image", "a program takes its pixels, as an array", _is_image),
    FileKind("hdf5", "an HDF5 file, as Keras saves models", _EXPORT, _starts(b"\x89HDF\r\n\x1a\n")),
    FileKind("tflite", "a TensorFlow Lite model", _EXPORT, lambda head: head[4:8] == b"TFL3"),
    FileKind("ort", "a model in onnxruntime's own format (.ort)", _ORIGINAL, lambda head: head[4:8] == b"ORTM"),
    FileKind("gguf", "a GGUF file, as llama.cpp has them", _EXPORT, _starts(b"GGUF")),
    FileKind(
        "pickle",
        "a pickle, which could run anything; Treadle reads none",
        _EXPORT,
        _starts(b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
    ),
    FileKind(
        "git lfs",
        "a pointer of git-lfs, in the place of the file itself",
        "`git lfs pull` fetches that",
        _starts(b"version https://git-lfs"),
    ),
    FileKind("html", "a web page, as a download that failed leaves it", "", _has(rb"(?i)\A\s*<(!doctype html|html)\b")),
    FileKind("openvino", "the description of an OpenVINO model (.xml)", _ORIGINAL, _has(rb"<net\s[^>]*\bversion=")),
    FileKind("xml", "an XML text", "", _has(rb"\A\s*<\?xml\b")),
    FileKind(
        "onnx text",
        "an ONNX model as text",
        "onnx.parser.parse_model makes a model of it, which treadle.compile takes",
        _has(rb"\A\s*<\s*ir_version\s*:"),
    ),
    FileKind(
        "xgboost",
        "a model of XGBoost",
        _CONVERTED.format("xgboost", ".json, .ubj or .xgb"),
        lambda head: re.match(rb'\s*\{\s*"(learner|Config)"\s*:', head) or re.match(rb"\{L[\s\S]{8}learner\{", head),
    ),
    FileKind(
        "lightgbm",
        "a model of LightGBM",
        _CONVERTED.format("lightgbm", ".txt or .lgb"),
        _has(rb"\Atree\r?\nversion=v\d"),
    ),
    FileKind(
        "graph json",
        "a graph as JSON",
        "treadle.tvm.contrib.graph_executor.create takes it",
        _has(rb'\A\s*\{[\s\S]*"(nodes|arg_nodes|heads)"'),
    ),
    FileKind("json", "a JSON text", "", _has(rb"\A\s*[\[{]\s*[\"\]}\[{\d]")),
    FileKind(
        "relay text",
        "a text of TVM's Relay",
        "treadle.tvm.relay.fromtext takes its text",
        _has(rb"^#\[version|^def @\w+\(|^fn \("),
    ),
    FileKind("script", "a text of Python's", _BUILT, _python),
    FileKind(
        "assembly",
        "assembly text",
        "`treadle as`, or treadle.Executable.from_text, makes an executable of it",
        lambda head: _function(head) and _instructions(head),
    ),
    FileKind("ir", "a text of the IR", "treadle.compile takes it, under a name that ends in .ir", _function),
    FileKind(
        "onnx", "an ONNX model", "treadle.compile takes it", _has(rb"\A\x08[\x01-\x20][\x12\x1a\x22\x28\x32\x3a\x42]")
    ),
    FileKind("empty", "empty", "", lambda head: not head),
)


def kind_of(head: bytes) -> FileKind | None:
    """The kind of file that begins so, with `HEAD_BYTES` bytes if it has as many; None for one that nobody here knows."""
    head = bytes(head[:HEAD_BYTES])
    return next((kind for kind in KINDS if kind.fits(head)), None)


def kind_of_whole(content: bytes) -> FileKind | None:
    """The kind of a file that is read whole. Texts of programs are told apart by what stands in their functions, which may come
    after constants of any length."""
    kind = kind_of(content)
    if kind is not None and kind.name in ("assembly", "ir"):
        begins = re.search(rb"^func @", content, re.MULTILINE)
        return kind_of(content[begins.start() :]) if begins and kind.name == "ir" else kind
    return kind


def told(head: bytes) -> str:
    """How a message goes on about a file that is of the wrong kind: `it is an ONNX model: treadle.compile takes it`."""
    kind = kind_of(head)
    if kind is not None:
        return f"it is {kind.what}" + (f": {kind.advice}" if kind.advice else "")
    if is_text(head):
        return f"it is text, which begins with {bytes(head[:40])!r}"
    return f"it begins with {bytes(head[:8])!r}"


def is_text(head: bytes) -> bool:
    """Whether bytes may be the beginning of a text."""
    return not any(byte < 9 or 13 < byte < 32 for byte in bytes(head[:HEAD_BYTES]))
