# Derived by tools/dev/derive/stubs.py; edit the table of operators instead, then run `make docs`.
"""The operators of models, as editors and type checkers see `treadle.op`."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ...formats.dtypes import DType
from ...formats.types import ShapeDim
from .expressions import Expression, Operand

_Dimension = ShapeDim | str
_Dimensions = Sequence[_Dimension] | np.ndarray
_Integers = Sequence[int] | np.ndarray
_ElementType = DType | np.dtype[Any] | type | str

class LoweredOperators:
    """Operators that only passes make."""

    def __getattr__(self, name: str) -> Any: ...

class ModelOperators:
    """A function for each operator: inputs by position, attributes by name."""

    lowered: LoweredOperators

    def abs(self, x: Operand, /) -> Expression:
        """abs(x): |x|; the least integer stays itself."""

    def acos(self, x: Operand, /) -> Expression:
        """acos(x): inverse cosine, in radians."""

    def acosh(self, x: Operand, /) -> Expression:
        """acosh(x): inverse hyperbolic cosine."""

    def add(self, a: Operand, b: Operand, /) -> Expression:
        """add(a, b): a + b; integers wrap around."""

    def all(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """all(x): true if all are.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def any(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """any(x): true if one is.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def arange(
        self, /, *, start: _Dimension = 0, stop: _Dimension, step: int = 1, dtype: _ElementType = ...
    ) -> Expression:
        """arange(): start, start + step, … short of stop.

        start: first element
        stop: bound that is not reached
        step: not 0
        dtype: of the result
        """

    def argmax(
        self, x: Operand, /, *, axis: int, keepdims: bool = False, select_last_index: bool = False
    ) -> Expression:
        """argmax(x): index of the greatest element.

        axis: what to reduce over
        keepdims: reduced axes stay, with size 1
        select_last_index: of equal elements, take the last
        """

    def argmin(
        self, x: Operand, /, *, axis: int, keepdims: bool = False, select_last_index: bool = False
    ) -> Expression:
        """argmin(x): index of the least element.

        axis: what to reduce over
        keepdims: reduced axes stay, with size 1
        select_last_index: of equal elements, take the last
        """

    def asin(self, x: Operand, /) -> Expression:
        """asin(x): inverse sine, in radians."""

    def asinh(self, x: Operand, /) -> Expression:
        """asinh(x): inverse hyperbolic sine."""

    def atan(self, x: Operand, /) -> Expression:
        """atan(x): inverse tangent, in radians."""

    def atanh(self, x: Operand, /) -> Expression:
        """atanh(x): inverse hyperbolic tangent."""

    def attention(
        self, q: Operand, k: Operand, v: Operand, mask: Operand | None = None, bias: Operand | None = None, /, *,
        scale: float = 1.0, masked: float = ..., bias_last: bool = False, nan_to_zero: bool = False, repeat: int = 1,
        q_axes: _Integers | None = None, k_axes: _Integers | None = None, v_axes: _Integers | None = None,
        q_part: _Integers | None = None, k_part: _Integers | None = None, v_part: _Integers | None = None,
        result_axes: _Integers | None = None, narrow: bool = False
    ) -> Expression:
        """attention(q, k, v, mask?, bias?): softmax(q kᵀ scale + mask) v, of queries [batch …, query, depth], keys and values [batch …, key, depth]; a bias goes with a mask of truth values.

        scale: what the products of queries and keys are multiplied by
        masked: the score where a mask of truth values does not hold
        bias_last: whether the bias is added behind the mask, and not before it
        nan_to_zero: whether a query whose weights are NaN gets zeros
        repeat: neighbours on the last axis of q's batch (heads) that share a matrix of k and v
        q_axes: the axes of q in the order batch …, query, depth; None: as they are
        k_axes: the axes of k in the order batch …, key, depth; None: as they are
        v_axes: the axes of v in the order batch …, key, depth; None: as they are
        q_part: (axis, index): q is what a tensor of one more axis has at that index; None: all of it
        k_part: (axis, index): k is what a tensor of one more axis has at that index; None: all of it
        v_part: (axis, index): v is what a tensor of one more axis has at that index; None: all of it
        result_axes: the result's axes in the order in which they are stored; None: as they are
        narrow: whether scaled queries, keys, values and weights that are not normalised yet are rounded to bfloat16
        """

    def average_pool(
        self, x: Operand, /, *, kernel: _Integers, strides: _Integers | None = None, pads: _Dimensions | None = None,
        dilations: _Integers | None = None, ceil_mode: bool = False, count_include_pad: bool = False
    ) -> Expression:
        """average_pool(x): the mean of the elements under each window.

        kernel: size of the window, one an axis
        strides: steps of the window, one an axis; None: 1
        pads: elements added at the beginnings, then at the ends of the axes; None: 0
        dilations: steps between the elements of a window, one an axis; None: 1
        ceil_mode: a last window may stick out at the end
        count_include_pad: padding counts as elements, of value 0
        """

    def batch_normalization(
        self, x: Operand, scale: Operand, bias: Operand, mean: Operand, variance: Operand, /, *, epsilon: float = 1e-05
    ) -> Expression:
        """batch_normalization(x, scale, bias, mean, variance): (x - mean) / sqrt(variance + epsilon) scale + bias, of each channel (axis 1).

        epsilon: added to the variance
        """

    def best_boxes(
        self, boxes: Operand, scores: Operand, most: Operand, overlap: Operand, least: Operand, /, *,
        centred: bool = False, room: _Dimension
    ) -> Expression:
        """best_boxes(boxes, scores, most, overlap, least): the numbers of the boxes [N, B, 4] with scores [N, C, B] above the least, the best first, at most `room` in each class,  that overlap no better one by more than that share; behind them -1.

        centred: boxes are x, y, width, height, x and y of the centre
        room: the most numbers for a class
        """

    def bitcast(self, x: Operand, /, *, dtype: _ElementType) -> Expression:
        """bitcast(x): the bits of x read as another element type of as many bytes.

        dtype: of the result
        """

    def bitwise_and(self, a: Operand, b: Operand, /) -> Expression:
        """bitwise_and(a, b): bits that both have."""

    def bitwise_invert(self, x: Operand, /) -> Expression:
        """bitwise_invert(x): every bit flipped."""

    def bitwise_or(self, a: Operand, b: Operand, /) -> Expression:
        """bitwise_or(a, b): bits that one has."""

    def bitwise_xor(self, a: Operand, b: Operand, /) -> Expression:
        """bitwise_xor(a, b): bits that only one has."""

    def breakpoint(self, x: Operand, /) -> Expression:
        """breakpoint(x): x; a debugger stops here (`treadle.debug.breakpoint`), and nothing else happens."""

    def broadcast_to(self, x: Operand, /, *, shape: _Dimensions) -> Expression:
        """broadcast_to(x): axes of size 1, and missing ones in front, repeated.

        shape: of the result
        """

    def call_seed(self, /, *, place: int) -> Expression:
        """call_seed(): 64 random bits, others each time.

        place: which of the model's draws it is for: each has its own
        """

    def cast(self, x: Operand, /, *, dtype: _ElementType) -> Expression:
        """cast(x): x in another element type; float to integer is cut off towards zero, kept in range, and 0 for NaN.

        dtype: of the result
        """

    def ceil(self, x: Operand, /) -> Expression:
        """ceil(x): least whole number not below x."""

    def clip(self, x: Operand, /, *, min: float | None = None, max: float | None = None) -> Expression:
        """clip(x): x, not below min, not above max.

        min: lower bound, none if None
        max: upper bound, none if None
        """

    def col2im(
        self, x: Operand, /, *, shape: _Dimensions, kernel: _Integers, starts: _Integers | None = None,
        strides: _Integers | None = None, dilations: _Integers | None = None
    ) -> Expression:
        """col2im(x): x [N, M * elements of a window, *windows]: each window's elements are added to an image [N, M, *shape] where it lies.

        shape: sizes of the image's axes
        kernel: size of the window, one an axis
        starts: where the image begins behind the first window's beginning, one an axis; None: 0
        strides: steps of the window, one an axis; None: 1
        dilations: steps between the elements of a window, one an axis; None: 1
        """

    def concat(self, /, *tensors: Operand, axis: int = 0) -> Expression:
        """concat(*tensors): tensors joined along an axis.

        axis: along which
        """

    def concat_texts(self, a: Operand, b: Operand, /) -> Expression:
        """concat_texts(a, b): each text of b behind that of a."""

    def constant(self, /, *, value: float, dtype: _ElementType) -> Expression:
        """constant(): a scalar: how the definition of a primitive holds one.

        value: the scalar
        dtype: of the result
        """

    def conv(
        self, x: Operand, weight: Operand, bias: Operand | None = None, /, *, strides: _Integers | None = None,
        pads: _Dimensions | None = None, dilations: _Integers | None = None, groups: int = 1
    ) -> Expression:
        """conv(x, weight, bias?): convolution of x [N, C, *spatial] with weights [M, C / groups, *kernel], plus a bias [M].

        strides: steps of the window, one an axis; None: 1
        pads: elements added at the beginnings, then at the ends of the axes; None: 0
        dilations: steps between the elements of a window, one an axis; None: 1
        groups: parts of the channels that do not mix
        """

    def conv_integer(
        self, x: Operand, weight: Operand, x_zero: Operand | None = None, weight_zero: Operand | None = None, /, *,
        strides: _Integers | None = None, pads: _Dimensions | None = None, dilations: _Integers | None = None,
        groups: int = 1, dtype: _ElementType = ...
    ) -> Expression:
        """conv_integer(x, weight, x_zero?, weight_zero?): convolution of 8-bit integers less their zero points, as conv; pads are such points.

        strides: steps of the window, one an axis; None: 1
        pads: elements added at the beginnings, then at the ends of the axes; None: 0
        dilations: steps between the elements of a window, one an axis; None: 1
        groups: parts of the channels that do not mix
        dtype: of the sums, int32 or float32
        """

    def conv_transpose(
        self, x: Operand, weight: Operand, bias: Operand | None = None, /, *, strides: _Integers | None = None,
        pads: _Dimensions | None = None, dilations: _Integers | None = None, groups: int = 1,
        output_padding: _Integers | None = None
    ) -> Expression:
        """conv_transpose(x, weight, bias?): the transpose (gradient) of convolution: x [N, C, *spatial], weights [C, M / groups, *kernel], a bias [M].

        strides: steps of the window, one an axis; None: 1
        pads: elements added at the beginnings, then at the ends of the axes; None: 0
        dilations: steps between the elements of a window, one an axis; None: 1
        groups: parts of the channels that do not mix
        output_padding: elements added at the end of each axis of the result; None: 0
        """

    def cos(self, x: Operand, /) -> Expression:
        """cos(x): cosine of radians."""

    def cosh(self, x: Operand, /) -> Expression:
        """cosh(x): hyperbolic cosine."""

    def count_ngrams(
        self, x: Operand, pool: Operand, places: Operand, /, *, begins: _Integers, least: int, most: int, skips: int,
        columns: int
    ) -> Expression:
        """count_ngrams(x, pool, places): how often each row of x has each n-gram of the pool, in the columns `places`.

        begins: where in the pool n-grams of 1, 2, … tokens begin
        least: tokens of the shortest n-grams that count
        most: tokens of the longest ones
        skips: how many tokens may be skipped between two of an n-gram, always as many
        columns: of the result
        """

    def coupled_probabilities(self, pairs: Operand, /, *, classes: int) -> Expression:
        """coupled_probabilities(pairs): [N, classes]: probabilities of classes that agree best with those of pairs [N, pairs], of the first class of each.

        classes: how many there are
        """

    def cumulative_prod(
        self, x: Operand, /, *, axis: int, exclusive: bool = False, reverse: bool = False
    ) -> Expression:
        """cumulative_prod(x): the products of the elements up to each place along an axis.

        axis: along which
        exclusive: without the element itself
        reverse: from the end
        """

    def cumulative_sum(self, x: Operand, /, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Expression:
        """cumulative_sum(x): the sums of the elements up to each place along an axis.

        axis: along which
        exclusive: without the element itself
        reverse: from the end
        """

    def decode_image(
        self, encoded: Operand, /, *, pixel_format: Literal["RGB", "BGR", "Grayscale"] | str = "RGB"
    ) -> Expression:
        """decode_image(encoded): the pixels of an image's file, [height, width, channels]; none for any other file.

        pixel_format: the channels and their order
        """

    def depth_to_space(self, x: Operand, /, *, blocks: _Integers) -> Expression:
        """depth_to_space(x): x [N, blocks … · C, *spatial, …] with the blocks of channels side by side in space: [N, C, *(spatial · blocks), …].

        blocks: how many lie side by side, for each of the first spatial axes
        """

    def dequantize(self, x: Operand, scale: Operand, zero: Operand, /) -> Expression:
        """dequantize(x, scale, zero): (x - zero) * scale, in float32; int32 wraps around."""

    def determinant(self, x: Operand, /) -> Expression:
        """determinant(x): of the matrices that the last two axes are."""

    def device_copy(self, x: Operand, /, *, device: str) -> Expression:
        """device_copy(x): x, and what is computed of it from there on, on a device of the program: by its name, or "host".

        device: where the result lies
        """

    def divide(self, a: Operand, b: Operand, /) -> Expression:
        """divide(a, b): a / b; of integers, towards zero."""

    def elu(self, x: Operand, /, *, alpha: float = 1.0) -> Expression:
        """elu(x): x, or alpha (exp(x) - 1) below 0.

        alpha: the slope of the negative part
        """

    def equal(self, a: Operand, b: Operand, /) -> Expression:
        """equal(a, b): a = b."""

    def erf(self, x: Operand, /) -> Expression:
        """erf(x): Gauss's error function."""

    def exp(self, x: Operand, /) -> Expression:
        """exp(x): e to the x."""

    def expand_dims(self, x: Operand, /, *, axes: _Integers) -> Expression:
        """expand_dims(x): axes of size 1 put in, at these places of the result.

        axes: which axes
        """

    def expm1(self, x: Operand, /) -> Expression:
        """expm1(x): e to the x, minus 1."""

    def extent(self, count: Operand, /) -> Expression:
        """extent(count): as many elements as a number says, none of them true: for their dimension."""

    def extents(self, numbers: Operand, /) -> Expression:
        """extents(numbers): no elements, [0, numbers …]: for these dimensions, which are at least 0."""

    def floor(self, x: Operand, /) -> Expression:
        """floor(x): greatest whole number not above x."""

    def floor_divide(self, a: Operand, b: Operand, /) -> Expression:
        """floor_divide(a, b): the greatest whole number not above a / b."""

    def fmod(self, a: Operand, b: Operand, /) -> Expression:
        """fmod(a, b): a - b trunc(a / b): has the sign of a."""

    def full(self, /, *, shape: _Dimensions, value: float = 0.0, dtype: _ElementType) -> Expression:
        """full(): one value everywhere.

        shape: of the result
        value: every element
        dtype: of the result
        """

    def gather_nd(self, x: Operand, indices: Operand, /, *, batch_axes: int = 0) -> Expression:
        """gather_nd(x, indices): the parts of x at places that the last axis of the indices tells.

        batch_axes: first axes that x and the indices share
        """

    def gelu(self, x: Operand, /, *, approximate: Literal["none", "tanh"] | str = "none") -> Expression:
        """gelu(x): x times the normal distribution's cumulative probability at x.

        approximate: exact, or by tanh
        """

    def greater(self, a: Operand, b: Operand, /) -> Expression:
        """greater(a, b): a > b."""

    def greater_equal(self, a: Operand, b: Operand, /) -> Expression:
        """greater_equal(a, b): a ≥ b."""

    def group_normalization(
        self, x: Operand, scale: Operand, bias: Operand, /, *, groups: int, epsilon: float = 1e-05
    ) -> Expression:
        """group_normalization(x, scale, bias): x [N, C, …] with mean 0 and variance 1 in each group of channels, times a scale [C], plus a bias [C].

        groups: how many groups the channels are parted into
        epsilon: added to the variance
        """

    def gru(
        self, projected: Operand, recurrent: Operand, hidden: Operand, bias: Operand, lengths: Operand | None = None, /,
        *, direction: Literal["forward", "reverse", "bidirectional"] | str = "forward", clip: float | None = None,
        activations: str = "sigmoid tanh", reset_after: bool = False
    ) -> Expression:
        """gru(projected, recurrent, hidden, bias, lengths?): gated recurrent units; a bias [directions, hidden] is added to what the state gives to the last gate.

        direction: in which the steps are taken
        clip: bound of what activations are given; None: no bound
        activations: their names, separated by spaces
        reset_after: the reset gate scales what the state gives, not the state
        """

    def hard_sigmoid(self, x: Operand, /, *, alpha: float = 0.2, beta: float = 0.5) -> Expression:
        """hard_sigmoid(x): alpha x + beta, clipped to 0 … 1.

        alpha: slope
        beta: offset
        """

    def hard_swish(self, x: Operand, /) -> Expression:
        """hard_swish(x): x hard_sigmoid(x, 1/6, 1/2)."""

    def hash_texts(self, x: Operand, /, *, seed: int = 0) -> Expression:
        """hash_texts(x): MurmurHash3 of each text's bytes in UTF-8.

        seed: of the hash
        """

    def identity(self, x: Operand, /) -> Expression:
        """identity(x): x."""

    def instance_normalization(
        self, x: Operand, scale: Operand, bias: Operand, /, *, epsilon: float = 1e-05
    ) -> Expression:
        """instance_normalization(x, scale, bias): x [N, C, …] with mean 0 and variance 1 in each channel, times a scale [C], plus a bias [C].

        epsilon: added to the variance
        """

    def isfinite(self, x: Operand, /) -> Expression:
        """isfinite(x): x is neither infinite nor NaN."""

    def isinf(self, x: Operand, /) -> Expression:
        """isinf(x): x is infinite."""

    def isnan(self, x: Operand, /) -> Expression:
        """isnan(x): x is not a number."""

    def l1_norm(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """l1_norm(x): the sum of absolute values.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def l2_norm(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """l2_norm(x): the square root of the sum of squares.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def layer_normalization(
        self, x: Operand, scale: Operand | None = None, bias: Operand | None = None, /, *, axis: int = -1,
        epsilon: float = 1e-05
    ) -> Expression:
        """layer_normalization(x, scale?, bias?): x with mean 0 and variance 1 over the last axes, times a scale, plus a bias, both of those axes' shape.

        axis: the first of the axes that are normalised, up to the last
        epsilon: added to the variance
        """

    def leaky_relu(self, x: Operand, /, *, alpha: float = 0.01) -> Expression:
        """leaky_relu(x): x, or alpha x below 0.

        alpha: the slope of the negative part
        """

    def less(self, a: Operand, b: Operand, /) -> Expression:
        """less(a, b): a < b."""

    def less_equal(self, a: Operand, b: Operand, /) -> Expression:
        """less_equal(a, b): a ≤ b."""

    def lexicographic_order(self, x: Operand, /) -> Expression:
        """lexicographic_order(x): where the rows of x stand that are in order by their first elements, then by their second ones …."""

    def linear_attention(
        self, q: Operand, k: Operand, v: Operand, state: Operand, decay: Operand, beta: Operand,
        texts: Operand | None = None, /, *, scale: float = 1.0, delta: bool = False
    ) -> Expression:
        """linear_attention(q, k, v, state, decay, beta, texts?): Token after token: state = state decay + k written, result = scale state q, where written is v, or beta (v - state k) with `delta`. q, k and decay (or one for all elements) are [batch, tokens, heads, depth], v [batch, tokens, heads, width], beta [batch, tokens, heads, 1], state [batch, heads, depth, width]. With texts, [first row, rows, …], a batch of one holds them one after another, each with a state of its own. Returns the results and the last states.

        scale: what results are multiplied by
        delta: whether beta (v - state k) is written, not v
        """

    def listed_boxes(self, best: Operand, /) -> Expression:
        """listed_boxes(best): [image, class, box] of the numbers that best_boxes gives."""

    def local_response_normalization(
        self, x: Operand, /, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0
    ) -> Expression:
        """local_response_normalization(x): x / (bias + alpha / size · the sum of squares over `size` neighbouring channels) to the beta.

        size: channels in a neighbourhood
        alpha: weight of the squares
        beta: exponent
        bias: offset
        """

    def log(self, x: Operand, /) -> Expression:
        """log(x): natural logarithm."""

    def log1p(self, x: Operand, /) -> Expression:
        """log1p(x): natural logarithm of 1 + x."""

    def log_softmax(self, x: Operand, /, *, axis: int = -1) -> Expression:
        """log_softmax(x): log(softmax(x)).

        axis: along which the elements sum to 1
        """

    def log_sum_exp(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """log_sum_exp(x): the logarithm of the sum of exponentials.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def logical_and(self, a: Operand, b: Operand, /) -> Expression:
        """logical_and(a, b): a and b."""

    def logical_not(self, x: Operand, /) -> Expression:
        """logical_not(x): not x."""

    def logical_or(self, a: Operand, b: Operand, /) -> Expression:
        """logical_or(a, b): a or b."""

    def logical_xor(self, a: Operand, b: Operand, /) -> Expression:
        """logical_xor(a, b): a or b, not both."""

    def look_up(self, x: Operand, keys: Operand, values: Operand, default: Operand, /) -> Expression:
        """look_up(x, keys, values, default): the value of each element's key, else the default."""

    def lstm(
        self, projected: Operand, recurrent: Operand, hidden: Operand, cell: Operand, peephole: Operand | None = None,
        lengths: Operand | None = None, /, *,
        direction: Literal["forward", "reverse", "bidirectional"] | str = "forward", clip: float | None = None,
        activations: str = "sigmoid tanh tanh", int8_rows: bool = False
    ) -> Expression:
        """lstm(projected, recurrent, hidden, cell, peephole?, lengths?): long short-term memory, with weights [directions, 3, hidden] by which gates i o f see the cell.

        direction: in which the steps are taken
        clip: bound of what activations are given; None: no bound
        activations: their names, separated by spaces
        int8_rows: whether states may be rounded to int8 where they meet integers
        """

    def match_texts(self, x: Operand, /, *, expression: str) -> Expression:
        """match_texts(x): whether a regular expression, of RE2's syntax, matches the whole text.

        expression: the regular expression
        """

    def matmul(self, a: Operand, b: Operand, /, *, int8_rows: bool = False) -> Expression:
        """matmul(a, b): the matrix product, batched and broadcast as NumPy's.

        int8_rows: whether rows may be rounded to int8 where they meet integers
        """

    def matmul_integer(
        self, a: Operand, b: Operand, a_zero: Operand | None = None, b_zero: Operand | None = None, /
    ) -> Expression:
        """matmul_integer(a, b, a_zero?, b_zero?): the matrix product of 8-bit integers less their zero points, in int32."""

    def max(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """max(x): the greatest; NaN if one is.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def max_of_regions(self, x: Operand, rois: Operand, /, *, size: _Integers, scale: float = 1.0) -> Expression:
        """max_of_regions(x, rois): [R, C, *size]: of each region [image, x, y, x, y] of x [N, C, H, W], parted into bins of whole pixels, the greatest in each; 0 in bins outside.

        size: bins down and across
        scale: of a region's numbers to pixels
        """

    def max_pool(
        self, x: Operand, /, *, kernel: _Integers, strides: _Integers | None = None, pads: _Dimensions | None = None,
        dilations: _Integers | None = None, ceil_mode: bool = False
    ) -> Expression:
        """max_pool(x): the greatest element under each window.

        kernel: size of the window, one an axis
        strides: steps of the window, one an axis; None: 1
        pads: elements added at the beginnings, then at the ends of the axes; None: 0
        dilations: steps between the elements of a window, one an axis; None: 1
        ceil_mode: a last window may stick out at the end
        """

    def maximum(self, a: Operand, b: Operand, /) -> Expression:
        """maximum(a, b): the greater; NaN if one is."""

    def mean(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """mean(x): the sum divided by the number of elements.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def min(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """min(x): the least; NaN if one is.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def minimum(self, a: Operand, b: Operand, /) -> Expression:
        """minimum(a, b): the lesser; NaN if one is."""

    def mish(self, x: Operand, /) -> Expression:
        """mish(x): x tanh(softplus(x))."""

    def multiply(self, a: Operand, b: Operand, /) -> Expression:
        """multiply(a, b): a b; integers wrap around."""

    def negative(self, x: Operand, /) -> Expression:
        """negative(x): -x."""

    def nonzero(self, x: Operand, /) -> Expression:
        """nonzero(x): the indices of the elements that are not zero, a column each, in row-major order."""

    def normalize_texts(
        self, x: Operand, stopwords: Operand, /, *, case: Literal["none", "lower", "upper"] | str = "none",
        is_case_sensitive: bool = False
    ) -> Expression:
        """normalize_texts(x, stopwords): the texts without stop words, in another case; an empty text if none is left.

        case: the case that texts get
        is_case_sensitive: whether stop words are told from others by their case
        """

    def not_equal(self, a: Operand, b: Operand, /) -> Expression:
        """not_equal(a, b): a ≠ b."""

    def pad(
        self, x: Operand, /, *, pads: _Dimensions, mode: Literal["constant", "edge", "reflect"] | str = "constant",
        value: float = 0.0
    ) -> Expression:
        """pad(x): elements added around x.

        pads: how many at the beginning of each axis, then at the end of each
        mode: what they are
        value: for mode constant
        """

    def paged_attention(
        self, q: Operand, k: Operand, v: Operand, keys: Operand, values: Operand, texts: Operand, tables: Operand,
        sink: Operand | None = None, /, *, scale: float = 1.0, repeat: int = 1, window: int = 0, softcap: float = 0.0,
        q_axes: _Integers | None = None, k_axes: _Integers | None = None, v_axes: _Integers | None = None,
        result_axes: _Integers | None = None
    ) -> Expression:
        """paged_attention(q, k, v, keys, values, texts, tables, sink?): softmax(q kᵀ scale) v of each new token of each text and those before it. Texts, [first row, rows, earlier tokens, first entry in tables], lie one after another in the rows; earlier keys and values lie in the pages whose numbers `tables` lists, in their type: [pages, heads, page / 16, depth, 16] and [pages, heads, page, depth]. In uint8, k, v and pages hold rows of quantize_rows, and depth counts the facts, too; keys lie in words of four codes: [pages, heads, page / 16, depth / 4, 64]. Where k and v have no rows, each token sees all that lies in its text's pages. `sink`, [heads of q], is one more score in a head's softmax, without a value.

        scale: what the products of queries and keys are multiplied by
        repeat: neighbours among the heads of q that share a head of k and v
        window: how many keys a query sees, its own the last; 0: all up to its own
        softcap: the bound c of scores x, which are c tanh(x / c) then; 0: none
        q_axes: the axes of q in the order 1, heads, tokens, depth; None: as they are
        k_axes: the axes of k in the order 1, heads, tokens, depth; None: as they are
        v_axes: the axes of v in the order 1, heads, tokens, depth; None: as they are
        result_axes: the result's axes in the order in which they are stored; None: as they are
        """

    def permute_dims(self, x: Operand, /, *, axes: _Integers | None = None) -> Expression:
        """permute_dims(x): the axes in another order: axis i of the result is axis axes[i] of x.

        axes: the order; None: reversed
        """

    def pow(self, a: Operand, b: Operand, /) -> Expression:
        """pow(a, b): a to the b; of integers, a fraction is cut off."""

    def print_numbers(self, x: Operand, /) -> Expression:
        """print_numbers(x): numbers as texts."""

    def prod(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """prod(x): the product; integers wrap around.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def put_along_axis(
        self, x: Operand, indices: Operand, updates: Operand, /, *, axis: int = 0,
        reduction: Literal["none", "add", "mul", "max", "min"] | str = "none"
    ) -> Expression:
        """put_along_axis(x, indices, updates): x, each update put in at its own place, but for the axis, where the index says.

        axis: along which
        reduction: what becomes of the element that was there
        """

    def put_slice(self, x: Operand, part: Operand, /, *, start: _Dimension, axis: int = 0) -> Expression:
        """put_slice(x, part): x with part in place of its elements from start on along an axis; where x lies, if nothing else holds it.

        start: the first place
        axis: along which
        """

    def quantize(self, x: Operand, scale: Operand, zero: Operand, /) -> Expression:
        """quantize(x, scale, zero): x / scale rounded to even, plus the zero point, the nearest integer of its type; the least one for NaN."""

    def read_numbers(self, x: Operand, /, *, dtype: _ElementType) -> Expression:
        """read_numbers(x): the numbers that texts are.

        dtype: their element type
        """

    def reciprocal(self, x: Operand, /) -> Expression:
        """reciprocal(x): 1 / x."""

    def relu(self, x: Operand, /) -> Expression:
        """relu(x): max(x, 0)."""

    def remainder(self, a: Operand, b: Operand, /) -> Expression:
        """remainder(a, b): a - b floor(a / b): has the sign of b."""

    def reshape(self, x: Operand, /, *, shape: _Dimensions) -> Expression:
        """reshape(x): the same elements, in row-major order, in another shape; -1 stands for the size that remains.

        shape: of the result
        """

    def resize(
        self, x: Operand, /, *, axis: int, size: _Dimension,
        mode: Literal["nearest", "linear", "cubic"] | str = "nearest", scale: float | None = None,
        coordinates: Literal["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn", "align_corners", "asymmetric"] | str = "half_pixel",
        rounding: Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] | str = "round_prefer_floor",
        cubic: float = -0.75, exclude_outside: bool = False
    ) -> Expression:
        """resize(x): x with an axis of another size, its elements interpolated.

        axis: along which
        size: of the axis in the result
        mode: how elements are interpolated
        scale: elements of the result for each of x; None: by the sizes
        coordinates: where the result's elements lie in x
        rounding: which is the nearest
        cubic: the coefficient of the cubic curve
        exclude_outside: elements beside x have no weight in the cubic curve
        """

    def rms_normalization(
        self, x: Operand, scale: Operand | None = None, /, *, axis: int = -1, epsilon: float = 1e-05
    ) -> Expression:
        """rms_normalization(x, scale?): x divided by the root of its mean square over the last axes, times a scale of those axes' shape.

        axis: the first of the axes that are normalised, up to the last
        epsilon: added to the variance
        """

    def rnn(
        self, projected: Operand, recurrent: Operand, hidden: Operand, lengths: Operand | None = None, /, *,
        direction: Literal["forward", "reverse", "bidirectional"] | str = "forward", clip: float | None = None,
        activations: str = "tanh"
    ) -> Expression:
        """rnn(projected, recurrent, hidden, lengths?): a simple recurrent layer: h' = f(projected + h · R).

        direction: in which the steps are taken
        clip: bound of what activations are given; None: no bound
        activations: their names, separated by spaces
        """

    def roi_align(
        self, x: Operand, rois: Operand, images: Operand, /, *, size: _Integers, samples: int = 0, scale: float = 1.0,
        half_pixel: bool = False, mode: Literal["avg", "max", "max_of_places"] | str = "avg"
    ) -> Expression:
        """roi_align(x, rois, images): [R, *size, C]: of each region [x, y, x, y] of an image of x [N, H, W, C], parted into bins, what lies in each.

        size: bins down and across
        samples: places of a bin along an axis that are looked at; 0: one a pixel
        scale: of a region's numbers to pixels
        half_pixel: pixels have their places in their middle
        mode: what is taken of the places
        """

    def rotary(self, x: Operand, cosine: Operand, sine: Operand, /) -> Expression:
        """rotary(x, cosine, sine): x cosine + (-second, first) sine, of the halves of x along the last axis: x turned by angles."""

    def round(self, x: Operand, /) -> Expression:
        """round(x): nearest whole number, halves to the even one."""

    def rsqrt(self, x: Operand, /) -> Expression:
        """rsqrt(x): 1 / square root."""

    def scatter_nd(
        self, x: Operand, indices: Operand, updates: Operand, /, *,
        reduction: Literal["none", "add", "mul", "max", "min"] | str = "none"
    ) -> Expression:
        """scatter_nd(x, indices, updates): x, the updates put in at places that the last axis of the indices tells.

        reduction: what becomes of the element that was there
        """

    def shape(self, x: Operand, /) -> Expression:
        """shape(x): the dimensions of x as an int64 tensor of rank 1."""

    def shape_tensor(self, /, *, dims: _Dimensions) -> Expression:
        """shape_tensor(): dimensions as an int64 tensor of rank 1.

        dims: its elements
        """

    def shift_left(self, a: Operand, b: Operand, /) -> Expression:
        """shift_left(a, b): a, shifted left by b bits; 0 if b is too large."""

    def shift_right(self, a: Operand, b: Operand, /) -> Expression:
        """shift_right(a, b): a, shifted right by b bits with sign extension; all sign if b is too large."""

    def sigmoid(self, x: Operand, /) -> Expression:
        """sigmoid(x): 1 / (1 + exp(-x))."""

    def sign(self, x: Operand, /) -> Expression:
        """sign(x): -1, 0 or 1; NaN for NaN."""

    def silu(self, x: Operand, /) -> Expression:
        """silu(x): x sigmoid(x)."""

    def sin(self, x: Operand, /) -> Expression:
        """sin(x): sine of radians."""

    def sinh(self, x: Operand, /) -> Expression:
        """sinh(x): hyperbolic sine."""

    def slice(
        self, x: Operand, /, *, starts: _Dimensions, ends: _Dimensions, axes: _Integers | None = None,
        steps: _Integers | None = None
    ) -> Expression:
        """slice(x): start:end:step along some axes, as in Python.

        starts: first element, for each axis
        ends: bound that is not reached
        axes: which axes; None: the first ones
        steps: not 0; None: 1
        """

    def softmax(self, x: Operand, /, *, axis: int = -1) -> Expression:
        """softmax(x): exp(x) / sum(exp(x)).

        axis: along which the elements sum to 1
        """

    def softplus(self, x: Operand, /) -> Expression:
        """softplus(x): log(exp(x) + 1)."""

    def softsign(self, x: Operand, /) -> Expression:
        """softsign(x): x / (1 + |x|)."""

    def solve(self, a: Operand, b: Operand, /) -> Expression:
        """solve(a, b): x [..., n, m] of which the product a [..., n, n] times x is b."""

    def split(self, x: Operand, /, *, axis: int = 0, sizes: _Dimensions) -> Expression:
        """split(x): x parted along an axis: a result for each size.

        axis: along which
        sizes: of the parts; they sum to the axis
        """

    def split_texts(self, x: Operand, /, *, delimiter: str = "", most: int | None = None) -> Expression:
        """split_texts(x): the parts of each text along a new axis, as many as the most has, empty texts behind; and how many there are.

        delimiter: what stands between parts; white space if empty
        most: how many times a text is split at most; None: as often as possible
        """

    def sqrt(self, x: Operand, /) -> Expression:
        """sqrt(x): square root."""

    def square(self, x: Operand, /) -> Expression:
        """square(x): x times x."""

    def squeeze(self, x: Operand, /, *, axes: _Integers) -> Expression:
        """squeeze(x): axes of size 1 taken out.

        axes: which axes
        """

    def stack(self, /, *tensors: Operand, axis: int = 0) -> Expression:
        """stack(*tensors): tensors of one shape joined along a new axis.

        axis: along which
        """

    def subtract(self, a: Operand, b: Operand, /) -> Expression:
        """subtract(a, b): a - b; integers wrap around."""

    def sum(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """sum(x): the sum; integers wrap around.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def sum_of_squares(self, x: Operand, /, *, axes: _Integers | None = None, keepdims: bool = False) -> Expression:
        """sum_of_squares(x): the sum of squares.

        axes: what to reduce over; None: all
        keepdims: reduced axes stay, with size 1
        """

    def take(self, x: Operand, indices: Operand, /, *, axis: int = 0) -> Expression:
        """take(x, indices): the slices of x at the indices along an axis; a negative index counts from the end.

        axis: along which
        """

    def take_along_axis(self, x: Operand, indices: Operand, /, *, axis: int = -1) -> Expression:
        """take_along_axis(x, indices): for each place of indices the element of x at that place, but for the axis, where the index says.

        axis: along which
        """

    def tan(self, x: Operand, /) -> Expression:
        """tan(x): tangent of radians."""

    def tanh(self, x: Operand, /) -> Expression:
        """tanh(x): hyperbolic tangent."""

    def tile(self, x: Operand, /, *, repetitions: _Dimensions) -> Expression:
        """tile(x): x side by side along each axis.

        repetitions: how often, for each axis
        """

    def tokenize_texts(
        self, x: Operand, expressions: Operand, /, *, between: bool = False, least: int = 1, marks: bool = False,
        pad: str = ""
    ) -> Expression:
        """tokenize_texts(x, expressions): the tokens of each text along a new axis, as many as the most has, by regular expressions (RE2's); by none, characters.

        between: whether tokens lie between what they match, or are what the one matches
        least: characters of the shortest tokens that count
        marks: whether the tokens stand between the characters 2 and 3
        pad: what is put behind the tokens of shorter texts
        """

    def top_k(
        self, x: Operand, /, *, k: _Dimension, axis: int = -1, largest: bool = True, sorted: bool = True
    ) -> Expression:
        """top_k(x): the k largest elements along an axis, and their places; of equal ones the first.

        k: how many
        axis: along which
        largest: or the smallest
        sorted: whether their order matters
        """

    def tree_ensemble(
        self, x: Operand, nodes: Operand, trees: Operand, leaves: Operand, /, *, targets: int,
        aggregate: Literal["sum", "average", "min", "max"] | str = "sum", nan_as_least: bool = False
    ) -> Expression:
        """tree_ensemble(x, nodes, trees, leaves): [N, targets]: what the leaves that trees lead rows x [N, F] to weigh together; operators/trees.py tells of the tables.

        targets: columns of the result
        aggregate: what becomes of the trees' weights
        nan_as_least: whether some nodes take NaN as the least number
        """

    def trunc(self, x: Operand, /) -> Expression:
        """trunc(x): whole part, towards zero."""

    def where(self, condition: Operand, a: Operand, b: Operand, /) -> Expression:
        """where(condition, a, b): a where the condition holds, else b."""

    def random_uniform(
        self, /, *, shape: Sequence[_Dimension], low: float = 0.0, high: float = 1.0,
        dtype: _ElementType | None = "float32", seed: int | None = None
    ) -> Expression:
        """Random numbers from low to high, without high: others in each call, unless seed, 64 bits, says which."""

    def random_normal(
        self, /, *, shape: Sequence[_Dimension], mean: float = 0.0, scale: float = 1.0,
        dtype: _ElementType | None = "float32", seed: int | None = None
    ) -> Expression:
        """Random numbers of a normal distribution, scale its standard deviation: others in each call, unless seed says which."""

    def bernoulli(self, x: Operand, /, *, dtype: _ElementType | None = None, seed: int | None = None) -> Expression:
        """1 with the probability that x has there, else 0: others in each call, unless seed says which. dtype: x's own."""

    def dropout(self, x: Operand, /, *, ratio: float = 0.5, seed: int | None = None) -> Expression:
        """As in training: each element is 0 with the probability ratio, else divided by 1 - ratio; others in each call, unless seed
        says which.
        """
