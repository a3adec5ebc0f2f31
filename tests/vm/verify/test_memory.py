"""The verifier's rule of memory: what was shared, under whatever name, is never written into again.

Each attack shares memory under one name and writes into it under another; its twin does the same without sharing, or before."""

import numpy as np
import pytest
from treadle.formats.messages.errors import VerificationError
from treadle.formats.text.assembly import parse_assembly
from treadle.vm.verify.verifier import verify

PRELUDE = """
const one float32[2] = [1.0, 1.0]
prim relu(%0: float32[2]) -> float32[2] {
  %1 = relu(%0) : float32[2]
  return %1
}
prim nonzero(%0: float32[2]) -> int64[1, ?] {
  %1 = nonzero(%0) : int64[1, ?]
  return %1
}
import kept: fn(float32[2]) -> float32[2]
func @same(a: float32[2]) -> float32[2] { ret r0 }
func @body(a: float32[2]) captures (k: float32[2]) -> float32[2] { ret r0 }
"""

# name → (what comes before, what shares, what writes afterwards); r0 is a condition, r1 a tensor, r9 the result
PAIR = "(float32[2],)"
ATTACKS = {
    "a moved tensor": ("alloc_tensor r2, float32[2]; call relu (r1) -> (r2); move r3, r2", "r2", "r3"),
    "what a tensor was moved from": ("alloc_tensor r2, float32[2]; call relu (r1) -> (r2); move r3, r2", "r3", "r2"),
    "a view of another shape": (
        "alloc_tensor r2, float32[1, 2]; reshape r3, r2 [2]; call relu (r1) -> (r3); reshape r4, r2 [2]",
        "r3",
        "r4",
    ),
    "what a view is of": (
        "alloc_tensor r2, float32[2]; call relu (r1) -> (r2); reshape r3, r2 [2, 1]; reshape r4, r3 [2]",
        "r4",
        "r2",
    ),
    "another tensor of one storage": (
        "alloc_storage r2, 64; storage_tensor r3, r2, 0, float32[2]; storage_tensor r4, r2, 0, float32[2];"
        "call relu (r1) -> (r3)",
        "r3",
        "r4",
    ),
    "storage under another name": (
        "alloc_storage r2, 64; move r5, r2; storage_tensor r3, r2, 0, float32[2];"
        "storage_tensor r4, r5, 0, float32[2]; call relu (r1) -> (r3)",
        "r3",
        "r4",
    ),
    "one of two tensors, by the name of both": (
        "alloc_tensor r2, float32[2]; alloc_tensor r3, float32[2]; call relu (r1) -> (r2); call relu (r1) -> (r3);"
        "move r4, r2; if r0, joined; move r4, r3; joined: kill (r0)",
        "r4",
        "r3",
    ),
    "one of two tensors, by its own name": (
        "alloc_tensor r2, float32[2]; alloc_tensor r3, float32[2]; call relu (r1) -> (r2); call relu (r1) -> (r3);"
        "move r4, r2; if r0, joined; move r4, r3; joined: kill (r0)",
        "r2",
        "r4",
    ),
    "a tensor of one of two storages": (
        "alloc_storage r2, 64; alloc_storage r3, 64; move r4, r2; if r0, joined; move r4, r3; joined: kill (r0);"
        "storage_tensor r5, r4, 0, float32[2]; storage_tensor r6, r3, 0, float32[2]; call relu (r1) -> (r5)",
        "r5",
        "r6",
    ),
}


def program(body: str):
    lines = body.replace(";", "\n").replace(": ", ":\n")
    text = f"func @main(c: bool[], x: float32[2]) -> {PAIR} refs=64 ints=8 frame=192 {{\n{lines}\n}}\n"
    return parse_assembly(PRELUDE + text)


def refuses(body: str) -> None:
    with pytest.raises(VerificationError, match="is shared or not made in this function"):
        verify(program(body))


@pytest.mark.parametrize("name", ATTACKS)
def test_memory_that_was_shared_is_not_written_into_under_another_name(name: str) -> None:
    before, shared, written = ATTACKS[name]
    write = f"call relu (r1) -> ({written})"
    verify(program(f"{before}; {write}; alloc_data r9, {PAIR}, 0 ({shared}); ret r9"))
    refuses(f"{before}; alloc_data r9, {PAIR}, 0 ({shared}); {write}; ret r9")


def test_one_of_many_tensors_counts_as_shared() -> None:
    made = "; ".join(f"alloc_tensor r{i}, float32[2]; call relu (r1) -> (r{i})" for i in range(10, 30))
    moved = "; ".join(f"if r0, joined; move r4, r{i}" for i in range(11, 30))
    refuses(f"{made}; move r4, r10; {moved}; joined: alloc_data r9, {PAIR}, 0 (r4); call relu (r1) -> (r20); ret r9")


@pytest.mark.parametrize(
    "share",
    [
        f"alloc_data r9, {PAIR}, 0 (r3)",
        "alloc_closure r9, @body (r3)",
        "invoke r9, @same (r3)",
        "alloc_closure r8, @body (r1); invoke_closure r9, r8 (r3)",
        "call_host nonzero (r3) -> (r9)",
        "call_import r9, kept (r3)",
    ],
)
def test_every_way_to_share_a_tensor_counts_for_all_its_names(share: str) -> None:
    before = "alloc_tensor r2, float32[2]; call relu (r1) -> (r2); reshape r3, r2 [2]; move r4, r2"
    end = f"alloc_data r9, {PAIR}, 0 (r2); ret r9"
    for name in ("r2", "r3", "r4"):
        verify(program(f"{before}; call relu (r1) -> ({name}); {share}; {end}"))
        refuses(f"{before}; {share}; call relu (r1) -> ({name}); {end}")


def test_what_comes_out_of_something_shared_is_not_written_into() -> None:
    for value in (
        "invoke r4, @same (r1)",
        "call_import r4, kept (r1)",
        f"alloc_data r3, {PAIR}, 0 (r1); get_field r4, r3, 0, 0",
    ):
        refuses(f"{value}; call relu (r1) -> (r4); alloc_data r9, {PAIR}, 0 (r4); ret r9")


def test_a_tensor_made_in_storage_after_part_of_it_was_shared_is_not_written_into() -> None:
    start = "alloc_storage r2, 64; storage_tensor r3, r2, 0, float32[2]; call relu (r1) -> (r3)"
    share, make = f"alloc_data r9, {PAIR}, 0 (r3)", "storage_tensor r4, r2, 0, float32[2]; call relu (r1) -> (r4)"
    verify(program(f"{start}; {make}; {share}; ret r9"))
    refuses(f"{start}; {share}; {make}; ret r9")


def test_a_path_on_which_a_tensor_is_shared_counts_behind_the_join() -> None:
    start = "alloc_tensor r2, float32[2]; call relu (r1) -> (r2); move r3, r2; if r0, joined"
    end = f"joined: call relu (r1) -> (r3); alloc_data r9, {PAIR}, 0 (r1); ret r9"
    verify(program(f"{start}; move r4, r2; {end}"))
    refuses(f"{start}; alloc_data r9, {PAIR}, 0 (r2); {end}")


LOOP = """
  alloc_tensor r3, float32[2]; call relu (r1) -> (r3); move r4, r3
  again: alloc_tensor r2, float32[2]; call relu (r1) -> (r2)
"""


def test_what_an_earlier_round_of_a_loop_shared_is_not_written_into() -> None:
    """r3 and r4 are one tensor of the round before, or what was there before the loop."""
    step = "move r3, r2; move r4, r2; if r0, again"
    end = f"alloc_data r9, {PAIR}, 0 (r3); ret r9"
    for shared, written in (("r3", "r4"), ("r4", "r3")):
        refuses(f"{LOOP}; alloc_data r9, {PAIR}, 0 ({shared}); call relu (r1) -> ({written}); {step}; {end}")
    refuses(f"{LOOP}; alloc_data r9, {PAIR}, 0 (r2); {step}; call relu (r1) -> (r3); {end}")


def test_each_round_of_a_loop_writes_what_it_made_itself() -> None:
    end = f"alloc_data r9, {PAIR}, 0 (r3); ret r9"
    verify(program(f"{LOOP}; alloc_data r9, {PAIR}, 0 (r2); move r3, r2; if r0, again; {end}"))
    verify(program(f"{LOOP}; alloc_data r9, {PAIR}, 0 (r3); call relu (r3) -> (r2); move r3, r2; if r0, again; {end}"))


def test_frame_memory_is_written_into_round_after_round() -> None:
    body = (
        "frame_tensor r2, float32[2], 0; frame_tensor r3, float32[2], 64; call relu (r1) -> (r2); move r4, r2;"
        "again: call relu (r4) -> (r3); move r4, r3; call relu (r4) -> (r2); move r4, r2; if r0, again;"
        f"call relu (r1) -> (r4); alloc_data r9, {PAIR}, 0 (r1); ret r9"
    )
    verify(program(body))


def test_a_tensor_that_is_one_of_two_is_written_into_while_both_are_private() -> None:
    verify(
        program(
            "alloc_tensor r2, float32[2]; alloc_tensor r3, float32[2]; call relu (r1) -> (r2); call relu (r1) -> (r3);"
            "move r4, r2; if r0, joined; move r4, r3; joined: call relu (r1) -> (r4); call relu (r1) -> (r2);"
            f"alloc_data r9, {PAIR}, 0 (r4); ret r9"
        )
    )


# ---- what else is a property of the tensor, not of the register ----


def is_refused(body: str, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(program(body))


def test_the_elements_of_one_of_two_tensors_are_not_written_by_writing_into_the_other() -> None:
    start = "alloc_tensor r2, float32[2]; alloc_tensor r3, float32[2]; move r4, r2; if r0, joined; move r4, r3"
    is_refused(f"{start}; joined: call relu (r1) -> (r4); call relu (r2) -> (r3); ret r1", "r4 is read, but on a path")


def test_what_is_written_in_one_round_is_not_what_the_next_one_makes() -> None:
    body = (
        "move r3, r1; again: alloc_tensor r2, float32[2]; call relu (r3) -> (r2); alloc_tensor r4, float32[2];"
        f"move r3, r4; if r0, again; alloc_data r9, {PAIR}, 0 (r2); ret r9"
    )
    is_refused(body, "elements of r3 are read|r3 is read")


def test_a_shape_that_one_name_has_is_not_the_shape_of_another() -> None:
    body = "reshape r2, r1 [1, 2]; move r1, r2; call relu (r1) -> (r2); ret r1"
    is_refused(body, "is float32\\[1, 2\\]; expected float32\\[2\\]")


def test_the_frame_stays_in_the_frame_behind_a_join() -> None:
    body = (
        "alloc_tensor r2, float32[2]; call relu (r1) -> (r2); if r0, joined; frame_tensor r2, float32[2], 0;"
        f"call relu (r1) -> (r2); joined: alloc_data r9, {PAIR}, 0 (r2); ret r9"
    )
    is_refused(body, "lies in the frame's memory")


def test_a_parameter_that_one_path_gives_away_is_kept() -> None:
    text = """
    func @main(c: bool[], x: float32[2], y: float32[2]) -> float32[2] {
      move r3, r1
      if r0, joined
      move r3, r2
    joined:
      reshape r4, r3 [2]
      ret r4
    }"""
    assert verify(parse_assembly(text)).functions[0].escaping == (False, True, True)


def test_a_value_that_was_shared_stays_as_it_was_when_the_program_runs(machine) -> None:
    text = """
    prim relu(%0: float32[2]) -> float32[2] {
      %1 = relu(%0) : float32[2]
      return %1
    }
    func @main(x: float32[2]) -> (float32[2], float32[2]) {
      alloc_storage r1, 128
      storage_tensor r2, r1, 0, float32[2]
      storage_tensor r3, r1, 64, float32[2]
      call relu (r0) -> (r2)
      call relu (r2) -> (r3)
      alloc_data r4, (float32[2], float32[2]), 0 (r2, r3)
      ret r4
    }"""
    first, second = machine(text)["main"](np.array([-1, 2], np.float32))
    assert (first.numpy().tolist(), second.numpy().tolist()) == ([0, 2], [0, 2])
