"""A module of the IR as an ONNX file: `treadle.to_onnx`.

Operators become nodes (`table.py`), `If` and `Loop` ONNX's own, a call the nodes of what is called, a tuple its tensors.
Functions and values of data types are followed as far as the program says which they are; what a run chooses has no form in ONNX.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from .... import formats
from ....formats import dims
from ....formats.container import save
from ....formats.dtypes import DType
from ....formats.executable import Executable
from ....formats.host_values import form_of
from ....formats.messages.calling import public, told
from ....formats.messages.errors import CompileError, FileError, MiscompilationError, UnsupportedOperatorError
from ....formats.messages.names import near
from ....formats.types import UNKNOWN, DataType, TensorType, TupleType, Type
from ... import ir
from ...driver import module_of
from ...operators import lookup
from ...operators.table import Fusion
from ...passes import InferTypes, Monomorphise
from . import networks, tensors  # noqa: F401  (they register writers)
from .graph import (
    LEAST_OPSET,
    File,
    Graph,
    RefusedError,
    Size,
    Tensor,
    living,
    read_by,
    renamed,
    tensor_proto,
    value_info,
)
from .table import REFUSED, WRITERS

if TYPE_CHECKING:
    import onnx

_TRUTH = TensorType(DType.bool)
_OF_SEQUENCES = {
    "sequence_length": "SequenceLength",
    "sequence_at": "SequenceAt",
    "sequence_insert": "SequenceInsert",
    "sequence_erase": "SequenceErase",
}
EXTERNAL_BYTES = (1 << 31) - (1 << 24)  # of initializers, above which they lie beside the file: protobuf ends at 2 GiB
_FOLDED_GROWTH = 1 << 10  # bytes by which a view of a constant may be larger than it


@dataclass(frozen=True, eq=False)
class Closure:
    """A function, and what it sees around it."""

    function: ir.Function
    frame: Frame | None


@dataclass(frozen=True, eq=False)
class Data:
    """A value of a data type whose constructor is known."""

    constructor: str
    fields: tuple[Any, ...]


Value = Union[Tensor, tuple, Closure, Data]


@dataclass
class Frame:
    """A function at work: its variables, and what tells its sizes."""

    vars: MutableMapping[ir.Var, Any] = field(default_factory=dict)
    sizes: MutableMapping[str, Size] = field(default_factory=dict)

    def bind(self, pairs: Sequence[tuple[ir.Var, Value]]) -> None:
        """Gives variables values, and what their shapes tell to sizes that nothing has told yet."""
        owners: list[tuple[Tensor, int]] = []
        shape: list[Any] = []
        for var, value in pairs:
            self.vars[var] = typed = _typed(value, var.type)
            for tensor in _flat(typed):
                if isinstance(tensor, Tensor) and isinstance(tensor.type, TensorType) and not tensor.type.is_static:
                    owners += [(tensor, axis) for axis in range(tensor.rank)]
                    shape += tensor.shape
        for solution in dims.solve(shape, self.sizes) if shape else ():
            tensor, axis = owners[solution.index]
            self.sizes[str(solution.variable)] = tensor, dataclasses.replace(solution, index=axis)

    def inside(self) -> Frame:
        """Of a block, which finds sizes of its own each time."""
        return Frame(self.vars, ChainMap({}, self.sizes))


@public
def to_onnx(
    model: Any, path: str | os.PathLike | None = None, *, opset: int | None = None, entry: str | None = None
) -> onnx.ModelProto:
    """The ONNX model of `model`, which may be anything that `treadle.compile` takes: a function, a module, a model's file. With a
    `path` it is written there; constants of more than 2 GB lie in a file beside it, `<path>.data`.

    Names of parameters, results and sizes stay; weights keep theirs where they have some. `opset` is the version of ONNX, from 11
    on: by default 21, or the first that has all of the model's operators.

    Raises UnsupportedOperatorError, which lists all nodes that ONNX has no form for and says what to do; CompileError; FileError.
    """
    if isinstance(model, Executable) or isinstance(getattr(model, "executable", None), Executable):
        raise CompileError(
            f"to_onnx of {told(model)}: an executable holds kernels of a CPU; give the function, module or model behind it"
        )
    if not (path is None or isinstance(path, (str, os.PathLike))):
        raise CompileError(f"to_onnx: path={told(path)}: expected the path of a file to write, or None")
    module, name = module_of(model, entry)
    made = exported(module, name, opset)
    if path is not None:
        write(made, path)
    return made


def exported(module: ir.Module, entry: str, opset: int | None, name: str = "") -> onnx.ModelProto:
    """The ONNX model of a function of a module; its graph is called like it if there is no `name`. Raises as `to_onnx`."""
    try:
        from onnx import checker, defs
    except ModuleNotFoundError:
        raise CompileError("ONNX models are written by the package onnx: pip install 'treadle[onnx]'") from None
    newest = defs.onnx_opset_version()
    if opset is not None and (type(opset) is not int or not LEAST_OPSET <= opset <= newest):
        raise CompileError(f"opset={opset!r}: expected a version of ONNX's operators from {LEAST_OPSET} to {newest}")
    made = _Exporter(Monomorphise()(InferTypes()(module)), opset).model(entry, name or entry)
    try:
        if not _is_large(made):
            checker.check_model(made)
    except checker.ValidationError as error:
        raise MiscompilationError(
            f"Treadle wrote an ONNX model that onnx refuses ({error}). This is a fault of Treadle; please report it"
        ) from None
    return made


def _is_large(model: onnx.ModelProto) -> bool:
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer) > EXTERNAL_BYTES


def write(model: onnx.ModelProto, path: str | os.PathLike) -> None:
    """Writes a model's file; one that is too large for a message, with its constants in `<path>.data`. Raises FileError."""
    import onnx

    beside = Path(f"{os.fspath(path)}.data")
    if not _is_large(model):
        save(path, [model.SerializeToString()])
        return
    try:
        beside.unlink(missing_ok=True)  # onnx appends
        onnx.save_model(model, path, save_as_external_data=True, location=beside.name)
    except OSError as error:
        raise FileError.of(error, f"{os.fspath(path)} cannot be written") from None


class _Exporter:
    def __init__(self, module: ir.Module, opset: int | None) -> None:
        self.module, self.opset = module, opset
        self.refused: list[tuple[str, str, str]] = []
        self.running: list[ir.Function] = []

    def model(self, entry: str, name: str) -> onnx.ModelProto:
        from onnx import helper

        if entry not in self.module.functions:
            known = ", ".join(self.module.functions)
            raise CompileError(f"there is no function {entry!r}; there are {known}{near(entry, self.module.functions)}")
        function = self.module.functions[entry]
        reserved = [name for param in function.params for name, _ in _leaves(param.name, param.type)]
        self.file = File(self.opset, (*reserved, *function.result_names))
        graph, arguments, inputs = Graph(self.file), list[Value](), list[Any]()
        for param in function.params:
            leaves = list(_leaves(param.name, param.type))
            self._check_types(leaves)
            parts = [Tensor(type_, name) for name, type_ in leaves]  # type: ignore[arg-type]
            inputs += [self._info(each.name, each.type) for each in parts]
            arguments.append(_built(param.type, iter(parts)))
        result = self._called(graph, Closure(function, None), tuple(arguments))
        self._check_types([(name, type_) for name, type_ in _leaves("result", function.result_type)])
        results = self._tensors_of(graph, result, function.result_type) if not self.refused else []
        if self.refused:
            raise _error(self.refused)
        outputs, nodes = self._outputs(graph, function, results, {info.name for info in inputs})
        used = set().union(*map(read_by, nodes), (info.name for info in outputs))
        kept = [tensor_proto(name, array) for name, array in self.file.initializers.items() if name in used]
        opsets = [helper.make_opsetid("", self.file.opset)]
        opsets += [helper.make_opsetid(domain, version) for domain, version in self.file.domains.items()]
        producer, _, release = formats.producer.partition(" ")
        return helper.make_model(
            helper.make_graph(nodes, name, inputs, outputs, kept),
            opset_imports=opsets,
            ir_version=helper.find_min_ir_version_for(opsets, ignore_unknown=True),
            producer_name=producer,
            producer_version=release,
        )

    def _check_types(self, types: Sequence[tuple[str, Type | None]]) -> None:
        """Raises UnsupportedOperatorError where an input or a result is of another type than ONNX's files say here."""
        for name, type_ in types:
            if not isinstance(type_, TensorType) and not self._element(type_)[1]:
                what = f"it is {type_}: files that to_onnx writes take and give tensors, sequences and optional tensors"
                raise _error([*self.refused, ("main", name, what)])

    def _element(self, type_: Type | None) -> tuple[str, TensorType | None]:
        """ "Sequence" or "Optional", of tensors of a type; "" and None for other types."""
        definition = self.module.data_types.get(type_.name) if isinstance(type_, DataType) else None
        form = form_of(definition) if definition is not None else ""
        if definition is None or form not in ("Sequence", "Optional"):
            return "", None
        element = definition.constructors[1].fields[0]
        return (form, element) if isinstance(element, TensorType) else ("", None)

    def _info(self, name: str, type_: Type) -> onnx.ValueInfoProto:
        """What a file says of a value; of sequences and optional values too."""
        from onnx import helper

        if isinstance(type_, TensorType):
            return value_info(name, type_)
        form, element = self._element(type_)
        if element is None:
            raise RefusedError(f"{type_} has no form in ONNX: its branches and loops give tensors")
        make = helper.make_sequence_type_proto if form == "Sequence" else helper.make_optional_type_proto
        return helper.make_value_info(name, make(value_info(name, _unsized(element)).type))

    def _outputs(
        self, graph: Graph, function: ir.Function, results: Sequence[Tensor], inputs: set[str]
    ) -> tuple[list[Any], list[Any]]:
        """What the file says of its results, and the nodes: the results have the program's names for them."""
        wanted = list(function.result_names)
        if len(wanted) != len(results):
            wanted = [
                self.file.unique(f"result_{place}" if len(results) > 1 else "result") for place in range(len(results))
            ]
        nodes, names = graph.nodes, dict[str, str]()
        made = {name for node in nodes for name in node.output}
        for place, (name, tensor) in enumerate(zip(wanted, results, strict=True)):
            if name in inputs:
                wanted[place] = name = self.file.unique(name)
            if tensor.name in made and tensor.name not in names:
                names[tensor.name] = name
            else:  # a parameter, a constant, or twice the same
                graph.hint = graph.origin = ""
                alias = graph.node("Identity", tensor)
                names[alias.name] = name
        renamed(nodes, names)
        outputs = [self._info(name, tensor.type) for name, tensor in zip(wanted, results, strict=True)]
        return outputs, living(nodes, wanted)

    # ---- bindings ----

    def _block(self, g: Graph, frame: Frame, block: ir.Block) -> Value:
        for binding in block.bindings:
            g.origin, g.hint, g.sizes = binding.origin, binding.var.name, frame.sizes
            try:
                value = _HANDLERS[type(binding.value)](self, g, frame, binding)
            except RefusedError as error:
                what = (
                    binding.value.operator
                    if isinstance(binding.value, ir.OperatorCall)
                    else type(binding.value).__name__
                )
                self.refused.append((what, error.node or binding.origin or binding.var.name, error.message))
                value = _placeholder(binding.var.type)
            frame.bind([(binding.var, value)])
        return self._atom(frame, block.result)

    def _atom(self, frame: Frame, atom: ir.Atom) -> Value:
        if isinstance(atom, ir.Constant):
            weight = next(iter(atom.names)) if isinstance(atom, ir.Weight) and atom.made is None else ""
            return Tensor(atom.type, array=atom.array, weight=weight)
        if isinstance(atom, ir.GlobalRef):
            return Closure(self.module.functions[atom.name], None)
        return frame.vars[atom]

    def _operator(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        call = binding.value
        assert isinstance(call, ir.OperatorCall)
        entry = lookup(call.operator)
        inputs: tuple[Any, ...] = tuple(self._atom(frame, arg) for arg in call.args)
        g.types = tuple(type_ for _, type_ in _leaves("", binding.var.type))  # type: ignore[misc]
        if (folded := _folded(entry, call, inputs, g.types)) is not None:
            return folded
        write = WRITERS.get(call.operator)
        if write is None:
            raise RefusedError(REFUSED.get(call.operator) or _refusal(call.operator))
        results = write(g, *inputs, **entry.bind(call.attributes))
        if isinstance(results, tuple):
            return tuple(dataclasses.replace(each, made=(call, inputs)) for each in results)
        return dataclasses.replace(results, made=(call, inputs))

    def _alias(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        return self._atom(frame, binding.value)  # type: ignore[arg-type]

    def _match_shape(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        assert isinstance(binding.value, ir.MatchShape)
        return self._atom(frame, binding.value.value)

    def _tuple(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        assert isinstance(binding.value, ir.MakeTuple)
        return tuple(self._atom(frame, each) for each in binding.value.fields)

    def _item(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        assert isinstance(binding.value, ir.GetItem)
        return self._atom(frame, binding.value.tuple)[binding.value.index]  # type: ignore[index]

    def _function(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        assert isinstance(binding.value, ir.Function)
        return Closure(binding.value, frame)

    def _call(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        assert isinstance(binding.value, ir.Call)
        callee = self._atom(frame, binding.value.callee)
        if isinstance(callee, Closure) and (made := self._of_sequences(g, frame, binding, callee)) is not None:
            return made
        if not isinstance(callee, Closure):
            raise RefusedError(
                "which function is called, a run decides: ONNX calls none; call each in a branch of treadle.if_"
            )
        return self._called(g, callee, tuple(self._atom(frame, arg) for arg in binding.value.args))

    def _of_sequences(self, g: Graph, frame: Frame, binding: ir.Binding, callee: Closure) -> Value | None:
        """What the importer's functions of sequences do, which ONNX has operators for; None for another function."""
        call = binding.value
        assert isinstance(call, ir.Call)
        operator = _OF_SEQUENCES.get(callee.function.name.partition("[")[0])
        if operator is None or not self._element(callee.function.params[0].type)[1]:
            return None
        xs, *others = (self._atom(frame, arg) for arg in call.args)
        held = self._held(g, xs, callee.function.params[0].type)
        dtype = DType.int64 if operator == "SequenceLength" else DType.float32
        return g.node(operator, held, *others, dtype=dtype)  # type: ignore[arg-type]

    def _called(self, g: Graph, callee: Closure, arguments: tuple[Value, ...]) -> Value:
        """The nodes of a function, in place of its call."""
        function, outer = callee.function, callee.frame
        if function in self.running:
            raise RefusedError(
                f"{function.name or 'the function'} calls itself: ONNX has loops (treadle.while_loop), no recursion"
            )
        frame = Frame() if outer is None else Frame(ChainMap({}, outer.vars), ChainMap({}, outer.sizes))
        frame.bind(list(zip(function.params, arguments, strict=True)))
        before = g.sizes
        self.running.append(function)
        try:
            return self._block(g, frame, function.body)
        finally:
            self.running.pop()
            g.sizes = before

    # ---- control flow ----

    def _if(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        branch = binding.value
        assert isinstance(branch, ir.If)
        condition = self._atom(frame, branch.condition)
        assert isinstance(condition, Tensor)
        if condition.array is not None:
            return self._block(g, frame.inside(), branch.then if condition.array else branch.otherwise)
        blocks = (branch.then, branch.otherwise)
        return self._choice(
            g,
            binding,
            condition,
            *(functools.partial(self._block, frame=frame.inside(), block=each) for each in blocks),
        )

    def _choice(self, g: Graph, binding: ir.Binding, condition: Tensor, *branches: Callable[[Graph], Value]) -> Value:
        """The first branch's value where the condition holds, else the second's."""
        names = binding.origin, binding.var.name
        graphs = {}
        for key, branch in zip(("then_branch", "else_branch"), branches, strict=True):
            inner = Graph(self.file, g)
            results = self._tensors_of(inner, branch(inner), binding.var.type)
            graphs[key] = self._inner(inner, key, [], results)
        return self._node(g, "If", [condition], graphs, binding.var.type, names)

    def _loop(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        """The condition is computed before the loop, and at each round's end."""
        loop = binding.value
        assert isinstance(loop, ir.Loop)
        names = binding.origin, binding.var.name
        initial = [self._atom(frame, atom) for atom in loop.initial]
        pairs = zip(initial, loop.variables, strict=True)
        started = [tensor for value, var in pairs for tensor in self._tensors_of(g, value, var.type)]
        before, round_frame = frame.inside(), frame.inside()
        before.bind(list(zip(loop.variables, initial, strict=True)))
        condition = self._block(g, before, loop.condition)
        inner = Graph(self.file, g)
        number, going = self.file.unique("round"), self.file.unique("going")
        inputs = [value_info(number, TensorType(DType.int64)), value_info(going, _TRUTH)]
        states = []
        for var in loop.variables:
            leaves = [Tensor(type_, self.file.unique(name)) for name, type_ in _leaves(var.name, var.type)]  # type: ignore[arg-type]
            inputs += [self._info(each.name, _unsized(each.type)) for each in leaves]
            states.append((var, _built(var.type, iter(leaves))))
        round_frame.bind(states)
        following = self._block(inner, round_frame, loop.body)
        assert isinstance(following, tuple)
        behind = round_frame.inside()
        behind.bind(list(zip(loop.variables, following, strict=True)))
        again = self._block(inner, behind, loop.condition)
        results = self._tensors_of(inner, again, _TRUTH) + self._tensors_of(inner, following, binding.var.type)
        body = self._inner(inner, "body", inputs, results)
        (start,) = self._tensors_of(g, condition, _TRUTH)
        return self._node(g, "Loop", [None, start, *started], {"body": body}, binding.var.type, names)

    def _node(
        self,
        g: Graph,
        operator: str,
        inputs: Sequence[Tensor | None],
        graphs: Mapping[str, Any],
        type_: Type | None,
        names: tuple[str, str],
    ) -> Value:
        g.origin, g.hint = names
        leaves = [each for _, each in _leaves("", type_)]
        made = g.nodes_of(operator, *inputs, count=len(leaves), dtype=DType.float32, **graphs)
        return _built(type_, (dataclasses.replace(each, type=leaf) for each, leaf in zip(made, leaves, strict=True)))  # type: ignore[arg-type]

    def _tensors_of(self, g: Graph, value: Value, type_: Type | None) -> list[Tensor]:
        """The tensors that a value is made of, sequences and optional tensors as such. Raises RefusedError for other values."""
        leaves = [each for _, each in _leaves("", type_)]
        return [self._held(g, each, leaf) for each, leaf in zip(_flat(value), leaves, strict=True)]

    def _held(self, g: Graph, value: Value, type_: Type | None) -> Tensor:
        """A value of a data type that is known now as one of the file."""
        if isinstance(value, Tensor):
            return value
        form, element = self._element(type_)
        if element is None or not isinstance(value, Data):
            raise RefusedError("ONNX's branches and loops give tensors: functions and data types have no form there")
        items = []
        while isinstance(value, Data) and value.fields:
            items.append(value.fields[0])
            value = value.fields[1] if form == "Sequence" else Data("Absent", ())
        options: dict[str, Any] = {"dtype": element.dtype}
        if form == "Optional":
            proto = value_info("", _unsized(element)).type
            made = g.node("Optional", *items, **options, **({} if items else {"type": proto}))
        elif isinstance(value, Tensor):
            made = value
            for each in items[::-1]:
                made = g.node("SequenceInsert", made, each, g.constant(0), **options)
        elif items:
            made = g.node("SequenceConstruct", *items, **options)
        else:
            made = g.node("SequenceEmpty", **options, dtype_=element.dtype.value.onnx)
        return dataclasses.replace(made, type=type_)  # type: ignore[arg-type]

    def _inner(self, g: Graph, name: str, inputs: Sequence[Any], results: Sequence[Tensor]) -> onnx.GraphProto:
        """A graph within a node: its results are its own, and each another one."""
        from onnx import helper

        own, names = {name for node in g.nodes for name in node.output}, list[str]()
        for tensor in results:
            if tensor.name not in own or tensor.name in names:
                g.origin = ""
                tensor = dataclasses.replace(g.node("Identity", tensor), type=tensor.type)
            names.append(tensor.name)
        outputs = [self._info(name, _unsized(tensor.type)) for name, tensor in zip(names, results, strict=True)]
        return helper.make_graph(living(g.nodes, names), name, inputs, outputs)

    # ---- data types ----

    def _construct(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        assert isinstance(binding.value, ir.Construct)
        return Data(binding.value.constructor, tuple(self._atom(frame, arg) for arg in binding.value.args))

    def _match(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        """The clause that fits, if it is known which one that is."""
        match = binding.value
        assert isinstance(match, ir.Match)
        value = self._atom(frame, match.value)
        if isinstance(value, Tensor) and isinstance(value.type, DataType):
            return self._match_held(g, frame, binding, value)
        return self._clause(g, frame, match, value)

    def _clause(self, g: Graph, frame: Frame, match: ir.Match, value: Value) -> Value:
        for pattern, block in match.clauses:
            if _fits(pattern, value, frame):
                return self._block(g, frame.inside(), block)
        raise RefusedError("no clause fits the value")

    def _match_held(self, g: Graph, frame: Frame, binding: ir.Binding, value: Tensor) -> Value:
        """Of a sequence or an optional tensor a run asks whether there is one. Clauses for one case alone fail in the other."""
        form, element = self._element(value.type)
        match = binding.value
        assert isinstance(match, ir.Match)
        assert element is not None
        options = {"dtype": element.dtype}

        def some(g: Graph) -> Value:
            if form == "Optional":
                parts: tuple = (dataclasses.replace(g.node("OptionalGetElement", value, **options), type=element),)
                return self._clause(g, frame, match, Data("Present", parts))
            first = dataclasses.replace(g.node("SequenceAt", value, g.constant(0), **options), type=element)
            rest = dataclasses.replace(g.node("SequenceErase", value, g.constant(0), **options), type=value.type)
            return self._clause(g, frame, match, Data("Item", (first, rest)))

        def none(g: Graph) -> Value:
            return self._clause(g, frame, match, Data("End" if form == "Sequence" else "Absent", ()))

        kinds = [p.constructor if isinstance(p, ir.ConstructorPattern) else "" for p, _ in match.clauses]
        if kinds in (["Item"], ["Present"]):
            return some(g)
        if form == "Optional":
            return self._choice(g, binding, g.node("OptionalHasElement", value, dtype=DType.bool), some, none)
        count = g.node("SequenceLength", value, dtype=DType.int64)
        return self._choice(g, binding, g.node("Greater", count, g.constant(0), dtype=DType.bool), some, none)

    def _import(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        assert isinstance(binding.value, ir.ImportCall)
        raise RefusedError(
            f"the function {binding.value.name!r} is Python's: ONNX calls none; export what is before and behind it"
        )

    def _primitive(self, g: Graph, frame: Frame, binding: ir.Binding) -> Value:
        raise RefusedError("it is a kernel of a CPU: export the module as it was before passes ran")


_HANDLERS: dict[type, Any] = {
    ir.OperatorCall: _Exporter._operator,
    ir.Var: _Exporter._alias,
    ir.Constant: _Exporter._alias,
    ir.GlobalRef: _Exporter._alias,
    ir.MatchShape: _Exporter._match_shape,
    ir.MakeTuple: _Exporter._tuple,
    ir.GetItem: _Exporter._item,
    ir.Function: _Exporter._function,
    ir.Call: _Exporter._call,
    ir.If: _Exporter._if,
    ir.Loop: _Exporter._loop,
    ir.Construct: _Exporter._construct,
    ir.Match: _Exporter._match,
    ir.ImportCall: _Exporter._import,
    ir.PrimitiveCall: _Exporter._primitive,
    ir.MakeClosure: _Exporter._primitive,
}


def _refusal(operator: str) -> str:
    return f"ONNX has no form of {operator}: if a pass made it, export the module as it was before"


def _error(found: list[tuple[str, str, str]]) -> UnsupportedOperatorError:
    lines = [f"  {operator} ({node}): {reason}" for operator, node, reason in found]
    count = "1 node has" if len(found) == 1 else f"{len(found)} nodes have"
    return UnsupportedOperatorError("\n".join([f"to_onnx: {count} no form in ONNX:", *lines]), found)


def _folded(entry: Any, call: ir.OperatorCall, inputs: Sequence[Any], types: Sequence[TensorType]) -> Value | None:
    """Constants that are moved, as importers do with weights, at once."""
    if entry.fusion not in (Fusion.MOVEMENT, Fusion.VIEW) or not inputs:
        return None
    if not all(isinstance(each, Tensor) and each.array is not None for each in inputs):
        return None
    if not all(each.is_static for each in types):
        return None
    room = sum(each.array.nbytes for each in inputs) + _FOLDED_GROWTH
    if sum(each.nbytes for each in types) > room:
        return None
    made = tuple(
        Tensor(type_, array=ir.frozen(array))
        for type_, array in zip(types, entry.evaluate([each.array for each in inputs], call.attributes), strict=True)
    )
    return made if len(made) > 1 else made[0]


def _fits(pattern: ir.Pattern, value: Value, frame: Frame) -> bool:
    """Binds the pattern's variables. Raises RefusedError where these are known only at run time."""
    if isinstance(pattern, ir.Bind):
        frame.vars[pattern.var] = value
        return True
    if isinstance(pattern, ir.Wildcard):
        return True
    if isinstance(pattern, ir.ConstructorPattern):
        if not isinstance(value, Data):
            raise RefusedError(
                "ONNX has no data types, and which constructor made the value a run decides: use treadle.if_"
            )
        if value.constructor != pattern.constructor:
            return False
        value = value.fields
    assert isinstance(value, tuple)
    return all(_fits(part, each, frame) for part, each in zip(pattern.fields, value, strict=True))


# ---- tuples ----


def _leaves(name: str, type_: Type | None) -> Iterator[tuple[str, Type | None]]:
    """The parts of a tuple's type, each with a name."""
    if isinstance(type_, TupleType):
        for place, each in enumerate(type_.fields):
            yield from _leaves(f"{name}_{place}", each)
    else:
        yield name, type_


def _built(type_: Type | None, parts: Iterator[Tensor]) -> Value:
    if isinstance(type_, TupleType):
        return tuple(_built(each, parts) for each in type_.fields)
    return next(parts)


def _flat(value: Value) -> Iterator[Any]:
    if isinstance(value, tuple):
        for each in value:
            yield from _flat(each)
    else:
        yield value


def _tensors(value: Value) -> Iterator[Tensor]:
    return (each for each in _flat(value) if isinstance(each, Tensor))


def _typed(value: Value, type_: Type | None) -> Value:
    """A value with what its variable's type says of it."""
    if isinstance(value, tuple) and isinstance(type_, TupleType):
        return tuple(map(_typed, value, type_.fields))
    if isinstance(value, Tensor) and isinstance(type_, (TensorType, DataType)):
        return dataclasses.replace(value, type=type_)  # type: ignore[arg-type]
    return value


def _placeholder(type_: Type | None) -> Value:
    """A value in place of one that could not be written."""
    if isinstance(type_, TupleType):
        return tuple(map(_placeholder, type_.fields))
    return Tensor(type_, "?") if isinstance(type_, TensorType) else Data("?", ())


def _unsized(type_: Any) -> Any:
    """Without sizes that are not numbers: their names are those of one graph."""
    if not isinstance(type_, TensorType):
        return type_
    return TensorType(type_.dtype, tuple(dim if isinstance(dim, int) else UNKNOWN for dim in type_.shape))
