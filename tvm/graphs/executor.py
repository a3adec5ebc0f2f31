"""The graph executor: a graph JSON, bound to memory, that runs again and again.

    executor = GraphExecutor(graph_json, executable)
    executor.set_input("x", x)
    executor.run()
    y = executor.get_output(0)

It is no second engine: `program.py` makes functions of the machine of what the executable has as primitives; only nodes
that call Python's functions lie between. All is bound before the first run (`vm/bound.py`): a run allocates nothing, and looks at
nothing. Parameters, outputs and what one step leaves for another are arrays of the executor's, or of the user's where they were
handed over to be used in place; those are kept alive as long as they are in use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from ...formats import limits
from ...formats.executable import Executable
from ...formats.messages.calling import warn_user
from ...formats.messages.errors import ArgumentError, DTypeError, ExecutionError, OutOfMemoryError, ShapeError
from ...formats.messages.names import near
from ...formats.param_dict import load_param_dict
from ...formats.program import Program
from ...formats.types import TensorType
from ...vm.bound import bind_copies
from ...vm.device import Device, cpu
from ...vm.in_process import InProcess
from ...vm.machine import VirtualMachine
from ...vm.memory import pinned
from ...vm.observe.benchmark import BenchmarkResult, Repeats
from ...vm.tensor import Tensor
from ..files.graph_json import COPY, NOP, Graph, parse_graph
from ..modules.module import Module
from ..runtime.arguments import integers_as
from .graph_weights import GraphWeights
from .names import own_names
from .program import GraphProgram, Step, make_program

_PLANS = 64  # of inputs that are set at once; a program that sets others each time does without

Function = Callable[..., Any]
Find = Callable[[str], Union[Function, None]]  # a function of the user's by its name, None for an unknown one


# what `executor[name]` gives, by TVM's names
_FUNCTIONS = """
    benchmark debug_get_output get_input get_input_index get_input_info get_num_inputs get_num_outputs get_output
    load_params run run_from_inputs set_input set_input_zero_copy set_output_zero_copy share_params time_evaluator
"""


class GraphExecutor(InProcess, Module):
    """A graph, linked and bound. One thread at a time sets, runs and gets; executors share what `share_params` says alone."""

    instead = "make another one of the graph"

    type_key = "GraphExecutor"
    functions: tuple[str, ...] = tuple(_FUNCTIONS.split())

    elsewhere: type[GraphExecutor]  # the class of those at a server, which `remote.py` says

    def __new__(cls, graph: Any = None, executable: Any = None, device: Any = None, **_: Any) -> GraphExecutor:
        """A device that is elsewhere has executors of its own class, which has this interface."""
        is_elsewhere = cls is GraphExecutor and hasattr(device, "connection")
        return object.__new__(GraphExecutor.elsewhere if is_elsewhere else cls)

    def __init__(
        self,
        graph: Graph | str,
        executable: Executable | None = None,
        device: Device | None = None,
        *,
        find: Find = lambda name: None,
        params: Mapping[str, np.ndarray] | None = None,
        weights: GraphWeights | None = None,
        tensor: Callable[[np.ndarray], Tensor] = Tensor,
    ) -> None:
        """Links the graph's functions: primitives of `executable`, then what `find` gives. Parameters start as zeros, or as the
        read-only arrays of `params`, which are not copied; `weights` makes them of others. `tensor` makes what is handed out.

        A function of Python's is called with a tensor for each input, then for each output, which it writes; or it returns what
        the outputs are to be. Raises FormatError, UnknownFunctionError with all functions that are missing, DTypeError,
        VerificationError for a node that does not fit its primitive, and what VirtualMachine raises.
        """
        super().__init__()
        self.graph = graph if isinstance(graph, Graph) else parse_graph(graph)
        self.device = device or cpu()
        self._check_devices()
        primitives = () if executable is None else executable.program.primitives
        names = {node.function for node in self.graph.nodes if node.function not in (None, NOP, COPY)}
        own = own_names(primitives)
        self._python = self._find_python(names - own.keys() - set(own.values()), find)
        self._plan = self._make_plan(primitives, self._python)
        self._machine = self._make_machine(self._plan.program, executable)
        self._tensor = tensor
        self._inputs = {
            name: self.graph.row_ptr[n] for name, n in zip(self.graph.names, self.graph.arg_nodes, strict=True)
        }
        self._outputs = [self.graph.number(head) for head in self.graph.heads]
        self._output_names = self._names_of_outputs()
        self._weights = weights
        self._params = set(params or ()) & self._inputs.keys()  # names of those that are not inputs to users
        self._arrays: dict[
            int, np.ndarray
        ] = {}  # by entry: the memory of parameters, outputs and what lies between steps
        self._foreign: set[int] = set()  # entries whose memory is not the executor's to write to
        self._given: dict[int, int] = {}  # entry → the output for whose sake it lies in memory of the user's
        self._copied: dict[int, np.ndarray] = {}  # outputs that are copied after each run
        self._copies: dict[tuple, Callable[[tuple], Any] | None] = {}  # by names or indices: what sets them at once
        self._seen: dict[Any, np.ndarray] = {}  # by name or index: outputs that were asked for
        self._bound: Callable[[], Any] | None = None  # runs all steps; None: to be made anew
        self._steps: tuple[Callable[[], Any], ...] = ()
        self._allocate()
        for name in self._params:
            self._point(self._inputs[name], self._exact(f"params[{name!r}]", params[name], self._inputs[name]))  # type: ignore[index]

    def _find_python(self, names: set[str], find: Find) -> dict[str, Function]:
        """The functions of Python's of these names."""
        found = {name: find(name) for name in names}
        return {name: function for name, function in found.items() if function is not None}

    def _make_machine(self, program: Program, executable: Executable | None) -> VirtualMachine | None:
        """The machine of a graph's functions, whose native code comes with the primitives."""
        if not program.functions:
            return None
        made = Executable(program)
        if executable is None:
            return VirtualMachine(made)
        return VirtualMachine(made.with_native_of(executable))

    def _make_plan(self, primitives: tuple, python: Mapping[str, Any]) -> GraphProgram:
        return make_program(self.graph, primitives, python)

    def _check_devices(self) -> None:
        if not isinstance(self.device, Device):
            raise ArgumentError(f"GraphExecutor: expected a device, got {self.device!r}")
        if self.device.session:
            raise ArgumentError(
                f"{self.type_key}: {self.device!r} is remote, and this executor runs nodes one by one, in this process; a "
                "machine of the device has profile(…)"
            )
        self._check_kinds(self.device.device_type)

    def _check_kinds(self, own: int) -> None:
        """Raises ArgumentError for a graph of another device than the CPU."""
        for kind in {*(self.graph.device_types or ()), own}:
            if kind != cpu().device_type:
                raise ArgumentError(
                    f"GraphExecutor: the graph wants a device of type {kind}; there is cpu(0), of type 1, alone"
                )

    def _names_of_outputs(self) -> dict[str, int]:
        """By "node:index", and for the first result of a node by its name alone."""
        names: dict[str, int] = {}
        for index, head in enumerate(self.graph.heads):
            name = self.graph.nodes[head.node].name
            names.setdefault(f"{name}:{head.index}", index)
            if head.index == 0:
                names.setdefault(name, index)
        return names

    # ---- memory ----

    def _allocate(self) -> None:
        """Zeros for outputs and for what lies between steps. There, tensors share memory by their storage, unless one step reads
        one of them and writes another. Raises OutOfMemoryError, before anything is made, where the machine has no room."""
        graph, steps = self.graph, self._plan.steps
        outputs = {self._plan.roots[entry] for entry in self._outputs}
        pools: dict[int, int] = {}
        places: dict[int, int] = {}
        for step in steps:
            read = {self._storage(self._plan.roots[entry]) for entry in step.reads}
            for entry in step.writes:
                storage = self._storage(entry)
                place = -1 - entry if entry in outputs or storage in read else storage
                places[entry], pools[place] = place, max(pools.get(place, 0), graph.types[entry].nbytes)
        inputs = (graph.types[entry].nbytes for name, entry in self._inputs.items() if name not in self._params)
        needed, there = sum(pools.values()) + sum(inputs), cpu().total_global_memory
        if there is not None and needed > there:
            raise OutOfMemoryError(f"the graph's tensors take {needed} bytes; the machine has {there}")
        memory = {place: _zeros(size) for place, size in pools.items()}
        for entry, place in places.items():
            self._arrays[entry] = _as(memory[place], graph.types[entry])
        self._made = frozenset(places)

    def _storage(self, entry: int) -> int:
        """Which memory between steps is an entry's."""
        return self.graph.storage_ids[entry]

    def _new(self, entry: int) -> np.ndarray:
        type_ = self.graph.types[entry]
        return _as(_zeros(type_.nbytes), type_)

    def _array(self, entry: int) -> np.ndarray:
        """Where an entry's elements are, in its shape."""
        root = self._plan.roots[entry]
        if root not in self._arrays:
            self._arrays[root] = self._new(root)  # a parameter that nobody has set
        array = self._arrays[root]
        return array if root == entry else array.reshape(self.graph.shapes[entry])

    def _point(self, entry: int, array: np.ndarray) -> None:
        """From now on a parameter lies in foreign memory. Raises ArgumentError where a step writes there."""
        written = [*(self._arrays[each] for each in self._made), *self._copied.values()]
        if any(np.may_share_memory(array, each) for each in written):
            raise ArgumentError(
                "this memory is an output's, or what a node writes; a parameter needs memory of its own"
            )
        self._arrays[entry] = array
        self._foreign.add(entry)
        self._unbind()

    # ---- parameters ----

    def _input(self, function: str, key: int | str) -> int:
        """The entry of a parameter."""
        if isinstance(key, str) and key in self._inputs:
            return self._inputs[key]
        if isinstance(key, (int, np.integer)) and 0 <= key < len(self._inputs):
            return self.graph.row_ptr[self.graph.arg_nodes[key]]
        known = ", ".join(self._inputs) or "none"
        raise ArgumentError(f"{function}: Could not find {key!r} in graph's inputs; there are {known}")

    def set_input(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Copies the elements of arrays, tensors or lists into parameters, one by its name or index and any by their names; of
        these, names that the graph lacks are warned of and left out, as all the weights of a model's importer may be given.
        Weights may have their names in the model: what was made of them is made anew.

        An array is converted where its kind of number allows it (float64 to float32, but not to int32), whole numbers where all
        fit; a tensor must have the parameter's element type. Nothing is set unless all fits. Raises ArgumentError for an unknown
        `key`, ShapeError, DTypeError.
        """
        names, values = (
            (tuple(params), tuple(params.values())) if key is None else ((key, *params), (value, *params.values()))
        )
        copies = self._copies.get(names)
        if copies is None or copies(values) is not None:  # they need a closer look
            self._set_each(params, key, value)

    def _set_each(self, params: Mapping[str, Any], key: int | str | None = None, value: Any = None) -> None:
        known = self._known(params)
        given: dict[Any, Any] = known if key is None else {key: value, **known}
        weights = {name: each for name, each in given.items() if self._is_weight(name)}
        entries = {name: self._input("set_input", name) for name in given if name not in weights}
        fitting = {entry: self._fitting(f"set_input({name!r})", given[name], entry) for name, entry in entries.items()}
        self._take_weights(weights)
        for entry, source in fitting.items():
            self._copy_in(entry, source)
        names = tuple(given)
        if not weights and names not in self._copies and len(self._copies) < _PLANS:
            self._copies[names] = self._copies_into(list(entries.values()))

    def _copies_into(self, entries: Sequence[int]) -> Callable[[tuple], Any] | None:
        """What copies elements to where parameters lie until steps are bound anew; None where they do not stay there."""
        return bind_copies([self._array(entry) for entry in entries])

    def _known(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the parameters that the graph has. Warns of the others."""
        unknown = [name for name in params if name not in self._inputs and not self._is_weight(name)]
        if unknown:
            names, known = (", ".join(each[:10]) + " …" * (len(each) > 10) for each in (unknown, list(self._inputs)))
            warn_user(f"set_input: the graph has no {names}: left out; it has {known}{near(unknown[0], self._inputs)}")
        return {name: each for name, each in params.items() if name not in unknown}

    def _is_weight(self, name: object) -> bool:
        """Whether that is a weight's name in the model, and no parameter's."""
        return (
            self._weights is not None and isinstance(name, str) and name in self._weights and name not in self._inputs
        )

    def _take_weights(self, given: Mapping[str, Any]) -> None:
        if given:
            assert self._weights is not None
            for name, array in self._weights.made(given).items():
                self._point(self._inputs[name], self._exact(f"weight {name!r}", array, self._inputs[name]))

    def _copy_in(self, entry: int, source: np.ndarray) -> None:
        if entry in self._foreign:
            self._foreign.discard(entry)
            self._arrays[entry] = self._new(entry)
            self._unbind()
        np.copyto(self._array(entry), source, casting="same_kind")

    def set_input_zero_copy(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Has parameters lie where the user's arrays or tensors lie, which are kept alive. They must have the parameter's shape
        and element type, and be contiguous; what is written into them later, the next run reads. `set_input` copies into memory
        of the executor's again. Raises ArgumentError, ShapeError, DTypeError."""
        pairs = [] if key is None else [(key, value)]
        fitting = []
        for name, each in [*pairs, *params.items()]:
            entry = self._input("set_input_zero_copy", name)
            fitting.append((entry, self._exact(f"set_input_zero_copy({name!r})", each, entry)))
        for entry, array in fitting:
            self._point(entry, array)

    def get_input(self, index: int | str, out: Any = None) -> Any:
        """A parameter as it lies there: what is written into it, the next run reads. None for an unknown name. With
        `out`, a copy in there."""
        if isinstance(index, str) and index not in self._inputs:
            return None
        return self._handed_out("get_input", index, self._array(self._input("get_input", index)), out)

    def get_input_index(self, name: str) -> int:
        """The index of a parameter, -1 for an unknown name."""
        return list(self._inputs).index(name) if name in self._inputs else -1

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Shapes and element types of the parameters that nobody has given weights for, by `params`, `load_params` or
        `share_params`."""
        entries = {name: entry for name, entry in self._inputs.items() if name not in self._params}
        types = {name: self.graph.types[entry] for name, entry in entries.items()}
        return {name: type_.shape for name, type_ in types.items()}, {name: t.dtype.name for name, t in types.items()}  # type: ignore[misc]

    def get_num_inputs(self) -> int:
        """How many parameters there are, weights included."""
        return len(self._inputs)

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Copies the weights of a parameter file; those that the graph does not have are ignored. Raises FormatError for
        bytes that are no such file, ShapeError, DTypeError."""
        loaded = load_param_dict(params_bytes)
        known = {name: array for name, array in loaded.items() if name in self._inputs}
        weights = {name: array for name, array in loaded.items() if self._is_weight(name)}
        fitting = {
            name: self._fitting(f"load_params: {name!r}", array, self._inputs[name]) for name, array in known.items()
        }
        self._take_weights(weights)
        for name, array in fitting.items():
            self._copy_in(self._inputs[name], array)
        self._params |= known.keys()

    def share_params(self, other: GraphExecutor, params_bytes: bytes | bytearray) -> None:
        """Has the weights that a parameter file names, and both graphs have, lie where another executor's lie. Raises
        ArgumentError, ShapeError, DTypeError."""
        other = getattr(other, "module", other)
        if not isinstance(other, GraphExecutor):
            raise ArgumentError(f"share_params: type_key must be GraphExecutor, got a {type(other).__name__}")
        named = load_param_dict(params_bytes)
        names = {name for name in named if name in self._inputs and name in other._inputs}
        if self._weights is not None and self._weights.is_like(other._weights):
            names |= self._weights.made_of(list(filter(self._is_weight, named)))
        shared = {name: other._array(other._inputs[name]) for name in names}
        for name, array in shared.items():
            self._exact(f"share_params: {name!r}", array, self._inputs[name])
        for name, array in shared.items():
            self._point(self._inputs[name], array)
        self._params |= shared.keys()

    # ---- outputs ----

    def _output(self, function: str, key: int | str) -> int:
        """The index of an output."""
        if isinstance(key, str) and key in self._output_names:
            return self._output_names[key]
        if isinstance(key, (int, np.integer)) and 0 <= key < len(self._outputs):
            return int(key)
        known = ", ".join(name for name in self._output_names if ":" in name) or "none"
        raise ArgumentError(
            f"{function}: Invalid output node: {key!r}; there are {len(self._outputs)} outputs: {known}"
        )

    def set_output_zero_copy(self, key: int | str, value: Any) -> None:
        """Has an output be made where the user's array or tensor lies, which is kept alive. It must have the output's shape and
        element type, be contiguous and writeable, and share no memory with parameters and other outputs. Raises ArgumentError,
        ShapeError, DTypeError."""
        index = self._output("set_output_zero_copy", key)
        place = f"set_output_zero_copy({key!r})"
        entry = self._outputs[index]
        root = self._plan.roots[entry]
        array = self._exact(place, value, entry)
        if not array.flags.writeable:
            raise ArgumentError(f"{place}: expected memory that may be written to; this is read-only")
        others = [each for at, each in self._arrays.items() if at != root]
        if any(np.may_share_memory(array, each) for each in [*others, *self._copied.values()]):
            raise ArgumentError(f"{place}: this memory is a parameter's or another output's; give memory of its own")
        if root in self._inputs.values() or self._given.get(root, index) != index:
            self._copied[index] = array  # a parameter that is an output too, or one tensor that is two outputs
            self._unbind()
            return
        self._given[root] = index
        self._arrays[root] = array.reshape(self.graph.shapes[root])
        self._unbind()

    def get_output(self, index: int | str, out: Any = None) -> Any:
        """An output as it lies there: the next run writes into it. With `out`, a copy in there. The index is a number, or
        "node:index". Raises ArgumentError, ShapeError, DTypeError."""
        array = self._seen.get(index) if isinstance(index, (int, str)) else None
        if array is None:
            number = self._output("get_output", index)
            array = self._copied.get(number)
            array = self._seen[index] = self._array(self._outputs[number]) if array is None else array
        return self._tensor(array) if out is None else self._handed_out("get_output", index, array, out)

    def get_num_outputs(self) -> int:
        return len(self._outputs)

    # ---- running ----

    def run(self, **inputs: Any) -> None:
        """Computes the outputs from the parameters, some of which may be set before."""
        copies = self._copies.get(tuple(inputs)) if inputs else None
        if inputs and (copies is None or copies(tuple(inputs.values())) is not None):
            self._set_each(inputs)  # set_input has parameters of its own, called key and value
        (self._bound or self._bind())()

    def run_from_inputs(self, device_type: int, device_id: int, *inputs: Any) -> list[Any]:
        """Copies parameters, given as a name and a value one after the other, runs, and copies the outputs out."""
        names, values = inputs[::2], inputs[1::2]
        for name in names:
            if name not in self._inputs:
                raise ArgumentError(f"run_from_inputs: {name!r} is not a valid input name")
        if len(names) != len(values):
            raise ArgumentError("run_from_inputs: expected a value behind each name")
        self.run(**dict(zip(names, values, strict=True)))
        return [self._tensor(self.get_output(index).array.copy()) for index in range(len(self._outputs))]

    def debug_get_output(self, node: int | str, out: Any = None) -> Any:
        raise NotImplementedError("Please use debugger.debug_executor as graph_executor instead.")

    def benchmark(
        self,
        device: Device | None = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        **inputs: Any,
    ) -> BenchmarkResult:
        """How long a run takes; `end_to_end`, with the inputs copied in and the outputs out each time."""
        repeats = Repeats(
            number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown
        )
        if end_to_end:
            pairs = [part for pair in inputs.items() for part in pair]
            return self.time_evaluator("run_from_inputs", device or self.device, **vars(repeats))(
                self.device.device_type, 0, *pairs
            )
        if inputs:
            self._set_each(inputs)
        return self.time_evaluator(func_name, device or self.device, **vars(repeats))()

    def _bind(self) -> Callable[[], Any]:
        """Binds all steps to where their tensors lie now."""
        self._steps = tuple(map(self._call, self._plan.steps))
        calls = list(self._steps)  # none of them holds the executor, which keeps them
        calls += [functools.partial(_copy, to, self._array(self._outputs[at])) for at, to in self._copied.items()]
        self._bound = calls[0] if len(calls) == 1 else _in_turn(calls)
        return self._bound

    def _unbind(self) -> None:
        """Tensors lie elsewhere now: steps are bound anew before they run."""
        self._bound = None
        self._copies.clear()
        self._seen.clear()

    def _calls(self) -> tuple[Callable[[], Any], ...]:
        """What runs each step."""
        if self._bound is None:
            self._bind()
        return self._steps

    def _call(self, step: Step) -> Callable[[], Any]:
        reads = [self._array(entry) for entry in step.reads]
        writes = [self._array(entry) for entry in step.writes]
        if step.function is not None:
            assert self._machine is not None
            return self._machine.bind(step.function, reads, writes)
        node = self.graph.nodes[step.nodes[0]]
        inputs = [self._array(self.graph.number(entry)) for entry in node.inputs]
        if node.function == NOP:
            return lambda: None
        if node.function == COPY:
            return functools.partial(_copy, writes[0], inputs[0])
        assert node.function is not None
        return _python_call(node.name, self._python[node.function], inputs, writes, self._tensor, node.flatten)

    # ---- what comes from outside ----

    def _exact(self, place: str, value: Any, entry: int) -> np.ndarray:
        """The array of a value, in place, if it is of the very type of an entry."""
        return exact(place, value, self.graph.types[entry])

    def _fitting(self, place: str, value: Any, entry: int) -> np.ndarray:
        """An array that can be copied into an entry."""
        type_ = self.graph.types[entry]
        try:
            array = _array_of(place, value) if hasattr(value, "__dlpack__") else np.asarray(value)
        except ValueError as error:
            raise ArgumentError(f"{place}: expected {type_}: {error}") from None
        check_shape(place, array, type_)
        array = array if isinstance(value, Tensor) else integers_as(array, type_)
        rule = "no" if isinstance(value, Tensor) else "same_kind"
        if array.size and not np.can_cast(array.dtype, type_.dtype.numpy, rule):  # type: ignore[arg-type]
            raise DTypeError(f"{place}: expected {type_.dtype.name}, got {array.dtype}; convert it with astype")
        return array

    def _handed_out(self, function: str, key: int | str, array: np.ndarray, out: Any) -> Any:
        if out is None:
            return self._tensor(array)
        place = f"{function}({key!r})"
        target = _array_of(place, out)
        if target.shape != array.shape:
            raise ShapeError(f"{place}: array shape do not match the shape of NDArray {array.shape} vs {target.shape}")
        if target.dtype != array.dtype:
            raise DTypeError(f"{place}: out has elements of {target.dtype}, expected {array.dtype}")
        if not target.flags.writeable:
            raise ArgumentError(f"{place}: out is read-only")
        np.copyto(target, array)
        return out

    # ---- as a module ----

    def function_names(self) -> list[str]:
        return [*self.functions, *super().function_names()]

    def find(self, name: str) -> Callable[..., Any] | None:
        """A method by its name."""
        return getattr(self, name) if name in self.functions else super().find(name)


def exact(place: str, value: Any, type_: TensorType) -> np.ndarray:
    """The array of a value, in place, if it is of that very type. Raises ShapeError, DTypeError, ArgumentError."""
    array = _array_of(place, value)
    check_shape(place, array, type_)
    if array.dtype != type_.dtype.numpy or not array.dtype.isnative:
        raise DTypeError(f"{place}: expected {type_.dtype.name}, got {array.dtype}; it is used in place")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ArgumentError(f"{place}: expected contiguous elements at their natural alignment; it is used in place")
    return array


def check_shape(place: str, array: np.ndarray | Tensor, type_: TensorType) -> None:
    """Raises ShapeError for another shape than the type's."""
    if array.shape != type_.shape:
        raise ShapeError(f"{place}: array shape do not match the shape of NDArray {array.shape} vs {type_.shape}")


def _zeros(size: int) -> np.ndarray:
    """Bytes at a multiple of 64, of pages that take no memory until written. Raises OutOfMemoryError."""
    try:
        space = np.zeros(size + limits.ALIGNMENT, np.uint8)
    except MemoryError:
        raise OutOfMemoryError(f"the system has no memory for a tensor of {size} bytes") from None
    start = -space.ctypes.data % limits.ALIGNMENT
    return space[start : start + size]


def _as(memory: np.ndarray, type_: TensorType) -> np.ndarray:
    """The tensor of a type at the beginning of some memory."""
    return memory[: type_.nbytes].view(type_.dtype.numpy).reshape(type_.shape)  # type: ignore[arg-type]


def _copy(target: np.ndarray, source: np.ndarray) -> None:
    np.copyto(target, source, casting="no")


def _in_turn(calls: list[Callable[[], Any]]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run


def _array_of(place: str, value: Any) -> np.ndarray:
    """The array of a tensor, or of what hands its memory over."""
    if isinstance(value, Tensor):
        return value.array
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        from ...vm.dlpack import import_dlpack

        return import_dlpack(value)
    raise ArgumentError(f"{place}: expected a tensor or an array, got a {type(value).__name__}")


def _python_call(
    name: str,
    function: Callable[..., Any],
    inputs: list[np.ndarray],
    outputs: list[np.ndarray],
    tensor: Callable[[np.ndarray], Tensor],
    flatten: bool,
) -> Callable[[], None]:
    """A call of a function of the user's: inputs, then outputs, which it writes; or it returns them."""
    arrays = [*inputs, *outputs]
    tensors = [tensor(array.reshape(-1) if flatten else array) for array in arrays]
    pins = [pinned(array) for array in arrays]

    def call() -> None:
        _ = pins
        given = function(*tensors)
        if given is None:
            return
        results = given if isinstance(given, (tuple, list)) else (given,)
        if len(results) != len(outputs):
            raise ExecutionError(f"the function returned {len(results)} values; expected {len(outputs)}", node=name)
        for result, output in zip(results, outputs, strict=True):
            array = result.array if isinstance(result, Tensor) else np.asarray(result)
            if array.dtype != output.dtype or array.size != output.size:
                got, wanted = f"{array.dtype}{list(array.shape)}", f"{output.dtype}{list(output.shape)}"
                raise ExecutionError(f"the function returned {got}; expected {wanted}", node=name)
            if array.ctypes.data != output.ctypes.data:
                np.copyto(output, array.reshape(output.shape))

    return call
