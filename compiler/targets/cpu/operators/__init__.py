"""Operators on the CPU's layouts, and the CPU's algorithms as operators. Passes make them; they join the table by import."""

from . import bfloat16, blocked, dequantized, int8, integers, packing, text_counts, winograd  # noqa: F401
