"""Small files that attack their loader: each tries one way to make few bytes a lot of work.

They are well-formed as far as they can be, so that the work is reached: results have the types that inference gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgpack
import numpy as np
from treadle.compiler.operators.table import lookup
from treadle.formats import container, dims
from treadle.formats.dtypes import DType
from treadle.formats.executable import Executable
from treadle.formats.isa import BY_NAME
from treadle.formats.messages.errors import InferenceError
from treadle.formats.primitive import Primitive, PrimitiveDefinition, PrimitiveNode
from treadle.formats.program import Import, Program
from treadle.formats.schema import REQUIRED
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.types import FunctionType, TensorType, TupleType, tensor

BIG, BIGGER = 1 << 40, 1 << 62
MAKERS: dict[str, Callable[[], bytes]] = {}

SEEN = Import("f", FunctionType((), TupleType(())))
EMPTY = parse_assembly("func @main(x: float32[2]) -> float32[2] { ret r0 }")


def files() -> Mapping[str, bytes]:
    return {name: make() for name, make in MAKERS.items()}


def hostile(name: str) -> Callable[[Callable[[], bytes]], Callable[[], bytes]]:
    def register(make: Callable[[], bytes]) -> Callable[[], bytes]:
        MAKERS[name] = make
        return make

    return register


# ---- files of given sections ----


def raw(program: Program = EMPTY, **sections: bytes) -> bytes:
    """The file of a program, some of whose sections have other bytes."""
    opened = container.Container(Executable(program).as_bytes(), frozenset(REQUIRED))
    contents = {name: [sections.get(name, bytes(view))] for name, view in opened.contents.items()}
    return b"".join(container.layout(contents, REQUIRED))


def scalars(*values: object) -> bytes:
    return b"".join(msgpack.packb(value, use_bin_type=True) for value in values)


def with_definitions(*definitions: PrimitiveDefinition) -> bytes:
    """A file with a kernel to build for each definition: after its end, the function calls them all."""
    primitives = tuple(Primitive(f"p{i}", definition) for i, definition in enumerate(definitions))
    ret, call = BY_NAME["ret"].opcode, BY_NAME["call"].opcode
    words = [ret, 0, *(word for index in range(len(definitions)) for word in (call, index, 0, 0, 0)), ret, 0]
    code = np.array(words, np.int64)
    code.flags.writeable = False
    main = replace(EMPTY.functions[0], length=len(words))
    return Executable(replace(EMPTY, functions=(main,), primitives=primitives, code=code)).as_bytes()


def one(operator: str, *params: TensorType, **attributes: object) -> PrimitiveDefinition:
    return chain([(operator, attributes)], *params)


def chain(nodes: list[tuple[str, dict]], *params: TensorType) -> PrimitiveDefinition:
    """Operators one after the other, the first of which takes the parameters."""
    values, made = list(params), []
    inputs = tuple(range(len(params)))
    for operator, attributes in nodes:
        given = tuple(sorted(attributes.items()))
        try:
            results = lookup(operator).result_types([values[i] for i in inputs], given)
        except InferenceError:
            results = (tensor("float32", (1,)),)  # what is refused by inference now may pass a worse one
        made.append(PrimitiveNode(operator, inputs, results, given))
        values += results
        inputs = (len(values) - 1,)
    variables = PrimitiveDefinition.variables_of(
        tuple(values), tuple(value for node in made for _, value in node.attributes)
    )
    return PrimitiveDefinition(params, tuple(made), (len(values) - 1,), variables)


def f32(*shape: object) -> TensorType:
    return tensor("float32", shape)


# ---- tables ----


@hostile("types of nothing but types")
def _() -> bytes:
    return raw(types=scalars(4000) + scalars(2, 0) * 4000)


@hostile("types that nest as deeply as may be")
def _() -> bytes:
    return raw(types=scalars(60) + (scalars(2, 1) * 63 + scalars(2, 0)) * 60)


@hostile("a list that says it has many elements")
def _() -> bytes:
    return raw(types=scalars(1 << 20) + scalars(2, 10_000))


@hostile("dimensions whose product has a million terms")
def _() -> bytes:
    text = "*".join(f"({' + '.join(f'{x}{i}' for i in range(18))})" for x in "abcdefgh")
    one_type = scalars(3, 1, 1, DType.float32.code, 1, text, 1, DType.float32.code, 0)
    return raw(signatures=scalars(7) + one_type[1:] * 7)


def imports(*params: bytes) -> bytes:
    """A file that imports a function of these parameters."""
    return raw(replace(EMPTY, imports=(SEEN,)), imports=scalars(1, "f", len(params)) + b"".join(params) + scalars(2, 0))


@hostile("an import whose dimensions are equations for each other")
def _() -> bytes:
    return imports(*(scalars(1, DType.bool.code, 1, f"v{i}*v{i} + v{i + 1}") for i in range(250, 0, -1)))


@hostile("an import of many sizes")
def _() -> bytes:
    return imports(*(scalars(1, DType.bool.code, 1, f"v{i}") for i in range(480)))


@hostile("imports of nothing")
def _() -> bytes:
    return raw(
        replace(EMPTY, imports=(SEEN,)), imports=scalars(500) + b"".join(scalars(f"{i}", 0, 2, 0) for i in range(500))
    )


@hostile("dimensions that nest")
def _() -> bytes:
    text = "n"
    while len(text) < 400:
        text = f"min({text}, m{len(text)} // ({text}))"
    return raw(signatures=scalars(1, 1, 1, DType.float32.code, 1, text, 1, DType.float32.code, 0))


@hostile("embedded definitions of no bytes")
def _() -> bytes:
    return raw(
        primitives=scalars(3000) + b"".join(scalars(str(i)) for i in range(1500)),
        definitions=scalars(3000) + scalars(b"", 0) * 3000,
    )


@hostile("a node of ten thousand results")
def _() -> bytes:
    node = scalars("relu", 0, 3000) + scalars(DType.bool.code, 0) * 3000 + scalars(0)
    definition = scalars(0, 1) + node + scalars(1, 0, 0)
    return raw(primitives=scalars(1, "p"), definitions=scalars(1, definition, 1, ""))


@hostile("more nodes than a kernel may have")
def _() -> bytes:
    float32 = scalars(DType.float32.code, 0)
    nodes = b"".join(scalars("neg", 1, i, 1) + float32 + scalars(0) for i in range(900))
    definition = scalars(1) + float32 + scalars(900) + nodes + scalars(1, 900, 0)
    return raw(primitives=scalars(1, "p"), definitions=scalars(1, definition, 900) + scalars("") * 900)


# ---- code ----


def function(body: str, refs: int = 400, ints: int = 64) -> bytes:
    head = f"func @main(c: bool[], x: float32[2]) -> float32[2] refs={refs} ints={ints} frame=64 {{"
    return Executable(parse_assembly(f"{head}\n{body}\nret r1\n}}")).as_bytes()


@hostile("many registers, live across many jumps")
def _() -> bytes:
    moves = "\n".join(f"move r{i}, r1" for i in range(2, 170))
    return function(moves + "\n" + "\n".join(f"l{i}:\nif r0, l{i * 7 % 110}" for i in range(110)))


@hostile("many tensors that nothing writes, across many jumps")
def _() -> bytes:
    return function(
        "\n".join(f"l{i}:\nalloc_tensor r{2 + i % 30}, float32[2]\nif r0, l{i * 13 % 180}" for i in range(180))
    )


@hostile("loops in loops")
def _() -> bytes:
    heads = "\n".join(f"l{i}:\nalloc_tensor r{i + 2}, float32[2]\nmove r{i + 100}, r{i + 2}" for i in range(90))
    return function(heads + "\n" + "\n".join(f"if r0, l{i}" for i in reversed(range(90))))


@hostile("polynomials that grow")
def _() -> bytes:
    shape, registers = ", ".join(["?"] * 24), ", ".join(f"i{i}" for i in range(24))
    steps = [f"{op} i{24 + i % 40}, i{i * 5 % 64 if i > 64 else i % 24}, i{i * 11 % 64 if i > 64 else (i + 1) % 24}"
             for i in range(130) for op in ("multiply", "add")]  # fmt: skip
    head = f"func @main(x: int8[{shape}]) -> int8[{shape}] ints=64 {{\nshape_of ({registers}), r0\n"
    return Executable(parse_assembly(head + "\n".join(steps) + "\nret r0\n}")).as_bytes()


@hostile("many functions")
def _() -> bytes:
    text = "\n".join(f"func @f{i}(x: float32[2]) -> float32[2] refs=1000000 {{ ret r0 }}" for i in range(200))
    return Executable(parse_assembly(text)).as_bytes()


# ---- definitions ----


def definitions(name: str, *made: Callable[[], PrimitiveDefinition]) -> None:
    """A file for each definition: those after one that is refused would not be looked at."""
    for number, make in enumerate(made):
        MAKERS[f"{name}, {number}"] = lambda make=make: with_definitions(make())


IMAGE, WEIGHTS = f32(1, 2, 8, 8, 16), f32(2, 2, 3, 3, 16, 16)
DEEP = f32(2, 1, 3, 3, 16)
SUM = " + ".join(f"v{i}" for i in range(40))

definitions(
    "strides of a convolution",
    *(lambda s=s: one("conv_blocked", f32(1, 2, s, s, 16), WEIGHTS, channels=32, strides=(s, s), pads=(2, 2, 2, 2))
      for s in (1 << 20, 1 << 22)),
    *(lambda s=s: one("conv_planar", f32(1, 2, 9, 9), f32(2, 2, 3, 3, 16), strides=(s, s)) for s in (1 << 30, BIG, BIGGER)),
    *(lambda s=s: one("conv", f32(1, 2, 9, 9), f32(2, 2, 3, 3), strides=(s, s), pads=(s,) * 4) for s in (1 << 20, BIG, BIGGER)),
)  # fmt: skip
definitions(
    "dilations of a convolution",
    *(lambda d=d: one("conv_blocked", IMAGE, WEIGHTS, channels=32, dilations=(d, d), pads=(d, d, d, d)) for d in (1 << 20, BIG)),
    *(lambda d=d: one("conv_depthwise", IMAGE, DEEP, dilations=(d, d), pads=(d, d, d, d)) for d in (1 << 20, BIG)),
    lambda: one("conv_depthwise", IMAGE, DEEP, strides=(1, BIGGER), pads=(BIG, BIG, BIG, BIG)),
)  # fmt: skip
definitions(
    "windows of a convolution",
    *(
        lambda w=w: one("conv_blocked", f32(1, 1, 1, w, 16), f32(1, 1, 1, w, 16, 16), channels=16)
        for w in (1 << 20, 1 << 30)
    ),
    *(lambda w=w: one("conv_depthwise", f32(1, 1, 1, w, 16), f32(1, 1, 1, w, 16)) for w in (1 << 20, 1 << 30)),
    *(lambda w=w: one("conv_planar", f32(1, 1, 1, w), f32(1, 1, 1, w, 16)) for w in (1 << 20, 1 << 30)),
)
definitions(
    "groups of few channels, 2^36 of them",
    lambda: one(
        "conv_blocked", f32(1, 1 << 32, 3, 16), f32(3 << 32, 2, 1, 16, 16), groups=1 << 36, channels=1, outputs=3
    ),
    lambda: one("pack_conv_weights", f32(3 << 36, 1, 1), groups=1 << 36),
    lambda: one("pack_conv_weights", f32(1 << 36, 1, 1), groups=1 << 36),
)
definitions(
    "windows that pool",
    *(
        lambda k=k, how=how: one(f"{how}_pool", f32(1, 2, k, k), kernel=(k, k))
        for k in (1 << 10, 1 << 20)
        for how in ("max", "average")
    ),
    *(lambda s=s: one("max_pool", f32(1, 2, 9, 9), kernel=(3, 3), strides=(s, s)) for s in (1 << 20, BIG, BIGGER)),
)
definitions(
    "windows laid over each other",
    *(
        lambda s=s: one("col2im", f32(1, 8, 5, 5), shape=(6, 6), kernel=(2, 2), strides=(1, s))
        for s in (1 << 16, 1 << 20, BIG, BIGGER)
    ),
    lambda: one("col2im", f32(1, 1 << 20, 1, 1), shape=(1, 1 << 20), kernel=(1, 1 << 20)),
)
definitions(
    "axes by the thousand",
    *(lambda n=n: one("pack_vector", f32(16), axes=n) for n in (30, 33, 1 << 20, BIG)),
    lambda: one("permute_dims", f32(*range(2, 10), *[1] * 24), axes=tuple(reversed(range(32)))),
    lambda: one("tile", f32(*[1] * 32), repeats=(3,) * 29 + (1,) * 3),
    lambda: one("broadcast_to", f32(), shape=(2,) * 32),
    lambda: one("pad", f32(*[1] * 32), pads=(1,) * 64),
    lambda: one("sum", f32(*[2] * 32), axes=tuple(range(0, 32, 2))),
)
definitions(
    "sums of forty sizes",
    lambda: one("add", f32(SUM, SUM, SUM), f32(SUM, SUM, SUM)),
    lambda: one("matmul", f32(SUM, SUM, SUM), f32(SUM, SUM, SUM)),
    lambda: one("softmax", f32(SUM, SUM, SUM, SUM)),
    lambda: one("permute_dims", f32(SUM, SUM, SUM), axes=(2, 0, 1)),
)
definitions("products of forty sizes", lambda: one("add", f32("*".join(f"v{i}" for i in range(32)), "n"), f32(1, "n")))
definitions(
    "powers of a sum", lambda: chain([("tile", {"repeats": (dims.parse("n*n*n*n*n*n*n*n + m"),)})] * 60, f32(SUM))
)
definitions("numbers of results", *(lambda k=k: one("top_k", f32(4, k), k=k) for k in (1 << 20, 1 << 30, 1 << 40)))
definitions(
    "parts of a tensor",
    lambda: one("split", f32(2000), axis=0, sizes=(1,) * 2000),
    lambda: one("concat", *[f32(1)] * 2000, axis=0),
)
definitions(
    "steps, scales and sizes",
    lambda: one("slice", f32(1 << 40), starts=(0,), stops=(BIGGER,), steps=(BIG,)),
    lambda: one("resize", f32(1, 1, 4, 4), axis=3, size=BIG, mode="linear"),
    lambda: one("arange", start=0, stop=BIGGER, step=1),
    lambda: one("full", shape=(BIG, 4)),
    lambda: one("attention", f32(1 << 20, 4, 1 << 20), f32(1 << 20, 4, 1 << 20), f32(1 << 20, 4, 1 << 20)),
    lambda: one("matmul_packed", f32(3, 1 << 30), f32(1 << 10, 1 << 30, 16), columns=1 << 14),
)
for _operator in ("exp", "erf", "tanh"):
    definitions(f"two hundred times {_operator}", lambda op=_operator: chain([(op, {})] * 200, f32(64)))
