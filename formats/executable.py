"""The executable: one immutable value, everything that a program is, and its one file.

    executable.export_library("model.trdl")
    executable = load("model.trdl")

It holds a `Program` (see program.py, the decoded sections) and a cache of native code. Loading decodes the tables and maps
the constants; nothing is run, and nothing is trusted: the machine verifies a program before it runs it.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

import numpy as np

from .. import formats
from . import container, host_work, limits, schema, sections
from .codec import Buffer
from .constants import aligned_copy, constant_bytes, constant_type
from .constants_file import ConstantsFile, add_constants, beside
from .container import Container, Source
from .dtypes import DType
from .library import Library
from .mapped import is_private, release
from .messages.calling import Suggesting, mapping, public, public_class, told
from .messages.errors import ArgumentError, ChecksumError, FileError, FormatError, TreadleError, UnknownFunctionError
from .messages.names import near
from .messages.readable import Words
from .origin import Origin, Stamp, absolute, stamp_of_file
from .ports import Ports, inputs_of, outputs_of
from .program import Function, LateBoundConstant, Native, NativeKernel, Program, SourceLocation
from .text_model import TextModel
from .types import TensorType
from .weight_table import WeightTable
from .weight_table import check as check_weights

if TYPE_CHECKING:
    from .same_file import SameFile

__all__ = ["Executable", "Function", "NativeKernel", "Program", "SourceLocation", "load"]

SUFFIX = ".trdl"
BUNDLED = "executable"  # what a library calls it
_T = TypeVar("_T")
_KNOWN = frozenset(schema.BY_NAME)
_LIBRARY = "native"  # the one section of the second part of save()


@public_class
class Executable(Suggesting):
    """A program, its constants and native code. Immutable: methods that change something give a new executable."""

    __slots__ = (
        "_container",
        "_is_checked",
        "_late_bound",
        "_native",
        "_origin",
        "_program",
        "_trust_native",
        "_weights",
    )

    def __init__(
        self,
        program: Program,
        native: Native | None = None,
        weights: WeightTable | None = None,
    ) -> None:
        """Copies constants that could change. Raises FormatError for tables that disagree."""
        if not isinstance(program, Program):
            kind = type(program).__name__
            raise ArgumentError(f"Executable(program): expected a Program, got a {kind}; treadle.load reads a file")
        sections.check(program)
        (code,) = _frozen([program.code])
        self._program = replace(program, constants=_frozen(program.constants), code=code)
        self._native = _read_only(native or {})
        self._weights = weights or WeightTable()
        check_weights(self._weights, [constant_type(array) for array in program.constants])
        self._late_bound: dict[int, LateBoundConstant] = {}
        self._container: Container | None = None  # the file that the constants are mapped from
        self._origin: Origin | None = None  # the files that it was loaded from, and is as they are
        self._is_checked = True
        self._trust_native = False

    @property
    def program(self) -> Program:
        """The decoded sections."""
        return self._program

    @property
    def types(self) -> Any:
        """The program's data types, by name, with their constructors: `executable.types.Tree.Node(…)` makes a value for a call,
        in any process that has the file."""
        if not formats.data_types:
            raise TreadleError("formats alone makes no values; import treadle")
        return importlib.import_module(formats.data_types).DataTypes(self._program.data_types)

    @property
    def native(self) -> Native:
        """Native code: target key → definition key → kernel. A cache, never the truth."""
        return self._native

    @property
    def weights(self) -> WeightTable:
        """How constants are made of weights that have names; empty unless it was compiled with `named_weights`."""
        return self._weights

    @property
    def text_model(self) -> TextModel | None:
        """What stands between texts and its tensors, of a compiled model's folder: `treadle.text.load` computes with it."""
        return self._program.text

    @property
    def was_loaded(self) -> bool:
        """Whether `load` made it: then it reaches no function of this process but those that it is handed."""
        return self._container is not None

    @property
    def trust_native(self) -> bool:
        """Whether the caller of `load` vouched for the native code in the file."""
        return self._trust_native

    # ---- saving ----

    def _pieces(self, native: Native | None) -> list[Buffer]:
        contents = sections.encode(self._program, self._late_bound, native, self._weights)
        return container.layout(contents, schema.REQUIRED)

    def as_bytes(self) -> bytes:
        """The bytes of the file."""
        return b"".join(self._pieces(self._native))

    def export_library(self, path: str | os.PathLike) -> None:
        """Write the file, atomically: whatever happens, `path` holds the old file or the new one, whole. Raises FileError.

        A name that ends in .so, .dylib, .dll, .o or .tar asks for a library or object file with the executable as its data, and
        its kernels under C names, which the system's linker makes; `load` takes that back. Raises LinkerError without one.
        """
        if Path(container.named(path, "export_library: path")).suffix in container.LIBRARIES:
            if not formats.library_writer:
                raise TreadleError("formats alone cannot link a library; import treadle")
            importlib.import_module(formats.library_writer).export_executable(self, path)
            return
        container.save(path, self._pieces(self._native))

    @overload
    def save(self) -> tuple[bytes, bytes]: ...

    @overload
    def save(self, path: str | os.PathLike) -> None: ...

    def save(self, path: str | os.PathLike | None = None) -> tuple[bytes, bytes] | None:
        """Write the file, as `export_library` does. Without a path, as in TVM: the executable in two parts, (code, lib):
        everything but native code, and native code."""
        if path is not None:
            self.export_library(path)
            return None
        contents = sections.encode(self._program, self._late_bound, self._native, self._weights)
        library = {_LIBRARY: contents.pop(_LIBRARY, [schema.NATIVE.encode([], _LIBRARY)])}
        return b"".join(container.layout(contents, schema.REQUIRED)), b"".join(
            container.layout(library, {_LIBRARY: True})
        )

    @staticmethod
    def load_exec(code: Source, lib: Source | None = None) -> Executable:
        """The inverse of `save`; without `lib`, kernels will be built anew. Raises FormatError."""
        executable = load(code)
        if lib is None:
            return executable
        opened = Container(lib, frozenset({_LIBRARY}))
        opened.require([_LIBRARY])
        return executable.with_native(sections.decode_native(opened.contents[_LIBRARY]))

    # ---- pickling ----

    def __reduce__(self) -> tuple[Any, ...]:
        """Loaded from a file that is still the same one, as its path and digest; else as bytes, with all constants.

        What was said to `load` (`trust_native`, `constants`, `mapped`) travels. Unpickling loads: it raises what `load` raises,
        and FileError where the file is not there, or is another one. Unpickling foreign data trusts it, as always.
        """
        file = self._same_file()
        if file is not None:
            assert self._origin is not None
            return load_same, (file, self._origin.constants, self._trust_native, self._origin.mapped)
        return _from_bytes, (self._whole().as_bytes(), self._trust_native)

    def __copy__(self) -> Executable:
        return self

    def __deepcopy__(self, memo: object) -> Executable:
        return self

    def _same_file(self) -> SameFile | None:
        """The file that it was loaded from, if that is still the same one, and it was not changed since. Raises FileError."""
        if self._origin is None or not self._origin.is_there:
            return None
        from .same_file import SameFile  # to load an executable needs no digest

        file = SameFile.of(self._origin.paths[0])
        return file if self._origin.is_there else None

    def _whole(self) -> Executable:
        """This executable with all constants in it, wherever they lie."""
        return Executable(self._program, self._native, self._weights) if self._late_bound else self

    # ---- variations ----

    def _copy(self) -> Executable:
        copy = object.__new__(Executable)
        for name in Executable.__slots__:
            setattr(copy, name, getattr(self, name))
        copy._origin = None
        return copy

    def with_native(self, native: Native) -> Executable:
        """This executable with other native code, for which nobody has vouched; {} for none."""
        copy = self._copy()
        copy._native, copy._trust_native = _read_only(_by_target("with_native", native)), False
        return copy

    def with_native_of(self, other: Executable) -> Executable:
        """This executable with another one's native code, trusted as that is. Raises ArgumentError for anything else."""
        if not isinstance(other, Executable):
            raise ArgumentError(f"with_native_of: expected an Executable, got {told(other)}")
        copy = self._copy()
        copy._native, copy._trust_native = other._native, other._trust_native
        return copy

    def with_metadata(self, metadata: Mapping[str, str]) -> Executable:
        """This executable with these entries of its metadata added, or replaced. Raises ArgumentError for anything but texts."""
        if not isinstance(metadata, Mapping) or not all(
            isinstance(each, str) for pair in metadata.items() for each in pair
        ):
            raise ArgumentError(f"with_metadata: expected a mapping of texts to texts, got {told(metadata)}")
        copy = self._copy()
        copy._program = replace(self.program, metadata={**self.program.metadata, **metadata})
        return copy

    def with_text_model(self, text: TextModel | None) -> Executable:
        """This executable with what stands between texts and its tensors: a tokenizer, pooling, a template; None for nothing.
        Raises ArgumentError."""
        if text is not None and not isinstance(text, TextModel):
            raise ArgumentError(
                f"with_text_model: expected a TextModel, got {told(text)}; treadle.compile reads a model's folder"
            )
        copy = self._copy()
        copy._program = replace(self.program, text=text)
        return copy

    def move_late_bound_consts(self, path: str | os.PathLike, byte_limit: int = 1024) -> Executable:
        """This executable with its constants of `byte_limit` bytes and more moved into the constants file `path`.

        Several executables may share a file: equal constants are stored once, others are added. An executable that is
        saved then must lie in the same folder as the file, or be loaded with `constants=path`. Raises FileError, FormatError.
        """
        moved = [
            i
            for i, array in enumerate(self._program.constants)
            if array.nbytes >= byte_limit and i not in self._late_bound and not DType.of(array.dtype).is_string
        ]
        keys = add_constants(path, [self._program.constants[i] for i in moved])
        file = Path(path).name
        copy = self._copy()
        copy._late_bound = dict(self._late_bound)
        for index, key in zip(moved, keys, strict=True):
            array = self._program.constants[index]
            checksum = zlib.crc32(constant_bytes(array))
            copy._late_bound[index] = LateBoundConstant(constant_type(array), checksum, file, key)
        return copy

    def with_named_constants(self, names: Mapping[int, str]) -> Executable:
        """This executable with constants, by index, that a file made of it names only: its loader provides them
        to `load` under these names."""
        mapping("with_named_constants", names, "names by index")
        for index, name in names.items():
            if not isinstance(index, int) or not 0 <= index < len(self._program.constants) or not isinstance(name, str):
                raise ArgumentError(
                    f"with_named_constants: {index!r}: {name!r}: expected an index below {len(self._program.constants)}, "
                    "and a name"
                )
        copy = self._copy()
        copy._late_bound = {
            index: LateBoundConstant(constant_type(array), zlib.crc32(constant_bytes(array)), "", name)
            for index, name in names.items()
            for array in [self._program.constants[index]]
        }
        return copy

    @property
    def late_bound_consts(self) -> dict[int, LateBoundConstant]:
        """The constants, by index, that lie in other files."""
        return dict(self._late_bound)

    # ---- looking inside ----

    def check_constants(self) -> None:
        """Compare the constants' bytes with their checksums, once; loading does not, so that it reads no page of them.

        Raises ChecksumError, which names the section or constant.
        """
        if self._is_checked:
            return
        if self._container is not None:
            self._container.check("constants")
        for index, constant in self._late_bound.items():
            found = zlib.crc32(constant_bytes(self._program.constants[index]))
            if found != constant.crc32:
                place = f"in the file {constant.file!r}" if constant.file else f"of the name {constant.key!r}"
                message = f"constant {index} {place} is not the one that this executable was made with"
                raise ChecksumError(f"{message}: checksum {found:08x}, expected {constant.crc32:08x}")
        self._is_checked = True

    @property
    def globals(self) -> list[str]:
        """The functions that can be called by name: all but those that closures are made of."""
        return [function.name for function in self._program.functions if not function.captured]

    def __iter__(self) -> Iterator[str]:
        """The names of its functions."""
        return iter(self.globals)

    def __contains__(self, name: object) -> bool:
        return name in self.globals

    def __getitem__(self, name: str) -> NoReturn:
        """An executable is data, and runs nothing. Raises ArgumentError, which says what does."""
        raise ArgumentError(f"an executable is data; treadle.VirtualMachine(executable)[{name!r}] is a function")

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Likewise."""
        raise ArgumentError('an executable is data; treadle.VirtualMachine(executable)["main"](…) calls a function')

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        """The constant pool: read-only arrays, memory-mapped when they come from a file."""
        return self._program.constants

    @property
    def primitive_ops(self) -> list[str]:
        """The names of the primitives."""
        return [primitive.name for primitive in self._program.primitives]

    @property
    def lib(self) -> Library:
        """The primitives, and `get_source` of their kernels."""
        return Library(self._program.primitives, self._program.metadata)

    def function(self, name: str) -> Function:
        """Raises UnknownFunctionError."""
        if isinstance(name, str):
            for function in self._program.functions:
                if function.name == name:
                    return function
        hint = near(name, self.globals)
        message = f"there is no function {name!r}; the executable has {', '.join(self.globals) or 'none'}{hint}"
        raise UnknownFunctionError(message)

    def inputs(self, name: str = "main") -> Ports:
        """The parameters of a function: names, element types, shapes. Raises UnknownFunctionError."""
        return inputs_of(self.function(name))

    def outputs(self, name: str = "main") -> Ports:
        """The result of a function, or the fields of its tuple, as the model calls them. Raises UnknownFunctionError."""
        return outputs_of(self.function(name))

    def get_function_params(self, name: str) -> list[str]:
        """The names of a function's parameters, without captured values. Raises UnknownFunctionError."""
        function = self.function(name)
        return list(function.param_names[: len(function.param_names) - function.captured])

    @property
    def bytecode(self) -> Words:
        """The instructions of all functions, for people; `as_text` is the form that can be assembled again."""
        from .text.disassembly import print_bytecode

        return Words(print_bytecode(self._program))

    @property
    def stats(self) -> Words:
        """Statistics of the executable, for people."""
        from .text.report import statistics_text

        return Words(statistics_text(self))

    @classmethod
    def from_text(cls, text: str, *, folder: str | os.PathLike | None = None) -> Executable:
        """The executable of assembly, as `as_text` and `treadle dis` write it; `folder` is where files lie that the text names.
        It has no native code yet. Raises ParseError; a machine, which verifies, raises VerificationError."""
        from .text.assembly import parse_assembly

        if not isinstance(text, str):
            raise ArgumentError(f"Executable.from_text: expected assembly, got {told(text)}")
        return cls(parse_assembly(text, folder=folder))

    def as_text(self, *, constants_file: str | os.PathLike | None = None, elide: bool = False) -> str:
        """The program as assembly, which `assembly.parse_assembly` reads back. Large constants are written as base64, into
        `constants_file`, or, with `elide`, not at all."""
        from .text.assembly_printer import print_assembly

        return print_assembly(self._program, constants_file=constants_file, elide=elide)

    def _repr_html_(self) -> str:
        from .pictures.graph import of_executable
        from .text.html import heading, port_table, table, together
        from .text.report import held_texts, information

        facts = information(self)
        metadata = {name: value for name, value in facts["metadata"].items() if name != host_work.NOTE}
        held = [*held_texts(facts).items(), *metadata.items()]
        ports, picture = port_table(self._program.functions), of_executable(self)
        return together(heading("Executable"), ports, table(("holds", ""), held), picture)

    def __repr__(self) -> str:
        program = self._program
        return (
            f"<Executable: {len(program.functions)} functions, {len(program.primitives)} primitives, "
            f"{len(program.constants)} constants>"
        )


@public
def load(
    source: Source,
    *,
    constants: str | os.PathLike | Mapping[str, np.ndarray] | None = None,
    trust_native: bool = False,
    mapped: bool = True,
) -> Executable:
    """The executable in a file or bytes, or in a library that `export_library` made, of which the data alone is read.

    Its constants are mapped, not read (see `Executable.check_constants`): a file in use may be replaced, as `export_library`
    does, but must not be written over in place: to shorten it would end this process. A file that other users can write is
    therefore read, not mapped, and so is any with `mapped=False`.

    `constants` is the file of late-bound constants, when it does not lie beside the executable under its own name, or the
    constants themselves, by name.
    `trust_native` vouches for the native code in the file, which machines otherwise ignore.
    Raises FormatError (VersionError, ChecksumError, LimitError) and FileError.
    """
    container.check_source(source)
    path = None if isinstance(source, (bytes, bytearray, memoryview)) else Path(source)
    folder = None if path is None else path.parent
    stamps = {} if path is None else {absolute(path): stamp_of_file(path)}
    if path is not None and path.suffix in container.LIBRARIES:
        from . import bundle  # not needed for a .trdl file

        source = bundle.only(path, BUNDLED)
    opened = Container(source, _KNOWN, deferred=frozenset({"constants"}), mapped=mapped)
    opened.require(section.name for section in schema.SECTIONS if section.required)
    binder = _named(constants) if isinstance(constants, Mapping) else _Binder(folder, constants, mapped, stamps)
    program, late_bound, native, weights = sections.decode(opened.contents, binder)
    executable = object.__new__(Executable)
    executable._program = program
    executable._native = _read_only(native)
    executable._weights, executable._late_bound = weights, late_bound
    executable._container, executable._is_checked = opened, False
    executable._trust_native = trust_native
    executable._origin = None
    if path is not None and not isinstance(constants, Mapping):
        executable._origin = Origin(tuple(stamps), mapped, tuple(stamps.values()))
    return executable


def load_same(
    file: SameFile,
    constants: str | os.PathLike | None = None,
    trust_native: bool = False,
    mapped: bool = True,
) -> Executable:
    """The executable in a file that another process, perhaps of another host, has named. Raises FileError where it is not there,
    or is another one, and what `load` raises."""
    file.check_is_here()
    executable = load(file.path, constants=constants, trust_native=trust_native, mapped=mapped)
    file.check_is_same()
    return executable


def _from_bytes(data: bytes, trust_native: bool) -> Executable:
    return load(data, trust_native=trust_native)


def late_bound_constants(source: Source) -> dict[int, LateBoundConstant]:
    """The constants, by index, that an executable wants from elsewhere; nothing of them is read. Raises FormatError."""
    opened = Container(source, _KNOWN, deferred=frozenset({"constants"}))
    opened.require(section.name for section in schema.SECTIONS if section.required)
    return sections.decode(opened.contents, _stand_in)[1]


def _stand_in(constant: LateBoundConstant) -> np.ndarray:
    """An array of the constant's type that takes no memory."""
    shape = tuple(dim for dim in constant.type.shape if isinstance(dim, int))
    return np.broadcast_to(np.zeros((), constant.type.dtype.numpy), shape)


def _named(arrays: Mapping[str, np.ndarray]) -> Callable[[LateBoundConstant], np.ndarray]:
    def find(constant: LateBoundConstant) -> np.ndarray:
        if constant.key not in arrays:
            raise FormatError(
                f"the executable needs a constant {constant.key!r}, which is not among those handed to it"
            )
        (array,) = _frozen([np.asarray(arrays[constant.key])])
        found = constant_type(array)
        if found != constant.type:
            raise FormatError(f"constant {constant.key!r} is a {found}, expected {constant.type}")
        return array

    return find


class _Binder:
    """Finds late-bound constants; opens each file once."""

    def __init__(
        self,
        folder: Path | None,
        path: str | os.PathLike | None,
        mapped: bool,
        stamps: dict[str, Stamp | None],
    ) -> None:
        self._folder, self._path, self._mapped = folder, path, mapped
        self._stamps = stamps  # of the files that are opened, from before that
        self.files: dict[str, ConstantsFile] = {}

    def __call__(self, constant: LateBoundConstant) -> np.ndarray:
        path = Path(self._path) if self._path is not None else beside(self._folder, constant.file)
        if str(path) not in self.files:
            self._stamps[absolute(path)] = stamp_of_file(path)
            try:
                self.files[str(path)] = ConstantsFile(path, self._mapped)
            except FileNotFoundError as error:
                message = f"the executable needs the constants file {str(path)!r}; load it with constants=path"
                raise FileError.of(error, message, str(path)) from None
        array = self.files[str(path)].arrays.get(constant.key)
        if array is None:
            raise FormatError(f"{path} has no constant {constant.key!r}")
        found: TensorType = constant_type(array)
        if found != constant.type:
            raise FormatError(f"{path}: constant {constant.key!r} is a {found}, expected {constant.type}")
        return array


class _Items(dict[str, _T]):
    """A target's items by digests of definitions; shown as the first one and their number."""

    def __repr__(self) -> str:
        first = next((f"{key!r}: {value!r}" for key, value in self.items()), "")
        return f"{{{first}{f', … {len(self)} in all' if len(self) > 1 else ''}}}"


def _by_target(where: str, values: Any) -> Any:
    for name, each in mapping(where, values, "a mapping by target").items():
        mapping(f"{where}: {name!r}", each, "a mapping by digest")
    return values


def _read_only(by_target: Mapping[str, Mapping[str, _T]]) -> Mapping[str, Mapping[str, _T]]:
    return MappingProxyType({target: MappingProxyType(_Items(items)) for target, items in by_target.items()})


def _frozen(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Each array itself when it is read-only, contiguous, native, aligned, and these arrays alone fill its memory; else such a
    copy. What is part of something larger, such as a weight in the file of a model, may change, and would keep all of it."""
    filled: Counter[int] = Counter()
    for array in arrays:
        filled[id(_owner(array))] += array.nbytes + limits.ALIGNMENT
    return tuple(
        array if _is_constant(array) and _owner(array).nbytes <= filled[id(_owner(array))] else _read_only_copy(array)
        for array in arrays
    )


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that the memory belongs to, or one that does not know whose it is."""
    return array.base if isinstance(array.base, np.ndarray) else array


def _is_constant(array: np.ndarray) -> bool:
    flags = array.flags
    is_aligned = array.size == 0 or array.ctypes.data % limits.ALIGNMENT == 0
    is_owned = _owner(array).flags.owndata or is_private(array)
    return is_owned and is_aligned and flags.c_contiguous and array.dtype.isnative and not flags.writeable


def _read_only_copy(array: np.ndarray) -> np.ndarray:
    copy = aligned_copy(array)
    release(array)
    copy.flags.writeable = False
    return copy
