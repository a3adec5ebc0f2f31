"""An interpreter of kernels' texts, which checks all that `kernels/kernel.py` says a kernel does.

memory.py      tensors, scratch memory and words at addresses; what was written, and who raced for it
vectors.py     vectors and scalars, their conversions and operators
functions.py   the functions of lanes, in NumPy
vocabulary.py  the global names of a text: loads, stores, and these functions
call.py        `run_kernel`: a call in several parts, line by line if watched
"""
