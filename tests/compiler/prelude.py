"""Relay's library of generic functions under Treadle's names and with its integers, for programs to start from."""

from __future__ import annotations

import re
from dataclasses import replace

from treadle.compiler import ir
from treadle.compiler.ir.analysis import called
from treadle.compiler.ir.text import parse_module
from treadle.tvm.relay.libraries import LIBRARIES

NAMES = {"int32": "int64", "hd": "head", "tl": "tail", "concat": "append", "rev": "reverse"}
(RELAYS,) = LIBRARIES["prelude.rly"]
TEXT = re.sub(rf"\b({'|'.join(NAMES)})\b", lambda found: NAMES[found[1]], RELAYS)


def prelude() -> ir.Module:
    """The library as a module, not typed yet."""
    return parse_module(TEXT)


def with_prelude(module: ir.Module) -> ir.Module:
    """The module with the library's data types, and those of its functions that are used; a name of its own goes first."""
    library = prelude()
    functions = {**library.functions, **module.functions}
    used = dict.fromkeys(module.functions)
    waiting = list(module.functions)
    while waiting:
        for name in called(functions[waiting.pop()].body):
            if name in functions and name not in used:
                used[name] = None
                waiting.append(name)
    kept = {name: functions[name] for name in used}
    return replace(module, functions=kept, data_types={**library.data_types, **module.data_types})
