"""A target without native code: the texts of a CPU's kernels, interpreted, with all checked that `kernels/kernel.py` says.

backend.py     the target: `treadle.emulated`
memory.py      tensors, scratch memory and words at addresses; what was written, and who raced for it
vectors.py     vectors and scalars, their conversions and operators
functions.py   the functions of lanes, in NumPy
amx.py         registers of AMX, and what is done with them
emitted.py     elementary functions, by the instructions that native code has
vocabulary.py  the global names of a text: loads, stores, and these functions
call.py        `run_kernel`: a call in several parts, line by line if watched
"""
