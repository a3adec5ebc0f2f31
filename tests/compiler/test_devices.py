"""Programs whose values lie on several devices: where operators are computed, what is copied, what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import treadle
from treadle.compiler import ir
from treadle.compiler.driver import compile_module
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.ir.text import parse_module, print_module
from treadle.formats import container, schema
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import CompileError, FormatError, TreadleError, VersionError
from treadle.formats.program import ProgramDevice
from treadle.formats.text.assembly import parse_assembly, print_assembly
from treadle.formats.text.report import information, information_text
from treadle.formats.types import TensorType
from treadle.tools.dev.fuzz.programs import Setting, try_sample
from treadle.tools.dev.fuzz.random_programs.scatter import Scatter

from .samples import SAMPLES
from .test_compile import assert_equal

DEVICES = {"gpu0": treadle.emulated("aarch64"), "near": None}
X = np.array([[1, -2, 3]], np.float32)


def compiled(body: str, head: str = "x: float32[n, 3]", **options) -> treadle.Executable:
    module = parse_module(f"func @main({head}) {{\n{body}\n}}")
    options = {"devices": DEVICES, "progress": False, **options}
    return treadle.compile(module, **options)


def names(executable: treadle.Executable) -> list[str]:
    return [each.opname for each in treadle.dis(executable, "main")]


def placed(body: str, head: str = "x: float32[n, 3]", **options) -> str:
    """The text of the module when everything has its place."""
    module = parse_module(f"func @main({head}) {{\n{body}\n}}")
    seen: list[str] = []
    compile_module(module, devices=DEVICES, passes=[treadle.after("devices", _Keep(seen))], **options)
    return seen[0]


@dataclasses.dataclass(frozen=True)
class _Keep:
    seen: list[str]
    name: str = "keep"

    def __call__(self, module: ir.Module) -> ir.Module:
        self.seen.append(print_module(module))
        return module


def test_operators_are_computed_where_their_operands_lie():
    executable = compiled(
        """
        d = device_copy(x) {device="gpu0"}
        y = add(d, x)
        z = multiply(y, float32[3] [1.0, 2.0, 3.0])
        h = device_copy(z) {device="host"}
        e = exp(h)
        e
        """
    )
    program = executable.program
    assert [device.name for device in program.devices] == ["gpu0", "near"]
    assert {p.name: p.device for p in program.primitives} == {"add_multiply": "gpu0", "exp": ""}
    assert list(program.placed.values()) == ["gpu0"]
    assert names(executable).count("device_copy") == 2  # there and back: x is copied once
    expected = np.exp(2 * X * np.float32([1, 2, 3]))
    np.testing.assert_allclose(treadle.VirtualMachine(executable)["main"](X).numpy(), expected, rtol=1e-6)


def test_text_and_bytes_hold_where_everything_lies():
    executable = compiled('d = device_copy(x) {device="gpu0"}\ny = add(d, float32[3] [1.0, 2.0, 3.0])\ny')
    text = print_assembly(executable.program)
    assert 'device gpu0 = "emulated aarch64"\ndevice near = "cpu"' in text
    assert "const c0 float32[3]@gpu0 =" in text
    assert "-> float32[d0, 3] on gpu0 {" in text
    assert print_assembly(parse_assembly(text)) == text
    loaded = load(executable.as_bytes())
    assert print_assembly(loaded.program) == text
    assert loaded.as_bytes() == executable.as_bytes()
    gpu0 = {"name": "gpu0", "target": "emulated aarch64", "primitives": 1, "constants": 1}
    facts = information(executable)
    assert facts["devices"][0] == gpu0
    shown = information_text({**facts, "file": "model.trdl", "bytes": 1})
    assert "\n  device gpu0: emulated aarch64, 1 primitives, 1 constants\n" in shown
    assert "Devices (#2): [gpu0: emulated aarch64, 1 primitives, 1 constants, near: cpu" in executable.stats


def test_a_program_without_devices_has_no_section_of_them():
    executable = compiled("y = add(x, x)\ny", devices=None)
    assert b"devices" not in executable.as_bytes()


def test_the_type_of_each_value_says_where_it_lies():
    text = placed('d = device_copy(x) {device="gpu0"}\ny = add(d, x)\ns = shape(y)\nt = (y, s)\nt')
    assert "y: float32[n, 3]@gpu0 = add(" in text
    assert "s: int64[2] = shape(y)" in text
    assert print_module(parse_module(text)) == text


def test_loops_and_branches_stay_on_their_device():
    body = """
    d = device_copy(x) {device="near"}
    b = device_copy(flag) {device="near"}
    y = if b { p = add(d, d)  p } else { q = exp(x)  q }
    z = multiply(y, y)
    z
    """
    text = placed(body, "x: float32[2], flag: bool[]")
    assert "y: float32[2]@near = if flag" in text
    assert "z: float32[2]@near" in text
    machine = treadle.VirtualMachine(compiled(body, "x: float32[2], flag: bool[]"))
    x = np.float32([1, 2])
    assert machine["main"](x, np.bool_(True)).numpy().tolist() == [4, 16]
    np.testing.assert_allclose(machine["main"](x, np.bool_(False)).numpy(), np.exp(x) ** 2, rtol=1e-6)


def test_nodes_of_a_model_are_placed_by_name():
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Relu", ["m"], ["r"], name="activation"),
        helper.make_node("Softmax", ["r"], ["y"], name="last"),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy"]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0])]
    model = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:], weights))
    placement = {"product": "near", "last": "host"}
    executable = treadle.compile(model, devices={"near": None}, placement=placement, progress=False)
    found = {node.operator: p.device for p in executable.program.primitives for node in p.definition.nodes}
    assert found["relu"] == "near"
    assert found["softmax"] == ""
    x = np.eye(2, dtype=np.float32)
    plain = treadle.VirtualMachine(treadle.compile(model, progress=False))
    np.testing.assert_array_equal(treadle.VirtualMachine(executable)["main"](x).numpy(), plain["main"](x).numpy())
    with pytest.raises(CompileError, match=r"placement: no operator of a node 'lost' is left; .*product"):
        treadle.compile(model, devices={"near": None}, placement={"lost": "near"}, progress=False)


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        ('d = device_copy(x) {device="gpu1"}\nd', {}, "there is no device 'gpu1'; there is host, gpu0, near; did you mean gpu0"),
        ('d = device_copy(x) {device="gpu0"}\nd', {"devices": None}, "there is no device 'gpu0'; there is host"),
        ("x", {"placement": {"a": "gpu9"}}, "there is no device 'gpu9'"),
        ("x", {"devices": {"host": None}}, "devices: a device cannot be called 'host'"),
        ("x", {"devices": {"a b": None}}, "devices: a device cannot be called 'a b'"),
        ("x", {"devices": {"near": "cuda"}}, "target='cuda': expected a Target"),
    ],
)  # fmt: skip
def test_what_there_is_not_is_refused_by_name(body: str, options: dict, message: str):
    with pytest.raises(CompileError, match=message):
        compiled(body, **options)


def test_functions_take_what_lies_on_the_host():
    with pytest.raises(CompileError, match=r"parameter 'x' is on the device 'gpu0'.*device_copy\(x, device='gpu0'\)"):
        compiled("x", "x: float32[2]@gpu0")


def test_texts_stay_on_the_host():
    with pytest.raises(CompileError, match="texts lie on the host, not on the device 'near'"):
        compiled('d = device_copy(x) {device="near"}\nd', "x: string[2]")


def test_a_machine_that_lacks_a_device_says_so():
    program = compiled('d = device_copy(x) {device="gpu0"}\ny = add(d, d)\ny').program
    strange = Executable(dataclasses.replace(program, devices=(ProgramDevice("gpu0", "cuda sm_90"),)))
    strange = load(strange.as_bytes())
    with pytest.raises(TreadleError, match=r"device 'gpu0' is of the target 'cuda sm_90'; .* has emulated"):
        treadle.VirtualMachine(strange)


@pytest.mark.parametrize("change", [{"devices": ()}, {"placed": {7: "gpu0"}}])
def test_tables_that_disagree_are_not_saved(change: dict):
    program = compiled('d = device_copy(x) {device="gpu0"}\ny = add(d, d)\ny').program
    with pytest.raises(FormatError):
        Executable(dataclasses.replace(program, **change)).as_bytes()


@pytest.mark.parametrize("name", SAMPLES)
def test_scattered_values_give_the_same(name: str):
    """All that the language has, with values on any device: planned, verified, and run by references."""
    sample = SAMPLES[name]
    passes = [treadle.after("infer_types", Scatter(("gpu0", "near", "host"), name, 2))]
    generated = compile_module(sample.module, devices=DEVICES, passes=passes)
    machine = treadle.VirtualMachine(load(Executable(generated.program).as_bytes()), kernels="cached")
    assert_equal(machine["main"](*sample.arguments), evaluate(sample.module, "main", *sample.arguments))


def test_random_programs_on_several_devices():
    from random import Random

    from treadle.tools.dev.fuzz.programs import sample_of

    for number in range(12):
        outcome = try_sample(sample_of(5, number), Setting(scattered=str(number)), Random(number))
        assert not outcome.startswith("finding")


# ---- the section of the file ----


def with_section(devices: list, constants: list, primitives: list) -> bytes:
    """A file of one constant and one primitive whose section of devices says this."""
    program = compiled('d = device_copy(x) {device="gpu0"}\ny = add(d, float32[3] [1.0, 2.0, 3.0])\ny').program
    opened = container.Container(Executable(program).as_bytes(), frozenset(schema.BY_NAME))
    contents = {name: [view] for name, view in opened.contents.items()}
    rows = ([ProgramDevice(name, "cpu") for name in devices], constants, primitives)
    contents["devices"] = [schema.DEVICES.encode(rows, "devices")]
    return b"".join(container.layout(contents, schema.REQUIRED))


@pytest.mark.parametrize(
    ("devices", "constants", "primitives", "message"),
    [
        (["gpu0", "gpu0"], [], [], "two devices have the name 'gpu0'"),
        (["host"], [], [], "a device cannot be called 'host'"),
        (["a b"], [], [], "a device cannot be called 'a b'"),
        (["gpu0"], [(0, 1)], [], "device 1 of 1 does not exist"),
        (["gpu0"], [], [(0, 1)], "device 1 of 1 does not exist"),
        (["gpu0"], [(0, 0), (0, 0)], [], "not in order, each once"),
        (["gpu0"], [(1, 0)], [], r"constants \[1\] of 1 lie on devices"),
        (["gpu0"], [], [(1, 0)], "primitive 1 of 1 does not exist"),
    ],
)
def test_a_section_that_says_nonsense_is_refused(devices: list, constants: list, primitives: list, message: str):
    with pytest.raises(FormatError, match=message):
        load(with_section(devices, constants, primitives))


def test_a_reader_that_does_not_know_devices_refuses_the_file():
    known = frozenset(schema.BY_NAME) - {"devices"}
    with pytest.raises(VersionError, match="has a section 'devices' that this Treadle does not know"):
        container.Container(with_section(["gpu0"], [(0, 0)], [(0, 0)]), known)


def test_a_placed_type_is_stored_with_its_device():
    type_ = TensorType("float32", (2,)).on("gpu0")
    assert schema.TYPE.decode(schema.TYPE.encode(type_, "types"), "types") == type_
    for codec, value in ((schema.TENSOR_TYPE, type_), (schema.PLACED_TYPE, type_.on(""))):
        with pytest.raises(FormatError):
            codec.decode(codec.encode(value, "types"), "types")
