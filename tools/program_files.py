"""A program as the command line names it: a file of any of the four kinds, or `-` for standard input.

An ONNX model, a text of the IR, assembly, an executable: which it is, the content says; the name's ending where that says
nothing, as of a damaged file. Every command that takes a program takes it from here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.container import LIBRARIES, target_of
from ..formats.messages.file_kinds import HEAD_BYTES, FileKind, is_text, kind_of, kind_of_whole, told
from ..formats.program import EXACT, PRECISIONS
from .arguments import require_file
from .errors import UsageError

if TYPE_CHECKING:
    from ..compiler import ir
    from ..compiler.batch import Batch
    from ..formats.executable import Executable
    from ..text.folder import Folder
    from ..vm.verify.verifier import Verified
    from .foreign import RelaxFile, RelayFile

STANDARD_INPUT = "-"
HELP = (
    "a .onnx model, a model's folder with tokenizer.json, a text of the IR (.ir), assembly (.tasm) or an executable (.trdl); "
    "- is standard input"
)

EXECUTABLE, ASSEMBLY, IR, ONNX = "executable", "assembly", "ir", "onnx"
_CONVERTED = ("lightgbm", "xgboost")  # files that converters make ONNX models of
_LIBRARY = "library"  # that export_library or TVM made
_ENDINGS = {".trdl": EXECUTABLE, ".tasm": ASSEMBLY, ".ir": IR, ".onnx": ONNX}
_OF_TVM = ("relay or relax", _LIBRARY, "gzip")  # kinds that may hold an executable of TVM's machines
_LOOKED_INTO = "`treadle info`, `dis`, `stats` and `verify` look into those of TVM's machines"
_ADVICE = {  # what the command line does with a file that is not a program
    "npy": "an array is an argument of a program: `treadle run PROGRAM --input NAME=@FILE`"
}


def add_compile_options(
    parser: argparse.ArgumentParser, precisions: Sequence[str] = PRECISIONS, alone: str | None = None
) -> None:
    """The options of all commands that compile models: `compile_options` gives their values. `--precision` without a value is
    `alone`, where that is given."""
    parser.add_argument(
        "--opt-level",
        type=int,
        choices=(0, 1, 2),
        default=2,
        help="how a model is compiled: 0 with the needed passes alone, 1 without layouts, 2 with all (the default)",
    )
    bare: dict[str, Any] = {} if alone is None else {"nargs": "?", "const": alone}
    parser.add_argument(
        "--precision",
        choices=(*precisions, *([] if alone is None else [alone])),
        default=EXACT,
        **bare,
        help="what a model's products and convolutions compute with: bfloat16 is faster, with errors of some 0.5 %% "
        "and int8 more so, with some 2 %% (default: float32)",
    )


def compile_options(options: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `treadle.compile`."""
    return {"opt_level": options.opt_level, "precision": options.precision}


@dataclass(frozen=True)
class ProgramFile:
    """A program that nobody has read yet."""

    name: str  # for messages, and what is made of it
    source: Path | bytes  # standard input was read
    kind: str  # EXECUTABLE, ASSEMBLY, IR, ONNX; of a library that is one of ours, or may be, _LIBRARY
    around: Folder | None = None  # where a folder was named: what it says of the model in it

    @property
    def is_model(self) -> bool:
        """Whether it must be compiled."""
        return self.kind in (IR, ONNX)

    @property
    def bytes(self) -> int:
        """How many it has."""
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size

    @property
    def what(self) -> str:
        """Its kind, for people."""
        return kind_named(self.kind).what

    def require(self, kinds: Collection[str], command: str) -> None:
        """Raises UsageError where `command` does not take its kind."""
        if self.kind not in kinds:
            raise UsageError(f"{self.name} is {self.what}, which {command} does not take: {_NEXT[self.kind]}")

    def text(self) -> str:
        """Of assembly and the IR. Raises FormatError, FileError."""
        from ..formats.text.text_files import decoded, read_text

        return decoded(self.source, self.name) if isinstance(self.source, bytes) else read_text(self.source)

    @property
    def folder(self) -> Path:
        """Where files lie that the text names."""
        return Path() if isinstance(self.source, bytes) else self.source.parent

    def module(
        self,
        shapes: Sequence[str] = (),
        entry: str = "main",
        batch: Batch | None = None,
        dtypes: Sequence[str] = (),
        outputs: Sequence[str] = (),
        adapters: str | None = None,
    ) -> ir.Module:
        """The IR of a model. `shapes` are NAME=DIM,… of an ONNX model's inputs, `dtypes` NAME=TYPE, `batch` the name of its
        batch, `outputs` the names of values that are its results, `adapters` of linear modules that take some, or "all".
        Raises UsageError, ParseError, ModelError, UnsupportedOperatorError, CompileError."""
        given = {"--shape": shapes, "--batch": batch, "--dtype": dtypes, "--outputs": outputs, "--adapters": adapters}
        if self.kind == IR:
            from ..compiler.ir.text import parse_module

            if option := next((name for name, value in given.items() if value), None):
                raise UsageError(f"{option} is for ONNX models; {self.name} is a text of the IR, which has its own")
            return parse_module(self.text(), folder=self.folder)
        from ..compiler.onnx.converters import as_onnx
        from ..compiler.onnx.importer import from_onnx

        of_folder = None if self.around is None else self.around.outputs
        return from_onnx(
            as_onnx(self.source),
            shapes=dict(map(_shape_argument, shapes)),
            dtypes=dict(map(_dtype_argument, dtypes)),
            outputs=[name for text in outputs for name in text.split(",")] or of_folder,
            entry=entry,
            batch=batch,
            adapters=adapters == "all" or (adapters.split(",") if adapters else False),
        )

    def executable(
        self,
        *,
        entry: str | None = None,
        trust_native: bool = False,
        without: Collection[str] = (),
        kernels: bool = False,
        progress: bool = True,
        **options: Any,
    ) -> Executable:
        """Loaded, assembled or compiled: from function `entry` on, by default "main" or, of a text without one, all functions,
        as `options` say (`compile_options`). With `kernels`, what is compiled is built at once. Raises what the kind's reader
        raises."""
        if self.kind in (EXECUTABLE, *_OF_TVM):
            from ..formats.executable import load

            return load(self.source, trust_native=trust_native)
        if self.kind == ASSEMBLY:
            return self._assembled()
        from .. import compile

        module = self.module(entry=entry or "main")
        entries = entry or ("main" if "main" in module.functions else tuple(module.functions))
        made = compile(module, entry=entries, without=without, embed_native=kernels, progress=progress, **options)
        return self.with_text(made)

    def with_text(self, executable: Executable) -> Executable:
        """What was made of its module, with the tokenizer of its folder."""
        return executable if self.around is None else executable.with_text_model(self.around.text)

    def _assembled(self) -> Executable:
        from ..formats.executable import Executable
        from ..formats.text.assembly import parse_assembly

        return Executable(parse_assembly(self.text(), folder=self.folder))

    def verified(self, executable: Executable) -> Verified:
        """The verifier's facts about this file's executable. Raises VerificationError, which of assembly has the line."""
        from ..formats.text.assembly import naming_lines
        from ..vm.library import check_definitions
        from ..vm.verify.verifier import verify

        is_text = self.kind == ASSEMBLY
        with naming_lines(self.text(), folder=self.folder) if is_text else contextlib.nullcontext():
            verified = verify(executable.program)
        check_definitions(executable.program)
        return verified

    def foreign(self) -> RelaxFile | RelayFile | None:
        """The file's program for one of TVM's machines; None for one of ours, and if there is none."""
        if self.kind not in _OF_TVM:
            return None
        from .foreign import read_foreign

        found = read_foreign(self.source)
        if found is None and self.kind != _LIBRARY:  # one of ours is loaded
            raise UsageError(_refusal(self.name, kind_named(self.kind)))
        return found

    def output(self, given: Path | None) -> Path:
        """Where the executable goes that is made of it: in the working directory, under its own name. Raises UsageError where
        that would be the file itself, or standard input has no name, and FileError where nothing can be written."""
        if given is not None:
            if str(given) != STANDARD_INPUT:
                target_of(given)  # before what goes there is computed
            return given
        if isinstance(self.source, bytes):
            raise UsageError(
                "what comes from standard input has no name; write -o FILE.trdl, or -o - for standard output"
            )
        made = Path(
            self.source.with_suffix(".trdl").name if self.around is None else f"{Path(self.name).resolve().name}.trdl"
        )
        if made.exists() and made.samefile(self.source):
            raise UsageError(f"{self.name} itself would be written over; write -o FILE.trdl")
        return made


_NEXT = {  # kinds of programs, and which command takes a program, where another was given it
    EXECUTABLE: "`treadle run` runs it, `treadle dis` shows it as assembly",
    ASSEMBLY: "`treadle as` makes an executable of it",
    IR: "`treadle compile` makes an executable of it",
    ONNX: "`treadle compile` makes an executable of it",
}


def kind_named(name: str) -> FileKind:
    """The entry of the table of kinds."""
    from ..formats.messages.file_kinds import KINDS

    return next(kind for kind in KINDS if kind.name == name)


def program_file(name: str | os.PathLike, *, takes_foreign: bool = False) -> ProgramFile:
    """The program of that name. `takes_foreign` lets those of TVM's machines pass. Raises UsageError for a missing file,
    and for one that is not a program, which says what it is and what takes it."""
    text = os.fspath(name)
    if text == STANDARD_INPUT:
        content = _standard_input()
        source: Path | bytes = content
        kind, head, ending = kind_of_whole(content), content[:HEAD_BYTES], ""
        text = "standard input"
    else:
        source, ending = Path(text), Path(text).suffix
        if (source / "tokenizer.json").is_file():
            from ..text.folder import read

            around = read(source)
            return ProgramFile(text, around.model, ONNX, around)
        require_file(source)
        with source.open("rb") as file:
            head = file.read(HEAD_BYTES)
            kind = kind_of(head)
            if kind is not None and kind.name == IR:  # a text may tell only further on
                kind = kind_of_whole(head + file.read())
    known = _LIBRARY if ending in LIBRARIES else kind.name if kind is not None else _ENDINGS.get(ending)
    if known in _CONVERTED and isinstance(source, Path):
        return ProgramFile(text, source, ONNX)
    if known == "json" and ending in _ENDINGS:  # any text may begin so
        known = _ENDINGS[ending]
    if known is not None and (known in _NEXT or ending in LIBRARIES or (takes_foreign and known in _OF_TVM)):
        return ProgramFile(text, source, known)
    if kind is None and head and is_text(head):
        return ProgramFile(text, source, IR)  # whose parser says at which line it is none
    raise UsageError(_refusal(text, kind) if kind else f"{text} is not a program: {told(head)}; expected {HELP}")


def _refusal(name: str, kind: FileKind) -> str:
    if kind.name == "empty":
        return f"{name} is empty; expected {HELP}"
    advice = _ADVICE.get(kind.name) or kind.advice or f"expected {HELP}"
    more = f"; {_LOOKED_INTO}" if kind.name in _OF_TVM else ""
    return f"{name} is not a program; it is {kind.what}: {advice}{more}"


def _standard_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- is standard input, where a program is expected, as in `treadle run - < model.trdl`")
    return sys.stdin.buffer.read()


def _shape_argument(text: str) -> tuple[str, list[int | str]]:
    name, separator, dims = text.rpartition("=")
    if not separator or not name:
        raise UsageError(f"--shape {text!r}: write NAME=DIM,DIM,…")
    sizes = [size.strip() for size in _separated(dims.strip())]
    return name, [int(size) if size.isdigit() else size for size in sizes if size]


def _separated(sizes: str) -> list[str]:
    """Sizes between commas, in brackets or not, or between the `x` that an argument's type has: n,3,224 [n, 3, 224] nx3x224."""
    if sizes.startswith(("[", "(")) and sizes.endswith(("]", ")")):
        sizes = sizes[1:-1]
    parts = sizes.split("x")
    by_x = "," not in sizes and len(parts) > 1 and all(part.isdigit() for part in parts[1:])
    return parts if by_x and (parts[0].isdigit() or len(parts) > 2) else sizes.split(",")


def _dtype_argument(text: str) -> tuple[str, str]:
    name, separator, dtype = text.rpartition("=")
    if not separator or not name:
        raise UsageError(f"--dtype {text!r}: write NAME=TYPE")
    return name, dtype


def write_executable(executable: Executable, output: Path) -> int:
    """Writes the file, or standard output for `-`. Gives its bytes."""
    if str(output) != STANDARD_INPUT:
        executable.export_library(output)
        return output.stat().st_size
    data: Any = executable.as_bytes()
    if sys.stdout.isatty():
        raise UsageError("-o - writes an executable to standard output, which is a terminal")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return len(data)
