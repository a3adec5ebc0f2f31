"""ONNX's operators on texts, against `onnx.reference` and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import treadle
from onnx import helper
from onnx.reference import ReferenceEvaluator
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.formats.messages.errors import ExecutionError, ModelError, TreadleError

ML = "ai.onnx.ml"
CODES = {"O": 8, "f": 1, "d": 11, "i": 7, "b": 9, "e": 10}


def texts(*values: Any) -> np.ndarray:
    return np.array(values, object)


def model(node: onnx.NodeProto, *arrays: np.ndarray, version: int = 4) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(name, CODES[array.dtype.kind] if array.dtype != "i4" else 6, array.shape)
        for name, array in zip(node.input, arrays, strict=True)
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, version)]
    return helper.make_model(helper.make_graph([node], "g", infos, outputs), ir_version=9, opset_imports=opsets)


def run(content: onnx.ModelProto, *arrays: np.ndarray) -> list[np.ndarray]:
    """Compiled, saved, loaded, verified; and by the references, which are equal."""
    data = treadle.compile(content, progress=False).as_bytes()
    assert treadle.load(data).as_bytes() == data
    results = treadle.VirtualMachine(treadle.load(data))["main"](*arrays)
    again = evaluate(from_onnx(content), "main", *arrays)
    results, again = ([*each] if isinstance(each, tuple) else [each] for each in (results, again))
    for result, other in zip(results, again, strict=True):
        np.testing.assert_array_equal(np.asarray(result), other)
    return [np.asarray(result) for result in results]


def node(operator: str, inputs: int, outputs: int = 1, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    names = [f"x{number}" for number in range(inputs)], [f"y{number}" for number in range(outputs)]
    return helper.make_node(operator, *names, domain=domain, **attributes)


A = texts("a", "bb", "", "ä b  c", "a")
TABLE = texts("b", "a", "c", "a").reshape(2, 2)

STANDARD = {
    "equal": (node("Equal", 2), [A, texts("a", "b", "", "x", "A")]),
    "concat": (node("StringConcat", 2), [A[:, None], texts("-", "é")]),
    "split": (node("StringSplit", 1, 2), [A.reshape(5, 1)]),
    "split at": (node("StringSplit", 1, 2, delimiter=" ", maxsplit=1), [A]),
    "where": (node("Where", 3), [np.array([True, False, True, False, True]), A, texts("z")]),
    "gather": (node("Gather", 2, axis=1), [TABLE, np.array([1, 0, -1])]),
    "concatenate": (node("Concat", 2, axis=-1), [TABLE, TABLE]),
    "transpose": (node("Transpose", 1), [TABLE]),
    "flatten": (node("Flatten", 1), [TABLE]),
    "identity": (node("Identity", 1), [A]),
    "size": (node("Size", 1), [A]),
    "shape": (node("Shape", 1), [TABLE]),
    "integers as texts": (node("Cast", 1, to=8), [np.array([1, -70, 1 << 60])]),
    "floats as texts": (node("Cast", 1, to=8), [np.array([0.1, -1e-7, 3e20, 1.0], np.float32)]),
    "texts as floats": (node("Cast", 1, to=1), [texts("0.1", "-1e-7", "3E20", "nan", "-inf")]),
    "texts as halves": (node("Cast", 1, to=10), [texts("0.1", "1e9")]),
    "texts as integers": (node("Cast", 1, to=7), [texts("12", "-9000000000")]),
}


@pytest.mark.parametrize("name", STANDARD)
def test_operators_on_texts_are_those_of_the_standard(name: str) -> None:
    made, arrays = STANDARD[name]
    content = model(made, *arrays)
    expected = ReferenceEvaluator(content).run(None, dict(zip(made.input, arrays, strict=True)))
    for result, wanted in zip(run(content, *arrays), expected, strict=True):
        if wanted.dtype.kind in "OU":
            assert result.dtype == object
            assert result.tolist() == wanted.tolist()
        else:
            np.testing.assert_array_equal(result, wanted)


NAN = float("nan")
ENCODERS = {
    "texts to integers": ({"keys_strings": ["b", "a"], "values_int64s": [3, 5]}, [TABLE], 4),
    "integers to texts": (
        {"keys_int64s": [3, 5], "values_strings": ["b", "é"], "default_string": "?"},
        [np.array([5, 4])],
        2,
    ),
    "texts to texts": ({"keys_strings": ["b", "a"], "values_strings": ["x", "y"]}, [TABLE], 3),
    "texts to floats": ({"keys_strings": ["b"], "values_floats": [0.5], "default_float": -2.0}, [TABLE], 2),
    "floats to texts, NaN a key": (
        {"keys_floats": [NAN, 1.5], "values_strings": ["none", "x"]},
        [np.array([1.5, NAN, 7], np.float32)],
        4,
    ),
    "many texts": (
        {"keys_strings": [f"k{i}" for i in range(1000)], "values_int64s": list(range(1000))},
        [texts("k999", "k0", "k", "k500")],
        4,
    ),
    "many floats": (
        {"keys_floats": [*np.arange(600.0), NAN], "values_strings": [*map(str, range(600)), "NaN"]},
        [np.array([599, 0, NAN, 0.5], np.float32)],
        4,
    ),
    "classes to places": ({"classes_strings": ["b", "a"]}, [texts("a", "b", "c")], 1),
    "places to classes": ({"classes_strings": ["b", "a"]}, [np.array([1, 0, 9])], 1),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_label_encoders_are_onnxruntimes(name: str) -> None:
    attributes, arrays, version = ENCODERS[name]
    check_against_onnxruntime(node("LabelEncoder", 1, domain=ML, **attributes), arrays, version)


def check_against_onnxruntime(made: onnx.NodeProto, arrays: list[np.ndarray], version: int = 4) -> None:
    content = model(made, *arrays, version=version)
    session = onnxruntime.InferenceSession(content.SerializeToString())
    expected = session.run(None, dict(zip(made.input, arrays, strict=True)))
    for result, wanted in zip(run(content, *arrays), expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.tolist() == wanted.tolist()


OTHERS = {
    "category mapper": (node("CategoryMapper", 1, domain=ML, cats_strings=["a", "b"], cats_int64s=[7, 9]), [TABLE]),
    "category mapper back": (
        node("CategoryMapper", 1, domain=ML, cats_strings=["a", "b"], cats_int64s=[7, 9]),
        [np.array([[9, 8]])],
    ),
    "one hot": (node("OneHotEncoder", 1, domain=ML, cats_strings=["a", "b"]), [TABLE]),
    "feature extractor": (node("ArrayFeatureExtractor", 2, domain=ML), [TABLE, np.array([1])]),
    "stop words": (node("StringNormalizer", 1, locale="C", stopwords=["A", "x"], case_change_action="UPPER"), [A[:3]]),
    "stop words by case": (
        node("StringNormalizer", 1, locale="C", stopwords=["A", "bb"], is_case_sensitive=1, case_change_action="LOWER"),
        [A[None]],
    ),
    "only stop words": (node("StringNormalizer", 1, locale="C", stopwords=["a"]), [texts("A", "a")]),
    "linear classifier": (
        node(
            "LinearClassifier",
            1,
            2,
            domain=ML,
            classlabels_strings=["no", "yes"],
            coefficients=[1.0, 0, 0, 1],
            intercepts=[0.0, 0],
        ),
        [np.array([[1, 2], [3, 1]], np.float32)],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_encoders_and_labels_are_onnxruntimes(name: str) -> None:
    check_against_onnxruntime(*OTHERS[name])


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 2])
@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("rows", [3, 30])  # few tokens, and many
def test_ngrams_are_counted_as_onnxruntime_does(
    mode: str, skips: int, least: int, most: int, is_text: bool, rows: int
) -> None:
    words = ["a", "b", "c", "d"]
    pool = [*"abd", *"abbcca", *"abcbca"]
    x = np.random.default_rng(0).choice(words, (rows, 12)).astype(object)
    if not is_text:
        x = np.vectorize(words.index)(x)
    pools = {"pool_strings": pool} if is_text else {"pool_int64s": list(map(words.index, pool))}
    made = node(
        "TfIdfVectorizer",
        1,
        **pools,
        max_gram_length=most,
        min_gram_length=least,
        max_skip_count=skips,
        mode=mode,
        ngram_counts=[0, 3, 9],
        ngram_indexes=[5, 1, 2, 3, 4, 0, 7, 6],
        weights=np.arange(1.0, 9.0).tolist(),
    )
    check_against_onnxruntime(made, [x])


def test_a_text_that_is_no_number_ends_the_call_by_name() -> None:
    with pytest.raises(ExecutionError, match="the text 'one' is not a float32"):
        treadle.VirtualMachine(treadle.compile(model(STANDARD["texts as floats"][0], A)))["main"](
            texts("1", "2", "3", "4", "one")
        )


@pytest.mark.parametrize(
    ("count", "content", "says"), [(2, [b"a"], "has 1 texts"), (1, [b"\xff"], "a text is not UTF-8")]
)
def test_a_malformed_string_tensor_of_a_model_is_named(count: int, content: list[bytes], says: str) -> None:
    weight = onnx.TensorProto(name="w", data_type=8, dims=[count], string_data=content)
    graph = helper.make_graph([], "g", [], [onnx.ValueInfoProto(name="w")], [weight])
    with pytest.raises(ModelError, match=says):
        treadle.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


# ---- regular expressions ----

TOKENIZERS: list[dict[str, Any]] = [
    {"tokenexp": "[a-zA-Z0-9_]+"},  # what converters of scikit-learn's vectorizers write
    {"tokenexp": "."},
    {"tokenexp": "a|ab|abc", "mincharnum": 2},
    {"tokenexp": r"\b\w\w+\b"},
    {"tokenexp": "a*"},
    {"tokenexp": r"(?i)\pL+"},
    {"tokenexp": "[a-z]+", "mark": 1},
    {"separators": [""]},
    {"separators": [" ", "[,;]"], "mark": 1},
    {"separators": [","], "mincharnum": 2},
    {"separators": ["b*"]},
]


@pytest.mark.parametrize("attributes", TOKENIZERS, ids=str)
@pytest.mark.parametrize("rank", [1, 2])
def test_tokenizer(attributes: dict[str, Any], rank: int) -> None:
    lines = texts("The cat, sat", "abcd;ab,x", "", "été naïve\nb", "A b  c,,d")
    x = lines if rank == 1 else lines[[0, 1, 2, 3, 4, 2]].reshape(3, 2)
    full = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    content = model(helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **full), x)
    content.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    session = onnxruntime.InferenceSession(content.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    (found,) = run(content, x)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "attributes",
    [{"tokenexp": "("}, {}, {"tokenexp": "a", "mincharnum": 0}, {"tokenexp": ".", "mincharnum": 2}],
    ids=str,
)
def test_tokenizers_that_are_none(attributes: dict[str, Any]) -> None:
    full = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    content = model(helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **full), texts("a"))
    content.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ModelError):
        treadle.compile(content, progress=False)


def test_regex_full_match() -> None:
    x = texts("www.google.com", "www.facebook.com", "www.bbc.co.uk", "")
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=r"www\.[\w.-]+\.\bcom\b")
    assert run(model(node, x), x)[0].tolist() == [True, True, False, False]
    with pytest.raises(TreadleError, match="regular expression"):
        treadle.compile(model(helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="(a"), x), progress=False)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("seed", [0, 42])
def test_hashes(positive: int, seed: int) -> None:
    x = texts("", "a", "ab", "abc", "abcd", "été", "a longer text, of more words")
    node = helper.make_node("MurmurHash3", ["x"], ["y"], domain="com.microsoft", positive=positive, seed=seed)
    content = model(node, x)
    content.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    session = onnxruntime.InferenceSession(content.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    (found,) = run(content, x)
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


def test_an_encoder_that_knows_all_categories() -> None:
    """OneHotEncoder with zeros=0, as converters write it where a category is dropped."""
    for x, unknown, categories in (
        (texts("b", "a"), texts("c"), {"cats_strings": ["a", "b"]}),
        (np.array([3, 1]), np.array([2]), {"cats_int64s": [1, 3]}),
    ):
        node = helper.make_node("OneHotEncoder", ["x"], ["y"], domain=ML, zeros=0, **categories)
        content = model(node, x)
        content.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
        assert run(content, x)[0].tolist() == [[0, 1], [1, 0]]
        with pytest.raises(ExecutionError, match=r"OneHotEncoder|out of range"):
            treadle.VirtualMachine(treadle.compile(content, progress=False))["main"](unknown)
