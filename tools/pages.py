"""`treadle inspect -o report.html`, a page about a program and a call of it, which `profile` and `compare` write too (--html)."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..debug.files import write
from .errors import UsageError
from .program_files import program_file
from .subjects import add_command, against_of, prepare, say_size

if TYPE_CHECKING:
    from ..debug.comparison import Comparison
    from ..debug.noise import Loss
    from ..debug.subject import Subject

COMMANDS = {"Look inside": ("inspect",)}

_RUNTIMES = ("onnxruntime", "reference")
_PAGE = ".html"


def add_commands(commands: Any) -> None:
    """Adds `inspect` to the command line."""
    text = "write a page that shows a program, a call of it, and how it differs from others"
    inspect = add_command(commands, "inspect", _inspect, text)
    inspect.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the page, *.html")
    inspect.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="WHAT",
        help="also this program, side by side, with the errors beside it; or onnxruntime, reference; may be repeated",
    )


def require_ending(path: Path | None, option: str, endings: Sequence[str], instead: Mapping[str, str]) -> None:
    """Before anything is computed: raises UsageError for another ending, and says which option writes that one."""
    if path is None or path.name.endswith(tuple(endings)):
        return
    other = instead.get(path.suffix)
    hint = f"; {other} {path} writes that" if other else ""
    raise UsageError(f"{option} {path}: the name must end with {' or '.join(endings)}{hint}")


def write_page(path: Path, seen: Sequence[Any], compared: Sequence[Any], start: str) -> None:
    """Writes the page, and says how large it is. Raises FileError."""
    from .page.page import written

    _write(path, written(seen, compared, start))


def _write(path: Path, content: str) -> None:
    write(path, content.encode())
    say_size(path)


def require_page(path: Path | None, option: str) -> None:
    require_ending(path, option, (_PAGE,), {})


def _inspect(options: argparse.Namespace) -> None:
    from .page.gather import beside

    require_page(options.output, "--output")
    first, feeds = _seen(options.model, options)
    seen, compared = [first], []
    for name in options.against:
        against: Any = name
        if name not in _RUNTIMES:
            other, _ = _seen(name, options)
            seen.append(other)
            against = against_of(name)
        if feeds is not None and first.run is not None:
            compared.append(beside(first, feeds, against, Path(name).name))
    write_page(options.output, seen, compared, "compare" if compared else "overview")


def _seen(name: str, options: argparse.Namespace) -> tuple[Any, Mapping[str, Any] | None]:
    """A program, and a call of it where its arguments are given or can be made."""
    from ..debug.subject import Subject
    from .page.gather import seen

    file = program_file(name)
    chosen = copy.copy(options)
    chosen.model = name
    label = Path(file.name).name
    try:
        of, feeds = prepare(chosen)
    except UsageError as error:
        if options.input:
            raise
        executable = file.executable(trust_native=options.trust_native, progress=False)
        return seen(label, Subject(executable, None, options.function), None, file.bytes, str(error)), None
    return seen(label, of, feeds, file.bytes), feeds


def write_profile(path: Path, name: str, of: Subject, feeds: Mapping[str, Any]) -> None:
    """The page of one call, which opens with its times."""
    from .page.gather import seen

    write_page(path, [seen(Path(name).name, of, feeds)], [], "time")


def write_flame(path: Path, of: Subject, feeds: Mapping[str, Any]) -> None:
    """The flame graph alone, as SVG. Raises FileError."""
    from .page.gather import run
    from .page.pictures import flame

    _write(path, flame(run(of, feeds), {}))


def write_comparison(path: Path, name: str, of: Subject, feeds: Mapping[str, Any], report: Comparison | Loss) -> None:
    """The page of a program that was compared, which opens with the comparison."""
    from ..debug.comparison import Comparison
    from .page.gather import of_comparison, of_loss, seen

    first = seen(Path(name).name, of, feeds)
    if isinstance(report, Comparison):
        found = of_comparison(first, report, report.against)
    else:
        found = of_loss(first, report, report.against)
    write_page(path, [first], [found], "compare")
