"""`treadle compare`, `nonfinite` and `step`: find the node that is wrong, the first number that is not finite, and the line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.program import EXACT
from . import arguments
from .pages import require_page, write_comparison
from .program_files import HELP, add_compile_options, compile_options, program_file
from .subjects import add_command, against_of, prepare, say_size

if TYPE_CHECKING:
    from ..debug.comparison import Comparison
    from ..debug.subject import Subject
    from ..formats.executable import Executable

_ROWS = 40

COMMANDS = {
    "Find what is slow or wrong": ("compare", "nonfinite", "dump", "step", "diff"),
    "Look inside": ("source", "graph"),
}


def add_commands(commands: Any) -> None:
    """Adds the commands to the command line."""
    compare = add_command(commands, "compare", compare_command, "compare a model with another runtime, node by node")
    compare.add_argument(
        "--against",
        metavar="WHAT",
        help="onnxruntime (the default for an ONNX model), reference (the operators' NumPy references), "
        "or a file: an executable or an ONNX model",
    )
    compare.add_argument("--tolerance", type=float, default=1.0, metavar="FACTOR", help="on all bounds (default: 1)")
    compare.add_argument(
        "--bisect", action="store_true", help="find the kernel or pass without which the results are right"
    )
    compare.add_argument(
        "--save", type=Path, metavar="FOLDER", help="write a folder that reproduces it; `treadle compare FOLDER` does"
    )
    compare.add_argument("--html", type=Path, metavar="FILE", help="write it as a page, *.html")
    compare.add_argument("--top", type=int, default=_ROWS, metavar="N", help=f"rows to show (default: {_ROWS}; 0: all)")
    nonfinite = add_command(
        commands, "nonfinite", nonfinite_command, "find where the first NaN or infinity of a call is made"
    )
    nonfinite.add_argument("--nan-only", action="store_true", help="pass infinities over")
    dump = add_command(commands, "dump", dump_command, "write every tensor that a call makes into a folder")
    dump.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="new or empty")
    dump.add_argument("--overwrite", action="store_true", help="write into a folder that is not empty")
    step = add_command(commands, "step", step_command, "run a kernel line by line, on what it reads in a call")
    step.add_argument("primitive", help="its name; `treadle source MODEL` lists them")
    step.add_argument("--break", type=int, default=0, metavar="LINE", dest="first", help="show from this line on")
    step.add_argument(
        "--print", action="append", default=[], metavar="NAME", dest="names", help="only lines that assign it"
    )
    step.add_argument("--top", type=int, default=_ROWS, metavar="N", help=f"lines to show (default: {_ROWS}; 0: all)")
    step.add_argument("--parts", type=int, default=1, metavar="N", help="as threads share it, one after the other")
    step.add_argument("--pdb", action="store_true", help="enter Python's debugger at the kernel's first line")
    source = commands.add_parser("source", help="show the code of a primitive's kernel")
    source.add_argument("file", help=HELP)
    source.add_argument("primitive", nargs="?", help="its name; without one, the names are listed")
    source.add_argument("--form", choices=("python", "llvm", "asm"), default="python", help="default: python")
    diff = commands.add_parser("diff", help="show in what two executables differ")
    for name in ("file", "other"):
        diff.add_argument(name, help=HELP)
    graph = commands.add_parser("graph", help="write the graph of the compiled program for Netron or Model Explorer")
    graph.add_argument("file", help=HELP)
    graph.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="*.netron or *.explorer.json")
    graph.add_argument("--function", metavar="NAME", help="only this function")
    for parser, command in ((source, source_command), (diff, diff_command), (graph, graph_command)):
        add_compile_options(parser)
        parser.set_defaults(command=command)


def compare_command(options: argparse.Namespace) -> int:
    from ..debug.noise import is_loss, loss
    from ..debug.references import is_foreign
    from ..debug.side_by_side import compare, compare_with

    require_page(options.html, "--html")
    if Path(options.model).is_dir():
        from ..debug.case import load_case
        from ..debug.subject import Subject

        executable, feeds, wanted, function = load_case(options.model)
        of = Subject(executable, None, function)
        return _told(compare_with(of, feeds, wanted, options.tolerance), options, of, feeds)
    of, values = prepare(options)
    against = against_of(options.against)
    if is_foreign(of, against):
        print(
            "the model goes to onnxruntime, which promises nothing of hostile files: trust it, or take --against reference",
            file=sys.stderr,
            flush=True,
        )
    if options.precision != EXACT or is_loss(of, against):
        found = loss(of, of.model if against is None else against, values, function=options.function)
        if options.html is not None:
            write_comparison(options.html, options.model, of, values, found)
        print(json.dumps(found.as_dict(), ensure_ascii=False) if options.json else found.table(options.top))
        return 0
    report = compare(
        of,
        values,
        against,
        function=options.function,
        tolerance=options.tolerance,
        bisect=options.bisect,
        save=options.save,
    )
    return _told(report, options, of, values)


def _told(report: Comparison, options: argparse.Namespace, of: Subject, feeds: Mapping[str, Any]) -> int:
    if options.html is not None:
        write_comparison(options.html, options.model, of, feeds, report)
    print(report.json() if options.json else report.table(options.top))
    if options.save is not None:
        print(f"saved in {options.save}; `treadle compare {options.save}` does it again", file=sys.stderr)
    return 0 if report.ok else 1


def nonfinite_command(options: argparse.Namespace) -> int:
    from ..debug.nonfinite import first_nonfinite

    of, values = prepare(options)
    found = first_nonfinite(of, values, function=options.function, infinities=not options.nan_only)
    if found is None:
        print("null" if options.json else "all numbers are finite")
    else:
        print(found.json() if options.json else found)
    return 0 if found is None else 1


def dump_command(options: argparse.Namespace) -> int:
    from ..debug.dumping import dump

    of, values = prepare(options)
    folder = dump(of, values, options.output, function=options.function, overwrite=options.overwrite)
    print(f"{folder}: {len(list(folder.glob('*.npy')))} tensors")
    return 0


def step_command(options: argparse.Namespace) -> int:
    from bdb import BdbQuit

    from ..compiler.targets.emulated.call import Step
    from ..debug.stepping import step
    from ..formats.messages.names import near
    from ..native.convention import STOPPED
    from ..vm.failures import KERNEL_FAILURES

    of, values = prepare(options)
    names = of.executable.lib.names
    if options.primitive not in names:
        known = f"{', '.join(names) or 'none'}{near(options.primitive, names)}"
        raise arguments.UsageError(f"there is no primitive {options.primitive!r} in {options.model}; there is {known}")
    shown: list[Step] = []
    is_reached = options.first == 0

    def watch(each: Step) -> bool:
        nonlocal is_reached
        is_reached = is_reached or each.line == options.first
        if is_reached and (not options.names or not each.values.keys().isdisjoint(options.names)):
            shown.append(each)
            if not options.json:
                print(each)
        return options.top == 0 or len(shown) < options.top

    debugger = None
    if options.pdb:
        from pdb import Pdb

        debugger = Pdb(skip=["treadle.*"])
    try:
        ran = step(
            of,
            values,
            options.primitive,
            function=options.function,
            parts=options.parts,
            watch=watch,
            debugger=debugger,
        )
    except BdbQuit:
        return 0
    if options.json:
        print(json.dumps([asdict(each) for each in shown]))
    else:
        why = f": {KERNEL_FAILURES[ran.code]}" if ran.code in KERNEL_FAILURES else ""
        print("…" if ran.code == STOPPED else f"the kernel returns {ran.code}{why}")
    return 0


def source_command(options: argparse.Namespace) -> int:
    from ..formats.messages.names import near

    library = _opened(options.file, options).lib
    if options.primitive is None:
        shown: Any = list(library.names)
    elif options.primitive not in library.names:
        known = f"{', '.join(library.names) or 'none'}{near(options.primitive, library.names)}"
        raise arguments.UsageError(f"there is no primitive {options.primitive!r} in {options.file}; there is {known}")
    else:
        shown = library.get_source(options.primitive, options.form)
    print(json.dumps(shown) if options.json else shown if isinstance(shown, str) else "\n".join(shown))
    return 0


def diff_command(options: argparse.Namespace) -> int:
    from ..debug.difference import diff

    found = diff(_opened(options.file, options), _opened(options.other, options))
    print(json.dumps(asdict(found), ensure_ascii=False) if options.json else found)
    return 0 if found.same else 1


def graph_command(options: argparse.Namespace) -> int:
    from ..debug import save_graph

    save_graph(_opened(options.file, options), options.output, function=options.function)
    say_size(options.output)
    return 0


def _opened(name: str, options: argparse.Namespace) -> Executable:
    """An executable; a model is compiled, without kernels."""
    return program_file(name).executable(**compile_options(options), progress=False)
