"""What a command that looks into a call is given: the program, its arguments, and what it is compared with."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats import dims
from ..formats.types import TensorType, Type
from . import arguments
from .errors import UsageError
from .program_files import HELP, ONNX, compile_options, program_file

if TYPE_CHECKING:
    from ..debug.subject import Subject

SYMBOLIC_SIZE = 16  # of a symbolic dimension that no option names


def add_command(commands: Any, name: str, function: Any, text: str) -> argparse.ArgumentParser:
    """Adds a command with the options that say what is called, with what, and how it is compiled."""
    from .execute import add_call_options, add_dim

    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ". Inputs that are not given are random, always the same.",
        epilog=arguments.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help=HELP)
    add_call_options(parser)
    add_dim(parser, f"a symbolic dimension of inputs that are not given (default: {SYMBOLIC_SIZE})")
    parser.add_argument(
        "--without", action="append", default=[], metavar="PASS", help="compile without a pass; may be repeated"
    )
    parser.set_defaults(command=function)
    return parser


def say_size(path: Path) -> None:
    """Says on standard error which file was written, and how large it is."""
    print(f"{path}: {path.stat().st_size} bytes", file=sys.stderr)


def prepare(options: argparse.Namespace) -> tuple[Subject, dict[str, np.ndarray]]:
    """The named program, compiled if it is a model, and its arguments. Raises UsageError and what compiling raises."""
    from ..debug.subject import subject
    from .execute import prepare_call

    if options.threads is not None:
        from .. import set_num_threads

        set_num_threads(options.threads)
    file = program_file(options.model)
    if file.kind == ONNX:
        model: Any = file.source  # another runtime wants the file
    else:
        model = file.module() if file.is_model else file.executable(trust_native=options.trust_native)
    of = subject(
        model,
        function=options.function,
        **compile_options(options),
        without=options.without,
        trust_native=options.trust_native,
    )
    function, values = prepare_call(of.executable, options, made)
    return of, dict(zip(function.param_names, values, strict=True))


def against_of(name: str | None) -> Any:
    """The `against` of `debug.compare`: a word, or a file's contents."""
    if name is None or not Path(name).is_file():
        return name
    file = program_file(name)
    if file.kind == ONNX:
        return file.source
    return file.module() if file.is_model else file.executable()


def _with_defaults(dim: object, sizes: Mapping[str, int]) -> dict[str, int]:
    symbols = dims.variables(dim) if isinstance(dim, dims.SymbolicDim) else ()
    return {symbol: sizes.get(symbol, SYMBOLIC_SIZE) for symbol in symbols}


def made(name: str, declared: Type, sizes: Mapping[str, int]) -> np.ndarray:
    """Random elements from a seed, always the same, in a shape whose symbols are of `sizes`, or else `SYMBOLIC_SIZE` long;
    integers are 0 or 1, which are indices into most tables. Raises UsageError."""
    from ..debug.subject import random_elements

    if not isinstance(declared, TensorType):
        raise UsageError(f"no --input for {name!r}, which is {declared}")
    try:
        shape = [arguments.size_of(dim, _with_defaults(dim, sizes)) for dim in declared.shape]
    except KeyError:
        raise UsageError(f"no --input for {name!r}, whose shape is not known: it is {declared}") from None
    return random_elements(np.random.default_rng(0), declared.dtype, shape)
