"""How sound models are changed: by what an enemy would write, one function a kind. Each changes the model that it is given."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from .sound import EXTERNAL, sound_model

SIZES = (
    *(-(1 << 63), -(1 << 31), -2, -1, 0, 1, 2, 3, 7),
    *(1 << 16, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 47) - 1, 1 << 62, (1 << 63) - 1),
)
_FLOATS = (0.0, -1.0, 1e-45, 3e38, float("inf"), float("nan"), 1e9)
# fmt: off
_OPERATORS = (
    "Expand", "Tile", "ConstantOfShape", "Range", "Reshape", "Concat", "Slice", "Pad", "Resize", "Conv",
    "ConvTranspose",
    "MaxPool", "Gather", "GatherND", "ScatterND", "OneHot", "Loop", "Scan", "If", "Split", "Transpose", "MatMul", "Gemm",
    "Einsum",
    "LSTM", "TopK", "NonZero", "CumSum", "Cast", "DFT", "STFT", "EyeLike", "Trilu", "Upsample", "Squeeze",
    "Unsqueeze",
    "QuantizeLinear", "DequantizeLinear", "Attention",
    "GridSample", "Col2Im", "BlackmanWindow", "MelWeightMatrix", "RandomNormal",
    "SequenceInsert", "SequenceAt", "SequenceErase", "SequenceConstruct", "SequenceLength", "SplitToSequence",
    "ConcatFromSequence", "SequenceMap", "Optional", "OptionalGetElement", "OptionalHasElement", "Identity",
    "StringConcat", "StringSplit", "RegexFullMatch", "StringNormalizer", "TfIdfVectorizer", "ImageDecoder", "Unique",
    "Compress", "BitCast", "Shape", "Size", "CastLike", "Softmax", "NonMaxSuppression", "AffineGrid", "RoiAlign",
)
_OTHERS = {
    "ai.onnx.ml": ("LabelEncoder", "OneHotEncoder", "TreeEnsembleRegressor", "TreeEnsemble", "ZipMap",
        "DictVectorizer", "Scaler"),
    "ai.onnx.preview.training": ("Gradient", "Adam", "Momentum"),
    "com.microsoft": ("Tokenizer", "MurmurHash3", "MatMulNBits", "GroupQueryAttention", "FusedConv"),
}
_PATHS = (
    "../../etc/passwd", "/dev/zero", "/dev/stdin", "", ".", "..", "a\0b", "x" * 5000, "/proc/self/mem", "model.onnx",
    EXTERNAL, f"./{EXTERNAL}", f"link/{EXTERNAL}", "link", "outside", "loop", "pipe", "empty", f"{EXTERNAL}\n", "\udcff",
)
_NAMES = ("", "é", "\0", "\x1b[2J", "a\nb", "\u202e", "x" * 10000, "n", "main", "a b", "'", "%s", "{0}")
_PATTERNS = (
    "(a+)+$", "(a|a)*b", "(.*)*x", "((a{1,100}){1,100}){1,100}", "a{1000000}", "(" * 5000, "[" * 100, "(?P<n>a)(?P=n)",
    "\\", "(?i)ß", "x*" * 5000, "(x?){64}x{64}", "[\\s\\S]{0,999}" * 30, "", "\0", "a{,5}", "(?:" + "a|" * 20000 + "b)",
)
# fmt: on


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph, and those in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
            for inner in attribute.graphs:
                yield from _graphs(inner)


def _node(random: Random, model: Any) -> Any:
    """A node, of inner graphs and of functions too."""
    nodes = [node for graph in _graphs(model.graph) for node in graph.node]
    nodes += [node for function in model.functions for node in function.node]
    return random.choice(nodes) if nodes else model.graph.node.add()


def _some_graph(random: Random, model: Any) -> Any:
    return random.choice(list(_graphs(model.graph)))


def attribute(random: Random, model: Any) -> None:
    node = _node(random, model)
    if not node.attribute:
        node.attribute.add(name=random.choice(("axis", "axes", "shape", "to", "kernel_shape")), type=2)
    found = random.choice(node.attribute)
    kind = random.randrange(9)
    if kind == 0:
        found.type = random.randrange(15)
    elif kind == 1:
        node.attribute.remove(found)
    elif kind == 2:
        found.name = random.choice((*_NAMES, "axis", "body", "to", "pads"))
    elif found.floats or found.HasField("f"):
        _change_list(random, found.floats, _FLOATS)
        found.f = random.choice(_FLOATS)
    elif found.strings or found.HasField("s"):
        texts = [text.encode("utf-8", "surrogateescape") for text in (*_PATTERNS, *_NAMES)]
        _change_list(random, found.strings, texts)
        found.s = random.choice(texts)
    elif found.HasField("t"):
        change_tensor(random, found.t)
    else:
        _change_list(random, found.ints, SIZES)
        found.i = random.choice(SIZES)


def _change_list(random: Random, values: Any, others: Any) -> None:
    """One changed, some taken away, doubled, or many more."""
    kind = random.randrange(6)
    if not values:
        return
    if kind < 3:
        values[random.randrange(len(values))] = random.choice(others)
    elif kind == 3:
        del values[random.randrange(len(values)) :]
    elif kind == 4:
        values.extend(list(values))
    else:
        values.extend([random.choice(others)] * random.choice((1, 5, 1000)))


def names(random: Random, model: Any) -> None:
    """Inputs that are others, or made later: cycles, values of other graphs, none at all, and odd names."""
    node = _node(random, model)
    known = [
        *(name for graph in _graphs(model.graph) for each in graph.node for name in each.output),
        *(info.name for info in model.graph.input),
        *(tensor.name for tensor in model.graph.initializer),
        "",
        random.choice(_NAMES),
    ]
    kind = random.random()
    if node.input and kind < 0.7:
        node.input[random.randrange(len(node.input))] = random.choice(known)
    elif node.output and kind < 0.8:
        node.output[random.randrange(len(node.output))] = random.choice(known)
    elif kind < 0.85:
        _rename(model, random.choice(known), random.choice(_NAMES))
    elif kind < 0.9 and node.input:
        del node.input[random.randrange(len(node.input)) :]
    else:
        node.input.extend([random.choice(known)] * random.choice((1, 1, 2, 2000)))


def _rename(model: Any, name: str, other: str) -> None:
    """A value everywhere: the model stays sound, but for the name."""
    for graph in _graphs(model.graph):
        for info in (*graph.input, *graph.output, *graph.initializer):
            info.name = other if info.name == name else info.name
        for node in graph.node:
            for values in (node.input, node.output):
                values[:] = [other if each == name else each for each in values]


def operator(random: Random, model: Any) -> None:
    node = _node(random, model)
    if random.random() < 0.75:
        node.op_type = random.choice((*_OPERATORS, *_OPERATORS, random.choice(_NAMES)))
    else:
        node.domain = random.choice((*_OTHERS, "nobody", "ai.onnx", "own", *_NAMES))
        node.op_type = random.choice(_OTHERS.get(node.domain, ("once", "twice")))
        model.opset_import.add(domain=node.domain, version=random.choice((1, 2, 3, 5)))


def types(random: Random, model: Any) -> None:
    """Of inputs and outputs, of inner graphs too: other elements, sequences of them, optional values, maps, nothing."""
    graph = _some_graph(random, model)
    infos = [*graph.input, *graph.output]
    if not infos:
        return
    type_ = random.choice(infos).type
    before = type(type_)()
    before.CopyFrom(type_)
    kind = random.randrange(7)
    if kind == 0 and type_.HasField("tensor_type"):
        type_.tensor_type.elem_type = random.choice((*range(28), 99))
    elif kind == 1:
        type_.sequence_type.elem_type.CopyFrom(before)
    elif kind == 2:
        type_.optional_type.elem_type.CopyFrom(before)
    elif kind == 3:
        type_.map_type.key_type = random.choice((7, 8, 1))
        type_.map_type.value_type.CopyFrom(before)
    elif kind == 4:
        type_.Clear()
    elif kind == 5:
        type_.tensor_type.elem_type = random.choice((1, 7, 8, 9, 10))
        type_.tensor_type.ClearField("shape")
    else:
        for _ in range(random.choice((2, 30, 90))):
            inner = type(type_)()
            inner.CopyFrom(type_)
            random.choice((type_.sequence_type, type_.optional_type)).elem_type.CopyFrom(inner)


def sizes(random: Random, model: Any) -> None:
    """Of inputs, and of tensors that have little data for them."""
    graph = _some_graph(random, model)
    infos = [*graph.input, *graph.output]
    if infos and random.random() < 0.5:
        dims = random.choice(infos).type.tensor_type.shape.dim
        if not dims or random.random() < 0.2:
            dims.add()
        dim = random.choice(dims)
        if random.random() < 0.5:
            dim.dim_value = random.choice(SIZES)
        else:
            dim.dim_param = random.choice(
                ("n", "n*n*n*n", "1" * 4000, "(" * 3000, "-n", "n//0", "max(n,n)", *_NAMES, "n" * 300, "n+m", "m%n")
            )
        if random.random() < 0.1:
            dims.extend([dim] * random.choice((3, 31, 200)))
    elif model.graph.initializer:
        dims = random.choice(model.graph.initializer).dims
        if dims and random.random() < 0.8:
            dims[random.randrange(len(dims))] = random.choice(SIZES)
        else:
            dims.extend([random.choice(SIZES)] * random.choice((1, 3, 40)))


def tensor(random: Random, model: Any) -> None:
    """Other elements, another type, other places; of those that nodes hold too."""
    found = [each for graph in _graphs(model.graph) for each in graph.initializer]
    found += [
        each.t for graph in _graphs(model.graph) for node in graph.node for each in node.attribute if each.type == 4
    ]
    if found:
        change_tensor(random, random.choice(found))


def change_tensor(random: Random, it: Any) -> None:
    kind = random.randrange(5)
    if kind == 0:
        it.data_type = random.randrange(30)
    elif kind == 1:
        it.raw_data = it.raw_data[: random.randrange(len(it.raw_data) + 1)]
    elif kind == 2 and it.data_type == 7:
        count = max(1, int(np.prod(list(it.dims) or [1]))) if all(0 <= dim < 100 for dim in it.dims) else 1
        for field in ("int64_data", "raw_data"):
            it.ClearField(field)
        it.raw_data = np.array([random.choice(SIZES) for _ in range(min(count, 1000))], np.int64).tobytes()
    elif kind == 3 and it.raw_data:
        data = bytearray(it.raw_data)
        for _ in range(random.choice((1, 4, 50))):
            data[random.randrange(len(data))] = random.choice((0, 0x7F, 0x80, 0xFF))
        it.raw_data = bytes(data)
    else:
        it.data_location = 1
        fields = {"location": random.choice(_PATHS), "offset": random.choice(SIZES), "length": random.choice(SIZES)}
        for key, value in fields.items():
            it.external_data.add(
                key=key, value=str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            )


def sparse(random: Random, model: Any) -> None:
    """A sparse initializer, of indices that may lead anywhere."""
    it = model.graph.sparse_initializer.add()
    it.values.CopyFrom(numpy_helper.from_array(np.ones(random.choice((0, 1, 3)), np.float32), _any_input(model)))
    it.indices.CopyFrom(numpy_helper.from_array(np.array([random.choice(SIZES) for _ in range(3)]), "indices"))
    it.dims.extend([random.choice(SIZES) for _ in range(random.choice((0, 1, 2)))])


def bomb(random: Random, model: Any) -> None:
    """A constant that is made of few bytes, as large as it likes, again and again."""
    tag = f"bomb{random.randrange(1 << 30)}"
    last = random.choice(_BOMBS)(random, model, tag)
    graph = model.graph
    if random.random() < 0.6:
        last = _grown(random, graph, tag, last)
    graph.output.append(_info(last))


def _grown(random: Random, graph: Any, tag: str, last: str) -> str:
    for step in range(random.choice((1, 3, 12, 60))):
        name = random.choice(("Concat", "Exp", "Add", "Mul", "Neg", "Cast", "Concat", "Transpose", "CumSum"))
        inputs = [last, last] if name in ("Concat", "Add", "Mul") else [last]
        attributes: dict[str, Any] = {"Concat": {"axis": 0}, "Cast": {"to": random.choice((1, 7, 11, 8))}}.get(name, {})
        if name == "CumSum":
            inputs.append(_held(graph, f"{tag}axis{step}", np.array(0)))
        graph.node.append(helper.make_node(name, inputs, [f"{tag}_{step}"], **attributes))
        last = f"{tag}_{step}"
    return last


def _held(graph: Any, name: str, value: Any) -> str:
    """A new initializer."""
    graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def _add(graph: Any, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
    graph.node.append(helper.make_node(operator, inputs, [output], **attributes))
    return output


def _count(random: Random) -> int:
    return random.choice((10**3, 10**6, 10**8, 10**9, 10**10, 10**12, 1 << 46, 1 << 62))


def _large_tensor(random: Random, model: Any, tag: str) -> str:
    graph, count = model.graph, _count(random)
    number, one = _held(graph, f"{tag}n", [count]), _held(graph, f"{tag}1", np.ones(1, np.float32))
    kind = random.choice(("Expand", "Tile", "ConstantOfShape", "Range", "Pad", "OneHot", "Resize", "EyeLike", "Window"))
    if kind == "Range":
        ends = [_held(graph, tag + name, np.array(value)) for name, value in (("0", 0), ("s", count))]
        inputs = [*ends, _held(graph, f"{tag}d", np.array(random.choice((1, -1, 0))))]
    elif kind == "Pad":
        inputs = [one, _held(graph, f"{tag}p", [0, count])]
    elif kind == "OneHot":
        inputs = [number, number, _held(graph, f"{tag}v", np.array([0, 1], np.float32))]
    elif kind == "Resize":
        return _add(graph, kind, [one, "", "", number], f"{tag}_r", mode=random.choice(("linear", "nearest", "cubic")))
    elif kind == "Window":
        kind, inputs = "HannWindow", [_held(graph, f"{tag}w", np.array(count))]
    else:
        inputs = [number] if kind == "ConstantOfShape" else [one, number]
    return _add(graph, kind, inputs, f"{tag}_r")


def _long_texts(random: Random, model: Any, tag: str) -> str:
    """A text put behind itself, again and again: no more elements, all the more bytes."""
    graph = model.graph
    last = _held(graph, f"{tag}t", np.array(["ab "] * random.choice((1, 100)), object))
    for step in range(random.choice((5, 25, 60))):
        last = _add(graph, "StringConcat", [last, last], f"{tag}c{step}")
    kind = random.choice(("", "RegexFullMatch", "StringNormalizer", "Cast", "Unique"))
    attributes: dict[str, dict[str, Any]] = {
        "RegexFullMatch": {"pattern": random.choice(_PATTERNS)},
        "StringNormalizer": {"case_change_action": "UPPER"},
        "Cast": {"to": 1},
    }
    return _add(graph, kind, [last], f"{tag}k", **attributes.get(kind, {})) if kind else last


def _long_sequence(random: Random, model: Any, tag: str) -> str:
    """A loop of many rounds, each of which makes a sequence longer."""
    inner = parser.parse_graph(
        "b (int64 i, bool c, seq(int64[k]) s) => (bool d, seq(int64[k]) t) "
        "{ d = Identity(c) one = Constant <value_ints = [1]> () row = Reshape(i, one) t = SequenceInsert(s, row) }"
    )
    graph = model.graph
    trips = _held(graph, f"{tag}n", np.array(random.choice((100, 1000, *SIZES))))
    start = _add(graph, "SequenceEmpty", [], f"{tag}e", dtype=7)
    last = _add(graph, "Loop", [trips, "", start], f"{tag}s", body=inner)
    return _add(graph, "ConcatFromSequence", [last], f"{tag}j", axis=0)


def _many_rounds(random: Random, model: Any, tag: str) -> str:
    """A loop of constants alone, with that number of rounds."""
    inner = parser.parse_graph(
        "b (int64 i, bool c, int64[k] s) => (bool d, int64[k] t, int64[k] u) "
        "{ d = Identity(c) t = Add(s, i) u = Concat <axis = 0> (t, t) }"
    )
    if random.random() < 0.5:  # the state doubles
        inner.output[1].name, inner.output[2].name = "u", "t"
    graph = model.graph
    trips = _held(graph, f"{tag}n", np.array(random.choice((3, 40, 1000, *SIZES))))
    start = _held(graph, f"{tag}0", np.ones(random.choice((1, 1000)), np.int64))
    outputs = [f"{tag}s", f"{tag}u"]
    graph.node.append(helper.make_node("Loop", [trips, "", start], outputs, body=inner))
    return random.choice(outputs)


def _large_pool(random: Random, model: Any, tag: str) -> str:
    """Counts of n-grams, whose attributes are many, or absurd."""
    graph, grams = model.graph, random.choice((3, 1000, 100_000))
    tokens = _held(graph, f"{tag}t", np.arange(random.choice((1, 100, 10_000))))
    largest = random.choice((grams, grams, 1 << 24, 1 << 40))
    attributes = {
        "max_gram_length": random.choice((1, 1, 2, 1 << 31)),
        "min_gram_length": 1,
        "max_skip_count": random.choice((0, 5, 1 << 31, 1 << 62)),
        "mode": "TF",
        "ngram_counts": random.choice(([0], [0, grams], [0, 0, 0], [0] * 1000)),
        "ngram_indexes": [*range(grams - 1), largest - 1],
        "pool_int64s": list(range(grams)),
    }
    return _add(graph, "TfIdfVectorizer", [tokens], f"{tag}y", **attributes)


def _trees(random: Random, model: Any, tag: str) -> str:
    """Chains and cycles of nodes, of any length."""
    count = random.choice((3, 1000, 50_000))
    numbers = list(range(count))
    following = [(number + 1) % count if random.random() < 0.5 else number + 1 for number in numbers]
    nodes: dict[str, Any] = {
        "nodes_nodeids": numbers,
        "nodes_treeids": [0] * count,
        "nodes_modes": ["BRANCH_LT"] * (count - 1) + [random.choice(("LEAF", "BRANCH_LT"))],
        "nodes_featureids": [random.choice((0, 0, 0, *SIZES))] * count,
        "nodes_values": [0.5] * count,
        "nodes_truenodeids": following,
        "nodes_falsenodeids": [count - 1] * count,
        "target_ids": [0],
        "target_nodeids": [count - 1],
        "target_treeids": [0],
        "target_weights": [1.0],
        "n_targets": random.choice((1, 1, *SIZES)),
    }
    graph = model.graph
    graph.input.append(_tensor_info(f"{tag}x", 1, ["rows", random.choice((1, 3))]))
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    return _add(graph, "TreeEnsembleRegressor", [f"{tag}x"], f"{tag}y", domain="ai.onnx.ml", **nodes)


def _picture(random: Random, model: Any, tag: str) -> str:
    """An image of many pixels and few bytes."""
    width, height = random.choice(((1, 1), (20_000, 20_000), (1 << 31, 1), (60_000, 60_000)))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    content = zlib.compress(bytes(min(width * height, 1 << 22)))
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", content) + chunk(b"IEND", b"")
    data = _held(model.graph, f"{tag}f", np.frombuffer(file, np.uint8))
    return _add(model.graph, "ImageDecoder", [data], f"{tag}i")


def _many_names(random: Random, model: Any, tag: str) -> str:
    """Very many initializers, nodes or outputs, of one name or of as many."""
    graph, count = model.graph, random.choice((100, 3000))
    tensor, same = numpy_helper.from_array(np.ones(1, np.float32), f"{tag}w"), random.random() < 0.5
    for number in range(count):
        graph.initializer.append(tensor)
        if not same:
            graph.initializer[-1].name = f"{tag}w{number}"
    first = graph.initializer[-1].name
    for number in range(count):
        _add(graph, "Neg", [first], f"{tag}o" if random.random() < 0.001 else f"{tag}o{number}")
    if random.random() < 0.3:
        graph.output.extend([_info(f"{tag}o0")] * count)
    return f"{tag}o{count - 1}"


_BOMBS: tuple[Callable[[Random, Any, str], str], ...] = (
    *(_large_tensor, _large_tensor, _large_tensor, _long_texts, _long_sequence),
    *(_many_rounds, _large_pool, _trees, _picture, _many_names),
)


def nested(random: Random, model: Any) -> None:
    """Graphs in graphs, or functions that call themselves."""
    if random.random() < 0.3:
        given = [f"f{number}" for number in range(random.choice((1, 2, 14, 30)))]
        last = random.choice((given[0], "once"))
        for name, other in zip(given, [*given[1:], last], strict=True):
            body = [
                helper.make_node(other, ["a"], ["b"], domain="own"),
                helper.make_node(other, ["b"], ["c"], domain="own"),
            ]
            model.functions.append(helper.make_function("own", name, ["a"], ["c"], body, list(model.opset_import)))
        model.opset_import.add(domain="own", version=1)
        model.graph.node.append(helper.make_node(given[0], [_any_input(model)], ["nested"], domain="own"))
    else:
        graph = helper.make_graph([helper.make_node("Neg", [_any_input(model)], ["inner"])], "g", [], [_info("inner")])
        for _ in range(random.choice((1, 5, 20, 28))):
            small = helper.make_graph([], "h", [], [_info(_any_input(model))])
            other = graph if random.random() < 0.05 else small
            node = helper.make_node("If", ["nested_c"], ["inner"], then_branch=graph, else_branch=other)
            graph = helper.make_graph([node], "g", [], [_info("inner")])
            if graph.ByteSize() > 1 << 20:
                break
        model.graph.input.append(helper.make_tensor_value_info("nested_c", 9, []))
        model.graph.node.append(helper.make_node("If", ["nested_c"], ["nested"], then_branch=graph, else_branch=graph))
    model.graph.output.append(_info("nested"))


def _info(name: str) -> Any:
    return helper.make_empty_tensor_value_info(name)


def _tensor_info(name: str, kind: int, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _any_input(model: Any) -> str:
    return model.graph.input[0].name if model.graph.input else "x"


def whole(random: Random, model: Any) -> None:
    """What stands once in a model: versions, the order of nodes, nodes twice, outputs twice, functions of other names."""
    nodes = list(model.graph.node)
    kind = random.randrange(6)
    if kind == 0 and model.opset_import:
        random.choice(model.opset_import).version = random.choice((-1, 0, 1, 6, 7, 9, 11, 13, 17, 21, 28, 1 << 40))
    elif kind == 1 and nodes:
        random.shuffle(nodes)
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    elif kind == 2 and model.graph.output:
        model.graph.output.extend([random.choice(model.graph.output)] * random.choice((1, 300)))
    elif kind == 3 and model.functions:
        function = random.choice(model.functions)
        kept = random.choice((function.input, function.output, function.attribute))
        kept.append(random.choice(_NAMES))
        function.name = random.choice((function.name, "Relu", "once", "twice"))
    elif kind == 4 and nodes:
        del model.graph.node[random.randrange(len(nodes))]
    elif nodes:
        model.graph.node.extend([random.choice(nodes)] * random.choice((1, 2, 300)))


def graft(random: Random, model: Any) -> None:
    """The graph of another sound model behind this one's: its first inputs are values of this one."""
    other = onnx.ModelProto()
    other.ParseFromString(sound_model(random, with_cases=False))
    tag = f"g{random.randrange(1 << 20)}_"
    onnx.compose.add_prefix(other, tag, inplace=True)
    made = [name for node in model.graph.node for name in node.output if name] or [_any_input(model)]
    given = {info.name for info in other.graph.input[: random.choice((1, 2))]}
    for name in given:
        _rename(other, name, random.choice(made[-6:]))
    model.graph.node.extend(other.graph.node)
    model.graph.initializer.extend(other.graph.initializer)
    model.graph.input.extend(info for info in other.graph.input if info.name.startswith(tag))
    model.graph.output.extend(other.graph.output)
    model.functions.extend(other.functions)
    known = {each.domain for each in model.opset_import}
    model.opset_import.extend(each for each in other.opset_import if each.domain not in known)


CHANGES: tuple[Callable[[Random, Any], None], ...] = (
    *(attribute, attribute, names, operator, types, sizes, tensor),
    *(sparse, bomb, bomb, nested, whole, graft, graft),
)
