"""`treadle debug`: the debugger in a terminal. `debug/debugger/session.py` is what it shows; here is how."""

from __future__ import annotations

import argparse
import contextlib
import functools
import linecache
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats.messages.errors import ArgumentError, TreadleError
from ..formats.messages.names import near
from .program_files import HELP, add_compile_options, compile_options, program_file
from .subjects import prepare

if TYPE_CHECKING:
    from ..debug.debugger.session import Frame, Origin, Session, Stop
    from ..debug.debugger.values import Numbers
    from ..vm.machine import VirtualMachine

COMMANDS = {"Find what is slow or wrong": ("debug", "replay")}
_PROMPT = "(treadle) "
_BARS = " ▁▂▃▄▅▆▇█"
_AROUND = 4  # instructions before and behind the next one
_USES = 8  # readers of a value
_CONDITION = re.compile(r"(?:^|\s)if\s+(.*)$")
_VALUE = re.compile(r"([A-Za-z_]\w*)((?:\.\d{1,9})*)(?:\[(.*)\])?$")


def add_commands(commands: Any) -> None:
    """Adds the command to the command line."""
    from .execute import add_budgets
    from .subjects import add_command

    debug = add_command(commands, "debug", debug_command, "run a call step by step, forward and back")
    debug.add_argument(
        "--dap",
        action="store_true",
        help="serve an editor by the Debug Adapter Protocol, over standard input and output; it may launch others than MODEL",
    )
    debug.add_argument("--port", type=int, metavar="N", help="with --dap: on this port of 127.0.0.1 (0: a free one)")
    next(each for each in debug._actions if each.dest == "model").nargs = "?"
    add_budgets(debug)
    add_script(debug)
    replay = commands.add_parser("replay", help="make the calls of a recording again, and compare what they give")
    replay.add_argument("recording", help="what `treadle run --record` or machine.record wrote")
    replay.add_argument(
        "program",
        nargs="?",
        help=f"{HELP}; default: the file that the recording names, beside it or in the working directory",
    )
    replay.add_argument("--call", type=int, metavar="N", help="this call alone, from 0; from -1 back (default: all)")
    replay.add_argument("--debug", action="store_true", dest="stops", help="debug the call; by default the last one")
    add_script(replay)
    add_compile_options(replay)
    replay.add_argument("--trust-native", action="store_true", help="run the native code that is in the file")
    replay.set_defaults(command=replay_command)


def add_script(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", action="append", default=[], metavar="COMMAND", dest="script", help="do this first; may be repeated"
    )


def replay_command(options: argparse.Namespace) -> int:
    import json

    from ..debug.recording import beside, load_recording
    from .arguments import require_file
    from .errors import UsageError

    require_file(options.recording)
    recorded = load_recording(options.recording)
    name = options.program or beside(recorded, options.recording)
    if name is None:
        raise UsageError(
            f"{options.recording} was recorded of {recorded.file or 'a program that was not in a file'}, which is neither beside "
            f"it nor in the working directory; say where it is: treadle replay {options.recording} PROGRAM"
        )
    executable = program_file(str(name)).executable(
        **compile_options(options), trust_native=options.trust_native, progress=False
    )
    machine = recorded.machine(executable, trust_native=options.trust_native)
    if options.stops:
        with recorded.debug(machine, -1 if options.call is None else options.call) as session:
            Terminal(session).run(options.script)
        return 0
    replayed = recorded.replay(machine, options.call)
    if options.json:
        print(json.dumps([{"function": each.function, "same": each.same, "text": str(each)} for each in replayed]))
    else:
        for each in replayed:
            print(each)
        if recorded.left_out:
            print(f"{recorded.left_out} more calls were left out: the recording had no room for them")
    return 0 if all(each.same for each in replayed) else 1


def debug_command(options: argparse.Namespace) -> int:
    from .errors import UsageError

    if options.dap:
        from ..debug.debugger.listening import serve_socket, serve_stdio

        launcher = functools.partial(_launched, options)
        serve_stdio(launcher) if options.port is None else serve_socket(options.port, launcher)
        return 0
    if options.port is not None or options.model is None:
        raise UsageError(
            "treadle debug MODEL debugs a call in this terminal; treadle debug --dap [--port N] serves an editor"
        )
    machine, values, bounds = _prepared(options)
    with machine.debug(options.function, values, **bounds) as session:
        Terminal(session).run(options.script)
    return 0


def _prepared(options: argparse.Namespace) -> tuple[VirtualMachine, list[Any], dict[str, Any]]:
    """A machine, arguments of its function, and the bounds of the call."""
    from .. import VirtualMachine
    from .execute import BUDGETS

    of, values = prepare(options)
    bounds = {name: getattr(options, name) for name in BUDGETS if getattr(options, name) is not None}
    machine = VirtualMachine(of.executable, kernels=options.kernels, trust_native=options.trust_native)
    return machine, list(values.values()), bounds


def _launched(default: argparse.Namespace, given: dict[str, Any]) -> tuple[Callable[[], None], bool]:
    """What an editor launches: `program`, a model or a script of Python, with `args` as on the command line, in `cwd`. And
    whether it is a script. Raises UsageError, ArgumentError, and what compiling raises."""
    from ..debug.debugger.wire import argument
    from .cli import parsed
    from .errors import UsageError

    program, cwd = argument(given, "program", default.model or ""), argument(given, "cwd", "")
    args: list[str] = argument(given, "args", [])
    if not program or not all(isinstance(each, str) for each in args):
        raise UsageError('launch: expected {"program": FILE, "args": [TEXT, …]}: a model, or a script of Python')
    if cwd:
        os.chdir(cwd)
    if program.endswith(".py"):
        return functools.partial(_run_script, program, args), True
    options = parsed(["debug", program, *args]) if args or "program" in given else default
    machine, values, bounds = _prepared(options)

    def call() -> None:
        result = machine.call(options.function, values, **bounds)
        print(_results(result))

    return call, False


def _run_script(program: str, args: Sequence[str]) -> None:
    """As `python program args`."""
    import runpy

    argv, path = sys.argv, list(sys.path)
    sys.argv, sys.path[:0] = [program, *args], [str(Path(program).resolve().parent)]
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path


class Terminal:
    """Reads commands and prints what they give: from a terminal with a prompt, else each after the command itself."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._level = 0
        self._last = ""
        self._is_over = False
        own = {name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")}
        self._commands = {name: self._mover(*motion) for name, motion in _MOTIONS.items()} | own

    def run(self, script: Sequence[str] = ()) -> None:
        """Until `quit`, or the end of what is read; after a script that says `quit`, nothing is read."""
        self._show(self._session.stop)
        for line in self._lines(script):
            self._do(line)
            if self._is_over:
                break

    def _lines(self, script: Sequence[str]) -> Iterator[str]:
        for line in script:
            print(_PROMPT + line)
            yield line
        if sys.stdin is None:  # closed
            return
        is_terminal = sys.stdin.isatty()
        if is_terminal:
            with contextlib.suppress(ImportError):  # lines can be edited, and called back
                import readline  # noqa: F401
        while True:
            try:
                line = input(_PROMPT) if is_terminal else next(sys.stdin)
            except (EOFError, StopIteration):
                return
            except KeyboardInterrupt:
                print()
                continue
            if not is_terminal:
                print(_PROMPT + line.rstrip("\n"))
            # an empty line does once more what was done last
            yield line.strip() or self._last

    def _do(self, line: str) -> None:
        word, _, rest = line.strip().partition(" ")
        if not word:
            return
        self._last = line
        name = _SHORT.get(word, word)
        command = self._commands.get(name)
        if command is None:
            print(f"there is no command {word!r}{near(word, self._commands)}; `help` lists them")
            return
        rest, wanted = rest.strip(), command.__doc__ or ""
        if not rest and wanted[:1].isupper():
            print(f"usage: {name} {wanted}")
            return
        try:
            with self._interruptible():
                command(rest)
        except TreadleError as error:
            print(error)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C stops the call that runs, and not the debugger."""
        self._session.interrupt(False)  # pressed while nothing ran
        try:
            before = signal.signal(signal.SIGINT, lambda *_: self._session.interrupt())
        except ValueError:  # not the main thread
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    # ---- motion ----

    def _mover(self, name: str, back: bool, text: str) -> Callable[[str], None]:
        """The command that makes a motion of the session's, as often as it is told."""

        def move(count: str) -> None:
            for _ in range(_number(count) if count else 1):
                stop: Stop = getattr(self._session, name)(back)
                if stop.reason != "step":
                    break
            self._show(stop)

        move.__doc__ = text
        return move

    def do_goto(self, text: str) -> None:
        """STEP: to a number of instructions since the beginning"""
        self._show(self._session.goto(_number(text, 0)))

    # ---- breakpoints ----

    def do_break(self, text: str) -> None:
        """[WHERE] [iteration N] [if CONDITION]: stop there; without anything, list them"""
        from ..debug.debugger.breakpoints import in_iteration

        if not text:
            for point in self._session.breakpoints.values():
                print(point)
            return
        condition = _CONDITION.search(text)
        where, iteration = in_iteration(text[: condition.start()] if condition else text)
        point = self._session.break_at(where, when=condition[1] if condition else None, iteration=iteration)
        sites = len(point.before | point.after)
        print(f"{point}, {sites} instruction{'s' * (sites != 1)}")

    def do_delete(self, text: str) -> None:
        """NUMBER: forget a breakpoint"""
        self._session.delete(_number(text))

    # ---- looking ----

    def do_frames(self, text: str) -> None:
        """the functions that run, the innermost first"""
        for frame in self._session.frames():
            print(("→ " if frame.level == self._level else "  ") + str(frame))

    def do_up(self, text: str) -> None:
        """to the function that has called this one"""
        self._select(self._level + 1)

    def do_down(self, text: str) -> None:
        """to the function that this one has called"""
        self._select(self._level - 1)

    def _select(self, level: int) -> None:
        self._session.registers(level)  # raises where there is no such frame
        self._level = level
        print(self._session.frames()[level])

    def do_list(self, text: str) -> None:
        """the instructions around the next one"""
        from ..formats.text.dis import dis

        frame = self._session.frames()[self._level]
        listing = dis(self._session.program, frame.function)
        at = next(place for place, each in enumerate(listing) if each.offset == frame.offset)
        for place in range(max(0, at - _AROUND), min(len(listing), at + _AROUND + 1)):
            print(("→ " if place == at else "  ") + str(listing[place]).rstrip())

    def do_registers(self, text: str) -> None:
        """what the registers of this function hold"""
        found = self._session.registers(self._level)
        _columns([[each.name, each.value.type, each.value.text, each.node] for each in found])

    def do_print(self, text: str) -> None:
        """NAME[.FIELD…][SLICE] or an expression: a register in detail, or what is computed of some"""
        from ..debug.debugger.values import part

        found = _VALUE.match(text)
        if found is None or found[1] in ("step", "depth", "iteration"):
            print(self._session.evaluate(text, self._level))
            return
        name, path = found[1], _path(found[2])
        value = self._session.value(name, path, self._level)
        if found[3] is not None:
            print(np.array2string(part(self._session.tensor(name, path, self._level), found[3]), precision=7))
            return
        print(f"{text}: {value.type} {value.text}")
        for field, inner in self._session.fields(name, path, self._level):
            print(f"  .{field}: {inner.type} {inner.text}")
        if value.kind == "tensor" and not value.type.startswith("string"):
            numbers = self._session.numbers(name, path, self._level)
            if numbers.size != 1:  # which stands there already
                print(_told(numbers))

    def do_made(self, text: str) -> None:
        """NAME[.FIELD…]: where the value was made, and who has read it"""
        found = _VALUE.match(text)
        name, fields = (found[1], found[2]) if found else (text, "")
        print(_origin(self._session.origin(name, _path(fields), self._level)))

    def do_set(self, text: str) -> None:
        """NAME = EXPRESSION: other elements for a tensor, with which the call goes on"""
        name, _, value = text.partition("=")
        self._session.set(name.strip(), self._session.evaluate(value.strip(), self._level), self._level)

    def do_where(self, text: str) -> None:
        """where the call stands"""
        self._show(self._session.stop)

    def do_help(self, text: str) -> None:
        """this list"""
        short = {name: word for word, name in _SHORT.items()}
        _columns([[short.get(name, ""), name, command.__doc__ or ""] for name, command in self._commands.items()])

    def do_quit(self, text: str) -> None:
        """end the call where it stands"""
        self._is_over = True

    # ---- showing ----

    def _show(self, stop: Stop) -> None:
        self._level = 0
        print(_stop(stop, self._session))


_MOTIONS = {  # what of the session's, whether back, and what it is for
    "continue": ("resume", False, "go on to the next breakpoint, or the end"),
    "reverse": ("resume", True, "go back to the last breakpoint before, or the beginning"),
    "step": ("step", False, "[COUNT]: to the next node or line, into functions too"),
    "back": ("step", True, "[COUNT]: to the beginning of the node or line before"),
    "next": ("over", False, "[COUNT]: to the next node or line of this function"),
    "previous": ("over", True, "[COUNT]: to the node or line before, of this function"),
    "out": ("out", False, "to where this function returns to"),
    "caller": ("out", True, "back to where this function was called"),
    "instruction": ("instruction", False, "[COUNT]: one instruction"),
    "undo": ("instruction", True, "[COUNT]: one instruction back"),
}
_SHORT = {name[0]: name for name in ("continue", "reverse", "step", "back", "next", "print", "out", "instruction")}
_SHORT |= {name[0]: name for name in ("undo", "goto", "where", "frames", "list", "help", "quit")}


def _stop(stop: Stop, session: Session) -> str:
    """A stop as some lines."""
    if stop.reason == "returned":
        return f"returned at step {stop.time}: {_results(session.result)}"
    assert stop.frame is not None
    lines = [f"{_why(stop)} at step {stop.time}"]
    if stop.made is not None:
        value = session.value(stop.register)
        lines.append(f"  {stop.register}: {value.type} {value.text}")
        lines.append(f"  made by {_at(stop.made)}")
    lines.append(f"  next {_at(stop.frame)}")
    source = _source(stop.made or stop.frame)
    return "\n".join([*lines, *([f"  {source}"] if source else [])])


def _results(result: Any) -> str:
    """What a call has returned, in one line."""
    from ..debug.debugger.values import brief

    shown = []
    for each in result if isinstance(result, tuple) else (result,):
        array = np.asarray(each) if hasattr(each, "__array__") else None
        name = "" if array is None else "string" if array.dtype == object else array.dtype.name
        shown.append(repr(each) if array is None else f"{name}{list(array.shape)} {brief(array)}")
    return "; ".join(shown)


def _why(stop: Stop) -> str:
    if stop.breakpoint is not None:
        return str(stop.breakpoint)
    return f"{stop.reason}: {stop.error}" if stop.error is not None else stop.reason


def _at(frame: Frame) -> str:
    rounds = f", {frame.iterations}" if frame.rounds else ""
    node = f"  from {frame.node}" if frame.node else ""
    return f"{frame.instruction}{node}{rounds}  in @{frame.function}"


def _number(text: str, least: int = 1) -> int:
    """A count, or a number of something. Raises ArgumentError."""
    if not re.fullmatch(r"\d{1,18}", text) or int(text) < least:
        raise ArgumentError(f"expected a number from {least} on, got {text!r:.60}")
    return int(text)


def _path(fields: str) -> list[int]:
    """The numbers of fields in `.1.0`."""
    return [int(each) for each in fields.split(".")[1:]]


def _source(frame: Frame) -> str:
    """The line of Python that a frame is at, if the file lies in the working directory."""
    from ..debug.debugger.sources import lines_of

    lines = lines_of(frame.node)
    if not lines or not Path(lines[-1].file).is_file():
        return ""
    name, line = lines[-1]
    return f"{name}:{line}: {linecache.getline(name, line).strip()}"


def _told(numbers: Numbers) -> str:
    """Statistics in a line or two, with the histogram."""
    if numbers.least is None or numbers.greatest is None:
        lines = [f"  nothing finite: {numbers.nans} NaN, {numbers.infinities} infinite of {numbers.size}"]
    else:
        lines = [
            f"  {numbers.least:.6g} … {numbers.greatest:.6g}, mean {numbers.mean:.6g}, deviation {numbers.deviation:.6g}, "
            f"{numbers.zeros} zeros, {numbers.nans} NaN, {numbers.infinities} infinite of {numbers.size}"
        ]
    if any(numbers.histogram):
        most = max(numbers.histogram)
        bars = "".join(_BARS[-(-each * (len(_BARS) - 1) // most)] for each in numbers.histogram)
        lines.append(f"  {numbers.least:.6g} {bars} {numbers.greatest:.6g}")
    if numbers.first_nonfinite is not None:
        lines.append(f"  the first that is not finite: {list(numbers.first_nonfinite)}")
    return "\n".join(lines)


def _origin(found: Origin) -> str:
    maker = (
        f"step {found.maker.time}: {_at(found.maker.frame)}" if found.maker else found.name or "nothing has written it"
    )
    lines = [f"made by {maker}"]
    lines += [f"read at step {use.time} by {_at(use.frame)}" for use in found.readers[:_USES]]
    if len(found.readers) > _USES:
        lines.append(f"… and {len(found.readers) - _USES} more times")
    return "\n".join(lines if found.readers else [*lines, "not read yet"])


def _columns(rows: list[list[str]]) -> None:
    widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
