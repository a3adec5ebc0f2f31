"""The calling convention of kernels, in numbers; `kernels/kernel.py` explains it."""

# Before a kernel's arguments are ARGUMENT_HEAD words, of which the last is the call's stop word: where it is not 0, the call is
# to end, and kernels return STOPPED.
ARGUMENT_HEAD = 8
STOP_WORD = -1
STOPPED = -1
NOTE_WORDS = 160  # after a primitive's arguments, for what the parts of a call share

# One thread is worth waking for this much work; below twice that, a kernel asks for one part.
PART_NANOSECONDS = 2000
STREAM_ALIGNMENT = 64  # bytes at a multiple of which `vstream` of `vectors/simd.py` writes
FEW = range(2, 13)  # neighbours that `part_T_n` and `join_T_n` of `vectors/simd.py` make groups of
