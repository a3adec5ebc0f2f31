"""`relay.op.contrib`: tables of patterns for other compilers, as a program registers them."""

from .register import get_pattern_table as get_pattern_table
from .register import register_pattern_table as register_pattern_table
