"""Programs that pass the verifier and mean harm: they meet the machine's bounds, in time, and leave it usable."""

import time
from pathlib import Path

import numpy as np
import pytest
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import BudgetExceededError, ExecutionError, LimitError, ShapeError
from treadle.formats.text.assembly import parse_assembly
from treadle.vm.machine import VirtualMachine
from treadle.vm.verify.verifier import verify

from ..timing import soon

X = np.ones(2, np.float32)


def machine(text: str, **bounds: object) -> VirtualMachine:
    return VirtualMachine(Executable(parse_assembly(text)), **bounds)


def names(count: int) -> str:
    return ", ".join(f"r{i}" for i in range(1, count))


SLOW = {
    "calls with large frames": """
        func @main(x: float32[2]) -> float32[2] {
        again:
          invoke r1, @other (r0)
          goto again
        }
        func @other(x: float32[2]) -> float32[2] refs=1000000 { ret r0
        }""",
    "long lists of registers": f"""
        func @main(x: float32[2]) -> float32[2] refs=10000 {{
        again:
          kill ({names(9999)})
          goto again
        }}""",
    "wide tuples": f"""
        func @main(x: float32[2]) -> float32[2] {{
        again:
          alloc_data r1, ({", ".join(["float32[2]"] * 9999)}), 0 ({", ".join(["r0"] * 9999)})
          goto again
        }}""",
}


@pytest.mark.serial
@pytest.mark.parametrize("name", SLOW)
def test_slow_instructions_do_not_outlast_the_time_budget(name: str) -> None:
    check_time_budget(machine(SLOW[name], max_seconds=0.1), X)


@pytest.mark.serial
def test_copies_of_large_tensors_do_not_outlast_the_time_budget() -> None:
    text = "func @main(x: int8[?]) -> int8[?] {\nagain:\n device_copy r1, r0, 0\n goto again\n}"
    check_time_budget(machine(text, max_seconds=0.1), np.zeros(32 << 20, np.int8))


@pytest.mark.serial
def test_one_copy_of_a_very_large_tensor_does_not_outlast_the_time_budget() -> None:
    text = "func @main(x: int8[?]) -> int8[?] {\nagain:\n device_copy r1, r0, 0\n goto again\n}"
    vm, argument = machine(text), np.ones(1 << 29, np.int8)
    late = []
    while not late or (min(late) > 0.05 and len(late) < 5):
        start = time.monotonic()
        with pytest.raises(BudgetExceededError):
            vm.call("main", (argument,), max_seconds=0.02)
        late.append(time.monotonic() - start - 0.02)
    assert min(late) < 0.05, late


def check_time_budget(vm: VirtualMachine, argument: np.ndarray) -> None:
    start = time.monotonic()
    with pytest.raises(BudgetExceededError) as caught:
        vm["main"](argument)
    assert caught.value.budget == "seconds"
    assert time.monotonic() - start < 2


def test_recursion_without_end_meets_the_depth_bound_not_the_stack() -> None:
    vm = machine(
        """
        func @main(x: float32[2]) -> float32[2] {
          invoke r1, @main (r0)
          ret r1
        }
        func @fine(x: float32[2]) -> float32[2] { ret r0
        }""",
        max_depth=200_000,
    )
    with pytest.raises(BudgetExceededError) as caught:
        vm["main"](X)
    assert caught.value.budget == "depth"
    assert vm["fine"](X).numpy().tolist() == [1, 1]


def test_large_frames_meet_the_memory_budget() -> None:
    vm = machine("func @main(x: float32[2]) -> float32[2] frame=1099511627776 { ret r0\n}", max_memory=1 << 20)
    with pytest.raises(BudgetExceededError) as caught:
        vm["main"](X)
    assert caught.value.budget == "memory"


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ("140737488355327, 140737488355327", ShapeError),
        ("-1", ShapeError),
        ("4611686018427387904", ShapeError),
        ("-9223372036854775808", ShapeError),
    ],
)
def test_sizes_that_overflow_are_errors(shape: str, error: type[Exception]) -> None:
    loads = "\n".join(f"load_int i{i}, {dim}" for i, dim in enumerate(shape.split(", ")))
    registers = ", ".join(f"i{i}" for i in range(shape.count(",") + 1))
    vm = machine(
        f"func @main(x: float32[2]) -> float32[2] {{\n{loads}\nalloc_dynamic r1, float32[{registers}]\nret r0\n}}"
    )
    with pytest.raises(error):
        vm["main"](X)


@pytest.mark.parametrize(
    "line",
    [
        "add i2, i0, i0",
        "subtract i2, i1, 1",
        "multiply i2, i0, 2",
        "floor_divide i2, i1, i3",
        "floor_divide i2, i0, 0",
        "remainder i2, i0, 0",
    ],
)
def test_arithmetic_that_overflows_or_divides_by_zero_is_an_error(line: str) -> None:
    vm = machine(
        f"""
        func @main(x: float32[2]) -> float32[2] {{
          load_int i0, 9223372036854775807
          load_int i1, -9223372036854775808
          load_int i3, -1
          {line}
          ret r0
        }}"""
    )
    with pytest.raises(ExecutionError):
        vm["main"](X)


def test_storage_is_not_left(tmp_path: Path) -> None:
    vm = machine(
        """
        prim relu[n](%0: float32[n]) -> float32[n] {
          %1 = relu(%0) : float32[n]
          return %1
        }
        func @main(x: float32[?], offset: int64[], size: int64[]) -> float32[?] {
          read_shape (i0), r1
          read_shape (i1), r2
          shape_of (i2), r0
          alloc_storage r3, i1
          storage_tensor r4, r3, i0, float32[i2]
          call relu (r0) -> (r4) [i2]
          ret r4
        }"""
    )
    assert vm["main"](X, 64, 72).numpy().tolist() == [1, 1]
    for offset, size in ((64, 71), (32, 128), (-64, 128), (128, 128), (0, -1), (1 << 62, 128)):
        with pytest.raises(ExecutionError):
            vm["main"](X, offset, size)


def test_a_bound_of_one_call_is_none_of_the_next() -> None:
    vm = machine("func @main(x: float32[2]) -> float32[2] {\n device_copy r1, r0, 0\n ret r1\n}")
    for bound in ({"max_memory": 1}, {"max_depth": 0}, {"max_steps": 1}):
        with pytest.raises(BudgetExceededError):
            vm.call("main", (X,), **bound)
        assert vm["main"](X).numpy().tolist() == [1, 1]


def test_code_is_what_was_verified_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "program.trdl"
    program = parse_assembly("func @main(x: float32[2]) -> float32[2] {\n move r1, r0\n ret r1\n}")
    Executable(program).export_library(path)
    vm = VirtualMachine(load(path))
    with open(path, "r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    assert vm["main"](X).numpy().tolist() == [1, 1]


@pytest.mark.serial
def test_verification_takes_no_longer_than_the_size_of_the_code_explains() -> None:
    steps = "\n".join(f"add i{i}, i{i - 1}, i{i // 2}" for i in range(24, 20_000))
    shape = ", ".join(["?"] * 24)
    dims = ", ".join(f"i{i}" for i in range(24))
    program = parse_assembly(
        f"func @main(x: int8[{shape}]) -> int8[{shape}] {{\nshape_of ({dims}), r0\n{steps}\nret r0\n}}"
    )
    with soon(5), pytest.raises(LimitError, match="verification takes more than"):
        verify(program)


@pytest.mark.serial
def test_an_axis_of_any_length_beside_one_of_no_elements_takes_no_time() -> None:
    vm = machine(
        """
        prim softmax[n, m](%0: float32[n, m]) -> float32[n, m] {
          %1 = softmax(%0) {axis=-1} : float32[n, m]
          return %1
        }
        func @main(x: float32[0], n: int64[]) -> float32[?, 0] {
          read_shape (i0), r1
          reshape r2, r0 [i0, 0]
          alloc_dynamic r3, float32[i0, 0]
          call softmax (r2) -> (r3) [i0, 0]
          ret r3
        }"""
    )
    start = time.monotonic()
    assert vm["main"](np.zeros(0, np.float32), 1 << 40).shape == (1 << 40, 0)
    assert time.monotonic() - start < 60  # the kernel is built, too
