"""Classes of attacks, by what they are after: ATTACKS has a function for each, which makes a random variant.

A variant is what is done, and what it may take. The judge (`fuzz/attacks.py`) wants a result or an error of Treadle's,
within time and memory, while other threads go on; `Broken` is what a variant says itself: a wrong number, another one's text.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import math
import tempfile
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from ..... import Executable, TreadleError, VirtualMachine, compile, dis, load
from .....compiler.ir.text import parse_module
from .....formats import strings
from .....formats.constants import constant_type
from .....formats.dtypes import DType
from .....formats.text.assembly import parse_assembly
from .....formats.types import TensorType
from .....formats.weight_table import NamedWeight, WeightTable, literal
from .changes import SIZES
from .host_operators import caches, host_memory, host_time
from .interrupts import interrupts
from .variants import COMPILING, MB, Broken, Variant, dropped, machine_of, texts_of, want

_HOSTILE = ("\x1b[2J", "\x9b1m", "\u202e", "\r", "\x07", "\x1b]0;x\x07", "\u200b", "\ufeff", "\x7f", "\x00")
_SECRET = "the secret of another caller"


# ---- A: memory, texts and files of others ----

_TYPES = ("uint8", "int8", "bool", "float32", "int64", "uint64", "float64", "float16")


def _array(random: Random, value: int) -> np.ndarray:
    shape = [random.choice((0, 1, 1, 2, 3, 8)) for _ in range(random.randrange(3))]
    return np.full(shape, value).astype(random.choice(_TYPES))


def _one_constant(array: np.ndarray, table: WeightTable) -> VirtualMachine:
    type_ = constant_type(array)
    values = np.zeros_like(array).tolist() if array.dtype.kind != "f" else np.zeros(array.shape, int).tolist()
    text = f"const c {type_} = {json.dumps(values)}\nfunc @main() -> {type_} {{\n  load_const r0, c\n  ret r0\n}}\n"
    program = replace(parse_assembly(text), constants=(array,))
    return VirtualMachine(load(Executable(program, weights=table).as_bytes()), kernels="cached")


def weights(random: Random) -> Variant:
    """Tables of weights of which one says another type, number or place than the other."""
    from .....formats.primitive import PrimitiveNode

    arrays = [_array(random, 1), _array(random, 2)]
    if random.random() < 0.5:
        arrays[1] = np.full_like(arrays[0], 2)
    given = _array(random, 3)

    def table(array: np.ndarray) -> WeightTable:
        said = constant_type(array if random.random() < 0.8 else random.choice((given, *arrays)))
        found = WeightTable((NamedWeight("w", said),), constants=((0, 0),))
        kind = random.randrange(6)
        if kind == 0:  # the constant is a literal
            other = array if random.random() < 0.7 else random.choice((given, *arrays))
            return replace(found, literals=(other,), constants=((0, 1),))
        if kind == 1:  # and what is made of the weight
            scalar = NamedWeight("w", replace(said, shape=()))
            node = PrimitiveNode("broadcast_to", (0,), (constant_type(array),), (("shape", array.shape),))
            return replace(found, weights=(scalar,), nodes=(node,), constants=((0, 1),))
        if kind == 2:
            return replace(found, constants=((random.randrange(-1, 3), random.randrange(-1, 3)),))
        if kind == 3:
            return replace(found, literals=(given, given))
        return found

    def act() -> None:
        machines = []
        for array in arrays:
            machine = _one_constant(array, table(array))
            machines.append((array, machine))
        (array, one), (_, other) = machines
        doors: list[Callable[[], object]] = [
            lambda: one.share_params(other),
            lambda: one.load_params({"w": given}),
            lambda: one.load_deltas({"w": given}),
        ]
        for do in random.sample(doors, 2):
            with contextlib.suppress(TreadleError):
                do()
            found = np.asarray(one["main"]())
            want(
                found.dtype == array.dtype and found.shape == array.shape,
                f"a constant became {found.dtype}{found.shape}",
            )
            want(
                set(found.reshape(-1).astype(np.float64).tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0, 5.0},
                f"other memory: {found}",
            )

    return Variant(act)


_NUMBER_TYPES = (
    "string", "String", "str", "string8", "handle", "uint64", "uint64x1", "custom[string]64", "object", "S8", "V8", "O", "T",
)  # fmt: skip


def numbers_as_texts(random: Random) -> Variant:
    """Numbers of texts in files and messages, under whatever type."""
    from ..... import load_params
    from .....compiler.onnx.tensors import to_array
    from .....rpc.values import Reader
    from .....tvm.files.graph_json import dtype_of
    from .....tvm.files.tensor_cache import load as load_cache
    from .....tvm.modules.containers import ShapeTuple
    from .....tvm.modules.registry import get_global_func
    from .....vm.tensor import Tensor

    held = strings.Texts()
    count = random.choice((1, 2, 3))
    numbers = np.array([held.number(_SECRET)] * count, np.uint64)
    dtype, folder = random.choice(_NUMBER_TYPES), _folder()

    def cache() -> Any:
        (folder / "shard.bin").write_bytes(numbers.tobytes())
        form = random.choice(("raw", "f32-to-bf16"))
        record = {"name": "w", "shape": [count], "dtype": dtype, "format": form, "byteOffset": 0, "nbytes": 8 * count}
        shard = {"dataPath": "shard.bin", "format": "raw-shard", "nbytes": 8 * count, "records": [record]}
        (folder / "ndarray-cache.json").write_text(json.dumps({"metadata": {}, "records": [shard]}))
        return load_cache(folder)[0]["w"]

    def tensor() -> Any:
        found = onnx.TensorProto(name="w", data_type=random.choice((8, 8, 0, 13, 99)), dims=[count])
        if random.random() < 0.5:
            found.raw_data = numbers.tobytes()
        else:
            (folder / "data").write_bytes(numbers.tobytes())
            found.data_location = onnx.TensorProto.EXTERNAL
            found.external_data.add(key="location", value="data")
        return to_array(found, folder)

    def npz() -> Any:
        np.savez(folder / "p.npz", w=numbers.view(np.dtype([(random.choice(("text", "number", "f0")), np.uint64)])))
        return load_params(folder / "p.npz")["w"]

    def storage() -> Any:
        alloc_storage: Any = get_global_func("vm.builtin.alloc_storage")
        alloc_tensor: Any = get_global_func("vm.builtin.alloc_tensor")
        return alloc_tensor(alloc_storage(None, ShapeTuple((8 * count,)), 0, "uint8"), 0, ShapeTuple((count,)), dtype)

    viewed: Any = random.choice((strings.ELEMENT, "string", dtype))
    kind = random.choice(("tensor", "numbers", "list"))
    values = numbers.tolist() if kind == "list" else [count]
    doors: dict[str, Callable[[], Any]] = {
        "cache": cache,
        "tensor": tensor,
        "npz": npz,
        "storage": storage,
        "literal": lambda: literal(TensorType(DType.string, (count,)), numbers.tobytes()),
        "message": lambda: Reader([[kind, dtype, values]], memoryview(numbers.tobytes()), lambda node: None).take(0),
        "graph": lambda: dtype_of(dtype),
        "view": lambda: Tensor(numbers).view((count,), viewed),
    }
    door = doors[random.choice(list(doors))]
    echo = _echo()

    def act() -> None:
        found = door()
        for given in (found, np.asarray(found) if not isinstance(found, (str, DType)) else found):
            try:
                made = echo["main"](given)
            except TreadleError:
                continue
            want(_SECRET not in str(made.numpy().tolist()), "another one's text")
        want(_SECRET not in str(found) and held is not None, "another one's text")

    return Variant(act)


@functools.cache
def _echo() -> VirtualMachine:
    return machine_of(parse_module("func @main(x: string[n]) {\n  y = concat_texts(x, x)\n  y\n}"))


@functools.cache
def _kept() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="treadle-attacks-")


def _folder() -> Path:
    return Path(_kept().name)


def registry(random: Random) -> Variant:
    """Files of TVM's that name what the process has registered, files and functions of others."""
    from .....tvm.files.relax_executable import save_relax_executable
    from .....tvm.files.relax_program import Call, Kind, Operand, RelaxFunction, RelaxProgram, Ret
    from .....tvm.modules.registry import contained_names, list_global_func_names

    tvm: Any = importlib.import_module(f"{__package__.rpartition('.tools')[0]}.tvm")
    reached: list[object] = []
    folder = _folder()
    tvm.register_func("attacks.canary", lambda *given: reached.append(given), override=True)
    tvm.get_global_func("runtime.ModuleLoadFromFile")  # registers TVM's own
    (folder / "canary.txt").write_text("a canary")
    names = list_global_func_names()
    others = (f"vm.builtin.{random.choice(_HOSTILE)}", "os.system", "builtins.eval")
    name = random.choice(
        ("attacks.canary", random.choice(names), *random.sample(sorted(contained_names()), 3), *others)
    )
    texts = (str(folder / "canary.txt"), str(folder), "float32")
    constants: list[Any] = [*texts, 3, -1, 1 << 62, np.ones(2, np.float32), (2, 3)]
    given = [random.choice(constants) for _ in range(random.randrange(4))]

    def by_relax() -> object:
        operands = [Operand(Kind.CONSTANT, place) for place in range(len(given))]
        code = (Call(1, tuple(operands), 0), Ret(0))
        program = RelaxProgram((RelaxFunction("main", (), code, 1), RelaxFunction(name)), tuple(given))
        save_relax_executable(program, folder / "model.ro")
        found = tvm.runtime.load_module(folder / "model.ro")
        if random.random() < 0.5:
            return found["main"]()
        return tvm.relax.VirtualMachine(found, tvm.cpu())["main"]()

    def by_graph() -> object:
        attributes = {"func_name": name, "num_inputs": "1", "num_outputs": "1", "flatten_data": "0"}
        nodes = [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "tvm_op", "name": "n", "attrs": attributes, "inputs": [[0, 0, 0]]},
        ]
        attrs = {
            "dltype": ["list_str", ["float32"] * 2],
            "shape": ["list_shape", [[4]] * 2],
            "storage_id": ["list_int", [0, 1]],
        }
        graph = {"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2], "attrs": attrs}
        module = tvm.contrib.graph_executor.create(json.dumps(graph), None, tvm.cpu())
        module.run(x=np.ones(4, np.float32))
        return module.get_output(0)

    def act() -> object:
        try:
            found = random.choice((by_relax, by_relax, by_graph))()
            return repr(found)[:200]
        finally:
            want(not reached, "a function of the process was called")

    return Variant(act)


def small_messages(random: Random) -> Variant:
    """Requests of at most a megabyte that ask for much."""
    from .....rpc.wire import Steps, pack, unpack

    number = lambda: random.choice((*SIZES, 1000, 65536, 20_000_000))  # noqa: E731
    shape = [abs(number()) % (1 << random.choice((4, 12, 26, 63))) for _ in range(random.randrange(5))]
    if random.random() < 0.5:
        shape.append(0)
    many = random.choice((1, 10, 20_000, 1_000_000))
    value: list[Any] = random.choice(
        (
            ["numbers", random.choice(_TYPES), shape],
            ["tensor", random.choice((*_TYPES, "string")), shape],
            ["alien", "x" * random.choice((1, 1000))],
            ["tuple", [0] * many],
            ["data", number(), "Cons", "List", [0] * many],
            ["list", [[]] * many],
            [random.choice(("text", "bytes", "closure", "held")), number()],
            [[]] * many,
        )
    )
    frame = pack(
        {
            "values": [value] * (random.choice((1, 1, 1000)) if many < 1000 else 1),
            "args": [number()] * random.choice((1, 1000)),
            "do": "call",
        }
    )

    def remote() -> None:
        from .....rpc.server.sessions import RemoteLimits, Session
        from .....rpc.server.work import Work
        from .....vm.budgets import CancelToken

        steps = Steps(1 << 18)
        header, data = unpack(frame, steps)
        Work(Session(RemoteLimits()), header, data, 1.0, CancelToken(), steps).arguments()

    parts = (
        "[]", "[", "{", '"', "0", "1e9,", "[0],", '{"a":1},', '"\\u00e9",', "\\", "]", "}", ",", " ", '"inputs":', "0,", '"x",',
    )  # fmt: skip
    times = (1, 1, 3, 50_000, 200_000)
    text = "".join(random.choice(parts) * random.choice(times) for _ in range(random.randrange(1, 9)))
    start = random.choice(('{"inputs":[', '{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[', "[", ""))
    body = (start + text)[: 4 * MB]

    def json_body() -> None:
        from .....serve.json_pieces import discard, loads

        discard(loads(body.encode()))

    return Variant(random.choice((remote, json_body)), seconds=4, memory=400 * MB)


# ---- sizes and names ----

_OPERATORS = (
    "ConstantOfShape", "Reshape", "Expand", "Tile", "Slice", "Unsqueeze", "Squeeze", "Range", "Pad", "Resize", "OneHot",
    "Trilu", "TopK", "Split", "Gather", "CumSum",
)  # fmt: skip


def shapes(random: Random) -> Variant:
    """Shapes whose product, or a part of it, no array can have."""
    shape = [random.choice((*SIZES, 0, 0, 1, 2, 1 << 46, (1 << 46) + 1)) for _ in range(random.randrange(1, 5))]
    values = [1] * (math.prod(shape) if 0 <= math.prod(shape) < 9 else random.choice((0, 1, 2)))
    dtype = random.choice((*_TYPES, "string"))
    as_text = ", ".join(map(str, shape))

    def assembly() -> object:
        text = f"const c {dtype}[{as_text}] = {values}\nfunc @main() -> {dtype}[{as_text}] {{\n  load_const r0, c\n  ret r0\n}}"
        return VirtualMachine(load(Executable(parse_assembly(text)).as_bytes()), kernels="cached")["main"]()

    def module() -> object:
        made = machine_of(
            parse_module(f"func @main(x: {dtype}[1]) {{\n  y = broadcast_to(x) {{shape=({as_text},)}}\n  y\n}}")
        )
        return made.call(
            "main", (np.zeros(1, dtype) if dtype != "string" else texts_of("a"),), max_memory=MB, max_seconds=1
        )

    operator = random.choice(_OPERATORS)

    def model() -> object:
        integers = helper.make_tensor_value_info("s", 7, random.choice((["k"], [len(shape)], [], None)))
        x = helper.make_tensor_value_info("x", 1, random.choice((["n"], [2], ["n", "m"])))
        counts = {"ConstantOfShape": 1, "Range": 3, "Slice": 3}
        inputs = [*(["x"] if operator not in ("ConstantOfShape", "Range") else []), *["s"] * counts.get(operator, 1)]
        node = helper.make_node(operator, inputs, ["y"])
        graph = helper.make_graph([node], "g", [integers, x], [onnx.ValueInfoProto(name="y")])
        machine = machine_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
        given = np.array(shape if random.random() < 0.7 else shape[0], np.int64)
        return machine.call(
            "main",
            (given, np.ones((2,) * len(x.type.tensor_type.shape.dim), np.float32)),
            max_memory=4 * MB,
            max_seconds=1,
        )

    do = random.choice((assembly, module, model, model))
    return Variant(dropped(do), seconds=20, pause=COMPILING)


_ODD = (
    "", " ", '"', "'", "\\", "\n", "{}", "%s", "?", "0", "-1", "None", "min", "n + 1", "n*", "é", "名", "²", "٣", "_", "a.b",
)  # fmt: skip


def _name(random: Random) -> str:
    """Of all of Unicode, or what a terminal would obey."""
    kind = random.randrange(6)
    if kind == 0:
        return random.choice(_HOSTILE) * random.choice((1, 5)) + "x"
    if kind == 1:
        return random.choice(_ODD)
    if kind == 2:
        return random.choice(("n", "名", "é ", '"')) * random.choice((126, 127, 128, 10_000))
    return "".join(_character(random) for _ in range(random.randrange(1, 12)))


def _character(random: Random) -> str:
    while True:
        char = chr(random.choice((random.randrange(128), random.randrange(0x3000), random.randrange(0x110000))))
        if unicodedata.category(char) != "Cs":
            return char


def _named_model(random: Random) -> Any:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[n, m] x, float[n, m] y) => (float[k, m] z) '
        "{ z = Concat<axis=0>(x, y, x) }"
    )
    name, size = _name(random), _name(random)
    for place, value in enumerate(model.graph.input):
        value.name = name + str(place)
        value.type.tensor_type.shape.dim[0].dim_param = size + random.choice(("", "01"[place]))
    model.graph.node[0].input[:] = [*(value.name for value in model.graph.input), name + "0"]
    model.graph.node[0].name, model.graph.name = _name(random), _name(random)
    if random.random() < 0.7:
        model.graph.output[0].name = model.graph.node[0].output[0] = _name(random) + "z"
    return model


def names(random: Random) -> Variant:
    """Names of anything, which reports and errors show, and files keep."""
    model = _named_model(random)

    def act() -> list[str]:
        executable = compile(model, progress=False, embed_native=False)
        said = [
            repr(executable),
            str(executable.inputs()),
            repr(executable.outputs()),
            str(dis(executable)),
            repr(executable.program),
        ]
        for read in (load(executable.as_bytes()), Executable.from_text(executable.as_text())):
            want(
                (read.inputs(), read.outputs()) == (executable.inputs(), executable.outputs()),
                "names that do not come back",
            )
        machine = VirtualMachine(executable, kernels="cached")
        x = np.ones((2, 3), np.float32)
        want(np.asarray(machine["main"](x, x)).shape == (6, 3), "another shape")
        for wrong in ((x,), (x, x[0]), (x, x.astype(np.int8)), (x, np.ones((2, 4), np.float32))):
            try:
                machine["main"](*wrong)
            except TreadleError as error:
                said += [str(error), repr(error)]
        try:
            machine[_name(random)](x)
        except TreadleError as error:
            said += [str(error)]
        return said

    return Variant(act, seconds=20, pause=COMPILING)


# ---- B: what NumPy says ----


def broadcast(random: Random) -> Variant:
    """Sizes of other names, and computed ones, that meet: as NumPy does it, or refused."""
    texts: list[list[Any]] = []
    rank = random.randrange(1, 4)
    for _ in range(2):
        texts.append([random.choice(("a", "b", "c", 1, 2, "", "?")) for _ in range(rank - random.choice((0, 0, 1)))])
    sizes = {name: random.choice((0, 1, 1, 2, 2, 3)) for name in "abc"}
    arrays = []
    for shape in texts:
        real = [
            size if isinstance(size, int) else sizes[size] if size in sizes else random.choice((1, 2, 3))
            for size in shape
        ]
        arrays.append(np.random.default_rng(random.randrange(99)).integers(1, 9, real).astype(np.float32))
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in zip("xy", texts, strict=True)]
    nodes, left, expected_left = [], "x", arrays[0]
    if arrays[0].ndim and random.random() < 0.5:
        axis = random.randrange(arrays[0].ndim)
        extra = list(texts[0])
        extra[axis] = random.choice(("d", 1, "a"))
        shape = list(arrays[0].shape)
        shape[axis] = {"d": random.choice((0, 1, 2)), 1: 1, "a": sizes["a"]}[extra[axis]]
        infos.append(helper.make_tensor_value_info("w", 1, extra))
        arrays.append(np.full(shape, 2, np.float32))
        nodes.append(helper.make_node("Concat", ["x", "w"], ["both"], axis=axis))
        left, expected_left = "both", np.concatenate([arrays[0], arrays[2]], axis)
    operator, function = random.choice(
        (("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract), ("Max", np.maximum))
    )
    pair = [left, "y"] if random.random() < 0.5 else ["y", left]
    values = [expected_left if name == left else arrays[1] for name in pair]
    nodes.append(helper.make_node(operator, pair, ["z"]))
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="z")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def act() -> None:
        try:
            expected = function(*values)
        except ValueError:
            expected = None
        try:
            found = np.asarray(machine_of(proto)["main"](*arrays))
        except TreadleError as error:
            want(expected is None, f"{texts} of {[each.shape for each in arrays]}: {error}")
            return
        if expected is None:
            raise Broken(f"a result of {found.shape} where NumPy has none")
        want(found.shape == expected.shape and np.array_equal(found, expected), f"{found} and not {expected}")

    return Variant(act, seconds=20, pause=COMPILING)


def versions(random: Random) -> Variant:
    """Sparse weights, existing and unknown versions, inputs of any rank."""
    shape = [random.choice((0, 1, 2, 4)) for _ in range(random.randrange(1, 4))]
    size = math.prod(shape)
    count = random.choice((0, 1, min(3, size), size))
    places = sorted(random.sample(range(max(size, 1)), min(count, size)))
    if random.random() < 0.2:
        places += [random.choice((*SIZES, size))]
    flat = np.array(places, np.int64)
    values = np.arange(1, len(flat) + 1, dtype=np.float32)
    is_sound = bool((flat >= 0).all() and (flat < size).all())
    dense = np.zeros(size, np.float32)
    if is_sound:
        dense[flat] = values
        if len(shape) > 1 and random.random() < 0.5:
            flat = np.stack(np.unravel_index(flat, shape), 1).astype(np.int64).reshape(len(values), len(shape))
    tensor = helper.make_sparse_tensor(
        numpy_helper.from_array(values, "w"), numpy_helper.from_array(flat, "w_i"), shape
    )
    opset, version = random.choice((*range(7, 22), 17, 17, 17, 0, -1, 99, 1 << 40)), random.choice((8, 8, 8, 3, 0, 99))
    declared = random.choice((None, shape, ["?"] * len(shape)))
    infos = [helper.make_tensor_value_info("x", 1, declared)]
    operands = ["x", "w"]
    if random.random() < 0.3:
        infos.append(helper.make_tensor_value_info("v", 1, None))
        operands = ["x", "v"]
    node = helper.make_node("Add", operands, ["y"])
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")], sparse_initializer=[tensor])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=version)
    x = np.full(shape, 3, np.float32)

    def act() -> None:
        try:
            found = np.asarray(machine_of(proto)["main"](*[x] * len(infos)))
        except TreadleError:
            want(not (is_sound and opset == 17 and version == 8), "a sound model is refused")
            return
        want(is_sound or operands[1] == "v", "an index outside of its tensor was taken")
        want(opset in range(1, 30) and version in range(1, 20), f"version {opset} of {version} was taken")
        expected = x + (x if operands[1] == "v" else dense.reshape(shape))
        want(found.shape == expected.shape and np.array_equal(found, expected), f"{found} and not {expected}")

    return Variant(act, seconds=30, pause=COMPILING)


_CLASSES: tuple[Callable[[Random], Variant], ...] = (
    weights, numbers_as_texts, registry, small_messages, host_time, host_memory, caches, interrupts, shapes, names, broadcast,
    versions,
)  # fmt: skip
ATTACKS = {each.__name__.replace("_", " "): each for each in _CLASSES}
