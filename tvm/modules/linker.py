"""The system's C compiler as a linker: shared libraries and object files of what was exported.

data    modules as `formats/bundle.py` lays them out, between the symbols treadle_modules and treadle_modules_end
code    the kernels' object files, each under the symbol that its own code has, and under `aliases`
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...formats.codec import Buffer
from ...formats.container import named
from ...formats.messages.errors import ArgumentError, ExecutionError, FileError, LinkerError
from ...native.processes import TimeoutExpired, run_program

COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 600  # that the compiler may take

# Kernels refer to the C library by absolute addresses, which the dynamic loader must be let put into their code
_ELF_SHARED = ("-Wl,-z,notext", "-Wl,-z,noexecstack")

_DATA = """\
.section {section}
.balign 4096
.globl {_}treadle_modules
{_}treadle_modules:
.incbin "{data}"
.globl {_}treadle_modules_end
{_}treadle_modules_end:
.byte 0
"""
_ELF_DATA = _DATA.replace("{section}", '.treadle,"a"').replace("{_}", "") + '.section .note.GNU-stack,"",%progbits\n'
_MACH_DATA = _DATA.replace("{section}", "__DATA,__treadle").replace("{_}", "_")


def find_compiler(wanted: str, path: str | os.PathLike) -> str:
    """The C compiler to link with. `wanted` names one, `path` is what will be linked, for messages. Raises LinkerError."""
    for name in (wanted,) if wanted else COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return found
    looked = wanted or ", ".join(COMPILERS)
    other = Path(path).with_suffix(".trdl").name
    raise LinkerError(
        f"{Path(path).name} needs the system's C compiler and linker, and there is none on PATH (looked for {looked}); "
        f"install one, or export to {other!r}, which needs none and loads as fast"
    )


def write_objects(
    folder: Path, data: Sequence[Buffer], objects: Mapping[str, bytes], compiler: str, suffix: str = "o"
) -> list[Path]:
    """The object files of an export in `folder`: that with the data, devc, and those of `objects` by their names."""
    with open(folder / "devc.bin", "wb") as file:
        file.writelines(data)
    text = _MACH_DATA if sys.platform == "darwin" else _ELF_DATA
    (folder / "devc.s").write_text(text.format(data="devc.bin"))
    paths = [folder / f"{name}.{suffix}" for name in ("devc", *objects)]
    run([compiler, "-c", "devc.s", "-o", paths[0].name], folder)
    for each in ("devc.bin", "devc.s"):
        (folder / each).unlink()
    for path, code in zip(paths[1:], objects.values(), strict=True):
        path.write_bytes(code)
    return paths


def link_shared(
    target: Path,
    objects: Sequence[str | os.PathLike],
    compiler: str,
    aliases: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> None:
    """Links object files to a shared library, in which `aliases` are other names of symbols. Raises LinkerError."""
    system: tuple[str, ...] = ()
    if sys.platform == "darwin":
        system = tuple(f"-Wl,-alias,_{symbol},_{alias}" for alias, symbol in (aliases or {}).items())
    elif os.name == "posix":
        system = (*_ELF_SHARED, *(f"-Wl,--defsym,{alias}={symbol}" for alias, symbol in (aliases or {}).items()))
    _link(target, [compiler, "-shared"], objects, (*system, *options, "-lm"))


def link_object(target: Path, objects: Sequence[str | os.PathLike], compiler: str, options: Sequence[str] = ()) -> None:
    """Links object files to one. Raises LinkerError."""
    _link(target, [compiler, "-r", "-nostdlib"], objects, options)


def archive(target: Path, objects: Sequence[str | os.PathLike]) -> None:
    """Writes a tar archive of files, in which nothing says when they were made."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode = 0, 0, 0, "", "", 0o644
        return info

    with _in_place_of(target) as temporary, tarfile.open(temporary, "w") as tar:
        for path in map(Path, objects):
            tar.add(path, path.name, filter=plain)


def _link(target: Path, command: Sequence[str], objects: Sequence[str | os.PathLike], rest: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="treadle-link-") as folder, _in_place_of(target) as temporary:
        arguments = Path(folder) / "arguments"  # of which a network's kernels may be too many for a command line
        quoted = (
            str(each).replace("\\", "\\\\").replace('"', '\\"') for each in (*map(os.path.abspath, objects), *rest)
        )
        arguments.write_text("".join(f'"{each}"\n' for each in quoted))
        run([*command, "-o", str(temporary.absolute()), f"@{arguments}"], Path(folder))


@contextlib.contextmanager
def _in_place_of(target: Path) -> Iterator[Path]:
    """A path to write to, which becomes `target` at once when that is done. Raises FileError."""
    temporary = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.tmp")
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        raise FileError.of(error, f"an error while saving {str(target)!r}", str(target)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def run(command: Sequence[str], folder: Path) -> None:
    """Runs a compiler. Raises LinkerError with what it said."""
    try:
        done = run_program(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, errors="replace")
    except (ExecutionError, TimeoutExpired) as error:
        raise LinkerError(f"{error}; export to a .trdl file, which needs no linker") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise LinkerError(f"{command[0]} failed; export to a .trdl file, which needs no linker:\n{said}")


def is_name(text: str) -> bool:
    """Whether C has such names."""
    return text.isidentifier() and text.isascii()


def require_folder(path: str | os.PathLike) -> Path:
    """The path of a file that can be written. Raises ArgumentError."""
    found = Path(named(path, "export_library: path"))
    if not found.absolute().parent.is_dir():
        raise ArgumentError(f"export_library({str(path)!r}): there is no folder {str(found.absolute().parent)!r}")
    return found
