"""Models' folders: what they say, and what is refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from treadle.formats.messages.errors import MissingFileError, ModelError
from treadle.text.folder import _labels, _template, _tokenizer, read
from treadle.tools.cli import main
from treadle.tools.dev.zoo.folders import TEMPLATE, put, with_head, write

tokenizers = pytest.importorskip("tokenizers")


def test_what_a_folder_of_sentence_transformers_says(tmp_path: Path) -> None:
    found = read(write(tmp_path / "m", pooling=("cls",)))
    text = found.text
    assert (text.task, text.output, text.pooling, text.normalize) == ("embed", "last_hidden_state", ("cls",), True)
    assert (text.max_tokens, text.template, found.outputs) == (64, TEMPLATE, ("last_hidden_state",))
    assert dict(text.tokens)["pad_token"] == "[PAD]"


def test_texts_are_lowered_where_the_folder_says_so(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    plain = tokenizers.Tokenizer.from_buffer(read(folder).text.tokenizer)
    put(folder, "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": True})
    lowered = tokenizers.Tokenizer.from_buffer(read(folder).text.tokenizer)
    assert lowered.encode("The ARRAY").ids == lowered.encode("the array").ids == plain.encode("the array").ids


def test_a_folder_of_onnx_community_has_no_modules(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "modules.json").unlink()
    assert (read(folder).text.pooling, read(folder).text.normalize) == (("mean",), False)


def test_a_folder_of_genai_names_its_model_and_stops(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "onnx" / "model.onnx").rename(folder / "decoder.onnx")
    put(folder, "genai_config.json", {"model": {"decoder": {"filename": "decoder.onnx"}, "eos_token_id": [2, 7]}})
    found = read(folder)
    assert (found.text.task, found.text.stops, found.outputs) == ("generate", (2, 7), None)
    assert found.model == folder / "decoder.onnx"


@pytest.mark.parametrize("name", ["../m.onnx", "/etc/passwd", "a\\b", 7, "a\0b"])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: object) -> None:
    folder = write(tmp_path / "m")
    put(folder, "genai_config.json", {"model": {"decoder": {"filename": name}}})
    with pytest.raises(ModelError, match="expected one of the folder's own"):
        read(folder)


BAD = [
    ("config.json", "[]", "config.json: expected an object, got list"),
    ("config.json", "{", "config.json is not JSON"),
    ("modules.json", '[{"type": "x.Dense"}]', "module 'Dense' is none of Transformer, Pooling, Normalize"),
    ("modules.json", "{}", "modules.json: expected a list of objects"),
    ("1_Pooling/config.json", "{}", r"pooling '\[\]': expected mean"),
    ("1_Pooling/config.json", '{"pooling_mode": "median"}', r"pooling \"\['median'\]\""),
    ("1_Pooling/config.json", json.dumps({"pooling_mode": "a" * 9999}), "pooling .{90,120}: expected"),
    ("modules.json", json.dumps([{"type": "a" * 9999}]), "module 'a{100}' is none of"),
    ("modules.json", json.dumps([{"type": "Pooling", "path": "a" * 300}]), r"pooling '\[\]'"),
    ("1_Pooling/config.json", '{"pooling_mode": "mean", "include_prompt": false}', "without the prompt"),
    ("onnx/model.onnx", "no model", "is not an ONNX model"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_what_a_file_says_wrongly_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    folder = write(tmp_path / "m")
    (folder / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        read(folder)


@pytest.mark.parametrize("label", ["²", "9" * 5000])
def test_labels_by_what_is_no_number_have_numbers_for_names(label: str) -> None:
    assert _labels({"id2label": {label: "a"}, "num_labels": 1}) == ("LABEL_0",)


def test_other_templates_are_passed_over(tmp_path: Path) -> None:
    named = [1, {"name": ["default"], "template": "a"}, {"name": "default", "template": "b"}]
    assert _template(tmp_path, {"chat_template": named}) == "b"


def test_what_is_no_text_is_left_to_the_tokenizers_library(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"normalizer": "\\ud800"}')
    data = _tokenizer(tmp_path, lowers=True)
    with pytest.raises(Exception, match=r"Cannot instantiate|unicode"):
        tokenizers.Tokenizer.from_buffer(data)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names")
def test_no_pipe_is_waited_for(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(ModelError, match="expected a file"):
        read(folder)
    (folder / "config.json").unlink()
    (folder / "onnx" / "model.onnx").unlink()
    for number, make in enumerate((os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path))):
        make(folder / "onnx" / "a.onnx")
        with pytest.raises(ModelError, match="expected a file"):
            read(folder)
        (folder / "onnx" / "a.onnx").rename(tmp_path / str(number))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(MissingFileError, match=r"has no tokenizer\.json"):
        read(folder)
    (folder / "onnx" / "model.onnx").rename(folder / "onnx" / "a.onnx")
    (folder / "onnx" / "b.onnx").touch()
    with pytest.raises(ModelError, match=r"several models \(onnx/a\.onnx, onnx/b\.onnx\)"):
        read(folder)


def test_activations_of_cross_encoders(tmp_path: Path) -> None:
    config = {"architecture": "XForSequenceClassification", "id2label": {"0": "L"}}
    plain = write(tmp_path / "a", with_head(1), **config)
    own = write(tmp_path / "b", with_head(1), **config, sentence_transformers={"activation_fn": "torch.nn.Identity"})
    assert [read(each).text.activation for each in (plain, own)] == ["sigmoid", "identity"]
    wrong = write(tmp_path / "c", with_head(1), **config, sbert_ce_default_activation_function="torch.nn.Tanh")
    with pytest.raises(ModelError, match="the activation 'tanh'"):
        read(wrong)


def test_the_command_line_compiles_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    import treadle

    folder, made = write(tmp_path / "minilm"), tmp_path / "m.trdl"
    assert main(["compile", str(folder), "-o", str(made)]) == 0
    encoder = treadle.text.load(made)
    assert encoder.encode("a b").shape == (32,)
    capsys.readouterr()
    assert main(["info", str(made)]) == 0
    assert "texts: embed, at most 64 tokens, pooling mean, normalised" in capsys.readouterr().out
    assert main(["compile", str(tmp_path)]) == 2
    assert "a file is expected, not a folder" in capsys.readouterr().err
