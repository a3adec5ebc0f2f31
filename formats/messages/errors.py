"""Treadle's errors: one hierarchy, each class also the built-in exception that it resembles.

A message says what was expected, what was given, and the next step when there is one. The keyword arguments
of `TreadleError` say where: they are appended to the message in one fixed form, and kept as attributes
for programs that want them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from .terminal import shown


class TreadleError(Exception):
    """The base of every error that Treadle raises on purpose.

    `node` is the name of the model node, `function` that of the program's function, `instruction` the
    index of the instruction in it, `depth` the number of nested calls where that is in a recursion, `iterations`
    which ones of which loops that is in; `section` and `offset` (bytes) are a place in a file.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        function: str | None = None,
        instruction: int | None = None,
        depth: int | None = None,
        iterations: str | None = None,
        section: str | None = None,
        offset: int | None = None,
    ) -> None:
        self.message = message = shown(message)  # it may hold names of a file's
        self.node, self.function, self.instruction = node, function, instruction
        self.depth, self.iterations = depth, iterations
        self.section, self.offset = section, offset
        places = [
            f"section {section!r}" if section is not None else "",
            f"byte {offset}" if offset is not None else "",
            f"function {function!r}" if function is not None else "",
            f"instruction {instruction}" if instruction is not None else "",
            f"node {node!r}" if node is not None else "",
            f"call depth {depth}" if depth is not None else "",
            shown(iterations) if iterations is not None else "",
        ]
        where = ", ".join(place for place in places if place)
        super().__init__(f"{message} [{where}]" if where else message)

    def take_iterations(self, other: TreadleError) -> None:
        """Those of the other one, if it says the same of the same instruction."""
        mine, others = (
            (type(each), each.message, each.function, each.instruction, each.depth) for each in (self, other)
        )
        if mine == others:
            self.iterations, self.args = other.iterations, other.args

    def __str__(self) -> str:  # KeyError, a possible second base, would print the repr of its argument
        return str(self.args[0]) if self.args else ""


class UnknownAttributeError(TreadleError, AttributeError):
    """An object, or a module, of Treadle's has no attribute of that name.

    `meant()` gives the end of the message, what may have been meant: it is called when the message is read, since
    `hasattr` and `getattr` with a default never read it.
    """

    def __init__(self, message: str, meant: Callable[[], str] | None = None) -> None:
        super().__init__(message)
        self._meant = meant

    def __str__(self) -> str:
        if self._meant is not None:
            self.message += self._meant()
            self.args, self._meant = (self.message,), None
        return super().__str__()

    def __reduce__(self) -> tuple[type[UnknownAttributeError], tuple[str]]:
        return type(self), (str(self),)


# ---- files ----


class FormatError(TreadleError, ValueError):
    """A file or text is not a well-formed executable, parameter file or program."""


class VersionError(FormatError):
    """The file is of a format version, or has a required section, that this Treadle does not know."""


class ChecksumError(FormatError):
    """The bytes are not those that were written."""


class LimitError(FormatError):
    """A size in the file exceeds a limit of `formats/limits.py`."""


class ParseError(FormatError):
    """Text (IR, assembly, a command-line input) does not parse. `line` and `column` count from 1."""

    def __init__(self, message: str, *, line: int = 0, column: int = 0, text: str = "") -> None:
        self.line, self.column = line, column
        pointer = _excerpt(text, column) if text and column else ""
        super().__init__(f"line {line}, column {column}: {message}{pointer}" if line else message)


def _excerpt(text: str, column: int) -> str:
    """The line, or of a long one the neighbourhood of the column, and a caret under it."""
    start = max(0, column - 60) if len(text) > 120 else 0
    shown = text[start : start + 120].replace("\t", " ")
    return f"\n    {shown}\n    {' ' * (column - 1 - start)}^"


class VerificationError(FormatError):
    """An executable is well-formed but could do harm: `layer` names the check that refused it."""

    def __init__(self, message: str, *, layer: str, **place: object) -> None:
        self.layer = layer
        super().__init__(f"{layer}: {message}", **place)  # type: ignore[arg-type]


class FileError(TreadleError, OSError):
    """A file cannot be opened, read or written. `errno`, `strerror` and `filename` are those of the system's error."""

    @staticmethod
    def of(error: OSError, doing: str, filename: str | None = None) -> FileError:
        """The system's error as ours, which is also a FileNotFoundError or a PermissionError where that one is."""
        kind = FileError
        if isinstance(error, FileNotFoundError):
            kind = MissingFileError
        elif isinstance(error, PermissionError):
            kind = FileAccessError
        ours = kind(f"{doing}: {error.strerror or error}")
        ours.errno, ours.strerror, ours.filename = error.errno, error.strerror, filename or error.filename
        return ours


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class MissingModuleError(MissingFileError, ValueError):
    """There is no such file to load a module from."""


class FileAccessError(FileError, PermissionError):
    """The system does not let this user do that with the file."""


# ---- compiling ----


class CompileError(TreadleError):
    """A program cannot be compiled."""


class KernelError(CompileError):
    """The kernel of an operator that a user has defined is not one that can be compiled."""


class InferenceError(CompileError, TypeError):
    """Types or shapes in a program do not agree."""


class SubscriptError(InferenceError, IndexError):
    """A program indexes a missing axis, element or field."""


class UnsupportedOperatorError(CompileError, NotImplementedError):
    """A model uses operators that Treadle does not have; `operators` lists all: (operator, node name, reason)."""

    def __init__(self, message: str, operators: list[tuple[str, str, str]]) -> None:
        self.operators = operators
        super().__init__(message)


class UnsupportedNameError(CompileError, AttributeError):
    """A name of another system's that Treadle leaves out; the message says why, and what does its job."""


class UnknownNameError(CompileError, AttributeError):
    """There is no operator, or no constructor, of that name."""


class UnsupportedImportError(CompileError, ModuleNotFoundError):
    """The same, of a module that is imported."""


class UnknownPassError(CompileError, ValueError):
    """There is no pass of that name, or none that can be left out."""


class ModelError(CompileError, ValueError):
    """A model is malformed: a missing value, a cycle, a wrong attribute."""


class UnknownOperatorError(CompileError, LookupError):
    """An executable needs operators that nobody has defined in this process; `modules` are said to define them."""

    modules: tuple[str, ...] = ()


class LinkerError(CompileError, RuntimeError):
    """The system's linker is not there, or failed."""


class MiscompilationError(CompileError):
    """The compiler made a program that the machine would refuse: a fault of Treadle's, not of the model."""


class CompileBudgetError(CompileError, RuntimeError):
    """A compilation passed a bound of the caller's: `budget` names it, seconds or memory, `step` the part that it was in.

    It is not a BudgetExceededError, which programs raise: passes let those that an operator raises be.
    """

    def __init__(self, message: str, *, budget: str, step: str, node: str | None = None) -> None:
        self.budget, self.step = budget, step
        super().__init__(message, node=node)


# ---- running ----


class ExecutionError(TreadleError, RuntimeError):
    """A program failed while it ran."""


class ArgumentError(ExecutionError, TypeError):
    """A call's arguments do not fit the function: number, names or kinds of values."""


class UnknownArgumentError(ArgumentError, ValueError):
    """A function has no parameter of that name."""


class DeviceNumberError(ArgumentError, ValueError):
    """A device's number is none."""


class ShapeError(ExecutionError, ValueError):
    """A tensor's rank or shape is not what the program needs."""


class CheckError(ExecutionError, ValueError):
    """A value, or what was called before, is not what a function asks for."""


class DTypeError(ExecutionError, TypeError):
    """A tensor's element type is not what the program needs."""


class IndexOutOfRangeError(ExecutionError, IndexError):
    """An operator met an index outside of its tensor."""


class UnknownTypeError(ExecutionError, KeyError):
    """An executable has no data type of that name."""


class UnknownWeightError(ExecutionError, KeyError):
    """There is no weight of that name, or its elements are not there."""


class UnknownFunctionError(ExecutionError, AttributeError, KeyError):
    """There is no function of that name."""


class UnknownOutputError(ArgumentError, AttributeError, KeyError):
    """A call has no result of that name."""


class UnknownPortError(ArgumentError, KeyError):
    """A function has no parameter, or no result, of that name."""


class UnknownGlobalFunctionError(UnknownFunctionError, ValueError):
    """No function of that name has been registered."""


class UnknownNodeError(ExecutionError, AttributeError):
    """A graph has no node of that name."""


class OutOfMemoryError(ExecutionError, MemoryError):
    """The system has no more memory."""


class CacheFullError(ExecutionError):
    """A paged cache has too few free pages for the tokens that come; it is as it was before."""


class BudgetExceededError(ExecutionError):
    """A call, or the building of kernels, passed a bound; `budget` names it: steps, seconds, memory, depth or build_seconds."""

    def __init__(self, message: str, *, budget: str, **place: object) -> None:
        self.budget = budget
        super().__init__(message, **place)  # type: ignore[arg-type]


class CancelledError(ExecutionError):
    """A call was cancelled from another thread."""


# ---- many processes ----


class BatchError(ExecutionError):
    """A batch has no result: the program refuses it, or the workers that had it were lost. `number` counts batches from 0,
    `attempts` says how often it was tried; the cause, where a program raised one, is `__cause__`."""

    def __init__(self, message: str, *, number: int, attempts: int = 1) -> None:
        self.number, self.attempts = number, attempts
        super().__init__(message)


class WorkerError(ExecutionError):
    """Workers cannot be started, or do not live long enough to begin a batch."""


class CheckpointError(ExecutionError, ValueError):
    """A checkpoint folder is of other work, or in use."""


class NotPicklableError(ExecutionError, TypeError):
    """An attempt to pickle or copy an object of one process: memory of the machine's heap, listeners, connections."""


class MissingPackageError(TreadleError, ImportError):
    """A feature needs a package that is not installed."""


# ---- a remote device ----


class RemoteError(ExecutionError, ConnectionError):
    """A remote device cannot be reached, the connection to it is lost, or its server has ended the session."""


class RemoteLimitError(ExecutionError):
    """A session would pass a limit of its server: sessions, bytes or values held, executables, calls at once."""


# ---- what the system refuses ----

_NO_MEMORY = ("annot allocate memory", "failed to map segment")  # the dynamic linker, of a module's library


@contextlib.contextmanager
def naming(doing: str) -> Iterator[None]:
    """Within this, what the system refuses (memory, files, pipes, threads) is an error of ours that says what it was for."""
    try:
        yield
    except TreadleError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"the system has no memory for {doing}") from error
    except ImportError as error:
        if not any(sign in str(error) for sign in _NO_MEMORY):
            raise
        raise OutOfMemoryError(f"the system has no memory for {doing}: {error}") from error
    except OSError as error:
        raise FileError.of(error, f"the system refuses what {doing} needs") from error
    except RuntimeError as error:
        if type(error) is not RuntimeError or "thread" not in str(error):  # Python says "can't start new thread"
            raise
        raise ExecutionError(f"the system refuses what {doing} needs: {error}") from error
