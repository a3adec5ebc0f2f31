"""The callable that ONNX conformance runs use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from treadle.formats.messages.errors import UnsupportedOperatorError

from ..conformance.backend import run


def saved(folder: Path, text: str) -> str:
    path = folder / "model.onnx"
    path.write_bytes(parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + text).SerializeToString())
    return str(path)


def test_inputs_and_outputs_are_arrays_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_KERNELS", "cached")
    path = saved(
        tmp_path, "agraph (float[2] a, float[2] b) => (float[2] d, float[2] s) { d = Sub(a, b) s = Add(a, b) }"
    )
    difference, total = run(path, [np.float32([5, 7]), np.float32([1, 2])])
    np.testing.assert_array_equal(difference, np.float32([4, 5]))
    np.testing.assert_array_equal(total, np.float32([6, 9]))


def test_what_is_unsupported_is_not_implemented(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="Foo"):
        run(saved(tmp_path, "agraph (float[2] a) => (float[2] b) { b = Foo(a) }"), [np.float32([5, 7])])
    assert issubclass(UnsupportedOperatorError, NotImplementedError)
