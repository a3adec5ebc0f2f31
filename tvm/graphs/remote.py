"""The graph executor at a server: what `GraphExecutor(graph, executable, device=treadle.remote(…))` makes.

The graph becomes a program here, as for any executor; its functions run on a machine of the device. What lies between steps, and
outputs, stay at the server. Tensors there are values and not places: one that was handed out stays what it was when a later run
gives another. To be used in place (`set_input_zero_copy`, `set_output_zero_copy`), a tensor lies there: `device.put`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ...formats.dtypes import DType
from ...formats.executable import Executable
from ...formats.messages.errors import ArgumentError, DTypeError, UnknownFunctionError
from ...formats.program import Program
from ...formats.types import TensorType
from ...rpc.tensor import RemoteTensor, call_registered, copied, has_function, put, require_remote, shared, write
from ...vm.device import Device, cpu
from ...vm.machine import VirtualMachine
from ...vm.observe.benchmark import BenchmarkResult, Repeats
from ..files.graph_json import COPY, Graph
from .executor import GraphExecutor, check_shape, exact
from .program import Step

if TYPE_CHECKING:
    from ...rpc.device import RemoteDevice

_SENT_EACH_TIME = 1 << 16  # bytes: inputs up to that travel with each run, larger ones are put there once

Value = Union[np.ndarray, RemoteTensor]


class _Values:
    """What the entries of a graph are, as long as an executor or one of its steps lives."""

    def __init__(self, graph: Graph, roots: Sequence[int]) -> None:
        self._graph, self._roots = graph, roots
        self._by_root: dict[int, Value] = {}

    def __getitem__(self, entry: int) -> Value:
        """The value in the entry's shape: zeros as long as nobody has set or computed it."""
        root = self._roots[entry]
        if root not in self._by_root:
            type_ = self._graph.types[root]
            self._by_root[root] = np.zeros(type_.shape, type_.dtype.numpy)  # type: ignore[arg-type]
        value, shape = self._by_root[root], tuple(self._graph.shapes[entry])
        if value.shape == shape:
            return value
        return value.in_shape(shape) if isinstance(value, RemoteTensor) else value.reshape(shape)

    def __setitem__(self, entry: int, value: Value) -> None:
        self._by_root[self._roots[entry]] = value

    def read(self, entries: Sequence[int]) -> list[Value]:
        """The values of entries as they are now."""
        return [self[entry] for entry in entries]

    def give(self, entries: Sequence[int], result: Any) -> None:
        """The results of a step become the values of entries. Raises ArgumentError, ShapeError, DTypeError for others than the
        graph says."""
        parts = result if isinstance(result, tuple) else (result,)
        if len(parts) != len(entries):
            raise ArgumentError(f"a function of the graph gave {len(parts)} results, expected {len(entries)}")
        for entry, part in zip(entries, parts, strict=True):
            self[entry] = _exact("a result", _value(part), self._graph.types[entry])


class RemoteGraphExecutor(GraphExecutor):
    """A graph at a server. Functions of this process do not travel: a node calls a primitive, or what the server's owner has
    registered."""

    device: RemoteDevice

    def _check_devices(self) -> None:
        self._connection = self.device.connection
        self._targets: dict[int, RemoteTensor] = {}  # by output: where else it is written
        self._check_kinds(1)

    def _find_python(self, names: set[str], find: Any) -> dict[str, Callable[..., Any]]:
        lost = {name for name in names if not has_function(self._connection, name)}
        local = sorted(name for name in lost if find(name) is not None)
        if local:
            raise UnknownFunctionError(
                f"the graph calls {', '.join(map(repr, local[:20]))}: functions of this process do not travel; the server's "
                "owner has registered none of that name"
            )
        return {name: self._registered(name) for name in names - lost}

    def _registered(self, name: str) -> Callable[..., Any]:
        connection = self._connection
        return lambda *args: call_registered(connection, name, args)

    def _make_machine(self, program: Program, executable: Executable | None) -> VirtualMachine | None:
        return VirtualMachine(Executable(program), self.device) if program.functions else None

    # ---- memory ----

    def _allocate(self) -> None:
        """The server allocates, within its bounds."""
        self._values = _Values(self.graph, self._plan.roots)

    def _array(self, entry: int) -> Any:
        return self._values[entry]

    def _point(self, entry: int, array: Any) -> None:
        """From now on a parameter is this value, which is put there if it is here."""
        lies_there = isinstance(array, RemoteTensor)
        self._values[entry] = array if lies_there else shared(self._connection, array)

    def _copy_in(self, entry: int, source: Any) -> None:
        type_ = self.graph.types[entry]
        if isinstance(source, RemoteTensor):
            self._values[entry] = _value(copied(self._connection, source))
            return
        array = np.array(source, type_.dtype.numpy)
        self._values[entry] = array if array.nbytes <= _SENT_EACH_TIME else put(self._connection, array)

    def _copies_into(self, entries: Sequence[int]) -> None:
        """Tensors are values there, and not places."""

    def _exact(self, place: str, value: Any, entry: int) -> Any:
        return _exact(place, value, self.graph.types[entry])

    def _fitting(self, place: str, value: Any, entry: int) -> Any:
        lies_there = isinstance(value, RemoteTensor) and value.handle.connection is self._connection
        return self._exact(place, value, entry) if lies_there else super()._fitting(place, value, entry)

    # ---- parameters and outputs ----

    def set_input_zero_copy(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Has parameters be tensors that lie at the server. Raises ArgumentError for others, ShapeError, DTypeError."""
        for name, each in [*([] if key is None else [(key, value)]), *params.items()]:
            require_remote(self._connection, f"set_input_zero_copy({name!r})", each)
        super().set_input_zero_copy(key, value, **params)

    def set_output_zero_copy(self, key: int | str, value: Any) -> None:
        """Has an output be copied into a tensor that lies at the server (`device.put`), after each run. Raises ArgumentError
        for others, ShapeError, DTypeError."""
        place = f"set_output_zero_copy({key!r})"
        index = self._output("set_output_zero_copy", key)
        tensor = require_remote(self._connection, place, value)
        self._exact(place, tensor, self._outputs[index])
        self._targets[index] = tensor

    def share_params(self, other: GraphExecutor, params_bytes: bytes | bytearray) -> None:
        """As an executor here does; the other one is of the same session."""
        found = getattr(other, "module", other)
        if not isinstance(found, RemoteGraphExecutor) or found._connection is not self._connection:
            raise ArgumentError("share_params: expected a graph executor of the same remote device")
        super().share_params(found, params_bytes)

    def get_output(self, index: int | str, out: Any = None) -> Any:
        """An output as it is now: tensors are values there, and not places. Raises ArgumentError, ShapeError, DTypeError."""
        entry = self._outputs[self._output("get_output", index)]
        return self._handed_out("get_output", index, self._array(entry), out)

    def _handed_out(self, function: str, key: int | str, array: Any, out: Any) -> Any:
        if out is None and isinstance(array, RemoteTensor):
            kind = getattr(self._tensor, "remote_class", None)
            return array if kind is None else array.as_kind(kind())
        if out is None:
            return self._tensor(array.copy())
        if isinstance(out, RemoteTensor):
            raise ArgumentError(f"{function}({key!r}): out lies at a server; set_output_zero_copy writes there")
        return super()._handed_out(function, key, array.array if isinstance(array, RemoteTensor) else array, out)

    # ---- running ----

    def _call(self, step: Step) -> Callable[[], Any]:
        """What runs a step: it reads values as they are then."""
        values = self._values
        if step.function is not None:
            machine, name = self._machine, step.function
            assert machine is not None
            return lambda: values.give(step.writes, machine.call(name, values.read(step.reads)))
        node = self.graph.nodes[step.nodes[0]]
        first = self.graph.row_ptr[step.nodes[0]]
        inputs = [self.graph.number(entry) for entry in node.inputs]
        written = list(range(first, first + node.outputs))
        if node.function == COPY:
            return lambda: values.give(written, values[inputs[0]])
        function = self._python.get(node.function or "")
        if function is None:  # __nop: another shape of the same value
            return lambda: None
        return lambda: values.give(written, function(*values.read(inputs)))

    def _bind(self) -> Callable[[], Any]:
        bound, values, connection, outputs, targets = (
            super()._bind(),
            self._values,
            self._connection,
            self._outputs,
            self._targets,
        )

        def run() -> None:  # as the steps, it does not hold the executor, which keeps it
            bound()
            for index, target in targets.items():
                write(connection, values[outputs[index]], target)

        self._bound = run
        return run

    def run_from_inputs(self, device_type: int, device_id: int, *inputs: Any) -> list[Any]:
        super().run_from_inputs(device_type, device_id, *inputs)
        return [self.get_output(index) for index in range(len(self._outputs))]

    def timed(
        self, func_name: str, dev: Device, repeats: Repeats, cache_flush_bytes: int = 0, f_preproc: str = ""
    ) -> Callable[..., BenchmarkResult]:
        """For `run` of a graph without the owner's functions, times at the server; for anything else, times here, network
        included."""
        step = self._plan.steps[0] if len(self._plan.steps) == 1 else None
        machine: Any = self._machine
        if func_name != "run" or step is None or step.function is None:
            return super().timed(func_name, cpu(), repeats, cache_flush_bytes, f_preproc)
        given = repeats.number, repeats.repeat, repeats.min_repeat_ms, repeats.cooldown_interval_ms
        timed = machine.time_evaluator(step.function, self.device, *given)

        def evaluate(**inputs: Any) -> BenchmarkResult:
            if inputs:
                self._set_each(inputs)
            return timed(*map(self._array, step.reads))

        return evaluate


GraphExecutor.elsewhere = RemoteGraphExecutor


def _exact(place: str, value: Any, type_: TensorType) -> Any:
    """The value, if it is of that very type."""
    if not isinstance(value, RemoteTensor):
        return exact(place, value, type_)
    check_shape(place, value, type_)
    if DType.of(value.element_type) is not type_.dtype:
        raise DTypeError(f"{place}: expected {type_.dtype.name}, got {value.dtype}; it is used in place")
    return value


def _value(found: Any) -> Value:
    """What came from the server: there, or here."""
    return found if isinstance(found, RemoteTensor) else np.asarray(found)
