"""Tokenizers, chat templates, grammars and adapters of an enemy: what is not taken is refused by Treadle's own errors, in time.

python -m treadle.tools.dev.fuzz.texts --count 10000 --seed 1
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ....decode.adapters import Adapter
from ....formats.messages.errors import TreadleError
from ....formats.parameter_files import save_params
from ....formats.text_model import TextModel
from ....text import grammar
from ....text.tokens import Tokenizer
from ..zoo.folders import byte_tokenizer
from . import runs
from .targets import renderer

_SIZE, _END = 290, 285  # tokens of the tokenizer, and the one that ends a text
SECONDS = 20.0  # that a trial may take, a process ended within it included
_TEXTS = (
    "a b c",
    "x" * 500,
    " " * 300,
    "ﷺ é 你好\n\t",
    "",
    "<|im_end|>",
    '{"a": [1, 2]}',
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
)

# ---- tokenizers ----


def _steps(random: Random, kind: str, depth: int = 0) -> Any:
    """A part of a tokenizer."""
    if random.random() < 0.3 and depth < 4:
        return {
            "type": "Sequence",
            kind: [_steps(random, kind, depth + 1) for _ in range(random.choice((0, 1, 3, 2 if depth else 70)))],
        }
    pattern = random.choice(({"String": random.choice(("a", "", " ", "ab"))}, {"Regex": _expression(random)}))
    return random.choice(
        (
            {"type": "Replace", "pattern": pattern, "content": random.choice(("", "aa", "▁", "b" * 5000))},
            {
                "type": random.choice(
                    ("NFKD", "NFC", "Lowercase", "ByteLevel", "Nmt", "Fuse", "ByteFallback", "BertPreTokenizer")
                )
            },
            {"type": "ByteLevel", "add_prefix_space": random.random() < 0.5, "trim_offsets": True, "use_regex": True},
            {"type": "Prepend", "prepend": "a" * random.choice((0, 1, 999))},
            {"type": "Strip", "strip_left": True, "strip_right": True, "content": "a", "start": 1 << 40, "stop": -1},
            {"type": "Metaspace", "replacement": random.choice("▁a"), "prepend_scheme": "always", "split": True},
            {"type": "Split", "pattern": pattern, "behavior": random.choice(("Isolated", "Removed")), "invert": False},
            {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
            {
                "type": "Precompiled",
                "precompiled_charsmap": random.choice(("AAAA", "BAAAAAAAAABhAA==", "", "/////w==")),
            },
            {"type": "CTC", "pad_token": "a", "word_delimiter_token": "", "cleanup": True},
            {"type": "BPEDecoder", "suffix": random.choice(("", "a"))},
            {"type": "WordPiece", "prefix": "", "cleanup": True},
        )
    )


def _of_tokenizer(random: Random) -> None:
    told = json.loads(byte_tokenizer(_SIZE))
    for part, kind in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"), ("decoder", "decoders")):
        if random.random() < 0.5:
            told[part] = _steps(random, kind)
    if random.random() < 0.3:
        ids = random.choice(([1], [1] * 5000, [], [1 << 31]))
        entries = [
            random.choice(({"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}))
        ] * 9
        special = {"x": {"id": "x", "ids": ids, "tokens": ["x"] * len(ids)}}
        told["post_processor"] = {
            "type": "TemplateProcessing",
            "single": entries,
            "pair": entries,
            "special_tokens": special,
        }
    model = told["model"]
    for _ in range(random.choice((0, 0, 1, 3))):
        key = random.choice((*model, "type", "max_input_chars_per_word", "unk_id"))
        model[key] = random.choice(
            (None, -1, 0, 1.5, "", "WordPiece", "Unigram", [], {}, {"a": 1 << 32}, {"": 0}, [["a", "b"]])
        )
    text = json.dumps(told)
    if random.random() < 0.3:
        at = random.randrange(len(text))
        text = text[:at] + random.choice(("", "9" * 400, "[" * 200, "\\ud800", "\x00")) + text[at + 1 :]
    made = Tokenizer(
        TextModel("generate", text.encode("utf-8", "surrogatepass"), 0, stops=(_END, random.choice((1, 1 << 30))))
    )
    for found in made.tokens([*_TEXTS, ("a", "b")]):
        made.decode(found.ids[:50].tolist())
    made.pieces()
    grammar.regex(made, "a+").allowed()


# ---- templates ----


def _of_template(random: Random) -> None:
    def value(depth: int = 0) -> str:
        leaves = (
            "messages",
            "m",
            "1",
            "'a'",
            "''",
            "9999999",
            "range(9999)",
            "namespace(a=1)",
            "self",
            "cycler",
            "[]",
            "{}",
            "x",
        )
        if depth > 3 or random.random() < 0.3:
            return random.choice(leaves)
        a, b = value(depth + 1), value(depth + 1)
        names = (
            "__class__",
            "__init__",
            "__globals__",
            "__mro__",
            "format",
            "append",
            "content",
            "mro()",
            "gi_frame",
            "a",
        )
        filters = (
            "list",
            "join",
            "tojson",
            "map('upper')",
            "attr('__class__')",
            "pprint",
            "string",
            "sort",
            "format",
            "indent(9999)",
        )
        forms = (
            f"({a} + {b})",
            f"({a} * {b})",
            f"({a} ** {b})",
            f"{a}.{random.choice(names)}",
            f"{a}[{b}]",
            f"{a}({b})",
        )
        return random.choice((*forms, f"({a} | {random.choice(filters)})", f"({a} ~ {b})", f"({a} if {b} else {a})"))

    def part(depth: int = 0) -> str:
        inner = part(depth + 1) if depth < 3 else "x"
        forms = (
            "{{ V }}",
            "{% for m in V %}I{% endfor %}",
            "{% set x = V %}I",
            "{% macro f(x) %}I{{ f(x) }}{% endmacro %}{{ f(V) }}",
            "{% include V %}",
            "{% block a %}I{% endblock %}",
            "{% if",
        )
        made = random.choice(forms).replace("I", inner).replace("V", value())
        return made + (part(depth + 1) if random.random() < 0.4 else "")

    text = renderer().render(part(), {"messages": [{"role": "user", "content": "a"}]})
    if any(each in text for each in ("<class 'os", "root:x:", "<module 'os")):
        raise AssertionError(text[:200])


# ---- grammars ----


@cache
def _plain() -> Tokenizer:
    return Tokenizer(TextModel("generate", byte_tokenizer(_SIZE).encode(), 0, stops=(_END,)))


def _expression(random: Random, depth: int = 0) -> str:
    if depth > 4 or random.random() < 0.25:
        return random.choice(
            ("a", ".", "[a-z]", r"\w", r"\p{L}", "b", "[^a]", "", "é", r"\b", "^", "$", "(?i)", r"\1", "(?=a)")
        )
    a, b = _expression(random, depth + 1), _expression(random, depth + 1)
    most = random.choice((1, 9, 300, 100_000, 1 << 33))
    return random.choice(
        (a + b, f"({a}|{b})", f"({a})*", f"({a})+", f"({a}){{0,{most}}}", f"({a}){{{most}}}", f"({a})?{b}")
    )


def _schema(random: Random, depth: int = 0) -> Any:
    if depth > 4 or random.random() < 0.2:
        limits = {
            "minimum": random.choice((0, -1e300, 5, 1 << 70)),
            "multipleOf": random.choice((1, 7, 1_000_003, 0, 1e-9)),
        }
        return random.choice(
            (
                True,
                {},
                {
                    "type": random.choice(("string", "integer", "number", "null", "nothing")),
                    **random.choice((limits, {})),
                },
                {"type": "string", "pattern": _expression(random)},
                {"$ref": random.choice(("#", "#/$defs/a", "file:///etc/passwd"))},
                {"enum": random.choice(([], [1, "a"], ["b" * 9000] * 9))},
                {"type": "string", "minLength": random.choice((0, 1 << 20))},
            )
        )
    inner = [_schema(random, depth + 1) for _ in range(random.choice((0, 1, 2, 9)))]
    names = {f"p{number}": each for number, each in enumerate(inner)}
    count = random.choice((0, 3, 100_000))
    return random.choice(
        (
            {"type": "object", "properties": names, "required": list(names)[:count]},
            {"anyOf": inner},
            {"allOf": inner},
            {"oneOf": inner},
            {"type": "array", "items": inner[:1] and inner[0], "minItems": count},
            {"$defs": {"a": inner[:1] and inner[0]}, "$ref": "#/$defs/a"},
            {"type": "object", "patternProperties": {_expression(random): {}}, "minProperties": count},
            {"not": inner[:1] and inner[0]},
        )
    )


def _lark(random: Random) -> str:
    names = [random.choice(("a{}", "A{}")).format(number) for number in range(random.choice((1, 3, 30, 3000)))]

    def body() -> str:
        atoms = (
            *random.sample(names, min(3, len(names))),
            '"x"',
            "/[a-z]/",
            f"/{_expression(random)}/",
            "<|im_end|>",
            "<[1-9]>",
            "%json {}",
        )
        return random.choice((" ", " | ", " & ")).join(
            random.choice(atoms) + random.choice(("", "*", "?", "{0,999}")) for _ in range(3)
        )

    return "\n".join([f"start: {body()}", *(f"{name}: {body()}" for name in names)])


def _of_grammar(random: Random) -> None:
    kind = random.randrange(3)
    if kind == 0:
        mask = grammar.regex(_plain(), _expression(random))
    elif kind == 1:
        mask = grammar.json_schema(_plain(), _schema(random))
    else:
        mask = grammar.lark(_plain(), _lark(random))
    for _ in range(random.choice((3, 30))):
        allowed = np.flatnonzero(mask.allowed())
        if not len(allowed):
            raise AssertionError("no token is allowed")
        mask.take(random.choice(allowed.tolist()))


# ---- adapters ----


def _of_adapter(random: Random) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = random.choice((0, 1, 8))
        arrays = {
            f"base_model.model.l.0.q.lora_{letter}.weight": np.ones((size, 4), "f")
            for letter in random.choice(("AB", "A", "AA"))
        }
        save_params(arrays, folder / "adapter_model.safetensors")
        values: tuple[Any, ...] = (None, True, 8, -1, 1e308, "x", {}, [], {"q": 1}, float("nan"))
        config = {
            key: random.choice(values)
            for key in ("lora_alpha", "use_rslora", "alpha_pattern", "bias")
            if random.random() < 0.4
        }
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **config}))
        for file in folder.iterdir():
            data = bytearray(file.read_bytes())
            for _ in range(random.choice((0, 0, 1, 3))):
                data[random.randrange(min(len(data), 400))] = random.randrange(256)
            file.write_bytes(data)
        Adapter.load(folder)


def _trial(options: Namespace) -> Callable[[int], str]:
    return lambda number: try_file(Random(f"{options.seed} {number}"))


_KINDS = {"tokenizer": _of_tokenizer, "template": _of_template, "grammar": _of_grammar, "adapter": _of_adapter}


def try_file(random: Random) -> str:
    """What comes of one."""
    kind = random.choice(list(_KINDS))
    start = time.monotonic()
    try:
        _KINDS[kind](random)
        found = f"{kind}: taken"
    except TreadleError:
        found = f"{kind}: refused"
    except Exception as error:
        return f"bug: {kind}: {type(error).__name__}: {error}"
    seconds = time.monotonic() - start
    return found if seconds < SECONDS else f"finding: {kind} took {seconds:.1f} s"


if __name__ == "__main__":
    sys.exit(runs.main(runs.Fuzzer(__spec__.name, "file", __doc__, _trial, count=10_000, seconds=60.0)))
