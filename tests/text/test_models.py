"""Texts to vectors, scores and classes, against onnxruntime with its texts padded and pooled by hand."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.formats.messages.errors import (
    ArgumentError,
    BudgetExceededError,
    CancelledError,
    FormatError,
    TreadleError,
)
from treadle.formats.text_model import POOLINGS, TextModel
from treadle.text.tokens import Tokenizer
from treadle.tools.dev.zoo.folders import put, sentences, tokenizer, with_head, write

pytest.importorskip("tokenizers")
TEXTS = sentences()[:40]


def reference(folder: Path, texts: list[Any], output: str = "last_hidden_state") -> tuple[np.ndarray, np.ndarray]:
    """The model's result for all texts at once, padded, and the mask."""
    import onnxruntime
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.enable_truncation(64)
    made.enable_padding()
    found = made.encode_batch(texts)
    mask = np.array([each.attention_mask for each in found])
    feeds = {"input_ids": np.array([each.ids for each in found]), "attention_mask": mask}
    feeds["token_type_ids"] = np.array([each.type_ids for each in found])
    session = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"))
    return session.run([output], feeds)[0], mask[:, :, None].astype(np.float32)


def pooled(vectors: np.ndarray, mask: np.ndarray, name: str) -> np.ndarray:
    """As sentence-transformers does it: with a mask."""
    count = mask.sum(1)
    weights = mask * np.arange(1, mask.shape[1] + 1)[None, :, None]
    return {
        "mean": lambda: (vectors * mask).sum(1) / count,
        "mean_sqrt_len_tokens": lambda: (vectors * mask).sum(1) / np.sqrt(count),
        "weightedmean": lambda: (vectors * weights).sum(1) / weights.sum(1),
        "cls": lambda: vectors[:, 0],
        "max": lambda: np.where(mask > 0, vectors, -np.inf).max(1),
        "lasttoken": lambda: vectors[np.arange(len(vectors)), count[:, 0].astype(int) - 1],
    }[name]()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("folders") / "minilm")


@pytest.fixture(scope="module")
def executable(folder: Path) -> Any:
    return treadle.compile(folder, progress=False)


@pytest.fixture(scope="module")
def encoder(executable: Any) -> Any:
    return treadle.text.load(executable)


def test_vectors_are_those_of_sentence_transformers(folder: Path, encoder: Any) -> None:
    vectors = pooled(*reference(folder, TEXTS), "mean")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    got = encoder.encode(TEXTS, batch_size=4)
    assert got.dtype == np.float32
    assert got.shape == (40, 32) == (40, encoder.width)
    np.testing.assert_allclose(got, vectors, atol=1e-5)


def test_a_text_has_the_same_bits_among_others_and_alone(encoder: Any) -> None:
    assert (np.stack([encoder.encode(text) for text in TEXTS]) == encoder.encode(TEXTS)).all()
    assert (encoder.encode(TEXTS[::-1], batch_size=3)[::-1] == encoder.encode(TEXTS)).all()


@pytest.mark.parametrize("name", POOLINGS)
def test_all_poolings(folder: Path, executable: Any, name: str) -> None:
    text = executable.text_model
    changed = TextModel(text.task, text.tokenizer, text.max_tokens, text.output, (name,))
    got = treadle.text.load(executable.with_text_model(changed)).encode(TEXTS)
    np.testing.assert_allclose(got, pooled(*reference(folder, TEXTS), name), rtol=1e-4, atol=1e-5)


def test_poolings_are_concatenated_in_the_order_of_sentence_transformers(tmp_path: Path) -> None:
    folder = write(tmp_path / "two", pooling=("mean", "cls"), normalize=False)
    encoder = treadle.text.load(folder, progress=False)
    vectors = reference(folder, TEXTS)
    expected = np.concatenate([pooled(*vectors, "cls"), pooled(*vectors, "mean")], 1)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    assert encoder.width == 64


def test_one_file_holds_all_of_it(tmp_path: Path, executable: Any, encoder: Any) -> None:
    executable.export_library(tmp_path / "m.trdl")
    assert treadle.load(tmp_path / "m.trdl").text_model == executable.text_model
    assert (treadle.text.load(tmp_path / "m.trdl").encode(TEXTS) == encoder.encode(TEXTS)).all()


def test_an_executable_without_a_tokenizer_keeps_its_bytes(executable: Any) -> None:
    bare = executable.with_text_model(None)
    assert b"text" not in bare.as_bytes()[:1024]
    assert treadle.load(bare.as_bytes()).text_model is None
    with pytest.raises(ArgumentError, match=r"no tokenizer; treadle\.compile puts that of a model's folder"):
        treadle.text.load(bare)


def test_models_of_one_length_and_batch_are_filled_up(tmp_path: Path) -> None:
    from treadle.tools.dev.zoo import bert

    folder = write(tmp_path / "fixed", bert(1, 32, 2, vocabulary=300, batch=2, length=64))
    symbolic = write(tmp_path / "any")
    expected = treadle.text.load(symbolic, progress=False).encode(TEXTS[:5])
    np.testing.assert_allclose(treadle.text.load(folder, progress=False).encode(TEXTS[:5]), expected, atol=1e-5)


def test_a_decoder_with_modules_gives_vectors(tmp_path: Path) -> None:
    """Its architecture is that of a decoder, and it takes caches, which are empty."""
    from treadle.tools.dev.zoo.llama import llama

    model = llama(1, 32, 2, 1, vocabulary=300, batch="b")
    for node in model.graph.node:
        node.output[:] = ["last_hidden_state" if name == "logits" else name for name in node.output]
    model.graph.output[0].name = "last_hidden_state"
    folder = write(tmp_path / "q", model, pooling=("lasttoken",), normalize=False, architecture="Qwen3ForCausalLM")
    encoder = treadle.text.load(folder, progress=False)
    ids = encoder.tokens(TEXTS[0])
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))
    empty = np.zeros((1, 1, 0, 16), np.float32)
    wanted = machine["main"](np.array([ids]), empty, empty)[0].numpy()[0, -1]
    np.testing.assert_allclose(encoder.encode(TEXTS[0]), wanted, atol=1e-5)


def test_lists_of_tokens_and_prompts(tmp_path: Path, executable: Any, encoder: Any) -> None:
    ids = encoder.tokens(TEXTS)
    assert (encoder.encode(ids) == encoder.encode(TEXTS)).all()
    assert (encoder.encode([TEXTS[0], ids[1]]) == encoder.encode(TEXTS[:2])).all()
    assert encoder.decode(ids[0])
    assert encoder.tokens(TEXTS[0]) == ids[0]
    folder = write(tmp_path / "prompts")
    put(folder, "config_sentence_transformers.json", {"prompts": {"query": "query: ", "passage": ""}})
    asked = treadle.text.load(folder, progress=False)
    assert (asked.encode("a b", prompt="query") == encoder.encode("query: a b")).all()
    with pytest.raises(ArgumentError, match="no prompt 'qery'; the model has query, passage; did you mean"):
        asked.encode("a", prompt="qery")
    assert encoder.encode([]).shape == (0, 32)


def test_a_reranker_scores_pairs(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "r", with_head(1), architecture="BertForSequenceClassification", id2label={"0": "LABEL_0"}
    )
    reranker = treadle.text.load(folder, progress=False)
    logits, _ = reference(folder, [("which one", text) for text in TEXTS], "logits")
    np.testing.assert_allclose(reranker.score("which one", TEXTS), 1 / (1 + np.exp(-logits[:, 0])), atol=1e-5)


def test_a_classifier_gives_probabilities(tmp_path: Path) -> None:
    labels = {"0": "bad", "1": "good", "2": "neither"}
    folder = write(tmp_path / "c", with_head(3), architecture="BertForSequenceClassification", id2label=labels)
    classifier = treadle.text.load(folder, progress=False)
    logits, _ = reference(folder, TEXTS, "logits")
    powers = np.exp(logits)
    np.testing.assert_allclose(classifier.classify(TEXTS), powers / powers.sum(1, keepdims=True), atol=1e-5)
    assert classifier.labels == ("bad", "good", "neither")
    assert classifier.classify("x").shape == (3,)


def test_a_generator_has_tokens_and_chats(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    folder = write(tmp_path / "g", architecture="QwenForCausalLM")
    put(folder, "generation_config.json", {"eos_token_id": 3})
    generator = treadle.text.load(folder, progress=False, embed_native=False)
    assert generator.text.stops == (3,)
    assert generator.chat([{"role": "user", "content": " a b "}]) == "<user>a b</user>"
    assert generator.decode(generator.tokens("a b")) == "a b"
    with pytest.raises(ArgumentError, match="the chat template: its variables are not JSON"):
        generator.chat([{"role": object()}])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (3, "expected a text or a list of texts, got"),
        (["a", None], "text 1: expected a text or a list of token numbers, got None"),
        ([[1, 300]], r"text 0: token 300 is none of the tokenizer's, 0 … 299"),
        ([[1, -1]], "text 0: token -1 is none"),
        ([[1, True]], "text 0: expected a text"),
        ([[1] * 65], "text 0: 65 tokens; the model takes at most 64"),
        (["a", []], "text 1 has no tokens"),
        (["a\ud800"], "the tokenizer: "),
    ],
)
def test_what_is_no_text_is_named(encoder: Any, texts: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        encoder.encode(texts)


def test_work_has_bounds_and_can_be_cancelled(encoder: Any, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(BudgetExceededError):
        encoder.encode(TEXTS, max_seconds=0.0)
    token = treadle.CancelToken()
    token.cancel()
    with pytest.raises(CancelledError):
        encoder.encode(TEXTS, cancel=token)
    encoder.encode(TEXTS, progress=True)
    assert "40/40" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(3))
def test_damaged_sections_and_tokenizers_are_refused_by_name(executable: Any, seed: int) -> None:
    """The section may be anything, with a checksum that is right: what loads, encodes or is refused by Treadle's own errors."""
    from treadle.formats import schema

    rng = np.random.default_rng(seed)
    codec = schema.BY_NAME["text"].codec
    data = bytearray(codec.encode([executable.text_model], "text"))
    for _ in range(60):
        mutated = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            place = rng.integers(len(mutated)) if rng.integers(2) else rng.integers(40)
            mutated[place] = rng.integers(256)
        try:
            for text in codec.decode(bytes(mutated), "text"):
                treadle.text.load(executable.with_text_model(text)).encode(TEXTS[:2])
        except TreadleError:
            pass


def test_a_tokenizer_that_is_none_is_named(executable: Any) -> None:
    text = executable.text_model
    with pytest.raises(FormatError, match="the tokenizer of the executable cannot be read"):
        treadle.text.load(executable.with_text_model(TextModel(text.task, b"{}", 64, text.output)))
    assert tokenizer(300).encode() == text.tokenizer


def _tokenizer(model: Any = None, **parts: Any) -> Tokenizer:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(model or tokenizers.models.BPE({"a": 0, "b": 1}, []))
    for name, part in parts.items():
        setattr(made, name, part)
    return Tokenizer(TextModel("generate", made.to_str().encode(), 0))


def test_a_tokenizer_that_takes_too_much_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty steps would make 2⁴⁰ bytes of "c", and a word of any length is looked up from each of its characters."""
    tokenizers = pytest.importorskip("tokenizers")
    replace, sequence = tokenizers.normalizers.Replace, tokenizers.normalizers.Sequence
    doubling = _tokenizer(normalizer=sequence([replace("c", "cc")] * 40))
    wordpiece = tokenizers.models.WordPiece({"a": 0, "b": 1}, unk_token="b", max_input_chars_per_word=1 << 30)
    monkeypatch.setattr("treadle.text.tokens._PACE", 1 << 30)
    for hostile, text in ((doubling, "c"), (_tokenizer(wordpiece), "ax" * 200_000)):
        monkeypatch.setattr("treadle.text.tokens.SECONDS", 1.0)
        with pytest.raises(BudgetExceededError, match=r"the tokenizer took more than 1 s, .* MiB"):
            list(hostile.tokens([text]))
        monkeypatch.setattr("treadle.text.tokens.SECONDS", 30.0)
        assert [each.ids.tolist() for each in hostile.tokens(["a", "b"])] == [[0], [1]]


def test_expressions_that_backtrack_end() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex("(a|aa)+$"), "isolated")
    with pytest.raises(ArgumentError, match=r"the tokenizer: .*retry-limit"):
        list(_tokenizer(pre_tokenizer=split).tokens([("a" * 40 + "b") * 200]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_of_fork_has_a_tokenizer_of_its_own() -> None:
    ours = _tokenizer()
    if not (child := os.fork()):
        os._exit(next(ours.tokens(["ab"])).ids.tolist() != [0, 1])
    assert [each.ids.tolist() for each in ours.tokens(["a", "b"])] == [[0], [1]]
    assert os.waitpid(child, 0)[1] == 0
    assert next(ours.tokens(["b"])).ids.tolist() == [1]


@pytest.mark.thorough
def test_files_of_an_enemy_are_refused_by_name() -> None:
    """`python -m treadle.tools.dev.fuzz.texts` tries more of them."""
    from treadle.tools.dev.fuzz.texts import try_file

    found = {try_file(Random(f"1 {number}")) for number in range(60)}
    assert all(each.endswith((": taken", ": refused")) for each in found), found
