"""`treadle profile`: where the time of a call goes, primitive by primitive, and with --roofline how much is left to gain."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import arguments
from .pages import require_ending, write_flame, write_profile
from .program_files import HELP
from .subjects import SYMBOLIC_SIZE, made, say_size

if TYPE_CHECKING:
    from ..formats.executable import Executable
    from .machine_limits import Limits
    from .roofline import Row

_REPEAT = 10
_ROWS = 30

_NOTES = """\
A share of the peak or of the bandwidth is that of the machine's own, measured once with kernels that do nothing else. The work
is that of the definition: every operand moved once, a multiply-add two operations. `eff.` counts what a plain algorithm would
do, of which Winograd's does less. Constants are read from where all of them fit, other tensors from where a call's own fit.

"""

COMMANDS = {"Find what is slow or wrong": ("profile",)}


def add_commands(commands: Any) -> None:
    """Adds `profile` to the command line."""
    from .execute import add_call_options, add_dim

    profile = commands.add_parser(
        "profile",
        help="show how long each primitive of a call takes",
        epilog=_NOTES + (arguments.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    profile.add_argument("executable", metavar="program", help=HELP)
    add_call_options(profile)
    profile.add_argument("--roofline", action="store_true", help="compare with what this machine can do at most")
    profile.add_argument("--remeasure", action="store_true", help="measure the machine's limits anew")
    add_dim(profile, f"a symbolic dimension of inputs that are not given, which are random (default: {SYMBOLIC_SIZE})")
    profile.add_argument("--repeat", type=int, default=_REPEAT, metavar="N", help=f"calls (default: {_REPEAT})")
    profile.add_argument("--top", type=int, default=_ROWS, metavar="N", help=f"rows to show (default: {_ROWS}; 0: all)")
    profile.add_argument(
        "--trace", type=Path, metavar="FILE", help="write a timeline: .json for Chrome, .pftrace for Perfetto"
    )
    profile.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page: timeline, flame graph, roofline, memory"
    )
    profile.add_argument("--flame", type=Path, metavar="FILE", help="write a flame graph, *.svg")
    profile.add_argument(
        "--memory", action="store_true", help="show what memory one call takes, and what lives at its peak"
    )
    profile.set_defaults(command=profile_command)


def profile_command(options: argparse.Namespace) -> int:
    from .. import get_num_threads
    from .execute import open_executable, open_machine, prepare_call
    from .machine_limits import limits
    from .roofline import by_template, measure

    pages = {".html": "--html", ".svg": "--flame", ".json": "--trace", ".pftrace": "--trace"}
    for option, path, endings in (
        ("--trace", options.trace, (".json", ".pftrace")),
        ("--html", options.html, (".html",)),
        ("--flame", options.flame, (".svg",)),
    ):
        require_ending(path, option, endings, pages)
    executable = open_executable(options.executable, options)
    function, values = prepare_call(executable, options, made)
    if options.memory or any(path is not None for path in (options.trace, options.html, options.flame)):
        return _seen_inside(executable, function.name, values, options)
    machine = open_machine(executable, options)
    threads = get_num_threads()
    bounds = limits(threads, options.remeasure)
    constant_bytes = _constant_bytes(executable)
    places = measure(machine, function.name, values, bounds, constant_bytes, max(1, options.repeat))
    rows = list(places.values())
    groups = by_template(rows)
    if options.json:
        print(json.dumps(_report(rows, groups, bounds, constant_bytes)))
        return 0
    if options.roofline:
        print(_limits_text(bounds, constant_bytes))
    shown = rows[: options.top or None]
    for table, heads in ((shown, "primitive"), (groups, "template")):
        print(_table(table, heads, sum(row.seconds for row in rows), options.roofline))
        if table is shown and len(shown) < len(rows):
            print(f"… {len(rows) - len(shown)} more; --top 0 shows all")
        print()
    return 0


def _seen_inside(executable: Executable, function: str, values: Sequence[Any], options: argparse.Namespace) -> int:
    """The timeline of a call, its memory, and pictures of them."""
    from ..debug import save_trace, stats
    from ..debug.subject import Subject

    if options.threads is not None:
        from .. import set_num_threads

        set_num_threads(options.threads)
    of = Subject(executable, None, function, options.trust_native)
    if options.memory:
        found = stats(of, values, function=function)
        print(found.json() if options.json else found.table(options.top))
    if options.trace is not None:
        save_trace(of, values, options.trace, function=function)
        say_size(options.trace)
    feeds = dict(zip(executable.get_function_params(function), values, strict=True))
    if options.html is not None:
        write_profile(options.html, options.executable, of, feeds)
    if options.flame is not None:
        write_flame(options.flame, of, feeds)
    return 0


def _constant_bytes(executable: Executable) -> int:
    return sum(array.nbytes for array in executable.constants)


def _report(rows: Sequence[Row], groups: Sequence[Row], bounds: Limits, constant_bytes: int) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "seconds": sum(row.seconds for row in rows),
        "constant_bytes": constant_bytes,
        "limits": asdict(bounds),
        "primitives": [row.as_json() for row in rows],
        "templates": [row.as_json() for row in groups],
    }


# ---- tables ----


def _limits_text(bounds: Limits, constant_bytes: int) -> str:
    levels = ", ".join(f"{level.name} {level.bandwidth / 1e9:.0f}" for level in bounds.levels)
    threads = f"{bounds.threads} thread{'s' * (bounds.threads > 1)}"
    doubts = "".join(f"doubtful, and not kept: {doubt}\n" for doubt in bounds.doubts)
    if doubts:
        doubts += "so are all shares below; measure again (--remeasure) while the machine is idle\n"
    return (
        f"{doubts}this machine, {threads}: float32 {bounds.float32 / 1e9:.0f} GFLOP/s, float64 {bounds.float64 / 1e9:.0f}, "
        f"int8 {bounds.int8 / 1e9:.0f}; "
        f"reads GB/s: {levels}\nconstants: {constant_bytes / 1e6:.1f} MB, "
        f"read at {bounds.bandwidth(constant_bytes) / 1e9:.0f} GB/s\n"
    )


def _table(rows: Iterable[Row], head: str, total: float, roofline: bool) -> str:
    heads = ["ms", "%", "calls"]
    if roofline:
        heads += ["GFLOP/s", "eff.", "GB/s", "% peak", "% bandw.", "% roofline", "bound"]
    cells = [[*heads, head, "node" if head == "primitive" else ""]]
    for row in rows:
        line = [f"{row.seconds * 1e3:.3f}", f"{100 * row.seconds / max(total, 1e-12):.1f}", str(row.calls)]
        if roofline:
            line += _roofline_cells(row)
        cells.append([*line, row.primitive, row.node or ""])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = len(heads)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at < right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def _roofline_cells(row: Row) -> list[str]:
    facts = row.as_json()
    rates = [facts["gflops"], facts["effective_gflops"], facts["gbytes_per_second"]]
    shares = [facts["peak_share"], facts["bandwidth_share"], facts["roofline_share"]]
    return [*(f"{rate:.1f}" for rate in rates), *(f"{100 * share:.0f}" for share in shares), row.bound]
