"""The commands that make and run executables: `treadle compile` and `treadle run`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats.messages.errors import UnknownPassError
from ..formats.messages.names import near
from ..formats.program import AUTO, PRECISIONS
from ..formats.types import TensorType
from . import arguments
from .errors import UsageError
from .program_files import (
    HELP,
    STANDARD_INPUT,
    ProgramFile,
    add_compile_options,
    compile_options,
    program_file,
    write_executable,
)

if TYPE_CHECKING:
    from ..formats.executable import Executable
    from ..formats.program import Function
    from ..formats.types import Type

    Default = Callable[[str, Type, Mapping[str, int]], np.ndarray]

BUDGETS: dict[str, tuple[Any, str]] = {
    "max_steps": (int, "instructions that the call may execute"),
    "max_seconds": (arguments.seconds, "wall time that it may take, in seconds, or as 500ms, 2m"),
    "max_memory": (arguments.byte_count, "bytes that it may hold at once: 500000, 512M, 2G"),
    "max_depth": (int, "frames that it may have"),
}
_SHOWN_ELEMENTS = 16
_SHOWN_CHARACTERS = 2000  # of a result that is not a tensor

COMMANDS = {"Run models": ("compile", "run")}


def add_commands(commands: Any) -> None:
    """Adds `compile` and `run` to the command line."""
    compile_ = commands.add_parser(
        "compile", help="compile a model to an executable, or build an executable's kernels for this machine"
    )
    compile_.add_argument("model", help=HELP)
    compile_.add_argument(
        "-o",
        "--output",
        type=Path,
        help="the executable (default: the model's name with .trdl, in the working directory; -: standard output)",
    )
    compile_.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=DIM,…",
        help="shape of an input, numbers or names: x=n,3,224,224; what the model calls by one name has one size in all inputs",
    )
    add_dim(compile_, "what a size that the model calls by a name is: batch=8")
    compile_.add_argument(
        "--dtype", action="append", default=[], metavar="NAME=TYPE", help="element type of an input: x=float16"
    )
    compile_.add_argument(
        "--outputs",
        action="append",
        default=[],
        metavar="NAME,…",
        help="values of the model that are the results; what they do not depend on is left out (default: the model's outputs)",
    )
    compile_.add_argument(
        "--batch",
        metavar="NAME",
        help="make the batch symbolic, and the sizes that the exporter wrote down for it; --shape with that name says which axes "
        "are the batch (default: the first of each input)",
    )
    add_compile_options(compile_, (*PRECISIONS, AUTO))
    compile_.add_argument(
        "--tolerance",
        type=float,
        metavar="SHARE",
        help="of --precision auto: the largest error, as a share of an output's largest element (default: 0.01)",
    )
    compile_.add_argument(
        "--measure",
        metavar="NAME",
        help="of --precision auto, what else the tolerance is of: cosine, ranks:K of scores, nearest:K of embeddings",
    )
    compile_.add_argument(
        "--samples",
        action="append",
        default=[],
        metavar="FILE.npz",
        help="of --precision auto: arrays by the names of inputs, a file for each sample (default: four from seeds)",
    )
    compile_.add_argument("--entry", default="main", help="name of the compiled function (default: main)")
    compile_.add_argument("--no-kernels", action="store_true", help="build no native code; the first run will")
    compile_.add_argument(
        "--cache-dtype",
        metavar="TYPE",
        help="of a decoder with a cache: the type of keys and values in pages: float16 or bfloat16, half the size, or uint8, "
        "little more than a quarter",
    )
    compile_.add_argument(
        "--decode-loop",
        action="store_true",
        help="of a decoder with a cache: add the function `generate`, which makes a whole text",
    )
    compile_.add_argument(
        "--adapters",
        metavar="NAME,…",
        help="of a decoder: take low-rank adapters for linear modules of these names, such as q_proj,v_proj, or for all",
    )
    compile_.add_argument(
        "--print-after",
        action="append",
        default=[],
        metavar="PASS",
        help="print the program after a pass; all for each",
    )
    compile_.add_argument(
        "--max-seconds",
        type=arguments.seconds,
        metavar="N",
        help="wall time that compiling may take, in seconds, or as 90s, 2m",
    )
    compile_.add_argument(
        "--max-memory",
        type=arguments.byte_count,
        metavar="N",
        help="bytes that compiling may hold at once: 500000, 512M, 2G",
    )
    compile_.set_defaults(command=compile_command)

    run = commands.add_parser(
        "run",
        help="call a function of an executable",
        epilog=arguments.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("executable", metavar="program", help=HELP)
    add_call_options(run)
    add_dim(run, "a symbolic dimension of inputs whose shape is not given: --input x=random --dim n=4")
    run.add_argument("--output", action="append", default=[], metavar="[NAME=]@FILE.npy", help="save a result")
    run.add_argument(
        "--expected-output", action="append", default=[], metavar="[NAME=]SOURCE", help="what a result should be"
    )
    run.add_argument("--rtol", type=float, default=1e-3, help="relative tolerance (default: 1e-3)")
    run.add_argument("--atol", type=float, default=1e-5, help="absolute tolerance (default: 1e-5)")
    run.add_argument(
        "--record", type=Path, metavar="FILE.trrec", help="write what `treadle replay` makes the call again of"
    )
    add_budgets(run)
    run.set_defaults(command=run_command)


def add_dim(parser: argparse.ArgumentParser, text: str) -> None:
    """The option that says how long symbolic dimensions are."""
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help=text)


def add_budgets(parser: argparse.ArgumentParser) -> None:
    """The options that bound the call."""
    for name, (kind, text) in BUDGETS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N", help=text)


def add_call_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which function is called, with what, and how."""
    add_compile_options(parser)
    parser.add_argument("--function", default="main", help="the function to call (default: main)")
    parser.add_argument(
        "--input", action="append", default=[], metavar="[NAME=][TYPE=]SOURCE", help="an argument; see below"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="threads that the call may use")
    parser.add_argument(
        "--kernels", choices=("build", "cached"), default="build", help="cached: compile no kernels, run slowly instead"
    )
    parser.add_argument("--trust-native", action="store_true", help="run the native code that is in the file")


# ---- compile ----


def compile_command(options: argparse.Namespace) -> int:
    from ..compiler import bounds

    start = time.perf_counter()
    file = program_file(options.model)
    output = file.output(options.output)
    try:
        with bounds.bounded(options.max_seconds, options.max_memory), _spilling(output):
            executable = _compiled(file, options)
    except UnknownPassError as error:
        raise UsageError(f"--print-after: {error}") from None
    report: dict[str, Any] = {
        "executable": str(output),
        "bytes": write_executable(executable, output),
        "seconds": round(time.perf_counter() - start, 3),
        "functions": len(executable.program.functions),
        "primitives": len(executable.program.primitives),
    }
    from ..formats.text.report import size_text

    told = sys.stderr if str(output) == STANDARD_INPUT else sys.stdout
    if options.json:
        print(json.dumps(report), file=told)
    else:
        print(
            f"{output}: {size_text(report['bytes'])}, {report['functions']} functions, "
            f"{report['primitives']} primitives, in {report['seconds']:.2f} s",
            file=told,
        )
    return 0


def _searched(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a search for a precision. Raises UsageError for those of none."""
    given = {name: value for name in ("tolerance", "measure") if (value := getattr(options, name)) is not None}
    if options.precision != AUTO and (given or options.samples):
        raise UsageError(f"--tolerance, --measure and --samples are of --precision {AUTO}")
    return given | ({"samples": list(map(_arrays, options.samples))} if options.samples else {})


def _arrays(name: str) -> dict[str, np.ndarray]:
    """Those of a file of NumPy's, without objects. Raises UsageError."""
    arguments.require_file(name)
    try:
        with np.load(name, allow_pickle=False) as kept:
            return dict(kept)
    except (AttributeError, EOFError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"--samples {name}: expected arrays that numpy.savez has written ({error})") from None


def _spilling(output: Path) -> contextlib.AbstractContextManager[None]:
    """Large constants lie in the output's folder meanwhile, if it has one."""
    from ..compiler.codegen.spill import spilling

    return contextlib.nullcontext() if str(output) == STANDARD_INPUT else spilling(output.parent)


def _compiled(file: ProgramFile, options: argparse.Namespace) -> Executable:
    """A model compiled; an executable with the kernels of this machine. Raises UsageError."""
    from .. import compile

    if file.is_model:
        from ..compiler.batch import Batch
        from ..compiler.forced_sizes import forced_text

        batch = None if options.batch is None else Batch.of(options.batch)
        module = file.module(
            [*options.shape, *options.dim], options.entry, batch, options.dtype, options.outputs, options.adapters
        )
        for note in (batch, forced_text(module.functions[options.entry]) if options.entry in module.functions else ""):
            if note:
                print(note, file=sys.stderr)
        made = compile(
            module,
            entry=options.entry,
            **compile_options(options),
            **_searched(options),
            print_after=options.print_after,
            embed_native=not options.no_kernels,
            decode_loop=options.decode_loop,
            cache_dtype=options.cache_dtype,
        )
        return file.with_text(made)
    from ..compiler.driver import with_kernels

    for name in ("shape", "dim", "dtype", "outputs", "batch", "decode_loop", "cache_dtype", "adapters", "print_after"):
        if getattr(options, name):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} is for models, which are compiled; {file.name} is {file.what}")
    executable = file.executable()
    file.verified(executable)
    return executable if options.no_kernels else with_kernels(executable)


# ---- run ----


def run_command(options: argparse.Namespace) -> int:
    executable = open_executable(options.executable, options)
    outputs, expected = (list(map(arguments.parse, texts)) for texts in (options.output, options.expected_output))
    budgets = {name: getattr(options, name) for name in BUDGETS if getattr(options, name) is not None}
    function, values = prepare_call(executable, options)
    machine = open_machine(executable, options, **budgets)

    start = time.perf_counter()
    with _recording(machine, options):
        result = machine[function.name](*values)
    seconds = time.perf_counter() - start

    results = dict(named_results(executable, function.name, result))
    names = list(results)
    for name, argument in arguments.match_names(outputs, names, "output").items():
        _save(results[name], argument)
    wrong = [
        text
        for name, argument in arguments.match_names(expected, names, "output").items()
        if (text := _compare(name, results[name], argument, options))
    ]
    if options.json:
        described = {name: _described(value) for name, value in results.items()}
        print(json.dumps({"seconds": seconds, "outputs": described, "mismatches": wrong}))
    else:
        for name, value in results.items():
            print(f"{name}: {_summary(value)}")
        for text in wrong:
            print(text)
    return 1 if wrong else 0


def _recording(machine: Any, options: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
    if options.record is None:
        return contextlib.nullcontext()
    from ..debug.recorder import Recorder

    return Recorder(machine, options.record, file=options.executable)


def open_executable(name: str, options: argparse.Namespace) -> Executable:
    """An executable, loaded, assembled, or compiled with its kernels for the function that the call options name."""
    return program_file(name).executable(
        entry=None if options.function == "main" else options.function,
        **compile_options(options),
        trust_native=options.trust_native,
        kernels=options.kernels == "build",
    )


def open_machine(executable: Executable, options: argparse.Namespace, **budgets: Any) -> Any:
    """A machine as the call options ask for it."""
    from .. import VirtualMachine

    if options.threads is not None:
        from .. import set_num_threads

        set_num_threads(options.threads)
    return VirtualMachine(executable, kernels=options.kernels, trust_native=options.trust_native, **budgets)


def select_function(executable: Executable, options: argparse.Namespace) -> Function:
    """The function that the call options name. Raises UsageError."""
    functions = {f.name: f for f in executable.program.functions if not f.captured}
    if options.function not in functions:
        raise UsageError(
            f"there is no function {options.function!r}; there is {', '.join(functions)}{near(options.function, functions)}"
        )
    return functions[options.function]


def prepare_call(
    executable: Executable, options: argparse.Namespace, default: Default | None = None
) -> tuple[Function, list[np.ndarray]]:
    """The function and its arguments, from the call options. What --input leaves open of a shape is of --dim, or of the other
    inputs; `default` makes the inputs that are not given, if there is one. Raises UsageError for what does not fit."""
    function = select_function(executable, options)
    params = dict(zip(function.param_names, function.type.params, strict=True))
    given = arguments.match_names(
        list(arguments.spread(map(arguments.parse, options.input))), function.param_names, "input"
    )
    missing = [name for name in params if name not in given]
    if missing and default is None:
        first = missing[0]
        if not isinstance(params[first], TensorType):
            from .json_values import how

            raise UsageError(
                f"no --input for {', '.join(map(repr, missing))}; {first} is {params[first]}: write it as JSON, --input "
                f"{first}=JSON, {how(params[first], executable.types)}, or --input {first}=@FILE.json"
            )
        arguments.dimensions(options.dim, list(params.values()))  # an unknown name is told first
        raise UsageError(
            f"no --input for {', '.join(map(repr, missing))}; {first} is {params[first]}: --input {first}=@FILE.npy, or "
            f"{first}=random:SEED with --dim NAME=SIZE for sizes that are names"
        )
    sizes = arguments.dimensions(options.dim, list(params.values()))
    values = {}
    for name in sorted(given, key=lambda name: given[name].shape is None and not given[name].is_file):
        if not isinstance(params[name], TensorType):
            values[name] = given[name].load_value(params[name], executable.types)
            continue
        values[name] = given[name].load(params[name], sizes)
        arguments.learn(sizes, params[name], values[name].shape)
    for name in missing:
        assert default is not None
        values[name] = default(name, params[name], sizes)
    return function, [values[name] for name in params]


def named_results(executable: Executable, function: str, result: Any) -> Iterator[tuple[str, Any]]:
    """The results by name."""
    values = list(result) if isinstance(result, tuple) else [result]
    for port, value in zip(executable.outputs(function), values, strict=True):
        yield port.name, np.asarray(value) if hasattr(value, "__array__") else value


def _save(value: Any, argument: arguments.TensorArgument) -> None:
    if not argument.source.startswith("@") or not isinstance(value, np.ndarray):
        raise UsageError(f"--output {argument.text!r}: write [NAME=]@FILE.npy, for a result that is a tensor")
    from ..debug.files import as_npy, write

    write(Path(argument.source[1:]), as_npy(value, allow_pickle=True))


def _compare(name: str, value: Any, argument: arguments.TensorArgument, options: argparse.Namespace) -> str:
    if not isinstance(value, np.ndarray):
        return f"output {name!r}: expected a tensor, got {type(value).__name__}"
    from ..formats.dtypes import DType

    expected = argument.load(TensorType(DType.of(value.dtype), value.shape))
    return arguments.mismatch(name, value, expected, options.rtol, options.atol)


def _json_of(value: Any) -> Any:
    """A result that is not a tensor, as inputs are written; its text where it is nested too deeply for that."""
    from .json_values import as_json

    try:
        return as_json(value)
    except RecursionError:
        return repr(value)


def _described(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, np.ndarray):
        return {"value": _json_of(value)}
    return {"dtype": value.dtype.name, "shape": list(value.shape)} | (
        {"elements": value.tolist()} if value.size <= _SHOWN_ELEMENTS else {}
    )


def _summary(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        text = json.dumps(_json_of(value))
        return text if len(text) <= _SHOWN_CHARACTERS else repr(value)
    is_text = value.dtype == object
    head = f"{'string' if is_text else value.dtype}{list(value.shape)}"
    if value.size <= _SHOWN_ELEMENTS:
        return f"{head} {np.array2string(value, precision=6, separator=', ').replace(chr(10), '')}"
    if is_text:
        return f"{head}  {value.size} texts"
    wide = value.astype(np.float64)
    return f"{head}  min {wide.min():.6g}  mean {wide.mean():.6g}  max {wide.max():.6g}"
