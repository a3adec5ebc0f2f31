"""A model's folder, as sentence-transformers, onnx-community and onnxruntime-genai's builder write them.

`treadle.compile(folder)` reads it here: which file is the model, which of its results counts, and what stands between texts and
tensors (`formats/text_model.py`). Files are looked for in the folder alone, whatever names others of its files give.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..formats import limits
from ..formats.container import check_is_file, foreign_bytes
from ..formats.messages.errors import FileError, MissingFileError, ModelError
from ..formats.text_model import ACTIVATIONS, CLASSIFY, EMBED, GENERATE, MAX_TOKENS, POOLINGS, SCORE, TextModel

TOKENIZER = "tokenizer.json"
_JSON_BYTES = 1 << 24  # of a configuration; the one of a tokenizer lists its special tokens
_MODELS = ("onnx/model.onnx", "model.onnx", "onnx/decoder_model_merged.onnx")
_VECTORS = ("last_hidden_state", "token_embeddings")  # results of a vector for each token
_SENTENCES = ("sentence_embedding", "pooler_output")  # of one for each text
_LENGTHS = ("max_seq_length", "model_max_length", "max_position_embeddings", "n_positions", "context_length")
# sentence-transformers' names in the order in which it concatenates
_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


@dataclass(frozen=True)
class Folder:
    """What `compile` needs of a folder. `outputs` are the model's results that count; None for all. `encoder` is the model that
    a decoder takes the results of."""

    model: Path
    text: TextModel
    outputs: tuple[str, ...] | None
    encoder: Path | None = None


def read(path: str | os.PathLike) -> Folder:
    """Raises MissingFileError, FileError, ModelError."""
    folder = Path(path)
    config, settings = _json(folder, "config.json"), _json(folder, "tokenizer_config.json")
    genai, generation = _json(folder, "genai_config.json"), _json(folder, "generation_config.json")
    decoder = _object(_object(genai, "model"), "decoder")
    model = _model(folder, decoder.get("filename"))
    check_is_file(model, ModelError)
    task = _task(config, genai)
    if task == GENERATE and not genai and (folder / "modules.json").exists():  # a decoder's vectors (Qwen3-Embedding)
        task = EMBED
    results = () if task == GENERATE else _results(model)
    output, normalize = "logits", False
    pooling: tuple[str, ...] = ()
    if task == EMBED:
        pooling, normalize = _modules(folder)
        output, pooling = _vectors(folder, results, pooling)
    elif task != GENERATE and output not in results:
        if len(results) != 1:
            raise ModelError(f"{model}: expected a result 'logits', got {', '.join(results)}")
        (output,) = results
    sentences = _json(folder, "sentence_bert_config.json")
    text = TextModel(
        task,
        _tokenizer(folder, sentences.get("do_lower_case") is True),
        _max_tokens([sentences, settings, config, _object(genai, "model")]),
        output,
        pooling,
        normalize,
        _activation(config, task),
        _labels(config) if task == CLASSIFY else (),
        _texts(_object(_json(folder, "config_sentence_transformers.json"), "prompts")),
        _template(folder, settings),
        _special(settings),
        _stops(generation.get("eos_token_id") or _object(genai, "model").get("eos_token_id")),
    )
    if task != GENERATE:
        return Folder(model, text, (output,))
    named = _object(_object(genai, "model"), "encoder").get("filename")
    encoder = model.with_name("encoder_model.onnx") if named is None else _inside(folder, named)
    check_is_file(encoder, ModelError)
    return Folder(model, text, None, encoder if named is not None or encoder.is_file() else None)


# ---- files ----


def _bytes(path: Path, most: int) -> bytes:
    return foreign_bytes(path, most, ModelError, "a model's folder has tokenizer.json, config.json and model.onnx")


def _tokenizer(folder: Path, lowers: bool) -> bytes:
    """The tokenizer, which lowers texts first if the folder says so beside it, as sentence-transformers does."""
    data = _bytes(folder / TOKENIZER, limits.TOKENIZER_BYTES)
    if not lowers:
        return data
    told = _parsed(folder / TOKENIZER, data)
    if not isinstance(told, dict):
        raise ModelError(f"{folder / TOKENIZER}: expected an object, got {type(told).__name__}")
    own = [told["normalizer"]] if told.get("normalizer") else []
    told["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *own]}
    return json.dumps(told, ensure_ascii=False).encode(errors="surrogatepass")  # which the tokenizer's library refuses


def _json(folder: Path, name: str) -> Mapping[str, Any]:
    """The object in a file; an empty one where there is none."""
    value = _value(folder, name)
    if not isinstance(value, Mapping):
        raise ModelError(f"{folder / name}: expected an object, got {type(value).__name__}")
    return value


def _value(folder: Path, name: str) -> Any:
    path = folder / name
    if not os.path.exists(path):  # unlike `Path.exists` for any name
        return {}
    return _parsed(path, _bytes(path, _JSON_BYTES))


def _parsed(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None


def _object(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _inside(folder: Path, name: Any) -> Path:
    """A file that another file names."""
    parts = PurePosixPath(name).parts if isinstance(name, str) and "\\" not in name and "\0" not in name else ("..",)
    if ".." in parts or (parts and os.path.isabs(parts[0])):
        raise ModelError(f"{folder} names a file {_told(name)}: expected one of the folder's own")
    return folder.joinpath(*parts)


def _model(folder: Path, named: Any) -> Path:
    if named is not None:
        return _inside(folder, named)
    for name in _MODELS:
        if (folder / name).is_file():
            return folder / name
    found = sorted(folder.glob("*.onnx")) or sorted(folder.glob("onnx/*.onnx"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise MissingFileError(
            f"{folder} has no model: expected {' or '.join(_MODELS[:2])}; export the model to ONNX first"
        )
    names = ", ".join(path.relative_to(folder).as_posix() for path in found[:8])
    raise ModelError(
        f"{folder} has several models ({names}) and none of the name model.onnx: rename the one that is meant"
    )


def _results(model: Path) -> tuple[str, ...]:
    try:
        import onnx

        return tuple(each.name for each in onnx.load(str(model), load_external_data=False).graph.output)
    except ModuleNotFoundError:
        raise ModelError("ONNX models are read by the package onnx: pip install 'treadle[onnx]'") from None
    except OSError as error:
        raise FileError.of(error, f"cannot read {model}") from None
    except Exception as error:  # whatever protobuf raises
        raise ModelError(f"{model} is not an ONNX model: {error}") from None


# ---- what they say ----


def _task(config: Mapping[str, Any], genai: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    if genai or name.endswith(("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")):
        return GENERATE
    if name.endswith("ForSequenceClassification"):
        return SCORE if len(_labels(config)) == 1 else CLASSIFY
    return EMBED


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    found = config.get("id2label")
    if isinstance(found, Mapping) and found and all(key.isdecimal() and len(key) < 10 for key in found):
        return tuple(str(found[key]) for key in sorted(found, key=int))
    count = config.get("num_labels", 2)
    return tuple(f"LABEL_{number}" for number in range(count if type(count) is int and 0 < count < 10_000 else 2))


def _activation(config: Mapping[str, Any], task: str) -> str:
    if task not in (SCORE, CLASSIFY):
        return ACTIVATIONS[0]
    own = _object(config, "sentence_transformers").get("activation_fn")
    said = str(own or config.get("sbert_ce_default_activation_function") or "").rpartition(".")[2].lower()
    if said in ACTIVATIONS:
        return said
    if said:
        raise ModelError(f"config.json: the activation {_told(said)} is not one of {', '.join(ACTIVATIONS)}")
    is_several = config.get("problem_type") == "multi_label_classification"
    return "sigmoid" if task == SCORE or is_several else "softmax"


def _modules(folder: Path) -> tuple[tuple[str, ...], bool]:
    """How vectors of tokens are pooled, and whether the result is normalised: without modules.json the mean, as it is."""
    if not (folder / "modules.json").exists():
        return ("mean",), False
    modules = _value(folder, "modules.json")
    if not isinstance(modules, list) or not all(isinstance(each, Mapping) for each in modules):
        raise ModelError(f"{folder / 'modules.json'}: expected a list of objects")
    pooling: tuple[str, ...] = ()
    normalize = False
    for each in modules:
        kind = str(each.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(_json(_inside(folder, each.get("path", "")), "config.json"), folder)
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise ModelError(
                f"{folder / 'modules.json'}: module {_told(kind)} is none of Transformer, Pooling, Normalize"
            )
    return pooling, normalize


def _pooling(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    said = config.get("pooling_mode")
    names = (
        said if isinstance(said, list) else [said] if said else [n for n, flag in _FLAGS.items() if config.get(flag)]
    )
    if not names or not all(name in POOLINGS for name in names):
        raise ModelError(f"{folder}: pooling {_told(names)}: expected {', '.join(POOLINGS)}")
    if config.get("include_prompt") is False:
        raise ModelError(f"{folder}: pooling without the prompt (include_prompt) is not there")
    return tuple(name for name in _FLAGS if name in names)


def _vectors(folder: Path, results: tuple[str, ...], pooling: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    if pooling and (of_tokens := next((name for name in _VECTORS if name in results), None)):
        return of_tokens, pooling
    if of_texts := next((name for name in _SENTENCES if name in results), None):
        return of_texts, ()
    if len(results) == 1:
        return results[0], pooling
    raise ModelError(
        f"{folder}: the model gives {', '.join(results)}; expected one of {', '.join(_VECTORS + _SENTENCES)}"
    )


def _max_tokens(configs: Iterable[Mapping[str, Any]]) -> int:
    """The least that one of them says. Tokenizers without a bound say 10^30."""
    said = [each.get(name) for each in configs for name in _LENGTHS]
    return min((int(each) for each in said if isinstance(each, (int, float)) and 0 < each <= MAX_TOKENS), default=0)


def _told(value: Any) -> str:
    """What a file says, for a message."""
    return repr(str(value)[:100])


def _texts(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in values.items() if isinstance(text, str))


def _special(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found = {name: each for name, each in settings.items() if name.endswith("_token")}
    return _texts({name: each.get("content") if isinstance(each, Mapping) else each for name, each in found.items()})


def _template(folder: Path, settings: Mapping[str, Any]) -> str:
    path = folder / "chat_template.jinja"
    if path.exists():
        return _bytes(path, limits.CHAT_TEMPLATE_BYTES).decode("utf-8", "replace")
    found = settings.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = (each for each in found if isinstance(each, Mapping) and each.get("name") == "default")
        found = next(named, {}).get("template")
    return found if isinstance(found, str) else ""


def _stops(found: Any) -> tuple[int, ...]:
    values = found if isinstance(found, list) else [found]
    return tuple(each for each in values if type(each) is int and 0 <= each < 1 << 32)
