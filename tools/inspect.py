"""`treadle info`, `dis`, `as`, `verify`, `stats`: look into executables without running them, and without the compiler.

Each takes an executable, or assembly text (*.tasm), which is assembled first; also those of TVM's Relay VM and Relax VM,
as they are or in a library that TVM exported, of which nothing is executed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import require_file

if TYPE_CHECKING:
    from ..formats.executable import Executable

FILES = "an executable (*.trdl), assembly text (*.tasm); also one of TVM's machines', or a library that holds it"
ELIDE, BASE64 = "elide", "base64"


def add_commands(commands: Any) -> None:
    """Add the commands to the `treadle` parser."""
    _add(commands, "info", _info, "show an executable's functions, what made it, and what it holds")
    _add(commands, "stats", _stats, "show counts and sizes")
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
    assemble = _add(commands, "as", _assemble, "assemble text to an executable")
    assemble.add_argument("-o", "--output", type=Path, help="the executable; by default the text's name with .trdl")


def _add(commands: Any, name: str, function: Any, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("file", type=Path, help=FILES)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=function)
    return parser


def _load(path: Path) -> Executable:
    from ..formats.executable import Executable, load

    require_file(path)
    if path.suffix != ".tasm":
        return load(path)
    from ..formats.assembly import parse_assembly

    return Executable(parse_assembly(path.read_text(encoding="utf-8"), folder=path.parent))


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _foreign(path: Path) -> Any:
    """An executable of one of TVM's machines (`foreign.py`); None for a file of something else."""
    from .foreign import read_foreign

    require_file(path)
    return read_foreign(path)


def _info(options: argparse.Namespace) -> None:
    from ..formats.report import information, information_text

    foreign = _foreign(options.file)
    if foreign is not None:
        if options.json:
            _print_json(foreign.facts)
        else:
            sys.stdout.write(foreign.text)
        return
    executable = _load(options.file)
    facts = {"file": str(options.file), "bytes": os.stat(options.file).st_size, **information(executable)}
    if options.json:
        _print_json(facts)
    else:
        print(information_text(facts))


def _stats(options: argparse.Namespace) -> None:
    from ..formats.report import statistics

    foreign = _foreign(options.file)
    if foreign is not None:
        if options.json:
            _print_json(foreign.facts)
        else:
            print(foreign.stats(), end="")
        return
    executable = _load(options.file)
    if options.json:
        _print_json(statistics(executable))
    else:
        print(executable.stats, end="")


def _verify(options: argparse.Namespace) -> None:
    from ..vm.verify import verify

    foreign = _foreign(options.file)
    if foreign is not None:
        from .foreign import verified_facts

        _tell(options, verified_facts(foreign))
        return
    executable = _load(options.file)
    executable.check_constants()
    verified = verify(executable.program)
    instructions = sum(len(function.instructions) for function in verified.functions)
    facts = {
        "verified": True,
        "functions": len(verified.functions),
        "instructions": instructions,
        "primitives": len(executable.primitive_ops),
        "constants": len(executable.constants),
    }
    _tell(options, facts)


def _tell(options: argparse.Namespace, facts: dict[str, Any]) -> None:
    if options.json:
        _print_json(facts)
    else:
        counts = ", ".join(f"{count} {what}" for what, count in facts.items() if what != "verified")
        print(f"{options.file} is valid: {counts}")


def _dis(options: argparse.Namespace) -> None:
    foreign = _foreign(options.file)
    if foreign is not None:
        listing = foreign.listing(options.function)
        _write(json.dumps(listing.splitlines(), indent=2) + "\n" if options.json else listing, options)
        return
    executable = _load(options.file)
    if options.json:
        text = _json_listing(executable, options.function)
    elif options.function is not None or options.offsets:
        text = _listing(executable, options.function)
    else:
        text = _assembly(executable, options.constants or (BASE64 if options.output else ELIDE))
    _write(text, options)


def _write(text: str, options: argparse.Namespace) -> None:
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def _assembly(executable: Executable, constants: str) -> str:
    if constants in (ELIDE, BASE64):
        return executable.as_text(elide=constants == ELIDE)
    return executable.as_text(constants_file=constants)


def _listing(executable: Executable, function: str | None) -> str:
    from ..formats.disassembly import dis

    if function is None:
        return executable.bytecode
    return "".join(f"{instruction}\n" for instruction in dis(executable, function))


def _json_listing(executable: Executable, function: str | None) -> str:
    from ..formats.disassembly import dis

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
    from ..formats.assembly import parse_assembly
    from ..formats.executable import SUFFIX, Executable
    from ..vm.verify import verify

    require_file(options.file)
    text = options.file.read_text(encoding="utf-8")
    executable = Executable(parse_assembly(text, folder=options.file.parent))
    verify(executable.program)
    output = options.output or options.file.with_suffix(SUFFIX)
    executable.export_library(output)
    if options.json:
        _print_json({"file": str(output), "bytes": os.stat(output).st_size})
