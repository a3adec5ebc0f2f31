"""`treadle info`, `dis`, `as`, `verify`, `stats`: look into programs without running them.

An executable and assembly, which is assembled, need no compiler; a model is compiled first. Also executables of TVM's Relay VM
and Relax VM, as they are or in a library that TVM exported, of which nothing is executed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.host_work import noted
from ..formats.program import AUTO, EXACT, PRECISION_REPORT
from ..formats.text.report import size_text
from .errors import UsageError
from .program_files import (
    ASSEMBLY,
    EXECUTABLE,
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

FILES = f"{HELP}; also an executable of TVM's machines, or a library that holds one"
_CHOSEN = "chosen"  # what `stats --precision` means without a value
ELIDE, BASE64 = "elide", "base64"

COMMANDS = {"Look inside": ("info", "stats", "verify", "dis", "as")}


def add_commands(commands: Any) -> None:
    """Add the commands to the `treadle` parser."""
    _add(commands, "info", _info, "show an executable's functions, what made it, and what it holds")
    _add(commands, "stats", _stats, 'show counts and sizes; with a bare --precision, what precision="auto" has chosen')
    _add(commands, "verify", _verify, "check everything about an executable that can be checked without running it")
    dis = _add(commands, "dis", _dis, "show an executable as assembly, which `treadle as` reads back")
    dis.add_argument("-f", "--function", help="only this function, with the offsets of its instructions")
    dis.add_argument("--offsets", action="store_true", help="list instructions with their offsets, not assembly")
    dis.add_argument("-o", "--output", type=Path, help="write the text to a file, with all constants")
    dis.add_argument(
        "--constants",
        metavar="elide|base64|FILE",
        help="large constants: leave them out (the default on the terminal), write them in the text, or in this file",
    )
    assemble = _add(commands, "as", _assemble, "assemble text to an executable, and verify it", "assembly text, or -")
    assemble.add_argument(
        "-o",
        "--output",
        type=Path,
        help="the executable (default: the text's name with .trdl, in the working directory)",
    )


def _add(commands: Any, name: str, function: Any, text: str, files: str = FILES) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("file", help=files)
    parser.add_argument("--json", action="store_true", help="print JSON")
    if files is FILES:
        add_compile_options(parser, alone=_CHOSEN if function is _stats else None)
    parser.set_defaults(command=function)
    return parser


def _load(file: ProgramFile, options: argparse.Namespace) -> Executable:
    return file.executable(**compile_options(options), progress=False)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _print_facts(options: argparse.Namespace, facts: Any, text: str) -> None:
    if options.json:
        _print_json(facts)
    else:
        sys.stdout.write(text)


def _info(options: argparse.Namespace) -> None:
    from ..formats.text.report import information, information_text

    file = program_file(options.file, takes_foreign=True)
    foreign = file.foreign()
    if foreign is not None:
        _print_facts(options, foreign.facts, foreign.text)
        return
    executable = _load(file, options)
    kind = "Treadle executable" if file.kind == EXECUTABLE else f"{file.what}, as an executable"
    facts = {"file": file.name, "kind": kind, "bytes": file.bytes, **information(executable)}
    facts["host"] = _host_facts(executable)
    _print_facts(options, facts, f"{information_text(facts)}\n")


def _host_facts(executable: Executable) -> list[dict[str, Any]]:
    """The primitives that have no native kernel. The compiler is asked where it has not said so when it made the program."""
    found = noted(executable.program)
    if found is None:
        from ..compiler.host_work import host_primitives
        from ..compiler.targets.choice import backend_of

        found = host_primitives(executable.program, backend_of().supports)
    return [asdict(each) for each in found]


def _stats(options: argparse.Namespace) -> None:
    from ..formats.text.report import precision_lines, statistics

    if shows_choice := options.precision == _CHOSEN:
        options.precision = EXACT
    file = program_file(options.file, takes_foreign=True)
    foreign = file.foreign()
    if foreign is not None:
        _print_facts(options, foreign.facts, foreign.stats())
        return
    executable = _load(file, options)
    if not shows_choice:
        _print_facts(options, statistics(executable), executable.stats)
    elif lines := precision_lines(executable):
        _print_facts(options, json.loads(executable.program.metadata[PRECISION_REPORT]), "\n".join([*lines, ""]))
    else:
        raise UsageError(
            f"{file.name}: nothing has searched for its precision; `treadle compile --precision {AUTO}` does"
        )


def _verify(options: argparse.Namespace) -> None:
    file = program_file(options.file, takes_foreign=True)
    foreign = file.foreign()
    if foreign is not None:
        from .foreign import verified_facts

        _tell(options, file.name, verified_facts(foreign))
        return
    executable = _load(file, options)
    executable.check_constants()
    verified = file.verified(executable)
    instructions = sum(len(function.instructions) for function in verified.functions)
    facts = {
        "verified": True,
        "functions": len(verified.functions),
        "instructions": instructions,
        "primitives": len(executable.primitive_ops),
        "constants": len(executable.constants),
    }
    _tell(options, file.name, facts)


def _tell(options: argparse.Namespace, name: str, facts: dict[str, Any]) -> None:
    if options.json:
        _print_json(facts)
    else:
        counts = ", ".join(f"{count} {what}" for what, count in facts.items() if what != "verified")
        print(f"{name} is valid: {counts}")


def _dis(options: argparse.Namespace) -> None:
    file = program_file(options.file, takes_foreign=True)
    foreign = file.foreign()
    if foreign is not None:
        listing = foreign.listing(options.function)
        _write(json.dumps(listing.splitlines(), indent=2) + "\n" if options.json else listing, options)
        return
    executable = _load(file, options)
    if options.json:
        text = _json_listing(executable, options.function)
    elif options.function is not None or options.offsets:
        text = _listing(executable, options.function)
    else:
        text = _assembly(executable, options.constants or (BASE64 if options.output else ELIDE))
    _write(text, options)


def _write(text: str, options: argparse.Namespace) -> None:
    if options.output:
        from ..debug.files import write

        write(options.output, text.encode())
    else:
        sys.stdout.write(text)


def _assembly(executable: Executable, constants: str) -> str:
    if constants in (ELIDE, BASE64):
        return executable.as_text(elide=constants == ELIDE)
    return executable.as_text(constants_file=constants)


def _listing(executable: Executable, function: str | None) -> str:
    from ..formats.text.dis import dis

    if function is None:
        return executable.bytecode
    return "".join(f"{instruction}\n" for instruction in dis(executable, function))


def _json_listing(executable: Executable, function: str | None) -> str:
    from ..formats.text.dis import dis

    rows = [
        {
            "function": instruction.function,
            "offset": instruction.offset,
            "opname": instruction.opname,
            "opcode": instruction.opcode,
            "arg": instruction.arg,
            "argrepr": instruction.argrepr,
            "is_jump_target": instruction.is_jump_target,
            "node": instruction.node,
        }
        for instruction in dis(executable, function)
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def _assemble(options: argparse.Namespace) -> None:
    file = program_file(options.file)
    file.require({ASSEMBLY}, "`treadle as`")
    output = file.output(options.output)
    executable = file.executable()
    file.verified(executable)
    count = write_executable(executable, output)
    if options.json:
        _print_json({"file": str(output), "bytes": count})
    elif output != Path(STANDARD_INPUT):
        held = len(executable.globals), len(executable.primitive_ops)
        print(f"{output}: {size_text(count)}, {held[0]} functions, {held[1]} primitives, no native code")
