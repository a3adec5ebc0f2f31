"""Machines in pickles: what travels, what does not, and what is refused, since it belongs to its process."""

from __future__ import annotations

import copy
import multiprocessing
import operator
import pickle
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle.compiler.builder.programs import Module, function, op, var
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import NotPicklableError, UnknownFunctionError, VerificationError
from treadle.native import processes
from treadle.vm.machine import VirtualMachine
from treadle.vm.observe.hooks import Listener
from treadle.vm.values import DataValue

pytestmark = pytest.mark.usefixtures("no_leak")

X = np.arange(4, dtype=np.float32)

LISTS = """
data List = Nil | Cons(int64[], List)

func @range(n: int64[]) -> List {
  read_shape (i0), r0
  alloc_data r1, List, 0 ()
build:
  if_int i0, built
  make_shape r2, [i0]
  reshape r2, r2, []
  alloc_data r1, List, 1 (r2, r1)
  subtract i0, i0, 1
  goto build
built:
  ret r1
}

func @length(list: List) -> int64[1] {
  load_int i0, 0
again:
  get_tag i1, r0
  if_int i1, done
  add i0, i0, 1
  get_field r0, r0, 1, 1
  goto again
done:
  make_shape r1, [i0]
  ret r1
}

func @adder(n: int64[]) -> fn(int64[]) -> int64[] {
  alloc_closure r1, @captured (r0)
  ret r1
}

func @captured(x: int64[]) captures (n: int64[]) -> int64[] {
  ret r1
}
"""


@pytest.fixture(scope="module")
def exe() -> Executable:
    x = var("x", (4,))
    return treadle.compile(Module(main=function([x], op.exp(x))), progress=False)


def again(value):
    return pickle.loads(pickle.dumps(value))


def test_a_machine_makes_the_same_in_another_process(exe: Executable, tmp_path: Path) -> None:
    """Through the one place that starts processes; a machine of bytes, and one of a file."""
    exe.export_library(tmp_path / "model.trdl")
    machines = [VirtualMachine(each) for each in (exe, treadle.load(tmp_path / "model.trdl"))]
    code = """
import pickle, sys, numpy, treadle
machines = pickle.load(sys.stdin.buffer)
x = numpy.arange(4, dtype=numpy.float32)
pickle.dump([machine.run(x) for machine in machines], sys.stdout.buffer)
"""
    done = processes.run(code, input=pickle.dumps(machines), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    for result in pickle.loads(done.stdout):
        np.testing.assert_array_equal(result.numpy(), machines[0].run(X).numpy())


def test_processes_that_multiprocessing_spawns_take_machines(exe: Executable) -> None:
    machine = VirtualMachine(exe, threads=1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for result in pool.map(machine.run, [X, X + 1]):
            assert result.shape == (4,)
        np.testing.assert_array_equal(pool.apply(machine.run, (X,)), machine.run(X))


def test_options_and_bounds_travel(machine) -> None:
    made = machine(LISTS, memory_cfg="naive", kernels="cached", max_steps=1000, max_depth=7, threads=3)
    other = again(made)
    assert (other._options, other._budget) == (made._options, made._budget)
    with pytest.raises(treadle.errors.BudgetExceededError, match="1000 steps"):
        other["length"](other["range"](900))


def test_imports_go_by_their_names(machine) -> None:
    text = """
import negative: fn(int64[]) -> int64[]

func @main(x: int64[]) -> int64[] {
  call_import r1, negative (r0)
  ret r1
}
"""
    made = machine(text, imports={"negative": operator.neg})
    assert again(made)["main"](3).item() == -3
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(machine(text, imports={"negative": lambda x: -x}))


def test_weights_that_were_loaded_travel() -> None:
    x = var("x", (2, 4))
    weight = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    w = var("w", (4, 3))
    module = Module(main=function([x, w], op.matmul(x, w)))
    compiled = treadle.compile(module, params={"w": weight}, named_weights=True, progress=False)
    machine = VirtualMachine(compiled)
    machine.load_params({"w": 2 * weight})
    feed = np.ones((2, 4), np.float32)
    for other in (again(machine), copy.deepcopy(machine)):
        np.testing.assert_array_equal(other["main"](feed).numpy(), machine["main"](feed).numpy())
    machine.load_params({"w": weight})
    np.testing.assert_array_equal(again(machine)["main"](feed), VirtualMachine(compiled)["main"](feed))


def test_copies_of_a_machine_have_nothing_in_common_but_its_executable(exe: Executable) -> None:
    machine = VirtualMachine(exe, max_depth=5)
    machine.save_function("main", "saved", X)
    for other in (copy.copy(machine), copy.deepcopy(machine)):
        assert other.executable is exe
        np.testing.assert_array_equal(other["main"](X), machine["main"](X))
        with pytest.raises(UnknownFunctionError, match="saved"):
            other["saved"]


def test_unpickling_verifies() -> None:
    from treadle.formats.text.assembly import parse_assembly

    wrong = Executable(parse_assembly("func @main(x: int64[]) -> int64[]  refs=2 ints=0 frame=0 {\n  ret r1\n}\n"))
    with pytest.raises(VerificationError) as expected:
        VirtualMachine(wrong)
    kind, _, options, _ = VirtualMachine(Executable(parse_assembly(LISTS))).__reduce__()[1]
    make = VirtualMachine(Executable(parse_assembly(LISTS))).__reduce__()[0]
    with pytest.raises(VerificationError, match=expected.value.layer):
        make(kind, again(wrong), options, {})


def test_a_machine_that_somebody_listens_to_is_refused(exe: Executable) -> None:
    machine = VirtualMachine(exe)
    with machine.listening(Listener()), pytest.raises(NotPicklableError, match="listens to"):
        pickle.dumps(machine)
    machine.set_instrument(lambda *_: None)
    with pytest.raises(NotPicklableError, match="set_instrument"):
        copy.deepcopy(machine)
    machine.set_instrument(None)
    again(machine)


# ---- values ----


def test_a_value_of_the_machines_heap_travels_with_all_its_fields(machine) -> None:
    vm = machine(LISTS)
    for other in (again(vm["range"](3)), copy.deepcopy(vm["range"](3))):
        assert other.native is None
        assert vm["length"](other).item() == 3
        assert other[1][0].item() == 2


def test_a_list_may_be_longer_than_the_stack_is_deep(machine) -> None:
    vm = machine(LISTS)
    assert vm["length"](again(vm["range"](50_000))).item() == 50_000


def test_a_value_that_was_made_here_keeps_names_and_what_it_shares() -> None:
    tail = DataValue("Nil", (), "List")
    value = again(DataValue("Pair", (tail, tail, 5), "Pairs"))
    assert (value.constructor, value.type_name, value.fields[2]) == ("Pair", "Pairs", 5)
    assert value.fields[0] is value.fields[1]
    assert value.fields[0].constructor == "Nil"


def test_a_closure_belongs_to_its_machine(machine) -> None:
    closure = machine(LISTS)["adder"](5)
    with pytest.raises(NotPicklableError, match="a Closure belongs to its process"):
        pickle.dumps(closure)
    assert copy.deepcopy(closure) is copy.copy(closure) is closure
    assert closure(1).item() == 5


def test_what_holds_addresses_is_neither_pickled_nor_copied(exe: Executable, machine) -> None:
    """Two of them would free the same memory."""
    vm = VirtualMachine(exe)
    vm["main"](X)
    value = machine(LISTS)["range"](2)
    for each in (
        vm._calls,
        vm._calls.image,
        vm._calls._idle[0],
        value.native,
        vm.saved_call("main", X),
        vm.bind("main", [X]),
    ):
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(NotPicklableError, match="belongs to its process"):
                way(each)
