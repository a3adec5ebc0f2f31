"""Every instruction, by the examples in `instructions/*.tasm`.

A comment `f(arguments) = result` is an example of function f; `f(arguments) fails: Error text` one of an error.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from treadle.formats.isa import BY_NAME
from treadle.formats.messages import errors
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.text.dis import dis
from treadle.vm.tensor import Tensor
from treadle.vm.values import Closure, DataValue


def _fail() -> None:
    raise errors.ExecutionError("it was told to", function="failing")


IMPORTS = {
    "double": lambda x: x.numpy() * 2,
    "pair": lambda x, y: (y, x),
    "lengthen": lambda items: DataValue(1, ([7.0, 8.0], items)),
    "apply": lambda function, x: function(x),
    "shorten": lambda x: x.numpy()[: max(1, len(x.numpy()) - 1)],
    "fail": _fail,
}
FILES = sorted((Path(__file__).parent / "instructions").glob("*.tasm"))
EXAMPLE = re.compile(r"^# (\w+)\((.*)\) (=|fails:) (.*)$", re.MULTILINE)
EXAMPLES = [pytest.param(path, *example, id=f"{path.stem}-{example[0]}({example[1]})"[:70])
            for path in FILES for example in EXAMPLE.findall(path.read_text())]  # fmt: skip


def plain(value: Any) -> Any:
    """A result as literals of Python."""
    if isinstance(value, Tensor):
        return value.numpy().tolist()
    if isinstance(value, DataValue):
        return (value.constructor, *map(plain, value.fields))
    if isinstance(value, Closure):
        return "closure"
    return tuple(map(plain, value))


@pytest.mark.parametrize(("path", "name", "arguments", "kind", "outcome"), EXAMPLES)
def test_example(machine, path: Path, name: str, arguments: str, kind: str, outcome: str):
    function = machine(path.read_text(), imports=IMPORTS)[name]
    values = ast.literal_eval(f"({arguments},)" if arguments else "()")
    if kind == "=":
        assert plain(function(*values)) == ("closure" if outcome == "closure" else ast.literal_eval(outcome))
    else:
        error, _, text = outcome.partition(" ")
        with pytest.raises(getattr(errors, error), match=re.escape(text)) as raised:
            function(*values)
        assert raised.value.function == name


def test_every_instruction_has_an_example():
    used = {instruction.opname for path in FILES for instruction in dis(parse_assembly(path.read_text()))}
    assert used == set(BY_NAME)
