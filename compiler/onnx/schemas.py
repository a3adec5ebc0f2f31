"""What ONNX's standard, and a model's own functions, say of operators: versions, attributes, bodies."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...formats.dtypes import DType
from ...formats.messages.errors import ModelError
from . import importers  # noqa: F401  (it registers them)
from .held_types import dtype_of
from .loops import LOOPS
from .operators.training import DOMAIN as TRAINING
from .ort.floats import DOMAIN as RUNTIME
from .ort.searches import SEARCHES
from .table import attribute_value, find
from .values import HeldSequence, Imported, TensorSequence, UnsupportedError, Value, tensors_of

if TYPE_CHECKING:
    import onnx


_VERSIONED = (
    "the format (ir_version)",
    "ai.onnx",
    "ai.onnx.ml",
    "ai.onnx.training",
)  # columns of onnx.helper.VERSION_TABLE


# operators of ai.onnx that do the same with tensors of any rank
GRADIENT = (TRAINING, "Gradient")
# Operators that the importer itself knows: those of graphs
OF_GRAPHS = (("", "If"), *(("", name) for name in LOOPS), *((RUNTIME, name) for name in SEARCHES), GRADIENT)
GRAPHS = (5, 10)  # AttributeProto.GRAPH and GRAPHS


def node_name(node: onnx.NodeProto) -> str:
    """The name by which a node is known in messages and profiles: its own, or its operator and first output."""
    return node.name or f"{node.op_type} {node.output[0] if node.output else ''}".strip()


def domain_of(node: onnx.NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def operator_of(node: onnx.NodeProto) -> str:
    return f"{domain_of(node)}.{node.op_type}".lstrip(".")


def check_versions(model: onnx.ModelProto) -> None:
    """Raises ModelError for versions of the format and of ONNX's operators that do not exist yet, or never did."""
    import onnx

    table = onnx.helper.VERSION_TABLE
    newest = {name: max(row[at] for row in table if len(row) > at) for at, name in enumerate(_VERSIONED, 1)}
    asked = [(_VERSIONED[0], model.ir_version)] if model.HasField("ir_version") else []
    imports = [entry for source in (model, *model.functions) for entry in source.opset_import]
    for what, version in [
        *asked,
        *(("ai.onnx" if not entry.domain else entry.domain, entry.version) for entry in imports),
    ]:
        if what in newest and not 1 <= version <= newest[what]:
            raise ModelError(
                f"the model has version {version} of {what}; expected one of 1 to {newest[what]}, which the package onnx "
                f"{onnx.__version__} knows. If there is such a version by now, a newer onnx reads it"
            )


def opsets_of(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}


def specialized(
    node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto], missing: set[str]
) -> onnx.NodeProto:
    """A node of a function's body for one call: references to the function's attributes are replaced by the call's, and
    optional inputs that the call leaves out are left out."""
    import onnx

    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.input[:] = ["" if name in missing else name for name in node.input]
    del result.attribute[:]
    for attribute in node.attribute:
        found = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if found is None:
            continue
        copy = result.attribute.add()
        copy.CopyFrom(found)
        copy.name = attribute.name
        for graph in [copy.g, *copy.graphs] if copy.type in GRAPHS else ():
            nodes = [specialized(inner, attributes, missing) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
    return result


def is_known(domain: str, operator: str, opset: int) -> bool:
    """Whether the operators of that name can be imported at all, as far as their inputs and attributes suit the importer."""
    if (domain, operator) in OF_GRAPHS:
        return True
    if find(domain, operator, opset) is not None:
        return True
    schema = schema_of(operator, opset, domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def schema_of(operator: str, opset: int, domain: str) -> Any:
    """The ONNX standard's schema of the operator; None if it has none."""
    return None if len(operator) + len(domain) > _LONGEST_NAME else _known_schema(operator, opset, domain)


_LONGEST_NAME = 200  # characters of an operator and a domain of the standard: models may name any


@functools.lru_cache(1024)
def _known_schema(operator: str, opset: int, domain: str) -> Any:
    import onnx

    try:
        return onnx.defs.get_schema(operator, opset, domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: an opset version of more than 32 bits
        return None


def attributes_of(node: onnx.NodeProto, schema: Any) -> dict[str, Any]:
    """The attributes' values. Raises ModelError for one whose kind is not the standard's, or that is missing."""
    import onnx

    declared = schema.attributes if schema is not None else {}
    for attribute in node.attribute:
        if attribute.name in declared and attribute.type != declared[attribute.name].type.value:
            kinds = onnx.AttributeProto.AttributeType
            expected, got = kinds.Name(declared[attribute.name].type.value), kinds.Name(attribute.type)
            raise ModelError(f"{node.op_type}: attribute {attribute.name!r} must be {expected}, got {got}")
    given = {attribute.name: attribute_value(attribute) for attribute in node.attribute}
    for name, attribute in declared.items():
        if attribute.required and name not in given:
            raise ModelError(f"{node.op_type}: attribute {name!r} is missing")
    return given


def standard_function(
    node: onnx.NodeProto, schema: Any, inputs: Sequence[Imported | None]
) -> tuple[onnx.FunctionProto | None, list[onnx.AttributeProto]]:
    """The body by which the ONNX standard defines the operator, if it does, and its attributes' defaults."""
    import onnx

    if schema is None:
        return None, []
    defaults = [attribute.default_value for attribute in schema.attributes.values() if attribute.default_value.name]
    if schema.has_function:
        return schema.function_body, defaults
    if not schema.has_context_dependent_function:
        return None, []
    types = [_type_proto(value) for value in inputs]
    try:
        content = schema.get_context_dependent_function(node.SerializeToString(), types)
    except (RuntimeError, ValueError):  # inputs or attributes that the standard's builder cannot deal with
        return None, []
    return (onnx.FunctionProto.FromString(content) if content else None), defaults


def standard_call(
    operator: str, version: int, inputs: Sequence[Value | None], attributes: Mapping[str, Any]
) -> tuple[onnx.NodeProto, onnx.FunctionProto, list[onnx.AttributeProto]]:
    """A node of an operator that the ONNX standard defines, its body, and its attributes' defaults. Raises UnsupportedError."""
    import onnx

    schema = schema_of(operator, version, "")
    names = ["" if value is None else f"input_{number}" for number, value in enumerate(inputs)]
    node = onnx.helper.make_node(operator, names, [each.name for each in schema.outputs], **attributes)
    body, defaults = standard_function(node, schema, inputs)
    if body is None:
        raise UnsupportedError(f"the standard's {operator} takes no {', '.join(str(v and v.type) for v in inputs)}")
    return node, body, defaults


def _dtype_code(sequence: TensorSequence | HeldSequence) -> int:
    """The standard's code of the element type of a sequence's tensors."""
    if isinstance(sequence, HeldSequence):
        return dtype_of(sequence.element).value.onnx
    return (sequence.tensors[0].dtype if sequence.tensors else sequence.dtype or DType.float32).value.onnx


def _type_proto(value: Imported | None) -> bytes:
    import onnx

    if isinstance(value, (TensorSequence, HeldSequence)):
        sequence = onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(_dtype_code(value), None))
        return sequence.SerializeToString()
    (value,) = tensors_of([value])
    if value is None:
        return onnx.TypeProto().SerializeToString()
    shape = [dim if isinstance(dim, int) else str(dim) for dim in value.shape]
    return onnx.helper.make_tensor_type_proto(value.dtype.value.onnx, shape).SerializeToString()
