"""Models of other libraries: which converter makes an ONNX model of an object or file, or what its user does instead.

One table. A library is recognised by its name, and imported only where its model is converted.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...formats.messages.errors import CompileError
from ...formats.messages.file_kinds import HEAD_BYTES, kind_of

_INPUT = "X"  # what converted models call their input, as `skl2onnx.to_onnx` does


@dataclass(frozen=True)
class Library:
    """Where models come from. `convert` makes an ONNX model by the package `converter`; without it, `advice` says what to do."""

    name: str
    root: str  # of the modules that its classes are in
    classes: tuple[str, ...]  # one of them is among the bases of an object's class
    advice: str = ""
    converter: str = ""
    convert: Callable[[Any], Any] | None = None
    file: str = ""  # the kind of its files (`messages/file_kinds.py`)
    endings: tuple[str, ...] = ()  # of their names: the library's own reader takes no file that comes as something else


def _features(model: Any) -> int:
    """How many columns a fitted model was fitted with."""
    for name in ("n_features_in_", "num_feature", "num_features"):
        count = getattr(model, name, None)
        if count is not None:
            return int(count() if callable(count) else count)
    raise ValueError("it is not fitted, or does not say how many features it takes")


def _by(module: str, function: str, types: str) -> Callable[[Any], Any]:
    """A function that calls a converter with one float32 matrix as the input."""

    def convert(model: Any) -> Any:
        matrix = importlib.import_module(types).FloatTensorType([None, _features(model)])
        return getattr(importlib.import_module(module), function)(model, initial_types=[(_INPUT, matrix)])

    return convert


_TOOLS = "onnxmltools.convert.common.data_types"
_EXPORT = "torch.onnx.export({}, (example,), 'model.onnx') writes a file that treadle.compile takes"
LIBRARIES = (  # those of which the objects are scikit-learn's as well stand before it
    Library("PyTorch's exporter", "torch", ("ONNXProgram",), "", "torch", lambda program: program.model_proto),
    Library("PyTorch", "torch", ("Module",), f"{_EXPORT.format('module')}; dynamo=True is its newer exporter"),
    Library("PyTorch", "torch", ("ExportedProgram",), f"{_EXPORT.format('program.module()')}"),
    Library("onnx-ir", "onnx_ir", ("Model",), "", "onnx_ir", lambda model: importlib.import_module("onnx_ir").to_proto(model)),
    Library(
        "LightGBM", "lightgbm", ("Booster", "LGBMModel"), "", "onnxmltools",
        _by("onnxmltools", "convert_lightgbm", _TOOLS), "lightgbm", (".txt", ".lgb", ".model"),
    ),
    Library(
        "XGBoost", "xgboost", ("Booster", "XGBModel"), "", "onnxmltools",
        _by("onnxmltools", "convert_xgboost", _TOOLS), "xgboost", (".json", ".ubj", ".xgb", ".model"),
    ),
    Library("CatBoost", "catboost", ("CatBoost",), "model.save_model('model.onnx', format='onnx') writes an ONNX file"),
    Library("Keras", "keras", ("Layer",), "model.export('model.onnx', format='onnx') writes an ONNX file"),
    Library(
        "TensorFlow", "tensorflow", ("Module", "Trackable"), "tf2onnx makes an ONNX model of it: python -m tf2onnx.convert"
    ),
    Library(
        "scikit-learn", "sklearn", ("BaseEstimator",), "", "skl2onnx",
        _by("skl2onnx", "convert_sklearn", "skl2onnx.common.data_types"),
    ),
)  # fmt: skip


def library_of(model: Any) -> Library | None:
    """The library that made an object; None for one of no library in the table."""
    bases = {(each.__module__.partition(".")[0], each.__name__) for each in type(model).__mro__}
    return next((each for each in LIBRARIES if any((each.root, name) in bases for name in each.classes)), None)


def library_of_file(path: str | os.PathLike) -> Library | None:
    """The library whose models are in such files, by name and content; None for another file, and for one that cannot be read."""
    libraries = [each for each in LIBRARIES if Path(path).suffix in each.endings]
    try:
        if not libraries or not Path(path).is_file():  # a pipe is read once
            return None
        with Path(path).open("rb") as file:
            kind = kind_of(file.read(HEAD_BYTES))
    except (OSError, ValueError):  # the reader reports it
        return None
    return None if kind is None else next((each for each in libraries if each.file == kind.name), None)


def as_onnx(model: Any) -> Any:
    """The ONNX model that a converter makes of another library's object or file; anything else is returned unchanged.

    Raises CompileError, which names the converter where that is not installed, and what to write where there is none.
    """
    is_file = isinstance(model, (str, os.PathLike))
    library = library_of_file(model) if is_file else library_of(model)
    if library is None:
        return model
    what = (
        f"{os.fspath(model)}: a model of {library.name}" if is_file else f"a {type(model).__name__} of {library.name}"
    )
    if library.convert is None:
        raise CompileError(f"cannot compile {what}: {library.advice}")
    try:
        if is_file:
            model = importlib.import_module(library.root).Booster(model_file=os.fspath(model))
        return library.convert(model)
    except ModuleNotFoundError as error:
        raise CompileError(
            f"cannot compile {what}: {library.converter} makes an ONNX model of it, and {error.name} is not installed: "
            f"pip install {error.name}"
        ) from None
    except Exception as error:
        raise CompileError(
            f"cannot compile {what}: {library.converter} cannot convert it with one matrix of float32 as input "
            f"({type(error).__name__}: {error}); convert it with the input types that it has, and compile the ONNX model"
        ) from error
