"""The `treadle` command. A new command takes one file: a module beside this one, which names it in `COMMANDS`, under a group of
`_GROUPS`, and adds its parser in `add_commands`. The module is imported when one of its commands is run.

Exit codes: 0 all is well, 1 results differ from what was expected, 2 the command line is wrong, 3 a file or model is invalid,
4 the program failed while it ran, or a file could not be written, 5 the program, or its compilation, passed one of its budgets.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from ..formats.messages.errors import (
    BudgetExceededError,
    CompileBudgetError,
    CompileError,
    FormatError,
    ParseError,
    TreadleError,
    UnknownOperatorError,
    UnsupportedOperatorError,
)
from ..formats.messages.terminal import Shown, showing

OK, MISMATCH, USAGE, INVALID, FAILED, EXHAUSTED = range(6)

_DEVELOPERS = {"bench": ".dev.bench.commands"}  # an installed package has no tools/dev
_GROUPS = {  # of commands, with an example of each, in the order of `treadle --help`
    "Run models": "treadle run model.onnx --input x=1x3x224x224xf32=@image.npy",
    "Look inside": "treadle dis model.trdl --function main",
    "Find what is slow or wrong": "treadle compare model.onnx --dim batch=2",
    "Look after this machine": "treadle cache --older-than 30d",
    "Work on Treadle": "treadle bench dispatch",
}
_TABLE = re.compile(r"^COMMANDS = (\{.*?\})$", re.MULTILINE | re.DOTALL)
_DESCRIPTION = "Compile tensor programs to executables, run them, and look inside."


_PACKAGES = {"onnx": "treadle[onnx]", "safetensors": "treadle[safetensors]"}  # what is not installed with Treadle


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and gives its exit code. What it prints holds names of files' from anywhere, which are shown."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: Python prints nothing then, and no file of ours may get its number
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    try:
        with contextlib.redirect_stdout(cast(TextIO, Shown(sys.stdout))):
            code = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()  # a reader that has gone is met here, not when the process ends
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output (head, a pager) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _run(arguments: Sequence[str]) -> int:
    parser = _parser(arguments[0] if arguments else None)
    commands = _commands(parser)
    if not arguments:
        parser.print_help()
        return OK
    word = arguments[0]
    if not word.startswith("-") and word not in commands:
        print(f"treadle: {_no_command(word, commands)}", file=sys.stderr)
        return USAGE
    try:
        options, rest = parser.parse_known_args(arguments)
    except SystemExit as exit_:  # argparse has said why; --help exits with 0
        return int(exit_.code or 0)
    if rest:
        print(f"treadle {options.command_name}: {_no_option(rest[0], commands[options.command_name])}", file=sys.stderr)
        return USAGE
    try:
        _import(getattr(options, "imports", ()))
        return options.command(options) or OK
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as error:
        if getattr(options, "debug", False):
            raise
        print(f"treadle {options.command_name}: {_message(error)}", file=sys.stderr)
        return exit_code(error)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command, given by another way than the command line. Raises UsageError."""
    from .errors import UsageError

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            options, rest = _parser(arguments[0]).parse_known_args(arguments)
    except SystemExit:
        raise UsageError(said.getvalue().strip().rpartition("\n")[2]) from None
    if rest:
        raise UsageError(f"treadle {arguments[0]}: there is no option {rest[0]!r}")
    return options


def _import(names: Iterable[str]) -> None:
    """Modules of users, which define operators and importers. Python looks for them in the working directory too, as for
    `python -m`. Raises UsageError for one that cannot be imported."""
    for name in names:
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            if os.sep in name or name.endswith(".py"):
                module = ".".join(Path(name).with_suffix("").parts)
                raise ModuleNotFoundError(f"a module's name is expected, such as {module}, not its file's")
            importlib.import_module(name)
        except Exception as error:
            from .errors import UsageError

            is_missing = isinstance(error, ModuleNotFoundError) and error.name and name.startswith(error.name)
            hint = "; Python looks in the working directory, and where PYTHONPATH says" if is_missing else ""
            raise UsageError(f"--import {name}: {type(error).__name__}: {error}{hint}") from error


def _no_command(word: str, commands: Iterable[str]) -> str:
    """The message about a first word that is not a command: often a file is given without one."""
    from ..formats.messages.elsewhere import elsewhere
    from ..formats.messages.names import near

    if os.path.isfile(word):
        return f"the command is missing: `treadle run {word}` runs the program, `treadle info {word}` shows it"
    return (
        f"there is no command {word!r}{elsewhere('command', word) or near(word, commands)}; `treadle --help` lists them"
    )


def _no_option(word: str, command: argparse.ArgumentParser) -> str:
    """The message about a word that a command does not take."""
    from ..formats.messages.names import near

    if not word.startswith("-"):
        return f"{word!r} is one argument too many; `{command.prog} --help` shows them"
    name, known = word.partition("=")[0], [text for action in command._actions for text in action.option_strings]
    return f"there is no option {name}{near(name, known)}; `{command.prog} --help` lists them"


def exit_code(error: Exception) -> int:
    """The exit code of a process that met `error`."""
    from .errors import UsageError

    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, (BudgetExceededError, CompileBudgetError)):
        return EXHAUSTED
    return INVALID if isinstance(error, (FormatError, CompileError)) else FAILED


@showing
def _message(error: Exception) -> str:
    """One line; a mistake in a text keeps the line that it is in, and the caret."""
    if isinstance(error, ParseError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _PACKAGES:
        return f"the package {error.name} is needed: pip install '{_PACKAGES[error.name]}'"
    if isinstance(error, MemoryError) and not isinstance(error, TreadleError):
        return f"there is not enough memory{f': {error}' if str(error) else ''}"
    if not isinstance(error, (TreadleError, OSError)):
        kind = type(error).__name__
        return f"a fault of Treadle, please report it ({kind}: {' '.join(str(error).split())}); --debug shows where"
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and not isinstance(error, TreadleError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, UnknownOperatorError):
        return f"{text}: {' '.join(f'--import {module}' for module in error.modules) or '--import MODULE'}"
    if isinstance(error, UnsupportedOperatorError) and "onnx_operator" in text:
        return f"{text}; --import MODULE names the module that has it"
    if isinstance(error, (BudgetExceededError, CompileBudgetError)) and error.budget:  # as the command line calls it
        return text.replace(f"max_{error.budget}", f"--max-{error.budget}")
    return text


@cache
def grouped(folder: Path = Path(__file__).parent) -> Mapping[str, Mapping[str, str]]:
    """The groups of `--help`; of each, its commands with the modules that have them.

    `COMMANDS` is read from the modules' text: importing them all would import NumPy, which `treadle cache` does not need.
    """
    found: dict[str, dict[str, str]] = {title: {} for title in _GROUPS}
    for path in folder.glob("*.py"):
        table = _TABLE.search(path.read_text(encoding="utf-8"))
        for title, names in ast.literal_eval(table[1]).items() if table else ():
            found[title].update(dict.fromkeys(names, f".{path.stem}"))
    found["Work on Treadle"].update(_DEVELOPERS)
    return {title: dict(sorted(names.items())) for title, names in found.items()}


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}; `{self.prog} --help` says more\n")


def _commands(parser: argparse.ArgumentParser) -> Mapping[str, Any]:
    """The parsers of the commands, by name."""
    found = (each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return next(found, {})


def _parser(word: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; of those of one module where `word` is one of them, for importing the others takes time."""
    from .. import __version__

    parser = _Parser("treadle", description=_DESCRIPTION, epilog=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--version", action="version", version=f"treadle {__version__}")
    commands = parser.add_subparsers(dest="command_name", metavar="COMMAND", required=True)
    homes = {name: home for group in grouped().values() for name, home in group.items()}
    for home in dict.fromkeys([homes[word]] if word in homes else homes.values()):
        try:
            module = importlib.import_module(home, __package__)
        except ModuleNotFoundError as error:
            if not f"{__package__}{home}".startswith(error.name or "?"):
                raise
            for missing in [name for name in homes if homes[name] == home]:
                _add_missing(commands, missing)
        else:
            module.add_commands(commands)
    _group(parser, commands)
    for command in commands.choices.values():
        if command.prefix_chars != "-":  # of one that is missing, no option is known
            continue
        for option, text in (("--json", "print JSON"), ("--debug", "on an error, show the traceback")):
            with contextlib.suppress(argparse.ArgumentError):  # the command has its own
                command.add_argument(option, action="store_true", help=text)
        command.add_argument(
            "--import",
            dest="imports",
            action="append",
            default=[],
            metavar="MODULE",
            help="a Python module that defines operators or importers, by its name",
        )
    return parser


def _group(parser: argparse.ArgumentParser, commands: Any) -> None:
    """Lists the commands by group, each group with its example, in place of one list."""
    parser._positionals._group_actions.remove(commands)
    texts = {each.dest: each for each in commands._get_subactions()}
    for title, names in grouped().items():
        listed = parser.add_argument_group(title, _GROUPS[title])
        listed._group_actions.extend(texts[name] for name in names if name in texts)


def _add_missing(commands: Any, name: str) -> None:
    """A command whose module is not installed (tools/dev): it says where it is."""

    def command(_: argparse.Namespace) -> int:
        print(
            f"treadle {name}: this is for Treadle's developers, and not in the installed package; "
            f"clone Treadle's repository, and run `make {name}` there",
            file=sys.stderr,
        )
        return USAGE

    missing = commands.add_parser(name, help="for developers: in a clone of Treadle's repository", prefix_chars="\0")
    missing.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    missing.set_defaults(command=command)


if __name__ == "__main__":
    if sys.path[:1] in ([""], [os.getcwd()]):  # by `python -m`: what lies beside a model must not be imported
        del sys.path[0]
    sys.exit(main())
