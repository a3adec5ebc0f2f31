"""What a chat's reply consists of: what the model thinks, what it says, and which tools it calls.

Models write all of that into one text, each family in its own form; the chat template tells which. A text that is not of the
form is what the model says, never an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .pieces import Until

THINK, THOUGHT = "<think>", "</think>"
ARGUMENTS = "[ARGS]"  # of Mistral's: between a function's name and its arguments


class Call(NamedTuple):
    """A call of a tool; `arguments` are JSON."""

    name: str
    arguments: str


class Part(NamedTuple):
    """A piece of a reply: one of the three."""

    text: str = ""
    thought: str = ""
    call: Call | None = None


@dataclass(frozen=True)
class Form:
    """How a family of models calls tools: between two marks, or from the first one to the end. `is_bare`: also as a reply that is
    nothing but JSON."""

    opens: str
    closes: str
    read: Callable[[str], list[Any]]
    is_bare: bool = False


def _values(text: str, between: str = "") -> list[Any]:
    """The values of JSON in a text, one after another; of lists their items. Raises ValueError."""
    found, decoder, rest = [], json.JSONDecoder(), text.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        found += value if isinstance(value, list) else [value]
        rest = rest[end:].strip()
        rest = rest.removeprefix(between).strip() if between else rest
    return found


def _mistral(text: str) -> list[Any]:
    """A list of calls, or each behind its name: `name[ARGS]{…}`."""
    if ARGUMENTS not in text:
        return _values(text)
    named = [each.partition(ARGUMENTS) for each in text.split(_MISTRAL)]
    return [{"name": name.strip(), "arguments": json.loads(values)} for name, _, values in named]


_MISTRAL = "[TOOL_CALLS]"
FORMS = (  # the first whose mark is in the chat template; where none is, the first one's
    Form("<tool_call>", "</tool_call>", _values),  # Hermes, Qwen
    Form(_MISTRAL, "", _mistral),
    Form("<|tool_call|>", "<|/tool_call|>", _values),  # Phi 4
    Form("<|python_tag|>", "", lambda text: _values(text, ";"), is_bare=True),  # Llama 3
)
BARE = Form("", "", _values, is_bare=True)  # of a reply that can be nothing else


def form_of(template: str) -> Form | None:
    """How the model of a chat template calls tools; None where the template takes none."""
    if "tools" not in template:
        return None
    if "<|start_header_id|>" in template:  # some of Llama 3's do not name their mark
        return FORMS[-1]
    return next((form for form in FORMS if form.opens in template), FORMS[0])


class Reply:
    """Reads a reply, piece by piece."""

    def __init__(
        self, form: Form | None = None, tools: Collection[str] = (), *, thinks: bool = False, is_thinking: bool = False
    ) -> None:
        """`tools` are the names that may be called, in this form. `thinks`: the reply may begin with thoughts; `is_thinking`: it
        does, and the mark before them is not part of it."""
        self._form, self._tools, self._thinks = form, frozenset(tools), thinks or is_thinking
        self._begun = ""  # characters of which it is not known yet what they begin
        self._read = self._thoughts if is_thinking else self._beginning
        self._until = Until([THOUGHT])
        self._opened, self._body = "", ""  # a call's first mark, and what follows, until it is complete
        self._blank = ""  # white space that was not given yet
        self.calls = 0

    def take(self, piece: str) -> Iterator[Part]:
        """What is certain now."""
        yield from self._read(piece)

    def end(self) -> Iterator[Part]:
        """What waited."""
        if self._read == self._thoughts:
            yield from _thought(self._until.end())
        elif self._read == self._call:
            yield from self._called("")
        else:
            yield from self._said(self._begun + self._until.end())
        if self._blank and not self.calls:
            yield Part(self._blank)

    # ---- the states ----

    def _beginning(self, piece: str) -> Iterator[Part]:
        self._begun += piece
        text = self._begun.lstrip()
        if self._thinks and text.startswith(THINK):
            yield from self._to_thoughts(text.removeprefix(THINK))
        elif (text or not self._waits_for_more()) and not (self._thinks and THINK.startswith(text)):
            begun, self._begun = self._begun, ""
            if self._form is not None and self._form.is_bare and text[0] == "{":
                self._read = self._call
                yield from self._call(begun)
            else:
                yield from self._to_text(begun)

    def _waits_for_more(self) -> bool:
        return self._thinks or (self._form is not None and self._form.is_bare)

    def _to_thoughts(self, piece: str) -> Iterator[Part]:
        self._read = self._thoughts
        yield from self._thoughts(piece)

    def _thoughts(self, piece: str) -> Iterator[Part]:
        yield from _thought(self._until.take(piece))
        if self._until.rest is not None:
            self._thinks, self._begun, rest = False, "", self._until.rest
            self._read = self._behind_thoughts
            yield from self._behind_thoughts(rest)

    def _behind_thoughts(self, piece: str) -> Iterator[Part]:
        """Blank lines are between the thoughts and what is said."""
        if piece := piece.lstrip():
            self._read = self._beginning
            yield from self._beginning(piece)

    def _to_text(self, piece: str) -> Iterator[Part]:
        self._until = Until([self._form.opens] if self._form is not None else [])
        self._read = self._text
        yield from self._text(piece)

    def _text(self, piece: str) -> Iterator[Part]:
        yield from self._said(self._until.take(piece))
        if self._until.rest is not None:
            assert self._form is not None
            self._read, self._opened, rest = self._call, self._form.opens, self._until.rest
            yield from self._call(rest)

    def _said(self, text: str) -> Iterator[Part]:
        if self._form is not None:  # blanks before a call are not part of what is said
            text = self._blank + text
            self._blank = text[len(text.rstrip()) :]
            text = text.rstrip()
        if text:
            yield Part(text)

    def _call(self, piece: str) -> Iterator[Part]:
        assert self._form is not None
        self._body += piece
        if (closes := self._form.closes) and closes in self._body:
            self._body, _, rest = self._body.partition(closes)
            yield from self._called(closes)
            yield from self._to_text(rest)

    def _called(self, closes: str) -> Iterator[Part]:
        """The calls between two marks; or the text, with these, where it is none."""
        assert self._form is not None
        body, self._body = self._body, ""
        try:
            calls = [self._checked(each) for each in self._form.read(body.strip().removeprefix(self._form.opens))]
        except (ValueError, TypeError, KeyError, RecursionError):
            calls = []
        self.calls += len(calls)
        if calls:
            self._blank = ""
            yield from (Part(call=call) for call in calls)
        else:
            yield from self._said(self._opened + body + closes)

    def _checked(self, value: Any) -> Call:
        """A call of a known tool. Raises ValueError, TypeError, KeyError for anything else."""
        value = value.get("function", value) if isinstance(value, dict) else value
        name = value["name"]
        if name not in self._tools:
            raise ValueError(name)
        arguments = value["arguments"] if "arguments" in value else value["parameters"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        if not isinstance(arguments, dict):
            raise ValueError(name)
        return Call(name, json.dumps(arguments, ensure_ascii=False))


def _thought(text: str) -> Iterator[Part]:
    if text:
        yield Part(thought=text)
