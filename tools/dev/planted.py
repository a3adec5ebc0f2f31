"""A model of a hundred nodes, and three faults planted in it, for tests and for docs/debugging.md, which `faulty.py` has more of.

python -m treadle.tools.dev.planted     runs the commands of that page anew, and writes what they print
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ...compiler.driver import compile
from ...compiler.targets.cpu.target import host
from ...compiler.targets.cpu.toolchain.kernels import build
from ...formats.executable import Executable
from ...formats.program import NativeKernel
from ...native import platform
from ...vm.library import definition_key
from .derive.pages import reading

if TYPE_CHECKING:
    import onnx

_BLOCKS, _WIDTH = 20, 24  # of five nodes each
_WRONG_BLOCK, _NAN_BLOCK = 11, 7
WRONG_ROWS = 5
_NO_RECORD = b"-"  # too short for a kernel's record: as if there were none


def model(*, wrong_weight: bool = False, nan: bool = False, rows: int = 4) -> onnx.ModelProto:
    """Twenty blocks of a product, a bias, an activation, a scale, and a sum with the input. `wrong_weight`: one element of
    one product's weights has the wrong sign. `nan`: one block takes the root of what may be negative."""
    rng = np.random.default_rng(1)
    nodes, weights, x = [], [], "x"

    def weight(name: str, array: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    for block in range(_BLOCKS):
        at = f"block{block}"
        matrix = rng.standard_normal((_WIDTH, _WIDTH)) / np.sqrt(_WIDTH)
        if wrong_weight and block == _WRONG_BLOCK:
            matrix[3, 5] = -matrix[3, 5]
        activation = "Sqrt" if nan and block == _NAN_BLOCK else ("Tanh", "Sigmoid")[block % 2]
        operands = (
            ("MatMul", "product", [x, weight(f"{at}.weight", matrix)]),
            ("Add", "sum", [f"{at}.product", weight(f"{at}.bias", rng.standard_normal(_WIDTH))]),
            (activation, "active", [f"{at}.sum"]),
            ("Mul", "scaled", [f"{at}.active", weight(f"{at}.scale", 0.5 + rng.random(1))]),
            ("Add", "out", [f"{at}.scaled", x]),
        )
        for operator, name, inputs in operands:
            nodes.append(helper.make_node(operator, inputs, [f"{at}.{name}"], f"{at}/{operator}_{name}"))
        x = f"{at}.out"
    graph = helper.make_graph(
        nodes,
        "planted",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, _WIDTH])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [rows, _WIDTH])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_wrong_kernel() -> tuple[Executable, str]:
    """The model for five rows, with the tanh's native code for the sigmoid's primitive too, and that one's name.

    It runs where native code of the file is trusted, and this machine's cache has no right code, which it is made to forget: who
    ran a saved case without trust has built it."""
    executable = compile(model(rows=WRONG_ROWS), embed_native=False, progress=False)
    target, primitives = host(), executable.program.primitives
    (right,) = (each for each in primitives if "tanh" in each.name)
    (wrong,) = (each for each in primitives if "sigmoid" in each.name)
    (built,) = build([right.definition], target, progress=False)
    assert built is not None
    kernel = NativeKernel(built.code, built.words, built.scratch_bytes, built.nanoseconds)
    keys = [definition_key(each.definition, target.key) for each in (right, wrong)]
    platform.cache().put(keys[1], _NO_RECORD)
    return executable.with_native({target.key: dict.fromkeys(keys, kernel)}), wrong.name


def write(folder: Path) -> None:
    """Writes the models, right and wrong, and executables of them that are wrong."""
    for name, proto in (("right", model()), ("wrong", model(wrong_weight=True)), ("nan", model(nan=True))):
        (folder / f"{name}.onnx").write_bytes(proto.SerializeToString())
    (folder / "five.onnx").write_bytes(model(rows=WRONG_ROWS).SerializeToString())
    compile(model(wrong_weight=True), progress=False).export_library(folder / "weight.trdl")
    with_wrong_kernel()[0].export_library(folder / "kernel.trdl")


# ---- the page ----

PAGE = Path(__file__).parents[2] / "docs" / "debugging.md"
_BLOCK = re.compile(r"```console\n\$ treadle ([^\n]*)\n(.*?)```", re.DOTALL)


def page(text: str) -> str:
    """The page with what its commands print now, in a folder of the planted models."""
    from ..cli import main

    with reading() as run:
        write(run.folder)
        runpy.run_path(str(Path(__file__).with_name("faulty.py")))  # writes into the folder that is current now

        def shown(found: re.Match) -> str:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                main(shlex.split(found[1]))
            return f"```console\n$ treadle {found[1]}\n{printed.getvalue()}```"

        return _BLOCK.sub(shown, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
