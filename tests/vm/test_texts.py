"""String tensors: at the border of the machine, in kernels, in files, and what they cost."""

import ast
import gc
import json
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import treadle
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.text import parse_module
from treadle.compiler.onnx.tensors import to_array
from treadle.formats import container, limits, schema, strings
from treadle.formats.container import Container
from treadle.formats.dtypes import DType
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import (
    ArgumentError,
    BudgetExceededError,
    DTypeError,
    ExecutionError,
    FormatError,
    LimitError,
    ShapeError,
    VerificationError,
)
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.types import TensorType
from treadle.formats.weight_table import NamedWeight, WeightTable, literal
from treadle.rpc.values import Reader
from treadle.tvm.files.graph_json import dtype_of
from treadle.tvm.files.tensor_cache import load as load_tensor_cache
from treadle.tvm.machines.relax import builtins  # noqa: F401  (registers them)
from treadle.tvm.modules.containers import ShapeTuple
from treadle.tvm.modules.registry import get_global_func
from treadle.vm.tensor import Tensor

from .. import package

CHOICE = """
func @main(a: string[n], b: string[n]) {
  same = equal(a, b)
  chosen = where(same, a, string("none"))
  both = concat(a, b)
  all = (same, chosen, both)
  all
}
"""


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


@pytest.fixture(scope="module")
def machine() -> treadle.VirtualMachine:
    return treadle.VirtualMachine(treadle.compile(parse_module(CHOICE)))


@pytest.mark.parametrize(
    "make", [lambda x: x, lambda x: x.astype(str), list, lambda x: x.astype(np.dtypes.StringDType())]
)
def test_arrays_of_objects_and_of_numpys_texts_and_lists_are_taken(machine: treadle.VirtualMachine, make) -> None:
    a, b = texts("ä", "", "long" * 1000), texts("ä", "x", "long" * 1000)
    same, chosen, both = machine["main"](make(a), make(b))
    assert same.numpy().tolist() == [True, False, True]
    assert chosen.numpy().tolist() == ["ä", "none", "long" * 1000]
    assert both.numpy().dtype == object
    assert both.numpy().tolist() == [*a, *b]


def test_the_evaluator_takes_and_gives_texts_too() -> None:
    same, chosen, both = evaluate(parse_module(CHOICE), "main", texts("a", "b"), texts("a", "c"))
    assert same.tolist() == [True, False]
    assert chosen.tolist() == ["a", "none"]
    assert both.tolist() == ["a", "b", "a", "c"]


def test_the_host_does_none_of_comparing_choosing_and_moving(machine: treadle.VirtualMachine) -> None:
    report = treadle.VirtualMachine(treadle.compile(parse_module(CHOICE)), kernels="cached")
    assert report["main"](texts("a"), texts("a"))[1].numpy().tolist() == ["a"]


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        (np.zeros(2, np.float32), DTypeError, "expected string"),
        (np.array([b"a", b"b"]), DTypeError, "Python's str"),
        (texts("a", None), DTypeError, "expected a text, got a NoneType"),  # type: ignore[arg-type]
        (texts("\ud800", "a"), DTypeError, "lone surrogates"),
        (3, ArgumentError, "got a value of type int"),
        (texts("a"), ShapeError, "b"),
        (np.array([["a", "b"]], object), ShapeError, r"main\(b\)"),
    ],
)
def test_what_is_no_text_is_refused_by_name(machine: treadle.VirtualMachine, value, kind: type, says: str) -> None:
    with pytest.raises(kind, match=says):
        machine["main"](texts("a", "b"), value)


def test_no_table_of_texts_grows_at_once() -> None:
    """A dict or set is copied when it grows: none gets long, however many texts there are."""
    count, holder, other = 60_000, strings.Texts(), strings.Texts()
    holder.numbers(np.array([f"one of many texts {number}" for number in range(count)], object))
    other.keep(holder)
    tables = [*strings._numbers, *(table for each in (strings._texts, strings._others) for table in each.values())]
    tables += [strings._texts, strings._others, holder._held, *holder._held.values(), *other._held.values()]
    assert max(map(len, tables)) <= 1 << strings._BLOCK
    del holder, other
    gc.collect()
    strings.forget()
    assert "one of many texts 0" not in strings._shard("one of many texts 0")


def test_texts_for_numbers_are_refused() -> None:
    machine = treadle.VirtualMachine(treadle.compile(parse_module("func @main(x: float32[2]) {\n  x\n}")))
    with pytest.raises(DTypeError, match="expected float32"):
        machine["main"](texts("a", "b"))


def test_texts_of_calls_are_forgotten(machine: treadle.VirtualMachine) -> None:
    machine["main"](texts("once"), texts("and never again"))
    gc.collect()
    strings.Texts().number("which tidies up")
    assert "and never again" not in strings._shard("and never again")


def called(vm: treadle.VirtualMachine, x: np.ndarray) -> None:
    vm["main"](x)


def called_by_name(vm: treadle.VirtualMachine, x: np.ndarray) -> None:
    vm.call("main", (x,))


def called_with_bounds(vm: treadle.VirtualMachine, x: np.ndarray) -> None:
    vm.call("main", (x,), max_seconds=60, max_memory=1 << 30)


def called_as_it_was_saved(vm: treadle.VirtualMachine, x: np.ndarray) -> None:
    vm.save_function("main", "saved", x)
    vm["saved"]()


@pytest.mark.parametrize("way", [called, called_by_name, called_with_bounds, called_as_it_was_saved])
@pytest.mark.parametrize("returns", ["length", "y"])
def test_texts_that_a_call_makes_of_numbers_are_forgotten(way, returns: str) -> None:
    program = f"""
    func @main(x: int64[n]) {{
      y = print_numbers(x)
      length = read_numbers(y) {{dtype=int64}}
      {returns}
    }}
    """
    vm = treadle.VirtualMachine(treadle.compile(parse_module(program)))
    way(vm, np.array([7_000_000_001]))
    gc.collect()
    strings.Texts().number("which tidies up")
    assert "7000000001" not in strings._shard("7000000001")


def test_many_texts_of_a_call_are_forgotten_without_another_one() -> None:
    vm = treadle.VirtualMachine(
        treadle.compile(parse_module("func @main(x: int64[n]) {\n  y = print_numbers(x)\n  z = hash_texts(y)\n  z\n}"))
    )
    vm["main"](np.arange(6_000_000_000, 6_000_020_000))
    end = time.monotonic() + 30
    while any(text in strings._shard(text) for text in ("6000000000", "6000019999")):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_result_keeps_its_texts(machine: treadle.VirtualMachine) -> None:
    results = [machine["main"](texts(f"text {i}"), texts(f"text {i}"))[1] for i in range(50)]
    gc.collect()
    assert [result.numpy()[0] for result in results] == [f"text {i}" for i in range(50)]


def test_arguments_that_are_set_before_keep_their_texts(machine: treadle.VirtualMachine) -> None:
    machine.set_input("main", texts("kept"), texts("kept"))
    gc.collect()
    machine["main"](texts("other"), texts("others"))
    machine.invoke_stateful("main")
    assert machine.get_outputs("main")[1].numpy().tolist() == ["kept"]


def test_the_memory_budget_counts_texts() -> None:
    module = parse_module("func @main(x: string[n]) {\n  y = concat_texts(x, x)\n  y\n}")
    machine = treadle.VirtualMachine(treadle.compile(module), max_memory=100_000)
    machine["main"](texts("a" * 10_000))
    with pytest.raises(BudgetExceededError):
        machine["main"](texts("a" * 60_000))


def test_a_text_longer_than_the_limit_is_refused(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ELEMENT_BYTES", 10)
    with pytest.raises(LimitError, match=r"main\(a\): a text of 12 bytes"):
        machine["main"](texts("ä" * 6), texts("a"))


# ---- files ----

CONSTANT = """
const c0 string[2, 2] = [["a", "é\\n\\""], ["", "a"]]

func @main() -> string[2, 2]  refs=1 ints=0 frame=0 {
  load_const r0, c0
  ret r0
}
"""
EXPECTED = [["a", 'é\n"'], ["", "a"]]


def test_constants_are_saved_loaded_and_printed() -> None:
    executable = Executable(parse_assembly(CONSTANT))
    data = executable.as_bytes()
    again = load(data)
    assert again.as_bytes() == data
    for each in (executable, again, Executable(parse_assembly(again.as_text()))):
        assert treadle.VirtualMachine(each)["main"]().numpy().tolist() == EXPECTED


def with_sections(**changed: bytes) -> bytes:
    """The file of the constant with other sections, their checksums right."""
    opened = Container(Executable(parse_assembly(CONSTANT)).as_bytes(), frozenset(schema.BY_NAME))
    contents = {name: [bytes(view)] for name, view in opened.contents.items()} | {k: [v] for k, v in changed.items()}
    return b"".join(container.layout(contents, {name: section.required for name, section in schema.BY_NAME.items()}))


def elements(*places: int) -> bytes:
    return np.array(places, "<u8").tobytes().ljust(64, b"\0")


@pytest.mark.parametrize(
    ("changed", "kind", "says"),
    [
        ({"constants": elements(0, 1, 2, 3)}, LimitError, "constant 0 has the text 3 of 3"),
        ({"constants": elements(0, 1, 2, 2**64 - 1)}, LimitError, "of 3"),
        ({"strings": b"\x00"}, LimitError, "has the text 2 of 0"),
        ({"strings": b"\x03\xa1a\xa1\xff\xa0"}, FormatError, "not UTF-8"),
        ({"strings": b"\x03\xa1a"}, LimitError, "a list of 3 elements, but 2 bytes are left"),
        ({"strings": b"\xce\xff\xff\xff\xff"}, LimitError, "at most"),
        ({"strings": b"\x01\xdb\xff\xff\xff\xff"}, FormatError, "strings"),
        ({"strings": b"\x01\xdb\x00\x01\x00\x01" + b"a" * 65537}, LimitError, "strings"),
        ({"strings": b"\x01\xc4\x01a"}, FormatError, "expected a string"),
        ({"constants": elements(0)[:56]}, FormatError, "bytes"),
    ],
)
def test_hostile_texts_in_a_file_are_named_errors(changed: dict, kind: type, says: str) -> None:
    with pytest.raises(kind, match=says):
        load(with_sections(**changed))


def test_memory_that_nothing_was_written_into_is_never_taken_for_texts() -> None:
    wild = """
func @main() -> string[64]  refs=1 ints=0 frame=0 {
  alloc_tensor r0, string[64]
  ret r0
}
"""
    with pytest.raises(VerificationError, match="nothing has written them"):
        treadle.VirtualMachine(Executable(parse_assembly(wild)))


SECRET = "the secret of another caller"


@pytest.fixture
def secret() -> Iterator[np.ndarray]:
    """Numbers of a text that another caller of this process holds."""
    held = strings.Texts()
    yield np.array([held.number(SECRET)], np.uint64)
    assert held


def tensor_cache(folder: Path, numbers: np.ndarray) -> object:
    (folder / "shard.bin").write_bytes(numbers.tobytes())
    record = {"name": "w", "shape": [1], "dtype": "string", "format": "raw", "byteOffset": 0, "nbytes": 8}
    shard = {"dataPath": "shard.bin", "format": "raw-shard", "nbytes": 8, "records": [record]}
    (folder / "ndarray-cache.json").write_text(json.dumps({"metadata": {}, "records": [shard]}))
    return load_tensor_cache(folder)[0]["w"]


def external_data(folder: Path, numbers: np.ndarray) -> object:
    (folder / "data").write_bytes(numbers.tobytes())
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.STRING, dims=[1], data_location=1)
    tensor.external_data.add(key="location", value="data")
    return to_array(tensor, folder)


def literal_of_a_weight(folder: Path, numbers: np.ndarray) -> object:
    return literal(TensorType(DType.string, (1,)), numbers.tobytes())


def weight_of_texts(folder: Path, numbers: np.ndarray) -> object:
    table = WeightTable((NamedWeight("w", TensorType(DType.string, (1,))),), constants=((0, 0),))
    text = 'const c string[1] = [""]\nfunc @main() -> string[1] {\n  load_const r0, c\n  ret r0\n}'
    machine = treadle.VirtualMachine(Executable(parse_assembly(text), weights=table))
    machine.load_params({"w": numbers.view(strings.ELEMENT)})
    return machine["main"]()


def message_to_a_server(folder: Path, numbers: np.ndarray) -> object:
    return Reader([["tensor", "string", [1]]], memoryview(numbers.tobytes()), lambda node: None).take(0)


def graph(folder: Path, numbers: np.ndarray) -> object:
    return dtype_of("string")


def parameters_of_npz(folder: Path, numbers: np.ndarray) -> object:
    np.savez(folder / "p.npz", w=numbers.view(strings.ELEMENT))
    return treadle.load_params(folder / "p.npz")["w"]


def view_of_a_tensor(folder: Path, numbers: np.ndarray) -> object:
    return Tensor(numbers).view((1,), strings.ELEMENT)


def storage_of_relax(folder: Path, numbers: np.ndarray) -> object:
    storage = get_global_func("vm.builtin.alloc_storage")(None, ShapeTuple((8,)), 0, "uint8")
    return get_global_func("vm.builtin.alloc_tensor")(storage, 0, ShapeTuple((1,)), "string")


DOORS = [
    tensor_cache,
    external_data,
    literal_of_a_weight,
    weight_of_texts,
    message_to_a_server,
    graph,
    parameters_of_npz,
    view_of_a_tensor,
    storage_of_relax,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_numbers_in_a_file_are_never_another_callers_texts(door, secret: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(treadle.TreadleError, match=r"text|string|number"):
        door(tmp_path, secret)


class Foreign:
    """A buffer or array of whatever type its maker says."""

    def __init__(self, numbers: np.ndarray, field: str) -> None:
        self.kept = numbers
        found = numbers.__array_interface__
        self.__array_interface__ = {**found, "typestr": "|V8", "descr": [(field, "<u8")]}


def npy(numbers: np.ndarray, field: str, folder: Path) -> object:
    np.save(folder / "a.npy", numbers.view(np.dtype([(field, np.uint64)])))
    return np.load(folder / "a.npy")


FOREIGN = {
    ".npy file": npy,
    "array interface": lambda numbers, field, folder: np.asarray(Foreign(numbers, field)),
    "buffer": lambda numbers, field, folder: np.asarray(memoryview(numbers.view(np.dtype([(field, np.uint64)])))),
    "pickle": lambda numbers, field, folder: pickle.loads(pickle.dumps(numbers.view(np.dtype([(field, np.uint64)])))),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_arrays_that_say_they_are_texts_are_refused_by_the_machine(
    kind: str, secret: np.ndarray, machine: treadle.VirtualMachine, tmp_path: Path
) -> None:
    """What another process, or a file, can know of the dtype of string tensors is all but its field's name."""
    foreign = FOREIGN[kind](secret, "text", tmp_path)
    with pytest.raises(DTypeError, match="texts are Python's str"):
        machine["main"](foreign, texts("b"))
    code = "from treadle.formats.strings import ELEMENT; print(ELEMENT.names[0])"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other.isidentifier()
    assert (other,) != strings.ELEMENT.names


# Code that makes arrays of bytes by a computed type, and why that is not a string tensor.
BYTES_TO_ARRAYS = {
    "formats/param_dict.py": "TVM's types, among which there are no texts",
    "formats/parameter_files.py": "numbers alone: biufc",
    "serve/http_tensors.py": "BYTES have texts of their own",
    "rpc/values.py": "read_type refuses texts",
    "vm/tensor.py": "view refuses texts",
    "vm/memory.py": "the machine's own memory, where texts are held",
    "cluster/sources.py": "what a .npy file says",
    "cluster/wire.py": "a dtype's `str`, which has no fields",
    "debug/case.py": "what a .npy file says",
    "decode/adapter_files.py": "refused then, as all but floats",
}


def test_bytes_become_tensors_in_one_place() -> None:
    found = set()
    for name, path in package.modules(without={"tools"}).items():  # no part of a running machine
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                dtypes = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "dtype")]
                is_fixed = bool(dtypes) and all(
                    isinstance(each, ast.Constant) or ast.unparse(each).startswith("np.") for each in dtypes
                )
                if ast.unparse(call.func.value) != "np" or is_fixed:
                    continue
                if call.func.attr in ("frombuffer", "fromfile", "memmap", "ndarray", "load"):
                    found.add(name)
    assert found == BYTES_TO_ARRAYS.keys()


def test_string_tensors_are_made_of_numbers_in_one_place() -> None:
    pattern = re.compile(r"view\((strings\.)?ELEMENT")
    found = {name for name, path in package.modules().items() if pattern.search(path.read_text())}
    assert found == {"formats/strings.py", "compiler/operators/table.py"}  # the table: operators that move numbers


def test_a_number_that_no_text_has_is_a_named_error() -> None:
    with pytest.raises(ExecutionError, match="the element 18446744073709551615 of a string tensor is not text"):
        strings.to_texts(np.full(1, -1, np.int64).view(strings.ELEMENT))


STATIC = """
func @main(a: string[2], x: float32[2]) {
  above = greater(x, float32(0.0))
  chosen = where(above, a, string("none"))
  chosen
}

func @labels(x: float32[2]) {
  above = greater(x, float32(0.0))
  chosen = where(above, string("yes"), string("no"))
  chosen
}
"""


def test_texts_of_known_shapes_go_in_and_come_out_as_texts() -> None:
    vm = treadle.VirtualMachine(treadle.compile(parse_module(STATIC), entry=("main", "labels"), progress=False))
    x = np.float32([1, -1])
    for number in range(3):
        name = f"a text of call {number}"
        for found in (vm["main"](texts(name, "b"), x), vm["main"](a=texts(name, "b"), x=x)):
            assert found.numpy().tolist() == [name, "none"]
        assert vm["labels"](x).numpy().tolist() == ["yes", "no"]


def test_texts_of_a_call_are_let_go_when_its_results_are(machine: treadle.VirtualMachine) -> None:
    before = sum(map(len, strings._texts.values()))
    for number in range(100):
        name = f"a text that only call {number} has"
        assert machine["main"](texts(name), texts("b"))[2].numpy().tolist() == [name, "b"]
    gc.collect()
    strings.Texts().number("another one, which clears what is gone")
    assert sum(map(len, strings._texts.values())) <= before + 3


def test_wrong_texts_are_refused_by_name_and_the_next_call_works(machine: treadle.VirtualMachine) -> None:
    with pytest.raises(DTypeError, match=r"main\(b\)"):
        machine["main"](texts("a"), np.array([3], object))
    with pytest.raises(ShapeError):
        machine["main"](texts("a"), np.array([["b"]], object))
    assert machine["main"](texts("a"), texts("a"))[0].numpy().tolist() == [True]
