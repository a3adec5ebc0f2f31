"""Named results and signatures of the functions that machines call."""

from __future__ import annotations

import functools
import inspect
import keyword
import operator
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

from ..formats.messages.calling import public
from ..formats.messages.errors import ArgumentError, CheckError, IndexOutOfRangeError, UnknownOutputError
from ..formats.messages.names import near
from ..formats.ports import inputs_of, outputs_of
from ..formats.program import Function
from ..formats.types import TupleType


class Outputs(tuple):
    """The results of a call that has several: a tuple, whose fields have the names of `machine.outputs(function)` as well.

    `r["sigmoid"]` takes any name, `r.sigmoid` those that Python can write and that do not begin with an underscore.
    `_fields`, `_make` and `_asdict` are those of named tuples. Two are equal if they are as tuples. Raises UnknownOutputError,
    which is a KeyError and an AttributeError.
    """

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __new__(cls, *values: Any) -> Outputs:
        """As of a named tuple: one value for each name. Raises ArgumentError."""
        if len(values) != len(cls._fields):
            raise ArgumentError(f"{cls.__name__}: expected {len(cls._fields)} values, got {len(values)}")
        return tuple.__new__(cls, values)

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Outputs:
        return tuple.__new__(cls, values)

    def _asdict(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(zip(self._fields, self, strict=True))

    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        if isinstance(key, str):
            try:
                return tuple.__getitem__(self, self._fields.index(key))
            except ValueError:
                raise _unknown(key, self._fields) from None
        try:
            return tuple.__getitem__(self, key)
        except IndexError:
            raise _out_of_range(key, self._fields) from None
        except TypeError:
            raise _unknown(key, self._fields) from None

    def __eq__(self, other: object) -> bool:
        """As tuples are; raises CheckError for tensors of several elements, which are equal one by one."""
        try:
            return tuple.__eq__(self, other) if isinstance(other, tuple) else NotImplemented
        except ValueError:
            raise CheckError("results that hold several elements are compared one by one, by np.array_equal") from None

    __hash__ = tuple.__hash__

    @public
    def keys(self) -> tuple[str, ...]:
        """The names, so that `dict(results)` and `f(**results)` take results by name."""
        return self._fields

    @public
    def values(self) -> tuple[Any, ...]:
        """The results."""
        return tuple(self)

    @public
    def items(self) -> tuple[tuple[str, Any], ...]:
        """Pairs of names and results."""
        return tuple(zip(self._fields, self, strict=True))

    def __contains__(self, value: object) -> bool:
        """Whether it is the name of a field, or one of the fields themselves: tensors are not compared."""
        return value in self._fields if isinstance(value, str) else any(each is value for each in self)

    def __getattr__(self, name: str) -> Any:
        raise _unknown(name, self._fields)

    def __reduce__(self) -> tuple:
        return _made, (self._fields, tuple(self))

    def __repr__(self) -> str:
        return f"Outputs({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    def _repr_html_(self) -> str:
        from ..formats.text.html import heading, preformatted, together

        shown = []
        for name, value in self._asdict().items():
            made = value._repr_html_() if hasattr(value, "_repr_html_") else preformatted(repr(value))
            shown += [heading(name), made]
        return together(*shown)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._fields)


_classes: weakref.WeakValueDictionary[tuple[str, ...], type[Outputs]] = weakref.WeakValueDictionary()


def outputs_class(names: tuple[str, ...]) -> type[Outputs]:
    """The class of results of these names, as long as anybody has it or results of it."""
    found = _classes.get(names)
    return _classes.setdefault(names, _class_of(names)) if found is None else found


def _class_of(names: tuple[str, ...]) -> type[Outputs]:
    members: dict[str, Any] = {"__slots__": (), "_fields": names, "__module__": __name__}
    for number, name in enumerate(names):
        if name.isidentifier() and not name.startswith("_"):
            members[name] = property(operator.itemgetter(number))
    return type("Outputs", (Outputs,), members)


def _made(names: tuple[str, ...], values: tuple) -> Outputs:
    return outputs_class(names)._make(values)


def _unknown(name: object, names: Sequence[str]) -> UnknownOutputError:
    return UnknownOutputError(
        f"there is no output {name!r}; the call gave {', '.join(map(repr, names))}{near(name, names)}"
    )


def _out_of_range(key: object, names: Sequence[str]) -> IndexOutOfRangeError:
    """An IndexError, since it ends iteration by index."""
    return IndexOutOfRangeError(f"there is no output {key}; the call gave {len(names)}: {', '.join(map(repr, names))}")


def naming_results(function: Function) -> Callable[[Any], Any] | None:
    """The function that makes `Outputs` of consecutive results; None if the result is not a tuple of several."""
    result = function.type.result
    if not isinstance(result, TupleType) or not result.fields:
        return None
    return functools.partial(tuple.__new__, outputs_class(tuple(port.name for port in outputs_of(function))))


def output_number(function: Function, index: int | str) -> int:
    """The position of a result that is asked for by position or name. Raises ArgumentError, UnknownOutputError."""
    names = [port.name for port in outputs_of(function)]
    if isinstance(index, str):
        if index not in names:
            raise UnknownOutputError(
                f"{function.name}: output {index!r} is asked for; there is {', '.join(map(repr, names))}{near(index, names)}"
            )
        return names.index(index)
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise ArgumentError(
            f"{function.name}: an output's index is a number from 0 to {len(names) - 1} or a name, "
            f"got a {type(index).__name__}"
        )
    number = operator.index(index)
    if not 0 <= number < len(names):
        raise ArgumentError(f"{function.name}: output {number} is asked for, there are {len(names)}")
    return number


def describe(call: Callable[..., Any], function: Function) -> Callable[..., Any]:
    """The callable, which says what it is: its name, `__signature__` and `__doc__` are the function's."""
    call.__name__ = call.__qualname__ = function.name
    call.__signature__ = _signature(function)  # type: ignore[attr-defined]
    ports = [("in ", port) for port in inputs_of(function)] + [("out", port) for port in outputs_of(function)]
    lines = [f"{way}  {port.name}: {port.type}" for way, port in ports]
    call.__doc__ = "\n".join([f"{function.name}: {function.type}", "", *lines])
    return call


def _signature(function: Function) -> inspect.Signature:
    """Parameters with their types as annotations. One whose name Python cannot write is there under a name made of it, and by
    position alone, and so are those before it; the call itself takes each by its own name too, as **{name: value}."""
    names = [port.name for port in inputs_of(function)]
    written = _written(names)
    by_position = max((at for at, name in enumerate(names) if name != written[at]), default=-1)
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(written[at], kinds[at > by_position], annotation=_Annotation(port.type))
        for at, port in enumerate(inputs_of(function))
    ]
    return inspect.Signature(parameters, return_annotation=_Annotation(function.type.result))


def _written(names: Sequence[str]) -> list[str]:
    """Each name as Python can write it, all of them different."""
    taken: Mapping[str, Any] = dict.fromkeys(filter(_is_name, names))
    made: dict[str, None] = {}
    for name in names:
        text = name
        if not _is_name(name):
            # "²" is a digit, of no name
            text = "".join(letter if f"_{letter}".isidentifier() else "_" for letter in name)
            text = text if text.isidentifier() else f"_{text}"
            while not _is_name(text) or text in taken or text in made:
                text += "_"
        made[text] = None
    return list(made)


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


class _Annotation:
    """A type in a signature: shown as it is written, with no quotes, and the very type as `type`."""

    __slots__ = ("type",)

    def __init__(self, type_: Any) -> None:
        self.type = type_

    def __repr__(self) -> str:
        return str(self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Annotation) and self.type == other.type

    def __hash__(self) -> int:
        return hash(self.type)
