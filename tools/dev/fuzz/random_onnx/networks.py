"""Steps of random graphs: convolutions, pooling, normalisations, recurrent layers, resizing, transforms, detection."""

from __future__ import annotations

import numpy as np

from .walk import FLOATS, Dead, Value, Walk, Ways, step


def _image(w: Walk, op: str, variable: str = "T", *, channels: int | None = None, exact: bool = False) -> Value:
    """[n, channels, …] of one to three spatial axes."""
    kind = w.random.choice(w.allowed(op, variable, among=FLOATS))
    spatial = w.one(1, 2, 2, 2, 3)
    shape = (w.one(1, 2, 3), channels or w.one(1, 2, 3, 4, 16), *(w.one(3, 4, 5, 7) for _ in range(spatial)))
    if w.chance(0.4):
        try:
            return w.tensor(
                kind,
                fits=lambda s: (
                    len(s) in (3, 4, 5) and 0 not in s and (not channels or s[1] == channels) and min(s[2:]) > 1
                ),
                exact=exact,
            )
        except Dead:
            pass
    return w.tensor(kind, shape, exact=exact)


def _windows(w: Walk, x: Value, *, dilated: bool = True) -> tuple[tuple[int, ...], Ways]:
    """A kernel's sizes, and strides, padding and dilations that fit."""
    count = x.rank - 2
    kernel = tuple(w.one(1, 2, 3) for _ in range(count))
    ways: Ways = {}
    if w.chance(0.5):
        ways["strides"] = [w.one(1, 2, 3) for _ in range(count)]
    if dilated and w.chance(0.3):
        ways["dilations"] = [w.one(1, 2) for _ in range(count)]
    if w.chance(0.25):
        ways["auto_pad"] = w.one("SAME_UPPER", "SAME_LOWER", "VALID")
        if ways["auto_pad"] != "VALID":
            ways.pop("dilations", None)
            if (
                "strides" in ways
            ):  # where they are larger than the kernel, padding would be negative: each does as it likes
                ways["strides"] = [min(pair) for pair in zip(ways["strides"], kernel, strict=True)]
    elif w.chance(0.6):
        ways["pads"] = [w.random.randrange(size) if size > 1 else 0 for size in (*kernel, *kernel)]
    dilations = ways.get("dilations", [1] * count)
    for size, length, dilation in zip(x.shape[2:], kernel, dilations, strict=True):
        if size < (length - 1) * dilation + 1:
            raise Dead("the kernel is larger than the image")
    return kernel, ways


@step("Conv")
def _conv(w: Walk, op: str) -> None:
    x = _image(w, op)
    kernel, ways = _windows(w, x)
    groups = w.random.choice([g for g in (1, 1, 2, x.shape[1]) if x.shape[1] % g == 0])
    outputs = groups * w.one(1, 2, 3, 16)
    if outputs > 64:
        raise Dead("many channels")
    weights = w.tensor(x.dtype, (outputs, x.shape[1] // groups, *kernel), constant=w.chance(0.8) or None)
    bias = w.tensor(x.dtype, (outputs,)) if w.chance(0.5) else None
    told = list(kernel) if w.chance(0.5) else None
    w.add(op, [x, weights, bias], group=groups if groups > 1 else None, kernel_shape=told, **ways)


@step("ConvTranspose")
def _conv_transpose(w: Walk, op: str) -> None:
    x = _image(w, op)
    kernel, ways = _windows(w, x)
    groups = w.random.choice([g for g in (1, 1, 2) if x.shape[1] % g == 0])
    outputs = w.one(1, 2, 3)
    weights = w.tensor(x.dtype, (x.shape[1], outputs, *kernel))
    bias = w.tensor(x.dtype, (outputs * groups,)) if w.chance(0.5) else None
    strides = ways.get("strides")
    if strides and w.chance(0.4):
        ways["output_padding"] = [w.random.randrange(size) for size in strides]
    w.add(op, [x, weights, bias], group=groups if groups > 1 else None, **ways)


@step("DeformConv")
def _deform(w: Walk, op: str) -> None:
    x = w.tensor("float32", (w.one(1, 2), 2, 5, 4))
    offset = w.tensor("float32", (x.shape[0], 8, 4, 3), low=-2, high=2)
    mask = w.tensor("float32", (x.shape[0], 4, 4, 3)) if w.chance(0.5) else None
    w.add(op, [x, w.tensor("float32", (3, 2, 2, 2)), offset, None, mask])


@step("MaxPool", "AveragePool", "LpPool")
def _pool(w: Walk, op: str) -> None:
    x = _image(w, op, exact=op == "MaxPool")
    allowed = w.schema(op).attributes
    kernel, ways = _windows(w, x, dilated="dilations" in allowed)
    if "ceil_mode" in allowed and "auto_pad" not in ways:
        ways["ceil_mode"] = w.one(None, 0, 1)
    if op == "AveragePool":
        ways["count_include_pad"] = w.one(None, 0, 1)
    if op == "LpPool":
        ways["p"] = w.one(None, 1, 2, 3)
        x = w.tensor(x.dtype, x.shape, low=0.5)
    outputs = 2 if op == "MaxPool" and w.chance(0.05) else 1
    w.add(op, [x], outputs, exact=op == "MaxPool", kernel_shape=list(kernel), **ways)


@step("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(w: Walk, op: str) -> None:
    x = _image(w, op)
    w.add(op, [x], exact=op == "GlobalMaxPool", p=w.one(1, 2) if op == "GlobalLpPool" else None)


@step("MaxUnpool")
def _unpool(w: Walk, op: str) -> None:
    x = w.tensor("float32", (1, w.one(1, 2), 4, 6), exact=True)
    pooled = w.add("MaxPool", [x], 2, exact=True, kernel_shape=[2, 2], strides=[2, 2])
    w.add(op, pooled, exact=True, kernel_shape=[2, 2], strides=[2, 2])


@step("MaxRoiPool")
def _roi_pool(w: Walk, op: str) -> None:
    x = w.tensor("float32", (1, 2, 6, 6), exact=True)
    regions = w.put(np.array([[0, 0, 0, 3, 3], [0, 1, 2, 5, 5]], np.float32))
    w.add(op, [x, regions], exact=True, pooled_shape=[2, 2], spatial_scale=1.0)


@step("LRN")
def _lrn(w: Walk, op: str) -> None:
    more: Ways = {"alpha": 0.25, "beta": 0.5, "bias": 2.0} if w.chance(0.5) else {}
    w.add(op, [_image(w, op)], size=w.one(1, 3, 5), **more)


@step("BatchNormalization")
def _batch_normalization(w: Walk, op: str) -> None:
    x = _image(w, op)
    c = (x.shape[1],)
    scale, bias, mean = (w.tensor(x.dtype, c) for _ in range(3))
    w.add(op, [x, scale, bias, mean, w.tensor(x.dtype, c, low=0.5)], epsilon=w.one(None, 0.25))


@step("InstanceNormalization", "GroupNormalization")
def _instance_normalization(w: Walk, op: str) -> None:
    x = _image(w, op)
    groups = w.random.choice([g for g in (1, 2, 4) if x.shape[1] % g == 0]) if op == "GroupNormalization" else None
    c = (groups,) if groups and w.opset < 21 else (x.shape[1],)
    w.add(op, [x, w.tensor(x.dtype, c), w.tensor(x.dtype, c)], num_groups=groups, epsilon=0.25)


@step("LayerNormalization", "RMSNormalization")
def _layer_normalization(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op, among=FLOATS), rank=(1, 2, 3), fits=lambda s: len(s) > 0 and 0 not in s)
    axis = w.axis(x.rank)
    scale = w.tensor(x.dtype, x.shape[axis:])
    bias = [w.tensor(x.dtype, scale.shape)] if op == "LayerNormalization" and w.chance(0.6) else []
    outputs = w.one(1, 1, 3) if op == "LayerNormalization" else 1
    w.add(op, [x, scale, *bias], outputs, axis=axis if axis != -1 or w.chance(0.5) else None, epsilon=0.25)


@step("MeanVarianceNormalization")
def _mvn(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op, among=FLOATS), rank=4, fits=lambda s: len(s) == 4 and 0 not in s)
    x = w.put(w.array(x.dtype, (2, 3, 3, 3)), constant=True)  # of one channel nothing but rounding would be left
    w.add(op, [x], axes=w.one(None, [0, 2, 3], [1]))


@step("RNN", "GRU", "LSTM")
def _recurrent(w: Walk, op: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    kind = w.random.choice(w.allowed(op, among=("float32", "float32", "float64")))
    direction = w.one(None, "forward", "reverse", "bidirectional")
    d = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = (w.one(1, 2, 3) for _ in range(4))
    layout = w.one(None, 0, 1) if w.opset >= 14 and w.chance(0.3) else None
    x = w.tensor(kind, (batch, steps, size) if layout else (steps, batch, size))
    weights = [w.tensor(kind, (d, gates * hidden, n), low=-1, high=1) for n in (size, hidden)]
    bias = w.tensor(kind, (d, 2 * gates * hidden), low=-1, high=1) if w.chance(0.6) else None
    lengths = w.tensor("int32", (batch,), low=1, high=steps) if w.chance(0.3) else None
    state_shape = (batch, d, hidden) if layout else (d, batch, hidden)
    state = w.tensor(kind, state_shape, low=-1, high=1) if w.chance(0.5) else None
    operands = [x, *weights, bias, lengths, state]
    if op == "LSTM":
        operands.append(w.tensor(kind, state_shape, low=-1, high=1) if w.chance(0.5) else None)
        operands.append(w.tensor(kind, (d, 3 * hidden), low=-1, high=1) if w.chance(0.3) else None)
    ways: Ways = {"linear_before_reset": w.one(None, 0, 1)} if op == "GRU" else {}
    if w.chance(0.2):
        ways["clip"] = 0.5
    outputs = 3 if op == "LSTM" else 2
    w.add(op, operands, outputs, hidden_size=hidden, direction=direction, layout=layout, **ways)


@step("Resize")
def _resize(w: Walk, op: str) -> None:
    x = w.tensor("float32", (w.one(1, 2), w.one(1, 2), *w.one((3, 4), (5,), (2, 3), (4, 4))))
    mode = w.one("nearest", "linear", "cubic")
    if mode == "cubic" and x.rank != 4:
        mode = "linear"
    ways: Ways = {"mode": mode}
    places = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ways["coordinate_transformation_mode"] = w.random.choice(places)
    if mode == "nearest":
        ways["nearest_mode"] = w.one(None, "floor", "ceil", "round_prefer_ceil")
    if mode == "cubic":
        ways["cubic_coeff_a"] = w.one(None, -0.5)
    spatial = x.rank - 2
    axes = list(range(2, x.rank)) if w.opset >= 18 and w.chance(0.4) else None
    ways["axes"] = axes
    lead = [] if axes else [1, 1]
    if w.chance(0.5):
        scales = w.setting([*lead, *(w.one(0.5, 1, 2, 1.5) for _ in range(spatial))], "float32")
        w.add(op, [x, None, scales], **ways)
    else:
        sizes = [*([] if axes else x.shape[:2]), *(w.one(1, 2, 4, 5, 7) for _ in range(spatial))]
        w.add(op, [x, None, None, w.setting(sizes)], **ways)


@step("Upsample")
def _upsample(w: Walk, op: str) -> None:
    x = w.tensor("float32", (1, 2, 3, 4))
    scales = w.setting([1, 1, w.one(1, 2), w.one(2, 3)], "float32")
    w.add(op, [x, scales], mode=w.one(None, "nearest", "linear"))


@step("GridSample")
def _grid_sample(w: Walk, op: str) -> None:
    kind = w.random.choice(w.allowed(op, "T1", among=("float32", "float64")))
    x = w.tensor(kind, (w.one(1, 2), 2, 4, 3))
    grid = w.tensor(
        w.random.choice(w.allowed(op, "T2", among=("float32",))), (x.shape[0], 3, 2, 2), low=-1.25, high=1.25
    )
    modes = ("linear", "nearest", "cubic") if w.opset >= 20 else ("bilinear", "nearest", "bicubic")
    mode = w.random.choice(modes)
    if mode == "nearest":
        grid = w.put((w.rng.integers(-9, 10, grid.shape) / 8 + 0.03).astype(np.float32))
    padding = w.one("zeros", "border", "reflection")
    w.add(op, [x, grid], mode=mode, padding_mode=padding, align_corners=w.one(None, 0, 1))


@step("AffineGrid")
def _affine_grid(w: Walk, op: str) -> None:
    size = w.one((2, 3, 3, 4), (1, 2, 2, 3, 4))
    theta = w.tensor("float32", (size[0], len(size) - 2, len(size) - 1))
    w.add(op, [theta, w.setting(size)], align_corners=w.one(None, 0, 1))


@step("RoiAlign")
def _roi_align(w: Walk, op: str) -> None:
    x = w.tensor("float32", (2, 2, 6, 5))
    count = w.one(1, 3)
    corners = np.sort(w.rng.uniform(0.1, 4.9, (count, 2, 2)), 1).reshape(count, 4).astype(np.float32)
    batch = w.tensor("int64", (count,), low=0, high=1)
    ways: Ways = {"mode": w.one(None, "avg", "max"), "sampling_ratio": w.one(None, 2)}
    w.add(op, [x, w.put(corners), batch], output_height=2, output_width=3, spatial_scale=w.one(None, 0.5), **ways)


@step("MaxRoiPool")
def _max_roi_pool(w: Walk, op: str) -> None:
    x = w.tensor("float32", (2, 2, 6, 5))
    count = w.one(1, 3)
    corners = np.sort(w.rng.integers(0, 6, (count, 2, 2)), 1).reshape(count, 4)
    images = w.rng.integers(0, 2, (count, 1))
    regions = w.put(np.hstack([images, corners]).astype(np.float32))
    w.add(op, [x, regions], pooled_shape=(2, 3), spatial_scale=w.one(None, 1.0, 0.5))


@step("NonMaxSuppression")
def _suppression(w: Walk, op: str) -> None:
    boxes = w.put(w.rng.uniform(0.1, 2, (1, 8, 4)).astype(np.float32))
    scores = w.put(w.rng.permutation(16).reshape(1, 2, 8).astype(np.float32))
    limits = [w.setting([3]), w.setting([0.4], "float32"), w.setting([3.5], "float32")][: w.random.randrange(4)]
    w.add(op, [boxes, scores, *limits], center_point_box=w.one(None, 0, 1))


@step("DFT")
def _dft(w: Walk, op: str) -> None:
    parts = w.one(1, 2)
    x = w.tensor(("float32", "float64"), (2, w.one(4, 5, 8), 3, parts), low=-1, high=1)
    axis = w.one(1, 2)
    ways: Ways = {"inverse": w.one(None, 1), "onesided": 1 if parts == 1 and w.chance(0.3) else None}
    if ways["onesided"]:
        ways["inverse"] = None
    length = w.setting(w.one(3, 4, 6)) if w.chance(0.4) else None
    if w.opset >= 20:
        w.add(op, [x, length, w.setting(axis)], **ways)
    else:
        w.add(op, [x, length], axis=axis, **ways)


@step("STFT")
def _stft(w: Walk, op: str) -> None:
    frame, hop = w.one(4, 6, 8), w.one(2, 3)
    parts = w.one(1, 1, 2)
    x = w.tensor("float32", (w.one(1, 2), w.one(16, 19), parts), low=-1, high=1)
    window = w.tensor("float32", (frame,), low=0.25, high=1) if w.chance(0.6) else None
    length = w.setting(frame) if window is None or w.chance(0.5) else None
    onesided = 0 if parts == 2 else w.one(None, 0, 1)
    w.add(op, [x, w.setting(hop), window, length], onesided=onesided)


@step("HannWindow", "HammingWindow", "BlackmanWindow")
def _window(w: Walk, op: str) -> None:
    w.add(op, [w.setting(w.one(1, 4, 7))], periodic=w.one(None, 0, 1))


@step("MelWeightMatrix")
def _mel(w: Walk, op: str) -> None:
    ends = [w.setting(each, "float32") for each in (50, 7000)]
    w.add(op, [w.setting(8), w.setting(64), w.setting(16000), *ends])


@step("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def _loss(w: Walk, op: str) -> None:
    classes, rest = w.one(2, 4), w.one((), (3,), (2, 2))
    x = w.tensor(("float32", "float64"), (3, classes, *rest))
    labels = w.tensor("int64", (3, *rest), low=0, high=classes - 1)
    weights = w.tensor(x.dtype, (classes,), low=0.5) if w.chance(0.4) else None
    ways: Ways = {"reduction": w.one(None, "none", "sum", "mean"), "ignore_index": w.one(None, 0)}
    w.add(op, [x, labels, weights], **ways)


@step("Attention")
def _attention(w: Walk, op: str) -> None:
    batch, heads, queries, keys, size = 2, w.one(1, 2), 3, w.one(3, 5), 4
    kind = w.random.choice(w.allowed(op, "T1", among=("float32", "float32", "float16")))
    q, k, v = (w.tensor(kind, (batch, heads, n, size)) for n in (queries, keys, keys))
    mask = w.tensor(w.one(kind, "bool"), (queries, keys)) if w.chance(0.4) else None
    if mask is not None and mask.dtype == "bool":
        mask = w.put(np.tri(queries, keys, dtype=bool))
    w.add(op, [q, k, v, mask], is_causal=w.one(None, 0, 1), scale=w.one(None, 0.25))


@step("RotaryEmbedding")
def _rotary(w: Walk, op: str) -> None:
    x = w.tensor("float32", (2, 2, 3, 8))
    caches = [w.tensor("float32", (2, 3, 4), low=-1, high=1) for _ in range(2)]
    w.add(op, [x, *caches], interleaved=w.one(None, 0, 1))


@step("Det")
def _det(w: Walk, op: str) -> None:
    n = w.one(1, 2, 3)
    w.add(op, [w.tensor("float32", (*w.shape((0, 1)), n, n))])
