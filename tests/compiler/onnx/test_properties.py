"""Each imported operator, by random attributes, shapes and element types: the references give what onnxruntime and
`onnx.reference` say, and native kernels what the references give. An operator without a step of random graphs fails here."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.compiler.onnx.schemas import OF_GRAPHS
from treadle.compiler.onnx.table import find, supported
from treadle.formats.host_values import OPTIONAL, SEQUENCE
from treadle.formats.messages.errors import CompileError, UnsupportedOperatorError
from treadle.formats.strings import ELEMENT, to_numbers, to_texts
from treadle.formats.types import DataType, Type
from treadle.tools.dev.fuzz.onnx import try_sample
from treadle.tools.dev.fuzz.programs import REFUSED, Setting
from treadle.tools.dev.fuzz.random_onnx.graphs import CONTROL, OWN, Sample, single
from treadle.tools.dev.fuzz.random_onnx.judges import difference
from treadle.tools.dev.fuzz.random_onnx.walk import STEPS
from treadle.tools.dev.fuzz.runs import is_bad
from treadle.vm.values import DataValue

GRAPHS = 6  # of each operator

# Imported operators that no random graph has, and the tests that know them
ELSEWHERE = {
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        "test_onnx_random.py: what they draw is no two judges' matter",
    ),
    **dict.fromkeys(("com.microsoft.MurmurHash3", "com.microsoft.Tokenizer"), "test_onnx_texts.py: texts"),
    "ImageDecoder": "test_onnx_held.py: files of images",
    **dict.fromkeys(
        ("Affine", "Crop", "ImageScaler", "ParametricSoftplus", "ScaledTanh"),
        "test_onnx_versions.py: of early opsets alone",
    ),
    **dict.fromkeys(
        ("ai.onnx.ml.CategoryMapper",),
        "tests/compiler/onnx/ml: texts and maps",
    ),
    **dict.fromkeys(
        ("ai.onnx.ml.CastMap", "ai.onnx.ml.DictVectorizer", "ai.onnx.ml.ZipMap"),
        "tests/compiler/onnx/ml: maps, no tensors",
    ),
    **dict.fromkeys(
        ("com.microsoft.DynamicQuantizeLSTM", "com.microsoft.DynamicQuantizeMatMul", "com.microsoft.QAttention"),
        "test_runtime_operators.py: as onnxruntime's quantiser writes them",
    ),
    **dict.fromkeys(
        [f"com.microsoft.{name}" for name in ("GatherND", "GridSample", "Inverse", "MatMulInteger16", "Range")],
        "test_runtime_tensors.py: as ONNX has them, or as their names say",
    ),
    **dict.fromkeys(
        [
            f"com.microsoft.{name}"
            for name in ("CausalConvWithState", "GatedAdd", "GatedRMSNorm", "LinearAttention", "LinearAttentionGate")
        ]
        + ["LinearAttention"],
        "ort/test_recurrent.py: states go from call to call",
    ),
    "com.microsoft.MRotaryEmbedding": "ort/test_attention.py: places by section",
    "com.microsoft.QMoE": "test_runtime_experts.py: with MoE",
    "com.microsoft.QEmbedLayerNormalization": "test_runtime_operators.py: as EmbedLayerNormalization",
    **dict.fromkeys(
        [f"com.microsoft.{name}" for name in ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")],
        "ort/test_searches.py: of decoders",
    ),
    "com.microsoft.MatMulIntegerToFloat": "test_quantized.py: as onnxruntime's optimiser writes it",
    "com.microsoft.Solve": "test_runtime_operators.py, tests/converters: onnxruntime has none, nor the reference",
    "ai.onnx.ml.TreeEnsemble": "ml/test_trees.py: version 5 of the domain",
}
TRIED = [(domain, name) for domain, name in STEPS if domain or name in OWN or name in supported()]


def named(domain: str, name: str) -> str:
    return f"{domain}.{name}".lstrip(".")


def graphs(domain: str, name: str, count: int = GRAPHS) -> list[Sample]:
    """Graphs of one operator: the first of a row of random ones in which a judge takes it."""
    made = (single(Random(f"{named(domain, name)} {number}"), domain, name) for number in range(6 * count))
    return [sample for sample in made if sample.outputs][:count]


# Attributes that an importer has another default for, which means the same
MEANS_THE_SAME = {("RNN", "activations"), ("GridSample", "mode")}  # None is Tanh; "bilinear" became "linear"


def _is_over_before_7(schema: onnx.defs.OpSchema) -> bool:
    """Whether no opset from 7 on has this version of an operator."""
    if schema.domain or schema.since_version >= 7:
        return False
    try:
        return onnx.defs.get_schema(schema.name, 7, "").since_version != schema.since_version
    except onnx.defs.SchemaError:
        return True


def test_attributes_have_the_defaults_of_the_schemas() -> None:
    different = []
    for schema in onnx.defs.get_all_schemas_with_history():
        found = None if schema.deprecated else find(schema.domain, schema.name, schema.since_version)
        if found is None or found.by_user or _is_over_before_7(schema):
            continue
        for name, attribute in schema.attributes.items():
            param = found.signature.parameters.get(name)
            if param is None or not attribute.default_value.type or (schema.name, name) in MEANS_THE_SAME:
                continue
            due = onnx.helper.get_attribute_value(attribute.default_value)
            due = due.decode() if isinstance(due, bytes) else tuple(due) if isinstance(due, list) else due
            if param.default != (pytest.approx(due, rel=1e-6) if isinstance(due, float) else due):
                different.append((schema.domain, schema.name, schema.since_version, name, due, param.default))
    assert not different


def as_data(value: Any, type_: Type) -> Any:
    """A list, an optional value or an array of any rank as the evaluator has it."""
    if not isinstance(type_, DataType):
        return to_numbers(value) if value.dtype == object else value
    if type_.name == SEQUENCE.name:
        made = DataValue(0, (), type_.name, "End")
        for each in reversed(value):
            made = DataValue(1, (as_data(each, type_.arguments[0]), made), type_.name, "Item")
        return made
    if type_.name == OPTIONAL.name:
        fields = () if value is None else (as_data(value, type_.arguments[0]),)
        return DataValue(len(fields), fields, type_.name, ("Absent", "Present")[len(fields)])
    return DataValue(value.ndim, (as_data(value, type_.arguments[value.ndim]),), type_.name, f"Rank{value.ndim}")


def as_python(value: Any) -> Any:
    """What `as_data` was made of."""
    if not isinstance(value, DataValue):
        array = np.asarray(value)
        return to_texts(array) if array.dtype == ELEMENT else array
    if value.constructor not in ("End", "Item"):
        return as_python(value.fields[0]) if value.fields else None
    items = []
    while value.fields:
        first, value = value.fields
        items.append(as_python(first))
    return items


def test_every_imported_operator_has_a_step_of_random_graphs() -> None:
    missing = (
        {*supported(), *(named(*each) for each in OF_GRAPHS)} - {named(*each) for each in STEPS} - ELSEWHERE.keys()
    )
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
            params = module.functions["main"].params
            feeds = [as_data(value, param.type) for value, param in zip(sample.feeds().values(), params, strict=True)]
            results = evaluate(module, "main", *feeds)
        results = results if isinstance(results, tuple) else (results,)
        for value, got in zip(sample.outputs, results, strict=True):
            faults = [difference(as_python(got), each, value.slack, sample.coarse) for each in value.expected]
            assert not all(faults), faults
        compared += 1
    assert compared or name in CONTROL


@pytest.mark.parametrize(("domain", "name"), TRIED, ids=[named(*each) for each in TRIED])
def test_native_kernels_give_what_the_references_give(domain: str, name: str) -> None:
    """The first graph, with symbolic sizes where it has some, on kernels; the rest as planned."""
    for number, sample in enumerate(graphs(domain, name, 2)):
        assert not is_bad(try_sample(sample, Setting(2, native=number == 0)))
