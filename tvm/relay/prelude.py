"""Relay's library of generic functions on lists, options and trees, under TVM's names, in Treadle's text."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...compiler import ir

if TYPE_CHECKING:
    from .module import IRModule

TEXT = """
data List[a] = Cons(a, List[a]) | Nil

data Option[a] = Some(a) | None

data Tree[a] = Rose(a, List[Tree[a]])

func @id(x: a) -> a { x }

func @compose(f: fn(b) -> c, g: fn(a) -> b) -> fn(a) -> c {
  both = fn(x: a) {
    inner = call g(x)
    outer = call f(inner)
    outer
  }
  both
}

func @flip(f: fn(a, b) -> c) -> fn(b, a) -> c {
  turned = fn(y: b, x: a) {
    result = call f(x, y)
    result
  }
  turned
}

func @hd(xs: List[a]) -> a {
  chosen = match xs { Cons(first, _) => { first } }
  chosen
}

func @tl(xs: List[a]) -> List[a] {
  chosen = match xs { Cons(_, rest) => { rest } }
  chosen
}

func @nth(xs: List[a], n: int32[]) -> a {
  zero = equal(n, int32(0))
  chosen = if zero {
    first = @hd(xs)
    first
  } else {
    rest = @tl(xs)
    before = subtract(n, int32(1))
    found = @nth(rest, before)
    found
  }
  chosen
}

func @length(xs: List[a]) -> int32[] {
  chosen = match xs {
    Cons(_, rest) => {
      others = @length(rest)
      count = add(others, int32(1))
      count
    }
    Nil() => { int32(0) }
  }
  chosen
}

func @update(xs: List[a], n: int32[], v: a) -> List[a] {
  zero = equal(n, int32(0))
  rest = @tl(xs)
  chosen = if zero {
    changed = List::Cons(v, rest)
    changed
  } else {
    first = @hd(xs)
    before = subtract(n, int32(1))
    others = @update(rest, before, v)
    changed = List::Cons(first, others)
    changed
  }
  chosen
}

func @map(f: fn(a) -> b, xs: List[a]) -> List[b] {
  chosen = match xs {
    Cons(first, rest) => {
      changed = call f(first)
      others = @map(f, rest)
      list = List::Cons(changed, others)
      list
    }
    Nil() => {
      empty = List::Nil()
      empty
    }
  }
  chosen
}

func @foldl(f: fn(a, b) -> a, acc: a, xs: List[b]) -> a {
  chosen = match xs {
    Cons(first, rest) => {
      next = call f(acc, first)
      folded = @foldl(f, next, rest)
      folded
    }
    Nil() => { acc }
  }
  chosen
}

func @foldr(f: fn(a, b) -> b, acc: b, xs: List[a]) -> b {
  chosen = match xs {
    Cons(first, rest) => {
      folded = @foldr(f, acc, rest)
      last = call f(first, folded)
      last
    }
    Nil() => { acc }
  }
  chosen
}

# of a list that is not empty, its last element the start
func @foldr1(f: fn(a, a) -> a, xs: List[a]) -> a {
  chosen = match xs {
    Cons(only, Nil()) => { only }
    Cons(first, rest) => {
      folded = @foldr1(f, rest)
      last = call f(first, folded)
      last
    }
  }
  chosen
}

func @sum(xs: List[int32[]]) -> int32[] {
  plus = fn(x: int32[], y: int32[]) {
    both = add(x, y)
    both
  }
  total = @foldl(plus, int32(0), xs)
  total
}

func @concat(xs: List[a], ys: List[a]) -> List[a] {
  cons = fn(first: a, rest: List[a]) {
    list = List::Cons(first, rest)
    list
  }
  joined = @foldr(cons, ys, xs)
  joined
}

func @filter(f: fn(a) -> bool[], xs: List[a]) -> List[a] {
  chosen = match xs {
    Cons(first, rest) => {
      others = @filter(f, rest)
      kept = call f(first)
      list = if kept {
        longer = List::Cons(first, others)
        longer
      } else { others }
      list
    }
    Nil() => { xs }
  }
  chosen
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

func @rev(xs: List[a]) -> List[a] {
  empty = List::Nil()
  snoc = fn(list: List[a], first: a) {
    longer = List::Cons(first, list)
    longer
  }
  reversed = @foldl(snoc, empty, xs)
  reversed
}

# from the end: each step hands on the first of what f gives, and the second is in the list
func @map_accumr(f: fn(a, b) -> (a, c), init: a, xs: List[b]) -> (a, List[c]) {
  chosen = match xs {
    Cons(first, rest) => {
      later = @map_accumr(f, init, rest)
      state = later[0]
      list = later[1]
      step = call f(state, first)
      last = step[0]
      made = step[1]
      longer = List::Cons(made, list)
      both = (last, longer)
      both
    }
    Nil() => {
      empty = List::Nil()
      both = (init, empty)
      both
    }
  }
  chosen
}

# from the beginning; each element is put in front of those before it, so that the list comes out in reverse
func @map_accuml(f: fn(a, b) -> (a, c), init: a, xs: List[b]) -> (a, List[c]) {
  update = fn(both: (a, List[c]), x: b) {
    state = both[0]
    list = both[1]
    step = call f(state, x)
    last = step[0]
    made = step[1]
    longer = List::Cons(made, list)
    next = (last, longer)
    next
  }
  empty = List::Nil()
  start = (init, empty)
  result = @foldl(update, start, xs)
  result
}

func @unfoldr(f: fn(a) -> Option[(a, b)], seed: a) -> List[b] {
  step = call f(seed)
  chosen = match step {
    Some((next, value)) => {
      rest = @unfoldr(f, next)
      list = List::Cons(value, rest)
      list
    }
    None() => {
      empty = List::Nil()
      empty
    }
  }
  chosen
}

func @unfoldl(f: fn(a) -> Option[(a, b)], seed: a) -> List[b] {
  list = @unfoldr(f, seed)
  turned = @rev(list)
  turned
}

func @tmap(f: fn(a) -> b, t: Tree[a]) -> Tree[b] {
  chosen = match t {
    Rose(value, trees) => {
      changed = call f(value)
      each = fn(tree: Tree[a]) {
        inner = @tmap(f, tree)
        inner
      }
      others = @map(each, trees)
      tree = Tree::Rose(changed, others)
      tree
    }
  }
  chosen
}

func @size(t: Tree[a]) -> int32[] {
  chosen = match t {
    Rose(_, trees) => {
      each = fn(tree: Tree[a]) {
        count = @size(tree)
        count
      }
      counts = @map(each, trees)
      total = @sum(counts)
      all = add(total, int32(1))
      all
    }
  }
  chosen
}

func @iterate(f: fn(a) -> a, n: int32[]) -> fn(a) -> a {
  zero = equal(n, int32(0))
  chosen = if zero {
    same = fn(x: a) { x }
    same
  } else {
    left = subtract(n, int32(1))
    fewer = @iterate(f, left)
    all = @compose(f, fewer)
    all
  }
  chosen
}
"""


@functools.cache
def library() -> ir.Module:
    """The library, not typed yet."""
    from ...compiler.ir.text import parse_module

    return parse_module(TEXT)


class Prelude:
    """Puts the library into a module; each function is an attribute, a global variable."""

    def __init__(self, mod: IRModule | None = None) -> None:
        from .module import IRModule

        self.mod = IRModule() if mod is None else mod
        self.load_prelude()

    def load_prelude(self) -> None:
        self.mod.import_from_std("prelude.rly")
        for name in library().functions:
            setattr(self, name, self.mod.get_global_var(name))
        # the data types and their constructors have names too, as before 0.8
        self.l, self.cons, self.nil = self.mod.get_type("List")
        self.optional, self.some, self.none = self.mod.get_type("Option")
        self.tree, self.rose = self.mod.get_type("Tree")
