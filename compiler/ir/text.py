"""The text form of IR modules. `print_module` and `parse_module` are exact inverses.

    data List[a] = Nil | Cons(a, List[a])

    const c0 float32[64, 3, 7, 7] = base64 {
    …
    }

    func @length(xs: List[a]) -> int64[] {
      count: int64[] = match xs {
        Nil() => {
          int64(0)
        }
        Cons(_, rest: List[a]) => {
          call: int64[] = @length(rest)
          add: int64[] = add(call, int64(1))
          add
        }
      }
      count
    }

    func @main(x: float32[n, 4]) -> float32[n] {
      sum: float32[n] = sum(x) {axes=(1,)}  from "ReduceSum_3"
      sum
    }

A block is bindings, then the atom that is its value. Types on variables may be left out where inference finds them. Other
expressions than an operator's call: `@f(x)`, `call f(x)` of a function value, `(x, y)`, `t[0]`, `List::Cons(x, xs)`,
`fn(x: float32[]) { … }`, `closure @f(x)`, `if c { … } else { … }`, `loop (i: int64[] = x, …) while { … } do { … }`,
`match_shape x [n, 4]`, `prim p0(x)` of a primitive that the module defines like assembly does, `import log(x)` of a function
that it imports (`import log: fn(float32[n]) -> ()`, as in assembly). Names that are not words, or
words of the language, are quoted. A word in place of a type is a type variable, unless the text has a data type of that name.
Comments start with #.
"""

from .parser import parse_data_type, parse_module, parse_type
from .printer import print_module

__all__ = ["parse_data_type", "parse_module", "parse_type", "print_module"]
