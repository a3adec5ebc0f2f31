"""Models' folders from seeds, as sentence-transformers and onnx-community write them: nothing is downloaded."""

from __future__ import annotations

import importlib
import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

from .bert import bert

MODULES = ("argparse", "ast", "asyncio.events", "collections", "dataclasses", "email.message", "logging", "textwrap")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}"

CHAT_TEMPLATE = """{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one: <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}
<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def sentences(modules: tuple[str, ...] = MODULES) -> list[str]:
    """Lines of docstrings that Python ships, each once."""
    found: dict[str, None] = {}
    for name in modules:
        module = importlib.import_module(name)
        for each in [module, *vars(module).values()]:
            found |= dict.fromkeys(line.strip() for line in (inspect.getdoc(each) or "").splitlines() if len(line) > 20)
    return list(found)


@cache
def tokenizer(vocabulary: int) -> str:
    """The JSON of a WordPiece tokenizer, trained on `sentences`, with BERT's special tokens."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=False)
    made.train_from_iterator(sentences(), trainer)
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made.to_str()


@cache
def byte_tokenizer(vocabulary: int) -> str:
    """The JSON of a tokenizer of bytes and pairs of them, trained on `sentences`, with marks of chats as Qwen has them."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 7, initial_alphabet=alphabet, special_tokens=[], show_progress=False
    )
    made.train_from_iterator(sentences(), trainer)
    made.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made.add_tokens([AddedToken(each) for each in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    return made.to_str()


def chat(folder: Path, *, seed: int = 0, vocabulary: int = 400, length: int = 512) -> Path:
    """A folder of a tiny decoder with a chat template that takes tools."""
    from .llama import llama

    folder.mkdir(parents=True)
    model = llama(1, 32, 2, 1, vocabulary=vocabulary, batch="batch", seed=seed)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "tokenizer.json").write_text(byte_tokenizer(vocabulary))
    put(folder, "tokenizer_config.json", {"chat_template": CHAT_TEMPLATE, "eos_token": "<|im_end|>"})
    put(folder, "config.json", {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": length})
    put(folder, "generation_config.json", {"eos_token_id": vocabulary - 5})
    return folder


def listening(folder: Path) -> Path:
    """A folder of a tiny encoder of sounds and its decoder, as onnxruntime-genai's builder writes Whisper's."""
    from .genai import listener

    folder.mkdir(parents=True)
    parts = dict(zip(("encoder", "decoder"), listener(), strict=True))
    for name, model in parts.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    (folder / "tokenizer.json").write_text(byte_tokenizer(400))
    put(folder, "genai_config.json", {"model": {name: {"filename": f"{name}.onnx"} for name in parts}})
    return folder


def write(
    folder: Path,
    model: Any = None,
    *,
    vocabulary: int = 300,
    pooling: tuple[str, ...] = ("mean",),
    normalize: bool = True,
    architecture: str = "BertModel",
    **config: Any,
) -> Path:
    """A folder, by default of a tiny BERT that takes any batch and length."""
    (folder / "onnx").mkdir(parents=True)
    if model is None:
        model = bert(1, 32, 2, vocabulary=vocabulary, batch="b", length="s")
    (folder / "onnx" / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "tokenizer.json").write_text(tokenizer(vocabulary))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    settings = {**names, "model_max_length": 64, "chat_template": TEMPLATE, "tokenizer_class": "BertTokenizer"}
    put(folder, "tokenizer_config.json", settings)
    put(folder, "config.json", {"architectures": [architecture], "max_position_embeddings": 512, **config})
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    put(folder, "modules.json", modules)
    (folder / "1_Pooling").mkdir()
    flags = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    flags |= {"mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens"}
    put(folder / "1_Pooling", "config.json", {f"pooling_mode_{flag}": name in pooling for name, flag in flags.items()})
    return folder


def put(folder: Path, name: str, value: Any) -> None:
    """Writes a file of JSON."""
    (folder / name).write_text(json.dumps(value))


def with_head(classes: int) -> Any:
    """A tiny BERT with a row of scores for each text, `logits`."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    model = bert(1, 32, 2, vocabulary=300, batch="b", length="s")
    weight = np.random.default_rng(1).normal(size=(32, classes)).astype(np.float32)
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(weight, "head"))
    graph.node.append(helper.make_node("MatMul", ["pooler_output", "head"], ["logits"]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", classes]))
    return model
