"""Common behaviour of public functions and classes: a malformed call raises Treadle's own error, a misspelt attribute
suggests the one that was meant, and warnings point at the caller's line.

A correct call costs one more frame: arguments are examined only after Python has refused them.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import ArgumentError, OutOfMemoryError, TreadleError, UnknownAttributeError
from .names import near
from .terminal import shown

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)
_ROOT = __name__.partition(".")[0]
_BETWEEN = ("contextlib", "functools")  # modules whose wrappers stand between Treadle's functions and their callers
_SCRIPTS = (f"{_ROOT}.tests.", f"{_ROOT}.examples.")


def public(function: _F) -> _F:
    """The function, of which a call with wrong arguments (an unknown name, too many, too few) raises ArgumentError, and
    one that has no memory OutOfMemoryError, wherever that came out: modules are imported within."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            refused: TreadleError | None = None if isinstance(error, TreadleError) else misfit(function, args, kwargs)
            if refused is None:
                raise
        except MemoryError as error:
            if isinstance(error, TreadleError):
                raise
            refused = OutOfMemoryError(
                f"{_name(function)}: the system has no more memory{f': {error}' if str(error) else ''}"
            )
        raise refused

    return call  # type: ignore[return-value]


def public_class(cls: _C) -> _C:
    """The class, whose constructor and public methods are `public`."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if inspect.isfunction(member):
            setattr(cls, name, public(member))
        elif isinstance(member, (staticmethod, classmethod)):
            setattr(cls, name, type(member)(public(member.__func__)))
    return cls


def misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ArgumentError | None:
    """The error for arguments that a function cannot be called with; None where it can."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        pass
    else:
        return None
    parameters = list(signature.parameters.values())
    owner = _is_method(function) and bool(parameters)
    parameters, args = parameters[owner:], args[owner:]
    name = _name(function)
    return ArgumentError(f"{name}: {_misfit(name, parameters, args, kwargs)}")


def _name(function: Callable[..., Any]) -> str:
    return function.__qualname__.rpartition("<locals>.")[2].removesuffix(".__init__")


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether its first argument is the object, or the class, that it is called on."""
    return next(iter(inspect.signature(function).parameters), "") in ("self", "cls")


def _misfit(name: str, parameters: list[inspect.Parameter], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    kinds = inspect.Parameter
    by_position = [each for each in parameters if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    by_name = [each.name for each in parameters if each.kind in (kinds.KEYWORD_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    takes_any = any(each.kind is kinds.VAR_KEYWORD for each in parameters)
    unknown = next((key for key in kwargs if key not in by_name), None)
    if unknown is not None and not takes_any:
        there = f"; there {'are' if len(by_name) > 1 else 'is'} {', '.join(by_name)}" if by_name else "; it takes none"
        from .elsewhere import parameter_elsewhere

        return f"{unknown!r} is not a parameter{parameter_elsewhere(name, unknown) or near(unknown, by_name) or there}"
    if len(args) > len(by_position) and not any(each.kind is kinds.VAR_POSITIONAL for each in parameters):
        only = [each.name for each in parameters if each.kind is kinds.KEYWORD_ONLY]
        further = f"; by name: {', '.join(only)}" if only else ""
        count = len(by_position)
        expected = f"{count} argument{'s' * (count != 1)} expected" + (" by position" if only else "")
        return f"{expected}, got {len(args)}{further}"
    twice = next((each.name for each in by_position[: len(args)] if each.name in kwargs and each.name in by_name), None)
    if twice is not None:
        return f"{twice!r} is given twice"
    needed = [each for each in parameters if each.default is each.empty and each.kind not in _ANY]
    missing = [each.name for each in needed if each.name not in kwargs and each not in by_position[: len(args)]]
    return f"no value for {', '.join(missing)}"


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Suggesting:
    """Base of public classes: an unknown attribute is an error that suggests a known one."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers must refuse unknown names

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            if name.startswith("_"):  # protocols ask for these, and want no sentence
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            raise UnknownAttributeError(f"{kind} has no attribute {name!r}", lambda: self._instead_of(name))

    def _instead_of(self, name: str) -> str:
        """The end of the message: what may have been meant."""
        from .elsewhere import elsewhere  # who makes no mistake does not pay for it

        for kind in type(self).__mro__:
            if meant := elsewhere(kind.__name__, name):
                return meant
        return near(name, [each for each in dir(self) if not each.startswith("_")])


def mapping(where: str, value: Any, expected: str) -> Mapping[Any, Any]:
    """Raises ArgumentError for anything but a mapping."""
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{where}: expected {expected}, got {told(value)}")
    return value


def by_name(function: str) -> str:
    """The end of a message to who gave arguments by name as one mapping."""
    return f"; arguments by name: machine[{function!r}](**feeds), or machine.call({function!r}, kwargs=feeds)"


def told(value: object) -> str:
    """The kind of a value, in a message."""
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in tuple('aeiou') else 'a'} {kind}"


def raised(error: BaseException, function: Callable[..., Any]) -> str:
    """An error that a user's function raised, for a message: with the last line run in its file."""
    code = getattr(inspect.unwrap(function), "__code__", None) or getattr(type(function).__call__, "__code__", None)
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if _is_of(frame.f_code, code)]
    place = f" ({os.path.basename(code.co_filename)}:{lines[-1]})" if code is not None and lines else ""
    kind = "AttributeError" if isinstance(error, UnknownAttributeError) else type(error).__name__
    return f"{kind}: {error}{place}"


def _is_of(code: CodeType, other: CodeType | None) -> bool:
    return other is not None and code.co_filename == other.co_filename


def is_own(module: str) -> bool:
    """Whether a module, by its name, is one of Treadle's; tests and examples are users'."""
    return module.startswith(f"{_ROOT}.") and not module.startswith(_SCRIPTS)


def _is_users(module: str) -> bool:
    return not is_own(module) and module not in _BETWEEN


def users_module() -> str:
    """The name of the nearest module that is not Treadle's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_own(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "__main__"))


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning on the user's line, however deep in Treadle it is given."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and not _is_users(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(shown(message), category, stacklevel=level)
