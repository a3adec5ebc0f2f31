"""Writers of operators that make, move and look up tensors, of images and of texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.strings import to_texts
from ...operators.movement import space_axes
from .graph import Graph, RefusedError, Tensor, constant, tensor_proto
from .table import Ints, Writer, split, writer

_ML = "ai.onnx.ml"


# ---- shapes ----


@writer("reshape")
def _reshape(g: Graph, x: Tensor, *, shape: tuple[Dim, ...]) -> Tensor:
    return g.reshaped(x, shape)


@writer("expand_dims")
def _expand_dims(g: Graph, x: Tensor, *, axes: Ints) -> Tensor:
    return g.along("Unsqueeze", x, axes)


@writer("squeeze")
def _squeeze(g: Graph, x: Tensor, *, axes: Ints) -> Tensor:
    return g.along("Squeeze", x, axes) if axes else g.node("Identity", x)


@writer("permute_dims")
def _permute_dims(g: Graph, x: Tensor, *, axes: Ints | None) -> Tensor:
    return g.node("Transpose", x, perm=None if axes is None else [axis % x.rank for axis in axes] or None)


@writer("depth_to_space")
def _depth_to_space(g: Graph, x: Tensor, *, blocks: Ints) -> Tensor:
    if x.rank == 4 and len(set(blocks)) == 1 and len(blocks) == 2:
        return g.node("DepthToSpace", x, blocksize=blocks[0])
    result = g.shape
    parted = g.reshaped(x, (x.shape[0], *blocks, result[1], *x.shape[2:]))
    return g.reshaped(g.transposed(parted, space_axes(x.rank, len(blocks))), result)


@writer("broadcast_to")
def _broadcast_to(g: Graph, x: Tensor, *, shape: tuple[Dim, ...]) -> Tensor:
    return g.node("Expand", x, g.numbers(shape))


@writer("tile")
def _tile(g: Graph, x: Tensor, *, repetitions: tuple[Dim, ...]) -> Tensor:
    return g.node("Tile", x, g.numbers(repetitions))


@writer("stack")
def _stack(g: Graph, *tensors: Tensor, axis: int) -> Tensor:
    return g.node("Concat", *(g.along("Unsqueeze", each, [axis]) for each in tensors), axis=axis)


@writer("slice")
def _slice(
    g: Graph, x: Tensor, *, starts: tuple[Dim, ...], ends: tuple[Dim, ...], axes: Ints | None, steps: Ints | None
) -> Tensor:
    if not starts:
        return g.node("Identity", x)
    along = range(len(starts)) if axes is None else axes
    paces = None if steps is None else g.constant(list(steps))
    return g.node("Slice", x, g.numbers(starts), g.numbers(ends), g.constant(list(along)), paces)


@writer("put_slice")
def _put_slice(g: Graph, x: Tensor, part: Tensor, *, start: Dim, axis: int) -> Tensor:
    """What is before the part, the part, and what is behind it."""
    length, count = x.shape[axis], part.shape[axis]
    end = dims.add(start, count)
    along = {"axes": (axis % x.rank,), "steps": None}
    before, behind = (_slice(g, x, starts=(a,), ends=(b,), **along) for a, b in ((0, start), (end, length)))
    return g.node("Concat", before, part, behind, axis=axis)


@writer("pad")
def _pad(g: Graph, x: Tensor, *, pads: tuple[Dim, ...], mode: str, value: float) -> Tensor:
    filled = g.constant(value, x) if mode == "constant" and value else None
    return g.node("Pad", x, g.numbers(pads), filled, mode=mode)


@writer("constant")
def _constant(g: Graph, *, value: float, dtype: DType) -> Tensor:
    return constant(value, dtype)


_RANGES = {DType.int16, DType.int32, DType.int64, DType.float32, DType.float64}  # ONNX's Range


@writer("arange")
def _arange(g: Graph, *, start: Dim, stop: Dim, step: int, dtype: DType) -> Tensor:
    own = dtype if dtype in _RANGES and dtype.is_integer else DType.int64
    made = g.node("Range", *(g.scalar(each, own) for each in (start, stop, step)), dtype=own)
    return g.cast(made, dtype)


@writer("shape_tensor")
def _shape_tensor(g: Graph, *, dims: tuple[Dim, ...]) -> Tensor:
    return g.numbers(dims)


@writer("shape")
def _shape(g: Graph, x: Tensor) -> Tensor:
    return g.node("Shape", x, dtype=DType.int64)


@writer("nonzero", "counted_nonzero")
def _nonzero(g: Graph, x: Tensor, *, count: Dim | None = None) -> Tensor:
    return g.node("NonZero", x, dtype=DType.int64)


@writer("extent")
def _extent(g: Graph, count: Tensor) -> Tensor:
    return _falses(g, g.node("Max", g.reshaped(g.cast(count, DType.int64), (1,)), g.constant([0])))


@writer("extents")
def _extents(g: Graph, numbers: Tensor) -> Tensor:
    return _falses(g, g.node("Concat", g.constant([0]), g.cast(numbers, DType.int64), axis=0))


def _falses(g: Graph, shape: Tensor) -> Tensor:
    return g.node("ConstantOfShape", shape, dtype=DType.bool, value=tensor_proto("", np.zeros(1, np.bool_)))


# ---- places ----


def _running(operator: str) -> Writer:
    def write(g: Graph, x: Tensor, *, axis: int, exclusive: bool, reverse: bool) -> Tensor:
        return g.node(operator, x, g.constant(axis), exclusive=exclusive, reverse=reverse)

    return write


writer("cumulative_sum")(_running("CumSum"))
writer("cumulative_prod")(_running("CumProd"))


@writer("top_k")
def _top_k(g: Graph, x: Tensor, *, k: Dim, axis: int, largest: bool, sorted: bool) -> tuple[Tensor, ...]:
    values, places = g.nodes_of("TopK", x, g.number(k), count=2, axis=axis, largest=largest, sorted=sorted)
    return values, places


@writer("gather_nd")
def _gather_nd(g: Graph, x: Tensor, indices: Tensor, *, batch_axes: int) -> Tensor:
    return g.node("GatherND", x, indices, **({"batch_dims": batch_axes} if batch_axes else {}))


# ---- images ----


@writer("resize")
def _resize(
    g: Graph,
    x: Tensor,
    *,
    axis: int,
    size: Dim,
    mode: str,
    scale: float | None,
    coordinates: str,
    rounding: str,
    cubic: float,
    exclude_outside: bool,
) -> Tensor:
    scales, sizes = None, None
    if scale is None:
        sizes = g.numbers(g.shape)
    else:
        factors = np.ones(x.rank)
        factors[axis % x.rank] = scale
        scales = g.constant(factors, DType.float32)
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = rounding
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": cubic, "exclude_outside": exclude_outside}
    none = g.constant([], DType.float32)
    return g.node("Resize", x, none if g.file.opset < 13 else None, none if scales is None and g.file.opset < 13 else scales,
                  sizes, **attributes)  # fmt: skip


@writer("listed_boxes", "counted_boxes")
def _listed_boxes(g: Graph, best: Tensor, *, count: Dim | None = None) -> Tensor:
    """One node with the operator before it."""
    if best.made is None or best.made[0].operator != "best_boxes":
        raise RefusedError("the boxes are not those of best_boxes at hand")
    call, (boxes, scores, *numbers) = best.made
    attributes: dict[str, Any] = dict(call.attributes)
    numbers = [g.reshaped(each, (1,)) for each in numbers]
    numbers[0] = g.cast(numbers[0], DType.int64)
    centred = int(attributes.get("centred", False))
    return g.node("NonMaxSuppression", boxes, scores, *numbers, dtype=DType.int64, center_point_box=centred)


@writer("best_boxes")
def _best_boxes(g: Graph, *inputs: Tensor, **attributes: Any) -> Tensor:
    return Tensor(g.types[0])  # the next operator writes both


@writer("roi_align")
def _roi_align(
    g: Graph,
    x: Tensor,
    rois: Tensor,
    images: Tensor,
    *,
    size: Ints,
    samples: int,
    scale: float,
    half_pixel: bool,
    mode: str,
) -> Tensor:
    if mode == "max_of_places":
        raise RefusedError(
            "ONNX has the greatest of weighted neighbours, not of places: mode='max', or resize and reduce"
        )
    made = g.node(
        "RoiAlign",
        g.transposed(x, (0, 3, 1, 2)),
        rois,
        g.cast(images, DType.int64),
        dtype=x.dtype,
        output_height=size[0],
        output_width=size[1],
        sampling_ratio=samples,
        spatial_scale=scale,
        coordinate_transformation_mode="half_pixel" if half_pixel else "output_half_pixel",
        mode=mode,
    )
    return g.transposed(made, (0, 2, 3, 1))


@writer("max_of_regions")
def _max_of_regions(g: Graph, x: Tensor, rois: Tensor, *, size: Ints, scale: float) -> Tensor:
    return g.node("MaxRoiPool", x, rois, pooled_shape=list(size), spatial_scale=scale)


@writer("decode_image")
def _decode_image(g: Graph, encoded: Tensor, *, pixel_format: str) -> Tensor:
    return g.node("ImageDecoder", encoded, pixel_format=pixel_format)


# ---- texts, tables ----


@writer("split_texts")
def _split_texts(g: Graph, x: Tensor, *, delimiter: str, most: int | None) -> tuple[Tensor, ...]:
    limit: dict[str, Any] = {} if most is None else {"maxsplit": most}
    parts, counts = g.nodes_of("StringSplit", x, count=2, delimiter=delimiter, **limit)
    return parts, counts


@writer("match_texts")
def _match_texts(g: Graph, x: Tensor, *, expression: str) -> Tensor:
    return g.node("RegexFullMatch", x, dtype=DType.bool, pattern=expression)


@writer("normalize_texts")
def _normalize_texts(g: Graph, x: Tensor, stopwords: Tensor, *, case: str, is_case_sensitive: bool) -> Tensor:
    if stopwords.array is None:
        raise RefusedError("ONNX takes no stop words that a run computes: make them a constant")
    return g.node(
        "StringNormalizer",
        x,
        case_change_action=case.upper(),
        is_case_sensitive=is_case_sensitive,
        stopwords=to_texts(stopwords.array).ravel().tolist() or None,
    )


@writer("count_ngrams")
def _count_ngrams(
    g: Graph, x: Tensor, pool: Tensor, places: Tensor, *, begins: Ints, least: int, most: int, skips: int, columns: int
) -> Tensor:
    if pool.array is None or places.array is None or columns != int(places.array.max()) + 1:
        raise RefusedError("ONNX takes no n-grams that a run computes: make them constants")
    texts = pool.dtype.is_string
    tokens = {"pool_strings": to_texts(pool.array).tolist()} if texts else {"pool_int64s": pool.array.tolist()}
    return g.node(
        "TfIdfVectorizer",
        x,
        dtype=DType.float32,
        mode="TF",
        ngram_counts=list(begins),
        ngram_indexes=places.array.tolist(),
        min_gram_length=least,
        max_gram_length=most,
        max_skip_count=skips,
        **tokens,
    )


@writer("look_up")
def _look_up(g: Graph, x: Tensor, keys: Tensor, values: Tensor, default: Tensor) -> Tensor:
    if keys.array is None or values.array is None or default.array is None:
        raise RefusedError("ONNX takes no table that a run computes: make keys, values and default constants")
    return g.node(
        "LabelEncoder",
        x,
        domain=_ML,
        dtype=values.dtype,
        keys_tensor=tensor_proto("keys", keys.array),
        values_tensor=tensor_proto("values", values.array),
        default_tensor=tensor_proto("default", default.array.reshape(1)),
    )


@writer("device_copy")
def _device_copy(g: Graph, x: Tensor, *, device: str) -> Tensor:
    """The value: files of ONNX do not say where it lies."""
    return g.node("Identity", x)


@writer("call_seed")
def _call_seed(g: Graph, *, place: int) -> Tensor:
    """64 random bits, of two numbers below 2**32."""
    drawn = g.node("RandomUniform", dtype=DType.float64, shape=[2], high=2.0**32, low=0.0)
    halves = split(g, g.cast(g.node("Floor", drawn), DType.uint64), axis=0, sizes=(1, 1))
    high, low = (g.along("Squeeze", each, [0]) for each in halves)
    return g.node("BitwiseOr", g.node("BitShift", high, g.constant(32, DType.uint64), direction="LEFT"), low)
