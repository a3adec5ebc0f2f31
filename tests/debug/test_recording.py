"""Recordings: calls are made again of their files, to the bit; and what is not a recording is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.debug.recorder import Recorder, digest_of_value
from treadle.debug.recording import Recorded
from treadle.formats import recording as files
from treadle.formats.container import layout
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import (
    ArgumentError,
    ChecksumError,
    ExecutionError,
    FormatError,
    LimitError,
    UnknownFunctionError,
    VersionError,
)
from treadle.formats.recording import Recording, RecordPart, StoredCall, StoredNote, TensorPart
from treadle.formats.text.assembly import parse_assembly
from treadle.vm.machine import VirtualMachine
from treadle.vm.values import DataValue

TEXT = """
data List = Nil | Cons(float32[2], List)
import f: fn(float32[n, 2], float32[n]) -> float32[2*n]
import g: fn((float32[2], List)) -> (int64[], bool[])
prim call_seed() -> uint64[] {
  %0 = call_seed() {place=0} : uint64[]
  return %0
}
func @main(x: float32[?, 2], y: float32[?]) -> float32[?] {
  call_import r2, f (r0, r1)
  ret r2
}
func @tuples(x: float32[2], y: List, s: string[2]) -> (int64[], bool[]) {
  alloc_data r3, (float32[2], List), 0 (r0, r1)
  call_import r4, g (r3)
  ret r4
}
func @draw() -> uint64[] {
  alloc_tensor r0, uint64[]
  call call_seed () -> (r0)
  ret r0
}
func @apply(x: float32[2], h: fn(float32[2]) -> float32[2]) -> float32[2] {
  invoke_closure r2, r1 (r0)
  ret r2
}
func @same(x: float32[2]) -> float32[2] {
  ret r0
}
func @closure() -> fn(float32[2]) -> float32[2] {
  alloc_closure r0, @same ()
  ret r0
}
"""
X, Y = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones(3, np.float32)
LIST = DataValue("Cons", ([1.0, 2.0], DataValue("Cons", ([3.0, 4.0], DataValue("Nil")))))


def f(x: Any, y: Any) -> np.ndarray:
    if y.numpy()[0] > 1:
        raise ValueError("too large")
    return np.random.default_rng().random(2 * len(y.numpy()), np.float32)


def test_a_call_says_which_results_it_was_given_and_which_import_gave_others(
    machine: VirtualMachine, tmp_path: Path
) -> None:
    with machine.record(tmp_path / "run.trrec"):
        machine["main"](X, Y)
        machine["main"](X, Y)
        machine["same"](machine["same"](X[0] + 5))
    calls = treadle.debug.load_recording(tmp_path / "run.trrec")
    shown = [str(each) for each in calls.replay(calls.machine(machine.executable))]
    assert shown[1].endswith("; but not that of call 0, which had the same arguments: f gave other values")
    assert shown[3] == "call 3, same with x = the result of call 2: the same result, to the bit"


@pytest.fixture
def machine() -> VirtualMachine:
    imports = {"f": f, "g": lambda value: (3, True)}
    return VirtualMachine(Executable(parse_assembly(TEXT)), imports=imports, kernels="cached")


@pytest.fixture
def recorded(machine: VirtualMachine, tmp_path: Path) -> tuple[Recorded, list[Any]]:
    path = tmp_path / "run.trrec"
    with machine.record(path):
        results = [machine["main"](X, Y), machine["tuples"]([0.5, 1.5], LIST, ["a", "bc"]), machine["draw"]()]
        with pytest.raises(ValueError, match="too large"):
            machine["main"](X, 2 * Y)
    machine["draw"]()  # after the block: not recorded
    return treadle.debug.load_recording(path), results


def test_calls_are_made_again_to_the_bit(machine: VirtualMachine, recorded: tuple[Recorded, list[Any]]) -> None:
    calls, results = recorded
    again = calls.replay(calls.machine(machine.executable))
    assert [(each.function, each.same) for each in again] == [(n, True) for n in ("main", "tuples", "draw", "main")]
    assert [digest_of_value(each.result) for each in again[:3]] == list(map(digest_of_value, results))
    assert str(again[0]) == "call 0, main: the same result, to the bit"
    assert "too large" in str(again[3].error)


def test_a_recorded_call_is_debugged(machine: VirtualMachine, recorded: tuple[Recorded, list[Any]]) -> None:
    calls, results = recorded
    with calls.debug(calls.machine(machine.executable), 0) as session:
        assert session.resume().reason == "returned"
        assert session.result.numpy().tobytes() == results[0].numpy().tobytes()
    with calls.debug(calls.machine(machine.executable)) as session:
        stop = session.resume()
        assert (stop.reason, stop.frame.instruction) == ("error", "call_import r2, f (r0, r1)")


def test_another_program_is_refused(recorded: tuple[Recorded, list[Any]]) -> None:
    changed = Executable(parse_assembly(TEXT.replace("place=0", "place=1")))
    with pytest.raises(ArgumentError, match="the recording is of program"):
        recorded[0].machine(changed)


def test_another_result_is_named(machine: VirtualMachine, recorded: tuple[Recorded, list[Any]]) -> None:
    stored = recorded[0]._recording
    stored.calls[0] = stored.calls[0]._replace(result="0" * 64)
    stored.calls[3] = stored.calls[3]._replace(error="", result="0" * 64)
    first, *_, last = recorded[0].replay(recorded[0].machine(machine.executable))
    assert not first.same
    assert str(first) == "call 0, main: recorded was a result, now it is another one"
    assert not last.same


def test_a_recording_that_ends_too_soon_fails_by_name(
    machine: VirtualMachine, recorded: tuple[Recorded, list[Any]]
) -> None:
    stored = recorded[0]._recording
    stored.calls[0] = stored.calls[0]._replace(notes=())
    (first,) = recorded[0].replay(recorded[0].machine(machine.executable), 0)
    assert "the recording ends before this call of the import 'f'" in str(first.error)
    stored.calls[0] = stored.calls[0]._replace(notes=(StoredNote("g", (), ""),))
    (first,) = recorded[0].replay(recorded[0].machine(machine.executable), 0)
    assert isinstance(first.error, ExecutionError)
    assert "the recording to 'g'" in str(first.error)


def test_a_recording_is_bounded(machine: VirtualMachine, tmp_path: Path) -> None:
    with Recorder(machine, tmp_path / "small.trrec", most_bytes=600):
        for _ in range(3):
            machine["main"](X, Y)
    calls = treadle.debug.load_recording(tmp_path / "small.trrec")
    assert (len(calls), calls.left_out) == (2, 1)
    assert all(each.same for each in calls.replay(calls.machine(machine.executable)))


def test_a_closure_cannot_be_recorded(machine: VirtualMachine, tmp_path: Path) -> None:
    closure = machine["closure"]()
    with machine.record(tmp_path / "run.trrec"), pytest.raises(ArgumentError, match="record: apply is given a closure"):
        machine["apply"]([1.0, 2.0], closure)
    assert machine["apply"]([1.0, 2.0], closure).numpy().tolist() == [1.0, 2.0]


def file(**changes: Any) -> bytes:
    call = StoredCall("main", (0,), (), "0" * 64, "")
    values = {"program": "0" * 64, "file": "", "target": "", "calls": [call], "values": [TensorPart(0)], "tensors": [X]}
    return b"".join(bytes(each) for each in files.encode(Recording(**{**values, **changes})))


def with_call(**changes: Any) -> bytes:
    return file(calls=[StoredCall("main", (0,), (), "0" * 64, "")._replace(**changes)])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"no recording", FormatError, "not a Treadle file"),
        (with_call(arguments=(1,)), FormatError, "value 1 of 1"),
        (with_call(arguments=(0, 0)), FormatError, "value 0 stands in two places"),
        (with_call(result="x"), FormatError, "'x' is not a digest"),
        (file(program="?"), FormatError, "'\\?' is not a digest"),
        (file(values=[TensorPart(1)]), FormatError, "value 0 is tensor 1 of 1"),
        (file(values=[RecordPart("", 0, (0,))]), FormatError, "value 0 of 0"),
        (file()[:-1], FormatError, "is truncated"),
        (file()[:-1] + b"\x01", ChecksumError, "is damaged"),
        (
            Executable(parse_assembly("func @main(x: float32[]) -> float32[] {\n ret r0\n}")).save()[0],
            FormatError,
            "is an executable",
        ),
        (b"".join(layout({"recording": [b""]}, {"recording": True})), FormatError, "has no section"),
        (file(tensors=[np.zeros((), np.float32)] * 3), None, ""),
    ],
)
def test_hostile_recordings_are_refused_by_name(data: bytes, error: Any, message: str) -> None:
    if error is None:
        assert len(treadle.debug.load_recording(data)) == 1
        return
    with pytest.raises(error, match=message):
        treadle.debug.load_recording(data)


def test_a_recording_is_not_an_executable() -> None:
    with pytest.raises(VersionError, match="is a recording of calls"):
        treadle.load(file())


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(LimitError):
        files.encode(Recording("", "", "", values=[RecordPart("", -1, ())]))


def test_functions_and_arguments_are_those_of_the_program(machine: VirtualMachine) -> None:
    calls = Recorded(Recording("", "", "", [StoredCall("other", (), (), "", ""), StoredCall("main", (), (), "", "")]))
    for number, message in (
        (0, "calls 'other'"),
        (1, "takes 2 arguments, the recording has 0"),
        (2, "there is no call 2"),
    ):
        with pytest.raises(ArgumentError, match=message):
            calls.debug(machine, number)
    with pytest.raises(UnknownFunctionError):
        machine.debug("other")
