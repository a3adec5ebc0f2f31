"""Calls from Python: arguments of all kinds, results that belong to the caller, errors that say what was given."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest
from treadle.formats.messages.errors import ArgumentError, DTypeError, ExecutionError, ShapeError, UnknownFunctionError
from treadle.vm import context
from treadle.vm.calls import Calls
from treadle.vm.device import cpu
from treadle.vm.layout import CONTEXT, LARGE, MAX_LARGE
from treadle.vm.places import Place
from treadle.vm.tensor import Tensor

pytestmark = pytest.mark.usefixtures("no_leak")

ADD = """
prim add(%0: float32[2, 2], %1: float32[2, 2]) -> float32[2, 2] {
  %2 = add(%0, %1) : float32[2, 2]
  return %2
}

func @main(x: float32[2, 2], y: float32[2, 2]) -> float32[2, 2] {
  alloc_tensor r2, float32[2, 2]
  call add (r0, r1) -> (r2)
  ret r2
}

func @same(x: float32[2, 2]) -> float32[2, 2] {
  ret r0
}

func @sized(x: float32[n]) -> int64[1] {
  shape_of (i0), r0
  make_shape r1, [i0]
  ret r1
}

func @integer(n: int8[]) -> int8[] {
  ret r0
}

func @real(x: float16[]) -> float16[] {
  ret r0
}
"""
X = np.array([[1, 2], [3, 4]], np.float32)
Y = X * 10


@pytest.fixture
def vm(machine):
    return machine(ADD)


@pytest.mark.parametrize(
    "x",
    [
        X,
        np.asfortranarray(X),
        np.stack([X, X], axis=2)[:, :, 0],
        X.astype(">f4"),
        X.tolist(),
        ((1, 2), (3, 4)),
        memoryview(X),
        Tensor(X),
        np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 2),
    ],
    ids=["array", "column-major", "strided", "byte-swapped", "lists", "tuples", "buffer", "tensor", "unaligned"],
)
def test_arguments_of_all_kinds(vm, x):
    assert np.array_equal(vm["main"](x, Y), X + Y)


def test_dlpack_argument(vm):
    class Foreign:
        def __dlpack__(self, **options):
            return X.__dlpack__(**options)

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    assert np.array_equal(vm["main"](Foreign(), Y), X + Y)


def test_keyword_arguments(vm):
    assert np.array_equal(vm["main"](y=Y, x=X), X + Y)
    assert np.array_equal(vm["main"](X, y=Y), X + Y)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "text"),
    [
        ((X,), {}, ArgumentError, "main(x, y): no value for y"),
        ((X, Y, X), {}, ArgumentError, "2 arguments expected, got 3"),
        ((X, Y), {"z": X}, ArgumentError, "'z' is not a parameter"),
        ((X, Y), {"x": X}, ArgumentError, "'x' is given twice"),
        ((X, Y.astype(np.float64)), {}, DTypeError, "main(y): expected float32[2, 2], got float64"),
        ((X[0], Y), {}, ShapeError, "main(x): expected float32[2, 2], got float32[2]"),
        ((X[:1], Y), {}, ShapeError, "main(x): expected float32[2, 2], got float32[1, 2]"),
        ((X, "text"), {}, ArgumentError, "main(y): expected float32[2, 2], got a value of type str"),
        ((X, None), {}, ArgumentError, "got a value of type NoneType"),
        ((X, [[1, 2], [3]]), {}, ShapeError, "lists of different lengths"),
        ((X, np.array([[object()]])), {}, DTypeError, "got an array of object"),
    ],
)
def test_wrong_arguments(vm, args, kwargs, error, text):
    with pytest.raises(error) as raised:
        vm["main"](*args, **kwargs)
    assert text in str(raised.value)
    assert np.array_equal(vm["main"](X, Y), X + Y)  # usable afterwards


@pytest.mark.parametrize("number", [0, -128, 127, True, np.int8(5)])
def test_integers_that_fit(vm, number):
    assert vm["integer"](number).item() == number


@pytest.mark.parametrize("number", [128, -129, 1.5, 1 << 70, np.int16(5)])
def test_numbers_that_do_not_fit(vm, number):
    with pytest.raises(DTypeError, match=r"integer\(n\)"):
        vm["integer"](number)


def test_integers_become_floats_when_exact(vm):
    assert vm["real"](2048).item() == 2048.0
    with pytest.raises(DTypeError, match="does not hold 2049"):
        vm["real"](2049)


def test_floats_are_rounded_to_the_parameters_type(vm):
    assert vm["real"](0.1).item() == float(np.float16(0.1))


def test_unknown_function(vm):
    with pytest.raises(UnknownFunctionError, match="'nope'; the executable has main, same"):
        vm["nope"]


def test_results_are_not_touched_by_later_calls(vm):
    first = vm["main"](X, Y)
    copy = first.numpy().copy()
    for _ in range(10):
        vm["main"](Y, Y)
    assert np.array_equal(first, copy)


def test_a_returned_argument_is_a_copy(vm):
    x = X.copy()
    result = vm["same"](x)
    x[:] = 0
    assert np.array_equal(result, X)


def test_a_result_outlives_its_machine(machine):
    result = machine(ADD)["same"](X)
    gc.collect()
    assert np.array_equal(result, X)


@pytest.mark.parametrize("size", [2, 10_000])
def test_a_constant_that_is_returned(machine, size):
    numbers = ", ".join(["1.5"] * size)
    text = (
        f"const c float32[{size}] = [{numbers}]\nfunc @main() -> float32[{size}] {{\n  load_const r0, c\n  ret r0\n}}"
    )
    vm = machine(text)
    result = vm["main"]().numpy()
    if result.flags.writeable:  # small ones are copied
        result[:] = 0
    assert (vm["main"]().numpy() == 1.5).all()
    del vm
    gc.collect()
    assert result.shape == (size,)  # its memory outlives the machine
    assert result.sum() in (0, 1.5 * size)


def test_large_results_are_handed_over(machine):
    vm = machine("func @main(x: float32[n]) -> float32[?] {\n  ret r0\n}")
    x = np.arange(100_000, dtype=np.float32)
    before = context.live_bytes()
    result = vm["main"](x).numpy()
    assert context.live_bytes() >= before + x.nbytes
    result[:] = 0  # it is the caller's own
    assert np.array_equal(vm["main"](x), x)
    part = result[5:]
    del result
    assert context.live_bytes() >= before + x.nbytes  # any array of it keeps it
    del part
    assert context.live_bytes() == before


def test_what_a_result_holds_is_counted_while_its_machine_is_collected(machine):
    class Observer:
        def __del__(self):
            counted.append(context.live_bytes())

    gc.collect()
    counted: list[int] = []
    before, x = context.live_bytes(), np.arange(100_000, dtype=np.float32)
    observer = Observer()
    observer.vm = machine("func @main(x: float32[n]) -> float32[?] {\n  ret r0\n}")
    observer.itself, result = observer, observer.vm["main"](x).numpy()
    del observer
    gc.collect()
    assert counted[0] >= before + x.nbytes
    del result
    assert context.live_bytes() == before


def test_the_parts_of_a_tuple_are_the_callers_own(machine):
    text = """
    func @main(x: float32[n]) -> (float32[?], float32[?]) {
      device_copy r1, r0, 0
      alloc_data r2, (float32[?], float32[?]), 0 (r0, r1)
      ret r2
    }
    """
    for count in (3, 100_000):
        x = np.arange(count, dtype=np.float32)
        for part in machine(text)["main"](x):
            assert np.array_equal(part, x)
            part.numpy()[:] = 0


def test_wrong_sizes_of_dynamic_parameters(machine):
    vm = machine("func @main(x: float32[n, 2], y: float32[3]) -> float32[3] {\n  ret r1\n}")
    assert vm["main"](np.ones((5, 2), np.float32), np.ones(3, np.float32)).shape == (3,)
    with pytest.raises(ShapeError, match=r"main\(x\): expected float32\[n, 2\], got float32\[5, 3\]"):
        vm["main"](np.ones((5, 3), np.float32), np.ones(3, np.float32))
    with pytest.raises(ShapeError, match=r"main\(y\)"):
        vm["main"](np.ones((5, 2), np.float32), np.ones(4, np.float32))


def test_symbolic_sizes(vm):
    assert [vm["sized"](np.zeros(n, np.float32)).numpy()[0] for n in (0, 1, 1000)] == [0, 1, 1000]


def test_tensor_is_a_good_citizen(vm):
    tensor = vm["main"](X, Y)
    assert tensor.shape == (2, 2)
    assert tensor.dtype.name == "float32"
    assert tensor.device == cpu()
    assert tensor.numpy() is tensor.numpy()
    assert np.array_equal(np.from_dlpack(tensor), X + Y)
    assert np.asarray(tensor, np.float64).dtype == np.float64
    assert repr(tensor).startswith("Tensor([[11., 22.],")
    assert vm["integer"](3).item() == int(vm["integer"](3)) == 3


# ---- the ways to call ----


def test_invoke_run_and_call(vm):
    assert np.array_equal(vm.invoke("main", X, Y), X + Y)
    assert np.array_equal(vm.run(X, Y), X + Y)
    assert np.array_equal(vm.call("main", (X,), {"y": Y}), X + Y)


@pytest.mark.parametrize(
    "call",
    [
        lambda vm: vm["main"](X, y=Y),
        lambda vm: vm.run(y=Y, x=X),
        lambda vm: vm.call("main", (X, Y)),
        lambda vm: vm.call("main", [X], {"y": Y}),
        lambda vm: vm.call("main", None),
        lambda vm: vm.call("saved"),
        lambda vm: vm.call(vm.saved_call("main", X, Y)),
    ],
)
def test_whoever_calls_without_bounds_goes_the_fast_way(vm, monkeypatch, call):
    """The engine reads the arrays itself; Python binds arguments given by name to their places, and no more."""
    vm.set_input("main", X, Y)
    vm.save_function("main", "saved", X, Y)
    monkeypatch.setattr(Calls, "call", None)
    assert np.array_equal(call(vm), X + Y)


def test_stateful_calls(machine):
    vm = machine(ADD)
    with pytest.raises(ArgumentError, match="call set_input"):
        vm.invoke_stateful("main")
    with pytest.raises(ArgumentError, match="call invoke_stateful"):
        vm.get_outputs("main")
    x = X.copy()
    vm.set_input("main", x, y=Y)
    x[:] = 0  # inputs are copied
    vm.invoke_stateful("main")
    assert np.array_equal(vm.get_outputs("main"), X + Y)
    assert np.array_equal(vm.get_outputs("main", 0), X + Y)
    assert np.array_equal(vm.invoke("main"), X + Y)
    with pytest.raises(ArgumentError, match="output 1"):
        vm.get_outputs("main", 1)


def test_saved_function(vm):
    vm.save_function("main", "bound", X, Y)
    assert np.array_equal(vm["bound"](), X + Y)
    vm.save_function("main", "quiet", X, Y, include_return=False)
    assert vm["quiet"]() is None
    with pytest.raises(ArgumentError, match="is a function of the program"):
        vm.save_function("main", "same", X, Y)


def test_input_index(vm):
    assert vm.get_input_index("y") == 1
    assert vm.get_input_index("nope") == -1


def test_options_are_checked(machine):
    for options in ({"memory_cfg": "huge"}, {"kernels": "maybe"}, {"max_steps": -1}, {"device": [1]}):
        with pytest.raises(ArgumentError):
            machine(ADD, **options)


def test_an_operator_that_raises_names_its_primitive(machine):
    text = """
    prim gather[n](%0: float32[n], %1: int64[1]) -> float32[1] {
      %2 = take(%0, %1) {axis=0} : float32[1]
      return %2
    }
    func @main(x: float32[n], i: int64[1]) -> float32[1] {
      shape_of (i0), r0
      alloc_tensor r2, float32[1]
      call gather (r0, r1) -> (r2) [i0]  from "Gather_3"
      ret r2
    }
    """
    vm = machine(text)
    assert vm["main"]([5.0, 6.0], [1]).numpy().tolist() == [6.0]
    with pytest.raises(IndexError, match=r"gather.*node 'Gather_3'") as raised:
        vm["main"]([5.0, 6.0], [2])
    assert isinstance(raised.value, ExecutionError)


def test_the_call_of_a_host_operator_is_read_once(machine, monkeypatch):
    text = """
    prim solve(%0: float32[2, 2], %1: float32[2, 2]) -> float32[2, 2] {
      %2 = solve(%0, %1) : float32[2, 2]
      return %2
    }
    func @main(a: float32[2, 2], b: float32[2, 2]) -> float32[2, 2] {
      alloc_tensor r2, float32[2, 2]
      call solve (r0, r1) -> (r2)
      ret r2
    }
    """
    vm, two = machine(text), np.diag(np.float32([2, 2]))
    assert np.array_equal(vm["main"](two, X), X / 2)
    monkeypatch.setattr(Place, "current", None)
    assert np.array_equal(vm["main"](two, Y), Y / 2)


PAIR = """
func @main(x: float32[n], y: float32[n]) -> (float32[?], float32[?]) {
  alloc_data r2, (float32[?], float32[?]), 0 (r0, r1)
  ret r2
}
func @twice(x: float32[n]) -> (float32[?], float32[?]) {
  alloc_data r1, (float32[?], float32[?]), 0 (r0, r0)
  ret r1
}
"""


def test_each_part_of_a_tuple_keeps_its_own_memory(machine):
    vm = machine(PAIR)
    x = np.arange(100_000, dtype=np.float32)
    before = context.live_bytes()
    first, second = (part.numpy() for part in vm["main"](x, x + 1))
    first[:] = 0
    del first
    assert context.live_bytes() < before + 2 * x.nbytes
    assert np.array_equal(second, x + 1)
    del second
    assert context.live_bytes() == before


def test_a_tensor_that_is_twice_in_a_tuple_is_read_only(machine):
    x = np.arange(100_000, dtype=np.float32)
    for part in machine(PAIR)["twice"](x):
        assert np.array_equal(part, x)
        assert not part.numpy().flags.writeable


def test_results_of_no_elements(machine):
    first, second = machine(PAIR)["main"](X[:0, 0], X[:0, 0])
    assert first.shape == second.shape == (0,)


def test_python_makes_the_arrays_where_the_engine_cannot(machine, monkeypatch):
    monkeypatch.setattr(context.python_layout(), "makes_arrays", False)
    x = np.arange(100_000, dtype=np.float32)
    assert all(np.array_equal(part, x) for part in machine(PAIR)["main"](x, x))


def test_the_engine_reads_arrays_of_a_pickle(vm, monkeypatch):
    """Their descriptors are other objects than NumPy's own."""
    monkeypatch.delattr(Calls, "call")  # what takes arguments that the engine leaves to Python
    x = pickle.loads(pickle.dumps(X))
    assert np.array_equal(vm["main"](x, Y), X + Y)
    with pytest.raises(AttributeError):
        vm["main"](x.astype(">f4"), Y)


class Mine(Tensor):
    """A class of a user's."""


@pytest.mark.parametrize("kind", [Tensor, Mine])
def test_the_engine_reads_tensors_as_it_reads_arrays(vm, monkeypatch, kind):
    monkeypatch.delattr(Calls, "call")
    total = vm["main"](kind(X), Y)
    assert np.array_equal(vm["main"](total, kind(Y)), X + Y + Y)
    assert vm["sized"](kind(X[0])).numpy() == 2
    same = vm["same"](kind(X))
    assert np.array_equal(same, X)
    assert not np.shares_memory(same.numpy(), X)
    for other in (kind(X.T), kind(X.astype("f8")), kind(X[:1])):
        with pytest.raises(AttributeError):
            vm["main"](X, other)


def test_tensors_whose_elements_are_yet_to_come_are_asked_for_them(vm):
    class Late(Tensor):
        def __init__(self):
            """Its slot for an array is empty."""

        @property
        def _array(self):
            return Y

    assert np.array_equal(vm["main"](X, Late()), X + Y)


def test_arguments_that_a_function_does_not_take_as_they_are_are_converted(vm):
    seen = []

    def convert(values):
        seen.append(values)
        return [np.asarray(value, np.float32) for value in values]

    add = vm.converting("main", convert)
    assert np.array_equal(add(X, Tensor(Y)), X + Y)
    assert seen == []
    assert np.array_equal(add(X.tolist(), Y), X + Y)
    with pytest.raises(ArgumentError, match="no value for y"):
        add(X)
    assert len(seen) == 2
    assert vm.converting("integer", lambda values: values)(3).numpy() == 3


def test_results_that_are_left_when_python_ends():
    script = f"""
import numpy as np
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.executable import Executable
from treadle.vm.machine import VirtualMachine
x = np.ones(100_000, np.float32)
kept = VirtualMachine(Executable(parse_assembly({PAIR!r})))["main"](x, x)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_the_memory_of_large_results_is_used_again(machine):
    vm = machine("func @main(x: float32[n]) -> float32[?] {\n  ret r0\n}")
    x = np.zeros(LARGE // 4, np.float32)
    first = vm["main"](x).numpy()
    place = _address(first)
    second = vm["main"](x).numpy()
    assert _address(second) != place  # the caller has the first one
    del first
    third = vm["main"](x).numpy()
    assert _address(third) == place


def test_memory_of_large_results_that_nobody_needs_is_handed_back(machine):
    vm = machine("func @main(x: float32[n]) -> float32[?] {\n  ret r0\n}")
    outside = context.outside().words
    x = np.zeros(LARGE // 4, np.float32)
    results = [vm["main"](x) for _ in range(MAX_LARGE // LARGE + 2)]
    del results
    assert 0 < outside[CONTEXT.CACHED] <= MAX_LARGE
    huge = vm["main"](np.zeros(MAX_LARGE // 4 + 1, np.float32))
    del huge
    assert outside[CONTEXT.CACHED] == 0
    kept = vm["main"](x)
    del kept
    assert outside[CONTEXT.CACHED] >= LARGE
    del vm
    gc.collect()
    assert outside[CONTEXT.CACHED] == 0  # with the machine it goes
