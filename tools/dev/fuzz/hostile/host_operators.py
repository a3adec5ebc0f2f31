"""Attacks by host operators: models and programs that ask Python for time and memory, and fill its caches."""

from __future__ import annotations

import contextlib
import gc
import io
import json
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ..... import TreadleError, VirtualMachine
from .....compiler.ir.text import parse_module
from .....formats import strings
from .....formats.messages.errors import BudgetExceededError, OutOfMemoryError
from .variants import MB, Variant, dropped, machine_of, texts_of, want

_DELIMITERS = (",", "", "a", "aa", "x" * 1000)
_PATTERNS = ("[ab]*a([ab]{250}){4}", "a*b", "(a|a)*b", "[a,]*", ".*x", "(a{1,100}){1,9}$", "a", "\\b", "(?i)[^b]+")


def _lines(random: Random) -> np.ndarray:
    """Texts: few and long, or many and short."""
    count = random.choice((1, 2, 64, 65, 3000, 100_000))
    size = random.choice((0, 1, 10, 6000, 300_000, 4_000_000))
    size = min(size, 8_000_000 // count)
    text = random.choice(("a", "a,", "é", " a b", "1", "ß", "😀")) * size
    return texts_of(*[text[: 2 * size] + str(number) if random.random() < 0.5 else text for number in range(count)])


def _host_program(random: Random) -> tuple[str, tuple[np.ndarray, ...]]:
    x = _lines(random)
    quote = json.dumps
    one = {
        "split_texts": lambda: f"split_texts(x) {{delimiter={quote(random.choice(_DELIMITERS))}}}",
        "normalize": lambda: f'normalize_texts(x, c) {{case="{random.choice(("upper", "lower"))}"}}',
        "match": lambda: f"match_texts(x) {{expression={quote(random.choice(_PATTERNS))}}}",
        "tokenize": lambda: f"tokenize_texts(x, c) {{between={random.choice(('true', 'false'))}}}",
        "hash": lambda: "hash_texts(x)",
        "read": lambda: "read_numbers(x) {dtype=float32}",
        "bytes": lambda: "text_bytes(x)",
        "concat": lambda: "concat_texts(x, x)",
        "print": lambda: "print_numbers(n)",
    }
    kind = random.choice(list(one))
    value = one[kind]()
    if kind == "print":
        count = random.choice((10, 100_000, 2_000_000))
        return f"func @main(n: float64[m]) {{\n  s = {value}\n  s\n}}", (np.arange(count) + 0.5,)
    if kind == "read":
        x = texts_of(
            *[str(random.choice((number, number / 7, "9" * min(len(text), 300)))) for number, text in enumerate(x)]
        )
    others = texts_of(*[random.choice((*_PATTERNS[1:4], ",", "a")) for _ in range(random.choice((1, 2)))])
    return f"func @main(x: string[m], c: string[k]) {{\n  s = {value}\n  s\n}}", (x, others)


def _host_model(random: Random) -> tuple[Any, tuple[np.ndarray, ...]]:
    """Operators of ONNX that the host evaluates."""
    draws = np.random.default_rng(random.randrange(1 << 30))
    count = random.choice((1, 70, 5000, 300_000, 2_000_000))
    words = [f"{random.choice(('a', 'word', 'é' * 20))}{number}" for number in range(min(count, 100_000))]
    numbers = draws.integers(0, random.choice((2, 10**6, 10**12)), count)
    boxes = draws.random((1, min(count, 20_000), 4), np.float32)
    scores = draws.random((1, random.choice((1, 3)), boxes.shape[1]), np.float32)
    side = random.choice((2, 65, 600, 1500))
    text, number, real = onnx.TensorProto.STRING, onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    ml = "ai.onnx.ml"
    keys: dict[str, Any] = {"keys_strings": words, "values_int64s": list(range(len(words))), "domain": ml}
    grams: dict[str, Any] = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1}
    grams |= {"ngram_counts": [0], "ngram_indexes": list(range(len(words))), "pool_strings": words}
    cases: list[tuple[str, list[tuple[int, Any, np.ndarray]], dict[str, Any]]] = [
        ("NonZero", [(number, ["n"], numbers)], {}),
        ("Unique", [(number, ["n"], numbers)], {}),
        ("LabelEncoder", [(text, ["n"], texts_of(*words))], keys),
        (
            "LabelEncoder",
            [(number, ["n"], numbers)],
            {"keys_int64s": [1, 2], "values_strings": ["a", "b"], "domain": ml},
        ),
        ("NonMaxSuppression", [(real, [1, "n", 4], boxes), (real, [1, "c", "n"], scores)], {}),
        ("TfIdfVectorizer", [(text, ["n"], texts_of(*words))], grams),
        ("OneHotEncoder", [(text, ["n"], texts_of(*words[:2000]))], {"cats_strings": words[:500], "domain": ml}),
        ("Cast", [(number, ["n"], numbers)], {"to": text}),
        (
            "StringNormalizer",
            [(text, ["n"], texts_of(*words))],
            {"stopwords": words[::2], "case_change_action": "UPPER"},
        ),
        ("Det", [(real, ["n", "n"], draws.random((side, side), np.float32))], {}),
        ("ImageDecoder", [(onnx.TensorProto.UINT8, ["n"], _image(random))], {}),
    ]
    operator, inputs, attributes = random.choice(cases)
    infos = [helper.make_tensor_value_info(f"x{place}", *each[:2]) for place, each in enumerate(inputs)]
    node = helper.make_node(operator, [info.name for info in infos], ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ml, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), tuple(each[2] for each in inputs)


def _image(random: Random) -> np.ndarray:
    """A file of a few kilobytes that stands for up to a hundred million pixels."""
    from PIL import Image

    file = io.BytesIO()
    size = random.choice(((10, 10), (2000, 3000), (9000, 11_000)))
    form = random.choice(("PNG", "TIFF", "WEBP" if max(size) < 16_000 else "PNG", "BMP" if size[0] < 2001 else "PNG"))
    with contextlib.suppress(ValueError, OSError):
        options = {"compression": "tiff_adobe_deflate"} if form == "TIFF" else {}
        Image.new(random.choice(("L", "RGB", "1" if form != "WEBP" else "RGB")), size).save(file, form, **options)
    return np.frombuffer(file.getvalue(), np.uint8)


def _host_work(random: Random) -> tuple[VirtualMachine, tuple[np.ndarray, ...]]:
    if random.random() < 0.5:
        program, arguments = _host_program(random)
        return machine_of(parse_module(program)), arguments
    model, arguments = _host_model(random)
    return machine_of(model), arguments


def host_time(random: Random) -> Variant:
    """Work of the host within 0.2 s, while another thread has its turns."""
    machine, arguments = _host_work(random)
    return Variant(dropped(lambda: machine.call("main", arguments, max_seconds=0.2)), seconds=1.5, memory=1500 * MB)


def host_memory(random: Random) -> Variant:
    """Work of the host within that memory."""
    most = random.choice((16, 64)) * MB
    machine, arguments = _host_work(random)
    with contextlib.suppress(TreadleError):  # what is made once
        machine.call("main", arguments, max_seconds=0.001)
    call = dropped(lambda: machine.call("main", arguments, max_memory=most, max_seconds=5))
    return Variant(call, seconds=12, memory=most + 48 * MB)


def caches(random: Random) -> Variant:
    """What calls leave behind when they, their machine and their results are gone."""
    program, arguments = _host_program(random)
    machine = machine_of(parse_module(program))

    def call(number: int) -> None:
        given = arguments[0][:2000].copy()
        if given.dtype == object:
            given[:] = [f"{number}{text[:50_000]}{place}" for place, text in enumerate(given)]
        else:
            given += number * 1e6
        try:
            machine.call("main", (given, *arguments[1:]), max_seconds=2.0, max_memory=500 * MB)
        except (BudgetExceededError, OutOfMemoryError):
            return

    def kept() -> int:
        strings.forget()
        gc.collect()
        return sum(map(len, strings._texts.values()))

    def act() -> None:
        call(0)
        before = kept()
        for number in range(1, 5):
            call(number)
        want(kept() - before <= 4096, f"{kept() - before} texts are left")

    return Variant(act, seconds=30, memory=1000 * MB)
