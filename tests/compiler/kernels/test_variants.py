"""Variants of kernels: all that a template offers give the same bits, within their memory; what it does not offer is refused."""

from __future__ import annotations

import numpy as np
import pytest
from treadle.compiler.operators import TABLE
from treadle.compiler.targets.cpu.kernels.lower import lower, space
from treadle.compiler.targets.cpu.toolchain import kernels as building
from treadle.formats.dtypes import DType
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import CompileError
from treadle.formats.primitive import Primitive, PrimitiveDefinition
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.text.assembly_printer import print_primitive
from treadle.formats.types import TensorType
from treadle.vm import library
from treadle.vm.machine import VirtualMachine

from .harness import TARGET, Builder, check, definition_of, random_array, run_kernel


def tensor(*shape: int) -> TensorType:
    return TensorType(DType.float32, shape)


def product() -> PrimitiveDefinition:
    b = Builder(tensor(19, 24), tensor(4, 24, 16), tensor(61))
    return b.definition(b("relu", b("add", b("matmul_packed", 0, 1, columns=61), 2)))


DEFINITIONS = {
    "product": product(),
    "convolution": definition_of(
        "conv_blocked", [tensor(1, 2, 9, 11, 16), tensor(5, 2, 3, 3, 16, 16)], channels=32, pads=(1, 1, 1, 1)
    ),
    "winograd": definition_of(
        "conv_winograd", [tensor(1, 1, 21, 23, 16), tensor(3, 6, 6, 16, 16)], channels=16, pads=(1, 1, 1, 1)
    ),
    "raw winograd": definition_of(
        "conv_winograd_raw", [tensor(1, 2, 9, 7, 16), tensor(3, 2, 3, 3, 16, 16)], channels=20, pads=(1, 1, 1, 1)
    ),
}


def operands(name: str) -> list[np.ndarray]:
    """Transformed weights are not any numbers."""
    arrays = [random_array(param, seed) for seed, param in enumerate(DEFINITIONS[name].params)]
    if name == "winograd":
        weight = random_array(tensor(48, 16, 3, 3))
        arrays[1:] = TABLE["pack_winograd_weights"].evaluate([weight], (("outputs", 4),))
    return arrays


def others(definition: PrimitiveDefinition) -> list[str]:
    """Each choice but the default ones, alone."""
    return [f"{name}={text}" for name, texts in space(definition, TARGET).items() for text in texts[1:]]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_variants_give_the_same_bits(name: str) -> None:
    definition = DEFINITIONS[name]
    arrays = operands(name)
    check(definition, arrays, rtol=1e-4, atol=1e-4)
    _, wanted = run_kernel(definition, arrays)
    tried = 0
    for variant in others(definition):
        try:
            (kernel,) = building.build([definition], TARGET, variants=[variant], progress=False)
        except CompileError:  # one choice may make another one impossible
            continue
        for parts in (1, 3):
            code, got = run_kernel(definition, arrays, parts=parts, kernel=kernel)
            assert code == 0
            assert got[0].tobytes() == wanted[0].tobytes(), variant
        tried += 1
    assert tried > 5


def test_the_default_is_no_variant() -> None:
    definition = DEFINITIONS["product"]
    default = " ".join(f"{name}={texts[0]}" for name, texts in sorted(space(definition, TARGET).items()))
    assert lower(definition, TARGET, default) == lower(definition, TARGET)


@pytest.mark.parametrize("variant", ["tile=99x99", "tile=0x0", "band=-1", "band=0", "nonsense=1", "prefetch=2"])
def test_other_choices_are_refused(variant: str) -> None:
    with pytest.raises((CompileError, ValueError)):
        lower(DEFINITIONS["product"], TARGET, variant)


def test_a_file_cannot_ask_for_what_no_template_offers() -> None:
    x, weights, bias = DEFINITIONS["product"].params
    (result,) = DEFINITIONS["product"].results
    primitive = Primitive("product", DEFINITIONS["product"])
    text = f"""
    {print_primitive(primitive)}
    func @main(x: {x}, weights: {weights}, bias: {bias}) -> {result} {{
      alloc_tensor r3, {result}
      call product (r0, r1, r2) -> (r3)
      ret r3
    }}"""
    program = parse_assembly(text)
    key = library.definition_key(DEFINITIONS["product"], TARGET.key)
    executable = Executable(program, tuning={TARGET.key: {key: "tile=99x99"}})
    with pytest.raises(CompileError, match="tile=99x99 is none of the template's"):
        VirtualMachine(executable)
    other = Executable(program, tuning={"another target": {key: "tile=99x99"}})
    arrays = operands("product")
    (wanted,) = run_kernel(DEFINITIONS["product"], arrays)[1]
    assert np.array_equal(VirtualMachine(other)["main"](*arrays), wanted)
