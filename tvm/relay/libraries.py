"""Relay's libraries of generic functions, under TVM's names, in Treadle's text: `prelude.rly` has those of lists, options and
trees, `nat.rly` those of unary numbers, and needs the former."""

from __future__ import annotations

import functools

from ...compiler import ir
from ...compiler.ir.text import parse_module

_PRELUDE = """
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

_NAT = """
data nat = zero | succ(nat)

func @nat_double(x: nat) -> nat {
  chosen = match x {
    zero() => {
      none = nat::zero()
      none
    }
    succ(y) => {
      twice = @nat_double(y)
      one = nat::succ(twice)
      two = nat::succ(one)
      two
    }
  }
  chosen
}

func @nat_add(x: nat, y: nat) -> nat {
  chosen = match x {
    zero() => { y }
    succ(z) => {
      rest = @nat_add(z, y)
      sum = nat::succ(rest)
      sum
    }
  }
  chosen
}

func @nat_nth(l: List[a], n: nat) -> a {
  chosen = match n {
    zero() => {
      first = @hd(l)
      first
    }
    succ(y) => {
      rest = @tl(l)
      found = @nat_nth(rest, y)
      found
    }
  }
  chosen
}

func @nat_update(list: List[a], index: nat, value: a) -> List[a] {
  rest = @tl(list)
  chosen = match index {
    zero() => {
      changed = List::Cons(value, rest)
      changed
    }
    succ(before) => {
      first = @hd(list)
      others = @nat_update(rest, before, value)
      changed = List::Cons(first, others)
      changed
    }
  }
  chosen
}

func @nat_iterate(f: fn(a) -> a, num: nat) -> fn(a) -> a {
  chosen = match num {
    zero() => {
      same = fn(x: a) { x }
      same
    }
    succ(y) => {
      fewer = @nat_iterate(f, y)
      all = @compose(f, fewer)
      all
    }
  }
  chosen
}
"""

# file → its text, behind that of the ones that it needs
LIBRARIES = {"prelude.rly": (_PRELUDE,), "nat.rly": (_PRELUDE, _NAT), "core.rly": ("",)}


@functools.cache
def library(file: str) -> ir.Module:
    """What a library defines itself, not typed yet."""
    *needed, own = (parse_module("".join(LIBRARIES[file][: count + 1])) for count in range(len(LIBRARIES[file])))
    known = {name for module in needed for name in (*module.functions, *module.data_types)}
    functions = {name: each for name, each in own.functions.items() if name not in known}
    return ir.Module(functions, {name: each for name, each in own.data_types.items() if name not in known})
