"""The sound models that hostile ones are made of: every importer has some of its own among them.

ONNX's own cases (`dev/conformance.py`), random graphs, the steps of random graphs that are of other domains, small networks, and
what none of these has: values of unknown length, presence and rank, gradients, functions, texts, ensembles, external data.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from onnx import TensorProto, helper, parser

LARGEST_BYTES = 1 << 14  # of a case of ONNX: changes of weights show little
_GRAPHS, _STEPS = 200, 4  # random graphs; and of each operator of other domains
EXTERNAL = "weights.bin"  # 4,096 bytes beside the model, where a model is a file

_HEAD = """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3, "ai.onnx.preview.training" : 1, "com.microsoft" : 1,
    "own" : 1]> agraph """

# Texts of ONNX's own form
TEXTS = (
    # sequences whose length is known only at run time: changed, joined, split, grown in a loop, mapped
    """(seq(float[n]) s, int64 i, float[m] t) => (float[?] at, seq(float[n]) put, seq(float[n]) less, int64 count, float[?] all) {
        at = SequenceAt(s, i)  put = SequenceInsert(s, t, i)  less = SequenceErase(s, i)  count = SequenceLength(put)
        all = ConcatFromSequence <axis = 0, new_axis = 0> (put) }""",
    """(float[n, 2] x, int64 k) => (seq(float[?, ?]) y, float[?, ?, ?] z, seq(float[?]) rows) {
        y = SplitToSequence <axis = 0> (x, k)  z = ConcatFromSequence <axis = -1, new_axis = 1> (y)
        rows = SplitToSequence <axis = 0, keepdims = 0> (x) }""",
    """(int64 n, bool go, seq(float[k]) s) => (seq(float[k]) y) {
        y = Loop(n, go, s) <body = b (int64 i, bool c, seq(float[k]) before) => (bool d, seq(float[k]) after) {
            d = Identity(c)  f = Cast <to = 1> (i)  shape = Constant <value_ints = [1]> ()
            row = Reshape(f, shape)  after = SequenceInsert(before, row) }> }""",
    """(seq(float[n]) s, float t) => (seq(float[n]) y, seq(int64[1]) z) {
        y, z = SequenceMap <body = b (float[n] e, float f) => (float[n] p, int64[1] q) {
            p = Mul(e, f) q = Shape(e) }> (s, t) }""",
    """(float[n] x, float[m] y) => (float[?] z) { e = SequenceEmpty() s = SequenceConstruct(x, y) t = SequenceInsert(s, x)
        z = ConcatFromSequence <axis = 0> (t) }""",
    # optional values and tensors of several ranks, which branches give
    """(bool c, float[n] x) => (optional(float[n]) y, bool has) {
        y = If(c) <then_branch = t () => (optional(float[n]) a) { a = Optional(x) },
                   else_branch = e () => (optional(float[n]) b) { b = Optional <type = float[n]> () }>
        has = OptionalHasElement(y) }""",
    """(optional(seq(float[n])) s) => (bool has, int64 count) {
        has = OptionalHasElement(s) t = OptionalGetElement(s) count = SequenceLength(t) }""",
    """(bool c, float[n] x, float[2, n] y) => (float[2, n] z) {
        v = If(c) <then_branch = t () => (float[n] a) { a = Neg(x) }, else_branch = e () => (float[2, n] b) { b = Neg(y) }>
        w = Exp(v)  z = Mul(w, y) }""",
    """(bool c, seq(float[n]) s) => (seq(float[?]) y, seq(float[?]) z) {
        y = If(c) <then_branch = t () => (seq(float[?]) a) { a = SequenceErase(s) },
                   else_branch = e () => (seq(float[?]) b) { b = Identity(s) }>
        zero = Constant <value_int = 0> ()  h = SequenceAt(s, zero)  z = SequenceInsert(y, h) }""",
    # gradients
    """(float[2, 3] a, float[3, 4] b) => (float[2, 3] da, float[3, 4] db) { y = MatMul(a, b) t = Tanh(y) u = Mul(t, t)
        da, db = ai.onnx.preview.training.Gradient <xs = ["a", "b"], y = "u"> (a, b) }""",
    """(float[2, 3] a, float[n] c) => (float[2, 3] da, float[n] dc) { m = ReduceMean <keepdims = 1> (a) d = Sub(a, m)
        t = Transpose(d) u = Concat <axis = 1> (t, t) v = Softmax(u) s = ReduceSum <keepdims = 0> (v) e = Exp(c) f = Mul(s, e)
        da, dc = ai.onnx.preview.training.Gradient <xs = ["a", "c"], y = "f"> (a, c) }""",
    # texts and images
    """(string[n] x) => (string[n] s, bool[n] m, string[?, ?] parts, int64[n] count) { s = StringConcat(x, x)
        m = RegexFullMatch <pattern = "(a|b)+[c-e]{2,5}\\\\w*"> (s)
        parts, count = StringSplit <delimiter = " ", maxsplit = 3> (x) }""",
    """(string[n] x) => (string[?] y, string[n, ?] t, float[n, 4] f, uint32[n] h) {
        y = StringNormalizer <case_change_action = "LOWER", is_case_sensitive = 0, stopwords = ["a", "the"]> (x)
        t = com.microsoft.Tokenizer <mark = 0, mincharnum = 1, pad_value = "#", separators = [" ", ","]> (x)
        f = TfIdfVectorizer <max_gram_length = 2, max_skip_count = 1, min_gram_length = 1, mode = "TFIDF",
            ngram_counts = [0, 2], ngram_indexes = [0, 1, 2, 3], pool_strings = ["a", "b", "a", "b", "b", "a"],
            weights = [1.0, 2.0, 3.0, 4.0]> (t)
        h = com.microsoft.MurmurHash3 <positive = 1, seed = 7> (x) }""",
    """(uint8[n] x) => (uint8[h, w, c] y) { y = ImageDecoder <pixel_format = "RGB"> (x) }""",
    """(string[n] x) => (float[n] y, string[n] z) { y = Cast <to = 1> (x) z = Cast <to = 8> (y) }""",
    # maps, labels, encoders
    """(string[n] x, float[n, 3] p) => (int64[n] a, float[n, 2] b, seq(map(int64, float)) c) {
        a = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [3, 4], default_int64 = -1> (x)
        b = ai.onnx.ml.OneHotEncoder <cats_strings = ["a", "b"], zeros = 1> (x)
        c = ai.onnx.ml.ZipMap <classlabels_int64s = [7, 8, 9]> (p) }""",
    """(map(string, float) x) => (float[1, 2] y) {
        y = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a", "b"]> (x) }""",
    """(int64[n] x) => (string[n] y) { y = ai.onnx.ml.CategoryMapper <cats_int64s = [1, 2], cats_strings = ["a", "b"],
        default_string = "no", default_int64 = 0> (x) }""",
    # loops and branches of what is around them
    """(float[n] x, int64 k, bool go) => (float[n] y, float[?, n] z) {
        y, z = Loop(k, go, x) <body = b (int64 i, bool c, float[n] s) => (bool d, float[n] t, float[n] u) {
            f = Cast <to = 1> (i)  t = Add(s, f)  sum = ReduceMax <keepdims = 0> (t)  most = Constant <value_float = 9.0> ()
            d = Less(sum, most)
            u = If(c) <then_branch = p () => (float[n] v) { v = Neg(t) },
                else_branch = q () => (float[n] w) { w = Exp(x) }> }> }""",
    """(float[2] s, float[n, 2] x) => (float[2] t, float[n, 2] y) { t, y = Scan <num_scan_inputs = 1,
        body = b (float[2] a, float[2] e) => (float[2] c, float[2] d) { c = Add(a, e) d = Identity(c) }> (s, x) }""",
    # sizes known only at run time
    """(float[n, m] x, int64[4] shape, int64 depth, bool[n] which) => (float[?, ?] y, int64[2, ?] z, float[?, m] c,
            float[n, ?] h) {
        two = Constant <value_ints = [2]> ()  zero = Constant <value_ints = [0]> ()  first = Slice(shape, zero, two)
        y = Reshape(x, first)  z = NonZero(x)  c = Compress <axis = 0> (x, which)
        ids = ArgMax <axis = 1, keepdims = 0> (x)  values = Constant <value_floats = [0.0, 1.0]> ()
        h = OneHot(ids, depth, values) }""",
    """(float[n] x, int64 a, int64 b) => (int64[?] y, float[?] z, float[?] p) { one = Constant <value_int = 1> ()
        y = Range(a, b, one)  shape = Shape(y)  z = Expand(x, shape)  pads = Concat <axis = 0> (shape, shape)
        p = Pad(x, pads) }""",
    # a classifier of three trees
    """(float[n, 3] x) => (int64[n] label, float[n, 3] score) { label, score = ai.onnx.ml.TreeEnsembleClassifier <
        classlabels_int64s = [0, 1, 2], class_ids = [0, 1, 1, 2, 2, 0], class_nodeids = [1, 2, 1, 2, 1, 2],
        class_treeids = [0, 0, 1, 1, 2, 2], class_weights = [0.5, 0.25, 0.5, 0.75, 1.0, 0.5],
        nodes_falsenodeids = [2, 0, 0, 2, 0, 0, 2, 0, 0], nodes_truenodeids = [1, 0, 0, 1, 0, 0, 1, 0, 0],
        nodes_featureids = [0, 0, 0, 1, 0, 0, 2, 0, 0], nodes_nodeids = [0, 1, 2, 0, 1, 2, 0, 1, 2],
        nodes_treeids = [0, 0, 0, 1, 1, 1, 2, 2, 2], nodes_values = [0.5, 0.0, 0.0, 0.5, 0.0, 0.0, 0.5, 0.0, 0.0],
        nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
        post_transform = "SOFTMAX"> (x) }""",
)

# With functions of the model, behind the graph
FUNCTIONS = (
    """(float[n] x) => (float[n] y) { y = own.twice <alpha = 2.0> (x) }
    <opset_import: ["" : 21, "own" : 1], domain: "own"> twice <alpha>(a) => (c) { b = own.once(a)
        c = LeakyRelu <alpha: float = @alpha>(b) }
    <opset_import: ["" : 21], domain: "own"> once (a) => (b) { b = Add(a, a) }""",
    """(bool c, float[n] x) => (float[n] y) { y = own.either(c, x) }
    <opset_import: ["" : 21], domain: "own"> either (c, a) => (b) { b = If(c) <then_branch = t () => (d) { d = Exp(a) },
        else_branch = e () => (f) { f = Neg(a) }> }""",
)

# Of version 5 of ai.onnx.ml, with a node that asks whether a value is in a set
ENSEMBLE = """(float[n, 2] x) => (float[?, ?] y) { y = ai.onnx.ml.TreeEnsemble <n_targets = 2, aggregate_function = 1,
        post_transform = 0, tree_roots = [0], nodes_modes = uint8[2] {0, 6}, nodes_featureids = [0, 1],
        nodes_splits = float[2] {1.5, 0.0},
        nodes_truenodeids = [1, 0], nodes_trueleafs = [0, 1], nodes_falsenodeids = [2, 1], nodes_falseleafs = [1, 1],
        membership_values = float[3] {1.0, 2.0, nan}, leaf_targetids = [0, 1, 0],
        leaf_weights = float[3] {5.0, 7.0, 9.0}> (x) }"""


def kinds() -> dict[str, Callable[[Random], bytes]]:
    """What makes a sound model of each kind."""
    return {
        "case": lambda random: random.choice(_cases()),
        "graph": lambda random: _graph(random.randrange(_GRAPHS)),
        "step": lambda random: _step(random.choice(_steps()), random.randrange(_STEPS)),
        "text": lambda random: random.choice(_texts()),
        "network": lambda random: random.choice(_networks()),
    }


_WEIGHTS = {"case": 6, "graph": 3, "step": 3, "text": 6, "network": 1}


def sound_model(random: Random, with_cases: bool = True) -> bytes:
    """One of them. ONNX's own cases take some seconds to make, once."""
    weights = _WEIGHTS if with_cases else {kind: weight for kind, weight in _WEIGHTS.items() if kind != "case"}
    return kinds()[random.choices(list(weights), list(weights.values()))[0]](random)


@functools.cache
def _cases() -> tuple[bytes, ...]:
    """ONNX's own cases."""
    from ...conformance import cases

    found = []
    for case in cases().values():
        is_file = isinstance(case.model, Path)
        size = case.model.stat().st_size if is_file else case.model.ByteSize()
        if size <= LARGEST_BYTES:
            found.append(case.model.read_bytes() if is_file else case.model.SerializeToString())
    return tuple(found)


@functools.cache
def _graph(number: int) -> bytes:
    from ..random_onnx.graphs import random_graph

    return random_graph(Random(f"{number} hostile")).model.SerializeToString()


@functools.cache
def _steps() -> tuple[tuple[str, str], ...]:
    from ..random_onnx.graphs import STEPS

    return tuple(key for key in STEPS if key[0])


@functools.cache
def _step(key: tuple[str, str], number: int) -> bytes:
    from ..random_onnx.graphs import single

    return single(Random(f"{key} {number} hostile"), *key).model.SerializeToString()


@functools.cache
def _networks() -> tuple[bytes, ...]:
    from .... import digits
    from ... import zoo

    bert = zoo.bert(1, 16, 2, vocabulary=8, batch="b", length="s").SerializeToString()
    return Path(digits.MODEL).read_bytes(), zoo.mlp((4, 3)).SerializeToString(), bert, _external().SerializeToString()


@functools.cache
def _texts() -> tuple[bytes, ...]:
    """Of the texts, also those whose sequences hold tensors of any rank."""
    made = []
    for text in (*TEXTS, *FUNCTIONS):
        model = parser.parse_model(_HEAD + text)
        made.append(model.SerializeToString())
        if re.search(r"(seq|optional)\(", text.partition("=>")[0]):
            for info in (*model.graph.input, *model.graph.output):
                if not info.type.HasField("tensor_type"):
                    _inner(info.type).ClearField("shape")
            made.append(model.SerializeToString())
    newer = _HEAD.replace('"ai.onnx.ml" : 3', '"ai.onnx.ml" : 5')
    return (*made, parser.parse_model(newer + ENSEMBLE).SerializeToString())


def _inner(type_: Any) -> Any:
    """The tensor type in sequences and optional values."""
    for field in ("optional_type", "sequence_type"):
        if type_.HasField(field):
            return _inner(getattr(type_, field).elem_type)
    return type_.tensor_type


def _external() -> Any:
    """A model whose weights lie beside it."""
    weights = helper.make_tensor("w", 1, [16, 8], b"\0" * 512, raw=True)
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in (("location", EXTERNAL), ("offset", "64"), ("length", "512")):
        weights.external_data.add(key=key, value=value)
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 16])]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([node], "g", inputs, outputs, [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
