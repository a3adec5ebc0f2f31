"""ONNX models as modules of the IR.

Nodes are imported in order by the functions of `table.py`; operators that have none are taken apart by the function body
that the model or the ONNX standard gives them. Nothing here looks at a value that a user will pass: only at weights and shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.host_values import DEFINITIONS
from ...formats.messages.calling import warn_user
from ...formats.messages.errors import (
    CompileBudgetError,
    CompileError,
    DTypeError,
    FileError,
    InferenceError,
    LimitError,
    ModelError,
    TreadleError,
    UnsupportedOperatorError,
)
from ...formats.messages.names import near
from ...formats.types import UNKNOWN, ShapeDim, TensorType, TupleType
from .. import effort, ir
from ..batch import Batch
from ..named_weights import Weights
from . import importers  # noqa: F401  (it registers them)
from .adapters import with_adapters
from .batch import BatchBuilder, Place, batch_builder
from .choice import Graph, chosen
from .declared import Shapes, check_size, declared_of, is_of_known_rank, parsed_dim
from .file import ModelFile, ModelSource, read_model
from .given_shapes import given_shapes
from .gradient import between, gradients
from .held import by_length, by_rank, choose, with_sequences
from .loops import LOOPS
from .operators.host_values import made, parameter
from .order import in_order
from .ort.floats import DOMAIN as RUNTIME
from .ort.searches import SEARCHES, nodes_of
from .schemas import (
    GRADIENT,
    GRAPHS,
    attributes_of,
    check_versions,
    domain_of,
    is_known,
    node_name,
    operator_of,
    opsets_of,
    schema_of,
    specialized,
    standard_call,
    standard_function,
)
from .table import find, names_in
from .tensors import dense, to_array
from .values import (
    AnyRank,
    GraphBuilder,
    Imported,
    Noted,
    NotImportedError,
    UnsupportedError,
    Value,
    constant,
    present,
    tensors_of,
)
from .versions import dispatching

if TYPE_CHECKING:
    import onnx


_FUNCTION_NESTING = 16
_LATEST = 1 << 31  # opset version
_TOLD_NODES = 5
_OF_ANY_RANK = {
    "Identity",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "SequenceConstruct",
    "SequenceInsert",
}
_OF_ONE_PROCESSOR = "com.microsoft.nchwc"  # how many channels lie together is written nowhere in the model


def from_onnx(
    source: ModelSource,
    *,
    shapes: Shapes | None = None,
    entry: str = "main",
    weights: Weights | None = None,
    batch: Batch | None = None,
    dtypes: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    adapters: bool | Sequence[str] = False,
) -> ir.Module:
    """The model as a module of one function, whose parameters are the graph's inputs without the initializers.

    `source` is a path, the bytes of a file, or an onnx.ModelProto. `shapes` replaces the shapes of inputs, by name; a string is
    a symbolic dimension; `dtypes` their element types. `outputs` are names of values that are results in place of the model's
    own; what they do not depend on is left out. Several outputs make a tuple; variables in it have the outputs' names. Tensors
    of floats that the graph is made with join `weights`. With a `batch`, sizes that were exported are made symbolic where they
    are the batch's, and what would mix its rows is reported as not supported (`batch.py`). `adapters` are those of `adapters.py`.
    Raises UnsupportedOperatorError, which lists all nodes that cannot be imported; ModelError, which names the node and the
    value, for a model that is malformed; CompileError for one that asks for work without bounds; FileError for what cannot
    be read.
    """
    file, shapes = read_model(source), shapes or {}
    try:
        graph = chosen(file.model.graph, dtypes or {}, outputs)
        if adapters:
            if batch is not None:
                raise CompileError("adapters: name the sizes of token ids by shapes={…} in the place of batch")
            graph, shapes = with_adapters(graph, adapters, shapes)
        importer = _ModelImporter(file, graph, weights, batch)
    except UnicodeDecodeError as error:
        raise _not_utf8(error) from None
    try:
        with effort.bounded(file.nbytes):
            return importer.module(shapes, entry)
    except UnicodeDecodeError as error:  # protobuf decodes names when they are looked at
        raise _not_utf8(error) from None
    except InferenceError as error:
        if not dtypes:
            raise
        hint = "dtypes are those of inputs alone: what the model holds, and asks its nodes for, stays as it is"
        raise InferenceError(f"{error.message}; {hint}", node=error.node) from None
    except CompileError as error:
        if type(error) is not CompileError or not importer.of_any_rank:
            raise
        names = ", ".join(map(repr, importer.of_any_rank))
        advice = f"shapes={{{importer.of_any_rank[0]!r}: ('n', …), …}} says one"
        raise CompileError(
            f"{error.message}. The model says no rank of {names}, and is made for each: {advice}"
        ) from None
    except (TreadleError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise _failure(error, importer.g.origin) from error


class _Scope:
    """The values that a node can name: those of its graph, then those of the graphs around it. None: could not be imported."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self.values: dict[str, Imported | None] = {}
        self.nodes: Sequence[onnx.NodeProto] = ()
        self.outer = outer

    def find(self, name: str) -> Imported | None:
        """Raises KeyError."""
        if name in self.values or self.outer is None:
            return self.values[name]
        return self.outer.find(name)


class _ModelImporter:
    def __init__(
        self,
        file: ModelFile,
        graph: Graph,
        weights: Weights | None,
        batch: Batch | None = None,
        first: _ModelImporter | None = None,
    ) -> None:
        """`first` has imported the model: this one makes the version that takes no sizes for equal, of the same constants."""
        model, self.weights = file.model, weights
        # the initializers of the model's graph
        self.constants: dict[str, Value] = {} if first is None else first.constants
        self.asks = first is not None
        self.file, self.graph = file, graph
        check_versions(model)
        self.opsets = opsets_of(model.opset_import)
        self.sizes: dict[str, Dim] = {}  # of inputs, by what the model calls them
        self.infos = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
        self.of_any_rank: list[str] = []  # inputs
        # Origins of onnxruntime's nodes, where the model imports no version of these.
        self.unimported: dict[str, None] = {}
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.batch, self.g = batch, GraphBuilder()
        self.g.standard = self._standard
        self.unsupported: list[tuple[str, str, str]] = []
        self.depth = 0

    def module(self, shapes: Shapes, entry: str) -> ir.Module:
        main = self.main(shapes, entry)
        if self.unimported:
            shown = list(self.unimported)[:_TOLD_NODES]
            more = f" and {len(self.unimported) - len(shown)} more" if len(self.unimported) > len(shown) else ""
            warn_user(
                f"the model imports no version of the operators of {RUNTIME}; these nodes are taken for version 1, as "
                f"onnxruntime does: {', '.join(shown)}{more}"
            )
        if self.g.held_equal and (other := self._other(shapes, entry)) is not None:
            main = dispatching(main, other, self.g.held_equal)
        if not self.g.has_data:
            return ir.Module({entry: main})
        return with_sequences(ir.Module({entry: main}, DEFINITIONS))

    def _other(self, shapes: Shapes, entry: str) -> ir.Function | None:
        """The version for sizes that are not equal. None if the model needs sizes known in advance."""
        batch = None if self.batch is None else Batch(self.batch.symbol, self.batch.size)
        importer = _ModelImporter(self.file, self.graph, self.weights, batch, self)
        try:
            main = importer.main(shapes, entry)
        except CompileBudgetError:
            raise
        except CompileError:
            return None
        self.g.has_data |= importer.g.has_data
        return main

    def main(self, shapes: Shapes, name: str) -> ir.Function:
        scope = _Scope()
        weights = {tensor.name for tensor in self.graph.initializer}
        weights |= {sparse.values.name for sparse in self.graph.sparse_initializer}
        inputs = [info for info in self.graph.input if info.name not in weights]
        shapes = given_shapes(inputs, shapes)
        inputs = [info for info in inputs if self._is_supported(info, shapes, scope)]
        is_tensor = functools.partial(is_of_known_rank, shapes=shapes)
        batched: Mapping[str, int] = {}
        if self.batch is not None:
            tensors = list(filter(is_tensor, inputs))
            from .batch_rules import RULES

            self.g, shapes, batched = batch_builder(tensors, shapes, self.batch, RULES)
        self.g.asks = self.asks
        self.of_any_rank = [info.name for info in inputs if info.type.HasField("tensor_type") and not is_tensor(info)]
        tensors = list(filter(is_tensor, inputs))
        params = self._params(tensors, shapes)
        for param in params:
            assert isinstance(param.type, TensorType)
            scope.values[param.name] = value = Value(param.type, param)
            if isinstance(self.g, BatchBuilder) and param.name in batched:
                self.g.follow(value, Place(batched[param.name]))
        params = self._with_others(inputs, params, scope)
        results = self._graph(self.graph, scope, self.file.weights)
        body = None if self.unsupported else self._result(results)
        if self.unsupported or body is None:
            raise _unsupported_error(self.unsupported)
        names = tuple(dict.fromkeys(info.name for info in self.graph.output if info.name))
        if len(names) < len(self.graph.output):
            names = ()  # some have none, or the same
        return ir.Function(tuple(params), body, name=name, result_names=names)

    # ---- inputs, initializers, outputs ----

    def _is_supported(self, info: onnx.ValueInfoProto, shapes: Shapes, scope: _Scope) -> bool:
        """Whether an input is of a type that Treadle has; if not, this is noted, and what is made of it is not imported."""
        try:
            if is_of_known_rank(info, shapes):
                declared_of(info, shapes.get(info.name))
        except UnsupportedOperatorError as error:
            self.unsupported += error.operators
            scope.values[info.name] = None
            return False
        return True

    def _with_others(self, inputs: Sequence[onnx.ValueInfoProto], tensors: list[ir.Var], scope: _Scope) -> list[ir.Var]:
        """The parameters, those that are not tensors among them, in the order of the inputs."""
        params = {param.name: param for param in tensors}
        for info in inputs:
            if info.name in params:
                continue
            self.g.has_data = True
            try:
                params[info.name], scope.values[info.name] = parameter(self.g, info)
            except UnsupportedError as error:
                self.unsupported.append(("input", info.name, error.message))
                scope.values[info.name] = None
        return [params[info.name] for info in inputs if info.name in params]

    def _params(self, inputs: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> list[ir.Var]:
        declared = [(info, *declared_of(info, shapes.get(info.name))) for info in inputs]
        parsed = [[parsed_dim(dim) for dim in shape] for _, _, shape in declared]
        # a variable can be used in an expression only if some input's dimension is that variable
        bound = {str(dim) for shape in parsed for dim in shape if dim is not UNKNOWN and dims.is_variable(dim)}  # type: ignore[arg-type]
        self.g.reserve(bound)
        alike: dict[str, Dim] = {}  # by their texts, other dimensions: those of one text are one

        def usable(dim: ShapeDim, text: int | str, place: str) -> Dim:
            if dim is not UNKNOWN and bound.issuperset(dims.variables(dim)):  # type: ignore[arg-type]
                return dim  # type: ignore[return-value]
            if not text:
                return self.g.new_dimension(place)
            key = str(text if dim is UNKNOWN else dim)
            if key not in alike:
                alike[key] = self.g.new_dimension(str(text))
            return alike[key]

        params: list[ir.Var] = []
        for (info, dtype, texts), shape in zip(declared, parsed, strict=True):
            places = [f"{info.name}_dim{axis}" for axis in range(len(shape))]
            type_ = TensorType(dtype, tuple(map(usable, shape, texts, places)))
            own = info.type.tensor_type.shape.dim
            self.sizes |= {said.dim_param: dim for said, dim in zip(own, type_.shape, strict=False) if said.dim_param}
            check_size(info.name, type_)
            params.append(ir.Var(info.name, type_))
        self.g.input_names = self.g.dimension_names
        return params

    def _initializers(self, graph: Graph, scope: _Scope, weights: Mapping[int, np.ndarray]) -> None:
        folder = self.file.folder
        for position, tensor in enumerate(graph.initializer):
            read = functools.partial(to_array, tensor, folder, weights.get(position))
            self._initializer(tensor.name, read, scope)
        for sparse in graph.sparse_initializer:
            self._initializer(sparse.values.name, functools.partial(dense, sparse, folder), scope)

    def _initializer(self, name: str, read: Callable[[], np.ndarray], scope: _Scope) -> None:
        if scope.outer is None and name in self.constants:
            scope.values[name] = self.constants[name]
            return
        try:
            array = read()
        except DTypeError as error:
            self.unsupported.append(("initializer", name, error.message))
            scope.values[name] = None
            return
        scope.values[name] = value = self._weight(name, array, scope) or constant(array)
        if scope.outer is None:
            self.constants[name] = value

    def _weight(self, name: str, array: np.ndarray, scope: _Scope) -> Value | None:
        """A tensor of the model's own graph that is to keep its name: sizes and single numbers are part of what the graph is."""
        if self.weights is None or scope.outer is not None or not DType.of(array.dtype).is_float or array.size < 2:
            return None
        weight = self.weights.add(name, array)
        return Value(weight.type, weight)

    def _result(self, results: Sequence[Imported]) -> ir.Block | None:
        """The function's body, whose result is made of variables that have the outputs' names. None if one is not supported."""
        outputs, types = [], []
        for info, value in zip(self.graph.output, results, strict=True):
            self.g.has_data |= not isinstance(value, Value)
            types.append(value.type if isinstance(value, Value) else None)
            output = ir.Var(info.name, types[-1])
            try:
                self.g.bindings.append(ir.Binding(output, made(self.g, value, info), info.name))
            except UnsupportedError as error:
                self.unsupported.append(("output", info.name, error.message))
            outputs.append(output)
        if self.unsupported:
            return None
        if len(outputs) == 1:
            return ir.Block(tuple(self.g.bindings), outputs[0])
        result = ir.Var("outputs", None if None in types else TupleType(tuple(types)))  # type: ignore[arg-type]
        self.g.bindings.append(ir.Binding(result, ir.MakeTuple(tuple(outputs))))
        return ir.Block(tuple(self.g.bindings), result)

    # ---- nodes ----

    def _graph(self, graph: Graph, scope: _Scope, weights: Mapping[int, np.ndarray] | None = None) -> list[Imported]:
        """The outputs of a graph; empty when something in it is not supported. `weights`: raw data of its initializers."""
        _check_names(
            graph.name, *(each.name for part in (graph.input, graph.output, graph.initializer) for each in part)
        )
        self._initializers(graph, scope, weights or {})
        self._nodes(graph.node, scope)
        results = []
        for info in graph.output:
            value = self._lookup(info.name, scope, f"the graph {graph.name!r}", node=None)
            if value is not None:
                results.append(value)
        return results

    def _nodes(self, nodes: Sequence[onnx.NodeProto], scope: _Scope, origin: str = "") -> None:
        nodes = in_order(nodes)
        later = {name for node in nodes for name in node.output}
        scope.nodes = nodes
        for node in nodes:
            self._node(node, scope, later, origin or node_name(node))

    def _node(self, node: onnx.NodeProto, scope: _Scope, later: set[str], origin: str) -> None:
        _check_names(
            node.name, node.op_type, node.domain, *node.input, *node.output, *(each.name for each in node.attribute)
        )
        effort.spend(effort.NODE_UNITS, origin)
        is_own = scope.outer is None and self.depth == 0  # a node of the model's graph
        if is_own:
            said = (dim for name in node.output for dim in self._said(name))
            self.g.result_sizes = frozenset(dim for dim in said if dim is not None)
        inputs = [
            self._lookup(name, scope, node.op_type, node=origin, later=later) if name else None for name in node.input
        ]
        if any(value is None for value, name in zip(inputs, node.input, strict=True) if name):
            results: Sequence[Imported | None] = [None] * len(node.output)  # an input could not be imported
            self._report_unknown(node, origin)
        else:
            results = self._imported(node, inputs, scope, origin)
        for name, value in zip(node.output, results, strict=False):
            if name in scope.values and name:
                raise ModelError(f"value {name!r} is made twice", node=origin)
            if is_own and isinstance(value, Value):
                self._note_sizes(value, name)
            scope.values[name] = value

    def _said(self, name: str) -> list[Dim | None]:
        """What the model says of a value's sizes, where it calls them as it calls an input's."""
        info = self.infos.get(name)
        said = info.type.tensor_type.shape.dim if info is not None else ()
        return [self.sizes.get(dim.dim_param) for dim in said]

    def _note_sizes(self, value: Value, name: str) -> None:
        """Notes which sizes that are computed of several, as past + length, have the name of an input's."""
        for dim, said in zip(value.shape, self._said(name), strict=False):
            if said is not None and len(dims.variables(dim)) > 1:
                self.g.told_equal.add(frozenset((dim, said)))

    def _imported(
        self, node: onnx.NodeProto, inputs: Sequence[Imported | None], scope: _Scope, origin: str
    ) -> Sequence[Imported | None]:
        g = self.g
        g.origin, g.hint, g.output_count = origin, _hint(node), len(node.output)
        if domain_of(node) == RUNTIME and RUNTIME not in self.opsets:
            self.unimported[f"{node.op_type} {origin}" if origin != node.op_type else origin] = None
        g.opset = self._version(domain_of(node))
        try:
            results = self._dispatch(node, inputs, scope)
        except (UnsupportedError, DTypeError) as error:
            self.unsupported.append((operator_of(node), origin, self._with_version(node, error.message)))
            return [None] * len(node.output)
        except InferenceError as error:
            raise (
                error if error.node else InferenceError(f"{operator_of(node)}: {error.message}", node=origin)
            ) from None
        except (ModelError, LimitError) as error:
            raise error if error.node else type(error)(error.message, node=origin) from None
        if len(results) < sum(bool(name) for name in node.output):
            raise ModelError(f"{node.op_type} has {len(results)} outputs, {len(node.output)} are named", node=origin)
        return results

    def _dispatch(
        self, node: onnx.NodeProto, inputs: Sequence[Imported | None], scope: _Scope
    ) -> Sequence[Imported | None]:
        local = self.functions.get((node.domain, node.op_type))
        if local is not None:
            return self._inlined(local, node, inputs, local.attribute_proto)
        schema = schema_of(node.op_type, self.g.opset, domain_of(node))
        attributes = attributes_of(node, schema)
        if domain_of(node) == "" and node.op_type == "If":
            return self._if(tensors_of(inputs), attributes, scope)
        if domain_of(node) == "" and node.op_type in LOOPS:
            return self._loop(node, inputs, attributes, scope)
        if domain_of(node) == RUNTIME and node.op_type in SEARCHES:
            self._nodes(nodes_of(node, attributes), inner := _Scope(scope), self.g.origin)
            return [inner.values.get(name) for name in node.output]
        if (domain_of(node), node.op_type) == GRADIENT:
            return self._gradient(node, tensors_of(inputs), attributes, scope)
        entry = find(domain_of(node), node.op_type, self.g.opset)
        if domain_of(node) == "" and node.op_type in _OF_ANY_RANK and entry is not None:
            return entry(self.g, inputs, attributes)

        def run(known: Sequence[Imported | None]) -> Sequence[Imported | None]:
            if entry is not None:
                return self._by_length(known, lambda inputs: entry(self.g, inputs, attributes))
            body, defaults = standard_function(node, schema, known)
            if body is None:
                raise UnsupportedError(self._missing(node))
            return self._inlined(body, node, known, defaults)

        return self._by_rank(inputs, run)

    def _by_rank(
        self, inputs: Sequence[Imported | None], run: Callable[[Sequence[Imported | None]], Sequence[Imported | None]]
    ) -> Sequence[Imported | None]:
        if not any(isinstance(value, AnyRank) for value in inputs):
            return run(inputs)
        try:
            return by_rank(self.g, inputs, run)
        except NotImportedError:
            return [None] * self.g.output_count

    def _by_length(
        self, inputs: Sequence[Imported | None], run: Callable[[Sequence[Imported | None]], Sequence[Imported | None]]
    ) -> Sequence[Imported | None]:
        if self.batch is not None:  # followed through tensors of known ranks only
            return run(inputs)
        return by_length(self.g, inputs, run)

    def _version(self, domain: str) -> int:
        """Which version of a domain's operators the model imports. onnxruntime takes its own ones without that, as version 1."""
        return self.opsets.get(domain, 1 if domain == RUNTIME else 0)

    def _with_version(self, node: onnx.NodeProto, reason: str) -> str:
        """A reason with the domain and its version as the model imports it."""
        domain = domain_of(node)
        return f"{reason} [{domain or 'ai.onnx'} {self.opsets.get(domain, 'of no version')}]"

    def _report_unknown(self, node: onnx.NodeProto, origin: str) -> None:
        """Notes all unsupported nodes after the first one, and those of its graphs: the user
        wants to know all that keeps a model from running."""
        domain = domain_of(node)
        is_local = (node.domain, node.op_type) in self.functions
        if not is_local and not is_known(domain, node.op_type, self._version(domain)):
            self.unsupported.append((operator_of(node), origin, self._with_version(node, self._missing(node))))
        for attribute in node.attribute:
            for graph in [attribute.g, *attribute.graphs] if attribute.type in GRAPHS else ():
                for inner in graph.node:
                    self._report_unknown(inner, node_name(inner))

    def _missing(self, node: onnx.NodeProto) -> str:
        """Why there is no importer of a node."""
        domain = domain_of(node)
        if domain not in self.opsets and domain != RUNTIME:
            return f"the model imports no version of the operators of {domain or 'ai.onnx'!r}"
        if find(domain, node.op_type, _LATEST) is None:
            if domain == _OF_ONE_PROCESSOR:
                return "onnxruntime's level ALL wrote it for one kind of processor; save the optimised model at level EXTENDED"
            return (
                "Treadle has no importer of this operator; @treadle.onnx_operator adds one"
                f"{near(node.op_type, names_in(domain))}"
            )
        return f"Treadle imports it from later versions than opset {self.g.opset}; onnx.version_converter may help"

    def _lookup(
        self, name: str, scope: _Scope, user: str, *, node: str | None, later: frozenset[str] | set[str] = frozenset()
    ) -> Imported | None:
        try:
            return scope.find(name)
        except KeyError:
            why = "made in or behind a cycle of nodes" if name in later else "made by no node, input or initializer"
            raise ModelError(f"{user} uses the value {name!r}, which is {why}", node=node) from None

    # ---- functions and branches ----

    def _inlined(
        self,
        function: onnx.FunctionProto,
        call: onnx.NodeProto,
        inputs: Sequence[Imported | None],
        defaults: Sequence[onnx.AttributeProto],
    ) -> Sequence[Imported | None]:
        """A function's body in place of its call: every binding keeps the name of the calling node."""
        if self.depth >= _FUNCTION_NESTING:
            raise ModelError(f"functions are nested deeper than {_FUNCTION_NESTING}, at {function.name!r}")
        if len(inputs) > len(function.input):
            raise ModelError(f"{function.name} takes {len(function.input)} inputs, got {len(inputs)}")
        effort.spend(function.ByteSize(), self.g.origin)  # it is copied
        scope = _Scope()
        for name, value in zip(function.input, [*inputs, *[None] * len(function.input)], strict=False):
            scope.values[name] = value
        attributes = {attribute.name: attribute for attribute in [*defaults, *call.attribute]}
        missing = {name for name, value in scope.values.items() if value is None}
        body = [specialized(node, attributes, missing) for node in function.node]
        outer_opsets, origin = self.opsets, self.g.origin
        self.opsets, self.depth = outer_opsets | opsets_of(function.opset_import), self.depth + 1
        try:
            self._nodes(body, scope, origin)
        finally:
            self.opsets, self.depth = outer_opsets, self.depth - 1
        return [scope.values.get(name) for name in function.output]

    def _standard(
        self, operator: str, version: int, inputs: Sequence[Value | None], attributes: dict[str, Any]
    ) -> tuple[Value, ...]:
        node, body, defaults = standard_call(operator, version, inputs, attributes)
        return tuple(self._inlined(body, node, inputs, defaults))  # type: ignore[arg-type]

    def _if(
        self, inputs: Sequence[Value | None], attributes: dict[str, Any], scope: _Scope
    ) -> Sequence[Imported | None]:
        """A branch that is known at import is taken; else both become blocks."""
        condition = inputs[0] if len(inputs) == 1 else None
        if condition is None:
            raise ModelError("If: one input is needed, the condition")
        branches = [attributes["then_branch"], attributes["else_branch"]]
        if condition.constant is not None:
            branch = branches[0 if condition.constant.all() else 1]
            taken = self._graph(branch, _Scope(scope))
            return taken if len(taken) == len(branch.output) else [None] * len(branch.output)
        origin, hint = self.g.origin, self.g.hint

        def run(branch: onnx.GraphProto) -> list[Imported]:
            results = self._graph(branch, _Scope(scope))
            self.g.origin, self.g.hint = origin, hint
            if len(results) < len(branch.output):
                raise NotImportedError
            return results

        try:
            if self.batch is not None:  # followed through tensors only
                return self.g.choose(condition, *(lambda branch=branch: present(run(branch)) for branch in branches))
            return choose(self.g, condition, *(functools.partial(run, branch) for branch in branches))
        except NotImportedError:  # reported already
            return [None] * len(branches[0].output)

    def _gradient(
        self, node: onnx.NodeProto, inputs: Sequence[Value | None], attributes: dict[str, Any], scope: _Scope
    ) -> Sequence[Imported | None]:
        """Of the nodes that `y` is made of `xs` and `zs` by, these being the node's inputs."""
        xs, y = attributes["xs"], attributes["y"]
        names = [*xs, *attributes.get("zs", ())]
        values = present(inputs)
        if len(names) != len(values) or len(set(names)) != len(names):
            raise ModelError(f"expected {len(names)} values for the tensors {names}, got {len(values)}")
        makers = {name: each for each in scope.nodes for name in each.output if name}
        nodes = between(makers, set(names), y)
        inner = _Scope(scope)
        # a copy of each, so that a constant is another one than what else has its value
        inner.values.update((name, replace(value)) for name, value in zip(names, values, strict=True))
        known = [inner.values[name] for name in xs]
        if self.g.tape is not None:
            raise UnsupportedError("a gradient within what a gradient is taken of")
        tape: list[Noted] = []
        self.g.tape = tape
        try:
            for each in nodes:
                effort.spend(effort.GRADIENT_UNITS, self.g.origin)
                results = self._imported(
                    each, [inner.find(name) if name else None for name in each.input], inner, self.g.origin
                )
                inner.values.update(zip(each.output, results, strict=False))
        finally:
            self.g.tape = None
        result = self._lookup(y, inner, node.op_type, node=self.g.origin)
        if result is None:
            return [None] * len(xs)
        return gradients(self.g, tape, present([result])[0], present(known))

    def _loop(
        self, node: onnx.NodeProto, inputs: Sequence[Imported | None], attributes: dict[str, Any], scope: _Scope
    ) -> Sequence[Imported | None]:
        """Loop or Scan: its graph is imported as often as `onnx_loops` wants."""
        body, around = attributes["body"], _Scope(scope)
        self._initializers(body, around, {})
        origin, hint = self.g.origin, self.g.hint

        def run(values: Sequence[Imported]) -> list[Imported]:
            effort.spend(effort.ROUND_UNITS, origin)
            inner = _Scope(around)
            inner.values.update(zip((info.name for info in body.input), values, strict=True))
            self._nodes(body.node, inner)
            self.g.origin, self.g.hint = origin, hint
            results = [self._lookup(info.name, inner, f"the graph {body.name!r}", node=origin) for info in body.output]
            found = [value for value in results if value is not None]
            if len(found) < len(results):
                raise NotImportedError
            return found

        try:
            return LOOPS[node.op_type](self.g, run, inputs, attributes)
        except NotImportedError:
            return [None] * len(node.output)


# ---- small parts ----


def _check_names(*names: object) -> None:
    """Raises ModelError for one that is not UTF-8, which protobuf gives as bytes, or refuses when it is asked for."""
    if wrong := next((name for name in names if not isinstance(name, str)), None):
        raise ModelError(f"a name in the model is not UTF-8: {wrong!r}")


def _not_utf8(error: UnicodeDecodeError) -> ModelError:
    return ModelError(f"a name in the model is not UTF-8: {error}")


def _failure(error: Exception, node: str) -> TreadleError:
    """The error for an exception that no importer expected: the model is at fault, since a sound one raises none, or Treadle."""
    place = node or None
    if isinstance(error, MemoryError):
        return ModelError("the model asks for more memory than there is", node=place)
    if isinstance(error, RecursionError):
        return ModelError("graphs are nested too deeply", node=place)
    if isinstance(error, OSError):
        return FileError.of(error, "external data of the model cannot be read")
    return ModelError(f"the model cannot be imported: {type(error).__name__}: {error}", node=place)


def _hint(node: onnx.NodeProto) -> str:
    return node.output[0] if node.output and node.output[0] else node.op_type.lower()


def _unsupported_error(found: list[tuple[str, str, str]]) -> TreadleError:
    """One error that lists all."""
    lines = [f"  {operator} ({node}): {reason}" for operator, node, reason in found]
    count = "1 node is" if len(found) == 1 else f"{len(found)} nodes are"
    return UnsupportedOperatorError("\n".join([f"{count} not supported:", *lines]), found)
