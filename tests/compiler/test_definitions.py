"""Definitions of primitives have one form: what compilers make has it, what comes from outside in another is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from treadle import VirtualMachine
from treadle.compiler.check import check_definition
from treadle.compiler.driver import compile
from treadle.compiler.ir.text import parse_module
from treadle.compiler.targets.cpu.kernels.lower import TEMPLATES
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import InferenceError, ParseError, VerificationError
from treadle.formats.primitive import Primitive, PrimitiveDefinition, PrimitiveNode, form_problem
from treadle.formats.program import Program
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.types import tensor
from treadle.vm import library
from treadle.vm.verify.verifier import verify

from .definitions import of_templates, rewired
from .samples import SAMPLES

HONEST = of_templates()
WRONG = {f"{name}: {what}": wrong for name, one in HONEST.items() for what, wrong in rewired(one).items()}
WIDE = "prim p(%0: float32[4096], %1: float32[1], %2: int64[1]) -> (float32[1], int64[1]) {"
TOP_K = WIDE + "\n %3, %4 = top_k(%0) {k=4096} : (float32[4096], int64[4096])\n return %1, %2\n}\n"
CALLER = """
func @main(x: float32[4096]) -> float32[1] {
  alloc_tensor r1, float32[1]
  alloc_tensor r2, int64[1]
  alloc_tensor r3, float32[1]
  alloc_tensor r4, int64[1]
  call p (r0, r1, r2) -> (r3, r4)
  ret r3
}"""


def program_of(definition: PrimitiveDefinition, name: str = "p") -> Program:
    """A program that has the primitive, and calls nothing."""
    program = parse_assembly("func @main(x: float32[2]) -> float32[2] { ret r0\n}")
    return replace(program, primitives=(Primitive(name, definition),))


def test_there_is_an_example_of_every_template() -> None:
    assert {node.operator for definition in HONEST.values() for node in definition.nodes} == TEMPLATES.keys()
    for definition in HONEST.values():
        check_definition(definition)
        verify(program_of(definition))
    assert len(WRONG) > 800


@pytest.mark.parametrize("what", WRONG)
def test_definitions_in_another_form_are_refused_by_name(what: str) -> None:
    definition = WRONG[what]
    with pytest.raises(InferenceError, match="primitive 'evil'"):
        check_definition(definition, "evil")
    with pytest.raises(VerificationError, match="primitive 'evil'"):
        verify(program_of(definition, "evil"))


def test_top_k_does_not_write_4096_elements_into_one() -> None:
    with pytest.raises(VerificationError, match="primitive 'p': parameter %1 is used by no node"):
        VirtualMachine(Executable(parse_assembly(TOP_K + CALLER)))
    with pytest.raises(ParseError, match="primitive 'p'"):
        parse_module(TOP_K)


def test_what_is_refused_is_refused_whatever_the_cache_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    program = parse_assembly(TOP_K + CALLER)
    target = library.compiler().target_key()
    library.store_record(library.definition_key(program.primitives[0].definition, target), None)
    path = tmp_path / "evil.trdl"
    path.write_bytes(Executable(program).as_bytes())
    for kernels in ("build", "cached"):
        with pytest.raises(VerificationError, match="primitive 'p'"):
            VirtualMachine(load(path), kernels=kernels)


def test_a_definition_that_lies_about_its_types_never_gets_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    program = parse_assembly(
        """
        prim lie(%0: float32[4]) -> float32[1] {
          %1 = exp(%0) : float32[1]
          return %1
        }
        func @main(x: float32[4]) -> float32[1] {
          alloc_tensor r1, float32[1]
          call lie (r0) -> (r1)
          ret r1
        }"""
    )
    lie = program.primitives[0].definition
    for _ in range(2):
        with pytest.raises(InferenceError, match="primitive 'lie'"):
            VirtualMachine(Executable(program))
    assert library.find_kernels([library.definition_key(lie, library.compiler().target_key())]) == {}


@pytest.mark.parametrize("operator", ["concat", "stack", "join_channels"])
def test_operators_of_any_number_of_tensors_take_one_at_least(operator: str) -> None:
    result = tensor("float32", (2, 1, 9, 7, 16))
    attributes = (("channels", ()), ("count", 0)) if operator == "join_channels" else ()
    node = PrimitiveNode(operator, (), (result,), attributes)
    with pytest.raises(InferenceError, match="got 0 inputs"):
        check_definition(PrimitiveDefinition((), (node,), (0,)))


def test_a_foreign_or_idle_variable_is_refused() -> None:
    honest = HONEST["softmax 0"]
    for variables, message in (
        (("n", "m"), "'m' appears nowhere"),
        ((), "dimension variable"),
        (("n", "n"), "two dimension variables"),
    ):
        wrong = replace(honest, variables=variables)
        with pytest.raises(InferenceError, match=message):
            check_definition(wrong)
        with pytest.raises(VerificationError, match="primitive 'p'"):
            verify(program_of(wrong))


def test_attributes_stand_in_order_and_once() -> None:
    honest = HONEST["top_k 1"]
    (node,) = honest.nodes
    for attributes in (node.attributes[::-1], (*node.attributes, node.attributes[-1])):
        wrong = replace(honest, nodes=(replace(node, attributes=attributes),))
        with pytest.raises(InferenceError, match="sorted by name, each once"):
            check_definition(wrong)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("name", SAMPLES)
def test_compilers_make_that_form(name: str, level: int) -> None:
    program = compile(SAMPLES[name].module, opt_level=level, embed_native=False).program
    assert [
        form_problem(primitive.definition) for primitive in program.primitives if form_problem(primitive.definition)
    ] == []


def test_zeros_of_different_signs_are_different_attributes() -> None:
    module = parse_module(
        """
        func @main(x: float32[2]) -> (float32[2], float32[2]) {
          a = divide(x, float32(0.0))
          b = divide(x, float32(-0.0))
          t = (a, b)
          t
        }"""
    )
    for level in (0, 1, 2):
        above, below = VirtualMachine(compile(module, opt_level=level))["main"](np.ones(2, np.float32))
        assert above.numpy().tolist() == [np.inf] * 2
        assert below.numpy().tolist() == [-np.inf] * 2
