"""Regular expressions in RE2's syntax, matched in linear time for each position where a match may begin.

Models bring their own expressions, so that a backtracking search, as in Python's `re`, could take
forever. An expression becomes an automaton (Thompson 1968), whose sets of states are made while texts are read (a lazy DFA), as
RE2 does it (https://swtch.com/~rsc/regexp/regexp3.html). Of matches at a position the longest one counts.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Union

from ...formats import metering

LENGTH = 10_000  # characters of an expression
STATES = 10_000  # of its automaton
REPETITIONS = 1_000  # the greatest number in braces, and the greatest product of such within each other: RE2's
NESTING = 100  # groups within each other
KEPT = 10_000  # states in the sets that are kept, and ways between these
_STATE_BYTES, _KEPT_BYTES = 400, 100  # of each of these, about


class PatternError(ValueError):
    """A text is not a regular expression, or an unsupported one."""


# ---- characters ----


@dataclass(frozen=True)
class Characters:
    """Characters in some ranges, of some categories of Unicode or in other sets of characters, or all others."""

    ranges: tuple[tuple[str, str], ...] = ()
    categories: tuple[str, ...] = ()
    parts: tuple[Characters, ...] = ()
    is_negated: bool = False
    ignores_case: bool = False

    def __contains__(self, char: str) -> bool:
        return self._has(char) != self.is_negated

    def _has(self, char: str) -> bool:
        chars = {char, *_other_cases(char)} if self.ignores_case else {char}
        if any(low <= each <= high for each in chars for low, high in self.ranges):
            return True
        if self.categories and unicodedata.category(char).startswith(self.categories):
            return True
        return any(char in part for part in self.parts)

    @property
    def takes_others_alike(self) -> bool:
        """Whether non-ASCII characters are not distinguished from each other."""
        if self.categories or self.ignores_case:
            return False
        are_alike = all(high <= "\x7f" or (low <= "\x80" and high == "\U0010ffff") for low, high in self.ranges)
        return are_alike and all(part.takes_others_alike for part in self.parts)


@functools.lru_cache(maxsize=4096)
def _other_cases(char: str) -> tuple[str, ...]:
    found = {char.lower(), char.upper(), char.casefold()}
    found |= {each.lower() for each in found} | {each.upper() for each in found}
    return tuple(each for each in found if len(each) == 1)


_WORD = Characters((("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")))
_DIGIT = Characters((("0", "9"),))
_SPACE = Characters((("\t", "\n"), ("\f", "\r"), (" ", " ")))
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_ASCII = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": (("0", "9"),),
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (("A", "Z"),),
    "word": _WORD.ranges,
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_CATEGORIES = frozenset(
    letter + kind
    for letter, kinds in {
        "C": "cfos",
        "L": "lmotu",
        "M": "cen",
        "N": "dlo",
        "P": "cdefios",
        "S": "ckmo",
        "Z": "lps",
    }.items()
    for kind in ("", *kinds)
)
_ANY = Characters(is_negated=True)
_ANY_BUT_NEW_LINE = Characters((("\n", "\n"),), is_negated=True)

# ---- the automaton ----

# conditions of a position: on the characters before and after it, "" at the ends of the text
_HOLDS = {
    "begin": lambda before, behind: not before,
    "end": lambda before, behind: not behind,
    "line begin": lambda before, behind: before in ("", "\n"),
    "line end": lambda before, behind: behind in ("", "\n"),
    "border": lambda before, behind: _is_word(before) != _is_word(behind),
    "no border": lambda before, behind: _is_word(before) == _is_word(behind),
}


def _is_word(char: str) -> bool:
    return char != "" and char in _WORD


@dataclass
class _Automaton:
    """States by number: `moves` over a character, and `free` moves (epsilon), if their conditions hold."""

    moves: list[tuple[Characters, int] | None] = field(default_factory=list)
    free: list[list[tuple[str, int]]] = field(default_factory=list)

    def state(self) -> int:
        self.moves.append(None)
        self.free.append([])
        return len(self.moves) - 1

    def join(self, begin: int, end: int, holds: str = "") -> None:
        self.free[begin].append((holds, end))


@dataclass(frozen=True)
class _Node:
    """A part of an expression: `kind` is of "chars", "holds", "all", "any of" or "repeat"."""

    kind: str
    chars: Characters = _ANY
    holds: str = ""
    parts: tuple[_Node, ...] = ()
    least: int = 0
    most: int | None = None

    @functools.cached_property
    def states(self) -> int:
        """How many `build` makes."""
        if self.kind == "repeat":
            times = self.least + 1 if self.most is None else self.most
            return times * (1 + self.parts[0].states) + (1 if self.most is None else 0)
        own = {"chars": 1, "all": len(self.parts)}.get(self.kind, 0)
        return own + sum(part.states for part in self.parts)

    @functools.cached_property
    def repetitions(self) -> int:
        """The copies of the expression's innermost part in the automaton, due to numbers in braces."""
        own = max(self.least, self.most or 0, 1) if self.kind == "repeat" else 1
        return own * max((part.repetitions for part in self.parts), default=1)

    def build(self, made: _Automaton, begin: int, end: int) -> None:
        """Builds the moves for all that this node matches."""
        if self.kind == "chars":
            step = made.state()
            made.join(begin, step)
            made.moves[step] = (self.chars, end)
        elif self.kind == "holds":
            made.join(begin, end, self.holds)
        elif self.kind == "any of":
            for part in self.parts:
                part.build(made, begin, end)
        elif self.kind == "all":
            for part in self.parts:
                step = made.state()
                part.build(made, begin, step)
                begin = step
            made.join(begin, end)
        else:
            self._build_repeated(made, begin, end)

    def _build_repeated(self, made: _Automaton, begin: int, end: int) -> None:
        (part,) = self.parts
        for _ in range(self.least):
            step = made.state()
            part.build(made, begin, step)
            begin = step
        if self.most is None:
            loop = made.state()
            made.join(begin, loop)
            again = made.state()
            part.build(made, loop, again)
            made.join(again, loop)
            begin = loop
        else:
            for _ in range(self.most - self.least):
                made.join(begin, end)
                step = made.state()
                part.build(made, begin, step)
                begin = step
        made.join(begin, end)


# ---- the syntax ----

_MOST_DIGITS = 9  # of a number in braces
_QUOTED = re.compile(r"\\(?:Q(.*?)(?:\\E|$)|.)", re.DOTALL)


def _unquoted(match: re.Match) -> str:
    """The text within \\Q…\\E, as literal characters."""
    return match.group() if match.group(1) is None else re.escape(match.group(1))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = _QUOTED.sub(_unquoted, text), 0, 0
        self.ignores_case = self.by_lines = self.dot_is_any = False

    def fail(self, why: str) -> PatternError:
        return PatternError(f"the regular expression {self.text[:80]!r} is wrong at character {self.at + 1}: {why}")

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        char = self.peek()
        if not char:
            raise self.fail("it ends too early")
        self.at += 1
        return char

    def taken(self, text: str) -> bool:
        is_there = self.text.startswith(text, self.at)
        self.at += len(text) if is_there else 0
        return is_there

    def whole(self) -> _Node:
        node = self.choice()
        if self.peek():
            raise self.fail("a ) without a (")
        return node

    def choice(self) -> _Node:
        flags = self.ignores_case, self.by_lines, self.dot_is_any
        choices: list[list[_Node]] = [[]]
        while self.peek() and self.peek() != ")":
            if self.taken("|"):
                choices.append([])
            elif (node := self.piece()) is not None:
                choices[-1].append(node)
        self.ignores_case, self.by_lines, self.dot_is_any = flags
        return _Node("any of", parts=tuple(_Node("all", parts=tuple(each)) for each in choices))

    def piece(self) -> _Node | None:
        """One part with what repeats it; None for flags, which match nothing."""
        node = self.atom()
        was_repeated = False
        while node is not None and (bounds := self.repetition()) is not None:
            if was_repeated:
                raise self.fail("what is repeated is repeated again")
            least, most = bounds
            self.taken("?")  # non-greedy: without effect, since the longest match counts
            node, was_repeated = _Node("repeat", parts=(node,), least=least, most=most), True
            if node.repetitions > REPETITIONS:
                raise self.fail(
                    f"repetitions of repetitions, {node.repetitions} times; at most {REPETITIONS} are taken"
                )
        return node

    def repetition(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.taken(sign):
                return bounds
        if self.peek() != "{":
            return None
        end = self.text.find("}", self.at, self.at + 2 * _MOST_DIGITS + 3)
        numbers = self.text[self.at + 1 : end].split(",") if end > 0 else []
        if (
            not 1 <= len(numbers) <= 2
            or not _is_number(numbers[0])
            or not (numbers[-1] == "" or _is_number(numbers[-1]))
        ):
            return None  # the brace is a literal
        self.at = end + 1
        least = int(numbers[0])
        most = None if numbers[-1] == "" else int(numbers[-1])
        if max(least, most or 0) > REPETITIONS or (most is not None and most < least):
            raise self.fail(f"a repetition of {least} to {most} times; at most {REPETITIONS} are taken")
        return least, most

    def one(self, char: str) -> _Node:
        return _Node("chars", Characters(((char, char),), ignores_case=self.ignores_case))

    def atom(self) -> _Node | None:
        char = self.take()
        if char == "(":
            return self.group()
        if char == "[":
            return _Node("chars", self.bracket())
        if char == ".":
            return _Node("chars", _ANY if self.dot_is_any else _ANY_BUT_NEW_LINE)
        if char in "^$":
            word = "begin" if char == "^" else "end"
            return _Node("holds", holds=f"line {word}" if self.by_lines else word)
        if char in "*+?":
            raise self.fail(f"there is nothing that {char} could repeat")
        if char == "\\":
            return self.escaped()
        return self.one(char)

    def group(self) -> _Node | None:
        self.depth += 1
        if self.depth > NESTING:
            raise self.fail(f"more than {NESTING} groups in each other")
        before = self.ignores_case, self.by_lines, self.dot_is_any
        if self.taken("?"):
            if self.taken("P<") or self.taken("<"):
                while self.take() != ">":
                    pass
            elif self.flags() == ")":
                self.depth -= 1
                return None
        node = self.choice()
        if not self.taken(")"):
            raise self.fail("a ) is missing")
        self.depth -= 1
        self.ignores_case, self.by_lines, self.dot_is_any = before
        return node

    def flags(self) -> str:
        """Sets flags; returns their end, ":" or ")"."""
        value = True
        while (char := self.take()) not in ":)":
            if char == "-":
                value = False
            elif char == "i":
                self.ignores_case = value
            elif char == "m":
                self.by_lines = value
            elif char == "s":
                self.dot_is_any = value
            elif char != "U":
                raise self.fail(f"(?{char} is not a group that is known")
        return char

    def escaped(self) -> _Node:
        places = {"A": "begin", "z": "end", "b": "border", "B": "no border"}
        if self.peek() in places:
            return _Node("holds", holds=places[self.take()])
        found = self.escape()
        return self.one(found) if isinstance(found, str) else _Node("chars", found)

    def escape(self) -> str | Characters:
        """An escape: the character, or the set of characters, that follows a backslash."""
        char = self.take()
        if char.lower() in _PERL and char.isascii():
            known = _PERL[char.lower()]
            return known if char.islower() else Characters(parts=(known,), is_negated=True)
        if char in "pP":
            return self.category(is_negated=char == "P")
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            digits = self.braced() if self.taken("{") else self.take() + self.take()
            return self.number(digits, 16)
        if char.isdigit():
            digits = char
            while len(digits) < 3 and self.peek() in tuple("01234567"):
                digits += self.take()
            if char != "0" and len(digits) < 3:
                raise self.fail("references to groups are not taken")
            return self.number(digits, 8)
        if char.isascii() and char.isalnum():
            raise self.fail(f"\\{char} is not known")
        return char

    def braced(self) -> str:
        end = self.text.find("}", self.at)
        if end < 0:
            raise self.fail("a } is missing")
        inner, self.at = self.text[self.at : end], end + 1
        return inner

    def number(self, digits: str, base: int) -> str:
        try:
            return chr(int(digits, base))
        except (ValueError, OverflowError):
            raise self.fail(f"{digits[:20]!r} is not the number of a character") from None

    def category(self, is_negated: bool) -> Characters:
        name = self.braced() if self.taken("{") else self.take()
        if name.startswith("^"):
            name, is_negated = name[1:], not is_negated
        if name == "Any":
            return Characters(is_negated=not is_negated)
        if name not in _CATEGORIES:
            raise self.fail(f"{name[:20]!r} is not a category of Unicode that is known")
        return Characters(categories=(name,), is_negated=is_negated)

    def bracket(self) -> Characters:
        is_negated = self.taken("^")
        ranges: list[tuple[str, str]] = []
        parts: list[Characters] = []
        is_first = True
        while is_first or self.peek() != "]":
            is_first = False
            if self.taken("[:"):
                parts.append(self.named())
                continue
            low = self.bracketed()
            if isinstance(low, Characters):
                parts.append(low)
            elif self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.bracketed()
                if isinstance(high, Characters) or high < low:
                    raise self.fail("a range that does not begin and end with characters, in order")
                ranges.append((low, high))
            else:
                ranges.append((low, low))
        self.at += 1
        return Characters(tuple(ranges), (), tuple(parts), is_negated, self.ignores_case)

    def bracketed(self) -> str | Characters:
        char = self.take()
        return self.escape() if char == "\\" else char

    def named(self) -> Characters:
        end = self.text.find(":]", self.at)
        name = self.text[self.at : end]
        bare = name.removeprefix("^")
        if end < 0 or bare not in _ASCII:
            raise self.fail(f"[:{name[:20]}:] is not known")
        self.at = end + 2
        return Characters(_ASCII[bare], is_negated=name != bare)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


# ---- matching ----

_FEW = 64  # steps that are counted together: counting takes longer than a step

States = tuple[frozenset[int], str]  # states, and the character before, where it matters
_Move = tuple[bool, Union["_Set", None]]  # whether a match ends before a character, and the states after it
_NOWHERE: _Move = (False, None)


class _Set(dict[str, _Move]):
    """Some states, and the moves from them over the characters met so far."""

    __slots__ = ("states",)

    def __init__(self, states: States) -> None:
        self.states = states


def _parsed(expression: str) -> _Node:
    """Raises PatternError. Takes time with the length of the expression, not with its states."""
    if len(expression) > LENGTH:
        raise PatternError(f"a regular expression of {len(expression)} characters; at most {LENGTH} are taken")
    node = _Parser(expression).whole()
    if node.states > STATES:
        raise PatternError(f"a regular expression of {node.states} states; at most {STATES} are taken")
    return node


def _literal(node: _Node) -> str | None:
    """The one text that an expression matches, if that is plain."""
    if node.kind == "chars":
        first = node.chars.ranges[0][0] if node.chars.ranges else ""
        return first if node.chars == Characters(((first, first),)) else None
    if node.kind != "all" and (node.kind != "any of" or len(node.parts) > 1):
        return None
    parts = [_literal(part) for part in node.parts]
    return None if None in parts else "".join(parts)  # type: ignore[arg-type]


def find(text: str, wanted: str, begin: int) -> int:
    """As `str.find`, in pieces."""
    while begin <= len(text):
        found = text.find(wanted, begin, begin + metering.CHARACTERS + len(wanted))
        if found >= 0:
            return found
        begin += metering.CHARACTERS
        metering.look()
    return -1


class Pattern:
    """A compiled expression. Raises PatternError for a malformed or unsupported one."""

    def __init__(self, expression: str) -> None:
        node = _parsed(expression)
        self._made = _Automaton()
        self._end, begin = self._made.state(), self._made.state()
        node.build(self._made, begin, self._end)
        metering.step(2 * node.states)
        self._begin = frozenset({begin})
        self._looks_around = any(holds for each in self._made.free for holds, _ in each)
        self._known: dict[States, _Set] = {}
        self._size = 0  # of the kept states and moves
        self._first: _Set | None = None  # the states in which a match begins, where they are always the same
        self._literal = _literal(node)

    @property
    def nbytes(self) -> int:
        """An estimate of its largest size."""
        return _STATE_BYTES * len(self._made.moves) + _KEPT_BYTES * KEPT

    def is_whole(self, text: str) -> bool:
        """Whether it matches all of a text."""
        return self.longest(text, 0) == len(text)

    def search(self, text: str, begin: int) -> tuple[int, int] | None:
        """The first match from there on, and of these the longest."""
        if self._literal is not None:
            at = find(text, self._literal, begin)
            return None if at < 0 else (at, at + len(self._literal))
        begins = None if self._looks_around else self._begins(text, 0)
        for place in range(begin, len(text) + 1):
            may_begin = begins is None or begins.get(text[place : place + 1]) is not _NOWHERE
            if may_begin and (end := self.longest(text, place)) >= 0:
                return place, end
            if place % _FEW == 0:
                metering.step(_FEW * _FEW // 2)
        return None

    def longest(self, text: str, begin: int) -> int:
        """The end of the longest match that begins there; -1 if there is none."""
        now: _Set | None = self._begins(text, begin)
        end = -1
        for first in range(begin, len(text) + 1, _FEW):
            part = text[first : first + _FEW]
            is_full = len(part) == _FEW
            for place, char in enumerate(part if is_full else (*part, ""), first):
                is_match, now = now.get(char) or self._move(now, char)  # type: ignore[union-attr, arg-type]
                if is_match:
                    end = place
                if now is None:
                    return end
            if is_full:
                metering.step(_FEW)
        return end

    @property
    def takes_others_alike(self) -> bool:
        """Whether non-ASCII characters are not distinguished from each other."""
        return all(move is None or move[0].takes_others_alike for move in self._made.moves)

    def _seen(self, char: str) -> str:
        """The relevant part of the previous character: nothing, unless the pattern has anchors."""
        if not self._looks_around or char in ("", "\n"):
            return char if self._looks_around else ""
        return "a" if char in _WORD else " "

    def start(self, before: str) -> States:
        """The states in which a match begins after a character, "" at the beginning of the text."""
        return self._begin, self._seen(before)

    def step(self, now: States, char: str) -> tuple[bool, States | None]:
        """Whether a match ends before the character, and the states after it."""
        states, before = now
        reached, pending = set(states), list(states)
        while pending:
            for holds, other in self._made.free[pending.pop()]:
                if other not in reached and (not holds or _HOLDS[holds](before, char)):
                    reached.add(other)
                    pending.append(other)
        moves: Iterable = (self._made.moves[state] for state in reached)
        behind = frozenset(move[1] for move in moves if move is not None and char and char in move[0])
        metering.step(len(reached))
        return self._end in reached, (behind, self._seen(char)) if behind else None

    def _begins(self, text: str, at: int) -> _Set:
        """The states in which a match begins there."""
        if self._looks_around:
            return self._set(self.start(text[at - 1] if at else ""))
        if self._first is None:
            self._first = self._set(self.start(""))
        return self._first

    def _set(self, states: States) -> _Set:
        """The one set of these states, kept."""
        found = self._known.get(states)
        if found is None:
            self._make_room(len(states[0]))
            found = self._known[states] = _Set(states)
        return found

    def _move(self, now: _Set, char: str) -> _Move:
        """`step` from a set that has not seen the character yet."""
        is_match, behind = self.step(now.states, char)
        moved = (is_match, self._set(behind)) if behind is not None else (True, None) if is_match else _NOWHERE
        self._make_room(1)
        now[char] = moved
        return moved

    def _make_room(self, size: int) -> None:
        if self._size + size > KEPT:
            known, self._known, self._size, self._first = self._known, {}, 0, None
            for each in known.values():  # they refer to one another
                each.clear()
        self._size += size


@functools.lru_cache(maxsize=64)
def pattern_problem(expression: str) -> str:
    """Why an expression is none that is taken; "" if it is one. Its automaton is not made: many may stand in a file."""
    try:
        _parsed(expression)
    except PatternError as error:
        return str(error)
    return ""
