"""A program that does next to nothing but call: what an instruction costs, and what a trap adds, are measured by it."""


def dispatch_text(instructions: int) -> str:
    """A program of `instructions` calls of the smallest kernel: `add` of two float32."""
    calls = "".join(f"  call add (r0, r{1 + i % 2}) -> (r{2 - i % 2})\n" for i in range(instructions))
    return f"""\
prim add(%0: float32[], %1: float32[]) -> float32[] {{
  %2 = add(%0, %1) : float32[]
  return %2
}}

func @main(x: float32[]) -> float32[] {{
  frame_tensor r1, float32[], 0
  frame_tensor r2, float32[], 64
  alloc_tensor r3, float32[]
  call add (r0, r0) -> (r1)
{calls}  call add (r1, r0) -> (r3)
  ret r3
}}
"""
