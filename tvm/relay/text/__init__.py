"""Relay's text of programs, `#[version = "0.0.5"]`: what TVM 0.8 to 0.18 print and read.

`printer.py` writes it, `tokens.py`, `types.py` and `grammar.py` read it; `scalars.py` and `attributes.py` have the values.
"""

from .grammar import parse_expression, parse_module
from .printer import expression_text, module_text
from .tokens import TextError

__all__ = ["TextError", "expression_text", "module_text", "parse_expression", "parse_module"]
