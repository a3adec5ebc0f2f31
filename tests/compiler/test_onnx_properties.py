"""Each imported operator, by random attributes, shapes and element types: the references give what onnxruntime and
`onnx.reference` say, and native kernels what the references give. An operator without a step of random graphs fails here."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from treadle.compiler.evaluate import evaluate
from treadle.compiler.frontend.onnx import from_onnx
from treadle.compiler.frontend.onnx_table import supported
from treadle.formats.errors import CompileError, UnsupportedOperatorError
from treadle.tools.fuzz_onnx import try_sample
from treadle.tools.fuzz_programs import REFUSED, Setting
from treadle.tools.fuzz_state import is_bad
from treadle.tools.random_onnx.graphs import CONTROL, OWN, Sample, single
from treadle.tools.random_onnx.judges import difference
from treadle.tools.random_onnx.walk import STEPS

GRAPHS = 6  # of each operator

# Imported operators that no random graph has, and the tests that know them
ELSEWHERE = {
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        "test_onnx_random.py: what they draw is no two judges' matter",
    ),
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        "test_onnx_texts.py: texts",
    ),
    **dict.fromkeys(("com.microsoft.MurmurHash3", "com.microsoft.Tokenizer"), "test_onnx_texts.py: texts"),
    "ImageDecoder": "test_onnx_held.py: files of images",
    **dict.fromkeys(
        ("ai.onnx.ml.CategoryMapper",),
        "tests/compiler/ml: texts and maps",
    ),
    **dict.fromkeys(
        ("ai.onnx.ml.CastMap", "ai.onnx.ml.DictVectorizer", "ai.onnx.ml.ZipMap"), "tests/compiler/ml: maps, no tensors"
    ),
    **dict.fromkeys(
        ("Optional", "OptionalGetElement", "OptionalHasElement"), "their own tests: optional values, no tensors"
    ),
    "ai.onnx.ml.TreeEnsemble": "ml/test_trees.py: version 5 of the domain",
}
TRIED = [(domain, name) for domain, name in STEPS if domain or name in OWN or name in supported()]


def named(domain: str, name: str) -> str:
    return f"{domain}.{name}".lstrip(".")


def graphs(domain: str, name: str, count: int = GRAPHS) -> list[Sample]:
    """Graphs of one operator: the first of a row of random ones in which a judge takes it."""
    made = (single(Random(f"{named(domain, name)} {number}"), domain, name) for number in range(6 * count))
    return [sample for sample in made if sample.outputs][:count]


def test_every_imported_operator_has_a_step_of_random_graphs() -> None:
    missing = set(supported()) - {named(*each) for each in STEPS} - ELSEWHERE.keys()
    assert not missing, f"write a step in tools/random_onnx, or say in ELSEWHERE where its test is: {sorted(missing)}"


@pytest.mark.parametrize(("domain", "name"), TRIED, ids=[named(*each) for each in TRIED])
def test_the_references_give_what_the_judges_say(domain: str, name: str) -> None:
    samples = graphs(domain, name)
    assert samples, "no judge takes any of the graphs"
    compared = 0
    for sample in samples:
        try:
            module = from_onnx(sample.fixed())
        except UnsupportedOperatorError:
            continue
        except CompileError as error:
            assert any(text in error.message for text in REFUSED), error  # noqa: PT017  (what else is refused is a fault)
            continue
        with np.errstate(all="ignore"):
            results = evaluate(module, "main", *sample.feeds().values())
        results = results if isinstance(results, tuple) else (results,)
        for value, got in zip(sample.outputs, results, strict=True):
            faults = [difference(np.asarray(got), each, value.slack, sample.coarse) for each in value.expected]
            assert not all(faults), faults
        compared += 1
    assert compared or name in CONTROL


@pytest.mark.parametrize(("domain", "name"), TRIED, ids=[named(*each) for each in TRIED])
def test_native_kernels_give_what_the_references_give(domain: str, name: str) -> None:
    """The first graph, with symbolic sizes where it has some, on kernels; the rest as planned."""
    for number, sample in enumerate(graphs(domain, name, 2)):
        assert not is_bad(try_sample(sample, Setting(2, native=number == 0)))
