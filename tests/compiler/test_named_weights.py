"""Weights that keep their names: a machine takes others, and gives to the bit what a program compiled with them gives."""

from __future__ import annotations

import pickle
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest
import treadle
from onnx import numpy_helper
from treadle import Executable, Module, VirtualMachine, function, op, var
from treadle.compiler.codegen.functions import Generated
from treadle.compiler.driver import compile_module
from treadle.compiler.named_weights import Weights
from treadle.compiler.onnx.importer import from_onnx
from treadle.compiler.targets.cpu.toolchain import kernels
from treadle.formats.constants import constant_type
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import ArgumentError, FormatError, TreadleError
from treadle.formats.primitive import PrimitiveNode
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.types import TensorType
from treadle.formats.weight_table import NamedWeight, WeightTable
from treadle.tools.dev.zoo.catalogue import CATALOGUE
from treadle.vm.observe.hooks import Listener
from treadle.vm.replaced_weights import constants_of

SHAPES = {
    "w": (32, 3, 3, 3),
    "scale": (32,),
    "bias": (32,),
    "mean": (32,),
    "variance": (32,),
    "d": (32, 10),
    "b": (10,),
}


def network() -> Module:
    """A convolution with a normalisation, which becomes part of it, and a product."""
    x = var("x", (1, 3, 8, 8))
    w, scale, bias, mean, variance, d, b = (var(name, shape) for name, shape in SHAPES.items())
    image = op.batch_normalization(op.conv(x, w, pads=(1, 1, 1, 1)), scale, bias, mean, variance)
    result = op.matmul(op.mean(op.relu(image), axes=(2, 3)), d) + b
    return Module(main=function([x, w, scale, bias, mean, variance, d, b], result))


def weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.random(shape, np.float32) + np.float32(0.5) for name, shape in SHAPES.items()}


X = np.random.default_rng(9).standard_normal((1, 3, 8, 8)).astype(np.float32)


def compiled(seed: int) -> Executable:
    return treadle.compile(network(), params=weights(seed), named_weights=True)


def test_other_weights_give_the_bits_of_a_program_that_is_compiled_with_them(monkeypatch: pytest.MonkeyPatch):
    machine, other = VirtualMachine(treadle.load(compiled(1).as_bytes())), VirtualMachine(compiled(2))
    before = machine["main"](X).numpy().copy()
    monkeypatch.setattr(kernels, "compile_texts", lambda *_: pytest.fail("a kernel is built"))
    machine.load_params(weights(2))
    assert machine["main"](X).numpy().tobytes() == other["main"](X).numpy().tobytes() != before.tobytes()
    machine.load_params(weights(1))
    assert machine["main"](X).numpy().tobytes() == before.tobytes()


def test_some_weights_stay_as_they_are():
    machine = VirtualMachine(compiled(1))
    machine.load_params({"d": weights(2)["d"]})
    mixed = treadle.compile(network(), params=weights(1) | {"d": weights(2)["d"]})
    assert machine["main"](X).numpy().tobytes() == VirtualMachine(mixed)["main"](X).numpy().tobytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"v": weights(2)["w"]}, "there is no weight 'v'; the program has 'w', 'scale'"),
        ({"d": weights(2)["d"].T}, r"weight 'd': expected float32\[32, 10\], got float32\[10, 32\]"),
        ({"d": weights(2)["d"].astype(np.float64)}, "got float64"),
    ],
)
def test_what_does_not_suit_is_refused_by_name(given: Mapping[str, np.ndarray], message: str):
    machine = VirtualMachine(compiled(1))
    before = machine["main"](X).numpy().tobytes()
    with pytest.raises(ArgumentError, match=message):
        machine.load_params(given)
    assert machine["main"](X).numpy().tobytes() == before


@pytest.mark.parametrize("names", [["w"], ["scale"], ["mean", "d"], ["variance", "b"], list(SHAPES)])
def test_any_of_the_weights_may_be_others(names: list[str]):
    """`w`, `scale` and `variance` are made into one constant."""
    machine, given = VirtualMachine(treadle.load(compiled(1).as_bytes())), {name: weights(2)[name] for name in names}
    machine.load_params(given)
    wanted = VirtualMachine(treadle.compile(network(), params=weights(1) | given, named_weights=True))
    assert machine["main"](X).numpy().tobytes() == wanted["main"](X).numpy().tobytes()
    machine.load_params({"scale": weights(3)["scale"]})  # which is made into one constant with what was given before
    given["scale"] = weights(3)["scale"]
    assert {name: value.tobytes() for name, value in (weights(1) | given).items()} == {
        name: value.numpy().tobytes() for name, value in machine.weights.items()
    }
    wanted.load_params(weights(1) | given)
    assert machine["main"](X).numpy().tobytes() == wanted["main"](X).numpy().tobytes()
    again = pickle.loads(pickle.dumps(machine))
    assert again.weights["scale"].numpy().tobytes() == given["scale"].tobytes()


def test_weights_are_values_by_name_which_nobody_changes():
    machine = VirtualMachine(treadle.load(compiled(1).as_bytes()))
    assert list(machine.weights) == list(SHAPES)
    assert str(machine.weights.types["d"]) == "float32[32, 10]"
    assert np.array_equal(machine.weights["d"], weights(1)["d"])
    assert not machine.weights["d"].numpy().flags.writeable
    with pytest.raises(KeyError, match=r"there is no weight 'D'.*did you mean d"):
        _ = machine.weights["D"]
    settled = treadle.compile(scaled_by_its_first_number(), params={"factor": np.float32(3)}, named_weights=True)
    assert VirtualMachine(settled).weights["factor"].numpy() == 3


def test_deltas_are_added_to_the_weights_and_taken_away_again():
    machine, rng = VirtualMachine(compiled(1)), np.random.default_rng(5)
    b, a, whole = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 2), (2, 10), (32,)))
    before = machine["main"](X).numpy().tobytes()
    for scale in (0.5, 2):  # the second in the place of the first
        machine.load_deltas({"d": (b, a), "scale": whole}, scale)
        given = {
            "d": weights(1)["d"] + np.float32(scale) * (b @ a),
            "scale": weights(1)["scale"] + np.float32(scale) * whole,
        }
        wanted = VirtualMachine(treadle.compile(network(), params=weights(1) | given, named_weights=True))
        assert machine["main"](X).numpy().tobytes() == wanted["main"](X).numpy().tobytes()
    again = pickle.loads(pickle.dumps(machine))
    again.load_deltas({})
    assert again["main"](X).numpy().tobytes() == before
    machine.load_deltas({"scale": whole})  # `d` is as it was
    assert np.array_equal(machine.weights["d"], weights(1)["d"])
    machine.load_params({"scale": weights(1)["scale"]})  # which has no delta any more
    assert machine["main"](X).numpy().tobytes() == before


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        ({"d": (np.zeros((10, 2)), np.zeros((2, 32)))}, r"'d': the weight is \[32, 10\].*transposed: give A.T, B.T"),
        ({"d": (np.zeros((32, 2)), np.zeros((3, 10)))}, "give no product"),
        ({"d": np.zeros(10)}, r"the weight is \[32, 10\], and the delta \[10\]"),
        ({"e": np.zeros(10)}, "there is no weight 'e'"),
        ({"d": np.array(["a"])}, "expected an array, or a pair of arrays B, A"),
    ],
)
def test_deltas_that_do_not_suit_are_refused(delta: Mapping, message: str):
    machine = VirtualMachine(compiled(1))
    before = machine["main"](X).numpy().tobytes()
    with pytest.raises(TreadleError, match=message):
        machine.load_deltas(delta)
    assert machine["main"](X).numpy().tobytes() == before


def test_a_program_that_remembers_no_names_says_how_it_would():
    machine = VirtualMachine(treadle.compile(network(), params=weights(1)))
    with pytest.raises(ArgumentError, match="compile it with named_weights=True"):
        machine.load_params(weights(2))


def test_machines_of_one_program_share_their_weights():
    machine, other = VirtualMachine(compiled(1)), VirtualMachine(compiled(1))
    other.load_params(weights(2))
    machine.share_params(other)
    shared = [place for place, _ in machine._weights.constants]
    assert all(machine._calls.image.arrays[place] is other._calls.image.arrays[place] for place in shared)
    wanted = other["main"](X).numpy().tobytes()
    del other
    assert machine["main"](X).numpy().tobytes() == wanted


def test_machines_of_different_programs_share_nothing():
    machine = VirtualMachine(compiled(1))
    for other in (VirtualMachine(treadle.compile(network(), params=weights(1))), None):
        with pytest.raises(ArgumentError, match="expected a machine of the same program"):
            machine.share_params(other)


def one_constant(array: np.ndarray, table: WeightTable) -> VirtualMachine:
    """A machine whose program gives its one constant."""
    text = f"const c {constant_type(array)} = {[0] * array.size}\n\n"
    text += f"func @main() -> {constant_type(array)} {{\n  load_const r0, c\n  ret r0\n}}\n"
    return VirtualMachine(treadle.load(Executable(parse_assembly(text), weights=table).as_bytes()))


NARROW, WIDE = np.zeros(1, np.uint8), np.zeros(64, np.uint64)
MADE_WIDE = WeightTable(
    (NamedWeight("w", constant_type(NARROW)),),
    (),
    (PrimitiveNode("broadcast_to", (0,), (constant_type(WIDE),), (("shape", (64,)),)),),
    ((0, 1),),
)
OTHER_TABLES = {
    "a literal before the node": replace(MADE_WIDE, literals=(NARROW,)),
    "a literal of another type": replace(MADE_WIDE, literals=(NARROW.view(np.int8),)),
    "more literals": replace(MADE_WIDE, literals=(NARROW, NARROW)),
    "a literal with other bits": replace(MADE_WIDE, literals=(np.ones(1, np.uint8),)),
}


@pytest.mark.parametrize("one", OTHER_TABLES)
@pytest.mark.parametrize("other", [None, *OTHER_TABLES])
def test_tables_are_alike_where_all_values_are_to_the_bit(one: str, other: str | None):
    table = MADE_WIDE if other is None else OTHER_TABLES[other]
    assert OTHER_TABLES[one].is_like(table) == (one == other)


def test_machines_whose_constants_have_other_types_share_nothing():
    wide, narrow = one_constant(WIDE, MADE_WIDE), one_constant(NARROW, OTHER_TABLES["a literal before the node"])
    for one, other in ((wide, narrow), (narrow, wide)):
        with pytest.raises(ArgumentError, match="share_params: expected a machine of the same program"):
            one.share_params(other)


WRONG_CONSTANTS = {
    "another element type": np.zeros(64, np.int64),
    "a shorter one": WIDE[:63],
    "fewer bytes": np.zeros(64, np.uint8),
    "another rank": WIDE[None],
    "elements apart": np.zeros(128, np.uint64)[::2],
    "another byte order": np.zeros(64, ">u8"),
    "no array": [0] * 64,
}


@pytest.mark.parametrize("case", WRONG_CONSTANTS)
@pytest.mark.parametrize("door", ["image", "calls", "share_params"])
def test_a_constant_is_never_replaced_by_one_of_another_type_whoever_does_it(
    case: str, door: str, monkeypatch: pytest.MonkeyPatch
):
    """The engine addresses constants by the types that were verified: the last door looks at them again."""
    machine, array = one_constant(WIDE, MADE_WIDE), WRONG_CONSTANTS[case]
    before = machine._calls.image.constants.copy()
    other = one_constant(WIDE, MADE_WIDE)
    other._calls.image.arrays = (array,)
    replace_with: Callable[[], None] = {
        "image": lambda: machine._calls.image.replace_constants({0: array}),
        "calls": lambda: machine._calls.replace_constants({0: array}),
        "share_params": lambda: machine.share_params(other),  # even if the comparison of tables is wrong
    }[door]
    with pytest.raises(ArgumentError, match="constant 0: expected"):
        replace_with()
    assert np.array_equal(machine._calls.image.constants, before)


def test_a_place_that_no_constant_has_is_refused():
    machine = one_constant(WIDE, MADE_WIDE)
    for place in (1, -1, 1 << 70, None):
        with pytest.raises(ArgumentError, match="expected a number below 1"):
            machine._calls.image.replace_constants({place: WIDE})  # type: ignore[dict-item]


def scaled_by_its_first_number() -> Module:
    """A weight by which the compiler decides: a number becomes part of a kernel's text."""
    x, factor = var("x", (4,)), var("factor", ())
    return Module(main=function([x, factor], op.exp(x) * factor))


def test_a_weight_that_decided_about_the_program_can_only_be_what_it_was():
    three = np.array(3, np.float32)
    machine = VirtualMachine(
        treadle.compile(scaled_by_its_first_number(), params={"factor": three}, named_weights=True)
    )
    machine.load_params({"factor": three})
    with pytest.raises(ArgumentError, match="'factor' decided about the program when it was compiled"):
        machine.load_params({"factor": np.array(4, np.float32)})


def test_storage_in_16_bits_is_decided_by_the_first_weights_and_checked():
    x, w = var("x", (2, 512)), var("w", (512, 512))
    rng = np.random.default_rng(3)
    whole = [rng.integers(-100, 100, (512, 512)).astype(np.float32) for _ in range(2)]
    module = Module(main=function([x, w], op.matmul(x, w)))
    machine = VirtualMachine(treadle.compile(module, params={"w": whole[0]}, named_weights=True))
    machine.load_params({"w": whole[1]})
    row = rng.integers(-9, 9, (2, 512)).astype(np.float32)
    assert np.array_equal(machine["main"](row).numpy(), row @ whole[1])
    with pytest.raises(ArgumentError, match=r"16 bits .* do not hold all of these numbers exactly; compile anew"):
        machine.load_params({"w": rng.standard_normal((512, 512)).astype(np.float32)})
    assert np.array_equal(machine["main"](row).numpy(), row @ whole[1])


def test_results_that_are_weights_outlive_them():
    x, w = var("x", (4,)), var("w", (1 << 16,))
    first, second = (np.full(1 << 16, value, np.float32) for value in (1, 2))
    first[0] = second[0] = 0
    module = Module(main=function([x, w], treadle.tuple_(op.exp(x), w)))
    machine = VirtualMachine(treadle.compile(module, params={"w": first}, named_weights=True))
    _, old = machine["main"](np.zeros(4, np.float32))
    kept = old.numpy()
    for _ in range(3):
        machine.load_params({"w": second})
        _, new = machine["main"](np.zeros(4, np.float32))
    assert np.array_equal(kept, first)
    assert np.array_equal(new.numpy(), second)


def test_a_result_that_is_no_weight_keeps_none_alive():
    x, y, w = var("x", ("n",)), var("y", (1 << 16,)), var("w", (1 << 16,))
    module = Module(main=function([x, y, w], treadle.tuple_(op.exp(x), op.sum(y * w))))
    values = [np.random.default_rng(seed).random(1 << 16, np.float32) for seed in range(3)]
    machine = VirtualMachine(treadle.compile(module, params={"w": values[0]}, named_weights=True))
    machine.load_params({"w": values[1]})
    (old,) = (weakref.ref(array) for array in machine._calls.image.arrays if array.size == 1 << 16)
    with machine.listening(Listener()):  # so that the engine does not make the arrays
        result, _ = machine["main"](np.zeros(1 << 16, np.float32), values[0])
    machine.load_params({"w": values[2]})
    assert old() is None
    assert np.array_equal(result.numpy(), np.ones(1 << 16, np.float32))


def test_weights_change_while_other_threads_call():
    x, w = var("x", (1, 256)), var("w", (256, 256))
    values = [np.full((256, 256), value, np.float32) for value in (0.25, 1.0)]
    for value in values:
        value[0, 0] += np.float32(1e-6)  # too fine for 16 bits
    module = Module(main=function([x, w], op.matmul(x, w)))
    machine = VirtualMachine(treadle.compile(module, params={"w": values[0]}, named_weights=True))
    results, ends = [], threading.Event()

    def call() -> None:
        row = np.ones((1, 256), np.float32)
        while not ends.is_set():
            results.append(float(machine["main"](row).numpy()[0, 5]))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(60):
        machine.load_params({"w": values[number % 2]})
    ends.set()
    for thread in threads:
        thread.join()
    assert set(results) <= {64.0, 256.0}
    assert float(machine["main"](np.ones((1, 256), np.float32)).numpy()[0, 5]) == 256.0


@pytest.mark.parametrize(
    "name", ["mobilenet-v3-small", "swin", "minilm-symbolic", "gpt2-prefill", "t5", "gru-bidirectional"]
)
def test_all_weights_of_a_network_may_be_others(name: str):
    """None decides about the program, and what is made of others is what the compiler makes of them."""
    model = CATALOGUE[name].build()
    first = generated(model)
    assert [weight.name for weight in first.weights.weights if weight.digest] == []
    others = other_weights(model)
    second = generated(model)
    made = constants_of(first.weights, others)
    assert len(made) > len(others) / 3
    for place, constant in enumerate(second.program.constants):
        assert made.get(place, first.program.constants[place]).tobytes() == constant.tobytes()


def generated(model: onnx.ModelProto) -> Generated:
    named = Weights()
    return compile_module(from_onnx(model, weights=named), weights=named)


def other_weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Puts other numbers into a model's tensors of floats."""
    rng, given = np.random.default_rng(1), {}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1:
            given[tensor.name] = (array * rng.uniform(0.5, 1.5, array.shape)).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(given[tensor.name], tensor.name))
    return given


def test_a_weight_may_be_used_in_any_number_of_ways():
    """What is made of it is written once, however many paths lead there, and however long they are."""
    x, w = var("x", (3,)), var("w", (3,))
    total = w
    for _ in range(2000):
        total = total + total * 0.25
    module = Module(main=function([x, w], x * total))
    first, second = (np.full(3, value, np.float32) for value in (1e-30, 2e-30))
    machine = VirtualMachine(treadle.compile(module, params={"w": first * 0}, named_weights=True))
    machine.load_params({"w": first * 0})
    assert np.array_equal(machine["main"](second).numpy(), second * 0)


BAD_TABLES = {
    "a value from later on": lambda table: replace(
        table, nodes=(replace(table.nodes[0], inputs=(10**6,)), *table.nodes[1:])
    ),
    "an unknown constant": lambda table: replace(table, constants=((10**4, 0),)),
    "a constant of another type": lambda table: replace(table, constants=((0, 1),)),
    "constants out of order": lambda table: replace(table, constants=table.constants[::-1]),
    "two weights of one name": lambda table: replace(table, weights=(table.weights[0], *table.weights)),
    "a node without results": lambda table: replace(table, nodes=(PrimitiveNode("exp", (0,), ()), *table.nodes)),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_table_that_does_not_suit_its_program_is_refused(case: str):
    executable = compiled(1)
    with pytest.raises(FormatError, match=r"weight|constant|node"):
        Executable(executable.program, weights=BAD_TABLES[case](executable.weights))


@pytest.mark.parametrize(
    "node",
    [
        PrimitiveNode("no_such_operator", (0,), (TensorType(DType.float32, (3,)),)),
        PrimitiveNode("exp", (0,), (TensorType(DType.float32, (3,)),)),
        PrimitiveNode(
            "broadcast_to",
            (1,),
            (TensorType(DType.float32, (1 << 20, 1 << 20, 32)),),
            (("shape", (1 << 20, 1 << 20, 32)),),
        ),
    ],
    ids=["of an unknown operator", "of another type", "of 2^47 bytes"],
)
def test_a_hostile_node_is_an_error_and_no_more(node: PrimitiveNode):
    executable = compiled(1)
    count = len(executable.weights.values)
    table = executable.weights
    nodes = (
        *table.nodes,
        node,
        PrimitiveNode("reshape", (count,), (TensorType(DType.float32, (10,)),), (("shape", (10,)),)),
    )
    place = next(place for place, number in table.constants if table.values[number].shape == (10,))
    constants = tuple((at, count + 1 if at == place else number) for at, number in table.constants)
    bad = replace(table, nodes=nodes, constants=constants)
    loaded = treadle.load(Executable(executable.program, weights=bad).as_bytes())
    with pytest.raises(TreadleError):
        VirtualMachine(loaded).load_params(weights(2))
