"""Outputs of all rounds of Loop and Scan whose sizes only a round can tell, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import treadle
from onnx import parser
from treadle.formats.messages.errors import ShapeError

ort = pytest.importorskip("onnxruntime")
HEAD = '<ir_version: 10, opset_import: ["" : 21]> agraph '
PLACES = "s = Constant <value_ints = [-1]> ()  r = Reshape(g, s)  w = Cast <to = 1> (r)"
X = np.float32([0, 1, 0, 2, 3])


def check(text: str, *calls: Sequence[np.ndarray]) -> Any:
    model = parser.parse_model(HEAD + text)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    executable = treadle.compile(model, embed_native=False, progress=False)
    call = treadle.VirtualMachine(treadle.load(executable.as_bytes()), kernels="cached")["main"]
    for inputs in calls:
        expected = session.run(None, {info.name: x for info, x in zip(model.graph.input, inputs, strict=True)})
        found = call(*inputs)
        for each, wanted in zip(found if len(expected) > 1 else [found], expected, strict=True):
            assert np.asarray(each).shape == wanted.shape
            np.testing.assert_array_equal(np.asarray(each), wanted)
    return call


def test_rounds_of_a_loop_give_as_much_as_they_find() -> None:
    text = f"""(float[n] x, int64 k) => (float[a, b] y, int64[c] z, float[d, e, f] u, int64 last) {{
        t = Constant <value = bool {{1}}> ()  o = Constant <value_int = 0> ()
        last, y, z, u = Loop(k, t, o) <body = b (int64 i, bool c, int64 m)
            => (bool d, int64 v, float[q] p, int64 j, float[q, 1] h) {{
            d = Identity(c)  v = Add(m, i)  j = Add(i, i)  g = NonZero(x)  {PLACES}
            e = Cast <to = 1> (i)  p = Add(w, e)  l = Constant <value_ints = [-1, 1]> ()  h = Reshape(p, l) }}> }}"""
    none = np.zeros(4, np.float32)
    check(text, *([x, np.array(count)] for x, count in [(X, 3), (X, 1), (X, 0), (X, 40), (none, 2)]))


def test_rounds_of_a_scan_are_put_together_along_an_axis_the_last_one_first() -> None:
    text = f"""(float[n, 3] x) => (float[n, ?] y, float[?, n] z) {{
        y, z = Scan <num_scan_inputs = 1, scan_output_axes = [0, 1], scan_output_directions = [1, 0],
            body = b (float[3] e) => (float[q] w, float[q] v) {{ g = NonZero(e)  {PLACES}  v = Neg(w) }}> (x) }}"""
    call = check(text, [np.float32([[1, 0, 2], [0, 1, 2], [3, 4, 0]])], [np.float32([[1, 0, 2]])])
    with pytest.raises(ShapeError):  # onnxruntime refuses them as well
        call(np.float32([[1, 0, 2], [1, 1, 2]]))
