"""Relay's library of unary numbers, `nat.rly`, in Treadle's text: needs the prelude's lists."""

from __future__ import annotations

import functools

from ...compiler import ir

TEXT = """
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


@functools.cache
def library() -> ir.Module:
    """The library, not typed yet."""
    from ...compiler.ir.text import parse_module
    from . import prelude

    both = parse_module(prelude.TEXT + TEXT)
    own = [name for name in both.functions if name.startswith("nat_")]
    return ir.Module({name: both.functions[name] for name in own}, {"nat": both.data_types["nat"]})
