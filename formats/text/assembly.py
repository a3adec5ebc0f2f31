"""Assembly: the text form of whole programs. `print_assembly` and `parse_assembly` are exact inverses.

    meta "producer" = "treadle"
    data List[float32[2]] = Nil | Cons(float32[2], List[float32[2]])
    device gpu0 = "emulated x86-64-v4"
    const c0 float32[2] = [1.0, 2.0]
    import log: fn(float32[n]) -> ()
    prim add_0[n](%0: float32[n], %1: float32[n]) -> float32[n] {
      %2 = add(%0, %1) : float32[n]  from "Add_17"
      return %2
    }
    func @main(x: float32[2]) -> float32[2]  refs=3 ints=1 frame=0 {
      load_const r1, c0
      load_int i0, 3
    again:
      alloc_tensor r2, float32[2]
      call add_0 (r0, r1) -> (r2) [2]  from "Add_17"
      move r0, r2
      subtract i0, i0, 1
      if_int i0, done
      goto again
    done:
      ret r0
    }

`from` names the model node. What lies on a device has a type such as `float32[2]@gpu0`, and a primitive that is computed there
has `on gpu0` behind its results; where an instruction takes a device, 0 is the host. What can be derived may be left out:
register counts, frame size, a primitive's variables and results, the type table. Any word may name a constant or label.
Comments start with #.
"""

from .assembly_parser import naming_lines, parse_assembly
from .assembly_printer import print_assembly

__all__ = ["naming_lines", "parse_assembly", "print_assembly"]
