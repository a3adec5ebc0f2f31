"""Texts whose tokens are counted: walked through as bytes, to the same result."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from treadle.compiler.operators.regular_expressions import Pattern
from treadle.formats.executable import Executable
from treadle.formats.host_work import noted
from treadle.formats.messages.errors import ArgumentError
from treadle.formats.text_entries import NOTE, entry_of
from treadle.tvm.graphs.of_program import graph_of

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]


def vectorizer(
    pool: list[list[str]],
    tokenizer: dict[str, Any],
    *,
    skips: int = 0,
    least: int = 1,
    pad: str = "#",
    shortest: int = 1,
    normalizer: dict[str, Any] | None = None,
    shows_tokens: bool = False,
) -> onnx.ModelProto:
    """StringNormalizer, Tokenizer and TfIdfVectorizer, as skl2onnx writes them; `pool` has n-grams, the shorter ones first."""
    sizes = [len(ngram) for ngram in pool]
    begins = [sum(size for size in sizes if size < length) for length in range(1, max(sizes) + 1)]
    nodes = [helper.make_node("StringNormalizer", ["x"], ["lower"], **normalizer)] if normalizer is not None else []
    tokens = {"mark": 0, "mincharnum": shortest, "pad_value": pad, **tokenizer}
    given_texts = "lower" if nodes else "x"
    nodes.append(helper.make_node("Tokenizer", [given_texts], ["tokens"], domain="com.microsoft", **tokens))
    attributes = {"mode": "TF", "min_gram_length": least, "max_gram_length": max(sizes), "max_skip_count": skips}
    attributes |= {"ngram_counts": begins, "ngram_indexes": list(range(len(pool)))[::-1]}
    attributes["pool_strings"] = [token for ngram in pool for token in ngram]
    nodes.append(helper.make_node("TfIdfVectorizer", ["tokens"], ["counts"], **attributes))
    outputs = [helper.make_tensor_value_info("counts", TensorProto.FLOAT, ["r", len(pool)])]
    if shows_tokens:
        outputs.append(helper.make_tensor_value_info("tokens", TensorProto.STRING, ["r", "w"]))
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])
    return helper.make_model(helper.make_graph(nodes, "g", [x], outputs), opset_imports=OPSETS, ir_version=9)


def compiled(model: onnx.ModelProto, **options: Any) -> treadle.VirtualMachine:
    return treadle.VirtualMachine(treadle.compile(model, progress=False, **options))


def by_host(vm: treadle.VirtualMachine) -> set[str]:
    """The operators that the host does."""
    return {operator for each in noted(vm.executable.program) or () for operator in each.operators}


TOKENIZERS = [
    {"tokenexp": "[a-zA-Z0-9_]+"},
    {"tokenexp": "."},
    {"tokenexp": r"\b[^\s]{2,3}\b"},
    {"tokenexp": "ab|abc|^c"},
    {"separators": [" ", "[.,]"]},
    {"separators": [""]},
]
POOL = [["a"], ["ab"], ["abc"], ["c"], ["ä"], ["a", "a"], ["a", "b"], ["ab", "c"], ["ä", "a"], ["c", "a", "b"]]
TEXTS = st.lists(st.text("abcäé😀 .,\n_Σ", max_size=12), max_size=4)


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=str)
def test_counts_are_those_of_the_tokens(tokenizer: dict[str, Any]) -> None:
    made = [
        vectorizer(POOL, tokenizer),
        vectorizer(POOL, tokenizer, skips=2, shortest=1 if tokenizer in (TOKENIZERS[1], TOKENIZERS[5]) else 2),
        vectorizer(POOL[5:], tokenizer, least=2, normalizer={"case_change_action": "UPPER", "stopwords": ["ab"]}),
        vectorizer(POOL, tokenizer, normalizer={"case_change_action": "LOWER"}),
    ]
    pairs = [(compiled(model), compiled(model, without=["count_texts"])) for model in made]
    assert all(by_host(one) == {"text_bytes"} for one, _ in pairs)

    @settings(max_examples=40)
    @given(TEXTS)
    def same(texts: list[str]) -> None:
        x = np.array(texts, object)
        for one, other in pairs:
            np.testing.assert_array_equal(np.asarray(one["main"](x)), np.asarray(other["main"](x)))

    same()


def test_a_kernel_counts_what_the_reference_counts() -> None:
    model = vectorizer(POOL, TOKENIZERS[0], skips=1)
    x = np.array(["ab c abc ä", "", "a b a b"], object)
    program = treadle.compile(model, progress=False).program
    (primitive,) = (each for each in program.primitives if "count_text" in each.name)
    assert [node.operator for node in primitive.definition.nodes] == ["count_text_ngrams"]
    expected = compiled(model, opt_level=0)["main"](x)
    np.testing.assert_array_equal(np.asarray(compiled(model)["main"](x)), np.asarray(expected))


@pytest.mark.parametrize("tokenizer", [TOKENIZERS[0], TOKENIZERS[3], TOKENIZERS[4]], ids=str)
def test_the_reference_counts_what_the_tokens_are(
    tokenizer: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = vectorizer(POOL, tokenizer, skips=1)
    x = np.array(["ab c abc. ä", "", "a b, a  b", "abcab", "c a"], object)
    executable, expected = treadle.compile(model, progress=False), compiled(model, without=["count_texts"])["main"](x)
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))  # there are no kernels
    counted = treadle.VirtualMachine(executable, kernels="cached")["main"](x)
    assert np.asarray(expected).any()
    np.testing.assert_array_equal(np.asarray(counted), np.asarray(expected))


KEPT = {
    "what is put behind shorter texts is in the vocabulary": vectorizer([["a"], ["#"]], TOKENIZERS[0]),
    "characters behind ASCII are told from each other": vectorizer(POOL, {"tokenexp": "[aä]+"}),
    "a category": vectorizer(POOL, {"tokenexp": r"\pL+"}),
    "cases are not told from each other": vectorizer(POOL, {"tokenexp": "(?i)k+"}),
    "separators of several characters": vectorizer(POOL, {"separators": ["ab"]}),
    "tokens are shown": vectorizer(POOL, TOKENIZERS[0], shows_tokens=True),
}


@pytest.mark.parametrize("case", KEPT)
def test_tokens_stay_texts_where(case: str) -> None:
    assert "tokenize_texts" in by_host(compiled(KEPT[case]))


def test_patterns_know_whether_they_tell_characters_behind_ascii_apart() -> None:
    alike = ["[a-z]+", ".", "[^a]", r"\w", r"\W\D", "[[:alpha:]]", r"[\x{80}-\x{10ffff}]", r"\b"]
    apart = ["ä", "[^ä]", r"\pL", "(?i)s", "[a-ä]"]
    assert [each for each in alike if not Pattern(each).takes_others_alike] == []
    assert [each for each in apart if Pattern(each).takes_others_alike] == []


# ---- the twin that takes bytes ----

LOWER = vectorizer(POOL, TOKENIZERS[0], normalizer={"case_change_action": "LOWER"})
PLAIN = vectorizer(POOL, TOKENIZERS[0])
TWINS = {"with a case": LOWER, "as they are": PLAIN}


@pytest.mark.parametrize("case", TWINS)
def test_texts_reach_the_twin_as_bytes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vm, other = compiled(TWINS[case]), compiled(TWINS[case], without=["text_entries", "count_texts"])
    assert vm.executable.globals == ["main"]
    loaded = treadle.VirtualMachine(treadle.load(vm.executable.as_bytes()))
    given = [np.array(texts, object) for texts in (["AB c", "ä abc", ""], ["a"], [""])]
    expected = [np.asarray(other["main"](x)) for x in given]
    monkeypatch.setattr("treadle.vm.calls.perform", None)  # the host is not asked
    for x, counts in zip(given, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(loaded["main"](x)), counts)


@pytest.mark.parametrize("case", TWINS)
def test_calls_of_other_kinds_give_the_same(case: str) -> None:
    vm = compiled(TWINS[case])
    x = np.array(["AB c", "ä abc"], object)
    expected = np.asarray(vm["main"](x))
    bounded = compiled(TWINS[case])
    calls = [
        lambda: vm["main"](x=x),
        lambda: vm["main"](x.tolist()),
        lambda: vm["main"](x.astype(str)),
        lambda: vm["main"](np.array([np.str_(text) for text in x], object)),
        lambda: vm.call("main", [x]),
        lambda: bounded.call("main", [x], max_seconds=60, max_memory=1 << 26),
        lambda: vm["main"](np.array(["", *x], object)[1:]),
    ]
    for call in calls:
        np.testing.assert_array_equal(np.asarray(call()), expected)
    no_texts = np.asarray(vm["main"](np.zeros(0, object)))
    assert no_texts.shape == ((1 if case == "with a case" else 0), len(POOL))


@pytest.mark.parametrize("case", TWINS)
def test_what_is_no_text_is_refused_as_ever(case: str) -> None:
    vm = compiled(TWINS[case])
    for wrong, message in ((["a", 3], "expected a text"), (["\ud800"], "lone surrogates"), ([None], "expected a text")):
        with pytest.raises(treadle.TreadleError, match=message):
            vm["main"](np.array(wrong, object))
    with pytest.raises(treadle.TreadleError, match="x"):
        vm["main"](np.array([["a"]], object))
    with pytest.raises(treadle.TreadleError, match="x"):
        vm["main"](np.zeros(3, np.float32))


def test_metadata_that_do_not_agree_with_the_types_are_ignored() -> None:
    executable = compiled(LOWER).executable
    x = np.array(["AB c", "ä abc"], object)
    expected = np.asarray(treadle.VirtualMachine(executable)["main"](x))
    for said in ("main -", "main lower", "main lower1 -", "main", "other lower1", "main strange1", " \n\n main lower1"):
        program = dataclasses.replace(executable.program, metadata={**executable.program.metadata, NOTE: said})
        assert entry_of(program, 0) is None
        machine = treadle.VirtualMachine(Executable(program))
        np.testing.assert_array_equal(np.asarray(machine["main"](x)), expected)


@pytest.mark.parametrize("without", [[], ["text_entries"]])
def test_a_function_of_texts_is_no_graph_with_a_twin_or_without(without: list[str]) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(LOWER)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    with pytest.raises(
        ArgumentError, match=r"the host makes tensors in it whose sizes a run finds \(text_bytes\)"
    ) as caught:
        graph_of(compiled(model, without=without).executable)
    assert caught.value.node == "StringNormalizer lower"
    assert "The virtual machine runs any function" in str(caught.value)


def test_a_function_whose_texts_are_wanted_for_more_has_no_twin() -> None:
    model = vectorizer(POOL, TOKENIZERS[0])
    model.graph.node.append(helper.make_node("Identity", ["x"], ["same"]))
    model.graph.output.append(helper.make_tensor_value_info("same", TensorProto.STRING, ["n"]))
    executable = compiled(model).executable
    assert NOTE not in executable.program.metadata
    x = np.array(["a b", "ab"], object)
    assert compiled(model)["main"](x)[1].numpy().tolist() == x.tolist()
