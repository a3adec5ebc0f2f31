"""A library of generic data types and functions in the IR, for programs to start from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .. import ir

TEXT = """
data List[a] = Nil | Cons(a, List[a])

data Option[a] = None | Some(a)

# the first element; fails for the empty list
func @head(xs: List[a]) -> a {
  chosen = match xs { Cons(first, _) => { first } }
  chosen
}

# all but the first element; fails for the empty list
func @tail(xs: List[a]) -> List[a] {
  chosen = match xs { Cons(_, rest) => { rest } }
  chosen
}

# element number `index`; fails behind the end
func @nth(xs: List[a], index: int64[]) -> a {
  zero = equal(index, int64(0))
  chosen = if zero {
    first = @head(xs)
    first
  } else {
    rest = @tail(xs)
    before = subtract(index, int64(1))
    found = @nth(rest, before)
    found
  }
  chosen
}

# the list with `value` as element number `index`
func @update(xs: List[a], index: int64[], value: a) -> List[a] {
  zero = equal(index, int64(0))
  rest = @tail(xs)
  chosen = if zero {
    changed = List::Cons(value, rest)
    changed
  } else {
    first = @head(xs)
    before = subtract(index, int64(1))
    others = @update(rest, before, value)
    changed = List::Cons(first, others)
    changed
  }
  chosen
}

func @length(xs: List[a]) -> int64[] {
  chosen = match xs {
    Nil() => { int64(0) }
    Cons(_, rest) => {
      others = @length(rest)
      count = add(others, int64(1))
      count
    }
  }
  chosen
}

func @map(f: fn(a) -> b, xs: List[a]) -> List[b] {
  chosen = match xs {
    Nil() => {
      empty = List::Nil()
      empty
    }
    Cons(first, rest) => {
      changed = call f(first)
      others = @map(f, rest)
      list = List::Cons(changed, others)
      list
    }
  }
  chosen
}

# f(… f(f(start, x0), x1) …, xn)
func @foldl(f: fn(b, a) -> b, start: b, xs: List[a]) -> b {
  chosen = match xs {
    Nil() => { start }
    Cons(first, rest) => {
      next = call f(start, first)
      folded = @foldl(f, next, rest)
      folded
    }
  }
  chosen
}

# f(x0, f(x1, … f(xn, start) …))
func @foldr(f: fn(a, b) -> b, start: b, xs: List[a]) -> b {
  chosen = match xs {
    Nil() => { start }
    Cons(first, rest) => {
      folded = @foldr(f, start, rest)
      last = call f(first, folded)
      last
    }
  }
  chosen
}

func @filter(keep: fn(a) -> bool[], xs: List[a]) -> List[a] {
  chosen = match xs {
    Nil() => { xs }
    Cons(first, rest) => {
      others = @filter(keep, rest)
      kept = call keep(first)
      list = if kept {
        longer = List::Cons(first, others)
        longer
      } else { others }
      list
    }
  }
  chosen
}

func @append(xs: List[a], ys: List[a]) -> List[a] {
  cons = fn(first: a, rest: List[a]) {
    list = List::Cons(first, rest)
    list
  }
  joined = @foldr(cons, ys, xs)
  joined
}

func @reverse(xs: List[a]) -> List[a] {
  empty = List::Nil()
  snoc = fn(list: List[a], first: a) {
    longer = List::Cons(first, list)
    longer
  }
  reversed = @foldl(snoc, empty, xs)
  reversed
}

func @zip(xs: List[a], ys: List[b]) -> List[(a, b)] {
  pair = (xs, ys)
  chosen = match pair {
    (Cons(x, rest), Cons(y, others)) => {
      first = (x, y)
      pairs = @zip(rest, others)
      list = List::Cons(first, pairs)
      list
    }
    _ => {
      empty = List::Nil()
      empty
    }
  }
  chosen
}

func @compose(f: fn(b) -> c, g: fn(a) -> b) -> fn(a) -> c {
  both = fn(x: a) {
    inner = call g(x)
    outer = call f(inner)
    outer
  }
  both
}

# f applied `times` times
func @iterate(f: fn(a) -> a, times: int64[], x: a) -> a {
  done = less_equal(times, int64(0))
  chosen = if done { x } else {
    left = subtract(times, int64(1))
    next = call f(x)
    last = @iterate(f, left, next)
    last
  }
  chosen
}
"""


def prelude() -> ir.Module:
    """The library as a module, not typed yet."""
    from .text import parse_module

    return parse_module(TEXT)


def with_prelude(module: ir.Module) -> ir.Module:
    """The module with the library's data types, and those of its functions that are used; a name of its own goes first."""
    library = prelude()
    functions: Mapping[str, ir.Function] = {**library.functions, **module.functions}
    used = dict.fromkeys(module.functions)
    waiting = list(module.functions)
    while waiting:
        for name in called(functions[waiting.pop()].body):
            if name in functions and name not in used:
                used[name] = None
                waiting.append(name)
    return replace(
        module,
        functions={name: functions[name] for name in used},
        data_types={**library.data_types, **module.data_types},
    )


def called(block: ir.Block) -> Iterable[str]:
    """The global functions that a block refers to."""
    for expr in (*(binding.value for binding in block.bindings), block.result):
        yield from (atom.name for atom in ir.atoms_of(expr) if isinstance(atom, ir.GlobalRef))
        for inner in ir.blocks_of(expr):
            yield from called(inner)
