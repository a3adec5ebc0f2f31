"""Random programs that the verifier must accept and the machine must survive, as assembly.

Each function is a random walk: what the registers hold is tracked, and every step is an instruction, a branch or a loop that may
stand there. What a run may still meet (a wrong tag, a shape that does not match, a recursion without end) ends in an error or
a budget, never in anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

VECTOR, MATRIX, COUNT, FLAG, DYNAMIC = "float32[2]", "float32[2, 3]", "int64[]", "bool[]", "float32[?]"
TENSORS = (VECTOR, MATRIX, COUNT, FLAG)
PAIR, LIST, FUNCTION = f"({VECTOR}, {COUNT})", "List", f"fn({VECTOR}) -> {VECTOR}"
TYPES = (*TENSORS, DYNAMIC, PAIR, LIST, FUNCTION)

PRELUDE = """
data List = Nil | Cons(float32[2], List)
const vector float32[2] = [1.0, -2.0]
const matrix float32[2, 3] = [[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]]
const count int64[] = 3
const flag bool[] = true
import seen: fn(float32[?], (float32[2], int64[])) -> float32[2]
import same: fn(List) -> List
import counted: fn(float32[n], fn(float32[2]) -> float32[2]) -> (float32[2], int64[])
prim add_vector(%0: float32[2], %1: float32[2]) -> float32[2] {
  %2 = add(%0, %1) : float32[2]
  return %2
}
prim tanh_matrix(%0: float32[2, 3]) -> float32[2, 3] {
  %1 = tanh(%0) : float32[2, 3]
  return %1
}
prim add_count(%0: int64[], %1: int64[]) -> int64[] {
  %2 = add(%0, %1) : int64[]
  return %2
}
prim less_count(%0: int64[], %1: int64[]) -> bool[] {
  %2 = less(%0, %1) : bool[]
  return %2
}
prim relu_dynamic[n](%0: float32[n]) -> float32[n] {
  %1 = relu(%0) : float32[n]
  return %1
}
prim concat_dynamic[n, m](%0: float32[n], %1: float32[m]) -> float32[n + m] {
  %2 = concat(%0, %1) {axis=0} : float32[n + m]
  return %2
}
"""
CONSTANTS = {VECTOR: "vector", MATRIX: "matrix", COUNT: "count", FLAG: "flag"}
STATIC_PRIMITIVES = {
    "add_vector": ((VECTOR, VECTOR), VECTOR),
    "tanh_matrix": ((MATRIX,), MATRIX),
    "add_count": ((COUNT, COUNT), COUNT),
    "less_count": ((COUNT, COUNT), FLAG),
}
IMPORTS = {
    "seen": ((DYNAMIC, PAIR), VECTOR),
    "same": ((LIST,), LIST),
    "counted": ((DYNAMIC, FUNCTION), PAIR),
}
ARITHMETIC = ("add", "subtract", "multiply", "floor_divide", "remainder", "minimum", "maximum", "equal", "less")


class Signature:
    """A function's head."""

    def __init__(self, name: str, params: Sequence[str], result: str, captured: int) -> None:
        self.name, self.params, self.result, self.captured = name, params, result, captured

    def __str__(self) -> str:
        named = [f"p{i}: {type_}" for i, type_ in enumerate(self.params)]
        free = len(named) - self.captured
        captured = f" captures ({', '.join(named[free:])})" if self.captured else ""
        return f"@{self.name}({', '.join(named[:free])}){captured} -> {self.result}"


def random_program(random: Random, length: int = 20) -> str:
    """The assembly of a valid program whose "main" takes a vector and a count. The last function is captured by closures."""
    signatures = [Signature("main", (VECTOR, COUNT), random.choice(TYPES), 0)]
    for index in range(random.randrange(1, 4)):
        params = tuple(random.choice(TYPES) for _ in range(random.randrange(4)))
        signatures.append(Signature(f"f{index}", params, random.choice(TYPES), 0))
    signatures.append(Signature("closure", (VECTOR, random.choice((*TENSORS, DYNAMIC, PAIR, LIST))), VECTOR, 1))
    bodies = [_Body(random, signature, signatures, length).text() for signature in signatures]
    return PRELUDE + "\n".join(bodies)


class _Body:
    """Writes one function. `refs` is the type in each register that may be used; those of `frame` must not leave the frame,
    those of `kept` must stay as they are, for a loop's next round."""

    def __init__(self, random: Random, signature: Signature, functions: Sequence[Signature], length: int) -> None:
        self.random, self.signature, self.functions, self.length = random, signature, functions, length
        self.lines: list[str] = []
        self.refs = dict(enumerate(signature.params))
        self.frame: set[int] = set()
        self.kept: set[int] = set()
        self.ints: set[int] = set()
        self.next_ref, self.next_int, self.next_label, self.frame_bytes = len(signature.params), 0, 0, 0

    def text(self) -> str:
        self.steps(self.length, depth=0)
        result = self.find(self.signature.result)
        body = "\n".join(f"  {line}" for line in self.lines)
        return f"func {self.signature} {{\n{body}\n  ret r{result}\n}}\n"

    def steps(self, count: int, depth: int) -> None:
        for _ in range(self.random.randrange(count + 1)):
            if depth < 3 and self.random.random() < 0.15:
                self.random.choice((self.branch, self.loop))(count // 2, depth + 1)
            else:
                self.random.choice(_STEPS)(self)

    def emit(self, line: str) -> None:
        self.lines.append(line)

    # ---- registers ----

    def new(self, type_: str) -> int:
        register, self.next_ref = self.next_ref, self.next_ref + 1
        self.refs[register] = type_
        return register

    def new_int(self) -> int:
        number, self.next_int = self.next_int, self.next_int + 1
        return number

    def find(self, type_: str, in_frame: bool = False) -> int:
        """A register that holds a value of the type; one in frame memory only if the use allows it."""
        usable = [r for r, held in self.refs.items() if held == type_ and (in_frame or r not in self.frame)]
        return self.random.choice(usable) if usable else self.make(type_)

    def integer(self) -> str:
        if not self.ints or self.random.random() < 0.3:
            return str(self.random.randrange(6))
        return f"i{self.random.choice(sorted(self.ints))}"

    def make(self, type_: str) -> int:
        """A new value of any type."""
        if type_ in CONSTANTS:
            line = f"load_const r{{}}, {CONSTANTS[type_]}"
        elif type_ == DYNAMIC:
            line = f"reshape r{{}}, r{self.find(VECTOR)} [2]"
        elif type_ == PAIR:
            line = f"alloc_data r{{}}, {PAIR}, 0 (r{self.find(VECTOR)}, r{self.find(COUNT)})"
        elif type_ == LIST:
            line = "alloc_data r{}, List, 0 ()"
        else:
            line = f"alloc_closure r{{}}, @closure (r{self.find(self.functions[-1].params[1])})"
        register = self.new(type_)
        self.emit(line.format(register))
        return register

    # ---- control ----

    def branch(self, count: int, depth: int) -> None:
        """Afterwards, what both sides have is known."""
        label, self.next_label = self.next_label, self.next_label + 1
        self.emit(f"if r{self.find(FLAG, in_frame=True)}, else{label}")
        refs, ints, frame = dict(self.refs), set(self.ints), set(self.frame)
        self.steps(count, depth)
        self.emit(f"goto end{label}")
        self.emit(f"else{label}:")
        first = self.refs, self.ints, self.frame
        self.refs, self.ints, self.frame = refs, ints, frame
        self.steps(count, depth)
        self.emit(f"end{label}:")
        self.meet(*first)

    def loop(self, count: int, depth: int) -> None:
        """A few rounds. The body leaves what was there before as it is, and what it makes is gone afterwards."""
        label, self.next_label = self.next_label, self.next_label + 1
        counter, more = self.new_int(), self.new_int()
        self.emit(f"load_int i{counter}, 0")
        self.emit(f"again{label}:")
        self.emit(f"less i{more}, i{counter}, {self.random.randrange(5)}")
        self.emit(f"if_int i{more}, end{label}")
        before, kept = (dict(self.refs), set(self.ints), set(self.frame)), self.kept
        self.kept = self.kept | self.refs.keys()
        self.steps(count, depth)
        self.kept = kept
        self.emit(f"add i{counter}, i{counter}, 1")
        self.emit(f"goto again{label}")
        self.emit(f"end{label}:")
        self.meet(*before)

    def meet(self, refs: dict[int, str], ints: set[int], frame: set[int]) -> None:
        self.refs = {register: held for register, held in self.refs.items() if refs.get(register) == held}
        self.ints &= ints
        self.frame |= frame

    # ---- steps ----

    def primitive(self) -> None:
        name, (params, result) = self.random.choice(list(STATIC_PRIMITIVES.items()))
        inputs = [self.find(param, in_frame=True) for param in params]
        output = self.new(result)
        if self.random.random() < 0.5:
            self.emit(f"alloc_tensor r{output}, {result}")
        else:
            self.emit(f"frame_tensor r{output}, {result}, {64 * self.random.randrange(4)}")
            self.frame.add(output)
        self.emit(f"call {name} ({', '.join(f'r{register}' for register in inputs)}) -> (r{output})")

    def dynamic(self) -> None:
        """A primitive on tensors whose size only the run knows; in storage, sometimes."""
        a, b = self.find(DYNAMIC, in_frame=True), self.find(DYNAMIC, in_frame=True)
        i, j, total, size = (self.new_int() for _ in range(4))
        output = self.new(DYNAMIC)
        self.emit(f"shape_of (i{i}), r{a}")
        self.emit(f"shape_of (i{j}), r{b}")
        self.emit(f"add i{total}, i{i}, i{j}")
        if self.random.random() < 0.3:
            self.emit(f"multiply i{size}, i{total}, {self.random.choice((3, *[4] * 15))}")
            storage = self.next_ref
            self.next_ref += 1
            self.emit(f"alloc_storage r{storage}, i{size}")
            self.emit(f"storage_tensor r{output}, r{storage}, {self.random.choice((64, *[0] * 15))}, float32[i{total}]")
        else:
            self.emit(f"alloc_dynamic r{output}, float32[i{total}]")
        self.emit(f"call concat_dynamic (r{a}, r{b}) -> (r{output}) [i{i}, i{j}]")
        self.emit(f"call relu_dynamic (r{output}) -> (r{output}) [i{total}]")
        self.ints |= {i, j, total}

    def cons(self) -> None:
        head, tail = self.find(VECTOR), self.find(LIST)
        self.emit(f"alloc_data r{self.new(LIST)}, List, 1 (r{head}, r{tail})")

    def take_apart(self) -> None:
        tag, index, list_ = self.new_int(), self.random.randrange(2), self.find(LIST)
        label, self.next_label = self.next_label, self.next_label + 1
        self.emit(f"get_tag i{tag}, r{list_}")
        self.ints.add(tag)
        if self.random.random() < 0.95:
            self.emit(f"if_int i{tag}, nil{label}")
            self.emit(f"get_field r{self.next_ref}, r{list_}, 1, {index}")
            self.next_ref += 1
            self.emit(f"nil{label}:")
        else:
            self.emit(f"get_field r{self.new((VECTOR, LIST)[index])}, r{list_}, 1, {index}")

    def field(self) -> None:
        index, pair = self.random.randrange(2), self.find(PAIR)
        self.emit(f"get_field r{self.new((VECTOR, COUNT)[index])}, r{pair}, 0, {index}")

    def invoke(self) -> None:
        own = self.functions.index(self.signature)
        callees = self.functions if self.random.random() < 0.05 else self.functions[own + 1 :]
        if not callees:
            return
        callee = self.random.choice(callees)
        arguments = [self.find(param) for param in callee.params]
        result = self.new(callee.result)
        self.emit(f"invoke r{result}, @{callee.name} ({', '.join(f'r{register}' for register in arguments)})")

    def invoke_closure(self) -> None:
        if self.signature.captured and self.random.random() < 0.95:
            return  # most closures here are of this function: it would never end
        closure, argument = self.find(FUNCTION), self.find(VECTOR)
        self.emit(f"invoke_closure r{self.new(VECTOR)}, r{closure} (r{argument})")

    def imported(self) -> None:
        name = self.random.choice(list(IMPORTS))
        params, result = IMPORTS[name]
        arguments = [self.find(param) for param in params]
        self.emit(f"call_import r{self.new(result)}, {name} ({', '.join(f'r{register}' for register in arguments)})")

    def arithmetic(self) -> None:
        operands = f"{self.integer()}, {self.integer()}"
        number = self.new_int()
        self.emit(f"{self.random.choice(ARITHMETIC)} i{number}, {operands}")
        self.ints.add(number)

    def through_shape(self) -> None:
        """Integers to a tensor and back."""
        a, b, shape = self.new_int(), self.new_int(), self.next_ref
        self.next_ref += 1
        self.emit(f"make_shape r{shape} [{self.integer()}, {self.integer()}]")
        self.emit(f"read_shape (i{a}, i{b}), r{shape}")
        self.ints |= {a, b}

    def prove(self) -> None:
        tensor, number = self.find(DYNAMIC, in_frame=True), self.new_int()
        self.emit(f"shape_of (i{number}), r{tensor}")
        self.ints.add(number)
        self.emit(f"match_shape r{tensor} [{self.integer() if self.random.random() < 0.05 else f'i{number}'}]")

    def view(self) -> None:
        matrix = self.find(MATRIX, in_frame=True)
        view = self.new(MATRIX)
        self.emit(f"reshape r{view}, r{matrix} [2, 3]")
        if matrix in self.frame:
            self.frame.add(view)

    def copy(self) -> None:
        type_ = self.random.choice(TENSORS)
        source = self.find(type_, in_frame=True)
        self.emit(f"device_copy r{self.new(type_)}, r{source}, 0")

    def move(self) -> None:
        """To a new register, or over an old one."""
        type_ = self.random.choice(TYPES)
        source = self.find(type_, in_frame=True)
        old = [register for register in self.refs if register not in self.kept]
        target = self.random.choice(old) if old and self.random.random() < 0.5 else self.new(type_)
        self.emit(f"move r{target}, r{source}")
        self.refs[target] = type_
        self.frame = self.frame | {target} if source in self.frame else self.frame - {target}

    def kill(self) -> None:
        old = [register for register in self.refs if register not in self.kept]
        killed = self.random.sample(old, min(len(old), self.random.randrange(3)))
        for register in killed:
            del self.refs[register]
        self.emit(f"kill ({', '.join(f'r{register}' for register in killed)})")


_STEPS: Sequence[Callable[[_Body], None]] = (
    _Body.primitive,
    _Body.primitive,
    _Body.dynamic,
    _Body.cons,
    _Body.cons,
    _Body.take_apart,
    _Body.field,
    _Body.invoke,
    _Body.invoke_closure,
    _Body.imported,
    _Body.arithmetic,
    _Body.through_shape,
    _Body.prove,
    _Body.view,
    _Body.copy,
    _Body.move,
    _Body.kill,
)
