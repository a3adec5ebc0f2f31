"""`treadle to-onnx`: a program as an ONNX file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..formats.text.report import size_text
from .program_files import IR, ONNX, program_file

COMMANDS = {"Run models": ("to-onnx",)}


def add_commands(commands: Any) -> None:
    """Adds `to-onnx` to the command line."""
    command = commands.add_parser(
        "to-onnx",
        help="write a program as an ONNX file",
        description="Write a program of ONNX's operators as an ONNX file.",
    )
    command.add_argument("file", help="a text of the IR (.ir), or an .onnx model, of which shapes are made numbers")
    command.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.onnx", help="where the file goes")
    command.add_argument(
        "--opset", type=int, help="the version of ONNX, from 11 on (default: 21, or what the model needs)"
    )
    command.add_argument(
        "--shape", action="append", default=[], metavar="NAME=DIM,DIM,…", help="the shape of an ONNX model's input"
    )
    command.add_argument("--entry", default="main", help="the function (default: main)")
    command.set_defaults(command=to_onnx_command)


def to_onnx_command(options: argparse.Namespace) -> int:
    from ..compiler.onnx.export.module import to_onnx

    file = program_file(options.file)
    file.require((IR, ONNX), "to-onnx")
    model = to_onnx(file.module(options.shape, options.entry), options.output, opset=options.opset, entry=options.entry)
    (opset, *_) = (each.version for each in model.opset_import)
    size = size_text(options.output.stat().st_size)
    print(f"{options.output}: {len(model.graph.node)} nodes, opset {opset}, {size}")
    return 0
