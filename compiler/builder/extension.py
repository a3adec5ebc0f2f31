"""Extensions of users: their own operators, importers of ONNX nodes; passes are added by `passes/placed.py`.

@onnx_operator("MyGelu", domain="my.domain")
def _my_gelu(x, *, scale=1.0):
    return x * op.sigmoid(1.702 * scale * x)

operator("cross3", infer="fn(float32[n, 3], float32[n, 3]) -> float32[n, 3]", reference=np.cross, inputs="a b")
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Union

import numpy as np

from ...formats.extensions import EXTENSIONS, Extension
from ...formats.messages.calling import public, raised, told, users_module
from ...formats.messages.errors import (
    CompileError,
    ExecutionError,
    InferenceError,
    ParseError,
    TreadleError,
    UnknownAttributeError,
)
from ...formats.types import FunctionType, TensorType, TupleType, Type
from ..ir.unify import bind_dims, substituted
from ..operators import TABLE, Attribute, Fusion, Kind
from ..operators.own import OWN, OwnKernel, parsed
from ..operators.shapes import mismatch
from ..operators.table import REQUIRED, register

_Function = TypeVar("_Function", bound=Callable[..., Any])
Infer = Union[str, Callable[..., Any]]

_KINDS = {bool: Kind.BOOL, int: Kind.INT, float: Kind.FLOAT, str: Kind.STRING, tuple: Kind.INTS}
_EXAMPLE = 'write it as "fn(float32[n, 3], float32[3]) -> float32[n]", or as a function of TensorTypes'
_KINDS_BY_NAME = {kind.__name__: found for kind, found in _KINDS.items()}


# ---- operators ----


@public
def operator(
    name: str,
    *,
    infer: Infer,
    reference: Callable[..., Any],
    kernel: Callable[..., None] | None = None,
    inputs: str | None = None,
    version: int = 1,
    doc: str = "",
) -> Callable[..., Any]:
    """Defines an operator, and gives the function that builds calls of it, which is `treadle.op.NAME` too.

    infer      the result's type: the text of a function's type, whose sizes are matched with the inputs', or a function of the
               inputs' TensorTypes that gives a TensorType, or a tuple of them for several results. It raises InferenceError
    reference  the results of NumPy arrays, which is what the operator means: it folds constants, is what tests compare with, and
               runs where there is no kernel. It gives arrays of exactly the inferred types, and changes none that it is given
    kernel     a function over the elements of the inputs, then of the outputs, which is compiled: see `kernels/own.py`.
               Every element of the outputs is to be written. Where there is none the reference is called, from Python
    inputs     the inputs' names; by default the reference's parameters
    version    of what the operator means. An executable asks for the version that it was compiled with

    Attributes are the reference's parameters after `*`, with bool, int, float, str or tuple (of integers) as type or default.
    `infer` and `kernel` are given those that they name. An operator has no effects: calls may be left out, shared and reordered.

    An executable that uses it needs it when it is run: the module that defines it is imported first. Raises CompileError for a
    name that is taken, or a definition that cannot be.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise CompileError(f"operator: {name!r} is not a name; expected an identifier")
    if name in TABLE and name not in EXTENSIONS:
        raise CompileError(f"operator {name!r}: Treadle has an operator of that name; take another")
    if not callable(reference):
        raise CompileError(f"operator {name!r}: reference: expected a function of arrays, got {reference!r}")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise CompileError(f"operator {name!r}: version: expected a number from 1 on, got {version!r}")
    names, attributes = _parameters(name, reference, inputs)
    own = _own_kernel(name, kernel, attributes)
    digest = _digest(name, version, infer, reference, names, own)
    known = EXTENSIONS.get(name)
    provider = users_module()
    if known is not None and known.provider != provider:
        raise CompileError(f"operator {name!r} is defined by {known.provider} already; take another name")
    TABLE.pop(name, None)  # a module, or a cell of a notebook, that is run again
    register(
        name,
        " ".join(names),
        _inference(name, infer, names),
        _evaluation(name, reference),
        Fusion.OPAQUE,
        (doc or inspect.getdoc(reference) or f"an operator of {provider}").rstrip("."),
        attributes=attributes,
    )
    OWN.pop(name, None)
    if own is not None:
        OWN[name] = own
    EXTENSIONS[name] = Extension(name, provider, version, digest)
    from .expressions import op

    return getattr(op, name)


def _parameters(name: str, reference: Callable[..., Any], inputs: str | None) -> tuple[list[str], dict[str, Attribute]]:
    """The names of the inputs as the table has them, and the attributes."""
    try:
        parameters = list(inspect.signature(reference).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if inputs is not None:
        names = inputs.split()
    else:
        names = [_input_name(it) for it in parameters if it.kind not in (it.KEYWORD_ONLY, it.VAR_KEYWORD)]
    if not names and inputs is None:
        raise CompileError(f'operator {name!r}: the reference does not tell the names of its inputs; say inputs="x y"')
    return names, {it.name: _attribute(name, it) for it in parameters if it.kind is it.KEYWORD_ONLY and inputs is None}


def _input_name(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}?"


def _attribute(operator: str, parameter: inspect.Parameter) -> Attribute:
    has_default = parameter.default is not parameter.empty
    told = parameter.annotation if parameter.annotation is not parameter.empty else type(parameter.default)
    kind = (
        _KINDS_BY_NAME.get(told.split("[")[0])
        if isinstance(told, str)
        else _KINDS.get(getattr(told, "__origin__", told))
    )
    if kind is None:
        raise CompileError(
            f"operator {operator!r}: attribute {parameter.name!r}: expected bool, int, float, str or tuple as its type or its "
            "default's"
        )
    return Attribute(kind, f"of {operator}", parameter.default if has_default else REQUIRED)


def _own_kernel(name: str, kernel: Callable[..., None] | None, attributes: Mapping[str, Attribute]) -> OwnKernel | None:
    if kernel is None:
        return None
    tree = parsed(kernel, name)
    arguments = tree.args
    if arguments.vararg or arguments.kwarg or arguments.defaults or arguments.posonlyargs:
        raise CompileError(
            f"operator {name!r}: expected a kernel(inputs…, outputs…, *, attributes…), each of them a name"
        )
    own = OwnKernel(name, tree)
    if unknown := set(own.attributes) - set(attributes):
        raise CompileError(
            f"operator {name!r}: its kernel takes {min(unknown)!r}, which is not an attribute of the reference"
        )
    return own


def _digest(name: str, version: int, infer: Infer, reference: Any, inputs: Sequence[str], own: OwnKernel | None) -> str:
    """Of all that decides about kernels: where a text is not to be found, of the function's code."""
    digest = hashlib.sha256(f"{name} {version} {' '.join(inputs)}".encode())
    for part in (infer, reference):
        digest.update(part.encode() if isinstance(part, str) else _told(part))
    if own is not None:
        digest.update(ast.unparse(own.function).encode())
    return digest.hexdigest()


def _told(function: Callable[..., Any]) -> bytes:
    try:
        return inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return code.co_code + repr(code.co_consts).encode() if code else repr(function).encode()


def _inference(name: str, infer: Infer, names: Sequence[str]) -> Callable[..., Any]:
    if isinstance(infer, str):
        from ..ir.text import parse_type

        try:
            type_ = parse_type(infer)
        except ParseError as error:
            raise CompileError(f"operator {name!r}: infer: {error}\n{_EXAMPLE}") from error
        if not isinstance(type_, FunctionType) or not all(isinstance(each, TensorType) for each in _flat(type_)):
            raise CompileError(
                f"operator {name!r}: infer: expected the type of a function of tensors, got {infer!r}; {_EXAMPLE}"
            )
        if len(names) != len(type_.params) and not any(each.startswith("*") for each in names):
            raise CompileError(
                f"operator {name!r}: {infer} does not have an input for each of "
                f"{', '.join(each.rstrip('?') for each in names)}; parameters of the reference that are not tensors are "
                "attributes, and stand behind *"
            )
        return lambda inputs, **_: _matched(type_, inputs)
    if not callable(infer):
        raise CompileError(f"operator {name!r}: infer: expected a function of types, or the text of one, got {infer!r}")
    asked = _asked(infer)

    def inferred(inputs: Sequence[TensorType], **attributes: Any) -> Any:
        try:
            results = infer(*inputs, **_those(attributes, asked))
        except UnknownAttributeError as error:  # of a type: the fault is the function's
            raise InferenceError(f"{name}: its infer raised {raised(error, infer)}") from error
        except TreadleError:
            raise
        except Exception as error:
            raise InferenceError(f"{name}: its infer raised {raised(error, infer)}") from error
        each = results if isinstance(results, tuple) else (results,)
        if not each or not all(isinstance(result, TensorType) for result in each):
            raise InferenceError(f"{name}: its infer gave {results!r}; expected a TensorType, or a tuple of them")
        return results

    return inferred


def _flat(type_: FunctionType) -> tuple[Type, ...]:
    result = type_.result
    return (*type_.params, *(result.fields if isinstance(result, TupleType) else (result,)))


def _matched(type_: FunctionType, inputs: Sequence[TensorType]) -> Any:
    """The result's type, of inputs that have the parameters' types for some sizes."""
    if len(inputs) != len(type_.params):
        raise mismatch(f"{len(type_.params)} inputs, by {type_}", len(inputs))
    sizes = bind_dims(type_.params, inputs)
    for param, got in zip(type_.params, inputs, strict=True):
        wanted = substituted(param, sizes)
        if wanted != got:
            is_sized = isinstance(param, TensorType) and param.rank == got.rank and wanted != param
            raise mismatch(f"{param} (here {wanted})" if is_sized else param, got)
    result = substituted(type_.result, sizes)
    return result.fields if isinstance(result, TupleType) else result


def _evaluation(name: str, reference: Callable[..., Any]) -> Callable[..., Any]:
    asked = _asked(reference)

    def evaluated(*arrays: np.ndarray, **attributes: Any) -> Any:
        try:
            results = reference(*arrays, **_those(attributes, asked))
        except (TreadleError, MemoryError, IndexError):
            raise
        except Exception as error:
            raise ExecutionError(f"{name}: its reference raised {raised(error, reference)}") from error
        for each in results if isinstance(results, (tuple, list)) else (results,):
            if not isinstance(each, (np.ndarray, np.generic, int, float)):
                raise ExecutionError(
                    f"{name}: its reference gave {told(each)}; expected an array, or a tuple of arrays"
                )
        return tuple(results) if isinstance(results, list) else results

    return evaluated


def _asked(function: Callable[..., Any]) -> set[str] | None:
    """The attributes that a function takes; None for all."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set()
    if any(it.kind is it.VAR_KEYWORD for it in parameters):
        return None
    return {it.name for it in parameters if it.kind is it.KEYWORD_ONLY}


def _those(attributes: Mapping[str, Any], asked: set[str] | None) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if asked is None or name in asked}


# ---- models ----


@public
def onnx_operator(name: str, *, domain: str = "", since: int = 1) -> Callable[[_Function], _Function]:
    """Decorates what imports the nodes of an ONNX operator: a function of expressions, as programs are built of.

        @treadle.onnx_operator("MyGelu", domain="my.domain")
        def _my_gelu(x, *, scale=1.0):
            return x * treadle.op.sigmoid(1.702 * scale * x)

    Its parameters are the node's inputs, then, after `*`, its attributes with their defaults; a node with another attribute is
    refused. An input that a node leaves out is None, where it has that default. It gives the node's output, or a tuple of them.
    `since` is the first opset version that it is for; the newest that a model's version reaches is taken.
    """

    if not isinstance(name, str) or not name:
        raise CompileError(f'onnx_operator: name: expected the name of an operator, such as "MyGelu", got {name!r}')
    if not isinstance(domain, str):
        raise CompileError(f'onnx_operator({name!r}): domain: expected text, such as "my.domain", got {domain!r}')
    if isinstance(since, bool) or not isinstance(since, int) or since < 1:
        raise CompileError(f"onnx_operator({name!r}): since: expected a version from 1 on, got {since!r}")

    def add(function: _Function) -> _Function:
        from ..onnx.own import add_importer

        add_importer(name, domain, since, function)
        return function

    return add
