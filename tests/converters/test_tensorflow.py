"""Models of Keras, TensorFlow's functions and TFLite as tf2onnx and Keras write them, against TensorFlow.

They run in an environment of their own: `make tensorflow-test`. Weights are drawn from a seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf2onnx = pytest.importorskip("tf2onnx")
tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import onnx  # noqa: E402
from keras import layers  # noqa: E402

Arrays = Sequence[np.ndarray]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def tokens(*shape: int, most: int = 90) -> np.ndarray:
    return np.random.default_rng(shape).integers(1, most, shape, dtype=np.int32)


def results(value: Any) -> list[np.ndarray]:
    return [np.asarray(each) for each in tf.nest.flatten(value)]


def check(model: onnx.ModelProto, feeds: Arrays, expected: Arrays, tolerance: float = 1e-4) -> None:
    """Compiled, saved, loaded and verified, it gives what TensorFlow gave."""
    machine = treadle.VirtualMachine(treadle.load(treadle.compile(model, progress=False).as_bytes()))
    given = machine["main"](*feeds)
    found = [np.asarray(each) for each in (given if isinstance(given, tuple) else (given,))]
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        limit = tolerance * max(float(np.abs(theirs.astype(np.float64)).max(initial=0.0)), 1e-3)
        np.testing.assert_allclose(mine.astype(np.float64), theirs.astype(np.float64), rtol=0, atol=limit)


# ---- Keras ----

Built = tuple[Any, Arrays]


def sequential(*parts: Any, feeds: Arrays) -> Built:
    return keras.Sequential(parts), feeds


def texts(*parts: Any, length: int | None = None, mask: bool = False) -> Built:
    """Tokens of a text, of any length unless there is one; with a mask, some rows are padded."""
    feed = tokens(3, length or 20)
    if mask:
        feed[1, 12:], feed[2, 5:] = 0, 0
    shape = keras.Input((length,), dtype="int32")
    return sequential(shape, layers.Embedding(100, 16, mask_zero=mask), *parts, feeds=[feed])


def several_inputs() -> Built:
    price, kind = keras.Input((16,), name="price"), keras.Input((1,), dtype="int32", name="kind")
    words, image = (
        keras.Input((None,), dtype="int32", name="words"),
        keras.Input((20, 20, 1), name="image"),
    )
    joined = layers.Concatenate()(
        [
            layers.BatchNormalization()(price),
            layers.Flatten()(layers.Embedding(10, 4)(kind)),
            layers.GlobalAveragePooling1D()(layers.Embedding(50, 8)(words)),
            layers.GlobalMaxPooling2D()(layers.Conv2D(8, 3, activation="elu")(image)),
        ]
    )
    hidden = layers.Dense(32, activation="swish")(joined)
    outputs = [layers.Dense(1)(hidden), layers.Dense(4, activation="softmax")(hidden)]
    feeds = [floats(3, 16), tokens(3, 1, most=9), tokens(3, 7, most=49), floats(3, 20, 20, 1)]
    return keras.Model([price, kind, words, image], outputs), feeds


def u_net() -> Built:
    x = image = keras.Input((32, 48, 3))
    skips = []
    for channels in (8, 16):
        x = layers.LeakyReLU()(layers.BatchNormalization()(layers.Conv2D(channels, 3, padding="same")(x)))
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    for channels, up in (
        (16, layers.UpSampling2D(interpolation="bilinear")),
        (8, layers.Conv2DTranspose(8, 3, 2, "same")),
    ):
        x = layers.Concatenate()([up(x), skips.pop()])
        x = layers.SeparableConv2D(channels, 3, padding="same", activation="relu")(x)
    return keras.Model(image, layers.Conv2D(1, 1, activation="sigmoid")(x)), [floats(1, 32, 48, 3)]


def attention() -> Built:
    words = keras.Input((None,), dtype="int32")
    x = layers.Embedding(100, 32)(words)
    x = layers.LayerNormalization(epsilon=1e-6)(x + layers.MultiHeadAttention(4, 8)(x, x, use_causal_mask=True))
    return keras.Model(words, layers.Dense(10)(layers.Dense(64, activation="relu")(x))), [tokens(2, 12)]


class Cell(keras.layers.Layer):
    """A recurrent cell that no converter knows: its steps become a loop."""

    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(**options)
        self.units, self.state_size = units, [units, units]

    def build(self, shape: Sequence[int]) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 3 * self.units), name="kernel")
        self.recurrent = self.add_weight(shape=(self.units, 3 * self.units), name="recurrent")
        self.built = True

    def call(self, x: Any, states: Any) -> Any:
        hidden, count = states
        a, b, c = tf.split(x @ self.kernel + hidden @ self.recurrent, 3, -1)
        count = tf.nn.softplus(a) + count
        hidden = tf.tanh(b) * hidden / (1 + count) + tf.sin(c)
        return hidden, [hidden, count]


def mobile() -> Built:
    network = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3), classes=10, alpha=0.35)
    return network, [np.abs(floats(2, 64, 64, 3))]


MODELS: dict[str, Callable[[], Built]] = {
    "LSTMs": lambda: texts(
        layers.LSTM(24, return_sequences=True), layers.LSTM(16), layers.Dense(5, activation="softmax")
    ),
    "GRUs": lambda: texts(layers.GRU(24, return_sequences=True), layers.GRU(16, reset_after=False), layers.Dense(5)),
    "both ways, masked": lambda: texts(
        layers.Bidirectional(layers.LSTM(16, return_sequences=True)), layers.Bidirectional(layers.LSTM(8)), mask=True
    ),
    "simple RNNs": lambda: sequential(
        keras.Input((20, 8)),
        layers.SimpleRNN(16, return_sequences=True),
        layers.SimpleRNN(16, go_backwards=True),
        feeds=[floats(3, 20, 8)],
    ),
    "own cells": lambda: sequential(
        keras.Input((None, 8)),
        layers.RNN(Cell(12), return_sequences=True),
        layers.RNN(Cell(6)),
        feeds=[floats(3, 15, 8)],
    ),
    "convolutional LSTM": lambda: sequential(
        keras.Input((4, 12, 12, 2)),
        layers.ConvLSTM2D(4, 3, padding="same"),
        layers.Conv2D(1, 3, padding="same"),
        feeds=[floats(2, 4, 12, 12, 2)],
    ),
    "signals": lambda: sequential(
        keras.Input((None, 20)),
        layers.Conv1D(16, 5, padding="causal", dilation_rate=2, activation="relu"),
        layers.MaxPooling1D(2),
        layers.Conv1DTranspose(8, 4, 2, padding="same"),
        layers.UpSampling1D(2),
        feeds=[floats(2, 24, 20)],
    ),
    "volumes": lambda: sequential(
        keras.Input((8, 12, 12, 2)),
        layers.Conv3D(8, 3, padding="same", activation="relu"),
        layers.MaxPooling3D((1, 2, 2)),
        layers.Conv3DTranspose(4, 3, 2, padding="same"),
        layers.GlobalAveragePooling3D(),
        feeds=[floats(1, 8, 12, 12, 2)],
    ),
    "several inputs": several_inputs,
    "a U-Net": u_net,
    "attention": attention,
    "MobileNetV2": mobile,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("name", MODELS)
def test_keras(name: str, opset: int) -> None:
    network, feeds = MODELS[name]()
    signature = [tf.TensorSpec(each.shape, each.dtype, name=f"x{k}") for k, each in enumerate(network.inputs)]

    @tf.function(input_signature=signature)
    def run(*given: Any) -> Any:
        return network(list(given) if len(given) > 1 else given[0], training=False)

    model, _ = tf2onnx.convert.from_function(run, signature, opset=opset)
    check(model, feeds, results(run(*map(tf.constant, feeds))))


@pytest.mark.filterwarnings("ignore")
def test_what_keras_exports_itself(tmp_path: Path) -> None:
    network = keras.Sequential(
        [keras.Input((10, 8)), layers.LSTM(12, return_sequences=True), layers.GRU(6), layers.Dense(2)]
    )
    feed = floats(2, 10, 8)
    expected = results(network(feed))
    network.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    check(onnx.load(tmp_path / "model.onnx"), [feed], expected)


# ---- functions ----


def repeated(x: Any, count: Any) -> Any:
    weight = tf.constant(floats(8, 8) * np.float32(0.3))
    return tf.while_loop(lambda i, y: i < count, lambda i, y: (i + 1, tf.tanh(y @ weight) + x), [0, x])[1]


def collatz(number: Any) -> Any:
    def following(number: Any, steps: Any) -> Any:
        return tf.cond(number % 2 == 0, lambda: number // 2, lambda: 3 * number + 1), steps + 1

    return tf.while_loop(lambda number, steps: number > 1, following, [number, tf.constant(0)])[1]


def branches(x: Any, is_plain: Any) -> Any:
    weight = tf.constant(floats(8, 8))
    y = tf.cond(is_plain, lambda: tf.nn.relu(x @ weight), lambda: x * 2.0)
    return tf.cond(tf.reduce_sum(y) > 0.0, lambda: y + 1.0, lambda: tf.exp(-y * y)), tf.shape(y)


def gathered(x: Any, count: Any) -> Any:
    rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=(6,))

    def step(i: Any, state: Any, rows: Any) -> Any:
        state = tf.sin(state) + x[i]
        return i + 1, state, rows.write(i, state)

    _, state, rows = tf.while_loop(lambda i, state, rows: i < count, step, [0, tf.zeros((6,)), rows])
    return rows.stack(), state


def scanned(x: Any) -> Any:
    weight = tf.constant(floats(4, 4) * np.float32(0.4))
    return tf.scan(lambda state, each: tf.tanh(state @ weight + each), x, initializer=tf.zeros((2, 4)))


def best_boxes(boxes: Any, scores: Any) -> Any:
    kept = tf.image.non_max_suppression(boxes, scores, 30, 0.4, 0.2)
    return tf.gather(boxes, kept), tf.gather(scores, kept), kept


def crops(image: Any, boxes: Any) -> Any:
    return tf.image.crop_and_resize(image, boxes, tf.zeros((tf.shape(boxes)[0],), tf.int32), (14, 14))


def resized(image: Any, size: Any) -> Any:
    larger = tf.image.resize(image, size)
    return larger, tf.image.resize(larger, tf.shape(image)[1:3] * 2, method="nearest")


def einsums(a: Any, b: Any) -> Any:
    weight = tf.constant(floats(8, 2, 4))
    return tf.einsum("bid,bjd->bij", a, b), tf.einsum("bid,dhk->bhik", a, weight), tf.einsum("bij->bji", a)


def scattered(x: Any, places: Any) -> Any:
    rows = tf.gather(x, places)
    greatest, where = tf.math.top_k(x, 3)
    return (
        tf.scatter_nd(places[:, None], rows, tf.shape(x)),
        tf.tensor_scatter_nd_update(x, places[1:3, None], rows[:2]),
        greatest,
        tf.gather(x, where, axis=1, batch_dims=1),
        tf.where(x > 0.5),
    )


def sums_of_segments(x: Any, segments: Any) -> Any:
    return tf.math.segment_sum(x, segments), tf.math.unsorted_segment_sum(x, segments, 6)


def boxes_of(count: int) -> np.ndarray:
    corner = np.abs(floats(count, 2)) * 10
    return np.concatenate([corner, corner + np.abs(floats(count, 2)[::-1]) * 8], axis=1).astype(np.float32)


# a function, the shapes of its parameters, and what they are given
FUNCTIONS: dict[str, tuple[Callable, Sequence[Any], Arrays]] = {
    "a loop": (repeated, [(None, 8), ()], [floats(3, 8), np.array(7, np.int32)]),
    "a loop with a branch": (collatz, [()], [np.array(27, np.int32)]),
    "branches": (branches, [(None, 8), ()], [floats(3, 8), np.array(True)]),
    "rows of a loop": (gathered, [(None, 6), ()], [floats(9, 6), np.array(5, np.int32)]),
    "a scan": (scanned, [(None, 2, 4)], [floats(7, 2, 4)]),
    "boxes": (best_boxes, [(None, 4), (None,)], [boxes_of(200), np.abs(floats(200)) / 4]),
    "crops": (crops, [(1, 20, 20, 3), (None, 4)], [floats(1, 20, 20, 3), np.float32([[0.1, 0.2, 0.7, 0.9]] * 3)]),
    "sizes of a run": (resized, [(1, None, None, 3), (2,)], [floats(1, 20, 24, 3), np.array([33, 50], np.int32)]),
    "sums in Einstein's notation": (einsums, [(None, 6, 8), (None, 7, 8)], [floats(2, 6, 8), floats(2, 7, 8)]),
    "places": (scattered, [(None, 8), (None,)], [floats(10, 8), np.array([1, 5, 3, 2], np.int32)]),
    "segments": (sums_of_segments, [(None, 4), (None,)], [floats(12, 4), np.sort(tokens(12, most=5))]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, shapes, feeds = FUNCTIONS[name]
    signature = [
        tf.TensorSpec(shape, feed.dtype, name=f"x{k}")
        for k, (shape, feed) in enumerate(zip(shapes, feeds, strict=True))
    ]
    run = tf.function(function, input_signature=signature)
    model, _ = tf2onnx.convert.from_function(run, signature, opset=17)
    check(model, feeds, results(run(*map(tf.constant, feeds))))


# ---- TFLite ----


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["floats", "weights of 8 bits", "8 bits"])
def test_tflite(kind: str, tmp_path: Path) -> None:
    """Of 8 bits, one number in some may round to its neighbour: a step of the output is 1/256 of its range."""
    network = keras.Sequential(
        [
            keras.Input((32, 32, 3), batch_size=1),
            layers.Conv2D(16, 3, 2, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(6.0),
            layers.DepthwiseConv2D(3, padding="same", activation="relu"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    if kind != "floats":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "8 bits":
        converter.representative_dataset = lambda: ([floats(1, 32, 32, 3) * (k + 1) / 20] for k in range(20))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    content = converter.convert()
    (tmp_path / "model.tflite").write_bytes(content)
    model, _ = tf2onnx.convert.from_tflite(str(tmp_path / "model.tflite"), opset=13)
    resolver = tf.lite.experimental.OpResolverType.BUILTIN_REF
    interpreter = tf.lite.Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    feed = floats(1, 32, 32, 3)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], feed)
    interpreter.invoke()
    expected = [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]
    check(model, [feed], expected, tolerance={"floats": 1e-4, "weights of 8 bits": 2e-2, "8 bits": 2e-2}[kind])
