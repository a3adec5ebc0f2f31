"""Where paths meet, what is a tensor's size on every path is still the size of that tensor, and nothing else is."""

from __future__ import annotations

import pytest
from treadle.formats.messages.errors import VerificationError
from treadle.formats.text.assembly import parse_assembly
from treadle.vm.verify.verifier import verify

PRELUDE = """
prim relu[n](%0: float32[n]) -> float32[n] {
  %1 = relu(%0) : float32[n]
  return %1
}
prim concat[n, m](%0: float32[n], %1: float32[m]) -> float32[n + m] {
  %2 = concat(%0, %1) {axis=0} : float32[n + m]
  return %2
}
"""
END = """
  alloc_dynamic r3, float32[i{size}]
  call relu (r2) -> (r3) [i{size}]
  ret r3
"""


def verified(body: str, size: int) -> None:
    head = "func @main(x: float32[?], flag: bool[]) -> float32[?] refs=8 ints=8 frame=0"
    text = f"{head} {{{body}{END.format(size=size)}}}"
    verify(parse_assembly(PRELUDE + text))


def double(register: int = 2, size: int = 0) -> str:
    """The tensor joined with itself."""
    return f"""
  add i7, i{size}, i{size}
  alloc_dynamic r5, float32[i7]
  call concat (r{register}, r{register}) -> (r5) [i{size}, i{size}]
  move r{register}, r5
"""


BRANCH = """
  shape_of (i0), r0
  add i1, i0, 0
  move r2, r0
  if r1, other
""" + double() + """
  add i0, i7, 0
other:
"""  # fmt: skip


def test_a_size_stays_that_of_its_tensor_behind_a_branch() -> None:
    verified(BRANCH, size=0)


def test_a_size_of_before_the_branch_is_not_that_of_the_tensor_behind_it() -> None:
    with pytest.raises(VerificationError, match="expected float32"):
        verified(BRANCH, size=1)


LOOP = """
  shape_of (i0), r0
  add i1, i0, 0
  move r2, r0
again:
  if r1, end
""" + double() + """
  add i0, i7, 0
{extra}
  goto again
end:
"""  # fmt: skip


def test_a_size_that_grows_with_its_tensor_in_a_loop_stays_its_size() -> None:
    verified(LOOP.format(extra=""), size=0)


def test_a_size_of_an_earlier_round_is_not_that_of_this_round() -> None:
    with pytest.raises(VerificationError):
        verified(LOOP.format(extra=""), size=1)


def test_sizes_that_were_equal_part_when_one_path_changes_one_of_them() -> None:
    """On one way around, tensor and both sizes grow; on the other the tensor and the first size alone."""
    extra = "  if r1, again\n  add i1, i7, 0"
    verified(LOOP.format(extra=extra), size=0)
    with pytest.raises(VerificationError):
        verified(LOOP.format(extra=extra), size=1)


def test_a_copy_of_the_last_round_is_not_taken_for_this_round() -> None:
    """What the copy holds is what the size was when control was here before."""
    body = LOOP.replace("\nagain:", "\nagain:\n  add i2, i1, 0\n  add i1, i0, 0").format(extra="")
    verified(body, size=1)  # made anew in each round
    with pytest.raises(VerificationError):
        verified(body, size=2)


def test_nested_loops_keep_what_was_a_size_outside() -> None:
    body = """
  shape_of (i0), r0
  move r2, r0
outer:
  if r1, end
inner:
  if r1, inner_end
  alloc_dynamic r3, float32[i0]
  call relu (r2) -> (r3) [i0]
  goto inner
inner_end:
""" + double() + """
  add i0, i7, 0
  goto outer
end:
"""  # fmt: skip
    verified(body, size=0)
